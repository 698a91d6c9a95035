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

    def _forward(self, views, heads, X):
        hidden = [np.asarray(X, dtype=float)]
        for weight, bias in views:
            hidden.append(np.maximum(hidden[-1] @ weight + bias, 0.0))
        side = heads.transpose(1, 0, 2).reshape(self.width + 1, -1)  # the heads side by side
        s = hidden[-1] @ side[:-1] + side[-1]
        return hidden, s.reshape(len(s), *heads.shape[::2])

    def scores(self, w, X):
        """(n, K_i, L)"""
        return self._forward(*self._views(w), X)[1]

    def gradient(self, w, X, Y):
        """Gradient in w of the loss of a batch with targets Y (n, K_i, ...)."""
        views, heads = self._views(w)
        hidden, s = self._forward(views, heads, X)
        gradient = np.empty_like(w)
        out, head_out = self._views(gradient)
        slope = self.outputs.slope(s, Y)
        flat, k = slope.reshape(len(slope), -1), len(heads)
        head_out[:, :-1] = (hidden[-1].T @ flat).reshape(self.width, k, -1).transpose(1, 0, 2)
        head_out[:, -1] = slope.sum(axis=0)
        back = flat @ heads[:, :-1].transpose(0, 2, 1).reshape(flat.shape[1], -1)
        for layer in range(len(views) - 1, -1, -1):
            back = back * (hidden[layer + 1] > 0)
            weight_out, bias_out = out[layer]
            weight_out[:] = hidden[layer].T @ back
            bias_out[:] = back.sum(axis=0)
            if layer:
                back = back @ views[layer][0].T
        return gradient
