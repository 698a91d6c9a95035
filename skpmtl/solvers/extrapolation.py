"""Extrapolation of fixed-point iterations from their last steps."""

import numpy as np
from scipy.linalg.lapack import dgesv

MEMORY = 6  # steps that are kept


class Anderson:
    """Type-II Anderson extrapolation of the gradient step from the last `memory` steps."""

    def __init__(self, shape, memory=MEMORY):
        self.dx, self.dr = np.empty((2, memory, shape[0] * shape[1]))
        self.products = np.empty((memory, memory))
        self.clear()

    def clear(self):
        self.count, self.last = 0, None

    def extrapolate(self, point, residual):
        """Combination of the last points whose residual is smallest; None without history."""
        x, r = point.ravel(), residual.ravel()
        former, self.last = self.last, (x, r)
        if former is None:
            return None
        slot = self.count % len(self.dx)
        self.count += 1
        np.subtract(x, former[0], out=self.dx[slot])
        np.subtract(r, former[1], out=self.dr[slot])
        n = min(self.count, len(self.dx))
        np.dot(self.dr[:n], self.dr[slot], out=self.products[slot, :n])
        self.products[:n, slot] = self.products[slot, :n]
        A = self.products[:n, :n].copy()
        A.flat[:: n + 1] *= 1.0 + 1e-10
        # LAPACK itself: numpy's checks would cost more than a system this small.
        _, _, weights, failed = dgesv(A, self.dr[:n] @ r, overwrite_a=True, overwrite_b=True)
        if failed:
            return None
        return (x - weights @ self.dx[:n]).reshape(point.shape)


class Secant:
    """`Anderson` from the last step alone, in the room of two points."""

    def __init__(self):
        self.clear()

    def clear(self):
        self.last = None

    def extrapolate(self, point, residual):
        former, self.last = self.last, (point, residual)
        if former is None:
            return None
        guess, before = former
        product, square = np.vdot(residual, before), np.vdot(residual, residual)
        change = square - 2.0 * product + np.vdot(before, before)
        if not change > 1e-12 * square:
            return None
        weight = float((square - product) / change)
        guess *= weight
        before[...] = point
        before *= 1.0 - weight
        guess += before
        return guess
