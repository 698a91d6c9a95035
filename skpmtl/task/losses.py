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
from functools import partial
from types import SimpleNamespace

import numpy as np

from .._runtime.jit import njit
from .._runtime.traced import (
    WIDE,
    chosen,
    dot,
    exp,
    flat,
    held,
    larger,
    largest,
    log,
    loop,
    parts,
    pool,
    pooled,
    smaller,
    sqrt,
    traced,
    when,
)
from ..tables.table import FAR, row_products
from .lanes import ROWS, Chunk
from .mixture import PROBIT, against_others
from .nested import Subgroups

LOGISTIC, POISSON, SOFTMAX = 0, 1, 2
_LEAST = 1e-6  # curvature of a row
_REACH = 3.0  # how far the score of a row moves in a step: beyond it the expansion is another
_MOST_STEPS = 25
_MANY = 64.0  # rows of a task, from which pairs of them say little beyond Laplace's approximation
_MEANS, _SECOND, _KEPT, _INFORMATION = range(1, 5)
_MOMENTS = {
    None: 0,
    "means": _MEANS,
    "second": _SECOND,
    "kept": _KEPT,
    "information": _INFORMATION,
}
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
        second moments, of classes with a `size`, the weight of a cell is multiplied by its factor
        f = (1 + pi v / 8)^-1/2, with v as in `typical`: the mean level times the mean of f is then
        the mean over cells of levels times f.
    slopes : ndarray (m, C, d)
        The same of w - a.
    moment : ndarray (m, C, 1 + r, 1 + r) or (0, 0, 0, 0)
        "second": second moments of (l - c, L^-1 (w - a)); of classes with a `size` with the
        covariances within cells alone: means in the cells differ by what their variances make up
        for. "kept": covariances within cells times the precision of the prior, the part of a move
        of the centre that the posterior mean keeps; with it levels are about their means in the
        cells.
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
    width = 1 + (d if asked == _INFORMATION else r)
    moment = np.zeros((m, C, width, width) if asked > _MEANS else (0, 0, 0, 0))
    back = np.linalg.pinv(root) if asked == _INFORMATION else root
    effects = np.zeros((3, rows.n_subgroups.sum(), C))
    for chunk in Chunk.all(rows, root):
        found = _of_chunk(rows, chunk, root, level, slopes, size, grids, weights, tol, asked, ratio)
        tasks = chunk.tasks
        evidence[tasks] = found.evidence
        if not asked:
            continue
        one, w, second, outside = found.level, found.slopes, found.moment, found.outside
        if asked == _INFORMATION:
            of_level[tasks] = one
            of_slopes[tasks], moment[tasks] = chunk.information(back, w, second, outside)
            continue
        if asked == _SECOND:
            typical[tasks] = found.typical
            if flat:
                share = found.typical[..., 1]
                one, w, second = one / share, w / share[..., None], second / share[..., None, None]
                outside = outside / share.mean(axis=1)
                typical[tasks, :, 0] /= share
                means = np.concatenate([one[..., None], w], axis=2)
                second += means[..., None] * means[:, :, None]
            t, at = chunk.places_of
            first, square = w[t, :, at], second[t, :, 1 + at, 1 + at]
            effects[:, chunk.subgroups] = first, square, second[t, :, 0, 1 + at]
        of_level[tasks], of_slopes[tasks] = one, row_products(chunk.wide(w), root.T)
        if asked > _MEANS:
            moment[tasks] = chunk.wide_moments(second, outside)
    return evidence, of_level, of_slopes, moment, typical, effects


