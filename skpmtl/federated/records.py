"""Questions and answers as records of Flower messages: one JSON text and named arrays."""

import numpy as np

from ._flower import Array, ArrayRecord, ConfigRecord, RecordDict

__all__ = ["read", "write"]

_ROOM = 1024  # bytes of an array's header, at most


def write(arrays=None, **settings):
    """Records of a message. -> RecordDict

    Parameters
    ----------
    arrays : mapping of str to ndarray, default=None
    **settings : str, int or list of these
    """
    content = {"settings": ConfigRecord(settings)}
    if arrays:
        content["arrays"] = ArrayRecord({k: Array(np.asarray(v)) for k, v in arrays.items()})
    return RecordDict(content)


def read(content, shapes=None):
    """Settings and arrays of a message. -> dict, {name: ndarray}

    Parameters
    ----------
    content : RecordDict
    shapes : mapping of str to tuple, default=None
        What has to be there, as float64 and nothing else; None: anything.

    Raises
    ------
    ValueError
        For other names, shapes or types, found before the numbers are read.
    """
    settings = dict(content.config_records["settings"])
    records = content.array_records.get("arrays", {})
    if shapes is not None:
        if set(records) != set(shapes):
            raise ValueError(f"arrays {sorted(records)} instead of {sorted(shapes)}")
        for name, shape in shapes.items():
            item = records[name]
            known = item.dtype == "float64" and tuple(item.shape) == shape
            if not known or len(item.data) > 8 * np.prod(shape) + _ROOM:
                raise ValueError(f"{name} is {item.dtype} of shape {item.shape}, not {shape}")
    arrays = {name: item.numpy() for name, item in records.items()}
    for name, shape in (shapes or {}).items():
        if arrays[name].shape != shape or arrays[name].dtype != np.float64:
            raise ValueError(f"{name} is not what its record says")
    return settings, arrays
