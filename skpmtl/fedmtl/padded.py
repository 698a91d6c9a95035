"""Uploads of all clients in one shape, as what is aggregated in secret needs them."""

import math

import numpy as np

from .aggregation import _Uploads

__all__ = ["Padded"]


class Padded:
    """Arguments of `fedmtl_aggregate`, checked, with heads side by side by length.

    Heads of different length use different columns: their cosine is 0 then. Every client uploads
    `max_heads` heads; None: the largest number there is. `max_size` is a public bound on the sizes,
    rounded up to a power of two; None: the largest.
    """

    def __init__(self, shared, heads, task_ids, sizes, thresholds, max_heads, max_size=None):
        self.uploads = uploads = _Uploads(shared, heads, task_ids, sizes, thresholds)
        self.sizes, self.task_ids = np.asarray(sizes, dtype=np.float64), task_ids
        self.max_heads = int(uploads.counts.max() if max_heads is None else max_heads)
        largest = self.sizes.max() if max_size is None else max_size
        if not 0 < largest < math.inf:
            raise ValueError(f"max_size={max_size!r} must be a positive number.")
        self.max_size = 2.0 ** math.ceil(math.log2(largest))
        lengths = np.unique(uploads.lengths)
        tasks = dict.fromkeys(task for own in task_ids for task in own)
        self.columns = {task: k for k, task in enumerate(tasks)}
        start = dict(zip(lengths, np.cumsum(lengths) - lengths, strict=True))
        self.windows = [slice(start[n], start[n] + n) for n in uploads.lengths]
        self.vectors = np.zeros((len(uploads.vectors), int(lengths.sum())))
        for row, window in enumerate(self.windows):
            self.vectors[row, window] = uploads.vectors[row, : uploads.lengths[row]]
        self.n_clients, self.n_shared = uploads.shared.shape
        self.n_tasks, self.head_length = len(tasks), self.vectors.shape[1]

    @property
    def shapes(self):
        names = ("n_clients", "n_shared", "n_tasks", "head_length", "max_heads", "max_size")
        return {name: getattr(self, name) for name in names}

    def client(self, i):
        """-> shared (P,), heads (K_i, D), columns of their tasks, size, threshold"""
        rows = slice(self.uploads.starts[i], self.uploads.starts[i + 1])
        own = [self.columns[task] for task in self.task_ids[i]]
        uploads = self.uploads
        return uploads.shared[i], self.vectors[rows], own, self.sizes[i], uploads.thresholds[i]

    def restored(self, heads):
        """Heads (max_heads, D) of every client in the form of the argument."""
        uploads = self.uploads
        found = np.zeros_like(uploads.vectors)
        for i, own in enumerate(heads):
            rows = range(uploads.starts[i], uploads.starts[i + 1])
            for row, head in zip(rows, own, strict=False):
                found[row, : uploads.lengths[row]] = head[self.windows[row]]
        return uploads.by_client(found)
