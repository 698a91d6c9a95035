"""From a privacy budget to the mechanisms of one model-protected fit."""

import math

import numpy as np

from ..engine import residuals
from ..engine.levels import CORNER, LEVEL_BINS, OF_VOTE, PLACES, REACH, parts_of_zooms, window_share
from ..engine.plan import is_able
from ..engine.votes import N_DIFFERENCES
from ..engine.votes import sensitivity as sensitivity_of_votes
from ..exchange.plan import Plan, check_gaussian, divided_mu
from ..local.prior import VOTE_RANGE, VOTE_SPREAD
from ..privacy.accounting import check_budget, pure_epsilons
from ..privacy.mechanisms import (
    DiagonalGaussian,
    DiagonalLaplace,
    SymmetricGaussian,
    SymmetrizedWishart,
    VectorGaussian,
    diagonal_sensitivity,
    mean_sensitivity,
    second_moment_sensitivity,
)
from ..rounds.plan import RoundsPlan

# Of levels: shares of mu^2, that of the window at most, and what zooms may take of the mean level;
# and the tasks times mu from which on levels are looked for, with and without a public window.
_LEVEL_SHARES = {"level": 0.04, "noise": 0.01, "spread": 0.02}
_MOST_WINDOW, _OF_ZOOMS = 0.05, 0.6
_KNOWN_WINDOW, _FOUND_WINDOW = 33.0, 60.0
_LOGITS = 4.0  # bound on the levels of classifiers
LOG_WINDOW = 3.0  # half-width of the window of levels of counts
# Of the votes on evidence: a share each, and what the first moment has of all where there are more.
_VOTE_SHARE, _FIRST = 0.01, 0.45
_RELATION_SHARE = 0.35  # of mu^2, for the rounds in which centres of tasks follow from covariates
_PLAIN_ROUNDS = 30  # of these without noise
_INTERCEPT_SHARE = 0.1  # of mu^2, for intercepts that follow from covariates
MEAN_SHARE = 0.3  # of the budget, for the mean model that unseen_task="mean" publishes


def n_releases_for(n_tasks, n_features, mu, sensitivity, diagonal):
    """Public rule for the number of releases, and the signal-to-noise ratio behind it.

    The ratio says how far a signal that all tasks share stands above the edge of the noise
    when the whole budget goes into one release.
    """
    edge = np.sqrt(2 * np.log(max(n_features, 2)) if diagonal else 2 * n_features)
    ratio = n_tasks * mu / (sensitivity * edge)
    return (1 if ratio < 4 else 2 if ratio < 20 else 3), ratio


def vote_share(n_tasks, n_releases, mu, sensitivity):
    """Share of mu^2 for the votes: enough for a noise of `VOTE_SPREAD`, at most one eighth."""
    need = sensitivity / (VOTE_SPREAD * n_tasks)
    return min(0.125, (n_releases + 1) * (need / mu) ** 2)


class OfDiagonal:
    """A matrix mechanism of which only the diagonal is published (Algorithm 3).

    What is left out costs nothing more, so that the budget is that of the whole matrix.
    """

    def __init__(self, mechanism):
        self._mechanism = mechanism
        self.name = f"diagonal of the {mechanism.name}"
        self.noise_std, self.sensitivity = mechanism.noise_std, mechanism.sensitivity
        self.mu, self.epsilon = mechanism.mu, mechanism.epsilon
        self.norm = "diagonal"

    def release(self, value, source):
        return np.diag(self._mechanism.release(np.diag(value), source)).copy()

    def describe(self, statistic=None):
        return {**self._mechanism.describe(statistic), "mechanism": self.name}


def moment_sensitivity(kind, diagonal, clip_norm, adjacency, d):
    """Sensitivity of the second moment in the norm that belongs to the mechanism."""
    if diagonal and kind in ("gaussian", "laplace"):
        norm = "l1" if kind == "laplace" else "l2"
        return diagonal_sensitivity(clip_norm, adjacency, dimension=d, norm=norm)
    norm = "frobenius" if kind == "gaussian" else "nuclear"
    return second_moment_sensitivity(clip_norm, adjacency, dimension=d, norm=norm)


