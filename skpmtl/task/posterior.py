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
theta, since both grids are powers of two. X S X' = U diag(lam) U' is found once, and rows and
targets are kept as U'X and U'y: V is then 1 + theta lam for every theta, above 1 for all rows.
Constants in 2 pi are left out.

The mean row sees theta and sigma alone: v = sigma^2 (theta (x0' S x0 - theta h' V^-1 h) + 1 / n) +
tau^2, so that sums over cells of one theta are all that means and covariances need. Numbers of all
theta, and of all cells, lie next to each other, so that loops over them are vector instructions,
and no array of all cells of all tasks is ever written. Every loop goes through one
task at a time, and every call of a library is of the rows of one, so that a result does not depend
on which other tasks there are.
"""

from copy import copy
from dataclasses import dataclass
from math import log, sqrt

import numpy as np

from .._kernels.elementary import exp
from .._kernels.passes import combine, scores
from .._runtime.jit import njit
from ..tables.table import row_dots, row_products

_OUT = 25.0  # in logarithms of weights: pairs that weigh less are left out
_LOG_MOST = 660.0  # of a product before its logarithm is taken
_LOST = 1e-280  # of a sum of weights, which may have lost digits
_ALL = np.empty(0, dtype=np.int64)  # rows of which kernels take all, as they are
_AT_ONCE = 1 << 20  # numbers of the rows of tasks of one size that numpy sees as one stack


def _groups_of_equal(sizes, width):
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
    dof : ndarray (m,)
        Degrees of freedom of the reduced rows and the rest, n - 1.
    x_mean : ndarray (m, d)
    y_mean : ndarray (m,)
    """

    X: np.ndarray
    y: np.ndarray
    starts: np.ndarray
    rest: np.ndarray
    n: np.ndarray
    dof: np.ndarray
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
            sizes - 1.0,
            np.zeros((m, d)),
            np.zeros(m),
        )
        both = np.c_[X, y].astype(float)
        for n, tasks in _groups_of_equal(sizes, d + 1):
            places = _members(offsets, tasks, n)
            own = both[places]
            if counts is not None:
                u = counts[places]
                rows.n[tasks] = u.sum(axis=1)
                rows.dof[tasks] = rows.n[tasks] - 1.0
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

    def rest_about(self, slopes):
        """Sum of squares that these slopes of the centre leave, of what no own slopes can reach."""
        return self.rest


@dataclass
class LevelRows(TaskRows):
    """Rows of tasks whose slopes are those of the centre: none of them can be reached.

    Attributes
    ----------
    table : tuple
        Rows (N, d), targets (N,), how much rows count (N,), offsets (m + 1,), mean rows (m, d) and
        targets (m,), all as they are.
    to : ndarray (d,)
        Slopes as they are, over those of the centre.
    unit : float
        Of the target.
    known : tuple or None
        Slopes that sums of squares were last about, and these.
    """

    table: tuple
    to: np.ndarray
    unit: float
    known: tuple | None = None

    @classmethod
    def about(cls, table, centre, scale, middle, unit):
        """The rows of `table` in these units."""
        X, _, counts, offsets, x_mean, y_mean = table
        n = np.zeros(len(y_mean))
        some = np.flatnonzero(np.diff(offsets))
        n[some] = np.add.reduceat(counts, offsets[some])
        known = n[:, None] > 0
        none = np.zeros((0, X.shape[1])), np.zeros(0), np.zeros(len(n) + 1, dtype=np.int64)
        means = np.where(known, (x_mean - centre) / scale, 0.0), (y_mean - middle) / unit
        return cls(*none, np.zeros(len(n)), n, n - 1.0, *means, table, unit / scale, unit)

    def rest_about(self, slopes):
        if self.known is None or not np.array_equal(self.known[0], slopes):
            out = np.empty(len(self.n))
            _squares(*self.table, slopes * self.to, out)
            out /= self.unit**2
            self.known = slopes, out
        return self.known[1]

    def products(self, ratio, some):
        """Products of (1, x, y) over the rows of these tasks, by the inverse covariance.

        With f = (1, x, y) in units, fbar its mean and w = n / (1 + n g), g = `ratio`, of every task

            M = sum (f - fbar) (f - fbar)' + w fbar fbar',

        where levels vary by g times the noise (Searle, Casella and McCulloch, "Variance
        components", 1992, chapter 3). The second is dM / dg = -w^2 fbar fbar'.

        -> w (m,), M (m, d + 2, d + 2), -dM / dg
        """
        n, d = self.n[some], self.x_mean.shape[1]
        w, to = n / (1.0 + n * ratio), np.append(self.unit / self.to, self.unit)
        mean = np.c_[np.ones(len(n)), self.x_mean[some], self.y_mean[some]]
        both = w[:, None, None] * (mean[:, :, None] * mean[:, None])
        slope = w[:, None, None] * both
        first, last, _ = some.indices(len(self.n))
        X, y, counts, offsets, x_mean, y_mean = self.table
        known = offsets[first : last + 1], x_mean[some], y_mean[some]
        _products(X, y, counts, *known, to, both, np.empty(d + 1))
        return w, both, slope


