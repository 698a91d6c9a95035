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


# ---------------------------------------------------------------------------- releases
def root_of(moment):
    """R with R R' = moment; a diagonal moment is given by its diagonal, and so is its root."""
    if moment.ndim == 1:
        return np.sqrt(moment)
    values, U = np.linalg.eigh(moment)
    return U * np.sqrt(np.maximum(values, 0.0))


# A trace is that of fewer tasks than are listed where the noise on it would be this many times its
# std; of so small a part of them at least.
_SURE, _FEWEST = 2.0, 0.01


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
