"""What a task computes alone: how well each prior scale explains it, and its model at one scale.

Rows A are features times a root of the prior moment M, so that the prior of the transformed
weights c is N(0, kappa s^2 I). They are centred when there is an intercept, and weighted: by 1
for squared loss; for the logistic loss rows and responses are those of the quadratic
approximation at the current scores.

A task with n rows and d columns works in the smaller of two spaces: on K = A A' (n x n) or on
G = A' A (d x d), both F F' with F = A or A'. For many scales the matrix is made tridiagonal once,
which costs a third of its eigenvectors and leaves a linear system of linear cost per scale; for
one scale it is factorized.

Each function runs over a block of tasks, whose arrays are padded to the size of the largest: a
kernel that calls others would compile them once more, and views of parts of an array cost more
to compile than the loops over them.
"""

from .._jit import njit


@njit
def centred_rows(A, pick, offsets, weight, response, centre, F, v, mean, level, mass):
    """F[k], v = rows A[pick] and response of task k, less weighted means, times roots of weights.

    The rows of the tasks, which `offsets` divides among them, become the rows of F[k], or its
    columns when there are more than features. `centre` is 1.0, or 0.0 for means of 0. `mean`
    (m, d) starts at zero; level, mass (m,) receive the mean response and the sum of weights.
    """
    d = A.shape[1]
    for k in range(mass.shape[0]):
        lo, hi, m, f = offsets[k], offsets[k + 1], mean[k], F[k]
        total, middle = 0.0, 0.0
        for i in range(lo, hi):
            x, w = A[pick[i]], weight[i]
            total += w
            middle += w * response[i]
            for j in range(d):
                m[j] += w * x[j]
        mass[k] = total
        middle *= centre / total
        level[k] = middle
        for j in range(d):
            m[j] *= centre / total
        for i in range(hi - lo):
            x, w = A[pick[lo + i]], weight[lo + i] ** 0.5
            v[lo + i] = w * (response[lo + i] - middle)
            if hi - lo <= d:
                c = f[i]
                for j in range(d):
                    c[j] = w * (x[j] - m[j])
            else:
                for j in range(d):
                    f[j, i] = w * (x[j] - m[j])


