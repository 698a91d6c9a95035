"""Empirical-Bayes model-protected learning: release a prior, let every task use it.

Round t: every task computes its posterior mode w under the current prior N(0, kappa s^2 M),
with kappa and s its own; it contributes w w' / ||w||^2, whose trace is 1, so that there is
nothing to clip. The diagonal is w * w, of unit sum for pure mechanisms and of unit
length for Gaussian noise, whose sensitivity is about lengths: a direction spread over many
features then stands out further by 1 / ||w||_4^2. The curator releases the noisy sum, averages
it over the rounds and shrinks it to the next M. One more released number per round, the mean
clipped log10 signal-to-noise ratio ("vote"), centres the tasks' choice of kappa.
"""

import numpy as np

from ..local.prior import SNR

# Public range of the votes, log10(snr), for squared and logistic loss, and the spread of the
# tasks around the released centre.
VOTE_RANGE = {False: (-1.5, 3.0), True: (-3.0, 1.5)}
VOTE_SPREAD = 0.3
_BLOCK = 1 << 20  # coefficients at a time in the sum of contributions


def vote_penalty(centre, spread):
    """What the released centre of the votes adds to the criterion of every task."""
    if centre is None:
        return 0.0
    return ((np.log10(SNR) - centre) / spread) ** 2


def root_of(moment):
    """R with R R' = moment; a diagonal moment is given by its diagonal, and so is its root."""
    if moment.ndim == 1:
        return np.sqrt(moment)
    values, U = np.linalg.eigh(moment)
    return U * np.sqrt(np.maximum(values, 0.0))


def even_root(d):
    """Root of I / d."""
    return np.full(d, d**-0.5)


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


def directions(W):
    """Unit directions u_k of the models: task k contributes u_k u_k', of trace 1.

    A model that is zero or not finite contributes zero, so that no input leaves the bound.
    """
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
    if mechanism is not None and mechanism.norm == "l2":
        length = np.sqrt(np.einsum("kj,kj->k", squares, squares))
        squares *= ((1.0 - 1e-12) / np.where(length > 0, length, 1.0))[:, None]
    return squares


def sum_of_directions(W, diagonal, mechanism):
    """Sum over the tasks of u u', or of the diagonal; (d, d) or (d,)."""
    total, step = 0.0, max(_BLOCK // W.shape[1], 1)
    for first in range(0, len(W), step):
        U = directions(W[first : first + step])
        total += squared_directions(U, mechanism).sum(axis=0) if diagonal else U.T @ U
    return total
