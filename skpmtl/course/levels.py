"""From released histograms to the place of levels and the unit of y.

A place is taken only where it clears its noise; no place is a result as well.
"""

import math

import numpy as np

from .queries import BINS, OCTAVE, SIGN, Zoom

_CLEAR = 3.5  # standard deviations of noise that the largest of 80 bins of noise is rarely above
_CLEAR_PLACE = 3.8  # the same of some 300 windows: a place that is none is worse than none
_ALL = 1.5  # standard deviations of noise below the public number of tasks
_HALF = 0.5  # part of the tasks that a place must hold, so that there are no two of them
_NEAR = (
    8  # octaves about the unit with the spreads of a table, and below the end of a window about 0
)
_AGREED = 0.8  # part of the tasks whose means have one sign, for a window that excludes 0
_SPARE = 0.15  # part of the tasks that a narrower window may lose
FINER = 32  # bins of a zoom
_LOGITS, _LOGIT_SPREAD = 5.0, 2.0  # range and prior of the log-odds of a mean share of a class
_SHARE_DOUBT = 0.01  # least error of a mean share, as a guess of the level of scores
_ZOOM_CLEAR = 1.0  # standard deviations beyond the largest of the noise


_OCTAVES = Zoom(0.0, float(OCTAVE), 1.0)  # of rates, in logarithms to the base 2


def read_place(found, noise, m):
    """From the cells of `queries.Place` to what they say.

    Returns
    -------
    n_present : float
        Tasks with rows, never above m.
    unit : float or None
    window : (middle, half) or None
    """
    means, spreads, signs = found[:BINS], found[BINS : 2 * BINS], found[2 * BINS :] / SIGN
    n_present = _present(signs.sum(), 2.0 * noise, m)
    lead, lead_noise = signs[0] - signs[1], 2.0 * noise
    near = np.convolve(spreads, np.ones(3))[1:-1]
    top = int(np.argmax(near))
    around = spreads[max(top - _NEAR, 0) : top + _NEAR + 1].sum()
    # Units about the size of means are likelier than others: odds of e for every _NEAR octaves.
    away = abs(top - int(np.argmax(means))) / _NEAR
    least = math.sqrt(3.0 * (_CLEAR**2 + 2.0 * away)) * noise
    clear = near.max() > max(_HALF * around, least, 0.0)
    unit = 2.0 ** (top - OCTAVE) if clear else None
    agreed = abs(lead) > max(_AGREED * n_present - lead_noise, 2.0 * lead_noise)
    windows, below = [], []
    for last in range(2, BINS):
        for octaves in (1, 2, 3):
            count = means[last - octaves + 1 : last + 1].sum()
            low, high = 2.0 ** (last - octaves - OCTAVE + 1), 2.0 ** (last - OCTAVE + 1)
            if agreed:
                middle = math.copysign(0.5 * (low + high), lead)
                windows.append((middle, 0.75 * (high - low), count, octaves))
            if octaves == 3:
                windows.append((0.0, 1.5 * high, count, octaves))
        octaves = min(_NEAR, last + 1)
        below.append((0.0, 1.5 * high, means[last - octaves + 1 : last + 1].sum(), octaves))
    for some in windows, below:
        good = [
            (middle, half, count - noise * math.sqrt(k), count / math.sqrt(k))
            for middle, half, count, k in some
            if count >= max(_CLEAR_PLACE * noise * math.sqrt(k), _HALF * n_present)
            and (unit is None or half >= 0.5 * unit)
        ]
        if good:
            break
    if not good:
        return n_present, unit, None
    # Windows about the one that is clearest above its noise; among them the narrowest of the full.
    middle, half, *_ = max(good, key=lambda w: w[3])
    good = [w for w in good if abs(w[0] - middle) < w[1] + half]
    most = max(count for _, _, count, _ in good) - _SPARE * n_present
    middle, half, *_ = min((w for w in good if w[2] >= most), key=lambda w: w[1])
    return n_present, unit, (middle, half)


def _present(count, noise, m):
    """Number of tasks with rows, from a count with noise: most public lists are of such tasks, so
    that it is all of them unless the release says otherwise."""
    if noise and count > m - _ALL * noise:
        return float(m)
    return min(max(count, 2.0 * noise, 1.0), float(m))


def read_rates(found, noise, m):
    """From the cells of `queries.Rates` to what they say.

    Returns
    -------
    n_present : float
        Tasks with rows, never above m.
    unit : float
        1, that of scores.
    window : (middle, half) or None
        Of logarithms of rates: the shortest run of octaves that holds half of the tasks.
    """
    n_present = _present(found[BINS] / SIGN, noise / SIGN, m)
    window = read_zoom(found[:BINS], noise, _OCTAVES, n_present)
    if window is None:
        return n_present, 1.0, None
    return n_present, 1.0, tuple(math.log(2.0) * value for value in window)


def read_base(found, noise, m):
    """From the cells of `queries.Base` to what they say.

    Returns
    -------
    n_present : float
        Tasks with rows, never above m.
    levels : float, or ndarray (n_classes,) of three or more
        Scores of the mean shares: posterior means of their log-odds given the noise.
    """
    C = len(found)
    n_present = _present(found.sum(), noise * math.sqrt(C), m)
    shares = found / n_present
    doubt = max(noise / n_present, _SHARE_DOUBT)
    logits = np.linspace(-_LOGITS, _LOGITS, 201)
    p = 1.0 / (1.0 + np.exp(-logits))
    odds = -0.5 * ((logits + math.log(C - 1.0)) / _LOGIT_SPREAD) ** 2
    odds = odds - 0.5 * ((p - shares[:, None]) / doubt) ** 2
    weight = np.exp(odds - odds.max(axis=1, keepdims=True))
    found = (weight @ logits) / weight.sum(axis=1)
    if C == 2:
        return n_present, 0.5 * (found[1] - found[0])
    scores = -np.logaddexp(0.0, -found)
    return n_present, scores - scores.mean()


def read_zoom(found, noise, zoom, n_present):
    """The shortest run of bins that holds half of the tasks. -> (middle, length in bins) or None"""
    total = np.concatenate([[0.0], np.cumsum(found)])
    for run in range(1, min(FINER, len(found)) + 1):
        inside = total[run:] - total[:-run]
        place = int(np.argmax(inside))
        largest = math.sqrt(2.0 * math.log(len(inside))) + _ZOOM_CLEAR
        if inside[place] > max(_HALF * n_present, largest * noise * math.sqrt(run)):
            return zoom.middle - zoom.half + (place + 0.5 * run) * zoom.width, run
    return None
