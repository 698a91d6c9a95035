"""Penalties that couple the tasks: trace norm and L2,1 norm, and those of what a task has alone.

A new one derives from `Penalty`.
"""

from abc import ABC, abstractmethod

import numpy as np
from scipy.linalg.lapack import dsyevd


class Penalty(ABC):
    """A norm Omega(W) of the weights W (m, d) of all tasks, with the methods that `minimize` calls.

    Where it is not a norm, or a sum of one and of something else, ``conjugate`` is that of the
    other part.
    """

    by_columns = False  # whether it is a sum over features, so that working sets of them serve
    turns = False  # whether rotations of the features change nothing
    is_norm = True  # and not something with a `conjugate`
    step = None  # of splitting, where its curvature determines the best one

    @abstractmethod
    def value(self, W):
        """Omega(W)."""

    @abstractmethod
    def prox(self, V, threshold):
        """-> (W, Omega(W)) where W minimises 1/2 ||W - V||^2 + threshold Omega(W)."""

    @abstractmethod
    def dual_levels(self, V):
        """Numbers whose maximum is the dual norm of V; the duality gap comes from them.

        With all numbers u, the squared distance of V to the ball of radius alpha of the dual
        norm is sum max(u - alpha, 0)^2.
        """

    def dual_bound(self, size):
        """Largest dual level of any matrix of this Frobenius norm."""
        return size

    def conjugate(self, V, alpha, size=0.0):
        """Conjugate of alpha Omega at V, of the part that is no norm: homogeneous of degree 2.

        At least that of any matrix whose distance to V is `size`, in Frobenius norm.
        """
        return 0.0

    def noise_level(self, squares, largest):
        """About the dual norm of a noise matrix with independent rows.

        squares (m, d): variances of its entries; largest: the largest eigenvalue of the sum of the
        covariances of its rows, where the penalty is not one `by_columns`.
        """
        raise NotImplementedError


class TraceNorm(Penalty):
    """Sum of the singular values of W (m, d)."""

    turns = True

    def prox(self, V, threshold):  # singular values of V lowered by `threshold`
        tall = V.shape[0] >= V.shape[1]
        # LAPACK itself: the matrix is small and there are many of them.
        squares, U, failed = dsyevd(V.T @ V if tall else V @ V.T, overwrite_a=True)
        if failed:
            raise np.linalg.LinAlgError("Eigenvalues did not converge")
        s = np.sqrt(np.maximum(squares, 0.0))
        keep = s > threshold
        U, s = U[:, keep], s[keep]
        shrink = (U * (1.0 - threshold / s)) @ U.T
        return V @ shrink if tall else shrink @ V, float((s - threshold).sum())

    def value(self, W):
        # Of a triangular factor, which has the same singular values and costs a tenth.
        small = np.linalg.qr(W if W.shape[0] >= W.shape[1] else W.T, mode="r")
        return float(np.linalg.svd(small, compute_uv=False).sum())

    def dual_levels(self, V):
        # The singular values of V.
        small = V.T @ V if V.shape[0] >= V.shape[1] else V @ V.T
        return np.sqrt(np.maximum(np.linalg.eigvalsh(small), 0.0))

    def directions(self, V, alpha=0.0):
        """Rows that span the right singular vectors of V with singular values above alpha."""
        tall = V.shape[0] >= V.shape[1]
        squares, U = np.linalg.eigh(V.T @ V if tall else V @ V.T)
        U = U[:, squares > max(alpha**2, 1e-15 * squares.max(initial=0.0))].T
        return U if tall else U @ V

    def noise_level(self, squares, largest):
        return np.sqrt(largest) + np.sqrt(squares.sum(axis=1).max())


class GroupNorm(Penalty):
    """Sum over the features of the norm of their weights across tasks (L2,1)."""

    by_columns = True

    def prox(self, V, threshold):
        norms = np.sqrt(np.einsum("kj,kj->j", V, V))
        left = np.maximum(norms - threshold, 0.0)
        return V * (left / np.where(norms > 0, norms, 1.0)), float(left.sum())

    def value(self, W):
        return float(np.sqrt(np.einsum("kj,kj->j", W, W)).sum())

    def dual_levels(self, V):
        return np.sqrt(np.einsum("kj,kj->j", V, V))

    def noise_level(self, squares, largest):
        return np.sqrt(squares.sum(axis=0).max())


