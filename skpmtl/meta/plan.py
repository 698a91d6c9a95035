"""Noise of private meta-learning, calibrated for every task: what a record costs, and the report.

Everything here reads public numbers only: parameters, the number of rows of every task, and
the width of the rows; numbers and lengths of steps are settled in `skpmtl.meta.rules`. With c = 1
("zero-out") or 2 ("replace-one"), v the times that a task uses one record, and z_k the std of the
noise on the sum of clipped gradients over the clip norm, the Gaussian-DP parameter of one record is

    c sqrt(v) / z_k,  v = visits * inner_steps             full batch, exact
                      v = visits * ceil(inner_steps / n_batches_k)   disjoint batches, exact

and g times that for g records of one task. Poisson batches are accounted by privacy-loss
distributions; g records enter a batch in a Binomial(g, rate_k) number. Tasks compose in
parallel, unless one person owns rows of several.
"""

import copy
import functools
import math

import numpy as np

from ..exchange.plan import ONE_PROCESS, Plan
from ..privacy.accounting import check_budget, gdp_epsilon, gdp_mu
from ..privacy.mechanisms import VectorGaussian, mean_sensitivity
from ..privacy.report import PUBLIC_LISTS, exact_report
from ..privacy.sampling import accountant_name, poisson_noise
from ..tables.table import row_products
from . import columns
from .billboard import scaled
from .rules import LEFT, course, task_weights

# Poisson: up to so many different rates are calibrated one by one, others rounded up to a grid,
# a coarser one for groups, whose accounting takes half a second each time.
_EXACT_RATES, _RATE_GRID, _GROUP_GRID = 16, 1.1, 1.25
_FAR = 64.0 * math.log(2.0)  # tails of noise that a curator allows for have 2^-64
_MOST_COLUMNS = 64  # of a relation
_COLUMN_DOUBT = 0.5  # expected error of an initialisation, over that of 0, that columns may lead to
_PER_TASK = (
    "sizes",
    "n_batches",
    "rates",
    "noise_multiplier",
    "noise_std",
    "noise_step",
    "shrink",
    "weights",
    "to",
    "rows",
)