def _of_chunk(rows, chunk, root, level, slopes, size, grids, weights, tol, asked, ratio):
    """By name what is found, in the coordinates of the chunk: `evidence` (m, ...), `level` (m, C),
    `slopes` (m, C, E), `moment` (m, C, 1 + E, 1 + E), `typical` (m, C, 2), and `outside` (m,),
    variances where tasks have no rows."""
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
    ones = np.ones_like(targets)
    fixed = np.stack([targets, weight[:, None] * ones, begin, ones], axis=1)
    of_tasks = np.column_stack([chunk.sizes, many, constant, reach, level[tasks]])
    squares = chunk.squares(root, size) if asked == _SECOND else np.zeros((m, 0, 0))
    nested, of_subgroups = len(chunk.subgroups) > 0 or None, chunk.of_subgroups()
    out = _found(C, E, weights.shape, (1 + E) * (asked > _MEANS))
    out = {name: np.zeros((m, *out[name])) for name in (out if asked else ["evidence"])}
    kind = rows.kind == POISSON or None, rows.kind == SOFTMAX or None, nested
    for lanes in chunk.blocks:
        blocks, n, k = len(lanes.task), lanes.n, lanes.k
        widths = (1 + k) * (asked > _MEANS), k * (asked == _SECOND), k * (nested is not None)
        work = np.zeros((_size(_of_work(C, n, k, weights.shape[-1])), WIDE))
        own = squares[:, : widths[1], : widths[1]].reshape(m, -1), of_subgroups[:, : widths[2]]
        own = lanes.of_tasks(np.hstack([*own, of_tasks]))
        given = lanes.of_rows(about), lanes.of_columns(chunk.A), own
        given = np.concatenate([x.reshape(blocks, -1, WIDE) for x in given], axis=1)
        shapes = _found(C, k, weights.shape, widths[0])
        found = np.zeros((blocks, _size(shapes), WIDE))
        if lanes.fixed is None:
            lanes.fixed = lanes.of_rows(fixed).reshape(blocks, -1, WIDE)
        arguments = work, lanes.fixed, given, found, lanes.heads, (blocks, C, n, k, *widths), grids
        _posterior(kind, *arguments, weights.ravel(), ratio, tol, asked)
        lanes.put(found, shapes, out)
    return SimpleNamespace(**out)


def _size(shapes):
    return sum(math.prod(shape) for shape in shapes.values())


# ----------------------------------------------------------------------------------- kernels
# Of tasks side by side, `s` has all numbers by name: rows of 16, one for each task, along the axes
# of `_fixed`, `_given`, `_found` and `_of_work`. What one task gets does not depend on the others.
def _fixed(C, n):
    """What no model changes of the rows of a block."""
    return dict.fromkeys(("target", "weight", "begin", "there"), (C, n))


def _given(C, n, k, of_squares, of_nested):
    """What is given of a block besides what is fixed."""
    given = {"about": (C, n), "A": (n, k)}
    given |= {"squares": (of_squares, of_squares), "nested": (of_nested,)}
    return given | dict.fromkeys(("count", "many", "constant", "reach"), ()) | {"prior": (C,)}


def _found(C, k, cells, square):
    """What is found; `square` is 0 where no moments are asked for."""
    found = {"level": (C,), "slopes": (C, k), "moment": (C, square, square), "typical": (C, 2)}
    return found | {"outside": (), "evidence": cells}


def _of_work(C, n, k, T):
    """What a kernel keeps of a block. B has the factor (k, k) of a class, with inverses of its
    diagonal, and then slopes of a level of one, and of responses; `left_of_one` and `left` are what
    they leave of the scores of rows."""
    rows = ("base", "score", "response", "left_of_one", "left", "mean", "curve")
    of_class = ("q_11", "q_1r", "q_rr", "log_det", "step")
    of_level = ("off", "off_by_level", "by_delta", "by_square")  # see `_beyond`
    work = dict.fromkeys(rows, (C, n)) | dict.fromkeys((*of_class, *of_level), (C,))
    work |= {"B": (C, k + 2, k), "x": (n, k), "inverse": (k, k), "cov": (k, k), "f": (n,)}
    work |= {"third": (n,), "variance": (n,), "mean_row": (k,), "near": (k,), "turned": (n, k)}
    return work | {"delta": (T, C)} | dict.fromkeys(("P", "share", "own_share", "of_tau"), (T,))


def _means(s):
    """Means of rows at their scores."""
    for i in loop(s.n):
        if s.kind == POISSON:
            s.mean[0, i] = exp(smaller(larger(s.score[0, i], -FAR), FAR))
        elif s.kind == LOGISTIC:
            score = s.score[0, i]
            e = exp(larger(smaller(score, 0.0 - score), -700.0))
            s.mean[0, i] = chosen(score > 0.0, 1.0, e) / (1.0 + e)
        else:
            top, total = held(s.score[0, i]), held(0.0)
            for c in loop(1, s.C):
                top[:] = larger(top, s.score[c, i])
            for c in loop(s.C):
                e = exp(larger(s.score[c, i] - top, -700.0))
                total += e
                s.mean[c, i] = e
            for c in loop(s.C):
                s.mean[c, i] = s.mean[c, i] / total


