"""The audit must find planted faults and must not accuse sound mechanisms."""

import dataclasses
import itertools
import re
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import beta, chi2
from sklearn.base import BaseEstimator

from skpmtl.privacy import (
    PrivacyReport,
    SymmetricGaussian,
    VectorGamma,
    VectorGaussian,
    audit,
    compose_gdp,
    gdp_epsilon,
    gdp_mu,
    mean_sensitivity,
    noise_source,
    release_mus,
    second_moment_sensitivity,
)
from skpmtl.privacy.audit import _book_failures, _events, _log_odds
from skpmtl.privacy.mechanisms import clip_rows
from skpmtl.reproduction.mp_mtl import PublishedWishart, SymmetrizedWishart


class Billboard:
    def __init__(self, releases):
        self.releases = releases


class Toy(BaseEstimator):
    """Releases the noisy second moment of the tasks' means, then a noisy mean that uses it.

    `fault` plants what an audit has to find.
    """

    def __init__(self, epsilon=1.0, delta=1e-5, fault=None, random_state=None):
        self.epsilon = epsilon
        self.delta = delta
        self.fault = fault
        self.random_state = random_state

    def fit(self, X, y, task):
        source = noise_source(self.random_state)
        tasks, d = np.unique(task), X.shape[1]
        W = np.array([X[task == t].mean(axis=0) for t in tasks])
        if self.fault != "no clip":
            clip_rows(W, 1.0)
        mus = release_mus(gdp_mu(self.epsilon, self.delta), 2, 0.5)
        moment = SymmetricGaussian(
            d, second_moment_sensitivity(1.0, "zero-out", dimension=d), mus[0]
        )
        mean = VectorGaussian(d, mean_sensitivity(1.0, len(tasks), "zero-out"), mus[1])
        entries = [moment.describe("second moment"), mean.describe("mean")]
        if self.fault == "half noise":
            moment.noise_std /= 2
        if self.fault == "half late noise":
            mean.noise_std /= 2
        first = moment.release(W.T @ W, source)
        scale = 1 / (1 + np.abs(np.trace(first)))  # later releases may depend on earlier ones
        second = mean.release(W.mean(axis=0) * scale, source)
        self.billboard_ = Billboard([first, second])
        if self.fault == "missing entry" or (self.fault == "counts" and np.abs(X).max() > 50):
            self.billboard_.releases *= 2
        if self.fault == "counts":
            entries *= len(self.billboard_.releases) // 2
        if self.fault == "wrong report":
            entries[0]["noise_std"] /= 2
            moment.noise_std /= 2
        self.privacy_ = PrivacyReport(
            "none" if self.fault == "none" else "joint DP per task",
            adjacency="zero-out",
            epsilon=self.epsilon,
            delta=self.delta,
            mechanism="symmetric Gaussian",
            mu=compose_gdp(mus),
            releases=entries,
            noise_std=[e["noise_std"] for e in entries],
            notes={"reason": "published noise"} if self.fault == "none" else {},
        )
        return self


class Silent(Toy):
    """Publishes first a statistic that is the same for both neighbours."""

    def fit(self, X, y, task):
        super().fit(X, y, task)
        constant = VectorGaussian(1, 1.0, 1.0)
        noise = constant.sample(noise_source(self.random_state))
        self.billboard_.releases.insert(0, noise)
        entries = (constant.describe("constant"), *self.privacy_.releases)
        self.privacy_ = dataclasses.replace(self.privacy_, releases=entries)
        return self


def neighbours(size=100.0):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 4))
    task = np.repeat(np.arange(8), 5)
    other = X.copy()
    X[task == 3] = 0.0
    other[task == 3] = [size, 0, 0, 0]
    return (X, None, task), (other, None, task)


@pytest.mark.parametrize(
    "fault, words",
    [
        ("no clip", "Sensitivity"),
        ("half noise", "Noise: release 1"),
        ("half late noise", "Noise: release 2"),
        ("wrong report", "Report: sensitivities and noise"),
        ("none", "no guarantee is claimed .published noise."),
    ],
)
@pytest.mark.spread(1)
def test_planted_faults_of_an_estimator(fault, words):
    result = audit(Toy(fault=fault), *neighbours(), random_state=0)
    assert not result.passed and "FAILED" in str(result)
    assert any(re.search(words, text) for text in result.failures)


def test_vote_that_stays_equal_does_not_hide_the_next_release():
    """The replayed histories agree until the first release that differs."""
    a, b = neighbours()
    result = audit(Silent(fault="no clip"), a, b, n_draws=20)
    assert any("release 2 differs" in text for text in result.failures)


class Unrepeated(Toy):
    """Publishes first noise that no seed gives again."""

    def fit(self, X, y, task):
        super().fit(X, y, task)
        fresh = VectorGaussian(50, 1.0, 1.0)
        self.billboard_.releases.insert(0, fresh.sample(noise_source(None)))
        entries = (fresh.describe("fresh"), *self.privacy_.releases)
        self.privacy_ = dataclasses.replace(self.privacy_, releases=entries)
        return self


