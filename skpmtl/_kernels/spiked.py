"""Log evidence of priors that are a few directions over an even floor, at the cost of the few.

A prior N(0, kappa s^2 (f I + V V')) with V (d, c) has, in the coordinates in which the smaller of
Z Z' and Z' Z of a task is the tridiagonal T (`skpmtl._kernels.spectrum`), a matrix that is
H = I + kappa f T and c directions more. Determinant and quadratic form follow by Woodbury's
formula, and what does not depend on the prior is made once for all of them.
"""

import numpy as np

from .._runtime.jit import njit


@njit
def spiked_evidences(
    F, K, offsets, d, T, right, squares, dof, floor, own, basis, mix, ends, floors, snr, prior, X,
    Y, C, S, line, logs, out,
):  # fmt: skip
    """out[k, j] = log evidence of task k under prior j, averaged over scales; see `averages`.

    `F`, `K`, `T`, right (m, R), squares, dof and floor are as of `skpmtl._kernels.average.averages`
    without centres, and own (m,) the numbers of rows. Directions of prior j are
    basis (d, B) @ mix[:, ends[j] : ends[j + 1]], its floor is floors[j]; scales snr (S,) have the
    logarithms of prior weights `prior`. Scratch for c directions at most: X (B, R), Y and C (2 c +
    1, R), S (c, c + 1), line (2, R), logs (S,).
    """
    B = basis.shape[1]
    pivots, ratio = line[0], line[1]
    for k in range(K.shape[0]):
        n = offsets[k + 1] - offsets[k]
        A, diag, off, y, f = K[k], T[0, k], T[1, k], right[k], F[k]
        r = min(n, d)
        for b in range(B + 1):
            x = X[b] if b < B else y
            if b < B:
                for i in range(r):
                    x[i] = basis[i, b] if n > d else 0.0
                if n <= d:
                    for j in range(d):
                        t, z = basis[j, b], f[j]
                        for i in range(r):
                            x[i] += t * z[i]
            for j in range(r - 1, 0, -1):
                t = 0.0
                for i in range(j):
                    t += A[j, i] * x[i]
                for i in range(j):
                    x[i] -= t * A[j, i]
        whole = 0.0
        for i in range(r):
            whole += diag[i]
        for p in range(floors.shape[0]):
            first, c = ends[p], ends[p + 1] - ends[p]
            trace = floors[p] * whole
            for a in range(c):
                x, w = Y[a], Y[c + a]
                for i in range(r):
                    x[i] = 0.0
                for b in range(B):
                    t, z = mix[b, first + a], X[b]
                    for i in range(r):
                        x[i] += t * z[i]
                for i in range(r):
                    w[i] = x[i]
                if n > d:
                    for i in range(r):
                        w[i] = diag[i] * x[i]
                    for i in range(1, r):
                        w[i] += off[i - 1] * x[i - 1]
                        w[i - 1] += off[i - 1] * x[i]
                for i in range(r):
                    trace += w[i] * x[i]
            top = -np.inf
            for s in range(snr.shape[0]):
                kappa = snr[s] * own[k] / max(trace, 1e-300)
                shift, size, before = kappa * floors[p], 0.0, 1.0
                for i in range(r):
                    side = shift * off[i - 1] if i else 0.0
                    ratio[i] = side / before
                    before = max(1.0 + shift * diag[i] - ratio[i] * side, 1.0)
                    pivots[i] = before
                for i in range(r):
                    size += np.log(pivots[i])
                h = C[c]
                for i in range(r):
                    h[i] = y[i]
                if n > d:
                    for i in range(r):
                        h[i] = shift * y[i]
                    for a in range(c):
                        x, t = Y[a], 0.0
                        for i in range(r):
                            t += x[i] * y[i]
                        for i in range(r):
                            h[i] += kappa * t * x[i]
                for a in range(c + 1):
                    z = C[a]
                    if a < c:
                        x = Y[a]
                        for i in range(r):
                            z[i] = x[i]
                    for i in range(1, r):
                        z[i] -= ratio[i] * z[i - 1]
                    for i in range(r):
                        z[i] /= pivots[i]
                    for i in range(r - 2, -1, -1):
                        z[i] -= ratio[i + 1] * z[i + 1]
                energy = 0.0
                for i in range(r):
                    energy += y[i] * h[i]
                for a in range(c):
                    w = Y[c + a]
                    for b in range(a + 1):
                        t, z = 0.0, C[b]
                        for i in range(r):
                            t += w[i] * z[i]
                        S[a, b] = kappa * t
                    S[a, a] += 1.0
                    t = 0.0
                    for i in range(r):
                        t += w[i] * h[i]
                    S[a, c] = t
                for a in range(c):  # Cholesky factor, and the first half of the solve
                    for b in range(a):
                        t = S[a, b]
                        for q in range(b):
                            t -= S[a, q] * S[b, q]
                        S[a, b] = t / S[b, b]
                    t = S[a, a]
                    for q in range(a):
                        t -= S[a, q] * S[a, q]
                    S[a, a] = max(t, 1.0) ** 0.5
                    size += 2.0 * np.log(S[a, a])
                    t = S[a, c]
                    for q in range(a):
                        t -= S[a, q] * S[q, c]
                    S[a, c] = t / S[a, a]
                if n <= d:
                    for a in range(c):
                        energy -= kappa * S[a, c] * S[a, c]
                else:
                    for a in range(c - 1, -1, -1):
                        t = S[a, c]
                        for q in range(a + 1, c):
                            t -= S[q, a] * S[q, c]
                        S[a, c] = t / S[a, a]
                    for a in range(c):
                        t, z = 0.0, C[a]
                        for i in range(r):
                            t += z[i] * y[i]
                        energy -= kappa * S[a, c] * t
                    energy = squares[k] - energy
                energy = max(energy, floor[k])
                logs[s] = prior[s] - 0.5 * (dof[k] * np.log(energy) + size)
                top = max(top, logs[s])
            mass = 0.0
            for s in range(snr.shape[0]):
                mass += np.exp(logs[s] - top)
            out[k, p] = top + np.log(mass) if dof[k] > 0 else 0.0
