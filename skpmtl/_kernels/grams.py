"""Gram matrices of the tasks, products with them, and their tridiagonal forms.

They are d x d of features or n x n of rows. Of the n_k x n_k matrices of `build_row_grams` only the
lower triangles are kept, row by row and task by task in a flat array: that of task k begins at
``starts[k]``.

Sums over many columns stay in the processor's registers (see `skpmtl._runtime.registers`), four
rows by eight columns at a time. Arrays of `grams` and what follows it therefore have rows to spare
up to a multiple of four and columns up to one of eight; what they hold there is finite and does not
matter.
"""

import numpy as np

from .._runtime.jit import njit
from .._runtime.registers import (
    along,
    down,
    load,
    load4,
    same,
    splat,
    splat4,
    store,
    store4,
    sum4,
    total,
)
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
def packed_inverses(G, g, K, h):
    """K[k] = lower triangle of the inverse of G[k], row by row, and h[k] = its product with g[k].

    NaN where it has none: one task of absurd size must not end the fits of all. G is overwritten.
    """
    d = G.shape[1]
    for k in range(G.shape[0]):
        if not spd_inverse(G[k : k + 1]):
            G[k] = np.nan
        pack(G[k], d, K[k], 0)
        packed_product(K[k], 0, d, g[k], h[k])


@njit
def packed_products(K, W, out):
    """out[k] = product of W[k] and the symmetric matrix whose lower triangle is K[k]."""
    for k in range(W.shape[0]):
        packed_product(K[k], 0, W.shape[1], W[k], out[k])


