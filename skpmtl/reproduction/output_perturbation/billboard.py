"""What output perturbation publishes: an average model, or noisy models of all tasks."""

from dataclasses import dataclass, replace
from numbers import Real

import numpy as np
from scipy import sparse

from ..._runtime.compat import Interval
from ...exchange.billboard import Billboard
from ...local.prior import LocalModels
from .relationship import prior_root, root_of_trace_one
from .tasks import coefficients


@dataclass
class AggregationBillboard(Billboard):
    """The average model, the only release of `DPAggregation`.

    Attributes
    ----------
    releases : list of one ndarray (width,), the noisy average, the intercept last
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
        """The average."""
        coef, intercept = self.mean
        return {"mean_coef_": coef, "mean_intercept_": intercept}

    def declared(self):
        """See `skpmtl.exchange.wire`."""
        if len(self.releases) != 1:
            raise ValueError(f"it has {len(self.releases)} averages, not one")
        yield "a release", self.releases[0], [(self.n_features + self.fit_intercept,)]

    @property
    def mean(self):
        """-> coefficients (n_features,), intercept."""
        coef, intercept = coefficients(self.releases[0][None], self.fit_intercept)
        return coef[0], float(intercept[0])

    def personalize(self, table):
        """The average, once for every task of `table`."""
        coef, intercept = self.mean
        return np.tile(coef, (table.n_tasks, 1)), np.full(table.n_tasks, intercept)


@dataclass
class RelationshipBillboard(Billboard):
    """Releases of `DPRelationship`, and what the curator computed from them; all may be published.

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
        """The mean of the noisy models; that of an exact fit is not on a billboard from a file."""
        if not len(self.models):
            return {}
        coef, intercept = coefficients(self.models, self.fit_intercept)
        return {"mean_coef_": coef.mean(axis=0), "mean_intercept_": float(intercept.mean())}

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
        return root_of_trace_one(self.columns)

    def personalize(self, table):
        """Models of the tasks of `table` under the prior that the columns imply, without noise.

        For w = root c the penalties of one task come to ||c||^2 / 2 besides its mean loss.
        """
        if self.fit_intercept:
            table = with_constant(table)
        models = LocalModels(table, fit_intercept=False)
        root = prior_root(self.columns, self.lam, self.alpha)
        return coefficients(models.solve(root, table.scale("equal"))[0], self.fit_intercept)


def with_constant(table):
    """The table with a last feature 1."""
    ones = np.ones((table.X.shape[0], 1))
    parts = table.X, ones
    X = sparse.hstack(parts, format="csr") if table.is_sparse else np.hstack(parts)
    return replace(table, X=X)
