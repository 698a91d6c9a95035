"""Whatever is released, a course spends what its plan says: curators on releases of chance."""

import math
from collections import Counter, defaultdict

import numpy as np
import pytest
from scipy.stats import norm

from skpmtl import PrivateMTL, PrivateMTLClassifier
from skpmtl.engine.curator import _Course
from skpmtl.engine.levels import scale_of
from skpmtl.engine.plan import STRUCTURES, StructurePlan
from skpmtl.exchange.protocol import Population
from skpmtl.privacy.moments import (
    DriftingAverage,
    sampling_variance,
    shrink_diagonal,
    shrink_matrix,
)
from skpmtl.privacy.rng import noise_source
from tests.helpers.courses import course_of, released
from tests.helpers.sites import play

SUBSETS = [
    STRUCTURES,
    STRUCTURES,
    ("low-rank",),
    ("mean",),
    ("low-rank", "mean"),
    ("sparse",),
    ("sparse", "mean"),
]


# Numbers with branches of their own that are rare among others: (parameters, m, d).
RARE = (
    ({"epsilon": 1.0, "target_range": (-5.0, 15.0)}, 200, 30),
    ({"epsilon": 10.0}, 400, 12),
    ({"epsilon": 10.0, "adjacency": "zero-out"}, 400, 12),
    ({"epsilon": 3.0, "structure": "mean"}, 200, 6),
    ({"epsilon": 10.0, "structure": "groups"}, 400, 12),
    (
        {
            "epsilon": 10.0,
            "structure": ["low-rank", "groups"],
            "adjacency": "zero-out",
            "target_range": (-5.0, 15.0),
        },
        400,
        12,
    ),
    ({"epsilon": 30.0, "structure": "groups", "target_range": (-5.0, 15.0)}, 400, 12),
    ({"epsilon": 5.0, "structure": "groups", "target_range": (-5.0, 15.0)}, 400, 12),
    ({"epsilon": 10.0, "structure": "groups", "loss": "poisson"}, 400, 12),
)


def drawn_estimator(rng):
    """Parameters of chance; all the branches that follow from them."""
    cls = PrivateMTLClassifier if rng.uniform() < 0.25 else PrivateMTL
    options = {
        "structure": list(SUBSETS[rng.integers(len(SUBSETS))]),
        "levels": ["auto", "auto", "auto", "free", "pooled"][rng.integers(5)],
        "epsilon": float(rng.choice([0.05, 0.3, 1.0, 3.0, 10.0, 30.0])),
        "adjacency": ["replace-one", "zero-out"][rng.integers(2)],
        "curator": ["trusted", "trusted", "servers", ("servers", 3)][rng.integers(4)],
        "unseen_task": ["error", "mean"][rng.integers(2)],
        "fit_intercept": bool(rng.uniform() < 0.85),
    }
    if cls is PrivateMTL and (options["unseen_task"], options["adjacency"]) == ("mean", "zero-out"):
        options["uncertainty"] = "unseen"
    if cls is PrivateMTL and rng.uniform() < 0.4:
        options["target_range"] = (-5.0, 15.0)
    m, d = int(rng.choice([20, 200, 200, 2000])), int(rng.choice([2, 6, 16]))
    C = 1 if cls is PrivateMTL or rng.uniform() < 0.7 else 3
    return cls(**options), Population(np.arange(m), d, C)


ONE_HOT = (
    "moment",
    "block",
    "size",
    "window",
    "zoom",
    "scale",
    "residuals",
    "reach",
    "cells",
    "groups",
)


