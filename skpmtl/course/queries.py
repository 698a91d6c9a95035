"""Kinds of query: what a task sends, its bound, the noise, and the wire form, one class each.

======== ================================================= ==========================
kind     contribution of a task                            sensitivity, replace-one
======== ================================================= ==========================
place    weighted bumps about bins; `zoom` and `rates` too root of 2 times the sum of
                                                           squared weights; once those
                                                           of a single bin
base     parts of the rows of a task in the classes but    root of 2.25, and of 1.25
         one, in a ball of 1, and how much these count     of two classes
columns  log scales or centres of columns, in a ball of 1  2
step     deviation from the centre, in a ball of C         2 C
relation the same times a public row of length 1 at most   2 C
factor   deviation of the level, in -1 ... 1, in the block 2
         of a level of the factor above tasks
across   mean deviations of rows by their level of a       2
         factor across tasks, in a ball of 1; once weights
moment   u u' of a unit deviation u                         root of 2
row      squares of what its own model leaves of its rows,  root of 2
squares  and their degrees of freedom, in a ball of 1
vote     differences of log evidence, in -1 ... 1 and in   2 min(c, root of their
         a ball of c                                       number)
======== ================================================= ==========================

Zero-out: the largest length of one contribution. The fields of a class are what travels with the
question. How sums become numbers is in `skpmtl.course.curator`, `skpmtl.course.levels` for places
and `skpmtl.course.shapes` for moments and columns.
"""

import math
from dataclasses import dataclass, fields, replace
from functools import cache
from numbers import Integral, Real
from typing import Annotated, ClassVar, NamedTuple

import numpy as np

from .._runtime.constraints import Interval
from .._runtime.public import Public, annotated, shapes_of
from ..exchange.protocol import Query, QuerySpec
from ..privacy.mechanisms import SymmetricGaussian, VectorGaussian, clip_rows
from ..task.posterior import log_mixtures
from ..task.priors import NEVER, RATIO, Scales
from .billboard import OCTAVE, HierarchicalBillboard, sizes_of
from .personal import ALL, NOTHING

BINS = 2 * OCTAVE
SIGN = math.sqrt(0.5)  # weight of the two cells that count signs, against that of an octave
# Weight of the number of tasks, against that of their rows in a rare class. With half and twice as
# much the log-loss of 14 random tables was .98 and 1.02 times as large at 1, 1.01 and 1.01 at 3.
COUNTED = 0.5
LARGEST_PART = 1e100  # of rows, over the largest that counts; its square is finite
LEVEL_PART = 0.4  # of the length of a step for the level, where tasks of few rows have much of it
WITHIN = 0.25  # of the variance of a row that is taken to be that of its level across tasks
VOTE_LENGTH = 2.0  # c: at most four full votes of a task
MOST_PRIORS = 24  # of a path that is voted on: more than cells of any grid, and than shapes


_TYPES = {float: Real, int: Integral, bool: bool}  # of fields, as in `QuerySpec`


class Sizes(NamedTuple):
    """What shapes on the wire follow from."""

    d: int
    loss: str = "squared"
    n_classes: int = 0
    rank: int = 0  # of a relation
    n_levels: int = 0  # of a factor above tasks
    n_across: int = 0


def _balls(sent, radius):
    sent = np.array(sent, dtype=float)
    clip_rows(sent, radius)
    return sent