def moment_mechanisms(kind, diagonal, budgets, *, clip_norm, adjacency, dimension):
    """One mechanism per release; `budgets` holds mu_t for "gaussian", epsilon_t otherwise."""
    sensitivity = moment_sensitivity(kind, diagonal, clip_norm, adjacency, dimension)
    if kind == "gaussian":
        family = DiagonalGaussian if diagonal else SymmetricGaussian
        return [family(dimension, sensitivity, mu) for mu in budgets]
    if kind == "laplace":
        return [DiagonalLaplace(dimension, sensitivity, e) for e in budgets]
    made = [SymmetrizedWishart(dimension, sensitivity, e) for e in budgets]
    return [OfDiagonal(mechanism) for mechanism in made] if diagonal else made


def vector_mechanism(kind, dimension, l2, l1, budget):
    """Noise for a vector of bounded norm, Gaussian or, for the pure kinds, Laplace."""
    if kind == "gaussian":
        return VectorGaussian(dimension, l2, budget)
    return DiagonalLaplace(dimension, l1, budget)


def mean_mechanism(kind, dimension, clip_norm, n_tasks, adjacency, budget):
    """For the mean of the clipped models that `unseen_task="mean"` publishes."""
    l2 = mean_sensitivity(clip_norm, n_tasks, adjacency)
    return vector_mechanism(kind, dimension, l2, np.sqrt(dimension) * l2, budget)


def shared_budget(kind, epsilon, delta, n_releases, *, extra=(), n_servers=1, method="best"):
    """Budgets of the moment releases and of the `extra` ones.

    They are mu_t for "gaussian", epsilon_t otherwise, the same for all `n_releases` moments;
    `extra` is the share of every further release: of mu^2 for "gaussian", of epsilon for the pure
    mechanisms.
    """
    extra = np.asarray(extra, dtype=float)
    if kind == "gaussian":
        mu = divided_mu(epsilon, delta, n_servers)
        moment = mu * np.sqrt(1.0 - extra.sum()) / np.sqrt(n_releases)
        return np.full(n_releases, moment), mu * np.sqrt(extra)
    shares = np.append(np.full(n_releases, (1.0 - extra.sum()) / n_releases), extra)
    budgets = pure_epsilons(epsilon, delta, shares / shares.max(), method)
    return np.split(budgets, [n_releases])


def rounds_of(est, population, rank):
    """`RoundsPlan` of centres that follow from `rank` covariates; None where these were noise."""
    m, size = population.n_tasks, population.n_outputs * population.n_features
    groups = np.full(rank, m / rank)
    if not est._is_private():
        return RoundsPlan(m, rank * size, None, _PLAIN_ROUNDS, groups=groups)
    budget = check_budget(est.epsilon, est.delta, m)
    plan = RoundsPlan(
        m,
        rank * size,
        budget,
        None,
        share=_RELATION_SHARE,
        adjacency=est.adjacency,
        groups=groups,
        far=True,
        n_servers=est._n_servers,
    )
    return plan if plan.n_rounds else None


