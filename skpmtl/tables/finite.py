"""Numbers far out of range: every fitted model is finite.

In a private fit nobody may learn from an error or a warning what one task's rows are. Its values
are therefore set to public bounds, wide enough for all data that mean something, and a model that
still overflows is replaced by one that the task knows without its rows.
"""

from dataclasses import replace

import numpy as np
from scipy import sparse

from .ids import listed

LARGEST = 1e30  # bound on features and targets: their powers in the solvers stay finite


def _within(values):
    """Whether all are within the bound; two passes without memory, or one where it is easy."""
    flat = values.reshape(-1)
    with np.errstate(all="ignore"):
        # Within the bound if their squares add up to no more than its square.
        if flat.dtype == np.float64 and flat @ flat <= LARGEST**2:
            return True
        # Of float32, 1e30 is a little more.
        largest = np.float32(LARGEST) if flat.dtype == np.float32 else LARGEST
        return not flat.size or bool(max(flat.max(), -flat.min()) <= largest)


def bound_values(table):
    """A table whose features and targets are within the public bound; itself if they are."""
    values = table.X.data if sparse.issparse(table.X) else table.X
    if not _within(values):
        values = np.clip(values, -LARGEST, LARGEST)
        if sparse.issparse(table.X):
            X = table.X
            values = type(X)((values, X.indices, X.indptr), shape=X.shape)
        table = replace(table, X=values)
    if not _within(table.y):
        table = replace(table, y=np.clip(table.y, -LARGEST, LARGEST))
    return table


def check_values(table):
    """ValueError that names the features, or the tasks of targets, beyond the bound."""
    X = table.X
    if not _within(X.data if sparse.issparse(X) else X):
        if sparse.issparse(X):
            columns = np.unique(X.indices[np.abs(X.data) > LARGEST])
        else:
            columns = np.flatnonzero(np.maximum(X.max(axis=0), -X.min(axis=0)) > LARGEST)
        raise ValueError(
            f"X holds numbers beyond {LARGEST:g} in column(s) {listed(columns)} (not counting a "
            "task column). Rescale these features, or drop the rows."
        )
    if not _within(table.y):
        tasks = table.tasks[np.unique(table.codes[np.abs(table.y) > LARGEST])]
        raise ValueError(
            f"y holds numbers beyond {LARGEST:g} in task(s) {listed(tasks)}. Rescale the targets, "
            "or drop the rows."
        )


def run_away(lengths, everybody):
    """Whether rounds without noise diverged, by the lengths of their updates.

    The last one is then the longest, or near it, and many times the median. `everybody`: whether
    all tasks took part; otherwise updates differ by who did.
    """
    if not lengths or not np.isfinite(lengths).all():
        return bool(lengths)
    grown = lengths[-1] > (10.0 if everybody else 1e3) * np.median(lengths)
    return bool(grown and 2.0 * lengths[-1] >= max(lengths))


def all_finite(*arrays):
    """Whether no entry is NaN or infinite: the sum tells, and where it overflows a mask."""
    with np.errstate(all="ignore"):
        return all(np.isfinite(a.sum()) or np.isfinite(a).all() for a in arrays)


def finite_models(coef, intercept, mean=(None, None)):
    """Models of the tasks, with those that are not finite replaced.

    Parameters
    ----------
    coef : ndarray (n_tasks, ...)
    intercept : ndarray (n_tasks, ...)
    mean : tuple of coef (...) and intercept (...), default=(None, None)
        Released model that takes their place; None: zero.

    Returns
    -------
    coef, intercept : ndarray
        Those given, where all are finite.
    """
    if all_finite(coef, intercept):
        return coef, intercept
    m = len(coef)
    bad = ~(
        np.isfinite(coef).reshape(m, -1).all(axis=1)
        & np.isfinite(intercept).reshape(m, -1).all(axis=1)
    )
    coef, intercept = coef.copy(), intercept.copy()
    coef[bad], intercept[bad] = (0.0 if part is None else part for part in mean)
    return coef, intercept
