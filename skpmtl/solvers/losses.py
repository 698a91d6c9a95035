"""Smooth part of the objectives over all tasks: value, gradient, curvature, dual value.

W is (n_tasks, n_features): row k holds the weights of task k, so W is the transpose of the
matrix of the papers. Local intercepts are eliminated: every quantity below is already
minimised over them. ``ridge / 2 ||W||_F^2`` belongs to the smooth part.
"""

from copy import copy
from dataclasses import replace
from functools import cached_property

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.special import entr

from .._kernels import passes
from .._runtime.threads import run_blocks, task_blocks
from ..tables.datafits import events, sides, with_events
from ..tables.targets import class_shares
from . import resolvents
from .descent import MatrixSet, RowSet
from .grams import NARROW, SMALL, grams, products, squares

_BLOCK = 1 << 20  # numbers of X that a thread passes over at a time


def make_loss(table, *, task_weight="equal", fit_intercept=True, ridge=0.0):
    """The loss of `table`, in the representation that is cheapest to evaluate.

    Squared loss turns to Gram matrices where they are smaller than the rows they replace, and
    to matrix products where all tasks share one X.
    """
    args = (table, table.scale(task_weight), fit_intercept, ridge)
    if not table.has_log_loss:
        return _squared(*args)
    if table.loss == "poisson":
        return PoissonLoss(*args)
    return MultinomialLoss(*args) if table.n_classes > 2 else LogisticLoss(*args)


def power_iteration(apply, W, n_steps):
    """Largest eigenvalues, from below, of positive maps of the rows of W, (n_rows,)."""
    for _ in range(n_steps):
        W = apply(W / np.maximum(np.sqrt(np.einsum("kj,kj->k", W, W)), 1e-300)[:, None])
    return np.sqrt(np.einsum("kj,kj->k", W, W))


