"""Queries and answers as records of Flower messages: settings, and named arrays.

Small arrays travel with the settings, because each record of its own costs an exchange between
site and SuperLink; large ones are records of Flower, which it sends in pieces.
"""

import numpy as np

from ..exchange.wire import from_npy, to_npy
from ._flower import Array, ArrayRecord, ConfigRecord, RecordDict

__all__ = ["read", "size", "write"]

_SMALL = 1 << 16  # bytes
_DTYPES = ("<f8", "<i8", "|b1", "|u1")  # the last for what is sealed
_MARK = "array."


def write(arrays=None, **settings):
    """Records of a message; settings are str, int or lists of these. -> RecordDict"""
    large = {}
    for name, array in (arrays or {}).items():
        array = np.asarray(array)
        data = bytes(to_npy(array))
        if len(data) <= _SMALL:
            settings[_MARK + name] = data
        else:
            large[name] = Array(array.dtype.name, array.shape, "numpy.ndarray", data)
    content = {"settings": ConfigRecord(settings)}
    if large:
        content["arrays"] = ArrayRecord(large)
    return RecordDict(content)


def read(content, shapes=None):
    """Settings and arrays of a message. -> dict, {name: ndarray}

    `shapes`: what has to be there, as float64 and nothing else; None: numbers and bytes. Raises
    ValueError for other names, shapes or types, before the numbers are read.
    """
    settings, data = _parts(content)
    if shapes is None:
        return settings, {name: from_npy(item, name, _DTYPES) for name, item in data.items()}
    if set(data) != set(shapes):
        raise ValueError(f"arrays {sorted(data)} instead of {sorted(shapes)}")
    return settings, {k: from_npy(data[k], k, ("<f8",), shape) for k, shape in shapes.items()}


def size(content):
    """Bytes of the arrays in the records of a message."""
    found = [v for record in content.config_records.values() for v in record.values()]
    found += [v.data for record in content.array_records.values() for v in record.values()]
    return sum(len(value) for value in found if isinstance(value, bytes))


def _parts(content):
    settings = dict(content.config_records["settings"])
    names = [name for name in settings if name.startswith(_MARK)]
    data = {name[len(_MARK) :]: settings.pop(name) for name in names}
    for name, item in content.array_records.get("arrays", {}).items():
        data[name] = item.data
    for name, item in data.items():
        if not isinstance(item, bytes):
            raise ValueError(f"{name} is no array")
    return settings, data
