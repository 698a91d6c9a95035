"""Algorithms 2 and 3 of the model-protected paper: noisy projections, local gradient steps.

Iteration t: the curator receives the clipped models, releases their noisy second moment S (or
its diagonal) and everybody derives from it the public projection
M = U (1 - alpha / sqrt(Lambda))_+ U'; every task projects its own model, extrapolates and takes
a gradient step on its own rows, with a step size of its own.
"""

import numpy as np


def second_moment(C, diagonal):
    """C' C of contributions (n, d), or its diagonal."""
    return np.einsum("kj,kj->j", C, C) if diagonal else C.T @ C


def project(S, alpha):
    """Public projection of a (shifted) release: M = U (1 - alpha / sqrt(Lambda))_+ U'.

    Directions whose released moment is not positive are dropped. All d eigenvalues count,
    also when there are fewer tasks than features.
    """
    if S.ndim == 1:
        return np.maximum(1.0 - alpha / np.sqrt(np.maximum(S, 1e-300)), 0.0)
    values, U = np.linalg.eigh(S)
    keep = np.maximum(1.0 - alpha / np.sqrt(np.maximum(values, 1e-300)), 0.0)
    return (U * keep) @ U.T
