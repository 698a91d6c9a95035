"""Clipping, sensitivities, noise mechanisms.

Notation: the task contributes w (a row of the clipped contributions, ||w|| <= K) and the
curator releases a sum over tasks plus noise. Adjacency "zero-out": one task contributes 0
instead of w; "replace-one": v instead of w.
"""

import copy
import math

import numpy as np

from .._kernels.records import MARGIN
from .accounting import check_count, check_positive
from .rng import add_on_grid, grid_step, replied

ADJACENCIES = ("replace-one", "zero-out")
_LARGEST = 1e150  # norm that is squared
_UNIT = 2.0**-53  # unit roundoff of float64
_EACH = 16  # roundings of a number before it is added: its clipping, or a product of two


def std_of(mechanism):
    """Standard deviation of the noise in every number of a release; 0 for None, without noise."""
    return 0.0 if mechanism is None else mechanism.noise_std


# ---------------------------------------------------------------- clipping
def clip_rows(W, bound):
    """Scale every row of W (n, d) into the ball ||w||_2 <= bound, in place; `bound` may be (n,).

    A row with a NaN or an infinite entry becomes zero.

    Returns
    -------
    norms : ndarray (n,)
        Of the rows before; infinite where a row was not finite.
    """
    limit = bound * (1.0 - MARGIN)
    with np.errstate(all="ignore"):
        unit, square = np.ones(len(W)), np.einsum("ij,ij->i", W, W)
        # Squares that overflow, vanish, or are not finite.
        odd = np.flatnonzero(~((square > 1e-200) & (square < 1e200)))
        largest = np.abs(W[odd]).max(axis=1, initial=0.0)
        unit[odd] = np.where(np.isfinite(largest), largest, np.inf)
        W[unit == np.inf] = 0.0
        square[odd] = np.sum((W[odd] / unit[odd, None]) ** 2, axis=1)
        root = np.sqrt(square)
        norms, longest = np.where(root > 0.0, unit * root, unit), limit / root
    far = np.flatnonzero(unit > longest)  # unit * root itself may overflow
    W[far] = W[far] / unit[far, None] * longest[far, None]
    return norms


# ---------------------------------------------------------------- sensitivities
def _replaced(adjacency, zero_out, replace_one):
    if adjacency not in ADJACENCIES:
        raise ValueError(f'adjacency={adjacency!r} must be "replace-one" or "zero-out".')
    return float(replace_one if adjacency == "replace-one" else zero_out)


def _square(clip_norm, dimension):
    check_positive(clip_norm=clip_norm)
    check_count(dimension=dimension)
    if clip_norm > _LARGEST:
        raise ValueError(f"clip_norm={clip_norm!r} is too large: its square overflows.")
    return clip_norm**2


def second_moment_sensitivity(clip_norm, adjacency, *, dimension=2, norm="frobenius"):
    """Sensitivity of W W' = sum w w', ||w||_2 <= clip_norm.

    "frobenius" (Gaussian noise): K^2 zero-out, sqrt(2) K^2 replace-one, since
    ``||w w' - v v'||_F^2 = |w|^4 + |v|^4 - 2 (w.v)^2``. "nuclear" (Wishart noise): K^2 and
    2 K^2. Attained by orthogonal w, v; with dimension=1 there are none and replace-one
    equals zero-out. Contributions of trace 1 or 0 have the values of K = 1.
    """
    factors = {"frobenius": math.sqrt(2.0), "nuclear": 2.0}
    if norm not in factors:
        raise ValueError(f'norm={norm!r} must be "frobenius" or "nuclear".')
    factor = factors[norm] if dimension > 1 else 1.0
    square = _square(clip_norm, dimension)
    return _replaced(adjacency, square, factor * square)


def mean_sensitivity(clip_norm, denominator, adjacency):
    """L2 sensitivity of sum g_k / denominator, ||g_k||_2 <= clip_norm: C/q, 2 C/q.

    `denominator` must be a public constant (the number of tasks, or rate times it), never
    the realised number of participants.
    """
    check_positive(clip_norm=clip_norm, denominator=denominator)
    return _replaced(adjacency, 1.0, 2.0) * clip_norm / denominator


