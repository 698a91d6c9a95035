"""Writes the type hints of all public modules: ``skpmtl/__init__.pyi`` and its like.

    python -m tests.stubs

What a parameter may be is known from the constraints that scikit-learn checks at run time, and the
types of attributes, of other parameters and of what is returned from the docstrings: the hints say
nothing of their own. A test compares the files with what would be written.
"""

import inspect
import re
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from numbers import Integral, Real
from pathlib import Path

import numpy as np
import sklearn.base
from sklearn.utils.metaestimators import available_if

# A name that several of them have is defined in the first.
MODULES = (
    "skpmtl", "skpmtl.privacy", "skpmtl.baselines",
    "skpmtl.callbacks", "skpmtl.datasets", "skpmtl.exchange", "skpmtl.exchange.wire",
    "skpmtl.federated", "skpmtl.fedmtl", "skpmtl.inspection", "skpmtl.metrics",
    "skpmtl.model_selection", "skpmtl.networks", "skpmtl.pipeline", "skpmtl.preprocessing",
    "skpmtl.reproduction", "skpmtl.search", "skpmtl.shards",
)  # fmt: skip
# What hints are made of, by the line that imports it.
IMPORTS = (
    ("from collections.abc import {}", ("Callable", "Iterator", "Mapping")),
    ("from os import {}", ("PathLike",)),
    ("from typing import {}", ("Any", "Literal", "NamedTuple")),
    ("from numpy.random import {}", ("Generator", "RandomState")),
    ("from numpy.typing import {}", ("ArrayLike", "NDArray")),
    (
        "from sklearn.base import {}",
        (
            "BaseEstimator", "ClassifierMixin", "MetaEstimatorMixin", "RegressorMixin",
            "TransformerMixin",
        ),
    ),
    ("from sklearn.utils import {}", ("Bunch",)),
    ("from typing_extensions import {}", ("Self",)),
)  # fmt: skip
ConditionalMethod = type(available_if(bool)(bool))
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
    (r"BudgetPlan", "BudgetPlan"),
    (r"float", "float"), (r"int\b", "int"), (r"str\b", "str"), (r"dict", "dict[Any, Any]"),
    (r"(:class:`~sklearn.utils.)?Bunch", "Bunch"), (r"array\b", "ArrayLike"),
    (r"mapping", "Mapping[Any, Any]"),
    (r"tuple", "tuple[Any, ...]"), (r"list", "list[Any]"), (r"callable", "Callable[..., Any]"),
    (r"Generator", "Generator"), (r"RandomState", "RandomState"), (r"bytes", "bytes"),
    (r"(path-like|path|PathLike)", "str | PathLike[str]"), (r"None$", "None"),
)  # fmt: skip
SPECIAL = {  # methods that syntax calls
    "__call__": "self, *args: Any, **kwargs: Any) -> Any",
    "__contains__": "self, item: Any) -> bool",
    "__enter__": "self) -> Self",
    "__exit__": "self, *error: Any) -> None",
    "__getitem__": "self, key: Any) -> Any",
    "__iter__": "self) -> Iterator[Any]",
    "__len__": "self) -> int",
}
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
    if "matplotlib" in text:
        return "Any"
    if re.match(r"\{.*\}", text) and '"' in text:
        options = re.findall(r'"([^"]*)"', text.partition("}")[0])
        hint = "Literal[" + ", ".join(f'"{option}"' for option in options) + "]"
        rest = text.partition("}")[2]
        hint += " | type[Any]" if "numpy type" in rest else ""
        return hint + (" | None" if "None" in rest else "")
    parts = re.split(r",? or |, default|, (?![^(]*\))", text)
    found = []
    for part in parts:
        if re.fullmatch(r"=.*", part):
            continue
        if part.strip() in classes():
            found.append(part.strip())
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
    found = dict.fromkeys(hint for several in found for hint in several.split(" | "))
    return " | ".join(sorted(found, key=lambda hint: hint == "None")) or "Any"


def of_type(annotation):
    """Hint from the annotation of a field, "Any" where it is more than one plain type."""
    name = getattr(annotation, "__name__", str(annotation))
    return {"tuple": "tuple[Any, ...]", "ndarray": "NDArray[Any]"}.get(
        name, name if name in ("bool", "float", "int", "str") else "Any"
    )


@cache
def homes():
    """-> dict: module in which each public thing is defined for type checkers, by its identity"""
    found = {}
    for module in MODULES:
        for name in exported(import_module(module)):
            found.setdefault(id(getattr(import_module(module), name)), module)
    return found


