"""Plans of rounds against the formulas of their docstrings; no table is read."""

import math

import numpy as np
import pytest

from skpmtl import PrivateMeanRegMTL, PrivateMeanRegMTLClassifier
from skpmtl.exchange.protocol import Population
from skpmtl.mean_regularized.errors import LEAST_ROUNDS, share
from skpmtl.mean_regularized.plan import (
    MeanPlan,
    PooledPlan,
    alone_weight,
    auto_rounds,
    columns_for,
)
from skpmtl.privacy import compose_gdp, gdp_epsilon, gdp_mu
from skpmtl.privacy.rng import SeededSource
from skpmtl.privacy.sampling import fixed_size_noise, poisson_noise
from skpmtl.reproduction import PrivateFedAvg, PublishedMeanRegMTL
from skpmtl.rounds import plan as rounds
from skpmtl.rounds.plan import BlockGaussian, RoundsPlan, epsilon_of_rounds, histogram

REACH = {"replace-one": 2.0, "zero-out": 1.0}
BUDGET = 1.0, 1e-5
MU = gdp_mu(*BUDGET)


@pytest.mark.parametrize("adjacency", REACH)
@pytest.mark.parametrize(("share", "aside"), [(1.0, 0.0), (0.5, 0.1)])
def test_releases_of_rounds_cost_the_budget(adjacency, share, aside):
    """Fixed bounds: mu of all rounds is sqrt(share (1 - aside)) of the budget."""
    m, d, T, clip = 50, 7, 6, 0.3
    plan = RoundsPlan(
        m, d, BUDGET, T, share=share, aside=aside, adjacency=adjacency, clip_norm=clip
    )
    assert plan.mu == pytest.approx(MU * math.sqrt(share)) and plan.round_delta == 1e-5
    mu = plan.mu * math.sqrt(1.0 - aside)
    assert plan.noise_multiplier == pytest.approx(REACH[adjacency] * math.sqrt(T) / mu)
    entries = plan.entries(plan.bounds())
    assert compose_gdp([entry["mu"] for entry in entries]) == pytest.approx(mu)
    assert len(entries) == T
    for t, entry in enumerate(entries):
        assert entry["name"] == f"round {t + 1}"
        assert entry["sensitivity"] == pytest.approx(REACH[adjacency] * clip / m)
        stated = plan.noise_multiplier * clip / m
        assert entry["noise_std"] == pytest.approx(stated, rel=1e-6)
    spent = epsilon_of_rounds(plan.noise_multiplier, T, "all", 1.0, 1e-5, adjacency)
    assert spent == pytest.approx(gdp_epsilon(mu, 1e-5))
    spent = epsilon_of_rounds(plan.noise_multiplier, T, "all", 1.0, 1e-5, adjacency, before=0.7)
    assert spent == pytest.approx(gdp_epsilon(math.hypot(mu, 0.7), 1e-5))
    assert not plan.auto and not plan.measures and plan.path == 1.0 and plan.scale is None
    assert plan.bounds(5.0) == [clip] * T


@pytest.mark.parametrize(
    ("sampling", "adjacency"),
    [("fixed", "replace-one"), ("fixed", "zero-out"), ("poisson", "replace-one")],
)
def test_sampled_rounds_have_the_noise_of_their_share(sampling, adjacency):
    if sampling == "poisson":
        pytest.importorskip("dp_accounting", reason="needs the extra skpmtl[sampling]")
    find = poisson_noise if sampling == "poisson" else fixed_size_noise
    m, T, aside = 30, 4, 0.1
    plan = RoundsPlan(
        m,
        5,
        BUDGET,
        T,
        aside=aside,
        adjacency=adjacency,
        clip_norm=0.5,
        sampling=sampling,
        rate=0.215,
    )
    rate = 0.215 if sampling == "poisson" else 6 / 30  # a whole number of tasks
    assert plan.rate == rate and plan.denominator == pytest.approx(rate * m)
    assert plan.mu is None and plan.round_delta == pytest.approx(0.9e-5)
    expected = find(0.9, 0.9e-5, T, rate, adjacency)
    assert plan.noise_multiplier == pytest.approx(expected)
    spent = epsilon_of_rounds(expected, T, sampling, rate, 0.9e-5, adjacency)
    assert spent <= 0.9 * (1 + 1e-6) and spent == pytest.approx(0.9, rel=2e-3)
    entries = plan.entries(plan.bounds())
    assert all("mu" not in entry and "mu if drawn" in entry for entry in entries)
    z = find(1.0, 1e-5, 10, rate, adjacency)
    mu = REACH[adjacency] * math.sqrt(10) * rate / z
    assert plan.ratio == pytest.approx(2.0 / REACH[adjacency] * m * mu / math.sqrt(5))


