"""What scores mean: canonical generalised linear models, for which slopes are mean(s) - y.

Scores, targets and slopes are arrays (q, n, c): q tasks that take a step together, n rows (those of
shorter tasks are filled up by rows of weight 0), c scores of a row.
"""

import numpy as np
from scipy.special import expit, log_expit, log_softmax, softmax

__all__ = ["OUTPUTS", "Classes", "Numbers", "TwoClasses"]


class Numbers:
    """Real targets; loss 1/2 (y - s)^2."""

    def target(self, y, n_classes):
        return y[:, None].astype(float)

    def mean(self, s):
        return s

    def loss(self, s, y):
        """Loss of every row, (q, n)."""
        return 0.5 * ((s - y) ** 2).sum(axis=-1)

    def divergence_slope(self, s, s0):
        raise ValueError(
            'personalization="symmetrized-kl" compares probabilities of classes: take "mean-reg" '
            "for real targets."
        )


class TwoClasses(Numbers):
    """One score, the log-odds of the second class."""

    def mean(self, s):
        return expit(s)

    def loss(self, s, y):
        return -(y * log_expit(s) + (1.0 - y) * log_expit(-s)).sum(axis=-1)

    def divergence_slope(self, s, s0):
        p, r = expit(s), expit(s0)
        return p * (1.0 - p) * (s - s0) + p - r


class Classes(Numbers):
    """One score for each of three classes or more."""

    def target(self, y, n_classes):
        return np.eye(n_classes)[y.astype(np.int64)]

    def mean(self, s):
        return softmax(s, axis=-1)

    def loss(self, s, y):
        return -(y * log_softmax(s, axis=-1)).sum(axis=-1)

    def divergence_slope(self, s, s0):
        """Slope in s of KL(p || r) + KL(r || p), p and r the probabilities of s and s0."""
        a = log_softmax(s, axis=-1) - log_softmax(s0, axis=-1)
        p, r = softmax(s, axis=-1), softmax(s0, axis=-1)
        return p * (a - (p * a).sum(axis=-1, keepdims=True)) + p - r


def outputs_of(n_classes):
    """The kind of scores of 0 (real targets), 2, or more classes."""
    return {0: Numbers, 2: TwoClasses}.get(n_classes, Classes)()


OUTPUTS = (Numbers, TwoClasses, Classes)
