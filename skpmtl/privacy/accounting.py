"""Closed-form privacy accounting: Gaussian DP, pure composition, groups.

``mu`` is the parameter of Gaussian differential privacy (Dong, Roth, Su 2022): a Gaussian
release with noise std sigma and L2 sensitivity Delta is exactly mu-GDP with
mu = Delta / sigma. Nothing here needs more than numpy and scipy; sampling is in
`skpmtl.privacy.sampling`.
"""

import math
from functools import lru_cache
from numbers import Integral, Real
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import erfcx, erfinv, gammaln, log_ndtr

from .._runtime.stack import warn_once
from .report import PrivacyLeakWarning

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)
_XTOL, _RTOL = 1e-15, 4.0 * np.finfo(float).eps


# A NaN or a negative number must not end in a guarantee.
def check_positive(**numbers):
    """ValueError, with its name, for what is no finite number above 0."""
    for name, value in numbers.items():
        if not isinstance(value, Real) or not 0 < value < math.inf:
            raise ValueError(f"{name}={value!r} must be a positive, finite number.")


def check_count(least=1, **numbers):
    """ValueError, with its name, for what is no integer from `least` on."""
    for name, value in numbers.items():
        if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
            raise ValueError(f"{name}={value!r} must be an integer, {least} or more.")


def check_delta(delta, *, zero=False):
    """ValueError for what is no probability below 1 and, unless `zero`, above 0."""
    if not isinstance(delta, Real) or not (0 < delta < 1 or (zero and delta == 0)):
        where = "in [0, 1)" if zero else "strictly between 0 and 1"
        raise ValueError(f"delta={delta!r} must lie {where}.")


def check_budget(
    epsilon: float,
    delta: float | None,
    n_tasks: int,
    *,
    pure: bool = False,
    unit: Literal["task", "record"] = "task",
):
    """Validate a budget and fill in the default delta. -> (epsilon, delta)

    Parameters
    ----------
    epsilon : float > 0
    delta : float in [0, 1) or None
        None: min(1e-5, 1 / n_tasks^2), or 0 for a pure mechanism. 0 needs a pure mechanism.
    n_tasks : int
        Number of tasks, or of whatever `unit` is (public).
    pure : bool, default=False
        Whether the mechanism can give delta = 0.
    unit : {"task", "record"}, default="task"
        For the text of the warning.

    Warns
    -----
    PrivacyLeakWarning
        If delta >= 1 / n_tasks: publishing one random task in clear would satisfy it.
    """
    if not 0 < epsilon < math.inf:
        raise ValueError(
            f"epsilon={epsilon!r} is not a privacy budget: pass a positive number, "
            "or epsilon=None for a fit without privacy."
        )
    if not 0 <= n_tasks < math.inf or (delta is None and n_tasks == 0):
        raise ValueError(f"n_tasks={n_tasks!r} must be a number of {unit}s.")
    if delta is None:
        return float(epsilon), 0.0 if pure else min(1e-5, n_tasks**-2.0)
    if not 0 <= delta < 1:
        raise ValueError(f"delta={delta!r} must lie in (0, 1), or be 0 for a pure mechanism.")
    if delta == 0 and not pure:
        raise ValueError(
            "delta=0 (pure differential privacy) cannot be given by Gaussian noise: choose a "
            "positive delta."
        )
    if delta * n_tasks >= 1:
        warn_once(
            f"delta={delta!r} is at least 1/n_{unit}s = {1 / n_tasks:.3g}: publishing one random "
            f"{unit} in clear would satisfy this guarantee. Choose a smaller delta.",
            PrivacyLeakWarning,
        )
    return float(epsilon), float(delta)


