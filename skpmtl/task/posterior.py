"""Posterior of a task's level and slopes on a grid of scales, for squared loss.

For task t with n rows, mean row x0, mean target y0, and public centre (c, a), shape S = L L':

    y_i = l + x_i' w + e_i,   l ~ N(c, tau^2),   w ~ N(a, kappa S),   e_i ~ N(0, sigma^2).

The centred rows X know w alone, and the mean row knows l + x0' w; given the scales, both are
Gaussian (Lindley and Smith, JRSS B 34, 1972). With h = X S x0, r = y - y0 - X a,
theta = kappa / sigma^2 and V = I + theta X S X',

    log p(y - y0) = -(log |V| + r' V^-1 r / sigma^2 + (n - 1) log sigma^2 + rss / sigma^2) / 2,
    y0 | y - y0  ~ N(c + x0' a + theta h' V^-1 r,  v),
    v = kappa (x0' S x0 - theta h' V^-1 h) + sigma^2 / n + tau^2,
    w - a = S (theta X' V^-1 (r - kappa e h / v) + kappa e x0 / v),   e = y0 - its mean,

so that the mean row is an exact update of rank one, and the cells of (kappa, sigma) differ by few
theta, since both grids are powers of two. X S X' is made tridiagonal once (Householder), T = Q' X S
X' Q; solving V is then of linear cost for every theta. With T = U D U' for a unit bidiagonal U the
pivots of I + theta T follow from those of T without a subtraction (the stationary qd algorithm:
Dhillon and Parlett, Linear Algebra Appl. 387, 2004), so that they are above 1 for all rows.
Constants in 2 pi are left out.

Numbers of all theta, and of all cells, lie next to each other, so that loops over them are vector
instructions, and no array of all cells of all tasks is ever written. Every loop goes through one
task at a time, and every call of a library is of the rows of one, so that a result does not depend
on which other tasks there are.
"""

from copy import copy
from dataclasses import dataclass

import numpy as np

from .._runtime.jit import njit
from ..tables.table import row_products

__all__ = [
    "Decomposition",
    "TaskRows",
    "averages",
    "covariances",
    "gains",
    "information",
    "log_evidence",
    "log_evidence_by",
    "log_sum",
    "moved",
]

_AT_ONCE = 1 << 20  # numbers of the rows of tasks of one size that numpy sees as one stack
_ROUNDING = 2.0**-50  # of the numbers of T, times the root of its size: added to its diagonal
_LOG_MOST = 660.0  # of a product of pivots before its logarithm is taken


