"""Converters to the long form: one row per target, with its task."""

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.utils.validation import check_consistent_length

from .frames import by_position, column_labels, safe_indexing
from .ids import refuse_trailing_nul
from .sparse import checked
from .table import distinct_ids, known_labels


# -------------------------------------------------------------------------- converters
def stack_tasks(X, y: Iterable | None = None, tasks: Iterable | None = None) -> tuple:
    """One array per task -> one table with a task id for every row.

    Parameters
    ----------
    X : mapping of task to array-like, or sequence of array-like
        Features of each task, (n_samples_t, n_features), dense or sparse.
    y : mapping of task to array-like, or sequence of array-like, default=None
        Targets of each task, (n_samples_t,).
    tasks : array-like of shape (n_tasks,), default=None
        Ids of the tasks of a sequence; None numbers them from 0.

    Returns
    -------
    X : ndarray or CSR matrix of shape (n_samples, n_features)
        All rows, task after task.
    y : ndarray of shape (n_samples,), or None
        All targets.
    task : ndarray of shape (n_samples,)
        Task id of every row.

    Raises
    ------
    ValueError
        When widths or lengths do not agree, and the task is named, or when no task has rows. A
        task without rows has no place in what is returned.

    Examples
    --------
    >>> from skpmtl import stack_tasks
    >>> X, y, task = stack_tasks({"a": [[1, 2]], "b": [[3, 4], [5, 6]]}, {"a": [0], "b": [1, 0]})
    >>> X.shape, y.tolist(), task.tolist()
    ((3, 2), [0, 1, 0], ['a', 'b', 'b'])
    """
    if isinstance(X, Mapping):
        if tasks is not None:
            raise ValueError("A mapping names its tasks itself; give no tasks=.")
        if y is not None:
            if not isinstance(y, Mapping):
                raise TypeError(
                    f"X is a mapping of tasks, so y must be one too, not {type(y).__name__}."
                )
            odd = [name for name in {**X, **y} if (name in X) != (name in y)]
            if odd:
                raise ValueError(f"Task {odd[0]!r} is in only one of X and y.")
            y = [y[name] for name in X]
        tasks, X = list(X), list(X.values())
    else:
        X = list(X)
        tasks = np.arange(len(X)) if tasks is None else tasks
    if len(X) == 0:
        raise ValueError("There are no tasks in X.")
    y = None if y is None else list(y)
    check_consistent_length(X, y, tasks)
    labels = distinct_ids(tasks, "The tasks of stack_tasks")
    X = [by_position(x) for x in X]
    if y is not None:
        for target in y:
            if isinstance(target, (list, tuple)):
                refuse_trailing_nul(target, "Class labels")
        y = [np.asarray(target) for target in y]
    for k, x in enumerate(X):
        _check_task(labels[k], x, X[0], None if y is None else y[k])
    counts = [x.shape[0] for x in X]
    some = np.flatnonzero(counts)  # an empty array need not have the type of the others
    if not len(some):
        raise ValueError("No task has rows.")
    X, y = [X[k] for k in some], y and [y[k] for k in some]
    if any(sparse.issparse(x) for x in X):
        stacked = sparse.csr_matrix(sparse.vstack(X, format="csr"))
    else:
        stacked = np.concatenate([np.asarray(x) for x in X])
    target = None if y is None else np.concatenate([values.reshape(-1) for values in y])
    return stacked, target, np.repeat(labels, counts)


def _check_task(label, X, first, y):
    label = label.item()
    if len(X.shape) != 2:
        raise ValueError(
            f"X of task {label!r} has the shape {X.shape}; it must be (n_samples, n_features)."
        )
    if X.shape[1] != first.shape[1]:
        raise ValueError(
            f"X of task {label!r} has {X.shape[1]} features, but the first task has "
            f"{first.shape[1]}."
        )
    if column_labels(X) != column_labels(first):
        raise ValueError(f"X of task {label!r} has other column names than the first task.")
    if y is not None and y.shape not in [(X.shape[0],), (X.shape[0], 1)]:
        raise ValueError(f"Task {label!r} has {X.shape[0]} rows in X but y of shape {y.shape}.")


