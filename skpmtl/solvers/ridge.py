"""Models of tasks that minimise their own loss and a squared distance to a centre.

Every task k for itself minimises

    sum_i u_i f(y_i, x_i' w + b) + s_k / 2 ||w - a_k||^2 + h_k / 2 b^2

by Newton's method: squared loss in one step by the inverse of the smaller one of X X' + s I and
X' X + s I, other losses in coordinates of at most as many numbers as the task has rows. The softmax
loss of C classes has the Hessian diag(p) - p p' in the scores of a row, which is at most twice the
diagonal matrix of p_c (1 - p_c) (p_b / (1 - p_a) are the entries of a stochastic matrix), and at
least that where scores of all classes do not move together: with 1.5 times the diagonal classes
are solved one by one, and a step leaves a third of the distance, or less.

Tasks of equal numbers of rows are one stack of matrices for LAPACK, which sees one matrix at a
time: a model does not depend on which other tasks there are.
"""

from dataclasses import replace

import numpy as np

from .._runtime.threads import run_blocks, single_blas_thread
from ..tables.datafits import LOGISTIC, POISSON, levels_of, with_events
from ..tables.table import common_scores

_BLOCK = 1 << 18  # numbers of rows and matrices that a thread works on at a time
_STEPS, _HALVINGS = 200, 40
_FLOOR = 1e-12  # least curvature, over the mean one
_ALL_CLASSES = 1.5  # see above
_LEAST = 1e-6  # curvature of a row


