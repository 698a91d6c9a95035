"""Tasks unlike all others under a released prior: what they chose, which is theirs alone."""

import numpy as np
import pytest

from benchmarks.outliers import measured
from tests.helpers.data import rows_of

pytestmark = pytest.mark.filterwarnings("ignore:The noise of this fit:skpmtl.PrivacyLeakWarning")
M, N, D = 100, 20, 8


def tasks_with_outliers(seed=0):
    """-> X, y, task, which of the tasks have models outside of the subspace of the others"""
    rng = np.random.default_rng(seed)
    W = 2.0 * rng.normal(size=(M, 1)) * np.eye(D)[0]
    off = np.arange(M) % 5 == 0
    W[off] = 1.5 * rng.normal(size=(off.sum(), D))
    return *rows_of(rng, W, N, noise=1.0), off


def fit(cls, options, X, y, task):
    known = {"epsilon": 5.0, "delta": 1e-5, "tasks": range(M), "random_state": 0}
    return cls(**known, **options).fit(X, y, task=task)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.1, 0.2, 0.4])
def test_outliers_cost_the_others_less_than_an_exact_trace_norm(share):
    errors = {row["method"]: float(row["all"]) for row in measured(share, 100)}
    for epsilon in (1, 10):
        with_outliers = errors[f"private with outliers, epsilon {epsilon}"]
        assert with_outliers <= errors[f"private, epsilon {epsilon}"]
        assert with_outliers < errors["trace norm"]