def test_few_tasks_of_a_draw():
    assert RoundsPlan(10, 1, None, 3, sampling="fixed", rate=0.01).denominator == 1.0
    with pytest.raises(ValueError, match="servers see who takes part"):
        RoundsPlan(10, 1, None, 3, sampling="fixed", rate=0.5, n_servers=2)
    source = SeededSource(np.random.default_rng(0))
    fixed = RoundsPlan(40, 1, None, 3, sampling="fixed", rate=0.3)
    draws = [fixed.draw(source) for _ in range(200)]
    assert all(len(set(draw)) == 12 and (np.diff(draw) > 0).all() for draw in draws)
    counts = np.bincount(np.concatenate(draws), minlength=40) / 200
    assert abs(counts - 0.3).max() < 5 * math.sqrt(0.21 / 200)
    poisson = RoundsPlan(40, 1, None, 3, sampling="poisson", rate=0.3)
    sizes = [len(poisson.draw(source)) for _ in range(200)]
    assert np.mean(sizes) == pytest.approx(12, abs=5 * math.sqrt(40 * 0.21 / 200))
    assert np.var(sizes) == pytest.approx(40 * 0.21, rel=0.5)
    for sampling in ("all", "poisson"):
        everybody = RoundsPlan(4, 1, None, 3, sampling=sampling, rate=1.0).draw(source)
        assert everybody.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("adjacency", REACH)
def test_ratio_and_noise_over_the_way(adjacency):
    m, d, T, mu = 300, 12, 20, MU
    plan = RoundsPlan(m, d, BUDGET, T, adjacency=adjacency, clip_norm=0.2)
    ratio = 2.0 / REACH[adjacency] * m * mu / math.sqrt(d)
    assert plan.ratio == pytest.approx(ratio)
    # All of the noise together is 2 / ratio times as long as the way, so one round's is less.
    assert plan.noise_over_path == pytest.approx(2.0 / ratio / math.sqrt(T))
    assert plan.total_noise_over_path == pytest.approx(2.0 / ratio)
    if adjacency == "zero-out":
        assert plan.noise_over_path == pytest.approx(math.sqrt(d / T) / (m * mu))
    # With clusters that of the smallest one, which has its part of the numbers.
    groups = np.array([200, 100])
    parts = RoundsPlan(m, 2 * d, BUDGET, T, adjacency=adjacency, clip_norm=0.2, groups=groups)
    assert parts.ratio == pytest.approx(ratio / 3)
    assert parts.noise_over_path == pytest.approx(3 * plan.noise_over_path)
    for nothing in (RoundsPlan(m, d, None, T), RoundsPlan(m, d, BUDGET, 0)):
        assert nothing.noise_over_path == 0.0 and nothing.ratio == math.inf
        assert nothing.total_noise_over_path == 0.0
        assert nothing.entries(nothing.bounds() if nothing.n_rounds else []) == []
    # Servers: P of them have mu / sqrt(P).
    servers = RoundsPlan(m, d, BUDGET, T, clip_norm=0.2, n_servers=4)
    assert servers.mu == pytest.approx(mu / 2.0)


def test_lengths_are_requested_where_enough_tasks_make_them_clear():
    """The histogram has 4 % of mu^2, and is asked for from seven deviations of a count on."""
    std = histogram("replace-one", 0.2 * MU).noise_std
    least = math.ceil(7.0 * std)
    for m, asked in ((least - 1, False), (least, True)):
        plan = RoundsPlan(m, 1, BUDGET, 5)
        assert plan.auto and plan.measures and (plan.scale is not None) == asked
        entries = plan.entries(plan.bounds())
        assert compose_gdp([entry["mu"] for entry in entries]) == pytest.approx(MU)
        assert len(entries) == 5 + asked
        rest = math.sqrt(0.96) if asked else 1.0
        assert plan.noise_multiplier == pytest.approx(2.0 * math.sqrt(5) / (MU * rest))
        if asked:
            assert plan.scale_mu == pytest.approx(0.2 * MU)
            assert entries[0]["name"] == "lengths, counts"
            assert entries[0]["sensitivity"] == pytest.approx(math.sqrt(2.0))
    assert not RoundsPlan(least, 1, None, 5).measures


