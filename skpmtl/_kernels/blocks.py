"""Block coordinate descent for squared loss with the L2,1 norm; a block is a feature's weights.

Arrays have one row for every feature of a working set, W (s, m) for m tasks. `u` (m,) is scratch.
"""

import numpy as np

from .._runtime.jit import njit

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
