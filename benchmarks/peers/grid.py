"""Exact fits on shapes that nobody chose, against FISTA on batched Gram matrices.

Problems are drawn: 20, 60 or 200 tasks, 20 to 400 rows and features, columns that are independent
or correlated with scales over two decades, a penalty of .01 to .5 of the largest useful one, trace
norm or L2,1. Both solvers go from the arrays to coefficients with a duality gap of 1e-6, which
FISTA looks at every ten iterations; seconds are CPU time of one thread. The ratio is FISTA's time
over ours, the better of two fits. What counts is the whole distribution, and the worst of it.
"""

import time
from dataclasses import replace

import numpy as np

from ..problems import Problem
from .exact import Fista, skpmtl_fit

FIELDS = ("commit", "problem", "penalty", "seconds", "fista", "ratio", "gap")
GAP = 1e-6
_LARGEST = 8_000_000  # numbers of all Gram matrices


def draw(rng, quick=False):
    """-> Problem"""
    high = 40 if quick else 400
    while True:
        m = int(rng.choice([20, 60, 200][: 1 if quick else 3]))
        n, d = (int(np.exp(rng.uniform(np.log(20), np.log(high)))) for _ in range(2))
        if m * d * d <= _LARGEST:
            break
    correlated, penalty = bool(rng.integers(2)), str(rng.choice(["trace", "l21"]))
    share = float(np.exp(rng.uniform(np.log(0.01), np.log(0.5))))
    X = rng.standard_normal((m * n, d))
    if correlated:
        for j in range(1, d):
            X[:, j] = 0.95 * X[:, j - 1] + np.sqrt(1 - 0.95**2) * X[:, j]
        X *= np.geomspace(1, 0.03, d)[rng.permutation(d)]
    task = np.repeat(np.arange(m), n)
    if penalty == "trace":
        W = rng.standard_normal((m, 5)) @ rng.standard_normal((5, d))
    else:
        W = rng.standard_normal((m, d)) * (rng.permutation(d) < max(d // 10, 3))
    score = np.einsum("ij,ij->i", X, (W / X.std(axis=0))[task])
    y = score / score.std() + rng.standard_normal(m * n)
    name = f"{m} x {n} x {d}, {'correlated, ' if correlated else ''}alpha {share:.3f}"
    problem = Problem(name, penalty, "mean", X, y, task)
    return replace(problem, alpha=share * problem.alpha_max())


def gap_of(fista, W):
    """-> relative duality gap at W, from the Gram matrices."""
    p, residual = fista.problem, fista.moment - fista.product(W)
    trace = p.penalty == "trace"
    top = np.linalg.norm(residual, 2) if trace else np.linalg.norm(residual, axis=0).max()
    fitted = np.vdot(W, fista.moment)
    a, q = fista.square - fitted, fista.square - 2 * fitted + np.vdot(W, fista.product(W))
    theta = a / q
    if top * abs(theta) > p.alpha:
        theta = np.sign(theta) * p.alpha / top
    value = fista.value(W)
    return (value - theta * a + 0.5 * theta**2 * q) / value


def fista_fit(problem):
    """-> coefficients, at a duality gap of `GAP`"""
    fista, count = Fista(problem).prepare(), iter(range(1, 1 << 30))
    return fista.run(1 << 20, lambda W: not next(count) % 10 and gap_of(fista, W) <= GAP)[0]


def measure(quick, repeats):
    """Rows of the CSV file, as dicts without the commit; `repeats` times twenty problems."""
    rng = np.random.default_rng(0)
    for _ in range(2 if quick else 20 * repeats):
        problem, seconds = draw(rng, quick), {skpmtl_fit: [], fista_fit: []}
        for fit in (skpmtl_fit, fista_fit, skpmtl_fit):
            if fit is skpmtl_fit and not seconds[fit]:
                fit(problem)  # compiles, and warms the caches
            start = time.process_time()
            found = fit(problem)
            seconds[fit].append(time.process_time() - start)
        ours, theirs = (min(times) for times in seconds.values())
        yield {
            "problem": problem.name,
            "penalty": problem.penalty,
            "seconds": f"{ours:.5f}",
            "fista": f"{theirs:.5f}",
            "ratio": f"{theirs / ours:.2f}",
            "gap": f"{gap_of(Fista(problem).prepare(), found[0]):.1e}",
        }
