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
tau^2, so that sums over cells of one theta are all that means and covariances need. Numbers of 16
tasks lie side by side (`skpmtl._runtime.traced`), and no array of all cells of all tasks is ever
written. What a task gets does not depend on those at its side: rows that it has fewer are zeros,
and every call of a library is of the rows of one task.
"""

from copy import copy
from dataclasses import dataclass

import numpy as np

from .._runtime.jit import njit
from .._runtime.traced import (
    WIDE,
    chosen,
    exp,
    held,
    larger,
    largest,
    log,
    loop,
    smaller,
    sqrt,
    traced,
    when,
)
from ..tables.table import row_dots, row_products

_BELOW = 1.0 + 1e-15  # a negative logarithm times it is less, by some units of the last place
_OUT = 25.0  # in logarithms of weights: pairs that weigh less are left out
_LOST = 1e-280  # of a sum of weights, which may have lost digits
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
    """Rows of m tasks, centred in each task and reduced to k = min(n - 1, d) of them."""

    # (sum k, d), contrasts of rows, or the triangular factor of centred rows where these are fewer
    X: np.ndarray
    y: np.ndarray  # (sum k,), centred targets, in the same basis
    starts: np.ndarray  # (m + 1,), reduced rows of task t are ``starts[t]:starts[t + 1]``
    rest: np.ndarray  # (m,), sum of squares of the targets that no slopes can reach, rss
    # (m,), numbers of rows, as far as they count; 0 for a task that contributes nothing
    n: np.ndarray
    dof: np.ndarray  # (m,), degrees of freedom of the reduced rows and the rest, n - 1
    x_mean: np.ndarray  # (m, d)
    y_mean: np.ndarray  # (m,)

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
    """Rows of tasks whose slopes are those of the centre: none of them can be reached."""

    # Rows (N, d), targets (N,), how much rows count (N,), offsets (m + 1,), mean rows (m, d) and
    # targets (m,), all as they are
    table: tuple
    to: np.ndarray  # (d,), slopes as they are, over those of the centre
    unit: float  # of the target
    known: tuple | None = None  # slopes that sums of squares were last about, and these

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
    """

    def __init__(self, rows, root, x_mean=None, as_rows=True):
        self.rows, self.root = rows, np.array(root, dtype=float)
        self.shape = self.root @ self.root.T
        # Eigenvalues, ascending in every task; rows and targets in their basis.
        self.values, self.X, self.y = map(np.empty_like, (rows.y, rows.X, rows.y))
        for k, tasks in _groups_of_equal(np.diff(rows.starts), len(self.root)):
            at = _members(rows.starts, tasks, k)
            A = rows.X[at] @ self.root
            values, U = np.linalg.eigh(A @ A.transpose(0, 2, 1))
            U = U.transpose(0, 2, 1)
            self.values[at], self.X[at] = np.maximum(values, 0.0), U @ rows.X[at]
            self.y[at] = (U @ rows.y[at][..., None])[..., 0]
        self.x_mean = rows.x_mean if x_mean is None else x_mean
        self.x_mean = np.array(self.x_mean, dtype=float, order="C")
        self._set_mean_rows(as_rows)

    def _set_mean_rows(self, as_rows):
        self.x0 = self.x_mean * as_rows  # mean rows that are rows, and zeros
        of_mean = row_products(self.x0, self.shape)
        # X S x0 in this basis, and x0' S x0.
        self.h, self.b2 = self._scores(of_mean), row_dots(self.x0, of_mean)

    def with_mean_rows(self, as_rows):
        """A copy with another choice of the mean rows that count as rows, `as_rows`."""
        found = copy(self)
        found._set_mean_rows(as_rows)
        return found

    def _scores(self, vectors, some=slice(None)):
        """Rows of these tasks times the vector of all, or of their task, (sum k,)."""
        out, starts = np.zeros_like(self.y), self.rows.starts
        first, last, _ = some.indices(len(self.x0))
        rows = slice(starts[first], starts[last])
        if vectors.ndim == 2:
            vectors = np.repeat(vectors, np.diff(starts[first : last + 1]), axis=0)
        out[rows] = row_dots(self.X[rows], vectors)
        return out

    def _centred(self, level, slopes, some=slice(None)):
        """Arguments of kernels: the targets of these tasks less their centre, in this basis, and of
        means."""
        rows, (first, last, _) = self.rows, some.indices(len(self.rows.n))
        x_mean, rest = self.x_mean[some], self.rows.rest_about(slopes)
        slopes = np.asarray(slopes, dtype=float)
        r0 = rows.y_mean[some] - level - row_dots(x_mean, slopes)
        both = np.stack([self.y - self._scores(slopes, some), self.h])
        of_rows = (part[some] for part in (rows.n, rows.dof))
        known = self.b2[some], r0, *of_rows, rest[some]
        return rows.starts[first : last + 1], self.values, both, np.stack(known, axis=1)


