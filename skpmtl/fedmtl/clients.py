"""Reads the input of fit into one table of rows sorted by client.

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
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from sklearn.utils.validation import check_consistent_length, column_or_1d

from .._runtime.stack import users_line
from ..tables.datafits import real_target
from ..tables.forms import (
    check_finite,
    encode_rows,
    kept_columns,
    read_matrix,
    read_target,
    sort_rows,
    table_matrix,
)
from ..tables.frames import column_labels
from ..tables.ids import listed, locate
from ..tables.table import SingleTaskWarning, TaskTable, distinct_ids, known_labels
from ..tables.targets import encode_labels
from ..tables.weights import balanced_shares, class_weights, row_weights


@dataclass(frozen=True)
class ClientForm:
    """How a fit received its data; the same is expected afterwards."""

    kind: str
    labels: np.ndarray  # tasks; wide: in the order of the columns of y
    has_clients: bool  # False: all rows are one client's
    positions: dict  # "client", "task": their columns in X, or None


@dataclass(frozen=True, eq=False)
class ClientTable:
    """Rows sorted by client."""

    X: np.ndarray  # (n, d), float64
    # (n, S), codes of classes, or targets, in the slots of the client; NaN where not known
    Y: np.ndarray
    offsets: np.ndarray  # (N + 1,), rows of client i are ``offsets[i]:offsets[i + 1]``
    clients: np.ndarray  # (N,), ids, sorted
    slots: np.ndarray  # (N, S), position in `form.labels` of the task of every slot, -1 for none
    weights: np.ndarray | None = None  # (n, S), how much a label counts; None: all the same

    @property
    def n_clients(self):
        return len(self.clients)

    @property
    def sizes(self):
        return np.diff(self.offsets)


@dataclass(frozen=True)
class ClientRows:
    """Features as given, and their ids; not sorted, not copied."""

    matrix: np.ndarray
    dropped: tuple  # columns of `matrix` that are ids
    client: tuple | None  # codes, sorted ids
    task: tuple | None
    positions: dict  # "client", "task": their columns in X, or None

    def some(self, kept):
        """Some of the rows, and the ids that they have."""
        ids = {}
        for name in ("client", "task"):
            codes, labels = getattr(self, name) or (None, None)
            if codes is not None:
                present, codes = np.unique(codes[kept], return_inverse=True)
                ids[name] = codes, labels[present]
        return replace(self, matrix=self.matrix[kept], **ids)

    def features(self, order=None):
        """float64 features in an order; at most one copy."""
        return table_matrix(self.matrix, order, self.dropped)


def read_rows(estimator, X, client, task, fitted=None):
    """Features, clients and tasks of rows, checked; `fitted` is the form of the fit."""
    matrix, given, positions = read_matrix(
        estimator,
        X,
        {"client": client, "task": task},
        None if fitted is None else fitted.positions,
        accept_sparse=False,
    )
    ids = {
        name: None if values is None else encode_rows(values, len(matrix), name)
        for name, values in given.items()
    }
    columns = tuple(position for position in positions.values() if position is not None)
    check_finite(estimator, matrix, columns, *(ids["client"] or ()), name="client")
    dropped = kept_columns(estimator, matrix, columns)
    return ClientRows(matrix, dropped, positions=positions, **ids)


def read_training(estimator, X, y, client, task, sample_weight=None, *, fitted=None, classes=None):
    """Read the input of fit, or, with the form and the classes of the fit, of personalize.

    Rows of weight 0 are left out. -> ClientTable, ClientForm, classes of every task in the order of
    `form.labels` (None for regression)
    """
    if y is None:
        raise ValueError("This estimator requires y to be passed, but the target y is None.")
    rows = read_rows(estimator, X, client, task, fitted)
    names = column_labels(y, "y")
    y = read_target(estimator, y)
    check_consistent_length(rows.matrix, y)
    weights = None
    if sample_weight is not None:
        weights = row_weights(sample_weight, None, np.array([len(y)]))
        kept = np.flatnonzero(weights)
        if not len(kept):
            raise ValueError("All weights are zero: there is no row to learn from.")
        rows, y, weights = rows.some(kept), y[kept], weights[kept]
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
            stacklevel=users_line(),
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
    given = getattr(estimator, "class_weight", None)
    if weights is not None or given is not None:
        counts = np.ones(Y.shape) if weights is None else np.tile(weights[order], (Y.shape[1], 1)).T
        if given is not None:
            counts *= _class_weights(given, Y, counts, owner, slots, classes)
        Y, weights = np.where(counts > 0, Y, np.nan), np.where(np.isnan(Y), 0.0, counts)
    table = ClientTable(rows.features(order), Y, offsets, clients, slots, weights)
    return table, form if fitted is None else fitted, classes


def _class_weights(given, Y, counts, owner, slots, classes):
    """Weights of the labels by their classes, (n, S); of each task of a client by its own counts
    with "balanced"."""
    known, task = ~np.isnan(Y), slots[owner]
    codes, out = np.where(known, Y, 0.0).astype(np.int64), np.ones(Y.shape)
    if isinstance(given, Mapping):
        everything = np.unique(np.concatenate(classes))
        own = class_weights(given, everything)
        for k, labels in enumerate(classes):
            mine = known & (task == k)
            out[mine] = own[np.searchsorted(everything, labels)][codes[mine]]
        return out
    C = max(len(labels) for labels in classes)
    pair = ((owner[:, None] * slots.shape[1] + np.arange(slots.shape[1])) * C + codes)[known]
    mass = np.bincount(pair, counts[known], minlength=slots.size * C).reshape(-1, C)
    out[known] = balanced_shares(mass).ravel()[pair]
    return out


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
    """-> known labels as numbers; classes of every task, None for regression"""
    order = np.argsort(task_of, kind="stable")
    ends = np.searchsorted(task_of[order], np.arange(len(labels) + 1))
    held = ends[1:] > ends[:-1]
    if new and not held.all():
        raise ValueError(
            f"Column {labels[~held][0].item()!r} of y holds no label at all; drop it." + RARE_LABELS
        )

    def table(part, ends, tasks):
        place = {"rows" if kind == "wide" else "order": input_row[part]}
        return TaskTable(None, value[part], ends, tasks, **place)

    out = np.empty(len(value))
    if not estimator._classification:
        out[order] = real_target(table(order, np.unique(ends), labels[held]))
        return out, None
    found = []
    for k, label in enumerate(labels.tolist()):
        part, known = order[ends[k] : ends[k + 1]], None if classes is None else classes[k]
        if not len(part):
            found.append(known)
            continue
        one = table(part, np.array([0, len(part)]), labels[k : k + 1])
        try:
            out[part], task_classes = encode_labels(one, known)
        except ValueError as error:
            if kind == "single" or "task" in str(error):
                raise
            raise ValueError(f"Task {label!r}: {error}") from error
        found.append(task_classes)
    seen = tuple(found)
    for k, label in enumerate(labels.tolist()):
        if len(seen[k]) > 1:
            continue
        # Its class is all that there is to learn, for which the model needs another one.
        (only,) = seen[k].tolist()
        found[k] = np.unique(np.concatenate([own for own in seen if only in own.tolist()]))
        if len(found[k]) < 2:
            which = "" if kind == "single" else f" of task {label!r}"
            raise ValueError(
                f"The targets{which} contain only one class, at all clients together and in all "
                f"tasks that have it; a classifier needs two.{RARE_LABELS}"
            )
        out[order[ends[k] : ends[k + 1]]] = np.searchsorted(found[k], only)
    return out, found
