"""What the exact fit of a penalised objective leaves for tasks that come later."""

from dataclasses import dataclass, field, replace
from numbers import Integral, Real

import numpy as np

from ._compat import Interval, StrOptions
from .local import LocalModels
from .losses import make_loss
from .solvers import TraceNorm, minimize

_BLOCK = 1 << 20  # numbers of X that are projected at a time


@dataclass
class PenaltyBillboard:
    """Fitted shape of the penalty, with which a new task finishes alone.

    At the optimum the penalty of the other tasks fixes a quadratic form,
    ``alpha Omega(W) = min over S of alpha / 2 (sum_k w_k' S^-1 w_k + tr S)``: a task that
    minimises its own loss plus ``alpha / 2 w' S^-1 w + ridge / 2 ||w||^2`` with the fitted S
    gets back its jointly fitted model. Computed without noise: publishing it protects nobody.

    Attributes
    ----------
    statistic : {"matrix", "diagonal"}
    shape : ndarray (d, d) or (d,)
        S: (W' W)^(1/2) over the tasks, or the norms of the features' weights.
    alpha, ridge, task_weight
        Of the objective.
    n_tasks : int
    releases : list
        Empty: nothing was released under noise.
    report : PrivacyReport
    """

    statistic: str
    shape: np.ndarray
    alpha: float
    ridge: float
    task_weight: str
    n_tasks: int
    releases: list = field(default_factory=list)
    report: object = None

    constraints = {
        "statistic": [StrOptions({"matrix", "diagonal"})],
        "alpha": [Interval(Real, 0, None, closed="left")],
        "ridge": [Interval(Real, 0, None, closed="left")],
        "task_weight": [StrOptions({"equal", "samples"})],
        "n_tasks": [Interval(Integral, 1, None, closed="left")],
    }
    settings = ("alpha", "ridge", "task_weight")

    @property
    def n_features(self):
        return len(self.shape)

    def declared(self):
        """See `skpmtl.packing`."""
        d = self.n_features
        if self.alpha == self.ridge == 0:
            raise ValueError("alpha and ridge are both 0, which holds no model")
        if self.releases:
            raise ValueError("an exact fit has no releases")
        yield "its moment", self.shape, [(d, d) if self.statistic == "matrix" else (d,)]
        if (np.diagonal(self.shape) if self.shape.ndim == 2 else self.shape).min() < 0:
            raise ValueError("its shape is not positive")

    @classmethod
    def of(cls, W, statistic, **settings):
        if statistic == "diagonal":
            shape = np.sqrt(np.einsum("kj,kj->j", W, W))
        else:
            values, U = np.linalg.eigh(W.T @ W)
            shape = (U * np.sqrt(np.maximum(values, 0.0))) @ U.T
        return cls(statistic, shape, n_tasks=len(W), **settings)

    def personalize(self, table, *, classification, fit_intercept):
        """Models of the tasks of `table`, from their rows and this billboard alone."""
        B = self._basis(table.n_features)
        W = np.zeros((table.n_tasks, table.n_features))
        if B.shape[1]:
            step = max(_BLOCK // len(B), 1)
            Z = np.empty((table.X.shape[0], B.shape[1]))
            for first in range(0, len(Z), step):
                Z[first : first + step] = table.X[first : first + step] @ B
            inner = replace(table, X=Z)
            loss = make_loss(
                inner,
                classification=classification,
                task_weight=self.task_weight,
                fit_intercept=fit_intercept,
                ridge=1.0,
            )
            models = LocalModels(
                inner, classification=classification, fit_intercept=fit_intercept
            )
            W, _ = models.solve(np.ones(B.shape[1]), loss.scale)
            W = minimize(loss, TraceNorm(), 0.0, W=W, tol=1e-10).W @ B.T  # certifies or mends it
        loss = make_loss(
            table,
            classification=classification,
            task_weight=self.task_weight,
            fit_intercept=fit_intercept,
        )
        return W, loss.intercepts(W)

    def _basis(self, d):
        """B with alpha S^-1 + ridge I = (B B')^-1: w = B c turns the penalty into ||c||^2 / 2."""
        if self.alpha == 0:
            return np.eye(d) / np.sqrt(self.ridge)
        s, U = (self.shape, np.eye(d)) if self.shape.ndim == 1 else np.linalg.eigh(self.shape)
        keep = s > 1e-12 * s.max()
        return U[:, keep] * np.sqrt(s[keep] / (self.alpha + self.ridge * s[keep]))
