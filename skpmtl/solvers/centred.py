"""Single-task problems around a centre, solved by local steps.

All tasks of a table together, vectorised; nothing here combines tasks.

Models are flat: (n_outputs, n_features) for dense rows, (n_features, n_outputs) for CSR rows,
where differences to the centre live on the task's own columns; see `skpmtl._kernels.steps`.
"""

import math
from dataclasses import dataclass, replace
from numbers import Integral, Real

import numpy as np

from .._kernels import steps as kernels
from .._kernels.losses import NUMBER
from .._kernels.rows import count_columns
from .._kernels.short import short_steps
from .._runtime.compat import Interval, StrOptions
from .._runtime.public import Public
from .._runtime.threads import cost_blocks, task_blocks
from ..tables.datafits import events
from ..tables.table import kernel_rows, table_of
from .grams import NARROW, largest_eigenvalues, long_tasks
from .ridge import RidgeModels

KEPT = 1 << 20  # numbers of matrices that are kept in memory however few rows there are
_BLOCK = 1 << 20  # numbers of rows and Gram matrices held at once
_MODELS = 1 << 18  # numbers of models that a thread holds at once while a round runs over the tasks
# lam="auto" by loss: this fraction of a task's own smoothness, less of it in proximal updates, and
# more of it, by _AUTO_ROWS over the number of its rows, when it personalises.
_AUTO_PULL = {"squared": 0.05, "logistic": 0.02, "multinomial": 0.02, "poisson": 0.02}
_AUTO_PROX = {"squared": 0.05, "logistic": 0.005, "multinomial": 0.005, "poisson": 0.005}
_AUTO_ROWS = {"squared": 5.0, "logistic": 0.0, "multinomial": 0.0, "poisson": 0.0}
_ALONE_ROWS = 0.5  # the same for lam="alone", without a centre
# Of the second derivative of the losses; that of counts has none, and is the mean count.
_BOUND = {"squared": 1.0, "logistic": 0.25, "multinomial": 0.5}
# Accelerated steps first take the bound to be that much smaller.
_BOLDNESS = {"squared": 1.0, "logistic": 4.0, "multinomial": 4.0}
_NONE = np.empty((0, 0))
_NO_INDEX = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Problem(Public):
    """What a task minimises: its loss, and the strength of its penalty towards its centre."""

    # {"squared", "logistic", "multinomial", "poisson"}; y is in {-1, 1} for the second, and
    # counts the classes from 0 for the third
    loss: str
    n_outputs: int  # 1, or the number of classes of the multinomial loss
    fit_intercept: bool
    task_weight: str = "equal"  # {"equal", "samples"}; mean loss or sum of losses
    # "auto": in the rounds 0.05 (logistic: 0.02, proximal updates 0.005) times the smoothness
    # of the task's own loss; in the personalisation 0.05 + 5 / n_k (logistic: 0.02) times.
    # "alone": 0.5 / n_k times.
    lam: object = "auto"
    ridge: float = 0.0

    constraints = {
        "loss": [StrOptions(set(NUMBER))],
        "n_outputs": [Interval(Integral, 1, None, closed="left")],
        "task_weight": [StrOptions({"equal", "samples"})],
        "lam": [StrOptions({"auto", "alone"}), Interval(Real, 0, None, closed="neither")],
        "ridge": [Interval(Real, 0, None, closed="left")],
    }


