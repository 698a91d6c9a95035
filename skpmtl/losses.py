"""Smooth part of the objectives over all tasks: value, gradient, curvature, dual value.

W is (n_tasks, n_features): row k holds the weights of task k, so W is the transpose of the
matrix of the papers. Local intercepts are eliminated: every quantity below is already
minimised over them. ``ridge / 2 ||W||_F^2`` belongs to the smooth part.
"""

import numpy as np

from ._kernels import passes
from ._kernels.grams import build_grams, gram_product, reflected_solve
from ._kernels.linalg import LANES, spd_inverse, spd_inverse_narrow
from .threads import run_blocks, task_blocks

_NONE = np.empty(0, dtype=np.int64)
_BLOCK = 1 << 20  # numbers of X or of Gram matrices that a thread passes over at a time
NARROW = 64  # up to this width compiled loops build Gram matrices faster than BLAS calls


def make_loss(table, *, classification, task_weight="equal", fit_intercept=True, ridge=0.0):
    """The loss of `table`, in the representation that is cheapest to evaluate.

    Squared loss turns to Gram matrices where they are no larger than the rows they replace,
    and to matrix products where all tasks share one X.
    """
    scale = 1.0 / table.sizes if task_weight == "equal" else np.ones(table.n_tasks)
    args = (table, scale, fit_intercept, ridge)
    if classification:
        return LogisticLoss(*args)
    if table.is_sparse:
        return SquaredLoss(*args)
    n, d = table.X.shape
    if table.rows is not None and 3 * table.n_rows > n * table.n_tasks:
        complete = table.n_rows == n * table.n_tasks
        return SharedGramLoss(*args) if complete and n >= d else WideLoss(*args)
    if table.rows is None and n >= table.n_tasks * d * (1 if d <= NARROW else 2):
        return GramLoss(*args)
    return SquaredLoss(*args)


