"""Newton's method for penalties that are smooth in factors of the weights.

Both penalties are ``alpha Omega(W) = min over W' = P C of alpha / 2 (||P||^2 + ||C||^2)`` (P
square for the trace norm, diagonal for L2,1). The per-task C are eliminated exactly, and Newton
steps in P do not see the conditioning of the tasks.
"""

import numpy as np


class FullBasis:
    """W = C P' with P (d, r)."""

    def __init__(self, P):
        self.P = P
        self.width = P.shape[1]

    def moved(self, D):
        return FullBasis(self.P + D)

    def lift(self, C):
        return C @ self.P.T

    def lift_direction(self, C, D):
        return C @ D.T

    def drop(self, V):
        return V @ self.P

    def drop_direction(self, V, D):
        return V @ D

    def pair(self, V, C):
        return V.T @ C

    def features(self, X):
        return X @ self.P

    def project(self, G):
        return np.matmul(np.matmul(self.P.T, G), self.P)

    def gram(self):
        return self.P.T @ self.P


class DiagonalBasis:
    """W[:, index] = C * P with P (r,); the other columns are zero."""

    def __init__(self, P, index, d):
        self.P, self.index, self.d = P, index, d
        self.width = len(index)

    def moved(self, D):
        return DiagonalBasis(self.P + D, self.index, self.d)

    def lift(self, C):
        return self.lift_direction(C, self.P)

    def lift_direction(self, C, D):
        W = np.zeros((C.shape[0], self.d))
        W[:, self.index] = C * D
        return W

    def drop(self, V):
        return V[:, self.index] * self.P

    def drop_direction(self, V, D):
        return V[:, self.index] * D

    def pair(self, V, C):
        return np.einsum("kj,kj->j", V[:, self.index], C)

    def features(self, X):
        if hasattr(X, "toarray"):
            return X[:, self.index].toarray() * self.P
        return X.take(self.index, axis=1) * self.P  # in C order, unlike X[:, index]

    def project(self, G):
        # In C order, which compiled loops know; the array of picked columns is in another.
        part = G[:, self.index[:, None], self.index]
        return np.multiply(part, np.outer(self.P, self.P), order="C")

    def gram(self):
        return np.diag(self.P**2)


# ------------------------------------------------------------------------------- Newton
def newton_on_factors(loss, alpha, basis, target, max_iter, passes=np.inf):
    """Trust-region Newton on P after exact elimination of C. -> (W, number of steps).

    With A_k = P' H_k P + alpha I the eliminated c_k = A_k^-1 P' h_k, the gradient is
    alpha P - V' C with V minus the gradient of the loss at W = C P', and a Hessian product
    costs two passes over the rows. Steps stop once they promise less than `target`, or took more
    than that many `passes`.
    """
    parts = loss.parts()
    here = _Factored(parts, alpha, basis)
    radius = np.linalg.norm(basis.P)
    for n_iter in range(1, max_iter + 1):
        step, promise, products = _steihaug(here.gradient, here.product, radius)
        passes -= 2 * products + 3
        length = np.linalg.norm(step)
        here.release()  # its matrices make room for the next
        there = _Factored(parts, alpha, here.basis.moved(step))
        gain = here.value - there.value
        ratio = gain / promise if promise > 0 else 0.0
        if ratio > 0.75:
            radius = max(radius, 2.0 * length)
        elif ratio < 0.25:
            radius = 0.25 * length
        if gain > 0:
            here = there
        if promise < target or length == 0 or passes < 0:
            break
        if gain <= 0:
            del there
            here = _Factored(parts, alpha, here.basis)
    return here.weights(), n_iter


class _Factored:
    """Value, gradient and Hessian products of the eliminated objective at one P.

    They are sums over parts of the tasks, so that only what is kept here has the size of all
    models: C and V.
    """

    def __init__(self, parts, alpha, basis):
        self.alpha, self.basis = alpha, basis
        self.parts = [_Part(loss, alpha, basis) for loss in parts]
        self.value = 0.5 * alpha * np.vdot(basis.P, basis.P) + sum(p.value for p in self.parts)
        self.gradient = alpha * basis.P - sum(basis.pair(p.V, p.C) for p in self.parts)

    def product(self, D):
        return self.alpha * D - sum(p.product(self.basis, D) for p in self.parts)

    def release(self):
        for part in self.parts:
            part.solve = None

    def weights(self):
        return np.concatenate([self.basis.lift(part.C) for part in self.parts])


class _Part:
    """The share of some tasks."""

    def __init__(self, loss, alpha, basis):
        self.loss = loss
        self.solve = loss.elimination(basis, alpha)
        _, V0 = loss.evaluate(np.zeros(loss.shape))
        self.C = self.solve(basis.drop(V0))
        # Where tasks are fitted almost perfectly most of V0 cancels: one step of refinement.
        _, V = loss.evaluate(basis.lift(self.C))
        self.C += self.solve(basis.drop(V) - alpha * self.C)
        value, self.V = loss.evaluate(basis.lift(self.C))
        self.value = value + 0.5 * alpha * np.vdot(self.C, self.C)

    def product(self, basis, D):
        H = self.loss.curvature(basis.lift_direction(self.C, D))
        dC = self.solve(basis.drop_direction(self.V, D) - basis.drop(H))
        H += self.loss.curvature(basis.lift(dC))
        return basis.pair(self.V, dC) - basis.pair(H, self.C)


def _steihaug(gradient, product, radius, max_iter=60):
    """Truncated conjugate gradients in a ball. -> (step, predicted decrease, products)."""
    z = np.zeros_like(gradient)
    Hz = np.zeros_like(gradient)
    r = gradient.copy()
    p = -r
    rr = np.vdot(r, r)
    goal = 0.01 * rr
    done = 0
    while done < max_iter and rr > 0:
        Hp = product(p)
        done += 1
        curvature = np.vdot(p, Hp)
        a = rr / curvature if curvature > 0 else np.inf
        pp, zp, zz = np.vdot(p, p), np.vdot(z, p), np.vdot(z, z)
        if not np.isfinite(a) or zz + 2 * a * zp + a * a * pp >= radius**2:
            a = (-zp + np.sqrt(zp * zp + pp * (radius**2 - zz))) / pp
            z, Hz = z + a * p, Hz + a * Hp
            break
        z, Hz = z + a * p, Hz + a * Hp
        r = r + a * Hp
        rr, old = np.vdot(r, r), rr
        if rr <= goal:
            break
        p = -r + (rr / old) * p
    return z, -float(np.vdot(gradient, z) + 0.5 * np.vdot(z, Hz)), done
