"""Noise of private meta-learning, calibrated for every task, and the rules for "auto".

Everything here reads public numbers only: parameters, the number of rows of every task, and
the width of the rows. With c = 1 ("zero-out") or 2 ("replace-one"), v the times that a task uses
one record, and z_k the std of the noise on the sum of clipped gradients over the clip norm, the
Gaussian-DP parameter of one record is

    c sqrt(v) / z_k,  v = visits * inner_steps             full batch, exact
                      v = visits * ceil(inner_steps / n_batches_k)   disjoint batches, exact

and g times that for g records of one task. Poisson batches are accounted by privacy-loss
distributions; g records enter a batch in a Binomial(g, rate_k) number. Tasks compose in
parallel, unless one person owns rows of several.
"""

import copy
import functools
import math
import warnings

import numpy as np

from .._kernels.clip import clip_rows
from .._version import __version__
from ..privacy.accounting import check_budget, gdp_mu
from ..privacy.mechanisms import VectorGaussian, mean_sensitivity
from ..privacy.report import PrivacyLeakWarning, PrivacyReport
from ..privacy.sampling import accountant_name, poisson_epsilon, poisson_noise

# Poisson: up to so many different rates are calibrated one by one, others rounded up to a grid,
# a coarser one for groups, whose accounting takes half a second each time.
_EXACT_RATES, _RATE_GRID, _GROUP_GRID = 16, 1.1, 1.25
_ROUNDS, _FREE_ROUNDS = (25, 100), 10  # of tasks_per_round="auto", for one visit
_UPDATES = 4.0  # clipped updates from 0 to the initialisation, privacy="local"
# Part of the curvature that is left at bounds of about half a typical gradient.
_CLIPPED = (0.3, 0.6, 0.6)
_MAX_INNER_STEPS = 50
_MAX_FOLDS = 6.0  # bound on the "auto" reduction of the error, in powers of e
_FAR = 64.0 * math.log(2.0)  # tails of noise that a curator allows for have 2^-64
_PER_TASK = (
    "sizes", "n_batches", "rates", "noise_multiplier", "noise_std", "noise_step", "shrink",
    "weights",
)  # fmt: skip
_BOUND = (1.0, 0.25, 0.5)  # of the second derivative: squared, logistic, multinomial loss


