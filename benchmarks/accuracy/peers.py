"""What others would fit to the same rows: mixed models, boosting, one model for all, each alone.

A peer takes a `Sample` and a loss of `Source`, and returns predictions for the test rows: values,
means of counts, or the probabilities of two classes (n, 2). Peers have no guarantee of privacy.
"""

import warnings

import numpy as np
from scipy.linalg import qr
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegressionCV, PoissonRegressor, RidgeCV
from sklearn.metrics import mean_poisson_deviance
from sklearn.model_selection import GridSearchCV

from ..random_tables.references import mixed_model
from . import alone as one_alone
from .alone import made

_CATEGORIES = 255  # of HistGradientBoosting
_LEAST_MEAN = 1e-6  # so that no single count decides
_LIKELIHOODS = {"squared": "gaussian", "log-loss": "bernoulli_logit", "poisson": "poisson"}
_SLOPES = 8  # columns with a random slope at most, so that covariances stay estimable


class Skipped(RuntimeError):
    """A peer that cannot be fitted here; the message says why."""


def pooled(sample, loss):
    """One ridge, logistic or Poisson regression for all rows, its penalty by cross-validation."""
    if loss == "poisson":
        model = PoissonRegressor(solver="newton-cholesky", max_iter=500)
        search = GridSearchCV(model, {"alpha": np.logspace(-6, 1, 8)})
        return search.fit(sample.X, sample.y).predict(sample.X_test)
    if loss == "log-loss":
        # The search passes options that scikit-learn deprecates from 1.8 on.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = LogisticRegressionCV(Cs=10, scoring="neg_log_loss", max_iter=500)
            return model.fit(sample.X, sample.y).predict_proba(sample.X_test)
    return RidgeCV(np.logspace(-4, 4, 17)).fit(sample.X, sample.y).predict(sample.X_test)


def alone(sample, loss):
    """Each task alone."""
    return ours(made_for("LocalOnly", loss, sample, None, 0), sample, loss)


def made_for(name, loss, sample, epsilon, seed):
    """An estimator of this package with that loss, else at its defaults."""
    model = made(name, 2 * (loss == "log-loss"), sample, epsilon, seed)
    return model.set_params(loss="poisson") if loss == "poisson" else model


def error_of(predicted, loss, sample):
    """Squared error over the variance of the test targets, log-loss, or mean Poisson deviance."""
    if loss == "poisson":
        return mean_poisson_deviance(sample.y_test, np.maximum(predicted, _LEAST_MEAN))
    return one_alone.error_of(predicted, 2 * (loss == "log-loss"), sample)


def ours(model, sample, loss):
    """Fit an estimator of this package. -> predictions for the test rows"""
    model.fit(sample.X, sample.y, task=sample.task)
    predict = model.predict_proba if loss == "log-loss" else model.predict
    return predict(sample.X_test, task=sample.task_test)


def boosting(sample, loss):
    """Histogram boosting with the task as a category."""
    if len(sample.tasks) > _CATEGORIES:
        raise Skipped(f"HistGradientBoosting takes {_CATEGORIES} categories at most.")
    kind = HistGradientBoostingClassifier if loss == "log-loss" else HistGradientBoostingRegressor
    given = {"loss": "poisson"} if loss == "poisson" else {}
    model = kind(
        categorical_features=[sample.X.shape[1]],
        early_stopping=True,
        max_iter=300,
        learning_rate=0.05,
        random_state=0,
        **given,
    )
    model.fit(np.column_stack([sample.X, sample.task]), sample.y)
    rows = np.column_stack([sample.X_test, sample.task_test])
    return (model.predict_proba if loss == "log-loss" else model.predict)(rows)


def mixed_intercept(sample, loss):
    """GPBoost: all columns have fixed effects, each task a random intercept."""
    return _means(loss, gpboost(sample, loss)["mu"])


def mixed_slopes(sample, loss):
    """GPBoost: further, independent random slopes of the columns that vary within tasks."""
    return _means(loss, gpboost(sample, loss, varying(sample)[:_SLOPES])["mu"])


def _means(loss, found):
    return np.column_stack([1.0 - found, found]) if loss == "log-loss" else found


def statsmodels(sample, loss):
    """statsmodels' MixedLM with a random intercept, by restricted maximum likelihood."""
    if loss != "squared":
        raise Skipped("MixedLM has real targets only.")
    X, X_test = designs(sample)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = mixed_model(X, sample.y, sample.task, X_test, sample.task_test)
    if found is None:
        raise Skipped("statsmodels is not installed, or finds no model.")
    return found


def gpboost(sample, loss, slopes=(), **more):
    """What GPBoost predicts for the test rows: "mu", and what `more` asks for. -> dict"""
    try:
        import gpboost
    except ImportError:
        raise Skipped("gpboost is not installed.") from None
    X, X_test = designs(sample)
    fit, predict = {"group_data": sample.task}, {"group_data_pred": sample.task_test}
    if len(slopes):
        fit |= {
            "group_rand_coef_data": sample.X[:, slopes],
            "ind_effect_group_rand_coef": [1] * len(slopes),
        }
        predict["group_rand_coef_data_pred"] = sample.X_test[:, slopes]
    model = gpboost.GPModel(**fit, likelihood=_LIKELIHOODS[loss])
    model.fit(y=sample.y, X=X)
    return model.predict(X_pred=X_test, predict_response=True, **predict, **more)


def varying(sample):
    """Columns that vary in more than 30 % of the first 40 tasks."""
    spreads = [np.ptp(sample.X[sample.task == k], axis=0) > 0 for k in sample.tasks[:40]]
    return np.flatnonzero(np.mean(spreads, axis=0) > 0.3)


def designs(sample):
    """A column of ones before the columns that no others determine, for training and test rows."""
    X = np.column_stack([np.ones(len(sample.X)), sample.X])
    R, order = qr(X, mode="r", pivoting=True)
    sizes = np.abs(np.diag(R))
    kept = np.sort(order[: len(sizes)][sizes > 1e-9 * sizes[0]])
    return X[:, kept], np.column_stack([np.ones(len(sample.X_test)), sample.X_test])[:, kept]


PEERS = {
    "pooled": pooled,
    "alone": alone,
    "boosting": boosting,
    "statsmodels": statsmodels,
    "mixed intercept": mixed_intercept,
    "mixed slopes": mixed_slopes,
}
MIXED = ("mixed intercept", "mixed slopes", "statsmodels")  # the best of them is the yardstick
