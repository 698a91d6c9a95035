"""Gaussian mixed models by restricted maximum likelihood.

For task t with n_t rows, fixed effects beta and random effects b_t,

    y_t = X_t beta + Z_t b_t + e_t,    b_t ~ N(0, sigma^2 L L'),    e_t ~ N(0, sigma^2 I),

with L a lower triangular matrix (Bates, Machler, Bolker and Walker, J. Stat. Softw. 67(1), 2015;
there it is called Lambda). With M_t = I + L' Z_t' Z_t L and G_t = L M_t^-1 L', the matrix that is
inverse to the covariance of y_t is (I - Z_t G_t Z_t') / sigma^2, so that

    R = sum_t X_t' X_t - X_t' Z_t G_t Z_t' X_t,      beta = R^-1 sum_t X_t' (I - Z_t G_t Z_t') y_t,
    deviance(L) = sum_t log det M_t + log det R + (N - p) log(rss / (N - p)) + constant

need nothing of a task but Z_t' (Z_t, X_t, y_t). An evaluation is linear in the number of tasks.

Further groupings, nested or crossed, have intercepts u_k ~ N(0, sigma^2 tau_k^2). Their indicators
W_k tau_k are columns behind those of X, with the identity added to their block of R: determinant
and rss are then those above (section 3.4 of the same paper), and R has a row for every level.
"""

from dataclasses import dataclass, field, replace

import numpy as np
from scipy import sparse
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from .._runtime.jit import njit

__all__ = ["GroupedRows", "MixedFit", "fit_mixed"]

_TOL = 1e-12  # relative change of the deviance between two iterations
_LEFT = 1e-6  # of the deviance: what another step of Newton's method may still take off it
_ROWS = 1 << 16  # that are looked at together for their rank
_BLOCK = 1 << 15  # tasks whose errors are computed at a time
_ALONE = 1e-9  # what is left of a score below this is rounding
_FLAT, _AWAY = 0.05, 0.3  # of L: nearly nothing, and where to start again


@dataclass
class GroupedRows:
    """Rows of all tasks, sorted by task.

    Attributes
    ----------
    X : ndarray (N, p)
        Columns of the fixed effects, of full rank.
    Z : ndarray (N, q)
        Columns of the random effects; q = 0 is least squares.
    y : ndarray (N,)
    offsets : ndarray (m + 1,)
        Rows of task t are ``offsets[t]:offsets[t + 1]``.
    others : tuple of csr_array (N, n_levels)
        Indicators of the levels of further groupings, times what rows are multiplied by.
    """

    X: np.ndarray
    Z: np.ndarray
    y: np.ndarray
    offsets: np.ndarray
    others: tuple = ()

    def among(self, first, last):
        """The rows of tasks ``first:last``."""
        lo, hi = self.offsets[first], self.offsets[last]
        offsets = self.offsets[first : last + 1] - lo
        return GroupedRows(self.X[lo:hi], self.Z[lo:hi], self.y[lo:hi], offsets)

    def products(self):
        """-> Z'Z (m, q, q), Z'X (m, q, p), Z'y (m, q)"""
        m, (_, p), q = len(self.offsets) - 1, self.X.shape, self.Z.shape[1]
        ZZ, ZX, Zy = np.zeros((m, q, q)), np.zeros((m, q, p)), np.zeros((m, q))
        _products(self.X, self.Z, self.y, self.offsets, ZZ, ZX, Zy)
        return ZZ, ZX, Zy