class MetaPlan:
    """Public settings and noise of one fit.

    Parameters
    ----------
    est : estimator
    sizes : ndarray (n_tasks,)
        Rows of every task.
    kind : {0, 1, 2}
        Squared, logistic or multinomial loss.
    n_outputs, size : int
        Numbers in a model are n_outputs * size, intercept included.
    people : bool
        Whether records have owners, of which each has at most est.max_rows_per_unit.

    Attributes
    ----------
    mode : {"task-global", "local", None}
    epsilon, delta, mu : float or None
        mu is None where the accounting is not by Gaussian DP.
    inner_steps, tasks_per_round, n_rounds : int
    inner_rate : float or "own"
        Step length; "own" is 1 / smoothness of every task's own loss, where that need not
        be public.
    meta_rate : float
    n_batches : ndarray (n_tasks,) of int64
    rates : ndarray (n_tasks,)
        Probability of a record to be in a batch.
    noise_multiplier : ndarray (n_tasks,) or None
        z_k; in "local" mode std over clip norm of the noise on the update.
    noise_std, noise_step, shrink : ndarray (n_tasks,) or None
        Std, public grid, and scaling before rounding to it (`VectorGaussian`).
    """

    def __init__(self, est, sizes, kind, n_outputs, size, people=False):
        self.sizes, self.kind, self.people = sizes, kind, people
        self.n_outputs, self.size = n_outputs, size
        self.mode = est.privacy if est._is_private() else None
        self.adjacency, self.visits = est.adjacency, est.visits
        self.group_size, self.max_rows = est.group_size, est.max_rows_per_unit
        self.clip_norm, self.batches = float(est.clip_norm), est.batches
        self._check(est)
        m = len(sizes)
        self.batch_size = float(est.batch_size or 1)
        self.n_batches, self.rates = np.ones(m, dtype=np.int64), np.ones(m)
        if self.batches == "disjoint":
            self.n_batches = -(-sizes // int(self.batch_size))
        elif self.batches == "poisson":
            self.rates = np.minimum(1.0, self.batch_size / sizes)
        self.reach = mean_sensitivity(1.0, 1.0, self.adjacency)
        if self.mode == "local":  # no curator who could leave a task out: any two data sets
            self.reach = 2.0
        self.epsilon = self.delta = self.mu = self.noise_multiplier = None
        self.noise_std = self.noise_step = self.shrink = None
        if self.mode is not None:
            self._spend(est)
        self._settle(est)
        self.weights = np.ones(m)
        if self.mode is not None:
            self._calibrate()
        if self.mode == "task-global":
            self.weights = self._weights()

    def _check(self, est):
        if self.batches == "full" and est.batch_size is not None:
            raise ValueError(
                f'batch_size={est.batch_size!r} has no meaning with batches="full": set '
                'batches="poisson" or "disjoint", or leave batch_size at None.'
            )
        if self.batches != "full" and est.batch_size is None:
            raise ValueError(f"batches={self.batches!r} needs a batch_size.")
        if self.people and self.mode == "local":
            raise ValueError(
                'privacy="local" protects each task as a whole and knows no unit= of records: '
                'use privacy="task-global".'
            )
        if self.people and self.max_rows is None:
            raise ValueError(
                "unit= needs max_rows_per_unit, a public bound on the rows of one person."
            )
        if self.max_rows is not None and not self.people and self.mode == "task-global":
            raise ValueError(
                f"max_rows_per_unit={self.max_rows!r} needs unit=, the person of each row: pass "
                "it to fit, or leave max_rows_per_unit at None."
            )

    def _spend(self, est):
        """Budget, and what is left of it for one group of records in one task."""
        records = int(self.sizes.sum())
        count = len(self.sizes) if self.mode == "local" else records
        delta = min(1e-5, count**-2.0) if est.delta is None else est.delta
        self.epsilon, self.delta = check_budget(est.epsilon, delta, 0.0)
        if delta * count >= 1:
            what = "task" if self.mode == "local" else "record"
            warnings.warn(
                f"delta={delta!r} is at least 1 / {count}, one over the number of {what}s: "
                f"publishing one random {what} in clear would satisfy this guarantee. Choose a "
                "smaller delta.",
                PrivacyLeakWarning,
                stacklevel=2,
            )
        self.group = 1 if self.mode == "local" else self.group_size
        factor = float(self.group)
        if self.people:
            # The worst case: `whole` groups of g rows, each in one task, and the rest in another.
            self.group = min(self.group, self.max_rows)
            whole, rest = divmod(self.max_rows, self.group)
            factor = math.sqrt(whole * self.group**2 + rest**2)
        total = float(gdp_mu(self.epsilon, self.delta))
        self.record_mu = total / factor
        if self.mode == "local" or self.batches != "poisson":
            self.mu = total

    def _settle(self, est):
        """Numbers of steps, and step lengths, where they are "auto"."""
        m = len(self.sizes)
        per_round = est.tasks_per_round
        if isinstance(per_round, str):
            rounds = min(max(m // 10, _ROUNDS[0]), _ROUNDS[1])
            rounds = _FREE_ROUNDS if self.mode is None else rounds
            per_round = m if per_round == "all" else -(-m // rounds)
        self.tasks_per_round = min(int(per_round), m)
        self.n_rounds = self.visits * -(-m // self.tasks_per_round)
        self.inner_rate = est.inner_learning_rate
        public = self.mode == "task-global"
        bound = _BOUND[self.kind]
        if isinstance(self.inner_rate, str):
            self.inner_rate = 1.0 / (bound * (1 + est.fit_intercept)) if public else "own"
        # Rows of length 1 that are spread evenly have this curvature in every direction, and
        # a bound of half a typical gradient leaves a part of it.
        curvature = bound / (self.size - est.fit_intercept)
        curvature *= _CLIPPED[self.kind] if public else 1.0
        noise = self._relative_noise(curvature, math.sqrt(1 + est.fit_intercept))
        grid = np.geomspace(0.01, _MAX_FOLDS, 100)
        folds = float(grid[_error(grid, noise).argmin()])
        steps, average = est.inner_steps, est.iterate == "average"
        if isinstance(steps, str):
            steps = _MAX_INNER_STEPS
            if public:
                steps = folds / (self.inner_rate * curvature * self.n_rounds)
                steps = math.ceil(2.0 * steps - 1.0 if average else steps)
            steps = min(max(steps, 1), _MAX_INNER_STEPS)
        self.inner_steps = int(steps)
        # Powers of e that all rounds gain at a meta learning rate of 1; the mean of w after
        # 1, ..., E steps has made half the way.
        reach = self.n_rounds / _UPDATES
        if public:
            way = 0.5 * (self.inner_steps + 1) if average else self.inner_steps
            reach = self.n_rounds * way * self.inner_rate * curvature
        self.meta_rate = est.meta_learning_rate
        if isinstance(self.meta_rate, str):
            self.meta_rate = 1.0 if self.mode is None else min(1.0, folds / reach)
        gained = min(self.meta_rate * reach, _MAX_FOLDS)
        self.doubt = float(_error(gained, noise)) if self.mode is not None else 0.0

    def _relative_noise(self, curvature, length):
        """Std of the noise of one step of all m tasks over sqrt(2), see `_error`."""
        if self.mode is None:
            return 0.0
        noise = self.reach / self.record_mu
        if self.mode == "local":
            noise *= math.sqrt(self.size * self.n_outputs)
        else:
            noise *= math.sqrt(np.mean(self.n_batches / self.sizes**2.0))
            noise *= 0.5 * length * _BOUND[self.kind] / curvature
        return noise / math.sqrt(2.0 * len(self.sizes))

    # ------------------------------------------------------------------------- noise
    def _calibrate(self):
        unit = self.reach / self.record_mu
        m = len(self.sizes)
        if self.mode == "local":
            z = np.full(m, math.sqrt(self.visits) * unit)
        elif self.batches == "poisson":
            z = self._poisson_multipliers()
        else:
            z = np.sqrt(self.touches()) * unit
        self.noise_multiplier = z
        values, which = np.unique(z, return_inverse=True)
        numbers = self.n_outputs * self.size
        sensitivity = self.reach * self.clip_norm
        found = [VectorGaussian(numbers, sensitivity, self.reach / v) for v in values]
        self.noise_std, self.noise_step = (
            np.array([getattr(mechanism, name) for mechanism in found])[which]
            for name in ("noise_std", "step")
        )
        # With next to no noise the grid is that of the sums: whole numbers must stay exact.
        coarse = np.log2(self.clip_norm * (self.sizes if self.mode == "task-global" else 1.0))
        self.noise_step = np.maximum(self.noise_step, 2.0 ** (np.ceil(coarse) - 51.0))
        self.shrink = 1.0 - math.sqrt(numbers) * self.noise_step / sensitivity

    def _weights(self):
        """Weights of the tasks' updates, of mean 1: less for more noise, equal without any.

        In units of the bound the mean gradient of a task is taken to have a variance of 1/4,
        spread over the coefficients, to which the noise of the inner steps is added.
        """
        numbers = self.n_outputs * self.size
        records = np.minimum(self.batch_size, self.sizes) if self.rates.min() < 1 else self.sizes
        noise = (self.noise_multiplier * self.n_batches / records) ** 2 / self.inner_steps
        weights = 1.0 / (0.25 / numbers + noise)
        return weights / weights.mean()

    def touches(self):
        """Times that each task uses one record, (n_tasks,); under Poisson: batches drawn."""
        return self.visits * -(-self.inner_steps // self.n_batches)

    def _poisson_multipliers(self):
        distinct, which = np.unique(self.rates, return_inverse=True)
        if len(distinct) > _EXACT_RATES:  # a larger rate needs more noise: up is safe
            grid = _RATE_GRID if self.group == 1 else _GROUP_GRID
            exponent = np.ceil(np.log(distinct) / math.log(grid) - 1e-9)
            distinct = np.maximum(np.minimum(grid**exponent, 1.0), distinct)
        steps = self.visits * self.inner_steps
        # Shares of the budget by rows: however a person's rows are spread over tasks, j of them in
        # one task cost at most j of max_rows shares.
        shares = {self.group: 1.0}
        if self.people:
            shares = {j: j / self.max_rows for j in range(1, self.group + 1)}
        z = {
            rate: max(
                poisson_multiplier(
                    share * self.epsilon, share * self.delta, steps, rate, self.adjacency, j
                )
                for j, share in shares.items()
            )
            for rate in np.unique(distinct).tolist()
        }
        return np.array([z[rate] for rate in distinct.tolist()])[which]

    # --------------------------------------------------------------------- two machines
    def part(self, positions):
        """The same plan for some of the tasks only, numbered from 0."""
        mine = copy.copy(self)
        for name in _PER_TASK:
            value = getattr(self, name)
            setattr(mine, name, None if value is None else value[positions])
        return mine

    def longest_updates(self):
        """Bound that the weighted updates of each task keep, as good as always; (n_tasks,).

        E steps of length h on the mean of a batch of B move a model by up to E h clip_norm and by
        their noise: a Gaussian of std s in n numbers is longer than s (sqrt(n) + sqrt(2 log 2^64))
        with probability 2^-64, and rounding adds sqrt(n) steps of the grid each time. Poisson
        batches have, with the same probability, more records than is allowed for here.
        "local": one clipped and noised update. Infinite without privacy.
        """
        if self.mode is None:
            return np.full(len(self.sizes), math.inf)
        root = math.sqrt(self.n_outputs * self.size)
        far = root + math.sqrt(2.0 * _FAR)
        if self.mode == "local":
            return self.clip_norm + root * self.noise_step + far * self.noise_std
        batch, most = self.sizes // self.n_batches, 1.0
        if self.batches == "poisson":  # Bernstein's inequality
            batch = self.batch_size
            most = np.minimum(self.sizes, batch + math.sqrt(2.0 * batch * _FAR) + _FAR) / batch
        moved = self.inner_steps * (most * self.clip_norm + root * self.noise_step / batch)
        moved += math.sqrt(self.inner_steps) * far * self.noise_std / batch
        return self.inner_rate * self.weights * moved

    def sum_of_updates(self, rows, positions):
        """Sum of what tasks elsewhere sent, noisy as it is, each within `longest_updates`.

        What is not finite counts as 0. For privacy none of it is needed: noise is in already.
        """
        sent = np.array(rows["update"], dtype=float)
        flat = sent.reshape(len(sent), self.n_outputs * self.size)
        bounds = self.longest_updates()[positions]
        for bound in np.unique(bounds):
            some = flat[bounds == bound]
            clip_rows(some, bound, 2, some)
            flat[bounds == bound] = some
        return {"update": sent.sum(axis=0)}

    # ------------------------------------------------------------------------ report
    def describe(self, block):
        """Of what the tasks of a block release, each alone, in every step or visit."""
        return {
            "mechanism": "Gaussian, added by the task",
            "sensitivity": self._reached(),
            "norm": "l2",
            "noise_std": self.noise_std[block],
            "tasks": block,
        }

    def _reached(self):
        """Sensitivity of what a task adds its noise to, for all records of a group."""
        return self.reach * self.clip_norm * (1 if self.mode == "local" else self.group)

    def task(self, k):
        """What one task spends and adds, as a dict."""
        private = self.mode is not None
        return {
            "epsilon": self.epsilon if private else math.inf,
            "delta": self.delta if private else 0.0,
            "noise_multiplier": float(self.noise_multiplier[k]) if private else 0.0,
            "n_rows": int(self.sizes[k]),
            "steps": self.visits * self.inner_steps,
            "sampling_rate": float(self.rates[k] / self.n_batches[k]),
            "visits": self.visits,
        }

    @staticmethod
    def nothing():
        """The same for a task that was not in the fit."""
        spent = {"epsilon": 0.0, "delta": 0.0, "noise_multiplier": 0.0, "n_rows": 0}
        return {**spent, "steps": 0, "sampling_rate": 0.0, "visits": 0}

    def report(self, est, source):
        """The statement of the guarantee."""
        if self.mode is None:
            return PrivacyReport(
                guarantee="none",
                notes={"reason": "nothing was clipped or noised (epsilon=None or privacy=None)"},
            )
        local = self.mode == "local"
        public = {
            "n_tasks": len(self.sizes),
            "n_features": self.size - int(est.fit_intercept),
            "clip_norm": self.clip_norm,
            "inner_steps": self.inner_steps,
            "inner_learning_rate": self.inner_rate,
            "meta_learning_rate": self.meta_rate,
            "meta_decay": est.meta_decay,
            "tasks_per_round": self.tasks_per_round,
            "visits": self.visits,
            "iterate": est.iterate,
        }
        if not local:
            public["n_rows, for noise and weights"] = f"{self.sizes.min()} to {self.sizes.max()}"
            public["batch_size"] = est.batch_size
            public["group_size"] = self.group
        if self.people:
            public["max_rows_per_unit"] = self.max_rows
        releases = self._releases(local)
        return PrivacyReport(
            guarantee="local DP per task" if local else "record-level DP (task-global)",
            unit=self.unit(),
            adjacency="replace-one" if local else self.adjacency,
            epsilon=self.epsilon,
            delta=self.delta,
            mechanism=(
                "Gaussian noise on the clipped update of every task, added by the task"
                if local
                else "Gaussian noise on the sum of clipped gradients in every inner step, "
                "added by the task"
            ),
            sensitivity=[entry["sensitivity"] for entry in releases],
            noise_std=[entry["noise_std"] for entry in releases],
            mu=self.mu,
            releases=releases,
            accountant=self._accountant(),
            sampling=self._scheme(),
            rng=source.description,
            arithmetic=source.arithmetic,
            public_inputs=public,
            assumptions=_LOCAL if local else _RECORD,
            notes=self._notes(),
        )

    def unit(self):
        """Whose data the guarantee is about: "task", "person", "record" or "k records"."""
        if self.mode == "local":
            return "task"
        if self.people:
            return "person"
        return "record" if self.group == 1 else f"{self.group} records"

    def _releases(self, local):
        """One entry for all tasks with the same noise."""
        entries = []
        values, first, counts = np.unique(
            self.noise_multiplier, return_index=True, return_counts=True
        )
        for z, k, count in zip(values, first, counts, strict=True):
            entry = {
                "name": f"{count} task{'s' if count > 1 else ''}",
                "statistic": "clipped update" if local else "sum of clipped gradients",
                "mechanism": "Gaussian",
                "sensitivity": self._reached(),
                "norm": "l2",
                "noise_std": float(self.noise_std[k]),
                "noise_multiplier": float(z),
                "times": self.visits * (1 if local else self.inner_steps),
            }
            if not local:
                entry["sampling_rate"] = float(self.rates[k])
                entry["n_batches"] = int(self.n_batches[k])
            entries.append(entry)
        return entries

    def _accountant(self):
        sampled = self.mode == "task-global" and self.rates.min() < 1
        return accountant_name() if sampled else _EXACT

    def _scheme(self):
        order = "tasks in a public random order, in parallel"
        if self.visits > 1:
            order += f", each {self.visits} times (composed)"
        if self.mode == "local":
            return order
        if self.batches == "full":
            return f"{order}; all records of a task in every step"
        if self.batches == "disjoint":
            return (
                f"{order}; fixed public batches of about {self.batch_size:.6g} records, taken "
                "in turn, without amplification"
            )
        return (
            f"{order}; Poisson, every record in every step with probability "
            f"{self.rates.min():.6g} to {self.rates.max():.6g}, secretly; constant denominator "
            f"{self.batch_size:.6g}"
        )

    def _notes(self):
        notes = {}
        if self.mode == "local":
            notes["adjacency"] = (
                "calibrated to the distance of any two updates, twice the clip norm, whatever "
                "adjacency= says: a task that sends nothing would be noticed"
            )
        elif not self.people:
            notes["parallel"] = (
                "a record is one row of one task: where a person has several, as with a 2-D y, "
                "budgets add up (unit=); epsilon and delta are the largest over tasks"
            )
        if self.people:
            most = f"one person has up to {self.group} row(s) in a task and {self.max_rows} in all"
            notes["composition"] = f"{most}; the budgets of these tasks add up"
        return notes


def _error(folds, noise):
    """Squared error of the initialisation, over that of 0, after `folds` powers of e.

    With noise of std a on the mean gradient of a task, gradient steps that shrink an error of w
    in every coefficient by exp(-u) leave exp(-2u) + u (a / (h w))^2 / (2 m) (1 - exp(-2u)) of
    its square, h the curvature and m the number of tasks; `noise` is a / (h w sqrt(2 m)).
    Residuals are taken to be 2 clip_norm / length, for rows of that length, and so are scores;
    with privacy="local" the error is `_UPDATES` clipped updates.
    """
    rest = np.exp(-2.0 * folds)
    return rest + folds * noise**2 * (1.0 - rest)

_EXACT = f"skpmtl {__version__}, exact Gaussian differential privacy"
_RECORD = (
    "every task adds its noise itself, before anything leaves it: neither the other tasks nor "
    "whoever collects the updates is trusted",
    "the tasks, the number of rows of every task, the features and the classes are public",
    "every fine-tuned model stays with its task",
    "the parameters were not tuned on these data without being charged for it",
    "whether the input was valid at all is not protected",
)
_LOCAL = (
    "every task adds its noise itself: nobody else is trusted",
    "the list of tasks, the features and the classes are public",
    *_RECORD[2:],
)


@functools.lru_cache(maxsize=4096)
def poisson_multiplier(epsilon, delta, n_steps, rate, adjacency, group_size=1):
    """Noise multiplier for `group_size` records of one task under Poisson sampling.

    For groups and "replace-one" the path leads over the data without the group: two "zero-out"
    steps of (epsilon / 2, delta / (1 + e^(epsilon / 2))) each.
    """
    full = poisson_noise(epsilon, delta, n_steps, 1.0, adjacency) * group_size
    if rate == 1.0:
        return full
    if group_size == 1:
        return poisson_noise(epsilon, delta, n_steps, rate, adjacency)
    if adjacency == "replace-one":
        epsilon, delta = epsilon / 2.0, delta / (1.0 + math.exp(epsilon / 2.0))

    def spent(z):
        return poisson_epsilon(z, n_steps, rate, delta, "zero-out", group_size=group_size)

    if spent(full) > epsilon:  # the detour costs more than sampling gains
        return full
    # Secant steps for log epsilon in log z, towards a little less than the budget.
    target, x, slope, last = math.log(0.999 * epsilon), math.log(rate * full), -1.0, None
    low, high = -math.inf, math.log(full)
    for _ in range(30):
        found = math.log(max(spent(math.exp(x)), 1e-300))
        if found <= math.log(epsilon):
            high = min(high, x)
        else:
            low = max(low, x)
        if abs(found - target) <= 1e-3 or high - low < 1e-3:
            break
        if last is not None and x != last[0]:
            slope = min((found - last[1]) / (x - last[0]), -0.2)
        last = x, found
        x = min(max(x + (target - found) / slope, low), high)
        if x in (low, high):
            x = 0.5 * (low + high)
    return math.exp(high)
