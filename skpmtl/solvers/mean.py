"""Exact minimum of the mean-regularised objective, when there is no privacy to keep.

sum_k [ loss_k(w_k, b_k) + lam / 2 ||w_k - v||^2 ] + ridge / 2 sum_k ||w_k||^2, minimised over
the w_k, the intercepts b_k and v, which puts v at the mean of the w_k (of each cluster), or
with a relation at their least-squares fit by its columns.
"""

import warnings
from dataclasses import replace
from functools import cached_property

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from .._kernels.grams import build_row_grams, invert_row_grams
from .._kernels.newton import hessian_product, row_arrow, row_gram_rows, scale_row_grams
from .._kernels.passes import combine, scores
from .._runtime.stack import users_line
from .._runtime.threads import cost_blocks, in_order, run_blocks, single_blas_thread
from ..tables.datafits import DATAFITS, LOGISTIC, levels_of, with_events
from .centred import CentredTasks
from .grams import SMALL, RowGrams, grams, row_blocks, squares, task_grams
from .losses import SquaredLoss
from .ridge import Multinomial, OfOne

_FAR = 1e3  # unit of the features from which on they are scaled, for which rows are copied
_DIRECT = 600  # features up to which tasks are factorised
_BLOCK = 1 << 18  # numbers of rows and models that a thread works on at a time
_JOINT = 1 << 25  # numbers of matrices from which on all classes share one per task
_SPARSE = 0.05  # share of entries up to which products pass over those that are not zero
_INNER_TOL = 1e-2  # part of the tolerance that models have
_MEMORY = 8  # steps of Anderson's method
_WORSE = 2.0  # times the last step, from which an extrapolated one is taken back


def minimize_exactly(centred, lam, *, tol, max_iter, log=None):
    """-> W (n_tasks, n_outputs, d), b (n_tasks, n_outputs), objective, n_iter; dense rows.

    Newton steps end when none of the coefficients moves by more than `tol` times the largest.
    """
    with single_blas_thread():
        if centred.problem.loss == "squared" and centred.table.n_features <= _DIRECT:
            solve = _least_squares_by_rows if _is_short(centred) else _least_squares
            W = solve(centred, lam)
            settings = centred.scale, centred.problem.fit_intercept, 0.0
            b = SquaredLoss(centred.table, *settings).intercepts(W)
            Wb = np.concatenate([W[:, None], b[:, None, None]], axis=2)
            return W[:, None], b[:, None], State(centred, lam).value(Wb), 1
        unit = unit_of(centred.table, centred.problem.fit_intercept)
        if max(unit, 1.0 / unit) > _FAR:
            centred, lam = in_unit(centred, lam, unit), lam / unit**2
        else:
            unit = 1.0
        kind = _RowArrow if _is_short(centred) else Arrow
        W, b, objective, n_iter = newton(State(centred, lam), tol, max_iter, log, kind)
        return W / unit if unit != 1.0 else W, b, objective, n_iter


def unit_of(table, centre):
    """A power of two near the size of the features, less their means if `centre`."""
    mean = squares(table, centre).sum() / (table.n_rows * table.n_features)
    return 2.0 ** np.round(0.5 * np.log2(mean)) if mean > 0 else 1.0


def in_unit(centred, lam, unit):
    """Tasks whose features are divided by a power of two; `lam` stays that of intercepts."""
    problem = replace(centred.problem, lam=lam, ridge=centred.problem.ridge / unit**2)
    table = replace(centred.table, X=centred.table.X / unit)
    return CentredTasks(table, problem, centred.which)


def _is_short(centred):
    """Whether matrices of the rows of every task are smaller than those of the features."""
    sizes = centred.table.sizes
    return int(sizes @ sizes) < len(sizes) * centred.table.n_features**2


def cluster_means(W, which, count):
    """Mean of the tasks `which` of each cluster, (n_clusters, ...)."""
    if len(count) == 1:
        return W.mean(axis=0)[None]
    total = np.zeros((len(count), *W.shape[1:]))
    np.add.at(total, which, W)
    return total / count.reshape(-1, *[1] * (W.ndim - 1))


