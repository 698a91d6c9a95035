"""Levels of tasks: where most are, how far they spread, and what a task has of both.

The level of task k is its score at its own mean row, xbar_k; its slopes are orthogonal to it, so
that the evidence of the slopes says nothing of it. With a pooled model (b0, a) of all tasks,

    m_k = b0 + a' xbar_k,   l_k ~ (1 - q) N(m_k, tau^2) + q flat of density 1 / (8 B),

where B is the half-width of a window that holds the levels of most tasks, q = `_FLAT` and tau the
spread. The intercept is l_k - w_k' xbar_k, whatever slopes w_k a task has. b0, a, tau and the noise
s0 of a row are released; the rest a task computes from its own rows:

    l_k = m_k + e_k (p phi + 1 - p),   e_k = ybar_k - m_k,
    phi = E[tau^2 / (tau^2 + s^2 / n) | e_k],   s^2 ~ (4 s0^2 + Q_k) / chi^2_(4 + n - 1),

with the squared errors Q_k of its slopes: few rows that are far off are more likely noisy than of
another level. p is the posterior share of the pooled part, by level *and* noise of a task: without
the latter a task in units of its own would be shrunk with the noise of others. Levels of
classifiers are posterior means under N(m_k, tau^2), by quadrature, and with weight q under a wide
prior about 0. So are those of counts, whose levels are logarithms of means, but their wide prior is
about the pooled model.
"""

import math
from dataclasses import dataclass, replace
from functools import cache, cached_property
from numbers import Real

import numpy as np
from scipy import sparse
from scipy.special import digamma, expit, logsumexp, ndtr, polygamma
from scipy.stats import f as f_distribution

from .._kernels.levels import level_posteriors
from .._kernels.losses import LOGISTIC, POISSON
from .._runtime.compat import Interval
from .._runtime.public import Public
from ..exchange.sums import clipped_sum
from ..local.grams import row_blocks
from ..local.posterior import LEAST_DOF, mixed_noise, own_noise, with_intercept
from ..privacy.mechanisms import std_of
from ..tables import datafits
from ..tables.datafits import levels_of
from ..tables.table import common_scores, row_products
from .votes import Tally, differences_of, sum_of_differences

OCTAVES = 80  # from 2^-40 to 2^40, for either sign
LEVEL_BINS = 2 * OCTAVES
# Public prior of windows: the spread of their size in octaves, and the weight of none. A window is
# _WIDER than it is found, and noise counts as _LEAST of the tasks at least.
_SIZES, _NO_WINDOW, _WIDER, _LEAST = 12.0, 0.02, 1.5, 0.02
_CLEAR = 4.0  # std above which three bins of scales are not empty
_WIDTHS = {3: 0.3, 5: 0.4, 7: 0.5}  # octaves of a window of counts, part of the tasks in it
REACH = 0.5  # of the numbers that tasks send of noise and spread, either way
# Standard deviations that half of the tasks should stand out in the window, and its least share;
# its log odds with the vote; the part that pays for that, and the length of a contribution to it.
_CLEAR_WINDOW, LEAST_SHARE, _CLEAR_ODDS = 18.5, 0.005, 4.0
OF_VOTE, CORNER = 0.2, math.sqrt(0.5)
# Zooms: bins, spread of a task's targets in bins at most, std that a zoom should stand out at least
# and in the largest share, and std from which it is clear: noise alone does so in 1e-4 of all.
PLACES, _COARSE = 32, 4.0
_ZOOM, _LEAST_ZOOM, _CLEAR_ZOOM = 14.0, 11.0, 4.9
NOISE_OCTAVES, SPREAD_OCTAVES = 6.0, 4.0  # below B, in which noise and spread are looked for
_LEAST_NOISE = 1.2  # times the least noise that may be released, below which it is that
_NEAR_LEAST = 1.25  # times the least spread that may be released, below which it is that
_FLAT = 0.02  # prior weight of a level that is not pooled
_OWN_ROWS = 4.0  # rows that the released noise counts in a task's own
_UNITS = math.log(28.0)  # 40 octaves, in which own noise is uniform where it is not pooled
_LEAST_ENERGY = 2.0**-20  # of a row, over the released noise: the last of these octaves
# Nodes of the quadrature over the noise of a task: log s^2, in std of what its own rows say of it.
_NOISES = np.arange(-3.0, 8.5)
_MEDIAN = 0.455  # of a squared standard normal number
_FREE_LOGITS = 4.0  # std of levels of classifiers that are not pooled
LOGITS = 2.0  # std of levels of classifiers before any was released
# Candidates for the spread of levels of classifiers, and logarithms of their public weights.
SPREADS = 2.0 ** np.arange(-3.0, 3.01, 0.5)[::-1]
PRIOR_OF_SPREADS = -0.5 * (np.log2(SPREADS) + 0.75) ** 2
# Nodes of the quadrature, in standard deviations.
_NODES = np.linspace(-5.0, 5.0, 21)
_SIZES_OF_NODES = np.full(21, 0.5)
_MODE = np.zeros(1), np.full(1, math.sqrt(2.0 * math.pi))


