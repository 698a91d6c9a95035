"""Hidden groups of tasks: centres of their models, from a few noisy sums.

**One statistic.** A task has responsibilities r_j >= 0 with sum_j r_j <= 1 over K centres (the rest
is of no group) and vectors v_j of length 1 at most, and contributes for all j

    x = (b r_j, a r_j v_j),   a^2 + b^2 = 1,   b >= a.

Its square is sum_j r_j^2 (b^2 + a^2 |v_j|^2) <= 1, and that of a difference of two tasks
|x|^2 + |x'|^2 - 2 <x, x'>, where

    <x, x'> = sum_j r_j r'_j (b^2 + a^2 <v_j, v'_j>) >= (b^2 - a^2) sum_j r_j r'_j >= 0.

The sum over tasks has sensitivity sqrt(2) for replace-one, 1 for zero-out, whatever K and the
number of features; the counts cost nothing, since signed vectors alone (b = 0) have 2. With r
one-hot over a public net it is a histogram (b^2 = 3/4), with the posterior of a task an EM round
(b^2 = 1/2).

**Course** (`GroupSearch`). The size of models in the span of a moment; a histogram over a net of
that span, whose weighted k-means are starting points for every K; the number K by a vote on
evidence; a vote on the spread about the centres, in which groups must beat all structures that were
found before; rounds of directions about the centres, in all features, whose step tasks vote on, and
of levels. Where models show no direction, or no groups, these may differ in their levels alone: the
net is then a line, on which the level of a task less that of the pooled model lies.
Who belongs to which group a task computes from its own rows (`skpmtl.engine.members`): it is never
sent.
"""

import math
from dataclasses import dataclass, replace
from functools import cache
from numbers import Real

import numpy as np
from scipy.special import logsumexp

from .._runtime.compat import Interval
from .._runtime.public import Public
from ..local.prior import SNR
from ..privacy.mechanisms import std_of
from ..tables.table import row_products
from .levels import OCTAVES, octaves_of
from .votes import Tally, sum_of_differences

MOST_GROUPS, MOST_DIRECTIONS = 12, 8
NUMBERS = (12, 8, 6, 4, 3, 2)  # of groups, in the order of the vote
MOST_CELLS = 20 * MOST_DIRECTIONS + 1
_CELLS = {1: 2, 2: 12, 3: 32}  # of a net, but for 0; else 20 a direction
_COUNTS_OF_CELLS = 0.75  # b^2
IN_GROUPS = 0.9  # prior weight of being in a group
# Spreads about a centre: whether the shape is that of the structures, else even, and centre and
# spread of log10(snr). The last one stands in before the vote.
SPREADS = (
    (True, 0.5, 0.6),
    (False, 0.5, 0.6),
    (False, -0.5, 0.6),
    (False, -1.5, 0.6),
    (False, -1.0, 1.0),
)
_OF_CLASSES = 1.0  # that log10(snr) of two classes is less: a row counts a quarter at most
_LEAST_SPREAD, _USED_SHAPE = 0.02, 0.05  # weights
STEPS = np.array([0.0, 0.05, 0.1, 0.2, 0.35, 0.6, 1.0, 1.6, 2.5, 4.0])
_PRIOR_OF_STEPS = np.where(STEPS > 0, -0.5 * np.log(np.maximum(STEPS, 0.02) / 0.35) ** 2, -2.0)
_LINE = 17  # points of the net of levels
_LINE_SPREAD = 0.03  # as _NET_SPREAD
# Spreads of levels in which a level lies about that of a group, and about the pooled one.
_REACH_OF_LEVEL, _REACH_OF_ALL, _LEAST_REACH = 2.0, 3.0, 0.25
_LEVELS_IN_CELLS = 0.25  # length of a level
_DRIFT = 0.05  # of the levels of groups over the pooled spread, in every round
_SHARE_OF_LEVELS = 0.1  # of the square of a vector
# Spreads of levels about those of groups over the pooled one.
LEVEL_SPREADS = (1.0, 0.5, 0.25, 0.12, 0.06, 0.03)
_CENTRE = 0.2  # of the size, within which a model is in the cell of 0
_SEEN, _OF_TASKS = 3.0, 0.04  # std, and part of the tasks, that a bin of sizes has at least
_NET_SIZE, _NET_SPREAD = 0.7, 0.15  # prior of the mean of a cell
_FULL = 1.5  # std from which a cell counts
_SURE = 0.15  # nats a task, without noise, with which chance is clear as well
_TELLS = 0.08  # of the tasks, which the noise of a vote on joined centres is at most
_CLEAR, _ENOUGH, _HELD = 2.0, 0.5, 7.0  # see `GroupSearch.find`


