"""Posterior of a task's level and slopes on a grid of scales, for squared loss.

For task t with n rows, mean row x0, mean target y0, and public centre (c, a), shape S = L L':

    y_i = l + x_i' w + e_i,   l ~ N(c, tau^2),   w ~ N(a, kappa S),   e_i ~ N(0, sigma^2).

The centred rows X know w alone, and the mean row knows l + x0' w; given the scales, both are
Gaussian (Lindley and Smith, JRSS B 34, 1972). With A = X L, A A' = U diag(lam) U',
r = U' (y - y0 - X a), h = U' A L' x0 and V = sigma^2 + kappa lam,

    log p(y - y0) = -(sum log V + sum r^2 / V + (n - 1 - k) log sigma^2 + rss / sigma^2) / 2,
    y0 | y - y0  ~ N(c + x0' a + kappa sum h r / V,  v),
    v = kappa |L' x0|^2 - kappa^2 sum h^2 / V + sigma^2 / n + tau^2,

so that one decomposition gives all cells of (kappa, sigma, tau) at linear cost, and the mean row
is an exact update of rank one. Constants in 2 pi are left out.

Every loop goes through one task at a time, with LAPACK calls on rows of that task alone, so that
a result does not depend on which other tasks there are.
"""

from dataclasses import dataclass

import numpy as np

from .._runtime.jit import njit

__all__ = [
    "Decomposition",
    "TaskRows",
    "averages",
    "covariances",
    "log_evidence",
    "log_sum",
    "weigh",
]


@dataclass
class TaskRows:
    """Rows of m tasks, centred in each task and reduced to k = min(n, d) rows by QR.

    Attributes
    ----------
    X : ndarray (sum k, d)
        Centred rows, or their triangular factor where there are more rows than columns.
    y : ndarray (sum k,)
        Centred targets, in the same basis.
    starts : ndarray (m + 1,)
        Reduced rows of task t are ``starts[t]:starts[t + 1]``.
    rest : ndarray (m,)
        Sum of squares of the targets that no slopes can reach, rss.
    n : ndarray (m,)
        Numbers of rows; 0 for a task that contributes nothing.
    x_mean : ndarray (m, d)
    y_mean : ndarray (m,)
    """

    X: np.ndarray
    y: np.ndarray
    starts: np.ndarray
    rest: np.ndarray
    n: np.ndarray
    x_mean: np.ndarray
    y_mean: np.ndarray

    @classmethod
    def of(cls, X, y, offsets):
        """From rows X (N, d), y (N,) sorted by task; those of t are offsets[t]:offsets[t + 1]."""
        sizes, d = np.diff(offsets), X.shape[1]
        starts = np.concatenate([[0], np.cumsum(np.minimum(sizes, d))]).astype(np.int64)
        m = len(sizes)
        rows = cls(
            np.zeros((starts[-1], d)),
            np.zeros(starts[-1]),
            starts,
            np.zeros(m),
            sizes.astype(float),
            np.zeros((m, d)),
            np.zeros(m),
        )
        X, y = np.array(X, dtype=float, order="C"), np.array(y, dtype=float)
        _reduce(
            X,
            y,
            np.asarray(offsets, dtype=np.int64).copy(),
            starts,
            rows.X,
            rows.y,
            rows.rest,
            rows.x_mean,
            rows.y_mean,
        )
        return rows


class Decomposition:
    """Eigenvalues and eigenvectors of A A', A = X L, of every task.

    Parameters
    ----------
    rows : TaskRows
    root : ndarray (d, r)
        L, a root of the public shape S = L L'.
    x_mean : ndarray (m, d), default=None
        Mean rows that the level is seen through; None: those of `rows`. Zeros leave the mean row
        to the level alone.
    """

    def __init__(self, rows, root, x_mean=None):
        self.rows, self.root = rows, np.array(root, dtype=float, order="C")
        self.x_mean = rows.x_mean if x_mean is None else np.array(x_mean, dtype=float, order="C")
        m, r = len(rows.n), self.root.shape[1]
        k = np.diff(rows.starts)
        self.squares = np.concatenate([[0], np.cumsum(k * k)]).astype(np.int64)
        self.A = np.zeros((len(rows.X), r))
        self.values, self.vectors = np.zeros(len(rows.X)), np.zeros(self.squares[-1])
        self.b, self.h = np.zeros((m, r)), np.zeros(len(rows.X))
        _decompose(
            rows.X,
            rows.starts,
            self.root,
            self.x_mean,
            self.squares,
            self.A,
            self.values,
            self.vectors,
            self.b,
            self.h,
        )

    def residuals(self, level, slopes):
        """Targets less the centre in the eigenbasis, (sum k,), and of the means, (m,).

        Parameters
        ----------
        level : float or ndarray (m,)
            c, of the level at x = 0; where `x_mean` are zeros, of the mean target.
        slopes : ndarray (d,)
            a
        """
        rows = self.rows
        levels = np.array(np.broadcast_to(level, len(rows.n)), dtype=float)
        r, r0 = np.zeros(len(rows.X)), np.zeros(len(rows.n))
        slopes = np.array(slopes, dtype=float)
        _residuals(
            rows.X,
            rows.y,
            rows.starts,
            self.squares,
            self.vectors,
            self.x_mean,
            rows.y_mean,
            levels,
            slopes,
            r,
            r0,
        )
        return r, r0


