"""Targets of a table as numbers, and targets next to predictions."""

from collections.abc import Mapping
from numbers import Real

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, column_or_1d

from .frames import column_labels
from .ids import factorize, listed, refuse_trailing_nul
from .table import distinct_ids, known_labels


def public_classes(classes):
    """Sorted array of a list of class labels, as scikit-learn sorts them.

    Raises ValueError for missing labels and for fewer than two, and TypeError for labels of several
    types, or of another type than str, int, float and bool.
    """
    codes, labels = factorize(list(classes))
    if (codes < 0).any():
        raise ValueError("classes= holds a missing label (NaN or None).")
    labels = np.unique(_plain_labels(labels))
    if len(labels) < 2:
        raise ValueError("classes= must list two labels or more.")
    return labels


def public_range(target_range):
    """Lowest and highest value that a target may have, public knowledge, as two floats.

    Raises ValueError unless `target_range` is two finite numbers, the lower one first.
    """
    try:
        low, high = (float(value) for value in target_range)
    except (TypeError, ValueError):
        low = high = np.nan
    if not (np.isfinite([low, high]).all() and low < high):
        raise ValueError(
            f"target_range={target_range!r} must be two finite numbers (low, high) with low < high."
        )
    return low, high


def public_ranges(feature_range, n_features):
    """Lowest and highest values that features may have, as two arrays (n_features,).

    `feature_range` is public knowledge, (low, high): numbers for all features, or arrays with one
    for each. Raises ValueError unless all are finite, and the lower ones lower.
    """
    try:
        low, high = (np.broadcast_to(np.asarray(v, dtype=float), n_features) for v in feature_range)
    except (TypeError, ValueError):
        low = high = np.array([np.nan])
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
        raise ValueError(
            "feature_range= must be (low, high), finite and low < high: two numbers for all "
            f"features, or two arrays of {n_features} numbers, one for each feature without the "
            "task column."
        )
    return low, high


def _plain_labels(labels):
    """Distinct labels as an array of text, numbers or booleans."""
    if labels.dtype.kind in "OT":
        values = labels.tolist()
        if len({isinstance(label, str) for label in values}) > 1:
            raise TypeError("The classes mix strings and other types; use one type.")
        if not all(isinstance(label, (str, Real, np.bool_)) for label in values):
            raise TypeError(
                "Class labels must be strings, numbers or booleans; convert them, for example "
                "with .astype(str)."
            )
        refuse_trailing_nul(values, "Class labels")
        labels = np.array(values, dtype=str if values and isinstance(values[0], str) else None)
    if labels.dtype.kind not in "biufU":
        raise TypeError(
            f"Class labels have the type {labels.dtype}; use strings, numbers or booleans, for "
            "example with .astype(str)."
        )
    return labels


def encode_labels(table, classes=None, *, positions=False):
    """Class labels of a table -> (codes, classes).

    Labels other than those of `classes` are refused; None: the sorted distinct labels. `positions`:
    whole numbers may stand for classes that are text, as tools of scikit-learn encode labels: their
    positions in the sorted list. The classes are then these numbers.
    """
    codes, labels = factorize(table.y)
    if (codes < 0).any():
        refuse_target(table, np.flatnonzero(codes < 0), "NaN or None")
    if labels.dtype.kind == "f" and np.isinf(labels).any():
        refuse_target(table, np.flatnonzero(np.isinf(labels)[codes]), "infinity (inf)")
    labels = _plain_labels(labels)
    if classes is None:
        # Twice each: of distinct labels alone the check says that they look like a regression.
        with np.errstate(invalid="ignore"):  # labels that no integer can hold
            check_classification_targets(np.repeat(labels, 2))
        classes, position = np.unique(labels, return_inverse=True)
        whole = table.rows is not None and table.order is None and classes.dtype.kind == "f"
        if whole:  # NaN made the labels of a wide y floats
            classes = classes.astype(np.int64)
    else:
        if positions and classes.dtype.kind == "U" and labels.dtype.kind in "iu":
            if len(classes) > 2 and set(labels.tolist()) == {0, 1}:
                raise ValueError(
                    f"y holds 0 and 1, and classes= lists {len(classes)} labels as text. A tool "
                    "that fits one class against the others (OneVsRestClassifier) needs "
                    f"classes=[0, 1]; one that numbers all classes, classes=range({len(classes)})."
                )
            if labels.min() >= 0 and labels.max() < len(classes):
                classes = np.arange(len(classes))
        known = {label: k for k, label in enumerate(classes.tolist())}
        position = np.array([known.get(label, -1) for label in labels.tolist()])
        if (position < 0).any():
            raise ValueError(
                f"y has labels that are not among the classes {listed(classes)}. {_UNKNOWN_LABEL}"
            )
    return position[codes], classes