# ---------------------------------------------------------------- Gaussian DP
def _gdp_log_delta(mu, epsilon):
    """log delta(epsilon) for finite mu > 0, accurate to about 1e-13 also in the far tail.

    With x = epsilon/mu - mu/2 and y = x + mu, delta = Phi(-x) - e^epsilon Phi(-y)
    = phi(x) (M(x) - M(y)), M = Mills' ratio. Below mu = 1 the difference is integrated from
    -M'(t) = 1 - t M(t); above it the two terms are far enough apart to be subtracted.
    """
    mu, epsilon = np.broadcast_arrays(mu, epsilon)
    x = epsilon / mu - mu / 2
    result = np.empty(x.shape)
    small = (mu < 1.0) & (x > -20.0)
    a, h = x[small][:, None], mu[small][:, None] / 2
    t = a + h * (1.0 + _NODES)
    slope = 1.0 - t * (math.sqrt(math.pi / 2) * erfcx(t / math.sqrt(2)))
    # 1 - t M(t) cancels for large t: asymptotic series, error below 1e-14 from t = 50 on.
    inverse = 1.0 / np.square(np.where(t > 50.0, t, np.inf))
    series = inverse * (1 - inverse * (3 - inverse * (15 - inverse * (105 - inverse * 945))))
    slope = np.where(t > 50.0, series, slope)
    with np.errstate(divide="ignore"):  # the slope underflows only for x above 1e154
        integral = np.log((slope @ _WEIGHTS) * h[:, 0])
    result[small] = integral - np.square(a[:, 0]) / 2 - _LOG_SQRT_2PI
    mu, epsilon, x = mu[~small], epsilon[~small], x[~small]
    first = log_ndtr(-x)
    second = np.minimum(epsilon + log_ndtr(-x - mu), first)
    with np.errstate(divide="ignore"):
        result[~small] = first + np.log(-np.expm1(second - first))
    return result


def gdp_delta(mu, epsilon):
    """Smallest delta such that mu-GDP implies (epsilon, delta)-DP (exact). Vectorised.

    delta = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu). Negative epsilon is
    allowed (it occurs inside compositions).
    """
    mu, epsilon = np.broadcast_arrays(np.asarray(mu, float), np.asarray(epsilon, float))
    if not (mu >= 0).all():
        raise ValueError(f"mu={mu!r} must be non-negative.")
    if not np.isfinite(epsilon).all():
        raise ValueError(f"epsilon={epsilon!r} must be finite.")
    delta = np.maximum(0.0, -np.expm1(np.minimum(epsilon, 0.0)))  # mu = 0
    delta = np.where(np.isinf(mu), 1.0, delta)
    inside = (mu > 0) & np.isfinite(mu)
    delta[inside] = np.exp(_gdp_log_delta(mu[inside], epsilon[inside]))
    return delta[()]


def _log_delta(mu, epsilon):
    return float(_gdp_log_delta(np.array([mu]), np.array([epsilon]))[0])


def gdp_epsilon(mu, delta):
    """Smallest epsilon >= 0 such that mu-GDP implies (epsilon, delta)-DP. Vectorised."""
    return _vectorise(_gdp_epsilon, mu, delta)


def _gdp_epsilon(mu, delta):
    check_delta(delta)
    if not mu >= 0:
        raise ValueError(f"mu={mu!r} must be non-negative.")
    if mu == 0.0 or math.isinf(mu):
        return mu
    target = math.log(delta)
    if _log_delta(mu, 0.0) <= target:
        return 0.0
    # delta <= Phi(-x) <= exp(-x^2/2), x = epsilon/mu - mu/2 >= 0, so this epsilon is enough
    top = mu * (mu / 2 + math.sqrt(-2.0 * target)) * (1 + 1e-9)
    return brentq(lambda e: _log_delta(mu, e) - target, 0.0, top, xtol=1e-15 * top, rtol=_RTOL)


def gdp_mu(epsilon, delta):
    """Largest mu such that mu-GDP implies (epsilon, delta)-DP. Vectorised.

    The noise std of a Gaussian release is its sensitivity divided by this number.
    """
    return _vectorise(_gdp_mu, epsilon, delta)


@lru_cache(maxsize=256)  # every plan of a fit needs it
def _gdp_mu(epsilon, delta):
    check_delta(delta)
    if not epsilon >= 0:
        raise ValueError(f"epsilon={epsilon!r} must be non-negative.")
    if epsilon == 0.0:
        return 2.0 * math.sqrt(2.0) * float(erfinv(delta))
    if math.isinf(epsilon):
        return math.inf
    target = math.log(delta)

    def excess(log_mu):
        return _log_delta(math.exp(log_mu), epsilon) - target

    # At mu = sqrt(2 epsilon) delta is of order 1; the root is searched from there.
    return math.exp(_increasing_root(excess, 0.5 * math.log(2.0 * epsilon)))


def compose_gdp(mus):
    """mu of several Gaussian-DP releases on the same data: sqrt(sum mu_t^2), exact."""
    mus = np.ravel(np.asarray(mus, dtype=float))
    if not (mus >= 0).all():
        raise ValueError(f"mus={mus!r} must be non-negative.")
    return math.hypot(*mus)