@cache
def classes():
    """-> dict: public classes by name"""
    modules = [import_module(module) for module in MODULES]
    things = {name: getattr(module, name) for module in modules for name in exported(module)}
    return {name: thing for name, thing in things.items() if inspect.isclass(thing)}


def exported(module):
    return sorted(set(module.__all__) - {"__version__"})


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
    found = list(section(thing, "Yields").items())
    if found:
        hints = [of_words(described) for _, described in found]
        return f"Iterator[{hints[0] if len(hints) == 1 else 'tuple[' + ', '.join(hints) + ']'}]"
    found = list(section(thing, "Returns").items())
    if len(found) == 1:
        name, described = found[0]
        return of_words(described or name)
    return "tuple[Any, ...]" if found else "Any"


def default_of(value):
    if isinstance(value, str):
        return f'"{value}"' if value.isprintable() and '"' not in value else "..."
    simple = value is None or isinstance(value, (bool, int, float))
    return repr(value) if simple and abs(value or 0) < np.inf else "..."


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
        text += ": Any" if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD) else f": {hint}"
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


def owners(cls):
    """-> dict: the class of the package in which each public method of a class is defined

    The class itself for methods of several signatures, which type checkers do not let a subclass
    override.
    """
    found = {}
    for key, several in definitions(cls).items():
        codes = [getattr(method, "__code__", method) for _, method in several]
        # Copies of `_runtime.names` have the code of the method that they copy.
        same = [base for (base, _), code in zip(several, codes, strict=True) if code is codes[0]]
        found[key] = cls if key in overridden() else same[-1]
    return found


def definitions(cls):
    """-> dict: (class of the package, method) for each public method of a class, nearest first"""
    found = {}
    for base in known(cls):
        for key, value in vars(base).items():
            if not key.startswith("_") and is_method(value) and not inspect.isclass(value):
                found.setdefault(key, []).append((base, value))
    return found


@cache
def overridden():
    """Names of methods that some estimator overrides with another signature."""
    found = set()
    for cls in classes().values():
        for key, several in definitions(cls).items():
            signed = [value for _, value in several if inspect.isfunction(value)]
            if len(set(map(inspect.signature, signed))) > 1:
                found.add(key)
    return found


def is_method(value):
    return callable(value) or isinstance(value, (classmethod, staticmethod, ConditionalMethod))


@cache
def ancestors_of(cls):
    """Other classes of the package that an estimator has public methods from, nearest first."""
    found = set(owners(cls).values())
    return tuple(base for base in known(cls) if base in found and base is not cls)


def bases_of(cls):
    """Those of `ancestors_of` that are not also ancestors of one of them."""
    found = ancestors_of(cls)
    return [base for base in found if not any(base in ancestors_of(other) for other in found)]


def written_name(cls):
    """Name of a class in a file of hints; private ones are written where they are inherited."""
    private = cls not in classes().values()
    return "_" + cls.__name__.lstrip("_") if private else cls.__name__


def mixin_lines(mixin):
    """Lines of a private class with its public methods."""
    keys = {key for key, owner in owners(mixin).items() if owner is mixin} - overridden()
    bases = ", ".join(map(written_name, bases_of(mixin)))
    head = f"class {written_name(mixin)}({bases}):" if bases else f"class {written_name(mixin)}:"
    return [head, *(method_lines(mixin, keys) or ["    ..."])]


