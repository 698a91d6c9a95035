"""Data, methods and their tuning for `benchmarks.reproduce.model_protected`."""

import functools
import warnings

import numpy as np
from sklearn.linear_model import Ridge
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import normalize

from skpmtl import MPMTLGroupSparse, MPMTLLowRank, PerTask
from skpmtl.datasets.generators import make_group_sparse_tasks, make_low_rank_tasks
from skpmtl.datasets.school import load_school
from skpmtl.metrics import nmse
from skpmtl.privacy import PrivacyLeakWarning
from skpmtl.reproduction import (
    DPAggregation,
    DPRelationship,
    PublishedMPMTLGroupSparse,
    PublishedMPMTLLowRank,
)

FIELDS = (
    "data",
    "method",
    "guarantee",
    "epsilon",
    "delta",
    "delta_at_least",
    "parameter",
    "value",
    "metric",
    "mean",
    "sd",
    "repeats",
)


# ------------------------------------------------------------------------------- data
def generated(make, seed, m=320, n=30, d=30, n_test=270, **how):
    parts = make(m, n, d, n_test=n_test, random_state=seed, **how)
    return parts[:3], parts[3:6]


def low_rank(seed, **how):
    return generated(make_low_rank_tasks, seed, **how)


def group_sparse(seed, **how):
    return generated(make_group_sparse_tasks, seed, **how)


@functools.cache
def _pupils():
    school = load_school(scale="public")
    return normalize(school.data), school.target, school.task


def school(seed, share=0.3, m=None):
    """`share` of the pupils of each school for training; the first `m` schools only."""
    X, y, task = _pupils()
    parts = train_test_split(X, y, task, train_size=share, stratify=task, random_state=seed)
    return prefix(parts[::2], m), prefix(parts[1::2], m)


def prefix(rows, m):
    """Rows of the first `m` tasks, so that only the company of the others changes with m."""
    return tuple(rows) if m is None else tuple(part[rows[2] < m] for part in rows)


