"""How far the models of two exact fits may be apart, by their certified duality gaps."""

import numpy as np


def squared_curvature(X, task, ridge=0.0):
    """mu of the mean squared losses of the tasks as a function of W, minimised over intercepts:
    the smallest eigenvalue of the covariances of the features in a task, plus the ridge."""
    parts = [X[task == k] for k in np.unique(task)]
    return ridge + min(np.linalg.eigvalsh(np.cov(Z.T, bias=True))[0] for Z in parts)


def apart(curvature, *fits):
    """Bound on ||W - W'||_F of two fits that minimise one `curvature`-strongly convex objective.

    ``mu / 2 ||W - W*||^2 <= f(W) - f(W*) <= gap``. The gap itself is a difference of sums, known to
    about 1e-15 of the objective times the number of summands.
    """
    gaps = [est.dual_gap_ + 1e-13 * abs(est.objective_) for est in fits]
    return sum(np.sqrt(2.0 * gap / curvature) for gap in gaps)
