"""The pooled model by rounds: one level and the same slopes for all tasks.

Rows get a column of ones, so that levels show a mean of the slopes, and columns that are constant
inside of tasks show themselves. In round t every task sends its clipped update, from the pooled
model theta to the minimum of its loss about it,

    theta <- theta + (1 / m) (sum_k clip(prox_k(theta) - theta, C_t) + noise),

on targets (y - c) / B, where a window (c, B) holds most levels: it is a unit, and targets are not
clipped. Bounds fall to zero, so that the last rounds add little noise, and sum to the `path`.
"""

from dataclasses import replace

import numpy as np
from scipy import sparse

from ..local.centred import CentredTasks, Problem
from ..local.grams import are_few
from ..local.updates import ProximalUpdates
from ..tables.table import array_in_file

N_ROUNDS, PLAIN_ROUNDS = 30, 100
_PLAIN_PATH = 30.0  # without noise
_STEPS, _TOL = 12, 1e-3  # of updates that are not exact
# To the pooled model, as a fraction of the curvature of a task. Models of separable classes would
# go far from it: their mean is no pooled model.
_STRENGTH, _STRENGTH_OF_CLASSES = 0.05, 0.3
# Without noise: the same over the rows of a task, and the size of the column of ones.
_EXACT_ROWS, _EXACT_ROWS_OF_CLASSES, _FREE_LEVELS = 5.0, 15.0, 4.0
_EVEN = 10.0  # median variances of features, which the curvature is at most with `levels`


def bounds_of(ratio, fraction, least=2.0):
    """Bounds on the updates of all rounds, in units of the window.

    `ratio` is the number of tasks times mu over the root of the numbers of a model, infinite
    without noise; the path is a `fraction` of it. `least` is the length of the path with little
    budget.
    """
    if not np.isfinite(ratio):
        n_rounds, path = PLAIN_ROUNDS, _PLAIN_PATH
    else:
        n_rounds, path = N_ROUNDS, float(np.clip(fraction * ratio, min(least, 0.2 * ratio), 20.0))
    falling = 1.0 - np.arange(n_rounds) / n_rounds
    return falling / falling.sum() * path


def with_ones(table, scale, offset=None, one=1.0):
    """The table with a first column of ones, and features less an offset over their scale.

    Of a memory map the rows are in a temporary file: memory may not hold them. The first column
    has the number `one`.
    """
    X, dtype = table.X, table.X.dtype
    if sparse.issparse(X):
        ones = sparse.csr_matrix(np.full((X.shape[0], 1), one, dtype=dtype))
        return replace(table, X=sparse.hstack([ones, X / scale], format="csr"))
    make = array_in_file if table.on_disk else np.empty
    wide = make((X.shape[0], X.shape[1] + 1), dtype)
    wide[:, 0], features = one, wide[:, 1:]
    if offset is not None and offset.any():
        X = np.subtract(X, offset, out=features, casting="same_kind")
    np.divide(X, scale, out=features, casting="same_kind")
    return replace(table, X=wide)


class PooledUpdates:
    """What the tasks of a table of real targets or two classes send in the rounds.

    With `levels`, features that are far larger than most, or far from 0, do not set the strength:
    the others would hardly move. `exact`: without noise tasks of few rows follow the pooled model
    more, and their levels less. `related`: each task has a pooled model of its own.
    """

    def __init__(self, table, levels=None, exact=False, related=False):
        self.table, self.levels, self.exact, self._made = table, levels, exact, (None, None)
        self.which = np.arange(table.n_tasks) if related else None

    def at(self, theta, middle, unit, scale, offset=None):
        """Updates of all tasks before they are clipped, (n_tasks, d + 1).

        Of a model of (y - middle) / unit by features less `offset` over `scale`.
        """
        updates = self.within(middle, unit, scale, offset)
        if not self.exact:
            return updates.at(theta)
        units = np.append(1.0 / _FREE_LEVELS, np.ones(theta.shape[1] - 1))
        return updates.at(theta * units) / units

    def within(self, middle, unit, scale, offset=None):
        """`ProximalUpdates` of targets and features in these units."""
        asked = middle, unit, scale, None if offset is None else offset.tobytes()
        if self._made[0] != asked:
            self._made = None, None  # one copy of the rows at a time
            self._made = asked, self._updates(middle, unit, scale, offset)
        return self._made[1]

    def _updates(self, middle, unit, scale, offset):
        table = self.table
        loss = "logistic" if table.n_classes else table.loss
        if loss == "poisson":  # `unit` is 1
            base = 0.0 if table.base is None else table.base
            table = replace(table, base=base + np.full((table.n_rows, 1), middle))
        # A triangle of d (d + 1) / 2 numbers, which is all that a round reads, is less than n rows
        # of d. Matrices of rows have loops of their own, which a small table need not compile.
        d = table.n_features + 1
        least = 1 if are_few(table, d) else (d + 1) // 2
        problem = Problem(loss, 1, False)

        def centred_tasks(one):
            wide = with_ones(table, scale, offset, one)
            return CentredTasks(wide, problem, self.which, least=least)

        centred = centred_tasks(1.0)
        strength, rows = _STRENGTH, _EXACT_ROWS
        if table.has_log_loss:
            strength, rows = _STRENGTH_OF_CLASSES, _EXACT_ROWS_OF_CLASSES
        curvature = centred.smoothness
        if self.levels is not None:
            most = _EVEN * self.levels.variances() / scale**2
            curvature = np.fmin(curvature, most * centred.bends)
        if self.exact:
            strength = strength + rows / table.support
            centred = None  # one copy of the rows at a time
            centred = centred_tasks(_FREE_LEVELS)
        centred.prox_strength = np.maximum(strength * curvature, 1e-8)
        if loss == "squared":
            centred = centred.with_targets((table.y - middle) / unit)
        return ProximalUpdates(centred, n_steps=_STEPS, tol=_TOL)
