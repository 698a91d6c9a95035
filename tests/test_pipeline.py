"""New tasks through a pipeline."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.compose import make_column_transformer
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from skpmtl import MPMTLLowRank, TaskImputer, TaskScaler, personalize


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
        remainder="passthrough", verbose_feature_names_out=False,
    ).set_output(transform="pandas")  # fmt: skip
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
    assert model[-1] is est and len(est.tasks_) == 12 and est.privacy_.epsilon == 3.0
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


@pytest.mark.filterwarnings("ignore::skpmtl.PrivacyLeakWarning")
def test_after_an_error_nothing_was_added(clinics):
    table, y, first = clinics
    model = pipeline().fit(table[first], y[first])
    with pytest.raises(ValueError, match="NaN"):
        personalize(model, table[~first], y[~first] * np.nan)
    assert [len(step.tasks_) for step in (model[0][0], model[0][2], model[1])] == [9, 9, 9]


def test_without_a_task_column(school_like):
    table, y = school_like()
    X, task = table.drop(columns="school"), table["school"]
    first = task < "s005"
    names = sorted(set(task[first]))
    est = MPMTLLowRank(epsilon=3.0, tasks=names).fit(X[first], y[first], task=task[first])
    assert personalize(est, X[~first], y[~first], task=task[~first]) is est
    assert_array_equal(est.tasks_, sorted(set(task)))


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
