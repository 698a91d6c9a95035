"""What a task computes alone: how well each prior scale explains it, and its model at one scale.

Rows A are features times a root of the prior moment M, so that the prior of the transformed
weights c is N(0, kappa s^2 I). `weight` is 1 for squared loss; for the logistic loss rows and
responses are those of the quadratic approximation at the current scores.

A task with n rows and r columns works in the smaller of two spaces: on K = A A' (n x n) or on
G = A' A (r x r), of rows that are centred when there is an intercept, and weighted. For many
scales the matrix is made tridiagonal once, which costs a third of its eigenvectors and leaves a
linear system of linear cost per scale; for one scale a Cholesky factor does.
"""

import numpy as np

from .._jit import njit
from .linalg import add_rows, cholesky_solve, dot_rows, gram, tridiagonal

_LANES = 8  # scales are padded to a multiple of this: one vector register


# ------------------------------------------------------------------------------- one task
@njit
def _centred_rows(A, pick, lo, n, response, weight, centre, weighted, C, v, mean):
    """C, v = the rows pick[lo:lo + n] and their response, less weighted means, times roots
    of the weights.

    Fills `mean` (r,). -> mean response, sum of weights, sum of squares of the rows.
    """
    d = A.shape[1]
    mass, level, size = 0.0, 0.0, 0.0
    for j in range(d):
        mean[j] = 0.0
    for i in range(n):
        x, c, w = A[pick[lo + i]], C[i], weight[i]
        s = 0.0
        for j in range(d):
            c[j] = x[j]
            mean[j] += w * x[j]
            s += x[j] * x[j]
        size += s
        mass += w
        level += w * response[i]
        v[i] = response[i]
    if centre:
        level /= mass
        for j in range(d):
            mean[j] /= mass
        for i in range(n):
            c = C[i]
            v[i] -= level
            for j in range(d):
                c[j] -= mean[j]
    else:
        level = 0.0
        for j in range(d):
            mean[j] = 0.0
    if weighted:
        for i in range(n):
            root, c = weight[i] ** 0.5, C[i]
            v[i] *= root
            for j in range(d):
                c[j] *= root
    return level, mass, size


@njit
def _working(label, score, lo, n, logistic, response, weight):
    """Response and weight of the working least squares at the current scores, in place."""
    for i in range(n):
        y = label[lo + i]
        if logistic:
            z = score[lo + i]
            p = 1.0 / (1.0 + np.exp(-min(max(y * z, -30.0), 30.0)))
            weight[i] = max(p * (1.0 - p), 1e-6)
            response[i] = z + y * (1.0 - p) / weight[i]
        else:
            response[i], weight[i] = y, 1.0


@njit
def _flip(C, n, d, F):
    for i in range(n):
        for j in range(d):
            F[j, i] = C[i, j]


