"""Block coordinate descent for squared loss with the L2,1 norm; a block is a feature's weights.

Arrays have one row for every feature of a working set, W (s, m) for m tasks. `u` (m,) is scratch.
What W moves in an affine way is its state: residuals of rows, or minus the gradient where there are
matrices G.

References
----------
.. [1] Q. Bertrand, M. Massias, "Anderson acceleration of coordinate descent", AISTATS 2021.
"""

import numpy as np

from .._runtime.jit import njit

CYCLES = 5  # between two extrapolations
_JUDGED = 3  # extrapolations to judge the rate by
_STEPS = 60  # of Newton's method for one norm, at most; a few suffice


@njit
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


@njit
def row_cycle(Z, shared, offsets, h, ridge, alpha, W, r, u):
    """One cycle over the features Z (s, N), rows by task, or (s, n) of rows that all tasks share.

    r (N,) holds the residuals, task after task.
    """
    for j in range(Z.shape[0]):
        z, t = Z[j], 0.0
        for k in range(W.shape[1]):
            lo, hi = offsets[k], offsets[k + 1]
            x, e, g = z if shared else z[lo:hi], r[lo:hi], 0.0
            for p in range(hi - lo):
                g += x[p] * e[p]
            w = W[j, k]
            t += w * w
            u[k] = g + (h[j, k] - ridge) * w
        shrink(u, h[j], alpha, np.sqrt(t))
        for k in range(W.shape[1]):
            change = u[k] - W[j, k]
            if change != 0.0:
                W[j, k] = u[k]
                lo, hi = offsets[k], offsets[k + 1]
                x, e = z if shared else z[lo:hi], r[lo:hi]
                for p in range(hi - lo):
                    e[p] -= change * x[p]


@njit
def gram_cycle(G, h, ridge, alpha, W, V, u):
    """One cycle by means of G (s, s, m), or (s, s, 1) for all tasks; V is minus the gradient."""
    s, m = W.shape
    one = G.shape[2] == 1
    for j in range(s):
        t = 0.0
        for k in range(m):
            w = W[j, k]
            u[k] = V[j, k] + h[j, k] * w
        for k in range(m):  # apart from what it stores, as sums of all loops
            t += W[j, k] * W[j, k]
        shrink(u, h[j], alpha, np.sqrt(t))
        moved = 0.0
        for k in range(m):
            new = u[k]
            u[k] -= W[j, k]
            W[j, k] = new
        for k in range(m):
            moved += abs(u[k])
        if moved == 0.0:
            continue
        for i in range(s):
            if one:
                g = G[j, i, 0]
                for k in range(m):
                    V[i, k] -= g * u[k]
            else:
                for k in range(m):
                    V[i, k] -= G[j, i, k] * u[k]
        for k in range(m):
            V[j, k] -= ridge * u[k]


@njit
def ahead(gaps, n, goal):
    """Cycles that are left at the rate of the second half of the first n gaps; 0 at first."""
    half = n // 2
    if half < _JUDGED:
        return 0.0
    rate = np.log(gaps[half] / gaps[n - 1]) / (n - 1 - half)
    return CYCLES * np.log(gaps[n - 1] / goal) / rate if rate > 0.0 else np.inf


@njit
def _value(rows, y, square, ridge, alpha, W, state):
    """-> objective, loss, product of targets and fits, square of the weights"""
    omega, both, product, left = 0.0, 0.0, 0.0, 0.0
    for j in range(W.shape[0]):
        t = 0.0
        for k in range(W.shape[1]):
            t += W[j, k] * W[j, k]
        both += t
        omega += np.sqrt(t)
    for j in range(len(y)):
        v, r, w = y[j], state[j], state[j] if rows else W[j]
        for p in range(len(v)):
            product += v[p] * w[p]
        for p in range(len(v)):
            left += r[p] * w[p]
    if rows:
        loss, fitted = 0.5 * left, square - product
    else:
        loss, fitted = 0.5 * (square - product - left - ridge * both), product
    return loss + 0.5 * ridge * both + alpha * omega, loss, fitted, both


