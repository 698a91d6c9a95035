"""Levels alone: tables whose slopes are equal, without a budget."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import skpmtl
from skpmtl.course import equal
from skpmtl.mixed_models.reml import GroupedRows, fit_mixed
from skpmtl.task.posterior import Decomposition, LevelRows, TaskRows, log_evidence
from skpmtl.task.priors import Scales

M = 900


def table(spread, seed=0, noise=1.0):
    """One column; slopes of tasks have this standard deviation."""
    rng = np.random.default_rng(seed)
    task = np.repeat(np.arange(M), rng.integers(2, 9, M))
    x, slopes = 2.0 * rng.standard_normal(len(task)), 0.7 + spread * rng.standard_normal(M)
    y = 5.0 + slopes[task] * x + rng.standard_normal(M)[task]
    return x[:, None], y + noise * rng.standard_normal(len(task)), task


def fit(X, y, task, **options):
    return skpmtl.PrivateMTL(epsilon=None, **options).fit(X, y, task=task)


@pytest.fixture
def level_rows():
    """Rows of 30 tasks, some without any, as `LevelRows` and as `TaskRows` in the same units."""
    rng = np.random.default_rng(3)
    offsets = np.append(0, np.cumsum(rng.integers(0, 6, 30)))
    N, centre, scale, middle, unit = (
        offsets[-1],
        np.array([1.0, -2.0]),
        np.array([2.0, 0.5]),
        3.0,
        2.5,
    )
    X, y, counts = rng.standard_normal((N, 2)), rng.standard_normal(N), rng.uniform(0.5, 2.0, N)
    task = np.repeat(np.arange(30), np.diff(offsets))
    sums = np.bincount(task, counts, 30)
    means = [np.bincount(task, counts * v, 30) / np.where(sums > 0, sums, 1.0) for v in (*X.T, y)]
    known = X, y, counts, offsets, np.stack(means[:2], axis=1), means[2]
    rows = LevelRows.about(known, centre, scale, middle, unit)
    Z, z = (X - centre) / scale, (y - middle) / unit
    return rows, TaskRows.of(Z, z, offsets, counts), (Z, z, counts, task)


def test_evidence_is_that_of_slopes_that_hardly_vary(level_rows):
    rows, usual, _ = level_rows
    one, tau = np.zeros(2), np.array([0.3, 2.0])
    about = 0.4, np.array([0.8, -0.3])
    grids = tau, np.array([1e-13]), np.array([0.5, 1.0])
    scales = Scales(np.zeros(1), one, one, *grids)
    found = log_evidence(Decomposition(rows, np.zeros((2, 2))), *about, scales)
    assert_allclose(found, log_evidence(Decomposition(usual, np.eye(2)), *about, scales), rtol=1e-9)


def test_products_are_by_the_inverse_covariance_of_rows(level_rows):
    rows, _, (Z, z, counts, task) = level_rows
    w, products, slope = rows.products(0.7, slice(None))
    after = rows.products(0.7 + 1e-6, slice(None))[1]
    assert_allclose((products - after) / 1e-6, slope, rtol=1e-4, atol=1e-6)
    for t in range(30):
        own = task == t
        f = np.c_[np.ones(own.sum()), Z[own], z[own]]
        V = np.diag(1.0 / counts[own]) + 0.7
        assert_allclose(products[t], f.T @ np.linalg.solve(V, f), rtol=1e-9, atol=1e-12)
        assert w[t] == pytest.approx(products[t, 0, 0])


def test_the_centre_is_that_of_restricted_likelihood():
    X, y, task = table(0.0)
    board = fit(X, y, task).billboard_
    assert board.slopes_are_equal
    offsets, ones = np.searchsorted(task, np.arange(M + 1)), np.ones((len(y), 1))
    found = fit_mixed(GroupedRows(np.c_[X, ones], ones, y, offsets))
    assert_allclose(board.mean, found.coef, rtol=1e-6)
    assert board.level_spread == pytest.approx(np.sqrt(found.random_covariance[0, 0]), rel=1e-3)
    assert board.unit * board.row_spread == pytest.approx(np.sqrt(found.sigma2), rel=1e-3)
    assert "equal" in board.report.notes["slopes"]


def test_equal_slopes_are_predicted_as_well_as_by_the_whole_loop(monkeypatch):
    X, y, task = table(0.0)
    _, truth, _ = table(0.0, noise=0.0)
    found = fit(X, y, task)
    assert found.billboard_.slopes_are_equal
    assert np.ptp(found.coef_) == 0.0
    monkeypatch.setattr(equal, "MOST", 0.0)
    usual = fit(X, y, task)
    assert not usual.billboard_.slopes_are_equal
    errors = [np.mean((one.predict(X, task=task) - truth) ** 2) for one in (found, usual)]
    assert errors[0] < 1.01 * errors[1]


def test_slopes_that_vary_are_learnt_as_without_the_question(monkeypatch):
    X, y, task = table(0.3)
    found = fit(X, y, task)
    monkeypatch.setattr(equal, "MOST", 0.0)
    assert_array_equal(found.coef_, fit(X, y, task).coef_)


def test_new_tasks_and_files_go_on_with_levels_alone(tmp_path):
    X, y, task = table(0.0)
    found = fit(X, y, task, uncertainty=True)
    skpmtl.save_billboard(found, tmp_path / "board.npz")
    other = skpmtl.load_billboard(tmp_path / "board.npz")
    few = task < 5
    other.personalize(X[few], y[few], task=task[few])
    assert_allclose(other.coef_, found.coef_[:5], rtol=1e-12)
    assert_allclose(other.intercept_, found.intercept_[:5], rtol=1e-12)
    assert not found.covariance_[:, 0].any()
    assert (found.covariance_[:, 1, 1] > 0).all()
