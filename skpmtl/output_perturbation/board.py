"""What output perturbation publishes: an average model, or noisy models of all tasks."""

from dataclasses import dataclass
from numbers import Real

import numpy as np

from .._runtime.compat import Interval
from ..exchange.board import Board


def split(models, fit_intercept, pick=slice(None)):
    """Models with the intercept last -> coefficients, intercepts."""
    if fit_intercept:
        return models[pick, :-1].copy(), models[pick, -1].copy()
    return models[pick].copy(), np.zeros(len(models))[pick]


@dataclass
class AggregationBillboard(Board):
    """The average model, all that `DPAggregation` publishes.

    Attributes
    ----------
    releases : list of one ndarray (width,)
        The noisy average, the intercept last.
    fit_intercept : bool
    report : PrivacyReport
    """

    releases: list
    fit_intercept: bool
    report: object = None

    constraints = {}
    settings = ("fit_intercept",)

    @property
    def n_features(self):
        return len(self.releases[0]) - self.fit_intercept

    def attributes(self):
        coef, intercept = self.mean
        return {"mean_coef_": coef, "mean_intercept_": float(intercept)}

    def declared(self):
        """See `skpmtl.exchange.wire`."""
        if len(self.releases) != 1:
            raise ValueError(f"it has {len(self.releases)} averages, not one")
        yield "a release", self.releases[0], [(self.n_features + self.fit_intercept,)]

    @property
    def mean(self):
        """-> coefficients (n_features,), intercept."""
        return split(self.releases[0][None], self.fit_intercept, 0)


@dataclass
class RelationshipBillboard(Board):
    """What the curator of `DPRelationship` has seen and made of it; all of it may be published.

    Attributes
    ----------
    releases : list of ndarray (n_tasks * width,)
        Noisy updates w_k - v_k of all tasks, one array per round, in units of the task's
        sensitivity.
    sensitivity : list of ndarray (n_tasks,)
        These units.
    models : ndarray (n_tasks, width)
        Noisy models after the last round, the intercept last.
    columns : ndarray (n_tasks, width)
        The v_k that the curator made of them.
    lam, alpha, fit_intercept
        Public settings that a new task needs.
    report : PrivacyReport
    """

    releases: list
    sensitivity: list
    models: np.ndarray
    columns: np.ndarray
    lam: float
    alpha: float
    fit_intercept: bool
    report: object = None

    constraints = {
        "lam": [Interval(Real, 0, None, closed="neither")],
        "alpha": [Interval(Real, 0, None, closed="neither")],
    }
    settings = ("lam", "alpha", "fit_intercept")

    @property
    def n_features(self):
        return self.columns.shape[-1] - self.fit_intercept

    def attributes(self):
        if not len(self.models):
            return {}
        d = self.n_features
        b = self.models[:, d].mean() if self.fit_intercept else 0.0
        return {"mean_coef_": self.models[:, :d].mean(axis=0), "mean_intercept_": float(b)}

    def written(self):
        # The models of an exact fit are the tasks' own, and nobody needs them to go on.
        models = self.models if self.releases else self.models[:0]
        return {**super().written(), "models": models}

    def declared(self):
        """See `skpmtl.exchange.wire`."""
        m, width = len(self.columns), self.n_features + self.fit_intercept
        if m < 1 or len(self.sensitivity) != len(self.releases):
            raise ValueError("its releases and their sensitivities do not go together")
        yield "the columns", self.columns, [(m, width)]
        yield "the models", self.models, [(m if self.releases else 0, width)]
        yield from (("a release", S, [(m * width,)]) for S in self.releases)
        yield from (("a sensitivity", s, [(m,)]) for s in self.sensitivity)

    @property
    def relationship(self):
        """Omega = (V'V)^(1/2) / trace for the columns V, (n_tasks, n_tasks)."""
        return _root(self.columns, len(self.columns))

    def prior(self):
        """Square root of the covariance M / alpha + I / lam of a new task's model.

        M = (V V')^(1/2) / trace is the mirror of Omega on the side of the features, and
        1/2 w' (M / alpha + I / lam)^-1 w what the penalties come to for one task.
        """
        width = self.columns.shape[1]
        M = _root(self.columns.T, width) if self.columns.any() else np.zeros((width, width))
        values, Q = np.linalg.eigh(M)
        return (Q * np.sqrt(np.maximum(values, 0.0) / self.alpha + 1.0 / self.lam)) @ Q.T


def _root(A, size):
    """(A A')^(1/2) / trace; even without a signal."""
    if not A.any():
        return np.eye(size) / size
    U, s, _ = np.linalg.svd(A, full_matrices=False)
    return (U * (s / s.sum())) @ U.T
