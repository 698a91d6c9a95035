"""Tasks that lie around centres: what each of them minimises on its own rows."""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ..tables.datafits import events
from .grams import largest_eigenvalues
from .ridge import RidgeModels

# Of the second derivative of the losses; that of counts has none, and is the mean count.
_BOUND = {"squared": 1.0, "logistic": 0.25, "multinomial": 0.5}


@dataclass(frozen=True)
class Problem:
    """Loss of a task, and the strength of its penalty towards its centre.

    Parameters
    ----------
    loss : {"squared", "logistic", "multinomial", "poisson"}
        y is in {-1, 1} for the second, and counts the classes from 0 for the third.
    n_outputs : int
        1, or the number of classes of the multinomial loss.
    fit_intercept : bool
    task_weight : {"equal", "samples"}
        Mean loss of a task, or sum of its losses.
    lam, ridge : float
        Weights of half the squared distances of the slopes to the centre, and to zero.
    """

    loss: str
    n_outputs: int
    fit_intercept: bool
    task_weight: str = "equal"
    lam: float = 1.0
    ridge: float = 0.0


class CentredTasks:
    """Tasks of a table with their problem, and the number of the centre of each.

    Parameters
    ----------
    table : TaskTable
    problem : Problem
    which : ndarray (n_tasks,) of int64, default=None
        Centre (cluster) of each task; None: there is one for all.
    """

    def __init__(self, table, problem, which=None):
        self.table, self.problem = table, problem
        self.which = np.zeros(table.n_tasks, dtype=np.int64) if which is None else which
        self.scale = table.scale(problem.task_weight)

    @cached_property
    def smoothness(self):
        """Lipschitz constants of the gradients of the losses of the tasks, (n_tasks,)."""
        table, loss = self.table, self.problem.loss
        bound = _BOUND[loss] if loss in _BOUND else events(table) / table.sizes
        return 1.05 * largest_eigenvalues(table, self.problem.fit_intercept) * self.scale * bound

    @cached_property
    def held(self):
        """Weight of half the squared intercept of every task, (n_tasks,).

        That of the penalty where a class is missing, whose intercepts would be infinite; else 0.
        """
        table, C = self.table, self.problem.n_outputs
        if self.problem.loss in ("squared", "poisson"):
            missing = np.zeros(table.n_tasks, dtype=bool)
        elif self.problem.loss == "logistic":
            positive = np.add.reduceat((table.y > 0).astype(float), table.offsets[:-1])
            missing = (positive == 0) | (positive == table.sizes)
        else:
            pairs = np.unique(table.codes * C + table.y.astype(np.int64))
            missing = np.bincount(pairs // C, minlength=table.n_tasks) < C
        return np.where(missing, self.problem.lam, 0.0)

    @cached_property
    def _models(self):
        problem = self.problem
        return RidgeModels(
            self.table,
            (problem.lam + problem.ridge) / self.scale,
            fit_intercept=problem.fit_intercept,
            held=self.held / self.scale,
        )

    def around(self, centres, tol=1e-10):
        """Models of all tasks for centres (n_centres, C, d). -> (n_tasks, C, d), (n_tasks, C)

        `tol` is that of `RidgeModels.around`.
        """
        # Penalties towards a centre and towards zero are one, towards a part of the centre.
        share = self.problem.lam / (self.problem.lam + self.problem.ridge)
        return self._models.around(share * centres[self.which], tol)


def dense_copy(table, limit=math.inf):
    """The table with dense rows; None where they have more than `limit` numbers."""
    if not table.is_sparse:
        return table
    if table.X.shape[0] * table.X.shape[1] > limit:
        return None
    return replace(table, X=table.X.toarray())
