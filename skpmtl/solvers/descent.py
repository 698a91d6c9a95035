"""Block coordinate descent on working sets of features, for squared loss and the L2,1 norm.

A set grows and keeps its order, so that what belongs to earlier features is computed once. Cycles
run over the rows of its features, or over matrices of its features where these are smaller, with
Anderson extrapolation after every fifth [1]_.

References
----------
.. [1] Q. Bertrand, M. Massias, "Anderson acceleration of coordinate descent", AISTATS 2021.
"""

import numpy as np
from scipy.linalg.lapack import dgesv

from .._kernels import blocks

_CYCLES = 5  # between two extrapolations
_JUDGED = 3  # extrapolations to judge the rate by


class WorkingSet:
    """Features of a set, with weights W (s, m); the state is what W moves in an affine way.

    Subclasses have `add`, ``h`` (s, m), the curvature without the ridge, ``square`` = ||y||^2, and
    `at`, `cycle`, `parts` of states.
    """

    def __init__(self, loss, alpha):
        self.loss, self.ridge, self.alpha = loss, loss.ridge, alpha
        self.columns = np.empty(0, dtype=np.int64)
        self.h = np.empty((0, loss.shape[0]))
        self.scratch = np.empty(loss.shape[0])

    def descend(self, W, goal, max_cycles):
        """Minimise from W until the gap within the set is at most `goal`. -> W, cycles, gap

        No further than it looks as if `max_cycles` were enough.
        """
        state, self.curvature, done, gaps = self.at(W), self.h + self.ridge, 0, []
        kept = [np.empty((_CYCLES + 1, *part.shape)) for part in (W, state)]
        kept[0][0], kept[1][0] = W, state
        here = self._parts(W, state)
        while True:
            W, state = kept[0][0], kept[1][0]
            gap = self.gap(W, state, here)
            gaps.append(gap)
            if gap <= goal or done >= max_cycles or done + _ahead(gaps, goal) > max_cycles:
                return W, done, gap
            n = min(_CYCLES, max_cycles - done)
            for i in range(n):
                for part in kept:
                    part[i + 1] = part[i]
                self.cycle(kept[0][i + 1], kept[1][i + 1])
            done += n
            last = kept[0][n], kept[1][n]
            here, guess = self._parts(*last), extrapolated(*kept) if n == _CYCLES else None
            if guess is not None and (there := self._parts(*guess))[0] < here[0]:
                last, here = guess, there
            kept[0][0], kept[1][0] = last

    def _parts(self, W, state):
        """Objective, loss, product of targets and fits, and square of the weights."""
        loss, fitted = self.parts(W, state)
        both = float(np.vdot(W, W))
        value = loss + 0.5 * self.ridge * both + self.alpha * float(_norms(W).sum())
        return value, loss, fitted, both

    def gap(self, W, state, parts):
        """Objective less the dual value of the residuals, scaled into the dual ball."""
        value, loss, fitted, both = parts
        a, q = self.square - fitted, 2.0 * loss + self.ridge * both
        top, theta = float(_norms(self.gradient(W, state)).max(initial=0.0)), a / q if q else 1.0
        if top * abs(theta) > self.alpha:
            theta = np.sign(theta) * self.alpha / top
        return value - theta * a + 0.5 * theta**2 * q


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

    def cycle(self, W, r):
        blocks.row_cycle(
            self.Z,
            self.shared,
            self.offsets,
            self.curvature,
            self.ridge,
            self.alpha,
            W,
            r,
            self.scratch,
        )

    def parts(self, W, r):
        return 0.5 * float(r @ r), self.square - float(r @ self.y)

    def gradient(self, W, r):
        if self.shared:
            return self.Z @ r.reshape(-1, self.Z.shape[1]).T - self.ridge * W
        return np.add.reduceat(self.Z * r, self.offsets[:-1], axis=1) - self.ridge * W


class MatrixSet(WorkingSet):
    """From matrices G (s, s, m) and g (s, m) of the loss; the state is minus the gradient."""

    def __init__(self, loss, alpha):
        super().__init__(loss, alpha)
        self.square = loss.square

    def add(self, columns):
        self.columns = np.append(self.columns, columns)
        part = self.columns
        self.G = np.ascontiguousarray(self.loss.G[:, part[:, None], part].transpose(1, 2, 0))
        self.g = np.ascontiguousarray(self.loss.g[:, part].T)
        self.h = np.ascontiguousarray(np.einsum("jjk->jk", self.G))

    def at(self, W):
        return self.g - np.einsum("jik,ik->jk", self.G, W) - self.ridge * W

    def cycle(self, W, V):
        blocks.gram_cycle(self.G, self.curvature, self.ridge, self.alpha, W, V, self.scratch)

    def parts(self, W, V):
        fitted = float(np.vdot(W, self.g))
        both = self.ridge * float(np.vdot(W, W))
        return 0.5 * (self.square - fitted - float(np.vdot(W, V)) - both), fitted

    def gradient(self, W, V):
        return V


def _ahead(gaps, goal):
    """Cycles that are left at the rate of the second half of those before; 0 at first."""
    half = len(gaps) // 2
    if half < _JUDGED:
        return 0
    rate = np.log(gaps[half] / gaps[-1]) / (len(gaps) - 1 - half)
    return _CYCLES * np.log(gaps[-1] / goal) / rate if rate > 0 else np.inf


def _norms(W):
    return np.sqrt(np.einsum("jk,jk->j", W, W))


def extrapolated(points, states):
    """The affine combination of the last iterates whose change in a cycle is least, or None."""
    flat = points.reshape(len(points), -1)
    changes = flat[1:] - flat[:-1]
    A = changes @ changes.T
    A.flat[:: _CYCLES + 1] += 1e-12 * A.trace()
    # LAPACK itself: numpy's checks would cost more than a system this small.
    *_, c, failed = dgesv(A, np.ones(_CYCLES), overwrite_a=True, overwrite_b=True)
    total = c.sum()
    if failed or not np.isfinite(total) or total == 0.0:  # nothing changed
        return None
    c /= total
    of_states = c @ states[1:].reshape(_CYCLES, -1)
    return (c @ flat[1:]).reshape(points.shape[1:]), of_states.reshape(states.shape[1:])
