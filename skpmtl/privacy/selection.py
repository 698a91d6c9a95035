"""The best of several private runs: random stopping (Papernot, Steinke 2022) or composition.

One run is mu-GDP: a candidate drawn at random, its fit and its noisy score. If the number K
of runs is random and nobody sees anything but the best one, Renyi DP bounds the cost:

=============  ===============================================================================
"poisson"      K ~ Poisson(k) given K >= 1, so that there is always a result. Renyi divergence
               at order a: a mu^2/2 + k delta(log(1 + 1/(a-1))) + log(E K)/(a-1), with the
               exact delta of mu-GDP. The generating function of K is that of Theorem 6 times
               1/(1 - e^-k), which turns log(k) into log(E K) = log(k/(1 - e^-k)).
"logarithmic"  P(K = j) = (1-g)^j / (j log(1/g)): a mu^2/2 + c + log(E K)/(a-1),
               c = min over b >= 1 of (1 - 1/b) b mu^2/2 + log(1/g)/b (Theorem 2, eta = 0).
"compose"      K fixed, all runs may be seen: sqrt(K) mu, exact.
=============  ===============================================================================
"""

import math

import numpy as np
from scipy.optimize import brentq
from scipy.special import lambertw
from scipy.stats import logser, poisson

from .accounting import gdp_delta, gdp_epsilon, gdp_mu

# Every order gives a valid bound; the grid is fine enough to lose less than 1e-5 of epsilon.
_ORDERS = 1.0 + np.logspace(-4.0, 8.0, 4001)


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
    return int(logser.ppf(u, 1.0 - parameter))


def selection_rdp(mu, n_trials, distribution, orders):
    """Renyi DP of the best of K runs, each mu-GDP, at the orders (all above 1).

    Parameters
    ----------
    mu : float
    n_trials : float > 1
        Mean of K.
    distribution : {"poisson", "logarithmic"}
    orders : ndarray

    Returns
    -------
    ndarray
    """
    parameter = trials_parameter(n_trials, distribution)
    excess = orders - 1.0
    bound = orders * mu**2 / 2 + math.log(n_trials) / excess
    if distribution == "poisson":
        return bound + parameter * gdp_delta(mu, np.log1p(1.0 / excess))
    spread = -math.log(parameter)
    b = max(1.0, math.sqrt(2.0 * spread) / mu) if mu > 0 else math.inf
    return bound + (b - 1.0) * mu**2 / 2 + spread / b if mu > 0 else bound


def selection_epsilon(mu, n_trials, distribution, delta):
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
    if distribution == "compose" or n_trials == 1:
        return float(gdp_epsilon(math.sqrt(n_trials) * mu, delta))
    if mu == 0:
        return 0.0
    rdp = selection_rdp(mu, n_trials, distribution, _ORDERS)
    # Canonne, Kamath, Steinke (2020)
    epsilon = rdp + np.log1p(-1.0 / _ORDERS) - np.log(delta * _ORDERS) / (_ORDERS - 1.0)
    return max(0.0, float(epsilon.min()))


def selection_mu(epsilon, delta, n_trials, distribution):
    """Largest mu of one run such that the best of K runs is (epsilon, delta)-DP."""
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
