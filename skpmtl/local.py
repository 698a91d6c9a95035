"""The task half: models a task fits alone under a prior w ~ N(0, kappa s^2 M).

M is public (it comes from the billboard); kappa, the noise level s and the intercept are the
task's own. All tasks are treated alike, in blocks that bound the memory.
"""

from itertools import pairwise
from weakref import WeakKeyDictionary

import numpy as np
from scipy import sparse

from ._kernels.linalg import grams, rotate, tridiagonal
from ._kernels.local import centred_rows, left_out, posterior_modes
from ._kernels.passes import scores
from .threads import cost_blocks, run_blocks, single_blas_thread

# Grid of the prior variance of a score in units of the noise variance.
SNR = np.logspace(-4, 5, 19)
# Public weak prior on log10(snr): (centre, spread), for squared and logistic loss.
_WEAK = {False: (1.5, 1.0), True: (0.0, 1.0)}
_FOLDS, _FOLD_ROWS = 5, 16
_BLOCK = 1 << 18  # numbers of transformed rows held at once by a thread
_CACHED = 1 << 17  # numbers of a few tasks at a time
_LANES = 24  # scales, padded to a multiple of what a vector register holds
_NEWTON_STEPS = 30
# Criteria of squared loss, functions of a table and a root, by table: the first and the last
# ones of a fit are asked for twice.
_criteria = WeakKeyDictionary()


