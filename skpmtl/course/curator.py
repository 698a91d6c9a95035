"""The loop: place, columns, steps, votes and moments, until the budget is spent.

Every release is used as a measurement with known noise, and nothing is divided by a number that is
not public or released. What is asked follows from the plan and from earlier releases.
"""

import math
from dataclasses import replace

import numpy as np

from ..privacy.mechanisms import std_of
from ..privacy.report import exact_report
from ..tables.factors import FactorEffects
from ..task.mixture import against_others
from ..task.priors import (
    BEFORE_RATIO,
    FAR_SHARES,
    KAPPA,
    ODDS,
    RATIO,
    WIDTH,
    after,
    at_least,
    between,
    bump,
    candidates,
    normalised,
    typical,
    typical_kappa,
    typical_sigma,
)
from . import equal, errors, factors, groups, likelihood, queries
from .billboard import HierarchicalBillboard, centre_shape
from .found import findings
from .levels import FINER, LOGITS, read_base, read_place, read_rates, read_zoom, shares_of_classes
from .personal import ALL, LEVELS
from .plan import BASE_LOOKS, EQUAL, ERRORS, PLACE_ALL, UNIT
from .queries import LEVEL_PART
from .shapes import needed_gain, path_of_shapes, read_centres, read_scales, softened

N_STEPS = 30  # of the centre; each is shorter than the one before, so that the last is fine
# Root mean squares of what is not clipped: octaves of scales at first, and later; the latter of
# asinh of centres in scales, too. Half and twice as much of the first: 1.007 and 1.001 of the
# errors of 14 random tables at 1, .993 and 1.014 at 3; of the second 1.001 and 1.003, and 1.006 and
# .985.
FARTHEST, NEAREST = 8.0, 2.0
ZOOMS, NARROWER = 3, 0.5  # histograms one in the other, each about half of the one before or less
# How often a unit that is the width of the window may be halved, and up to how often that is as
# likely as not at all. With 2 and 4 for 3 errors of 15 random tables of tasks of one row were .98
# and 1.03 times as large for z of 20 to 80, 1.01 and 1.00 below, there with a worst of 1.23 and
# 1.02 times the best reference.
HALVINGS, SURELY = 10, 3.0
# Answers about shares of classes are cut at so many times what a rare class may be, or where their
# noise is this part of it. With 3 and .05 new tables of 1 to 5 % of events had 1.02 and 1.01 times
# the log-loss at 1 and 3, and random ones the same; with 2 and .2 random ones of many tasks were
# .6 % worse at 3.
RARE, RARE_DOUBT = 2.0, 0.35
LEVEL_WORTH = 0.1  # part of the log-loss that is worth all of mu^2
# Without a budget, where a step is one of Newton: with 2 errors of 24 random tables are 1.001 times
# as large, from .96 to 1.04, and with 10 1.0001.
EXACT_STEPS = 5
# n_tasks (d + 1)^3 of spreads and the centre together, which take .1 of the time of a fit.
MOST_PRODUCTS = 1 << 24
# Log evidence that chance gains: with less, spreads and the centre are those that know their doubt.
# With 1 errors of 40 tables of few tasks were 1.008 times as large and intervals held .868 of rows
# for .874; with 6 one of 25 tables with two tasks of much noise was 4.6 times as bad.
CHANCE = 3.0
# Prior precision of the level, and least variance and precision of slopes of the centre.
LEAST_LEVEL = 1e-6
# Length of all steps, in units; and for every z / root(d + 1), chosen as the rows of the plan were.
LONGEST, PER_SIGNAL = 6.0, 0.3
OF_SCORES = 2.0  # times the length of steps: slopes of scores are larger than of units
# Where slopes are known to be equal, by the root of z root(events / (d + 1)): steps, and their
# length over the root mean square of scores; up to a large table, whose scores are not cut. Half
# and twice lose at 3, in concordance of diabetic, retinopathy (30 splits) and 400 x 3 (6 draws):
# steps .000, .000, .004 and .001, -.003, .003, lengths .010, .000, .000 and .008, .012, .000.
STEPS_OF_SCORES, LENGTH_OF_SCORES, LARGE = 0.65, 0.08, 2000.0
# What is stated of their errors: variance of slopes before any step, and parts of a step by which
# level and slopes come closer. Slopes of columns of zeros and ones, of which half is cut, are off
# by 1.0 to 1.2 times what is stated at 3 and 10 (192 fits), of normal columns by .5 to .65 (48).
# Without the first .7 to .8 of it would be stated.
OF_A_SLOPE, RESPONSES = 0.25, np.array([0.3, 0.15])
# Octaves of priors of dispersion, of which one cell is that of events that come one by one, and of
# slopes of real targets. With a third of the latter random tables are .993 to 1.000, but RiceFarms,
# of skewed targets, 1.1 to 2.5 times as bad. With it for scores 80 fresh tables were 1.004 times as
# bad without a budget, and levels ran away where a class is rare.
ONE_BY_ONE, OF_SLOPES = 0.15, 3.3


def shorter(n, length):
    """Bounds of n steps that are this long together, each less than the one before."""
    bounds = 1.0 - np.arange(n) / n
    return bounds * (length / bounds.sum())


