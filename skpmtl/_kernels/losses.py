"""Losses of rows at their scores, and the derivatives: squared, logistic, multinomial, Poisson.

``loss`` is SQUARED, LOGISTIC with y in {-1, 1}, MULTINOMIAL with y the number of the class, or
POISSON with counts and the logarithms of their means as scores. No score of a class overflows, and
small values are not lost.
"""

import numpy as np

from .._runtime.jit import njit

SQUARED, LOGISTIC, MULTINOMIAL, POISSON = range(4)
# By these numbers compiled loops know the losses.
NUMBER = {
    "squared": SQUARED,
    "logistic": LOGISTIC,
    "multinomial": MULTINOMIAL,
    "poisson": POISSON,
}


@njit
def other_class(t):
    """1 / (1 + exp(t)): probability of the other class at y times the score, t."""
    if t > 0:
        e = np.exp(-t)
        return e / (1.0 + e)
    return 1.0 / (1.0 + np.exp(t))


@njit
def logistic_loss(t):
    """log(1 + exp(-t)) at y times the score, t."""
    return np.log1p(np.exp(-abs(t))) - min(t, 0.0)


@njit
def poisson_loss(y, mean, score):
    """Half of the deviance of a count y, at its mean and the logarithm of that."""
    return mean - y - (y * (score - np.log(y)) if y > 0 else 0.0)


@njit
def softmax(z, i, p, j):
    """p[j] = probabilities of the classes at the scores z[i]. -> top, sum of exp(z[i] - top)

    p may be z. Arrays are indexed, not cut: a slice costs about as much as a few classes do.
    """
    top, total = z[i, 0], 0.0
    for c in range(1, z.shape[1]):
        top = max(top, z[i, c])
    for c in range(z.shape[1]):
        p[j, c] = np.exp(z[i, c] - top)
    for c in range(z.shape[1]):
        total += p[j, c]
    for c in range(z.shape[1]):
        p[j, c] /= total
    return top, total


@njit
def losses(f, y, lo, n, loss, D, excess, weights):
    """Sum of the losses of n rows at scores f, and their derivatives D, which do not cancel.

    `weights`, which begin at `lo` like the targets, count in the sum only.

    Parameters
    ----------
    f, D : (n_outputs, N)
    y : (n_rows,)
        Targets, not spread; those of the rows begin at `lo`.
    loss : {LOGISTIC, MULTINOMIAL}
    excess : (N,)
        Receives what the largest other score is above that of the label, for LOGISTIC minus t.
    """
    C, value = f.shape[0], 0.0
    for i in range(n):
        if loss == LOGISTIC:
            t = y[lo + i] * f[0, i]
            D[0, i] = -y[lo + i] * other_class(t)
            value += weights[lo + i] * logistic_loss(t)
            excess[i] = -t
        else:
            label, mass, top = int(y[lo + i]), 0.0, -np.inf
            for c in range(C):
                top = max(top, f[c, i] if c != label else top)
            own, above = f[label, i], max(top, f[label, i])
            for c in range(C):
                D[c, i] = np.exp(f[c, i] - above) if c != label else 0.0
            for c in range(C):
                mass += D[c, i]
            rest = mass + np.exp(own - above)
            for c in range(C):
                D[c, i] /= rest
            D[label, i] = -mass / rest
            value += weights[lo + i] * (np.log(rest) + above - own)
            excess[i] = top - own
    return value


@njit
def residuals(z, y, p, loss):
    """z (1, C) <- derivative of the loss of row p with respect to its scores."""
    if loss == SQUARED:
        z[0, 0] -= y[p]
    elif loss == LOGISTIC:
        z[0, 0] = -y[p] * other_class(y[p] * z[0, 0])
    else:
        softmax(z, 0, z, 0)
        z[0, int(y[p])] -= 1.0
