"""Private rounds with networks: noisy means of clipped updates move shared parameters.

The curator sees one clipped update per task and round. It publishes

    u_t = (sum of clipped updates + N(0, s_t^2 I)) / m,    w~_t = w~_(t-1) + u_t,

with m the public number of tasks (Hu, Wu and Smith, "Private multi-task learning", TMLR 2023). With
clusters the sums of all clusters make one vector, of which one task moves only one part, so that
clusters cost nothing (parallel composition); w~ of a cluster of m_c of the m tasks then moves by
u_t m / m_c.

With a relation (`skpmtl.tables.relation`) task k lies around v_k G, and adds b_k u_k' to the sum
for its clipped update u_k and public rows |b_k| <= 1: replacing the task moves the sum by
b_k (u - u')', of Frobenius norm |b_k| |u - u'| <= 2 C, and leaving it out by C. As
sum_k b_k v_k' = I, G moves by u_t m.
"""

import math
from collections.abc import Mapping
from numbers import Integral
from typing import ClassVar

import numpy as np

from .._runtime.constraints import Interval, StrOptions
from ..base import BaseMTL, HasCovariates
from ..exchange.plan import Plan, divided_mu
from ..exchange.protocol import Query, QuerySpec, run_away
from ..exchange.sums import sum_of_clipped
from ..privacy.accounting import check_budget, gdp_epsilon
from ..privacy.mechanisms import VectorGaussian, mean_sensitivity
from ..privacy.report import PUBLIC_LISTS, TRUSTED_CURATOR, exact_report
from ..privacy.rng import add_on_grid, replied
from ..privacy.sampling import blocks_mu
from ..tables.ids import listed
from ..tables.relation import read_relation

_KEPT = 1 << 22  # numbers of all updates of a fit, up to which they are kept
_BLOCK = 1 << 16  # noise is drawn and added in pieces


def epsilon_of_rounds(noise_multiplier, n_rounds, delta, adjacency):
    """epsilon of the first rounds, at this delta, from the noise over the bound of every round."""
    return float(gdp_epsilon(blocks_mu(noise_multiplier, n_rounds, adjacency), delta))


class PiecewiseGaussian(VectorGaussian):
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


class NetworkPlan(Plan):
    """Noise of the rounds of one fit. Reads public numbers only.

    Parameters
    ----------
    est : estimator
    n_tasks : int
    size : int
        Numbers in all shared networks together.
    groups : ndarray
        Public number of tasks of every shared network. With a relation of r columns, r times
        n_tasks / r.
    relation : Relation or None

    Attributes
    ----------
    noise_multiplier : float or None
        Standard deviation of the noise on the sum of the updates over the bound; None: no noise.
    """

    own_assumptions = (
        TRUSTED_CURATOR,
        PUBLIC_LISTS,
        "every task receives its own model only, and keeps its intercepts and scaling to itself",
    )

    def __init__(self, est, n_tasks, size, groups, relation=None):
        self.n_tasks, self.size, self.groups, self.relation = n_tasks, size, groups, relation
        self.adjacency, self.n_servers = est.adjacency, est._n_servers
        self.clustered, self.n_rounds = est.clusters is not None, est.n_rounds
        self.clip_norm = float(est.clip_norm)
        self.epsilon = self.delta = self.mu = self.noise_multiplier = None
        if est._is_private():
            self.epsilon, self.delta = check_budget(est.epsilon, est.delta, n_tasks)
            self.mu = divided_mu(self.epsilon, self.delta, self.n_servers)
            reach = mean_sensitivity(1.0, 1.0, self.adjacency)
            self.noise_multiplier = reach * math.sqrt(self.n_rounds) / self.mu

    @property
    def noise_over_path(self):
        """Noise of a round over the longest path that all of them can make; 0 without noise.

        With a task that may be left out it is sqrt(d / T) / (m mu), for d numbers and T rounds.
        """
        if self.noise_multiplier is None:
            return 0.0
        noise = self.noise_multiplier / self.groups.min()
        return float(noise * math.sqrt(self.size / len(self.groups)) / self.n_rounds)

    @property
    def total_noise_over_path(self):
        """Noise of all rounds together over the longest path that they can make."""
        return math.sqrt(self.n_rounds) * self.noise_over_path

    def update_mechanism(self):
        """Of the mean update of one round."""
        mu = mean_sensitivity(1.0, 1.0, self.adjacency) / self.noise_multiplier
        sensitivity = mean_sensitivity(self.clip_norm, self.n_tasks, self.adjacency)
        return PiecewiseGaussian(self.size, sensitivity, mu)

    def report(self, source, made=None):
        if self.noise_multiplier is None:
            return exact_report("the rounds ran without noise (epsilon=None)")
        return super().report(source, made)

    def releases(self, made=None):
        update = self.update_mechanism().describe("mean of clipped updates")
        return [{"name": f"round {t + 1}", **update} for t in range(self.n_rounds)]

    def mechanism(self):
        return "Gaussian noise on the mean of clipped updates"

    def public_inputs(self):
        public = {
            "n_tasks": self.n_tasks,
            "n_numbers": self.size,
            "n_rounds": self.n_rounds,
            "clip_norm": self.clip_norm,
        }
        if self.clustered:
            public["clusters"] = "public mapping of tasks to clusters"
        if self.relation is not None:
            public["relation"] = self.relation.describe()
        return public | {"noise over the longest path": self.noise_over_path}

    def scheme(self):
        return f"all tasks in every round; constant denominator q = {self.n_tasks}"


