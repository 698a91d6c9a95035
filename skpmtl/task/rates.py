"""Posterior of the level of a task of counts whose slopes are those of all tasks.

With a rate exp(s_i) of every row where the level is c, the sums D of counts and R of rates are all
that a task knows of its level c + v,

    log p(y | v) = D v - R exp(v) + ...,      v ~ N(0, tau^2).

Its integrals are taken by the rule of Gauss and Hermite about the mode v0, where

    D - R exp(v0) - v0 / tau^2 = 0,      v0 = D tau^2 - omega(D tau^2 + log(R tau^2)),

for the function omega of Wright, omega + log(omega) = z. They are right to 1e-4.
Mean rates are exp(s_i) E exp(v).
"""

import numpy as np
from scipy.special import wrightomega

_NODES, _WEIGHTS = np.polynomial.hermite.hermgauss(24)
_LEAST = 1e-12  # of a variance and of a rate


def of_level(events, rates, tau, log_weights):
    """What tasks know of levels, from D and R, (m,), for spreads and log weights of them, (T,).

    -> log evidence (m, T), up to a number that no tau and no level changes; over all tau, the mean
    of v (m,) and the logarithm of that of exp(v) (m,)
    """
    D, R, t2 = events[:, None], np.maximum(rates, _LEAST)[:, None], np.maximum(tau**2, _LEAST)
    mode = D * t2 - wrightomega(D * t2 + np.log(R * t2))
    width = np.sqrt(2.0 / (R * np.exp(mode) + 1.0 / t2))
    total, first, rate = np.zeros((3, *mode.shape))
    top = D * mode - R * np.exp(mode) - 0.5 * mode**2 / t2
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        v = mode + width * node
        p = weight * np.exp(D * v - R * np.exp(v) - 0.5 * v**2 / t2 - top + node**2)
        total += p
        first += p * v
        rate += p * np.exp(v - mode)
    evidence = top + np.log(width * total / np.sqrt(2.0 * np.pi * t2))
    share = evidence + log_weights
    share = np.exp(share - share.max(axis=1, keepdims=True))
    share /= share.sum(axis=1, keepdims=True)
    mean, log_rate = first / total, mode + np.log(rate / total)
    most = log_rate.max(axis=1)
    of_rates = np.sum(share * np.exp(log_rate - most[:, None]), axis=1)
    return evidence, np.sum(share * mean, axis=1), most + np.log(of_rates)
