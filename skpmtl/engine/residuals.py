"""How far targets are from the mean model: what tasks without rows may expect.

Every task sends the shares of its rows by octaves of |y - x'w - b|, a vector of sum 1 (sensitivity
1, replace-one sqrt(2)), so that all tasks count the same. With the noisy sums h, of noise sigma,

    |y - x'w - b| = 2^theta |Z|^(1 + t),    h_j ~ N(m F_j, sigma^2 + m F_j / 2),

Z standard normal and F_j(theta, t) the probabilities of the octaves, theta has the public prior
N(log2(width / 5), 1), of the width of the range or window of targets, and t N(0, .15^2). Quantiles
are those of the mean over the posterior: one release serves all levels.
"""

import warnings
from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np
from scipy.special import ndtr

from .._runtime.compat import Interval
from .._runtime.public import Public
from .._runtime.stack import users_line
from ..privacy.mechanisms import std_of
from ..tables.table import common_scores

BINS = np.arange(-40, 41)  # octaves
SHARE = 0.05  # of mu^2
WORDS = "sum of shares of rows, by octaves of the distance from the mean model"
_NOISY = 0.125  # std of the noise of a count over the tasks, from which it is of no use
_WIDTHS = 5.0  # in a range: its fifth is the scale of a residual
_OCTAVES, _TAILS = np.arange(-6.0, 6.01, 0.1), np.arange(-0.2, 0.61, 0.05)
_SPREAD_OF_TAILS = 0.15
_LEAST = 1e-4  # weight over the largest, from which a pair counts


@dataclass(eq=False)
class Residuals(Public):
    """What was released of distances from the mean model."""

    counts: np.ndarray  # (81,), noisy sums of the shares in octaves 2^-40 to 2^40
    noise_std: float  # of one of them
    n_tasks: int
    width: float  # public width of the range, or the window, of targets

    constraints = {
        "noise_std": [Interval(Real, 0, None, closed="left")],
        "n_tasks": [Interval(Integral, 1, None, closed="left")],
        "width": [Interval(Real, 0, None, closed="neither")],
    }

    def declared(self):
        """See `skpmtl.exchange.wire`."""
        yield "sums of distances from the mean model", self.counts, [BINS.shape]

    def quantile(self, coverage):
        """Distance within which a target is with this probability."""
        first = np.log2(self.width / _WIDTHS)
        ends = 2.0 ** (BINS[:-1] + 0.5)
        theta, tail = np.meshgrid(first + _OCTAVES, _TAILS, indexing="ij")
        inside = _within(ends, theta, tail)
        ones = np.ones((*theta.shape, 1))
        expected = self.n_tasks * np.diff(np.concatenate([0.0 * ones, inside, ones], axis=2))
        variance = self.noise_std**2 + np.maximum(0.5 * expected, 0.5)
        logs = -0.5 * ((self.counts - expected) ** 2 / variance + np.log(variance)).sum(axis=2)
        logs -= 0.5 * (theta - first) ** 2 + 0.5 * (tail / _SPREAD_OF_TAILS) ** 2
        p = np.exp(logs - logs.max())
        some = p > _LEAST
        p = p[some] / p[some].sum()
        grid = 2.0 ** np.arange(first - 12.0, first + 12.0, 0.02)
        return float(np.interp(coverage, p @ _within(grid, theta[some], tail[some]), grid))


def _within(distances, theta, tail):
    """Probabilities that |y - x'w - b| is at most each of these distances, on a last axis."""
    ratio = distances / 2.0 ** theta[..., None]
    return 2.0 * ndtr(ratio ** (1.0 / (1.0 + tail[..., None]))) - 1.0


def released_residuals(counts, mechanism, n_tasks, width):
    """`Residuals` of these noisy sums, with a warning where they are of little use."""
    std = std_of(mechanism)
    if std > _NOISY * n_tasks:
        warnings.warn(
            f"Intervals of tasks without rows rest on counts of {n_tasks} tasks whose noise has "
            f"a standard deviation of {std:.3g}: they say little. Take a larger epsilon, or "
            "uncertainty=True.",
            stacklevel=users_line(),
        )
    return Residuals(counts, std, n_tasks, width)


def shares_of(table, W, b):
    """`shares` of the tasks of a table, around models W (1 or n_tasks, d) and intercepts b."""
    score = common_scores(table, W if len(W) == 1 else W[:, None])[:, 0]
    distances = np.abs(table.y - score - (b if len(b) == 1 else b[table.codes]))
    weights = table.counts / np.repeat(table.support, table.sizes)
    return shares(distances, table.codes, weights, table.n_tasks)


def shares(distances, codes, weights, n_tasks):
    """What tasks send, (n_tasks, 81), of the distances of rows that belong to tasks `codes`.

    `weights` of rows sum to 1 in every task.
    """
    with np.errstate(all="ignore"):
        octave = np.rint(np.log2(np.maximum(distances, 2.0 ** BINS[0])))
    octave = np.clip(np.nan_to_num(octave, nan=0.0), BINS[0], BINS[-1]).astype(int) - BINS[0]
    sent = np.bincount(codes * len(BINS) + octave, weights, n_tasks * len(BINS))
    return sent.reshape(n_tasks, -1)


def sum_of_shares(contributions, positions=None):
    """``combine`` of shares of sum 1, and so of norm 1 at most, which it bounds again.

    Non-negative vectors u, v of such lengths have ||u - v||^2 = ||u||^2 + ||v||^2 - 2 u'v <= 2.
    """
    sent = np.nan_to_num(np.asarray(contributions["residuals"], dtype=float), nan=0.0)
    sent = np.clip(sent, 0.0, 1.0)
    sent /= np.maximum(sent.sum(axis=1, keepdims=True), 1.0)
    return {"residuals": sent.sum(axis=0)}
