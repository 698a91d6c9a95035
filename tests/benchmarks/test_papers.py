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
def test_small_tables_with_torch_are_made(paper, tmp_path):
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


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.rst")), ids=lambda page: page.stem)
def test_pages_show_files_that_are_stored(page):
    files = re.findall(r":file: (\S+)", page.read_text(encoding="utf-8"))
    assert all((page.parent / name).is_file() for name in files)
