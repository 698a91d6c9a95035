"""Behaviour of the model-protected estimators: budgets, shapes, structure, errors."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

from skpmtl import (
    MPMTLGroupSparse,
    MPMTLGroupSparseClassifier,
    MPMTLLowRank,
    MPMTLLowRankClassifier,
)
from skpmtl.datasets.generators import make_group_sparse_tasks, make_low_rank_tasks
from tests.helpers import plain_reference as plain

REGRESSORS = [MPMTLLowRank, MPMTLGroupSparse]
CLASSIFIERS = [MPMTLLowRankClassifier, MPMTLGroupSparseClassifier]
ESTIMATORS = REGRESSORS + CLASSIFIERS
# epsilon=None with a number for alpha is the exact solver, else a noise-free prior.
WAYS = {
    "exact": {"alpha": 0.1, "epsilon": None},
    "noise-free": {"epsilon": None, "algorithm": "empirical-bayes"},
    "empirical-bayes": {"epsilon": 2.0},
}
SEEDED = "ignore:The noise of this fit is reproducible:skpmtl.privacy.PrivacyLeakWarning"


def problem(labels=False, sizes=(9, 14, 6, 20, 11, 8), d=5, seed=0):
    X, y, task = plain.make_rows(list(sizes), d, seed, labels=labels)
    return X, y, task


def fitted(cls, X, y, task=None, **parameters):
    tasks = sorted(set(task.tolist())) if task is not None else "auto"
    parameters = {"tasks": tasks, **plain.listed_classes(cls, y), **parameters}
    return cls(**parameters).fit(X, y, task=task)


# ------------------------------------------------------------------------- combinations


# -------------------------------------------------------------------------- personalize
@pytest.mark.parametrize("penalty_dead", [True, False])
def test_personalize_of_an_empty_fit(penalty_dead):
    """Exact fit at or above alpha_max: the shape is zero and new models are intercepts."""
    X, y, task = problem()
    model = fitted(MPMTLLowRank, X, y, task, epsilon=None, alpha=1e6 if penalty_dead else 1e-3)
    model.personalize(X[task == 1], y[task == 1], task=np.full(14, 77))
    assert model.coef_[-1].any() != penalty_dead
    if penalty_dead:
        assert model.intercept_[-1] == pytest.approx(y[task == 1].mean())


# ---------------------------------------------------------------------- forms of input
@pytest.mark.filterwarnings(SEEDED)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("cls", ESTIMATORS)
def test_csr_equals_dense(cls, way):
    X, y, task = problem(labels=cls in CLASSIFIERS)
    X = np.where(np.abs(X) > 0.5, X, 0.0)
    alpha = 0.05 if way == "exact" else "auto"
    parameters = {**WAYS[way], "alpha": alpha, "tol": 1e-11, "random_state": 3}
    dense = fitted(cls, X, y, task, **parameters)
    thin = fitted(cls, sparse.csr_matrix(X), y, task, **parameters)
    atol = 1e-5 if way == "exact" else 1e-7
    np.testing.assert_allclose(thin.coef_, dense.coef_, atol=atol)
    np.testing.assert_allclose(thin.intercept_, dense.intercept_, atol=atol)
    predicted = thin.predict(sparse.csr_matrix(X), task=task), dense.predict(X, task=task)
    np.testing.assert_allclose(*predicted, atol=100 * atol)


@pytest.mark.parametrize("way", ["empirical-bayes", "noise-free", "exact"])
@pytest.mark.parametrize("cls", ESTIMATORS)
def test_small_shapes(cls, way):
    """One feature; tasks of two rows; more features than rows and tasks together."""
    for sizes, d in (((4, 3), 1), ((2, 2, 2), 3), ((2, 3), 20)):
        X, y, task = problem(labels=cls in CLASSIFIERS, sizes=sizes, d=d)
        model = fitted(cls, X, y, task, **WAYS[way])
        assert np.isfinite(model.coef_).all()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("cls", REGRESSORS)
def test_degenerate_tasks(cls, way):
    """A task of one row, constant targets, constant features, features that are all zero."""
    X, y, task = problem(sizes=(1, 6, 7, 8, 9))
    y[task == 1] = 3.0
    X[task == 2] = 0.1  # not exact in binary: its mean leaves rounding errors
    X[task == 3] = 0.0
    model = fitted(cls, X, y, task, levels="free", **WAYS[way])
    assert np.isfinite(model.coef_).all() and np.isfinite(model.intercept_).all()
    assert np.abs(model.coef_).max() < 10  # nothing blows up where there is nothing to learn
    assert np.abs(model.coef_[3]).max() <= 1e-8
    assert model.intercept_[3] == pytest.approx(y[task == 3].mean(), abs=1e-8)


# ------------------------------------------------------------------- report and exports


# ---------------------------------------------------------------------- what methods do
def test_noise_free_prior_finds_the_structure():
    X, y, task, Xt, yt, tt = make_low_rank_tasks(60, 12, 12, n_test=40, random_state=0)
    low = fitted(MPMTLLowRank, X, y, task, epsilon=None, algorithm="empirical-bayes")
    values = np.linalg.eigvalsh(low.billboard_.moment)[::-1]
    assert values[:4].sum() > 0.97 and values.sum() == pytest.approx(1)  # four blocks
    alone = [
        fitted(
            MPMTLLowRank,
            X[task == k],
            y[task == k],
            task[task == k],
            epsilon=None,
            algorithm="empirical-bayes",
        ).score(Xt[tt == k], yt[tt == k], task=tt[tt == k])
        for k in range(0, 60, 10)
    ]
    assert low.score(Xt, yt, task=tt) > np.mean(alone) + 0.05
    X, y, task = make_group_sparse_tasks(60, 12, 12, random_state=0)
    group = fitted(MPMTLGroupSparse, X, y, task, epsilon=None, algorithm="empirical-bayes")
    assert group.billboard_.moment[:4].sum() > 0.95


@pytest.mark.filterwarnings(SEEDED)
def test_more_budget_is_better_and_nothing_is_local():
    X, y, task, Xt, yt, tt = make_low_rank_tasks(150, 12, 12, n_test=40, random_state=1)
    scores = [
        fitted(MPMTLLowRank, X, y, task, epsilon=e, delta=1e-3, random_state=0).score(
            Xt, yt, task=tt
        )
        for e in (0.01, 3.0, 100.0)
    ]
    free = fitted(MPMTLLowRank, X, y, task, epsilon=None, algorithm="empirical-bayes")
    assert scores[0] < scores[1] < scores[2] <= free.score(Xt, yt, task=tt) + 0.01


@pytest.mark.filterwarnings(SEEDED)
@pytest.mark.parametrize("estimator", [MPMTLLowRank, MPMTLGroupSparse])
def test_the_mean_model_has_no_unit_with_a_range(estimator):
    """Unseen tasks: shifted and scaled with its range, y gives the same model."""
    X, y, task, *_ = make_low_rank_tasks(80, 12, 6, n_test=2, random_state=3)
    y = y + 3.0
    how = {"unseen_task": "mean", "random_state": 0, "epsilon": 20.0, "delta": 1e-3}
    low, high = y.min() - 1.0, y.max() + 1.0
    one = fitted(estimator, X, y, task, target_range=(low, high), **how)
    for unit, shift in ((1.0, 1e4), (1e3, 0.0), (1e-3, -5.0)):
        place = unit * low + shift, unit * high + shift
        other = fitted(estimator, X, unit * y + shift, task, target_range=place, **how)
        np.testing.assert_allclose(other.mean_coef_ / unit, one.mean_coef_, rtol=1e-4, atol=1e-6)
        wanted = unit * one.mean_intercept_ + shift
        assert other.mean_intercept_ == pytest.approx(wanted, rel=1e-6, abs=1e-4 * unit)
    assert one.privacy_.public_inputs["target_range"] == (low, high)
    mean = y.mean()
    far = fitted(estimator, X, y + 1e4, task, **how)  # without it the intercept is clipped
    assert abs(one.mean_intercept_ - mean) < 1.0 < abs(far.mean_intercept_ - mean - 1e4)
    with pytest.raises(ValueError, match="low < high"):
        fitted(estimator, X, y, task, target_range=(1.0, 0.0))


# ------------------------------------------------------------------------------- errors


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("cls", CLASSIFIERS)
def test_tasks_with_one_class(cls, way):
    """w = 0 and the log-odds of n rows of the class and one that is shared; nothing is said."""
    X, y, task = problem(labels=True)
    settings = {"random_state": 0, "levels": "free", "uncertainty": False, **WAYS[way]}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message="The noise of this fit is reproducible")
        before = fitted(cls, X, y, task, **settings)
        y[task == 3], y[task == 5] = 1.0, -1.0
        model = fitted(cls, X, y, task, classes=[-1.0, 1.0], **settings)
    assert_allclose(model.coef_[[3, 5]], 0.0, atol=1e-6)
    n = np.bincount(task)[[3, 5]]
    assert_allclose(model.intercept_[[3, 5]], [1, -1] * np.log(2 * n + 1), rtol=1e-6)
    assert model.privacy_.text(None) == before.privacy_.text(None)
    assert np.abs(model.coef_[[0, 1, 2, 4]]).max(axis=1).all()
    row = task == 3
    model.personalize(X[row], y[row], task=np.full(row.sum(), 99))
    assert_allclose(model.predict_proba(X[row], task=task[row])[:, 0], 0.5 / (n[0] + 1), rtol=1e-5)
    assert_allclose(model.coef_[-1], 0.0, atol=1e-6)


@pytest.mark.parametrize("snr", [-0.5, 0.0, 0.5, 2.5])
def test_votes_know_the_scale_of_the_models(snr):
    """Whatever it is: a prior of every task would pull their mean towards its centre."""
    rng, (m, n, d) = np.random.default_rng(0), (60, 40, 4)
    W = 10.0 ** (snr / 2) * rng.normal(size=(m, d)) / np.sqrt(d)
    X, task = rng.normal(size=(m * n, d)), np.repeat(np.arange(m), n)
    y = np.einsum("ij,ij->i", X, W[task]) + rng.normal(size=m * n)
    found = MPMTLLowRank(epsilon=None).fit(X, y, task=task).billboard_.snr_centre
    assert found == pytest.approx(snr, abs=0.13)
