"""Billboards as JSON and named arrays, for files and for the network.

Reading one runs no code: types come from a closed list, arrays are plain numbers, and everything
is checked before it is used. The same list keeps private things in: an attribute is written only
after it was declared public here, or is a field of a billboard.
"""

import json
import math
import typing
import zipfile
import zlib
from dataclasses import fields, is_dataclass
from importlib import import_module
from numbers import Integral, Real
from types import UnionType

import numpy as np

from ._ids import listed
from ._version import __version__
from .privacy.report import PrivacyReport

__all__ = ["pack", "unpack"]

FORMAT = 1

# Every list below is closed.
# Modules are imported late, because some of them import this one.
BOARDS = {
    "PriorBillboard": "empirical_bayes",
    "ProjectionBillboard": "projection",
    "PenaltyBillboard": "exact",
    "MeanBillboard": "personal",
    "MetaBillboard": "meta",
    "AggregationBillboard": "dp_baselines",
    "RelationshipBillboard": "dp_relationship",
}
_MODULES = {
    **BOARDS,
    "Problem": "rounds",
    "RoundPlan": "curator",
    "VectorGaussian": "privacy.mechanisms",
}
# Types that are no dataclasses: their public state.
_STATE = {
    "RoundPlan": (
        "n_tasks",
        "size",
        "adjacency",
        "clip_norm",
        "quantile",
        "n_rounds",
        "server_rate",
        "sampling",
        "rate",
        "denominator",
        "epsilon",
        "delta",
        "round_delta",
        "mu",
        "noise_multiplier",
        "intercept",
        "step",
    ),
    "VectorGaussian": (
        "dimension",
        "shape",
        "sensitivity",
        "mu",
        "noise_std",
        "step",
        "_shrink",
    ),
}
_CHOICES = {
    "statistic": ("matrix", "diagonal"),
    "task_weight": ("equal", "samples"),
    "personalization": ("mean-reg", "finetune", "symmetrized-kl", "ewc", "none"),
    "refine": ("prox", "sgd"),
    "kind": (0, 1, 2),
}
# Fields that may be one of these words, or else a positive number.
_POSITIVE = {
    "lam": ("auto", "alone"),
    "local_steps": ("auto",),
    "refine_steps": (),
    "refine_learning_rate": ("auto",),
}


def class_of(name):
    return getattr(import_module(f".{_MODULES[name]}", __package__), name)


# ------------------------------------------------------------------------- values as text
def pack(value):
    """A billboard as JSON and named arrays, to send it over a network.

    Parameters
    ----------
    value : billboard
        Or a part of one: numbers, text, None, arrays of finite numbers, `PrivacyReport`, and lists,
        tuples and dicts (with keys of text or integers) of these.

    Returns
    -------
    text : str
        Strict JSON.
    arrays : dict of str to ndarray
        The arrays that `text` refers to; not copied where that is possible.

    Raises
    ------
    ValueError
        For anything else, which is named, and for arrays with NaN or infinity.
    """
    arrays = {}
    tree = {"board": encode(value, "board", arrays), "format": FORMAT}
    return json.dumps(tree, allow_nan=False), arrays


def unpack(text, arrays):
    """Inverse of `pack`; what comes from elsewhere is checked.

    Parameters
    ----------
    text : str
    arrays : mapping of str to ndarray

    Raises
    ------
    ValueError
        If a type, key or array is not known, missing, not finite or of the wrong shape, or the
        format is that of another version.
    """
    with Complaints():
        tree = parse(text, ("board", "format"))
        return decode_all(tree["board"], arrays)


def encode(value, name, arrays):
    """JSON of a value; arrays go to `arrays` by the dotted path `name`."""
    if value is None or isinstance(value, (str, bool, np.bool_)):
        return bool(value) if isinstance(value, np.bool_) else value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        number = float(value)
        return number if math.isfinite(number) else {"float": str(number)}
    if isinstance(value, np.ndarray):
        arrays[name] = _checked_array(value, name)
        return {"array": name}
    if isinstance(value, (list, tuple)):
        items = [encode(item, f"{name}.{i}", arrays) for i, item in enumerate(value)]
        return items if isinstance(value, list) else {"tuple": items}
    if isinstance(value, dict):
        return {"dict": [_encode_pair(k, v, name, arrays) for k, v in value.items()]}
    if isinstance(value, PrivacyReport):
        return {"report": json.loads(value.to_json())}
    kind = type(value).__name__
    if kind not in _MODULES or type(value) is not class_of(kind):
        raise ValueError(f"{name} is of type {kind}, which is not part of any billboard.")
    return {"object": kind, "fields": _encode_fields(value, name, arrays)}


def _encode_pair(key, item, name, arrays):
    if isinstance(key, bool) or not isinstance(key, (str, Integral)):
        raise ValueError(f"{name} has the key {key!r}; keys must be text or integers.")
    key = key if isinstance(key, str) else int(key)
    return [str(key) if isinstance(key, str) else key, encode(item, f"{name}.{key}", arrays)]


