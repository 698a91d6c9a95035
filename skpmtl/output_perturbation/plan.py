"""Public bounds -> how far a record or a task moves a model -> budget of the releases."""

from dataclasses import dataclass

import numpy as np
from scipy.special import expit, wrightomega

from .._kernels.clip import clip_rows
from ..privacy.accounting import check_budget, gdp_epsilon, gdp_mu, pure_epsilons, record_budget
from ..privacy.mechanisms import mean_sensitivity
from ..tables.ids import listed

# Newton steps end within this part of a record's influence L / (n lam) of the minimiser, and
# the sensitivity is raised by twice as much.
_GAP = 1e-6


# ------------------------------------------------------------------------ public bounds
class Bounds:
    """What follows from public bounds on rows and targets for any data.

    The first-order condition gives lam ||w - v||^2 = mean of -l'(p) (p - p_v), p = z'w and
    p_v = z'v, of which the right side is bounded in two ways: by ``slope`` |p - p_v| and
    by its maximum over p.

    Parameters
    ----------
    max_row_norm : float
        Of a row without the constant feature; longer ones are scaled down to it.
    max_target : float or None
        Of |y|, larger ones are set to it; None for the logistic loss.
    clip_norm : float or None
        Bound on w - v that is enforced as well.
    lam : float
    fit_intercept : bool
        Whether there is a constant feature 1.
    """

    def __init__(self, max_row_norm, max_target, clip_norm, lam, fit_intercept):
        self.max_row_norm, self.max_target = max_row_norm, max_target
        self.clip_norm, self.lam = clip_norm, lam
        self.radius = float(np.hypot(max_row_norm, 1.0 if fit_intercept else 0.0))

    def clip(self, X, y):
        """Rows and targets inside the bounds."""
        clipped = np.empty_like(X)
        clip_rows(X, self.max_row_norm, 2, clipped)
        if self.max_target is not None:
            y = np.clip(y, -self.max_target, self.max_target)
        return clipped, y

    def distance(self, centre_norm):
        """Bound on ||w - v|| for ||v|| = `centre_norm`."""
        a = self.radius * centre_norm
        if self.max_target is None:
            slope, largest = expit(a), wrightomega(a - 1.0)  # max of t / (1 + e^(t - a))
        else:
            slope = self.max_target + a
            largest = slope**2 / 4.0
        return np.minimum(self.radius * slope / self.lam, np.sqrt(largest / self.lam))

    def lipschitz(self, centre_norm):
        """Bound on the gradient of one record's loss at the minimiser."""
        score = self.radius * (centre_norm + self.distance(centre_norm))
        slope = expit(score) if self.max_target is None else self.max_target + score
        return self.radius * slope


@dataclass(frozen=True)
class Reach:
    """How far the models of a fit may be from their centres, and move.

    Attributes
    ----------
    limit : ndarray (n_tasks,)
        Bound on ||w - v||, to which contributions are clipped.
    gradient : ndarray (n_tasks,)
        Norm of the gradient at which the solver may stop.
    sensitivity : ndarray (n_tasks,)
        How far w moves (L2) between neighbours.
    record : ndarray (n_tasks,)
        The same when one record is changed.
    """

    limit: np.ndarray
    gradient: np.ndarray
    sensitivity: np.ndarray
    record: np.ndarray


class PerturbationPlan:
    """PerturbationPlan of a record or of a task, divided among releases. Reads public numbers only.

    Parameters
    ----------
    est : estimator
        Its `guarantee`, `group`, `mechanism`, `adjacency`, `epsilon`, `delta`,
        `max_task_rows` and `min_task_rows`.
    table : TaskTable or Population
        With the sizes of the tasks.
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
    rows : ndarray (n_tasks,)
        Public numbers of rows that sensitivities are divided by; ones when the whole
        contribution of a task is bounded instead.
    rows_are_public : bool
        Whether these are the numbers of rows of the data.
    """

    def __init__(self, est, table, n_releases):
        self.unit, self.adjacency = est.guarantee, est.adjacency
        self.group = est.group if self.unit == "task" else None
        self.grouped = self.group in ("published", "tight", "gaussian")
        auto = "gaussian" if self.group in ("gaussian", "direct") else "gamma"
        self.kind = auto if est.mechanism == "auto" else est.mechanism
        if self.group == "gaussian" and self.kind == "gamma":
            raise ValueError(
                'group="gaussian" is the group privacy of Gaussian noise: set '
                'mechanism="gaussian" or "auto", or group="published" or "tight".'
            )
        self._set_rows(est, table)
        pure = self.kind == "gamma"
        units = table.n_tasks if self.unit == "task" else int(table.sizes.sum())
        self.epsilon, self.delta = check_budget(
            est.epsilon, est.delta, units, pure=pure, unit=self.unit
        )
        self.size = int(est.max_task_rows) if self.grouped else 1
        self.record = self.epsilon / self.size, self.delta  # epsilon, delta of one record
        if self.group in ("published", "tight"):
            self.record = record_budget(self.epsilon, self.delta, self.size, self.group)
        elif self.group == "gaussian":
            mu = gdp_mu(self.epsilon, self.delta) / self.size
            self.record = float(gdp_epsilon(mu, self.delta)), self.delta
        even = np.ones(n_releases)
        if pure:
            method = "cb" if self.group == "published" else "best"
            self.mu, self.shares = None, self.size * pure_epsilons(*self.record, even, method)
        else:
            lemma = self.group in ("published", "tight")
            mu = self.size * gdp_mu(*self.record) if lemma else gdp_mu(self.epsilon, self.delta)
            self.mu, self.shares = float(mu), mu / np.sqrt(n_releases) * even

    def _set_rows(self, est, table):
        if self.grouped and est.max_task_rows is None:
            raise ValueError(
                f"group={est.group!r} needs max_task_rows, a public bound on the number of rows "
                'of every task, which multiplies the noise. Pass it, or group="direct", or '
                'guarantee="record".'
            )
        low, high = est.min_task_rows, est.max_task_rows
        if low is not None and high is not None and low > high:
            raise ValueError(f"min_task_rows={low!r} exceeds max_task_rows={high!r}.")
        self.bounds = low, high
        self.rows_are_public = self.group != "direct" and low is None
        if self.rows_are_public:
            self.rows = table.sizes.astype(float)
        else:
            self.rows = np.full(table.n_tasks, 1.0 if self.group == "direct" else float(low))

    def check_rows(self, table):
        """ValueError if a task has fewer or more rows than the public bounds say."""
        low, high = self.bounds
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

    def reach(self, bounds, centre_norm):
        """-> Reach of models around centres of the public norms `centre_norm` (n_tasks,)."""
        factor = mean_sensitivity(1.0, 1.0, self.adjacency)
        influence = bounds.lipschitz(centre_norm) / (self.rows * bounds.lam)
        limit = bounds.distance(centre_norm) + _GAP * influence
        if bounds.clip_norm is not None:
            limit = np.minimum(limit, bounds.clip_norm)
        # Both neighbours are solved to the gap only: |w - w*| <= |gradient| / lam. A record that
        # contributes nothing leaves a model of the others, hence 2 for both adjacencies.
        record = np.minimum((factor + 2.0 * _GAP) * influence, 2.0 * limit)
        moved = factor * limit if self.group == "direct" else self.size * record
        return Reach(limit, _GAP * influence * bounds.lam, moved, record)
