"""Exact fits of tables whose shapes are drawn at random, compared with the fastest libraries.

    python -m benchmarks.peers.random_shapes [--draws N] [--seed S] [--output FILE.csv]

A draw has 50 to 2,000 rows per task (of one X in half of the draws), 10 to 20,000 columns and 2 to
200 tasks, each evenly in its logarithm, of at most 200 MB in all; in half of the draws neighbouring
columns have a correlation of .95. The strength is .05 to .5 of the largest. Who takes part, and
how, is in `benchmarks.peers.solvers`; the largest `ratio` comes first.
"""

from dataclasses import replace

import numpy as np

from ..command import command_line, write_measured
from ..problems import Problem
from .solvers import compared, rows_of, worst

FIELDS = ("problem", "penalty", "share", "peer", "seconds", "ratio", "reached", "commit")
_NUMBERS = 25_000_000  # of a table
_NEIGHBOURS = 0.95
_NOISE = 0.5
_RANGES = (50, 2_000), (10, 20_000), (2, 200)


def draw(rng):
    """-> name, penalty, share of the largest strength, X, y, task"""
    while True:
        n, d, m = (int(np.exp(rng.uniform(*np.log(ends)))) for ends in _RANGES)
        penalty = ("l21", "trace")[rng.integers(2)]
        ragged = penalty == "trace" or rng.random() < 0.5
        if n * d * (m if ragged else 1) <= _NUMBERS:
            break
    correlated = rng.random() < 0.5
    share = float(np.exp(rng.uniform(*np.log((0.05, 0.5)))))
    X = rng.standard_normal((m * n if ragged else n, d))
    if correlated:
        for j in range(1, d):
            X[:, j] = _NEIGHBOURS * X[:, j - 1] + np.sqrt(1 - _NEIGHBOURS**2) * X[:, j]
    if penalty == "trace":
        W = rng.standard_normal((m, 3)) @ rng.standard_normal((3, d))
    else:
        W = np.zeros((m, d))
        active = rng.choice(d, min(10, d), replace=False)
        W[:, active] = rng.standard_normal((m, len(active)))
    if ragged:
        y = np.matmul(X.reshape(m, n, d), W[:, :, None]).ravel()
    else:
        y = X @ W.T
    y = y / y.std() + _NOISE * rng.standard_normal(y.shape)
    name = f"{m} tasks x {n:,} x {d:,}" if ragged else f"shared {n:,} x {d:,}, {m} tasks"
    task = np.repeat(np.arange(m), n) if ragged else None
    return name + ", correlated" * correlated, penalty, share, X, y, task


def measure(draws, seed):
    """Rows of all draws, those with the largest ratio first."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(draws):
        name, penalty, share, *table = draw(rng)
        problem = Problem(name, penalty, "mean", *table)
        problem = replace(problem, alpha=share * problem.alpha_max())
        rows = list(rows_of(FIELDS, problem, compared(problem), share=f"{share:.2f}"))
        print(*(tuple(row.values()) for row in rows), sep="\n", flush=True)
        found.append(rows)
    found.sort(key=lambda rows: -worst(rows))
    return [row for rows in found for row in rows]


def main(arguments=None):
    parser = command_line("peers.random_shapes", __doc__)
    parser.add_argument("--draws", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    rows = measure(options.draws, options.seed)
    return write_measured(rows, FIELDS, options.output)


if __name__ == "__main__":
    main()
