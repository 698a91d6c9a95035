"""The curator of several structures: votes, moments, and the rounds of a mean.

Without levels (`_Course.find`):

1. Every task fits alone, and votes for a scale (`_Course.vote`).
2. The second moment of the directions of their models is released. Its eigenvalues, shrunk by the
   known noise, are a subspace; its diagonal, shrunk, is a choice of features.
3. A mean lies in the span of the top eigenvectors. A few numbers give its direction in that span,
   and a histogram of sizes its length. Where noise hides all directions a mean may still be
   visible, since it is fewer numbers than a moment: the rounds of step 5 then begin at 0.
4. The tasks vote: their shares and scales, structure by structure.
5. Where enough tasks follow the mean, rounds of clipped updates improve it, the tasks vote again,
   and a moment of directions about each task's own centre follows. Otherwise the second moment is
   released again, with better directions.
6. The tasks vote on the structures so far.

The length of the mean is that of most models. Where these have no common length it is in lengths
of each task's own model, which the task knows (`Evidence.units`).

All releases are in budget shares that are fixed before the fit, see `StructurePlan`. The shares of
a mean that is not there pay for further releases of the moment and the last vote, which are
averaged.

With levels (`_Course.with_levels`) the mean is that of a pooled model, whose rounds come first
(`skpmtl.engine.pooled`), in a window of levels from a histogram:

1. Rounds of the pooled model; a vote.
2. The moment of directions of models alone. Where tasks have few rows they vote on its rank and its
   floor. A vote, and a *comparison* of the structures with pooled slopes with those without: the
   sum of clipped differences of log evidence, which says more than shares where tasks know little.
3. Where the comparison favours pooled slopes, further rounds, and a moment about own centres.
   Otherwise further moments, and a vote on the floor of the sparse shape, and on it against the
   low-rank one; or, with few rows, blocks of directions that refine the first moment
   (`skpmtl.engine.refine`).
4. A vote, a second comparison, and two numbers: the noise of a row, and the spread of levels.

With groups, where the first moment shows a direction of models, or of models about the pooled one,
one more query sharpens it. Groups are then looked for in its span (`skpmtl.engine.groups`); where
they are found, they take the rest of the budget.
"""

import math
from dataclasses import replace
from functools import cached_property

import numpy as np

from ..exchange.protocol import Query
from ..exchange.sums import clipped_sum
from ..local.prior import VOTE_RANGE, VOTE_SPREAD
from ..privacy.mechanisms import std_of
from ..privacy.moments import (
    LEAST_NOISE,
    DriftingAverage,
    sampling_variance,
    shrink_diagonal,
    shrink_matrix,
    sum_of_directions,
)
from ..privacy.report import exact_report
from .billboard import COMMON, FAMILIES, WEIGHTS, Structure, StructureBillboard, alone
from .columns import scales_of, sum_of_columns
from .groups import Groups, GroupSearch
from .levels import (
    OF_VOTE,
    REACH,
    Level,
    log_window_of,
    release_spread,
    release_window,
    scale_of,
    sum_of_octaves,
    sum_of_scales,
)
from .plan import GROUP_SHARES, SIZE_BINS, name_and_fraction
from .refine import Refinement, read_rivals
from .residuals import WORDS, released_residuals, sum_of_shares
from .spectrum import RIVAL_FLOORS, Spectrum, sum_of_blocks
from .votes import Tally, sum_of_differences

PLAIN = "the structures were found without noise (epsilon=None)"
_CLEAR = 2.0  # standard deviations of its squared length from which it is one
_FULL_BINS = 4.0  # standard deviations above which bins of sizes are not empty
_FOLLOWED, _FEWEST = 0.1, 0.3  # share of the votes from which a mean has rounds
_STEP = 0.5  # length that a round counts in, as a fraction of that of the first mean
# Released shares become weights as far as their noise is below _VOTE_NOISE, and to a power: where
# single tasks determine little, a share is little more than the weight that was given. It is
# _CLEAR_VOTE over the noise, within _POWERS. A structure keeps the fraction _LEAST of its weight.
_VOTE_NOISE, _CLEAR_VOTE, _POWERS, _LEAST = 0.15, 0.06, (2.0, 6.0), 0.01
_TINY = 1e-3
_FEW_TASKS = 10.0
_DOUBT, _MOST_ODDS = 1.5, math.log(50.0)  # std of a comparison that do not count, and its most
_ODDS_OF_ALONE = 1.5  # of the odds of a mean that going alone has as well, with exact moments
_HALF_OF_COMPARISON = ("comparison 2", 0.5)  # of a moment, and of the vote on shapes
_PATH, _FURTHER_PATH = 0.1, 0.05  # of the rounds of the pooled model, see `bounds_of`
_STEP_OF_GROUPS = ("refine", 0.1)  # three votes of a block round, and seven of groups
_LEVELS_OF_GROUPS = ("refine", 0.1)  # cells of levels, where models have no groups
_NO_SCALE = 1.0, 0.67  # of log10(snr), before any was released


