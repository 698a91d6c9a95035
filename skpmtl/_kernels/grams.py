"""Gram matrices of the tasks, and products with them.

They are d x d of features or n x n of rows. Of the n_k x n_k matrices of `build_row_grams` only the
lower triangles are kept, row by row and task by task in a flat array: that of task k begins at
``starts[k]``.
"""

import numpy as np

from .._runtime.jit import njit
from .linalg import gram, mass_of, pack, packed_product, spd_inverse


@njit
def gram_product(G, W, out):
    """out[k] = G[k] @ W[k]."""
    d = W.shape[1]
    for k in range(W.shape[0]):
        w = W[k]
        for i in range(d):
            row = G[k, i]
            s = 0.0
            for j in range(d):
                s += row[j] * w[j]
            out[k, i] = s


@njit
def build_grams(X, y, offsets, scale, centre, G, g, Z, K, weights, roots):
    """G[k] = scale_k X_k' C X_k, g[k] = scale_k X_k' C y_k with C the centring (or identity).

    Means are weighted with ``weights`` v, and C stands for C' diag(v) C; ``roots`` are those of v.

    Returns sum_k scale_k ||C y_k||^2. A task's columns, with y as the last one, are copied into a
    buffer that stays in cache: for d up to about 64 that is several times faster than BLAS task by
    task. It is Z (d + 1, rows of the longest task), and K (d + 1, d + 1) has the sums. g holds the
    means until then.
    """
    d, square = X.shape[1], 0.0
    for k in range(G.shape[0]):
        lo, n, t = offsets[k], offsets[k + 1] - offsets[k], scale[k]
        mass, mean, middle = mass_of(lo, n, weights), g[k], 0.0
        for j in range(d):
            mean[j] = 0.0
        for p in range(lo, lo + n if centre else lo):
            x, w = X[p], weights[p] / mass
            for j in range(d):
                mean[j] += w * x[j]
            middle += w * y[p]
        for p in range(n):
            x, root = X[lo + p], roots[lo + p]
            for j in range(d):
                Z[j, p] = root * (x[j] - mean[j])
            Z[d, p] = root * (y[lo + p] - middle)
        gram(Z, d + 1, n, K)
        for i in range(d):
            for j in range(i + 1):
                a = t * K[i, j]
                G[k, i, j], G[k, j, i] = a, a
            g[k, i] = t * K[d, i]
        square += t * K[d, d]
    return square


@njit
def build_row_grams(Z, offsets, starts, scale, centre, K, roots):
    """K_k = C Z_k Z_k' C with C the centring (or identity).

    With ``roots`` R of weights, C removes weighted means and is multiplied by diag(R); all
    ``roots`` are one where rows count the same.

    -> sum_k scale_k tr K_k, sum_k scale_k^2 ||K_k||_F^2
    """
    d = Z.shape[1]
    m = offsets.shape[0] - 1
    longest = 0
    for k in range(m):
        longest = max(longest, offsets[k + 1] - offsets[k])
    buffer, mean, A = np.empty((longest, d)), np.empty(d), np.empty((longest, longest))
    trace, square = 0.0, 0.0
    for k in range(m):
        lo = offsets[k]
        n = offsets[k + 1] - lo
        for j in range(d):
            mean[j] = 0.0
        mass = 0.0
        for p in range(n):
            mass += roots[lo + p] * roots[lo + p]
        for p in range(n if centre else 0):
            w = roots[lo + p] * roots[lo + p] / mass
            for j in range(d):
                mean[j] += w * Z[lo + p, j]
        for p in range(n):
            for j in range(d):
                buffer[p, j] = roots[lo + p] * (Z[lo + p, j] - mean[j])
        gram(buffer, n, d, A)
        own, below = 0.0, 0.0
        for p in range(n):
            trace += scale[k] * A[p, p]
            own += A[p, p] * A[p, p]
            for q in range(p):
                below += A[p, q] * A[p, q]
        square += scale[k] * scale[k] * (own + 2.0 * below)
        pack(A, n, K, starts[k])
    return trace, square


@njit
def invert_row_grams(K, offsets, starts, shift):
    """K_k <- (K_k + shift_k I)^-1. -> False if one is not positive definite"""
    A = np.empty((0, 0))
    for k in range(offsets.shape[0] - 1):
        n = offsets[k + 1] - offsets[k]
        if n != A.shape[0]:
            A = np.empty((n, n))
        at = starts[k]
        for p in range(n):
            for q in range(p + 1):
                A[p, q] = K[at + q]
            A[p, p] += shift[k]
            at += p + 1
        if not spd_inverse(A):
            return False
        pack(A, n, K, starts[k])
    return True


@njit
def weigh_rows(K, offsets, starts, roots, centre, z):
    """z_k <- C' R K_k R C z_k with R = diag(roots), C removing the mean weighted with R^2."""
    longest = 0
    for k in range(offsets.shape[0] - 1):
        longest = max(longest, offsets[k + 1] - offsets[k])
    u, r = np.empty(longest), np.empty(longest)
    for k in range(offsets.shape[0] - 1):
        lo = offsets[k]
        n = offsets[k + 1] - lo
        weight, mean = 0.0, 0.0
        for p in range(n if centre else 0):
            w = roots[lo + p] * roots[lo + p]
            weight += w
            mean += w * z[lo + p]
        if centre:
            mean /= weight
        for p in range(n):
            u[p] = roots[lo + p] * (z[lo + p] - mean)
        packed_product(K, starts[k], n, u, r)
        mean = 0.0
        for p in range(n):
            r[p] *= roots[lo + p]
        for p in range(n if centre else 0):
            mean += r[p]
        if centre:
            mean /= weight
        for p in range(n):
            z[lo + p] = r[p] - mean * (roots[lo + p] * roots[lo + p])
