"""Fine-tuning of an initialisation on the rows of each task; nothing here leaves a task.

"prox" solves, for the sum of the losses of the n_k rows of task k,

    min over (w, b)  sum_i loss_i + 1 / (2 kappa_k) ||(w, b) - init||^2

with the strength chosen by the task itself: kappa_k maximises the evidence of its rows under
the prior (w, b) ~ N(init, kappa s^2 I), times a weak public prior of kappa (s^2 is the noise
variance of squared loss, which is profiled out, and 1 otherwise). For the other losses the
evidence is that of the quadratic approximation at the initialisation.
"""

import numpy as np

from ._kernels.finetune import descend, evidence, rotate
from ._kernels.records import inner_steps, record_norms
from ._kernels.rows import curvatures, residuals
from .empirical_bayes import best_scale
from .local import SNR
from .losses import grams
from .rounds import row_blocks
from .threads import single_blas_thread

BOUND = (1.0, 0.25, 0.5)  # of the second derivative: squared, logistic, multinomial loss
# Public prior on log10 of kappa times the mean squared length of a row (prior variance of a
# score in units of the noise): centre by kind of loss, and spread.
_CENTRE, _SPREAD = (-0.75, -0.75, -0.75), 0.5
_MAX_STEPS, _TOL = 1000, 1e-9
_NO_INDEX, _NO_MARKS = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.uint8)
_NO_NOISE = np.empty((0, 0, 0, 0))


class FineTuner:
    """Models of the tasks of a table around an initialisation.

    Parameters
    ----------
    table : TaskTable
        Dense rows.
    kind : {0, 1, 2}
        Squared, logistic or multinomial loss.
    init : ndarray (n_outputs, n_features + fit_intercept)
        The intercept comes last.
    fit_intercept : bool
    doubt : float, default=0.0
        Public estimate of the squared error of a score of the initialisation in units of the
        noise: the more, the less tasks hold on to it.
    """

    def __init__(self, table, kind, init, fit_intercept, doubt=0.0):
        self.table, self.kind, self.init = table, kind, init
        self.centre = np.log10(10.0 ** _CENTRE[kind] + doubt)
        self.fit_intercept = fit_intercept

    def prox(self):
        """-> models (n_tasks, n_outputs, size)."""
        table = self.table
        out = np.empty((table.n_tasks, *self.init.shape))
        with single_blas_thread():
            for first, last, rows, X in row_blocks(table):
                A = X
                if self.fit_intercept:
                    A = np.empty((len(X), X.shape[1] + 1))
                    A[:, :-1], A[:, -1] = X, 1.0
                ends = table.offsets[first : last + 1] - rows.start
                out[first:last] = self._block(A, table.y[rows], ends)
        return out

    def _block(self, A, y, ends):
        kind, sizes = self.kind, np.diff(ends)
        z = A @ self.init.T
        residuals(z, y, 0, len(y), kind)
        B, response = A, -z
        if kind:
            root = np.sqrt(_weights(z, y, kind))[:, None]
            B, response = A * root, response / root
        spectrum = (_Dual if sizes.max() < A.shape[1] else _Primal)(B, response, ends)
        squares = np.add.reduceat(np.einsum("pc,pc->p", response, response), ends[:-1])
        criterion, level = np.empty((len(sizes), len(SNR))), np.empty(len(sizes))
        evidence(spectrum.values, spectrum.products, squares, sizes, kind, SNR, criterion, level)
        criterion += ((np.log10(SNR) - self.centre) / _SPREAD) ** 2
        kappa = np.where(level > 0, best_scale(criterion, level), 0.0)
        if kind == 0:
            return self.init + spectrum.solve(kappa)
        # In the eigenbasis, scaled by the root of the curvature at the initialisation.
        inverse = 1.0 / np.maximum(kappa, 1e-12)[:, None]
        scale = 1.0 / np.sqrt(spectrum.values + inverse)
        u = np.empty((len(sizes), len(self.init), scale.shape[1]))
        descend(
            spectrum.features(A, root, scale), y, A @ self.init.T, ends, kind,
            scale**2 * inverse, _MAX_STEPS, _TOL, u,
        )  # fmt: skip
        return self.init + spectrum.back(u * scale[:, None, :])

    def sgd(self, n_steps, rate):
        """`n_steps` gradient steps of length `rate` on the mean loss. -> models

        rate : float or "auto", 1 / smoothness of the task's own loss.
        """
        m = self.table.n_tasks
        out = np.empty((m, *self.init.shape))
        if isinstance(rate, str):
            rate = own_rates(self.table, self.kind, self.fit_intercept)
        run_inner(
            self.table, self.kind, self.fit_intercept, np.arange(m), self.init, out,
            n_steps=n_steps, rate=np.broadcast_to(np.float64(rate), m),
        )  # fmt: skip
        return out + self.init