class Decomposition:
    """Rows of every task in a basis in which X S X' is diagonal.

    Parameters
    ----------
    rows : TaskRows
    root : ndarray (d, r)
        L, a root of the public shape S = L L'.
    x_mean : ndarray (m, d), default=None
        Mean rows that the level is seen through; None: those of `rows`.
    as_rows : ndarray of bool (m, 1) or bool, default=True
        Whether the mean row of a task is a row, x0; otherwise it is seen about the slopes of the
        centre, by the level alone.

    Attributes
    ----------
    x0 : ndarray (m, d)
        Mean rows that are rows, and zeros.
    values : ndarray (sum k,)
        Eigenvalues, ascending in every task.
    X, y : ndarray (sum k, d), (sum k,)
        Rows and targets in this basis.
    h : ndarray (sum k,)
        X S x0 in this basis.
    b2 : ndarray (m,)
        x0' S x0.
    """

    def __init__(self, rows, root, x_mean=None, as_rows=True):
        self.rows, self.root = rows, np.array(root, dtype=float)
        self.shape = self.root @ self.root.T
        self.values, self.X, self.y = map(np.empty_like, (rows.y, rows.X, rows.y))
        for k, tasks in _groups_of_equal(np.diff(rows.starts), len(self.root)):
            at = _members(rows.starts, tasks, k)
            A = rows.X[at] @ self.root
            values, U = np.linalg.eigh(A @ A.transpose(0, 2, 1))
            U = U.transpose(0, 2, 1)
            self.values[at], self.X[at] = np.maximum(values, 0.0), U @ rows.X[at]
            self.y[at] = (U @ rows.y[at][..., None])[..., 0]
        self._see(rows.x_mean if x_mean is None else x_mean, as_rows)

    def _see(self, x_mean, as_rows):
        self.x_mean = np.array(x_mean, dtype=float, order="C")
        self.x0 = self.x_mean * as_rows
        of_mean = row_products(self.x0, self.shape)
        self.h, self.b2 = self._scores(of_mean), row_dots(self.x0, of_mean)

    def with_mean_rows(self, x_mean, as_rows):
        """The same with other mean rows, or others of them as rows."""
        found = copy(self)
        found._see(x_mean, as_rows)
        return found

    def _scores(self, vectors, some=slice(None)):
        """Rows of these tasks times the vector of their task, (sum k,)."""
        out, (first, last, _) = np.zeros(len(self.y)), some.indices(len(self.rows.n))
        starts = self.rows.starts[first : last + 1]
        scores(self.X, _ALL, False, starts, np.ascontiguousarray(vectors), out)
        return out

    def _centred(self, level, slopes, some=slice(None)):
        """Arguments of kernels: the targets of these tasks less their centre, in this basis, and of
        means."""
        rows, (first, last, _) = self.rows, some.indices(len(self.rows.n))
        x_mean, rest = self.x_mean[some], self.rows.rest_about(slopes)
        slopes = np.broadcast_to(np.asarray(slopes, dtype=float), x_mean.shape)
        r0 = rows.y_mean[some] - level - row_dots(x_mean, slopes)
        both = np.stack([self.y - self._scores(slopes, some), self.h])
        of_rows = (part[some] for part in (rows.n, rows.dof))
        known = self.b2[some], r0, *of_rows, rest[some]
        return rows.starts[first : last + 1], self.values, both, np.stack(known, axis=1)


