"""Models as vectors of numbers: their scores, and gradients of functions of the scores.

A model class offers, for a block of q tasks and their vectors W (q, size),

``blocks(tasks)``
    The tasks in blocks that take a step together.
``rows(block, index=None)``
    Rows of such a block, or those at `index` (q, B) of each.
``scores(W, X)``
    (q, n, c).
``pull(W, X, slope)``
    Gradients (q, size) of sums of a function of the scores, of which ``slope(scores)`` (q, n, c) is
    the derivative.
``pull_squares(W, X, slope)``
    Sums over the rows of the squares of the gradients of single rows, (q, size).
"""

from typing import NamedTuple

import numpy as np
from scipy import sparse

from ..published import by_task

__all__ = ["Block", "Task", "linear_model", "tasks_of"]


class Task(NamedTuple):
    """Rows X (n, d), dense or CSR, and targets y (n, c) of one task; n may be 0."""

    X: object
    y: np.ndarray


class Block(NamedTuple):
    """Rows of q tasks: X, targets (q, n, c), and weights (q, n), 0 for rows that fill up."""

    X: object
    y: np.ndarray
    weight: np.ndarray


def tasks_of(table, outputs):
    """All tasks of a table in the order of ``everybody``, those without rows with none."""
    target = outputs.target(np.asarray(table.y), table.n_classes)
    return [Task(*rows) for rows in by_task(table, target)]


class OneByOne:
    """Tasks that take their steps one after the other, for models that are no arrays."""

    def __init__(self, tasks, loss):
        self.tasks, self.sizes = tasks, np.array([len(task.y) for task in tasks])
        self.loss = loss

    def blocks(self, tasks):
        return [np.array([k]) for k in tasks]

    def rows(self, block, index=None):
        X, y = self.tasks[block[0]]
        if index is not None and len(y):
            X, y = X[index[0]], y[index[0]]
        return Block(X, y[None], weights(np.array([len(y)]), len(y), self.loss))


def weights(sizes, n, loss):
    """Weights (q, n) of rows in the loss of a task, their mean or their sum."""
    each = 1.0 / np.maximum(sizes, 1) if loss == "mean" else np.ones(len(sizes))
    return each[:, None] * (np.arange(n) < sizes[:, None])


def linear_model(tasks, n_outputs, **options):
    """`DenseLinear` or `SparseLinear` of a list of `Task`, as their rows are."""
    kind = SparseLinear if sparse.issparse(tasks[0].X) else DenseLinear
    return kind(tasks, n_outputs, **options)


class LinearModel:
    """Scores x'w, a column of ones last in x where there is an intercept.

    A vector is (d, c) row by row.
    """

    def __init__(self, tasks, n_outputs, *, fit_intercept=True, loss="mean"):
        self.n_outputs, self.fit_intercept = n_outputs, fit_intercept
        self._hold([Task(self.features(X), y) for X, y in tasks], loss)
        width = tasks[0].X.shape[1] + fit_intercept
        self.size = width * n_outputs
        self.start = np.zeros(self.size)

    def features(self, X):
        """Features of rows with the column of ones."""
        if not self.fit_intercept:
            return X
        ones = np.ones((X.shape[0], 1))
        return sparse.hstack([X, ones], format="csr") if sparse.issparse(X) else np.c_[X, ones]

    def blank(self):
        """The model without the rows of any task."""
        found = object.__new__(type(self))
        names = ("n_outputs", "fit_intercept", "size", "start", "loss")
        vars(found).update({name: getattr(self, name) for name in names})
        return found

    def _matrices(self, W):
        return W.reshape(len(W), -1, self.n_outputs)


class DenseLinear(LinearModel):
    """Tasks of about one length take their steps together.

    A task is filled up to the next power of two of its own length, so that no bit of its steps
    depends on the rows of others.
    """

    def _hold(self, tasks, loss):
        self.sizes, self.loss = np.array([len(task.y) for task in tasks]), loss
        self.lengths = np.array([1 << max(int(n) - 1, 0).bit_length() for n in self.sizes])
        self.place, self.held = np.empty(len(tasks), dtype=np.int64), {}
        for length in sorted(set(self.lengths.tolist())):
            members = np.flatnonzero(self.lengths == length)
            self.place[members] = np.arange(len(members))
            X = np.zeros((len(members), length, tasks[0].X.shape[1]))
            y = np.zeros((len(members), length, tasks[0].y.shape[1]))
            for i, k in enumerate(members):
                X[i, : self.sizes[k]], y[i, : self.sizes[k]] = tasks[k]
            self.held[length] = Block(X, y, weights(self.sizes[members], length, loss))

    def blocks(self, tasks):
        of = self.lengths[tasks]
        return [tasks[of == length] for length in self.held if (of == length).any()]

    def rows(self, block, index=None):
        X, y, weight = self.held[self.lengths[block[0]]]
        at = self.place[block]
        if index is not None:
            full = np.minimum(self.sizes[block], 1) * index.shape[1]
            at = at[:, None], index
            return Block(X[at], y[at], weights(full, index.shape[1], self.loss))
        return Block(X, y, weight) if len(block) == len(X) else Block(X[at], y[at], weight[at])

    def scores(self, W, X):
        return X @ self._matrices(W)

    def pull(self, W, X, slope):
        return (X.transpose(0, 2, 1) @ slope(self.scores(W, X))).reshape(len(W), -1)

    def pull_squares(self, W, X, slope):
        return ((X**2).transpose(0, 2, 1) @ slope(self.scores(W, X)) ** 2).reshape(len(W), -1)


class SparseLinear(LinearModel, OneByOne):
    """CSR rows; the models are dense, one for every task in rounds that keep models."""

    def _hold(self, tasks, loss):
        OneByOne.__init__(self, tasks, loss)

    def scores(self, W, X):
        return (X @ self._matrices(W)[0])[None]

    def pull(self, W, X, slope):
        return np.asarray(X.T @ slope(self.scores(W, X))[0]).reshape(1, -1)

    def pull_squares(self, W, X, slope):
        return np.asarray(X.power(2).T @ slope(self.scores(W, X))[0] ** 2).reshape(1, -1)
