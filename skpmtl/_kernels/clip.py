"""Clipping of contributions: finite values, row norms of at most a bound.

A compiled loop is two to three times as fast, microseconds of a fit, and every first fit with a
budget would wait a quarter of a second for it.
"""

import numpy as np

# Rounding may leave a row a few ulp above the bound it was scaled to; this margin covers it.
MARGIN = 1e-12
_BLOCK = 1 << 15  # numbers that stay in the cache until the last pass over them


def clip_rows(W, bound, power, out):
    """Scale every row of W into the ball ||w||_power <= bound, power 2 or 4, into `out`.

    A row with a NaN or an infinite entry becomes zero. Norms are taken after division by the
    largest entry, so squares neither overflow nor vanish. `out` may be W.
    """
    limit, step = bound * (1.0 - MARGIN), max(_BLOCK // max(W.shape[1], 1), 1)
    for first in range(0, len(W), step):
        _clip(W[first : first + step], limit, power, out[first : first + step])


def _clip(W, limit, power, out):
    unit = np.array(W, dtype=np.float64)
    # The largest of a row with a NaN is NaN.
    largest = np.maximum(unit.max(axis=1, initial=0.0), -unit.min(axis=1, initial=0.0))
    bad = ~np.isfinite(largest)
    unit[bad] = 0.0
    largest[bad | (largest == 0.0)] = 1.0
    unit /= largest[:, None]
    square = unit if power == 2 else unit * unit
    root = np.einsum("kj,kj->k", square, square) ** (1.0 / power)
    # The norm is largest * root, which itself may overflow; root is 0 or at least 1.
    longest = limit / np.maximum(root, 1.0)
    near = ~(largest > longest) & ~bad
    unit *= longest[:, None]
    unit[near] = W[near]
    out[...] = unit