# By theta, the kernel finds e and v / sigma^2 of the mean row, and sums over cells of their weights
# times powers of sigma, and times means over tau of 1 / u and 1 / u^2, u = v + tau^2.
E, C, BY_S2, ONE, S2, U, S2_U, S4_U, S4_UU, S2_UU = range(10)
_BLOCK = 1024  # tasks of which these are kept at once


def _cells(scales, by=None):
    """Arguments of the kernel: all theta; of all pairs of kappa and sigma, sorted by the grid `by`,
    sigma^2, its inverse and logarithm, log weights, and which theta; tau^2, ascending, and weights;
    whether evidence is by tau; the size of the grid `by`, of which None is one cell.
    """
    kappa, s2 = np.meshgrid(scales.kappa, scales.sigma**2, indexing="ij")
    logs = scales.log_kappa[:, None] + scales.log_sigma
    if by == "sigma":
        kappa, s2, logs = kappa.T, s2.T, logs.T
    theta, at = np.unique(kappa / s2, return_inverse=True)
    cells = np.stack([s2, 1.0 / s2, np.log(s2), logs]).reshape(4, -1)
    tau = np.stack([scales.tau**2, np.exp(scales.log_tau)])
    size = 1 if by is None else len(getattr(scales, by))
    return theta, cells, at.ravel(), tau, by == "tau", size


