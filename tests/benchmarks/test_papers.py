"""The scripts of the papers on small data, and the files that their pages show."""

import re
from pathlib import Path

import numpy as np
import pytest

from benchmarks.papers import fedmtl, meta, mp_mtl, pmtl

PAGES = Path(__file__).parents[2] / "doc" / "papers"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("paper", [fedmtl, meta, mp_mtl, pmtl], ids=lambda paper: paper.__name__)
def test_all_small_tables_are_made(paper, tmp_path):
    pytest.importorskip("torch")
    found = paper.main(["--quick", "--output", str(tmp_path)])
    assert found and all(found.values())


def test_small_tables_of_private_rounds(tmp_path):
    found = mp_mtl.main(["--quick", "--only", "leak", "noise", "--output", str(tmp_path)])
    cosines = {row["setting"]: row["cosine"] for row in found["leak"]}
    assert cosines["no noise"] > 0.999 > cosines["alone"]
    ratios = [row["mean"] for row in found["noise"] if row["method"].startswith("Algorithm 2")]
    assert ratios[0] > ratios[-1] > 0  # models grow from zero, noise is larger than they are
    only = ["--only", "theorem_1", "sampling", "sparse"]
    more = pmtl.main(["--quick", *only, "--output", str(tmp_path)])
    assert {row["method"] for row in more["sparse"]} == set(pmtl.SHARING) - {"concatenated"}
    printed, *_ = (r for r in more["sampling"] if r["metric"] == "length over mean")
    assert printed["method"] == "algorithm-1" and printed["epsilon"] == np.inf
    assert printed["q/m 5/20"] == "4.0000"
    for paper, names in (("mp_mtl", found), ("pmtl", more)):
        assert all((tmp_path / f"{paper}_{name}.csv").is_file() for name in names)


def test_validation_rows_are_training_rows():
    data = mp_mtl.low_rank(0, quick=True)
    folds = list(data.folds(5))
    values = np.concatenate([fold.test[1] for fold in folds])
    np.testing.assert_array_equal(np.sort(values), np.sort(data.train[1]))
    for fold in folds:
        assert not set(fold.train[1]) & set(fold.test[1])


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


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.rst")), ids=lambda page: page.stem)
def test_pages_show_files_that_are_stored(page):
    files = re.findall(r":file: (\S+)", page.read_text(encoding="utf-8"))
    assert all((page.parent / name).is_file() for name in files)
