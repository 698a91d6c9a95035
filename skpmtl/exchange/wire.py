"""Billboards as JSON and named arrays, for files and for the network.

Reading one runs no code but that of its class: types come from a closed list, those that derive
from `skpmtl.exchange.billboard.Public`; arrays are plain numbers, and everything is checked before
it is used. The same list keeps private things in: only a field of such a class is written.

What belongs to a billboard its class says, see `skpmtl.exchange.Billboard`.
"""

import io
import json
import math
import re
import struct
import typing
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from numbers import Integral, Real
from types import UnionType

import numpy as np

from .._runtime.constraints import make_constraint
from .._version import __version__
from ..privacy.report import PrivacyReport
from ..tables.ids import listed
from .billboard import Billboard, Public

__all__ = ["pack", "unpack"]
FORMAT = 3
LARGEST = 1e100  # number that means anything; squares and products of such are finite
MOST_STEPS = 1_000_000  # that a billboard may ask of a task
# Types of arrays, as a file has them.
_DTYPES = ("<f8", "<i8", "|b1")
_NPY = re.compile(
    rb"\{'descr': '([^']+)', 'fortran_order': False, 'shape': \(([0-9]{1,18}, ?)*"
    rb"([0-9]{1,18})?\), \} *\n"
)


# ------------------------------------------------------------------------- values as text
def pack(value) -> tuple:
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

    Raises ValueError for anything else, which is named, and for arrays with NaN or infinity.
    """
    arrays: dict[str, np.ndarray] = {}
    tree = {"board": encode(value, "board", arrays), "format": FORMAT}
    return json.dumps(tree, allow_nan=False), arrays


def unpack(text: str, arrays: Mapping):
    """Inverse of `pack`; what comes from elsewhere is checked.

    Parameters
    ----------
    text : str
    arrays : mapping of str to ndarray

    Raises
    ------
    ValueError
        If a type, key or array is not known, missing, not finite, of the wrong type or shape, or
        the format is that of another version.
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
    if type(value) is not written_type(kind):
        raise ValueError(f"{name} is of type {kind}, which is not part of any billboard.")
    state = value.written()
    return {
        "object": kind,
        "fields": {key: encode(item, f"{name}.{key}", arrays) for key, item in state.items()},
    }


def written_type(name):
    """The class of this name that may be written; None if there is none."""
    kind = Public.known.get(name)
    return kind if is_dataclass(kind) else None


def _encode_pair(key, item, name, arrays):
    if isinstance(key, bool) or not isinstance(key, (str, Integral)):
        raise ValueError(f"{name} has the key {key!r}; keys must be text or integers.")
    key = key if isinstance(key, str) else int(key)
    return [str(key) if isinstance(key, str) else key, encode(item, f"{name}.{key}", arrays)]


def _checked_array(value, name):
    if not isinstance(value, np.ndarray) or value.dtype.newbyteorder("<").str not in _DTYPES:
        kind = getattr(value, "dtype", type(value).__name__)
        raise ValueError(f"{name} holds {kind}, not an array of float64, int64 or bool.")
    if not np.isfinite(value).all():
        raise ValueError(f"{name} holds NaN or infinity.")
    native = value.dtype.newbyteorder("=")
    # Kernels are compiled for writable arrays in C order.
    return np.require(value, native, ["C", "W", "A"])


# ---------------------------------------------------------------------- arrays as bytes
def to_npy(array):
    """Bytes of a .npy file, little-endian and in C order, which `from_npy` accepts."""
    stream = io.BytesIO()
    array = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(array.shape)
    np.lib.format.write_array(stream, array, version=(1, 0), allow_pickle=False)
    return stream.getbuffer()


def from_npy(data, name, dtypes=_DTYPES, shape=None):
    """Array of the bytes of a .npy file; the header is held against the size before it is read.

    `name` is for errors. `dtypes`: what it may hold, "<U" being text of any length; `shape`: what
    it must be, None for any. Raises ValueError for other types, byte orders, orders or versions of
    the format, and where type and shape do not make up exactly the bytes that there are.
    """
    data = memoryview(data)
    start = 10 + int.from_bytes(data[8:10], "little")
    header = bytes(data[10 : min(start, 10_000)])
    if data[:8] != b"\x93NUMPY\x01\x00" or not (match := _NPY.fullmatch(header)):
        raise ValueError(f"{name} is no array as NumPy writes it, in C order and with numbers")
    kind = match[1].decode("ascii")
    if kind not in dtypes and not ("<U" in dtypes and re.fullmatch("<U[0-9]{1,9}", kind)):
        raise ValueError(f"{name} holds {np.dtype(kind)}, not {' or '.join(dtypes)}")
    stored = tuple(map(int, re.findall(rb"[0-9]+", header[header.index(b"(") :])))
    if shape is not None and stored != shape:
        raise ValueError(f"{name} has the shape {stored}, not {shape}")
    dtype = np.dtype(kind)
    if math.prod(stored) * dtype.itemsize != len(data) - start:
        raise ValueError(f"{name} of the shape {stored} does not fit its size in the file")
    return np.array(np.frombuffer(data[start:], dtype).reshape(stored), dtype.newbyteorder("="))