@dataclass(eq=False)
class Groups(Public):
    """Centres of groups, as a prior w ~ sum_j pi_j N(c_j, kappa s^2 M_i) over spreads i."""

    centres: np.ndarray  # (K, d), c_j
    # (K,), released numbers of tasks, noise and all; pi_j is in their proportion
    counts: np.ndarray
    spreads: np.ndarray  # (5,), weights of `SPREADS`
    moment: np.ndarray  # (d, d), shape of the first of them, of trace 1; the others have I / d
    # (K,), intercepts of the centres; None: levels are pooled over all groups
    levels: np.ndarray | None = None
    level_spread: float | None = None  # standard deviation of the levels of tasks about these
    # whether the level of a task at its mean row is about that of the centre there, and not
    # about that of the pooled slopes
    along_centres: bool = False
    # whether groups differ in their levels alone, and slopes are those of the structures
    levels_alone: bool = False

    added = ("levels", "level_spread", "along_centres", "levels_alone")
    constraints = {
        "level_spread": [Interval(Real, 0, None, closed="neither"), None],
        "along_centres": ["boolean"],
        "levels_alone": ["boolean"],
    }

    @classmethod
    def none(cls, d):
        return cls(np.zeros((0, d)), np.zeros(0), np.eye(5)[4], np.eye(d) / d)

    @property
    def log_weights(self):
        """log pi_j."""
        parts = np.maximum(self.counts, 1e-3 * max(self.counts.max(), 1e-300))
        return np.log(parts / parts.sum())

    def even_scales(self, classes=False):
        """Logarithms of the prior weights of `SNR` with an even shape; -inf where there is none."""
        with np.errstate(divide="ignore"):
            logs = [
                np.log(w) + scales(i, classes)
                for i, w in enumerate(self.spreads)
                if not SPREADS[i][0]
            ]
        return logsumexp(logs, axis=0)

    def of(self, which):
        """A copy with some of the centres."""
        levels = None if self.levels is None else self.levels[which]
        return replace(self, centres=self.centres[which], counts=self.counts[which], levels=levels)

    def parts(self, membership, level):
        """Shares of tasks, and the `Level` that theirs are about, of all groups and of none."""
        if self.levels is None or level is None:
            return []
        return list(zip(membership.T, [*self.own_levels(level), level], strict=True))

    def reach(self, level):
        """Largest distance of a level from that of a group which a task sends."""
        return _REACH_OF_LEVEL * max(self.level_spread, _LEAST_REACH * level.spread)

    def own_levels(self, level):
        """`Level` of every group."""
        return [
            replace(
                level,
                intercept=float(b),
                spread=self.level_spread,
                coef=c if self.along_centres else level.coef,
            )
            for b, c in zip(self.levels, self.centres, strict=True)
        ]

    def joined(self, scale=1.0):
        """Copies with one centre less each: the pair of the least sum of squares.

        Down to two, or where groups differ in their levels alone to one, which is no group.

        scale : float
            Of features, with which slopes are as large as levels.
        """
        joins, groups = [], self
        while len(groups.counts) > (1 if self.levels_alone else 2):
            n = groups.counts
            c = scale * groups.centres
            if groups.levels is not None:
                c = np.column_stack([c, groups.levels])
            cost = ((c[:, None] - c) ** 2).sum(axis=2) / (1.0 / n + 1.0 / n[:, None])
            cost[np.diag_indices(len(n))] = np.inf
            i, j = np.unravel_index(cost.argmin(), cost.shape)
            counts = np.delete(n, j)
            counts[i] += n[j]
            groups = replace(
                groups,
                centres=_joined(groups.centres, n, i, j),
                counts=counts,
                levels=None if groups.levels is None else _joined(groups.levels, n, i, j),
            )
            joins.append(groups)
        return joins

    def declared(self, d):
        """See `skpmtl.exchange.wire`."""
        K = len(self.counts)
        w, have_levels = np.clip(self.spreads, 0.0, 1.0), self.levels is not None
        if K > MOST_GROUPS or (w != self.spreads).any() or abs(w.sum() - 1.0) > 1e-6:
            raise ValueError("its groups are too many, or their spreads do not sum to 1")
        if have_levels != (self.level_spread is not None):
            raise ValueError("levels of groups need a spread")
        if self.levels_alone and not have_levels:
            raise ValueError("groups that differ in their levels alone need levels")
        if have_levels:
            yield "levels of groups", self.levels, [(K,)]
        yield "centres of groups", self.centres, [(K, d)]
        yield "counts of groups", self.counts, [(K,)]
        yield "spreads of groups", self.spreads, [(len(SPREADS),)]
        yield "the moment of groups", self.moment, [(d, d)]


