"""One pass over the rows of all tasks: residuals, local intercepts, gradients.

Rows are sorted by task. With ``shared`` the table holds row numbers of an X that all
tasks share; otherwise table row p is X[p] and ``rows`` is an empty array. ``scale[k]``
multiplies the loss of task k (1 / n_k or 1). The intercept of a task is not a variable
of the solver: every pass puts it at its optimum given the weights, which is why it is
exact, costs no iteration and makes every residual dual feasible.
"""

import numpy as np

from .._jit import njit

# Tasks of at least so many numbers are read through slices, which vector instructions and the
# fetching ahead of the processor like better; for smaller ones a slice costs too much.
_SLICED = 512


@njit
def _dots(Z, w, out):
    """out[p] = Z[p] . w, one row after the other.

    Several rows at a time would spare loads of w, but then the processor no longer fetches a
    large table ahead, which costs three times as much.
    """
    d = w.shape[0]
    for p in range(out.shape[0]):
        x = Z[p]
        s = 0.0
        for j in range(d):
            s += x[j] * w[j]
        out[p] = s


@njit
def _weighted_sum(Z, a, r, out):
    """out = a * sum_p r[p] Z[p], two rows at a time: they come from the cache."""
    d, n = out.shape[0], r.shape[0]
    for j in range(d):
        out[j] = 0.0
    for p in range(0, n - 1, 2):
        x, z, b, c = Z[p], Z[p + 1], a * r[p], a * r[p + 1]
        for j in range(d):
            out[j] += b * x[j] + c * z[j]
    if n % 2:
        x, b = Z[n - 1], a * r[n - 1]
        for j in range(d):
            out[j] += b * x[j]


@njit
def scores(X, rows, shared, offsets, W, out):
    """out[p] = x_p' w_k for every row p of every task k."""
    d = X.shape[1]
    for k in range(W.shape[0]):
        w = W[k]
        lo, hi = offsets[k], offsets[k + 1]
        if not shared and (hi - lo) * d >= _SLICED:
            _dots(X[lo:hi], w, out[lo:hi])
            continue
        for p in range(lo, hi):
            x = X[rows[p]] if shared else X[p]
            s = 0.0
            for j in range(d):
                s += x[j] * w[j]
            out[p] = s


@njit
def csr_scores(data, indices, indptr, rows, shared, offsets, W, out):
    """`scores` for CSR rows."""
    for k in range(W.shape[0]):
        w = W[k]
        for p in range(offsets[k], offsets[k + 1]):
            i = rows[p] if shared else p
            s = 0.0
            for q in range(indptr[i], indptr[i + 1]):
                s += data[q] * w[indices[q]]
            out[p] = s


@njit
def combine(X, rows, shared, offsets, r, scale, out):
    """out[k] = scale[k] * sum_p r_p x_p over the rows of task k."""
    d = X.shape[1]
    for k in range(out.shape[0]):
        g = out[k]
        lo, hi = offsets[k], offsets[k + 1]
        if not shared and (hi - lo) * d >= _SLICED:
            _weighted_sum(X[lo:hi], scale[k], r[lo:hi], g)
            continue
        for j in range(d):
            g[j] = 0.0
        for p in range(lo, hi):
            x = X[rows[p]] if shared else X[p]
            a = scale[k] * r[p]
            for j in range(d):
                g[j] += a * x[j]


@njit
def csr_combine(data, indices, indptr, rows, shared, offsets, r, scale, out):
    """`combine` for CSR rows."""
    for k in range(out.shape[0]):
        g = out[k]
        for j in range(g.shape[0]):
            g[j] = 0.0
        for p in range(offsets[k], offsets[k + 1]):
            i = rows[p] if shared else p
            a = scale[k] * r[p]
            for q in range(indptr[i], indptr[i + 1]):
                g[indices[q]] += a * data[q]


