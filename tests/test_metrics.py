"""Metrics against their definitions and scikit-learn's."""

import numpy as np
import pandas as pd
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import accuracy_score, log_loss, make_scorer, r2_score, roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from skpmtl import TaskStratifiedKFold
from skpmtl.metrics import average_auc, nmse, task_scorer, task_scores
from tests.helpers.tiny_ridge import TinyRidge, TinyRidgeClassifier


def test_nmse_is_pooled_and_one_minus_r2():
    rng = np.random.default_rng(0)
    y, predicted = rng.normal(3, 2, 50), rng.normal(3, 2, 50)
    assert nmse(y, predicted) == pytest.approx(1 - r2_score(y, predicted))
    assert nmse(y, np.full(50, y.mean())) == pytest.approx(1)
    Y, P = y.reshape(10, 5).copy(), predicted.reshape(10, 5)
    assert nmse(Y, P) == pytest.approx(nmse(y, predicted))
    Y[2, 3] = Y[5, 0] = np.nan
    known = ~np.isnan(Y)
    assert nmse(Y, P) == pytest.approx(1 - r2_score(Y[known], P[known]))
    with pytest.raises(ValueError, match="The 3 targets do not vary"):
        nmse([1.0, 1.0, 1.0], [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="inconsistent"):
        nmse([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="one column per task"):
        nmse(Y, P[:, :2])


@pytest.mark.parametrize("decimals", [1, 8])  # 1: many ties
@pytest.mark.parametrize("labels", [[0, 1], [-1, 1], ["a", "b"], [False, True]])
def test_average_auc_is_the_mean_over_tasks(decimals, labels):
    rng = np.random.default_rng(0)
    task = rng.integers(0, 6, 200)
    positive = rng.random(200) < 0.4
    positive[task == 2], positive[task == 4] = True, False  # no area there
    score = np.round(positive + rng.normal(size=200), decimals)
    y = np.array(labels)[positive.astype(int)]
    expected = [roc_auc_score(positive[task == t], score[task == t]) for t in (0, 1, 3, 5)]
    assert average_auc(y, score, task=task) == pytest.approx(np.mean(expected), rel=1e-12)
    assert average_auc(y, score) == pytest.approx(roc_auc_score(positive, score), rel=1e-12)


@pytest.mark.parametrize("weight", [[-1.0, 1.0, 1.0], [np.nan, 1.0, 1.0], [1.0, np.inf, 1.0]])
def test_weights_that_are_none_are_refused(weight):
    with pytest.raises(ValueError, match="sample_weight has 1 value"):
        nmse([1.0, 2.0, 3.0], [1.0, 2.0, 5.0], sample_weight=weight)
    with pytest.raises(ValueError, match="sample_weight has 1 value"):
        average_auc([0, 1, 1], [0.1, 0.2, 0.3], sample_weight=weight)


@pytest.mark.parametrize("weight", [None, [0.0, 1.0, 1.0], [0.0, 0.0, 0.0]])
def test_nmse_of_targets_that_do_not_vary_is_an_error(weight):
    """Three times .1 have a variance of 2e-34, by rounding."""
    first = 0.1 if weight is None else 7.0
    with pytest.raises(ValueError, match="do not vary"):
        nmse([first, 0.1, 0.1], [1.0, 2.0, 5.0], sample_weight=weight)


def test_average_auc_errors():
    with pytest.raises(ValueError, match=r"take predict_proba\(X\)\[:, 1\]"):
        average_auc([0, 1], [[0.3, 0.7], [0.2, 0.8]])
    with pytest.raises(ValueError, match="No task has rows of both classes"):
        average_auc([0, 0, 1], [0.1, 0.2, 0.3], task=[1, 1, 2])
    for y, score in [([0, 1, 2], [1, 2, 3]), ([0, 1, np.nan], [1, 2, 3]), ([0, 1], [0, np.nan])]:
        with pytest.raises(ValueError, match="labels of two classes, none missing, finite"):
            average_auc(y, score)
    with pytest.raises(ValueError, match="inconsistent"):
        average_auc([0, 1], [0, 1], task=[1, 1, 1])


def classified(school_like):
    frame, y = school_like()
    labels = pd.Series(np.where(y > y.median(), "high", "low"))
    return frame, labels, TinyRidgeClassifier(task_feature="school").fit(frame, labels)


@pytest.mark.parametrize(
    ("scoring", "direct"),
    [
        (None, lambda est, X, y: accuracy_score(y, est.predict(X))),
        ("roc_auc", lambda est, X, y: roc_auc_score(y == "low", est.decision_function(X))),
        ("neg_log_loss", lambda est, X, y: -log_loss(y, est.predict_proba(X))),
        (make_scorer(accuracy_score), lambda est, X, y: accuracy_score(y, est.predict(X))),
    ],
)
def test_task_scores_of_a_classifier(school_like, scoring, direct):
    frame, y, est = classified(school_like)
    result = task_scores(est, frame, y, scoring=scoring)
    ids = frame["school"].to_numpy()
    assert_array_equal(result.tasks, sorted(set(ids)))
    expected = [direct(est, frame[ids == t], y[ids == t]) for t in result.tasks]
    assert_allclose(result.scores, expected)
    assert_array_equal(result.n_samples, [(ids == t).sum() for t in result.tasks])
    assert result.mean == pytest.approx(np.mean(expected))


def test_task_scores_in_all_forms(school_like):
    frame, y = school_like()
    X, ids = frame.drop(columns="school"), frame["school"].to_numpy()
    column = task_scores(TinyRidge(task_feature="school").fit(frame, y), frame, y)
    expected = [
        r2_score(y[ids == t], TinyRidge().fit(X, y, task=ids).predict(X[ids == t], task=[t] * n))
        for t, n in zip(column.tasks, column.n_samples, strict=True)
    ]
    assert_allclose(column.scores, expected)
    keyword = task_scores(TinyRidge().fit(X, y, task=ids), X, y, task=ids)
    parts = {t: X[ids == t] for t in pd.unique(ids)}
    targets = {t: y[ids == t] for t in parts}
    mapping = task_scores(TinyRidge().fit(parts, targets), parts, targets)
    pipe = make_pipeline(FunctionTransformer(), TinyRidge(task_feature="school")).fit(frame, y)
    for other in (keyword, task_scores(pipe, frame, y, task="school")):
        assert_array_equal(other.tasks, column.tasks)
        assert_allclose(other.scores, column.scores)
        assert_array_equal(other.n_samples, column.n_samples)
    assert_allclose(
        [mapping.scores[list(mapping.tasks).index(t)] for t in column.tasks], column.scores
    )


def test_undefined_scores_are_left_out(school_like):
    frame, y = school_like()
    est = TinyRidge(task_feature="school").fit(frame, y)
    first = frame.groupby("school").head(1).index  # one row of every task
    many = frame["school"] == "s002"
    test = frame.loc[first].drop(index=frame.loc[first].index[frame.loc[first, "school"] == "s002"])
    test = pd.concat([test, frame[many]])
    result = task_scores(est, test, y[test.index])
    assert np.isnan(result.scores).sum() == 7 and result.n_samples.min() == 1
    assert result.mean == result.scores[2]
    assert np.isnan(task_scores(est, frame.loc[first], y[first]).mean)


def test_scorers_hand_routed_tasks_on(school_like):
    """Whether ids are in a column or routed, the areas under the curve are the same."""
    frame, y = school_like()
    X, ids, labels = frame.drop(columns="school"), frame["school"].to_numpy(), y > y.median()
    columns = cross_validate(
        TinyRidgeClassifier(task_feature="school"),
        frame,
        labels,
        error_score="raise",
        scoring=["roc_auc", "accuracy"],
        cv=TaskStratifiedKFold(3, task_feature="school"),
    )
    with sklearn.config_context(enable_metadata_routing=True):
        both = {"task": ids, "groups": ids}
        names = {"roc_auc": task_scorer("roc_auc"), "accuracy": task_scorer("accuracy")}
        cv = TaskStratifiedKFold(3)
        routed = cross_validate(
            TinyRidgeClassifier(), X, labels, scoring=names, cv=cv, params=both, error_score="raise"
        )
        for name in names:
            assert_array_equal(routed[f"test_{name}"], columns[f"test_{name}"])
        with pytest.raises(ValueError, match="task_scorer"):
            cross_validate(
                TinyRidgeClassifier(),
                X,
                labels,
                scoring="roc_auc",
                cv=cv,
                params=both,
                error_score="raise",
            )
        model = make_pipeline(StandardScaler(), TinyRidgeClassifier())
        grid = GridSearchCV(
            model, {"tinyridgeclassifier__alpha": [0.1, 1e6]}, scoring=names["roc_auc"], cv=cv
        ).fit(X, labels, **both)
        assert 0.5 < grid.best_score_ <= 1 and grid.best_params_ == {
            "tinyridgeclassifier__alpha": 0.1
        }


def test_scores_of_tasks_as_a_frame():
    X, task = np.arange(6.0)[:, None], np.repeat(["a", "b"], 3)
    model = TinyRidge().fit(X, X[:, 0], task=task)
    plain, frame = (task_scores(model, X, X[:, 0], task=task, as_frame=f) for f in (False, True))
    assert frame.index.tolist() == plain.tasks.tolist()
    assert_array_equal(frame["score"], plain.scores)
    assert_array_equal(frame["n_samples"], plain.n_samples)


@pytest.mark.parametrize("scoring", ["accuracy", "roc_auc", "neg_log_loss"])
def test_task_scores_of_wide_labels(scoring):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 3))
    scores = X @ rng.normal(size=(3, 3)) + rng.normal(size=(50, 3))
    Y = pd.DataFrame(scores > 0, columns=list("bca")).astype(float)
    Y = Y.mask(rng.random(Y.shape) < 0.3)
    est = TinyRidgeClassifier().fit(X, Y)
    result = task_scores(est, X, Y[list("abc")], scoring=scoring)
    assert_array_equal(result.tasks, list("bca"))
    for t, score, n in zip(result.tasks, result.scores, result.n_samples, strict=True):
        known = Y[t].notna().to_numpy()
        p = est.predict_proba(X[known], task=[t] * known.sum())[:, 1]
        y = Y[t][known].astype(int)
        expected = {
            "accuracy": lambda y, p: accuracy_score(y, p > 0.5),
            "roc_auc": roc_auc_score,
            "neg_log_loss": lambda y, p: -log_loss(y, p),
        }[scoring](y, p)
        assert score == pytest.approx(expected) and n == known.sum()
