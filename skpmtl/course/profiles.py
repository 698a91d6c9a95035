"""Without a budget: intervals of spreads, from profiles of the restricted likelihood.

The profile of a spread s is the least deviance D(s) over all other spreads (Bates, Machler, Bolker
and Walker, J. Stat. Softw. 67(1), 2015, section 5.1, where it is that of the likelihood without
restriction), and

    zeta(s) = sign(s - s_hat) (D(s) - D(s_hat))^(1/2)

is about normal, so that an interval ends where it is a quantile; at zero if zeta(0) is above it.
"""

import numpy as np
from scipy.interpolate import PchipInterpolator
from scipy.special import ndtri

ZETA = np.arange(-13, 14) / 5.0  # for coverage of 99 %
TOL = 1e-3  # of the deviance: zeta at 2 then moves by less than a thousandth
_APART = 0.8  # between zeta of two points, about
_FIRST, _STEP, _POINTS = 0.01, 1.5, 20  # steps of log s, the longest; and their number on a side
_FAR = 1e6
FLAT = 0.1  # curvature of the deviance by log s, at least


def profiles(deviance, spreads, sigma):
    """Sizes at which zeta is `ZETA`, of all spreads but that of slopes, and of sigma.

    `spreads` are over sigma and have the least `deviance`. -> ndarray (len(spreads), len(ZETA))
    """
    logs, n = np.log(np.maximum(spreads, deviance.START)), len(spreads)
    curved = yield from curvature(deviance, logs, sigma)
    best, found = (yield from deviance.value(spreads))[0], []
    for k in (0, *range(2, n + 1)):
        given = np.eye(n + 1, n)  # what moves with spreads over sigma where s_k does not
        if k < n:
            given[n, k] = -1.0
        values, vectors = np.linalg.eigh(given.T @ curved @ given)
        inverse = (vectors / np.maximum(values, FLAT)) @ vectors.T
        estimate = sigma * np.append(spreads, 1.0)[k]
        points = [(estimate, 0.0)]
        for side in (-1.0, 1.0)[not estimate :]:
            points += yield from _side(deviance, k, side, estimate, logs, sigma, inverse, best)
        unit = max(estimate, deviance.FAINT * sigma)
        found.append(_at_zeta(np.array(sorted(points)), unit))
    return np.stack(found)


def ends(profile, coverage):
    """Of an interval: (2,). NaN outside of what is known."""
    most = ndtri(0.5 + 0.5 * coverage)
    if most > ZETA[-1]:
        return np.full(2, np.nan)
    return np.interp([-most, most], ZETA, profile)


def curvature(deviance, logs, sigma):
    """Of the deviance by logarithms of spreads over sigma, and of sigma: (n + 1, n + 1)."""
    n, apart, slopes = len(logs), 0.01, []
    for k in range(-1, n + 1):  # at the estimate, and beside it
        here = logs + apart * (np.arange(n) == k)
        size = sigma * np.exp(apart * (k == n))
        value, found = yield from deviance.value(np.exp(here), (n, size))
        more = (yield from deviance.value(np.exp(here), (n, size * np.exp(apart))))[0]
        slope = yield from deviance.slopes(here, found, (n, size))
        slopes.append(np.append(slope, (more - value) / apart))
    found = [(moved - slopes[0]) / apart for moved in slopes[1:]]
    return 0.5 * (np.array(found) + np.array(found).T)


def _side(deviance, k, side, estimate, logs, sigma, inverse, best):
    """Points of a profile, by steps away from the estimate. -> list of (size, zeta)"""
    of_sigma, least, points = k == len(logs), deviance.FAINT * sigma, []
    size, zeta, step, drift = max(estimate, least), 0.0, _FIRST, np.zeros(len(logs))
    for _ in range(_POINTS):
        size, start = size * np.exp(side * step), logs.copy()
        given, is_nothing = (k, size), not of_sigma and size < least
        if is_nothing:
            size, given, start[k] = 0.0, None, -np.inf
        elif not of_sigma:
            start[k] += side * step
        there = start + np.clip(drift * step, -1.0, 1.0)
        logs, inverse, value = yield from deviance.minimise(there, TOL, given, inverse)
        if not np.isfinite(value):  # nothing is known beyond
            points.append((_FAR * size if side > 0 else 0.0, zeta))
            break
        last, zeta = zeta, side * np.sqrt(max(value - best, 0.0))
        points.append((size, zeta))
        if is_nothing or abs(zeta) >= ZETA[-1]:
            break
        drift = (logs - start) / step
        step *= np.clip(_APART / max(abs(zeta - last), 1e-3), 0.3, 10.0)
        step = min(step, _STEP)
    return points


def _at_zeta(points, unit):
    """Sizes at `ZETA`; between points logarithms are, of squares and one above the unit."""
    size, zeta = points.T
    zeta = np.maximum.accumulate(zeta) + 1e-6 * np.arange(len(zeta))  # flat by rounding
    between = PchipInterpolator(zeta, np.log1p((size / unit) ** 2))
    squares = np.expm1(between(np.clip(ZETA, zeta[0], zeta[-1])))
    return unit * np.sqrt(np.maximum(squares, 0.0))
