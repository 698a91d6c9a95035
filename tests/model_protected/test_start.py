"""A public start of model-protected learning: priors and penalties are about differences to it."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import logsumexp
from sklearn.linear_model import LogisticRegression

from skpmtl import MPMTLGroupSparseClassifier, MPMTLLowRankClassifier
from tests.helpers.data import rows_of

M, N, D = 24, 12, 4
TASKS = range(M)
START = {"coef": np.array([1.0, -2.0, 0.5, 3.0]), "intercept": 2.0}


def rows(seed=0, n=N):
    """Models of rank 1 about the start."""
    rng = np.random.default_rng(seed)
    W = START["coef"] + np.outer(rng.normal(size=M), rng.normal(size=D))
    return rows_of(rng, W, n, noise=0.5, level=START["intercept"])


def objective(est, X, label, task, W, b, penalty):
    """Mean log-losses plus alpha times a norm of W - start; W (m, C, d), C = 1 for two classes."""
    value = 0.0
    for k in TASKS:
        s = X[task == k] @ W[k].T + b[k]
        s = np.column_stack([np.zeros(len(s)), s]) if len(W[k]) == 1 else s
        value += (logsumexp(s, axis=1) - s[np.arange(len(s)), label[task == k]]).mean()
    return value + est.alpha * penalty(W)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("cls", [MPMTLLowRankClassifier, MPMTLGroupSparseClassifier])
def test_exact_fits_of_classes_are_certified(cls, n_classes):
    """A closed gap, the objective as it is written, and the start itself under a heavy penalty."""
    X, y, task = rows(n=40)  # so many that every task has all classes
    y = y - X @ START["coef"]
    label = np.digitize(y, np.quantile(y, np.arange(1, n_classes) / n_classes))
    start = LogisticRegression(C=0.1).fit(X, label)
    given = {"init": start, "tasks": TASKS, "classes": range(n_classes), "epsilon": None}
    est = cls(alpha=0.05, tol=1e-6, **given).fit(X, label, task=task)
    assert 0.0 <= est.dual_gap_ <= 1e-6 * est.objective_
    W = est.coef_.reshape(M, -1, D)
    b = est.intercept_.reshape(M, -1)

    def penalty(W):
        V = (W - start.coef_).reshape(-1, D)
        if est._diagonal:
            return np.linalg.norm(V, axis=0).sum()
        return np.linalg.norm(V, ord="nuc")

    args = X, label, task
    value = objective(est, *args, W, b, penalty)
    assert est.objective_ == pytest.approx(value, rel=1e-5)
    rng = np.random.default_rng(0)
    for _ in range(20):
        V = W + 1e-2 * rng.normal(size=W.shape)
        assert objective(est, *args, V, b, penalty) > value * (1.0 - 1e-6)
    heavy = cls(alpha=1e4, **given).fit(X, label, task=task)
    assert_allclose(heavy.coef_, np.broadcast_to(start.coef_, W.shape).reshape(est.coef_.shape))
