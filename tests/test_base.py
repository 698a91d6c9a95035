"""The plumbing of all estimators, on the smallest ones: a ridge regression per task."""

import pickle
import re
import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import RFE, SelectFromModel
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import get_tags

from skpmtl import ClusteredMTL, DPMetaInit, MPMTLLowRank, PrivateMeanRegMTL, PrivateMTL
from skpmtl.inspection import column_importances
from skpmtl.privacy import LittleFoundWarning
from skpmtl.privacy.report import PrivacyLeakWarning
from skpmtl.tables.table import SingleTaskWarning, TaskTable
from skpmtl.tables.targets import class_targets
from tests.helpers.tiny_ridge import TinyRidge, TinyRidgeClassifier

from .helpers.public import public


# ------------------------------------------------------------------------------ tools
@pytest.mark.parametrize("column", ["school", 1, -4, ["school"]])
def test_selection_of_features_keeps_the_task_column(school_like, column):
    frame, y = school_like()
    frame = frame[["x0", "school", "x1", "x2", "x3"]]
    y = 5.0 * frame["x2"] + 0.01 * y
    getter = {"importance_getter": column_importances}
    found = SelectFromModel(TinyRidge(task_feature=column), **getter).fit(frame, y)
    assert found.get_feature_names_out().tolist() == ["school", "x2"]
    first = SelectFromModel(TinyRidge(task_feature=column), max_features=1, **getter)
    assert first.fit(frame, y).get_feature_names_out().tolist() == ["school"]


@pytest.mark.parametrize("selector", [SelectFromModel, RFE])
def test_selection_by_coef_is_an_error_with_the_remedy(school_like, selector):
    frame, y = school_like()
    numbers = frame.drop(columns="school")
    frame = np.c_[np.arange(len(frame)) % 5, numbers]
    with pytest.raises(ValueError, match="importance_getter=skpmtl.inspection.column_importances"):
        selector(TinyRidge(task_feature=0)).fit(frame, y)
    selector(TinyRidge(task_feature=0), importance_getter=column_importances).fit(frame, y)
    with pytest.warns(SingleTaskWarning):
        assert selector(TinyRidge()).fit(numbers, y).get_support().shape == (4,)


