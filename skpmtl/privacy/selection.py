"""The best of several private runs: random stopping (Papernot, Steinke 2022) or composition.

One run is mu-GDP: a candidate drawn at random, its fit and its noisy score. If the number K
of runs is random and nobody sees anything but the best one, Renyi DP bounds the cost. With
F the generating function of K, the divergence of order a of the best run is at most

    a mu^2 / 2 + sup over q of (a log F'(q) - (a - 1) log F'(q')) / (a - 1),

q' = Phi(Phi^-1(q) - mu) (Lemma 7 there; F' increases, so that the smallest q' which mu-GDP
allows is the worst).

=============  ===============================================================================
"poisson"      K ~ Poisson(k) given K >= 1, so that there is always a result:
               F'(x) = E K exp(k (x - 1)). The supremum is log(E K) + (a - 1) k delta, with
               delta = delta of mu-GDP at epsilon = log(a / (a - 1)).
"logarithmic"  P(K = j) = (1-g)^j / (j log(1/g)): F'(x) = g E K / (1 - (1-g) x). The supremum
               is taken over a grid; Theorem 2 there bounds it less tightly.
"compose"      K fixed, all runs may be seen: sqrt(K) mu, exact.
=============  ===============================================================================
"""

import math
from typing import Literal

import numpy as np
from scipy.optimize import brentq
from scipy.special import lambertw, log_ndtr
from scipy.stats import poisson

from .accounting import check_delta, check_positive, gdp_delta, gdp_epsilon, gdp_mu

_Z = np.linspace(-10.0, 40.0, 2501)  # Phi^-1(q)


def trials_parameter(n_trials, distribution):
    """Parameter of the distribution of K with mean `n_trials`: Poisson rate k, or g.

    "poisson": the root of k / (1 - e^-k) = n; "logarithmic": of (1/g - 1) / log(1/g) = n.
    """
    if not 1 < n_trials < math.inf:
        raise ValueError(f"n_trials={n_trials!r} must be a mean above 1.")
    if distribution == "poisson":
        return float(n_trials + lambertw(-n_trials * math.exp(-n_trials)).real)
    if distribution == "logarithmic":
        # with x = log(1/g): expm1(x) / x = n, between 0 and 2 + 2 log n
        top = 2.0 + 2.0 * math.log(n_trials)
        x = brentq(lambda x: math.expm1(x) / x - n_trials, 1e-12, top, xtol=1e-15)
        return math.exp(-x)
    raise ValueError(f'distribution={distribution!r} must be "poisson" or "logarithmic".')


def draw_trials(n_trials, distribution, source):
    """One K, at least 1, by inversion of a uniform number of the noise source."""
    if n_trials == 1:
        return 1
    parameter, u = trials_parameter(n_trials, distribution), float(source.uniform(1)[0])
    if distribution == "poisson":
        none = math.exp(-parameter)
        return max(1, int(poisson.ppf(none + u * (1.0 - none), parameter)))
    trials, mass = 1, (1.0 - parameter) / -math.log(parameter)
    below = mass
    while below < u and mass > 1e-17:
        mass *= (1.0 - parameter) * trials / (trials + 1)
        trials, below = trials + 1, below + mass
    return trials


def selection_rdp(mu, n_trials, distribution, orders):
    """Renyi DP, at `orders`, of the best of K runs, each mu-GDP; K has the mean `n_trials`."""
    parameter = trials_parameter(n_trials, distribution)
    excess = orders - 1.0
    bound = orders * mu**2 / 2 + math.log(n_trials) / excess
    if distribution == "poisson":
        return bound + parameter * gdp_delta(mu, np.log1p(1.0 / excess))
    return bound + _largest_tilt(mu, parameter, orders) / excess


def _largest_tilt(mu, g, orders):
    """sup over z of -a log(1 + r Phi(-z)) + (a-1) log(1 + r Phi(mu-z)), r = (1-g)/g.

    Two grids: the second, around the best point of the first for each order, has steps of
    2e-5, whose error is below 1e-8 (a - 1), up to millions of trials.
    """
    log_r = math.log1p(-g) - math.log(g)

    def tilt(z, a):
        own = np.logaddexp(0.0, log_r + log_ndtr(-z))
        other = np.logaddexp(0.0, log_r + log_ndtr(mu - z))
        return (a - 1.0) * (other - own) - own

    a = np.asarray(orders, dtype=float)[:, None]
    best = _Z[tilt(_Z, a).argmax(axis=1)]
    step = _Z[1] - _Z[0]
    fine = best[:, None] + np.linspace(-step, step, 2001)
    # z -> infinity gives 0
    return np.maximum(tilt(fine, a).max(axis=1), 0.0) + 1e-8 * (a[:, 0] - 1.0)


def selection_epsilon(
    mu: float,
    n_trials: float,
    distribution: Literal["poisson", "logarithmic", "compose"],
    delta: float,
) -> float:
    """epsilon at `delta` of the best of K runs, each mu-GDP.

    Parameters
    ----------
    mu : float
    n_trials : float >= 1
        Mean of K; for "compose" K itself.
    distribution : {"poisson", "logarithmic", "compose"}
    delta : float in (0, 1)

    Returns
    -------
    float
    """
    _check_trials(n_trials)
    check_delta(delta)
    if mu != 0:
        check_positive(mu=mu)
    if distribution == "compose" or n_trials == 1:
        return float(gdp_epsilon(math.sqrt(n_trials) * mu, delta))
    if mu == 0:
        return 0.0

    def epsilons(excess):
        orders = 1.0 + excess
        rdp = selection_rdp(mu, n_trials, distribution, orders)
        # Canonne, Kamath, Steinke (2020)
        return rdp + np.log1p(-1.0 / orders) - np.log(delta * orders) / excess

    # The unconstrained optimum of a Gaussian points at the order; a grid around it is enough.
    guess = math.sqrt(2.0 * math.log(n_trials / delta)) / mu
    near = guess * np.logspace(-2.0, 1.0, 31)
    best = near[np.argmin(epsilons(near))]
    return max(0.0, float(epsilons(best * np.logspace(-0.1, 0.1, 41)).min()))


def _check_trials(n_trials):
    if not 1 <= n_trials < math.inf:
        raise ValueError(f"n_trials={n_trials!r} must be at least 1, and finite.")


def selection_mu(epsilon, delta, n_trials, distribution):
    """Largest mu of one run such that the best of K runs is (epsilon, delta)-DP."""
    _check_trials(n_trials)
    check_positive(epsilon=epsilon)
    top = float(gdp_mu(epsilon, delta))
    if distribution == "compose" or n_trials == 1:
        return top / math.sqrt(n_trials)

    def excess(log_mu):
        return selection_epsilon(math.exp(log_mu), n_trials, distribution, delta) - epsilon

    low = math.log(top) - 1.0
    while excess(low) > 0:
        low -= 1.0
        if low < math.log(top) - 40.0:
            raise ValueError(
                f"(epsilon, delta) = ({epsilon!r}, {delta!r}) is too small for a random number of "
                f"{n_trials!r} trials."
            )
    mu = math.exp(brentq(excess, low, math.log(top), xtol=1e-13))
    while selection_epsilon(mu, n_trials, distribution, delta) > epsilon:
        mu *= 1.0 - 1e-12  # stay on the private side of the root
    return mu
