"""Division of a budget among several releases.

A release with weight w_t gets mu_t = mu w_t / ||w||_2 (Gaussian). Weights are t^a or Q^-t,
t = 1..T.
"""

import math
from numbers import Real

import numpy as np
from numpy.typing import NDArray

from .accounting import check_count, check_positive


def allocation_weights(allocation, n_releases: int) -> NDArray:
    """Relative budgets of the releases, the largest being 1.

    Parameters
    ----------
    allocation : float or ("geometric", Q)
        a: weights t^a; ("geometric", Q), Q > 0: weights Q^-t.
    n_releases : int >= 1

    Returns
    -------
    ndarray of shape (n_releases,)
    """
    check_count(n_releases=n_releases)
    t = np.arange(1, n_releases + 1)
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
            f"allocation={allocation!r} must be a number a (weights t^a), or "
            '("geometric", Q) with Q > 0 (weights Q^-t).'
        )
    # The floor keeps a vanishing share positive, so that every release has finite noise.
    return np.exp(np.maximum(logs - logs.max(), -600.0))


def release_mus(mu, n_releases, allocation=0.0):
    """Gaussian-DP parameter of every release; their squares sum to mu^2."""
    check_positive(mu=mu)
    weights = allocation_weights(allocation, n_releases)
    return mu * (weights / np.linalg.norm(weights))