def equal_tasks(table, width):
    """Tasks of equal numbers of rows, few enough. -> [(tasks, places of their rows), ...]

    `width`: numbers of a row that are held at once. Places are those of the table, (tasks, rows).
    """
    order = np.argsort(table.sizes, kind="stable")
    ends = np.flatnonzero(np.diff(table.sizes[order], append=-1)) + 1
    found, first = [], 0
    for end in ends:
        n = int(table.sizes[order[first]])
        step = max(_BLOCK // (n * max(width, 1)), 1)
        for start in range(first, end, step):
            tasks = np.sort(order[start : min(start + step, end)])
            found.append((tasks, table.offsets[tasks][:, None] + np.arange(n)))
        first = end
    return found


def rows_at(table, places):
    """Features of the rows at places (tasks, n), dense and of float64, (tasks, n, d)."""
    rows = places if table.rows is None else table.rows[places]
    if table.is_sparse:
        return table.X[rows.ravel()].toarray().reshape(*rows.shape, -1)
    return table.X[rows].astype(np.float64)


def in_basis(table, B):
    """The table whose features are X B, for B (d, r); dense."""
    X, step = np.empty((table.X.shape[0], B.shape[1])), max(_BLOCK // len(B), 1)
    for first in range(0, len(X), step):
        X[first : first + step] = table.X[first : first + step] @ B
    return replace(table, X=X)


class RidgeModels:
    """Models of the tasks of a table around centres; what does not depend on these is kept.

    Parameters
    ----------
    table : TaskTable
        Of C models for each task: one for each of more than two classes, otherwise one.
    strength : ndarray (n_tasks,)
        s_k, positive; those below rounding of the curvature of the loss are raised to it.
    fit_intercept : bool
    held : ndarray (n_tasks,), default=None
        h_k of log-losses; None: 0.
    """

    def __init__(self, table, strength, *, fit_intercept, held=None):
        self.n_outputs = table.n_classes if table.n_classes > 2 else 1
        self.table = with_events(table) if table.loss == "poisson" else table
        self.strength, self.fit_intercept = np.asarray(strength, dtype=float), fit_intercept
        self.held = np.zeros(table.n_tasks) if held is None else held
        self.datafit = POISSON if table.loss == "poisson" else LOGISTIC  # of one score
        d = table.n_features
        self._mean = np.zeros((table.n_tasks, d))
        self._blocks = equal_tasks(table, max(d, int(table.sizes.max(initial=1))))
        self._known = [None] * len(self._blocks)

    def around(self, centres=None, tol=1e-8):
        """Models around `centres` (n_tasks, C, d); None: around 0.

        Steps of log-losses end where none moves a score by more than `tol`; they begin where those
        of the last call ended. -> W (n_tasks, C, d), b (n_tasks, C)
        """
        table, shape = self.table, (self.table.n_tasks, self.n_outputs, self.table.n_features)
        scores = np.zeros((table.n_rows, self.n_outputs))
        if centres is not None:
            scores = scores + common_scores(table, centres)
        levels = np.zeros(shape[:2])
        if not table.has_log_loss:
            solve, y = self._squared, table.y - scores[:, 0]
        else:
            solve, y = self._log_loss, table.y
            scores = scores if table.base is None else scores + table.base
            if table.loss == "poisson" and self.fit_intercept:
                levels[:, 0] = levels_of(replace(table, base=None), scores[:, 0])
        W, b = np.zeros(shape), np.zeros(shape[:2])

        def block(number, tasks, places):
            with np.errstate(all="ignore"):  # rows that overflow give a model that is not finite
                W[tasks], b[tasks] = solve(number, tasks, places, y, scores, levels, tol)

        with single_blas_thread():
            run_blocks(block, [(number, *of) for number, of in enumerate(self._blocks)])
        if self.fit_intercept:
            b -= np.einsum("kcj,kj->kc", W, self._mean)
        return W if centres is None else W + centres, b

    def _rows(self, tasks, places):
        """Rows of tasks less their means, and how much each counts. -> (t, n, d), (t, n)"""
        X, weights = rows_at(self.table, places), self.table.weights
        u = np.ones(places.shape) if weights is None else weights[places]
        if self.fit_intercept:
            mean = (u[:, None] @ X)[:, 0] / u.sum(axis=1)[:, None]
            mean[self.held[tasks] > 0] = 0.0  # there the level at the mean row is not free
            self._mean[tasks] = mean
            X -= mean[:, None]
        return X, u

    def _squared(self, number, tasks, places, y, scores, levels, tol):
        X, u = self._rows(tasks, places)
        n, d = X.shape[1:]
        root, r = np.sqrt(u), y[places]
        level = np.zeros(len(tasks))
        if self.fit_intercept:
            level = np.einsum("kn,kn->k", u, r) / u.sum(axis=1)
        r = (root * (r - level[:, None]))[..., None]
        X *= root[..., None]
        inverse = self._known[number]
        if inverse is None:
            G = X @ X.transpose(0, 2, 1) if n <= d else X.transpose(0, 2, 1) @ X
            inverse = self._known[number] = np.linalg.inv(_raised(G, self.strength[tasks, None]))
        if n <= d:
            D = (inverse @ r).transpose(0, 2, 1) @ X
        else:
            D = (inverse @ (X.transpose(0, 2, 1) @ r)).transpose(0, 2, 1)
        return D, level[:, None]

    def _log_loss(self, number, tasks, places, y, scores, levels, tol):
        X, u = self._rows(tasks, places)
        n, d = X.shape[1:]
        A, back, theta = self._known[number] or (None, None, None)
        if n > d:
            A = X
        elif A is None:
            A, back = _coordinates(X)
        r = A.shape[2]
        if theta is None:
            theta = np.zeros((len(tasks), self.n_outputs, r + self.fit_intercept))
            theta[..., r:] = levels[tasks, :, None]
        pull = np.repeat(self.strength[tasks, None], theta.shape[2], axis=1)
        if self.fit_intercept:
            pull[:, r] = self.held[tasks]
            rows = np.concatenate([A, np.ones((*A.shape[:2], 1))], axis=2)
        else:
            rows = A
        loss = Multinomial() if self.n_outputs > 1 else OfOne(self.datafit)
        _newton(loss, rows, y[places], u, scores[places], pull, theta, tol)
        self._known[number] = (A, back, theta) if n <= d else (None, None, theta)
        D = theta[..., :r] if back is None else theta[..., :r] @ back @ X
        return D, theta[..., r] if self.fit_intercept else np.zeros(theta.shape[:2])


def _raised(G, shift):
    """G_k + shift_k I, whose condition rounding bears; in place."""
    diagonal = np.arange(G.shape[1])
    trace = G[:, diagonal, diagonal].sum(axis=1, keepdims=True)
    G[:, diagonal, diagonal] += np.maximum(shift, _FLOOR * trace + 1e-300)
    return G


def _coordinates(X):
    """A, B with X = A (B X), as many columns as rows, where the rows of B X have length 1."""
    K = X @ X.transpose(0, 2, 1)
    good = np.isfinite(K).all(axis=(1, 2))
    values, U = np.linalg.eigh(np.where(good[:, None, None], K, 0.0))
    some = values > 1e-15 * values[:, -1:] * K.shape[1]
    root = np.sqrt(np.where(some, values, 0.0))
    root[~good] = np.nan
    U = U * some[:, None]
    return U * root[:, None], (U / np.where(some, root, 1.0)[:, None]).transpose(0, 2, 1)


class OfOne:
    """A loss of one score for each row."""

    def __init__(self, datafit):
        self.datafit = datafit

    def values(self, y, score):
        return self.datafit.value(y, score[..., 0])

    def slopes(self, y, score):
        """First derivatives, and curvatures of steps, (..., 1)."""
        weight, step = self.datafit.working(y, score[..., 0])
        return (-weight * step)[..., None], weight[..., None]

    def exact(self, y, score):
        """First and second derivatives, (..., 1)."""
        return (part[..., None] for part in self.datafit.derivatives(y, score[..., 0]))


class Multinomial:
    """The loss of the scores of all classes; y has the numbers of the classes."""

    def values(self, y, score):
        top = score.max(axis=-1)
        own = np.take_along_axis(score, y[..., None].astype(np.int64), axis=-1)[..., 0]
        return np.log(np.exp(score - top[..., None]).sum(axis=-1)) - (own - top)

    def slopes(self, y, score):
        slope, p = self.exact(y, score)
        return slope, np.maximum(_ALL_CLASSES * p * (1.0 - p), _LEAST)

    def exact(self, y, score):
        """First derivatives, and probabilities."""
        p = np.exp(score - score.max(axis=-1, keepdims=True))
        p /= p.sum(axis=-1, keepdims=True)
        return p - (y[..., None] == np.arange(p.shape[-1])), p


def _newton(loss, rows, y, u, base, pull, theta, tol):
    """Move theta (t, C, q) to the minimum of sum u f(rows theta + base) + pull theta^2 / 2.

    Steps are halved where the objective of a task would rise, and end by task.
    """
    active = np.arange(len(theta))

    def objective(score, at):
        values = np.einsum("kn,kn->k", u, loss.values(y, score))
        return values + 0.5 * np.einsum("kcq,kq->k", at * at, pull)

    score = base + rows @ theta.transpose(0, 2, 1)
    at = theta.copy()
    value = objective(score, at)
    for _ in range(_STEPS):
        slope, curvature = loss.slopes(y, score)
        gradient = (u[..., None] * slope).transpose(0, 2, 1) @ rows + pull[:, None] * at
        step = np.empty_like(at)
        for c in range(at.shape[1]):
            H = rows.transpose(0, 2, 1) @ ((u * curvature[..., c])[..., None] * rows)
            step[:, c] = -np.linalg.solve(_raised(H, pull), gradient[:, c, :, None])[..., 0]
        if at.shape[1] > 1:
            step -= step.mean(axis=1, keepdims=True)
        moved = np.abs(rows @ step.transpose(0, 2, 1)).max(axis=(1, 2))
        # Intercepts of tasks of one class have no minimum, and end where nothing is gained.
        gain = -np.einsum("kcq,kcq->k", gradient, step)
        moved[gain <= 1e-16 * (1.0 + np.abs(value))] = 0.0
        size = np.ones(len(at))
        for _ in range(_HALVINGS):
            there = at + size[:, None, None] * step
            new = base + rows @ there.transpose(0, 2, 1)
            found = objective(new, there)
            rises = ~(found <= value + 1e-12 * (1.0 + np.abs(value)))
            if not rises.any():
                break
            size[rises] *= 0.5
        at, score, value = there, new, found
        theta[active] = at
        on = moved > tol
        if not on.any():
            return
        if not on.all():
            active = active[on]
            rows, y, u, base, pull = rows[on], y[on], u[on], base[on], pull[on]
            at, score, value = at[on], score[on], value[on]
