"""Division of a budget among several releases.

A release with weight w_t gets mu_t = mu w_t / ||w||_2 (Gaussian) or epsilon_t
proportional to w_t (pure). Weights are t^a or Q^-t, t = 1..T.
"""

import math
from numbers import Real

import numpy as np
from numpy.typing import NDArray

from .accounting import check_count, check_positive, pure_epsilons

# Exponents that the model-protected paper derives for convex losses, by acceleration.
_PAPER_CONVEX = {False: 0.0, True: 0.4}


def allocation_weights(allocation, n_releases: int, *, acceleration: bool = False) -> NDArray:
    """Relative budgets of the releases, the largest being 1.

    Parameters
    ----------
    allocation : float, ("geometric", Q) or "paper-convex"
        a: weights t^a; ("geometric", Q), Q > 0: weights Q^-t; "paper-convex": the exponent
        that the paper recommends, 0.4 with acceleration and 0 without.
    n_releases : int >= 1
    acceleration : bool, default=False
        Read by "paper-convex" only.

    Returns
    -------
    ndarray of shape (n_releases,)
    """
    check_count(n_releases=n_releases)
    t = np.arange(1, n_releases + 1)
    if isinstance(allocation, str) and allocation == "paper-convex":
        allocation = _PAPER_CONVEX[bool(acceleration)]
    if isinstance(allocation, Real) and math.isfinite(allocation):
        logs = np.log(t) * float(allocation)
    elif (
        isinstance(allocation, (tuple, list))
        and len(allocation) == 2
        and allocation[0] == "geometric"
        and 0 < allocation[1] < math.inf
    ):
        logs = -t * math.log(allocation[1])
    else:
        raise ValueError(
            f"allocation={allocation!r} must be a number a (weights t^a), "
            '("geometric", Q) with Q > 0 (weights Q^-t), or "paper-convex".'
        )
    # The floor keeps a vanishing share positive, so that every release has finite noise.
    return np.exp(np.maximum(logs - logs.max(), -600.0))


def release_mus(mu, n_releases, allocation=0.0, *, acceleration=False):
    """Gaussian-DP parameter of every release; their squares sum to mu^2."""
    check_positive(mu=mu)
    weights = allocation_weights(allocation, n_releases, acceleration=acceleration)
    return mu * (weights / np.linalg.norm(weights))


def release_epsilons(epsilon, delta, n_releases, allocation=0.0, *, acceleration=False):
    """Pure budget of every release; together they are (epsilon, delta)-DP."""
    weights = allocation_weights(allocation, n_releases, acceleration=acceleration)
    return pure_epsilons(epsilon, delta, weights)
