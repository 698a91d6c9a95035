"""Products with the rows of one task, for models of several outputs; dense rows or CSR.

A model of the task is flat: (n_outputs, n_features) for dense rows; for CSR rows it lives on the
columns that occur in the task's rows, (n_columns, n_outputs), and ``place`` maps a column to its
position among them. z and r are (n_rows, n_outputs).

Dense rows have None for ``data``, ``indices`` and ``indptr``, and what would read these is not
compiled. Row p of the table is row ``rows[p]`` of X. ``weights`` of rows are ones where all count
the same: None would have every loop compiled once more.
"""

import numpy as np

from .._runtime.jit import njit
from .._runtime.registers import load, splat, store, total
from .linalg import mass_of
from .losses import LOGISTIC, SQUARED


@njit
def count_columns(indices, indptr, rows, offsets, n_features, counts):
    """counts[k] = number of distinct columns in the CSR rows of task k."""
    seen = np.full(n_features, -1, dtype=np.int64)
    for k in range(offsets.shape[0] - 1):
        count = 0
        for p in range(offsets[k], offsets[k + 1]):
            i = rows[p]
            for q in range(indptr[i], indptr[i + 1]):
                if seen[indices[q]] != k:
                    seen[indices[q]] = k
                    count += 1
        counts[k] = count


@njit
def place_columns(indices, indptr, rows, lo, hi, place, columns):
    """Number the columns of a task in order of appearance; -> how many."""
    count = 0
    for p in range(lo, hi):
        i = rows[p]
        for q in range(indptr[i], indptr[i + 1]):
            j = indices[q]
            if place[j] < 0:
                place[j] = count
                columns[count] = j
                count += 1
    return count


@njit
def scores(X, data, indices, indptr, rows, lo, n, place, V, shift, base, z):
    """z = base + shift + rows of the task times V."""
    C = z.shape[1]
    if data is not None:
        for i in range(n):
            r = rows[lo + i]
            for c in range(C):
                z[i, c] = base[i, c] + shift[c]
            for q in range(indptr[r], indptr[r + 1]):
                a = data[q]
                v = V[place[indices[q]] * C : (place[indices[q]] + 1) * C]
                for c in range(C):
                    z[i, c] += a * v[c]
        return
    d = X.shape[1]
    # Two rows and two outputs at a time: every number loaded serves two products.
    for i in range(0, n - 1, 2):
        x0 = X[rows[lo + i]]
        x1 = X[rows[lo + i + 1]]
        for c in range(0, C - 1, 2):
            v0 = V[c * d : (c + 1) * d]
            v1 = V[(c + 1) * d : (c + 2) * d]
            s00, s01, s10, s11 = 0.0, 0.0, 0.0, 0.0
            for j in range(d):
                s00 += x0[j] * v0[j]
                s01 += x0[j] * v1[j]
                s10 += x1[j] * v0[j]
                s11 += x1[j] * v1[j]
            z[i, c] = base[i, c] + shift[c] + s00
            z[i, c + 1] = base[i, c + 1] + shift[c + 1] + s01
            z[i + 1, c] = base[i + 1, c] + shift[c] + s10
            z[i + 1, c + 1] = base[i + 1, c + 1] + shift[c + 1] + s11
        if C % 2:
            c = C - 1
            v0 = V[c * d : (c + 1) * d]
            s00, s10 = 0.0, 0.0
            for j in range(d):
                s00 += x0[j] * v0[j]
                s10 += x1[j] * v0[j]
            z[i, c] = base[i, c] + shift[c] + s00
            z[i + 1, c] = base[i + 1, c] + shift[c] + s10
    if n % 2:
        i = n - 1
        x0 = X[rows[lo + i]]
        for c in range(C):
            v0 = V[c * d : (c + 1) * d]
            s00 = 0.0
            for j in range(d):
                s00 += x0[j] * v0[j]
            z[i, c] = base[i, c] + shift[c] + s00


@njit
def gather(X, data, indices, indptr, rows, lo, n, place, r, size, G):
    """G = sum over the rows of the task of x_i r_i, in the layout of V; `size` numbers of G."""
    C = r.shape[1]
    for j in range(size):
        G[j] = 0.0
    if data is not None:
        for i in range(n):
            p = rows[lo + i]
            for q in range(indptr[p], indptr[p + 1]):
                a = data[q]
                g = G[place[indices[q]] * C : (place[indices[q]] + 1) * C]
                for c in range(C):
                    g[c] += a * r[i, c]
        return
    d = X.shape[1]
    # Four rows at a time: G is loaded and stored a quarter as often.
    for i in range(0, n - 3, 4):
        x0 = X[rows[lo + i]]
        x1 = X[rows[lo + i + 1]]
        x2 = X[rows[lo + i + 2]]
        x3 = X[rows[lo + i + 3]]
        for c in range(C):
            g = G[c * d : (c + 1) * d]
            r0, r1, r2, r3 = r[i, c], r[i + 1, c], r[i + 2, c], r[i + 3, c]
            for j in range(d):
                g[j] += r0 * x0[j] + r1 * x1[j] + r2 * x2[j] + r3 * x3[j]
    for i in range(n - n % 4, n):
        x0 = X[rows[lo + i]]
        for c in range(C):
            g = G[c * d : (c + 1) * d]
            r0 = r[i, c]
            for j in range(d):
                g[j] += r0 * x0[j]


