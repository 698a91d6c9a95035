"""PerTask is a loop over the tasks."""

import pickle

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC

from skpmtl import PerTask
from skpmtl.model_selection import TaskStratifiedKFold


def test_regression_is_one_fit_per_task(school_like):
    frame, y = school_like()
    X, ids = frame.drop(columns="school").to_numpy(), frame["school"].to_numpy()
    models = {t: Ridge(0.3).fit(X[ids == t], y[ids == t]) for t in sorted(set(ids))}
    expected = np.empty(len(y))
    for t, model in models.items():
        expected[ids == t] = model.predict(X[ids == t])
    number = np.unique(ids, return_inverse=True)[1]
    for parameters, given, task in [
        ({"task_feature": "school"}, frame, None),
        ({"task_feature": 0}, np.column_stack([number, X]), None),
        ({}, X, ids),
        ({}, sparse.csr_matrix(X), ids),
    ]:
        est = PerTask(Ridge(0.3), **parameters).fit(given, y, task=task)
        assert_allclose(est.predict(given, task=task), expected, rtol=1e-4, atol=1e-3)
    est = PerTask(Ridge(0.3)).fit(X, y, task=ids)
    assert_allclose(est.predict(X, task=ids), expected)
    assert list(est.estimators_) == sorted(set(ids)) == est.tasks_.tolist()
    assert_allclose(est.estimators_["s003"].coef_, models["s003"].coef_)
    parts = {t: X[ids == t] for t in ("s005", "s001")}
    out = est.predict(parts)
    assert list(out) == ["s005", "s001"]
    assert_allclose(out["s001"], expected[ids == "s001"])
    assert est.score(X, y, task=ids) > 0.9 and is_regressor(est)
    assert not hasattr(est, "predict_proba")


def test_classification_shares_classes(school_like):
    frame, y = school_like()
    labels = np.array(["low", "middle", "high"])[np.digitize(y, np.quantile(y, [0.3, 0.6]))]
    ids = frame["school"].to_numpy()
    labels[(ids == "s002") & (labels == "high")] = "middle"  # a class that s002 never sees
    labels[ids == "s004"] = "low"  # one class only
    est = PerTask(KNeighborsClassifier(3), task_feature="school").fit(frame, labels)
    assert_array_equal(est.classes_, ["high", "low", "middle"])
    proba, predicted = est.predict_proba(frame), est.predict(frame)
    assert proba.shape == (len(y), 3)
    assert_allclose(proba.sum(axis=1), 1)
    assert (proba[ids == "s002", 0] == 0).all()
    assert_array_equal(proba[ids == "s004"], [[0, 1, 0]] * (ids == "s004").sum())
    assert (predicted[ids == "s004"] == "low").all()
    assert_array_equal(predicted, est.classes_[proba.argmax(axis=1)])
    assert est.score(frame, labels) == np.mean(predicted == labels)
    assert is_classifier(est)
    mine = ids == "s006"
    alone = KNeighborsClassifier(3).fit(frame[mine].drop(columns="school").to_numpy(), labels[mine])
    X = frame[mine].drop(columns="school").to_numpy()
    assert_array_equal(est.predict(frame[mine]), alone.predict(X))
    assert not hasattr(PerTask(LinearSVC()), "predict_proba")


def test_wide_y_with_unknown_labels():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    Y = pd.DataFrame(X @ rng.normal(size=(3, 3)), columns=list("cab"))
    Y = Y.mask(rng.random(Y.shape) < 0.3)
    est = PerTask(LinearRegression()).fit(X, Y)
    known = Y.notna().to_numpy()
    assert_allclose(est.predict(X)[known], Y.to_numpy()[known])
    assert est.score(X, Y) == pytest.approx(1)
    labels = (Y > 0).astype(float).where(Y.notna())
    clf = PerTask(LogisticRegression()).fit(X, labels)
    column = labels["a"].notna().to_numpy()
    alone = LogisticRegression().fit(X[column], labels["a"][column].astype(int))
    assert_allclose(clf.predict_proba(X)[:, 1], alone.predict_proba(X)[:, 1])
    assert clf.predict(X).shape == (60, 3) and clf.classes_.tolist() == [0, 1]
    three = labels.mask(Y > 0.5, 2)
    many = PerTask(LogisticRegression()).fit(X, three)
    with pytest.raises(ValueError, match="Probabilities of 3 classes"):
        many.predict_proba(X)
    assert many.predict_proba(X, task=["a"] * 60).shape == (60, 3)


