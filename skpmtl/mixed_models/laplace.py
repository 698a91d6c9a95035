"""Mixed models of classes and counts, by Laplace's approximation of the likelihood.

For task t with fixed effects beta and random effects b_t = L u_t, u_t ~ N(0, I),

    eta_t = o_t + X_t beta + Z_t L u_t,      g(E y_t) = eta_t with the logit or the logarithm as g.

With the mode u_t of the joint density, M_t = I + L' Z_t' W_t Z_t L and the variances W_t of y_t,

    deviance(L, beta) = sum_t -2 log f(y_t | u_t) + |u_t|^2 + log det M_t

is -2 times the approximate log likelihood (Bates, Machler, Bolker and Walker, J. Stat. Softw.
67(1), 2015; ``glmer`` of lme4 with ``nAGQ = 1``). It is minimised over L and beta by its exact
gradient, in which modes move along:

    M_t du_t = -L' Z_t' W_t (X_t dbeta + Z_t dL u_t) + dL' Z_t' (y_t - E y_t).

Further groupings, nested or crossed, have intercepts tau_k v, v ~ N(0, I), behind those of tasks.
Rows then have columns (L' z, tau) of all that is random, and M has the blocks M_t, what these share
with levels, S_t, and one of levels, of which R = I + (tau W)' W (tau W) - sum_t S_t' M_t^-1 S_t is
left; log det M is sum_t log det M_t + log det R (section 3.4 of the same paper).
"""

import math

import numpy as np
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import expit, gammaln

from .reml import column_sizes, in_units

__all__ = ["fit_laplace"]

_NEWTON, _HALVINGS = 50, 30
_MODE = 1e-11  # of a step of a mode
_TOL = 1e-13  # relative change of the deviance between two iterations
_DONE, _LEFT = 1e-14, 1e-4  # of the deviance that a further step of Newton's method would gain
_FLAT = 1e-4  # least information on a column of unit size: errors of 100 in eta mean separation
_PART = 0.01  # of a direction without information: effects with more of it have no errors
_STEP = 1e-4  # of differences of gradients
_NUMBERS = 1 << 22  # of rows by levels at a time


class _Binomial:
    @staticmethod
    def log_density(y, eta):
        return y * eta - np.logaddexp(0.0, eta)

    @staticmethod
    def moments(eta):
        """-> mean, variance, and the derivative of the variance by eta"""
        mean = expit(eta)
        variance = mean * (1.0 - mean)
        return mean, variance, variance * (1.0 - 2.0 * mean)

    @staticmethod
    def constant(y, weight):
        """Of the log density; weights are numbers of trials."""
        k = y * weight
        parts = gammaln(weight + 1.0) - gammaln(k + 1.0) - gammaln(weight - k + 1.0)
        return float(parts.sum())

    @staticmethod
    def link(mean):
        return np.log(mean / (1.0 - mean))


class _Poisson:
    @staticmethod
    def log_density(y, eta):
        return y * eta - np.exp(eta)

    @staticmethod
    def moments(eta):
        mean = np.exp(eta)
        return mean, mean, mean

    @staticmethod
    def constant(y, weight):
        return -float((weight * gammaln(y + 1.0)).sum())

    @staticmethod
    def link(mean):
        return np.log(mean)


FAMILIES = {"binomial": _Binomial, "poisson": _Poisson}