@njit
def left_out(
    Z, offsets, folds, d, T, by_scale, by_row, inverse, scratch, X, lines, B, squares, q, out
):  # fmt: skip
    """out[p, s]: residual of row p at scale kappa[k, s] when its block of rows is left out.

    Rows are multiplied by roots of weights, and so are the residuals. Z[k] = Q' F[k] comes from
    `rotate` and T = (diag, off) from `tridiagonal`; by_row (2, N) holds the responses y and
    root. Blocks are `folds[k]` runs of consecutive rows: with H the hat matrix and e the
    residuals, those of a block that is left out are exactly (I - H_bb)^-1 e_b. I - H is
    Z' (I + kappa T)^-1 Z when n <= d, else I - kappa times that, less root root' for the
    intercept.

    by_scale (m, 3, lanes) holds kappa, 1 or -kappa, and zeros that become
    y' Z' (I + kappa T)^-1 Z y; inverse[k] (r, lanes) receives D^-1 of I + kappa T = L D L'.
    Scratch, zero at the start: scratch (2, R + 1, lanes), X (R + 2, rows, lanes), B (rows + 1,
    rows, lanes) and q (R,); `lines` and `squares` are X and B with their last two axes as one.
    """
    lanes, y, root, low, t = out.shape[1], by_row[0], by_row[1], scratch[0], scratch[1]
    for k in range(folds.shape[0]):
        lo, z, D, diag, off = offsets[k], Z[k], inverse[k], T[0, k], T[1, k]
        a, sign, quad = by_scale[k, 0], by_scale[k, 1], by_scale[k, 2]
        n = offsets[k + 1] - lo
        r = min(n, d)
        own = 0.0 if n <= d else 1.0
        c = 0.0
        for j in range(r):
            z0, g, h, x, e, f = z[j], low[j], low[j + 1], D[j], t[j], t[j + 1]
            total = 0.0
            for i in range(n):
                total += z0[i] * y[lo + i]
            q[j] = total
            b, b1 = diag[j], off[j]
            for s in range(lanes):
                # Schur complements of I + something positive semi-definite.
                pivot = max(1.0 + a[s] * (b - c * g[s]), 1.0)
                x[s] = 1.0 / pivot
                h[s] = a[s] * b1 / pivot
                f[s] = total - g[s] * e[s]
                quad[s] += f[s] * f[s] / pivot
            c = b1
        for j in range(r, q.shape[0]):
            q[j] = 0.0
        for fold in range(folds[k]):
            start = fold * n // folds[k]
            count = (fold + 1) * n // folds[k] - start
            for j in range(r):  # X[j + 1] = row j of (I + kappa T)^-1 Z of the block
                z0, g = z[j], low[j]
                for o in range(count):
                    c, x, e = z0[start + o], X[j + 1, o], X[j, o]
                    for s in range(lanes):
                        x[s] = c - g[s] * e[s]
            for j in range(r, 0, -1):
                h, g = D[j - 1], low[j]
                for o in range(count):
                    x, e = X[j, o], X[j + 1, o]
                    for s in range(lanes):
                        x[s] = x[s] * h[s] - g[s] * e[s]
            for i in range(count + 1):
                x = squares[i]
                for o in range(count * lanes):
                    x[o] = 0.0
            for j in range(0, r, 4):  # row `count` of B: the right side
                e, f, g, h = lines[j + 1], lines[j + 2], lines[j + 3], lines[j + 4]
                z0, z1, z2, z3 = z[j], z[j + 1], z[j + 2], z[j + 3]
                for i in range(count + 1):
                    p, x = start + i, squares[i]
                    if i < count:
                        c0, c1, c2, c3 = z0[p], z1[p], z2[p], z3[p]
                    else:
                        c0, c1, c2, c3 = q[j], q[j + 1], q[j + 2], q[j + 3]
                    for o in range(min(i + 1, count) * lanes):
                        x[o] += c0 * e[o] + c1 * f[o] + c2 * g[o] + c3 * h[o]
            start += lo
            for i in range(count + 1):  # Cholesky factor with the inverse of its diagonal
                for o in range(min(i + 1, count)):
                    shift = own * y[start + o]
                    if i < count:
                        shift = (own if i == o else 0.0) - root[start + i] * root[start + o]
                    x, h = B[i, o], B[o, o]
                    for s in range(lanes):
                        x[s] = shift + x[s] * sign[s]
                    for j in range(o):
                        e, g = B[i, j], B[o, j]
                        for s in range(lanes):
                            x[s] -= e[s] * g[s]
                    if i == o:
                        for s in range(lanes):
                            x[s] = 1.0 / max(x[s], 1e-14) ** 0.5
                    else:
                        for s in range(lanes):
                            x[s] *= h[s]
            for o in range(count - 1, -1, -1):
                x, h, f = B[count, o], B[o, o], out[start + o]
                for i in range(o + 1, count):
                    e, g = B[i, o], B[count, i]
                    for s in range(lanes):
                        x[s] -= e[s] * g[s]
                for s in range(lanes):
                    x[s] *= h[s]
                    f[s] = x[s]


@njit
def posterior_modes(F, K, offsets, precision, v, x, coef):
    """coef[k] (d,): mode of c under the prior N(0, I / precision[k]) of every task.

    F, v from `centred_rows` and K from `grams`, which is overwritten by the factors of
    K + precision I = U D U'. `coef` starts at zero; x (R,) is scratch.
    """
    d = coef.shape[1]
    for k in range(coef.shape[0]):
        lo, f, A, c, least = offsets[k], F[k], K[k], coef[k], precision[k]
        n = offsets[k + 1] - lo
        r = min(n, d)
        for j in range(r):
            A[j, j] += least
            x[j] = v[lo + j]
        if n > d:
            for j in range(r):
                a, t = f[j], 0.0
                for i in range(n):
                    t += a[i] * v[lo + i]
                x[j] = t
        for j in range(r - 1, -1, -1):
            a, last = A[j], x[j]
            pivot = max(a[j], least)
            a[j] = pivot
            for i in range(j):
                b, t = A[i], a[i] / pivot
                x[i] -= t * last
                for o in range(i + 1):
                    b[o] -= t * a[o]
        for j in range(r):
            a, t = A[j], x[j]
            for o in range(j):
                t -= a[o] * x[o]
            x[j] = t / a[j]
        for i in range(r):
            a, t = f[i], x[i]
            if n > d:
                c[i] = t
            else:
                for j in range(d):
                    c[j] += t * a[j]
