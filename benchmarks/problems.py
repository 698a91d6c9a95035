"""Problem instances for timing: the shared ones where that folder is present, else similar.

The objective is that of :class:`skpmtl.MPMTLLowRank` ("trace") and
:class:`skpmtl.MPMTLGroupSparse` ("l21")::

    sum_k weight_k / 2 ||y_k - X_k w_k - b_k||^2 + alpha Omega(W)

with weight_k = 1 / n_k and free b_k ("mean", as RMTL), or weight_k = 1 and b_k = 0 ("sum",
as MALSAR).
"""

import csv
import importlib.util
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from sklearn.preprocessing import normalize

from skpmtl.datasets.generators import make_group_sparse_tasks, make_low_rank_tasks

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@dataclass(frozen=True)
class Problem:
    """One instance. `task` is None for a wide y of shape (n_samples, n_tasks)."""

    name: str
    penalty: str  # "trace" or "l21"
    formula: str  # "mean" or "sum"
    X: np.ndarray
    y: np.ndarray
    task: np.ndarray | None
    alpha: float = np.nan

    @property
    def fit_intercept(self):
        return self.formula == "mean"

    def tasks(self):
        """Rows and targets, task by task."""
        if self.task is None:
            return [(self.X, y) for y in self.y.T]
        cuts = np.flatnonzero(np.diff(self.task)) + 1
        return list(zip(np.split(self.X, cuts), np.split(self.y, cuts), strict=True))

    def objective(self, coef, intercept):
        """Value at coefficients of shape (n_tasks, n_features), computed from the rows."""
        value = 0.0
        for (X, y), w, b in zip(self.tasks(), coef, intercept, strict=True):
            residual = y - X @ w - b
            value += residual @ residual / (2 * len(y) if self.formula == "mean" else 2)
        if self.penalty == "trace":
            return value + self.alpha * np.linalg.svd(coef, compute_uv=False).sum()
        return value + self.alpha * np.linalg.norm(coef, axis=0).sum()

    def alpha_max(self):
        """Smallest alpha whose solution is zero: the dual norm of the gradient there."""
        gradient = []
        for X, y in self.tasks():
            centred = y - y.mean() if self.fit_intercept else y
            gradient.append(X.T @ centred / (len(y) if self.formula == "mean" else 1))
        if self.penalty == "trace":
            return np.linalg.norm(np.array(gradient), 2)
        return np.linalg.norm(np.array(gradient), axis=0).max()


def instances(quick=False):
    """The problems, with the known optimum of each or None.

    Yields `problem`, Problem; `optimum`, float or None: Reference value to a duality gap of 1e-11
    where there is one.
    """
    known = {} if quick else _reference()
    for name, X, y, task in _data(quick):
        wide = task is None
        for penalty in ("l21",) if wide else ("trace", "l21"):
            for formula in ("mean",) if wide else ("mean", "sum"):
                problem = Problem(name, penalty, formula, X, y, task)
                alpha, optimum = known.get((name, penalty, formula), (None, None))
                # .1 and .3 bracket what cross-validation picks on these problems.
                for fraction in (0.1, 0.3) if wide else (0.1,):
                    chosen = fraction * problem.alpha_max() if alpha is None else alpha
                    label = f"{name} {formula}" + (f" alpha_max*{fraction:g}" if wide else "")
                    yield replace(problem, name=label, alpha=chosen), optimum


def _data(quick):
    if quick:
        yield ("lowrank", *make_low_rank_tasks(12, 15, 6, random_state=0))
        yield ("groupsparse", *make_group_sparse_tasks(12, 15, 6, random_state=0))
    elif SHARED.is_dir():
        spec = importlib.util.spec_from_file_location("make_problems", SHARED / "make_problems.py")
        made = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(made)
        yield ("school", *made.school_view(*made.school(str(SHARED / "school.mat")))[0])
        for name in ("lowrank", "groupsparse"):
            (X, y), _, _ = made.synthetic(name)
            m, n, d = X.shape
            yield name, X.reshape(-1, d), y.ravel(), np.repeat(np.arange(m), n)
        for name in ("big_lowrank", "big_groupsparse"):
            X, y, _ = made.big(name)
            m, n, d = X.shape
            yield name, X.reshape(-1, d), y.ravel(), np.repeat(np.arange(m), n)
        X, Y, _ = made.big("big_shared")
        yield "big_shared", X, Y, None
        return
    else:
        yield ("lowrank", *make_low_rank_tasks(random_state=0))
        yield ("groupsparse", *make_group_sparse_tasks(random_state=0))
    n, d, m, active = (40, 30, 8, 4) if quick else (500, 500, 100, 25)
    rng = np.random.default_rng(0)
    X = normalize(rng.standard_normal((n, d)))
    W = np.zeros((d, m))
    W[:active] = rng.uniform(1, 50, (active, m)) * rng.choice([-1.0, 1.0], (active, m))
    yield "big_shared", X, X @ W + rng.standard_normal((n, m)), None


def _reference():
    path = SHARED / "reference_objectives.csv"
    if not path.is_file():
        return {}
    with path.open(newline="") as file:
        return {
            (row["problem"], row["penalty"], row["formula"]): (
                float(row["lam1"]),
                float(row["optimum"]),
            )
            for row in csv.DictReader(file)
        }
