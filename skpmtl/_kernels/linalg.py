"""Dense kernels on one small symmetric matrix per task.

Inner loops run from 0 over slices: an index that might be negative, which numba would wrap
around, keeps a loop from using vector instructions.
"""

import numpy as np

from .._runtime.jit import njit
from .._runtime.traced import WIDE, held, loop, smaller, traced


@njit
def mass_of(lo, n, weights):
    """Sum of the weights of the n rows from `lo` on."""
    mass = 0.0
    for p in range(lo, lo + n):
        mass += weights[p]
    return mass


def _sweeps(arguments):
    """Lower triangles <- minus the inverses, by Gauss and Jordan."""
    L, line, least = arguments
    r = L.shape[0]
    least[0] = np.inf
    for k in loop(r):
        least[0] = smaller(least[0], L[k, k])
        over = held(1.0 / L[k, k])
        for i in loop(k):
            line[i] = L[k, i]
            L[k, i] = line[i] * over
        for i in loop(k + 1, r):
            line[i] = L[i, k]
            L[i, k] = line[i] * over
        L[k, k], line[k] = -1.0 * over, 0.0
        for i in loop(r):
            x = held(line[i] * over)
            for j in loop(i + 1):
                L[i, j] = L[i, j] - x * line[j]


traced(_sweeps)


@njit
def spd_inverse_narrow(A, L, line, least):
    """`spd_inverse` for r up to about 100, of 16 matrices side by side.

    Loops inside one small matrix are too short for vector instructions. Scratch: L (r, r, 16), line
    (r, 16) and least (1, 16), of pivots.
    """
    m, r = A.shape[:2]
    for first in range(0, m, WIDE):
        count = min(WIDE, m - first)
        for i in range(r):
            for j in range(i + 1):
                for t in range(WIDE):  # idle lanes repeat the last matrix
                    L[i, j, t] = A[first + min(t, count - 1), i, j]
        _sweeps((L, line, least))
        for t in range(count):
            if not least[0, t] > 0.0:
                return False
            for i in range(r):
                for j in range(i + 1):
                    A[first + t, i, j] = -L[i, j, t]
                    A[first + t, j, i] = -L[i, j, t]
    return True


@njit
def spd_inverse(L):
    """Replace a symmetric positive definite matrix by its inverse. -> False if it is not.

    Cholesky factor, inverse of the factor, product: r^3 multiply-adds and no library call, which
    for r below about 100 costs more than the arithmetic.
    """
    r = L.shape[0]
    row = np.empty(r)
    for j in range(r):  # factor, by rows of the lower triangle
        for i in range(j, r):
            s = L[i, j]
            for q in range(j):
                s -= L[i, q] * L[j, q]
            L[i, j] = s
        if not L[j, j] > 0.0:
            return False
        root = L[j, j] ** 0.5
        for i in range(j, r):
            L[i, j] /= root
    for i in range(r):  # inverse of the factor, row by row
        pivot = 1.0 / L[i, i]
        for j in range(i):
            row[j] = 0.0
        for q in range(i):
            a = L[i, q] * pivot
            for j in range(q + 1):
                row[j] -= a * L[q, j]
        for j in range(i):
            L[i, j] = row[j]
        L[i, i] = pivot
    for i in range(r):  # inverse = M' M for the inverse factor M, into the upper triangle
        for j in range(i + 1):
            row[j] = 0.0
        for q in range(i, r):
            a = L[q, i]
            for j in range(i + 1):
                row[j] += a * L[q, j]
        for j in range(i + 1):
            L[j, i] = row[j]
    for i in range(r):
        for j in range(i):
            L[i, j] = L[j, i]
    return True


@njit
def gram(C, n, d, K):
    """K[i, o] = C[i, :d] . C[o, :d] for o <= i < n."""
    for i in range(0, n, 4):  # past the end the last row is repeated
        i1, i2, i3 = min(i + 1, n - 1), min(i + 2, n - 1), min(i + 3, n - 1)
        x0, x1, x2, x3 = C[i], C[i1], C[i2], C[i3]
        for o in range(0, i3 + 1, 2):
            o1 = min(o + 1, n - 1)
            z0, z1 = C[o], C[o1]
            a0, a1, a2, a3, b0, b1, b2, b3 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
            for j in range(d):
                p, q = z0[j], z1[j]
                a0 += x0[j] * p
                a1 += x1[j] * p
                a2 += x2[j] * p
                a3 += x3[j] * p
                b0 += x0[j] * q
                b1 += x1[j] * q
                b2 += x2[j] * q
                b3 += x3[j] * q
            K[i, o], K[i1, o], K[i2, o], K[i3, o] = a0, a1, a2, a3
            K[i, o1], K[i1, o1], K[i2, o1], K[i3, o1] = b0, b1, b2, b3


@njit
def pack(A, n, K, at):
    """Lower triangle of A[:n, :n], row by row, into K[at:]."""
    for p in range(n):
        for q in range(p + 1):
            K[at + q] = A[p, q]
        at += p + 1


@njit
def packed_product(K, at, n, z, u):
    """u[:n] = product of the symmetric matrix that is packed in K[at:] and z[:n]."""
    for p in range(n):
        row, a = K[at : at + p + 1], z[p]
        s = row[p] * a
        for q in range(p):
            s += row[q] * z[q]
        for q in range(p):
            u[q] += row[q] * a
        u[p] = s
        at += p + 1
