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

Every loop goes through one task at a time, on rows of that task alone.
"""

from dataclasses import dataclass

import numpy as np

from .._runtime.jit import njit

__all__ = ["LOGISTIC", "POISSON", "SOFTMAX", "ScoreRows", "posterior"]

LOGISTIC, POISSON, SOFTMAX = 0, 1, 2
_LEAST = 1e-6  # curvature of a row
_REACH = 3.0  # how far the score of a row moves in a step: beyond it the expansion is another
_FAR = 100.0  # scores of counts from which losses are linear
_MOST_STEPS = 25
_MANY = 64.0  # rows of a task, from which pairs of them say little beyond Laplace's approximation
_MOST_BEYOND = 0.1  # of the next order: where it is larger, it is less sure itself


@dataclass
class ScoreRows:
    """Rows of m tasks, sorted by task.

    Attributes
    ----------
    kind : int
        `LOGISTIC`, `POISSON` or `SOFTMAX`.
    X : ndarray (N, d)
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
        at typical rows, less the score of `level` and `slopes` at the mean row; see `_log_rate`.
    """
    m, C, (d, r) = rows.n_tasks, rows.n_outputs, root.shape
    shape = tuple(len(grid) for grid in grids)
    evidence, of_level = np.zeros((m, *shape)), np.zeros((m, C))
    of_slopes = np.zeros((m, C, d))
    moment = np.zeros((m, C, 1 + r, 1 + r) if moments else (0, 0, 0, 0))
    typical = np.zeros((m, C, 2))
    kappa, phi, tau = (np.array(grid, dtype=float) for grid in grids)
    if size is None:
        size = float(rows.kind != POISSON)
    _posterior(
        rows.kind,
        rows.X,
        rows.y,
        rows.weight,
        rows.given,
        np.array(rows.offsets, dtype=np.int64),
        np.array(root, dtype=float, order="C"),
        np.array(np.broadcast_to(level, (m, C)), dtype=float),
        np.array(np.broadcast_to(slopes, (C, d)), dtype=float),
        kappa,
        phi,
        0.5 * np.log(phi) if rows.kind == POISSON else 0.0 * phi,
        tau**2,
        np.array(np.broadcast_to(size, (m, d)), dtype=float),
        np.array(np.broadcast_to(log_weights, shape), dtype=float),
        float(tol),
        bool(means or moments),
        moments == "kept",
        evidence,
        of_level,
        of_slopes,
        moment,
        typical,
    )
    return evidence, of_level, of_slopes, moment, typical


# ----------------------------------------------------------------------------------- kernels
@njit
def _cholesky(A):
    """Lower factor of A, in its place. -> log determinant of A"""
    n, product, logs = len(A), 1.0, 0.0
    for i in range(n):
        for j in range(i + 1):
            s = 0.0
            for q in range(j):
                s += A[i, q] * A[j, q]
            if j < i:
                A[i, j] = (A[i, j] - s) / A[j, j]
            else:
                product *= A[i, i] - s
                A[i, i] = np.sqrt(A[i, i] - s)
        if product > 1e100:
            logs += np.log(product)
            product = 1.0
    return logs + np.log(product)


@njit
def _solve(A, b):
    """A^-1 b in the place of b, from the lower factor of A."""
    n = len(A)
    for i in range(n):
        s = b[i]
        for j in range(i):
            s -= A[i, j] * b[j]
        b[i] = s / A[i, i]
    for k in range(n):
        i = n - 1 - k
        s = b[i]
        for j in range(i + 1, n):
            s -= A[j, i] * b[j]
        b[i] = s / A[i, i]


@njit
def _means(kind, score, p):
    """Means of a row at its scores (C,), in p."""
    C = len(score)
    if kind == 1:
        p[0] = np.exp(min(max(score[0], -_FAR), _FAR))
    elif C == 1:
        e = np.exp(-abs(score[0]))
        p[0] = (1.0 if score[0] > 0.0 else e) / (1.0 + e)
    else:
        top, s = score[0], 0.0
        for c in range(1, C):
            top = max(top, score[c])
        for c in range(C):
            p[c] = np.exp(score[c] - top)
            s += p[c]
        for c in range(C):
            p[c] /= s


@njit
def _gain(kind, y, weight, phi, base, e0, e1, delta, h, res):
    """Log likelihood of the rows of a task at scores e0 + delta e1, (C, n), less its expansion."""
    C, n = e0.shape
    total, logs, product = 0.0, 0.0, 1.0
    for i in range(n):
        for c in range(C):
            rest = res[c, i] + base[c, i] - e0[c, i] - delta[c] * e1[c, i]
            total += 0.5 * h[c, i] * rest * rest
    if kind == 1:
        for i in range(n):
            s = e0[0, i] + delta[0] * e1[0, i]
            near = min(max(s, -_FAR), _FAR)
            mean = np.exp(near)
            total += (y[i] * s - mean - mean * (s - near)) / phi
        return total
    if C == 1:
        for i in range(n):
            s = e0[0, i] + delta[0] * e1[0, i]
            e = 1.0 + np.exp(-abs(s))
            total += weight[i] * (y[i] * s - max(s, 0.0))
            if weight[i] == 1.0:  # one logarithm of many rows
                product *= e
                if product > 1e200:
                    logs += np.log(product)
                    product = 1.0
            else:
                logs += weight[i] * np.log(e)
        return total - logs - np.log(product)
    for i in range(n):
        top, e = -np.inf, 0.0
        for c in range(C):
            top = max(top, e0[c, i] + delta[c] * e1[c, i])
        for c in range(C):
            e += np.exp(e0[c, i] + delta[c] * e1[c, i] - top)
        c = int(y[i])
        total += weight[i] * (e0[c, i] + delta[c] * e1[c, i] - top - np.log(e))
    return total


@njit
def _factorise(A, K, h, kappa, dual, B):
    """log |I + kappa A' H A|, and its factor, or that of I + kappa H^.5 A A' H^.5, in B."""
    n, r = A.shape
    if dual:
        for i in range(n):
            f = kappa * np.sqrt(h[i])
            for j in range(i + 1):
                B[i, j] = f * np.sqrt(h[j]) * K[i, j]
            B[i, i] += 1.0
        return _cholesky(B)
    for i in range(r):
        for j in range(r):
            B[i, j] = 0.0
        B[i, i] = 1.0
    for k in range(n):
        for i in range(r):
            f = kappa * h[k] * A[k, i]
            for j in range(i + 1):
                B[i, j] += f * A[k, j]
    return _cholesky(B)


@njit
def _weigh(A, K, h, kappa, dual, B, v, u, fitted):
    """V^-1 v; u gets the slopes kappa A' V^-1 v, and `fitted` their scores, of which the rest is
    H^-1 V^-1 v. -> v' V^-1 v"""
    n, r = A.shape
    if dual:
        x = np.empty(n)
        for i in range(n):
            x[i] = np.sqrt(h[i]) * v[i]
        _solve(B, x)
        q = 0.0
        for i in range(n):
            x[i] *= np.sqrt(h[i])
            q += x[i] * v[i]
        for i in range(n):
            s = 0.0
            for j in range(n):
                s += K[i, j] * x[j]
            fitted[i] = kappa * s
        for j in range(r):
            u[j] = 0.0
        for i in range(n):
            f = kappa * x[i]
            for j in range(r):
                u[j] += f * A[i, j]
        return q
    for j in range(r):
        u[j] = 0.0
    for i in range(n):
        f = kappa * h[i] * v[i]
        for j in range(r):
            u[j] += f * A[i, j]
    _solve(B, u)
    q = 0.0
    for i in range(n):
        s = 0.0
        for j in range(r):
            s += A[i, j] * u[j]
        fitted[i] = s
        q += h[i] * v[i] * (v[i] - s)
    return q


