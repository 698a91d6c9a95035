"""Each script of measurements runs in its quick mode."""

import pytest

from benchmarks import scale
from benchmarks.peers import exact, levels, path

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("suite", [exact, path, scale], ids=lambda suite: suite.__name__)
def test_suite_runs_quickly(suite):
    only = ["--only", "MPMTLLowRank(epsilon=1.0)"] if suite is scale else []
    assert suite.main(["--quick", *only])


def test_levels_run_quickly():
    rows = levels.main(["--quick"])
    assert {"mixed", "PrivateMTL"} <= {row["peer"] for row in rows}
