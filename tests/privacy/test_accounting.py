"""Accounting against quadrature, enumeration, Monte Carlo and published numbers."""

import itertools
import math
from decimal import MAX_EMAX, MIN_EMIN, Decimal, localcontext

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from skpmtl.privacy import (
    PrivacyLeakWarning,
    accounting,
    allocation_weights,
    cb_epsilon,
    check_budget,
    compose_gdp,
    gdp_delta,
    gdp_epsilon,
    gdp_mu,
    group_privacy,
    optimal_pure_delta,
    optimal_pure_epsilon,
    pure_epsilon,
    pure_epsilons,
    record_budget,
    release_mus,
)

PAPER_DELTA = 1 / (139 * math.log(139))
DELTAS = [1e-15, 1e-12, 1e-8, 1e-5, PAPER_DELTA, 0.1, 0.5, 0.9]


def quadrature_delta(mu, epsilon):
    """Hockey-stick divergence of N(mu, 1) from N(0, 1), a positive integrand throughout."""
    start = epsilon / mu - mu / 2

    def integrand(u):  # phi(start + u) / phi(start) * (1 - exp(-mu u))
        return math.exp(-start * u - u * u / 2) * -math.expm1(-mu * u)

    peak = max(-start, 0.0)
    width = 1 / max(1.0, start)
    edges = [max(0.0, peak - 12.0), *(peak + width * np.array([1.0, 5.0, 12.0, 40.0]))]
    parts = [
        quad(integrand, a, b, epsabs=0, epsrel=1e-12)[0]
        for a, b in zip(edges[:-1], edges[1:], strict=True)
    ]
    if start < 0:
        parts.append(quad(integrand, 0.0, edges[0], epsabs=0, epsrel=1e-12)[0])
    return sum(parts) * norm.pdf(start)


@pytest.mark.parametrize("delta", DELTAS)
def test_gdp_agrees_with_quadrature(delta):
    for epsilon in (1e-3, 1e-2, 0.1, 1.0, 3.0, 10.0, 50.0):
        mu = gdp_mu(epsilon, delta)
        assert quadrature_delta(mu, epsilon) == pytest.approx(delta, rel=1e-10, abs=0), epsilon
        assert gdp_delta(mu, epsilon) == pytest.approx(delta, rel=1e-11, abs=0), epsilon
        assert gdp_epsilon(mu, delta) == pytest.approx(epsilon, rel=1e-9)


def test_gdp_numbers_and_limits():
    assert gdp_mu([0.1, 1.0, 10.0], PAPER_DELTA) == pytest.approx([0.0619, 0.4054, 2.516], rel=1e-3)
    assert gdp_delta(2.0, 0.0) == pytest.approx(2 * norm.cdf(1.0) - 1, rel=1e-14)
    assert gdp_mu(0.0, 1e-15) == pytest.approx(1e-15 * math.sqrt(2 * math.pi), rel=1e-12, abs=0)
    assert gdp_delta(0.0, [0.0, 1.0, -1.0]) == pytest.approx([0.0, 0.0, 1 - math.exp(-1)])
    assert gdp_delta(math.inf, 3.0) == 1.0
    assert gdp_epsilon(0.0, 1e-5) == 0.0 and gdp_epsilon(0.1, 0.5) == 0.0
    assert gdp_mu(1e40, 1e-5) == pytest.approx(math.sqrt(2e40), rel=1e-6)  # no overflow
    # delta(-epsilon) = 1 - e^-epsilon (1 - delta(epsilon)), the other order of the pair
    for mu, e in itertools.product([0.2, 0.99, 1.01, 1.9, 4.0], [0.1, 2.0, 20.0]):
        reflected = 1 - math.exp(-e) * (1 - gdp_delta(mu, e))
        assert gdp_delta(mu, -e) == pytest.approx(reflected, rel=1e-12)
    assert isinstance(gdp_mu(1.0, 1e-5), float)
    assert gdp_mu([[1.0], [2.0]], [1e-5, 1e-6, 1e-7]).shape == (2, 3)


@pytest.mark.parametrize("bad", [([1.0, -1.0], 1.0), (1.0, [1.0, math.inf]), (1.0, math.nan)])
def test_one_of_several_numbers_that_is_none_is_refused(bad):
    with pytest.raises(ValueError, match="mu=|epsilon="):
        gdp_delta(*bad)


@pytest.mark.parametrize("mu", [0.3, 0.95])
def test_far_tails_are_differences_of_logarithms(mu):
    for x in (30.0, 48.0, 51.0, 60.0, 300.0):  # past 50 a series takes over
        epsilon = mu * (x + mu / 2)
        first, second = norm.logcdf(-x), epsilon + norm.logcdf(-x - mu)
        direct = first + math.log(-math.expm1(second - first))
        assert accounting._log_delta(mu, epsilon) == pytest.approx(direct, abs=1e-6)


