"""Pipelines that end in an estimator of this package."""

from copy import copy

from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

__all__ = ["personalize"]


def personalize(model, X, y, **params):
    """Add tasks to a fitted pipeline, from rows of their own and at no privacy cost.

    Every step that knows tasks (`TaskScaler`, `TaskImputer`) adds the new ones, every step
    transforms the rows as it was fitted, and the last one, an estimator of this package,
    personalises from its billboard. Tasks that are known get new models.

    Parameters
    ----------
    model : Pipeline or estimator
        Fitted. Steps that know tasks must be steps of the pipeline, not transformers inside of a
        `ColumnTransformer`. Of a search, pass ``best_estimator_``.
    X, y
        Rows of these tasks, in the form in which the pipeline was fitted.
    **params : dict
        What the last step takes beside them, such as ``task=``, the task of every row where X has
        no task column, or ``sample_weight=``.

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
    pairs, last = [], model
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
