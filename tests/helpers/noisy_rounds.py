"""What is left of noise after rounds that go on correcting it."""

import math

import numpy as np


def kept_part(moves, centre, noise, chance):
    """What known noise leaves of one centre, and the std of it: the formulas of the docstring."""
    n_rounds, pace, corrected = len(moves), noise / noise.max(), 0.1
    if n_rounds >= 5:
        late = range(int(0.3 * n_rounds), n_rounds)
        at = np.array([moves[:t].sum(axis=0) for t in late])
        way = np.array([moves[t] / pace[t] for t in late])
        at -= at.mean(axis=0)
        corrected = max(-np.vdot(way, at) / np.vdot(at, at) - 4.0 / len(late), 0.1)
    left = 0.0
    for std, p in zip(noise, pace, strict=True):
        left = left * (1.0 - min(corrected * p, 1.0)) ** 2 + std**2
    return max(1.0 - (centre.size * left + chance) / (centre @ centre), 0.0), math.sqrt(left)