def gains(to):
    """What means over all tasks are multiplied by, (n_centres,): the tasks over those of each."""
    m = len(to)
    return m / np.bincount(to) if to.ndim == 1 else np.full(to.shape[1], float(m))


def sum_of_updates(to, clip_norm, shape):
    """``combine`` of the updates that remote tasks sent; each is clipped here as well.

    A task that is silent (NaN) adds 0, which is what "zero-out" means. `to` is as for `publish`,
    `shape` the (n_centres, size) of the sum.
    """

    def combine(contributions, positions):
        total = sum_of_clipped(contributions["update"], clip_norm, to[positions], shape)
        return {"update": total.reshape(shape)}

    return combine


def publish(plan, billboard, to, source, log):
    """The curator of a fit, see `skpmtl.exchange`.

    Moves ``billboard.centres``, zero at the start, and fills in the releases; those of more than
    2^22 numbers together are not kept. `to` is public: the centre of each task, (n_tasks,), or what
    it multiplies its contribution by, rows (n_tasks, n_centres) of length 1 at most. `source` is
    for the report, which names it.

    Yields a Query for "update", the sum of the clipped updates (n_centres, size), in every round.
    Raises ValueError when rounds without noise diverge.
    """
    private, centres = plan.noise_multiplier is not None, billboard.centres
    clip_norm = plan.clip_norm if private else math.inf
    mechanism = plan.update_mechanism() if private else None
    billboard.step, lengths = gains(to)[:, None], []
    keep = plan.n_rounds * centres.size <= _KEPT
    for t in range(plan.n_rounds):
        released = yield Query(
            "update",
            {"centre": centres, "clip_norm": clip_norm},
            {"update": mechanism},
            sum_of_updates(to, clip_norm, centres.shape),
            plan.n_tasks,
            task_side_adds=True,
        )
        total = released.pop("update").reshape(centres.shape)
        if not private:
            lengths.append(np.linalg.norm(total))
        if keep:
            billboard.releases.append(total if len(centres) > 1 else total[0])
            centres += billboard.step * total
        else:  # a large model has no further copy
            total *= billboard.step
            centres += total
        del total
        billboard.clip_norms.append(clip_norm)
        if log is not None:
            log(t + 1, mechanism.noise_std if private else 0.0)
    if run_away(lengths, everybody=True):  # clipped updates cannot
        raise ValueError(
            "The rounds diverged: their updates grow, or are not finite. Scale X to rows of length "
            "about 1, and take a smaller learning_rate."
        )
    billboard.report = plan.report(source)
    return billboard


def cluster_rows(tasks, cluster_of):
    """Number of the cluster of each of these tasks; ValueError for tasks without one."""
    if cluster_of is None:
        return np.zeros(len(tasks), dtype=np.int64)
    known = [cluster_of.get(task) for task in tasks.tolist()]
    missing = tasks[[number is None for number in known]]
    if len(missing):
        raise ValueError(
            f"Tasks without a cluster: {listed(missing)}. Add them to clusters={{task: cluster}} "
            "before the fit, with ids of the same type and a cluster of which the fit has a task."
        )
    return np.array(known, dtype=np.int64)


