"""Listed tasks without rows contribute nothing and receive what was released."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import Ridge
from sklearn.model_selection import KFold, cross_val_predict, cross_val_score

from skpmtl import LeaveTasksOut, MPMTLLowRank, PerTask, PrivateMeanRegMTL, TaskStratifiedKFold
from tests.helpers.cases import (
    CASES,
    EXACT,
    FIRST,
    N_TASKS,
    TASKS,
    arguments,
    every,
    fit,
    long_data,
    replaced,
    seeded,
)
from tests.helpers.data import rows_of

ABSENT = [2, 5]


def thinned(data):
    """Without the rows of the tasks `ABSENT`."""
    for task in ABSENT:
        data = replaced(data, task, data[0][:0], data[1][:0])
    return data


SOME = {}  # of every estimator, form and way to fit, one
for case in CASES + EXACT:
    options = case.estimator.get_params()
    key = (
        type(case.estimator),
        case.form,
        case.private,
        "clusters" in case.name,
        options.get("algorithm"),
        options.get("batches"),
    )
    if not (case.needs or case.unit or case.form == "wide"):
        SOME.setdefault(key, case)


@every(SOME.values())
@pytest.mark.spread(10)
def test_every_fit_has_a_model_for_every_listed_task(case):
    data = long_data(case.n_classes)
    est = fit(seeded(case).set_params(tasks=TASKS), *arguments(case, thinned(data)))
    assert_array_equal(est.tasks_, TASKS)
    assert len(est.coef_) == len(est.intercept_) == N_TASKS
    assert np.isfinite(est.coef_).all() and np.isfinite(est.intercept_).all()
    # Of these two nothing is known: they have the same, but for noise, clusters and covariates of
    # their own.
    differs = any(getattr(est, name, None) is not None for name in ("clusters", "relation"))
    if not differs:
        assert_array_equal(*est.coef_[ABSENT])
        assert_array_equal(*est.intercept_[ABSENT])
        if est.unseen_task == "mean" and hasattr(est, "mean_intercept_"):
            assert_allclose(est.coef_[2], est.mean_coef_)
            assert_allclose(est.intercept_[2], est.mean_intercept_)
    X, y, task = (part[np.isin(data[2], ABSENT)] for part in data)
    X = 0.1 * X  # near enough for no row to be bounded
    if case.form == "csr":
        X = sparse.csr_matrix(X)
    if case.form in ("long", "csr"):
        predicted = est.decision_function if case.n_classes else est.predict
        expected = X @ est.coef_[5].T + est.intercept_[5]
        if getattr(est, "loss", None) == "poisson":
            expected = np.exp(expected)
        assert_allclose(predicted(X, task=task)[task == 5], expected[task == 5])
        assert_array_equal(est.export_task(5)["coef"], est.coef_[5])
        if case.private:
            names = {"fit_intercept"} & set(options := est.get_params())
            settings = {name: options[name] for name in names}
            if case.n_classes:
                settings["classes"] = est.classes_.tolist()
            there = type(est).from_billboard(est.export_billboard(), **settings)
            there.personalize(X, y, task=task)
            assert_allclose(there.coef_, est.personalize(X, y, task=task).coef_[ABSENT], atol=1e-9)


def _unlinked(case):
    """Whether no public structure over the listed tasks links those without rows to others."""
    return all(getattr(case.estimator, name, None) is None for name in ("relation", "clusters"))


WITHOUT_A_BUDGET = [
    replace(case, name=f"{case.name}-no budget", estimator=seeded(case).set_params(epsilon=None))
    for cls, case in FIRST.items()
    if "epsilon" in case.estimator.get_params() and ".reproduction." not in cls.__module__
]
UNLINKED = [
    case
    for case in EXACT + WITHOUT_A_BUDGET
    if case.form in ("long", "csr") and not case.unit and _unlinked(case)
]


@every(UNLINKED)
@pytest.mark.spread(10)
def test_without_a_budget_absent_tasks_change_nobody_else(case):
    """Nothing is contributed: the fit is that of the tasks with rows, to the last bit."""
    data = arguments(case, thinned(long_data(case.n_classes)))
    present = np.setdiff1d(TASKS, ABSENT)
    alone = fit(seeded(case).set_params(tasks=present), *data)
    listed = fit(seeded(case).set_params(tasks=range(3 * N_TASKS)), *data)
    assert_array_equal(listed.coef_[present], alone.coef_)
    assert_array_equal(listed.intercept_[present], alone.intercept_)
    assert len(listed.coef_) == 3 * N_TASKS and np.isfinite(listed.coef_).all()
    # Two listed tasks without rows are alike, and as one that was not listed.
    assert_array_equal(*listed.coef_[ABSENT])
    if hasattr(alone, "mean_coef_") and listed.unseen_task == "mean":
        assert_array_equal(listed.coef_[ABSENT[0]], alone.mean_coef_)


def test_columns_without_labels_are_tasks_without_rows():
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(30, 3)), pd.DataFrame(rng.normal(size=(30, 4)), columns=list("dacb"))
    Y["a"], Y["b"] = np.nan, np.nan
    est = PrivateMeanRegMTL(0.1, epsilon=None).fit(X, Y)
    some = PrivateMeanRegMTL(0.1, epsilon=None).fit(X, Y[["d", "c"]])
    assert est.tasks_.tolist() == list("abcd")
    assert_allclose(est.predict(X)[:, [0, 2]], some.predict(X))
    assert_allclose(est.coef_[[0, 1]], np.tile(some.mean_coef_, (2, 1)))


@pytest.mark.parametrize("listed", [False, True])
def test_mappings_may_have_empty_tables(listed):
    """They are tasks without rows, as those of a list are, in fit and in predict."""
    X, y = table_of_tasks(4)
    parts = {k: (X[X[:, 0] == k, 1:], y[X[:, 0] == k]) for k in range(4)}
    parts[2] = parts[2][0][:0], []
    settings = {"tasks": range(4)} if listed else {}
    est = PrivateMeanRegMTL(epsilon=None, **settings)
    est.fit({k: X for k, (X, _) in parts.items()}, {k: y for k, (_, y) in parts.items()})
    long = X[X[:, 0] != 2]
    same = PrivateMeanRegMTL(epsilon=None, tasks=range(4))
    same.fit(long[:, 1:], y[X[:, 0] != 2], task=long[:, 0].astype(int))
    assert est.tasks_.tolist() == [0, 1, 2, 3]
    assert_array_equal(est.coef_, same.coef_)
    predicted = est.predict({0: parts[0][0], 2: parts[2][0]})
    assert [len(p) for p in predicted.values()] == [10, 0]
    with pytest.raises(ValueError, match=r"\[5\] of X have no rows; drop them"):
        est.personalize({5: parts[2][0], 7: parts[0][0]}, {5: [], 7: parts[0][1]})
    if listed:
        with pytest.raises(
            ValueError, match=r"Not listed in tasks=, but in the data: \[9\]. Add .*drop"
        ):
            est.fit({0: parts[0][0], 9: parts[2][0]}, {0: parts[0][1], 9: []})


# ------------------------------------------------------------------ scikit-learn's own objects
LISTED = [
    MPMTLLowRank(0.01, epsilon=None, unseen_task="mean"),
    MPMTLLowRank(epsilon=3.0),
    PrivateMeanRegMTL(epsilon=3.0),
    PerTask(Ridge()),
]


def table_of_tasks(m=12, n=10, d=3, seed=0):
    """Sorted by task, the task in column 0; models around one."""
    rng = np.random.default_rng(seed)
    X, y, task = rows_of(rng, 1.0 + 0.2 * rng.normal(size=(m, d)), n)
    return np.column_stack([task, X]), y


def listing(est, m=12):
    est = clone(est).set_params(task_feature=0, tasks=list(range(m)))
    if "random_state" in est.get_params():
        est.set_params(random_state=0)
    return est


@pytest.mark.filterwarnings("ignore:This fold has all rows of some tasks")
@pytest.mark.parametrize("est", LISTED, ids=repr)
def test_folds_of_whole_tasks(est):
    X, y = table_of_tasks()
    for folds in (LeaveTasksOut(3, task_feature=0, tasks=range(12)), KFold(4)):
        predicted = cross_val_predict(listing(est), X, y, cv=folds)
        assert predicted.shape == y.shape and np.isfinite(predicted).all()
        if est is LISTED[0]:  # new tasks have the mean model, which is near all of theirs
            assert np.mean((predicted - y) ** 2) < 0.2 * np.var(y)


def test_a_fold_with_all_rows_of_a_task_is_reported():
    X, y = table_of_tasks()
    est = listing(LISTED[2])
    told = r"all rows of some tasks: \[\d+, \d+, \d+\].* use TaskStratifiedKFold"
    with pytest.warns(UserWarning, match=told):
        cross_val_score(est, X, y, cv=KFold(4))
    for folds in (
        TaskStratifiedKFold(3, task_feature=0),
        LeaveTasksOut(3, task_feature=0, tasks=range(12)),
        KFold(3, shuffle=True, random_state=0),  # no task is in one fold alone
    ):
        cross_val_score(est, X, y, cv=folds)  # warnings are errors here
    some = X[:, 0] > 2
    est.fit(X[some], y[some])
    assert len(est.predict(X)) == len(X)
    with pytest.warns(UserWarning, match=told):
        cross_val_score(FrozenEstimator(est), X, y, cv=KFold(4))
    est.personalize(X[~some], y[~some])
    cross_val_score(FrozenEstimator(est), X, y, cv=KFold(4))
