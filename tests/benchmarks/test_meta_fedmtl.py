"""Figures of the meta-learning and FedMTL studies: the quick modes run and say what they show."""

import csv

import numpy as np
import pytest

from benchmarks.reproduce import (
    fedmtl,
    fedmtl_default,
    fedmtl_overhead,
    fedmtl_secure,
    meta_learning,
    meta_learning_figures,
)


@pytest.mark.slow
def test_meta_learning_figures_quick(tmp_path):
    figures = meta_learning_figures.main(["--quick", "--output", str(tmp_path)])
    for name, rows in figures.items():
        with (tmp_path / f"meta_learning_{name}.csv").open(newline="") as file:
            assert len(list(csv.DictReader(file))) == len(rows)
        assert (tmp_path / f"meta_learning_{name}.png").read_bytes()[1:4] == b"PNG"
    kept = {
        (row["data"], row["method"], row["adjacency"]): row["kept"] for row in figures["epsilon"]
    }
    for name in meta_learning_figures.PLACES[:2]:
        assert kept[name, "task-global", "zero-out"] > kept[name, "task-global", "replace-one"]
        assert kept[name, "task-global", "zero-out"] > 0.5 > kept[name, "local", "zero-out"]
    alone = {
        row["shots"]: row["mean"]
        for row in figures["shots"]
        if row["method"] == "alone" and "linear" in row["data"]
    }
    assert alone[10] < alone[2]  # more rows, less error


def test_few_shots_are_among_more():
    """What `shots` compares: the same test rows, and for each task its first rows."""
    X, y, task = meta_learning.synthetic(0, quick=True, shots=5)[1]
    few = meta_learning.first_rows((X, y, task), 2)
    for name in np.unique(task):
        np.testing.assert_array_equal(few[0][few[2] == name], X[task == name][:2])
        np.testing.assert_array_equal(few[1][few[2] == name], y[task == name][:2])


def test_fedmtl_default_quick():
    row = next(fedmtl_default.measure(quick=True))
    assert tuple(row) == fedmtl_default.FIELDS
    assert row["ahead"] == pytest.approx(row["heads_by_similarity"] - row["per_task"], abs=2e-4)


@pytest.mark.slow
def test_fedmtl_overhead_quick(tmp_path):
    rows = fedmtl_overhead.main(["--quick", "--output", str(tmp_path)])["overhead"]
    assert (tmp_path / "fedmtl_overhead.png").read_bytes()[1:4] == b"PNG"
    traffic = [row for row in rows if row["quantity"] == fedmtl_overhead.TRAFFIC]
    assert {row["ratio"] for row in traffic if row["method"] == "similarity"} == {"1"}
    server = {
        row["method"]: float(row["ratio"])
        for row in rows
        if row["n_clients"] == 8 and row["quantity"] == fedmtl_overhead.SERVER
    }
    assert set(server) == {"plain average", *fedmtl_overhead.RULES}
    assert server["plain average"] == 1 < min(server["similarity"], server["per-task"])
    for row in rows:
        if row["method"] == "secure":
            assert row["over"] == "similarity" and float(row["ratio"]) > 1


def test_the_plain_average_is_one_model_for_all():
    shared, heads, tasks, sizes, _ = fedmtl_secure.problem(6, 3, 3, 4, 5)
    mean, average = fedmtl_overhead.plain_average(shared, heads, tasks, sizes)
    np.testing.assert_allclose(mean, np.average(shared, axis=0, weights=sizes))
    held = [(i, own.index(0)) for i, own in enumerate(tasks) if 0 in own]
    rows, weights = [heads[i][s] for i, s in held], [sizes[i] for i, _ in held]
    np.testing.assert_allclose(average[0], np.average(rows, axis=0, weights=weights))


@pytest.mark.slow
def test_the_ablation_has_its_picture_and_is_paired(tmp_path):
    arguments = ["--quick", "--only", "fixed pairs", "--output", str(tmp_path / "f.csv")]
    rows = fedmtl.main(arguments)
    assert (tmp_path / "f.png").read_bytes()[1:4] == b"PNG"
    mean = {(row["scenario"], row["method"]): row["mean"] for row in rows}
    for row in rows:
        change = row["mean"] - mean[row["scenario"], fedmtl.PAPER]
        assert row["change"] == pytest.approx(change, abs=2e-4)  # both are rounded
    for scenario in {scenario for scenario, _ in mean}:
        own = {method for of, method in mean if of == scenario}
        assert {*fedmtl.TABLE, *fedmtl.ABLATION, "per-task"} <= own
