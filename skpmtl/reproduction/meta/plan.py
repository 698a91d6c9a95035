"""Privacy of the rounds: noise of every task for its budget, and the report.

Full batches: a record enters every one of the s steps of a task, each of which is a Gaussian
release of sensitivity c clip_norm, c = 1 ("zero-out") or 2 ("replace-one"), with noise z clip_norm.
Together they are one Gaussian release of parameter mu = g c sqrt(s) / z for groups of g records.

Batches drawn with replacement: the record enters step i with j_i ~ Binomial(b, 1 / n) copies. The
draws do not depend on the rows. Given them the steps are one Gaussian release of parameter
c sqrt(J) / z, J = sum of the j_i^2, so that delta(epsilon) is at most its mean over J
(`replacement_delta`). This counts the draws as if they were published, and claims no amplification.
"""

import math
from functools import lru_cache

import numpy as np
from scipy import fft
from scipy.optimize import brentq
from scipy.stats import binom

from ...exchange.plan import Plan
from ...privacy.accounting import check_budget, gdp_delta, gdp_epsilon, gdp_mu, record_budget
from ...privacy.mechanisms import mean_sensitivity
from ...privacy.report import ALWAYS, PUBLIC_LISTS, exact_report

__all__ = ["MetaRoundsPlan", "noisy_sgd_settings", "replacement_delta"]
_TAIL = 1e-13  # probability of numbers of copies that are counted as a failure, in every step


def noisy_sgd_settings(n, size, epsilon, delta, radius, lipschitz):
    """Settings of noisy SGD for n rows, after Bassily et al. (2019).

    The constants were not compared with that article. The excess risk of the average iterate is at
    most 10 radius lipschitz max(sqrt(size log(1 / delta)) / (epsilon n), 1 / sqrt(n)) for losses of
    smoothness up to 2 / rate, unless `n_steps` was raised to 1. That the noise keeps (epsilon,
    delta) is not certified; `MetaRoundsPlan` states what it keeps for certain.

    Parameters
    ----------
    n, size : int
        Rows of the task, and numbers of a model.
    epsilon, delta : float
    radius : float
        Of the ball of parameters.
    lipschitz : float
        Bound on the gradients of single rows.

    Returns
    -------
    n_steps : int
        min(n / 8, epsilon^2 n^2 / (32 size log(1 / delta))), at least 1.
    rate : float
        radius / (lipschitz sqrt(n_steps)).
    batch_size : int
        max(n sqrt(epsilon / (4 n_steps)), 1).
    noise_multiplier : float
        Std of the noise on a sum of gradients over `lipschitz`: with the variance 8 n_steps
        lipschitz^2 log(1 / delta) / (n epsilon)^2 of the noise on their mean.
    """
    log = math.log(1.0 / delta)
    n_steps = max(int(min(n / 8.0, (epsilon * n) ** 2 / (32.0 * size * log))), 1)
    batch = max(math.ceil(n * math.sqrt(epsilon / (4.0 * n_steps))), 1)
    z = batch * math.sqrt(8.0 * n_steps * log) / (n * epsilon)
    return n_steps, radius / (lipschitz * math.sqrt(n_steps)), batch, z


@lru_cache(maxsize=256)
def _copies(n, batch_size, n_steps, group):
    """Distribution of J, the sum of squares of the copies of a group of records in all steps.

    -> values of J, their probabilities, probability of more
    """
    rate = min(group / n, 1.0)
    most = int(binom.isf(_TAIL, batch_size, rate))
    one = np.zeros(most**2 + 1)
    one[np.arange(most + 1) ** 2] = binom.pmf(np.arange(most + 1), batch_size, rate)
    found, power, left = np.ones(1), one, n_steps
    while left:
        if left & 1:
            found = _convolved(found, power)
        left >>= 1
        if left:
            power = _convolved(power, power)
    # The convolutions are good to 1e-15 of the largest probability, far below any delta.
    J = np.flatnonzero(found > 1e-17)
    return J, found[J], n_steps * _TAIL + 1e-17 * len(found)


def _convolved(a, b):
    """Probabilities of sums. `scipy.signal` has this, and takes a tenth of the import."""
    n = len(a) + len(b) - 1
    size = fft.next_fast_len(n, real=True)
    product = fft.rfft(a, size) * fft.rfft(b, size)
    return np.maximum(fft.irfft(product, size)[:n], 0.0)