@dataclass
class Question:
    """A kind of query, with the public numbers of one of them as fields.

    Further numbers are `size` of the sum, the largest `length` of the part of a task in it, and
    the largest distance of two such parts, `spread`. Types are ``Annotated`` with dimensions of
    arrays, or with the public size that a number is.
    """

    kind: ClassVar[str]  # name of the statistic, of what a task sends, and of the sum
    sends: ClassVar[tuple]  # dimensions of what a task sends, as of `skpmtl._runtime.public`
    reads_model: ClassVar[bool] = True  # whether an answer follows from what was released so far
    length = 1.0
    clipped = True  # false without a budget

    @property
    def spread(self):
        return 2.0 * self.length

    def sensitivity(self, adjacency):
        return self.spread if adjacency == "replace-one" else self.length

    def mechanism(self, adjacency, mu, name=None):
        """Of the sum of this name; most kinds have one."""
        return VectorGaussian(self.size, self.sensitivity(adjacency), mu)

    def answer(self, tasks, model):
        """What tasks send, (m, n_sent), from their `TaskModels` and the released model."""
        raise NotImplementedError

    def bounded(self, sent):
        """The same with the bound of this kind, whoever sent it: by default in a ball of one."""
        return _balls(sent, 1.0) if self.clipped else np.nan_to_num(np.array(sent, dtype=float))

    def total(self, sent):
        """The sum that is released, of bounded contributions."""
        return sent.sum(axis=0)

    def totals(self, sent):
        """Sums by name, of what tasks send, once it is bounded."""
        return {self.kind: self.total(self.bounded(sent))}

    def query(self, model, mechanisms):
        """The question to the tasks, with the mechanisms of its sums, by name; None: no noise."""

        def combine(contributions, positions=None):
            sums = self.totals(contributions[self.kind])
            return {name: sums[name] for name in mechanisms}

        public = {item.name: getattr(self, item.name) for item in fields(self)}
        if self.reads_model:
            public["model"] = model
        return Query(self.kind, public, mechanisms, combine)

    @classmethod
    def of(cls, public):
        """The question of a query, from its public numbers."""
        return cls(**{item.name: public[item.name] for item in fields(cls)})

    @classmethod
    def spec(cls, sizes):
        """What sites answer by this name. -> QuerySpec"""
        named, public = sizes_of(*sizes[:3]) | sizes._asdict(), {}
        for item in fields(cls):
            kind, dims = getattr(item.type, "__origin__", item.type), annotated(cls).get(item.name)
            if not dims:
                public[item.name] = True if item.name == "clipped" else _TYPES.get(kind)
            elif kind is list:
                public[item.name] = *dims, *sizes[:3]
            else:
                public[item.name] = named[dims[0]] if kind is int else shapes_of(dims, named)
        if cls.reads_model:
            public["model"] = HierarchicalBillboard
        (sent,) = shapes_of(cls.sends, named)
        return QuerySpec({cls.kind: (math.prod(sent),)}, public)


# ------------------------------------------------------------------------------------ place
@cache
def bumps(n, clipped):
    """What a task adds to n ordered bins: (n, n), a column of length 1 for each bin it may be in.

    Tasks in neighbouring bins add up, so that a place that none of its bins shows stands out of the
    noise. Without a budget a task adds to its own bin alone.
    """
    away = np.subtract.outer(np.arange(n), np.arange(n))
    found = np.exp(-0.5 * away**2) if clipped else np.eye(n)
    return found / np.linalg.norm(found, axis=0)


class _Bins(Question):
    """Bins in blocks, of which a task has one at most; `weights` are those of the blocks.

    A task sends the number of its bin in every block; what is no such number counts as none. It
    adds a bump about it in blocks whose bins are `in_order`, the first ones, in others one.
    """

    reads_model, in_order = False, 1

    @property
    def size(self):
        return int(sum(self.counts))

    @property
    def length(self):
        return math.sqrt(sum(w * w for w in self.weights))

    @property
    def spread(self):
        """Two tasks are in two bins of a block; of a single bin one of them may be in none."""
        blocks = zip(self.counts, self.weights, strict=True)
        return math.sqrt(sum(w * w * min(count, 2) for count, w in blocks))

    def bounded(self, sent):
        sent = np.array(sent, dtype=float)
        counts = np.zeros(sent.shape[1])
        counts[: len(self.counts)] = self.counts
        return np.where((sent >= 0) & (sent < counts), np.floor(sent), -1.0)

    def total(self, sent):
        blocks = []
        for bins, count, weight in zip(sent.T, self.counts, self.weights, strict=False):
            there = bins[bins >= 0].astype(np.int64)
            adds = bumps(count, self.clipped and len(blocks) < self.in_order)
            blocks.append(weight * (adds @ np.bincount(there, minlength=count)))
        return np.concatenate(blocks)


