"""The law of random tables, and its references."""

import numpy as np
import pytest

from benchmarks.random_tables.law import draw
from benchmarks.random_tables.references import shrunken_means


@pytest.mark.parametrize("raw", [False, True])
def test_a_table_follows_from_its_seed(raw):
    one, two = draw(3, raw), draw(3, raw)
    for name in ("X", "y", "task", "X_test", "y_test", "task_test"):
        assert np.array_equal(getattr(one, name), getattr(two, name))
    assert not np.array_equal(one.y[:5], draw(4, raw).y[:5])


def test_tables_are_sorted_listed_and_judged():
    for seed in range(12):
        table = draw(seed)
        assert (np.diff(table.task) >= 0).all() and table.task.max() < table.n_tasks
        assert np.isfinite(table.X).all() and np.isfinite(table.y).all()
        assert set(table.task) <= set(table.task_test)


def test_equal_means_are_shrunk_to_one():
    rng = np.random.default_rng(0)
    t = np.repeat(np.arange(50), 4)
    y = np.tile([-3.0, -1.0, 1.0, 3.0], 50) + 5.0 + 1e-3 * rng.normal(size=200)
    n = np.bincount(t)
    own = np.bincount(t, y) / n
    np.testing.assert_allclose(shrunken_means(y, t, n, own), own.mean(), atol=1e-6)