@njit
def feature_means(X, data, indices, indptr, rows, lo, n, place, width, mean, weights, mass):
    """mean = that of the n rows of the task, whose weights have the sum `mass`."""
    for j in range(width):
        mean[j] = 0.0
    for i in range(n):
        p = rows[lo + i]
        share = weights[lo + i] / mass
        if data is not None:
            for q in range(indptr[p], indptr[p + 1]):
                mean[place[indices[q]]] += data[q] * share
        else:
            for j in range(width):
                mean[j] += X[p, j] * share


@njit
def residuals(z, y, lo, n, loss):
    """z <- derivative of the loss of every row with respect to its scores."""
    # Here, and not with the functions of `losses`: the compiler would then arrange `local_steps`
    # otherwise, which costs it a sixth for several classes.
    C = z.shape[1]
    if loss == SQUARED:
        for i in range(n):
            z[i, 0] -= y[lo + i]
    elif loss == LOGISTIC:
        for i in range(n):
            label = y[lo + i]
            t = label * z[i, 0]
            if t > 0:
                e = np.exp(-t)
                z[i, 0] = -label * e / (1.0 + e)
            else:
                z[i, 0] = -label / (1.0 + np.exp(t))
    else:
        for i in range(n):
            top = z[i, 0]
            for c in range(1, C):
                top = max(top, z[i, c])
            total = 0.0
            for c in range(C):
                z[i, c] = np.exp(z[i, c] - top)
            for c in range(C):
                total += z[i, c]
            for c in range(C):
                z[i, c] /= total
            z[i, int(y[lo + i])] -= 1.0


@njit
def curvatures(
    X,
    data,
    indices,
    indptr,
    rows,
    offsets,
    centre,
    n_steps,
    place,
    columns,
    near,
    lines,
    Z,
    out,
    weights,
):
    """out[k] = largest eigenvalue of X_k' diag(weights) X_k, from below, by power iteration.

    X_k is centred by its weighted means.

    A row is multiplied and added up while it is at hand: for one output that is faster than
    `scores` and `gather`, and than matrices of the rows or columns, and compiles sooner. Dense
    rows are copied, centred, to where they stay in the cache, `near` of them (an even number) at a
    time, those of a long task in every step.

    Scratch, R being the columns up to a multiple of eight: lines (3, R) and Z (near + 1, R), of
    zeros; place (d,), of -1, and columns (d,). Z is empty for CSR; the others None for dense rows.
    """
    R = lines.shape[1]
    v, g, mean = lines[0], lines[1], lines[2]
    for k in range(offsets.shape[0] - 1):
        lo, hi = offsets[k], offsets[k + 1]
        width = X.shape[1]
        if data is not None:
            width = place_columns(indices, indptr, rows, lo, hi, place, columns)
        mass = mass_of(lo, hi - lo, weights)
        for j in range(width):
            mean[j] = 0.0
        if centre and data is not None:
            feature_means(
                X, data, indices, indptr, rows, lo, hi - lo, place, width, mean, weights, mass
            )
        elif centre:
            for p in range(lo, hi):
                x, share = X[rows[p]], weights[p] / mass
                for j in range(width):
                    mean[j] += x[j] * share
        # One scattered start for all tasks; a task's number does not depend on its company.
        for j in range(width):
            at = columns[j] if data is not None else j
            v[j] = 0.5 + (0.6180339887498949 * (at + 1)) % 1.0
            if at % 2:
                v[j] = -v[j]
        value = 0.0
        for step in range(n_steps):
            norm, dot, left, value = 0.0, 0.0, 0.0, 0.0
            for j in range(width):
                norm += v[j] * v[j]
            norm = norm**0.5
            if not norm > 0:
                break
            for j in range(width):
                v[j] /= norm
                g[j] = 0.0
            for j in range(width):
                dot += mean[j] * v[j]
            if data is not None:
                for p in range(lo, hi):
                    i, z = rows[p], -dot
                    for q in range(indptr[i], indptr[i + 1]):
                        z += data[q] * v[place[indices[q]]]
                    w = weights[p] * z
                    for q in range(indptr[i], indptr[i + 1]):
                        g[place[indices[q]]] += data[q] * w
                    left += w
                    value += w * z
            else:
                for first in range(lo, hi, near):
                    n = min(near, hi - first)
                    if step == 0 or hi - lo > near:
                        for p in range(n):
                            x, root = X[rows[first + p]], weights[first + p] ** 0.5
                            for j in range(width):
                                Z[p, j] = root * (x[j] - mean[j])
                        for j in range(width):
                            Z[n, j] = 0.0  # the partner of an odd last row
                    for p in range(0, n, 2):
                        a, b = splat(0.0), splat(0.0)
                        for o in range(0, R, 8):
                            a = a + load(Z, p, o) * load(v, o)
                            b = b + load(Z, p + 1, o) * load(v, o)
                        y, z = total(a), total(b)
                        for o in range(0, R, 8):
                            store(g, o, load(g, o) + y * load(Z, p, o) + z * load(Z, p + 1, o))
                        value += y * y + z * z
            for j in range(width):
                v[j] = g[j] - mean[j] * left
        out[k] = value
        if data is not None:
            for j in range(width):
                place[columns[j]] = -1