def _least_squares(centred, lam):
    """w_k = P_k (g_k + lam v) with P_k = (G_k + (lam + ridge) I)^-1, and v their mean."""
    table, problem, which = centred.table, centred.problem, centred.which
    d, count = table.n_features, np.bincount(which)
    diagonal = np.arange(d)
    A, r = np.zeros((len(count), d, d)), np.zeros((len(count), d))
    small = table.n_tasks * d * d < SMALL  # then the matrices are built once
    settings = table, problem, centred.scale
    blocks = list(task_grams(*settings)) if small else None
    for first, last, G, g in blocks or task_grams(*settings):
        G = G.copy()
        G[:, diagonal, diagonal] += problem.ridge
        H = G.copy()
        H[:, diagonal, diagonal] += lam
        # I - lam P_k without the cancellation: P_k (G_k + ridge I).
        solved = np.linalg.solve(H, np.concatenate([G, g[:, :, None]], axis=2))
        np.add.at(A, which[first:last], solved[:, :, :d])
        np.add.at(r, which[first:last], solved[:, :, d])
    v = np.stack([np.linalg.lstsq(a, b, rcond=1e-13)[0] for a, b in zip(A, r, strict=True)])
    W = np.empty((table.n_tasks, d))
    for first, last, G, g in blocks or task_grams(*settings):
        H = G.copy()
        H[:, diagonal, diagonal] += lam + problem.ridge
        right = g + lam * v[which[first:last]]
        W[first:last] = np.linalg.solve(H, right[:, :, None])[:, :, 0]
    return W


def _least_squares_by_rows(centred, lam):
    """`_least_squares` by matrices n_k x n_k.

    With Z and u the centred rows and targets of a task, t = lam + ridge and
    K = (Z Z' + t / s I)^-1, lam P_k = lam / t (I - Z' K Z) and P_k g_k = Z' K u.
    """
    table, problem, which = centred.table, centred.problem, centred.which
    d, t, centre = table.n_features, lam + problem.ridge, problem.fit_intercept
    sizes, count = table.sizes, np.bincount(which)
    A, r = np.zeros((len(count), d, d)), np.zeros((len(count), d))
    matrices = RowGrams(SquaredLoss(table, centred.scale, centre, 0.0))
    matrices.invert(t / centred.scale)
    np.add.at(r, which, matrices.product(np.zeros((table.n_tasks, d)), 1.0))
    for first, last, rows, X in row_blocks(table):
        part, ends = slice(first, last), table.offsets[first : last + 1] - rows.start
        Z, KZ = X.copy(), np.empty(X.shape)
        roots = None if table.weights is None else matrices.roots[rows, None]
        if centre:
            total = np.add.reduceat(Z if roots is None else roots**2 * Z, ends[:-1])
            Z -= np.repeat(total / table.support[part, None], sizes[part], axis=0)
        if roots is not None:
            Z *= roots
        row_gram_rows(matrices.K, ends, matrices.starts[first : last + 1], Z, KZ)
        for cluster in np.unique(which[part]):
            inside = np.repeat(which[part] == cluster, sizes[part])
            inside = slice(None) if inside.all() else inside
            A[cluster] += Z[inside].T @ KZ[inside]
    A *= lam / t
    A += (problem.ridge / t * count)[:, None, None] * np.eye(d)
    v = np.stack([np.linalg.lstsq(a, b, rcond=1e-13)[0] for a, b in zip(A, r, strict=True)])
    W = lam / t * v[which]
    W += matrices.product(W, 1.0)
    return W