class LocalModels:
    """Personal models of all tasks of a table.

    Parameters
    ----------
    table : TaskTable
    classification : bool
    fit_intercept : bool
        Local intercept, not penalised.
    """

    def __init__(self, table, *, classification, fit_intercept):
        self.table = table
        self.classification = classification
        self.fit_intercept = fit_intercept
        # Folds are blocks of rows in a scattered order (golden-ratio sequence) that depends on
        # a row's place in its task alone: a task gets the same model in any company.
        self._order, sizes = np.empty(table.n_rows, dtype=np.int64), table.sizes
        for n in np.unique(sizes):
            start = table.offsets[:-1][sizes == n, None]
            place = np.arange(n)
            scattered = np.argsort((place * 0.6180339887498949) % 1.0, kind="stable")
            self._order[start + place] = start + scattered
        self._scores = np.zeros(table.n_rows if classification else 0)
        # Where they take little beside the rows: 2 results of len(SNR) numbers.
        few = 20 * len(SNR) * table.n_tasks <= np.prod(table.X.shape)
        results = _criteria.setdefault(table, {}) if few and not classification else {}
        self._known = results.setdefault(fit_intercept, [])
        self._keep = few and not classification

    def _blocks(self):
        """Tasks of about the same size, whose arrays take about the same memory."""
        order = np.argsort(self.table.sizes, kind="stable")
        sizes = self.table.sizes[order]
        ends = np.searchsorted(sizes, 2 ** np.arange(1, 64, dtype=float), side="right")
        for lo, hi in pairwise(np.unique([0, *ends])):
            cost = _up(sizes[lo:hi], 8) * max(self.table.n_features, len(SNR))
            for first, last in cost_blocks(cost, _BLOCK):
                yield order[lo + first : lo + last]

    def _run(self, function, root):
        """function(block, tasks) for blocks of all tasks; -> nothing."""
        table = self.table
        shared = None if table.rows is None else _times(table.X, root)

        def run(tasks):
            ends = np.concatenate([[0], np.cumsum(table.sizes[tasks])])
            first = np.repeat(table.offsets[tasks] - ends[:-1], np.diff(ends))
            places = first + np.arange(ends[-1])
            rows = self._order[places]
            if shared is not None:
                A, pick = shared, table.rows[rows]
            else:
                lo, hi = places[0], places[-1] + 1
                if hi - lo == len(places):
                    A, pick = _times(table.X[lo:hi], root), rows - lo
                else:
                    A, pick = _times(table.X[rows], root), np.arange(len(rows))
            block = _Block(A, pick, ends, self.fit_intercept)
            # A task whose rows overflow gets a model that is not finite, in silence.
            with np.errstate(all="ignore"):
                function(block, tasks, places, table.y[rows])

        with single_blas_thread():
            run_blocks(run, [(tasks,) for tasks in self._blocks()])

    def criteria(self, root):
        """How well every scale of `SNR` explains every task.

        Parameters
        ----------
        root : ndarray (d, r) or (d,)
            M = root @ root.T, or diag(root**2).

        Returns
        -------
        criterion : ndarray (n_tasks, len(SNR))
            Average of -2 log evidence and n log(cross-validated error) (deviances for the
            logistic loss), plus a weak public prior.
        level : ndarray (n_tasks,)
            kappa = snr / level.
        """
        for known, out, level in self._known:
            if np.array_equal(known, root):
                return out.copy(), level
        m = self.table.n_tasks
        out, level = np.empty((m, len(SNR))), np.empty(m)

        def block_criteria(block, tasks, places, label):
            score = self._scores[places] if self.classification else None
            working = *_working(label, score), label if self.classification else None
            out[tasks], level[tasks] = block.criteria(*working)

        self._run(block_criteria, root)
        centre, spread = _WEAK[self.classification]
        out += 0.5 * ((np.log10(SNR) - centre) / spread) ** 2
        if self._keep:  # the even prior comes first, and again when a task doubts the last one
            self._known[1:] = [(root, out.copy(), level)]
        return out, level

    def solve(self, root, kappa, tol=1e-8):
        """Posterior modes under priors N(0, kappa_k M).

        Parameters
        ----------
        root : ndarray (d, r) or (d,)
        kappa : ndarray (n_tasks,)
        tol : float
            Newton steps of a task for the logistic loss end when none of its scores moves by more.

        Returns
        -------
        W : ndarray (n_tasks, d)
        b : ndarray (n_tasks,)
        """
        m = self.table.n_tasks
        W, b = np.empty((m, root.shape[-1])), np.empty(m)
        precision = 1.0 / np.maximum(kappa, 1e-300)

        def block_modes(block, tasks, places, label):
            if not self.classification:
                W[tasks], b[tasks] = block.modes(*_working(label, None), precision[tasks])
                return
            score, active = self._scores[places], np.arange(len(tasks))
            for _ in range(_NEWTON_STEPS):
                part, kept = block.select(active)
                working = _working(label[kept], score[kept])
                C, middle = part.modes(*working, precision[tasks[active]])
                W[tasks[active]], b[tasks[active]] = C, middle
                step = part.scores(C, middle) - score[kept]
                # A longer step would leave the quadratic approximation.
                score[kept] += np.clip(step, -4.0, 4.0)
                active = active[np.maximum.reduceat(np.abs(step), part.offsets[:-1]) > tol]
                if not len(active):
                    break
            self._scores[places] = score

        self._run(block_modes, root)
        if root.ndim == 1:
            W *= root
            return W, b
        step = max(_BLOCK // W.shape[1], 1)
        with single_blas_thread():
            for first in range(0, m, step):
                W[first : first + step] = W[first : first + step] @ root.T
        return W, b


def _times(X, root):
    """X @ root as an array in C order; a diagonal root is given by its diagonal."""
    if root.ndim == 2:
        return np.ascontiguousarray(X @ root)
    return X.multiply(root).toarray() if sparse.issparse(X) else X * root


def _up(sizes, multiple):
    return -(-sizes // multiple) * multiple


def _working(label, score):
    """Weights and response of the working least squares at the current scores."""
    if score is None:
        return np.ones(len(label)), label
    p = 1.0 / (1.0 + np.exp(-np.clip(label * score, -30.0, 30.0)))
    weight = np.maximum(p * (1.0 - p), 1e-6)
    return weight, score + label * (1.0 - p) / weight


class _Block:
    """Transformed rows A[pick] of some tasks, which `offsets` divides among them."""

    def __init__(self, A, pick, offsets, centre):
        self.A, self.pick, self.offsets, self.centre = A, pick, offsets, centre

    def select(self, tasks):
        """-> block of some of the tasks, positions of their rows among those of this one"""
        if len(tasks) == len(self.offsets) - 1:
            return self, slice(None)
        sizes = np.diff(self.offsets)[tasks]
        ends = np.concatenate([[0], np.cumsum(sizes)])
        rows = np.repeat(self.offsets[tasks] - ends[:-1], sizes) + np.arange(ends[-1])
        return _Block(self.A, self.pick[rows], ends, self.centre), rows

    def _parts(self, weight, response):
        """Yield (tasks, ends, F, K, rows) for few tasks at a time, whose F F' stay in the cache."""
        sizes, d = np.diff(self.offsets), self.A.shape[1]
        m, n = len(sizes), int(sizes.max())
        r, wide = min(n, d), max(n, d)
        R, P = _up(r, 4), _up(wide, 8)
        step = max(_CACHED // (R * (P + R)), 1)
        even = sizes.min() == n  # then the same numbers are padding
        self.v, self.mean = np.empty(self.offsets[-1]), np.zeros((m, d))
        self.level, self.mass = np.empty((2, m))
        self.weight, self.response = weight, response
        F, K = np.zeros((min(step, m), R, P)), np.zeros((min(step, m), R, _up(r, 8)))
        for first in range(0, m, step):
            part = slice(first, min(first + step, m))
            ends = self.offsets[first : part.stop + 1]
            count = part.stop - first
            if first and not even:
                F[:], K[:] = 0.0, 0.0
            centred_rows(
                self.A, self.pick, ends, weight, response, float(self.centre), F[:count], self.v,
                self.mean[part], self.level[part], self.mass[part],
            )  # fmt: skip
            grams(F[:count], ends, d, K[:count])
            yield part, ends, F[:count], K[:count]

    def criteria(self, weight, response, label):
        """-2 log evidence and cross-validated deviance of all scales, averaged, and levels.

        The scale is kappa = snr / level with level = trace(G) / n, so that snr is the prior
        variance of a score in units of the noise; level is infinite when no row differs from
        another. The noise variance is profiled for squared loss and 1 for the logistic loss,
        whose deviance is taken at the left-out score: the working response minus its residual.
        `label` is None for squared loss.

        A task has at least `_FOLDS` blocks of rows that are left out, of at most `_FOLD_ROWS`
        rows, which keeps the cost linear in its rows.
        """
        sizes, d, starts = np.diff(self.offsets), self.A.shape[1], self.offsets[:-1]
        m, R = len(sizes), _up(min(int(sizes.max()), d), 4)
        by_scale = np.zeros((m, 3, _LANES))
        kappa, sign, quad = by_scale.transpose(1, 0, 2)
        dual = (sizes <= d)[:, None]
        folds = np.minimum(sizes, np.maximum(_FOLDS, -(-sizes // _FOLD_ROWS)))
        trace, root = np.empty(m), np.sqrt(weight)
        inverse, out = np.ones((m, R, _LANES)), np.empty((len(root), _LANES))
        X = np.zeros((R + 2, _FOLD_ROWS, _LANES))
        B = np.zeros((_FOLD_ROWS + 1, _FOLD_ROWS, _LANES))
        lines, squares = X.reshape(R + 2, -1), B.reshape(_FOLD_ROWS + 1, -1)
        q, scratch = np.zeros(R), np.zeros((2, R + 1, _LANES))
        wide = np.zeros((2, _up(max(int(sizes.max()), d), 8)))
        by_row = np.empty((2, len(root)))
        for k, ends, F, K in self._parts(weight, response):
            T = np.zeros((2, len(F), R))
            tridiagonal(K, ends, d, *T, *wide)
            rotate(K, ends, d, F, *wide)
            trace[k] = T[0].sum(axis=1)
            level = trace[k] / sizes[k]
            kappa[k, : len(SNR)] = SNR / np.where(level > 0, level, np.inf)[:, None]
            sign[k] = np.where(dual[k], 1.0, -kappa[k])
            rows = slice(ends[0], ends[-1])
            by_row[0, rows] = self.v[rows]
            share = np.repeat(float(self.centre) / np.sqrt(self.mass[k]), sizes[k])
            by_row[1, rows] = root[rows] * share
            left_out(
                F, ends, folds[k], d, T, by_scale[k], by_row, inverse[k], scratch, X, lines, B,
                squares, q, out,
            )  # fmt: skip
        level = trace / sizes
        cut = slice(None, len(SNR))
        quad, kappa = quad[:, cut], kappa[:, cut]
        n = sizes[:, None]
        logdet = -np.log(inverse, out=inverse).sum(axis=1)[:, cut]
        yy = np.add.reduceat(self.v * self.v, starts)[:, None]
        tiny = 1e-9 * yy + 1e-300
        energy = np.maximum(np.where(dual, quad, yy - kappa * quad), tiny)
        if label is None:
            dof = np.maximum(n - 1, 1) if self.centre else n
            evidence = dof * np.log(energy / dof) + logdet
            error = np.maximum(np.add.reduceat(out * out, starts)[:, cut], tiny)
            criterion = 0.5 * evidence + 0.5 * n * np.log(error / n)
        else:
            margin = label[:, None] * (self.response[:, None] - out[:, cut] / root[:, None])
            deviance = 2.0 * np.add.reduceat(np.logaddexp(0.0, -margin), starts)
            criterion = 0.5 * (energy + logdet) + 0.5 * deviance
        # Features that do not vary inside a task leave rounding errors: no scale fits.
        size = trace + self.mass * np.einsum("kj,kj->k", self.mean, self.mean)
        level[trace <= 1e-24 * size] = np.inf
        return criterion, level

    def modes(self, weight, response, precision):
        """Weights and intercepts of the transformed features at one scale."""
        m, d = len(precision), self.A.shape[1]
        C = np.zeros((m, d))
        for k, ends, F, K in self._parts(weight, response):
            trace = np.einsum("kjj->k", K[:, :, : K.shape[1]])
            # A scale chosen at other weights may be out of proportion: the solve must not fail.
            least = np.maximum(precision[k], 1e-12 * trace)
            posterior_modes(F, K, ends, least, self.v, np.empty(K.shape[1]), C[k])
        return C, self.level - np.einsum("kj,kj->k", self.mean, C)

    def scores(self, C, intercept):
        out = np.repeat(intercept, np.diff(self.offsets))
        fitted = np.empty(len(out))
        scores(self.A, self.pick, True, self.offsets, C, fitted)
        return out + fitted
