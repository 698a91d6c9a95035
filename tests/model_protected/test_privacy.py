"""Votes, noise and cost of what the model-protected estimators release; see the contract, too."""

import numpy as np
import pytest

import skpmtl
from skpmtl.exchange import Population
from skpmtl.model_protected.plan import (
    MomentPlan,
)
from skpmtl.privacy import audit
from tests.helpers.sites import Sites

CHANGED = 2  # the task whose data are replaced


@pytest.mark.filterwarnings("ignore:The noise of this fit is reproducible")
@pytest.mark.parametrize("adjacency", ["replace-one", "zero-out"])
def test_levels_far_from_zero_are_zoomed_into(adjacency, tmp_path):
    """In the budget share of the mean level, also where sites add up, and for a neighbour."""
    rng = np.random.default_rng(0)
    task = np.repeat(np.arange(60), 6)
    X = rng.normal(size=(len(task), 3))
    y = 1e4 + rng.normal(size=60)[task] + X.sum(axis=1) + rng.normal(size=len(task))
    est = skpmtl.MPMTLLowRank(epsilon=40.0, adjacency=adjacency, tasks=range(60), random_state=0)
    est.fit(X, y, task=task)
    releases = est.privacy_.releases
    zooms = [entry for entry in releases if "bins of a window" in entry["statistic"]]
    assert zooms and all(entry["name"] == "level" for entry in zooms)
    assert est.level_ == pytest.approx(1e4, abs=2.0) and est.level_spread_ < 30.0
    skpmtl.save_billboard(est, tmp_path / "billboard.npz")
    assert skpmtl.load_billboard(tmp_path / "billboard.npz").level_ == est.level_
    levels = MomentPlan(est, Population(np.arange(60), 3)).levels
    for share, part in levels.shares.items():
        squares = [(e["sensitivity"] / e["noise_std"]) ** 2 for e in releases if e["name"] == share]
        assert sum(squares) == pytest.approx(part * levels.mu**2, rel=1e-6)
    billboard = Sites(est, (X, y, task), np.array_split(np.arange(60), 3)).run()
    for sent, one in zip(billboard.releases, est.billboard_.releases, strict=True):
        np.testing.assert_allclose(sent, one, rtol=1e-5, atol=1e-5 * np.abs(one).max())
    other = y.copy()
    other[task == CHANGED] = -3.0
    if adjacency == "zero-out":
        keep = task != CHANGED
        neighbour = X[keep], other[keep], task[keep]
    else:
        neighbour = X, other, task
    found = audit(
        est.set_params(random_state=None), (X, y, task), neighbour, replay=True, n_draws=0
    )
    assert found.passed, str(found)