def log_evidence(dec, r, r0, kappa, sigma, tau):
    """Log likelihood of a task's rows in every cell. -> (m, n_kappa, n_sigma, n_tau)

    Parameters
    ----------
    dec : Decomposition
    r, r0 : ndarray (sum k,), (m,)
        As of `Decomposition.residuals`.
    kappa, sigma, tau : ndarray
        Grids; sigma and tau are standard deviations, kappa a variance.

    Notes
    -----
    0 for a task without rows.
    """
    rows = dec.rows
    out = np.zeros((len(rows.n), len(kappa), len(sigma), len(tau)))
    b2 = _lengths(dec.b)
    _log_evidence(
        rows.starts,
        dec.values,
        r,
        dec.h,
        b2,
        r0,
        rows.n,
        rows.rest,
        np.array(kappa, dtype=float),
        np.array(sigma, dtype=float) ** 2,
        np.array(tau, dtype=float) ** 2,
        out,
    )
    return out


def averages(dec, r, r0, weights, kappa, sigma, tau):
    """Posterior means, summed over cells with `weights` (m, n_kappa, n_sigma, n_tau).

    Returns
    -------
    level : ndarray (m,)
        Weighted mean of l - c.
    slopes : ndarray (m, d)
        Weighted mean of w - a. With weights that sum to p, p times the mean.
    """
    rows = dec.rows
    level, w = np.zeros(len(rows.n)), np.zeros((len(rows.n), dec.root.shape[0]))
    _averages(
        rows.starts,
        dec.squares,
        dec.values,
        dec.vectors,
        dec.A,
        dec.root,
        dec.b,
        _lengths(dec.b),
        dec.h,
        r,
        r0,
        rows.n,
        np.ascontiguousarray(weights),
        np.array(kappa, dtype=float),
        np.array(sigma, dtype=float) ** 2,
        np.array(tau, dtype=float) ** 2,
        level,
        w,
    )
    return level, w


def covariances(dec, r, r0, weights, kappa, sigma, tau):
    """Second moments of (l - c, L^-1 (w - a)) over cells. -> (m, 1 + r, 1 + r)

    Of every cell the covariance of the Gaussian plus the square of its mean, weighted and added up:
    less the square of the mean over cells it is the covariance of the mixture. With
    g = kappa b - kappa^2 A' U (h / V) of a cell,

        cov w = kappa I - kappa^2 A' U diag(1 / V) U' A - g g' / v,
        var l = tau^2 - tau^4 / v,     cov(l, w) = -tau^2 g / v.
    """
    rows = dec.rows
    size = 1 + dec.root.shape[1]
    out = np.zeros((len(rows.n), size, size))
    _covariances(
        rows.starts,
        dec.squares,
        dec.values,
        dec.vectors,
        dec.A,
        dec.b,
        _lengths(dec.b),
        dec.h,
        r,
        r0,
        rows.n,
        np.ascontiguousarray(weights),
        np.array(kappa, dtype=float),
        np.array(sigma, dtype=float) ** 2,
        np.array(tau, dtype=float) ** 2,
        out,
    )
    return out


def log_sum(E):
    """log sum exp over all axes but the first, task by task. -> (m,)"""
    out = np.empty(len(E))
    _log_sum(np.ascontiguousarray(E).reshape(len(E), -1), out)
    return out


def weigh(E, log_weights):
    """Posterior weights of cells, in place of log evidence E (m, ...). -> log evidence, (m,)

    `log_weights` (...) are those of the prior, the same for all tasks.
    """
    total = np.empty(len(E))
    flat = np.ascontiguousarray(np.broadcast_to(log_weights, E.shape[1:]), dtype=float).ravel()
    _weigh(E.reshape(len(E), -1), flat, total)
    return total


def _lengths(b):
    out = np.zeros(len(b))
    _squared_lengths(b, out)
    return out


@njit
def _squared_lengths(b, out):
    for t in range(len(b)):
        s = 0.0
        for j in range(b.shape[1]):
            s += b[t, j] * b[t, j]
        out[t] = s


@njit
def _log_sum(E, out):
    for t in range(len(E)):
        top = -np.inf
        for j in range(E.shape[1]):
            top = max(top, E[t, j])
        s = 0.0
        if top > -np.inf:
            for j in range(E.shape[1]):
                s += np.exp(E[t, j] - top)
            out[t] = top + np.log(s)
        else:
            out[t] = top


