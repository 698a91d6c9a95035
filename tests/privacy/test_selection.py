"""Cost of the best of several runs: against the definition, a library, and edge cases."""

import math

import numpy as np
import pytest
from hypothesis import strategies as st
from scipy.stats import kstest, logser, norm, poisson

from skpmtl.privacy import gdp_mu, selection_epsilon, selection_mu
from skpmtl.privacy.rng import SeededSource, SystemSource
from skpmtl.privacy.selection import draw_trials, selection_rdp, trials_parameter
from tests.helpers.drawn import drawn

RANDOM = ("poisson", "logarithmic")


def trial_probabilities(n, distribution):
    """P(K = j), j = 1.., from scipy's distributions."""
    j = np.arange(1, 4000)
    parameter = trials_parameter(n, distribution)
    if distribution == "poisson":
        return poisson.pmf(j, parameter) / -np.expm1(-parameter)
    return logser.pmf(j, 1.0 - parameter)


@drawn(4, n=st.floats(1.01, 12.0), distribution=st.sampled_from(RANDOM))
def test_mean_of_the_trials(n, distribution):
    p = trial_probabilities(n, distribution)
    assert p.sum() == pytest.approx(1.0, abs=1e-12)
    assert p @ np.arange(1, 4000) == pytest.approx(n, rel=1e-9)
    source = SeededSource(np.random.default_rng(0))
    drawn = np.array([draw_trials(n, distribution, source) for _ in range(2000)])
    cdf = np.concatenate([[0.0], np.cumsum(p)])
    # Discrete: jitter by a uniform makes the probability transform exact.
    u = cdf[drawn - 1] + np.random.default_rng(1).uniform(size=2000) * p[drawn - 1]
    assert kstest(u, "uniform").pvalue > 1e-3
    assert drawn.min() >= 1


def test_one_trial_is_a_single_run():
    assert draw_trials(1, "poisson", SystemSource()) == 1
    for distribution in (*RANDOM, "compose"):
        assert selection_mu(1.0, 1e-5, 1, distribution) == pytest.approx(gdp_mu(1.0, 1e-5))


# ---------------------------------------------------------------- against the definition
def lemma(mu, n, distribution, order):
    """Lemma 7 with the generating function summed term by term."""
    weights = trial_probabilities(n, distribution)
    j = np.arange(1, len(weights) + 1)

    def derivative(x):
        return float((weights * j) @ x ** (j - 1.0))

    def value(t):
        own, other = (math.log(derivative(norm.cdf(x))) for x in (t, t - mu))
        return order * own - (order - 1) * other

    best = max(np.linspace(-6, 9, 101), key=value)
    most = max(map(value, best + np.linspace(-0.15, 0.15, 41)))
    return order * mu**2 / 2 + most / (order - 1)


@pytest.mark.parametrize("distribution", RANDOM)
def test_bound_is_the_lemma(distribution):
    for mu, n, order in [(0.2, 3.0, 20.0), (1.0, 12.0, 3.0), (0.7, 1.4, 5.0)]:
        ours = float(selection_rdp(mu, n, distribution, np.array([order]))[0])
        assert ours == pytest.approx(lemma(mu, n, distribution, order), rel=2e-5)


@pytest.mark.parametrize("n", [1e3, 1e6])
def test_bound_is_never_below_the_largest_tilt(n):
    """Whose place is searched for on a grid: on one of a hundredth of its steps."""
    mu, orders = 2.0, np.linspace(1.01, 1.5, 40)[:, None]
    g = trials_parameter(n, "logarithmic")
    r = (1.0 - g) / g

    def tilt(z):
        own, other = np.log1p(r * norm.sf(z)), np.log1p(r * norm.sf(z - mu))
        return (orders - 1.0) * (other - own) - own

    z = np.linspace(-10.0, 40.0, 5001)[None]
    for step in (1e-4, 1e-6):
        best = np.take_along_axis(np.broadcast_to(z, tilt(z).shape), tilt(z).argmax(1)[:, None], 1)
        z = best + step * np.arange(-150, 151)
    largest = np.maximum(tilt(z).max(axis=1), 0.0)
    a = orders[:, 0]
    bound = selection_rdp(mu, n, "logarithmic", a)
    excess = bound - (a * mu**2 / 2 + (math.log(n) + largest) / (a - 1.0))
    assert (excess > 0.0).all() and (excess < 1.01e-8).all()


def test_against_dp_accounting():
    """Theirs uses the relaxed theorems and a grid of orders: ours is below, and not by much."""
    dp = pytest.importorskip("dp_accounting", reason="needs the extra skpmtl[sampling]")
    for mu, mean in [(0.1, 3.0), (1.0, 5.0)]:
        for shape, distribution in [(0.0, "logarithmic"), (math.inf, "poisson")]:
            accountant = dp.rdp.RdpAccountant(orders=list(1 + np.logspace(-2, 3, 500)))
            event = dp.GaussianDpEvent(1 / mu)
            accountant.compose(dp.dp_event.RepeatAndSelectDpEvent(event, mean, shape))
            theirs = accountant.get_epsilon(1e-5)
            # Their Poisson variable may be 0, ours not: the same rate.
            n = mean / -math.expm1(-mean) if distribution == "poisson" else mean
            ours = selection_epsilon(mu, n, distribution, 1e-5)
            assert 0.7 * theirs < ours < 1.001 * theirs


@pytest.mark.parametrize(("distribution", "n_orders"), [("poisson", 4000), ("logarithmic", 160)])
@pytest.mark.parametrize(
    ("mu", "n", "delta"), [(0.3, 5.0, 1e-5), (1.5, 1.3, 0.2), (0.3, 5.0, 1e-15)]
)
def test_epsilon_is_that_of_the_best_order(distribution, n_orders, mu, n, delta):
    """Proposition 12 of Canonne, Kamath and Steinke (2020), over a fine grid of orders."""
    centre = math.sqrt(2.0 * math.log(n / delta)) / mu
    order = 1.0 + centre * np.geomspace(0.1, 10.0, n_orders)
    rdp = selection_rdp(mu, n, distribution, order)
    best = min(rdp + np.log(1.0 - 1.0 / order) - np.log(delta * order) / (order - 1.0))
    ours = selection_epsilon(mu, n, distribution, delta)
    assert ours == pytest.approx(best, rel=1e-3)


# ---------------------------------------------------------------- calibration
@drawn(
    12,
    distribution=st.sampled_from([*RANDOM, "compose"]),
    log_epsilon=st.floats(-3.0, 1.7),
    log_delta=st.floats(-15.0, -5.0),
)
def test_calibration_inverts(distribution, log_epsilon, log_delta):
    epsilon, delta = 10.0**log_epsilon, 10.0**log_delta
    mu = selection_mu(epsilon, delta, 5, distribution)
    spent = selection_epsilon(mu, 5, distribution, delta)
    assert spent <= epsilon * (1 + 1e-12)
    assert spent == pytest.approx(epsilon, rel=1e-6)
    if distribution == "compose":
        assert mu == pytest.approx(gdp_mu(epsilon, delta) / math.sqrt(5))
    else:
        assert mu < gdp_mu(epsilon, delta)
