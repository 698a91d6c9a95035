"""Proportional hazards with a normal frailty of every task, by penalised likelihood.

With log hazard log lambda_j + x_i' beta + b_t in interval j, E_ij the exposure of row i there and
d_ij its events,

    l(lambda, beta, b) = sum_ij d_ij (log lambda_j + eta_i) - lambda_j E_ij exp(eta_i),
    b_t ~ N(0, theta).

The mode over lambda has a closed form, and (beta, b) follows by Newton steps. The Hessian in b is
diagonal but for one rank for every interval, so that a step is linear in the number of tasks. theta
is where

    theta = (b'b + tr V) / m,

for the block V of b in the inverse of minus the Hessian (Ripatti and Palmgren, Biometrics 56(4),
2000), in which numbers off the diagonal of b are left out, as ``coxph`` of R does for more than
five tasks (Therneau, Grambsch and Pankratz, J. Comput. Graph. Stat. 12(1), 2003).
"""

from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.optimize import brentq

__all__ = ["Frailty", "fit_frailty"]

_STEPS, _TOL = 100, 1e-10
# Of the size of a column, how it varies, and of the largest information about scaled ones: less is
# rounding.
_CONSTANT, _DETERMINED = 1e-12, 1e-10
_THETA = 1e-4, 1e2  # the range in which the variance of frailties is looked for


class Frailty(NamedTuple):
    coef: np.ndarray  # (p,), log hazard ratios; the shortest where columns follow from others
    covariance: np.ndarray  # (p, p), of these; NaN of columns that do
    theta: float  # variance of the frailties
    effects: np.ndarray  # (m,), b
    centre: np.ndarray  # (p,), mean row
    hazard: np.ndarray  # (n_intervals,), lambda exp(centre' beta), as lambda may be too small


def fit_frailty(X, codes, m, periods, theta=None):
    """Fit the model to rows X (n, p), their tasks, 0 to m - 1, and `Periods`.

    theta: variance of the frailties, 0 without any; None: estimated. -> `Frailty`
    """
    problem = _Problem(X, codes, m, periods)
    if theta is None:
        low, high = np.log(_THETA)
        if problem.excess(low) <= 0.0:
            theta = 0.0
        elif problem.excess(high) >= 0.0:
            theta = _THETA[1]
        else:
            theta = float(np.exp(brentq(problem.excess, low, high, xtol=1e-9)))
    return problem.fit(theta)


class _Problem:
    def __init__(self, X, codes, m, periods):
        self.centre, self.scale = X.mean(axis=0), X.std(axis=0)
        self.scale[self.scale <= _CONSTANT * np.abs(self.centre)] = np.inf
        self.X = X = (X - self.centre) / self.scale
        self.codes, self.m, self.periods = codes, m, periods
        self.E, self.d = periods.exposure, periods.events()
        event, n = periods.event, len(X)
        self.members = sparse.csr_array((np.ones(n), (codes, np.arange(n))), shape=(m, n))
        self.of_events = X[event].sum(axis=0)
        self.of_tasks = self.members @ event
        self.beta, self.b = np.zeros(X.shape[1]), np.zeros(m)

    def _state(self, beta, b):
        eta = self.X @ beta + b[self.codes]
        risk = np.exp(np.clip(eta, -700.0, 700.0))
        at_risk = np.maximum(self.E.T @ risk, 1e-300)
        hazard = self.d / at_risk
        return eta, risk, at_risk, hazard

    def _likelihood(self, beta, b, theta):
        eta, _, at_risk, _ = self._state(beta, b)
        some = self.d > 0
        value = eta[self.periods.event].sum() - (self.d[some] * np.log(at_risk[some])).sum()
        return value - (0.5 * (b @ b) / theta if theta else 0.0)

    def _curvature(self, beta, b, theta):
        """Gradient and parts of minus the Hessian: diagonal of b, the rest by blocks."""
        X = self.X
        _, risk, at_risk, hazard = self._state(beta, b)
        w = risk * (self.E @ hazard)
        gradient = self.of_events - X.T @ w
        own = self.members @ w
        gradient_b = self.of_tasks - own - (b / theta if theta else 0.0)
        root = np.sqrt(self.d) / at_risk
        mean_x = root[:, None] * (self.E.T @ (risk[:, None] * X))
        B = X.T @ (w[:, None] * X) - mean_x.T @ mean_x
        if not theta:
            return gradient, gradient_b, B, None, None, None
        weighted = self.members @ (w[:, None] * X)
        mean_b = (self.members.multiply(risk) @ self.E).toarray().T * root[:, None]  # (J, m)
        return gradient, gradient_b, B, own + 1.0 / theta, weighted - mean_b.T @ mean_x, mean_b

    def _solve(self, theta):
        """Newton steps with halving to the mode. -> covariance of beta, tr V"""
        beta, b = self.beta.copy(), self.b.copy() if theta else np.zeros(self.m)
        value = self._likelihood(beta, b, theta)
        for _ in range(_STEPS):
            g, gb, B, D, C, V = self._curvature(beta, b, theta)
            if not theta:
                step, step_b = _inverse(B)[0] @ g, np.zeros(self.m)
            else:
                solved = _divided(D, V, np.c_[gb, C])
                schur = B - C.T @ solved[:, 1:]
                step = _inverse(schur)[0] @ (g - C.T @ solved[:, 0])
                step_b = solved[:, 0] - solved[:, 1:] @ step
            gain = float(g @ step + gb @ step_b)
            size = 1.0
            while size > 1e-8:
                new = beta + size * step, b + size * step_b
                moved = self._likelihood(*new, theta)
                if moved >= value - 1e-12 * abs(value):
                    break
                size *= 0.5
            (beta, b), value = new, moved
            if gain < _TOL:
                break
        self.beta, self.b = beta, b
        g, gb, B, D, C, V = self._curvature(beta, b, theta)
        if not theta:
            return _covariance(B), 0.0
        of_tasks = D - np.sum(V * V, axis=0)
        alone = C / of_tasks[:, None]
        trace = np.sum(1.0 / of_tasks)
        trace += np.sum((alone @ _inverse(B - C.T @ alone)[0]) * alone)
        return _covariance(B - C.T @ _divided(D, V, C)), trace

    def excess(self, log_theta):
        """Of (b'b + tr V) / m over theta."""
        theta = np.exp(log_theta)
        trace = self._solve(theta)[1]
        return (self.b @ self.b + trace) / (self.m * theta) - 1.0

    def fit(self, theta):
        covariance, _ = self._solve(theta)
        coef = self.beta / self.scale
        hazard = self._state(self.beta, self.b)[3]
        covariance /= np.outer(self.scale, self.scale)
        return Frailty(coef, covariance, theta, self.b, self.centre, hazard)


def _inverse(information):
    """Inverse in directions that rows determine. -> it, which columns do not follow from others"""
    values, vectors = np.linalg.eigh(information)
    some = values > _DETERMINED * values[-1:]
    vectors = vectors[:, some]
    return (vectors / values[some]) @ vectors.T, np.sum(vectors**2, axis=1) > 1.0 - 1e-6


def _covariance(information):
    inverse, is_own = _inverse(information)
    inverse[~is_own] = inverse[:, ~is_own] = np.nan
    return inverse


def _divided(D, V, A):
    """(diag D - V'V)^-1 A, by Woodbury: V is (J, m)."""
    small = np.eye(len(V)) - (V / D) @ V.T
    return (A + V.T @ np.linalg.solve(small, (V / D) @ A)) / D[:, None]