def replacement_delta(noise_multiplier, n, batch_size, n_steps, epsilon, adjacency, group=1):
    """delta of steps on batches that are drawn with replacement, at this epsilon.

    Parameters
    ----------
    noise_multiplier : float
        Std of the noise on a sum of clipped gradients over the clip norm.
    n, batch_size, n_steps : int
        Rows of the task, draws of a batch, steps.
    epsilon : float
    adjacency : {"replace-one", "zero-out"}
    group : int, default=1
        Records that are protected together.

    Returns
    -------
    delta : float
    """
    J, p, rest = _copies(n, batch_size, n_steps, group)
    mu = mean_sensitivity(1.0, 1.0, adjacency) * np.sqrt(J) / noise_multiplier
    some = J > 0
    return float(p[some] @ gdp_delta(mu[some], epsilon) + rest)


def _root(function, low, high):
    """Root of a decreasing function of the logarithm, rounded up."""
    return math.exp(brentq(lambda x: function(math.exp(x)), low, high, xtol=1e-6) + 1e-6)


class MetaRoundsPlan(Plan):
    """Budget and public numbers -> noise of every task, and the report.

    Parameters
    ----------
    est : estimator
    sizes : ndarray (n_tasks,) of int
        Rows of every task; public but for ``privacy="local"``, which does not read them for noise.
    size : int
        Numbers of a model.
    mode : {"task-global", "local", None}

    Attributes
    ----------
    inner_steps, batch_sizes, rates : list
        Of the descent of every task; a batch size None is all rows.
    noise_multiplier : ndarray (n_tasks,) or None
        Std of the noise on a sum of clipped gradients ("local": on an update) over the clip norm.
    sensitivity : float
        Of what the noise is added to, for one record ("local": for a task).
    radius : float
        Of the ball of parameters.
    """

    def __init__(self, est, sizes, size, mode):
        m = len(sizes)
        self.mode, self.n_tasks, self.size = mode, m, size
        self.published = est.descent == "bassily"
        self.visits, self.group = est.visits, est.group_size
        self.tasks_per_round = min(est.tasks_per_round, m)
        self.meta_step, self.iterate = est.meta_step, est.iterate
        self.meta_learning_rate, self.meta_decay = est.meta_learning_rate, est.meta_decay
        self.inner_iterate, self.clip_norm = est.inner_iterate, float(est.clip_norm)
        self.radius = math.inf if est.diameter is None else 0.5 * est.diameter
        self.adjacency = "replace-one" if mode == "local" else est.adjacency
        self.reach = mean_sensitivity(1.0, 1.0, self.adjacency)
        self.sensitivity = self.reach * self.clip_norm
        self.n_servers = 1
        self.inner_steps, self.rates = [est.inner_steps] * m, [est.inner_learning_rate] * m
        self.batch_sizes, self.noise_multiplier = [est.batch_size] * m, None
        self.epsilon = self.delta = self.mu = None
        if mode is None:
            return
        count = m if mode == "local" else int(np.sum(sizes))
        unit = "task" if mode == "local" else "record"
        self.epsilon, self.delta = check_budget(est.epsilon, est.delta, count, unit=unit)
        self.sizes = np.asarray(sizes)
        if mode == "local":
            self.mu = float(gdp_mu(self.epsilon, self.delta))
            self.noise_multiplier = np.full(m, self.reach * math.sqrt(self.visits) / self.mu)
        elif self.published:
            self._publish()
        else:
            found = {n: self._multiplier(int(n)) for n in np.unique(sizes)}
            self.noise_multiplier = np.array([found[n] for n in self.sizes])
            if est.batch_size is None:
                self.mu = float(gdp_mu(self.epsilon, self.delta))

    def mu_of_one(self, k):
        """Gaussian-DP parameter of one release of task k for one record, or task."""
        return self.reach / float(self.noise_multiplier[k])

    # ------------------------------------------------------------------------- noise
    def _multiplier(self, n):
        steps, batch = self.visits * self.inner_steps[0], self.batch_sizes[0]
        group = min(self.group, n)
        whole = group * self.reach * math.sqrt(steps) / float(gdp_mu(self.epsilon, self.delta))
        if batch is None:
            return whole

        def excess(z):
            found = replacement_delta(z, n, batch, steps, self.epsilon, self.adjacency, group)
            return math.log(max(found, 1e-300) / self.delta)

        if _copies(n, batch, steps, group)[2] >= self.delta:
            raise ValueError(
                f"delta={self.delta!r} is below the accuracy of the accounting for batches with "
                "replacement: take batch_size=None or a larger delta."
            )
        low = math.log(1e-3 * whole / group)
        return _root(excess, low, math.log(batch * whole) + 5.0)

    def _publish(self):
        """Settings of Bassily et al., and the budget that their noise certainly keeps."""
        stated = self.epsilon, self.delta
        if self.group > 1:  # Corollary 3.1
            stated = record_budget(*stated, self.group, method="published")
        self.published_budget = self.epsilon, self.delta
        found = {
            n: noisy_sgd_settings(int(n), self.size, *stated, self.radius, self.clip_norm)
            for n in np.unique(self.sizes)
        }
        rows = [found[n] for n in self.sizes]
        self.inner_steps, self.rates, self.batch_sizes = (
            [row[i] for row in rows] for i in range(3)
        )
        self.noise_multiplier = np.array([row[3] for row in rows])
        self.epsilon = max(self._certain(int(n), *found[n]) for n in found)

    def _certain(self, n, n_steps, rate, batch, z):
        """epsilon at `delta` that the noise has for certain."""
        steps, group = self.visits * n_steps, min(self.group, n)

        def excess(epsilon):
            found = replacement_delta(z, n, batch, steps, epsilon, self.adjacency, group)
            return math.log(max(found, 1e-300) / self.delta)

        most = float(gdp_epsilon(self.reach * batch * math.sqrt(steps) / z, self.delta))
        return _root(excess, math.log(1e-6), math.log(most) + 1.0)

    # ------------------------------------------------------------------------ report
    @property
    def guarantee(self):
        """See `Plan`."""
        return "local DP per task" if self.mode == "local" else "record-level DP (task-global)"

    @property
    def unit(self):
        """See `Plan`."""
        if self.mode == "local":
            return "task"
        return "record" if self.group == 1 else f"{self.group} records"

    def report(self, source, made=None):
        if self.mode is None:
            return exact_report("there is no clipping and no noise")
        return super().report(source, made)

    def releases(self, made=None):
        entries, local = [], self.mode == "local"
        keys = list(zip(self.noise_multiplier.tolist(), self.inner_steps, strict=True))
        for z, steps in sorted(set(keys)):
            entries.append(
                {
                    "name": f"{keys.count((z, steps))} tasks",
                    "mechanism": "Gaussian",
                    "statistic": "clipped update" if local else "sum of clipped gradients",
                    "sensitivity": self.sensitivity,
                    "norm": "l2",
                    "noise_std": z * self.clip_norm,
                    "noise_multiplier": z,
                    "times": self.visits * (1 if local else steps),
                }
            )
        return entries

    def mechanism(self):
        what = "the clipped update" if self.mode == "local" else "sums of clipped gradients"
        return f"Gaussian noise on {what} of every task, added by the task"

    def public_inputs(self):
        found = {
            "n_tasks": self.n_tasks,
            "clip_norm": self.clip_norm,
            "visits": self.visits,
            "tasks_per_round": self.tasks_per_round,
            "diameter": 2.0 * self.radius,
        }
        if self.mode == "task-global":
            found["n_rows, for noise"] = f"{self.sizes.min()} to {self.sizes.max()}"
            found["group_size"] = self.group
        return found

    def scheme(self):
        order = f"tasks in a public random order, each {self.visits} times"
        if self.mode == "local" or self.batch_sizes[0] is None:
            return order
        return f"{order}; batches drawn with replacement, without amplification"

    def assumptions(self):
        """See `Plan`."""
        own = "every task adds its noise itself, before anything leaves it"
        rows = () if self.mode == "local" else ("the number of rows of every task is public",)
        return own, PUBLIC_LISTS, *rows, *ALWAYS

    def with_servers(self, report):
        """As it is: every task adds its noise itself."""
        return report

    def notes(self, made=None):
        if self.mode == "task-global" and self.published:
            epsilon, delta = self.published_budget
            return {
                "published": f"the noise is that of Algorithm 1 of Bassily et al. for epsilon "
                f"{epsilon:.6g} and delta {delta:.6g}, which rests on amplification by sampling "
                "with constants that are not certified here; the epsilon above is certified"
            }
        return {}
