"""Budget of the rounds -> mechanisms, accounting and report. Reads public numbers only."""

import math

import numpy as np

from .._version import __version__
from ..privacy.accounting import check_budget, gdp_epsilon, gdp_mu
from ..privacy.mechanisms import VectorGaussian, mean_sensitivity
from ..privacy.report import ALWAYS, PUBLIC_LISTS, TRUSTED_CURATOR, PrivacyReport, exact_report
from ..privacy.rng import add_on_grid
from ..privacy.sampling import (
    accountant_name,
    blocks_mu,
    fixed_size_epsilon,
    fixed_size_noise,
    poisson_epsilon,
    poisson_noise,
)
from ..privacy.tape import replied
from .scale import histogram

_COUNT_SHARE = 0.1  # of mu^2, for the counts that adapt the clipping bound
_INTERCEPT_SHARE = 0.1  # of mu^2, for the mean intercept of unseen_task="mean"
_CLIP_RATE = 0.5  # log of the bound moves by this times the distance to the quantile
_BLOCK = 1 << 16  # noise is drawn and added in pieces
# Of clip_norm="auto": rounds below these ratios, and the ratio from which there is more than one.
_ROUNDS, _MOST_ROUNDS, _ONE_ROUND = ((1.5, 0), (4.0, 1), (6.0, 10), (12.0, 30)), 100, 4.0
_SCALE_SHARE = 0.04  # of mu^2, for the histogram of lengths
_SCALE_TASKS = 7.0  # it is asked for from so many tasks on, in standard deviations of a count
_TRIAL = 10
_COLUMN_RATIO = 2.5  # for every column of a relation; one that has less is left out


def auto_rounds(epsilon):
    """Public rule for the number of rounds: 3, 10, 30, 100 for epsilon to .1, 1, 2, above."""
    for limit, rounds in ((0.1, 3), (1.0, 10), (2.0, 30)):
        if epsilon is not None and epsilon <= limit:
            return rounds
    return 100


def doubt(ratio, part=None):
    """Prior weight of a task that it is better off alone, beside 1 for the centre.

    Parameters
    ----------
    ratio : float
        See `MeanPlan`; infinite without noise.
    part : ndarray or float, default=None
        Squared length of the centre over that of the tasks' models: the less it is, the less they
        have in common. None: not known.
    """
    if part is None:
        return 0.3 + 10.0 / ratio
    return (0.1 + 3.0 / ratio) / np.clip(part, 0.1, 1.0)


def epsilon_of_rounds(noise_multiplier, n_rounds, sampling, rate, delta, adjacency, before=0.0):
    """Budget of the first rounds, at this delta.

    Parameters
    ----------
    noise_multiplier : float
        Of the sums of every round.
    n_rounds : int
    sampling : {"all", "poisson", "fixed"}
    rate, delta : float
    adjacency : {"replace-one", "zero-out"}
    before : float, default=0.0
        mu of what was released before rounds of all tasks.

    Returns
    -------
    epsilon : float
    """
    if sampling == "all":
        mu = math.hypot(before, blocks_mu(noise_multiplier, n_rounds, adjacency))
        return float(gdp_epsilon(mu, delta))
    find = poisson_epsilon if sampling == "poisson" else fixed_size_epsilon
    return find(noise_multiplier, n_rounds, rate, delta, adjacency)


class BlockGaussian(VectorGaussian):
    """`VectorGaussian` that adds its noise piece by piece, in place: models may be large."""

    def release(self, value, source):
        return replied(self.describe, lambda: self._noisy(value, source), value[None])

    def _noisy(self, value, source):
        flat = value.reshape(-1)
        scale = self.noise_std / self.step
        for first in range(0, flat.size, _BLOCK):
            part = flat[first : first + _BLOCK]
            if not np.isfinite(part).all():
                raise ValueError("the statistic is not finite: clip the contributions first.")
            if source.exact:
                noise = source.discrete_normal(scale, part.size)
            else:
                noise = np.rint(source.normal(part.size) * scale)
            part[:] = add_on_grid(part * self._shrink, noise, self.step)
        return flat.reshape(value.shape)


def path(ratio, far=False):
    """Public rule of ``clip_norm="auto"``: how many rounds, and how far they may go.

    Parameters
    ----------
    ratio : float
        See `MeanPlan`.
    far : bool, default=False
        Whether shared models are longer than those of a task: with log-losses, and those that
        facts with a wide range are multiplied by.

    Returns
    -------
    n_rounds : int
        0 where the centre would be little but noise: nothing is released.
    way : float
        Length that clipped updates of all rounds can make together, in lengths of a task's model.
    """
    n_rounds = next((T for limit, T in _ROUNDS if ratio < limit), _MOST_ROUNDS)
    if ratio < _ONE_ROUND:
        return (10, 2.0) if far and n_rounds else (n_rounds, 1.0)
    way = min(max(3.0 * math.sqrt(ratio), 2.0), 30.0)
    return n_rounds, max(way, min(ratio, 100.0))


