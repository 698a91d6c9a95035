"""Exact fits of tables whose shapes are drawn at random, compared with the fastest libraries.

    python -m benchmarks.peers.random_shapes [--draws N] [--seed S] [--output FILE.csv]

A draw has 50 to 2,000 rows per task (of one X in half of the draws), 10 to 20,000 columns and 2 to
200 tasks, each evenly in its logarithm, of at most 200 MB in all; in half of the draws neighbouring
columns have a correlation of .95. The strength is .05 to .5 of the largest. L2,1 is compared with
scikit-learn, skglm, celer and adelie, as in `benchmarks.peers.wide`, and with FISTA; the trace norm
with FISTA, on Gram matrices or on rows, whichever is faster. `ratio` is our CPU time, at the
loosest tolerance that brings the objective within 1e-6 of the optimum, over that of a peer, and the
largest comes first. The search for the tolerance of a peer ends where a fit that is not accurate
enough takes ten times ours; its time then stands with ``reached`` "no", and the ratio is an upper
bound.
"""

import time
from dataclasses import replace
from functools import partial

import numpy as np

from ..command import command_line, write_measured
from ..problems import Problem
from .exact import ACCURACY, Fista, RowFista, loosest, skpmtl_fit
from .wide import peers, worst

FIELDS = ("problem", "penalty", "share", "peer", "seconds", "ratio", "reached")
_NUMBERS = 25_000_000  # of a table
_PATIENCE = 10  # times ours
_NEIGHBOURS = 0.95
_NOISE = 0.5
_DUAL = 4.0  # columns of a task by its rows, from which FISTA is faster on rows


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


_RANGES = (50, 2_000), (10, 20_000), (2, 200)


def seconds_of(fit):
    """The less of two times; the first where it is long."""
    start = time.process_time()
    fit()
    first = time.process_time() - start
    if first > 5:
        return first
    start = time.process_time()
    fit()
    return min(first, time.process_time() - start)


def peer_seconds(problem, optimum, fit_at, limit):
    """-> seconds of the loosest tolerance that is accurate enough, whether there is one"""
    for tol in 10.0 ** -np.arange(1, 12, 0.5):
        start = time.process_time()
        solution = fit_at(tol)
        spent = time.process_time() - start
        if problem.objective(*solution) <= optimum * (1 + ACCURACY):
            return min(spent, seconds_of(partial(fit_at, tol))), True
        if spent > limit:
            break
    return spent, False


def fista_seconds(kind, problem, optimum, limit):
    """The same of FISTA, with the iterations that it needs and no test of convergence."""
    start = time.process_time()
    fista, late = kind(problem).prepare(), False

    def stop(W):
        nonlocal late
        late = time.process_time() - start > 3 * limit  # objectives take time as well
        return late or fista.value(W) <= optimum * (1 + ACCURACY)

    _, needed = fista.run(100_000, stop)

    def fit():
        fresh = kind(problem).prepare()
        return fresh.solution(fresh.run(needed)[0])

    return seconds_of(fit), not late


def compared(name, penalty, share, X, y, task):
    """Rows of one draw."""
    problem = Problem(name, penalty, "mean", X, y, task)
    problem = replace(problem, alpha=share * problem.alpha_max())
    ours = partial(skpmtl_fit, problem)
    optimum = problem.objective(*ours(1e-9))
    own = seconds_of(loosest(problem, optimum, ours))
    found = {"skpmtl": (own, True), "skpmtl, certified": (seconds_of(ours), True)}
    limit = _PATIENCE * own
    for peer, fit_at in peers(problem) if penalty == "l21" else ():
        try:
            found[peer] = peer_seconds(problem, optimum, fit_at, limit)
        except Exception as error:  # releases that do not go together
            print(f"{peer}: {type(error).__name__}")
    wide = X.shape[1] > _DUAL * len(X) / (1 if task is None else len(np.unique(task)))
    if task is not None or not wide:
        found["fista"] = fista_seconds(RowFista if wide else Fista, problem, optimum, limit)
    for peer, (seconds, reached) in found.items():
        row = (name, penalty, f"{share:.2f}", peer, f"{seconds:.4f}", f"{own / seconds:.2f}")
        yield dict(zip(FIELDS, (*row, "yes" if reached else "no"), strict=True))


def measure(draws, seed):
    """Rows of all draws, those with the largest ratio first."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(draws):
        rows = list(compared(*draw(rng)))
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
    return write_measured(rows, (*FIELDS, "commit"), options.output)


if __name__ == "__main__":
    main()
