"""Gram matrices of the tasks: d x d of features, or n_k x n_k of rows where that is less."""

from functools import partial

import numpy as np
from scipy import sparse
from scipy.linalg.lapack import dpotrf, dpotri

from .._kernels.grams import (
    build_grams,
    build_row_grams,
    gram_product,
    invert_row_grams,
    weigh_rows,
)
from .._kernels.linalg import spd_inverse_narrow
from .._kernels.passes import combine, csr_combine, csr_scores, scores
from .._runtime.threads import cost_blocks, run_blocks, task_blocks
from .._runtime.traced import WIDE
from ..tables.table import read_only, row_dots

_BLOCK = 1 << 20  # numbers of X or of Gram matrices that a thread passes over at a time
SMALL = 1 << 22  # numbers up to which memory does not matter
_ABREAST = 100  # width up to which inverses of 16 matrices side by side are faster than LAPACK's
POWER_STEPS = 15
_NEAR = 1 << 18  # numbers of rows that stay in the cache while they are worked on
_NOT_FINITE = "a task's curvature is not finite; scale the features"
NARROW = 64  # up to this width compiled loops build Gram matrices faster than BLAS calls


def grams(X, y, offsets, scale, centre, weights=None):
    """-> G (m, d, d) = scale_k X_k' C X_k, g (m, d) = scale_k X_k' C y_k, sum scale_k y_k' C y_k.

    C removes the mean of a task when `centre` is true; with `weights` of the rows all are sums
    with weights, and so are the means.
    """
    m, d, X = len(offsets) - 1, X.shape[1], read_only(X)
    weights = np.ones(len(X)) if weights is None else weights
    G, g = np.empty((m, d, d)), np.empty((m, d))
    if d <= NARROW:

        def block(first, last):
            part = slice(first, last)
            ends = offsets[first : last + 1]
            scratch = np.empty((d + 1, np.diff(ends).max())), np.empty((d + 1, d + 1))
            out = G[part], g[part]
            return build_grams(X, y, ends, scale[part], centre, *out, *scratch, weights, roots)

        roots = np.sqrt(weights)
        return G, g, sum(run_blocks(block, task_blocks(offsets, d, _BLOCK)))
    square = 0.0
    for k in range(m):
        rows = slice(offsets[k], offsets[k + 1])
        x, v = X[rows].astype(np.float64, copy=False), y[rows]
        w = weights[rows]
        if centre:
            x, v = x - w @ x / w.sum(), v - w @ v / w.sum()
        x, v = np.sqrt(w)[:, None] * x, np.sqrt(w) * v
        np.matmul(x.T, x, out=G[k])
        np.matmul(x.T, v, out=g[k])
        square += scale[k] * (v @ v)
    G *= scale[:, None, None]
    g *= scale[:, None]
    return G, g, float(square)


def products(G, W, out):
    """out_k = G_k w_k of all tasks."""
    _each_block(gram_product, G, W, out)


def invert(A):
    """Replace the symmetric positive definite matrices A_k by their inverses."""
    r = A.shape[1]

    def narrow(A):
        scratch = np.empty((r, r, WIDE)), np.empty((r, WIDE)), np.empty((1, WIDE))
        return spd_inverse_narrow(A, *scratch)

    if not all(_each_block(narrow if r <= _ABREAST else _by_lapack, A)):
        raise np.linalg.LinAlgError(_NOT_FINITE)


def _by_lapack(A):
    """`spd_inverse_narrow` by LAPACK."""
    for a in A:
        L, failed = dpotrf(a.T, lower=True, overwrite_a=True)  # in place, as the next
        if failed or not np.isfinite(L.trace()):
            return False
        dpotri(L, lower=True, overwrite_c=True)
        a += np.triu(a, 1).T
    return True


