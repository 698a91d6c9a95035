"""Mixed models of classes and counts, by Laplace's approximation of the likelihood.

For task t with fixed effects beta and random effects b_t = L u_t, u_t ~ N(0, I),

    eta_t = o_t + X_t beta + Z_t L u_t,      g(E y_t) = eta_t with the logit or the logarithm as g.

With the mode u_t of the joint density, M_t = I + L' Z_t' W_t Z_t L and the variances W_t of y_t,

    deviance(L, beta) = sum_t -2 log f(y_t | u_t) + |u_t|^2 + log det M_t

is -2 times the approximate log likelihood (Bates, Machler, Bolker and Walker, J. Stat. Softw.
67(1), 2015; ``glmer`` of lme4 with ``nAGQ = 1``). It is minimised over L and beta by its exact
gradient, in which modes move along:

    M_t du_t = -L' Z_t' W_t (X_t dbeta + Z_t dL u_t) + dL' Z_t' (y_t - E y_t).
"""

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, gammaln

from .reml import MixedFit, check_rank, column_sizes, signed_factor

__all__ = ["fit_laplace"]

_NEWTON, _HALVINGS = 50, 30
_MODE = 1e-11  # of a step of a mode
_TOL = 1e-13  # relative change of the deviance between two iterations
_DONE, _LEFT = 1e-14, 1e-4  # of the deviance that a further step of Newton's method would gain
_FLAT = 1e-4  # least information on a column of unit size: errors of 100 in eta mean separation
_STEP = 1e-4  # of differences of gradients


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
        With one grouping; y are shares of successes, or counts.
    family : {"binomial", "poisson"}
    weight, offset : ndarray (N,)
        Numbers of trials, or weights of rows; terms of eta without a coefficient.
    correlated : bool, default=True
        False: random effects are independent, as ``(x || g)`` of lme4.
    max_iter : int, default=500

    Returns
    -------
    fit : MixedFit
        With sigma2 = 1, and with `influences`.

    Raises
    ------
    ValueError
        If the columns of X are linearly dependent, or no degree of freedom is left.
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
    information = np.linalg.eigvalsh(0.5 * hessian[problem.k :, problem.k :])
    L, beta = problem.parts(params)
    size_x, size_z, k = problem.size_x, problem.size_z, problem.k
    p = len(beta)
    u, M = problem.u, problem.M
    return MixedFit(
        coef=beta / size_x,
        factor=signed_factor(L) / size_z[:, None],
        sigma2=1.0,
        covariance=inverse[k:, k:] / np.outer(size_x, size_x),
        effects=u @ L.T / size_z,
        effects_covariance=L @ np.linalg.inv(M) @ L.T / np.outer(size_z, size_z),
        deviance=float(values.sum() - 2.0 * problem.constant),
        converged=bool(0.25 * total @ inverse @ total < _LEFT and information[0] > _FLAT),
        influences=(-0.5 * slopes @ inverse)[:, k : k + p] / size_x,
    )


class _Problem:
    """The deviance of L and beta, its gradient, and modes, from which the next ones start."""

    def __init__(self, rows, family, weight, offset, correlated):
        self.size_x, self.size_z = column_sizes(rows.X), column_sizes(rows.Z)
        self.X, self.Z, self.y = rows.X / self.size_x, rows.Z / self.size_z, rows.y
        check_rank(self.X, 1.0)
        self.family, self.weight, self.offset = family, weight, offset
        self.starts, self.m = rows.offsets[:-1], len(rows.offsets) - 1
        self.owner = np.repeat(np.arange(self.m), np.diff(rows.offsets))
        q = self.Z.shape[1]
        self.lower = np.tril_indices(q) if correlated else np.diag_indices(q)
        self.k = len(self.lower[0])
        self.ZZ = self.Z[:, :, None] * self.Z[:, None, :]
        self.u = np.zeros((self.m, q))
        self.M = None
        self.constant = family.constant(rows.y, weight)

    def parts(self, params):
        q = self.Z.shape[1]
        L = np.zeros((q, q))
        L[self.lower] = params[: self.k]
        return L, params[self.k :]

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
        q = self.Z.shape[1]
        return np.concatenate([0.5 * np.eye(q)[self.lower], beta])

    def sums(self, values):
        return np.add.reduceat(values, self.starts, axis=0)

    def at(self, L, fixed, u):
        """-> eta, and what a mode minimises, by task"""
        eta = fixed + np.einsum("nq,nq->n", self.Z, (u @ L.T)[self.owner])
        with np.errstate(over="ignore"):
            fits = self.sums(self.weight * self.family.log_density(self.y, eta))
        return eta, (u * u).sum(axis=1) - 2.0 * fits

    def modes(self, L, fixed):
        """-> u, eta, minima, residuals, W, its derivative by eta, Z' W Z, M"""
        u, q = self.u, len(L)
        eta, value = self.at(L, fixed, u)
        other, start = self.at(L, fixed, np.zeros_like(u))
        far = ~(value <= start)
        u = np.where(far[:, None], 0.0, u)
        eta, value = np.where(far[self.owner], other, eta), np.where(far, start, value)
        for _ in range(_NEWTON):
            mean, variance, third = self.family.moments(eta)
            residual, w = self.weight * (self.y - mean), self.weight * variance
            A = self.sums(w[:, None, None] * self.ZZ)
            M = np.eye(q) + L.T @ A @ L
            slope = self.sums(residual[:, None] * self.Z) @ L - u
            step = np.linalg.solve(M, slope[:, :, None])[:, :, 0]
            if not np.abs(step).max(initial=0.0) > _MODE:
                break
            for _ in range(_HALVINGS):
                eta, new = self.at(L, fixed, u + step)
                worse = ~(new <= value + 1e-12 * np.abs(value))
                if not worse.any():
                    break
                step[worse] *= 0.5
            u, value = u + step, new
        self.u, self.M = u, M
        return u, value, residual, w, self.weight * third, A, M

    def by_task(self, params):
        """-> deviance of every task (m,), its gradient (m, k + p)"""
        L, beta = self.parts(params)
        u, value, residual, w, third, A, M = self.modes(L, self.offset + self.X @ beta)
        inverse = np.linalg.inv(M)
        spread = L @ inverse @ L.T
        # Of log det M by eta, directly and by the modes.
        g = third * np.einsum("nab,nab->n", self.ZZ, spread[self.owner])
        c = np.einsum("mab,mb->ma", inverse, self.sums(g[:, None] * self.Z) @ L)
        g_all = g - w * np.einsum("nq,nq->n", self.Z, (c @ L.T)[self.owner])
        by_beta = self.sums((g_all - 2.0 * residual)[:, None] * self.X)
        Zr, Zg = (self.sums(v[:, None] * self.Z) for v in (residual, g_all))
        by_L = np.einsum("ma,mb->mab", Zg - 2.0 * Zr, u) + np.einsum("ma,mb->mab", Zr, c)
        by_L += 2.0 * A @ L @ inverse
        slopes = np.concatenate([by_L[:, self.lower[0], self.lower[1]], by_beta], axis=1)
        return value + np.linalg.slogdet(M)[1], slopes

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
