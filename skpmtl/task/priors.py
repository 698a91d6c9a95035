"""Public priors of a task's scales, and the components that its slopes may follow.

All scales are in units of the released unit of the target and of the released scales of columns.
Every prior is a list of log weights on a fixed grid, so that it is proper everywhere.
"""

import math
from dataclasses import dataclass, field, replace

import numpy as np

# Variance of slopes over the shape, from 2^-14 (nothing that a task of 100 rows could see) to 2^6
# (slopes that explain 64 times the unit's variance).
KAPPA = 4.0 ** np.arange(-7, 4)
# Standard deviation of the noise in units: from rounding errors to outlying rows, which a grid
# that ends at 2 would take for outlying levels.
SIGMA = 2.0 ** np.arange(-7, 8)
TAU_FLOOR = -7  # log2 of the least spread of levels, in units: below that of a mean of 10^4 rows
ODD_LEVEL = 10  # log2 of the spread of levels that are outliers, in units
FREE = 2.0**20  # spread of levels, in units, where no place was found: a level is then the task's
_KAPPA_CENTRE, _KAPPA_WIDTH = -0.7, 0.7  # log10: slopes explain .2 of a unit, by a factor of 5
_SIGMA_CENTRE, _SIGMA_WIDTH = -0.4, 2.0  # log2: a unit that was released may be 16 times off
# The same of scores of classes and counts, whose unit is that of the link: slopes that move a score
# by 1 / 23 to 8, levels that spread by 1 / 16 to 4, and variances of counts over their means.
SCORE_KAPPA, SCORE_TAU = 8.0 ** np.arange(-3, 3), 2.0 ** np.arange(-4, 3)
# Of counts, slopes that multiply a rate by 1.03 to e: means of rates do not exist without an end.
RATE_KAPPA = 4.0 ** np.arange(-5, 1)
# Up to 250, as of hundreds of sales a day that differ by their size, and log2 of the middle and of
# the width of their roots. All as likely, one of 28 random tables (77 tasks, 67 of one row) had 6.6
# times the deviance at 1 that it has with 1, 3 and 10.
DISPERSION = (1.0, 3.0, 10.0, 50.0, 250.0)
_DISPERSION = 0.0, 2.0
# Of classes, log2: slopes that move a score by a third, by a factor of 3. About 1, random tables of
# rare classes were further above the base rate: 52 fresh tables had .972, .974 and .998 of the
# log-loss at 1, 3 and 30, the worst 1.05, 1.05 and 1.07, and 28 without a budget .992, worst 1.04.
_SCORE_KAPPA = -3.0, math.log2(10.0)
# Of rates, log2: tasks differ by a factor of 1.2 to 4. Mean rates of tasks without rows grow with
# exp(tau^2 / 2), so that a vote that is mostly noise must not make tau 4.
_RATE_TAU = -1.0, 1.5
_OWN_RATES = 1.0  # spread of log rates where no place was found, about the task's own
# Variance of effects of subgroups of rows over that of a row: from what ten classes of ten rows
# barely show to effects that are four times a row's noise.
RATIO = np.append(0.0, 4.0 ** np.arange(-3, 3))
# Natural logarithm of the spread of slopes over that of a row, before any vote: middle, and width.
SLOPE_RATIO = (
    math.log(2.0) * (0.5 * _KAPPA_CENTRE * math.log2(10.0) - _SIGMA_CENTRE),
    math.log(2.0) * math.hypot(0.5 * _KAPPA_WIDTH * math.log2(10.0), _SIGMA_WIDTH),
)
NEVER = -1e9  # log weight of what is known not to be
WIDTH = 0.6  # of the priors that votes are on, in steps of their grid
ODD = 0.05  # of the weight after a vote stays as it was before, for tasks unlike the others
# What it may be where it is learnt, as likely each. Errors of 24 tables with many tasks of one row,
# or outliers, without a budget, were .90 of those with `ODD`, the worst 1.02 and the best .35.
ODDS = 0.0025, 0.01, 0.05, 0.2
# What part of the rows may have far more noise than the others, as likely each.
FAR_SHARES = 0.0, 0.001, 0.005, 0.02, 0.1
# Octaves by which slopes, those that all share, levels and the noise of a task may be larger
# together, as those of large farms are among small ones, in the task's own scales of columns. All
# have `ODD` squared. Of 171 made farms of 4 rows, and 120 of 7, whose sizes are log-normal, errors
# are .63 and .80 of those without; 4 alone leaves tasks four times as large near the others.
LARGER = 2, 4


def normalised(log_weights):
    """Log weights that sum to one."""
    top = log_weights.max()
    return log_weights - top - math.log(np.exp(log_weights - top).sum())


