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

Rows of a subgroup may share an effect v ~ N(0, g): indicators of subgroups are then columns of A,
times root(g / kappa), and all of the above holds.

Several classes have a score each, and only differences between scores mean anything: what all of
them have in common is taken away. Off that direction the curvature of the softmax loss is C / (C -
1) times its diagonal where all classes are alike; determinants count (C - 1) / C times.

Tasks with alike numbers of rows are computed side by side, each from its own rows alone.
"""

from dataclasses import dataclass

import numpy as np

from .._runtime.jit import inner, njit
from .._runtime.registers import chosen, exp, larger, log, row, set_row, smaller, sqrt, wide
from ..tables.table import FAR, row_products
from .lanes import LANES, ROWS, Chunk
from .nested import Subgroups

LOGISTIC, POISSON, SOFTMAX = 0, 1, 2
_LEAST = 1e-6  # curvature of a row
_REACH = 3.0  # how far the score of a row moves in a step: beyond it the expansion is another
_MOST_STEPS = 25
_MANY = 64.0  # rows of a task, from which pairs of them say little beyond Laplace's approximation
_MOMENTS = {None: 0, "means": 1, "second": 2, "kept": 3, "information": 4}
_MOST_BEYOND = 0.1  # of the next order: where it is larger, it is less sure itself


@dataclass
class ScoreRows:
    """Rows of m tasks, sorted by task."""

    kind: int  # `LOGISTIC`, `POISSON` or `SOFTMAX`
    X: np.ndarray  # (N, d), or what gives rows as one does, about whatever the level is at
    y: np.ndarray  # (N,), 0 or 1; counts; numbers of classes
    weight: np.ndarray  # (N,), how much rows count
    # (N, C), scores besides those of the model, such as logarithms of exposures; C is 1 but for
    # softmax
    given: np.ndarray
    offsets: np.ndarray  # (m + 1,), rows of task t are ``offsets[t]:offsets[t + 1]``
    subgroups: Subgroups | None = None  # of the rows
    chunk: tuple | None = None  # a root and the coordinates in it: see `Chunk.all`

    @property
    def n_outputs(self):
        return self.given.shape[1]

    @property
    def n_tasks(self):
        return len(self.offsets) - 1

    @property
    def n_subgroups(self):
        """Of every task, (m,)."""
        known = np.zeros(0, int) if self.subgroups is None else self.subgroups.tasks
        return np.bincount(known, minlength=self.n_tasks)


def posterior(
    rows, root, level, slopes, grids, log_weights, *, size=None, tol=0.3, moments=None, ratio=0.0
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
    moments : {"means", "second", "kept", "information"} or None, default=None
        What is asked for besides the evidence: posterior means, and moments.
    ratio : float, default=0.0
        g, the variance of effects of subgroups, where rows are in some.

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
        "information": that of the centre, (m, C, 1 + d, 1 + d), and `level` and `slopes` are its
        score. With a posterior N(u, V) of (l - c, w - a) in a cell, whose prior is N(0, K), these
        are K^-1 (K - V) K^-1 and K^-1 u, averaged over cells by their weights (Louis, JRSS B 44,
        1982, less his last term, so that steps do not overshoot, as of real targets). Of levels u
        is the mean to the next order: by the mode, rare events are expected too often.
    typical : ndarray (m, C, 2)
        With second moments. Of classes, of the variance v in a cell of the score at a row of
        independent columns of this size: means over cells of v, and of (1 + pi v / 8)^-1/2, by
        which MacKay ("The evidence framework applied to classification networks", Neural
        Computation 4(5), 1992) averages probabilities. Of counts, the mean over cells of the
        logarithm of the mean rate at typical rows, less the score of `level` and `slopes` at the
        mean row; see `_log_rates`.
    effects : ndarray (3, S, C)
        With second moments, of the effects v of subgroups: their mean, the mean of v^2, and that of
        v (l - c).
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
    asked = _MOMENTS[moments]
    evidence, of_level = np.zeros((m, *shape)), np.zeros((m, C))
    of_slopes, typical = np.zeros((m, C, d)), np.zeros((m, C, 2))
    width = 1 + (d if asked == 4 else r)
    moment = np.zeros((m, C, width, width) if asked > 1 else (0, 0, 0, 0))
    back = np.linalg.pinv(root) if asked == 4 else root
    effects = np.zeros((3, rows.n_subgroups.sum(), C))
    for chunk in Chunk.all(rows, root):
        found = _of_chunk(rows, chunk, root, level, slopes, size, grids, weights, tol, asked, ratio)
        tasks = chunk.tasks
        evidence[tasks] = found[0]
        if asked:
            of_level[tasks], typical[tasks] = found[1], found[4]
        if asked == 4:
            of_slopes[tasks], moment[tasks] = chunk.information(back, *found[2:4], found[5])
            continue
        if asked == 2:
            t, at = chunk.places_of
            first, square = found[2][t, :, at], found[3][t, :, 1 + at, 1 + at]
            effects[:, chunk.subgroups] = first, square, found[3][t, :, 0, 1 + at]
        if asked:
            of_slopes[tasks] = row_products(chunk.wide(found[2]), root.T)
        if asked > 1:
            moment[tasks] = chunk.wide_moments(found[3], found[5])
    return evidence, of_level, of_slopes, moment, typical, effects


def _of_chunk(rows, chunk, root, level, slopes, size, grids, weights, tol, asked, ratio):
    """Evidence (m, ...), levels (m, C), slopes (m, C, E), moments (m, C, 1 + E, 1 + E), typical
    (m, C, 2), and variances where tasks have no rows (m,), in the coordinates of the chunk."""
    tasks, at = chunk.tasks, chunk.places
    m, C, E = len(tasks), rows.n_outputs, chunk.A.shape[1]
    y, weight, size = rows.y[at], rows.weight[at], size[tasks]
    targets = (y[:, None] == np.arange(C)) * 1.0 if rows.kind == SOFTMAX else y[:, None]
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
    squares = chunk.squares(root, size) if asked == 2 else np.zeros((m, 0, 0))
    of_subgroups = chunk.of_subgroups()
    shapes = weights.shape, (C,), (C, E), (C, 1 + E, 1 + E) if asked > 1 else (C, 0), (C, 2), ()
    out = [np.zeros((m, *shape)) for shape in shapes]
    # From `TARGET` to `THERE`.
    shared = [np.repeat(x[:, None], C, axis=1) for x in (weight, np.ones(len(weight)))]
    given = np.stack([targets, shared[0], about, begin, shared[1]], axis=2)
    for lanes in chunk.blocks():
        blocks, k = len(lanes.task), lanes.k
        square = (1 + k) ** 2 * (asked > 1)
        shapes = weights.shape, (C,), (C, k), (C, square), (C, 2), ()
        found = [np.zeros((blocks, *shape, LANES)) for shape in shapes]
        nested = lanes.of_tasks(of_subgroups[:, :k]) if len(chunk.subgroups) else None
        of = of_tasks, squares[:, :k, :k]
        known = lanes.of_columns(chunk.A), lanes.of_rows(given), tuple(map(lanes.of_tasks, of))
        of = ratio, grids, weights, tol, asked, tuple(found)
        kind = rows.kind == POISSON or None, rows.kind == SOFTMAX or None
        _posterior(*kind, nested, *known, lanes.heads, *of, _work(C, lanes.n, k, weights.shape[-1]))
        if asked > 1:
            found[3] = found[3].reshape(blocks, C, 1 + k, 1 + k, LANES)
        for x, into in zip(found, out, strict=True):
            lanes.put(x, into)
    return out


# ----------------------------------------------------------------------------------- kernels
# Arrays have tasks last, and a kernel works on the numbers of all of them at once. What one lane
# gets does not depend on the others. Of a class, numbers of rows are in one array (10, n, W): what
# is given, where rows are and their working responses less `BASE`, what slopes leave of these two,
# and means and curvatures at the scores.
TARGET, WEIGHT, BASE, SCORE, THERE, RESPONSE, LEFT_OF_ONE, LEFT, MEAN, CURVE = range(10)


def _work(C, n, k, T):
    """Arrays in which a kernel works: made here, they take no time to compile."""
    shapes = (
        [(C, 10, n), (C, k, k), (C, 2, k)],
        [(n, k), (n, k), (k, k), (k, k), (2, n), (2, k), (C, 3), (C, 2), (T, C), (C, 2)],
        [(n,), (C,), (C,), (T,), (T,), (T,)],
    )
    of = [tuple(np.zeros((*shape, LANES)) for shape in some) for some in shapes]
    return *of, np.zeros(LANES)


@inner
def _pool(x, head):
    """Sums over the lanes of every task, in all of them, for numbers (W,)."""
    for t in range(len(head)):
        if head[t] != t:
            x[head[t]] += x[t]
    for t in range(len(head)):
        x[t] = x[head[t]]


@inner
def _pooled(x, head, buffer):
    """`_pool` of a row."""
    if len(head) == 0:
        return x
    set_row(buffer, x)
    _pool(buffer, head)
    return row(buffer)


@inner
def _means(counts, several, R):
    """Means of rows at their scores."""
    C, n = R.shape[0], R.shape[2]
    for i in range(n):
        top, total = row(R, 0, SCORE, i), wide(0.0)
        if counts is not None:
            set_row(R, 0, MEAN, i, exp(smaller(larger(top, -FAR), FAR)))
        elif several is None:
            e = exp(larger(smaller(top, 0.0 - top), -700.0))
            set_row(R, 0, MEAN, i, chosen(top, 1.0, e) / (1.0 + e))
        else:
            for c in range(1, C):
                top = larger(top, row(R, c, SCORE, i))
            for c in range(C):
                e = exp(larger(row(R, c, SCORE, i) - top, -700.0))
                total = total + e
                set_row(R, c, MEAN, i, e)
            for c in range(C):
                set_row(R, c, MEAN, i, row(R, c, MEAN, i) / total)


@inner
def _expand(counts, several, phi, part, live, R):
    """Curvatures and working responses less `BASE`, in lanes that are on their way."""
    bend = 1.0 if counts is None else 0.0
    _means(counts, several, R)
    for c in range(R.shape[0]):
        for i in range(R.shape[2]):
            p = row(R, c, MEAN, i)
            curve = larger(p * (1.0 - bend * p) / part, _LEAST)
            z = row(R, c, SCORE, i) + (row(R, c, TARGET, i) - p) / curve - row(R, c, BASE, i)
            h = row(R, c, WEIGHT, i) * curve / phi
            set_row(R, c, CURVE, i, chosen(live, h, row(R, c, CURVE, i)))
            set_row(R, c, RESPONSE, i, chosen(live, z, row(R, c, RESPONSE, i)))


@inner
def _factorise(A, r, kappa, head, B, f):
    """Lower factor of I + kappa A' H A, with inverses of its diagonal, in B. -> log determinants"""
    n, k = A.shape[0], A.shape[1]
    for i in range(k):
        for q in range(n):
            set_row(f, q, kappa * row(r, CURVE, q) * row(A, q, i))
        for j in range(i + 1):
            total = wide(0.0)
            for q in range(n):
                total = total + row(f, q) * row(A, q, j)
            set_row(B, i, j, total)
            _pool(B[i, j], head)
    logs = wide(0.0)
    for i in range(k):
        for j in range(i):
            total = row(B, i, j)
            for q in range(j):
                total = total - row(B, i, q) * row(B, j, q)
            set_row(B, i, j, total * row(B, j, j))
        total = row(B, i, i) + 1.0
        for q in range(i):
            total = total - row(B, i, q) * row(B, i, q)
        logs = logs + log(total)
        set_row(B, i, i, 1.0 / sqrt(total))
    return logs