def sensitivity(query, est, m, d, reach):
    """Of what is released, by the text of the plan."""
    one, bound = est.adjacency == "replace-one", query.public.get("clip_norm")
    pair = {
        "vote": (2.0 / m, math.sqrt(2.0) / m),
        "direction": (2.0 / m, 1.0 / m),
        "comparison": (2.0 * math.sqrt(2.0), math.sqrt(2.0)),
        "evidence": (4.0, 2.0),
        "mixtures": (4.0, 2.0),
        "noise": (1.0, 0.5),
        "columns": (1.0, 0.5),
        "inside": (math.sqrt(2.0), math.sqrt(0.5)),
        "octaves": (math.sqrt(2.0 * d), math.sqrt(d)),
        "spread": (4.0, 2.0) if est._log_loss else (1.0, 0.5),
        "intercept": (2.0 * reach / m, reach / m),
    }
    pair |= dict.fromkeys(ONE_HOT, (math.sqrt(2.0), 1.0))
    if bound is not None:
        pair |= dict.fromkeys(("update", "pooled"), (2.0 * bound / m, bound / m))
    return pair[query.statistic][0 if one else 1]


def branches(plan, course, queries):
    """Names of what was decided by parameters and by releases."""
    asked = Counter(query.statistic for query, _ in queries)
    shares = defaultdict(set)
    for (share, _, _), (query, _) in zip(course.made, queries, strict=True):
        shares[share].add(query.statistic)
    if not plan.budget_shares:
        return {"silent"}
    found = set()
    if not plan.levels:
        found.add("no levels")
    elif course.window is None and asked["inside"]:
        found.add("a window that tasks are not in")
    elif course.window is None:
        found.add("no window" + (" around a mean" if plan.structures == ("mean",) else ""))
        if "moment" in shares["pooled"]:
            found.add("moment in the budget share of the pooled model")
        if course.billboard.own_units:
            found.add("own units" + (" around a mean" if plan.structures == ("mean",) else ""))
    else:
        found.add("window" if asked["window"] else "public window")
        found |= {f"{asked['zoom']} zooms"}
        if "comparison 1" in shares:
            again = "pooled" in shares["main"]
            once = plan.looks_once and course.billboard.about_centre
            found.add("pooled again" if again else "about once" if once else "no second rounds")
        if "moment" in shares["comparison 2"]:
            found.add("a moment in place of a comparison")
        if "evidence" in shares["comparison 2"]:
            found.add("a vote on shapes")
    if asked["evidence"]:
        found |= {"rank", *(["blocks"] if asked["block"] else [])}
        found |= {"rival"} if "rival" in shares else set()
        found |= {"two blocks"} if asked["block"] == 2 else set()
        found |= (
            {"new directions"}
            if asked["block"]
            and (
                Counter(words for _, words, _ in course.made)[
                    "sum of clipped differences of log evidence, by weight of new directions"
                ]
            )
            else set()
        )
        found |= (
            {"sharpened late"} if "evidence" in shares["refine"] and not asked["block"] else set()
        )
    if plan.groups:
        found.add("groups" if asked["groups"] else "no groups")
        if not asked["reach"]:
            found.add("no spike")
        elif asked["cells"] > 1:
            found.add("cells twice")
        if asked["groups"]:
            found.add("groups about " + ("a mean" if course.billboard.about_centre else "0"))
            found |= {"groups after a block"} if asked["block"] else set()
            found |= {"groups of counts"} if plan.loss == "poisson" else set()
    if plan.looks_once:
        found.add("once")
    if asked["octaves"]:
        found.add("columns by " + plan.columns_from[0])
        if course.billboard.column_scale is None:
            found.add("no scales of columns")
    if asked["update"]:
        found.add("rounds of a mean")
    if asked["intercept"]:
        found.add("mean intercept")
    if course.billboard.level is not None and plan.log_loss:
        found.add("levels of classes")
    return found


