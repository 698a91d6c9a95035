"""Task ids and class labels of any type -> integer codes."""

from numbers import Integral, Real

import numpy as np
from sklearn.utils.validation import column_or_1d


def factorize(values):
    """Number the distinct values of a column or list. -> codes, uniques

    codes (n,), int64: position of each value in `uniques`, which has no particular order; -1 where
    the value is missing (NaN, None, NA).
    """
    # pandas hashes, without a copy; among objects its older versions take "a\\0" for "a".
    if hasattr(values, "factorize") and np.ndim(values) == 1 and values.dtype != object:
        codes, uniques = values.factorize()
        return codes.astype(np.int64, copy=False), np.asarray(uniques)
    if isinstance(values, (list, tuple)):  # as an array, [1, "a"] would become two strings
        values = np.fromiter(values, dtype=object, count=len(values))
    values = np.asarray(values)
    if values.ndim != 1:
        values = column_or_1d(values, warn=False)
    if values.dtype.kind == "T":  # StringDType, which may have a value for missing entries
        values = values.astype(object)
    if values.dtype.kind == "O":
        return _factorize_objects(values.tolist())
    missing = values != values if values.dtype.kind == "f" else None
    if missing is not None and missing.any():
        codes = np.full(len(values), -1)
        uniques, codes[~missing] = np.unique(values[~missing], return_inverse=True)
        return codes, uniques
    if not (values[1:] < values[:-1]).any():  # sorted already
        first = np.concatenate([[True], values[1:] != values[:-1]])[: len(values)]
        return np.cumsum(first) - 1, values[first]
    uniques, codes = np.unique(values, return_inverse=True)
    return codes, uniques


def _factorize_objects(values):
    try:
        distinct = dict.fromkeys(values)
    except TypeError:
        raise TypeError("Task ids or labels must be strings or numbers, not containers.") from None
    known = [value for value in distinct if not _is_missing(value)]
    code = {**dict.fromkeys(distinct, -1), **dict(zip(known, range(len(known)), strict=True))}
    codes = np.fromiter(map(code.__getitem__, values), np.int64, len(values))
    uniques = np.empty(len(known), dtype=object)
    uniques[:] = known
    return codes, uniques


def refuse_trailing_nul(values, name):
    """ValueError for text that ends in NUL characters: numpy drops them, and two become one."""
    if any(isinstance(value, str) and value.endswith("\0") for value in values):
        raise ValueError(
            f"{name} must not end in a NUL character (\\0), which numpy does not keep; strip it."
        )


def _is_missing(value):
    # NA answers a comparison with NA, hence the look at its type.
    return value is None or type(value).__name__ in ("NAType", "NaTType") or value != value


def encode_ids(ids, name="Task", missing_too=False):
    """Ids -> (codes, tasks) with `tasks` sorted, of int64 or str; `name` is for messages.

    With `missing_too` the code of a missing id is -1.

    Raises ValueError for missing ids and for numbers that are not whole, do not fit into 64 bits,
    or are floats so large that their type does not hold every integer (from 2^24 on in float32,
    2^53 in float64), and TypeError for ids of several types, or of another type than str and int.
    """
    codes, uniques = factorize(ids)
    missing = np.flatnonzero(codes < 0)
    if len(missing) and not missing_too:
        raise ValueError(
            f"{name} id missing (NaN or None) in {len(missing)} row(s), first at position "
            f"{missing[0]}. Drop these rows or give them a {name.lower()} of their own."
        )
    tasks, inverse = np.unique(_clean(uniques, name), return_inverse=True)
    found = np.append(inverse.astype(np.int64, copy=False), -1)  # code -1 takes the last
    return found[codes], tasks


