"""New tasks through a pipeline, and pipelines of one task."""

import pickle

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.compose import make_column_transformer
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from skpmtl import (
    MPMTLLowRank,
    PrivateMTL,
    PrivateMTLClassifier,
    TaskImputer,
    TaskScaler,
    export_task,
    personalize,
)


@pytest.fixture
def clinics(school_like):
    """Numbers with gaps, a category and tasks; which rows are of the first tasks."""
    table, y = school_like(n_tasks=12)
    rng = np.random.default_rng(1)
    table.loc[rng.random(len(table)) < 0.2, "x2"] = np.nan
    table["kind"] = rng.choice(["a", "b"], len(table))
    return table, y, table["school"] < "s009"


def pipeline():
    encode = make_column_transformer(
        (OneHotEncoder(categories=[["a", "b"]], sparse_output=False), ["kind"]),
        remainder="passthrough",
        verbose_feature_names_out=False,
    ).set_output(transform="pandas")
    est = MPMTLLowRank(
        epsilon=3.0, task_feature="school", tasks=[f"s{k:03d}" for k in range(9)], random_state=0
    )
    steps = TaskImputer(task_feature="school"), encode, TaskScaler(task_feature="school")
    return make_pipeline(make_pipeline(*steps), est)  # a pipeline in a pipeline


@pytest.mark.filterwarnings("ignore::skpmtl.PrivacyLeakWarning")  # a seed
def test_new_tasks_go_through_all_steps(clinics):
    table, y, first = clinics
    model = pipeline().fit(table[first], y[first])
    est, before = model[-1], model.predict(table[first])
    assert personalize(model, table[~first], y[~first]) is model
    assert model[-1] is est and len(est.tasks_) == 12
    assert_array_equal(model.predict(table[first]), before)
    # By hand: the steps that know tasks are fitted on the rows of the new tasks alone.
    imputer, encode, scaler = (step for _, step in model[0].steps)
    rows = TaskImputer(task_feature="school").fit_transform(table[~first])
    rows = TaskScaler(task_feature="school").fit_transform(encode.transform(rows))
    other = pipeline().fit(table[first], y[first])[-1]
    other.personalize(rows, y[~first])
    assert_array_equal(est.coef_, other.coef_)
    assert_allclose(model.predict(table[~first]), other.predict(rows))
    assert est.export_task("s011")["feature_names"][:2] == ["kind_a", "kind_b"]


def test_what_cannot_personalise_is_refused(school_like):
    table, y = school_like()
    X = table.drop(columns="school")
    with pytest.raises(TypeError, match="Ridge cannot personalise"):
        personalize(make_pipeline(StandardScaler(), Ridge()).fit(X, y), X, y)
    with pytest.raises(TypeError, match="best_estimator_"):
        personalize(GridSearchCV(Ridge(), {"alpha": [1.0]}).fit(X, y), X, y)
    with pytest.raises(NotFittedError):
        personalize(make_pipeline(StandardScaler(), MPMTLLowRank()), X, y)
    assert isinstance(table, pd.DataFrame)


# ---------------------------------------------------------------- a task without this package
def numbers_of_clinics(n_classes=0):
    """Frame with a task column, gaps and numbers of several sizes; targets."""
    rng = np.random.default_rng(n_classes)
    X = pd.DataFrame(rng.normal(5.0, [1.0, 20.0, 0.1], size=(180, 3)), columns=["a", "b", "c"])
    X.insert(1, "clinic", np.repeat(list("uvw"), 60))
    score = X["a"] + X["b"] / 20.0 + rng.normal(size=180)
    X.loc[::7, "c"] = np.nan
    if not n_classes:
        return X, score
    cuts = score.quantile([0.5] if n_classes == 2 else [0.3, 0.6])
    return X, np.array(["low", "mid", "top"])[np.digitize(score, cuts)]


def of_clinics(n_classes, **settings):
    cls = PrivateMTLClassifier if n_classes else PrivateMTL
    return make_pipeline(
        TaskImputer(task_feature="clinic"),
        TaskScaler(task_feature="clinic", **settings),
        cls(epsilon=None, task_feature="clinic"),
    )