# By theta, the kernel finds e and v / sigma^2 of the mean row, and sums over cells of their weights
# times powers of sigma, and times means over tau of 1 / u and 1 / u^2, u = v + tau^2.
E, C, BY_S2, ONE, S2, U, S2_U, S4_U, S4_UU = range(9)
_BLOCK = 1024  # tasks of which these are kept at once


def _cells(scales, by=None):
    """All theta; of all pairs of kappa and sigma, sorted by the grid `by`, sigma^2, its inverse and
    logarithm, log weights, and which theta; tau^2, ascending, and weights (T, 2); whether evidence
    is by tau; the size of the grid `by`, of which None is one cell.
    """
    kappa, s2 = np.meshgrid(scales.kappa, scales.sigma**2, indexing="ij")
    logs = scales.log_kappa[:, None] + scales.log_sigma
    if by == "sigma":
        kappa, s2, logs = kappa.T, s2.T, logs.T
    theta, at = np.unique(kappa / s2, return_inverse=True)
    cells = np.stack([s2, 1.0 / s2, np.log(s2), logs]).reshape(4, -1)
    tau = np.stack([scales.tau**2, np.exp(scales.log_tau)], axis=1)
    return theta, cells, at.ravel(), tau, by == "tau", 1 if by is None else len(getattr(scales, by))


def _known(dec, level, slopes, cells, some=slice(None)):
    """Log evidence and sums of these tasks, whose levels and slopes are given, block by block.

    -> slice of them, log evidence (m,), sums (9, m, R)
    """
    *cells, _ = cells
    starts, values, both, of_tasks = dec._centred(level, slopes, some)
    for first in range(0, len(of_tasks), _BLOCK):
        block = slice(first, first + _BLOCK)
        own = of_tasks[block]
        total, sums = np.zeros((len(own), 1)), np.zeros((9, len(own), len(cells[0])))
        _posterior(starts[first : first + len(own) + 1], values, both, own, *cells, total, sums)
        yield block, total[:, 0], sums