@dataclass(eq=False)
class Level(Public):
    """What was released of the levels of tasks."""

    intercept: float  # b0, the score of the pooled model at 0
    coef: np.ndarray  # (d,), a, its slopes
    window: float | None  # B, half-width of the window of levels; None for classifiers
    noise_std: float | None = None  # s0, of a row; None for classifiers, and before it was released
    spread: float | None = None  # tau; None before it was released
    pooled: bool = False  # whether all levels are pooled, whatever they are: q = 0
    noise_octaves: float = 0.0  # std of the noise of the guarantee in log2 s0

    added = ("noise_octaves",)
    constraints = {
        "noise_octaves": [Interval(Real, 0, None, closed="left")],
        "window": [Interval(Real, 0, None, closed="neither"), None],
        "noise_std": [Interval(Real, 0, None, closed="neither"), None],
        "spread": [Interval(Real, 0, None, closed="neither"), None],
    }

    def declared(self, d):
        """See `skpmtl.exchange.wire`."""
        if self.spread is not None and (self.window is None) != (self.noise_std is None):
            raise ValueError("its level needs a window and a noise, or neither")
        yield "slopes of its level", self.coef, [(d,)]

    def with_noise(self, total, n_tasks, std=0.0):
        """A copy with the noise from the released sum of `TaskLevels.noises`.

        `std`: of the noise of the sum.
        """
        part = float(np.clip(total / n_tasks, -0.5, 0.5)) - 0.5
        noise_std = self.window * 2.0 ** (NOISE_OCTAVES * part)
        return replace(self, noise_std=noise_std, noise_octaves=NOISE_OCTAVES * std / n_tasks)

    @property
    def has_least_spread(self):
        """Whether levels differ by less than may be released."""
        if self.window is None:
            return self.spread < _NEAR_LEAST * SPREADS.min()
        return self.spread < _NEAR_LEAST * self.window * 2.0**-SPREAD_OCTAVES

    @property
    def noise_rows(self):
        """Rows that s0 counts in the noise of a task: `_OWN_ROWS`, less by what it is off itself.

        Log s of a chi^2 of nu rows has the variance psi'(nu / 2) / 4.
        """
        rows = np.geomspace(_OWN_ROWS, 0.1, 200)
        variances = 0.25 * polygamma(1, 0.5 * rows)
        return np.interp(variances[0] + (math.log(2.0) * self.noise_octaves) ** 2, variances, rows)

    @property
    def noise_prior(self):
        """Rows and variance of the released noise; None where it is the least that may be."""
        if self.noise_std <= _LEAST_NOISE * self.window * 2.0**-NOISE_OCTAVES:
            return None
        return self.noise_rows, self.noise_std**2

    def with_spread(self, total, std, n_tasks):
        """A copy with the spread from the released sum of `TaskLevels.spreads`.

        `std`: of the noise of the sum. Its public prior is N(-1.5, 1) in octaves of B; an error
        goes towards levels that are free.
        """
        estimate = SPREAD_OCTAVES * (float(np.clip(total / n_tasks, -0.5, 0.5)) - 0.5)
        trust = 1.0 / (1.0 + (SPREAD_OCTAVES * std / n_tasks) ** 2)
        octaves = trust * estimate - 1.5 * (1.0 - trust) + 0.5 * math.sqrt(1.0 - trust)
        return replace(self, spread=self.window * 2.0 ** min(octaves, 0.0))