def release_structures(population, plan, source, log=None, ending=None):
    """The curator of a fit, see `skpmtl.exchange`. -> StructureBillboard

    `source` is for the report, which names it. `ending` generates further queries of a course, and
    may replace its billboard.
    """
    course = _Course(population, plan, log)
    if plan.budget_shares:
        yield from course.run()
    if ending is not None:
        yield from ending(course)
    billboard = course.billboard
    if billboard.mean is not None:
        slopes, b = np.split(billboard.mean, [-course.plan.n_outputs])
        billboard.mean = np.append(billboard._of_columns(slopes), b)
    if plan.asks_for_groups and billboard.groups is None:
        billboard.groups = Groups.none(course.d)
    billboard.take_init(plan.public_init)
    billboard.loss = plan.loss
    billboard.report = exact_report(PLAIN)
    if plan.private:
        billboard.report = plan.report(source, (course.made, billboard.shares, course.notes()))
    return billboard


class _Course:
    """One fit, from query to query; `billboard` holds all releases so far."""

    def __init__(self, population, plan, log):
        self.plan, self.log = plan, log
        self.tasks = population.tasks
        self.m, self.d, C = population.n_tasks, population.n_features, population.n_outputs
        self.shape = (self.d,) if C == 1 else (C, self.d)  # of a model
        self.billboard = StructureBillboard.empty(self.m, *self.shape)
        self.made = []  # (budget share, statistic, mechanism) of all releases
        self.spent = {}  # mu^2 by budget share
        self.average, self.size_of_moment = DriftingAverage(), self.d * (self.d + 1) / 2
        # Typical length of models, the mean, and moments about it.
        self.length = self.centre = self.about = None
        # Of levels; the pooled model in its unit, and the scale of features.
        self.window, self.theta, self.scale = None, None, 1.0
        self.offset = np.zeros(self.d)  # of scaled columns, in the rounds of the pooled model
        self.floor_of_shape = 1.0  # of the sparse one, times the floor as it is
        self.pooled_bounds = []  # and the std of the noise, of the rounds of the pooled model
        self.other_budget_shares = {}
        self.pays_for_columns = False  # whether their scales have taken their budget share
        self.fraction_of_levels = 1.0  # of the budget share of levels, that one query of them takes

    def run(self):
        yield from self.find()
        window = self.window or self.plan.public_window
        if self.plan.with_residuals and self.billboard.mean is not None and window is not None:
            yield from self.residuals(window[1])

    def find(self):
        """Structures and levels, and the mean model."""
        if self.plan.levels:
            self.window = self.plan.public_window or (yield from self.find_window())
            if self.window is not None:
                yield from self.with_levels()
                return
            self.other_budget_shares = self.plan.without_window
        yield from self.vote("vote 1")
        if self.plan.structures == ("mean",):
            yield from self.mean_alone()
        else:
            yield from self.moments()
        if self.plan.mean:
            yield from self.mean_model()

    def mean_alone(self):
        """Rounds from 0, and no moments: the models are known to lie around a mean."""
        yield from self.sizes()
        if self.length is None:
            self.take_own_units()
        self.centre = np.zeros(self.shape)
        yield from self.rounds("main")
        self.rebuild()
        yield from self.vote("vote 2")

    def budget_share(self, name):
        """Budget share of a query, as of `name_and_fraction`; None where the plan has none."""
        share = self.other_budget_shares.get(name, name)
        return share if name_and_fraction(share)[0] in self.plan.budget_shares else None

    def moments(self):
        release = yield from self.moment("moment 1")
        if self.budget_share("moment 3"):
            release = _pooled([release, (yield from self.moment("moment 3"))])
        hidden = False
        if self.budget_share("direction"):
            asked = yield from self.direction(release[0])
            hidden = not asked and self.hidden(*release)
            if hidden:
                yield from self.sizes()
                hidden = self.length is not None
            elif not asked:  # for sizes
                release = _pooled([release, (yield from self.moment("size"))])
        self.average.add(*release, self.size_of_moment)
        votes = [share for share in ("vote 2", "vote 3", "vote 4") if self.budget_share(share)]
        if hidden:
            self.centre = np.zeros(self.shape)
        else:
            self.rebuild()
            yield from self.vote(votes.pop(0))
        if self.budget_share("main"):
            left = [share for share in ("main", "moment 2") if self.budget_share(share)]
            if hidden or self.mean_is_followed():
                yield from self.rounds(left.pop(0))
                self.rebuild()
                yield from self.vote(*votes[:-1])
                votes = votes[-1:]
            releases = []
            for share in left:
                releases.append((yield from self.moment(share)))
            (self.about or self.average).add(*_pooled(releases), self.size_of_moment)
            self.rebuild()
            yield from self.vote(*votes)

    def notes(self):
        """Notes of the report on levels, columns and groups."""
        notes = {"levels": self.levels_found(), "scales of columns": self.columns_found()}
        if self.billboard.own_units:
            notes["unit of the mean"] = (
                "the length of each task's own model: these lengths have no common bin"
            )
        if self.plan.asks_for_groups:
            notes["groups"] = self.search.outcome
            if not self.plan.groups:
                notes["groups"] += f": {self.plan.no_groups}"
            elif self.window is None:
                notes["groups"] += ": no window of levels stood out"
            elif "moment 1" not in self.spent:
                notes["groups"] += ": the budget allows for no moment"
        return notes

    def columns_found(self):
        """Note of the report on the scales of columns."""
        if not self.plan.scales_columns:
            why = "counts and classes" if self.plan.log_loss else "free levels, or one column"
            return f"as they come: not looked at with {why}"
        if self.window is None:
            return "as they come: no window of levels stood out"
        scale = self.billboard.column_scale
        if scale is None:
            return "as they come: no scales of their own were found"
        return f"of their own, from {scale.min():.3g} to {scale.max():.3g}"

    def levels_found(self):
        """Note of the report on levels."""
        level = self.billboard.level
        if level is None:
            if self.plan.lacks_range:
                return "free: too few tasks for the budget; with target_range= they are pooled"
            looked = self.plan.levels and self.plan.budget_shares
            return "free: no window stood out" if looked else "free: not looked for"
        middle, unit = self.window
        within = "" if self.plan.log_loss else f", in {middle:.4g} +- {unit:.3g}"
        return f"pooled about {level.intercept:.4g}, spread {level.spread:.3g}{within}"

    # -------------------------------------------------------------------- with levels
    def with_levels(self):
        plan = self.plan
        if plan.scales_columns:
            yield from self.find_columns()
        if "scale" in plan.budget_shares and self.billboard.column_scale is None:
            mechanism = plan.scale("scale")
            words = "histogram of the scales of features, by octaves"
            counts = yield from self.query("scale", "scale", words, mechanism, sum_of_scales)
            self.scale = self.half * scale_of(counts, std_of(mechanism), self.m)
        left = 1.0 - self.spent.get("pooled", 0.0) / plan.mu_of("pooled") ** 2
        yield from self.pooled_rounds(("pooled", left), _PATH)
        self.rebuild()
        yield from self.vote("vote 1")
        if "moment 1" in plan.budget_shares:
            yield from self.moments_with_levels()
        else:
            yield from self.comparison("comparison 1")
        yield from self.level()

    @property
    def half(self):
        """Divisor of the features in the rounds of the pooled model: 2 with noise, which then
        counts for less in the slopes; 1 for classes, whose slopes would leave the path of the
        rounds."""
        return 2.0 if self.plan.private and not self.plan.log_loss else 1.0

    def find_columns(self):
        """Scales of the columns, where most tasks say that they differ by orders of magnitude."""
        plan, words = self.plan, "sum of votes on whether columns differ by orders of magnitude"
        mechanism = plan.number("columns", REACH)
        total = yield from self.query(
            "columns", "columns", words, mechanism, clipped_sum("columns", REACH)
        )
        if not total[0] > 0.0:
            return
        mechanism = plan.column_scales(plan.columns_from)
        counts = yield from self.query(
            plan.columns_from,
            "octaves",
            "histograms of the scales of columns, by octaves",
            mechanism,
            sum_of_columns,
        )
        self.pays_for_columns = plan.private
        scales = scales_of(counts, std_of(mechanism), self.m)
        if scales is None:
            return
        self.billboard = replace(self.billboard, column_scale=scales)
        self.scale = self.half
        if not (plan.private or plan.is_sparse):
            words = "mean of the means of scaled columns"
            self.offset = yield from self.query(
                "columns",
                "offset",
                words,
                None,
                lambda sent, at=None: {"offset": sent["offset"].sum(axis=0)},
                self.m,
            )

    def moments_with_levels(self):
        """A moment of models alone; a comparison of the pooled slopes with the structures that it
        shows; and further queries about the winner."""
        plan = self.plan
        self.keep("alone")  # a mean that nobody has would be in all directions
        release = yield from self.moment("moment 1")
        self.average.add(*release, self.size_of_moment)
        if plan.few_rows:
            yield from self.sharpen(("rank", "floor", "rival"), refine=True)
        self.rebuild()
        yield from self.vote("vote 2")
        about = False  # more evidence for the pooled slopes than against them, clear or not
        if "comparison 1" in plan.budget_shares:
            about = (yield from self.comparison("comparison 1")) > 0.0
        taken = self.pays_for_columns and plan.columns_from[0]
        left = [share for share in ("main", "moment 2") if share != taken]
        if about:
            self.about_centre()
        elif plan.few_rows and "rank" not in self.spent and self.hidden(*release):
            more = yield from self.moment(left.pop(0))
            self.average = DriftingAverage(*_pooled([release, more]))
            yield from self.sharpen(("rank", "floor", "rival"), refine=True)
        blocks, odds = self.refined.spectrum is not None and not about, None
        if plan.groups and (yield from self.groups(left, blocks, about)):
            return
        if about and not plan.looks_once:
            yield from self.pooled_rounds(left.pop(0), _FURTHER_PATH)
            if left:  # no moment about own centres is known yet
                self.about_centre()
        if blocks and left:
            fraction = (0.6 if plan.groups else 1.0) / (3.0 * len(left))
            for share in left:
                votes = [("refine", fraction)] * 3
                yield from self.refined.block_round(share, votes)
        else:
            if not about and "comparison 2" in plan.budget_shares:
                left.append(_HALF_OF_COMPARISON if plan.compares_shapes else "comparison 2")
            if "refine" in plan.budget_shares:
                left += [("refine", 0.4 if plan.groups else 2.0 / 3.0)]
            releases = []
            for share in left:
                releases.append((yield from self.moment(share)))
            if releases:
                (self.about or self.average).add(*_pooled(releases), self.size_of_moment)
            if _HALF_OF_COMPARISON in left:
                odds = yield from self.compare_shapes(_HALF_OF_COMPARISON)
            if plan.few_rows and not about:
                fraction = 0.125 if plan.groups else 1.0 / 6.0
                yield from self.sharpen([("refine", fraction)] * 2)
        self.rebuild()
        yield from self.vote("vote 3")
        if odds is not None:
            self.multiply_weights({"sparse": 0.5 * odds, "low-rank": -0.5 * odds})
        elif "comparison 2" in plan.budget_shares and "comparison 2" not in left:
            yield from self.comparison("comparison 2")

    def groups(self, left, blocks, about):
        """Groups about the pooled slopes, or about 0, after one more look at the moment.

        -> whether there are some, which then have what is left of the budget.
        """
        average = self.about if about else self.average
        shows = self.spectrum_of(average).rank > 0
        if shows and len(left) == 2:
            share = left.pop(0)
            if blocks:
                yield from self.refined.block_round(share, [_STEP_OF_GROUPS] * 3)
            else:
                average.add(*(yield from self.moment(share)), self.size_of_moment)
        if shows and self.plan.few_rows and not (blocks or about):
            yield from self.sharpen([_STEP_OF_GROUPS] * 2)
        known = {s.name: s for s in self.billboard.structures}
        self.rebuild()
        self.billboard = replace(
            self.billboard,
            structures=[
                replace(known.get(s.name, s), centre=s.centre, moment=s.moment)
                for s in self.billboard.structures
            ],
        )
        spectrum = self.refined.spectrum
        if about or spectrum is None or not shows:
            spectrum = self.spectrum_of(average)
        shape = self.shrunk(average)
        if self.refined.spectrum is not None and not about:
            shape = self.refined.moment
        centre = self.centre if about else np.zeros(self.d)
        self.fraction_of_levels = 0.5
        yield from self.level()
        yield from self.search.find(
            GROUP_SHARES, _LEVELS_OF_GROUPS, spectrum, shape, centre, self.snr(about)
        )
        if self.search.groups is None:
            return False
        rounds = [(share, 0.5) for share in left for _ in range(2)]
        rounds += ["comparison 2"] if "comparison 2" in self.plan.budget_shares else []
        for i, share in enumerate([*rounds, "vote 3"]):
            yield from self.search.round(share, _STEP_OF_GROUPS)
            if i == 0:
                yield from self.search.spread_of_levels(_STEP_OF_GROUPS)
        yield from self.search.finish(_STEP_OF_GROUPS, (GROUP_SHARES[3], 0.5))
        self.billboard = replace(self.billboard, groups=self.search.groups)
        return True

    def spectrum_of(self, average):
        return Spectrum.of(average.value, *self.refined.noise(average.variance, self.d))

    def find_window(self):
        """Middle and half-width of most levels; None where none stands out."""
        plan = self.plan
        if plan.log_loss:  # of counts
            mechanism, words = plan.window("window"), "histogram of the levels of tasks, octaves"
            counts = yield from self.query("window", "window", words, mechanism, sum_of_octaves)
            middle = log_window_of(counts, std_of(mechanism), self.m)
            return None if middle is None else (middle, 1.0)
        histogram = plan.window(("window", 1.0 - OF_VOTE))
        vote = plan.inside(("window", OF_VOTE))
        return (yield from release_window(self.query, histogram, vote, plan.zooms(), self.m))

    def pooled_rounds(self, share, path_fraction):
        """Rounds of the pooled model, from where it is."""
        middle, unit = self.window
        relation, to, shape = self.plan.relation, None, (1, self.d + 1)
        if relation is not None:
            to, shape = relation.weights(self.tasks), (relation.rank, self.d + 1)
        theta = np.zeros(shape) if self.theta is None else self.theta
        bounds, updates, noise = self.plan.bounds_of_pooled(share, path_fraction), [], []
        for t, bound in enumerate(bounds):
            mechanism = self.plan.pooled(share, float(bound), len(bounds))
            self.pooled_bounds.append((float(bound), std_of(mechanism)))
            words = f"mean of clipped updates of the pooled model, round {t + 1} of {len(bounds)}"
            combine = clipped_sum("pooled", bound, to, shape)
            update = (
                yield from self.query(
                    share,
                    "pooled",
                    words,
                    mechanism,
                    combine,
                    self.m,
                    theta=theta,
                    clip_norm=float(bound),
                    middle=middle,
                    unit=unit,
                    scale=self.scale,
                    offset=self.offset,
                )
            ).reshape(shape)
            if relation is not None:
                update = self.m * update
                noise.append(np.full(shape[0], self.m * std_of(mechanism)))
            updates.append(update)
            theta = theta + update
        self.theta, of_all = theta, theta[0]
        if relation is not None:  # a model of the mean of the covariates stands for all
            theta = self.plan.shrunk(np.array(updates), theta, np.array(noise))
            models = np.column_stack([unit / self.scale * theta[:, 1:], unit * theta[:, 0]])
            models[:, -1] += middle * relation.of_constant
            of_all = relation.rows(self.tasks).mean(axis=0) @ theta
            self.billboard = replace(self.billboard, related=models)
        self.centre, self.level_of_all = unit / self.scale * of_all[1:], of_all[0]

    def comparison(self, share):
        """Weigh structures with pooled slopes, and with a mean, against those without.

        -> the released sum of the first difference

        A task sends (log((e^A + e^B) / 2) - C, A - B), each clipped to +-1, for the log mean
        evidence A, B and C of `FAMILIES`. What is beyond `_DOUBT` std of the noise in the sums
        multiplies the weights of the families.
        """
        mechanism = self.plan.comparison(share)
        words = "sum of two clipped differences of log evidence, of families of structures"
        sums = yield from self.query(
            share, "comparison", words, mechanism, sum_of_comparisons, billboard=self.billboard
        )
        beyond = np.abs(sums) - _DOUBT * std_of(mechanism)
        both, one = np.sign(sums) * np.clip(beyond, 0.0, _MOST_ODDS)
        powers = (both + 0.5 * one, both - 0.5 * one, 0.0)
        factors = {name: p for p, family in zip(powers, FAMILIES, strict=True) for name in family}
        # That most tasks are about a mean says nothing of tasks unlike all others.
        exact_moments = not self.plan.private and "low-rank" in self.plan.structures
        factors["alone"] = (_ODDS_OF_ALONE if exact_moments else 0.5) * max(both, 0.0)
        self.multiply_weights(factors)
        return float(sums[0])

    def multiply_weights(self, logs):
        """By factors whose logarithms are given by name."""
        structures = self.billboard.structures
        weights = np.array([s.weight * math.exp(logs.get(s.name, 0.0)) for s in structures])
        weights /= weights.sum()
        self.billboard = replace(
            self.billboard,
            structures=[
                replace(s, weight=float(w)) for s, w in zip(structures, weights, strict=True)
            ],
        )

    def compare_shapes(self, share):
        """The floor of the sparse shape, by a vote. -> log odds of it against the low-rank one

        Models of few rows leave a floor in the moment, which further moments lower slowly.
        """
        lowrank = (
            self.shrunk(self.average) if self.refined.spectrum is None else self.refined.moment
        )
        priors = [lowrank, *self.shapes_by_floor()]
        released, std = yield from self.vote_on_evidence(share, priors, "shape")
        odds, self.floor_of_shape = read_rivals(Tally(released, std, len(priors)))
        return math.copysign(min(max(abs(odds) - _DOUBT * std, 0.0), _MOST_ODDS), odds)

    def keep(self, name):
        """Leave one structure, until they are found again."""
        kept = [replace(s, weight=1.0) for s in self.billboard.structures if s.name == name]
        self.billboard = replace(self.billboard, structures=kept)

    def about_centre(self):
        """Take directions of models less their centres from now on, and leave of the moments so
        far the part orthogonal to the pooled slopes."""
        self.billboard = replace(self.billboard, about_centre=True)
        t = self.centre / max(float(np.linalg.norm(self.centre)), 1e-300)
        P = np.eye(self.d) - np.outer(t, t)
        self.about = DriftingAverage(P @ self.average.value @ P, self.average.variance)

    def level(self):
        """The noise of a row and the spread of levels about the pooled model."""
        middle, unit = self.window
        window = None if self.plan.log_loss else unit
        level = Level(
            float(middle + unit * self.level_of_all - self.centre @ self.offset),
            self.centre.copy(),
            window,
            pooled=self.plan.all_pooled,
        )
        fraction = self.fraction_of_levels
        if window is None:
            noise, spread = None, self.plan.evidence(("spread", fraction))
        else:
            noise = spread = self.plan.number(("spread", 0.5 * fraction), REACH)
        level = yield from release_spread(
            self.query, self.billboard, level, ("spread", noise), ("spread", spread), self.m
        )
        self.billboard = replace(self.billboard, level=level)
        if self.plan.mean:
            mean = np.append(level.coef, level.intercept)
            self.billboard = replace(self.billboard, mean=mean)

    # ----------------------------------------------------------------------- few rows
    def vote_on_evidence(self, share, priors, what):
        """-> sum of clipped differences of log evidence, std of its noise"""
        mechanism = self.plan.evidence(share)
        words = f"sum of clipped differences of log evidence, by {what}"
        released = yield from self.query(
            share,
            "evidence",
            words,
            mechanism,
            sum_of_differences("evidence"),
            priors=priors,
            snr_centre=self.snr()[0],
        )
        return released, std_of(mechanism)

    def block(self, share, moment, basis, rank):
        """-> sum of u u' of directions inside and outside of the subspace, its variance"""
        mechanism, (centre, spread) = self.plan.moment(share), self.snr()
        words = "sum of u u', unit directions inside and outside of the subspace"
        S = yield from self.query(
            share,
            "block",
            words,
            mechanism,
            sum_of_blocks,
            snr_centre=centre,
            snr_spread=spread,
            moment=moment,
            basis=basis,
            rank=rank,
        )
        return S, _variance(mechanism)

    def snr(self, about=False):
        """Centre and spread of log10(snr), as released of the low-rank models, else alone."""
        known = {s.name: s.scale for s in self.billboard.structures}
        scale = known.get("mean and low-rank" if about else "low-rank", known["alone"])
        return _NO_SCALE if scale.centre is None else scale

    def sharpen(self, shares, refine=False):
        average, rivals = self.average, ()
        if "sparse" in self.plan.structures:
            rivals = self.shapes_by_floor()
        return self.refined.sharpen(average.value, average.variance, shares, rivals, refine)

    def residuals(self, half):
        """Distances of targets from the mean model, in a window of this half-width."""
        mechanism = self.plan.residuals("residuals")
        sums = yield from self.query(
            "residuals", "residuals", WORDS, mechanism, sum_of_shares, mean=self.billboard.mean
        )
        released = released_residuals(sums, mechanism, self.m, 2.0 * half)
        self.billboard = replace(self.billboard, residuals=released)

    # ------------------------------------------------------------------------ queries
    def query(self, share, statistic, words, mechanism, combine, divide=1.0, **public):
        """-> what is released of one statistic, in a budget share that has that much left"""
        share, _ = name_and_fraction(share)
        if mechanism is not None:
            self.spent[share] = self.spent.get(share, 0.0) + mechanism.mu**2
            if self.spent[share] > self.plan.mu_of(share) ** 2 * (1.0 + 1e-9):
                raise RuntimeError(f"the budget share {share!r} has no budget left")
        if self.plan.scales_columns:
            scale = self.billboard.column_scale
            public["column_scale"] = np.ones(self.d) if scale is None else scale
        reply = yield Query(statistic, public, {statistic: mechanism}, combine, divide)
        released = reply[statistic]
        if mechanism is not None:
            # A new billboard: what was asked before must not change under those who remember it.
            releases = [*self.billboard.releases, released]
            self.billboard = replace(self.billboard, releases=releases)
            self.made.append((share, words, mechanism))
            if self.log is not None:
                self.log(len(self.made), mechanism.noise_std)
        return released

    def vote(self, *shares):
        """Vote on the weights of the structures, and on their scales.

        A task sends (p, p * snr), p its shares and snr in -1 ... 1 its scales. With the released
        means D and N of the two, N_j / D_j is the scale of the tasks that follow j. Where noise
        hides it, the scale of all tasks is taken.
        """
        structures, J = self.billboard.structures, len(self.billboard.structures)
        words, releases = "mean of shares of structures, and of these times scales", []
        for share in map(self.budget_share, shares):
            mechanism = self.plan.vote(share)
            released = yield from self.query(
                share, "vote", words, mechanism, sum_of_votes, self.m, billboard=self.billboard
            )
            releases.append((released, _variance(mechanism)))
        released, variance = _pooled(releases)
        std = math.sqrt(variance)
        place = [self.plan.names.index(s.name) for s in structures]
        D, N = np.split(released, 2)
        D, N = D[place], N[place]
        low, high = VOTE_RANGE[self.plan.log_loss]
        middle, reach = 0.5 * (low + high), 0.5 * (high - low)
        pooled = middle + reach * float(np.clip(N.sum(), -1.0, 1.0))
        # The scale of a structure is about half of `VOTE_SPREAD` away from that of all.
        pooled_noise = math.hypot(reach * std * math.sqrt(J), 0.5 * VOTE_SPREAD)
        prior = self.weights([s.name for s in structures])
        trust = _VOTE_NOISE**2 / (_VOTE_NOISE**2 + std**2) if J > 1 else 0.0
        odds = np.maximum((1.0 - trust) * prior + trust * D, _TINY) / prior
        weight = prior * odds ** np.clip(_CLEAR_VOTE / max(std, _TINY), *_POWERS)
        weight = np.maximum(weight / weight.sum(), _LEAST * prior)
        weight /= weight.sum()
        voted = []
        for s, share, number, w in zip(structures, D, N, weight, strict=True):
            # Tasks that another structure fits as well have a small p, and prefer other scales
            # here: for the weight beyond the share, their scales there are taken.
            fraction = max(w - share, 0.0) / max(1.0 - share, _TINY)
            size = max(share + fraction * (D.sum() - share), _TINY)
            noise = reach * std * math.sqrt(1.0 + (J - 1) * fraction**2) / size
            centre = middle + reach * (number + fraction * (N.sum() - number)) / size
            if not share > 2.0 * std or noise > pooled_noise:
                noise, centre = pooled_noise, pooled
            of_scale = {}
            if noise < 1.0 and s.name != "common":
                of_scale["snr_centre"] = float(min(max(centre, low), high))
                of_scale["snr_spread"] = math.hypot(VOTE_SPREAD, 2.0 * noise)
            voted.append(replace(s, weight=float(w), share=float(share), **of_scale))
        self.billboard = replace(self.billboard, structures=voted)

    def moment(self, share):
        """Second moment of the directions. -> release, variance of its noise"""
        share = self.budget_share(share)
        mechanism = self.plan.moment(share)
        where = " about own centres" if self.billboard.about_centre else ""
        words = f"sum of u u', unit directions u of models{where}"
        S = yield from self.query(
            share, "moment", words, mechanism, sum_of_moments, billboard=self.billboard
        )
        return S, _variance(mechanism)

    def direction(self, S):
        """Mean direction in the span of the top eigenvectors of S, and its length: a first centre.

        -> whether it was clear enough to query sizes
        """
        rank = self.plan.rank
        V = np.ascontiguousarray(np.linalg.eigh(S)[1][:, : -rank - 1 : -1])
        share = self.budget_share("direction")
        mechanism = self.plan.direction(share)
        words = f"mean of V' u, V the top {rank} eigenvectors of moment 1"
        c = yield from self.query(
            share,
            "direction",
            words,
            mechanism,
            clipped_sum("direction", 1.0),
            self.m,
            billboard=self.billboard,
            basis=V,
        )
        c = self.model(c)
        variance, square, size = _variance(mechanism), float(np.vdot(c, c)), rank * self.plan.n_free
        # abs(c)^2 is off by `size` variances in the mean, with a spread of sqrt(2 size).
        square_of_mean = square - size * variance
        if square_of_mean <= _CLEAR * math.sqrt(2.0 * size) * variance:
            return False
        yield from self.sizes()
        if self.length is None and self.plan.may_have_own_units:
            self.take_own_units()
        if self.length is not None:
            self.centre = self.length * (c @ V.T) * (square_of_mean / square)
        return True

    def hidden(self, S, variance):
        """Whether noise hides a moment: no direction, and no feature, is larger than the largest
        of noise alone. A mean may still be seen, in sums of fewer numbers."""
        if not self.plan.private:
            return False
        std, even = max(math.sqrt(variance), LEAST_NOISE), self.m / self.d
        direction = np.linalg.eigvalsh(S)[-1] - even
        feature = S.diagonal().max() - even
        return direction <= std * math.sqrt(2.0 * self.d) and feature <= std * math.sqrt(
            2.0 * math.log(self.d + 1.0)
        )

    def sizes(self):
        """Typical length of models; None when noise hides it."""
        share = self.budget_share("size")
        mechanism = self.plan.size(share)
        words = "histogram of the lengths of models, bins by factors of 4"
        counts = yield from self.query(
            share, "size", words, mechanism, histogram, billboard=self.billboard
        )
        self.length = _size(counts, std_of(mechanism), self.billboard.n_tasks)

    def take_own_units(self):
        """Measure the mean in lengths of each task's own model: these have no common bin."""
        self.billboard, self.length = replace(self.billboard, own_units=True), 1.0

    def rounds(self, share):
        """The mean by rounds: clipped updates of all tasks, to models around it.

        Bounds on the updates fall to zero, so that the last rounds add little noise; together they
        allow for `path` steps.
        """
        share, centre = self.budget_share(share), self.centre.copy()
        n_rounds, path = self.plan.rounds_of(share)
        falling = 1.0 - np.arange(n_rounds) / n_rounds
        bounds = falling / falling.sum() * path * _STEP * self.length
        for t, bound in enumerate(bounds):
            mechanism = self.plan.round(share, float(bound), n_rounds)
            words = f"mean of clipped updates, round {t + 1} of {n_rounds}"
            centre = centre + self.model(
                (
                    yield from self.query(
                        share,
                        "update",
                        words,
                        mechanism,
                        clipped_sum("update", bound),
                        self.m,
                        centre=centre,
                        clip_norm=float(bound),
                        own_units=self.billboard.own_units,
                    )
                )
            )
        self.centre, length = centre, np.linalg.norm(centre)
        if length > 0:
            self.billboard = replace(self.billboard, about_centre=True)
        if length > 0 and self.average.value is not None:
            # Of the moments so far only what is not the mean; later ones are about it.
            t = np.linalg.svd(np.atleast_2d(centre))[2][: self.plan.n_free]
            P = np.eye(self.d) - t.T @ t
            self.about = DriftingAverage(P @ self.average.value @ P, self.average.variance)

    def mean_model(self):
        """Model of tasks that were not fitted: the centre of all structures, a mean intercept."""
        slopes = self.billboard.centre
        if "mean intercept" not in self.plan.budget_shares:
            if not self.plan.has_intercepts:
                mean = np.append(slopes, np.zeros(self.plan.n_outputs))
                self.billboard = replace(self.billboard, mean=mean)
            return  # no window of levels stood out: there is no intercept to publish
        low, high = self.plan.target_range
        middle, reach = 0.5 * (low + high), 0.5 * (high - low)
        offset = yield from self.query(
            "mean intercept",
            "intercept",
            "mean of clipped intercepts",
            self.plan.intercept("mean intercept", reach),
            clipped_sum("intercept", reach, less=middle),
            self.m,
            centre=slopes,
        )
        b = np.clip(middle + offset, low, high)
        self.billboard = replace(self.billboard, mean=np.append(slopes, b))

    # ----------------------------------------------------------------- between queries
    def model(self, released):
        """Models of all classes from one vector, less their common part, which is noise."""
        if len(self.shape) == 1:
            return released
        models = released.reshape(self.shape[0], -1)
        return models - models.mean(axis=0)

    def rebuild(self):
        """Structures from all releases so far, with weights as before any vote."""
        zero, wanted = np.zeros(self.shape), self.plan.structures
        even, known = alone(self.d).moment, self.average.value is not None
        candidates = [("alone", zero, even)]
        if "low-rank" in wanted and known:
            lowrank = self.shrunk(self.average)
            if self.refined.spectrum is not None:
                lowrank = self.refined.moment
            candidates.append(("low-rank", zero, lowrank))
        if "sparse" in wanted and known and self.refined.has_rivals:
            candidates.append(("sparse", zero, self.sparse_shape()))
        if self.theta is not None and "mean" in wanted:
            candidates += [("mean", self.centre, even), ("common", self.centre, even)]
        elif self.centre is not None and self.theta is None:
            candidates += [
                ("mean", self.centre, even),
                ("half of the mean", 0.5 * self.centre, even),
            ]
        if len(candidates) > 2 and candidates[-2][0] == "mean" and "low-rank" in wanted and known:
            about = lowrank if self.about is None else self.shrunk(self.about)
            candidates.append(("mean and low-rank", self.centre, about))
        weights = self.weights([name for name, _, _ in candidates]).tolist()
        structures = [
            Structure(name, weight, a, M, **(COMMON if name == "common" else {}))
            for weight, (name, a, M) in zip(weights, candidates, strict=True)
        ]
        self.billboard = replace(self.billboard, structures=structures)

    def weights(self, names):
        """Of structures before any vote, of sum 1; alone counts for more among few tasks."""
        few = [_FEW_TASKS / self.m if name == "alone" else 0.0 for name in names]
        weights = np.array([WEIGHTS[name] for name in names]) + few
        return weights / weights.sum()

    @cached_property
    def search(self):
        return GroupSearch(self)

    @cached_property
    def refined(self):
        return Refinement(self.m, self.tilt, self.vote_on_evidence, self.block)

    @property
    def tilt(self):
        return 0.5 * min(1.0, self.plan.ratio) if self.plan.private else 0.5

    def shrunk(self, average):
        """A prior of trace 1 from a noisy second moment."""
        noise = self.refined.noise(average.variance, self.d)
        return shrink_matrix(average.value, *noise) / self.m

    def sparse_shape(self):
        """The diagonal of a prior of trace 1 from the moments so far, (d,)."""
        S, sampling = self.average.value, math.sqrt(sampling_variance(self.m, self.d))
        std = math.sqrt(self.average.variance)
        shape = shrink_diagonal(np.diag(S).copy(), std, float(self.m), sampling)
        return _lowered(shape, self.floor_of_shape)

    def shapes_by_floor(self):
        """The sparse shape at `RIVAL_FLOORS`."""
        return [_lowered(self.sparse_shape(), floor) for floor in RIVAL_FLOORS]

    def mean_is_followed(self):
        if self.centre is None:
            return False
        shares = self.billboard.shares
        followed = shares["mean"] + shares["half of the mean"]
        return followed > _FOLLOWED * max(sum(shares.values()), _FEWEST)


