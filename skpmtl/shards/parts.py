"""Parts of a table, and how their rows are read.

A part is a folder with ``X.npy``, ``y.npy`` and ``task.npy`` (and ``weight.npy`` where rows have
weights); a parquet file; some row groups of one, as a pair (address, numbers); or an arrow table,
as Ray's datasets have them. An address with a scheme, such as ``s3://bucket/part-0``, is opened by
fsspec.
"""

import os
from pathlib import Path

import numpy as np

from ..exchange.addresses import opened, reading
from ..tables.ids import listed

__all__ = ["address", "called", "read_part"]


def address(part):
    """A part as it can be sent to a worker: text, a pair of text and numbers, or a table."""
    if isinstance(part, tuple):
        if len(part) != 2 or not all(isinstance(g, (int, np.integer)) for g in part[1]):
            raise ValueError(
                f"parts= has {part!r}: a pair is the address of a parquet file and the numbers of "
                "its row groups."
            )
        return os.fspath(part[0]), tuple(map(int, part[1]))
    return os.fspath(part)


def called(part):
    """A part in words of an error."""
    return repr(part) if isinstance(part, str) else f"{part[0]!r}, row groups {listed(part[1])}"


def read_part(part, task_feature, target, weight):
    """-> X, y, task (None where it is a column of X), weight (or None)

    Raises ValueError, OSError, ImportError.
    """
    part, groups = part if isinstance(part, tuple) else (part, None)
    if not isinstance(part, str):
        return _frame(part.schema, part.num_rows, [part], task_feature, target, weight)
    files, root = opened(part)
    if groups is None and (files.isdir(root) if files else Path(root).is_dir()):
        return _arrays(files, root)
    if not (files.isfile(root) if files else Path(root).is_file()):
        raise FileNotFoundError("there is no such folder or file")
    try:
        import pandas  # noqa: F401
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise ImportError(
            "Parquet parts need pandas and pyarrow: pip install skpmtl[tables]"
        ) from error
    with reading(files, root) as stream:
        file = ParquetFile(stream)
        groups = range(file.num_row_groups) if groups is None else groups
        if groups and not 0 <= min(groups) <= max(groups) < file.num_row_groups:
            raise ValueError(f"the file has row groups 0 to {file.num_row_groups - 1}")
        n_rows = sum(file.metadata.row_group(g).num_rows for g in groups)
        tables = (file.read_row_group(g) for g in groups)
        return _frame(file.schema_arrow, n_rows, tables, task_feature, target, weight)


def _arrays(files, root):
    """The arrays of a folder; those on a disk of this machine stay there until they are used."""

    def load(name):
        if files is None:
            return np.load(Path(root, name), mmap_mode="r", allow_pickle=False)
        with files.open(f"{root}/{name}") as stream:
            return np.lib.format.read_array(stream, allow_pickle=False)

    weight = f"{root}/weight.npy"
    there = Path(weight).exists() if files is None else files.exists(weight)
    X, y, task = (load(name) for name in ("X.npy", "y.npy", "task.npy"))
    return X, y, task, np.array(load("weight.npy")) if there else None


def _frame(schema, n_rows, tables, task_feature, target, weight):
    """Rows of arrow tables, one after the other: numbers go into one matrix at once."""
    import pandas
    import pyarrow

    names = [field.name for field in schema if not field.name.startswith("__index_level_")]
    if task_feature is None or target is None:
        raise ValueError("a parquet file needs task_feature= of the estimator, and target=")
    for what, name in (("target", target), ("weight", weight)):
        if name is not None and name not in names:
            raise ValueError(f"{what}={name!r} is not among {listed(names, 20)}")
    apart = {target, weight, task_feature if isinstance(task_feature, str) else None}
    kinds = pyarrow.types
    numbers = [
        name
        for name in names
        if name not in apart
        and (kinds.is_integer(kind := schema.field(name).type) or kinds.is_floating(kind))
    ]
    matrix, rest, first = np.empty((n_rows, len(numbers))), {n: [] for n in names}, 0
    for table in tables:
        last = first + table.num_rows
        for j, name in enumerate(numbers):
            matrix[first:last, j] = table.column(name).to_numpy()
        for name in set(names) - set(numbers):
            rest[name].append(table.column(name).to_pandas())
        first = last
    frame = pandas.DataFrame(matrix, columns=numbers)
    for place, name in enumerate(names):
        if name not in set(numbers):
            frame.insert(place, name, pandas.concat(rest[name], ignore_index=True))
    y, w = (None if name is None else frame.pop(name) for name in (target, weight))
    return frame, y, None, w
