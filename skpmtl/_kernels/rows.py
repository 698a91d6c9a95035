"""Largest eigenvalues of the rows of every task; dense rows or CSR.

Dense rows have None for ``data``, ``indices`` and ``indptr``, and what would read these is not
compiled; ``place`` maps a column of CSR rows to its position among those of the task. Row p of the
table is row ``rows[p]`` of X. ``weights`` of rows are ones where all count the same: None would
have every loop compiled once more.
"""

from .._runtime.jit import njit
from .._runtime.registers import load, splat, store, total
from .linalg import mass_of


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