@pytest.mark.parametrize(
    "n_classes, settings",
    [
        (0, {}),
        (0, {"scale": [1.0, 20.0, np.nan]}),
        (0, {"with_mean": False}),
        (2, {"with_std": False}),
        (3, {}),
    ],
)
def test_exported_pipelines_predict_as_the_estimator(n_classes, settings):
    X, y = numbers_of_clinics(n_classes)
    model = of_clinics(n_classes, **settings).fit(X, y)
    own, mine = export_task(model, "v"), X[X["clinic"] == "v"]
    rows = mine.drop(columns="clinic")
    assert b"skpmtl" not in pickle.dumps(own)
    if n_classes:
        model.set_params(privatemtlclassifier__uncertainty=False).fit(X, y)
        assert_allclose(own.predict_proba(rows), model.predict_proba(mine))
        assert_array_equal(own.predict(rows), model.predict(mine))
    else:
        assert_allclose(own.predict(rows), model.predict(mine))
    assert own[0].feature_names_in_.tolist() == ["a", "b", "c"]


@pytest.mark.parametrize("n_classes", [0, 2, 3])
def test_exported_pipelines_become_onnx(n_classes):
    skl2onnx, runtime = pytest.importorskip("skl2onnx"), pytest.importorskip("onnxruntime")
    X, y = numbers_of_clinics(n_classes)
    own = export_task(of_clinics(n_classes).fit(X, y), "w")
    rows = X.loc[X["clinic"] == "w", ["a", "b", "c"]]
    given = rows.to_numpy(np.float32)
    options = {id(own): {"zipmap": False}} if n_classes else None
    file = skl2onnx.to_onnx(own, given, options=options, target_opset=17)
    found = runtime.InferenceSession(file.SerializeToString()).run(None, {"X": given})
    if n_classes:
        assert_array_equal(found[0], own.predict(rows))
        assert_allclose(found[1], own.predict_proba(rows), atol=1e-5)
    else:
        assert_allclose(found[0][:, 0], own.predict(rows), rtol=1e-5, atol=1e-4)


def test_exports_of_steps():
    X, y = numbers_of_clinics()
    imputer, scaler, est = (step for _, step in of_clinics(0).fit(X, y).steps)
    mine = X[X["clinic"] == "u"]
    known = imputer.export_task("u")
    assert known["task"] == "u" and known["feature_names"] == ["a", "b", "c"]
    assert known["statistics"]["c"] == mine["c"].median()
    assert_allclose(scaler.export_task("u")["mean"], scaler.mean_[0])
    assert_array_equal(est.export_task("u", as_sklearn=True).coef_, est.coef_[0])
    with pytest.raises(ValueError, match="Task 'x' is not known here"):
        scaler.export_task("x")
    words = X.assign(ward="north")
    with pytest.raises(TypeError, match="text have no SimpleImputer"):
        TaskImputer(task_feature="clinic").fit(words).export_task("u", as_sklearn=True)
    # A task without rows has features of zero.
    listed = TaskScaler(task_feature="clinic", tasks=list("uvwx"), with_std=False).fit(X.fillna(0))
    assert (
        not listed.export_task("x", as_sklearn=True).transform(mine[["a", "b"]].assign(c=0.0)).any()
    )


@pytest.mark.filterwarnings("ignore::skpmtl.PrivacyLeakWarning")
def test_what_cannot_be_exported_is_refused(clinics):
    table, y, first = clinics
    with pytest.raises(TypeError, match="Columns of text have no SimpleImputer"):
        export_task(pipeline().fit(table[first], y[first]), "s001")
    same = make_pipeline(FunctionTransformer(), PrivateMTL(epsilon=None, task_feature="school"))
    same.fit(table[["school", "x0"]], y)
    with pytest.raises(TypeError, match="'functiontransformer' sees the task column.* last step"):
        export_task(same, "s001")
    X = table[["x0", "x1"]]
    with pytest.raises(TypeError, match="Ridge has no linear models of tasks"):
        export_task(make_pipeline(StandardScaler(), Ridge()).fit(X, y), "s001")
    # Without a task column any step is one of scikit-learn already.
    est = PrivateMTL(epsilon=None)
    model = make_pipeline(StandardScaler(), est).fit(X, y, privatemtl__task=table["school"])
    own = export_task(model, "s001")
    task = np.repeat("s001", len(X))
    assert_allclose(own.predict(X), est.predict(model[0].transform(X), task=task))


@pytest.mark.filterwarnings("ignore::skpmtl.PrivacyLeakWarning")
def test_after_an_error_nothing_was_added(clinics):
    table, y, first = clinics
    model = pipeline().fit(table[first], y[first])
    with pytest.raises(ValueError, match="NaN"):
        personalize(model, table[~first], y[~first] * np.nan)
    assert [len(step.tasks_) for step in (model[0][0], model[0][2], model[1])] == [9, 9, 9]