@dataclass
class MixedFit:
    """Estimates of a mixed model.

    Attributes
    ----------
    coef : ndarray (p,)
        beta
    factor : ndarray (q, q)
        L
    sigma2 : float
        Residual variance.
    covariance : ndarray (p, p)
        Of beta under the model: sigma^2 R^-1.
    effects : ndarray (m, q)
        Posterior means of b_t (BLUPs).
    effects_covariance : ndarray (m, q, q)
        Their posterior covariances given beta: sigma^2 G_t.
    deviance : float
        -2 times the restricted log likelihood (of classes and counts: the log likelihood), with all
        constants.
    converged : bool
    other_effects : tuple of ndarray
        Posterior means of the intercepts of further groupings.
    other_std : ndarray
        Their standard deviations, sigma tau_k.
    influences : ndarray (m, p) or None
        Of classes and counts: scores of the tasks, times the inverse information; they sum to zero,
        and their squares are the sandwich.
    """

    coef: np.ndarray
    factor: np.ndarray
    sigma2: float
    covariance: np.ndarray
    effects: np.ndarray
    effects_covariance: np.ndarray
    deviance: float
    converged: bool
    other_effects: tuple = ()
    other_std: np.ndarray = field(default_factory=lambda: np.zeros(0))
    influences: np.ndarray | None = None

    @property
    def random_covariance(self):
        """Covariance of the random effects, (q, q)."""
        return self.sigma2 * self.factor @ self.factor.T

    def cluster_robust(self, rows, kind="CR2"):
        """Covariance of beta that holds whatever the covariance within tasks.

        Parameters
        ----------
        rows : GroupedRows
            Those of the fit.
        kind : {"CR0", "CR1", "CR2", "CR3"}, default="CR2"
            "CR0": sandwich of the scores s_t = X_t' (I - Z_t G_t Z_t') (y_t - X_t beta). "CR1":
            times m / (m - 1) (N - 1) / (N - p), as statsmodels has it. "CR2": scores multiplied by
            (I - S_t)^-1/2, with S_t a task's part of R in the basis in which R is the identity,
            which has no bias where the covariance is that of the model (Bell and McCaffrey, Surv.
            Methodol. 28(2), 2002). "CR3": by (I - S_t)^-1, close to the jackknife over tasks.

        Returns
        -------
        covariance : ndarray (p, p)
        dof : ndarray (p,)
            Degrees of freedom of every standard error, by the method of Satterthwaite under the
            model (Pustejovsky and Tipton, J. Bus. Econ. Stat. 36(4), 2018); m - 1 for "CR0" and
            "CR1".

        Raises
        ------
        ValueError
            With further groupings, across which tasks are not independent.
        """
        _check_alone(rows.others)
        m, (N, p) = len(rows.offsets) - 1, rows.X.shape
        power = {"CR0": 0.0, "CR1": 0.0, "CR2": -0.5, "CR3": -1.0}[kind]
        half = np.linalg.cholesky(self.covariance / self.sigma2)  # half half' = R^-1
        meat, inner, first, second = np.zeros((p, p)), np.zeros((p, p, p)), 0.0, 0.0
        for lo in range(0, m, _BLOCK):
            scores, parts = self._scores(rows.among(lo, min(lo + _BLOCK, m)), half)
            if power:
                values, vectors = np.linalg.eigh(parts)
                # A coefficient of one task alone has S_t = 1 in its direction, and no score.
                left = 1.0 - values
                weights = np.where(left > _ALONE, np.maximum(left, _ALONE) ** power, 0.0)
                adjust = (vectors * weights[:, None, :]) @ vectors.transpose(0, 2, 1)
                scores = np.einsum("tij,tj->ti", adjust, scores)
                # Of coefficient k, the scores of a task have variance d and covariances k k'.
                w = half @ adjust
                k = w @ parts
                d, size = np.einsum("tki,tki->tk", w, k), np.einsum("tki,tki->tk", k, k)
                inner += np.einsum("tki,tkj->kij", k, k)
                first = first + (d - size).sum(axis=0)
                second = second + (d * d - 2.0 * d * size).sum(axis=0)
            meat += scores.T @ scores
        if kind == "CR1":
            meat *= m / (m - 1.0) * (N - 1.0) / (N - p)
        covariance = half @ meat @ half.T
        if not power:
            return covariance, np.full(p, m - 1.0)
        second = second + np.einsum("kij,kij->k", inner, inner)
        return covariance, first**2 / np.maximum(second, 1e-300)

    def sandwich(self, kind):
        """`cluster_robust` of classes and counts, by the influences of tasks.

        Parameters
        ----------
        kind : {"CR0", "CR1"}
            "CR1": times m / (m - 1).

        Returns
        -------
        covariance : ndarray (p, p)
        dof : float

        Raises
        ------
        ValueError
            For "CR2" and "CR3", with further groupings, and with one task.
        """
        _check_alone(self.other_effects)
        if kind not in ("CR0", "CR1"):
            raise ValueError(f'kind={kind!r} is of means: classes and counts have "CR0", "CR1".')
        m = len(self.influences)
        if m < 2:
            raise ValueError('Robust errors need two tasks or more: take kind="model".')
        factor = m / (m - 1.0) if kind == "CR1" else 1.0
        return factor * self.influences.T @ self.influences, m - 1.0

    def _scores(self, rows, half):
        """Scores of tasks (m, p) and their parts of R (m, p, p), in the basis `half`."""
        residuals = replace(rows, y=rows.y - rows.X @ self.coef)
        ZZ, ZX, Ze = residuals.products()
        XX, _, Xe = replace(residuals, Z=rows.X).products()
        GX = _gains(ZZ, self.factor) @ ZX  # (m, q, p)
        scores = (Xe - np.einsum("tqi,tq->ti", GX, Ze)) @ half
        return scores, half.T @ (XX - ZX.transpose(0, 2, 1) @ GX) @ half


