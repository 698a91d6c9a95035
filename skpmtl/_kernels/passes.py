"""One pass over the rows of all tasks: residuals, local intercepts, gradients.

Rows are sorted by task. With ``shared`` the table holds row numbers of an X that all tasks share;
otherwise table row p is X[p] and ``rows`` is an empty array. ``scale[k]`` multiplies the loss of
task k (1 / n_k or 1), in which row p counts ``weights[p]`` times. The intercept of a task is not a
variable of the solver: every pass puts it at its optimum given the weights, which is why it is
exact, costs no iteration and makes every residual dual feasible.
"""

import numpy as np

from .._runtime.jit import njit
from .linalg import mass_of
from .losses import other_class, poisson_loss


@njit
def scores(X, rows, shared, offsets, W, out):
    """out[p] = x_p' w_k for every row p of every task k.

    Several rows at a time would spare loads of w, but then the processor no longer fetches a
    large table ahead, which costs three times as much.
    """
    d = X.shape[1]
    for k in range(W.shape[0]):
        for p in range(offsets[k], offsets[k + 1]):
            i = rows[p] if shared else p
            s = 0.0
            for j in range(d):
                s += X[i, j] * W[k, j]
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
        lo, hi = offsets[k], offsets[k + 1]
        for j in range(d):
            out[k, j] = 0.0
        odd = lo + (hi - lo) % 2
        for p in range(lo, odd):
            i = rows[p] if shared else p
            s = scale[k] * r[p]
            for j in range(d):
                out[k, j] = s * X[i, j]
        for p in range(odd, hi, 2):  # two rows at a time load and store `out` half as often
            i, o = (rows[p], rows[p + 1]) if shared else (p, p + 1)
            s, t = scale[k] * r[p], scale[k] * r[p + 1]
            for j in range(d):
                out[k, j] += s * X[i, j] + t * X[o, j]


@njit
def column_moments(X, offsets, counts, total, dof, mean, square):
    """Added to zeros: means of rows that count so much, and sums of squares about them over dof."""
    for k in range(mean.shape[0]):
        m, s = mean[k], square[k]
        for p in range(offsets[k], offsets[k + 1]):
            a = counts[p] / total[k]
            for j in range(X.shape[1]):
                m[j] += a * X[p, j]
        for p in range(offsets[k], offsets[k + 1]):
            a = counts[p] / dof[k]
            for j in range(X.shape[1]):
                s[j] += a * (X[p, j] - m[j]) ** 2


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
def squared_residuals(z, y, offsets, scale, centre, r, b, weights):
    """r = weights (y - z - b) with b the mean residual of each task (0 without ``centre``).

    Returns sum_k scale_k / 2 sum_p r_p (y - z - b)_p."""
    value = 0.0
    for k in range(offsets.shape[0] - 1):
        lo, hi = offsets[k], offsets[k + 1]
        b[k] = 0.0
        for p in range(lo, hi):
            r[p] = y[p] - z[p]
        mass = mass_of(lo, hi - lo, weights)
        for _ in range(2 if centre else 0):  # again for what rounding left of a large mean
            mean = 0.0
            for p in range(lo, hi):
                mean += weights[p] * r[p]
            mean /= mass
            b[k] += mean
            for p in range(lo, hi):
                r[p] -= mean
        total = 0.0
        for p in range(lo, hi):
            total += weights[p] * r[p] * r[p]
        for p in range(lo, hi):
            r[p] *= weights[p]
        value += 0.5 * scale[k] * total
    return value


@njit
def centre_scores(z, offsets, weights, centre):
    """z <- weights (z - its mean over the task), in place; the mean is 0 without ``centre``."""
    for k in range(offsets.shape[0] - 1):
        lo, hi = offsets[k], offsets[k + 1]
        mean, mass = 0.0, mass_of(lo, hi - lo, weights)
        for p in range(lo, hi):
            mean += weights[p] * z[p]
        mean = mean / mass if centre else 0.0
        for p in range(lo, hi):
            z[p] = weights[p] * (z[p] - mean)


@njit
def logistic_residuals(z, y, offsets, scale, centre, r, b, weights):
    """r_p = minus the derivative of the loss of row p at z_p + b_k; b_k solves sum_p r_p = 0.

    For y in {-1, 1} r_p is weights_p y_p / (1 + exp(y_p (z_p + b_k))). Labels may be spread, alike
    in a task (`skpmtl.tables.targets.class_targets`): with |y| < 1 the other class has
    h = (1 - |y|) / 2.

    ``b`` holds the starting intercepts and receives the new ones: safeguarded Newton steps
    on a monotone function of one variable. Returns the sum over tasks of scale_k times their loss.
    """
    value = 0.0
    for k in range(offsets.shape[0] - 1):
        lo, hi = offsets[k], offsets[k + 1]
        shift = b[k]
        low, high = -np.inf, np.inf
        reach, size = 4.0, abs(y[lo])
        unit, h = 1.0 / size, 0.5 - 0.5 * size
        for _ in range(100 if centre else 1):
            slope = 0.0
            total = 0.0
            for p in range(lo, hi):
                s = unit * y[p]
                r[p] = s * (other_class(s * (z[p] + shift)) - h)
            for p in range(lo, hi):
                q = unit * y[p] * r[p] + h
                total += weights[p] * r[p]
                slope += weights[p] * (q * (1.0 - q))
            step = shift
            if centre and abs(total) > 1e-13 * (hi - lo):
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
                # Of features far from zero the gradient shows what is left of the sum.
                left = total / slope if centre and slope > abs(total) else 0.0
                for p in range(lo, hi if left != 0 else lo):
                    q = unit * y[p] * r[p] + h
                    r[p] -= left * q * (1.0 - q)
                shift += left
                break
            shift = step
        b[k] = shift
        total = 0.0
        for p in range(lo, hi):
            s = unit * y[p]
            q, t = s * r[p] + h, s * (z[p] + shift)  # q = 1 / (1 + exp(t))
            total -= weights[p] * ((np.log1p(-q) if q < 0.5 else np.log(q) + t) - h * t)
        for p in range(lo, hi):
            r[p] *= weights[p]
        value += scale[k] * total
    return value