def test_the_rule_for_rounds_and_their_way():
    """Steps of the public rule, with the way that rounds may go."""
    size = 100  # numbers from which on the way is not shortened
    expected = {
        1.49: (0, 1.0),
        1.5: (1, 1.0),
        3.99: (1, 1.0),
        4.0: (10, 6.0),
        5.99: (10, 3 * 5.99**0.5),
        6.0: (30, 3 * 6.0**0.5),
        11.99: (30, 11.99),
        12.0: (100, 12.0),
        64.0: (100, 64.0),
        900.0: (100, 100.0),
        math.inf: (100, 100.0),
    }
    for ratio, (n_rounds, way) in expected.items():
        found = rounds.path(ratio, size)
        assert found[0] == n_rounds and found[1] == pytest.approx(way), ratio
    for size, part in ((1, 0.5), (25, 0.5), (49, 0.7), (100, 1.0), (400, 1.0)):
        assert rounds.path(64.0, size)[1] == pytest.approx(64.0 * part)
    # Shared models that are longer than those of tasks go twice as far, in ten rounds.
    assert rounds.path(1.49, 100, far=True) == (0, 1.0)
    assert rounds.path(1.5, 100, far=True) == (10, 2.0)
    assert rounds.path(3.9, 100, far=True) == (10, 2.0)
    assert rounds.path(4.0, 100, far=True)[1] == pytest.approx(6.0)
    # Many classes of a public start are worth more of the noise.
    assert rounds.path(0.75, 100, far=True, n_started=40) == (10, 4.0)
    assert rounds.path(0.74, 100, far=True, n_started=40) == (0, 1.0)
    assert rounds.path(2.0, 100, far=True, n_started=10) == (10, 2.0)
    plan = RoundsPlan(1000, 4, BUDGET, None)
    n_rounds, way = rounds.path(plan.ratio, 4)
    assert (plan.n_rounds, plan.path) == (n_rounds, way)
    bounds = np.array(plan.bounds(3.0))
    assert bounds.sum() == pytest.approx(3.0 * way)
    assert bounds[0] == pytest.approx(n_rounds * bounds[-1])  # falls linearly
    np.testing.assert_allclose(np.diff(bounds), -bounds[-1])
    assert sum(plan.bounds()) == pytest.approx(way)
    fewer = RoundsPlan(1000, 4, BUDGET, 3)
    assert fewer.n_rounds == 3 and fewer.path == way
    nothing = RoundsPlan(2, 400, (0.1, 1e-5), None)
    assert nothing.n_rounds == 0 and nothing.noise_multiplier is None
    assert nothing.mu == pytest.approx(gdp_mu(0.1, 1e-5)) and nothing.scale is None


def test_columns_that_a_budget_carries():
    found = [rounds.columns_within(ratio) for ratio in (0.5, 11.9, 12.0, 60.5, math.inf)]
    assert found == [1, 1, 2, 10, None]


def test_noise_is_added_piece_by_piece(monkeypatch):
    """The pieces have the grid, the spread and the shrinkage of the whole."""
    monkeypatch.setattr(rounds, "_BLOCK", 7)
    mechanism = BlockGaussian(2000, 0.25, 0.5)
    value = np.full((20, 100), 3.0)
    found = mechanism.release(value, SeededSource(np.random.default_rng(1)))
    assert found.shape == (20, 100)
    noise = (found - 3.0) / mechanism.noise_std
    assert abs(noise.mean()) < 5 / math.sqrt(2000)
    assert noise.std() == pytest.approx(1.0, abs=5 / math.sqrt(4000))
    steps = found / mechanism.step
    assert (steps == np.rint(steps)).all() and len(np.unique(steps)) > 1990
    for bad in (np.nan, np.inf):
        value[3, 1] = bad  # one of many
        with pytest.raises(ValueError, match="not finite"):
            mechanism.release(value, SeededSource(np.random.default_rng(1)))


