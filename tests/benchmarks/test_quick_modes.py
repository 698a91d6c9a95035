"""Each script of measurements runs in its quick mode."""

import pytest

from benchmarks import run, startup
from benchmarks.reproduce import fedmtl, fedmtl_overhead

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("suite", ["peers", "path", "kernels", "threads", "scale"])
def test_suite_runs_quickly(suite):
    only = {"threads": ["LocalOnly"], "scale": ["MPMTLLowRank(epsilon=1.0)"]}.get(suite, [])
    assert run.main([suite, "--quick", *(["--only", *only] if only else [])])


def test_startup_runs_quickly():
    cold, warm = [float(row["seconds"]) for row in startup.main(["--quick"])][2:]
    assert cold > warm  # a second process finds the loops compiled


def test_fedmtl_writes_its_table(tmp_path):
    rows = fedmtl.main(["--quick", "--output", str(tmp_path / "table.csv")])
    assert len((tmp_path / "table.csv").read_text().splitlines()) == len(rows) + 1 > 1


def test_fedmtl_overhead_draws_its_figures(tmp_path):
    assert fedmtl_overhead.main(["--quick", "--output", str(tmp_path)])
    assert list(tmp_path.glob("*.png"))