def wide_to_long(X, Y: ArrayLike, tasks: ArrayLike | None = None) -> tuple:
    """One row per unit and one outcome per column -> one row per known label.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Features; a DataFrame stays a DataFrame.
    Y : array-like of shape (n_samples, n_tasks)
        Labels, NaN or None where not known.
    tasks : array-like of shape (n_tasks,), default=None
        Ids of the tasks; None takes the column names of `Y`, or numbers from 0.

    Returns
    -------
    X : same type as X, n_labels rows
    y : ndarray of shape (n_labels,)
    task : ndarray of shape (n_labels,)
    unit : ndarray of shape (n_labels,)
        Row of the input. One unit (a person, say) now owns up to n_tasks rows, so a guarantee
        for single rows of the long table is not one for persons: accounting needs `unit`.

    Examples
    --------
    >>> import numpy as np
    >>> from skpmtl import wide_to_long
    >>> X, y, task, unit = wide_to_long([[1.0], [2.0]], [[0, np.nan], [1, 1]], tasks=["a", "b"])
    >>> y.tolist(), task.tolist(), unit.tolist()
    ([0.0, 1.0, 1.0], ['a', 'a', 'b'], [0, 1, 1])
    """
    labels = column_labels(Y, "Y") if tasks is None else tasks
    Y = np.asarray(Y)
    if Y.ndim != 2:
        raise ValueError(f"Y has the shape {Y.shape}; it must be (n_samples, n_tasks).")
    labels = np.arange(Y.shape[1]) if labels is None else distinct_ids(labels, "The tasks of Y")
    if len(labels) != Y.shape[1]:
        raise ValueError(f"tasks has {len(labels)} entries, Y has {Y.shape[1]} columns.")
    check_consistent_length(X, Y)
    unit, column = np.nonzero(known_labels(Y))
    return safe_indexing(checked(X), unit), Y[unit, column], labels[column], unit


def expand_trials(successes: ArrayLike, trials: ArrayLike) -> tuple:
    """Numbers of successes out of trials -> one row per trial.

    A row of a table that counts successes is written out, so that a classifier, with a budget or
    without one, sees what it would have seen of single trials.

    Parameters
    ----------
    successes : array-like of shape (n_rows,)
        Whole numbers from 0 to the number of trials.
    trials : array-like of shape (n_rows,)
        Whole numbers of trials, 0 or more.

    Returns
    -------
    rows : ndarray of int of shape (n_trials,)
        Position of the row that each trial belongs to.
    outcome : ndarray of int of shape (n_trials,)
        1 for a success and 0 otherwise, the successes of a row first.

    Raises
    ------
    ValueError
        For other numbers, and for different lengths.

    Examples
    --------
    >>> import skpmtl
    >>> rows, outcome = skpmtl.expand_trials([1, 0, 2], [3, 1, 2])
    >>> rows
    array([0, 0, 0, 1, 2, 2])
    >>> outcome
    array([1, 0, 0, 0, 1, 1])
    """
    won, n = check_trials(successes, trials)
    rows = np.repeat(np.arange(len(n)), n)
    place = np.arange(len(rows)) - np.repeat(np.cumsum(n) - n, n)
    return rows, (place < won[rows]).astype(np.int64)


def check_trials(successes, trials):
    """ValueError for what are no numbers of successes and trials. -> integers of both"""
    counts = []
    for name, values in (("successes", successes), ("trials", trials)):
        numbers = np.asarray(values)
        if numbers.ndim != 1 or numbers.dtype.kind not in "buif":
            raise ValueError(f"{name} must be a list of whole numbers, one for each row.")
        whole = numbers.astype(np.int64, copy=False) if np.isfinite(numbers).all() else None
        if whole is None or (whole != numbers).any() or (whole < 0).any():
            raise ValueError(
                f"{name} must be whole numbers, 0 or more: drop rows without them, and multiply "
                "shares by the trials."
            )
        counts.append(whole)
    won, n = counts
    check_consistent_length(won, n)
    if (won > n).any():
        raise ValueError("Some rows have more successes than trials: are the two exchanged?")
    return won, n
