"""Rows, candidates and results of `PrivateSearch`."""

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils.validation import check_consistent_length, column_or_1d

from ..tables.assignment import shuffled
from ..tables.forms import is_mapping_of_tasks, read_array, take_column, task_position
from ..tables.frames import by_position, frame_of, safe_indexing
from ..tables.ids import encode_ids, factorize
from ..tables.weights import row_weights


def described(grids):
    """Candidates as text, without the addresses of distribution objects."""
    grids = [grids] if isinstance(grids, dict) else grids
    return "; ".join(
        ", ".join(
            f"{name} in {type(values).__name__ if hasattr(values, 'rvs') else list(values)}"
            for name, values in grid.items()
        )
        for grid in grids
    )


def results_table(params, scores):
    """`cv_results_` in the form of scikit-learn."""
    results = {"params": params, "mean_test_score": scores}
    results["rank_test_score"] = np.array([1 + int((scores > s).sum()) for s in scores])
    for name in sorted({name for candidate in params for name in candidate}):
        column = np.ma.masked_all(len(params), dtype=object)
        for i, candidate in enumerate(params):
            if name in candidate:
                column[i] = candidate[name]
        results[f"param_{name}"] = column
    return results


class SplitRows:
    """Rows of all tasks in the long form, each task split by its own rows alone.

    `training` and `held_out` are X, y and the task ids (None: in a column of X, or, in training,
    nowhere); `kept` and `tested` are their rows among those that weigh anything.
    """

    def __init__(self, estimator, X, y, task, test_size, sample_weight=None):
        if y is None:
            raise ValueError("PrivateSearch requires y to be passed, but the target y is None.")
        y = by_position(y)
        if is_mapping_of_tasks(X) or (y.ndim == 2 and y.shape[1] > 1):
            raise ValueError(
                "PrivateSearch takes one row per target: convert a mapping with stack_tasks, and "
                "a y with one column per task with wide_to_long."
            )
        if frame_of(X) is None:
            X = read_array(X, accept_sparse="csr", dtype=None, estimator=estimator)
        y = column_or_1d(y, warn=True)
        if y.dtype.kind == "O" and len({type(label) for label in y.tolist()}) == 1:
            y = np.array(y.tolist())  # scikit-learn's scorers do not take labels as objects
        check_consistent_length(X, y, task)
        self._weights = None
        if sample_weight is not None:  # a row of weight 0 is not there: the others are split
            weights = row_weights(sample_weight, None, np.array([len(y)]))
            some = np.flatnonzero(weights)
            if not len(some):
                raise ValueError("All weights are zero: there is no row to learn from.")
            X, y, task = _pick(X, some), y[some], _pick(task, some)
            self._weights = weights[some]
        feature = getattr(estimator, "task_feature", None)
        if feature is not None and task is not None:
            raise ValueError("Give either task_feature or task=, not both.")
        if feature is not None:
            ids = take_column(X, task_position(X, feature))
        else:
            ids = np.zeros(len(y), dtype=np.int64) if task is None else task
        codes, tasks = encode_ids(ids)
        labels = factorize(y)[0] if is_classifier(estimator) else np.zeros(len(y), np.int64)
        held_out = _held_out(codes, tasks, labels, test_size)
        parts = self.kept, self.tested = np.flatnonzero(~held_out), np.flatnonzero(held_out)
        listed = getattr(estimator, "tasks", "auto")
        self.n_tasks = len(tasks) if isinstance(listed, str) else len(listed)
        self.n_held_out = len(parts[1])
        self.training = _pick(X, parts[0]), y[parts[0]], _pick(task, parts[0])
        ids = None if feature is not None else ids
        self.held_out = _pick(X, parts[1]), y[parts[1]], _pick(ids, parts[1])
        self._all = X, y, ids

    def personalize(self, fitted):
        """Models of all tasks from the billboard and all their rows."""
        fitted.personalize(*self._all, **self.weights(slice(None)))

    def weights(self, pick):
        """Weights of these rows, as a keyword; nothing where none were given."""
        return {} if self._weights is None else {"sample_weight": self._weights[pick]}


def _pick(values, rows):
    return None if values is None else safe_indexing(values, rows)


def _held_out(codes, tasks, labels, test_size):
    """Mask of the rows that are kept for the score: a share of each class of each task."""
    group = np.unique(np.column_stack([codes, labels]), axis=0, return_inverse=True)[1].ravel()
    sizes = np.bincount(group)
    start = np.cumsum(sizes) - sizes
    order = shuffled(codes, tasks, seed=0)
    order = order[np.argsort(group[order], kind="stable")]
    rank = np.empty(len(group), dtype=np.int64)
    rank[order] = np.arange(len(group)) - start[group[order]]
    wanted = np.where(sizes > 1, np.maximum(np.floor(test_size * sizes + 0.5), 1), 0)
    return rank < np.minimum(wanted, sizes - 1)[group]
