"""From a noisy second moment to a prior: what the curator does with a release.

Everything here is post-processing of released numbers and costs no privacy.
"""

import numpy as np


class DriftingAverage:
    """Average of noisy releases of a slowly moving statistic.

    The excess of the squared distance between releases over the known noise energy is the
    squared drift, and old releases are trusted accordingly.
    """

    def __init__(self):
        self.value, self.variance = None, 0.0

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


def shrink_matrix(S, std, trace, tilt=0.5):
    """Estimate a second moment of known trace from S = moment + symmetric Gaussian noise.

    Parameters
    ----------
    S : ndarray (d, d)
    std : float
        Standard deviation of the off-diagonal noise (the diagonal has sqrt(2) times that):
        the noise spectrum ends at 2 std sqrt(d).
    trace : float
        Known trace of the moment.
    tilt : float in [0, 1]
        How strongly eigenvalues inside the noise spectrum still count. 0 makes a release
        that is all noise give (trace / d) I, which is single-task learning.

    Returns
    -------
    ndarray (d, d), positive definite with the given trace.

    Notes
    -----
    An eigenvalue at distance x above the bulk beyond the edge is shrunk to
    sqrt(x^2 - edge^2), the optimum in Frobenius norm for a spiked model; the rest of the
    trace is spread over all directions.
    """
    d = len(S)
    values, U = np.linalg.eigh(S)
    edge = 2.0 * std * np.sqrt(d)
    if edge == 0:
        values = np.maximum(values, 0.0)
        return (U * (values * (trace / values.sum()))) @ U.T
    floor = trace / d
    for _ in range(20):  # level of the directions that do not stand out
        out = values - floor > edge
        if out.sum() >= d - 1:
            break
        lower = max(0.0, (trace - np.minimum(values[out], trace).sum()) / (d - out.sum()))
        if abs(lower - floor) < 1e-12 * trace:
            break
        floor = lower
    x = values - floor
    spikes = np.where(x > edge, np.sqrt(np.maximum(x * x - edge * edge, 0.0)), 0.0)
    if spikes.sum() > 0.999 * trace:
        spikes *= 0.999 * trace / spikes.sum()
    shape = 1.0 + tilt * np.clip(x / edge, -1.0, 1.0)
    return (U * (spikes + (trace - spikes.sum()) * shape / shape.sum())) @ U.T

_SHARES = np.array([0.0, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.97, 0.995])
# Prior odds of the most uneven share: without them an unknown trace, whose noise is that of a
# whole sum, would leave a floor under features that nobody uses.
_SPARSE = 50.0
_TRACES = np.linspace(-2.0, 2.0, 9)  # of an unknown trace, in std of the noise on its sum


def shrink_diagonal(r, std, trace):
    """Estimate the shape of non-negative s from r = s + N(0, std^2 I), r (d,).

    Each s_j is one of two levels; the posterior mean averages over a grid of the number of
    high ones and of how much of the trace they hold beyond an even share.

    Parameters
    ----------
    r : ndarray (d,)
    std : float
    trace : float or (float, float)
        Sum of s, or public bounds on it: then it is averaged over too.

    Returns
    -------
    ndarray (d,), positive with sum 1.
    """
    d = len(r)
    if d == 1:
        return np.ones(1)
    if std == 0:
        s = np.maximum(r, 1e-4 * trace / d)
    else:
        traces = [trace]
        if isinstance(trace, tuple):
            traces = np.unique(np.clip(r.sum() + std * np.sqrt(d) * _TRACES, *trace))
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