def columns_for(est, population):
    """How many columns of a relation the budget carries, by a public rule; None: all."""
    if not est._is_private() or not isinstance(est.clip_norm, str):
        return None
    size = population.n_outputs * population.n_features
    ratio = MeanPlan(est, population.n_tasks, size).ratio
    return max(int(ratio / _COLUMN_RATIO), 1) if math.isfinite(ratio) else None


def speeds(n_rounds):
    """Parts of the way of every round: they fall, so that the last rounds add little noise."""
    v = np.arange(n_rounds, 0, -1, dtype=float)
    return v / v.sum()


class MeanPlan:
    """Budget of the rounds. Reads public numbers only: counts and parameters.

    Parameters
    ----------
    est : estimator
    n_tasks : int
    size : int
        Numbers in all shared models together.
    intercepts : tuple of (int, float, float), default=None
        Numbers in the mean intercepts that are released at the end, and a number from which those
        of one task have a bounded distance; None for none. Together with sampled rounds, which
        have no mu, budgets add up (basic composition).
    groups : ndarray, default=None
        Public number of tasks of every shared model; None: one for all. With a relation of r
        columns, r times the part n_tasks / r.
    relation : str, default=None
        What the report says of it.

    Attributes
    ----------
    ratio : float
        m mu / sqrt(d) for replaced tasks, with d numbers of a shared model and m tasks in the
        smallest cluster: of equal rounds, all of the noise together is 2 / ratio times as long as
        the way that updates can make. Left-out tasks, which need half the noise, have twice the
        ratio, and sampled rounds that of rounds of all tasks with as much noise. Infinite without
        noise.
    auto : bool
        Whether `clip_norm` is "auto".
    measures : bool
        Whether bounds on the updates follow from the ratio and the tasks' own models.
    scale : VectorGaussian or None
        Mechanism of the histogram of lengths (`skpmtl.mean_regularized.scale`); None where it is
        not asked for. With mu_s^2 of the squared budget, which is `_SCALE_SHARE` of mu^2, rounds
        have mu_r^2 = mu^2 - mu_s^2: all releases are Gaussian, round t of sensitivity 2 C_t / m and
        standard deviation 2 C_t sqrt(T) / (m mu_r), that is mu_r / sqrt(T), whatever the earlier
        releases made of C_t. Together exactly mu.
    way : float
    noise_multiplier : float or None
        Std of the noise on the sum of the updates (and counts) over the clip norm; None
        without privacy.
    denominator : float
        The constant q.
    round_delta : float or None
        delta at which the rounds are accounted; None without privacy.
    """

    def __init__(self, est, n_tasks, size, intercepts=None, groups=None, relation=None):
        private = est._is_private()
        self.n_tasks, self.size = n_tasks, size
        self.update, self.clustered = est._update_name(), est.clusters is not None
        self.relation = relation
        self.adjacency, self.quantile = est.adjacency, est.clip_quantile
        self.auto = isinstance(est.clip_norm, str)
        self.clip_norm = 1.0 if self.auto else float(est.clip_norm)
        self.server_rate = est.server_learning_rate
        self.sampling, self.rate = est.sampling, float(est.sampling_rate)
        if self.sampling == "all" and self.rate != 1.0:
            raise ValueError(
                f'sampling_rate={self.rate!r} with sampling="all" has no meaning: set '
                'sampling="poisson" or "fixed", or leave the rate at 1.'
            )
        if self.auto and self.quantile is not None:
            raise ValueError(
                f"clip_quantile={self.quantile!r} moves a bound that has a start: set clip_norm to "
                'a number, or leave clip_quantile at None for clip_norm="auto".'
            )
        if self.sampling == "fixed":  # a whole number of tasks
            self.rate = max(round(self.rate * n_tasks), 1) / n_tasks
        self.denominator = self.rate * n_tasks
        self.epsilon = self.delta = self.round_delta = self.mu = self.scale_mu = None
        self.noise_multiplier = self.intercept = self.scale = None
        self.intercept_range = (0.0, self.clip_norm) if intercepts is None else intercepts[1:]
        self.measures = self.auto and private
        self.ratio, self.way = math.inf, 1.0
        self.n_rounds = est._n_rounds(est.epsilon if private else None)
        if not private or self.n_rounds == 0:
            self.doubt = doubt(self.ratio)
            return
        self.epsilon, self.delta = check_budget(est.epsilon, est.delta, n_tasks)
        groups = np.array([n_tasks]) if groups is None else groups
        self.ratio = self._ratio(groups.min(), size / len(groups))
        if self.auto:
            n_rounds, self.way = path(self.ratio, est._classification or relation is not None)
            if isinstance(est.n_rounds, str):
                self.n_rounds = n_rounds
        self.doubt = doubt(self.ratio) if self.n_rounds else 1.0
        reach = mean_sensitivity(1.0, 1.0, self.adjacency)
        share = (_INTERCEPT_SHARE if self.n_rounds else 1.0) if intercepts else 0.0
        if self.sampling == "all" or not self.n_rounds:
            self.round_delta = self.delta
            self.mu = gdp_mu(self.epsilon, self.delta)
            mu = self.mu * math.sqrt(share)
            if self.auto and self.n_rounds:
                scale = histogram(self.adjacency, self.mu * math.sqrt(_SCALE_SHARE))
                if n_tasks >= _SCALE_TASKS * scale.noise_std:
                    self.scale, self.scale_mu = scale, scale.mu
            spent = share + (_SCALE_SHARE if self.scale else 0.0)
            if self.n_rounds:
                rounds = self.mu * math.sqrt(1.0 - spent)
                self.noise_multiplier = reach * math.sqrt(self.n_rounds) / rounds
        else:
            self.round_delta = (1.0 - share) * self.delta
            mu = gdp_mu(share * self.epsilon, share * self.delta) if share else 0.0
            self.noise_multiplier = self._sampled_noise(
                (1.0 - share) * self.epsilon, self.round_delta, self.n_rounds
            )
        if intercepts:
            sensitivity = mean_sensitivity(intercepts[2], n_tasks, self.adjacency)
            self.intercept = VectorGaussian(intercepts[0], sensitivity, float(mu))

    def _sampled_noise(self, epsilon, delta, n_rounds):
        find = poisson_noise if self.sampling == "poisson" else fixed_size_noise
        return find(epsilon, delta, n_rounds, self.rate, self.adjacency)

    def _ratio(self, n_tasks, size):
        """See `ratio`. Sampled rounds of noise z C / q on the mean have the noise of rounds of all
        tasks at mu = reach sqrt(T) q / (z m); their number T matters little and is `_TRIAL`.
        """
        reach = mean_sensitivity(1.0, 1.0, self.adjacency)
        if self.sampling == "all":
            mu = gdp_mu(self.epsilon, self.delta)
        else:
            z = self._sampled_noise(self.epsilon, self.delta, _TRIAL)
            mu = reach * math.sqrt(_TRIAL) * self.rate / z
        return float(2.0 / reach * n_tasks * mu / math.sqrt(size))

    def bounds(self, length=None):
        """Bounds on the updates of all rounds; those of the start where counts move them.

        Parameters
        ----------
        length : float or None
            Of the models of most tasks; None: tasks send in units of their own.
        """
        if not self.auto:
            return [self.clip_norm] * self.n_rounds
        return (self.way * (length or 1.0) * speeds(self.n_rounds)).tolist()

    # ---------------------------------------------------------------------- mechanisms
    def mechanisms(self, clip_norm):
        """-> mechanism of the mean update, mechanism of the count or None, for one round.

        Updates over the clip norm and centred counts (inside - 1/2) times 2 have norm at most
        1 each; together they are one Gaussian release of the planned noise multiplier.
        """
        reach = mean_sensitivity(1.0, 1.0, self.adjacency)
        mu = reach / self.noise_multiplier
        share = 0.0 if self.quantile is None else _COUNT_SHARE
        sensitivity = mean_sensitivity(clip_norm, self.denominator, self.adjacency)
        update = BlockGaussian(self.size, sensitivity, mu * math.sqrt(1.0 - share))
        if not share:
            return update, None
        half = mean_sensitivity(0.5, self.denominator, self.adjacency)
        return update, VectorGaussian(1, half, mu * math.sqrt(share))

    def draw(self, source):
        """Positions of the tasks of one round; the draw is secret randomness like the noise."""
        m = self.n_tasks
        if self.sampling == "all" or (self.sampling == "poisson" and self.rate == 1.0):
            return np.arange(m)
        if self.sampling == "poisson":
            return np.flatnonzero(source.uniform(m) < self.rate)
        return np.sort(source.permutation(m)[: round(self.denominator)])

    def next_bound(self, clip_norm, inside):
        """The bound of the next round, from the released share of updates inside it."""
        return clip_norm * math.exp(_CLIP_RATE * (self.quantile - min(max(inside, 0.0), 1.0)))

    # -------------------------------------------------------------------------- report
    def entries(self, bounds):
        """Descriptions of the releases of rounds with these bounds on the updates."""
        if self.noise_multiplier is None:
            return []
        entries = []
        if self.scale is not None:
            entries.append({"name": "lengths, counts", **self.scale.describe("histogram")})
        for t, clip_norm in enumerate(bounds):
            update, counter = self.mechanisms(clip_norm)
            name = f"round {t + 1}"
            entries.append({"name": name, **update.describe("mean of clipped updates")})
            if counter is not None:
                name = f"{name}, count"
                entries.append({"name": name, **counter.describe("share inside the bound")})
        if self.mu is None:  # sampling: the rounds are accounted together
            entries = [
                {"mu if drawn" if key == "mu" else key: value for key, value in entry.items()}
                for entry in entries
            ]
        return entries

    def report(self, bounds, source):
        """The statement of the guarantee for rounds with these bounds on the updates."""
        if self.n_rounds and self.noise_multiplier is None:
            return exact_report("the rounds ran without noise (epsilon=None)")
        entries = self.entries(bounds)
        if self.intercept is not None:
            statistic = "mean of clipped intercepts"
            entries.append({"name": "mean intercept", **self.intercept.describe(statistic)})
        public = {
            "n_tasks": self.n_tasks,
            "n_numbers": self.size,
            "n_rounds": self.n_rounds,
            "clip_norm": "auto" if self.auto else self.clip_norm,
            "clip_quantile": self.quantile,
            "server_learning_rate": self.server_rate,
            "denominator": self.denominator,
            "update": self.update,
        }
        if self.clustered:
            public["clusters"] = "public mapping of tasks to clusters"
        if self.relation is not None:
            public["relation"] = self.relation
        if self.auto:
            public |= {"ratio of the rule for the rounds": self.ratio, "way": self.way}
        notes = {}
        if self.auto and self.n_rounds:
            notes["unit of the updates"] = (
                "every task's own: nothing is released of it"
                if self.scale is None
                else f"a histogram of lengths, which {_SCALE_SHARE:.0%} of the squared budget pays "
                "for; every task's own where it shows no common one"
            )
        if self.quantile is not None:
            notes["adaptive clipping"] = (
                f"{_COUNT_SHARE:.0%} of the squared budget pays for the counts, which raises the "
                f"noise of the updates by {1 / math.sqrt(1 - _COUNT_SHARE) - 1:.1%}"
            )
        if self.intercept is not None:
            notes["mean intercept"] = f"{_INTERCEPT_SHARE:.0%} of " + (
                "epsilon and delta, by basic composition with the rounds"
                if self.mu is None
                else "the squared budget"
            )
        if not entries:
            return PrivacyReport(
                guarantee="joint DP per task",
                adjacency=self.adjacency,
                epsilon=0.0,
                mechanism="none: nothing is released",
                accountant="nothing to account",
                assumptions=_ASSUMPTIONS,
            )
        return PrivacyReport(
            guarantee="joint DP per task",
            unit="task",
            adjacency=self.adjacency,
            epsilon=self.epsilon,
            delta=self.delta,
            mechanism="Gaussian noise on the mean of clipped "
            + ("updates" if self.n_rounds else "intercepts"),
            sensitivity=[entry["sensitivity"] for entry in entries],
            noise_std=[entry["noise_std"] for entry in entries],
            mu=self.mu,
            releases=entries,
            accountant=self._accountant(),
            sampling=self._scheme(),
            rng=source.description,
            arithmetic=source.arithmetic,
            public_inputs=public,
            assumptions=_ASSUMPTIONS,
            notes=notes,
        )

    def _accountant(self):
        if self.mu is not None:
            return f"skpmtl {__version__}, exact Gaussian differential privacy"
        if self.sampling == "poisson":
            return accountant_name()
        return (
            f"skpmtl {__version__}, exact mixture over the number of participations, no "
            "amplification by sampling"
        )

    def _scheme(self):
        q = f"constant denominator q = {self.denominator:.6g}"
        if self.sampling == "poisson":
            return (
                f"Poisson, every task with probability {self.rate:.6g} in every round, "
                f"independently and secretly; {q}"
            )
        if self.sampling == "fixed":
            return (
                f"{round(self.denominator)} of {self.n_tasks} tasks in every round, taken as "
                f"known to all of them; {q}"
            )
        return f"all tasks in every round; {q}"

_ASSUMPTIONS = (
    TRUSTED_CURATOR,
    PUBLIC_LISTS,
    "every task receives its own model only, and keeps its intercepts and scaling to itself",
    *ALWAYS,
)
