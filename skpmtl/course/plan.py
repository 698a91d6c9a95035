"""Budget shares of the loop: one table, by public and released numbers alone.

Shares are fractions of mu^2, so that a release of share s has mu root(s) and all of them together
have mu at most. Which row of the table applies follows from numbers that were released before:
the composition is adaptive, which Gaussian differential privacy allows for budgets that add up
(Smith and Thakurta, "Fully adaptive composition for Gaussian differential privacy", 2022).
"""

import math
from itertools import pairwise

from ..exchange.plan import Plan, divided_mu
from ..privacy.accounting import check_budget

# m mu below which no place is looked for: all tasks would not clear the noise of 80 bins by far.
Z_PLACE = 20.0
# The place has (22 / (m mu))^2 of mu^2, so that half of the tasks clear the noise by 3.5 standard
# deviations; from a twentieth to three fifths. The zoom has half of that, a fifth at most.
PLACE_ROOT, PLACE_LEAST, PLACE_MOST, ZOOM_MOST = 22.0, 0.05, 0.6, 0.2
PLACE_ALL = 0.8  # of mu^2 for the place and all zooms
# Half of a share comes first, but not less than this, and the rest where the answer is not clear:
# zooms then have more. Four tables of 11 to 43 tasks and rounded levels, 12 draws each: 1.20 of the
# best reference, the worst 7, where all of it at once had 3.0 and 63. Without the floor 40 fresh
# tables had .995, 1.015 and 1.005 of the errors at 1, 3 and 10, the worst 3.2; without a third look
# at the place, twice as long, one of 282 tasks (30324, epsilon 3) had none in five of eight draws.
FIRST_LOOK = 0.1
UNIT = 0.05  # where spreads gave no unit: a vote on halving all scales, six times
# Scales of columns, from coarse to fine: later queries clip at less, and have less noise. Centres
# are asked for where their noise is below one scale; without them mean rows far from 0 say nothing
# of levels. Chosen on random tables (seeds 5100 to 5159) and on School, for schools without rows.
COLUMNS, Z_COLUMNS, Z_CENTRES = 0.07, 3.0, 40.0
# Of counts with equal slopes, twice as much: with ages in years diabetic loses .017 of concordance
# at 3, and .027 with half of it (60 splits); in scaled columns it does not matter.
OF_EQUAL = ("scales", 0.2), ("centres", 0.25), ("scales", 0.2), ("centres", 0.35)
SCALES = ("scales", 0.3), ("scales", 0.7)
IN_TURN = (
    *(("scales", 0.2), ("centres", 0.15)),
    *(("scales", 0.1), ("centres", 0.15)),
    *(("scales", 0.15), ("centres", 0.25)),
)
ERRORS = 0.2  # with standard errors, taken off before the rest where as much is left besides
# Rows of the table, by the thresholds below: names of queries, and what of a study each is for.
START = (
    *(("step", "mean"), ("level", "levels alone"), ("vote centre", "mean")),
    *(("relation", "relation"), ("vote relation", "relation"), ("vote sigma", "noise")),
    *(("across", "across"), ("vote sigma", "across", "noise")),  # in units of the spread of rows
)
RATIO = ("vote ratio", "below")  # in units of the noise of a row, after the last vote on it
FACTOR = ("vote tau", "factor"), ("factor", "factor")  # in units of the spread of levels
SHAPES = ("moment", "shapes"), ("vote shape", "shapes")
# Each under a soft version of what was found. With a budget, too, errors of 36 random tables at 1,
# 3 and 10 (two draws) were 1.003 times as large; of seven others, three with few rows of many
# columns, 1.001, 1.045 and .977.
AGAIN = tuple((name, *needs, "exact") for name, *needs in (*SHAPES, *SHAPES))
LAST = ("vote tau", "levels"), ("vote kappa",), ("again", "exact scores")
END = ("vote sigma", "noise"), RATIO, *LAST
GROUPED = ("groups", "groups", "shapes"), ("vote groups", "groups", "shapes")
COURSES = {
    "tiny": (),
    "small": (*START, RATIO, *FACTOR, *LAST),
    "large": (*START, *FACTOR, *SHAPES, *AGAIN, *END, *GROUPED),
    "equal": (("step",), ("vote tau", "levels"), ("step",)),
}
# Steps and moments are sums of vectors and matrices; a vote of few numbers has a weight of one.
WEIGHTS = {"step": 6, "moment": 10, "relation": 6, "factor": 6, "across": 6, "groups": 12}
STRUCTURES = "low-rank", "sparse", "mean"  # what slopes may share
GROUPS = "groups"  # and unknown groups of tasks with similar slopes
EQUAL = "equal"  # in place of all of them: slopes of counts are known to be the same in all tasks


def shares_of(course):
    """Shares of the queries of a course, which add up to one."""
    weights = [WEIGHTS.get(name.split()[0], 1) for name in course]
    return tuple((name, w / sum(weights)) for name, w in zip(course, weights, strict=True))


