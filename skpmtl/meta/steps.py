"""Gradient steps of tasks from an initialisation on their own rows."""

from dataclasses import replace

import numpy as np

from .._kernels.losses import NUMBER
from .._kernels.records import inner_steps, record_norms
from .._kernels.rows import curvatures
from .._runtime.registers import LANES
from .._runtime.threads import cost_blocks, run_blocks
from ..tables.table import padded, rows_of, table_of
from .rules import BOUND

_BLOCK = 1 << 18  # numbers of X that a thread works on at a time
_POWER_STEPS, _NEAR = (
    15,
    64,
)  # steps to a largest eigenvalue, rows of a task that are near at a time
_NO_INDEX, _NO_MARKS = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.uint8)
_NO_NOISE = np.empty((0, 0, 0, 0))


def scaled_part(table, tasks, scaling):
    """The table of the tasks at these positions, whose features are scaled; None: as they are.

    Rows are scaled some tasks at a time, so that no second table is ever held.
    """
    part = table_of(table, tasks)
    if scaling is None:
        return part
    X = part.X if part.rows is None else part.X[part.rows]
    return replace(part, X=_scaled_rows(X, scaling), rows=None)


def _scaled_rows(X, scaling):
    if scaling is None:
        return X
    X = X - scaling[0].astype(X.dtype)
    X /= scaling[1].astype(X.dtype)
    X.flags.writeable = False  # as those of tables, for which loops are compiled
    return X


def gradient_steps(table, scaling, loss, init, fit_intercept, n_steps, rate):
    """`n_steps` gradient steps of every task on its mean loss. -> models (n_tasks, C, size)

    Parameters
    ----------
    table : TaskTable
    scaling : ndarray (2, n_features) or None
        Units of features in which steps are taken.
    loss : {"squared", "logistic", "multinomial"}
    init : ndarray (n_outputs, size) or (n_tasks, n_outputs, size)
    rate : float or "auto"
        Length of a step; "auto": 1 / smoothness of the task's own loss.
    """
    m = table.n_tasks
    out = np.empty((m, *init.shape[-2:]))
    if isinstance(rate, str):
        rate = own_rates(table, scaling, loss, fit_intercept)
    run_inner(
        table,
        scaling,
        loss,
        fit_intercept,
        np.arange(m),
        init,
        out,
        n_steps=n_steps,
        rate=np.broadcast_to(np.float64(rate), m),
        weights=even_weights(table),
    )
    return out + init


def run_inner(
    table,
    scaling,
    loss,
    fit_intercept,
    pick,
    start,
    update,
    *,
    n_steps,
    rate,
    weights,
    begun=0,
    clip_norm=np.inf,
    norms=None,
    batch_size=1.0,
    n_batches=None,
    mask=_NO_MARKS,
    mask_ends=None,
    noise=None,
    noise_step=None,
    shrink=None,
    gradients=_NO_NOISE,
):
    """`inner_steps` of the rows of a table, plain gradient descent by default."""
    m, start = table.n_tasks, start[None] if start.ndim == 2 else start
    if norms is None:
        norms = np.ones(len(table.X))  # read for clipping only
    n_batches = np.ones(m, dtype=np.int64) if n_batches is None else n_batches
    noise_step = np.ones(m) if noise_step is None else noise_step
    shrink, rate = np.ones(m) if shrink is None else shrink, np.array(rate)

    def block(first, last):
        part = slice(first, last)
        mine = start[part] if len(start) > 1 else start
        own, at, by_x, by_row = table, pick[part], norms, weights
        by_task = [rate, n_batches, noise_step, shrink]
        if scaling is not None:
            rows, own = rows_of(table.offsets, at)[0], scaled_part(table, at, scaling)
            by_x, by_row = norms[table.places[rows]], weights[rows]
            by_task, at = [values[at] for values in by_task], np.arange(last - first)
        inner_steps(
            own.X,
            _NO_INDEX if own.rows is None else own.rows,
            own.rows is not None,
            own.offsets,
            own.y,
            by_x,
            NUMBER[loss],
            fit_intercept,
            at,
            mine,
            float(clip_norm),
            n_steps,
            begun,
            by_task[0],
            float(batch_size),
            by_task[1],
            mask,
            _NO_INDEX if mask_ends is None else mask_ends[first : last + 1],
            _NO_NOISE if noise is None else noise[part],
            *by_task[2:],
            update[part],
            gradients[part],
            by_row,
        )

    run_blocks(block, cost_blocks(table.sizes[pick] * table.n_features, _BLOCK))


def even_weights(table):
    """Weights of the rows of a table so that they are 1 in the mean of every task."""
    return table.counts * np.repeat(table.sizes / np.maximum(table.support, 1e-300), table.sizes)


def row_norms(X, scaling, fit_intercept):
    """|(x, 1)| of every row of scaled features, or |x| without intercept."""
    norms, step = np.empty(len(X)), max(_BLOCK // X.shape[1], 1)
    run_blocks(
        lambda part: record_norms(_scaled_rows(X[part], scaling), fit_intercept, norms[part]),
        [(slice(first, first + step),) for first in range(0, len(X), step)],
    )
    return norms


def own_rates(table, scaling, loss, fit_intercept):
    """1 / smoothness of every task's mean loss, from its own rows of scaled features."""
    largest, width = np.empty(table.n_tasks), padded(table.n_features, LANES)

    def block(first, last):
        own = scaled_part(table, np.arange(first, last), scaling)
        curvatures(
            own.X,
            *(None, None, None),
            own.places,
            own.offsets,
            False,
            _POWER_STEPS,
            *(None, None),
            _NEAR,
            np.zeros((3, width)),
            np.zeros((_NEAR + 1, width)),
            largest[first:last],
            own.counts,
        )

    run_blocks(block, cost_blocks(table.sizes * table.n_features, _BLOCK))
    smoothness = BOUND[loss] * (1.05 * largest / table.support + fit_intercept)
    return 1.0 / np.maximum(smoothness, 1e-12)