class _Loss:
    """Rows of all tasks and the products with them."""

    def __init__(self, table, scale, fit_intercept, ridge):
        self.table = table
        self.scale = scale
        self.fit_intercept = fit_intercept
        self.ridge = float(ridge)
        self.shape = (table.n_tasks, table.n_features)
        self.offsets = table.offsets
        self.y = table.y
        self._shared = table.rows is not None
        self._rows = table.rows if self._shared else _NONE
        self._blocks = task_blocks(table.offsets, table.n_features, _BLOCK)
        self._r = np.empty(table.n_rows)
        self._b = np.zeros(table.n_tasks)
        # A shared X that most tasks see most of: two matrix products beat indexed passes.
        self._grid = None
        n, m = table.X.shape[0], table.n_tasks
        if self._shared and not table.is_sparse and 3 * table.n_rows > n * m:
            self._grid = (table.rows, table.codes)

    def _csr(self):
        X = self.table.X
        return X.data, X.indices, X.indptr

    def scores(self, W):
        """x' w_k of every row, without intercept, in table order."""
        out = np.empty(self.table.n_rows)
        W = np.ascontiguousarray(W)
        if self._grid is not None:
            return (self.table.X @ W.T)[self._grid]
        sparse, X = self.table.is_sparse, self.table.X
        rows = (*(self._csr() if sparse else (X,)), self._rows, self._shared)

        def block(first, last):
            kernel = passes.csr_scores if sparse else passes.scores
            kernel(*rows, self.offsets[first : last + 1], W[first:last], out)

        run_blocks(block, self._blocks)
        return out

    def combine(self, r):
        """scale_k X_k' r_k, one row per task."""
        if self._grid is not None:
            R = np.zeros((self.table.X.shape[0], self.shape[0]))
            R[self._grid] = r
            return (R.T @ self.table.X) * self.scale[:, None]
        out = np.empty(self.shape)
        sparse, X = self.table.is_sparse, self.table.X
        rows = (*(self._csr() if sparse else (X,)), self._rows, self._shared)

        def block(first, last):
            part = slice(first, last)
            kernel = passes.csr_combine if sparse else passes.combine
            kernel(*rows, self.offsets[first : last + 1], r, self.scale[part], out[part])

        run_blocks(block, self._blocks)
        return out

    def _residuals(self, z):
        """Residuals and intercepts at the scores z, in place. -> value of the loss"""

        def block(first, last):
            part = slice(first, last)
            return self._residual_kernel(
                z, self.y, self.offsets[first : last + 1], self.scale[part], self.fit_intercept,
                self._r, self._b[part],
            )  # fmt: skip

        return sum(run_blocks(block, self._blocks))

    def intercepts(self, W):
        """Optimal local intercepts for the weights W, shape (n_tasks,)."""
        if not self.fit_intercept:
            return np.zeros(self.shape[0])
        self._residuals(self.scores(W))
        return self._b.copy()

    def _with_ridge(self, value, V, W):
        """Value and V (changed in place) of the loss alone -> with the ridge term."""
        if self.ridge:
            value += 0.5 * self.ridge * np.vdot(W, W)
            V -= self.ridge * W
        return value, V

    def evaluate(self, W):
        """-> (value, V): the smooth objective at W and V = minus its gradient."""
        value = self._residuals(self.scores(W))
        V = self.combine(self._r)
        return self._with_ridge(value, V, W)

    def curvatures(self, n_steps=6):
        """Largest curvature of every task, by power iteration on all tasks at once.

        It approaches the largest eigenvalue from below: leave a margin, or lengthen the
        bound when a step fails to decrease the objective.
        """
        # One start for all, so that a task's number does not depend on its company.
        W = np.tile(np.random.default_rng(0).standard_normal(self.shape[1]), (self.shape[0], 1))
        for _ in range(n_steps):
            W /= np.maximum(np.linalg.norm(W, axis=1), 1e-300)[:, None]
            W = self.curvature_bound(W)
        return np.linalg.norm(W, axis=1)

    def curvature_bound(self, D):
        """Hessian bound of every task times the rows of D."""
        return self.curvature(D)

    def curvature(self, D):
        """scale_k X_k' C X_k d_k + ridge d_k, C the centring when intercepts are fitted."""
        z = self.scores(D)
        if self.fit_intercept:
            passes.centre_scores(z, self.offsets)
        out = self.combine(z)
        out += self.ridge * D
        return out


class SquaredLoss(_Loss):
    """sum_k scale_k / 2 ||y_k - X_k w_k - b_k||^2 + ridge / 2 ||W||_F^2 on rows."""

    quadratic = True
    _residual_kernel = staticmethod(passes.squared_residuals)

    def evaluate(self, W):
        if self.table.is_sparse:
            return super().evaluate(W)
        V, weights = np.empty(self.shape), np.ascontiguousarray(W)

        def block(first, last):
            part = slice(first, last)
            return passes.squared_gradient(
                self.table.X, self._rows, self._shared, self.y, self.offsets[first : last + 1],
                self.scale[part], self.fit_intercept, weights[part], self._r, V[part],
            )  # fmt: skip

        return self._with_ridge(sum(run_blocks(block, self._blocks)), V, W)

    def dual_terms(self, W, V, value):
        """-> (a, q): the dual value of theta times the residuals is theta a - theta^2 q / 2."""
        a = float(np.repeat(self.scale, self.table.sizes) * self._r @ self.y)
        return a, 2.0 * value - self.ridge * np.vdot(W, W)

    def dual(self, theta, W, V, value):
        a, q = self.dual_terms(W, V, value)
        return theta * a - 0.5 * theta**2 * q

    def dual_scale(self, W, V, value):
        """The theta that maximises the dual value of theta times (residuals, ridge term)."""
        a, q = self.dual_terms(W, V, value)
        q += self.ridge * np.vdot(W, W)
        return a / q if q > 0 else 1.0

    def project(self, basis):
        """Matrices B' H_k B of all tasks for the columns of `basis`, (m, r, r)."""
        m, r = self.shape[0], basis.width
        out = np.empty((m, r, r))
        X, ends = self.table.X, self.offsets
        for k in range(m):
            rows = slice(ends[k], ends[k + 1])
            rows = self._rows[rows] if self._shared else rows
            Z = basis.features(X[rows])
            if self.fit_intercept:
                Z = Z - Z.mean(axis=0)
            np.matmul(Z.T, Z, out=out[k])
        out *= self.scale[:, None, None]
        if self.ridge:
            out += self.ridge * basis.gram()
        return out


