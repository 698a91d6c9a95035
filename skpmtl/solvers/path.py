"""Solutions for many strengths of a penalty, from the largest useful one down.

Each begins at the one before. What does not depend on alpha is made once: the matrices of the
loss, and the steps of splitting while alpha stays within a factor of two. For penalties
`by_columns` of more than a few features, working sets begin at the features in use before; every
solution is certified on all features, so that this changes nothing.
"""

import numpy as np

from .._runtime.threads import single_blas_thread
from .minimize import SMALLEST_SET, solve


def largest_alpha(loss, penalty):
    """Smallest alpha for which all weights are zero: the dual norm of the gradient there."""
    levels = penalty.dual_levels(loss.evaluate(np.zeros(loss.shape))[1])
    return float(levels.max(initial=0.0))


def alpha_grid(loss, penalty, eps, n_alphas):
    """`n_alphas` from the largest useful one down to `eps` times it, evenly in their logarithms.

    Ones where that is zero: all weights are zero at any strength then.
    """
    top = largest_alpha(loss, penalty) * (1.0 + 1e-10)  # zero whatever rounding does
    return np.geomspace(top, eps * top, n_alphas) if top > 0 else np.ones(n_alphas)


def follow(loss, penalty, alphas, *, tol=1e-6, max_iter=10_000, screen=True):
    """Minimise ``loss(W) + alpha * penalty(W)`` for one alpha after the other.

    Yields a Solution for each, without a warning: see `converged`. Best from the largest alpha
    down. The loss is made for this path: it keeps what serves several alphas. `screen`: whether
    working sets may be used; for tests.
    """
    by_sets = screen and penalty.by_columns and loss.shape[1] > 2 * SMALLEST_SET
    loss.keeps, W = True, np.zeros(loss.shape)
    for alpha in alphas:
        with single_blas_thread():
            solution = solve(loss, penalty, float(alpha), W, tol, max_iter, by_sets=by_sets)
        W = solution.W
        yield solution
