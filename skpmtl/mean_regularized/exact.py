"""Fits without a budget: minima around shared models, or with the penalty of a graph."""

import math
from dataclasses import replace

import numpy as np

from ..exchange.protocol import Population
from ..local.centred import CentredTasks, dense_copy
from ..local.updates import ProximalUpdates, lengths
from ..privacy.report import exact_report
from ..rounds.plan import bins, common_length
from ..solvers.graph import LossOnGraph, minimize_on_graph, without
from ..solvers.losses import make_loss
from ..solvers.mean import fixed_point, held_targets, minimize_exactly, minimize_related
from ..solvers.minimize import minimize
from ..solvers.penalties import EntryNorm
from ..tables.relation import laplacian
from ..tables.table import differences, distinct_ids
from .billboard import cluster_rows
from .errors import StandardErrors, exact_errors
from .personal import PersonalModels
from .plan import alone_weight

_DENSE_LIMIT = 1 << 24  # numbers of sparse rows up to which an exact fit has them dense
_NEWTON = "iteration %d: objective %.8g, gradient norm %.3g"
_GAP = "iteration %d: objective %.8g, duality gap %.3g"
_STEPS = 100  # proximal gradient steps that count as an iteration
_EXACT_STEPS, _EXACT_TOL = 3000, 1e-8  # of updates for standard errors
_HELD = 5  # minima one after the other of held targets


def fit(est, table):
    """Minimise the objective of the estimator. -> fitted attributes"""
    if est.relation_rank == "all":
        return _fit_on_graph(est, table)
    return _fit_around_means(est, table)


# ------------------------------------------------------------------ around shared models
def _fit_around_means(est, given):
    population = Population.of(given)
    cluster_of, relation = est._cluster_rows(given.tasks), est._relation(population)
    problem, public_init = est._problem(population), est._public_init(population)
    if relation is not None:
        table, which = dense_copy(given), np.arange(given.n_tasks)
    else:
        table = dense_copy(given, _DENSE_LIMIT) or given
        which = cluster_rows(given.tasks, cluster_of)
    centred = CentredTasks(differences(table, public_init), problem, which)
    lam, auto = float(np.median(centred.own_strength)), problem.lam == "auto"
    own = lengths(centred) if auto else None
    centred.set_strengths(replace(problem, lam=lam))
    unit = None
    if auto and problem.loss == "squared":
        if common_length(bins(own).sum(axis=0), 0.0, len(own)) is None:
            unit = own
        centres, n_iter = _held_minimum(est, centred, given, relation, unit)
    else:
        centres, n_iter, objective, W, b = _minimum(est, centred, given, relation)
    billboard = est._billboard(given, problem, centres, cluster_of, relation)
    billboard.init, billboard.lam = public_init, lam
    billboard.own_units = unit is not None
    billboard.report = exact_report()
    if est.standard_errors:
        billboard.errors = _errors(est, centred, billboard, given.tasks, auto)
    centred.set_strengths(problem)
    if auto:
        billboard.alone_weight[:] = alone_weight(math.inf, centres.size / table.n_tasks)
    if auto or W is None:
        models = PersonalModels(table, billboard, centred)
        fitted, b = est._fitted(billboard, models, n_iter), models.intercept
    else:
        W = W.reshape(table.n_tasks, *billboard.shape)
        if public_init is not None:
            W, b = W + public_init.coef.reshape(billboard.shape), b + public_init.intercept
        fitted = {
            "coef_": W,
            "intercept_": b if len(billboard.shape) == 2 else b[:, 0],
            "n_iter_": n_iter,
            "objective_": objective,
            "billboard_": billboard,
        }
    fitted.update(privacy_=billboard.report, lam_=lam)
    if not billboard.has_one_mean:
        fitted.update(billboard.attributes())
    elif "coef_" in fitted:
        fitted |= {"mean_coef_": billboard.mean.copy(), **billboard.stds()}
    est._open_intercept(billboard, table.tasks, b)
    return est._with_mean_intercept(fitted, billboard)


def _errors(est, centred, billboard, tasks, auto):
    """Standard errors of the shared models."""
    if billboard.own_units or est.ridge:
        units = "every task has units of its own"
        reason = "a ridge draws the shared model to zero" if est.ridge else units
        return StandardErrors(reason=reason)
    centres, relation = billboard.centres, billboard.relation
    if relation is not None:
        rows, weights, transform = relation.rows(tasks), relation.weights(tasks), relation.transform
    else:
        rows = np.eye(len(centres))[cluster_rows(tasks, billboard.cluster_of)]
        weights, transform = rows / rows.sum(axis=0), np.eye(len(centres))
    if centred.table.is_sparse != billboard.sparse:
        billboard = billboard.for_rows(centred.table.is_sparse)
    updates = ProximalUpdates(centred, n_steps=_EXACT_STEPS, tol=_EXACT_TOL)
    return exact_errors(
        updates,
        billboard.centres,
        rows,
        weights,
        billboard.presented(billboard.centres),
        transform,
        auto and centred.problem.loss == "squared",
    )


