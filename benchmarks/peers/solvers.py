"""Solvers of the exact objectives, each with the least effort that brings it to the optimum.

Ours, scikit-learn, skglm, celer and adelie where they are installed and run, and FISTA in numpy.
All get the same arrays, and are timed from these to coefficients within 1e-6 (relative) of the
optimum: libraries at the loosest of their own tolerances that reaches it, FISTA with exactly the
iterations that it needs and no test of convergence. "skpmtl, certified" is our estimator at its
default `tol`, which computes a duality gap. Tasks with rows of their own are groups of columns of a
block-diagonal table to libraries. A peer whose fit takes ten times ours without being accurate
enough is not made more accurate, and its time is a lower bound (`reached` "no"). Seconds are CPU
time of the process, the least of some fits; with one thread, wall time on an idle machine.
"""

import time
from functools import partial
from importlib import import_module

import numpy as np
from scipy import sparse

from skpmtl import MPMTLGroupSparse, MPMTLLowRank

ACCURACY = 1e-6
_PATIENCE = 10  # times ours
_LONG = 5.0  # seconds of a fit that is not repeated
_DUAL = 4.0  # columns of a task by its rows, from which FISTA is faster on rows


ESTIMATORS = {"trace": MPMTLLowRank, "l21": MPMTLGroupSparse}


def settings(problem):
    """Parameters of our estimators and of `mtl_path` for the formula of a problem."""
    weight = "equal" if problem.formula == "mean" else "samples"
    return {"fit_intercept": problem.fit_intercept, "task_weight": weight}


def skpmtl_fit(problem, tol=1e-6):
    """Our estimator; 1e-6 is its default."""
    estimator = ESTIMATORS[problem.penalty](
        problem.alpha, epsilon=None, tol=tol, **settings(problem)
    ).fit(problem.X, problem.y, task=problem.task)
    return estimator.coef_, estimator.intercept_


# ------------------------------------------------------------------------- FISTA in numpy
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


# ------------------------------------------------------------------------------ libraries
def shared_lasso(kind, problem, tol):
    """MultiTaskLasso of scikit-learn, skglm or celer, for one X that all tasks share."""
    estimator = kind(problem.alpha, fit_intercept=problem.fit_intercept, tol=tol, max_iter=100_000)
    estimator.fit(problem.X, problem.y)
    return estimator.coef_, estimator.intercept_


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


def libraries(problem):
    """Yield (name, a call of ``tol``) of those that can fit a problem and are installed."""
    if problem.penalty != "l21" or problem.formula != "mean":
        return
    name = "MultiTaskLasso" if problem.task is None else "GroupLasso"
    fit = shared_lasso if problem.task is None else group_lasso
    found = ["skglm", "celer"]
    if problem.task is None:
        found.insert(0, "sklearn.linear_model")
    for library in found:
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


# --------------------------------------------------------------------------------- effort
def cpu_seconds(fit, repeats=2):
    """The least of some times, of one where it is long."""
    found = []
    while len(found) < repeats and not (found and found[0] > _LONG):
        start = time.process_time()
        fit()
        found.append(time.process_time() - start)
    return min(found)


def loosest(problem, optimum, fit_at, limit=np.inf):
    """The call of ``fit_at(tol)`` with the loosest `tol` that is accurate enough, and True.

    A call that takes `limit` CPU seconds is returned though it is not accurate enough, with False.
    """
    for tol in 10.0 ** -np.arange(1, 12, 0.5):
        start, call = time.process_time(), partial(fit_at, tol)
        solution = call()
        late = time.process_time() - start > limit
        if problem.objective(*solution) <= optimum * (1 + ACCURACY):
            return call, True
        if late:
            break
    return call, False


def _is_wide(problem):
    n = len(problem.X) / (1 if problem.task is None else len(np.unique(problem.task)))
    return problem.formula == "mean" and problem.X.shape[1] > _DUAL * n


def fista_at(problem, optimum, limit=np.inf):
    """The same of FISTA, with the iterations that it needs."""
    kind = RowFista if problem.task is not None and _is_wide(problem) else Fista
    start, fista, late = time.process_time(), kind(problem).prepare(), False

    def stop(W):
        nonlocal late
        late = time.process_time() - start > 3 * limit  # objectives take time as well
        return late or fista.value(W) <= optimum * (1 + ACCURACY)

    needed = fista.run(100_000, stop)[1]

    def fit():
        fresh = kind(problem).prepare()
        return fresh.solution(fresh.run(needed)[0])

    return fit, not late


def compared(problem, repeats=2, optimum=None):
    """Seconds of all who can fit a problem. -> {name: (seconds, whether it is accurate enough)}"""
    fit = partial(skpmtl_fit, problem)
    optimum = problem.objective(*fit(1e-10)) if optimum is None else optimum
    ours, _ = loosest(problem, optimum, fit)
    found = {"skpmtl": (cpu_seconds(ours, repeats), True)}
    found["skpmtl, certified"] = cpu_seconds(fit, repeats), True
    limit = _PATIENCE * found["skpmtl"][0]
    for name, peer in libraries(problem):
        try:
            peer(1.0)  # compiles
            call, reached = loosest(problem, optimum, peer, limit)
            found[name] = cpu_seconds(call, repeats), reached
        except Exception as error:  # releases that do not go together
            print(f"{name}: {type(error).__name__}")
    if problem.task is not None or not _is_wide(problem):
        call, reached = fista_at(problem, optimum, limit)
        found["fista"] = cpu_seconds(call, repeats), reached
    return found


def rows_of(fields, problem, found, reverse=False, **more):
    """Rows of a CSV file, of what `compared` found.

    `ratio` is our time over that of the peer, or, if `reverse`, that of the peer over ours.
    """
    own = found["skpmtl"][0]
    for name, (seconds, reached) in found.items():
        row = {"problem": problem.name, "penalty": problem.penalty, "peer": name, **more}
        ratio = seconds / own if reverse else own / seconds
        row |= {"seconds": f"{seconds:.5f}", "ratio": f"{ratio:.2f}"}
        row["reached"] = "yes" if reached else "no"
        yield {field: row[field] for field in fields if field in row}


def worst(rows):
    """The largest of our times over those of peers."""
    return max((float(row["ratio"]) for row in rows if "skpmtl" not in row["peer"]), default=0.0)