@inner
def _project(A, r, kappa, head, B, f, slopes):
    """Slopes kappa A' V^-1 v, and v less their scores, of a level of one and of responses."""
    n, k = A.shape[0], A.shape[1]
    for s in range(len(slopes)):  # not a number, or the loop would be unrolled
        u, v = slopes[s], THERE + s
        for q in range(n):
            set_row(f, q, kappa * row(r, CURVE, q) * row(r, v, q))
        for j in range(k):
            total = wide(0.0)
            for q in range(n):
                total = total + row(f, q) * row(A, q, j)
            set_row(u, j, total)
            _pool(u[j], head)
        for i in range(k):
            total = row(u, i)
            for j in range(i):
                total = total - row(B, i, j) * row(u, j)
            set_row(u, i, total * row(B, i, i))
        for step in range(k):
            i = k - 1 - step
            total = row(u, i)
            for j in range(i + 1, k):
                total = total - row(B, j, i) * row(u, j)
            set_row(u, i, total * row(B, i, i))
        for q in range(n):
            total = row(r, v, q)
            for j in range(k):
                total = total - row(A, q, j) * row(u, j)
            set_row(r, LEFT_OF_ONE + s, q, total)


@inner
def _forms(r, q, head):
    """q_11, q_1r and q_rr, (3, W), and then scores without levels in place of `LEFT`."""
    one, both, square = wide(0.0), wide(0.0), wide(0.0)
    for i in range(r.shape[1]):
        h, e, z = row(r, CURVE, i), row(r, LEFT_OF_ONE, i), row(r, RESPONSE, i)
        one = one + h * row(r, THERE, i) * e
        both = both + h * e * z
        square = square + h * z * row(r, LEFT, i)
        set_row(r, LEFT, i, row(r, BASE, i) + z - row(r, LEFT, i))
    set_row(q, 0, one)
    set_row(q, 1, both)
    set_row(q, 2, square)
    for i in range(len(q)):
        _pool(q[i], head)
    set_row(q, 0, larger(row(q, 0), 0.0))


