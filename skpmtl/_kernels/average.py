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
    F, K, offsets, d, T, right, sums, dof, floor, rho, reach, prior, share, centres, which, unit, x,
    weight, W, evidence, trust,
):  # fmt: skip
    """W[k] = average of the modes of task k under its priors, by prior weight and evidence.

    T = (diag, off) and the reflections in `K` come from `skpmtl._kernels.spectrum.tridiagonal`,
    the rest from `right_sides`. Of prior s of task k rho[k, s] is the precision, reach[k, s] what
    its centre is multiplied by, and prior[k, s] the logarithm of its weight; dof[k] is n', and Q
    is floor[k] at least. evidence[k] receives the logarithm of the weighted sum of the evidence,
    which counts to the power `trust`. A task without evidence, whose dof is 0 or less, gets
    share[k] times its centre. Scratch for S priors: x (S + 2, R) and weight (S,).
    """
    S = weight.shape[0]
    z, pivots = x[S], x[S + 1]
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
            weight[s] = prior[k, s] - trust * 0.5 * (dof[k] * np.log(energy) + size)
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
            z[j] = 0.0
        for s in range(S):
            for j in range(r):
                z[j] += weight[s] / total * x[s, j]
        for j in range(1, r):
            t = 0.0
            for i in range(j):
                t += A[j, i] * z[i]
            for i in range(j):
                z[i] -= t * A[j, i]
        for j in range(d):
            t = 0.0
            if n <= d:
                for i in range(r):
                    t += F[k, j, i] * z[i]
            else:
                t = z[j]
            w[j] = part * centre[j] + t


