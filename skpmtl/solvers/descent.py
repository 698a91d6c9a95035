"""Working sets of features for the squared loss and the L2,1 norm, by block coordinate descent.

A set grows and keeps its order, so that what belongs to earlier features is computed once. Cycles
run over the rows of its features, or over matrices of its features where these are smaller
(`skpmtl._kernels.blocks`).
"""

import numpy as np

from .._kernels.blocks import CYCLES, descend


class WorkingSet:
    """Features of a set, with weights W (s, m); the state is what W moves in an affine way.

    Subclasses have `add`, ``h`` (s, m), the curvature without the ridge, ``square`` = ||y||^2, the
    state `at` weights, and `rows`, what `descend` takes of them.
    """

    def __init__(self, loss, alpha):
        self.loss, self.ridge, self.alpha = loss, loss.ridge, alpha
        self.columns = np.empty(0, dtype=np.int64)
        self.h = np.empty((0, loss.shape[0]))

    def descend(self, W, goal, tol, max_cycles):
        """Minimise from W until the gap of the set is at most `goal`, or `tol` of its objective.

        -> W, cycles, whether it is; no further than it looks as if `max_cycles` were enough.
        """
        state = self.at(W)
        points = np.empty((CYCLES + 1, W.size + state.size))
        points[0, : W.size], points[0, W.size :] = W.ravel(), state.ravel()
        scratch = np.empty(max_cycles + 2), np.empty((CYCLES, CYCLES + 1)), np.empty(W.shape[1])
        found = descend(
            *self.rows(),
            self.square,
            self.h + self.ridge,
            self.ridge,
            self.alpha,
            goal,
            tol,
            max_cycles,
            points,
            *scratch,
        )
        return points[0, : W.size].reshape(W.shape), *found


class RowSet(WorkingSet):
    """From rows Z (s, N), or (s, n) of rows that all tasks share.

    The state is the residuals of the rows.
    """

    def __init__(self, loss, alpha):
        super().__init__(loss, alpha)
        self.y, self.offsets = loss.targets(), loss.offsets
        self.Z = loss.features(self.columns)
        self.shared = self.Z.shape[1] < len(self.y)
        self.square = float(self.y @ self.y)

    def add(self, columns):
        new = self.loss.features(columns)
        self.columns = np.append(self.columns, columns)
        self.Z = np.concatenate([self.Z, new])
        h = self._sums(new * new)
        self.h = np.concatenate([self.h, np.broadcast_to(h, (len(h), self.h.shape[1]))])

    def _sums(self, Z):
        if self.shared:
            return Z.sum(axis=1)[:, None]
        return np.add.reduceat(Z, self.offsets[:-1], axis=1)

    def at(self, W):
        used = W.any(axis=1)
        if self.shared:
            return self.y - (W[used].T @ self.Z[used]).ravel()
        each = np.repeat(W[used], np.diff(self.offsets), axis=1)
        return self.y - np.einsum("jp,jp->p", self.Z[used], each)

    def rows(self):
        return self.Z, self.shared, self.offsets, self.y


class MatrixSet(WorkingSet):
    """From matrices G (s, s, m or 1) and g (s, m) of the loss; the state is minus the gradient."""

    def __init__(self, loss, alpha):
        super().__init__(loss, alpha)
        self.square = loss.square

    def add(self, columns):
        self.columns = np.append(self.columns, columns)
        part = self.columns
        self.G = self.loss.matrices(part)
        self.g = np.ascontiguousarray(self.loss.g[:, part].T)
        h = np.einsum("jjk->jk", self.G)
        self.h = np.ascontiguousarray(np.broadcast_to(h, self.g.shape))

    def at(self, W):
        return self.g - np.einsum("jik,ik->jk", self.G, W) - self.ridge * W

    def rows(self):
        return self.G, False, self.loss.offsets, self.g.ravel()
