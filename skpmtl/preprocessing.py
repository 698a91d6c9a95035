"""Preprocessing that every task does alone."""

import warnings
from numbers import Integral

import numpy as np
from scipy.special import digamma, polygamma
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from ._diagram import Documented
from .tables.forms import (
    check_finite,
    encode_rows,
    kept_columns,
    read_features,
    sort_rows,
    table_matrix,
)
from .tables.ids import listed, locate
from .tables.table import SingleTaskWarning

__all__ = ["TaskScaler"]
# Spread of the logarithms of variances around the public ones, at least; rows from which a task
# estimates its own; and how many times the noise of a logarithm counts.
_SPREAD, _FEW, _DOUBT = 0.25, 5, 3.0


class TaskScaler(Documented, OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Standardise the features within every task: mean 0, and about variance 1 in each.

    The mean and scale of a task come from its own rows and are used for its own rows, so
    that nothing passes between tasks and no privacy budget is spent, as long as `mean_` and
    `scale_` stay with the tasks. `StandardScaler` over all rows is a statistic of all tasks.

    Few rows tell little of a standard deviation, and one that is too small by chance would blow
    up all other rows of the task. A scale is therefore shrunk towards a public one; see Notes.

    The task column stays where it is. A frame gives a frame, anything else an array;
    ``set_output`` has precedence. To scale without changing the task column by means of
    scikit-learn's own transformers, use ``ColumnTransformer(..., remainder="passthrough")``.

    Parameters
    ----------
    task_feature : str, int or None, default=None
        Column of X that holds the task id, by name or position. None: all rows are one task,
        and a `SingleTaskWarning` says so.
    with_mean, with_std : bool, default=True
        Whether to subtract the mean, and to divide by the scale. Features that are constant in a
        task are divided by the public scale.
    scale : float or array-like of shape (n_features,), default=1.0
        Public scale of the features, without the task column, in their units: what a standard
        deviation is expected to be. Tasks of few rows have little else.

    Attributes
    ----------
    tasks_ : ndarray of shape (n_tasks,)
        Task ids, sorted.
    mean_, scale_ : ndarray of shape (n_tasks, n_features)
        Without the task column. A feature is ``(x - mean_) / scale_``.
    n_features_in_, feature_names_in_
        Of X as given, so that a task column counts.

    Notes
    -----
    In a task of n rows the unbiased logarithm l of a variance has the variance
    v = trigamma((n - 1) / 2). The task takes w l + (1 - w) log(scale^2), w = t / (t + 3 v), where
    t is how far its features are from the public scale: the mean of (l - log(scale^2))^2 over
    them less v, at least 1/4, and 1/4 below five rows. Two rows hence move a scale by 2 % of the
    way, and tasks with many rows, or with features far from the public scale, have nearly
    variance 1.

    Examples
    --------
    >>> import pandas as pd
    >>> from skpmtl import TaskScaler
    >>> table = pd.DataFrame({"school": ["a", "a", "b", "b"], "size": [1.0, 3.0, 10.0, 30.0]})
    >>> scaler = TaskScaler(task_feature="school", scale=10.0)
    >>> scaler.fit_transform(table)["size"].round(2).tolist()
    [-0.1, 0.1, -0.98, 0.98]
    """

    def __init__(self, *, task_feature=None, with_mean=True, with_std=True, scale=1.0):
        self.task_feature = task_feature
        self.with_mean = with_mean
        self.with_std = with_std
        self.scale = scale

    def fit(self, X, y=None):
        """Compute mean and scale of every task.

        Parameters
        ----------
        X : array-like or frame of shape (n_samples, n_features)
            With the task column, without NaN.
        y : object
            Not used.

        Returns
        -------
        self : object
        """
        if not isinstance(self.task_feature, (str, Integral, type(None))):
            raise TypeError(f"task_feature={self.task_feature!r} must be None, a str or an int.")
        matrix, ids, form = read_features(self, X, None, None, accept_sparse=False)
        if ids is None:
            warnings.warn(
                "There is no task_feature: all rows are taken as one task.",
                SingleTaskWarning,
                stacklevel=2,
            )
            ids = np.zeros(len(matrix), dtype=np.int64)
        codes, self.tasks_ = encode_rows(ids, len(matrix))
        check_finite(self, matrix, form.columns, codes, self.tasks_)
        order, offsets = sort_rows(codes, len(self.tasks_))
        table = table_matrix(matrix, order, kept_columns(self, matrix, form.columns))
        public = self._public_scale(table.shape[1])
        sizes = np.diff(offsets)[:, None]
        self.mean_ = np.add.reduceat(table, offsets[:-1], axis=0) / sizes
        deviation = table - np.repeat(self.mean_, sizes[:, 0], axis=0)
        deviation *= deviation
        squares = np.add.reduceat(deviation, offsets[:-1], axis=0)
        # Rounding leaves a constant feature with a deviation just above 0.
        varies = squares > sizes * (10 * np.finfo(float).eps * self.mean_) ** 2
        self.scale_ = public * _shrunk(squares / public**2, varies, sizes)
        self._form_ = form
        return self

    def transform(self, X):
        """Scale rows with the mean and scale of their task.

        Parameters
        ----------
        X : array-like or frame of shape (n_samples, n_features)
            With the task column.

        Returns
        -------
        X : frame of the same type, or ndarray, of shape (n_samples, n_features)

        Raises
        ------
        ValueError
            For tasks that were not in `fit`.
        """
        check_is_fitted(self)
        matrix, ids, form = read_features(self, X, None, self._form_, accept_sparse=False)
        if ids is None:
            ids = np.zeros(len(matrix), dtype=np.int64)
        codes, labels = encode_rows(ids, len(matrix))
        position = locate(labels, self.tasks_)
        if (position < 0).any():
            raise ValueError(
                f"Tasks that were not in fit: {listed(labels[position < 0])}. Scale the rows of a "
                "new task by a TaskScaler of their own."
            )
        check_finite(self, matrix, form.columns, codes, labels)
        codes = position[codes]
        scaled = table_matrix(matrix, None, kept_columns(self, matrix, form.columns))
        if self.with_mean:
            scaled = scaled - self.mean_[codes]
        if self.with_std:
            scaled = scaled / self.scale_[codes]
        return _beside_task(X, scaled, ids, form.position)

    def _public_scale(self, n_features):
        try:
            public = np.asarray(self.scale, dtype=float)
        except (TypeError, ValueError):
            public = np.array(np.nan)
        if public.shape not in ((), (n_features,)) or not (0 < public).all():
            raise ValueError(
                f"scale= must be a positive number or {n_features} of them, one for each feature "
                "without the task column."
            )
        return public

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.categorical = self.task_feature is not None
        return tags


def _shrunk(squares, varies, sizes):
    """Scales of all tasks, in units of the public ones, from sums of squares; see `TaskScaler`."""
    half = np.maximum(sizes - 1, 1) / 2
    logs = np.where(varies, np.log(np.where(varies, squares, 1.0) / 2) - digamma(half), 0.0)
    noise = polygamma(1, half)
    far = (logs**2).sum(axis=1, keepdims=True) / np.maximum(varies.sum(axis=1, keepdims=True), 1)
    spread = np.where(sizes < _FEW, 0.0, far - noise)
    spread = np.maximum(spread, _SPREAD)
    return np.exp(0.5 * spread / (spread + _DOUBT * noise) * logs)


def _beside_task(X, scaled, ids, position):
    """The scaled features with the task column put back."""
    columns = list(scaled.T)
    if position is not None:
        columns.insert(position, ids)
    if not hasattr(X, "columns"):
        return scaled if position is None else np.column_stack(columns)
    named = dict(zip(X.columns, columns, strict=True))
    return type(X)(named, index=X.index) if hasattr(X, "index") else type(X)(named)
