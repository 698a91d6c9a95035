"""Exact minimum of the mean-regularised objective, when there is no privacy to keep.

sum_k [ loss_k(w_k, b_k) + lam / 2 ||w_k - v||^2 ] + ridge / 2 sum_k ||w_k||^2, minimised over
the w_k, the intercepts b_k and v, which puts v at the mean of the w_k (of each cluster).
"""

import warnings
from dataclasses import replace

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ._kernels.grams import build_row_grams, invert_row_grams, row_gram_product
from ._kernels.newton import hessian_product, loss_gradient, row_gram_rows, scale_row_grams
from .grams import grams
from .personal import local_intercepts
from .rounds import row_blocks, task_grams
from .threads import single_blas_thread

_DIRECT = 600  # features up to which tasks are factorised
_JOINT = 1 << 25  # numbers of matrices from which on all classes share one per task
_NO_INDEX = np.empty(0, dtype=np.int64)


def minimize_exactly(half, lam, *, tol, max_iter, log=None):
    """-> W (n_tasks, n_outputs, d), b (n_tasks, n_outputs), objective, n_iter; dense rows.

    Parameters
    ----------
    half : TaskHalf
    lam : float > 0
    tol : float
        Newton steps end when none of the coefficients moves by more than `tol` times the
        largest.
    """
    with single_blas_thread():
        if half.problem.kind == 0 and half.table.n_features <= _DIRECT and not _is_short(half):
            return _least_squares(half, lam)
        return _newton(half, lam, tol, max_iter, log)


def _is_short(half):
    """Whether matrices of the rows of every task are smaller than those of the features."""
    sizes = half.table.sizes
    return int(sizes @ sizes) < len(sizes) * half.table.n_features**2


def cluster_means(W, which, count):
    """Mean of the tasks `which` of each cluster, (n_clusters, ...)."""
    if len(count) == 1:
        return W.mean(axis=0)[None]
    total = np.zeros((len(count), *W.shape[1:]))
    np.add.at(total, which, W)
    return total / count.reshape(-1, *[1] * (W.ndim - 1))


def _least_squares(half, lam):
    """w_k = P_k (g_k + lam v) with P_k = (G_k + (lam + ridge) I)^-1, and v their mean."""
    table, problem, which = half.table, half.problem, half.which
    d, count = table.n_features, np.bincount(which)
    diagonal = np.arange(d)
    A, r = np.zeros((len(count), d, d)), np.zeros((len(count), d))
    small = table.n_tasks * d * d < 1 << 22  # then the matrices are built once
    blocks = list(task_grams(table, problem, half.scale)) if small else None
    for first, last, G, g in blocks or task_grams(table, problem, half.scale):
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
    for first, last, G, g in blocks or task_grams(table, problem, half.scale):
        H = G.copy()
        H[:, diagonal, diagonal] += lam + problem.ridge
        right = g + lam * v[which[first:last]]
        W[first:last] = np.linalg.solve(H, right[:, :, None])[:, :, 0]
    b = local_intercepts(table, W) if problem.fit_intercept else np.zeros(table.n_tasks)
    state = _State(half, lam)
    Wb = np.concatenate([W[:, None], b[:, None, None]], axis=2)
    return W[:, None], b[:, None], state.value(Wb), 1


