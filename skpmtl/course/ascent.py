"""Steps of classes and counts: what each of them says of where the next ones would end.

The mean deviation of tasks from a centre a is about B (a* - a), with noise of a known variance v.
The response B is how much rows determine: about one where tasks have many events, and small where
they have few. Moves of the centre are known, so that the change of the next mean tells B, as
secants do; noise that moved the centre tells it as well as a signal does. With a* ~ N(a, p I), the
step that leaves the least expected square (Kalman, J. Basic Eng. 82(1), 1960) is

    g = p E[B] / (p E[B^2] + v)       times the mean deviation, after which       p (1 - g E[B])

is left of p. Steps are as long as their signal allows, and those of noise average out.
"""

import math

import numpy as np

from ..task.priors import bump

_RESPONSE = 2.0 ** np.arange(-8.0, 6.5, 0.5)  # B
_BEFORE = bump(_RESPONSE, -3.0, 1.5)  # about an eighth, by a factor of three
_CURVED = 0.2  # part of B by which it differs from one move to another: tasks are not linear
_KEPT = 0.8  # of what moves before said
_CLEAR = 8.0  # what p does not account for, in root mean squares of noise: once in a hundred fits
_LEAST = 1e-8  # variance of a mean deviation, whose modes are not exact
_APART = 0.5  # of the spread of tasks, where they are clipped at least


class Ascent:
    """Of a part of the centre; p is `variance` at first, and never more."""

    def __init__(self, variance):
        self.variance = self.most = variance
        self.log_weights, self.before = _BEFORE, None
        self.way = self.farthest = 0.0  # since the last look at tasks; longest square of a move

    @property
    def response(self):
        """E[B], E[B^2]"""
        weights = np.exp(self.log_weights - self.log_weights.max())
        return np.stack([_RESPONSE, _RESPONSE**2]) @ weights / weights.sum()

    def bound(self, events, variance, size):
        """Where tasks are clipped that are looked at anew, in the events of a row of them.

        Their deviations have this variance, over `size` numbers.
        """
        self.variance = min(self.variance + _CURVED**2 * np.mean(self.way**2), self.most)
        self.before, self.way = None, 0.0
        apart = _APART * math.sqrt(variance * self.response[0])
        return max(events * variance / math.sqrt(size), apart)

    def move(self, found, noise):
        """How far the centre moves for a mean deviation with noise of this standard deviation."""
        noise = max(noise**2, _LEAST)
        if self.before is not None:
            self._learn(found, noise)
        mean, square = self.response
        excess = np.mean(found**2) - noise
        if excess > _CLEAR * noise * math.sqrt(2.0 / found.size):
            self.variance = min(max(self.variance, excess / square), self.most)
        whole = self.variance * square + noise
        gain = self.variance * mean / whole
        self.variance *= 1.0 - gain * mean
        self.before, self.way = (found, gain, noise, noise / whole), self.way + gain * found
        return gain * found

    def _learn(self, found, noise):
        last, gain, of_last, part = self.before
        size = max(np.sum(last**2), 1e-300)
        moved = gain**2 * size
        self.farthest = max(0.5 * self.farthest, moved)
        # Of the last mean this part is expected to be noise, which is in the move, too.
        told = (1.0 - part - np.sum(found * last) / size) / gain
        doubt = (noise + of_last * (1.0 - part)) / moved
        doubt = doubt + (_CURVED * _RESPONSE) ** 2 * (self.farthest / moved)
        gained = -0.5 * ((told - _RESPONSE) ** 2 / doubt + np.log(doubt))
        self.log_weights = _BEFORE + _KEPT * (self.log_weights - _BEFORE) + gained
