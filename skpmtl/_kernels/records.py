"""Gradient steps of all tasks on clipped gradients of single records; dense rows.

The gradient of a record of a linear model is r (x, 1)' with r the derivative of its loss by
its scores, so that its norm is |r| |(x, 1)|: it is clipped by scaling r, and no gradient of a
record is ever stored. Models are (n_outputs, n_features + 1) with the intercept last, or
(n_outputs, n_features) without one; ``loss`` and y are as in `skpmtl._kernels.losses`.
"""

import numpy as np

from .._runtime.jit import njit
from .._runtime.registers import chosen, larger, log, row, set_row
from .losses import residuals

_LEAST = 2.0**-1022  # a normal number; below it counts as such
# Rounding may leave a row a few ulp above the bound it was scaled to; this margin covers it.
MARGIN = 1e-12
_LONGEST = (1.0 - MARGIN) ** 2  # square of a record that is not shortened


@njit
def record_norms(X, intercept, out):
    """out[i] = |(x_i, 1)|, or |x_i| without intercept; squares neither overflow nor vanish."""
    for i in range(X.shape[0]):
        largest = 1.0 if intercept else 0.0
        for j in range(X.shape[1]):
            largest = max(largest, abs(float(X[i, j])))
        total = (1.0 / largest) ** 2 if intercept else 0.0
        if largest > 0:
            for j in range(X.shape[1]):
                total += (float(X[i, j]) / largest) ** 2
        out[i] = largest * total**0.5


@njit
def octave_sums(X, rows, shared, offsets, pick, weights, before, lines, unit, out):
    """out[a] = sum over the records of task pick[a] of weights[p] clip(z_p, 1).

    z_p = (log |x_p| - before) unit, and 0 where x_p is; a record that is not finite counts as
    zero. Rows are as those of `clipped_sum`.

    Parameters
    ----------
    before : (B, 32)
        With the features in the first d places.
    lines : (B, 32)
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
            for b in range(lines.shape[0]):
                size = row(lines, b)
                z = (log(larger(size, _LEAST)) - row(before, b)) * unit
                set_row(lines, b, chosen(size, z, 0.0))
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
def clipped_sum(
    X,
    rows,
    shared,
    y,
    norms,
    loss,
    intercept,
    clip_norm,
    first,
    last,
    stride,
    mask,
    W,
    z,
    G,
    weights,
):
    """G = sum of clip(gradient_p, clip_norm) over the table rows p = first, first + stride, ...

    below `last`; a gradient that is not finite counts as zero.

    Parameters
    ----------
    X : (n, d); rows : int64; shared : bool
        Table row p is X[rows[p]] when `shared`, else X[p], and `rows` is not read.
    y : (n_rows,)
        Targets of the table rows.
    norms : (n,)
        `record_norms` of X.
    clip_norm : float
        Infinity does not clip.
    mask : (last - first,) of uint8, or empty
        Rows with a 0 are left out; empty takes all.
    W : (n_outputs, d + intercept)
    z : (1, n_outputs)
        Work space.
    G : (n_outputs, d + intercept)
        Result.
    weights : (n_rows,)
        From 0 to 1. They multiply what was clipped already: a record adds `clip_norm` at most,
        whatever its weight is, so that sums with weights have the sensitivity of those without.
    """
    C, d = W.shape[0], X.shape[1]
    limit = clip_norm * (1.0 - MARGIN)
    for c in range(C):
        for j in range(W.shape[1]):
            G[c, j] = 0.0
    for p in range(first, last, stride):
        if mask.shape[0] > 0 and mask[p - first] == 0:
            continue
        i = rows[p] if shared else p
        x = X[i]
        for c in range(C):
            w = W[c]
            s = 0.0
            for j in range(d):
                s += x[j] * w[j]
            z[0, c] = s + w[d] if intercept else s
        residuals(z, y, p, loss)
        largest = 0.0
        finite = True
        for c in range(C):
            if not np.isfinite(z[0, c]):
                finite = False
            largest = max(largest, abs(z[0, c]))
        if not finite or largest == 0.0:
            continue
        square = 0.0
        for c in range(C):
            square += (z[0, c] / largest) ** 2
        norm = largest * square**0.5 * norms[i]
        if not np.isfinite(norm):
            continue
        shrink = limit / norm if norm > limit else 1.0
        for c in range(C):
            r = weights[p] * (shrink * z[0, c])
            g = G[c]
            for j in range(d):
                g[j] += r * x[j]
            if intercept:
                g[d] += r


@njit
def inner_steps(
    X,
    rows,
    shared,
    offsets,
    y,
    norms,
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
    batch. The batch is all n_k rows with B = n_k; or, with n_batches[k] > 1, the rows lo + b,
    lo + b + n_batches[k], ... with b = (begun + t) mod n_batches[k] and B their number; or, with
    a `mask`, the marked rows with the constant B = batch_size.

    Parameters
    ----------
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
    W = np.empty((C, size))
    G = np.empty((C, size))
    z = np.empty((1, C))
    private = noise.shape[0] > 0
    everybody = mask[:0]
    for a in range(pick.shape[0]):
        k = pick[a]
        lo, hi = offsets[k], offsets[k + 1]
        n = hi - lo
        phi = start[a if start.shape[0] > 1 else 0]
        for c in range(C):
            for j in range(size):
                W[c, j] = phi[c, j]
        for t in range(n_steps):
            first, stride, marks = lo, 1, everybody
            divisor = float(n)
            if mask.shape[0] > 0:
                begin = mask_ends[a] + t * n
                marks = mask[begin : begin + n]
                divisor = batch_size
            elif n_batches[k] > 1:
                stride = n_batches[k]
                first = lo + (begun + t) % stride
                divisor = float((hi - first + stride - 1) // stride)
            clipped_sum(
                X,
                rows,
                shared,
                y,
                norms,
                loss,
                intercept,
                clip_norm,
                first,
                hi,
                stride,
                marks,
                W,
                z,
                G,
                weights,
            )
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
