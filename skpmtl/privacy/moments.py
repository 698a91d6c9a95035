"""Second moments of directions: contributions of tasks, and estimates from noisy sums.

A contribution has trace 1 whatever the model is, so that there is nothing to clip. What is done
with a release is post-processing and costs no privacy.

A task with models w_c of several classes contributes A = sum_c w_c w_c' / sum_c |w_c|^2, which is
positive semi-definite and of trace 1 as for one model, and all that bounds a contribution follows
from these two: |A|_F <= tr A = 1, and |A - B|_F^2 = |A|_F^2 + |B|_F^2 - 2 <A, B> <= 2 for two of
them because <A, B> >= 0; in nuclear norm |A| = 1 and |A - B| <= 2. Diagonals are non-negative
with sum 1, or, divided by their length, of length 1.
"""

import numpy as np

_BLOCK = 1 << 20  # coefficients at a time in the sum of contributions


# ---------------------------------------------------------------------- contributions
def directions(W):
    """Unit directions u_k of the models: task k contributes u_k u_k', of trace 1.

    Of models (m, d), or (m, C, d) of C classes, which have length 1 together. A model that is zero
    or not finite contributes zero, so that no input leaves the bound.
    """
    if W.ndim > 2:
        return directions(W.reshape(len(W), -1)).reshape(W.shape)
    largest = np.abs(W).max(axis=1)
    usable = np.isfinite(largest) & (largest > 0)
    # Divided by their largest entry first: squares of tiny numbers would lose the norm.
    U = np.where(usable[:, None], W, 0.0) / np.where(usable, largest, 1.0)[:, None]
    norm = np.sqrt(np.einsum("kj,kj->k", U, U))
    # 1 - 1e-12: rounding must not push a contribution over the bound.
    return U * ((1.0 - 1e-12) / np.where(usable, norm, 1.0))[:, None]


def squared_directions(U, mechanism):
    """u * u of the unit directions: of unit length where the noise is Gaussian, else of sum 1."""
    squares = U * U
    if U.ndim > 2:
        squares = squares.sum(axis=1)
    if mechanism is not None and mechanism.norm == "l2":
        length = np.sqrt(np.einsum("kj,kj->k", squares, squares))
        squares *= ((1.0 - 1e-12) / np.where(length > 0, length, 1.0))[:, None]
    return squares