def fit_laplace(rows, family, *, weight, offset, correlated=True, max_iter=500):
    """Maximise the approximate likelihood.

    Parameters
    ----------
    rows : GroupedRows
        y are shares of successes, or counts; entries of `others` are ones.
    family : {"binomial", "poisson"}
    weight, offset : ndarray (N,)
        Numbers of trials, or weights of rows; terms of eta without a coefficient.
    correlated : bool, default=True
        False: random effects are independent, as ``(x || g)`` of lme4.
    max_iter : int, default=500

    Returns
    -------
    fit : MixedFit
        With sigma2 = 1; with one grouping also `influences`.
    """
    problem = _Problem(rows, FAMILIES[family], weight, offset, correlated)
    options = {"maxiter": max_iter, "maxfun": 2 * max_iter, "ftol": _TOL, "gtol": 0.0}
    start = problem.start()
    found = minimize(problem.total, start, jac=True, method="L-BFGS-B", options=options)
    params, hessian, inverse = found.x, None, None
    for _ in range(_NEWTON):  # the matrix of the errors ends what a line search cannot
        hessian = problem.hessian(params)
        inverse = np.linalg.pinv(0.5 * hessian, rcond=1e-10, hermitian=True)
        value, slope = problem.total(params)
        step = -0.5 * inverse @ slope
        rounding = 1e-12 * abs(value)
        if not -slope @ step > _DONE or not problem.total(params + step)[0] < value + rounding:
            break
        params = params + step
    values, slopes = problem.by_task(params)
    total = slopes.sum(axis=0)
    L, tau, beta = problem.parts(params)
    (u, v), k = problem.mode, problem.k
    information, flat = np.linalg.eigh(0.5 * hessian[k:, k:])
    flat = problem.root @ flat[:, ~(information > _FLAT)]
    covariance = problem.root @ inverse[k:, k:] @ problem.root.T
    influences = (-0.5 * slopes @ inverse)[:, k:] @ problem.root.T
    untold = (np.abs(flat) * column_sizes(rows.X)[:, None] > _PART).any(axis=1)
    covariance[untold] = covariance[:, untold] = influences[:, untold] = np.nan
    return in_units(
        (1.0, problem.size_z),
        *(1.0, problem.root @ beta, covariance, L, u @ L.T, L @ problem.covariances() @ L.T),
        values.sum() - 2.0 * problem.constant,
        bool(0.25 * total @ inverse @ total < _LEFT and flat.size == 0),
        other_effects=problem.by_grouping(problem.each(tau) * v),
        other_std=np.abs(tau),
        influences=None if problem.counts else influences,
    )


