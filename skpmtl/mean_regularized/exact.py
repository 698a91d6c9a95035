"""Fits without a budget: minima around shared models, or with the penalty of a graph."""

from dataclasses import replace

import numpy as np

from ..exchange.protocol import Population
from ..privacy.report import exact_report
from ..solvers.centred import CentredTasks, dense_copy
from ..solvers.graph import LossOnGraph, minimize_on_graph, without
from ..solvers.losses import make_loss
from ..solvers.mean import State, minimize_around, minimize_exactly
from ..solvers.minimize import minimize
from ..solvers.penalties import EntryNorm
from ..tables.relation import laplacian
from ..tables.table import differences, distinct_ids
from .billboard import MeanBillboard

_DENSE_LIMIT = 1 << 24  # numbers of sparse rows up to which an exact fit has them dense
_NEWTON = "iteration %d: objective %.8g, gradient norm %.3g"
_GAP = "iteration %d: objective %.8g, duality gap %.3g"
_STEPS = 100  # proximal gradient steps that count as an iteration


def fit(est, table):
    """Minimise the objective of the estimator. -> fitted attributes"""
    if est.relation_rank == "all":
        return _fit_on_graph(est, table)
    return _fit_around_means(est, table)


def _billboard(est, population, centres, relation=None, lam=None):
    """Of centres (n, n_outputs, d), whose intercepts follow."""
    return MeanBillboard(
        centres=centres,
        intercepts=np.zeros(centres.shape[:2]),
        lam=float(est.lam if lam is None else lam),
        ridge=float(est.ridge),
        task_weight=est.task_weight,
        fit_intercept=bool(est.fit_intercept),
        relation=relation,
        init=est._public_init(population),
        loss=est.loss,
        of_classes=population.n_classes > 0,
        report=exact_report(),
    )


def _fitted(billboard, tasks, coef, intercept, n_iter, **found):
    """Fitted attributes, from models in the form that users see."""
    b = intercept.reshape(len(tasks), -1)
    if billboard.init is not None:
        b = b - billboard.init.intercept
    rows = (
        np.ones((len(tasks), 1)) if billboard.relation is None else billboard.relation.rows(tasks)
    )
    billboard.intercepts[:] = np.linalg.lstsq(rows, b, rcond=None)[0]
    return {
        "coef_": coef,
        "intercept_": intercept,
        "n_iter_": max(n_iter, 1),
        "billboard_": billboard,
        "privacy_": billboard.report,
        **found,
        **billboard.attributes(),
    }


# ------------------------------------------------------------------ around shared models
def _fit_around_means(est, given):
    population = Population.of(given)
    relation, d = est._relation(population), given.n_features
    table = dense_copy(given) if relation is not None else dense_copy(given, _DENSE_LIMIT) or given
    r, C = 1 if relation is None else relation.rank, population.n_outputs
    billboard = _billboard(est, population, np.zeros((r, C, d)), relation)
    rows = np.ones((table.n_tasks, 1)) if relation is None else relation.rows(table.tasks)
    which = None if relation is None else np.arange(table.n_tasks)
    if est.clusters is not None:  # each of which is a problem of its own
        which = np.unique(rows, axis=0, return_inverse=True)[1].ravel()
    centred = CentredTasks(differences(table, billboard.init), billboard.problem, which)
    stop, found = {"tol": est.tol, "max_iter": est.max_iter}, {}
    if table.is_sparse or (relation is not None and est.clusters is None):
        centres = billboard.centres
        W, b, n_iter = minimize_around(centred, centres, rows, **stop)
        if not table.is_sparse:
            found["objective_"] = _objective(centred, W, b, np.tensordot(rows, centres, 1))
    else:
        log = est._progress(_NEWTON)
        W, b, value, n_iter = minimize_exactly(centred, float(est.lam), log=log, **stop)
        found["objective_"] = value
        flat = np.linalg.lstsq(rows, W.reshape(len(W), C * d), rcond=None)[0]
        billboard.centres[:] = flat.reshape(r, C, d)
    W, b = billboard._whole(W.reshape(len(W), C, d), b.reshape(len(W), C))
    models = W.reshape(len(W), *billboard.model_shape), b if C > 1 else b[:, 0]
    return _fitted(billboard, table.tasks, *models, n_iter, **found)


def _objective(centred, W, b, centres):
    """Of models around centres of their own."""
    lam, distance = centred.problem.lam, W - centres
    # Of centres of their own, tasks have no distance there.
    value = State(centred, lam).value(np.concatenate([W, b[:, :, None]], axis=2))
    return value + 0.5 * lam * float(np.vdot(distance, distance))


# ------------------------------------------------------------------------------ on a graph
def _fit_on_graph(est, table):
    population = Population.of(table)
    if est.relation is None or est.clusters is not None:
        raise ValueError(
            'relation_rank="all" is of a relation= that is a graph or Omega, without clusters=.'
        )
    Omega = _omega(est, population.tasks)
    if len(table.absent) and est.l1:
        raise ValueError(
            f"l1={est.l1!r} leaves open what tasks= without rows are: leave them out, or pass l1=0."
        )
    if len(table.absent):
        here = np.isin(population.tasks, table.tasks)
        Omega = without(Omega, here, est.ridge / est.lam)[0]
    C, d = population.n_outputs, table.n_features
    # Others are no vertices: they lie around the mean, as far as a task does on average.
    strength = float(est.lam * np.asarray(Omega.diagonal()).mean()) or float(est.lam)
    billboard = _billboard(est, population, np.zeros((1, C, d)), lam=strength)
    dense = differences(dense_copy(table), billboard.init)
    if est.l1:
        loss = make_loss(dense, task_weight=est.task_weight, fit_intercept=est.fit_intercept)
        solution = minimize(
            LossOnGraph(loss, Omega, float(est.lam), float(est.ridge)),
            EntryNorm(C),
            est.l1,
            tol=est.tol,
            max_iter=_STEPS * est.max_iter,
            log=est._progress(_GAP),
        )
        W, b = solution.W, loss.intercepts(solution.W)
        objective, gap, n_iter = solution.objective, solution.gap, solution.n_iter
    else:
        problem = replace(billboard.problem, lam=float(est.lam))
        W, b, objective, gap, n_iter = minimize_on_graph(
            CentredTasks(dense, problem),
            Omega,
            float(est.lam),
            tol=est.tol,
            max_iter=est.max_iter,
            log=est._progress(_NEWTON),
        )
    W, b = W.reshape(table.n_tasks, C, d), b.reshape(table.n_tasks, C)
    billboard.centres[0] = W.mean(axis=0)
    W, b = billboard._whole(W, b)
    models = W.reshape(len(W), *billboard.model_shape), b if C > 1 else b[:, 0]
    found = _fitted(billboard, table.tasks, *models, n_iter, objective_=objective, dual_gap_=gap)
    return {**found, "lam_": float(est.lam)}


def vertices_without_rows(est, fitted, tasks, positions):
    """Coefficients of the vertices of a graph that nothing holds but their neighbours."""
    here = np.ones(len(tasks), dtype=bool)
    here[positions] = False
    extend = without(_omega(est, tasks), here, est.ridge / est.lam)[1]
    W, public_init = fitted["coef_"], fitted["billboard_"].init
    base = 0.0 if public_init is None else public_init.coef.reshape(W.shape[1:])
    W = W - base
    return (extend @ W.reshape(len(W), -1)).reshape(-1, *W.shape[1:]) + base


def _omega(est, tasks):
    order = None if isinstance(est.tasks, str) else distinct_ids(est.tasks, "The tasks")
    return laplacian(est.relation, tasks, order=order)
