"""Dense kernels on one small symmetric matrix per task.

Inner loops run from 0 over slices: an index that might be negative, which numba would wrap
around, keeps a loop from using vector instructions.
"""

import numpy as np

from .._jit import njit
from .._simd import LANES, load, splat, store


@njit
def spd_inverse_narrow(A):
    """`spd_inverse` for r up to about 100 and more than eight matrices.

    Gauss-Jordan sweeps on the lower triangles of eight matrices, with the same entry of all of
    them side by side: loops inside one small matrix are too short for vector instructions.
    """
    m, r = A.shape[0], A.shape[1]
    L = np.zeros((r, r, LANES))
    column, scaled = np.zeros((r + 1, LANES)), np.zeros((r, LANES))
    for first in range(0, m, LANES):
        count = min(LANES, m - first)
        for i in range(r):
            for j in range(i + 1):
                for t in range(LANES):  # idle lanes repeat the last matrix
                    L[i, j, t] = A[first + min(t, count - 1), i, j]
        for k in range(r):
            for t in range(LANES):
                if not L[k, k, t] > 0.0:
                    return False
            pivot = 1.0 / load(L, k, k, 0)
            for i in range(r):
                c = load(L, max(i, k), min(i, k), 0)
                store(column, i, 0, c)
                store(scaled, i, 0, c * pivot)
            for i in range(0, r - 1, 2):  # row and column k are set below
                c, e = load(column, i, 0), load(column, i + 1, 0)
                for j in range(i + 1):
                    s = load(scaled, j, 0)
                    store(L, i, j, 0, load(L, i, j, 0) - c * s)
                    store(L, i + 1, j, 0, load(L, i + 1, j, 0) - e * s)
                store(L, i + 1, i + 1, 0, load(L, i + 1, i + 1, 0) - e * load(scaled, i + 1, 0))
            if r % 2:
                c = load(column, r - 1, 0)
                for j in range(r):
                    store(L, r - 1, j, 0, load(L, r - 1, j, 0) - c * load(scaled, j, 0))
            for i in range(r):
                store(L, max(i, k), min(i, k), 0, load(scaled, i, 0))
            store(L, k, k, 0, splat(0.0) - pivot)
        for t in range(count):
            for i in range(r):
                for j in range(i + 1):
                    A[first + t, i, j] = -L[i, j, t]
                    A[first + t, j, i] = -L[i, j, t]
    return True


@njit
def spd_inverse(A):
    """Replace every symmetric positive definite A[k] by its inverse. -> False if one is not.

    Cholesky factor, inverse of the factor, product: r^3 multiply-adds per matrix and no
    library call, which for r below about 100 costs more than the arithmetic.
    """
    r = A.shape[1]
    row = np.empty(r)
    for k in range(A.shape[0]):
        L = A[k]
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
    """K[i, o] = C[i, :d] . C[o, :d] for i, o < n."""
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
    for i in range(n):
        for o in range(i):
            K[o, i] = K[i, o]