EVERYWHERE = {
    "a window that tasks are not in",
    "0 zooms",
    "1 zooms",
    "2 zooms",
    "3 zooms",
    "silent",
    "no levels",
    "no window",
    "no window around a mean",
    "window",
    "public window",
    "moment in the budget share of the pooled model",
    "pooled again",
    "about once",
    "no second rounds",
    "own units",
    "own units around a mean",
    "a moment in place of a comparison",
    "a vote on shapes",
    "rank",
    "blocks",
    "rival",
    "two blocks",
    "new directions",
    "sharpened late",
    "once",
    "rounds of a mean",
    "mean intercept",
    "levels of classes",
    "groups",
    "no groups",
    "no spike",
    "cells twice",
    "groups about a mean",
    "groups about 0",
    "groups after a block",
    "groups of counts",
    "columns by main",
    "columns by pooled",
    "no scales of columns",
}


# What may be queried in a budget share: the table in doc/architecture.rst.
QUERIES = {
    "window": {"window", "inside"},
    "columns": {"columns"},
    "scale": {"scale"},
    "pooled": {"pooled", "zoom", "octaves", "size", "update", "moment"},
    "vote 1": {"vote"},
    "vote 2": {"vote"},
    "vote 3": {"vote", "groups"},
    "vote 4": {"vote"},
    "moment 1": {"moment"},
    "moment 2": {"moment", "block", "pooled", "groups"},
    "direction": {"direction"},
    "size": {"size", "moment"},
    "comparison 1": {"comparison", "vote", "direction"},
    "comparison 2": {"comparison", "moment", "vote", "groups", "evidence"},
    "main": {"pooled", "moment", "block", "octaves", "update", "groups"},
    "rank": {"evidence"},
    "floor": {"evidence"},
    "rival": {"evidence"},
    "refine": {"moment", "evidence", "cells", "mixtures"},
    "group size": {"reach"},
    "group cells": {"cells"},
    "group number": {"mixtures"},
    "group spread": {"mixtures"},
    "spread": {"noise", "spread", "size", "moment"},
    "residuals": {"residuals"},
    "mean intercept": {"intercept"},
}


def average_of(found):
    """By precision, of releases (release, variance)."""
    precision = sum(1.0 / variance for _, variance in found)
    return sum(S / variance for S, variance in found) / precision, 1.0 / precision


