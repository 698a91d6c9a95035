"""Errors of estimators at their defaults on one draw of a shape, over the error of each task alone.

Regression: mean squared error; classes: log-loss. Where an estimator raises, the message is kept.
"""

import time
import warnings

import numpy as np
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.asv.speed.tables import public

# The one list of what is compared.
ESTIMATORS = (
    "PrivateMTL",
    "MPMTLLowRank",
    "MPMTLGroupSparse",
    "PrivateMeanRegMTL",
    "DPMetaInit",
)
POOLED = "pooled"  # one ridge, or logistic regression, for all rows
_PENALTIES = np.logspace(-3, 4, 8)
_LEAST = 1e-6  # bound on probabilities, so that no single row decides


def made(name, classes, sample, epsilon, seed):
    """An estimator at its defaults, with what is public about the table."""
    given = {"tasks": sample.tasks}
    if name != "LocalOnly":
        given |= {"epsilon": epsilon, "random_state": seed}
    if classes:
        given["classes"] = np.arange(float(classes))
    estimator = public(name + ("Classifier" if classes else ""))
    return estimator(**given)


def error_of(predicted, classes, sample):
    """Mean squared error, or log-loss of probabilities (n, classes)."""
    if not classes:
        return float(np.mean(((predicted - sample.y_test) / sample.unit) ** 2))
    chosen = predicted[np.arange(len(predicted)), sample.y_test.astype(int)]
    return float(-np.log(np.clip(chosen, _LEAST, 1.0)).mean())


def error(name, classes, sample, epsilon, seed):
    """Test error of an estimator on a draw; raises what it raises."""
    if name == POOLED:
        last = LogisticRegression() if classes else RidgeCV(_PENALTIES)
        model = make_pipeline(StandardScaler(), last).fit(sample.X, sample.y)
        if not classes:
            return error_of(model.predict(sample.X_test), classes, sample)
        found = np.zeros((len(sample.X_test), classes))
        found[:, model.classes_.astype(int)] = model.predict_proba(sample.X_test)
        return error_of(found, classes, sample)
    model = made(name, classes, sample, epsilon, seed).fit(sample.X, sample.y, task=sample.task)
    predict = model.predict_proba if classes else model.predict
    return error_of(predict(sample.X_test, task=sample.task_test), classes, sample)


def ratios(shape, seed, names, epsilons):
    """All comparisons on one draw.

    `shape`: Shape. `seed`: of the draw of the table and of the noise. `names`: list of str.
    `epsilons`, list of float or None: None is the exact fit.

    -> list of (name, epsilon, ratio or None, seconds, message): the first is ("alone", None, its
    error, ...).
    """
    sample, out = shape.draw(seed), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        alone = error("LocalOnly", shape.classes, sample, None, seed)
        out.append(("alone", None, alone, 0.0, ""))
        for name in names:
            for epsilon in [None] if name == POOLED else epsilons:
                start = time.perf_counter()
                try:
                    ratio, message = error(name, shape.classes, sample, epsilon, seed) / alone, ""
                except Exception as failure:  # whatever goes wrong is a result of the table
                    text = " ".join(str(failure).split())
                    ratio, message = None, f"error: {type(failure).__name__}: {text[:160]}"
                out.append((name, epsilon, ratio, time.perf_counter() - start, message))
    return out
