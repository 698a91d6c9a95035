"""Each script of measurements runs in its quick mode."""

import pytest

from benchmarks import run, startup
from benchmarks.reproduce import (
    fedmtl,
    fedmtl_overhead,
    lsoa,
    mean_regularized,
    mean_regularized_figures,
    meta_learning,
    meta_learning_figures,
    model_protected,
)

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("suite", ["peers", "path", "kernels", "threads", "scale"])
def test_suite_runs_quickly(suite):
    only = {"threads": ["LocalOnly"], "scale": ["MPMTLLowRank(epsilon=1.0)"]}.get(suite, [])
    assert run.main([suite, "--quick", *(["--only", *only] if only else [])])


def test_startup_runs_quickly():
    cold, warm = [float(row["seconds"]) for row in startup.main(["--quick"])][2:]
    assert cold > warm  # a second process finds the loops compiled


@pytest.mark.parametrize(
    "script",
    [meta_learning, fedmtl, mean_regularized, lsoa],
    ids=lambda s: s.__name__.rpartition(".")[2],
)
def test_script_writes_its_table(script, tmp_path):
    rows = script.main(["--quick", "--output", str(tmp_path / "table.csv")])
    assert len((tmp_path / "table.csv").read_text().splitlines()) == len(rows) + 1 > 1


@pytest.mark.parametrize(
    "script",
    [model_protected, mean_regularized_figures, meta_learning_figures, fedmtl_overhead],
    ids=lambda script: script.__name__.rpartition(".")[2],
)
def test_script_draws_its_figures(script, tmp_path):
    assert script.main(["--quick", "--output", str(tmp_path)])
    assert list(tmp_path.glob("*.png"))
