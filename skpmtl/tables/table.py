"""Tasks as data: one table of rows sorted by task, and converters to the long form."""

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
from scipy import sparse

from .ids import encode_ids, factorize, listed

__all__ = [
    "SingleTaskWarning",
    "TaskTable",
]


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
        Targets of the N labelled rows, sorted by task; of classes as `class_targets` makes them.
    offsets : ndarray (m + 1,) of int64
        Rows of task k are ``offsets[k]:offsets[k + 1]``; no task is empty, see `absent`.
    tasks : ndarray (m,)
        Labels of the tasks, sorted.
    rows : ndarray (N,) of int64, default=None
        Table row i is ``X[rows[i]]``: wide form, where all tasks share X, or CSR input that was
        not copied. None: it is ``X[i]``.
    order : ndarray (N,) of int64, default=None
        Long form: table row i was input row ``order[i]``. None: the input was sorted.
    n_classes : int, default=0
        Of a classification with encoded targets, whether or not all of them are in `y`.
    absent : ndarray (a,), default=()
        Labels of the listed tasks without rows, sorted. They contribute nothing.
    weights : ndarray (N,) of float64, default=None
        How much rows count, see `skpmtl.tables.weights`: those of a task add up to its `support`;
        where records are protected they are what users gave. None: all count the same.
    masses : ndarray (m,), default=None
        Sums of the weights that users gave; None: the numbers of rows.
    base : ndarray (N, n_outputs), default=None
        Scores that log-losses add to those of a model, see `skpmtl.tables.public_init`; None: 0.
    """

    X: object
    y: np.ndarray | None
    offsets: np.ndarray
    tasks: np.ndarray
    rows: np.ndarray | None = None
    order: np.ndarray | None = None
    n_classes: int = 0
    absent: np.ndarray = ()
    weights: np.ndarray | None = None
    masses: np.ndarray | None = None
    base: np.ndarray | None = None

    def __post_init__(self):
        # Compiled loops know one kind of each array: numba takes one that cannot be written, from
        # a memory map or a process of joblib, or one with gaps, from np.nonzero, for another type,
        # and would compile them again.
        if isinstance(self.X, np.ndarray):
            object.__setattr__(self, "X", read_only(self.X))
        if isinstance(self.y, np.ndarray) and not self.y.flags.writeable:
            object.__setattr__(self, "y", self.y.copy())
        if self.weights is not None:
            weights = np.require(self.weights, np.float64, requirements=["C", "W"])
            object.__setattr__(self, "weights", weights)
        if self.base is not None:
            base = np.require(self.base, np.float64, requirements=["C", "W"])
            object.__setattr__(self, "base", base)
        object.__setattr__(self, "offsets", np.require(self.offsets, requirements=["C", "W"]))
        if self.rows is not None:
            object.__setattr__(self, "rows", np.require(self.rows, requirements=["C", "W"]))

    def __getstate__(self):
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __setstate__(self, state):  # what a pickle gives back can be written
        self.__dict__.update(state)
        self.__post_init__()

    @property
    def given(self):
        """`base` for compiled loops, which know no element as none: (N, n_outputs) or (0, 0)."""
        return np.empty((0, 0)) if self.base is None else self.base

    @cached_property
    def places(self):
        """`rows` for compiled loops, (N,), which know no None."""
        return np.arange(self.n_rows) if self.rows is None else self.rows

    @cached_property
    def counts(self):
        """`weights` for compiled loops, (N,), which know no None: ones where all count the same."""
        return np.ones(self.n_rows) if self.weights is None else self.weights

    @property
    def n_tasks(self):
        return len(self.tasks)

    @property
    def everybody(self):
        """Labels of all tasks, also of those without rows, sorted."""
        return both(self.absent, self.tasks)

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
    def support(self):
        """Rows of each task as far as they count, (m,): `sizes`, or the sums of the weights."""
        if self.weights is None:
            return self.sizes
        return np.add.reduceat(self.weights, self.offsets[:-1])

    @property
    def given_weights(self):
        """Weights of the rows as users gave them, (N,), or None."""
        if self.weights is None or self.masses is None:
            return self.weights
        return self.weights * np.repeat(self.masses / self.support, self.sizes)

    def scale(self, task_weight):
        """What the sum of the losses of a task is multiplied by, (m,): "equal" or "samples".

        Without `masses` weights are those that were given, and numbers of rows public.
        """
        if task_weight == "equal":
            return 1.0 / (self.sizes if self.masses is None else self.support)
        return np.ones(self.n_tasks) if self.masses is None else self.masses / self.support

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


def both(absent, tasks):
    """Labels of either kind, sorted; the first may be an empty tuple."""
    return np.union1d(tasks, absent) if len(absent) else tasks


def read_only(a):
    """A view of an array that cannot be written, which is how kernels receive features."""
    a = a.view()
    a.flags.writeable = False
    return a


def rows_of(offsets, tasks):
    """Rows of the tasks at these positions, task after task. -> rows, their own offsets"""
    sizes = np.diff(offsets)[tasks]
    ends = np.concatenate([[0], np.cumsum(sizes)])
    return np.repeat(offsets[tasks] - ends[:-1], sizes) + np.arange(ends[-1]), ends


def by_code(codes):
    """Pairs of a code and the rows that have it, for rows in any order."""
    order = np.argsort(codes, kind="stable")
    present, starts = np.unique(codes[order], return_index=True)
    return zip(present, np.split(order, starts[1:]), strict=True)


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
