"""Privacy of the rounds: noise for a budget, budget for a noise, and the report."""

import math

import numpy as np

from ...exchange.plan import Plan
from ...privacy.accounting import gdp_epsilon, gdp_mu
from ...privacy.mechanisms import VectorGaussian, mean_sensitivity
from ...privacy.report import ALONE, PUBLIC_LISTS, TRUSTED_CURATOR
from ...privacy.sampling import fixed_size_epsilon, fixed_size_noise
from .rounds import METHODS

__all__ = ["PMTLPlan", "FixedRelation", "theorem_1_noise_std"]


def theorem_1_noise_std(clip_norm, n_rounds, n_tasks, epsilon, delta):
    """sigma of Theorem 1 for q = m: 4 gamma sqrt(T log(1/delta)) / (epsilon m).

    The standard deviation of the noise on the mean of the updates. The proof needs
    epsilon <= 2 log(1 / delta); it is for replace-one adjacency.
    """
    return 4.0 * clip_norm * math.sqrt(n_rounds * math.log(1.0 / delta)) / (epsilon * n_tasks)


class FixedRelation:
    """A fixed, public relation Omega of m tasks: objective 1 with lam_1 = lam / 2.

    The gradient of the penalty in w_k is lam (Omega W)_k = lam (w_k - c_k) with the centres
    c = (I - Omega) W. With I - Omega = P diag(e) P', of rank r, the r sums diag(e) P' W are
    released and multiplied by P, so that replacing one task moves the release by at most 2 gamma
    max_k |e * P_k|. For the mean-regularised Omega = I - 11'/m this is the mean alone.

    Parameters
    ----------
    omega : array-like (m, m)
        Symmetric, in the order of the sorted tasks.
    n_tasks : int

    Attributes
    ----------
    out : ndarray (m, r)
        P.
    places : ndarray (m, r)
        Rows e * P_k over `largest`, of length 1 at most.
    largest : float
        max_k |e * P_k|.
    """

    def __init__(self, omega, n_tasks):
        omega = np.asarray(omega, dtype=float)
        if omega.shape != (n_tasks, n_tasks) or not np.allclose(omega, omega.T, atol=1e-12):
            raise ValueError(
                f"relation has shape {omega.shape}: pass a symmetric matrix ({n_tasks}, {n_tasks}) "
                "in the order of the sorted tasks."
            )
        e, P = np.linalg.eigh(np.eye(n_tasks) - omega)
        kept = np.abs(e) > 1e-10
        if not kept.any():
            raise ValueError(
                'relation is the identity, which relates no tasks: take method="local".'
            )
        self.out = P[:, kept]
        places = self.out * e[kept]
        self.largest = float(np.linalg.norm(places, axis=1).max())
        self.places = places / (self.largest * (1.0 + 1e-12))  # of length 1 also after rounding