def _sparse_blocks(table):
    """Rows of each task, with a one for its intercept, in columns of its own; None: dense rows."""
    if np.count_nonzero(table.X) > _SPARSE * table.X.size:
        return None
    X = sparse.csr_array(table.X)
    X = X if table.rows is None else X[table.rows]
    X = sparse.hstack([X, np.ones((table.n_rows, 1))], format="csr")
    width = X.shape[1]
    X.indices = X.indices + width * np.repeat(table.codes, np.diff(X.indptr))
    return sparse.csr_array(
        (X.data, X.indices, X.indptr), shape=(len(X.indptr) - 1, table.n_tasks * width)
    )


class State:
    """Objective over models with their intercepts last, (n_tasks, n_outputs, d + 1).

    Everything of the size of all models is made by the caller or here once: the rest is done
    block by block of tasks.
    """

    def __init__(self, centred, lam):
        table, problem = centred.table, centred.problem
        self.centred, self.lam, self.ridge = centred, lam, problem.ridge
        self.which, self.count = centred.which, np.bincount(centred.which)
        self.strengths = np.full(table.n_tasks, lam)  # second derivatives of the penalty of a task
        self.rows = table.stored
        y = with_events(table).y if problem.loss == "poisson" else table.y
        self._y, self.counts = y, table.counts
        datafit = {**DATAFITS, "logistic": LOGISTIC}.get(problem.loss)
        self.loss = Multinomial() if datafit is None else OfOne(datafit)
        self.held = centred.held if problem.fit_intercept else None
        # Probabilities of several classes, or curvatures of rows; and scratch.
        self.P = np.empty((table.n_rows, problem.n_outputs))
        self._z = np.empty((problem.n_outputs, table.n_rows))
        self.gradient = None
        width = table.n_features + 1
        self.blocks = cost_blocks((table.sizes + problem.n_outputs) * width, _BLOCK)

    def _shared(self, W):
        """What the tasks share at the weights W (n_tasks, n_outputs, d): means of clusters."""
        return cluster_means(W, self.which, self.count)

    def _quadratic(self, W, shared, part):
        """-> twice the penalty of the weights W of the tasks `part`, its gradient

        Differences to means are squared, not multiplied by W: that stays above zero where a common
        part of all tasks is large.
        """
        V = W - (shared if len(shared) == 1 else shared[self.which[part]])
        value = self.lam * float(np.vdot(V, V))
        V *= self.lam
        return value, V

    def _penalty(self, U, shared, part):
        """Penalties at U of the tasks `part`, and their gradient (the Hessian times U)."""
        U = U[part]
        out, W = np.zeros_like(U), U[:, :, :-1]
        value, out[:, :, :-1] = self._quadratic(W, shared, part)
        if self.ridge:
            value += self.ridge * float(np.einsum("kcj,kcj->", W, W))
            out[:, :, :-1] += self.ridge * W
        if self.held is not None:
            b = U[:, :, -1]
            out[:, :, -1] = self.held[part, None] * b
            value += float(np.vdot(out[:, :, -1], b))
        return 0.5 * value, out

    def _scores(self, U, first, last):
        """Of the rows of some tasks at the models U, (n, n_outputs)."""
        ends, part = self.centred.table.offsets[first : last + 1], slice(first, last)
        for c, out in enumerate(self._z):
            scores(*self.rows, ends, np.ascontiguousarray(U[part, c, :-1]), out)
        levels = np.repeat(U[part, :, -1], np.diff(ends), axis=0)
        return self._z[:, slice(*ends[[0, -1]])].T + levels

    def _gather(self, D, first, last, out):
        """Derivatives by the models of some tasks, from those D (n, n_outputs) by their scores."""
        ends, part = self.centred.table.offsets[first : last + 1], slice(first, last)
        rows, scale = slice(*ends[[0, -1]]), self.centred.scale[part]
        self._z[:, rows] = self.counts[rows] * D.T
        G = np.empty((last - first, out.shape[2] - 1))
        for c, r in enumerate(self._z):
            combine(*self.rows, ends, r, scale, G)
            out[part, c, :-1] = G
            out[part, c, -1] = scale * np.add.reduceat(r[rows], ends[:-1] - ends[0])

    def value(self, Wb):
        """Objective; leaves the gradient and what Hessian products need."""
        self.gradient = None
        table, scale = self.centred.table, self.centred.scale
        gradient, offsets = np.empty_like(Wb), table.offsets
        shared = self._shared(Wb[:, :, :-1])

        def block(first, last):
            part, rows = slice(first, last), slice(offsets[first], offsets[last])
            z = self._scores(Wb, first, last)
            z = z if table.base is None else z + table.base[rows]
            with np.errstate(all="ignore"):
                losses = self.counts[rows] * self.loss.values(self._y[rows], z)
                slopes, self.P[rows] = self.loss.exact(self._y[rows], z)
            value = scale[part] @ np.add.reduceat(losses, offsets[part] - offsets[first])
            self._gather(slopes, first, last, gradient)
            penalty, slope = self._penalty(Wb, shared, part)
            gradient[part] += slope
            self._fix(gradient[part])
            return value + penalty

        value = sum(run_blocks(block, self.blocks))
        self.gradient = gradient
        return value

    def product(self, U, out):
        """out = Hessian times U, at the models of the last `value`."""
        offsets, scale = self.centred.table.offsets, self.centred.scale
        shared = self._shared(U[:, :, :-1])
        if self._sparse is not None:
            self._sparse_product(U, out)

        def block(first, last):
            part = slice(first, last)
            if self._sparse is None:
                of = offsets[first : last + 1], scale[part], self.P, U[part], out[part]
                hessian_product(*self.rows, *of, self.counts)
            out[part] += self._penalty(U, shared, part)[1]
            self._fix(out[part])

        run_blocks(block, self.blocks)

    @cached_property
    def _sparse(self):
        return _sparse_blocks(self.centred.table)

    def _sparse_product(self, U, out):
        """`product` of all tasks without penalties, by their nonzero entries."""
        table = self.centred.table
        z = self._sparse @ U.transpose(0, 2, 1).reshape(-1, U.shape[1])
        z = self.P * (z if z.shape[1] == 1 else z - np.einsum("pc,pc->p", self.P, z)[:, None])
        z *= (np.repeat(self.centred.scale, table.sizes) * self.counts)[:, None]
        flat = self._sparse.T @ z
        out[:] = flat.reshape(len(U), -1, U.shape[1]).transpose(0, 2, 1)

    def _fix(self, U):
        if self.held is None:
            U[:, :, -1] = 0.0


