"""From released histograms to the place of levels and the unit of y.

A place is taken only where it clears its noise; no place is a result as well.
"""

import math
from functools import cache

import numpy as np
from scipy.special import expit, ndtr, ndtri

from ..task.posterior import log_sum
from ..task.priors import log_sum_of, normalised
from .billboard import OCTAVE
from .queries import BINS, COUNTED, SIGN, Zoom, bumps, octave

# Log odds of a place over none: a wrong one is worse than none. With log 5 one of 38 random tables
# with absent tasks (420110, epsilon 5, 10 of 18) had 24 times the error of the best reference,
# the worst of 30 draws 400; with log 20 1.7 and 15.
_SURE = math.log(20.0)
# Octaves about the likeliest size of levels, or unit, that a place is sure to be in. Without it the
# worst of 64 fits (eight random tables, eight seeds) was 5e13 times the best reference, with it 17;
# with 4 one of 14 others was 1.25 times as bad at 3, and with 1 none was.
_NEAR = 2.0
# Of levels, in parts of their middle. With 1 alone errors of 144 random tables were .995 and .988
# times as large at 1 and 3, the worst 1.15, but 1.05 where narrow levels are beside a power of two
# (seed 450910, epsilon 3, ten draws).
_SPREADS = 0.125, 0.25, 0.5, 1.0
_EVENLY = (np.arange(16.0) + 0.5) / 16.0
_NORMAL = ndtri(_EVENLY)
# Of the tasks, that have the place; with fewer there may be two of them. With 1 alone, or without
# the second, one of 69 random tables was 2.1 times as bad at 3, and all 1.008. In a zoom, where
# rounded levels are in several places, shares of fewer are against it.
_PARTS, _OF_ZOOM = (0.5, 0.75, 1.0), (0.25, 0.5, 0.75, 1.0)
_LEAST = 0.01  # variance of a count that has no noise, where none is expected
_UNITS = 2.0 ** np.arange(-OCTAVE, OCTAVE)
# Log2 of spreads, and parts of the tasks that have one. Half and twice of the first: 1.008 and
# 1.004 of the errors of these tables at 1, .999 and 1.013 at 3, .998 and 1.001 without a budget.
_UNIT_WIDTH, _REPEATS = 0.8, (0.25, 1.0)
# Log2 of levels over the spread of rows: its middle and width. Without it 1.011 and 1.010 of the
# errors of these tables at 1 and 3, the worst 2.1.
_ABOVE_UNIT = 3.0, 4.0
# Part of this prior that is of any unit, whatever levels are. Half and twice as much change none of
# 14 tables; with a law of Cauchy in place of both one of 53 (16 tasks) was 1.12 times as bad at 10.
_APART = 0.1
_ENDS, _WIDER = np.array([0.05, 0.95]), 1.25  # quantiles, and a window over the range between them
_ALL = 1.5  # standard deviations of noise below the public number of tasks
FINER = 32  # bins of a zoom
LOGITS = 7.0  # half-width of the window of levels of classes
_SHARE_DOUBT = 0.001  # least error of a mean share, as a guess of the level of scores


_OCTAVES = Zoom(0.0, float(OCTAVE), 1.0)  # of rates, in logarithms to the base 2


@cache
def _places():
    """Places that levels may have: anywhere in one octave, normal about 0, or about half octaves,
    on one side or on both.

    -> points (K, 16), equally likely, and log weights (K,) before any release, where normal about
    0, and the three sides of the others, are as likely
    """
    sizes = 2.0 ** np.arange(0.25 - OCTAVE, OCTAVE, 0.5)[:, None]
    laws = [sizes * (1.0 + spread * _NORMAL) for spread in _SPREADS]
    laws.append(_UNITS[:, None] * (1.0 + _EVENLY))
    near, both = np.concatenate(laws), np.resize([1.0, -1.0], len(_EVENLY))
    about = sizes * ndtri(0.5 + 0.5 * _EVENLY) * both
    weights = np.concatenate([np.full(len(law), 1.0 / (len(law) * len(laws))) for law in laws])
    weights = np.concatenate([np.full(len(sizes), 1.0 / len(sizes)), *3 * [weights]]) / 4.0
    return np.concatenate([about, near, -near, near * both]), np.log(weights)


@cache
def _of_places(clipped):
    """What a task adds to octaves and signs in each place, and in any octave: `_moments`."""
    octaves = np.repeat(bumps(BINS, clipped).T, 2, axis=0)
    adds = np.c_[octaves, np.tile(SIGN * np.eye(2), (BINS, 1))]
    points, _ = _places()
    return _moments(adds, 2 * octave(points) + (points < 0)), _moments(adds)