def _expand(s, c, phi, live):
    """Curvatures and working responses less `base`, in tasks that are on their way."""
    bend = 0.0 if s.kind == POISSON else 1.0
    for i in loop(s.n):
        p = s.mean[c, i]
        curve = larger(p * (1.0 - bend * p) / s.part, _LEAST)
        z = s.score[c, i] + (s.target[c, i] - p) / curve - s.base[c, i]
        s.curve[c, i] = chosen(live > 0.0, s.weight[c, i] * curve / phi, s.curve[c, i])
        s.response[c, i] = chosen(live > 0.0, z, s.response[c, i])


def _solve(s, c, kappa):
    """Expansion of one class, for which I + kappa A' H A is factored, and slopes kappa A' V^-1 v of
    v, a level of one and responses, are taken from their scores. In place of `left`, at last, are
    scores without levels."""
    A, B, k, there, z = s.A, s.B[c], s.k, s.there[c], s.response[c]

    def form(v, into, count):
        for p in loop(s.n):
            s.f[p] = kappa * s.curve[c, p] * v[p]
        for j in loop(count):
            into[j] = dot(s.f, A[:, j])

    for i in loop(k):
        form(A[:, i], B[i], i + 1)
    for i, v in enumerate((there, z)):
        form(v, B[k + i], k)
    s.pool(B)
    log_det = held(0.0)
    for i in loop(k + 2):
        own = B[i]
        for j in loop(chosen(i < k, i, k)):
            own[j] = (own[j] - dot(own[:j], B[j])) * B[j, j]
        for _ in when(i < k):
            total = own[i] + 1.0 - dot(own[:i], own)
            log_det += log(total)
            own[i] = 1.0 / sqrt(total)
    s.log_det[c] = log_det
    slopes = B[k], B[k + 1]
    for j in loop(k):
        i = k - 1 - j
        for u in slopes:
            u[i] = (u[i] - dot(u[i + 1 :], B[i + 1 :, i])) * B[i, i]
    q_11, q_1r, q_rr = held(0.0), held(0.0), held(0.0)
    for i in loop(s.n):
        h, response = s.curve[c, i], z[i]
        e, left = there[i] - dot(A[i], slopes[0]), response - dot(A[i], slopes[1])
        q_11 += h * there[i] * e
        q_1r += h * e * response
        q_rr += h * response * left
        s.left_of_one[c, i] = e
        s.left[c, i] = s.base[c, i] + response - left
    s.q_11[c], s.q_1r[c], s.q_rr[c] = larger(s.sums(q_11), 0.0), s.sums(q_1r), s.sums(q_rr)


def _about(s, c, t2, slopes):
    """What the level of a mean probability is more than that of a typical task."""
    return s.prior[c] * (sqrt(1.0 + s.flat * (t2 + slopes)) - 1.0)


def _over_levels(s, log_weights, slopes):
    """Means of levels by tau, log weights of tau in P, and in `share` weights that add up to 1."""
    for j in loop(s.T):
        t2, log_weight = s.t2[j], held(log_weights[j])
        for c in loop(s.C):
            about, one, mean = _about(s, c, t2, slopes), s.q_11[c], s.q_1r[c]
            both, apart = mean - about * one, 1.0 + t2 * one
            d, square = t2 * both / apart, s.q_rr[c] - about * (mean + both)
            v = s.part * (s.log_det[c] + log(apart)) + square - both * d
            log_weight += -0.5 * v
            s.delta[j, c] = about + d
        s.P[j] = log_weight
    total = _weights(s)[1]
    for j in loop(s.T):
        s.share[j] = s.share[j] / total


def _weights(s):
    """exp(P - top) in `share`. -> their largest and their sum"""
    top, total = held(s.P[0]), held(0.0)
    for j in loop(1, s.T):
        top[:] = larger(top, s.P[j])
    for j in loop(s.T):
        e = exp(larger(s.P[j] - top, -700.0))
        total += e
        s.share[j] = e
    return top, total


