"""Queries and answers as they are sent: settings as JSON, and named arrays as .npy bytes.

The engine carries text and bytes only. Every array is read by `skpmtl.exchange.wire.from_npy`,
which compares the header with the size before it reads a number.
"""

import json

import numpy as np

from ..exchange.wire import from_npy, to_npy

__all__ = ["read", "settings", "write"]

_DTYPES = ("<f8", "<i8", "|b1", "|u1")  # the last one for sealed shares


def write(arrays=None, /, **settings):
    """Content of a message. -> {"settings": str, "arrays": {name: bytes}}"""
    arrays = {name: bytes(to_npy(np.asarray(a))) for name, a in (arrays or {}).items()}
    return {"settings": json.dumps(settings), "arrays": arrays}


def settings(content):
    """Settings of a message; raises ValueError where it is none."""
    try:
        found, data = json.loads(content["settings"]), content["arrays"]
        if isinstance(found, dict) and all(isinstance(item, bytes) for item in data.values()):
            return found
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("this is no message of skpmtl") from error
    raise ValueError("this is no message of skpmtl")


def read(content, shapes=None):
    """Settings and arrays of a message. -> dict, {name: ndarray}

    `shapes`: the arrays that the message must have, of float64; None: any arrays of numbers or
    bytes. Raises ValueError for other names, shapes or types, before the numbers are read.
    """
    known, data = settings(content), content["arrays"]
    if shapes is None:
        return known, {name: from_npy(item, name, _DTYPES) for name, item in data.items()}
    if set(data) != set(shapes):
        raise ValueError(f"arrays {sorted(data)} instead of {sorted(shapes)}")
    return known, {k: from_npy(data[k], k, ("<f8",), shape) for k, shape in shapes.items()}
