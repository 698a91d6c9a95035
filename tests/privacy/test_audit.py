"""The audit must find planted faults and must not accuse sound mechanisms."""

import itertools
import re

import numpy as np
import pytest
from scipy.stats import beta, chi2, norm

from skpmtl.privacy import (
    SymmetricGaussian,
    VectorGamma,
    VectorGaussian,
    audit,
    gdp_epsilon,
    gdp_mu,
)
from skpmtl.privacy.audit import _events, _log_odds, _noise_ratio
from skpmtl.reproduction.mp_mtl import PublishedWishart, SymmetrizedWishart


class Faulty(VectorGaussian):
    """Releases with another noise than `describe` states."""

    def __init__(self, fault, length=5):
        super().__init__(length, 1.0, 1.0)
        self.fault = fault

    def release(self, value, source):
        noise = self.noise_std * source.normal(self.shape)
        return value + self.fault(noise)


def test_half_the_noise_is_found():
    result = audit(Faulty(lambda noise: 0.5 * noise), random_state=0, n_draws=200)
    assert not result.passed and "FAILED" in str(result)
    assert any(re.search("Noise: it has 0.[45]", text) for text in result.failures)


def test_noise_that_cannot_be_played_again_shows_no_sensitivity():
    rng = np.random.default_rng(0)
    fresh = Faulty(lambda noise: rng.normal(size=5) * noise.std(), 5)
    result = audit(fresh, n_draws=20, random_state=0)
    assert np.isnan(result.sensitivity_observed)
    assert not [text for text in result.failures if text.startswith("Sensitivity")]


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_published_wishart_is_caught_by_its_draws(epsilon):
    result = audit(PublishedWishart(5, 1.0, epsilon), random_state=0)
    assert not result.passed
    assert result.epsilon_lower > (1.2 if epsilon == 0.1 else 3.0)
    assert any("Budget" in text for text in result.failures)


class OneSided:
    """Noise that is never negative, of a source that the audit cannot set: what is below the value
    of the statistic tells it."""

    shape, sensitivity = (20,), 1.0

    def __init__(self):
        self.generator = np.random.default_rng(0)

    def describe(self):
        known = {"mechanism": "Gaussian", "norm": "l2", "sensitivity": 1.0}
        return {**known, "noise_std": 4.0, "mu": 0.25}

    def release(self, value, source):
        return value + np.abs(self.generator.normal(size=20)) * 4.0


def test_the_smallest_number_shows_noise_that_is_never_negative():
    """In a direction that 200 draws do not show among so many numbers."""
    found = audit(
        OneSided(), np.zeros(20), 1.5 * np.eye(20)[7], n_draws=400, random_state=0, epsilon=0.5
    )
    assert found.event.startswith("smallest eigenvalue or entry") and found.epsilon_lower > 0.5


def sound(d, epsilon):
    mu = gdp_mu(epsilon, 1e-5)
    return [
        SymmetricGaussian(d, 2**0.5, mu),
        SymmetrizedWishart(d, 2.0, epsilon),
        VectorGamma(d, 2.0, epsilon),
        VectorGaussian(d, 0.1, mu),
    ]


@pytest.mark.parametrize("i", range(4))
@pytest.mark.spread(1)
def test_sound_mechanisms_pass(i):
    for seed, epsilon in enumerate([0.3, 5.0]):
        result = audit(sound(5, epsilon)[i], random_state=seed)
        assert result.passed, str(result)
        assert result.epsilon_claimed == pytest.approx(epsilon, rel=1e-9)


def test_audit_is_not_blind():
    """On sound mechanisms the bound comes near the claim, and it reacts to halved noise."""
    laplace = audit(VectorGamma(1, 1.0, 1.0), n_draws=6000, random_state=0)
    assert 0.7 < laplace.epsilon_lower <= 1.0
    mechanism = SymmetricGaussian(5, 1.0, gdp_mu(1.0, 1e-5))
    mechanism.sensitivity *= 4  # the statistic moves four times as far as the noise allows
    moved = audit(mechanism, epsilon=1.0, random_state=0)
    assert moved.epsilon_lower > 1.0 and not moved.passed
    # another delta: the claim is that of the same mu
    other = audit(SymmetricGaussian(3, 1.0, 0.5), delta=1e-2, random_state=0, n_draws=100)
    assert other.epsilon_claimed == pytest.approx(gdp_epsilon(0.5, 1e-2))