def _stored(table):
    """Numbers of X in a row, about."""
    return -(-table.X.nnz // table.X.shape[0]) if table.is_sparse else table.n_features


def _columns(table, columns):
    X = table.X  # `take` gives C order, unlike X[:, columns]
    return X[:, columns] if table.is_sparse else X.take(columns, axis=1)


def _distinct(X, limit):
    """-> (rows that differ, position among them of every row of X); None: more than `limit`."""
    halves = X.view(np.uint32)  # of numbers, of which the lower ones may all be zero
    weights = np.random.default_rng(0).integers(2**64, size=halves.shape[1], dtype=np.uint64)
    keys, n = np.empty(len(X), dtype=np.uint64), 0
    while n < len(X):  # most tables show in a few rows that there are too many
        start, n = n, min(2 * n + limit + 1, len(X))
        keys[start:n] = np.einsum("ij,j->i", halves[start:n], weights)
        _, first, inverse = np.unique(keys[:n], return_index=True, return_inverse=True)
        if len(first) > limit:
            return None
    if len(first) == len(X):
        return X, np.arange(len(X))
    order = np.argsort(first)
    places = np.argsort(order)[inverse]
    rows = X[first[order]]
    return (rows, places) if np.array_equal(rows[places], X) else None


class RowSpace:
    """Coordinates of weights in the space of all rows, and the loss of these.

    X = L Q' with orthonormal columns Q, so that weights C Q' have the scores of C for the rows L.
    L is the Cholesky factor of X X', which is raised where rows depend on each other. X are the
    rows that differ, so that a row of weight 3 and three equal rows give the same coordinates.
    """

    def __init__(self, loss, X, inverse):
        self.X = X
        K = self.X @ self.X.T
        K.flat[:: len(K) + 1] += 1e-14 * np.trace(K) + 1e-300
        self.L = cholesky(K.T, overwrite_a=True, check_finite=False).T  # in place
        self.loss = loss.with_features(self.L[inverse])
        self.loss.keeps, self.loss.is_few = loss.keeps, True

    def lift(self, C):
        return solve_triangular(self.L, C.T, lower=True, trans=1).T @ self.X

    def drop(self, W):
        return np.ascontiguousarray(solve_triangular(self.L, self.X @ W.T, lower=True).T)


def _shared_features(loss, columns):
    """Those of one X that all tasks have all rows of, (s, n)."""
    X = loss.table.X.take(columns, axis=1).astype(np.float64, copy=False)
    if loss.fit_intercept:
        X = X - X.mean(axis=0)
    return np.multiply(X.T, np.sqrt(loss.scale[0]), order="C")


def _squared(table, *args):
    args = table, *args
    if table.is_sparse:
        return SquaredLoss(*args)
    n, d = table.X.shape
    even = table.weights is None
    if even and table.rows is not None and 3 * table.n_rows > n * table.n_tasks:
        complete = table.n_rows == n * table.n_tasks
        return SharedGramLoss(*args) if complete and n >= d else WideLoss(*args)
    # Half of the rows at most, as a solver adds matrices of its own; small ones are free.
    room = n * d if n * d < SMALL and d <= NARROW else n * d // 2
    if table.rows is None and table.n_tasks * d * d < room:
        return GramLoss(*args)
    return SquaredLoss(*args)


class Loss:
    """Rows of all tasks and products with them: the methods of a loss that `minimize` calls.

    A loss has ``quadratic``, ``evaluate`` (value and minus the gradient), ``curvature_bound``
    (Hessian bound times directions, for step lengths), and for the duality gap ``dual`` and
    ``dual_scale``. ``resolvent`` may give the steps of Douglas-Rachford splitting. One more loss
    of rows brings its ``_residual_kernel``: scores -> derivatives and intercepts.
    """

    alike = False  # whether one curvature is that of all tasks
    is_flat = False  # whether steps may be small far from the solution, also where it is quadratic
    is_few = False  # whether features are coordinates of few rows or directions of many
    has_models = False  # whether there is a `model`, for Newton steps
    keeps = crawls = False  # whether it serves several strengths; whether one took long
    is_bounded = True  # whether its curvature has a bound, without which there are models alone
    repeats = 1  # rows of the table for every row of X that a task has
    steepest = 1.0  # largest second derivative of a row's loss in its score
    entropy_slope = 0.0  # of the dual value in the residuals, where they do not add up to zero

    def __init__(self, table, scale, fit_intercept, ridge):
        self.table = table
        self.scale = scale
        self.fit_intercept = fit_intercept
        self.ridge = float(ridge)
        self.shape = (table.n_tasks, table.n_features)
        self.offsets = table.offsets
        self.y, self.weights = table.y, table.weights
        self._base = None  # scores of rows under a public initial model, in the order of `y`
        if table.base is not None:
            self._base, self._z = np.ascontiguousarray(table.base[:, 0]), np.empty(table.n_rows)
        self._shared, self._x = table.rows is not None, table.stored
        self._rows = self._x[-2]
        width = _stored(table)
        self.blocks = task_blocks(table.offsets, width, _BLOCK)
        # Rows that are used more than once at a time stay in the cache.
        self.near_blocks = task_blocks(table.offsets, width, _BLOCK // 4)
        self._r = np.empty(table.n_rows)
        self._b = np.zeros(table.n_tasks)
        # A shared X that most tasks see most of: two matrix products beat indexed passes.
        self._grid = None
        n, m = table.X.shape[0], table.n_tasks
        if self.repeats == 1 and self._shared and not table.is_sparse and 3 * table.n_rows > n * m:
            self._grid = (table.rows, table.codes)
        self._sizes = None

    def scores(self, W):
        """x' w_k of every row, without intercept, in table order."""
        if self._grid is not None:
            return (self.table.X @ W.T)[self._grid]
        out, own = np.empty(self.table.n_rows), self._in_use(W)
        run_blocks(lambda *block: self._score(*own, out, *block), self.blocks)
        return out

    def through(self, W, inner, scale, out=None):
        """-> (sum of the values v, scale_k X_k' r_k of all tasks) for (v, r) = inner(z, k, l).

        z holds the scores of all rows, of which those of tasks k to l - 1 are known. Where tasks
        do not share X their rows are still in the cache when they are used again.
        """
        out = np.empty(self.shape) if out is None else out
        if self._grid is not None:
            value, r = inner(self.scores(W), 0, self.shape[0])
            out[:] = self._combine_grid(r, scale)
            return value, out
        z, own = np.empty(self.table.n_rows), self._in_use(W)

        def block(first, last):
            self._score(*own, z, first, last)
            value, r = inner(z, first, last)
            self._combine(r, scale, out, first, last)
            return value

        return sum(run_blocks(block, self.near_blocks)), out

    def _in_use(self, W):
        """X as kernels take it, and W, without columns whose weights are zero if few are not."""
        if self.table.is_sparse:
            return self._x, np.ascontiguousarray(W)
        used = np.flatnonzero(W.any(axis=0))
        if 4 * len(used) > self.shape[1]:
            return self._x, np.ascontiguousarray(W)
        X = self.table.X.take(used, axis=1)
        return (X, *self._x[1:]), W.take(used, axis=1)

    def _score(self, x, W, out, first, last):
        kernel = passes.csr_scores if self.table.is_sparse else passes.scores
        kernel(*x, self.offsets[first : last + 1], W[first:last], out)

    def _combine(self, r, scale, out, first, last):
        kernel = passes.csr_combine if self.table.is_sparse else passes.combine
        part = slice(first, last)
        kernel(*self._x, self.offsets[first : last + 1], r, scale[part], out[part])

    def _combine_grid(self, r, scale):
        R = np.zeros((self.table.X.shape[0], self.shape[0]))
        R[self._grid] = r
        return (R.T @ self.table.X) * scale[:, None]

    def _residuals(self, z):
        """Residuals and intercepts at the scores z. -> value of the loss"""
        return sum(run_blocks(lambda *block: self._at_scores(z, *block)[0], self.blocks))

    def _whole(self, z, first, last):
        """The scores z plus those of the public initial model, of tasks `first` to `last`."""
        if self._base is None:
            return z
        rows = slice(self.offsets[first], self.offsets[last])
        np.add(z[rows], self._base[rows], out=self._z[rows])
        return self._z

    def _entropy(self, entropy, theta):
        """Dual value of the entropies of rows, and of theta times the residuals at the start."""
        if self.weights is not None:
            entropy *= self.weights
        if self._base is not None:
            entropy -= theta * self._r * self._base
        return float(self.scale @ np.add.reduceat(entropy, self.offsets[:-1]))

    def _at_scores(self, z, first, last):
        part = slice(first, last)
        z = self._whole(z, first, last)
        value = self._residual_kernel(
            z,
            self.y,
            self.offsets[first : last + 1],
            self.scale[part],
            self.fit_intercept,
            self._r,
            self._b[part],
            self.counts,
        )
        return value, self._r

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
        value, V = self.through(W, self._at_scores, self.scale)
        return self._with_ridge(value, V, W)

    def curvatures(self, n_steps=6):
        """Largest curvature of every task, by power iteration on all tasks at once.

        It approaches the largest eigenvalue from below: leave a margin, or lengthen the
        bound when a step fails to decrease the objective.
        """
        # One start for all, so that a task's number does not depend on its company.
        W = np.random.default_rng(0).standard_normal((1, self.shape[1]))
        W = W if self.alike else np.tile(W, (self.shape[0], 1))
        return np.broadcast_to(power_iteration(self.curvature_bound, W, n_steps), self.shape[:1])

    @cached_property
    def counts(self):
        """Those of the table, which a loss of the same rows with other features takes over."""
        return self.table.counts

    @cached_property
    def unit(self):
        """What rounding makes of a sum over rows, features or tasks, in parts of its terms."""
        return 2.0**-52 * np.sqrt(self.table.sizes.max() + sum(self.shape))

    def sizes(self):
        """Root of scale_k times the sum of squares of X_k, y_k and C y_k. -> (3, m)"""
        if self._sizes is None:
            X, y = self.table.X, self._score_sizes()
            if self._base is not None:
                y = np.abs(y) + np.abs(self._base)
            if self.table.is_sparse:
                squares = np.asarray(X.multiply(X).sum(axis=1)).ravel()
            else:
                squares = np.einsum("ij,ij->i", X, X, dtype=np.float64)
            squares = squares[self._rows] if self._shared else squares
            w = 1.0 if self.weights is None else self.weights
            rows = (w * part for part in (squares, y * y, self._centred(y) ** 2))
            sums = [np.add.reduceat(part, self.offsets[:-1]) for part in rows]
            self._sizes = np.sqrt(self.scale * np.stack(sums))
        return self._sizes

    def diagonals(self):
        """Of the matrices scale_k X_k' C X_k, (m, d); (1, d) where they are the same."""
        return squares(self.table, self.fit_intercept) * self.scale[:, None]

    def _score_sizes(self):
        """What scores of rows are up to, but for the weights: targets."""
        return self.y

    def _centred(self, y):
        """y less its mean in every task, with intercepts."""
        if not self.fit_intercept:
            return y
        sums = np.add.reduceat(y if self.weights is None else self.weights * y, self.offsets[:-1])
        return y - np.repeat(sums / self.table.support, self.table.sizes)

    def rounding(self, W, value):
        """Bounds on what rounding did where the loss was evaluated last. -> error, slack

        A score is wrong by c times the terms that it is added up from, a residual by c b_k where
        b_k = Y_k + X_k ||w_k|| (`sizes`), and the value by c (value + r b) + (c b)^2 / 2; V is
        wrong by c X_k r_k, for residuals that are certain, as any may stand in a dual value. With
        intercepts they must add up to zero: what is left of the sum moves V by the mean row times
        it, and the dual value by its slope. See `skpmtl.solvers.certificate`.
        """
        c, (X, y, _) = self.unit, self.sizes()
        r, left = self._residual_sizes()
        r, left = np.sqrt(self.scale * r), np.abs(left) * self.fit_intercept
        big = np.linalg.norm(y + X * np.sqrt(np.einsum("kj,kj->k", W, W)))
        error = c * (3.0 * abs(value) + 2.0 * np.linalg.norm(r) * big) + 0.5 * (c * big) ** 2
        slope = self.entropy_slope
        if self._base is not None:  # what the residuals at the start have of it
            slope += np.abs(self._base).max(initial=0.0)
        error += slope * float(self.scale @ left)
        return error, np.linalg.norm(X * (c * r + np.sqrt(self.scale / self.table.support) * left))

    def _residual_sizes(self):
        """Squares of the residuals of each task at the last evaluation, summed, and their sums."""
        starts, r = self.offsets[:-1], self._r
        squares = r * r if self.weights is None else r * r / self.weights  # r has them in it
        return np.add.reduceat(squares, starts), np.add.reduceat(r, starts)

    def has_sets(self, n_features):
        """Whether there is a `working_set`, of so many features."""
        return False

    def dual_scale(self, W, value):
        """Factor of the residuals from which the search for the best dual value starts."""
        return 1.0

    def restricted(self, columns):
        """The loss as a function of the weights of some columns, the others being zero."""
        return self.with_features(_columns(self.table, columns))

    def with_features(self, X):
        """The loss of the same rows with other features."""
        part = copy(self)
        for name in ("row_space", "dense"):
            part.__dict__.pop(name, None)
        part.table = replace(self.table, X=X)
        part.shape = (self.shape[0], X.shape[1])
        part._x = part.table.stored
        return part

    @cached_property
    def dense(self):
        """The loss of the rows of a sparse table as dense ones."""
        found = self.with_features(self.table.X.toarray())
        found.keeps = self.keeps
        return found

    @cached_property
    def row_space(self):
        """Where at most half as many rows differ as there are features: a `RowSpace`; else None."""
        X = self.table.X
        if self.table.is_sparse or X.dtype != np.float64:
            return None
        found = _distinct(X, X.shape[1] // 2)
        return None if found is None or not X.any() else RowSpace(self, *found)

    def rows(self, first, last):
        """Dense rows of the tasks from `first` to `last`; a copy where tasks share X."""
        rows = slice(self.offsets[first], self.offsets[last])
        X = self.table.X[self._rows[rows] if self._shared else rows]
        return X.toarray() if self.table.is_sparse else X

    def curvature_bound(self, D):
        """Hessian bound of every task times the rows of D.

        Curvatures q of rows are at most `steepest`, c, and an intercept at its optimum leaves
        min over b of sum q (z - b)^2 <= c sum (z - mean)^2.
        """
        out = self.curvature(D)
        out *= self.steepest
        if self.ridge:
            out += (1.0 - self.steepest) * self.ridge * D
        return out

    def curvature(self, D):
        """scale_k X_k' C X_k d_k + ridge d_k, C the (weighted) centring with intercepts."""
        centre, weights = self.fit_intercept, self.counts

        def centred(z, first, last):
            if centre or self.weights is not None:
                passes.centre_scores(z, self.offsets[first : last + 1], weights, centre)
            return 0.0, z

        out = self.through(D, centred, self.scale)[1]
        if self.ridge:
            out += self.ridge * D
        return out


class SquaredLoss(Loss):
    """sum_k scale_k / 2 ||y_k - X_k w_k - b_k||^2 + ridge / 2 ||W||_F^2 on rows."""

    quadratic = True
    _residual_kernel = staticmethod(passes.squared_residuals)
    _kept = None

    def dual_terms(self, W, value):
        """-> (a, q): the dual value of theta times the residuals is theta a - theta^2 q / 2."""
        # Residuals add up to zero, but for rounding, and y may be far from it.
        y = self._centred(self.y)
        a = float(np.repeat(self.scale, self.table.sizes) * self._r @ y)
        return a, 2.0 * value - self.ridge * np.vdot(W, W)

    def dual(self, theta, W, value):
        a, q = self.dual_terms(W, value)
        return theta * a - 0.5 * theta**2 * q

    def dual_scale(self, W, value):
        """The theta that maximises the dual value of theta times (residuals, ridge term)."""
        a, q = self.dual_terms(W, value)
        q += self.ridge * np.vdot(W, W)
        return a / q if q > 0 else 1.0

    def _part(self, columns):
        """That of some columns, where matrices are still to be taken."""
        part = Loss.with_features(self, _columns(self.table, columns))
        part._kept = None
        return part

    def with_features(self, X):
        return _squared(replace(self.table, X=X), self.scale, self.fit_intercept, self.ridge)

    def resolvent(self, share, *_):
        """Exact steps for Douglas-Rachford splitting, see `resolvents`; None: they are too dear."""
        kept = self._kept
        if kept is None or type(kept[0]) is not type(share) or not 0.5 <= share / kept[0] <= 2.0:
            self._kept = kept = None
            found = share, self._resolvent(share)
            if not self.keeps:
                return found[1]
            self._kept = found
        return self._kept[1]

    def _resolvent(self, share):
        return resolvents.squared(self, share)

    def features(self, columns):
        """Columns of X, centred and weighted as the loss does. -> (s, N) by task, or (s, n) of rows
        that are those of all tasks"""
        X = self.table.X
        X = X[:, columns].toarray() if self.table.is_sparse else X.take(columns, axis=1)
        X = X[self._rows] if self._shared else X.astype(np.float64, copy=False)
        if self.fit_intercept:
            sums = X if self.weights is None else self.weights[:, None] * X
            means = np.add.reduceat(sums, self.offsets[:-1]) / self.table.support[:, None]
            X = X - np.repeat(means, self.table.sizes, axis=0)
        return np.multiply(X.T, self._roots(), order="C")

    def targets(self):
        """Targets of all rows, task after task, centred and weighted as the loss does."""
        return self._roots() * self._centred(self.y)

    def _roots(self):
        scale = np.repeat(self.scale, self.table.sizes)
        return np.sqrt(scale if self.weights is None else scale * self.weights)

    def has_sets(self, n_features):
        # Of sparse rows, while dense columns take no more room than they do.
        table = self.table
        room = max(SMALL, table.X.nnz) if table.is_sparse else np.inf
        return n_features * table.n_rows <= room

    def working_set(self, alpha):
        """Of no features yet, for coordinate descent; see `descent`."""
        return RowSet(self, alpha)


class GramLoss(SquaredLoss):
    """The same through G_k = scale_k X_k' C X_k and g_k = scale_k X_k' C y_k."""

    def __init__(self, table, scale, fit_intercept, ridge):
        super().__init__(table, scale, fit_intercept, ridge)
        self.G, self.g, self.square = grams(
            table.X, table.y, table.offsets, scale, fit_intercept, table.weights
        )

    def diagonals(self):
        return np.einsum("kjj->kj", self.G)

    def _product(self, W):
        out = np.empty(self.shape)
        products(self.G, np.ascontiguousarray(W), out)
        return out

    def evaluate(self, W):
        V = self.g - self._product(W)
        # 1/2 sum scale ||y||^2 - w'g + 1/2 w'Gw with Gw = g - V
        value = 0.5 * (self.square - np.vdot(W, self.g) - np.vdot(W, V))
        return self._with_ridge(value, V, W)

    def dual_terms(self, W, value):
        return self.square - np.vdot(W, self.g), 2.0 * value - self.ridge * np.vdot(W, W)

    def rounding(self, W, value):
        """Of the matrices, whose entries are wrong by c ||x_i|| ||x_j||, independently of each
        other: with s_k^2 = ||C y_k||^2 + sum_j w_kj^2 G_kjj the value is wrong by c s^2 and V by
        c s_k tr(G_k)^1/2. Means that are subtracted are wrong by c times their size, which comes
        in squared, with the b of rows."""
        c, (X, y, centred) = self.unit, self.sizes()
        diagonals = self.diagonals()
        size = np.sqrt(centred**2 + (W * W * diagonals).sum(axis=1))
        big = y + X * np.sqrt(np.einsum("kj,kj->k", W, W))
        error = 2.0 * c * (size @ size) + 0.5 * c * c * (big @ big)
        spread = np.sqrt(diagonals.sum(axis=-1))
        return error, c * np.linalg.norm(spread * size) + c * c * np.linalg.norm(X * big)

    def curvature(self, D):
        return self._product(D) + self.ridge * D

    def restricted(self, columns):
        part = self._part(columns)
        part.G, part.g = self.G[:, columns[:, None], columns], self.g[:, columns]
        return part

    def matrices(self, columns):
        """Those of some columns, (s, s, m), or (s, s, 1) where they are the same."""
        return np.ascontiguousarray(self.G[:, columns[:, None], columns].transpose(1, 2, 0))

    def working_set(self, alpha):
        return MatrixSet(self, alpha)

    def _resolvent(self, share):
        return resolvents.by_features(self.G.copy(), self.g, self.ridge, share)


class WideLoss(SquaredLoss):
    """The squared loss of tasks that share X, by products of whole matrices.

    ``Y`` (n, m) holds 0 where a label is missing, ``known`` the mask.
    """

    def __init__(self, table, scale, fit_intercept, ridge):
        super().__init__(table, scale, fit_intercept, ridge)
        n, m = table.X.shape[0], table.n_tasks
        self.Y, self.known = np.zeros((n, m)), np.zeros((n, m))
        self.Y[self._grid], self.known[self._grid] = table.y, 1.0

    def _resolvent(self, share):
        return None

    def features(self, columns):
        if self.known.all():
            return _shared_features(self, columns)
        return super().features(columns)

    def evaluate(self, W):
        X = self.table.X
        used = np.flatnonzero(W.any(axis=0))
        Z = X[:, used] @ W[:, used].T if 2 * len(used) < len(W.T) else X @ W.T
        R = np.subtract(self.Y, Z, out=Z)
        R *= self.known
        for _ in range(2 if self.fit_intercept else 0):  # see passes.squared_residuals
            R -= (R.sum(axis=0) / self.table.sizes) * self.known
        self._residual = R
        value = 0.5 * float(self.scale @ np.einsum("ik,ik->k", R, R))
        V = (R.T @ X) * self.scale[:, None]
        return self._with_ridge(value, V, W)

    def dual_terms(self, W, value):
        R, means = self._residual, self.Y.sum(axis=0) / self.table.sizes
        products = np.einsum("ik,ik->k", R, self.Y)
        if self.fit_intercept:
            products -= means * R.sum(axis=0)
        a = float(self.scale @ products)
        return a, 2.0 * value - self.ridge * np.vdot(W, W)

    def _residual_sizes(self):
        R = self._residual
        return np.einsum("ik,ik->k", R, R), R.sum(axis=0)


class SharedGramLoss(SquaredLoss):
    """The squared loss when every task has all rows of one X: a single Gram matrix."""

    alike = True

    def __init__(self, table, scale, fit_intercept, ridge):
        super().__init__(table, scale, fit_intercept, ridge)
        X, Y = table.X, np.empty((table.n_tasks, table.X.shape[0]))
        Y[self._grid[::-1]] = table.y
        Y = Y.T
        self._means = np.zeros(X.shape[1]), np.zeros(table.n_tasks)
        if fit_intercept:
            self._means = X.mean(axis=0), Y.mean(axis=0)
            X, Y = X - self._means[0], Y - self._means[1]
        self._X, self._G = X, None
        self.g = (Y.T @ X) * scale[0]
        self.square = scale[0] * float(np.vdot(Y, Y))

    @property
    def G(self):
        if self._G is None:
            self._G = (self._X.T @ self._X) * self.scale[0]
        return self._G

    def restricted(self, columns):
        part = self._part(columns)
        part._X, part._G, part.g = self._X[:, columns], None, self.g[:, columns]
        return part

    def diagonals(self):
        if self._G is not None:
            return np.diag(self._G)[None]
        return np.einsum("ij,ij->j", self._X, self._X, dtype=np.float64)[None] * self.scale[0]

    def intercepts(self, W):
        return self._means[1] - W @ self._means[0]

    def _product(self, W):
        used = np.flatnonzero(W.any(axis=0))
        if 2 * len(used) >= W.shape[1]:
            return W @ self.G
        if self._G is None:  # a few of its rows do
            return W[:, used] @ ((self._X[:, used].T @ self._X) * self.scale[0])
        return W[:, used] @ self.G[used]

    def matrices(self, columns):
        if self._G is not None:
            return self._G[np.ix_(columns, columns)][:, :, None]
        X = self._X[:, columns]
        return ((X.T @ X) * self.scale[0])[:, :, None]

    def working_set(self, alpha):
        return MatrixSet(self, alpha)

    def _resolvent(self, share):
        mean = float(np.trace(self.G)) / len(self.G)
        if not mean > 0:
            return None
        rho = float(share) if isinstance(share, resolvents.Step) else mean
        if isinstance(share, resolvents.Fraction):
            rho *= float(share)
        rho += self.ridge
        inverse = np.linalg.inv(self.G + (rho + self.ridge) * np.eye(len(self.G)))
        return rho, lambda W, S, V: (self.g + rho * (2.0 * W - S)) @ inverse - W

    evaluate = GramLoss.evaluate
    dual_terms = GramLoss.dual_terms
    rounding = GramLoss.rounding
    curvature = GramLoss.curvature


class LogisticLoss(Loss):
    """sum_k scale_k sum_i log(1 + exp(-y (x w_k + b_k))) + ridge / 2 ||W||_F^2, y in {-1, 1}.

    With 0 < |y| < 1 a row counts (1 + y) / 2 for one class and (1 - y) / 2 for the other.
    """

    quadratic = False
    steepest = 0.25
    entropy_slope = 32.0
    _residual_kernel = staticmethod(passes.logistic_residuals)

    def resolvent(self, share, W, floor, lean=False):
        """Steps with the Hessians at W, see `resolvents.curved`; None: they are too dear."""
        return resolvents.curved(self, share, W, floor, lean)

    def slopes(self, W):
        """Derivative q of the logistic function at every row, at most 1/4."""
        self._residuals(self.scores(W))
        q = self._others(1.0)
        return q * (1.0 - q)

    @property
    def has_models(self):
        """Where the squared loss is cheaper: its steps do not pass over the rows."""
        return resolvents.narrower(self, resolvents.room_beside(self)) == "features"

    def model(self, W, floor):
        """The squared loss that has the gradient at W and its Hessian, with slopes raised a little.

        Rows weigh q and aim at their score plus residual / q: a step of reweighted least squares.
        """
        z = self.scores(W)
        self._residuals(z)
        r, q = self._r.copy(), self._others(1.0)
        q *= 1.0 - q
        q *= 1.0 - floor
        q += self.steepest * floor
        if self.weights is not None:
            q *= self.weights
        r /= q
        r += z
        table = replace(self.table, y=r, weights=q, masses=None, base=None)
        return _squared(table, self.scale, self.fit_intercept, self.ridge)

    def _others(self, theta):
        """What the other class has of every row, with `theta` times the residuals."""
        side, share = sides(self.y)
        q = theta * self._r
        if self.weights is not None:
            q /= self.weights
        q *= side
        q += share
        return q

    def dual(self, theta, W, value):
        """Sum of the binary entropies of the targets less theta times the residuals."""
        u = self._others(theta)
        np.clip(u, 0.0, 1.0, out=u)
        entropy = entr(u)
        entropy += entr(np.subtract(1.0, u, out=u), out=u)
        return self._entropy(entropy, theta)


class PoissonLoss(Loss):
    """sum_k scale_k times half of the deviance of counts + ridge / 2 ||W||_F^2.

    The logarithm of a mean is x w_k + b_k, and log-exposures of the rows. The curvature of a row is
    its mean count, which has no bound: there are no gradient steps, only those of `model`.
    """

    quadratic = is_bounded = False
    has_models = True
    entropy_slope = 32.0
    _residual_kernel = staticmethod(passes.poisson_residuals)

    def __init__(self, table, scale, fit_intercept, ridge):
        table = with_events(table) if fit_intercept else table
        super().__init__(table, scale, fit_intercept, ridge)

    def _score_sizes(self):
        return np.full(len(self.y), self.entropy_slope)  # logarithms of counts

    @property
    def steepest(self):
        """The mean count, as a typical curvature."""
        return float(events(self.table).sum()) / self.table.n_rows

    def model(self, W, floor):
        """The squared loss with gradient and Hessian at W: a step of reweighted least squares.

        Means are raised to `floor` times the largest of their task: weights have an inverse.
        """
        z, r = self.scores(W), self._r
        self._residuals(z)
        q = self.y - r
        largest = np.maximum.reduceat(q, self.offsets[:-1])
        np.maximum(q, floor * np.repeat(largest, self.table.sizes), out=q)
        table = replace(self.table, y=z + r / q, weights=q, masses=None, base=None)
        return _squared(table, self.scale, self.fit_intercept, self.ridge)

    def dual(self, theta, W, value):
        """Minus the conjugates of the deviances at minus theta times the residuals."""
        q = self.y - theta * self._r
        np.maximum(q, 0.0, out=q)
        return self._entropy(entr(q) + q - entr(self.y) - self.y, theta)


class MultinomialLoss(Loss):
    """sum_k scale_k sum_i -sum_c t_ic log p_ic, p_i the softmax of the scores, + the ridge term.

    W has a row for every task and class, (n_tasks * n_classes, d), class after class: rows of a
    task are read once for each of them, by index.
    """

    quadratic = False
    steepest = 0.5
    entropy_slope = 32.0

    def __init__(self, table, scale, fit_intercept, ridge):
        C = self.n_classes = self.repeats = table.n_classes
        sizes = np.repeat(table.sizes, C)
        ends = np.concatenate([[0], np.cumsum(sizes)])
        starts = np.repeat(table.offsets[:-1], C) - ends[:-1]
        places = np.repeat(starts, sizes) + np.arange(ends[-1])
        which = np.repeat(np.tile(np.arange(C), table.n_tasks), sizes)
        y = class_shares(table.y, C)[places, which]
        rows = places if table.rows is None else table.rows[places]
        weights = None if table.weights is None else table.weights[places]
        whole = replace(
            table,
            y=y,
            offsets=ends,
            tasks=np.repeat(table.tasks, C),
            rows=rows,
            weights=weights,
            masses=None,
            base=None if table.base is None else table.base[places, which][:, None],
        )
        super().__init__(whole, np.repeat(scale, C), fit_intercept, ridge)
        for name, limit in (("blocks", _BLOCK), ("near_blocks", _BLOCK // 4)):
            # All classes of a task together.
            cut = task_blocks(table.offsets, C * _stored(table), limit)
            setattr(self, name, [(C * first, C * last) for first, last in cut])

    def _at_scores(self, z, first, last):
        value = passes.multinomial_residuals(
            self._whole(z, first, last),
            self.y,
            self.offsets[first : last + 1],
            self.n_classes,
            self.scale[first:last],
            self.fit_intercept,
            self._r,
            self._b[first:last],
            self.counts,
        )
        return value, self._r

    def resolvent(self, share, W, floor, lean=False):
        """That of `resolvents.curved` class by class, but for what all classes have in common: the
        loss has no curvature there, and scores of the classes apart from each other have."""
        found = resolvents.curved(self, share, W, floor, lean)
        if found is None:
            return None

        def common(U):
            return U.reshape(-1, self.n_classes, self.shape[1]).mean(axis=1, keepdims=True)

        def step(W, S, V):
            rho = found[0]
            level = (common(V) + rho * (common(W) - common(S))) / (rho + self.ridge)
            out = found[1](W, S, V)
            level -= common(out)
            out.reshape(-1, self.n_classes, self.shape[1])[:] += level
            return out

        return found[0], step

    def slopes(self, W):
        """2 p (1 - p) for every row and class, at most 1/2: diag(p) - pp' is at most that matrix.

        Off the diagonal what is left has p_c p_o, and on it as much as the others of its row
        together.
        """
        self._residuals(self.scores(W))
        p = self.y - (self._r if self.weights is None else self._r / self.weights)
        return 2.0 * p * (1.0 - p)

    def dual(self, theta, W, value):
        """Sum of the entropies of the targets less theta times the residuals."""
        q = -theta * self._r
        if self.weights is not None:
            q /= self.weights
        q += self.y
        np.clip(q, 0.0, 1.0, out=q)
        return self._entropy(entr(q, out=q), theta)