class Problem:
    """Draws of one kind of data to measure on, and further ones to choose parameters on.

    Parameters
    ----------
    label : str
    make : callable
        Seed -> ((X, y, task), (X, y, task)), training and test.
    repeats, folds : int
        Draws to measure and to tune on.
    max_target, centre, max_task_rows : float, float, int
        Public facts that the DP baselines need; `centre` is subtracted from their targets.
    scored : int or None
        Only the test rows of that many first tasks count.
    delta : float or None
        None: 1 / (m log m).
    split : bool
        Tune on a quarter of the training rows instead of further draws.
    """

    def __init__(
        self,
        label,
        make,
        repeats,
        folds=2,
        *,
        max_target=35.0,
        centre=0.0,
        max_task_rows=30,
        scored=None,
        delta=None,
        split=False,
    ):
        self.label, self.scored, self.centre = label, scored, centre
        self.sets = [make(seed) for seed in range(repeats)]
        if split:
            self.folds = [_quarter(train) for train, _ in self.sets[:folds]]
        else:
            self.folds = [make(1000 + seed) for seed in range(folds)]
        self.m = len(np.unique(self.sets[0][0][2]))
        self.delta = 1.0 / (self.m * np.log(self.m)) if delta is None else delta
        self.bounds = {"max_row_norm": 1.0, "max_target": max_target}
        self.max_task_rows = max_task_rows
        self.chosen = {}

    @functools.cached_property
    def clip_norm(self):
        """1.5 times the median length of a model learned alone; not charged, as in the paper."""
        (X, y, task), _ = self.folds[0]
        alone = build("alone", None, self, self.folds[0], 0, **self.best("alone", None))
        models = alone.fit(X, y, task=task).estimators_.values()
        return 1.5 * float(np.median([np.linalg.norm(model.coef_) for model in models]))

    def best(self, name, epsilon, quick=False, **fixed):
        """Parameters with the least error over the tuning draws."""
        key = name, epsilon, tuple(fixed.items())
        if key not in self.chosen:
            grid = list(candidates(name))
            grid = grid[:: max(1, len(grid) // 2)] if quick else grid
            if len(grid) > 1:
                error = [
                    np.mean(
                        [
                            evaluate(name, epsilon, self, fold, seed, **fixed, **parameters)[0]
                            for seed, fold in enumerate(self.folds)
                        ]
                    )
                    for parameters in grid
                ]
                grid = [grid[int(np.argmin(error))]]
            self.chosen[key] = {**grid[0], **fixed}
        return self.chosen[key]


def _quarter(train):
    parts = train_test_split(*train, test_size=0.25, stratify=train[2], random_state=0)
    return parts[::2], parts[1::2]


# ---------------------------------------------------------------------------- methods
PRIVATE_MTL = {
    "ours, low-rank": (MPMTLLowRank, {}),
    "ours, group-sparse": (MPMTLGroupSparse, {}),
    "Algorithm 2, Gaussian": (PublishedMPMTLLowRank, {"mechanism": "gaussian"}),
    "Algorithm 3, Gaussian": (PublishedMPMTLGroupSparse, {"mechanism": "gaussian"}),
    "Algorithm 2, as published": (PublishedMPMTLLowRank, {"mechanism": "wishart-published"}),
    "Algorithm 3, as published": (PublishedMPMTLGroupSparse, {"mechanism": "wishart-published"}),
}
SEVERAL = {"ours, low-rank, 3 releases": (PublishedMPMTLLowRank, {"n_releases": 3})}
EXACT = {"trace norm, not private": MPMTLLowRank, "L2,1 norm, not private": MPMTLGroupSparse}
OUTPUT = {
    "DP-AGGR, group privacy": (DPAggregation, "published"),
    "DP-AGGR, direct": (DPAggregation, "direct"),
    "DP-MTRL, group privacy": (DPRelationship, "published"),
    "DP-MTRL, direct": (DPRelationship, "direct"),
}


def candidates(name):
    """Parameters to choose from."""
    if name == "alone":
        yield from ({"ridge": r} for r in np.geomspace(1e-3, 10.0, 9))
    elif name in EXACT:
        yield from ({"fraction": f} for f in np.geomspace(0.5, 0.002, 10))
    elif name in OUTPUT:
        yield from ({"lam": r} for r in np.geomspace(0.1, 1e4, 6))
    elif name.startswith("Algorithm"):
        for n_releases in (5, 20, 50):
            for fraction in 1e-3 * 4.0 ** np.arange(5):
                for shift in (0.5, 1.0) if "Gaussian" in name else ("auto",):
                    yield {"n_releases": n_releases, "fraction": fraction, "noise_shift": shift}
    else:
        yield {}


def build(name, epsilon, problem, data, seed, *, fraction=None, **parameters):
    """The estimator `name`."""
    (X, y, task), _ = data
    if name == "alone":
        return PerTask(Ridge(parameters["ridge"], fit_intercept=False))
    common = {"epsilon": epsilon, "fit_intercept": False}
    if name in EXACT:
        largest = largest_alpha(X, y, task, 2 if EXACT[name] is MPMTLLowRank else None)
        return EXACT[name](fraction * largest, tol=1e-4, max_iter=2000, **common)
    common |= {"delta": problem.delta, "tasks": np.unique(task), "random_state": seed}
    if name in OUTPUT:
        estimator, group = OUTPUT[name]
        if estimator is DPRelationship:
            parameters = {"alpha": 0.1 * parameters["lam"], **parameters}
        if group == "published":
            parameters = {"max_task_rows": problem.max_task_rows, **parameters}
        return estimator(group=group, **problem.bounds, **common, **parameters)
    estimator, how = (PRIVATE_MTL | SEVERAL)[name]
    if fraction is not None:
        clip = problem.clip_norm
        how = {
            "algorithm": "proximal",
            "allocation": "paper-convex",
            "clip_norm": clip,
            "alpha": fraction * clip * np.sqrt(len(common["tasks"])),
            **how,
        }
    return estimator(**{**common, **how, **parameters})


def largest_alpha(X, y, task, norm):
    """The alpha above which all coefficients of the penalised fit are zero."""
    sizes = np.bincount(task)
    moments = np.zeros((len(sizes), X.shape[1]))
    np.add.at(moments, task, X * (y / sizes[task])[:, None])
    return np.linalg.norm(moments, 2) if norm else np.linalg.norm(moments, axis=0).max()


def evaluate(name, epsilon, problem, data, seed, **parameters):
    """-> nMSE, squared errors of the tasks, privacy report or None"""
    (X, y, task), (X_test, y_test, task_test) = data
    shift = problem.centre if name in OUTPUT else 0.0
    est = build(name, epsilon, problem, data, seed, **parameters)
    with warnings.catch_warnings():  # the paper's delta, seeded noise
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        est.fit(X, y - shift, task=task)
    if problem.scored is not None:
        rows = task_test < problem.scored
        X_test, y_test, task_test = X_test[rows], y_test[rows], task_test[rows]
    predicted = est.predict(X_test, task=task_test) + shift
    squares = np.bincount(task_test, (y_test - predicted) ** 2)
    return nmse(y_test, predicted), squares, getattr(est, "privacy_", None)


# ------------------------------------------------------------------------------- rows
def number(x):
    return float(f"{x:.4g}")


def entry(problem, method, epsilon, values, metric="nMSE", report=None, parameter="", value=""):
    """A row of the tables."""
    private = report is not None and epsilon is not None
    bound = report.notes.get("delta_lower_bound", report.delta) if private else 0.0
    return {
        "data": problem if isinstance(problem, str) else problem.label,
        "method": method,
        "guarantee": report.guarantee if private else "",
        "epsilon": epsilon if epsilon is not None else "",
        "delta": number(report.delta) if private else "",
        "delta_at_least": number(bound) if private else "",
        "parameter": parameter,
        "value": value,
        "metric": metric,
        "mean": number(np.mean(values)),
        "sd": number(np.std(values, ddof=1)) if len(values) > 1 else "",
        "repeats": len(values),
    }


def measured(name, epsilon, problem, quick=False, **fixed):
    """-> errors, squared errors of the tasks, report, over the draws of `problem`."""
    best = problem.best(name, epsilon, quick, **fixed)
    runs = [
        evaluate(name, epsilon, problem, data, seed, **best)
        for seed, data in enumerate(problem.sets)
    ]
    errors, squares, reports = zip(*runs, strict=True)
    return np.array(errors), squares, reports[0]
