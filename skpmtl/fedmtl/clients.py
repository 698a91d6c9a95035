"""From the input of fit to one table of rows sorted by client.

=========  ===============================================================  ===============
form       given as                                                         predictions
=========  ===============================================================  ===============
wide       y of shape (n_samples, n_tasks), NaN where there is no label     (n_samples, n_tasks)
long       a task for every row: ``task_feature`` or ``task=``; 1-D y       one per row
single     1-D y without tasks: one task                                    one per row
=========  ===============================================================  ===============

The client of a row is a column of X, ``client_feature``, or ``client=``; without either all rows
are one client's.
"""

import warnings
from dataclasses import dataclass

import numpy as np
from sklearn.utils.validation import (
    check_consistent_length,
    column_or_1d,
    validate_data,
)

from .._runtime.compat import safe_indexing
from ..tables.forms import numeric, read_array, read_target, sort_rows, take_column, task_position
from ..tables.ids import encode_ids, listed, locate
from ..tables.table import SingleTaskWarning, TaskTable, column_labels, distinct_ids, known_labels
from ..tables.targets import encode_labels, real_target


@dataclass(frozen=True)
class ClientForm:
    """How a fit received its data; the same is expected afterwards."""

    kind: str
    labels: np.ndarray  # tasks; wide: in the order of the columns of y
    has_clients: bool  # False: all rows are one client's
    positions: dict  # "client", "task": their columns in X, or None


@dataclass(frozen=True, eq=False)
class ClientTable:
    """Rows sorted by client.

    Parameters
    ----------
    X : ndarray (n, d), float64
    Y : ndarray (n, S)
        Codes of classes, or targets, in the slots of the client; NaN where not known.
    offsets : ndarray (N + 1,)
        Rows of client i are ``offsets[i]:offsets[i + 1]``.
    clients : ndarray (N,)
        Ids, sorted.
    slots : ndarray (N, S)
        Position in `form.labels` of the task of every slot, -1 for none.
    """

    X: np.ndarray
    Y: np.ndarray
    offsets: np.ndarray
    clients: np.ndarray
    slots: np.ndarray

    @property
    def n_clients(self):
        return len(self.clients)

    @property
    def sizes(self):
        return np.diff(self.offsets)


@dataclass(frozen=True)
class _Rows:
    """Features as given, and the ids beside them; not sorted, not copied."""

    matrix: np.ndarray
    keep: np.ndarray  # columns of `matrix` that are features
    client: tuple | None  # codes, sorted ids
    task: tuple | None
    positions: dict  # "client", "task": their columns in X, or None

    def features(self, order=None):
        """float64 features in an order; at most one copy."""
        if order is None and len(self.keep) == self.matrix.shape[1]:
            return np.ascontiguousarray(self.matrix, dtype=np.float64)
        rows = np.arange(len(self.matrix)) if order is None else order
        return np.ascontiguousarray(self.matrix[np.ix_(rows, self.keep)], dtype=np.float64)


def read_rows(estimator, X, client, task, fitted=None):
    """Features, clients and tasks of rows, checked; `fitted` is the form of the fit."""
    features = {"client": estimator.client_feature, "task": estimator.task_feature}
    given = {"client": client, "task": task}
    for name, feature in features.items():
        if feature is not None and given[name] is not None:
            raise ValueError(f"Give either {name}_feature or {name}=, not both.")
    columns = [name for name, feature in features.items() if feature is not None]
    if columns and not hasattr(X, "columns"):
        X = read_array(X, dtype=None, estimator=estimator)
    elif not hasattr(X, "columns"):
        X = _numeric(estimator, X)
    validate_data(estimator, X, skip_check_array=True, reset=fitted is None)
    positions = {"client": None, "task": None}
    for name in columns:
        # Names may be lost after fit (scikit-learn warns itself), the position stays.
        positions[name] = None if fitted is None else fitted.positions[name]
        if positions[name] is None:
            positions[name] = task_position(X, features[name], f"{name}_feature")
        given[name] = take_column(X, positions[name])
    if len(columns) == 2 and positions["client"] == positions["task"]:
        raise ValueError(
            f"client_feature={features['client']!r} and task_feature={features['task']!r} are the "
            "same column of X."
        )
    keep = np.setdiff1d(np.arange(X.shape[1]), [positions[name] for name in columns])
    if not len(keep):
        raise ValueError(
            f"X has n_features = {X.shape[1]}; it needs at least one beside {columns}."
        )
    if isinstance(X, np.ndarray) and X.dtype.kind in "fiub":
        matrix, names = X, np.arange(X.shape[1])  # the ids are dropped later, without a copy
    else:
        matrix, names = _numeric(estimator, safe_indexing(X, keep, axis=1)), keep
        keep = np.arange(len(keep))
    ids = {
        name: None if values is None else _encode(values, len(matrix), name)
        for name, values in given.items()
    }
    _check_finite(estimator, matrix, names, ids["client"])
    return _Rows(matrix, keep, positions=positions, **ids)


