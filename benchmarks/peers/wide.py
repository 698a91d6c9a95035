"""Exact L2,1 fits of wide tables, compared with the fastest libraries, and with FISTA on rows.

    python -m benchmarks.peers.wide [--repeats N] [--output FILE.csv]

The objective is 1/(2 n_k) of the squares of each task plus alpha times the L2,1 norm, with
intercepts. Who takes part, and how, is in `benchmarks.peers.solvers`.
"""

from dataclasses import replace
from functools import partial

import numpy as np

from ..command import command_line, write_measured
from ..problems import Problem
from .solvers import compared, rows_of, worst

FIELDS = ("problem", "share", "peer", "seconds", "ratio")
SHARES = (0.3, 0.1)  # of the largest strength that is not zero everywhere
_ACTIVE, _NOISE = 10, 0.5


def shared(n, d, m, seed=0):
    """One X for all tasks, (n, d), and targets (n, m)."""
    rng = np.random.default_rng(seed)
    X, W = rng.standard_normal((n, d)), np.zeros((d, m))
    W[rng.choice(d, _ACTIVE, replace=False)] = rng.standard_normal((_ACTIVE, m))
    Y = X @ W
    return X, Y + _NOISE * Y.std() * rng.standard_normal(Y.shape), None


def ragged(m, n, d, seed=0):
    """Rows of m tasks, n each."""
    rng = np.random.default_rng(seed)
    X, task, W = rng.standard_normal((m * n, d)), np.repeat(np.arange(m), n), np.zeros((d, m))
    W[rng.choice(d, _ACTIVE, replace=False)] = rng.standard_normal((_ACTIVE, m))
    y = np.einsum("ij,ij->i", X, W.T[task])
    return X, y + _NOISE * y.std() * rng.standard_normal(len(y)), task


SHAPES = {
    "shared 200 x 5,000, 20 tasks": partial(shared, 200, 5_000, 20),
    "shared 100 x 2,000, 200 tasks": partial(shared, 100, 2_000, 200),
    "10 tasks x 100 x 5,000": partial(ragged, 10, 100, 5_000),
    "20 tasks x 50 x 2,000": partial(ragged, 20, 50, 2_000),
}


def measure(repeats):
    """Rows, the worst first."""
    found = []
    for name, draw in SHAPES.items():
        problem = Problem(name, "l21", "mean", *draw())
        for share in SHARES:
            problem = replace(problem, alpha=share * problem.alpha_max())
            found.append(list(rows_of(FIELDS, problem, compared(problem, repeats), share=share)))
    return [row for rows in sorted(found, key=worst, reverse=True) for row in rows]


def main(arguments=None):
    options = command_line("peers.wide", __doc__, repeats="3").parse_args(arguments)
    return write_measured(measure(options.repeats or 3), FIELDS, options.output)


if __name__ == "__main__":
    main()