def _check_alone(others):
    """ValueError with further groupings, across which tasks are not independent."""
    if others:
        raise ValueError(
            "Errors that are robust within tasks need one grouping: take those of the model, "
            'kind="model".'
        )


def fit_mixed(rows, *, correlated=True, max_iter=500):
    """Maximise the restricted likelihood.

    Parameters
    ----------
    rows : GroupedRows
    correlated : bool, default=True
        False: random effects are independent, as ``(x || g)`` of lme4.
    max_iter : int, default=500

    Returns
    -------
    fit : MixedFit

    """
    if rows.others:
        return _fit_with_others(rows, correlated, max_iter)
    X, y = rows.X, rows.y
    (N, p), q = X.shape, rows.Z.shape[1]
    size_x, size_z = column_sizes(X), column_sizes(rows.Z)
    # Products are those of columns of one size; results are in units of the user.
    ZZ, ZX, Zy = rows.products()
    ZZ /= np.outer(size_z, size_z)
    ZX /= np.outer(size_z, size_x)
    Zy /= size_z
    totals = X.T @ X / np.outer(size_x, size_x), X.T @ y / size_x, float(y @ y)
    lower = np.tril_indices(q) if correlated else np.diag_indices(q)
    on_diagonal = lower[0] == lower[1]

    def factor_of(theta):
        L = np.zeros((q, q))
        L[lower] = theta
        return L

    def profile(L):
        R, r = totals[0].copy(), totals[1].copy()
        fits, logdet = _reduce(ZZ, ZX, Zy, L, R, r)
        chol = cho_factor(R, lower=True)
        beta = cho_solve(chol, r)
        rss = max(totals[2] - fits - beta @ r, 1e-300)
        value = logdet + 2.0 * np.log(np.diag(chol[0])).sum()
        return value + (N - p) * np.log(rss / (N - p)), beta, rss, cho_solve(chol, np.eye(p))

    def objective(theta):
        L = factor_of(theta)
        value, beta, rss, inverse = profile(L)
        slope = np.zeros((q, q))
        _slopes(ZZ, ZX, Zy, L, beta, inverse, (N - p) / rss, slope)
        return value, slope[lower]

    def climb(start):
        options = {"maxiter": max_iter, "maxfun": 2 * max_iter, "ftol": _TOL, "gtol": 0.0}
        return minimize(objective, start, jac=True, method="L-BFGS-B", options=options)

    theta, converged = np.zeros(0), True
    if q:
        found = climb(np.eye(q)[lower])
        for _ in range(q):
            # Where a diagonal number is zero its slope is, too: it may be a saddle.
            flat = on_diagonal & (np.abs(found.x) < _FLAT * max(np.abs(found.x).max(), 1.0))
            if not flat.any():
                break
            other = climb(np.where(flat, _AWAY, found.x))
            better = other.fun < found.fun - _TOL * abs(found.fun)
            found = other if other.fun < found.fun else found
            if not better:
                break
        theta = found.x
        converged = _is_minimum(found)
    L = factor_of(theta)
    value, beta, rss, inverse = profile(L)
    sigma2 = rss / (N - p)
    spread = _gains(ZZ, L)
    effects = np.einsum("tij,tj->ti", spread, Zy - ZX @ beta)
    value += _constant(N - p, size_x)
    return in_units((size_x, size_z), sigma2, beta, inverse, L, effects, spread, value, converged)


def _constant(dof, size_x):
    """Of the restricted likelihood for X in the units of the user."""
    return dof * (1.0 + np.log(2.0 * np.pi)) + 2.0 * np.log(size_x).sum()


def in_units(sizes, sigma2, coef, inverse, L, effects, spread, deviance, converged, **more):
    """`MixedFit` from numbers of columns that were divided by their sizes, of X and Z."""
    x, z = sizes
    return MixedFit(
        coef=coef / x,
        factor=signed_factor(L) / z[:, None],
        sigma2=sigma2,
        covariance=sigma2 * inverse / np.outer(x, x),
        effects=effects / z,
        effects_covariance=sigma2 * spread / np.outer(z, z),
        deviance=float(deviance),
        converged=converged,
        **more,
    )


def _is_minimum(found):
    """Line searches end at rounding, too, which is no failure where no step would gain anything."""
    return bool(found.success or 0.5 * found.jac @ found.hess_inv.dot(found.jac) < _LEFT)