def _each_block(kernel, G, *arrays):
    """kernel(G, *arrays) on blocks of the tasks' matrices. -> list of results"""
    step = max(_BLOCK // G[0].size, 1)
    blocks = [(first, min(first + step, len(G))) for first in range(0, len(G), step)]
    return run_blocks(
        lambda first, last: kernel(G[first:last], *(a[first:last] for a in arrays)), blocks
    )


class RowGrams:
    """Matrices K_k = C Z_k Z_k' C of all tasks, n_k x n_k.

    Z_k are the rows of task k or what ``rows(first, last)`` makes of those of some tasks; C is
    the centring (or identity), times roots of weights. K holds their lower triangles, row by row.
    `ready`: ``rows`` have been centred and weighted.
    """

    def __init__(self, loss, rows=None, ready=False):
        self.loss, table = loss, loss.table
        rows, centre = rows or loss.rows, loss.fit_intercept and not ready
        self.roots = np.ones(table.n_rows) if ready else np.sqrt(table.counts)
        self.starts = np.concatenate([[0], np.cumsum(table.sizes * (table.sizes + 1) // 2)])
        self.K = np.empty(self.starts[-1])

        def block(first, last):
            part = slice(first, last + 1)
            return build_row_grams(
                read_only(rows(first, last)),
                loss.offsets[part] - loss.offsets[first],
                self.starts[part],
                loss.scale[first:last],
                centre,
                self.K,
                self.roots[loss.offsets[first] :],
            )

        near = task_blocks(loss.offsets, table.n_features, _BLOCK // 4)  # dense, of sparse rows too
        sums = np.array(run_blocks(block, near)).sum(axis=0)
        # Traces of all scale_k K_k, and of their squares.
        self.trace, self.square = map(float, sums)

    def invert(self, shift):
        """K_k <- (K_k + shift_k I)^-1"""
        ends, starts = self.loss.offsets, self.starts

        def block(first, last):
            part = slice(first, last + 1)
            return invert_row_grams(self.K, ends[part], starts[part], shift[first:last])

        if not all(run_blocks(block, self.loss.near_blocks)):
            raise np.linalg.LinAlgError(_NOT_FINITE)

    def product(self, W, part):
        """X_k' K_k C (part y_k - X_k w_k) of all tasks."""
        loss, one = self.loss, np.ones(self.loss.shape[0])

        def inside(z, first, last):
            rows = slice(loss.offsets[first], loss.offsets[last])
            np.subtract(part * loss.y[rows], z[rows], out=z[rows])
            self.weigh(z, self.roots, first, last)
            return 0.0, z

        return loss.through(W, inside, one)[1]

    def weigh(self, z, roots, first, last):
        """z_k <- C_k' R_k K_k R_k C_k z_k of tasks from `first` to `last`, in place.

        R_k = diag(roots), and C_k removes the mean weighted with R_k^2 (with intercepts).
        """
        part = slice(first, last + 1)
        weigh_rows(
            self.K, self.loss.offsets[part], self.starts[part], roots, self.loss.fit_intercept, z
        )


def row_blocks(table):
    """Blocks (first, last, rows, X) of tasks, their table rows and features.

    Dense features are float64, and not to be written.
    """
    d = table.n_features
    for first, last in cost_blocks(table.sizes * d + d * d, _BLOCK):
        rows = slice(table.offsets[first], table.offsets[last])
        X = table.X[rows if table.rows is None else table.rows[rows]]
        if not table.is_sparse:
            X = read_only(X.astype(np.float64, copy=False))
        yield first, last, rows, X


def squares(table, centre):
    """Squares of every feature, centred by its task, summed over the rows. (m, d)

    Weights count once, although the noise in a gradient has their squares: sums of both agree in
    the units of `skpmtl.tables.weights`.
    """
    out, support = np.empty((table.n_tasks, table.n_features)), table.support
    for first, last, rows, X in row_blocks(table):
        ends = table.offsets[first : last + 1] - rows.start
        if table.is_sparse:
            w = np.ones(ends[-1]) if table.weights is None else table.weights[rows]
            add = sparse.csr_matrix((w, np.arange(ends[-1]), ends), (last - first, ends[-1]))
            out[first:last] = (add @ X.multiply(X)).toarray()
            if centre:
                out[first:last] -= (add @ X).toarray() ** 2 / support[first:last, None]
            continue
        w = None if table.weights is None else table.weights[rows, None]
        if centre:
            total = np.add.reduceat(X if w is None else w * X, ends[:-1])
            X = X - np.repeat(total / support[first:last, None], np.diff(ends), axis=0)
        out[first:last] = np.add.reduceat(X * X if w is None else w * X * X, ends[:-1])
    return np.maximum(out, 0.0)


def task_grams(table, problem, scale):
    """Blocks (first, last, G, g) of scale_k X_k' C X_k and scale_k X_k' C y_k; dense rows."""
    for first, last, rows, X in row_blocks(table):
        ends = table.offsets[first : last + 1] - rows.start
        weights = None if table.weights is None else table.weights[rows]
        G, g, _ = grams(X, table.y[rows], ends, scale[first:last], problem.fit_intercept, weights)
        yield first, last, G, g


def scattered(d):
    """One start for all tasks, so that a task's number does not depend on its company. -> (d,)"""
    places = np.arange(d)
    return (0.5 + 0.6180339887498949 * (places + 1) % 1.0) * np.where(places % 2, -1.0, 1.0)


def largest_eigenvalues(table, centre):
    """Of X_k' diag(weights) X_k of all tasks, from below, by power iteration.

    `centre`: of rows less the mean of their task.
    """
    kernels = (csr_scores, csr_combine) if table.is_sparse else (scores, combine)
    out, z = np.empty(table.n_tasks), np.empty(table.n_rows)
    start = scattered(table.n_features)

    def block(first, last):
        ends, part = table.offsets[first : last + 1], slice(first, last)
        rows = slice(*ends[[0, -1]])
        score, gather = (partial(kernel, *table.stored, ends) for kernel in kernels)
        weights, V = table.counts[rows], np.tile(start, (last - first, 1))
        if centre:
            z[rows], mean = weights, np.empty_like(V)
            gather(z, 1.0 / table.support[part], mean)
        for _ in range(POWER_STEPS):
            size = np.maximum(np.sqrt(row_dots(V, V)), 1e-300)
            score(V, z)
            if centre:
                z[rows] -= np.repeat(row_dots(mean, V), np.diff(ends))
            z[rows] *= weights
            before, V = V, np.empty_like(V)
            gather(z, 1.0 / size, V)
            if centre:  # less what rounding left of the sum of the scores
                left = np.add.reduceat(z[rows], ends[:-1] - ends[0]) / size
                V -= left[:, None] * mean
        out[part] = row_dots(before, V) / size

    with np.errstate(all="ignore"):
        run_blocks(block, task_blocks(table.offsets, table.n_features, _NEAR))
    return out