def test_gaussian_composition_is_the_root_of_squares():
    mus, epsilon = [0.7, 1.9], 0.8
    # Loss of the first release is N(mu^2/2, mu^2); integrate it out.
    nodes, weights = np.polynomial.hermite_e.hermegauss(120)
    losses = mus[0] ** 2 / 2 + mus[0] * nodes
    direct = weights @ gdp_delta(mus[1], epsilon - losses) / math.sqrt(2 * math.pi)
    assert gdp_delta(compose_gdp(mus), epsilon) == pytest.approx(direct, rel=1e-10)


def enumerated_delta(epsilons, epsilon):
    """Randomised responses: all outcomes one by one."""
    total = 0.0
    for signs in itertools.product([1, -1], repeat=len(epsilons)):
        loss = float(np.dot(signs, epsilons))
        log_p = -sum(np.log1p(np.exp(-s * e)) for s, e in zip(signs, epsilons, strict=True))
        total += math.exp(log_p) * max(0.0, 1 - math.exp(epsilon - loss))
    return total


@pytest.mark.parametrize("T, eps0", [(1, 1.0), (7, 0.3), (10, 2.0)])
@pytest.mark.parametrize("epsilon", [0.0, 0.4, 1.5])
def test_optimal_homogeneous_composition(T, eps0, epsilon):
    exact = enumerated_delta([eps0] * T, epsilon)
    assert optimal_pure_delta([eps0] * T, epsilon) == pytest.approx(exact, rel=1e-10, abs=1e-15)


def test_heterogeneous_composition_is_a_tight_bound():
    epsilons = [0.05, 0.11, 0.3, 0.31, 0.7, 1.0, 1.3, 0.02]
    for epsilon in [0.0, 0.5, 1.0, 2.0, 3.0]:
        exact = enumerated_delta(epsilons, epsilon)
        bound = optimal_pure_delta(epsilons, epsilon)
        assert exact <= bound * (1 + 1e-12) and bound <= exact * 1.002 + 1e-9
    # equal numbers, one of them perturbed, go through the grid and must agree with the binomial
    near = [0.1] * 29 + [0.1 * (1 - 1e-9)]
    assert optimal_pure_epsilon(near, 1e-6) == pytest.approx(
        optimal_pure_epsilon([0.1] * 30, 1e-6), rel=1e-3
    )
    many = optimal_pure_delta([0.01] * 1213, 1.0)  # which the grid has steps for
    near = [0.01] * 1212 + [0.01 * (1 - 1e-9)]
    assert optimal_pure_delta(near, 1.0) == pytest.approx(many, rel=0.01)


def test_composition_of_pure_and_gaussian_releases():
    epsilons, mu, epsilon = [0.3, 0.3, 0.8], 0.6, 1.0
    exact = 0.0
    for signs in itertools.product([1, -1], repeat=3):
        p = math.exp(-sum(np.log1p(np.exp(-s * e)) for s, e in zip(signs, epsilons, strict=True)))
        rest = epsilon - float(np.dot(signs, epsilons))
        exact += p * gdp_delta(mu, rest)
    assert optimal_pure_delta(epsilons, epsilon, mu) == pytest.approx(exact, rel=1e-3)
    assert optimal_pure_delta(epsilons, epsilon, mu) >= exact
    total = optimal_pure_epsilon(epsilons, exact, mu)
    assert epsilon <= total <= epsilon * 1.001
    # an almost empty pure release changes nothing
    assert optimal_pure_epsilon([1e-9], 1e-5, 0.3) == pytest.approx(
        gdp_epsilon(0.3, 1e-5), rel=1e-6
    )


def test_optimal_composition_at_next_to_no_delta_is_the_sum():
    """The root is within a billionth of the end of the bracket, and not beyond the sum."""
    for epsilons in ([1.0], [0.3, 0.3], [0.3, 0.8]):
        total = optimal_pure_epsilon(epsilons, 1e-14)
        assert total == pytest.approx(sum(epsilons), rel=1e-9) and total <= sum(epsilons)


def test_what_delta_covers_takes_no_epsilon():
    """The total variation of a release is tanh(epsilon / 2)."""
    for mu in (0.0, 0.01):
        assert optimal_pure_epsilon([0.01], 0.5, mu) == 0.0
        assert optimal_pure_epsilon([1.0], 0.1, mu) > 0.0


