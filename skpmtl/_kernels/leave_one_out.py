"""Residuals of rows under the models of a task's other rows."""

import numpy as np

from .._runtime.jit import njit


@njit
def leave_one_out(X, offsets, inverse, scale, centre, residual):
    """Turn residuals of squared loss into those that a fit without the row would leave.

    `inverse` holds (scale_k X_k' C X_k + rho_k I)^-1 with C the centring (or identity): a row's
    residual grows by 1 / (1 - h), where its leverage h is scale x' inverse x, and 1 / n_k more
    with an intercept.
    """
    d = X.shape[1]
    mean, x = np.zeros(d), np.empty(d)
    for k in range(offsets.shape[0] - 1):
        lo = offsets[k]
        n = offsets[k + 1] - lo
        A = inverse[k]
        if centre:
            for j in range(d):
                mean[j] = 0.0
            for p in range(n):
                for j in range(d):
                    mean[j] += X[lo + p, j] / n
        for p in range(n):
            for j in range(d):
                x[j] = X[lo + p, j] - mean[j]
            h = 0.0
            for i in range(d):
                s = 0.0
                for j in range(i):
                    s += A[i, j] * x[j]
                h += x[i] * (2.0 * s + A[i, i] * x[i])
            h = scale[k] * h + (1.0 / n if centre else 0.0)
            residual[lo + p] /= max(1.0 - h, 1e-12)
