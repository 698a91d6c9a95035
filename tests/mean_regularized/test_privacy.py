"""What mean-regularised rounds publish: sensitivity, calibration, the report."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skpmtl import PrivateMeanRegMTL
from skpmtl.exchange.protocol import run
from skpmtl.mean_regularized.plan import MeanPlan
from skpmtl.privacy import gdp_mu
from skpmtl.privacy.rng import SeededSource
from skpmtl.rounds.curator import release_centre
from skpmtl.rounds.plan import BlockGaussian
from skpmtl.tables.table import TaskTable
from tests.helpers.plain_reference import listed_classes

M = 6
TASKS = list(range(M))


def rows(kind=0, seed=0, d=5, scale=1.0):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(5, 12, M)
    X = scale * rng.normal(size=(sizes.sum(), d))
    y = [X[:, 0] + 0.2, np.sign(X[:, 0] + 1e-9), rng.integers(0, 3, len(X))][kind].astype(float)
    return TaskTable(X, y, np.concatenate([[0], np.cumsum(sizes)]), np.arange(M))


# ------------------------------------------------------------------------- calibration
def fit(cls=PrivateMeanRegMTL, kind=0, **parameters):
    table = rows(kind)
    task = np.repeat(np.arange(M), table.sizes)
    public = {"tasks": TASKS, "epsilon": 1.0, "delta": 1e-3, **listed_classes(cls, table.y)}
    public["clip_norm"] = 1.0
    return cls(**{**public, **parameters}).fit(table.X, table.y, task=task)


@pytest.mark.parametrize("adjacency, c", [("zero-out", 1), ("replace-one", 2)])
def test_all_tasks_noise(adjacency, c):
    est = fit(adjacency=adjacency, clip_norm=0.7, n_rounds=8)
    sigma = c * 0.7 * math.sqrt(8) / (M * gdp_mu(1.0, 1e-3))
    assert_allclose(est.privacy_.noise_std, np.full(8, sigma), rtol=1e-6)
    assert_allclose(est.privacy_.sensitivity, np.full(8, c * 0.7 / M))
    assert est.privacy_.mu == pytest.approx(gdp_mu(1.0, 1e-3))
    assert est.privacy_.guarantee == "joint DP per task"
    assert len(est.billboard_.releases) == 8 == len(est.privacy_.releases)


class _Tasks:
    """A task side: `contribute` adds to the sum of updates."""

    def __init__(self, contribute):
        self.contribute = contribute

    def answer(self, query):
        total = np.zeros(query.public["centre"].shape)
        self.contribute(query.pick, query.public["centre"], query.public["clip_norm"], total)
        return {"update": total}


class _Settings:
    """The parameters that `MeanPlan` reads."""

    epsilon, delta, adjacency = 1.0, 1e-3, "zero-out"
    clip_norm, clusters = 1.0, None
    _log_loss, _n_servers, standard_errors = False, 1, False

    def _is_private(self):
        return True

    def _n_rounds(self, epsilon):
        return 5


def test_sums_that_grow_are_an_error_without_noise_alone():
    """With noise it would tell about rows."""

    def course(multiplier):
        plan, sums = MeanPlan(_Settings(), M, 3), iter(100.0 ** np.arange(5))
        plan.noise_multiplier = multiplier

        def contribute(pick, anchor, clip_norm, total):
            total += next(sums)

        curator = release_centre(plan, np.zeros(M, dtype=int), np.zeros((1, 3)))
        return run(curator, _Tasks(contribute), SeededSource(np.random.default_rng(0)))

    with pytest.raises(ValueError, match="The rounds diverged"):
        course(None)
    assert len(course(1.0)[0]) == 5


# ----------------------------------------------------------------------------- options
def test_clusters_cost_nothing():
    one = fit(n_rounds=4)
    two = fit(n_rounds=4, clusters={k: k % 2 for k in TASKS})
    assert two.privacy_.epsilon == one.privacy_.epsilon
    assert two.privacy_.mu == one.privacy_.mu
    assert_allclose(two.privacy_.noise_std, one.privacy_.noise_std, rtol=1e-5)
    assert two.billboard_.mean.shape == (2, 5)
    # w~ of a cluster moves by the sum of its tasks over their number.
    assert_allclose(two.billboard_.mean, 2 * np.sum(two.billboard_.releases, axis=0))


def test_noise_is_added_to_the_array_that_is_released():
    """Also when it is not in C order, where a flat view would be a copy."""
    mechanism = BlockGaussian(12, 1.0, 1.0)
    value = np.asfortranarray(np.zeros((3, 4)))
    released = mechanism.release(value, SeededSource(np.random.default_rng(0)))
    assert released.shape == (3, 4)
    assert np.abs(released).min() > 0