def test_cb_is_equation_6():
    epsilons, delta = np.array([0.1, 0.2, 0.4]), 1e-4
    drift = sum((math.exp(e) - 1) * e / (math.exp(e) + 1) for e in epsilons)
    S = float((epsilons**2).sum())
    expected = min(
        epsilons.sum(),
        drift + math.sqrt(2 * S * math.log(math.e + math.sqrt(S) / delta)),
        drift + math.sqrt(2 * S * math.log(1 / delta)),
    )
    assert cb_epsilon(epsilons, delta) == pytest.approx(expected, rel=1e-14)
    assert cb_epsilon(epsilons, 0.0) == pytest.approx(0.7)
    many = np.full(1000, 0.01)
    assert optimal_pure_epsilon(many, 1e-6) < cb_epsilon(many, 1e-6) < many.sum()


@pytest.mark.parametrize("method", ["best", "cb", "optimal", "basic"])
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 10.0])
@pytest.mark.parametrize("weights", [np.ones(40), np.arange(1.0, 21) ** 0.4])
@pytest.mark.spread(10)
def test_pure_calibration_goes_both_ways(method, epsilon, weights):
    for delta in [1e-12, 1e-3]:
        budgets = pure_epsilons(epsilon, delta, weights, method)
        assert budgets / budgets[0] == pytest.approx(weights / weights[0])
        spent = pure_epsilon(budgets, delta, method)
        assert spent == pytest.approx(epsilon, rel=1e-9)
        assert budgets.sum() >= epsilon * (1 - 1e-12)  # never worse than the plain sum


def test_pure_calibration_stays_on_the_private_side():
    """Not a bit more than the budget, where the root of a search may be either side of it."""
    for epsilon in np.linspace(0.1, 5.0, 20):
        budgets = pure_epsilons(epsilon, 1e-5, np.ones(30), "cb")
        assert cb_epsilon(budgets, 1e-5) <= epsilon
        budgets = pure_epsilons(epsilon, 1e-5, np.ones(30), "optimal")
        assert optimal_pure_delta(budgets, epsilon) <= 1e-5


@pytest.mark.parametrize("delta", [0.0, 5e-324, 1e-310, 1e-200, 1e-8, 0.9])
def test_group_privacy_of_any_finite_budget(delta):
    """delta (1 + e^epsilon + ... + e^((size - 1) epsilon)) in decimal numbers, 1 at most."""
    for epsilon, size in itertools.product(
        (0.0, 1e-300, 1e-9, 0.1, 10.0, 710.0, 1e5), (1, 2, 5000)
    ):
        with localcontext() as context:
            context.prec, context.Emax, context.Emin = 60, MAX_EMAX, MIN_EMIN
            ratio = Decimal(epsilon).exp()
            factor = (ratio**size - 1) / (ratio - 1) if ratio != 1 else Decimal(size)
            expected = float(min(Decimal(delta) * factor, Decimal(1)))
        found = group_privacy(epsilon, delta, size)
        assert found == (size * epsilon, pytest.approx(expected, 1e-10)), (epsilon, size)


def test_the_budget_of_a_record_is_that_of_its_group():
    assert group_privacy(*record_budget(2.0, 1e-6, 30), 30) == pytest.approx((2.0, 1e-6))
    published = record_budget(2.0, 1e-6, 30, "published")
    assert published == pytest.approx((2 / 30, 1e-6 / (30 * math.exp(2))))


def test_budget():
    assert check_budget(1, None, 139) == (1.0, 1e-5)
    assert check_budget(1, None, 1000) == (1.0, 1e-6)
    assert check_budget(1, None, 139, pure=True) == (1.0, 0.0)
    for delta in [-0.1, 1.0, math.nan]:
        with pytest.raises(ValueError, match="delta="):
            check_budget(1, delta, 10)
    with pytest.raises(ValueError, match="pure"):
        check_budget(1, 0, 10)
    with pytest.warns(PrivacyLeakWarning, match="1/n_tasks"):
        check_budget(1, 0.1, 10)


def test_allocation():
    assert allocation_weights(0.0, 4) == pytest.approx([1, 1, 1, 1])
    assert allocation_weights(2, 3) == pytest.approx(np.array([1, 4, 9]) / 9)
    assert allocation_weights(("geometric", 0.5), 3) == pytest.approx([0.25, 0.5, 1])
    assert allocation_weights(("geometric", 2), 3) == pytest.approx([1, 0.5, 0.25])
    mus = release_mus(0.7, 50, 0.4)
    assert compose_gdp(mus) == pytest.approx(0.7, rel=1e-14)
    assert mus[31] / mus[3] == pytest.approx(8**0.4)
    np.testing.assert_allclose(release_mus(1.0, 4), 0.5, rtol=1e-12)  # equal, unless told
    extreme = release_mus(1.0, 5000, ("geometric", 0.5))  # 2^5000 does not overflow
    assert compose_gdp(extreme) == pytest.approx(1.0) and (extreme > 0).all()