class Loop:
    """State of one fit: the model that was released so far, and what was spent."""

    def __init__(self, plan, target_range=None):
        d, m = plan.n_features, plan.n_tasks
        self.plan, self.d = plan, d
        public = {"target_range": target_range, "init": plan.public_init}
        public["fit_intercept"] = plan.fit_intercept
        public |= {"loss": plan.loss, "n_classes": plan.n_classes}
        public["of_shares"] = plan.is_private and plan.n_classes > 0
        if plan.n_classes and plan.fit_intercept:  # scores of classes have a public place
            public |= {"middle": 0.0, "width": LOGITS}
        self.shape = centre_shape(d, plan.n_classes)
        self.model = HierarchicalBillboard(m, float(m), np.zeros(self.shape), **public)
        self.law = self.model.law
        if plan.relation is not None:
            rank = plan.relation.rank
            self.update(relation=plan.relation, related=np.zeros((rank, d + 1)))
        known = [factor for factor in (plan.factor, plan.across) if factor is not None]
        self.update(factors=[FactorEffects.none(factor) for factor in known])
        if plan.below is not None:
            self.update(below=plan.below, log_ratio=BEFORE_RATIO)
        if self.law.of_scores:
            self.update(unit=1.0)
            if plan.levels == "free":
                self.update(log_tau=self.free_levels)
        self.unit_is_known = self.law.of_scores
        # Slopes that are free: several classes have what they share taken away.
        self.n_slopes = d * (self.shape[0] - 1) if plan.n_classes > 2 else d
        self.entries, self.releases, self.spent, self.log = [], [], 0.0, None
        self.steps = self.drift = self.doubt = self.reach = self.level_noise = 0
        self.pooled, self.path = "mean" in plan.structures, []
        self.is_related, self.slopes_are_equal, self.events = False, False, 1.0

    # ------------------------------------------------------------------------------ release
    def ask(self, question, share, name=None):
        """One release of this share of mu^2. -> sum, standard deviation of its noise"""
        one = yield from self.ask_sums(question, {question.kind: share}, name)
        return tuple(by_name[question.kind] for by_name in one)

    def ask_sums(self, question, shares, name=None):
        """As `ask`, of several sums of one question. -> sums, deviations, by name

        Raises ArithmeticError beyond the budget: shares follow earlier releases, so that this
        filter is what the composition rests on.
        """
        spent = self.spent + sum(shares.values())
        if spent > 1.0 + 1e-9:
            raise ArithmeticError("The shares of this course are more than the budget.")
        self.spent = spent
        mechanisms = dict.fromkeys(shares)
        if self.plan.is_private:
            for of, share in shares.items():
                mu = self.plan.mu * math.sqrt(share)
                mechanisms[of] = question.mechanism(self.plan.adjacency, mu, of)
                entry = mechanisms[of].describe(of)
                self.entries.append({"name": name or question.kind, **entry})
        sums = yield question.query(self.model, mechanisms)
        self.releases += sums.values()
        noise = {of: std_of(mechanism) for of, mechanism in mechanisms.items()}
        if self.log is not None:
            self.log(len(self.releases), max(noise.values()))
        return sums, noise

    def update(self, **values):
        self.model = replace(self.model, **values)

    def update_effects(self, factor, /, **values):
        self.model = self.model.with_effects(factor, **values)

    def vote(self, name, parts, share, *, log_prior=0.0, by_chance=0.0):
        """A vote on a path. -> posterior log weights, log evidence along it, noise of a step

        Evidence is less what numbers that were learnt from the same rows gain `by_chance`.
        """
        question = queries.Vote(parts, self.plan.is_private)
        found, noise = yield from self.ask(question, share, f"vote {name}")
        gain = np.append(0.0, np.cumsum(found)) - by_chance
        most = self.model.n_present * question.length / math.sqrt(question.size)
        believed = most / (max(1.0, noise) * math.hypot(most, noise))
        return normalised(gain * believed + log_prior), gain, noise

    @property
    def pools_levels(self):
        return self.model.fit_intercept and self.plan.levels == "auto"

    @property
    def free_levels(self):
        """Log weights of spreads of levels where none is moved towards the others."""
        return np.append(np.full(len(self.model.tau) - 1, queries.NEVER), 0.0)

    # -------------------------------------------------------------------------------- scales
    def look(self, question, shares_of, read):
        """The same question until the mean of its answers says where levels are, or does not.

        `shares_of` has the shares, each with those before, for a number of tasks with rows.
        -> what `read` says of this number, and of scales; None: there was no budget left
        """
        mean, share, n, said = 0.0, 0.0, self.model.n_present, None
        for j in range(len(shares_of(n))):
            total = shares_of(n)[j]
            more = total - share
            if more <= 0.0 or self.spent + more > PLACE_ALL:
                continue
            answer, noise = yield from self.ask(question, more)
            mean, share = mean + (answer - mean) * (more / total), total
            n, unit, window = said = read(mean, noise * math.sqrt(more / total), self.model.n_tasks)
            if not noise or (window if self.pools_levels else unit) is not None:
                break
        self.update(n_present=n)
        return said

    def zoom(self, middle, half, width):
        """Middle and half of the range of levels in bins of this width, or None."""
        n, private = self.model.n_present, self.plan.is_private
        zoom = queries.Zoom(middle, half, width, private)

        def read(found, noise, _):
            return n, None, read_zoom(found, noise, zoom, n)

        said = yield from self.look(zoom, self.plan.looks_of_zoom, read)
        return said and said[-1]

    def find_place(self):
        """The window of levels and the unit of y, or neither."""
        place, question = self.plan.looks_of_place, queries.Place(self.plan.is_private)
        _, unit, window = yield from self.look(question, place, read_place)
        if not self.pools_levels:
            # Without an intercept the size of a target is that of its spread, too.
            size = window and window[1]
            self.update(unit=unit if self.model.fit_intercept else unit or size)
            return
        if window is None:
            self.update(unit=unit)
            return
        middle, half = window
        self.unit_is_known = unit is not None
        for _ in range(ZOOMS):
            if unit is not None and half <= 4.0 * unit:
                break
            width = max(2.0 * half / FINER, unit or 0.0)
            near = yield from self.zoom(middle, half, width)
            if near is None:
                break
            before, (middle, half) = half, near
            if half > NARROWER * before:
                break
        self.update(middle=middle, width=half, unit=unit or half, log_tau=None)

    def vote_unit(self, share):
        """How far the unit of y is below the width of the window, which was taken for it.

        Noise and slopes shrink together along the path, by cells of their grids; levels do not,
        which are as far apart as the window says. The unit has the mean inverse of what it may be:
        one that is too large moves tasks of few rows by many times their noise, one that is too
        small leaves them alone. What zooms would have found is not far below.
        """
        halvings = np.arange(HALVINGS + 1)
        beyond = np.maximum(halvings - SURELY, 0.0)
        parts = [
            replace(self.part(log_kappa=typical_kappa(KAPPA, j)), log_sigma=typical_sigma(j))
            for j in halvings
        ]
        path = queries.separate(parts)
        log_weights, *_ = yield from self.vote(
            "unit", path, share, log_prior=-math.log(4.0) * beyond
        )
        below = np.exp(log_weights) @ 2.0**halvings
        self.update(unit=float(self.model.unit / below), log_tau=None)

    def find_rates(self):
        """The window of the levels of counts, or none."""
        question = queries.Rates(EQUAL in self.plan.structures, self.plan.is_private)
        _, self.events, window = yield from self.look(
            question, self.plan.looks_of_place, read_rates
        )
        if window is not None and self.pools_levels:
            self.update(middle=window[0], width=window[1], log_tau=None)

    def find_base(self):
        """Levels of classes, from the mean of their shares."""
        C, private, n, known = self.plan.n_classes, self.plan.is_private, None, None
        share, question = self.plan.share_of_place(), queries.Base(C, 0)
        for part in BASE_LOOKS:
            more = part * share - self.spent
            found, noise = yield from self.ask(question, more)
            n, known = read_base(found, noise, question, self.model.n_tasks, n, known)
            share = self.plan.share_of_place(n)  # of as many as have rows
            shares, doubts, error = shares_of_classes(known)
            # What doubt adds to the log-loss, of which more is not worth its budget.
            excess = 0.5 * np.sum(doubts**2 / shares) / -(shares @ np.log(shares))
            if not private or share < 1.0 and excess < LEVEL_WORTH * more:
                break
            # Cut as low as a rare class allows, where noise would matter.
            largest = int(shares.argmax())
            rare, may_be = (np.delete(x, largest).max() for x in (shares, shares + doubts))
            most = max(RARE * may_be, RARE_DOUBT * rare * n / noise)
            question = queries.Base(C, largest, float(min(most, 1.0)))
        self.level_noise = error**2 * private
        levels = np.log(shares)
        levels = levels[1] - levels[0] if C == 2 else levels - levels.mean()
        centre = np.zeros(self.shape)
        centre[..., 0] = levels * self.model.fit_intercept
        self.update(n_present=n, centre=centre)
        if self.pools_levels:
            self.update(log_tau=self.above_noise(self.model.log_tau))

    def find_columns(self, share):
        """Scales and centres of columns in turn, each about what was found before."""
        scale, centre = np.ones(self.d), np.zeros(self.d)
        n_known, asked = self.plan.n_indicators, slice(self.d - self.plan.n_indicators)
        n, variance, first = self.model.n_present, self.model.scale_variance, None
        # Noise in a centre takes that part of equal slopes for the level, so that later answers are
        # cut at what is still unknown and one scale, which is what tasks differ by. With the whole
        # of `FARTHEST` diabetic lost .029 of concordance at 3 with ages in years, in place of .017.
        equal = EQUAL in self.plan.structures
        reaches = {"scales": FARTHEST / (1 + equal), "centres": NEAREST}
        for what, part in self.plan.columns(n):
            private, reach = self.plan.is_private, reaches[what]
            of_means = what == "centres"
            question = queries.ColumnUnits(scale, centre, reach, private, of_means, n_known)
            found, noise = yield from self.ask(question, share * part)
            means, noise = question.means(found[asked], noise, n)
            if of_means:
                moved, left = read_centres(means, noise)
                centre[asked] += scale[asked] * question.distance(moved)
            else:
                first = noise if first is None else first
                moved, left = read_scales(means, noise)
                # Where a move may have been cut, what is left is as unknown as it was before.
                short = max(reach - math.sqrt(np.mean(moved**2)), 0.0)
                variance = left + variance * (noise and math.exp(-0.5 * short**2 / left.sum()))
                scale[asked] *= 2.0**moved
                left = variance.sum()
            reaches[what] = math.hypot(1.0, math.sqrt(left)) if equal else NEAREST
        centre = centre * self.model.fit_intercept
        scales = {"column_scale": scale, "scale_variance": variance, "scale_noise": float(first)}
        self.update(column_centre=centre, **scales)

    # ---------------------------------------------------------------------------------- steps
    def exact_steps(self, with_slopes=True, *, related=False):
        """Without a budget: the centre of largest evidence; `related`: and models of covariates.

        Slopes of the centre, and slopes and levels of every covariate, have priors N(0, A) of their
        own, with A where the evidence is largest, too (MacKay, Neural Computation 4, 1992).
        `doubt` is minus the logarithm of the Occam factor of slopes, or of what covariates add.
        """
        D, relation = self.model.centre.size, self.plan.relation if related else None
        A, units = np.ones((relation.rank if related else 1, D)), np.ones(1)
        if related:  # numbers of a covariate with mean square one over the tasks
            rows = relation.rows(np.array(relation.tasks))
            units = np.append(1.0, np.sqrt(np.mean(rows[:, 1:] ** 2, axis=0)))
        units = np.repeat(units, D)
        level = np.arange(D) % (self.d + 1) == 0
        A[0, level], A[0, ~level] = 1.0 / LEAST_LEVEL, with_slopes
        A[:, level] *= self.model.has_place
        learnt = [(j, part) for j in range(len(A)) for part in (~level, level)]
        learnt = [(j, part) for j, part in learnt if (j or part is not level) and A[j, part].all()]
        of_free = self.n_slopes / max((~level).sum(), 1)  # several classes have one number less
        for _ in range(EXACT_STEPS):
            question = queries.ExactStep(self.model.log_kappa, len(A))
            found, _ = yield from self.ask(question, 0.0)
            now = self.model.centre.ravel()
            if related:
                now = np.append(now, self.model.related[1:])
            # In numbers of prior variance one, with what is held left out.
            root = np.sqrt(A.ravel()) / units
            free = np.flatnonzero(root)
            prior = np.zeros_like(now)
            prior[free] = now[free] / root[free]
            inside = np.eye(len(now)) + root[:, None] * found[1:] * root
            unsure = np.linalg.inv(inside)
            moved = prior + unsure @ (root * found[0] - prior)
            models = np.where(root, root * moved, now).reshape(A.shape)
            self.update(centre=self.of_free(models[0].reshape(self.shape)))
            if related:
                self.update(related=np.concatenate([np.zeros((1, D)), models[1:]]))
            numbers = np.arange(A.size).reshape(A.shape)
            self.doubt = 0.0
            for one in learnt:
                at = numbers[one]
                size, own = moved[at] @ moved[at], unsure[np.ix_(at, at)]
                known = 1e-12 + of_free * (len(at) - np.trace(own))  # numbers that rows determine
                if one[0] or not (related and self.pooled):
                    self.doubt += 0.5 * (size - of_free * np.linalg.slogdet(own)[1])
                A[one] = np.clip(A[one][0] * size / known, LEAST_LEVEL, 1.0 / LEAST_LEVEL)

    def of_free(self, numbers):
        """Numbers of classes without what all of several have in common, which no score shows."""
        return numbers - numbers.mean(axis=0) if self.plan.n_classes > 2 else numbers

    @property
    def level_unit(self):
        """Units that levels are apart: a window has half of them; 0 without one."""
        if not self.model.has_place:
            return 0.0
        if self.plan.n_classes:
            return 1.0
        if self.law.of_scores:
            return 0.5 * self.model.width
        return max(0.5 * self.model.width / self.model.unit, 1.0)

    def step(self, share, with_slopes=True):
        if self.plan.is_private:
            if self.slopes_are_equal:
                yield from self.score_steps(share)
            elif with_slopes or self.model.has_place:
                yield from self.bounded_steps(share, with_slopes)
            if self.pools_levels and self.model.has_place:
                self.update(log_tau=self.above_noise(self.model.log_tau))
        else:
            yield from self.exact_steps(with_slopes, related=self.is_related)

    def again(self, share):
        """Without a budget: the centre and spreads of scores, each under what the others are now.

        The first centre is found under spreads as before any vote, and the first votes are about
        it. On 80 fresh tables errors were .992 of those of clipped steps for levels and one round,
        the worst 1.06, and at most 1.11 of the base rate's, for 1.22.
        """
        yield from self.exact_steps(self.pooled, related=self.is_related)
        yield from self.vote_tau(0.0)
        yield from self.vote_kappa(0.0)

    def bounded_steps(self, share, with_slopes):
        numbers = self.n_slopes * with_slopes + 1
        signal = self.model.n_present * self.plan.signal * math.sqrt(share / numbers)
        length = min(LONGEST, PER_SIGNAL * signal) * (OF_SCORES if self.law.of_scores else 1.0)
        bounds = shorter(N_STEPS, length)
        # Classes have their level from their shares: steps that are cut would end at a median.
        unit = self.level_unit * (not self.plan.n_classes)
        self.reach += LEVEL_PART * bounds.sum() if with_slopes else bounds.sum()
        near = self.model.centre
        for bound in bounds:
            question = queries.CentreStep(near, bound, unit, with_slopes)
            found, noise = yield from self.ask(question, share / len(bounds))
            moved = np.zeros(self.shape)
            moved[..., : moved.shape[-1] if with_slopes else 1] = (
                found.reshape(*self.shape[:-1], -1) / self.model.n_present
            )
            moved[..., 0] *= unit
            moved = self.of_free(moved)
            self.drift = self.drift * (1.0 - min(bound, 1.0)) ** 2
            self.drift += (noise / self.model.n_present) ** 2
            self.level_noise += (noise / self.model.n_present * unit) ** 2
            self.update(centre=self.model.centre + moved)

    def score_steps(self, share):
        """Steps on the scores of events, where slopes are equal.

        With r events of a task, as released, and n tasks, a slope of a scaled column has
        information of about n r, and the level, of variance 1/2 between tasks, n r / (1 + r / 2).
        So sums of scores over these are steps of Newton's method. The step k has 6 / (k + 2) of
        one, which averages over the noise of all steps (Robbins and Monro, Ann. Math. Stat. 22,
        1951) and is enough where columns vary by a third of their scale. With half as much diabetic
        loses .006 of concordance at 3, and .024 in years; with twice as much generated tables lose
        .004 to .011 (six draws).
        """
        n, r = self.model.n_present, self.events
        every = sum(s for name, s in self.plan.shares(n) if name == "step") * self.rest
        signal = n * self.plan.signal * math.sqrt(every * r / (self.d + 1))
        root = math.sqrt(min(signal, LARGE))
        length = LENGTH_OF_SCORES * root * math.sqrt(r * (self.d + 1))
        n_steps = min(max(round(STEPS_OF_SCORES * root), 4), N_STEPS)
        steps = range(n_steps)[self.steps :] if self.steps else range(n_steps // 2)
        units = np.append((1.0 + 0.5 * r) * self.model.has_place, np.ones(self.d)) / (n * r)
        unsure = np.array([self.level_noise, self.drift if self.steps else OF_A_SLOPE])
        for k in steps:
            gain = 6.0 / (k + 2.0)
            question = queries.CentreStep(self.model.centre, length, float(self.model.has_place))
            found, noise = yield from self.ask(question, share / len(steps))
            self.update(centre=self.model.centre + gain * units * found)
            self.reach += LEVEL_PART * length * gain * n * units[0] / (self.level_unit or 1.0)
            kept = 1.0 - np.minimum(RESPONSES * gain, 1.0)
            unsure = kept**2 * unsure + (gain * noise * units[[0, -1]]) ** 2
        self.level_noise, self.drift = unsure
        self.steps += len(steps)

    def above_noise(self, log_tau):
        """Levels spread about a released centre by what its noise has moved it, at least.

        Without this the vote on their spread, which is noise itself, may bind tasks to a level that
        is far from all of them. A window has its levels anywhere: what steps were too short to make
        up for of its half counts as noise.
        """
        far = max(1.0 - self.reach, 0.0) * self.level_unit * (not self.plan.n_classes)
        far *= self.plan.is_private
        # Of shares it is that of a score less the others.
        noise = self.level_noise / against_others(self.model.n_outputs)
        return at_least(log_tau, self.model.tau**2, noise + far**2)

    def relation(self, share):
        """Steps of the models that follow from covariates, from zero; shrunk by their noise."""
        self.without = self.model.centre
        if not self.plan.is_private:
            yield from self.exact_steps(related=True)
            return
        model, rank = self.model, self.plan.relation.rank
        signal = model.n_present * self.plan.signal * math.sqrt(share / (rank * (self.d + 1)))
        n, drift = N_STEPS // 2, 0.0
        for bound in shorter(n, min(LONGEST, PER_SIGNAL * signal)):
            question = queries.RelationStep(model.centre, bound, self.level_unit, rank=rank)
            found, noise = yield from self.ask(question, share / n)
            moved = found.reshape(rank, -1)
            moved[:, 0] *= self.level_unit
            drift = drift * (1.0 - min(bound, 1.0)) ** 2 + noise**2
            self.update(related=self.model.related + moved)
        sizes = np.maximum(np.sum(self.model.related[:, 1:] ** 2, axis=1), 1e-300)
        kept = np.maximum(0.0, 1.0 - self.d * drift / sizes)
        self.update(related=self.model.related * kept[:, None])

    def vote_relation(self, share):
        """How far to follow the covariates."""
        model, doubt = self.model, 0.0 if self.plan.is_private else self.doubt
        path = [replace(self.part(self.without), related=queries.NOTHING), self.part()]
        log_weights, *_ = yield from self.vote(
            "relation", queries.separate(path), share, by_chance=np.array([0.0, doubt])
        )
        follow = math.exp(log_weights[1])
        centre = self.without + follow * (model.centre - self.without)
        self.update(related=model.related * follow, centre=centre)
        self.is_related = log_weights[1] > log_weights[0]
        if self.is_related and not self.plan.is_private:  # with slopes of the constant
            self.pooled = True

    def level(self, share):
        """Steps of the level alone, where slopes have no mean."""
        yield from self.step(share, with_slopes=False)

    # ---------------------------------------------------------------------------------- votes
    def vote_centre(self, share):
        """How far to follow the centre, after it was shrunk by its own noise (James-Stein)."""
        size = max(np.sum(self.model.centre[..., 1:] ** 2), 1e-300)
        kept = max(0.0, 1.0 - self.n_slopes * self.drift / size)
        self.drift *= kept**2
        self.follow(kept)
        path = queries.separate([self.part(self.zero), self.part()])
        # Without it half of the tables of which slopes have no mean take steps in place of moments:
        # 1.15 of the errors of `MPMTLLowRank` on 2,000 x 5 x 50 at 3 (ten draws), and 1.03 with it
        # (twenty). 22 random tables of many tasks were 1.0001, the worst 1.003.
        by_chance = np.array([0.0, 0.5 * self.n_slopes if self.plan.is_private else self.doubt])
        log_weights, *_ = yield from self.vote("centre", path, share, by_chance=by_chance)
        self.follow(math.exp(log_weights[1]))
        self.pooled = log_weights[1] > log_weights[0]

    def follow(self, part):
        self.update(centre=self.model.centre * np.append(1.0, np.full(self.d, part)))

    def part(self, centre=None, root=None, *, axis=0, path=None, log_kappa=None):
        """Of a vote: the centre, the shape and the scales of the model, or others in their place.

        Cells of the axis 1 (kappa), 2 (sigma), 3 (tau) or 4 (ratio) get their log weights from
        `path`.
        """
        model = self.model
        scales = [
            self.log_kappa if log_kappa is None else log_kappa,
            model.log_sigma,
            model.log_tau,
        ]
        if 0 < axis <= len(scales):
            scales[axis - 1] = np.zeros(len(scales[axis - 1]))
        centre = model.centre if centre is None else centre
        root = model.root if root is None else root
        path = np.zeros((2, 1)) if path is None else path
        related = ALL if centre[..., 1:].any() or centre is model.centre else LEVELS
        known = centre, root, *scales, axis, path, related, model.far
        return queries.Part(*known)

    @property
    def log_kappa(self):
        """Log weights of kappa before the vote on it."""
        return self.model.log_kappa if self.slopes_are_equal else self.law.log_kappa

    def take_equal(self):
        """Slopes are equal: what votes on their priors would be about is known."""
        log_kappa, components = queries.alone(0, len(self.law.kappa)), queries.alone(2, 3)
        self.update(log_kappa=log_kappa[:, 0], log_components=components[:, 0])
        self.slopes_are_equal = self.pooled = True

    def take_events(self):
        """As `take_equal`, of events that come one by one.

        Indicators of intervals are in units of 2, so that they take little of the length of scores.
        """
        self.take_equal()
        log_sigma = queries.alone(0, len(self.law.sigma))[:, 0]
        scale = self.model.column_scale.copy()
        scale[self.d - self.plan.n_indicators :] = 2.0
        self.update(root=np.zeros((self.d, self.d)), log_sigma=log_sigma, column_scale=scale)

    @property
    def zero(self):
        """The centre without slopes."""
        return self.model.centre * np.append(1.0, np.zeros(self.d))

    def vote_sigma(self, share):
        """The noise of a row, whether tasks follow the centre or are alone."""
        priors = candidates(self.model.sigma, ONE_BY_ONE if self.law.of_scores else None)
        parts = [
            self.part(axis=2, path=priors),
            self.part(self.zero, self.model.flat, axis=2, path=priors),
        ]
        log_weights, *_ = yield from self.vote("sigma", parts, share, log_prior=self.law.log_sigma)
        if not self.law.of_scores:
            log_weights, priors = between(log_weights, self.model.sigma)
        mixed = np.logaddexp.reduce(log_weights[:, None] + priors, axis=0)
        self.update(log_sigma=after(mixed, self.law.log_sigma))

    def every_part(self, axis, path):
        """Of a vote: all that tasks average over, with this `path` of cells for every component."""
        return [
            replace(
                self.part(
                    *(np.append(self.model.centre[:1], part.slopes), part.root),
                    axis=axis,
                    path=np.maximum(path + part.log_weight, queries.NEVER),
                    log_kappa=part.scales.log_kappa,
                ),
                related=ALL if part.name == "mean" else LEVELS,
            )
            for part in self.model.components()
        ]

    def find_far(self):
        """Which part of all rows has far more noise than the others, about the likeliest prior."""
        likeliest = np.argmax([part.log_weight for part in self.model.components()])
        parts = []
        for j, share in enumerate(FAR_SHARES):
            path = np.full((len(FAR_SHARES), len(self.model.sigma)), queries.NEVER)
            path[j] = self.model.log_sigma
            parts.append(replace(self.every_part(2, path)[likeliest], far=share))
        log_weights, *_ = yield from self.vote("far rows", parts, 0.0)
        self.update(far=float(np.exp(log_weights) @ FAR_SHARES))

    def find_odd(self):
        """How many tasks are unlike the others in their noise, and in their level.

        What a task of one row says is noise or level by these two alone.
        """
        laws = {"sigma": self.law.log_sigma, "tau": self.law.before_tau(self.model.tau)}
        for axis, (name, before) in enumerate(laws.items(), start=2):
            voted = typical(getattr(self.model, f"log_{name}"), before)
            priors = np.stack([after(voted, before, odd) for odd in ODDS])
            parts = self.every_part(axis, priors)
            if name == "tau":
                parts = [replace(part, log_sigma=self.model.own_sigma) for part in parts]
            log_weights, *_ = yield from self.vote("odd tasks", parts, 0.0)
            found = np.logaddexp.reduce(log_weights[:, None] + priors, axis=0)
            self.update(**{f"own_{name}": found})

    def vote_tau(self, share):
        """The spread of levels, where they are pooled."""
        if not self.model.has_place or not self.pools_levels:
            return
        grid = self.model.tau
        priors = candidates(grid)
        parts = [self.part(axis=3, path=priors)]
        before = self.law.before_tau(grid)
        log_weights, *_ = yield from self.vote("tau", parts, share, log_prior=before)
        mixed = np.logaddexp.reduce(log_weights[:, None] + priors, axis=0)
        self.update(log_tau=after(self.above_noise(mixed), before))

    def vote_ratio(self, share):
        """The spread of effects of the factor below tasks, from none to wide.

        By what levels that are free leave of the rows, as in restricted likelihood: the spread of
        levels is not known yet, and effects would take its place.
        """
        low, *_, high = np.log2(RATIO[1:])
        # Noise adds up along the path, so that it is short: with one prior for every cell, spreads
        # at epsilon 1 were up to 4.6, where they are 1.4 with three, for 1. Without noise, priors
        # between two cells find a spread that is there.
        middles = np.arange(low, high + 1.0)
        if self.plan.is_private:
            middles = middles[1:-1:3]
        priors = np.full((1 + len(middles), len(RATIO)), queries.NEVER)
        priors[0, 0] = 0.0
        priors[1:, 1:] = [bump(RATIO[1:], middle, 2.0 * WIDTH) for middle in middles]
        parts = [replace(self.part(axis=4, path=priors), log_tau=self.free_levels)]
        half = np.append(math.log(len(middles)), np.zeros(len(middles)))
        log_weights, *_ = yield from self.vote("ratio", parts, share, log_prior=half)
        mixed = np.logaddexp.reduce(log_weights[:, None] + priors, axis=0)
        self.update(log_ratio=after(mixed, BEFORE_RATIO))

    def vote_kappa(self, share):
        """Components, and the scale of slopes about the centre, from wide to narrow."""
        own = self.roots
        octaves = None if self.law.of_scores else OF_SLOPES
        priors, k = candidates(self.law.kappa, octaves)[::-1], len(own)
        none = np.full((k, len(self.law.kappa)), queries.NEVER)
        parts = [
            self.part(self.zero, L, path=queries.alone(j, k + len(priors)))
            for j, L in enumerate(own)
        ]
        parts.append(self.part(axis=1, path=np.concatenate([none, priors])))
        log_prior = np.append(np.full(k, -math.log(k)), self.law.log_kappa[::-1])
        log_weights, *_ = yield from self.vote("kappa", parts, share, log_prior=log_prior)
        mixed = np.logaddexp.reduce(log_weights[k:, None] + priors, axis=0)
        total = np.logaddexp.reduce(mixed)
        parts = np.array([log_weights[0], log_weights[1] if k > 1 else -30.0, total])
        self.update(
            log_kappa=after(mixed, self.law.log_kappa),
            log_components=after(parts, np.zeros(3)),
        )

    # --------------------------------------------------------------------------------- shapes
    @property
    def about(self):
        """Slopes that moments are about."""
        slopes = self.model.centre.copy()
        return slopes if self.pooled else slopes * np.append(1.0, np.zeros(self.d))

    @property
    def roots(self):
        """Of the flat shape, and of that of the model if it is another."""
        flat, root = self.model.flat, self.model.root
        return [flat] if np.array_equal(root, flat) else [flat, root]

    @property
    def related(self):
        """What shapes leave to covariates: see `Part`."""
        return ALL if self.pooled or self.plan.relation is not None else LEVELS

    def moment(self, share):
        """Shapes that the second moment of deviations shows, the last one and the flat one."""
        question = queries.Moment(self.about, softened(self.model.root), self.related)
        found, noise = yield from self.ask(question, share)
        known = self.model.n_present, self.model.root, self.plan.structures
        self.path = path_of_shapes(found, noise, *known)

    def vote_shape(self, share):
        if len(self.path) < 2:
            return
        path = [replace(self.part(self.about, root), related=self.related) for root in self.path]
        by_chance = [needed_gain(root) for root in self.path]
        path = queries.separate(path)
        _, gain, _ = yield from self.vote("shape", path, share, by_chance=by_chance)
        self.update(root=self.path[int(np.argmax(gain))])

    # ---------------------------------------------------------------------------------- joint
    def joint_exact(self, share):
        """Without a budget: spreads and the centre together, and whether there is a shape.

        Votes are about a centre that is fitted to the same rows, and in steps of their grids.
        """
        products = self.plan.n_tasks * (self.d + 1) ** 3
        if not self.model.has_place or self.model.groups is not None or products > MOST_PRODUCTS:
            return
        before, found = self.model, []
        for root in self.roots:
            self.model = replace(before, root=root)
            deviance = yield from likelihood.find_joint(self)
            if deviance < math.inf:
                found.append((0.5 * deviance + needed_gain(root), self.model))
        self.model = before
        if not found:
            return
        joint = min(found, key=lambda one: one[0])[1]
        # Rows or tasks far from all others have more evidence under the mixtures of votes.
        evidence = []
        for self.model in (before, joint):
            if self.model.centre_doubt is None:
                yield from self.find_doubt()
            (value,), _ = yield from self.ask(queries.ExactEvidence(), 0.0)
            evidence.append(value - needed_gain(self.model.root))
        self.model = joint if evidence[1] > evidence[0] - CHANCE else before

    def find_doubt(self):
        """Without a budget: posterior covariance of the centre, given spreads.

        Slopes have the prior variance that they have in steps.
        """
        found, _ = yield from self.ask(queries.ExactStep(self.model.log_kappa), 0.0)
        squares, size = np.sum(self.model.centre[1:] ** 2), 1.0
        for _ in range(EXACT_STEPS):
            root = np.append(self.model.has_place / LEAST_LEVEL, np.full(self.d, size)) ** 0.5
            unsure = np.linalg.inv(np.eye(self.d + 1) + root[:, None] * found[1:] * root)
            known = 1e-12 + self.d - np.trace(unsure[1:, 1:])
            size = max(squares / known, LEAST_LEVEL)
        self.update(centre_doubt=root[:, None] * unsure * root)

    # --------------------------------------------------------------------------------- factor
    def factor(self, share):
        yield from factors.find(self, share)

    def across(self, share):
        yield from factors.find_across(self, share)

    def spreads(self, share, first=True):
        if self.model.has_place and self.pools_levels:
            yield from likelihood.find_spreads(self, first)

    def spreads_exact(self, share):
        yield from self.spreads(share, first=False)

    # --------------------------------------------------------------------------------- groups
    def groups(self, share):
        self.found_groups = yield from groups.find(self, share)

    def vote_groups(self, share):
        centres, counts, _ = self.found_groups
        if len(centres) > 1:
            yield from groups.vote(self, centres, counts, share)

    # ----------------------------------------------------------------------------------- loop
    def run(self):
        if self.plan.share_of_place():
            yield from getattr(self, f"find_{self.plan.first}")()
        columns = self.plan.share_of_columns(self.model.n_present)
        if columns:
            yield from self.find_columns(columns)
        if self.model.has_place and not self.unit_is_known:
            yield from self.vote_unit(UNIT)
        if self.plan.row(self.model.n_present) == "equal":
            self.take_events()
        with_errors = self.plan.has_errors and self.model.has_place
        with_errors = with_errors and self.spent + 2.0 * ERRORS <= 1.0
        self.rest = 1.0 - self.spent - ERRORS * with_errors
        course = self.plan.shares(self.model.n_present)
        if self.plan.asks_first and self.model.has_place and (yield from equal.find(self)):
            course = ()
        for name, share in course:
            yield from getattr(self, name.replace(" ", "_"))(share * self.rest)
        if with_errors:
            yield from self.errors()
        if not (self.plan.is_private or self.law.of_scores) and self.model.has_place:
            if not (self.slopes_are_equal or self.plan.below):
                yield from self.find_far()
            yield from self.find_odd()
            if not self.slopes_are_equal and self.model.centre_doubt is None:
                yield from self.find_doubt()

    def errors(self):
        """Standard errors of what tasks have in common, see `skpmtl.course.errors`."""
        private = self.plan.is_private
        sums, noise = yield from self.ask(errors.RowSquares(private), errors.OF_ROWS * private)
        self.update(row_variance=errors.variance_of_rows(self.model, sums, noise))
        question = errors.question_about(self.model, self.plan)
        *first, last = errors.ROUNDS if private else errors.EXACT
        for shares in first:
            sums, noise = yield from self.ask_sums(question, shares)
            if "score" in sums:
                question = errors.moved(self.model, question, sums)
            question = errors.whitened(self.model, question, sums, noise)
        sums, noise = yield from self.ask_sums(question, last)
        self.update(**errors.effects(self.model, question, sums, noise))


def release_model(loop, source):
    """The curator of a fit. -> `HierarchicalBillboard`, see `skpmtl.exchange.run`"""
    plan = loop.plan
    yield from loop.run()
    report = plan.report(source, loop.entries) if plan.is_private else exact_report(PLAIN)
    drift = np.sqrt([loop.level_noise, loop.drift])
    board = replace(loop.model, centre_noise=drift, releases=loop.releases)
    notes = {**report.notes, **findings(board, plan.n_groups != 0, plan.is_private)}
    return replace(board, report=replace(report, notes=notes))


PLAIN = "the same loop without noise (epsilon=None)"
