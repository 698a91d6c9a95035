"""Models as vectors: scores, losses and gradients of single rows.

A model class offers, for one vector w (size,) and rows X (n, d) with targets y (n,),

``losses(w, X, y)``
    (n,)
``gradients(w, X, y)``
    Of the loss of every row alone, (n, size).
``gradient(w, X, y)``
    Of the mean loss, (size,).
``scores(w, X)``
    (n, n_outputs).
"""

import numpy as np
from scipy.special import expit, log_expit, log_softmax, softmax

__all__ = ["GeneralizedLinear"]


class GeneralizedLinear:
    """Scores w x + b; the loss is half the squared error, or that of logistic regression.

    Parameters
    ----------
    n_features : int
    n_classes : int
        0 for real targets. With two classes y is -1 or 1; with more, the number of the class.
    fit_intercept : bool
        A last feature 1.
    """

    def __init__(self, n_features, n_classes, fit_intercept):
        self.n_classes, self.fit_intercept = n_classes, fit_intercept
        self.n_outputs = n_classes if n_classes > 2 else 1
        self.shape = self.n_outputs, n_features + fit_intercept
        self.size = self.n_outputs * self.shape[1]
        self.start = np.zeros(self.size)

    def _with_one(self, X):
        return np.column_stack([X, np.ones(len(X))]) if self.fit_intercept else X

    def scores(self, w, X):
        return self._with_one(X) @ w.reshape(self.shape).T

    def losses(self, w, X, y):
        s = self.scores(w, X)
        if self.n_classes > 2:
            return -log_softmax(s, axis=1)[np.arange(len(y)), y.astype(int)]
        if self.n_classes == 2:
            return -log_expit(y * s[:, 0])
        return 0.5 * (s[:, 0] - y) ** 2

    def _slopes(self, w, Z, y):
        """Derivatives of the losses in the scores, (n, n_outputs)."""
        s = Z @ w.reshape(self.shape).T
        if self.n_classes > 2:
            return softmax(s, axis=1) - (np.arange(self.n_classes) == y[:, None])
        if self.n_classes == 2:
            return (-y * expit(-y * s[:, 0]))[:, None]
        return s - y[:, None]

    def gradients(self, w, X, y):
        Z = self._with_one(X)
        return (self._slopes(w, Z, y)[:, :, None] * Z[:, None, :]).reshape(len(Z), -1)

    def gradient(self, w, X, y):
        Z = self._with_one(X)
        return (self._slopes(w, Z, y).T @ Z).ravel() / len(Z)
