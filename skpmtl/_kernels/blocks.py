"""Block coordinate descent for squared loss with the L2,1 norm; a block is a feature's weights.

Arrays have one row for every feature of a working set, h (s, m) for m tasks; `u` (m,) is scratch.
Weights w, feature after feature, have s m entries. What they move in an affine way is their state:
residuals of rows, or minus the gradient where there are matrices G.

References
----------
.. [1] Q. Bertrand, M. Massias, "Anderson acceleration of coordinate descent", AISTATS 2021.
"""

import numpy as np

from .._runtime.jit import inner, njit

CYCLES = 5  # between two extrapolations
_JUDGED = 3  # extrapolations to judge the rate by
_STEPS = 60  # of Newton's method for one norm, at most; a few suffice


@inner
def shrink(u, h, alpha, start):
    """u <- the w that minimises sum_k (h_k w_k^2 / 2 - u_k w_k) + alpha ||w||.

    It is w_k = t u_k / (h_k t + alpha) with t = ||w||, the root of phi(t) = 1 for phi(t)^-2 =
    sum_k u_k^2 / (h_k t + alpha)^2. phi is concave and rises, and is a line where all h_k are
    equal: Newton's steps approach the root from below after the first, which begins at `start`.
    """
    m, square = len(u), 0.0
    for k in range(m):
        square += u[k] * u[k]
    if square <= alpha * alpha:
        for k in range(m):
            u[k] = 0.0
        return
    t = start
    for _ in range(_STEPS):
        f, slope = 0.0, 0.0
        for k in range(m):
            part = 1.0 / (h[k] * t + alpha)
            term = u[k] * part
            f += term * term
            slope += term * term * h[k] * part
        if not slope > 0.0:
            break
        step = f * (np.sqrt(f) - 1.0) / slope
        t = max(t + step, 0.0)
        if abs(step) <= 1e-7 * t:  # the next one is below rounding
            break
    for k in range(m):
        u[k] *= t / (h[k] * t + alpha)


@inner
def _row_cycle(Z, shared, offsets, h, ridge, alpha, w, r, u):
    """One cycle over the features Z (s, N), rows by task, or (s, n) of rows that all tasks share.

    r (N,) holds the residuals, task after task.
    """
    m = len(u)
    for j in range(len(h)):
        z, own, t = Z[j], w[j * m : (j + 1) * m], 0.0
        for k in range(m):
            lo, hi = offsets[k], offsets[k + 1]
            x, e, g = z if shared else z[lo:hi], r[lo:hi], 0.0
            for p in range(hi - lo):
                g += x[p] * e[p]
            t += own[k] * own[k]
            u[k] = g + (h[j, k] - ridge) * own[k]
        shrink(u, h[j], alpha, np.sqrt(t))
        for k in range(m):
            change = u[k] - own[k]
            if change != 0.0:
                own[k] = u[k]
                lo, hi = offsets[k], offsets[k + 1]
                x, e = z if shared else z[lo:hi], r[lo:hi]
                for p in range(hi - lo):
                    e[p] -= change * x[p]


@inner
def _gram_cycle(G, h, ridge, alpha, w, v, u):
    """One cycle by means of G (s, s, m), or (s, s, 1) for all tasks; v is minus the gradient."""
    s, m = h.shape
    one = G.shape[2] == 1
    for j in range(s):
        own, e, t, moved = w[j * m : (j + 1) * m], v[j * m : (j + 1) * m], 0.0, 0.0
        for k in range(m):
            u[k] = e[k] + h[j, k] * own[k]
        for k in range(m):  # apart from what it stores, as sums of all loops
            t += own[k] * own[k]
        shrink(u, h[j], alpha, np.sqrt(t))
        for k in range(m):
            new = u[k]
            u[k] -= own[k]
            own[k] = new
        for k in range(m):
            moved += abs(u[k])
        if moved == 0.0:
            continue
        for i in range(s):
            to, g = v[i * m : (i + 1) * m], G[j, i]
            if one:
                first = g[0]
                for k in range(m):
                    to[k] -= first * u[k]
            else:
                for k in range(m):
                    to[k] -= g[k] * u[k]
        for k in range(m):
            e[k] -= ridge * u[k]


@inner
def _value(Z, y, square, ridge, alpha, point, h):
    """-> objective, loss, product of targets and fits, square of the weights"""
    m, size, omega, both, product, left = h.shape[1], h.size, 0.0, 0.0, 0.0, 0.0
    for j in range(len(h)):
        own, t = point[j * m : (j + 1) * m], 0.0
        for k in range(m):
            t += own[k] * own[k]
        both += t
        omega += np.sqrt(t)
    state = point[size:]
    w = point[:size] if Z.ndim == 3 else state
    for p in range(len(y)):
        product += y[p] * w[p]
    for p in range(len(y)):
        left += state[p] * w[p]
    if Z.ndim == 3:
        loss, fitted = 0.5 * (square - product - left - ridge * both), product
    else:
        loss, fitted = 0.5 * left, square - product
    return loss + 0.5 * ridge * both + alpha * omega, loss, fitted, both


