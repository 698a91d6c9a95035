"""Behaviour of the model-protected estimators: new tasks, units of the target, wide rows."""

import numpy as np
import pytest

from skpmtl import (
    MPMTLGroupSparse,
    MPMTLLowRank,
)
from skpmtl.datasets.generators import make_low_rank_tasks
from tests.helpers.data import make_rows

REGRESSORS = [MPMTLLowRank, MPMTLGroupSparse]
WAYS = {"noise-free": {"epsilon": None}, "private": {"epsilon": 50.0, "random_state": 0}}


def fitted(cls, X, y, task, **parameters):
    return cls(tasks=np.unique(task), **parameters).fit(X, y, task=task)


@pytest.mark.parametrize("penalty_dead", [True, False])
def test_personalize_of_an_empty_fit(penalty_dead):
    """Exact fit at or above alpha_max: the shape is zero and new models are intercepts."""
    X, y, task = make_rows([9, 14, 6, 20, 11, 8], 5)
    model = fitted(MPMTLLowRank, X, y, task, epsilon=None, alpha=1e6 if penalty_dead else 1e-3)
    model.personalize(X[task == 1], y[task == 1], task=np.full(14, 77))
    assert model.coef_[-1].any() != penalty_dead
    if penalty_dead:
        assert model.intercept_[-1] == pytest.approx(y[task == 1].mean())


@pytest.mark.parametrize(
    "way, shifted, scaled", [("noise-free", 1e-3, 1e-9), ("private", 0.1, 1e-2)]
)
@pytest.mark.parametrize("cls", REGRESSORS)
def test_models_follow_the_unit_of_the_target(cls, way, shifted, scaled):
    """Up to bins of the place, which a shift moves, and to the same noise in other bins."""
    X, y, task = make_low_rank_tasks(80, 12, 6, random_state=3)
    y += 3.0
    one = fitted(cls, X, y, task, unseen_task="mean", **WAYS[way])
    size = np.abs(one.coef_).max()
    for unit, shift, close in ((1 / 1024, 0.0, scaled), (1.0, 1e4, shifted)):
        other = fitted(cls, X, unit * y + shift, task, unseen_task="mean", **WAYS[way])
        np.testing.assert_allclose(other.coef_ / unit, one.coef_, atol=close * size)
        level = (other.mean_intercept_ - shift) / unit
        assert level == pytest.approx(one.mean_intercept_, abs=close * size)


def test_wide_exact_fits_keep_no_square_of_the_columns():
    rng = np.random.default_rng(0)
    m, n, d = 4, 5, 3000
    X, task = rng.standard_normal((m * n, d)), np.repeat(np.arange(m), n)
    y = np.sum(X[:, :3], axis=1) + rng.standard_normal(m * n)
    est = MPMTLLowRank(0.05, epsilon=None, tol=1e-10).fit(X, y, task=task)
    assert est.billboard_.shape.size <= m * d
    there = MPMTLLowRank.from_billboard(est.export_billboard()).personalize(X, y, task=task)
    np.testing.assert_allclose(there.coef_, est.coef_, atol=1e-6 * np.abs(est.coef_).max())