class _State:
    """Objective over models with their intercepts last, (n_tasks, n_outputs, d + 1)."""

    def __init__(self, half, lam):
        table, problem = half.table, half.problem
        self.half, self.lam, self.ridge = half, lam, problem.ridge
        self.which, self.count = half.which, np.bincount(half.which)
        shared = table.rows is not None
        self._rows = (table.X, table.rows if shared else _NO_INDEX, shared, table.offsets)
        self._y, self._kind, self._scale = table.y, problem.kind, half.scale
        self.held = np.where(half._single, lam, 0.0) if problem.fit_intercept else None
        self.P = np.empty((table.n_rows, problem.n_outputs))
        self.gradient = None

    def _penalty(self, U):
        """Gradient of the penalties at U, which is also their Hessian times U."""
        out = np.zeros_like(U)
        W = U[:, :, :-1]
        out[:, :, :-1] = (self.lam + self.ridge) * W
        out[:, :, :-1] -= self.lam * cluster_means(W, self.which, self.count)[self.which]
        if self.held is not None:
            out[:, :, -1] = self.held[:, None] * U[:, :, -1]
        return out

    def value(self, Wb):
        """Objective; leaves the gradient and what Hessian products need."""
        gradient = np.empty_like(Wb)
        value = loss_gradient(
            *self._rows, self._y, self._kind, self._scale, Wb, self.P, gradient
        )
        pull = self._penalty(Wb)
        self.gradient = gradient + pull
        self._fix(self.gradient)
        return value + 0.5 * float(np.vdot(pull, Wb))

    def product(self, U):
        out = np.empty_like(U)
        hessian_product(*self._rows, self._kind, self._scale, self.P, U, out)
        out += self._penalty(U)
        return self._fix(out)

    def _fix(self, U):
        if self.held is None:
            U[:, :, -1] = 0.0
        return U


def _row_weights(state, size):
    """Curvatures of the loss, one per row and class.

    One per row where matrices of `size` numbers for each class are too many.
    """
    if state.half.problem.kind == 0:
        return np.ones_like(state.P)
    weights, C = state.P * (1.0 - state.P), state.P.shape[1]
    return weights.mean(axis=1, keepdims=True) if C > 1 and C * size > _JOINT else weights


class _Arrow:
    """Inverse of the Hessian without the products between classes; exact for one output."""

    def __init__(self, state):
        half, lam = state.half, state.lam
        table, m, d = half.table, half.table.n_tasks, half.table.n_features
        weights = _row_weights(state, m * (d + 1) ** 2)
        self.state, groups = state, weights.shape[1]
        self.inverse = np.empty((m, groups, d + 1, d + 1))
        self.core = np.empty((len(state.count), groups, d, d))
        diagonal = np.arange(d)
        for first, last, rows, X in row_blocks(table):
            Z = np.column_stack([X, np.ones(len(X))])
            ends = table.offsets[first : last + 1] - table.offsets[first]
            for c in range(groups):
                A = np.sqrt(weights[rows, c])[:, None] * Z
                H, _, _ = grams(A, np.zeros(len(A)), ends, half.scale[first:last], False)
                H[:, diagonal, diagonal] += lam + state.ridge
                if state.held is None:
                    H[:, d], H[:, :, d], H[:, d, d] = 0.0, 0.0, 1.0
                else:
                    H[:, d, d] += state.held[first:last] + 1e-9 * half.scale[first:last]
                self.inverse[first:last, c] = np.linalg.inv(H)
        for c in range(groups):
            means = cluster_means(self.inverse[:, c, :d, :d], state.which, state.count)
            self.core[:, c] = np.linalg.pinv(np.eye(d) - lam * means, rcond=1e-12, hermitian=True)

    def __call__(self, R):
        state = self.state
        first = (self.inverse @ R[..., None])[..., 0]
        means = cluster_means(first[:, :, :-1], state.which, state.count)
        v = (self.core @ means[..., None])[..., 0]
        more = state.lam * v[state.which]
        return first + (self.inverse[:, :, :, :-1] @ more[..., None])[..., 0]


