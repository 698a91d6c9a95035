"""From released histograms to the place of levels and the unit of y.

A place is taken only where it clears its noise; no place is a result as well.
"""

import math

import numpy as np

from .queries import BINS, OCTAVE, SIGN

_CLEAR_UNIT, _CLEAR_PLACE = 3.7, 3.5  # standard deviations of noise over 80 bins, by Bonferroni
_MOST_UNIT = 0.45  # part of the tasks nearby that three octaves of spreads must hold
_NEAR = 8  # octaves around the unit in which spreads of a table are looked for
_AGREED = 0.8  # part of the tasks whose means have one sign, for a window that excludes 0
_SPARE = 0.15  # part of the tasks that a narrower window may lose
_FINER = 32  # bins of a zoom in one of the step before
_RUN = 4  # bins of the run that half of the tasks are expected in
_ZOOM_CLEAR = 1.0  # standard deviations beyond the largest of the noise


def read_place(found, noise, m):
    """From the cells of `queries.Place` to what they say.

    Returns
    -------
    n_present : float
        Tasks with rows, never above m.
    repeats : float in [.1, 1]
        Part of them whose rows have a spread.
    unit : float or None
    window : (middle, half) or None
    """
    means, spreads, signs = found[:BINS], found[BINS : 2 * BINS], found[2 * BINS :] / SIGN
    n_present = min(m, max(signs.sum() + 2.0 * noise, 1.0))
    lead, lead_noise = signs[0] - signs[1], 2.0 * noise
    near = np.convolve(spreads, np.ones(3))[1:-1]
    top = int(np.argmax(near))
    around = spreads[max(top - _NEAR, 0) : top + _NEAR + 1].sum()
    repeats = min(max(around / n_present, 0.1), 1.0)
    clear = near.max() > max(_MOST_UNIT * around, _CLEAR_UNIT * math.sqrt(3.0) * noise, 0.0)
    unit = 2.0 ** (top - OCTAVE) if clear else None
    agreed = abs(lead) > max(_AGREED * n_present - lead_noise, 2.0 * lead_noise)
    windows = []
    for last in range(2, BINS):
        for octaves in (1, 2, 3):
            count = means[last - octaves + 1 : last + 1].sum()
            low, high = 2.0 ** (last - octaves - OCTAVE + 1), 2.0 ** (last - OCTAVE + 1)
            if agreed:
                middle = math.copysign(0.5 * (low + high), lead)
                windows.append((middle, 0.75 * (high - low), count, octaves))
            if octaves == 3:
                windows.append((0.0, 1.5 * high, count, octaves))
    good = [
        (middle, half, count - noise * math.sqrt(k))
        for middle, half, count, k in windows
        if count >= max(_CLEAR_PLACE * noise * math.sqrt(k), 0.5 * n_present)
        and (unit is None or half >= 0.5 * unit)
    ]
    if not good:
        return n_present, repeats, unit, None
    most = max(count for *_, count in good) - _SPARE * n_present
    middle, half, _ = min((w for w in good if w[2] >= most), key=lambda w: w[1])
    return n_present, repeats, unit, (middle, half)


def widths_of_zoom(half, unit, noise_of, n_present):
    """Widths of bins, 32 times finer at every step, down to the unit of y.

    `noise_of(n)` is the noise of a release with n widths: as many as half of the tasks clear.
    """
    widths = []
    for step in (1, 2, 3):
        before = 2.0 * half / _FINER ** (step - 1)
        if step == 1 or unit is None or before > 2.0 * unit:
            widths.append(max(before / _FINER, unit or 0.0))
    while len(widths) > 1:
        bins = math.sqrt(2.0 * math.log(_FINER ** len(widths))) + _ZOOM_CLEAR
        if noise_of(len(widths)) * bins * math.sqrt(_RUN) <= 0.5 * n_present:
            break
        widths.pop()
    return widths


def read_zoom(found, noise, zoom, n_present):
    """The shortest run of bins that holds half of the tasks, width by width. -> window or None"""
    window, low, high = None, zoom.middle - zoom.half, zoom.middle + zoom.half
    start = zoom.middle - zoom.half
    for first, last, width in zip(zoom.ends[:-1], zoom.ends[1:], zoom.widths, strict=True):
        begin = max(int((low - start) / width) - 1, 0)
        counts = found[first:last][begin : math.ceil((high - start) / width) + 1]
        total = np.concatenate([[0.0], np.cumsum(counts)])
        n_bins = len(counts)
        for run in range(1, min(_FINER, n_bins) + 1):
            inside = total[run:] - total[:-run]
            place = int(np.argmax(inside))
            largest = math.sqrt(2.0 * math.log(max(len(inside), 1))) + _ZOOM_CLEAR
            if inside[place] > max(0.5 * n_present, largest * noise * math.sqrt(run)):
                break
        else:
            return window
        low = start + (begin + place) * width
        high = low + run * width
        window = 0.5 * (low + high), min(high - low, zoom.half)
    return window
