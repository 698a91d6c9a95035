"""Fine-tuning of tasks: evidence of each prior scale, and models of other losses.

A task with n rows and a model of d numbers works in the smaller of two spaces, as in
`skpmtl._kernels.local`: on A A' (n x n) or A' A (d x d), both F' F with F = A' or A, A the rows
times roots of their weights. For many prior scales F' F = Q T Q' is made tridiagonal once, with
`skpmtl._kernels.grams`.

Each function runs over a block of tasks, whose arrays are padded to the size of the largest.
"""

import numpy as np

from .._runtime.jit import njit
from .._runtime.registers import greater, load, same, splat, store, total
from .losses import MULTINOMIAL, losses

# First steps in which all classes have one preconditioner, with the mean weight of a row: it is
# cheaper, but slow where probabilities are next to 0 or 1.
_SHARED = 40
_EARLY = 3  # first steps, in which rows that are far on the wrong side weigh more


@njit
def weighted_rows(X, pick, offsets, intercept, root, v, F, rhs):
    """Rows X[pick] of the tasks times `root`, and what they are multiplied by.

    Parameters
    ----------
    root : (N,)
    v : (n_outputs, N)
        Weighted responses.
    F : (m, P, R)
        Receives the rows of a task as columns, or as rows when there are more than numbers in a
        model of one output.
    rhs : (m, n_outputs, R), of zeros
        Receives v, or F' v when there are more rows.
    """
    d = X.shape[1]
    row = np.zeros((d + 8) // 8 * 8)
    size = d + 1 if intercept else d
    for a in range(offsets.shape[0] - 1):
        n = offsets[a + 1] - offsets[a]
        for i in range(n):
            p = offsets[a] + i
            x, w = X[pick[p]], root[p]
            for j in range(d):
                row[j] = w * x[j]
            if intercept:
                row[d] = w
            if n <= size:
                for j in range(size):
                    F[a, j, i] = row[j]
                for c in range(v.shape[0]):
                    rhs[a, c, i] = v[c, p]
            else:
                for j in range(0, size, 8):
                    store(F, a, i, j, load(row, j))
                for c in range(v.shape[0]):
                    for j in range(0, size, 8):
                        store(rhs, a, c, j, load(rhs, a, c, j) + v[c, p] * load(row, j))


@njit
def evidence(K, diag, off, sizes, d, rhs, scales, dets, quad):
    """Products rhs' (I + kappa F' F)^-1 rhs, summed over outputs, and determinants, by kappa.

    Parameters
    ----------
    K, diag, off
        As `tridiagonal` leaves them.
    sizes : (m,)
        Rows.
    d : int
        Numbers in a model of one output.
    rhs : (m, n_outputs, R)
        From `weighted_rows`; becomes Q' rhs.
    scales, quad : (m, lanes)
        kappa, and the products.
    dets : (m, ., lanes)
        Receives factors of the determinants of I + kappa F' F, of at most 16 pivots each.
    """
    one = splat(1.0)
    for k in range(sizes.shape[0]):
        r = min(sizes[k], d)
        for c in range(rhs.shape[1]):
            for j in range(r - 1, 0, -1):
                t = splat(0.0)
                for o in range(0, j, 8):
                    t = t + load(K, k, j, o) * load(rhs, k, c, o)
                s = total(t)
                for o in range(0, j, 8):
                    store(rhs, k, c, o, load(rhs, k, c, o) - s * load(K, k, j, o))
        for lane in range(0, scales.shape[1], 8):
            a, both = load(scales, k, lane), splat(0.0)
            for c in range(rhs.shape[1]):
                f, g, det, s = splat(0.0), splat(0.0), one, 0.0
                for j in range(r):  # L D L' of I + kappa T; its pivots cannot be less than 1
                    pivot = greater(one + a * (diag[k, j] - s * g), one)
                    inverse = 1.0 / pivot
                    f = same(rhs, k, c, j) - g * f
                    both = both + f * f * inverse
                    s = off[k, j]
                    g = a * s * inverse
                    if j % 16 == 0:
                        det = one
                    det = det * pivot
                    store(dets, k, j // 16, lane, det)
            store(quad, k, lane, both)


@njit
def factor(A, r, least, inverse):
    """Upper triangle of A[:r, :r] = U' U into U, without its diagonal; `inverse` (r,) is of that.

    What the first eight of a row's numbers hold up to the diagonal becomes zero. least (r,) bounds
    the squares of the diagonal from below.
    """
    for j in range(r):
        s = 1.0 / max(A[j, j], least[j]) ** 0.5
        inverse[j] = s
        for o in range(j // 8 * 8, j + 1):
            A[j, o] = 0.0
        for o in range(j // 8 * 8, r, 8):
            store(A, j, o, s * load(A, j, o))
        for i in range(j + 1, r):
            for o in range(i // 8 * 8, r, 8):
                store(A, i, o, load(A, i, o) - same(A, j, i) * load(A, j, o))


@njit
def descend(F, K, offsets, y, base, root, loss, kappa, max_steps, tol, out, weights):
    """out[k] minimises the weighted sum of the losses of task k plus |out[k]|^2 / (2 kappa[k]).

    Nonlinear conjugate gradients with Newton steps along the line. The preconditioner is the
    Hessian at the current model without its blocks between classes: for the logistic loss these
    are Newton's steps. With fewer rows than numbers the model is A' U^-1 u
    with scores U' u, where U' U = A A'.

    Parameters
    ----------
    F, K
        From `weighted_rows` and `grams`; K is changed.
    y : (N,)
    base, root : (n_outputs, N), (N,)
        Scores without the change, and roots of the weights in F.
    loss : {LOGISTIC, MULTINOMIAL}
    kappa : (m,)
        A task whose kappa is 0 stays where it is.
    tol : float
        A task ends when its gradient is shorter than this part of its change, both in the metric
        of the preconditioner.
    out : (m, n_outputs, d)
    """
    C, d, R = out.shape[1], out.shape[2], F.shape[2]
    longest = F.shape[1] if F.shape[1] > K.shape[1] else K.shape[1]
    f, before = np.empty((C, longest)), np.empty((C, longest))
    D, way = np.empty((C, longest)), np.empty((C, longest))
    u, g, z, p = np.empty((C, R)), np.empty((C, R)), np.empty((C, R)), np.empty((C, R))
    excess, least, inverse = np.empty(longest), np.empty(R), np.empty(R)
    U, old, M = np.zeros((R, R)), np.empty(R), np.zeros((longest, R))
    for k in range(offsets.shape[0] - 1):
        lo = offsets[k]
        n = offsets[k + 1] - lo
        r = min(n, d)
        for c in range(C):
            for j in range(d):
                out[k, c, j] = 0.0
            for j in range(0, R, 8):
                store(u, c, j, splat(0.0))
                store(p, c, j, splat(0.0))
                store(g, c, j, splat(0.0))
                store(z, c, j, splat(0.0))
            for i in range(n):
                f[c, i] = base[c, lo + i]
        if not kappa[k] > 0:
            continue
        if n <= d:
            for i in range(n):
                least[i] = 1e-15 * K[k, i, i] + 1e-300
            factor(K[k], n, least, inverse)
        for i in range(n):
            a = 1.0 / root[lo + i]
            for j in range(0, r, 8):
                store(M, i, j, a * load(F, k, i, j) if n > d else splat(0.0))
            for j in range(i if n <= d else 0):
                M[i, j] = a * K[k, j, i]
            if n <= d:
                M[i, i] = a / inverse[i]
        ridge = 1.0 / kappa[k]
        for j in range(r):
            least[j] = ridge
        value, penalty, last = losses(f, y, lo, n, loss, D, excess, weights), 0.0, 1.0
        for turn in range(max_steps):
            size = 2.0 * penalty
            new, mixed, along = splat(0.0), splat(0.0), splat(0.0)
            for c in range(C):
                anew = c == 0 or turn >= _SHARED
                for i in range(r if anew else 0):
                    for j in range(0, r, 8):
                        store(U, i, j, splat(0.0))
                    U[i, i] = ridge
                for j in range(0, r, 8):
                    store(old, j, load(g, c, j))
                    store(g, c, j, ridge * load(u, c, j))
                for i in range(n):
                    a = abs(D[c, i]) * (1.0 - abs(D[c, i]))
                    count = weights[lo + i]
                    size += count * a * (f[c, i] - base[c, lo + i]) ** 2
                    if turn < _SHARED:
                        a = 0.0
                        for q in range(C):
                            a += abs(D[q, i]) * (1.0 - abs(D[q, i]))
                        a /= max(C - 1, 1)
                    # There the curvature vanishes: the bound of Jaakkola and Jordan, roughly.
                    if turn < _EARLY and excess[i] > 2.0:
                        a = max(a, 0.4 / excess[i])
                    a *= count
                    filled = min(r, i + 1) if n <= d else r
                    for q in range(filled if anew else 0):
                        s = a * M[i, q]
                        for j in range(q // 8 * 8, filled, 8):
                            store(U, q, j, load(U, q, j) + s * load(M, i, j))
                    a = count * D[c, i]
                    for j in range(0, r, 8):
                        store(g, c, j, load(g, c, j) + a * load(M, i, j))
                if anew:
                    factor(U, r, least, inverse)
                for j in range(0, r, 8):
                    store(z, c, j, load(g, c, j))
                for j in range(r):
                    s = z[c, j] * inverse[j]
                    for o in range(j // 8 * 8, r, 8):
                        store(z, c, o, load(z, c, o) - s * load(U, j, o))
                    z[c, j] = s
                for j in range(r - 1, -1, -1):
                    partial = splat(0.0)
                    for o in range(j // 8 * 8, r, 8):
                        partial = partial + load(U, j, o) * load(z, c, o)
                    z[c, j] = (z[c, j] - total(partial)) * inverse[j]
                for j in range(0, r, 8):
                    new = new + load(g, c, j) * load(z, c, j)
                    mixed = mixed + load(old, j) * load(z, c, j)
                    along = along + load(g, c, j) * load(p, c, j)
            gamma = total(new)
            if not gamma > tol * tol * size:
                break
            b = (gamma - total(mixed)) / last if loss == MULTINOMIAL and turn > 0 else 0.0
            if not (b > 0 and b * total(along) < 0.5 * gamma):
                b = 0.0
            slope, last, bend = b * total(along) - gamma, gamma, 0.0
            cross, square = splat(0.0), splat(0.0)
            for c in range(C):
                for j in range(0, r, 8):
                    partial = b * load(p, c, j) - load(z, c, j)
                    store(p, c, j, partial)
                    cross = cross + partial * load(u, c, j)
                    square = square + partial * partial
                for i in range(n):
                    partial = splat(0.0)
                    for j in range(0, r, 8):
                        partial = partial + load(M, i, j) * load(p, c, j)
                    way[c, i] = total(partial)
                    before[c, i] = f[c, i]
            for i in range(n):
                even, middle = abs(D[0, i]) * (1.0 - abs(D[0, i])) * way[0, i] ** 2, 0.0
                if loss == MULTINOMIAL:
                    own, even = way[int(y[lo + i]), i], 0.0
                    for c in range(C):
                        a = way[c, i] - own
                        middle += D[c, i] * a
                        even += D[c, i] * a * a
                bend += weights[lo + i] * (even - middle * middle)
            first_order, second_order = ridge * total(cross), ridge * total(square)
            a = 1.0 if turn < _EARLY else -slope / (bend + second_order)
            limit, rest = value + penalty + 1e-13 * abs(value), penalty
            for _ in range(30):
                for c in range(C):
                    for i in range(n):
                        f[c, i] = before[c, i] + a * way[c, i]
                value = losses(f, y, lo, n, loss, D, excess, weights)
                rest = penalty + a * (first_order + 0.5 * a * second_order)
                if value + rest <= limit + 1e-4 * a * slope:
                    break
                a *= 0.5
            if not a > 1e-8:  # rounding hides what is left
                break
            penalty = rest
            for c in range(C):
                for j in range(0, r, 8):
                    store(u, c, j, load(u, c, j) + a * load(p, c, j))
        for c in range(C):
            for i in range(n - 1 if n <= d else -1, -1, -1):
                partial = splat(0.0)
                for j in range(i // 8 * 8, n, 8):
                    partial = partial + load(K, k, i, j) * load(u, c, j)
                u[c, i] = (u[c, i] - total(partial)) / (M[i, i] * root[lo + i])
            for j in range(d):
                s = u[c, j] if n > d else 0.0
                if n <= d:
                    partial = splat(0.0)
                    for o in range(0, n, 8):
                        partial = partial + load(F, k, j, o) * load(u, c, o)
                    s = total(partial)
                out[k, c, j] = s
