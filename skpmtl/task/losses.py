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

import math
from dataclasses import dataclass

import numpy as np

from .._runtime.jit import inner, njit
from .._runtime.registers import (
    chosen,
    dot,
    exp,
    larger,
    log,
    pooled,
    row,
    set_row,
    smaller,
    sqrt,
    wide,
)
from ..tables.table import FAR, row_products
from .lanes import LANES, ROWS, Chunk
from .mixture import PROBIT, against_others
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
        Mean squares of typical rows about the mean row of a task; None: 1, and 0 of counts. Where
        it is given, `level` is that of means: for counts the mean of the level in a cell is less by
        half of the variance that slopes have at such rows, so that `level` is that of the mean
        rate, about which means and moments are. For classes it is `level` times (1 + pi v /
        8)^1/2, with v the variance of a score in the cell at typical rows, of which slopes of the
        centre are a part; of several classes that of a score less the mean of the others, with the
        mean of their slopes. So `level` is that of the mean probability in all cells, as
        `averaged_scores` has it: at -4 and v = 4 this is .010, where .018 is asked. Otherwise a
        vote that is mostly noise would take a rare class for a common one. Not with "information".
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
        Posterior means of l - c, under the prior over cells; 0 where they are not asked for. With
        second moments, of classes, cells count by their weights times (1 + pi v / 8)^-1/2, with v
        as in `typical`: scores are then those of which probabilities, averaged in every cell, have
        the mean score.
    slopes : ndarray (m, C, d)
        The same of w - a.
    moment : ndarray (m, C, 1 + r, 1 + r) or (0, 0, 0, 0)
        "second": second moments of (l - c, L^-1 (w - a)); of classes with the covariances within
        cells alone: means in the cells differ by what their variances make up for. "kept":
        covariances within cells times the precision of the prior, the part of a move of the centre
        that the posterior mean keeps; with it levels are about their means in the cells.
        "information": that of the centre, (m, C, 1 + d, 1 + d), and `level` and `slopes` are its
        score. With a posterior N(u, V) of (l - c, w - a) in a cell, whose prior is N(0, K), these
        are K^-1 (K - V) K^-1 and K^-1 u, averaged over cells by their weights (Louis, JRSS B 44,
        1982, less his last term, so that steps do not overshoot, as of real targets). Of levels u
        is the mean to the next order: by the mode, rare events are expected too often.
    typical : ndarray (m, C, 2)
        With second moments. Of classes, of the variance v in a cell of the score at a row of
        independent columns of this size: means over cells of v, as of levels, and of
        (1 + pi v / 8)^-1/2, by which MacKay ("The evidence framework applied to classification
        networks", Neural Computation 4(5), 1992) averages probabilities. Of counts, the mean over
        cells of the logarithm of the mean rate at typical rows, less the score of `level` and
        `slopes` at the mean row, see `_log_rates`; and 1.
    effects : ndarray (3, S, C)
        With second moments, of the effects v of subgroups: their mean, the mean of v^2, and that of
        v (l - c).
    """
    m, C, (d, r) = rows.n_tasks, rows.n_outputs, root.shape
    kappa, phi, tau = (np.array(grid, dtype=float) for grid in grids)
    shape = len(kappa), len(phi), len(tau)
    level = np.array(np.broadcast_to(level, (m, C)), dtype=float)
    slopes = np.array(np.broadcast_to(slopes, (C, d)), dtype=float)
    along = np.sum(slopes**2) / C  # of the centre, at typical rows
    flat = PROBIT * against_others(C) * (rows.kind != POISSON and size is not None)
    size = np.broadcast_to(float(rows.kind != POISSON) if size is None else size, (m, d))
    root = np.array(root, dtype=float, order="C")
    grids = kappa, phi, 0.5 * np.log(phi) * (rows.kind == POISSON), tau**2, flat, along
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
        E, one, w, second, of_rows, outside = found
        evidence[tasks] = E
        if asked == 4:
            of_level[tasks] = one
            of_slopes[tasks], moment[tasks] = chunk.information(back, w, second, outside)
            continue
        if asked == 2:
            share = of_rows[..., 1]
            one, w, second = one / share, w / share[..., None], second / share[..., None, None]
            outside, of_rows[..., 0] = outside / share.mean(axis=1), of_rows[..., 0] / share
            if rows.kind != POISSON:
                means = np.concatenate([one[..., None], w], axis=2)
                second += means[..., None] * means[:, :, None]
            t, at = chunk.places_of
            first, square = w[t, :, at], second[t, :, 1 + at, 1 + at]
            effects[:, chunk.subgroups] = first, square, second[t, :, 0, 1 + at]
        if asked:
            of_level[tasks], typical[tasks] = one, of_rows
            of_slopes[tasks] = row_products(chunk.wide(w), root.T)
        if asked > 1:
            moment[tasks] = chunk.wide_moments(second, outside)
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
    square = (C, 1 + E, 1 + E) if asked > 1 else (C, 0)
    out = dict(evidence=weights.shape, level=(C,), slopes=(C, E), moment=square, typical=(C, 2))
    out = {name: np.zeros((m, *shape)) for name, shape in out.items()} | {"outside": np.zeros(m)}
    # From `TARGET` to `THERE`.
    shared = [np.repeat(x[:, None], C, axis=1) for x in (weight, np.ones(len(weight)))]
    given = np.stack([targets, shared[0], about, begin, shared[1]], axis=2)
    nested = len(chunk.subgroups) > 0 or None
    kind = rows.kind == POISSON or None, rows.kind == SOFTMAX or None, nested
    for lanes in chunk.blocks():
        blocks, n, k, T = len(lanes.task), lanes.n, lanes.k, weights.shape[-1]
        work, own = _places(C, n, k, T, weights.shape, asked, nested)
        (first, work), (each, places) = _laid_out(work), _laid_out(own)
        Z = np.zeros((first + blocks * each, LANES))
        of_blocks = Z[first:].reshape(blocks, each, LANES)
        part = {
            name: of_blocks[:, at : at + math.prod(own[name])].reshape(blocks, *own[name], LANES)
            for name, at in zip(own, places, strict=True)
        }
        part["A"][:] = lanes.of_columns(chunk.A)
        part["given"][:] = lanes.of_rows(given)
        part["of_tasks"][:, :4] = lanes.of_tasks(of_tasks)
        part["of_tasks"][:, 4] = (part["of_tasks"][:, 1] == 0.0).any(axis=1, keepdims=True)
        part["of_tasks"][:, 5:] = lanes.of_tasks(level[tasks])
        part["squares"][:] = lanes.of_tasks(squares[:, :k, :k])
        if nested:
            part["nested"][:] = lanes.of_tasks(of_subgroups[:, :k])
        sizes = blocks, C, n, k, first, each, places[-1] - places[5]
        _posterior(
            *kind, Z, lanes.heads, sizes, work, places, grids, weights.ravel(), ratio, tol, asked
        )
        for name, into in out.items():
            lanes.put(part[name], into)
    return tuple(out.values())


# ----------------------------------------------------------------------------------- kernels
# All numbers of a kernel are rows of one array Z, (rows, W), with tasks last, and it works on those
# of all tasks at once: a name is the place of the first of its rows. What one lane gets does not
# depend on the others. Of a class, numbers of rows are 10 n rows: what is given, where rows are and
# their working responses less `BASE`, what slopes leave of these two, and means and curvatures at
# the scores. Rows k and k + 1 of the factor B (k + 2, k) are slopes of a level of one, and of
# responses.
TARGET, WEIGHT, BASE, SCORE, THERE, RESPONSE, LEFT_OF_ONE, LEFT, MEAN, CURVE = range(10)


def _places(C, n, k, T, cells, asked, nested):
    """Shapes of rows by name: of all blocks, in which a kernel works, and of every block."""
    work = {
        "R": (C, 10, n),
        "B": (C, k + 2, k),
        "x": (n, k),
        "turned": (n, k) if nested else (0,),
        "inverse": (k, k),
        "cov": (k, k),
        "V": (2, n),
        "near": (2, k),
        "q": (C, 3),
        "sums": (C, 6),
        "delta": (T, C),
        "f": (n,),
        "logs": (C,),
        "step": (C,),
        "P": (T,),
        "share": (T,),
        "E": (T,),
        "buffer": (4,),
    }
    square = (C, 1 + k, 1 + k) if asked > 1 else (C, 0)
    given = {
        "A": (n, k),
        "given": (C, 5, n),
        "of_tasks": (5 + C,),
        "nested": (k,) if nested else (0,),
    }
    given["squares"] = (k, k) if asked == 2 else (0, 0)
    out = {"level": (C,), "slopes": (C, k), "moment": square, "typical": (C, 2), "outside": ()}
    return work, given | out | {"evidence": cells}


def _laid_out(shapes):
    """How many rows these are, and where each of them begins."""
    ends = np.cumsum([math.prod(shape) for shape in shapes.values()]).tolist()
    return ends[-1], (0, *ends[:-1])


@inner
def _pool(Z, first, last, heads, b):
    """Sums over the lanes of every task, in all of them, of these rows."""
    if heads.shape[1] > 0:
        for i in range(first, last):
            pooled(Z, i, heads, b)


@inner
def _means(counts, several, Z, R, C, n):
    """Means of rows at their scores."""
    for i in range(R, R + n):
        top = row(Z, i + SCORE * n)
        if counts is not None:
            set_row(Z, i + MEAN * n, exp(smaller(larger(top, -FAR), FAR)))
        elif several is None:
            e = exp(larger(smaller(top, 0.0 - top), -700.0))
            set_row(Z, i + MEAN * n, chosen(top, 1.0, e) / (1.0 + e))
        else:
            total = wide(0.0)
            for c in range(1, C):
                top = larger(top, row(Z, i + (10 * c + SCORE) * n))
            for c in range(C):
                e = exp(larger(row(Z, i + (10 * c + SCORE) * n) - top, -700.0))
                total = total + e
                set_row(Z, i + (10 * c + MEAN) * n, e)
            for c in range(C):
                j = i + (10 * c + MEAN) * n
                set_row(Z, j, row(Z, j) / total)


@inner
def _expand(counts, Z, r, phi, part, live, n):
    """Curvatures and working responses less `BASE`, in lanes that are on their way."""
    bend = 1.0 if counts is None else 0.0
    for i in range(r, r + n):
        p = row(Z, i + MEAN * n)
        curve = larger(p * (1.0 - bend * p) / part, _LEAST)
        z = row(Z, i + SCORE * n) + (row(Z, i) - p) / curve - row(Z, i + BASE * n)
        h = row(Z, i + WEIGHT * n) * curve / phi
        set_row(Z, i + CURVE * n, chosen(live, h, row(Z, i + CURVE * n)))
        set_row(Z, i + RESPONSE * n, chosen(live, z, row(Z, i + RESPONSE * n)))


@inner
def _solve(Z, A, r, kappa, B, f, q, heads, b, n, k):
    """Expansion of one class, for which the factor of I + kappa A' H A, (k, k), is in B with
    inverses of its diagonal. Its rows after that become slopes kappa A' V^-1 v of v, a level of one
    and responses, and their scores are taken from these. In q are q_11, q_1r and q_rr; in place of
    `LEFT`, at last, are scores without levels.

    -> log determinants
    """
    for i in range(k + 2):
        v, step = A + i, k
        if i >= k:
            v, step = r + (THERE + i - k) * n, 1
        for p in range(n):
            set_row(Z, f + p, kappa * row(Z, r + CURVE * n + p) * row(Z, v + p * step))
        for j in range(i + 1 if i < k else k):
            set_row(Z, B + i * k + j, dot(Z, f, 1, A + j, k, n))
    _pool(Z, B, B + (k + 2) * k, heads, b)
    logs = wide(0.0)
    for i in range(k + 2):
        at = B + i * k
        for j in range(i if i < k else k):
            total = row(Z, at + j) - dot(Z, at, 1, B + j * k, 1, j)
            set_row(Z, at + j, total * row(Z, B + j * k + j))
        if i < k:
            total = row(Z, at + i) + 1.0 - dot(Z, at, 1, at, 1, i)
            logs = logs + log(total)
            set_row(Z, at + i, 1.0 / sqrt(total))
    one, both, square = wide(0.0), wide(0.0), wide(0.0)
    u = B + k * k
    for j in range(2 * k):  # of both, from the last on
        i = k - 1 - j // 2
        at = u + (j % 2) * k + i
        total = row(Z, at) - dot(Z, at + 1, 1, B + (i + 1) * k + i, k, k - 1 - i)
        set_row(Z, at, total * row(Z, B + i * k + i))
    for p in range(n):
        i = r + p
        h, z = row(Z, i + CURVE * n), row(Z, i + RESPONSE * n)
        e = row(Z, i + THERE * n) - dot(Z, A + p * k, 1, u, 1, k)
        left = z - dot(Z, A + p * k, 1, u + k, 1, k)
        one = one + h * row(Z, i + THERE * n) * e
        both = both + h * e * z
        square = square + h * z * left
        set_row(Z, i + LEFT_OF_ONE * n, e)
        set_row(Z, i + LEFT * n, row(Z, i + BASE * n) + z - left)
    set_row(Z, q, one)
    set_row(Z, q + 1, both)
    set_row(Z, q + 2, square)
    _pool(Z, q, q + 3, heads, b)
    set_row(Z, q, larger(row(Z, q), 0.0))
    return logs


@inner
def _farther(flat, t2, known):
    """What the level of a mean probability is times that of a typical task less."""
    return sqrt(1.0 + flat * (t2 + known)) - 1.0


@inner
def _over_levels(Z, part, t2, flat, known, prior, log_weights, first, logs, q, delta, P, share, C):
    """Means of levels by tau, log weights of tau in P, (T,), and weights that add up to one."""
    for j in range(len(t2)):
        total = wide(log_weights[first + j])
        for c in range(C):
            about = row(Z, prior + c) * _farther(flat, t2[j], known)
            one, mean = row(Z, q + 3 * c), row(Z, q + 3 * c + 1)
            both, apart = mean - about * one, 1.0 + t2[j] * one
            d, square = t2[j] * both / apart, row(Z, q + 3 * c + 2) - about * (mean + both)
            v = part * (row(Z, logs + c) + log(apart)) + square - both * d
            total = total - 0.5 * v
            set_row(Z, delta + j * C + c, about + d)
        set_row(Z, P + j, total)
    total = _weights(Z, P, share, len(t2))[1]
    for j in range(share, share + len(t2)):
        set_row(Z, j, row(Z, j) / total)


@inner
def _weights(Z, P, share, T):
    """exp(P - top) in `share`. -> their largest and their sum"""
    top, total = row(Z, P), wide(0.0)
    for j in range(1, T):
        top = larger(top, row(Z, P + j))
    for j in range(T):
        e = exp(larger(row(Z, P + j) - top, -700.0))
        total = total + e
        set_row(Z, share + j, e)
    return top, total


@inner
def _move(several, Z, R, delta, share, live, step, C, n, T):
    """Scores to the mode of the expansion, in lanes on their way. -> how far the farthest moves"""
    moved, by_class = wide(0.0), 1.0 / C
    for c in range(C):
        set_row(Z, step + c, dot(Z, share, 1, delta + c, C, T))
    for i in range(R, R + n):
        mean = wide(0.0)
        for c in range(C):
            j = i + 10 * c * n
            way = row(Z, j + LEFT * n) + row(Z, step + c) * row(Z, j + LEFT_OF_ONE * n)
            set_row(Z, j + MEAN * n, way)  # which are new in the next step
            mean = mean + by_class * way
        for c in range(C):
            j = i + 10 * c * n
            way = row(Z, j + MEAN * n) - row(Z, j + SCORE * n)
            if several is not None:
                way = way - mean
            moved = larger(moved, larger(way, 0.0 - way) * row(Z, j + THERE * n))
            way = smaller(larger(way, -_REACH), _REACH)
            set_row(Z, j + SCORE * n, row(Z, j + SCORE * n) + way * live)
    return moved


@inner
def _losses(counts, several, Z, R, phi, delta, C, n):
    """What is convex in the negative log likelihood with levels delta (C,)."""
    total = wide(0.0)
    for i in range(R, R + n):
        s = row(Z, i + LEFT * n) + row(Z, delta) * row(Z, i + LEFT_OF_ONE * n)
        if counts is not None:
            near = smaller(larger(s, -FAR), FAR)
            f = exp(near) * (1.0 + s - near)
        elif several is None:
            f = larger(s, 0.0) + log(1.0 + exp(larger(smaller(s, 0.0 - s), -700.0)))
        else:
            top, e = s, wide(0.0)
            for c in range(C):
                j = i + 10 * c * n
                s = row(Z, j + LEFT * n) + row(Z, delta + c) * row(Z, j + LEFT_OF_ONE * n)
                set_row(Z, j + MEAN * n, s)
                top = larger(top, s)
            for c in range(C):
                e = e + exp(larger(row(Z, i + (10 * c + MEAN) * n) - top, -700.0))
            f = top + log(e)
        total = total + row(Z, i + WEIGHT * n) * f
    return total / phi


@inner
def _beyond(counts, Z, A, r, B, x, V, sums, kappa, part, phi, level, many, few, heads, b, n, k):
    """What the evidence of one class is more than its expansion, but for `_losses`.

    To the next order after Laplace's approximation, from third and fourth derivatives of the log
    likelihood of rows, and the covariance V of their scores: sum f4 V_ii^2 / 8 + sum f3 f3 (V_ii
    V_ij V_jj / 8 + V_ij^3 / 12). Where the level is known, covariances are products of the rows of
    x (n, k). Third derivatives and variances are in V (2, n).

    In `sums` are what a level of variance v is off its mode by, over v, as in `_log_rates`: the
    first number, and v times the second; then what multiplies delta and delta^2 in the rest of the
    log likelihood less its expansion.
    """
    root = np.sqrt(kappa)
    for i in range(n):
        at = x + i * k
        for j in range(k):
            total = root * row(Z, A + i * k + j) - dot(Z, B + j * k, 1, at, 1, j)
            set_row(Z, at + j, total * row(Z, B + j * k + j))
    first, second, along, square = wide(0.0), wide(0.0), wide(0.0), wide(0.0)
    of_left, total = wide(0.0), wide(0.0)
    for i in range(n):
        j, at = r + i, x + i * k
        weight, e, h = row(Z, j + WEIGHT * n), row(Z, j + LEFT_OF_ONE * n), row(Z, j + CURVE * n)
        left, p = row(Z, j + LEFT * n), row(Z, j + MEAN * n)
        f = row(Z, j + RESPONSE * n) + row(Z, j + BASE * n) - left
        y = weight * row(Z, j) / phi
        of_left = of_left + (y * left + 0.5 * h * f * f)
        along = along + (y * e - h * f * e)
        square = square + 0.5 * h * e * e
        own = dot(Z, at, 1, at, 1, k)
        v = (own + level * e * e) / part
        if counts is not None:
            third = 0.0 - weight * p / phi
            fourth = third
        else:
            w = p * (1.0 - p)
            third = 0.0 - weight * w * (1.0 - 2.0 * p)
            fourth = 0.0 - weight * w * (1.0 - 6.0 * w)
        set_row(Z, V + i, third)
        set_row(Z, V + n + i, v)
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
            w = level * e * row(Z, r + LEFT_OF_ONE * n + j)
            w = (dot(Z, at, 1, x + j * k, 1, k) + w) / part
            near = near + row(Z, V + j) * w * (0.25 * v * row(Z, V + n + j) + w * w / 6.0)
        total = total + chosen(many, 0.0, third * near)
    set_row(Z, sums, first)
    set_row(Z, sums + 1, second)
    set_row(Z, sums + 2, along)
    set_row(Z, sums + 3, square)
    set_row(Z, sums + 4, of_left)
    set_row(Z, sums + 5, total)
    _pool(Z, sums, sums + 6, heads, b)
    return row(Z, sums + 4) + part * smaller(larger(row(Z, sums + 5), -_MOST_BEYOND), _MOST_BEYOND)


@inner
def _covariance(Z, kappa, B, inverse, cov, k):
    """Covariance of slopes where the level is known, kappa (I + kappa A' H A)^-1."""
    for i in range(k):
        at = inverse + i * k + i
        set_row(Z, at, row(Z, B + i * k + i))
        for j in range(i + 1, k):
            total = dot(Z, B + j * k + i, 1, at, k, j - i)
            set_row(Z, inverse + j * k + i, (0.0 - total) * row(Z, B + j * k + j))
    for i in range(k):
        for j in range(i + 1):
            at = inverse + i * k
            total = kappa * dot(Z, at + i, k, at + j, k, k - i)
            set_row(Z, cov + i * k + j, total)
            set_row(Z, cov + j * k + i, total)


@inner
def _log_rates(Z, x, r, u, near, count, delta, q, t2, known, moved, sums, heads, b, out, n, k):
    """Logarithms of mean rates about the mean row, to the second order about the mode, (T,).

    A score s at the mode, of variance v, has E exp(s) = exp(s + v / 2 + E ds), where the mean is
    off the mode by ds = -sum_i h_i V_i V_ii / 2, for the third derivatives -h_i of the rows, and
    their covariances V_i with s and variances V_ii. So the mean rate of a task that determines its
    level is that of its events. Rows about the mean row add what their variance is more.
    """
    mean, near = near, near + k
    for j in range(k):
        set_row(Z, near + j, dot(Z, x + j, k, r + THERE * n, 1, n) / count)
    _pool(Z, near, near + k, heads, b)
    variance = dot(Z, near, 1, near, 1, k)
    of_1, of_r = dot(Z, mean, 1, u, 1, k), dot(Z, mean, 1, u + k, 1, k)
    for i in range(4):
        set_row(Z, sums + i, wide(0.0))
    for i in range(n):
        at = x + i * k
        h, e = row(Z, r + CURVE * n + i), row(Z, r + LEFT_OF_ONE * n + i)
        joint, own = h * dot(Z, at, 1, near, 1, k), dot(Z, at, 1, at, 1, k)
        _plus(Z, sums, joint * own)
        _plus(Z, sums + 1, h * e * own)
        _plus(Z, sums + 2, joint * e * e)
        _plus(Z, sums + 3, h * e * e * e)
    _pool(Z, sums, sums + 4, heads, b)
    off = 1.0 - of_1
    for j in range(len(t2)):
        spread = t2[j] / (1.0 + t2[j] * row(Z, q))
        less = row(Z, sums) + spread * (off * row(Z, sums + 1) + row(Z, sums + 2))
        less = less + spread * spread * off * row(Z, sums + 3)
        bend = larger(variance + off * off * spread - less, 0.0)
        score = row(Z, delta + j) * off + of_r
        set_row(Z, out + j, score + 0.5 * (bend + known + (moved - 1.0) * spread))


@inner
def _add(
    counts,
    Z,
    P,
    delta,
    q,
    t2,
    flat,
    known,
    prior,
    kappa,
    u,
    cov,
    sums,
    asked,
    level,
    w,
    moment,
    C,
    k,
):
    """Sums over tau with weights P of one class: levels, slopes and, if asked for, moments."""
    total, one, square, held, shared = wide(0.0), wide(0.0), wide(0.0), wide(0.0), wide(0.0)
    score, of_level = wide(0.0), wide(0.0)
    for j in range(len(t2)):
        p, d, apart = row(Z, P + j), row(Z, delta + j * C), 1.0 + t2[j] * row(Z, q)
        total = total + p
        one = one + p * d
        about = row(Z, prior) * _farther(flat, t2[j], known)
        of_level = of_level + p * (d - about)
        shared = shared + p / apart
        bend = (row(Z, sums) + row(Z, sums + 1) * t2[j] / apart) / apart
        score = score + kappa * p * (d / t2[j] + bend)
        held = held + p * t2[j] / apart
        square = square + p * (d * d + t2[j] / apart)
    of_level = of_level if asked == 3 else one
    _plus(Z, level, score if asked == 4 else of_level)
    for i in range(k):
        _plus(Z, w + i, total * row(Z, u + k + i) - one * row(Z, u + i))
    if asked < 2:
        return
    of_rest, of_r, near, own = total, 1.0, square, square
    if asked > 2:
        of_rest, of_r, one, near, own = total / kappa, 0.0, 0.0 * one, held / kappa, shared
    elif counts is None:
        of_r, one, near, own = 0.0, 0.0 * one, held, held
    _plus(Z, moment, kappa * row(Z, q) * shared if asked == 4 else own)
    for i in range(k):
        r, v, at = row(Z, u + k + i) * of_r, row(Z, u + i), moment + (1 + i) * (1 + k)
        _plus(Z, moment + 1 + i, one * r - near * v)
        _plus(Z, at, one * r - own * v)
        for j in range(k):
            both = r * row(Z, u + j) + v * row(Z, u + k + j)
            f = of_rest * (row(Z, cov + i * k + j) + r * row(Z, u + k + j)) - one * both
            _plus(Z, at + 1 + j, f + near * v * row(Z, u + j))


@inner
def _plus(Z, i, value):
    set_row(Z, i, row(Z, i) + value)


@inner
def _stretch(Z, x, count, some, longer, k):
    """Rows of x (count, k), where columns of which are `some` (k,) are longer, by so much."""
    for i in range(count * k):
        set_row(Z, x + i, row(Z, x + i) * (1.0 + row(Z, some + i % k) * longer))


@inner
def _fade(Z, x, count, faded):
    """So many rows, times one."""
    for i in range(x, x + count):
        set_row(Z, i, row(Z, i) * faded)


@njit
def _posterior(
    counts, several, nested, Z, heads, sizes, work, own, grids, log_weights, ratio, tol, asked
):
    # What is None is not compiled: `counts`, `several` classes, and `nested` subgroups.
    blocks, C, n, k, begin, each, n_out = sizes
    R, B, x, turned, inverse, cov, V, near, q, sums, delta, f, logs, step, P, share, E, buffer = (
        work
    )
    kappa, phi, of_phi, t2, flat, along = grids
    part, T = 1.0 if C == 1 else (C - 1.0) / C, len(t2)
    lower = 0.0 if counts is None else 0.5
    for b in range(blocks):
        A, given, of_tasks, some, squares, level, slopes, moment, typical, outside, evidence = own
        at = begin + b * each
        A, given, of_tasks, some, squares = (
            at + A,
            at + given,
            at + of_tasks,
            at + some,
            at + squares,
        )
        level, slopes, moment = at + level, at + slopes, at + moment
        typical, outside, evidence = at + typical, at + outside, at + evidence
        count, many, constant = row(Z, of_tasks), row(Z, of_tasks + 1), row(Z, of_tasks + 2)
        reach, few = row(Z, of_tasks + 3), Z[of_tasks + 4, 0]
        top, total = wide(-1e300), wide(0.0)
        for g in range(len(phi)):
            for c in range(C):
                for i in range(5 * n):
                    set_row(Z, R + 10 * c * n + i, row(Z, given + 5 * c * n + i))
            for a in range(len(kappa)):
                K, live, longer = kappa[a], wide(1.0), np.sqrt(ratio / kappa[a]) - 1.0
                if nested is not None:
                    for i in range(n * k):
                        set_row(Z, turned + i, row(Z, at + own[0] + i))
                    _stretch(Z, turned, n, some, longer, k)
                    A = turned
                for c in range(C):
                    for i in range(n):
                        base = row(Z, given + (5 * c + BASE) * n + i) - K * lower * reach
                        set_row(Z, R + (10 * c + BASE) * n + i, base)
                first = (a * len(phi) + g) * T
                for turn in range(_MOST_STEPS):
                    _means(counts, several, Z, R, C, n)
                    for c in range(C):
                        r = R + 10 * c * n
                        _expand(counts, Z, r, phi[g], part, live, n)
                        of = B + c * (k + 2) * k, f, q + 3 * c, heads, b, n, k
                        set_row(Z, logs + c, _solve(Z, A, r, K, *of))
                    of = flat, K * reach + along, of_tasks + 5, log_weights, first, logs, q, delta
                    _over_levels(Z, part, t2, *of, P, share, C)
                    moved = _move(several, Z, R, delta, share, live, step, C, n, T)
                    set_row(Z, buffer, larger(moved - tol, 0.0))
                    _pool(Z, buffer, buffer + 1, heads, b)
                    live = chosen(row(Z, buffer), live, 0.0)
                    set_row(Z, buffer, live)
                    going = 0.0
                    for t in range(LANES):
                        going += Z[buffer, t]
                    if going == 0.0:
                        break
                _means(counts, several, Z, R, C, n)
                beyond = constant / phi[g] - of_phi[g] * count
                for c in range(C):
                    spread = wide(0.0)
                    for j in range(T):
                        apart = 1.0 + t2[j] * row(Z, q + 3 * c)
                        spread = spread + row(Z, share + j) * t2[j] / apart
                    of = R + 10 * c * n, B + c * (k + 2) * k, x, V, sums + 6 * c, K, part, phi[g]
                    known = spread, many, few, heads, b, n, k
                    beyond = beyond + _beyond(counts, Z, A, *of, *known)
                for j in range(T):
                    set_row(Z, E + j, _losses(counts, several, Z, R, phi[g], delta + j * C, C, n))
                _pool(Z, E, E + T, heads, b)
                for j in range(T):
                    v = row(Z, P + j) + beyond - row(Z, E + j)
                    for c in range(C):
                        d, i = row(Z, delta + j * C + c), sums + 6 * c
                        v = v + (row(Z, i + 2) + row(Z, i + 3) * d) * d
                    set_row(Z, P + j, v)
                    set_row(Z, evidence + first + j, v - log_weights[first + j])
                if asked == 0:
                    continue
                most, by = _weights(Z, P, share, T)
                now = exp(larger(smaller(most - top, 0.0), -700.0))
                before = exp(larger(smaller(top - most, 0.0), -700.0))
                top = larger(top, most)
                total = total * before + by * now
                if asked == 4:  # of what is divided by the variance of slopes
                    now = now / K
                _fade(Z, share, T, now)
                _fade(Z, level, n_out, before)
                if asked != 2:
                    _plus(Z, outside, by * now)
                for c in range(C):
                    r, u, i = R + 10 * c * n, B + (c * (k + 2) + k) * k, q + 3 * c
                    if asked > 1:
                        _covariance(Z, K, u - k * k, inverse, cov, k)
                    if nested is not None:
                        _stretch(Z, u, 2, some, longer, k)
                        if asked > 1:
                            _stretch(Z, cov, k, some, longer, k)
                            for j in range(k):
                                _fade(Z, cov + j * k, k, 1.0 + row(Z, some + j) * longer)
                    # Of the scores of typical rows, apart from levels; and what levels add.
                    rest, spread = reach, wide(1.0)
                    if asked == 2:
                        for j in range(k):
                            rest = rest - row(Z, squares + j * (k + 1))
                        rest = K * larger(rest, 0.0)
                        for j in range(k):
                            s = squares + j * k
                            rest = rest + dot(Z, s, 1, cov + j * k, 1, k)
                            spread = spread + row(Z, u + j) * dot(Z, s, 1, u, 1, k)
                        if counts is not None:
                            for j in range(k):
                                mean = dot(Z, at + own[0] + j, k, r + THERE * n, 1, n)
                                mean = mean / larger(count, 1.0)
                                if nested is not None:  # rates are those without effects
                                    mean = mean * (1.0 - row(Z, some + j))
                                set_row(Z, near + j, mean)
                            _pool(Z, near, near + k, heads, b)
                            of = near, larger(count, 1.0), delta, i, t2, rest, spread, buffer
                            _log_rates(Z, x, r, u, *of, heads, b, E, n, k)
                    for j in range(T):
                        p = row(Z, share + j)
                        if asked == 2:
                            if counts is not None:
                                v = row(Z, E + j) - K * lower * reach
                            else:
                                v = rest + spread * t2[j] / (1.0 + t2[j] * row(Z, i))
                                p = p / sqrt(1.0 + PROBIT * v)
                            _plus(Z, typical + 2 * c, p * v)
                            _plus(Z, typical + 2 * c + 1, p)
                            _plus(Z, outside, K / C * p)
                        set_row(Z, P + j, p)
                    known = (
                        flat,
                        K * reach + along,
                        of_tasks + 5 + c,
                        K,
                        u,
                        cov,
                        sums + 6 * c,
                        asked,
                    )
                    into = level + c, slopes + c * k, moment + c * (1 + k) * (1 + k)
                    _add(counts, Z, P, delta + c, i, t2, *known, *into, C, k)
        if asked > 0:
            _fade(Z, level, n_out, 1.0 / total)