def release_spread(query, billboard, level, noise, spread, n_tasks):
    """The noise of a row and the spread of levels; of classes a vote on evidence. -> Level

    `noise` and `spread` are (budget share, mechanism); for `query` see `release_window`.
    """

    def released(name, words, of_budget, combine):
        share, mechanism = of_budget
        public = {"billboard": billboard, "level": level}
        return query(share, name, words, mechanism, combine, **public)

    std = std_of(spread[1])
    if level.window is None:
        words = "sum of clipped differences of log evidence, by spread of levels"
        sums = yield from released("spread", words, spread, sum_of_differences("spread"))
        octaves = Tally(sums, std, len(SPREADS)).weights(PRIOR_OF_SPREADS) @ np.log2(SPREADS)
        return replace(level, spread=float(2.0**octaves))
    words = "sum of clipped log2 of the noise of a row"
    total = yield from released("noise", words, noise, clipped_sum("noise", REACH))
    level = level.with_noise(float(total[0]), n_tasks, std_of(noise[1]))
    words = "sum of clipped log2 of the spread of levels"
    total = yield from released("spread", words, spread, clipped_sum("spread", REACH))
    return level.with_spread(float(total[0]), std, n_tasks)


def window_share(z, most):
    """Budget share of the histogram of levels, for tasks times mu, and what it may be at most."""
    return min(max((_CLEAR_WINDOW / z) ** 2, LEAST_SHARE), most)


def parts_of_zooms(z, budget_share, most):
    """Parts of a budget share that up to three zooms have; together `most` of it, if not less."""
    number = sum(k * _LEAST_ZOOM**2 <= most * budget_share * z**2 for k in (1, 2, 3))
    return [min((_ZOOM / z) ** 2 / budget_share, most / max(number, 1))] * number


def level_attributes(billboard):
    """Fitted attributes of the `level` of a billboard of one output."""
    level = billboard.level
    shape = level.coef.reshape(billboard.model_shape)
    intercept = billboard.add_init(shape, np.array(level.intercept))[1]
    return {"level_": float(intercept), "level_spread_": level.spread}


# ---------------------------------------------------------------------------- the window
def sum_of_octaves(contributions, positions=None):
    """Numbers of tasks by octave of the level and its sign, (160,), without infinite ones.

    A task fills one bin: sensitivity sqrt(2) for replace-one, 1 for zero-out.
    """
    return {"window": octaves_of(contributions["window"], LEVEL_BINS)}


def sum_of_places(contributions, positions=None):
    """Numbers of tasks by bin of a window, (32,); others are in none. As `sum_of_octaves`."""
    places = np.asarray(contributions["zoom"], dtype=float)
    places = places[(places >= 0.0) & (places < PLACES)]
    return {"zoom": np.bincount(places.astype(int), minlength=PLACES).astype(float)}


def sum_of_scales(contributions, positions=None):
    """Tasks whose scale of features is in every octave, (80,), as `sum_of_octaves`."""
    return {"scale": octaves_of(np.abs(contributions["scale"]), OCTAVES)}


