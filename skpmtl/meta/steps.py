"""Rows of tasks in the units of the rounds, and gradient steps on them from an initialisation."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from .._kernels.losses import NUMBER
from .._kernels.records import inner_steps, products_of_rows, row_steps, scaled_rows
from .._runtime.threads import cost_blocks, run_blocks
from ..solvers.grams import POWER_STEPS, largest_eigenvalues, scattered
from ..tables.table import TaskTable, table_of
from .rules import BOUND

_BLOCK = 1 << 18  # numbers of X that a thread works on at a time
_MOST = 64  # rows of a task up to which their products pay within one visit
_NO_INDEX, _NO_MARKS = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.uint8)
_NO_NOISE = np.empty((0, 0, 0, 0))


@dataclass
class RoundRows:
    """Rows of a table, with a 1 at the end where models have an intercept.

    They are scaled some tasks at a time, so that no second table is ever held but for `products`,
    which take no more than the rows.

    Attributes
    ----------
    table : TaskTable
        Of dense rows.
    fit_intercept : bool
    scaling : ndarray (2, n_features) or None
        Middles and units of the features.
    loss : {"squared", "logistic", "multinomial"}
    """

    table: TaskTable
    fit_intercept: bool
    scaling: np.ndarray | None = None
    loss: str = "squared"

    @cached_property
    def _scaling(self):
        """Middles and factors for kernels, which know no None."""
        if self.scaling is None:
            return np.empty((2, 0))
        middles, units = self.scaling
        return np.stack([middles, 1.0 / units])

    @cached_property
    def products(self):
        """Of the rows of every task that has few. -> ends, Z Z', largest eigenvalues"""
        table, sizes = self.table, self.table.sizes
        few = sizes <= min(_MOST, table.n_features) * (table.rows is None)  # not of one X for all
        ends = np.append(0, np.cumsum(np.where(few, sizes * sizes, 0)))
        K, largest = np.empty(ends[-1]), np.empty(table.n_tasks)

        def block(first, last):
            products_of_rows(
                *table.stored,
                table.offsets[first : last + 1],
                table.counts,
                self._scaling,
                self.fit_intercept,
                scattered(table.n_features),
                POWER_STEPS,
                ends[first : last + 1],
                K,
                largest[first:last],
            )

        run_blocks(block, cost_blocks(sizes * table.n_features, _BLOCK))
        return ends, K, largest

    def part(self, tasks):
        """The table of the tasks at these positions, of scaled rows in float64."""
        own = table_of(self.table, tasks)
        X = np.empty((own.offsets[-1], own.n_features))
        rows = own.places
        scaled_rows(own.X, rows, True, 0, len(rows), self._scaling, False, X)
        return replace(own, X=X, rows=None)

    def free_steps(self, pick, start, *, n_steps, rate, weights):
        """How far steps on all rows lead, without bound and noise. -> (len(pick), C, size)"""
        table, (ends, K, _) = self.table, self.products
        start = start[None] if start.ndim == 2 else start
        update = np.empty((len(pick), *start.shape[1:]))

        def block(first, last):
            row_steps(
                *self._of_tasks(pick, start, slice(first, last)),
                n_steps,
                rate,
                ends,
                K,
                update[first:last],
                weights,
            )

        run_blocks(block, cost_blocks(table.sizes[pick] * table.n_features, _BLOCK))
        others = np.flatnonzero(ends[pick] == ends[pick + 1])
        if len(others):
            given = start[others] if len(start) > 1 else start
            options = {"n_steps": n_steps, "rate": rate, "weights": weights}
            update[others] = self.steps(pick[others], given, **options)
        return update

    def _of_tasks(self, pick, start, part):
        """What all steps of a part of the tasks `pick` take first."""
        return (
            *self.table.stored,
            self.table.offsets,
            self.table.y,
            self._scaling,
            NUMBER[self.loss],
            self.fit_intercept,
            pick[part],
            start[part] if len(start) > 1 else start,
        )

    def steps(
        self,
        pick,
        start,
        *,
        n_steps,
        rate,
        weights,
        begun=0,
        clip_norm=np.inf,
        batch_size=1.0,
        n_batches=None,
        mask=_NO_MARKS,
        mask_ends=_NO_INDEX,
        noise=_NO_NOISE,
        noise_step=None,
        shrink=None,
        gradients=_NO_NOISE,
    ):
        """How far `inner_steps` lead, plain gradient descent by default. -> (len(pick), C, size)"""
        table, ones = self.table, np.ones(self.table.n_tasks)
        start = start[None] if start.ndim == 2 else start
        update = np.empty((len(pick), *start.shape[1:]))
        if n_batches is None:
            n_batches = np.ones(table.n_tasks, dtype=np.int64)

        def block(first, last):
            part = slice(first, last)
            inner_steps(
                *self._of_tasks(pick, start, part),
                float(clip_norm),
                n_steps,
                begun,
                rate,
                float(batch_size),
                n_batches,
                mask,
                mask_ends[first : last + 1],
                noise[part],
                ones if noise_step is None else noise_step,
                ones if shrink is None else shrink,
                update[part],
                gradients[part],
                weights,
            )

        run_blocks(block, cost_blocks(table.sizes[pick] * table.n_features, _BLOCK))
        return update

    def own_rates(self):
        """1 / smoothness of every task's mean loss, from its own rows."""
        table, (ends, _, largest) = self.table, self.products
        many = np.flatnonzero(ends[1:] == ends[:-1])

        def block(first, last):
            own = many[first:last]
            largest[own] = largest_eigenvalues(self.part(own), False)

        run_blocks(block, cost_blocks(table.sizes[many] * table.n_features, _BLOCK))
        smoothness = BOUND[self.loss] * (1.05 * largest / table.support + self.fit_intercept)
        return 1.0 / np.maximum(smoothness, 1e-12)

    def models(self, init, n_steps, rate):
        """`n_steps` gradient steps of every task on its mean loss. -> (n_tasks, C, size)

        Parameters
        ----------
        init : ndarray (n_outputs, size) or (n_tasks, n_outputs, size)
        rate : float or "auto"
            Length of a step; "auto": 1 / smoothness of the task's own loss.
        """
        m = self.table.n_tasks
        rate = self.own_rates() if isinstance(rate, str) else np.full(m, float(rate))
        settings = {"n_steps": n_steps, "rate": rate, "weights": even_weights(self.table)}
        return init + self.free_steps(np.arange(m), init, **settings)


def even_weights(table):
    """Weights of the rows of a table so that they are 1 in the mean of every task."""
    return table.counts * np.repeat(table.sizes / np.maximum(table.support, 1e-300), table.sizes)
