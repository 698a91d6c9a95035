"""From a privacy budget to the mechanisms of output perturbation, and the report.

Noise is proportional to how far a record, or a task, moves a model (`Reach`), which follows from
public bounds and numbers of rows.
"""

import numpy as np

from ...exchange.plan import Plan, check_gaussian
from ...privacy.accounting import check_budget, gdp_epsilon, gdp_mu, pure_epsilons, record_budget
from ...privacy.mechanisms import VectorGamma, VectorGaussian, mean_sensitivity
from ...privacy.report import ALWAYS, PUBLIC_LISTS, TRUSTED_CURATOR
from ...tables.ids import listed
from .bounds import Bounds, Reach

# Newton steps end within this fraction of a record's influence L / (n lam) of the minimiser, and
# the sensitivity is raised by twice as much.
_GAP = 1e-6


class PerturbationPlan(Plan):
    """Budget of a record or of a task, divided among releases. Reads public numbers only.

    Parameters
    ----------
    est : estimator
        Its `guarantee`, `group`, `mechanism`, `adjacency`, `epsilon`, `delta`, `max_task_rows`,
        `min_task_rows`, and the parameters that `Bounds` are made of.
    population : Population
        With the sizes of the tasks, where the sensitivity is divided by them.
    n_releases : int

    Attributes
    ----------
    kind : {"gamma", "gaussian"}
    size : int
        Records that a neighbour changes: 1, or the bound on the rows of a task.
    shares : ndarray (n_releases,)
        mu ("gaussian") or epsilon ("gamma") of every release, for `size` records.
    mu : float or None
        Gaussian-DP parameter of all releases together.
    bounds : Bounds
    rows : ndarray (n_tasks,)
        Public numbers of rows that sensitivities are divided by, infinite for tasks that have
        none; ones when the whole contribution of a task is bounded instead.
    rows_are_public : bool
        Whether these are the numbers of rows of the data.
    """

    trusted = TRUSTED_CURATOR

    def __init__(self, est, population, n_releases):
        self.unit, self.adjacency = est.guarantee, est.adjacency
        self.n_tasks, self.n_features = population.n_tasks, population.n_features
        given = ("lam", "max_row_norm", "max_target", "max_task_rows", "min_task_rows", "clip_norm")
        self.given = {n: getattr(est, n) for n in given if getattr(est, n, None) is not None}
        self.width = population.n_features + bool(est.fit_intercept)
        self.bounds = Bounds.of(est)
        self.group = est.group if self.unit == "task" else None
        self.grouped = self.group in ("published", "tight", "gaussian")
        auto = "gaussian" if self.group in ("gaussian", "direct") else "gamma"
        self.kind = auto if est.mechanism == "auto" else est.mechanism
        if self.group == "gaussian" and self.kind == "gamma":
            raise ValueError(
                'group="gaussian" is the group privacy of Gaussian noise: set '
                'mechanism="gaussian" or "auto", or group="published" or "tight".'
            )
        self._set_rows(est, population)
        pure = self.kind == "gamma"
        self.epsilon, self.delta = check_budget(
            est.epsilon, est.delta, self._n_units(est, population), pure=pure, unit=self.unit
        )
        self.size = int(est.max_task_rows) if self.grouped else 1
        self.record = self.epsilon / self.size, self.delta  # epsilon, delta of one record
        if self.group in ("published", "tight"):
            self.record = record_budget(self.epsilon, self.delta, self.size, self.group)
        elif self.group == "gaussian":
            mu = gdp_mu(self.epsilon, self.delta) / self.size
            self.record = float(gdp_epsilon(mu, self.delta)), self.delta
        even, self.n_servers = np.ones(n_releases), est._n_servers
        if pure:
            check_gaussian(
                self.n_servers,
                f"group={est.group!r} with mechanism={est.mechanism!r} has other",
            )
            method = "cb" if self.group == "published" else "best"
            self.mu, self.shares = None, self.size * pure_epsilons(*self.record, even, method)
        else:
            lemma = self.group in ("published", "tight")
            mu = self.size * gdp_mu(*self.record) if lemma else gdp_mu(self.epsilon, self.delta)
            self.mu = float(mu / np.sqrt(self.n_servers))
            self.shares = self.mu / np.sqrt(n_releases) * even

    def _set_rows(self, est, population):
        if self.grouped and est.max_task_rows is None:
            raise ValueError(
                f"group={est.group!r} needs max_task_rows, a public bound on the number of rows "
                'of every task, which multiplies the noise. Pass it, or group="direct", or '
                'guarantee="record".'
            )
        low, high = est.min_task_rows, est.max_task_rows
        if low is not None and high is not None and low > high:
            raise ValueError(f"min_task_rows={low!r} exceeds max_task_rows={high!r}.")
        self.row_limits = low, high
        self.rows_are_public = self.group != "direct" and low is None
        if not self.rows_are_public:
            least = 1.0 if self.group == "direct" else float(low)
            self.rows = np.full(population.n_tasks, least)
        elif population.sizes is None:
            raise ValueError(
                "The numbers of rows of the tasks are not public here, and the sensitivity is "
                "divided by them: pass min_task_rows=, a public lower bound, or "
                'guarantee="task" with group="direct".'
            )
        else:
            self.rows = np.where(population.sizes > 0, population.sizes, np.inf)
        empty = population.sizes is not None and (population.sizes == 0).any()
        if empty and low is not None and self.grouped:
            raise ValueError(
                f"min_task_rows={low!r} says that every task has rows, but "
                f"{listed(population.tasks[population.sizes == 0])} of tasks= have none: leave "
                'them out of the list, or pass group="direct".'
            )

    def _n_units(self, est, population):
        """Tasks or records, of which the default of delta is made."""
        if self.unit == "task":
            return population.n_tasks
        if population.sizes is not None:
            return int(population.sizes.sum())
        if est.delta is None and self.kind != "gamma":
            raise ValueError(
                "The number of records is not public here, from which delta=None would follow: "
                "pass delta=."
            )
        return int(self.rows[np.isfinite(self.rows)].sum())  # or more

    def check_rows(self, table, positions):
        """ValueError if tasks have other numbers of rows than the public ones, or the bounds, say.

        `positions`: of the tasks of the table in the population.
        """
        low, high = self.row_limits
        for bound, sign, word in ((high, 1, "more"), (low, -1, "fewer")):
            if bound is None:
                continue
            odd = sign * (table.sizes - bound) > 0
            if odd.any():
                name = "max_task_rows" if sign > 0 else "min_task_rows"
                raise ValueError(
                    f"Tasks with {word} rows than {name}={bound!r}: "
                    f"{listed(table.tasks[odd])} ({table.sizes[odd][0]} rows in the first). "
                    "Drop rows or tasks by a rule that does not look at the data, or change "
                    "the bound."
                )
        odd = table.sizes != self.rows[positions]
        if self.rows_are_public and odd.any():
            raise ValueError(
                f"Tasks with other numbers of rows than are public: {listed(table.tasks[odd])}. "
                "The noise is made for those: correct them, or pass min_task_rows=."
            )

    def reach(self, centre_norm):
        """-> Reach of models around centres of the public norms `centre_norm` (n_tasks,)."""
        bounds, factor = self.bounds, mean_sensitivity(1.0, 1.0, self.adjacency)
        influence = bounds.lipschitz(centre_norm) / (self.rows * bounds.lam)
        limit = bounds.distance(centre_norm) + _GAP * influence
        if bounds.clip_norm is not None:
            limit = np.minimum(limit, bounds.clip_norm)
        # Both neighbours are solved to the gap only: |w - w*| <= |gradient| / lam. A record that
        # contributes nothing leaves a model of the others, hence 2 for both adjacencies.
        record = np.minimum((factor + 2.0 * _GAP) * influence, 2.0 * limit)
        moved = factor * limit if self.group == "direct" else self.size * record
        return Reach(limit, _GAP * influence * bounds.lam, moved, record)

    # -------------------------------------------------------------------------- report
    @property
    def guarantee(self):
        """See `Plan`."""
        return f"{self.unit} DP"

    @property
    def accounting(self):
        """See `Plan`."""
        return "composition of pure releases" if self.mu is None else super().accounting

    def mechanism(self):
        return f"output perturbation, {self.mechanisms[0].name} noise"

    def releases(self, made=None):
        return [
            {"name": name, **mechanism.describe(self.statistic)}
            for name, mechanism in zip(self.names, self.mechanisms, strict=True)
        ]

    def public_inputs(self):
        return {"n_tasks": self.n_tasks, "n_features": self.n_features, **self.given}

    def notes(self, made=None):
        notes = {}
        if self.grouped:
            epsilon, delta = self.record
            notes["group"] = (
                f"{self.group} group privacy for {self.size} records; the same releases are "
                f"(epsilon = {epsilon:.6g}, delta = {delta:.6g})-differentially private in every "
                "record"
            )
        if self.mu is not None:
            # The lemma is loose for Gaussian noise; this is what was really spent.
            mu = self.mu * np.sqrt(self.n_servers)
            notes["epsilon_exact"] = float(gdp_epsilon(mu, self.delta))
        return notes

    def assumptions(self):
        rows = ("the number of rows of every task is public",) if self.rows_are_public else ()
        rows += ("whether Newton's method reaches the local models (else: an error) is no secret",)
        if self.unit == "record":
            rows += (
                "a record is one row of one task: with a 2-D y, a row with labels in several "
                "tasks is protected for each of them alone",
            )
        trusted = (self.trusted,) if self.n_servers == 1 else ()
        return *trusted, *rows, _BOUNDED, PUBLIC_LISTS, *ALWAYS