def _move(s, live):
    """Scores to the mode of the expansion, in tasks on their way. -> how far the farthest moves"""
    moved = held(0.0)
    for c in loop(s.C):
        s.step[c] = dot(s.share, s.delta[:, c])
    for i in loop(s.n):
        mean = held(0.0)
        for c in loop(s.C):
            way = s.left[c, i] + s.step[c] * s.left_of_one[c, i]
            s.mean[c, i] = way  # which are new in the next step
            mean += s.by_class * way
        for c in loop(s.C):
            way = s.mean[c, i] - s.score[c, i]
            if s.kind == SOFTMAX:
                way = way - mean
            moved[:] = larger(moved, larger(way, 0.0 - way) * s.there[c, i])
            s.score[c, i] = s.score[c, i] + smaller(larger(way, -_REACH), _REACH) * live
    return moved


def _losses(s, j, phi):
    """What is convex in the negative log likelihood with the levels of a tau."""
    total = held(0.0)
    for i in loop(s.n):
        score = s.left[0, i] + s.delta[j, 0] * s.left_of_one[0, i]
        if s.kind == POISSON:
            near = smaller(larger(score, -FAR), FAR)
            f = exp(near) * (1.0 + score - near)
        elif s.kind == LOGISTIC:
            e = exp(larger(smaller(score, 0.0 - score), -700.0))
            f = larger(score, 0.0) + log(1.0 + e)
        else:
            top, e = held(score), held(0.0)
            for c in loop(s.C):
                score = s.left[c, i] + s.delta[j, c] * s.left_of_one[c, i]
                s.mean[c, i] = score
                top[:] = larger(top, score)
            for c in loop(s.C):
                e += exp(larger(s.mean[c, i] - top, -700.0))
            f = top + log(e)
        total += s.weight[0, i] * f
    return total / phi


def _beyond(s, c, kappa, phi, level):
    """What the evidence of one class is more than its expansion, but for `_losses`.

    To the next order after Laplace's approximation, from third and fourth derivatives of the log
    likelihood of rows, and the covariance V of their scores: sum f4 V_ii^2 / 8 + sum f3 f3 (V_ii
    V_ij V_jj / 8 + V_ij^3 / 12). Where the level is known, covariances are products of the rows of
    x (n, k).

    A level of variance v is off its mode by v (`off` + v `off_by_level`), as in `_log_rates`;
    `by_delta` and `by_square` multiply delta and delta^2 in the rest of the log likelihood less its
    expansion.
    """
    k, x, B, root, part = s.k, s.x, s.B[c], sqrt(kappa), s.part
    for i in loop(s.n):
        for j in loop(k):
            x[i, j] = (root * s.A[i, j] - dot(B[j, :j], x[i])) * B[j, j]
    off, off_by_level, by_delta, by_square = held(0.0), held(0.0), held(0.0), held(0.0)
    of_left, total = held(0.0), held(0.0)
    for i in loop(s.n):
        weight, e, h = s.weight[c, i], s.left_of_one[c, i], s.curve[c, i]
        left, p = s.left[c, i], s.mean[c, i]
        f = s.response[c, i] + s.base[c, i] - left
        y = weight * s.target[c, i] / phi
        of_left += y * left + 0.5 * h * f * f
        by_delta += y * e - h * f * e
        by_square += 0.5 * h * e * e
        own = dot(x[i], x[i])
        v = (own + level * e * e) / part
        if s.kind == POISSON:
            third = 0.0 - weight * p / phi
            fourth = third
        else:
            w = p * (1.0 - p)
            third = 0.0 - weight * w * (1.0 - 2.0 * p)
            fourth = 0.0 - weight * w * (1.0 - 6.0 * w)
        s.third[i], s.variance[i] = third, v
        bend = 0.5 * third * e / part
        off += bend * own
        off_by_level += bend * e * e
        # Of many rows, with those of which each is.
        f = third * third * v * v * v * (5.0 / 24.0)
        f = chosen(s.many > 0.0, f / larger(weight, 1e-300), f)
        total += fourth * v * v / 8.0 + f
        for _ in when(s.any_few):
            near = held(0.0)
            for j in loop(i):
                w = (dot(x[i], x[j]) + level * e * s.left_of_one[c, j]) / part
                near += s.third[j] * w * (0.25 * v * s.variance[j] + w * w / 6.0)
            total += chosen(s.many > 0.0, 0.0, third * near)
    s.off[c], s.off_by_level[c] = s.sums(off), s.sums(off_by_level)
    s.by_delta[c], s.by_square[c] = s.sums(by_delta), s.sums(by_square)
    beyond = smaller(larger(s.sums(total), -_MOST_BEYOND), _MOST_BEYOND)
    return s.sums(of_left) + part * beyond


