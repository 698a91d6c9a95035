"""Random intercepts alone, without a budget, compared with GPBoost.

    python -m benchmarks.peers.levels [--quick] [--output FILE.csv]

Every task has a level, and slopes are equal. CPU seconds of one thread, from the table (arrays; of
`mixed` a DataFrame) to effects and variances, after a fit of 10,000 tasks, and MB beyond the table;
every fit has a process of its own. GPBoost is left out where it is not installed.
"""

import time
from importlib.util import find_spec

import numpy as np
from threadpoolctl import threadpool_limits

import skpmtl

from ..command import command_line, in_own_process, peak_memory, write_rows

FIELDS = ("problem", "peer", "seconds", "megabytes", "ratio")
SHAPES = ((10_000, 10, 5), (100_000, 10, 5), (1_000_000, 5, 5))


def table(m, n, d, seed=0):
    """Rows X (m n, d), targets and tasks."""
    rng = np.random.default_rng(seed)
    X, task = rng.standard_normal((m * n, d)), np.repeat(np.arange(m), n)
    y = X @ rng.standard_normal(d) + rng.standard_normal(m)[task] + rng.standard_normal(m * n)
    return X, y, task


def _frame(X, y, task):
    import pandas as pd

    return pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])]).assign(y=y, task=task)


def _mixed(frame):
    names = " + ".join(frame.columns[:-2])
    skpmtl.mixed(f"y ~ {names} + (1 | task)", frame, epsilon=None)


def _gpboost(table):
    import gpboost

    X, y, task = table
    model = gpboost.GPModel(group_data=task, likelihood="gaussian", num_parallel_threads=1)
    model.fit(y=y, X=np.c_[np.ones(len(X)), X])
    model.predict_training_data_random_effects()


def _loop(table):
    X, y, task = table
    skpmtl.PrivateMTL(epsilon=None).fit(X, y, task=task)


def _arrays(*table):
    return table


# What a table is to a peer, and its fit.
PEERS = {
    "mixed": (_frame, _mixed),
    "PrivateMTL": (_arrays, _loop),
    "gpboost": (_arrays, _gpboost),
}


def measure_one(peer, m, n, d):
    """-> CPU seconds and MB of one fit"""
    skpmtl.set_num_threads(1)
    form, fit = PEERS[peer]
    rows, few = table(m, n, d), 10_000 * n
    fit(form(*(part[:few] for part in rows)))  # compiles and imports
    rows = form(*rows)
    before = peak_memory()
    start = time.process_time()
    with threadpool_limits(1):
        fit(rows)
    spent = time.process_time() - start
    return spent, peak_memory() - before


def measure(shapes=SHAPES):
    """Yield rows; `ratio` is that of the seconds to those of GPBoost."""
    peers = [peer for peer in PEERS if peer != "gpboost" or find_spec(peer)]
    for m, n, d in shapes:
        found = {peer: in_own_process(measure_one, peer, m, n, d) for peer in peers}
        best = found.get("gpboost", [np.nan])[0]
        for peer, (seconds, more) in found.items():
            name = f"{m:,} tasks x {n} x {d}"
            row = (name, peer, f"{seconds:.3f}", f"{more:.0f}", f"{seconds / best:.2f}")
            yield dict(zip(FIELDS, row, strict=True))


def main(arguments=None):
    parser = command_line("peers.levels", __doc__, quick="the smallest table")
    options = parser.parse_args(arguments)
    return write_rows(measure(SHAPES[: 1 if options.quick else None]), FIELDS, options.output)


if __name__ == "__main__":
    main()
