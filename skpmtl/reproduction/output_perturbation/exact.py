"""Fits without a budget: the average of the tasks' models, and relationship learning."""

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ..._runtime.stack import users_line
from ..._runtime.threads import single_blas_thread
from ...privacy.report import exact_report
from .billboard import AggregationBillboard
from .relationship import smooth
from .tasks import coefficients


def average(est, table):
    """The average of the models, which is that of every task. -> fitted attributes"""
    models = est._models(table)
    W = models.solve(np.zeros((table.n_tasks, models.width)))
    billboard = AggregationBillboard([W.mean(axis=0)], est.fit_intercept, exact_report())
    return _fitted(billboard, billboard.personalize(table), 1)


def relationship(est, table):
    """Alternating minimisation, a proximal gradient method on V, with momentum. -> attributes"""
    models, ratio = est._models(table), est.alpha / est.lam
    log = est._progress("iteration %d: columns move by %.3g")
    V = W = ahead = np.zeros((table.n_tasks, models.width))
    momentum = 1.0
    for n_iter in range(1, est.max_iter + 1):
        W = models.solve(ahead, start=W)
        with single_blas_thread():
            new = smooth(W, ratio)
        moved, size = np.abs(new - ahead).max(), np.abs(new).max()
        if np.vdot(ahead - new, new - V) > 0.0:
            momentum = 1.0  # the momentum leads uphill: restart
        following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
        ahead = new + (momentum - 1.0) / following * (new - V)
        V, momentum = new, following
        if log is not None:
            log(n_iter, moved)
        if moved <= est.tol * max(size, 1e-300):
            break
    else:
        warnings.warn(
            f"The columns still move by {moved:.3g} after {est.max_iter} iterations. Raise "
            "max_iter or tol, or scale the features.",
            ConvergenceWarning,
            stacklevel=users_line(),
        )
    W = models.solve(V, start=W)
    billboard = est._billboard(W, V)
    billboard.report = exact_report()
    trace = np.linalg.svd(V, compute_uv=False).sum()
    value = models.value(W, V) + 0.5 * est.alpha * trace**2
    fitted = _fitted(billboard, coefficients(W, est.fit_intercept), n_iter)
    return {**fitted, "objective_": float(value)}


def _fitted(billboard, models, n_iter):
    coef, intercept = models
    public = {**billboard.attributes(), "billboard_": billboard, "privacy_": billboard.report}
    return {"coef_": coef, "intercept_": intercept, **public, "n_iter_": n_iter}