def _fit_with_others(rows, correlated, max_iter):
    (N, p), q, m = rows.X.shape, rows.Z.shape[1], len(rows.offsets) - 1
    size_x, size_z = column_sizes(rows.X), column_sizes(rows.Z)
    scaled = GroupedRows(rows.X / size_x, rows.Z / size_z, rows.y, rows.offsets)
    ZZ, ZX, Zy = scaled.products()
    counts = [W.shape[1] for W in rows.others]
    W = sparse.hstack(rows.others, format="csr")
    # Z' of all tasks at once, (m q, N): entries of one row stand in a column.
    owner = np.repeat(np.arange(m), np.diff(rows.offsets))[:, None] * q + np.arange(q)
    ends = np.arange(N + 1) * q
    tall = sparse.csr_array((scaled.Z.ravel(), owner.ravel(), ends), shape=(N, m * q))
    S = sparse.hstack([sparse.csr_array(ZX.reshape(m * q, p)), tall.T @ W], format="csr")
    both = sparse.hstack([sparse.csr_array(scaled.X), W], format="csr")
    K, k, yy = (both.T @ both).toarray(), both.T @ rows.y, float(rows.y @ rows.y)
    lower = np.tril_indices(q) if correlated else np.diag_indices(q)
    n_factor = len(lower[0])

    def profile(theta):
        L = np.zeros((q, q))
        L[lower] = theta[:n_factor]
        scale = np.concatenate([np.ones(p), np.repeat(theta[n_factor:], counts)])
        G = _gains(ZZ, L)
        M = np.eye(q) + L.T @ ZZ @ L
        blocks = sparse.bsr_array((G, np.arange(m), np.arange(m + 1)), shape=(m * q, m * q))
        GS = blocks @ S
        R = (K - (S.T @ GS).toarray()) * np.outer(scale, scale)
        R[np.arange(p, len(R)), np.arange(p, len(R))] += 1.0
        r = scale * (k - GS.T @ Zy.ravel())
        chol = cho_factor(R, lower=True)
        beta = cho_solve(chol, r)
        fits = np.einsum("ti,tij,tj->", Zy, G, Zy)
        rss = max(yy - fits - beta @ r, 1e-300)
        value = np.linalg.slogdet(M)[1].sum() + 2.0 * np.log(np.diag(chol[0])).sum()
        value += (N - p) * np.log(rss / (N - p))
        return value, L, G, scale, beta, rss, chol

    start = np.concatenate([np.eye(q)[lower], np.ones(len(counts))])
    options = {"maxiter": max_iter, "ftol": 1e-13, "gtol": 0.0}
    found = minimize(
        lambda t: profile(t)[0], start, method="L-BFGS-B", jac="3-point", options=options
    )
    value, L, G, scale, beta, rss, chol = profile(found.x)
    sigma2 = rss / (N - p)
    free = scale * beta
    inverse = cho_solve(chol, np.eye(len(beta)))[:p, :p]
    effects = np.einsum("tij,tj->ti", G, Zy - (S @ free).reshape(m, q))
    value, beta = value + _constant(N - p, size_x), beta[:p]
    known = sigma2, beta, inverse, L, effects, G, value, _is_minimum(found)
    of_others = {"other_effects": tuple(np.split(free[p:], np.cumsum(counts)[:-1]))}
    of_others["other_std"] = np.sqrt(sigma2) * np.abs(found.x[n_factor:])
    return in_units((size_x, size_z), *known, **of_others)


def column_sizes(columns):
    size = np.sqrt(np.einsum("ij,ij->j", columns, columns) / len(columns))
    return np.where(size > 0, size, 1.0)


def independent(X):
    """Columns of X (N, p) that are no combination of columns before them, as R keeps them.

    -> ndarray of int

    Raises
    ------
    ValueError
        If no degree of freedom is left.
    """
    sizes, (N, p) = column_sizes(X), X.shape
    root = np.zeros((0, p))  # of rows so far, as their triangular factor
    for first in range(0, N, _ROWS):
        root = np.linalg.qr(np.r_[root, X[first : first + _ROWS] / sizes], mode="r")
    kept: list = []
    for j in range(p):
        more = [*kept, j]
        if np.linalg.matrix_rank(root[:, more], tol=1e-10 * np.sqrt(N)) == len(more):
            kept = more
    if N <= len(kept):
        raise ValueError(f"{N} rows cannot determine {len(kept)} fixed effects and their errors.")
    return np.array(kept, dtype=int)