def sum_of_directions(W, diagonal, mechanism):
    """Sum over the tasks of u u', or of the diagonal; (d, d) or (d,)."""
    d = W.shape[-1]
    total, step = 0.0, max(_BLOCK * len(W) // max(W.size, 1), 1)
    for first in range(0, len(W), step):
        U = directions(W[first : first + step])
        if diagonal:
            total += squared_directions(U, mechanism).sum(axis=0)
        else:
            U = U.reshape(-1, d)
            total += U.T @ U
    return total


# ---------------------------------------------------------------------------- releases
def root_of(moment):
    """R with R R' = moment; a diagonal moment is given by its diagonal, and so is its root."""
    if moment.ndim == 1:
        return np.sqrt(moment)
    values, U = np.linalg.eigh(moment)
    return U * np.sqrt(np.maximum(values, 0.0))


class DriftingAverage:
    """Average of noisy releases of a slowly moving statistic.

    The excess of the squared distance between releases over the known noise energy is the
    squared drift, and old releases are trusted accordingly.
    """

    def __init__(self, value=None, variance=0.0):
        self.value, self.variance = value, variance

    def add(self, release, variance, dimension):
        """`variance`: noise variance per isotropic coordinate, of which there are `dimension`."""
        if self.value is None:
            self.value, self.variance = release, variance
            return self.value, self.variance
        noise = variance + self.variance
        drift = max(0.0, np.sum((release - self.value) ** 2) / dimension - noise)
        trust = variance / (noise + drift) if noise + drift > 0 else 0.0
        self.value = trust * self.value + (1 - trust) * release
        self.variance = trust**2 * self.variance + (1 - trust) ** 2 * variance
        return self.value, self.variance


# Noise below a fifth of the contribution of one task is taken for that much: the directions of so
# few tasks are chance. Chosen of six rules on one draw of the regressions of
# ``benchmarks/accuracy``, fresh ones among them, and on three draws of the low-rank generator.
LEAST_NOISE = 0.2
# A trace is that of fewer tasks than are listed where the noise on it would be this many times its
# std; of so small a part of them at least.
_SURE, _FEWEST = 2.0, 0.01


def sampling_variance(n_tasks, d):
    """Variance of a diagonal number of the sum of directions, because tasks are a sample.

    A direction drawn from the sphere has u_j^2 with variance about 2 / d^2. It counts twice, as
    directions of few rows are estimates. Without it a release with little noise, or none, is
    believed in more directions than there are tasks to show them: error would rise with epsilon.
    The factor was chosen on the tables of the role "tuning" in ``benchmarks/accuracy``.
    """
    return 4.0 * n_tasks / d**2


def _found(total, noise, whole):
    """Of the trace of all tasks, as much as a release of trace `total` and this noise allows."""
    return np.clip(total + _SURE * noise, _FEWEST * whole, whole)


def shrink_matrix(S, std, trace, tilt=0.5, sampling=0.0):
    """Estimate the shape of a second moment (d, d) from S = moment + symmetric Gaussian noise.

    The result is positive definite with the given trace. An eigenvalue at distance x above the bulk
    beyond the edge of the noise is shrunk to sqrt(x^2 - edge^2), the optimum in Frobenius norm for
    a spiked model; the rest of the trace is spread over all directions.

    Parameters
    ----------
    S : ndarray (d, d)
    std : float
        Standard deviation of the off-diagonal noise (the diagonal has sqrt(2) times that): the
        noise spectrum ends at 2 std sqrt(d).
    trace : float
        Of the moment where every task has a direction. Tasks without rows, or of one class, have
        none: where the trace of S is lower by more than noise it is taken, and two of its std.
    sampling : float
        Standard deviation of the off-diagonal numbers of an even moment, because it is that of a
        sample. Directions that do not stand out have it in proportion to their level.
    tilt : float in [0, 1]
        How strongly eigenvalues inside the noise spectrum still count. 0 makes a release that is
        all noise give (trace / d) I, which is single-task learning.
    """
    if std == sampling == 0:
        values, U = np.linalg.eigh(S)
        values = np.maximum(values, 0.0)
        if not values.any():  # no model has a direction
            values[:] = 1.0
        return (U * (values * (trace / values.sum()))) @ U.T
    U, spikes, floor = shrunk_spectrum(S, std, trace, tilt, sampling)
    return (U * (spikes + floor)) @ U.T


def shrunk_spectrum(S, std, trace, tilt=0.5, sampling=0.0):
    """`shrink_matrix` in parts, where there is noise, or sampling. -> U, spikes, floor

    U (d, d) are eigenvectors of S, by ascending eigenvalues; `spikes` (d,) is what those that stand
    out hold beyond the others, 0 for these; `floor` (d,) the rest: U diag(spikes + floor) U' has
    the given trace.
    """
    d, whole = len(S), trace
    values, U = np.linalg.eigh(S)
    trace = _found(values.sum(), std * np.sqrt(2.0 * d), whole)
    sampling *= np.sqrt(trace / whole)
    floor = even = trace / d
    for _ in range(20):  # level of the directions that do not stand out
        edge = 2.0 * np.sqrt(d) * max(np.hypot(std, sampling * floor / even), 1e-12 * trace)
        out = values - floor > edge
        if out.sum() >= d - 1:
            break
        lower = max(0.0, (trace - np.minimum(values[out], trace).sum()) / (d - out.sum()))
        if abs(lower - floor) < 1e-12 * trace:
            break
        floor = lower
    x = values - floor
    spikes = np.where(x > edge, np.sqrt(np.maximum(x * x - edge * edge, 0.0)), 0.0)
    # What remains for the others is little, and half of it all where noise may be all there is.
    most = trace * (1.0 - max(1e-3, 0.5 * edge**2 / (edge**2 + trace**2)))
    if spikes.sum() > most:
        spikes *= most / spikes.sum()
    shape = 1.0 + tilt * np.clip(x / edge, -1.0, 1.0)
    back = whole / trace
    return U, spikes * back, (trace - spikes.sum()) * shape / shape.sum() * back


_SHARES = np.array([0.0, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.97, 0.995])
# Prior odds of the most uneven share: without them an unknown trace, whose noise is that of a
# whole sum, would leave a floor under features that nobody uses.
_SPARSE = 50.0
_TRACES = np.linspace(-2.0, 2.0, 9)  # of an unknown trace, in std of the noise on its sum


def shrink_diagonal(r, std, trace, sampling=0.0):
    """Estimate the shape (d,), of sum 1, of non-negative s from r = s + N(0, std^2 I).

    Each s_j is one of two levels; the posterior mean averages over a grid of the number of high
    ones and of how much of the trace they hold beyond an even share. `trace` is the sum of s, or
    public bounds on it: then it is averaged over too, as it is where the sum of r says that tasks
    have no direction (`shrink_matrix`). `sampling` is the standard deviation of numbers that are
    even but for chance, because they are those of a sample; that of fewer tasks where the sum is
    lower.
    """
    d = len(r)
    if d == 1:
        return np.ones(1)
    if std == sampling == 0:
        s = np.maximum(r, 1e-4 * trace / d)
    else:
        least, most = trace if isinstance(trace, tuple) else (trace, trace)
        found = _found(r.sum(), std * np.sqrt(d), least)
        std = np.hypot(std, sampling * np.sqrt(found / least))
        least = least if found == least else _FEWEST * least
        traces = np.unique(np.clip(r.sum() + std * np.sqrt(d) * _TRACES, least, most))
        evidences, shapes = zip(*(_two_levels(r, std, total) for total in traces), strict=True)
        weight = np.exp(np.array(evidences) - max(evidences))
        s = np.maximum(weight @ np.array(shapes) / weight.sum(), 1e-4 / d)
    return s / s.sum()


def _two_levels(r, std, trace):
    """-> log evidence of the trace, posterior mean of s / trace.

    A hypothesis is a number c of features that are high, and the share of the trace which they hold
    beyond an even one; both levels follow from these, and every feature is high with probability
    c / d. Hypotheses are weighed by how likely they make the whole release, and a feature then has
    the average over them of what its own number says.
    """
    d = len(r)
    mean = trace / d
    half = max(1, d // 2)
    counts = np.unique(np.round(np.geomspace(1, half, min(half, 20))).astype(int))
    high = mean * (1.0 + _SHARES[None, :] * (d / counts[:, None] - 1.0))
    low = (trace - counts[:, None] * high) / (d - counts[:, None])
    prior = (counts / d)[:, None, None]
    # (counts, shares, features): log likelihood of being high, or low.
    a = np.log(prior) - 0.5 * ((r - high[..., None]) / std) ** 2
    b = np.log1p(-prior) - 0.5 * ((r - low[..., None]) / std) ** 2
    z = np.logaddexp(a, b)
    share = np.exp(a - z)
    posterior = share * high[..., None] + (1.0 - share) * low[..., None]
    evidence = z.sum(axis=-1)
    evidence[:, -1] += np.log(_SPARSE)
    top = evidence.max()
    weight = np.exp(evidence - top)
    return top + np.log(weight.sum()), np.einsum("cs,csj->j", weight, posterior) / (
        weight.sum() * trace
    )