def _clean(uniques, name):
    kind = uniques.dtype.kind
    if kind == "O":
        types = {type(value) for value in uniques}
        if all(issubclass(t, str) for t in types):
            refuse_trailing_nul(uniques.tolist(), f"{name} ids")
            return uniques.astype(str)
        if not all(issubclass(t, (Real, np.bool_)) for t in types):
            names = sorted(t.__name__ for t in types)
            problem = "mix the types" if len(types) > 1 else "have the type"
            raise TypeError(
                f"{name} ids {problem} {', '.join(names)}; use strings only or integers only, "
                "for example with .astype(str)."
            )
        values = uniques.tolist()
        floats = tuple(t for t in types if not issubclass(t, (Integral, np.bool_)))
        if any(_is_inexact(value) for value in values if isinstance(value, floats)):
            raise ValueError(_inexact(name))
        uniques = np.array(values)
        kind = uniques.dtype.kind
    if kind in "UT":
        return uniques.astype(str)
    if kind == "f":
        if np.isinf(uniques).any():
            raise ValueError(f"{name} ids contain infinity (inf); use strings or integers.")
        whole = uniques == np.round(uniques)
        if not whole.all():
            raise ValueError(
                f"{name} ids must be whole numbers or strings, but {np.sum(~whole)} of "
                f"{len(uniques)} distinct ids are not. Was the {name.lower()} column scaled by an "
                "earlier step of a pipeline? Let it pass: "
                "ColumnTransformer(..., remainder='passthrough')."
            )
        # Two tasks may be one number by now, and the task is what a guarantee protects. The error
        # depends on rows, as all errors of ids do; it ends a fit before anything is released.
        if (abs(uniques) >= _exact_below(uniques.dtype)).any():
            raise ValueError(_inexact(name))
        return uniques.astype(np.int64)
    if kind == "u" and uniques.max(initial=0) > np.iinfo(np.int64).max:
        raise ValueError(f"A {name.lower()} id exceeds 2**63 - 1; use strings: .astype(str).")
    if kind in "iub":
        return uniques.astype(np.int64)
    raise TypeError(
        f"{name} ids have the type {uniques.dtype}; use strings or integers, for example with "
        ".astype(str)."
    )


def _exact_below(dtype):
    """Power of two from which on a type of floats, or int64, no longer holds every integer."""
    return 2.0 ** min(np.finfo(dtype).nmant + 1, 63)


def _is_inexact(value):
    """Whether a float may be the rounding of another id; infinity has its own error."""
    return value - value == 0 and abs(value) >= _exact_below(getattr(value, "dtype", np.float64))


def _inexact(name):
    return (
        f"{name} ids are floats too large to tell neighbouring integers apart (2**53 and more, in "
        "float32 2**24), so that tasks may have been merged. Pass ids as integers or as strings: "
        f"in a column of a DataFrame that is not joined with floats, or as {name.lower()}=. A "
        "ColumnTransformer keeps such a column with set_output(transform='pandas'); a column with "
        'gaps, with .astype("Int64") before it becomes one of floats.'
    )


def locate(ids, known, name="Task"):
    """Position of each of `ids` in the sorted `known`, -1 where it is not there.

    Both come from `encode_ids`. Raises TypeError when one holds strings, the other numbers.
    """
    if not len(known) or not len(ids):  # ids that are all missing have no type
        return np.full(len(ids), -1)
    if (ids.dtype.kind == "U") != (known.dtype.kind == "U"):
        raise TypeError(
            f"{name} ids are {_type_name(ids)} here, but the known {name.lower()}s are "
            f"{_type_name(known)}: "
            f"{ids[:3].tolist()} and {known[:3].tolist()}. Convert one of them with .astype."
        )
    position = np.minimum(np.searchsorted(known, ids), len(known) - 1)
    return np.where(known[position] == ids, position, -1)


def _type_name(ids):
    return "strings" if ids.dtype.kind == "U" else "integers"


def listed(labels, limit=5):
    """Labels as they appear in messages, at most `limit` of them."""
    labels = np.asarray(labels).tolist()
    more = f" and {len(labels) - limit} more" if len(labels) > limit else ""
    return f"{labels[:limit]}{more}"