def test_a_pickle_of_another_version_is_read_with_a_warning(school_like, monkeypatch):
    frame, y = school_like()
    est = TinyRidge(task_feature="school").fit(frame, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same = pickle.loads(pickle.dumps(est))
    assert vars(same).keys() == vars(est).keys()
    monkeypatch.setattr("skpmtl.base.__version__", "0.0.1")
    old = pickle.dumps(est)
    monkeypatch.undo()
    with pytest.warns(UserWarning, match="skpmtl 0.0.1 and is read by.*save_billboard"):
        assert_array_equal(pickle.loads(old).predict(frame), est.predict(frame))


RANGED = [
    PrivateMTL(epsilon=3.0),
    MPMTLLowRank(0.1, epsilon=None),
    ClusteredMTL(2, epsilon=None),
    PrivateMeanRegMTL(epsilon=3.0),
    DPMetaInit(epsilon=3.0),
]


@pytest.mark.parametrize("est", RANGED, ids=lambda est: type(est).__name__)
def test_predictions_stay_within_the_public_range(est):
    rng = np.random.default_rng(0)
    X, task = rng.normal(size=(400, 2)), np.arange(400) % 40
    y = X[:, 0] + 0.1 * rng.normal(size=400)
    est = clone(est).set_params(tasks=range(40), target_range=(-3.0, 4.0)).fit(X, y, task=task)
    found = est.predict(1e3 * X, task=task)
    assert found.min() >= -3.0 and found.max() <= 4.0 and np.ptp(found) > 1.0


def test_importances_are_of_coefficients_over_tasks(school_like):
    frame, y = school_like()
    X, schools = frame.drop(columns="school"), frame["school"]
    est = TinyRidge().fit(X, y, task=schools)
    assert_allclose(column_importances(est), np.sqrt((est.coef_**2).mean(axis=0)))


def test_importances_of_private_fits_are_of_what_was_released(school_like):
    frame, y = school_like(n_tasks=30)
    est = PrivateMTL(epsilon=30.0, delta=1e-3, task_feature="school", unseen_task="mean")
    with pytest.warns(PrivacyLeakWarning):
        est.fit(frame, y)
    names = list(frame)
    found = dict(zip(names, column_importances(est), strict=True))
    assert_allclose([found[f"x{j}"] for j in range(4)], np.abs(est.mean_coef_))
    with pytest.warns(PrivacyLeakWarning):
        est.set_params(epsilon=1e-3).fit(frame, y)
    with pytest.raises(ValueError, match="released no mean model"):
        column_importances(est)


@pytest.mark.parametrize("cls", [PrivateMTL, PrivateMeanRegMTL, MPMTLLowRank])
def test_a_large_delta_is_warned_of_once_under_any_filter(school_like, cls):
    frame, y = school_like()
    est = cls(epsilon=3.0, delta=0.2, tasks=sorted(set(frame["school"])), task_feature="school")
    for _ in range(2):  # and once more by every further fit
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            est.fit(frame, y)
        assert ["1/n_tasks" in str(warning.message) for warning in said].count(True) == 1


def test_three_classes_name_who_takes_them(school_like):
    frame, y = school_like()
    with pytest.raises(ValueError, match="TinyRidgeClassifier takes two; .*PrivateMTL") as error:
        TinyRidgeClassifier(task_feature="school").fit(frame, np.digitize(y, [-1, 1]))
    for name in re.findall(r"\w+Classifier", str(error.value).split(";")[1]):
        assert get_tags(public(name)()).classifier_tags.multi_class


# ------------------------------------------------------------------------- parameters
def test_private_fits_warn_about_the_task_list():
    X, y, ids = np.arange(8.0).reshape(4, 2), np.arange(4.0), [1, 1, 2, 2]
    with pytest.warns(PrivacyLeakWarning, match=r"tasks=\[...\]") as record:
        TinyRidge(epsilon=1.0).fit(X, y, task=ids)
    assert record[0].filename == __file__  # the caller's line, not ours
    # All of these are silent: warnings are errors in the tests.
    TinyRidge(epsilon=1.0, tasks=[1, 2]).fit(X, y, task=ids)
    TinyRidge(epsilon=None).fit(X, y, task=ids)
    TinyRidge(epsilon=float("inf")).fit(X, y, task=ids)
    TinyRidge(epsilon=1.0).fit(X, np.column_stack([y, y]))  # columns are no rows


def test_failed_fit_leaves_nothing_and_refit_nothing_stale():
    X, y, ids = np.arange(8.0).reshape(4, 2), np.arange(4.0), [1, 1, 2, 2]
    est = TinyRidge().fit(pd.DataFrame(X, columns=["a", "b"]), y, task=ids)
    assert est.objective_ == 0.0 and hasattr(est, "feature_names_in_")
    est.set_params(epsilon=1.0, tasks=[1, 2]).fit(X, y, task=ids)
    assert not hasattr(est, "objective_") and not hasattr(est, "mean_coef_")
    assert not hasattr(est, "feature_names_in_")
    for broken in ({"epsilon": -1}, {"tasks": [1]}):
        est.set_params(epsilon=None, tasks="auto").fit(X, y, task=ids).set_params(**broken)
        with pytest.raises(ValueError):
            est.fit(X, y, task=ids)
        assert [name for name in vars(est) if name.endswith("_")] == []


# ------------------------------------------------------------------------ classifiers
LABELS = {
    "01": [0, 1],
    "-11": [-1, 1],
    "strings": ["no", "yes"],
    "bools": [False, True],
    "floats": [0.0, 1.0],
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_of_classifiers(kind, school_like):
    frame, y = school_like()
    codes = (y > y.median()).astype(int).to_numpy()
    labels = np.array(LABELS[kind])[codes]
    est = TinyRidgeClassifier(task_feature="school").fit(frame, labels)
    assert_array_equal(est.classes_, LABELS[kind])
    # Squared loss on -1 and 1: the scores are those of the regression on the same targets.
    scores = TinyRidge(task_feature="school").fit(frame, 2.0 * codes - 1).predict(frame)
    assert_allclose(est.decision_function(frame), scores)
    predicted = est.predict(frame)
    assert predicted.dtype == labels.dtype
    assert_array_equal(predicted, np.array(LABELS[kind])[(scores > 0).astype(int)])
    proba = est.predict_proba(frame)
    assert_allclose(proba[:, 1], 1 / (1 + np.exp(-scores)))
    assert_allclose(proba.sum(axis=1), 1)
    assert est.score(frame, labels) == accuracy_score(labels, predicted)
    assert est.score(frame, pd.Series(labels, dtype="category")) == est.score(frame, labels)


@pytest.mark.parametrize("kind", ["floats", "strings", "booleans"])
def test_wide_classification(kind):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    Y = (X @ rng.normal(size=(3, 4)) > 0).astype(float)
    Y[rng.random(Y.shape) < 0.2] = np.nan
    known = ~np.isnan(Y)
    if kind == "floats":
        target, classes = Y, [0, 1]
    else:
        classes = ["no", "yes"] if kind == "strings" else [False, True]
        target = np.where(known, np.array(classes, dtype=object)[(Y == 1).astype(int)], None)
    est = TinyRidgeClassifier().fit(X, target)
    assert est.classes_.tolist() == classes
    assert est.predict(X).shape == est.predict_proba(X).shape == (60, 4)
    assert_array_equal(est.predict(X) == classes[1], est.predict_proba(X) > 0.5)
    correct = (est.predict(X) == classes[1]) == (Y == 1)
    assert est.score(X, target) == correct[known].mean() > 0.8
    by_task = est.predict_proba(X, task=[2] * 60)
    assert_allclose(by_task[:, 1], est.predict_proba(X)[:, 2])


def test_class_errors():
    X, ids = np.arange(12.0).reshape(6, 2), ["a", "a", "b", "b", "c", "c"]
    fit = TinyRidgeClassifier().fit
    with pytest.raises(ValueError, match="Only binary classification is supported. The type of"):
        fit(X, [0, 1, 2, 0, 1, 2], task=ids)
    with pytest.raises(ValueError, match=r"only one class; .* list them: classes=\[\.\.\.\]"):
        fit(X, ["x"] * 6, task=ids)
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        fit(X, np.linspace(0, 1, 6), task=ids)
    with pytest.raises(ValueError, match=r"NaN or None: 1 value\(s\), first in row 3 \(task 'b'\)"):
        fit(X, ["x", "y", "x", None, "x", "y"], task=ids)
    with pytest.raises(TypeError, match="mix strings"):
        fit(X, np.array(["x", 1, "x", 1, "x", 1], dtype=object), task=ids)


def test_labels_are_spread_where_a_class_is_missing():
    X, ids = np.arange(12.0).reshape(6, 2), np.array(list("aabbbc"))
    est = TinyRidgeClassifier()
    est.fit(X, [0, 1, 1, 1, 1, 0], task=ids)
    assert_allclose(est.coef_[1:], 0.0, atol=1e-12)  # equal targets
    assert_allclose(est.intercept_[1:], [3 / 4, -1 / 2])
    assert est.predict(X[2:], task=ids[2:]).tolist() == [1, 1, 1, 0]
    held = TinyRidgeClassifier(fit_intercept=False)
    table = TaskTable(X, np.array([0, 1, 1, 1, 1, 0]), np.array([0, 2, 5, 6]), np.arange(3))
    assert_array_equal(held._encoded(table)[0].y, [-1, 1, 1, 1, 1, -1])
    y = class_targets(np.array([0, 2, 0, 1, 2]), np.array([0, 2, 5]), 3, spread=True)
    assert_allclose(y, [1 / 3, 2 + 1 / 3, 0, 1, 2])


# ------------------------------------------------------------- personalize and export
def test_personalize_adds_and_replaces(school_like):
    frame, y = school_like()
    everything = TinyRidge(task_feature="school").fit(frame, y)
    old = frame["school"].isin(["s001", "s002", "s005"])
    est = TinyRidge(task_feature="school", tasks=["s001", "s002", "s005"]).fit(frame[old], y[old])
    billboard = est.export_billboard()
    assert est.personalize(frame[~old], y[~old]) is est
    assert_array_equal(est.tasks_, everything.tasks_)
    assert_allclose(est.coef_, everything.coef_)
    assert_allclose(est.predict(frame), everything.predict(frame))
    assert est.billboard_ == billboard
    again = frame["school"] == "s002"
    est.personalize(frame[again], -y[again])
    assert_allclose(est.coef_[2], -everything.coef_[2])
    assert_allclose(np.delete(est.coef_, 2, axis=0), np.delete(everything.coef_, 2, axis=0))


def test_personalize_in_other_forms():
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(30, 2)), pd.DataFrame(rng.normal(size=(30, 3)), columns=list("bac"))
    whole = TinyRidge().fit(X, Y)
    est = TinyRidge().fit(X, Y[["b", "c"]])
    est.personalize(X, Y[["a"]].to_numpy()[:, 0], task=["a"] * 30)
    assert_allclose(est.coef_, whole.coef_)
    assert_allclose(est.predict(X), whole.predict(X)[:, [0, 2, 1]])  # new tasks come last
    wide = TinyRidge().fit(X, Y["b"], task=["b"] * 30).personalize(X, Y[["c", "a"]])
    assert_allclose(wide.coef_, whole.coef_)
    mapping = TinyRidge().fit({"b": X}, {"b": Y["b"]})
    mapping.personalize({"c": X, "a": X}, {"a": Y["a"], "c": Y["c"]})
    assert_allclose(mapping.coef_, whole.coef_)


def test_personalize_errors_leave_the_estimator(school_like):
    frame, y = school_like()
    est = TinyRidgeClassifier(task_feature="school").fit(frame, y > y.median())
    before = est.coef_.copy()
    new = frame[:6].assign(school="new")
    for X, target, error, message in [
        (new, ["p", "q"] * 3, ValueError, r"not among the classes \[False, True\]"),
        (new.assign(school=5), [True, False] * 3, TypeError, "integers here"),
        (new.drop(columns="x0"), [True, False] * 3, ValueError, "feature names"),
        (new.drop(columns="school"), [True, False] * 3, ValueError, "feature names"),
    ]:
        with pytest.raises(error, match=message):
            est.personalize(X, target)
    assert_array_equal(est.coef_, before)
    keyword = TinyRidge().fit(np.eye(4), np.arange(4.0), task=[1, 1, 2, 2])
    with pytest.raises(ValueError, match="no task: give task="):
        keyword.personalize(np.eye(4), np.arange(4.0))
    with pytest.raises(ValueError, match="needs column names"):
        keyword.personalize(np.eye(4), np.ones((4, 2)))
    with pytest.raises(NotFittedError):
        TinyRidge().personalize(np.eye(4), np.arange(4.0), task=[1, 1, 2, 2])


def test_exports(school_like):
    frame, y = school_like()
    est = TinyRidge(task_feature="school").fit(frame, y)
    model = est.export_task("s003")
    assert model["task"] == "s003" and type(model["task"]) is str
    assert model["feature_names"] == ["x0", "x1", "x2", "x3"] and model["classes"] is None
    mine = frame["school"] == "s003"
    X = frame[mine].drop(columns="school").to_numpy()
    assert_allclose(X @ model["coef"] + model["intercept"], est.predict(frame[mine]))
    model["coef"][:] = 0
    assert est.coef_[3].any()
    with pytest.raises(ValueError, match="'s999' has no model here"):
        est.export_task("s999")
    with pytest.raises(TypeError, match="known tasks are strings"):
        est.export_task(3)
    copy = est.export_billboard()
    copy["alpha"].append(0)
    assert est.billboard_ == {"alpha": [1.0]}
    clf = TinyRidgeClassifier().fit(np.eye(4), [0, 1, 0, 1], task=[1, 1, 2, 2])
    assert clf.export_task(2)["classes"] == [0, 1]
    assert clf.export_task(2)["feature_names"] is None


def test_score_is_pooled_over_tasks(school_like):
    frame, y = school_like()
    est = TinyRidge(task_feature="school").fit(frame, y)
    assert est.score(frame, y) == r2_score(y, est.predict(frame))
    weight = np.arange(len(y)) % 3
    assert est.score(frame, y, sample_weight=weight) == r2_score(
        y, est.predict(frame), sample_weight=weight
    )
    with pytest.raises(ValueError, match="inconsistent"):
        est.score(frame, y[:-1])
    X, Y = np.random.default_rng(0).normal(size=(2, 20, 2))
    Y[::3, 0] = np.nan
    wide, rows = TinyRidge().fit(X, Y), np.arange(20) % 2
    known = ~np.isnan(Y)
    assert wide.score(X, Y, sample_weight=rows) == r2_score(
        Y[known], wide.predict(X)[known], sample_weight=np.column_stack([rows, rows])[known]
    )
    with pytest.raises(ValueError, match="stack_tasks first"):
        wide.score({0: X}, {0: Y[:, 1]}, sample_weight=rows)
    with pytest.raises(ValueError, match="one column per task"):
        TinyRidge().fit(X, Y).score(X, Y[:, :1])


def test_a_fit_that_finds_little_says_so_with_the_remedy():
    rng = np.random.default_rng(0)
    X, task = rng.normal(size=(24, 2)), np.repeat(np.arange(8), 3)
    settings = {"tasks": range(8), "epsilon": 0.1}
    with pytest.warns(LittleFoundWarning, match="nothing was released.*epsilon") as said:
        PrivateMTL(**settings).fit(X, X[:, 0], task=task)
    assert said[-1].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error", LittleFoundWarning)
        PrivateMTL(epsilon=None).fit(X, X[:, 0], task=task)


@pytest.mark.parametrize("epsilon", [None, 30.0])
def test_targets_beyond_all_units_are_a_warning(epsilon):
    rng = np.random.default_rng(0)
    X, task = rng.normal(size=(160, 2)), np.repeat(np.arange(20), 8)
    est, y = PrivateMTL(epsilon=epsilon, tasks=range(20)), 3.0 + X[:, 0] + rng.normal(size=160)
    for unit in (1e-15, 1e15):
        with pytest.warns(LittleFoundWarning, match="larger than 2.*divide them"):
            est.fit(X, unit * y, task=task)
    for unit in (1e-9, 1.0, 1e9):
        with warnings.catch_warnings():
            warnings.simplefilter("error", LittleFoundWarning)
            est.fit(X, unit * y, task=task)


def test_a_meta_initialisation_that_is_noise_is_a_warning():
    rng = np.random.default_rng(0)
    X, task = rng.normal(size=(400, 3)), np.repeat(np.arange(20), 20)
    settings = {"tasks": range(20)}
    with pytest.warns(LittleFoundWarning, match="initialisation is noise.*feature_range"):
        DPMetaInit(epsilon=0.01, **settings).fit(X, X[:, 0], task=task)
    with warnings.catch_warnings():
        warnings.simplefilter("error", LittleFoundWarning)
        DPMetaInit(epsilon=100.0, **settings).fit(X, X[:, 0], task=task)


@pytest.mark.parametrize(
    ("epsilon", "units", "said"),
    [(2.0, [1e3, 30.0], True), (10.0, [1e3, 30.0], False), (2.0, [1.0, 0.5], False)],
)
def test_scales_of_raw_columns_that_are_lost_are_named(epsilon, units, said):
    rng = np.random.default_rng(1)
    X, task = units * (rng.normal(size=(300, 2)) + 2.0), np.arange(300)
    y = X @ np.divide(3.0, units) + rng.normal(size=300)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", LittleFoundWarning)
        est = PrivateMTL(epsilon=epsilon, tasks=range(300), random_state=1).fit(X, y, task=task)
    told = [str(w.message) for w in caught if w.category is LittleFoundWarning]
    assert len(told) == said
    if said:
        factor = 2.0**est.billboard_.scale_noise
        assert factor > 2.0 and f"a factor of {factor:.2g}. Remedies: columns of public" in told[0]


def around_five(rng, m):
    return 5.0 + rng.normal(size=m)


def anywhere(rng, m):
    return 1e4 * rng.standard_cauchy(m) ** 3  # levels of all orders of magnitude


@pytest.mark.parametrize(
    ("levels", "d", "options", "warning"),
    [
        (anywhere, 2, {}, "no place of the levels.*larger epsilon"),
        (anywhere, 2, {"levels": "free"}, None),
        (anywhere, 2, {"fit_intercept": False}, "slopes of its own alone"),
        (anywhere, 2, {"unseen_task": "mean"}, "no mean model.*target_range"),
        (around_five, 2, {"unseen_task": "mean", "epsilon": 3.0}, None),
        (around_five, 20, {"unseen_task": "mean"}, "below their noise.*fewer columns"),
        (around_five, 20, {}, "slopes of its own alone.*fewer columns"),
        (around_five, 20, {"structure": "low-rank"}, None),
        (around_five, 2, {"epsilon": 3.0}, None),
        (around_five, 20, {"unseen_task": "mean", "structure": "low-rank"}, None),
    ],
)
def test_what_was_not_found_is_a_warning_where_sought(levels, d, options, warning):
    rng = np.random.default_rng(0)
    X, task = rng.normal(size=(400, d)), np.repeat(np.arange(80), 5)
    y = X[:, 0] + levels(rng, 80)[task] + 0.1 * rng.normal(size=400)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", LittleFoundWarning)
        PrivateMTL(tasks=range(80), random_state=0, **options).fit(X, y, task=task)
    told = [str(w.message) for w in said if w.category is LittleFoundWarning]
    assert len(told) == (warning is not None)
    if warning is not None:
        assert re.search(warning, told[0]) and "\n" not in told[0]
