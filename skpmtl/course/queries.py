"""Kinds of query: what a task sends, its bound, the noise, and the wire shape, one class each.

======== ================================================= ==========================
kind     contribution of a task                            sensitivity, replace-one
======== ================================================= ==========================
place    weighted one-hot bins                             root of 2 times the sum of
                                                           squared weights
columns  log scales and centres of columns, in a ball of 1 2
step     deviation from the centre, in a ball of C         2 C
moment   u u' or u * u of a unit deviation u               root of 2
vote     differences of log evidence, in -1 ... 1 and in   2 min(c, root of their
         a ball of c                                       number)
======== ================================================= ==========================

Zero-out: the largest length of one contribution. A class has `answer(tasks, model)`, for
`skpmtl.course.personal.TaskModels` and the model released so far, `bounded(sent)`, which makes
the bound hold whoever sent it, and `query(mu, model)`. How sums become numbers is in
`skpmtl.course.curator`, and in `skpmtl.course.shapes` for moments.
"""

import math

import numpy as np

from ..exchange.protocol import Query
from ..privacy.mechanisms import SymmetricGaussian, VectorGaussian, clip_rows
from ..task.posterior import log_sum, weigh
from ..task.priors import before_kappa, joint

OCTAVE = 40  # bins of octaves run from 2^-40 to 2^40: from an atom in metres to a galaxy
BINS = 2 * OCTAVE
SIGN = math.sqrt(0.5)  # weight of the two cells that count signs, against that of an octave
CLIP_OCTAVES, CLIP_CENTRES = 8.0, 2.0  # root mean squares of log2 scales, of means over spreads
LEVEL_PART = 0.4  # of the length of a step for the level, where tasks of few rows have much of it
VOTE_LENGTH = 2.0  # c: at most four full votes of a task


def _balls(sent, radius):
    sent = np.array(sent, dtype=float)
    clip_rows(sent, radius)
    return sent


class _Statistic:
    """A kind of query under one name, with public numbers that `answer` needs.

    Attributes
    ----------
    name : str
        Of the release, in the report and in the table of shares.
    length : float
        Largest length of a contribution.
    spread : float
        Largest distance of two contributions.
    size : int
        Numbers of a contribution.
    """

    kind = ""

    def __init__(self, name, size, length, spread):
        self.name, self.size, self.length, self.spread = name, int(size), length, spread

    def sensitivity(self, adjacency):
        return self.spread if adjacency == "replace-one" else self.length

    def mechanism(self, adjacency, mu):
        return VectorGaussian(self.size, self.sensitivity(adjacency), mu)

    def total(self, sent):
        """The sum that is released, from bounded contributions (n, size)."""
        return sent.sum(axis=0)

    def query(self, model, mechanism):
        """The question to the tasks; `mechanism` is None without noise."""

        def combine(contributions, positions=None):
            return {self.name: self.total(self.bounded(contributions[self.name]))}

        public = {"question": self, "model": model}
        return Query(self.kind, public, {self.name: mechanism}, combine)


# ------------------------------------------------------------------------------------ place
class _Bins(_Statistic):
    """Weighted one-hot bins in blocks; a block of a contribution adds up to its weight at most."""

    kind = "place"

    def __init__(self, name, sizes, weights):
        self.ends, self.weights = np.cumsum([0, *sizes]), weights
        length = math.sqrt(sum(w * w for w in weights))
        super().__init__(name, self.ends[-1], length, math.sqrt(2.0) * length)

    def bounded(self, sent):
        sent = np.maximum(np.nan_to_num(np.array(sent, dtype=float), posinf=0.0), 0.0)
        for lo, hi, weight in zip(self.ends[:-1], self.ends[1:], self.weights, strict=True):
            total = sent[:, lo:hi].sum(axis=1, keepdims=True)
            sent[:, lo:hi] *= np.minimum(1.0, weight / np.maximum(total, 1e-300))
        return sent

    def one_hot(self, n, blocks):
        """From (which tasks, their bins) of every block."""
        out = np.zeros((n, self.size))
        for first, weight, (which, bins) in zip(self.ends, self.weights, blocks, strict=False):
            out[np.flatnonzero(which), first + bins[which]] = weight
        return out


class Place(_Bins):
    """Octaves of a task's mean and of its spread, and the sign of its mean.

    The two cells of the sign count the tasks with rows.
    """

    def __init__(self):
        super().__init__("place", (BINS, BINS, 2), (1.0, 1.0, SIGN))

    def answer(self, tasks, model):
        s = tasks.summaries
        every = s.n > 0
        blocks = (
            (every, _octave(s.y_mean)),
            (s.y_std > 0, _octave(s.y_std * math.sqrt(2.0))),
            (every, (s.y_mean < 0).astype(int)),
        )
        return self.one_hot(len(s.n), blocks)


class Zoom(_Bins):
    """Bins of a task's mean in the window, in one block for every width."""

    def __init__(self, middle, half, widths):
        self.middle, self.half, self.widths = middle, half, widths
        self.counts = [math.ceil(2.0 * half / width) for width in widths]
        super().__init__("zoom", self.counts, (1.0,) * len(widths))

    def answer(self, tasks, model):
        s, blocks = tasks.summaries, []
        low = self.middle - self.half
        for width, count in zip(self.widths, self.counts, strict=True):
            place = np.clip(np.floor((s.y_mean - low) / width), 0, count - 1).astype(int)
            blocks.append((s.n > 0, place))
        return self.one_hot(len(s.n), blocks)


