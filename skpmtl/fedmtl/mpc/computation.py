"""The aggregation of FedMTL on shares: one fixed sequence of operations, of public shapes.

Equation numbers are those of P. Sen, C. Borcea, FedMTL: privacy-preserving federated multi-task
learning, ECAI 2024. No branch and no message size depends on data, and nothing but masked numbers
is opened.
"""

import numpy as np

from .job import SCORE, SIZE, SIZE_RATIO, WEIGHT
from .ring import modular

__all__ = ["aggregate", "largest_matching"]

_UNIT = 30  # fractional bits of weights divided by a power of two near their sum
_STEPS = 3  # of Newton's iteration: errors .086, .0074, 5.5e-5, 3e-9


def largest_matching(gains, maximum):
    """Value of the best one-to-one matching of every (R, R) matrix in `gains`; none negative.

    f(S) = max over k in S of f(S without k) + gain[|S| - 1, k] over subsets S of columns: the same
    R 2^(R-1) - 2^R + 1 comparisons for all data.
    """
    n, size, _ = gains.shape
    f = gains[:, 0, :]
    place = {1 << k: k for k in range(size)}
    for r in range(1, size):
        sets = [s for s in range(1 << size) if s.bit_count() == r + 1]
        members = [[k for k in range(size) if s >> k & 1] for s in sets]
        rest = [[place[s ^ 1 << k] for k in own] for s, own in zip(sets, members, strict=True)]
        members, rest = np.array(members), np.array(rest)
        place = {s: at for at, s in enumerate(sets)}
        choices = [f[:, rest[:, q]] + gains[:, r, :][:, members[:, q]] for q in range(r + 1)]
        while len(choices) > 1:
            left = [choices.pop()] if len(choices) % 2 else []
            half = len(choices) // 2  # pairs of one level are compared in one message
            best = maximum(np.stack(choices[:half]), np.stack(choices[half:]))
            choices = [*best, *left]
        f = choices[0]
    return f.reshape(n)


def aggregate(party, job, uploads):
    """Yield shares of the new models, section by section: heads (N, R D), then shared layers.

    A section of the uploads is read after the results of the one before were taken. Results have
    ``WEIGHT + VALUE`` fractional bits: averages are not truncated, clients rescale.

    Parameters
    ----------
    party : Server or Dealer
    job : Job
    uploads : Uploads
        ``uploads.part(name)``, and ``uploads.columns(section)`` of shared layers, are `Masked`.
    """
    n, rows = job.n_clients, job.max_heads
    owner = np.repeat(np.arange(n), rows)

    # Eq. 4 for all pairs of heads; tasks in common.
    party.part("cosines")
    directions = uploads.part("directions").map(lambda x: x.reshape(n * rows, -1))
    cosines = party.product(directions, directions.map(np.transpose))
    labels = uploads.part("labels").map(lambda x: x.reshape(n * rows, -1))
    same = party.product(labels, labels.map(np.transpose))

    # Eqs. 4, 5. H is symmetric, and H_ii = K_i exactly: a client keeps its own model at Z_i = 1.
    party.part("matching")
    cosines = cosines.reshape(n, rows, n, rows).transpose(0, 2, 1, 3)
    first, second = np.triu_indices(n, 1)
    counts = party.shares(uploads.part("labels")).sum(axis=(1, 2), dtype=np.uint64)
    H = np.zeros((n, n), np.uint64)
    H[np.diag_indices(n)] = counts << modular(SCORE)
    for start in range(0, len(first), job.pairs_at_once):
        i, j = (at[start : start + job.pairs_at_once] for at in (first, second))
        gains = party.ramp(cosines[i, j])  # a pair of negative cosine stays unmatched
        H[i, j] = H[j, i] = party.truncate(largest_matching(gains, party.maximum), SCORE)

    # Eqs. 6, 7 without division: S_ij >= Z_i is H_ij >= Z_i K_i, and 1 / K_i cancels in the means.
    party.part("weights")
    near = party.step(H - party.shares(uploads.part("least"))[:, None])
    size = uploads.part("size").map(lambda x: np.repeat(x[None], n, axis=0))
    weights = party.multiply(near, party.multiply(H, size))

    # Eqs. 8, 9: a row of weights for every client, and one for every uploaded head.
    has = same.reshape(n * rows, n, rows).sum(axis=2, dtype=np.uint64)
    head_weights = party.multiply(weights[owner], has)
    weights = _normalised(party, job, np.concatenate([weights, head_weights]))
    head_weights = party.multiply(weights[n:][:, owner], same)

    # Eqs. 2, 3.
    party.part("heads")
    heads = uploads.part("heads").map(lambda x: x.reshape(n * rows, -1))
    yield party.product(party.mask(head_weights), heads).reshape(n, -1)
    party.part("shared layers")
    masked = party.mask(weights[:n])
    for section in range(1, job.n_sections):
        party.part("shared layers")
        yield party.product(masked, uploads.columns(section))


def _normalised(party, job, weights):
    """Rows of weights divided by their sums, with `WEIGHT` fractional bits; rows of zeros stay.

    The sum T of a row has `total_bits` bits, and at least those of a client's own weight. Comparing
    it with powers of two gives V = 2^k with T V in [1/2, 1) of the largest number, and Newton's
    iteration y (2 - t y) for 1 / t begins at 2.914 - 2 t, within .086 of it (O. Catrina, A. Saxena,
    Secure computation with fixed-point numbers, FC 2010).
    """
    bits, least = job.total_bits, SCORE + SIZE - (SIZE_RATIO.bit_length() - 1)
    totals = weights.sum(axis=1, dtype=np.uint64)
    powers = np.arange(least + 1, bits, dtype=np.uint64)
    ends = party.constant(np.repeat((modular(1) << powers)[None], len(totals), axis=0))
    reached = party.step(totals[:, None] - ends)
    scale = party.constant(np.full(len(totals), modular(2 ** (bits - 1 - least))))
    scale -= (reached << (modular(bits - 1) - powers)).sum(axis=1, dtype=np.uint64)
    weights = party.multiply(weights, np.repeat(scale[:, None], weights.shape[1], axis=1))
    weights = party.truncate(weights, bits - _UNIT)
    t = weights.sum(axis=1, dtype=np.uint64)

    def number(value):
        return party.constant(np.full(t.shape, modular(round(value * 2**_UNIT))))

    y = number(2.9142) - (t + t)
    for _ in range(_STEPS):
        rest = number(2.0) - party.truncate(party.multiply(t, y), _UNIT)
        y = party.truncate(party.multiply(y, rest), _UNIT)
    weights = party.multiply(weights, np.repeat(y[:, None], weights.shape[1], axis=1))
    return party.truncate(weights, 2 * _UNIT - WEIGHT, nearest=True)