def check_releases(est, plan, course, queries):
    """What is asked and published is the stated function of releases, on whatever course."""
    board, m, d = course.billboard, plan.n_tasks, plan.dimension
    known = zip(course.made, queries, board.releases, strict=True)
    known = [(share, query, noise, S) for (share, _, noise), (query, _), S in known]
    assert all(query.statistic in QUERIES[share] for share, query, _, _ in known)
    votes = [share for share, *_ in known if share.startswith("vote")]
    assert votes == sorted(votes)
    # Models move by what was released; features are divided by twice their scale.
    half = 1.0 if plan.log_loss else 2.0
    theta, centre, scale = np.zeros((plan.n_related, d + 1)), None, 1.0
    moments, comparisons, voted = [], set(), None
    for share, query, noise, S in known:
        name, public = query.statistic, query.public
        if name == "scale":
            scale = half * scale_of(S, noise.noise_std, m)
        elif name == "pooled":
            scale = scale if board.column_scale is None else half
            np.testing.assert_allclose(public["theta"], theta)
            assert public["scale"] == scale and query.divide == m
            theta = theta + S
        elif name == "update":
            if centre is not None:
                np.testing.assert_allclose(public["centre"], centre, atol=1e-12)
            moved = S.reshape(public["centre"].shape)
            centre = public["centre"] + moved - (moved.mean(axis=0) if moved.ndim > 1 else 0.0)
        elif name == "vote" and centre is not None:  # on the mean as the rounds left it
            on = {s.name: s.centre for s in public["billboard"].structures}
            np.testing.assert_allclose(on["mean"], centre, atol=1e-12)
        elif name == "moment":
            about = public["billboard"].about_centre
            moments.append((about, len(public["billboard"].structures), S, noise.noise_std**2))
        elif share == "comparison 2":
            comparisons.add(name)
        if share == "comparison 1":  # what the vote before said stays known in looking for groups
            voted = {s.name: (s.snr_centre, s.snr_spread) for s in public["billboard"].structures}
        elif name == "reach" and voted is not None:
            about = "mean and low-rank" if course.billboard.about_centre else "low-rank"
            expected = voted.get(about, voted["alone"])
            expected = (1.0, 0.67) if expected[0] is None else expected
            assert (public["snr_centre"], public["snr_spread"]) == expected
    if centre is not None:
        np.testing.assert_allclose(course.centre, centre, atol=1e-12)
    assert sum(s.weight for s in board.structures) == pytest.approx(1.0)
    found = {s.name: s for s in board.structures}
    for s in board.structures:
        shape = s.moment if s.moment.ndim == 1 else np.diag(s.moment)
        assert shape.sum() == pytest.approx(1.0) and 0.0 < s.weight <= 1.0
    if board.level is not None:
        middle, unit = course.window
        np.testing.assert_allclose(board.level.coef, unit / scale * theta[0, 1:])
        assert board.level.intercept == pytest.approx(middle + unit * theta[0, 0])
        assert board.level.window == (None if plan.log_loss else unit)
        if plan.mean:
            np.testing.assert_allclose(board.mean, [*board.level.coef, board.level.intercept])
    elif plan.mean and not plan.has_intercepts:
        np.testing.assert_allclose(board.mean, np.append(board.centre, np.zeros(plan.n_outputs)))
    names = Counter(query.statistic for _, query, _, _ in known)
    if plan.few_rows and not plan.groups and names["evidence"]:
        spent = course.spent.get("refine", 0.0) / plan.mu_of("refine") ** 2
        parts = (2 / 3, 5 / 6, 1.0) if not board.about_centre else (2 / 3,)
        assert any(spent == pytest.approx(part) for part in parts)
    if names["reach"] and not course.pays_for_columns:  # after one more look at the span
        looks = {query.statistic for share, query, _, _ in known if share == "main"}
        assert looks & {"moment", "block"}
    if names["groups"]:  # of whose noise `StructurePlan.std_of_group` knows
        looked = {query.statistic for share, query, _, _ in known if share == "moment 2"}
        assert looked <= {"groups"}
    if comparisons == {"comparison"}:
        assert board.about_centre or names["block"]
    # Priors are averages of moments, shrunk by their noise, where no vote has sharpened them.
    if names["evidence"] or plan.groups or not moments:
        return
    first = [entry for entry in moments if entry[1] == moments[0][1]]
    split = [[e[2:] for e in moments if e[0] == about] for about in (False, True)]
    average = DriftingAverage()
    early = [e[2:] for e in first if not e[0]]
    for part in (early, split[0][len(early) :]):
        if part:
            average.add(*average_of(part), d * (d + 1) / 2)
    sampling = sampling_variance(m, d)
    tilt = 0.5 * min(1.0, plan.ratio)

    def shrunk(average):
        std = max(math.sqrt(average.variance), 0.2) / math.sqrt(2.0)
        return shrink_matrix(average.value, std, float(m), tilt, math.sqrt(sampling / 2.0)) / m

    if "low-rank" in found:
        np.testing.assert_allclose(found["low-rank"].moment, shrunk(average), atol=1e-9)
    if "sparse" in found:
        std, diagonal = math.sqrt(average.variance), np.diag(average.value).copy()
        expected = shrink_diagonal(diagonal, std, float(m), math.sqrt(sampling))
        np.testing.assert_allclose(found["sparse"].moment, expected, atol=1e-9)
    if "mean and low-rank" in found and plan.n_outputs == 1:
        expected = average
        if board.about_centre:  # what is along the mean says nothing about it
            t = course.centre / np.linalg.norm(course.centre)
            P = np.eye(d) - np.outer(t, t)
            expected = DriftingAverage(P @ average.value @ P, average.variance)
            if split[1]:
                expected.add(*average_of(split[1]), d * (d + 1) / 2)
        np.testing.assert_allclose(found["mean and low-rank"].moment, shrunk(expected), atol=1e-9)


