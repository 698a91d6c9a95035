"""Writes ``skpmtl/__init__.pyi``, the type hints of what ``import skpmtl`` gives.

    python -m tests.stubs

What a parameter may be is known from the constraints that scikit-learn checks at run time, and the
types of attributes, of other parameters and of what is returned from the docstrings: the hints say
nothing of their own. A test compares the file with what would be written.
"""

import inspect
import re
from collections.abc import Mapping
from numbers import Integral, Real
from pathlib import Path

import numpy as np
import sklearn.base

import skpmtl

PATH = Path(skpmtl.__file__).with_suffix(".pyi")
HEAD = '''\
"""Type hints of `skpmtl`; written by ``python -m tests.stubs``."""

from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any, Literal

from numpy.random import Generator, RandomState
from numpy.typing import ArrayLike, NDArray
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    MetaEstimatorMixin,
    RegressorMixin,
    TransformerMixin,
)
from typing_extensions import Self

from .privacy import PrivacyReport
'''
BASES = ("TransformerMixin", "MetaEstimatorMixin", "ClassifierMixin", "RegressorMixin")
CONSTRAINTS = {
    "array-like": "ArrayLike", "boolean": "bool", "random_state": "int | RandomState | Generator",
    "verbose": "int", "sparse matrix": "Any", "no_validation": "Any", "cv_object": "Any",
    callable: "Callable[..., Any]", None: "None", Mapping: "Mapping[Any, Any]",
    dict: "Mapping[Any, Any]", list: "list[Any]", tuple: "tuple[Any, ...]", str: "str",
    np.random.Generator: "Generator",
}  # fmt: skip
# The first of these that the description of a type in a docstring begins with, or names.
WORDS = (
    (r"self|estimator : self", "Self"), (r"ndarrays? of (str|object)", "NDArray[Any]"),
    (r"(list|tuple) of", "{1}[Any, ...]"), (r"ndarray", "NDArray[Any]"),
    (r"array-like", "ArrayLike"), (r"PrivacyReport", "PrivacyReport"), (r"bool", "bool"),
    (r"float", "float"), (r"int\b", "int"), (r"str\b", "str"), (r"dict", "dict[str, Any]"),
    (r"(path-like|path|PathLike)", "str | PathLike[str]"), (r"None$", "None"),
)  # fmt: skip
FLUENT = {"fit", "partial_fit", "personalize", "set_callbacks"}  # what returns the estimator
# The rows come in many forms, which `tables.forms` checks.
ANY = {"X", "y", "task", "sample_weight", "estimator", "model", "params", "fit_params"}


def of_constraint(constraints):
    """Hint of a parameter from a list of scikit-learn's constraints."""
    if constraints == "no_validation":
        return "Any"
    found = []
    for one in constraints:
        if hasattr(one, "options"):
            options = sorted(option for option in one.options)
            found.append("Literal[" + ", ".join(f'"{option}"' for option in options) + "]")
        elif hasattr(one, "left"):
            found.append("int" if one.type is Integral else "float")
        elif one is Integral or one is Real:
            found.append("int" if one is Integral else "float")
        else:
            found.append(CONSTRAINTS[one])
    if "Any" in found:
        return "Any"
    return " | ".join(sorted(dict.fromkeys(found), key=lambda hint: hint == "None"))


def of_words(text):
    """Hint from the type that a docstring gives, "Any" where it is not one of a few."""
    if re.match(r"\{.*\}", text) and '"' in text:
        options = re.findall(r'"([^"]*)"', text.partition("}")[0])
        hint = "Literal[" + ", ".join(f'"{option}"' for option in options) + "]"
        rest = text.partition("}")[2]
        hint += " | type[Any]" if "numpy type" in rest else ""
        return hint + (" | None" if "None" in rest else "")
    parts = re.split(r",? or |, default", text)
    found = []
    for part in parts:
        if re.fullmatch(r"=.*", part):
            continue
        if re.fullmatch(r'"[^"]*"', part.strip()):
            found.append(f"Literal[{part.strip()}]")
            continue
        for pattern, hint in WORDS:
            match = re.match(pattern, part.strip())
            if match:
                hint = "list[Any]" if hint.startswith("{1}") and match[1] == "list" else hint
                found.append(hint.replace("{1}", "tuple"))
                break
        else:
            return "Any"
    return " | ".join(sorted(dict.fromkeys(found), key=lambda hint: hint == "None")) or "Any"


