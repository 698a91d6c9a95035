"""Exact fits against a batched-Gram FISTA in numpy, MultiTaskLasso and skglm.

Every solver gets the same arrays and is timed for the whole way from them to coefficients
that are within 1e-6 (relative) of the optimum. All run with exactly the effort that this
accuracy needs, found beforehand: FISTA without any test of convergence, the others at the
loosest `tol` of a fine grid. "skpmtl certified" is our estimator as users run it, at its
default `tol`, which pays for a duality gap of 1e-6 and so errs by far less. Seconds are CPU
time of the process, which other load on the machine disturbs least; with one thread they
are wall time on an idle machine. Megabytes are the peak of what numpy allocates in one fit.

skglm takes part where it is installed.
"""

import statistics
import time
import tracemalloc
from dataclasses import replace
from functools import partial

import numpy as np
from sklearn.linear_model import MultiTaskLasso

from skpmtl import MPMTLGroupSparse, MPMTLLowRank

from ..command import run_problems
from ..problems import instances

FIELDS = ("commit", "peer", "problem", "penalty", "accuracy", "seconds", "ratio", "megabytes")
ACCURACY = 1e-6


class Fista:
    """Accelerated proximal gradient on the Gram matrices of all tasks, in numpy.

    Step 1/L with L the largest eigenvalue of any task's Gram matrix; momentum restarts
    when it points against the last step (O'Donoghue and Candes, 2015, gradient scheme).
    """

    def __init__(self, problem):
        self.problem = problem

    def prepare(self):
        """Gram matrices G (m, d, d), or (d, d) where all tasks share X, and X'y (m, d)."""
        p = self.problem
        wide = p.task is None
        if wide:
            X, Y = p.X[None], p.y.T[:, :, None]
        else:
            sizes = np.bincount(p.task)
            if np.ptp(sizes) == 0:
                X = p.X.reshape(len(sizes), sizes[0], -1)
                Y = p.y.reshape(len(sizes), sizes[0], 1)
            else:
                return self._prepare_unequal()
        if p.fit_intercept:
            self.means = X.mean(axis=1), Y.mean(axis=1)[:, 0]
            X, Y = X - self.means[0][:, None], Y - self.means[1][:, None, None]
        weight = 1 / X.shape[1] if p.formula == "mean" else 1.0
        self.gram = weight * np.matmul(X.transpose(0, 2, 1), X)
        if wide:
            self.gram = self.gram[0]
            self.moment = weight * (Y[:, :, 0] @ X[0])
        else:
            self.moment = weight * np.matmul(X.transpose(0, 2, 1), Y)[:, :, 0]
        self.square = weight * np.vdot(Y, Y)
        self.lipschitz = np.linalg.eigvalsh(self.gram)[..., -1].max()
        return self

    def _prepare_unequal(self):
        p = self.problem
        gram, moment, means, self.square = [], [], [], 0.0
        for X, y in p.tasks():
            if p.fit_intercept:
                means.append((X.mean(axis=0), y.mean()))
                X, y = X - means[-1][0], y - means[-1][1]
            weight = 1 / len(y) if p.formula == "mean" else 1.0
            gram.append(weight * (X.T @ X))
            moment.append(weight * (X.T @ y))
            self.square += weight * (y @ y)
        self.gram, self.moment = np.array(gram), np.array(moment)
        if p.fit_intercept:
            self.means = tuple(np.array(part) for part in zip(*means, strict=True))
        self.lipschitz = np.linalg.eigvalsh(self.gram)[:, -1].max()
        return self

    def product(self, W):
        if self.gram.ndim == 2:
            return W @ self.gram
        return np.matmul(self.gram, W[:, :, None])[:, :, 0]

    def prox(self, V, threshold):
        if self.problem.penalty == "l21":
            norms = np.sqrt(np.einsum("kj,kj->j", V, V))
            return V * np.maximum(0, 1 - threshold / np.maximum(norms, 1e-300))
        small = V.T @ V if V.shape[0] >= V.shape[1] else V @ V.T
        values, U = np.linalg.eigh(small)
        keep = values > threshold**2
        U, shrink = U[:, keep], 1 - threshold / np.sqrt(values[keep])
        if V.shape[0] >= V.shape[1]:
            return (V @ U * shrink) @ U.T
        return U * shrink @ (U.T @ V)

    def run(self, iterations, stop=None):
        """Iterate from zero. `stop(W)`, for the search only, ends the run when true."""
        step = 1 / self.lipschitz
        W = np.zeros_like(self.moment)
        V, t, done = W, 1.0, 0
        while done < iterations:
            done += 1
            new = self.prox(V - step * (self.product(V) - self.moment), step * self.problem.alpha)
            change = new - W
            if np.vdot(V - new, change) > 0:
                t = 1.0
            t_next = (1 + np.sqrt(1 + 4 * t * t)) / 2
            V = new + (t - 1) / t_next * change
            W, t = new, t_next
            if stop is not None and stop(W):
                break
        return W, done

    def value(self, W):
        """Objective with the best intercepts, from the Gram matrices."""
        loss = 0.5 * np.vdot(W, self.product(W)) - np.vdot(self.moment, W) + 0.5 * self.square
        if self.problem.penalty == "l21":
            return loss + self.problem.alpha * np.linalg.norm(W, axis=0).sum()
        return loss + self.problem.alpha * np.linalg.svd(W, compute_uv=False).sum()

    def solution(self, W):
        if not self.problem.fit_intercept:
            return W, np.zeros(len(W))
        return W, self.means[1] - np.einsum("kj,kj->k", W, np.broadcast_to(self.means[0], W.shape))


