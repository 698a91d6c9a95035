"""Accounting when only some tasks (or records) enter a round.

Every round adds up the clipped contributions of the participants and Gaussian noise, and
divides by a public constant. ``noise_multiplier`` is the std of the noise on that sum over
the clip norm. Dividing by the realised number of participants is not covered.

=====================  ==============================================================
all tasks, T rounds    mu = c sqrt(T) / z, exact (c = 1 "zero-out", 2 "replace-one")
public blocks          `blocks_mu`: each task once per pass, mu = c sqrt(passes) / z
Poisson, rate p        `poisson_epsilon`: privacy amplification; needs dp-accounting
fixed size q of m      `fixed_size_delta`: participants see who was selected, so there is
                       no amplification; a mixture over the number of participations
=====================  ==============================================================
"""

import math

import numpy as np
from scipy.optimize import brentq
from scipy.stats import binom

from .accounting import check_count, check_delta, check_positive, gdp_delta, gdp_epsilon, gdp_mu
from .mechanisms import mean_sensitivity

_COARSEST = 5e-3  # step between losses, while the size of epsilon is not known
_FARTHEST = 0.3  # step of a search for log z: distributions at far less noise are wide
_DELTA = "delta={!r} exceeds the probability of ever being drawn: choose a smaller one."


def _reach(adjacency):
    """Sensitivity of the sum over the clip norm: 1 or 2."""
    return mean_sensitivity(1.0, 1.0, adjacency)


def _check_rate(rate):
    if not 0 < rate <= 1:
        raise ValueError(f"rate={rate!r} must lie in (0, 1].")


def blocks_mu(noise_multiplier, n_passes, adjacency):
    """Gaussian-DP parameter of `n_passes` passes over fixed, public, disjoint blocks."""
    check_positive(noise_multiplier=noise_multiplier)
    check_count(0, n_passes=n_passes)
    return _reach(adjacency) * math.sqrt(n_passes) / noise_multiplier


# ---------------------------------------------------------------- fixed size
def fixed_size_delta(noise_multiplier, n_rounds, rate, epsilon, adjacency):
    """Exact delta of joint DP when q of m tasks are drawn each round, rate = q / m.

    The other tasks know whether they were drawn and hence whether the last one was. Given
    the N ~ Binomial(T, rate) rounds of a task the loss is that of c sqrt(N) / z, so
    delta = E_N gdp_delta(c sqrt(N) / z, epsilon).
    """
    check_positive(noise_multiplier=noise_multiplier)
    check_count(0, n_rounds=n_rounds)
    _check_rate(rate)
    rounds = np.arange(n_rounds + 1)
    mus = _reach(adjacency) * np.sqrt(rounds) / noise_multiplier
    return float(binom.pmf(rounds, n_rounds, rate) @ gdp_delta(mus, epsilon))


def fixed_size_epsilon(noise_multiplier, n_rounds, rate, delta, adjacency):
    """Smallest epsilon of `fixed_size_delta` at `delta`."""
    check_delta(delta)

    def excess(epsilon):
        spent = fixed_size_delta(noise_multiplier, n_rounds, rate, epsilon, adjacency)
        return math.log(max(spent, 1e-300)) - math.log(delta)

    if excess(0.0) <= 0:
        return 0.0
    top = float(gdp_epsilon(blocks_mu(noise_multiplier, n_rounds, adjacency), delta))
    return brentq(excess, 0.0, top * (1 + 1e-9), xtol=1e-13 * top)


def fixed_size_noise(epsilon, delta, n_rounds, rate, adjacency):
    """Smallest noise multiplier with `fixed_size_delta` at most `delta`."""
    check_positive(epsilon=epsilon)
    check_count(n_rounds=n_rounds)
    top = blocks_mu(1.0, n_rounds, adjacency) / float(gdp_mu(epsilon, delta))

    def excess(log_z):
        spent = fixed_size_delta(math.exp(log_z), n_rounds, rate, epsilon, adjacency)
        return math.log(max(spent, 1e-300)) - math.log(delta)

    if excess(-50.0) <= 0:  # with delta above P(N > 0) no noise at all would do
        raise ValueError(_DELTA.format(delta))
    return math.exp(brentq(excess, -50.0, math.log(top) + 1e-9, xtol=1e-13))