# Of the shares of classes, which need no place to be found: (30 / (m mu))^2, from a twentieth to
# four fifths; all of it where tasks are so few that nothing else can be learnt. In parts, each with
# those before; later answers are cut at less. Log-loss on 28 to 30 random tables: with 45 for
# 30 the same; with .12 for a twentieth .999 and 1.002 at 3 and 30. At 1, .8 for .6 and 20 for 14 in
# `ROWS` took it from 1.065 to 1.044 times that of the base rate.
BASE_ROOT, BASE_LEAST, BASE_MOST = 30.0, 0.05, 0.8
BASE_LOOKS = 0.3, 0.6, 1.0
Z_BASE = 1.0  # below it shares of classes would be less than their noise
# Tasks of a level of a factor, times mu, from which on its effect is asked about: the mean of their
# deviations then has noise of half of the spread of levels. With fewer (100 tasks in 10 levels at
# epsilon 3) errors were .8 % larger where the factor does not matter, and 1.5 % where it does.
Z_FACTOR = 9.0
# Tasks over the root of the number of levels of a factor across them, times mu, from which on it is
# asked about. Errors where items do not matter, over those of fits without them (24 draws): 1.00
# for 300 tasks, 8 or 20 items and epsilon 1 or 3, and for 100 tasks and epsilon 3; 1.02 to 1.04 for
# 100 tasks, 8 items and epsilon 1, which this leaves out. Of counts 100 tasks, 10 items and epsilon
# 3 had 1.02, and 1.12 for new tasks.
Z_ACROSS, Z_ACROSS_OF_COUNTS = 12.0, 24.0
# Without a budget, of factors above and across tasks, whose pairs are a matrix in memory.
MOST_LEVELS = 4096
# The rest, by z = (tasks with rows) mu: z or z / root(d) below the first two of these, steps would
# be noise; z / root(d) below the last, moments would. A task without a unit sends steps in its own,
# so that they need no place; scores need their base first. Chosen on random tables (seeds 7000 to
# 7199) and eleven real ones, at epsilon .3 to 3.
ROWS = {"place": (3.0, 2.0, 20.0), "rates": (14.0, 2.0, 11.0), "base": (20.0, 2.0, 11.0)}
# Without "mean" there are no steps of slopes that moments take budget from: 40 schools at epsilon
# 10 then have .651 of the variance with this threshold, .687 with that beside steps.
MOMENTS_ALONE = 11.0


def first_look(share):
    return max(0.5 * share, min(share, FIRST_LOOK))


