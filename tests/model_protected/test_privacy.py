"""Votes, noise and cost of what the model-protected estimators release; see the contract, too."""

import math

import numpy as np
import pytest

import skpmtl
from skpmtl.exchange import Population
from skpmtl.model_protected.plan import LevelPlan, MomentPlan
from skpmtl.privacy import audit
from skpmtl.privacy.tape import Tape
from skpmtl.reproduction import PublishedMPMTLGroupSparse as MPMTLGroupSparse
from skpmtl.reproduction import PublishedMPMTLGroupSparseClassifier as MPMTLGroupSparseClassifier
from skpmtl.reproduction import PublishedMPMTLLowRank as MPMTLLowRank
from skpmtl.reproduction import PublishedMPMTLLowRankClassifier as MPMTLLowRankClassifier
from tests.helpers import plain_reference as plain
from tests.helpers.sites import Sites

CHANGED = 2  # the task whose data are replaced
ESTIMATORS = [MPMTLLowRank, MPMTLGroupSparse, MPMTLLowRankClassifier, MPMTLGroupSparseClassifier]
COMBINATIONS = [
    (cls, algorithm, mechanism)
    for cls in ESTIMATORS
    for algorithm in ("empirical-bayes", "proximal")
    for mechanism in ("gaussian", "wishart", "laplace")
    if mechanism != "laplace" or cls._diagonal
]
IDS = ["-".join((c.__name__.removeprefix("MPMTL"), a, m)) for c, a, m in COMBINATIONS]
everything = pytest.mark.parametrize("cls, algorithm, mechanism", COMBINATIONS, ids=IDS)


def problem(cls, sizes=(9, 14, 11, 20, 6), d=4):
    return plain.make_rows(list(sizes), d, 0, labels=cls._classification)


def estimator_of(cls, algorithm, mechanism, **parameters):
    defaults = {"n_releases": 3, "epsilon": 2.0, "delta": 1e-3 if mechanism == "gaussian" else None,
                "tasks": [0, 1, 2, 3, 4], "alpha": 0.3}  # fmt: skip
    if cls._classification:
        defaults["classes"] = [-1, 1]
    return cls(algorithm=algorithm, mechanism=mechanism, **{**defaults, **parameters})


@pytest.mark.parametrize("cls", ESTIMATORS)
@pytest.mark.parametrize(("adjacency", "factor"), [("replace-one", 2.0), ("zero-out", 1.0)])
def test_votes_of_absent_tasks(cls, adjacency, factor):
    """Votes are centred, so that an absent task moves their sum by half the range."""
    model = estimator_of(cls, "empirical-bayes", "gaussian", adjacency=adjacency)
    # Extreme tasks reach the ends of the range and not beyond.
    Z = np.tile(np.linspace(-1, 1, 40)[:, None] * np.ones(4), (5, 1))
    y = np.sign(Z[:, 0]) if cls._classification else Z[:, 0]
    for data in (problem(cls), (Z, y, np.repeat(np.arange(5), 40))):
        with Tape().running() as tape:
            model.fit(*data)
        votes = tape.releases[::2]
        assert [vote.values.shape for vote in votes] == [(1, 1)] * 4
        for vote in votes:
            bound = 5 * vote.entry["sensitivity"] / factor
            assert np.abs(vote.values).max() <= bound * (1 + 1e-12)


@pytest.mark.slow
@everything
def test_two_hundred_fits_show_the_stated_noise(cls, algorithm, mechanism):
    data = problem(cls, sizes=(6, 7, 8), d=3)
    parameters = {"tasks": [0, 1, 2], "n_releases": 2, "unseen_task": "mean"}
    model = estimator_of(cls, algorithm, mechanism, **parameters)
    found = audit(model, data, data, replay=True, n_draws=200)
    assert found.passed, str(found)
    assert found.noise_ratio[0] == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("adjacency", ["replace-one", "zero-out"])
@pytest.mark.parametrize("m", [12, 60, 300, 20_000])
@pytest.mark.parametrize("unseen", [False, True])
def test_all_that_may_be_released_costs_the_budget(m, adjacency, unseen):
    """Moments, votes, votes on evidence, levels and a mean, whichever of them a plan has."""
    more = {"unseen_task": "mean", "target_range": (-1.0, 1.0)} if unseen else {}
    est = skpmtl.MPMTLLowRank(epsilon=2.0, delta=1e-5, adjacency=adjacency, **more)
    plan = MomentPlan(est, Population(np.arange(m), 5))
    n_releases = 1 if plan.ratio < 4.0 else 2 if plan.ratio < 20.0 else 3
    assert (len(plan.moment), len(plan.vote)) == (n_releases, n_releases + 1)
    assert plan.refine is None or len(plan.refine) == 3 * n_releases
    assert m < 20_000 or (plan.refine and n_releases == 3)
    made = [*plan.moment, *plan.vote, *(plan.refine or ()), *filter(None, [plan.mean])]
    spent = sum(mechanism.mu**2 for mechanism in made)
    if plan.levels is not None:
        spent += plan.mu**2 * sum(plan.levels.shares.values())
    assert spent == pytest.approx(plan.mu**2, rel=1e-9)
    per_task = {"replace-one": 1.0, "zero-out": math.sqrt(2.0)}[adjacency]
    assert LevelPlan.z(Population(np.arange(m), 5), 0.5, adjacency) == 0.5 * per_task * m


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
