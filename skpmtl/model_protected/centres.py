"""Centres of tasks that follow from public covariates, about which models have their prior."""

from dataclasses import dataclass, replace

import numpy as np

from .._runtime.public import Public
from ..local.centred import CentredTasks, Problem
from ..local.updates import lengths
from ..tables.relation import Relation


@dataclass(eq=False)
class Centres(Public):
    """What the rounds found of a relation.

    Attributes
    ----------
    relation : Relation
    coef : ndarray (r, n_outputs * d)
        G: the prior of task k is about v_k G, for its public row v_k.
    own_units : bool
        Whether a task multiplies that by the length of its own model.
    noise_std : ndarray (r,) or None
        Of the noise that is left in a number of each row; None without noise.
    intercept : ndarray (r, n_outputs) or None
        The intercept of a task without rows is v_k times it; None where it was not released.
    """

    relation: Relation
    coef: np.ndarray
    own_units: bool = False
    noise_std: np.ndarray | None = None
    intercept: np.ndarray | None = None

    constraints = {"own_units": ["boolean"]}

    def declared(self, size, n_outputs):
        """Arrays with their shapes, as `skpmtl.exchange.Billboard.declared`."""
        if not isinstance(self.relation, Relation):
            raise ValueError("its centres have no relation")
        yield from self.relation.declared()
        yield "the centres", self.coef, [(self.relation.rank, size)]
        if self.noise_std is not None:
            yield "noise of the centres", self.noise_std, [(self.relation.rank,)]
        if self.intercept is not None:
            yield "intercepts of the centres", self.intercept, [(self.relation.rank, n_outputs)]

    def asked(self):
        """What a query tells about them."""
        return {"centres": self.coef, "own_units": int(self.own_units)}

    def of(self, table, fit_intercept):
        """Centres (m, [n_outputs,] d) of the tasks of a table."""
        return about(self.coef, self.relation, self.own_units, table, fit_intercept)

    def attributes(self, shape):
        """Fitted attributes, for models of this shape."""
        T = self.relation.transform
        found = {"relation_coef_": (T @ self.coef).reshape(-1, *shape)}
        if self.noise_std is not None:
            found["relation_noise_std_"] = np.sqrt(T**2 @ self.noise_std**2)
        if self.intercept is not None:
            found["relation_intercept_"] = (T @ self.intercept).reshape(-1, *shape[:-1])
        return found


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
        found = super().parameters()
        return found if self.centres is None else {**found, "relation": self.relation}

    def attributes(self):
        found = super().attributes()
        if self.centres is not None:
            found |= self.centres.attributes(self.model_shape)
        return found

    def without_rows(self, tasks):
        if self.centres is None:
            return super().without_rows(tasks)
        V, centres, shape = self.relation.rows(tasks), self.centres, self.model_shape
        W, b = np.zeros((len(tasks), *shape)), np.zeros((len(tasks), *shape[:-1]))
        if not centres.own_units:
            W = (V @ centres.coef).reshape(W.shape)
        if centres.intercept is not None:
            b = (V @ centres.intercept).reshape(b.shape)
        return self.add_init(W, b)


def about(coef, relation, own_units, table, fit_intercept):
    """Centres of the tasks of a table. -> (m, d), or (m, C, d) of C classes"""
    found, C = relation.rows(table.tasks) @ coef, coef.shape[1] // table.n_features
    if own_units:
        loss = {0: "squared", 2: "logistic"}.get(table.n_classes, "multinomial")
        found *= lengths(CentredTasks(table, Problem(loss, C, fit_intercept)))[:, None]
    return found if C == 1 else found.reshape(len(found), C, -1)
