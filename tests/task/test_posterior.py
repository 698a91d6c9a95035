"""The posterior of a task against dense normal distributions, quadrature and other tasks."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import trapezoid
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from skpmtl.task.posterior import (
    Decomposition,
    TaskRows,
    averages,
    covariances,
    gains,
    information,
    likelihood,
    log_evidence,
    moved,
)
from skpmtl.task.priors import Scales

KAPPA, SIGMA, TAU = np.array([0.1, 2.0]), np.array([0.3, 1.0, 4.0]), np.array([0.2, 3.0])
D = 4


def tables(sizes=(1, 2, 4, 9), d=D, seed=0):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(sum(sizes), d)) + 1.5, rng.normal(size=sum(sizes))
    return X, y, np.concatenate([[0], np.cumsum(sizes)])


def dense(X, y, c, a, L, kappa, sigma, tau):
    """Mean and covariance of y, and of (l - c, w - a) given y, from the joint normal; and what
    (l, w) given y takes of (c, a)."""
    n, d = X.shape
    F = np.c_[np.ones(n), X]
    P = np.zeros((d + 1, d + 1))
    P[0, 0], P[1:, 1:] = tau**2, kappa * L @ L.T
    C = F @ P @ F.T + sigma**2 * np.eye(n)
    mean = c + X @ a
    G = np.linalg.solve(C, F @ P).T
    return mean, C, G @ (y - mean), P - G @ F @ P, np.eye(d + 1) - G @ F


def scales(seed=2, kappa=KAPPA, sigma=SIGMA, tau=TAU):
    rng = np.random.default_rng(seed)
    logs = (np.log(rng.dirichlet(np.ones(len(grid)))) for grid in (kappa, sigma, tau))
    return Scales(*logs, tau, kappa, sigma)


@pytest.fixture
def problem():
    """Tasks of one to nine rows, and of every cell the log weight and the dense normal."""
    X, y, offsets = tables()
    rng = np.random.default_rng(1)
    L, a = rng.normal(size=(D, 3)), rng.normal(size=D)
    dec, prior = Decomposition(TaskRows.of(X, y, offsets), L), scales()
    E = np.zeros((4, len(KAPPA), len(SIGMA), len(TAU)))
    mean, (square, kept) = np.zeros((*E.shape, D + 1)), np.zeros((2, *E.shape, D + 1, D + 1))
    for t, i, j, k in np.ndindex(E.shape):
        rows = slice(offsets[t], offsets[t + 1])
        n = offsets[t + 1] - offsets[t]
        of = dense(X[rows], y[rows], 0.7, a, L, KAPPA[i], SIGMA[j], TAU[k])
        # The evidence is of the mean and n - 1 contrasts, without the constants in 2 pi.
        E[t, i, j, k] = multivariate_normal(of[0], of[1]).logpdf(y[rows])
        E[t, i, j, k] += 0.5 * n * np.log(2 * np.pi) + 0.5 * np.log(n)
        E[t, i, j, k] += prior.log_kappa[i] + prior.log_sigma[j] + prior.log_tau[k]
        mean[t, i, j, k], square[t, i, j, k] = of[2], of[3] + np.outer(of[2], of[2])
        kept[t, i, j, k] = of[4]
    return dec, a, prior, E, mean, (square, kept)


def test_evidence_is_the_dense_normal_density(problem):
    dec, a, prior, E, *_ = problem
    np.testing.assert_allclose(
        log_evidence(dec, 0.7, a, prior), logsumexp(E, axis=(1, 2, 3)), rtol=1e-9
    )
    for axis, others in (("kappa", (2, 3)), ("sigma", (1, 3)), ("tau", (1, 2))):
        found = log_evidence(dec, 0.7, a, prior, axis)
        np.testing.assert_allclose(found, logsumexp(E, axis=others), rtol=1e-9)


def test_means_are_those_of_the_dense_normal(problem):
    dec, a, prior, E, mean, _ = problem
    total, level, slopes = averages(dec, 0.7, a, prior)
    P = np.exp(E - total[:, None, None, None])
    expected = np.einsum("tijk,tijkq->tq", P, mean)
    np.testing.assert_allclose(np.c_[level, slopes], expected, rtol=1e-8, atol=1e-9)


def test_covariances_are_those_of_the_mixture(problem):
    dec, a, prior, E, _, both = problem
    P = np.exp(E - logsumexp(E, axis=(1, 2, 3))[:, None, None, None])
    for found, cells in zip(covariances(dec, 0.7, a, prior)[1:], both, strict=True):
        expected = np.einsum("tijk,tijkqr->tqr", P, cells)
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-8)


def test_the_likelihood_is_a_sum_over_the_tasks_that_count(problem):
    dec, (X, y, offsets) = problem[0], tables()
    kappa, sigma, tau, some = 2.0, 0.5, 0.7, np.array([True, True, False, True])
    expected = np.zeros(2 + (D + 2) ** 2)
    for t in np.flatnonzero(some):
        rows, n = slice(offsets[t], offsets[t + 1]), offsets[t + 1] - offsets[t]
        V = dense(X[rows], y[rows], 0.0, np.zeros(D), dec.root, kappa, sigma, tau)[1] / sigma**2
        F = np.c_[np.ones(n), X[rows], y[rows]]
        own = np.tril(F.T @ np.linalg.solve(V, F)).ravel()
        expected += np.append([np.linalg.slogdet(V)[1] - np.log(n), n], own)
    found = likelihood(dec, kappa / sigma**2, (tau / sigma) ** 2, some)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_means_move_with_the_centre_at_fixed_weights():
    """Of one cell, weights are the same about all centres."""
    X, y, offsets = tables(seed=5)
    one = scales(kappa=KAPPA[:1], sigma=SIGMA[1:2], tau=TAU[:1])
    dec = Decomposition(TaskRows.of(X, y, offsets), np.eye(D), np.zeros((4, D)))
    _, known = gains(dec, 0.0, np.zeros(D), one)
    for centre in (0.4, np.arange(4.0)), (np.linspace(0, 1, 4), -np.ones(D)):
        expected = averages(dec, *centre, one)[1:]
        for found, value in zip(moved(dec, known, *centre), expected, strict=True):
            np.testing.assert_allclose(found, value, rtol=1e-9, atol=1e-12)


def test_evidence_integrates_to_one_for_one_row():
    y = np.linspace(-60, 60, 20001)
    rows = TaskRows.of(np.full((len(y), 1), 2.0), y, np.arange(len(y) + 1))
    E = log_evidence(Decomposition(rows, np.eye(1)), 1.0, np.zeros(1), scales())
    mass = trapezoid(np.exp(E), y) / np.sqrt(2 * np.pi)
    assert mass == pytest.approx(1.0, rel=1e-6)


def test_a_task_does_not_depend_on_the_others():
    X, y, offsets = tables((3, 7, 1, 12, 5, 7, 12), seed=3)
    L = np.random.default_rng(4).normal(size=(D, D))

    def results(X, y, offsets):
        dec = Decomposition(TaskRows.of(X, y, offsets), L)
        by = log_evidence(dec, 0.1, np.ones(D), scales(), "tau")
        return by, *averages(dec, 0.1, np.ones(D), scales())

    together = results(X, y, offsets)
    for t in range(7):
        part = slice(offsets[t], offsets[t + 1])
        alone = results(X[part], y[part], np.array([0, offsets[t + 1] - offsets[t]]))
        for one, of_all in zip(alone, together, strict=True):
            assert np.array_equal(one[0], of_all[t])


@pytest.mark.parametrize("bad", range(7))
def test_targets_that_are_no_numbers_change_no_other_task(bad):
    """Tasks are side by side in a kernel, where one may not say what is done for all."""
    X, y, offsets = tables((3, 7, 1, 12, 5, 7, 12), seed=3)
    dec, others = Decomposition(TaskRows.of(X, y, offsets), np.eye(D)), np.arange(7) != bad

    def results(level):
        args = dec, level, np.ones(D), scales()
        return log_evidence(*args, "tau"), *averages(*args), *covariances(*args)

    for value in (np.nan, np.inf):
        with np.errstate(invalid="ignore"):
            found = results(np.where(others, 0.1, value))
        for one, before in zip(found, results(np.full(7, 0.1)), strict=True):
            assert np.array_equal(one[others], before[others])


def test_tasks_without_rows_keep_the_prior():
    rows = TaskRows.of(np.zeros((0, 2)), np.zeros(0), np.array([0, 0]))
    dec, prior = Decomposition(rows, np.eye(2)), scales()
    found = averages(dec, 0.3, np.ones(2), prior)
    assert not any(part.any() for part in found)
    variances = np.exp(prior.log_tau) @ TAU**2, np.exp(prior.log_kappa) @ KAPPA
    expected = np.diag([variances[0], variances[1], variances[1]])
    np.testing.assert_allclose(covariances(dec, 0.3, np.ones(2), prior)[1][0], expected, rtol=1e-12)


def test_far_cells_keep_their_evidence():
    """A cell that weighs nothing in all still has its own evidence."""
    X, y, offsets = tables((9,), seed=6)
    dec = Decomposition(TaskRows.of(X, y, offsets), np.eye(D))
    sigma = np.array([1e-3, 1.0])
    wide = replace(scales(), sigma=sigma, log_sigma=np.zeros(2))
    by = log_evidence(dec, 0.0, np.zeros(D), wide, "sigma")[0]
    one = replace(wide, sigma=sigma[:1], log_sigma=np.zeros(1))
    assert by[0] < by[1] - 1e3
    assert by[0] == pytest.approx(log_evidence(dec, 0.0, np.zeros(D), one)[0], rel=1e-9)


def test_the_score_is_the_gradient_of_the_evidence(problem):
    dec, a, prior, *_ = problem
    _, score, info = information(dec, 0.7, a, prior)
    for j, move in enumerate(1e-5 * np.eye(D + 1)):
        up, down = (
            log_evidence(dec, 0.7 + sign * move[0], a + sign * move[1:], prior)
            for sign in (1.0, -1.0)
        )
        np.testing.assert_allclose(score[:, j], (up - down) / 2e-5, rtol=1e-5, atol=1e-6)


def test_the_information_is_that_of_the_dense_normal():
    """Of one cell: F' V^-1 F, F the rows with a column of ones, V their covariance."""
    X, y, offsets = tables(seed=7)
    L = np.random.default_rng(8).normal(size=(D, D))
    one = scales(kappa=KAPPA[:1], sigma=SIGMA[1:2], tau=TAU[:1])
    found = information(Decomposition(TaskRows.of(X, y, offsets), L), 0.0, np.zeros(D), one)[2]
    for t in range(len(offsets) - 1):
        F = X[offsets[t] : offsets[t + 1]]
        V = dense(F, y[offsets[t] : offsets[t + 1]], 0.0, np.zeros(D), L, 0.1, 1.0, 0.2)[1]
        F = np.c_[np.ones(len(F)), F]
        np.testing.assert_allclose(found[t], F.T @ np.linalg.solve(V, F), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("size", [1e-9, 1.0, 100.0])
@pytest.mark.parametrize("n", [12, 60])
def test_equal_columns_of_any_size_are_one_column(n, size):
    """40 equal columns with the flat shape: one column of the same norm, as the matrix inversion
    lemma has it. Directions that rows do not have must add nothing."""
    rng, d = np.random.default_rng(9), 40
    x, y, one = rng.normal(size=n), rng.normal(size=n), scales(tau=TAU[:1])
    wide, narrow = (
        Decomposition(TaskRows.of(size * X, y, np.array([0, n])), root)
        for X, root in (
            (np.repeat(x[:, None], d, axis=1), np.eye(d) / np.sqrt(d)),
            (x[:, None], np.eye(1)),
        )
    )
    for axis in ("kappa", "sigma"):
        found = log_evidence(wide, 0.3, np.zeros(d), one, axis)
        expected = log_evidence(narrow, 0.3, np.zeros(1), one, axis)
        np.testing.assert_allclose(found, expected, rtol=1e-7)
    np.testing.assert_allclose(
        averages(wide, 0.3, np.zeros(d), one)[2].sum(),
        averages(narrow, 0.3, np.zeros(1), one)[2].sum(),
        rtol=1e-5,
    )
