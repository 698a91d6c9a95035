"""Tasks whose rows are in subgroups, against dense normal distributions."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from skpmtl.task import nested
from skpmtl.task.nested import RatioPart, Subgroups
from skpmtl.task.posterior import Decomposition
from skpmtl.task.priors import Scales

SIZES, D, C = (1, 2, 4, 9), 3, 0.7
RATIOS = np.array([0.0, 0.3, 4.0])
KAPPA, SIGMA, TAU = np.array([0.1, 2.0]), np.array([0.5, 1.5]), np.array([0.2, 3.0])
LEVELS = np.array([5, 1, 1, 3, 0, 3, 3, 9, 0, 2, 2, 9, 0, 0, 2, 9])
OFFSETS = np.concatenate([[0], np.cumsum(SIZES)])
CODES = np.repeat(np.arange(len(SIZES)), SIZES)


def scales():
    rng = np.random.default_rng(2)
    logs = [np.log(rng.dirichlet(np.ones(len(grid)))) for grid in (KAPPA, SIGMA, TAU, RATIOS)]
    return Scales(*logs[:3], TAU, KAPPA, SIGMA, logs[3])


def parts_of(X, y, L, counts):
    groups, found = Subgroups.of(CODES, LEVELS, counts, len(SIZES)), []
    for ratio in RATIOS:
        rows, log_root = groups.rows(X, y, OFFSETS, counts, ratio)
        found.append(RatioPart(Decomposition(rows, L), log_root, len(found)))
    return found


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    n = sum(SIZES)
    X, y = rng.normal(size=(n, D)) + 1.5, rng.normal(size=n)
    return X, y, rng.uniform(0.5, 2.0, size=n), rng.normal(size=(D, 2)), rng.normal(size=D)


def dense(rows, t, kappa, sigma, tau, ratio):
    """Log density of the rows of a task, and mean and covariance of (l - c, w - a) given them."""
    X, y, counts, L, a = rows
    own = slice(OFFSETS[t], OFFSETS[t + 1])
    X, y, levels = X[own], y[own], LEVELS[own]
    F = np.c_[np.ones(len(y)), X]
    P = np.zeros((D + 1, D + 1))
    P[0, 0], P[1:, 1:] = tau**2, kappa * L @ L.T
    V = F @ P @ F.T + sigma**2 * np.diag(1.0 / counts[own])
    V += ratio * sigma**2 * (levels[:, None] == levels)
    G = np.linalg.solve(V, F @ P).T
    rest = y - C - X @ a
    return multivariate_normal(cov=V).logpdf(rest), G @ rest, P - G @ F @ P


@pytest.fixture(params=["equal", "weighted"])
def problem(request, rows):
    """Of every cell the log weight times density, up to a number of the task, and moments."""
    X, y, counts, L, a = rows
    counts = counts if request.param == "weighted" else np.ones(len(y))
    rows, prior = (X, y, counts, L, a), scales()
    shape = len(SIZES), len(KAPPA), len(SIGMA), len(TAU), len(RATIOS)
    E, mean, square = np.zeros(shape), np.zeros((*shape, D + 1)), np.zeros((*shape, D + 1, D + 1))
    grids = KAPPA, SIGMA, TAU, RATIOS
    logs = prior.log_kappa, prior.log_sigma, prior.log_tau, prior.log_ratio
    for t, *at in np.ndindex(shape):
        cell = (grid[j] for grid, j in zip(grids, at, strict=True))
        log, first, second = dense(rows, t, *cell)
        weight = sum(log[j] for log, j in zip(logs, at, strict=True))
        # Of n rows that count u times, sigma has the power n of the sum of u: see `TaskRows`.
        own = counts[OFFSETS[t] : OFFSETS[t + 1]]
        weight -= (own.sum() - len(own)) * np.log(SIGMA[at[1]])
        place = t, *at
        E[place], mean[place] = log + weight, first
        square[place] = second + np.outer(first, first)
    return parts_of(X, y, L, counts), a, prior, E, mean, square


def differences(E):
    """Without a constant of every task."""
    return E - E.reshape(len(E), -1)[:, :1]


def test_evidence_by_ratio_is_that_of_dense_normals(problem):
    parts, a, prior, E, *_ = problem
    for axis, others in (("ratio", (1, 2, 3)), ("sigma", (1, 3, 4)), ("tau", (1, 2, 4))):
        found = nested.log_evidence(parts, C, a, prior, axis)
        assert_allclose(differences(found), differences(logsumexp(E, axis=others)), atol=1e-9)
    by = nested.log_evidence(parts, C, a, prior, "ratio")
    assert_allclose(logsumexp(by, axis=1), nested.log_evidence(parts, C, a, prior), rtol=1e-12)


def test_moments_are_those_of_the_dense_mixture(problem):
    parts, a, prior, E, mean, square = problem
    P = np.exp(E - logsumexp(E, axis=(1, 2, 3, 4), keepdims=True))
    _, level, slopes = nested.averages(parts, C, a, prior)
    expected = np.einsum("tijkg,tijkgq->tq", P, mean)
    assert_allclose(np.c_[level, slopes], expected, rtol=1e-8, atol=1e-9)
    expected = np.einsum("tijkg,tijkgqr->tqr", P, square)
    assert_allclose(nested.covariances(parts, C, a, prior)[1], expected, rtol=1e-7, atol=1e-8)


def test_the_score_is_the_gradient_of_the_mixture(problem):
    parts, a, prior, *_ = problem
    score, _ = nested.information(parts, C, a, prior)
    for j, move in enumerate(1e-5 * np.eye(D + 1)):
        up, down = (
            nested.log_evidence(parts, C + sign * move[0], a + sign * move[1:], prior)
            for sign in (1.0, -1.0)
        )
        assert_allclose(score[:, j], (up - down) / 2e-5, rtol=1e-5, atol=1e-6)