class _Problem:
    """The deviance of L, tau and beta, its gradient, and modes, from which the next ones start."""

    def __init__(self, rows, family, weight, offset, correlated):
        self.size_z = column_sizes(rows.Z)
        # Effects are those of orthogonal columns of size one, wherever the origin of X is.
        self.root = math.sqrt(len(rows.X)) * np.linalg.inv(np.linalg.qr(rows.X, mode="r"))
        self.X, self.Z, self.y = rows.X @ self.root, rows.Z / self.size_z, rows.y
        self.family, self.weight, self.offset = family, weight, offset
        self.starts, self.m = rows.offsets[:-1], len(rows.offsets) - 1
        self.owner = np.repeat(np.arange(self.m), np.diff(rows.offsets))
        (N, q), self.counts = self.Z.shape, [W.shape[1] for W in rows.others]
        self.lower = np.tril_indices(q) if correlated else np.diag_indices(q)
        self.n_lower = len(self.lower[0])
        self.k = self.n_lower + len(self.counts)
        self.ZZ = self.Z[:, :, None] * self.Z[:, None, :]
        empty = sparse.csr_array((N, 0))
        self.W = sparse.hstack(rows.others, format="csr") if self.counts else empty
        # Z of all tasks at once, (N, m q).
        place = self.owner[:, None] * q + np.arange(q)
        tall = self.Z.ravel(), place.ravel(), np.arange(N + 1) * q
        self.tall = sparse.csr_array(tall, shape=(N, self.m * q))
        self.mode = np.zeros((self.m, q)), np.zeros(sum(self.counts))
        self.constant = family.constant(rows.y, weight)

    def parts(self, params):
        """-> L, tau, beta"""
        q = self.Z.shape[1]
        L = np.zeros((q, q))
        L[self.lower] = params[: self.n_lower]
        return L, params[self.n_lower : self.k], params[self.k :]

    def each(self, values):
        """Of further groupings, for each of their levels."""
        return np.repeat(values, self.counts)

    def by_grouping(self, values):
        return tuple(np.split(values, np.cumsum(self.counts)[:-1])) if self.counts else ()

    def start(self):
        """Half of unit spreads, and beta by Newton's method without random effects."""
        total = self.weight.sum()
        mean = np.clip((self.weight @ self.y) / total, 1e-6, None)
        mean = min(mean, 1.0 - 1e-6) if self.family is _Binomial else mean
        eta = np.full(len(self.y), self.family.link(mean))
        beta = np.zeros(self.X.shape[1])
        for _ in range(8):
            fitted, variance, _ = self.family.moments(eta)
            w = self.weight * np.maximum(variance, 1e-8)
            target = eta - self.offset + self.weight * (self.y - fitted) / w
            root = np.sqrt(w)
            beta = np.linalg.lstsq(root[:, None] * self.X, root * target, rcond=None)[0]
            eta = np.clip(self.offset + self.X @ beta, -30.0, 30.0)
        spreads = 0.5 * np.eye(self.Z.shape[1])[self.lower]
        return np.concatenate([spreads, np.full(len(self.counts), 0.5), beta])

    def sums(self, values):
        return np.add.reduceat(values, self.starts, axis=0)

    def at(self, L, tau, fixed, u, v):
        """-> eta, and what a mode minimises, by task; with further groupings of all alike"""
        eta = fixed + np.einsum("nq,nq->n", self.Z, (u @ L.T)[self.owner])
        eta = eta + self.W @ (tau * v)
        with np.errstate(over="ignore"):
            fits = self.sums(self.weight * self.family.log_density(self.y, eta))
        value = (u * u).sum(axis=1) - 2.0 * fits
        return eta, np.full(self.m, value.sum() + v @ v) if self.counts else value

    def blocks(self, L, tau, w):
        """-> Z' W Z, M, and of levels S, M^-1 S and R"""
        q = len(L)
        A = self.sums(w[:, None, None] * self.ZZ)
        M = np.eye(q) + L.T @ A @ L
        weighted = self.W.multiply(w[:, None]).tocsr()
        S = L.T @ (self.tall.T @ weighted).toarray().reshape(self.m, q, len(tau)) * tau
        B = np.linalg.solve(M, S)
        R = np.eye(len(tau)) + np.outer(tau, tau) * (self.W.T @ weighted).toarray()
        return A, M, B, R - np.tensordot(S, B, axes=([0, 1], [0, 1]))

    @staticmethod
    def solved(M, B, R, u, v):
        """M^-1 (u, v) of all that is random."""
        v = np.linalg.solve(R, v - np.tensordot(u, B, axes=([0, 1], [0, 1])))
        return np.linalg.solve(M, u[:, :, None])[:, :, 0] - B @ v, v

    def modes(self, L, tau, fixed):
        """-> u, v, minima, residuals, W, its derivative by eta, `blocks`"""
        u, v = self.mode
        eta, value = self.at(L, tau, fixed, u, v)
        other, start = self.at(L, tau, fixed, np.zeros_like(u), np.zeros_like(v))
        far = ~(value <= start)
        u = np.where(far[:, None], 0.0, u)
        v = v * (not far.all())
        eta, value = np.where(far[self.owner], other, eta), np.where(far, start, value)
        for _ in range(_NEWTON):
            mean, variance, third = self.family.moments(eta)
            residual, w = self.weight * (self.y - mean), self.weight * variance
            A, M, B, R = self.blocks(L, tau, w)
            slope = self.sums(residual[:, None] * self.Z) @ L - u
            step, of_levels = self.solved(M, B, R, slope, tau * (self.W.T @ residual) - v)
            if not max(np.abs(x).max(initial=0.0) for x in (step, of_levels)) > _MODE:
                break
            for _ in range(_HALVINGS):
                eta, new = self.at(L, tau, fixed, u + step, v + of_levels)
                worse = ~(new <= value + 1e-12 * np.abs(value))
                if not worse.any():
                    break
                step[worse] *= 0.5
                of_levels = of_levels * 0.5
            u, v, value = u + step, v + of_levels, new
        self.mode, self.known = (u, v), (M, B, R)
        return u, v, value, residual, w, self.weight * third, A, M, B, R

    def covariances(self):
        """Of u of the tasks at the last mode, (m, q, q)."""
        M, B, R = self.known
        return np.linalg.inv(M) + B @ np.linalg.solve(R, B.transpose(0, 2, 1))

    def by_task(self, params):
        """-> deviance (m,) and gradient (m, k + p), of which the sums are those of all tasks"""
        L, tau, beta = self.parts(params)
        tau = self.each(tau)
        u, v, value, residual, w, third, A, M, B, R = self.modes(
            L, tau, self.offset + self.X @ beta
        )
        inverse = np.linalg.inv(M)
        spread = L @ inverse @ L.T
        # Of log det M by eta, directly and by the modes.
        lever, along = np.einsum("nab,nab->n", self.ZZ, spread[self.owner]), A @ L @ inverse
        of_levels = np.zeros(len(tau))
        if self.counts:
            own, of_levels, along_levels = self.levers(L, tau, w, B, R)
            lever, along = lever + own, along + along_levels
        g = third * lever
        c, d = self.solved(M, B, R, self.sums(g[:, None] * self.Z) @ L, tau * (self.W.T @ g))
        moved = np.einsum("nq,nq->n", self.Z, (c @ L.T)[self.owner]) + self.W @ (tau * d)
        g_all = g - w * moved
        by_beta = self.sums((g_all - 2.0 * residual)[:, None] * self.X)
        Zr, Zg = (self.sums(x[:, None] * self.Z) for x in (residual, g_all))
        by_L = np.einsum("ma,mb->mab", Zg - 2.0 * Zr, u) + np.einsum("ma,mb->mab", Zr, c)
        by_L += 2.0 * along
        by_tau = self.W.T @ (g_all - 2.0 * residual) * v + self.W.T @ residual * d
        by_tau = (by_tau + 2.0 * of_levels) / self.m
        by_L = by_L[:, self.lower[0], self.lower[1]]
        by_tau = np.array([part.sum() for part in self.by_grouping(by_tau)])
        by_tau = np.broadcast_to(by_tau, (self.m, len(self.counts)))
        value = value / self.m if self.counts else value
        value = value + np.linalg.slogdet(M)[1] + np.linalg.slogdet(R)[1] / self.m
        return value, np.concatenate([by_L, by_tau, by_beta], axis=1)

    def levers(self, L, tau, w, B, R):
        """What further groupings add to z' M^-1 z of a row, (N,); sums over rows of W times M^-1
        times their columns, by level (K,) and with Z, what levels add, (m, q, q)."""
        N, q = self.Z.shape
        lever, by_level, by_task = np.zeros(N), np.zeros(len(tau)), np.zeros((self.m, q, q))
        size = max(_NUMBERS // max(len(tau), 1), 1)
        for first in range(0, N, size):
            some = slice(first, first + size)
            of = self.owner[some]
            z = self.Z[some] @ L
            left = (self.W[some].multiply(tau)).toarray() - np.einsum("nq,nqk->nk", z, B[of])
            solved = np.linalg.solve(R, left.T).T
            lever[some] = np.einsum("nk,nk->n", left, solved)
            by_level += (self.W[some].multiply(w[some, None] * solved)).sum(axis=0)
            moved = -np.einsum("nqk,nk->nq", B[of], solved)
            both = w[some, None, None] * self.Z[some][:, :, None] * moved[:, None]
            np.add.at(by_task, of, both)
        return lever, by_level, by_task

    def total(self, params):
        value, slopes = self.by_task(params)
        return value.sum(), slopes.sum(axis=0)

    def hessian(self, params):
        columns = []
        for j in range(len(params)):
            move = np.zeros(len(params))
            move[j] = _STEP * max(1.0, abs(params[j]))
            ahead, behind = self.total(params + move)[1], self.total(params - move)[1]
            columns.append((ahead - behind) / (2.0 * move[j]))
        found = np.array(columns)
        return 0.5 * (found + found.T)
