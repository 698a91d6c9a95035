"""Posterior of a task's level and slopes on a grid of scales, for squared loss.

For task t with n rows, mean row x0, mean target y0, and public centre (c, a), shape S = L L':

    y_i = l + x_i' w + e_i,   l ~ N(c, tau^2),   w ~ N(a, kappa S),   e_i ~ N(0, sigma^2).

The centred rows X know w alone, and the mean row knows l + x0' w; given the scales, both are
Gaussian (Lindley and Smith, JRSS B 34, 1972). With X S X' = U diag(lam) U', Z = U' X,
r = U' (y - y0 - X a), h = Z S x0 and V = sigma^2 + kappa lam,

    log p(y - y0) = -(sum log V + sum r^2 / V + (n - 1 - k) log sigma^2 + rss / sigma^2) / 2,
    y0 | y - y0  ~ N(c + x0' a + kappa sum h r / V,  v),
    v = kappa x0' S x0 - kappa^2 sum h^2 / V + sigma^2 / n + tau^2,

so that one decomposition gives all cells of (kappa, sigma, tau) at linear cost, and the mean row
is an exact update of rank one. Constants in 2 pi are left out.

Cells of (kappa, sigma) lie next to each other, so that loops over them are vector instructions, and
no array of all cells of all tasks is ever written. Every loop goes through one task at a time, and
every call of LAPACK is of the rows of one, so that a result does not depend on which other tasks
there are.
"""

from dataclasses import dataclass

import numpy as np

from .._runtime.jit import njit

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

_LARGEST = 1e15  # eigenvalue; larger ones are cut, so that a product of 16 variances is finite


def _groups(sizes):
    """Tasks of equal size, which LAPACK sees as one stack. -> (size, tasks) of sizes above 0"""
    order = np.argsort(sizes, kind="stable")
    ends = np.flatnonzero(np.diff(sizes[order], append=-1)) + 1
    first = 0
    for end in ends:
        if sizes[order[first]] > 0:
            yield int(sizes[order[first]]), order[first:end]
        first = end


def _members(starts, tasks, size):
    """Positions of the rows of tasks, (tasks, size)."""
    return starts[tasks][:, None] + np.arange(size)


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
        starts = np.concatenate([[0], np.cumsum(np.minimum(sizes, d))]).astype(np.int64)
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
        for n, tasks in _groups(sizes):
            places = _members(offsets, tasks, n)
            own = both[places]
            if counts is not None:
                u = counts[places]
                rows.n[tasks] = u.sum(axis=1)
                mean = (u[..., None] * own).sum(axis=1) / rows.n[tasks, None]
            else:
                mean = own.sum(axis=1) / n
            own -= mean[:, None]
            if counts is not None:
                own *= np.sqrt(u)[..., None]
            rows.x_mean[tasks], rows.y_mean[tasks] = mean[:, :d], mean[:, d]
            at = _members(starts, tasks, min(n, d))
            if n > d:
                own = np.linalg.qr(own, mode="r")
                rows.rest[tasks] = own[:, d, d] ** 2
                own = own[:, :d]
            rows.X[at], rows.y[at] = own[..., :d], own[..., d]
        return rows