@cache
def scales(i, classes=False):
    """Logarithms of the prior weights of `SNR` of a spread, of sum 1."""
    _, centre, width = SPREADS[i]
    centre -= _OF_CLASSES if classes else 0.0
    logs = -0.5 * ((np.log10(SNR) - centre) / width) ** 2
    return logs - logsumexp(logs)


@cache
def net(k):
    """Public points of R^k: 0, and unit vectors as far apart as a few steps of repulsion make.

    k = 0: points from -1 to 1, for levels.
    """
    if k == 0:
        return np.linspace(-1.0, 1.0, _LINE)[:, None]
    n = _CELLS.get(k, 20 * k)
    if k == 1:
        return np.array([[0.0], [1.0], [-1.0]])
    if k == 2:
        angle = 2.0 * np.pi * np.arange(n) / n
        return np.vstack([np.zeros(2), np.column_stack([np.cos(angle), np.sin(angle)])])
    P = np.random.default_rng(0).normal(size=(n, k))
    P /= np.linalg.norm(P, axis=1, keepdims=True)
    for _ in range(100):
        push = (2.0 - 2.0 * P @ P.T + 3.0 * np.eye(n)) ** -1.5  # over cubes of distances
        push = P * push.sum(axis=1, keepdims=True) - push @ P
        P = P + 0.8 * n ** (-2.0 / (k - 1) - 1.0) * push
        P /= np.linalg.norm(P, axis=1, keepdims=True)
    return np.vstack([np.zeros(k), P])


def cells_of(Z, size, away):
    """What tasks send of their models in the span, (n, k), and of their levels: cell of the net of
    the span, and of Z / size and `away`, (n,), numbers of length 1 at most, (n, 10)."""
    k, out = Z.shape[1], np.zeros((len(Z), 2 + MOST_DIRECTIONS))
    P, u, w = net(k), Z / size, _LEVELS_IN_CELLS if k else 1.0
    length = np.linalg.norm(u, axis=1)
    away = np.clip(away, -1.0, 1.0)
    if k:
        out[:, 0] = np.where(length < _CENTRE, 0, 1 + row_products(u, P[1:].T).argmax(axis=1))
    else:
        out[:, 0] = np.rint(0.5 * (_LINE - 1) * (away + 1.0))
    out[:, 1 : 1 + k] = math.sqrt(1.0 - w * w) * u / np.maximum(length, 1.0)[:, None]
    out[:, -1] = w * away
    return out


# ------------------------------------------------------- sums of bounded contributions
def sum_of_reaches(contributions, positions=None):
    """Tasks whose size is in every octave, (80,): one that is not finite in none."""
    return {"reach": octaves_of(np.abs(contributions["reach"]), OCTAVES)}


