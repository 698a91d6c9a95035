"""The script of Liang et al. on small data, and the files that its page shows."""

import csv
import re
from pathlib import Path

import numpy as np
import pytest

from benchmarks.papers import mp_mtl

PAGE = Path(__file__).parents[2] / "doc" / "papers" / "mp_mtl.rst"


def stored(name):
    with (mp_mtl.PAPERS / f"mp_mtl_{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_small_tables_are_written(tmp_path):
    found = mp_mtl.main(["--quick", "--only", "leak", "noise", "--output", str(tmp_path)])
    cosines = {row["setting"]: row["cosine"] for row in found["leak"]}
    assert cosines["no noise"] > 0.999 > cosines["alone"]
    ratios = [row["mean"] for row in found["noise"] if row["method"].startswith("Algorithm 2")]
    assert ratios[0] > ratios[-1] > 0  # models grow from zero, noise is larger than they are
    for name in found:
        assert (tmp_path / f"mp_mtl_{name}.csv").is_file()


@pytest.mark.slow
def test_all_small_tables_are_made(tmp_path):
    found = mp_mtl.main(["--quick", "--output", str(tmp_path)])
    assert set(found) == set(mp_mtl.MEASURES) and all(found.values())


def test_validation_rows_are_training_rows():
    data = mp_mtl.low_rank(0, quick=True)
    folds = list(data.folds(5))
    values = np.concatenate([fold.test[1] for fold in folds])
    np.testing.assert_array_equal(np.sort(values), np.sort(data.train[1]))
    for fold in folds:
        assert not set(fold.train[1]) & set(fold.test[1])


def test_the_page_shows_files_that_are_stored():
    files = re.findall(r":file: (\S+)", PAGE.read_text(encoding="utf-8"))
    assert {Path(name).name for name in files} == {f"mp_mtl_{n}.csv" for n in mp_mtl.MEASURES}
    assert all((PAGE.parent / name).is_file() for name in files)


def test_stored_figures_are_those_of_the_page():
    found = {
        (r["data"], r["method"], r["epsilon"]): float(r["mean"]) for r in stored("tradeoff_rows")
    }
    alone = {name: found[name, "STL, l2", ""] for name in mp_mtl.DATA}
    second, third = "Algorithm 2, as published", "Algorithm 3, as published"
    for name in mp_mtl.DATA:
        assert (found[name, second, "0.1"] > alone[name]) == (name != "group-sparse")
        assert all(found[name, second, e] < alone[name] for e in ("1.0", "10.0", "100.0"))
    assert all(found["group-sparse", third, e] > alone["group-sparse"] for e in ("0.1", "10.0"))
    assert min(found["low-rank", m, "1000.0"] for m in ("DP-MTRL", "DP-MTRL, columns")) > 0.3
    slopes = {
        (r["penalty"], r["delta"], r["acceleration"], r["convexity"], r["over"]): r
        for r in stored("rates")
    }
    assert len(slopes) == 32
    assert float(slopes["low-rank", "0", "yes", "convex", "epsilon"]["measured"]) < -0.35
    assert all(float(r["measured"]) > -0.2 for r in slopes.values() if r["acceleration"] == "no")
    bounds = [r for r in stored("theory") if r["statement"].startswith("lemma")]
    assert max(float(r["largest"]) for r in bounds) < 1