@njit
def _weigh(E, log_weights, total):
    for t in range(len(E)):
        top = -np.inf
        for j in range(E.shape[1]):
            E[t, j] += log_weights[j]
        for j in range(E.shape[1]):
            top = max(top, E[t, j])
        for j in range(E.shape[1]):
            E[t, j] = np.exp(E[t, j] - top)
        s = 0.0
        for j in range(E.shape[1]):
            s += E[t, j]
        for j in range(E.shape[1]):
            E[t, j] /= s
        total[t] = top + np.log(s)


@njit
def _reduce(X, y, offsets, starts, R, z, rest, x_mean, y_mean):
    d = X.shape[1]
    for t in range(len(offsets) - 1):
        lo, n = offsets[t], offsets[t + 1] - offsets[t]
        if n == 0:
            continue
        C, v = np.empty((n, d)), np.empty(n)
        for j in range(d):
            s = 0.0
            for i in range(n):
                s += X[lo + i, j]
            x_mean[t, j] = s / n
        s = 0.0
        for i in range(n):
            s += y[lo + i]
        y_mean[t] = s / n
        for i in range(n):
            v[i] = y[lo + i] - y_mean[t]
            for j in range(d):
                C[i, j] = X[lo + i, j] - x_mean[t, j]
        first = starts[t]
        if n <= d:
            R[first : first + n] = C
            z[first : first + n] = v
            continue
        Q, T = np.linalg.qr(C)
        R[first : first + d] = T
        for j in range(d):
            s = 0.0
            for i in range(n):
                s += Q[i, j] * v[i]
            z[first + j] = s
        # What is left after the projection, added up from squares, which cannot be negative.
        s = 0.0
        for i in range(n):
            e = v[i]
            for j in range(d):
                e -= Q[i, j] * z[first + j]
            s += e * e
        rest[t] = s


@njit
def _decompose(R, starts, L, x_mean, squares, A, values, vectors, b, h):
    d, r = L.shape
    for t in range(len(starts) - 1):
        lo, k = starts[t], starts[t + 1] - starts[t]
        for c in range(r):
            s = 0.0
            for j in range(d):
                s += x_mean[t, j] * L[j, c]
            b[t, c] = s
        if k == 0:
            continue
        own = np.empty((k, d))
        own[:] = R[lo : lo + k]
        a = np.dot(own, L)
        A[lo : lo + k] = a
        lam, U = np.linalg.eigh(np.dot(a, a.T))
        for i in range(k):
            values[lo + i] = max(lam[i], 0.0)
            for j in range(k):
                vectors[squares[t] + i * k + j] = U[i, j]
        p = np.empty(k)
        for i in range(k):
            s = 0.0
            for c in range(r):
                s += a[i, c] * b[t, c]
            p[i] = s
        for i in range(k):
            s = 0.0
            for j in range(k):
                s += U[j, i] * p[j]
            h[lo + i] = s


@njit
def _residuals(R, z, starts, squares, vectors, x_mean, y_mean, level, a, r, r0):
    d = R.shape[1]
    for t in range(len(starts) - 1):
        lo, k = starts[t], starts[t + 1] - starts[t]
        s = y_mean[t] - level[t]
        for j in range(d):
            s -= x_mean[t, j] * a[j]
        r0[t] = s
        v = np.empty(k)
        for i in range(k):
            s = z[lo + i]
            for j in range(d):
                s -= R[lo + i, j] * a[j]
            v[i] = s
        for i in range(k):
            s = 0.0
            for j in range(k):
                s += vectors[squares[t] + j * k + i] * v[j]
            r[lo + i] = s


@njit
def _log_evidence(starts, lam, r, h, b2, r0, n, rest, kappa, s2, t2, out):
    of_mean = np.empty((len(s2), len(t2)))
    for t in range(len(n)):
        if n[t] == 0:
            continue
        lo, hi = starts[t], starts[t + 1]
        dof = n[t] - 1.0 - (hi - lo)
        if b2[t] == 0.0:  # the mean row says nothing of slopes: its part is the same for all kappa
            for c in range(len(s2)):
                for j in range(len(t2)):
                    u = s2[c] / n[t] + t2[j]
                    of_mean[c, j] = -0.5 * (np.log(u) + r0[t] * r0[t] / u)
        for a in range(len(kappa)):
            g = kappa[a]
            for c in range(len(s2)):
                p, logs, q, v, e = 1.0, 0.0, 0.0, g * b2[t], r0[t]
                for i in range(lo, hi):
                    V = s2[c] + g * lam[i]
                    p *= V
                    if p > 1e200 or p < 1e-200:
                        logs += np.log(p)
                        p = 1.0
                    f = g * h[i] / V
                    q += r[i] * r[i] / V
                    v -= g * h[i] * f
                    e -= f * r[i]
                base = -0.5 * (logs + np.log(p) + q + dof * np.log(s2[c]) + rest[t] / s2[c])
                v = max(v, 0.0) + s2[c] / n[t]
                if b2[t] == 0.0:
                    for j in range(len(t2)):
                        out[t, a, c, j] = base + of_mean[c, j]
                    continue
                for j in range(len(t2)):
                    u = v + t2[j]
                    out[t, a, c, j] = base - 0.5 * (np.log(u) + e * e / u)


