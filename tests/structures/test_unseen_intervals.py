"""Intervals of tasks without rows: the family that reads the histogram, and what it covers."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skpmtl import MPMTLGroupSparse, MPMTLLowRank, PrivateMTL

pytestmark = pytest.mark.filterwarnings("ignore:The noise of this fit is reproducible")


def nested(m=250, n=12, seed=0):
    rng = np.random.default_rng(seed)
    task = np.repeat(np.arange(m), n)
    X = rng.normal(size=(m * n, 3))
    level = rng.normal(size=m)[task]
    return X, 1.0 + X @ [1.0, -1.0, 0.5] + level + rng.normal(size=m * n), task


@pytest.mark.parametrize("epsilon, least, most", [(None, 0.85, 0.96), (5.0, 0.82, 0.96)])
@pytest.mark.parametrize("cls", [PrivateMTL, MPMTLLowRank, MPMTLGroupSparse])
def test_intervals_of_tasks_without_rows_cover(cls, epsilon, least, most):
    X, y, task = nested()
    known = task < 200
    est = cls(
        epsilon=epsilon,
        tasks=range(205),
        unseen_task="mean",
        uncertainty="unseen",
        random_state=0,
        target_range=None if cls is PrivateMTL else (-9.0, 9.0),
    ).fit(X[known], y[known], task=task[known])
    Z, v, of = X[~known], y[~known], task[~known]
    low, high = est.predict_interval(Z, task=of).T
    assert least < np.mean((low <= v) & (v <= high)) < most
    assert np.ptp(high - low) < 1e-9
    assert np.mean(high - low) == pytest.approx(2.0 * 1.645 * np.sqrt(2.0), rel=0.25)
    mean, std = est.predict(Z, task=of, return_std=True)
    assert_allclose(mean, 0.5 * (low + high))
    inside = est.predict_interval(Z, task=of, coverage=0.6827)
    assert_allclose(inside[:, 1] - mean, std)
    own = est.predict(X[known], task=task[known], return_std=True)[1]
    assert own.mean() < 0.9 * std.mean()  # who has rows knows more
    if epsilon is None:
        return
    assert "residuals" in [entry["name"] for entry in est.privacy_.releases]
    assert est.privacy_.epsilon <= epsilon * (1.0 + 1e-9)
    there = cls.from_billboard(est.export_billboard(), unseen_task="mean")
    assert_array_equal(there.predict_interval(Z, task=of), est.predict_interval(Z, task=of))


def test_few_tasks_get_a_warning():
    X, y, task = nested(m=40)
    est = PrivateMTL(
        epsilon=1.0,
        tasks=range(40),
        unseen_task="mean",
        uncertainty="unseen",
        random_state=0,
        target_range=(-9.0, 9.0),
    )
    with pytest.warns(UserWarning, match="counts of 40 tasks whose noise.*say little"):
        est.fit(X, y, task=task)
