"""Clipping of contributions: finite values, row norms of at most a bound."""

import numpy as np

from .._runtime.jit import njit

# Rounding may leave a row a few ulp above the bound it was scaled to; this margin covers it.
MARGIN = 1e-12


@njit
def clip(W, bound, norms):
    """Scale every row of W (n, d) down to the norm `bound`, in place; norms (n,) are those before.

    A row with a NaN or an infinite entry becomes zero, its norm infinite.
    """
    limit = bound * (1.0 - MARGIN)
    for k in range(W.shape[0]):
        w = W[k]
        unit, square = 1.0, 0.0
        for j in range(w.shape[0]):
            square += w[j] * w[j]
        if not 1e-200 < square < 1e200:  # squares that overflow, vanish, or are not finite
            unit, square = 0.0, 0.0
            for j in range(w.shape[0]):
                unit = max(unit, abs(w[j]) if np.isfinite(w[j]) else np.inf)
            if unit == np.inf:
                w[:] = 0.0
            if unit == 0.0 or unit == np.inf:
                norms[k] = unit
                continue
            for j in range(w.shape[0]):
                square += (w[j] / unit) ** 2
        root = square**0.5
        norms[k] = unit * root
        longest = limit / root
        if unit > longest:  # unit * root itself may overflow
            # In two loops: in one, compilers multiply by `longest` first, which overflows as well.
            for j in range(w.shape[0]):
                w[j] /= unit
            for j in range(w.shape[0]):
                w[j] *= longest