# ---------------------------------------------------------------- Poisson
def poisson_epsilon(noise_multiplier, n_rounds, rate, delta, adjacency, *, group_size=1):
    """epsilon of Poisson sampling at `rate`, by privacy-loss distributions (upper bound).

    Each task takes part independently with probability `rate`, secretly from the others. With
    ``adjacency="zero-out"`` groups of `group_size` records may be protected.
    """
    _check_rate(rate)
    check_count(n_rounds=n_rounds, group_size=group_size)
    if group_size > 1 and adjacency != "zero-out":
        raise ValueError(
            f"group_size={group_size!r} under Poisson sampling is accounted for "
            f'adjacency="zero-out" only, not {adjacency!r}.'
        )
    full = float(gdp_epsilon(group_size * blocks_mu(noise_multiplier, n_rounds, adjacency), delta))
    if rate == 1.0:
        return full
    event = _event(noise_multiplier, n_rounds, rate, group_size)
    epsilon, step, finer = full, _COARSEST, 0.0
    while finer < 0.95 * step:  # a coarse pass finds the size of epsilon and so the next grid
        step = finer or step
        epsilon = min(epsilon, _spent(event, delta, adjacency, step))
        finer = _grid(epsilon, delta, n_rounds) if epsilon > 0.0 else step
    return epsilon


def poisson_noise(epsilon, delta, n_rounds, rate, adjacency, *, group_size=1):
    """Noise multiplier, at most 0.1 % too large, for (epsilon, delta) under Poisson sampling.

    Groups as in `poisson_epsilon`.
    """
    _check_rate(rate)
    check_positive(epsilon=epsilon)
    check_count(n_rounds=n_rounds, group_size=group_size)
    mu = float(gdp_mu(epsilon, delta))
    full = group_size * blocks_mu(1.0, n_rounds, adjacency) / mu
    if rate == 1.0:
        return full
    drawn = -math.expm1(group_size * math.log1p(-rate))
    if -math.expm1(n_rounds * math.log1p(-drawn)) <= delta:  # no noise at all would do
        raise ValueError(_DELTA.format(delta))
    # In the limit of many rounds the loss is Gaussian, and no less noise than in one will do.
    ratio = (mu / drawn) ** 2 / n_rounds
    near = (math.log1p(ratio) if adjacency == "zero-out" else math.asinh(ratio / 4)) ** -0.5
    if drawn > delta:
        one = gdp_mu(math.log1p(math.expm1(epsilon) / drawn), delta / drawn)
        near = max(near, 1.0 / float(one))
    # Secant steps for log epsilon in log z; what a coarse grid finds enough is enough.
    x, high, slope = math.log(min(near, full)), math.log(full), -2.0
    fine = _grid(epsilon, delta, n_rounds)
    for tolerance, step in ((1e-2, 4.0 * fine), (1e-3, fine)):
        low, last = -math.inf, None
        while high - low > tolerance:
            found = _spent(_event(math.exp(x), n_rounds, rate, group_size), delta, adjacency, step)
            found = math.log(min(max(found / epsilon, 1e-9), 1e9))
            low, high = (x, high) if found > 0.0 else (low, x)
            if tolerance * slope <= found <= 0.0:
                break
            if last is not None and x != last[0]:
                slope = min((found - last[1]) / (x - last[0]), -0.2)
            last = x, found
            x += min(max(-found / slope + 0.4 * tolerance, -_FARTHEST), _FARTHEST)
            if not low < x < high:
                x = 0.5 * (low + high)
        x = high
    return math.exp(high)


def _grid(epsilon, delta, n_rounds):
    """Step between losses whose rounding asks for less than 0.1 % more noise.

    That part grows with the square of the step over the std of the loss of a round: up to 0.08 %
    at a tenth, for 1 to 10,000 rounds at rates of 0.001 to 0.9.
    """
    step = 0.1 * float(gdp_mu(epsilon, delta)) / math.sqrt(n_rounds)
    return max(min(step, 3e-3 * epsilon), 1e-5)


def _event(noise_multiplier, n_rounds, rate, group_size=1):
    dp = _dp_accounting()
    if group_size == 1:
        one = dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(noise_multiplier))
    else:
        members = np.arange(group_size + 1)
        one = dp.dp_event.MixtureOfGaussiansDpEvent(
            noise_multiplier, members, binom.pmf(members, group_size, rate)
        )
    return dp.SelfComposedDpEvent(one, n_rounds)


def _spent(event, delta, adjacency, step):
    """epsilon of an event, by distributions of losses in whole steps; rounding is pessimistic."""
    dp = _dp_accounting()
    relation = {
        "zero-out": dp.NeighboringRelation.REPLACE_SPECIAL,
        "replace-one": dp.NeighboringRelation.REPLACE_ONE,
    }[adjacency]
    accountant = dp.pld.PLDAccountant(relation, value_discretization_interval=step)
    return float(accountant.compose(event).get_epsilon(delta))


def accountant_name():
    """Name and version of the library behind `poisson_epsilon`, for the report."""
    from importlib.metadata import version

    _dp_accounting()
    return f"dp-accounting {version('dp-accounting')}, privacy-loss distributions"


def _dp_accounting():
    # Imported late: it takes seconds and is needed for Poisson sampling only.
    try:
        import dp_accounting
    except ImportError as error:
        raise ImportError(
            "accounting for Poisson sampling needs dp-accounting: install the extra with  "
            "pip install skpmtl[sampling]"
        ) from error
    return dp_accounting
