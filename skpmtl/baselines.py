"""Reference methods: every task alone."""

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone, is_classifier
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import has_fit_parameter

from ._runtime.hints import Self
from .base import Scored, TaskIndexed
from .tables.datafits import real_target
from .tables.table import by_code
from .tables.targets import encode_labels

__all__ = ["PerTask"]


def __dir__():
    return __all__


class PerTask(Scored, TaskIndexed):
    """One clone of a scikit-learn estimator per task, each fitted on the rows of its task.

    Nothing leaves a task, so that there is nothing to protect and no privacy budget; as long
    as every task keeps its own model to itself. All models together are not private.

    Parameters
    ----------
    estimator : estimator
        Regressor or classifier. It is fitted on the features as float64 array or CSR matrix,
        without the task.
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
            X, y = table.task(k)
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
        table = self._read_new_tasks(X, y, task, sample_weight)
        new = {"estimators_": self._fit_tasks(table)}
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
        rows = self._read_rows(X, task)
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
        tags.non_deterministic = inner.non_deterministic
        return tags
