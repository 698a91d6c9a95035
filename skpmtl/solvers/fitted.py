"""Billboards of exact fits: the fitted penalty, for new tasks."""

from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import ClassVar

import numpy as np

from .._runtime.constraints import Interval, StrOptions
from ..exchange.billboard import N_OUTPUTS, OfModels
from ..tables.datafits import DATAFITS
from ..tables.public_init import PublicInit
from .decomposed import OUTLIERS, minimize_sum
from .losses import make_loss
from .minimize import minimize
from .penalties import FittedShape, TraceNorm, spectrum
from .ridge import RidgeModels, in_basis


@dataclass
class PenaltyBillboard(OfModels):
    """Fitted shape of the penalty, with which a new task finishes alone.

    At the optimum the penalty of the other tasks fixes a quadratic form,
    ``alpha Omega(W) = min over S of alpha / 2 (sum_k w_k' S^-1 w_k + tr S)``: a task that
    minimises its own loss plus ``alpha / 2 w' S^-1 w + ridge / 2 ||w||^2`` with the fitted S
    gets back its jointly fitted model. Computed without noise: publishing it protects nobody.
    With outliers that is the part p_k of w_k = p_k + q_k, and the task pays for its q_k as in the
    fit.

    Attributes
    ----------
    diagonal : bool
        Whether S is a diagonal.
    shape : ndarray (d, rank) or (d,)
        R with S = R R' = (W' W)^(1/2) over the tasks; or the diagonal of S, the norms of the
        features' weights.
    alpha, ridge, task_weight
        Of the objective.
    n_tasks : int
    releases : list
        Empty: nothing was released under noise.
    report : PrivacyReport
    n_outputs : int
        Models of a task: one for each of more than two classes.
    outliers : {None, "tasks", "entries"}
    outlier_alpha : float
        Strength of the penalty of q_k; not used without outliers.
    init : PublicInit or None
        To which W is the difference.
    loss : {"squared", "poisson", "huber"}
        Of real targets.
    """

    diagonal: bool
    shape: np.ndarray
    alpha: float
    ridge: float
    task_weight: str
    n_tasks: int
    releases: list = field(default_factory=list)
    report: object = None
    n_outputs: int = 1
    outliers: str | None = None
    outlier_alpha: float = 1.0
    init: PublicInit | None = None
    loss: str = "squared"
    mean = None

    constraints = {
        "loss": [StrOptions(set(DATAFITS))],
        "outliers": [StrOptions(set(OUTLIERS)), None],
        "outlier_alpha": [Interval(Real, 0, None, closed="neither")],
        "alpha": [Interval(Real, 0, None, closed="left")],
        "ridge": [Interval(Real, 0, None, closed="left")],
        "task_weight": [StrOptions({"equal", "samples"})],
        "n_tasks": [Interval(Integral, 1, None, closed="left")],
        "n_outputs": N_OUTPUTS,
    }
    settings: ClassVar[tuple[str, ...]] = (
        "alpha",
        "ridge",
        "task_weight",
        "outliers",
        "outlier_alpha",
        "init",
        "loss",
    )
    added: ClassVar[tuple[str, ...]] = ("loss",)

    @property
    def n_features(self):
        return len(self.shape)

    def declared(self):
        """See `skpmtl.exchange.wire`."""
        d = self.n_features
        if self.alpha == self.ridge == 0:
            raise ValueError("alpha and ridge are both 0, which holds no model")
        if self.releases:
            raise ValueError("an exact fit has no releases")
        if self.outliers and self.alpha == 0:
            raise ValueError("outliers need an alpha")
        yield from self._declared_init()
        rank = min(self.shape.shape[-1], d, self.n_tasks * self.n_outputs)
        yield "its shape", self.shape, [(d,) if self.diagonal else (d, rank)]
        if self.diagonal and self.shape.min() < 0:
            raise ValueError("its shape is not positive")

    @classmethod
    def of(cls, W, diagonal, **settings):
        """The shared part of the coefficients at the optimum, (n_tasks, d), or (n_tasks, C, d)
        of C classes."""
        whole = W.reshape(-1, W.shape[-1])
        if diagonal:
            shape = np.sqrt(np.einsum("kj,kj->j", whole, whole))
        else:
            values, U = spectrum(whole.T)
            shape = U * np.sqrt(np.sqrt(values))
        return cls(diagonal, shape, n_tasks=len(W), n_outputs=W[0].size // len(shape), **settings)

    def personalize(self, table, *, fit_intercept):
        """Models of the tasks of `table`, from their rows and this billboard alone."""
        table = self._differences(table)
        B, shape = self._basis(table.n_features), (table.n_tasks, *self.model_shape)
        W = np.zeros(shape)
        if self.outliers:
            W = self._of_two_parts(table, fit_intercept)
        elif B.shape[1]:
            inner = in_basis(table, B)
            loss = make_loss(
                inner,
                task_weight=self.task_weight,
                fit_intercept=fit_intercept,
                ridge=1.0,
            )
            strength = 1.0 / table.scale(self.task_weight)
            W = RidgeModels(inner, strength, fit_intercept=fit_intercept).around()[0]
            W = W.reshape(loss.shape)
            W = minimize(loss, TraceNorm(), 0.0, W=W, tol=1e-10).W @ B.T  # certifies or mends it
        loss = make_loss(
            table,
            task_weight=self.task_weight,
            fit_intercept=fit_intercept,
        )
        b = loss.intercepts(W.reshape(loss.shape)).reshape(shape[:-1])
        return self.add_init(W.reshape(shape), b)

    def _of_two_parts(self, table, fit_intercept):
        loss = make_loss(
            table,
            task_weight=self.task_weight,
            fit_intercept=fit_intercept,
            ridge=self.ridge,
        )
        own = OUTLIERS[self.outliers](self.n_outputs)
        parts = (FittedShape(self.shape), self.alpha), (own, self.outlier_alpha)
        P, Q = minimize_sum(loss, *parts, tol=1e-10)[1]
        return P + Q

    def _basis(self, d):
        """B with alpha S^-1 + ridge I = (B B')^-1: w = B c turns the penalty into ||c||^2 / 2."""
        if self.alpha == 0:
            return np.eye(d) / np.sqrt(self.ridge)
        s, U = (self.shape, np.eye(d)) if self.diagonal else spectrum(self.shape)
        keep = s > 1e-12 * s.max(initial=0.0)
        return U[:, keep] * np.sqrt(s[keep] / (self.alpha + self.ridge * s[keep]))
