"""Levels of tasks around a pooled model: when they are looked for, what it costs, what is found."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skpmtl import PrivateMeanRegMTL, PrivateMeanRegMTLClassifier, load_billboard, save_billboard
from skpmtl.mean_regularized.billboard import MeanBillboard, PooledBillboard

pytestmark = pytest.mark.filterwarnings("ignore:The noise of this fit is reproducible")
M, D = 200, 3
A = np.array([1.0, -2.0, 0.5])


def rows(seed=0, n=8, spread=0.5, level=4.0):
    """Rows of M tasks with the same slopes, whose levels differ. -> X, y, task"""
    rng = np.random.default_rng(seed)
    task = np.repeat(np.arange(M), n)
    X = rng.normal(size=(len(task), D))
    levels = level + spread * np.random.default_rng(9).normal(size=M)
    return X, X @ A + levels[task] + 0.5 * rng.normal(size=len(task)), task


def made(cls=PrivateMeanRegMTL, **parameters):
    given = {"epsilon": 2.0, "delta": 1e-4, "tasks": range(M), "random_state": 0}
    if cls is PrivateMeanRegMTLClassifier:
        given["classes"] = [False, True]
    return cls(**{**given, **parameters})


# ------------------------------------------------------------------------------ what it costs


# ----------------------------------------------------------------- when they are looked for
@pytest.mark.parametrize(
    "given, reason",
    [
        ({"lam": 0.3}, "lam=0.3"),
        ({"clip_norm": 1.0}, "clip_norm=1.0"),
        ({"n_rounds": 3}, "n_rounds=3"),
        ({"ridge": 0.1}, "ridge="),
        ({"clusters": {k: k % 2 for k in range(M)}}, "clusters="),
        ({"relation": {k: [k % 3] for k in range(M)}}, "relation="),
        ({"task_weight": "samples"}, "task_weight='samples'"),
        ({"fit_intercept": False}, "no intercepts"),
        ({"epsilon": 0.05}, "too few tasks for the budget"),
    ],
)
def test_other_fits_have_free_levels_and_say_why(given, reason):
    X, y, task = rows()
    est, free = (made(levels=levels, **given).fit(X, y, task=task) for levels in ("auto", "free"))
    assert isinstance(est.billboard_, MeanBillboard)
    assert reason in est.privacy_.public_inputs["levels"]
    assert "levels" not in free.privacy_.public_inputs
    assert_array_equal(est.coef_, free.coef_)
    assert_array_equal(est.intercept_, free.intercept_)
    if "fit_intercept" not in given:
        with pytest.raises(ValueError, match=r'levels="pooled", but .*take levels="auto"'):
            made(levels="pooled", **given).fit(X, y, task=task)


def test_many_columns_of_few_tasks_have_free_levels():
    """Without a budget a pooled model of 10 tasks and 120 columns fits their noise."""
    X, y, task = rows()
    X = np.hstack([X, np.random.default_rng(3).normal(size=(len(X), 117))])
    some = task < 10
    exact = {
        levels: made(epsilon=None, levels=levels, tasks=range(10)).fit(X[some], y[some], task[some])
        for levels in ("auto", "free", "pooled")
    }
    assert_array_equal(exact["auto"].coef_, exact["free"].coef_)
    assert isinstance(exact["pooled"].billboard_, PooledBillboard)


# ------------------------------------------------------------------------------ what is found
def test_no_budget_is_not_worse_than_a_large_one():
    rng = np.random.default_rng(1)
    m, d, n = 500, 3, 3
    task = np.repeat(np.arange(m), n)
    slopes, levels = rng.normal(size=d) + 0.3 * rng.normal(size=(m, d)), rng.normal(size=m)
    X, new, its = rng.normal(size=(m * n, d)), rng.normal(size=(4 * m * n, d)), np.tile(task, 4)
    y = np.sum(X * slopes[task], axis=1) + levels[task] + rng.normal(size=m * n)
    truth, errors = np.sum(new * slopes[its], axis=1) + levels[its], []
    for epsilon in (None, 1e4):
        est = made(epsilon=epsilon, tasks=range(m)).fit(X, y, task=task)
        errors.append(np.mean((est.predict(new, task=its) - truth) ** 2))
    assert errors[0] < 1.03 * errors[1]


def test_pooled_model_is_found():
    X, y, task = rows(n=4)
    est = made(epsilon=8.0).fit(X, y, task=task)
    assert_allclose(est.mean_coef_, A, atol=0.15)
    assert est.level_ == est.mean_intercept_ == pytest.approx(4.0, abs=0.15)
    assert 0.25 < est.level_spread_ < 1.0  # it is .5; an error goes towards free levels
    free = made(levels="free", epsilon=8.0).fit(X, y, task=task)
    levels = 4.0 + 0.5 * np.random.default_rng(9).normal(size=M)
    assert np.std(est.intercept_ - levels) < np.std(free.intercept_ - levels)
    new, target, its = rows(seed=1)
    unseen = made(epsilon=8.0, unseen_task="mean").fit(X, y, task=task)
    predicted = unseen.predict(new, task=its + M)
    assert np.mean((predicted - target) ** 2) < 1.2 * (0.5**2 + 0.5**2)


@pytest.mark.parametrize("shift, scale", [(50.0, 1.0), (0.0, 50.0)])
def test_far_and_large_columns_leave_others_their_slopes(shift, scale):
    """A column that sets the curvature of a task must not hold the others where they are."""
    X, y, task = rows()
    more = shift + scale * np.random.default_rng(5).normal(size=(len(X), 1))
    est = made(epsilon=30.0).fit(np.hstack([X, more]), y, task=task)
    assert_allclose(est.mean_coef_[:D], A, atol=0.2)


# ---------------------------------------------------------------------------------- billboards
@pytest.mark.parametrize("cls", [PrivateMeanRegMTL, PrivateMeanRegMTLClassifier])
def test_models_follow_from_the_billboard(cls, tmp_path):
    X, y, task = rows()
    y = y > 4 if cls is PrivateMeanRegMTLClassifier else y
    est = made(cls).fit(X, y, task=task)
    assert isinstance(est.billboard_, PooledBillboard)
    save_billboard(est, tmp_path / "board")
    other = load_billboard(tmp_path / "board").personalize(X, y, task=task)
    assert_allclose(other.coef_, est.coef_, rtol=1e-12)
    assert_allclose(other.intercept_, est.intercept_, rtol=1e-12)
    for name in ("mean_coef_", "mean_intercept_", "level_", "level_spread_"):
        assert_array_equal(getattr(other, name), getattr(est, name))
    given = {"classes": est.classes_} if cls is PrivateMeanRegMTLClassifier else {}
    from_board = cls.from_billboard(est.billboard_, **given).personalize(X, y, task=task)
    assert_allclose(from_board.coef_, est.coef_, rtol=1e-12)
