"""Models of a shared part and one of their own, against MALSAR, cvxpy and what must hold."""

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
from skpmtl.datasets import make_low_rank_tasks
from skpmtl.metrics import nmse
from tests.helpers.shelf import LABEL, TASK, X, Y, malsar

PAIRS = [
    (cls, outliers) for cls in (MPMTLLowRank, MPMTLGroupSparse) for outliers in ("tasks", "entries")
]
CLASSIFIERS = {MPMTLLowRank: MPMTLLowRankClassifier, MPMTLGroupSparse: MPMTLGroupSparseClassifier}


def shared_norm(cls, W):
    low_rank = cls in (MPMTLLowRank, MPMTLLowRankClassifier)
    return np.linalg.norm(W, "nuc") if low_rank else np.linalg.norm(W, axis=0).sum()


@pytest.mark.parametrize(
    ("cls", "function"), [(MPMTLLowRank, "Least_RMTL"), (MPMTLGroupSparse, "Least_rMTFL")]
)
def test_optimum_of_malsar(cls, function):
    # Their squares have no factor 1/2.
    rho1, rho2, value, _ = malsar(function)
    est = cls(
        rho1 / 2,
        outliers="tasks",
        outlier_alpha=rho2 / 2,
        epsilon=None,
        task_weight="samples",
        fit_intercept=False,
        tol=1e-10,
    )
    est.fit(X, Y, task=TASK)
    assert 2 * est.objective_ == pytest.approx(value, rel=1e-9)
    assert est.outlier_.argmax() == 6


@pytest.mark.parametrize("ridge", [0.0, 0.3])
@pytest.mark.parametrize(("cls", "outliers"), PAIRS)
@pytest.mark.spread(4)
def test_optimum_of_cvxpy(cls, outliers, ridge):
    cp = pytest.importorskip("cvxpy")
    m, d = 8, X.shape[1]
    est = cls(0.25, outliers=outliers, outlier_alpha=0.15, epsilon=None, ridge=ridge, tol=1e-9).fit(
        X, Y, task=TASK
    )
    P, Q, b = cp.Variable((m, d)), cp.Variable((m, d)), cp.Variable(m)
    shared = cp.normNuc(P) if cls is MPMTLLowRank else cp.sum(cp.norm(P, 2, axis=0))
    own = cp.sum(cp.norm(Q, 2, axis=1)) if outliers == "tasks" else cp.sum(cp.abs(Q))
    value = 0.25 * shared + 0.15 * own + ridge / 2 * cp.sum_squares(P + Q)
    for k in range(m):
        mine = TASK == k
        residuals = Y[mine] - X[mine] @ (P + Q)[k] - b[k]
        value += cp.sum_squares(residuals) / (2 * mine.sum())
    optimum = cp.Problem(cp.Minimize(value)).solve(solver=cp.CLARABEL)
    assert est.objective_ == pytest.approx(optimum, rel=1e-6)
    assert est.objective_ - est.dual_gap_ <= optimum * (1 + 1e-7)


