"""Rows that are far from the model of their task count less: loss="huber".

A task weighs its rows once (`weighted`), before anything else, so that all that follows is squared
loss with weights. Its weights are min(1, 2.5 s / |r_i|)^2, for a standard deviation s that outlying
rows do not change: nearly all rows of Gaussian noise weigh 1, and far ones vanish, as under
Student's t.
"""

from dataclasses import replace

import numpy as np

from .._runtime.jit import njit
from ..tables.table import common_scores
from .grams import largest_eigenvalues
from .ridge import RidgeModels

# Of `weighted`: rows are far from so many standard deviations on, which costs next to nothing where
# noise is Gaussian; rows beyond the second number do not count in the standard deviation. Models
# have a prior with this ratio of signal to noise, so that few rows are not interpolated.
_FAR, _LOST, _SNR, _STEPS = 2.5, 3.0, 3.0, 10
_LOST_SQUARE = 0.9733  # mean of min(z^2, 9) of a normal z, less its bias in few rows
_MAD = 1.4826


def weighted(table, fit_intercept):
    """A table whose rows weigh less the farther they are from a model of their task alone.

    Residuals are those of a ridge regression with the same weights, after `_STEPS` of both.
    """
    given = table.counts
    n = np.asarray(table.support, dtype=float)
    strength = largest_eigenvalues(table, fit_intercept) * table.n_features / (_SNR * n)
    rows, r = given, table.y - np.repeat(_medians(table, table.y), table.sizes) * fit_intercept
    with np.errstate(all="ignore"):
        for _ in range(_STEPS):
            far = np.repeat(_FAR * _scales(table, r, given), table.sizes) / np.abs(r)
            rows = given * np.minimum(np.where(np.isnan(far), 1.0, far), 1.0) ** 2
            rows = np.maximum(rows, 1e-12 * given)
            r = _residuals(replace(table, weights=rows), strength, fit_intercept)
    good = np.minimum.reduceat(np.isfinite(r) & np.isfinite(rows), table.offsets[:-1])
    rows = np.where(np.repeat(good, table.sizes), rows, given)
    masses = n if table.weights is None else table.masses
    return replace(table, weights=rows, masses=masses, loss="squared")


def _residuals(table, strength, fit_intercept):
    """Of ridge regressions with the weights of the rows, (N,)."""
    W, b = RidgeModels(table, strength, fit_intercept=fit_intercept).around()
    return table.y - common_scores(table, W)[:, 0] - np.repeat(b[:, 0], table.sizes)


def _scales(table, r, weights):
    """Standard deviations of residuals, whatever some rows are, (n_tasks,)."""
    first = np.repeat(_LOST * (_MAD * _medians(table, np.abs(r))), table.sizes)
    square, starts = np.minimum(r * r, first * first), table.offsets[:-1]
    means = np.add.reduceat(weights * square, starts) / np.add.reduceat(weights, starts)
    return np.sqrt(means / _LOST_SQUARE)


def _medians(table, values):
    """Median of every task by the weights of its rows, (n_tasks,)."""
    out = np.empty(table.n_tasks)
    order = np.lexsort((values, table.codes))
    _middles(np.ascontiguousarray(values, dtype=float), table.counts, order, table.offsets, out)
    return out


@njit
def _middles(values, weights, order, offsets, out):
    """out[k] = weighted median of the values of task k: the middle of all that halve the weights.

    `order` has the rows of every task by their values.
    """
    for k in range(out.shape[0]):
        lo, hi = offsets[k], offsets[k + 1]
        mass, below, first, last = 0.0, 0.0, -1, -1
        for i in range(lo, hi):
            mass += weights[i]
        for i in range(lo, hi):
            below += weights[order[i]]
            if first < 0 and below >= mass * (0.5 - 1e-9):
                first = order[i]
            if last < 0 and below >= mass * (0.5 + 1e-9):
                last = order[i]
        out[k] = 0.5 * (values[first] + values[last])