class RunsRounds(HasCovariates, BaseMTL):
    """Estimators that release shared networks in rounds and personalise them afterwards.

    A subclass defines ``_size(population)``, the numbers of one shared network, and
    ``_billboard(population, centres, cluster_of, relation)``.
    """

    _parameter_constraints: ClassVar[dict] = {
        **BaseMTL._parameter_constraints,
        "clusters": [Mapping, None],
        "relation": "no_validation",  # by `read_relation`
        "relation_rank": [Interval(Integral, 1, None, closed="left"), StrOptions({"all"}), None],
    }
    _federates = True

    def _curator(self, population, source):
        relation, cluster_of = self._relation(population), self._cluster_rows(population.tasks)
        plan, to = self._plan(population), self._to(population)
        centres = np.zeros((self._n_centres(population), self._size(population)))
        billboard = self._billboard(population, centres, cluster_of, relation)
        billboard.noise_multiplier, billboard.round_delta = plan.noise_multiplier, plan.delta
        message = f"round %d: noise std %.3g ({plan.noise_over_path:.3g} of the longest path)"
        log = self._progress(message, plan.n_rounds)
        self._warn_of_noise(plan, population)
        return publish(plan, billboard, to, source, log)

    def _to(self, population):
        """Public: see `publish`."""
        relation = self._relation(population, quiet=True)
        if relation is not None:
            return relation.weights(population.tasks)
        return cluster_rows(population.tasks, self._cluster_rows(population.tasks))

    def _plan(self, population):
        relation, m = self._relation(population, quiet=True), population.n_tasks
        if relation is None:
            groups = np.bincount(self._to(population))
        else:
            groups = np.full(relation.rank, m / relation.rank)
        return NetworkPlan(self, m, len(groups) * self._size(population), groups, relation)

    def _relation(self, population, quiet=False):
        """The `Relation` of the parameters, over all tasks; None without one."""
        if self.relation is None:
            if self.relation_rank is not None:
                raise ValueError(
                    f"relation_rank={self.relation_rank!r} has no effect without relation=."
                )
            return None
        if self.clusters is not None:
            raise ValueError(
                "clusters= is a relation of its own: give one of clusters= and relation=, or the "
                "clusters as a column of the latter."
            )
        if self.relation_rank == "all":
            raise ValueError(
                'relation_rank="all" is the whole penalty of a graph or of Omega, which belongs to '
                "PrivateMeanRegMTL without a budget: pass a number of columns."
            )
        order = None if isinstance(self.tasks, str) else self.tasks
        given = self.relation, population.tasks
        return read_relation(*given, order=order, rank=self.relation_rank, quiet=quiet)

    def _n_centres(self, population):
        """Number of shared networks."""
        relation = self._relation(population, quiet=True)
        if relation is not None:
            return relation.rank
        cluster_of = self._cluster_rows(population.tasks)
        return 1 if cluster_of is None else len(set(cluster_of.values()))

    def _cluster_rows(self, labels):
        """{task: number of its cluster} for the clusters that have one of the tasks `labels`."""
        if self.clusters is None:
            return None
        tasks = labels.tolist()
        missing = [task for task in tasks if task not in self.clusters]
        if missing:
            cluster_rows(labels, dict.fromkeys(set(tasks) - set(missing), 0))
        present = sorted({str(self.clusters[task]) for task in tasks})
        number = {name: g for g, name in enumerate(present)}
        return {
            task: number[str(name)] for task, name in self.clusters.items() if str(name) in number
        }

    def _n_iter(self, billboard):
        return max(len(billboard.clip_norms), 1)

    def _query_specs(self, population):
        size = self._size(population)
        centres = [(self._n_centres(population), size)]
        public = {"centre": centres, "clip_norm": float(self.clip_norm)}
        return {"update": QuerySpec({"update": (size,)}, public)}

    def _planned_report(self, population):
        return self._plan(population).report(self._source())
