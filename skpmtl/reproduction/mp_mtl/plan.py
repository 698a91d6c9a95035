"""Privacy of Algorithms 1 to 3: budgets of the rounds, noise, and the report."""

import math

import numpy as np

from ...exchange.plan import Plan
from ...privacy.accounting import cb_epsilon, gdp_mu, pure_epsilons
from ...privacy.allocation import allocation_weights, release_mus
from ...privacy.mechanisms import SymmetricGaussian, second_moment_sensitivity
from .wishart import PublishedWishart, SymmetrizedWishart, published_wishart_delta_bound

__all__ = ["MPMTLPlan", "best_allocation", "bound_exponent"]

_NONE = (
    "a Wishart matrix is positive semi-definite, so that a release minus w w' is never below zero "
    "for the task that contributed w and often is for others; delta is at least "
    "1 - exp(-sum of epsilon_t) whatever epsilon is claimed"
)


def best_allocation(accelerated, strongly_convex, q0=None):
    """Theorem 6: the exponent alpha of epsilon_t = t^alpha, or the pair ("geometric", Q).

    Parameters
    ----------
    accelerated, strongly_convex : bool
    q0 : float, default=None
        Q_0 = 1 - mu / L, or 1 - sqrt(mu / L) with acceleration; where losses are strongly convex.
    """
    if not strongly_convex:
        return 0.4 if accelerated else 0.0
    return "geometric", q0 ** (0.2 if accelerated else 0.4)


def bound_exponent(accelerated, strongly_convex, pure):
    """Table 2: the exponent of d log d / (sqrt(m) epsilon), or of log d / (m epsilon).

    `pure`: delta = 0.
    """
    table = {
        (False, False): (2 / 5, 1 / 3),
        (False, True): (1 / 2, 1 / 2),
        (True, False): (4 / 9, 2 / 5),
        (True, True): (1.0, 1.0),
    }
    return table[accelerated, strongly_convex][pure]


class MPMTLPlan(Plan):
    """T releases of the second moment of clipped models.

    Parameters
    ----------
    penalty : {"low-rank", "group-sparse"}
    n_tasks, dimension, n_rounds : int
        m, d and T.
    clip_norm : float
        K.
    threshold : float
        eta lambda.
    epsilon : float or None
        None: no noise and no clipping.
    delta : float
        0: the budgets of the rounds add up to epsilon; not with Gaussian noise.
    allocation : float or ("geometric", Q), default=0.0
        epsilon_t in proportion to t^alpha or Q^-t.
    budgets : array-like (T,), default=None
        epsilon_t themselves, of Algorithm 1; `epsilon` is then not read.
    mechanism : {"published", "gaussian", "wishart"}, default="published"
        "published": W_d(d + 1, K^2 / (2 epsilon_t) I), without a guarantee. The others are sound:
        Gaussian noise, and the difference of two Wishart matrices.
    adjacency : {"replace-one", "zero-out"}, default="replace-one"
        Of the sound ones.
    noise_shift : float, default=0.0
        Multiple of the identity that is added to a release of the sound ones, in standard
        deviations of the noise on a diagonal entry. It is public, and stands in for the positive
        mean of the published noise.
    all_directions : bool, default=False
        Whether all d directions count where there are fewer tasks; as printed min(d, m) do.
    """

    def __init__(
        self,
        penalty,
        n_tasks,
        dimension,
        n_rounds,
        *,
        clip_norm,
        threshold,
        epsilon,
        delta,
        allocation=0.0,
        budgets=None,
        mechanism="published",
        adjacency="replace-one",
        noise_shift=0.0,
        all_directions=False,
    ):
        self.penalty, self.n_tasks, self.dimension = penalty, n_tasks, dimension
        self.n_rounds, self.clip_norm, self.threshold = n_rounds, clip_norm, threshold
        self.epsilon, self.delta, self.allocation = epsilon, delta, allocation
        self.kind, self.adjacency, self.noise_shift = mechanism, adjacency, noise_shift
        self.n_directions = dimension if all_directions else min(dimension, n_tasks)
        self.private = epsilon is not None or budgets is not None
        self.budgets, self._mechanisms, self.mu = (), [None] * n_rounds, None
        if self.private:
            self._set_budgets(budgets)
            self._mechanisms = [self._of(budget) for budget in self.budgets]
        if mechanism == "published":
            self.guarantee = "none"

    def _set_budgets(self, budgets):
        pure = self.kind != "gaussian"
        if budgets is not None:
            self.budgets = np.asarray(budgets, dtype=float)
            self.epsilon = cb_epsilon(self.budgets, self.delta)
            return
        weights = allocation_weights(self.allocation, self.n_rounds)
        if pure:
            # Step 1: the largest epsilon_0 with CB <= epsilon.
            method = "cb" if self.delta > 0 else "basic"
            self.budgets = pure_epsilons(self.epsilon, self.delta, weights, method)
        else:
            self.mu = float(gdp_mu(self.epsilon, self.delta))
            self.budgets = release_mus(self.mu, self.n_rounds, self.allocation)

    def _of(self, budget):
        d, K = self.dimension, self.clip_norm
        if self.kind == "published":
            return PublishedWishart(d, K, budget)
        if self.kind == "gaussian":
            return SymmetricGaussian(
                d, second_moment_sensitivity(K, self.adjacency, dimension=d), budget
            )
        sensitivity = second_moment_sensitivity(K, self.adjacency, dimension=d, norm="nuclear")
        return SymmetrizedWishart(d, sensitivity, budget)

    def mechanism(self, t=None):
        """Noise of round t = 0, ..., T - 1; without t its name, for the report."""
        if t is not None:
            return self._mechanisms[t]
        return f"{self._mechanisms[0].name} on second moments of clipped models"

    def shift(self, t=None):
        """Multiple of the identity that is added to the release of round t, or to all."""
        if t is None:
            return [self.shift(t) for t in range(self.n_rounds)] if self.private else []
        noise = self._mechanisms[t]
        if noise is None or self.kind == "published":
            return 0.0
        return float(self.noise_shift * noise.noise_std)

    # ----------------------------------------------------------------- report
    @property
    def accounting(self):
        """See `Plan`."""
        if self.kind == "gaussian":
            return "exact Gaussian differential privacy"
        name = "the composition bound of the paper" if self.delta > 0 else "the sum of budgets"
        return f"{name} (nominal)" if self.kind == "published" else name

    def releases(self, made=None):
        entries = [noise.describe("second moment") for noise in self._mechanisms if self.private]
        return [{"name": f"round {t + 1}", **entry} for t, entry in enumerate(entries)]

    def public_inputs(self):
        return {
            "penalty": self.penalty,
            "n_tasks": self.n_tasks,
            "dimension": self.dimension,
            "n_rounds": self.n_rounds,
            "clip_norm": self.clip_norm,
            "threshold": self.threshold,
            "allocation": self.allocation,
        }

    def notes(self, made=None):
        if self.kind != "published" or not self.private:
            return {}
        bound = published_wishart_delta_bound(self.budgets)
        return {"reason": _NONE, "delta_lower_bound": bound, "sum of epsilon_t": sum(self.budgets)}


def default_delta(n_tasks):
    """1 / (m log m), the paper's; more than one task."""
    return 1.0 / (n_tasks * math.log(n_tasks))
