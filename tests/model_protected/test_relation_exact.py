"""Exact fits with covariates: the penalty is on residuals of the fit by covariates."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skpmtl import (
    MPMTLGroupSparse,
    MPMTLGroupSparseClassifier,
    MPMTLLowRank,
    MPMTLLowRankClassifier,
)
from tests.helpers.data import covariates, rows_of

M, N, D = 16, 12, 4
HELD = 1e-4


def related(seed=0, m=M):
    """Deviations in one direction, and covariates, the first of which moves the levels."""
    rng = np.random.default_rng(seed)
    Z, B = rng.normal(size=(m, 2)), rng.normal(size=(3, D))
    W = np.column_stack([np.ones(m), Z]) @ B
    W += 0.7 * rng.normal(size=(m, 1)) * rng.normal(size=D)
    return *rows_of(rng, W, N, noise=0.5, level=Z[:, 0]), Z, B


def labels_of(y, task):
    """Both of them in every task, and not told by the rows."""
    level = np.array([np.median(y[task == k]) for k in range(task.max() + 1)])
    noise = 2.0 * np.random.default_rng(3).normal(size=len(y))
    return np.where(y + noise > level[task], 1.0, -1.0)


@pytest.mark.parametrize(
    "cls, alpha",
    [
        (MPMTLLowRank, 0.15),
        (MPMTLGroupSparse, 0.15),
        (MPMTLLowRankClassifier, 0.05),
        (MPMTLGroupSparseClassifier, 0.05),
    ],
)
def test_against_a_general_solver_of_both_parts(cls, alpha):
    cp = pytest.importorskip("cvxpy", reason="needs CVXPY")
    X, y, task, Z, _ = related()
    F, classifier = np.column_stack([np.ones(M), Z]), "Classifier" in cls.__name__
    y = labels_of(y, task) if classifier else y
    est = cls(alpha, epsilon=None, relation=Z, tol=1e-8).fit(X, y, task=task)
    assert est.dual_gap_ <= 1e-8 * est.objective_
    W, b, B = cp.Variable((M, D)), cp.Variable(M), cp.Variable((3, D))
    losses = []
    for k in range(M):
        score, target = X[task == k] @ W[k] + b[k], y[task == k]
        if classifier:
            losses.append(cp.sum(cp.logistic(-cp.multiply(target, score))) / N)
        else:
            losses.append(0.5 / N * cp.sum_squares(score - target))
    left = W - F @ B
    norm = cp.sum(cp.norm(left, 2, axis=0)) if "Group" in cls.__name__ else cp.normNuc(left)
    held = HELD * np.mean(curvatures_of(est, X, y, task))
    along = 0.5 * held * cp.sum_squares(F @ np.linalg.pinv(F) @ W)
    problem = cp.Problem(cp.Minimize(sum(losses) + alpha * norm + along))
    found = problem.solve(solver="CLARABEL")
    assert est.objective_ == pytest.approx(found, rel=1e-6)
    assert_allclose(est.coef_, W.value, atol=2e-3 * np.abs(W.value).max())
    assert_allclose(est.relation_coef_, np.linalg.pinv(F) @ est.coef_, rtol=1e-6, atol=1e-8)


def curvatures_of(est, X, y, task):
    """Curvatures of the losses, as the documentation has it."""
    steepest = 0.25 if "Classifier" in type(est).__name__ else 1.0
    return [steepest * X[task == k].var(axis=0) for k in range(M)]


def test_covariates_take_what_the_penalty_would_shrink():
    X, y, task, Z, B = related(1, 80)
    est = MPMTLLowRank(0.5, epsilon=None, relation=covariates(Z)).fit(X, y, task=task)
    plain = MPMTLLowRank(0.5, epsilon=None).fit(X, y, task=task)
    assert np.abs(est.relation_coef_ - B).max() < 0.5
    assert est.objective_ < 0.5 * plain.objective_