def _minimum(est, centred, given, relation):
    """-> centres, n_iter, objective, W, b: of the objective; None where W is not at hand"""
    table, which, lam = centred.table, centred.which, centred.problem.lam
    size = centred.problem.n_outputs * table.n_features
    centres = np.zeros((which.max() + 1 if relation is None else relation.rank, size))
    objective = W = b = None
    stop = {"tol": est.tol, "max_iter": est.max_iter}
    if relation is not None:
        rows = relation.rows(table.tasks)
        W, b, objective, n_iter = minimize_related(centred, centres, rows, **stop)
    elif table.is_sparse:
        n_iter = fixed_point(centred, centres, **stop)
    else:
        log = est._progress(_NEWTON)
        W, b, objective, n_iter = minimize_exactly(centred, lam, log=log, **stop)
        flat = W.transpose(0, 2, 1) if given.is_sparse else W
        np.add.at(centres, which, flat.reshape(len(W), size))
        centres /= np.bincount(which)[:, None]
    return centres, n_iter, objective, W, b


def _held_minimum(est, centred, given, relation, unit):
    """Shared models that no task moves farther than most do. -> centres, n_iter

    `unit` (n_tasks,): in units of the tasks; None: in those of the target.
    """
    table = centred.table
    if unit is not None:
        inverse = np.where(unit > 0, 1.0 / np.where(unit > 0, unit, 1.0), 0.0)
        centred = centred.with_targets(table.y * np.repeat(inverse, table.sizes))
    around = np.zeros((centred.which.max() + 1, table.n_features))
    for _ in range(_HELD):
        held = centred.with_targets(held_targets(centred, around, unit))
        centres, n_iter, *_ = _minimum(est, held, given, relation)
        around = centres if relation is None else relation.rows(table.tasks) @ centres
    return centres, n_iter


# ------------------------------------------------------------------------------ on a graph
def _fit_on_graph(est, table):
    population = Population.of(table)
    if est.relation is None or est.clusters is not None:
        raise ValueError(
            'relation_rank="all" is of a relation= that is a graph or Omega, without clusters=.'
        )
    if isinstance(est.lam, str):
        raise ValueError(
            'relation_rank="all" needs a number as lam: no rule knows the units of Omega.'
        )
    Omega = _omega(est, population.tasks)
    if len(table.absent) and est.l1:
        raise ValueError(
            f"l1={est.l1!r} leaves open what tasks= without rows are: leave them out, or pass l1=0."
        )
    if len(table.absent):
        here = np.isin(population.tasks, table.tasks)
        Omega = without(Omega, here, est.ridge / est.lam)[0]
    problem, public_init = est._problem(population), est._public_init(population)
    dense = differences(dense_copy(table), public_init)
    if est.l1:
        loss = make_loss(
            dense,
            task_weight=est.task_weight,
            fit_intercept=est.fit_intercept,
        )
        solution = minimize(
            LossOnGraph(loss, Omega, float(est.lam), float(est.ridge)),
            EntryNorm(population.n_outputs),
            est.l1,
            tol=est.tol,
            max_iter=_STEPS * est.max_iter,
            log=est._progress(_GAP),
        )
        W, b = solution.W, loss.intercepts(solution.W).reshape(table.n_tasks, -1)
        W = W.reshape(*b.shape, -1)
        objective, gap, n_iter = solution.objective, solution.gap, max(solution.n_iter, 1)
    else:
        W, b, objective, gap, n_iter = minimize_on_graph(
            CentredTasks(dense, problem),
            Omega,
            float(est.lam),
            tol=est.tol,
            max_iter=est.max_iter,
            log=est._progress(_NEWTON),
        )
    if public_init is not None:
        b = b + public_init.intercept
    mean = W.transpose(0, 2, 1) if table.is_sparse else W
    mean = mean.reshape(len(W), -1).mean(axis=0)[None]
    # Others are no vertices: they lie around the mean, as far as a task does on average.
    strength = float(est.lam * np.asarray(Omega.diagonal()).mean()) or float(est.lam)
    billboard = est._billboard(table, replace(problem, lam=strength), mean, None, None)
    billboard.init = public_init
    W = W.reshape(len(W), *billboard.shape)
    if public_init is not None:
        W = W + public_init.coef.reshape(billboard.shape)
    billboard.lam = float(est.lam)
    billboard.report = exact_report()
    if est.standard_errors:
        billboard.errors = StandardErrors(reason="a penalty on a graph has no shared model")
    fitted = {
        "coef_": W,
        "intercept_": b if len(billboard.shape) == 2 else b[:, 0],
        "n_iter_": n_iter,
        "objective_": objective,
        "dual_gap_": gap,
        "lam_": float(est.lam),
        "billboard_": billboard,
        "privacy_": billboard.report,
        "mean_coef_": billboard.mean.copy(),
        **billboard.stds(),
    }
    est._open_intercept(billboard, table.tasks, b)
    return est._with_mean_intercept(fitted, billboard)


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
