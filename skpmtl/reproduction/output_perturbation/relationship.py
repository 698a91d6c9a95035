"""Relationship learning without rows: the smoothed matrix of models, and what it implies.

``||V||_*^2`` is the minimum over Omega of trace 1 of ``tr(V Omega^-1 V')`` and is attained at
``Omega = (V'V)^(1/2) / trace``, so that the relationship never has to be iterated for itself.
"""

import numpy as np


def smooth(W, ratio):
    """argmin over V of 1/2 ||W - V||_F^2 + ratio / 2 ||V||_*^2.

    It minimises over Omega as well. Singular values are lowered by tau = ratio ||V||_*.
    (Alternating between V and Omega, as in the papers, stops once Omega is singular: its range no
    longer changes.)
    """
    U, s, Vt = np.linalg.svd(W, full_matrices=False)
    tau = ratio * np.cumsum(s) / (1.0 + ratio * np.arange(1, len(s) + 1))
    kept = int(np.count_nonzero(s > tau))
    tau = tau[max(kept, 1) - 1]
    return (U * np.maximum(s - tau, 0.0)) @ Vt


def root_of_trace_one(A):
    """(A A')^(1/2) / trace; even without a signal."""
    if not A.any():
        return np.eye(len(A)) / len(A)
    U, s, _ = np.linalg.svd(A, full_matrices=False)
    return (U * (s / s.sum())) @ U.T


def prior_root(columns, lam, alpha):
    """Square root of the covariance M / alpha + I / lam of a new task's model, (width, width).

    M = (V V')^(1/2) / trace is the mirror of Omega on the side of the features, with V the
    `columns`, and 1/2 w' (M / alpha + I / lam)^-1 w what the penalties come to for one task.
    """
    width = columns.shape[1]
    M = root_of_trace_one(columns.T) if columns.any() else np.zeros((width, width))
    values, Q = np.linalg.eigh(M)
    return (Q * np.sqrt(np.maximum(values, 0.0) / alpha + 1.0 / lam)) @ Q.T
