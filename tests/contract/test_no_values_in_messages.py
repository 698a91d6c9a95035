"""No exception, warning or repr shows a value of a row, whatever form the rows come in."""

import pickle
import warnings
from functools import cache

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator

from skpmtl import (
    LeaveTasksOut,
    PrivateMTL,
    PrivateMTLClassifier,
    TaskImputer,
    TaskScaler,
    TaskStratifiedKFold,
    personalize,
    stack_tasks,
    wide_to_long,
)
from skpmtl.metrics import nmse, task_scores

M, N = 3, 6
TASK = np.repeat(np.arange(M), N)
# Digits and letters that nothing else has. A feature, a target, a weight, a word.
FEATURE, TARGET, WEIGHT, WORD = 7731.25, 9417.5, -5519.75, "quixotry"
MARKS = ("7731", "9417", "5519", WORD)
NAMES = ["task", "a", "b"]


def rows(spoilt=None):
    X = np.column_stack([TASK, FEATURE + np.arange(M * N) / 64, np.full(M * N, FEATURE)])
    if spoilt is None:
        return X
    X = X.astype(object)
    X[4, 2] = spoilt
    return X


def arrow(X):
    pyarrow = pytest.importorskip("pyarrow")
    return pyarrow.table({name: list(column) for name, column in zip(NAMES, X.T, strict=True)})


def polars(X):
    columns = zip(NAMES, X.T.tolist(), strict=True)
    return pl.DataFrame({name: column for name, column in columns}, strict=False)


FORMS = {
    "array": lambda X: X,
    "list": lambda X: X.tolist(),
    "pandas": lambda X: pd.DataFrame(X, columns=NAMES),
    "polars": polars,
    "arrow": arrow,
    "CSR": lambda X: sparse.csr_matrix(X.astype(float)),
    "mapping": lambda X: {t: X[TASK == t, 1:] for t in range(M)},
}
SPOILT = {"sound": None, "text": WORD, "NaN": np.nan, "infinity": np.inf, "list": [FEATURE, WORD]}
Y = TARGET + np.arange(M * N) / 64.0


def targets():
    text = Y.astype(object)
    text[3] = WORD
    missing, infinite = Y.copy(), Y.copy()
    missing[3], infinite[3] = np.nan, np.inf
    return {
        "sound": Y,
        "text": text,
        "NaN": missing,
        "infinite": infinite,
        "short": Y[:-1],
        "column": Y[:, None],
        "cube": Y[:, None, None],
        "number": TARGET,
        "words": np.full(len(Y), WORD),
        "nested": [[TARGET], [TARGET, WORD]] * (len(Y) // 2),
    }


def texts(call):
    """All text of a call: warnings, and errors with those that they arose from."""
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        found = []
        try:
            result = call()
            found += [repr(result)] if isinstance(result, BaseEstimator) else []
        except Exception as error:
            while error is not None:
                found.append(f"{type(error).__name__}: {error}")
                shown = None if error.__suppress_context__ else error.__context__
                error = error.__cause__ or shown
    return found + [str(warning.message) for warning in record]


def assert_silent(*calls):
    for call in calls:
        for text in texts(call):
            assert not any(mark in text for mark in MARKS), text


def fitted(cls=PrivateMTL, **options):
    return pickle.loads(_fitted(cls, **options))


@cache
def _fitted(cls, classes=None):
    options = {} if classes is None else {"classes": classes}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        est = cls(epsilon=1.0, tasks=range(M), task_feature=0, random_state=0, **options)
        return pickle.dumps(est.fit(rows(), TASK % 2 if options else Y))


@pytest.mark.parametrize("feature", ["task", "nothing", 0, None])
@pytest.mark.parametrize("spoilt", SPOILT.values(), ids=SPOILT)
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.spread(24)
def test_messages_about_features_hold_no_value(form, spoilt, feature):
    try:
        X = form(rows(spoilt))
    except (TypeError, ValueError, OverflowError):
        pytest.skip("this form cannot hold it")
    except Exception as error:
        if not type(error).__module__.startswith(("pyarrow", "polars")):
            raise
        pytest.skip("this form cannot hold it")
    y = {t: Y[TASK == t] for t in range(M)} if isinstance(X, dict) else Y
    est = PrivateMTL(epsilon=1.0, tasks=range(M), task_feature=feature, random_state=0)
    known, scaler = fitted(), TaskScaler(task_feature=0).fit(rows())
    imputer = TaskImputer(task_feature=0).fit(rows())
    assert_silent(
        lambda: est.fit(X, y),
        lambda: PrivateMTL(epsilon=None, task_feature=feature).fit(X, y),
        lambda: known.predict(X),
        lambda: known.personalize(X, y),
        lambda: known.score(X, y),
        lambda: personalize(known, X, y),
        lambda: TaskScaler(task_feature=feature).fit(X),
        lambda: TaskImputer(task_feature=feature).fit_transform(X),
        lambda: scaler.transform(X),
        lambda: scaler.personalize(X),
        lambda: imputer.transform(X),
        lambda: list(TaskStratifiedKFold(2, task_feature=feature).split(X, Y)),
        lambda: list(LeaveTasksOut(2, task_feature=feature).split(X, Y)),
        lambda: stack_tasks(X, y),
        lambda: wide_to_long(X, y),
    )


@pytest.mark.parametrize("name", targets())
def test_messages_about_targets_hold_no_value(name):
    y, X, known = targets()[name], rows(), fitted()
    classifier = fitted(PrivateMTLClassifier, classes=(0, 1))
    new = PrivateMTL(epsilon=1.0, tasks=range(M), task_feature=0, random_state=0)
    classes = PrivateMTLClassifier(epsilon=1.0, tasks=range(M), task_feature=0, random_state=0)
    assert_silent(
        lambda: new.fit(X, y),
        lambda: new.set_params(loss="poisson", epsilon=None).fit(X, y),
        lambda: classes.fit(X, y),
        lambda: classes.set_params(classes=[0, 1]).fit(X, y),
        lambda: known.personalize(X, y),
        lambda: classifier.personalize(X, y),
        lambda: known.score(X, y),
        lambda: nmse(y, known.predict(X)),
        lambda: task_scores(known, X, y),
        lambda: stack_tasks({0: X}, {0: y}),
        lambda: wide_to_long(X, y),
    )


@pytest.mark.parametrize(
    "weights",
    [np.full(M * N, WEIGHT), np.full(M * N, WORD), [WEIGHT], WEIGHT, {0: [WEIGHT]}, [[WEIGHT]]],
    ids=["numbers", "words", "short", "number", "mapping", "nested"],
)
def test_messages_about_weights_hold_no_value(weights):
    known = fitted()
    assert_silent(
        lambda: fitted().fit(rows(), Y, sample_weight=weights),
        lambda: known.personalize(rows(), Y, sample_weight=weights),
    )
