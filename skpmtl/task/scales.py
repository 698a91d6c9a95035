"""What a task knows of units before any model: means, spreads, and its scales of columns.

The log2 of a spread of n rows has sampling variance and bias that follow from those of a
chi-square variable with n - 1 degrees of freedom; rows have heavier tails than normal ones.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from ..tables.table import blocks_of

_KURTOSIS = 2.0  # variance of a log spread over that of normal rows: skewed and one-hot columns
_HETERO = np.array([0.01, 0.3, 8.0])  # variances of a task's log2 scale about the released one:
_HETERO_WEIGHTS = np.log([0.6, 0.3, 0.1])  # the same, within a factor of 2, of its own
# Variance of log2 in which the scales of all columns of a task move together. With twice as much 14
# random tables were within .003 at 1 and 3, and 24 without a budget 1.005 times as bad, the worst
# 1.11; with none of it a task without spreads would believe rows anywhere.
_OWN = 0.05
TINY = 1e-9  # a spread below this part of the mean is rounding
# Octaves beyond which the grids of noise and slopes end, in units of the release; below it by 1 / n
# more for few rows, which may be close by chance.
_FAR, _OF_FEW = 4.0, 12.0


@dataclass
class Summaries:
    """Of m tasks: rows, means and standard deviations of columns and target (0: unknown)."""

    n: np.ndarray  # (m,), as far as rows count
    x_mean: np.ndarray  # (m, d)
    x_std: np.ndarray  # (m, d)
    y_mean: np.ndarray  # (m,)
    y_std: np.ndarray  # (m,)
    y_low: np.ndarray  # (m,)
    y_high: np.ndarray  # (m,)
    n_values: np.ndarray | None = None  # (m,), rows that say something of spreads; None: n
    y_most: np.ndarray | None = None  # (m,), of squares of targets about the mean, as they count

    @classmethod
    def of(cls, X, y, offsets, counts):
        """From rows (N, d), targets (N,) and how much rows count (N,), sorted by task.

        Rows are taken some tasks at a time: `X` may write them out where they are asked for.
        """
        m, d = len(offsets) - 1, X.shape[1]
        found = cls(*(np.zeros(shape) for shape in (m, (m, d), (m, d), m, m, m, m)))
        found.y_most = np.zeros(m)
        known = np.diff(offsets) > 0
        if not known.any():
            return found
        offsets = np.asarray(offsets)
        for first, last in blocks_of(offsets, d):
            rows, own = slice(*offsets[[first, last]]), first + np.flatnonzero(known[first:last])
            if len(own):
                starts = offsets[own] - offsets[first]
                found._add(own, X[rows], y[rows], counts[rows], starts, np.diff(offsets)[own])
        found.x_std[found.x_std <= TINY * np.abs(found.x_mean)] = 0.0
        found.y_std[found.y_std <= TINY * np.abs(found.y_mean)] = 0.0
        return found

    def _add(self, own, X, y, counts, starts, sizes):
        """The numbers of the tasks at `own`, which have these rows."""

        def sums(values):
            return np.add.reduceat(values, starts)

        def moments(values, u, n, dof):
            mean = sums(u * values) / n
            rest = values - np.repeat(mean, sizes, axis=0)
            with np.errstate(over="ignore"):  # of rows that are refused or clipped later
                return mean, np.sqrt(sums(np.multiply(u * rest, rest, out=rest)) / dof)

        n = sums(counts)
        dof = np.where((sizes > 1) & (n > 1.0), n - 1.0, 1.0)
        self.n[own] = n
        self.y_mean[own], self.y_std[own] = moments(y, counts, n, dof)
        with np.errstate(over="ignore"):
            squares = np.minimum(counts, 1.0) * (y - np.repeat(self.y_mean[own], sizes)) ** 2
        self.y_most[own] = np.maximum.reduceat(squares, starts)
        self.y_low[own] = np.minimum.reduceat(y, starts)
        self.y_high[own] = np.maximum.reduceat(y, starts)
        of_columns = counts[:, None], n[:, None], dof[:, None]
        self.x_mean[own], self.x_std[own] = moments(X, *of_columns)

    def with_repeats(self, X, offsets):
        """The same where rows of a task may repeat each other, as those of one person by interval:
        spreads are those of as many rows as the column with most values has values.

        offsets : ndarray (m + 1,)
            Rows of task t are ``X[offsets[t]:offsets[t + 1]]``, of X (N, d).
        """
        most = np.minimum(self.n, 1.0)
        for first, last in blocks_of(offsets, X.shape[1]):
            codes = np.repeat(np.arange(last - first), np.diff(offsets[first : last + 1]))
            for column in X[slice(*offsets[[first, last]])].T:
                order = np.lexsort((column, codes))
                value = column[order]
                new = np.append(True, (value[1:] != value[:-1]) | (codes[1:] != codes[:-1]))
                of_column = np.bincount(codes, new[: len(codes)], minlength=last - first)
                most[first:last] = np.maximum(most[first:last], of_column)
        return replace(self, n_values=np.minimum(most, self.n))

    @property
    def _half_dof(self):
        n = self.n if self.n_values is None else self.n_values
        return np.maximum(n - 1.0, 1.0) / 2.0

    def log_variance(self):
        """Sampling variance of the log2 of a spread, (m,): trigamma by its asymptotic series."""
        x = self._half_dof
        series = 1.0 / x + 0.5 / x**2 + 1.0 / (6.0 * x**3)
        return _KURTOSIS * (0.5 / math.log(2.0)) ** 2 * series

    def log_spread(self, scale=1.0, centre=None, single=True):
        """log2 of spreads of columns over `scale`, less their sampling bias, (m, d).

        0 where it is unknown; with a `centre` the distance from it stands for the spread of a
        column that does not vary within a task, `single`: of tasks of one row alone.
        """
        std, x = self.x_std, self._half_dof[:, None]
        if centre is not None:
            x = np.where(std > 0, x, 0.5)
            known = (self.n > 0) & ((self.n <= 1) | (not single))
            apart = np.abs(self.x_mean - centre) * known[:, None]
            apart[apart <= TINY * np.abs(self.x_mean)] = 0.0
            std = np.where(std > 0, std, apart)
        found = np.log2(np.where(std > 0, std, 1.0)) - np.log2(scale) - _bias(x)
        return np.where(std > 0, found, 0.0)


def _bias(x):
    """Sampling bias of the log2 of a spread, for half its degrees of freedom: digamma by its
    asymptotic series."""
    return -(1.0 / (2.0 * x) + 1.0 / (12.0 * x**2)) / (2.0 * math.log(2.0))


def own_scales(summaries, released, common, single, own_unit=False):
    """A task's scales of columns: posterior of their log2, given released ones and its own rows.

    The log2 scale of column j in task t is the released one, plus an error common to all columns of
    variance `common`, plus a deviation of the task whose variance is one of three; its own spread
    is that with sampling noise. The scale is taken at the root of its posterior mean square, so
    that few rows cannot make a bold slope.

    `common` and `single` are variances of the `released` scales (d,) in log2: of all columns
    together, and of a single one. `own_unit`: the unit of the target is the task's own, too. Slopes
    are in units of the ratio of the two, in which the errors of spreads of the same rows cancel,
    and so does their bias: the scale is then that of the posterior mean of its log2. Without the
    bias slopes of two rows were half as large before any row was seen; errors of 27 tables of
    people, animals and plants over time, 54 splits at .3, were 1.04 times those with it.

    -> scale (m, d), posterior variance of its log2 (m, d)
    """
    seen = summaries.x_std > 0
    k = seen.sum(axis=1)[:, None].astype(float)
    r = summaries.log_spread(released)
    if own_unit:
        r = r + _bias(summaries._half_dof[:, None])
    r = np.where(seen, r, 0.0)
    total = _row_sums(r)[:, None]
    mean = total / np.maximum(k, 1.0)
    v, G = summaries.log_variance()[:, None], common + _OWN
    V = _HETERO + v  # (m, 3)
    S = V + k * G
    Q = _row_sums(np.where(seen, r - mean, 0.0) ** 2)[:, None]
    E = _HETERO_WEIGHTS - 0.5 * (
        np.maximum(k - 1.0, 0.0) * np.log(V) + np.log(S) + Q / V + k * mean**2 / S
    )
    w = np.exp(E - E.max(axis=1, keepdims=True))
    w /= _row_sums(w)[:, None]
    g, h, f = k * G / S * mean, G * V / S, _HETERO / V
    # A task without any spread has the scales of one without rows.
    of_cells = (1.0 - f) * w * g, w * f, w * g
    of_cells += w * (f * v + (1.0 - f) ** 2 * h), w * (_HETERO * (k > 0) + h)
    shrunk, slope, blind, known, unknown = (_row_sums(cells)[:, None] for cells in of_cells)
    place = np.where(seen, shrunk + slope * r, blind)
    variance = np.where(seen, known, single + unknown)
    if not own_unit:
        place = place + math.log(2.0) * variance
    return released * np.exp2(place), variance


def typical_squares(summaries, variance):
    """Squares of typical rows about a mean row, in a task's scales of columns. (m, d)

    These scales, whose log2 have this posterior variance (m, d), are the roots of means of squares;
    what is typical is less by the same factor again. A column that is constant over several rows of
    a task is taken to be so.
    """
    less = math.log(2.0) * variance
    constant = (summaries.n > 1)[:, None] & (summaries.x_std == 0)
    return np.where(constant, 0.0, 2.0 ** (-2.0 * less))


def own_units(summaries, unit):
    """Unit of the target of every task, (m,): the released one, unless its own is far from it.

    It is far above where the rows but the farthest one say so, too: a lone row is noise, unless it
    is so far that others would see nothing else. Without a released unit: its own spread, or the
    size of its mean.
    """
    std, size = summaries.y_std, np.abs(summaries.y_mean)
    if unit is None:
        return np.where(std > 0, std, np.where(size > 0, size, 1.0))
    n = np.maximum(summaries.n, 1.0)
    squares = (n - 1.0) * std**2 - summaries.y_most * n / np.maximum(n - 1.0, 1.0)  # of the others
    beyond = 2.0 ** (_FAR + _OF_FEW / n)
    above = (n > 2.0) & (squares > (n - 2.0) * (2.0**_FAR * unit) ** 2)
    above |= std > 2.0**_FAR * beyond * unit
    below = (std > 0) & (std * beyond < unit)
    return np.where(above | below, std, unit)


def _row_sums(A):
    """Sums of rows, one column after the other, so that no other row changes the last bit."""
    return np.add.accumulate(A, axis=1)[:, -1] if A.shape[1] else np.zeros(len(A))
