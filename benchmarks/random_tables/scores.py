"""Classes and counts on random tables, with log-losses and deviances, and two references.

Targets of the tables of `law` are cut into two to four classes at random quantiles of all rows, or
are rates of counts. The references are the shares of classes (the mean rate) of all rows of the
fit, and those of every task, shrunk by one row of them.
"""

import math

import numpy as np

from .law import log_uniform


def with_classes(table):
    """The table with classes 0, 1, ... of its targets."""
    rng = np.random.default_rng([20261130, table.seed])
    cuts = np.sort(rng.uniform(0.1, 0.9, rng.choice([1, 1, 2, 3])))
    ends = np.quantile(np.concatenate([table.y, table.y_test]), cuts)
    table.y, table.y_test = (np.searchsorted(ends, y) for y in (table.y, table.y_test))
    return len(cuts) + 1


def with_counts(table):
    """The table with counts, whose log rates are its targets, scaled and moved."""
    rng = np.random.default_rng([20261130, table.seed])
    y = np.concatenate([table.y, table.y_test])
    centre, scale = np.median(y), np.subtract(*np.quantile(y, [0.75, 0.25])) or y.std() or 1.0
    size, level = log_uniform(rng, 0.2, 1.0), math.log(log_uniform(rng, 0.2, 50.0))
    for name in ("y", "y_test"):
        score = np.clip((getattr(table, name) - centre) / scale, -3.0, 3.0)
        setattr(table, name, rng.poisson(np.exp(level + size * score)))
    return 0


def mean_loss(table, predicted, judged, n_classes):
    """Log-loss of probabilities (n, C), or half of the mean deviance of rates (n,)."""
    y, p = table.y_test[judged], np.maximum(predicted[judged], 1e-12)
    if n_classes:
        return float(-np.log(p[np.arange(len(y)), y]).mean())
    saturated = np.where(y > 0, y * np.log(np.maximum(y, 1) / p), 0.0)
    return float((saturated - y + p).mean())


def references(table, n_classes):
    """Predictions of the shares, or the rate, of all rows, and of those of every task."""
    Y = np.eye(n_classes)[table.y] if n_classes else table.y[:, None].astype(float)
    every = np.maximum(Y.mean(axis=0), 1e-3)
    sums = np.stack([np.bincount(table.task, row, table.n_tasks) for row in Y.T], axis=1)
    n = np.bincount(table.task, minlength=table.n_tasks)[:, None]
    own = (sums + every) / (n + 1)
    shape = (len(table.y_test), n_classes) if n_classes else (len(table.y_test),)
    base = np.broadcast_to(every, (len(table.y_test), len(every)))
    return [base.reshape(shape), own[table.task_test].reshape(shape)]
