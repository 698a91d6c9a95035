"""Compiled loops modulo 2^64: NumPy has no fast products of whole numbers.

They are not kept on the disk: servers import these modules under another name than clients, which
numba's cache does not distinguish.
"""

from functools import partial

import numba
import numpy as np

_COLUMNS = 256  # sums that stay in the nearest cache
_compiled = partial(numba.njit, error_model="numpy", nogil=True)


@_compiled
def multiply(left, right, out):
    """out (n, c) = left (n, m) @ right (m, c) of int64, modulo 2^64."""
    n, m = left.shape
    sums = np.empty(_COLUMNS, np.int64)
    for first in range(0, right.shape[1], _COLUMNS):
        last = min(first + _COLUMNS, right.shape[1])
        for i in range(n):
            for j in range(_COLUMNS):
                sums[j] = 0
            for k in range(0, m - 3, 4):  # sums are loaded and stored a quarter as often
                a, b, c, d = left[i, k], left[i, k + 1], left[i, k + 2], left[i, k + 3]
                p, q = right[k, first:last], right[k + 1, first:last]
                r, s = right[k + 2, first:last], right[k + 3, first:last]
                for j in range(last - first):
                    sums[j] += a * p[j] + b * q[j] + c * r[j] + d * s[j]
            for k in range(m - m % 4, m):
                a, p = left[i, k], right[k, first:last]
                for j in range(last - first):
                    sums[j] += a * p[j]
            for j in range(last - first):
                out[i, first + j] = sums[j]


@_compiled
def veil(terms, taken, given, mask, shift):
    """terms += taken - given + the upper bits of mask; uint64, modulo 2^64."""
    for i in range(terms.shape[0]):
        terms[i] += taken[i] - given[i] + (mask[i] >> shift)
