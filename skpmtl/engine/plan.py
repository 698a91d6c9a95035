"""From a privacy budget to the budget shares of one fit over several structures."""

import math

from ..exchange.plan import Plan, divided_mu
from ..local.prior import VOTE_RANGE
from ..privacy.accounting import check_budget
from ..privacy.mechanisms import (
    SymmetricGaussian,
    VectorGaussian,
    mean_sensitivity,
    second_moment_sensitivity,
)
from . import levels, residuals, votes
from .billboard import WEIGHTS
from .groups import NUMBERS
from .pooled import bounds_of

STRUCTURES, GROUPS = ("low-rank", "sparse", "mean"), "groups"
_RANK = 3  # of the span in which a mean is looked for; every class beyond two takes one more
LOGITS = (-5.0, 5.0)  # public range of intercepts of classifiers
SIZE_BINS = 40  # by factors of 4, from 2^-40 to 2^40
_HOPELESS, _SHORT = 0.75, 3.0  # signal over noise below which nothing, or one moment, is released
_ONE, _FEW = 4.0, 6.0  # signal over noise of a mean below which it has one round, or 10
_INTERCEPT_SHARE = 0.1  # of mu^2, for the mean intercept of unseen_task="mean"
# Budget shares, as fractions of mu^2. They sum to 1.
_ONE_MOMENT = {"vote 1": 0.06, "moment 1": 0.88, "vote 2": 0.06}
_MEAN = {"vote 1": 0.03, "size": 0.10, "main": 0.84, "vote 2": 0.03}
_MOMENTS = {
    "vote 1": 0.04,
    "moment 1": 0.30,
    "vote 2": 0.04,
    "main": 0.58,
    "vote 3": 0.04,
}
_ALL = {
    "vote 1": 0.03,
    "moment 1": 0.30,
    "direction": 0.04,
    "size": 0.04,
    "vote 2": 0.03,
    "main": 0.45,
    "vote 3": 0.03,
    "moment 2": 0.05,
    "vote 4": 0.03,
}
# The same where levels are looked for, less what the window takes of each; relative numbers.
_LEVELS = {
    "pooled": 0.12,
    "vote 1": 0.03,
    "comparison 1": 0.04,
    "main": 0.22,
    "moment 1": 0.24,
    "vote 2": 0.03,
    "moment 2": 0.15,
    "vote 3": 0.04,
    "comparison 2": 0.06,
    "spread": 0.05,
}
_LEVELS_AND_MOMENTS = {
    "pooled": 0.12,
    "vote 1": 0.03,
    "main": 0.26,
    "moment 1": 0.28,
    "vote 2": 0.03,
    "moment 2": 0.19,
    "vote 3": 0.04,
    "spread": 0.05,
}
_LEVELS_AND_MEAN = {"pooled": 0.83, "vote 1": 0.04, "comparison 1": 0.06, "spread": 0.07}
# Without a window of levels: budget shares of queries that have none of their own, and fractions.
_WITHOUT_WINDOW = {
    "direction": ("comparison 1", 1.0),
    "size": ("spread", 1.0),
    "vote 4": ("comparison 2", 1.0),
    "moment 3": ("pooled", 1.0),
}
_MEAN_WITHOUT_WINDOW = {
    "size": ("pooled", 0.1),
    "main": ("pooled", 0.9),
    "vote 2": ("comparison 1", 1.0),
}
_CLEAR_SHAPES = 2.5  # tasks over the noise of a vote on shapes, which is not held with fewer
_ONCE = 12.0  # tasks times mu over the root of a model's numbers, below which rounds come once
_RELATED_PATH = 0.5  # of the rounds of a relation, at least, with little budget
_CROWD = 10.0  # numbers of a pooled model for every task, at most, without a budget
_LATER = 0.18  # that the second rounds then leave to the first
_MOST_WINDOW = 0.12  # share of the window of levels
_OF_ZOOMS = 0.3  # of the rounds of the pooled model, which zooms into the window may take
# Standard deviations by which half of the tasks should stand out: of the scale of features, which
# is looked for from this z on; and in the largest window, without which no level is looked for.
_SCALE, _LEAST_FOR_SCALE, _LEAST_WINDOW = 12.0, 100.0, 11.5
# The same of the vote on whether columns differ, and its largest share; shares that their scales
# are queried in.
_COLUMNS, _MOST_COLUMNS = 5.0, 0.02
_OF_COLUMNS, _OF_COLUMNS_ONCE, _OF_COLUMNS_OF_MEAN = ("main", 1.0), ("pooled", 0.6), ("pooled", 0.4)
# Votes on evidence, where there are enough tasks: on rank and floor of the first moment, on the
# sparse shape as its rival, and on a step, new directions and the floor after two block rounds.
_FEW_ROWS = {"rank": 0.01, "floor": 0.01, "rival": 0.01, "refine": 0.06}
# Groups: size, cells, number and spread; their rounds are in what is left of the others.
GROUP_SHARES = ("group size", "group cells", "group number", "group spread")
_GROUPS = dict(zip(GROUP_SHARES, (0.01, 0.05, 0.02, 0.02), strict=True))


