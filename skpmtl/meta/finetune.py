"""Fine-tuning of an initialisation on the rows of each task; nothing here leaves a task.

"prox" solves, for the sum of the losses of the n_k rows of task k,

    min over (w, b)  sum_i loss_i + 1 / (2 kappa_k) ||(w, b) - init||^2

with the strength chosen by the task itself: kappa_k maximises the evidence of its rows under
the prior (w, b) ~ N(init, kappa s^2 I), times a weak public prior of kappa (s^2 is the noise
variance of squared loss, which is profiled out, and 1 otherwise). For the other losses the
evidence is that of the quadratic approximation at the initialisation.
"""

import numpy as np

from .._kernels.finetune import descend, evidence, weighted_rows
from .._kernels.local import spectral_modes
from .._kernels.losses import NUMBER, SQUARED, losses
from .._kernels.passes import scores
from .._kernels.records import inner_steps, record_norms
from .._kernels.spectrum import grams, tridiagonal
from .._runtime.registers import LANES
from .._runtime.threads import cost_blocks, even_blocks, run_blocks
from ..local.curvature import largest_eigenvalues
from ..local.prior import SCALES, SNR, best_scale, up
from ..tables.table import read_only
from .rules import BOUND

# Public prior on log10 of kappa times the mean squared length of a row (prior variance of a
# score in units of the noise): centre and spread.
_CENTRE, _SPREAD = -0.75, 0.5
_MAX_STEPS, _TOL = 300, 1e-9
_BLOCK = 1 << 18  # numbers of matrices, or of X, that a thread works on at a time
_NO_INDEX, _NO_MARKS = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.uint8)
_NO_NOISE = np.empty((0, 0, 0, 0))


