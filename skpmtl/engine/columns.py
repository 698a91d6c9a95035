"""Scales of columns that differ by orders of magnitude, from what tasks say of them.

Priors of models, and the rounds of the pooled model, know one scale of all columns. Whether that
will do is one vote: a task says yes or no (+-1/2, sensitivity 1, zero-out 1/2) by the variance of
the octaves of its own columns, less what chance makes of so few rows. Where most say that columns
differ, every task sends the octave of each of its d columns, d histograms in one: sensitivity
sqrt(2 d) (zero-out sqrt(d)). Columns are then divided by powers of 2 in all that follows, and
models are published and handed out in the units that they came in.
"""

import math

import numpy as np
from scipy.special import ndtr, polygamma

from .levels import OCTAVES, octave_of

_APART = 2.0  # std of the octaves of a task's columns, from which they differ
_SIZES, _LEAST = 12.0, 0.02  # spread of the public prior of octaves; noise at least, of the tasks
_WIDTH = 0.6  # std of the octaves of tasks about that of their column
_CLEAR = 0.5  # posterior weight of three octaves that are found
# Standard deviations above the largest of noise alone: more than _NEAR octaves below the median
# column, and elsewhere. Where few tasks have a column, a scale that is too small leaves its
# coefficients to noise, and one that is too large makes them 0.
_ABOVE, _NEAR = (1.0, -0.5), 6.0


def votes_on_columns(levels):
    """Whether columns differ, by the rows of each task, (n_tasks, 1): 1/2, -1/2 or 0."""
    variances = levels.column_variances()
    varies, n = np.isfinite(variances), np.maximum(levels.n - 1.0, 1e-9)
    octaves = 0.5 * np.log2(np.where(varies, variances, 1.0))
    count = varies.sum(axis=1)
    mean = np.where(varies, octaves, 0.0).sum(axis=1) / np.maximum(count, 1)
    squares = np.where(varies, (octaves - mean[:, None]) ** 2, 0.0).sum(axis=1)
    chance = polygamma(1, 0.5 * n) / (2.0 * np.log(2.0)) ** 2
    differ = squares / np.maximum(count - 1, 1) - chance > _APART**2
    return np.where((count > 1) & (levels.n > 1.0), np.where(differ, 0.5, -0.5), 0.0)[:, None]


def octaves_of_columns(levels):
    """Octaves of the std of a task's columns, or of those of one value of its size, (n_tasks, d).

    Zero columns, and single rows, have none: NaN.
    """
    std = np.sqrt(levels.column_variances())
    std = np.where(np.isfinite(std), std, np.abs(levels.rows))
    return np.where((std > 0) & (levels.n > 1.0)[:, None], octave_of(std), np.nan)


def sum_of_columns(contributions, positions=None):
    """Tasks in every octave of each column, (d * 80,); a number that is not finite is in none.

    A task fills d bins at most: sensitivity sqrt(2 d) for replace-one, sqrt(d) for zero-out.
    """
    scales = np.abs(np.asarray(contributions["octaves"], dtype=float))
    n, d = scales.shape
    known = np.isfinite(scales)
    octave = np.log2(np.abs(octave_of(np.where(known, scales, 1.0))))
    bins = np.rint(octave).astype(int) + OCTAVES // 2 + OCTAVES * np.arange(d)
    return {"octaves": np.bincount(bins[known], minlength=d * OCTAVES).astype(float)}


def scales_of(counts, std, n_tasks):
    """Scales of the columns from a noisy `sum_of_columns`, (d,) powers of 2; None: none is clear.

    Octaves of the tasks of a column are taken to be normal about its own, with a public prior as
    that of windows; the posterior mean is taken. It is clear where three octaves hold most of the
    posterior, and the histogram there stands out of d histograms of noise alone: few tasks may have
    the column, and noise is then somewhere in 80 octaves. Columns for which none is clear have the
    median of the others.
    """
    h, octaves = counts.reshape(-1, OCTAVES) / n_tasks, np.arange(-38.0, 38.01, 0.5)
    edges = np.arange(OCTAVES + 1) - OCTAVES // 2
    shares = np.diff(ndtr((edges - octaves[:, None]) / _WIDTH), axis=1)
    logs = h @ shares.T - 0.5 * (shares**2).sum(axis=1)
    logs = logs / max(std / n_tasks, _LEAST) ** 2 - 0.5 * (octaves / _SIZES) ** 2
    p = np.exp(logs - logs.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    octave = p @ octaves
    clear = np.where(np.abs(octaves - octave[:, None]) <= 1.5, p, 0.0).sum(axis=1) > _CLEAR
    if clear.any():
        height = (h @ (shares / np.linalg.norm(shares, axis=1, keepdims=True)).T).max(axis=1)
        height -= math.sqrt(2.0 * math.log(counts.size)) * std / n_tasks
        sure = clear & (height >= min(_ABOVE[0] * std / n_tasks, height[clear].max()))
        small = octave < np.median(octave[sure]) - _NEAR
        clear &= height > np.where(small, *_ABOVE) * std / n_tasks
    if not clear.any():
        return None
    # Between the half octaves of the grid, which rounding must not decide about.
    return 2.0 ** np.floor(np.where(clear, octave, np.median(octave[clear])) + 0.25)


def unscaled(moments, scale):
    """`Moments` of (w, b) in the units of the table, from those of its scaled columns."""
    if scale is None:
        return moments
    by = np.append(1.0 / scale, 1.0)
    return moments._replace(
        mean=moments.mean * by,
        unit=moments.unit * by[:, None] * by,
        between=moments.between * by[:, None] * by,
    )
