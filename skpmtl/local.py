"""The task half: models a task fits alone under a prior w ~ N(0, kappa s^2 M).

M is public (it comes from the billboard); kappa, the noise level s and the intercept are the
task's own. All tasks are treated alike, in blocks that bound the memory.
"""

from weakref import WeakKeyDictionary

import numpy as np
from scipy import sparse

from ._kernels.local import posterior_modes, scale_criteria
from .threads import run_blocks, single_blas_thread, task_blocks

# Grid of the prior variance of a score in units of the noise variance.
SNR = np.logspace(-4, 5, 19)
# Public weak prior on log10(snr): (centre, spread), for squared and logistic loss.
_WEAK = {False: (1.5, 1.0), True: (0.0, 1.0)}
_FOLDS, _FOLD_ROWS = 5, 16
_BLOCK = 1 << 19  # numbers of transformed rows held at once by a thread
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
        return task_blocks(self.table.offsets, self.table.n_features, _BLOCK)

    def _run(self, kernel, root, *arguments):
        """kernel(A, pick, label, score, offsets, intercept, logistic, ..., tasks) on all blocks."""
        table = self.table
        shared = None if table.rows is None else _times(table.X, root)

        def block(first, last):
            rows = slice(table.offsets[first], table.offsets[last])
            pick = self._order[rows]
            label = table.y[pick]
            if shared is None:
                A, pick = _times(table.X[rows], root), pick - rows.start
            else:
                A, pick = shared, table.rows[pick]
            score = self._scores[rows]
            ends = table.offsets[first : last + 1] - rows.start
            kernel(
                A, pick, label, score, ends, self.fit_intercept, self.classification,
                *(x[first:last] if per_task else x for x, per_task in arguments),
            )  # fmt: skip

        with single_blas_thread():
            run_blocks(block, self._blocks())

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
        self._run(
            scale_criteria, root, (_FOLDS, False), (_FOLD_ROWS, False), (SNR, False),
            (out, True), (level, True),
        )  # fmt: skip
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
        self._run(
            posterior_modes, root, (precision, True), (float(tol), False),
            (_NEWTON_STEPS, False), (W, True), (b, True),
        )  # fmt: skip
        if root.ndim == 1:
            W *= root
            return W, b
        with single_blas_thread():
            for first, last in self._blocks():
                W[first:last] = W[first:last] @ root.T
        return W, b


def _times(X, root):
    """X @ root as an array in C order; a diagonal root is given by its diagonal."""
    if root.ndim == 2:
        return np.ascontiguousarray(X @ root)
    return X.multiply(root).toarray() if sparse.issparse(X) else X * root