def _lowered(shape, floor):
    """A diagonal of trace 1 with so many times its least entry under all."""
    raised = shape + (floor - 1.0) * shape.min()
    return raised / raised.sum()


def _variance(mechanism):
    return std_of(mechanism) ** 2


def _pooled(releases):
    """One release from several of the same statistic, (release, variance) each; -> the same."""
    if releases[0][1] == 0:
        return releases[0]
    weights = np.array([1.0 / variance for _, variance in releases])
    release = sum(w * S for w, (S, _) in zip(weights / weights.sum(), releases, strict=True))
    return release, float(1.0 / weights.sum())


def _size(counts, std, n_tasks):
    """Typical length of models from a noisy histogram of log2; None when no bin stands out.

    Three bins side by side must hold half of the tasks, beyond a standard deviation of their noise,
    and more than that would in one of a thousand histograms: a length far off makes a centre that
    no evidence is prepared for.
    """
    three = np.convolve(counts, np.ones(3), mode="same")
    top = int(three.argmax())
    noise = math.sqrt(3.0) * std
    if three[top] < max(_FULL_BINS * noise, 0.5 * n_tasks + noise):
        return None
    near = np.arange(max(top - 1, 0), min(top + 2, SIZE_BINS))
    weight = np.maximum(counts[near] - std, 0.0)
    return float(2.0 ** ((weight * (2 * near - SIZE_BINS + 1)).sum() / weight.sum()))


