"""Votes, noise and cost of what the model-protected estimators release; see the contract, too."""

import math

import numpy as np
import pytest

import skpmtl
from skpmtl.exchange import Population
from skpmtl.model_protected import plan as plans
from skpmtl.model_protected.plan import (
    LevelPlan,
    MomentPlan,
    n_releases_for,
    shared_budget,
)
from skpmtl.privacy import audit, gdp_mu
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
    defaults = {
        "n_releases": 3,
        "epsilon": 2.0,
        "delta": 1e-3 if mechanism == "gaussian" else None,
        "tasks": [0, 1, 2, 3, 4],
        "alpha": 0.3,
    }
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
@pytest.mark.parametrize(
    ("m", "d"), [(12, 5), (60, 5), (300, 5), (300, 50), (20_000, 5), (400, 2000)]
)
@pytest.mark.parametrize("unseen", [False, True])
def test_all_that_may_be_released_costs_the_budget(m, d, adjacency, unseen):
    """Moments, votes, votes on evidence, levels and a mean, whichever of them a plan has."""
    more = {"unseen_task": "mean", "target_range": (-1.0, 1.0)} if unseen else {}
    est = skpmtl.MPMTLLowRank(epsilon=2.0, delta=1e-5, adjacency=adjacency, **more)
    plan = MomentPlan(est, Population(np.arange(m), d))
    n_releases = 1 if plan.ratio < 4.0 else 2 if plan.ratio < 20.0 else 3
    assert (len(plan.moment), len(plan.vote)) == (n_releases, n_releases + 1)
    assert plan.refine is None or len(plan.refine) == 3 * n_releases
    assert m < 20_000 or (plan.refine and n_releases == 3)
    assert d < 2000 or (plan.refine and n_releases == 1)
    assert (m, d) != (300, 50) or (plan.refine and n_releases == 2)
    made = [*plan.moment, *plan.vote, *(plan.refine or ()), *filter(None, [plan.mean])]
    parts = np.array([moment.mu**2 for moment in plan.moment])
    parts /= parts.sum()
    if plan.refine is not None and n_releases > 1:  # blocks need less than what they refine
        rest = 0.55 / (n_releases - 1)
        np.testing.assert_allclose(parts, [0.45] + [rest] * (n_releases - 1))
    else:
        np.testing.assert_allclose(parts, np.full(n_releases, 1.0 / n_releases))
    spent = sum(mechanism.mu**2 for mechanism in made)
    if plan.levels is not None:
        spent += plan.mu**2 * sum(plan.levels.shares.values())
    assert spent == pytest.approx(plan.mu**2, rel=1e-9)
    per_task = {"replace-one": 1.0, "zero-out": math.sqrt(2.0)}[adjacency]
    assert LevelPlan.z(Population(np.arange(m), d), 0.5, adjacency) == 0.5 * per_task * m


@pytest.mark.parametrize("loss, reported", [("squared", None), ("huber", "huber")])
def test_reports_list_losses_other_than_squared(loss, reported):
    plan = MomentPlan(skpmtl.MPMTLLowRank(loss=loss), Population(np.arange(50), 4))
    assert plan.public_inputs().get("loss") == reported