def rounding_factor(n_tasks):
    """How much further apart than their sensitivity float sums of neighbours can be. -> float >= 1

    Let every contribution have norm at most C, and S >= C be the sensitivity of exact sums. Added
    in any order, n numbers x_i are off by at most g sum_i |x_i| with g = n u / (1 - n u) and
    u = 2^-53 (Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 4.2), here n C
    at most. Float sums of neighbours are thus no further apart than S + 2 g n C <= S (1 + 2 g n).

    Parameters
    ----------
    n_tasks : int
        Number of listed tasks, which is public.
    """
    terms = n_tasks + _EACH
    return 1.0 + 2.0 * n_tasks * terms * _UNIT / (1.0 - terms * _UNIT)


# ---------------------------------------------------------------- mechanisms
class Mechanism:
    """Common half of mechanisms: noise is added to the value over the integers of a public grid.

    Attributes
    ----------
    sensitivity : float
        As given, in `norm`; it also bounds how far neighbours are apart after rounding.
    noise_std : float
        Std of the noise of one entry (of a diagonal entry for matrices).
    mu, epsilon : float or None
        The Gaussian-DP parameter or the pure epsilon of one release; the other is None.
    step : float
        Grid step, 2^-24 of the noise scale. Rounding moves neighbours apart by at most one
        step per entry; values are scaled down by that much of the sensitivity first (about
        1e-6 of it), so that the noise is exactly sensitivity over budget.
    shape : tuple
        Shape of the released array.
    """

    mu: float | None = None
    epsilon: float | None = None

    def sample(self, source):
        """One draw of the noise alone, on the grid."""
        return self._noise_steps(source) * self.step

    def noise_of_one(self, source, n_servers):
        """Noise of one of several servers, in steps; that of all of them has `noise_std`.

        For Gaussian noise, of which sums are Gaussian.
        """
        one = copy.copy(self)
        one.noise_std = self.noise_std / math.sqrt(n_servers)
        return one._noise_steps(source)

    def steps(self, value):
        """value (scaled, see `step`), rounded to the grid, in steps."""
        return np.rint(self._symmetric(value) * self._shrink / self.step)

    def _symmetric(self, value):
        """A matrix by its lower triangle: products may be asymmetric in the last bit."""
        return np.tril(value) + np.tril(value, -1).T if len(self.shape) == 2 else value

    def release(self, value, source):
        """value (scaled, see `step`) + noise, on the grid. `source` is from `noise_source`."""
        value = np.asarray(value, dtype=float)
        if value.shape != self.shape:
            raise ValueError(f"expected a statistic of shape {self.shape}, got {value.shape}.")
        if not np.isfinite(value).all():
            raise ValueError("the statistic is not finite: clip the contributions first.")
        value = self._symmetric(value)
        return replied(self.describe, lambda: self._noisy(value, source), value[None])

    def _noisy(self, value, source):
        return add_on_grid(value * self._shrink, self._noise_steps(source), self.step)

    def describe(self, statistic=None):
        """Entry of the report's `releases`."""
        entry = {
            "statistic": statistic,
            "mechanism": self.name,
            "sensitivity": self.sensitivity,
            "norm": self.norm,
            "noise_std": self.noise_std,
        }
        entry.update({"mu": self.mu} if self.mu is not None else {"epsilon": self.epsilon})
        return entry


def calibrated(sensitivity, budget, rounding, multiple=1.0):
    """-> (scale, step, shrink), scale = multiple * sensitivity / budget.

    Values are multiplied by shrink = 1 - rounding * step / sensitivity, so that neighbours
    are no more than `sensitivity` apart after rounding, and the noise is the textbook's.
    """
    check_positive(sensitivity=sensitivity, budget=budget)
    scale = multiple * sensitivity / budget
    step = grid_step(scale)
    shrink = 1.0 - rounding * step / sensitivity
    if shrink <= 0:
        raise ValueError(
            f"budget={budget!r} leaves nothing of a statistic of this size: the noise exceeds "
            f"it {1 / budget:.2g} times. Raise epsilon or delta, or make fewer releases."
        )
    return scale, step, shrink


