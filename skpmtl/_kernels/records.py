"""Gradient steps of all tasks on clipped gradients of single records; dense rows.

The gradient of a record of a linear model is r z' with r the derivative of its loss by its scores
and z = (x, 1), so that its norm is |r| |z|: it is clipped by scaling r, and no gradient of a record
is ever stored. Models are (n_outputs, n_features + 1) with the intercept last, or
(n_outputs, n_features) without one; ``loss`` and y are as in `skpmtl._kernels.losses`.
"""

import numpy as np

from .._runtime.jit import njit
from .._runtime.traced import chosen, larger, log, loop, traced
from .linalg import gram
from .losses import residuals

_LEAST = 2.0**-1022  # a normal number; below it counts as such
# Rounding may leave a row a few ulp above the bound it was scaled to; this margin covers it.
MARGIN = 1e-12
_LONGEST = (1.0 - MARGIN) ** 2  # square of a record that is not shortened
_SAFE = 1e-200  # least sum of squares whose small parts do not count, if they vanish


@njit
def record_norms(Z, n, out):
    """out[i] = |z_i| of the first n rows; squares neither overflow nor vanish.

    A row that is not finite, or whose length is not, becomes zero: no gradient of it would count.
    """
    for i in range(n):
        z, square, largest = Z[i], 0.0, 0.0
        for j in range(Z.shape[1]):
            square += z[j] * z[j]
        if not _SAFE < square < 1.0 / _SAFE:
            square = 0.0
            for j in range(Z.shape[1]):
                largest = max(largest, abs(z[j]))
            if largest > 0:
                for j in range(Z.shape[1]):
                    square += (z[j] / largest) ** 2
        out[i] = (largest if largest > 0 else 1.0) * square**0.5
        if not np.isfinite(out[i]):
            out[i] = 0.0
            for j in range(Z.shape[1]):
                z[j] = 0.0


@njit
def scaled_rows(X, rows, shared, first, last, scaling, intercept, Z):
    """Z[i] = ((x - middle) factor, 1) of the table rows from `first` on, below `last`.

    Parameters
    ----------
    X : (n, d); rows : int64; shared : bool
        Table row p is X[rows[p]] when `shared`, else X[p], and `rows` is not read.
    scaling : (2, d), or (2, 0) for rows as they are
        Middles and factors.
    intercept : bool
        Without it, there is no 1.
    Z : (>= last - first, d + intercept)
        What is behind these rows stays.
    """
    d = X.shape[1]
    for p in range(first, last):
        x, z = X[rows[p] if shared else p], Z[p - first]
        if scaling.shape[1] > 0:
            for j in range(d):
                z[j] = (x[j] - scaling[0, j]) * scaling[1, j]
        else:
            for j in range(d):
                z[j] = x[j]
        if intercept:
            z[d] = 1.0


def _octaves(arguments):
    lines, before, unit = arguments
    for b in loop(lines.shape[0]):
        z = (log(larger(lines[b], _LEAST)) - before[b]) * unit
        lines[b] = chosen(lines[b] > 0.0, z, 0.0)


traced(_octaves)


@njit
def octave_sums(X, rows, shared, offsets, pick, weights, before, lines, unit, out):
    """out[a] = sum over the records of task pick[a] of weights[p] clip(z_p, 1).

    z_p = (log |x_p| - before) unit, and 0 where x_p is. Whatever a record holds, it adds weights[p]
    at most. Rows are as those of `scaled_rows`.

    Parameters
    ----------
    before : (B, 16)
        With the features in the first d places.
    lines : (B, 16)
        Work space, of zeros, for d features.
    out : (len(pick), d)
    """
    line = lines.reshape(lines.size)
    d = X.shape[1]
    for a in range(pick.shape[0]):
        k = pick[a]
        for j in range(d):
            out[a, j] = 0.0
        for p in range(offsets[k], offsets[k + 1]):
            x = X[rows[p] if shared else p]
            for j in range(d):
                line[j] = abs(x[j])
            _octaves((lines, before, unit))
            square = 0.0
            for j in range(d):
                square += line[j] * line[j]
            if not square < np.inf:
                continue
            factor = weights[p]
            if square > _LONGEST:
                factor *= (1.0 - MARGIN) / square**0.5
            for j in range(d):
                out[a, j] += factor * line[j]


