"""Real multilevel tables: splits are seeded, and peers agree with a plain fit."""

import numpy as np
import pytest

from benchmarks.accuracy import peers
from benchmarks.accuracy.sources import Table


def nested(seed=0, m=12, n=15):
    rng = np.random.default_rng(seed)
    task = np.repeat(np.arange(m), n)
    X = np.column_stack([rng.uniform(-1, 1, m * n), np.repeat(rng.uniform(-1, 1, m), n)])
    y = 2.0 + X @ [1.0, -1.0] + rng.normal(size=m)[task] + 0.3 * rng.normal(size=m * n)
    return Table("computer", X, y, task, "squared", ("a", "b"))


def test_splits_are_seeded_and_leave_a_row_for_each_task():
    table = nested(m=60, n=2)
    sample, again, other = table.split(0), table.split(0), table.split(1)
    np.testing.assert_array_equal(sample.y, again.y)
    assert set(sample.task) == set(other.task) == set(table.tasks)
    table = nested(m=40, n=50)
    sample, other = table.split(0), table.split(1)
    assert len(sample.y) != len(other.y) or (sample.y != other.y).any()
    # 2,000 draws with probability .7: five standard deviations are .051.
    assert abs(len(sample.y) / len(table.y) - 0.7) < 0.052
    assert sorted([*sample.y, *sample.y_test]) == sorted(table.y)
    assert sample.unit == pytest.approx(np.std(sample.y_test))


def test_mixed_models_agree_and_beat_one_model_for_all():
    pytest.importorskip("statsmodels")
    pytest.importorskip("gpboost")
    sample = nested(m=40, n=20).split(0)
    ours = peers.statsmodels(sample, "squared")
    # Both maximise nearly the same likelihood: REML and ML differ by the order of one over m.
    np.testing.assert_allclose(peers.mixed_intercept(sample, "squared"), ours, atol=0.02)

    def error(found):
        return np.mean((found - sample.y_test) ** 2)

    assert error(ours) < 0.5 * error(peers.pooled(sample, "squared"))
    assert error(peers.mixed_slopes(sample, "squared")) < 1.1 * error(ours)
