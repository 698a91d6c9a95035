"""More than two classes: softmax models under a shared prior or penalty."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import optimize
from scipy.special import logsumexp

from skpmtl import MPMTLGroupSparseClassifier, MPMTLLowRankClassifier
from skpmtl.tables.table import TaskTable
from skpmtl.tables.targets import class_shares, class_targets

CLASSIFIERS = [MPMTLLowRankClassifier, MPMTLGroupSparseClassifier]


def problem(sizes=(9, 14, 6, 11), d=3, n_classes=3, seed=0, spread=True):
    """-> table, shares of the classes in the rows; task 1 lacks the last class."""
    rng, sizes = np.random.default_rng(seed), np.array(sizes)
    task = np.repeat(np.arange(len(sizes)), sizes)
    X = rng.normal(size=(len(task), d)) + 0.3
    score = X @ rng.normal(size=(d, n_classes)) + rng.gumbel(size=(len(task), n_classes))
    codes = score.argmax(axis=1)
    codes[:n_classes] = np.arange(n_classes)
    codes[task == 1] = np.minimum(codes[task == 1], n_classes - 2)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    y = class_targets(codes, offsets, n_classes, spread=spread)
    table = TaskTable(X, y, offsets, np.arange(len(sizes)), n_classes=n_classes)
    return table, codes, class_shares(y, n_classes)


def loss_of(X, T, W, b):
    """Sum of the softmax losses of rows."""
    z = X @ W.T + b
    return float(np.sum(logsumexp(z, axis=1) - np.einsum("ic,ic->i", T, z)))


# ------------------------------------------------------------------------------- exact fits
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("cls", CLASSIFIERS)
def test_exact_fits_against_an_independent_solver(cls, intercept):
    """The penalties as minima over factors W = C P, of which a quasi-Newton method knows nothing:
    alpha ||W||_* = min alpha / 2 (||C||^2 + ||P||^2), and P is a diagonal for the L2,1 norm."""
    table, codes, T = problem(spread=intercept)
    alpha, ridge, (m, d, C) = 0.05, 0.02, (4, 3, 3)
    est = cls(alpha, epsilon=None, ridge=ridge, fit_intercept=intercept, tol=1e-10)
    est.fit(table.X, codes, task=table.codes)
    full, ends = cls is MPMTLLowRankClassifier, table.offsets

    def objective(x):
        A, P, b = np.split(x, [m * C * d, len(x) - m * C])
        A, P = A.reshape(m, C, d), P.reshape(d, d) if full else P
        b = b.reshape(m, C) * intercept
        W = A @ P if full else A * P
        value = alpha / 2 * (np.sum(A**2) + np.sum(P**2)) + ridge / 2 * np.sum(W**2)
        G, g = ridge * W, np.zeros((m, C))
        for k, n in enumerate(table.sizes):
            X, shares = (part[ends[k] : ends[k + 1]] for part in (table.X, T))
            z = X @ W[k].T + b[k]
            value += loss_of(X, shares, W[k], b[k]) / n
            residual = (np.exp(z - logsumexp(z, axis=1)[:, None]) - shares) / n
            G[k] += residual.T @ X
            g[k] = residual.sum(axis=0) * intercept
        if full:
            parts = G @ P.T + alpha * A, np.einsum("kci,kcj->ij", A, G) + alpha * P
        else:
            parts = G * P + alpha * A, (G * A).sum(axis=(0, 1)) + alpha * P
        return value, np.concatenate([part.ravel() for part in (*parts, g)])

    x = np.random.default_rng(1).normal(size=m * C * d + (d * d if full else d) + m * C)
    settings = {"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-10}
    found = optimize.minimize(objective, x, jac=True, method="L-BFGS-B", options=settings)
    assert est.objective_ == pytest.approx(found.fun, rel=1e-6)
    assert 0 <= est.dual_gap_ <= 1e-9 * est.objective_
    assert est.coef_.shape == (m, C, d) and est.intercept_.shape == (m, C)
    assert_allclose(est.coef_.sum(axis=1), 0.0, atol=1e-10)
    assert_allclose(est.mean_coef_, est.coef_.mean(axis=0))


# ---------------------------------------------------------------------------------- the loop
@pytest.mark.parametrize("epsilon", [None, 50.0])
@pytest.mark.parametrize("cls", CLASSIFIERS)
def test_a_task_of_one_class_is_predicted_to_go_on_with_it(cls, epsilon):
    table, codes, _ = problem((9, 14, 20, 11))
    codes[table.codes == 2] = 1
    est = cls(epsilon=epsilon, tasks=range(4), classes=range(3)).fit(
        table.X, codes, task=table.codes
    )
    p = est.predict_proba(table.X[table.codes == 2], task=[2] * 20)
    assert p[:, 1].min() > 0.8 and p.min() > 1e-3
