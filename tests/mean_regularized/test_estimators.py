"""PrivateMeanRegMTL and its baselines: objective, updates, personalisation, forms of input."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from scipy.special import logsumexp

from skpmtl import PrivateMeanRegMTL, PrivateMeanRegMTLClassifier
from skpmtl.solvers import mean as exact_mean
from tests.helpers.data import random_tasks


def problem(kind, m=7, d=4, C=3, seed=0, rows=(12, 25), spread=0.5):
    return random_tasks(kind, m, d, C, seed, rows, spread)


# ------------------------------------------------------------------------------ exact
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("weight", ["equal", "samples"])
@pytest.mark.parametrize("lam, ridge", [(0.3, 0.0), (50.0, 0.2), (1e-3, 1e-2)])
@pytest.mark.spread(6)
def test_squared_loss_is_one_linear_system(intercept, weight, lam, ridge):
    X, y, task = problem("real")
    m, d = 7, 4
    # All coefficients, then all intercepts, as one symmetric system.
    A, r = np.zeros((m * (d + 1), m * (d + 1))), np.zeros(m * (d + 1))
    for k in range(m):
        Z = np.column_stack([X[task == k], np.full((task == k).sum(), float(intercept))])
        s = 1 / len(Z) if weight == "equal" else 1.0
        at = slice(k * (d + 1), (k + 1) * (d + 1))
        A[at, at] += s * Z.T @ Z
        r[at] = s * Z.T @ y[task == k]
    for k in range(m):
        for j in range(d):
            A[k * (d + 1) + j, k * (d + 1) + j] += lam + ridge
            for i in range(m):
                A[k * (d + 1) + j, i * (d + 1) + j] -= lam / m
        if not intercept:
            A[k * (d + 1) + d, k * (d + 1) + d] = 1.0
    solution = np.linalg.solve(A, r).reshape(m, d + 1)
    est = PrivateMeanRegMTL(
        lam, epsilon=None, ridge=ridge, task_weight=weight, fit_intercept=intercept
    ).fit(X, y, task=task)
    assert_allclose(est.coef_, solution[:, :d], rtol=0, atol=1e-9)
    assert_allclose(est.intercept_, solution[:, d], rtol=0, atol=1e-9)
    assert_allclose(est.mean_coef_, solution[:, :d].mean(axis=0), rtol=0, atol=1e-9)
    weights = 1 / np.bincount(task) if weight == "equal" else np.ones(m)
    residual = y - np.einsum("ij,ij->i", X, est.coef_[task]) - est.intercept_[task]
    pull = est.coef_ - est.coef_.mean(axis=0)
    value = 0.5 * (weights[task] @ residual**2 + lam * (pull**2).sum())
    assert est.objective_ == pytest.approx(value + 0.5 * ridge * (est.coef_**2).sum(), rel=1e-10)
    # Wide features (iterated) and sparse rows find the same.
    for given in (sparse.csr_matrix(X), X.astype(np.float32)):
        again = est.fit(given, y, task=task).coef_
        assert_allclose(again, solution[:, :d], atol=1e-9 if sparse.issparse(given) else 1e-5)


@pytest.mark.parametrize(
    "kind, intercept, ridge, joint",
    [
        ("real", True, 0.0, False),
        ("real", False, 0.1, True),
        ("binary", False, 0.0, False),
        ("binary", True, 0.1, True),
        ("multi", True, 0.1, False),
        ("multi", False, 0.1, True),
        pytest.param("binary", True, 0.0, False, marks=pytest.mark.slow),
        pytest.param("multi", True, 0.0, False, marks=pytest.mark.slow),
    ],
)
def test_fewer_rows_than_features(kind, intercept, ridge, joint, monkeypatch):
    """The gradient of the documented objective, from the rows alone, is zero."""
    if joint:  # as for very many matrices
        monkeypatch.setattr(exact_mean, "_JOINT", 1)
    X, y, task = problem(kind, m=9, d=14, rows=(4, 9))
    lam, m, C = 0.2, 9, 3 if kind == "multi" else 1
    clusters = {k: k % 2 for k in range(m)} if ridge else None
    cls = PrivateMeanRegMTL if kind == "real" else PrivateMeanRegMTLClassifier
    est = cls(lam, epsilon=None, ridge=ridge, fit_intercept=intercept, clusters=clusters)
    est.fit(X, y, task=task)
    W, b = est.coef_.reshape(m, C, 14), est.intercept_.reshape(m, C)
    for k in range(m):
        x, target = X[task == k], y[task == k]
        z = x @ W[k].T + b[k]
        if kind == "real":
            r = z - target[:, None]
        elif kind == "binary":
            r = 1 / (1 + np.exp(-z)) - target[:, None]
        else:
            r = np.exp(z - logsumexp(z, axis=1)[:, None]) - np.eye(3)[target]
        same = W[k % 2 :: 2] if clusters else W
        slope = r.T @ x / len(x) + lam * (W[k] - same.mean(axis=0)) + ridge * W[k]
        assert_allclose(slope, 0, atol=1e-9)
        if intercept and (kind == "real" or len(np.unique(target)) == max(C, 2)):
            assert_allclose(r.mean(axis=0), 0, atol=1e-9)


def test_clusters_are_separate_fits_without_privacy():
    X, y, task = problem("real")
    clusters = {k: "ab"[k % 2] for k in range(9)}
    est = PrivateMeanRegMTL(0.4, epsilon=None, clusters=clusters).fit(X, y, task=task)
    for g in range(2):
        mine = task % 2 == g
        alone = PrivateMeanRegMTL(0.4, epsilon=None).fit(X[mine], y[mine], task=task[mine])
        assert_allclose(est.coef_[g::2], alone.coef_, atol=1e-10)
        shared = est.relation_coef_[0] + g * est.relation_coef_[1]
        assert_allclose(shared, alone.mean_coef_, atol=1e-10)
    new = est.personalize(X[:9], y[:9], task=np.full(9, 8)).coef_[7]
    expected = PrivateMeanRegMTL(0.4, epsilon=None).fit(
        X[task % 2 == 0], y[task % 2 == 0], task=task[task % 2 == 0]
    )
    assert_allclose(new, expected.personalize(X[:9], y[:9], task=np.full(9, 8)).coef_[-1])
    with pytest.raises(ValueError, match=r"without covariates in relation=: \[11\]"):
        est.personalize(X[:9], y[:9], task=np.full(9, 11))


# ---------------------------------------------------------------------------- the table
@pytest.mark.parametrize("columns", ["one-hot", "constant"])
@pytest.mark.parametrize("lam", [0.02, 1.0])
def test_exact_classes_with_columns_that_intercepts_repeat(columns, lam):
    """The shared model is not unique then, the predictions are."""
    rng = np.random.default_rng(0)
    task, c = np.repeat(np.arange(8), 40), rng.integers(3, size=320)
    x = rng.normal(size=320)
    extra = np.eye(3)[c] if columns == "one-hot" else np.ones((320, 1))
    y = np.digitize(x + 0.5 * (c == 0) + 0.3 * rng.normal(size=320), [-0.5, 0.8])
    X = np.column_stack([x, extra])
    est = PrivateMeanRegMTLClassifier(lam, epsilon=None).fit(X, y, task=task)
    # The same model with a little ridge, which is unique.
    near = PrivateMeanRegMTLClassifier(est.lam_, epsilon=None, ridge=1e-7).fit(X, y, task=task)
    assert 0 < est.objective_ <= near.objective_ + 1e-9
    assert_allclose(est.objective_, near.objective_, rtol=1e-4)
    assert np.abs(est.coef_).max() < 100
    assert_allclose(est.predict_proba(X, task=task), near.predict_proba(X, task=task), atol=1e-3)
