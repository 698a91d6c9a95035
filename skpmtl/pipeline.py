"""Pipelines that end in an estimator of this package."""

from copy import copy, deepcopy

from numpy.typing import ArrayLike
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

__all__ = ["export_task", "personalize"]
__dir__ = __all__.copy


def personalize(model, X, y: ArrayLike, **params):
    """Add tasks to a fitted pipeline, from rows of their own and at no privacy cost.

    Every step with a task column (`TaskScaler`, `TaskImputer`) adds the new tasks, every step
    transforms the rows as fitted, and the last one, an estimator of this package, personalises from
    its billboard. Tasks of the fit get new models.

    Parameters
    ----------
    model : Pipeline or estimator
        Fitted. `TaskScaler` and `TaskImputer` must be steps of the pipeline, not transformers
        inside a `ColumnTransformer`. For a search, pass ``best_estimator_``.
    X, y
        Rows of these tasks, in the form in which the pipeline was fitted.
    **params : dict
        Further arguments of the last step, such as ``task=``, the task of every row if X has no
        task column, or ``sample_weight=``.

    Returns
    -------
    model : object
        The model; after an error it is as it was.

    Raises
    ------
    TypeError
        If the last step cannot personalise.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from skpmtl import MPMTLLowRank, TaskScaler, personalize
    >>> from skpmtl.datasets import load_school
    >>> table = load_school(as_frame=True).frame
    >>> y, first = table.pop("exam_score"), table["school"] < 100
    >>> model = make_pipeline(
    ...     TaskScaler(task_feature="school"),
    ...     MPMTLLowRank(epsilon=2.0, tasks=range(100), task_feature="school"),
    ... ).fit(table[first], y[first])
    >>> model = personalize(model, table[~first], y[~first])
    >>> model.predict(table).shape, model[-1].coef_.shape
    ((15362,), (139, 28))
    """
    pairs: list[tuple] = []
    last = model
    while isinstance(last, Pipeline):
        check_is_fitted(last)
        for _, step in last.steps[:-1]:
            X = _passed(step, X, pairs)
        last = last.steps[-1][1]
    if not hasattr(last, "personalize"):
        raise TypeError(
            f"{type(last).__name__} cannot personalise: the last step must be an estimator of this "
            "package. Of a search, pass best_estimator_."
        )
    last.personalize(X, y, **params)
    for step, added in pairs:
        vars(step).update(vars(added))
    return model


def export_task(model, task):
    """A pipeline of scikit-learn with the model of one task, which does not need this package.

    Steps that know tasks become those of this task: `TaskScaler` a `StandardScaler`, `TaskImputer`
    a `SimpleImputer`, and the estimator a `Ridge` or `LogisticRegression` with its coefficients.
    The pipeline belongs to the task and to nobody else.

    Parameters
    ----------
    model : Pipeline or estimator
        Fitted. If X has a task column, every step must have a ``task_feature``.
    task : str or int
        Id of the task.

    Returns
    -------
    pipeline : Pipeline
        Fitted; for X without the task column.

    Raises
    ------
    TypeError
        For steps that receive the task column without a ``task_feature``, and for models that are
        not linear.
    ValueError
        If the task is not known.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from skpmtl import PrivateMTL, TaskScaler, export_task
    >>> from skpmtl.datasets import load_school
    >>> table = load_school(as_frame=True).frame
    >>> y = table.pop("exam_score")
    >>> model = make_pipeline(
    ...     TaskScaler(task_feature="school"), PrivateMTL(epsilon=None, task_feature="school")
    ... ).fit(table, y)
    >>> export_task(model, 12)
    Pipeline(steps=[('taskscaler', StandardScaler()), ('privatemtl', Ridge())])
    """
    steps, last, name = [], model, type(model).__name__.lower()
    while isinstance(last, Pipeline):
        check_is_fitted(last)
        steps += last.steps[:-1]
        name, last = last.steps[-1]
    if not hasattr(last, "coef_frame"):
        raise TypeError(
            f"{type(last).__name__} has no linear models of tasks: the last step must be a linear "
            "estimator of this package. Of a search, pass best_estimator_."
        )
    column = last.task_feature is not None
    own = [(key, _of_task(key, step, task, column)) for key, step in steps]
    own = [(key, step) for key, step in own if step is not None]
    own.append((name, last.export_task(task, as_sklearn=True)))
    for _, step in own[1:]:  # of the arrays that the steps before give
        vars(step).pop("feature_names_in_", None)
    return Pipeline(own)


def _of_task(name, step, task, column):
    """The step for the rows of one task; None where it does nothing."""
    if step is None or step == "passthrough":
        return None
    if isinstance(step, Pipeline):
        parts = [(key, _of_task(key, inner, task, column)) for key, inner in step.steps]
        return Pipeline([(key, part) for key, part in parts if part is not None])
    if hasattr(step, "export_task"):
        return step.export_task(task, as_sklearn=True)
    if column:
        raise TypeError(
            f"The step {name!r} sees the task column, and nothing says what it is without it: "
            "export the last step alone, model[-1].export_task(task, as_sklearn=True), for the "
            "features that it gets."
        )
    return deepcopy(step)


def _passed(step, X, pairs):
    """X through a step to which its tasks are added; `pairs` collects steps and their copies."""
    if step is None or step == "passthrough":
        return X
    if isinstance(step, Pipeline):
        for _, inner in step.steps:
            X = _passed(inner, X, pairs)
        return X
    if hasattr(step, "personalize"):
        pairs.append((step, copy(step)))  # which is kept when all went well
        step = pairs[-1][1].personalize(X)
    return step.transform(X)