class SymmetricGaussian(Mechanism):
    """Gaussian noise on symmetric d x d matrices, isotropic in Frobenius norm; exact GDP.

    E_jj ~ N(0, s^2) and E_jk = E_kj ~ N(0, s^2/2), s = sensitivity / mu.

    Parameters
    ----------
    dimension : int
    sensitivity : float
        Frobenius; see `second_moment_sensitivity`.
    mu : float
    """

    name = "symmetric Gaussian"
    norm = "frobenius"

    def __init__(self, dimension: int, sensitivity: float, mu: float) -> None:
        check_count(dimension=dimension)
        self.dimension, self.shape = dimension, (dimension, dimension)
        self.sensitivity, self.mu = float(sensitivity), float(mu)
        self.noise_std, self.step, self._shrink = calibrated(self.sensitivity, self.mu, dimension)

    def _noise_steps(self, source):
        d, scale = self.dimension, self.noise_std / self.step
        steps = np.zeros(self.shape)
        lower = np.tril_indices(d, -1)
        if source.exact:
            steps[lower] = source.discrete_normal(scale / math.sqrt(2.0), len(lower[0]))
            diagonal = source.discrete_normal(scale, d)
        else:
            z = source.normal(d + len(lower[0]))
            steps[lower] = np.rint(z[d:] * (scale / math.sqrt(2.0)))
            diagonal = np.rint(z[:d] * scale)
        steps += steps.T
        steps[np.diag_indices(d)] = diagonal
        return steps


class VectorGaussian(Mechanism):
    """Isotropic Gaussian noise on vectors (means of updates); exact GDP.

    Parameters
    ----------
    dimension : int
    sensitivity : float
        L2; see `mean_sensitivity`.
    mu : float
    """

    name = "Gaussian"
    norm = "l2"

    def __init__(self, dimension: int, sensitivity: float, mu: float) -> None:
        check_count(dimension=dimension)
        self.dimension, self.shape = dimension, (dimension,)
        self.sensitivity, self.mu = float(sensitivity), float(mu)
        self.noise_std, self.step, self._shrink = calibrated(
            self.sensitivity, self.mu, math.sqrt(dimension)
        )

    def _noise_steps(self, source):
        scale = self.noise_std / self.step
        if source.exact:
            return source.discrete_normal(scale, self.dimension)
        return np.rint(source.normal(self.dimension) * scale)


class VectorGamma(Mechanism):
    """Noise of density exp(-epsilon ||x||_2 / sensitivity) on vectors; (epsilon, 0)-DP.

    A uniform direction times a radius ~ Gamma(d, sensitivity / epsilon): the noise of output
    perturbation (Chaudhuri et al. 2011), the K-norm mechanism of the Euclidean ball.

    Parameters
    ----------
    dimension : int
        Of one vector.
    sensitivity : float
        L2, of one vector.
    epsilon : float
    n_vectors : int, default=1
        Vectors of independent noise that are released as one array (n_vectors * dimension,).
        Neighbours may differ in one of them only.
    """

    name = "L2-gamma"
    norm = "l2"

    def __init__(
        self, dimension: int, sensitivity: float, epsilon: float, *, n_vectors: int = 1
    ) -> None:
        check_count(dimension=dimension, n_vectors=n_vectors)
        self.dimension, self.n_vectors = dimension, n_vectors
        self.shape = (n_vectors * dimension,)
        self.sensitivity, self.epsilon = float(sensitivity), float(epsilon)
        self.scale, self.step, self._shrink = calibrated(
            self.sensitivity, self.epsilon, math.sqrt(dimension)
        )
        self.noise_std = self.scale * math.sqrt(dimension + 1.0)

    def describe(self, statistic=None):
        return {**super().describe(statistic), "n_vectors": self.n_vectors}

    def _noise_steps(self, source):
        if source.exact:
            raise ValueError(
                "secure=True has no exact sampler for L2-gamma noise: use a Gaussian mechanism."
            )
        z = source.normal((self.n_vectors, self.dimension))
        radius = 0.5 * source.chisquare(np.full(self.n_vectors, 2.0 * self.dimension))
        z *= (radius / np.linalg.norm(z, axis=1))[:, None]
        return np.rint(z.reshape(-1) * (self.scale / self.step))
