"""Rows that are far from the model of their task count less: loss="huber".

The objective of scikit-learn's `HuberRegressor` is, with a scale of the task's own,

    sum_i u_i (s + s H(r_i / s)) + alpha ||w||^2,   H(z) = z^2 up to |z| = 1.35, then linear.

Its minimum is one of least squares in which rows weigh u_i min(1, 1.35 s / |r_i|), with the ridge
s alpha; `huber_models` alternates between weights and models. Where tasks learn from each other, a
task weighs its rows once (`weighted`), before anything else, so that all that follows is squared
loss with weights. Its weights are min(1, 2.5 s / |r_i|)^2, for a standard deviation s that outlying
rows do not change: nearly all rows of Gaussian noise weigh 1, and far ones vanish, as under
Student's t.
"""

from dataclasses import replace

import numpy as np

from .._kernels.levels import medians
from ..tables.table import common_scores, table_of
from .grams import largest_eigenvalues
from .local import LocalModels

EPSILON = 1.35
# Of `weighted`: rows are far from so many standard deviations on, which costs next to nothing where
# noise is Gaussian; rows beyond the second number do not count in the standard deviation. Models
# have a prior with this ratio of signal to noise, so that few rows are not interpolated.
_FAR, _LOST, _SNR, _STEPS = 2.5, 3.0, 3.0, 10
_LOST_SQUARE = 0.9733  # mean of min(z^2, 9) of a normal z, less its bias in few rows
_MAD = 1.4826
_MOST_STEPS = 1000


def weighted(table, fit_intercept):
    """A table whose rows weigh less the farther they are from a model of their task alone.

    Residuals are those of a ridge regression with the same weights, after `_STEPS` of both.
    """
    given, eye = table.counts, np.ones(table.n_features)
    n = np.asarray(table.support, dtype=float)
    strength = largest_eigenvalues(table, fit_intercept) * table.n_features / (_SNR * n)
    kappa = 1.0 / np.maximum(strength, 1e-300)
    rows, r = given, table.y - np.repeat(_medians(table, table.y), table.sizes) * fit_intercept
    with np.errstate(all="ignore"):
        for _ in range(_STEPS):
            far = np.repeat(_FAR * _scales(table, r, given), table.sizes) / np.abs(r)
            rows = given * np.minimum(np.where(np.isnan(far), 1.0, far), 1.0) ** 2
            rows = np.maximum(rows, 1e-12 * given)
            r = _residuals(replace(table, weights=rows), kappa, eye, fit_intercept)[0]
    good = np.minimum.reduceat(np.isfinite(r) & np.isfinite(rows), table.offsets[:-1])
    rows = np.where(np.repeat(good, table.sizes), rows, given)
    masses = n if table.weights is None else table.masses
    return replace(table, weights=rows, masses=masses, loss="squared")


def huber_models(table, fit_intercept, strength, relative=False, tol=1e-10):
    """Minima of (1 / n) sum of u_i (s + s H(r_i / s)) / 2 + strength / 2 ||w||^2 over s, too.

    Weights of the rows are u_i, and n is their sum. `relative`: `strength` is over s, so that
    targets of any unit have the same models. -> W (n_tasks, d); b, scale (n_tasks,)
    """
    m, d = table.n_tasks, table.n_features
    W, b, scale, active = np.empty((m, d)), np.empty(m), np.empty(m), np.arange(m)
    part, state = table, _first(table, fit_intercept)
    for _ in range(_MOST_STEPS):
        r, s = state
        each, mass = np.repeat(s, part.sizes), np.add.reduceat(part.counts, part.offsets[:-1])
        rows = part.counts * np.minimum(1.0, EPSILON * each / np.maximum(np.abs(r), 1e-300))
        ridge = strength[active] * mass * (1.0 if relative else s)
        kappa = 1.0 / np.maximum(ridge, 1e-300)
        weighing = replace(part, weights=rows)
        new, W[active], b[active] = _residuals(weighing, kappa, np.ones(d), fit_intercept)
        square = np.minimum(new**2, (EPSILON * each) ** 2)
        scale[active] = after = np.maximum(
            np.sqrt(_means(part, square, part.counts, mass)), _floor(part)
        )
        moved = np.maximum.reduceat(np.abs(new - r), part.offsets[:-1])
        on = np.maximum(moved, np.abs(after - s)) > tol * after
        state = new, after
        if not on.any():
            break
        if not on.all():  # a task ends by itself
            active, state = active[on], (new[np.repeat(on, part.sizes)], after[on])
            part = table_of(part, np.flatnonzero(on))
    return W, b, scale


def _first(table, fit_intercept):
    """Residuals of no slopes, and their scales."""
    r = table.y - np.repeat(_medians(table, table.y), table.sizes) * fit_intercept
    spread = np.sqrt(np.maximum.reduceat(r * r, table.offsets[:-1]))
    return r, np.maximum(_mad(table, r) + 1e-3 * spread, _floor(table))


def _floor(table):
    """Least scales, of rounding."""
    return 1e-10 * np.maximum.reduceat(np.abs(table.y), table.offsets[:-1]) + 1e-200


def _residuals(table, kappa, root, fit_intercept):
    """Of ridge regressions with the weights of the rows. -> residuals, W, b"""
    W, b = LocalModels(table, fit_intercept=fit_intercept).solve(root, kappa)
    return table.y - common_scores(table, W[:, None])[:, 0] - np.repeat(b, table.sizes), W, b


def _scales(table, r, weights):
    """Standard deviations of residuals, whatever some rows are, (n_tasks,)."""
    first = np.repeat(_LOST * _mad(table, r), table.sizes)
    mass = np.add.reduceat(weights, table.offsets[:-1])
    square = np.minimum(r * r, first * first)
    return np.sqrt(_means(table, square, weights, mass) / _LOST_SQUARE)


def _means(table, values, weights, mass):
    return np.add.reduceat(weights * values, table.offsets[:-1]) / mass


def _mad(table, r):
    return _MAD * _medians(table, np.abs(r))


def _medians(table, values):
    """Median of every task by the weights of its rows, (n_tasks,)."""
    out = np.empty(table.n_tasks)
    order = np.lexsort((values, table.codes))
    medians(np.ascontiguousarray(values, dtype=float), table.counts, order, table.offsets, out)
    return out
