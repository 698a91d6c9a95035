"""Coefficients by name, and models of one task without this package."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, Ridge

import skpmtl
from skpmtl.networks import TorchMeanRegRegressor

from .helpers.public import public

pd = pytest.importorskip("pandas")


def clinics(n_classes=0, seed=0):
    """Frame with a task column in the middle, and targets."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(90, 3)), columns=["age", "dose", "bmi"])
    X.insert(1, "clinic", np.repeat(["a", "b", "c"], 30))
    score = X["age"] - X["bmi"] + rng.normal(size=90)
    if not n_classes:
        return X, score
    return X, np.array(["low", "mid", "top"])[np.digitize(score, [-0.5, 0.5][: n_classes - 1])]


def model(n_classes=0, **settings):
    cls = skpmtl.PrivateMTLClassifier if n_classes else skpmtl.PrivateMTL
    return cls(**{"epsilon": None, "task_feature": "clinic", **settings})


@pytest.mark.parametrize("n_classes", [0, 2, 3])
def test_frames_predict_as_the_estimator(n_classes):
    X, y = clinics(n_classes)
    est = model(n_classes).fit(X, y)
    frame, rows = est.coef_frame(), X[["age", "dose", "bmi"]]
    assert_array_equal(est.coef_names_, rows.columns)
    assert frame.columns.tolist() == ["age", "dose", "bmi", "intercept"]
    for task in "abc":
        own, mine = frame.loc[task], X["clinic"] == task
        found = rows[mine] @ own[rows.columns].T + own["intercept"]
        score = est.predict(X) if not n_classes else est.decision_function(X)
        assert_allclose(found, score[mine])
        if n_classes == 3:
            assert own.index.tolist() == est.classes_.tolist()


def test_names_without_names_are_places_in_X():
    X, y = clinics()
    table = X.assign(clinic=X["clinic"].map({"a": 0, "b": 1, "c": 2})).to_numpy()
    est = model(task_feature=1).fit(table, y)
    assert_array_equal(est.coef_names_, ["x0", "x2", "x3"])
    assert_array_equal(est.coef_frame().index, [0, 1, 2])
    with pytest.raises(NotFittedError):
        model().coef_names_  # noqa: B018
    est.coef_names_[:] = "other"
    assert est.coef_names_[0] == "x0"


def test_wide_targets_and_new_tasks():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 2))
    Y = pd.DataFrame(rng.normal(size=(20, 2)), columns=["v", "u"])
    est = skpmtl.MPMTLLowRank(0.1, epsilon=None).fit(X, Y)
    assert est.coef_frame().index.tolist() == ["u", "v"]
    est.personalize(X, rng.normal(size=20), task=["w"] * 20)
    assert_allclose(est.coef_frame().loc["w"], [*est.coef_[2], est.intercept_[2]])


@pytest.mark.filterwarnings("ignore:relation=")
@pytest.mark.parametrize("cls", ["PrivateMeanRegMTL", "MPMTLLowRank", "DPMetaInitClassifier"])
def test_tables_of_covariates(cls):
    X, y = clinics(3 if cls.endswith("Classifier") else 0)
    covariates = pd.DataFrame({"beds": [1.0, 2.0, 4.0]}, index=["a", "b", "c"])
    est = public(cls)(epsilon=None, task_feature="clinic", relation=covariates).fit(X, y)
    frame = est.coef_frame("relation")
    several = est.relation_coef_.ndim == 3
    beds = frame.loc["beds"] if several else frame.loc[["beds"]]
    assert_allclose(beds[est.coef_names_], np.atleast_2d(est.relation_coef_[1]))
    assert ("intercept" in frame.columns) == hasattr(est, "relation_intercept_")
    with pytest.raises(ValueError, match="no relation="):
        model().fit(*clinics()).coef_frame("relation")
    with pytest.raises(ValueError, match='"tasks" or "relation"'):
        est.coef_frame("classes")


def test_networks_have_no_coefficients_of_features():
    est = TorchMeanRegRegressor(None)
    assert not hasattr(est, "coef_names_") and not hasattr(est, "coef_frame")


@pytest.mark.parametrize("n_classes, named", [(0, True), (0, False), (2, False), (3, True)])
def test_models_of_scikit_learn_predict_as_the_estimator(n_classes, named):
    X, y = clinics(n_classes)
    rows = X[["age", "dose", "bmi"]] if named else X[["age", "dose", "bmi"]].to_numpy()
    est = model(n_classes, task_feature=None).fit(rows, y, task=X["clinic"])
    own = est.export_task("b", as_sklearn=True)
    assert type(own).__module__.startswith("sklearn.")
    assert b"skpmtl" not in pickle.dumps(own)
    task = ["b"] * len(X)
    expected = est.predict(rows, task=task)
    if not n_classes:
        assert_allclose(own.predict(rows), expected)
    else:
        assert_array_equal(own.predict(rows), expected)
        plain = model(n_classes, task_feature=None, uncertainty=False)
        plain.fit(rows, y, task=X["clinic"])
        assert_allclose(own.predict_proba(rows), plain.predict_proba(rows, task=task))
        own.coef_[:] = 0.0
        assert est.coef_.all()
    assert own.n_features_in_ == 3 and hasattr(own, "feature_names_in_") == named


@pytest.mark.parametrize("n_classes", [2, 3])
def test_logarithms_of_probabilities(n_classes):
    X, y = clinics(n_classes)
    averaged = model(n_classes).fit(X, y)
    assert_allclose(np.exp(averaged.predict_log_proba(X)), averaged.predict_proba(X))
    est = model(n_classes, uncertainty=False).fit(X, y)
    found = est.predict_log_proba(X)
    assert_allclose(np.exp(found), est.predict_proba(X))
    far = X.assign(age=1e4)
    with np.errstate(over="raise", divide="raise", invalid="raise"):
        found = est.predict_log_proba(far)
    score = est.decision_function(far)
    score = np.column_stack([0.0 * score, score]) if n_classes == 2 else score
    assert np.isfinite(found).all()
    near = score - logsumexp(score, axis=1, keepdims=True)
    assert_allclose(found, near, atol=1e-9)
    Y = np.column_stack([y == "low", y == "mid"]).astype(int)
    rows = X.drop(columns="clinic")
    wide = skpmtl.MPMTLLowRankClassifier(0.1, epsilon=None).fit(rows, Y)
    assert_allclose(np.exp(wide.predict_log_proba(rows)), wide.predict_proba(rows))
    alone = skpmtl.PerTask(LogisticRegression(), task_feature="clinic").fit(X, y)
    assert_allclose(np.exp(alone.predict_log_proba(X)), alone.predict_proba(X))
    assert not hasattr(skpmtl.PerTask(Ridge()), "predict_log_proba")


@pytest.mark.parametrize("cls", ["PrivateMTL", "MPMTLLowRankCV", "FedMTLRegressor", "PerTask"])
def test_errors_of_python_name_the_class(cls):
    cls = public(cls)
    with pytest.raises(TypeError, match=rf"^{cls.__name__}\.__init__\(\) .* 'eps1lon'"):
        cls(eps1lon=1.0)
    est = cls(None) if cls is skpmtl.PerTask else cls()
    with pytest.raises(TypeError, match=rf"^{cls.__name__}\.fit\(\) .* 'tasks'"):
        est.fit(np.eye(2), [0, 1], tasks=[0, 1])
    assert cls.fit.__doc__ and pickle.loads(pickle.dumps(est.fit)).__self__.get_params()