class AggregationPlan(PerturbationPlan):
    """One release of the average of all models: a task moves it by its own reach over m."""

    def __init__(self, est, population):
        super().__init__(est, population, 1)
        sensitivity = self.reach(np.zeros(self.n_tasks)).sensitivity.max() / self.n_tasks
        family = VectorGaussian if self.kind == "gaussian" else VectorGamma
        self.mechanisms = [family(self.width, sensitivity, self.shares[0])]

    names, statistic = ("average",), "average of the models of all tasks"

    def notes(self, made=None):
        released = "the noisy average, which is the model of every task: coef_ may be published"
        return {"released": released, **super().notes()}


class RelationshipPlan(PerturbationPlan):
    """Rounds, in each of which all models are released, in units of each task's sensitivity.

    In these units a neighbour moves the vector of one task by 1 at most, and no other.
    """

    trusted = "every task, or a curator that it trusts, adds the noise to its model"

    def __init__(self, est, population):
        super().__init__(est, population, est.n_rounds)
        self.alpha = est.alpha
        m, width = self.n_tasks, self.width
        if self.kind == "gaussian":
            self.mechanisms = [VectorGaussian(m * width, 1.0, share) for share in self.shares]
        else:
            self.mechanisms = [VectorGamma(width, 1.0, s, n_vectors=m) for s in self.shares]

    statistic = "updates of all tasks, each in units of its sensitivity"

    @property
    def names(self):
        """Of the releases."""
        return [f"round {t + 1}" for t in range(len(self.mechanisms))]

    def public_inputs(self):
        rounds = {"alpha": self.alpha, "n_rounds": len(self.mechanisms)}
        return {**super().public_inputs(), **rounds}

    def notes(self, made=None):
        first = self.reach(np.zeros(self.n_tasks)).sensitivity
        return {
            "released": "the noisy models of all tasks go to the curator, who returns to each task "
            "its column of the smoothed matrix; all of it, and with it coef_, may be published",
            "sensitivity of the models in round 1": (first[first > 0].min(), first.max()),
            **super().notes(),
        }


_BOUNDED = (
    "rows and targets beyond the public bounds were clipped to them, so that nothing is assumed "
    "about the data"
)
