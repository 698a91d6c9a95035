"""Tasks unlike all others: what they cost the rest."""

import numpy as np
import pytest

from benchmarks.outliers import measured

pytestmark = pytest.mark.filterwarnings("ignore:The noise of this fit:skpmtl.PrivacyLeakWarning")


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.1, 0.2, 0.4])
def test_outliers_cost_the_others_less_than_an_exact_trace_norm(share):
    """The strength of the trace norm is the best one of a grid by the true models."""
    rows = [row for seed in range(4) for row in measured(share, seed)]

    def mean(method, part):
        return np.mean([float(row[part]) for row in rows if row["method"] == method])

    for part in ("all", "others"):
        assert mean("private, epsilon 10", part) < 0.9 * mean("trace norm", part)
    assert mean("private, epsilon 1", "others") < 1.25 * mean("trace norm", "others")