class PMTLPlan(Plan):
    """T rounds in each of which q of m tasks send vectors of length gamma at most.

    Whose tasks are drawn is known to all tasks (a selected task gets the shared model), so that the
    draw amplifies nothing: the loss is a mixture over the number of rounds in which a task takes
    part (`skpmtl.privacy.sampling.fixed_size_delta`), and with q = m that of one Gaussian release.

    Parameters
    ----------
    method : str
        A key of `METHODS`.
    n_tasks, n_sampled, n_rounds : int
        m, q and T.
    clip_norm : float
        gamma.
    epsilon, delta : float or None
    noise_multiplier : float or None
        Standard deviation of the noise on the sum of the updates over gamma; sigma of the paper is
        that times gamma / q. None: from `epsilon`, and without both no noise and no clipping.
    adjacency : {"replace-one", "zero-out"}
    relation : FixedRelation, default=None
        None: tasks lie around their mean.
    """

    def __init__(
        self,
        method,
        n_tasks,
        n_sampled,
        n_rounds,
        clip_norm,
        epsilon,
        delta,
        noise_multiplier,
        adjacency,
        relation=None,
    ):
        self.method, self.n_tasks, self.n_sampled = method, n_tasks, n_sampled
        self.n_rounds = 0 if METHODS[method].sends == "nothing" else n_rounds
        self.clip_norm, self.delta, self.adjacency = clip_norm, delta, adjacency
        self.reach = mean_sensitivity(1.0, 1.0, adjacency)
        self.noise_multiplier = noise_multiplier
        if epsilon is not None and self.n_rounds:
            self.noise_multiplier = self._noise_for(epsilon)
        self.epsilon = epsilon
        if self.noise_multiplier is not None and self.n_rounds:
            self.epsilon = self.epsilon_after(self.n_rounds)
        full = self.n_sampled == n_tasks and self.noise_multiplier is not None
        self.mu = self.reach * math.sqrt(self.n_rounds) / self.noise_multiplier if full else None
        if METHODS[method].parts:
            self.guarantee = "task DP"
            self.own_assumptions = (TRUSTED_CURATOR, PUBLIC_LISTS)
        self.relation, self.silence = relation, ALONE

    def _noise_for(self, epsilon):
        if self.n_sampled == self.n_tasks:
            return self.reach * math.sqrt(self.n_rounds) / float(gdp_mu(epsilon, self.delta))
        rate = self.n_sampled / self.n_tasks
        return fixed_size_noise(epsilon, self.delta, self.n_rounds, rate, self.adjacency)

    def epsilon_after(self, n_rounds):
        """epsilon at `delta` of the first `n_rounds` rounds."""
        if self.n_sampled == self.n_tasks:
            mu = self.reach * math.sqrt(n_rounds) / self.noise_multiplier
            return float(gdp_epsilon(mu, self.delta))
        rate = self.n_sampled / self.n_tasks
        return fixed_size_epsilon(self.noise_multiplier, n_rounds, rate, self.delta, self.adjacency)

    @property
    def denominator(self):
        """What sums of updates are divided by."""
        method = METHODS[self.method]
        if method.parts:
            return 1.0
        if self.relation is not None:
            return 1.0 / self.relation.largest
        return float(self.n_tasks if method.over_tasks else self.n_sampled)

    @property
    def noise_std(self):
        """Of a number of a release: sigma of the paper."""
        return (self.noise_multiplier or 0.0) * self.clip_norm / self.denominator

    def draw(self, source):
        """S_t: `n_sampled` of the tasks, all choices equally likely. -> sorted positions"""
        return np.sort(source.permutation(self.n_tasks)[: self.n_sampled])

    def mechanism_of(self, size):
        """Noise of one release of `size` numbers; None without privacy."""
        if self.noise_multiplier is None:
            return None
        sensitivity = mean_sensitivity(self.clip_norm, self.denominator, self.adjacency)
        return VectorGaussian(size, sensitivity, self.reach / self.noise_multiplier)

    # ----------------------------------------------------------------- report
    def releases(self, made=None):
        if self.noise_multiplier is None:
            return []
        entry = self.mechanism_of(1).describe("clipped update")
        return [{"name": f"round {t + 1}", **entry} for t in range(self.n_rounds)]

    def public_inputs(self):
        return {
            "method": self.method,
            "n_tasks": self.n_tasks,
            "n_sampled": self.n_sampled,
            "n_rounds": self.n_rounds,
            "clip_norm": self.clip_norm,
            "noise_multiplier": self.noise_multiplier,
        }

    def mechanism(self):
        return "Gaussian noise on the clipped updates of Algorithm 1 (Hu, Wu and Smith)"

    def scheme(self):
        if self.n_sampled == self.n_tasks:
            return super().scheme()
        return f"{self.n_sampled} of {self.n_tasks} tasks in a round, drawn without replacement"

    def notes(self, made=None):
        found = {"sigma of the paper": self.noise_std}
        of_mean = self.relation is None and self.n_sampled == self.n_tasks
        if of_mean and 0 < self.epsilon <= -2.0 * math.log(self.delta):
            found["sigma of Theorem 1"] = theorem_1_noise_std(
                self.clip_norm, self.n_rounds, self.n_tasks, self.epsilon, self.delta
            )
        if METHODS[self.method].parts:
            found["models"] = "all of them are published, each with its own noise"
        return found
