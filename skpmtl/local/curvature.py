"""Largest curvature of the loss of a task, the unit of step lengths and penalties."""

import numpy as np

from .._kernels.rows import curvatures
from .._runtime.registers import LANES, up
from .._runtime.threads import run_blocks, task_blocks
from ..tables.table import read_only

_POWER_STEPS = 15
_BLOCK = 1 << 20  # numbers of X that a thread passes over at a time
_NEAR = 1 << 15  # numbers of a task that stay in the cache while it is worked on


def kernel_rows(table):
    """(X, data, indices, indptr, rows) of a table, dense or CSR, as `_kernels.rows` takes them."""
    if table.is_sparse:
        return read_only(np.empty((0, table.n_features))), *table.csr, table.places
    return table.X, None, None, None, table.places


def largest_eigenvalues(table, centre):
    """Of X_k' X_k (with weights) of all tasks, from below; `centre`: of rows less their mean."""
    rows, out = kernel_rows(table), np.empty(table.n_tasks)

    def block(first, last):
        ends = table.offsets[first : last + 1]
        scratch = _scratch(table, np.diff(ends).max())
        curvatures(*rows, ends, centre, _POWER_STEPS, *scratch, out[first:last], table.counts)

    run_blocks(block, task_blocks(table.offsets, table.n_features, _BLOCK))
    return out


def _scratch(table, longest):
    """(place, columns, near, lines, Z) of the kernel, for tasks of `longest` rows at most."""
    d = table.n_features
    R = up(d, LANES)
    near = max(_NEAR // max(R, 1) // 2 * 2, 2)
    lines = np.zeros((3, R))
    if table.is_sparse:
        return np.full(d, -1), np.empty(d, dtype=np.int64), near, lines, np.empty((0, R))
    return None, None, near, lines, np.zeros((min(longest, near) + 1, R))