@dataclass
class Place(_Bins):
    """Octaves of a task's mean and of its spread, and the sign of its mean.

    The two cells of the sign count the tasks with rows. A mean of exactly 0 has no octave: where
    most tasks are 0, as rain and spending are, levels of the others would not be seen.
    """

    kind, sends = "place", (3,)
    counts, weights, in_order = (BINS, BINS, 2), (1.0, 1.0, SIGN), 2
    clipped: bool = True

    def answer(self, tasks, model):
        s = tasks.summaries
        blocks = (
            np.where(s.y_mean != 0, octave(s.y_mean), -1),
            np.where(s.y_std > 0, octave(s.y_std * math.sqrt(2.0)), -1),
            np.where(s.n > 0, s.y_mean < 0, -1),
        )
        return np.stack(blocks, axis=1).astype(float)


@dataclass
class Zoom(_Bins):
    """Bins of a task's mean in the window, for tasks whose mean is there."""

    kind, sends = "zoom", (1,)
    weights = (1.0,)
    middle: float
    half: float
    width: float
    clipped: bool = True

    @property
    def counts(self):
        return [max(math.ceil(2.0 * self.half / self.width), 1)]

    def answer(self, tasks, model):
        s = tasks.summaries
        bins = np.floor((s.y_mean - self.middle + self.half) / self.width)
        return np.where(s.n > 0, bins, -1.0)[:, None]


@dataclass
class Rates(_Bins):
    """Octaves of events per exposure of a task of counts.

    The second block counts the tasks with rows; `by_event`: without and with an event.
    """

    kind, sends = "rates", (2,)
    by_event: bool = False
    clipped: bool = True

    @property
    def counts(self):
        return BINS, 1 + self.by_event

    @property
    def weights(self):
        return 1.0, SIGN / math.sqrt(1.0 + self.by_event)

    def answer(self, tasks, model):
        n = tasks.summaries.n
        rates = octave(np.exp(np.clip(tasks.log_rates(), -300.0, 300.0)))
        some = self.by_event & (tasks.summaries.y_mean > 0)
        blocks = np.where(n > 0, rates, -1), np.where(n > 0, some, -1)
        return np.stack(blocks, axis=1).astype(float)


@dataclass
class Base(Question):
    """Parts of the rows of a task in the classes but one, over `most`, and how much they count.

    Where parts are cut at `most`, because classes are rare, a task of fewer than 1 / `most` rows
    has less weight, so that one row is no more than that, and sends what weight it has. Without
    such a cut these weights count the tasks with rows.
    """

    kind, sends, reads_model = "base", ("n_classes",), False
    size: Annotated[int, "n_classes"]
    left_out: int  # the first class, and later the likeliest one
    most: float = 1.0

    def __post_init__(self):
        if not (0 <= self.left_out < self.size and 0.0 < self.most <= 1.0):
            raise ValueError(
                f"a query of shares leaves out class {self.left_out} of {self.size} and cuts at "
                f"{self.most:.4g}: it needs one of the classes, and a part of one at most."
            )

    @property
    def length(self):
        return math.hypot(1.0, COUNTED)

    @property
    def spread(self):
        return math.sqrt(min(self.size - 1.0, 2.0) + COUNTED**2)

    def answer(self, tasks, model):
        weight = np.minimum(self.most * tasks.summaries.n, 1.0)[:, None]
        shares = np.delete(tasks.class_shares(), self.left_out, axis=1)
        return np.c_[weight / self.most * shares, weight]

    def bounded(self, sent):
        sent = np.clip(np.nan_to_num(np.array(sent, dtype=float)), 0.0, LARGEST_PART)
        sent[:, :-1] = _balls(sent[:, :-1], 1.0)
        sent[:, -1] = COUNTED * np.minimum(sent[:, -1], 1.0)
        return sent


def octave(values):
    size = np.maximum(np.abs(values), 1e-300)
    return np.clip(np.floor(np.log2(size)).astype(int) + OCTAVE, 0, BINS - 1)