@njit
def poisson_residuals(z, y, offsets, scale, centre, r, b, weights):
    """r = weights (y - exp(z + b)) with exp(b) = sum of weights y / sum of weights exp(z).

    Returns the sum over tasks of scale_k times half of their deviance."""
    value = 0.0
    for k in range(offsets.shape[0] - 1):
        lo, hi = offsets[k], offsets[k + 1]
        shift = 0.0
        if centre:
            top, events, mass = -np.inf, 0.0, 0.0
            for p in range(lo, hi):
                top = max(top, z[p])
            for p in range(lo, hi):
                events += weights[p] * y[p]
                mass += weights[p] * np.exp(z[p] - top)
            shift = np.log(events / mass) - top
        b[k] = shift
        total, left, means = 0.0, 0.0, 0.0
        for p in range(lo, hi):
            r[p] = weights[p] * (y[p] - np.exp(z[p] + shift))
        for p in range(lo, hi):
            w = weights[p]
            mean = y[p] - r[p] / w
            total += w * poisson_loss(y[p], mean, z[p] + shift)
            left += r[p]
            means += w * mean
        # Of features far from zero the gradient shows what rounding left of the sum.
        for p in range(lo, hi if centre else lo):
            r[p] -= left / means * weights[p] * np.exp(z[p] + shift)
        value += scale[k] * total
    return value


@njit
def multinomial_residuals(z, y, offsets, n_classes, scale, centre, r, b, weights):
    """r = minus the derivatives of the softmax losses at z + b; b solves sum r = 0 in every class.

    There is an entry for every class and row of a task, class after class; ``offsets`` and ``b``
    have one for every task and class, y holds what the class has of the row, and ``weights`` are
    repeated for every class. r is multiplied by them. Newton steps from
    the ``b`` that is given, halved where the loss of the task rises. Returns the sum over tasks of
    scale_k times their loss.
    """
    C = n_classes
    value = 0.0
    g, step, old = np.zeros(C), np.zeros(C), np.zeros(C)
    H = np.zeros((C, C))
    for k in range(offsets.shape[0] // C):
        lo, n = offsets[k * C], offsets[k * C + 1] - offsets[k * C]
        last, size, reach, longest = np.inf, 1.0, 4.0, 0.0
        for trial in range(1000):
            total = 0.0
            for c in range(C):
                g[c] = 0.0
                for o in range(C):
                    H[c, o] = 0.0
            for i in range(n):
                top, mass, own = -np.inf, 0.0, 0.0
                for c in range(C):
                    s = z[lo + c * n + i] + b[k * C + c]
                    top = max(top, s)
                    own += y[lo + c * n + i] * s
                for c in range(C):
                    r[lo + c * n + i] = np.exp(z[lo + c * n + i] + b[k * C + c] - top)
                for c in range(C):
                    mass += r[lo + c * n + i]
                w = weights[lo + i]
                total += w * (np.log(mass) + top - own)
                for c in range(C):
                    p = lo + c * n + i
                    r[p] /= mass
                for c in range(C if centre else 0):
                    a = w * r[lo + c * n + i]
                    g[c] += w * y[lo + c * n + i] - a
                    H[c, c] += a
                    for o in range(c + 1):
                        H[c, o] -= a * r[lo + o * n + i]
            if not centre:
                break
            worst = 0.0
            for c in range(C):
                worst = max(worst, abs(g[c]))
            done = worst <= 1e-13 * n or trial == 999
            if total > last + 1e-13 * abs(last) and not done and size * longest > 1e-3:
                size *= 0.5
                reach = 4.0
                for c in range(C):
                    b[k * C + c] = old[c] + size * step[c]
                continue
            last = total
            # The scores may all move together: that direction gets a curvature of its own.
            spare = 1e-300
            for c in range(C):
                spare += H[c, c] / C
            for c in range(C):
                for o in range(c + 1):
                    H[c, o] += spare
                H[c, c] += 1e-13 * n  # the slopes of rows far apart vanish
                step[c] = g[c]
            for c in range(C):  # Cholesky factor, and the right side through it
                for o in range(c + 1):
                    a = H[c, o]
                    for j in range(o):
                        a -= H[c, j] * H[o, j]
                    H[c, o] = max(a, 1e-14 * n) ** 0.5 if o == c else a / H[o, o]
                for j in range(c):
                    step[c] -= H[c, j] * step[j]
                step[c] /= H[c, c]
            longest = 0.0
            for c in range(C - 1, -1, -1):
                for j in range(c + 1, C):
                    step[c] -= H[j, c] * step[j]
                step[c] /= H[c, c]
                longest = max(longest, abs(step[c]))
            size, reach = (1.0, 4.0) if longest <= reach else (reach / longest, 2.0 * reach)
            for c in range(C):
                old[c] = b[k * C + c]
                b[k * C + c] += size * step[c]
            if done:
                # Of features far from zero the gradient shows what is left of the sum.
                for i in range(n):
                    middle = 0.0
                    for c in range(C):
                        middle += r[lo + c * n + i] * step[c]
                    for c in range(C):
                        p = lo + c * n + i
                        r[p] += r[p] * size * (step[c] - middle)
                break
        for p in range(lo, lo + C * n):
            r[p] = weights[p] * (y[p] - r[p])
        value += scale[k * C] * total
    return value