class FineTuner:
    """Models of the tasks of a table around an initialisation.

    Parameters
    ----------
    table : TaskTable
        Dense rows.
    loss : {"squared", "logistic", "multinomial"}
    init : ndarray (n_outputs, n_features + fit_intercept)
        The intercept comes last.
    fit_intercept : bool
    doubt : float, default=0.0
        Public estimate of the squared error of a score of the initialisation in units of the
        noise: the more, the less tasks hold on to it.
    """

    def __init__(self, table, loss, init, fit_intercept, doubt=0.0):
        self.table, self.loss, self.init = table, loss, np.ascontiguousarray(init)
        self.centre = np.log10(10.0**_CENTRE + doubt)
        self.fit_intercept = fit_intercept

    def prox(self):
        """-> models (n_tasks, n_outputs, size)."""
        out = np.empty((self.table.n_tasks, *self.init.shape))

        def block(tasks):
            # A task whose rows overflow stays at the initialisation, in silence.
            with np.errstate(all="ignore"):
                changes = self._changes(tasks)
                changes[~np.isfinite(changes).all(axis=(1, 2))] = 0.0
                out[tasks] = self.init + changes

        blocks = even_blocks(self.table.sizes, self.init.shape[1], _BLOCK)
        run_blocks(block, [(tasks,) for tasks in blocks])
        return out

    def _changes(self, tasks):
        """What the models of some tasks add to the initialisation.

        At the initialisation a loss is, to second order, a squared loss of weighted rows. All is
        then done in the smaller space of each task, of its rows or of its coefficients: a Gram
        matrix, made tridiagonal once, after which every scale kappa that is tried costs little.
        """
        table, loss, (C, size) = self.table, NUMBER[self.loss], self.init.shape
        sizes = table.sizes[tasks]
        ends = np.concatenate([[0], np.cumsum(sizes)])
        m, n = len(tasks), int(sizes.max())
        r = min(n, size)
        R = up(r + 1, LANES)
        F, K = np.zeros((m, up(max(n, size), 4), R)), np.zeros((m, up(r, 4), R))
        pick = np.repeat(table.offsets[tasks] - ends[:-1], sizes) + np.arange(ends[-1])
        y = table.y[pick]
        pick = pick if table.rows is None else table.rows[pick]
        X, base, d = read_only(table.X), np.empty((C, ends[-1])), table.n_features
        for c in range(C):
            weights = np.ascontiguousarray(self.init[c : c + 1, :d])
            scores(X, pick, True, np.array([0, ends[-1]]), weights, base[c])
            base[c] += self.init[c, d] if self.fit_intercept else 0.0
        D, root = base - y if loss == SQUARED else np.empty_like(base), np.ones(ends[-1])
        if loss != SQUARED:
            losses(base, y, 0, len(y), loss, D, np.empty(len(y)))
            weight = (np.abs(D) * (1.0 - np.abs(D))).sum(axis=0) / max(C - 1, 1)
            root = np.sqrt(np.maximum(weight, 1e-6))
        D /= -root
        squares = np.add.reduceat((D * D).sum(axis=0), ends[:-1])
        q = np.zeros((m, C, R))
        weighted_rows(X, pick, ends, self.fit_intercept, root, D, F, q)
        grams(F, ends, size, root, K)
        whole = K if loss == SQUARED else K.copy()
        T, wide = np.zeros((2, m, up(r, 4))), np.zeros((2, R))
        tridiagonal(K, ends, size, *T, *wide)
        level = np.cumsum(T[0], axis=1)[:, -1] / sizes
        level = np.where(np.isfinite(level), level, 0.0)
        scales, dets = np.zeros((m, SCALES)), np.ones((m, -(-r // 16), SCALES))
        scales[:, : len(SNR)] = SNR / np.where(level > 0, level, np.inf)[:, None]
        quad = np.empty_like(scales)
        evidence(K, *T, sizes, size, q, scales, dets, quad)
        criterion = self._criterion(sizes, squares, scales, np.log(dets).sum(axis=1), quad)
        kappa = np.where(level > 0, best_scale(criterion[:, : len(SNR)], level), 0.0)
        out = np.empty((m, C, size))
        if loss == SQUARED:
            right = q[:, 0] * kappa[:, None]
            spectral_modes(F, K, ends, T, kappa, right, wide, out[:, 0])
        else:
            descend(F, whole, ends, y, base, root, loss, kappa, _MAX_STEPS, _TOL, out)
        return out

    def _criterion(self, sizes, squares, scales, logdet, quad):
        """-2 log of evidence times public prior at all scales, up to a constant of each task."""
        n, squares = sizes[:, None], squares[:, None]
        few = n <= self.init.shape[1]
        energy = np.where(few, quad, squares - scales * quad)
        if self.loss == "squared":  # the variance of the noise is profiled out
            energy = n * np.log(np.maximum(energy, 1e-9 * squares + 1e-300) / n)
        else:  # one of several outputs counts for nothing: scores of classes have a common shift
            logdet = logdet * max(len(self.init) - 1, 1)
        energy[:, : len(SNR)] += ((np.log10(SNR) - self.centre) / _SPREAD) ** 2
        return energy + logdet

    def sgd(self, n_steps, rate):
        """`n_steps` gradient steps of length `rate` on the mean loss. -> models

        rate : float or "auto", 1 / smoothness of the task's own loss.
        """
        m = self.table.n_tasks
        out = np.empty((m, *self.init.shape))
        if isinstance(rate, str):
            rate = own_rates(self.table, self.loss, self.fit_intercept)
        run_inner(
            self.table, self.loss, self.fit_intercept, np.arange(m), self.init, out,
            n_steps=n_steps, rate=np.broadcast_to(np.float64(rate), m),
        )  # fmt: skip
        return out + self.init


def _rows(table):
    return (_NO_INDEX if table.rows is None else table.rows), table.rows is not None


def run_inner(
    table, loss, fit_intercept, pick, start, update, *, n_steps, rate, begun=0, clip_norm=np.inf,
    norms=None, batch_size=1.0, n_batches=None, mask=_NO_MARKS, mask_ends=None, noise=None,
    noise_step=None, shrink=None, average=False, gradients=_NO_NOISE,
):  # fmt: skip
    """`inner_steps` of the rows of a table, plain gradient descent by default."""
    m = table.n_tasks
    if norms is None:
        norms = np.ones(len(table.X))  # read for clipping only
    n_batches = np.ones(m, dtype=np.int64) if n_batches is None else n_batches
    noise_step = np.ones(m) if noise_step is None else noise_step
    shrink, rate = np.ones(m) if shrink is None else shrink, np.array(rate)

    def block(first, last):
        part = slice(first, last)
        inner_steps(
            table.X, *_rows(table), table.offsets, table.y, norms, NUMBER[loss], fit_intercept,
            pick[part], start, float(clip_norm), n_steps, begun, rate, float(batch_size),
            n_batches, mask, _NO_INDEX if mask_ends is None else mask_ends[first : last + 1],
            _NO_NOISE if noise is None else noise[part], noise_step, shrink, average,
            update[part], gradients[part],
        )  # fmt: skip

    run_blocks(block, cost_blocks(table.sizes[pick] * table.n_features, _BLOCK))


def row_norms(X, fit_intercept):
    """|(x, 1)| of every row, or |x| without intercept."""
    norms, step = np.empty(len(X)), max(_BLOCK // X.shape[1], 1)
    run_blocks(
        lambda part: record_norms(X[part], fit_intercept, norms[part]),
        [(slice(first, first + step),) for first in range(0, len(X), step)],
    )
    return norms


def own_rates(table, loss, fit_intercept):
    """1 / smoothness of every task's mean loss, from its own rows."""
    largest = largest_eigenvalues(table, False)
    smoothness = BOUND[loss] * (1.05 * largest / table.sizes + fit_intercept)
    return 1.0 / np.maximum(smoothness, 1e-12)
