"""Posterior of a task's level and slopes where targets are classes or counts.

For task t with centre (c, a), shape S = L L', and scores that are given besides, o,

    s_i = o_i + l + x_i' w,   l ~ N(c, tau^2),   w ~ N(a, kappa S),

each row has the log likelihood f(y_i, s_i). For a cell of (kappa, phi) the log likelihood is
replaced by its expansion to second order at the mode, h_i (z_i - s_i)^2 / 2 with working response
z and weight h (McCullagh and Nelder, "Generalized linear models", 2.5), which is a posterior of
squared loss. With A = X L, V = H^-1 + kappa A A' and r = z - o - c - X a,

    q_uv = u' V^-1 v,   l - c | z  ~  N(q_1r t, t),   t = 1 / (q_11 + tau^-2),
    log p(z) = -(log |I + kappa A' H A| + log(1 + tau^2 q_11) + q_rr - q_1r^2 t) / 2,

so that one factorisation gives all cells of tau. What the log likelihood at the mode of a cell is
more than the expansion is added (Laplace's approximation; Tierney and Kadane, JASA 81, 1986), and
the terms of the next order (Shun and McCullagh, JRSS B 57, 1995), which matter in sums over many
tasks of few rows. The
expansion is at the mean over tau; `apart` takes one for every tau. Modes are followed from small
kappa to large, so that one or two steps of Newton's method reach the next.

Counts have the log likelihood of a double exponential family with dispersion phi (Efron, JASA 81,
1986): that of Poisson over phi, and -log(phi) / 2 for every row.

Several classes have a score each, and only differences between scores mean anything: what all of
them have in common is taken away. Off that direction the curvature of the softmax loss is C / (C -
1) times its diagonal where all classes are alike; determinants count (C - 1) / C times.

Tasks with alike numbers of rows are computed side by side, each from its own rows alone.
"""

from dataclasses import dataclass

import numpy as np

from .._kernels.elementary import exp, log
from .._runtime.jit import njit
from ..tables.table import row_products
from .lanes import LANES, ROWS, Chunk

__all__ = ["LOGISTIC", "POISSON", "SOFTMAX", "ScoreRows", "posterior"]

LOGISTIC, POISSON, SOFTMAX = 0, 1, 2
_LEAST = 1e-6  # curvature of a row
_REACH = 3.0  # how far the score of a row moves in a step: beyond it the expansion is another
_FAR = 100.0  # scores of counts from which losses are linear
_MOST_STEPS = 25
_MANY = 64.0  # rows of a task, from which pairs of them say little beyond Laplace's approximation
_MOMENTS = {"second": 2, "kept": 3}  # after 0, the evidence alone, and 1, means
_MOST_BEYOND = 0.1  # of the next order: where it is larger, it is less sure itself


@dataclass
class ScoreRows:
    """Rows of m tasks, sorted by task.

    Attributes
    ----------
    kind : int
        `LOGISTIC`, `POISSON` or `SOFTMAX`.
    X : ndarray (N, d), or what gives rows as one does, of shape (N, d)
        Rows, about whatever the level is at.
    y : ndarray (N,)
        0 or 1; counts; numbers of classes.
    weight : ndarray (N,)
        How much rows count.
    given : ndarray (N, C)
        Scores besides those of the model, such as logarithms of exposures; C is 1 but for softmax.
    offsets : ndarray (m + 1,)
        Rows of task t are ``offsets[t]:offsets[t + 1]``.
    """

    kind: int
    X: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    given: np.ndarray
    offsets: np.ndarray

    @property
    def n_outputs(self):
        return self.given.shape[1]

    @property
    def n_tasks(self):
        return len(self.offsets) - 1


