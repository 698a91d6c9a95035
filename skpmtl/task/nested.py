"""Posterior of a task whose rows are in subgroups with an effect each, as pupils in classes.

For the rows of subgroup c of a task,

    y_i = l + x_i' w + v_c + e_i,   v_c ~ N(0, g sigma^2),   e_i ~ N(0, sigma^2 / u_i),

for rows that count u_i times. With U_c the sum of u_i and ybar_c their weighted mean, the rows

    ybar_c + (y_i - ybar_c) root(1 + g U_c),     xbar_c + (x_i - xbar_c) root(1 + g U_c),

have the likelihood of rows without subgroups that count u_i / (1 + g U_c) times, times the root of
the product of 1 / (1 + g U_c) (Searle, Casella and McCulloch, "Variance components", 1992, chapter
3: the inverse covariance moves rows along the means of subgroups), so that all of
`skpmtl.task.posterior` holds for them. g is on a public grid, of which every task takes the mixture
by its own evidence. Given l and w, and with s_c = g U_c / (1 + g U_c),

    v_c | rows ~ N(s_c (ybar_c - l - xbar_c' w), g sigma^2 / (1 + g U_c)).

The functions here are those of `skpmtl.task.posterior` for lists of `RatioPart`, one for every g.
Without subgroups there is one, and they are the same.
"""

from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import NamedTuple

import numpy as np

from ..tables.ids import locate
from ..tables.table import weighted_sum
from . import posterior
from .posterior import Decomposition, TaskRows, log_sum


class RatioPart(NamedTuple):
    """The tasks under one ratio of the grid."""

    dec: Decomposition
    log_root: np.ndarray  # (m,), log of the root of the product of 1 / (1 + g U_c)
    cell: int  # of the grid

    def log_prior(self, scales):
        return self.log_root + scales.log_ratio[self.cell]


@dataclass
class Subgroups:
    """Subgroups of the rows of m tasks."""

    of_row: np.ndarray  # (N,), subgroup of every row, in 0 ... n - 1
    tasks: np.ndarray  # (n,), positions of their tasks, sorted
    levels: np.ndarray  # (n,), their levels of the factor, sorted in every task
    counts: np.ndarray  # (n,), U_c, how much their rows count
    n_tasks: int  # m

    @classmethod
    def of(cls, codes, levels, counts, n_tasks):
        """From the task, the level and the count of every row, (N,), sorted by task."""
        known, of_row = np.unique(np.stack([codes, levels]), axis=1, return_inverse=True)
        found = cls(of_row.ravel(), known[0], known[1], np.ones(known.shape[1]), n_tasks)
        return replace(found, counts=found._sums(np.asarray(counts, dtype=float)))

    def _sums(self, values):
        """By subgroup, in the order of rows."""
        return np.bincount(self.of_row, values, minlength=len(self.tasks))

    def means(self, values, counts):
        """Of rows (N,) or (N, d) that count so often. -> (n,) or (n, d)"""
        columns = values.reshape(len(values), -1).T
        means = [self._sums(counts * column) / self.counts for column in columns]
        return np.stack(means, axis=-1).reshape(-1, *values.shape[1:])

    def rows(self, X, y, offsets, counts, ratio):
        """The rows of the tasks, which all have some, under g = `ratio`.

        -> `TaskRows`, log of the root (m,)
        """
        more = 1.0 + ratio * self.counts
        rows = [self._apart(values, counts, np.sqrt(more)) for values in (X, y)]
        sizes = np.bincount(self.tasks, self.counts, minlength=self.n_tasks)
        found = TaskRows.of(*rows, offsets, counts / more[self.of_row])
        # The mean of n rows is a row of the posterior with density root(n) times its own.
        log_root = -0.5 * np.bincount(self.tasks, np.log(more), minlength=self.n_tasks)
        log_root -= 0.5 * np.log(found.n / sizes)
        return replace(found, dof=sizes - 1.0), log_root

    def _apart(self, values, counts, root):
        mean, root = self.means(values, counts)[self.of_row], root[self.of_row]
        return mean + (values - mean) * (root if values.ndim == 1 else root[:, None])

    def shrunk(self, ratio):
        """s_c under g = `ratio`, (n,)."""
        return ratio * self.counts / (1.0 + ratio * self.counts)