def sum_of_cells(contributions, positions=None):
    """Counts, and sums of u, of all cells, (161 * 10,), of (cell, u): the statistic above with
    b^2 = 3/4. One that is not finite, or in no cell, counts as 0."""
    sent = np.array(contributions["cells"], dtype=float)
    good = np.isfinite(sent).all(axis=1)
    cell = np.where(good, sent[:, 0], -1.0)
    good &= (cell >= 0) & (cell < MOST_CELLS)
    x = np.where(good[:, None], sent, 0.0)
    x[:, 0] = good
    cell = np.where(good, cell, 0).astype(int)
    out = np.zeros((MOST_CELLS, x.shape[1]))
    np.add.at(out, cell, _bounded(x[:, None], _COUNTS_OF_CELLS)[:, 0])
    return {"cells": out.ravel()}


def sum_of_groups(contributions, positions=None):
    """Sums of responsibilities, and of these times directions and levels, of all centres,
    (12 * (d + 2),): the statistic above with b^2 = 1/2. One that is not finite counts as 0."""
    sent = np.array(contributions["groups"], dtype=float)
    x = sent.reshape(len(sent), MOST_GROUPS, -1)
    x[~np.isfinite(sent).all(axis=1)] = 0.0
    return {"groups": _bounded(x, 0.5).sum(axis=0).ravel()}


def _bounded(x, share):
    """(b r_j, a r_j v_j) of (r_j, r_j v_j), (n, K, 1 + k), made to be within bounds; in place."""
    r, u = x[..., 0], x[..., 1:]
    np.clip(r, 0.0, 1.0, out=r)
    # 1 + 1e-12: rounding must not push a contribution over the bound.
    r /= np.maximum(r.sum(axis=1, keepdims=True), 1.0) * (1.0 + 1e-12)
    np.clip(u, -1.0, 1.0, out=u)
    length = np.sqrt(np.einsum("nkj,nkj->nk", u, u))
    u *= np.where(length > r, r / np.maximum(length, 1e-300), 1.0)[..., None]
    x[..., 0] *= math.sqrt(share)
    u *= math.sqrt(1.0 - share)
    return x


# ------------------------------------------------------------------- after a release
def size_of(counts, std, n_tasks):
    """Upper edge of the highest octave near the fullest one that stands out."""
    top = int(counts.argmax())
    least = max(_SEEN * std, _OF_TASKS * n_tasks)
    high = max(j for j in range(top, min(top + 5, OCTAVES)) if j == top or counts[j] > least)
    return 2.0 ** (high + 1 - OCTAVES // 2)


def starts_of(released, k, std, numbers):
    """Centres and levels in units of their sizes, (K, k) and (K,), and shares, (K,), for every K,
    from `sum_of_cells`.

    Weighted k-means of the cells that stand out, each at its mean, which where noise is large is
    shrunk towards its point of the net; levels towards 0. k = 0: k-means of levels.
    """
    from sklearn.cluster import KMeans  # which takes long to import

    P, b = net(k), math.sqrt(_COUNTS_OF_CELLS)
    w = _LEVELS_IN_CELLS if k else 1.0
    net_size, net_spread = (_NET_SIZE, _NET_SPREAD) if k else (1.0, _LINE_SPREAD)
    S = released.reshape(MOST_CELLS, -1)[: len(P)]
    a = math.sqrt(1.0 - b * b)
    n, levels = S[:, 0] / b, S[:, -1] / (a * w)
    sums = S[:, 1 : 1 + k] / (a * math.sqrt(1.0 - w * w)) if k else levels[:, None]
    noise, spread = std / b, std / (a * (math.sqrt(1.0 - w * w) if k else w))
    used = n > _FULL * noise
    size = np.maximum(n, 1e-9)[:, None]
    variance = (spread / size) ** 2
    x = sums / size * net_spread**2 + net_size * P * variance
    x /= net_spread**2 + variance
    x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1.0)
    x, weight, starts = x[used], np.maximum(n - noise, 0.0)[used], []
    most = len(np.unique(x, axis=0))
    for K in numbers:
        if K <= most:
            means = KMeans(K, n_init=10, random_state=0).fit(x, sample_weight=weight)
            share, centres = np.bincount(means.labels_, weight, K), means.cluster_centers_
            held, cells = (np.bincount(means.labels_, v[used], K) for v in (n, np.ones(len(n))))
            own = np.bincount(means.labels_, levels[used], K) / np.maximum(held, 1e-9)
            unsure = cells * (std / (a * w * np.maximum(held, 1e-9))) ** 2
            prior = max(np.mean(own**2 - unsure), 0.0)
            own = np.clip(own * prior / np.maximum(prior + unsure, 1e-300), -1.0, 1.0)
            if not k:
                centres, own = np.zeros((K, 0)), centres[:, 0]
            starts.append((centres, own, share / share.sum()))
    return starts


