"""Exponentials and logarithms in instructions that work on vectors; libraries compute one number.

Twelve digits of `exp`, fifteen of `log`.
"""

import numpy as np

from .._runtime.jit import njit

__all__ = ["exp", "log"]


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


@njit
def log(x):
    """Logarithm of a positive normal number.

    x = 2^n z with z between sqrt(1 / 2) and sqrt(2), and log z = 2 artanh((z - 1) / (z + 1)).
    """
    bits = np.float64(x).view(np.int64) - 0x3FE6A09E667F3BCD
    n = bits >> 52
    z = np.int64((bits & 0xFFFFFFFFFFFFF) + 0x3FE6A09E667F3BCD).view(np.float64)
    s = (z - 1.0) / (z + 1.0)
    q = s * s
    p = 1.0 / 19.0
    p = p * q + 1.0 / 17.0
    p = p * q + 1.0 / 15.0
    p = p * q + 1.0 / 13.0
    p = p * q + 1.0 / 11.0
    p = p * q + 1.0 / 9.0
    p = p * q + 1.0 / 7.0
    p = p * q + 1.0 / 5.0
    p = p * q + 1.0 / 3.0
    return np.float64(np.int32(n)) * 0.6931471805599453 + (2.0 * s + 2.0 * s * q * p)
