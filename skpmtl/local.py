"""The task half: models a task fits alone under a prior w ~ N(0, kappa s^2 M).

M is public (it comes from the billboard); kappa, the noise level s and the intercept are the
task's own. All tasks are treated alike, in blocks that bound the memory.
"""

import numpy as np

from ._kernels.local import rotate_rows, scale_criteria
from .losses import grams
from .solvers import single_thread

# Grid of the prior variance of a score in units of the noise variance.
SNR = np.logspace(-4, 5, 19)
# Public weak prior on log10(snr): (centre, spread), for squared and logistic loss.
_WEAK = {False: (1.5, 1.0), True: (0.0, 1.0)}
_FOLDS, _FOLD_ROWS = 5, 16
_BLOCK = 1 << 24  # numbers held at once: rows times width plus tasks times width squared


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
        place = np.arange(table.n_rows) - table.offsets[table.codes]
        self._order = np.lexsort(((place * 0.6180339887498949) % 1.0, table.codes))
        self._scores = np.zeros(table.n_rows) if classification else None

    # ------------------------------------------------------------------ working rows
    def _blocks(self, width):
        ends = self.table.offsets
        limit = max(_BLOCK // max(width, 1), 1)
        cost = ends[1:] - ends[:-1] + width
        first, used = 0, 0
        for k in range(self.table.n_tasks):
            if used and used + cost[k] > limit:
                yield first, k
                first, used = k, 0
            used += cost[k]
        yield first, self.table.n_tasks

    def _rows(self, first, last, root):
        """-> features times root, label, slice of the rows, offsets of tasks first..last-1."""
        table = self.table
        rows = slice(table.offsets[first], table.offsets[last])
        pick = self._order[rows]
        A = np.ascontiguousarray(table.X[pick if table.rows is None else table.rows[pick]] @ root)
        return A, table.y[pick], rows, table.offsets[first : last + 1] - rows.start

    def _working(self, y, rows):
        """-> response and weight of the working least squares at the current scores."""
        if not self.classification:
            return y.copy(), np.ones(len(y))
        score = self._scores[rows]
        p = 1.0 / (1.0 + np.exp(-np.clip(y * score, -30, 30)))
        weight = np.maximum(p * (1.0 - p), 1e-6)
        return score + y * (1.0 - p) / weight, weight

    def _centre_and_weight(self, A, y, weight, offsets):
        """Remove the weighted mean of every task (its intercept), then weight, in place."""
        if self.fit_intercept:
            sizes, mass = np.diff(offsets), np.add.reduceat(weight, offsets[:-1])
            mean = np.add.reduceat(weight * y, offsets[:-1]) / mass
            y -= np.repeat(mean, sizes)
            mean = np.add.reduceat(weight[:, None] * A, offsets[:-1]) / mass[:, None]
            A -= np.repeat(mean, sizes, axis=0)
        if self.classification:
            root = np.sqrt(weight)
            y *= root
            A *= root[:, None]

    # --------------------------------------------------------------------- criteria
    def criteria(self, root):
        """How well every scale of `SNR` explains every task.

        Parameters
        ----------
        root : ndarray (d, r)
            M = root @ root.T.

        Returns
        -------
        criterion : ndarray (n_tasks, len(SNR))
            Average of -2 log evidence and n log(cross-validated error) (deviances for the
            logistic loss), plus a weak public prior.
        level : ndarray (n_tasks,)
            kappa = snr / level.
        """
        m, r = self.table.n_tasks, root.shape[1]
        out, level = np.empty((m, len(SNR))), np.empty(m)
        with single_thread():
            for first, last in self._blocks(r):
                A, label, rows, offsets = self._rows(first, last, root)
                y, weight = self._working(label, rows)
                response = y.copy()
                size = np.add.reduceat(np.einsum("pj,pj->p", A, A), offsets[:-1])
                self._centre_and_weight(A, y, weight, offsets)
                G, g, _ = grams(A, y, offsets, np.ones(last - first), False)
                e, V = np.linalg.eigh(G)
                q = np.matmul(g[:, None, :], V)[:, 0]
                rotate_rows(A, np.ascontiguousarray(V), offsets)
                scale_criteria(
                    A, y, weight, response, label, offsets, self.fit_intercept,
                    np.maximum(e, 0.0), q, np.add.reduceat(y * y, offsets[:-1]),
                    self.classification, _FOLDS, _FOLD_ROWS, SNR, out[first:last],
                    level[first:last],
                )  # fmt: skip
                # Features that do not vary inside a task leave rounding errors: no scale fits.
                constant = level[first:last] * np.diff(offsets) <= 1e-24 * size
                level[first:last][constant] = np.inf
        centre, spread = _WEAK[self.classification]
        out += 0.5 * ((np.log10(SNR) - centre) / spread) ** 2
        return out, level

    # ------------------------------------------------------------------------ models
    def solve(self, root, kappa, tol=1e-8):
        """Posterior modes under priors N(0, kappa_k M).

        Parameters
        ----------
        root : ndarray (d, r)
        kappa : ndarray (n_tasks,)
        tol : float
            Newton steps of a task for the logistic loss end when none of its scores moves by more.

        Returns
        -------
        W : ndarray (n_tasks, d)
        b : ndarray (n_tasks,)
        """
        m = self.table.n_tasks
        W, b = np.empty((m, self.table.n_features)), np.zeros(m)
        with single_thread():
            for first, last in self._blocks(root.shape[1]):
                A, y, rows, offsets = self._rows(first, last, root)
                codes = np.repeat(np.arange(last - first), np.diff(offsets))
                precision = 1.0 / np.maximum(kappa[first:last], 1e-300)
                C = np.zeros((last - first, A.shape[1]))
                moving = np.ones(last - first, dtype=bool)
                for _ in range(30):
                    response, weight = self._working(y, rows)
                    new = self._weighted_ridge(A, response, weight, offsets, precision)
                    C[moving] = new[moving]
                    score = np.einsum("pj,pj->p", A, new[codes])
                    if self.fit_intercept:
                        rest = np.bincount(codes, weight * (response - score))
                        shift = rest / np.bincount(codes, weight)
                        b[first:last][moving] = shift[moving]
                        score += shift[codes]
                    if not self.classification:
                        break
                    # A task stops by its own scores: others must not see that it took longer.
                    step = np.where(moving[codes], score - self._scores[rows], 0.0)
                    # A longer step would leave the quadratic approximation.
                    self._scores[rows] += np.clip(step, -4.0, 4.0)
                    moving &= np.maximum.reduceat(np.abs(step), offsets[:-1]) > tol
                    if not moving.any():
                        break
                W[first:last] = C @ root.T
        return W, b

    def _weighted_ridge(self, A, response, weight, offsets, precision):
        n_tasks, r = len(precision), A.shape[1]
        A, y = A.copy(), response.copy()
        self._centre_and_weight(A, y, weight, offsets)
        G, g, _ = grams(A, y, offsets, np.ones(n_tasks), False)
        # A scale chosen at other weights may be out of proportion: the solve must not fail.
        floor = 1e-12 * np.einsum("kjj->k", G)
        G[:, np.arange(r), np.arange(r)] += np.maximum(precision, floor)[:, None]
        return np.linalg.solve(G, g[:, :, None])[:, :, 0]
