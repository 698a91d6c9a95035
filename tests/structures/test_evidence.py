"""Votes on evidence: the evidence by densities of SciPy, and the bound on what tasks say of it."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from skpmtl.engine.votes import (
    evidences,
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


# ------------------------------------------------------------------------- what is bounded
