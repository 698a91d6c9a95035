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
from .losses import power_iteration
from .ridge import equal_tasks, rows_at

SHARE = 0.25  # of the dual norm of the noise
_STEPS = 30  # of the power iteration
_SNR = np.logspace(-2.5, 5, 16)  # grid of the prior variance of a score, over that of the noise


def auto_alpha(loss, penalty):
    """The public rule ``alpha="auto"``: `SHARE` times the dual norm of the noise; 1 without any.

    The variance s_k^2 of the squared loss is that of y_k over 1 + snr, with the signal to noise
    ratio that explains the tasks best under priors N(0, kappa_k I); that of counts is their mean,
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
    return variance / (1.0 + _signal_to_noise(table, loss.fit_intercept))


def _signal_to_noise(table, fit_intercept):
    """The ratio of `_SNR` under which the rows of all tasks are likeliest.

    With e the eigenvalues of the centred X X' of a task, q what y has in their directions and kappa
    = snr over the mean of the diagonal, -2 log p(y) = n log(sum q^2 / (1 + kappa e)) + sum log(1 +
    kappa e) for the best variance of its noise.
    """
    found = np.zeros(len(_SNR))
    for _, places in equal_tasks(table, table.n_features):
        X, y = rows_at(table, places), table.y[places]
        u = np.ones(y.shape) if table.weights is None else table.weights[places]
        n = u.sum(axis=1)
        if fit_intercept:
            X -= ((u[:, None] @ X)[:, 0] / n[:, None])[:, None]
            y = y - (np.einsum("kn,kn->k", u, y) / n)[:, None]
        X, y = np.sqrt(u)[..., None] * X, np.sqrt(u) * y
        wide = X.shape[1] <= X.shape[2]
        e, U = np.linalg.eigh(X @ X.transpose(0, 2, 1) if wide else X.transpose(0, 2, 1) @ X)
        e, total = np.maximum(e, 0.0), np.einsum("kn,kn->k", y, y)
        q = (y[:, None] if wide else y[:, None] @ X) @ U
        q = q[:, 0] ** 2 / (1.0 if wide else np.maximum(e, 1e-300))
        q *= e > 1e-12 * e[:, -1:]
        kappa = _SNR / np.maximum(e.sum(axis=1) / n, 1e-300)[:, None]
        spread = 1.0 + kappa[..., None] * e[:, None]
        energy = (total - q.sum(axis=1))[:, None] + (q[:, None] / spread).sum(axis=2)
        energy = np.maximum(energy, 1e-9 * total[:, None] + 1e-300)
        free = np.maximum(n - fit_intercept, 1.0)[:, None]
        found += (free * np.log(energy) + np.log(spread).sum(axis=2)).sum(axis=0)
    return _SNR[found.argmin()]


def _largest(loss, weight):
    """Largest eigenvalue of sum_k weight_k scale_k X_k' C X_k, by power iteration."""
    m, d = loss.shape

    def apply(v):
        return weight[None] @ (loss.curvature(np.tile(v, (m, 1))) - loss.ridge * v)

    return power_iteration(apply, np.random.default_rng(0).standard_normal((1, d)), _STEPS)[0]