def test_audit_takes_values_of_the_statistic():
    value, neighbour = np.zeros((3, 3)), np.diag([1.0, -1.0, 0.0])
    mechanism = SymmetricGaussian(3, 2**0.5, 0.5)
    result = audit(mechanism, value, neighbour, n_draws=200, random_state=0)
    assert result.sensitivity_observed == pytest.approx(2**0.5, rel=1e-6) and result.passed
    result = audit(mechanism, value, 2 * neighbour, n_draws=200, random_state=0)
    assert any("Sensitivity" in text for text in result.failures)


def test_reproducible_and_validated():
    mechanism = VectorGaussian(2, 1.0, 1.0)
    first, again = (audit(mechanism, n_draws=40, random_state=4) for _ in range(2))
    assert first.epsilon_lower == again.epsilon_lower and first.noise_ratio == again.noise_ratio
    for only in ({"data": np.zeros(2)}, {"neighbour": np.zeros(2)}):
        with pytest.raises(ValueError, match="two values of the statistic, or neither"):
            audit(mechanism, **only)
    with pytest.raises(ValueError, match="n_draws=3"):
        audit(mechanism, n_draws=3)
    with pytest.raises(ValueError, match="confidence=1"):
        audit(mechanism, confidence=1)


def test_clopper_pearson_bound():
    """log((p_low - delta) / q_high) from the textbook intervals, and at the edges."""
    n, risk, delta = 50, 0.01, 0.02
    low, high = beta.ppf(0.005, 40, 11), beta.ppf(0.995, 6, 45)
    assert _log_odds(40, 5, n, delta, risk) == pytest.approx(np.log((low - delta) / high))
    assert _log_odds(0, 0, n, delta, risk) < -100  # nothing seen, nothing known
    assert _log_odds(n, n, n, 0.0, risk) == pytest.approx(np.log(beta.ppf(0.005, n, 1)))
    once = beta.ppf(0.005, 1, n) / beta.ppf(0.995, 2, n - 1)
    assert _log_odds(1, 1, n, 0.0, risk) == pytest.approx(np.log(once))
    often = beta.ppf(0.005, n, 1) / beta.ppf(0.995, n, 1)
    assert _log_odds(n, n - 1, n, 0.0, risk) == pytest.approx(np.log(often))


def test_the_end_of_a_sample_is_a_threshold():
    """Among thousands of scores too, where not each of them is one."""
    a, b = np.random.default_rng(0).uniform(size=(2, 3001))
    for scores in ((a, 2.0 * b), (2.0 * b, a)):
        beyond = int((2.0 * b > a.max()).sum())
        best = max(bound for bound, *_ in _events(scores, 0.0, 0.01))
        assert best == pytest.approx(_log_odds(beyond, 0, 3001, 0.0, 0.01), rel=1e-12)


def test_the_level_of_the_test_of_noise():
    """Half of 1 - confidence is for the noise, and half for the bound.

    The sum of squares has a chi-squared distribution with 3 (n - 1) degrees of freedom for each of
    two groups, and is put just above and below its quantile.
    """
    n, degrees = 20, 2 * 3 * 19
    for factor, caught in ((0.9, True), (1.1, False)):
        level, calls = np.sqrt(chi2.ppf(factor * 0.05, degrees) / (2 * 3 * n)), itertools.count()

        def turns(noise, level=level, calls=calls):
            return (-1.0) ** next(calls) * level * np.ones(3)

        found = audit(Faulty(turns, 3), np.zeros(3), np.zeros(3), n_draws=n, confidence=0.9)
        told = [text for text in found.failures if text.startswith("Noise: it has")]
        assert len(told) == caught
        # Deviations of n draws from their own mean, over n - 1.
        assert found.noise_ratio == pytest.approx(level * np.sqrt(n / (n - 1)))
        assert found.confidence == 0.9 and found.epsilon_lower == 0.0


def test_the_level_of_the_test_of_other_noise():
    """Its mean square is below 1 by more than its error, and its std by a tenth of it; of symmetric
    matrices entries off the diagonal have half of the variance, and count once."""
    n, d = 20, 3
    entries = d * (d + 1) // 2
    least = np.sqrt(1 - norm.isf(0.05) * np.sqrt(5 * entries) / (entries * np.sqrt(2 * n)))
    assert least < 0.9
    for factor, caught in ((0.995, True), (1.005, False)):
        level = factor * least * np.sqrt((n - 1) / n)
        one = level * (np.eye(d) + (1 - np.eye(d)) * np.sqrt(0.5))
        draws = np.array([one, -one] * (n // 2))
        entry = {"norm": "frobenius", "epsilon": 1.0}
        ratio, too_little = _noise_ratio([draws, draws], entry, 0.05)
        assert ratio == pytest.approx(factor * least) and too_little == caught
