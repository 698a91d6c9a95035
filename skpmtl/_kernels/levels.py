"""Levels of classes and counts: what one number more in all scores of a task makes of its rows."""

from .._runtime.jit import njit

FAR = 100.0  # logarithms of mean counts, at most


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