@njit
def _beyond(kind, weight, phi, scores, c, part, A, K, h, kappa, dual, B, e1, level):
    """What the evidence of one class is more than Laplace's approximation, to the next order.

    From third and fourth derivatives of the log likelihood of rows, and the covariance V of their
    scores: sum f4 V_ii^2 / 8 + sum f3 f3 (V_ii V_ij V_jj / 8 + V_ij^3 / 12).
    """
    n, r = A.shape
    k = len(B)
    x, p, s = np.empty((k, n)), np.empty(len(scores)), np.empty(len(scores))
    third, own, total = np.empty(n), np.empty(n), 0.0
    for i in range(n):
        own[i] = 0.0
    for j in range(k):  # all rows at once
        if dual:
            f = kappa * np.sqrt(h[j])
            for i in range(n):
                x[j, i] = f * K[j, i]
        else:
            f = np.sqrt(kappa)
            for i in range(n):
                x[j, i] = f * A[i, j]
        for q in range(j):
            f = B[j, q]
            for i in range(n):
                x[j, i] -= f * x[q, i]
        f = 1.0 / B[j, j]
        for i in range(n):
            x[j, i] *= f
        for i in range(n):
            own[i] += x[j, i] * x[j, i]
    for i in range(n):
        v = own[i]
        own[i] = ((kappa * K[i, i] - v if dual else v) + level * e1[i] * e1[i]) / part
        for q in range(len(s)):
            s[q] = scores[q, i]
        _means(kind, s, p)
        if kind == 1:
            third[i], fourth = -p[0] / phi, -p[0] / phi
        else:
            w = p[c] * (1.0 - p[c])
            third[i] = -weight[i] * w * (1.0 - 2.0 * p[c])
            fourth = -weight[i] * w * (1.0 - 6.0 * w)
        total += fourth * own[i] * own[i] / 8.0
    v, many = np.empty(n), weight.sum() > _MANY
    for i in range(n):
        pairs = third[i] * third[i] * own[i] ** 3 * (5.0 / 24.0)
        if many:
            total += pairs / max(weight[i], 1e-300)  # of the single rows that it counts
            continue
        total += pairs
        for j in range(i):
            v[j] = 0.0
        for q in range(k):
            f = x[q, i]
            for j in range(i):
                v[j] += f * x[q, j]
        if dual:
            for j in range(i):
                v[j] = kappa * K[i, j] - v[j]
        f, z, each = level * e1[i], own[i] / 4.0, 0.0
        for j in range(i):
            w = (v[j] + f * e1[j]) / part
            each += third[j] * w * (z * own[j] + w * w / 6.0)
        total += third[i] * each
    return part * min(max(total, -_MOST_BEYOND), _MOST_BEYOND)


