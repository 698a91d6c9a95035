"""What the model-protected estimators disclose: every release, and nothing else.

The releases of a fit are played to fits of neighbours, since a release may depend on earlier ones
in any way but on a task only within its bound.
"""

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

ESTIMATORS = [MPMTLLowRank, MPMTLGroupSparse, MPMTLLowRankClassifier, MPMTLGroupSparseClassifier]
ALGORITHMS = ["empirical-bayes", "proximal"]
CHANGED = 2  # the task whose data are replaced
COMBINATIONS = [
    (cls, algorithm, mechanism)
    for cls in ESTIMATORS
    for algorithm in ALGORITHMS
    for mechanism in ("gaussian", "wishart", "laplace")
    if mechanism != "laplace" or cls._diagonal
]
IDS = ["-".join((c.__name__.removeprefix("MPMTL"), a, m)) for c, a, m in COMBINATIONS]
everything = pytest.mark.parametrize("cls, algorithm, mechanism", COMBINATIONS, ids=IDS)


def problem(cls, sizes=(9, 14, 11, 20, 6), d=4):
    return plain.make_rows(list(sizes), d, 0, labels=cls._classification)


def neighbours(X, y, task, labels):
    """name -> the same data with another task `CHANGED`."""
    rng = np.random.default_rng(1)
    old = task == CHANGED
    n, d = old.sum(), X.shape[1]

    def with_task(new_X, new_y):
        where = np.searchsorted(task, CHANGED)
        merged = np.insert(X[~old], where, new_X, axis=0), np.insert(y[~old], where, new_y)
        return *merged, np.insert(task[~old], where, np.full(len(new_y), CHANGED))

    def target(size):
        if not labels:
            return 5 * rng.standard_normal(size)
        return np.where(np.arange(size) % 2, 1.0, -1.0)

    # Extreme numbers, no rows and rows of one class: see the contract.
    yield "values", with_task(rng.standard_normal((n, d)), target(n))
    yield "scale of one feature", with_task(X[old] * np.array([1e6] + [1] * (d - 1)), y[old])
    yield "targets", with_task(X[old], -y[old] if labels else 1e6 * y[old] + 1e7)
    yield "separable", with_task(np.tile(np.arange(n) % 2 - 0.5, (d, 1)).T, target(n))
    yield "many rows", with_task(rng.standard_normal((300, d)), target(300))


def estimator_of(cls, algorithm, mechanism, **parameters):
    defaults = {"n_releases": 3, "epsilon": 2.0, "delta": 1e-3 if mechanism == "gaussian" else None,
                "tasks": [0, 1, 2, 3, 4], "alpha": 0.3}  # fmt: skip
    if cls._classification:
        defaults["classes"] = [-1, 1]
    return cls(algorithm=algorithm, mechanism=mechanism, **{**defaults, **parameters})


@everything
@pytest.mark.parametrize("adjacency", ["replace-one", "zero-out"])
@pytest.mark.spread(5)
def test_releases_move_within_their_sensitivity_and_are_all_there_is(
    cls, algorithm, mechanism, adjacency
):
    data = problem(cls)
    model = estimator_of(cls, algorithm, mechanism, adjacency=adjacency, unseen_task="mean")
    used = 0.0
    for name, other in neighbours(*data, cls._classification):
        found = audit(model, data, other, replay=True, n_draws=0)
        assert found.passed, (name, str(found))
        used = max(used, found.sensitivity_observed / found.sensitivity_stated)
    assert used > 0.2  # the bound is not idle either


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("cls", ESTIMATORS)
def test_other_tasks_of_a_wide_y_see_releases_only(cls, algorithm):
    """Features are shared; a task's labels, and which of them are known, are its own."""
    rng = np.random.default_rng(2)
    X = rng.standard_normal((30, 4))
    Y = X @ rng.standard_normal((4, 5)) + rng.standard_normal((30, 5))
    if cls._classification:
        Y = np.where(Y > 0, 1.0, -1.0)
    Y[:2] = [[1.0], [-1.0]]
    model = estimator_of(cls, algorithm, "gaussian", tasks="auto")
    for missing in (0.0, 0.9):
        Z = Y.copy()
        Z[2:, CHANGED] = -Z[2:, CHANGED]
        Z[2:, CHANGED][rng.random(28) < missing] = np.nan
        found = audit(model, (X, Y), (X, Z), replay=True, n_draws=0)
        assert found.passed, str(found)


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
