"""Posteriors of tasks: against scikit-learn, closed forms, invariances, draws from the prior."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.stats import t as student_t

import skpmtl
from skpmtl import DPMetaInit, MPMTLLowRank, PrivateMeanRegMTL, PrivateMTL
from skpmtl.reproduction import LocalOnly

RANGE = (-15.0, 15.0)
METHODS = [
    PrivateMTL(epsilon=None, target_range=RANGE),
    PrivateMTL(epsilon=None, levels="free"),
    MPMTLLowRank(epsilon=None, levels="free"),
    PrivateMeanRegMTL(epsilon=None),
    DPMetaInit(privacy=None),
    LocalOnly(),
]


def tasks_of(m=30, d=4, spread=0.5, noise=1.0, seed=0, sizes=(1, 15), test=20):
    """Rows, and rows to predict, of models around a common one. -> (X, y, task), (X, y, task)"""
    rng = np.random.default_rng(seed)
    n = rng.integers(*sizes, m) + test
    task = np.repeat(np.arange(m), n)
    W, b = 1.0 + spread * rng.normal(size=(m, d)), spread * rng.normal(size=m)
    X = rng.normal(size=(len(task), d))
    y = np.einsum("ij,ij->i", X, W[task]) + b[task] + noise * rng.normal(size=len(task))
    held = np.concatenate([np.arange(k) < test for k in n])
    return (X[~held], y[~held], task[~held]), (X[held], y[held], task[held])


def fit(est, X, y, task, **given):
    est = est.__sklearn_clone__().set_params(uncertainty=True)
    seed = {"random_state": 0} if "random_state" in est.get_params() else {}
    return est.set_params(tasks=np.unique(task), **seed).fit(X, y, task=task, **given)


# -------------------------------------------------------------------------- coverage
@pytest.mark.parametrize(
    "est", [METHODS[0], METHODS[1], METHODS[3], METHODS[5]], ids=["levels", "free", "mean", "alone"]
)
def test_intervals_cover(est):
    """Of draws from a prior that the methods know: .9 within .05, and tasks of a few rows too."""
    hits, few = [], []
    for seed in range(3):
        (X, y, task), (Z, v, of) = tasks_of(m=60, seed=seed, sizes=(2, 25), test=10)
        low, high = fit(est, X, y, task).predict_interval(Z, task=of).T
        hits.append((low <= v) & (v <= high))
        few.append(hits[-1][np.bincount(task)[of] <= 5])
    assert 0.87 < np.mean(np.concatenate(hits)) < 0.96
    assert np.mean(np.concatenate(few)) > 0.85


def test_intervals_cover_with_fewer_rows_than_columns():
    """Around a plane that all tasks share, whose scale 5 rows of a task hardly tell."""
    rng, m, d = np.random.default_rng(0), 200, 20
    W = 1.2 * rng.normal(size=(m, 2)) @ np.linalg.qr(rng.normal(size=(d, 2)))[0].T
    task, of = np.repeat(np.arange(m), 5), np.repeat(np.arange(m), 10)
    X, Z = rng.normal(size=(len(task), d)), rng.normal(size=(len(of), d))
    y, v = (
        np.einsum("ij,ij->i", rows, W[k]) + rng.normal(size=len(k))
        for rows, k in ((X, task), (Z, of))
    )
    low, high = fit(PrivateMTL(epsilon=None), X, y, task).predict_interval(Z, task=of).T
    assert 0.85 < np.mean((low <= v) & (v <= high)) < 0.97


# ------------------------------------------------------------------------------ forms
def test_interval_is_that_of_a_t_distribution():
    (X, y, task), (Z, _, of) = tasks_of(m=6, sizes=(4, 9), test=3)
    est = fit(METHODS[1], X, y, task)
    mean, std = est.predict(Z, task=of, return_std=True)
    dof = est.dof_[of]
    for coverage in (0.5, 0.99):
        reach = student_t.ppf(0.5 + 0.5 * coverage, dof) * np.sqrt((dof - 2.0) / dof) * std
        interval = est.predict_interval(Z, task=of, coverage=coverage)
        assert_allclose(interval, np.stack([mean - reach, mean + reach], axis=1), rtol=1e-12)
    x, cov = np.column_stack([Z, np.ones(len(Z))]), est.covariance_[of]
    variance = np.einsum("ni,nij,nj->n", x, cov, x) + est.noise_variance_[of]
    assert_allclose(std, np.sqrt(variance), rtol=1e-12)


def test_forms_of_input():
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(9, 3)), rng.normal(size=(9, 4))
    task, row = np.repeat(np.arange(4), 9), np.tile(np.arange(9), 4)
    known = {"uncertainty": True, "tasks": range(4)}
    long = LocalOnly(**known).fit(X[row], Y.T.ravel(), task=task)
    expected = long.predict_interval(X[row], task=task)
    wide = LocalOnly(uncertainty=True).fit(X, Y)
    assert_allclose(wide.predict_interval(X), expected.reshape(4, 9, 2).swapaxes(0, 1))
    std = wide.predict(X, return_std=True)[1]
    assert_allclose(std, long.predict(X[row], task=task, return_std=True)[1].reshape(4, 9).T)
    parts = {k: X for k in range(4)}
    mapped = LocalOnly(**known).fit(parts, {k: Y[:, k] for k in range(4)})
    assert_allclose(mapped.predict_interval(parts)[2], expected[18:27])
    assert_allclose(mapped.predict(parts, return_std=True)[1][2], std[:, 2])
    column = LocalOnly(**known, task_feature=0)
    column.fit(np.column_stack([task, X[row]]), Y.T.ravel())
    assert_allclose(column.predict_interval(np.column_stack([task, X[row]])), expected)
    for data in (sparse.csr_matrix(X[row]), X[row].astype(np.float32)):
        est = LocalOnly(**known).fit(data, Y.T.ravel(), task=task)
        assert_allclose(est.predict_interval(data, task=task), expected, rtol=1e-5)


# ----------------------------------------------------------------- without rows, or posterior
def test_tasks_without_rows_and_without_a_range_have_no_width():
    (X, y, task), _ = tasks_of(m=3, sizes=(1, 9))
    known = {"uncertainty": True, "tasks": range(4)}
    est = LocalOnly(**known).fit(X, y, task=task)
    with pytest.warns(UserWarning, match="3 predictions have an infinite") as caught:
        std = est.predict(X[:4], task=[0, 3, 3, 3], return_std=True)[1]
    assert len(caught) == 1
    assert_array_equal(np.isinf(std), [False, True, True, True])
    with pytest.warns(UserWarning, match="infinite"):
        assert_array_equal(est.predict_interval(X[:1], task=[3]), [[-np.inf, np.inf]])


def test_what_to_do_where_nothing_was_kept():
    (X, y, task), _ = tasks_of(m=3)
    with pytest.raises(ValueError, match="pass uncertainty=True and fit again, or personalize"):
        LocalOnly(tasks=range(3)).fit(X, y, task=task).predict(X, task=task, return_std=True)
    exact = skpmtl.ClusteredMTL(2, alpha=1.0, epsilon=None).fit(X, y, task=task)
    with pytest.raises(ValueError, match="ClusteredMTL keeps no posterior.*uncertainty="):
        exact.predict_interval(X, task=task)


# ------------------------------------------------------------------------- bad input
@pytest.mark.parametrize("coverage", [0.0, 1.0, 1.5, -0.1, np.nan, "0.9", None])
def test_coverage_is_a_probability(coverage):
    (X, y, task), _ = tasks_of(m=3)
    est = LocalOnly(uncertainty=True, tasks=range(3)).fit(X, y, task=task)
    with pytest.raises(ValueError, match=r"coverage=.* in \(0, 1\)"):
        est.predict_interval(X, task=task, coverage=coverage)