@pytest.mark.parametrize(("cls", "outliers"), PAIRS)
@pytest.mark.parametrize("classes", [0, 2, 3])
@pytest.mark.spread(6)
def test_objective_gap_and_new_tasks(cls, outliers, classes):
    thirds = np.concatenate(
        [3 * Y[TASK == k].argsort().argsort() // (TASK == k).sum() for k in range(8)]
    )  # all classes in every task
    y = [Y, None, LABEL, thirds][classes]
    cls = CLASSIFIERS[cls] if classes else cls
    parameters = {"outliers": outliers, "epsilon": None, "ridge": 0.05}
    strengths = {"alpha": 0.15, "outlier_alpha": 0.08}
    est = cls(**parameters, **strengths, tol=1e-7).fit(X, y, task=TASK)
    rough = cls(**parameters, **strengths, tol=1e-2).fit(X, y, task=TASK)
    W, Q = est.coef_.reshape(-1, X.shape[1]), est.outlier_coef_
    assert_allclose(est.outlier_, np.linalg.norm(Q.reshape(8, -1), axis=1))
    whole = Q.reshape(8, -1) if outliers == "tasks" else Q.ravel()[:, None]
    penalty = (
        0.15 * shared_norm(cls, W - Q.reshape(W.shape)) + 0.08 * np.linalg.norm(whole, axis=1).sum()
    )
    z = np.einsum("ij,i...j->i...", X, est.coef_[TASK]) + est.intercept_[TASK]
    if not classes:
        losses = 0.5 * (y - z) ** 2
    elif classes == 2:
        losses = np.logaddexp(0.0, -y * z)
    else:
        losses = np.logaddexp.reduce(z, axis=1) - z[np.arange(len(y)), y]
    losses = losses @ (1.0 / np.bincount(TASK)[TASK])
    value = losses + penalty + 0.025 * np.vdot(W, W)
    assert est.objective_ == pytest.approx(value, rel=1e-9)
    assert est.dual_gap_ <= 1e-7 * est.objective_
    # The gap of a rough fit covers what it misses.
    assert rough.objective_ - rough.dual_gap_ <= est.objective_ <= rough.objective_
    again = est.coef_.copy()
    part = np.isin(TASK, [2, 6])
    est.personalize(X[part], y[part], task=TASK[part])
    assert_allclose(est.coef_, again, atol=2e-3 * np.abs(again).max())


def test_outliers_leave_the_shared_part_alone():
    # "auto" was settled on other tables: twice as wide coefficients, other sizes.
    X, y, task, W = make_low_rank_tasks(
        n_tasks=60, n_samples=50, n_features=12, coef=True, random_state=3
    )
    odd = np.arange(6)
    rng = np.random.default_rng(0)
    y = y.copy()
    mine = np.isin(task, odd)
    off = rng.standard_normal((6, 12)) * np.linalg.norm(W, axis=1).mean()
    noise = 0.1 * rng.standard_normal(mine.sum())
    y[mine] = np.einsum("ij,ij->i", X[mine], off[task[mine]]) + noise
    train = np.arange(len(y)) % 2 == 0

    def error(**parameters):
        est = MPMTLLowRank(algorithm="proximal", epsilon=None, **parameters)
        est.fit(X[train], y[train], task=task[train])
        return nmse(y[~train], est.predict(X[~train], task=task[~train])), est

    plain, robust = error()[0], error(outliers="tasks")
    assert robust[0] < plain
    assert set(np.argsort(robust[1].outlier_)[-6:]) == set(odd)


def test_parts_follow_the_tasks():
    est = MPMTLLowRank(0.2, outliers="tasks", outlier_alpha=0.1, epsilon=None, tasks=range(10))
    est.fit(X, Y, task=TASK)
    assert est.outlier_.shape == (10,) and not est.outlier_[8:].any()
    before = est.outlier_.copy()
    est.personalize(X[:12], Y[:12], task=np.full(12, -1))
    assert np.isnan(est.outlier_[0])
    assert_allclose(est.outlier_[1:], before)
    warm = est.set_params(warm_start=True, tasks="auto").fit(X, Y, task=TASK)
    again = warm.fit(X, Y, task=TASK)
    assert again.n_iter_ <= 5  # short steps of splitting start a little off the weights


@pytest.mark.parametrize("seed", [12, 23, 36, 49])
def test_parts_do_not_grow_in_opposite_directions(seed):
    # Their sum, and so the loss and the steps, would not see it.
    rng = np.random.default_rng(seed)
    m, d = rng.integers(2, 11), rng.integers(1, 4)
    task = np.repeat(np.arange(m), rng.integers(2, 18, m))
    rows = rng.standard_normal((len(task), d)) * 10.0 ** rng.uniform(-1.5, 1.5, d)
    y = np.einsum("ij,ij->i", rows, rng.standard_normal((m, d))[task])
    y += y.std() * rng.standard_normal(len(y))
    for cls, outliers in PAIRS:
        alpha, beta = 10.0 ** rng.uniform(-2, 0.5, 2)
        est = cls(alpha, outliers=outliers, outlier_alpha=beta, epsilon=None, tol=1e-8)
        est.fit(rows, y, task=task)
        assert est.dual_gap_ <= 1e-8 * est.objective_
        assert np.abs(est.outlier_coef_).max() < 1e3


@pytest.mark.parametrize("kind", ["tasks", "entries"])
def test_small_strengths_take_few_steps(kind):
    """What is weighed between the parts moves by steps of the size of the strengths."""
    rng = np.random.default_rng(0)
    task, rows = np.repeat(np.arange(20), 15), rng.standard_normal((300, 12))
    y = np.einsum("ij,ij->i", rows, rng.standard_normal((20, 12))[task])
    y += rng.standard_normal(300)
    for form, steps in ((np.asarray, 600), (sparse.csr_array, 700)):
        est = MPMTLLowRank(1e-4, outliers=kind, outlier_alpha=1e-4, epsilon=None, max_iter=steps)
        est.fit(form(rows), y, task=task)  # 4,000 steps left a gap of .1
        assert est.dual_gap_ <= 1e-6 * est.objective_


@pytest.mark.parametrize("cls", [MPMTLLowRankClassifier, MPMTLGroupSparseClassifier])
def test_single_weights_of_several_classes_take_few_steps(cls):
    # They do not add up to zero over the classes, as those of norms of whole tasks do.
    thirds = np.digitize(Y, np.quantile(Y, [1 / 3, 2 / 3]))
    est = cls(0.1, epsilon=None, outliers="entries", outlier_alpha=0.05, tol=1e-8)
    assert est.fit(X, thirds, task=TASK).n_iter_ < 300
