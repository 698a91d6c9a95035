"""Evidence-weighted averages of a task's models over priors around its centre.

Squared loss. A prior of precision rho / s^2 around c a has, for n rows Z and responses v, both
less their means where there is an intercept, and the residual t = v - c Z a,

    mode  c a + Z' (Z Z' + rho I)^-1 t  =  c a + (Z' Z + rho I)^-1 Z' t
    Q     = rho t' (Z Z' + rho I)^-1 t  =  t't - t' Z (Z' Z + rho I)^-1 Z' t
    -log evidence = n' / 2 log Q + 1 / 2 log det (I + Z Z' / rho),

with the noise variance s^2 integrated out under a scale-free prior, and n' rows less one for an
intercept. The smaller of Z Z' and Z' Z is tridiagonal already (`skpmtl._kernels.grams`), so
that every prior is a system of linear cost.
"""

import numpy as np

from .._runtime.jit import njit
from .._runtime.registers import greater, load, logarithm, same, splat, store, total
from .losses import LOGISTIC

# centres, which and unit where no task has one: None would have the loop compiled once more
NO_CENTRES = np.empty((0, 0)), np.empty(0, dtype=np.int64), np.empty(0)


@njit
def right_sides(F, K, offsets, d, v, centres, which, unit, right, sums):
    """Right sides of the systems of all tasks, of the responses and of the centres.

    `F`, `K` and `v` are those of `skpmtl._kernels.grams.grams`; the centre of task k is
    unit[k] times centres[which[k]]. right[k] (2, R) receives v and Z a, or Z'v and Z'Z a where
    there are more rows than features, and sums[k] (3,) v'v, and in that case v'Z a and a'Z'Z a.
    """
    for k in range(K.shape[0]):
        lo, n = offsets[k], offsets[k + 1] - offsets[k]
        r, y, g, a = min(n, d), right[k, 0], right[k, 1], centres[which[k]]
        square, cross, norm = 0.0, 0.0, 0.0
        for i in range(lo, lo + n):
            square += v[i] * v[i]
        for i in range(r):
            y[i] = K[k, i, r]
            g[i] = 0.0
        for j in range(d):  # column by column: rows of F or of K are read in their order
            x, s = F[k, j] if n <= d else K[k, j], unit[k] * a[j]
            for i in range(r):
                g[i] += s * x[i]
        for i in range(r if n > d else 0):
            s = unit[k] * a[i]
            cross += y[i] * s
            norm += g[i] * s
        sums[k, 0], sums[k, 1], sums[k, 2] = square, cross, norm