def _encode_fields(value, name, arrays):
    kind, state = type(value).__name__, vars(value)
    if kind in _STATE:
        unknown = sorted(set(state) - set(_STATE[kind]))
        if unknown:
            raise ValueError(f"{name} has attributes that were not declared public: {unknown}.")
    else:
        state = {item.name: state[item.name] for item in fields(value)}
    if kind == "RelationshipBillboard" and not value.releases:
        # An exact fit: these are the tasks' own models, which nobody needs to go on.
        state["models"] = value.models[:0]
    return {key: encode(item, f"{name}.{key}", arrays) for key, item in state.items()}


def _checked_array(value, name):
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "biuf":
        kind = getattr(value, "dtype", type(value).__name__)
        raise ValueError(f"{name} holds {kind}, not an array of numbers.")
    if not np.isfinite(value).all():
        raise ValueError(f"{name} holds NaN or infinity.")
    native = value.dtype.newbyteorder("=")
    # Kernels are compiled for writable arrays in C order.
    return np.require(value, native, ["C", "W", "A"])


# ------------------------------------------------------------------------- text as values
class Complaints:
    """Turns whatever bad content leads to into ValueError, with the name of its origin."""

    def __init__(self, origin="This billboard", remedy="Ask whoever published it to send it again"):
        self.origin, self.remedy = origin, remedy

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        bad = (
            AttributeError, EOFError, KeyError, IndexError, MemoryError, NotImplementedError,
            OverflowError, RecursionError, TypeError, ValueError, zipfile.BadZipFile, zlib.error,
        )  # fmt: skip
        if isinstance(error, bad):
            text = str(error).rstrip(".") or type(error).__name__
            raise ValueError(f"{self.origin} cannot be read: {text}. {self.remedy}.") from error


def parse(text, keys):
    """Header with exactly these keys, of a known format."""
    tree = json.loads(text, parse_constant=_refuse)
    if not isinstance(tree, dict) or "format" not in tree:
        raise ValueError("it is not a billboard of skpmtl")
    if tree["format"] != FORMAT:
        raise ValueError(
            f"it has format {tree['format']!r}, and skpmtl {__version__} reads {FORMAT}: use the "
            f"version that wrote it ({tree.get('package', 'unknown')})"
        )
    if sorted(tree) != sorted(keys):
        raise ValueError(f"its keys are {listed(sorted(tree), 20)}, not {listed(keys, 20)}")
    return tree


def _refuse(name):
    raise ValueError(f"{name} is not JSON")


def decode_all(tree, arrays):
    """Value of a tree that uses each of the arrays once."""
    left = dict(arrays)
    value = decode(tree, left)
    if left:
        raise ValueError(f"it has arrays that nothing refers to: {listed(sorted(left))}")
    return value


def decode(tree, arrays):
    if tree is None or isinstance(tree, (str, bool, int, float)):
        return tree
    if isinstance(tree, list):
        return [decode(item, arrays) for item in tree]
    if set(tree) == {"object", "fields"}:
        return _decode_object(tree["object"], tree["fields"], arrays)
    if len(tree) != 1:
        raise ValueError(f"the keys {listed(sorted(tree))} have no meaning")
    ((tag, content),) = tree.items()
    if tag == "float" and content in ("inf", "-inf", "nan"):
        return float(content)
    if tag == "array":
        if content not in arrays:
            raise ValueError(f"the array {content!r} is missing")
        return _checked_array(arrays.pop(content), content)
    if tag == "tuple":
        return tuple(decode(item, arrays) for item in content)
    if tag == "dict":
        out = {_key(key): decode(item, arrays) for key, item in content}
        if len(out) < len(content):
            raise ValueError("a mapping has a key twice")
        return out
    if tag == "report":
        return PrivacyReport.from_json(json.dumps(content))
    raise ValueError(f"the key {tag!r} has no meaning")


def _key(key):
    if isinstance(key, bool) or not isinstance(key, (str, int)):
        raise ValueError(f"a mapping has the key {key!r}")
    return key


def _decode_object(name, content, arrays):
    if name not in _MODULES:
        raise ValueError(f"the type {name!r} is not known to skpmtl {__version__}")
    kind = class_of(name)
    known = [item.name for item in fields(kind)] if is_dataclass(kind) else _STATE[name]
    odd = sorted(set(content) ^ set(known))
    if odd:
        raise ValueError(f"the fields {listed(odd)} of {name} are unknown, or missing")
    state = {key: decode(item, arrays) for key, item in content.items()}
    if not is_dataclass(kind):
        plain = (str, int, float, tuple, np.ndarray, type(None), class_of("VectorGaussian"))
        odd = [key for key, value in state.items() if not isinstance(value, plain)]
        if odd:
            raise ValueError(f"{odd[0]} of {name} cannot be of type {type(state[odd[0]]).__name__}")
        out = object.__new__(kind)
        vars(out).update(state)
        return out
    for key, hint in typing.get_type_hints(kind).items():
        _check_field(name, key, state[key], hint)
    out = kind(**state)
    if name in BOARDS:
        _check_board(out)
    return out