# ---------------------------------------------------------------- pure composition
def cb_epsilon(epsilons, delta):
    """Composition bound CB for adaptive epsilon_t-DP releases (Kairouz et al. 2017).

    The minimum of sum epsilon_t and of sum epsilon_t tanh(epsilon_t / 2)
    + sqrt(2 S L), S = sum epsilon_t^2, L = min(log(1/delta), log(e + sqrt(S)/delta)):
    equation 6 of the model-protected paper. delta = 0 gives the plain sum.
    """
    epsilons = _check_epsilons(epsilons)
    total = float(epsilons.sum())
    if delta == 0:
        return total
    check_delta(delta)
    squares = float(np.square(epsilons).sum())
    drift = float((epsilons * np.tanh(epsilons / 2)).sum())
    log_term = min(-math.log(delta), math.log(math.e + math.sqrt(squares) / delta))
    return min(total, drift + math.sqrt(2.0 * squares * log_term))


def _pure_losses(epsilons):
    """Distribution of the total privacy loss of randomised responses. -> (losses, weights)

    Equal epsilons: binomial, exact. Otherwise each epsilon_t is rounded up to a grid (sound:
    a larger epsilon_t dominates) and the two-point losses are convolved without FFT, so that
    small probabilities keep their relative accuracy.
    """
    top, T = float(epsilons.max()), len(epsilons)
    if float(epsilons.min()) == top:
        i = np.arange(T + 1)
        log_weight = gammaln(T + 1) - gammaln(i + 1) - gammaln(T - i + 1)
        log_weight += i * top - T * np.logaddexp(0.0, top)
        return (2 * i - T) * top, np.exp(log_weight)
    step = float(epsilons.sum()) / max(2**16, 64 * T)
    counts = np.ceil(epsilons / step * (1 - 1e-12)).astype(np.int64)
    weights = np.zeros(int(counts.sum()) + 1)
    weights[0] = 1.0
    reached = 0
    for count in counts:
        stay = 1.0 / (1.0 + math.exp(min(700.0, count * step)))
        old = weights[: reached + 1].copy()
        weights[: reached + 1] *= stay
        weights[count : reached + count + 1] += (1.0 - stay) * old
        reached += int(count)
    return (2 * np.arange(reached + 1) - reached) * step, weights


def _losses_delta(losses, weights, epsilon, mu=0.0):
    """delta(epsilon) of that loss composed with a mu-GDP release (exact)."""
    return float(weights @ gdp_delta(mu, epsilon - losses))


def optimal_pure_delta(epsilons, epsilon, mu=0.0):
    """Smallest delta of the adaptive composition of epsilon_t-DP releases, at `epsilon`.

    Exact for equal epsilons: sum_i max(0, C(T,i) [p^i q^(T-i) - e^epsilon p^(T-i) q^i]),
    p = 1/(1 + e^-epsilon_t), q = 1 - p. Unequal ones are rounded up to a grid of their sum
    over 2^16 (a sound upper bound). `mu` adds a Gaussian-DP release to the composition.
    """
    return min(1.0, _losses_delta(*_pure_losses(_check_epsilons(epsilons)), epsilon, mu))


def optimal_pure_epsilon(epsilons, delta, mu=0.0):
    """Smallest epsilon of the adaptive composition of epsilon_t-DP releases, at `delta`."""
    epsilons = _check_epsilons(epsilons)
    if mu != 0:
        check_positive(mu=mu)
    total = float(epsilons.sum())
    if delta == 0 and mu == 0:
        return total
    check_delta(delta)
    losses, weights = _pure_losses(epsilons)
    keep = weights > 0
    losses, weights = losses[keep], weights[keep]
    if _losses_delta(losses, weights, 0.0, mu) <= delta:
        return 0.0
    top = float(losses[-1]) + (_gdp_epsilon(mu, delta) if mu else 0.0)
    top *= 1 + 1e-9
    root = brentq(
        lambda e: _losses_delta(losses, weights, e, mu) - delta,
        0.0,
        top,
        xtol=1e-14 * top,
        rtol=_RTOL,
        maxiter=500,
    )
    return min(root, total) if mu == 0 else root  # the grid must not cost more than the sum


def pure_epsilon(epsilons, delta, method="best"):
    """epsilon of several pure releases. method: "best", "cb", "optimal" or "basic"."""
    check_delta(delta, zero=True)
    if method == "basic":
        return float(_check_epsilons(epsilons).sum())
    if method == "cb":
        return cb_epsilon(epsilons, delta)
    if method == "optimal":
        return optimal_pure_epsilon(epsilons, delta)
    if method == "best":
        return min(cb_epsilon(epsilons, delta), optimal_pure_epsilon(epsilons, delta))
    raise ValueError(f'method={method!r} is unknown: "best", "cb", "optimal" or "basic".')


