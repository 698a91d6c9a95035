"""Sampled rounds: closed forms here, privacy-loss distributions where dp-accounting is."""

import itertools
import math
import sys

import numpy as np
import pytest

from skpmtl.privacy import compose_gdp, gdp_delta, gdp_epsilon, gdp_mu, sampling
from skpmtl.privacy.sampling import (
    accountant_name,
    blocks_mu,
    fixed_size_delta,
    fixed_size_epsilon,
    fixed_size_noise,
    poisson_epsilon,
    poisson_noise,
)


@pytest.mark.parametrize("adjacency, c", [("zero-out", 1), ("replace-one", 2)])
def test_fixed_size_is_the_mixture_over_participation(adjacency, c):
    T, rate, z, epsilon = 6, 0.3, 1.7, 0.8
    direct = 0.0
    for pattern in itertools.product([0, 1], repeat=T):
        probability = math.prod(rate if bit else 1 - rate for bit in pattern)
        mu = compose_gdp([c / z] * sum(pattern)) if any(pattern) else 0.0
        direct += probability * gdp_delta(mu, epsilon)
    assert fixed_size_delta(z, T, rate, epsilon, adjacency) == pytest.approx(direct, rel=1e-12)
    assert fixed_size_delta(z, T, 1.0, epsilon, adjacency) == pytest.approx(
        gdp_delta(blocks_mu(z, T, adjacency), epsilon), rel=1e-12
    )


@pytest.mark.parametrize("adjacency, expected", [("zero-out", 9.1), ("replace-one", 23.0)])
def test_fixed_size_calibration(adjacency, expected):
    rate = 14 / 139
    epsilon = fixed_size_epsilon(2.0, 100, rate, 1e-5, adjacency)
    assert epsilon == pytest.approx(expected, abs=0.051)
    assert fixed_size_delta(2.0, 100, rate, epsilon, adjacency) == pytest.approx(1e-5, rel=1e-9)
    assert fixed_size_epsilon(2.0, 1, 0.1, 0.11, adjacency) == 0.0  # who is drawn is 0.1 of it
    delta = 0.5 * fixed_size_delta(2.0, 1, 0.1, 0.0, adjacency)
    epsilon = fixed_size_epsilon(2.0, 1, 0.1, delta, adjacency)
    assert fixed_size_delta(2.0, 1, 0.1, epsilon, adjacency) == pytest.approx(delta, rel=1e-9)
    tiny = fixed_size_epsilon(1e7, 4, 0.5, 1e-9, adjacency)
    assert fixed_size_delta(1e7, 4, 0.5, tiny, adjacency) == pytest.approx(1e-9, rel=1e-6)
    z = fixed_size_noise(1.0, 0.09, 1, 0.1, adjacency)  # 0.1 is the probability
    assert fixed_size_delta(z, 1, 0.1, 1.0, adjacency) == pytest.approx(0.09, rel=1e-9)
    z = fixed_size_noise(1.0, 1e-8, 100, rate, adjacency)
    assert fixed_size_delta(z, 100, rate, 1.0, adjacency) == pytest.approx(1e-8, rel=1e-9)
    assert z <= blocks_mu(1.0, 100, adjacency) / gdp_mu(1.0, 1e-8)
    with pytest.raises(ValueError, match="rate=0"):
        fixed_size_delta(2.0, 100, 0, 1.0, adjacency)
    with pytest.raises(ValueError, match="ever being drawn"):
        fixed_size_noise(1.0, 0.9, 1, 0.1, adjacency)


def test_rate_one_needs_no_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)  # as if it were not installed
    assert poisson_epsilon(3.0, 4, 1.0, 1e-5, "zero-out") == pytest.approx(gdp_epsilon(2 / 3, 1e-5))
    assert poisson_noise(1.0, 1e-5, 4, 1.0, "replace-one") == pytest.approx(4 / gdp_mu(1.0, 1e-5))
    pair = poisson_epsilon(3.0, 4, 1.0, 1e-5, "zero-out", group_size=2)
    assert pair == pytest.approx(gdp_epsilon(4 / 3, 1e-5))
    with pytest.raises(ValueError, match="group_size=2"):
        poisson_epsilon(3.0, 4, 0.5, 1e-5, "replace-one", group_size=2)


