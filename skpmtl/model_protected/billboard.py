"""Billboards of exact fits with covariates of tasks."""

from dataclasses import dataclass, replace

import numpy as np

from .._runtime.public import Public
from ..solvers.fitted import PenaltyBillboard
from ..tables.relation import Relation
from ..tables.table import differences_to


@dataclass(eq=False)
class Centres(Public):
    """What an exact fit found of a relation."""

    relation: Relation
    # (r, n_outputs * d), G: task k is about v_k G, for its public row v_k
    coef: np.ndarray
    # (r, n_outputs), the intercept of a task without rows is v_k times it
    intercept: np.ndarray | None = None

    def declared(self, size, n_outputs):
        """Arrays with their shapes, as `skpmtl.exchange.Billboard.declared`."""
        if not isinstance(self.relation, Relation):
            raise ValueError("its centres have no relation")
        yield from self.relation.declared()
        yield "the centres", self.coef, [(self.relation.rank, size)]
        if self.intercept is not None:
            yield "intercepts of the centres", self.intercept, [(self.relation.rank, n_outputs)]

    def attributes(self, shape):
        """Fitted attributes, for models of this shape."""
        T = self.relation.transform
        attributes = {"relation_coef_": (T @ self.coef).reshape(-1, *shape)}
        if self.intercept is not None:
            attributes["relation_intercept_"] = (T @ self.intercept).reshape(-1, *shape[:-1])
        return attributes


class AboutCovariates:
    """Mixin of billboards of models that lie about `centres`, or about 0 where that is None."""

    @property
    def relation(self):
        """Of the centres; None without them."""
        return None if self.centres is None else self.centres.relation

    def with_covariates(self, given):
        """A copy that knows covariates about further tasks, see `Relation.with_tasks`."""
        relation = self.relation.with_tasks(given)
        return replace(self, centres=replace(self.centres, relation=relation))

    def parameters(self):
        parameters = super().parameters()
        return parameters if self.centres is None else {**parameters, "relation": self.relation}

    def attributes(self):
        attributes = super().attributes()
        if self.centres is not None:
            attributes |= self.centres.attributes(self.model_shape)
        return attributes

    def without_rows(self, tasks):
        if self.centres is None:
            return super().without_rows(tasks)
        relation, centres, shape = self.relation, self.centres, self.model_shape
        W = relation.centres(tasks, centres.coef).reshape(len(tasks), *shape)
        b = np.zeros(W.shape[:-1])
        if centres.intercept is not None:
            b = relation.centres(tasks, centres.intercept).reshape(b.shape)
        return self.add_init(W, b)


@dataclass
class RelatedPenaltyBillboard(AboutCovariates, PenaltyBillboard):
    """Fitted shape of the penalty of what does not follow from covariates.

    Attributes
    ----------
    centres : Centres
        That part: a new task pays for its distance to its own centre. Those of the fit get back
        their models, but for the small ridge that holds this part (`ResidualPenalty`).
    diagonal, shape, alpha, ridge, task_weight, n_tasks, releases, report, n_outputs, init
        As of `PenaltyBillboard`.
    """

    centres: Centres | None = None

    constraints = {**PenaltyBillboard.constraints, "outliers": [None]}

    def declared(self):
        """See `skpmtl.exchange.wire`."""
        yield from super().declared()
        if self.centres is None:
            raise ValueError("it has no centres")
        yield from self.centres.declared(self.n_features * self.n_outputs, self.n_outputs)

    def personalize(self, table, *, fit_intercept):
        """Models of the tasks of `table`, from their rows and this billboard alone."""
        W = self.relation.centres(table.tasks, self.centres.coef).reshape(-1, *self.model_shape)
        D, b = super().personalize(differences_to(table, W), fit_intercept=fit_intercept)
        return D + W, b
