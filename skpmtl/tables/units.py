"""Privacy units: owners of records, and the bound on records per person."""

from collections.abc import Mapping

import numpy as np

from .ids import encode_ids, listed


def owners(unit, table, mapped):
    """Owner of every labelled row, in table order; `mapped` when X was a mapping."""
    if mapped != isinstance(unit, Mapping):
        raise ValueError(
            "unit must be a mapping {task: unit_t} if X is one, and an array if X is one: "
            f"got {type(unit).__name__}."
        )
    if mapped:
        parts = [np.asarray(unit.get(task, ())) for task in table.tasks.tolist()]
        wrong = [len(part) != size for part, size in zip(parts, table.sizes, strict=True)]
        if any(wrong):
            raise ValueError(
                "unit must have one id for each row of each task, but has not for the task(s) "
                f"{listed(table.tasks[wrong])}."
            )
        unit = np.concatenate(parts)
    unit = np.asarray(unit)
    if unit.ndim != 1:
        raise ValueError(f"unit has the shape {unit.shape}; it must hold one id for each row.")
    place = table.rows if table.rows is not None else table.order
    n_rows = len(table.X)
    if len(unit) != n_rows:
        raise ValueError(f"unit has {len(unit)} entries, X has {n_rows} rows.")
    return unit if place is None else unit[place]


def check_units(unit, table, max_rows, group_size):
    """ValueError if a person has more than `max_rows` rows, or `group_size` in one task."""
    codes, labels = encode_ids(unit, "Unit")
    rows = np.bincount(codes)
    over = np.flatnonzero(rows > max_rows)
    if len(over):
        others = f" (and {len(over) - 1} more units)" if len(over) > 1 else ""
        raise ValueError(
            f"Unit {labels[over[0]].item()!r} has {rows[over[0]]} rows{others}, but "
            f"max_rows_per_unit={max_rows!r}. Raise the bound, or drop rows by a public rule."
        )
    pairs, counts = np.unique(codes * table.n_tasks + table.codes, return_counts=True)
    over = np.flatnonzero(counts > group_size)
    if len(over):
        u, k = divmod(pairs[over[0]], table.n_tasks)
        raise ValueError(
            f"Unit {labels[u].item()!r} has {counts[over[0]]} rows in task "
            f"{table.tasks[k].item()!r}, but group_size={group_size!r} is the bound on the rows of "
            "one unit within one task. Raise it, or drop rows by a public rule."
        )