def log_sum_of(log_weights):
    """log of the sum of weights."""
    top = log_weights.max()
    return float(top + math.log(np.exp(log_weights - top).sum()))


def bump(grid, centre, width):
    """Log weights of a log-normal prior on a grid; centre and width in log2."""
    return normalised(-0.5 * ((np.log2(grid) - centre) / width) ** 2)


def candidates(grid, octaves=None, parts=1):
    """Log-normal priors about every point of a grid, of this width or `WIDTH` of its steps.

    With `parts` a step has so many of them. -> (parts (n - 1) + 1, n) log weights, one prior a row
    """
    n, width = len(grid), WIDTH * math.log2(grid[1] / grid[0]) if octaves is None else octaves
    places = np.arange(parts * (n - 1) + 1) / parts
    centres = np.interp(places, np.arange(n), [math.log2(point) for point in grid])
    return np.stack([bump(grid, centre, width) for centre in centres])


def between(log_weights, grid):
    """Weights after a vote of the priors about points of a grid, and of those a quarter step apart.

    A vote that is sure of one point would leave the centre of a prior half a step off, which is a
    factor of two in a variance. About the largest weight logarithms are a parabola, else linear.

    -> log weights (4 n - 3,), log weights of these priors (4 n - 3, n)
    """
    n = len(grid)
    top = min(max(int(log_weights.argmax()), 1), n - 2)
    places = 0.25 * np.arange(4 * n - 3)
    below, here, above = log_weights[top - 1 : top + 2]
    away = places - top
    parabola = here + 0.5 * away * (above - below + away * (above - 2.0 * here + below))
    linear = np.interp(places, np.arange(n), log_weights)
    logs = normalised(np.where(np.abs(away) <= 1.0, parabola, linear))
    return logs, candidates(grid, parts=4)


def typical_kappa(grid, halvings=0):
    """Log weights of kappa before any vote: a slope of a fifth of a unit, by a factor of 5.

    `halvings` of the unit: a quarter of kappa for each.
    """
    octaves = math.log2(10.0)
    return bump(grid, _KAPPA_CENTRE * octaves - 2.0 * halvings, _KAPPA_WIDTH * octaves)


def typical_sigma(halvings=0):
    """Log weights of sigma before any vote: near the unit, less by `halvings` of it."""
    return bump(SIGMA, _SIGMA_CENTRE - halvings, _SIGMA_WIDTH)


# Of `RATIO` before any vote: half of the weight is on no effects.
BEFORE_RATIO = normalised(np.append(math.log(len(RATIO) - 1.0), np.zeros(len(RATIO) - 1)))


def grid_of_tau(width, unit):
    """Spreads of levels, in units, for a window of this half-width: up to twice its own, and fewer
    for levels that are outliers."""
    if width is None:
        return np.array([FREE])
    last = min(max(4, math.ceil(math.log2(width / unit)) + 2), ODD_LEVEL)
    near, odd = np.arange(TAU_FLOOR, last), np.arange(ODD_LEVEL, last, -2)[::-1]
    return 2.0 ** np.append(near, odd)


def before_tau(grid):
    """Log weights of tau before any vote: flat on the logarithm."""
    return np.full(len(grid), -math.log(len(grid)))


def after(log_weights, before, odd=ODD):
    """A prior after a vote, of which a part stays as it was before."""
    return np.logaddexp(
        normalised(log_weights) + math.log1p(-odd), normalised(before) + math.log(odd)
    )


def at_least(log_weights, variances, noise):
    """A prior of a spread about a centre that is known up to noise of this variance.

    Weights of cells below the noise move to it, where it lies between two cells to both of them.
    """
    cells, places = np.log(variances), np.log(np.maximum(variances, noise))
    place = np.interp(places, cells, np.arange(len(cells)))
    low = np.minimum(place.astype(int), max(len(cells) - 2, 0))
    weight, upper = np.exp(log_weights), place - low
    moved = np.bincount(low, weight * (1.0 - upper), len(cells))
    moved = moved + np.bincount(np.minimum(low + 1, len(cells) - 1), weight * upper, len(cells))
    return np.log(np.maximum(moved, 1e-300))


def typical(log_weights, before):
    """A prior after a vote, without what stayed as it was before; inverse of `after`."""
    voted = np.maximum(np.exp(log_weights) - ODD * np.exp(before), 1e-300)
    return normalised(np.log(voted))


def middle(log_weights, before, grid):
    """Geometric mean of a scale under a vote, without what stayed as it was before."""
    return float(2.0 ** (np.exp(typical(log_weights, before)) @ np.log2(grid)))