def test_personalize(school_like):
    frame, y = school_like()
    old = frame["school"] < "s004"
    est = PerTask(Ridge(), task_feature="school").fit(frame[old], y[old])
    with pytest.raises(ValueError, match="personalize"):
        est.predict(frame)
    kept = est.estimators_["s001"]
    est.personalize(frame[~old], y[~old])
    whole = PerTask(Ridge(), task_feature="school").fit(frame, y)
    assert_allclose(est.predict(frame), whole.predict(frame))
    assert est.estimators_["s001"] is kept and list(est.estimators_) == list(whole.estimators_)


def test_inside_grid_search_and_around_pipelines(school_like):
    frame, y = school_like()
    est = PerTask(make_pipeline(StandardScaler(), Ridge()), task_feature="school")
    cv = TaskStratifiedKFold(3, task_feature="school")
    grid = GridSearchCV(est, {"estimator__ridge__alpha": [0.1, 1e6]}, cv=cv).fit(frame, y)
    assert grid.best_params_ == {"estimator__ridge__alpha": 0.1}
    again = pickle.loads(pickle.dumps(grid.best_estimator_))
    assert_allclose(again.predict(frame), grid.predict(frame))


def test_errors(school_like):
    frame, y = school_like()
    with pytest.raises(TypeError, match="must be an instance"):
        PerTask(Ridge, task_feature="school").fit(frame, y)
    with pytest.raises(ValueError, match='must be "auto" or a list'):
        PerTask(Ridge(), task_feature="school", tasks="all").fit(frame, y)
    with pytest.raises(ValueError, match='must be "auto" or a list'):
        PerTask(Ridge(), task_feature="school", tasks=None).fit(frame, y)
    tasks = [*set(frame["school"]), "s999"]  # of which one has no rows
    empty = PerTask(Ridge(), task_feature="school", tasks=tasks).fit(frame, y)
    assert set(empty.predict(frame.assign(school="s999"))) == {0.0}
    empty = PerTask(RandomForestClassifier(3), task_feature="school", tasks=tasks).fit(frame, y > 0)
    assert set(empty.predict_proba(frame.assign(school="s999")).ravel()) == {0.5}
    broken = PerTask(RandomForestClassifier(max_depth=-1), task_feature="school")
    with pytest.raises(ValueError, match="Task 's000': .*max_depth"):
        broken.fit(frame, y > 0)
    assert not hasattr(broken, "tasks_")


def test_frames_reach_the_estimator_as_they_are():
    """Names, text and missing values, as `ColumnTransformer` and trees take them."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 2)), columns=["a", "b"])
    frame["kind"] = np.where(rng.random(60) < 0.5, "u", "v")
    frame["school"] = np.repeat(["x", "y", "z"], 20)
    y = frame["a"] + (frame["kind"] == "u") + 0.01 * rng.normal(size=60)
    frame.loc[3, "b"] = np.nan
    encode = make_column_transformer(
        (OneHotEncoder(), ["kind"]), (SimpleImputer(), ["b"]), remainder="passthrough"
    )
    model = PerTask(make_pipeline(encode, Ridge(1e-3)), task_feature="school")
    shuffled = rng.permutation(60)
    found = model.fit(frame.iloc[shuffled], y.iloc[shuffled]).predict(frame)
    for school in "xyz":
        rows = frame["school"] == school
        own = clone(model.estimator).fit(frame.loc[rows, ["a", "b", "kind"]], y[rows])
        assert_allclose(found[rows], own.predict(frame.loc[rows, ["a", "b", "kind"]]))
    assert model.feature_names_in_.tolist() == ["a", "b", "kind", "school"]
    assert "_rows" not in vars(model)
    new = frame[:20].assign(school="w")
    assert_allclose(model.personalize(new, y[:20]).predict(new), found[:20])


def test_missing_values_stay_where_the_estimator_takes_them():
    rng = np.random.default_rng(0)
    X, task = rng.normal(size=(80, 2)), np.repeat([0, 1], 40)
    X[5, 0] = np.nan
    tree = HistGradientBoostingRegressor(max_iter=3, min_samples_leaf=5)
    found = PerTask(tree).fit(X, X[:, 1], task=task).predict(X, task=task)
    assert_allclose(found[:40], clone(tree).fit(X[:40], X[:40, 1]).predict(X[:40]))
    with pytest.raises(ValueError, match="NaN"):
        PerTask(Ridge()).fit(X, X[:, 1], task=task)
