"""From every accepted form of input to one table of rows sorted by task.

=========  ==========================================================  =====================
form       given as                                                    predictions
=========  ==========================================================  =====================
column     a column of X, ``task_feature=`` its name or position       one per row
keyword    ``fit(X, y, task=ids)``                                     one per row
wide       y of shape (n_samples, n_tasks), NaN where not known        (n_samples, n_tasks)
mapping    ``{task: X_t}`` and ``{task: y_t}``                         ``{task: array}``
single     none of these: one task and a `SingleTaskWarning`           one per row
=========  ==========================================================  =====================
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from scipy import sparse
from sklearn.utils.validation import (
    check_array,
    check_consistent_length,
    column_or_1d,
    validate_data,
)

from .convert import stack_tasks
from .factors import RowLevels, read_levels, rows_of_factors
from .frames import (
    by_position,
    column_labels,
    columns_where,
    frame_of,
    is_number,
    safe_indexing,
    without_decimals,
)
from .ids import encode_ids, listed, locate, refuse_trailing_nul
from .sparse import checked
from .table import TaskTable, both, distinct_ids, floats, known_labels
from .weights import row_weights, without_weightless

_BLOCK = 1 << 18  # numbers moved at a time, which bounds temporary memory


@dataclass(frozen=True)
class InputForm:
    """How a fit received its tasks, which says what predictions look like."""

    kind: str
    position: int | None = None  # the task column
    labels: np.ndarray | None = None  # wide: the tasks in the order of the columns of y
    factors: dict = field(default_factory=dict)  # columns of levels of rows, by name

    @property
    def columns(self):
        """Positions of ids and levels in X."""
        return *(() if self.position is None else (self.position,)), *self.factors.values()


@dataclass(frozen=True)
class Rows:
    """Rows to predict, neither sorted nor copied."""

    X: object  # ndarray or CSR; with a column too many when `position` is given
    # Position of the task; -1 - j: the j-th of `unseen`; None: predict for all tasks.
    codes: np.ndarray | None
    unseen: np.ndarray | None = None  # distinct ids that the fit does not know
    position: int | None = None
    parts: Mapping | None = None  # mapping: rows of each task
    levels: RowLevels | None = None

    def features(self, pick=slice(None)):
        """float64 features of some rows, without the task column."""
        X = self.X[pick]
        return table_matrix(X, None, () if self.position is None else (self.position,))

    def wrap(self, values):
        """Predictions in the form of the input."""
        if self.parts is None:
            return values
        cuts = np.cumsum(list(self.parts.values()))[:-1]
        return dict(zip(self.parts, np.split(values, cuts), strict=True))


def is_mapping_of_tasks(X):
    """Whether X is ``{task: X_t}``; a sequence of tables is refused."""
    if sparse.issparse(X):  # DOK matrices are mappings too
        return False
    ndim = getattr(X, "ndim", 0)
    if isinstance(X, (list, tuple)) and X and all(len(getattr(x, "shape", ())) == 2 for x in X):
        ndim = 3
    if ndim == 3:
        # Cross-validation would slice such a list as if tasks were rows, and task i of the
        # test part would meet the coefficients of task i of the training part.
        raise TypeError(
            "A sequence of tables, one per task, does not name its tasks. Pass a mapping "
            "{task: X_t}, or convert it: X, y, task = stack_tasks(X_list, y_list)."
        )
    return isinstance(X, Mapping)


def task_position(X, task_feature, name="task_feature"):
    """Position of a column of ids in X, which is a DataFrame, an array or a sparse matrix."""
    width = X.shape[1]
    if isinstance(task_feature, (list, tuple)):  # as scikit-learn's transformers name columns
        if len(task_feature) != 1:
            raise ValueError(
                f"{name}={task_feature!r} must be one column; join several to one key in a column "
                "of its own."
            )
        (task_feature,) = task_feature
    if not isinstance(task_feature, str):
        if not -width <= task_feature < width:
            raise ValueError(f"{name}={task_feature} is outside X with {width} columns.")
        return int(task_feature) % width
    names = column_labels(X)
    if task_feature in getattr(getattr(X, "index", None), "names", ()):
        raise ValueError(
            f"{name}={task_feature!r} is a level of the index of X, not a column: pass "
            f"X.reset_index({task_feature!r})."
        )
    if names is None:
        raise ValueError(
            f"{name}={task_feature!r} is a column name, but X has no column names. Use an "
            "integer position, or keep the names with set_output(transform='pandas')."
        )
    if names.count(task_feature) != 1:
        near = [name for name in names if str(name).endswith(f"__{task_feature}")]
        hint = f" Did you mean {near[0]!r} (or verbose_feature_names_out=False)?" if near else ""
        if any(isinstance(name, tuple) for name in names):
            hint = (
                " They have several levels: join them, "
                "X.columns = ['_'.join(map(str, column)) for column in X.columns]."
            )
        found = "occurs more than once in" if task_feature in names else "is not a column of"
        raise ValueError(
            f"{name}={task_feature!r} {found} X; its columns are {listed(names, 20)}.{hint}"
        )
    return names.index(task_feature)


def task_apart(X, task, task_feature):
    """Columns of X in the form in which they were given, and ids of the rows.

    -> features, ids or None, position of the column of ids or None

    Raises ValueError where ids are given twice, and where X lacks the column.
    """
    if task_feature is None:
        return X, task, None
    if task is not None:
        raise ValueError("Give either task_feature or task=, not both.")
    X = by_position(X)
    position = task_position(X, task_feature)
    rest = np.delete(np.arange(X.shape[1]), position)
    return safe_indexing(X, rest, axis=1), take_column(X, position), position


def take_column(X, position):
    """One column of a DataFrame, an array or a sparse matrix."""
    if sparse.issparse(X):
        return X[:, [position]].toarray().ravel()
    return safe_indexing(X, position, axis=1)


def read_array(values, **options):
    """`check_array` without the texts of its errors that show values.

    Raises TypeError or ValueError, of the same type, and without the first error, which would be
    printed with it.
    """
    shape = 2, 1 + options.get("ensure_2d", True)
    if type(values) is np.ndarray and values.dtype == np.float64 and values.ndim in shape:
        if values.size:
            return values  # as `check_array` would, which takes a tenth of a small fit for it
    values, kind = checked(values) if sparse.issparse(values) else values, None
    try:
        try:
            found = check_array(values, ensure_all_finite=False, **options)
            if found.dtype.kind in "US" and isinstance(values, (list, tuple)):
                # Lists of ids and numbers, which numpy makes text of.
                options = {**options, "dtype": object}
                found = check_array(values, ensure_all_finite=False, **options)
        except OverflowError:  # integers that float64 cannot hold
            values = floats(np.asarray(values, dtype=object))
            found = check_array(values, ensure_all_finite=False, **options)
        as_numbers = options.get("dtype", "numeric") == "numeric" and found.dtype.kind == "O"
        if as_numbers or (found.dtype.kind == "f" and found.dtype.itemsize > 8):
            found = floats(found)
    except (TypeError, ValueError) as error:
        kind, text = type(error), str(error)
    if kind is None:
        return found
    name = options.get("input_name") or "X"
    text = text.partition("\n")[0].rstrip(": .")
    if text.startswith("Expected 2D array"):
        text += (
            ". Reshape your data either using array.reshape(-1, 1) if it has a single feature or "
            "array.reshape(1, -1) if it contains a single sample"
        )
    elif text.startswith("setting an array element"):
        text = f"{name} has cells that are lists, or rows of several lengths: a cell is one number"
    elif text.startswith(("Singleton array", "Input should have at least 1 dimension")):
        text = f"{name} is a single value; it must hold one for each row"
    elif "could not convert" in text or not text.startswith(_SHOWS_NO_VALUES):
        text = f"{name} has values that could not be converted to numbers, such as text or dates"
    raise (kind if issubclass(kind, TypeError) else ValueError)(f"{text}.")


# Errors of scikit-learn and numpy that speak of types and shapes only.
_SHOWS_NO_VALUES = (
    "Found array with",
    "Complex data not supported",
    "Sparse data was passed",
    "A sparse matrix was passed",
    "setting an array element",
    "float() argument must be",
    "Expected sequence or array-like",
    "dtype='numeric' is not compatible",
)


def numeric(
    estimator, X, accept_sparse="csr", hint="if it holds the task, give its name as task_feature"
):
    """ndarray of any real type and layout, or CSR; not yet checked for NaN."""
    _refuse_times(X)
    if isinstance(X, np.matrix):
        X = np.asarray(X)
    X = without_decimals(X)
    found = problem = None
    try:
        found = read_array(X, accept_sparse=accept_sparse, estimator=estimator, input_name="X")
    except (TypeError, ValueError) as error:
        text = str(error)
        if frame_of(X) is None or not ("be converted" in text or "float() arg" in text):
            raise
        problem = text
    if problem is None and found.dtype.kind not in "biuf":
        problem = f"X has the type {found.dtype}, which is not numeric."
    if problem is not None:
        names = columns_where(X, lambda dtype: not is_number(dtype))
        which = f": {listed(names)}" if names else ""
        raise ValueError(f"{problem} X has a column that is not numeric{which}; {hint}.")
    return found


def _refuse_times(X):
    """ValueError for dates, times and spans, which would count in units of the storage."""
    names = columns_where(X, lambda dtype: dtype.is_temporal())
    if names or getattr(getattr(X, "dtype", None), "kind", "") in ("m", "M"):
        which = f" in the column(s) {listed(names)}" if names else ""
        raise ValueError(
            f"X holds dates or times{which}, which are not numeric. Turn them into numbers, such "
            "as days since a public date, or leave them out."
        )


def _read_mapping(estimator, X, y, task, fitted):
    """{task: X_t}, {task: y_t} -> matrix, y, ids, columns of factors, form, rows of each task."""
    if estimator.task_feature is not None or task is not None:
        raise ValueError(
            "A mapping {task: X_t} names the tasks by its keys; it needs task_feature=None and "
            "no task=."
        )
    if y is not None:
        _check_one_form(X.values())
    matrix, y, ids = stack_tasks(X, y)
    first = next(iter(X.values()))
    factors, positions, columns = _row_factors(estimator), {}, {}
    if factors:
        first = by_position(first)
        positions = {name: task_position(first, name, "factor") for name in factors}
        columns = {name: take_column(matrix, position) for name, position in positions.items()}
        rest = np.delete(np.arange(matrix.shape[1]), [*positions.values()])
        width, matrix = matrix.shape[1], numeric(estimator, matrix[:, rest])
        named = np.empty((0, width)) if frame_of(first) is None else first
    else:
        matrix = numeric(estimator, matrix)
        named = matrix if frame_of(first) is None else first
    validate_data(estimator, named, skip_check_array=True, reset=fitted is None)
    form = InputForm("mapping", factors=positions)
    return matrix, y, ids, columns, form, {name: np.shape(x)[0] for name, x in X.items()}


def _check_one_form(tables):
    """ValueError unless the tables with rows are all dense or all sparse, and these of one type.

    The form chooses how all tasks are computed, which no task may do alone.
    """
    # The type of dense tables is that of the estimator.
    kinds = {
        (sparse.issparse(x), sparse.issparse(x) and x.dtype == np.float32)
        for x in tables
        if np.shape(x)[:1] != (0,)
    }
    if len(kinds) > 1:
        raise ValueError(
            "The tables of some tasks are sparse and those of others dense, or they are of float32 "
            "and of other types: give all tasks one form, such as scipy.sparse.csr_array(X_t) or "
            "X_t.toarray(), and one type, such as X_t.astype(float)."
        )


def read_matrix(estimator, X, given, fitted=None, accept_sparse="csr"):
    """Features of rows and their task ids, which may be a column of X, as levels of rows are.

    Parameters ``<name>_feature`` of the estimator are the columns of ids, by name or position;
    `given` has ids that were given in addition to X, such as {"task": None}, and `fitted` positions
    of the columns in the fit, None in fit itself. Columns of factors have the key ("factor", name).

    -> matrix, ndarray or CSR, not checked for NaN, and with the columns of ids where it would have
    to be copied without them, see `kept_columns`; ids by name, or None; positions of these columns
    by name

    Raises ValueError for ids that are given twice, for two kinds of ids in one column, and for a
    table without any other column, or with one that is not numeric.
    """
    framed = frame_of(X) is not None
    features = {name: getattr(estimator, f"{name}_feature") for name in given}
    columns = [name for name, feature in features.items() if feature is not None]
    for name in columns:
        if given[name] is not None:
            raise ValueError(f"Give either {name}_feature or {name}=, not both.")
    shown = {name: f"{name}_feature" for name in columns}
    for name in _row_factors(estimator):
        features[_FACTOR, name], shown[_FACTOR, name] = name, _FACTOR
        columns.append((_FACTOR, name))
    unset = [name for name in given if name not in columns]
    hint = "encode it by public categories (OneHotEncoder(categories=[...])), or leave it out"
    if unset:
        names = "_feature or ".join(unset)
        hint = f"if it holds the {' or the '.join(unset)}, give its name as {names}_feature"
    if columns and not framed:
        X = read_array(X, accept_sparse=accept_sparse, dtype=None, estimator=estimator)
    elif not framed:
        X = numeric(estimator, X, accept_sparse, hint)
    validate_data(estimator, X, skip_check_array=True, reset=fitted is None)
    ids, positions = dict(given), dict.fromkeys(given)
    if not columns:
        return (numeric(estimator, X, accept_sparse, hint) if framed else X), ids, positions
    for name in columns:
        # Names may be lost after fit (scikit-learn warns itself), the position stays.
        position = None if fitted is None else fitted[name]
        if position is None:
            position = task_position(X, features[name], shown[name])
        positions[name], ids[name] = position, take_column(X, position)
    taken = [positions[name] for name in columns]
    if len(set(taken)) < len(taken):
        given = " and ".join(f"{shown[name]}={features[name]!r}" for name in columns)
        raise ValueError(f"{given} are the same column of X.")
    if X.shape[1] <= len(taken):
        needed = " and the ".join(name[1] if name[0] == _FACTOR else name for name in columns)
        raise ValueError(
            f"X has n_features = {X.shape[1]}; it needs the {needed} column and at least one "
            "feature. For the levels of tasks alone, add a column of zeros."
        )
    if isinstance(X, np.ndarray) and X.dtype.kind in "fiub":
        return X, ids, positions  # the columns are skipped later, without a copy
    rest = np.delete(np.arange(X.shape[1]), taken)
    return numeric(estimator, safe_indexing(X, rest, axis=1), accept_sparse, hint), ids, positions


_FACTOR = "factor"


def _row_factors(estimator):
    """Factors whose levels are in a column of X, one for every row."""
    return rows_of_factors(getattr(estimator, "factors", None))


def feature_names(estimator):
    """Names of the features in its fit without columns of tasks and factors, or None."""
    names = getattr(estimator, "feature_names_in_", None)
    return None if names is None else np.delete(names, list(estimator._form_.columns))


def read_features(estimator, X, task, fitted, accept_sparse="csr"):
    """-> matrix, ids or None, form; `fitted` is the form of the fit, None in fit itself."""
    matrix, ids, _, form = _read_columns(estimator, X, task, fitted, accept_sparse)
    return matrix, ids, form


def _read_columns(estimator, X, task, fitted, accept_sparse="csr"):
    """-> matrix, ids or None, columns of factors by name, form"""
    if fitted is not None:
        known = {(_FACTOR, name): position for name, position in fitted.factors.items()}
        fitted = {"task": fitted.position, **known}
    matrix, ids, positions = read_matrix(estimator, X, {"task": task}, fitted, accept_sparse)
    position, ids = positions.pop("task"), dict(ids)
    kind = "column" if position is not None else "single" if task is None else "keyword"
    own = ids.pop("task")
    form = InputForm(kind, position, factors={name: at for (_, name), at in positions.items()})
    return matrix, own, {name: column for (_, name), column in ids.items()}, form


def encode_rows(ids, n_rows, name="task", missing_too=False):
    """Ids of rows -> (codes, sorted ids), as `encode_ids`; `name` is for messages."""
    if not isinstance(ids, (list, tuple)):
        ids = ids if hasattr(ids, "factorize") else np.asarray(ids)
        if np.ndim(ids) == 0:
            raise ValueError(f"{name}={ids!s} must hold one id for each of the {n_rows} rows of X.")
    if len(ids) != n_rows:
        raise ValueError(
            f"{name} has {len(ids)} entries, X has {n_rows} rows: it needs one id for each."
        )
    return encode_ids(ids, name.capitalize(), missing_too)


def check_finite(estimator, X, columns, codes=None, labels=None, name="task"):
    """ValueError that names the first NaN or infinity of X, with row, owner and column.

    `columns`: positions of ids in the X of the user; `codes`, `labels`: owner of each row, of
    which `name` says what it is.
    """
    values = X.data if sparse.issparse(X) else X
    with np.errstate(all="ignore"):
        if values.dtype.kind in "iub" or np.isfinite(values.sum()):
            return  # the sum needs no mask; where it overflows, the mask decides
    where, count, step = None, 0, _rows_at_a_time(values)
    for start in range(0, len(values), step):  # a mask of all of X may be too large
        bad = np.argwhere(~np.isfinite(values[start : start + step]))
        if len(bad) and where is None:
            where = start + bad[0, 0], *bad[0, 1:]
        count += len(bad)
    if where is None:
        return
    value = values[where]
    if sparse.issparse(X):
        row = np.searchsorted(X.indptr, where[0], side="right") - 1
        column = X.indices[where[0]]
    else:
        row, column = where
    if not kept_columns(estimator, X, columns):
        column = np.delete(np.arange(estimator.n_features_in_), columns)[column]
    names = getattr(estimator, "feature_names_in_", None)
    column = int(column) if names is None else repr(str(names[column]))
    owner = "" if codes is None else f" ({name} {labels[codes[row]].item()!r})"
    raise ValueError(
        f"Input X contains {'NaN' if np.isnan(value) else 'infinity (inf)'}: {count} "
        f"value(s) that are not finite, first in row {row}{owner}, column {column}. Impute "
        "them, from the task's own rows with TaskImputer, or drop the rows."
    )


def read_target(estimator, y):
    """Targets in one or two dimensions, of any type, as an array."""
    if isinstance(y, (list, tuple)):
        refuse_trailing_nul(y, "Class labels")
    if isinstance(y, np.matrix):
        y = np.asarray(y)
    return read_array(y, ensure_2d=False, dtype=None, estimator=estimator, input_name="y")


def read_training(
    estimator, X, y, task=None, sample_weight=None, *, tasks="auto", form=None, all_rows=False
):
    """Read the input of fit, or, with its `form`, of personalize. -> TaskTable, InputForm

    Sets ``n_features_in_`` and ``feature_names_in_`` of the estimator in fit. Its `dtype`, if it
    has one, is the type of dense rows that tasks do not share. X, y, task and sample_weight are as
    the user gave them, in any form; `tasks` is the public list. The table has `y` as given (not
    converted, not checked for NaN) and weights as given (checked). `all_rows`, where records are
    protected: rows of weight 0 stay in the table, and none is above 1.
    """
    if y is None:
        raise ValueError("This estimator requires y to be passed, but the target y is None.")
    fitted, dtype, idle, keys = form, _row_type(estimator), (), None
    if is_mapping_of_tasks(X):
        keys = list(X)
        if keys:  # put in order before stacking, which saves a sort
            keys = [keys[k] for k in np.argsort(distinct_ids(keys, "The keys of X"))]
        X = {key: X[key] for key in keys}
        matrix, y, ids, columns, form, counts = _read_mapping(estimator, X, y, task, fitted)
        idle = [key for key, size in counts.items() if not size]
        if idle and fitted is not None:
            raise ValueError(f"Task(s) {listed(idle)} of X have no rows; drop them.")
    else:
        matrix, ids, columns, form = _read_columns(estimator, X, task, fitted)
        counts = {None: matrix.shape[0]}
    levels = read_levels(getattr(estimator, "factors", None), columns, new=fitted is not None)
    names = column_labels(y, "y")
    y = read_target(estimator, y)
    check_consistent_length(matrix, y)
    weights = None
    if sample_weight is not None:
        limit = 1.0 if all_rows else math.inf
        weights = row_weights(sample_weight, keys, np.array([*counts.values()]), limit)
    # A single named column is a task after a fit of such columns, and a plain y otherwise.
    named = fitted is not None and fitted.kind == "wide" and names is not None
    if y.ndim == 2 and (y.shape[1] > 1 or (named and ids is None)):
        if ids is not None:
            raise ValueError("A 2-D y has one column per task; give no other task ids with it.")
        if fitted is not None and names is None:
            raise ValueError(
                "A 2-D y needs column names that name the tasks here; otherwise give task=."
            )
        table, form = _wide_table(estimator, matrix, y, names, tasks, fitted, weights, levels, form)
        return (table if weights is None or all_rows else without_weightless(table)), form
    y = np.ascontiguousarray(y) if y.ndim == 1 else column_or_1d(y, warn=True)
    if ids is None and fitted is not None:
        raise ValueError("These rows have no task: give task=, one id for each row.")
    if ids is None:
        if not isinstance(tasks, str):
            raise ValueError("tasks= is given, but no row has a task: set task_feature or task=.")
        codes, labels, absent = np.zeros(len(y), dtype=np.int64), np.zeros(1, dtype=np.int64), ()
    else:
        codes, labels = encode_rows(ids, len(y))
        if idle:
            idle = np.sort(distinct_ids(idle, "The keys of X"))
            without_rows(idle, tasks)  # those must be listed as well
        absent = idle if isinstance(tasks, str) else without_rows(labels, tasks)
    check_finite(estimator, matrix, form.columns, codes, labels)
    if weights is not None and not all_rows and not weights.all():
        # Left out while rows are sorted, which spares a copy.
        order, offsets, labels, absent = _sort_weighty(codes, labels, absent, weights)
    else:
        order, offsets = sort_rows(codes, len(labels))
    if order is not None:
        y, weights = y[order], None if weights is None else weights[order]
        levels = None if levels is None else levels[order]
    own = {"absent": absent, "weights": weights, "levels": levels}
    if sparse.issparse(matrix) and getattr(estimator, "_sparse_in_place", False):
        if matrix.dtype != np.float32:
            matrix = sparse.csr_matrix(matrix, dtype=np.float64)
        return TaskTable(matrix, y, offsets, labels, order, order, **own), form
    kept, bounded = kept_columns(estimator, matrix, form.columns), fitted is not None
    matrix = table_matrix(matrix, order, kept, dtype, bounded or estimator._is_private())
    return TaskTable(matrix, y, offsets, labels, order=order, **own), form


def _row_type(estimator):
    """float64, or float32 if the estimator asks for it."""
    given = getattr(estimator, "dtype", np.float64)
    try:
        dtype = None if given is None else np.dtype(given)
    except TypeError:
        dtype = None
    if dtype is None or dtype not in (np.float64, np.float32):  # None would equal float64
        raise ValueError(f'dtype={given!r} must be "float64" or "float32".')
    return dtype


def sort_rows(codes, n_tasks):
    """-> order (None where sorted already), offsets of the tasks in that order."""
    offsets = np.concatenate([[0], np.cumsum(np.bincount(codes, minlength=n_tasks))])
    if not (codes[1:] < codes[:-1]).any():
        return None, offsets
    # Stable sorts of 16-bit integers are radix sorts.
    narrow = codes.astype(np.uint16) if n_tasks <= 2**16 else codes
    return np.argsort(narrow, kind="stable"), offsets


def _sort_weighty(codes, labels, absent, weights):
    """`sort_rows` of the rows of positive weight. -> order, offsets, their tasks, absent tasks"""
    kept = np.flatnonzero(weights)
    if not len(kept):
        raise ValueError("All weights are zero: there is no row to learn from.")
    some = np.bincount(codes[kept], minlength=len(labels)) > 0
    order, offsets = sort_rows(np.cumsum(some)[codes[kept]] - 1, int(some.sum()))
    order = kept if order is None else kept[order]
    return order, offsets, labels[some], both(absent, labels[~some])


def kept_columns(estimator, matrix, columns):
    """Those columns of ids that a matrix still has: all of them, or none."""
    return columns if matrix.shape[1] == estimator.n_features_in_ else ()


def without_rows(labels, tasks):
    """Tasks of the public list, if there is one, that are not among the `labels` of the data."""
    if isinstance(tasks, str):
        return ()
    if np.ndim(tasks) > 1:
        raise TypeError(
            f"tasks= is a table of {np.ndim(tasks)} dimensions: pass the column of ids, such as "
            'tasks=frame["id"].'
        )
    public = np.sort(distinct_ids(list(tasks), "tasks="))
    position = locate(labels, public)
    if (position < 0).any():
        raise ValueError(
            f"Not listed in tasks=, but in the data: {listed(labels[position < 0])}. Add them to "
            "the list if they are public, or drop their rows."
        )
    return np.delete(public, position)


def _wide_table(estimator, matrix, y, names, tasks, fitted, weights, levels, form):
    labels = np.arange(y.shape[1]) if names is None else distinct_ids(names, "The columns of y")
    column = np.argsort(labels)
    absent = without_rows(labels[column], tasks)
    form = replace(form, kind="wide", labels=labels)
    check_finite(estimator, matrix, form.columns)
    known = known_labels(y)[:, column].T
    sizes = known.sum(axis=1)
    some = sizes > 0
    if not some.all() and (fitted is not None or not some.any()):
        empty = listed(labels[column][~some])
        raise ValueError(f"Column(s) {empty} of y hold no label at all; drop them.")
    absent = both(absent, labels[column][~some])
    offsets = np.concatenate([[0], np.cumsum(sizes[some])])
    rows = np.nonzero(known)[1]
    kept = kept_columns(estimator, matrix, form.columns)
    values, table = y[:, column].T[known], table_matrix(matrix, dropped=kept)
    own = {"weights": None if weights is None else weights[rows]}
    own["levels"] = None if levels is None else levels[rows]
    return TaskTable(table, values, offsets, labels[column][some], rows, absent=absent, **own), form


def table_matrix(X, order=None, dropped=(), dtype=np.float64, bounded=False):
    """Rows of type `dtype` in C order, or CSR of float64, or those in `order`; at most one copy.

    `dropped` are the positions of columns of ids that X still has. ValueError for numbers that
    float32 cannot hold; where values are `bounded` afterwards they are infinite.
    """
    if sparse.issparse(X):
        X = sparse.csr_matrix(X, dtype=np.float64)
        return X if order is None else X[order]
    narrows = dtype == np.float32 and X.dtype != np.float32
    if order is None and not len(dropped) and not narrows:
        return np.ascontiguousarray(X, dtype=dtype)
    n, width = X.shape[0] if order is None else len(order), X.shape[1]
    ends = [-1, *sorted(dropped), width]
    out = np.empty((n, width - len(dropped)), dtype)
    try:
        with np.errstate(over="ignore" if bounded else "raise", under="ignore"):
            step = _rows_at_a_time(X)
            for start in range(0, n, step):
                part = slice(start, start + step)
                block = X[part if order is None else order[part]]
                for k, (before, end) in enumerate(zip(ends[:-1], ends[1:], strict=True)):
                    out[part, before + 1 - k : end - k] = block[:, before + 1 : end]
    except FloatingPointError as error:
        raise ValueError(
            'X holds numbers above 3.4e38, which dtype="float32" cannot hold. Scale the features, '
            'or use dtype="float64".'
        ) from error
    return out


def _rows_at_a_time(X):
    return max(_BLOCK // max(math.prod(X.shape[1:]), 1), 1)


def read_rows(estimator, X, task=None, missing_too=False):
    """Read the input of predict: -> Rows. Uses ``tasks_`` and ``_form_`` of the estimator.

    With `missing_too` rows may lack an id.
    """
    fitted, parts, missing = estimator._form_, None, None
    if is_mapping_of_tasks(X):
        found = _read_mapping(estimator, X, None, task, estimator)
        matrix, _, ids, columns, form, parts = found
    else:
        matrix, ids, columns, form = _read_columns(estimator, X, task, fitted)
    levels = read_levels(getattr(estimator, "factors", None), columns, new=True)
    if ids is not None:
        codes, labels = encode_rows(ids, matrix.shape[0], missing_too=missing_too)
        position = locate(labels, estimator.tasks_)
        check_finite(estimator, matrix, form.columns, codes, labels)
        missing = labels[position < 0]
        position[position < 0] = -1 - np.arange(len(missing))
        codes = np.append(position, -1 - len(missing))[codes]  # of rows without an id
    else:
        if fitted.kind == "wide":
            codes = None
        elif fitted.kind == "single" and len(estimator.tasks_) == 1:
            codes = np.zeros(matrix.shape[0], dtype=np.int64)
        else:
            raise ValueError(
                f"This estimator was fitted with task ids ({len(estimator.tasks_)} tasks): give "
                "task=, one id for each row of X; in scoring=, take skpmtl.metrics.task_scorer."
            )
        check_finite(estimator, matrix, form.columns)
    kept = kept_columns(estimator, matrix, form.columns)
    if form.factors and len(kept):
        matrix, kept = table_matrix(matrix, None, kept), ()
    return Rows(matrix, codes, missing, next(iter(kept), None), parts, levels)
