"""Fits without a budget: minima of the penalised loss, to a certified gap."""

import math

import numpy as np

from ..exchange.protocol import Population
from ..privacy.report import exact_report
from ..solvers.decomposed import OUTLIERS, minimize_sum
from ..solvers.fitted import PenaltyBillboard
from ..solvers.minimize import minimize
from ..solvers.penalties import ResidualPenalty
from ..solvers.strength import auto_alpha, mean_curvature
from ..tables.table import differences
from .billboard import Centres, RelatedPenaltyBillboard

_HELD = 1e-4  # curvature of what follows from covariates, over that of the loss


def fit(est, table, alpha):
    """Minimise the loss with the penalty of the estimator. -> fitted attributes"""
    if alpha == 0 and est.ridge == 0:
        raise ValueError(
            "alpha=0 with ridge=0 is an unpenalised fit, which shares nothing between tasks: "
            "pass a positive alpha or ridge, or fit PerTask(LinearRegression())."
        )
    init = est._public_init(Population.of(table))
    loss = est._loss(differences(table, init))
    alpha = auto_alpha(loss, est._penalty()) if alpha == "auto" else alpha
    options = {
        "tol": est.tol,
        "max_iter": est.max_iter,
        "log": est._progress("iteration %d: objective %.8g, duality gap %.3g"),
    }
    shape = table.n_tasks, *several(table), table.n_features
    own, extras, kind = {}, {}, PenaltyBillboard
    if est.relation is not None:
        relation = est._relation(Population.of(table))
        V = relation.rows(table.tasks)
        penalty = ResidualPenalty(est._penalty(), V, _HELD * mean_curvature(loss) / alpha)
        start = _earlier(est, loss, "coef_", init)
        solution = minimize(loss, penalty, alpha, W=start, **options)
        W, along = solution.W.reshape(shape), penalty.along(solution.W)
        G = np.linalg.lstsq(V, along.reshape(len(V), -1), rcond=None)[0]
        P, kind = W - along.reshape(shape), RelatedPenaltyBillboard
        own = {"centres": Centres(relation, G)}
    elif est.outliers is None:
        start = _earlier(est, loss, "coef_", init)
        solution = minimize(loss, est._penalty(), alpha, W=start, **options)
        W = P = solution.W.reshape(shape)
    else:
        penalty = OUTLIERS[est.outliers](shape[1] if len(shape) == 3 else 1)
        beta = est.outlier_alpha
        beta = auto_alpha(loss, penalty) if beta == "auto" else beta
        whole = _earlier(est, loss, "coef_", init)
        before = _earlier(est, loss, "outlier_coef_")
        start = None if whole is None or before is None else (whole - before, before)
        solution, parts = minimize_sum(
            loss, (est._penalty(), alpha), (penalty, beta), start=start, **options
        )
        P, Q = (part.reshape(shape) for part in parts)
        W = P + Q
        own = {"outliers": est.outliers, "outlier_alpha": beta}
        lengths = np.linalg.norm(Q.reshape(len(Q), -1), axis=1)
        extras = {"outlier_coef_": Q, "outlier_": lengths, "outlier_alpha_": beta}
    b = loss.intercepts(W.reshape(loss.shape)).reshape(shape[:-1])
    billboard = kind.of(
        P,
        est._diagonal,
        alpha=alpha,
        ridge=est.ridge,
        task_weight=est.task_weight,
        init=init,
        loss=est.loss,
        **own,
    )
    billboard.report = exact_report()
    W, B = billboard.add_init(W, b)
    fitted = {
        "coef_": W,
        "intercept_": B,
        "n_iter_": max(solution.n_iter, 1),
        "objective_": solution.objective,
        "dual_gap_": solution.gap,
        "alpha_": alpha,
        "billboard_": billboard,
        "privacy_": billboard.report,
        **extras,
    }
    return {**fitted, **_shared(billboard, billboard.add_init(P, b)[0], B, b, table.tasks)}


def several(table):
    """Shape of what a task has for each class, where there are more than two."""
    return (table.n_classes,) if table.n_classes > 2 else ()


def _shared(billboard, W, B, b, tasks):
    """The mean of the models W, B, or intercepts b that follow from covariates. -> attributes"""
    if billboard.has_one_mean:
        mean = float(B.mean()) if B.ndim == 1 else B.mean(axis=0)
        return {"mean_coef_": W.mean(axis=0), "mean_intercept_": mean}
    V = billboard.relation.rows(tasks)
    billboard.centres.intercept = np.linalg.lstsq(V, b.reshape(len(V), -1), rcond=None)[0]
    return billboard.attributes()


def _earlier(est, loss, name, init=None):
    """Weights of the earlier fit for a warm start; None without one of this shape."""
    start = getattr(est, name, None) if est.warm_start else None
    if start is None or start.size != math.prod(loss.shape):
        return None
    if init is not None:
        start = start - init.coef.reshape(start.shape[1:])
    return start.reshape(loss.shape)