def mean_root(log_weights, before, grid):
    """Square of the mean root of a scale under a vote, as `middle`."""
    return float((np.exp(typical(log_weights, before)) @ np.sqrt(grid)) ** 2)


def ends(log_weights, before, grid, coverage):
    """What a scale lies between with this weight under a vote, as of `middle`: (2,)"""
    weights = np.exp(typical(log_weights, before))
    below, cells = np.cumsum(weights) - 0.5 * weights, np.log2(grid)
    return 2.0 ** np.interp([0.5 - 0.5 * coverage, 0.5 + 0.5 * coverage], below, cells)


def middle_ratio(log_ratio, grid):
    """Geometric mean of a ratio that is not zero, times the weight of these, as `middle`."""
    weights = np.exp(typical(log_ratio, BEFORE_RATIO))
    some = weights[1:].sum()
    return float(some * 2.0 ** (weights[1:] @ np.log2(grid[1:]) / some))


@dataclass(frozen=True)
class Law:
    """Grids of the scales of a kind of target, and their log weights before any vote."""

    # Of counts, sigma is the root of their dispersion; of classes there is one cell
    kappa: np.ndarray
    sigma: np.ndarray
    log_kappa: np.ndarray
    log_sigma: np.ndarray
    of_scores: bool = True  # whether levels and slopes are those of scores, whose unit is public
    # Log2 of the middle and of the width of spreads of levels; None: flat on the logarithm
    of_tau: tuple | None = None

    def before_tau(self, grid):
        """Log weights of tau before any vote."""
        if self.of_tau is None or len(grid) == 1:
            return before_tau(grid)
        return bump(grid, *self.of_tau)

    def tau(self, width, unit):
        """Grid of spreads of levels, for a window of this half-width; None: of free levels."""
        if not self.of_scores:
            return grid_of_tau(width, unit)
        return np.array([_OWN_RATES]) if width is None else SCORE_TAU


def _laws():
    log_kappa = bump(SCORE_KAPPA, *_SCORE_KAPPA)
    dispersion = np.sqrt(DISPERSION)
    squared = Law(KAPPA, SIGMA, typical_kappa(KAPPA), typical_sigma(), of_scores=False)
    return {
        "squared": squared,
        "huber": squared,  # of rows that a task has weighed
        "poisson": Law(
            *(RATE_KAPPA, dispersion, typical_kappa(RATE_KAPPA), bump(dispersion, *_DISPERSION)),
            of_tau=_RATE_TAU,
        ),
        "classes": Law(SCORE_KAPPA, np.ones(1), log_kappa, np.zeros(1)),
    }


LAWS = _laws()


@dataclass
class Scales:
    """Log weights on the grids of kappa, sigma and tau, which are independent.

    `tau` is the grid of spreads of levels, which depends on the window of levels. `log_ratio` is of
    `RATIO`, where rows are in subgroups, and otherwise of no effects of them.
    """

    log_kappa: np.ndarray
    log_sigma: np.ndarray
    log_tau: np.ndarray
    tau: np.ndarray
    kappa: np.ndarray = field(default_factory=lambda: KAPPA)
    sigma: np.ndarray = field(default_factory=lambda: SIGMA)
    log_ratio: np.ndarray = field(default_factory=lambda: np.zeros(1))

    def possible(self):
        """Without cells that are known not to be."""
        found = {}
        for name in ("kappa", "sigma", "tau"):
            grid, logs = getattr(self, name), getattr(self, f"log_{name}")
            known = logs > logs.max() + NEVER
            found |= {name: grid[known], f"log_{name}": logs[known]}
        return replace(self, **found)

    def larger(self, octaves):
        """Of tasks of which levels, slopes and rows spread more, all by so many octaves."""
        log_kappa, log_sigma = (_moved(log, octaves) for log in (self.log_kappa, self.log_sigma))
        tau = self.tau * 2.0**octaves
        return replace(self, log_kappa=log_kappa, log_sigma=log_sigma, tau=tau)

    def only(self, j):
        """With one cell of tau."""
        return replace(self, tau=self.tau[j : j + 1], log_tau=self.log_tau[j : j + 1])


def _moved(log_weights, cells):
    """Log weights of cells farther up the grid, the last of which has those beyond its end."""
    moved = np.full(len(log_weights), NEVER)
    moved[cells:] = log_weights[:-cells]
    moved[-1] = log_sum_of(log_weights[-cells - 1 :])
    return moved


@dataclass
class Component:
    """One prior of the list: w ~ N(slopes, kappa root root')."""

    name: str  # "alone", "shape", "mean", "group" or "larger"
    slopes: np.ndarray  # (d,)
    root: np.ndarray  # (d, r), where root root' is of trace one
    log_weight: float
    scales: Scales