@inner
def _over_levels(part, t2, log_weights, logs, q, delta, P, share):
    """Means of levels by tau, log weights of tau in P, (T, W), and weights that add up to one."""
    T, C = delta.shape[0], delta.shape[1]
    for j in range(T):
        total = wide(log_weights[j])
        for c in range(C):
            apart = 1.0 + t2[j] * row(q, c, 0)
            d = t2[j] * row(q, c, 1) / apart
            v = part * (row(logs, c) + log(apart)) + row(q, c, 2) - row(q, c, 1) * d
            total = total - 0.5 * v
            set_row(delta, j, c, d)
        set_row(P, j, total)
    total = _weights(P, share)[1]
    for j in range(T):
        set_row(share, j, row(share, j) / total)


@inner
def _weights(P, share):
    """exp(P - top) in `share`. -> their largest and their sum"""
    top, total = row(P, 0), wide(0.0)
    for j in range(1, len(P)):
        top = larger(top, row(P, j))
    for j in range(len(P)):
        e = exp(larger(row(P, j) - top, -700.0))
        total = total + e
        set_row(share, j, e)
    return top, total


@inner
def _move(R, delta, share, live, step, head, buffer):
    """Scores to the mode of the expansion, in lanes on their way. -> how far the farthest moves"""
    T, C, by_class = delta.shape[0], delta.shape[1], 1.0 / delta.shape[1]
    for c in range(C):
        total = wide(0.0)
        for j in range(T):
            total = total + row(share, j) * row(delta, j, c)
        set_row(step, c, total)
    moved = wide(0.0)
    for i in range(R.shape[2]):
        mean = wide(0.0)
        for c in range(C):
            way = row(R, c, LEFT, i) + row(step, c) * row(R, c, LEFT_OF_ONE, i)
            mean = mean + by_class * way
        for c in range(C):
            way = row(R, c, LEFT, i) + row(step, c) * row(R, c, LEFT_OF_ONE, i)
            way = way - row(R, c, SCORE, i) if C == 1 else way - mean - row(R, c, SCORE, i)
            moved = larger(moved, larger(way, 0.0 - way) * row(R, c, THERE, i))
            way = smaller(larger(way, -_REACH), _REACH)
            set_row(R, c, SCORE, i, row(R, c, SCORE, i) + way * live)
    set_row(buffer, moved)
    for t in range(len(head)):
        buffer[head[t]] = max(buffer[head[t]], buffer[t])
    for t in range(len(head)):
        buffer[t] = buffer[head[t]]
    return row(buffer)


