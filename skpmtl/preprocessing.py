"""Preprocessing separately for each task."""

import warnings
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from numbers import Integral, Real

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import digamma, polygamma
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin, clone
from sklearn.preprocessing import StandardScaler
from sklearn.utils import Bunch
from sklearn.utils.validation import check_is_fitted, validate_data

from ._display.diagram import Documented
from ._runtime.hints import Self
from ._runtime.stack import users_line
from .base import merge_rows
from .tables.forms import (
    InputForm,
    check_finite,
    encode_rows,
    feature_names,
    kept_columns,
    numeric,
    read_features,
    sort_rows,
    table_matrix,
    take_column,
    task_position,
    without_rows,
)
from .tables.frames import (
    column_labels,
    columns_where,
    frame_of,
    is_number,
    safe_indexing,
    table_like,
)
from .tables.ids import encode_ids, factorize, listed, locate
from .tables.table import SingleTaskWarning, both, bounded, floats

__all__ = ["SingleTaskWarning", "TaskImputer", "TaskScaler"]
__dir__ = __all__.copy


# Spread of the logarithms of variances around the public ones, at least; rows from which a task
# estimates its own; and how many times the noise of a logarithm counts.
_SPREAD, _FEW, _DOUBT = 0.25, 5, 3.0


class _TaskTransformer(Documented, OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Numbers of every task, from its own rows and for its own rows."""

    def _check_task_feature(self):
        """TypeError for what names no column; a warning where there is none."""
        if not isinstance(self.task_feature, (str, Integral, list, type(None))):
            raise TypeError(f"task_feature={self.task_feature!r} must be None, a str or an int.")
        if self.task_feature is None:
            warnings.warn(
                "There is no task_feature: all rows are taken as one task.",
                SingleTaskWarning,
                stacklevel=users_line(),
            )

    def personalize(self, X, y=None):
        """Add tasks that were not in `fit`, or replace those that were, from rows of their own.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n_samples, n_features)
            As in `fit`.
        y : object
            Not used.

        Returns
        -------
        self : object
            The transformer; after an error it is as it was.
        """
        check_is_fitted(self)
        validate_data(self, X, skip_check_array=True, reset=False)
        if self.task_feature is None:
            raise ValueError("Without task_feature there are no tasks to add: call fit.")
        fresh = self._alone(X)
        locate(fresh.tasks_, self.tasks_)  # strings among integers are refused here
        tasks = np.union1d(self.tasks_, fresh.tasks_)
        rows = np.searchsorted(tasks, self.tasks_), np.searchsorted(tasks, fresh.tasks_)
        self._merge(fresh, len(tasks), *rows)
        self.tasks_ = tasks
        return self

    def _alone(self, X):
        """An object with what a fit of these rows alone would find."""
        return clone(self).fit(X)

    def export_task(self, task, *, as_sklearn: bool = False):
        """The fitted values of one task, which are for that task alone.

        Parameters
        ----------
        task : str or int
            Id of the task.
        as_sklearn : bool, default=False
            Whether to return a fitted transformer of scikit-learn, for X without the task column.

        Returns
        -------
        numbers : dict, StandardScaler or SimpleImputer
            Keys "task", "feature_names" (list, or None), and what is known of the features.

        Raises
        ------
        ValueError
            If the task is not in `tasks_`.
        TypeError
            If scikit-learn has no such transformer.
        """
        check_is_fitted(self)
        position = int(locate(encode_ids([task])[1], self.tasks_)[0])
        if position < 0:
            raise ValueError(f"Task {task!r} is not known here; tasks_ has {listed(self.tasks_)}.")
        names = feature_names(self)
        if as_sklearn:
            fitted = self._of_one(position)
            if names is not None:
                fitted.feature_names_in_ = names.astype(object)
            return fitted
        names = None if names is None else names.tolist()
        return {"task": self.tasks_[position].item(), "feature_names": names, **self._own(position)}

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.categorical = self.task_feature is not None
        return tags


class TaskScaler(_TaskTransformer):
    """Standardise the features within every task: mean 0, and about variance 1 in each.

    The mean and scale of a task come from its own rows and are used for its own rows, so
    that nothing passes between tasks and no privacy budget is spent, as long as `mean_` and
    `scale_` stay with the tasks. `StandardScaler` over all rows is a statistic of all tasks.

    This holds if the guarantee protects whole tasks. If it protects single records (`DPMetaInit`,
    output perturbation at record level), a record that changes the scale changes all other rows of
    its task, which the accounting does not cover: then scale by public numbers.

    Numbers beyond 1e30 are taken as 1e30, as in private fits: the rows of one task raise no error.

    Few rows determine a standard deviation poorly, and one that is too small by chance would
    inflate all other rows of the task. A scale is therefore shrunk towards a public one or, if none
    is known, enlarged so that this does not happen; see Notes.

    A feature that is constant within a task of two rows or more, such as the size of a school,
    describes the task: it is not centred, which would make it 0 in all tasks, and is divided by the
    public scale, so that models can use how it differs between tasks. Each task decides so by its
    own rows. In a task of one row nothing varies, and all features are centred.

    A listed task without rows in `fit`, such as one whose only row is held out in cross-validation,
    has no mean: all its features are 0, so that an estimator predicts the level that it has for
    such a task.

    The task column stays where it is. A DataFrame gives a DataFrame, anything else an array;
    ``set_output`` has precedence. To scale without changing the task column by means of
    scikit-learn's own transformers, use ``ColumnTransformer(..., remainder="passthrough")``.

    Parameters
    ----------
    task_feature : str, int or None, default=None
        Column of X that holds the task id, by name or position. None: all rows are one task,
        and a `SingleTaskWarning` says so.
    with_mean, with_std : bool, default=True
        Whether to subtract the mean, and to divide by the scale. From features that are constant in
        a task of two rows or more no mean is subtracted; they are divided by the public scale.
    scale : float or array-like of shape (n_features,), default=None
        Public scale of the features, without the task column, in their units: a rough standard
        deviation, or NaN if unknown. Tasks of few rows depend on it: without it a feature is 0 in
        tasks of up to three rows, and in tasks in which it is constant. None: no scale is known.
    tasks : "auto" or array-like, default="auto"
        List of the tasks, of which some may have no rows. "auto" takes those of the rows.

    Attributes
    ----------
    tasks_ : ndarray of shape (n_tasks,)
        Task ids, sorted.
    mean_, scale_ : ndarray of shape (n_tasks, n_features)
        Without the task column. A feature is ``(x - mean_) / scale_``; infinite scales make it 0,
        and so do means of NaN, of tasks without rows. `mean_` is 0 where no mean is subtracted.
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

    Without a public scale the task takes s^2 (1 + 1/n) (n - 1) / (n - 3), s^2 the unbiased variance
    of its rows: then a further row of a normal feature has variance 1. For n <= 3 it is infinite.

    Examples
    --------
    >>> import pandas as pd
    >>> from skpmtl import TaskScaler
    >>> table = pd.DataFrame({"school": ["a", "a", "b", "b"], "size": [1.0, 3.0, 10.0, 30.0]})
    >>> scaler = TaskScaler(task_feature="school", scale=10.0)
    >>> scaler.fit_transform(table)["size"].round(2).tolist()
    [-0.1, 0.1, -0.98, 0.98]
    """

    def __init__(
        self,
        *,
        task_feature: str | int | None = None,
        with_mean: bool = True,
        with_std: bool = True,
        scale: float | ArrayLike | None = None,
        tasks: ArrayLike = "auto",
    ) -> None:
        self.task_feature = task_feature
        self.with_mean = with_mean
        self.with_std = with_std
        self.scale = scale
        self.tasks = tasks

    def fit(self, X, y: ArrayLike | None = None) -> Self:
        """Compute mean and scale of every task.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n_samples, n_features)
            With the task column, without NaN.
        y : object
            Not used.

        Returns
        -------
        self : object

        Raises
        ------
        ValueError
            For NaN, and for tasks of rows that `tasks` does not list.
        """
        self._check_task_feature()
        listed = not (isinstance(self.tasks, str) and self.tasks == "auto")
        if listed and (isinstance(self.tasks, str) or self.task_feature is None):
            raise ValueError(
                f'tasks={self.tasks!r} must be "auto" or a list of ids, with task_feature= the '
                "column that holds them."
            )
        matrix, ids, form = read_features(self, X, None, None, accept_sparse=False)
        if ids is None:
            ids = np.zeros(len(matrix), dtype=np.int64)
        codes, labels = encode_rows(ids, len(matrix))
        absent = without_rows(labels, self.tasks)
        check_finite(self, matrix, form.columns, codes, labels)
        order, offsets = sort_rows(codes, len(labels))
        table = bounded(table_matrix(matrix, order, kept_columns(self, matrix, form.columns)))
        public = self._public_scale(table.shape[1])
        sizes = np.diff(offsets)[:, None]
        mean = np.add.reduceat(table, offsets[:-1], axis=0) / sizes
        deviation = table - np.repeat(mean, sizes[:, 0], axis=0)
        deviation *= deviation
        squares = np.add.reduceat(deviation, offsets[:-1], axis=0)
        # Rounding leaves a constant feature with a deviation just above 0.
        varies = squares > sizes * (10 * np.finfo(float).eps * mean) ** 2
        known = ~np.isnan(public)
        scale = _predictive(squares, varies, sizes)
        shrunk = _shrunk(squares[:, known] / public[known] ** 2, varies[:, known], sizes)
        scale[:, known] = public[known] * shrunk
        mean[~varies & (sizes > 1)] = 0.0  # a constant that describes the task
        self.tasks_ = both(absent, labels)
        rows = np.searchsorted(self.tasks_, labels), np.searchsorted(self.tasks_, absent)
        self.mean_ = merge_rows(len(self.tasks_), rows[0], mean, rows[1], np.nan)
        unknown = np.where(known, public, np.inf)
        self.scale_ = merge_rows(len(self.tasks_), rows[0], scale, rows[1], unknown)
        self._form_ = form
        return self

    def transform(self, X):
        """Scale rows with the mean and scale of their task.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n_samples, n_features)
            With the task column.

        Returns
        -------
        X : DataFrame of the same type, or ndarray, of shape (n_samples, n_features)

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
                f"Tasks that were not in fit: {listed(labels[position < 0])}. Add them with "
                "personalize(X), from rows of their own; in cross-validation list all tasks in "
                "tasks=."
            )
        check_finite(self, matrix, form.columns, codes, labels)
        codes = position[codes]
        scaled = bounded(table_matrix(matrix, None, kept_columns(self, matrix, form.columns)))
        if self.with_mean:
            scaled = scaled - self.mean_[codes]
            scaled[np.isnan(self.mean_[codes, 0])] = 0.0  # of tasks without rows
        if self.with_std:
            scaled = scaled / self.scale_[codes]
        return _beside_task(X, scaled.T, ids, form.position)

    def _public_scale(self, n_features):
        """-> ndarray of shape (n_features,), NaN where no scale is known."""
        try:
            public = np.asarray(np.nan if self.scale is None else self.scale, dtype=float)
        except (TypeError, ValueError):
            public = np.array(0.0)
        if public.shape not in ((), (n_features,)) or (public <= 0).any() or np.isinf(public).any():
            raise ValueError(
                f"scale= must be None, a positive number or {n_features} of them, one for each "
                "feature without the task column, NaN where nobody knows it."
            )
        return np.broadcast_to(public, n_features)

    def _alone(self, X):
        return clone(self).set_params(tasks="auto").fit(X)

    def _own(self, position):
        return {"mean": self.mean_[position].copy(), "scale": self.scale_[position].copy()}

    def _of_one(self, position):
        mean, scale = self._own(position).values()
        unknown = np.isnan(mean) & self.with_mean  # a task without rows: its features are 0
        with_std = self.with_std or bool(unknown.any())
        scaler = StandardScaler(with_mean=self.with_mean, with_std=with_std)
        scaler.mean_ = np.where(unknown, 0.0, mean) if self.with_mean else None
        scaler.scale_ = np.where(unknown, np.inf, scale) if scaler.with_std else None
        scaler.n_features_in_ = len(mean)
        return scaler

    def _merge(self, fresh, n_tasks, old, new):
        self.mean_ = merge_rows(n_tasks, old, self.mean_, new, fresh.mean_)
        self.scale_ = merge_rows(n_tasks, old, self.scale_, new, fresh.scale_)