# ---------------------------------------------------------------------------------- columns
@dataclass
class ColumnUnits(Question):
    """What is left of log2 spreads of columns about released ones, or of their means.

    The distance of a task's only row from the centre stands for the spread that it does not have.

    In units of `reach` root(d). Means less the released centres are in units of the released
    scales, and taken as asinh(u), which grows with the logarithm of a distance: one column that is
    far from its centre leaves the others most of the ball.
    """

    kind, sends, reads_model = "columns", ("d",), False
    scale: Annotated[np.ndarray, "d"]
    centre: Annotated[np.ndarray, "d"]
    reach: float  # root mean square of what is not clipped
    clipped: bool = True  # false without a budget, where means are taken as they are
    of_means: bool = False
    # The last columns, whose scales are known. Where there are some, the distance from the centre
    # is taken for the spread of all columns that do not vary within a task.
    n_known: int = 0

    @property
    def size(self):
        return len(self.scale)

    @property
    def per_task(self):
        """What a contribution is in units of."""
        return self.reach * math.sqrt(self.size - self.n_known)

    def answer(self, tasks, model):
        s = tasks.summaries
        if self.of_means:
            found = (s.x_mean - self.centre) / self.scale * (s.n > 0)[:, None]
            found = np.arcsinh(found) if self.clipped else found
        else:
            single = self.clipped and not self.n_known
            found = s.log_spread(self.scale, self.centre, single=single)
        found[:, self.size - self.n_known :] = 0.0
        return found / self.per_task

    def means(self, found, noise, n):
        """Means over n tasks, as large as any may be, and the noise of each of them."""
        each = self.per_task / n
        found = found * each
        return np.clip(found, -OCTAVE, OCTAVE) if self.clipped else found, noise * each

    def distance(self, mean):
        """In scales, of a mean over tasks."""
        return np.sinh(mean) if self.clipped else mean


# ------------------------------------------------------------------------------------- step
@dataclass
class CentreStep(Question):
    """Posterior deviation of level and slopes from the centre, clipped apart.

    Of real targets the mean row counts for the level alone: so the sum of many small steps is
    closest to what an ascent on the evidence would do. Of scores the steps are those of EM: rows of
    counts may depend on outcomes, as times at risk do, and centred rows alone would be biased.
    Levels are in `level_unit` units, as far as they are apart; 0 where they do not move: without a
    place, where they are not pooled, and of classes, whose levels are shares. Where slopes are
    known to be equal, level and slopes are their scores, the derivatives of log evidence. Weights
    of scales are those about an earlier centre, `near`. Without slopes the whole step is that of
    the level.
    """

    kind = "step"
    sends: ClassVar[tuple] = ("centre",)
    near: Annotated[np.ndarray, "centre"]
    clip_norm: float
    level_unit: float
    with_slopes: bool = True

    @property
    def size(self):
        return self.near.size if self.with_slopes else self.near[..., 0].size

    @property
    def length(self):
        return self.clip_norm

    def answer(self, tasks, model):
        level, slopes = tasks.pull(model, model.centre, self.near)
        level = level / self.level_unit if self.level_unit else 0.0 * level
        both = np.concatenate([level[..., None], slopes], axis=-1)
        return both.reshape(len(both), -1)

    def bounded(self, sent):
        part, n = LEVEL_PART * (self.level_unit > 0), len(sent)
        every = np.asarray(sent).reshape(n, -1, self.near.shape[-1])
        if not self.with_slopes:
            return _balls(every[..., 0], self.clip_norm)
        level = _balls(every[..., 0], part * self.clip_norm)
        radius = math.sqrt(1.0 - part * part) * self.clip_norm
        slopes = _balls(every[..., 1:].reshape(n, -1), radius).reshape(every[..., 1:].shape)
        return np.concatenate([level[..., None], slopes], axis=2).reshape(n, -1)