@njit
def _covariance(A, h, kappa, dual, B, out):
    """Covariance of slopes where the level is known, kappa (I + kappa A' H A)^-1."""
    n, r = A.shape
    if dual:
        x = np.empty((r, n))
        for j in range(r):
            for i in range(n):
                s = np.sqrt(h[i]) * A[i, j]
                for k in range(i):
                    s -= B[i, k] * x[j, k]
                x[j, i] = s / B[i, i]
        for i in range(r):
            for j in range(r):
                s = 0.0
                for k in range(n):
                    s += x[i, k] * x[j, k]
                out[i, j] = -kappa * kappa * s
            out[i, i] += kappa
        return
    x = np.empty(r)
    for j in range(r):
        for i in range(r):
            x[i] = 0.0
        x[j] = kappa
        _solve(B, x)
        for i in range(r):
            out[i, j] = x[i]


@njit
def _log_rate(A, h, cov, own, ur, u1, e1, first, spread, known, moved):
    """Logarithm of the mean rate about the mean row of A, to the second order about the mode.

    A score s at the mode, of variance v, has E exp(s) = exp(s + v / 2 + E ds), where the mean is
    off the mode by ds = -sum_i h_i V_i V_ii / 2, for the third derivatives -h_i of the rows, and
    their covariances V_i with s and variances V_ii. So the mean rate of a task that determines its
    level is that of its events. Rows about the mean row add what their variance is more.
    """
    n, r = A.shape
    mean = np.zeros(r)
    for i in range(n):
        for j in range(r):
            mean[j] += A[i, j] / n
    score, off, near = first, 1.0, np.zeros(r)
    for j in range(r):
        score += mean[j] * (ur[j] - first * u1[j])
        off -= mean[j] * u1[j]
        for k in range(r):
            near[j] += cov[j, k] * mean[k]
    own_mean = 0.0
    for j in range(r):
        own_mean += mean[j] * near[j]
    less = 0.0
    for i in range(n):
        joint = off * spread * e1[i]
        for j in range(r):
            joint += A[i, j] * near[j]
        less += h[i] * joint * (own[i] + spread * e1[i] * e1[i])
    variance = own_mean + off * off * spread
    return score + 0.5 * (max(variance - less, 0.0) + known + moved * spread)


