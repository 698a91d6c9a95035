"""Log evidence of priors that are a few directions over an even floor, at the cost of the few.

A prior N(0, kappa s^2 (f I + V V')) with V (d, c) has, in the coordinates in which the smaller of
Z Z' and Z' Z of a task is the tridiagonal T (`skpmtl._kernels.grams`), a matrix that is
H = I + kappa f T and c directions more. Determinant and quadratic form follow by Woodbury's
formula, and what does not depend on the prior is made once for all of them. With Y = Z V, W = Y and
the response y, or Y = V, W = T V and y = Z'v where there are more rows than features, and with

    S = I + kappa W' H^-1 Y,  u = Y' H^-1 y,  Q = y' H^-1 y - kappa u' S^-1 u,

the quadratic form is Q, or v'v - kappa (f y' H^-1 y + u' S^-1 u).

The systems of eight scales are solved at a time (see `skpmtl._runtime.registers`): one after the
other, each step of a solve would wait for the one before.
"""

import numpy as np

from .._runtime.jit import njit
from .._runtime.registers import (
    along,
    down,
    greater,
    load,
    load4,
    logarithm,
    root,
    same,
    splat,
    splat4,
    store,
    store4,
    sum4,
    total,
)


@njit
def spiked_evidences(
    P,
    K,
    offsets,
    d,
    T,
    right,
    squares,
    dof,
    floor,
    own,
    basis,
    mix,
    starts,
    counts,
    floors,
    snr,
    prior,
    X,
    Y,
    W,
    Z,
    S,
    ratio,
    inverses,
    last,
    likely,
    out,
):
    """out[k, j] = log evidence of task k under prior j, averaged over scales; see `averages`.

    `K`, `T`, right (m, R), squares, dof and floor are as of `skpmtl._kernels.average.averages`
    without centres, own (m,) the numbers of rows, and P (N, B) the rows times basis, less means and
    times roots of weights, of tasks with d rows or fewer. Prior j has the counts[j] directions
    basis @ mix[:, starts[j] : starts[j] + counts[j]], which the next prior follows after a column
    of zeros or more, and the floor floors[j]. Scales snr, whose number is a multiple of eight, have
    the logarithms of prior weights `prior`; eight of them are processed at a time. The last column
    of basis (d, B) is free. Scratch for c directions at most: X (R, B), Y and W (R, C) with C > c,
    Z (R, C, 8), S (C, 8 (c + 1)), ratio, inverses and last (R, 8), likely as snr.
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
                block = splat4(0.0)
                for i in range(0, j, 4):
                    block = block + along(A, j, i) * load4(X, i, o)
                v = sum4(block)
                for i in range(0, j, 4):
                    store4(X, i, o, load4(X, i, o) - along(A, j, i) * v)
        whole = 0.0
        for i in range(r):
            y[i] = X[i, B - 1]
        for i in range(r):
            whole += diag[i]
        # A determinant is (1 + kappa trace / r)^r at most, and no pivot less than 1: where that is
        # a number, one logarithm does for all pivots.
        most = r * np.log(1.0 + snr[groups - 1] * own[k] / max(r, 1))
        every = 1 << 30 if most < 650.0 else 16
        for p in range(floors.shape[0]):
            first, c = starts[p], counts[p]
            C, trace = (c // 8 + 1) * 8, floors[p] * whole
            for o in range(0, C, 8):
                for i in range(0, r, 4):
                    block = splat4(0.0)
                    for b in range(B - 1):
                        block = block + down(X, i, b) * load(mix, b, first + o)
                    store4(Y, i, o, block)
            part = splat(0.0)  # of the trace: from column c on both are 0
            for i in range(r):
                for o in range(0, C, 8):
                    v = load(Y, i, o)
                    if n > d:
                        v = same(diag, i) * v
                        if i > 0:
                            v = v + same(off, i - 1) * load(Y, i - 1, o)
                        if i + 1 < r:
                            v = v + same(off, i) * load(Y, i + 1, o)
                    part = part + v * load(Y, i, o)
                    store(W, i, o, v)
            trace += total(part)
            for g in range(0, groups, 8):
                kappa = load(snr, g) * splat(own[k] / max(trace, 1e-300))
                shift, inverse, size = kappa * splat(floors[p]), splat(0.0), splat(0.0)
                product, one, link, z = splat(1.0), splat(1.0), splat(0.0), splat(0.0)
                for i in range(r):
                    v = link * inverse
                    store(ratio, i, 0, v)
                    pivot = greater(one + shift * same(diag, i) - v * link, one)
                    inverse, link = one / pivot, shift * same(off, i)
                    store(inverses, i, 0, inverse)
                    product = product * pivot
                    if (i + 1) % every == 0:
                        size, product = size + logarithm(product), one
                    z = same(y, i) - v * z
                    store(last, i, 0, z)
                store(ratio, r, 0, splat(0.0))
                for a in range(0, c, 4):
                    block = splat4(0.0)
                    for i in range(r):
                        block = along(Y, i, a) - load(ratio, i, 0) * block
                        store4(Z, i, a, 0, block)
                    block = splat4(0.0)
                    for i in range(r - 1, -1, -1):
                        block = load(inverses, i, 0) * load4(Z, i, a, 0) - (
                            load(ratio, i + 1, 0) * block
                        )
                        store4(Z, i, a, 0, block)
                z = splat(0.0)
                for i in range(r - 1, -1, -1):
                    z = load(inverses, i, 0) * load(last, i, 0) - load(ratio, i + 1, 0) * z
                    store(Z, i, c, 0, z)
                for a in range(0, c, 4):
                    for b in range(min(a + 4, c)):
                        block = splat4(0.0)
                        for i in range(r):
                            block = block + along(W, i, a) * load(Z, i, b, 0)
                        store4(S, a, 8 * b, block)
                for b in range(0, c + 1, 4):  # u and y' H^-1 y, into the last row of Z
                    block = splat4(0.0)
                    for i in range(r):
                        block = block + same(y, i) * load4(Z, i, b, 0)
                    store4(Z, r, b, 0, block)
                for a in range(c + 1):  # Cholesky factor; the last row is solved with it
                    for b in range(a):
                        v = kappa * load(S, a, 8 * b) if a < c else load(Z, r, b, 0)
                        for q in range(b):
                            v = v - load(S, a, 8 * q) * load(S, b, 8 * q)
                        store(S, a, 8 * b, v / load(S, b, 8 * b))
                    z = splat(0.0)
                    for q in range(a):
                        z = z + load(S, a, 8 * q) * load(S, a, 8 * q)
                    if a < c:
                        v = greater(one + kappa * load(S, a, 8 * a) - z, one)
                        product = product * v
                        if (r + a + 1) % every == 0:
                            size, product = size + logarithm(product), one
                        store(S, a, 8 * a, root(v))
                energy = load(Z, r, c, 0)
                if n > d:
                    energy = splat(squares[k]) - (shift * energy + kappa * z)
                else:
                    energy = energy - kappa * z
                size = size + logarithm(product)
                energy = logarithm(greater(energy, splat(floor[k])))
                store(likely, g, load(prior, g) - splat(0.5) * (splat(dof[k]) * energy + size))
            top, mass = likely[0], 0.0
            for s in range(groups):
                top = max(top, likely[s])
            for s in range(groups):
                mass += np.exp(likely[s] - top)
            out[k, p] = top + np.log(mass) if dof[k] > 0 else 0.0
