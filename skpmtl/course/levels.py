"""From released histograms to the place of levels and the unit of y.

A place is taken only where it clears its noise; no place is a result as well.
"""

import math
from functools import cache

import numpy as np
from scipy.special import expit, ndtr

from ..task.posterior import log_sum
from ..task.priors import log_sum_of, normalised
from .billboard import OCTAVE
from .queries import BINS, COUNTED, SIGN, Zoom, bumps

# Log odds of a place over none: a wrong one is worse than none. With log 5 one of 38 random tables
# with absent tasks (420110, epsilon 5, 10 of 18) had 24 times the error of the best reference,
# the worst of 30 draws 400; with log 20 1.7 and 15.
_SURE = math.log(20.0)
# Octaves about the likeliest size of levels, or unit, that a place is sure to be in. Without it the
# worst of 64 fits (eight random tables, eight seeds) was 5e13 times the best reference, with it 17;
# with 4 one of 14 others was 1.25 times as bad at 3, and with 1 none was.
_NEAR = 2.0
# Parts of tasks in octaves and of either sign, where there is no place.
_EVEN, _HALVES = np.full(BINS, 1.0 / BINS), np.full(2, 0.5)
# Of levels, in parts of their middle. With 1 alone errors of 144 random tables were .995 and .988
# times as large at 1 and 3, the worst 1.15, but 1.05 where narrow levels are beside a power of two
# (seed 450910, epsilon 3, ten draws).
_SPREADS = 0.125, 0.25, 0.5, 1.0
_IN_CELL = (np.arange(8.0) + 0.5) / 8.0  # where levels are that are all next to each other
# Of the tasks, that have the place; with fewer there may be two of them. With 1 alone, or without
# the second, one of 69 random tables was 2.1 times as bad at 3, and all 1.008.
_PARTS = 0.5, 0.75, 1.0
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
_POINTS = np.array([-1.8, -1.07, -0.57, -0.18, 0.18, 0.57, 1.07, 1.8])  # normal, equally likely
_ENDS, _WIDER = np.array([0.05, 0.95]), 1.25  # quantiles, and a window over the range between them
_ALL = 1.5  # standard deviations of noise below the public number of tasks
FINER = 32  # bins of a zoom
# Of the tasks, in a narrower window: rounded levels are in several places. Errors on such a table
# (seed 9454, six draws) over the best reference: 1.11 and 1.09 at 3 and 10, without it 1.59, 1.36.
LEAST_PART = 0.5
LOGITS = 7.0  # half-width of the window of levels of classes
_SHARE_DOUBT = 0.001  # least error of a mean share, as a guess of the level of scores


_OCTAVES = Zoom(0.0, float(OCTAVE), 1.0)  # of rates, in logarithms to the base 2


@cache
def _places():
    """Places that levels may have: anywhere in one octave, normal about 0, or about half octaves,
    on one side or on both.

    -> points (K, 8) of their quantiles, parts of tasks in every octave (K / 3, BINS), the same on
    every side, and of either sign (K, 2), and log weights (K,) before any release, where normal
    about 0, and the three sides of the others, are as likely
    """
    sizes = 2.0 ** np.arange(0.25 - OCTAVE, OCTAVE, 0.5)
    middle = np.append(np.zeros(len(sizes)), np.tile(sizes, len(_SPREADS)))
    spread = np.append(sizes, np.outer(_SPREADS, sizes))
    ends = 2.0 ** np.arange(1 - OCTAVE, OCTAVE)
    near = [ndtr((end - middle) / spread) - ndtr((-end - middle) / spread) for end in ends]
    octaves = np.diff([np.zeros(len(middle)), *near, np.ones(len(middle))], axis=0).T
    positive, points = ndtr(middle / spread), middle[:, None] + spread[:, None] * _POINTS
    each = 1.0 / (len(_SPREADS) + 1.0)
    weight = np.where(middle > 0, each, 1.0 / 3.0) / (4.0 * len(sizes))
    cells = np.append(0.5 * ends[0], ends)[:, None] * (1.0 + _IN_CELL)
    points, octaves = np.concatenate([cells, points]), np.concatenate([np.eye(BINS), octaves])
    positive = np.append(np.ones(BINS), positive)
    weight = np.append(np.full(BINS, 2.0 * weight[-1]), weight)  # half octaves are two a bin
    half = np.full(len(weight), 0.5)
    sides = (positive, points), (1.0 - positive, -points), (half, np.c_[points, -points][:, ::2])
    return (
        np.concatenate([points for _, points in sides]),
        octaves,
        np.concatenate([np.c_[signs, 1.0 - signs] for signs, _ in sides]),
        np.tile(np.log(weight), len(sides)),
    )


@cache
def _units():
    """Parts of tasks in octaves of spreads about every unit, (K, BINS); spreads are log-normal."""
    ends = np.concatenate([[-np.inf], np.arange(1 - OCTAVE, OCTAVE), [np.inf]])
    return np.diff(ndtr((ends - 0.5 - np.log2(_UNITS)[:, None]) / _UNIT_WIDTH), axis=1)


