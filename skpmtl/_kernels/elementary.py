"""Exponentials to twelve digits, in instructions on vectors; libraries compute one number."""

import numpy as np

from .._runtime.jit import njit


@njit
def exp(x):
    """exp(x) of x in -700 ... 700 to 12 digits.

    exp(x) = 2^n exp(r) with an integer n, which is added to the exponent of the number.
    """
    n = np.rint(x * 1.4426950408889634)
    r = x - n * 0.6931471805599453
    p = 1.0 / 3628800.0
    p = p * r + 1.0 / 362880.0
    p = p * r + 1.0 / 40320.0
    p = p * r + 1.0 / 5040.0
    p = p * r + 1.0 / 720.0
    p = p * r + 1.0 / 120.0
    p = p * r + 1.0 / 24.0
    p = p * r + 1.0 / 6.0
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    bits = np.float64(p).view(np.int64) + (np.int64(np.int32(n)) << 52)
    return np.int64(bits).view(np.float64)