def posterior(
    rows, root, level, slopes, grids, log_weights, *, size=None, tol=0.3, means=False, moments=None
):
    """Log evidence by cell, and what follows from the posterior over all cells.

    Parameters
    ----------
    rows : ScoreRows
    root : ndarray (d, r)
    level : float, or ndarray (C,) or (m, C)
    slopes : ndarray (C, d)
    grids : tuple of ndarray
        kappa, a variance; phi, dispersions; tau, standard deviations.
    log_weights : ndarray (n_kappa, n_phi, n_tau)
        Of the prior over cells.
    size : ndarray (m, d), default=None
        Mean squares of typical rows about the mean row of a task; None: 1, and 0 of counts. For
        counts the mean of the level in a cell is less by half of the variance that slopes have at
        such rows, so that `level` is that of the mean rate. Means and moments are about it.
    tol : float, default=0.3
        A step of Newton's method that moves no score of a row by more is the last: the next would
        move it by a multiple of the square.
    means : bool, default=False
        Whether posterior means are asked for besides the evidence.
    moments : {"second", "kept"} or None, default=None
        What is asked for besides the means.

    Returns
    -------
    evidence : ndarray (m, n_kappa, n_phi, n_tau)
        Without the weights of the prior; 0 for a task without rows.
    level : ndarray (m, C)
        Posterior means of l - c, under the prior over cells; 0 where they are not asked for.
    slopes : ndarray (m, C, d)
        The same of w - a.
    moment : ndarray (m, C, 1 + r, 1 + r) or (0, 0, 0, 0)
        "second": second moments of (l - c, L^-1 (w - a)). "kept": covariances within cells times
        the precision of the prior, the part of a move of the centre that the posterior mean keeps.
    typical : ndarray (m, C, 2)
        With moments. Of classes, of the variance v in a cell of the score at a row of independent
        columns of this size: means over cells of v, and of (1 + pi v / 8)^-1/2, by which MacKay
        ("The evidence framework applied to classification networks", Neural Computation 4(5), 1992)
        averages probabilities. Of counts, the mean over cells of the logarithm of the mean rate
        at typical rows, less the score of `level` and `slopes` at the mean row; see `_log_rates`.
    """
    m, C, (d, r) = rows.n_tasks, rows.n_outputs, root.shape
    kappa, phi, tau = (np.array(grid, dtype=float) for grid in grids)
    shape = len(kappa), len(phi), len(tau)
    level = np.array(np.broadcast_to(level, (m, C)), dtype=float)
    slopes = np.array(np.broadcast_to(slopes, (C, d)), dtype=float)
    size = np.broadcast_to(float(rows.kind != POISSON) if size is None else size, (m, d))
    root = np.array(root, dtype=float, order="C")
    grids = kappa, phi, 0.5 * np.log(phi) * (rows.kind == POISSON), tau**2
    weights = np.array(np.broadcast_to(log_weights, shape), dtype=float)
    asked = _MOMENTS[moments] if moments else means + 0
    evidence, of_level = np.zeros((m, *shape)), np.zeros((m, C))
    of_slopes, typical = np.zeros((m, C, d)), np.zeros((m, C, 2))
    moment = np.zeros((m, C, 1 + r, 1 + r) if moments else (0, 0, 0, 0))
    for chunk in Chunk.all(rows, root):
        found = _of_chunk(rows, chunk, root, level, slopes, size, grids, weights, tol, asked)
        tasks = chunk.tasks
        evidence[tasks] = found[0]
        if asked:
            of_level[tasks], typical[tasks] = found[1], found[4]
            of_slopes[tasks] = row_products(chunk.wide(found[2]), root.T)
        if moments:
            moment[tasks] = chunk.wide_moments(found[3], found[5])
    return evidence, of_level, of_slopes, moment, typical


def _of_chunk(rows, chunk, root, level, slopes, size, grids, weights, tol, asked):
    """Evidence (m, ...), levels (m, C), slopes (m, C, E), moments (m, C, 1 + E, 1 + E), typical
    (m, C, 2), and variances where tasks have no rows (m,), in the coordinates of the chunk."""
    tasks, at = chunk.tasks, chunk.places
    m, C, E = len(tasks), rows.n_outputs, chunk.A.shape[1]
    y, weight, size = rows.y[at], rows.weight[at], size[tasks]
    if rows.kind == SOFTMAX:
        targets = (y[:, None] == np.arange(C)) * 1.0
    else:
        targets = y[:, None]
    about = rows.given[at] + level[tasks][chunk.codes] + row_products(chunk.X, slopes.T)
    # Where steps of Newton's method begin: scores that are half way to their targets.
    begin = targets * (1.0 + (C == 1)) - 1.0 / C
    constant = np.zeros(m)
    if rows.kind == POISSON:
        begin = np.log(targets + 0.5)
        constant = chunk.sums(y - y * np.log(np.maximum(y, 1e-300)))
    many = (chunk.sums(weight) > _MANY) | (chunk.sizes > ROWS)
    reach = row_products(size, (root**2).sum(axis=1))
    of_tasks = np.stack([chunk.sizes, many, constant, reach], axis=1)
    squares = chunk.squares(root, size) if asked > 1 else np.zeros((m, 0, 0))
    shapes = weights.shape, (C,), (C, E), (C, 1 + E, 1 + E) if asked > 1 else (0, 0, 0), (C, 2), ()
    out = [np.zeros((m, *shape)) for shape in shapes]
    for lanes in chunk.blocks():
        blocks, k = len(lanes.task), lanes.k
        moment = (C, 1 + k, 1 + k) if asked > 1 else (0, 0, 0)
        shapes = weights.shape, (C,), (C, k), moment, (C, 2), ()
        found = [np.zeros((blocks, *shape, LANES)) for shape in shapes]
        of_rows = [lanes.of_rows(x) for x in (targets, weight, about, begin)]
        _posterior(
            rows.kind,
            lanes.of_columns(chunk.A),
            *of_rows,
            lanes.there,
            lanes.of_tasks(of_tasks),
            lanes.of_tasks(squares[:, :k, :k]),
            lanes.heads,
            *grids,
            weights,
            tol,
            asked,
            *found,
        )
        for x, into in zip(found, out, strict=True):
            lanes.put(x, into)
    return out


