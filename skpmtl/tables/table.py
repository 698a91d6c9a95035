"""Tasks as data: one table of rows sorted by task, and converters to the long form."""

import math
import sys
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
from scipy import sparse

from .._kernels.passes import csr_scores, scores
from .ids import encode_ids, factorize, listed

__all__ = [
    "floats",
    "named_floats",
    "SingleTaskWarning",
    "TaskTable",
]
LARGEST = 1e30  # bound on features and targets: their powers in the solvers stay finite
_LARGEST_FLOAT = sys.float_info.max
FAR = 100.0  # logarithms of rates from which losses of counts are linear: they stay finite
_BLOCK = 1 << 20  # numbers of X that a thread passes over at a time
_NO_INDEX = np.empty(0, dtype=np.int64)


class WrittenRows:
    """Rows of a table as arrays of float64, which are written out where they are asked for.

    Parameters
    ----------
    table : TaskTable
        Dense or sparse, with or without `rows`.
    """

    def __init__(self, table):
        self._X, self._rows = table.X, table.rows
        self.shape = int(table.offsets[-1]), table.X.shape[1]

    def __getitem__(self, places):
        """Of some places (R,), or a slice of them. -> (R, d), which is not to be written into"""
        X = self._X[places if self._rows is None else self._rows[places]]
        return np.asarray(X.toarray() if sparse.issparse(X) else X, dtype=np.float64)

    def rates(self, slopes, about, some, starts):
        """Sums over tasks of exp(s) and x exp(s) of some rows, with scores s = about + x' slopes.

        `starts` are first rows of tasks among these. -> (t,), (t, d)
        """
        X = self[some]
        mean = np.exp(np.clip(about + row_dots(X, slopes), -FAR, FAR))
        return np.add.reduceat(mean, starts), np.add.reduceat(mean[:, None] * X, starts)

    def blocks(self, offsets):
        """Slices of rows, of whole tasks each and of about `_BLOCK` numbers."""
        return [slice(*offsets[[first, last]]) for first, last in blocks_of(offsets, self.shape[1])]


