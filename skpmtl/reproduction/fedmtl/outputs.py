"""What the scores of a head mean: attributes, or categories of a row or of every pixel.

Scores are (n, K, L, ...), of n rows, K tasks and L scores of a task; targets have NaN where they
are missing. The loss of a batch is the sum over tasks of the mean over the known targets.
"""

import numpy as np
from scipy.special import expit, log_softmax, softmax

__all__ = ["Attributes", "Categories", "mean_iou", "outputs_of"]


class Attributes:
    """L attributes of a task, each there or not: logistic losses. Targets (n, K, L)."""

    def __init__(self, n_scores):
        self.n_scores = n_scores

    def loss(self, s, Y):
        """Loss of a batch."""
        each = np.logaddexp(0.0, s) - _filled(Y) * s
        return float((_weights(Y) * each).sum())

    def slope(self, s, Y):
        """Its slope in the scores."""
        return _weights(Y) * (expit(s) - _filled(Y))

    def decide(self, s):
        """Targets that scores predict."""
        return (s > 0).astype(float)


class Categories:
    """One of L categories, of a row (targets (n, K)) or of its pixels (n, K, height, width)."""

    def __init__(self, n_scores):
        self.n_scores = n_scores

    def _hits(self, Y):
        return np.moveaxis(np.eye(self.n_scores)[_filled(Y).astype(np.int64)], -1, 2)

    def loss(self, s, Y):
        return -float((_weights(Y) * (self._hits(Y) * log_softmax(s, axis=2)).sum(axis=2)).sum())

    def slope(self, s, Y):
        return (softmax(s, axis=2) - self._hits(Y)) * np.expand_dims(_weights(Y), 2)

    def decide(self, s):
        return s.argmax(axis=2).astype(float)


def _filled(Y):
    return np.where(Y == Y, Y, 0.0)


def _weights(Y):
    """1 over the number of known targets of a task, 0 where a target is missing."""
    known = Y == Y
    return known / np.maximum(known.sum(axis=(0, *range(2, Y.ndim)), keepdims=True), 1)


def outputs_of(Y):
    """`Attributes` for targets (n, K, L), else `Categories`."""
    if Y.ndim == 3:
        return Attributes(Y.shape[2])
    return Categories(int(np.nanmax(Y)) + 1)


def mean_iou(Y, predicted):
    """Mean over the categories of intersection over union, of known targets.

    A category that is neither in the targets nor predicted is left out.
    """
    known = ~np.isnan(Y) & ~np.isnan(predicted)
    y, found = Y[known], predicted[known]
    ratios = []
    for category in np.union1d(y, found):
        a, b = y == category, found == category
        ratios.append((a & b).sum() / (a | b).sum())
    return float(np.mean(ratios))