class Arrow:
    """Inverse of the Hessian without the products between classes; exact for one output.

    Where matrices of all classes are too many, one serves all classes of a task.
    """

    def __init__(self, state):
        self.state, table = state, state.centred.table
        m, d, C = table.n_tasks, table.n_features, state.centred.problem.n_outputs
        self.groups = C if C * self._size() <= _JOINT else 1
        self._build(m, d)

    def _size(self):
        """Numbers of the matrices of all tasks, for one class."""
        table = self.state.centred.table
        return table.n_tasks * (table.n_features + 1) ** 2

    def _weights(self, rows):
        """Roots of the curvatures of the loss, (n_rows, groups)."""
        P = self.state.P[rows]
        weights = self.state.counts[rows, None] * (P if P.shape[1] == 1 else P * (1.0 - P))
        return np.sqrt(weights if self.groups == P.shape[1] else weights.mean(1, keepdims=True))

    def _build(self, m, d):
        state, centred = self.state, self.state.centred
        table = centred.table
        self.inverse = np.empty((m, self.groups, d + 1, d + 1))
        diagonal = np.arange(d)
        for first, last, rows, X in row_blocks(table):
            Z, weights = np.column_stack([X, np.ones(len(X))]), self._weights(rows)
            ends = table.offsets[first : last + 1] - table.offsets[first]
            for c in range(self.groups):
                A = weights[:, c, None] * Z
                H, _, _ = grams(A, np.zeros(len(A)), ends, centred.scale[first:last], False)
                H[:, diagonal, diagonal] += (state.strengths[first:last] + state.ridge)[:, None]
                if state.held is None:
                    H[:, d], H[:, :, d], H[:, d, d] = 0.0, 0.0, 1.0
                else:
                    H[:, d, d] += state.held[first:last] + 1e-9 * centred.scale[first:last]
                self.inverse[first:last, c] = np.linalg.inv(H)
        self._join()

    def _join(self):
        """What the blocks have to do with each other."""
        state, d = self.state, self.inverse.shape[-1] - 1
        self.core = np.empty((len(state.count), self.groups, d, d))
        for c in range(self.groups):
            means = cluster_means(self.inverse[:, c, :d, :d], state.which, state.count)
            inner = np.eye(d) - state.lam * means
            self.core[:, c] = np.linalg.pinv(inner, rcond=1e-12, hermitian=True)

    def _solve(self, first, last, R):
        """Blocks of the tasks from `first` to `last` solved for R (n, n_outputs, d + 1)."""
        return (self.inverse[first:last] @ R[..., None])[..., 0]

    def __call__(self, R, out):
        """out = inverse times R, two passes over the tasks."""
        state = self.state
        total = np.zeros((len(state.count), R.shape[1], R.shape[2] - 1))

        def alone(block):
            first, last = block
            return first, last, self._solve(first, last, R[first:last])[:, :, :-1]

        for first, last, W in in_order(alone, state.blocks):
            if len(total) == 1:
                total[0] += W.sum(axis=0)
            else:
                np.add.at(total, state.which[first:last], W)
        means = total / state.count[:, None, None]
        shift = state.lam * (self.core @ means[..., None])[..., 0]

        def together(first, last):
            right = R[first:last].copy()
            right[:, :, :-1] += shift if len(shift) == 1 else shift[state.which[first:last]]
            out[first:last] = self._solve(first, last, right)

        run_blocks(together, state.blocks)
        return out


