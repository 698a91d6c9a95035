"""What the scores of a head mean: attributes, or categories of a row or of every pixel.

Scores are (n, K, L, ...), of n rows, K tasks and L scores of a task; targets have NaN where they
are missing. The loss of a batch is the sum over tasks of the mean over the known targets.
"""

import numpy as np
from scipy.special import expit, log_softmax

__all__ = ["Attributes", "Categories", "mean_iou", "outputs_of"]


class Attributes:
    """L attributes of a task, each there or not: logistic losses. Targets (n, K, L)."""

    def __init__(self, n_scores):
        self.n_scores = n_scores

    def slope(self, s, Y):
        """Loss of a batch, and its slope in the scores."""
        known = ~np.isnan(Y)
        count = np.maximum(known.sum(axis=(0, 2)), 1)[:, None]
        y = np.where(known, Y, 0.0)
        loss = np.where(known, np.logaddexp(0.0, s) - y * s, 0.0) / count
        return float(loss.sum()), np.where(known, expit(s) - y, 0.0) / count

    def decide(self, s):
        return (s > 0).astype(float)


class Categories:
    """One of L categories, of a row (targets (n, K)) or of its pixels (n, K, height, width)."""

    def __init__(self, n_scores):
        self.n_scores = n_scores

    def slope(self, s, Y):
        known = ~np.isnan(Y)
        axes = (0, *range(2, Y.ndim))
        weight = known / np.maximum(known.sum(axis=axes, keepdims=True), 1)
        of = np.where(known, Y, 0).astype(np.int64)
        hit = np.moveaxis(np.eye(self.n_scores)[of], -1, 2)
        log_p = log_softmax(s, axis=2)
        loss = -float((weight * (hit * log_p).sum(axis=2)).sum())
        return loss, (np.exp(log_p) - hit) * np.expand_dims(weight, 2)

    def decide(self, s):
        return s.argmax(axis=2).astype(float)


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
