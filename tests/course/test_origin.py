"""Levels that go together with slopes: where both are independent."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skpmtl import PrivateMTL
from skpmtl.course.personal import TaskModels
from skpmtl.tables.forms import read_training
from skpmtl.task.priors import before_tau


def table(rho, m=250, n=6, seed=0):
    """Levels at x = 0 have the correlation rho with the first slope; columns lie about 2 and -1."""
    rng, task = np.random.default_rng(seed), np.repeat(np.arange(m), n)
    W, z = rng.normal(size=(m, 2)), rng.normal(size=m)
    level = 2.0 * (rho * W[:, 0] + np.sqrt(1.0 - rho**2) * z)
    X = rng.normal(size=(m * n, 2))
    y = level[task] + np.einsum("ij,ij->i", X, (W + [1.0, 0.0])[task])
    return X + [2.0, -1.0], y + 0.5 * rng.normal(size=m * n), task


def correlation_at_centres(board):
    """Of the level at the centres of the columns and the first slope."""
    S = board.variance_components(0.9).covariance
    to = np.append(board.column_centre, 1.0)
    return (S @ to)[0] / np.sqrt(S[0, 0] * (to @ S @ to))


def test_a_correlation_of_levels_and_slopes_is_found():
    X, y, task = table(-0.8, 100)
    est = PrivateMTL(epsilon=None).fit(X, y, task=task)
    assert correlation_at_centres(est.billboard_) == pytest.approx(-0.8, abs=0.1)
    assert est.level_spread_ == pytest.approx(2.0, rel=0.3)
    std, low, high = est.billboard_.variance_components(0.9).of_models[-1]
    assert std == pytest.approx(est.level_spread_) and low < 0.8 * std and high > 1.2 * std


def test_predictions_use_it():
    """Of tasks of two rows, about which the level says what rows do not."""
    X, y, task = table(0.9, n=8)
    seen = np.tile(np.arange(8) < 2, 250)
    est = PrivateMTL(epsilon=None).fit(X[seen], y[seen], task=task[seen])
    board = replace(est.billboard_, origin=np.zeros(2), log_tau=None)
    tasks = TaskModels(read_training(PrivateMTL(), X[seen], y[seen], task[seen])[0])
    errors = []
    for model in (est.billboard_, replace(board, log_tau=before_tau(board.tau))):
        coef, intercept, _ = tasks.personal(model)
        p = np.einsum("ij,ij->i", X[~seen], coef[task[~seen]]) + intercept[task[~seen]]
        errors.append(np.mean((p - y[~seen]) ** 2))
    assert errors[0] < 0.8 * errors[1]


def test_without_a_correlation_nothing_is_taken():
    found = []
    for seed in range(3):
        X, y, task = table(0.0, 80, 4, seed)
        found.append(PrivateMTL(epsilon=None).fit(X, y, task=task).billboard_.origin.any())
    assert sum(found) <= 1


def test_scores_are_derivatives_of_the_evidence():
    """Of the origin, and of the centre about one, by central differences."""
    X, y, task = table(0.5, 12, 5)
    board = PrivateMTL(epsilon=None).fit(X, y, task=task).billboard_
    board = replace(board, origin=np.array([0.4, -1.1]), far=0.0)
    tasks, step = TaskModels(read_training(PrivateMTL(), X, y, task)[0]), 1e-4

    def evidence(model):
        return tasks.evidence(model, model.centre, model.root, model.scales(model.log_kappa))

    def slopes(name):
        found = []
        for one in step * np.eye(len(getattr(board, name))):
            ends = (replace(board, **{name: getattr(board, name) + s * one}) for s in (1, -1))
            high, low = map(evidence, ends)
            found.append((high - low) / (2.0 * step))
        return np.stack(found, axis=1)

    known = tasks.of_origin(board)
    assert_allclose(known[0], evidence(board), rtol=1e-12)
    assert_allclose(-known[1], slopes("origin"), atol=1e-6)
    score, _ = tasks.information(board, board.scales(board.log_kappa))
    assert_allclose(score, slopes("centre"), atol=1e-6)


def test_slopes_without_noise_have_finite_models():
    """Levels that follow slopes, in rows of which nothing is left but rounding."""
    r = np.random.default_rng(0)
    task, X = np.arange(40).repeat(6), r.normal(size=(240, 3))
    r.normal(size=40)
    W = r.normal(size=(40, 3))
    y = W[task, 0] + np.sum(X * W[task], axis=1)
    found = PrivateMTL(epsilon=None).fit(X, y, task=task).predict(X, task=task)
    assert_allclose(found, y, atol=0.1)
