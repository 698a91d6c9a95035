"""The public initial model: all models are differences to it.

Models of a task are then this model plus a difference, and everything that a method does is done to
the difference: `skpmtl.tables.table.differences` subtracts the scores of rows under the initial
model from targets, and adds them to the scores of log-losses; without information tasks fall back
to the initial model. Releases, bounds and accounting are about differences, too.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from .._runtime.public import Public
from .ids import listed
from .table import LARGEST

__all__ = ["PublicInit", "read_public_init"]

_FORMS = (
    "init= takes coefficients, as an array of the shape of those of one task, a mapping with the "
    'keys "coef", "intercept", "classes" and "feature_names" (all but the first may be missing), a '
    "fitted linear model, or a billboard with a shared model"
)


@dataclass(eq=False)
class PublicInit(Public):
    """A public model."""

    coef: np.ndarray  # (n_outputs, n_features), one output for real targets and two classes
    intercept: np.ndarray  # (n_outputs,), zero without intercepts

    def declared(self, n_outputs, n_features):
        """See `skpmtl.exchange.wire`."""
        yield "the public initial model", self.coef, [(n_outputs, n_features)]
        yield "intercepts of the public initial model", self.intercept, [(n_outputs,)]

    def flat(self, by_feature=False):
        """Coefficients (n_outputs * n_features,), by output or by feature."""
        return np.ravel(self.coef.T if by_feature else self.coef)

    def joined(self, fit_intercept):
        """Coefficients and intercepts in one array (n_outputs, n_features + fit_intercept)."""
        return np.column_stack([self.coef, self.intercept]) if fit_intercept else self.coef

    def describe(self):
        """What a report says of it."""
        outputs = "" if len(self.coef) == 1 else f"{len(self.coef)} classes times "
        also = " and intercepts" if self.intercept.any() else ""
        return f"public model of {outputs}{self.coef.shape[1]} coefficients{also}"


def read_public_init(init, n_features, *, classes=None, names=None, fit_intercept=True, middle=0.0):
    """The parameter `init`, see `_FORMS`. -> PublicInit, or None

    `classes` are the sorted labels of the fit, None for real targets, `names` those of its
    features. `middle` is the intercept of a public initial model that has none of its own. Raises
    TypeError or ValueError for other things, and models that do not suit the fit.
    """
    if init is None or isinstance(init, PublicInit):
        if init is not None:
            n_outputs = 1 if classes is None or len(classes) == 2 else len(classes)
            _check_shape(init.coef, n_outputs, n_features)
        return init
    found = _parts(init)
    coef, intercept = _numbers(found["coef"], "coefficients"), found.get("intercept")
    intercept = None if intercept is None else _numbers(intercept, "intercepts")
    several = classes is not None and len(classes) > 2
    known = found.get("classes")
    if coef.ndim == 1:
        coef = coef[None]
    if coef.ndim != 2:
        raise ValueError(f"{_FORMS}; this has coefficients of the shape {coef.shape}.")
    b = np.zeros(len(coef)) if intercept is None else intercept.ravel()
    if len(b) == 1 and len(coef) > 1:
        b = np.repeat(b, len(coef))
    if len(b) != len(coef):
        raise ValueError(
            f"init= has {len(coef)} rows of coefficients, but {len(b)} intercepts: give one "
            "intercept for each."
        )
    if classes is None and known is not None:
        raise ValueError(
            f"init= is a model of the classes {listed(known)}, but targets are numbers here: take "
            "a regression as the public initial model."
        )
    if classes is not None and known is not None:
        coef, b = _of_classes(coef, b, np.asarray(known), classes)
    _check_shape(coef, len(classes) if several else 1, n_features)
    _check_names(found.get("feature_names"), names)
    if not fit_intercept and b.any():
        raise ValueError(
            "init= has an intercept, which a fit with fit_intercept=False has no place for: set "
            "fit_intercept=True, or pass the coefficients alone."
        )
    if intercept is None and fit_intercept:
        b = np.full(len(coef), float(middle))
    return PublicInit(np.ascontiguousarray(coef), np.ascontiguousarray(b))


def _parts(init):
    """-> {"coef", "intercept", "classes", "feature_names"}, those that are known"""
    if isinstance(init, Mapping):
        known = {"coef", "intercept", "classes", "feature_names"}
        own = {"task", "covariance", "noise_variance", "dof", "posterior_shift"}  # of export_task
        odd = sorted(set(map(str, init)) - known - own)
        if "coef" not in init or odd:
            raise ValueError(f"{_FORMS}; this mapping has the keys {listed(list(map(str, init)))}.")
        return init
    if isinstance(init, type):
        raise TypeError(f"{_FORMS}; {init.__name__} is a class: pass a fitted model of it.")
    if hasattr(init, "declared") and hasattr(init, "attributes"):  # a billboard
        return _shared(init.attributes(), f"This {type(init).__name__}")
    if hasattr(init, "fit"):
        name = type(init).__name__
        if hasattr(init, "steps"):
            raise ValueError(
                f"init= is a {name}, whose coefficients are those of transformed features: pass "
                "its last step, and transform the features of this fit in the same way."
            )
        state = {key: getattr(init, key) for key in _ATTRIBUTES if hasattr(init, key)}
        if hasattr(init, "billboard_") or hasattr(init, "tasks_"):
            found = _shared(state, f"This {name}")
            of_ids = getattr(getattr(init, "_form_", None), "columns", ())
            if "feature_names_in_" in state:
                state["feature_names_in_"] = np.delete(state["feature_names_in_"], list(of_ids))
        elif "coef_" in state:
            found = {"coef": state["coef_"], "intercept": state.get("intercept_")}
        else:
            raise ValueError(
                f"init= is a {name} without coef_: it is not fitted, or not linear. Fit it on "
                "public data first, or pass coefficients."
            )
        names = state.get("feature_names_in_")
        return {
            **found,
            "classes": state.get("classes_"),
            "feature_names": None if names is None else list(names),
        }
    if isinstance(init, (str, bytes, set)):
        raise TypeError(f"{_FORMS}; not {type(init).__name__}.")
    return {"coef": init}


_ATTRIBUTES = (
    "coef_",
    "intercept_",
    "mean_coef_",
    "mean_intercept_",
    "classes_",
    "feature_names_in_",
)


def _shared(found, who):
    if found.get("mean_coef_") is None:
        raise ValueError(
            f"{who} has no shared model to start from: take a fit that released one, such as with "
            'unseen_task="mean", or pass coefficients.'
        )
    return {"coef": found["mean_coef_"], "intercept": found.get("mean_intercept_")}


def _numbers(values, what):
    try:
        values = values.toarray() if sparse.issparse(values) else values
        found = np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{_FORMS}; its {what} are no numbers.") from error
    if not np.isfinite(found).all() or np.abs(found).max(initial=0.0) > LARGEST:
        raise ValueError(f"The {what} of init= must be finite and below {LARGEST:g}.")
    return found


def _of_classes(coef, b, known, classes):
    """Rows of a public initial model for the classes of the fit, in their order.

    Of two classes the difference of their rows: their log-odds are those of the initial model,
    given that it is one of the two.
    """
    if len(coef) == 1 and len(known) == 2:  # log-odds of the second
        coef, b = np.concatenate([0.0 * coef, coef]), np.concatenate([0.0 * b, b])
    if len(coef) != len(known):
        raise ValueError(
            f"init= has {len(coef)} rows of coefficients for {len(known)} classes: give one row "
            "for each, or one for two classes."
        )
    place = {label: i for i, label in enumerate(known.tolist())}
    missing = [label for label in classes.tolist() if label not in place]
    if missing:
        raise ValueError(
            f"init= knows nothing of the class(es) {listed(missing)}, its own are "
            f"{listed(known.tolist())}: pass an array with a row for every class of the fit, in "
            "their order, or labels of the same type."
        )
    pick = [place[label] for label in classes.tolist()]
    coef, b = coef[pick], b[pick]
    return (coef, b) if len(classes) > 2 else (coef[1:] - coef[:1], b[1:] - b[:1])


def _check_shape(coef, n_outputs, n_features):
    if coef.shape == (n_outputs, n_features):
        return
    wanted = (n_features,) if n_outputs == 1 else (n_outputs, n_features)
    shape = coef.shape[1:] if len(coef) == 1 else coef.shape
    raise ValueError(
        f"init= has coefficients of the shape {shape}, but a model of this fit has {wanted}"
        + (", without the task column." if coef.shape[-1] == n_features + 1 else ".")
    )


def _check_names(known, names):
    if known is None or names is None or list(known) == list(names):
        return
    odd = [name for name in known if name not in set(names)]
    problem = f"features that X lacks, {listed(odd)}" if odd else "its features in another order"
    raise ValueError(
        f"init= has {problem}: X has {listed(list(names), 20)}. Fit that model on the same columns "
        "in the same order, or pass its coefficients as an array."
    )