@dataclass
class LevelEffects:
    """What a task knows of the effects of its subgroups. For the task alone, as its model is."""

    levels: np.ndarray  # (k,), levels of the factor, sorted
    # (k,), posterior means of v_c, in units of the target; of several classes (k, C), as `left` is
    effects: np.ndarray
    shrunk: np.ndarray  # (k,), s_c, by which the mean row of a level takes part in its effect
    # (k,), variance of v_c given the model of the task, of these levels and of new ones, over that
    # of the noise of a row
    left: np.ndarray
    of_new: float
    means: np.ndarray  # (k, d), mean rows of the levels
    effect_of_new: float  # of a new level: of counts mean rates of these are larger

    @classmethod
    def by_task(cls, groups, names, values, of_new, means, effects_of_new):
        """Of the tasks of `groups`, whose levels are among `names`.

        `values` are `effects`, `shrunk` and `left` of all their levels, (3, n) or (3, n, C), and
        `of_new` and `effects_of_new` of the tasks, (m,). -> (m,) of dtype object
        """
        ends = np.searchsorted(groups.tasks, np.arange(groups.n_tasks + 1))
        out = np.empty(groups.n_tasks, dtype=object)
        for k in range(len(out)):
            own = np.arange(ends[k], ends[k + 1])  # copies, which have nothing of other tasks
            known = *values[:, own], float(of_new[k]), means[own], float(effects_of_new[k])
            # Text of numpy is as wide as the longest, which other tasks may have.
            out[k] = cls(np.array(names[groups.levels[own]].tolist()), *known)
        return out

    def by_level(self):
        """-> {level: effect}"""
        return dict(zip(self.levels.tolist(), self.effects.tolist(), strict=True))

    def places(self, levels, codes):
        """Places of the levels of rows, ``levels[codes]``, among `levels`; -1 of new ones."""
        return locate(levels, self.levels, "Level")[codes]

    def of(self, places):
        """Effects at these places, (n, ...)."""
        return _with_new(self.effects, self.effect_of_new)[places]

    def doubt(self, places):
        """`left` at these places, (n, ...)."""
        return _with_new(self.left, self.of_new)[places]

    def known(self, places, Z):
        """How a row (x, 1) of `Z` (n, d + 1) depends on the model of the task, with the effect of
        its level, and the variance of the effect given the model. -> (n, d + 1), (n,)"""
        s = np.append(self.shrunk, 0.0)[places, None]
        means = np.c_[self.means, np.ones(len(self.means))]
        means = np.concatenate([means, np.zeros((1, means.shape[1]))])
        return Z - s * means[places], self.doubt(places)


def _with_new(values, of_new):
    return np.concatenate([values, np.full((1, *values.shape[1:]), of_new)])


def _mixed(parts, scales, logs):
    """Of parts with this log evidence. -> that of the mixture (m,), weights of parts (n, m)"""
    logs = [log + part.log_prior(scales) for log, part in zip(logs, parts, strict=True)]
    logs = np.stack(logs, axis=1)
    total = log_sum(logs)
    return total, np.exp(logs - total[:, None]).T


def _average(parts, scales, found):
    """Of the log evidence and further numbers of every part. -> the same of the mixture"""
    logs, *rest = zip(*found, strict=True)
    total, weights = _mixed(parts, scales, logs)
    return total, *(weighted_sum(weights, values) for values in rest)


def each(parts, level, slopes, scales):
    """`averages` of every part, with its prior in the log evidence."""
    for part in parts:
        logs, *means = posterior.averages(part.dec, level, slopes, scales)
        yield logs + part.log_prior(scales), *means


def log_evidence(parts, level, slopes, scales, by=None):
    """Also by "ratio"."""
    axis = None if by == "ratio" else by
    logs = [posterior.log_evidence(part.dec, level, slopes, scales, axis) for part in parts]
    if axis is None and by is None:
        return _mixed(parts, scales, logs)[0]
    before = [part.log_prior(scales) for part in parts]
    if axis is None:
        return np.stack([log + prior for log, prior in zip(logs, before, strict=True)], axis=1)
    return reduce(np.logaddexp, (log + own[:, None] for log, own in zip(logs, before, strict=True)))


def _over_parts(function, parts, level, slopes, scales):
    found = [function(part.dec, level, slopes, scales) for part in parts]
    return _average(parts, scales, found)


averages = partial(_over_parts, posterior.averages)
covariances = partial(_over_parts, posterior.covariances)


def information(parts, level, slopes, scales, some=slice(None)):
    found = [posterior.information(part.dec, level, slopes, scales, some) for part in parts]
    some_parts = [part._replace(log_root=part.log_root[some]) for part in parts]
    return _average(some_parts, scales, found)[1:]


def gains(parts, level, slopes, scales):
    """-> weights of parts (n, m), `gains` of every one"""
    found = [posterior.gains(part.dec, level, slopes, scales) for part in parts]
    logs, known = zip(*found, strict=True)
    return _mixed(parts, scales, logs)[1], known


def moved(parts, known, level, slopes):
    weights, known = known
    pairs = zip(parts, known, strict=True)
    found = [posterior.moved(part.dec, of_part, level, slopes) for part, of_part in pairs]
    return tuple(weighted_sum(weights, values) for values in zip(*found, strict=True))
