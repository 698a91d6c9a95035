"""Rounds of the pooled model, beside its exact minimum and plain algebra."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from scipy.special import expit

from skpmtl import PrivateMeanRegMTLClassifier, PrivateMTLClassifier
from skpmtl.engine.levels import TaskLevels
from skpmtl.engine.pooled import N_ROUNDS, PLAIN_ROUNDS, PooledUpdates, bounds_of, with_ones
from skpmtl.local import grams
from skpmtl.tables.table import TaskTable


def table_of(sizes=(9, 4, 1, 30), d=3, seed=0, classes=False, **options):
    rng = np.random.default_rng(seed)
    X = 1.0 + rng.normal(size=(sum(sizes), d))
    y = 20.0 + X @ rng.normal(size=d) + rng.normal(size=len(X))
    if classes:
        y, options["n_classes"] = np.where(y > np.median(y), 1.0, -1.0), 2
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    return TaskTable(X, y, offsets, np.arange(len(sizes)), **options)


@pytest.mark.parametrize("classes", [False, True])
def test_updates_lead_to_minima_about_the_pooled_model(classes):
    """Its gradient there is a part of the curvature: .05, or .3 / 4 of classes."""
    table, rng = table_of(classes=classes), np.random.default_rng(1)
    theta, middle, unit, scale = rng.normal(size=(1, 4)), 18.0, 5.0, 2.0
    if classes:
        middle, unit = 0.0, 1.0
    D = PooledUpdates(table).at(theta, middle, unit, scale)
    part = 0.3 / 4.0 if classes else 0.05
    for k in range(table.n_tasks):
        rows = slice(table.offsets[k], table.offsets[k + 1])
        Z = np.column_stack([np.ones(rows.stop - rows.start), table.X[rows] / scale])
        score, y = Z @ (theta[0] + D[k]), table.y[rows]
        slope = -y / (1.0 + np.exp(y * score)) if classes else score - (y - middle) / unit
        gradient = Z.T @ slope / len(Z)
        strength = -gradient @ D[k] / (D[k] @ D[k])
        curvature = np.linalg.eigvalsh(Z.T @ Z)[-1] / len(Z)
        # The curvature is found from below, and taken 5 % larger.
        assert 0.7 * part < strength / curvature < (1.3 if classes else 1.06) * part
        size = np.linalg.norm(gradient)
        assert np.linalg.norm(gradient + strength * D[k]) < (0.15 if classes else 1e-6) * size


@pytest.mark.parametrize("n_few", [3, 4])
def test_a_task_without_rows_moves_no_bit_of_the_others(monkeypatch, n_few):
    """Also where the tasks with rows, or with many, have few matrices, and all that are listed
    many."""
    monkeypatch.setattr(grams, "FEW", n_few * 12**2)
    table, theta = table_of((40, 9, 5, 30, 7), d=11), np.full((1, 12), 0.1)
    n = table.offsets[4]
    other = TaskTable(
        table.X[:n], table.y[:n], table.offsets[:5], table.tasks[:4], absent=table.tasks[4:]
    )
    sent, again = (PooledUpdates(each).at(theta, 18.0, 5.0, 1.0) for each in (table, other))
    np.testing.assert_array_equal(again, sent[:4])


def test_a_far_feature_does_not_set_the_strength():
    """Which is .05 of ten median variances at most; in an ordinary table it changes nothing."""
    table, theta = table_of((30, 12)), np.full((1, 4), 0.2)
    X = table.X.copy()
    X[:, 2] = 1e4 + 50.0 * X[:, 2]
    far = TaskTable(X, table.y, table.offsets, table.tasks)
    one, even = (
        PooledUpdates(far, levels).at(theta, 18.0, 5.0, 1.0) for levels in (None, TaskLevels(far))
    )
    for k in range(2):
        rows = slice(table.offsets[k], table.offsets[k + 1])
        Z = np.column_stack([np.ones(rows.stop - rows.start), X[rows]])
        H, y = Z.T @ Z / len(Z), (table.y[rows] - 18.0) / 5.0
        strength = 0.05 * 10.0 * np.median(X[rows].var(axis=0))
        D = np.linalg.solve(H + strength * np.eye(4), Z.T @ (y - Z @ theta[0]) / len(Z))
        assert_allclose(even[k], D, rtol=1e-5, atol=1e-8)
        assert np.abs(one[k, [1, 2]]).max() < 1e-3 * np.abs(D[[1, 2]]).max()
    plain = [
        PooledUpdates(table, levels).at(theta, 18.0, 5.0, 1.0)
        for levels in (None, TaskLevels(table))
    ]
    assert_allclose(*plain, rtol=1e-12)


def test_rounds_find_what_single_tasks_cannot_see():
    """A slope of a column that is constant in every task, and of one that is everywhere 0."""
    rng, m, n = np.random.default_rng(2), 300, 4
    covariates, task = rng.normal(size=m), np.repeat(np.arange(m), n)
    X = np.column_stack([rng.normal(size=m * n), covariates[task], np.zeros(m * n)])
    y = 7.0 + 1.5 * X[:, 0] - 2.0 * X[:, 1] + 0.1 * rng.normal(size=m)[task]
    table = TaskTable(X, y, np.arange(m + 1) * n, np.arange(m))
    updates, theta = PooledUpdates(table), np.zeros((1, 4))
    for bound in bounds_of(np.inf, 0.1):
        D = updates.at(theta, 6.0, 3.0, 0.5)
        D *= np.minimum(1.0, bound / np.linalg.norm(D, axis=1))[:, None]
        theta = theta + D.mean(axis=0)
    found = np.append(6.0 + 3.0 * theta[0, 0], 3.0 / 0.5 * theta[0, 1:])
    assert_allclose(found, [7.0, 1.5, -2.0, 0.0], atol=0.05)


@pytest.mark.parametrize("cls", [PrivateMTLClassifier, PrivateMeanRegMTLClassifier])
def test_few_rows_do_not_stretch_the_pooled_model_of_classes(cls):
    """Classes of four rows are separable: minima about a model go far from it, and did so on
    average, to slopes twice as long."""
    rng, m, slopes = np.random.default_rng(0), 400, np.array([1.0, -0.6, 0.0, 0.4])
    task, X = np.repeat(np.arange(m), 4), rng.normal(size=(4 * m, 4))
    y = rng.uniform(size=4 * m) < expit(X @ slopes + 0.5 * rng.normal(size=m)[task])
    level = cls(epsilon=None).fit(X, y, task=task).billboard_.level
    assert np.linalg.norm(level.coef - slopes) < 0.5 * np.linalg.norm(slopes)
    assert level.spread < 0.7


def test_bounds_fall_to_zero_and_sum_to_a_path():
    for ratio in (1.0, 5.0, 20.0, 1e3, np.inf):
        bounds = bounds_of(ratio, 0.1)
        assert len(bounds) == (N_ROUNDS if np.isfinite(ratio) else PLAIN_ROUNDS)
        assert (np.diff(bounds) < 0).all() and bounds[-1] > 0
        assert_allclose(np.diff(bounds), -bounds[-1])
    paths = [bounds_of(ratio, 0.1).sum() for ratio in (1.0, 5.0, 10.0, 20.0, 100.0, 1e3, np.inf)]
    assert_allclose(paths, [0.2, 1.0, 2.0, 2.0, 10.0, 20.0, 30.0])


@pytest.mark.parametrize("classes", [False, True])
def test_forms_of_tables_give_the_same_updates(classes):
    table, theta = table_of(classes=classes), np.full((1, 4), 0.3)
    units = (0.0, 1.0, 1.5) if classes else (18.0, 5.0, 1.5)
    wanted = PooledUpdates(table).at(theta, *units)
    settings = table.y, table.offsets, table.tasks
    options = {"n_classes": table.n_classes}
    tolerance = 0.02  # of updates by steps, and strengths by a curvature that few steps find
    thin = TaskTable(sparse.csr_array(table.X), *settings, **options)
    assert_allclose(PooledUpdates(thin).at(theta, *units), wanted, atol=tolerance)
    short = TaskTable(table.X.astype(np.float32), *settings, **options)
    assert with_ones(short, 1.5).X.dtype == np.float32
    assert_allclose(PooledUpdates(short).at(theta, *units), wanted, atol=1e-4)
    counts = np.random.default_rng(3).integers(1, 4, size=len(table.y))
    sums = np.add.reduceat(counts, table.offsets[:-1]).astype(float)
    heavy = TaskTable(table.X, *settings, weights=counts.astype(float), masses=sums, **options)
    offsets = np.concatenate([[0], np.cumsum(counts)])[table.offsets]
    picked = np.repeat(np.arange(len(counts)), counts)
    again = TaskTable(table.X[picked], table.y[picked], offsets, table.tasks, **options)
    both = [PooledUpdates(t).at(theta, *units) for t in (heavy, again)]
    assert_allclose(*both, atol=tolerance)


def test_targets_and_units_move_along():
    """Units of the target and of the features change nothing but the units of the model."""
    table, rng = table_of(), np.random.default_rng(4)
    theta = rng.normal(size=(1, 4))
    wanted = PooledUpdates(table).at(theta, 18.0, 5.0, 2.0)
    other = TaskTable(1e3 * table.X, -7.0 + 100.0 * table.y, table.offsets, table.tasks)
    found = PooledUpdates(other).at(theta, -7.0 + 1800.0, 500.0, 2000.0)
    assert_allclose(found, wanted, rtol=1e-8, atol=1e-10)


def test_a_unit_that_changes_is_noticed():
    """The work of the first round is kept, for the same window and scale."""
    table, theta = table_of(), np.zeros((1, 4))
    updates = PooledUpdates(table)
    for units in ((0.0, 1.0, 1.0), (18.0, 1.0, 1.0), (18.0, 5.0, 1.0), (18.0, 5.0, 2.0)):
        for _ in range(2):
            found = updates.at(theta, *units)
            assert_allclose(found, PooledUpdates(table).at(theta, *units), rtol=1e-12)