@cache
def _of_units(clipped):
    """As `_of_places`, of spreads that are log-normal about each unit, with their tails."""
    ends, adds = np.arange(1 - OCTAVE, OCTAVE), bumps(BINS, clipped).T
    below = ndtr((ends - 0.5 - np.log2(_UNITS)[:, None]) / _UNIT_WIDTH)
    parts = np.diff(below, prepend=0.0, append=1.0)
    return np.stack([parts @ adds, parts @ adds**2]), _moments(adds)


@cache
def _together():
    """Log weights before any release of a place and a unit, (K, U): levels are of the size of the
    spread of rows or larger."""
    points, before = _places()
    octaves = np.log2(np.abs(points).max(axis=1))[:, None] - np.log2(_UNITS)
    near = -0.5 * ((octaves - _ABOVE_UNIT[0]) / _ABOVE_UNIT[1]) ** 2 + before[:, None]
    near += math.log1p(-_APART) - log_sum_of(near.ravel())
    return np.logaddexp(near, before[:, None] + math.log(_APART / near.shape[1]))


def read_place(found, noise, m):
    """From the cells of `queries.Place` to what they say.

    Place and unit are where their posterior is, if it is sure of their size: both, one of them or
    none of them are as likely before the release.

    -> tasks with rows, never above m; unit or None; window (middle, half) or None
    """
    levels, spreads = np.append(found[:BINS], found[2 * BINS :]), found[BINS : 2 * BINS]
    signs = found[2 * BINS :].sum() / SIGN
    n = _present(signs, 2.0 * noise, m)
    (points, before), (places, anywhere) = _places(), _of_places(noise > 0)
    of_places = before + _mean(_gains(levels, noise, n, places, anywhere, [anywhere], _PARTS))
    units, any_unit = _of_units(noise > 0)
    none = 0.0 * any_unit
    of_units = _mean(_gains(spreads, noise, n, units, none, [none, any_unit], _REPEATS))
    both = _together() + of_places[:, None] - before[:, None] + of_units
    of_units = of_units - math.log(len(of_units))
    every = np.block([[both, of_places[:, None]], [of_units, 0.0]])  # none of them is the last
    unit = window = None
    weights = log_sum(every.T)
    sure = _sure(_UNITS, weights)
    if sure.any():
        unit = float(_UNITS[sure][np.argmax(weights[:-1][sure])])
    weights = log_sum(every)
    sure = _sure(np.abs(points).max(axis=1), weights)
    if sure.any():
        middle, half = _range(points[sure], weights[:-1][sure])
        window = middle, max(half, 0.5 * (unit or 0.0))
    # Where levels are known to be, their octaves say how many tasks there are as well as the signs,
    # but for what chance adds to those of n tasks.
    shares = np.exp(normalised(weights))
    each = shares[:-1] @ places[0, :, :BINS] + shares[-1] * anywhere[0, 0, :BINS]
    size = each @ each
    of_signs, of_octaves = 4.0 * noise**2, (noise**2 + n) / size
    believed = of_signs / (of_signs + of_octaves)
    count = signs + believed * (each @ found[:BINS] / size - signs)
    return _present(count, math.sqrt(believed * of_octaves), m), unit, window


def _sure(sizes, log_weights):
    """Which sizes are near the likeliest one, if it is one of these, else none; the last weight is
    that of no size."""
    octaves = np.log2(sizes)
    near = np.abs(octaves - octaves[np.argmax(log_weights[:-1])]) <= _NEAR
    others = log_sum_of(log_weights[np.append(~near, True)])
    return near & (log_sum_of(log_weights[:-1][near]) - others > _SURE)


def _moments(adds, bins=None):
    """Mean and mean square, (2, K, C), of what tasks in these bins (K, Q) add, or in any bin."""
    bins = np.arange(len(adds))[None] if bins is None else bins
    return np.stack([powers[bins].mean(axis=1) for powers in (adds, adds**2)])


def _gains(cells, noise, n, moments, rest, without, shares):
    """Log likelihoods of sums in cells (C,), where a share of n tasks has these `_moments` and the
    others have those of `rest`, over those of `without`, which are as likely.

    -> (number of shares, K)
    """

    def log_likelihood(mean, square):
        spread = noise**2 + n * square + _LEAST
        return -0.5 * np.sum((cells - n * mean) ** 2 / spread + np.log(spread), axis=-1)

    logs = [log_likelihood(*(rest + share * (moments - rest))) for share in shares]
    return np.stack(logs) - _mean([log_likelihood(*of) for of in without])


def _mean(logs):
    """Log of the mean over rows, which are equally likely."""
    return np.logaddexp.reduce(logs) - math.log(len(logs))