@inner
def _level(Z, shared, offsets, ridge, point, h):
    """Largest norm over the tasks of the gradient of a feature."""
    m, top, state = h.shape[1], 0.0, point[h.size :]
    for j in range(len(h)):
        t, own = 0.0, point[j * m : (j + 1) * m]
        for k in range(m):
            if Z.ndim == 3:
                g = state[j * m + k]
            else:
                lo, hi = offsets[k], offsets[k + 1]
                x, e = Z[j] if shared else Z[j, lo:hi], state[lo:hi]
                g = -ridge * own[k]
                for p in range(hi - lo):
                    g += x[p] * e[p]
            t += g * g
        top = max(top, t)
    return np.sqrt(top)


@inner
def _extrapolate(points, size, A):
    """points[0] <- the combination of the others whose `size` weights change least in a cycle [1]_.

    Whether there is one; `A` (CYCLES, CYCLES + 1) is scratch, for the factor of its equations.
    """
    n, trace, total = len(A), 0.0, 0.0  # not the constant, or all loops would be unrolled
    for i in range(n):
        for j in range(i + 1):
            t = 0.0
            a, b, c, d = points[i + 1], points[i], points[j + 1], points[j]
            for p in range(size):
                t += (a[p] - b[p]) * (c[p] - d[p])
            A[i, j] = t
        trace += A[i, i]
    for i in range(n):
        A[i, i] += 1e-12 * trace
        c = 1.0
        for j in range(i + 1):
            t = A[i, j]
            for q in range(j):
                t -= A[i, q] * A[j, q]
            if j < i:
                A[i, j] = t / A[j, j]
                c -= A[i, j] * A[j, n]
            elif not t > 0.0:  # nothing changed
                return False
            else:
                A[i, i] = np.sqrt(t)
        A[i, n] = c / A[i, i]
    for i in range(n - 1, -1, -1):
        c = A[i, n]
        for q in range(i + 1, n):
            c -= A[q, i] * A[q, n]
        A[i, n] = c / A[i, i]
        total += A[i, n]
    best = points[0]
    best[:] = 0.0
    for i in range(n):
        point, c = points[i + 1], A[i, n] / total
        for p in range(len(point)):
            best[p] += c * point[p]
    return True


@inner
def _copy(source, target):
    for p in range(len(source)):
        target[p] = source[p]


@njit
def descend(Z, shared, offsets, y, square, h, ridge, alpha, goal, tol, most, points, gaps, A, u):
    """Minimise from points[0] until the gap of the set is at most `goal`, or `tol` of the value.

    -> cycles, whether it is. No further than `most` cycles, nor where more would be needed at the
    rate of the second half of the gaps. Either G or Z.ndim == 3, which is compiled apart. points
    (CYCLES + 1, ...) hold the weights and, after them, the state, the first of them at the end; y
    are the targets, or minus the gradient at zero.
    """
    done, rounds, n, size = 0, 0, 0, h.size
    while True:
        for i in range(n):
            point = points[i + 1]
            _copy(points[i], point)
            if Z.ndim == 3:
                _gram_cycle(Z, h, ridge, alpha, point[:size], point[size:], u)
            else:
                _row_cycle(Z, shared, offsets, h, ridge, alpha, point[:size], point[size:], u)
        done += n
        here = _value(Z, y, square, ridge, alpha, points[n], h)
        if n == CYCLES and _extrapolate(points, size, A):
            there = _value(Z, y, square, ridge, alpha, points[0], h)
            if there[0] < here[0]:
                here, n = there, 0
        if n > 0:
            _copy(points[n], points[0])
        value, loss, fitted, both = here
        a, q = square - fitted, 2.0 * loss + ridge * both
        top = _level(Z, shared, offsets, ridge, points[0], h)
        theta = a / q if q else 1.0
        if top * abs(theta) > alpha:
            theta = np.sign(theta) * alpha / top
        gap = value - theta * a + 0.5 * theta * theta * q
        gaps[rounds] = gap
        half, wanted = rounds // 2, max(goal, tol * abs(value))
        if gap <= wanted or done >= most:
            return done, gap <= wanted
        if half >= _JUDGED:
            rate = np.log(gaps[half] / gap) / (rounds - half)
            if not rate > 0.0 or done + CYCLES * np.log(gap / wanted) / rate > most:
                return done, False
        rounds += 1
        n = min(CYCLES, most - done)
