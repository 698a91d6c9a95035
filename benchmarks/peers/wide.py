"""Exact L2,1 fits of wide tables, compared with the fastest libraries for them.

    python -m benchmarks.peers.wide [--repeats N] [--output FILE.csv]

The same objective for all: 1/(2 n_k) of the squares of each task plus alpha times the L2,1 norm,
with intercepts. Every solver has one thread, and the loosest tolerance of its own that brings its
objective within 1e-6 of the optimum; "skpmtl, certified" is our default tolerance. CPU seconds are
the least of some repeats. Peers (scikit-learn, skglm, celer, adelie) are left out where they are
not installed or do not run; tasks of different rows are groups of a block-diagonal table to them,
and FISTA takes part there.
"""

import time
from functools import partial
from importlib import import_module

import numpy as np
from scipy import sparse

from ..command import command_line, write_measured
from ..problems import Problem
from .exact import RowFista, at_shares, fista_at, loosest, shared_lasso_fit

FIELDS = ("problem", "share", "peer", "seconds", "ratio")
SHARES = (0.3, 0.1)  # of the largest strength that is not zero everywhere
_ACTIVE, _NOISE = 10, 0.5
_PATIENCE = 10  # times our seconds, beyond which a peer is not made more accurate


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


def block_diagonal(problem):
    """Centred rows of all tasks as one table, a group of columns for every feature.

    -> csc_matrix (N, d m), targets (N,), means of every task
    """
    tasks = problem.tasks()
    d, N = tasks[0][0].shape[1], sum(len(y) for _, y in tasks)
    means = [(X.mean(axis=0), y.mean()) for X, y in tasks]
    roots = [np.sqrt(N / len(y)) for _, y in tasks]  # 1/(2 N) becomes 1/(2 n_k)
    parts = [(X - x) * s for (X, _), (x, _), s in zip(tasks, means, roots, strict=True)]
    y = np.concatenate([(y - c) * s for (_, y), (_, c), s in zip(tasks, means, roots, strict=True)])
    sizes = [len(part) for part in parts]
    ends = np.concatenate([[0], np.cumsum(np.tile(sizes, d))]).astype(np.int32)
    values = np.concatenate([part.T for part in parts], axis=1).ravel()
    rows = np.tile(np.arange(N, dtype=np.int32), d)
    return sparse.csc_matrix((values, rows, ends), shape=(N, d * len(tasks))), y, means


def of_groups(w, means):
    coef = np.ascontiguousarray(np.reshape(w, (-1, len(means))).T)
    return coef, np.array([y - c @ x for c, (x, y) in zip(coef, means, strict=True)])


def group_lasso(kind, problem, tol):
    """GroupLasso of celer or skglm."""
    D, y, means = block_diagonal(problem)
    weights = np.ones(D.shape[1] // len(means))
    est = kind(
        groups=len(means), alpha=problem.alpha, fit_intercept=False, tol=tol, weights=weights
    )
    return of_groups(est.fit(D, y).coef_, means)


def adelie(problem, tol):
    import adelie as ad

    settings = {"intercept": False, "tol": tol, "early_exit": False}
    settings |= {"progress_bar": False, "n_threads": 1}
    if problem.task is None:
        X, Y = problem.X, problem.y
        x, y = X.mean(axis=0), Y.mean(axis=0)
        d, m = X.shape[1], Y.shape[1]
        path = ad.grpnet(
            np.asfortranarray(X - x),
            ad.glm.multigaussian(Y - y),
            penalty=np.ones(d),
            lmda_path=[problem.alpha / m],
            **settings,
        )
        coef = np.ascontiguousarray(np.asarray(path.betas[-1].todense()).reshape(d, m).T)
        return coef, y - coef @ x
    D, y, means = block_diagonal(problem)
    groups = np.arange(0, D.shape[1], len(means))
    path = ad.grpnet(
        ad.matrix.sparse(D, method="naive", n_threads=1),
        ad.glm.gaussian(y),
        groups=groups,
        penalty=np.ones(len(groups)),
        lmda_path=[problem.alpha],
        **settings,
    )
    return of_groups(np.asarray(path.betas[-1].todense()).ravel(), means)


def peers(problem):
    """Yield (name, a call of ``tol``) of those that are installed."""
    name = "MultiTaskLasso" if problem.task is None else "GroupLasso"
    fit = shared_lasso_fit if problem.task is None else group_lasso
    libraries = ["skglm", "celer"]
    if problem.task is None:
        libraries.insert(0, "sklearn.linear_model")
    for library in libraries:
        try:
            kind = getattr(import_module(library), name)
        except ImportError:
            continue
        yield library.split(".")[0], partial(fit, kind, problem)
    try:
        import_module("adelie")
    except ImportError:
        return
    yield "adelie", partial(adelie, problem)


def cpu_seconds(fit, repeats):
    found = []
    for _ in range(repeats):
        start = time.process_time()
        fit()
        found.append(time.process_time() - start)
    return min(found)


def measure(repeats):
    """Rows, the worst first; `ratio` is ours over that of the peer."""
    found = list(_measure(repeats))
    return [row for rows in sorted(found, key=worst, reverse=True) for row in rows]


def worst(rows):
    """Largest of our times over those of peers."""
    return max((float(row["ratio"]) for row in rows if "skpmtl" not in row["peer"]), default=0.0)


def _measure(repeats):
    for name, draw in SHAPES.items():
        X, y, task = draw()
        whole = Problem(name, "l21", "mean", X, y, task)
        for share, problem, optimum, fits in at_shares(whole, SHARES):
            if task is not None:
                fits["fista"] = fista_at(problem, optimum, RowFista)
            found = {peer: cpu_seconds(fit, repeats) for peer, fit in fits.items()}
            for peer, fit in peers(problem):
                try:
                    fit(1.0)  # compiles
                    call = loosest(problem, optimum, fit, _PATIENCE * found["skpmtl"])
                except Exception as error:  # releases that do not go together
                    print(f"{peer}: {type(error).__name__}")
                    continue
                if call is not None:
                    found[peer] = cpu_seconds(call, repeats)
            rows = [
                (name, share, peer, f"{seconds:.4f}", f"{found['skpmtl'] / seconds:.2f}")
                for peer, seconds in found.items()
            ]
            yield [dict(zip(FIELDS, row, strict=True)) for row in rows]


def main(arguments=None):
    options = command_line("peers.wide", __doc__, repeats="3").parse_args(arguments)
    return write_measured(measure(options.repeats or 3), FIELDS, options.output)


if __name__ == "__main__":
    main()
