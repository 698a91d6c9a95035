"""Single-task computations: evidence of each prior scale, and the model at one scale.

Rows A are features times a root of the prior moment M, so that the prior of the transformed
weights c is N(0, kappa s^2 I). They are centred when there is an intercept, and weighted: by 1
for squared loss; for the logistic loss rows and responses are those of the quadratic
approximation at the current scores.

A task with n rows and d columns works in the smaller of two spaces: on K = A A' (n x n) or on
G = A' A (d x d), both F' F with F = A' or A. For many scales the matrix is made tridiagonal once,
which costs a third of its eigenvectors and leaves a linear system of linear cost per scale; for
one scale it is factorized.

Each function runs over a block of tasks, whose arrays are padded to the size of the largest: a
kernel that calls others would compile them once more.
"""

from .._runtime.jit import njit
from .._runtime.registers import (
    along,
    down,
    greater,
    load,
    load4,
    root,
    same,
    splat,
    splat4,
    store,
    store4,
    total,
)


@njit
def triangular_products(X, pick, panels, out):
    """out[i] = X[pick[i]] @ root for a lower triangular root with at least eight columns.

    panels (c, d, 8) holds its columns in eights; the last eight may overlap those before.
    """
    n, d, r = pick.shape[0], X.shape[1], out.shape[1]
    for first in range(0, n, 32):  # rows that stay in the cache with the columns
        for c in range(panels.shape[0]):
            at = min(8 * c, r - 8)
            for i in range(first, min(first + 32, n), 4):  # the last row is repeated
                i1, i2, i3 = min(i + 1, n - 1), min(i + 2, n - 1), min(i + 3, n - 1)
                p, p1, p2, p3 = pick[i], pick[i1], pick[i2], pick[i3]
                a = splat(0.0)
                b, e, f = a, a, a
                for j in range(at, d):
                    y = load(panels, c, j, 0)
                    a = a + same(X, p, j) * y
                    b = b + same(X, p1, j) * y
                    e = e + same(X, p2, j) * y
                    f = f + same(X, p3, j) * y
                store(out, i, at, a)
                store(out, i1, at, b)
                store(out, i2, at, e)
                store(out, i3, at, f)


@njit
def sums_of_rows(X, pick, offsets, u, out):
    """out[k] = sum of u[i] X[pick[i]] over the rows of task k, of eight columns at least."""
    for k in range(out.shape[0]):
        for o in range(0, X.shape[1], 8):
            at = min(o, X.shape[1] - 8)  # the last eight may overlap those before
            a = splat(0.0)
            for i in range(offsets[k], offsets[k + 1]):
                a = a + u[i] * load(X, pick[i], at)
            store(out, k, at, a)