@inner
def _losses(counts, several, phi, R, delta, head, buffer):
    """What is convex in the negative log likelihood with levels delta (C, W)."""
    C, total = R.shape[0], wide(0.0)
    for i in range(R.shape[2]):
        s = row(R, 0, LEFT, i) + row(delta, 0) * row(R, 0, LEFT_OF_ONE, i)
        if counts is not None:
            near = smaller(larger(s, -FAR), FAR)
            f = exp(near) * (1.0 + s - near)
        elif several is None:
            f = larger(s, 0.0) + log(1.0 + exp(larger(smaller(s, 0.0 - s), -700.0)))
        else:
            top, e = s, wide(0.0)
            for c in range(1, C):
                top = larger(top, row(R, c, LEFT, i) + row(delta, c) * row(R, c, LEFT_OF_ONE, i))
            for c in range(C):
                s = row(R, c, LEFT, i) + row(delta, c) * row(R, c, LEFT_OF_ONE, i)
                e = e + exp(larger(s - top, -700.0))
            f = top + log(e)
        total = total + row(R, 0, WEIGHT, i) * f
    return _pooled(total / phi, head, buffer)


@inner
def _linear(phi, r, head, buffer):
    """Of one class, sums of which the rest of the log likelihood less its expansion is made: that
    at `LEFT`, and what multiplies delta and delta^2."""
    at, along, square = wide(0.0), wide(0.0), wide(0.0)
    for i in range(r.shape[1]):
        e0, e1, h = row(r, LEFT, i), row(r, LEFT_OF_ONE, i), row(r, CURVE, i)
        f, y = row(r, RESPONSE, i) + row(r, BASE, i) - e0, row(r, WEIGHT, i) * row(r, TARGET, i)
        at = at + (y * e0 / phi + 0.5 * h * f * f)
        along = along + (y * e1 / phi - h * f * e1)
        square = square + 0.5 * h * e1 * e1
    at, along = _pooled(at, head, buffer), _pooled(along, head, buffer)
    return at, along, _pooled(square, head, buffer)