def test_missing_library_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)  # as if it were not installed
    with pytest.raises(ImportError, match=r"skpmtl\[sampling\]"):
        poisson_epsilon(2.0, 10, 0.1, 1e-5, "zero-out")


@pytest.fixture
def dp():
    return pytest.importorskip("dp_accounting", reason="needs the extra skpmtl[sampling]")


@pytest.mark.parametrize("adjacency, expected", [("zero-out", 2.36), ("replace-one", 4.40)])
def test_poisson(dp, adjacency, expected):
    rate = 14 / 139
    epsilon = poisson_epsilon(2.0, 100, rate, 1e-5, adjacency)
    assert epsilon == pytest.approx(expected, abs=0.006)
    z = poisson_noise(1.0, 1e-5, 100, rate, adjacency)
    assert 0.99 < poisson_epsilon(z, 100, rate, 1e-5, adjacency) <= 1.0 + 1e-3
    assert z < blocks_mu(1.0, 100, adjacency) / gdp_mu(1.0, 1e-5)
    assert "dp-accounting 0." in accountant_name()


@pytest.mark.parametrize(("group_size", "z"), [(1, 0.8), (2, 0.8), (1, 20.0)])
def test_poisson_one_round_has_a_closed_form(dp, group_size, z):
    """One round, zero-out: as many of a group as are drawn against none, both orders."""
    p, delta = 0.3, 1e-3
    epsilon = poisson_epsilon(z, 1, p, delta, "zero-out", group_size=group_size)

    x = np.linspace(-10.0 * z, 10.0 * z + group_size, 200_001)
    alone = np.exp(-0.5 * (x / z) ** 2) / (z * math.sqrt(2.0 * math.pi))
    chances = [
        math.comb(group_size, k) * p**k * (1 - p) ** (group_size - k) for k in range(group_size + 1)
    ]
    mixture = sum(c * alone * np.exp((k * x - 0.5 * k * k) / z**2) for k, c in enumerate(chances))
    pairs = (mixture, alone), (alone, mixture)
    step = x[1] - x[0]
    spent = [step * np.maximum(0.0, f - math.exp(epsilon) * g).sum() for f, g in pairs]
    assert max(spent) == pytest.approx(delta, rel=0.02) and max(spent) <= delta * 1.0001


@pytest.mark.parametrize(("epsilon", "rate", "n_rounds"), [(5.0, 0.7, 1), (30.0, 0.9, 2)])
def test_few_rounds_at_a_high_rate_need_less_noise(epsilon, rate, n_rounds):
    pytest.importorskip("dp_accounting", reason="needs the extra skpmtl[sampling]")
    found = poisson_noise(epsilon, 1e-3, n_rounds, rate, "replace-one")
    assert found < 0.9 * rate * poisson_noise(epsilon, 1e-3, n_rounds, 1.0, "replace-one")
    for z, within in ((found, True), (0.99 * found, False)):
        spent = poisson_epsilon(z, n_rounds, rate, 1e-3, "replace-one")
        assert (spent <= epsilon) == within


def _with(monkeypatch, spent):
    """The search with ``spent(z, delta)`` in place of convolutions. -> what it asks for"""
    asked = []

    def accountant(event, delta, adjacency, step):
        asked.append(event)
        return spent(event[0], delta)

    monkeypatch.setattr(sampling, "_event", lambda *event: event)
    monkeypatch.setattr(sampling, "_spent", accountant)
    return asked


def test_the_search_ends_at_a_jump(monkeypatch):
    """Where the curve jumps over the budget, at no more noise than a thousandth too much."""
    full = poisson_noise(1.0, 1e-4, 7, 1.0, "zero-out")
    for part in (0.02, 0.13, 0.9):
        asked = _with(monkeypatch, lambda z, delta, part=part: 0.5 if z >= part * full else 2.0)
        z = poisson_noise(1.0, 1e-4, 7, 0.1, "zero-out")
        assert 1.0 <= z / (part * full) <= 1.0011 and len(asked) <= 24
    _with(monkeypatch, lambda z, delta: 2.0)
    assert poisson_noise(1.0, 1e-4, 7, 0.1, "zero-out") == pytest.approx(full)
    with pytest.raises(ValueError, match="ever being drawn"):
        poisson_noise(1.0, 0.01, 9, 0.001, "zero-out")
