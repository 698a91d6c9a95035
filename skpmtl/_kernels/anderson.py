"""History of Anderson extrapolation, updated in one pass over the variables."""

from .._jit import njit


@njit
def remember(W, V, step, guess, first, x, r, dx, dr, slot, used, products, rhs):
    """x, r <- plain step W + step V and its residual against `guess`; differences to slot.

    The differences of x and r to their former values go to row `slot` of dx and dr (not when
    `first`). Afterwards products[:used, :used] = dr dr' and rhs[:used] = dr r.
    """
    for i in range(used):
        rhs[i] = 0.0
        products[slot, i] = 0.0
    for p in range(W.shape[0]):
        plain = W[p] + step * V[p]
        residual = plain - guess[p]
        if not first:
            dx[slot, p] = plain - x[p]
            dr[slot, p] = residual - r[p]
        x[p] = plain
        r[p] = residual
    if first:
        return
    new = dr[slot]
    for i in range(used):
        row = dr[i]
        a = 0.0
        b = 0.0
        for p in range(W.shape[0]):
            a += row[p] * new[p]
            b += row[p] * r[p]
        products[slot, i] = a
        products[i, slot] = a
        rhs[i] = b


@njit
def combine(x, dx, weights, out):
    """out = x - weights @ dx."""
    for p in range(x.shape[0]):
        out[p] = x[p]
    for i in range(weights.shape[0]):
        a = weights[i]
        row = dx[i]
        for p in range(x.shape[0]):
            out[p] -= a * row[p]