@inner
def _whiten(A, kappa, B, x):
    """x, of which products are covariances of scores where the level is known, (n, k, W)."""
    f = np.sqrt(kappa)
    for i in range(A.shape[0]):
        for j in range(A.shape[1]):
            total = f * row(A, i, j)
            for q in range(j):
                total = total - row(B, j, q) * row(x, i, q)
            set_row(x, i, j, total * row(B, j, j))


@inner
def _covariance_of(x, i, j):
    total = wide(0.0)
    for q in range(x.shape[1]):
        total = total + row(x, i, q) * row(x, j, q)
    return total


@inner
def _beyond(counts, many, few, phi, part, r, x, level, V, bent, head, buffer):
    """What the evidence of one class is more than Laplace's approximation, to the next order.

    From third and fourth derivatives of the log likelihood of rows, and the covariance V of their
    scores: sum f4 V_ii^2 / 8 + sum f3 f3 (V_ii V_ij V_jj / 8 + V_ij^3 / 12). Third derivatives and
    variances are in V (2, n, W). In `bent`, what a level of variance v is off its mode by, over v,
    as in `_log_rates`: the first number, and v times the second.
    """
    total, first, second = wide(0.0), wide(0.0), wide(0.0)
    for i in range(r.shape[1]):
        p, weight, e = row(r, MEAN, i), row(r, WEIGHT, i), row(r, LEFT_OF_ONE, i)
        own = _covariance_of(x, i, i)
        v = (own + level * e * e) / part
        if counts is not None:
            third = 0.0 - weight * p / phi
            fourth = third
        else:
            w = p * (1.0 - p)
            third = 0.0 - weight * w * (1.0 - 2.0 * p)
            fourth = 0.0 - weight * w * (1.0 - 6.0 * w)
        set_row(V, 0, i, third)
        set_row(V, 1, i, v)
        bend = 0.5 * third * e / part
        first = first + bend * own
        second = second + bend * e * e
        # Of many rows, with those of which each is.
        f = third * third * v * v * v * (5.0 / 24.0)
        f = chosen(many, f / larger(weight, 1e-300), f)
        total = total + (fourth * v * v / 8.0 + f)
        if few == 0.0:
            continue
        near = wide(0.0)
        for j in range(i):
            w = (_covariance_of(x, i, j) + level * e * row(r, LEFT_OF_ONE, j)) / part
            near = near + row(V, 0, j) * w * (0.25 * v * row(V, 1, j) + w * w / 6.0)
        total = total + chosen(many, 0.0, third * near)
    set_row(bent, 0, _pooled(first, head, buffer))
    set_row(bent, 1, _pooled(second, head, buffer))
    total = _pooled(total, head, buffer)
    return part * smaller(larger(total, -_MOST_BEYOND), _MOST_BEYOND)