@njit
def _products(X, Z, y, offsets, ZZ, ZX, Zy):
    p, q = X.shape[1], Z.shape[1]
    for t in range(len(offsets) - 1):
        for i in range(offsets[t], offsets[t + 1]):
            for a in range(q):
                z = Z[i, a]
                for b in range(q):
                    ZZ[t, a, b] += z * Z[i, b]
                for j in range(p):
                    ZX[t, a, j] += z * X[i, j]
                Zy[t, a] += z * y[i]


@njit
def _gain(ZZ, L, M, H, G):
    """G = L M^-1 L' with M = I + L' ZZ L. -> log det M; M and H are work space"""
    q, logdet = len(L), 0.0
    for a in range(q):  # the lower root of M, in its place
        for b in range(a + 1):
            s = 1.0 if a == b else 0.0
            for i in range(q):
                for j in range(q):
                    s += L[i, a] * ZZ[i, j] * L[j, b]
            for k in range(b):
                s -= M[a, k] * M[b, k]
            M[a, b] = np.sqrt(s) if a == b else s / M[b, b]
        logdet += 2.0 * np.log(M[a, a])
    for a in range(q):  # H = M^-1 L'
        for j in range(q):
            s = L[j, a]
            for b in range(a):
                s -= M[a, b] * H[b, j]
            H[a, j] = s / M[a, a]
    for i in range(q):
        for j in range(q):
            s = 0.0
            for a in range(q):
                s += H[a, i] * H[a, j]
            G[i, j] = s
    return logdet


@njit
def _gains(ZZ, L):
    """G of every task, (m, q, q)."""
    m, q = len(ZZ), len(L)
    M, H, out = np.zeros((q, q)), np.zeros((q, q)), np.zeros((m, q, q))
    for t in range(m):
        _gain(ZZ[t], L, M, H, out[t])
    return out


@njit
def _reduce(ZZ, ZX, Zy, L, R, r):
    """Take the parts of all tasks off R and r. -> the same of y'y, sum of log det M"""
    m, q, p = ZX.shape
    M, H, G, F = np.zeros((q, q)), np.zeros((q, q)), np.zeros((q, q)), np.zeros((q, p))
    fits, logdet = 0.0, 0.0
    for t in range(m):
        logdet += _gain(ZZ[t], L, M, H, G)
        for a in range(q):
            f = 0.0
            for b in range(q):
                f += G[a, b] * Zy[t, b]
            fits += f * Zy[t, a]
            for i in range(p):
                r[i] -= ZX[t, a, i] * f
                s = 0.0
                for b in range(q):
                    s += G[a, b] * ZX[t, b, i]
                F[a, i] = s
        for a in range(q):
            for i in range(p):
                for j in range(p):
                    R[i, j] -= ZX[t, a, i] * F[a, j]
    return fits, logdet


@njit
def _slopes(ZZ, ZX, Zy, L, beta, inverse, scale, out):
    """Derivatives of the deviance by L, added to out."""
    m, q, p = ZX.shape
    M, H, G = np.zeros((q, q)), np.zeros((q, q)), np.zeros((q, q))
    P, U, u = np.zeros((q, q)), np.zeros((q, p)), np.zeros(q)
    W = np.zeros((q, q))  # sum of U R^-1 U' + scale u u'
    for t in range(m):
        _gain(ZZ[t], L, M, H, G)
        for i in range(q):
            for j in range(q):
                s = 1.0 if i == j else 0.0
                for k in range(q):
                    s -= ZZ[t, i, k] * G[k, j]
                P[i, j] = s
        for i in range(q):
            s = 0.0
            for k in range(q):
                e = Zy[t, k]
                for j in range(p):
                    e -= ZX[t, k, j] * beta[j]
                s += P[i, k] * e
            u[i] = s
            for j in range(p):
                s = 0.0
                for k in range(q):
                    s += P[i, k] * ZX[t, k, j]
                U[i, j] = s
        for i in range(q):
            for k in range(q):
                s = scale * u[i] * u[k]
                for a in range(p):
                    for b in range(p):
                        s += U[i, a] * inverse[a, b] * U[k, b]
                # The determinant: ZZ L M^-1 = (I - ZZ G) ZZ L.
                d = 0.0
                for j in range(q):
                    d += P[i, j] * ZZ[t, j, k]
                W[i, k] += s - d
    for i in range(q):
        for j in range(q):
            s = 0.0
            for k in range(q):
                s += W[i, k] * L[k, j]
            out[i, j] -= 2.0 * s


def signed_factor(L):
    """The same L L' with a diagonal that is not negative."""
    return L * np.where(np.diag(L) < 0, -1.0, 1.0)