def _numeric(estimator, X):
    ids = ("client", "task")
    unset = [name for name in ids if getattr(estimator, f"{name}_feature") is None]
    hint = (
        f"if it holds the {' or the '.join(unset)}, give its name as "
        f"{'_feature or '.join(unset)}_feature"
        if unset
        else "convert it, or leave it out"
    )
    return numeric(estimator, X, accept_sparse=False, hint=hint)


def _encode(ids, n_rows, name):
    ids = ids if hasattr(ids, "factorize") or isinstance(ids, (list, tuple)) else np.asarray(ids)
    if np.ndim(ids) == 0 or len(ids) != n_rows:
        raise ValueError(f"{name}= must hold one id for each of the {n_rows} rows of X.")
    return encode_ids(ids, name.capitalize())


def _check_finite(estimator, values, columns, client):
    """ValueError that names the first NaN or infinity; `columns` are their positions in X."""
    with np.errstate(all="ignore"):
        if values.dtype.kind in "iub" or np.isfinite(values.sum()):
            return  # the sum needs no mask; where it overflows, the mask decides
    bad = np.argwhere(~np.isfinite(values))
    if not len(bad):
        return
    row, column = bad[0]
    value, column = values[row, column], int(columns[column])
    names = getattr(estimator, "feature_names_in_", None)
    column = column if names is None else repr(str(names[column]))
    owner = "" if client is None else f" (client {client[1][client[0][row]].item()!r})"
    raise ValueError(
        f"Input X contains {'NaN' if np.isnan(value) else 'infinity (inf)'}: {len(bad)} value(s) "
        f"that are not finite, first in row {row}{owner}, column {column}. Impute them or drop "
        "the rows."
    )


def read_training(estimator, X, y, client, task, *, fitted=None, classes=None):
    """Read the input of fit, or, with the form and the classes of the fit, of personalize.

    Returns
    -------
    table : ClientTable
    form : ClientForm
    classes : list of ndarray, or None for regression
        Classes of every task, in the order of `form.labels`.
    """
    if y is None:
        raise ValueError("This estimator requires y to be passed, but the target y is None.")
    rows = read_rows(estimator, X, client, task, fitted)
    names = column_labels(y)
    y = read_target(estimator, y)
    check_consistent_length(rows.matrix, y)
    wide = y.ndim == 2 and (y.shape[1] > 1 or (fitted is not None and fitted.kind == "wide"))
    if wide and rows.task is not None:
        raise ValueError("A 2-D y has one column per task; give no other task ids with it.")
    if not wide:
        y = column_or_1d(y, warn=True)
    kind = "wide" if wide else "single" if rows.task is None else "long"
    if fitted is not None and kind != fitted.kind:
        raise ValueError(
            f"The fit had {_FORMS[fitted.kind]}, these data have {_FORMS[kind]}; use one form."
        )
    if fitted is None and rows.client is None:
        warnings.warn(
            "There is no client information: all rows are taken as one client's. Set "
            "client_feature, or pass client=.",
            SingleTaskWarning,
            stacklevel=3,
        )
    elif rows.client is None:
        raise ValueError("These rows have no client: give client=, one id for each row.")
    labels, place = _tasks(rows, y, names, kind, fitted)
    codes, clients = rows.client or (np.zeros(len(y), np.int64), np.zeros(1, np.int64))
    order, offsets = sort_rows(codes, len(clients))
    order = np.arange(len(y)) if order is None else order
    owner = codes[order]
    # Every known label as one entry: its row in the table, task, and value.
    if kind == "wide":
        row, at = np.nonzero(known_labels(y)[order])
        value, task_of = y[order[row], at], place[at]
    else:
        row, value, task_of = np.arange(len(y)), y[order], place[order]
    value, classes = _encode_targets(
        estimator, value, task_of, order[row], labels, kind, classes, new=fitted is None
    )
    has = np.zeros((len(clients), len(labels)), dtype=bool)
    has[owner[row], task_of] = True
    empty = clients[~has.any(axis=1)]
    if len(empty):
        raise ValueError(
            f"Clients without any label: {listed(empty)}. Drop their rows.{RARE_LABELS}"
        )
    slot_of = np.cumsum(has, axis=1) - 1
    slots = np.full((len(clients), has.sum(axis=1).max()), -1)
    i, k = np.nonzero(has)
    slots[i, slot_of[i, k]] = k
    Y = np.full((len(y), slots.shape[1]), np.nan)
    Y[row, slot_of[owner[row], task_of]] = value
    form = ClientForm(kind, labels, rows.client is not None, rows.positions)
    table = ClientTable(rows.features(order), Y, offsets, clients, slots)
    return table, form if fitted is None else fitted, classes