def _covariance(s, c, kappa):
    """Covariance of slopes where the level is known, kappa (I + kappa A' H A)^-1."""
    k, B, inverse = s.k, s.B[c], s.inverse
    for i in loop(k):
        inverse[i, i] = B[i, i]
        for j in loop(i + 1, k):
            inverse[j, i] = (0.0 - dot(B[j, i:j], inverse[i:, i])) * B[j, j]
    for i in loop(k):
        for j in loop(i + 1):
            total = kappa * dot(inverse[i:, i], inverse[i:, j])
            s.cov[i, j] = total
            s.cov[j, i] = total


def _log_rates(s, A, c, slopes, spread_of_one):
    """Logarithms of mean rates about the mean row, to the second order about the mode, by tau.

    A score s at the mode, of variance v, has E exp(s) = exp(s + v / 2 + E ds), where the mean is
    off the mode by ds = -sum_i h_i V_i V_ii / 2, for the third derivatives -h_i of the rows, and
    their covariances V_i with s and variances V_ii. So the mean rate of a task that determines its
    level is that of its events. Rows about the mean row add what their variance is more.
    """
    k, x, mean, near, count = s.k, s.x, s.mean_row, s.near, larger(s.count, 1.0)
    for j in loop(k):
        mean[j] = dot(A[:, j], s.there[c]) / count
        if s.with_subgroups:  # rates are those without effects
            mean[j] = mean[j] * (1.0 - s.nested[j])
        near[j] = dot(x[:, j], s.there[c]) / count
    s.pool(mean)
    s.pool(near)
    variance = dot(near, near)
    of_1, of_r = dot(mean, s.B[c, k]), dot(mean, s.B[c, k + 1])
    known, by_level, by_own, by_both = held(0.0), held(0.0), held(0.0), held(0.0)
    for i in loop(s.n):
        h, e = s.curve[c, i], s.left_of_one[c, i]
        joint, own = h * dot(x[i], near), dot(x[i], x[i])
        known += joint * own
        by_level += h * e * own
        by_own += joint * e * e
        by_both += h * e * e * e
    known, by_level, by_own, by_both = map(s.sums, (known, by_level, by_own, by_both))
    off = 1.0 - of_1
    for j in loop(s.T):
        spread = s.t2[j] / (1.0 + s.t2[j] * s.q_11[c])
        less = known + spread * (off * by_level + by_own) + spread * spread * off * by_both
        bend = larger(variance + off * off * spread - less, 0.0)
        score = s.delta[j, c] * off + of_r
        s.of_tau[j] = score + 0.5 * (bend + slopes + (spread_of_one - 1.0) * spread)


