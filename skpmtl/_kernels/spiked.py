"""Log evidence of priors that are a few directions over an even floor, at the cost of the few.

A prior N(0, kappa s^2 (f I + V V')) with V (d, c) has, in the coordinates in which the smaller of
Z Z' and Z' Z of a task is the tridiagonal T (`skpmtl._kernels.grams`), a matrix that is
H = I + kappa f T and c directions more. Determinant and quadratic form follow by Woodbury's
formula, and what does not depend on the prior is made once for all of them.

The systems of eight scales are solved at a time (see `skpmtl._runtime.registers`): one after the
other, each step of a solve would wait for the one before.
"""

import numpy as np

from .._runtime.jit import njit
from .._runtime.registers import (
    along,
    greater,
    load,
    logarithm,
    root,
    same,
    splat,
    splat4,
    store,
    store4,
)


@njit
def spiked_evidences(
    P, K, offsets, d, T, right, squares, dof, floor, own, basis, mix, starts, counts, floors, snr,
    prior, X, Y, W, Z, S, ratio, inverses, likely, out,
):  # fmt: skip
    """out[k, j] = log evidence of task k under prior j, averaged over scales; see `averages`.

    `K`, `T`, right (m, R), squares, dof and floor are as of `skpmtl._kernels.average.averages`
    without centres, own (m,) the numbers of rows, and P (N, B) the rows times basis, less means and
    times roots of weights, of tasks with d rows or fewer. Prior j has the counts[j] directions
    basis @ mix[:, starts[j] : starts[j] + counts[j]], which the next prior follows after a column
    of zeros or more, and the floor floors[j]. Scales snr, whose number is a multiple of eight, have
    the logarithms of prior weights `prior`; eight of them are processed at a time. The last column
    of basis (d, B) is free. Scratch for c directions at most: X (R, B), Y and W (R, C) with C > c,
    Z (R, 8 (c + 1)), S (C, 8 (c + 1)), ratio and inverses (R, 8), likely as snr.
    """
    B, groups = basis.shape[1], snr.shape[0]
    for k in range(K.shape[0]):
        n = offsets[k + 1] - offsets[k]
        A, diag, off, y = K[k], T[0, k], T[1, k], right[k]
        r = min(n, d)
        for i in range(r):
            for o in range(0, B, 8):
                store(X, i, o, load(basis, i, o) if n > d else load(P, offsets[k] + i, o))
            X[i, B - 1] = y[i]
        for j in range(r - 1, 0, -1):
            for o in range(0, B, 8):
                v = splat(0.0)
                for i in range(j):
                    v = v + same(A, j, i) * load(X, i, o)
                for i in range(j):
                    store(X, i, o, load(X, i, o) - same(A, j, i) * v)
        whole = 0.0
        for i in range(r):
            y[i] = X[i, B - 1]
        for i in range(r):
            whole += diag[i]
        for p in range(floors.shape[0]):
            first, c = starts[p], counts[p]
            C, trace = (c // 8 + 1) * 8, floors[p] * whole
            for i in range(r):
                for o in range(0, C, 8):
                    v = splat(0.0)
                    for b in range(B - 1):
                        v = v + same(X, i, b) * load(mix, b, first + o)
                    store(Y, i, o, v)
            for i in range(r):
                for o in range(0, C, 8):
                    if n > d:
                        v = same(diag, i) * load(Y, i, o)
                        if i > 0:
                            v = v + same(off, i - 1) * load(Y, i - 1, o)
                        if i + 1 < r:
                            v = v + same(off, i) * load(Y, i + 1, o)
                        store(W, i, o, v)
                    else:
                        store(W, i, o, load(Y, i, o))
                x, w = Y[i], W[i]
                for a in range(c):
                    trace += w[a] * x[a]
                w[c] = y[i]
            if n > d:  # column c of Y: the directions' part of what the prior makes of y
                for o in range(0, C, 8):
                    v = splat(0.0)
                    for i in range(r):
                        v = v + same(y, i) * load(Y, i, o)
                    store(Z, 0, o, v)
                for i in range(r):
                    t = 0.0
                    for a in range(c):
                        t += Z[0, a] * Y[i, a]
                    Y[i, c] = t
            for g in range(0, groups, 8):
                kappa = load(snr, g) * splat(own[k] / max(trace, 1e-300))
                shift, inverse, size = kappa * splat(floors[p]), splat(0.0), splat(0.0)
                product, one = splat(1.0), splat(1.0)
                for i in range(r):
                    side = shift * same(off, i - 1) if i > 0 else splat(0.0)
                    v = side * inverse
                    store(ratio, i, 0, v)
                    pivot = greater(one + shift * same(diag, i) - v * side, one)
                    inverse = one / pivot
                    store(inverses, i, 0, inverse)
                    product = product * pivot
                    if i % 16 == 15:
                        size, product = size + logarithm(product), one
                for i in range(r):
                    v = load(ratio, i, 0)
                    for a in range(c + 1):
                        z = same(Y, i, a)
                        if a == c:
                            z = shift * same(y, i) + kappa * z if n > d else same(y, i)
                        if i > 0:
                            z = z - v * load(Z, i - 1, 8 * a)
                        store(Z, i, 8 * a, z)
                for i in range(r - 1, -1, -1):
                    v = load(inverses, i, 0)
                    for a in range(c + 1):
                        z = v * load(Z, i, 8 * a)
                        if i + 1 < r:
                            z = z - load(ratio, i + 1, 0) * load(Z, i + 1, 8 * a)
                        store(Z, i, 8 * a, z)
                for a in range(0, c, 4):
                    for b in range(c + 1):
                        if b < a + 4 or b == c:
                            block = splat4(0.0)
                            for i in range(r):
                                block = block + along(W, i, a) * load(Z, i, 8 * b)
                            store4(S, a, 8 * b, block)
                for b in range(0 if n > d else c, c + 1):
                    v = splat(0.0)
                    for i in range(r):
                        v = v + same(W, i, c) * load(Z, i, 8 * b)
                    store(S, c, 8 * b, v)
                energy = load(S, c, 8 * c)
                for a in range(c):  # Cholesky factor, and the first half of the solve
                    for b in range(a):
                        v = kappa * load(S, a, 8 * b)
                        for q in range(b):
                            v = v - load(S, a, 8 * q) * load(S, b, 8 * q)
                        store(S, a, 8 * b, v / load(S, b, 8 * b))
                    v = one + kappa * load(S, a, 8 * a)
                    for q in range(a):
                        v = v - load(S, a, 8 * q) * load(S, a, 8 * q)
                    v = greater(v, one)
                    product = product * v
                    if (r + a) % 16 == 15:
                        size, product = size + logarithm(product), one
                    store(S, a, 8 * a, root(v))
                    v = load(S, a, 8 * c)
                    for q in range(a):
                        v = v - load(S, a, 8 * q) * load(S, q, 8 * c)
                    store(S, a, 8 * c, v / load(S, a, 8 * a))
                if n > d:
                    for a in range(c - 1, -1, -1):
                        v = load(S, a, 8 * c)
                        for q in range(a + 1, c):
                            v = v - load(S, q, 8 * a) * load(S, q, 8 * c)
                        v = v / load(S, a, 8 * a)
                        store(S, a, 8 * c, v)
                        energy = energy - kappa * v * load(S, c, 8 * a)
                    energy = splat(squares[k]) - energy
                else:
                    for a in range(c):
                        v = load(S, a, 8 * c)
                        energy = energy - kappa * v * v
                size = size + logarithm(product)
                energy = logarithm(greater(energy, splat(floor[k])))
                store(likely, g, load(prior, g) - splat(0.5) * (splat(dof[k]) * energy + size))
            top, mass = likely[0], 0.0
            for s in range(groups):
                top = max(top, likely[s])
            for s in range(groups):
                mass += np.exp(likely[s] - top)
            out[k, p] = top + np.log(mass) if dof[k] > 0 else 0.0