# ----------------------------------------------------------------------------------- kernels
# Arrays have tasks last, and every loop over them writes one array, which makes vector
# instructions of it. What one lane gets does not depend on the others.
@njit
def _pool(x, head):
    """Sums over the lanes of every task, in all of them, for numbers (., W)."""
    for i in range(x.shape[0]):
        for t in range(len(head)):
            if head[t] != t:
                x[i, head[t]] += x[i, t]
        for t in range(len(head)):
            x[i, t] = x[i, head[t]]


@njit
def _add_products(x, y, sign, out):
    """out (W,) += sign times the sum over the first axis of x y, both (., W)."""
    n, W = x.shape
    for b in range(n // 2):  # two at a time: half of the sums are not written
        i = 2 * b
        for t in range(W):
            out[t] += sign * (x[i, t] * y[i, t] + x[i + 1, t] * y[i + 1, t])
    for i in range(n - n % 2, n):
        for t in range(W):
            out[t] += sign * x[i, t] * y[i, t]


@njit
def _add_rows(f, X, out):
    """out (k, W) += the sum over rows of f X, f (n, W), X (n, >= k, W), for an even n."""
    k, W = out.shape
    for b in range(len(f) // 2):
        i = 2 * b
        for j in range(k):
            for t in range(W):
                out[j, t] += f[i, t] * X[i, j, t] + f[i + 1, t] * X[i + 1, j, t]


@njit
def _means(kind, score, p):
    """Means of rows at their scores (C, n, W), in p."""
    C, n, W = score.shape
    if kind == 1:
        for i in range(n):
            for t in range(W):
                p[0, i, t] = exp(min(max(score[0, i, t], -_FAR), _FAR))
    elif C == 1:
        for i in range(n):
            for t in range(W):
                s = score[0, i, t]
                e = exp(max(-abs(s), -700.0))
                p[0, i, t] = (1.0 if s > 0.0 else e) / (1.0 + e)
    else:
        top, total = np.empty(W), np.empty(W)
        for i in range(n):
            for t in range(W):
                top[t] = score[0, i, t]
                total[t] = 0.0
            for c in range(1, C):
                for t in range(W):
                    top[t] = max(top[t], score[c, i, t])
            for c in range(C):
                for t in range(W):
                    p[c, i, t] = exp(max(score[c, i, t] - top[t], -700.0))
            for c in range(C):
                for t in range(W):
                    total[t] += p[c, i, t]
            for c in range(C):
                for t in range(W):
                    p[c, i, t] /= total[t]


@njit
def _expand(kind, targets, weight, phi, part, score, base, p, live, h, res):
    """Curvatures and working responses less `base`, in lanes that are on their way."""
    C, n, W = score.shape
    bend = 0.0 if kind == 1 else 1.0
    _means(kind, score, p)
    for c in range(C):
        for i in range(n):
            for t in range(W):
                curve = max(p[c, i, t] * (1.0 - bend * p[c, i, t]) / part, _LEAST)
                h[c, i, t] = weight[i, t] * curve / phi if live[t] > 0.0 else h[c, i, t]
            for t in range(W):
                curve = max(p[c, i, t] * (1.0 - bend * p[c, i, t]) / part, _LEAST)
                z = score[c, i, t] + (targets[c, i, t] - p[c, i, t]) / curve - base[c, i, t]
                res[c, i, t] = z if live[t] > 0.0 else res[c, i, t]


@njit
def _factorise(A, h, kappa, head, B, f, logs):
    """Lower factor of I + kappa A' H A, with inverses of its diagonal, in B; log determinants."""
    n, k, W = A.shape
    for i in range(k):
        for j in range(i + 1):
            for t in range(W):
                B[i, j, t] = 0.0
        for q in range(n):
            for t in range(W):
                f[q, t] = kappa * h[q, t] * A[q, i, t]
        _add_rows(f, A, B[i, : i + 1])
    for t in range(W):
        logs[t] = 0.0
    for i in range(k):
        _pool(B[i, : i + 1], head)
        for t in range(W):
            B[i, i, t] += 1.0
        for j in range(i):
            _add_products(B[i, :j], B[j, :j], -1.0, B[i, j])
            for t in range(W):
                B[i, j, t] *= B[j, j, t]
        _add_products(B[i, :i], B[i, :i], -1.0, B[i, i])
        for t in range(W):
            logs[t] += log(B[i, i, t])
        for t in range(W):
            B[i, i, t] = 1.0 / np.sqrt(B[i, i, t])


@njit
def _project(A, h, v, kappa, head, B, f, u, rest):
    """Slopes kappa A' V^-1 v in u, and v less their scores in `rest`."""
    n, k, W = A.shape
    for j in range(k):
        for t in range(W):
            u[j, t] = 0.0
    for q in range(n):
        for t in range(W):
            f[q, t] = kappa * h[q, t] * v[q, t]
    _add_rows(f, A, u)
    _pool(u, head)
    for i in range(k):
        _add_products(B[i, :i], u[:i], -1.0, u[i])
        for t in range(W):
            u[i, t] *= B[i, i, t]
    for s in range(k):
        i = k - 1 - s
        for t in range(W):
            u[i, t] *= B[i, i, t]
        for j in range(i):
            for t in range(W):
                u[j, t] -= B[i, j, t] * u[i, t]
    for q in range(n):
        for t in range(W):
            rest[q, t] = v[q, t]
        _add_products(A[q], u, -1.0, rest[q])


@njit
def _dot(h, a, b, head, out):
    """Sums over rows of h a b, (1, W)."""
    for t in range(h.shape[1]):
        out[0, t] = 0.0
    for i in range(h.shape[0]):
        for t in range(h.shape[1]):
            out[0, t] += h[i, t] * a[i, t] * b[i, t]
    _pool(out, head)


@njit
def _over_levels(part, t2, log_weights, logs, q, delta, P, share):
    """Means of levels by tau, log weights of tau in P, (T, W), and weights that add up to one."""
    T, C, W = delta.shape
    top, total = np.empty(W), np.empty(W)
    for j in range(T):
        for t in range(W):
            P[j, t] = log_weights[j]
        for c in range(C):
            for t in range(W):
                delta[j, c, t] = t2[j] * q[c, 1, t] / (1.0 + t2[j] * q[c, 0, t])
            for t in range(W):
                v = part * (logs[c, t] + log(1.0 + t2[j] * q[c, 0, t]))
                P[j, t] -= 0.5 * (v + q[c, 2, t] - q[c, 1, t] * delta[j, c, t])
    _weights(P, share, top, total)
    for j in range(T):
        for t in range(W):
            share[j, t] /= total[t]


@njit
def _weights(P, share, top, total):
    """exp(P - top) in `share`, their largest and their sum."""
    T, W = P.shape
    for t in range(W):
        top[t] = P[0, t]
    for j in range(1, T):
        for t in range(W):
            top[t] = max(top[t], P[j, t])
    for t in range(W):
        total[t] = 0.0
    for j in range(T):
        for t in range(W):
            share[j, t] = exp(max(P[j, t] - top[t], -700.0))
        for t in range(W):
            total[t] += share[j, t]


@njit
def _move(score, there, e0, e1, delta, share, live, moved, head):
    """Scores to the mode of the expansion, in lanes on their way; how far the farthest moves."""
    T, C, W = delta.shape
    n = score.shape[1]
    step, mean = np.zeros((C, W)), np.zeros(W)
    for j in range(T):
        for c in range(C):
            for t in range(W):
                step[c, t] += share[j, t] * delta[j, c, t]
    for t in range(W):
        moved[0, t] = 0.0
    for i in range(n):
        if C > 1:
            for t in range(W):
                mean[t] = 0.0
            for c in range(C):
                for t in range(W):
                    mean[t] += (e0[c, i, t] + step[c, t] * e1[c, i, t]) / C
        for c in range(C):
            for t in range(W):
                way = e0[c, i, t] + step[c, t] * e1[c, i, t] - mean[t] - score[c, i, t]
                moved[0, t] = max(moved[0, t], abs(way) * there[i, t])
            for t in range(W):
                way = e0[c, i, t] + step[c, t] * e1[c, i, t] - mean[t] - score[c, i, t]
                score[c, i, t] += min(max(way, -_REACH), _REACH) * live[t]
    for t in range(len(head)):
        moved[0, head[t]] = max(moved[0, head[t]], moved[0, t])
    for t in range(len(head)):
        moved[0, t] = moved[0, head[t]]


@njit
def _losses(kind, weight, phi, e0, e1, delta, head, total):
    """What is convex in the negative log likelihood at scores e0 + delta e1, (C, n, W); (1, W)."""
    C, n, W = e0.shape
    top, e = np.empty(W), np.empty(W)
    for t in range(W):
        total[0, t] = 0.0
    for i in range(n):
        if kind == 1:
            for t in range(W):
                s = e0[0, i, t] + delta[0, t] * e1[0, i, t]
                near = min(max(s, -_FAR), _FAR)
                total[0, t] += weight[i, t] * exp(near) * (1.0 + s - near)
            continue
        if C == 1:
            for t in range(W):
                s = e0[0, i, t] + delta[0, t] * e1[0, i, t]
                f = max(s, 0.0) + log(1.0 + exp(max(-abs(s), -700.0)))
                total[0, t] += weight[i, t] * f
            continue
        for t in range(W):
            top[t] = e0[0, i, t] + delta[0, t] * e1[0, i, t]
        for c in range(1, C):
            for t in range(W):
                top[t] = max(top[t], e0[c, i, t] + delta[c, t] * e1[c, i, t])
        for t in range(W):
            e[t] = 0.0
        for c in range(C):
            for t in range(W):
                s = e0[c, i, t] + delta[c, t] * e1[c, i, t] - top[t]
                e[t] += exp(max(s, -700.0))
        for t in range(W):
            total[0, t] += weight[i, t] * (top[t] + log(e[t]))
    for t in range(W):
        total[0, t] /= phi
    _pool(total, head)


@njit
def _linear(targets, weight, phi, h, res, base, e0, e1, head, f, sums):
    """Of one class, sums of which the rest of the log likelihood less its expansion is made: that
    at e0, and what multiplies delta and delta^2; (3, W)."""
    n, W = h.shape
    for j in range(3):
        for t in range(W):
            sums[j, t] = 0.0
    for i in range(n):
        for t in range(W):
            f[i, t] = res[i, t] + base[i, t] - e0[i, t]
    for i in range(n):
        for t in range(W):
            y = weight[i, t] * targets[i, t] * e0[i, t] / phi
            sums[0, t] += y + 0.5 * h[i, t] * f[i, t] * f[i, t]
        for t in range(W):
            y = weight[i, t] * targets[i, t] * e1[i, t] / phi
            sums[1, t] += y - h[i, t] * f[i, t] * e1[i, t]
        for t in range(W):
            sums[2, t] += 0.5 * h[i, t] * e1[i, t] * e1[i, t]
    _pool(sums, head)


@njit
def _whiten(A, kappa, B, x, own):
    """x, of which products are covariances of scores where the level is known, (n, k, W); their
    squares, (n, W)."""
    n, k, W = A.shape
    f = np.sqrt(kappa)
    for i in range(n):
        for j in range(k):
            for t in range(W):
                x[i, j, t] = f * A[i, j, t]
            _add_products(B[j, :j], x[i, :j], -1.0, x[i, j])
            for t in range(W):
                x[i, j, t] *= B[j, j, t]
        for t in range(W):
            own[i, t] = 0.0
        _add_products(x[i], x[i], 1.0, own[i])


@njit
def _beyond(kind, weight, many, phi, p, part, x, own, e1, level, head, V, third, total):
    """What the evidence of one class is more than Laplace's approximation, to the next order.

    From third and fourth derivatives of the log likelihood of rows, and the covariance V of their
    scores: sum f4 V_ii^2 / 8 + sum f3 f3 (V_ii V_ij V_jj / 8 + V_ij^3 / 12).
    """
    n, k, W = x.shape
    near, v, few = np.empty(W), np.empty(W), 0.0
    for t in range(W):
        few = max(few, 1.0 - many[t])
    for t in range(W):
        total[0, t] = 0.0
    for i in range(n):
        for t in range(W):
            V[i, t] = (own[i, t] + level[t] * e1[i, t] * e1[i, t]) / part
        if kind == 1:
            for t in range(W):
                third[i, t] = -weight[i, t] * p[i, t] / phi
            for t in range(W):
                total[0, t] += third[i, t] * V[i, t] * V[i, t] / 8.0
        else:
            for t in range(W):
                w = p[i, t] * (1.0 - p[i, t])
                third[i, t] = -weight[i, t] * w * (1.0 - 2.0 * p[i, t])
            for t in range(W):
                w = p[i, t] * (1.0 - p[i, t])
                total[0, t] -= weight[i, t] * w * (1.0 - 6.0 * w) * V[i, t] * V[i, t] / 8.0
        for t in range(W):  # of many rows, with those of which each is
            f = third[i, t] * third[i, t] * V[i, t] * V[i, t] * V[i, t] * (5.0 / 24.0)
            total[0, t] += f / max(weight[i, t], 1e-300) if many[t] > 0.0 else f
        if few == 0.0:
            continue
        for t in range(W):
            near[t] = 0.0
        for j in range(i):
            for t in range(W):
                v[t] = level[t] * e1[i, t] * e1[j, t]
            _add_products(x[i], x[j], 1.0, v)
            for t in range(W):
                w = v[t] / part
                near[t] += third[j, t] * w * (0.25 * V[i, t] * V[j, t] + w * w / 6.0)
        for t in range(W):
            total[0, t] += third[i, t] * near[t] if many[t] == 0.0 else 0.0
    _pool(total, head)
    for t in range(W):
        total[0, t] = part * min(max(total[0, t], -_MOST_BEYOND), _MOST_BEYOND)


@njit
def _covariance(kappa, B, inverse, cov):
    """Covariance of slopes where the level is known, kappa (I + kappa A' H A)^-1."""
    k, _, W = B.shape
    for i in range(k):
        for t in range(W):
            inverse[i, i, t] = B[i, i, t]
        for j in range(i + 1, k):
            for t in range(W):
                inverse[j, i, t] = 0.0
            for q in range(i, j):
                for t in range(W):
                    inverse[j, i, t] -= B[j, q, t] * inverse[q, i, t]
            for t in range(W):
                inverse[j, i, t] *= B[j, j, t]
    for i in range(k):
        for j in range(i + 1):
            for t in range(W):
                cov[i, j, t] = 0.0
            for q in range(i, k):
                for t in range(W):
                    cov[i, j, t] += kappa * inverse[q, i, t] * inverse[q, j, t]
            for t in range(W):
                cov[j, i, t] = cov[i, j, t]


@njit
def _log_rates(x, own, h, e1, ur, u1, mean, count, delta, q11, t2, known, moved, head, out):
    """Logarithms of mean rates about the mean row, to the second order about the mode, (T, W).

    A score s at the mode, of variance v, has E exp(s) = exp(s + v / 2 + E ds), where the mean is
    off the mode by ds = -sum_i h_i V_i V_ii / 2, for the third derivatives -h_i of the rows, and
    their covariances V_i with s and variances V_ii. So the mean rate of a task that determines its
    level is that of its events. Rows about the mean row add what their variance is more.
    """
    n, k, W = x.shape
    T = len(t2)
    near, sums = np.zeros((k, W)), np.zeros((4, W))
    of_r, of_1, variance, joint = np.zeros(W), np.zeros(W), np.zeros(W), np.empty(W)
    for i in range(n):
        for j in range(k):
            for t in range(W):
                near[j, t] += x[i, j, t] / max(count[t], 1.0)
    _pool(near, head)
    for j in range(k):
        for t in range(W):
            variance[t] += near[j, t] * near[j, t]
        for t in range(W):
            of_r[t] += mean[j, t] * ur[j, t]
        for t in range(W):
            of_1[t] += mean[j, t] * u1[j, t]
    for i in range(n):
        for t in range(W):
            joint[t] = 0.0
        for j in range(k):
            for t in range(W):
                joint[t] += x[i, j, t] * near[j, t]
        for t in range(W):
            sums[0, t] += h[i, t] * joint[t] * own[i, t]
        for t in range(W):
            sums[1, t] += h[i, t] * e1[i, t] * own[i, t]
        for t in range(W):
            sums[2, t] += h[i, t] * joint[t] * e1[i, t] * e1[i, t]
        for t in range(W):
            sums[3, t] += h[i, t] * e1[i, t] * e1[i, t] * e1[i, t]
    _pool(sums, head)
    for j in range(T):
        for t in range(W):
            spread, off = t2[j] / (1.0 + t2[j] * q11[t]), 1.0 - of_1[t]
            less = sums[0, t] + spread * (off * sums[1, t] + sums[2, t])
            less += spread * spread * off * sums[3, t]
            bend = max(variance[t] + off * off * spread - less, 0.0)
            score = delta[j, 0, t] * off + of_r[t]
            out[j, t] = score + 0.5 * (bend + known[t] + (moved[t] - 1.0) * spread)


@njit
def _add(P, delta, c, q11, t2, kappa, ur, u1, cov, kept, first, w, moment):
    """Sums over tau with weights P of one class: levels, slopes and, if asked for, moments."""
    (T, W), k = P.shape, len(ur)
    total, one, square = np.zeros(W), np.zeros(W), np.zeros(W)
    held, shared = np.zeros(W), np.zeros(W)
    for j in range(T):
        for t in range(W):
            total[t] += P[j, t]
        for t in range(W):
            one[t] += P[j, t] * delta[j, c, t]
        for t in range(W):
            shared[t] += P[j, t] / (1.0 + t2[j] * q11[t])
        for t in range(W):
            held[t] += P[j, t] * t2[j] / (1.0 + t2[j] * q11[t])
        for t in range(W):
            spread = t2[j] / (1.0 + t2[j] * q11[t])
            square[t] += P[j, t] * (delta[j, c, t] * delta[j, c, t] + spread)
    for t in range(W):
        first[t] += one[t]
    for i in range(k):
        for t in range(W):
            w[i, t] += total[t] * ur[i, t] - one[t] * u1[i, t]
    if len(moment) == 0:
        return
    for t in range(W):
        moment[0, 0, t] += shared[t] if kept else square[t]
    for i in range(k):
        for t in range(W):
            cross = -held[t] * u1[i, t] / kappa
            moment[0, 1 + i, t] += cross if kept else one[t] * ur[i, t] - square[t] * u1[i, t]
        for t in range(W):
            cross = -shared[t] * u1[i, t]
            moment[1 + i, 0, t] += cross if kept else one[t] * ur[i, t] - square[t] * u1[i, t]
        for j in range(k):
            if kept:
                for t in range(W):
                    v = total[t] * cov[i, j, t] + held[t] * u1[i, t] * u1[j, t]
                    moment[1 + i, 1 + j, t] += v / kappa
                continue
            for t in range(W):
                both = ur[i, t] * u1[j, t] + u1[i, t] * ur[j, t]
                v = total[t] * (cov[i, j, t] + ur[i, t] * ur[j, t]) - one[t] * both
                moment[1 + i, 1 + j, t] += v + square[t] * u1[i, t] * u1[j, t]


@njit
def _fade(x, faded):
    """Each lane of (., W) times its number."""
    for i in range(x.shape[0]):
        for t in range(x.shape[1]):
            x[i, t] *= faded[t]


@njit
def _posterior(
    kind,
    A,
    targets,
    weight,
    about,
    begin,
    there,
    of_tasks,
    squares,
    heads,
    kappa,
    phi,
    of_phi,
    t2,
    log_weights,
    tol,
    asked,
    evidence,
    of_level,
    of_slopes,
    moment,
    typical,
    outside,
):
    (blocks, n, k, W), C, T = A.shape, targets.shape[1], len(t2)
    part = 1.0 if C == 1 else (C - 1.0) / C
    score, base, p = np.empty((C, n, W)), np.empty((C, n, W)), np.empty((C, n, W))
    h, res, e0, e1 = (
        np.empty((C, n, W)),
        np.empty((C, n, W)),
        np.empty((C, n, W)),
        np.empty((C, n, W)),
    )
    B, f, logs = np.zeros((C, k, k, W)), np.empty((n, W)), np.empty((C, W))
    ur, u1, q = np.empty((C, k, W)), np.empty((C, k, W)), np.empty((C, 3, W))
    delta, P, share, E = np.empty((T, C, W)), np.empty((T, W)), np.empty((T, W)), np.empty((T, W))
    live, moved, gain, lines = np.empty(W), np.empty((1, W)), np.empty((1, W)), np.empty((C, 3, W))
    x, own, V, third = np.empty((n, k, W)), np.empty((n, W)), np.empty((n, W)), np.empty((n, W))
    inverse, cov = np.zeros((k, k, W)), np.zeros((k, k, W))
    level, beyond, mean = np.empty(W), np.empty(W), np.empty((k, W))
    top, total, most, sums = np.empty(W), np.empty(W), np.empty(W), np.empty(W)
    known, spread, fade, own_trace = np.empty(W), np.empty(W), np.empty(W), np.empty(W)
    for b in range(blocks):
        head = heads[b]
        count, many, constant = of_tasks[b, 0], of_tasks[b, 1], of_tasks[b, 2]
        reach = of_tasks[b, 3]
        lower = 0.5 if kind == 1 else 0.0
        if kind == 1 and asked > 1:
            for j in range(k):
                for t in range(W):
                    mean[j, t] = 0.0
                for i in range(n):
                    for t in range(W):
                        mean[j, t] += A[b, i, j, t] / max(count[t], 1.0)
            _pool(mean, head)
        for t in range(W):
            own_trace[t] = 0.0
        for i in range(squares.shape[1]):
            for t in range(W):
                own_trace[t] += squares[b, i, i, t]
        for t in range(W):
            top[t] = -1e300
        for t in range(W):
            total[t] = 0.0
        for g in range(len(phi)):
            for c in range(C):
                for i in range(n):
                    for t in range(W):
                        score[c, i, t] = begin[b, c, i, t]
            for a in range(len(kappa)):
                for c in range(C):
                    for i in range(n):
                        for t in range(W):
                            base[c, i, t] = about[b, c, i, t] - kappa[a] * lower * reach[t]
                for t in range(W):
                    live[t] = 1.0
                for turn in range(_MOST_STEPS):
                    _expand(kind, targets[b], weight[b], phi[g], part, score, base, p, live, h, res)
                    for c in range(C):
                        _factorise(A[b], h[c], kappa[a], head, B[c], f, logs[c])
                        _project(A[b], h[c], there[b], kappa[a], head, B[c], f, u1[c], e1[c])
                        _project(A[b], h[c], res[c], kappa[a], head, B[c], f, ur[c], e0[c])
                        _dot(h[c], there[b], e1[c], head, q[c, :1])
                        _dot(h[c], e1[c], res[c], head, q[c, 1:2])
                        _dot(h[c], res[c], e0[c], head, q[c, 2:])
                        for t in range(W):
                            q[c, 0, t] = max(q[c, 0, t], 0.0)
                        for i in range(n):
                            for t in range(W):
                                e0[c, i, t] = base[c, i, t] + res[c, i, t] - e0[c, i, t]
                    _over_levels(part, t2, log_weights[a, g], logs, q, delta, P, share)
                    _move(score, there[b], e0, e1, delta, share, live, moved, head)
                    going = 0.0
                    for t in range(W):
                        live[t] = live[t] if moved[0, t] > tol else 0.0
                    for t in range(W):
                        going += live[t]
                    if going == 0.0:
                        break
                _means(kind, score, p)
                for t in range(W):
                    beyond[t] = constant[t] / phi[g] - of_phi[g] * count[t]
                for c in range(C):
                    for t in range(W):
                        level[t] = 0.0
                    for j in range(T):
                        for t in range(W):
                            level[t] += share[j, t] * t2[j] / (1.0 + t2[j] * q[c, 0, t])
                    _whiten(A[b], kappa[a], B[c], x, own)
                    _beyond(
                        kind,
                        weight[b],
                        many,
                        phi[g],
                        p[c],
                        part,
                        x,
                        own,
                        e1[c],
                        level,
                        head,
                        V,
                        third,
                        gain,
                    )
                    _linear(
                        targets[b, c],
                        weight[b],
                        phi[g],
                        h[c],
                        res[c],
                        base[c],
                        e0[c],
                        e1[c],
                        head,
                        f,
                        lines[c],
                    )
                    for t in range(W):
                        beyond[t] += gain[0, t] + lines[c, 0, t]
                for j in range(T):
                    _losses(kind, weight[b], phi[g], e0, e1, delta[j], head, gain)
                    for t in range(W):
                        P[j, t] += beyond[t] - gain[0, t]
                    for c in range(C):
                        for t in range(W):
                            v = lines[c, 1, t] + lines[c, 2, t] * delta[j, c, t]
                            P[j, t] += v * delta[j, c, t]
                    for t in range(W):
                        evidence[b, a, g, j, t] = P[j, t] - log_weights[a, g, j]
                if asked == 0:
                    continue
                _weights(P, share, most, sums)
                for t in range(W):
                    fade[t] = exp(max(min(most[t] - top[t], 0.0), -700.0))
                for j in range(T):
                    for t in range(W):
                        share[j, t] *= fade[t]
                for t in range(W):
                    sums[t] *= fade[t]
                for t in range(W):
                    fade[t] = exp(max(min(top[t] - most[t], 0.0), -700.0))
                for t in range(W):
                    top[t] = max(top[t], most[t])
                for t in range(W):
                    total[t] = total[t] * fade[t] + sums[t]
                _fade(of_level[b], fade)
                _fade(outside[b : b + 1], fade)
                for t in range(W):
                    outside[b, t] += (1.0 if asked == 3 else kappa[a]) * sums[t]
                for c in range(C):
                    _fade(of_slopes[b, c], fade)
                    _fade(typical[b, c], fade)
                    if asked > 1:
                        _fade(moment[b, c].reshape((1 + k) * (1 + k), W), fade)
                        _covariance(kappa[a], B[c], inverse, cov)
                    _add(
                        share,
                        delta,
                        c,
                        q[c, 0],
                        t2,
                        kappa[a],
                        ur[c],
                        u1[c],
                        cov,
                        asked == 3,
                        of_level[b, c],
                        of_slopes[b, c],
                        moment[b, c] if asked > 1 else inverse[:0],
                    )
                    if asked < 2:
                        continue
                    for t in range(W):
                        known[t] = kappa[a] * max(reach[t] - own_trace[t], 0.0)
                    for t in range(W):
                        spread[t] = 1.0
                    for i in range(k):
                        for j in range(k):
                            for t in range(W):
                                known[t] += squares[b, i, j, t] * cov[i, j, t]
                            for t in range(W):
                                v = squares[b, i, j, t] * u1[c, i, t] * u1[c, j, t]
                                spread[t] += v
                    if kind == 1:
                        _log_rates(
                            x,
                            own,
                            h[c],
                            e1[c],
                            ur[c],
                            u1[c],
                            mean,
                            count,
                            delta,
                            q[c, 0],
                            t2,
                            known,
                            spread,
                            head,
                            E,
                        )
                        for j in range(T):
                            for t in range(W):
                                v = E[j, t] - kappa[a] * lower * reach[t]
                                typical[b, c, 0, t] += share[j, t] * v
                        continue
                    for j in range(T):
                        for t in range(W):
                            v = known[t] + spread[t] * t2[j] / (1.0 + t2[j] * q[c, 0, t])
                            typical[b, c, 0, t] += share[j, t] * v
                        for t in range(W):
                            v = known[t] + spread[t] * t2[j] / (1.0 + t2[j] * q[c, 0, t])
                            typical[b, c, 1, t] += share[j, t] / np.sqrt(1.0 + 0.125 * np.pi * v)
        if asked == 0:
            continue
        for c in range(C):
            for t in range(W):
                spread[t] = 1.0 / total[t]
            _fade(of_slopes[b, c], spread)
            _fade(typical[b, c], spread)
            if asked > 1:
                _fade(moment[b, c].reshape((1 + k) * (1 + k), W), spread)
        _fade(of_level[b], spread)
        _fade(outside[b : b + 1], spread)
