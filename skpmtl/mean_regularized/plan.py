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

_COUNT_SHARE = 0.1  # of mu^2, for the counts that adapt the clipping bound
_INTERCEPT_SHARE = 0.1  # of mu^2, for the mean intercept of unseen_task="mean"
_CLIP_RATE = 0.5  # log of the bound moves by this times the distance to the quantile
_BLOCK = 1 << 16  # noise is drawn and added in pieces


def auto_rounds(epsilon):
    """Public rule for the number of rounds: 3, 10, 30, 100 for epsilon to .1, 1, 2, above."""
    for limit, rounds in ((0.1, 3), (1.0, 10), (2.0, 30)):
        if epsilon is not None and epsilon <= limit:
            return rounds
    return 100


def epsilon_of_rounds(noise_multiplier, n_rounds, sampling, rate, delta, adjacency):
    """Budget of the first rounds, at this delta.

    Parameters
    ----------
    noise_multiplier : float
        Of the sums of every round.
    n_rounds : int
    sampling : {"all", "poisson", "fixed"}
    rate, delta : float
    adjacency : {"replace-one", "zero-out"}

    Returns
    -------
    epsilon : float
    """
    if sampling == "all":
        return float(gdp_epsilon(blocks_mu(noise_multiplier, n_rounds, adjacency), delta))
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


class MeanPlan:
    """Budget of the rounds. Reads public numbers only: counts and parameters.

    Parameters
    ----------
    est : estimator
    n_tasks : int
    size : int
        Numbers in all shared models together.
    n_intercepts : int
        Numbers in the mean intercepts that are released at the end; 0 for none. Together with
        sampled rounds, which have no mu, budgets add up (basic composition).

    Attributes
    ----------
    noise_multiplier : float or None
        Std of the noise on the sum of the updates (and counts) over the clip norm; None
        without privacy.
    denominator : float
        The constant q.
    round_delta : float or None
        delta at which the rounds are accounted; None without privacy.
    """

    def __init__(self, est, n_tasks, size, n_intercepts=0):
        private = est._is_private()
        epsilon = est.epsilon if private else None
        self.n_tasks, self.size = n_tasks, size
        self.update, self.clustered = est._update_name(), est.clusters is not None
        self.adjacency, self.clip_norm = est.adjacency, float(est.clip_norm)
        self.quantile = est.clip_quantile
        self.n_rounds = est._n_rounds(epsilon)
        self.server_rate = est.server_learning_rate
        self.sampling, self.rate = est.sampling, float(est.sampling_rate)
        if self.sampling == "all" and self.rate != 1.0:
            raise ValueError(
                f'sampling_rate={self.rate!r} with sampling="all" has no meaning: set '
                'sampling="poisson" or "fixed", or leave the rate at 1.'
            )
        if self.sampling == "fixed":  # a whole number of tasks
            self.rate = max(round(self.rate * n_tasks), 1) / n_tasks
        self.denominator = self.rate * n_tasks
        self.epsilon = self.delta = self.round_delta = self.mu = None
        self.noise_multiplier = self.intercept = None
        if not private or self.n_rounds == 0:
            return
        self.epsilon, self.delta = check_budget(est.epsilon, est.delta, n_tasks)
        reach = mean_sensitivity(1.0, 1.0, self.adjacency)
        share = _INTERCEPT_SHARE if n_intercepts else 0.0
        if self.sampling == "all":
            self.round_delta = self.delta
            self.mu = gdp_mu(self.epsilon, self.delta)
            mu = self.mu * math.sqrt(share)
            rounds = self.mu * math.sqrt(1.0 - share)
            self.noise_multiplier = reach * math.sqrt(self.n_rounds) / rounds
        else:
            self.round_delta = (1.0 - share) * self.delta
            mu = gdp_mu(share * self.epsilon, share * self.delta) if share else 0.0
            find = poisson_noise if self.sampling == "poisson" else fixed_size_noise
            self.noise_multiplier = find(
                (1.0 - share) * self.epsilon, self.round_delta, self.n_rounds, self.rate,
                self.adjacency,
            )  # fmt: skip
        if n_intercepts:
            sensitivity = mean_sensitivity(self.clip_norm, n_tasks, self.adjacency)
            self.intercept = VectorGaussian(n_intercepts, sensitivity, float(mu))

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

    def noise_variances(self, bounds, groups):
        """Variance of the noise in one number of each centre: of ten rounds, and of all.

        Parameters
        ----------
        bounds : list of float
            On the updates, one a round.
        groups : ndarray (n_clusters,)
            Numbers of tasks.

        Returns
        -------
        variances : ndarray (2, n_clusters)
        """
        if self.noise_multiplier is None:
            return np.zeros((2, len(groups)))
        squares = [self.mechanisms(bound)[0].noise_std ** 2 for bound in bounds]
        step = self.server_rate * groups.sum() / groups
        return step**2 * np.array([[sum(squares[:10])], [sum(squares)]])

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
            "clip_norm": self.clip_norm,
            "clip_quantile": self.quantile,
            "server_learning_rate": self.server_rate,
            "denominator": self.denominator,
            "update": self.update,
        }
        if self.clustered:
            public["clusters"] = "public mapping of tasks to clusters"
        notes = {}
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
        if self.n_rounds == 0:
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
            mechanism="Gaussian noise on the mean of clipped updates",
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
        if self.sampling == "poisson" and self.rate < 1:
            return accountant_name()
        if self.sampling == "fixed":
            return (
                f"skpmtl {__version__}, exact mixture over the number of participations, no "
                "amplification by sampling"
            )
        return f"skpmtl {__version__}, exact Gaussian differential privacy"

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
