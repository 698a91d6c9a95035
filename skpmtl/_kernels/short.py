"""Squared loss of tasks with fewer rows than features, by matrices n x n of their rows.

With Z = C X_k for the centring C (or identity, both times roots of weights where rows have them),
u = C y_k, s = scale_k and a strength t > 0, the
minimum of s / 2 ||u - Z w||^2 + t / 2 ||w - q||^2 is q + Z' K (u - Z q), with
K = (Z Z' + t / s I)^-1 where only its products with centred vectors matter. Tasks of `least` rows
or more, which is at most as many as features, are passed over.
"""

import numpy as np

from .._runtime.jit import njit
from .._runtime.registers import load, splat, store, total
from .linalg import gram, mass_of, pack, packed_product, spd_inverse, unpack


@njit
def _centred(X, rows, shared, lo, n, centre, Z, mean, weights, mass):
    """Z[:n, :d] = C X_k; what stands in Z beyond d columns stays. Mean row into `mean`."""
    d = X.shape[1]
    for p in range(n):
        x, z = X[rows[lo + p]] if shared else X[lo + p], Z[p]
        for j in range(d):
            z[j] = x[j]
    if centre:
        for o in range(0, Z.shape[1], 8):
            a = splat(0.0)
            if weights is None:
                for p in range(n):
                    a = a + load(Z, p, o)
                a = a * (1.0 / n)
            else:
                for p in range(n):
                    a = a + load(Z, p, o) * weights[lo + p]
                a = a * (1.0 / mass)
            store(mean, o, a)
            for p in range(n):
                store(Z, p, o, load(Z, p, o) - a)
    if weights is not None:
        for p in range(n):
            w = weights[lo + p] ** 0.5
            for j in range(d):
                Z[p, j] *= w


@njit
def _gram(Z, n, A):
    """A[0] = Z[:n] Z[:n]'. -> trace"""
    gram(Z, n, Z.shape[1], A[0])
    trace = 0.0
    for p in range(n):
        trace += A[0, p, p]
    return trace


@njit
def _invert(A, n, shift, level, lo, weights):
    """A[0] <- (A[0] + shift I + level 1 1')^-1, or NaN if that is not finite.

    Roots of weights stand for 1. One task of absurd size must not end the fits of all.
    """
    for p in range(n):
        for q in range(p + 1):
            if weights is None:
                A[0, p, q] += level
            else:
                A[0, p, q] += level * (weights[lo + p] * weights[lo + q]) ** 0.5
        A[0, p, p] += shift
    if not spd_inverse(A):
        A[:] = np.nan


@njit
def _dot(Z, p, w):
    a = splat(0.0)
    for o in range(0, Z.shape[1], 8):
        a = a + load(Z, p, o) * load(w, o)
    return total(a)


@njit
def _combine(Z, n, u, w):
    """w = Z[:n]' u"""
    for o in range(0, Z.shape[1], 8):
        a = splat(0.0)
        for p in range(n):
            a = a + load(Z, p, o) * u[p]
        store(w, o, a)


