"""What is published: obligations of a billboard, and the closed list of what may be in one."""

from dataclasses import fields

import numpy as np

__all__ = ["Board", "Public"]


class Public:
    """Type that may be written to files and sent to others.

    A dataclass whose fields are public numbers, text, arrays, or again `Public`. Deriving from this
    class is the declaration; nothing else is ever written.

    Attributes
    ----------
    constraints : dict of str to list
        Values of the fields that are allowed, as in ``_parameter_constraints`` of scikit-learn.
    """

    constraints = {}
    known = {}  # name -> class

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        old = Public.known.setdefault(cls.__name__, cls)
        if old.__module__ == cls.__module__:  # others of its name do not take its place
            Public.known[cls.__name__] = cls

    def written(self):
        """What is written: the fields, by name."""
        return {item.name: getattr(self, item.name) for item in fields(self)}


class Board(Public):
    """A billboard: all releases of a fit, and what follows from them.

    A subclass is a dataclass with the fields `releases` (list of arrays in the order of
    publication) and `report` (PrivacyReport or None), and has `n_features`, `declared` and
    `personalize`.

    Attributes
    ----------
    settings : tuple of str
        Parameters of the estimator that the board brings along.
    n_classes : int or None
        0 for real targets; None where the board does not tell: real targets or two classes.
    """

    settings = ()
    n_classes = None

    @property
    def n_features(self):
        """Number of features of a model."""
        raise NotImplementedError

    @property
    def model_shape(self):
        """Shape of the coefficients of one task."""
        return (self.n_features,)

    def declared(self):
        """Yield (name, array, allowed shapes) of all arrays; raise ValueError where public numbers
        do not go together. Compiled loops trust these shapes, and do not look again."""
        raise NotImplementedError

    def parameters(self):
        """Parameters of the estimator, by name, as the board settles them."""
        return {name: getattr(self, name) for name in self.settings}

    def attributes(self):
        """Fitted attributes that follow from the board alone, such as "mean_coef_"."""
        return {}

    def without_rows(self, tasks):
        """Models of `tasks` without rows: the mean model where one was released, else zero.

        Returns
        -------
        coef : ndarray (n_tasks, *model_shape)
        intercept : ndarray (n_tasks, *model_shape[:-1])
        """
        found, shape = self.attributes(), (len(tasks), *self.model_shape)
        coef, intercept = np.zeros(shape), np.zeros(shape[:-1])
        coef[:] = found.get("mean_coef_", 0.0)
        intercept[:] = found.get("mean_intercept_", 0.0)
        return coef, intercept

    def within(self, report):
        """Be a part of something larger, such as a search, which `report` is about."""
        self.report = report
