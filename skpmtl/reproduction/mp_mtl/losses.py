"""Mean losses of all tasks at their models W (m, d): values, gradients, smoothness.

Every number of a task is computed from its own rows in a call of its own, so that it does not
depend on the other tasks by a bit.
"""

import numpy as np
from scipy.special import expit

from ..published import by_task

__all__ = [
    "MeanSquares",
    "MeanLogistic",
    "losses_of",
    "rows_of",
    "own_rates",
    "ridge_inverse",
    "ridge_models",
]


def rows_of(table, signs=False):
    """Rows of all tasks in the order of ``everybody``. -> list of (X (n, d), y (n,)), n may be 0

    `signs`: targets become -1 and 1 for two classes.
    """
    y = np.asarray(table.y, dtype=float)
    rows = by_task(table, 2.0 * y - 1.0 if signs else y)
    rows = [(X.toarray(), y) for X, y in rows] if table.is_sparse else rows
    return [(np.array(X, dtype=float), y) for X, y in rows]


class MeanSquares:
    """1/(2 n) |X w - y|^2 of every task, by its moments."""

    def __init__(self, tasks):
        n = [max(len(y), 1) for _, y in tasks]
        self.G = np.array([X.T @ X / k for (X, _), k in zip(tasks, n, strict=True)])
        self.c = np.array([X.T @ y / k for (X, y), k in zip(tasks, n, strict=True)])
        self.square = np.array([y @ y / k for (_, y), k in zip(tasks, n, strict=True)])

    def gradient(self, W):
        return np.matmul(self.G, W[:, :, None])[:, :, 0] - self.c

    def value(self, W):
        """(m,)"""
        quadratic = np.einsum("kd,kd->k", W, np.matmul(self.G, W[:, :, None])[:, :, 0])
        return 0.5 * (quadratic + self.square) - np.einsum("kd,kd->k", W, self.c)

    def curvature(self):
        """Lipschitz constants L_i of the gradients, (m,)."""
        return np.array([np.linalg.eigvalsh(G)[-1] for G in self.G])


class MeanLogistic:
    """1/n sum log(1 + exp(-y x'w)) of every task, targets -1 and 1."""

    def __init__(self, tasks):
        self.tasks = tasks

    def gradient(self, W):
        found = np.zeros_like(W)
        for k, (X, y) in enumerate(self.tasks):
            if len(y):
                found[k] = -(y * expit(-y * (X @ W[k]))) @ X / len(y)
        return found

    def value(self, W):
        """(m,)"""
        each = (np.logaddexp(0.0, -y * (X @ w)) for (X, y), w in zip(self.tasks, W, strict=True))
        return np.array([loss.sum() / max(len(loss), 1) for loss in each])

    def curvature(self):
        """Upper bounds on the Lipschitz constants L_i of the gradients, (m,)."""
        each = [np.linalg.norm(X, 2) ** 2 / (4 * len(y)) if len(y) else 0.0 for X, y in self.tasks]
        return np.array(each)


def losses_of(tasks, n_classes):
    """`MeanSquares` of numbers, `MeanLogistic` of two classes."""
    return MeanLogistic(tasks) if n_classes else MeanSquares(tasks)


def own_rates(losses, ridge):
    """1 / L_i of every task, (m, 1); 1 for a task without rows."""
    curvature = losses.curvature() + ridge
    return (1.0 / np.where(curvature > 0, curvature, 1.0))[:, None]


def ridge_models(tasks, strength):
    """W(0) of tasks that learn alone: 1/(2n) |X w - y|^2 + strength / 2 |w|^2, (m, d)."""
    d = tasks[0][0].shape[1]
    W = np.zeros((len(tasks), d))
    for k, (X, y) in enumerate(tasks):
        if len(y):
            W[k] = ridge_inverse(X.T @ X / len(y), strength) @ (X.T @ y / len(y))
    return W


def ridge_inverse(G, strength):
    """(G + strength)^-1 of second moments G (..., d, d), which rounding never makes singular."""
    values, V = np.linalg.eigh(G)
    root = V / np.sqrt(np.maximum(values, 0.0) + strength)[..., None, :]
    return root @ root.swapaxes(-1, -2)