# ------------------------------------------------------------------------ of estimators
def plan_of(est=None, n_tasks=400, size=6, intercepts=None, **settings):
    est = PublishedMeanRegMTL() if est is None else est
    est.set_params(**{"epsilon": 1.0, "delta": 1e-5, **settings})
    return MeanPlan(est, n_tasks, size, intercepts)


def test_rounds_of_a_budget():
    found = [auto_rounds(epsilon) for epsilon in (0.05, 0.1, 0.11, 1.0, 1.1, 2.0, 2.1, None)]
    assert found == [3, 3, 10, 10, 30, 30, 100, 100]
    for ratio, crowd in ((2.0, 0.5), (math.inf, 1.0), (5.0, 3.0)):
        assert alone_weight(ratio, crowd) == pytest.approx((0.1 + 3.0 / ratio) * math.exp(crowd))
    assert alone_weight(5.0, 50.0) == alone_weight(5.0, 3.0)
    plan = plan_of()
    assert plan.alone_weight == pytest.approx(alone_weight(plan.ratio, 6 / 400))


def test_mean_intercepts_have_a_tenth_of_the_squared_budget():
    """Of epsilon and delta where tasks are sampled, and all of it where there are no rounds."""
    intercepts = (2, 1.5, 0.4)
    plan = plan_of(intercepts=intercepts)
    assert plan.intercept_range == (1.5, 0.4) and plan.mu == pytest.approx(MU)
    entries = plan.releases()
    assert compose_gdp([entry["mu"] for entry in entries]) == pytest.approx(MU)
    assert entries[-1]["name"] == "mean intercept"
    assert entries[-1]["mu"] == pytest.approx(MU * math.sqrt(0.1))
    assert entries[-1]["sensitivity"] == pytest.approx(2 * 0.4 / 400)
    assert plan.notes()["mean intercept"] == "10% of the squared budget"
    alone = plan_of(PrivateFedAvg(), n_tasks=3, size=500, intercepts=intercepts)
    assert alone.n_rounds == 0 and len(alone.releases()) == 1
    assert alone.releases()[0]["mu"] == pytest.approx(MU)
    assert alone.mechanism().endswith("clipped intercepts")
    sampled = plan_of(
        intercepts=intercepts,
        sampling="fixed",
        sampling_rate=0.5,
        n_rounds=3,
        clip_norm=0.5,
        epsilon=2.0,
    )
    assert sampled.intercept.mu == pytest.approx(gdp_mu(0.2, 1e-6))
    assert sampled.mechanism().endswith("clipped updates")
    assert "basic composition" in sampled.notes()["mean intercept"]
    assert plan_of().intercept is None and plan_of().intercept_range == (0.0, 1.0)
    assert plan_of(intercepts=intercepts, epsilon=None).intercept is None


def test_what_a_plan_says():
    plan = plan_of(clip_norm=0.5, n_rounds=7)
    public = plan.public_inputs()
    assert (public["n_tasks"], public["n_numbers"], public["n_rounds"]) == (400, 6, 7)
    assert public["clip_norm"] == 0.5 and public["denominator"] == 400.0
    assert public["noise over the longest path"] == plan.noise_over_path
    assert "path" not in public and "clusters" not in public and "relation" not in public
    assert plan.notes() == {} and plan.scheme().startswith("all tasks in every round; ")
    auto = plan_of()
    public = auto.public_inputs()
    assert public["clip_norm"] == "auto" and public["path"] == auto.path
    assert public["ratio of the rule for the rounds"] == auto.ratio
    assert auto.scale is not None and auto.notes()["unit of the updates"].startswith("a histogram")
    assert "4% of the squared budget" in auto.notes()["unit of the updates"]
    few = plan_of(n_tasks=20, size=2)
    assert few.scale is None and few.n_rounds
    assert few.notes()["unit of the updates"].startswith("every task's own, which")
    assert plan_of(n_rounds=0).silence == "n_rounds=0 leaves no round"
    assert "too few tasks" in plan_of(n_tasks=3, size=500).silence
    clusters = plan_of(PrivateMeanRegMTL(clusters={0: 0}))
    assert "clusters" in clusters.public_inputs()
    fixed = plan_of(sampling="fixed", sampling_rate=0.5, n_rounds=3, clip_norm=0.5)
    assert fixed.scheme().startswith("200 of 400 tasks in every round")
    assert "no amplification" in fixed.accounting
    with pytest.raises(ValueError, match="sampling_rate=0.5"):
        plan_of(sampling_rate=0.5)
    pytest.importorskip("dp_accounting", reason="needs the extra skpmtl[sampling]")
    poisson = plan_of(sampling="poisson", sampling_rate=0.25, n_rounds=3, clip_norm=0.5)
    assert "probability 0.25 in every round" in poisson.scheme()
    assert len({poisson.accountant(), fixed.accountant(), plan.accountant()}) == 3