@njit
def short_inverses(
    X, rows, shared, offsets, starts, scale, centre, rho, K, strengths, weights, least
):
    """Lower triangles of the K_k of all tasks, and the strengths t that they have.

    These are rho, or more for columns of absurd size.
    """
    d = X.shape[1]
    Z, mean = np.zeros((d, (d + 7) // 8 * 8)), np.empty((d + 7) // 8 * 8)
    A = np.empty((1, 0, 0))
    for k in range(offsets.shape[0] - 1):
        lo, n = offsets[k], offsets[k + 1] - offsets[k]
        if n >= least:  # it has no room in K
            continue
        if n != A.shape[1]:
            A = np.empty((1, n, n))
        mass = mass_of(lo, n, weights)
        _centred(X, rows, shared, lo, n, centre, Z, mean, weights, mass)
        trace = _gram(Z, n, A)
        strengths[k] = max(rho[k], 1e-12 * scale[k] * trace)
        _invert(A, n, strengths[k] / scale[k], trace / (mass * n) if centre else 0.0, lo, weights)
        pack(A[0], n, K, starts[k])


@njit
def short_prox(
    X,
    rows,
    shared,
    y,
    offsets,
    starts,
    K,
    strengths,
    centre,
    pick,
    centres,
    which,
    strength,
    share,
    out,
    weights,
    least,
):
    """out[a] = proximal model of task pick[a] minus its share of its centre."""
    d = X.shape[1]
    R = (d + 7) // 8 * 8
    # What stands behind w[:d] stays zero: no task leaves anything to the next one.
    Z, mean, w, v = np.zeros((d, R)), np.empty(R), np.zeros(R), np.empty(R)
    z, u = np.empty(d), np.empty(d)
    for a in range(pick.shape[0]):
        k = pick[a]
        lo, n = offsets[k], offsets[k + 1] - offsets[k]
        if n >= least:  # it has no room in K
            continue
        mass = mass_of(lo, n, weights)
        _centred(X, rows, shared, lo, n, centre, Z, mean, weights, mass)
        centre_model, part = centres[which[k]], strength[k] / strengths[k]
        for j in range(d):
            w[j] = part * centre_model[j]
        level = 0.0
        for p in range(n if centre else 0):
            if weights is None:
                level += y[lo + p] / n
            else:
                level += y[lo + p] * (weights[lo + p] / mass)
        for p in range(n):
            if weights is None:
                z[p] = y[lo + p] - level - _dot(Z, p, w)
            else:
                z[p] = weights[lo + p] ** 0.5 * (y[lo + p] - level) - _dot(Z, p, w)
        packed_product(K, starts[k], n, z, u)
        _combine(Z, n, u, v)
        part -= share[k]
        for j in range(d):
            out[a, j] = v[j] + part * centre_model[j]


@njit
def short_steps(
    X,
    rows,
    y,
    offsets,
    pick,
    centres,
    which,
    share,
    strength,
    scale,
    curvature,
    weights,
    n_steps,
    tol,
    starts,
    K,
    D,
):
    """D[a] = where accelerated steps of `skpmtl._kernels.steps.local_steps` take task pick[a].

    For its quadratic penalty, without intercepts, from the centre. Steps stay in the space of the
    n < d rows, D = Z' u, where their lengths follow from Z Z': of d numbers there is one pass
    before the steps and one behind them. K keeps the lower triangle of Z Z' of task k from
    starts[k] on, for later calls, and holds NaN there before; an empty K keeps none.
    """
    d, longest = X.shape[1], 0
    R = (d + 7) // 8 * 8
    for k in pick:
        longest = max(longest, offsets[k + 1] - offsets[k])
    Z, w, A = np.zeros((longest, R)), np.zeros(R), np.empty((longest, longest))
    # Rows of V: residuals at the centre, u, u of the lead, the step, and Z Z' times the last three.
    V = np.zeros((7, longest))
    r, u, lead, step, Ku, Klead, Kstep = V[0], V[1], V[2], V[3], V[4], V[5], V[6]
    for a in range(pick.shape[0]):
        k = pick[a]
        lo, n = offsets[k], offsets[k + 1] - offsets[k]
        _centred(X, rows, True, lo, n, False, Z, w, weights, 1.0)
        at = starts[k]
        if K.shape[0] == 0:
            gram(Z, n, R, A)
        elif np.isnan(K[at]):
            gram(Z, n, R, A)
            pack(A, n, K, at)
        else:
            unpack(K, at, n, A)
        for j in range(d):
            w[j] = share[k] * centres[which[k], j]
        for p in range(n):
            r[p] = _dot(Z, p, w) - weights[lo + p] ** 0.5 * y[lo + p]
        weight, tau = scale[k], strength[k]
        limit = weight * curvature[k]
        for attempt in range(6):
            first, diverged = -1.0, False
            for p in range(n):
                u[p], lead[p], Ku[p], Klead[p] = 0.0, 0.0, 0.0, 0.0
            for t in range(n_steps):
                full = limit + tau
                size = 1.0 / full if full > 0 else 0.0
                q = (tau / full) ** 0.5 if full > 0 else 1.0
                momentum = (1.0 - q) / (1.0 + q)
                for p in range(n):
                    step[p] = -size * (weight * (Klead[p] + r[p]) + tau * lead[p])
                for p in range(n):
                    s = 0.0
                    for o in range(n):
                        s += A[p, o] * step[o]
                    Kstep[p] = s
                moved, size2, turn = 0.0, 0.0, 0.0
                for p in range(n):
                    moved += step[p] * Kstep[p]
                    size2 += (lead[p] + step[p]) * (Klead[p] + Kstep[p])
                    turn -= step[p] * (Klead[p] + Kstep[p] - Ku[p])
                moved *= full
                if first < 0:
                    first = moved
                elif moved > 100.0 * first and moved > 1e-20:
                    diverged = True  # the power iteration stopped too early
                    break
                # Momentum that points uphill is dropped (adaptive restart).
                beta = 0.0 if turn > 0 else momentum
                for p in range(n):
                    new, Knew = lead[p] + step[p], Klead[p] + Kstep[p]
                    lead[p], Klead[p] = new + beta * (new - u[p]), Knew + beta * (Knew - Ku[p])
                    u[p], Ku[p] = new, Knew
                if moved <= tol * tol * (full * size2 + 1e-300):
                    break
            if not diverged:
                break
            limit *= 2.0
        _combine(Z, n, u, w)
        for j in range(d):
            D[a, j] = w[j]