class MetaPlan(Plan):
    """Public settings and noise of one fit.

    Parameters
    ----------
    est : estimator
        With `max_rows_per_unit` and privacy="task-global" the records belong to persons.
    population : Population
        With the `sizes` of all tasks, which are not read with privacy="local".

    Attributes
    ----------
    mode : {"task-global", "local", None}
    people : bool
        Whether the guarantee is for persons; who owns what is checked where the rows are.
    loss : {"squared", "logistic", "multinomial"}
    n_outputs, size : int
        Numbers in a model are n_outputs * size, intercept included.
    reach : float
        Sensitivity to one record of a sum of its clipped gradients, over the clip norm; "local":
        to all of a task, of its update.
    epsilon, delta, mu : float or None
        mu is None where the accounting is not by Gaussian DP.
    group : int
        Records of one task that the guarantee covers at once.
    record_mu : float
        What is left of the budget for one record, were it a single release.
    target_offset, target_scale : float
        Public; 0 and 1 without a `target_range`. Targets are (y - offset) / scale in the rounds.
    scaling : ndarray (2, n_features) or None
        The same of the features.
    raw : bool
        Whether steps with a budget take columns as they are.
    columns : tuple of ColumnQuery
        Queries for scales of columns that nothing public says; see `skpmtl.meta.columns`.
    asks_from : float or None
        About the epsilon from which there are some; None where it is not the budget that lacks.
    step_mu : float
        What these leave of `record_mu`.
    public_init : PublicInit or None
        Public model from which the rounds begin.
    begin : ndarray (n_outputs, size), or (r, n_outputs, size) with a relation
        The same in the units of the rounds; 0 without it.
    tasks_per_round, n_rounds, inner_steps, inner_rate, meta_rate, init_error, gained
        See `skpmtl.meta.rules.Course`.
    sizes : ndarray (n_tasks,) of int64
        Rows of every task; 1 with privacy="local", where they are not public (see `part`).
    n_batches : ndarray (n_tasks,) of int64
    rates : ndarray (n_tasks,)
        Probability of a record to be in a batch.
    noise_multiplier : ndarray (n_tasks,) or None
        z_k; in "local" mode std over clip norm of the noise on the update.
    noise_std, noise_step, shrink : ndarray (n_tasks,) or None
        Std, public grid, and scaling before rounding to it (`VectorGaussian`).
    weights : ndarray (n_tasks,)
        Of the tasks' updates, of mean 1.
    relation : Relation or None
        With one, task k starts from v_k G and its update is multiplied by b_k.
    to, rows : ndarray (n_tasks, r) or None
        The b_k and v_k of all tasks.
    gain : ndarray (r, r) or None
        (sum_k weights_k b_k v_k' / n_tasks)^-1, which sums of updates of G are multiplied by.
    """

    def __init__(self, est, population, quiet=True):
        self.loss = population.loss
        self.n_outputs = population.n_outputs
        self.size = population.n_features + est.fit_intercept
        self.mode = est.privacy if est._is_private() else None
        m = population.n_tasks
        # Tasks without rows never answer: that they are planned like one row has no effect.
        sizes = np.ones(m, dtype=np.int64) if self.mode == "local" else population.sizes
        self.people = est.max_rows_per_unit is not None and self.mode == "task-global"
        self.adjacency, self.visits = est.adjacency, est.visits
        if self.mode == "local":
            self.adjacency = "replace-one"
        self.n_features = population.n_features
        self.target_range = getattr(est, "target_range", None)
        self.group_size, self.max_rows = est.group_size, est.max_rows_per_unit
        self.clip_norm, self.batches = float(est.clip_norm), est.batches
        self.target_offset, self.target_scale = est._target_scaling()
        self.scaling = est._feature_scaling(population.n_features)
        self.public_init = est._public_init(population)
        self.fit_intercept = est.fit_intercept
        self.begin = self._begin()
        self.n_servers = est._n_servers
        self._check(est)
        self.batch_size = float(est.batch_size or 1)
        self._divide(np.maximum(sizes, 1))
        self.reach = mean_sensitivity(1.0, 1.0, self.adjacency)
        if self.mode == "local":  # no curator who could leave a task out: any two data sets
            self.reach = 2.0
        self.epsilon = self.delta = self.mu = self.noise_multiplier = None
        self.noise_std = self.noise_step = self.shrink = None
        if self.mode is not None:
            self._spend(est)
        unknown = getattr(est, "feature_range", ()) is None
        # Steps of a given length are those for features as they are.
        self.columns, self.asks_from = (), None
        if unknown and isinstance(est.inner_learning_rate, str):
            self._ask_of_columns()
        self.raw = unknown and self.mode is not None and not self.columns
        self._settle(est, 1)
        self.relation = self.to = self.rows = self.gain = None
        if getattr(est, "relation", None) is not None:
            most = self._columns(est)
            self.relation = est._relation(population, most, quiet)
            self._settle(est, self.relation.rank)
            self.to = self.relation.weights(population.tasks)
            self.rows = self.relation.rows(population.tasks)
            self.begin = np.multiply.outer(self.relation.of_constant, self.begin)
        self.weights = np.ones(m)
        if self.mode is not None:
            self._calibrate()
        if self.mode == "task-global":
            self.weights = self._weights()
        if self.to is not None:
            self.gain = np.linalg.inv(self.to.T @ (self.weights[:, None] * self.rows) / m)

    def _divide(self, sizes):
        """Batches of tasks that have so many rows."""
        m = len(sizes)
        self.sizes, self.n_batches, self.rates = sizes, np.ones(m, dtype=np.int64), np.ones(m)
        if self.batches == "disjoint":
            self.n_batches = -(-sizes // int(self.batch_size))
        elif self.batches == "poisson":
            self.rates = np.minimum(1.0, self.batch_size / sizes)

    def _settle(self, est, rank):
        """Numbers and lengths of the steps for shared models that follow from `rank` covariates."""
        noise = self._step_noise()
        found = course(est, self.mode, self.loss, self.size, len(self.sizes), noise, rank)
        vars(self).update(found._asdict())

    def _columns(self, est):
        """How many columns of a relation the budget carries, by a public rule; None: all."""
        if self.mode is None:
            return None
        most = 1
        while most < _MOST_COLUMNS:
            self._settle(est, most + 1)
            if self.least > _COLUMN_DOUBT:
                break
            most += 1
        return most

    def _begin(self):
        if self.public_init is None:
            return np.zeros((self.n_outputs, self.size))
        begin = scaled(self.public_init.joined(self.fit_intercept), self.scaling)
        if self.fit_intercept:
            begin[:, -1] -= self.target_offset
        return begin / self.target_scale

    def with_scaling(self, scaling):
        """The same plan for features in released units, (2, n_features)."""
        found = copy.copy(self)
        found.scaling, found.begin = scaling, np.zeros(self.begin.shape)
        if self.public_init is not None:
            found.begin = found._begin()
            if self.relation is not None:
                found.begin = np.multiply.outer(self.relation.of_constant, found.begin)
        return found

    def _check(self, est):
        if self.batches == "full" and est.batch_size is not None:
            raise ValueError(
                f'batch_size={est.batch_size!r} has no meaning with batches="full": set '
                'batches="poisson" or "disjoint", or leave batch_size at None.'
            )
        if self.batches != "full" and est.batch_size is None:
            raise ValueError(f"batches={self.batches!r} needs a batch_size.")

    def _spend(self, est):
        """Budget, and what is left of it for one group of records in one task."""
        unit = "task" if self.mode == "local" else "record"
        count = len(self.sizes) if self.mode == "local" else int(self.sizes.sum())
        self.epsilon, self.delta = check_budget(est.epsilon, est.delta, count, unit=unit)
        self.group = 1 if self.mode == "local" else self.group_size
        factor = float(self.group)
        if self.people:
            # The worst case: `whole` groups of g rows, each in one task, and the rest in another.
            self.group = min(self.group, self.max_rows)
            whole, rest = divmod(self.max_rows, self.group)
            factor = math.sqrt(whole * self.group**2 + rest**2)
        total = float(gdp_mu(self.epsilon, self.delta))
        self.record_mu = self.step_mu = total / factor
        if self.mode == "local" or self.batches != "poisson":
            self.mu = total

    def _step_noise(self):
        """Noise by which one step moves the mean over a task's rows, see `rules.course`."""
        if self.mode is None:
            return 0.0
        noise = self.reach / self.step_mu
        if self.mode == "local":
            return noise * math.sqrt(self.size * self.n_outputs)
        return noise * math.sqrt(np.mean(self.n_batches / self.sizes**2.0))

    # ------------------------------------------------------------------------- noise
    def _calibrate(self):
        unit = self.reach / self.step_mu
        m = len(self.sizes)
        if self.mode == "local":
            z = np.full(m, math.sqrt(self.visits) * unit)
        elif self.batches == "poisson":
            z = self._poisson_multipliers()
        else:
            z = np.sqrt(self.touches()) * unit
        self.noise_multiplier = z
        numbers = self.n_outputs * self.size
        self.noise_std, self.noise_step, self.shrink = self._grid(z, numbers, self.clip_norm)

    def _grid(self, z, numbers, clip_norm):
        """Std, grid and shrinking of noise on sums of vectors that are clipped to `clip_norm`."""
        values, which = np.unique(z, return_inverse=True)
        sensitivity = self.reach * clip_norm
        found = [VectorGaussian(numbers, sensitivity, self.reach / v) for v in values]
        std, step = (
            np.array([getattr(mechanism, name) for mechanism in found])[which]
            for name in ("noise_std", "step")
        )
        # With next to no noise the grid is that of the sums: whole numbers must stay exact.
        coarse = np.log2(clip_norm * (self.sizes if self.mode == "task-global" else 1.0))
        step = np.maximum(step, 2.0 ** (np.ceil(coarse) - 51.0))
        return std, step, 1.0 - math.sqrt(numbers) * step / sensitivity

    # ------------------------------------------------------------------------- columns
    def _ask_of_columns(self):
        """Settle `columns`, by public numbers; Poisson batches are accounted without them."""
        m, d = len(self.sizes), self.n_features
        if self.mode is None:
            # Without intercept nothing takes up what is subtracted.
            exact = ("means", "squares") if self.fit_intercept else ("squares",)
            self.columns = tuple(columns.ColumnQuery(what, np.ones(m)) for what in exact)
            return
        if self.batches == "poisson":
            return
        unit = columns.NEAREST * math.sqrt(d)

        def asked(part):
            z = np.full(m, self.reach / (self.record_mu * math.sqrt(columns.SHARE * part)))
            weights = np.ones(m)
            if self.mode == "task-global":
                weights = task_weights((unit * z / self.sizes) ** 2, 1)
            return columns.ColumnQuery("scales", weights, *self._grid(z, d, 1.0))

        found = tuple(map(asked, columns.PARTS))
        short = unit * self.noise_of_columns(found[-1]) / columns.MOST_NOISE
        if short <= 1.0:
            self.columns, self.step_mu = found, self.record_mu * math.sqrt(1.0 - columns.SHARE)
        else:  # noise falls as mu grows, as long as tasks weigh the same
            mu = short * float(gdp_mu(self.epsilon, self.delta))
            self.asks_from = float(gdp_epsilon(mu, self.delta))

    def noise_of_columns(self, asked):
        """Std of the noise in each number of a released mean."""
        return float(np.linalg.norm(asked.weights * asked.noise_std / self._records())) / float(
            asked.weights.sum()
        )

    def longest_columns(self, asked):
        """Bound that the mean over the records of each task keeps, as good as always; (n_tasks,)"""
        if self.mode is None:
            return np.full(len(self.sizes), math.inf)
        root = math.sqrt(self.n_features)
        noise = root * asked.noise_step + (root + math.sqrt(2.0 * _FAR)) * asked.noise_std
        return 1.0 + noise / self._records()

    def _records(self):
        """What sums of records are divided by after their noise; local means have theirs whole."""
        return self.sizes if self.mode == "task-global" else np.ones(len(self.sizes))

    def _weights(self):
        records = np.minimum(self.batch_size, self.sizes) if self.rates.min() < 1 else self.sizes
        variance = (self.noise_multiplier * self.n_batches / records) ** 2 / self.inner_steps
        return task_weights(variance, self.n_outputs * self.size)

    def touches(self):
        """Times that each task uses one record, (n_tasks,); under Poisson: batches drawn."""
        return self.visits * -(-self.inner_steps // self.n_batches)

    def steps_before(self, number):
        """Inner steps of a task in the visits before the round `number`, of which it is part.

        Disjoint batches are taken in turn over all visits. A visit uses a batch at most
        ceil(inner_steps / n_batches) times wherever it begins, so that `touches` holds.
        """
        return int(number) // (self.n_rounds // self.visits) * self.inner_steps

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
    def part(self, positions, sizes):
        """The same plan for some of the tasks only, numbered from 0, which have so many rows.

        With privacy="local" their number is known to the task alone.
        """
        mine = copy.copy(self)
        for name in _PER_TASK:
            value = getattr(self, name)
            setattr(mine, name, None if value is None else value[positions])
        mine.columns = tuple(asked.part(positions) for asked in self.columns)
        if self.mode == "local":
            mine._divide(sizes)
        return mine

    @property
    def holds(self):
        """Whether no update counts for more than most do: where nothing else bounds it.

        A budget bounds gradients. Without one, and with steps in the units of each task, a few
        tasks whose targets have a unit a thousand times smaller would be all that is learned from.
        """
        return self.mode is None and isinstance(self.inner_rate, str)

    @property
    def longest(self):
        """Bound that the mean of weighted updates keeps."""
        return float(self.longest_updates().max())

    def noise_of_init(self):
        """Expected square of the noise in an initialisation; 0 without privacy. With a relation
        in each row of G, (r,).

        What the noise of all inner steps adds up to, less what later rounds correct of it: after
        u powers of e of the error are gone, (1 - exp(-2 u)) / (2 u) of it is left. Rows of more
        than length 1 correct more; see `rules.LEFT`.
        """
        if self.mode is None:
            return 0.0 if self.to is None else np.zeros(self.to.shape[1])
        total = self.visits * self.weights**2 * self._variance() / self.tasks_per_round**2
        total = float(total.sum()) if self.to is None else (self.to @ self.gain.T).T ** 2 @ total
        left = -LEFT[self.loss] * math.expm1(-2.0 * self.gained) / (2.0 * self.gained)
        return self.n_outputs * self.size * self.meta_rate**2 * total * left

    def _variance(self):
        """Of the noise in one number of the update of each task, (n_tasks,)."""
        if self.mode == "local":
            return self.noise_std**2
        batch = self.batch_size if self.batches == "poisson" else self.sizes / self.n_batches
        return self.inner_steps * (self.inner_rate * self.noise_std / batch) ** 2

    @property
    def noise_over_path(self):
        """Noise of all rounds together over the longest path that they can make; 0 without noise.

        Updates are as long as possible where all gradients of records point the same way, with the
        clip norm. For m tasks of n records, full batches and d numbers that is
        sqrt(d / m) / (n mu), twice that where records are replaced; with privacy="local" n is 1.
        No rate, number of steps or clip norm changes it.
        """
        if self.mode is None:
            return 0.0
        noise = math.sqrt(self.n_outputs * self.size * self.visits)
        noise *= np.linalg.norm(self.weights * np.sqrt(self._variance()))
        step = self.inner_steps * self.inner_rate if self.mode == "task-global" else 1.0
        return float(noise / (self.visits * self.weights.sum() * step * self.clip_norm))

    def starts(self, init, block):
        """Initialisations of some of the tasks: one for all, or (n, n_outputs, size) of them."""
        return init if self.rows is None else row_products(self.rows[block], init)

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

    # ------------------------------------------------------------------------ report
    def describe(self, block, asked=None):
        """Of what the tasks of a block release, each alone, in every step or visit, or if `asked`
        of columns."""
        noise, clip_norm = (self, self.clip_norm) if asked is None else (asked, 1.0)
        return {
            "mechanism": "Gaussian, added by the task",
            "sensitivity": self._reached(clip_norm),
            "norm": "l2",
            "noise_std": noise.noise_std[block],
            "tasks": block,
        }

    def _reached(self, clip_norm):
        """Sensitivity of what a task adds its noise to, for all records of a group."""
        return self.reach * clip_norm * self.group

    def task(self, k):
        """Budget and noise of one task, as a dict."""
        private, known = self.mode is not None, self.mode != "local"
        return {
            "epsilon": self.epsilon if private else math.inf,
            "delta": self.delta if private else 0.0,
            "noise_multiplier": float(self.noise_multiplier[k]) if private else 0.0,
            "n_rows": int(self.sizes[k]) if known else None,
            "steps": self.visits * self.inner_steps,
            "sampling_rate": float(self.rates[k] / self.n_batches[k]) if known else None,
            "visits": self.visits,
        }

    @staticmethod
    def nothing():
        """The same for a task that was not in the fit."""
        spent = {"epsilon": 0.0, "delta": 0.0, "noise_multiplier": 0.0, "n_rows": 0}
        return {**spent, "steps": 0, "sampling_rate": 0.0, "visits": 0}

    @property
    def guarantee(self):
        """See `Plan`."""
        return "local DP per task" if self.mode == "local" else "record-level DP (task-global)"

    def report(self, source, made=None):
        if self.mode is None:
            return exact_report("nothing was clipped or noised (epsilon=None or privacy=None)")
        return super().report(source, made)

    def mechanism(self):
        if self.mode == "local":
            return "Gaussian noise on the clipped update of every task, added by the task"
        return (
            "Gaussian noise on the sum of clipped gradients in every inner step, added by the task"
        )

    def public_inputs(self):
        public = {
            "n_tasks": len(self.sizes),
            "n_features": self.n_features,
            "clip_norm": self.clip_norm,
            "inner_steps": self.inner_steps,
            "inner_learning_rate": self.inner_rate,
            "meta_learning_rate": self.meta_rate,
            "tasks_per_round": self.tasks_per_round,
            "visits": self.visits,
        }
        if self.target_range is not None:
            public["target_range"] = tuple(self.target_range)
        if self.scaling is not None and not self.columns:
            public["feature_range"] = "a public range of every feature"
        if self.mode != "local":
            public["n_rows, for noise and weights"] = f"{self.sizes.min()} to {self.sizes.max()}"
            public["batch_size"] = None if self.batches == "full" else self.batch_size
            public["group_size"] = self.group
        if self.people:
            public["max_rows_per_unit"] = self.max_rows
        if self.relation is not None:
            public["relation"] = self.relation.describe()
        else:
            public["noise over the longest path"] = self.noise_over_path
        return public

    @property
    def unit(self):
        """Whose data the guarantee is about: "task", "person", "record" or "k records"."""
        if self.mode == "local":
            return "task"
        if self.people:
            return "person"
        return "record" if self.group == 1 else f"{self.group} records"

    def releases(self, made=None):
        """One entry for all tasks with the same noise."""
        local = self.mode == "local"
        entries = [self._of_columns(k, asked, local) for k, asked in enumerate(self.columns, 1)]
        values, first, counts = np.unique(
            self.noise_multiplier, return_index=True, return_counts=True
        )
        for z, k, count in zip(values, first, counts, strict=True):
            entry = {
                "name": f"{count} task{'s' if count > 1 else ''}",
                "n_tasks": int(count),
                "statistic": "clipped update" if local else "sum of clipped gradients",
                "mechanism": "Gaussian",
                "sensitivity": self._reached(self.clip_norm),
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

    def _of_columns(self, number, asked, local):
        """Entry of a query on columns, whose noise is the same in all tasks."""
        m = len(self.sizes)
        std = float(asked.noise_std[0])
        entry = {
            "name": f"{m} task{'s' if m > 1 else ''}",
            "n_tasks": m,
            "statistic": f"{asked.what} of columns, query {number} of {len(self.columns)}",
            "mechanism": "Gaussian",
            "sensitivity": self._reached(1.0),
            "norm": "l2",
            "noise_std": std,
            "noise_multiplier": std,
            "times": 1,
        }
        return entry if local else {**entry, "sampling_rate": 1.0, "n_batches": 1}

    def accountant(self):
        sampled = self.mode == "task-global" and self.rates.min() < 1
        return accountant_name() if sampled else super().accountant()

    @property
    def own_assumptions(self):
        """See `Plan`."""
        return _LOCAL if self.mode == "local" else _RECORD

    def scheme(self):
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

    def with_servers(self, report):
        """As it is: every task adds its noise itself, and servers only hold shares."""
        return report

    def notes(self, made=None):
        notes = {}
        if self.raw:
            notes["features"] = (
                "steps take columns as they are, in rows of length about 1: one column in a larger "
                "unit takes the whole bound on gradients from the others. Give a public "
                "feature_range; otherwise scales are found "
                + (
                    'with full or disjoint batches and inner_learning_rate="auto" alone'
                    if self.asks_from is None
                    else f"from about epsilon={self.asks_from:.2g}, or with more rows or tasks"
                )
            )
        elif self.columns:
            notes["features"] = (
                f"scales of columns are found before the rounds, for {columns.SHARE:.0%} of mu^2; "
                "a feature_range in their place costs nothing"
            )
        if self.relation is not None:
            notes["relation"] = (
                "updates have their noise when they are multiplied by public rows of the relation: "
                "no sensitivity depends on it"
            )
        if self.mode == "local":
            notes["adjacency"] = (
                "calibrated to the distance of any two updates, twice the clip norm, whatever "
                "adjacency= says: a task that sends nothing would be noticed"
            )
        elif not self.people:
            notes["records"] = (
                "a record is one row of one task: where a person has several, as with a 2-D y, "
                "budgets add up (unit=); epsilon and delta are the largest over tasks"
            )
        if self.people:
            most = f"one person has up to {self.group} row(s) in a task and {self.max_rows} in all"
            notes["composition"] = f"{most}; the budgets of these tasks add up"
        if self.n_servers > 1:
            notes["servers"] = (
                f"{self.n_servers} servers hold additive shares of the updates: "
                "unless all of them pool what they were sent, nobody sees the update of one task, "
                "noisy as it is." + ONE_PROCESS
            )
        return notes


_RECORD = (
    "every task adds its noise itself, before anything leaves it: neither the other tasks nor "
    "whoever collects the updates is trusted",
    "the tasks, the number of rows of every task, the features and the classes are public",
    "every fine-tuned model stays with its task",
)
_LOCAL = (
    "every task adds its noise itself: nobody else is trusted",
    f"{PUBLIC_LISTS}, and so is which tasks have rows: one without any sends nothing",
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
    if group_size > 1 and adjacency == "replace-one":
        epsilon, delta = epsilon / 2.0, delta / (1.0 + math.exp(epsilon / 2.0))
        adjacency = "zero-out"
    # Where the detour costs more than sampling gains, all records in every step.
    found = poisson_noise(epsilon, delta, n_steps, rate, adjacency, group_size=group_size)
    return min(full, found)