@njit
def squared_gradient(X, rows, shared, y, offsets, scale, centre, W, r, out):
    """Fused `scores`, `squared_residuals` and `combine`: a task's rows are read from
    memory once and come from the cache the second time."""
    d = X.shape[1]
    value = 0.0
    for k in range(W.shape[0]):
        w = W[k]
        g = out[k]
        lo, hi = offsets[k], offsets[k + 1]
        mean, total = 0.0, 0.0
        if not shared and (hi - lo) * d >= _SLICED:
            Z, u, v = X[lo:hi], r[lo:hi], y[lo:hi]
            _dots(Z, w, u)
            for p in range(hi - lo):
                u[p] = v[p] - u[p]
            for p in range(hi - lo):
                mean += u[p]
            mean = mean / (hi - lo) if centre else 0.0
            for p in range(hi - lo):
                u[p] -= mean
            for p in range(hi - lo):
                total += u[p] * u[p]
            _weighted_sum(Z, scale[k], u, g)
            value += 0.5 * scale[k] * total
            continue
        for p in range(lo, hi):
            x = X[rows[p]] if shared else X[p]
            s = y[p]
            for j in range(d):
                s -= x[j] * w[j]
            r[p] = s
            mean += s
        mean = mean / (hi - lo) if centre else 0.0
        for j in range(d):
            g[j] = 0.0
        for p in range(lo, hi):
            x = X[rows[p]] if shared else X[p]
            r[p] -= mean
            total += r[p] * r[p]
            a = scale[k] * r[p]
            for j in range(d):
                g[j] += a * x[j]
        value += 0.5 * scale[k] * total
    return value


@njit
def squared_residuals(z, y, offsets, scale, centre, r, b):
    """r = y - z - b with b the mean residual of each task (0 without ``centre``).

    Returns sum_k scale_k / 2 ||r_k||^2."""
    value = 0.0
    for k in range(offsets.shape[0] - 1):
        lo, hi = offsets[k], offsets[k + 1]
        mean = 0.0
        for p in range(lo, hi):
            r[p] = y[p] - z[p]
        for p in range(lo, hi):
            mean += r[p]
        mean = mean / (hi - lo) if centre else 0.0
        b[k] = mean
        total = 0.0
        for p in range(lo, hi):
            r[p] -= mean
        for p in range(lo, hi):
            total += r[p] * r[p]
        value += 0.5 * scale[k] * total
    return value


@njit
def centre_scores(z, offsets):
    """Subtract from z its mean over each task, in place."""
    for k in range(offsets.shape[0] - 1):
        lo, hi = offsets[k], offsets[k + 1]
        mean = 0.0
        for p in range(lo, hi):
            mean += z[p]
        mean /= hi - lo
        for p in range(lo, hi):
            z[p] -= mean


@njit
def logistic_residuals(z, y, offsets, scale, centre, r, b):
    """r_p = y_p / (1 + exp(y_p (z_p + b_k))), y in {-1, 1}; b_k solves sum_p r_p = 0.

    ``b`` holds the starting intercepts and receives the new ones: safeguarded Newton steps
    on a monotone function of one variable. Returns sum_k scale_k sum_p log(1 + exp(-y z)).
    """
    value = 0.0
    for k in range(offsets.shape[0] - 1):
        lo, hi = offsets[k], offsets[k + 1]
        shift = b[k]
        low, high = -np.inf, np.inf
        reach = 4.0
        for _ in range(100 if centre else 1):
            slope = 0.0
            total = 0.0
            for p in range(lo, hi):
                t = y[p] * (z[p] + shift)
                if t > 0:
                    e = np.exp(-t)
                    q = e / (1.0 + e)
                else:
                    q = 1.0 / (1.0 + np.exp(t))
                r[p] = y[p] * q
            for p in range(lo, hi):
                q = y[p] * r[p]
                total += r[p]
                slope += q * (1.0 - q)
            if not centre or abs(total) <= 1e-13 * (hi - lo):
                break
            if total > 0:
                low = shift
            else:
                high = shift
            step = shift + total / slope if slope > 0 else np.inf
            if not (low < step < high) or abs(step - shift) > 8.0:
                if low == -np.inf:
                    step = high - reach
                    reach *= 2.0
                elif high == np.inf:
                    step = low + reach
                    reach *= 2.0
                else:
                    step = 0.5 * (low + high)
            if step == shift:
                break
            shift = step
        b[k] = shift
        total = 0.0
        for p in range(lo, hi):
            t = y[p] * (z[p] + shift)
            total += np.log1p(np.exp(-t)) if t > 0 else np.log1p(np.exp(t)) - t
        value += scale[k] * total
    return value
