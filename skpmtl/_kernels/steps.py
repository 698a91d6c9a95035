"""Gradient steps of a task on its own rows, around a centre.

Task k holds the difference D_k between its model and share_k times its centre. For dense rows D_k
is (n_outputs, n_features); for CSR rows it lives on the columns that occur in the task's rows and
is (n_columns, n_outputs), so that the work is proportional to the non-zeros. Inside, features are
centred by the task's own means when there is an intercept, which makes the intercept's curvature
separate from that of the weights.

Losses are those of `skpmtl._kernels.losses`; ``bound`` is the largest second derivative: 1, 1/4,
1/2.
"""

from typing import NamedTuple

import numpy as np

from .._runtime.jit import njit
from .clip import MARGIN
from .linalg import mass_of
from .losses import LOGISTIC, SQUARED
from .rows import feature_means, gather, place_columns, residuals, scores

# Numbers behind an array that steps write. Compiled loops take vector instructions where what they
# store begins no less than 256 bytes behind what they load, and else single ones, which multiply
# and add in another order: the last bit would hang on where short arrays happen to lie in memory.
APART = 32


class Around(NamedTuple):
    """Penalties and step sizes of the tasks; arrays are (n_tasks,) but for `centres`."""

    centres: np.ndarray  # (n_centres, n_outputs n_features), in the layout of D over all columns
    which: np.ndarray  # centre of each task
    share: np.ndarray  # of the centre, which D is the difference to
    strength: np.ndarray
    intercept_strength: np.ndarray  # of the intercepts to zero
    scale: np.ndarray  # weight of the sum of the losses
    curvature: np.ndarray  # largest eigenvalue of X'X


class Steps(NamedTuple):
    """How all tasks step."""

    loss: int
    bound: float
    fit_intercept: bool
    n_steps: int
    boldness: float  # steps first take the curvature to be that many times less
    tol: float  # a task ends when a step moves it by less than this part of D
    held: float = 0.0  # rows more, at the mean of the others, which all classes share alike


class Found(NamedTuple):
    """Where the results go."""

    columns: np.ndarray  # of CSR rows, at ends / n_outputs
    ends: np.ndarray  # task a of `pick` has D[ends[a]:ends[a + 1]]
    D: np.ndarray
    b: np.ndarray  # (n, n_outputs), intercepts