@njit
def _start(kind, y, C, score):
    """Scores of rows that are half way to their targets, where steps of Newton's method begin."""
    for i in range(len(y)):
        if kind == 1:
            score[0, i] = np.log(y[i] + 0.5)
        elif kind == 0:
            score[0, i] = 2.0 * y[i] - 1.0
        else:
            for c in range(C):
                score[c, i] = -1.0 / C
            score[int(y[i]), i] += 1.0


@njit
def _posterior(
    kind,
    X,
    y,
    weight,
    given,
    offsets,
    L,
    level,
    slopes,
    kappa,
    phi,
    of_phi,
    t2,
    size,
    log_weights,
    tol,
    means,
    kept,
    evidence,
    of_level,
    of_slopes,
    moment,
    typical,
):
    C, (d, r), T = given.shape[1], L.shape, len(t2)
    part = 1.0 if C == 1 else (C - 1.0) / C
    moments = len(moment) > 0
    q11, q1r, qrr, logs = np.zeros(C), np.zeros(C), np.zeros(C), np.zeros(C)
    delta, step, P = np.zeros((T, C)), np.zeros(C), np.zeros(T)
    ur, u1, cov = np.zeros((C, r)), np.zeros((C, r)), np.zeros((r, r))
    w, p, s, G = np.zeros((C, r)), np.zeros(C), np.zeros(C), np.zeros((r, r))
    for t in range(len(offsets) - 1):
        lo, n = offsets[t], offsets[t + 1] - offsets[t]
        A = np.zeros((n, r))
        for i in range(n):
            for q in range(d):
                v = X[lo + i, q]
                for j in range(r):
                    A[i, j] += v * L[q, j]
        whole = 0.0
        for i in range(r):
            for j in range(r):
                G[i, j] = 0.0
                for q in range(d):
                    G[i, j] += size[t, q] * L[q, i] * L[q, j]
            whole += G[i, i]
        lower = 0.5 * whole if kind == 1 else 0.0
        dual = n < r
        K = np.empty((n, n) if dual else (0, 0))
        for i in range(len(K)):
            for j in range(n):
                v = 0.0
                for q in range(r):
                    v += A[i, q] * A[j, q]
                K[i, j] = v
        k = min(n, r)
        B = np.empty((C, k, k))
        about, begin, score = np.empty((C, n)), np.empty((C, n)), np.empty((C, n))
        base, own = np.empty((C, n)), np.empty(n)
        h, res, e0, e1 = np.empty((C, n)), np.empty((C, n)), np.empty((C, n)), np.empty((C, n))
        one = np.ones(n)
        for c in range(C):
            for i in range(n):
                v = given[lo + i, c] + level[t, c]
                for j in range(d):
                    v += X[lo + i, j] * slopes[c, j]
                about[c, i] = v
        ys, ws, fixed = y[lo : lo + n], weight[lo : lo + n], 0.0
        if kind == 1:
            for i in range(n):
                if ys[i] > 0.0:
                    fixed += ys[i] - ys[i] * np.log(ys[i])
        _start(kind, ys, C, begin)
        top, total = -np.inf, 0.0
        for f in range(len(phi)):
            for c in range(C):
                for i in range(n):
                    score[c, i] = begin[c, i]
            for a in range(len(kappa)):
                for c in range(C):
                    for i in range(n):
                        base[c, i] = about[c, i] - kappa[a] * lower
                for turn in range(_MOST_STEPS):
                    for i in range(n):
                        for c in range(C):
                            s[c] = score[c, i]
                        _means(kind, s, p)
                        for c in range(C):
                            if kind == 1:
                                curve, slope = p[c], y[lo + i] - p[c]
                            elif C == 1:
                                curve, slope = p[c] * (1.0 - p[c]), y[lo + i] - p[c]
                            else:
                                curve, slope = p[c] * (1.0 - p[c]) / part, -p[c]
                                if int(y[lo + i]) == c:
                                    slope += 1.0
                            curve = max(curve, _LEAST)
                            h[c, i] = weight[lo + i] * curve / phi[f]
                            res[c, i] = score[c, i] + slope / curve - base[c, i]
                    for c in range(C):
                        logs[c] = _factorise(A, K, h[c], kappa[a], dual, B[c])
                        q1 = _weigh(A, K, h[c], kappa[a], dual, B[c], one, u1[c], e1[c])
                        qr = _weigh(A, K, h[c], kappa[a], dual, B[c], res[c], ur[c], e0[c])
                        q = 0.0
                        for i in range(n):
                            e1[c, i] = 1.0 - e1[c, i]
                            q += h[c, i] * e1[c, i] * res[c, i]
                            e0[c, i] += base[c, i]
                        q11[c], q1r[c], qrr[c] = max(q1, 0.0), q, qr
                    most = -np.inf
                    for j in range(T):
                        P[j] = log_weights[a, f, j]
                        for c in range(C):
                            delta[j, c] = t2[j] * q1r[c] / (1.0 + t2[j] * q11[c])
                            P[j] -= 0.5 * part * (logs[c] + np.log(1.0 + t2[j] * q11[c]))
                            P[j] -= 0.5 * (qrr[c] - q1r[c] * delta[j, c])
                        most = max(most, P[j])
                    q = 0.0
                    for c in range(C):
                        step[c] = 0.0
                    for j in range(T):
                        e = np.exp(P[j] - most)
                        q += e
                        for c in range(C):
                            step[c] += e * delta[j, c]
                    moved = 0.0
                    for i in range(n):
                        mean = 0.0
                        for c in range(C):
                            s[c] = e0[c, i] + step[c] / q * e1[c, i]
                            mean += s[c] / C
                        for c in range(C):
                            way = s[c] - score[c, i] - (mean if C > 1 else 0.0)
                            moved = max(moved, abs(way))
                            score[c, i] += min(max(way, -_REACH), _REACH)
                    if moved <= tol:
                        break
                beyond = 0.0
                for c in range(C):
                    e, v = 0.0, 0.0
                    for j in range(T):
                        share = np.exp(P[j] - most)
                        e += share
                        v += share * t2[j] / (1.0 + t2[j] * q11[c])
                    beyond += _beyond(
                        kind,
                        ws,
                        phi[f],
                        score,
                        c,
                        part,
                        A,
                        K,
                        h[c],
                        kappa[a],
                        dual,
                        B[c],
                        e1[c],
                        v / e,
                    )
                for j in range(T):
                    E = beyond + P[j] - log_weights[a, f, j] + fixed / phi[f] - of_phi[f] * n
                    E += _gain(kind, ys, ws, phi[f], base, e0, e1, delta[j], h, res)
                    evidence[t, a, f, j] = E
                    P[j] = E + log_weights[a, f, j]
                if not means:
                    continue
                most = P[0]
                for j in range(1, T):
                    most = max(most, P[j])
                if most > top:
                    fade = np.exp(top - most)
                    top, total = most, total * fade
                    for c in range(C):
                        of_level[t, c] *= fade
                        for j in range(r):
                            w[c, j] = w[c, j] * fade if a + f > 0 else 0.0
                        if moments:
                            typical[t, c, 0] *= fade
                            typical[t, c, 1] *= fade
                            for i in range(1 + r):
                                for j in range(1 + r):
                                    moment[t, c, i, j] *= fade
                q = 0.0
                for j in range(T):
                    P[j] = np.exp(P[j] - top)
                    q += P[j]
                total += q
                for c in range(C):
                    first, square, held, shared = 0.0, 0.0, 0.0, 0.0
                    for j in range(T):
                        spread = t2[j] / (1.0 + t2[j] * q11[c])
                        first += P[j] * delta[j, c]
                        square += P[j] * (delta[j, c] * delta[j, c] + spread)
                        held += P[j] * spread
                        shared += P[j] / (1.0 + t2[j] * q11[c])
                    of_level[t, c] += first
                    for j in range(r):
                        w[c, j] += q * ur[c, j] - first * u1[c, j]
                    if moments:
                        _covariance(A, h[c], kappa[a], dual, B[c], cov)
                        known, moved = 0.0, 1.0
                        for i in range(r):
                            for j in range(r):
                                known += G[i, j] * cov[i, j]
                                moved += G[i, j] * u1[c, i] * u1[c, j]
                        if kind == 1:
                            for i in range(n):
                                own[i] = 0.0
                                for k in range(r):
                                    v = 0.0
                                    for b in range(r):
                                        v += cov[k, b] * A[i, b]
                                    own[i] += A[i, k] * v
                        for j in range(T):
                            if kind == 1:
                                v = t2[j] / (1.0 + t2[j] * q11[c])
                                v = _log_rate(
                                    A,
                                    h[c],
                                    cov,
                                    own,
                                    ur[c],
                                    u1[c],
                                    e1[c],
                                    delta[j, c],
                                    v,
                                    known,
                                    moved - 1.0,
                                )
                                typical[t, c, 0] += P[j] * (v - kappa[a] * lower)
                                continue
                            v = known + moved * t2[j] / (1.0 + t2[j] * q11[c])
                            typical[t, c, 0] += P[j] * v
                            typical[t, c, 1] += P[j] / np.sqrt(1.0 + 0.125 * np.pi * v)
                    if moments and kept:
                        moment[t, c, 0, 0] += shared
                        for i in range(r):
                            moment[t, c, 0, 1 + i] -= held * u1[c, i] / kappa[a]
                            moment[t, c, 1 + i, 0] -= shared * u1[c, i]
                            for j in range(r):
                                moment[t, c, 1 + i, 1 + j] += (
                                    q * cov[i, j] + held * u1[c, i] * u1[c, j]
                                ) / kappa[a]
                    elif moments:
                        moment[t, c, 0, 0] += square
                        for i in range(r):
                            cross = first * ur[c, i] - square * u1[c, i]
                            moment[t, c, 0, 1 + i] += cross
                            moment[t, c, 1 + i, 0] += cross
                            for j in range(r):
                                product = ur[c, i] * u1[c, j] + u1[c, i] * ur[c, j]
                                moment[t, c, 1 + i, 1 + j] += (
                                    q * (cov[i, j] + ur[c, i] * ur[c, j])
                                    - first * product
                                    + square * u1[c, i] * u1[c, j]
                                )
        if not means:
            continue
        for c in range(C):
            of_level[t, c] /= total
            for j in range(d):
                v = 0.0
                for i in range(r):
                    v += L[j, i] * w[c, i]
                of_slopes[t, c, j] = v / total
            if moments:
                typical[t, c, 0] /= total
                typical[t, c, 1] /= total
                for i in range(1 + r):
                    for j in range(1 + r):
                        moment[t, c, i, j] /= total