@pytest.mark.parametrize("adjacency", ["replace-one", "zero-out"])
@pytest.mark.parametrize(
    ("cls", "given", "window", "least"),
    [
        (skpmtl.MPMTLLowRank, {}, None, 60.0),
        (skpmtl.MPMTLLowRank, {"target_range": (-1.0, 5.0)}, (2.0, 3.0), 33.0),
        (skpmtl.MPMTLLowRank, {"loss": "poisson"}, None, 60.0),
        (skpmtl.MPMTLLowRankClassifier, {}, (0.0, 4.0), 33.0),
    ],
)
def test_levels_have_the_sensitivities_of_their_bounds(cls, given, window, least, adjacency):
    """In parts of their budget shares, from so many tasks times mu on."""
    per_task = {"replace-one": 1.0, "zero-out": math.sqrt(2.0)}[adjacency]
    both = {"replace-one": 2.0, "zero-out": 1.0}[adjacency]
    population, est = Population(np.arange(100), 5), cls(adjacency=adjacency, **given)
    far, mu = 1.0001 * least / (100.0 * per_task), least / per_task / 20.0
    assert LevelPlan.of(est, population, 0.999 * far, adjacency) is None
    assert LevelPlan.of(est, population, far, adjacency) is not None
    plan = LevelPlan.of(est, population, mu, adjacency)
    classes = est._log_loss
    assert plan.window == window and plan.all_pooled is False
    z, shares = 5.0 * least, {"level": 0.04, "noise": 0.01, "spread": 0.02}
    if classes:
        shares = {"level": 0.04, "spread": 0.03}
    if window is None:
        shares["window"] = min(max((18.5 / z) ** 2, 0.005), 0.05)
    assert plan.shares == pytest.approx(shares)
    one_bin = math.sqrt(2.0) / math.sqrt(2.0 / both)
    evidence = (12, 2.0 * both, "spread", 1.0)
    made = {
        "of_mean": (1, 3.0 * both, "level", 0.7),
        "spread": evidence if classes else (1, 0.5 * both, "spread", 1.0),
    }
    if not classes:
        made["noise"] = (1, 0.5 * both, "noise", 1.0)
    if window is None:
        made["histogram"] = (2 * 80, one_bin, "window", 1.0 if classes else 0.8)
        made["inside"] = (2, both * math.sqrt(0.5), "window", 0.2)
    for name, (size, sensitivity, share, part) in made.items():
        found = getattr(plan, name)
        found = found(3.0, 0.7) if name == "of_mean" else found
        assert found.shape == (size,) and found.sensitivity == pytest.approx(sensitivity), name
        assert found.mu == pytest.approx(mu * math.sqrt(shares[share] * part)), name
    assert plan.of_mean(3.0).mu == pytest.approx(mu * math.sqrt(0.04))
    zooms = [(part, mechanism) for (share, part), mechanism in plan.zooms() if share == "level"]
    assert len(zooms) == len(plan.zooms()) and sum(part for part, _ in zooms) <= 0.6 + 1e-12
    for part, zoom in zooms:
        assert zoom.shape == (32,) and zoom.sensitivity == pytest.approx(one_bin)
        assert zoom.mu == pytest.approx(mu * math.sqrt(0.04 * part))
    exact = LevelPlan(est, population, math.inf, adjacency)
    assert exact.of_mean(1.0) is exact.spread is None
    pooled = cls(adjacency=adjacency, levels="pooled", **given)
    assert LevelPlan.of(pooled, population, far, adjacency).all_pooled
    with pytest.raises(ValueError, match='target_range=\\(low, high\\), or levels="auto"'):
        LevelPlan.of(pooled, population, 0.9 * far, adjacency)
    for none in ({"levels": "free"}, {"fit_intercept": False}):
        est = cls(adjacency=adjacency, **given, **none)
        assert LevelPlan.of(est, population, mu, adjacency) is None


@pytest.mark.parametrize("adjacency", ["replace-one", "zero-out"])
@pytest.mark.parametrize(
    ("cls", "mechanism"),
    [
        (skpmtl.MPMTLLowRank, "gaussian"),
        (skpmtl.MPMTLLowRank, "wishart"),
        (skpmtl.MPMTLGroupSparse, "gaussian"),
        (skpmtl.MPMTLGroupSparse, "laplace"),
    ],
)
def test_the_number_of_moments_follows_from_signal_over_noise(cls, mechanism, adjacency):
    """Below 4 one, below 20 two; of the pure kinds one, at epsilon over sqrt(2)."""
    pure, diagonal, d, seen = mechanism != "gaussian", cls is skpmtl.MPMTLGroupSparse, 7, set()
    for m in (12, 25, 60, 90, 200, 700, 2000):
        est = cls(
            epsilon=2.0,
            delta=None if pure else 1e-5,
            mechanism=mechanism,
            adjacency=adjacency,
            levels="free",
            unseen_task="mean",
            target_range=(-2.0, 6.0),
        )
        plan = MomentPlan(est, Population(np.arange(m), d))
        apart = {  # farthest distance of two u u', or u * u, and the length of one
            "gaussian": (math.sqrt(2.0), 1.0),
            "wishart": (2.0, 1.0),
            "laplace": (2.0, 1.0),
        }[mechanism][adjacency == "zero-out"]
        edge = math.sqrt(2.0 * (math.log(d) if diagonal else d))
        mu = 2.0 / math.sqrt(2.0) if pure else plan.mu
        assert plan.ratio == pytest.approx(m * mu / (apart * edge))
        assert all(moment.sensitivity == pytest.approx(apart) for moment in plan.moment)
        number = 1 if pure or plan.ratio < 4.0 else 2 if plan.ratio < 20.0 else 3
        seen.add(number)
        assert len(plan.moment) == number == len(plan.vote) - 1
        # Votes have a noise of 0.3 in the mean, or an eighth of what the mean model leaves.
        reach = 4.5 * (1.0 if adjacency == "replace-one" else 0.5)
        share = min(0.125, (number + 1) * (reach / (0.3 * m * mu)) ** 2) * 0.7 / (number + 1)
        both, whole = {"replace-one": 2.0, "zero-out": 1.0}[adjacency], plan.mu
        bound = est.clip_norm * both / m
        assert plan.vote[0].sensitivity == pytest.approx(reach)
        assert plan.mean.shape == (d + 1,)
        if pure:
            assert plan.mean.sensitivity == pytest.approx(math.sqrt(d + 1) * bound)
            parts = np.array([*(e.epsilon for e in plan.vote), plan.mean.epsilon])
            expected = np.array([share] * (number + 1) + [0.3])
            np.testing.assert_allclose(parts / parts.max(), expected / expected.max())
        else:
            assert plan.mean.sensitivity == pytest.approx(bound)
            assert plan.mean.mu == pytest.approx(whole * math.sqrt(0.3))
            assert plan.vote[0].mu == pytest.approx(whole * math.sqrt(share))
        public, entries = plan.public_inputs(), plan.releases()
        assert public["n_moment_releases"] == number and public["n_features"] == d
        assert public["clip_norm"] == est.clip_norm and public["target_range"] == (-2.0, 6.0)
        assert public["vote_range"] == (-1.5, 3.0) and "relation" not in public
        names = [e["name"] for e in entries if "evidence" not in e["name"]]
        rounds = [f"{kind} {t + 1}" for t in range(number) for kind in ("vote", "moment")]
        assert names == [*rounds, f"vote {number + 1}", "mean"]
        words = "w * w" if diagonal else "w w'"
        assert words in entries[1]["statistic"] and ("||w * w||" in entries[1]["statistic"]) == (
            diagonal and not pure
        )
    assert seen == ({1} if pure else {1, 2, 3})