def possible(wanted, levels=False):
    """Names of the structures among `wanted` that a fit may find, in the order of `WEIGHTS`."""
    needs = {
        "alone": set(),
        "half of the mean": {"mean"},
        "mean and low-rank": {"mean", "low-rank"},
        "common": {"mean"} if levels else {""},
    }
    return [name for name in WEIGHTS if needs.get(name, {name}) <= set(wanted)]


def n_free(population):
    """Models of a task that carry information: the common part of C classes does not."""
    return max(population.n_outputs - 1, 1)


def n_directions(population):
    """Rank of the public span in which a mean is looked for."""
    return min(_RANK + n_free(population) - 1, population.n_features)


def is_able(n_tasks, mu, replace_one):
    """Public rule: whether votes on evidence are worth their budget."""
    return n_tasks * mu >= (150.0 if replace_one else 75.0) or math.isinf(mu)


def name_and_fraction(share):
    """Name of a budget share, and the fraction of it that is used: `share` is a name, for all of
    it, or (name, fraction)."""
    return share if isinstance(share, tuple) else (share, 1.0)


class StructurePlan(Plan):
    """Budget shares of one fit. Reads public numbers only: counts and parameters.

    **Accounting.** A fit is a sequence of shares mu_i^2 whose number, order and sizes follow from
    parameters and counts before anything is released, with sum mu_i^2 = mu^2. What is queried in a
    share may depend on earlier releases: in the share "main" either the rounds of the mean or a
    second moment, in others about which structures and bounds, or nothing at all. In each case the
    share is a mechanism that is mu_i-GDP for every outcome y of the shares before: a Gaussian
    release with noise of its sensitivity over mu_i, where both may depend on y; or T such rounds
    with mu_i / sqrt(T) each and T public, which are mu_i-GDP together; or nothing, which is 0-GDP.
    This is the premise of adaptive composition of Gaussian differential privacy (Dong,
    Roth and Su 2022, Theorem 4 and Corollary 2: if M_i(., y) is mu_i-GDP for every y, then
    (M_1, ..., M_n) is sqrt(sum mu_i^2)-GDP). The budgets do not depend on y, so that no theorem on
    filters or odometers, for adaptively chosen budgets, is needed. A share that is not used is not
    given to another.

    **Sensitivities** (replace-one; zero-out in brackets), of the sum over tasks of

    - votes (p, q), p in the simplex or 0, abs(q_j) <= p_j: 2 (sqrt(2)). This is the hull of 0
      and of the points (e_j, +-e_j) of length sqrt(2); a distance is largest between corners,
      and (e_j, e_j) - (e_l, +-e_l) and (e_j, e_j) - (e_j, -e_j) have length 2.
    - moments u u' with abs(u) = 1 or u = 0: sqrt(2) (1), in Frobenius norm.
    - directions V' u, V with orthonormal columns: 2 (1).
    - sizes and levels, unit vectors of a bin of a histogram: sqrt(2) (1). Of d columns, one each
      in d histograms: sqrt(2 d) (sqrt(d)).
    - updates and intercepts of length at most r, and votes on columns, noises and spreads, numbers
      from -r to r: 2 r (r). The same for updates times a row of length 1 at most, of a relation.
    - votes on a window and on a zoom, two numbers from -1/2 to 1/2: sqrt(2) (sqrt(1/2)).
    - comparisons, two numbers of at most 1: 2 sqrt(2) (sqrt(2)).
    - votes on evidence, vectors of length at most c: 2 c (c), see `skpmtl.engine.votes`.
    - shares of rows in bins, non-negative and of sum 1: sqrt(2) (1).
    - counts and directions (b r_j, a r_j v_j) about centres: sqrt(2) (1), see
      `skpmtl.engine.groups`.
    - blocks u u' of trace at most 1: sqrt(2) (1), see `skpmtl.engine.spectrum`.

    A task with models of several classes sends those of all of them as one vector: u is their
    direction, of length 1 together, whose moment is the sum over the classes
    (`skpmtl.privacy.moments`), and V' u is taken class by class, which makes nothing longer.

    Parameters
    ----------
    est : estimator
    population : Population
    structures : tuple of str
        Of `STRUCTURES`.

    Attributes
    ----------
    private : bool
    n_free, rank : int
        See `n_free` and `n_directions`.
    ratio : float
        Signal over noise of one moment that has the whole budget: how far what all tasks share
        stands above the edge of the noise. Infinite without privacy.
    names : list of str
        Structures that may be found, in the order of the votes.
    budget_shares : dict of str to float
        Parts of mu^2, by name; empty when nothing is released.
    levels : bool
        Whether levels of tasks are looked for.
    looks_once : bool
        Whether the budget is too small for further rounds of the pooled model.
    scales_columns : bool
        Whether tasks vote on scales of the columns.
    columns_from : (str, float)
        Budget share, and fraction of it, of the scales of columns, where they differ.
    lacks_range : bool
        Whether levels are not looked for since no public range of the target is given.
    with_residuals : bool
        Whether distances from the mean model are asked for.
    few_rows : bool
        Whether tasks vote on rank and floor of the moment, and refine its directions.
    asks_for_groups, groups : bool
        Whether groups of tasks are asked for, and whether the budget allows to look for them.
    numbers : tuple of int
        Of groups, on which tasks vote.
    relation : Relation or None
        Of the pooled models of tasks, with levels.
    cap_curvature : bool
        Whether `skpmtl.engine.pooled.PooledUpdates` has the levels of tasks.
    without_window : dict of str to (str, float)
        Budget shares, and fractions of them, of the course without levels, which goes on where no
        window of levels stands out.
    """

    cap_curvature = False
    relation = None
    numbers = NUMBERS
    lacks_range = False

    def __init__(self, est, population, structures, public_init=None):
        self.public_init = public_init
        m, d = population.n_tasks, population.n_features
        self.n_tasks, self.dimension, self.adjacency = m, d, est.adjacency
        self.n_outputs = population.n_outputs
        self.n_free, self.rank = n_free(population), n_directions(population)
        self.structures, self.log_loss, self.loss = structures, est._log_loss, est.loss
        self.private = est._is_private()
        self.epsilon = self.delta = None
        self.mu, self.n_servers = math.inf, est._n_servers
        if self.private:
            self.epsilon, self.delta = check_budget(est.epsilon, est.delta, m)
            self.mu = divided_mu(self.epsilon, self.delta, self.n_servers)
        self.mean = est.unseen_task == "mean"
        self.target_range = est._sent_range()
        self.ratio = m * self.mu / (self._reach(math.sqrt(2.0), 1.0) * math.sqrt(2.0 * d))
        noise = self._reach(2.0, math.sqrt(2.0)) / (m * self.mu)
        # A vote whose noise is above 1 says nothing, in the largest share that one may have.
        self.silent = self.ratio < _HOPELESS or noise > math.sqrt(_ONE_MOMENT["vote 1"])
        self.levels = not self.silent and self._looks_for_levels(est)
        self.looks_once, self.columns_from = False, _OF_COLUMNS
        self.is_sparse = population.is_sparse
        have_scales = not self.log_loss or (est._classification and not self.private)
        self.scales_columns = self.levels and have_scales and d > 1
        can_vote = self.levels and is_able(m, self.mu, self.adjacency == "replace-one")
        self.few_rows = can_vote and not self.log_loss and "low-rank" in structures
        self.asks_for_groups = GROUPS in structures
        if self.asks_for_groups and self.n_outputs > 1:
            raise ValueError(
                f"Groups are looked for among models of two classes, and these have "
                f'{self.n_outputs}. Leave "groups" out, or pass public groups to '
                "PrivateMeanRegMTLClassifier(clusters=...)."
            )
        self.groups = self.asks_for_groups and can_vote
        self.no_groups = ""
        if not self.groups:
            able = is_able(m, self.mu, self.adjacency == "replace-one")
            self.no_groups = "levels are not pooled" if able else "too few tasks for the budget"
        self.all_pooled = est.levels == "pooled"
        self.has_intercepts = est.fit_intercept
        if self.mean and self.has_intercepts and not (self.levels or self.silent):
            if self.target_range is None:
                raise ValueError(
                    'unseen_task="mean" with so few tasks for the budget: no level of them can be '
                    "found, and the mean of their intercepts needs the public range of the target, "
                    "target_range=(low, high)."
                )
        self.names = possible(structures, self.levels)
        self.budget_shares = {} if self.silent else self._shares()
        self.with_residuals = getattr(est, "uncertainty", None) == "unseen"
        if self.with_residuals and not self.silent:
            rest = 1.0 - residuals.SHARE
            shares = {name: fraction * rest for name, fraction in self.budget_shares.items()}
            self.budget_shares = {**shares, "residuals": residuals.SHARE}
        self.without_window = _WITHOUT_WINDOW
        if structures == ("mean",):
            self.without_window = _MEAN_WITHOUT_WINDOW

    def _looks_for_levels(self, est):
        """Public rule: levels of one output, in a window that is public or can be found."""
        if est.levels == "free" or not est.fit_intercept or self.n_outputs > 1:
            return False
        # Without noise a pooled model of so many numbers fits the rows that it was learnt from.
        crowded = not self.private and self.dimension + 1 > _CROWD * self.n_tasks
        if crowded and est.levels != "pooled":
            return False
        has_window = (_LEAST_WINDOW / self._z) ** 2 <= _MOST_WINDOW
        if has_window or self.target_range is not None:
            return True
        if est.levels == "pooled":
            raise ValueError(
                'levels="pooled" with so few tasks for the budget: no window of levels can be '
                "found. Pass the public range of the target, target_range=(low, high), or "
                'levels="auto".'
            )
        self.lacks_range = True
        return False

    def _shares(self):
        if self.levels:
            return self._shares_of_levels()
        if self.structures == ("mean",):
            relative = _MEAN
        elif self.ratio < _SHORT:  # one moment finds no mean worth its rounds
            relative = _ONE_MOMENT
        else:
            relative = _ALL if "mean" in self.structures else _MOMENTS
        if not self.mean or self.target_range is None:
            return dict(relative)
        shares = {name: fraction * (1.0 - _INTERCEPT_SHARE) for name, fraction in relative.items()}
        return {**shares, "mean intercept": _INTERCEPT_SHARE}

    def _shares_of_levels(self):
        m, d = self.n_tasks, self.dimension
        if self.structures == ("mean",):
            relative, self.columns_from = dict(_LEVELS_AND_MEAN), _OF_COLUMNS_OF_MEAN
        elif "mean" in self.structures:
            relative = dict(_LEVELS)
            self.looks_once = m * self.mu * 2.0 / self._reach(2.0, 1.0) < _ONCE * math.sqrt(d + 1)
            if self.looks_once:
                self.columns_from = _OF_COLUMNS_ONCE
                relative["pooled"] += _LATER
                relative["main"] -= _LATER
        else:
            relative = dict(_LEVELS_AND_MOMENTS)
        if self.few_rows:
            relative |= _FEW_ROWS
        if self.groups:
            relative |= _GROUPS | {"refine": _FEW_ROWS["refine"]}
            # The first moment keeps its share, and so do second rounds that have next to none.
            for share in ("pooled" if self.looks_once else "main", "moment 2"):
                relative[share] -= 0.5 * sum(_GROUPS.values())
        z, first = self._z, {}
        if self.public_window is None:
            first["window"] = levels.window_share(z, _MOST_WINDOW)
        if self.scales_columns:
            first["columns"] = min(max((_COLUMNS / z) ** 2, levels.LEAST_SHARE), _MOST_COLUMNS)
        if z >= _LEAST_FOR_SCALE:
            first["scale"] = max((_SCALE / z) ** 2, levels.LEAST_SHARE)
        rest = (1.0 - sum(first.values())) / sum(relative.values())
        return first | {name: fraction * rest for name, fraction in relative.items()}

    @property
    def _z(self):
        """Tasks times mu, for histograms."""
        return self.n_tasks * self.mu * math.sqrt(2.0) / self._reach(math.sqrt(2.0), 1.0)

    @property
    def public_window(self):
        """Public middle and half-width of the levels; None where a histogram is queried."""
        counts = self.loss == "poisson"
        if self.log_loss and not counts:
            return 0.0, 1.0
        if self.target_range is None:
            return None
        low, high = self.target_range
        return 0.5 * (low + high), 1.0 if counts else 0.5 * (high - low)

    @property
    def compares_shapes(self):
        """Whether tasks vote on a low-rank shape against a sparse one, unless about a mean."""
        both = {"low-rank", "sparse"} <= set(self.structures)
        if not both or self.log_loss or "comparison 2" not in self.budget_shares:
            return False
        noise = self._reach(4.0, 2.0) / self.mu_of(("comparison 2", 0.5))
        return self.n_tasks >= _CLEAR_SHAPES * noise

    @property
    def may_have_own_units(self):
        """Whether centres may be in lengths of each task's own model: of real targets."""
        return not self.log_loss and self.n_outputs == 1

    def mu_of(self, share):
        """Mu of a budget share, or of a fraction of one, (name, fraction)."""
        name, fraction = name_and_fraction(share)
        return self.mu * math.sqrt(self.budget_shares[name] * fraction)

    def rounds_of(self, share):
        """Of the mean: their number, and how far they may go together, in units of half the
        length of the first mean."""
        ratio = self.n_tasks * self.mu_of(share) / math.sqrt(self.dimension * self.n_free)
        n_rounds = 1 if ratio < _ONE else 10 if ratio < _FEW else 30
        return n_rounds, min(max(3.0 * math.sqrt(ratio), 2.0), 30.0)

    def bounds_of_pooled(self, share, path_fraction):
        """Bounds on the updates of the rounds of the pooled model, in units of the window."""
        budget = self.n_tasks * self.mu_of(share) * 2.0 / self._reach(2.0, 1.0)
        ratio = budget / (math.sqrt(self.dimension + 1) * self.n_related)
        return bounds_of(ratio, path_fraction, 2.0 if self.relation is None else _RELATED_PATH)

    @property
    def n_related(self):
        """Columns of the relation; 1 without."""
        return 1 if self.relation is None else self.relation.rank

    def _reach(self, replace_one, zero_out):
        return replace_one if self.adjacency == "replace-one" else zero_out

    # ---------------------------------------------------------------------- mechanisms
    # One for every kind of query; None without privacy.
    def vote(self, share):
        """For the mean of the votes, (p, q) in one vector."""
        sensitivity = self._reach(2.0, math.sqrt(2.0)) / self.n_tasks
        return self._vector(share, 2 * len(self.names), sensitivity)

    def moment(self, share):
        """For the sum of u u'."""
        if not self.private:
            return None
        d = self.dimension
        sensitivity = second_moment_sensitivity(1.0, self.adjacency, dimension=d)
        return SymmetricGaussian(d, sensitivity, self.mu_of(share))

    def direction(self, share):
        """For the mean of V' u."""
        size = self.n_outputs * self.rank
        return self._vector(share, size, mean_sensitivity(1.0, self.n_tasks, self.adjacency))

    def size(self, share):
        """For the histogram of sizes."""
        return self._vector(share, SIZE_BINS, self._reach(math.sqrt(2.0), 1.0))

    def round(self, share, clip_norm, n_rounds):
        """For the mean update of one of the rounds of a share."""
        sensitivity = mean_sensitivity(clip_norm, self.n_tasks, self.adjacency)
        size = self.n_outputs * self.dimension
        return self._vector(share, size, sensitivity, n_rounds)

    def pooled(self, share, clip_norm, n_rounds):
        """For the mean update of the pooled model in one of the rounds of a share."""
        sensitivity = mean_sensitivity(clip_norm, self.n_tasks, self.adjacency)
        return self._vector(share, self.n_related * (self.dimension + 1), sensitivity, n_rounds)

    def window(self, share):
        """For histograms of levels, by octaves."""
        return self._vector(share, levels.LEVEL_BINS, self._reach(math.sqrt(2.0), 1.0))

    def inside(self, share):
        """For the sum of votes on a window, and on zooms."""
        return self._vector(share, 2, self._reach(2.0, 1.0) * levels.CORNER)

    def zooms(self):
        """(budget share, mechanism) of histograms of levels in a window."""
        parts = levels.parts_of_zooms(self._z, self.budget_shares["pooled"], _OF_ZOOMS)
        return [(("pooled", fraction), self.zoom(("pooled", fraction))) for fraction in parts]

    def zoom(self, share):
        """For the histogram of levels in a window."""
        return self._vector(share, levels.PLACES, self._reach(math.sqrt(2.0), 1.0))

    def scale(self, share):
        """For the histogram of the scales of features."""
        return self._vector(share, levels.OCTAVES, self._reach(math.sqrt(2.0), 1.0))

    def column_scales(self, share):
        """For the histograms of the scales of all columns."""
        d = self.dimension
        return self._vector(
            share, d * levels.OCTAVES, self._reach(math.sqrt(2.0 * d), math.sqrt(d))
        )

    def comparison(self, share):
        """For the sum of two clipped differences of log evidence."""
        return self._vector(share, 2, self._reach(2.0, 1.0) * math.sqrt(2.0))

    def evidence(self, share):
        """For the sum of the clipped differences of a vote on evidence."""
        return self._vector(
            share, votes.N_DIFFERENCES, votes.sensitivity(self.adjacency == "replace-one")
        )

    def group_sum(self, share, size):
        """For the sums of `skpmtl.engine.groups`, of so many numbers."""
        return self._vector(share, size, self._reach(math.sqrt(2.0), 1.0))

    @property
    def std_of_group(self):
        """Of the number of tasks of a group, in a round; 0 without privacy."""
        if not self.private:
            return 0.0
        return math.sqrt(2.0) * self._reach(math.sqrt(2.0), 1.0) / self.mu_of(("moment 2", 0.5))

    def number(self, share, reach):
        """For a sum of numbers from -reach to reach."""
        return self._vector(share, 1, self._reach(2.0, 1.0) * reach)

    def residuals(self, share):
        """For the sum of shares of rows by their distance from the mean model."""
        return self._vector(share, len(residuals.BINS), self._reach(math.sqrt(2.0), 1.0))

    def intercept(self, share, reach):
        """For the mean intercept, or those of several classes, of length `reach` at most."""
        sensitivity = mean_sensitivity(reach, self.n_tasks, self.adjacency)
        return self._vector(share, self.n_outputs, sensitivity)

    def _vector(self, share, dimension, sensitivity, n_rounds=1):
        if not self.private:
            return None
        return VectorGaussian(dimension, sensitivity, self.mu_of(share) / math.sqrt(n_rounds))

    # -------------------------------------------------------------------------- report
    accounting = (
        "exact Gaussian differential privacy, adaptive composition of budget shares that are "
        "fixed before the fit"
    )
    silence = "there are too few tasks for this budget to find anything that they share"

    def releases(self, made=None):
        """`made`: what was released, a list of (budget share, statistic, mechanism), the released
        shares of the structures, and notes on levels and groups; None: before a fit, when the
        budget shares are listed."""
        if made is None:
            return [{"name": name, "mu": float(self.mu_of(name))} for name in self.budget_shares]
        return [{"name": share, **noise.describe(what)} for share, what, noise in made[0]]

    def mechanism(self):
        return "Gaussian noise in budget shares that are fixed before the fit"

    def public_inputs(self):
        public = {
            "n_tasks": self.n_tasks,
            "n_features": self.dimension,
            "structures": self.structures,
        }
        if self.budget_shares:
            shares = (f"{name} {fraction:.3g}" for name, fraction in self.budget_shares.items())
            public["budget shares"] = ", ".join(shares)
            public["vote_range"] = VOTE_RANGE[self.log_loss]
        if self.loss != "squared":
            public["loss"] = self.loss
        if self.n_outputs > 1:
            public["n_classes"] = self.n_outputs
        if self.target_range is not None and (self.mean or self.levels):
            less = "" if self.public_init is None else ", less the public initial model"
            public[f"target_range{less}"] = self.target_range
        return public

    def notes(self, made=None):
        if made is None:
            return {}
        used = {share for share, _, _ in made[0]}
        unused = ", ".join(name for name in self.budget_shares if name not in used)
        notes = {"budget shares not used": unused or "none"}
        notes |= made[2]
        if made[1]:
            notes["released shares of the structures"] = ", ".join(
                f"{name} {share:.2f}" for name, share in made[1].items()
            )
        return notes
