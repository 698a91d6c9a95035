"""Log evidence and modes of a task's model about each of many centres, under the same prior.

With squared loss a centre changes the response only, so that the tridiagonal form of a task's rows
(`skpmtl._kernels.grams`), the pivots of every scale and their determinants are made once for all
centres. Centres are the inner loop.
"""

import numpy as np

from .._runtime.jit import njit


@njit
def _reflect(v, Y, j, total):
    """The first j rows of Y less v v' times them; total (N,) is scratch."""
    for c in range(Y.shape[1]):
        total[c] = 0.0
    for i in range(j):
        for c in range(Y.shape[1]):
            total[c] += v[i] * Y[i, c]
    for i in range(j):
        for c in range(Y.shape[1]):
            Y[i, c] -= v[i] * total[c]


@njit
def about_centres(
    F,
    K,
    offsets,
    d,
    T,
    V,
    dof,
    precision,
    rho,
    prior,
    Y,
    Z,
    X,
    pivots,
    logs,
    line,
    evidence,
    W,
    energies,
    modes,
):
    """evidence[k, c, p] = log evidence of task k about centre c, averaged over scales by prior p.

    `F`, `K` and `T` are as of `skpmtl._kernels.average.averages`; V (n_rows, N) has the residuals
    of the rows about N centres, less their means where there is an intercept and times the roots
    of their weights. precision (m,) is one over the variance of the noise of a row of weight 1,
    and 0 where it is integrated out. rho (m, S) are precisions, prior (P, S) logarithms of weights,
    dof (m,) the rows less one for an intercept. With `modes`, W[k, c] receives the mode less its
    centre, averaged over the scales by the first prior and evidence, and energies[k, c] the average
    of the squared errors plus penalties. A task without evidence, of dof 0 or less, has 0.

    Scratch: Y and Z (R, N), X (S, R, N), where `modes` is false (0, R, N); pivots (2, R), logs and
    squares of the errors (2, S, N), line (3, N).
    """
    S, P, N = rho.shape[1], prior.shape[0], V.shape[1]
    ratio, piv, total, square, top = pivots[0], pivots[1], line[0], line[1], line[2]
    for k in range(K.shape[0]):
        lo = offsets[k]
        n = offsets[k + 1] - lo
        r, A, f, diag, off = min(n, d), K[k], F[k], T[0, k], T[1, k]
        for c in range(N):
            square[c] = 0.0
        for i in range(lo, lo + n):
            for c in range(N):
                square[c] += V[i, c] * V[i, c]
        for i in range(r):
            for c in range(N):
                Y[i, c] = V[lo + i, c] if n <= d else 0.0
        if n > d:
            for i in range(n):
                for j in range(d):
                    t = f[i, j]
                    for c in range(N):
                        Y[j, c] += t * V[lo + i, c]
        for j in range(r - 1, 0, -1):
            _reflect(A[j], Y, j, total)
        for s in range(S):
            shift, size, before = rho[k, s], 0.0, 1.0
            for j in range(r):
                side = off[j - 1] if j else 0.0
                ratio[j] = side / before
                before = max(diag[j] + shift - ratio[j] * side, shift)
                piv[j] = before
            for j in range(r):
                size += np.log(piv[j] / shift)
            for c in range(N):
                total[c] = 0.0
            for j in range(r):
                t, inverse = ratio[j], 1.0 / piv[j]
                for c in range(N):
                    z = Y[j, c] - (t * Z[j - 1, c] if j else 0.0)
                    Z[j, c] = z
                    total[c] += z * z * inverse
            for c in range(N):
                energy = shift * total[c] if n <= d else square[c] - total[c]
                energy = max(energy, 1e-9 * square[c] + 1e-300)
                logs[1, s, c] = energy
                if precision[k] > 0.0:
                    logs[0, s, c] = -0.5 * (precision[k] * energy + size)
                else:
                    logs[0, s, c] = -0.5 * (dof[k] * np.log(energy) + size)
            if modes:
                x = X[s]
                for j in range(r - 1, -1, -1):
                    t, inverse = off[j], 1.0 / piv[j]
                    for c in range(N):
                        x[j, c] = (Z[j, c] - (t * x[j + 1, c] if j < r - 1 else 0.0)) * inverse
        for p in range(P - 1, -1, -1):  # the first one last: its weights stay in Z and logs
            for c in range(N):
                top[c] = -np.inf
            for s in range(S):
                for c in range(N):
                    top[c] = max(top[c], prior[p, s] + logs[0, s, c])
            for c in range(N):
                total[c] = 0.0
            for s in range(S):
                for c in range(N):
                    total[c] += np.exp(prior[p, s] + logs[0, s, c] - top[c])
            for c in range(N):
                evidence[k, c, p] = top[c] + np.log(total[c]) if dof[k] > 0 else 0.0
        if not modes:
            continue
        for j in range(r):
            for c in range(N):
                Y[j, c] = 0.0
        for c in range(N):
            energies[k, c] = 0.0
        for s in range(S):
            for c in range(N):
                square[c] = np.exp(prior[0, s] + logs[0, s, c] - top[c]) / total[c]
                energies[k, c] += square[c] * logs[1, s, c]
            for j in range(r):
                for c in range(N):
                    Y[j, c] += square[c] * X[s, j, c]
        for j in range(1, r):
            _reflect(A[j], Y, j, total)
        for c in range(N):
            w = W[k, c]
            for j in range(d):
                t = 0.0
                if n <= d:
                    for i in range(r):
                        t += f[j, i] * Y[i, c]
                else:
                    t = Y[j, c]
                w[j] = t if dof[k] > 0 else 0.0
