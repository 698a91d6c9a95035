"""Slow, plain numpy counterparts of what the package computes, for the tests."""

import numpy as np

from skpmtl.tables.table import TaskTable


def listed_classes(cls, y):
    """The parameter `classes` for these labels; nothing for a regressor."""
    if not cls._classification:
        return {}
    y = np.asarray(y)
    known = y[~np.isnan(y)] if y.dtype.kind == "f" else y
    return {"classes": np.unique(known).tolist()}


def penalty_value(W, penalty):
    """Trace norm or L2,1 norm (over features) of W (n_tasks, n_features)."""
    if penalty == "trace":
        return np.linalg.svd(W, compute_uv=False).sum()
    return np.linalg.norm(W, axis=0).sum()


def dual_levels(V, penalty):
    """Numbers whose maximum is the dual norm: singular values, or norms over the tasks."""
    return np.linalg.svd(V, compute_uv=False) if penalty == "trace" else np.linalg.norm(V, axis=0)


def dual_norm(V, penalty):
    return dual_levels(V, penalty).max()


def task_loss(X, y, w, b, logistic):
    """Mean loss of one task and the mean of minus its derivative by the scores."""
    z = X @ w + b
    if logistic:  # y in {-1, 1}
        return np.logaddexp(0.0, -y * z).mean(), y / (1.0 + np.exp(np.clip(y * z, -700, 700)))
    return 0.5 * np.mean((y - z) ** 2), y - z


def objective(X, y, task, W, b, *, penalty, alpha, ridge=0.0, weight="equal", logistic=False):
    """The documented objective at weights W (n_tasks, n_features) and intercepts b."""
    total = alpha * penalty_value(W, penalty) + 0.5 * ridge * np.sum(W**2)
    for k, label in enumerate(np.unique(task)):
        rows = task == label
        factor = 1.0 if weight == "equal" else rows.sum()
        total += factor * task_loss(X[rows], y[rows], W[k], b[k], logistic)[0]
    return total


def descent(X, y, task, W, b, *, ridge=0.0, weight="equal", logistic=False):
    """Minus the gradient of the smooth part by W, and by the intercepts."""
    V, g = -ridge * W, np.zeros(len(W))
    for k, label in enumerate(np.unique(task)):
        rows = task == label
        factor = 1.0 / rows.sum() if weight == "equal" else 1.0
        r = task_loss(X[rows], y[rows], W[k], b[k], logistic)[1]
        V[k] += factor * X[rows].T @ r
        g[k] = factor * r.sum()
    return V, g


def best_intercepts(X, y, task, W, logistic=False):
    """Optimal intercepts of fixed weights: a mean, or bisection."""
    b = np.zeros(len(W))
    for k, label in enumerate(np.unique(task)):
        rows = task == label
        z = X[rows] @ W[k]
        if not logistic:
            b[k] = np.mean(y[rows] - z)
            continue
        low, high = -np.abs(z).max() - 50.0, np.abs(z).max() + 50.0
        for _ in range(200):
            b[k] = 0.5 * (low + high)
            slope = np.sum(y[rows] / (1.0 + np.exp(np.clip(y[rows] * (z + b[k]), -700, 700))))
            low, high = (b[k], high) if slope > 0 else (low, b[k])
    return b


def excess_bound(X, y, task, W, b, *, penalty, alpha, ridge=0.0, weight="equal", logistic=False):
    """Upper bound on objective(W, b) minus the optimum, from convexity alone.

    With V = -gradient of the smooth part f >= 0 and intercepts at their optimum,
    F(W) - F(W*) <= alpha Omega(W) - <V, W> + (dual norm of V - alpha)_+ Omega(W*), and
    Omega(W*) <= F(W) / alpha. With a ridge also, for V of the loss without it,
    F(W*) >= loss(W) + min over U of <V, W - U> + alpha Omega(U) + ridge / 2 ||U||^2.
    """
    kind = {"ridge": ridge, "weight": weight, "logistic": logistic}
    V, _ = descent(X, y, task, W, b, **kind)
    value = objective(X, y, task, W, b, penalty=penalty, alpha=alpha, **kind)
    outside = max(dual_norm(V, penalty) - alpha, 0.0)
    omega = alpha * penalty_value(W, penalty)
    bound = omega - np.vdot(V, W) + outside * value / alpha
    if ridge:
        V = V + ridge * W
        above = np.maximum(dual_levels(V, penalty) - alpha, 0.0)
        rest = 0.5 * ridge * np.sum(W**2) + 0.5 / ridge * np.sum(above**2)
        bound = min(bound, omega - np.vdot(V, W) + rest)
    return bound


def long_table(X, y, task):
    """TaskTable of rows that are sorted by task; targets of -1 and 1 are two classes."""
    tasks, sizes = np.unique(task, return_counts=True)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    n_classes = 2 if np.array_equal(np.unique(y), [-1, 1]) else 0
    return TaskTable(X, np.asarray(y, dtype=float), offsets, tasks, n_classes=n_classes)


def wide_table(X, Y):
    """TaskTable of a shared X and Y (n_samples, n_tasks) with NaN where not known."""
    known = ~np.isnan(Y.T)
    offsets = np.concatenate([[0], np.cumsum(known.sum(axis=1))])
    rows = np.nonzero(known)[1]
    return TaskTable(X, Y.T[known], offsets, np.arange(Y.shape[1]), rows)


def unfold(X, Y):
    """The same as long rows sorted by task: X, y, task."""
    task, rows = np.nonzero(~np.isnan(Y.T))
    return X[rows], Y[rows, task], task