@inner
def _covariance(kappa, B, inverse, cov):
    """Covariance of slopes where the level is known, kappa (I + kappa A' H A)^-1."""
    k = len(B)
    for i in range(k):
        set_row(inverse, i, i, row(B, i, i))
        for j in range(i + 1, k):
            total = wide(0.0)
            for q in range(i, j):
                total = total - row(B, j, q) * row(inverse, q, i)
            set_row(inverse, j, i, total * row(B, j, j))
    for i in range(k):
        for j in range(i + 1):
            total = wide(0.0)
            for q in range(i, k):
                total = total + row(inverse, q, i) * row(inverse, q, j)
            set_row(cov, i, j, kappa * total)
            set_row(cov, j, i, kappa * total)


@inner
def _log_rates(x, r, ur, u1, mean, near, count, delta, q11, t2, known, moved, head, buffer, out):
    """Logarithms of mean rates about the mean row, to the second order about the mode, (T, W).

    A score s at the mode, of variance v, has E exp(s) = exp(s + v / 2 + E ds), where the mean is
    off the mode by ds = -sum_i h_i V_i V_ii / 2, for the third derivatives -h_i of the rows, and
    their covariances V_i with s and variances V_ii. So the mean rate of a task that determines its
    level is that of its events. Rows about the mean row add what their variance is more.
    """
    n, k = x.shape[0], x.shape[1]
    of_r, of_1, variance = wide(0.0), wide(0.0), wide(0.0)
    for j in range(k):
        total = wide(0.0)
        for i in range(n):
            total = total + row(x, i, j) / count
        total = _pooled(total, head, buffer)
        variance = variance + total * total
        set_row(near, j, total)
        of_r = of_r + row(mean, j) * row(ur, j)
        of_1 = of_1 + row(mean, j) * row(u1, j)
    a, b, c, d = wide(0.0), wide(0.0), wide(0.0), wide(0.0)
    for i in range(n):
        h, e, joint = row(r, CURVE, i), row(r, LEFT_OF_ONE, i), wide(0.0)
        for j in range(k):
            joint = joint + row(x, i, j) * row(near, j)
        own = _covariance_of(x, i, i)
        a = a + h * joint * own
        b = b + h * e * own
        c = c + h * joint * e * e
        d = d + h * e * e * e
    a, b = _pooled(a, head, buffer), _pooled(b, head, buffer)
    c, d = _pooled(c, head, buffer), _pooled(d, head, buffer)
    off = 1.0 - of_1
    for j in range(len(t2)):
        spread = t2[j] / (1.0 + t2[j] * q11)
        less = a + spread * (off * b + c) + spread * spread * off * d
        bend = larger(variance + off * off * spread - less, 0.0)
        score = row(delta, j, 0) * off + of_r
        set_row(out, j, score + 0.5 * (bend + known + (moved - 1.0) * spread))


