"""Shared models that depend on public covariates about tasks."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from scipy.special import expit

from skpmtl import PrivateMeanRegMTL, PrivateMeanRegMTLClassifier
from tests.helpers import data

M, N, D = 30, 8, 4


def related(rng, m=M, n=N, d=D, noise=0.3):
    """-> X, y, task, covariates (m, 2)"""
    return data.related(rng, m, n, d, binary=True, noise=noise, level=2.0)[:4]


def tops(Z):
    """Projection of models onto the residuals of their least-squares fit by the covariates."""
    F = np.column_stack([np.ones(len(Z)), Z])
    return np.eye(len(Z)) - F @ np.linalg.pinv(F)


# ------------------------------------------------------------------------ exact fits
@pytest.mark.parametrize("ridge", [0.0, 0.2])
@pytest.mark.parametrize("d", [D, 12])
def test_least_squares_against_one_large_system(ridge, d):
    X, y, task, Z = related(np.random.default_rng(0), m=12, d=d)
    lam, m = 0.4, 12
    est = PrivateMeanRegMTL(lam, epsilon=None, relation=Z[:, :1], ridge=ridge).fit(X, y, task=task)
    A, r = np.kron(lam * tops(Z[:, :1]) + ridge * np.eye(m), np.eye(d)), np.zeros((m, d))
    for k in range(m):
        Xk, yk = X[task == k], y[task == k]
        Xk, yk = Xk - Xk.mean(axis=0), yk - yk.mean()
        part = slice(k * d, (k + 1) * d)
        A[part, part] += Xk.T @ Xk / N
        r[k] = Xk.T @ yk / N
    W = np.linalg.solve(A, r.ravel()).reshape(m, d)
    assert_allclose(est.coef_, W, rtol=1e-6, atol=1e-7)
    F = np.column_stack([np.ones(m), Z[:, 0]])
    assert_allclose(est.relation_coef_, np.linalg.pinv(F) @ W, rtol=1e-5, atol=1e-6)
    residual = y - np.einsum("ij,ij->i", X, W[task]) - est.intercept_[task]
    value = 0.5 / N * residual @ residual + 0.5 * lam * np.sum((tops(Z[:, :1]) @ W) ** 2)
    assert est.objective_ == pytest.approx(value + 0.5 * ridge * np.sum(W**2), rel=1e-9)


def test_classes_against_a_general_solver():
    X, y, task, Z = related(np.random.default_rng(1), m=12, d=2)
    Z, y = Z[:, :1], np.where(y > 2.0, 1.0, -1.0)
    lam, m, P = 0.3, 12, tops(Z)
    est = PrivateMeanRegMTLClassifier(lam, epsilon=None, relation=Z).fit(X, y, task=task)

    def objective(v):
        W, b = v[: m * 2].reshape(m, 2), v[m * 2 :]
        margin = y * (np.einsum("ij,ij->i", X, W[task]) + b[task])
        R = P @ W
        slope = -y * expit(-margin) / N
        gW, gb = lam * R, np.zeros(m)
        np.add.at(gW, task, slope[:, None] * X)
        np.add.at(gb, task, slope)
        value = np.sum(np.logaddexp(0.0, -margin)) / N + 0.5 * lam * np.sum(R * R)
        return value, np.concatenate([gW.ravel(), gb])

    best = minimize(objective, np.zeros(m * 3), jac=True, tol=1e-13, options={"maxiter": 5000})
    found = objective(np.concatenate([est.coef_.ravel(), est.intercept_]))[0]
    assert est.objective_ == pytest.approx(found, rel=1e-9)
    assert found <= best.fun * (1.0 + 1e-8)


def test_without_privacy_clusters_are_a_relation():
    X, y, task, _ = related(np.random.default_rng(2))
    clusters = {k: "abc"[k % 3] for k in range(M)}
    one = PrivateMeanRegMTL(0.4, epsilon=None, clusters=clusters).fit(X, y, task=task)
    two = PrivateMeanRegMTL(0.4, epsilon=None, relation=clusters).fit(X, y, task=task)
    assert_allclose(two.coef_, one.coef_, rtol=1e-6, atol=1e-8)
    assert two.objective_ == pytest.approx(one.objective_, rel=1e-10)
