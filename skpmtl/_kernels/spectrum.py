"""Products F' F of the rows of many tasks, and their tridiagonal forms.

Sums over many columns stay in the processor's registers (see `skpmtl._runtime.registers`), four
rows by eight columns at a time. Arrays therefore have rows to spare up to a multiple of four and
columns up to one of eight; what they hold there is finite and does not matter.
"""

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
