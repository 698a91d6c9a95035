"""Products with Hessians of the losses of all tasks, and with matrices of their rows.

Models are (n_tasks, n_outputs, d + 1), the intercept last; rows are dense.
"""

import numpy as np

from .._runtime.jit import njit
from .linalg import packed_product


@njit
def hessian_product(X, rows, shared, offsets, scale, P, U, out, weights):
    """out = Hessian of the losses times U; P has the curvature of every row in its score, or the
    probabilities of several classes."""
    C, d = U.shape[1], U.shape[2] - 1
    z = np.empty(C)
    for k in range(U.shape[0]):
        for c in range(C):
            for j in range(d + 1):
                out[k, c, j] = 0.0
        for p in range(offsets[k], offsets[k + 1]):
            x, w = X[rows[p]] if shared else X[p], weights[p]
            middle = 0.0
            for c in range(C):
                s = U[k, c, d]
                for j in range(d):
                    s += x[j] * U[k, c, j]
                z[c] = s
                middle += P[p, c] * s
            if C == 1:
                middle = 0.0
            for c in range(C):
                a = scale[k] * w * P[p, c] * (z[c] - middle)
                for j in range(d):
                    out[k, c, j] += a * x[j]
                out[k, c, d] += a


@njit
def scale_row_grams(K, offsets, starts, weight, factor, c):
    """K_k <- factor D_k K_k D_k with D_k = diag(weight); c = K_k 1 (lower triangles)."""
    for k in range(offsets.shape[0] - 1):
        lo, at = offsets[k], starts[k]
        for p in range(offsets[k + 1] - lo):
            a = factor * weight[lo + p]
            s = 0.0
            for q in range(p):
                b = a * weight[lo + q] * K[at + q]
                K[at + q] = b
                c[lo + q] += b
            for q in range(p):
                s += K[at + q]
            K[at + p] *= a * weight[lo + p]
            c[lo + p] = s + K[at + p]
            at += p + 1


@njit
def row_gram_rows(K, offsets, starts, X, out):
    """out = K_k X_k of all tasks (lower triangles)."""
    d = X.shape[1]
    for k in range(offsets.shape[0] - 1):
        lo, at = offsets[k], starts[k]
        for p in range(offsets[k + 1] - lo):
            target, x = out[lo + p], X[lo + p]
            a = K[at + p]
            for j in range(d):
                target[j] = a * x[j]
            for q in range(p):
                a, other, z = K[at + q], out[lo + q], X[lo + q]
                for j in range(d):
                    target[j] += a * z[j]
                    other[j] += a * x[j]
            at += p + 1


@njit
def row_arrow(X, rows, shared, offsets, starts, K, ones, pivot, centre, t, R, out):
    """Blocks of the Hessians of all tasks solved for R, by n_k x n_k matrices.

    With z = X_k r / t, for every output of a task: b = (c - 1'K_k z) / pivot_k and
    w = (r - X_k' K_k (z + b 1)) / t, from (r, c) in R to (w, b) in `out`; b = c without `centre`.
    K, `ones` = K 1 and pivot have a row and a column for every output, or one for all.
    """
    C, d = R.shape[1], R.shape[2] - 1
    longest = 0
    for k in range(R.shape[0]):
        longest = max(longest, offsets[k + 1] - offsets[k])
    z, u = np.empty(longest), np.empty(longest)
    for k in range(R.shape[0]):
        lo = offsets[k]
        n = offsets[k + 1] - lo
        for c in range(C):
            r, w, g = R[k, c], out[k, c], min(c, K.shape[0] - 1)
            for p in range(n):
                x = X[rows[lo + p]] if shared else X[lo + p]
                s = 0.0
                for j in range(d):
                    s += x[j] * r[j]
                z[p] = s / t
            packed_product(K[g], starts[k], n, z, u)
            b = r[d]
            if centre:
                for p in range(n):
                    b -= u[p]
                b /= pivot[k, g]
                for p in range(n):
                    u[p] += b * ones[g, lo + p]
            for j in range(d):
                w[j] = r[j]
            w[d] = b
            for p in range(n):
                x, a = X[rows[lo + p]] if shared else X[lo + p], u[p]
                for j in range(d):
                    w[j] -= a * x[j]
            for j in range(d):
                w[j] /= t
