"""Finite numbers of any type and size -> finite float64."""

import sys

import numpy as np
from scipy import sparse

__all__ = ["floats", "named_floats"]

_LARGEST = sys.float_info.max


def floats(values):
    """Numbers as float64; finite ones beyond its range become the largest of their sign.

    Whether one task has such numbers (integers of hundreds of digits, long doubles) must not end
    the fit of all.

    Parameters
    ----------
    values : array-like or sparse matrix
        Of integers, floats, booleans or objects.

    Returns
    -------
    values : ndarray or sparse matrix of float64
        The same object where it has that type already.

    Raises
    ------
    TypeError, ValueError
        For what is no number. The text is that of numpy, which may show a value.
    """
    if sparse.issparse(values):
        if values.dtype == np.float64:
            return values
        values = values.copy()
        values.data = floats(values.data)
        return values
    values = np.asarray(values)
    with np.errstate(over="ignore"):
        if values.dtype.kind == "O":
            try:
                return values.astype(np.float64)
            except OverflowError:
                flat = [_float_of(value) for value in values.ravel().tolist()]
                return np.array(flat).reshape(values.shape)
        found = values.astype(np.float64, copy=False)
        if values.dtype.kind == "f" and values.dtype.itemsize > found.dtype.itemsize:
            lost = np.isinf(found) & np.isfinite(values)
            found[lost] = np.copysign(_LARGEST, values[lost])
    return found


def named_floats(values, name):
    """`floats`, of which the error has a name and shows no value."""
    found = None
    try:
        found = floats(values)
    except (TypeError, ValueError):
        pass
    if found is None:  # not inside of except: the first error shows a value
        raise ValueError(
            f"{name} has values that are not numbers; convert them with .astype(float)."
        )
    return found


def _float_of(value):
    try:
        return float(value)
    except OverflowError:
        return _LARGEST if value > 0 else -_LARGEST