class LevelPlan:
    """Mechanisms of `release_level`; all of them None without a budget, with an infinite mu.

    `window` is middle and half-width where they are public; None: they are asked for. `shares` are
    budget shares of mu^2, by name.
    """

    def __init__(self, est, population, mu, adjacency):
        self.mu, self.log_loss = mu, est._log_loss
        self.replace_one = adjacency == "replace-one"
        self.all_pooled = est.levels == "pooled"
        self.window = (0.0, _LOGITS) if est._classification else est._level_window()
        self.shares = dict(_LEVEL_SHARES)
        if self.log_loss:
            self.shares["spread"] += self.shares.pop("noise")
        self.of_histograms = self.z(population, mu, adjacency)
        if self.window is None:
            self.shares["window"] = window_share(self.of_histograms, _MOST_WINDOW)

    @staticmethod
    def z(population, mu, adjacency):
        """Tasks times mu, for histograms."""
        return population.n_tasks * mu * (1.0 if adjacency == "replace-one" else math.sqrt(2.0))

    @classmethod
    def of(cls, est, population, mu, adjacency):
        """A plan where levels are looked for, by a public rule; else None."""
        if est.levels == "free" or not est.fit_intercept or population.n_outputs > 1:
            return None
        known = est._classification or est._level_window() is not None
        if cls.z(population, mu, adjacency) >= (_KNOWN_WINDOW if known else _FOUND_WINDOW):
            return cls(est, population, mu, adjacency)
        if est.levels == "pooled":
            raise ValueError(
                'levels="pooled" with so few tasks for the budget: no level can be found. Pass the '
                'public range of the target, target_range=(low, high), or levels="auto".'
            )
        return None

    @property
    def histogram(self):
        fraction = 1.0 if self.log_loss else 1.0 - OF_VOTE
        return self._vector("window", LEVEL_BINS, self._one_bin, fraction)

    @property
    def inside(self):
        return self._vector("window", 2, (2.0 if self.replace_one else 1.0) * CORNER, OF_VOTE)

    def zooms(self):
        """(budget share, mechanism) of histograms of levels in a window."""
        parts = parts_of_zooms(self.of_histograms, self.shares["level"], _OF_ZOOMS)
        return [(("level", p), self._vector("level", PLACES, self._one_bin, p)) for p in parts]

    @property
    def _one_bin(self):
        return math.sqrt(2.0) if self.replace_one else 1.0

    def of_mean(self, unit, fraction=1.0):
        return self._vector("level", 1, (2.0 if self.replace_one else 1.0) * unit, fraction)

    @property
    def noise(self):
        return self._vector("noise", 1, (2.0 if self.replace_one else 1.0) * REACH)

    @property
    def spread(self):
        if self.log_loss:
            return self._vector("spread", N_DIFFERENCES, sensitivity_of_votes(self.replace_one))
        return self._vector("spread", 1, (2.0 if self.replace_one else 1.0) * REACH)

    def _vector(self, share, size, sensitivity, fraction=1.0):
        if math.isinf(self.mu):
            return None
        return VectorGaussian(size, sensitivity, self.mu * math.sqrt(self.shares[share] * fraction))


def is_refined(est, population, mu, adjacency):
    """Public rule: whether tasks vote on rank and floor of second moments, and refine them."""
    return (
        not (est._diagonal or est._log_loss)
        and est.n_releases == "auto"
        and est.relation is None
        and is_able(population.n_tasks, mu, adjacency == "replace-one")
    )