class GramLoss(SquaredLoss):
    """The same through G_k = scale_k X_k' C X_k and g_k = scale_k X_k' C y_k."""

    def __init__(self, table, scale, fit_intercept, ridge):
        super().__init__(table, scale, fit_intercept, ridge)
        self.G, self.g, self.square = grams(
            table.X, table.y, table.offsets, scale, fit_intercept
        )

    def _each(self, kernel, *arrays):
        """kernel(*arrays) on blocks of tasks. -> list of results"""
        m, d = self.shape
        blocks = task_blocks(np.arange(m + 1), d * d, _BLOCK)
        return run_blocks(lambda first, last: kernel(*(a[first:last] for a in arrays)), blocks)

    def _product(self, W):
        out = np.empty(self.shape)
        self._each(gram_product, self.G, np.ascontiguousarray(W), out)
        return out

    def evaluate(self, W):
        V = self.g - self._product(W)
        # 1/2 sum scale ||y||^2 - w'g + 1/2 w'Gw with Gw = g - V
        value = 0.5 * (self.square - np.vdot(W, self.g) - np.vdot(W, V))
        return self._with_ridge(value, V, W)

    def dual_terms(self, W, V, value):
        return self.square - np.vdot(W, self.g), 2.0 * value - self.ridge * np.vdot(W, W)

    def curvature(self, D):
        return self._product(D) + self.ridge * D

    def mean_curvature(self):
        """Mean eigenvalue of the Hessians."""
        return float(np.einsum("kjj->", self.G)) / self.G[..., 0].size + self.ridge

    def resolvent(self, rho):
        """Function W, S -> (H_k + rho I)^-1 (g_k + rho (2 w_k - s_k)) - w_k for all tasks."""
        inverse = self.G.copy()
        diagonal = np.arange(self.shape[1])
        inverse[:, diagonal, diagonal] += self.ridge + rho
        narrow = self.shape[1] <= 48 and self.shape[0] > LANES
        if not all(self._each(spd_inverse_narrow if narrow else spd_inverse, inverse)):
            raise np.linalg.LinAlgError("a task's curvature is not finite; scale the features")

        def solve(W, S):
            out = np.empty(self.shape)
            self._each(
                lambda P, g, W, S, out: reflected_solve(P, g, rho, W, S, out),
                inverse, self.g, W, S, out,
            )  # fmt: skip
            return out

        return solve

    def project(self, basis):
        out = basis.project(self.G)
        if self.ridge:
            out += self.ridge * basis.gram()
        return out


class WideLoss(SquaredLoss):
    """The squared loss of tasks that share X, by products of whole matrices.

    ``Y`` (n, m) holds 0 where a label is missing, ``known`` the mask.
    """

    def __init__(self, table, scale, fit_intercept, ridge):
        super().__init__(table, scale, fit_intercept, ridge)
        n, m = table.X.shape[0], table.n_tasks
        self.Y, self.known = np.zeros((n, m)), np.zeros((n, m))
        self.Y[self._grid], self.known[self._grid] = table.y, 1.0

    def evaluate(self, W):
        X = self.table.X
        used = np.flatnonzero(W.any(axis=0))
        Z = X[:, used] @ W[:, used].T if 2 * len(used) < len(W.T) else X @ W.T
        R = np.subtract(self.Y, Z, out=Z)
        R *= self.known
        if self.fit_intercept:
            R -= (R.sum(axis=0) / self.table.sizes) * self.known
        self._residual = R
        value = 0.5 * float(self.scale @ np.einsum("ik,ik->k", R, R))
        V = (R.T @ X) * self.scale[:, None]
        return self._with_ridge(value, V, W)

    def dual_terms(self, W, V, value):
        a = float(self.scale @ np.einsum("ik,ik->k", self._residual, self.Y))
        return a, 2.0 * value - self.ridge * np.vdot(W, W)