@pytest.mark.filterwarnings("ignore:Intervals of tasks without rows")
def test_two_hundred_courses_spend_what_their_plans_say():
    """mu^2 by budget share and in total, by the mechanisms of what is yielded; on all branches."""
    seen, ran = set(), 0
    for seed in (*range(210), 245):  # the last of groups after a block
        rng = np.random.default_rng(seed)
        est, population = drawn_estimator(rng)
        if seed % 10 < len(RARE):
            options, m, d = RARE[seed % 10]
            est, population = PrivateMTL(**options), Population(np.arange(m), d)
        m = population.n_tasks
        try:
            plan, course, queries = course_of(est, population, rng)
        except ValueError as error:  # a public rule: too few tasks for a window, and no range
            assert est.levels == "pooled" or est.unseen_task == "mean"
            assert "target_range=(low, high)" in str(error)
            seen.add("refused")
            continue
        ran += 1
        assert [mechanism for _, _, mechanism in course.made] == [m_ for _, m_ in queries]
        spent, parts = defaultdict(float), defaultdict(list)
        reach = 10.0 if est._classification is False else 5.0
        for (share, words, _), (query, mechanism) in zip(course.made, queries, strict=True):
            assert mechanism.sensitivity == pytest.approx(
                sensitivity(query, est, m, plan.dimension, reach), rel=1e-9
            )
            # The noise that is added is the sensitivity over mu, so that mu is what it costs.
            assert mechanism.noise_std * mechanism.mu == pytest.approx(
                mechanism.sensitivity, rel=1e-6
            )
            spent[share] += mechanism.mu**2
            parts[share].append(mechanism.mu**2)
            assert share in plan.budget_shares and "None" not in words
        for share, squared in spent.items():
            whole = plan.budget_shares[share] * plan.mu**2
            assert squared <= whole * (1.0 + 1e-9)
            halves = share in ("refine", "group spread", "group cells")
            halves |= share == "comparison 2" and len(parts[share]) == 2
            halves |= share == "pooled" and course.window is None
            # The histogram of levels, and the vote on it; and what zooms have of the rounds.
            halves |= share == "window" or len(parts["pooled"]) > 30
            halves |= share == plan.columns_from[0] and course.pays_for_columns
            if not halves:  # everything or nothing, in equal parts
                assert squared == pytest.approx(whole, rel=1e-9)
                assert np.ptp(parts[share]) <= 1e-9 * whole
        shares = plan.budget_shares.values()
        assert not shares or sum(shares) == pytest.approx(1.0, abs=1e-12)
        total = sum(spent.values())
        assert total <= plan.mu**2 * (1.0 + 1e-9)
        # Those who hold the noise of all dishonest servers see less of it.
        P = est._n_servers
        if total:
            mu, epsilon = math.sqrt(total * P), est.epsilon
            delta = norm.cdf(mu / 2 - epsilon / mu)
            delta -= math.exp(epsilon) * norm.cdf(-epsilon / mu - mu / 2)
            assert delta <= plan.delta * (1.0 + 1e-6)
        report = plan.report(noise_source(None), (course.made, course.billboard.shares, {}))
        listed = defaultdict(float)
        for entry in report.releases:
            listed[entry["name"]] += entry["mu"] ** 2
        assert {s: pytest.approx(v / P) for s, v in listed.items()} == dict(spent)
        assert len(report.releases) == len(course.billboard.releases) == len(queries)
        seen |= branches(plan, course, queries)
        if queries:
            check_releases(est, plan, course, queries)
    assert ran >= 200
    assert seen >= EVERYWHERE, sorted(EVERYWHERE - seen)