class _RowArrow:
    """`_Arrow` by matrices n_k x n_k, for tasks of fewer rows than features.

    With D the weights of a task's rows, t = lam + ridge and h what holds the intercept, its block
    of the Hessian, [s X'DX + t, s X'D1; s 1'DX, s 1'D1 + h], sends (w, b) to (r, c) for
    b = (c - g'r / t) / (h + 1'K1), w = (r - X'KX r / t) / t - b g / t, where
    K = D^1/2 (1 / s + D^1/2 XX' D^1/2 / t)^-1 D^1/2 and g = X'K1.
    """

    def __init__(self, state):
        half, lam, t = state.half, state.lam, state.lam + state.ridge
        table, sizes = half.table, half.table.sizes
        self.state, self.t = state, t
        self.starts = np.concatenate([[0], np.cumsum(sizes * (sizes + 1) // 2)])
        weights = np.sqrt(_row_weights(state, self.starts[-1]))
        m, d, groups = table.n_tasks, table.n_features, weights.shape[1]
        self.K = np.empty((groups, self.starts[-1]))
        self.g, self.pivot = np.zeros((m, groups, d)), np.ones((m, groups))
        self.core = np.zeros((len(state.count), groups, d, d))
        for first, last, rows, X in row_blocks(table):
            part, ends = slice(first, last), table.offsets[first : last + 1] - rows.start
            starts, scale = self.starts[first : last + 1], half.scale[part]
            for c in range(groups):
                K, a = self.K[c], np.ascontiguousarray(weights[rows, c])
                build_row_grams(a[:, None] * X, ends, starts, scale, False, K)
                if not invert_row_grams(K, ends, starts, t / scale):
                    raise np.linalg.LinAlgError("a task's curvature is not finite; raise lam")
                ones, KX = np.empty(len(a)), np.empty_like(X)
                scale_row_grams(K, ends, starts, a, t, ones)
                row_gram_rows(K, ends, starts, X, KX)
                if state.held is not None:
                    pivot = np.add.reduceat(ones, ends[:-1]) + state.held[part] + 1e-9 * scale
                    self.pivot[part, c] = pivot
                    self.g[part, c] = np.add.reduceat(KX, ends[:-1], axis=0)
                for cluster in np.unique(half.which[part]):
                    mine = half.which[part] == cluster
                    inside = np.repeat(mine, np.diff(ends))
                    g = self.g[part, c][mine] / np.sqrt(self.pivot[part, c][mine])[:, None]
                    self.core[cluster, c] += X[inside].T @ KX[inside] - g.T @ g
        # I - lam times the mean of the inverses, without the cancellation.
        self.core *= (lam / t**2 / state.count)[:, None, None, None]
        self.core += state.ridge / t * np.eye(d)
        for cluster, c in np.ndindex(self.core.shape[:2]):
            core = self.core[cluster, c]
            self.core[cluster, c] = np.linalg.pinv(core, rcond=1e-12, hermitian=True)

    def _solve(self, R):
        """Blocks of all tasks solved for R (n_tasks, n_outputs, d + 1)."""
        state, t, table = self.state, self.t, self.state.half.table
        out = np.empty_like(R)
        b = (R[:, :, -1] - np.einsum("kcj,kcj->kc", R[:, :, :-1], self.g) / t) / self.pivot
        out[:, :, -1] = b if state.held is not None else R[:, :, -1]
        product = np.empty((len(R), R.shape[2] - 1))
        for c in range(R.shape[1]):
            r = np.ascontiguousarray(R[:, c, :-1])
            row_gram_product(
                *state._rows[:3], table.y, 0.0, table.offsets, self.starts,
                self.K[min(c, len(self.K) - 1)], False, r, product,
            )  # fmt: skip
            out[:, c, :-1] = (r + product / t) / t
        out[:, :, :-1] -= (b / t)[:, :, None] * self.g
        return out

    def __call__(self, R):
        state = self.state
        first = self._solve(R)
        means = cluster_means(first[:, :, :-1], state.which, state.count)
        more = np.zeros_like(R)
        more[:, :, :-1] = (state.lam * (self.core @ means[..., None])[..., 0])[state.which]
        return first + self._solve(more)


def _conjugate_gradient(product, precondition, R, tol, max_iter, floor):
    """Solve product(U) = R to a relative residual of `tol`.

    Columns that add up to one in all tasks, as one-hot codes, leave the shared model and the
    intercepts undetermined: directions of less curvature than `floor` are not followed.
    """
    U, R = np.zeros_like(R), R.copy()
    Z = precondition(R)
    D, rho = Z.copy(), float(np.vdot(R, Z))
    stop = tol * tol * float(np.vdot(R, R))
    for _ in range(max_iter):
        if float(np.vdot(R, R)) <= stop or not rho > 0:
            break
        HD = product(D)
        curve = float(np.vdot(D, HD))
        if not curve > floor * float(np.vdot(D, D)):
            break
        step = rho / curve
        U += step * D
        R -= step * HD
        Z = precondition(R)
        new = float(np.vdot(R, Z))
        D = Z + (new / rho) * D
        rho = new
    return U


def _newton(half, lam, tol, max_iter, log):
    """Newton steps by conjugate gradients, with halved steps where the objective rises."""
    table, C = half.table, half.problem.n_outputs
    state = _State(half, lam)
    Wb = np.zeros((table.n_tasks, C, table.n_features + 1))
    if half.problem.fit_intercept and half.problem.kind == 1:
        share = np.add.reduceat((table.y > 0).astype(float), table.offsets[:-1])
        Wb[:, 0, -1] = np.log((share + 0.5) / (table.sizes - share + 0.5))
    arrow = (_RowArrow if _is_short(half) else _Arrow) if table.n_features <= _DIRECT else None
    floor = 1e-14 * float(half.smoothness.max())
    value = state.value(Wb)
    start = float(np.linalg.norm(state.gradient))
    n_iter = 0
    for n_iter in range(1, max_iter + 1):
        size = float(np.linalg.norm(state.gradient))
        precondition = arrow(state) if arrow else (lambda R: R)
        # The first systems are solved roughly, the last ones as far as rounding allows.
        relative = size / max(start, 1e-300)
        forcing = max(min(0.1, 0.1 * relative), 1e-11, 1e-14 / max(relative, 1e-14))
        g = state.gradient
        step = -_conjugate_gradient(state.product, precondition, g, forcing, 2000, floor)
        slope, length = float(np.vdot(state.gradient, step)), 1.0
        moved = np.abs(step).max() <= tol * max(np.abs(Wb).max(), 1e-300)
        for _ in range(40):
            new = state.value(Wb + length * step)
            if new <= value + 1e-4 * length * slope or abs(slope) <= 1e-13 * abs(value):
                break
            length *= 0.5
        Wb, value = Wb + length * step, new
        if log is not None:
            log(n_iter, value, size)
        # The last step of a quadratic convergence; undetermined directions may still drift.
        if moved or relative <= 1e-13 or -slope <= 1e-17 * abs(value):
            break
    else:
        warnings.warn(
            f"Newton steps still move coefficients by {np.abs(step).max():.3g} after {max_iter} "
            "iterations. Raise max_iter or tol, scale the features, or raise lam.",
            ConvergenceWarning,
            stacklevel=6,
        )
    return Wb[:, :, :-1].copy(), Wb[:, :, -1].copy(), value, n_iter


def fixed_point(half, anchor, *, tol, max_iter, memory=8):
    """v = mean of prox_k(v) by Anderson's method, for sparse tasks; moves `anchor`. -> n_iter"""
    count = np.bincount(half.which)
    everybody = np.arange(half.table.n_tasks)
    points, residuals = [], []
    for n_iter in range(1, max_iter + 1):
        total = np.zeros_like(anchor)
        half.sum_of_updates(everybody, anchor, np.inf, total, n_steps=5000, tol=1e-2 * tol)
        F = total / count[:, None]
        if np.abs(F).max() <= tol * max(np.abs(anchor).max(), 1e-300):
            return n_iter
        points.append(anchor.copy())
        residuals.append(F)
        del points[:-memory], residuals[:-memory]
        if len(points) > 1:
            dF = np.stack([(a - residuals[-1]).ravel() for a in residuals[:-1]], axis=1)
            weights = np.linalg.lstsq(dF, -residuals[-1].ravel(), rcond=1e-12)[0]
            anchor += F
            for w, x, f in zip(weights, points[:-1], residuals[:-1], strict=True):
                anchor += w * (x + f - points[-1] - residuals[-1])
        else:
            anchor += F
    warnings.warn(
        f"The mean still moves by {np.abs(F).max():.3g} after {max_iter} iterations. Raise "
        "max_iter or tol, or add a ridge.",
        ConvergenceWarning,
        stacklevel=6,
    )
    return max_iter


def dense_copy(table, limit=1 << 24):
    """The table with dense rows where that is small, else None."""
    if not table.is_sparse:
        return table
    if table.X.shape[0] * table.X.shape[1] > limit:
        return None
    return replace(table, X=table.X.toarray().astype(np.float64, copy=False))