class _RowArrow(Arrow):
    """`Arrow` by matrices n_k x n_k, for tasks of fewer rows than features.

    With D the weights of a task's rows, t = lam + ridge and h what holds the intercept, its block
    of the Hessian, [s X'DX + t, s X'D1; s 1'DX, s 1'D1 + h], sends (w, b) to (r, c) for
    b = (c - 1'KX r / t) / (h + 1'K1), w = (r - X'K (X r / t + b 1)) / t, where
    K = D^1/2 (1 / s + D^1/2 XX' D^1/2 / t)^-1 D^1/2.
    """

    def _size(self):
        sizes = self.state.centred.table.sizes
        return int(sizes @ (sizes + 1)) // 2

    def _build(self, m, d):
        state, centred, lam = self.state, self.state.centred, self.state.lam
        table, sizes, t = centred.table, centred.table.sizes, lam + state.ridge
        self.core = np.zeros((len(state.count), self.groups, d, d))
        self.starts = np.concatenate([[0], np.cumsum(sizes * (sizes + 1) // 2)])
        self.K, self.pivot = np.empty((self.groups, self.starts[-1])), np.ones((m, self.groups))
        self.ones = np.empty((self.groups, table.n_rows))
        for first, last, rows, X in row_blocks(table):
            part, ends = slice(first, last), table.offsets[first : last + 1] - rows.start
            starts, scale = self.starts[first : last + 1], centred.scale[part]
            weights, clusters = self._weights(rows), np.unique(centred.which[part])
            for c in range(self.groups):
                K, a = self.K[c], np.ascontiguousarray(weights[:, c])
                build_row_grams(X, ends, starts, scale, False, K, a)
                if not invert_row_grams(K, ends, starts, t / scale):
                    raise np.linalg.LinAlgError("a task's curvature is not finite; raise lam")
                ones, KX = self.ones[c, rows], np.empty_like(X)
                scale_row_grams(K, ends, starts, a, t, ones)
                row_gram_rows(K, ends, starts, X, KX)
                pivot = np.add.reduceat(ones, ends[:-1])
                g = np.zeros((len(pivot), d))
                if state.held is not None:
                    pivot += state.held[part] + 1e-9 * scale
                    self.pivot[part, c] = pivot
                    np.add.reduceat(KX, ends[:-1], axis=0, out=g)
                    g /= np.sqrt(pivot)[:, None]
                for cluster in clusters:
                    x, y, z = X, KX, g
                    if len(clusters) > 1:
                        mine = centred.which[part] == cluster
                        inside = np.repeat(mine, np.diff(ends))
                        x, y, z = X[inside], KX[inside], g[mine]
                    self.core[cluster, c] += x.T @ y - z.T @ z
        # I - lam times the mean of the inverses, without the cancellation.
        self.core *= (lam / t**2 / state.count)[:, None, None, None]
        self.core += state.ridge / t * np.eye(d)
        for cluster, c in np.ndindex(self.core.shape[:2]):
            core = self.core[cluster, c]
            self.core[cluster, c] = np.linalg.pinv(core, rcond=1e-12, hermitian=True)

    def _solve(self, first, last, R):
        state, out, ends = self.state, np.empty_like(R), slice(first, last + 1)
        row_arrow(
            *state.rows,
            state.centred.table.offsets[ends],
            self.starts[ends],
            self.K,
            self.ones,
            self.pivot[first:last],
            state.held is not None,
            state.lam + state.ridge,
            R,
            out,
        )
        return out


def conjugate_gradient(product, precondition, R, tol, max_iter, floor):
    """Solve product(U) = R to a relative residual of `tol`. -> U, R'U; R is lost.

    Columns that add up to one in all tasks, as one-hot codes, leave the shared model and the
    intercepts undetermined: directions of less curvature than `floor` are not followed.
    """
    stop = tol * tol * float(np.vdot(R, R))
    U, HD, D = None, np.empty_like(R), precondition(R, np.empty_like(R))
    rho, gain = float(np.vdot(R, D)), 0.0
    for _ in range(max_iter):
        if not rho > 0:
            break
        product(D, HD)
        curve = float(np.vdot(D, HD))
        if not curve > floor * float(np.vdot(D, D)):
            break
        step = rho / curve
        gain += step * rho
        HD *= step
        R -= HD
        if U is None and float(np.vdot(R, R)) <= stop:  # the rule for one output
            D *= step
            return D, gain
        if U is None:
            U = step * D
        else:
            U += np.multiply(D, step, out=HD)
        if float(np.vdot(R, R)) <= stop:
            break
        Z = precondition(R, HD)
        new = float(np.vdot(R, Z))
        D *= new / rho
        D += Z
        rho = new
    return np.zeros_like(R) if U is None else U, gain


def newton(state, tol, max_iter, log, kind):
    """Newton steps by conjugate gradients, with halved steps where the objective rises.

    `kind`, `Arrow` or None, is the preconditioner at a state. -> W (n_tasks, n_outputs, d), b
    (n_tasks, n_outputs), objective, n_iter
    """
    centred, lam = state.centred, float(state.strengths.max())
    table, C = centred.table, centred.problem.n_outputs
    Wb = np.zeros((table.n_tasks, C, table.n_features + 1))
    logistic = centred.problem.loss == "logistic" and table.base is None
    if centred.problem.fit_intercept and logistic:
        weights = 1.0 if table.weights is None else table.weights
        share = np.add.reduceat(weights * (table.y > 0), table.offsets[:-1])
        Wb[:, 0, -1] = np.log((share + 0.5) / (table.support - share + 0.5))
    elif centred.problem.fit_intercept and centred.problem.loss == "poisson":
        Wb[:, 0, -1] = levels_of(table)
    direct, arrow = kind is not None and table.n_features <= _DIRECT, None
    floor = 1e-14 * (float(centred.smoothness.max()) + lam + centred.problem.ridge)
    value = state.value(Wb)
    start = float(np.linalg.norm(state.gradient))
    n_iter = 0
    for n_iter in range(1, max_iter + 1):
        size = float(np.linalg.norm(state.gradient))
        # Squared loss has one Hessian.
        if direct and (arrow is None or centred.problem.loss != "squared"):
            arrow = None  # before there is another
            arrow = kind(state)
        # The first systems are solved roughly, the last ones as far as rounding allows.
        relative = size / max(start, 1e-300)
        forcing = max(min(0.1, 0.1 * relative), 1e-11, 1e-14 / max(relative, 1e-14))
        R, state.gradient = state.gradient, None
        step, gain = conjugate_gradient(state.product, arrow or unchanged, R, forcing, 2000, floor)
        del R
        longest = _largest(step)
        moved = longest <= tol * max(_largest(Wb), 1e-300)
        Wb -= step
        for halvings in range(40):
            new = state.value(Wb)
            if new <= value - 1e-4 * 0.5**halvings * gain or gain <= 1e-13 * abs(value):
                break
            step *= 0.5
            Wb += step
        value = new
        if log is not None:
            log(n_iter, value, size)
        # The last step of a quadratic convergence; undetermined directions may still drift.
        if moved or relative <= 1e-13 or gain <= 1e-17 * abs(value):
            break
    else:
        warnings.warn(
            f"Newton steps still move coefficients by {longest:.3g} after {max_iter} "
            "iterations. Raise max_iter or tol, scale the features, or raise lam.",
            ConvergenceWarning,
            stacklevel=users_line(),
        )
    state = arrow = step = None  # what is returned takes their place
    return Wb[:, :, :-1].copy(), Wb[:, :, -1].copy(), value, n_iter


def _largest(U):
    """Largest absolute value, without an array of absolute values."""
    return max(float(U.max()), -float(U.min()))


def unchanged(R, out):
    out[:] = R
    return out


def minimize_around(centred, centres, V, *, tol, max_iter):
    """Models around V @ centres and the centres, which are their least-squares fits by V.

    By Anderson's method; for sparse tasks, and for centres that differ by task.

    Parameters
    ----------
    centred : CentredTasks
        With a centre for every task, or with one where V has one column.
    centres : ndarray (r, n_outputs, d)
        Where it starts, and then what was found.
    V : ndarray (n_tasks, r)

    Returns
    -------
    W : ndarray (n_tasks, n_outputs, d)
    b : ndarray (n_tasks, n_outputs)
    n_iter : int
    """
    project, one, points, residuals = np.linalg.pinv(V), len(centres) == 1, [], []
    for n_iter in range(1, max_iter + 1):
        around = centres if one else np.tensordot(V, centres, 1)
        W, b = centred.around(around, min(_INNER_TOL * tol, 1e-8))
        F = np.tensordot(project, W, 1) - centres
        if np.abs(F).max() <= tol * max(np.abs(centres).max(), 1e-300):
            return W, b, n_iter
        size = float(np.linalg.norm(F))
        if residuals and not size <= _WORSE * np.linalg.norm(residuals[-1]):
            # An extrapolation too far, where losses are not quadratic; a plain step never is.
            centres[:] = points[-1] + residuals[-1]
            points, residuals = [], []
            continue
        points.append(centres.copy())
        residuals.append(F)
        del points[:-_MEMORY], residuals[:-_MEMORY]
        centres += F
        if len(points) > 1:
            dF = np.stack([(f - F).ravel() for f in residuals[:-1]], axis=1)
            weights = np.linalg.lstsq(dF, -F.ravel(), rcond=1e-12)[0]
            for w, x, f in zip(weights, points[:-1], residuals[:-1], strict=True):
                centres += w * (x + f - points[-1] - F)
    warnings.warn(
        f"The mean still moves by {np.abs(F).max():.3g} after {max_iter} iterations. Raise "
        "max_iter or tol, or add a ridge.",
        ConvergenceWarning,
        stacklevel=users_line(),
    )
    return W, b, max_iter