@njit
def build_grams(X, y, offsets, scale, centre, G, g, Z, K, weights):
    """G[k] = scale_k X_k' C X_k, g[k] = scale_k X_k' C y_k with C the centring (or identity).

    With ``weights`` v means are weighted, and C stands for C' diag(v) C.

    Returns sum_k scale_k ||C y_k||^2. A task's rows, with y as a last column, are copied into a
    buffer that stays in cache: for d up to about 64 that is several times faster than BLAS task by
    task. It is Z (rows of the longest task, R), of zeros; K (d up to a multiple of four, R) is
    scratch. R is d + 1 up to a multiple of eight.
    """
    d, R = X.shape[1], Z.shape[1]
    square = 0.0
    for k in range(G.shape[0]):
        lo, n, t = offsets[k], offsets[k + 1] - offsets[k], scale[k]
        for p in range(n):
            x, z = X[lo + p], Z[p]
            for j in range(d):
                z[j] = x[j]
            z[d] = y[lo + p]
        mass = mass_of(lo, n, weights)
        for o in range(0, R if centre else 0, 8):
            a = splat(0.0)
            if weights is None:
                for p in range(n):
                    a = a + load(Z, p, o)
                a = a * (1.0 / n)
            else:
                for p in range(n):
                    a = a + load(Z, p, o) * weights[lo + p]
                a = a * (1.0 / mass)
            for p in range(n):
                store(Z, p, o, load(Z, p, o) - a)
        if weights is not None:
            for p in range(n):
                w = weights[lo + p] ** 0.5
                for o in range(0, R, 8):
                    store(Z, p, o, load(Z, p, o) * w)
        a = splat(0.0)
        for p in range(n):
            b = same(Z, p, d)
            a = a + b * b
        square += t * (0.125 * total(a))
        for i in range(0, d, 4):
            for o in range(i // 8 * 8, d + 1, 8):
                products = splat4(0.0)
                for p in range(n):
                    products = products + along(Z, p, i) * load(Z, p, o)
                store4(K, i, o, products * t)
        for i in range(d):
            for j in range(i, d):
                G[k, i, j] = K[i, j]
                G[k, j, i] = K[i, j]
            g[k, i] = K[i, d]
    return square


@njit
def build_row_grams(Z, offsets, starts, scale, centre, K, roots):
    """K_k = C Z_k Z_k' C with C the centring (or identity).

    With ``roots`` R of weights, C removes weighted means and is multiplied by diag(R).

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
        if roots is None:
            for p in range(n if centre else 0):
                for j in range(d):
                    mean[j] += Z[lo + p, j]
            for j in range(d):
                mean[j] /= n
        else:
            mass = 0.0
            for p in range(n):
                mass += roots[lo + p] * roots[lo + p]
            for p in range(n if centre else 0):
                w = roots[lo + p] * roots[lo + p] / mass
                for j in range(d):
                    mean[j] += w * Z[lo + p, j]
        for p in range(n):
            for j in range(d):
                buffer[p, j] = Z[lo + p, j] - mean[j]
                if roots is not None:
                    buffer[p, j] *= roots[lo + p]
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
    A = np.empty((1, 0, 0))
    for k in range(offsets.shape[0] - 1):
        n = offsets[k + 1] - offsets[k]
        if n != A.shape[1]:
            A = np.empty((1, n, n))
        at = starts[k]
        for p in range(n):
            for q in range(p + 1):
                A[0, p, q] = K[at + q]
            A[0, p, p] += shift[k]
            at += p + 1
        if not spd_inverse(A):
            return False
        pack(A[0], n, K, starts[k])
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


@njit
def centred_rows(A, pick, factor, offsets, weight, response, centre, F, v, mean, level, mass):
    """F[k], v = rows A[pick] and response of task k, less weighted means, times roots of weights.

    Columns of A are multiplied by `factor` (d,). The rows of the tasks, which `offsets` divides
    among them, become the columns of F[k] (max(n, d), min(n, d)), or its rows when there are more
    than features; then v is one more column, the last. `centre` is 1.0, or 0.0 for means of 0.
    `mean` (m, d) starts at zero; level, mass (m,) receive the mean response and the sum of weights.
    """
    d = A.shape[1]
    for k in range(mass.shape[0]):
        lo, hi, m, f = offsets[k], offsets[k + 1], mean[k], F[k]
        n = hi - lo
        sums, middle = 0.0, 0.0
        for i in range(lo, hi):
            x, w = A[pick[i]], weight[i]
            sums += w
            middle += w * response[i]
            for j in range(d):
                m[j] += w * x[j]
        mass[k] = sums
        middle *= centre / sums
        level[k] = middle
        for j in range(d):
            m[j] *= centre / sums
        for i in range(n):
            v[lo + i] = weight[lo + i] ** 0.5 * (response[lo + i] - middle)
        # Eight features at a time: rows are read in lines of the cache, and as many of F written.
        for first in range(0, d, 8 if n <= d else d):
            last = min(first + 8, d) if n <= d else d
            for i in range(n):
                x, w = A[pick[lo + i]], weight[lo + i]
                if w != 1.0:
                    w = w**0.5
                for j in range(first, last):
                    c = w * factor[j] * (x[j] - m[j])
                    if n <= d:
                        f[j, i] = c
                    else:
                        f[i, j] = c
        for i in range(n if n > d else 0):
            f[i, d] = v[lo + i]
        for j in range(d):
            m[j] *= factor[j]


@njit
def grams(F, offsets, d, v, K):
    """K[k] = F[k]' F[k] of r = min(n, d) columns for task k with n = offsets[k + 1] - offsets[k].

    F (m, P, R) holds max(n, d) rows of a task. Column r of K (m, S, R) receives the right side of
    the normal equations: of n rows that are the columns of F[k] v itself, else column r of F, which
    must hold v, is carried along.
    """
    for k in range(K.shape[0]):
        n = offsets[k + 1] - offsets[k]
        f, g, r = F[k], K[k], min(n, d)
        for i in range(0, r, 4):
            for o in range(i // 8 * 8, r + 1, 8):
                a = splat4(0.0)
                for j in range(max(n, d)):
                    a = a + along(f, j, i) * load(f, j, o)
                store4(g, i, o, a)
        for i in range(r):
            x = g[i]
            for o in range(i):
                x[o] = g[o, i]
            if n <= d:
                x[r] = v[offsets[k] + i]


@njit
def tridiagonal(K, offsets, d, diag, off, w, p):
    """Tridiagonal T with K[k] = Q T Q' by Householder reflections, r as in `grams`.

    Row j of K[k] becomes the reflection I - v v' that takes row j of the matrix to its entries
    j - 1 and j, for j = r - 1, ..., 1, with zeros from entry j to the next multiple of eight; Q is
    their product in this order. diag, off (m, R) receive T; w, p (R,) are scratch.
    """
    for k in range(K.shape[0]):
        r = min(offsets[k + 1] - offsets[k], d)
        A, T, E = K[k], diag[k], off[k]
        for o in range(0, r, 8):
            store(w, o, splat(0.0))
        last = 0
        for j in range(r - 1, -1, -1):
            # The last reflection v and its companion w changed A by -v w' - w v': first in this
            # row, then in those before it while they are multiplied by the new reflection x.
            c, e, x = same(A, last, j), same(w, j), A[j]
            for o in range(0, j + 1, 8):
                store(A, j, o, load(A, j, o) - c * load(w, o) - e * load(A, last, o))
            t = 0.0
            for o in range(j - 1):
                t += x[o] * x[o]
            T[j] = x[j]
            scale = 0.0
            if j > 0:
                lead = x[j - 1]
                E[j - 1] = lead
                if t > 1e-290:  # else rounding of rounding, whose inverse overflows
                    norm = (t + lead * lead) ** 0.5
                    E[j - 1] = -norm if lead > 0.0 else norm
                    lead -= E[j - 1]
                    x[j - 1] = lead
                    scale = (2.0 / (t + lead * lead)) ** 0.5  # v of length sqrt(2)
            for o in range(0, j, 8):
                store(p, o, splat(0.0))
                store(A, j, o, scale * load(A, j, o))
            for o in range(j, (j + 7) // 8 * 8):
                x[o] = 0.0
            for q in range(j % 4):  # those that are left over when the others come in fours
                c, e, s = same(A, last, q), same(w, q), same(A, j, q)
                for o in range(0, j, 8):
                    y = load(A, q, o) - c * load(w, o) - e * load(A, last, o)
                    store(A, q, o, y)
                    store(p, o, load(p, o) + s * y)
            for q in range(j % 4, j, 4):
                v, u, z = along(A, last, q), along(w, q), along(A, j, q)
                for o in range(0, j, 8):
                    y = load4(A, q, o) - v * load(w, o) - u * load(A, last, o)
                    store4(A, q, o, y)
                    store(p, o, load(p, o) + sum4(z * y))
            t = splat(0.0)
            for o in range(0, j, 8):
                t = t + load(p, o) * load(A, j, o)
            half = -0.5 * total(t)
            for o in range(0, j, 8):
                store(w, o, load(p, o) + half * load(A, j, o))
            for o in range(j, (j + 7) // 8 * 8):
                w[o] = 0.0
            last = j


@njit
def rotate(K, offsets, d, F, Z, V, W, y):
    """Z[k] = Q, or F[k] Q when there are more rows than features, with Q from `tridiagonal`.

    In these columns every scale of a prior is a tridiagonal system: what is multiplied by Q once
    need not be multiplied again for each scale.

    Z (m, S, R) has n rows and r columns of a task. The reflections are applied eight at a time:
    their product is I - V W. V (R, 8), W (8, R) and y (4, 8) are scratch.
    """
    for k in range(K.shape[0]):
        n = offsets[k + 1] - offsets[k]
        A, f, z = K[k], F[k], Z[k]
        r = min(n, d)
        for i in range(n):
            for j in range(0, r, 8):
                store(z, i, j, load(f, i, j) if n > d else splat(0.0))
            if n <= d:
                z[i, i] = 1.0
        for first in range((r - 2) // 8 * 8, -1, -8):
            wide = first + 8
            count = min(8, r - 1 - first)  # reflections of rows first + count, ..., first + 1
            for s in range(8):
                x = A[first + max(count - s, 1)]
                for q in range(wide):
                    V[q, s] = x[q] if s < count else 0.0
                for o in range(0, wide, 8):
                    store(W, s, o, load(A, first + count - s, o) if s < count else splat(0.0))
            for s in range(1, count):
                j = first + count - s
                for u in range(s):
                    t = splat(0.0)
                    for o in range(0, wide, 8):
                        t = t + load(W, u, o) * load(A, j, o)
                    c = total(t)
                    for o in range(0, wide, 8):
                        store(W, u, o, load(W, u, o) - c * load(A, j, o))
            for i in range(0, n, 4):
                a = splat4(0.0)
                for q in range(wide):
                    a = a + down(z, i, q) * load(V, q, 0)
                store4(y, 0, 0, a)
                for o in range(0, wide, 8):
                    a = load4(z, i, o)
                    for s in range(8):
                        a = a - down(y, 0, s) * load(W, s, o)
                    store4(z, i, o, a)