# Folds that know neither clients nor labels may leave a rare one out of a training set.
RARE_LABELS = (
    " In cross-validation all rows of a rare label can fall into one test set: use "
    "TaskStratifiedKFold with groups= one id for every combination of client, task and label, "
    "and drop what there is only one of."
)
_FORMS = {
    "wide": "a 2-D y with one column per task",
    "long": "one task id per row",
    "single": "one task and no task ids",
}


def _tasks(rows, y, names, kind, fitted):
    """-> task ids; position in them of every column of y (wide) or row."""
    if kind == "single":
        return np.zeros(1, dtype=np.int64), np.zeros(len(y), dtype=np.int64)
    if kind == "wide":
        given = np.arange(y.shape[1]) if names is None else distinct_ids(names, "The columns of y")
        if fitted is None:
            return given, np.arange(y.shape[1])
        if names is None:
            if y.shape[1] != len(fitted.labels):
                raise ValueError(
                    f"y has {y.shape[1]} columns, but the fit had {len(fitted.labels)} tasks: "
                    f"{listed(fitted.labels)}."
                )
            return fitted.labels, np.arange(y.shape[1])
    else:
        given = rows.task[1]
        if fitted is None:
            return given, rows.task[0]
    place = known_positions(given, fitted.labels, "Task")
    if (place < 0).any():
        raise ValueError(
            f"Unknown tasks: {listed(given[place < 0])}; the fit had {listed(fitted.labels)}."
        )
    return fitted.labels, place if kind == "wide" else place[rows.task[0]]


def known_positions(ids, known, name):
    """Positions of `ids` in `known`, which need not be sorted; -1 where it is not there."""
    order = np.argsort(known)
    place = locate(ids, known[order], name)
    return np.where(place < 0, -1, order[place])


def _encode_targets(estimator, value, task_of, input_row, labels, kind, classes, new):
    out = np.empty(len(value))
    found = []
    order = np.argsort(task_of, kind="stable")
    parts = np.split(order, np.searchsorted(task_of[order], np.arange(1, len(labels))))
    for k, part in enumerate(parts):
        if not len(part):
            if new:
                raise ValueError(
                    f"Column {labels[k].item()!r} of y holds no label at all; drop it."
                    + RARE_LABELS
                )
            found.append(None if classes is None else classes[k])
            continue
        ends = np.array([0, len(part)])
        rows = {"rows" if kind == "wide" else "order": input_row[part]}
        one = TaskTable(None, value[part], ends, labels[k : k + 1], **rows)
        if not estimator._classification:
            out[part] = real_target(one)
            found.append(None)
            continue
        try:
            out[part], task_classes = encode_labels(one, None if classes is None else classes[k])
        except ValueError as error:
            if kind == "single" or "task" in str(error):
                raise
            raise ValueError(f"Task {labels[k].item()!r}: {error}") from error
        if len(task_classes) < 2:
            which = "" if kind == "single" else f" of task {labels[k].item()!r}"
            raise ValueError(
                f"The targets{which} contain only one class at all clients together; a classifier "
                f"needs two.{RARE_LABELS}"
            )
        found.append(task_classes)
    return out, found if estimator._classification else None