def blocks_of(offsets, d):
    """Ranges of tasks with about `_BLOCK` numbers in their rows of d columns. -> list of pairs"""
    which = (offsets[1:] - 1) * d // _BLOCK
    ends = [0, *(np.flatnonzero(np.diff(which)) + 1).tolist(), len(which)]
    return list(zip(ends[:-1], ends[1:], strict=True))


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
    loss : str, default="squared"
        Of real targets, see `skpmtl.tables.datafits`. Counts have the logarithms of their exposures
        in `base`, and sums of exposures as `masses`, without `weights`.
    n_left_out : int, default=0
        Of a part: how many tasks of the whole table it lacks, see `table_of` and `among`.
    levels : RowLevels, default=None
        Levels of the rows, of factors below and across tasks.
    """

    X: object
    y: np.ndarray | None
    offsets: np.ndarray
    tasks: np.ndarray
    rows: np.ndarray | None = None
    order: np.ndarray | None = None
    n_classes: int = 0
    absent: np.ndarray | tuple = ()
    weights: np.ndarray | None = None
    masses: np.ndarray | None = None
    base: np.ndarray | None = None
    loss: str = "squared"
    n_left_out: int = 0
    levels: object = None

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

    @property
    def stored(self):
        """Rows as compiled passes take them: X, or its values, columns and row ends; which of its
        rows, and whether tasks share it."""
        X, shared = self.csr if self.is_sparse else (self.X,), self.rows is not None
        return *X, self.rows if shared else _NO_INDEX, shared

    @cached_property
    def counts(self):
        """`weights` for compiled loops, (N,), which know no None: ones where all count the same."""
        return np.ones(self.n_rows) if self.weights is None else self.weights

    @property
    def has_log_loss(self):
        """Whether models are scores, of classes or of counts, and targets no sums of them."""
        return self.n_classes > 0 or self.loss == "poisson"

    @property
    def n_tasks(self):
        return len(self.tasks)

    @property
    def everybody(self):
        """Labels of all tasks, also of those without rows, sorted."""
        return both(self.absent, self.tasks)

    @property
    def n_listed(self):
        """Number of tasks of the whole table, with those without rows and those left out here.

        It alone may choose how the tasks are computed: how many have rows is not public.
        """
        return self.n_tasks + len(self.absent) + self.n_left_out

    def among(self, n_tasks):
        """The table as a part of one that lists so many tasks."""
        return replace(self, n_left_out=n_tasks - self.n_tasks - len(self.absent))

    @property
    def n_rows(self):
        return int(self.offsets[-1])

    @property
    def n_features(self):
        return self.X.shape[1]

    @cached_property
    def sizes(self):
        """Rows of each task, (m,)."""
        return np.diff(self.offsets)

    @cached_property
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
        if self.weights is None and self.masses is not None:  # exposures
            return 1.0 / self.masses if task_weight == "equal" else np.ones(self.n_tasks)
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
    starts = offsets[tasks]
    sizes = offsets[tasks + 1] - starts  # of these alone: they may be few of very many
    ends = np.concatenate([[0], np.cumsum(sizes)])
    return np.repeat(starts - ends[:-1], sizes) + np.arange(ends[-1]), ends


def table_of(table, tasks):
    """The table of the tasks at these positions, with their rows alone.

    The others are counted in `n_left_out`, not listed: listing them would cost every part a pass
    over all tasks.
    """
    rows, ends = rows_of(table.offsets, tasks)
    labels = table.tasks[tasks]
    if len(rows) and (np.diff(rows) == 1).all():
        rows = slice(rows[0], rows[-1] + 1)
    own = {"X": table.X[rows]} if table.rows is None else {"rows": table.rows[rows]}
    if table.weights is not None:
        own["weights"] = table.weights[rows]
    if table.masses is not None:
        own["masses"] = table.masses[tasks]
    if table.base is not None:
        own["base"] = table.base[rows]
    if table.levels is not None:
        own["levels"] = table.levels[rows]
    return replace(
        table,
        y=table.y[rows],
        offsets=ends,
        tasks=labels,
        order=None,
        n_left_out=table.n_left_out + table.n_tasks - len(tasks),
        **own,
    )


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


def distinct_ids(labels, what):
    """Ids in the order given; ValueError when one occurs twice."""
    codes, distinct = encode_ids(labels)
    twice = np.flatnonzero(np.bincount(codes) > 1)
    if len(twice):
        raise ValueError(
            f"{what} contain {listed(distinct[twice])} more than once: list each of them once."
        )
    return distinct[codes]


# ------------------------------------------------------------- numbers of the rows of all tasks
def common_scores(table, W):
    """X W' (N, C) of all rows of a table, in an order of the sum that knows nothing of others.

    W : ndarray (C, d), or (n_tasks, C, d) of every task
    """
    own = W.ndim == 3
    ends, models = (table.offsets, W) if own else (np.array([0, table.n_rows]), W[None])
    out = np.empty((models.shape[1], table.n_rows))
    kernel = csr_scores if table.is_sparse else scores
    for c, found in enumerate(out):
        kernel(*table.stored, ends, np.ascontiguousarray(models[:, c]), found)
    return out.T


def row_products(A, B):
    """A @ B, (m, ..., d) by (d, ...): of each of m tasks by a product of its own.

    In one BLAS product the order of a row's sums depends on its place and on how many there are,
    and so on which other tasks have rows.
    """
    own = A.reshape(len(A), math.prod(A.shape[1:-1]), A.shape[-1])
    return (own @ B.reshape(len(B), -1)).reshape(*A.shape[:-1], *B.shape[1:])


def row_dots(A, B):
    """Inner products of the rows of A (m, d) with those of B (m, d), or with B (d,). -> (m,)"""
    return np.einsum("ij,ij->i", A, np.broadcast_to(B, np.shape(A)))


def weighted_sum(weights, parts):
    """sum_s w_s a_s for w_s (m,) and a_s (m, ...) of m tasks, one part after the other.

    numpy's reductions add up one task alone in another order than several.
    """
    return sum(
        w.reshape(-1, *[1] * (part.ndim - 1)) * part for w, part in zip(weights, parts, strict=True)
    )


def differences(table, public_init):
    """The table of which models are differences to `public_init`; None: the table itself."""
    if public_init is None:
        return table
    return _moved(table, common_scores(table, public_init.coef) + public_init.intercept)


def differences_to(table, W):
    """The table of which models are differences to W (n_tasks, [n_outputs,] d), task by task."""
    return _moved(table, common_scores(table, W.reshape(table.n_tasks, -1, table.n_features)))


def _moved(table, base):
    """The table of which scores are differences to `base`, (n_rows, n_outputs)."""
    base = np.clip(np.nan_to_num(base), -LARGEST, LARGEST)
    if table.has_log_loss:
        return replace(table, base=base if table.base is None else base + table.base)
    return replace(table, y=table.y - base[:, 0])


def scaled(table, scale):
    """The table with columns over their scale (d,); None: the table."""
    if scale is None:
        return table
    X = table.X
    if table.is_sparse:
        return replace(table, X=X.multiply(1.0 / scale).tocsr().astype(X.dtype))
    return replace(table, X=np.divide(X, scale, dtype=X.dtype, casting="same_kind"))


# ------------------------------------------------------------------------ numbers out of range
# In a private fit nobody may learn from an error or a warning what one task's rows are. Its values
# are therefore set to public bounds, wide enough for all data that mean something, and a model that
# still overflows is replaced by one that the task knows without its rows.
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
    X = table.X
    values = X if isinstance(X, np.ndarray) else X.data
    near = bounded(values)
    if near is not values:
        if sparse.issparse(X):
            near = type(X)((near, X.indices, X.indptr), shape=X.shape)
        table = replace(table, X=near)
    y = bounded(table.y)
    return table if y is table.y else replace(table, y=y)


def bounded(values):
    """Values within the public bound; the same object where they are within it already."""
    return values if _within(values) else np.clip(values, -LARGEST, LARGEST)


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


def all_finite(*arrays):
    """Whether no entry is NaN or infinite: by the sum, or by a mask where that overflows."""
    with np.errstate(all="ignore"):
        return all(np.isfinite(a.sum()) or np.isfinite(a).all() for a in arrays)


def finite_models(coef, intercept, mean=(None, None)):
    """Models of the tasks, where they are finite; else the released mean model, or zero."""
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


def floats(values):
    """Numbers as float64; finite ones beyond its range become the largest of their sign.

    Whether one task has such numbers (integers of hundreds of digits, long doubles) must not end
    the fit of all.

    Parameters
    ----------
    values : array-like or sparse matrix
        Of integers, floats, booleans or objects.

    Returns
    -------
    values : ndarray or sparse matrix of float64
        The same object where it has that type already.

    Raises
    ------
    TypeError, ValueError
        For what is no number. The text is that of numpy, which may show a value.
    """
    if sparse.issparse(values):
        if values.dtype == np.float64:
            return values
        values = values.copy()
        values.data = floats(values.data)
        return values
    values = np.asarray(values)
    with np.errstate(over="ignore"):
        if values.dtype.kind == "O":
            try:
                return values.astype(np.float64)
            except OverflowError:
                flat = [_float_of(value) for value in values.ravel().tolist()]
                return np.array(flat).reshape(values.shape)
        found = values.astype(np.float64, copy=False)
        if values.dtype.kind == "f" and values.dtype.itemsize > found.dtype.itemsize:
            lost = np.isinf(found) & np.isfinite(values)
            found[lost] = np.copysign(_LARGEST_FLOAT, values[lost])
    return found


def named_floats(values, name):
    """`floats`, of which the error has a name and shows no value."""
    found = None
    try:
        found = floats(values)
    except (TypeError, ValueError):
        pass
    if found is None:  # not inside of except: the first error shows a value
        raise ValueError(
            f"{name} has values that are not numbers; convert them with .astype(float)."
        )
    return found


def _float_of(value):
    try:
        return float(value)
    except OverflowError:
        return _LARGEST_FLOAT if value > 0 else -_LARGEST_FLOAT