class MomentPlan(Plan):
    """Mechanisms of one private fit. Reads public numbers only: counts and parameters.

    Parameters
    ----------
    est : estimator
    population : Population
    relation : Relation, default=None
    public_init : PublicInit, default=None
        Public initial model, for the report.

    Attributes
    ----------
    kind : {"gaussian", "laplace", "wishart"}
        What the budget is divided as: mu^2 for Gaussian noise, else epsilon.
    moment : list of mechanisms
        One per release of the second moment.
    vote : list of mechanisms
        One before every moment, and one for the end.
    mean : mechanism or None
        For the mean model of unseen_task="mean", or intercepts where models follow from covariates.
    residuals : mechanism or None
        For the distances of targets from that mean model.
    rounds : RoundsPlan or None
        Of the centres of a relation.
    ratio : float
        Signal over noise of `n_releases_for`, which is public.
    """

    algorithm, sends = "empirical-bayes", "unit directions w"
    levels, refine, relation, rounds, residuals = None, None, None, None, None

    def __init__(self, est, population, relation=None, public_init=None):
        self._read(est, population, public_init)
        m, d, pure = self.n_tasks, self.dimension, self.kind != "gaussian"
        self.relation, self.rounds = relation, None
        if relation is not None:
            self.rounds = rounds_of(est, population, relation.rank)
        mean = []
        if est.unseen_task == "mean" and self.rounds is None:
            mean = [MEAN_SHARE]
        elif est.unseen_task == "mean" and est.fit_intercept:
            mean = [_INTERCEPT_SHARE]
        centres = [] if self.rounds is None else [_RELATION_SHARE]
        unseen = [residuals.SHARE] if est.uncertainty == "unseen" else []
        self.levels, refined = None, False
        if not pure and relation is None:
            self.levels = LevelPlan.of(est, population, self.mu, est.adjacency)
            refined = is_refined(est, population, self.mu, est.adjacency)
        level = [] if self.levels is None else list(self.levels.shares.values())
        low, high = VOTE_RANGE[est._log_loss]
        # Votes are centred, so an absent task moves the sum by half the range.
        reach = (high - low) * (1.0 if est.adjacency == "replace-one" else 0.5)
        sensitivity = moment_sensitivity(self.kind, est._diagonal, 1.0, est.adjacency, d)
        # For the pure kinds, the mu whose Gaussian has the noise of one release.
        mu = self.mu or self.epsilon / np.sqrt(2.0)
        auto, self.ratio = n_releases_for(m, d, mu, sensitivity, est._diagonal)
        auto = 1 if pure else auto
        n_releases = auto if est.n_releases == "auto" else est.n_releases
        votes = n_releases + 1
        share = vote_share(m, n_releases, mu, reach) * (1.0 - sum(mean + centres + unseen)) / votes
        level += [_VOTE_SHARE] * (3 * n_releases if refined else 0)
        budgets, extra = shared_budget(
            self.kind,
            self.epsilon,
            self.delta,
            n_releases,
            n_servers=self.n_servers,
            extra=[share] * votes + mean + unseen + centres + level,
        )
        if refined:
            of_votes = sensitivity_of_votes(est.adjacency == "replace-one")
            self.refine = [
                VectorGaussian(N_DIFFERENCES, of_votes, b) for b in extra[-3 * n_releases :]
            ]
            if n_releases > 1:
                rest = (1.0 - _FIRST) / (n_releases - 1)
                parts = np.array([_FIRST] + [rest] * (n_releases - 1))
                budgets = np.linalg.norm(budgets) * np.sqrt(parts)
        self.moment = moment_mechanisms(
            self.kind,
            est._diagonal,
            budgets,
            clip_norm=1.0,
            adjacency=est.adjacency,
            dimension=d,
        )
        self.vote = [vector_mechanism(self.kind, 1, reach, reach, b) for b in extra[:votes]]
        self.mean = None
        if mean:
            numbers = d + 1 if self.rounds is None else relation.rank
            self.mean = self._mean(numbers, extra[votes])
        if unseen:
            # Of non-negative vectors of sum 1, see `skpmtl.engine.residuals`.
            l2, l1 = (math.sqrt(2.0), 2.0) if est.adjacency == "replace-one" else (1.0, 1.0)
            size, budget = len(residuals.BINS), extra[votes + len(mean)]
            self.residuals = vector_mechanism(self.kind, size, l2, l1, budget)

    def _read(self, est, population, public_init):
        """Settings, and the whole budget."""
        self.public_init = public_init
        self.kind = "gaussian" if est.mechanism == "auto" else est.mechanism
        self.dimension, self.n_tasks = population.n_features, population.n_tasks
        self.n_outputs = population.n_outputs
        self.adjacency, self.clip_norm = est.adjacency, est.clip_norm
        self.diagonal, self.log_loss = est._diagonal, est._log_loss
        self.loss = est.loss
        self.target_range = getattr(est, "target_range", None)
        self.epsilon, self.delta = check_budget(
            est.epsilon, est.delta, self.n_tasks, pure=self.kind in ("laplace", "wishart")
        )
        self.n_servers, self.mu = est._n_servers, None
        if self.kind == "gaussian":
            self.mu = divided_mu(self.epsilon, self.delta, self.n_servers)
        else:
            check_gaussian(self.n_servers, f"mechanism={est.mechanism!r} is not")

    def _mean(self, numbers, budget):
        """Mechanism of the mean of clipped models, or of intercepts, of so many numbers a class."""
        size = self.n_outputs * numbers
        return mean_mechanism(self.kind, size, self.clip_norm, self.n_tasks, self.adjacency, budget)

    # -------------------------------------------------------------------------- report
    @property
    def accounting(self):
        """See `Plan`."""
        return _ACCOUNTANTS[self.kind]

    def mechanism(self):
        return self.moment[0].name

    def releases(self, made=None):
        """`made`: bounds on the updates of the rounds, and (name, statistic, mechanism) of votes on
        evidence, blocks and levels; None: before a fit."""
        bounds, further = (None, None) if made is None else made
        moment_of = "sum of w * w" if self.diagonal else "sum of w w'"
        what = self.sends
        if self.n_outputs > 1:
            what += " of all classes"
        if self.diagonal and self.kind == "gaussian" and self.vote:
            moment_of = "sum of w * w / ||w * w||_2"
        releases = []
        for t in range(len(self.moment) + 1):
            if self.vote:
                releases.append((f"vote {t + 1}", "sum of clipped log10 snr", self.vote[t]))
            if t < len(self.moment):
                blocks = [f for f in further or () if f[0] == f"moment {t + 1}"]
                releases += blocks or [(f"moment {t + 1}", f"{moment_of}, {what}", self.moment[t])]
                releases += [f for f in further or () if is_vote(f[0], t)]
        releases += [f for f in further or () if f[0] in _OF_LEVELS]
        if self.mean is not None:
            what = "models with intercept" if self.rounds is None else "intercepts"
            releases.append(("mean", f"mean of clipped {what}", self.mean))
        if self.residuals is not None:
            releases.append(("residuals", residuals.WORDS, self.residuals))
        first = []
        if self.rounds is not None:
            first = self.rounds.entries(self.rounds.bounds() if bounds is None else bounds)
        entries = first + [
            {"name": name, **mechanism.describe(statistic)}
            for name, statistic, mechanism in releases
        ]
        if made is None:  # what is asked, and about what, follows from releases
            if self.levels is not None:
                shares = self.levels.shares.items()
                entries += [{"name": s, "mu": self.mu * math.sqrt(part)} for s, part in shares]
            entries += [
                {"name": f"vote on evidence {n + 1}", "mu": vote.mu}
                for n, vote in enumerate(self.refine or ())
            ]
        return entries

    def public_inputs(self):
        public = {
            "n_tasks": self.n_tasks,
            "n_features": self.dimension,
            "n_moment_releases": len(self.moment),
        }
        if self.mean is not None:
            public["clip_norm"] = self.clip_norm
        if self.mean is not None and self.target_range is not None:
            public["target_range"] = tuple(map(float, self.target_range))
        if self.loss != "squared":
            public["loss"] = self.loss
        if self.vote:
            public["vote_range"] = VOTE_RANGE[self.log_loss]
        if self.relation is not None:
            public["relation"] = self.relation.describe()
        return public

    def notes(self, made=None):
        notes = {"algorithm": self.algorithm}
        if self.levels is not None and made is not None:
            pooled = any(f[0] == "level" for f in made[1])
            notes["levels"] = "pooled" if pooled else "free: no window of them stood out"
        if self.relation is not None:
            notes["relation"] = (
                f"{_RELATION_SHARE:.0%} of the squared budget pays for the rounds that find it"
                if self.rounds is not None
                else "left aside: what it adds would be noise at this budget"
            )
        return notes


_OF_LEVELS = ("window", "level", "noise", "spread")


def is_vote(name, t):
    """Whether a release is a vote on evidence after moment t."""
    return name.startswith("vote on") and name.endswith(f" {t + 1}")


_ACCOUNTANTS = {
    "gaussian": "exact Gaussian differential privacy",
    "laplace": "optimal composition of pure releases",
    "wishart": "optimal composition of pure releases",
}