@njit
def laplace_evidence(
    X, data, indices, indptr, rows, offsets, y, pick, kind, fit_intercept, centres, which, share,
    rho, held, columns, ends, D, b, dof, longest, out,
):  # fmt: skip
    """out[a, s] = log evidence of prior s for task pick[a], whose mode is known, up to a constant.

    The mode is share[a, s] times the centre plus D[s], with the intercepts b[s, a]; rows and
    models as in `skpmtl._kernels.steps`. For log-losses this is

        - loss - rho / 2 ||D||^2 - 1 / 2 log det (I + X' V X / rho).

    Of two classes v_i = tanh(z_i / 2) / (2 z_i), the curvature of the quadratic bound of Jaakkola
    and Jordan, "Bayesian parameter estimation via variational methods", 2000: that of the loss
    itself (Laplace's approximation) vanishes where rows are separable, and takes weak priors for
    likely. Of C > 2 classes the curvature is taken to have the blocks of the classes alone, with
    v_ic = p_ic (1 - p_ic), and the determinant to the power (C - 1) / C: what all classes have in
    common does not change the probabilities. For squared loss dof[a] / 2 times the logarithm of
    twice the first two terms takes their place. held[a] is the pull of the intercepts to zero. Of
    tasks with more than `longest` rows, where these are CSR, the determinant is Hadamard's bound
    by columns.
    """
    C = b.shape[2]
    n_features = centres.shape[1] // C
    most, widest = 1, 1
    for a in range(pick.shape[0]):
        n = offsets[pick[a] + 1] - offsets[pick[a]]
        side = n if data is not None and n <= longest else min(n, n_features)
        most = max(most, side)
        widest = max(widest, n)
    place = np.full(n_features if data is not None else 1, -1, dtype=np.int64)
    line, mean = np.zeros(n_features), np.zeros(n_features)
    base, z, v, m = np.empty((widest, C)), np.empty(C), np.empty((C, widest)), np.empty(widest)
    K, A = np.empty((most, most)), np.empty((most, most))
    for a in range(pick.shape[0]):
        k = pick[a]
        lo, n = offsets[k], offsets[k + 1] - offsets[k]
        if n == 0:
            out[a] = 0.0
            continue
        centre, first, size = centres[which[k]], ends[a], ends[a + 1] - ends[a]
        width = size // C
        by_row = n <= longest if data is not None else n <= n_features
        if data is not None:
            for j in range(width):
                place[columns[first // C + j]] = j
        for j in range(width):
            mean[j] = 0.0
        for i in range(n):
            r = lo + i if rows is None else rows[lo + i]
            for c in range(C):
                base[i, c] = 0.0
            if data is not None:
                for q in range(indptr[r], indptr[r + 1]):
                    for c in range(C):
                        base[i, c] += data[q] * centre[indices[q] * C + c]
            else:
                x = X[r]
                for c in range(C):
                    t = 0.0
                    for j in range(width):
                        t += x[j] * centre[c * width + j]
                    base[i, c] = t
                if fit_intercept:
                    for j in range(width):
                        mean[j] += x[j] / n
        if by_row:  # products of rows, less their mean
            for i in range(n):
                r = lo + i if rows is None else rows[lo + i]
                if data is not None:
                    for q in range(indptr[r], indptr[r + 1]):
                        line[place[indices[q]]] += data[q]
                else:
                    for j in range(width):
                        line[j] = X[r, j] - mean[j]
                for o in range(i + 1):
                    r = lo + o if rows is None else rows[lo + o]
                    t = 0.0
                    if data is not None:
                        for q in range(indptr[r], indptr[r + 1]):
                            t += data[q] * line[place[indices[q]]]
                    else:
                        for j in range(width):
                            t += line[j] * (X[r, j] - mean[j])
                    K[i, o] = t
                for j in range(width):
                    line[j] = 0.0
            for i in range(n):
                for o in range(i):
                    K[o, i] = K[i, o]
        for s in range(rho.shape[1]):
            W, bend = D[s, first : first + size], rho[a, s]
            loss, square = 0.0, 0.0
            for i in range(n):
                r = lo + i if rows is None else rows[lo + i]
                for c in range(C):
                    z[c] = b[s, a, c] + share[a, s] * base[i, c]
                if data is not None:
                    for q in range(indptr[r], indptr[r + 1]):
                        at = place[indices[q]] * C
                        for c in range(C):
                            z[c] += data[q] * W[at + c]
                else:
                    for c in range(C):
                        t = 0.0
                        for j in range(width):
                            t += X[r, j] * W[c * width + j]
                        z[c] += t
                if kind == 0:
                    loss += 0.5 * (z[0] - y[lo + i]) ** 2
                    v[0, i] = 1.0
                elif kind == 1:
                    t = y[lo + i] * z[0]
                    e = np.exp(-abs(t))
                    loss += np.log1p(e) + max(-t, 0.0)
                    t = abs(t)
                    v[0, i] = 0.5 * (1.0 - e) / ((1.0 + e) * t) if t > 1e-6 else 0.25
                else:
                    top, t = z[0], 0.0
                    for c in range(1, C):
                        top = max(top, z[c])
                    right = z[int(y[lo + i])] - top
                    for c in range(C):
                        z[c] = np.exp(z[c] - top)
                    for c in range(C):
                        t += z[c]
                    for c in range(C):
                        v[c, i] = z[c] / t * (1.0 - z[c] / t)
                    loss += np.log(t) - right
            for j in range(size):
                square += W[j] * W[j]
            loss += 0.5 * bend * square
            square = 0.0
            for c in range(C):
                square += b[s, a, c] ** 2
            loss += 0.5 * held[a] * square
            det = 0.0
            for c in range(C):
                u = v[c]
                mass, middle, side = 0.0, 0.0, n if by_row else width
                for i in range(n):
                    mass += u[i]
                mass = max(mass, 1e-300)
                if by_row:
                    for i in range(n):
                        t = 0.0
                        for o in range(n if fit_intercept else 0):
                            t += u[o] * K[i, o]
                        m[i] = t / mass
                    for i in range(n):
                        middle += u[i] * m[i] / mass
                    for i in range(n):
                        for o in range(i + 1):
                            t = K[i, o] - m[i] - m[o] + middle
                            A[i, o] = (u[i] * u[o]) ** 0.5 * t / bend
                elif data is not None:  # columns alone
                    for j in range(width):
                        line[j] = 0.0
                    for i in range(n):
                        r = lo + i if rows is None else rows[lo + i]
                        for q in range(indptr[r], indptr[r + 1]):
                            line[place[indices[q]]] += u[i] * data[q] * data[q]
                    for j in range(width):
                        det += np.log1p(line[j] / bend)
                    for j in range(width):
                        line[j] = 0.0
                    side = 0
                else:
                    for j in range(width):
                        line[j] = 0.0
                        for o in range(j + 1):
                            A[j, o] = 0.0
                    for i in range(n):
                        x, t = X[lo + i if rows is None else rows[lo + i]], u[i] / mass
                        for j in range(width if fit_intercept else 0):
                            line[j] += t * (x[j] - mean[j])
                    for i in range(n):
                        x, t = X[lo + i if rows is None else rows[lo + i]], u[i] / bend
                        for j in range(width):
                            e = t * (x[j] - mean[j] - line[j])
                            for o in range(j + 1):
                                A[j, o] += e * (x[o] - mean[o] - line[o])
                    for j in range(width):
                        line[j] = 0.0
                for i in range(side):  # pivots of I + A by Cholesky's method, row by row
                    for o in range(i):
                        t = A[i, o]
                        for q in range(o):
                            t -= A[i, q] * A[o, q]
                        A[i, o] = t / A[o, o]
                    t = 1.0 + A[i, i]
                    for q in range(i):
                        t -= A[i, q] * A[i, q]
                    t = max(t, 1.0)
                    det += np.log(t)
                    A[i, i] = t**0.5
            if kind == 0:
                loss = 0.5 * dof[a] * np.log(2.0 * loss + 1e-300)
            out[a, s] = -loss - 0.5 * (1.0 if C == 1 else (C - 1) / C) * det
        if data is not None:
            for j in range(width):
                place[columns[first // C + j]] = -1