def _posterior(starts, values, both, of_tasks, theta, cells, at, tau, by_tau, out, sums):
    """Log evidence of every task by cells of one grid, and sums over the weights of all cells."""
    sizes, here = np.diff(starts), slice(starts[0], starts[-1])
    known = np.flatnonzero(of_tasks[:, 2] > 0.0)
    known = known[np.argsort(sizes[known], kind="stable")]
    blocks = -(-len(known) // WIDE), WIDE  # 16 tasks side by side, of numbers of rows that are near
    tasks = np.resize(known, blocks)
    sizes = sizes[tasks]
    fours = -(-sizes.max(axis=1) // 4)  # rows that a task has not are zeros, which change nothing
    i = np.arange(4 * fours.max(initial=0))[:, None, None]
    at_rows = np.where(i < sizes, starts[tasks] - starts[0] + i, -1)
    rows = np.stack([np.append(x[here], 0.0)[at_rows] for x in (values, *both)], axis=2)
    given = rows.transpose(1, 0, 2, 3), of_tasks[tasks].transpose(0, 2, 1)
    rows, own = map(np.ascontiguousarray, given)
    shape, R, P = 9 * (sums is not None), len(theta), len(at)
    found, into = np.zeros((blocks[0], out.shape[1], WIDE)), np.zeros((blocks[0], shape, R, WIDE))
    each = P if by_tau else P // out.shape[1]
    with np.errstate(divide="ignore"):  # the smallest may be 0
        bounds = tau[-1, 0], *np.log([tau[0, 0], tau[-1, 1]])
    grids = theta, tuple(cells), at, tuple(tau.T.copy()), each, int(by_tau), bounds
    work = *np.empty((4, R, WIDE)), np.empty((P, WIDE))
    _over_cells(rows, fours, own, *grids, work, found, into)
    out[known] = found.swapaxes(1, 2).reshape(-1, out.shape[1])[: len(known)]
    if sums is not None:
        into[:, 2:] /= into[:, ONE, None].sum(axis=2, keepdims=True)
        sums[:, known] = into.transpose(1, 0, 3, 2).reshape(shape, -1, R)[:, : len(known)]


def log_evidence(dec, level, slopes, scales, by=None):
    """Log evidence of the rows of every task. -> (m,), 0 for a task without rows

    `level` is c at x = 0, where `x_mean` are zeros of the mean target, and `slopes` are a: of all
    tasks or of every one. With `by` = "kappa", "sigma" or "tau" of every cell of this grid, with
    its weight, over the others: (m, n).
    """
    *cells, size = _cells(scales, by)
    starts, *known, of_tasks = dec._centred(level, slopes)
    found = np.zeros((len(of_tasks), size))
    for first in range(0, len(found), _BLOCK):
        last = first + _BLOCK
        own = starts[first : last + 1], *known, of_tasks[first:last]
        _posterior(*own, *cells, found[first:last], None)
    return found[:, 0] if by is None else found


def averages(dec, level, slopes, scales):
    """Posterior means. -> log evidence (m,), mean of l - c (m,), mean of w - a (m, d)"""
    theta, *found = _in_means(dec, level, slopes, scales, lambda known: known[E])
    total, of_level, near, weights = found
    return total, of_level, _slopes_of(dec, slopes, theta, weights, near)


def _in_means(dec, level, slopes, scales, gap):
    """What posterior means take of the mean row, whose residual by theta is `gap` of the sums.

    -> all theta, log evidence (m,), mean of l - c (m,), of x0 (m,), weights of r and h (2, m, R)
    """
    m, cells = len(dec.rows.n), _cells(scales)
    theta = cells[0]
    own, weights = np.zeros((3, m)), np.zeros((2, m, len(theta)))
    for some, total, known in _known(dec, level, slopes, cells):
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
    out = np.zeros(dec.x_mean.shape)
    centre = np.array(np.broadcast_to(centre, out.shape), dtype=float, order="C")
    known = dec.rows.starts, dec.X, dec.y, dec.h, dec.values
    _slopes(*known, centre, theta, weights, np.empty((3, len(theta))), out)
    out += np.multiply(near[:, None], dec.x0, out=centre)
    del centre  # of a million tasks
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
    (m, d), cells = dec.x_mean.shape, _cells(scales)
    theta = cells[0]
    first, last, _ = some.indices(m)
    total = np.zeros(last - first)
    score, info = np.zeros((last - first, 1 + d)), np.zeros((last - first, 1 + d, 1 + d))
    for block, total[block], known in _known(dec, level, slopes, cells, some):
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


def likelihood(dec, theta, ratio, some):
    """What the likelihood of all tasks of the mask `some` takes of their rows, for one theta.

    With V of the module, F = (1, X, y) and the `ratio` of tau^2 and sigma^2: the log determinant of
    V over sigma^2 less the sum of the logarithms of the tasks' numbers of rows, a constant; the
    number of rows; and the lower half of F' V^-1 F with y last.
    """
    some = some & (dec.rows.n > 0)
    starts, rows = dec.rows.starts, np.repeat(some, np.diff(dec.rows.starts))
    w, own = rows / (1.0 + theta * dec.values), np.flatnonzero(some & (np.diff(starts) > 0))
    F = np.c_[dec.X, dec.y]
    means = np.c_[np.ones(len(some)), dec.x_mean, dec.rows.y_mean]
    v = theta * dec.b2 + 1.0 / np.maximum(dec.rows.n, 1.0) + ratio
    if len(own):
        of_h = theta * w * dec.h
        means[own, 1:] -= np.add.reduceat(of_h[:, None] * F, starts[own])
        v[own] -= theta * np.add.reduceat(of_h * dec.h, starts[own])
    means, v = means[some], v[some]
    found = means.T @ (means / v[:, None])
    F *= np.sqrt(w)[:, None]
    found[1:, 1:] += F.T @ F
    found[-1, -1] += dec.rows.rest[some].sum()
    logdet = np.log(v).sum() - np.log(w[rows]).sum()
    return np.append([logdet, dec.rows.n[some].sum()], np.tril(found))


def covariances(dec, level, slopes, scales):
    """Second moments of (l - c, w - a) under the posterior.

    Of every cell the covariance of the Gaussian plus the square of its mean, weighted and added up:
    less the square of the mean over cells it is the covariance of the mixture. With
    g = kappa S (x0 - theta X' V^-1 h) of a cell,

        cov w = kappa S - kappa theta S X' V^-1 X S - g g' / v,
        var l = tau^2 - tau^4 / v,     cov(l, w) = -tau^2 g / v.

    Of a task without rows, that of its prior. What the mean takes of the centre is I - D J, for the
    prior covariance D and the `information` J of a cell.

    -> log evidence (m,), moments (m, 1 + d, 1 + d), mean of I - D J (m, 1 + d, 1 + d)
    """
    (m, d), cells = dec.x_mean.shape, _cells(scales)
    theta = cells[0]
    S, out, total = dec.shape, np.zeros((m, 1 + d, 1 + d)), np.zeros(m)
    kept = np.tile(np.eye(1 + d), (m, 1, 1))
    for some, total[some], known in _known(dec, level, slopes, cells):
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
            known[ONE] - c * known[S2_U],
            theta * known[S2_U],
            theta * known[ONE],
        )
        kept[some, 0, 0] -= sums[6].sum(axis=1)
        for tasks, Z, V, r, q in _by_theta(dec, slopes, theta, 0, some.start, min(some.stop, m)):
            s = [part[tasks - some.start, :, None] for part in sums]
            kept[tasks, 0, 1:] -= np.sum(s[6] * q, axis=1)
            kept[tasks, 1:, 0] -= np.sum(s[7] * q, axis=1) @ S
            rows = Z.transpose(0, 2, 1) @ (np.sum(s[8] * V, axis=1)[..., None] * Z)
            kept[tasks, 1:, 1:] -= S @ (rows + q.transpose(0, 2, 1) @ (s[7] * q))
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
    kept[none] = np.eye(1 + d)
    return total, out, kept


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
    away = cells - top  # of a million tasks
    found = row_products(np.exp(away, out=away), np.exp(paths).T)
    lost = np.flatnonzero((found < _LOST).any(axis=1))
    with np.errstate(divide="ignore"):
        found = np.log(found, out=found)
    found += top
    for j, path in enumerate(paths if len(lost) else ()):  # cells far below others of the task
        found[lost, j] = log_sum(cells[lost] + path)
    return found


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


def _of_blocks(arguments):
    """Of 16 tasks at a time, log evidence by cells of one grid, and sums over the weights of all.

    Rows are (B, k, 3, 16): eigenvalues, targets and h; numbers of tasks (B, 5, 16).
    """
    rows, fours, tasks, theta, cells, at, tau, each, by_tau, bounds, work, out, sums = arguments
    (free, half_e, half_log, half_r, of_pairs), (far, log_near, log_far) = work, bounds
    (s2, by_s2, log_s2, log_weights), (tau2, weights) = cells, tau
    n_cells, moments = chosen(by_tau > 0, 1, out.shape[1]), sums.shape[1] > 0
    for b in loop(out.shape[0]):
        b2, r0, n, dof, rest = (tasks[b, i] for i in range(5))
        log_n = log(n)
        for j in loop(theta.shape[0]):
            logdet, rr, rh, hh = held(0.0), held(0.0), held(0.0), held(0.0)
            for q in loop(fours[b]):
                product = held(1.0)  # of more it is no number any more
                for i in loop(4 * q, 4 * q + 4):
                    y, z, d = rows[b, i, 1], rows[b, i, 2], 1.0 + theta[j] * rows[b, i, 0]
                    f = 1.0 / d
                    rr += f * y * y
                    rh += f * y * z
                    hh += f * z * z
                    product[:] = product * d
                logdet += log(product)
            e, c = r0 - theta[j] * rh, larger(theta[j] * (b2 - theta[j] * hh), 0.0) + 1.0 / n
            free[j], half_e[j] = c, -0.5 * e * e
            half_log[j], half_r[j] = -0.5 * logdet, -0.5 * (rr + rest)
            for _ in when(moments):
                sums[b, E, j], sums[b, C, j] = e, c
        for g in loop(n_cells):
            top, floor, total = held(-1e300), held(-1e300), held(0.0)
            for p in loop(g * each, (g + 1) * each):
                j = at[p]
                v = s2[p] * free[j] + far
                w = half_log[j] + half_r[j] * by_s2[p] + half_e[j] / v
                w = w + log_weights[p] - 0.5 * log_s2[p] * dof
                of_pairs[p] = w
                top[:] = larger(top, w)
                floor[:] = larger(floor, w - 0.5 * log(v))
            # Pairs that weigh less than the best does at the largest tau are left out, even if
            # their means are where the density is highest.
            # The best stays where targets are so far that it has no digits for others.
            floor[:] = smaller(floor + (log_far - _OUT), floor * _BELOW)
            for p in loop(g * each, (g + 1) * each):
                j, s, w = at[p], s2[p], of_pairs[p]
                live = w - 0.5 * larger(log_s2[p] - log_n, log_near) - floor
                for _ in when(largest(live) > 0.0):
                    v, half = s * free[j], half_e[j]
                    least = half * (1.0 / (v + far)) + (top - w)
                    one, by_u, by_uu = held(0.0), held(0.0), held(0.0)
                    for t in loop(tau2.shape[0]):
                        u = 1.0 / (v + tau2[t])
                        f = weights[t] * sqrt(u) * exp(larger(half * u - least, -700.0))
                        one += f
                        by_u += f * u
                        by_uu += f * u * u
                        for _ in when(by_tau > 0):
                            out[b, t] = out[b, t] + chosen(live > 0.0, f, 0.0)
                    one[:] = chosen(live > 0.0, one, 0.0)
                    total += one
                    for _ in when(moments):
                        by_u[:] = chosen(live > 0.0, by_u, 0.0) * s
                        by_uu[:] = chosen(live > 0.0, by_uu, 0.0) * s
                        known = {BY_S2: one / s, ONE: one, S2: one * s}
                        known |= {U: by_u / s, S2_U: by_u, S4_U: by_u * s}
                        for place, x in (known | {S4_UU: by_uu * s}).items():
                            sums[b, place, j] = sums[b, place, j] + x
            for _ in when(by_tau > 0):
                for t in loop(tau2.shape[0]):
                    out[b, t] = top + log(larger(out[b, t], 1e-300))
            for _ in when(by_tau < 1):
                out[b, g] = top + log(total)


traced(_of_blocks)


@njit
def _over_cells(rows, fours, tasks, theta, cells, at, tau, each, by_tau, bounds, work, out, sums):
    _of_blocks((rows, fours, tasks, theta, cells, at, tau, each, by_tau, bounds, work, out, sums))


@njit
def _slopes(starts, X, y, h, values, centre, theta, by_theta, by_kept, out):
    """X' V^-1 of residuals and of h with their weights by theta, of every task."""
    kept, of_r, of_h, d = by_kept[0], by_kept[1], by_kept[2], X.shape[1]
    for t in range(len(out)):
        n_kept = 0
        for j in range(len(theta)):
            if by_theta[0, t, j] != 0.0:
                kept[n_kept] = theta[j]
                of_r[n_kept], of_h[n_kept] = by_theta[0, t, j], by_theta[1, t, j]
                n_kept += 1
        for i in range(starts[t], starts[t + 1]):
            r, s = y[i], 0.0
            for j in range(d):
                r -= X[i, j] * centre[t, j]
            for j in range(n_kept):
                s += (of_r[j] * r - of_h[j] * h[i]) / (1.0 + kept[j] * values[i])
            for j in range(d):
                out[t, j] += s * X[i, j]
