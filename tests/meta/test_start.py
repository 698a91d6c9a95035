"""Rounds of meta-learning begin at a public start."""

import numpy as np
from numpy.testing import assert_allclose
from scipy.special import logsumexp

from skpmtl import DPMetaInitClassifier

M, N, D = 30, 6, 4
TASKS = range(M)


def test_rounds_of_classes_begin_at_the_start():
    """One round of one step without noise: the start less the mean gradient there."""
    rng, task = np.random.default_rng(0), np.repeat(np.arange(M), N)
    X, label = rng.normal(size=(M * N, D)), rng.integers(0, 3, M * N)
    W, b = rng.normal(size=(3, D)), np.array([0.2, -0.1, 0.0])
    est = DPMetaInitClassifier(
        epsilon=None,
        init={"coef": W, "intercept": b},
        inner_steps=1,
        inner_learning_rate=0.5,
        tasks_per_round=M,
        visits=1,
        tasks=TASKS,
        classes=range(3),
        random_state=0,
    ).fit(X, label, task=task)
    Z = np.column_stack([X, np.ones(len(X))])
    s = X @ W.T + b
    P = np.exp(s - logsumexp(s, axis=1)[:, None]) - np.eye(3)[label]
    gradient = P.T @ Z / len(Z)  # tasks have as many rows
    assert_allclose(est.init_coef_, W - 0.5 * gradient[:, :D], atol=1e-12)
    assert_allclose(est.init_intercept_, b - 0.5 * gradient[:, D], atol=1e-12)