def _check_field(name, key, value, hint):
    good = _fits(value, hint) and not (isinstance(value, float) and not math.isfinite(value))
    if key in _CHOICES:
        good = good and value in _CHOICES[key]
    if key in _POSITIVE:
        good = good and (value in _POSITIVE[key] if isinstance(value, str) else value > 0)
    if not good:
        plain = value is None or isinstance(value, (str, int, float))
        shown = repr(value) if plain else f"of type {type(value).__name__}"
        raise ValueError(f"{key} of {name} cannot be {shown}")


def _fits(value, hint):
    if isinstance(hint, UnionType):
        return any(_fits(value, item) for item in hint.__args__)
    if hint in (int, float):
        return isinstance(value, Integral if hint is int else Real) and not isinstance(value, bool)
    return isinstance(value, hint)


def _check_board(board):
    """Arrays have the shapes that belong together."""
    for what, array, shapes in _shapes(board):
        found = np.shape(array)
        if found not in shapes or not isinstance(array, np.ndarray if found else Real):
            raise ValueError(f"{what} has the shape {found}, not {' or '.join(map(str, shapes))}")


def _shapes(board):
    """Yield (name, array, allowed shapes)."""
    kind, d = type(board).__name__, n_features_of(board)
    if d < 1:
        raise ValueError("it has no features")
    if not isinstance(board.report, PrivacyReport | None):
        raise ValueError("its privacy report is not one")
    if kind in ("PriorBillboard", "ProjectionBillboard", "PenaltyBillboard"):
        square = (d, d) if board.statistic == "matrix" else (d,)
        if kind == "ProjectionBillboard":
            yield from (("a projection", M, [square]) for M in board.projections)
        else:
            if kind == "PriorBillboard" and board.snr_centre is not None and not board.snr_spread:
                raise ValueError("snr_centre needs a snr_spread")
            yield "its moment", board.moment if kind == "PriorBillboard" else board.shape, [square]
        yield from (("a release", S, [square, (1,), (d + 1,)]) for S in board.releases)
        if kind != "PenaltyBillboard" and board.mean is not None:
            yield "the mean model", board.mean, [(d + 1,)]
        return
    if kind == "MeanBillboard":
        yield from _mean_shapes(board)
        return
    if kind == "MetaBillboard":
        C = len(board.init)
        several = board.kind == 2
        yield "the initialisation", board.init, [(C, d + board.fit_intercept)]
        yield "its coefficients", board.coef, [(C, d) if several else (d,)]
        yield "its intercept", board.intercept, [(C,) if several else ()]
        return
    width = d + board.fit_intercept
    if kind == "AggregationBillboard":
        yield from (("a release", S, [(width,)]) for S in board.releases)
        return
    m = len(board.columns)
    yield "the columns", board.columns, [(m, width)]
    yield "the models", board.models, [(m, width)] if board.releases else [(0, width)]
    yield from (("a release", S, [(m * width,)]) for S in board.releases)
    yield from (("a sensitivity", s, [(m,)]) for s in board.sensitivity)


def _mean_shapes(board):
    g, (shape, problem, plan) = len(board.means), (board.shape, board.problem, board.plan)
    several = problem.kind == 2
    if not isinstance(problem, class_of("Problem")) or len(shape) != 1 + several:
        raise ValueError("its shape does not suit the loss")
    if plan is None:
        known = not board.noise_variance.any()
    else:
        known = isinstance(plan, class_of("RoundPlan")) and plan.server_rate > 0
    if not known:
        raise ValueError("its plan is not that of rounds")
    C = shape[0] if several else 1
    if problem.n_outputs != C:
        raise ValueError(f"n_outputs is {problem.n_outputs}, not {C}")
    if g < 1 or any(number not in range(g) for number in (board.cluster_of or {}).values()):
        raise ValueError(f"clusters must be numbered from 0 to {g - 1}")
    if not all(isinstance(bound, Real) and bound > 0 for bound in board.clip_norms):
        raise ValueError("clip_norms must be positive")
    size = math.prod(shape)
    yield "the means", board.means, [(g, size)]
    yield from (("a release", S, [(size,), (g, size), (1,), (g * C,)]) for S in board.releases)
    yield "noise_variance", board.noise_variance, [(g,)]
    yield "total_variance", board.total_variance, [(g,)]
    if plan is not None:
        yield "the steps of its plan", plan.step, [(g, 1)]
    if board.mean_intercept is not None:
        yield "mean_intercept", board.mean_intercept, [(C,) if board.cluster_of is None else (g, C)]


def n_features_of(board):
    """Features of the models of a billboard."""
    kind = type(board).__name__
    if kind == "PriorBillboard":
        return len(board.moment)
    if kind == "ProjectionBillboard":
        return len(board.projections[0])
    if kind in ("PenaltyBillboard", "MeanBillboard"):
        return int(board.shape[-1]) if kind == "MeanBillboard" else len(board.shape)
    if kind == "MetaBillboard":
        return board.coef.shape[-1]
    models = board.releases[0] if kind == "AggregationBillboard" else board.columns
    return models.shape[-1] - board.fit_intercept