class TaskImputer(_TaskTransformer):
    """Fill missing values from the task's own rows: medians of numbers, modes of other values.

    The values of a task come from its own rows and are used for its own rows, so that nothing
    passes between tasks and no privacy budget is spent, as long as `statistics_` stay with the
    tasks; where records are protected instead of tasks, see `TaskScaler`, fill in public values.
    `SimpleImputer` over all rows fills in statistics of all tasks. If a task has no value of a
    feature, or was not in `fit`, a public default is used.

    In a column of objects, which one value of any task makes of a column of numbers, each task
    looks at its own values: a median if all of them are numbers, otherwise a mode.

    A DataFrame may have columns of any type and gives a DataFrame; an array must be numeric.

    Parameters
    ----------
    task_feature : str, int or None, default=None
        Column of X that holds the task id, by name or position. None: all rows are one task,
        and a `SingleTaskWarning` says so.
    default : dict or None, default=None
        Public value by feature, named as in X (by position in X for arrays), where a task has
        none of its own. Features without an entry have 0 if their column in `fit` has a type of
        numbers, which is taken as public, else "missing": give an entry where one row could change
        the type.

    Attributes
    ----------
    tasks_ : ndarray of shape (n_tasks,)
        Task ids, sorted.
    statistics_ : dict of ndarray of shape (n_tasks,)
        Value of each task by feature, named as in `default`. Of modes that are equally frequent
        it is the first in sorted order.
    n_features_in_, feature_names_in_
        Of X as given, so that a task column counts.

    Examples
    --------
    >>> import pandas as pd
    >>> from skpmtl import TaskImputer
    >>> table = pd.DataFrame({"clinic": ["a", "a", "a", "b"], "age": [30.0, 50.0, None, None],
    ...                       "ward": ["x", None, "x", "y"]})
    >>> TaskImputer(task_feature="clinic", default={"age": 40.0}).fit_transform(table)
      clinic   age ward
    0      a  30.0    x
    1      a  50.0    x
    2      a  40.0    x
    3      b  40.0    y
    """

    def __init__(
        self, *, task_feature: str | int | None = None, default: dict | None = None
    ) -> None:
        self.task_feature = task_feature
        self.default = default

    def fit(self, X, y: ArrayLike | None = None) -> Self:
        """Find the values of every task.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n_samples, n_features)
            With the task column, in which nothing is missing.
        y : object
            Not used.

        Returns
        -------
        self : object
        """
        self._check_task_feature()
        columns, ids, self._form_ = self._read(X, None)
        self._numeric_ = [name for name, column in columns.items() if column.numeric]
        self.tasks_, self.statistics_ = self._of_tasks(columns, ids)
        return self

    def _alone(self, X):
        # Columns are of the kind that they had in fit: here they may have no value at all.
        tasks, statistics = self._of_tasks(*self._read(X, self._form_)[:2])
        return Bunch(tasks_=tasks, statistics_=statistics)

    def _of_tasks(self, columns, ids):
        """-> tasks, {feature: value of each}"""
        defaults = self._defaults(columns)
        codes, tasks = encode_rows(ids, len(ids))
        return tasks, {
            name: (_medians if column.numeric else _medians_or_modes)(
                column, codes, len(tasks), defaults[name]
            )
            for name, column in columns.items()
        }

    def transform(self, X):
        """Fill what is missing with the values of the row's task.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n_samples, n_features)
            With the task column.

        Returns
        -------
        X : DataFrame of the same type, or ndarray, of shape (n_samples, n_features)
        """
        check_is_fitted(self)
        columns, ids, form = self._read(X, self._form_)
        codes, labels = encode_rows(ids, len(ids))
        codes = locate(labels, self.tasks_)[codes]
        defaults, filled = self._defaults(columns), []
        for name, column in columns.items():
            values, missing = column.given, column.missing
            if missing.any():
                values, own = column.values.copy(), self.statistics_[name][codes[missing]]
                values[missing] = np.where(codes[missing] < 0, defaults[name], own)
            filled.append(values)
        return _beside_task(X, filled, ids, form.position)

    def _read(self, X, fitted):
        """-> {feature: _Column}, ids, form"""
        if (frame := frame_of(X)) is None:
            matrix, ids, form = read_features(self, X, None, fitted, accept_sparse=False)
            n_rows = len(matrix)
            kept = np.delete(np.arange(self.n_features_in_), form.columns)
            dropped = kept_columns(self, matrix, form.columns)
            table = np.delete(matrix, dropped, axis=1).astype(np.float64, copy=False)
            columns = {
                int(j): _Column(values, values, np.isnan(values), True)
                for j, values in zip(kept, table.T, strict=True)
            }
        else:
            validate_data(self, X, skip_check_array=True, reset=fitted is None)
            ids, form, n_rows = None, InputForm("single"), X.shape[0]
            if self.task_feature is not None:
                form = InputForm("column", task_position(X, self.task_feature))
                ids = take_column(X, form.position)
            known = fitted is not None
            numbers = self._numeric_ if known else columns_where(X, is_number)
            columns = {
                column.name: self._column(X, j, column, column.name in numbers)
                for j, column in enumerate(frame.iter_columns())
                if j != form.position
            }
        return columns, np.zeros(n_rows, np.int64) if ids is None else ids, form

    def _column(self, X, j, column, numbers):
        given = take_column(X, j)
        if numbers:
            values = numeric(self, safe_indexing(X, [j], axis=1), False)[:, 0].astype(np.float64)
            return _Column(given, values, np.isnan(values), True)
        values = np.empty(len(given), dtype=object)
        values[:] = column.to_list()
        try:
            missing = factorize(values)[0] < 0
        except TypeError:
            raise TypeError(
                f"The column {column.name!r} holds containers; text and numbers can be filled."
            ) from None
        return _Column(given, values, missing, False)

    def _defaults(self, columns):
        given = {} if self.default is None else self.default
        unknown = [name for name in given if name not in columns]
        if unknown:
            raise ValueError(
                f"default= has {listed(unknown)}, but the features are {listed(list(columns), 20)}."
            )
        defaults = {}
        for name, column in columns.items():
            value = given.get(name, 0.0 if column.numeric else "missing")
            if column.numeric and not (isinstance(value, Real) and np.isfinite(value)):
                raise ValueError(f"default= must be a finite number for the feature {name!r}.")
            defaults[name] = value
        return defaults

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _own(self, position):
        return {"statistics": {name: own[position] for name, own in self.statistics_.items()}}

    def _of_one(self, position):
        found = self._own(position)["statistics"]
        if len(self._numeric_) < len(found):
            raise TypeError(
                "Columns of text have no SimpleImputer in common with numbers: fill them before, "
                "or leave as_sklearn=False."
            )
        from sklearn.impute import SimpleImputer  # with neighbours: an import would wait for them

        # The median of one row is this row.
        return SimpleImputer(strategy="median").fit([list(found.values())])

    def _merge(self, fresh, n_tasks, old, new):
        merged = {}
        for name, own in self.statistics_.items():
            both = np.empty(n_tasks, dtype=np.result_type(own, fresh.statistics_[name]))
            both[old], both[new] = own, fresh.statistics_[name]
            merged[name] = both
        self.statistics_ = merged


