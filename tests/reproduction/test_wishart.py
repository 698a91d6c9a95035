"""Wishart noise of Liang et al.: its law, the event that breaks it, and the sound difference."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import chi2, kstest

from skpmtl.privacy import SymmetricGaussian, gdp_mu
from skpmtl.privacy.rng import SeededSource
from skpmtl.reproduction.mp_mtl import (
    PublishedWishart,
    SymmetrizedWishart,
    published_wishart_delta_bound,
)


def seeded(seed):
    """A source for tests: the noise must be the same in every run of the test."""
    return SeededSource(np.random.default_rng(seed))


def test_published_noise_is_a_wishart_matrix():
    """x'Wx is chi2 with d + 1 degrees of freedom for |x| = 1, and 1 / x'W^-1 x chi2 with 2."""
    d, n, source = 3, 2000, seeded(1)
    mechanism = PublishedWishart(d, 1.4, 0.7)
    assert mechanism.scale == pytest.approx(1.4**2 / (2 * 0.7))
    W = np.array([mechanism.sample(source) for _ in range(n)]) / mechanism.scale
    x = np.random.default_rng(1).standard_normal(d)
    x /= np.linalg.norm(x)
    assert kstest(np.einsum("i,nij,j->n", x, W, x), chi2(d + 1).cdf).pvalue > 1e-4
    inverse = 1 / np.einsum("i,nij,j->n", x, np.linalg.inv(W), x)
    assert kstest(inverse, chi2(2).cdf).pvalue > 1e-4


def test_bound_on_delta_follows_from_the_sum_of_budgets():
    assert published_wishart_delta_bound([0.3, 0.7]) == pytest.approx(1 - math.exp(-1.0))
    for bad in ([], [-1.0, 2.0]):
        with pytest.raises(ValueError, match="positive, finite"):
            published_wishart_delta_bound(bad)


def published_event(mechanism, n, seed):
    """How often release - K^2 e1 e1' is not PSD, without the task and with it."""
    source = seeded(seed)
    signal = np.zeros(mechanism.shape)
    signal[0, 0] = mechanism.sensitivity
    without = np.array([mechanism.release(0 * signal, source) for _ in range(n)])
    with_task = np.array([mechanism.release(signal, source) for _ in range(n)])
    # Rounding to the grid moves eigenvalues by at most d steps.
    edge = -mechanism.dimension * mechanism.step
    return [
        float((np.linalg.eigvalsh(S - signal)[:, 0] < edge).mean()) for S in (without, with_task)
    ]


def assert_event_within_budget(mechanism, epsilon, delta, n=400, seed=0):
    p, q = published_event(mechanism, n, seed)
    allowance = 4.5 * math.sqrt((p + math.exp(2 * epsilon) * q + 1 / n) / n)
    assert p <= math.exp(epsilon) * q + delta + allowance
    assert q <= math.exp(epsilon) * p + delta + allowance


@pytest.mark.parametrize("d, epsilon", [(1, 0.3), (5, 1.0)])
def test_the_event_that_breaks_the_published_mechanism(d, epsilon):
    mechanism = PublishedWishart(d, 1.4, epsilon)
    p, q = published_event(mechanism, 400, d)
    expected = 1 - math.exp(-epsilon)
    assert q == 0.0
    assert abs(p - expected) < 4.5 * math.sqrt(expected * (1 - expected) / 400)
    assert mechanism.delta_lower_bound == pytest.approx(expected)
    with pytest.raises(AssertionError):
        assert_event_within_budget(mechanism, epsilon, 1e-5)
    sound = [SymmetrizedWishart(d, 1.4, epsilon), SymmetricGaussian(d, 1.4, gdp_mu(epsilon, 1e-5))]
    for mechanism in sound:
        assert_event_within_budget(mechanism, epsilon, 1e-5)


@pytest.mark.parametrize("d", [1, 3])
def test_symmetrised_wishart_density_ratio(d):
    """x'Ex = V (chi2_{d+1} - chi2_{d+1}'): its log-density moves by at most epsilon."""
    epsilon, sensitivity = 0.8, 1.5
    V = SymmetrizedWishart(d, sensitivity, epsilon).scale
    half, whole = (d + 1) / 2, math.gamma((d + 1) / 2) * (2 * V) ** ((d + 1) / 2)

    def f(x):  # a tenth of what the method of scipy takes
        return x ** (half - 1) * math.exp(-x / (2 * V)) / whole

    assert f(1.3) == pytest.approx(chi2(d + 1, scale=V).pdf(1.3), rel=1e-12)

    def density(x):
        x = abs(x)
        return quad(lambda t: f(t + x) * f(t), 0, 60 * V + 4 * V * d, epsrel=1e-10)[0]

    grid = np.linspace(-15 * V, 15 * V, 61)
    ratios = [abs(math.log(density(x) / density(x - sensitivity))) for x in grid]
    assert max(ratios) <= epsilon * (1 + 1e-6)
    assert max(ratios) > 0.6 * epsilon  # it approaches the budget in the tails
    if d == 1:  # Laplace of scale 2V = sensitivity / epsilon
        assert density(0.7) == pytest.approx(math.exp(-0.7 / (2 * V)) / (4 * V), rel=1e-6)


def test_published_wishart_adds_its_noise_to_the_value_as_it_is():
    """The paper leaves no room for rounding: what is on the grid stays what it is."""
    mechanism, value = PublishedWishart(2, 1.0, 1.0), np.array([[0.75, 0.25], [0.25, 0.5]])
    found, noise = (mechanism.release(v, seeded(3)) for v in (value, np.zeros((2, 2))))
    np.testing.assert_array_equal(found - noise, value)
