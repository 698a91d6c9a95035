"""Reference methods: every task alone."""

from copy import copy
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.base import clone, is_classifier
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, has_fit_parameter, validate_data

from ._docstrings import TARGET_RANGE, UNCERTAINTY, fill_docstring
from ._runtime.hints import ClassWeight, Self
from .base import MTLClassifierMixin, MTLRegressorMixin, Scored, TaskIndexed
from .course.estimators import Hierarchical
from .privacy.report import exact_report
from .tables.datafits import real_target
from .tables.forms import (
    Rows,
    is_mapping_of_tasks,
    read_training,
    task_apart,
)
from .tables.frames import frame_of, safe_indexing
from .tables.table import by_code
from .tables.targets import encode_labels

__all__ = ["LocalOnly", "LocalOnlyClassifier", "PerTask"]
__dir__ = __all__.copy


@dataclass(frozen=True)
class _GivenRows(Rows):
    """Rows to predict in the form in which they were given; `X` holds their numbers."""

    given: object = None

    def features(self, pick=slice(None)):
        return safe_indexing(self.given, self.X[pick][:, 0].astype(int))


class PerTask(Scored, TaskIndexed):
    """One clone of a scikit-learn estimator per task, each fitted on the rows of its task.

    Nothing leaves a task, so that there is nothing to protect and no privacy budget; as long
    as every task keeps its own model to itself. All models together are not private.

    Parameters
    ----------
    estimator : estimator
        Regressor or classifier. It is fitted on the features without the task: as a DataFrame
        where X is one, with its names, text and missing values; else as float64 array or CSR
        matrix, in which values may be missing if the estimator takes that.
    task_feature : str, int or None, default=None
        Column of X that holds the task id, by name or position. None: ids are passed as
        ``task=``, or y has one column per task, or X and y are mappings.
    tasks : "auto" or array-like, default="auto"
        List of the tasks; "auto" takes the tasks of the data.

    Attributes
    ----------
    estimators_ : dict
        Fitted estimators by task id. A task whose rows are all of one class has a
        `DummyClassifier` that always predicts this class. One that is listed and has no rows
        has a dummy too, which predicts 0, or the same probability for all classes.
    tasks_ : ndarray of shape (n_tasks,)
        Task ids, sorted.
    classes_ : ndarray of shape (n_classes,)
        Classes of all tasks together; classifiers only.
    n_features_in_, feature_names_in_
        Of X as given, so that a task column counts.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> from skpmtl import PerTask
    >>> from skpmtl.datasets import make_low_rank_tasks
    >>> X, y, task = make_low_rank_tasks(n_tasks=4, n_features=3, random_state=0)
    >>> model = PerTask(Ridge(0.01)).fit(X, y, task=task)
    >>> model.estimators_[2].coef_.shape, model.predict(X, task=task).shape
    ((3,), (120,))
    """

    estimators_: dict

    def __init__(
        self, estimator, *, task_feature: str | int | None = None, tasks: ArrayLike = "auto"
    ) -> None:
        self.estimator = estimator
        self.task_feature = task_feature
        self.tasks = tasks

    def _check_parameters(self):
        if not hasattr(self.estimator, "fit") or isinstance(self.estimator, type):
            raise TypeError(f"estimator={self.estimator!r} must be an instance with a fit method.")
        if self.tasks != "auto" if isinstance(self.tasks, str) else not np.iterable(self.tasks):
            raise ValueError(f'tasks={self.tasks!r} must be "auto" or a list of task ids.')

    def _as_given(self, X):
        """Whether tasks get their rows of X as they are, and not as numbers that were checked."""
        if is_mapping_of_tasks(X) or sparse.issparse(X):
            return False
        return frame_of(X) is not None or get_tags(self.estimator).input_tags.allow_nan

    def _numbered(self, X, task):
        """The estimator, and its X with the numbers of rows in place of features.

        They are read as any table is; a task finds its rows by them.
        """
        features, ids, position = task_apart(X, task, self.task_feature)
        twin = copy(self)
        twin.task_feature = None
        if "n_features_in_" in vars(twin):
            twin.n_features_in_ = 1
        if "feature_names_in_" in vars(twin):
            del twin.feature_names_in_
        numbers = np.arange(features.shape[0], dtype=float)[:, None]
        return twin, numbers, features, ids, position

    def _read_given(self, X, y, task, sample_weight, **how):
        twin, numbers, features, ids, position = self._numbered(X, task)
        validate_data(self, X, skip_check_array=True, reset="form" not in how)
        table, form = read_training(twin, numbers, y, ids, sample_weight, **how)
        self._rows = features
        return table, replace(form, position=position)

    def _read_training(self, X, y, task=None, sample_weight=None):
        if y is None or not self._as_given(X):
            return super()._read_training(X, y, task, sample_weight)
        return self._read_given(X, y, task, sample_weight, tasks=self.tasks)

    def _read_new_tasks(self, X, y, task, sample_weight):
        check_is_fitted(self)
        if not self._as_given(X):
            return super()._read_new_tasks(X, y, task, sample_weight)
        form = replace(self._form_, position=None)
        table, _ = self._read_given(X, y, task, sample_weight, form=form)
        return self._encoded(table, getattr(self, "classes_", None), new=True)[0]

    def _forget_rows(self):
        if "_rows" in vars(self):
            del self._rows

    def _features_of(self, table, k):
        """Features of the task at position k, in the form in which they were given."""
        X = table.task(k)[0]
        rows = vars(self).get("_rows")
        return X if rows is None else safe_indexing(rows, X[:, 0].astype(int))

    def fit(
        self, X, y: ArrayLike, task: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        try:
            return super().fit(X, y, task, sample_weight)
        finally:
            self._forget_rows()

    fit.__doc__ = TaskIndexed.fit.__doc__

    def _encode_target(self, table, classes=None):
        if not is_classifier(self.estimator):
            return real_target(table), None
        codes, classes = encode_labels(table, classes)
        return classes[codes], classes

    def _encoded(self, table, classes=None, *, new=False):
        # Weights stay as they were given: what they mean is up to the estimator.
        y, classes = self._encode_target(table, classes)
        return replace(table, y=y, n_classes=0 if classes is None else len(classes)), classes

    def _fit_table(self, table):
        return {"estimators_": self._fit_tasks(table)}

    def _fit_tasks(self, table):
        fitted, weights = {}, table.weights
        if weights is not None and not has_fit_parameter(self.estimator, "sample_weight"):
            raise ValueError(
                f"sample_weight is given, but the fit of {type(self.estimator).__name__} does not "
                "take it; choose an estimator that does."
            )
        for k, task in enumerate(table.tasks.tolist()):
            X, y = self._features_of(table, k), table.task(k)[1]
            one_class = is_classifier(self.estimator) and (y == y[0]).all()
            estimator = DummyClassifier() if one_class else clone(self.estimator)
            try:
                part = slice(table.offsets[k], table.offsets[k + 1])
                given = {} if weights is None else {"sample_weight": weights[part]}
                fitted[task] = estimator.fit(X, y, **given)
            except ValueError as error:
                raise ValueError(f"Task {task!r}: {error}") from error
        return fitted

    def _with_absent(self, fitted, table):
        """Tasks without rows predict 0, or all classes alike."""
        X = np.zeros((1, table.n_features))
        if is_classifier(self.estimator):
            classes = np.unique(table.y)
            dummy = DummyClassifier().fit(np.repeat(X, len(classes), axis=0), classes)
        else:
            dummy = DummyRegressor(strategy="constant", constant=0.0).fit(X, [0.0])
        known = fitted["estimators_"]
        return {"estimators_": {task: known.get(task, dummy) for task in table.everybody.tolist()}}

    def personalize(
        self, X, y: ArrayLike, task: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Fit tasks that were not in `fit`, or fit known ones again.

        Parameters
        ----------
        X, y, task, sample_weight
            As in `fit`. A 2-D y needs column names that name the tasks.

        Returns
        -------
        self : object
        """
        try:
            table = self._read_new_tasks(X, y, task, sample_weight)
            new = {"estimators_": self._fit_tasks(table)}
        finally:
            self._forget_rows()
        new = self._with_absent(new, table) if len(table.absent) else new
        estimators = {**self.estimators_, **new["estimators_"]}
        self.tasks_, self._form_ = self._add_labels(table.everybody)
        self.estimators_ = {task: estimators[task] for task in self.tasks_.tolist()}
        self._forget_idle(table.tasks)
        return self

    def _predict_tasks(self, X, task, predict, columns):
        """Apply predict(estimator, features) to the rows of every task.

        `columns` is the number of values per row, or None for one value per row.
        """
        rows = self._rows_given(X, task)
        tasks = self.tasks_.tolist()
        if rows.codes is None:
            features = rows.features()
            results = [predict(self.estimators_[tasks[k]], features) for k in self._wide_columns()]
            if columns is None:
                return np.column_stack(results)
            if columns != 2:
                raise ValueError(
                    f"Probabilities of {columns} classes do not fit into one column per task; "
                    "predict with task=."
                )
            return np.column_stack([result[:, 1] for result in results])
        present, parts = zip(*by_code(rows.codes), strict=True)
        joined = np.concatenate(
            [
                predict(self.estimators_[tasks[k]], rows.features(part))
                for k, part in zip(present, parts, strict=True)
            ]
        )
        out = np.empty_like(joined)
        out[np.concatenate(parts)] = joined
        return rows.wrap(out)

    def _rows_given(self, X, task):
        check_is_fitted(self)
        if not self._as_given(X):
            return self._read_rows(X, task)
        twin, numbers, features, ids, _ = self._numbered(X, task)
        validate_data(self, X, skip_check_array=True, reset=False)
        twin._form_ = replace(self._form_, position=None)
        return _GivenRows(**vars(twin._read_rows(numbers, ids)), given=features)

    def predict(self, X, task: ArrayLike | None = None):
        """Predict every row with the estimator of its task.

        Parameters
        ----------
        X, task
            As in `fit`.

        Returns
        -------
        y : ndarray of shape (n_samples,), or (n_samples, n_tasks), or dict
            One column per task after a fit with 2-D y, a dict for a mapping X.
        """
        return self._predict_tasks(X, task, lambda model, Z: model.predict(Z), None)

    @available_if(lambda self: hasattr(self.estimator, "predict_proba"))
    def predict_proba(self, X, task=None):
        """Probabilities of the classes, 0 for a class that a task does not have.

        Parameters
        ----------
        X, task
            As in `fit`.

        Returns
        -------
        p : ndarray of shape (n_samples, n_classes), or (n_samples, n_tasks), or dict
            Columns in the order of `classes_`. After a fit with 2-D y, without task ids: the
            probability of the second of two classes for every task.
        """

        def probabilities(model, Z):
            p = np.zeros((Z.shape[0], len(self.classes_)))
            p[:, np.searchsorted(self.classes_, model.classes_)] = model.predict_proba(Z)
            return p

        return self._predict_tasks(X, task, probabilities, len(getattr(self, "classes_", ())))

    @available_if(lambda self: hasattr(self.estimator, "predict_proba"))
    def predict_log_proba(self, X, task=None):
        """Logarithms of the probabilities of the classes, -inf where these are 0.

        Parameters
        ----------
        X, task
            As in `fit`.

        Returns
        -------
        p : ndarray of shape (n_samples, n_classes), or (n_samples, n_tasks), or dict
            As `predict_proba`.
        """
        p = self.predict_proba(X, task=task)
        with np.errstate(divide="ignore"):
            if isinstance(p, dict):
                return {name: np.log(part) for name, part in p.items()}
            return np.log(p)

    def __sklearn_tags__(self):
        tags, inner = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.estimator_type = inner.estimator_type
        tags.regressor_tags, tags.classifier_tags = inner.regressor_tags, inner.classifier_tags
        if tags.classifier_tags is not None:
            tags.classifier_tags.multi_label = False
        tags.input_tags.sparse = inner.input_tags.sparse
        tags.input_tags.allow_nan = inner.input_tags.allow_nan
        tags.non_deterministic = inner.non_deterministic
        return tags


class _Alone(Hierarchical):
    """The hierarchical model before any release: every task has its public prior alone."""

    _billboards: ClassVar[tuple[type, ...]] = ()  # there is nothing to publish
    _federates = False
    epsilon = delta = None
    adjacency, curator, secure, random_state = "replace-one", "trusted", False, None
    unseen_task, verbose = "error", 0

    def _curator(self, population, source):
        def curator():
            yield from ()
            return replace(self._loop(population).model, report=exact_report(_ALONE))

        return curator()

    def _planned_report(self, population):
        return exact_report(_ALONE)

    def _has_mean(self):
        return False  # scores of classes have a public middle, which is no pooled model


_ALONE = "nothing leaves a task"
_DOC = """{summary}

    Level and slopes have the prior of `PrivateMTL{twin}` before anything is released: normal, with
    scales that the task averages over by the evidence of its own rows. Nothing leaves a task, so
    that there is no budget; as long as every task keeps its own model to itself. All models
    together are not private. For a penalty of your own take ``PerTask(Ridge(alpha))``.

    Parameters
    ----------{of_rows}
    {init}
    fit_intercept : bool, default=True
        Whether every task has an intercept.
    {task_feature}
    {tasks}{class_list}{target_range}
    {dtype}

    Attributes
    ----------
    coef_ : ndarray of shape (n_tasks, n_features){shapes}
    intercept_ : ndarray of shape (n_tasks,){intercepts}
    tasks_ : ndarray of shape (n_tasks,){classes}{posterior}
    {privacy_}
    {features_in_}

    See Also
    --------
    PerTask : Any estimator of scikit-learn, task by task.
    """


class LocalOnly(MTLRegressorMixin, _Alone):
    __doc__ = fill_docstring(
        _DOC,
        summary="Regression of every task alone, for real targets, counts and outlying rows.",
        twin="",
        target_range=TARGET_RANGE + UNCERTAINTY,
    )

    def __init__(
        self,
        *,
        loss: Literal["huber", "poisson", "squared"] = "squared",
        init=None,
        fit_intercept: bool = True,
        task_feature: str | int | list | None = None,
        tasks: ArrayLike = "auto",
        target_range: ArrayLike | None = None,
        uncertainty: bool = False,
        dtype: type | str = np.float64,
    ) -> None:
        self.loss = loss
        self.init = init
        self.fit_intercept = fit_intercept
        self.task_feature = task_feature
        self.tasks = tasks
        self.target_range = target_range
        self.uncertainty = uncertainty
        self.dtype = dtype


class LocalOnlyClassifier(MTLClassifierMixin, _Alone):
    __doc__ = fill_docstring(
        _DOC,
        summary="Logistic regression of every task alone, binary or multinomial.",
        twin="Classifier",
        classes="several",
        target_range="",
        posterior="",
    )
    _multiclass, _spreads_labels = True, False
    uncertainty = False

    def __init__(
        self,
        *,
        init=None,
        fit_intercept: bool = True,
        task_feature: str | int | list | None = None,
        tasks: ArrayLike = "auto",
        classes: ArrayLike = "auto",
        class_weight: ClassWeight = None,
        dtype: type | str = np.float64,
    ) -> None:
        self.init = init
        self.fit_intercept = fit_intercept
        self.task_feature = task_feature
        self.tasks = tasks
        self.classes = classes
        self.class_weight = class_weight
        self.dtype = dtype
