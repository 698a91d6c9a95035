"""The loops under the estimators against library calls and against the memory's speed.

"local solve": for every task the criterion of all scales of a prior, the best scale and the
model there, with given prior; against one LAPACK eigendecomposition per task (of X M X', or of
the d x d matrix) and numpy for the rest, and the model at a known scale against one
`numpy.linalg.solve` per task, with a full M and with M = I, which is ridge regression.
"gradient": the fused pass of the squared loss over the rows
against adding up their numbers once. `ratio` is the time over that of skpmtl in the first
group, and over that of reading the rows in the second. CPU seconds, medians, everything
alternately and on one thread.
"""

import statistics
import time
from dataclasses import replace

import numpy as np

from skpmtl._runtime.jit import njit
from skpmtl.solvers.local import SNR, LocalModels
from skpmtl.solvers.losses import SquaredLoss
from skpmtl.tables.table import TaskTable

from .scale import make_rows

FIELDS = ("commit", "kernel", "peer", "tasks", "rows", "features", "seconds", "ratio")
_SHAPES = ((10_000, 50, 100), (50_000, 20, 50), (200_000, 5, 20))


def _timed(peers, repeats):
    """Median CPU seconds of functions by name, measured in turn after one call each."""
    seconds = {name: [] for name in peers}
    for repeat in range(repeats + 1):
        for name, function in peers.items():
            start = time.process_time()
            function()
            if repeat:
                seconds[name].append(time.process_time() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def eigen_loop(A, y, dual):
    """Evidence and 5-fold error of all scales, and the model at the best; one task."""
    n, d = A.shape
    C, v = A - A.mean(axis=0), y - y.mean()
    level = np.einsum("ij,ij->", C, C) / n
    kappa = SNR / level
    e, U = np.linalg.eigh(C @ C.T if dual else C.T @ C)
    e = np.maximum(e, 0.0)
    shrunk = 1.0 / (1.0 + kappa[:, None] * e)
    Z = U if dual else C @ U
    q = Z.T @ v
    logdet = -np.log(shrunk).sum(axis=1)
    if dual:
        quad, residual = shrunk @ (q * q), (shrunk * q) @ Z.T
    else:
        quad = v @ v - kappa * (shrunk @ (q * q))
        residual = v - kappa[:, None] * ((shrunk * q) @ Z.T)
    error = np.zeros(len(SNR))
    folds = min(n, 5)
    for b in range(folds):
        part = slice(b * n // folds, (b + 1) * n // folds)
        size = part.stop - part.start
        H = np.matmul(Z[part] * shrunk[:, None, :], Z[part].T)
        H = H if dual else np.eye(size) - kappa[:, None, None] * H
        left_out = np.linalg.solve(H - 1.0 / n, residual[:, part, None])[:, :, 0]
        error += np.einsum("si,si->s", left_out, left_out)
    criterion = 0.5 * ((n - 1) * np.log(quad / (n - 1)) + logdet) + 0.5 * n * np.log(error / n)
    criterion += 0.5 * (np.log10(SNR) - 1.5) ** 2
    s = criterion.argmin()
    c = shrunk[s] * q * kappa[s]
    return criterion, C.T @ (U @ c) if dual else U @ c


@njit
def read(X):
    """Sum of the numbers of X."""
    x = X.reshape(X.size)
    total = 0.0
    for i in range(x.shape[0]):
        total += x[i]
    return total


def table(m, n, d):
    X, y, task = make_rows(m, n, d)
    return TaskTable(X, y, np.arange(m + 1) * n, np.arange(m))


def local_peers(rows, count):
    """Functions by name for `count` tasks; libraries take the tasks one by one."""
    m, d = rows.n_tasks, rows.n_features
    root = np.random.default_rng(1).standard_normal((d, d)) / np.sqrt(d)
    ends = rows.offsets
    kappa = np.full(m, 0.1)

    def own():
        # A new table: criteria are kept with the old one.
        local = LocalModels(replace(rows), fit_intercept=True)
        return local.fit(root, lambda found, level: SNR[found.argmin(axis=1)] / level)

    def loop(dual):
        for k in range(count):
            part = slice(ends[k], ends[k + 1])
            eigen_loop(rows.X[part] @ root, rows.y[part], dual)

    local = LocalModels(rows, fit_intercept=True)

    def solve_loop(dual, root):
        for k in range(count):
            part = slice(ends[k], ends[k + 1])
            A, v = rows.X[part], rows.y[part]
            A = A if root is None else A @ root
            A, v = A - A.mean(axis=0), v - v.mean()
            if dual:
                c = A.T @ np.linalg.solve(A @ A.T + np.eye(len(v)) / kappa[k], v)
            else:
                c = np.linalg.solve(A.T @ A + np.eye(d) / kappa[k], A.T @ v)
            c if root is None else root @ c

    def one_scale(root, own_root):
        return {
            "skpmtl": lambda: local.solve(own_root, kappa),
            "solve of n x n": lambda: solve_loop(True, root),
            "solve of d x d": lambda: solve_loop(False, root),
        }

    return {
        "all scales": {
            "skpmtl": own,
            "eigh of n x n": lambda: loop(True),
            "eigh of d x d": lambda: loop(False),
        },
        "one scale": one_scale(root, root),
        "one scale of M = I": one_scale(None, np.ones(d)),
    }


def measure(quick, repeats):
    """Yield rows; one thread must be set by the caller."""
    for m, n, d in ((200, 20, 30),) if quick else _SHAPES:
        shape = {"tasks": m, "rows": n, "features": d}
        count = min(m, 500)  # a library's time for one task does not depend on how many follow
        part = table(count, n, d)
        for name, peers in local_peers(part, count).items():
            seconds = _timed(peers, repeats)
            for peer, value in seconds.items():
                yield {
                    "kernel": f"local solve, {name}",
                    "peer": peer,
                    **shape,
                    "seconds": f"{value * m / count:.4g}",
                    "ratio": f"{value / seconds['skpmtl']:.2f}",
                }
        for peer, value, ratio in gradient(table(m, n, d), repeats):
            yield {
                "kernel": "gradient",
                "peer": peer,
                **shape,
                "seconds": f"{value:.4g}",
                "ratio": f"{ratio:.2f}",
            }


def gradient(rows, repeats):
    """Yield (name, seconds, seconds over those of reading X once)."""
    loss = SquaredLoss(rows, 1.0 / rows.sizes, True, 0.0)
    W = np.zeros(loss.shape)
    peers = {"read": lambda: read(rows.X), "skpmtl": lambda: loss.evaluate(W)}
    seconds = _timed(peers, repeats)
    for name, value in seconds.items():
        yield name, value, value / seconds["read"]
