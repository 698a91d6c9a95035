"""Bound what one task contributes: finite values only, row norms at most the bound."""

import numpy as np

from .._runtime.jit import njit

# Rounding may leave a row a few ulp above the bound it was scaled to; this margin covers it.
MARGIN = 1e-12


@njit
def clip_rows(W, bound, power, out):
    """Scale every row of W into the ball ||w||_power <= bound, power 2 or 4, into `out`.

    A row with a NaN or an infinite entry becomes zero: comparisons with NaN are false, so
    it would otherwise pass any norm test. Norms are taken after division by the largest
    entry, so squares neither overflow nor vanish. `out` may be W.
    """
    limit = bound * (1.0 - MARGIN)
    for k in range(W.shape[0]):
        largest = 0.0
        finite = True
        for j in range(W.shape[1]):
            value = W[k, j]
            if not np.isfinite(value):
                finite = False
            elif abs(value) > largest:
                largest = abs(value)
        if not finite or largest == 0.0:
            for j in range(W.shape[1]):
                out[k, j] = 0.0
            continue
        total = 0.0
        for j in range(W.shape[1]):
            square = (W[k, j] / largest) ** 2
            total += square if power == 2 else square * square
        root = total ** (1.0 / power)  # norm = largest * root, which itself may overflow
        if largest > limit / root:
            for j in range(W.shape[1]):
                out[k, j] = (W[k, j] / largest) * (limit / root)
        else:
            for j in range(W.shape[1]):
                out[k, j] = W[k, j]
