"""Scores of multi-task predictions. They are computed from rows and carry no noise."""

import warnings
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import is_classifier
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import get_scorer
from sklearn.utils import Bunch, get_tags
from sklearn.utils.metadata_routing import MetadataRequest
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_consistent_length

from .tables.forms import is_mapping_of_tasks, take_column, task_position
from .tables.frames import by_position, column_labels
from .tables.ids import encode_ids, factorize
from .tables.table import distinct_ids, known_labels, named_floats
from .tables.targets import pair_known
from .tables.weights import row_weights

__all__ = ["average_auc", "nmse", "task_scorer", "task_scores"]
__dir__ = __all__.copy


def nmse(y_true: ArrayLike, y_pred: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
    """Normalised mean squared error: mean squared error over the variance of the targets.

    Both are taken over all rows of all tasks together. 1 is the error of predicting the mean of
    `y_true`, 0 is perfect; for complete targets it is 1 - R2.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_tasks)
        Targets, NaN where not known (two dimensions only).
    y_pred : array-like of the same shape
        Predictions.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the rows, not negative.

    Returns
    -------
    nmse : float

    Examples
    --------
    >>> from skpmtl.metrics import nmse
    >>> nmse([1.0, 2.0, 3.0], [1.0, 2.0, 5.0])
    2.0
    """
    given = y_true, named_floats(y_pred, "y_pred"), None, sample_weight
    y_true, y_pred, weights = pair_known(*given)
    y_true, counted = named_floats(y_true, "y_true"), slice(None)
    if weights is not None:
        weights = row_weights(weights, None, [len(y_true)])
        counted = weights > 0
    known = y_true[counted]
    if (known == known[:1]).all():  # of equal ones the variance may be rounding, not 0
        raise ValueError(f"The {len(known)} targets do not vary; nmse divides by their variance.")
    mean = np.average(y_true, weights=weights)
    variance = np.average((y_true - mean) ** 2, weights=weights)
    return float(np.average((y_true - y_pred) ** 2, weights=weights) / variance)


def average_auc(
    y_true: ArrayLike,
    y_score: ArrayLike,
    task: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Area under the ROC curve, averaged over the tasks.

    Tasks with only one class have no such area and are left out of the average; `task_scores`
    with ``scoring="roc_auc"`` shows which.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_tasks)
        Labels of two classes, of which the larger is the positive one. With two dimensions,
        NaN where not known.
    y_score : array-like of the same shape
        Scores: a decision function, or the probability of the positive class.
    task : array-like of shape (n_samples,), default=None
        Task of every row; None: one task, or one per column.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the rows, not negative. A task without rows of both classes of positive weight
        is left out.

    Returns
    -------
    auc : float

    Examples
    --------
    >>> from skpmtl.metrics import average_auc
    >>> average_auc([0, 1, 0, 1, 1], [0.1, 0.9, 0.8, 0.2, 0.5], task=[1, 1, 2, 2, 2])
    0.5
    """
    y_true, y_score = np.asarray(y_true), named_floats(y_score, "y_score")
    if y_true.shape != y_score.shape:
        raise ValueError(
            f"y_true has the shape {y_true.shape}, y_score {y_score.shape}. For probabilities "
            "of both classes take predict_proba(X)[:, 1]."
        )
    if y_true.ndim == 2:
        if task is not None:
            raise ValueError("With two dimensions the columns are the tasks: give no task=.")
        known = known_labels(y_true)
        codes = np.nonzero(known)[1]
        y_true, y_score = y_true[known], y_score[known]
        if sample_weight is not None:
            check_consistent_length(known, sample_weight)
            sample_weight = np.asarray(sample_weight)[np.nonzero(known)[0]]
    else:
        codes = np.zeros(len(y_true), np.int64) if task is None else encode_ids(task)[0]
        check_consistent_length(codes, y_true, sample_weight)
    labels, classes = factorize(y_true)
    if (labels < 0).any() or len(classes) != 2 or not np.isfinite(y_score).all():
        raise ValueError("average_auc needs labels of two classes, none missing, finite scores.")
    positive = labels == np.argsort(classes)[1]
    weights = np.ones(len(y_true))
    if sample_weight is not None:
        weights = row_weights(sample_weight, None, [len(y_true)])
    # The area is the share of pairs of a positive and a negative row of one task in which the first
    # has the higher score, ties by half. Rows are sorted by task and score.
    order = np.lexsort((y_score, codes))
    codes, y_score, weights = codes[order], y_score[order], weights[order]
    positive = positive[order]
    new = np.concatenate([[True], (codes[1:] != codes[:-1]) | (y_score[1:] != y_score[:-1])])
    tie, task_of = np.cumsum(new) - 1, codes[new]
    above, below = (np.bincount(tie, weights * mask) for mask in (positive, ~positive))
    n_positive, n_negative = np.bincount(task_of, above), np.bincount(task_of, below)
    earlier = np.cumsum(below) - below - (np.cumsum(n_negative) - n_negative)[task_of]
    usable = (n_positive > 0) & (n_negative > 0)
    if not usable.any():
        raise ValueError("No task has rows of both classes, so that no area is defined.")
    total = np.bincount(task_of, above * (earlier + 0.5 * below))
    return float(np.mean(total[usable] / (n_positive * n_negative)[usable]))


def task_scores(
    estimator,
    X,
    y: ArrayLike,
    task: ArrayLike | None = None,
    *,
    scoring=None,
    sample_weight: ArrayLike | None = None,
    as_frame: bool = False,
):
    """One score for every task.

    The result is computed from the rows of the tasks, without noise: to publish it is a release,
    also if the fit was private.

    Parameters
    ----------
    estimator : fitted estimator
        With a task, like those of this package, or a pipeline or search that ends in one.
    X, y : array-like, DataFrame or mapping
        Test rows in any form that ``estimator.predict`` takes.
    task : array-like of shape (n_samples,), str or int, default=None
        Task ids, which are passed to the estimator, or the name or position of the column of
        X that holds them. None: the estimator's own `task_feature`, or a mapping or 2-D y.
    scoring : str or scorer, default=None
        As in scikit-learn; None is R2 or accuracy.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the rows of X, for a scorer that takes them; not with mappings. A task without
        any has no score.
    as_frame : bool, default=False
        Whether to return a DataFrame in place of arrays.

    Returns
    -------
    scores : Bunch, or DataFrame with columns "score" and "n_samples" by "task"
        With the keys `tasks` (ids), `scores`, `n_samples` (arrays of shape (n_tasks,), for the
        tasks that have rows here) and `mean`, the macro average. A score that is not defined
        for a task (R2 of one row, AUC of one class) is NaN and left out of `mean`.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> from skpmtl import PerTask
    >>> from skpmtl.datasets import make_low_rank_tasks
    >>> from skpmtl.metrics import task_scores
    >>> X, y, task = make_low_rank_tasks(n_tasks=4, n_features=3, random_state=0)
    >>> result = task_scores(PerTask(Ridge(0.01)).fit(X, y, task=task), X, y, task=task)
    >>> result.tasks, bool(result.mean > 0.9)
    (array([0, 1, 2, 3]), True)
    """
    if scoring is None:
        scoring = "accuracy" if is_classifier(estimator) else "r2"
    scorer = get_scorer(scoring)
    keywords, y, codes, tasks = _split_tasks(estimator, X, y, task)
    view = _Predicted(estimator, X, y, keywords)
    known, _, weights = pair_known(y, view.full("predict"), None, sample_weight)
    known = known if is_classifier(estimator) else named_floats(known, "y")
    weights = None if weights is None else np.asarray(weights, dtype=float)
    order = np.argsort(codes, kind="stable")
    sizes = np.bincount(codes, minlength=len(tasks))
    scores = np.full(len(tasks), np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UndefinedMetricWarning)
        for k, rows in enumerate(np.split(order, np.cumsum(sizes)[:-1])):
            if not len(rows):
                continue
            if weights is None:
                scores[k] = scorer(view, rows[:, None], known[rows])
            elif weights[rows].any():
                given = rows[:, None], known[rows]
                scores[k] = scorer(view, *given, sample_weight=weights[rows])
    present = sizes > 0
    defined = scores[~np.isnan(scores)]
    if as_frame:
        import pandas as pd

        columns = {"score": scores[present], "n_samples": sizes[present]}
        return pd.DataFrame(columns, pd.Index(tasks[present], name="task"))
    return Bunch(
        tasks=tasks[present],
        scores=scores[present],
        n_samples=sizes[present],
        mean=float(defined.mean()) if len(defined) else float("nan"),
    )


def task_scorer(scoring) -> Callable:
    """A scorer that passes the tasks of rows to the estimator.

    The scorers of scikit-learn call ``predict(X)``, so that ids which are given apart from X do not
    reach it. This one takes them as ``task=``: with metadata routing
    ``cross_validate(..., params={"task": ids})`` and ``GridSearchCV.fit(X, y, task=ids)`` hand them
    on. If the task is a column of X, the names of scorers are enough.

    Parameters
    ----------
    scoring : str or scorer
        As in scikit-learn, such as "roc_auc".

    Returns
    -------
    scorer : callable
        ``scorer(estimator, X, y, task=None, sample_weight=None) -> float``, for one target per
        row. Weights are routed to it, too.

    Examples
    --------
    >>> from skpmtl import MPMTLLowRankClassifier
    >>> from skpmtl.datasets import make_low_rank_tasks
    >>> from skpmtl.metrics import task_scorer
    >>> X, y, task = make_low_rank_tasks(n_tasks=4, n_features=3, random_state=0)
    >>> model = MPMTLLowRankClassifier(0.1, epsilon=None).fit(X, y > 0, task=task)
    >>> bool(task_scorer("roc_auc")(model, X, y > 0, task=task) > 0.9)
    True
    """
    return _TaskScorer(get_scorer(scoring))


class _TaskScorer:
    def __init__(self, scorer):
        self.scorer = scorer

    def __call__(self, estimator, X, y, task=None, sample_weight=None):
        y = np.asarray(y) if is_classifier(estimator) else named_floats(y, "y")
        view = _Predicted(estimator, X, y, {} if task is None else {"task": task})
        weights = {} if sample_weight is None else {"sample_weight": sample_weight}
        return self.scorer(view, np.arange(len(y))[:, None], y, **weights)

    def get_metadata_routing(self):
        """What scikit-learn routes to the scorer."""
        request = MetadataRequest(owner=self)
        request.score.add_request(param="task", alias=True)
        request.score.add_request(param="sample_weight", alias=True)
        return request

    def __repr__(self):
        return f"task_scorer({self.scorer!r})"


def _split_tasks(estimator, X, y, task):
    """-> keywords of predict, y, and codes and labels of the tasks of all known targets."""
    if is_mapping_of_tasks(X):
        tasks = list(X)
        codes = np.repeat(np.arange(len(tasks)), [len(np.asarray(y[name])) for name in tasks])
        return {}, y, codes, distinct_ids(tasks, "The keys of X")
    column = task if isinstance(task, (str, int, np.integer)) else None
    if task is None:
        column = getattr(estimator, "task_feature", None)
    if column is not None:
        X = by_position(X)
        ids = take_column(X, task_position(X, column))
        return {}, y, *encode_ids(ids)
    if task is not None:
        return {"task": task}, y, *encode_ids(task)
    values = np.asarray(y)
    labels = getattr(getattr(estimator, "_form_", None), "labels", None)
    if values.ndim != 2 or labels is None:
        raise ValueError("Which row belongs to which task? Give task=, ids or a column of X.")
    if column_labels(y, "y") is not None:
        names = distinct_ids(column_labels(y, "y"), "The columns of y").tolist()
        values = values[:, [names.index(label) for label in labels.tolist()]]
    return {}, values, np.nonzero(known_labels(values))[1], labels


def check_scorer(scorer, estimator):
    """Raise what a scorer raises for right predictions of made-up targets of all classes."""
    classes = getattr(estimator, "classes_", None)
    right = {"predict": np.arange(4.0)}
    if classes is not None:
        codes = np.tile(np.arange(len(classes)), 2)
        one_hot = np.eye(len(classes))[codes]
        right = {"predict": classes[codes], "predict_proba": one_hot, "decision_function": one_hot}
        if len(classes) == 2:
            right["decision_function"] = 2.0 * codes - 1.0
    y = right["predict"]
    view = _Predicted(estimator, None, y, {})
    view._results = right
    scorer(view, np.arange(len(y))[:, None], y)


class _Predicted:
    """Fitted estimator for scorers whose X is row numbers: every method is called once."""

    def __init__(self, estimator, X, y, keywords):
        self.estimator, self.X, self.y, self.keywords = estimator, X, y, keywords
        self._results = {}

    def full(self, method):
        """Result of a method for all rows."""
        if method not in self._results:
            self._results[method] = getattr(self.estimator, method)(self.X, **self.keywords)
        return self._results[method]

    def _rows(self, method, rows):
        values = self.full(method)
        if isinstance(values, dict):
            values = np.concatenate(list(values.values()))
        elif np.ndim(self.y) == 2 and np.shape(self.y)[1] > 1:
            values = values[known_labels(np.asarray(self.y))]
            if method == "predict_proba":
                values = np.column_stack([1.0 - values, values])
        return values[rows[:, 0]]

    def predict(self, rows):
        return self._rows("predict", rows)

    @available_if(lambda self: hasattr(self.estimator, "predict_proba"))
    def predict_proba(self, rows):
        return self._rows("predict_proba", rows)

    @available_if(lambda self: hasattr(self.estimator, "decision_function"))
    def decision_function(self, rows):
        return self._rows("decision_function", rows)

    @property
    def classes_(self):
        return self.estimator.classes_

    def __sklearn_is_fitted__(self):
        return True

    def __sklearn_tags__(self):
        return get_tags(self.estimator)
