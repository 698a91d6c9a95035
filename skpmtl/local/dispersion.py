"""Dispersion of counts: how much more their variance is than their mean, task by task."""

from dataclasses import replace

import numpy as np

from ..tables.datafits import POISSON
from .prior import LocalModels, even_root, lone_scale, weak_penalty

_POISSON_ROWS = 4.0  # that count for a variance like the mean, beside a task's own
_LOOSE = 1e-3  # Newton steps


def tempered(table, fit_intercept):
    """A table of counts whose rows weigh 1 / phi, phi >= 1 the dispersion of their task.

    Evidence then is that of a quasi-likelihood: counts that vary more than Poisson's tell less.
    phi is Pearson's statistic with its penalty, Q, of the working least squares at the task's own
    model, averaged over scales of an even prior and less its standard deviation, over degrees of
    freedom; and `_POISSON_ROWS` rows of dispersion 1 more. Other tables are returned as they are.
    """
    if table.loss != "poisson" or table.n_classes or table.weights is not None:
        return table
    settings, m = {"fit_intercept": fit_intercept}, table.n_tasks
    root, kappa = even_root(table.n_features), lone_scale(table, fit_intercept)
    with np.errstate(all="ignore"):
        local = LocalModels(table, classification=True, **settings)
        local.solve(root, kappa, _LOOSE)
        score = local.scores()
        weight, step = POISSON.working(local.table.y, score)
        mean = np.add.reduceat(weight, table.offsets[:-1]) / table.sizes
        weight /= np.repeat(mean, table.sizes)
        inner = replace(
            table, y=score + step, weights=weight, base=None, masses=None, loss="squared"
        )
        scales = np.column_stack([np.full(m, -np.inf), np.tile(-0.5 * weak_penalty(True), (m, 1))])
        squares = LocalModels(inner, classification=False, **settings)
        Q = mean * squares.average(root, np.ones(m), scales)[3]
        dof = np.maximum(table.sizes - float(fit_intercept), 0.0)
        phi = (_POISSON_ROWS + Q - np.sqrt(2.0 * dof)) / (_POISSON_ROWS + dof)
    phi = np.where(np.isfinite(phi), np.maximum(phi, 1.0), 1.0)
    masses = table.sizes.astype(float) if table.masses is None else table.masses
    return replace(table, weights=np.repeat(1.0 / phi, table.sizes), masses=masses)
