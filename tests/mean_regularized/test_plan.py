"""Plans of rounds against the formulas of their docstrings; no table is read."""

import math

import numpy as np
import pytest

from skpmtl.privacy import compose_gdp, gdp_epsilon, gdp_mu
from skpmtl.privacy.rng import SeededSource
from skpmtl.privacy.sampling import fixed_size_noise, poisson_noise
from skpmtl.rounds import plan as rounds
from skpmtl.rounds.plan import BlockGaussian, RoundsPlan, epsilon_of_rounds

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
