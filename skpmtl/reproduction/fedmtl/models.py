"""Hard parameter sharing: the model of a client as a vector (W^S, W^T[1], ..., W^T[K_i])."""

import numpy as np

__all__ = ["Perceptron"]


class Perceptron:
    """Rectified hidden layers that the tasks share, and a linear layer for each task.

    Parameters
    ----------
    n_features : int
    hidden : tuple of int
        Widths of the shared layers.
    outputs : Attributes or Categories

    Attributes
    ----------
    n_shared, head_size : int
        ds and dt of the paper.
    """

    def __init__(self, n_features, hidden, outputs):
        widths = (n_features, *hidden)
        self.layers, self.width = list(zip(widths, hidden, strict=False)), widths[-1]
        self.outputs = outputs
        self.n_shared = sum((before + 1) * after for before, after in self.layers)
        self.head_size = (self.width + 1) * outputs.n_scores

    def start(self, n_tasks, rng):
        """W^S(0) (ds,) and W^Tk(0) (K, dt): uniform up to 1 / sqrt(inputs), as torch's layers."""
        parts = [
            rng.uniform(-1, 1, (before + 1) * after) / np.sqrt(before)
            for before, after in self.layers
        ]
        heads = rng.uniform(-1, 1, (n_tasks, self.head_size)) / np.sqrt(self.width)
        return np.concatenate([*parts, np.empty(0)]), heads

    def _views(self, w):
        views, at = [], 0
        for before, after in self.layers:
            block = w[at : at + (before + 1) * after].reshape(before + 1, after)
            views.append((block[:-1], block[-1]))
            at += block.size
        heads = w[at:].reshape(-1, self.width + 1, self.outputs.n_scores)
        return views, heads

    def _forward(self, w, X):
        views, heads = self._views(w)
        hidden = [np.asarray(X, dtype=float)]
        for weight, bias in views:
            hidden.append(np.maximum(hidden[-1] @ weight + bias, 0.0))
        s = np.einsum("nw,kwl->nkl", hidden[-1], heads[:, :-1], optimize=True) + heads[:, -1]
        return hidden, s

    def scores(self, w, X):
        """(n, K_i, L)"""
        return self._forward(w, X)[1]

    def loss_gradient(self, w, X, Y):
        """Loss of a batch with targets Y (n, K_i, ...), and its gradient in w."""
        hidden, s = self._forward(w, X)
        loss, slope = self.outputs.slope(s, Y)
        gradient = np.empty_like(w)
        (views, heads), (out, head_out) = self._views(w), self._views(gradient)
        head_out[:, :-1] = np.einsum("nw,nkl->kwl", hidden[-1], slope, optimize=True)
        head_out[:, -1] = slope.sum(axis=0)
        back = np.einsum("nkl,kwl->nw", slope, heads[:, :-1], optimize=True)
        for layer in range(len(views) - 1, -1, -1):
            back = back * (hidden[layer + 1] > 0)
            weight_out, bias_out = out[layer]
            weight_out[:] = hidden[layer].T @ back
            bias_out[:] = back.sum(axis=0)
            back = back @ views[layer][0].T
        return loss, gradient