class CentredTasks:
    """Local work of all tasks of a table, each around the centre that it was given.

    Parameters
    ----------
    table : TaskTable
    problem : Problem
    which : ndarray (n_tasks,) of int64, default=None
        Centre (cluster) of each task; None: there is one for all.
    least : int, default=None
        Rows from which on a task is solved by a matrix of its features and not of its rows; None:
        as many as features, which takes the smaller one.

    Attributes
    ----------
    curvature : ndarray (n_tasks,)
        Largest eigenvalue of X_k' X_k, centred when there is an intercept.
    smoothness : ndarray (n_tasks,)
        Lipschitz constant of the gradient of each task's loss.
    strength, prox_strength, own_strength, single_strength : ndarray (n_tasks,)
        Weights of the squared distance to the centre in the rounds, in those of proximal updates,
        in the personalisation, and without a centre.
    long : tuple
        `long_tasks` of `least` rows; dense rows of up to `NARROW` features.
    """

    def __init__(self, table, problem, which=None, least=None):
        self.table, self.least = table, table.n_features if least is None else least
        m, d = table.n_tasks, table.n_features
        self.which = np.zeros(m, dtype=np.int64) if which is None else which
        self.scale = table.scale(problem.task_weight)
        self.problem = problem
        self.widths = np.full(m, d)
        if table.is_sparse:
            count_columns(*table.csr[1:], table.places, table.offsets, d, self.widths)
        self.curvature = 1.05 * largest_eigenvalues(table, problem.fit_intercept)
        if not table.is_sparse and d <= NARROW:
            self.long = long_tasks(table, self.least)
        if problem.fit_intercept:
            np.maximum(self.curvature, self._rounding(), out=self.curvature)
        bound = _BOUND[problem.loss] if problem.loss in _BOUND else events(table) / table.sizes
        self.grams = np.zeros(m, dtype=np.int64), np.empty(0)  # see `keep_grams`
        self.bends = bound * self.scale * table.support  # of a row, in the mean loss of the task
        self.smoothness = self.curvature * self.scale * bound
        self._single = self._has_missing_class()
        self.set_strengths(problem)

    def set_strengths(self, problem):
        """Take this problem, which differs from the present one in `lam` only."""
        self.problem, loss, sizes = problem, problem.loss, self.table.support
        rows = np.minimum(sizes, events(self.table)) if loss == "poisson" else sizes
        alone = np.maximum(_ALONE_ROWS / rows * self.smoothness, 1e-8)
        if problem.lam == "alone":
            self.strength = self.prox_strength = self.own_strength = alone
        elif problem.lam == "auto":
            part = _AUTO_PULL[loss]
            self.strength = np.maximum(part * self.smoothness, 1e-8)
            self.prox_strength = np.maximum(_AUTO_PROX[loss] * self.smoothness, 1e-8)
            self.own_strength = self.strength * (1.0 + _AUTO_ROWS[loss] / (part * sizes))
        else:
            given = np.full(len(sizes), float(problem.lam))
            self.strength = self.prox_strength = self.own_strength = given
        self.single_strength = alone if isinstance(problem.lam, str) else self.strength

    @property
    def _has_row_steps(self):
        """Whether steps of tasks of few rows may stay in the space of these rows."""
        return (
            self.problem.loss == "squared"
            and not self.problem.fit_intercept
            and not self.table.is_sparse
        )

    def keep_grams(self):
        """Keep products of the rows of tasks of few rows from round to round, in memory."""
        if not self._has_row_steps:
            return
        table = self.table
        sizes = np.where(table.sizes < table.n_features, table.sizes, 0)
        starts = np.cumsum(np.append(0, sizes * (sizes + 1) // 2))
        if starts[-1] <= (KEPT if table.on_disk else max(KEPT, table.X.size)):
            self.grams = starts, np.full(starts[-1], np.nan)

    # Not kept: a pickle would hold X twice, and give back arrays that can be written, for which
    # numba compiles every loop again.
    @property
    def _rows(self):
        """Features and rows, dense or CSR, for compiled loops."""
        return *kernel_rows(self.table), self.table.offsets

    @property
    def indexed(self):
        """Dense features, and the rows of the table among them, for compiled loops."""
        rows = self.table.rows
        return self.table.X, _NO_INDEX if rows is None else rows, rows is not None

    def _rounding(self):
        """Curvature that equal rows have by rounding alone: steps of 1 over less are noise."""
        table, first = self.table, self.table.offsets[:-1]
        x = table.X[first if table.rows is None else table.rows[first]]
        if table.is_sparse:
            squares = np.asarray(x.multiply(x).sum(axis=1), dtype=float).ravel()
        else:
            squares = np.einsum("kj,kj->k", x, x, dtype=float)
        return np.finfo(float).eps * table.sizes * squares

    def _has_missing_class(self):
        """Tasks in which a class is missing, whose unpenalised intercepts would be infinite."""
        table, C = self.table, self.problem.n_outputs
        if self.problem.loss in ("squared", "poisson") or table.y is None:
            return np.zeros(table.n_tasks, dtype=bool)
        if self.problem.loss == "logistic":
            positive = np.add.reduceat((table.y > 0).astype(float), table.offsets[:-1])
            return (positive == 0) | (positive == table.sizes)
        pairs = np.unique(table.codes * C + table.y.astype(np.int64))
        return np.bincount(pairs // C, minlength=table.n_tasks) < C

    def short_ranges(self):
        """All tasks in blocks if some are solved by a matrix of their rows."""
        table = self.table
        if len(self.long[0]) == table.n_tasks:
            return []
        return task_blocks(table.offsets, table.n_features, _BLOCK)

    # ------------------------------------------------------------------------- blocks
    def blocks(self, pick, n_models=1):
        """`pick` in pieces whose models together stay small, with so many of each task."""
        pieces = cost_blocks(self.widths[pick] * self.problem.n_outputs * n_models, _MODELS)
        return [pick[first:last] for first, last in pieces]

    def steps(
        self,
        pick,
        centres,
        strength,
        *,
        hold=0.0,
        unit=None,
        n_steps,
        tol=0.0,
        start=None,
        rows_held=0.0,
    ):
        """Local steps of the tasks `pick`, a block. -> Local

        `strength` (n_tasks,) is the weight of the penalty, and `hold` that of one in addition,
        towards zero; see `share_of_centre`. A task multiplies its centre by `unit`; None:
        1. All classes share `rows_held` rows more, which hold the intercepts of every task; without
        them those of tasks that miss a class are regularised. Other arguments are those of
        `skpmtl._kernels.steps.local_steps`.
        """
        if self.problem.loss not in _BOUND:
            return self._models_of_counts(pick, centres, strength, hold, unit)
        problem, C = self.problem, self.problem.n_outputs
        ends = np.concatenate([[0], np.cumsum(self.widths[pick] * C)])
        columns = np.empty(ends[-1] // C if self.table.is_sparse else 0, dtype=np.int64)
        found = kernels.Found(
            columns, ends, np.empty(ends[-1] + kernels.APART)[: ends[-1]], np.empty((len(pick), C))
        )
        # A missing class would send its intercept to infinity: these tasks hold theirs.
        held = np.where(self._single & (not rows_held), self.strength, 0.0)
        share = share_of_centre(strength, hold)
        around = kernels.Around(
            centres,
            self.which,
            share if unit is None else share * unit,
            strength + hold,
            held,
            self.scale,
            self.curvature,
        )
        loss = problem.loss
        settings = kernels.Steps(
            NUMBER[loss],
            _BOUND[loss],
            problem.fit_intercept,
            n_steps,
            _BOLDNESS[loss],
            float(tol),
            float(rows_held),
        )
        short = np.zeros(len(pick), dtype=bool)
        if self._has_row_steps and start is None:
            short = np.diff(self.table.offsets)[pick] < self.table.n_features
        if short.any():
            X, *_, rows = kernel_rows(self.table)
            D = np.empty((short.sum(), centres.shape[1]))
            short_steps(
                X,
                rows,
                self.table.y,
                self.table.offsets,
                pick[short],
                centres,
                self.which,
                around.share,
                around.strength,
                self.scale,
                self.curvature,
                self.table.counts,
                n_steps,
                float(tol),
                *self.grams,
                D,
            )
            found.D.reshape(len(pick), -1)[short], found.b[short] = D, 0.0
            if short.all():
                return Local(pick, *found)
            rest = self.steps(
                pick[~short], centres, strength, hold=hold, unit=unit, n_steps=n_steps, tol=tol
            )
            found.D.reshape(len(pick), -1)[~short] = rest.D.reshape(len(rest.pick), -1)
            found.b[~short] = rest.b
            return Local(pick, *found)
        kernels.local_steps(
            *self._rows,
            self.table.y,
            pick,
            around,
            settings,
            (_NONE if start is None else start).ravel(),
            found,
            self.table.given,
            self.table.counts,
        )
        return Local(pick, *found)

    def _models_of_counts(self, pick, centres, strength, hold, unit):
        """`steps` to the minimum, by Newton's method: no length of a step suits all counts."""
        everybody = len(pick) == self.table.n_tasks
        share = share_of_centre(strength, hold)
        share = (share if unit is None else share * unit)[pick, None]
        around = share * centres[self.which[pick]]
        local = RidgeModels(
            self.table if everybody else table_of(self.table, pick),
            ((strength + hold) / self.scale)[pick],
            fit_intercept=self.problem.fit_intercept,
        )
        W, b = local.around(around[:, None])
        W, b = W[:, 0], b[:, 0]
        d = self.table.n_features
        columns = np.tile(np.arange(d), len(pick)) if self.table.is_sparse else _NO_INDEX
        ends = np.arange(len(pick) + 1) * d
        return Local(pick, columns, ends, (W - around).ravel(), b[:, None])


@dataclass
class Local:
    """What `CentredTasks.steps` found for a block of tasks."""

    pick: np.ndarray
    columns: np.ndarray
    ends: np.ndarray
    D: np.ndarray
    b: np.ndarray


def dense_copy(table, limit=math.inf):
    """The table with dense rows; None where they have more than `limit` numbers."""
    if not table.is_sparse:
        return table
    if table.X.shape[0] * table.X.shape[1] > limit:
        return None
    return replace(table, X=table.X.toarray().astype(np.float64, copy=False))


def share_of_centre(strength, hold):
    """Penalties towards a centre and towards zero are one, towards this fraction of the centre."""
    return strength / (strength + hold) if np.any(hold) else np.ones(len(strength))
