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

from ..local.prior import VOTE_SPREAD


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
