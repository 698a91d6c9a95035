"""The posterior of a task against dense normal distributions, quadrature and other tasks."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from skpmtl.task.posterior import (
    Decomposition,
    TaskRows,
    averages,
    covariances,
    log_evidence,
    log_sum,
)

KAPPA, SIGMA, TAU = np.array([0.1, 2.0]), np.array([0.3, 1.0, 4.0]), np.array([0.2, 3.0])
D = 4


def tables(sizes=(1, 2, 4, 9), d=D, seed=0):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(sum(sizes), d)) + 1.5, rng.normal(size=sum(sizes))
    return X, y, np.concatenate([[0], np.cumsum(sizes)])


def dense(X, y, c, a, L, kappa, sigma, tau):
    """Mean and covariance of y, and of (l - c, w - a) given y, from the joint normal."""
    n, d = X.shape
    F = np.c_[np.ones(n), X]
    P = np.zeros((d + 1, d + 1))
    P[0, 0], P[1:, 1:] = tau**2, kappa * L @ L.T
    C = F @ P @ F.T + sigma**2 * np.eye(n)
    mean = c + X @ a
    G = np.linalg.solve(C, F @ P).T
    return mean, C, G @ (y - mean), P - G @ F @ P


@pytest.fixture
def problem():
    X, y, offsets = tables()
    rng = np.random.default_rng(1)
    L, a = rng.normal(size=(D, 3)), rng.normal(size=D)
    dec = Decomposition(TaskRows.of(X, y, offsets), L)
    return X, y, offsets, L, a, dec, dec.residuals(0.7, a)


def cells():
    return [
        (i, j, k) for i in range(len(KAPPA)) for j in range(len(SIGMA)) for k in range(len(TAU))
    ]


def test_evidence_is_the_dense_normal_density(problem):
    X, y, offsets, L, a, dec, (r, r0) = problem
    E = log_evidence(dec, r, r0, KAPPA, SIGMA, TAU)
    for t in range(len(offsets) - 1):
        part = slice(offsets[t], offsets[t + 1])
        n = offsets[t + 1] - offsets[t]
        for i, j, k in cells():
            mean, C, *_ = dense(X[part], y[part], 0.7, a, L, KAPPA[i], SIGMA[j], TAU[k])
            expected = multivariate_normal(mean, C).logpdf(y[part])
            # The evidence is of the mean and n - 1 contrasts, without the constants in 2 pi.
            expected += 0.5 * n * np.log(2 * np.pi) + 0.5 * np.log(n)
            assert E[t, i, j, k] == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_means_are_those_of_the_dense_normal(problem):
    X, y, offsets, L, a, dec, (r, r0) = problem
    for t in range(len(offsets) - 1):
        part = slice(offsets[t], offsets[t + 1])
        for i, j, k in cells():
            P = np.zeros((len(offsets) - 1, len(KAPPA), len(SIGMA), len(TAU)))
            P[t, i, j, k] = 1.0
            level, slopes = averages(dec, r, r0, P, KAPPA, SIGMA, TAU)
            *_, mean, _ = dense(X[part], y[part], 0.7, a, L, KAPPA[i], SIGMA[j], TAU[k])
            np.testing.assert_allclose(np.r_[level[t], slopes[t]], mean, rtol=1e-8, atol=1e-10)


def test_covariances_are_those_of_the_mixture(problem):
    X, y, offsets, L, a, dec, (r, r0) = problem
    weights = np.random.default_rng(2).dirichlet(np.ones(12), len(offsets) - 1)
    P = weights.reshape(-1, len(KAPPA), len(SIGMA), len(TAU))
    found = covariances(dec, r, r0, P, KAPPA, SIGMA, TAU)
    B = np.zeros((D + 1, 4))
    B[0, 0], B[1:, 1:] = 1.0, L
    for t in range(len(offsets) - 1):
        part, expected = slice(offsets[t], offsets[t + 1]), 0.0
        for i, j, k in cells():
            *_, mean, C = dense(X[part], y[part], 0.7, a, L, KAPPA[i], SIGMA[j], TAU[k])
            expected = expected + P[t, i, j, k] * (C + np.outer(mean, mean))
        np.testing.assert_allclose(B @ found[t] @ B.T, expected, rtol=1e-8, atol=1e-9)


def test_evidence_integrates_to_one_for_one_row():
    y = np.linspace(-60, 60, 20001)
    rows = TaskRows.of(np.full((len(y), 1), 2.0), y, np.arange(len(y) + 1))
    dec = Decomposition(rows, np.eye(1))
    E = log_evidence(dec, *dec.residuals(1.0, np.zeros(1)), KAPPA, SIGMA, TAU)
    mass = np.trapezoid(np.exp(E), y, axis=0) / np.sqrt(2 * np.pi)
    np.testing.assert_allclose(mass, 1.0, rtol=1e-6)


def test_a_task_does_not_depend_on_the_others():
    X, y, offsets = tables((3, 7, 1, 12, 5), seed=3)
    L = np.random.default_rng(4).normal(size=(D, D))

    def results(X, y, offsets):
        dec = Decomposition(TaskRows.of(X, y, offsets), L)
        r, r0 = dec.residuals(0.1, np.ones(D))
        E = log_evidence(dec, r, r0, KAPPA, SIGMA, TAU)
        P = np.exp(E - log_sum(E)[:, None, None, None])
        return E, *averages(dec, r, r0, P, KAPPA, SIGMA, TAU)

    together = results(X, y, offsets)
    for t in range(5):
        part = slice(offsets[t], offsets[t + 1])
        alone = results(X[part], y[part], np.array([0, offsets[t + 1] - offsets[t]]))
        for one, of_all in zip(alone, together, strict=True):
            assert np.array_equal(one[0], of_all[t])


def test_tasks_without_rows_say_nothing():
    rows = TaskRows.of(np.zeros((0, 2)), np.zeros(0), np.array([0, 0]))
    dec = Decomposition(rows, np.eye(2))
    r, r0 = dec.residuals(0.3, np.ones(2))
    E = log_evidence(dec, r, r0, KAPPA, SIGMA, TAU)
    assert not E.any()
    level, slopes = averages(dec, r, r0, np.full(E.shape, 1 / E.size), KAPPA, SIGMA, TAU)
    assert not level.any() and not slopes.any()
