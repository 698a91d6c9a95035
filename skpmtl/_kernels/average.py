"""Averages of a task's models over priors around its centre, weighted by their evidence.

Squared loss. A prior of precision rho / s^2 around c a has, for n rows Z and responses v, both
less their means where there is an intercept, and the residual t = v - c Z a,

    mode  c a + Z' (Z Z' + rho I)^-1 t  =  c a + (Z' Z + rho I)^-1 Z' t
    Q     = rho t' (Z Z' + rho I)^-1 t  =  t't - t' Z (Z' Z + rho I)^-1 Z' t
    -log evidence = n' / 2 log Q + 1 / 2 log det (I + Z Z' / rho),

with the noise variance s^2 integrated out under a scale-free prior, and n' rows less one for an
intercept. The smaller of Z Z' and Z' Z is tridiagonal already (`skpmtl._kernels.spectrum`), so
that every prior is a system of linear cost.
"""

import numpy as np

from .._runtime.jit import njit


@njit
def right_sides(F, K, offsets, d, v, centres, which, unit, right, sums):
    """Right sides of the systems of all tasks, of the responses and of the centres.

    `F`, `K` and `v` are those of `skpmtl._kernels.spectrum.grams`; the centre of task k is
    unit[k] times centres[which[k]]. right[k] (2, R) receives v and Z a, or Z'v and Z'Z a where
    there are more rows than features, and sums[k] (3,) v'v, and in that case v'Z a and a'Z'Z a.
    """
    a = np.empty(d)
    for k in range(K.shape[0]):
        lo, n = offsets[k], offsets[k + 1] - offsets[k]
        r, y, g, centre = min(n, d), right[k, 0], right[k, 1], centres[which[k]]
        for j in range(d):
            a[j] = unit[k] * centre[j]
        square, cross, norm = 0.0, 0.0, 0.0
        for i in range(lo, lo + n):
            square += v[i] * v[i]
        for i in range(r):
            y[i] = K[k, i, r]
            g[i] = 0.0
        for j in range(d):  # column by column: rows of F or of K are read in their order
            x, s = F[k, j] if n <= d else K[k, j], a[j]
            for i in range(r):
                g[i] += s * x[i]
        if n > d:
            for i in range(r):
                cross += y[i] * a[i]
            for i in range(r):
                norm += g[i] * a[i]
        sums[k, 0], sums[k, 1], sums[k, 2] = square, cross, norm


@njit
def averages(
    F, K, offsets, d, T, right, sums, dof, floor, rho, reach, prior, share, centres, which, unit, W,
    evidence,
):  # fmt: skip
    """W[k] = average of the modes of task k under its priors, by prior weight and evidence.

    T = (diag, off) and the reflections in `K` come from `skpmtl._kernels.spectrum.tridiagonal`,
    the rest from `right_sides`. Of prior s of task k rho[k, s] is the precision, reach[k, s] what
    its centre is multiplied by, and prior[k, s] the logarithm of its weight; dof[k] is n', and Q
    is floor[k] at least. evidence[k] receives the logarithm of the weighted sum of the evidence. A
    task without evidence, whose dof is 0 or less, gets share[k] times its centre.
    """
    S, R = rho.shape[1], right.shape[2]
    x, weight = np.empty((S, R)), np.empty(S)
    pivots, z, mean = np.empty(R), np.empty(R), np.empty(R)
    for k in range(K.shape[0]):
        n, w, centre = offsets[k + 1] - offsets[k], W[k], centres[which[k]]
        if dof[k] <= 0:
            for j in range(d):
                w[j] = share[k] * unit[k] * centre[j]
            evidence[k] = 0.0
            continue
        r, y, g, A = min(n, d), right[k, 0], right[k, 1], K[k]
        diag, off = T[0, k], T[1, k]
        for j in range(r - 1, 0, -1):
            s, t = 0.0, 0.0
            for i in range(j):
                s += A[j, i] * y[i]
            for i in range(j):
                t += A[j, i] * g[i]
            for i in range(j):
                y[i] -= s * A[j, i]
                g[i] -= t * A[j, i]
        top = -np.inf
        for s in range(S):
            shift, c, q = rho[k, s], reach[k, s], x[s]
            before, energy, size, part = 1.0, 0.0, 0.0, 0.0
            for j in range(r):
                ratio = off[j - 1] / before if j else 0.0
                # A Schur complement of shift I plus something positive semi-definite.
                pivot = max(diag[j] + shift - (ratio * off[j - 1] if j else 0.0), shift)
                part = y[j] - c * g[j] - ratio * part
                z[j], pivots[j], before = part, pivot, pivot
            for j in range(r):
                size += np.log(pivots[j] / shift)
            for j in range(r):
                energy += z[j] * z[j] / pivots[j]
            part = 0.0
            for j in range(r - 1, -1, -1):
                part = (z[j] - (off[j] * part if j < r - 1 else 0.0)) / pivots[j]
                q[j] = part
            if n <= d:
                energy *= shift
            else:
                energy = sums[k, 0] - c * (2.0 * sums[k, 1] - c * sums[k, 2]) - energy
            energy = max(energy, floor[k])
            weight[s] = prior[k, s] - 0.5 * (dof[k] * np.log(energy) + size)
            top = max(top, weight[s])
        total, part = 0.0, 0.0
        for s in range(S):
            weight[s] = np.exp(weight[s] - top)
        for s in range(S):
            total += weight[s]
        for s in range(S):
            part += weight[s] * reach[k, s]
        part *= unit[k] / total
        evidence[k] = top + np.log(total)
        for j in range(r):
            mean[j] = 0.0
        for s in range(S):
            for j in range(r):
                mean[j] += weight[s] / total * x[s, j]
        for j in range(1, r):
            t = 0.0
            for i in range(j):
                t += A[j, i] * mean[i]
            for i in range(j):
                mean[i] -= t * A[j, i]
        for j in range(d):
            t = 0.0
            if n <= d:
                for i in range(r):
                    t += F[k, j, i] * mean[i]
            else:
                t = mean[j]
            w[j] = part * centre[j] + t
