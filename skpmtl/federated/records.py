"""Questions and answers as records of Flower messages: one JSON text and named arrays."""

import numpy as np

from ..exchange.wire import from_npy, to_npy
from ._flower import Array, ArrayRecord, ConfigRecord, RecordDict

__all__ = ["read", "write"]

def write(arrays=None, **settings):
    """Records of a message. -> RecordDict

    Parameters
    ----------
    arrays : mapping of str to ndarray, default=None
    **settings : str, int or list of these
    """
    content = {"settings": ConfigRecord(settings)}
    if arrays:
        content["arrays"] = ArrayRecord({k: _array(np.asarray(v)) for k, v in arrays.items()})
    return RecordDict(content)


def _array(value):
    return Array(value.dtype.name, value.shape, "numpy.ndarray", bytes(to_npy(value)))


def read(content, shapes=None):
    """Settings and arrays of a message. -> dict, {name: ndarray}

    Parameters
    ----------
    content : RecordDict
    shapes : mapping of str to tuple, default=None
        What has to be there, as float64 and nothing else; None: anything that `from_npy` reads.

    Raises
    ------
    ValueError
        For other names, shapes or types, found before the numbers are read.
    """
    settings = dict(content.config_records["settings"])
    records = content.array_records.get("arrays", {})
    if shapes is None:
        return settings, {name: from_npy(item.data, name) for name, item in records.items()}
    if set(records) != set(shapes):
        raise ValueError(f"arrays {sorted(records)} instead of {sorted(shapes)}")
    arrays = {k: from_npy(records[k].data, k, ("<f8",), shape) for k, shape in shapes.items()}
    return settings, arrays
