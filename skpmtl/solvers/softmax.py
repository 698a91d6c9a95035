"""Models of more than two classes under a prior: one for each class, by the same least squares.

The softmax loss has the Hessian H = diag(p) - p p' in the C scores of a row. Off the direction in
which all scores move together, which changes nothing, it lies between the diagonal matrix of
p_c (1 - p_c) and twice that (p_b / (1 - p_a) are the entries of a stochastic matrix, all of whose
other eigenvalues are in [-1, 0]). Classes are therefore solved one by one with such weights, and
what all of them have in common is taken away. C / (C - 1) times the diagonal is exact where all
classes are alike, and for two.
"""

import numpy as np

from ..tables.table import weighted_sum
from ..tables.targets import class_shares

_STEPS = 100
_LEAST = 1e-6  # of p (1 - p)
_SAFE = 1.5  # steps with this many times the diagonal leave a third of the distance, or less


def softmax(score):
    """Probabilities of the classes, (n, C)."""
    P = np.exp(score - score.max(axis=1, keepdims=True))
    P /= P.sum(axis=1, keepdims=True)
    return P


def _working(P, T, score, c, factor, counts):
    """Weights and response of the least squares of one class."""
    weight = factor * np.maximum(P[:, c] * (1.0 - P[:, c]), _LEAST)
    response = score[:, c] + (T[:, c] - P[:, c]) / weight
    return weight if counts is None else counts * weight, response


def softmax_criteria(block, label, score, weak, shift=0.0, counts=None):
    """`LocalModels.criteria` at the scores so far (n, C), for a block of tasks.

    The determinants of C classes count (C - 1) / C times, which is exact where all classes are
    alike: only differences between scores mean anything. The level is that of weights 1 / C,
    whatever the scores are. `shift` (n, C) is what a centre adds to them; `counts` (n,) how much
    each row counts, None: once.
    """
    C = score.shape[1]
    P, T, found = softmax(score + shift), class_shares(label, C), 0.0
    level = block.spread(counts) / C
    left = np.empty((C, len(score), len(weak)))
    for c in range(C):
        working = _working(P, T, score, c, C / (C - 1.0), counts)
        of_class = level, left[c], (C - 1.0) / C
        (one,), _ = block.criteria(*working, None, 0.0, of_class=of_class)
        found = found + 2.0 * one
    left += np.transpose(np.broadcast_to(shift, score.shape))[..., None]
    top = left.max(axis=0)
    deviance = np.log(sum(np.exp(left - top))) + top - weighted_sum(T.T, left)
    if counts is not None:
        deviance *= counts[:, None]
    found += 2.0 * np.add.reduceat(deviance, block.offsets[:-1])
    return 0.5 * found + weak, level


def softmax_modes(block, label, score, precision, tol, shift=0.0, counts=None):
    """-> weights (m, C, r), intercepts (m, C) and scores of posterior modes, from these scores on.

    `shift` (n, C) is what a centre adds to the scores. A task ends when none of its scores moves by
    more than `tol`.
    """
    (m, d), C = (len(precision), block.A.shape[1]), score.shape[1]
    T, factor = class_shares(label, C), max(C / (C - 1.0), _SAFE)
    shift = np.broadcast_to(shift, score.shape)
    W, b, score, active = np.empty((m, C, d)), np.empty((m, C)), score.copy(), np.arange(m)
    for _ in range(_STEPS):
        part, kept = block.select(active)
        now, target, own = score[kept], T[kept], None if counts is None else counts[kept]
        P, models = softmax(now + shift[kept]), np.empty((len(active), C, d))
        shifts, new = np.empty((len(active), C)), np.empty(now.shape)
        for c in range(C):
            working = _working(P, target, now, c, factor, own)
            models[:, c], shifts[:, c] = part.modes(*working, precision[active])
        models -= models.mean(axis=1, keepdims=True)
        shifts -= shifts.mean(axis=1, keepdims=True)
        for c in range(C):
            new[:, c] = part.scores(np.ascontiguousarray(models[:, c]), shifts[:, c])
        W[active], b[active] = models, shifts
        step = new - now
        # A longer step would leave the quadratic approximation.
        score[kept] += np.clip(step, -4.0, 4.0)
        moved = np.maximum.reduceat(np.abs(step).max(axis=1), part.offsets[:-1])
        active = active[moved > tol]
        if not len(active):
            break
    return W, b, score