@njit
def _level(rows, Z, shared, offsets, ridge, W, state):
    """Largest norm over the tasks of the gradient of a feature."""
    top = 0.0
    for j in range(W.shape[0]):
        t = 0.0
        for k in range(W.shape[1]):
            if rows:
                lo, hi = offsets[k], offsets[k + 1]
                x, e = Z[j] if shared else Z[j, lo:hi], state[0, lo:hi]
                g = -ridge * W[j, k]
                for p in range(hi - lo):
                    g += x[p] * e[p]
            else:
                g = state[j, k]
            t += g * g
        top = max(top, t)
    return np.sqrt(top)


@njit
def _extrapolate(points, states, A):
    """points[0], states[0] <- the combination of the others that changes least in a cycle [1]_.

    Whether there is one; `A` (CYCLES, CYCLES + 1) is scratch, for the factor of its equations.
    """
    size, total = 0.0, 0.0
    for i in range(CYCLES):
        for j in range(i + 1):
            t = 0.0
            for f in range(points.shape[1]):
                for k in range(points.shape[2]):
                    own = points[i + 1, f, k] - points[i, f, k]
                    t += own * (points[j + 1, f, k] - points[j, f, k])
            A[i, j] = t
        size += A[i, i]
    for i in range(CYCLES):
        A[i, i] += 1e-12 * size
        c = 1.0
        for j in range(i + 1):
            t = A[i, j]
            for q in range(j):
                t -= A[i, q] * A[j, q]
            if j < i:
                A[i, j] = t / A[j, j]
                c -= A[i, j] * A[j, CYCLES]
            elif not t > 0.0:  # nothing changed
                return False
            else:
                A[i, i] = np.sqrt(t)
        A[i, CYCLES] = c / A[i, i]
    for i in range(CYCLES - 1, -1, -1):
        c = A[i, CYCLES]
        for q in range(i + 1, CYCLES):
            c -= A[q, i] * A[q, CYCLES]
        A[i, CYCLES] = c / A[i, i]
        total += A[i, CYCLES]
    for kept in (points, states):
        for f in range(kept.shape[1]):
            for k in range(kept.shape[2]):
                t = 0.0
                for i in range(CYCLES):
                    t += A[i, CYCLES] / total * kept[i + 1, f, k]
                kept[0, f, k] = t
    return True


@njit
def _copy(points, states, source, target):
    for kept in (points, states):
        for f in range(kept.shape[1]):
            for k in range(kept.shape[2]):
                kept[target, f, k] = kept[source, f, k]


@njit
def descend(
    G, Z, shared, offsets, y, square, h, ridge, alpha, goal, tol, most, points, states, gaps, A, u
):
    """Minimise from points[0] until the gap of the set is at most `goal`, or `tol` of the value.

    -> cycles, whether it is. No further than it looks as if `most` cycles were enough. Either G or
    Z has no entries. points (CYCLES + 1, s, m) hold W, and states what belongs to it, the first of
    them at the end; with rows these are (CYCLES + 1, 1, N) and y (1, N), else y is g (s, m).
    """
    rows, done, rounds = len(G) == 0, 0, 0
    here = _value(rows, y, square, ridge, alpha, points[0], states[0])
    while True:
        value, loss, fitted, both = here
        a, q = square - fitted, 2.0 * loss + ridge * both
        top, theta = (
            _level(rows, Z, shared, offsets, ridge, points[0], states[0]),
            a / q if q else 1.0,
        )
        if top * abs(theta) > alpha:
            theta = np.sign(theta) * alpha / top
        gap = value - theta * a + 0.5 * theta * theta * q
        gaps[rounds] = gap
        rounds += 1
        wanted = max(goal, tol * abs(value))
        if gap <= wanted or done >= most or done + ahead(gaps, rounds, wanted) > most:
            return done, gap <= wanted
        n = min(CYCLES, most - done)
        for i in range(1, n + 1):
            _copy(points, states, i - 1, i)
            if rows:
                row_cycle(Z, shared, offsets, h, ridge, alpha, points[i], states[i, 0], u)
            else:
                gram_cycle(G, h, ridge, alpha, points[i], states[i], u)
        done += n
        here = _value(rows, y, square, ridge, alpha, points[n], states[n])
        if n == CYCLES and _extrapolate(points, states, A):
            there = _value(rows, y, square, ridge, alpha, points[0], states[0])
            if there[0] < here[0]:
                here = there
                continue
        _copy(points, states, n, 0)
