"""Tasks of equal size, which numpy and compiled loops see as one array."""

import numpy as np

_AT_ONCE = 1 << 20  # numbers of the rows of tasks of one size that numpy sees as one stack


def groups_of_equal(sizes, width):
    """Stacks of tasks of equal size, of rows of this width. -> (size, tasks) of sizes above 0"""
    order = np.argsort(sizes, kind="stable")
    ends = np.flatnonzero(np.diff(sizes[order], append=-1)) + 1
    first = 0
    for end in ends:
        size = int(sizes[order[first]])
        if size > 0:
            step = max(_AT_ONCE // (size * max(width, size)), 1)
            for begin in range(first, end, step):
                yield size, order[begin : min(begin + step, end)]
        first = end