def test_who_may_have_standard_errors():
    with_errors = {"standard_errors": True, "clip_norm": 0.5}
    for n_rounds in (LEAST_ROUNDS, 30):
        plan = plan_of(PrivateMeanRegMTL(), n_rounds=n_rounds, **with_errors)
        assert plan.no_errors is None
        part = share(plan.n_tasks, plan.mu, plan.adjacency)
        assert part in (0.05, 0.1)
        assert plan.deviation.mu == pytest.approx(plan.mu * math.sqrt(part), rel=1e-12)
        mus = [entry["mu"] for entry in plan.releases()]
        assert sum(mu * mu for mu in mus) == pytest.approx(plan.mu**2, rel=1e-9)
    for given, why in (
        ({"n_rounds": LEAST_ROUNDS - 1}, f"n_rounds={LEAST_ROUNDS - 1}"),
        ({"n_rounds": 30, "ridge": 0.1}, "a ridge"),
        ({"n_rounds": 30, "epsilon": None}, "nothing was released"),
        ({"clip_norm": "auto", "n_tasks": 30, "size": 2}, "units of their own"),
    ):
        plan = plan_of(PrivateMeanRegMTL(), **with_errors | given)
        assert why in plan.no_errors and plan.deviation is None
    assert plan_of(n_rounds=30, clip_norm=0.5).no_errors == "not asked for"


def test_the_constant_of_a_pooled_model_is_not_shrunk():
    """Where all is noise, covariates lose everything and the constant nothing."""
    plan = PooledPlan(PrivateMeanRegMTL(), Population(np.arange(50), 2))
    theta = np.random.default_rng(0).normal(size=(3, 2))
    found = plan.shrunk(np.array([theta]), theta, np.full((1, 3), 1e6))
    np.testing.assert_array_equal(found, theta * [[1.0], [0.0], [0.0]])


def test_standard_errors_take_no_share_without_a_budget():
    given = Population(np.arange(60), 4)
    plans = [
        PooledPlan(PrivateMeanRegMTL(epsilon=None, standard_errors=asked), given)
        for asked in (False, True)
    ]
    assert plans[1].budget_shares == {**plans[0].budget_shares, "deviation": 0.0}


def test_shared_models_of_classes_are_far():
    """Their rule goes further; a mean of numbers does not."""
    plan = plan_of(n_tasks=100, size=25, epsilon=0.6)
    assert 1.5 < plan.ratio < 4.0
    assert (plan.n_rounds, plan.path) == (1, 1.0)
    far = plan_of(PrivateMeanRegMTLClassifier(), n_tasks=100, size=25, epsilon=0.6)
    assert (far.n_rounds, far.path) == (10, 2.0)


def test_shared_models_of_several_covariates_are_far():
    """One column is that of a mean of all tasks, and has its rule."""
    est = PublishedMeanRegMTL(epsilon=0.6, delta=1e-5)
    for r, expected in ((1, (1, 1.0)), (2, (10, 2.0))):
        plan = MeanPlan(est, 100 * r, 25 * r, groups=np.full(r, 100), relation=object())
        assert 1.5 < plan.ratio < 4.0
        assert (plan.n_rounds, plan.path) == expected


def test_columns_of_relations_follow_from_the_ratio():
    from skpmtl.exchange import Population

    population = Population(np.arange(400), 5)
    est = PrivateMeanRegMTL(epsilon=1.0, delta=1e-5)
    ratio = plan_of(n_tasks=400, size=5).ratio
    assert columns_for(est, population) == int(ratio / 6.0) > 1
    assert columns_for(est.set_params(clip_norm=0.5), population) is None
    assert columns_for(est.set_params(clip_norm="auto", epsilon=None), population) is None
