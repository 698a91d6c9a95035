"""What others would fit to the same rows: mixed models, boosting, one model for all, each alone.

A peer takes a `Sample` and the number of classes, and returns predictions for the test rows: of
regressions their values, of classes the probabilities (n, 2). Peers have no guarantee of privacy.
"""

import warnings

import numpy as np
from scipy.linalg import qr
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegressionCV, RidgeCV

from ..unseen.compare import made

_CATEGORIES = 255  # of HistGradientBoosting
_SLOPES = 8  # columns with a random slope at most, so that covariances stay estimable


class Skipped(RuntimeError):
    """A peer that cannot be fitted here; the message says why."""


def pooled(sample, classes):
    """One ridge or logistic regression for all rows, its penalty by cross-validation."""
    if classes:
        # The search passes options that scikit-learn deprecates from 1.8 on.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = LogisticRegressionCV(Cs=10, scoring="neg_log_loss", max_iter=500)
            return model.fit(sample.X, sample.y).predict_proba(sample.X_test)
    return RidgeCV(np.logspace(-4, 4, 17)).fit(sample.X, sample.y).predict(sample.X_test)


def alone(sample, classes):
    """Each task alone."""
    return ours(made("LocalOnly", classes, sample, None, 0), sample, classes)


def ours(model, sample, classes):
    """Fit an estimator of this package. -> predictions for the test rows"""
    model.fit(sample.X, sample.y, task=sample.task)
    predict = model.predict_proba if classes else model.predict
    return predict(sample.X_test, task=sample.task_test)


def boosting(sample, classes):
    """Histogram boosting with the task as a category."""
    if len(sample.tasks) > _CATEGORIES:
        raise Skipped(f"HistGradientBoosting takes {_CATEGORIES} categories at most.")
    kind = HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor
    model = kind(
        categorical_features=[sample.X.shape[1]], early_stopping=True, max_iter=300,
        learning_rate=0.05, random_state=0,
    )  # fmt: skip
    model.fit(np.column_stack([sample.X, sample.task]), sample.y)
    rows = np.column_stack([sample.X_test, sample.task_test])
    return (model.predict_proba if classes else model.predict)(rows)


def mixed_intercept(sample, classes):
    """GPBoost: all columns have fixed effects, each task a random intercept."""
    return _gpboost(sample, classes, [])


def mixed_slopes(sample, classes):
    """GPBoost: further, independent random slopes of the columns that vary within tasks."""
    return _gpboost(sample, classes, varying(sample)[:_SLOPES])


def statsmodels(sample, classes):
    """statsmodels' MixedLM with a random intercept, by restricted maximum likelihood."""
    try:
        from statsmodels.regression.mixed_linear_model import MixedLM
    except ImportError:
        raise Skipped("statsmodels is not installed.") from None
    if classes:
        raise Skipped("MixedLM has no classes.")
    X, X_test = _designs(sample)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = MixedLM(sample.y, X, groups=sample.task).fit()
    effects = {task: float(effect.iloc[0]) for task, effect in fitted.random_effects.items()}
    return X_test @ fitted.fe_params + np.array([effects[task] for task in sample.task_test])


def _gpboost(sample, classes, slopes):
    try:
        import gpboost
    except ImportError:
        raise Skipped("gpboost is not installed.") from None
    X, X_test = _designs(sample)
    fit, predict = {"group_data": sample.task}, {"group_data_pred": sample.task_test}
    if len(slopes):
        fit |= {
            "group_rand_coef_data": sample.X[:, slopes],
            "ind_effect_group_rand_coef": [1] * len(slopes),
        }
        predict["group_rand_coef_data_pred"] = sample.X_test[:, slopes]
    model = gpboost.GPModel(**fit, likelihood="bernoulli_logit" if classes else "gaussian")
    model.fit(y=sample.y, X=X)
    found = model.predict(X_pred=X_test, predict_response=True, **predict)["mu"]
    return np.column_stack([1.0 - found, found]) if classes else found


def varying(sample):
    """Columns that vary in more than 30 % of the first 40 tasks."""
    spreads = [np.ptp(sample.X[sample.task == k], axis=0) > 0 for k in sample.tasks[:40]]
    return np.flatnonzero(np.mean(spreads, axis=0) > 0.3)


def _designs(sample):
    """A column of ones before the columns that no others determine, for training and test rows."""
    X = np.column_stack([np.ones(len(sample.X)), sample.X])
    R, order = qr(X, mode="r", pivoting=True)
    sizes = np.abs(np.diag(R))
    kept = np.sort(order[: len(sizes)][sizes > 1e-9 * sizes[0]])
    return X[:, kept], np.column_stack([np.ones(len(sample.X_test)), sample.X_test])[:, kept]


PEERS = {
    "pooled": pooled, "alone": alone, "boosting": boosting, "statsmodels": statsmodels,
    "mixed intercept": mixed_intercept, "mixed slopes": mixed_slopes,
}  # fmt: skip
MIXED = ("mixed intercept", "mixed slopes", "statsmodels")  # the best of them is the yardstick
