"""Fine-tuning of a task: how well each prior scale explains it, and its model."""

import numpy as np

from .._jit import njit
from .rows import residuals


@njit
def evidence(values, products, squares, sizes, kind, snr, out, level):
    """out[k, s] = -2 log evidence of task k at prior variance snr[s] / level[k], up to a constant.

    Parameters
    ----------
    values : (m, r)
        Eigenvalues of A_k' A_k.
    products : (m, n_outputs, r)
        A_k' response in the eigenbasis.
    squares : (m,)
        Sum of the squared responses.
    sizes : (m,)
        Rows.
    kind : int
        0: the noise variance is profiled out. Otherwise it is 1, and with n_outputs > 1 one of
        the outputs counts for nothing, as the scores of the classes have a common shift.
    out : (m, len(snr)), level : (m,)
        Results; level[k] = sum(values[k]) / sizes[k].
    """
    m, r = values.shape
    C = products.shape[1]
    free = C - 1.0 if C > 1 else 1.0
    for k in range(m):
        total = 0.0
        for j in range(r):
            total += values[k, j]
        level[k] = total / sizes[k]
        tiny = 1e-9 * squares[k] + 1e-300
        for s in range(snr.shape[0]):
            kappa = snr[s] / level[k] if level[k] > 0 else 0.0
            fit, logdet = 0.0, 0.0
            for j in range(r):
                f = kappa / (1.0 + kappa * values[k, j])
                logdet += np.log1p(kappa * values[k, j])
                for c in range(C):
                    fit += f * products[k, c, j] ** 2
            if kind == 0:
                quad = max(squares[k] - fit, tiny)
                out[k, s] = sizes[k] * np.log(quad / sizes[k]) + logdet
            else:
                out[k, s] = free * logdet - fit


@njit
def _sum_of_losses(z, y, kind):
    """Sum of the losses at scores z, which become the derivatives of the losses."""
    total = 0.0
    for i in range(z.shape[0]):
        if kind == 1:
            t = y[i] * z[i, 0]
            total += np.log1p(np.exp(-t)) if t > 0 else np.log1p(np.exp(t)) - t
        else:
            top = z[i].max()
            mass = 0.0
            for c in range(z.shape[1]):
                mass += np.exp(z[i, c] - top)
            total += np.log(mass) + top - z[i, int(y[i])]
    residuals(z, y, 0, z.shape[0], kind)
    return total


@njit
def descend(A, y, base, offsets, kind, ridge, max_steps, tol, out):
    """out[k] minimises sum_i loss_i(base_i + A_i u') + 1/2 sum_j ridge[k, j] |u_j|^2 for task k.

    Accelerated descent with restarts, for features scaled so that the curvature is of order
    1 in all directions; steps are shortened until they decrease the objective enough.

    Parameters
    ----------
    A : (n, r)
    y : (n,)
    base : (n, n_outputs)
    kind : {1, 2}
        Logistic or multinomial loss.
    ridge : (m, r)
    tol : float
        A task ends when a step is shorter than this part of its u.
    out : (m, n_outputs, r)
    """
    r, C = A.shape[1], base.shape[1]
    longest = 0
    for k in range(out.shape[0]):
        longest = max(longest, offsets[k + 1] - offsets[k])
    now = np.empty((longest, C))
    next_ = np.empty((longest, C))
    lead_scores = np.empty((longest, C))
    work = np.empty((longest, C))
    lead = np.empty((C, r))
    new = np.empty((C, r))
    gradient = np.empty((C, r))
    for k in range(out.shape[0]):
        lo, n = offsets[k], offsets[k + 1] - offsets[k]
        u, labels = out[k], y[lo : lo + n]
        u[:] = 0.0
        lead[:] = 0.0
        for i in range(n):
            for c in range(C):
                now[i, c] = base[lo + i, c]
                lead_scores[i, c] = base[lo + i, c]
        bound, age = 1.0, 0
        for _ in range(max_steps):
            for i in range(n):
                for c in range(C):
                    work[i, c] = lead_scores[i, c]
            value = _sum_of_losses(work[:n], labels, kind)
            square = 0.0
            for c in range(C):
                g, v = gradient[c], lead[c]
                for j in range(r):
                    g[j] = ridge[k, j] * v[j]
                for j in range(r):
                    value += 0.5 * ridge[k, j] * v[j] * v[j]
                for i in range(n):
                    a, s = A[lo + i], work[i, c]
                    for j in range(r):
                        g[j] += s * a[j]
                for j in range(r):
                    square += g[j] * g[j]
            for _ in range(60):
                reached = 0.0
                for c in range(C):
                    for j in range(r):
                        new[c, j] = lead[c, j] - gradient[c, j] / bound
                    for j in range(r):
                        reached += 0.5 * ridge[k, j] * new[c, j] ** 2
                for i in range(n):
                    a = A[lo + i]
                    for c in range(C):
                        s = base[lo + i, c]
                        w = new[c]
                        for j in range(r):
                            s += a[j] * w[j]
                        next_[i, c] = s
                        work[i, c] = s
                reached += _sum_of_losses(work[:n], labels, kind)
                if reached <= value - 0.5 * square / bound + 1e-13 * abs(value):
                    break
                bound *= 2.0
            turn, moved, size = 0.0, 0.0, 0.0
            for c in range(C):
                for j in range(r):
                    step = new[c, j] - u[c, j]
                    turn += gradient[c, j] * step
                    moved += step * step
                    size += new[c, j] ** 2
            age = 0 if turn > 0 else age + 1  # momentum that points uphill is dropped
            momentum = age / (age + 3.0)
            for c in range(C):
                for j in range(r):
                    lead[c, j] = new[c, j] + momentum * (new[c, j] - u[c, j])
                    u[c, j] = new[c, j]
            for i in range(n):
                for c in range(C):
                    lead_scores[i, c] = next_[i, c] + momentum * (next_[i, c] - now[i, c])
                    now[i, c] = next_[i, c]
            if moved <= tol * tol * size and square <= (tol * bound) ** 2 * size:
                break


@njit
def rotate(A, V, offsets, out):
    """out_k = A_k V[k] for the rows of every task."""
    d, r = V.shape[1], V.shape[2]
    for k in range(V.shape[0]):
        for p in range(offsets[k], offsets[k + 1]):
            o = out[p]
            for j in range(r):
                o[j] = 0.0
            for i in range(d):
                a, v = A[p, i], V[k, i]
                for j in range(r):
                    o[j] += a * v[j]