def pure_epsilons(
    epsilon: float,
    delta: float,
    weights,
    method: Literal["best", "cb", "optimal", "basic"] = "best",
) -> NDArray:
    """Per-release budgets epsilon_t proportional to `weights` that compose to the budget.

    Parameters
    ----------
    epsilon : float > 0
    delta : float in [0, 1)
        0: the releases share epsilon.
    weights : array-like of shape (T,), positive
    method : {"best", "cb", "optimal", "basic"}, default="best"
        "best" takes the larger of the budgets that "cb" and "optimal" allow.

    Returns
    -------
    ndarray of shape (T,)
    """
    weights = _check_epsilons(weights)
    check_positive(epsilon=epsilon)
    check_delta(delta, zero=True)
    basic = epsilon / float(weights.sum())
    if method not in ("best", "cb", "optimal", "basic"):
        raise ValueError(f'method={method!r} is unknown: "best", "cb", "optimal" or "basic".')
    scale = basic
    if method in ("best", "cb"):
        scale = max(
            scale, _largest_scale(basic, lambda c: cb_epsilon(c * weights, delta) - epsilon)
        )
    if method in ("best", "optimal"):
        scale = max(
            scale, _largest_scale(basic, lambda c: optimal_pure_delta(c * weights, epsilon) - delta)
        )
    return scale * weights


def _largest_scale(basic, excess):
    """Largest c >= basic with excess(c) <= 0; excess(basic) <= 0 up to rounding."""
    if excess(basic) >= 0:
        return basic
    low, high = basic, 2.0 * basic
    while excess(high) < 0:
        low, high = high, 2.0 * high
    root = brentq(excess, low, high, xtol=1e-13 * low, rtol=_RTOL, maxiter=500)
    while excess(root) > 0:  # stay on the private side of the root
        root *= 1 - 1e-13
    return root


# ---------------------------------------------------------------- group privacy
def group_privacy(epsilon, delta, size):
    """(epsilon, delta) per record -> (size epsilon, delta (e^(size eps)-1)/(e^eps-1))."""
    if not 0 <= epsilon < math.inf:
        raise ValueError(f"epsilon={epsilon!r} must be non-negative and finite.")
    check_delta(delta, zero=True)
    check_count(size=size)
    if delta == 0:
        return size * epsilon, 0.0
    # The factor alone may exceed the largest float where the product does not.
    log_delta = math.log(delta) + _log_geometric_sum(epsilon, size)
    return size * epsilon, math.exp(min(log_delta, 0.0))


def record_budget(epsilon, delta, size, method="tight"):
    """Budget per record so that groups of `size` records get (epsilon, delta).

    "tight" inverts `group_privacy`; "published" is (epsilon/n, delta/(n e^epsilon)). For
    Gaussian noise neither is needed: mu per record is exactly gdp_mu(epsilon, delta)/size.
    """
    check_positive(epsilon=epsilon)
    check_delta(delta, zero=True)
    check_count(size=size)
    share = epsilon / size
    if method == "published":
        return share, delta / size * math.exp(-epsilon)
    if method == "tight":
        return share, delta * math.exp(-_log_geometric_sum(share, size))
    raise ValueError(f'method={method!r} is unknown: "tight" or "published".')


def _log_geometric_sum(epsilon, size):
    """log(1 + e^eps + ... + e^((size-1) eps))."""
    if epsilon == 0:
        return math.log(size)
    return (size - 1) * epsilon + math.log(math.expm1(-size * epsilon) / math.expm1(-epsilon))


# ---------------------------------------------------------------- plumbing
def _check_epsilons(epsilons):
    epsilons = np.atleast_1d(np.asarray(epsilons, dtype=float))
    good = (epsilons > 0) & np.isfinite(epsilons)
    if epsilons.ndim != 1 or epsilons.size == 0 or not good.all():
        raise ValueError(f"expected a list of positive, finite numbers, got {epsilons!r}.")
    return epsilons


def _vectorise(function, *arguments):
    arguments = np.broadcast_arrays(*(np.asarray(a, dtype=float) for a in arguments))
    values = [
        function(*map(float, point)) for point in zip(*(a.flat for a in arguments), strict=True)
    ]
    return np.array(values).reshape(arguments[0].shape)[()]


def _increasing_root(function, start):
    """Root of an increasing function on the line: walk away from `start`, then bracket."""
    low, high, step = start, start, 1.0
    while function(low) > 0:
        high, low, step = low, low - step, 2.0 * step
    step = 1.0
    while function(high) < 0:
        low, high, step = high, high + step, 2.0 * step
    if low == high:
        return low
    return brentq(function, low, high, xtol=_XTOL, rtol=_RTOL, maxiter=500)