class HierarchicalPlan(Plan):
    """From a budget and public numbers to shares of the loop.

    Parameters
    ----------
    epsilon, delta, adjacency
        As of the estimator; epsilon None: no noise, and every share is that of a large table.
    n_tasks, d : int
        Tasks, and columns of X.
    n_servers : int, default=1
        Servers that add the noise, each enough of it; 1 is a trusted curator.
    loss : {"squared", "poisson", "huber"}, default="squared"
    C : int, default=0
        Number of classes, 0 for real targets.
    """

    fit_intercept, has_errors, has_summary = True, False, False
    structures, levels, relation, n_groups = STRUCTURES, "auto", None, 0
    factor = below = across = None
    n_indicators = 0  # columns of zeros and ones, last
    silence = "so few tasks and so small a budget find nothing that tasks share"

    def __init__(self, epsilon, delta, adjacency, n_tasks, d, n_servers=1, loss="squared", C=0):
        self.loss, self.n_classes = loss, C
        self.adjacency, self.n_tasks, self.n_features = adjacency, n_tasks, d
        self.epsilon, self.delta, self.mu, self.n_servers = None, None, math.inf, n_servers
        if epsilon is not None and epsilon < math.inf:
            self.epsilon, self.delta = check_budget(epsilon, delta, n_tasks)
            self.mu = divided_mu(self.epsilon, self.delta, n_servers)
        # mu of replace-one that has the same noise: zero-out halves most sensitivities
        self.signal = self.mu * (2.0 if adjacency == "zero-out" else 1.0)

    @property
    def is_private(self):
        return self.mu < math.inf

    @property
    def asks_first(self):
        """Whether tasks may turn out to have equal slopes before anything is asked about them."""
        more = self.is_private, self.relation, self.factor, self.below, self.across
        more += self.n_classes, self.n_groups, self.has_errors
        pooled = "mean" in self.structures and self.levels == "auto" and self.fit_intercept
        return pooled and self.loss == "squared" and not any(more)

    @property
    def first(self):
        """Name of the first query."""
        return "base" if self.n_classes else "rates" if self.loss == "poisson" else "place"

    def share_of_place(self, n_present=None):
        """Of the first query, 0 where there is none; and what it had been for so many tasks."""
        n = n_present or self.n_tasks
        z = n * self.signal
        if self.first == "base":
            if self.row(n) == "tiny":
                return 1.0 if self.n_tasks * self.signal >= Z_BASE else 0.0
            return min(max((BASE_ROOT / z) ** 2, BASE_LEAST), BASE_MOST)
        if z < Z_PLACE and n_present is None:
            return 0.0
        return min(max((PLACE_ROOT / z) ** 2, PLACE_LEAST), PLACE_MOST)

    def looks_of_place(self, n_present):
        """Shares of the place: half, all, and twice as much, each after an unclear answer.

        Without the last of a zoom 62 random tables with z of 20 to 80 (three draws) were 1.005
        times as bad, 90 % of them 1.135 times the best reference for 1.108, and new tasks of twelve
        tables of narrow levels (four draws) at worst 14 times the mean of all for 3.7.
        """
        share = self.share_of_place(n_present)
        return first_look(share), share, min(2.0 * share, PLACE_MOST)

    def looks_of_zoom(self, n_present):
        share = min(max(0.5 * self.share_of_place(n_present), PLACE_LEAST), ZOOM_MOST)
        return first_look(share), share, 2.0 * share

    def share_of_columns(self, n_present):
        clear = n_present * self.signal >= Z_COLUMNS * math.sqrt(self.n_features)
        if EQUAL in self.structures:  # columns are for steps alone
            return 2.0 * COLUMNS if clear and self.row(n_present) == EQUAL else 0.0
        return COLUMNS if clear and self.share_of_place(n_present) < 1.0 else 0.0

    def columns(self, n_present):
        """What is asked of columns, in order, and its part of `share_of_columns`."""
        if EQUAL in self.structures:
            return OF_EQUAL
        clear = n_present * self.signal >= Z_CENTRES * math.sqrt(self.n_features)
        return IN_TURN if clear else SCALES

    def row(self, n_present):
        """Name of the row of `COURSES`, for this released number of tasks with rows."""
        z = n_present * self.signal
        ratio = z / math.sqrt(self.n_features)
        least, steps, moments = ROWS[self.first]
        if ratio < steps or z < least:
            return "tiny"
        if EQUAL in self.structures:
            return "equal"
        if "mean" not in self.structures:
            moments = MOMENTS_ALONE
        return "small" if ratio < moments or self.n_features == 1 else "large"

    def shares(self, n_present):
        """Of the rest of the budget, name by name."""
        z, mean, level = n_present * self.signal, "mean" in self.structures, self.levels == "auto"
        mean, pooled = mean or EQUAL in self.structures, level and self.fit_intercept
        shapes = not {"low-rank", "sparse"}.isdisjoint(self.structures)
        least = Z_ACROSS_OF_COUNTS if self.loss == "poisson" else Z_ACROSS
        factored = pooled and self.factor is not None
        factored = factored and z >= Z_FACTOR * self.factor.n_levels
        crossed = pooled and self.across is not None
        crossed = crossed and z >= least * math.sqrt(self.across.n_levels)
        has = {"mean": mean, "no mean": not mean, "shapes": shapes, "no shapes": not shapes}
        free = level and not (self.n_classes and self.is_private)  # their levels are shares
        has |= {"levels": level, "levels alone": free and not mean, "noise": not self.n_classes}
        has |= {"relation": self.relation is not None, "groups": self.n_groups != 0}
        has |= {"factor": factored, "across": crossed, "below": self.below is not None}
        has |= {"exact": not self.is_private}
        has["exact scores"] = has["exact"] and self.first != "place"
        row = COURSES[self.row(n_present)]
        course = [name for name, *needs in row if all(has[need] for need in needs)]
        n_levels = sum(f.n_levels for f in (self.factor, self.across) if f is not None)
        exact = not self.is_private and self.first == "place" and n_levels <= MOST_LEVELS
        if exact and (self.below is not None or factored or crossed):
            exact = {"factor", "across", "vote ratio"}
            course = [*("spreads" if name in exact else name for name in course), "spreads exact"]
        elif crossed and not self.is_private:  # once more, about what was found since
            course.append("across")
        more = self.is_private, self.relation, self.factor, self.across, self.below
        if course and pooled and self.first == "place" and mean and not any(more):
            course.append("joint exact")
        return shares_of(course)

    def mechanism(self):
        return "Gaussian noise on sums of bounded contributions, in one loop of queries"

    def releases(self, made=None):
        """Of a fit what it made, in order; before one the queries of a table that is all clear."""
        if made is not None:
            return made
        place, columns = self.share_of_place(), self.share_of_columns(self.n_tasks)
        errors = ERRORS * self.has_errors
        rest = 1.0 - (place + columns) - errors
        shares = [(name, rest * share) for name, share in self.shares(self.n_tasks)]
        parts = (first_look(place) / (place or 1.0),)
        if self.first == "base":
            parts = [more - less for less, more in pairwise((0.0, *BASE_LOOKS))]
        first = [(self.first, part * place) for part in parts]
        shares = [*first, ("columns", columns), *shares, ("errors", errors)]
        mus = [(name, self.mu * math.sqrt(share)) for name, share in shares if share > 0]
        return [{"name": name, "mu": mu} for name, mu in mus]

    def public_inputs(self):
        known = {"n_tasks": self.n_tasks, "n_features": self.n_features}
        if self.relation is not None:
            known["relation"] = self.relation.describe()
        if self.factor is not None:
            known["factor"] = self.factor.describe()
        if self.below is not None:
            known["factor below"] = f"{self.below}, a column of the rows of every task"
        if self.across is not None:
            known["across"] = self.across.describe()
        return {**known, "n_classes": self.n_classes} if self.n_classes else known