class SharedGramLoss(SquaredLoss):
    """The squared loss when every task has all rows of one X: a single Gram matrix."""

    def __init__(self, table, scale, fit_intercept, ridge):
        super().__init__(table, scale, fit_intercept, ridge)
        X, Y = table.X, np.empty((table.X.shape[0], table.n_tasks))
        Y[self._grid] = table.y
        if fit_intercept:
            X, Y = X - X.mean(axis=0), Y - Y.mean(axis=0)
        self.G = (X.T @ X) * scale[0]
        self.g = (Y.T @ X) * scale[0]
        self.square = scale[0] * float(np.vdot(Y, Y))

    def _product(self, W):
        used = np.flatnonzero(W.any(axis=0))
        return W[:, used] @ self.G[used] if 2 * len(used) < len(self.G) else W @ self.G

    evaluate = GramLoss.evaluate
    dual_terms = GramLoss.dual_terms

    def curvature(self, D):
        return self._product(D) + self.ridge * D

    def curvatures(self, n_steps=6):
        x = np.random.default_rng(0).standard_normal((1, len(self.G)))
        for _ in range(n_steps):
            x = self.curvature(x / np.linalg.norm(x))
        return np.full(self.shape[0], np.linalg.norm(x))

    def project(self, basis):
        out = basis.project(self.G[None])  # one matrix serves all tasks
        return out + self.ridge * basis.gram() if self.ridge else out


class LogisticLoss(_Loss):
    """sum_k scale_k sum_i log(1 + exp(-y (x w_k + b_k))) + ridge / 2 ||W||_F^2, y in {-1, 1}."""

    quadratic = False
    _residual_kernel = staticmethod(passes.logistic_residuals)

    def curvature_bound(self, D):
        # The logistic function's slope q is at most 1/4, and an intercept at its optimum
        # leaves min over c of sum q (z - c)^2 <= 1/4 sum (z - mean)^2.
        return 0.25 * self.curvature(D) + 0.75 * self.ridge * D

    def dual_scale(self, W, V, value):
        return 1.0

    def dual(self, theta, W, V, value):
        """Sum of the binary entropies of theta times the residuals."""
        u = np.clip(theta * np.abs(self._r), 0.0, 1.0)
        entropy = -(_xlogx(u) + _xlogx(1.0 - u))
        return float(np.repeat(self.scale, self.table.sizes) @ entropy)


def _xlogx(u):
    return u * np.log(np.where(u > 0, u, 1.0))


def grams(X, y, offsets, scale, centre):
    """-> G (m, d, d) = scale_k X_k' C X_k, g (m, d) = scale_k X_k' C y_k, sum scale_k ||C y_k||^2.

    C removes the mean of a task when `centre` is true.
    """
    m, d = len(offsets) - 1, X.shape[1]
    G, g = np.empty((m, d, d)), np.empty((m, d))
    if d <= NARROW:

        def block(first, last):
            part = slice(first, last)
            ends = offsets[first : last + 1]
            return build_grams(X, y, ends, scale[part], centre, G[part], g[part])

        return G, g, sum(run_blocks(block, task_blocks(offsets, d, _BLOCK)))
    square = 0.0
    for k in range(m):
        x, v = X[offsets[k] : offsets[k + 1]], y[offsets[k] : offsets[k + 1]]
        if centre:
            x, v = x - x.mean(axis=0), v - v.mean()
        np.matmul(x.T, x, out=G[k])
        np.matmul(x.T, v, out=g[k])
        square += scale[k] * (v @ v)
    G *= scale[:, None, None]
    g *= scale[:, None]
    return G, g, float(square)
