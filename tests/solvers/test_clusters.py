"""Clustered tasks against RMTL, MALSAR, cvxpy and closed forms."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize as scipy_minimize

from skpmtl import ClusteredMTL, MPMTLLowRank
from skpmtl.solvers.clusters import ClusterPenalty
from tests.helpers.shelf import TASK, X, Y


def test_optimum_of_cvxpy():
    cp = pytest.importorskip("cvxpy")
    m, d, alpha, ridge, k = 8, X.shape[1], 0.6, 0.1, 2
    est = ClusteredMTL(k, alpha=alpha, ridge=ridge, tol=1e-9, epsilon=None).fit(X, Y, task=TASK)
    W, M, b = cp.Variable((m, d)), cp.Variable((m, m), PSD=True), cp.Variable(m)
    inside = ridge * np.eye(m) + alpha * M
    value = sum(cp.matrix_frac(W[:, j], inside) for j in range(d))
    value *= ridge * (alpha + ridge) / 2
    for t in range(m):
        mine = TASK == t
        value += cp.sum_squares(Y[mine] - X[mine] @ W[t] - b[t]) / (2 * mine.sum())
    within = [cp.trace(M) == k, np.eye(m) - M >> 0]
    optimum = cp.Problem(cp.Minimize(value), within).solve(solver=cp.CLARABEL)
    assert est.objective_ == pytest.approx(optimum, rel=1e-6)
    assert est.dual_gap_ <= 1e-9 * est.objective_
    M = est.cluster_matrix_
    assert_allclose(np.trace(M), k, rtol=1e-6)
    assert np.linalg.eigvalsh(M)[0] > -1e-9 and np.linalg.eigvalsh(M)[-1] < 1 + 1e-9
    rest = est.coef_.T @ np.linalg.solve(ridge * np.eye(m) + alpha * M, est.coef_)
    penalty = ridge * (alpha + ridge) / 2 * np.trace(rest)
    assert_allclose(ClusterPenalty(alpha, ridge, k).value(est.coef_), penalty, rtol=1e-9)


@pytest.mark.parametrize("k", [1, 2, 4, 7])
def test_penalty_prox_and_conjugate(k):
    rng = np.random.default_rng(k)
    penalty, t = ClusterPenalty(0.7, 0.2, k), 0.6
    V = rng.standard_normal((6, 4)) * np.array([3.0, 1.0, 0.3, 0.1])
    W, value = penalty.prox(V, t)
    assert value == pytest.approx(penalty.value(W), rel=1e-12)

    # A solver that knows the value alone finds no better point.
    def objective(w):
        w = w.reshape(V.shape)
        return 0.5 * np.sum((w - V) ** 2) + t * penalty.value(w)

    found = scipy_minimize(objective, V.ravel(), method="L-BFGS-B", options={"maxiter": 500})
    assert objective(W.ravel()) <= found.fun + 1e-10
    assert objective(W.ravel()) == pytest.approx(found.fun, rel=1e-6)
    # (V - W) / t is a gradient, where the inequality of Fenchel is an equality.
    G = (V - W) / t
    assert penalty.value(W) + penalty.conjugate(G, 1.0) == pytest.approx(np.vdot(W, G), rel=1e-10)
    for _ in range(20):
        A, B = rng.standard_normal((2, 6, 4))
        assert penalty.value(A) + penalty.conjugate(B, 1.0) >= np.vdot(A, B)


def test_as_many_groups_as_features_leave_the_ridge():
    est = ClusteredMTL(5, alpha=3.0, ridge=0.3, tol=1e-10, epsilon=None).fit(X, Y, task=TASK)
    alone = MPMTLLowRank(0.0, ridge=0.3, epsilon=None, tol=1e-10).fit(X, Y, task=TASK)
    assert est.objective_ == pytest.approx(alone.objective_, rel=1e-9)
    assert_allclose(est.coef_, alone.coef_, atol=1e-4)


def test_groups_are_found_and_new_tasks_join_them():
    rng = np.random.default_rng(5)
    m, n, d = 40, 12, 10
    centres = 2.0 * rng.standard_normal((3, d))
    group = rng.integers(0, 3, m)
    W = centres[group] + 0.2 * rng.standard_normal((m, d))
    task = np.repeat(np.arange(m), n)
    rows = rng.standard_normal((m * n, d))
    y = np.einsum("ij,ij->i", rows, W[task]) + 0.5 * rng.standard_normal(m * n)
    est = ClusteredMTL(3, alpha=1.0, ridge=0.02, epsilon=None).fit(rows, y, task=task)
    near = est.cluster_matrix_
    same = np.equal.outer(group, group)
    assert near[same].min() > np.abs(near[~same]).max()
    alone = MPMTLLowRank(0.0, ridge=0.02, epsilon=None).fit(rows, y, task=task)
    error, without = (np.sum((e.coef_ - W) ** 2) for e in (est, alone))
    assert error < 0.6 * without
    few = ClusteredMTL(3, alpha=1.0, ridge=0.02, epsilon=None).fit(rows[n:], y[n:], task=task[n:])
    few.personalize(rows[:n], y[:n], task=task[:n])
    assert np.sum((few.coef_[0] - W[0]) ** 2) < np.sum((alone.coef_[0] - W[0]) ** 2)


def test_columns_of_different_size_take_no_longer():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((900, 15)) * np.logspace(-2, 2, 15)
    y = rows @ rng.standard_normal(15) + rng.standard_normal(900)
    est = ClusteredMTL(3, alpha=1.0, ridge=0.1, epsilon=None).fit(
        rows, y, task=np.repeat(np.arange(60), 15)
    )
    assert est.n_iter_ < 100
