"""Default strength of a penalty: a share of the strength that noise alone would need.

At the true models the gradient of the loss is noise, N (n_tasks x n_features): that of task k has
the covariance C_k = scale_k^2 s_k^2 X_k' X_k (rows centred where there is an intercept) for
residuals of variance s_k^2. The penalty is there to outweigh it, so that its strength is measured
by the dual norm of N, for which there is a formula in closed form:

    trace norm:  |N| about sqrt(lambda_max(sum_k C_k)) + max_k sqrt(tr C_k)   (Vershynin, 2012)
    L2,1:        |N| about max_j sqrt(sum_k C_k,jj)

Both have the unit of y and that of X, as `alpha` has: other units give the same models.
"""

import numpy as np

from ..tables.datafits import events
from .local import SNR, LocalModels, even_root
from .losses import power_iteration

SHARE = 0.25  # of the dual norm of the noise
_STEPS = 30  # of the power iteration


def auto_alpha(loss, penalty):
    """The public rule ``alpha="auto"``: `SHARE` times the dual norm of the noise; 1 without any.

    The variance s_k^2 of the squared loss is that of y_k over 1 + snr_k, with the signal to noise
    ratio that explains the task best under the prior N(0, kappa I); that of counts is their mean,
    and that of class labels p (1 - p) with the share p of the class in the task, and half a row for
    it and half for others. `SHARE` was chosen on the tables of the role "tuning" in
    ``benchmarks/accuracy``.
    """
    weight = loss.scale * _noise(loss)
    variances = loss.diagonals() * weight[:, None]
    largest = _largest(loss, weight) if not penalty.by_columns else 0.0
    return SHARE * float(penalty.noise_level(variances, largest)) or 1.0


def mean_curvature(loss):
    """Of the losses along single features, in the mean over tasks and features, at most."""
    return float(loss.steepest * np.mean(loss.diagonals()))


def _noise(loss):
    """s_k^2 of every task."""
    table, y = loss.table, loss.y
    weights = 1.0 if table.weights is None else table.weights
    sizes, starts = table.support, table.offsets[:-1]
    if not loss.is_bounded:  # the variance of a count is its mean
        return events(table) / table.sizes
    if not loss.quadratic:
        p = (np.add.reduceat(weights * (y > 0.5), starts) + 0.5) / (sizes + 1.0)
        return p * (1.0 - p)
    if loss.fit_intercept:
        y = y - np.repeat(np.add.reduceat(weights * y, starts) / sizes, table.sizes)
    variance = np.add.reduceat(weights * (y * y), starts)
    variance /= np.maximum(sizes - loss.fit_intercept, 1)
    models = LocalModels(table, fit_intercept=loss.fit_intercept)
    criterion, _ = models.criteria(even_root(table.n_features))
    return variance / (1.0 + SNR[criterion.argmin(axis=1)])


def _largest(loss, weight):
    """Largest eigenvalue of sum_k weight_k scale_k X_k' C X_k, by power iteration."""
    m, d = loss.shape

    def apply(v):
        return weight[None] @ (loss.curvature(np.tile(v, (m, 1))) - loss.ridge * v)

    return power_iteration(apply, np.random.default_rng(0).standard_normal((1, d)), _STEPS)[0]