def test_noise_that_cannot_be_played_again_shows_no_sensitivity():
    result = audit(Unrepeated(), *neighbours(), n_draws=20, random_state=0)
    assert np.isnan(result.sensitivity_observed)
    assert not [text for text in result.failures if text.startswith("Sensitivity")]


@pytest.mark.parametrize(
    "fault, words", [("missing entry", "in step"), ("counts", "depends on private rows")]
)
def test_releases_must_be_countable(fault, words):
    with pytest.raises(ValueError, match=words):
        audit(Toy(fault=fault), *neighbours(), n_draws=20)


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
    first = audit(Toy(), *neighbours(), n_draws=40, random_state=4)
    again = audit(Toy(), *neighbours(), n_draws=40, random_state=4)
    assert first.epsilon_lower == again.epsilon_lower and first.noise_ratio == again.noise_ratio
    with pytest.raises(ValueError, match="data and neighbour"):
        audit(Toy())
    for only in ({"data": np.zeros(2)}, {"neighbour": np.zeros(2)}):
        with pytest.raises(ValueError, match="two values of the statistic, or neither"):
            audit(VectorGaussian(2, 1.0, 1.0), **only)
    with pytest.raises(ValueError, match="n_draws=3"):
        audit(VectorGaussian(2, 1.0, 1.0), n_draws=3)
    with pytest.raises(ValueError, match="confidence=1"):
        audit(VectorGaussian(2, 1.0, 1.0), confidence=1)


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


@pytest.mark.parametrize(("batches", "uses"), [({}, 7), ({"n_batches": 3}, 3)])
def test_a_record_pays_for_the_batches_that_it_is_in(batches, uses):
    """One of three in 7 steps; every step where there are none."""
    entry = {"sensitivity": 1.0, "noise_std": 2.0, "times": 7, **batches}
    mu = np.sqrt(uses) / 2.0
    report = SimpleNamespace(guarantee="DP", mu=mu, delta=1e-5, releases=(entry, entry))
    for part, found in ((1.0, 0), (0.99, 1)):
        report.epsilon = part * gdp_epsilon(mu, 1e-5)
        assert len(list(_book_failures({"report": report}, 1e-5))) == found


def test_pure_releases_cost_the_sum_of_their_epsilons():
    releases = ({"epsilon": 1.0}, {"epsilon": 2.0})
    report = SimpleNamespace(guarantee="DP", mu=None, delta=0.0, releases=releases, notes={})
    report.public_inputs = {}
    for report.epsilon, found in ((3.0, 0), (2.97, 1)):
        assert len(list(_book_failures({"report": report}, 0.0))) == found


def test_the_end_of_a_sample_is_a_threshold():
    """Among thousands of scores too, where not each of them is one."""
    a, b = np.random.default_rng(0).uniform(size=(2, 3001))
    for scores in ((a, 2.0 * b), (2.0 * b, a)):
        beyond = int((2.0 * b > a.max()).sum())
        best = max(bound for bound, *_ in _events(scores, 0.0, 0.01))
        assert best == pytest.approx(_log_odds(beyond, 0, 3001, 0.0, 0.01), rel=1e-12)


class Alternating(BaseEstimator):
    """Releases vectors of three numbers that are +level or -level noise stds, in turns."""

    def __init__(self, level=1.0, n_releases=1, random_state=None):
        self.level = level
        self.n_releases = n_releases
        self.random_state = random_state

    fits = itertools.count()

    def fit(self, X, y, task):
        mechanism = VectorGaussian(3, 1.0, 1.0)
        numbers = (-1.0) ** next(self.fits) * self.level * mechanism.noise_std * np.ones(3)
        entries = [mechanism.describe(f"number {t}") for t in range(self.n_releases)]
        self.billboard_ = Billboard([numbers] * self.n_releases)
        self.privacy_ = PrivacyReport(
            "joint DP per task",
            adjacency="zero-out",
            epsilon=100.0,
            delta=1e-5,
            mechanism=mechanism.name,
            mu=compose_gdp([1.0] * self.n_releases),
            releases=entries,
            noise_std=[entry["noise_std"] for entry in entries],
        )
        return self


@pytest.mark.parametrize("n_releases", [1, 4])
def test_the_level_of_all_tests_of_noise_together(n_releases):
    """Half of 1 - confidence is for the noise, in equal parts for its releases; half for the bound.

    The sum of squares has a chi-squared distribution with 3 (n - 1) degrees of freedom for each of
    two groups, and is put just above and below its quantile.
    """
    n, degrees = 20, 2 * 3 * 19
    for factor, caught in ((0.9, True), (1.1, False)):
        level = np.sqrt(chi2.ppf(factor * 0.05 / n_releases, degrees) / (2 * 3 * n))
        found = audit(Alternating(level, n_releases), *neighbours(), n_draws=n, confidence=0.9)
        told = [text for text in found.failures if text.startswith("Noise")]
        assert len(told) == n_releases * caught
        # Deviations of n draws from their own mean, over n - 1.
        assert found.noise_ratio == pytest.approx([level * np.sqrt(n / (n - 1))] * n_releases)
        assert found.confidence == 0.9 and found.epsilon_lower == 0.0