@njit
def clipped_sum(Z, at, y, norms, lo, loss, clip_norm, W, z, G, weights):
    """G = sum of clip(gradient_i, clip_norm) over the rows i of `at`.

    A gradient that is not finite counts as zero.

    Parameters
    ----------
    Z : (n, size)
        Rows of a task, with a 1 at the end where models have an intercept.
    y, weights : (n_rows,)
        Targets and weights of all rows, of which those of the task begin at `lo`. Weights are from
        0 to 1 and multiply what was clipped already: a record adds `clip_norm` at most, whatever
        its weight is, so that sums with weights have the sensitivity of those without.
    norms : (n,)
        `record_norms` of Z.
    clip_norm : float
        Infinity does not clip.
    W : (n_outputs, size)
    z : (1, n_outputs)
        Work space.
    G : (n_outputs, size)
        Result.
    """
    C, size = W.shape
    limit = clip_norm * (1.0 - MARGIN)
    for c in range(C):
        for j in range(size):
            G[c, j] = 0.0
    for i in at:
        x = Z[i]
        for c in range(C):
            w, s = W[c], 0.0
            for j in range(size):
                s += w[j] * x[j]
            z[0, c] = s
        residuals(z, y, lo + i, loss)
        finite, largest, square = True, 0.0, 0.0
        for c in range(C):
            finite = finite and np.isfinite(z[0, c])
            largest = max(largest, abs(z[0, c]))
        for c in range(C):
            square += (z[0, c] / largest) ** 2
        norm = largest * square**0.5 * norms[i] if largest > 0.0 else 0.0
        if not (finite and np.isfinite(norm)):
            continue
        factor = weights[lo + i] * (limit / norm if norm > limit else 1.0)
        for c in range(C):
            g, a = G[c], factor * z[0, c]
            for j in range(size):
                g[j] += a * x[j]


@njit
def scores_of_rows(Z, n, W, out):
    """out[c, i] = w_c' z_i of the first n rows."""
    for c in range(W.shape[0]):
        w = W[c]
        for i in range(n):
            z, s = Z[i], 0.0
            for j in range(w.shape[0]):
                s += w[j] * z[j]
            out[c, i] = s


@njit
def add_products(K, r, s):
    """s + r K for symmetric K (n, n), where s and r (C, n or more)."""
    n = K.shape[0]
    for c in range(r.shape[0]):
        to = s[c]
        for i in range(n):
            row, a = K[i], r[c, i]
            for p in range(n):
                to[p] += a * row[p]


@njit
def products_of_rows(
    X, rows, shared, offsets, weights, scaling, intercept, begin, n_powers, ends, K, largest
):
    """Products of the rows of every task, and its largest eigenvalue as power iteration finds it.

    Parameters
    ----------
    X, rows, shared, offsets, scaling, intercept
        As of `scaled_rows`.
    weights : (n_rows,)
    begin : (d,)
        Where `n_powers` steps of power iteration begin.
    ends : (n_tasks + 1,)
    K : (ends[-1],)
        K[ends[k] : ends[k + 1]] receives Z Z' of task k; zeros for a row that is not finite, or
        whose square is not. Tasks without a place there are left out.
    largest : (n_tasks,)
        Receives the eigenvalue of X' diag(weights) X, of scaled rows without the 1.
    """
    d, most = len(begin), 0
    for k in range(len(largest)):
        if ends[k + 1] > ends[k]:
            most = max(most, offsets[k + 1] - offsets[k])
    Z, norms = np.empty((most, d + intercept)), np.empty(most)
    z, r = np.empty((1, most)), np.empty((1, most))
    for k in range(len(largest)):
        if ends[k + 1] == ends[k]:
            continue
        lo = offsets[k]
        n = offsets[k + 1] - lo
        own = K[ends[k] : ends[k + 1]].reshape(n, n)
        scaled_rows(X, rows, shared, lo, lo + n, scaling, intercept, Z)
        record_norms(Z, n, norms)
        for i in range(n):
            if norms[i] * norms[i] == np.inf:
                Z[i] = 0.0
        gram(Z, n, d, own)
        for i in range(n):
            for p in range(i):
                own[p, i] = own[i, p]
        scores_of_rows(Z, n, begin.reshape(1, d), z)
        square = 0.0  # of the length of the vector whose products with the rows are z
        for j in range(d):
            square += begin[j] * begin[j]
        largest[k] = 0.0
        for _ in range(n_powers):
            if not square > 0.0:
                break
            length, top = square**0.5, 0.0
            for i in range(n):
                r[0, i] = weights[lo + i] * z[0, i] / length
            for i in range(n):
                top += r[0, i] * z[0, i]
            largest[k] = top / length
            z[0, :] = 0.0
            add_products(own, r, z)
            square = 0.0
            for i in range(n):
                square += z[0, i] * r[0, i]
        # Last, since products of short rows would be rounded off beside those of the ones.
        for i in range(n if intercept else 0):
            for p in range(n):
                own[i, p] += Z[i, d] * Z[p, d]


