"""Curators of the model-protected methods, to whom chosen releases are played."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skpmtl import MPMTLGroupSparse, MPMTLLowRank
from skpmtl.engine.spectrum import FLOORS
from skpmtl.exchange.protocol import Population
from skpmtl.local.prior import VOTE_RANGE, VOTE_SPREAD
from skpmtl.model_protected.curator import release_prior
from skpmtl.model_protected.plan import LOG_WINDOW
from skpmtl.privacy.moments import shrink_diagonal, shrink_matrix
from skpmtl.rounds.plan import BINS
from tests.helpers.data import covariates
from tests.helpers.noisy_rounds import kept_part
from tests.helpers.sites import play

M, D = 4000, 6


def played(est, release, m=M, d=D):
    """-> the billboard of a curator, and its (query, mechanism, release)

    Every release is on the billboard and in the report, in the order of the queries.
    """
    population = Population(np.arange(m), d)
    billboard, queries, replies = play(est, population, lambda query, *_: release(query))
    mechanisms = [mechanism for query in queries for mechanism in query.mechanisms.values()]
    assert len({id(mechanism) for mechanism in mechanisms}) == len(queries)  # none is used twice
    found = [released for reply in replies for released in reply.values()]
    entries = billboard.report.releases
    for kept, released, entry, mechanism, query in zip(
        billboard.releases, found, entries, mechanisms, queries, strict=True
    ):
        assert_array_equal(kept, released)
        assert (entry["noise_std"], entry["sensitivity"]) == (
            mechanism.noise_std,
            mechanism.sensitivity,
        )
        assert WORDS[query.statistic] in entry["statistic"]
    return billboard, list(zip(queries, mechanisms, found, strict=True))


WORDS = {
    "length": "histogram",
    "update": "clipped updates",
    "mean": "mean of clipped models",
    "intercept": "mean of clipped intercepts",
    "residuals": "distance from the mean model",
    "vote": "snr",
    "moment": "sum of w",
    "block": "inside and outside",
    "evidence": "log evidence",
    "window": "histogram",
    "level": "clipped levels",
    "noise": "noise",
    "spread": "spread",
}


@pytest.mark.parametrize(
    "cls, mechanism, epsilon",
    [
        (MPMTLLowRank, "gaussian", 1.0),
        (MPMTLLowRank, "gaussian", 1e6),  # less noise than the part of a task that counts as such
        (MPMTLLowRank, "wishart", 1.0),
        (MPMTLGroupSparse, "gaussian", 1.0),
        (MPMTLGroupSparse, "laplace", 1.0),
    ],
)
def test_the_prior_and_the_scale_follow_from_releases(cls, mechanism, epsilon):
    """Averages by precision and drift, shrunk by the noise that is left; votes from the second."""
    rng, diagonal = np.random.default_rng(0), cls is MPMTLGroupSparse
    part = np.array([0.5, 0.3, 0.05, 0.05, 0.05, 0.05])  # of the directions, drifting
    turn = np.linalg.qr(rng.normal(size=(D, D)))[0]

    turns = iter((0, 1, 2))

    def release(query):
        if query.statistic == "vote":
            return np.array([0.1 * M * rng.uniform(-1, 1)])
        now = np.roll(part, next(turns) // 2) * M
        return 1.3 * now if diagonal else turn @ np.diag(now) @ turn.T

    est = cls(
        epsilon=epsilon,
        mechanism=mechanism,
        n_releases=3,
        levels="free",
        tasks=range(M),
        delta=None if mechanism != "gaussian" else 1e-6,
    )
    billboard, rounds = played(est, release)
    assert [query.statistic for query, _, _ in rounds] == ["vote", "moment"] * 3 + ["vote"]

    low, high = VOTE_RANGE[False]
    prior, average, variance, votes = np.eye(D) / D, None, None, []
    for t in range(4):
        query, vote, released = rounds[2 * t]
        root = query.public["root"]
        assert_allclose(np.diag(root**2) if root.ndim == 1 else root @ root.T, prior, atol=1e-12)
        votes = [*(votes if t > 1 else []), float(released[0]) / M]
        centre = np.clip(0.5 * (low + high) + np.mean(votes), low, high)
        spread = np.hypot(VOTE_SPREAD, vote.noise_std / (M * np.sqrt(len(votes))))
        if t == 3:
            break
        query, moment, S = rounds[2 * t + 1]
        assert query.public["root"] is root
        assert query.public["snr_centre"] == pytest.approx(centre)
        assert query.public["snr_spread"] == pytest.approx(spread)
        new = max(0.2, moment.noise_std * (1.18 if mechanism == "wishart" else 1.0)) ** 2
        if average is None:
            average, variance = S, new
        else:
            size = D if diagonal else D * (D + 1) / 2
            drift = max(np.sum((S - average) ** 2) / size - new - variance, 0.0)
            old = variance + drift  # error of the average for what is released now
            average = (new * average + old * S) / (new + old)
            variance = (new**2 * variance + old**2 * new) / (new + old) ** 2
        sampling = 2.0 * np.sqrt(M) / D
        if diagonal:
            trace = (M, M * np.sqrt(D)) if mechanism == "gaussian" else M
            prior = np.diag(shrink_diagonal(average, np.sqrt(variance), trace, sampling))
        else:
            tilt = 0.5  # the ratio is large
            std = np.sqrt(variance / 2)
            prior = shrink_matrix(average, std, M, tilt, sampling / np.sqrt(2)) / M
    found = np.diag(billboard.moment) if diagonal else billboard.moment
    assert_allclose(found, prior, rtol=1e-9, atol=1e-12)
    assert (billboard.snr_centre, billboard.snr_spread) == pytest.approx((centre, spread))


@pytest.mark.parametrize("floors", [(5, 3, 6), (0, 1)])
def test_few_rows_have_the_floors_that_tasks_vote_for(floors):
    """All votes are decisive; then the prior that the next query is about is the one elected.

    Where the first one is for a floor as it is, no blocks follow, and the last moment is for votes.
    """
    rng, m, d = np.random.default_rng(0), 20_000, 12
    turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
    chosen = {"rank": 1, "step": 4, "new": 2, "floor": iter(floors)}
    blocks = len(floors) == 3
    kinds, elected = [], []

    def release(query):
        if query.statistic == "vote":
            return np.array([0.2 * m])
        if query.statistic in ("moment", "block"):
            spikes = np.where(np.arange(d) < 2, 0.3 * m, 0.4 * m / d)
            return turn @ np.diag(spikes) @ turn.T
        if len(query.public["priors"]) == len(FLOORS):
            kinds.append("floor")
            choice = next(chosen["floor"])
            elected.append(query.public["priors"][choice])
        else:
            known = "step" if blocks and kinds else "rank"
            kinds.append("new" if kinds[-1:] == ["step"] else known)
            choice = chosen[kinds[-1]]
        return np.where(np.arange(12) < choice, 1e7, -1e7)

    est = MPMTLLowRank(epsilon=5.0, levels="free", tasks=range(m))
    billboard, rounds = played(est, release, m, d)
    assert kinds[2:5] == (["step", "new", "floor"] if blocks else ["rank", "floor"])
    assert kinds.count("floor") == len(floors)
    asked = [query for query, _, _ in rounds]
    roots = [query.public["root"] for query in asked if query.statistic == "vote"]
    if blocks:
        for root, prior in zip(roots[1:], elected, strict=True):
            assert_allclose(root @ root.T, prior, atol=1e-9)
    assert_allclose(billboard.moment, elected[-1], atol=1e-9)
    low, high = VOTE_RANGE[False]
    asked = [query.public for query in asked if query.statistic == "block"]
    assert len(asked) == 2 * blocks
    for n, public in enumerate(asked, 1):
        assert public["rank"] == 2 or n > 1
        assert public["snr_centre"] == pytest.approx(min(0.5 * (low + high) + 0.2, high))
        noise = rounds[0][1].noise_std / (m * np.sqrt(n))
        assert public["snr_spread"] == pytest.approx(np.hypot(VOTE_SPREAD, noise))


@pytest.mark.parametrize("common", [True, False])
@pytest.mark.parametrize("related", [True, False])
@pytest.mark.parametrize("init", [None, {"coef": np.arange(5.0), "intercept": 2.5}])
def test_centres_and_means_follow_from_releases(common, related, init):
    """Centres of a relation are shrunk by their known noise; means are in units of the range."""
    m, d, rng = 90, 5, np.random.default_rng(0)
    facts = covariates(np.random.default_rng(3).normal(size=(m, 2)))
    est = MPMTLLowRank(
        epsilon=30.0,
        tasks=range(m),
        relation=facts if related else None,
        levels="free",
        unseen_task="mean",
        target_range=(-4.0, 10.0),
        uncertainty="unseen",
        init=init,
    )
    target, centres = rng.normal(30.0, 1.0, size=d), []

    def release(query):
        if query.statistic == "length":
            return 0.75 * m * (BINS == 3.0) if common else np.full(len(BINS), m / len(BINS))
        if query.statistic == "update":
            centres.append(query.public["centre"].copy())
            return (0.5 * (target - centres[-1]) + rng.normal(0.0, 0.1, (3, d))) / m
        if query.statistic == "residuals":
            return np.full(81, m / 81.0)
        (mechanism,) = query.mechanisms.values()
        found = rng.normal(0.3, 0.1, size=mechanism.shape)
        return found + found.T + 20.0 * np.eye(d) if found.ndim == 2 else found

    board, rounds = played(est, release, m, d)
    last = "intercept" if related else "mean"
    assert [query.statistic for query, _, _ in rounds][-2:] == [last, "residuals"]
    query, mechanism, sent = rounds[-2]
    assert query.public["billboard"] is board and query.divide == m
    middle = 0.0 if init else 3.0
    assert [query.public[name] for name in ("middle", "unit", "clip_norm")] == [
        middle,
        7.0,
        est.clip_norm,
    ]
    assert mechanism.sensitivity == pytest.approx(2.0 * est.clip_norm / m)
    if not related:
        expected = 7.0 * sent + np.append(np.zeros(d), middle)
        expected += np.append(np.arange(5.0), 2.5) if init else 0.0
        assert_allclose(board.mean, expected)
        return
    moves = [(query, noise, S) for query, noise, S in rounds if query.statistic == "update"]
    length = 8.0 if common else 1.0
    to = board.centres.relation.weights(np.arange(m))
    way = np.array([m * S for _, _, S in moves])
    for t, centre in enumerate(centres):
        assert_allclose(centre, way[:t].sum(axis=0), atol=1e-12)
        assert moves[t][0].public["own_units"] == (not common)
    G, noise = way.sum(axis=0), m * np.array([mechanism.noise_std for _, mechanism, _ in moves])
    chance = 2.0 * length**2 * np.sum(to**2, axis=0)
    kept = [kept_part(way[:, g], G[g], noise, chance[g]) for g in range(3)]
    factor, left = np.array(kept).T
    assert (factor > 0.0).any() and (factor < 1.0).any()
    assert board.centres.own_units == (not common)
    assert_allclose(board.centres.coef, factor[:, None] * G)
    assert_allclose(board.centres.noise_std, factor * left)
    constant = board.relation.of_constant
    assert_allclose(board.centres.intercept[:, 0], m * 7.0 * sent + middle * constant)


@pytest.mark.parametrize("total", [0.25, -0.5, 9.0, -9.0])
def test_the_level_of_all_is_the_released_mean_within_the_window(total):
    """Levels are sent less the middle of the public range, and clipped to half of it."""
    m, d = 90, 5

    def release(query):
        if query.statistic == "level":
            assert (query.public["middle"], query.public["unit"]) == (3.0, 7.0)
            return np.array([7.0 * m * total])
        (mechanism,) = query.mechanisms.values()
        found = np.zeros(mechanism.shape)
        return found + 20.0 * np.eye(d) if found.ndim == 2 else found

    est = MPMTLLowRank(epsilon=30.0, tasks=range(m), target_range=(-4.0, 10.0))
    billboard, _ = played(est, release, m, d)
    assert billboard.level.intercept == pytest.approx(3.0 + 7.0 * np.clip(total, -1.0, 1.0))


@pytest.mark.parametrize("found", [True, False])
def test_levels_of_counts_are_in_the_window_of_most_tasks(found):
    """Means of about 8 are logarithms about log(8), within a public distance."""
    m, d, asked = 4000, 4, []

    def release(query):
        asked.append(query.statistic)
        (mechanism,) = query.mechanisms.values()
        sums = np.zeros(mechanism.shape)
        if query.statistic == "window" and found:
            sums[40 + 2 : 40 + 5] = m / 4, m / 2, m / 4  # from 4, 8 and 16 on
        if query.statistic == "level":
            assert query.public["middle"] == pytest.approx(np.log(8.0 * np.sqrt(2.0)))
            assert query.public["unit"] == LOG_WINDOW
            sums += 0.1 * m
        return sums + 20.0 * np.eye(d) if sums.ndim == 2 else sums

    est = MPMTLLowRank(epsilon=10.0, loss="poisson", tasks=range(m))
    billboard, _ = played(est, release, m, d)
    assert "window" in asked and ("level" in asked) == found == (billboard.level is not None)
    if found:
        assert billboard.level.intercept == pytest.approx(np.log(8.0 * np.sqrt(2.0)) + 0.1)


def test_without_noise_votes_are_of_the_last_prior():
    """Nothing is averaged over rounds, and nothing but the spread of tasks is uncertain."""
    m, d, votes = 50, 3, iter((0.5, -0.9, 0.2, 0.4))
    steps, query = (
        release_prior(
            Population(np.arange(m), d),
            False,
            moment=[None] * 3,
            vote=[None] * 4,
            log_loss=False,
            tilt=0.5,
        ),
        None,
    )
    reply, centres = None, []
    while True:
        try:
            query = steps.send(reply)
        except StopIteration as end:
            board = end.value
            break
        if query.statistic == "vote":
            reply = {"vote": np.array([m * next(votes)])}
            continue
        centres.append((query.public["snr_centre"], query.public["snr_spread"]))
        reply = {"moment": np.diag([40.0, 6.0, 4.0])}
    centres.append((board.snr_centre, board.snr_spread))
    middle = np.mean(VOTE_RANGE[False])
    assert_allclose(centres, [(middle + v, VOTE_SPREAD) for v in (0.5, -0.9, 0.2, 0.4)])
    assert board.releases == []
    std, sampling = 0.2 / np.sqrt(2.0), np.sqrt(2.0 * m) / d
    expected = shrink_matrix(np.diag([40.0, 6.0, 4.0]), std / np.sqrt(3.0), float(m), 0.5, sampling)
    assert_allclose(board.moment, expected / m, atol=1e-9)