@cache
def _together():
    """Log weights before any release of a place and a unit, (K, U): levels are of the size of the
    spread of rows or larger."""
    points, *_, before = _places()
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
    means, spreads, signs = found[:BINS], found[BINS : 2 * BINS], found[2 * BINS :] / SIGN
    n = _present(signs.sum(), 2.0 * noise, m)
    points, octaves, sides, before = _places()
    repeats, bins = len(sides) // len(octaves), bumps(BINS, noise > 0)
    of_octaves = _gains(means, noise, n, _EVEN, [_EVEN], octaves, _PARTS, bins)
    of_signs = _gains(signs, noise / SIGN, n, _HALVES, [_HALVES], sides, _PARTS, np.eye(2))
    of_places = before + _mean(np.tile(of_octaves, repeats) + of_signs)
    none = np.zeros(BINS)
    of_units = _mean(_gains(spreads, noise, n, none, [none, _EVEN], _units(), _REPEATS, bins))
    both = _together() + of_places[:, None] - before[:, None] + of_units
    of_units = of_units - math.log(len(of_units))
    every = np.block([[both, of_places[:, None]], [of_units, 0.0]])  # none of them is the last
    unit = window = None
    weights = log_sum(every.T)
    near = _near(np.log2(_UNITS), weights)
    if _is_sure(weights, near):
        unit = float(_UNITS[near][np.argmax(weights[:-1][near])])
    weights = log_sum(every)
    near = _near(np.log2(np.abs(points).max(axis=1)), weights)
    if _is_sure(weights, near):
        middle, half = _range(points[near], weights[:-1][near])
        window = middle, max(half, 0.5 * (unit or 0.0))
    # Where levels are known to be, their octaves say how many tasks there are as well as the signs,
    # but for what chance adds to those of n tasks.
    shares = np.exp(normalised(weights))
    each = bins @ (shares[:-1] @ np.tile(octaves, (repeats, 1)) + shares[-1] * _EVEN)
    size = each @ each
    of_signs, of_octaves = 4.0 * noise**2, (noise**2 + n) / size
    believed = of_signs / (of_signs + of_octaves)
    count = signs.sum() + believed * (each @ means / size - signs.sum())
    return _present(count, math.sqrt(believed * of_octaves), m), unit, window


def _near(octaves, log_weights):
    """Which sizes are near the likeliest one; the last weight is that of none."""
    return np.abs(octaves - octaves[np.argmax(log_weights[:-1])]) <= _NEAR


def _is_sure(log_weights, near):
    others = log_weights[np.append(~near, True)]
    return log_sum_of(log_weights[:-1][near]) - log_sum_of(others) > _SURE


def _gains(cells, noise, n, rest, without, parts, shares, bins):
    """Log likelihoods of sums in cells where a share of n tasks is in `parts` and the others in
    `rest`, (C,), over those of `without`, which are as likely. Parts are (K, C), and those of a
    task in one bin add what its column of `bins` has.

    -> (number of shares, K)
    """

    def log_likelihood(mean, square):
        spread = noise**2 + n * square + _LEAST
        return -0.5 * np.sum((cells - n * mean) ** 2 / spread + np.log(spread), axis=-1)

    def moments(parts):
        return np.stack([np.atleast_2d(parts) @ power.T for power in (bins, bins**2)])

    rest, parts = moments(rest), moments(parts)
    logs = [log_likelihood(*(rest + share * (parts - rest))) for share in shares]
    return np.stack(logs) - _mean([log_likelihood(*moments(parts)) for parts in without])


def _mean(logs):
    """Log of the mean of what is as likely, row by row."""
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
    window = read_zoom(found[:BINS], noise, _OCTAVES, n_present, least=0.0)
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
def _places_in_bins(n):
    """As `_places`, of n bins of width one from 0."""
    spreads = 2.0 ** np.arange(-2, math.log2(max(n, 2)) - 1)
    middle = np.tile(np.arange(0.25, n, 0.5), len(spreads))
    spread = np.repeat(spreads, 2 * n)
    parts = np.diff(ndtr((np.arange(n + 1) - middle[:, None]) / spread[:, None]), axis=1)
    points = np.concatenate(
        [np.arange(n)[:, None] + _IN_CELL, middle[:, None] + spread[:, None] * _POINTS]
    )
    before = np.full(len(points), -math.log(len(points)))
    return points, np.concatenate([np.eye(n), parts]), before


def read_zoom(found, noise, zoom, n_present, least=LEAST_PART):
    """Middle and half of the range of most tasks, or None where no place in it is sure, or has less
    than this part of them."""
    n, even = len(found), np.full(len(found), 1.0 / len(found))
    points, parts, before = _places_in_bins(n)
    bins = bumps(n, noise > 0)
    logs = before + _mean(_gains(found, noise, n_present, even, [even], parts, _PARTS, bins))
    if log_sum_of(logs) < _SURE:
        return None
    middle, half = _range(points, logs)
    low, high = (max(round(end), 0) for end in (middle - half, middle + half))
    inside = bins[:, low:high].mean(axis=1)
    if found @ inside < least * n_present * (inside @ inside):
        return None
    return zoom.middle - zoom.half + middle * zoom.width, half * zoom.width
