"""The script of Hu, Wu and Smith on small data, and the files that its page shows."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest

from benchmarks.papers import pmtl

PAGE = Path(__file__).parents[2] / "doc" / "papers" / "pmtl.rst"


def stored(name):
    with (pmtl.PAPERS / f"pmtl_{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_small_tables_have_a_column_for_every_value(tmp_path):
    arguments = ["--quick", "--only", "theorem_1", "sampling", "sparse", "--output", str(tmp_path)]
    found = pmtl.main(arguments)
    assert {row["method"] for row in found["sparse"]} == set(pmtl.SHARING) - {"concatenated"}
    printed, *_ = (r for r in found["sampling"] if r["metric"] == "length over mean")
    assert printed["method"] == "algorithm-1" and printed["epsilon"] == np.inf
    assert printed["q/m 5/20"] == "4.0000"
    for name in found:
        assert (tmp_path / f"pmtl_{name}.csv").is_file()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_files_of_leaf_are_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(pmtl, "DATA", dict(pmtl.DATA))
    monkeypatch.setattr(pmtl, "DRAWN", {})
    texts, tags = ["merge frame", "pointer malloc"], ["python", "c"]
    users = {f"user {k}": {"x": texts * 4, "y": tags * 4} for k in range(5)}
    content = {"users": [*users], "num_samples": [8] * 5, "user_data": users}
    (tmp_path / "posts.json").write_text(json.dumps(content))
    for name, words in (("words", "merge frame pointer malloc"), ("tags", "python c")):
        (tmp_path / name).write_text(words)
    lists = ["--words", str(tmp_path / "words"), "--tags", str(tmp_path / "tags")]
    given = ["--quick", "--only", "epsilon", "--leaf", str(tmp_path), *lists]
    rows = pmtl.main([*given, "--output", str(tmp_path)])["epsilon"]
    assert {row["data"] for row in rows} == {"LEAF"}
    alone = next(row for row in rows if row["method"] == "local")
    assert alone["epsilon inf"] == "1.0000"  # a word tells the tag


@pytest.mark.slow
def test_all_small_tables_are_made(tmp_path):
    names = [name for name in pmtl.MEASURES if name != "networks"]
    found = pmtl.main(["--quick", "--only", *names, "--output", str(tmp_path)])
    assert all(found[name] for name in names)


def test_settings_are_chosen_on_validation_rows():
    rows = [
        {"valid": 3.0, "test": 0.0, "epsilon": 2.0},
        {"valid": 2.0, "test": 1.0, "epsilon": 1.0},
        {"valid": 1.0, "test": 9.0, "epsilon": 0.5},
        {"valid": 9.0, "test": 5.0, "epsilon": np.inf},
    ]
    assert pmtl.chosen(rows, 1.0, 1.0)["test"] == 1.0
    assert pmtl.chosen(rows, 1.0, -1.0)["test"] == 9.0
    assert pmtl.chosen(rows, np.inf, 1.0)["test"] == 5.0
    assert pmtl.chosen(rows, 0.1, 1.0) is None


def test_the_page_shows_files_that_are_stored():
    files = re.findall(r":file: (\S+)", PAGE.read_text(encoding="utf-8"))
    assert len(files) >= 7
    assert all((PAGE.parent / name).is_file() for name in files)


def test_stored_theorem_1_noise_is_sound():
    ratios = [
        float(row["sigma, Theorem 1"]) / float(row["sigma, replace-one"])
        for row in stored("theorem_1")
    ]
    assert 1.5 < min(ratios) and max(ratios) < 4.2


def test_stored_gaps_have_the_slopes_of_the_page():
    slopes = {
        (row["method"], row["varied"], row["noise"]): float(row["slope"])
        for row in stored("theorems")
    }
    assert slopes["algorithm-1", "m", "yes"] == pytest.approx(-2.0, abs=0.1)
    assert slopes["algorithm-1", "epsilon", "yes"] == pytest.approx(-1.6, abs=0.1)
    assert slopes["algorithm-1", "T", "yes"] > 2


def test_stored_squared_gradients_have_the_slopes_of_the_page():
    slopes = {(row["varied"], row["noise"]): float(row["slope"]) for row in stored("nonconvex")}
    assert slopes["m", "yes"] == pytest.approx(-2.0, abs=0.1)
    assert slopes["epsilon", "yes"] == pytest.approx(-1.4, abs=0.1)
    assert abs(slopes["E", "yes"]) < 0.1 and slopes["E", "no"] < -0.4
    assert slopes[pmtl.SAME_STEPS, "yes"] < -0.4
