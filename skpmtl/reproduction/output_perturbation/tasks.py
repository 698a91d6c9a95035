"""The task side of output perturbation: regularised models of all tasks around public centres.

Model of task k around a public centre v_k, with Z the clipped rows (and a constant feature):

    w_k = argmin  1/n_k sum_i loss(z_i'w, y_i) + lam / 2 ||w - v_k||^2.

How far a record moves it is in ``bounds.py``. Weights w_i in [0, 1] multiply the losses. Where
numbers of rows are public (records, or groups of them, are protected) n_k is that number,
whatever the weights are: a record then moves the gradient no further than without them. Elsewhere
the sum of losses is divided by that of the weights.
"""

import numpy as np

from ..._runtime.threads import single_blas_thread
from ...exchange.protocol import TaskSide
from ...local.grams import grams, row_blocks
from ...solvers.losses import LogisticLoss, SquaredLoss
from ...tables.ids import listed
from ...tables.table import TaskTable
from .bounds import bounded

_STEPS, _HALVINGS = 200, 40
_KEPT = 1 << 20  # numbers of inverse Hessians that are kept in memory however few rows there are
_EXACT = 1e-11  # the same without privacy: gradient over its size at zero


class NewtonModels:
    """Minimisers of all tasks of a table around given centres, to a gradient that is certified.

    Rows of sparse and wide tables become dense a block of tasks at a time, and are clipped to
    `bounds`, if there are any, as are targets. With `fit_intercept` a last feature 1 is penalised
    like the others.
    """

    def __init__(self, table, *, fit_intercept, lam, bounds=None):
        self.table, self.fit_intercept, self.lam, self.bounds = table, fit_intercept, lam, bounds
        self.width = table.n_features + bool(fit_intercept)
        # One copy of long dense rows is kept; shared or sparse ones would multiply.
        keep = table.rows is None and not table.is_sparse
        self._kept = list(self._build()) if keep else None
        size = table.n_tasks * self.width**2
        small = keep and size <= max(_KEPT, table.X.size)
        self._inverses = {} if small and not table.has_log_loss else None

    def _build(self):
        table, scale = self.table, self.table.scale("equal")
        for first, last, rows, X in row_blocks(table):
            X = X.toarray() if table.is_sparse else X
            y = table.y[rows]
            if self.bounds is not None:
                X, y = self.bounds.clip(X, y)
            Z = np.column_stack([X, np.ones(len(X))]) if self.fit_intercept else X
            offsets = table.offsets[first : last + 1] - table.offsets[first]
            weights = None if table.weights is None else table.weights[rows]
            part = TaskTable(
                np.ascontiguousarray(Z), y, offsets, table.tasks[first:last], weights=weights
            )
            loss = LogisticLoss if table.has_log_loss else SquaredLoss
            yield slice(first, last), loss(part, scale[first:last], False, 0.0)

    def solve(self, centre, start=None, gradient=None):
        """Models around `centre` (n_tasks, width), by Newton's method on all tasks at once.

        From `start`, or the centre. A task stops at the norm `gradient` (n_tasks,), and one that
        does not reach it is an error; None: as far as rounding allows.
        """
        W = np.array(centre if start is None else start, dtype=float)
        with single_blas_thread():
            for part, loss in self._build() if self._kept is None else self._kept:
                if gradient is None:
                    zero = loss.evaluate(np.zeros_like(W[part]))[1]
                    own = np.linalg.norm(zero, axis=1)
                    own += self.lam * np.linalg.norm(centre[part], axis=1)
                    target, allowed = _EXACT * own, 1e-6 * own
                else:
                    target = allowed = gradient[part]
                W[part], size = self._newton(part, loss, W[part], centre[part], target)
                off = size > allowed
                if off.any():
                    # Which tasks these are would be one more release.
                    named = "" if gradient is not None else f" {listed(loss.table.tasks[off])}"
                    raise ValueError(
                        f"Newton's method did not get close enough to the models of some tasks"
                        f"{named}. Raise lam, or scale the features and max_row_norm."
                    )
        return W

    def value(self, W, centre):
        """Sum of the objectives of all tasks."""
        penalty = 0.5 * self.lam * float(np.square(W - centre).sum())
        blocks = self._build() if self._kept is None else self._kept
        return penalty + sum(loss.evaluate(W[part])[0] for part, loss in blocks)

    def _newton(self, part, loss, W, centre, target):
        """-> W, norms of the gradients."""

        def slope(W):
            gradient = self.lam * (W - centre) - loss.evaluate(W)[1]
            return gradient, np.linalg.norm(gradient, axis=1)

        gradient, size = slope(W)
        for _ in range(_STEPS):
            active = size > target
            if not active.any():
                break
            step = (self._inverse(part, loss) @ gradient[:, :, None])[:, :, 0]
            step[~active] = 0.0
            # The gradient's norm falls along Newton's direction, whatever the start.
            length = np.ones(len(W))
            for _ in range(_HALVINGS):
                new = W - length[:, None] * step
                gradient, new_size = slope(new)
                worse = active & ~(new_size <= (1.0 - 1e-4 * length) * size)
                if not worse.any():
                    break
                length[worse] *= 0.5
            W = np.where(worse[:, None], W, new)
            if worse.any():  # rounding: these tasks cannot get any further
                target = np.where(worse, np.inf, target)
                gradient, size = slope(W)
            else:
                size = new_size
        return W, size

    def _inverse(self, part, loss):
        """Inverse Hessians at the last W that `loss` was evaluated at."""
        kept = None if self._inverses is None else self._inverses.get(part.start)
        if kept is not None:
            return kept
        table, Z = loss.table, loss.table.X
        if self.table.has_log_loss:
            u = np.abs(loss._r)  # residuals: u (1 - u) is the second derivative
            if table.weights is not None:
                u /= np.where(table.weights > 0, table.weights, 1.0)
            Z = np.sqrt(u * (1.0 - u))[:, None] * Z
        H, _, _ = grams(Z, np.zeros(len(Z)), table.offsets, loss.scale, False, table.weights)
        diagonal = np.arange(self.width)
        H[:, diagonal, diagonal] += self.lam
        try:
            inverse = np.linalg.inv(H)
        except np.linalg.LinAlgError:  # columns of absurd size must not end all fits
            floor = 1e-12 * np.einsum("kjj->k", H)
            H[:, diagonal, diagonal] += np.maximum(floor - self.lam, 0.0)[:, None]
            inverse = np.linalg.inv(H)
        if self._inverses is not None:
            self._inverses[part.start] = inverse
        return inverse


