"""Rows with far more noise than others, against sums over which rows are."""

from itertools import product

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from skpmtl.task.far import NOISIER, about_medians, chances, far_rows
from skpmtl.task.posterior import Decomposition, TaskRows, log_evidence
from skpmtl.task.priors import NEVER, Scales

SHARE, KAPPA, SIGMA, TAU = 0.02, 0.3, 0.5, 2.0


def evidence(rows):
    one = np.zeros(1)
    scales = Scales(one, one, one, np.array([TAU]), np.array([KAPPA]), np.array([SIGMA]))
    return log_evidence(Decomposition(rows, np.eye(2)), 0.0, np.zeros(2), scales)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("far", [3.0, 60.0])
def test_evidence_is_near_the_sum_over_far_rows(n, far):
    rng = np.random.default_rng(n)
    X, y = rng.normal(size=(n, 2)), rng.normal(size=n)
    y[0] += far
    V = TAU**2 + KAPPA * X @ X.T
    s = np.append(1.0, NOISIER)
    offsets, counts = np.array([0, n]), np.ones(n)
    variance = TAU**2 + KAPPA * (X**2).sum(axis=1)
    q, logs = chances(y, SIGMA**2, variance, SHARE)
    exact = logsumexp(
        [
            logs[list(which)].sum()
            + multivariate_normal.logpdf(y, cov=V + np.diag((SIGMA * s[list(which)]) ** 2))
            for which in product(range(len(s)), repeat=n)
        ]
    )
    rows, log_weight = far_rows(X, y, offsets, counts, q, logs)
    alike = evidence(TaskRows.of(X, y, offsets)) + n * logs[0]
    found = np.logaddexp(alike, evidence(rows) + log_weight)[0]
    found -= 0.5 * (n * np.log(2.0 * np.pi) + np.log(n))  # as of `posterior`
    assert exact - 1.0 < found < exact + 0.2


def test_tasks_without_far_rows_have_no_second_part():
    rng = np.random.default_rng(0)
    r, offsets = rng.normal(size=60), np.arange(0, 61, 10)
    r[:10] += 100.0 * (np.arange(10) == 3)
    r[50:] += 300.0  # a level
    left, about = about_medians(r, offsets, np.ones(60), np.full(6, 10.0))
    q = chances(left, 1.0, np.zeros(60), 1e-6)
    rows, log_weight = far_rows(np.zeros((60, 1)), r, offsets, np.ones(60), *q)
    assert about.all() and (log_weight[1:] == NEVER).all() and (rows.n[1:] == 0.0).all()
    assert log_weight[0] > -20.0 and rows.n[0] == pytest.approx(9.0, abs=1e-3)


def test_a_row_that_counts_twice_is_two_rows():
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(7, 2)), rng.normal(size=7)
    y[2] += 40.0
    counts = np.array([1.0, 2.0, 2.0, 1.0, 1.0, 3.0, 1.0])
    found = []
    for many in (counts, None):
        repeats = np.ones(7, dtype=int) if many is not None else counts.astype(int)
        Z, z = np.repeat(X, repeats, axis=0), np.repeat(y, repeats)
        u, n = np.ones(len(z)) if many is None else many, np.array([counts.sum()])
        ends = np.array([0, len(z)])
        q = chances(about_medians(z, ends, u, n)[0], 1.0, np.zeros(len(z)), 0.01)
        rows, log_weight = far_rows(Z, z, ends, u, *q)
        found.append(evidence(rows) + log_weight)
    np.testing.assert_allclose(*found, rtol=1e-10)
