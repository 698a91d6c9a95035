"""Dense kernels on one small symmetric matrix per task.

Inner loops run from 0 over slices: an index that might be negative, which numba would wrap
around, keeps a loop from using vector instructions.
"""

import numpy as np

from .._jit import njit

LANES = 64  # matrices that are inverted side by side


@njit
def spd_inverse_narrow(A):
    """`spd_inverse` for r up to about 50 and many matrices.

    Sweeps the pivots of `LANES` lower triangles at once, with the same entry of all of them
    side by side in memory: loops inside one small matrix are too short for vector
    instructions.
    """
    m, r = A.shape[0], A.shape[1]
    L = np.empty((r, r, LANES))
    column, scaled = np.empty((r, LANES)), np.empty((r, LANES))
    for first in range(0, m, LANES):
        count = min(LANES, m - first)
        for t in range(LANES):
            k = first + min(t, count - 1)  # idle lanes repeat the last matrix
            for i in range(r):
                for j in range(i + 1):
                    L[i, j, t] = A[k, i, j]
        for k in range(r):
            pivot = scaled[k]
            for t in range(LANES):
                if not L[k, k, t] > 0.0:
                    return False
                pivot[t] = 1.0 / L[k, k, t]
            for i in range(r):
                if i == k:
                    continue
                source, c, s = L[i, k] if i > k else L[k, i], column[i], scaled[i]
                for t in range(LANES):
                    c[t] = source[t]
                    s[t] = c[t] * pivot[t]
            for i in range(r):
                if i == k:
                    continue
                c = column[i]
                for j in range(i + 1):
                    if j == k:
                        continue
                    entry, s = L[i, j], scaled[j]
                    for t in range(LANES):
                        entry[t] -= c[t] * s[t]
            for i in range(r):
                target = L[i, k] if i > k else L[k, i]
                for t in range(LANES):
                    target[t] = scaled[i, t] if i != k else -pivot[t]
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
def grams(F, offsets, d, K):
    """K[k] = F[k] F[k]' of r = min(n, d) rows for task k with n = offsets[k + 1] - offsets[k].

    F (m, R, P) and K (m, R, S) are 0 in the rows and columns beyond; R is a multiple of 4, P
    and S are of 8.
    """
    for k in range(K.shape[0]):
        n = offsets[k + 1] - offsets[k]
        C, G = F[k], K[k]
        p = (max(n, d) + 7) // 8 * 8
        for i in range(0, min(n, d), 2):
            x0, x1 = C[i], C[i + 1]
            for o in range(0, i + 1, 2):
                y0, y1 = C[o], C[o + 1]
                a, b, c, e = 0.0, 0.0, 0.0, 0.0
                for j in range(p):
                    a += x0[j] * y0[j]
                    b += x0[j] * y1[j]
                    c += x1[j] * y0[j]
                    e += x1[j] * y1[j]
                G[i, o] = a
                G[o, i] = a
                G[i, o + 1] = b
                G[o + 1, i] = b
                G[i + 1, o] = c
                G[o, i + 1] = c
                G[i + 1, o + 1] = e
                G[o + 1, i + 1] = e


@njit
def tridiagonal(K, offsets, d, diag, off, w, p):
    """Tridiagonal T with K[k] = Q T Q' by Householder reflections, r as in `grams`.

    Row j of K[k] becomes the reflection I - v v' that takes row j of the matrix to its entries
    j - 1 and j, for j = r - 1, ..., 1: 0 from entry j on; Q is their product in this order.
    diag, off (m, R) receive T; w, p (S,) are scratch.
    """
    for k in range(K.shape[0]):
        r = min(offsets[k + 1] - offsets[k], d)
        A, T, E = K[k], diag[k], off[k]
        s = (r + 7) // 8 * 8
        for o in range(s):
            w[o] = 0.0
        v = A[0]
        for j in range(r - 1, -1, -1):
            # The last reflection v and its companion w changed A by -v w' - w v': first in this
            # row, then in those before it while they are multiplied by the new reflection x.
            x = A[j]
            c, e = v[j], w[j]
            t = 0.0
            for o in range(s):
                x[o] -= c * w[o] + e * v[o]
            for o in range(j - 1):
                t += x[o] * x[o]
            T[j] = x[j]
            scale = 0.0
            if j > 0:
                lead = x[j - 1]
                E[j - 1] = lead
                if t > 0.0:
                    norm = (t + lead * lead) ** 0.5
                    E[j - 1] = -norm if lead > 0.0 else norm
                    lead -= E[j - 1]
                    x[j - 1] = lead
                    scale = (2.0 / (t + lead * lead)) ** 0.5  # v of length sqrt(2)
            for o in range(s):
                x[o] = scale * x[o] if o < j else 0.0
                p[o] = 0.0
            s = (j + 7) // 8 * 8
            for q in range(1 - j % 2, j, 2):
                i = max(q - 1, 0)
                y, z = A[i], A[q]
                e0, e1, f0, f1, c0, c1 = v[i], v[q], w[i], w[q], x[i], x[q]
                if i == q:  # row 0 without a partner
                    c0 = 0.0
                for o in range(s):
                    a = y[o] - e0 * w[o] - f0 * v[o]
                    b = z[o] - e1 * w[o] - f1 * v[o]
                    y[o] = a
                    z[o] = b
                    p[o] += c0 * a + c1 * b
            t = 0.0
            for o in range(s):
                t += p[o] * x[o]
            for o in range(s):
                w[o] = p[o] - 0.5 * t * x[o] if o < j else 0.0
            v = x


@njit
def rotate(K, offsets, d, F, a, b):
    """F[k] <- Q' F[k] with Q from `tridiagonal`; of the identity when n <= d.

    Only the first n columns of the result are defined. a, b (P,) are scratch.
    """
    for k in range(K.shape[0]):
        n = offsets[k + 1] - offsets[k]
        A, Z = K[k], F[k]
        r, p = min(n, d), (n + 7) // 8 * 8
        if n <= d:
            for j in range(r):
                x = Z[j]
                for i in range(p):
                    x[i] = 1.0 if i == j else 0.0
        for i in range(p):
            a[i] = 0.0
        v = A[0]
        for j in range(r - 1, -1, -1):  # takes off the last reflection, measures the next
            x = A[j]
            for i in range(p):
                b[i] = 0.0
            for o in range(0, j + 1, 2):
                y, z = Z[o], Z[o + 1]
                c0, c1, f0, f1 = v[o], v[o + 1], x[o], x[o + 1]
                for i in range(p):
                    e = y[i] - c0 * a[i]
                    f = z[i] - c1 * a[i]
                    y[i] = e
                    z[i] = f
                    b[i] += f0 * e + f1 * f
            for i in range(p):
                a[i] = b[i]
            v = x