# ------------------------------------------------------------------------- text as values
class Complaints:
    """Turns whatever bad content leads to into ValueError, with the name of its origin."""

    def __init__(self, origin="This billboard", remedy="Ask whoever published it to send it again"):
        self.origin, self.remedy = origin, remedy

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        bad = (
            AttributeError,
            EOFError,
            KeyError,
            IndexError,
            MemoryError,
            NotImplementedError,
            OSError,
            OverflowError,
            RecursionError,
            TypeError,
            ValueError,
            struct.error,
            zipfile.BadZipFile,
            zlib.error,
        )
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
            f"it has format {tree['format']!r}, and skpmtl {__version__} reads {FORMAT}: fit "
            f"again, or use the version that wrote it ({tree.get('package', 'unknown')})"
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
        report = PrivacyReport.from_json(json.dumps(content))
        str(report)  # what cannot be printed is none
        return report
    raise ValueError(f"the key {tag!r} has no meaning")


def _key(key):
    if isinstance(key, bool) or not isinstance(key, (str, int)):
        raise ValueError(f"a mapping has the key {key!r}")
    return key


def _decode_object(name, content, arrays):
    kind = written_type(name)
    if kind is None:
        raise ValueError(f"the type {name!r} is not known to skpmtl {__version__}")
    odd = sorted(set(content) ^ {item.name for item in fields(kind)})
    if odd:
        raise ValueError(f"the fields {listed(odd)} of {name} are unknown, or missing")
    state = {key: decode(item, arrays) for key, item in content.items()}
    for key, hint in typing.get_type_hints(kind).items():
        if key in state:
            _check_field(kind, key, state[key], hint)
    out = kind(**state)
    if isinstance(out, Billboard):
        check_billboard(out)
    return out


def _check_field(kind, key, value, hint):
    good = _fits(value, hint)
    if isinstance(value, Real):
        good = good and abs(value) < (2**63 if isinstance(value, Integral) else LARGEST)
    constraints = getattr(kind, "constraints", {})
    if key in constraints:
        allowed = [make_constraint(item) for item in constraints[key]]
        # To a constraint True is a number like others.
        good = good and (hint is bool or not isinstance(value, bool))
        good = good and any(item.is_satisfied_by(value) for item in allowed)
    if not good:
        plain = value is None or isinstance(value, (str, int, float))
        shown = repr(value) if plain else f"of type {type(value).__name__}"
        raise ValueError(f"{key} of {kind.__name__} cannot be {shown}")


def _fits(value, hint):
    if isinstance(hint, UnionType):
        return any(_fits(value, item) for item in hint.__args__)
    if hint in (int, float):
        return isinstance(value, Integral if hint is int else Real) and not isinstance(value, bool)
    return isinstance(value, hint)


def check_billboard(billboard):
    """Raise ValueError unless the arrays of a billboard are what its class declares."""
    if not isinstance(billboard.report, PrivacyReport | None):
        raise ValueError("its privacy report is not one")
    if billboard.n_features < 1:
        raise ValueError("it has no features")
    for release in getattr(billboard, "releases", ()):
        shape = np.shape(release) if isinstance(release, np.ndarray) else ()
        check_arrays([("a release", release, [shape])])
    check_arrays(billboard.declared())


def check_arrays(declared):
    """Raise ValueError unless arrays are as declared: (what it is, array, shapes it may have)."""
    for what, array, shapes in declared:
        shape = np.shape(array)
        if shape not in shapes or not isinstance(array, np.ndarray if shape else Real):
            raise ValueError(f"{what} has the shape {shape}, not {' or '.join(map(str, shapes))}")
        if shape and array.dtype != np.float64:
            raise ValueError(f"{what} holds {array.dtype}, not float64")
        if not (np.abs(array) < LARGEST).all():
            raise ValueError(f"{what} holds NaN, or numbers of {LARGEST:g} and above")
