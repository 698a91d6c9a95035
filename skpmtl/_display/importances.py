"""Importances of the columns of X, for selectors of scikit-learn."""

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

__all__ = ["column_importances"]


def column_importances(estimator) -> NDArray[np.float64]:
    """How much every column of X counts in a fitted linear estimator.

    ``coef_`` lacks the column of tasks, so that `sklearn.feature_selection.SelectFromModel` cannot
    match it to X. This function is its ``importance_getter``.

    Parameters
    ----------
    estimator : estimator of this package
        Fitted, with ``coef_``.

    Returns
    -------
    importances : ndarray of shape (n_columns,)
        Without a guarantee the root mean square of a column's coefficients over tasks and classes.
        With a guarantee the size of its coefficient in the released mean model, because models of
        single tasks are not released. In units of y for one unit of the column: scale columns
        first. The column of tasks is just above the largest, so that it is always kept.

    Raises
    ------
    ValueError
        If a private fit released no mean model.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.feature_selection import SelectFromModel
    >>> from skpmtl import MPMTLGroupSparse
    >>> from skpmtl.inspection import column_importances
    >>> rng = np.random.default_rng(0)
    >>> X = np.c_[np.repeat(np.arange(20), 10), rng.normal(size=(200, 4))]
    >>> y = 3 * X[:, 2] + rng.normal(size=200)
    >>> sparse = MPMTLGroupSparse(0.1, epsilon=None, task_feature=0)
    >>> SelectFromModel(sparse, importance_getter=column_importances).fit(X, y).get_support()
    array([ True, False,  True, False, False])
    """
    check_is_fitted(estimator)
    report = getattr(estimator, "privacy_", None)
    if report is None or report.guarantee == "none":
        coef = np.asarray(estimator.coef_)
    elif hasattr(estimator, "mean_coef_"):
        coef = np.asarray(estimator.mean_coef_)
    else:
        raise ValueError(
            "This private fit released no mean model, and models of single tasks say nothing that "
            'may be published: pass unseen_task="mean", more tasks or a larger epsilon, or select '
            "columns on public rows."
        )
    coef = coef.reshape(-1, coef.shape[-1])
    found = np.sqrt((coef * coef).mean(axis=0))
    missing = estimator.n_features_in_ - len(found)
    if not missing:
        return found
    names, column = getattr(estimator, "feature_names_in_", ()), estimator.task_feature
    if isinstance(column, (list, tuple)):
        (column,) = column
    place = list(names).index(column) if isinstance(column, str) else column
    top = np.nextafter(found.max(initial=0.0), np.inf)
    return np.insert(found, place % estimator.n_features_in_, top)
