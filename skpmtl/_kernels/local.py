"""What a task computes alone: its working rows, and how well each prior scale explains them.

Rows A are features times a root of the prior moment M, so that the prior of the transformed
weights c is N(0, kappa s^2 I). `weight` is 1 for squared loss; for the logistic loss rows and
responses are those of the quadratic approximation at the current scores.
"""

import numpy as np

from .._jit import njit


@njit
def rotate_rows(A, V, offsets):
    """A_k <- A_k V_k in place."""
    d = A.shape[1]
    old = np.empty(d)
    for k in range(offsets.shape[0] - 1):
        for p in range(offsets[k], offsets[k + 1]):
            for j in range(d):
                old[j] = A[p, j]
                A[p, j] = 0.0
            for i in range(d):
                a = old[i]
                for j in range(d):
                    A[p, j] += a * V[k, i, j]


@njit
def scale_criteria(
    A, y, weight, response, label, offsets, centre, e, q, square, logistic, n_folds, fold_rows,
    snr, out, level,
):  # fmt: skip
    """out[k, s]: -2 log evidence and cross-validated deviance of task k at snr[s], averaged.

    A holds centred, weighted rows in the eigenbasis of their Gram matrix (eigenvalues e[k],
    q[k] = A_k' y_k); rows are in random order. The scale is kappa = snr / level[k] with
    level[k] = sum(e[k]) / n_k, so that snr is the prior variance of a score in units of the
    noise. The noise variance is profiled for squared loss and 1 for the logistic loss, whose
    deviance is taken at the left-out score: the working `response` minus its residual.

    Folds are consecutive blocks of rows; with H the hat matrix the residuals of a block that
    was left out are exactly (I - H_bb)^-1 r_b. A task has at least `n_folds` blocks and
    blocks of at most `fold_rows` rows, which keeps the cost linear in its rows.
    """
    d = A.shape[1]
    f = np.empty(d)
    c = np.empty(d)
    B = np.empty((fold_rows, fold_rows))
    u = np.empty(fold_rows)
    for k in range(offsets.shape[0] - 1):
        lo, hi = offsets[k], offsets[k + 1]
        n = hi - lo
        total = 0.0
        for j in range(d):
            total += e[k, j]
        level[k] = total / n
        mass = 0.0
        for p in range(lo, hi):
            mass += weight[p]
        folds = min(n, max(n_folds, (n + fold_rows - 1) // fold_rows))
        dof = max(n - 1, 1) if centre else n
        tiny = 1e-9 * square[k] + 1e-300
        for s in range(snr.shape[0]):
            kappa = snr[s] / level[k] if level[k] > 0 else 0.0
            quad = square[k]
            logdet = 0.0
            for j in range(d):
                f[j] = kappa / (1.0 + kappa * e[k, j])
                c[j] = f[j] * q[k, j]
                quad -= c[j] * q[k, j]
                logdet += np.log1p(kappa * e[k, j])
            quad = max(quad, tiny)
            error = 0.0
            for b in range(folds):
                start = lo + (b * n) // folds
                size = lo + ((b + 1) * n) // folds - start
                for i in range(size):
                    x = A[start + i]
                    r = y[start + i]
                    for j in range(d):
                        r -= x[j] * c[j]
                    u[i] = r
                    for o in range(i + 1):
                        z = A[start + o]
                        h = 0.0
                        for j in range(d):
                            h += f[j] * x[j] * z[j]
                        if centre:
                            h += (weight[start + i] * weight[start + o]) ** 0.5 / mass
                        B[i, o] = -h
                    B[i, i] += 1.0
                for i in range(size):  # Cholesky factor of B and forward substitution
                    for o in range(i + 1):
                        t = B[i, o]
                        for j in range(o):
                            t -= B[i, j] * B[o, j]
                        if o < i:
                            B[i, o] = t / B[o, o]
                        else:
                            B[i, i] = max(t, 1e-14) ** 0.5
                    t = u[i]
                    for j in range(i):
                        t -= B[i, j] * u[j]
                    u[i] = t / B[i, i]
                for i in range(size - 1, -1, -1):
                    t = u[i]
                    for j in range(i + 1, size):
                        t -= B[j, i] * u[j]
                    u[i] = t / B[i, i]
                for i in range(size):
                    p = start + i
                    if logistic:
                        t = label[p] * (response[p] - u[i] / weight[p] ** 0.5)
                        error += 2.0 * (np.log1p(np.exp(-t)) if t > 0 else np.log1p(np.exp(t)) - t)
                    else:
                        error += u[i] * u[i]
            if logistic:
                out[k, s] = 0.5 * (quad + logdet) + 0.5 * error
            else:
                evidence = dof * np.log(quad / dof) + logdet
                out[k, s] = 0.5 * evidence + 0.5 * n * np.log(max(error, tiny) / n)
