"""Second-moment (Gram) matrices of the tasks and the products with them."""

import numpy as np

from .._jit import njit


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
def reflected_solve(inverse, g, rho, W, S, out):
    """out[k] = inverse[k] @ (g[k] + rho (2 W[k] - S[k])) - W[k]."""
    d = W.shape[1]
    b = np.empty(d)
    for k in range(W.shape[0]):
        for j in range(d):
            b[j] = g[k, j] + rho * (2.0 * W[k, j] - S[k, j])
        for i in range(d):
            row = inverse[k, i]
            s = 0.0
            for j in range(d):
                s += row[j] * b[j]
            out[k, i] = s - W[k, i]


@njit
def build_grams(X, y, offsets, scale, centre, G, g):
    """G[k] = scale_k X_k' C X_k, g[k] = scale_k X_k' C y_k with C the centring (or identity).

    Returns sum_k scale_k ||C y_k||^2. A task's rows are transposed into a buffer that stays
    in cache: for d up to about 64 that is several times faster than one BLAS call per task.
    """
    d = X.shape[1]
    m = offsets.shape[0] - 1
    longest = 0
    for k in range(m):
        longest = max(longest, offsets[k + 1] - offsets[k])
    Z = np.empty((d, longest))
    v = np.empty(longest)
    square = 0.0
    for k in range(m):
        lo = offsets[k]
        n = offsets[k + 1] - lo
        for p in range(n):
            v[p] = y[lo + p]
            for j in range(d):
                Z[j, p] = X[lo + p, j]
        if centre:
            for j in range(d):
                s = 0.0
                for p in range(n):
                    s += Z[j, p]
                s /= n
                for p in range(n):
                    Z[j, p] -= s
            s = 0.0
            for p in range(n):
                s += v[p]
            s /= n
            for p in range(n):
                v[p] -= s
        s = 0.0
        for p in range(n):
            s += v[p] * v[p]
        square += scale[k] * s
        for i in range(d):
            a = Z[i]
            s = 0.0
            for p in range(n):
                s += a[p] * v[p]
            g[k, i] = scale[k] * s
            for j in range(i + 1):
                b = Z[j]
                s = 0.0
                for p in range(n):
                    s += a[p] * b[p]
                G[k, i, j] = scale[k] * s
                G[k, j, i] = scale[k] * s
    return square
