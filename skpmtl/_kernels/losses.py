"""Losses of rows at their scores, and the derivatives.

``loss`` is SQUARED, LOGISTIC with y in {-1, 1}, or MULTINOMIAL with y the number of the class. No
score of a class overflows.
"""

import numpy as np

from .._runtime.jit import njit

SQUARED, LOGISTIC, MULTINOMIAL = range(3)
# By these numbers compiled loops know the losses.
NUMBER = {"squared": SQUARED, "logistic": LOGISTIC, "multinomial": MULTINOMIAL}


@njit
def other_class(t):
    """1 / (1 + exp(t)): probability of the other class at y times the score, t."""
    if t > 0:
        e = np.exp(-t)
        return e / (1.0 + e)
    return 1.0 / (1.0 + np.exp(t))


@njit
def poisson_loss(y, mean, score):
    """Half of the deviance of a count y, at its mean and the logarithm of that."""
    return mean - y - (y * (score - np.log(y)) if y > 0 else 0.0)


@njit
def residuals(z, y, p, loss):
    """z (1, C) <- derivative of the loss of row p with respect to its scores."""
    if loss == SQUARED:
        z[0, 0] -= y[p]
    elif loss == LOGISTIC:
        z[0, 0] = -y[p] * other_class(y[p] * z[0, 0])
    else:
        top, total = z[0, 0], 0.0
        for c in range(1, z.shape[1]):
            top = max(top, z[0, c])
        for c in range(z.shape[1]):
            z[0, c] = np.exp(z[0, c] - top)
        for c in range(z.shape[1]):
            total += z[0, c]
        for c in range(z.shape[1]):
            z[0, c] /= total
        z[0, int(y[p])] -= 1.0