def _range(points, log_weights):
    """Middle and half of a range that nine tasks in ten are in, and somewhat more."""
    order = np.argsort(points, axis=None)
    weights = np.repeat(np.exp(log_weights - log_weights.max()), points.shape[1])
    total = np.cumsum(weights[order])
    low, high = points.ravel()[order][np.searchsorted(total, _ENDS * total[-1])]
    return float(0.5 * (low + high)), float(0.5 * _WIDER * (high - low))


def _present(count, noise, m):
    """Number of tasks with rows, from a count with noise: most public lists are of such tasks, so
    that it is all of them unless the release says otherwise."""
    if noise and count > m - _ALL * noise:
        return float(m)
    return min(max(count, 2.0 * noise, 1.0), float(m))


def read_rates(found, noise, m):
    """From the cells of `queries.Rates` to what they say.

    -> tasks with rows, never above m; events of a task, by how many tasks have none, as far as its
    noise says; window of logarithms of rates, as of `read_zoom`
    """
    root = math.sqrt(len(found) - BINS)
    cells, of_cell = found[BINS:] / SIGN * root, noise / SIGN * root
    n_present = _present(cells.sum(), of_cell * root, m)
    least = min(max(of_cell, 1.0) / n_present, 0.5)  # of tasks that have events, or none
    events = -math.log1p(-min(max(cells[-1] / n_present, least), 1.0 - least))
    window = read_zoom(found[:BINS], noise, _OCTAVES, n_present, (0.0, 0.0, 0.5, 1.0))
    if window is not None:
        window = tuple(math.log(2.0) * value for value in window)
    return n_present, events, window


def read_base(found, noise, question, m, n=None, known=None):
    """From the numbers of `queries.Base` to what they say.

    Of later questions, with what is `known`: tasks with rows, and shares of the classes in a task
    with their precisions (2, C), as measured so far.
    -> tasks with rows, never above m, and `known` after this answer
    """
    count, of_count = found[-1] / COUNTED, noise / COUNTED
    if n is None:
        n, of_count = _present(count, of_count, m), 0.0
        count = n
    count = min(max(count, 2.0 * of_count), n)
    shares = question.most * found[:-1] / count
    doubts = np.hypot(question.most * noise, shares * of_count) / count
    shares = np.insert(shares, question.left_out, 1.0 - shares.sum())
    doubts = np.insert(doubts, question.left_out, math.hypot(*doubts))
    precision = 1.0 / np.maximum(doubts, _SHARE_DOUBT) ** 2
    if known is not None:
        before, sure = known
        shares = (sure * before + precision * shares) / (sure + precision)
        precision = sure + precision
    return n, (shares, precision)


def shares_of_classes(known):
    """Posterior means of shares, given the noise of what is known of them, under the prior of
    Jeffreys, their standard deviations, and the root mean square of those of their log-odds.

    -> (C,), (C,), float
    """
    shares, precision = known
    logits = np.linspace(-LOGITS, LOGITS, 2001)
    p = expit(logits)
    odds = 0.5 * (np.log(p) + (len(shares) - 1.0) * np.log1p(-p))
    odds = odds - 0.5 * (p - shares[:, None]) ** 2 * precision[:, None]
    weight = np.exp(odds - odds.max(axis=1, keepdims=True))
    weight /= weight.sum(axis=1)[:, None]
    found, about = weight @ p, weight @ logits
    variance = np.sum(weight * (p - found[:, None]) ** 2, axis=1)
    doubt = np.sum(weight * (logits - about[:, None]) ** 2, axis=1)
    return found / found.sum(), np.sqrt(variance), math.sqrt(doubt.mean())


@cache
def _in_bins(n, clipped):
    """As `_places` and `_of_places`, of n bins of width one from 0; all are as likely."""
    middle = np.arange(0.25, n, 0.5)[:, None]
    laws = [middle + spread * _NORMAL for spread in 2.0 ** np.arange(-2, math.log2(max(n, 2)) - 1)]
    points = np.concatenate([np.arange(n)[:, None] + _EVENLY, *laws])
    adds, bins = np.eye(n, n + 1).T @ bumps(n, clipped).T, np.floor(points).astype(int)
    bins = np.where((bins >= 0) & (bins < n), bins, n)  # the last is for what is in none of them
    return points, _moments(adds, bins), _moments(adds[:n])


def read_zoom(found, noise, zoom, n_present, shares=_OF_ZOOM):
    """Middle and half of the range of most tasks; None where no place in it is sure, or tasks may
    as well have the first half of these `shares` there as the second."""
    points, places, anywhere = _in_bins(len(found), noise > 0)
    logs = _gains(found, noise, n_present, places, anywhere, [anywhere], shares)
    few, most = (_mean(some) for some in np.split(logs, 2))
    if log_sum_of(most) < max(_SURE + math.log(len(most)), log_sum_of(few)):
        return None
    middle, half = _range(points, most)
    return zoom.middle - zoom.half + middle * zoom.width, half * zoom.width