def _add(s, c, kappa, slopes):
    """Sums over tau with weights of a class: levels, slopes and, if asked for, moments."""
    k, (u, z), moment = s.k, (s.B[c, s.k], s.B[c, s.k + 1]), s.moment[c]
    total, one, square, spread, shared = held(0.0), held(0.0), held(0.0), held(0.0), held(0.0)
    score, level = held(0.0), held(0.0)
    for j in loop(s.T):
        p, d, t2, apart = s.own_share[j], s.delta[j, c], s.t2[j], 1.0 + s.t2[j] * s.q_11[c]
        total += p
        one += p * d
        level += p * (d - _about(s, c, t2, slopes))
        shared += p / apart
        bend = (s.off[c] + s.off_by_level[c] * t2 / apart) / apart
        score += kappa * p * (d / larger(t2, 1e-300) + bend)  # both are 0 where levels are held
        spread += p * t2 / apart
        square += p * (d * d + t2 / apart)
    of_level = chosen(s.asked == _INFORMATION, score, chosen(s.asked == _KEPT, level, one))
    s.level[c] = s.level[c] + of_level
    for i in loop(k):
        s.slopes[c, i] = s.slopes[c, i] + (total * z[i] - one * u[i])
    for _ in when(s.asked > _MEANS):
        of_prior = s.asked > _SECOND  # covariances over the variance of slopes
        of_r = chosen(of_prior, 0.0, chosen(s.flat > 0.0, 0.0, 1.0))  # or covariances within cells
        rest, by_one = chosen(of_prior, total / kappa, total), of_r * one
        both = spread + of_r * (square - spread)
        near, own = chosen(of_prior, spread / kappa, both), chosen(of_prior, shared, both)
        known = chosen(s.asked == _INFORMATION, kappa * s.q_11[c] * shared, own)
        moment[0, 0] = moment[0, 0] + known
        for i in loop(k):
            r, v = z[i] * of_r, u[i]
            moment[0, 1 + i] = moment[0, 1 + i] + (by_one * r - near * v)
            moment[1 + i, 0] = moment[1 + i, 0] + (by_one * r - own * v)
            for j in loop(k):
                f = rest * (s.cov[i, j] + r * z[j]) - by_one * (r * u[j] + v * z[j])
                moment[1 + i, 1 + j] = moment[1 + i, 1 + j] + (f + near * v * u[j])


def _typical(s, A, c, kappa):
    """Of the scores of typical rows, apart from levels, and what levels add; and how much cells
    count."""
    k, u, moved = s.k, s.B[c, s.k], kappa * s.lower * s.reach
    known, spread = held(s.reach), held(1.0)
    for j in loop(k):
        known[:] = known - s.squares[j, j]
    known[:] = kappa * larger(known, 0.0)
    for j in loop(k):
        known += dot(s.squares[j], s.cov[j])
        spread += u[j] * dot(s.squares[j], u)
    if s.kind == POISSON:
        _log_rates(s, A, c, known, spread)
    for j in loop(s.T):
        p, t2 = s.share[j], s.t2[j]
        if s.kind == POISSON:
            v = s.of_tau[j] - moved
        else:
            v = known + spread * t2 / (1.0 + t2 * s.q_11[c])
        flatter = p if s.kind == POISSON else p / sqrt(1.0 + PROBIT * v)
        p = chosen(s.flat > 0.0, flatter, p)
        s.typical[c, 0] = s.typical[c, 0] + p * v
        s.typical[c, 1] = s.typical[c, 1] + flatter
        s.outside += kappa / s.C * p
        s.own_share[j] = p


def _stretch(s, x, longer):
    """Rows of x (., k), where columns of subgroups are longer, by so much."""
    for i in loop(x.shape[0]):
        for j in loop(s.k):
            x[i, j] = x[i, j] * (1.0 + s.nested[j] * longer)


def _fade(rows, faded):
    """All of these rows, times one."""
    rows = flat(rows)
    for i in loop(rows.shape[0]):
        rows[i] = rows[i] * faded


def _to_mode(s, kappa, phi, log_weights, tol):
    """Newton's method, on from the scores."""
    live = held(1.0)  # tasks on their way
    for _ in loop(_MOST_STEPS, going=lambda: largest(live) > 0.0):
        _means(s)
        for c in loop(s.C):
            _expand(s, c, phi, live)
            _solve(s, c, kappa)
        _over_levels(s, log_weights, kappa * s.reach + s.along)
        moved = s.sums(larger(_move(s, live) - tol, 0.0))
        live[:] = chosen(moved > 0.0, live, 0.0)


def _evidence(s, kappa, phi, of_phi):
    """Log evidence by tau, with the weights of the prior, in P."""
    _means(s)
    beyond = held(s.constant / phi - of_phi * s.count)
    for c in loop(s.C):
        spread = held(0.0)
        for j in loop(s.T):
            spread += s.share[j] * s.t2[j] / (1.0 + s.t2[j] * s.q_11[c])
        beyond += _beyond(s, c, kappa, phi, spread)
    for j in loop(s.T):
        s.of_tau[j] = _losses(s, j, phi)
    s.pool(s.of_tau)
    for j in loop(s.T):
        v = held(s.P[j] + beyond - s.of_tau[j])
        for c in loop(s.C):
            d = s.delta[j, c]
            v += (s.by_delta[c] + s.by_square[c] * d) * d
        s.P[j] = v