def class_lines(name, cls):
    """Lines of a class with its parameters, attributes and public methods."""
    if issubclass(cls, Warning):
        return [f"class {name}({cls.__base__.__name__}): ..."]
    if issubclass(cls, tuple):
        known_types = section(cls, "Attributes")
        fields = [f"    {key}: {of_words(known_types.get(key, ''))}" for key in cls._fields]
        return [f"class {name}(NamedTuple):", *fields]
    mixins = [base for base in BASES if issubclass(cls, getattr(sklearn.base, base))]
    plain = not issubclass(cls, sklearn.base.BaseEstimator)
    inherited = () if plain else ancestors_of(cls)
    bases = [] if plain else [*map(written_name, bases_of(cls)), *mixins, "BaseEstimator"]
    lines = [f"class {name}({', '.join(bases)}):" if bases else f"class {name}:"]
    constraints = getattr(cls, "_parameter_constraints", {})
    hints = {key: of_constraint(value) for key, value in constraints.items()}
    parameters = inspect.signature(cls).parameters
    described = {**section(cls.__init__, "Parameters"), **section(cls, "Parameters")}
    for parameter in parameters:
        hint = hints.get(parameter) or of_words(described.get(parameter, ""))
        declared = of_type(getattr(cls, "__annotations__", {}).get(parameter))
        hint = declared if hint == "Any" else hint
        hints[parameter] = hint
        lines.append(f"    {parameter}: {hint}")
    for attribute, text in section(cls, "Attributes").items():
        if attribute.isidentifier() and attribute not in parameters:
            lines.append(f"    {attribute}: {of_words(text)}")
    members = {key: value for base in reversed(known(cls)) for key, value in vars(base).items()}
    for key, value in members.items():
        hidden = key.startswith("_") or any(line.startswith(f"    {key}: ") for line in lines)
        if isinstance(value, property) and not hidden:
            lines.append(f"    {key}: {returned(value)}")
    if cls.__init__ is not object.__init__:
        lines += function("__init__", cls.__init__, hints, "    ", "None")
    special = [(key, hint) for key, hint in SPECIAL.items() if key in members]
    lines += [f"    def {key}({hint}: ..." for key, hint in special]
    keys = {key for key, value in members.items() if not key.startswith("_") and is_method(value)}
    keys -= {key for key, owner in owners(cls).items() if owner in inherited}
    lines += method_lines(cls, keys)
    return lines if len(lines) > 1 else [f"{lines[0]} ..."]


def method_lines(cls, keys):
    """Lines of methods of a class, by their names."""
    lines, methods = [], {}
    for base in reversed(known(cls)):
        methods |= {key: value for key, value in vars(base).items() if key in keys}
    for key in sorted(methods):
        if isinstance(methods[key], classmethod):
            lines.append("    @classmethod")
            lines += function(key, methods[key].__func__, {}, "    ", "Self")
        elif isinstance(methods[key], staticmethod):
            lines.append("    @staticmethod")
            lines += function(key, methods[key].__func__, {}, "    ")
        elif inspect.isclass(methods[key]):
            lines.append(f"    {key}: Any")
        else:
            method = getattr(cls, key, None)
            result = "Self" if key in FLUENT else None
            if isinstance(methods[key], ConditionalMethod):
                lines += function(key, methods[key].fn, {}, "    ", result)
            elif callable(method):
                lines += function(key, method, {}, "    ", result)
    return lines


def path(module):
    """File of the hints of a module."""
    return Path(import_module(module).__file__).with_suffix(".pyi")


def stub(module):
    """-> text of the file with the hints of a module."""
    here, lines, taken, mixins = import_module(module), [], {}, set()
    for name in exported(here):
        thing = getattr(here, name)
        if inspect.isclass(thing) and homes()[id(thing)] == module:
            plain = not issubclass(thing, sklearn.base.BaseEstimator)
            found = [] if plain else list(ancestors_of(thing))
            while found:
                mixins.add(found[-1])
                found += ancestors_of(found.pop())
    for mixin in sorted(mixins - set(classes().values()), key=written_name):
        lines += [*mixin_lines(mixin), ""]
    for name in exported(here):
        thing = getattr(here, name)
        home = homes()[id(thing)]
        if home != module:
            taken[name] = home
            continue
        if inspect.isclass(thing):
            lines += class_lines(name, thing)
        elif callable(thing):
            lines += function(name, thing, {})
        else:
            lines.append(f"{name}: {type(thing).__name__}")
        lines.append("")
    text = "\n".join(lines)
    for name, thing in classes().items():  # named by hints
        used = re.search(rf"(?<![\w.\"]){name}\b(?!\()", text)
        if used and name not in exported(here) and id(thing) in homes():
            taken[name] = homes()[id(thing)]
    head = [f'"""Type hints of `{module}`; written by ``python -m tests.stubs``."""', ""]
    for line, names in IMPORTS:
        used = [name for name in names if re.search(rf"(?<![\w.]){name}\b", text)]
        head += [line.format(", ".join(used))] if used else []
    head += [f"from {home} import {name} as {name}" for name, home in sorted(taken.items())]
    version = ["__version__: str", ""] if "__version__" in here.__all__ else []
    names = "".join(f'    "{name}",\n' for name in here.__all__)
    return "\n".join([*head, "", *version, *lines, f"__all__ = [\n{names}]", ""])


if __name__ == "__main__":
    for module in MODULES:
        path(module).write_text(stub(module))