class GroupSearch:
    """Groups of one fit, from query to query.

    `course` has `plan`, `m`, `billboard`, and generators ``query(share, statistic, words,
    mechanism, combine, **public)``, see `skpmtl.engine.curator`. `groups` are None before `find`
    has found some, `outcome` is for the report, `rank` that of the span, `size` and `least` are of
    models in it and two std of the noise of a count of the last round, and `doubt` (K,) has
    variances of the levels of groups, None before the first round.
    """

    def __init__(self, course):
        self.course, self.groups, self.outcome = course, None, "not looked for"
        self.rank = self.size = self.least = 0
        self.doubt = None

    def find(self, shares, share_of_levels, spectrum, moment, centre, snr):
        """Groups in the span of the directions that stand out, about a public centre (d,).

        They are taken where the evidence of all tasks, less the numbers of the centres (Akaike), is
        `_CLEAR` std above that of the structures so far (`_SURE` nats a task without noise), and a
        spread of the shape of the structures is not clearly likelier than an even one: such centres
        cover what is no group. K is the largest number with `_ENOUGH` of the best evidence whose
        groups hold `_HELD` std of a count: poor starting points of many groups are better, once
        refined, than good ones of few.

        `shares` are four, of size, cells, number and spread; `share_of_levels` is for cells of
        levels, where models have no groups. `moment` (d, d) is the shape of the prior so far, and
        `snr` the centre and spread of log10(snr) of models under it.
        """
        course, k = self.course, min(spectrum.rank, MOST_DIRECTIONS)
        self.outcome = "none"
        if not k:
            yield from self._find_levels(shares[1], shares[2], (shares[3], 0.5), moment)
            return  # with the whole share of cells
        U = np.ascontiguousarray(spectrum.Q[:, -k:])
        public = {
            "moment": moment,
            "basis": U,
            "centre": centre,
            "snr_centre": snr[0],
            "snr_spread": snr[1],
        }
        mechanism = course.plan.group_sum(shares[0], OCTAVES)
        words = "histogram of the sizes of models in the span, by octaves"
        counts = yield from course.query(
            shares[0], "reach", words, mechanism, sum_of_reaches, **public
        )
        size = size_of(counts, std_of(mechanism), course.m)
        mechanism = course.plan.group_sum(shares[1], MOST_CELLS * (2 + MOST_DIRECTIONS))
        words = "counts and sums of models by cells of a public net of the span"
        level = course.billboard.level
        reach = _REACH_OF_ALL * level.spread
        released = yield from course.query(
            shares[1],
            "cells",
            words,
            mechanism,
            sum_of_cells,
            size=size,
            level=level,
            reach=reach,
            **public,
        )
        candidates = [
            Groups(
                centre + size * c @ U.T,
                course.m * share,
                np.eye(5)[4],
                moment,
                level.intercept + reach * b,
                level.spread,
            )
            for c, b, share in starts_of(
                released, k, max(std_of(mechanism), 0.5), course.plan.numbers
            )
        ]
        if candidates:
            best = yield from self._number(shares[2], candidates, k + 1.0)
            likely, std = yield from self._spread((shares[3], 0.5), best)
            likely[1:] -= len(best.counts) * (k + 1.0)
            even, shaped = likely[2:].max(), likely[1]
            clear = _CLEAR * std if std else _SURE * course.m
            if max(even, shaped) > likely[0] + clear and even > shaped - clear:
                self.groups, self.size = self._with_spread(best, likely, std), size
                self.rank = k
                return
        last = (shares[3], 0.25)
        yield from self._find_levels(share_of_levels, last, last, moment)

    def _find_levels(self, cells, number, spread, moment):
        """Groups that differ in their levels alone, in these budget shares."""
        course, level = self.course, self.course.billboard.level
        if level.has_least_spread:  # one group would be narrower, too
            return
        mechanism = course.plan.group_sum(cells, MOST_CELLS * (2 + MOST_DIRECTIONS))
        words = "counts and sums of levels by cells of a public line"
        reach, d = _REACH_OF_ALL * level.spread, course.d
        released = yield from course.query(
            cells,
            "cells",
            words,
            mechanism,
            sum_of_cells,
            size=1.0,
            level=level,
            reach=reach,
            moment=moment,
            basis=np.zeros((d, 0)),
            centre=np.zeros(d),
            snr_centre=0.0,
            snr_spread=1.0,
        )
        noise = max(std_of(mechanism), 0.5)
        candidates = [
            Groups(
                np.tile(level.coef, (len(b), 1)),
                course.m * share,
                np.eye(5)[4],
                moment,
                level.intercept + reach * b,
                0.25 * level.spread,
                levels_alone=True,
            )
            for _, b, share in starts_of(released, 0, noise, course.plan.numbers)
        ]
        if not candidates:
            return
        best = yield from self._number(number, candidates, 1.0)
        each = [replace(best, level_spread=level.spread * w) for w in LEVEL_SPREADS]
        tally = yield from self._vote(spread, each, "spread of levels", bare=True)
        likely = (tally.total - tally.total[0])[1:]
        top = int(likely.argmax())
        # Noise of each difference from the first one adds up.
        clear = _CLEAR * tally.std * math.sqrt(top + 1.0) or _SURE * course.m
        if likely[top] - len(best.counts) > clear:
            self.groups = each[top]

    def _number(self, share, candidates, of_centre):
        """-> the groups that tasks vote for; `of_centre`: numbers of a centre, as a penalty"""
        course, sizes = self.course, np.array([len(g.counts) for g in candidates])
        tally = yield from self._vote(share, candidates, "number of groups", bare=True)
        net_gain = (tally.total - tally.total[0])[1:] - sizes * of_centre
        least = max(tally.std, _ENOUGH * net_gain.max())
        held = course.m / sizes > _HELD * course.plan.std_of_group
        able = np.flatnonzero((net_gain > least) & held)
        return candidates[able[0] if len(able) else int(net_gain.argmax())]

    def round(self, share, share_of_step):
        """Move the centres along the mean directions of models from them, as far as tasks vote,
        and their levels to the mean levels."""
        course, groups, d = self.course, self.groups, self.groups.centres.shape[1]
        mechanism = course.plan.group_sum(share, MOST_GROUPS * (d + 2))
        words = "counts and sums of directions and levels of models about the centres of groups"
        S = yield from course.query(
            share,
            "groups",
            words,
            mechanism,
            sum_of_groups,
            billboard=course.billboard,
            groups=[groups],
        )
        S = S.reshape(MOST_GROUPS, d + 2)[: len(groups.counts)]
        std, b = std_of(mechanism), math.sqrt(0.5)
        of_slopes, of_levels = parts_of_vector(groups)
        n, D, L = S[:, 0], S[:, 1:-1], S[:, -1]
        counts = np.maximum(n / b, 0.5 * std + 1e-9)
        reach = groups.reach(course.billboard.level)
        unit, able = reach / (of_levels * np.maximum(n, 1e-9)), n > 2.0 * std
        move, noise = np.clip(unit * L, -reach, reach), (unit * std) ** 2
        drift = (_DRIFT * course.billboard.level.spread) ** 2
        if self.doubt is None:
            seen = np.mean((move**2 - noise)[able]) if able.any() else 0.0
            self.doubt = np.full(len(n), max(seen, drift))
        trust = able * self.doubt / (self.doubt + noise)
        self.doubt = (1.0 - trust) * self.doubt + drift
        groups = replace(groups, levels=groups.levels + trust * move)
        step, along = 0.0, 0.0
        if not groups.levels_alone:
            squares = np.maximum((D**2).sum(axis=1), 1e-300)
            shrunk = np.maximum(0.0, 1.0 - d * std**2 / squares) * (n > 2.0 * std)
            along = D * (shrunk / (of_slopes * np.maximum(n, 1e-9)))[:, None]
            along /= np.maximum(np.linalg.norm(along, axis=1, keepdims=True), 1.0)
            moved = [replace(groups, centres=groups.centres + a * self.size * along) for a in STEPS]
            tally = yield from self._vote(share_of_step, moved, "step of the centres")
            step = float(tally.weights(_PRIOR_OF_STEPS) @ STEPS)
        centres = groups.centres + step * self.size * along
        self.groups = replace(groups, centres=centres, counts=counts)
        self.least = 2.0 * std / b

    def spread_of_levels(self, share):
        """How far levels are from those of their groups, and whether these go along the centres."""
        groups, pooled = self.groups, self.course.billboard.level.spread
        each = [replace(groups, level_spread=pooled * w) for w in reversed(LEVEL_SPREADS)]
        first = len(each) - 1
        if not groups.levels_alone:  # neighbours are alike
            each += [replace(g, along_centres=not g.along_centres) for g in reversed(each)]
        tally = yield from self._vote(share, each, "spread of levels about groups")
        gain = tally.total - tally.total[first]
        gain -= tally.std * np.sqrt(np.abs(np.arange(len(gain)) - first))
        self.groups = each[int(gain.argmax())]

    def finish(self, share, share_of_spread):
        """Fewer centres where several are of one group, and the spread about them as they are.

        Without those that may be empty; then the smallest number within one std of the best, of
        centres that are joined two by two, where a vote tells one group from two. A number that
        is public stays. None where one group that differs in its level alone is left.
        """
        if len(self.course.plan.numbers) > 1:
            kept = self.groups.counts > self.least
            groups = self.groups.of(kept if kept.any() else slice(None))
            joined = [groups, *groups.joined(self.course.scale)]
            noise = std_of(self.course.plan.evidence(share))
            if len(joined) > 1 and noise < _TELLS * self.course.m:
                tally = yield from self._vote(share, joined, "number of centres")
                sizes = np.array([len(g.counts) for g in joined])
                gain = tally.total - sizes * (self.rank + 1.0)
                groups = joined[np.flatnonzero(gain >= gain.max() - tally.std)[-1]]
            self.groups = groups
        if not self.groups.levels_alone:
            likely, std = yield from self._spread(share_of_spread, self.groups)
            self.groups = self._with_spread(self.groups, likely, std)
        elif len(self.groups.counts) == 1:
            self.groups = None
            return
        yield from self.spread_of_levels(share)
        self.outcome = f"{len(self.groups.counts)} found"

    def _spread(self, share, groups):
        """-> log-likelihoods of no groups and of each of the first four spreads, their std"""
        each = [replace(groups, spreads=np.eye(5)[i]) for i in range(4)]
        tally = yield from self._vote(share, each, "spread about groups", bare=True)
        return tally.total - tally.total[0], tally.std

    @staticmethod
    def _with_spread(groups, likely, std):
        logs = likely[1:] / max(1.0, std)
        w = np.exp(logs - logsumexp(logs))
        w[1:] = np.maximum(w[1:], _LEAST_SPREAD)
        w[0] *= w[0] > _USED_SHAPE
        return replace(groups, spreads=np.append(w / w.sum(), 0.0))

    def _vote(self, share, candidates, what, bare=False):
        """`Tally` of candidates; with `bare` after the structures without groups."""
        course = self.course
        mechanism = course.plan.evidence(share)
        words = f"sum of clipped differences of log evidence, by {what}"
        released = yield from course.query(
            share,
            "mixtures",
            words,
            mechanism,
            sum_of_differences("mixtures"),
            billboard=course.billboard,
            bare=bare,
            groups=candidates,
        )
        return Tally(released, std_of(mechanism), len(candidates) + bare)


def parts_of_vector(groups):
    """Lengths of the directions and of the levels that a task sends."""
    share = 1.0 if groups.levels_alone else _SHARE_OF_LEVELS
    return math.sqrt(1.0 - share), math.sqrt(share)


def _joined(values, counts, i, j):
    """Of centres i < j, of so many tasks, the mean in the place of i."""
    merged = np.delete(values, j, axis=0)
    merged[i] = (counts[i] * values[i] + counts[j] * values[j]) / (counts[i] + counts[j])
    return merged