def run_inner(
    table, kind, fit_intercept, pick, start, update, *, n_steps, rate, clip_norm=np.inf,
    norms=None, batch_size=1.0, n_batches=None, mask=_NO_MARKS, mask_ends=_NO_INDEX, noise=None,
    noise_step=None, shrink=None, average=False,
):  # fmt: skip
    """`inner_steps` of the rows of a table, plain gradient descent by default."""
    m = table.n_tasks
    if norms is None:
        norms = np.ones(len(table.X))  # read for clipping only
    inner_steps(
        table.X, _NO_INDEX if table.rows is None else table.rows, table.rows is not None,
        table.offsets, table.y, norms, kind, fit_intercept, pick, start, float(clip_norm),
        n_steps, np.array(rate), float(batch_size),
        np.ones(m, dtype=np.int64) if n_batches is None else n_batches, mask, mask_ends,
        _NO_NOISE if noise is None else noise, np.ones(m) if noise_step is None else noise_step,
        np.ones(m) if shrink is None else shrink, average, update, _NO_NOISE,
    )  # fmt: skip


def row_norms(X, fit_intercept):
    """|(x, 1)| of every row, or |x| without intercept."""
    norms = np.empty(len(X))
    record_norms(X, fit_intercept, norms)
    return norms


def own_rates(table, kind, fit_intercept):
    """1 / smoothness of every task's mean loss, from its own rows."""
    largest = np.empty(table.n_tasks)
    curvatures(table.X, None, None, None, table.rows, table.offsets, False, 15, largest)
    smoothness = BOUND[kind] * (1.05 * largest / table.sizes + fit_intercept)
    return 1.0 / np.maximum(smoothness, 1e-12)


def _eigh(G):
    """Eigenvalues and vectors; a task whose rows overflow must not end the fit of the others."""
    G[~np.isfinite(G).all(axis=(1, 2))] = 0.0
    return np.linalg.eigh(G)


def _weights(z, y, kind):
    """Second derivative of every row's loss at derivatives z; the mean over outputs of kind 2."""
    if kind == 0:
        return np.ones(len(z))
    if kind == 1:
        q = np.abs(z[:, 0])
        return np.maximum(q * (1.0 - q), 1e-6)
    p = z.copy()
    p[np.arange(len(z)), y.astype(np.int64)] += 1.0
    return np.maximum((1.0 - np.einsum("pc,pc->p", p, p)) / (z.shape[1] - 1), 1e-6)


class _Primal:
    """Eigenvectors of A_k' A_k, (m, r, r): for tasks with more rows than columns."""

    def __init__(self, A, response, ends):
        self.ends, ones = ends, np.ones(len(ends) - 1)
        G = np.empty((len(ones), A.shape[1], A.shape[1]))
        g = np.empty((len(ones), response.shape[1], A.shape[1]))
        for c in range(response.shape[1]):
            v = np.ascontiguousarray(response[:, c])
            if c == 0:
                G, g[:, c], _ = grams(A, v, ends, ones, False)
            else:
                g[:, c] = np.add.reduceat(A * v[:, None], ends[:-1])
        values, self.vectors = _eigh(G)
        self.values = np.maximum(values, 0.0)
        self.products = np.matmul(g, self.vectors)

    def solve(self, kappa):
        """(A'A + I / kappa)^-1 A' response, (m, n_outputs, r)."""
        k = kappa[:, None]
        scale = k / (1.0 + k * self.values)
        return self.back(self.products * scale[:, None, :])

    def features(self, A, root, scale):
        """Rows of unweighted A in the eigenbasis, times `scale` (m, r)."""
        out = np.empty_like(A)
        rotate(A, self.vectors * scale[:, None, :], self.ends, out)
        return out

    def back(self, u):
        """Models (m, n_outputs, d) of coordinates in the eigenbasis."""
        return np.matmul(u, self.vectors.transpose(0, 2, 1))


class _Dual:
    """The same through A_k A_k', for tasks with fewer rows; short tasks are padded by zeros."""

    def __init__(self, A, response, ends):
        sizes = np.diff(ends)
        m, n = len(sizes), sizes.max()
        place = np.arange(len(A)) - np.repeat(ends[:-1], sizes)
        codes = np.repeat(np.arange(m), sizes)
        self.where = codes, place
        self.rows = np.zeros((m, n, A.shape[1]))
        self.rows[codes, place] = A
        padded = np.zeros((m, response.shape[1], n))
        padded[codes, :, place] = response
        values, self.vectors = _eigh(np.matmul(self.rows, self.rows.transpose(0, 2, 1)))
        # Rounding errors of zero eigenvalues would be divided by.
        self.values = np.where(values > 1e-13 * values[:, -1:], values, 0.0)
        self.half = np.matmul(padded, self.vectors)
        self.products = self.half * np.sqrt(self.values)[:, None, :]

    def solve(self, kappa):
        k = kappa[:, None]
        scale = k / (1.0 + k * self.values)
        return self._combine(self.half * scale[:, None, :])

    def features(self, A, root, scale):
        factor = self.vectors * (np.sqrt(self.values) * scale)[:, None, :]
        return factor[self.where] / root

    def back(self, u):
        inside = self.values > 0
        inverse = inside / np.sqrt(np.where(inside, self.values, 1.0))
        return self._combine(u * inverse[:, None, :])

    def _combine(self, dual):
        """Sums of the rows with weights given in the eigenbasis."""
        return np.matmul(np.matmul(dual, self.vectors.transpose(0, 2, 1)), self.rows)