@dataclass
class RelationStep(CentreStep):
    """As `CentreStep`, for the models that follow from covariates: see `skpmtl.tables.relation`.

    A task multiplies its deviation by its public row b, of length 1 at most, so that the bound is
    the same.
    """

    kind, sends = "relation", ("rank", "centre")
    rank: Annotated[int, "rank"] = 1

    @property
    def size(self):
        return self.rank * self.near.size

    def answer(self, tasks, model):
        deviation = super().answer(tasks, model)
        rows = model.relation.weights(tasks.tasks)
        return (rows[:, :, None] * deviation[:, None]).reshape(len(deviation), -1)


@dataclass
class FactorStep(Question):
    """Posterior deviation of the level of a task, in the place of its level of the factor.

    In units of `level_unit` and clipped at one; `size` is the number of levels.
    """

    kind, sends = "factor", ("n_levels",)
    size: Annotated[int, "n_levels"]
    level_unit: float
    clipped: bool = True

    def answer(self, tasks, model):
        level, _ = tasks.pull(model, model.centre, model.centre)
        return model.above.factor.indicators(tasks.tasks) * (level / self.level_unit)[:, None]


@dataclass
class AcrossStep(Question):
    """Mean deviations of the rows of a task, for every level of a factor across tasks.

    With n_j the information of the rows of level j, the mean of level j counts by

        a_j = n_j / root(sum_i n_i ((1 - f) + n_i f)),      f = `WITHIN`,

    so that a vector a_j times means over their standard deviation has a length of about one,
    whatever the numbers of rows and of levels are: each mean has the variance (1 - f) / n_i of its
    rows and f of its level, in units of the whole.
    """

    kind, sends = "across", ("n_across",)
    size: Annotated[int, "n_across"]  # number of levels
    row_unit: float  # standard deviation that rows of information one are taken to have
    # The numbers a_j themselves, times root(f), with which their length is one at most
    of_rows: bool = False
    clipped: bool = True  # false without a budget, where sums over rows are sent as they are

    def answer(self, tasks, model, some=slice(None)):
        first, last, _ = some.indices(len(tasks.tasks))
        shape, rows = (last - first, self.size), slice(*tasks.offsets[[first, last]])
        level = model.across.factor.of(tasks.row_levels, rows)
        known = level >= 0
        cells = ((tasks.codes[rows] - first) * self.size + level)[known]

        def by_cell(values):
            sums = np.bincount(cells, values[rows][known], minlength=math.prod(shape))
            return sums.reshape(shape)

        deviations, information = tasks.row_deviations(model)
        n = by_cell(information)
        if not self.clipped:
            return n if self.of_rows else by_cell(information * deviations)
        weight = 1.0 / np.sqrt(np.maximum((n * (1.0 - WITHIN + n * WITHIN)).sum(axis=1), 1e-300))
        if self.of_rows:
            return math.sqrt(WITHIN) * weight[:, None] * n
        return (weight / self.row_unit)[:, None] * by_cell(information * deviations)


class Exact(Question):
    """A kind of query without a budget only. It has no bound."""

    def bounded(self, sent):
        return sent


@dataclass
class ExactStep(Exact):
    """Score and information of the centre."""

    kind = "exact step"
    log_kappa: np.ndarray  # log weights of the scale of slopes
    # Of a relation, for those of the models that follow from covariates, too. The centre of a task
    # is its row (1, v) times all of them, where the constant is left out of v, so that its score
    # and information are Kronecker products of this row and those of its own centre.
    rank: int = 1

    def answer(self, tasks, model, some=slice(None)):
        score, info = tasks.information(model, model.scales(self.log_kappa), some)
        rows = np.ones((len(score), 1))
        if self.rank > 1:
            own = model.relation.rows(tasks.tasks[some])
            rows = np.concatenate([rows, own[:, 1:]], axis=1)
        return np.concatenate([score, info.reshape(len(score), -1), rows], axis=1)

    def total(self, sent):
        n = sent.shape[1] - self.rank
        D = math.isqrt(n)
        score, info, rows = sent[:, :D], sent[:, D:n], sent[:, n:]
        pairs = (rows[:, :, None] * rows[:, None]).reshape(len(rows), -1)
        info = (pairs.T @ info).reshape(self.rank, self.rank, D, D).transpose(0, 2, 1, 3)
        return np.concatenate([(rows.T @ score).reshape(1, -1), info.reshape(self.rank * D, -1)])


