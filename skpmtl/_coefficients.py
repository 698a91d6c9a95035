"""Named coefficients of fitted tasks: attributes, a DataFrame, and the model of one task."""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from .tables.forms import feature_names
from .tables.ids import encode_ids, listed, locate

__all__ = ["NamedCoefficients"]


def linear_model(model):
    """A fitted model of scikit-learn from what `export_task` returns."""
    coef = model["coef"]
    if model["classes"] is None:
        fitted = Ridge()
        if model.get("loss") == "poisson":  # its link is known from a fit on
            fitted = PoissonRegressor().fit(np.zeros((1, len(coef))), [1.0])
        fitted.coef_, fitted.intercept_ = coef, model["intercept"]
    else:
        fitted = LogisticRegression()
        fitted.classes_ = np.array(model["classes"])
        fitted.coef_, fitted.intercept_ = np.atleast_2d(coef), np.atleast_1d(model["intercept"])
    fitted.n_features_in_ = coef.shape[-1]
    if model["feature_names"] is not None:
        fitted.feature_names_in_ = np.array(model["feature_names"], dtype=object)
    return fitted


class NamedCoefficients:
    """Mixin of estimators with `coef_` and `intercept_` by task.

    Attributes
    ----------
    _is_linear : bool
        Whether the columns of `coef_` belong to features.
    """

    _is_linear = True
    coef_: NDArray
    intercept_: NDArray
    tasks_: NDArray
    classes_: NDArray
    billboard_: Any
    n_features_in_: int
    loss: str
    _form_: Any
    factors_: dict
    noise_variance_: NDArray
    dof_: NDArray

    @property
    def coef_names_(self) -> NDArray:
        """Names of the features of `coef_`: those of X, or x0, x1, ...

        Without the columns of tasks and factors.

        Returns
        -------
        names : ndarray of shape (n_features,)
        """
        if not self._is_linear:
            raise AttributeError(f"{type(self).__name__!r} has no coefficients of features.")
        check_is_fitted(self)
        names = feature_names(self)
        if names is None:
            of_ids = self._form_.columns
            names = [f"x{j}" for j in range(self.n_features_in_) if j not in of_ids]
        return np.array(names, dtype=object)

    @available_if(lambda estimator: estimator._is_linear)
    def coef_frame(self, of: Literal["tasks", "relation"] = "tasks"):
        """Coefficients as a pandas DataFrame, one column per feature and one for the intercept.

        Parameters
        ----------
        of : {"tasks", "relation"}, default="tasks"
            "tasks": `coef_` and `intercept_`, one row per task, which together are not private:
            give each task its own row. "relation": `relation_coef_`, one row per covariate
            of ``relation=``, which may be published.

        Returns
        -------
        frame : DataFrame
            With more than two classes one row per task and class, or per covariate and class.

        Raises
        ------
        ValueError
            For ``of="relation"`` of a fit without ``relation=``.
        """
        import pandas as pd

        names = self.coef_names_
        if of == "tasks":
            rows, level, coef, intercept = self.tasks_, "task", self.coef_, self.intercept_
        elif of == "relation":
            if not hasattr(self, "relation_coef_"):
                raise ValueError("This fit has no relation=: take coef_frame() of its tasks.")
            rows, level, coef = self.billboard_.relation.names, "covariate", self.relation_coef_
            intercept = getattr(self, "relation_intercept_", None)
        else:
            raise ValueError(f'of={of!r} must be "tasks" or "relation".')
        index = pd.Index(list(rows), name=level)
        if np.ndim(coef) == 3:
            index = pd.MultiIndex.from_product([index, self.classes_], names=[level, "class"])
        frame = pd.DataFrame(np.reshape(coef, (-1, len(names))), index, names)
        if intercept is not None:
            frame.insert(len(names), "intercept", np.ravel(intercept), allow_duplicates=True)
        return frame

    def export_task(self, task, *, as_sklearn: bool = False):
        """The model of one task, which belongs to that task and to nobody else.

        Parameters
        ----------
        task : str or int
            Id of the task.
        as_sklearn : bool, default=False
            Whether to return a fitted model of scikit-learn, which does not need this package.

        Returns
        -------
        model : dict, Ridge, PoissonRegressor or LogisticRegression
            Keys "task", "coef" (n_features,), "intercept", "classes" (list, or None for
            regression) and "feature_names" (list, or None); of counts "loss", too. With more than
            two classes "coef" is (n_classes, n_features) and "intercept" (n_classes,). With a
            factor below tasks also "level_effects" (dict from level to effect), with one across
            them "factors" (as `factors_`); the rest is the model of rows of a new level. With
            `uncertainty` also "covariance" of coefficients and, last, the intercept, and
            "noise_variance" and "dof", of classes the first alone; None where the rows of the task
            do not determine it. With `as_sklearn` a model that predicts for X without the task
            column, whose probabilities are not averaged; of a pipeline see `skpmtl.export_task`.

        Raises
        ------
        ValueError
            If the task is not in `tasks_`.
        """
        check_is_fitted(self)
        position = self._position(task)
        intercept = self.intercept_[position]
        names = feature_names(self)
        model = {
            "task": self.tasks_[position].item(),
            "coef": self.coef_[position].copy(),
            "intercept": float(intercept) if np.ndim(intercept) == 0 else intercept.copy(),
            "classes": self.classes_.tolist() if hasattr(self, "classes_") else None,
            "feature_names": None if names is None else names.tolist(),
        }
        if self.loss == "poisson":
            model["loss"] = self.loss
        if hasattr(self, "level_effects_"):
            known = self.level_effects_[position]
            model["level_effects"] = known.by_level() if known else {}
        if as_sklearn:
            return linear_model(model)
        across = getattr(getattr(self, "billboard_", None), "across", None)
        name = None if across is None else across.factor.name
        if name in getattr(self, "factors_", {}):
            model["factors"] = {name: self.factors_[name]}
        if hasattr(self, "covariance_"):
            covariance, of_rows = self.covariance_[position], hasattr(self, "dof_")
            of = self.noise_variance_[position] if of_rows else covariance
            known = np.isfinite(of).all()
            model["covariance"] = covariance.copy() if known else None
            for name in ("noise_variance", "dof") if of_rows else ():
                model[name] = float(getattr(self, f"{name}_")[position]) if known else None
        return model

    def _position(self, task):
        """Place of a task in `tasks_`; ValueError where it is not there."""
        position = int(locate(encode_ids([task])[1], self.tasks_)[0])
        if position < 0:
            raise ValueError(f"Task {task!r} has no model here; tasks_ has {listed(self.tasks_)}.")
        return position