def _groups(sizes, width):
    """Stacks of tasks of equal size, of rows of this width. -> (size, tasks) of sizes above 0"""
    order = np.argsort(sizes, kind="stable")
    ends = np.flatnonzero(np.diff(sizes[order], append=-1)) + 1
    first = 0
    for end in ends:
        size = int(sizes[order[first]])
        if size > 0:
            step = max(_AT_ONCE // (size * max(width, size)), 1)
            for begin in range(first, end, step):
                yield size, order[begin : min(begin + step, end)]
        first = end


def _members(starts, tasks, size):
    """Positions of the rows of tasks, (tasks, size)."""
    return starts[tasks][:, None] + np.arange(size)


@dataclass
class TaskRows:
    """Rows of m tasks, centred in each task and reduced to k = min(n - 1, d) of them.

    Attributes
    ----------
    X : ndarray (sum k, d)
        Contrasts of rows, or the triangular factor of centred rows where these are fewer.
    y : ndarray (sum k,)
        Centred targets, in the same basis.
    starts : ndarray (m + 1,)
        Reduced rows of task t are ``starts[t]:starts[t + 1]``.
    rest : ndarray (m,)
        Sum of squares of the targets that no slopes can reach, rss.
    n : ndarray (m,)
        Numbers of rows, as far as they count; 0 for a task that contributes nothing.
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
    def of(cls, X, y, offsets, counts=None):
        """From rows X (N, d), y (N,) sorted by task; those of t are offsets[t]:offsets[t + 1].

        A row that counts u times, u in `counts` (N,), has noise of variance sigma^2 / u. None: all
        count once.
        """
        offsets = np.asarray(offsets)
        sizes, d = np.diff(offsets), X.shape[1]
        known = np.clip(sizes - 1, 0, d)
        starts = np.concatenate([[0], np.cumsum(known)]).astype(np.int64)
        m, total = len(sizes), starts[-1]
        rows = cls(
            np.zeros((total, d)),
            np.zeros(total),
            starts,
            np.zeros(m),
            sizes.astype(float),
            np.zeros((m, d)),
            np.zeros(m),
        )
        both = np.c_[X, y].astype(float)
        for n, tasks in _groups(sizes, d + 1):
            places = _members(offsets, tasks, n)
            own = both[places]
            if counts is not None:
                u = counts[places]
                rows.n[tasks] = u.sum(axis=1)
                mean = (u[..., None] * own).sum(axis=1) / rows.n[tasks, None]
            else:
                mean = own.sum(axis=1) / n
            own -= mean[:, None]
            share = np.full(n, 1.0 / np.sqrt(n))
            if counts is not None:
                own *= np.sqrt(u)[..., None]
                share = np.sqrt(u / rows.n[tasks, None])
            rows.x_mean[tasks], rows.y_mean[tasks] = mean[:, :d], mean[:, d]
            at = _members(starts, tasks, min(n - 1, d))
            if n - 1 > d:
                own = np.linalg.qr(own, mode="r")
                rows.rest[tasks] = own[:, d, d] ** 2
                own = own[:, :d]
            else:  # a reflection turns the direction of the mean into the last row
                last = share[..., :-1] / (1.0 + share[..., -1:])
                own = own[:, :-1] - last[..., None] * own[:, -1:]
            rows.X[at], rows.y[at] = own[..., :d], own[..., d]
        return rows


class Decomposition:
    """Rows of every task in a basis in which X S X' is tridiagonal.

    Parameters
    ----------
    rows : TaskRows
    root : ndarray (d, r)
        L, a root of the public shape S = L L'.
    x_mean : ndarray (m, d), default=None
        Mean rows that the level is seen through; None: those of `rows`. Zeros leave the mean row
        to the level alone.

    Attributes
    ----------
    basis : ndarray (sum k^2,)
        Reflections that make the matrix of a task tridiagonal, one after the other.
    pivots, off, link : ndarray (sum k,)
        D of T = U D U', the numbers below the diagonal of T, and their squares over the pivot
        before.
    h : ndarray (sum k,)
        X S x0 in this basis.
    b2 : ndarray (m,)
        x0' S x0.
    """

    def __init__(self, rows, root, x_mean=None):
        self.rows, self.root = rows, np.array(root, dtype=float)
        self.shape = self.root @ self.root.T
        sizes = np.diff(rows.starts)
        self.squares = np.concatenate([[0], np.cumsum(sizes**2)]).astype(np.int64)
        self.basis = np.zeros(self.squares[-1])
        for k, tasks in _groups(sizes, len(self.root)):
            A = rows.X[_members(rows.starts, tasks, k)] @ self.root
            at = self.squares[tasks][:, None] + np.arange(k * k)
            self.basis[at] = (A @ A.transpose(0, 2, 1)).reshape(len(tasks), k * k)
        self.pivots, self.off, self.link = (np.zeros(len(rows.y)) for _ in range(3))
        self.reach = np.zeros(len(rows.n))
        _tridiagonal(
            rows.starts, self.squares, self.basis, self.pivots, self.off, self.link, self.reach
        )
        self._see(rows.x_mean if x_mean is None else x_mean)

    def _see(self, x_mean):
        rows = self.rows
        self.x_mean = np.array(x_mean, dtype=float, order="C")
        of_mean = row_products(self.x_mean, self.shape)
        self.h, self.b2 = self._rest(np.zeros(len(rows.y)), -of_mean), _dots(self.x_mean, of_mean)

    def seen_from(self, x_mean):
        """The same with other mean rows."""
        found = copy(self)
        found._see(x_mean)
        return found

    def _rest(self, y, vectors, some=slice(None)):
        """y less rows times the vector of their task, of these tasks in this basis. -> (sum k,)"""
        out, (first, last, _) = np.zeros(len(y)), some.indices(len(self.rows.n))
        T = self.rows.starts[first : last + 1], self.squares[some], self.basis
        _residuals(*T, self.rows.X, y, np.ascontiguousarray(vectors), 1, out)
        return out

    def _centred(self, level, slopes, some):
        """Arguments of kernels: the targets of these tasks less their centre, in this basis, and of
        means."""
        rows, (first, last, _) = self.rows, some.indices(len(self.rows.n))
        x_mean = self.x_mean[some]
        slopes = np.broadcast_to(np.asarray(slopes, dtype=float), x_mean.shape)
        r0 = rows.y_mean[some] - level - _dots(x_mean, slopes)
        T = rows.starts[first : last + 1], self.pivots, self.off, self.link, self.reach[some]
        r = self._rest(rows.y, slopes, some)
        return *T, r, self.h, self.b2[some], r0, rows.n[some], rows.rest[some]

    def spectrum(self, k, tasks):
        """Of tasks of k rows: eigenvalues of X S X' (., k), X and y in the eigenbasis."""
        at = _members(self.rows.starts, tasks, k)
        X = self.rows.X[at]
        A = X @ self.root
        values, U = np.linalg.eigh(A @ A.transpose(0, 2, 1))
        U = U.transpose(0, 2, 1)
        return np.maximum(values, 0.0), U @ X, (U @ self.rows.y[at][..., None])[..., 0]


def _dots(A, B):
    """Inner product of every task's vectors, one column after the other. -> (m,)"""
    return sum((A[:, j] * B[:, j] for j in range(A.shape[1])), np.zeros(len(A)))


def _cells_of(scales):
    """Arguments of kernels: all theta, and of every pair of kappa and sigma which of them it has;
    kappa, sigma^2, its logarithm, log weights of pairs; tau^2 and weights (padded to whole
    vectors); the number of sigma."""
    kappa, s2 = (np.ravel(a) for a in np.meshgrid(scales.kappa, scales.sigma**2, indexing="ij"))
    theta, at = np.unique(kappa / s2, return_inverse=True)
    logs = (scales.log_kappa[:, None] + scales.log_sigma).ravel()
    spare = -len(scales.tau) % 8
    t2 = np.append(scales.tau**2, np.full(spare, 1.0))
    wt = np.append(np.exp(scales.log_tau), np.zeros(spare))
    return theta, at.ravel(), kappa, s2, np.log(s2), logs, t2, wt, len(scales.sigma)


EVIDENCE, MEANS, GAINS, INFORMATION, COVARIANCES = range(5)  # what the kernel is asked for
_SUMS = (0, 2, 2, 3, 6)  # of cells of one theta, for each of them


def _ask(what, dec, level, slopes, scales, size=1, axis=0, some=slice(None)):
    """What the kernel finds for some tasks, whose levels and slopes are given.

    -> all theta, log evidence (m, size), of tasks (m, 3), by theta (m, ., R)
    """
    cells, m = _cells_of(scales), len(dec.rows.n[some])
    found = np.zeros((m, size)), np.zeros((m, 3)), np.zeros((m, _SUMS[what], len(cells[0])))
    _posterior(*dec._centred(level, slopes, some), *cells, what, axis, *found)
    return cells[0], *found


def log_evidence(dec, level, slopes, scales):
    """Log evidence of the rows of every task. -> (m,), 0 for a task without rows

    Parameters
    ----------
    dec : Decomposition
    level : float or ndarray (m,)
        c, of the level at x = 0; where `x_mean` are zeros, of the mean target.
    slopes : ndarray (d,) or (m, d)
        a, of all tasks or of every one.
    scales : priors.Scales
        Grids of kappa (variance), sigma and tau (standard deviations), and log weights on them.
    """
    return _ask(EVIDENCE, dec, level, slopes, scales)[1][:, 0]


def log_evidence_by(axis, dec, level, slopes, scales):
    """Log evidence of every cell of one grid, over the others. -> (m, n)

    `axis` is "kappa", "sigma" or "tau". Weights of `scales` count for it, too.
    """
    sizes = {"kappa": len(scales.kappa), "sigma": len(scales.sigma), "tau": len(scales.tau)}
    which = 1 + list(sizes).index(axis)
    return _ask(EVIDENCE, dec, level, slopes, scales, sizes[axis], which)[1]


def averages(dec, level, slopes, scales):
    """Posterior means. -> log evidence (m,), mean of l - c (m,), mean of w - a (m, d)"""
    theta, total, own, sums = _ask(MEANS, dec, level, slopes, scales)
    return total[:, 0], own[:, 0], _slopes_of(dec, slopes, theta, sums, own[:, 1])


def gains(dec, level, slopes, scales):
    """What multiplies residuals in posterior means, if the weights of cells stay as they are.

    For `moved`; of tasks of which rows know slopes, or the mean row does, but not both.
    -> all theta, their weights (m, 2, n), of the level (m,), of mean rows (m,)
    """
    theta, _, own, sums = _ask(GAINS, dec, level, slopes, scales)
    return theta, sums, own[:, 0], own[:, 1]


def moved(dec, known, level, slopes):
    """Posterior means about another centre, by the `gains` of one. -> of l - c, of w - a"""
    theta, sums, of_level, near = known
    slopes = np.broadcast_to(np.asarray(slopes, dtype=float), dec.x_mean.shape)
    r0 = dec.rows.y_mean - level - _dots(dec.x_mean, slopes)
    return of_level * r0, _slopes_of(dec, slopes, theta, sums, near * r0)


def _slopes_of(dec, centre, theta, sums, near):
    """Mean of w - a, (m, d), from weights of residuals and of h by theta, and of mean rows."""
    r = dec._rest(dec.rows.y, np.broadcast_to(np.asarray(centre, dtype=float), dec.x_mean.shape))
    out = near[:, None] * dec.x_mean
    T = dec.rows.starts, dec.squares, dec.basis, dec.pivots, dec.off, dec.link
    _slopes(*T, r, dec.h, theta, sums, dec.rows.X, -1, out)
    return row_products(out, dec.shape)


def information(dec, level, slopes, scales, some=slice(None)):
    """Score and information of the centre (c, a), of these tasks. -> (m, 1 + d), (m, 1 + d, 1 + d)

    With q = x0 - theta X' V^-1 h of a cell, averaged over cells by their weights:

        score = ((e / v), X' V^-1 r / sigma^2 + q e / v),
        information = X' V^-1 X / sigma^2 + (1, q) (1, q)' / v.

    The score is the gradient of the log evidence. The information is that of a Gaussian of known
    scales, which is at least as large as that of the mixture: steps by it do not overshoot.
    """
    m, d = dec.x_mean.shape
    first, last, _ = some.indices(m)
    theta, _, own, sums = _ask(INFORMATION, dec, level, slopes, scales, some=some)
    score, info = np.zeros((last - first, 1 + d)), np.zeros((last - first, 1 + d, 1 + d))
    score[:, 0] = own[:, 0]
    for tasks, Z, V, r, q in _by_theta(dec, slopes, theta, first, last):
        at = tasks - first
        of_rows, of_means, of_e = (sums[at, i, :, None] for i in range(3))
        f = np.sum(of_rows * V, axis=1)
        score[at, 1:] = ((f * r)[:, None] @ Z)[:, 0] + (of_e.transpose(0, 2, 1) @ q)[:, 0]
        q = np.concatenate([np.ones((*q.shape[:2], 1)), q], axis=2)
        info[at] = q.transpose(0, 2, 1) @ (of_means * q)
        info[at, 1:, 1:] += Z.transpose(0, 2, 1) @ (f[..., None] * Z)
    return score, info


def covariances(dec, level, slopes, scales):
    """Second moments of (l - c, w - a) under the posterior. -> (m, 1 + d, 1 + d)

    Of every cell the covariance of the Gaussian plus the square of its mean, weighted and added up:
    less the square of the mean over cells it is the covariance of the mixture. With
    g = kappa S (x0 - theta X' V^-1 h) of a cell,

        cov w = kappa S - kappa theta S X' V^-1 X S - g g' / v,
        var l = tau^2 - tau^4 / v,     cov(l, w) = -tau^2 g / v.

    Of a task without rows, that of its prior.
    """
    m, d = dec.x_mean.shape
    S, out = dec.shape, np.zeros((m, 1 + d, 1 + d))
    theta, _, own, sums = _ask(COVARIANCES, dec, level, slopes, scales)
    none = dec.rows.n == 0
    own[none, 0] = np.exp(scales.log_tau) @ scales.tau**2 / np.exp(scales.log_tau).sum()
    own[none, 1] = np.exp(scales.log_kappa) @ scales.kappa / np.exp(scales.log_kappa).sum()
    out[:, 0, 0], out[:, 1:, 1:] = own[:, 0], own[:, 1, None, None] * S
    for tasks, Z, V, r, q in _by_theta(dec, slopes, theta, 0, m):
        s = [sums[tasks, i, :, None] for i in range(6)]
        b, w = q @ S, theta[:, None] * ((V * r[:, None]) @ Z) @ S
        out[tasks, 0, 1:] = np.sum(s[2] * b + s[3] * w, axis=1)
        out[tasks, 1:, 0] = out[tasks, 0, 1:]
        both = b.transpose(0, 2, 1) @ (s[5] * w)
        square = w.transpose(0, 2, 1) @ (s[0] * w) + b.transpose(0, 2, 1) @ (s[4] * b)
        Z = Z @ S
        known = Z.transpose(0, 2, 1) @ (np.sum(s[1] * V, axis=1)[..., None] * Z)
        out[tasks, 1:, 1:] += square + both + both.transpose(0, 2, 1) - known
    return out


def _by_theta(dec, slopes, theta, first, last):
    """Stacks of the tasks first ... last - 1 that have rows, of equal numbers of them.

    -> tasks; Z, rows in their eigenbasis (., k, d); 1 / (1 + theta lam) (., R, k); residuals
    (., k); q = x0 - theta X' V^-1 h (., R, d)
    """
    d = dec.x_mean.shape[1]
    slopes = np.broadcast_to(np.asarray(slopes, dtype=float), (last - first, d))
    sizes = np.where(dec.rows.n > 0, np.diff(dec.rows.starts) + 1, 0)[first:last]
    for size, tasks in _groups(sizes, len(theta) * d):
        k, tasks = size - 1, tasks + first
        values, Z, y = dec.spectrum(k, tasks)
        V = 1.0 / (1.0 + theta[:, None] * values[:, None])
        r = y - (Z @ slopes[tasks - first][..., None])[..., 0]
        h = (Z @ (row_products(dec.x_mean[tasks], dec.shape)[..., None]))[..., 0]
        q = dec.x_mean[tasks][:, None] - theta[:, None] * ((V * h[:, None]) @ Z)
        yield tasks, Z, V, r, q


def log_sum(E):
    """log sum exp over all axes but the first, task by task. -> (m,)"""
    E = np.asarray(E).reshape(len(E), -1)
    top = E.max(axis=1)
    return top + np.log(np.exp(E - top[:, None]).sum(axis=1))


# ------------------------------------------------------------------------------------ kernels
@njit
def _largest(x):
    top = x[0]
    for i in range(1, len(x)):
        top = max(top, x[i])
    return top


@njit
def _most_rows(starts):
    most = 0
    for t in range(len(starts) - 1):
        most = max(most, starts[t + 1] - starts[t])
    return most


@njit
def _tridiagonal(starts, squares, W, D, off, link, reach):
    """T of every task, and in place of its matrix the reflections I - u u', u in a row each."""
    p = np.empty(_most_rows(starts))
    for t in range(len(reach)):
        lo, k, o = starts[t], starts[t + 1] - starts[t], squares[t]
        unit = 0.0  # all squares are of numbers below 1
        for i in range(k):
            unit += W[o + i * k + i]
        if unit <= 0.0:
            unit = 1.0
        for i in range(k * k):
            W[o + i] /= unit
        for i in range(k):
            row = o + i * k
            D[lo + i] = W[row + i]
            if i + 1 == k:
                break
            first, s = W[row + i + 1], 0.0
            for j in range(i + 2, k):
                s += W[row + j] * W[row + j]
            if s == 0.0:
                off[lo + i + 1] = first
                W[row + i + 1] = 0.0
                continue
            size = np.sqrt(first * first + s)
            off[lo + i + 1] = -size if first > 0.0 else size
            W[row + i + 1] -= off[lo + i + 1]
            s = 1.0 / np.sqrt(size * (size + abs(first)))
            for j in range(i + 1, k):
                W[row + j] *= s
            half = 0.0
            for q in range(i + 1, k):
                s = 0.0
                for j in range(i + 1, k):
                    s += W[o + q * k + j] * W[row + j]
                p[q] = s
                half += 0.5 * s * W[row + q]
            for q in range(i + 1, k):
                p[q] -= half * W[row + q]
            for q in range(i + 1, k):
                a, b = W[row + q], p[q]
                for j in range(i + 1, k):
                    W[o + q * k + j] -= a * p[j] + b * W[row + j]
        top = 0.0
        for i in range(k):
            after = abs(off[lo + i + 1]) if i + 1 < k else 0.0
            top = max(top, D[lo + i] + abs(off[lo + i]) + after)
        least = _ROUNDING * np.sqrt(k) * top  # with it the matrix is definite, whatever was rounded
        for i in range(k):
            D[lo + i] += least
            if i > 0 and least > 0.0:
                link[lo + i] = off[lo + i] * off[lo + i] / D[lo + i - 1]
            D[lo + i] = max(D[lo + i] - link[lo + i], least)
        for i in range(lo, lo + k):
            D[i] *= unit
            off[i] *= unit
            link[i] *= unit
        reach[t] = top * unit


@njit
def _rotate(W, o, k, v, lo, way):
    """Numbers of one task in the basis of T, in place of those in that of rows, or back if `way`
    is -1."""
    for step in range(k - 1):
        i = step if way > 0 else k - 2 - step
        s = 0.0
        for j in range(i + 1, k):
            s += W[o + i * k + j] * v[lo + j]
        for j in range(i + 1, k):
            v[lo + j] -= s * W[o + i * k + j]


@njit
def _residuals(starts, squares, W, X, y, a, way, r):
    """y less rows times the vector of their task, in the basis of T."""
    d = a.shape[1]
    for t in range(len(a)):
        lo = starts[t]
        for i in range(lo, starts[t + 1]):
            s = 0.0
            for j in range(d):
                s += X[i, j] * a[t, j]
            r[i] = y[i] - s
        _rotate(W, squares[t], starts[t + 1] - lo, r, lo, way)


@njit
def _forward(lo, k, D, off, link, theta, r, h, s, F, Wr, Wh):
    """Inverse pivots F of V = I + theta T, and what elimination makes of r and h, (k, n)."""
    R = len(theta)
    for i in range(k):
        a, b, c, y, z = D[lo + i], off[lo + i], link[lo + i], r[lo + i], h[lo + i]
        if i == 0:
            for j in range(R):
                s[j] = 1.0
                F[0, j] = 1.0 / (1.0 + theta[j] * a)
                Wr[0, j] = y
                Wh[0, j] = z
            continue
        for j in range(R):
            f = theta[j] * F[i - 1, j]
            s[j] = 1.0 + c * f * s[j]
            Wr[i, j] = y - b * f * Wr[i - 1, j]
            Wh[i, j] = z - b * f * Wh[i - 1, j]
            F[i, j] = 1.0 / (theta[j] * a + s[j])


@njit
def _small_exp(x):
    """exp(x) of x in -50 ... 0 to 10 digits, in instructions that work on vectors."""
    z = x * (1.0 / 256.0)
    p = 1.0 + z * (1.0 / 9.0)
    p = 1.0 + z * p / 8.0
    p = 1.0 + z * p * (1.0 / 7.0)
    p = 1.0 + z * p * (1.0 / 6.0)
    p = 1.0 + z * p * (1.0 / 5.0)
    p = 1.0 + z * p / 4.0
    p = 1.0 + z * p * (1.0 / 3.0)
    p = 1.0 + z * p / 2.0
    p = 1.0 + z * p
    p *= p
    p *= p
    p *= p
    p *= p
    p *= p
    p *= p
    p *= p
    return p * p


@njit
def _of_mean(v, e, t2, wt, far):
    """Of a mean with residual e and variance v + tau^2: logarithm of a factor of the density over
    tau, the rest of it, mean of 1 / (v + tau^2). Every exponential is over that of `far`, the
    largest tau^2."""
    half = -0.5 * e * e
    least = half / (v + far)
    m0, m1 = 0.0, 0.0
    for j in range(len(t2)):
        u = 1.0 / (v + t2[j])
        w = wt[j] * np.sqrt(u) * _small_exp(min(max(half * u - least, -50.0), 0.0))
        m0 += w
        m1 += w * u
    return least, m0, m1 / m0


@njit
def _weigh(E, m0):
    """Weights that add up to one, in place of the logarithms E of weights without factors m0.
    -> log of the sum before"""
    top, s = _largest(E), 0.0
    for p in range(len(E)):
        E[p] = m0[p] * np.exp(E[p] - top) if E[p] > top - 40.0 else 0.0
    for p in range(len(E)):
        s += E[p]
    for p in range(len(E)):
        E[p] /= s
    return top + np.log(s)


@njit
def _posterior(
    starts,
    D,
    off,
    link,
    reach,
    r,
    h,
    b2,
    r0,
    n,
    rest,
    theta,
    at,
    g,
    s2,
    log_s2,
    logs,
    t2,
    wt,
    n_sigma,
    what,
    axis,
    out,
    own,
    sums,
):
    """Log evidence of every task, over all cells or by those of one axis, or sums over the weights
    of its cells: into `own`, and by theta into `sums`.

    MEANS: of the level and of x0; of r and of h in slopes, S (X' V^-1 (. r - . h) + . x0). GAINS:
    the same of residuals of one. INFORMATION: e / v; 1 / sigma^2, 1 / v, e / v. COVARIANCES: second
    moment of l - c, kappa; 1, kappa theta, and what multiplies b, w, b b' and b w', where slopes
    have the mean w + b kappa e / v.
    """
    P, R, most = len(g), len(theta), _most_rows(starts)
    E, v, e, m0, m1 = np.empty(P), np.empty(P), np.empty(P), np.empty(P), np.empty(P)
    F, Wr, Wh = np.empty((most, R)), np.empty((most, R)), np.empty((most, R))
    logdet, rr, rh, hh, product = np.empty(R), np.empty(R), np.empty(R), np.empty(R), np.empty(R)
    far, size, n_kappa = _largest(t2), out.shape[1], P // n_sigma
    for t in range(len(n)):
        if n[t] == 0:
            continue
        lo, k = starts[t], starts[t + 1] - starts[t]
        _forward(lo, k, D, off, link, theta, r, h, product, F, Wr, Wh)
        for j in range(R):
            logdet[j], rr[j], rh[j], hh[j], product[j] = 0.0, 0.0, 0.0, 0.0, 1.0
        at_once = max(int(_LOG_MOST / np.log(2.0 + theta[R - 1] * reach[t])), 1)
        for i in range(k):
            for j in range(R):
                f, y, z = F[i, j], Wr[i, j], Wh[i, j]
                product[j] *= f
                rr[j] += y * y * f
                rh[j] += y * z * f
                hh[j] += z * z * f
            if i % at_once == at_once - 1 or i == k - 1:
                for j in range(R):
                    logdet[j] -= np.log(product[j])
                    product[j] = 1.0
        for p in range(P):
            j = at[p]
            v[p] = max(g[p] * (b2[t] - theta[j] * hh[j]), 0.0) + s2[p] / n[t]
            e[p] = r0[t] - theta[j] * rh[j]
            E[p] = logs[p] - 0.5 * (
                logdet[j] + (n[t] - 1.0) * log_s2[p] + (rr[j] + rest[t]) / s2[p]
            )
        # Pairs that weigh less are left out, even if their means are where the density is highest:
        # of all pairs, or of those of one kappa (axis 1), or of one sigma (axis 2).
        high = 0.5 * np.log(t2[0] + s2[0] / n[t]) - 25.0
        for part in range(n_kappa if axis == 1 else n_sigma if axis == 2 else 1):
            first = part * n_sigma if axis == 1 else part
            step = n_sigma if axis == 2 else 1
            last = first + (
                n_sigma if axis == 1 else (n_kappa - 1) * n_sigma + 1 if axis == 2 else P
            )
            best = first
            for p in range(first, last, step):
                if E[p] > E[best]:
                    best = p
            least, density, _ = _of_mean(v[best], e[best], t2, wt, far)
            least += E[best] + np.log(density) + high
            for p in range(first, last, step):
                if E[p] < least:
                    E[p], m0[p], m1[p] = -np.inf, 0.0, 0.0
                elif b2[t] == 0.0 and p >= n_sigma and m0[p - n_sigma] > 0.0:
                    # The mean row says nothing of slopes: the same for every kappa.
                    m0[p], m1[p] = m0[p - n_sigma], m1[p - n_sigma]
                    E[p] -= 0.5 * e[p] * e[p] / (v[p] + far)
                else:
                    power, m0[p], m1[p] = _of_mean(v[p], e[p], t2, wt, far)
                    E[p] += power
        if what > 0:
            out[t, 0] = _weigh(E, m0)
            for p in range(P):
                q, j = E[p], at[p]
                if q == 0.0:
                    continue
                if what < 3:
                    gap = 1.0 if what == 2 else e[p]
                    rho = q * m1[p] * gap
                    own[t, 0] += q * gap - v[p] * rho
                    own[t, 1] += g[p] * rho
                    sums[t, 0, j] += theta[j] * q
                    sums[t, 1, j] += theta[j] * g[p] * rho
                elif what == 3:
                    own[t, 0] += q * m1[p] * e[p]
                    sums[t, 0, j] += q / s2[p]
                    sums[t, 1, j] += q * m1[p]
                    sums[t, 2, j] += q * m1[p] * e[p]
                else:
                    least = -0.5 * e[p] * e[p] / (v[p] + far)
                    z, z2 = 0.0, 0.0  # means over tau of 1 and 1 / u^2, u = v + tau^2
                    for i in range(len(t2)):
                        u = 1.0 / (v[p] + t2[i])
                        x = min(max(-0.5 * e[p] * e[p] * u - least, -50.0), 0.0)
                        x = wt[i] * np.sqrt(u) * _small_exp(x)
                        z += x
                        z2 += x * u * u
                    z1, z2 = m1[p], z2 / z
                    # tau^2 = u - v: means of tau^2 - tau^4 / u, (tau^2 e / u)^2, tau^2 / u
                    e2, v0 = e[p] * e[p], v[p]
                    f = 1.0 - v0 * z1
                    own[t, 0] += q * (v0 * f + e2 * (f - v0 * z1 + v0 * v0 * z2))
                    own[t, 1] += q * g[p]
                    sums[t, 0, j] += q
                    sums[t, 1, j] += q * g[p] * theta[j]
                    sums[t, 2, j] += q * g[p] * (e2 * (z1 - v0 * z2) - f)
                    sums[t, 3, j] += q * e[p] * f
                    sums[t, 4, j] += q * g[p] * g[p] * (e2 * z2 - z1)
                    sums[t, 5, j] += q * g[p] * e[p] * z1
        elif axis == 3:
            top = _largest(E)
            for p in range(P):
                if E[p] < top - 40.0:
                    continue
                least = -0.5 * e[p] * e[p] / (v[p] + far)
                w = np.exp(E[p] - top)
                for j in range(size):
                    u = 1.0 / (v[p] + t2[j])
                    x = min(max(-0.5 * e[p] * e[p] * u - least, -50.0), 0.0)
                    out[t, j] += w * wt[j] * np.sqrt(u) * _small_exp(x)
            for j in range(size):
                out[t, j] = top + np.log(out[t, j])
        else:
            count = P if axis == 0 else n_sigma if axis == 1 else n_kappa
            for j in range(size):
                first = j * n_sigma if axis == 1 else j
                step = n_sigma if axis == 2 else 1
                top, s = -np.inf, 0.0
                for p in range(first, first + count * step, step):
                    top = max(top, E[p])
                for p in range(first, first + count * step, step):
                    if E[p] > top - 40.0:
                        s += m0[p] * np.exp(E[p] - top)
                out[t, j] = top + np.log(s)


@njit
def _slopes(starts, squares, W, D, off, link, r, h, theta, sums, X, way, out):
    """X' V^-1 times residuals and h with their weights by theta, of every task: added to `out`."""
    d, R, most = out.shape[1], len(theta), _most_rows(starts)
    c, kept, weights, x = np.empty(most), np.empty(R), np.empty((2, R)), np.empty(R)
    F, Wr, Wh = np.empty((most, R)), np.empty((most, R)), np.empty((most, R))
    for t in range(len(out)):
        lo, k, n_kept = starts[t], starts[t + 1] - starts[t], 0
        for j in range(R):
            if sums[t, 0, j] != 0.0:
                kept[n_kept] = theta[j]
                weights[0, n_kept], weights[1, n_kept] = sums[t, 0, j], sums[t, 1, j]
                n_kept += 1
        some = kept[:n_kept]
        _forward(lo, k, D, off, link, some, r, h, x, F, Wr, Wh)
        # Elimination backwards.
        for j in range(n_kept):
            x[j] = 0.0
        for step in range(k):
            i = k - 1 - step
            b = off[lo + i + 1] if step else 0.0
            for j in range(n_kept):
                y = weights[0, j] * Wr[i, j] - weights[1, j] * Wh[i, j]
                x[j] = F[i, j] * (y - kept[j] * b * x[j])
            s = 0.0
            for j in range(n_kept):
                s += x[j]
            c[i] = s
        _rotate(W, squares[t], k, c, starts[0], way)
        for i in range(k):
            for j in range(d):
                out[t, j] += c[i] * X[lo + i, j]
