"""Loops under the exact solvers against the memory's speed.

"gradient": the fused pass of the squared loss over the rows against adding up their numbers once,
in CPU seconds, medians, everything alternately and on one thread.
"""

import statistics
import time

import numpy as np

from skpmtl._runtime.jit import njit
from skpmtl.solvers.losses import SquaredLoss
from skpmtl.tables.table import TaskTable

from .scale import make_rows

FIELDS = ("commit", "kernel", "peer", "tasks", "rows", "features", "seconds", "ratio")
_SHAPES = ((10_000, 50, 100), (50_000, 20, 50), (200_000, 5, 20))


def _timed(peers, repeats):
    """Median CPU seconds of functions by name, measured in turn after one call each."""
    seconds = {name: [] for name in peers}
    for repeat in range(repeats + 1):
        for name, function in peers.items():
            start = time.process_time()
            function()
            if repeat:
                seconds[name].append(time.process_time() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


@njit
def read(X):
    """Sum of the numbers of X."""
    x = X.reshape(X.size)
    total = 0.0
    for i in range(x.shape[0]):
        total += x[i]
    return total


def table(m, n, d):
    X, y, task = make_rows(m, n, d)
    return TaskTable(X, y, np.arange(m + 1) * n, np.arange(m))


def measure(quick, repeats):
    """Yield rows; one thread must be set by the caller."""
    for m, n, d in ((200, 20, 30),) if quick else _SHAPES:
        shape = {"tasks": m, "rows": n, "features": d}
        for peer, value, ratio in gradient(table(m, n, d), repeats):
            yield {
                "kernel": "gradient",
                "peer": peer,
                **shape,
                "seconds": f"{value:.4g}",
                "ratio": f"{ratio:.2f}",
            }


def gradient(rows, repeats):
    """Yield (name, seconds, seconds over those of reading X once)."""
    loss = SquaredLoss(rows, 1.0 / rows.sizes, True, 0.0)
    W = np.zeros(loss.shape)
    peers = {"read": lambda: read(rows.X), "skpmtl": lambda: loss.evaluate(W)}
    seconds = _timed(peers, repeats)
    for name, value in seconds.items():
        yield name, value, value / seconds["read"]