@dataclass
class ExactEvidence(Exact):
    """Log evidence of the rows of a task, about what the others say of the centre."""

    kind = "exact evidence"

    def answer(self, tasks, model):
        return tasks.evidence_apart(model)[:, None]


@dataclass
class LevelSums(Exact):
    """Where slopes are taken to be equal: what restricted likelihood needs of the tasks.

    See `skpmtl.task.posterior.LevelRows.products`.
    """

    kind = "level sums"
    ratio: float  # variance of levels over that of a row

    def answer(self, tasks, model, some=slice(None)):
        w, products, slopes = tasks.level_products(model, self.ratio, some)
        sums = np.stack([tasks.summaries.n[some], w, w * w], axis=1)
        parts = (part.reshape(len(w), -1) for part in (products, slopes))
        return np.concatenate([sums, *parts], axis=1)

    @staticmethod
    def parts(total, size):
        """-> sums of n, w and w^2, products and minus their derivative (size, size)"""
        return *total[:3], *total[3:].reshape(2, size, size)


@dataclass
class SlopeScores(LevelSums):
    """How much slopes differ, from scores at a fit in which they are equal.

    With u = X' V^-1 r of a task and C = X' V^-1 X, in coordinates in which the mean of C is the
    identity, every task sends A = u u' - C and the square of its size. Where slopes vary by K, the
    mean of A is K, and it is zero where they are equal (Rao's score).
    """

    kind = "slope scores"
    # (d + 2,), what makes a residual, over the standard deviation of a row, of (1, x, y)
    residual: np.ndarray
    whiten: np.ndarray  # (d, d)

    def answer(self, tasks, model, some=slice(None)):
        _, products, _ = tasks.level_products(model, self.ratio, some)
        u = (products[:, 1:-1] @ self.residual) @ self.whiten.T
        A = u[:, :, None] * u[:, None] - self.whiten @ products[:, 1:-1, 1:-1] @ self.whiten.T
        A = A.reshape(len(A), -1)
        return np.c_[np.sum(A * A, axis=1), A]


# ----------------------------------------------------------------------------------- moment
@dataclass
class Moment(Question):
    """Second moment of unit deviations from `centre`, in units of the shape `root`."""

    kind, sends = "moment", ("outputs", "d")
    centre: Annotated[np.ndarray, "centre"]
    root: Annotated[np.ndarray, "d", "d"]
    related: int = ALL  # of the models that follow from covariates

    @property
    def size(self):
        return len(self.root)

    @property
    def spread(self):
        return math.sqrt(2.0) if len(self.root) > 1 else 1.0

    def mechanism(self, adjacency, mu, name=None):
        return SymmetricGaussian(self.size, self.sensitivity(adjacency), mu)

    def answer(self, tasks, model):
        known = model.scales(), self.related
        slopes = tasks.deviations(model, self.centre, self.root, *known)[1]
        slopes = np.matmul(slopes[..., None, :], np.linalg.inv(self.root).T)
        slopes = slopes.reshape(len(slopes), -1)  # of all classes, as one vector
        sizes = np.sqrt(sum(slopes[:, j] ** 2 for j in range(slopes.shape[1])))
        return slopes / np.maximum(sizes, 1e-300)[:, None]

    def total(self, sent):
        sent = sent.reshape(-1, len(self.root))
        return sent.T @ sent


# ------------------------------------------------------------------------------------- vote
_AXES = None, "kappa", "sigma", "tau", "ratio"


