"""Tables with named columns, of pandas, polars, Arrow and others, as narwhals shows them."""

import narwhals as nw
import numpy as np
from scipy import sparse

from .sparse import checked


def frame_of(X, name="X"):
    """The table X behind `narwhals.DataFrame`, or None for arrays, lists and sparse matrices.

    Raises TypeError for a table that is not computed yet, and ValueError for two columns of one
    name.
    """
    if isinstance(X, np.ndarray):  # which narwhals takes .2 ms to find out
        return None
    try:
        found = nw.from_native(X, pass_through=True)
    except nw.exceptions.DuplicateError as error:
        text = str(error).replace("\n", " ")
        raise ValueError(f"{name} has columns of one name. {text}. Rename or drop them.") from None
    if isinstance(found, nw.LazyFrame):
        raise TypeError(
            f"{name} is a {type(X).__name__}, which has no rows yet: compute it first, such as by "
            f"{name}.collect()."
        )
    return found if isinstance(found, nw.DataFrame) else None


def column_labels(X, name="X"):
    """Names of the columns of a table, or None."""
    frame = frame_of(X, name)
    return None if frame is None else frame.columns


def indexed(X, name):
    """Index and columns {name: list of values} of a table or series of pandas; else None."""
    found = frame_of(X, name)
    if found is None:
        found = nw.from_native(X, pass_through=True, allow_series=True)
        if not isinstance(found, nw.Series):
            return None
    index = nw.maybe_get_index(found)
    if index is None:
        return None
    if isinstance(found, nw.Series):
        return list(index), {None: found.to_list()}
    return list(index), {own.name: own.to_list() for own in found.iter_columns()}


def is_number(dtype):
    """Whether columns of this type of narwhals are features as they are."""
    return dtype.is_numeric() or dtype == nw.Boolean


def columns_where(X, wanted):
    """Names of the columns of a table whose type fulfils `wanted`; none for other input."""
    frame = frame_of(X)
    return [] if frame is None else [name for name, t in frame.schema.items() if wanted(t)]


def without_decimals(X):
    """X with decimals as floats: scikit-learn would turn them, and with them all, into objects."""
    names = columns_where(X, lambda dtype: dtype == nw.Decimal)
    if not names:
        return X
    return frame_of(X).with_columns(nw.col(*names).cast(nw.Float64)).to_native()


def by_position(X):
    """X as a table, a matrix or an array, whose columns can be taken by position."""
    return checked(X) if sparse.issparse(X) or frame_of(X) is not None else np.asarray(X)


def table_like(X, named):
    """Columns {name: values} as a table of the library of X, with its index; or as an array."""
    frame = frame_of(X)
    if frame is None:
        return np.column_stack([*named.values()])
    made = nw.from_dict(named, backend=frame.implementation).to_native()
    if (index := nw.maybe_get_index(frame)) is not None:  # of pandas
        made.index = index
    return made


def safe_indexing(X, indices, *, axis=0):
    """Rows (axis 0) or columns of an array, a matrix, a table, a series or a list, by position."""
    if isinstance(X, (list, tuple)):
        return [X[i] for i in indices]
    X = getattr(X, "iloc", X)  # of pandas
    if not isinstance(X, np.ndarray):
        X = nw.from_native(X, pass_through=True, allow_series=True)
    return nw.to_native(X[:, indices] if axis else X[indices], pass_through=True)