@dataclass(frozen=True)
class _Column:
    """One feature: as given, as float64 or objects, where it is missing, whether it is numeric."""

    given: object
    values: np.ndarray
    missing: np.ndarray
    numeric: bool


def _medians(column, codes, n_tasks, default):
    """Median of the known values of each task, or the default."""
    known = ~column.missing
    return _medians_of(column.values[known], codes[known], n_tasks, float(default))


def _medians_of(values, codes, n_tasks, default=np.nan):
    values = values[np.lexsort((values, codes))]
    sizes = np.bincount(codes, minlength=n_tasks)
    some, starts = sizes > 0, np.cumsum(sizes) - sizes
    found = np.full(n_tasks, default)
    low, high = starts + (sizes - 1) // 2, starts + sizes // 2
    found[some] = values[low[some]] / 2 + values[high[some]] / 2  # the sum might overflow
    return found


def _medians_or_modes(column, codes, n_tasks, default):
    """Of objects: the median of each task that has numbers only, the mode of each other task."""
    found = _modes(column, codes, n_tasks, default)
    known = np.flatnonzero(~column.missing)
    number = np.array([isinstance(value, (Real, Decimal)) for value in column.values[known]], bool)
    others = np.bincount(codes[known[~number]], minlength=n_tasks) > 0
    rows = known[number]
    rows = rows[~others[codes[rows]]]
    medians = _medians_of(floats(column.values[rows]), codes[rows], n_tasks)
    some = ~np.isnan(medians)
    found[some] = medians[some]
    return found


