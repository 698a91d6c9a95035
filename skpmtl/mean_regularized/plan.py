"""Budget of mean-regularised rounds -> mechanisms, accounting and report. Public numbers only."""

import math

from ..engine.plan import StructurePlan
from ..exchange.plan import Plan
from ..privacy.accounting import check_budget
from ..privacy.mechanisms import VectorGaussian, mean_sensitivity
from ..privacy.report import PUBLIC_LISTS, TRUSTED_CURATOR, exact_report
from ..rounds.curator import shrinkage
from ..rounds.plan import SCALE_SHARE, RoundsPlan, columns_within
from . import errors

_INTERCEPT_SHARE = 0.1  # of mu^2, for the mean intercept of unseen_task="mean"
_MOST_CROWD = 3.0
# For every column of a relation of pooled models: tasks times mu over the root of the numbers of a
# model. The noise in the model of a task grows with the number of columns.
_COLUMN_RATIO = 6.0


def auto_rounds(epsilon):
    """Public rule for the number of rounds: 3, 10, 30, 100 for epsilon to .1, 1, 2, above."""
    for limit, rounds in ((0.1, 3), (1.0, 10), (2.0, 30)):
        if epsilon is not None and epsilon <= limit:
            return rounds
    return 100


def alone_weight(ratio, crowd):
    """Prior weight of a task that it is better off alone, against 1 for the centre.

    It holds for a centre as long as the task's own model; the task scales it by the two lengths
    (`PersonalModels`). `ratio` is that of `RoundsPlan`, `crowd` the numbers of all shared models
    over the tasks: by so much, in the mean, a shared model fits the rows that it was learnt from
    better than others, in logarithms of likelihoods, as in Akaike's criterion. The evidence of
    tasks of the fit is corrected by it, up to a bound.
    """
    return (0.1 + 3.0 / ratio) * math.exp(min(crowd, _MOST_CROWD))


def columns_for(est, population):
    """How many columns of a relation the budget carries, by a public rule; None: all."""
    if not est._is_private() or not isinstance(est.clip_norm, str):
        return None
    size = population.n_outputs * population.n_features
    return columns_within(MeanPlan(est, population.n_tasks, size).ratio)