@inner
def _add(P, delta, c, q11, t2, kappa, ur, u1, cov, bent, asked, first, w, moment):
    """Sums over tau with weights P of one class: levels, slopes and, if asked for, moments."""
    T, k = len(P), len(ur)
    total, one, square, held, shared = wide(0.0), wide(0.0), wide(0.0), wide(0.0), wide(0.0)
    score = wide(0.0)
    for j in range(T):
        p, d, apart = row(P, j), row(delta, j, c), 1.0 + t2[j] * q11
        total = total + p
        one = one + p * d
        shared = shared + p / apart
        bend = (row(bent, 0) + row(bent, 1) * t2[j] / apart) / apart
        score = score + kappa * p * (d / t2[j] + bend)
        held = held + p * t2[j] / apart
        square = square + p * (d * d + t2[j] / apart)
    set_row(first, row(first) + (score if asked == 4 else one))
    for i in range(k):
        set_row(w, i, row(w, i) + (total * row(ur, i) - one * row(u1, i)))
    if asked < 2:
        return
    of_rest, of_r, near, own = total, 1.0, square, square
    if asked > 2:
        of_rest, of_r, one, near, own = total / kappa, 0.0, 0.0 * one, held / kappa, shared
    _plus(moment, 0, kappa * q11 * shared if asked == 4 else own)
    for i in range(k):
        r, u, at = row(ur, i) * of_r, row(u1, i), (1 + i) * (1 + k)
        _plus(moment, 1 + i, one * r - near * u)
        _plus(moment, at, one * r - own * u)
        for j in range(k):
            both = r * row(u1, j) + u * row(ur, j)
            v = of_rest * (row(cov, i, j) + r * row(ur, j)) - one * both
            _plus(moment, at + 1 + j, v + near * u * row(u1, j))


@inner
def _plus(x, i, value):
    set_row(x, i, row(x, i) + value)


@inner
def _stretch(x, some, longer):
    """Rows of (k, W), of which `some` (k, W) are longer, by so much."""
    for i in range(len(x)):
        set_row(x, i, row(x, i) * (1.0 + row(some, i) * longer))


@inner
def _fade(x, faded):
    """Rows of (., W) times one."""
    for i in range(len(x)):
        set_row(x, i, row(x, i) * faded)