@pytest.mark.parametrize("structure", ["auto", "groups"])
@pytest.mark.parametrize("init", [None, {"coef": np.arange(6.0), "intercept": 2.5}])
def test_a_billboard_is_in_the_units_of_the_table(structure, init):
    """Of what a course found in scaled columns; of groups it says that there are none."""
    est = PrivateMTL(
        structure,
        epsilon=10.0,
        target_range=(-5.0, 15.0),
        unseen_task="mean",
        init=init,
        tasks=range(400),
    )
    rng = np.random.default_rng(2)

    def release(query, name, mechanism):
        if name == "columns":
            return np.array([200.0])
        if name == "octaves":
            return 400.0 * (np.arange(80) == 36 + np.arange(6)[:, None]).ravel()
        if name == "mixtures":  # no groups
            return np.full(mechanism.shape, -1e4)
        return released(query, mechanism, rng, 400)

    board, queries, replies = play(est, Population(np.arange(400), 6), release)
    assert np.ptp(board.column_scale) > 0.0 and board.loss == "squared"
    level = board.level
    slopes, intercept = level.coef / board.column_scale, level.intercept
    if init is not None:
        slopes, intercept = slopes + np.arange(6.0), intercept + 2.5
    np.testing.assert_allclose(board.mean, np.append(slopes, intercept))
    assert (board.groups is not None) == (structure == "groups")
    assert board.groups is None or len(board.groups.counts) == 0
    assert len(board.report.releases) == len(replies) == len(board.releases)
    assert ("groups" in board.report.notes) == (structure == "groups")
    names = [entry["name"] for entry in board.report.releases]
    shares = ", ".join(f"{name} {share:.2f}" for name, share in board.shares.items())
    assert board.report.notes["released shares of the structures"] == shares != ""
    unused = board.report.notes["budget shares not used"]
    assert not set(names) & set(unused.split(", "))
    whole = StructurePlan(est, Population(np.arange(400), 6), est._structures()).budget_shares
    assert set(names) | set(unused.split(", ")) >= set(whole)


def test_plans_do_not_see_what_was_released():
    """Order, number and sizes of budget shares are the same for all releases; some are left out."""
    est = PrivateMTL(epsilon=10.0)
    population, orders = Population(np.arange(400), 12), []
    for seed in range(12):
        plan, course, _ = course_of(est, population, np.random.default_rng(seed))
        orders.append((plan.budget_shares, [share for share, _, _ in course.made]))
    shares = orders[0][0]
    assert all(other == shares for other, _ in orders) and "refine" in shares
    assert len({tuple(dict.fromkeys(order)) for _, order in orders}) > 3


def test_a_course_is_a_function_of_its_releases():
    """The same releases, the same queries: what is asked follows from nothing else."""
    est, population = PrivateMTL(epsilon=10.0), Population(np.arange(400), 12)
    two = [course_of(est, population, np.random.default_rng(5)) for _ in range(2)]
    for (one, _), (other, _) in zip(two[0][2], two[1][2], strict=True):
        assert one.statistic == other.statistic and one.public.keys() == other.public.keys()
        for key, value in one.public.items():
            if isinstance(value, np.ndarray | float | int):
                np.testing.assert_array_equal(value, other.public[key])


@pytest.mark.parametrize("stds, rounds", [(-0.5, False), (0.5, True), (3.0, True)])
def test_a_comparison_decides_by_its_sign(stds, rounds):
    """What is not clear leaves the weights of structures, and decides what is asked next."""
    population = Population(np.arange(200), 6)
    plan = StructurePlan(PrivateMTL(target_range=(-5.0, 15.0)), population, STRUCTURES)
    course = _Course(population, plan, None)
    course.theta, course.centre = np.ones((1, 7)), np.ones(6)
    course.rebuild()
    before = course.billboard.structures
    steps = course.comparison("comparison 1")
    noise = next(steps).mechanisms["comparison"].noise_std
    with pytest.raises(StopIteration) as end:
        steps.send({"comparison": np.array([stds * noise, 0.0])})
    assert (end.value.value > 0.0) is rounds
    after = [s.weight for s in course.billboard.structures]
    same = after == pytest.approx([s.weight for s in before])
    assert same is (abs(stds) < 1.0)
