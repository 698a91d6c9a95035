"""What parameters may be, in the words of scikit-learn."""

import inspect
from collections.abc import Iterable
from functools import cache
from numbers import Integral, Real

import numpy as np
from scipy.sparse import issparse

__all__ = [
    "Interval",
    "InvalidParameterError",
    "StrOptions",
    "check_parameters",
    "defaults_of",
    "make_constraint",
    "take",
]


class InvalidParameterError(ValueError, TypeError):
    """A parameter has a value or a type that it must not have."""


class _Constraint:
    """Values for which a function is true, and how a message describes them."""

    def __init__(self, text, is_satisfied_by):
        self.text, self.is_satisfied_by = text, is_satisfied_by

    def __str__(self):
        return self.text


class StrOptions(_Constraint):
    """One of some texts."""

    def __init__(self, options):
        self.options = options
        shown = ", ".join(map(repr, options))
        super().__init__(f"a str among {{{shown}}}", lambda x: isinstance(x, str) and x in options)


class Interval(_Constraint):
    """Numbers between two bounds; None: there is no bound."""

    def __init__(self, type, left, right, *, closed):
        self.type, self.left, self.right, self.closed = type, left, right, closed
        bounds = ["-inf" if left is None else left, "inf" if right is None else right]
        if type is not Integral:
            bounds = [float(bound) for bound in bounds]
        opening = "[" if closed in ("left", "both") else "("
        closing = "]" if closed in ("right", "both") else ")"
        kind = "an int" if type is Integral else "a float"
        text = f"{kind} in the range {opening}{bounds[0]}, {bounds[1]}{closing}"
        super().__init__(text, self._holds)

    def _holds(self, x):
        if not isinstance(x, self.type) or x != x:
            return False
        left = -np.inf if self.left is None else self.left
        right = np.inf if self.right is None else self.right
        above = x >= left if self.closed in ("left", "both") else x > left
        below = x <= right if self.closed in ("right", "both") else x < right
        return bool(above and below)


def _any(constraints):
    """One of several."""
    *first, last = constraints = [make_constraint(item) for item in constraints]
    text = f"{', '.join(map(str, first))} or {last}" if first else str(last)
    return _Constraint(text, lambda x: any(item.is_satisfied_by(x) for item in constraints))


def _instances_of(kind):
    name = {Integral: "int", Real: "float"}.get(kind)
    if name is None:
        builtin = kind.__module__ == "builtins"
        name = kind.__qualname__ if builtin else f"{kind.__module__}.{kind.__qualname__}"
    return _Constraint(f"an instance of {name!r}", lambda x: isinstance(x, kind))


def _is_array_like(x):
    sized = any(hasattr(x, name) for name in ("__len__", "shape", "__array__"))
    return sized and not np.isscalar(x) and not issparse(x)


def _splits(x):
    return all(callable(getattr(x, name, None)) for name in ("split", "get_n_splits"))


_BOOLEANS = (bool, np.bool_)
_NAMED = {
    "boolean": _BOOLEANS,
    "verbose": (Interval(Integral, 0, None, closed="left"), *_BOOLEANS),
    "random_state": (
        Interval(Integral, 0, 2**32 - 1, closed="both"),
        np.random.RandomState,
        None,
    ),
    "cv_object": (
        Interval(Integral, 2, None, closed="left"),
        _Constraint("an object implementing 'split' and 'get_n_splits'", _splits),
        _Constraint("an iterable", lambda x: isinstance(x, Iterable) and not isinstance(x, str)),
        None,
    ),
    "array-like": (_Constraint("an array-like", _is_array_like),),
}


def make_constraint(given):
    """The constraint that a type, None, callable, or a word of scikit-learn stands for."""
    if isinstance(given, _Constraint):
        return given
    if given is None:
        return _Constraint("None", lambda x: x is None)
    if given is callable:
        return _Constraint("a callable", callable)
    return _instances_of(given) if isinstance(given, type) else _any(_NAMED[given])


@cache
def defaults_of(kind):
    """Defaults of the parameters of a class of estimators, by name."""
    known = inspect.signature(kind).parameters.values()
    return {given.name: given.default for given in known if given.kind != given.VAR_KEYWORD}


def take(estimator, given):
    """Set the parameters of an estimator from the local names of its ``__init__``."""
    for name, value in given.items():
        if name not in ("self", "__class__"):
            setattr(estimator, name, value)


def check_parameters(estimator):
    """Raise `InvalidParameterError` for the first parameter that is not as its class asks."""
    known = estimator._parameter_constraints
    for name, default in defaults_of(type(estimator)).items():
        value = getattr(estimator, name)
        if value is default or known.get(name, "no_validation") == "no_validation":
            continue
        allowed = _any(known[name])
        if not allowed.is_satisfied_by(value):
            raise InvalidParameterError(
                f"The {name!r} parameter of {type(estimator).__name__} must be {allowed}. Got "
                f"{value!r} instead."
            )
