"""Base class of billboards, which hold what a fit publishes; their fields are `Public`."""

from numbers import Integral
from typing import ClassVar, NamedTuple

import numpy as np

from .._runtime.constraints import Interval
from .._runtime.public import Public
from ..tables.table import differences

__all__ = ["N_OUTPUTS", "Billboard", "OfModels", "Personal", "Public"]

# Models of a task, as `Public.constraints` has it: one, or one for each of three classes or more.
N_OUTPUTS = [Interval(Integral, 1, 2, closed="left"), Interval(Integral, 3, None, closed="left")]


class Personal(NamedTuple):
    """What the tasks of one table make of a billboard and their own rows.

    Attributes
    ----------
    coef : ndarray (n_tasks, ...)
    intercept : ndarray (n_tasks, ...)
    extras : dict of str to ndarray (n_tasks, ...)
        Per-task attributes other than the model, by name.
    """

    coef: np.ndarray
    intercept: np.ndarray
    extras: dict = {}

    def only(self, names):
        """The same with some of the extras."""
        return self._replace(extras={k: v for k, v in self.extras.items() if k in names})


class Billboard(Public):
    """A billboard: all releases of a fit, and what follows from them.

    A subclass is a dataclass with the fields `releases` (list of arrays in the order of
    publication) and `report` (PrivacyReport or None); it defines `n_features`, `declared` and
    `personalize`.

    Attributes
    ----------
    settings : tuple of str
        Parameters of the estimator that the billboard brings along.
    n_classes : int or None
        0 for real targets; None where the billboard does not say: real targets or two classes.
    """

    settings: ClassVar[tuple[str, ...]] = ()
    n_classes: int | None = None

    @property
    def n_features(self):
        """Number of features of a model."""
        raise NotImplementedError

    @property
    def model_shape(self):
        """Shape of the coefficients of one task."""
        return (self.n_features,)

    @property
    def has_one_mean(self):
        """Whether all tasks without rows have the same model."""
        return getattr(self, "relation", None) is None

    def declared(self):
        """Yield (name, array, allowed shapes) of all arrays; raise ValueError where public numbers
        do not go together. Compiled loops trust these shapes, and do not look again."""
        raise NotImplementedError

    def parameters(self):
        """Parameters of the estimator, by name, as the billboard settles them."""
        return {name: getattr(self, name) for name in self.settings}

    def attributes(self):
        """Fitted attributes that follow from the billboard alone, such as ``mean_coef_``."""
        return {}

    def without_rows(self, tasks) -> tuple:
        """Models of `tasks` without rows: the mean model where one was released, else zero.

        Returns
        -------
        coef : ndarray (n_tasks, ...)
            As many models as `model_shape` says.
        intercept : ndarray (n_tasks, ...)
        """
        attributes, shape = self.attributes(), (len(tasks), *self.model_shape)
        coef, intercept = np.zeros(shape), np.zeros(shape[:-1])
        coef[:] = attributes.get("mean_coef_", 0.0)
        intercept[:] = attributes.get("mean_intercept_", 0.0)
        return coef, intercept

    def posterior(self, table):
        """How sure the tasks of `table` are of the models that they personalise.

        Parameters
        ----------
        table : TaskTable

        Returns
        -------
        posterior : skpmtl.task.mixture.Posterior
            For the task alone, like its model.
        """
        raise ValueError(f"{type(self).__name__} has no posterior of the models of tasks.")

    def within(self, report):
        """Be a part of something larger, such as a search, which `report` is about."""
        self.report = report


class OfModels(Billboard):
    """A billboard of linear models, whose `mean` is one or None; a task has one of every output.

    `n_outputs` is 1 for real targets and two classes, else the number of classes; `mean` (n_outputs
    * (n_features + 1),) is the model of tasks without rows, the intercepts last. Models that are
    found by the billboard are differences to the public model `init`, if there is one. `loss` is
    that of real targets; that of classes is not stored.
    """

    init: object = None
    loss = "squared"

    @property
    def n_classes(self):
        if self.loss != "squared":
            return 0
        return self.n_outputs if self.n_outputs > 1 else None

    @property
    def model_shape(self):
        return (self.n_features,) if self.n_outputs == 1 else (self.n_outputs, self.n_features)

    def attributes(self):
        if self.mean is None:
            return {}
        coef, b = np.split(self.mean, [-self.n_outputs])
        b = b if self.n_outputs > 1 else float(b[0])
        return {"mean_coef_": coef.reshape(self.model_shape), "mean_intercept_": b}

    def without_rows(self, tasks):
        """The mean model where one was released, otherwise the public initial model, or zero."""
        coef, intercept = super().without_rows(tasks)
        return (coef, intercept) if self.mean is not None else self.add_init(coef, intercept)

    def add_init(self, W, b):
        """Models ``(n, *model_shape)`` and their intercepts, of which these are the differences."""
        if self.init is None:
            return W, b
        shape = self.model_shape
        return W + self.init.coef.reshape(shape), b + self.init.intercept.reshape(shape[:-1])

    def subtract_init(self, W, b):
        """The inverse of `add_init`."""
        if self.init is None:
            return W, b
        shape = self.model_shape
        return W - self.init.coef.reshape(shape), b - self.init.intercept.reshape(shape[:-1])

    def _declared_init(self):
        if self.init is not None:
            yield from self.init.declared(self.n_outputs, self.n_features)

    def _differences(self, table):
        """The table of which models are differences to the public initial model."""
        return differences(table, self.init)
