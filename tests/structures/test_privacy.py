"""What bounds a contribution, what a share costs, and that nobody is asked without reason."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from skpmtl import PrivateMTL, PrivateMTLClassifier
from skpmtl.engine.billboard import Structure
from skpmtl.engine.curator import _Course, _size, histogram, sum_of_votes
from skpmtl.engine.plan import SIZE_BINS, STRUCTURES, StructurePlan
from skpmtl.exchange.protocol import Population
from skpmtl.exchange.sums import clipped_sum
from skpmtl.local.prior import VOTE_RANGE
from skpmtl.privacy.moments import DriftingAverage, directions, sum_of_directions
from skpmtl.privacy.rng import noise_source

pytestmark = pytest.mark.filterwarnings("ignore:The noise of this fit is reproducible")

SUBSETS = [s for n in (1, 2, 3) for s in itertools.combinations(STRUCTURES, n)]


def plan_of(m=200, d=10, structures=STRUCTURES, levels="free", **options):
    est = PrivateMTL(structure=list(structures), levels=levels, **options)
    return StructurePlan(est, Population(np.arange(m), d), structures)


def answered(steps, *releases):
    """Drive a part of a course. -> its queries, what it returns"""
    queries = [next(steps)]
    for released in releases:
        try:
            queries.append(steps.send({queries[-1].statistic: released}))
        except StopIteration as end:
            return queries, end.value
    raise AssertionError("there are more queries")


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


@pytest.mark.parametrize("sums", [(30.0, -12.0), (-30.0, 12.0), (900.0, 900.0), (-0.1, 0.1)])
def test_a_contest_multiplies_weights_by_its_odds(sums):
    m, d = 400, 4
    plan = plan_of(m, d, levels="auto", epsilon=10.0, target_range=(-5, 5))
    course = _Course(Population(np.arange(m), d), plan, None)
    before = {"common": 0.2, "mean": 0.3, "low-rank": 0.4, "alone": 0.1}
    found = [Structure(name, w, np.zeros(d), np.eye(d) / d) for name, w in before.items()]
    course.billboard = replace(course.billboard, structures=found)
    _, favoured = answered(course.contest("contest 1"), np.array(sums))
    doubt = 1.5 * plan.contest("contest 1").noise_std
    both, one = (math.copysign(min(max(abs(s) - doubt, 0.0), math.log(50.0)), s) for s in sums)
    odds = {"common": both + one / 2, "mean": both - one / 2, "alone": max(both, 0.0) / 2}
    after = {name: w * math.exp(odds.get(name, 0.0)) for name, w in before.items()}
    weights = {s.name: s.weight * sum(after.values()) for s in course.billboard.structures}
    assert weights == pytest.approx(after)
    assert favoured == (both > 0)


@pytest.mark.parametrize("epsilon", [None, 1.0, 0.2])
def test_votes_become_weights_and_scales_as_far_as_noise_allows(epsilon):
    """Without noise a power of 6 of the shares over the prior; with much of it the prior."""
    m, d = 2000, 10
    plan = plan_of(m, d, epsilon=epsilon)
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
        steps, reply, branch = course.run(), None, 10.0 ** rng.uniform(-2, 2)
        while True:
            try:
                query = steps.send(reply)
            except StopIteration:
                break
            ((name, mechanism),) = query.mechanisms.items()
            released = branch * np.abs(rng.normal(size=mechanism.shape))
            released = released + released.T if released.ndim == 2 else released
            reply = {name: released}
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
    assert est.billboard_.releases == [] and est.shares_ == {}
    mine = task == 2
    coef = est.coef_[2].copy()
    again = est.personalize(X[mine], y[mine], task=task[mine] + 10)
    np.testing.assert_allclose(again.coef_[-1], coef, rtol=1e-9)
