"""Exact trace-norm fits of wide tables, compared with FISTA on their rows.

    python -m benchmarks.peers.wide_trace [--repeats N] [--output FILE.csv]

The objective is 1/(2 n_k) of the squares of each task plus alpha times the trace norm, with
intercepts. No library has it; FISTA is that of `benchmarks.peers.solvers`. `ratio` is its time over
ours.
"""

from dataclasses import replace

import numpy as np

from ..command import command_line, write_measured
from ..problems import Problem
from .solvers import compared

FIELDS = ("problem", "share", "peer", "seconds", "ratio", "commit")
SHARES = (0.3, 0.1, 0.02)  # of the largest strength that is not zero everywhere
SHAPES = ((10, 50, 2_000), (3, 330, 6_000), (5, 100, 5_000), (20, 50, 2_000), (20, 50, 10_000))
_NOISE = 0.5


def low_rank(m, n, d, seed=0):
    """Rows of m tasks, n each, with models of rank 3."""
    rng = np.random.default_rng(seed)
    X, task = rng.standard_normal((m * n, d)), np.repeat(np.arange(m), n)
    W = rng.standard_normal((m, 3)) @ rng.standard_normal((3, d))
    y = np.matmul(X.reshape(m, n, d), W[:, :, None]).ravel()
    return X, y / y.std() + _NOISE * rng.standard_normal(len(y)), task


def measure(repeats, shapes=SHAPES):
    """Rows, the smallest ratio first."""
    rows = list(_measure(repeats, shapes))
    threes = [rows[i : i + 3] for i in range(0, len(rows), 3)]
    return [row for three in sorted(threes, key=lambda t: float(t[0]["ratio"])) for row in three]


def _measure(repeats, shapes):
    for m, n, d in shapes:
        problem = Problem(f"{m} tasks x {n} x {d:,}", "trace", "mean", *low_rank(m, n, d))
        for share in SHARES:
            problem = replace(problem, alpha=share * problem.alpha_max())
            found = compared(problem, repeats)
            for peer, (seconds, _) in found.items():
                ratio = f"{found['fista'][0] / seconds:.1f}"
                row = (problem.name, share, peer, f"{seconds:.4f}", ratio)
                yield dict(zip(FIELDS, row, strict=False))


def main(arguments=None):
    options = command_line("peers.wide_trace", __doc__, repeats="2").parse_args(arguments)
    return write_measured(measure(options.repeats or 2), FIELDS, options.output)


if __name__ == "__main__":
    main()