@njit
def averages(
    F,
    K,
    offsets,
    d,
    T,
    right,
    sums,
    dof,
    floor,
    rho,
    reach,
    prior,
    share,
    centres,
    which,
    unit,
    x,
    pivots,
    z,
    weight,
    W,
    evidence,
    energies,
    trust,
):
    """W[k] = average of the modes of task k under its priors, by prior weight and evidence.

    T = (diag, off) and the reflections in `K` come from `skpmtl._kernels.grams.tridiagonal`,
    the rest from `right_sides`. Of prior s of task k rho[k, s] is the precision, reach[k, s] what
    its centre is multiplied by, and prior[k, s] the logarithm of its weight; dof[k] is n', and Q
    is floor[k] at least. Priors are a multiple of eight, which are processed side
    by side. evidence[k] receives the logarithm of the weighted sum of the evidence,
    which counts to the power `trust`, and energies[k] the average of Q. A task without evidence,
    whose dof is 0 or less, gets share[k] times its centre. Where right (m, 1, R) has no second row
    the centres are 0, and `NO_CENTRES` are given. With F (0, 0, 0) W (m, R) receives what F would
    be multiplied by. Entries from min(n, d) on of `right` are 0. Scratch for S priors: x (S / 8, R,
    8), pivots (R, 8), z (R,) and weight (2, S).
    """
    S, sides, weight, Q, last = rho.shape[1], right.shape[1], weight[0], weight[1], x.shape[1]
    one = splat(1.0)
    for k in range(K.shape[0]):
        n, A, diag, off, y = offsets[k + 1] - offsets[k], K[k], T[0, k], T[1, k], right[k]
        r = min(n, d)
        for c in range(sides):
            for j in range(r - 1, 0, -1):
                t = splat(0.0)
                for o in range(0, j, 8):
                    t = t + load(A, j, o) * load(y, c, o)
                s = total(t)
                for o in range(0, j, 8):
                    store(y, c, o, load(y, c, o) - s * load(A, j, o))
        whole, low = 0.0, np.inf
        for j in range(r):
            whole += diag[j]
        for s in range(S):
            low = min(low, rho[k, s])
        # A determinant is (1 + trace / (r rho))^r at most, and no pivot is less than 1: where that
        # is a number, one logarithm does for all pivots.
        every = 1 << 30 if r * np.log(1.0 + whole / (max(r, 1) * low)) < 650.0 else 16
        for s in range(0, S, 8):
            shift, c, q = load(rho, k, s), load(reach, k, s), x[s // 8]
            scale, product, link = one / shift, one, 0.0
            inverse, size, energy, part = splat(0.0), splat(0.0), splat(0.0), splat(0.0)
            for j in range(r):
                ratio = link * inverse
                # A Schur complement of shift I plus something positive semi-definite.
                pivot = greater(shift + diag[j] - link * ratio, shift)
                inverse, link = one / pivot, off[j]
                part = (same(y, 0, j) - c * y[sides - 1, j] if sides > 1 else same(y, 0, j)) - (
                    ratio * part
                )
                energy, product = energy + part * part * inverse, product * (pivot * scale)
                store(q, j, 0, part)
                store(pivots, j, 0, inverse)
                if (j + 1) % every == 0 or j == r - 1:
                    size, product = size + logarithm(product), one
            part = splat(0.0)
            for j in range(r - 1, -1, -1):
                part = load(pivots, j, 0) * (load(q, j, 0) - off[j] * part)
                store(q, j, 0, part)
            if n <= d:
                energy = shift * energy
            elif sides == 1:
                energy = sums[k, 0] - energy
            else:
                energy = sums[k, 0] - c * (2.0 * sums[k, 1] - c * sums[k, 2]) - energy
            energy = greater(energy, splat(floor[k]))
            store(Q, s, energy)
            energy = splat(dof[k]) * logarithm(energy) + size
            store(weight, s, load(prior, k, s) - splat(0.5 * trust) * energy)
        top, whole, part = -np.inf, 0.0, 0.0
        for s in range(S):
            top = max(top, weight[s])
        for s in range(S):
            weight[s] = np.exp(weight[s] - top)
        for s in range(S):
            whole += weight[s]
            part += weight[s] * reach[k, s]
        evidence[k], energies[k] = top + np.log(whole), 0.0
        part /= whole
        for s in range(S):
            weight[s] /= whole
            energies[k] += weight[s] * Q[s]
        for j in range(last):
            t = splat(0.0)
            for s in range(0, S if j < r else 0, 8):
                t = t + load(weight, s) * load(x, s // 8, j, 0)
            z[j] = total(t)
        if dof[k] <= 0:
            evidence[k], part = 0.0, share[k]
            for j in range(r):
                z[j] = 0.0
        for j in range(1, r):
            t = splat(0.0)
            for o in range(0, j, 8):
                t = t + load(A, j, o) * load(z, o)
            s = total(t)
            for o in range(0, j, 8):
                store(z, o, load(z, o) - s * load(A, j, o))
        for j in range(W.shape[1]):
            if n > d or F.shape[0] == 0:
                W[k, j] = z[j]
            else:
                t = splat(0.0)
                for o in range(0, r, 8):
                    t = t + load(F, k, j, o) * load(z, o)
                W[k, j] = total(t)
        for j in range(d if sides > 1 else 0):
            W[k, j] += part * unit[k] * centres[which[k], j]


@njit
def _first_levels(y, lo, n, kind, held, level, weights):
    """Scores of the frequencies of the classes; 0 without intercepts."""
    C = level.shape[0]
    for c in range(C):
        level[c] = 0.0
    if held > 0.0 and kind == LOGISTIC:
        positive, rest = 0.0, 0.0
        for i in range(n):
            count = weights[lo + i]
            positive += count if y[lo + i] > 0 else 0.0
            rest += 0.0 if y[lo + i] > 0 else count
        level[0] = np.log((positive + 0.5 * held) / (rest + 0.5 * held))
    elif held > 0.0:
        for i in range(n):
            level[int(y[lo + i])] += weights[lo + i]
        middle = 0.0
        for c in range(C):
            level[c] = np.log(level[c] + held / C)
        for c in range(C):
            middle += level[c] / C
        for c in range(C):
            level[c] -= middle