class MeanPlan(Plan, RoundsPlan):
    """`RoundsPlan` of an estimator, with mean intercepts and the report.

    `intercepts` has how many numbers are in the mean intercepts that are released at the end, and a
    number from which those of one task have a bounded distance; None for none.
    """

    free_because = None  # why levels of tasks were not looked for

    def __init__(
        self, est, n_tasks, size, intercepts=None, groups=None, relation=None, public_init=None
    ):
        self.clustered = est.clusters is not None
        self.relation, self.public_init = relation, public_init
        auto = isinstance(est.clip_norm, str)
        private = est._is_private()
        n_rounds = est._n_rounds(est.epsilon if private else None)
        budget = None
        if private and n_rounds != 0:
            budget = check_budget(est.epsilon, est.delta, n_tasks)
            if auto and isinstance(est.n_rounds, str):
                n_rounds = None
        aside, self.deviation = _INTERCEPT_SHARE if intercepts else 0.0, None
        super().__init__(
            n_tasks,
            size,
            budget,
            n_rounds,
            aside=aside,
            adjacency=est.adjacency,
            clip_norm=est.clip_norm,
            groups=groups,
            n_servers=est._n_servers,
            far=est._log_loss or (relation is not None and len(groups) > 1),
            n_started=1 if public_init is None else len(public_init.coef),
        )
        self.no_errors = self._no_errors(est) if est.standard_errors else "not asked for"
        if self.no_errors is None:
            share = errors.share(n_tasks, self.mu, self.adjacency)
            self.set_aside(aside + share)
            size = size // len(self.groups)
            mu = self.mu * math.sqrt(share)
            self.deviation = errors.mechanism(size, self.adjacency, mu)
        self.alone_weight = alone_weight(self.ratio, self.size / self.n_tasks)
        self.intercept = None
        self.intercept_range = (0.0, self.clip_norm) if intercepts is None else intercepts[1:]
        if budget is not None and intercepts:
            share = _INTERCEPT_SHARE if self.n_rounds else 1.0
            mu = self.mu * math.sqrt(share)
            sensitivity = mean_sensitivity(intercepts[2], n_tasks, self.adjacency)
            self.intercept = VectorGaussian(intercepts[0], sensitivity, float(mu))

    def _no_errors(self, est):
        """Why standard errors of the shared models are not released; None where they may be."""
        if self.noise_multiplier is None:
            return "nothing was released"
        if self.n_rounds < errors.LEAST_ROUNDS:
            return f"with n_rounds={self.n_rounds} a shared model does not arrive"
        if self.auto and self.scale is None:
            return "tasks sent in units of their own"
        if est.ridge:
            return "a ridge draws the shared model to zero"
        return None

    # -------------------------------------------------------------------------- report
    own_assumptions = (
        TRUSTED_CURATOR,
        PUBLIC_LISTS,
        "every task receives its own model only, and keeps its intercepts and scaling to itself",
    )

    def report(self, source, made=None):
        if self.n_rounds and self.noise_multiplier is None:
            return exact_report("the rounds ran without noise (epsilon=None)")
        return super().report(source, made)

    def releases(self, made=None):
        """`made`: bounds on the updates of all rounds; None: those planned before the fit."""
        entries = self.entries(self.bounds() if made is None else made)
        if self.intercept is not None:
            statistic = "mean of clipped intercepts"
            entries.append({"name": "mean intercept", **self.intercept.describe(statistic)})
        if self.deviation is not None:
            entry = {"name": "standard errors, deviations"}
            entries.insert(len(entries) - (self.intercept is not None), entry)
            entry |= self.deviation.describe(errors.WORDS)
        return entries

    def mechanism(self):
        what = "updates" if self.n_rounds else "intercepts"
        return f"Gaussian noise on the mean of clipped {what}"

    @property
    def silence(self):
        """Why nothing is released."""
        if self.measures and self.ratio < math.inf:
            return (
                "a shared model would be little but noise: there are too few tasks for this budget "
                "and so many coefficients"
            )
        return "n_rounds=0 leaves no round"

    def public_inputs(self):
        public = {
            "n_tasks": self.n_tasks,
            "n_numbers": self.size,
            "n_rounds": self.n_rounds,
            "clip_norm": "auto" if self.auto else self.clip_norm,
        }
        if self.clustered:
            public["clusters"] = "public mapping of tasks to clusters"
        if self.relation is not None:
            public["relation"] = self.relation.describe()
        if self.free_because is not None:
            public["levels"] = f"free: {self.free_because}"
        if self.n_rounds:
            public["noise over the longest path"] = self.noise_over_path
        if self.auto:
            public |= {"ratio of the rule for the rounds": self.ratio, "path": self.path}
        return public

    def notes(self, made=None):
        notes = {}
        if self.auto and self.n_rounds:
            notes["unit of the updates"] = (
                "every task's own, which stays with it"
                if self.scale is None
                else f"a histogram of lengths, which {SCALE_SHARE:.0%} of the squared budget pays "
                "for; every task's own where it shows no common one"
            )
        if self.intercept is not None:
            notes["mean intercept"] = f"{_INTERCEPT_SHARE:.0%} of the squared budget"
        return notes

    def scheme(self):
        return f"all tasks in every round; constant denominator q = {self.n_tasks}"


class PooledPlan(StructurePlan):
    """Budget shares of a fit around a pooled model: of the structure "mean" alone, with levels.

    `relate`: function of ``quiet`` and ``most``, of so many columns, that gives the `Relation` of a
    private fit, or None.
    """

    cap_curvature = True

    def __init__(self, est, population, public_init=None, relate=None):
        super().__init__(est, population, ("mean",), public_init)
        if relate is not None and self.private and self.levels:
            ratio = self.n_tasks * self.mu * 2.0 / self._reach(2.0, 1.0)
            columns = ratio / (_COLUMN_RATIO * math.sqrt(self.dimension + 1))
            self.relation = relate(quiet=True, most=max(int(columns), 1))
        self.errors = est.standard_errors
        if self.errors and self.levels:
            share = 0.0
            if self.private:
                share = errors.share(self.n_tasks, self.mu, self.adjacency)
            parts = self.budget_shares.items()
            self.budget_shares = {name: part * (1.0 - share) for name, part in parts}
            self.budget_shares["deviation"] = share

    def shrunk(self, updates, theta, noise_std):
        """The coefficients of covariates as far as known noise leaves them; see `shrinkage`."""
        factors = shrinkage(updates, theta, noise_std)[0]
        factors[0] = 1.0  # of the constant
        return factors[:, None] * theta

    def public_inputs(self):
        public = super().public_inputs()
        if self.relation is not None:
            public["relation"] = self.relation.describe()
        return public

    def deviation(self, share):
        """For the sum from which standard errors follow."""
        if not self.private:
            return None
        return errors.mechanism(self.dimension + 1, self.adjacency, self.mu_of(share))