@njit
def _posterior(
    counts,
    several,
    subgroups,
    A,
    given,
    tasks,
    heads,
    ratio,
    grids,
    log_weights,
    tol,
    asked,
    out,
    work,
):
    # What is None is not compiled: `counts`, `several` classes, and indicators of `subgroups`.
    of_tasks, squares = tasks
    kappa, phi, of_phi, t2 = grids
    evidence, of_level, of_slopes, moment, typical, outside = out
    (blocks, n, k, W), C, T = A.shape, given.shape[1], len(t2)
    part = 1.0 if C == 1 else (C - 1.0) / C
    lower = 0.0 if counts is None else 0.5
    (R, B, u), (x, stretched, inverse, cov, V, near, q, lines, delta, bent), of_lanes, buffer = work
    f, logs, step, P, share, E = of_lanes
    for b in range(blocks):
        head, few, a_b = heads[b], 0.0, A[b]
        count, many, constant = row(of_tasks, b, 0), row(of_tasks, b, 1), row(of_tasks, b, 2)
        reach, at_least_one = row(of_tasks, b, 3), larger(count, 1.0)
        for t in range(W):
            few = max(few, 1.0 - of_tasks[b, 1, t])
        own_trace, top, total = wide(0.0), wide(-1e300), wide(0.0)
        for i in range(squares.shape[1]):
            own_trace = own_trace + row(squares, b, i, i)
        for j in range(k):
            mean = wide(0.0)
            for i in range(n):
                mean = mean + row(a_b, i, j) / at_least_one
            if subgroups is not None:  # rates are those of subgroups without an effect
                mean = mean * (1.0 - row(subgroups, b, j))
            set_row(near, 0, j, _pooled(mean, head, buffer))
        for g in range(len(phi)):
            for c in range(C):
                for v in range(given.shape[2]):
                    for i in range(n):
                        set_row(R, c, v, i, row(given, b, c, v, i))
            for a in range(len(kappa)):
                K, live, longer = kappa[a], wide(1.0), np.sqrt(ratio / kappa[a]) - 1.0
                if subgroups is not None:
                    for i in range(n):
                        for j in range(k):
                            set_row(stretched, i, j, row(A, b, i, j))
                        _stretch(stretched[i], subgroups[b], longer)
                    a_b = stretched
                for c in range(C):
                    for i in range(n):
                        set_row(R, c, BASE, i, row(given, b, c, BASE, i) - K * lower * reach)
                for turn in range(_MOST_STEPS):
                    _expand(counts, several, phi[g], part, live, R)
                    for c in range(C):
                        r = R[c]
                        set_row(logs, c, _factorise(a_b, r, K, head, B[c], f))
                        _project(a_b, r, K, head, B[c], f, u[c])
                        _forms(r, q[c], head)
                    _over_levels(part, t2, log_weights[a, g], logs, q, delta, P, share)
                    moved = _move(R, delta, share, live, step, head, buffer)
                    live = chosen(moved - tol, live, 0.0)
                    set_row(buffer, live)
                    going = 0.0
                    for t in range(W):
                        going += buffer[t]
                    if going == 0.0:
                        break
                _means(counts, several, R)
                beyond = constant / phi[g] - of_phi[g] * count
                for c in range(C):
                    level, q11 = wide(0.0), row(q, c, 0)
                    for j in range(T):
                        level = level + row(share, j) * t2[j] / (1.0 + t2[j] * q11)
                    _whiten(a_b, K, B[c], x)
                    of = many, few, phi[g], part, R[c], x, level, V, bent[c], head, buffer
                    beyond = beyond + _beyond(counts, *of)
                    at, along, square = _linear(phi[g], R[c], head, buffer)
                    beyond = beyond + at
                    set_row(lines, c, 0, along)
                    set_row(lines, c, 1, square)
                for j in range(T):
                    v = _losses(counts, several, phi[g], R, delta[j], head, buffer)
                    v = row(P, j) + beyond - v
                    for c in range(C):
                        d = row(delta, j, c)
                        v = v + (row(lines, c, 0) + row(lines, c, 1) * d) * d
                    set_row(P, j, v)
                    set_row(evidence, b, a, g, j, v - log_weights[a, g, j])
                if asked == 0:
                    continue
                most, sums = _weights(P, share)
                now = exp(larger(smaller(most - top, 0.0), -700.0))
                before = exp(larger(smaller(top - most, 0.0), -700.0))
                top = larger(top, most)
                total = total * before + sums * now
                if asked == 4:  # of what is divided by the variance of slopes
                    now = now / K
                _fade(share, now)
                _fade(of_level[b], before)
                kept = sums * now * (K if asked == 2 else 1.0)
                set_row(outside, b, row(outside, b) * before + kept)
                for c in range(C):
                    q11 = row(q, c, 0)
                    _fade(of_slopes[b, c], before)
                    if asked > 1:
                        _fade(moment[b, c], before)
                        _covariance(K, B[c], inverse, cov)
                    if subgroups is not None:
                        for v in range(2):
                            _stretch(u[c, v], subgroups[b], longer)
                    if subgroups is not None and asked > 1:
                        for i in range(k):
                            far = 1.0 + row(subgroups, b, i) * longer
                            _stretch(cov[i], subgroups[b], longer)
                            _fade(cov[i], far)
                    sums = of_level[b, c], of_slopes[b, c], moment[b, c]
                    _add(share, delta, c, q11, t2, K, u[c, 1], u[c, 0], cov, bent[c], asked, *sums)
                    if asked != 2:
                        continue
                    _fade(typical[b, c], before)
                    known, spread = K * larger(reach - own_trace, 0.0), wide(1.0)
                    for i in range(k):
                        for j in range(k):
                            s = row(squares, b, i, j)
                            known = known + s * row(cov, i, j)
                            spread = spread + s * row(u, c, 0, i) * row(u, c, 0, j)
                    if counts is not None:
                        of = x, R[c], u[c, 1], u[c, 0], near[0], near[1], at_least_one
                        _log_rates(*of, delta, q11, t2, known, spread, head, buffer, E)
                    for j in range(T):
                        p = row(share, j)
                        if counts is not None:
                            v = row(E, j) - K * lower * reach
                        else:
                            v = known + spread * t2[j] / (1.0 + t2[j] * q11)
                            flat = p / sqrt(1.0 + 0.125 * np.pi * v)
                            set_row(typical, b, c, 1, row(typical, b, c, 1) + flat)
                        set_row(typical, b, c, 0, row(typical, b, c, 0) + p * v)
        if asked == 0:
            continue
        by_total = 1.0 / total
        for c in range(C):
            _fade(of_slopes[b, c], by_total)
            _fade(typical[b, c], by_total)
            if asked > 1:
                _fade(moment[b, c], by_total)
        _fade(of_level[b], by_total)
        set_row(outside, b, row(outside, b) * by_total)
