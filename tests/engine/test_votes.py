"""Votes on evidence: the evidence by densities of SciPy, and the bound on what tasks say of it."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from skpmtl.engine.plan import is_able
from skpmtl.engine.votes import (
    CLIP,
    N_DIFFERENCES,
    Tally,
    differences_of,
    evidences,
    sensitivity,
    sum_of_differences,
)
from skpmtl.local.prior import SNR
from skpmtl.tables.table import TaskTable


@pytest.mark.parametrize("intercept", [False, True])
def test_evidence_is_the_density_of_the_rows(intercept):
    """Normal densities, averaged over scales of the prior and integrated over the noise."""
    rng, d, sizes = np.random.default_rng(0), 3, (4, 7, 2)
    X, y = rng.normal(size=(sum(sizes), d)), 2.0 * rng.normal(size=sum(sizes))
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    table = TaskTable(X, y, offsets, np.arange(3))
    A = rng.normal(size=(d, 1))
    M = A @ A.T + 0.01 * np.eye(d)
    priors = [np.full(d, 1.0 / d), M / np.trace(M), np.array([0.9, 0.05, 0.05])]
    settings = {"fit_intercept": intercept}
    found = evidences(table, priors, 0.8, **settings)
    penalty = ((np.log10(SNR) - 0.8) / 0.6) ** 2 + 0.5 * (np.log10(SNR) - 1.5) ** 2
    pi = np.where(penalty < penalty.min() + 9.0, np.exp(-0.5 * penalty), 0.0)  # others do not count
    pi /= pi.sum()
    log_s = np.linspace(-8.0, 8.0, 161)  # of the variance of the noise, with a flat prior
    for k, n in enumerate(sizes):
        rows = slice(offsets[k], offsets[k + 1])
        basis = np.linalg.svd(np.ones((1, n)))[2][1:] if intercept else np.eye(n)
        Z, r, expected = basis @ X[rows], basis @ y[rows], []
        # Rows of all sizes of the noise at one covariance are points of all sizes.
        points = np.exp(-0.5 * log_s)[:, None] * r
        for prior in priors:
            K = Z @ (np.diag(prior) if prior.ndim == 1 else prior) @ Z.T
            parts = [
                np.log(p)
                - 0.5 * len(r) * log_s
                + multivariate_normal.logpdf(points, cov=np.eye(len(r)) + q * K).reshape(-1)
                for p, q in zip(pi, SNR * n / np.trace(K), strict=True)
                if p > 0
            ]
            expected.append(logsumexp(parts))
        assert_allclose(np.diff(found[k]), np.diff(expected), atol=1e-3)


def test_votes_see_the_prior_of_the_tasks():
    """Sums over tasks that have one of three subspaces grow towards it; the floor as well."""
    rng, m, n, d = np.random.default_rng(1), 200, 4, 8
    U = np.linalg.qr(rng.normal(size=(d, d)))[0]
    X = rng.normal(size=(m, n, d))
    W = rng.normal(size=(m, 2)) @ U[:, :2].T
    y = np.einsum("kid,kd->ki", X, W) + 0.2 * rng.normal(size=(m, n))
    table = TaskTable(X.reshape(-1, d), y.ravel(), np.arange(m + 1) * n, np.arange(m))
    flat = 1e-3 * np.eye(d)
    priors = [V @ V.T + flat for V in (U[:, :1], U[:, :2], U[:, :4], U[:, 2:4])]
    priors = [M / np.trace(M) for M in priors]
    sent = differences_of(evidences(table, priors, 1.5, fit_intercept=False))
    tally = Tally(sum_of_differences("evidence")({"evidence": sent})["evidence"], 1.0, 4)
    assert tally.total.argmax() == 1
    assert_allclose(tally.weights(np.zeros(4)), [0, 1, 0, 0], atol=1e-6)


# ------------------------------------------------------------------------- what is bounded
def summed(sent):
    sent = np.atleast_2d(sent)
    padded = np.zeros((len(sent), N_DIFFERENCES))
    padded[:, : sent.shape[1]] = sent
    return sum_of_differences("evidence")({"evidence": padded})["evidence"]


@pytest.mark.parametrize("replace_one", [False, True])
def test_sensitivity_is_reached_and_not_passed(replace_one):
    bound, factor = sensitivity(replace_one), float(replace_one)
    far = summed(np.full(N_DIFFERENCES, 1e9)) - factor * summed(np.full(N_DIFFERENCES, -1e9))
    assert bound * (1.0 - 1e-9) < np.linalg.norm(far) <= bound
    rng = np.random.default_rng(2)
    for _ in range(300):
        a, b = 10.0 ** rng.uniform(-3, 3, size=(2, 1)) * rng.normal(size=(2, N_DIFFERENCES))
        assert np.linalg.norm(summed(a) - factor * summed(b)) <= bound
        assert np.abs(summed(a)).max() <= 0.5 * CLIP


def test_what_is_not_finite_counts_as_nothing():
    sent = np.array([[1.0, np.nan, 0.5], [np.inf, -np.inf, 0.25], [-0.5, 0.125, -1e300]])
    expected = np.zeros(N_DIFFERENCES)
    expected[:3] = [0.5, 0.125, 0.5 + 0.25 - 1.0]
    assert_allclose(summed(sent), expected, rtol=1e-9)
    found = differences_of(np.array([[0.0, 1.0, np.nan], [-np.inf, 2.0, 4.0]]))
    assert found.shape == (2, N_DIFFERENCES)
    assert_array_equal(found[:, :2], [[1.0, 0.0], [0.0, 2.0]])


def test_weights_are_a_posterior_that_knows_its_noise():
    tally = Tally(np.array([2.0, -1.0, 99.0]), 0.5, 3)  # what is not asked is noise
    assert_allclose(tally.total, [0.0, 2.0, 1.0])
    prior = np.log([0.2, 0.3, 0.5])
    p = np.array([0.2, 0.3, 0.5]) * np.exp([0.0, 2.0, 1.0])
    assert_allclose(tally.weights(prior), p / p.sum())
    blurred = Tally(np.array([2.0, -1.0]), 1e9, 3).weights(prior)
    assert_allclose(blurred, [0.2, 0.3, 0.5], rtol=1e-6)
    sharp = Tally(np.array([1e6, 1.0]), 1.0, 3).weights(prior)
    assert_allclose(sharp, [0.0, *(np.array([0.3, 0.5 * np.e]) / (0.3 + 0.5 * np.e))], atol=1e-9)


def test_who_votes_is_public():
    assert is_able(150, 1.0, True) and not is_able(149, 1.0, True)
    assert is_able(75, 1.0, False) and not is_able(74, 1.0, False)
    assert is_able(1, math.inf, True)