def test_rounds_of_a_relation_go_far_where_they_are_few():
    """Covariates with a wide range: twice as far in ten rounds at little budget; else none."""
    m, d = 60, 6
    found = []
    for epsilon in (0.1, 1.5, 1000.0):
        est = skpmtl.MPMTLLowRank(epsilon=epsilon, delta=1e-5)
        rounds = plans.rounds_of(est, Population(np.arange(m), d), 3)
        found.append(None if rounds is None else (rounds.n_rounds, rounds.path))
        if rounds is not None:
            mu = MomentPlan(est, Population(np.arange(m), d)).mu * math.sqrt(0.35)
            assert rounds.mu == pytest.approx(mu) and rounds.size == 3 * d
            assert rounds.ratio == pytest.approx(m / 3 * mu / math.sqrt(d))
    assert found[:2] == [None, (10, 2.0)] and found[2][0] == 100
    exact = plans.rounds_of(skpmtl.MPMTLLowRank(epsilon=None), Population(np.arange(m), d), 3)
    assert exact.n_rounds == 30 and exact.noise_multiplier is None and exact.size == 3 * d


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


def test_number_of_releases_follows_the_signal_over_the_edge():
    """The edge is sqrt(2 d) for matrices and sqrt(2 log d) for diagonals, at least of two."""
    assert n_releases_for(100, 8, 0.16, 1.0, False) == (2, pytest.approx(4.0, rel=1e-15))
    assert n_releases_for(99, 8, 0.16, 1.0, False)[0] == 1
    assert n_releases_for(100, 8, 0.8, 1.0, False)[0] == 3
    assert n_releases_for(99, 8, 0.8, 1.0, False)[0] == 2
    for d, edge in ((50, math.sqrt(2 * math.log(50))), (1, math.sqrt(2 * math.log(2)))):
        assert n_releases_for(30, d, 0.5, 2.0, True)[1] == pytest.approx(7.5 / edge)


def test_further_releases_have_their_share():
    """Of mu^2 or, without delta, of epsilon; moments divide what is left."""
    for_moments, extra = shared_budget(
        "laplace", 2.0, 0.0, np.array([1.0, 3.0]), extra=[0.1, 0.3], method="basic"
    )
    assert for_moments == pytest.approx([0.3, 0.9]) and extra == pytest.approx([0.2, 0.6])
    mu = gdp_mu(2.0, 1e-5)
    for_moments, extra = shared_budget(
        "gaussian", 2.0, 1e-5, np.array([3.0, 4.0]), extra=[0.09, 0.27]
    )
    assert for_moments == pytest.approx(mu * 0.8 * np.array([0.6, 0.8]))
    assert extra == pytest.approx(mu * np.sqrt([0.09, 0.27]))
