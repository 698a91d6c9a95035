"""How long the models of most tasks are: a noisy histogram, read by public rules.

Clipping norms have the unit of y over that of X, which nobody knows before the fit. Every task
says in which of 81 public bins the length of its own model is: bin j holds lengths whose binary
logarithm rounds to j, from -40 to 40. One task fills one bin, so that the counts have L2
sensitivity 1 when its contribution is left out, and sqrt(2) when it is replaced.
"""

import math

import numpy as np

from .._kernels.clip import clip_rows
from ..privacy.mechanisms import VectorGaussian

BINS = np.arange(-40, 41)
_MOST = 2 / 3  # part of the tasks that it must hold: others have units of their own
_CLEAR = 4.0  # standard errors that a peak of three bins must have


def histogram(adjacency, mu):
    """Mechanism of the counts.

    Parameters
    ----------
    adjacency : {"replace-one", "zero-out"}
    mu : float

    Returns
    -------
    mechanism : VectorGaussian

    Notes
    -----
    What a task sends is non-negative and of L2 norm 1 at most (`sum_of_bins`). Two such vectors
    u, v have ||u - v||^2 = ||u||^2 + ||v||^2 - 2 u'v <= 2.
    """
    return VectorGaussian(len(BINS), 1.0 if adjacency == "zero-out" else math.sqrt(2.0), mu)


def bins(lengths):
    """One-hot rows (n, 81) for the lengths of the tasks' models, (n,)."""
    with np.errstate(all="ignore"):
        level = np.rint(np.log2(np.maximum(lengths, 2.0 ** BINS[0])))
    return (np.clip(level, BINS[0], BINS[-1])[:, None] == BINS).astype(float)


def sum_of_bins(contributions, positions):
    """``combine`` of the histogram; what anybody sent is bounded here, too.

    A task that is silent (NaN) adds nothing.
    """
    sent = np.nan_to_num(np.asarray(contributions["bins"], dtype=float), nan=0.0)
    sent = np.clip(sent, 0.0, 1.0)
    clip_rows(sent, 1.0, 2, sent)
    return {"bins": sent.sum(axis=0)}


def common_length(counts, noise_std, n_tasks):
    """Length of the models of most tasks, from noisy counts; None where they have none in common.

    Parameters
    ----------
    counts : ndarray (81,)
    noise_std : float
        Of one of them.
    n_tasks : int

    Returns
    -------
    length : float or None
        Of the three neighbouring bins with the largest sum, the mean weighted by their counts;
        None where this sum is less than two thirds of the tasks or `_CLEAR` standard errors.
    """
    padded = np.concatenate([[0.0], counts, [0.0]])
    sums = padded[:-2] + padded[1:-1] + padded[2:]
    at = int(np.argmax(sums))
    if sums[at] < max(_CLEAR * math.sqrt(3.0) * noise_std, _MOST * n_tasks):
        return None
    near = slice(max(at - 1, 0), at + 2)
    weight = np.maximum(counts[near], 0.0)
    return float(2.0 ** (weight @ BINS[near] / weight.sum()))
