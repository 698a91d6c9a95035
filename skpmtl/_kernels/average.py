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
from .linalg import mass_of
from .losses import LOGISTIC, SQUARED

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
def class_averages(
    F,
    K,
    Z,
    offsets,
    d,
    T,
    y,
    kind,
    bend,
    times,
    held,
    rho,
    reach,
    prior,
    n_steps,
    tol,
    ample,
    centres,
    which,
    unit,
    W,
    level,
    evidence,
    weights,
    given,
    shares,
):
    """W[k], level[k] = averages of task k's models under its priors, for log-losses.

    A model minimises, with D its distance to reach times the centre and l its scores at the mean
    of the rows, over D and l,

        f = loss + rho / 2 ||D||^2 + held loss of one more row, of scores l, that all classes share.

    The Hessian of the loss of a row in its scores is at most bend = 1/4 for two classes, and bend
    (I - 1 1' / C) with bend = 1/2 for C of them (D. Boehning, "Multinomial logistic regression
    algorithm", 1992). No model changes that, so that the tridiagonal matrix and `Z`, the rows in
    its columns (`skpmtl._kernels.grams.rotate`), serve all priors and all steps. The log
    evidence is taken to be, up to a constant,

        - f - times / 2 log det (I + h Z Z' / rho),

    with the curvature h of the loss at the model: the mean over the rows of (1 - p'p) / (C - 1),
    which of the Hessian diag(p) - p p' in the scores is the mean eigenvalue where the scores do
    not all rise alike. With `times` = C - 1 that is Laplace's approximation, had it the same
    curvature in all directions. For two classes h is 1/8 whatever the model is: there Laplace's
    curvature, which vanishes where rows are separable, takes weak priors for likely.

    Steps are accelerated, anew after they turned uphill, and end when the next one promises less
    than `tol` of f. Every prior starts from the next one's model, which has the same reach and a
    larger strength. From where weights fall and are exp(-`ample`) of the largest, smaller ones of
    that reach are left out. `held` is 0 without intercepts. W (m, C, d) and level (m, C), the
    scores l. evidence[k] receives the logarithm of the weighted sum of the evidence. Losses
    and means have the `weights` of the rows, whose roots F and Z have in them. `given` (n_rows,
    C) are added to the scores of the rows, in addition to l; without rows: 0. shares (m, S)
    receives the posterior probabilities of the priors.
    """
    S, R, C = rho.shape[1], T.shape[2], W.shape[1]
    widest = 1
    for k in range(K.shape[0]):
        widest = max(widest, offsets[k + 1] - offsets[k])
    base, z, undone = np.empty((widest, C)), np.empty((widest, C)), np.empty(widest)
    B, V, U, G = np.zeros((C, R)), np.zeros((C, R)), np.zeros((C, R)), np.zeros((C, R))
    x, levels, weight = np.empty((S, C, R)), np.empty((S, C)), np.empty(S)
    inverse, ratio, q, line = np.empty(R), np.empty(R), np.empty(R), np.empty(R)
    b, lead, slope, start = np.empty(C), np.empty(C), np.empty(C), np.empty(C)
    for k in range(K.shape[0]):
        lo = offsets[k]
        n = offsets[k + 1] - lo
        r, A, f, Q, centre = min(n, d), K[k], F[k], Z[k], centres[which[k]]
        diag, off, dual = T[0, k], T[1, k], n <= d
        for c in range(C):
            for i in range(n):
                base[i, c] = 0.0
            for j in range(d):
                a = unit[k] * centre[c * d + j]
                for i in range(n):
                    base[i, c] += a * (f[j, i] if dual else f[i, j])
        for i in range(n):
            undone[i] = weights[lo + i] ** -0.5
        if given.shape[0] == 0:
            _first_levels(y, lo, n, kind, held, start, weights)
        else:
            for c in range(C):
                start[c] = 0.0
        mass_of_rows = mass_of(lo, n, weights)
        top, falls = -np.inf, False
        for s in range(S - 1, -1, -1):
            shift, part = rho[k, s], reach[k, s]
            if falls and reach[k, s + 1] == part:
                weight[s] = -np.inf
                for c in range(C):
                    levels[s, c] = 0.0
                    for j in range(r):
                        x[s, c, j] = 0.0
                continue
            # Schur complements of shift I plus something positive semi-definite.
            before = 1.0
            for j in range(r):
                t = (off[j - 1] if j else 0.0) ** 2
                before = max(bend * diag[j] + shift - bend * bend * t / before, shift)
                inverse[j] = 1.0 / before
            ratio[0] = 0.0
            for j in range(1, r):
                ratio[j] = bend * off[j - 1] * inverse[j - 1]
            if s == S - 1 or reach[k, s + 1] != part:
                for c in range(C):
                    b[c] = start[c]
                    for j in range(r):
                        B[c, j] = 0.0
            for c in range(C):
                lead[c] = b[c]
                for j in range(r):
                    V[c, j] = B[c, j]
            pace, step, done = 1.0, 0, False
            while True:
                for c in range(C):
                    _tridiagonal_times(diag, off, V[c], r, dual, U[c])
                    for j in range(r, (r + 7) // 8 * 8):
                        U[c, j] = 0.0
                for c in range(0, C - 1, 2):  # two classes read a row together
                    for i in range(n):
                        t, u = splat(0.0), splat(0.0)
                        for o in range(0, r, 8):
                            t = t + load(Q, i, o) * load(U, c, o)
                            u = u + load(Q, i, o) * load(U, c + 1, o)
                        z[i, c] = total(t)
                        z[i, c + 1] = total(u)
                for c in range(C - C % 2, C):
                    for i in range(n):
                        t = splat(0.0)
                        for o in range(0, r, 8):
                            t = t + load(Q, i, o) * load(U, c, o)
                        z[i, c] = total(t)
                for c in range(C):
                    for i in range(n):
                        z[i, c] = (z[i, c] + part * base[i, c]) * undone[i] + lead[c]
                    if given.shape[0] > 0:
                        for i in range(n):
                            z[i, c] += given[lo + i, c]
                if done:
                    break
                step += 1
                _class_residuals(z, y, lo, n, kind)
                promise, turn = 0.0, 0.0
                for c in range(C):
                    slope[c] = 0.0
                    for i in range(n):
                        slope[c] += weights[lo + i] * z[i, c]
                    for i in range(n):
                        z[i, c] *= weights[lo + i] * undone[i]
                for c in range(0, C - 1, 2):
                    for o in range(0, r, 8):
                        t, u = splat(0.0), splat(0.0)
                        for i in range(n):
                            t = t + same(z, i, c) * load(Q, i, o)
                            u = u + same(z, i, c + 1) * load(Q, i, o)
                        store(G, c, o, t)
                        store(G, c + 1, o, u)
                for c in range(C - C % 2, C):
                    for o in range(0, r, 8):
                        t = splat(0.0)
                        for i in range(n):
                            t = t + same(z, i, c) * load(Q, i, o)
                        store(G, c, o, t)
                if held > 0.0:
                    highest, mass = 0.0, 0.0  # with one score, the first class has the score 0
                    for c in range(C):
                        highest = max(highest, lead[c])
                    for c in range(C):
                        mass += np.exp(lead[c] - highest)
                    if kind == LOGISTIC:
                        mass += np.exp(-highest)
                    for c in range(C):
                        t = np.exp(lead[c] - highest) / mass
                        g = slope[c] + held * (t - (0.5 if kind == LOGISTIC else 1.0 / C))
                        slope[c] = g / (bend * (mass_of_rows + held))
                    for c in range(C):
                        g = bend * (mass_of_rows + held) * slope[c]
                        promise += g * slope[c]
                        turn += g * (lead[c] - slope[c] - b[c])
                for c in range(C):
                    for j in range(r):
                        G[c, j] += shift * V[c, j]
                        q[j] = G[c, j]
                    for j in range(1, r):
                        q[j] -= ratio[j] * q[j - 1]
                    for j in range(r):
                        q[j] *= inverse[j]
                    for j in range(r - 2, -1, -1):
                        q[j] -= ratio[j + 1] * q[j + 1]
                    _tridiagonal_times(diag, off, G[c], r, dual, line)
                    for j in range(r):
                        promise += line[j] * q[j]
                    for j in range(r):
                        turn += line[j] * (V[c, j] - q[j] - B[c, j])
                    for j in range(r):
                        G[c, j] = V[c, j] - q[j]
                done = promise <= tol or step == n_steps
                faster = 0.5 * (1.0 + (1.0 + 4.0 * pace * pace) ** 0.5)
                beta = (pace - 1.0) / faster
                pace = faster
                if turn > 0.0:
                    pace, beta = 1.0, 0.0
                if done:
                    beta = 0.0
                for c in range(C):
                    for j in range(r):
                        V[c, j] = G[c, j] + beta * (G[c, j] - B[c, j])
                        B[c, j] = G[c, j]
                    if held > 0.0:
                        t = lead[c] - slope[c]
                        lead[c] = t + beta * (t - b[c])
                        b[c] = t
            f_value, even = held * _loss_of_all(b, kind), 0.0
            for i in range(n):
                loss, bent = _class_loss(z, i, y[lo + i], kind)
                count = weights[lo + i]
                f_value += count * loss
                even += count / mass_of_rows * bent
            for c in range(C):
                levels[s, c] = b[c]
                for j in range(r):
                    f_value += 0.5 * shift * B[c, j] * U[c, j]
                for j in range(r):
                    x[s, c, j] = B[c, j]
            size = log_det(diag, off, r, even / shift)
            weight[s] = prior[k, s] - f_value - 0.5 * times * size
            top = max(top, weight[s])
            falls = s < S - 1 and reach[k, s + 1] == part and weight[s] < weight[s + 1]
            falls = falls and weight[s] < top - ample
        mass, part = 0.0, 0.0
        for s in range(S):
            weight[s] = np.exp(weight[s] - top)
        for s in range(S):
            mass += weight[s]
        evidence[k] = top + np.log(mass)
        for s in range(S):
            shares[k, s] = weight[s] / mass
        for s in range(S):
            part += weight[s] / mass * reach[k, s]
        for c in range(C):
            level[k, c] = 0.0
            for s in range(S):
                level[k, c] += weight[s] / mass * levels[s, c]
            for j in range(r):
                q[j] = 0.0
            for s in range(S):
                for j in range(r):
                    q[j] += weight[s] / mass * x[s, c, j]
            for j in range(1, r):
                t = 0.0
                for i in range(j):
                    t += A[j, i] * q[i]
                for i in range(j):
                    q[i] -= t * A[j, i]
            for j in range(d):
                t = 0.0
                if dual:
                    for i in range(r):
                        t += f[j, i] * q[i]
                else:
                    t = q[j]
                W[k, c, j] = part * unit[k] * centre[c * d + j] + t


@njit
def _tridiagonal_times(diag, off, x, r, apply, out):
    """out = T x, or x itself."""
    for j in range(r):
        out[j] = diag[j] * x[j] if apply else x[j]
    if apply:
        for j in range(1, r):
            out[j] += off[j - 1] * x[j - 1]
        for j in range(r - 1):
            out[j] += off[j] * x[j + 1]


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


@njit
def _class_residuals(z, y, lo, n, kind):
    """z <- derivatives of the losses by the scores z."""
    C = z.shape[1]
    for i in range(n):
        if kind == LOGISTIC:
            t = y[lo + i] * z[i, 0]
            e = np.exp(-abs(t))
            z[i, 0] = -y[lo + i] * (e if t > 0 else 1.0) / (1.0 + e)
        else:
            top, mass = z[i, 0], 0.0
            for c in range(1, C):
                top = max(top, z[i, c])
            for c in range(C):
                z[i, c] = np.exp(z[i, c] - top)
            for c in range(C):
                mass += z[i, c]
            for c in range(C):
                z[i, c] /= mass
            z[i, int(y[lo + i])] -= 1.0


@njit
def _class_loss(z, i, y, kind):
    """Loss of the row of scores z[i], and the curvature that it has in the evidence."""
    if kind == LOGISTIC:
        t = y * z[i, 0]
        return np.log1p(np.exp(-abs(t))) - min(t, 0.0), 0.125
    C, top, mass, squares = z.shape[1], z[i, 0], 0.0, 0.0
    for c in range(1, C):
        top = max(top, z[i, c])
    for c in range(C):
        e = np.exp(z[i, c] - top)
        mass += e
        squares += e * e
    return np.log(mass) + top - z[i, int(y)], (1.0 - squares / mass / mass) / (C - 1)


@njit
def _loss_of_all(b, kind):
    """Loss of a row of scores b that all classes share alike."""
    C, top, mass, mean = b.shape[0], 0.0, 0.0, 0.0
    for c in range(C):
        top = max(top, b[c])
    for c in range(C):
        mass += np.exp(b[c] - top)
    if kind == LOGISTIC:
        mass += np.exp(-top)
    for c in range(C):
        mean += b[c] / (2.0 if kind == LOGISTIC else C)
    return np.log(mass) + top - mean


@njit
def csr_gram(data, indices, indptr, rows, lo, n, centre, line, K, weights):
    """K = products (n, n) of rows from `lo` on, less their weighted mean, times roots of weights.

    `line` (n_features,) is 0.
    """
    for i in range(n):
        r = rows[lo + i]
        for q in range(indptr[r], indptr[r + 1]):
            line[indices[q]] += data[q]
        for o in range(i + 1):
            u = rows[lo + o]
            t = 0.0
            for q in range(indptr[u], indptr[u + 1]):
                t += data[q] * line[indices[q]]
            K[i, o] = t
            K[o, i] = t
        for q in range(indptr[r], indptr[r + 1]):
            line[indices[q]] = 0.0
    if centre:
        means, middle, mass = np.empty(n), 0.0, mass_of(lo, n, weights)
        for i in range(n):
            t = 0.0
            for o in range(n):
                t += weights[lo + o] * K[i, o]
            means[i] = t / mass
        for i in range(n):
            middle += weights[lo + i] * means[i] / mass
        for i in range(n):
            for o in range(n):
                K[i, o] -= means[i] + means[o] - middle
    for i in range(n):
        for o in range(n):
            K[i, o] *= (weights[lo + i] * weights[lo + o]) ** 0.5


@njit
def log_det(diag, off, n, scale):
    """log det (I + scale T) of a positive semi-definite tridiagonal T (n, n)."""
    pivot, size = 1.0, 0.0
    for j in range(n):
        side = scale * off[j - 1] if j else 0.0
        pivot = max(1.0 + scale * diag[j] - side * side / pivot, 1.0)
        size += np.log(pivot)
    return size


@njit
def log_dets(diag, off, n, scale, out):
    """out[s] = `log_det` of scale[s]."""
    for s in range(scale.shape[0]):
        out[s] = log_det(diag, off, n, scale[s])


@njit
def csr_fits(
    data,
    indices,
    indptr,
    rows,
    offsets,
    y,
    pick,
    kind,
    held,
    centres,
    which,
    share,
    rho,
    columns,
    D,
    b,
    place,
    out,
    even,
    squares,
    weights,
    given,
):
    """out[a, s], even[a, s] = f and h of `class_averages` for task pick[a] at its model under
    prior s; CSR rows.

    The model is share[a, s] times the centre plus D[s] on the columns of the task, as in
    `skpmtl._kernels.steps`, with the intercepts b[s, a]; for squared loss f is loss + rho / 2
    ||D||^2 and h 1. `given` (n_rows, C) are added to the scores of the rows; without rows: 0.
    squares[ends / C + j] receives the squared length of column j of a task. Both are sums with
    `weights` of the rows.
    """
    C, (mine, ends) = b.shape[2], columns
    z, level = np.empty((1, C)), np.empty(C)
    for a in range(pick.shape[0]):
        k = pick[a]
        lo, n, centre = offsets[k], offsets[k + 1] - offsets[k], centres[which[k]]
        first, last = ends[a] // C, ends[a + 1] // C
        mass = 0.0
        for j in range(first, last):
            place[mine[j]] = j - first
            squares[j] = 0.0
        for i in range(n):
            r = rows[lo + i]
            count = weights[lo + i]
            mass += count
            for q in range(indptr[r], indptr[r + 1]):
                square = data[q] * data[q]
                squares[first + place[indices[q]]] += count * square
        for s in range(rho.shape[1]):
            f, square, curvature = 0.0, 0.0, 0.0
            for c in range(C):
                level[c] = 0.0
            for i in range(n):
                r = rows[lo + i]
                for c in range(C):
                    z[0, c] = b[s, a, c]
                for q in range(indptr[r], indptr[r + 1]):
                    at, x, g = ends[a] + place[indices[q]] * C, data[q], indices[q] * C
                    for c in range(C):
                        z[0, c] += x * (D[s, at + c] + share[a, s] * centre[g + c])
                count = weights[lo + i]
                for c in range(C):
                    level[c] += count / mass * z[0, c]
                if given.shape[0] > 0:
                    for c in range(C):
                        z[0, c] += given[lo + i, c]
                if kind == SQUARED:
                    loss, bent = 0.5 * (z[0, 0] - y[lo + i]) ** 2, 1.0
                else:
                    loss, bent = _class_loss(z, 0, y[lo + i], kind)
                f += count * loss
                curvature += count / mass * bent
            for j in range(ends[a], ends[a + 1]):
                square += D[s, j] * D[s, j]
            f += 0.5 * rho[a, s] * square
            if held > 0.0:
                f += held * _loss_of_all(level, kind)
            out[a, s], even[a, s] = f, curvature
        for j in range(first, last):
            place[mine[j]] = -1