class TaskNorm(Penalty):
    """Sum over the tasks of the norm of their weights: whole tasks are zero.

    A task has `n_outputs` rows of W, one for each of several classes.
    """

    def __init__(self, n_outputs):
        self.n_outputs = n_outputs

    def prox(self, V, threshold):
        norms = self.dual_levels(V)
        left = np.maximum(norms - threshold, 0.0)
        part = np.repeat(left / np.where(norms > 0, norms, 1.0), self.n_outputs)
        return V * part[:, None], float(left.sum())

    def value(self, W):
        return float(self.dual_levels(W).sum())

    def dual_levels(self, V):
        V = V.reshape(-1, self.n_outputs * V.shape[1])
        return np.sqrt(np.einsum("kj,kj->k", V, V))

    def noise_level(self, squares, largest):
        return np.sqrt(squares.reshape(-1, self.n_outputs * squares.shape[1]).sum(axis=1).max())


class EntryNorm(Penalty):
    """Sum of the absolute values of all weights: single weights are zero."""

    def __init__(self, n_outputs):
        pass  # the same for any number of classes

    def prox(self, V, threshold):
        W = np.sign(V) * np.maximum(np.abs(V) - threshold, 0.0)
        return W, self.value(W)

    def value(self, W):
        return float(np.abs(W).sum())

    def dual_levels(self, V):
        return np.abs(V).ravel()

    def noise_level(self, squares, largest):
        # The largest of all entries would leave too little to a part that is to catch few of them.
        return 2.0 * np.sqrt(squares.max())


def spectrum(R):
    """Eigenvalues of R R' above 0, and their vectors, for R (d, rank). -> (k,), (d, k)"""
    if R.shape[1] > len(R):
        values, U = np.linalg.eigh(R @ R.T)
    else:
        U, roots, _ = np.linalg.svd(R, full_matrices=False)
        values = roots**2
    keep = values > 0
    return values[keep], U[:, keep]


class FittedShape(Penalty):
    """sum_k w_k' S^-1 w_k / 2 for S = R R' of a given R (d, rank), or of a given diagonal (d,).

    Where S is 0, W is.
    """

    is_norm = False

    def __init__(self, shape):
        self.s, self.U = (shape, None) if shape.ndim == 1 else spectrum(shape)
        self.s = np.where(self.s > 1e-12 * self.s.max(initial=0.0), self.s, 0.0)

    def _turned(self, W):
        return W if self.U is None else W @ self.U

    def prox(self, V, threshold):
        C = self._turned(V) * (self.s / (self.s + threshold))
        return C if self.U is None else C @ self.U.T, self._of(C)

    def value(self, W):
        return self._of(self._turned(W))

    def _of(self, C):
        inverse = np.divide(1.0, self.s, out=np.zeros_like(self.s), where=self.s > 0)
        return 0.5 * float(np.einsum("kj,kj->j", C, C) @ inverse)

    def dual_levels(self, V):
        return np.empty(0)

    def conjugate(self, V, alpha, size=0.0):
        C = self._turned(V)
        root = np.sqrt(np.einsum("kj,kj->j", C, C) @ self.s)
        return 0.5 / alpha * float(root + size * np.sqrt(self.s.max(initial=0.0))) ** 2


class ResidualPenalty(Penalty):
    """Omega of the remainder W - P W, with P the projection on columns V (m, r) over the tasks.

    `penalty`, Omega, is a norm of the columns of W that no rotation over the tasks changes. As it
    falls under projections, Omega(W - P W) is the minimum of Omega(W - V B) over all B. P W itself
    has a small ridge, held / 2 ||P W||^2, which makes the conjugate finite: ``alpha * held`` is the
    curvature along V.
    """

    is_norm = False

    def __init__(self, penalty, V, held):
        self.penalty, self.held = penalty, float(held)
        self.Q = np.linalg.qr(V)[0]

    def along(self, W):
        """P W; a task has several rows of W with several classes."""
        flat = W.reshape(len(self.Q), -1)
        return (self.Q @ (self.Q.T @ flat)).reshape(W.shape)

    def prox(self, V, threshold):
        along = self.along(V)
        W, omega = self.penalty.prox(V - along, threshold)
        along /= 1.0 + threshold * self.held
        return W + along, omega + 0.5 * self.held * np.vdot(along, along)

    def value(self, W):
        along = self.along(W)
        return self.penalty.value(W - along) + 0.5 * self.held * np.vdot(along, along)

    def dual_levels(self, V):
        return self.penalty.dual_levels(V - self.along(V))

    def dual_bound(self, size):
        return self.penalty.dual_bound(size)

    def conjugate(self, V, alpha, size=0.0):
        return (np.linalg.norm(self.along(V)) + size) ** 2 / (2.0 * alpha * self.held)

    def noise_level(self, squares, largest):
        return self.penalty.noise_level(squares, largest)