def _scratch(theta, cells, size, by_tau):
    """Work space of the kernel: of all theta, of all pairs, of which are live, and of cells."""
    P, n_cells = cells.shape[1], 1 if by_tau else size
    ends = np.arange(n_cells + 1) * (P // n_cells)
    return np.empty((8, len(theta))), np.empty((9, P)), np.arange(P), ends, np.empty(n_cells)


def _evidence(dec, level, slopes, scales, by=None):
    *cells, size = _cells(scales, by)
    found, no_sums = np.zeros((len(dec.rows.n), size)), np.zeros((0, 0, 0))
    theta, pairs, *_, by_tau = cells
    scratch = _scratch(theta, pairs, size, by_tau)
    given = *dec._centred(level, slopes), *cells, *scratch
    _posterior(*given, found, no_sums)
    return found


def _known(dec, level, slopes, scales, some=slice(None)):
    """Log evidence and sums of these tasks, whose levels and slopes are given, block by block.

    -> slice of them, log evidence (m,), all theta, sums (10, m, R)
    """
    *cells, size = _cells(scales)
    starts, values, both, of_tasks = dec._centred(level, slopes, some)
    given = *cells, *_scratch(*cells[:2], size, False)
    for first in range(0, len(of_tasks), _BLOCK):
        block = slice(first, first + _BLOCK)
        own = of_tasks[block]
        total, sums = np.zeros((len(own), 1)), np.zeros((10, len(own), len(cells[0])))
        _posterior(starts[first : first + len(own) + 1], values, both, own, *given, total, sums)
        yield block, total[:, 0], cells[0], sums


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
    return _evidence(dec, level, slopes, scales)[:, 0]


def log_evidence_by(axis, dec, level, slopes, scales):
    """Log evidence of every cell of one grid, over the others. -> (m, n)

    `axis` is "kappa", "sigma" or "tau". Weights of `scales` count for it, too.
    """
    return _evidence(dec, level, slopes, scales, axis)


def averages(dec, level, slopes, scales):
    """Posterior means. -> log evidence (m,), mean of l - c (m,), mean of w - a (m, d)"""
    theta, *found = _in_means(dec, level, slopes, scales, lambda known: known[E])
    total, of_level, near, weights = found
    return total, of_level, _slopes_of(dec, slopes, theta, weights, near)


def of_origin(dec, level, slopes, scales):
    """Score of x0, where mean rows are rows: the expected (l - c) (w - a) / tau^2.

    By q of `information` it is e / v times the slopes that rows alone know, plus the same of the
    mean row, kappa S q (e^2 / v - 1) / v.

    -> log evidence (m,), score (m, d)
    """
    m, theta = len(dec.rows.n), _cells(scales)[0]
    total, near, weights = np.zeros(m), np.zeros(m), np.zeros((2, m, len(theta)))
    for some, total[some], _, known in _known(dec, level, slopes, scales):
        e = known[E]
        of_mean = theta * (e * e * known[S2_UU] - known[S2_U])
        near[some] = of_mean.sum(axis=1)
        weights[0, some], weights[1, some] = theta * e * known[U], theta * of_mean
    return total, _slopes_of(dec, slopes, theta, weights, near)


def _in_means(dec, level, slopes, scales, gap):
    """What posterior means take of the mean row, whose residual by theta is `gap` of the sums.

    -> all theta, log evidence (m,), mean of l - c (m,), of x0 (m,), weights of r and h (2, m, R)
    """
    m, theta = len(dec.rows.n), _cells(scales)[0]
    own, weights = np.zeros((3, m)), np.zeros((2, m, len(theta)))
    for some, total, _, known in _known(dec, level, slopes, scales):
        e, of_mean = gap(known), theta * known[S2_U]
        own[0, some] = total
        own[1, some] = (e * (known[ONE] - known[C] * known[S2_U])).sum(axis=1)
        own[2, some] = (e * of_mean).sum(axis=1)
        weights[0, some], weights[1, some] = theta * known[ONE], theta * e * of_mean
    return theta, *own, weights


def gains(dec, level, slopes, scales):
    """What multiplies residuals in posterior means, if the weights of cells stay as they are.

    For `moved`; of tasks of which rows know slopes, or the mean row does, but not both.
    -> log evidence (m,); all theta, weights of r by theta, and none of h (2, m, R); what multiplies
    the residual of the mean row, for the level (m,) and along the mean row (m,)
    """
    theta, total, of_level, near, weights = _in_means(dec, level, slopes, scales, lambda known: 1.0)
    weights[1] = 0.0
    return total, (theta, weights, of_level, near)


def moved(dec, known, level, slopes):
    """Posterior means about another centre, by the `gains` of one. -> of l - c, of w - a"""
    theta, weights, of_level, near = known
    r0 = dec.rows.y_mean - level - row_dots(dec.x_mean, np.asarray(slopes, dtype=float))
    return of_level * r0, _slopes_of(dec, slopes, theta, weights, near * r0)


def _slopes_of(dec, centre, theta, weights, near):
    """Mean of w - a, (m, d), from weights of residuals and of h by theta, and of mean rows."""
    starts, vectors = dec.rows.starts, np.broadcast_to(np.asarray(centre, float), dec.x_mean.shape)
    r, c, out = dec.y - dec._scores(vectors), np.empty(len(dec.y)), np.empty(dec.x_mean.shape)
    _slopes(starts, dec.values, r, dec.h, theta, weights, np.empty((3, len(theta))), c)
    combine(dec.X, _ALL, False, starts, c, np.ones(len(out)), out)
    out += near[:, None] * dec.x0
    return row_products(out, dec.shape)


def information(dec, level, slopes, scales, some=slice(None)):
    """Score and information of the centre (c, a), of these tasks.

    With q = x0 - theta X' V^-1 h of a cell, averaged over cells by their weights:

        score = ((e / v), X' V^-1 r / sigma^2 + q e / v),
        information = X' V^-1 X / sigma^2 + (1, q) (1, q)' / v.

    The score is the gradient of the log evidence. The information is that of a Gaussian of known
    scales, which is at least as large as that of the mixture: steps by it do not overshoot.

    -> log evidence (m,), score (m, 1 + d), information (m, 1 + d, 1 + d)
    """
    m, d = dec.x_mean.shape
    first, last, _ = some.indices(m)
    total = np.zeros(last - first)
    score, info = np.zeros((last - first, 1 + d)), np.zeros((last - first, 1 + d, 1 + d))
    for block, total[block], theta, known in _known(dec, level, slopes, scales, some):
        of_e = known[U] * known[E]
        score[block, 0] = of_e.sum(axis=1)
        begin, end = first + block.start, min(first + block.stop, last)
        for tasks, Z, V, r, q in _by_theta(dec, slopes, theta, first, begin, end):
            at, own = tasks - first, tasks - begin
            of_rows, of_means = known[BY_S2, own, :, None], known[U, own, :, None]
            f = np.sum(of_rows * V, axis=1)
            score[at, 1:] = ((f * r)[:, None] @ Z)[:, 0] + (of_e[own][:, None] @ q)[:, 0]
            q = np.concatenate([np.ones((*q.shape[:2], 1)), q], axis=2)
            info[at] = q.transpose(0, 2, 1) @ (of_means * q)
            info[at, 1:, 1:] += Z.transpose(0, 2, 1) @ (f[..., None] * Z)
    return total, score, info


def covariances(dec, level, slopes, scales):
    """Second moments of (l - c, w - a) under the posterior.

    Of every cell the covariance of the Gaussian plus the square of its mean, weighted and added up:
    less the square of the mean over cells it is the covariance of the mixture. With
    g = kappa S (x0 - theta X' V^-1 h) of a cell,

        cov w = kappa S - kappa theta S X' V^-1 X S - g g' / v,
        var l = tau^2 - tau^4 / v,     cov(l, w) = -tau^2 g / v.

    Of a task without rows, that of its prior.

    -> log evidence (m,), moments (m, 1 + d, 1 + d)
    """
    m, d = dec.x_mean.shape
    S, out, total = dec.shape, np.zeros((m, 1 + d, 1 + d)), np.zeros(m)
    for some, total[some], theta, known in _known(dec, level, slopes, scales):
        e, c = known[E], known[C]
        e2, f = e * e, known[S2] - c * known[S4_U]  # sigma^2 times the mean of tau^2 / u
        own = c * f + e2 * (known[ONE] - 2.0 * c * known[S2_U] + c * c * known[S4_UU])
        scale = (theta * known[S2]).sum(axis=1)
        out[some, 0, 0], out[some, 1:, 1:] = own.sum(axis=1), scale[:, None, None] * S
        sums = (
            known[ONE],
            theta**2 * known[S2],
            theta * (e2 * (known[S2_U] - c * known[S4_UU]) - f),
            e * (known[ONE] - c * known[S2_U]),
            theta**2 * (e2 * known[S4_UU] - known[S4_U]),
            theta * e * known[S2_U],
        )
        for tasks, Z, V, r, q in _by_theta(dec, slopes, theta, 0, some.start, min(some.stop, m)):
            s = [part[tasks - some.start, :, None] for part in sums]
            b, w = q @ S, theta[:, None] * ((V * r[:, None]) @ Z) @ S
            out[tasks, 0, 1:] = np.sum(s[2] * b + s[3] * w, axis=1)
            out[tasks, 1:, 0] = out[tasks, 0, 1:]
            both = b.transpose(0, 2, 1) @ (s[5] * w)
            square = w.transpose(0, 2, 1) @ (s[0] * w) + b.transpose(0, 2, 1) @ (s[4] * b)
            Z = Z @ S
            of_rows = Z.transpose(0, 2, 1) @ (np.sum(s[1] * V, axis=1)[..., None] * Z)
            out[tasks, 1:, 1:] += square + both + both.transpose(0, 2, 1) - of_rows
    none = dec.rows.n == 0
    weight_of = [np.exp(logs) / np.exp(logs).sum() for logs in (scales.log_tau, scales.log_kappa)]
    out[none] = 0.0
    out[none, 0, 0], out[none, 1:, 1:] = (
        weight_of[0] @ scales.tau**2,
        weight_of[1] @ scales.kappa * S,
    )
    return total, out


def _by_theta(dec, slopes, theta, given, first, last):
    """Stacks of the tasks first ... last - 1 that have rows, of equal numbers of them. Slopes of
    several tasks are those of the task `given` and after it.

    -> tasks; Z, rows in their eigenbasis (., k, d); 1 / (1 + theta lam) (., R, k); residuals
    (., k); q = x0 - theta X' V^-1 h (., R, d)
    """
    d = dec.x_mean.shape[1]
    slopes = np.asarray(slopes, dtype=float)
    if slopes.ndim == 1:
        slopes, given = slopes[None], None
    sizes = np.where(dec.rows.n > 0, np.diff(dec.rows.starts) + 1, 0)[first:last]
    for size, tasks in _groups_of_equal(sizes, len(theta) * d):
        k, tasks = size - 1, tasks + first
        at = _members(dec.rows.starts, tasks, k)
        Z, V = dec.X[at], 1.0 / (1.0 + theta[:, None] * dec.values[at][:, None])
        centre = slopes[tasks - given] if given is not None else slopes
        r = dec.y[at] - (Z @ centre[..., None])[..., 0]
        q = dec.x0[tasks][:, None] - theta[:, None] * ((V * dec.h[at][:, None]) @ Z)
        yield tasks, Z, V, r, q


def log_sum(E):
    """log sum exp over all axes but the first, task by task. -> (m,)"""
    E = np.asarray(E).reshape(len(E), -1)
    top = E.max(axis=1)
    return top + np.log(np.exp(E - top[:, None]).sum(axis=1))


def log_mixtures(cells, paths):
    """log sum exp of cells (m, n) with each of these log weights (J, n). -> (m, J)"""
    top = cells.max(axis=1, keepdims=True)
    found = row_products(np.exp(cells - top), np.exp(paths).T)
    lost = np.flatnonzero((found < _LOST).any(axis=1))
    with np.errstate(divide="ignore"):
        found = np.log(found, out=found)
    found += top
    for j, path in enumerate(paths if len(lost) else ()):  # cells far below others of the task
        found[lost, j] = log_sum(cells[lost] + path)
    return found


def shares_of(logs):
    """Posterior probabilities of components. -> (n, m)

    Parameters
    ----------
    logs : list of ndarray (m,)
        Of every component, the log of prior weight times evidence.
    """
    logs = np.stack(logs, axis=1)
    return np.exp(logs - log_sum(logs)[:, None]).T


# ------------------------------------------------------------------------------------ kernels
@njit
def _squares(X, y, counts, offsets, x_mean, y_mean, slopes, out):
    """Sums of squares of rows about the mean of their task, less their slopes."""
    for t in range(len(out)):
        total = 0.0
        for i in range(offsets[t], offsets[t + 1]):
            e = y[i] - y_mean[t]
            for j in range(len(slopes)):
                e -= (X[i, j] - x_mean[t, j]) * slopes[j]
            total += counts[i] * e * e
        out[t] = total


@njit
def _products(X, y, counts, offsets, x_mean, y_mean, units, out, f):
    """Products of rows and targets about the means of their task, in units: added to `out`."""
    d = X.shape[1]
    for t in range(len(y_mean)):
        for i in range(offsets[t], offsets[t + 1]):
            for j in range(d):
                f[j] = (X[i, j] - x_mean[t, j]) / units[j]
            f[d] = (y[i] - y_mean[t]) / units[d]
            for j in range(d + 1):
                a = counts[i] * f[j]
                for q in range(d + 1):
                    out[t, 1 + j, 1 + q] += a * f[q]


# Of several arrays that one loop writes, the compiler does not see that they are apart, and works
# number by number: loops here write one. Arrays of work space come from outside and are taken from
# others by an index: kernels that make arrays, or unpack them, which loses that their numbers lie
# side by side, take longer to compile and to run.
@njit
def _over_tau(v, half, least, weight, tau, u, density, m0, m1, m2, moments, by_tau):
    """Of means with variances v + tau^2 and -e^2 / 2 = `half`: sums over tau of density, over that
    at the largest tau, of which the exponent is `least`, and with `moments` those with one and two
    factors u = 1 / (v + tau^2). Into `by_tau` sums over means, with their weights."""
    for q in range(len(v)):
        m0[q], m1[q], m2[q] = 0.0, 0.0, 0.0
    for j in range(tau.shape[1]):
        t2, w = tau[0, j], tau[1, j]
        for q in range(len(v)):
            u[q] = 1.0 / (v[q] + t2)
            density[q] = w * sqrt(u[q]) * exp(max(half[q] * u[q] - least[q], -700.0))
        for q in range(len(v)):
            m0[q] += density[q]
        if moments:
            for q in range(len(v)):
                m1[q] += density[q] * u[q]
            for q in range(len(v)):
                m2[q] += density[q] * u[q] * u[q]
        if len(by_tau) > 0:
            s = 0.0
            for q in range(len(v)):
                s += weight[q] * density[q]
            by_tau[j] = s


@njit
def _posterior(
    starts,
    values,
    both,
    of_tasks,
    theta,
    cells,
    at,
    tau,
    by_tau,
    of_theta,
    of_pairs,
    live,
    ends,
    top,
    out,
    sums,
):
    """Log evidence of every task by cells of one grid, and sums over the weights of all cells."""
    R, P, n_cells = len(theta), cells.shape[1], len(top)
    s2, by_s2, log_s2, logs = cells[0], cells[1], cells[2], cells[3]
    logdet, rr, rh, hh = of_theta[0], of_theta[1], of_theta[2], of_theta[3]
    product, e, c, F = of_theta[4], of_theta[5], of_theta[6], of_theta[7]
    v, half, least, weight = of_pairs[0], of_pairs[1], of_pairs[2], of_pairs[3]
    u, density, m0, m1, m2 = of_pairs[4], of_pairs[5], of_pairs[6], of_pairs[7], of_pairs[8]
    near, far = tau[0, 0], tau[0, -1]
    for t in range(len(of_tasks)):
        b2, r0, n, dof, rest = of_tasks[t]
        if n == 0.0:
            continue
        lo, k = starts[t], starts[t + 1] - starts[t]
        for j in range(R):
            logdet[j], rr[j], rh[j], hh[j], product[j] = 0.0, 0.0, 0.0, 0.0, 1.0
        at_once = k
        if k > 0:
            at_once = max(int(_LOG_MOST / log(2.0 + theta[R - 1] * values[lo + k - 1])), 1)
        for i in range(k):
            x, y, z = values[lo + i], both[0, lo + i], both[1, lo + i]
            for j in range(R):
                F[j] = 1.0 / (1.0 + theta[j] * x)
            for j in range(R):
                product[j] *= F[j]
            for j in range(R):
                rr[j] += y * y * F[j]
            for j in range(R):
                rh[j] += y * z * F[j]
            for j in range(R):
                hh[j] += z * z * F[j]
            if i % at_once == at_once - 1 or i == k - 1:
                for j in range(R):
                    logdet[j] -= log(product[j])
                    product[j] = 1.0
        for j in range(R):
            c[j] = max(theta[j] * (b2 - theta[j] * hh[j]), 0.0) + 1.0 / n
            e[j] = r0 - theta[j] * rh[j]
            hh[j] = -0.5 * e[j] * e[j]
            rr[j] = -0.5 * (rr[j] + rest)
            logdet[j] = -0.5 * logdet[j]
        for p in range(P):
            v[p] = s2[p] * c[at[p]]
        for p in range(P):
            half[p] = hh[at[p]]
        for p in range(P):
            least[p] = half[p] / (v[p] + far)
        for p in range(P):
            j = at[p]
            weight[p] = logs[p] + logdet[j] + rr[j] * by_s2[p] - 0.5 * dof * log_s2[p] + least[p]
        # Of one cell, pairs that weigh less are left out, even if their means are where the
        # density is highest.
        count = P
        if n_cells == 1:
            best, count = 0, 0
            for p in range(P):
                if weight[p] > weight[best]:
                    best = p
            x, y, z, s = v[best], half[best], least[best], 0.0
            for j in range(tau.shape[1]):
                f = 1.0 / (x + tau[0, j])
                s += tau[1, j] * sqrt(f) * exp(max(y * f - z, -700.0))
            floor = weight[best] + log(s) - _OUT
            log_n, log_near = log(n), log(near)
            for p in range(P):
                live[count] = p
                if weight[p] - 0.5 * max(log_s2[p] - log_n, log_near) >= floor:
                    count += 1
            for q in range(count):
                p = live[q]  # never before q
                v[q], half[q], least[q], weight[q] = v[p], half[p], least[p], weight[p]
            ends[1] = count
        for g in range(n_cells):
            first, last = ends[g], ends[g + 1]
            top[g] = weight[first]
            for q in range(first, last):
                top[g] = max(top[g], weight[q])
            for q in range(first, last):
                weight[q] = exp(max(weight[q] - top[g], -700.0))
        known = v[:count], half[:count], least[:count], weight
        into = out[t] if by_tau else v[:0]
        _over_tau(*known, tau, u, density, m0, m1, m2, len(sums) > 0, into)
        if by_tau:
            for j in range(out.shape[1]):
                out[t, j] = top[0] + log(out[t, j])
            continue
        total = 0.0
        for g in range(n_cells):
            total = 0.0
            for q in range(ends[g], ends[g + 1]):
                total += weight[q] * m0[q]
            out[t, g] = top[g] + log(total)
        if len(sums) == 0:
            continue
        for j in range(R):
            sums[0, t, j], sums[1, t, j] = e[j], c[j]
        for q in range(count):
            j, s = at[live[q]], s2[live[q]]
            w = weight[q] / total
            w0, w1, w2 = w * m0[q], w * m1[q] * s, w * m2[q] * s * s
            sums[2, t, j] += w0 / s
            sums[3, t, j] += w0
            sums[4, t, j] += w0 * s
            sums[5, t, j] += w1 / s
            sums[6, t, j] += w1
            sums[7, t, j] += w1 * s
            sums[8, t, j] += w2
            sums[9, t, j] += w2 / s


@njit
def _slopes(starts, values, r, h, theta, by_theta, by_kept, out):
    """V^-1 times residuals and h with their weights by theta, of every task."""
    kept, of_r, of_h = by_kept[0], by_kept[1], by_kept[2]
    for t in range(len(starts) - 1):
        n_kept = 0
        for j in range(len(theta)):
            if by_theta[0, t, j] != 0.0:
                kept[n_kept] = theta[j]
                of_r[n_kept], of_h[n_kept] = by_theta[0, t, j], by_theta[1, t, j]
                n_kept += 1
        for i in range(starts[t], starts[t + 1]):
            s = 0.0
            for j in range(n_kept):
                s += (of_r[j] * r[i] - of_h[j] * h[i]) / (1.0 + kept[j] * values[i])
            out[i] = s