def _of_blocks(arguments):
    # What is None is not compiled: `counts`, `several` classes, and `nested` subgroups.
    (counts, several, nested), work, fixed, given, found, heads, *rest = arguments
    sizes, grids, log_weights, ratio, tol, asked = rest
    blocks, C, n, k, square, *widths = sizes
    kappa, phi, of_phi, t2, flat, along = grids
    K, P, T = kappa.shape[0], phi.shape[0], t2.shape[0]
    C = 1 if several is None else C
    known = dict(n=n, k=k, C=C, T=T, t2=t2, flat=flat, along=along, asked=asked)
    one = LOGISTIC if several is None else SOFTMAX
    known["kind"] = kind = one if counts is None else POISSON
    known |= dict(by_class=1.0 / C, part=1.0 if several is None else (C - 1.0) / C)
    known |= dict(with_subgroups=nested is not None, lower=0.5 * (kind == POISSON))
    known |= vars(parts(work, _of_work(C, n, k, T)))
    for b in loop(blocks):
        own = vars(parts(fixed[b], _fixed(C, n)))
        own |= vars(parts(given[b], _given(C, n, k, *widths)))
        own |= vars(parts(found[b], _found(C, k, (K, P, T), square)))
        s = SimpleNamespace(**known, **own)
        s.pool, s.sums = (partial(f, heads=heads, b=b) for f in (pool, pooled))
        s.any_few = largest(1.0 - s.many) > 0.0
        out, A = (s.level, s.slopes, s.moment, s.typical, s.outside), s.A
        top, total = held(-1e300), held(0.0)
        for g in loop(P):
            for c in loop(C):
                for i in loop(n):
                    s.score[c, i] = s.begin[c, i]
            for a in loop(K):
                size, log_prior = kappa[a], log_weights[(a * P + g) * T :]
                longer = sqrt(ratio / size) - 1.0
                if nested is not None:
                    for i in loop(n):
                        for j in loop(k):
                            s.turned[i, j] = A[i, j]
                    _stretch(s, s.turned, longer)
                    s.A = s.turned
                for c in loop(C):
                    for i in loop(n):
                        s.base[c, i] = s.about[c, i] - size * s.lower * s.reach
                _to_mode(s, size, phi[g], log_prior, tol)
                _evidence(s, size, phi[g], of_phi[g])
                for j in loop(T):
                    s.evidence[a, g, j] = s.P[j] - log_prior[j]
                for _ in when(asked > 0):
                    most, by = _weights(s)
                    now = exp(larger(smaller(most - top, 0.0), -700.0))
                    before = exp(larger(smaller(top - most, 0.0), -700.0))
                    top[:] = larger(top, most)
                    total[:] = total * before + by * now
                    # Of information, what is divided by the variance of slopes.
                    now = chosen(asked == _INFORMATION, now / size, now)
                    _fade(s.share, now)
                    for x in out:
                        _fade(x, before)
                    s.outside += chosen(asked == _SECOND, 0.0, by * now)
                    for c in loop(C):
                        for _ in when(asked > _MEANS):
                            _covariance(s, c, size)
                            if nested is not None:
                                _stretch(s, s.cov, longer)
                                for j in loop(k):
                                    _fade(s.cov[j], 1.0 + s.nested[j] * longer)
                        if nested is not None:
                            _stretch(s, s.B[c, k:], longer)
                        for j in loop(T):
                            s.own_share[j] = s.share[j]
                        for _ in when(asked == _SECOND):
                            _typical(s, A, c, size)
                        _add(s, c, size, size * s.reach + along)
        for _ in when(asked > 0):
            for x in out:
                _fade(x, 1.0 / total)


traced(_of_blocks)


@njit
def _posterior(kind, work, fixed, given, found, heads, sizes, grids, logs, ratio, tol, asked):
    _of_blocks((kind, work, fixed, given, found, heads, sizes, grids, logs, ratio, tol, asked))
