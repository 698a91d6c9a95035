"""Shares of classes: one posterior of all looks at them, and where the next look is cut.

Shares of a class in tasks follow a beta distribution, whose mean is asked for. Answers that are cut
at q have the mean of min(s, q) over it, so that looks with other cuts are measurements of one number.
"""

import math

import numpy as np
from scipy.special import betainc, betaincc, expit

from .levels import present
from .queries import COUNTED, Base

LOGITS = 7.0  # half-width of the window of levels of classes
_SHARES = expit(np.linspace(-LOGITS, LOGITS, 1001))
_LOGITS = np.log(_SHARES) - np.log1p(-_SHARES)
# Variances of shares of tasks over those of single rows, as likely each before any look.
_SPREADS = np.array([0.1, 0.5])
# Later looks are cut at so many times what a rare class may be.
RARE = 2.0
_SHARE_DOUBT = 0.001  # least error of a mean share, as a guess of the level of scores


def _cut(most):
    """Means over tasks of shares that are cut at `most`, over it, by spread and mean share."""
    rows = 1.0 / _SPREADS[:, None] - 1.0
    a, b = rows * _SHARES, rows * (1.0 - _SHARES)
    return _SHARES / most * betainc(a + 1.0, b, most) + betaincc(a, b, most)


def _expected(question, most):
    """Parts of a task in its answer, by class, spread and share; of the class left out all others."""
    parts = np.repeat(_cut(most)[None], question.size, axis=0)
    parts[question.left_out] = parts[question.left_out, :, ::-1]
    return parts


def _noise(question, noise):
    """By class: of the class left out it is that of a sum over all others."""
    found = np.full((question.size, 1), noise)
    found[question.left_out] *= math.sqrt(question.size - 1.0)
    return found


class Shares:
    """What is known of mean shares of classes in a task: before any look, a prior of Jeffreys."""

    def __init__(self, n_classes, n_tasks):
        prior = 0.5 * (np.log(_SHARES) + (n_classes - 1.0) * np.log1p(-_SHARES))
        self.logs = np.tile(prior, (n_classes, len(_SPREADS), 1))
        self.n_present = n_tasks  # tasks with rows, as the first look says, which is not cut

    def look(self, question, found, noise):
        n = present(found[-1] / COUNTED, noise / COUNTED, self.n_present)
        if question.most == 1.0:
            self.n_present = n
        # Tasks of fewer rows have less weight, and are cut at as much more.
        expected = self.n_present * _expected(question, min(question.most * self.n_present / n, 1.0))
        sums = np.insert(found[:-1], question.left_out, found[:-1].sum())[:, None, None]
        spread = np.hypot(_noise(question, noise), _SHARE_DOUBT * self.n_present)[:, None]
        self.logs = self.logs - 0.5 * ((sums - expected) / spread) ** 2

    @property
    def weights(self):
        """Posterior on the grid of shares, (C, K)."""
        weights = np.exp(self.logs - self.logs.max(axis=(1, 2), keepdims=True)).sum(axis=1)
        return weights / weights.sum(axis=1, keepdims=True)

    @property
    def means(self):
        found = self.weights @ _SHARES
        return found / found.sum()

    @property
    def variances(self):
        return _variances(self.weights, _SHARES)

    @property
    def level_noise(self):
        """Mean variance of the log-odds of shares."""
        return float(_variances(self.weights, _LOGITS).mean())

    @property
    def excess(self):
        """What doubt adds to the log-loss, as a part of it."""
        means = self.means
        return 0.5 * np.sum(self.variances / means) / -(means @ np.log(means))

    @property
    def question(self):
        """The next look, without the likeliest class, and cut as low as the others allow."""
        left_out = int(self.means.argmax())
        may_be = np.delete(self.means + np.sqrt(self.variances), left_out).max()
        return Base(len(self.logs), left_out, float(min(RARE * may_be, 1.0)))


def _variances(weights, values):
    means = weights @ values
    return np.sum(weights * (values - means[:, None]) ** 2, axis=1)
