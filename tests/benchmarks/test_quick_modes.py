"""Each script of measurements runs in its quick mode."""

import pytest

from benchmarks import run
from benchmarks.peers import levels

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("suite", ["peers", "path", "scale"])
def test_suite_runs_quickly(suite):
    only = {"scale": ["MPMTLLowRank(epsilon=1.0)"]}.get(suite, [])
    assert run.main([suite, "--quick", *(["--only", *only] if only else [])])


def test_levels_run_quickly():
    rows = levels.main(["--quick"])
    assert {"mixed", "PrivateMTL"} <= {row["peer"] for row in rows}