_UNKNOWN_LABEL = (
    "Add them to classes= of the fit if they are public, or drop their rows; a target of numbers "
    "is for the estimator without Classifier in its name, and successes out of trials are written "
    "out by skpmtl.expand_trials. Where a tool of scikit-learn encodes labels (cross_val_predict "
    "with method=, VotingClassifier, StackingClassifier, OneVsRestClassifier), list the numbers "
    "that it passes: classes=range(n_classes), or [0, 1] for one class against the others."
)


def class_targets(codes, offsets, n_classes, *, spread, support=None):
    """Codes (N,) of labels, rows sorted by task -> targets (N,) as the losses take them.

    Two classes: -(1 - e) or 1 - e; more: the number of the class plus e. Where a class is missing
    in a task its intercept would have no finite optimum. With `spread` such a task therefore has
    one row more, which is shared by all classes: its n labels count 1 - e for their class and e /
    n_classes for each of the classes, e = 1 / (n + 1). A task with one class then has the model w =
    0 and, with two classes, the log-odds log(2 n + 1). The task does so by itself; nothing of it
    leaves the task.

    Otherwise e = 0 everywhere: where something else holds intercepts, and where records are
    protected, as e depends on all rows of a task. `support` (m,) has rows as far as they count, the
    n of e.
    """
    sizes = np.diff(offsets)
    e = np.zeros(len(sizes))
    if spread:
        task = np.repeat(np.arange(len(sizes)), sizes)
        present = np.bincount(task * n_classes + codes, minlength=len(sizes) * n_classes) > 0
        missing = ~present.reshape(len(sizes), n_classes).all(axis=1)
        e[missing] = 1.0 / ((sizes if support is None else support)[missing] + 1.0)
    e = np.repeat(e, sizes)
    return (2.0 * codes - 1.0) * (1.0 - e) if n_classes == 2 else codes + e


def class_codes(y, n_classes):
    """Numbers of the classes, from targets as `class_targets` makes them."""
    return (y > 0).astype(np.int64) if n_classes == 2 else y.astype(np.int64)


def class_shares(y, n_classes):
    """What each class has of every row, (N, n_classes), for targets of more than two classes."""
    codes = y.astype(np.int64)
    e = y - codes
    shares = np.repeat((e / n_classes)[:, None], n_classes, axis=1)
    shares[np.arange(len(y)), codes] += 1.0 - e
    return shares


def refuse_target(table, bad, problem, remedy="Drop these rows."):
    task = table.tasks[np.searchsorted(table.offsets, bad[0], side="right") - 1].item()
    raise ValueError(
        f"Input y contains {problem}: {len(bad)} value(s), first in row "
        f"{table.input_row(bad[0])} (task {task!r}). {remedy}"
    )


def pair_known(y, predicted, labels=None, sample_weight=None):
    """Targets and predictions of all known labels, as vectors, from any form.

    `labels` are the tasks of the columns of wide predictions: a DataFrame `y` is put in this order.
    Weights of rows do not go with mappings. -> y, predicted, sample_weight, (n_known,); the last
    may be None
    """
    if isinstance(predicted, Mapping):
        if sample_weight is not None:
            raise ValueError("sample_weight does not go with a mapping; use stack_tasks first.")
        y = np.concatenate([column_or_1d(np.asarray(y[name])) for name in predicted])
        predicted = np.concatenate(list(predicted.values()))
    names = column_labels(y, "y")
    y = np.asarray(y)
    if predicted.ndim == 1:
        y = column_or_1d(y)
        check_consistent_length(y, predicted, sample_weight)
        return y, predicted, sample_weight
    if y.shape != predicted.shape:
        raise ValueError(
            f"y has the shape {y.shape}, but the predictions {predicted.shape}; y needs one "
            "column per task."
        )
    if names is not None and labels is not None:
        names = distinct_ids(names, "The columns of y").tolist()
        y = y[:, [names.index(label) for label in labels.tolist()]]
    known = known_labels(y)
    if sample_weight is not None:
        check_consistent_length(y, sample_weight)
        sample_weight = np.asarray(sample_weight)[np.nonzero(known)[0]]
    return y[known], predicted[known], sample_weight
