"""Steps of Douglas-Rachford splitting that know the curvature of every task.

A resolvent is a pair of rho and a function ``step(W, S, V)`` that returns
(H_k + rho I)^-1 (v_k + rho (w_k - s_k)) of all tasks, with V minus the gradient at W; both may be
overwritten. For a quadratic loss that is its proximal operator at 2 W - S, less W; V need not be
known then. For another loss H_k is the Hessian at some point, which is renewed from time to time:
where the steps vanish does not depend on it.
"""

import numpy as np

from .._runtime.threads import run_blocks
from .grams import SMALL, RowGrams, grams, invert, products

_SHORT = 128  # rows or columns up to which the matrices of many tasks are inverted


def narrower(loss, room):
    """Whichever of "features" and "rows" matrices of all tasks to keep; None: neither.

    They are d x d or n_k x n_k and take no more than `room` numbers.
    """
    d, sizes = loss.shape[1], loss.table.sizes
    by_features, by_rows = loss.shape[0] * d * d, int(sizes @ sizes)
    if min(by_features, by_rows // 2) > room:
        return None
    few, shared = sizes.max() <= _SHORT, loss._shared and loss.repeats == 1
    if loss.table.is_sparse:
        return "rows" if by_rows < by_features and (few or loss.quadratic) else None
    large = d > _SHORT or by_features > SMALL
    if by_rows < by_features and (large or shared or not loss.quadratic):
        return "rows" if few or (loss.quadratic if shared else by_rows <= SMALL) else None
    # Inverses of larger matrices cost more than the iterations that they save.
    if shared or by_features > room or (d > _SHORT and by_features > SMALL):
        return None
    return "features"


def room_beside(loss):
    """Numbers that matrices of all tasks may take: as many as their rows, or few."""
    X = loss.table.X
    stored = X.nnz if loss.table.is_sparse else loss.table.n_rows // loss.repeats * loss.shape[1]
    return max(SMALL, stored)


def squared(loss, share):
    """The resolvent of a SquaredLoss; None where its matrices are too dear, and for zero X."""
    form = narrower(loss, room_beside(loss))
    if form is None:
        return None
    if form == "rows":
        return _squared_by_rows(loss, share)
    settings = loss.scale, loss.fit_intercept, loss.weights
    G, g, _ = grams(loss.table.X, loss.y, loss.offsets, *settings)
    return by_features(G, g, loss.ridge, share)


def by_features(G, g, ridge, share):
    """The resolvent of 1/2 w' G_k w - g_k' w + ridge / 2 ||w||^2; changes G."""
    rho = _add_balance(G, ridge, share)
    if rho is None:
        return None

    def step(W, S, V):
        out, b = np.empty(g.shape), 2.0 * W
        b -= S
        b *= rho
        b += g
        products(G, b, out)
        out -= W
        return out

    return rho, step


class Step(float):
    """In place of a share: the step rho itself, where the penalty determines it."""


class Fraction(float):
    """In place of a share: rho as this fraction of the mean curvature."""


def _balance(trace, square, size, share, lowest=-1.0):
    """Step rho of splitting for these curvatures and this penalty; None if all curvatures are zero.

    ``trace`` and ``square`` are the sums over all ``size`` curvatures and over their squares. With
    mean a and mean weighted with itself b, rho = a (b / a)^e: the more is penalised, the fewer
    directions are in use, and these are those of large curvature. e = .8 log10(share / .05),
    between `lowest` and 1, with ``share`` that of alpha in the smallest one that leaves nothing;
    found on 60 random problems of 20-60 tasks, where it saves a tenth of the time on average and
    two thirds at most.
    """
    if not trace > 0:
        return None
    if isinstance(share, Step):
        return float(share)
    mean = trace / size
    if isinstance(share, Fraction):
        return mean * float(share)
    weight = float(np.clip(0.8 * np.log10(20.0 * share), lowest, 1.0))
    return mean * (square / trace / mean) ** weight


def _add_balance(G, ridge, *share):
    """G_k <- (G_k + (ridge + rho) I)^-1 -> rho"""
    m, d = G.shape[:2]
    rho = _balance(float(np.einsum("kjj->", G)), float(np.vdot(G, G)), m * d, *share)
    if rho is None:
        return None
    rho += ridge
    G[:, np.arange(d), np.arange(d)] += ridge + rho
    invert(G)
    return rho


def _squared_by_rows(loss, share):
    """By n_k x n_k matrices: (s X'X + t)^-1 (s X'y + q) is
    q / t + X' (X X' + t / s)^-1 (y - X q / t)."""
    matrices = RowGrams(loss)
    size = loss.shape[0] * loss.shape[1]
    rho = _balance(matrices.trace, matrices.square, size, share)
    if rho is None:
        return None
    rho += loss.ridge
    t = rho + loss.ridge
    matrices.invert(t / loss.scale)

    def step(W, S, V):
        Q = 2.0 * W
        Q -= S
        Q *= rho / t
        out = matrices.product(Q, 1.0)
        out += Q
        out -= W
        return out

    return rho, step


def curved(loss, share, W, floor, lean):
    """The resolvent of a loss of labels with its Hessians at W; None where `squared` has none.

    The slopes q of the rows are raised to (1 - floor) q + floor b, b their bound: with floor 1 the
    H_k bound every Hessian. `lean`: matrices may take no more room than W.
    """
    share = share, 0.0  # below the mean curvature steps go too far where slopes change
    form = narrower(loss, W.size if lean else room_beside(loss))
    if form is None:
        return None
    q = loss.slopes(W)
    q *= 1.0 - floor
    q += loss.steepest * floor
    if loss.weights is not None:
        q *= loss.weights
    roots, ridge = np.sqrt(q), loss.ridge

    def rows(first, last):
        """q^1/2 (x - their mean weighted with q) of tasks."""
        ends = loss.offsets[first : last + 1]
        part, starts = slice(ends[0], ends[-1]), ends[:-1] - ends[0]
        Z = loss.rows(first, last) * roots[part, None]
        if loss.fit_intercept:
            means = np.add.reduceat(Z * roots[part, None], starts, axis=0)
            means /= np.add.reduceat(q[part], starts)[:, None]
            Z -= np.repeat(means, np.diff(ends), axis=0) * roots[part, None]
        return Z

    if form == "features":
        G = np.empty((*loss.shape, loss.shape[1]))

        def block(first, last):
            ends, tasks = loss.offsets[first : last + 1], slice(first, last)
            y = loss.y[ends[0] : ends[-1]]
            G[tasks] = grams(rows(first, last), y, ends - ends[0], loss.scale[tasks], False)[0]

        run_blocks(block, loss.near_blocks)
        rho = _add_balance(G, ridge, *share)
        if rho is None:
            return None

        def solve(B, out):
            products(G, B, out)

    else:
        matrices, against = RowGrams(loss, rows, ready=True), np.full(loss.shape[0], -1.0)
        rho = _balance(matrices.trace, matrices.square, W.size, *share)
        if rho is None:
            return None
        rho += ridge
        t = rho + ridge
        matrices.invert(t / loss.scale)

        def inside(z, first, last):
            matrices.weigh(z, roots, first, last)
            return 0.0, z

        def solve(B, out):
            B /= t
            loss.through(B, inside, against, out)
            out += B

    def step(W, S, V):
        W -= S
        W *= rho
        W += V
        solve(W, V)
        return V

    return rho, step
