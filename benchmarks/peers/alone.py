"""Fits that no other library has: wide sparse tables, and the start of many wide tasks.

    python -m benchmarks.peers.alone [--repeats N] [--output FILE.csv]

CPU seconds, one thread, the least of some repeats after a first fit.
"""

import numpy as np
from scipy import sparse

import skpmtl

from ..asv.speed.tables import largest_alpha
from ..command import command_line, write_measured
from .solvers import cpu_seconds

FIELDS = ("problem", "estimator", "seconds", "commit")


def sparse_rows(m=20, n=200, d=4_000, seed=0):
    """Rows of m tasks, one entry in a hundred, with models of rank 3 on one column in twenty."""
    rng, task = np.random.default_rng(seed), np.repeat(np.arange(m), n)
    X = sparse.random(m * n, d, density=0.01, random_state=seed, format="csr")
    W = rng.standard_normal((m, 3)) @ (rng.standard_normal((3, d)) * (rng.random(d) < 0.05))
    y = np.asarray(X.multiply(W[task]).sum(axis=1)).ravel()
    return X, y / y.std() + 0.3 * rng.standard_normal(len(y)), task


def wide_tasks(m=2_000, n=10, d=200, seed=0):
    """Few rows of many tasks whose models are the same."""
    rng, task = np.random.default_rng(seed), np.repeat(np.arange(m), n)
    X = rng.uniform(-1, 1, (m * n, d))
    return X, X @ (0.1 * rng.standard_normal(d)) + 0.1 * rng.standard_normal(m * n), task


def fits():
    """Yield (problem, name, call)."""
    data = sparse_rows()
    for kind, order in ((skpmtl.MPMTLGroupSparse, "l21"), (skpmtl.MPMTLLowRank, "trace")):
        top = largest_alpha(*data, order)
        for share in (0.3, 0.1, 0.02):
            estimator = kind(alpha=share * top, epsilon=None)
            yield "20 tasks x 200 x 4,000, sparse", f"{kind.__name__}, {share:g}", (estimator, data)
    public = {"feature_range": (-1, 1), "target_range": (-3, 3), "random_state": 0}
    for epsilon in (None, 1.0):
        start = skpmtl.DPMetaInit(epsilon=epsilon, tasks=range(2_000), **public)
        yield "2,000 tasks x 10 x 200", f"DPMetaInit(epsilon={epsilon})", (start, wide_tasks())


def measure(repeats):
    for problem, name, (estimator, (X, y, task)) in fits():
        found = cpu_seconds(lambda e=estimator, t=task, X=X, y=y: e.fit(X, y, task=t), repeats + 1)
        yield dict(zip(FIELDS, (problem, name, f"{found:.3f}"), strict=False))


def main(arguments=None):
    options = command_line("peers.alone", __doc__, repeats="3").parse_args(arguments)
    return write_measured(measure(options.repeats or 3), FIELDS, options.output)


if __name__ == "__main__":
    main()
