"""The convex relaxation of clustered tasks: a penalty of the singular values of the weights.

Tasks in k clusters keep close to the centres of their clusters, and these to zero,

    alpha / 2 sum_k ||w_k - centre of its cluster||^2 + ridge / 2 ||W||_F^2,

where the centres are F F' W for an orthonormal F (m, k) that encodes the assignment. With any
matrix 0 <= M <= I of trace k in place of F F' this is convex in W and M together (Jacob, Bach and
Vert, "Clustered multi-task learning: a convex formulation", NIPS 2008; Zhou, Chen and Ye,
"Clustered multi-task learning via alternating structure optimization", NIPS 2011):

    min over M of 1/2 tr(W' ridge (alpha + ridge) (ridge I + alpha M)^-1 W)
      = min over 0 <= u <= 1, sum u = k of 1/2 sum_i ridge (alpha + ridge) s_i^2
        / (ridge + alpha u_i)

for the singular values s of W, as the best M has the singular vectors of W. Its conjugate at V with
singular values t is (ridge sum_i t_i^2 + alpha times the k largest t_i^2)
/ (2 ridge (alpha + ridge)): the maximum over W, then over u.
"""

import numpy as np

from .penalties import Penalty

__all__ = ["ClusterPenalty"]


class ClusterPenalty(Penalty):
    """The function above, for `minimize` at strength 1."""

    is_norm = False

    def __init__(self, alpha, ridge, n_clusters):
        self.alpha, self.ridge, self.n_clusters = float(alpha), float(ridge), n_clusters
        # Curvatures lie between ridge and alpha + ridge. Were the penalty quadratic, the error of
        # splitting would fall by (q - 1) / (q + 1) each time with this step, where q is
        # ((alpha + ridge) / ridge)^1/2, whatever the rows are.
        self.step = np.sqrt(self.ridge * (self.alpha + self.ridge))

    def weights(self, s, extra=0.0):
        """The u of singular values s: clip(c s_i - (ridge + extra) / alpha, 0, 1), c by their sum.

        It minimises sum_i s_i^2 / (ridge + extra + alpha u_i).
        """
        used = s > 0
        if used.sum() <= self.n_clusters:
            return used.astype(float)
        # Where u leaves 0 and reaches 1, as functions of c; their sum is linear in between.
        low = (self.ridge + extra) / self.alpha
        s = s / s.max()
        ends = np.sort(np.concatenate([low / s[used], (low + 1.0) / s[used]]))
        sums = np.array([np.clip(c * s - low, 0.0, 1.0).sum() for c in ends])
        c = np.interp(self.n_clusters, sums, ends)
        return np.clip(c * s - low, 0.0, 1.0)

    def value(self, W):
        s = np.linalg.svd(W, compute_uv=False)
        return self._of(s, self.weights(s))

    def _of(self, s, u):
        whole = self.ridge * (self.alpha + self.ridge)
        return 0.5 * whole * float(np.sum(s * s / (self.ridge + self.alpha * u)))

    def prox(self, V, threshold):
        tall = V.shape[0] >= V.shape[1]
        squares, U = np.linalg.eigh(V.T @ V if tall else V @ V.T)
        squares[squares < 1e-15 * squares[-1]] = 0.0
        t = np.sqrt(np.maximum(squares, 0.0))
        extra = threshold * self.ridge * (self.alpha + self.ridge)
        u = self.weights(t, extra)
        inside = self.ridge + self.alpha * u
        part = inside / (inside + extra)
        shrink = (U * part) @ U.T
        # u, the best one of the step, is also the best one of what it leads to.
        return V @ shrink if tall else shrink @ V, self._of(part * t, u)

    def dual_levels(self, V):
        return np.empty(0)

    def conjugate(self, V, alpha, size=0.0):
        squares = np.linalg.eigvalsh(V.T @ V if V.shape[0] >= V.shape[1] else V @ V.T)
        top = squares[-self.n_clusters :].sum()
        whole = 2.0 * self.ridge * (self.alpha + self.ridge)
        # The square of a norm that is at most the length over (2 ridge)^1/2.
        root = np.sqrt(max(self.ridge * squares.sum() + self.alpha * top, 0.0) / whole)
        return float(root + size / np.sqrt(2.0 * self.ridge)) ** 2 / alpha