@njit
def _averages(starts, squares, lam, U, A, L, b, b2, h, r, r0, n, P, kappa, s2, t2, level, out):
    d, rank = L.shape
    for t in range(len(n)):
        if n[t] == 0:
            continue
        lo, k = starts[t], starts[t + 1] - starts[t]
        c1, c2, w = np.zeros(k), np.zeros(k), np.zeros(rank)
        of_mean, of_level = 0.0, 0.0
        for a in range(len(kappa)):
            g = kappa[a]
            for c in range(len(s2)):
                v, e = g * b2[t], r0[t]
                for i in range(lo, lo + k):
                    f = g * h[i] / (s2[c] + g * lam[i])
                    v -= g * h[i] * f
                    e -= f * r[i]
                v = max(v, 0.0) + s2[c] / n[t]
                p, rho = 0.0, 0.0
                for j in range(len(t2)):
                    q = P[t, a, c, j] * e / (v + t2[j])
                    p += P[t, a, c, j]
                    rho += q
                    of_level += q * t2[j]
                of_mean += g * rho
                for i in range(k):
                    f = g / (s2[c] + g * lam[lo + i])
                    c1[i] += f * p
                    c2[i] += f * g * rho
        level[t] = of_level
        for i in range(k):
            c1[i] = c1[i] * r[lo + i] - c2[i] * h[lo + i]
        for i in range(k):
            s = 0.0
            for j in range(k):
                s += U[squares[t] + i * k + j] * c1[j]
            c2[i] = s
        for q in range(rank):
            s = of_mean * b[t, q]
            for i in range(k):
                s += A[lo + i, q] * c2[i]
            w[q] = s
        for j in range(d):
            s = 0.0
            for q in range(rank):
                s += L[j, q] * w[q]
            out[t, j] = s


@njit
def _covariances(starts, squares, lam, U, A, b, b2, h, r, r0, n, P, kappa, s2, t2, out):
    rank = A.shape[1]
    for t in range(len(n)):
        lo, k = starts[t], starts[t + 1] - starts[t]
        B = np.zeros((k, rank))  # U' A
        for i in range(k):
            for q in range(rank):
                s = 0.0
                for j in range(k):
                    s += U[squares[t] + j * k + i] * A[lo + j, q]
                B[i, q] = s
        g, w = np.empty(rank), np.empty(rank)
        of_rows, flat = np.zeros(k), 0.0
        for a in range(len(kappa)):
            z = kappa[a]
            for c in range(len(s2)):
                v, e = z * b2[t], r0[t]
                for i in range(k):
                    f = z * h[lo + i] / (s2[c] + z * lam[lo + i])
                    v -= z * h[lo + i] * f
                    e -= f * r[lo + i]
                v = max(v, 0.0) + s2[c] / max(n[t], 1e-300)
                for q in range(rank):
                    x, y = z * b[t, q], 0.0
                    for i in range(k):
                        f = z * B[i, q] / (s2[c] + z * lam[lo + i])
                        x -= z * h[lo + i] * f
                        y += f * r[lo + i]
                    g[q], w[q] = x, y
                for j in range(len(t2)):
                    p, u = P[t, a, c, j], v + t2[j]
                    if n[t] == 0:
                        out[t, 0, 0] += p * t2[j]
                        flat += p * z
                        continue
                    step = e / u
                    out[t, 0, 0] += p * (t2[j] - t2[j] * t2[j] / u + (t2[j] * step) ** 2)
                    flat += p * z
                    for i in range(k):
                        of_rows[i] += p * z * z / (s2[c] + z * lam[lo + i])
                    for q in range(rank):
                        mean = w[q] + g[q] * step
                        out[t, 0, 1 + q] += p * t2[j] * (step * mean - g[q] / u)
                        for o in range(rank):
                            other = w[o] + g[o] * step
                            out[t, 1 + q, 1 + o] += p * (mean * other - g[q] * g[o] / u)
        for q in range(rank):
            out[t, 1 + q, 0] = out[t, 0, 1 + q]
            out[t, 1 + q, 1 + q] += flat
            for o in range(rank):
                s = 0.0
                for i in range(k):
                    s += of_rows[i] * B[i, q] * B[i, o]
                out[t, 1 + q, 1 + o] -= s