# ------------------------------------------------------- sums of bounded contributions
def sum_of_votes(contributions, positions=None):
    """Of (p, q), p in the simplex or 0 and abs(q) <= p; a vote that is not finite counts as 0."""
    votes = np.array(contributions["vote"], dtype=float)
    votes[~np.isfinite(votes).all(axis=1)] = 0.0
    p, q = np.split(votes, 2, axis=1)
    p = np.clip(p, 0.0, 1.0)
    # 1 + 1e-12: rounding must not push a contribution over the bound.
    p /= np.maximum(p.sum(axis=1, keepdims=True), 1.0) * (1.0 + 1e-12)
    return {"vote": np.concatenate([p, np.clip(q, -p, p)], axis=1).sum(axis=0)}


def sum_of_comparisons(contributions, positions=None):
    """Of pairs of numbers from -1 to 1; one that is not finite counts as 0."""
    differences = np.array(contributions["comparison"], dtype=float)
    differences = np.nan_to_num(differences, posinf=0.0, neginf=0.0)
    return {"comparison": np.clip(differences, -1.0, 1.0).sum(axis=0)}


def sum_of_moments(contributions, positions=None):
    """Of u u' of unit directions u, (d, d)."""
    return {"moment": sum_of_directions(contributions["moment"], False, None)}


def histogram(contributions, positions=None):
    """Tasks whose log2 length is in every bin; one that is not finite is in none."""
    log_lengths = np.asarray(contributions["size"], dtype=float)
    log_lengths = log_lengths[np.isfinite(log_lengths)]
    bins = np.clip(np.floor((log_lengths + SIZE_BINS) / 2.0), 0, SIZE_BINS - 1).astype(int)
    return {"size": np.bincount(bins, minlength=SIZE_BINS).astype(float)}
