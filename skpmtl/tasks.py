"""Tasks as data: one table of rows sorted by task, and converters to the long form."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_consistent_length

from ._compat import safe_indexing
from ._ids import encode_ids, factorize, listed, refuse_trailing_nul
from ._sparse import checked

__all__ = ["SingleTaskWarning", "TaskTable", "stack_tasks", "wide_to_long"]


class SingleTaskWarning(UserWarning):
    """No task information was given; all rows were taken as one task."""


@dataclass(frozen=True, eq=False)
class TaskTable:
    """Rows sorted by task: the only shape data has below the input layer.

    Parameters
    ----------
    X : ndarray (n, d) of float64 or float32 in C order, or CSR matrix of float64
        Features, without the task; an array is kept as a view that cannot be written. It is
        float32 where `dtype` asks for it and tasks do not share X. Estimators with
        ``_sparse_in_place`` get CSR input as it is, which may be float32.
    y : ndarray (N,) or None
        Targets of the N labelled rows, sorted by task; -1.0 and +1.0 in binary classification.
    offsets : ndarray (m + 1,) of int64
        Rows of task k are ``offsets[k]:offsets[k + 1]``; no task is empty.
    tasks : ndarray (m,)
        Labels of the tasks, sorted.
    rows : ndarray (N,) of int64, default=None
        Table row i is ``X[rows[i]]``: wide form, where all tasks share X, or CSR input that was
        not copied. None: it is ``X[i]``.
    order : ndarray (N,) of int64, default=None
        Long form: table row i was input row ``order[i]``. None: the input was sorted.
    n_classes : int, default=0
        Of a classification with encoded targets, whether or not all of them are in `y`.
    """

    X: object
    y: np.ndarray | None
    offsets: np.ndarray
    tasks: np.ndarray
    rows: np.ndarray | None = None
    order: np.ndarray | None = None
    n_classes: int = 0

    def __post_init__(self):
        # Compiled loops know one kind of each array: numba takes one that cannot be written, from
        # a memory map or a process of joblib, or one with gaps, from np.nonzero, for another type,
        # and would compile them again.
        if isinstance(self.X, np.ndarray):
            object.__setattr__(self, "X", read_only(self.X))
        if isinstance(self.y, np.ndarray) and not self.y.flags.writeable:
            object.__setattr__(self, "y", self.y.copy())
        object.__setattr__(self, "offsets", np.require(self.offsets, requirements=["C", "W"]))
        if self.rows is not None:
            object.__setattr__(self, "rows", np.require(self.rows, requirements=["C", "W"]))

    def __setstate__(self, state):  # what a pickle gives back can be written
        self.__dict__.update(state)
        self.__post_init__()

    @property
    def n_tasks(self):
        return len(self.tasks)

    @property
    def n_rows(self):
        return int(self.offsets[-1])

    @property
    def n_features(self):
        return self.X.shape[1]

    @property
    def sizes(self):
        """Rows of each task, (m,)."""
        return np.diff(self.offsets)

    @property
    def codes(self):
        """Position of the task of each row, (N,)."""
        return np.repeat(np.arange(self.n_tasks), self.sizes)

    @property
    def is_sparse(self):
        return sparse.issparse(self.X)

    @property
    def csr(self):
        """Values, columns and row ends of CSR rows, not to be written."""
        return tuple(read_only(part) for part in (self.X.data, self.X.indices, self.X.indptr))

    @property
    def on_disk(self):
        """Whether X is a memory map, which may be larger than what can be kept beside it."""
        X = self.X
        while isinstance(X, np.ndarray) and not isinstance(X, np.memmap):
            X = X.base
        return isinstance(X, np.memmap)

    def task(self, k):
        """Features and targets of the task at position k; views where possible."""
        part = slice(self.offsets[k], self.offsets[k + 1])
        X = self.X[part if self.rows is None else self.rows[part]]
        return X, None if self.y is None else self.y[part]

    def input_row(self, i):
        """Row of the input that became table row i."""
        if self.rows is not None:
            return int(self.rows[i])
        return int(i if self.order is None else self.order[i])


def read_only(a):
    """A view of an array that cannot be written, which is how kernels receive features."""
    a = a.view()
    a.flags.writeable = False
    return a


# -------------------------------------------------------------------------- converters
def stack_tasks(X, y=None, tasks=None):
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
        When a task has no rows, or widths or lengths do not agree; the task is named.

    Examples
    --------
    >>> from skpmtl.tasks import stack_tasks
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
    X = [checked(x) for x in X]
    X = [x if sparse.issparse(x) or hasattr(x, "columns") else np.asarray(x) for x in X]
    if y is not None:
        for target in y:
            if isinstance(target, (list, tuple)):
                refuse_trailing_nul(target, "Class labels")
        y = [np.asarray(target) for target in y]
    for k, x in enumerate(X):
        _check_task(labels[k], x, X[0], None if y is None else y[k])
    counts = [x.shape[0] for x in X]
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
    if X.shape[0] == 0:
        raise ValueError(f"Task {label!r} has no rows; leave it out.")
    if X.shape[1] != first.shape[1]:
        raise ValueError(
            f"X of task {label!r} has {X.shape[1]} features, but the first task has "
            f"{first.shape[1]}."
        )
    if list(getattr(X, "columns", [])) != list(getattr(first, "columns", [])):
        raise ValueError(f"X of task {label!r} has other column names than the first task.")
    if y is not None and y.shape not in [(X.shape[0],), (X.shape[0], 1)]:
        raise ValueError(
            f"Task {label!r} has {X.shape[0]} rows in X but y of shape {y.shape}."
        )


def wide_to_long(X, Y, tasks=None):
    """One row per unit and one outcome per column -> one row per known label.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Features; a frame stays a frame.

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
    >>> from skpmtl.tasks import wide_to_long
    >>> X, y, task, unit = wide_to_long([[1.0], [2.0]], [[0, np.nan], [1, 1]], tasks=["a", "b"])
    >>> y.tolist(), task.tolist(), unit.tolist()
    ([0.0, 1.0, 1.0], ['a', 'a', 'b'], [0, 1, 1])
    """
    labels = column_labels(Y) if tasks is None else tasks
    Y = np.asarray(Y)
    if Y.ndim != 2:
        raise ValueError(f"Y has the shape {Y.shape}; it must be (n_samples, n_tasks).")
    labels = np.arange(Y.shape[1]) if labels is None else distinct_ids(labels, "The tasks of Y")
    if len(labels) != Y.shape[1]:
        raise ValueError(f"tasks has {len(labels)} entries, Y has {Y.shape[1]} columns.")
    check_consistent_length(X, Y)
    unit, column = np.nonzero(known_labels(Y))
    return safe_indexing(checked(X), unit), Y[unit, column], labels[column], unit


def known_labels(Y):
    """Mask of the entries of an array that are not NaN or None."""
    if Y.dtype.kind == "f":
        return ~np.isnan(Y)
    if Y.dtype.kind != "O":
        return np.ones(Y.shape, dtype=bool)
    return (factorize(Y.ravel())[0] >= 0).reshape(Y.shape)


def column_labels(Y):
    return list(Y.columns) if hasattr(Y, "columns") else None


def distinct_ids(labels, what):
    """Ids in the order given; ValueError when one occurs twice."""
    codes, distinct = encode_ids(labels)
    twice = np.flatnonzero(np.bincount(codes) > 1)
    if len(twice):
        raise ValueError(f"{what} contain {listed(distinct[twice])} more than once.")
    return distinct[codes]