# ---------------------------------------------------------------------------- many scales
@njit
def scale_criteria(
    A, pick, label, score, offsets, centre, logistic, n_folds, fold_rows, snr, out, level
):
    """out[k, s]: -2 log evidence and cross-validated deviance of task k at snr[s], averaged.

    Row p of the tasks, which `offsets` divides among them, is A[pick[p]]; `label` and, for the
    logistic loss, `score` belong to it. The scale is kappa = snr / level[k] with level[k] =
    trace(G_k) / n_k, so that snr is the prior variance of a score in units of the noise; level
    is infinite when no row differs from another. The noise variance is profiled for squared
    loss and 1 for the logistic loss, whose deviance is taken at the left-out score: the working
    response minus its residual.

    Folds are consecutive blocks of rows; with H the hat matrix the residuals of a block that
    was left out are exactly (I - H_bb)^-1 r_b. A task has at least `n_folds` blocks and
    blocks of at most `fold_rows` rows, which keeps the cost linear in its rows.
    """
    m, d, S = offsets.shape[0] - 1, A.shape[1], snr.shape[0]
    zero = d - d  # a literal 0 would compile `add_rows` once more
    lanes = (S + _LANES - 1) // _LANES * _LANES
    longest, widest, tallest = 0, 0, 0
    for k in range(m):
        n = offsets[k + 1] - offsets[k]
        longest, widest = max(longest, n), max(widest, min(n, d))
        if n > d:
            tallest = max(tallest, n)
    C, F = np.empty((longest, d)), np.empty((d, tallest))
    turned = np.empty((tallest, widest))
    K, Q = np.empty((widest, widest)), np.empty((widest, widest))
    P, c, scratch = np.empty((2 * widest, widest)), np.empty(2 * widest), np.empty(widest)
    by_row, by_column = np.empty((3, longest)), np.empty((3, widest))
    response, weight, y = by_row[0], by_row[1], by_row[2]
    diag, off, q = by_column[0], by_column[1], by_column[2]
    mean = np.empty(d)
    by_scale = np.zeros((4, lanes))
    kappa, quad, logdet, error = by_scale[0], by_scale[1], by_scale[2], by_scale[3]
    solutions = np.empty((3, widest, lanes))
    inverse, low, t = solutions[0], solutions[1], solutions[2]
    u = np.empty((fold_rows, lanes))
    V, B = np.empty((widest, fold_rows, lanes)), np.empty((fold_rows, fold_rows, lanes))
    for k in range(m):
        lo = offsets[k]
        n = offsets[k + 1] - lo
        dual = n <= d
        r = n if dual else d
        _working(label, score, lo, n, logistic, response, weight)
        _, mass, size = _centred_rows(
            A, pick, lo, n, response, weight, centre, logistic, C, y, mean
        )
        if dual:
            gram(C, n, d, K)
        else:
            _flip(C, n, d, F)
            gram(F, d, n, K)
        trace = 0.0
        for j in range(r):
            trace += K[j, j]
        level[k] = trace / n
        tridiagonal(K, r, diag, off, Q, P, c, scratch)
        # Z: rows whose products x' (I + kappa T)^-1 z give the hat matrix, or I minus it.
        Z = Q if dual else turned
        if not dual:
            for i in range(n):
                z = Z[i]
                for j in range(r):
                    z[j] = 0.0
                add_rows(Q, zero, r, zero, r, C[i], zero, z)
        for j in range(r):
            q[j] = 0.0
        add_rows(Z, zero, n, zero, r, y, zero, q)
        yy = 0.0
        for i in range(n):
            yy += y[i] * y[i]
        for s in range(S):
            kappa[s] = snr[s] / level[k] if level[k] > 0 else 0.0
        _factors(diag, off, q, r, kappa, inverse, low, t, quad, logdet)
        folds = min(n, max(n_folds, (n + fold_rows - 1) // fold_rows))
        for s in range(lanes):
            error[s] = 0.0
        for b in range(folds):
            start = (b * n) // folds
            count = ((b + 1) * n) // folds - start
            _solve_block(Z, start, count, r, inverse, low, V)
            _products(Z, start, count, r, V, B)
            _residuals(Z, start, count, r, t, y, kappa, weight, mass, centre, dual, B, u)
            _left_out(B, u, count)
            if logistic:
                _deviance(label, lo, start, count, response, weight, u, error)
            else:
                for i in range(count):
                    e = u[i]
                    for s in range(lanes):
                        error[s] += e[s] * e[s]
        tiny = 1e-9 * yy + 1e-300
        dof = max(n - 1, 1) if centre else n
        for s in range(S):
            energy = max(quad[s] if dual else yy - kappa[s] * quad[s], tiny)
            if logistic:
                out[k, s] = 0.5 * (energy + logdet[s]) + 0.5 * error[s]
            else:
                evidence = dof * np.log(energy / dof) + logdet[s]
                out[k, s] = 0.5 * evidence + 0.5 * n * np.log(max(error[s], tiny) / n)
        # Features that do not vary inside a task leave rounding errors: no scale fits.
        if trace <= 1e-24 * size:
            level[k] = np.inf


@njit
def _factors(diag, off, q, r, kappa, inverse, low, t, quad, logdet):
    """I + kappa_s T = L D L' for every scale s, one lane each.

    `inverse` (r, lanes) receives 1 / D, `low` the subdiagonal of L, t the solution for q, quad
    q' (I + kappa T)^-1 q and logdet the logarithm of the determinant.
    """
    lanes = kappa.shape[0]
    product = np.ones(lanes)
    for s in range(lanes):
        quad[s] = 0.0
        logdet[s] = 0.0
    for j in range(r):
        x, y, b = inverse[j], low[j], t[j]
        if j == 0:
            for s in range(lanes):
                pivot = 1.0 + kappa[s] * diag[0]
                product[s] *= pivot
                x[s] = 1.0 / pivot
                b[s] = q[0]
                quad[s] += b[s] * b[s] * x[s]
        else:
            a, z, e = off[j - 1], low[j - 1], t[j - 1]
            for s in range(lanes):
                # Schur complements of I + something positive semi-definite.
                pivot = max(1.0 + kappa[s] * (diag[j] - a * z[s]), 1.0)
                product[s] *= pivot
                x[s] = 1.0 / pivot
                b[s] = q[j] - z[s] * e[s]
                quad[s] += b[s] * b[s] * x[s]
        for s in range(lanes):
            y[s] = kappa[s] * off[j] * x[s]
        if j % 8 == 7 or j == r - 1:  # eight pivots of at most 1e5 n do not overflow
            for s in range(lanes):
                logdet[s] += np.log(product[s])
                product[s] = 1.0
    for j in range(r - 1, -1, -1):
        x, b = inverse[j], t[j]
        if j == r - 1:
            for s in range(lanes):
                b[s] *= x[s]
        else:
            y, e = low[j], t[j + 1]
            for s in range(lanes):
                b[s] = b[s] * x[s] - y[s] * e[s]


@njit
def _solve_block(Z, start, count, r, inverse, low, V):
    """V[:, o, s] = (I + kappa_s T)^-1 Z[start + o] for o < count."""
    lanes = low.shape[1]
    for o in range(count):
        z, x = Z[start + o], V[0, o]
        for s in range(lanes):
            x[s] = z[0]
        for j in range(1, r):
            a, x, e, y = z[j], V[j, o], V[j - 1, o], low[j - 1]
            for s in range(lanes):
                x[s] = a - y[s] * e[s]
    for j in range(r - 1, -1, -1):
        d, y = inverse[j], low[j]
        for o in range(count):
            x, e = V[j, o], V[min(j + 1, r - 1), o]
            if j == r - 1:
                for s in range(lanes):
                    x[s] *= d[s]
            else:
                for s in range(lanes):
                    x[s] = x[s] * d[s] - y[s] * e[s]


@njit
def _products(Z, start, count, r, V, B):
    """B[i, o, s] = Z[start + i] . V[:, o, s] for o <= i < count."""
    lanes = V.shape[2]
    V, B = V.reshape((V.shape[0], -1)), B.reshape((B.shape[0], -1))
    for i in range(count):
        row = B[i]
        for e in range((i + 1) * lanes):
            row[e] = 0.0
    for j in range(0, r, 4):  # past the end the last row counts zero times
        rest = r - 1 - j
        f0, f1 = V[j], V[j + min(1, rest)]
        f2, f3 = V[j + min(2, rest)], V[j + min(3, rest)]
        for i in range(count):
            z, row = Z[start + i], B[i]
            a0 = z[j]
            a1 = z[j + 1] if rest > 0 else 0.0
            a2 = z[j + 2] if rest > 1 else 0.0
            a3 = z[j + 3] if rest > 2 else 0.0
            for e in range((i + 1) * lanes):
                row[e] += a0 * f0[e] + a1 * f1[e] + a2 * f2[e] + a3 * f3[e]


@njit
def _residuals(Z, start, count, r, t, y, kappa, weight, mass, centre, dual, B, u):
    """B <- I - H_bb and u <- the residuals of the rows of a block, in every lane."""
    lanes = u.shape[1]
    zero = count - count
    for i in range(count):
        w, e = weight[start + i], u[i]
        for s in range(lanes):
            e[s] = 0.0
        add_rows(t, zero, r, zero, lanes, Z[start + i], zero, e)
        for o in range(i + 1):
            shift = (w * weight[start + o]) ** 0.5 / mass if centre else 0.0
            if not dual and o == i:
                shift -= 1.0
            x = B[i, o]
            for s in range(lanes):
                x[s] = (x[s] if dual else -kappa[s] * x[s]) - shift
        if not dual:
            for s in range(lanes):
                e[s] = y[start + i] - kappa[s] * e[s]


@njit
def _deviance(label, lo, start, count, response, weight, u, error):
    """error += deviance of the rows of a block at their left-out scores, in every lane."""
    for i in range(count):
        p = start + i
        root, sign, z, e = weight[p] ** 0.5, label[lo + p], response[p], u[i]
        for s in range(error.shape[0]):
            a = sign * (z - e[s] / root)
            error[s] += 2.0 * (np.log1p(np.exp(-a)) if a > 0 else np.log1p(np.exp(a)) - a)


@njit
def _left_out(B, u, count):
    """u <- (I - H_bb)^-1 u in every lane, by the Cholesky factor of B, which is overwritten."""
    lanes = u.shape[1]
    for i in range(count):
        y = u[i]
        for o in range(i + 1):
            x = B[i, o]
            for j in range(o):
                a, b = B[i, j], B[o, j]
                for s in range(lanes):
                    x[s] -= a[s] * b[s]
            if o < i:
                a, b = B[o, o], u[o]
                for s in range(lanes):
                    x[s] *= a[s]
                    y[s] -= x[s] * b[s]
            else:  # the diagonal keeps its inverse
                for s in range(lanes):
                    x[s] = 1.0 / max(x[s], 1e-14) ** 0.5
                    y[s] *= x[s]
    for i in range(count - 1, -1, -1):
        y = u[i]
        for j in range(i + 1, count):
            a, b = B[j, i], u[j]
            for s in range(lanes):
                y[s] -= a[s] * b[s]
        a = B[i, i]
        for s in range(lanes):
            y[s] *= a[s]


# ------------------------------------------------------------------------------ one scale
@njit
def posterior_modes(
    A, pick, label, score, offsets, centre, logistic, precision, tol, max_iter, coef, intercept
):
    """coef[k], intercept[k]: mode under the prior N(0, I / precision[k]) of every task.

    Rows as in `scale_criteria`. For the logistic loss Newton steps of a task end when none of
    its scores, which move by at most 4 a step, moves by more than `tol`; `score` is updated.
    """
    m, d = offsets.shape[0] - 1, A.shape[1]
    zero = d - d
    longest, widest, tallest = 0, 0, 0
    for k in range(m):
        n = offsets[k + 1] - offsets[k]
        longest, widest = max(longest, n), max(widest, min(n, d))
        if n > d:
            tallest = max(tallest, n)
    C, F = np.empty((longest, d)), np.empty((d, tallest))
    U, x = np.empty((widest, widest + 1)), np.empty(widest)
    response, weight, y = np.empty(longest), np.empty(longest), np.empty(longest)
    mean = np.empty(d)
    for k in range(m):
        lo = offsets[k]
        n = offsets[k + 1] - lo
        dual = n <= d
        r = n if dual else d
        c = coef[k]
        for _ in range(max_iter if logistic else 1):
            _working(label, score, lo, n, logistic, response, weight)
            middle, _, _ = _centred_rows(
                A, pick, lo, n, response, weight, centre, logistic, C, y, mean
            )
            if dual:
                gram(C, n, d, U)
                for i in range(n):
                    U[i, n] = y[i]
            else:
                _flip(C, n, d, F)
                gram(F, d, n, U)
                dot_rows(F, zero, d, zero, n, y, x, zero)
                for j in range(d):
                    U[j, d] = x[j]
            trace = 0.0
            for j in range(r):
                trace += U[j, j]
            # A scale chosen at other weights may be out of proportion: the solve must not fail.
            for j in range(r):
                U[j, j] += max(precision[k], 1e-12 * trace)
            cholesky_solve(U, r, x)
            for j in range(d):
                c[j] = 0.0 if dual else x[j]
            if dual:
                add_rows(C, zero, n, zero, d, x, zero, c)
            if centre:
                for j in range(d):
                    middle -= mean[j] * c[j]
            intercept[k] = middle
            if not logistic:
                break
            largest = 0.0
            for i in range(n):
                a = A[pick[lo + i]]
                s = middle
                for j in range(d):
                    s += a[j] * c[j]
                step = s - score[lo + i]
                # A longer step would leave the quadratic approximation.
                score[lo + i] += min(max(step, -4.0), 4.0)
                largest = max(largest, abs(step))
            if largest <= tol:
                break