class PerturbationTaskSide(TaskSide):
    """The task side of `release_average` and `release_rounds`: models around public centres.

    Rows of `models` are clipped. What bounds the models is worked out here again, from public
    numbers. Tasks of the table are at `positions` (n_tasks,) in the population.
    """

    remembers = False

    def __init__(self, models, plan, positions):
        self.models, self.plan, self.positions = models, plan, positions

    def contributions(self, query):
        """ "model": how far each task's model is from its centre, within its limit, (n, width)."""
        U, limit = self._updates(query)
        pick = slice(None) if query.pick is None else query.pick
        return {"model": bounded(U[pick], limit[pick])}

    def answer(self, query):
        # `combine` bounds them: once is enough.
        return query.combine({"model": self._updates(query)[0]}, self.positions)

    def _updates(self, query):
        """-> w - v of the tasks, their limits"""
        given, m, at = query.public["centre"], self.plan.n_tasks, self.positions
        centre = np.broadcast_to(given, (m, self.models.width))
        reach = self.plan.reach(np.linalg.norm(centre, axis=1))
        return self.models.solve(centre[at], gradient=reach.gradient[at]) - centre[at], (
            reach.limit[at]
        )


class RelationshipTaskSide(PerturbationTaskSide):
    """The same, where also a task itself is left with its noisy model."""

    def final_models(self, billboard, personalize):
        return coefficients(billboard.models[self.positions], billboard.fit_intercept)


def coefficients(models, fit_intercept):
    """Models with the intercept last (n, width) -> coefficients, intercepts."""
    if fit_intercept:
        return models[:, :-1].copy(), models[:, -1].copy()
    return models.copy(), np.zeros(len(models))