@njit
def local_steps(
    X,
    data,
    indices,
    indptr,
    rows,
    offsets,
    y,
    pick,
    around,
    settings,
    start,
    found,
    given,
    weights,
):
    """Steps of the tasks `pick` on loss + strength / 2 ||D||^2, from the centre or from `start`.

    They are accelerated by Nesterov's constant momentum. Log-losses add `given` (n_rows, n_outputs)
    to the scores. `start`, flat as D, and `given` may have no element: None would have the loop
    compiled once for each that is there or not.
    """
    started, offset = start.shape[0] > 0, given.shape[0] > 0
    centres, which, share, strengths = around.centres, around.which, around.share, around.strength
    loss, n_steps = settings.loss, settings.n_steps
    fit_intercept, tol = settings.fit_intercept, settings.tol
    columns, ends, D, b = found
    C = b.shape[1]
    n_features = centres.shape[1] // C
    longest, widest = 0, 0
    for a in range(pick.shape[0]):
        longest = max(longest, offsets[pick[a] + 1] - offsets[pick[a]])
        widest = max(widest, (ends[a + 1] - ends[a]) // C)
    place = np.full(n_features if data is not None else 1, -1, dtype=np.int64)
    mean = np.zeros(widest + APART)
    z = np.empty((longest + APART, C))
    base = np.empty((longest + APART, C))
    V = np.empty(widest * C + APART)
    G = np.empty(widest * C + APART)
    shift = np.zeros(C + APART)
    level = np.zeros(C + APART)[:C]
    lead = np.zeros(C + APART)
    new = np.zeros(C + APART)
    total = np.zeros(C + APART)[:C]
    further = np.zeros(C + APART)[:C]
    for a in range(pick.shape[0]):
        k = pick[a]
        lo, n = offsets[k], offsets[k + 1] - offsets[k]
        W = D[ends[a] : ends[a + 1]]
        size = W.shape[0]
        width = size // C
        centre = centres[which[k]]
        if data is not None:
            mine = columns[ends[a] // C : ends[a + 1] // C]
            place_columns(indices, indptr, rows, lo, lo + n, place, mine)
        mass = mass_of(lo, n, weights)
        _scores_of_centre(X, data, indices, indptr, rows, lo, n, centre, share[k], base)
        for j in range(width):
            mean[j] = 0.0
        for c in range(C):
            level[c] = 0.0
            total[c] = 0.0
        if fit_intercept:
            feature_means(X, data, indices, indptr, rows, lo, n, place, width, mean, weights, mass)
            for i in range(n):
                for c in range(C):
                    total[c] += base[i, c] * (weights[lo + i] / mass)
            for i in range(n):
                for c in range(C):
                    base[i, c] -= total[c]
            if not offset:
                _first_intercepts(y, lo, n, loss, level, weights, mass)
        if offset:
            for i in range(n):
                for c in range(C):
                    base[i, c] += given[lo + i, c]
        weight = around.scale[k]
        strength = strengths[k]
        tau = around.intercept_strength[k]
        limit = weight * settings.bound * around.curvature[k]
        b_smooth = weight * settings.bound * (mass + settings.held) + tau
        begin = level.copy()
        for attempt in range(6):
            smooth = limit / settings.boldness
            for j in range(size):
                W[j] = start[ends[a] + j] if started else 0.0
                V[j] = W[j]
            for c in range(C):
                level[c] = begin[c]
                lead[c] = begin[c]
            first, last = -1.0, np.inf
            diverged = False
            for _ in range(n_steps):
                full = smooth + strength
                step = 1.0 / full if full > 0 else 0.0
                q = (strength / full) ** 0.5 if full > 0 else 1.0
                momentum = (1.0 - q) / (1.0 + q)
                for c in range(C):
                    s = lead[c]
                    if fit_intercept:
                        if data is not None:
                            for j in range(width):
                                s -= mean[j] * V[j * C + c]
                        else:
                            for j in range(width):
                                s -= mean[j] * V[c * width + j]
                    shift[c] = s
                scores(
                    X,
                    data,
                    indices,
                    indptr,
                    rows,
                    lo,
                    n,
                    place,
                    V,
                    shift,
                    base,
                    z,
                )
                residuals(z, y, lo, n, loss)
                for i in range(n):
                    for c in range(C):
                        z[i, c] *= weights[lo + i]
                gather(X, data, indices, indptr, rows, lo, n, place, z, size, G)
                moved, size2, turn, b_moved, b_turn = 0.0, 0.0, 0.0, 0.0, 0.0
                for c in range(C):
                    new[c] = 0.0
                    total[c] = 0.0
                if fit_intercept:
                    for i in range(n):
                        for c in range(C):
                            total[c] += z[i, c]
                    if settings.held > 0:
                        _row_of_all(lead, loss, settings.held, further)
                    for c in range(C):
                        slope = weight * (total[c] + further[c]) + tau * lead[c]
                        new[c] = lead[c] - slope / b_smooth
                    for c in range(C):
                        b_moved += (new[c] - lead[c]) ** 2 * b_smooth
                        b_turn += (lead[c] - new[c]) * (new[c] - level[c]) * b_smooth
                _gradient_step(data, width, mean, total, weight, strength, step, V, G)
                for j in range(size):
                    moved += (G[j] - V[j]) ** 2
                    size2 += G[j] * G[j]
                    turn += (V[j] - G[j]) * (G[j] - W[j])
                moved = b_moved + moved * full
                size2 *= full
                turn = b_turn + turn * full
                if first < 0:
                    first = moved
                elif moved > 100.0 * first and moved > 1e-20:
                    diverged = True  # the power iteration stopped too early
                    break
                # Momentum that points uphill is dropped (adaptive restart).
                beta = 0.0 if turn > 0 else momentum
                if moved > last and smooth < limit:
                    smooth, beta = min(2.0 * smooth, limit), 0.0
                last = moved
                for j in range(size):
                    V[j] = G[j] + beta * (G[j] - W[j])
                    W[j] = G[j]
                for c in range(C):
                    lead[c] = new[c] + beta * (new[c] - level[c])
                    level[c] = new[c]
                if moved <= tol * tol * (size2 + 1e-300):
                    break
            if not diverged:
                break
            limit *= 2.0
        for c in range(C):
            b[a, c] = 0.0
        if fit_intercept:
            # Back from centred features: b = level - mean' w.
            for c in range(C):
                b[a, c] = level[c]
            for j in range(size):
                c = j % C if data is not None else j // width
                f = mean[j // C] if data is not None else mean[j % width]
                b[a, c] -= f * W[j]
                column = columns[ends[a] // C + j // C] * C + c if data is not None else j
                b[a, c] -= f * share[k] * centre[column]
        if data is not None:
            for j in range(width):
                place[columns[ends[a] // C + j]] = -1


@njit
def _scores_of_centre(X, data, indices, indptr, rows, lo, n, centre, share, base):
    """base <- scores of the rows under `share` of the centre."""
    C = base.shape[1]
    if data is not None:
        for i in range(n):
            r = rows[lo + i]
            for c in range(C):
                base[i, c] = 0.0
            for q in range(indptr[r], indptr[r + 1]):
                v = centre[indices[q] * C : (indices[q] + 1) * C]
                x = share * data[q]
                for c in range(C):
                    base[i, c] += x * v[c]
    else:  # a second call of `scores` would be compiled twice
        width = X.shape[1]
        for i in range(n):
            x = X[rows[lo + i]]
            for c in range(C):
                s = 0.0
                for j in range(width):
                    s += x[j] * centre[c * width + j]
                base[i, c] = share * s


@njit
def _gradient_step(data, width, mean, total, weight, strength, step, V, G):
    """G, the sums of the rows times their residuals, <- V minus a step along the gradient.

    `total` are the sums of the residuals: features are centred by `mean`.
    """
    C = total.shape[0]
    outer = width if data is not None else C
    inner = C if data is not None else width
    for o in range(outer):
        for i in range(inner):
            j = o * inner + i
            off = mean[o] * total[i] if data is not None else mean[i] * total[o]
            G[j] = weight * (G[j] - off)
    size = width * C
    for j in range(size):
        G[j] += strength * V[j]
    for j in range(size):
        G[j] = V[j] - step * G[j]


@njit
def _first_intercepts(y, lo, n, loss, level, weights, mass):
    """level <- frequencies of the classes, with half a row for each; mean of real targets."""
    C = level.shape[0]
    if loss == SQUARED:
        for i in range(n):
            level[0] += y[lo + i] * (weights[lo + i] / mass)
    elif loss == LOGISTIC:
        positive = 0.5
        for i in range(n):
            if y[lo + i] > 0:
                positive += weights[lo + i]
        level[0] = np.log(positive / (mass + 1.0 - positive))
    else:
        for c in range(C):
            level[c] = 0.5
        for i in range(n):
            level[int(y[lo + i])] += weights[lo + i]
        middle = 0.0
        for c in range(C):
            level[c] = np.log(level[c])
        for c in range(C):
            middle += level[c] / C
        for c in range(C):
            level[c] -= middle


@njit
def _row_of_all(level, loss, held, out):
    """out = derivatives of the losses of `held` rows, scores `level`, that all classes share."""
    C, top, mass = out.shape[0], 0.0, 0.0
    for c in range(C):
        top = max(top, level[c])
    for c in range(C):
        mass += np.exp(level[c] - top)
    if loss == LOGISTIC:  # the other class has the score 0
        mass += np.exp(-top)
    for c in range(C):
        part = 0.5 if loss == LOGISTIC else 1.0 / C
        out[c] = held * (np.exp(level[c] - top) / mass - part)


@njit
def add_clipped(D, columns, ends, n_outputs, pick, centres, which, share, clip_norm, total):
    """total[which] += clipped (D - (1 - share) centre) of every task; differences on own columns.

    An update that is not finite counts as zero.
    """
    C = n_outputs
    lack = np.zeros(centres.shape[0])
    square = np.zeros(centres.shape[0])
    for g in range(centres.shape[0]):
        for j in range(centres.shape[1]):
            square[g] += centres[g, j] ** 2
    for a in range(pick.shape[0]):
        g = which[pick[a]]
        off = share[pick[a]] - 1.0
        norm = off * off * square[g]
        for p in range(ends[a], ends[a + 1]):
            v = centres[g, columns[p // C] * C + p % C]
            norm += (D[p] + off * v) ** 2 - (off * v) ** 2
        # What the subtraction may have lost to rounding is added back.
        norm = (max(norm, 0.0) + 1e-12 * off * off * square[g]) ** 0.5
        if not np.isfinite(norm):
            continue
        limit = clip_norm * (1.0 - MARGIN)
        shrink = 1.0 if norm <= limit else limit / norm
        for p in range(ends[a], ends[a + 1]):
            total[g, columns[p // C] * C + p % C] += shrink * D[p]
        lack[g] += shrink * off
    for g in range(centres.shape[0]):
        if lack[g] != 0.0:
            for j in range(centres.shape[1]):
                total[g, j] += lack[g] * centres[g, j]