@dataclass
class Part(Public):
    """Evidence of a centre and a shape by cells of a grid, as a part of the priors of a path."""

    centre: Annotated[np.ndarray, "centre"]
    root: Annotated[np.ndarray, "d", "d"]
    # Log weights of the grids; zeros on that which the vote compares
    log_kappa: Annotated[np.ndarray, "kappa"]
    log_sigma: Annotated[np.ndarray, "sigma"]
    log_tau: Annotated[np.ndarray, "tau"]
    # 0: one cell, the whole grid; or cells of one of `_AXES`; the ratio is of a factor below tasks
    axis: int
    # Log weights of the cells in every prior of the path; `NEVER` where they are no part of it
    path: Annotated[np.ndarray, range(2, MOST_PRIORS + 1), "cells"]
    # What of the models that follow from covariates counts: `NOTHING`, `LEVELS` or `ALL`
    related: int = ALL
    far: float = 0.0  # share of rows with far more noise than the others, see `skpmtl.task.far`

    constraints = {
        "axis": [Interval(Integral, 0, 4, closed="both")],
        "related": [Interval(Integral, NOTHING, ALL, closed="both")],
        "far": [Interval(Real, 0, 1, closed="left")],
    }

    def declared(self, d, loss="squared", n_classes=0):
        sizes = sizes_of(d, loss, n_classes) | {"tau": len(self.log_tau), "ratio": len(RATIO)}
        sizes["cells"] = (1, *(sizes[name] for name in _AXES[1:]))[self.axis]
        return self.arrays(sizes)

    def cells(self, tasks, model):
        """Log evidence of every cell, (m, n_cells)."""
        grids = model.tau, model.kappa, model.sigma
        by = _AXES[self.axis]
        log_ratio = np.zeros(len(RATIO)) if by == "ratio" else model.log_ratio
        scales = Scales(self.log_kappa, self.log_sigma, self.log_tau, *grids, log_ratio).possible()
        model = replace(model, far=self.far)
        found = tasks.evidence(model, self.centre, self.root, scales, by, self.related)
        return found if self.axis else found[:, None]


def alone(place, n_priors):
    """The path of a part that has one cell, and is one prior of a path."""
    path = np.full((n_priors, 1), NEVER)
    path[place] = 0.0
    return path


def separate(parts):
    """The parts of a path of which each is one prior."""
    return [replace(part, path=alone(j, len(parts))) for j, part in enumerate(parts)]


@dataclass
class Vote(Question):
    """Differences of log evidence between neighbours in a public path of priors.

    The evidence of a prior is that of a mixture of the cells of all parts, by their log weights.
    `clipped`: False without a budget.
    """

    kind, sends = "vote", (MOST_PRIORS - 1,)
    parts: Annotated[list, Part]
    clipped: bool = True

    @property
    def size(self):
        return len(self.parts[0].path) - 1

    @property
    def length(self):
        return min(VOTE_LENGTH, math.sqrt(self.size))

    def answer(self, tasks, model):
        cells = np.concatenate([part.cells(tasks, model) for part in self.parts], axis=1)
        path = np.concatenate([part.path for part in self.parts], axis=1)
        sent = np.zeros((len(cells), MOST_PRIORS - 1))
        sent[:, : self.size] = np.diff(log_mixtures(cells, path), axis=1)
        return sent

    def bounded(self, sent):
        sent = np.nan_to_num(np.array(sent[:, : self.size], dtype=float))
        return _balls(np.clip(sent, -1.0, 1.0), VOTE_LENGTH) if self.clipped else sent


PLACES: dict[str, tuple[type[Question], ...]] = {
    "squared": (Place, Zoom),
    "huber": (Place, Zoom),
    "poisson": (Rates,),
    "classes": (Base,),
}
BOUNDED: tuple[type[Question], ...] = (ColumnUnits, CentreStep, Moment, Vote)
_EVERY: list[type[Question]] = [
    *(*BOUNDED, RelationStep, FactorStep, AcrossStep),
    *(ExactStep, ExactEvidence, LevelSums, SlopeScores),
    *(Place, Zoom, Rates, Base),
]
KINDS = {kind.kind: kind for kind in _EVERY}


def query_specs(sizes):
    """What a site answers. -> {statistic: QuerySpec}"""
    kinds = [*PLACES["classes" if sizes.n_classes else sizes.loss], *BOUNDED]
    more = (RelationStep, sizes.rank), (FactorStep, sizes.n_levels), (AcrossStep, sizes.n_across)
    kinds += [kind for kind, number in more if number]
    return {kind.kind: kind.spec(sizes) for kind in kinds}