class Decomposition:
    """Rows of every task in the eigenbasis of X S X', and its eigenvalues.

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
        self.rows, root = rows, np.array(root, dtype=float)
        self.shape = root @ root.T
        self.x_mean = rows.x_mean if x_mean is None else np.array(x_mean, dtype=float, order="C")
        self.X, self.y = np.zeros_like(rows.X), np.zeros_like(rows.y)
        self.values = np.zeros(len(rows.y))
        for k, tasks in _groups(np.diff(rows.starts)):
            at = _members(rows.starts, tasks, k)
            X = rows.X[at]
            A = X @ root
            values, U = np.linalg.eigh(A @ A.transpose(0, 2, 1))
            self.values[at] = np.clip(values, 0.0, _LARGEST)
            U = U.transpose(0, 2, 1)
            self.X[at], self.y[at] = U @ X, (U @ rows.y[at][..., None])[..., 0]
        self.h, self.b2 = np.zeros(len(rows.y)), np.zeros(len(rows.n))
        _join(rows.starts, self.X, self.shape, self.x_mean, self.h, self.b2)

    def _centred(self, level, slopes):
        """Arguments of kernels: the targets less the centre, in the eigenbasis, and of means."""
        rows = self.rows
        levels = np.array(np.broadcast_to(level, len(rows.n)), dtype=float)
        r, r0 = np.zeros(len(self.y)), np.zeros(len(rows.n))
        slopes = np.array(np.broadcast_to(slopes, self.x_mean.shape), dtype=float, order="C")
        _residuals(rows.starts, self.X, self.y, self.x_mean, rows.y_mean, levels, slopes, r, r0)
        return rows.starts, self.values, r, self.h, self.b2, r0, rows.n, rows.rest


def _cells_of(scales):
    """Arguments of kernels: kappa and sigma^2 of every pair of them, tau^2, log weights of pairs,
    weights of tau (padded to whole vectors)."""
    kappa, s2 = (np.ravel(a) for a in np.meshgrid(scales.kappa, scales.sigma**2, indexing="ij"))
    logs = (scales.log_kappa[:, None] + scales.log_sigma).ravel()
    spare = -len(scales.tau) % 8
    t2 = np.append(scales.tau**2, np.full(spare, 1.0))
    return kappa, s2, np.log(s2), logs, t2, np.append(np.exp(scales.log_tau), np.zeros(spare))


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
    out = np.zeros((len(dec.rows.n), 1))
    _evidence(*dec._centred(level, slopes), *_cells_of(scales), len(scales.sigma), 0, out)
    return out[:, 0]


def log_evidence_by(axis, dec, level, slopes, scales):
    """Log evidence of every cell of one grid, over the others. -> (m, n)

    `axis` is "kappa", "sigma" or "tau". Weights of `scales` count for it, too.
    """
    sizes = {"kappa": len(scales.kappa), "sigma": len(scales.sigma), "tau": len(scales.tau)}
    out = np.zeros((len(dec.rows.n), sizes[axis]))
    which = 1 + list(sizes).index(axis)
    _evidence(*dec._centred(level, slopes), *_cells_of(scales), sizes["sigma"], which, out)
    return out


def averages(dec, level, slopes, scales):
    """Posterior means. -> log evidence (m,), mean of l - c (m,), mean of w - a (m, d)"""
    m, d = dec.x_mean.shape
    total, of_level, of_slopes = np.zeros(m), np.zeros(m), np.zeros((m, d))
    c, near = np.zeros(len(dec.y)), np.zeros(m)
    arrays = dec._centred(level, slopes)
    n_sigma = len(scales.sigma)
    _averages(*arrays, *_cells_of(scales), n_sigma, False, total, of_level, near, c)
    _slopes(dec.rows.starts, dec.X, dec.shape, dec.x_mean, c, near, of_slopes)
    return total, of_level, of_slopes


def gains(dec, level, slopes, scales):
    """What multiplies residuals in posterior means, if the weights of cells stay as they are.

    For `moved`; of tasks of which rows know slopes, or the mean row does, but not both.
    -> of the level (m,), of rows (sum k,), of mean rows (m,)
    """
    m = len(dec.rows.n)
    total, of_level, near, c = np.zeros(m), np.zeros(m), np.zeros(m), np.zeros(len(dec.y))
    arrays = dec._centred(level, slopes)
    _averages(*arrays, *_cells_of(scales), len(scales.sigma), True, total, of_level, near, c)
    return of_level, c, near


def moved(dec, known, level, slopes):
    """Posterior means about another centre, by the `gains` of one. -> of l - c, of w - a"""
    _, _, r, _, _, r0, *_ = dec._centred(level, slopes)
    of_level, c, near = known
    out = np.zeros_like(dec.x_mean)
    _slopes(dec.rows.starts, dec.X, dec.shape, dec.x_mean, c * r, near * r0, out)
    return of_level * r0, out


def information(dec, level, slopes, scales, some=slice(None)):
    """Score and information of the centre (c, a), of these tasks. -> (m, 1 + d), (m, 1 + d, 1 + d)

    With q = x0 - kappa Z' (h / V) of a cell, averaged over cells by their weights:

        score = ((e / v), Z' (r / V) + q e / v),
        information = Z' diag(1 / V) Z + (1, q) (1, q)' / v.

    The score is the gradient of the log evidence. The information is that of a Gaussian of known
    scales, which is at least as large as that of the mixture: steps by it do not overshoot.
    """
    m, d = dec.x_mean.shape
    first, last, _ = some.indices(m)
    score, info = np.zeros((last - first, 1 + d)), np.zeros((last - first, 1 + d, 1 + d))
    x = dec.x_mean, dec.X
    _information(
        *dec._centred(level, slopes), *_cells_of(scales), len(scales.sigma), *x, first, score, info
    )
    return score, info


def covariances(dec, level, slopes, scales):
    """Second moments of (l - c, w - a) under the posterior. -> (m, 1 + d, 1 + d)

    Of every cell the covariance of the Gaussian plus the square of its mean, weighted and added up:
    less the square of the mean over cells it is the covariance of the mixture. With
    g = kappa S x0 - kappa^2 S Z' (h / V) of a cell,

        cov w = kappa S - kappa^2 S Z' diag(1 / V) Z S - g g' / v,
        var l = tau^2 - tau^4 / v,     cov(l, w) = -tau^2 g / v.

    Of a task without rows, that of its prior.
    """
    m, d = dec.x_mean.shape
    out = np.zeros((m, 1 + d, 1 + d))
    arrays = dec._centred(level, slopes)
    x = dec.x_mean, dec.X, dec.shape
    _covariances(*arrays, *_cells_of(scales), len(scales.sigma), *x, out)
    return out


def log_sum(E):
    """log sum exp over all axes but the first, task by task. -> (m,)"""
    E = np.asarray(E).reshape(len(E), -1)
    top = E.max(axis=1)
    return top + np.log(np.exp(E - top[:, None]).sum(axis=1))


# ------------------------------------------------------------------------------------ kernels
@njit
def _join(starts, X, S, x_mean, h, b2):
    d = len(S)
    b = np.empty(d)
    for t in range(len(b2)):
        for j in range(d):
            s = 0.0
            for q in range(d):
                s += S[j, q] * x_mean[t, q]
            b[j] = s
        s = 0.0
        for j in range(d):
            s += b[j] * x_mean[t, j]
        b2[t] = s
        for i in range(starts[t], starts[t + 1]):
            s = 0.0
            for j in range(d):
                s += X[i, j] * b[j]
            h[i] = s


@njit
def _residuals(starts, X, y, x_mean, y_mean, level, a, r, r0):
    d = a.shape[1]
    for t in range(len(r0)):
        s = 0.0
        for j in range(d):
            s += x_mean[t, j] * a[t, j]
        r0[t] = y_mean[t] - level[t] - s
        for i in range(starts[t], starts[t + 1]):
            s = 0.0
            for j in range(d):
                s += X[i, j] * a[t, j]
            r[i] = y[i] - s


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
    """Of a mean with residual e and variance v + tau^2: log density over tau, mean of 1 / (v +
    tau^2). Every exponential is over that of the largest tau, `far`."""
    half = -0.5 * e * e
    least = half / (v + far)
    m0, m1 = 0.0, 0.0
    for j in range(len(t2)):
        u = 1.0 / (v + t2[j])
        w = wt[j] * np.sqrt(u) * _small_exp(min(max(half * u - least, -50.0), 0.0))
        m0 += w
        m1 += w * u
    return least + np.log(m0), m1 / m0


@njit
def _cells(
    t,
    starts,
    lam,
    r,
    h,
    b2,
    r0,
    n,
    rest,
    g,
    s2,
    log_s2,
    logs,
    t2,
    wt,
    n_sigma,
    every,
    E,
    v,
    e,
    m1,
    B,
):
    """Log evidence E of pairs (kappa, sigma) of task t with their prior weights; residual e and
    variance v of the mean without tau; posterior mean m1 of 1 / (v + tau^2). B: scratch."""
    lo, hi, P = starts[t], starts[t + 1], len(g)
    for p in range(P):
        E[p], B[p], v[p], e[p] = 0.0, 1.0, g[p] * b2[t], r0[t]
    for i in range(lo, hi):
        a, b, c = lam[i], r[i], h[i]
        for p in range(P):
            V = s2[p] + g[p] * a
            u = 1.0 / V
            f = g[p] * c * u
            B[p] *= V
            E[p] += b * b * u
            v[p] -= g[p] * c * f
            e[p] -= f * b
        if (i - lo) % 16 == 15:
            for p in range(P):
                E[p] += np.log(B[p])
                B[p] = 1.0
    far = 0.0
    for j in range(len(t2)):
        far = max(far, t2[j])
    dof = n[t] - 1.0 - (hi - lo)
    best = 0
    for p in range(P):
        v[p] = max(v[p], 0.0) + s2[p] / n[t]
        E[p] += np.log(B[p]) + rest[t] / s2[p] + dof * log_s2[p]
        E[p] = logs[p] - 0.5 * E[p]
        if E[p] > E[best]:
            best = p
    least = -np.inf  # cells that weigh less, even if their means are where the density is highest
    if not every:
        least = E[best] + _of_mean(v[best], e[best], t2, wt, far)[0] - 25.0
        least += 0.5 * np.log(t2[0] + s2[0] / n[t])
    for p in range(P):
        if (
            b2[t] == 0.0 and p >= n_sigma and B[p - n_sigma] > -np.inf
        ):  # the mean row says nothing of slopes
            m1[p], B[p] = m1[p - n_sigma], B[p - n_sigma]
        elif E[p] > least:
            B[p], m1[p] = _of_mean(v[p], e[p], t2, wt, far)
        else:
            B[p], m1[p] = -np.inf, 0.0
        E[p] += B[p]


@njit
def _evidence(starts, lam, r, h, b2, r0, n, rest, g, s2, log_s2, logs, t2, wt, n_sigma, axis, out):
    P = len(g)
    E, v, e, m1, B = np.empty(P), np.empty(P), np.empty(P), np.empty(P), np.empty(P)
    far = 0.0
    for j in range(len(t2)):
        far = max(far, t2[j])
    for t in range(len(n)):
        if n[t] == 0:
            continue
        _cells(
            t,
            starts,
            lam,
            r,
            h,
            b2,
            r0,
            n,
            rest,
            g,
            s2,
            log_s2,
            logs,
            t2,
            wt,
            n_sigma,
            axis % 3 > 0,
            E,
            v,
            e,
            m1,
            B,
        )
        size = out.shape[1]
        if axis == 3:
            top = -np.inf
            for p in range(P):
                top = max(top, E[p])
            for j in range(size):
                out[t, j] = 0.0
            for p in range(P):
                if E[p] < top - 40.0:
                    continue
                least = -0.5 * e[p] * e[p] / (v[p] + far)
                w = np.exp(E[p] - B[p] - top + least)
                for j in range(size):
                    u = 1.0 / (v[p] + t2[j])
                    x = min(max(-0.5 * e[p] * e[p] * u - least, -50.0), 0.0)
                    out[t, j] += w * wt[j] * np.sqrt(u) * _small_exp(x)
            for j in range(size):
                out[t, j] = top + np.log(out[t, j])
            continue
        n_kappa = P // n_sigma
        count = P if axis == 0 else n_sigma if axis == 1 else n_kappa
        for j in range(size):
            first = j * n_sigma if axis == 1 else j
            step = n_sigma if axis == 2 else 1
            top = -np.inf
            for p in range(count):
                top = max(top, E[first + p * step])
            s = 0.0
            for p in range(count):
                x = E[first + p * step] - top
                if x > -40.0:
                    s += np.exp(x)
            out[t, j] = top + np.log(s)


@njit
def _weigh(E):
    """Weights that add up to one, in place of their logarithms. -> log of the sum before"""
    top, s = -np.inf, 0.0
    for p in range(len(E)):
        top = max(top, E[p])
    for p in range(len(E)):
        E[p] = np.exp(E[p] - top) if E[p] > top - 40.0 else 0.0
    for p in range(len(E)):
        s += E[p]
    for p in range(len(E)):
        E[p] /= s
    return top + np.log(s)


@njit
def _averages(
    starts,
    lam,
    r,
    h,
    b2,
    r0,
    n,
    rest,
    g,
    s2,
    log_s2,
    logs,
    t2,
    wt,
    n_sigma,
    gain,
    total,
    level,
    near,
    c,
):
    """Posterior means: slopes are S (Z' c + near x0). With `gain`, of residuals of one."""
    P = len(g)
    E, v, e, m1, B = np.empty(P), np.empty(P), np.empty(P), np.empty(P), np.empty(P)
    for t in range(len(n)):
        if n[t] == 0:
            continue
        _cells(
            t,
            starts,
            lam,
            r,
            h,
            b2,
            r0,
            n,
            rest,
            g,
            s2,
            log_s2,
            logs,
            t2,
            wt,
            n_sigma,
            False,
            E,
            v,
            e,
            m1,
            B,
        )
        total[t] = _weigh(E)
        for p in range(P):
            q = E[p]
            if q == 0.0:
                continue
            rho = q * m1[p] * (1.0 if gain else e[p])
            level[t] += q * (1.0 if gain else e[p]) - v[p] * rho
            near[t] += g[p] * rho
            for i in range(starts[t], starts[t + 1]):
                f = g[p] / (s2[p] + g[p] * lam[i])
                c[i] += f * q if gain else f * (q * r[i] - g[p] * rho * h[i])


@njit
def _slopes(starts, X, S, x_mean, c, near, out):
    d = len(S)
    q = np.empty(d)
    for t in range(len(near)):
        for j in range(d):
            q[j] = near[t] * x_mean[t, j]
        for i in range(starts[t], starts[t + 1]):
            for j in range(d):
                q[j] += c[i] * X[i, j]
        for j in range(d):
            s = 0.0
            for o in range(d):
                s += S[j, o] * q[o]
            out[t, j] = s


@njit
def _information(
    starts,
    lam,
    r,
    h,
    b2,
    r0,
    n,
    rest,
    g,
    s2,
    log_s2,
    logs,
    t2,
    wt,
    n_sigma,
    x_mean,
    X,
    first,
    score,
    info,
):
    P, d = len(g), x_mean.shape[1]
    E, v, e, m1, B = np.empty(P), np.empty(P), np.empty(P), np.empty(P), np.empty(P)
    q = np.empty(1 + d)
    for place in range(len(score)):
        t = first + place
        if n[t] == 0:
            continue
        lo, k = starts[t], starts[t + 1] - starts[t]
        _cells(
            t,
            starts,
            lam,
            r,
            h,
            b2,
            r0,
            n,
            rest,
            g,
            s2,
            log_s2,
            logs,
            t2,
            wt,
            n_sigma,
            False,
            E,
            v,
            e,
            m1,
            B,
        )
        _weigh(E)
        of_rows = np.zeros(k)
        for p in range(P):
            if E[p] == 0.0:
                continue
            u = E[p] * m1[p]
            q[0] = 1.0
            for j in range(d):
                q[1 + j] = x_mean[t, j]
            for i in range(k):
                f = 1.0 / (s2[p] + g[p] * lam[lo + i])
                of_rows[i] += E[p] * f
                f *= g[p] * h[lo + i]
                if f != 0.0:
                    for j in range(d):
                        q[1 + j] -= f * X[lo + i, j]
            for j in range(1 + d):
                score[place, j] += u * e[p] * q[j]
                for o in range(j + 1):
                    info[place, j, o] += u * q[j] * q[o]
        for i in range(k):
            for j in range(d):
                f = of_rows[i] * X[lo + i, j]
                score[place, 1 + j] += f * r[lo + i]
                for o in range(j + 1):
                    info[place, 1 + j, 1 + o] += f * X[lo + i, o]
        for j in range(1 + d):
            for o in range(j):
                info[place, o, j] = info[place, j, o]


@njit
def _covariances(
    starts, lam, r, h, b2, r0, n, rest, g, s2, log_s2, logs, t2, wt, n_sigma, x_mean, X, S, out
):
    P, d = len(g), len(S)
    E, v, e, m1, B = np.empty(P), np.empty(P), np.empty(P), np.empty(P), np.empty(P)
    b, of_x, w = np.empty(d), np.empty(d), np.empty(d)
    far = 0.0
    for j in range(len(t2)):
        far = max(far, t2[j])
    for t in range(len(n)):
        lo, k = starts[t], starts[t + 1] - starts[t]
        flat, of_rows, Z = 0.0, np.zeros(k), np.zeros((k, d))  # Z: rows times the shape
        if n[t] == 0:
            for p in range(P):
                E[p], v[p], e[p], m1[p] = logs[p], 1.0, 0.0, 1.0
        else:
            _cells(
                t,
                starts,
                lam,
                r,
                h,
                b2,
                r0,
                n,
                rest,
                g,
                s2,
                log_s2,
                logs,
                t2,
                wt,
                n_sigma,
                False,
                E,
                v,
                e,
                m1,
                B,
            )
        _weigh(E)
        for j in range(d):
            s = 0.0
            for o in range(d):
                s += S[j, o] * x_mean[t, o]
            b[j] = s
            for i in range(k):
                s = 0.0
                for o in range(d):
                    s += X[lo + i, o] * S[o, j]
                Z[i, j] = s
        for p in range(P):
            q = E[p]
            if q == 0.0:
                continue
            flat += q * g[p]
            if n[t] == 0:
                continue
            for j in range(d):
                of_x[j], w[j] = g[p] * b[j], 0.0
            for i in range(k):
                f = g[p] / (s2[p] + g[p] * lam[lo + i])
                of_rows[i] += q * g[p] * f
                for j in range(d):
                    of_x[j] -= g[p] * h[lo + i] * f * Z[i, j]
                    w[j] += f * r[lo + i] * Z[i, j]
            least = -0.5 * e[p] * e[p] / (v[p] + far)
            z, z1, z2 = 0.0, 0.0, 0.0  # means over tau of 1, 1 / u and 1 / u^2, u = v + tau^2
            for j in range(len(t2)):
                u = 1.0 / (v[p] + t2[j])
                x = min(max(-0.5 * e[p] * e[p] * u - least, -50.0), 0.0)
                x = wt[j] * np.sqrt(u) * _small_exp(x)
                z += x
                z1 += x * u
                z2 += x * u * u
            z1, z2 = z1 / z, z2 / z
            # tau^2 = u - v: means of tau^2 - tau^4 / u, (tau^2 e / u)^2, tau^2 / u and so on
            e2, v0 = e[p] * e[p], v[p]
            out[t, 0, 0] += q * (v0 - v0 * v0 * z1 + e2 * (1.0 - 2.0 * v0 * z1 + v0 * v0 * z2))
            for j in range(d):
                of_both = (e2 * (z1 - v0 * z2) - (1.0 - v0 * z1)) * of_x[j]
                out[t, 0, 1 + j] += q * (of_both + e[p] * (1.0 - v0 * z1) * w[j])
                for o in range(d):
                    square = w[j] * w[o] + (e2 * z2 - z1) * of_x[j] * of_x[o]
                    square += e[p] * z1 * (w[j] * of_x[o] + of_x[j] * w[o])
                    out[t, 1 + j, 1 + o] += q * square
        if n[t] == 0:
            s, z = 0.0, 0.0
            for j in range(len(t2)):
                s += wt[j] * t2[j]
                z += wt[j]
            out[t, 0, 0] = s / z
        for j in range(d):
            out[t, 1 + j, 0] = out[t, 0, 1 + j]
            for o in range(d):
                s = flat * S[j, o]
                for i in range(k):
                    s -= of_rows[i] * Z[i, j] * Z[i, o]
                out[t, 1 + j, 1 + o] += s
