"""What bounds a contribution, what a share costs, and that nobody is asked without reason."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from skpmtl import PrivateMTL, PrivateMTLClassifier
from skpmtl.engine import plan as rules
from skpmtl.engine.billboard import Structure
from skpmtl.engine.curator import _Course, _size, histogram, sum_of_votes
from skpmtl.engine.plan import SIZE_BINS, STRUCTURES, StructurePlan
from skpmtl.engine.pooled import bounds_of
from skpmtl.exchange.protocol import Population
from skpmtl.exchange.sums import clipped_sum
from skpmtl.local.prior import VOTE_RANGE
from skpmtl.privacy.moments import (
    DriftingAverage,
    directions,
    shrink_matrix,
    sum_of_directions,
)
from skpmtl.privacy.rng import noise_source
from tests.helpers.sites import drive

pytestmark = pytest.mark.filterwarnings("ignore:The noise of this fit is reproducible")

SUBSETS = [s for n in (1, 2, 3) for s in itertools.combinations(STRUCTURES, n)]


def plan_of(m=200, d=10, structures=STRUCTURES, levels="free", **options):
    est = PrivateMTL(structure=list(structures), levels=levels, **options)
    return StructurePlan(est, Population(np.arange(m), d), structures)


def plan_of_classes(m=2000, d=5):
    return StructurePlan(
        PrivateMTLClassifier(epsilon=10.0), Population(np.arange(m), d, 2), STRUCTURES
    )


def answered(steps, *releases):
    """Drive a part of a course. -> its queries, what it returns"""
    queries = [next(steps)]
    for released in releases:
        try:
            queries.append(steps.send({queries[-1].statistic: released}))
        except StopIteration as end:
            return queries, end.value
    raise AssertionError("there are more queries")


def asked_first(steps, answers):
    """Queries of a part of a course, up to the first that has no answer."""
    queries = [next(steps)]
    while (name := queries[-1].statistic) in answers:
        shape = queries[-1].mechanisms[name].shape
        queries.append(steps.send({name: np.full(shape, answers[name])}))
    return queries


def vote(p, q):
    return sum_of_votes({"vote": np.concatenate([p, q])[None]})["vote"]


# ------------------------------------------------------------------------ sensitivities
def test_votes_are_two_apart_at_most():
    """Over all corners of what a task may say, and over what no honest task says."""
    J = 4
    eye, zero = np.eye(J), np.zeros(J)
    corners = [vote(zero, zero)] + [vote(e, sign * e) for e in eye for sign in (1.0, -1.0)]
    apart = max(np.linalg.norm(a - b) for a, b in itertools.combinations(corners, 2))
    assert 2.0 - 1e-9 < apart <= 2.0
    assert math.sqrt(2.0) - 1e-9 < max(map(np.linalg.norm, corners)) <= math.sqrt(2.0)
    rng = np.random.default_rng(0)
    said = [vote(*(10.0 ** rng.uniform(-3, 3) * rng.normal(size=(2, J)))) for _ in range(300)]
    said += [vote(*np.full((2, J), value)) for value in (np.nan, np.inf, 1e300, -1e300)]
    for s in said:
        p, q = np.split(s, 2)
        assert p.min() >= 0.0 and p.sum() <= 1.0 and (np.abs(q) <= p).all()
        assert np.linalg.norm(s) <= math.sqrt(2.0)
        assert max(np.linalg.norm(s - corner) for corner in corners) <= 2.0


def test_a_vote_that_is_not_finite_counts_as_none():
    honest = np.array([[0.5, 0.5, 0.1, -0.2]])
    broken = np.concatenate([honest, [[np.nan, 1.0, 0.0, 0.0], [1.0, 0.0, np.inf, 0.0]]])
    alone = sum_of_votes({"vote": honest})["vote"]
    np.testing.assert_array_equal(sum_of_votes({"vote": broken})["vote"], alone)


def test_the_typical_length_is_that_of_three_bins_with_half_of_the_tasks():
    """A bin holds lengths from 4^k to 4^(k + 1), of exponents whose middle is 2 k + 1."""
    counts = np.zeros(SIZE_BINS)
    counts[19:24] = 15.0, 10.0, 30.0, 20.0, 5.0
    exponents = 2.0 * np.arange(20, 23) - 39.0
    assert _size(counts, 0.0, 120) == pytest.approx(2.0 ** (exponents @ [10, 30, 20] / 60.0))
    assert _size(counts, 0.0, 121) is None  # the bins beside them do not count
    noisy = np.array([10.0, 30.0, 20.0]) - 8.0  # of which a std is taken for noise
    assert _size(counts, 8.0, 60) == pytest.approx(2.0 ** (exponents @ noisy / noisy.sum()))
    assert _size(counts, 8.7, 60) is None  # 60 are less than 4 sqrt(3) stds
    sent = np.array([-1e3, -38.1, -37.9, 0.0, 38.1, 1e3, np.nan, np.inf])
    bins = histogram({"size": sent})["size"]
    np.testing.assert_array_equal(
        np.repeat(np.arange(SIZE_BINS), bins.astype(int)), [0, 0, 1, 20, 39, 39]
    )
    for top, end in ((0, -39.0), (SIZE_BINS - 1, 39.0)):
        counts = np.zeros(SIZE_BINS)
        counts[top] = 7.0
        assert _size(counts, 1.0, 7) == 2.0**end


@pytest.mark.parametrize("adjacency, factor", [("replace-one", 1.0), ("zero-out", 0.0)])
def test_sensitivities_are_reached_and_not_passed(adjacency, factor):
    """By pairs of contributions, or by one beside a silent task."""
    m, d = 50, 4
    plan = plan_of(m, d, epsilon=50.0, adjacency=adjacency)
    e = np.eye(d)
    V = np.linalg.qr(np.random.default_rng(0).normal(size=(d, 3)))[0].T

    def moment(u):
        return sum_of_directions(u[None], False, None)

    def direction(u):
        return clipped_sum("direction", 1.0)({"direction": directions(u[None]) @ V.T})["direction"]

    def update(u):
        return clipped_sum("update", 0.3)({"update": u[None]})["update"]

    def size(x):
        return histogram({"size": np.array([x])})["size"]

    pairs = [
        (plan.moment("moment 1"), [(moment(e[0]), moment(e[1]))], 1.0),
        (plan.direction("direction"), [(direction(V[0]), direction(-V[0]))], m),
        (plan.round("main", 0.3, 30), [(update(9.0 * e[0]), update(-7.0 * e[0]))], m),
        (plan.size("size"), [(size(3.0), size(-np.inf)), (size(3.0), size(1e9))], 1.0),
    ]
    for mechanism, found, divide in pairs:
        moved = max(np.linalg.norm(a - factor * b) / divide for a, b in found)
        assert moved == pytest.approx(mechanism.sensitivity, rel=1e-9)
        assert moved <= mechanism.sensitivity * (1.0 + 1e-12)


@pytest.mark.parametrize("adjacency, factor", [("replace-one", 1.0), ("zero-out", 0.0)])
def test_sensitivities_hold_for_several_classes(adjacency, factor):
    """Opposite models of all classes together, and pairs of chance of any size."""
    m, d, C = 50, 4, 3
    settings = {"epsilon": 50.0, "adjacency": adjacency, "unseen_task": "mean"}
    est = PrivateMTLClassifier(**settings)
    plan = StructurePlan(est, Population(np.arange(m), d, C), STRUCTURES)
    rng = np.random.default_rng(0)
    V = np.linalg.qr(rng.normal(size=(d, plan.rank)))[0]
    assert plan.direction("direction").shape == (C * plan.rank,)

    def direction(W):
        sent = (directions(W[None]) @ V).reshape(1, -1)
        return clipped_sum("direction", 1.0)({"direction": sent})["direction"]

    def update(W):
        return clipped_sum("update", 0.3)({"update": W.reshape(1, -1)})["update"]

    def moment(W):
        return sum_of_directions(W[None], False, None)

    one = np.outer(np.eye(C)[0], V[:, 0])
    other = np.outer(np.eye(C)[1], V[:, 1])
    cases = [
        (plan.direction("direction"), direction, m, -one),
        (plan.round("main", 0.3, 30), update, m, -one),
        (plan.moment("moment 1"), moment, 1.0, other),
    ]
    for mechanism, contribution, divide, far in cases:
        reach = np.linalg.norm(contribution(one) - factor * contribution(far)) / divide
        assert reach == pytest.approx(mechanism.sensitivity, rel=1e-9)
        for _ in range(200):
            A, B = 10.0 ** rng.uniform(-3, 3, size=(2, C, 1)) * rng.normal(size=(2, C, d))
            moved = np.linalg.norm(contribution(A) - factor * contribution(B)) / divide
            assert moved <= mechanism.sensitivity * (1.0 + 1e-12)


# ------------------------------------------------------------------------------- budget
@pytest.mark.parametrize("structures", SUBSETS, ids="-".join)
@pytest.mark.parametrize("mean", [True, False])
def test_budget_shares_are_the_budget(structures, mean):
    for m in (2, 5, 30, 300, 100_000):
        for epsilon in (0.01, 1.0, 30.0):
            options = {"unseen_task": "mean", "target_range": (0, 1)} if mean else {}
            plan = plan_of(m, 7, structures, epsilon=epsilon, **options)
            shares = plan.budget_shares
            assert not shares or sum(shares.values()) == pytest.approx(1.0, abs=1e-12)
            without = plan_of(m, 7, structures, epsilon=epsilon).budget_shares
            assert list(shares) == list(without) + (
                ["mean intercept"] if mean and plan.budget_shares else []
            )
            public = plan.public_inputs()
            told = "".join(f"{name} {part:.3g}, " for name, part in shares.items())
            assert public.get("budget shares", "") == told[:-2]
            assert ("vote_range" in public) == bool(shares)
            assert ("target_range" in public) == mean
    for levels, told in (("free", False), ("auto", True)):
        plan = plan_of(300, 7, levels=levels, epsilon=30.0, target_range=(0, 1))
        assert plan.levels == told and ("target_range" in plan.public_inputs()) == told


def test_levels_are_looked_for_by_a_public_rule():
    """Of one output, with an intercept; without a budget where models are of 10 numbers a task."""
    assert plan_of(200, 5, levels="auto", epsilon=10.0).levels
    assert not plan_of(200, 5, levels="auto", epsilon=10.0, fit_intercept=False).levels
    assert not plan_of(200, 5, levels="free", epsilon=10.0).levels
    for n_classes, looked in ((2, True), (3, False)):
        est = PrivateMTLClassifier(epsilon=10.0)
        plan = StructurePlan(est, Population(np.arange(200), 5, n_classes), STRUCTURES)
        assert plan.levels == looked
    for d, epsilon, levels, looked in (
        (49, None, "auto", True),
        (50, None, "auto", False),
        (50, None, "pooled", True),
    ):
        assert plan_of(5, d, levels=levels, epsilon=epsilon).levels == looked
    assert plan_of(10_000, 200_000, levels="auto", epsilon=1000.0).levels


def test_shapes_are_compared_where_there_are_two_and_levels_are_real():
    """With a mean among the structures, whose share of the budget they take."""
    given = {"levels": "auto", "epsilon": 10.0, "target_range": (0, 1)}
    for structures in SUBSETS:
        assert plan_of(2000, 5, structures, **given).compares_shapes == (structures == STRUCTURES)
    plan = plan_of_classes()
    assert "comparison 2" in plan.budget_shares and not plan.compares_shapes


def test_the_report_says_why_columns_are_as_they_come():
    free = plan_of(2000, 5, epsilon=10.0)
    counts = plan_of(2000, 5, levels="auto", epsilon=10.0, loss="poisson")
    for plan, why in (
        (plan_of_classes(), "counts and classes"),
        (free, "free levels, or one column"),
        (counts, "counts and classes"),
    ):
        notes = _Course(Population(np.arange(2000), 5), plan, None).notes()
        assert notes["scales of columns"] == f"as they come: not looked at with {why}"
        assert plan.public_inputs().get("loss") == ("poisson" if plan is counts else None)
        assert "n_classes" not in plan.public_inputs()


@pytest.mark.parametrize("total, asked", [(-0.5, False), (0.0, False), (0.5, True)])
def test_scales_of_columns_are_asked_for_by_a_majority(total, asked):
    m, d = 400, 4
    plan = plan_of(m, d, levels="auto", epsilon=10.0, target_range=(-5, 5))
    course = _Course(Population(np.arange(m), d), plan, None)
    asks = []

    def release(query, name, mechanism):
        asks.append(name)
        return np.full(mechanism.shape, total if name == "columns" else 0.0)

    drive(course.find_columns(), release)
    assert asks == ["columns", "octaves"][: 1 + asked]


@pytest.mark.parametrize("stds", [-9.0, -2.0, -1.0, 0.0, 1.0, 2.0, 9.0])
def test_a_vote_on_shapes_counts_beyond_its_doubt(stds):
    """Log odds of the sparse shape, which all floors win or lose by as much."""
    m, d = 4000, 4
    plan = plan_of(m, d, levels="auto", epsilon=50.0, target_range=(-5, 5))
    course = _Course(Population(np.arange(m), d), plan, None)
    course.average = DriftingAverage(m * np.diag([0.4, 0.3, 0.2, 0.1]), 1.0)
    course.billboard = replace(
        course.billboard,
        structures=[
            Structure("alone", 0.5, np.zeros(d), np.eye(d) / d, snr_centre=2.0, snr_spread=0.8),
            Structure("low-rank", 0.5, np.zeros(d), np.eye(d) / d, snr_centre=0.3, snr_spread=0.9),
        ],
    )
    std = plan.evidence("comparison 2").noise_std
    assert 0.5 * std < math.log(50.0) < 7.5 * std
    released = np.zeros(12)
    released[0] = stds * std  # of the low-rank shape and the first floor
    (query,), odds = answered(course.compare_shapes("comparison 2"), released)
    assert query.public["snr_centre"] == 0.3  # of the low-rank models
    clear = min(max(abs(stds) - 1.5, 0.0) * std, math.log(50.0))
    assert odds == pytest.approx(math.copysign(clear, stds))


@pytest.mark.parametrize("structures", [STRUCTURES, ("low-rank", "mean")])
def test_few_rows_are_sharpened_against_a_sparse_shape_where_one_is_wanted(structures):
    m, d = 4000, 12
    plan = plan_of(m, d, structures, levels="auto", epsilon=10.0, target_range=(-5, 5))
    course = _Course(Population(np.arange(m), d), plan, None)
    spectrum = np.full(d, 0.05)
    spectrum[:2] = 0.25
    course.average = DriftingAverage(m * np.diag(spectrum), 1.0)

    def release(query, name, mechanism):  # for the first rank, and the last and lowest floor
        return 0.5 * m * (np.eye(12)[0] if not course.made else np.ones(12))

    drive(course.sharpen(("rank", "floor", "rival"), refine=True), release)
    asked = ["rank", "floor", *(["rival"] if "sparse" in structures else [])]
    assert list(course.spent) == asked


def test_groups_are_looked_for_with_the_moment_so_far():
    """Structures follow from all releases, and keep the weights and scales of the votes."""
    m, d = 4000, 4
    structures = ("low-rank", "groups")
    plan = plan_of(m, d, structures, levels="auto", epsilon=10.0, target_range=(-5, 5))
    course = _Course(Population(np.arange(m), d), plan, None)
    course.window, course.theta = (0.0, 5.0), np.zeros((1, d + 1))
    course.centre, course.level_of_all = np.zeros(d), 0.0
    course.average = DriftingAverage(m * np.eye(d) / d, 1.0)  # which shows nothing
    stale = Structure(
        "low-rank",
        0.7,
        np.ones(d),
        np.diag([1.0, 0.0, 0.0, 0.0]),
        snr_centre=0.4,
        snr_spread=0.5,
        share=0.6,
    )
    course.billboard = replace(course.billboard, structures=[stale])
    next(course.groups([], False, False))
    found = {s.name: s for s in course.billboard.structures}
    std, sampling = math.sqrt(0.5), math.sqrt(2.0 * m) / d
    expected = shrink_matrix(course.average.value, std, float(m), course.tilt, sampling) / m
    np.testing.assert_allclose(found["low-rank"].moment, expected, atol=1e-12)
    np.testing.assert_array_equal(found["low-rank"].centre, np.zeros(d))
    assert found["low-rank"].weight == 0.7 and found["low-rank"].snr_centre == 0.4


@pytest.mark.parametrize("about", [True, False])
def test_groups_are_looked_for_about_the_pooled_slopes_or_in_refined_directions(about):
    """Moments show the last direction, about the slopes the second, block rounds the first."""
    m, d = 4000, 4
    structures = ("low-rank", "mean", "groups")
    plan = plan_of(m, d, structures, levels="auto", epsilon=10.0, target_range=(-5, 5))
    course = _Course(Population(np.arange(m), d), plan, None)
    course.window, course.theta = (0.0, 5.0), np.zeros((1, d + 1))
    course.centre, course.level_of_all = np.arange(4.0), 0.0
    planted = [DriftingAverage(m * np.diag(0.1 + 0.6 * np.eye(d)[j]), 1.0) for j in (0, 1, 3)]
    course.refined.spectrum = course.spectrum_of(planted[0])
    course.about, course.average = planted[1:]
    *_, query = asked_first(course.groups([], True, about), {"noise": 0.0, "spread": 0.0})
    assert query.statistic == "reach"
    place = 1 if about else 0
    np.testing.assert_allclose(np.abs(query.public["basis"]), np.eye(d)[:, [place]], atol=1e-12)
    np.testing.assert_array_equal(query.public["centre"], course.centre if about else np.zeros(d))
    assert np.diag(query.public["moment"]).argmax() == place


def test_a_second_moment_is_held_against_its_rival_as_the_first():
    """The first one shows nothing; with the second, votes find a rank and its lowest floor."""
    m, d = 4000, 12
    plan = plan_of(m, d, levels="auto", epsilon=10.0, target_range=(-5, 5))
    course = _Course(Population(np.arange(m), d), plan, None)
    course.window, course.theta = (0.0, 5.0), np.zeros((1, d + 1))
    course.centre, course.level_of_all = np.zeros(d), 0.0
    course.rebuild()
    steps = course.moments_with_levels()
    query = next(steps)
    while "rival" not in course.spent and query.statistic != "block":
        name = query.statistic
        released = np.zeros(query.mechanisms[name].shape)
        if name == "moment":
            of = [0.4, 0.02] if "main" in course.spent else [1.0 / d] * 2
            released = m * np.diag(np.repeat(of, [2, 10]))
        if name == "evidence":
            released = 0.5 * m * (np.ones(12) if "floor" in course.spent else np.eye(12)[0])
        query = steps.send({name: released})
    assert [share for share in course.spent if share in ("main", "rank", "floor", "rival")] == [
        "main",
        "rank",
        "floor",
        "rival",
    ]


@pytest.mark.parametrize("sums", [(30.0, -12.0), (-30.0, 12.0), (900.0, 900.0), (-0.1, 0.1)])
def test_a_comparison_multiplies_weights_by_its_odds(sums):
    m, d = 400, 4
    plan = plan_of(m, d, levels="auto", epsilon=10.0, target_range=(-5, 5))
    course = _Course(Population(np.arange(m), d), plan, None)
    before = {"common": 0.2, "mean": 0.3, "low-rank": 0.4, "alone": 0.1}
    found = [Structure(name, w, np.zeros(d), np.eye(d) / d) for name, w in before.items()]
    course.billboard = replace(course.billboard, structures=found)
    _, favoured = answered(course.comparison("comparison 1"), np.array(sums))
    doubt = 1.5 * plan.comparison("comparison 1").noise_std
    both, one = (math.copysign(min(max(abs(s) - doubt, 0.0), math.log(50.0)), s) for s in sums)
    odds = {"common": both + one / 2, "mean": both - one / 2, "alone": max(both, 0.0) / 2}
    after = {name: w * math.exp(odds.get(name, 0.0)) for name, w in before.items()}
    weights = {s.name: s.weight * sum(after.values()) for s in course.billboard.structures}
    assert weights == pytest.approx(after)
    assert favoured == sums[0]


@pytest.mark.parametrize("structures", [STRUCTURES, ("low-rank",)])
@pytest.mark.parametrize("epsilon", [None, 1.0, 0.2])
def test_votes_become_weights_and_scales_as_far_as_noise_allows(epsilon, structures):
    """Without noise a power of 6 of the shares over the prior; with much of it the prior."""
    m, d = 2000, 10
    plan = plan_of(m, d, structures, epsilon=epsilon)
    course, J = _Course(Population(np.arange(m), d), plan, None), len(plan.names)
    found = [Structure(name, 1.0 / J, np.zeros(d), np.eye(d) / d) for name in plan.names]
    course.billboard = replace(course.billboard, structures=found)
    D = np.random.default_rng(0).dirichlet(np.full(J, 5.0))
    like = 0.1 * np.ptp(VOTE_RANGE[False])  # a fifth of the half-width
    answered(course.vote("vote 1"), np.concatenate([D, 0.2 * D]))
    std = 0.0 if epsilon is None else plan.vote("vote 1").noise_std
    prior, trust = course.weights(plan.names), 0.0225 / (0.0225 + std**2)
    power = 6.0 if std == 0.0 else min(max(0.06 / std, 2.0), 6.0)
    expected = prior * np.maximum(1.0 - trust + trust * D / prior, 1e-3 / prior) ** power
    expected = np.maximum(expected / expected.sum(), 0.01 * prior)
    weights = [s.weight for s in course.billboard.structures]
    np.testing.assert_allclose(weights, expected / expected.sum(), rtol=1e-12)
    np.testing.assert_allclose([s.share for s in course.billboard.structures], D)
    for s in course.billboard.structures:  # all like the same scale
        liked = np.mean(VOTE_RANGE[False]) + like
        assert s.snr_centre is None or s.snr_centre == pytest.approx(liked)
    assert epsilon == 0.2 or all(s.snr_centre is not None for s in course.billboard.structures)


@pytest.mark.parametrize(("epsilon", "shares"), [(None, "vote 1"), (3.0, "vote 1"), (1.0, "both")])
@pytest.mark.parametrize("classification", [False, True])
def test_scales_are_those_of_followers_where_they_are_clear(epsilon, shares, classification):
    """Of a share beyond twice its noise; else, or where that is clearer, of all together."""
    m, d, rng = 1000, 10, np.random.default_rng(4)
    levels = "free" if classification else "auto"
    plan = plan_of(m, d, levels=levels, epsilon=epsilon, target_range=(-5, 5))
    plan.log_loss = classification
    course, J = _Course(Population(np.arange(m), d), plan, None), len(plan.names)
    names = plan.names[::-1]  # a vote has the order of the plan
    before = [Structure(name, 1.0 / J, np.zeros(d), np.eye(d) / d) for name in names]
    course.billboard = replace(course.billboard, structures=before)
    votes = ["vote 1", "vote 2"] if shares == "both" else ["vote 1"]
    D = rng.dirichlet(np.r_[np.full(J - 2, 4.0), 0.02, 0.1], size=len(votes))
    N = D * rng.uniform(-1.0, 1.0, size=D.shape)
    answered(course.vote(*votes), *np.hstack([D, N]))
    stds = [0.0 if epsilon is None else plan.vote(share).noise_std for share in votes]
    weights = np.array([1.0]) if epsilon is None else np.array(stds) ** -2.0
    std = 0.0 if epsilon is None else weights.sum() ** -0.5
    D, N = (weights / weights.sum() @ A for A in (D, N))
    low, high = VOTE_RANGE[classification]
    middle, reach, clear = 0.5 * (low + high), 0.5 * (high - low), set()
    of_all = math.hypot(reach * std * math.sqrt(J), 0.15)
    for s, was in zip(course.billboard.structures, before, strict=True):
        at = plan.names.index(s.name)
        assert s.name == was.name and s.share == pytest.approx(D[at])
        part = max(s.weight - D[at], 0.0) / (1.0 - D[at])  # what all others like stands in
        size = D[at] + part * (D.sum() - D[at])
        noise = reach * std * math.sqrt(1.0 + (J - 1) * part**2) / max(size, 1e-3)
        centre = middle + reach * (N[at] + part * (N.sum() - N[at])) / max(size, 1e-3)
        own = D[at] > 2.0 * std and noise <= of_all
        clear.add(own)
        if not own:
            noise, centre = of_all, middle + reach * N.sum()
        if noise >= 1.0 or s.name == "common":
            assert s.snr_centre is None
        else:
            assert s.snr_centre == pytest.approx(min(max(centre, low), high))
            assert s.snr_spread == pytest.approx(math.hypot(0.3, 2.0 * noise))
    assert clear == ({True} if epsilon is None else {True, False})


def test_moments_are_hidden_by_noise_that_reaches_as_far():
    """The largest eigenvalue sqrt(2 d) std beyond the mean, or a diagonal sqrt(2 log(d + 1))."""
    m, d, std = 300, 8, 0.7
    course = _Course(Population(np.arange(m), d), plan_of(m, d, epsilon=10.0), None)
    even = np.full(d, m / d)
    one = np.ones((d, d)) / d  # a direction that no feature shows
    for factor, hidden in ((0.99, True), (1.01, False)):
        spike = factor * std * math.sqrt(2.0 * d)
        assert course.hidden(np.diag(even) + spike * one, std**2) == hidden
        feature = factor * std * math.sqrt(2.0 * math.log(d + 1.0)) * np.eye(d)[3]
        assert course.hidden(np.diag(even + feature), std**2) == hidden
    least = np.diag(even + 0.199 * math.sqrt(2.0 * math.log(d + 1.0)) * np.eye(d)[3])
    assert course.hidden(least, 0.0)  # a fifth of a task counts as noise
    exact = _Course(Population(np.arange(m), d), plan_of(m, d, epsilon=None), None)
    assert not exact.hidden(np.diag(even), 0.0)


def test_a_mean_is_followed_by_a_tenth_of_the_votes():
    course = _Course(Population(np.arange(300), 4), plan_of(300, 4, epsilon=10.0), None)
    for shares, followed in (
        ((0.9, 0.06, 0.05), True),
        ((0.9, 0.05, 0.04), False),
        ((0.05, 0.02, 0.02), True),
        ((0.0, 0.02, 0.009), False),
        ((0.0, 0.02, 0.011), True),
    ):
        names = ("alone", "mean", "half of the mean")
        found = [
            Structure(name, 0.3, np.zeros(4), np.eye(4) / 4, share=share)
            for name, share in zip(names, shares, strict=True)
        ]
        course.billboard, course.centre = replace(course.billboard, structures=found), None
        assert not course.mean_is_followed()
        course.centre = np.ones(4)
        assert course.mean_is_followed() == followed


@pytest.mark.parametrize("factor", [0.99, 1.01])
def test_a_first_centre_is_a_clear_direction_of_typical_length(factor):
    """abs(c)^2 has a noise of mean 3 v and spread sqrt(6) v: two spreads are clear."""
    m, d = 300, 4
    plan = plan_of(m, d, epsilon=10.0)
    course = _Course(Population(np.arange(m), d), plan, None)
    variance = plan.direction("direction").noise_std ** 2
    square = factor * variance * (3.0 + 2.0 * math.sqrt(6.0))
    c, counts = math.sqrt(square) * np.array([0.6, 0.0, -0.8]), np.zeros(SIZE_BINS)
    counts[20] = m  # of length 2
    queries, clear = answered(course.direction(np.diag([1.0, 4.0, 3.0, 2.0])), c, counts)
    assert clear == (factor > 1.0) and len(queries) == 1 + clear
    basis = queries[0].public["basis"]
    np.testing.assert_allclose(np.abs(basis), np.eye(d)[:, [1, 2, 3]], atol=1e-12)
    if clear:
        expected = 2.0 * basis @ c * (1.0 - 3.0 * variance / square)
        np.testing.assert_allclose(course.centre, expected, rtol=1e-12)
    else:
        assert course.centre is None


@pytest.mark.parametrize("factor", [0.99, 1.01])
def test_a_first_centre_of_four_classes_is_clear_of_the_noise_of_three(factor):
    """What classes have in common is not counted: a span of 5 leaves 15 numbers of noise."""
    m, d, C = 3000, 6, 4
    population = Population(np.arange(m), d, C)
    plan = StructurePlan(PrivateMTLClassifier(epsilon=10.0), population, STRUCTURES)
    course = _Course(population, plan, None)
    variance = plan.direction("direction").noise_std ** 2
    c = np.random.default_rng(0).normal(size=(C, 5))
    c -= c.mean(axis=0)
    c *= math.sqrt(factor * variance * (15.0 + 2.0 * math.sqrt(30.0))) / np.linalg.norm(c)
    counts = m * np.eye(SIZE_BINS)[20]
    queries, clear = answered(course.direction(np.diag(np.arange(6.0))), c.ravel(), counts)
    assert clear == (factor > 1.0) and len(queries) == 1 + clear


@pytest.mark.parametrize("pooled", [True, False])
def test_structures_are_those_that_releases_show(pooled):
    m, d = 300, 4
    plan = plan_of(m, d, levels="auto" if pooled else "free", epsilon=10.0, target_range=(-5, 5))
    course = _Course(Population(np.arange(m), d), plan, None)
    course.rebuild()
    assert [s.name for s in course.billboard.structures] == ["alone"]
    course.average = DriftingAverage(np.diag([160.0, 100.0, 25.0, 15.0]), 0.3)
    course.about = DriftingAverage(np.diag([15.0, 25.0, 100.0, 160.0]), 0.1)
    course.centre, course.theta = np.arange(4.0), np.ones((1, d + 1)) if pooled else None
    course.rebuild()
    found = {s.name: s for s in course.billboard.structures}
    assert list(found) == [
        "alone",
        "low-rank",
        "sparse",
        "mean",
        "common" if pooled else "half of the mean",
        "mean and low-rank",
    ] and set(found) <= set(plan.names)
    for name, average in (("low-rank", course.average), ("mean and low-rank", course.about)):
        noise = math.sqrt(average.variance / 2.0), float(m), course.tilt, math.sqrt(2.0 * m) / d
        expected = shrink_matrix(average.value, *noise) / m
        np.testing.assert_allclose(found[name].moment, expected, atol=1e-12)
    np.testing.assert_array_equal(found["low-rank"].centre, np.zeros(d))
    np.testing.assert_array_equal(found["mean and low-rank"].centre, course.centre)
    if not pooled:
        np.testing.assert_array_equal(found["half of the mean"].centre, course.centre / 2.0)
    course.keep("alone")
    (alone,) = course.billboard.structures
    assert alone.name == "alone" and alone.weight == 1.0


def test_a_mean_that_moments_hide_has_rounds_and_all_shares():
    """Noise hides all directions, and lengths are alike: rounds begin at 0."""
    m, d = 300, 30
    plan = plan_of(m, d, epsilon=1.0)
    course, kinds = _Course(Population(np.arange(m), d), plan, None), []

    def release(query, name, mechanism):
        kinds.extend([name] if kinds[-1:] != [name] else [])
        if name == "moment":
            return np.eye(d) * m / d
        if name == "size":
            return m * np.eye(SIZE_BINS)[20]
        return np.full(mechanism.shape, 0.01)

    drive(course.find(), release)
    assert kinds == ["vote", "moment", "direction", "size", "update", "vote", "moment", "vote"]
    assert list(dict.fromkeys(share for share, _, _ in course.made)) == [
        "vote 1",
        "moment 1",
        "direction",
        "size",
        "main",
        "vote 2",
        "vote 3",
        "moment 2",
        "vote 4",
    ]
    assert course.billboard.about_centre


def test_rounds_follow_the_signal_over_the_noise_of_a_mean():
    found, d = set(), 40
    for m in (24, 40, 60, 80, 200, 10_000):
        plan = plan_of(m, d, ("mean",), epsilon=2.0)
        if plan.budget_shares:
            n_rounds, path = plan.rounds_of("main")
            ratio = m * plan.mu * math.sqrt(plan.budget_shares["main"] / d)
            assert n_rounds == (1 if ratio < 4.0 else 10 if ratio < 6.0 else 30)
            assert path == pytest.approx(min(max(3.0 * math.sqrt(ratio), 2.0), 30.0))
            found.add(n_rounds)
    assert found == {1, 10, 30}


def test_bounds_of_rounds_fall_and_sum_to_the_path():
    m, d = 300, 4
    plan = plan_of(m, d, epsilon=10.0)
    n_rounds, path = plan.rounds_of("main")
    course, rng = _Course(Population(np.arange(m), d), plan, None), np.random.default_rng(0)
    course.length, course.centre = 4.0, rng.normal(size=d)
    moment, steps = np.diag([4.0, 3.0, 2.0, 1.0]), rng.normal(size=(n_rounds, d))
    course.average = DriftingAverage(moment, 0.3)
    expected = course.centre + steps.sum(axis=0)
    queries, _ = answered(course.rounds("main"), *steps)
    bounds = np.array([query.public["clip_norm"] for query in queries])
    falling = np.arange(n_rounds, 0, -1)
    np.testing.assert_allclose(bounds, 0.5 * path * 4.0 * falling / falling.sum(), rtol=1e-12)
    for query, (_, _, mechanism) in zip(queries, course.made, strict=True):
        assert mechanism.sensitivity == pytest.approx(2.0 * query.public["clip_norm"] / m)
    np.testing.assert_allclose(course.centre, expected)
    # What moments so far say along the mean is not about it.
    t = expected / np.linalg.norm(expected)
    P = np.eye(d) - np.outer(t, t)
    np.testing.assert_allclose(course.about.value, P @ moment @ P, atol=1e-12)
    assert course.about.variance == 0.3 and course.billboard.about_centre


def test_the_mean_intercept_is_within_the_range_of_the_target():
    m, d = 300, 4
    plan = plan_of(m, d, epsilon=10.0, unseen_task="mean", target_range=(2.0, 6.0))
    for released, expected in ((-1.5, 2.5), (1.5, 5.5), (9.0, 6.0), (-9.0, 2.0)):
        course = _Course(Population(np.arange(m), d), plan, None)
        (query,), _ = answered(course.mean_model(), np.array([released]))
        np.testing.assert_allclose(course.billboard.mean, [0.0, 0.0, 0.0, 0.0, expected])
        assert query.divide == m
    sent = np.array([[2.5], [6.0], [1e9], [-1e9]])  # less the middle, within half of the range
    assert query.combine({"intercept": sent})["intercept"] == pytest.approx(-1.5 + 2 + 2 - 2)


@pytest.mark.parametrize("adjacency", ["replace-one", "zero-out"])
def test_public_rules_of_a_plan(adjacency):
    """Who is asked for what follows from tasks times mu, whatever the tuned bounds are."""
    seen = set()
    for m, epsilon, d in itertools.product(
        (30, 200, 1500), (0.1, 1.0, 2.0, 4.0, 50.0), (1, 6, 400)
    ):
        for structures in (
            STRUCTURES,
            ("mean",),
            ("low-rank", "groups"),
            ("sparse", "mean"),
            ("mean", "groups"),
        ):
            est = PrivateMTL(
                structure=list(structures),
                epsilon=epsilon,
                adjacency=adjacency,
                target_range=(-3.0, 5.0) if m == 200 else None,
            )
            plan = StructurePlan(est, Population(np.arange(m), d), structures)
            mu = plan.mu * (1.0 if adjacency == "replace-one" else math.sqrt(2.0))
            z, shares = m * mu, plan.budget_shares
            std = 2.0 / (z * math.sqrt(0.06))  # of a vote, whose largest share is that
            assert plan.silent == (plan.ratio < rules._HOPELESS or std > 1.0)
            assert plan.ratio == pytest.approx(z / (math.sqrt(2.0) * math.sqrt(2.0 * d)))
            able = m * plan.mu >= (150.0 if adjacency == "replace-one" else 75.0)
            assert (plan.public_window is None) == (m != 200)
            assert m != 200 or plan.public_window == (1.0, 4.0)
            found = (rules._LEAST_WINDOW / z) ** 2 <= rules._MOST_WINDOW
            assert plan.levels == (not plan.silent and (m == 200 or found))
            assert plan.scales_columns == (plan.levels and d > 1) == ("columns" in shares)
            assert plan.few_rows == (plan.levels and "low-rank" in structures and able)
            assert plan.groups == (plan.levels and "groups" in structures and able)
            why = "levels are not pooled" if able else "too few tasks for the budget"
            assert plan.no_groups == ("" if plan.groups else why)
            if plan.silent:
                assert not shares
                continue
            seen |= {(plan.levels, plan.few_rows, plan.groups, plan.looks_once)}
            if plan.scales_columns:
                assert shares["columns"] == pytest.approx(
                    min(max((rules._COLUMNS / z) ** 2, 0.005), rules._MOST_COLUMNS)
                )
            if plan.levels:
                assert ("scale" in shares) == (z >= rules._LEAST_FOR_SCALE)
                if "scale" in shares:
                    assert shares["scale"] == pytest.approx(max((rules._SCALE / z) ** 2, 0.005))
                assert ("window" in shares) == (m != 200)
                budget = m * mu * (math.sqrt(2.0) if adjacency == "zero-out" else 1.0)
                ratio = budget * math.sqrt(shares["pooled"] / (d + 1))
                bounds = bounds_of(ratio, 0.1, 2.0)
                np.testing.assert_allclose(plan.bounds_of_pooled("pooled", 0.1), bounds)
                once = budget < rules._ONCE * math.sqrt(d + 1) and set(structures) > {"mean"}
                assert plan.looks_once == once and min(shares.values()) > 0.0
                paid = rules._OF_COLUMNS_ONCE if once else rules._OF_COLUMNS
                alone = structures == ("mean",)
                assert plan.columns_from == (rules._OF_COLUMNS_OF_MEAN if alone else paid)
                first = [name for name in ("window", "columns", "scale") if name in shares]
                assert list(shares)[: len(first)] == first
            if plan.groups:
                reach = math.sqrt(2.0) if adjacency == "replace-one" else 1.0
                half = plan.mu * math.sqrt(0.5 * shares["moment 2"])
                assert plan.std_of_group == pytest.approx(math.sqrt(2.0) * reach / half)
    assert len(seen) >= 4


def test_a_budget_share_is_not_spent_twice():
    plan = plan_of(epsilon=5.0)
    course = _Course(Population(np.arange(200), 10), plan, None)
    mechanism = plan.vote("vote 1")
    query_ = course.query("vote 1", "vote", "votes", mechanism, None)
    next(query_)
    query_ = course.query("vote 1", "vote", "votes", mechanism, None)
    with pytest.raises(RuntimeError, match="no budget left"):
        next(query_)


@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_released_the_budget_shares_hold(seed):
    """Courses on answers of chance: every branch is taken, and none passes the budget."""
    rng, m, d = np.random.default_rng(seed), 150, 6
    for structures in SUBSETS:
        options = {"unseen_task": "mean", "target_range": (-1, 1)}
        plan = plan_of(m, d, structures, epsilon=10.0, **options)
        course = _Course(Population(np.arange(m), d), plan, None)
        branch = 10.0 ** rng.uniform(-2, 2)

        def release(query, name, mechanism, branch=branch):
            released = branch * np.abs(rng.normal(size=mechanism.shape))
            return released + released.T if released.ndim == 2 else released

        drive(course.run(), release)
        spent = sum(mechanism.mu**2 for _, _, mechanism in course.made)
        assert 0.1 * plan.mu**2 < spent <= plan.mu**2 * (1.0 + 1e-9)
        assert spent == pytest.approx(sum(course.spent.values()))
        report = plan.report(noise_source(0), (course.made, course.billboard.shares, ""))
        assert len(report.releases) == len(course.billboard.releases)


# ------------------------------------------------------------------------- without hope
@pytest.mark.parametrize("cls", [PrivateMTL, PrivateMTLClassifier])
def test_too_few_tasks_for_the_budget_are_alone_and_spend_nothing(cls, tasks_of):
    X, y, task, _ = tasks_of("low-rank", m=5, n=12, d=4)
    settings = {"tasks": range(5), "random_state": 0}
    if cls is PrivateMTLClassifier:
        y, settings["classes"] = y > np.median(y), [False, True]
    est = cls(epsilon=0.3, **settings).fit(X, y, task=task)
    assert est.privacy_.epsilon == 0.0 and est.privacy_.delta == 0.0
    assert "nothing is released" in est.privacy_.text(None)
    assert "released shares" not in est.privacy_.text(None)
    assert est.billboard_.releases == [] and est.shares_ == {}
    mine = task == 2
    coef = est.coef_[2].copy()
    again = est.personalize(X[mine], y[mine], task=task[mine] + 10)
    np.testing.assert_allclose(again.coef_[-1], coef, rtol=1e-9)