def _octave(values):
    size = np.maximum(np.abs(values), 1e-300)
    return np.clip(np.floor(np.log2(size)).astype(int) + OCTAVE, 0, BINS - 1)


# ---------------------------------------------------------------------------------- columns
class ColumnScales(_Statistic):
    """log2 of the spreads of columns, and means over spreads, of tasks that have spreads.

    Both halves have length root(1/2) at most. The first is in units of `CLIP_OCTAVES` root(2 d),
    the second of `CLIP_CENTRES` root(2 d).
    """

    kind = "columns"

    def __init__(self, d):
        self.d = d
        super().__init__("columns", 2 * d, 1.0, 2.0)

    def answer(self, tasks, model):
        s = tasks.summaries
        seen = s.x_std > 0
        centres = np.where(seen, s.x_mean / np.where(seen, s.x_std, 1.0), 0.0)
        root = math.sqrt(2.0 * self.d)
        return np.c_[s.log_spread() / (CLIP_OCTAVES * root), centres / (CLIP_CENTRES * root)]

    def bounded(self, sent):
        half = math.sqrt(0.5)
        return np.c_[_balls(sent[:, : self.d], half), _balls(sent[:, self.d :], half)]


# ------------------------------------------------------------------------------------- step
class CentreStep(_Statistic):
    """Posterior deviation of level and slopes from the centre, clipped apart.

    The mean row counts for the level alone here: so the sum of many small steps is closest to what
    an ascent on the evidence would do.
    """

    kind = "step"

    def __init__(self, d, bound, has_place):
        part = LEVEL_PART if has_place else 0.0
        self.d, self.bound = d, bound
        self.radii = part * bound, math.sqrt(1.0 - part * part) * bound
        self.has_place = has_place
        super().__init__("step", d + has_place, bound, 2.0 * bound)

    def answer(self, tasks, model):
        weights = joint(before_kappa(), model.log_sigma, model.log_tau)
        level, slopes = tasks.deviations(model, model.centre, model.root, weights, joined=False)
        return np.c_[level, slopes] if self.has_place else slopes

    def bounded(self, sent):
        if not self.has_place:
            return _balls(sent, self.radii[1])
        return np.c_[_balls(sent[:, :1], self.radii[0]), _balls(sent[:, 1:], self.radii[1])]


# ----------------------------------------------------------------------------------- moment
class Moment(_Statistic):
    """Second moment of unit deviations from the centre `slopes`, under the shape `root`.

    `diagonal`: of the squares alone, as deviations in units of the shape.
    """

    kind = "moment"

    def __init__(self, centre, root, *, diagonal=False):
        self.centre, self.root, self.diagonal = centre, root, diagonal
        super().__init__("moment", len(root), 1.0, math.sqrt(2.0) if len(root) > 1 else 1.0)

    def mechanism(self, adjacency, mu):
        kind = VectorGaussian if self.diagonal else SymmetricGaussian
        return kind(self.size, self.sensitivity(adjacency), mu)

    def answer(self, tasks, model):
        weights = joint(before_kappa(), model.log_sigma, model.log_tau)
        slopes = tasks.deviations(model, self.centre, self.root, weights)[1]
        if self.diagonal:
            slopes = slopes / np.diag(self.root)
        sizes = np.sqrt(sum(slopes[:, j] ** 2 for j in range(slopes.shape[1])))
        return slopes / np.maximum(sizes, 1e-300)[:, None]

    def bounded(self, sent):
        return _balls(sent, 1.0)

    def total(self, sent):
        return (sent**2).sum(axis=0) if self.diagonal else sent.T @ sent


# ------------------------------------------------------------------------------------- vote
class Vote(_Statistic):
    """Differences of log evidence between neighbours in a public path of priors.

    Parameters
    ----------
    name : str
    n_priors : int
        Of the path.
    evidences : callable
        ``evidences(tasks, model) -> (m, n_priors)``, of every prior of the path.
    is_private : bool
        Without a budget nothing is clipped.
    """

    kind = "vote"

    def __init__(self, name, n_priors, evidences, is_private=True):
        self.evidences, self.is_private = evidences, is_private
        length = min(VOTE_LENGTH, math.sqrt(n_priors - 1))
        super().__init__(name, n_priors - 1, length, 2.0 * length)

    def answer(self, tasks, model):
        return np.diff(self.evidences(tasks, model), axis=1)

    def bounded(self, sent):
        sent = np.nan_to_num(np.array(sent, dtype=float))
        return _balls(np.clip(sent, -1.0, 1.0), VOTE_LENGTH) if self.is_private else sent


def total_evidence(tasks, model, centre, root, log_weights):
    """Log evidence of a prior, (m,)."""
    return weigh(tasks.evidence(model, centre, root)[3], log_weights)


def evidence_by(tasks, model, centre, root, log_weights, axis):
    """Log evidence by the cells of one grid, (m, n): 1 of kappa, 2 of sigma, 3 of tau."""
    E = tasks.evidence(model, centre, root)[3] + log_weights
    E = np.moveaxis(E, axis, 1)
    m, n = E.shape[:2]
    return log_sum(E.reshape(m * n, -1)).reshape(m, n)


def of_candidates(by_cell, candidates):
    """Log evidence of priors on one grid, (m, J), from that by its cells (m, n)."""
    J = len(candidates)
    mixed = by_cell[:, None, :] + candidates[None]
    return log_sum(mixed.reshape(-1, mixed.shape[2])).reshape(len(by_cell), J)


__all__ = ["CentreStep", "ColumnScales", "Moment", "Place", "Vote", "Zoom"]
