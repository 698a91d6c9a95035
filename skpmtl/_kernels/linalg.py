"""Dense kernels on one small symmetric matrix per task.

Inner loops run from 0 over slices: an index that might be negative, which numba would wrap
around, keeps a loop from using vector instructions.
"""

import numpy as np

from .._runtime.jit import njit
from .._runtime.registers import LANES, load, splat, store


@njit
def mass_of(lo, n, weights):
    """Sum of the weights of the n rows from `lo` on."""
    mass = 0.0
    for p in range(lo, lo + n):
        mass += weights[p]
    return mass


@njit
def spd_inverse_narrow(A, L, lines):
    """`spd_inverse` for r up to about 100 and more than eight matrices.

    Gauss-Jordan sweeps of two pivots on the lower triangles of eight matrices, with the same entry
    of all of them side by side: loops inside one small matrix are too short for vector
    instructions. An odd r is filled up with a row of the identity. Scratch for R = r + r % 2: L
    (R, R, 8) and lines (4, R, 8).
    """
    m, r, R = A.shape[0], A.shape[1], L.shape[0]
    u, v, su, sv = lines[0], lines[1], lines[2], lines[3]  # columns k and h, and what they become
    for first in range(0, m, LANES):
        count = min(LANES, m - first)
        for i in range(R):
            for j in range(i + 1):
                for t in range(LANES):  # idle lanes repeat the last matrix
                    if i < r:
                        L[i, j, t] = A[first + min(t, count - 1), i, j]
                    else:
                        L[i, j, t] = 1.0 if i == j else 0.0
        for k in range(0, R, 2):
            h = k + 1
            for t in range(LANES):
                if not L[k, k, t] > 0.0:
                    return False
            a = 1.0 / load(L, k, k, 0)
            b = load(L, h, k, 0) * a
            c = load(L, h, h, 0) - load(L, h, k, 0) * b
            store(u, 0, 0, c)
            for t in range(LANES):
                if not u[0, t] > 0.0:
                    return False
            c = 1.0 / c  # the inverse of the pivots becomes [[a, -b], [-b, c]]
            a = a + b * b * c
            b = b * c
            for i in range(R):
                x, y = load(L, max(i, k), min(i, k), 0), load(L, max(i, h), min(i, h), 0)
                store(u, i, 0, x)
                store(v, i, 0, y)
                store(su, i, 0, a * x - b * y)
                store(sv, i, 0, c * y - b * x)
            for i in range(0, R, 2):  # rows and columns k and h are set below
                x, y = load(u, i, 0), load(v, i, 0)
                z, w = load(u, i + 1, 0), load(v, i + 1, 0)
                for j in range(i + 1):
                    e, f = load(su, j, 0), load(sv, j, 0)
                    store(L, i, j, 0, load(L, i, j, 0) - x * e - y * f)
                    store(L, i + 1, j, 0, load(L, i + 1, j, 0) - z * e - w * f)
                e, f = load(su, i + 1, 0), load(sv, i + 1, 0)
                store(L, i + 1, i + 1, 0, load(L, i + 1, i + 1, 0) - z * e - w * f)
            for i in range(R):
                store(L, max(i, k), min(i, k), 0, load(su, i, 0))
                store(L, max(i, h), min(i, h), 0, load(sv, i, 0))
            store(L, k, k, 0, splat(0.0) - a)
            store(L, h, k, 0, b)
            store(L, h, h, 0, splat(0.0) - c)
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
