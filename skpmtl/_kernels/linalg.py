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
def add_rows(M, first, count, lo, hi, c, at, x):
    """x[lo:hi] += sum_q c[at + q] M[first + q, lo:hi] over q < count."""
    n, x = hi - lo, x[lo:hi]
    for q in range(0, count, 4):  # past the end the last row counts zero times
        p, rest = first + q, count - 1 - q
        r0, r1 = M[p, lo:hi], M[p + min(1, rest), lo:hi]
        r2, r3 = M[p + min(2, rest), lo:hi], M[p + min(3, rest), lo:hi]
        c0 = c[at + q]
        c1 = c[at + q + 1] if rest > 0 else 0.0
        c2 = c[at + q + 2] if rest > 1 else 0.0
        c3 = c[at + q + 3] if rest > 2 else 0.0
        for o in range(n):
            x[o] += c0 * r0[o] + c1 * r1[o] + c2 * r2[o] + c3 * r3[o]


@njit
def dot_rows(M, first, count, lo, hi, x, out, at):
    """out[at + q] = M[first + q, lo:hi] . x[lo:hi] for q < count."""
    n, x = hi - lo, x[lo:hi]
    for q in range(0, count, 4):  # past the end the last row is repeated
        q1, q2, q3 = min(q + 1, count - 1), min(q + 2, count - 1), min(q + 3, count - 1)
        r0, r1 = M[first + q, lo:hi], M[first + q1, lo:hi]
        r2, r3 = M[first + q2, lo:hi], M[first + q3, lo:hi]
        s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
        for o in range(n):
            a = x[o]
            s0 += r0[o] * a
            s1 += r1[o] * a
            s2 += r2[o] * a
            s3 += r3[o] * a
        out[at + q], out[at + q1], out[at + q2], out[at + q3] = s0, s1, s2, s3


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
def tridiagonal(A, n, diag, off, Q, P, c, d):
    """Orthogonal Q and the tridiagonal T with A = Q T Q', by Householder reflections.

    Of the leading n x n part of A, which stays; `diag` and `off` receive T. P (2 n, n),
    c (2 n,), d (n,) are scratch. Row j of the reduced matrix is computed when it is needed,
    from the reflections so far: long sums over the rows of P instead of many short updates
    of A.
    """
    zero = n - n  # a literal 0 would compile `add_rows` once more
    for j in range(n):
        k = 2 * min(j, n - 2)
        # The reflection v_q and its companion w_q change A by -v_q w_q' - w_q v_q'.
        v = P[k] if j < n - 2 else d
        for o in range(n):
            v[o] = A[j, o]
        for q in range(0, k, 2):
            c[q], c[q + 1] = -P[q + 1, j], -P[q, j]
        add_rows(P, zero, k, j, n, c, zero, v)
        diag[j] = v[j]
        if j >= n - 2:
            off[j] = v[j + 1] if j == n - 2 else 0.0
            continue
        s = 0.0
        for o in range(j + 2, n):
            s += v[o] * v[o]
        lead = v[j + 1]
        w = P[k + 1]
        if s == 0.0:
            off[j] = lead
            for o in range(n):
                v[o] = 0.0
                w[o] = 0.0
            continue
        norm = (s + lead * lead) ** 0.5
        off[j] = -norm if lead > 0 else norm
        v[j + 1] = lead - off[j]
        # Of length sqrt(2): the reflection is I - v v'.
        scale = (2.0 / (s + v[j + 1] ** 2)) ** 0.5
        for o in range(n):
            v[o] = scale * v[o] if o > j else 0.0
            w[o] = 0.0
        dot_rows(A, j + 1, n - j - 1, j + 1, n, v, w, j + 1)
        dot_rows(P, zero, k, j + 1, n, v, c, zero)
        for q in range(0, k, 2):
            c[q], c[q + 1] = -c[q + 1], -c[q]
        add_rows(P, zero, k, j + 1, n, c, zero, w)
        s = 0.0
        for o in range(n):
            s += w[o] * v[o]
        for o in range(n):
            w[o] -= 0.5 * s * v[o]
    for i in range(n):
        for o in range(n):
            Q[i, o] = 1.0 if i == o else 0.0
    for j in range(n - 3, -1, -1):
        v = P[2 * j]
        for o in range(n):
            d[o] = 0.0
        add_rows(Q, j + 1, n - j - 1, j + 1, n, v, j + 1, d)
        for i in range(j + 1, n):
            f, row = v[i], Q[i]
            for o in range(n):  # d is 0 up to j
                row[o] -= f * d[o]


@njit
def cholesky_solve(U, n, x):
    """x <- A^-1 b for A in the first n rows and columns of U and b in column n.

    The upper triangle becomes the factor, by rows, with the right side as one more column.
    """
    zero = n - n
    for j in range(n):
        row = U[j]
        for q in range(j):
            x[q] = -U[q, j]
        add_rows(U, zero, j, j, n + 1, x, zero, row)
        inverse = 1.0 / row[j] ** 0.5
        for o in range(j, n + 1):
            row[o] *= inverse
    for j in range(n - 1, -1, -1):
        s = U[j, n]
        for o in range(j + 1, n):
            s -= U[j, o] * x[o]
        x[j] = s / U[j, j]