class RowFista(Fista):
    """`Fista` without matrices of the features, for tasks of equal numbers of rows."""

    def prepare(self):
        p = self.problem
        m = p.task[-1] + 1
        n = len(p.y) // m
        X, y = p.X.reshape(m, n, -1), p.y.reshape(m, n)
        self.means = X.mean(axis=1), y.mean(axis=1)
        self.rows = (X - self.means[0][:, None]) / np.sqrt(n)
        y = (y - self.means[1][:, None]) / np.sqrt(n)
        self.moment, self.square = self._combine(y), np.vdot(y, y)
        squares = np.matmul(self.rows, self.rows.transpose(0, 2, 1))
        self.lipschitz = np.linalg.eigvalsh(squares)[:, -1].max()
        return self

    def _combine(self, r):
        return np.matmul(r[:, None], self.rows)[:, 0]

    def product(self, W):
        return self._combine(np.matmul(self.rows, W[:, :, None])[:, :, 0])


def fista_at(problem, optimum, kind=Fista):
    """A callable that fits to the accuracy wanted with no test of convergence."""
    fista = kind(problem).prepare()
    _, needed = fista.run(100_000, lambda W: fista.value(W) <= optimum * (1 + ACCURACY))

    def fit():
        fresh = kind(problem).prepare()
        return fresh.solution(fresh.run(needed)[0])

    return fit


def loosest(problem, optimum, fit_at, limit=np.inf):
    """The call of ``fit_at(tol)`` with the loosest `tol` that is accurate enough, or None.

    A call that takes `limit` CPU seconds is returned though it is not, as a bound from below.
    """
    for tol in 10.0 ** -np.arange(1, 12, 0.5):
        start = time.process_time()
        solution = fit_at(tol)
        late = time.process_time() - start > limit
        if late or problem.objective(*solution) <= optimum * (1 + ACCURACY):
            return partial(fit_at, tol)
    return None


def skpmtl_fit(problem, tol=1e-6):
    """Our estimator; 1e-6 is its default."""
    estimator = {"trace": MPMTLLowRank, "l21": MPMTLGroupSparse}[problem.penalty](
        problem.alpha,
        epsilon=None,
        tol=tol,
        fit_intercept=problem.fit_intercept,
        task_weight="equal" if problem.formula == "mean" else "samples",
    ).fit(problem.X, problem.y, task=problem.task)
    return estimator.coef_, estimator.intercept_


def at_shares(problem, shares):
    """-> share of the largest strength, the problem there, its optimum, calls of our fits"""
    for share in shares:
        there = replace(problem, alpha=share * problem.alpha_max())
        optimum = there.objective(*skpmtl_fit(there, 1e-10))
        fit = partial(skpmtl_fit, there)
        yield (
            share,
            there,
            optimum,
            {
                "skpmtl": loosest(there, optimum, fit),
                "skpmtl, certified": fit,
            },
        )


def shared_lasso_fit(kind, problem, tol):
    """MultiTaskLasso of scikit-learn or skglm, for one X that all tasks share."""
    estimator = kind(problem.alpha, fit_intercept=problem.fit_intercept, tol=tol, max_iter=100_000)
    estimator.fit(problem.X, problem.y)
    return estimator.coef_, estimator.intercept_


def peers(problem):
    """Name -> ``fit_at(tol)`` of the solvers that can fit the problem and are installed."""
    found = {}
    if problem.penalty == "l21" and problem.formula == "mean" and problem.task is None:
        found["MultiTaskLasso"] = partial(shared_lasso_fit, MultiTaskLasso, problem)
        try:
            from skglm import MultiTaskLasso as SkglmLasso
        except ImportError:
            pass
        else:
            found["skglm"] = partial(shared_lasso_fit, SkglmLasso, problem)
    return found


def peak_megabytes(fit):
    """Of one call; what compiled code allocates inside itself is not seen."""
    tracemalloc.start()
    fit()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


def measure(quick, repeats, only=""):
    """Rows of the CSV file, as dicts without the commit; `only`: how names of problems begin."""
    for problem, optimum in instances(quick):
        if not problem.name.startswith(only):
            continue
        if optimum is None:
            # 1e4 times more accurate than what is compared.
            optimum = problem.objective(*skpmtl_fit(problem, 1e-10))
        fits = {
            "skpmtl": loosest(problem, optimum, partial(skpmtl_fit, problem)),
            "skpmtl certified": partial(skpmtl_fit, problem),
            "fista": fista_at(problem, optimum),
        }
        for peer, fit_at in peers(problem).items():
            fit = loosest(problem, optimum, fit_at)
            if fit is not None:
                fits[peer] = fit
        yield from compare(problem, optimum, fits, repeats)


def compare(problem, optimum, fits, repeats):
    """All fits alternately. -> rows"""
    accuracy = {
        peer: problem.objective(*fit()) / optimum - 1 for peer, fit in fits.items()
    }  # this first fit also compiles, and warms the caches
    seconds = {peer: [] for peer in fits}
    for _ in range(repeats):
        for peer, fit in fits.items():
            start = time.process_time()
            fit()
            seconds[peer].append(time.process_time() - start)
    median = {peer: statistics.median(times) for peer, times in seconds.items()}
    for peer, fit in fits.items():
        yield {
            "peer": peer,
            "problem": problem.name,
            "penalty": problem.penalty,
            "accuracy": f"{accuracy[peer]:.1e}",
            "seconds": f"{median[peer]:.5f}",
            "ratio": f"{median[peer] / median['skpmtl']:.2f}",
            "megabytes": f"{peak_megabytes(fit):.3f}",
        }


def main(arguments=None):
    return run_problems("peers.exact", __doc__, FIELDS, measure, arguments)


if __name__ == "__main__":
    main()