@njit
def row_steps(
    X,
    rows,
    shared,
    offsets,
    y,
    scaling,
    loss,
    intercept,
    pick,
    start,
    n_steps,
    rate,
    ends,
    K,
    update,
    weights,
):
    """`inner_steps` on all rows of tasks that have `products_of_rows`, without bound and noise.

    A step w <- w - Z' r moves the scores Z w by K r, so that steps need no other features than the
    first scores, and the sum of all r.
    """
    C, size = start.shape[1:]
    most = 0
    for k in pick:
        if ends[k + 1] > ends[k]:
            most = max(most, offsets[k + 1] - offsets[k])
    Z, z = np.empty((most, size)), np.empty((1, C))
    s, r, moved = np.empty((C, most)), np.empty((C, most)), np.empty((C, most))
    for a in range(pick.shape[0]):
        k = pick[a]
        if ends[k + 1] == ends[k]:
            continue
        lo = offsets[k]
        n = offsets[k + 1] - lo
        length, own = rate[k] / n, K[ends[k] : ends[k + 1]].reshape(n, n)
        scaled_rows(X, rows, shared, lo, lo + n, scaling, intercept, Z)
        scores_of_rows(Z, n, start[a if start.shape[0] > 1 else 0], s)
        moved[:] = 0.0
        for t in range(n_steps):
            for i in range(n):
                for c in range(C):
                    z[0, c] = s[c, i]
                residuals(z, y, lo + i, loss)
                counts = own[i, i] > 0.0
                for c in range(C):
                    counts = counts and np.isfinite(z[0, c])
                for c in range(C):
                    r[c, i] = -length * (weights[lo + i] * z[0, c]) if counts else 0.0
                    moved[c, i] += r[c, i]
            add_products(own, r, s)
        for c in range(C):
            g = update[a, c]
            for j in range(size):
                g[j] = 0.0
            for i in range(n):
                x, far = Z[i], moved[c, i]
                for j in range(size if far != 0.0 else 0):  # the row may not be finite
                    g[j] += far * x[j]


@njit
def inner_steps(
    X,
    rows,
    shared,
    offsets,
    y,
    scaling,
    loss,
    intercept,
    pick,
    start,
    clip_norm,
    n_steps,
    begun,
    rate,
    batch_size,
    n_batches,
    mask,
    mask_ends,
    noise,
    noise_step,
    shrink,
    update,
    gradients,
    weights,
):
    """Noisy gradient steps of the tasks `pick` from a start; -> what each would send.

    Step t of task k: w <- w - rate[k] / B (S + noise), S the sum of the clipped gradients of a
    batch. The batch is all n_k rows with B = n_k; or, with n_batches[k] > 1, the rows b,
    b + n_batches[k], ... with b = (begun + t) mod n_batches[k] and B their number; or, with
    a `mask`, the marked rows with the constant B = batch_size.

    Parameters
    ----------
    X, rows, shared, scaling
        As of `scaled_rows`; the rows of a task are scaled once for all of its steps.
    pick : (q,) of int64
        Positions of tasks.
    start : (1, n_outputs, size) or (q, n_outputs, size)
        One for all, or one for each of `pick`.
    begun : int
        Steps that a task has taken in earlier visits.
    rate : (n_tasks,)
    mask, mask_ends : uint8, (q + 1,)
        mask[mask_ends[a] : mask_ends[a + 1]] holds n_steps times n_k marks for task pick[a].
    noise : (q, n_steps, n_outputs, size), or empty for no noise
        Whole numbers: noise in steps of the public grid noise_step[k]. S is scaled by shrink[k]
        and rounded to the grid first, so that what a step uses is a release on the grid.
    update : (q, n_outputs, size)
        Receives the last w minus the start.
    gradients : (q, n_steps, n_outputs, size), or empty
        Receives the noisy sums, which are the releases of each task.
    weights : (n_rows,)
        As of `clipped_sum`. B stays the number of rows, whatever they weigh.
    """
    C, size = start.shape[1:]
    most = 0
    for k in pick:
        most = max(most, offsets[k + 1] - offsets[k])
    Z, norms, at = np.empty((most, size)), np.empty(most), np.empty(most, dtype=np.int64)
    W, G, z = np.empty((C, size)), np.empty((C, size)), np.empty((1, C))
    private = noise.shape[0] > 0
    for a in range(pick.shape[0]):
        k = pick[a]
        lo = offsets[k]
        n = offsets[k + 1] - lo
        scaled_rows(X, rows, shared, lo, lo + n, scaling, intercept, Z)
        record_norms(Z, n, norms)
        phi = start[a if start.shape[0] > 1 else 0]
        for c in range(C):
            for j in range(size):
                W[c, j] = phi[c, j]
        for t in range(n_steps):
            first, stride, count = 0, 1, 0
            if n_batches[k] > 1:
                stride = n_batches[k]
                first = (begun + t) % stride
            for i in range(first, n, stride):
                if mask.shape[0] == 0 or mask[mask_ends[a] + t * n + i] != 0:
                    at[count] = i
                    count += 1
            divisor = float(count) if mask.shape[0] == 0 else batch_size
            clipped_sum(Z, at[:count], y, norms, lo, loss, clip_norm, W, z, G, weights)
            if private:
                step = noise_step[k]
                for c in range(C):
                    for j in range(size):
                        whole = np.rint(G[c, j] * shrink[k] / step)
                        G[c, j] = (whole + noise[a, t, c, j]) * step
            length = rate[k] / divisor
            for c in range(C):
                for j in range(size):
                    if gradients.shape[0] > 0:
                        gradients[a, t, c, j] = G[c, j]
                    W[c, j] -= length * G[c, j]
        for c in range(C):
            for j in range(size):
                update[a, c, j] = W[c, j] - phi[c, j]
