"""Plans of rounds against the formulas of their docstrings; no table is read."""

import math

import numpy as np
import pytest

from skpmtl.privacy import compose_gdp, gdp_epsilon, gdp_mu
from skpmtl.privacy.rng import SeededSource
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
    spent = epsilon_of_rounds(plan.noise_multiplier, T, 1e-5, adjacency)
    assert spent == pytest.approx(gdp_epsilon(mu, 1e-5))
    spent = epsilon_of_rounds(plan.noise_multiplier, T, 1e-5, adjacency, before=0.7)
    assert spent == pytest.approx(gdp_epsilon(math.hypot(mu, 0.7), 1e-5))
    assert not plan.auto and not plan.measures and plan.path == 1.0 and plan.scale is None
    assert plan.bounds(5.0) == [clip] * T


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