def log_window_of(counts, std, n_tasks):
    """Middle of the logarithms of most tasks' mean counts, from a noisy `sum_of_octaves` of these;
    None where no `_WIDTHS` octaves hold that part of the tasks."""
    counts = counts[:OCTAVES]
    for width, some in _WIDTHS.items():
        sums = np.convolve(counts, np.ones(width), mode="valid")
        top = int(sums.argmax())
        if sums[top] >= max(some * n_tasks, _CLEAR * math.sqrt(width) * std):
            break
    else:
        return None
    near = np.arange(max(top - 2, 0), min(top + width + 2, OCTAVES))
    weight = np.maximum(counts[near] - std, 0.0)
    octave = weight @ near / weight.sum() if weight.any() else top + 0.5 * (width - 1)
    return math.log(2.0) * (octave + 0.5 - OCTAVES // 2)


def octave_of(values):
    """Lower end of the octave of each number, with its sign: all that a histogram asks of it."""
    half = OCTAVES // 2
    with np.errstate(invalid="ignore"):
        exponent = np.floor(np.log2(np.maximum(np.abs(values), 2.0**-half)))
        return np.copysign(2.0 ** np.clip(exponent, -half, half - 1), values)


def octaves_of(values, n_bins):
    """Numbers in every octave, of either sign where there are two bins of each; finite ones."""
    values = np.asarray(values, dtype=float)
    values = values[np.isfinite(values)]
    exponent = np.rint(np.log2(np.abs(octave_of(values)))).astype(int)
    bins = exponent + OCTAVES // 2 + OCTAVES * (values < 0)
    return np.bincount(bins, minlength=n_bins).astype(float)


def scale_of(counts, std, n_tasks):
    """The scale of the features of most tasks, from a noisy `sum_of_scales`; 1 where none is clear.

    The mean of three octaves, weighted by their counts, that hold half of the tasks; a power of 2,
    by which features of any type are divided without rounding.
    """
    three = counts[:-2] + counts[1:-1] + counts[2:]
    top = int(three.argmax())
    if three[top] < max(0.5 * n_tasks, _CLEAR * math.sqrt(3.0) * std):
        return 1.0
    weight = np.maximum(counts[top : top + 3] - std, 0.0)
    octave = weight @ np.arange(top, top + 3) / weight.sum() if weight.any() else top + 1.0
    return float(2.0 ** round(octave + 0.5 - OCTAVES // 2))


def release_window(query, histogram, vote, zooms, n_tasks):
    """Middle and half-width of most levels, or None. -> generator

    The likeliest window of a histogram, unless tasks vote that their level is not in it, or that
    it is far wider than their targets vary. Its log odds by the histogram, and by the vote those of
    nine in ten tasks inside against one in ten, are added: noise in the vote does not lose a window
    that stands out, and a false one has to mislead both. Of one sign, a window is as wide as it is
    far from 0. Where most also vote that their targets vary far less, further histograms of bins of
    equal width zoom in, with the budget shares and mechanisms of `zooms`. Without any of these so
    wide a window is none: in its unit slopes are less than the noise of the rounds.
    ``query(share, statistic, words, mechanism, combine, **public)`` generates the released sum.
    """
    words = "histogram of the levels of tasks, octaves of either sign"
    counts = yield from query("window", "window", words, histogram, sum_of_octaves)
    window = window_of(counts, std_of(histogram), n_tasks)
    if window is None:
        return None
    middle, unit, odds = window
    words = "sum of votes on the window, and on a zoom into it"
    inside, finer = yield from query(
        "window", "inside", words, vote, clipped_sum("inside", CORNER), middle=middle, unit=unit
    )
    odds += 0.8 * inside / n_tasks / max(std_of(vote) / n_tasks, _LEAST) ** 2
    too_wide = middle != 0.0 and finer > std_of(vote)
    if odds < _CLEAR_ODDS or (too_wide and not zooms):
        return None
    words = "histogram of the levels of tasks, bins of a window"
    for share, mechanism in zooms if middle != 0.0 and finer > 0.0 else ():
        low, size = middle - unit / _WIDER, 2.0 * unit / _WIDER
        counts = yield from query(
            share, "zoom", words, mechanism, sum_of_places, low=low, size=size
        )
        first, width = zoom_of(counts, std_of(mechanism), n_tasks)
        if not width:
            break
        middle = low + size * (first + 0.5 * width) / PLACES
        unit = 0.5 * _WIDER * size * width / PLACES
        if width > 2:
            break
    return middle, unit


def zoom_of(counts, std, n_tasks):
    """First of the bins that hold most tasks, and their number: 1 to 3; 0 where none is clear.

    From a noisy `sum_of_places`; by likelihood, as windows, which are all as probable.
    """
    noise, likeliest = max(std / n_tasks, _LEAST), (0.0, 0, 0)
    for width in (1, 2, 3):
        means = np.convolve(counts / n_tasks, np.full(width, 1.0 / width), mode="valid")
        first = int(means.argmax())
        if means[first] > _CLEAR_ZOOM * noise / math.sqrt(width):
            likeliest = max(likeliest, (means[first] - 0.5 / width, first, width))
    return likeliest[1:]


def window_of(counts, std, n_tasks):
    """The window that holds the levels of most tasks, from a noisy `sum_of_octaves`.

    -> (middle, half-width, log odds over none), or None where none stands out. A window is one to
    three octaves of one sign, in which tasks are spread evenly, or all up to twice a power of two,
    about 0 like normal numbers whose std that is. With the shares t of the tasks that a window
    expects in the bins its log-likelihood over none is (m t'h - m^2 t't / 2) / std^2; the most
    probable one is taken.
    """
    shares, places, middle, width, prior = _windows()
    noise = max(std / n_tasks, _LEAST)
    signal = shares @ (counts / n_tasks) - 0.5 * np.einsum("wb,wb->w", shares, shares)
    posterior = signal / noise**2 + prior
    best = int(posterior.argmax())
    held = counts[places[best]].sum() / n_tasks
    if posterior[best] < math.log(_NO_WINDOW) or held < 0.5 - 2.0 * std / n_tasks:
        return None
    odds = float(posterior[best]) - math.log(_NO_WINDOW)
    return float(middle[best]), float(0.5 * _WIDER * width[best]), odds


@cache
def _windows():
    """Of all windows: expected shares in the bins, bins, middles, widths, log prior weights."""
    half, windows = OCTAVES // 2, []
    edges = 2.0 ** np.arange(-half, half + 1.0)
    for width in (1, 2, 3):
        for j in range(OCTAVES + 1 - width):
            for side in (1.0, -1.0):
                bins = np.arange(j, j + width) + (OCTAVES if side < 0 else 0)
                middle, size = 0.5 * (edges[j] + edges[j + width]), edges[j + width] - edges[j]
                even = np.full(width, 1.0 / width)
                windows.append((bins, even, side * middle, size, j - half, 0.5))
    for j in range(5, OCTAVES - 2):  # of std 2^(j - half)
        bins = np.arange(j - 5, j + 3)
        held = np.diff(ndtr(edges[np.append(bins, j + 3)] / edges[j]))
        both = np.concatenate([bins, bins + OCTAVES])
        windows.append((both, np.tile(held, 2), 0.0, 4.0 * edges[j], j - half, 3.0))
    bins, held, middle, size, place, weight = zip(*windows, strict=True)
    shares = np.zeros((len(windows), LEVEL_BINS))
    for row, at, part in zip(shares, bins, held, strict=True):
        row[at] = part
    prior = np.log(weight) - 0.5 * (np.array(place) / _SIZES) ** 2
    prior += math.log(1.0 - _NO_WINDOW) - logsumexp(prior)
    return shares, bins, np.array(middle), np.array(size), prior


# ------------------------------------------------------------------------ the task side
class TaskLevels:
    """Levels of all tasks of a table, of real targets or two classes.

    `related` (n_tasks, d + 1) are models of a relation, level last, in place of the pooled one.
    """

    def __init__(self, table, related=None):
        self.table, self.related = table, related
        self.n = np.asarray(table.support, dtype=float)
        self._weights = weights = table.counts / np.repeat(self.n, table.sizes)
        self.rows = self._means(1)
        self.kind = POISSON if table.has_log_loss and not table.n_classes else LOGISTIC
        if self.kind == POISSON:
            self.targets = np.exp(levels_of(table))
        elif not table.n_classes:
            self.targets = np.add.reduceat(weights * table.y, table.offsets[:-1])

    def inside(self, middle, unit):
        """Votes on a window, (n_tasks, 2) of 1/2 or -1/2: whether the level is in it, and farther
        from 0 than the least noise that it could tell; and whether to zoom."""
        held = np.abs(self.targets - middle) <= unit
        held &= np.abs(self.targets) >= unit * 2.0**-NOISE_OCTAVES
        votes = np.stack([held, held & self._finer(2.0 * unit / _WIDER)], axis=1)
        return np.where(votes, 0.5, -0.5)

    def places(self, low, size):
        """Bins of levels in a window, (n_tasks,); -1 outside, and where bins are too fine."""
        with np.errstate(invalid="ignore"):
            places = np.floor((self.targets - low) / size * PLACES)
        held = (places >= 0.0) & (places < PLACES) & self._finer(size)
        return np.where(held, places, -1.0)

    def _finer(self, size):
        """Whether the targets of a task vary by less than some bins of so large a window."""
        return self._spreads <= _COARSE / PLACES * size

    @cached_property
    def _spreads(self):
        """Standard deviations of the targets of a task, (n_tasks,); 0 of one row."""
        table, n = self.table, self.n
        squares = (table.y - np.repeat(self.targets, table.sizes)) ** 2
        squares = np.add.reduceat(table.counts * squares, table.offsets[:-1])
        return np.sqrt(squares / np.maximum(n - 1.0, 1e-9)) * (n > 1.0)

    def scales(self):
        """Root mean square of a task's features about their means, (n_tasks,); NaN of one row."""
        table = self.table
        X = table.X
        squares = X.multiply(X) if sparse.issparse(X) else None
        if squares is None:
            squares = np.einsum("ij,ij->i", X, X, dtype=float)
        else:
            squares = np.asarray(squares.sum(axis=1), dtype=float).ravel()
        squares = np.add.reduceat(table.counts * squares[table.places], table.offsets[:-1]) / self.n
        squares -= np.einsum("kj,kj->k", self.rows, self.rows)
        used = (self.n > 1.0) & (squares > 0.0)
        return np.where(used, np.sqrt(np.maximum(squares, 0.0) / table.n_features), np.nan)

    def _means(self, power):
        """Means of powers of the features of every task, (n_tasks, d), in float64."""
        table = self.table
        out = np.zeros((table.n_tasks, table.n_features))
        if table.is_sparse:
            shape = table.n_tasks, table.X.shape[0]
            weights = sparse.csr_array((self._weights, table.places, table.offsets), shape=shape)
            means = (weights @ table.X.astype(float).power(power)).tocoo()
            out[means.row, means.col] = means.data
            return out
        for first, last, rows, X in row_blocks(table):  # no second table of float64
            powers = self._weights[rows, None] * X**power
            np.add.reduceat(powers, table.offsets[first:last] - rows.start, out=out[first:last])
        return out

    def column_variances(self):
        """Variances of a task's features, (n_tasks, d); NaN of those that do not vary."""
        squares = self._means(2)
        variances = squares - self.rows**2
        return np.where(variances > 1e-10 * squares, variances, np.nan)  # beyond rounding

    def variances(self):
        """Median of the variances of a task's features that vary, (n_tasks,); NaN of none."""
        variances = self.column_variances()
        varies = np.isfinite(variances)
        order = np.sort(np.where(varies, variances, np.inf), axis=1)
        every, last = np.arange(len(order)), np.maximum(varies.sum(axis=1) - 1, 0)
        median = 0.5 * (order[every, last // 2] + order[every, (last + 1) // 2])
        return np.where(np.isfinite(median), median, np.nan)

    def pooled(self, level):
        """m_k, (n_tasks,)."""
        if self.related is not None:
            return self.related[:, -1] + np.einsum("kj,kj->k", self.rows, self.related[:, :-1])
        return level.intercept + row_products(self.rows, level.coef)

    def noises(self, energies, level):
        """What tasks say of the noise of a row, in -1/2 ... 1/2.

        log2 of its own std, without its bias, less log2 B, from -6 to 0 octaves. The noise of a
        single row is its distance to the pooled model.
        """
        single = self.n <= 1.0
        dof = np.where(single, 1.0, self.n - 1.0)
        bias = 0.5 / math.log(2.0) * (np.log(dof / 2.0) - digamma(dof / 2.0))
        with np.errstate(all="ignore"):
            energies = np.where(single, (self.targets - self.pooled(level)) ** 2, energies)
            octaves = 0.5 * np.log2(np.maximum(energies / dof, 1e-300)) + bias
            octaves = np.clip(octaves - math.log2(level.window), -NOISE_OCTAVES, 0.0)
        return np.nan_to_num(octaves / NOISE_OCTAVES + 0.5)

    def spreads(self, W, energies, level):
        """What tasks say of the spread, (n_tasks, 1) in -1/2 ... 1/2.

        log2 of the distance to the pooled model that is not noise, less log2 B, from -4 to 0
        octaves. Of classifiers: differences of their log evidence from each of `SPREADS` to the
        next, (n_tasks, `N_DIFFERENCES`).
        """
        if level.window is None:
            logs = [self._of_classes(W, level, spread, *_MODE)[1] for spread in SPREADS]
            return differences_of(np.stack(logs, axis=1))
        with np.errstate(all="ignore"):
            distance = self.targets - self.pooled(level)
            square = distance**2 / _MEDIAN - self._variances(energies, level) / self.n
            octaves = 0.5 * np.log2(np.maximum(square, 1e-300)) - math.log2(level.window)
            sent = np.clip(octaves, -SPREAD_OCTAVES, 0.0) / SPREAD_OCTAVES + 0.5
        return np.nan_to_num(sent)[:, None]

    def scores(self, W):
        """Of the rows under these slopes, at the levels of the tasks alone."""
        return self._scores(W) + np.repeat(self.own(W), self.table.sizes)

    def own(self, W):
        """Levels of tasks alone, (n_tasks,); of classifiers in a wide prior about 0."""
        if self.kind == POISSON:
            return levels_of(self.table, self._scores(W))
        if not self.table.n_classes:
            return self.targets
        nothing = Level(0.0, np.zeros(W.shape[1]), None)
        return self._of_classes(W, nothing, LOGITS, _NODES, _SIZES_OF_NODES)[0]

    def shown(self, W, energies):
        """What tasks of models with these slopes show of their levels, for `likely`.

        Of log-losses z and h, (2, n_tasks): the log-likelihood of a level l is, to second order
        at the level alone, -h (l - z)^2 / 2. Of real targets `energies`.
        """
        if not self.table.has_log_loss:
            return energies
        W, ends = np.where(np.isfinite(W), W, 0.0), self.table.offsets[:-1]
        loss = datafits.POISSON if self.kind == POISSON else datafits.LOGISTIC
        score = self.scores(W) + self.table.base_of_one
        slope, curvature = (
            np.add.reduceat(self.table.counts * part, ends)
            for part in loss.derivatives(self.table.y, score)
        )
        curvature = np.maximum(curvature, 1e-12)
        return np.stack([self.own(W) - slope / curvature, curvature])

    def likely(self, shown, level):
        """Log density of what a task shows of level and noise, (n_tasks,).

        Of log-losses up to a constant of the task.
        """
        if level.window is None:
            z, h = shown
            wide = 0.0 if self.kind == LOGISTIC else self.pooled(level)
            inside, flat = (
                -0.5 * np.log1p(h * spread**2) - 0.5 * (z - m) ** 2 / (1.0 / h + spread**2)
                for m, spread in ((self.pooled(level), level.spread), (wide, _FREE_LOGITS))
            )
        else:
            _, _, _, inside, flat = self._evidence(shown, level)
        if level.pooled:
            return np.nan_to_num(inside)
        return np.nan_to_num(np.logaddexp(math.log1p(-_FLAT) + inside, math.log(_FLAT) + flat))

    def levels(self, W, energies, level):
        """l_k, (n_tasks,), of tasks with these slopes; NaN where they are not finite."""
        if (level.window is None) != self.table.has_log_loss:  # a crafted file
            raise ValueError(
                "The levels of this billboard are of another kind of target: take a billboard of "
                "the estimator that you fit."
            )
        if level.window is None:
            return self._levels_of_classes(W, level)
        middle, error, (part, _), p = self._pooling(energies, level)
        with np.errstate(all="ignore"):
            return middle + error * (p * part + 1.0 - p)

    def _pooling(self, energies, level):
        """-> m_k, e_k, phi with its variance, and p of every task."""
        middle, error, part, inside, flat = self._evidence(energies, level)
        with np.errstate(all="ignore"):
            p = expit(math.log((1.0 - _FLAT) / _FLAT) + inside - flat)
        p = np.ones(len(p)) if level.pooled else np.nan_to_num(p)
        return middle, error, part, p

    def _evidence(self, energies, level):
        """-> m_k, e_k, mean and variance of phi, and log densities of e_k and of the noise: pooled,
        and flat."""
        middle, square = self.pooled(level), level.spread**2
        with np.errstate(all="ignore"):
            error, rows = self.targets - middle, _OWN_ROWS + np.maximum(self.n - 1.0, 0.0)
            noise, step = self._variances(energies, level) / self.n, np.sqrt(2.0 / rows)
            largest = square + noise * np.exp(_NOISES[-1] * step)
            whole, total, first, second = np.zeros((4, len(error)))
            for at in _NOISES:
                log = at * step
                weight = np.exp(-0.5 * rows * (log + np.exp(-log) - 1.0))
                whole += weight
                variance = square + noise * np.exp(log)
                weight *= np.exp(-0.5 * error**2 * (1.0 / variance - 1.0 / largest))
                weight /= np.sqrt(variance)
                total += weight
                first += weight * square / variance
                second += weight * (square / variance) ** 2
            phi = np.nan_to_num(first / total)  # 0 of targets whose squares overflow
            unsure = np.nan_to_num(np.maximum(second / total - phi**2, 0.0))
            inside = np.log(total / whole) - 0.5 * (math.log(2.0 * math.pi) + error**2 / largest)
            inside = inside + self._odds_of_noise(energies, level)
        return middle, error, (phi, unsure), inside, -math.log(8.0 * level.window)

    def posterior(self, moments, sums, level, width=None, parts=()):
        """Models with pooled levels and their noise, of real targets. -> Moments, noise

        `moments` are those of the slopes; those returned have the level, a mixture of a pooled and
        a free one. `width` is that of the public range of the target; None: of the window. `parts`
        are as of `intercepts`. The noise is as of `skpmtl.local.posterior.own_noise`: with the
        released one as prior where the task is like others.
        """
        mean, unit, square, inside = 0.0, 0.0, 0.0, 0.0
        with np.errstate(all="ignore"):
            for share, own in parts or [(1.0, level)]:
                middle, error, (part, unsure), p = self._pooling(moments.energies, own)
                kept = p * part + 1.0 - p
                at = middle + error * kept
                mean, unit = mean + share * at, unit + share * kept / self.n
                between = p * ((1.0 - p) * (1.0 - part) ** 2 + unsure) * error**2
                square, inside = square + share * (between + at**2), inside + share * p
            between, p = (np.maximum(square - mean**2, 0.0) if parts else between), inside
            rows = level.noise_rows
            dof = np.maximum(rows + np.maximum(self.n - 1.0, 0.0), LEAST_DOF)
            released = (rows * level.noise_std**2 + moments.energies) / (dof - 2.0), dof
            if level.noise_prior is not None:
                own = own_noise(moments, sums, 2.0 * level.window if width is None else width)
            else:
                own = own_noise(moments, sums, width)
                p = np.where(np.isfinite(own[0]), 0.0, 1.0)
            moments = with_intercept(moments, self.rows, mean, unit, between)
            return moments, mixed_noise(p, released, own)

    def intercepts(self, W, energies, level, parts=()):
        """Of models with these slopes, (n_tasks,).

        parts : list of (ndarray (n_tasks,), Level)
            Posterior shares of tasks whose levels are about others than `level`.
        """
        levels = sum(
            share * self.levels(W, energies, own) for share, own in parts or [(1.0, level)]
        )
        return levels - np.einsum("kj,kj->k", self.rows, W)

    def _levels_of_classes(self, W, level):
        """Posterior means, of the pooled prior and of a wide one about 0 by their evidence."""
        pooled, free, p = self._of_both(W, level)
        return p * pooled + (1.0 - p) * free

    def _of_both(self, W, level):
        """Levels of classifiers in the pooled and in the wide prior, and the share of the first."""
        pooled, likely = self._of_classes(W, level, level.spread, _NODES, _SIZES_OF_NODES)
        if level.pooled:
            return pooled, pooled, np.ones(len(pooled))
        nothing = level if self.kind == POISSON else Level(0.0, np.zeros(W.shape[1]), None)
        free, other = self._of_classes(W, nothing, _FREE_LOGITS, _NODES, _SIZES_OF_NODES)
        return pooled, free, expit(math.log((1.0 - _FLAT) / _FLAT) + likely - other)

    def class_posterior(self, W, level, mass, _=None, parts=()):
        """As `skpmtl.local.laplace.free_level`, of levels that are means of their posterior.

        parts : as of `intercepts`
        """
        mean, square, wide = 0.0, 0.0, 1.0 / (mass + _FREE_LOGITS**-2)
        for share, own in parts or [(1.0, level)]:
            pooled, free, p = self._of_both(W, own)
            narrow = 1.0 / (mass + own.spread**-2)
            mean = mean + share * (p * pooled + (1.0 - p) * free)
            square = square + share * (p * (narrow + pooled**2) + (1.0 - p) * (wide + free**2))
        return np.zeros(len(mass)), np.maximum(square - mean**2, 0.0)

    def _variances(self, energies, level):
        """s_k^2."""
        own = np.maximum(self.n - 1.0, 0.0)
        return (_OWN_ROWS * level.noise_std**2 + energies) / (_OWN_ROWS + own)

    def _odds_of_noise(self, energies, level):
        """Log odds of a noise like the released one, against any of 40 octaves."""
        dof = np.maximum(self.n - 1.0, 1e-9)
        x = np.maximum(energies / (dof * level.noise_std**2), _LEAST_ENERGY)
        odds = f_distribution.logpdf(x, dof, _OWN_ROWS) + np.log(x) + _UNITS
        return np.where(self.n > 1.0, np.where(np.isfinite(odds), odds, -700.0), 0.0)

    def _of_classes(self, W, level, spread, nodes, weights):
        table, score = self.table, self._scores(W)
        if table.base is not None:
            score += table.base[:, 0]
        out = np.empty((2, table.n_tasks))
        level_posteriors(
            score,
            table.y,
            table.counts,
            table.offsets,
            self.pooled(level),
            float(spread),
            nodes,
            weights,
            *out,
            self.kind,
        )
        return np.where(np.isfinite(W).all(axis=1), out[0], np.nan), out[1]

    def _scores(self, W):
        """Of the rows under these slopes, less those of the task's mean row."""
        slopes = np.where(np.isfinite(W), W, 0.0)
        score = common_scores(self.table, slopes[:, None])[:, 0]
        return score - np.repeat(np.einsum("kj,kj->k", self.rows, slopes), self.table.sizes)
