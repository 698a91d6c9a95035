"""Levels of classes and counts: what one number more in all scores of a task makes of its rows."""

import numpy as np

from .._runtime.jit import njit
from .losses import POISSON, poisson_loss

FAR = 100.0  # logarithms of mean counts, at most


@njit
def level_posteriors(
    score, y, weights, offsets, centre, spread, nodes, size, level, evidence, kind
):
    """Posterior of the level of every task, logistic loss or counts (`kind`).

    The scores of the rows of task k are score + l, with the prior l ~ N(centre[k], spread^2).
    Newton steps lead to the mode, around which the posterior is taken at `nodes` (q,), in units of
    its width there, that count `size` (q,) each. level[k] receives the mean, and evidence[k] the
    logarithm of the integral of likelihood times prior; at one node 0 of size sqrt(2 pi) that are
    mode and Laplace's approximation. `y` is that of `skpmtl._kernels.losses`, from -1 to 1.
    """
    precision = 1.0 / (spread * spread)
    logs = np.empty(nodes.shape[0])
    for k in range(offsets.shape[0] - 1):
        lo, hi, m = offsets[k], offsets[k + 1], centre[k]
        at, bend = m, precision
        for _ in range(50):
            slope, bend = precision * (m - at), precision
            for i in range(lo, hi if kind == POISSON else lo):
                mean = np.exp(min(score[i] + at, FAR))
                slope += weights[i] * (y[i] - mean)
                bend += weights[i] * mean
            for i in range(lo, hi if kind != POISSON else lo):
                side, z = 1.0 if y[i] > 0 else -1.0, score[i] + at
                share = 0.5 * (1.0 - abs(y[i]))
                e = np.exp(-abs(z))
                p = (1.0 if side * z < 0 else e) / (1.0 + e)  # of the other class
                slope += weights[i] * side * (p - share)
                bend += weights[i] * e / ((1.0 + e) * (1.0 + e))
            step = min(max(slope / bend, -4.0), 4.0)
            at += step
            if abs(step) * bend**0.5 < 1e-6:
                break
        width, top = bend**-0.5, -np.inf
        for q in range(nodes.shape[0]):
            place = at + width * nodes[q]
            found = -0.5 * precision * (place - m) * (place - m) - np.log(spread)
            for i in range(lo, hi if kind == POISSON else lo):
                z = min(score[i] + place, FAR)
                found -= weights[i] * poisson_loss(y[i], np.exp(z), z)
            for i in range(lo, hi if kind != POISSON else lo):
                side, z = 1.0 if y[i] > 0 else -1.0, score[i] + place
                share = 0.5 * (1.0 - abs(y[i]))
                t = side * z
                found -= weights[i] * (np.log1p(np.exp(-abs(t))) - min(t, 0.0) + share * t)
            logs[q] = found
            top = max(top, found)
        mass, mean = 0.0, 0.0
        for q in range(nodes.shape[0]):
            part = size[q] * np.exp(logs[q] - top)
            mass += part
            mean += part * nodes[q]
        level[k] = at + width * mean / mass
        evidence[k] = top + np.log(mass * width) - 0.5 * np.log(2.0 * np.pi)


@njit
def medians(values, weights, order, offsets, out):
    """out[k] = weighted median of the values of task k: the middle of all that halve the weights.

    `order` has the rows of every task by their values.
    """
    for k in range(out.shape[0]):
        lo, hi = offsets[k], offsets[k + 1]
        mass, below, first, last = 0.0, 0.0, -1, -1
        for i in range(lo, hi):
            mass += weights[i]
        for i in range(lo, hi):
            below += weights[order[i]]
            if first < 0 and below >= mass * (0.5 - 1e-9):
                first = order[i]
            if last < 0 and below >= mass * (0.5 + 1e-9):
                last = order[i]
        out[k] = 0.5 * (values[first] + values[last])