def section(thing, title):
    """-> dict: names that a section of the docstring lists, with their types as text."""
    text = inspect.getdoc(thing) or ""
    match = re.search(rf"^{title}\n-+\n(.*?)(?=^\w[\w ]*\n-+\n|\Z)", text, re.DOTALL | re.MULTILINE)
    found = {}
    for line in match[1].splitlines() if match else ():
        if line and not line.startswith((" ", "..", "[")):
            names, _, described = line.partition(" : ")
            found.update(dict.fromkeys((name.strip(" *") for name in names.split(",")), described))
    return found


def returned(thing):
    found = list(section(thing, "Returns").items())
    if len(found) == 1:
        name, described = found[0]
        return of_words(described or name)
    return "tuple[Any, ...]" if found else "Any"


def default_of(value):
    simple = value is None or isinstance(value, (bool, int, float, str))
    return repr(value).replace("'", '"') if simple and value == value else "..."


def function(name, thing, hints, indent="", result=None):
    """Lines of a ``def`` with the hints of some parameters."""
    described = section(thing, "Parameters")
    listed, star = [], False
    for place, one in enumerate(inspect.signature(thing).parameters.values()):
        if indent and place == 0 and one.name in ("self", "cls"):
            listed.append(one.name)
            continue
        hint = hints.get(one.name) or ("Any" if one.name in ANY else None)
        hint = hint or of_words(described.get(one.name, ""))
        if one.kind is one.KEYWORD_ONLY and not star:
            listed.append("*")
            star = True
        text = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "") + one.name
        star = star or one.kind is one.VAR_POSITIONAL
        text += f": {hint}"
        if one.default is None and not re.search(r"\bNone$|^Any$", hint):
            text += " | None"
        if one.default is not one.empty:
            text += f" = {default_of(one.default)}"
        listed.append(text)
    end = f") -> {result or returned(thing)}: ..."
    line = f"{indent}def {name}({', '.join(listed)}{end}"
    if len(line) <= 100:
        return [line]
    lines = [f"{indent}def {name}("]
    lines += [f"{indent}    {text}," for text in listed]
    return [*lines, indent + end]


def known(cls):
    """Classes of the package that a class inherits from, the nearest first."""
    return [base for base in cls.__mro__ if base.__module__.startswith("skpmtl")]


def class_lines(name, cls):
    """Lines of a class with its parameters, attributes and public methods."""
    if issubclass(cls, Warning):
        return [f"class {name}({cls.__base__.__name__}): ..."]
    mixins = [base for base in BASES if issubclass(cls, getattr(sklearn.base, base))]
    plain = not issubclass(cls, sklearn.base.BaseEstimator)
    bases = ", ".join(mixins + ([] if plain else ["BaseEstimator"]))
    lines = [f"class {name}({bases}):" if bases else f"class {name}:"]
    constraints = getattr(cls, "_parameter_constraints", {})
    hints = {key: of_constraint(value) for key, value in constraints.items()}
    parameters = inspect.signature(cls).parameters
    described = {**section(cls.__init__, "Parameters"), **section(cls, "Parameters")}
    for parameter in parameters:
        hint = hints.get(parameter) or of_words(described.get(parameter, ""))
        hints[parameter] = hint
        lines.append(f"    {parameter}: {hint}")
    for attribute, text in section(cls, "Attributes").items():
        if attribute.isidentifier() and attribute not in parameters:
            lines.append(f"    {attribute}: {of_words(text)}")
    lines += function("__init__", cls.__init__, hints, "    ", "None")
    methods = {
        key: value
        for base in reversed(known(cls))
        for key, value in vars(base).items()
        if not key.startswith("_") and (callable(value) or isinstance(value, classmethod))
    }
    for key in sorted(methods):
        if isinstance(methods[key], classmethod):
            lines.append("    @classmethod")
            lines += function(key, methods[key].__func__, {}, "    ", "Self")
        else:
            method = getattr(cls, key, None)
            result = "Self" if key in FLUENT else None
            if callable(method):
                lines += function(key, method, {}, "    ", result)
    return lines


def stub():
    """-> text of the file."""
    lines = [HEAD, "__version__: str", ""]
    for name in sorted(set(skpmtl.__all__) - {"__version__"}):
        thing = getattr(skpmtl, name)
        lines += class_lines(name, thing) if inspect.isclass(thing) else function(name, thing, {})
        lines.append("")
    names = "".join(f'    "{name}",\n' for name in skpmtl.__all__)
    return "\n".join([*lines, f"__all__ = [\n{names}]", ""])


if __name__ == "__main__":
    PATH.write_text(stub())
