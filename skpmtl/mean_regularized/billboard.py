"""Billboard of exact fits around shared models."""

from dataclasses import dataclass, field, replace
from numbers import Real
from typing import ClassVar

import numpy as np

from .._runtime.constraints import Interval, StrOptions
from ..exchange.billboard import Billboard
from ..privacy.report import PrivacyReport
from ..solvers.centred import CentredTasks, Problem
from ..tables.datafits import DATAFITS
from ..tables.public_init import PublicInit
from ..tables.relation import Relation
from ..tables.table import differences


@dataclass
class MeanBillboard(Billboard):
    """Shared models of an exact fit, around which new tasks find theirs.

    Attributes
    ----------
    centres : ndarray (n_centres, n_outputs, n_features)
        Shared models less the public initial model: one, or one per column of the relation.
    intercepts : ndarray (n_centres, n_outputs)
        Means of the intercepts of the tasks, or their least-squares fit by the relation.
    lam, ridge : float
        Of the objective.
    task_weight : {"equal", "samples"}
    fit_intercept : bool
    relation : skpmtl.tables.relation.Relation or None
        With one, task k lies around v_k `centres` for its public row v_k.
    init : PublicInit or None
        Public model to which all is a difference.
    loss : {"squared", "poisson", "huber"}
        Of real targets.
    of_classes : bool
        Whether targets are classes.
    releases : list
        Empty: nothing was released under noise.
    report : PrivacyReport
    """

    centres: np.ndarray
    intercepts: np.ndarray
    lam: float
    ridge: float = 0.0
    task_weight: str = "equal"
    fit_intercept: bool = True
    relation: Relation | None = None
    init: PublicInit | None = None
    loss: str = "squared"
    of_classes: bool = False
    releases: list = field(default_factory=list)
    report: PrivacyReport | None = None

    constraints = {
        "lam": [Interval(Real, 0, None, closed="neither")],
        "ridge": [Interval(Real, 0, None, closed="left")],
        "task_weight": [StrOptions({"equal", "samples"})],
        "loss": [StrOptions(set(DATAFITS))],
    }
    settings: ClassVar[tuple[str, ...]] = (
        "lam",
        "ridge",
        "task_weight",
        "fit_intercept",
        "relation",
        "init",
        "loss",
    )

    @property
    def n_features(self):
        return self.centres.shape[2]

    @property
    def n_outputs(self):
        return self.centres.shape[1]

    @property
    def n_classes(self):
        if not self.of_classes:
            return 0
        return self.n_outputs if self.n_outputs > 1 else 2

    @property
    def model_shape(self):
        return (self.n_features,) if self.n_outputs == 1 else self.centres.shape[1:]

    @property
    def problem(self):
        """What a task minimises around its centre."""
        kind = self.loss
        if self.of_classes:
            kind = "multinomial" if self.n_outputs > 1 else "logistic"
        given = self.fit_intercept, self.task_weight, self.lam, self.ridge
        return Problem(kind, self.n_outputs, *given)

    def declared(self):
        """See `skpmtl.exchange.wire`."""
        if self.releases:
            raise ValueError("an exact fit has no releases")
        g = 1
        if self.relation is not None:
            yield from self.relation.declared()
            g = self.relation.rank
        if self.init is not None:
            yield from self.init.declared(self.n_outputs, self.n_features)
        yield "the centres", self.centres, [(g, self.n_outputs, self.n_features)]
        yield "the intercepts", self.intercepts, [(g, self.n_outputs)]

    def attributes(self):
        found = {"lam_": self.lam}
        if self.relation is None:
            W, b = self._whole(self.centres, self.intercepts)
            b = b[0] if self.n_outputs > 1 else float(b[0, 0])
            return {**found, "mean_coef_": W[0].reshape(self.model_shape), "mean_intercept_": b}
        T = self.relation.transform
        B, b = np.tensordot(T, self.centres, 1), T @ self.intercepts
        B[:1], b[:1] = self._whole(B[:1], b[:1])
        shape = len(B), *self.model_shape
        b = b if self.n_outputs > 1 else b[:, 0]
        return {**found, "relation_coef_": B.reshape(shape), "relation_intercept_": b}

    def _whole(self, W, b):
        """Models (n, n_outputs, d) and intercepts of which these are differences to `init`."""
        return (W, b) if self.init is None else (W + self.init.coef, b + self.init.intercept)

    def with_covariates(self, given):
        """A copy that knows covariates of further tasks, see `Relation.with_tasks`."""
        return replace(self, relation=self.relation.with_tasks(given))

    def around(self, tasks):
        """-> number of the centre of each of `tasks` among these, (n, n_outputs, d), intercepts

        Raises
        ------
        ValueError
            For tasks without covariates in the relation.
        """
        if self.relation is None:
            return np.zeros(len(tasks), dtype=np.int64), self.centres, self.intercepts
        rows = self.relation.rows(tasks)
        own = np.tensordot(rows, self.centres, 1), rows @ self.intercepts
        return np.arange(len(tasks)), *own

    def without_rows(self, tasks):
        which, W, b = self.around(tasks)
        W, b = self._whole(W[which], b[which])
        return W.reshape(len(W), *self.model_shape), b if self.n_outputs > 1 else b[:, 0]

    def personalize(self, table):
        """Models of the tasks of `table` around their centres. -> coef, intercept"""
        which, centres, _ = self.around(table.tasks)
        centred = CentredTasks(differences(table, self.init), self.problem, which)
        W, b = self._whole(*centred.around(centres))
        return W.reshape(len(W), *self.model_shape), b if self.n_outputs > 1 else b[:, 0]
