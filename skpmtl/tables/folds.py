"""Folds within tasks, and the tables of their rows."""

import warnings
from dataclasses import replace
from numbers import Integral

import numpy as np
from sklearn.model_selection import check_cv

from .assignment import deal
from .targets import class_codes, class_targets
from .weights import in_rows

__all__ = ["folds_of", "some_rows"]


def folds_of(table, cv):
    """Folds of the labelled rows of a table. -> list of masks (train, test), each (N,)

    A number `cv` deals out the rows of every task (`deal`); where all tasks know all rows of one X,
    these rows. Anything else splits the rows of X as they were given (of a mapping, task after
    task); of rows that have one task each it gets targets, as numbers, and tasks, as groups. Raises
    ValueError for fewer than two folds, more than rows, and folds without rows to train on or to
    test.
    """
    wide, n_rows = table.rows is not None, table.X.shape[0]
    place = table.rows if wide else table.order
    place = np.arange(n_rows) if place is None else place
    listed = not isinstance(cv, Integral) and not hasattr(cv, "split")
    if not wide and not listed and place.max() >= n_rows:  # rows without weight were dropped
        place = np.argsort(np.argsort(place))
    codes = class_codes(table.y, table.n_classes) if table.n_classes else None
    if isinstance(cv, Integral):
        if not 2 <= cv <= table.n_rows:
            raise ValueError(
                f"cv={cv} must be a number of folds from 2 to that of the rows: there are "
                f"n_samples={table.n_rows}."
            )
        complete = wide and table.n_rows == n_rows * table.n_tasks
        labels = table.y if codes is None else codes
        fold = place % cv if complete else deal(table.codes, table.tasks, cv, labels=labels)
        folds = [(fold != k, fold == k) for k in range(cv)]
    else:
        y = groups = None
        if not wide and not listed:
            y, groups = np.empty(n_rows), np.empty(n_rows, dtype=table.tasks.dtype)
            y[place] = table.y if codes is None else codes
            groups[place] = table.tasks[table.codes]  # ids: splitters draw by them
        with warnings.catch_warnings():  # of splitters that do not ask for groups
            warnings.filterwarnings("ignore", "The groups parameter is ignored")
            splits = list(check_cv(cv).split(np.zeros((n_rows, 1)), y, groups))
        folds = []
        for sides in splits:  # listed rows may be without weight: those are not in the table
            sides = [np.asarray(rows) for rows in sides]
            sides = [np.flatnonzero(rows) if rows.dtype == bool else rows for rows in sides]
            folds.append(tuple(np.isin(place, rows) for rows in sides))
    if not folds or not all(side.any() for sides in folds for side in sides):
        raise ValueError("Each fold of cv= needs rows to train on and rows to test.")
    return folds


def some_rows(table, keep, *, spread):
    """The table of the rows of a mask (N,), and positions of the tasks that keep some.

    `spread`, of classes: whether labels are spread where a task lacks one among these rows, see
    `class_targets`.
    """
    counts = np.bincount(table.codes[keep], minlength=table.n_tasks)
    tasks = np.flatnonzero(counts)
    offsets, weights = np.concatenate([[0], np.cumsum(counts[tasks])]), table.given_weights
    X, rows = table.X, None
    if table.rows is None:
        X = X[keep]
    else:
        used, rows = np.unique(table.rows[keep], return_inverse=True)
        X, rows = (X, table.rows[keep]) if len(used) == X.shape[0] else (X[used], rows)
    labels = table.tasks[tasks]
    own = {"offsets": offsets, "tasks": labels, "rows": rows, "order": None, "absent": ()}
    own |= {"weights": None if weights is None else weights[keep], "masses": None}
    own["levels"] = None if table.levels is None else table.levels[keep]
    part = in_rows(replace(table, X=X, y=table.y[keep], **own))
    if table.n_classes:
        codes, known = class_codes(part.y, table.n_classes), part.support
        y = class_targets(codes, offsets, table.n_classes, spread=spread, support=known)
        part = replace(part, y=y)
    return part, tasks
