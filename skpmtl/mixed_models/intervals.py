"""Intervals of standard deviations of random effects and rows, from profiles of the likelihood.

With D(s) the least deviance where one of them is s, the interval is where the signed root of
D(s) - min D is between quantiles of the normal distribution (Bates, Machler, Bolker and Walker, J.
Stat. Softw. 67(1), 2015, section 5.1). In the notation of `skpmtl.mixed_models.reml`, the deviance
of Lambda = sigma L and sigma is

    sum_t log det M_t + [log det R] + (N - [p]) log sigma^2 + rss / sigma^2 + constant,

with what is in brackets where the likelihood is restricted. Effects are put in an order in which
the one that is fixed is the first: its standard deviation is then a number of Lambda alone.
"""

import math
from dataclasses import replace

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import brentq, minimize
from scipy.special import ndtri

from .reml import _FLAT, _reduce, _slopes, column_sizes, signed_factor

_TOL = 1e-12  # relative change of the deviance between two iterations
# Of sigma: where the search for an upper end starts if the estimate is zero. 1e-2 and 1e-6 gave the
# same ends of six tables.
_FAINT = 1e-4
# Times, between guesses of an end, and how many of them, 4e10 times in all. Steps of 2 failed in
# one of six tables, where the other effects could not follow.
_WIDER, _FAR = 1.5, 60
_CLOSE = 1e-7  # of an end


class _Deviance:
    """Of Lambda and log sigma, in columns of size one, with the random effects in an order."""

    def __init__(self, rows, order, correlated, restricted):
        size_x, size_z = column_sizes(rows.X), column_sizes(rows.Z)
        scaled = replace(rows, X=rows.X / size_x, Z=(rows.Z / size_z)[:, order])
        self.products, self.restricted = scaled.products(), restricted
        X, y = scaled.X, rows.y
        self.totals = X.T @ X, X.T @ y, float(y @ y)
        self.dof = len(y) - restricted * X.shape[1]
        self.size, self.order, q = size_z[order], order, len(order)
        self.lower = np.tril_indices(q) if correlated else np.diag_indices(q)

    def start(self, covariance):
        """Parameters of a fit, of this covariance of random effects over sigma^2."""
        order = self.order
        scaled = covariance[np.ix_(order, order)] * np.outer(self.size, self.size)
        values, vectors = np.linalg.eigh(scaled)
        root = np.linalg.qr((vectors * np.sqrt(np.maximum(values, 0.0))).T, mode="r").T
        root = signed_factor(root)
        np.fill_diagonal(root, np.maximum(np.diag(root), _FLAT))  # zero may be a saddle
        return np.append(root[self.lower], 0.0)

    def __call__(self, params):
        *factor, log_sigma = params
        sigma, q = math.exp(log_sigma), len(self.size)
        L = np.zeros((q, q))
        L[self.lower] = np.array(factor) / sigma
        R, r = self.totals[0].copy(), self.totals[1].copy()
        fits, value = _reduce(*self.products, L, R, r)
        chol = cho_factor(R, lower=True)
        beta = cho_solve(chol, r)
        rss = self.totals[2] - fits - beta @ r
        inverse = self.restricted * cho_solve(chol, np.eye(len(R)))
        value += self.restricted * 2.0 * np.log(np.diag(chol[0])).sum()
        slope = np.zeros((q, q))
        _slopes(*self.products, L, beta, inverse, sigma**-2, slope)
        of_sigma = 2.0 * self.dof - 2.0 * rss / sigma**2 - np.sum(slope * L)
        value += 2.0 * self.dof * log_sigma + rss / sigma**2
        return value, np.append(slope[self.lower] / sigma, of_sigma)

    def least(self, start, k=None, size=None):
        """Least deviance, with parameter k of this size. -> value, parameters"""
        free = np.arange(len(start)) != k

        def moved(part):
            params = start.copy()
            params[free] = part
            if k is not None:
                params[k] = size
            return params

        def of(part):
            value, slope = self(moved(part))
            return value, slope[free]

        options = {"ftol": _TOL, "gtol": 0.0}
        found = minimize(of, start[free], jac=True, method="L-BFGS-B", options=options)
        return found.fun, moved(found.x)


def deviation_intervals(rows, fit, coverage, *, correlated=True, restricted=True):
    """Ends of intervals of standard deviations, of the random effects and, last, of rows.

    Parameters
    ----------
    rows : GroupedRows
        With one grouping.
    fit : MixedFit
        Of these rows.
    coverage : float
    correlated : bool, default=True
        As in `fit_mixed`.
    restricted : bool, default=True
        False: from the likelihood, as ``confint`` of lme4.

    Returns
    -------
    ends : ndarray (q + 1, 2)
    """
    unit, q = math.sqrt(fit.sigma2), rows.Z.shape[1]
    rows, ends = replace(rows, y=rows.y / unit), []
    for k in range(q + 1):
        order = np.roll(np.arange(q), -k)
        deviance = _Deviance(rows, order, correlated, restricted)
        start = deviance.start(fit.random_covariance / fit.sigma2)
        which, size = (0, deviance.size[0]) if k < q else (len(start) - 1, 1.0)
        found = _ends(deviance, start, which, ndtri(0.5 + 0.5 * coverage))
        ends.append(unit * found / size)
    return np.array(ends)


def _ends(deviance, start, k, most):
    """Where the root of the deviance of parameter k is above the least by `most`."""
    best, here = deviance.least(start)
    of_rows = k == len(start) - 1
    middle = here[k] if of_rows else math.log(max(abs(here[k]), _FAINT))

    def away(place, size=None):
        nonlocal here
        size = size if size is not None else place if of_rows else math.exp(place)
        value, here = deviance.least(here, k, size)
        return math.sqrt(max(value - best, 0.0)) - most

    def end(side):
        nonlocal here
        here, inner = start, middle
        for _ in range(_FAR):
            outer = inner + side * math.log(_WIDER)
            if away(outer) > 0.0:
                return math.exp(brentq(away, *sorted([inner, outer]), xtol=_CLOSE))
            inner = outer
        return math.exp(side * math.inf)

    low = 0.0 if not of_rows and away(0.0, 0.0) <= 0.0 else end(-1.0)
    return np.array([low, end(1.0)])
