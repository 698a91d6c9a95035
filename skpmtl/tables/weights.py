"""Weights of rows and classes, and their scaling.

The loss of task k is sum_i w_i l_i / sum_i w_i, with weights w_i >= 0 that are the task's own
data. Rows of weight 0 are dropped; a task left without rows counts as absent. Weights of a task
that are all multiplied by a number mean the same, except with ``task_weight="samples"``, where
losses are added up and 1 is a whole row. A guarantee for tasks needs no bound of weights: what a
task sends is bounded whatever its rows and their weights are.

Where a rule asks for the number of rows of a task (how strongly it is regularised, how much its
evidence counts), rows of unequal weights count

    n_k = max((sum_i w_i)^2 / sum_i w_i^2, sum_i w_i).

The first is Kish's number: so many rows of equal weight have a weighted mean of the same variance.
It is the larger one where no weight is above 1, at most the number of rows, and does not change
when all weights are divided by the same number. The second is the larger one where weights count
how often rows were seen: a row of weight 3 is three rows, as in scikit-learn. Below the input a
table holds u_i = n_k w_i / sum_i w_i, which add up to n_k (`in_rows`).

Where single records are protected, denominators are numbers of rows that are public: there weights
are at most 1, stay what they are, also 0, and multiply what a record contributes after it was
clipped; see `skpmtl.base.TaskIndexed._counts_rows`.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from scipy import sparse

from .ids import factorize, listed
from .table import LARGEST, both, floats

_REMEDY = (
    "where single records are protected, divide weights by the largest that is possible (a public "
    "number, not that of the rows)"
)


def row_weights(given, keys, counts, limit=np.inf):
    """Weights (n,) of the rows of X, in their order, checked.

    `given` is an array, or ``{task: w_t}`` where X is a mapping with these `keys`; `counts` has the
    rows of each key, or of X itself. Raises ValueError for another length or form, and for anything
    but numbers from 0 to `limit`.
    """
    if isinstance(given, Mapping) != (keys is not None):
        raise ValueError(
            "sample_weight must be a mapping {task: weights} if X is one, and an array if X is "
            f"one: got {type(given).__name__}."
        )
    if keys is None:
        return _numbers(given, int(counts[0]), limit)
    odd = [key for key in {**dict.fromkeys(keys), **given} if (key in given) != (key in keys)]
    if odd:
        raise ValueError(f"Task {odd[0]!r} is in only one of X and sample_weight.")
    pairs = zip(keys, counts.tolist(), strict=True)
    return np.concatenate([_numbers(given[key], n, limit, f" of task {key!r}") for key, n in pairs])


def _numbers(given, n_rows, limit, where=""):
    if sparse.issparse(given):
        raise ValueError(f"sample_weight{where} is sparse; give an array: w.toarray().ravel().")
    found = None
    try:
        found = floats(given)
    except (TypeError, ValueError):
        pass
    if found is None:  # not inside of except: the first error shows a value
        raise ValueError(f"sample_weight{where} has values that are not numbers.")
    if found.shape != (n_rows,):
        raise ValueError(
            f"sample_weight{where} has the shape {found.shape}, but there are {n_rows} rows: it "
            "needs one weight for each."
        )
    bad = ~((found >= 0.0) & (found <= limit) & np.isfinite(found))
    if bad.any():
        remedy = f"{_REMEDY}, and drop rows without one"
        raise ValueError(
            f"sample_weight{where} has {int(bad.sum())} value(s) that are not "
            + (f"between 0 and 1: {remedy}." if limit == 1.0 else "finite numbers of at least 0.")
        )
    return np.minimum(found, LARGEST)  # so that products of rows stay finite


def class_weights(given, classes, limit=np.inf):
    """Weight of each class, (n_classes,), from the parameter `class_weight`; None: by counts.

    Classes that a mapping does not name weigh 1. Raises ValueError for weights that are negative,
    not finite or above the `limit`, and for labels that are no class.
    """
    if not isinstance(given, Mapping):
        return None
    weights, known = np.ones(len(classes)), {label: k for k, label in enumerate(classes.tolist())}
    labels = factorize(list(given))[1].tolist() if given else []
    if len(labels) < len(given) or any(label not in known for label in labels):
        raise ValueError(
            f"class_weight names labels that are not among the classes {listed(classes)}."
        )
    for label, weight in given.items():
        try:
            weights[known[label]] = weight
        except (TypeError, ValueError):
            weights[known[label]] = np.nan
    if not ((weights >= 0.0) & (weights <= limit) & np.isfinite(weights)).all():
        raise ValueError(
            "class_weight must be "
            + (f"numbers from 0 to 1: {_REMEDY}." if limit == 1.0 else "finite, at least 0.")
        )
    return weights


def with_classes(table, given, classes, limit=np.inf):
    """A table whose targets are codes of classes, with weights times those of their classes.

    With "balanced" all classes of a task that it has rows of weigh the same together, and the
    rarest has the weight 1: a row of class c weighs n_k / (C_k n_kc), scaled to a maximum of 1
    in the task.
    """
    weights = table.counts
    own = class_weights(given, classes, limit)
    if own is not None:
        return replace(table, weights=np.minimum(weights * own[table.y], LARGEST))
    pairs, C = table.codes * len(classes) + table.y, len(classes)
    mass = np.bincount(pairs, weights, minlength=table.n_tasks * C).reshape(-1, C)
    return replace(table, weights=weights * balanced_shares(mass).ravel()[pairs])


def balanced_shares(mass):
    """Weights of the classes of every task, with which they weigh the same, for sums (m, C)."""
    present = np.where(mass > 0, mass, np.inf)
    return present.min(axis=1, keepdims=True) / present


def without_weightless(table):
    """A table without the rows of weight 0; tasks that are left without any are `absent`."""
    keep = table.weights > 0
    if keep.all():
        return table
    if not keep.any():
        raise ValueError("All weights are zero: there is no row to learn from.")
    kept = np.flatnonzero(keep)
    counts = np.bincount(table.codes[kept], minlength=table.n_tasks)
    some = counts > 0
    place = {"order": kept if table.order is None else table.order[kept]}
    if table.rows is not None:
        place = {"rows": table.rows[kept], "order": None if table.order is None else place["order"]}
    return replace(
        table,
        X=table.X if table.rows is not None else table.X[kept],
        y=table.y[kept],
        weights=table.weights[kept],
        offsets=np.concatenate([[0], np.cumsum(counts[some])]),
        tasks=table.tasks[some],
        absent=both(table.absent, table.tasks[~some]),
        levels=None if table.levels is None else table.levels[kept],
        **place,
    )


def in_rows(table):
    """A table with weights in units of rows, which add up to the number that a task counts for.

    None stays None. `masses` keeps the sums of the weights that were given.
    """
    if table.weights is None:
        return table
    table = without_weightless(table)
    starts = table.offsets[:-1]
    # Weights near the smallest floats must not vanish when squared.
    largest = np.maximum.reduceat(table.weights, starts)
    relative = table.weights / np.repeat(largest, table.sizes)
    ratio = np.add.reduceat(relative, starts) / np.add.reduceat(relative**2, starts)
    ratio = np.maximum(ratio, largest)
    masses = np.add.reduceat(table.weights, starts)
    if table.masses is not None:  # in units of rows already
        masses = table.masses
    return replace(table, weights=relative * np.repeat(ratio, table.sizes), masses=masses)