@njit
def left_out(Z, offsets, folds, d, T, by_scale, by_row, dets, q, line, U, B, M, S, out):
    """out[p, s]: residual of row p at scale kappa[k, s] when its block of rows is left out.

    No fit is repeated: a residual without its own block follows from the residuals of all rows and
    the block's part of the hat matrix, which is the only system that is solved for a block. All
    scales stand side by side in registers, so that a loop over rows serves eight of them.

    Rows are multiplied by roots of weights, and so are the residuals. Z[k] = F[k] Q, or Q, comes
    from `rotate` and T = (diag, off) from `tridiagonal`; by_row (1 + C, N) holds root and C
    responses y, which share most of the work. Blocks are `folds[k]` runs of consecutive rows: with
    H the hat matrix and e the residuals, those of a block that is left out are exactly
    (I - H_bb)^-1 e_b. I - H is Z (I + kappa T)^-1 Z' when n <= d, else I - kappa times that, less
    root root' for the intercept.

    by_scale (m, 2 + 2 C, lanes) holds kappa, 1 or -kappa, and receives, of each response,
    y' Z (I + kappa T)^-1 Z' y and the sum of squares of `out`, which is that of the last one, or
    empty. The determinant of I + kappa T is the product of dets[k] (., lanes), each of at most 16
    pivots. Scratch for R = r up to a multiple of eight: q (C, R), line (2 + C, R, 8), U (R, 20, 8),
    B (16 + C, 20, 8), M and S (16 + C, 16, 8).
    """
    share, C = by_row[0], by_row.shape[0] - 1
    m, lanes = folds.shape[0], by_scale.shape[2]
    one = splat(1.0)
    for k in range(m):
        lo, z, diag, off = offsets[k], Z[k], T[0, k], T[1, k]
        n = offsets[k + 1] - lo
        r = min(n, d)
        own = 0.0 if n <= d else 1.0
        for c in range(C):
            for j in range(0, r, 8):
                t = splat(0.0)
                for i in range(n):
                    t = t + same(by_row, 1 + c, lo + i) * load(z, i, j)
                store(q, c, j, t)
        for lane in range(0, lanes, 8):
            a, sign = load(by_scale, k, 0, lane), load(by_scale, k, 1, lane)
            g, det, before, link = splat(0.0), splat(1.0), splat(1.0), 0.0
            for j in range(r):
                # Schur complements of I + something positive semi-definite.
                pivot = greater(one + a * (diag[j] - link * g), one)
                inverse = 1.0 / pivot
                s = root(inverse)
                store(line, 0, j, 0, s)
                store(line, 1, j, 0, g * s * before)
                before = pivot * s
                link = off[j]
                g = a * link * inverse
                if j % 16 == 0:
                    det = one
                det = det * pivot
                store(dets, k, j // 16, lane, det)
            for c in range(C):
                f, quad = splat(0.0), splat(0.0)
                for j in range(r):
                    f = q[c, j] * load(line, 0, j, 0) - load(line, 1, j, 0) * f
                    quad = quad + f * f
                    store(line, 2 + c, j, 0, f)
                store(by_scale, k, 2 + 2 * c, lane, quad)
                store(by_scale, k, 3 + 2 * c, lane, splat(0.0))
            # With I + kappa T = L D L', a block of Z (I + kappa T)^-1 Z' is U' U, where the rows of
            # U are those of the block through L^-1 and the root of D^-1.
            for fold in range(folds[k]):
                start = fold * n // folds[k]
                count = (fold + 1) * n // folds[k] - start
                for o in range(0, count, 4):
                    u, v = splat4(0.0), splat4(0.0)
                    for j in range(r):
                        u = down(z, start + o, j) * load(line, 0, j, 0) - load(line, 1, j, 0) * u
                        v = v + u * load(line, 2, j, 0)
                        store4(U, j, o, 0, u)
                    store4(B, 16, o, 0, v)
                    for c in range(1, C):
                        v = splat4(0.0)
                        for j in range(r):
                            v = v + load4(U, j, o, 0) * load(line, 2 + c, j, 0)
                        store4(B, 16 + c, o, 0, v)
                for i in range(0, count, 2):
                    for o in range(0, i + 2, 4):
                        u, v = splat4(0.0), splat4(0.0)
                        for j in range(r):
                            x = load4(U, j, o, 0)
                            u = u + x * load(U, j, i, 0)
                            v = v + x * load(U, j, i + 1, 0)
                        store4(B, i, o, 0, u)
                        store4(B, i + 1, o, 0, v)
                p = lo + start  # L D L' of the block and, below it, the right sides
                for i in range(count + C):
                    for o in range(min(i + 1, count)):
                        if i < count:
                            shift = (own if i == o else 0.0) - share[p + i] * share[p + o]
                        else:
                            shift = own * by_row[1 + i - count, p + o]
                        x = shift + sign * load(B, i if i < count else 16 + i - count, o, 0)
                        for j in range(o):
                            x = x - load(M, i, j, 0) * load(S, o, j, 0)
                        if o == i:
                            store(S, o, o, 0, 1.0 / greater(x, splat(1e-14)))
                        else:
                            store(M, i, o, 0, x)
                            store(S, i, o, 0, x * load(S, o, o, 0))
                for c in range(C):
                    error = load(by_scale, k, 3 + 2 * c, lane)
                    for o in range(count - 1, -1, -1):
                        x = load(S, count + c, o, 0)
                        for i in range(o + 1, count):
                            x = x - load(S, i, o, 0) * load(M, count + c, i, 0)
                        store(M, count + c, o, 0, x)
                        error = error + x * x
                        if out.shape[0] > 0:
                            store(out, p + o, lane, x)
                    store(by_scale, k, 3 + 2 * c, lane, error)


@njit
def posterior_modes(F, K, offsets, precision, S, x, coef):
    """coef[k] (d,): mode of c under the prior N(0, I / precision[k]) of every task.

    F from `centred_rows` and K from `grams`, whose rows become D S of K + precision I = S' D S
    with S unit upper triangular, and whose column r carries the right side along. S (R, R) and
    x (R,) are scratch.
    """
    d = coef.shape[1]
    for k in range(coef.shape[0]):
        f, A = F[k], K[k]
        n = offsets[k + 1] - offsets[k]
        r = min(n, d)
        least = 0.0
        for j in range(r):
            least += A[j, j]
        # A scale chosen at other weights may be out of proportion: the solve must not fail.
        least = max(precision[k], 1e-12 * least)
        for j in range((r + 3) // 4 * 4):
            A[j, j] += least
        for i in range(0, r, 4):
            first = i // 8 * 8
            for o in range(first, r + 1, 8):
                a = load4(A, i, o)
                for q in range(i):
                    a = a - along(A, q, i) * load(S, q, o)
                store4(A, i, o, a)
            for s in range(4):
                j = i + s
                pivot = max(A[j, j], least)
                A[j, j] = pivot
                pivot = 1.0 / pivot
                for o in range(first, r + 1, 8):
                    y = load(A, j, o) * pivot
                    store(S, j, o, y)
                    for t in range(s + 1, 4):
                        store(A, i + t, o, load(A, i + t, o) - same(A, j, i + t) * y)
        for j in range(x.shape[0]):  # nothing of the task before may stay
            x[j] = 0.0
        for j in range(r - 1, -1, -1):
            t = splat(0.0)
            for o in range(j // 8 * 8, r, 8):
                t = t + load(S, j, o) * load(x, o)
            x[j] = S[j, r] - total(t)
        if n > d:
            for j in range(d):
                coef[k, j] = x[j]
        else:
            for j in range(d):
                t = splat(0.0)
                for o in range(0, r, 8):
                    t = t + load(f, j, o) * load(x, o)
                coef[k, j] = total(t)
