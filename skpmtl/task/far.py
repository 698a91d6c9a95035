"""Rows of a task with far more noise than the others.

The noise of a row has the spread s sigma, where s is 1, or with probability p, for all alike, one
of `NOISIER`. With probabilities q_is of what s may be for row i, by the distance r_i of the row
from the centre of all tasks, the rows of a task have the evidence

    log p(y) >= log p(y | u) + sum_is q_is (log p_s - log q_is - log s),    u_i = sum_s q_is / s^2,

where rows count u_i times (Jensen's inequality, as in Neal and Hinton, "A view of the EM algorithm
that justifies incremental, sparse, and other variants", 1998). It is that of a second part of the
mixture that a task takes by its own evidence, beside that of rows which are all alike, so that a
row far from all others may be noise, level or slopes. A task of which no row is likely to be far
has no such part.
"""

import numpy as np

from .posterior import TaskRows
from .priors import NEVER

NOISIER = 4.0 ** np.arange(1, 6)
_FEW = 3  # rows, from which on their median is the level
_LEAST = 1e-3  # probability of a far row in a task that is worth a second part


def chances(r, of_row, variance, share):
    """q (N, 1 + len(NOISIER)), the first of which is of s = 1, and log p_s.

    For distances r (N,) that have the variance `of_row` s^2 + `variance` (N,).
    """
    before = np.log(np.append(1.0 - share, np.full(len(NOISIER), share / len(NOISIER))))
    spread = of_row * np.append(1.0, NOISIER**2) + variance[:, None]
    logs = before - 0.5 * (np.log(spread) + r[:, None] ** 2 / spread)
    q = np.exp(logs - logs.max(axis=1, keepdims=True))
    return q / q.sum(axis=1, keepdims=True), before


def about_medians(r, offsets, counts, n):
    """Distances less the median of their task, where there are enough rows."""
    codes = np.repeat(np.arange(len(n)), np.diff(offsets))
    order = np.lexsort((r, codes))
    below = np.cumsum(counts[order])
    below -= np.append(0.0, below)[offsets[:-1]][codes]
    before = np.bincount(codes, below < 0.5 * n[codes], minlength=len(n)).astype(int)
    some = n >= _FEW
    middle = np.zeros(len(n))
    middle[some] = r[order[(offsets[:-1] + before)[some]]]
    return r - middle[codes], some


def far_rows(X, y, offsets, counts, q, before):
    """The part of tasks with far rows. -> `TaskRows`, log of its weight (m,)"""
    sizes, m = np.diff(offsets), len(offsets) - 1
    codes = np.repeat(np.arange(m), sizes)
    log_s = np.log(np.append(1.0, NOISIER))

    def sums(values):
        return np.bincount(codes, counts * values, minlength=m)

    every = np.exp(sums(np.log(np.maximum(q[:, 0], 1e-300))))  # no row is far
    there = every < 1.0 - _LEAST
    u = counts * (q @ np.exp(-2.0 * log_s))
    known = there[codes]
    ends = np.append(0, np.cumsum(sizes * there))
    rows = TaskRows.of(X[known], y[known], ends, u[known])
    bound = sums(np.sum(q * (before - np.log(np.maximum(q, 1e-300)) - log_s), axis=1))
    n = sums(np.ones(len(y)))
    rows.dof[there] = n[there] - 1.0
    log_weight = np.full(m, NEVER)
    # The mean of n rows is a row of the posterior with density root(n) times its own.
    half = 0.5 * np.log(rows.n[there] / n[there])
    log_weight[there] = bound[there] - half + np.log1p(-every[there])
    return rows, log_weight