def _modes(column, codes, n_tasks, default):
    """Most frequent known value of each task, or the default."""
    found = np.empty(n_tasks, dtype=object)
    found[:] = [default] * n_tasks
    known = ~column.missing
    # Task by task: a value of others that is equal, or has the same text, changes no mode.
    counts = Counter(zip(codes[known].tolist(), column.values[known].tolist(), strict=True))
    best: dict = {}
    for (code, value), _ in sorted(counts.items(), key=lambda one: (-one[1], str(one[0][1]))):
        best.setdefault(code, value)
    for code, value in best.items():
        found[code] = value
    return found


def _shrunk(squares, varies, sizes):
    """Scales of all tasks, in units of the public ones, from sums of squares; see `TaskScaler`."""
    half = np.maximum(sizes - 1, 1) / 2
    logs = np.where(varies, np.log(np.where(varies, squares, 1.0) / 2) - digamma(half), 0.0)
    noise = polygamma(1, half)
    far = (logs**2).sum(axis=1, keepdims=True) / np.maximum(varies.sum(axis=1, keepdims=True), 1)
    spread = np.where(sizes < _FEW, 0.0, far - noise)
    spread = np.maximum(spread, _SPREAD)
    return np.exp(0.5 * spread / (spread + _DOUBT * noise) * logs)


def _predictive(squares, varies, sizes):
    """Scales by which further rows of a task have variance 1, from sums of squares."""
    spare = np.where(varies & (sizes > 3), sizes - 3, np.nan)
    scale = np.sqrt(np.where(varies, squares, 1.0) * (1 + 1 / sizes) / spare)
    return np.where(np.isnan(scale), np.inf, scale)


def _beside_task(X, columns, ids, position):
    """The features, one by one, with the task column put back."""
    columns = list(columns)
    if position is not None:
        columns.insert(position, ids)
    return table_like(X, dict(zip(column_labels(X) or range(len(columns)), columns, strict=True)))
