"""Wishart noise on second moments: that of the paper, without a guarantee, and a sound one."""

import math

import numpy as np

from ...privacy.accounting import check_count, pure_epsilon
from ...privacy.mechanisms import Mechanism, calibrated, second_moment_sensitivity

__all__ = ["PublishedWishart", "SymmetrizedWishart", "published_wishart_delta_bound"]


class _Wishart(Mechanism):
    norm = "nuclear"

    def _standard_wishart(self, source):
        """A A' ~ W_d(d + 1, I), A lower triangular (Bartlett's decomposition).

        A_ii^2 has d + 1 - i degrees of freedom, i from 0, and A_ij is standard normal for j < i.
        """
        d = self.dimension
        if source.exact:
            raise ValueError(
                "secure=True has no exact sampler for Wishart noise: use a Gaussian mechanism."
            )
        A = np.zeros(self.shape)
        A[np.tril_indices(d, -1)] = source.normal(d * (d - 1) // 2)
        A[np.diag_indices(d)] = np.sqrt(source.chisquare(d + 1.0 - np.arange(d)))
        return self._symmetric(A @ A.T)


class SymmetrizedWishart(_Wishart):
    """E1 - E2, independent W_d(d+1, V I), V = sensitivity / (2 epsilon); (epsilon, 0)-DP.

    The density is const exp(-tr E / 2V) h(E) with h increasing in the Loewner order, and
    even; so a symmetric difference D changes it by at most exp(||D||_* / 2V).

    Parameters
    ----------
    dimension : int
    sensitivity : float
        Nuclear norm; see `skpmtl.privacy.second_moment_sensitivity`.
    epsilon : float
    """

    name = "symmetrised Wishart"

    def __init__(self, dimension: int, sensitivity: float, epsilon: float) -> None:
        check_count(dimension=dimension)
        self.dimension, self.shape = dimension, (dimension, dimension)
        self.sensitivity, self.epsilon = float(sensitivity), float(epsilon)
        # nuclear norm <= sqrt(d) Frobenius norm <= sqrt(d) d step
        self.scale, self.step, self._shrink = calibrated(
            self.sensitivity, self.epsilon, dimension**1.5, 0.5
        )
        self.noise_std = 2.0 * self.scale * math.sqrt(dimension + 1.0)

    def _noise_steps(self, source):
        difference = self._standard_wishart(source) - self._standard_wishart(source)
        return np.rint(difference * (self.scale / self.step))


class PublishedWishart(_Wishart):
    """W_d(d+1, K^2/(2 epsilon) I), the mechanism of the paper.

    It has no differential privacy guarantee: the event "release - w w' is not positive
    semi-definite" gives a task away.

    Parameters
    ----------
    dimension : int
    clip_norm : float
    epsilon : float
        Nominal.

    Attributes
    ----------
    noise_mean : float
        Mean of a diagonal entry, (d+1) V; `noise_std` is the std about it.
    delta_lower_bound : float
        1 - exp(-epsilon) for one release.
    """

    name = "published Wishart (no guarantee)"

    def __init__(self, dimension: int, clip_norm: float, epsilon: float) -> None:
        square = second_moment_sensitivity(clip_norm, "zero-out", dimension=dimension)
        self.dimension, self.shape = dimension, (dimension, dimension)
        self.sensitivity, self.epsilon = square, float(epsilon)
        self.scale, self.step, self._shrink = calibrated(square, self.epsilon, 0.0, 0.5)
        self.noise_std = self.scale * math.sqrt(2.0 * (dimension + 1))
        self.noise_mean = self.scale * (dimension + 1)
        self.delta_lower_bound = published_wishart_delta_bound([self.epsilon])

    def _noise_steps(self, source):
        return np.rint(self._standard_wishart(source) * (self.scale / self.step))


def published_wishart_delta_bound(epsilons):
    """Lower bound 1 - exp(-sum epsilon_t) on delta of releases with the paper's noise.

    With noise W_d(d+1, K^2/(2 epsilon_t) I) the event "release - w w' is not positive
    semi-definite" has probability 0 with the task and 1 - exp(-epsilon_t) without it, so no
    finite epsilon holds with a smaller delta, whatever the nominal epsilons claim.
    """
    return -math.expm1(-pure_epsilon(epsilons, 0.0, "basic"))
