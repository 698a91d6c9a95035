"""What the tables of all papers have in common: a runner, the form of rows, and files.

A paper has ``TABLES``: name -> (function of `quick` and the number of draws, that number[, column
whose values stand side by side]). The function gives the rows of ``PAPER_NAME.csv``, or a dict of
file and rows. Everything has one thread; warnings of seeded noise and of the papers' delta are off.
"""

import warnings

import numpy as np
from threadpoolctl import threadpool_limits

from ..command import PAPERS, command_line, write_rows

# Not in a table of values side by side.
_OF_ONE_CELL = {"mean", "sd", "wins", "worse", "chosen", "p"}


def line(names, *values):
    """A row: names of columns, with a comma and a space between two, and their values."""
    return dict(zip(names.split(", "), values, strict=True))


def number(x):
    return float(f"{x:.4g}")


def sd(values):
    """Of one draw: 0."""
    return np.std(values, ddof=len(values) > 1)


def mean_sd(values, form=".4f"):
    """Mean and standard deviation as text."""
    return f"{np.mean(values):{form}}", f"{sd(values):{form}}"


def collected(cells):
    """Values of cells (key, value) by key. -> {key: list}"""
    found = {}
    for key, value in cells:
        found.setdefault(key, []).append(value)
    return found


def best(candidates, score):
    """The candidate with the highest score."""
    candidates = list(candidates)
    return candidates[int(np.nanargmax([score(one) for one in candidates]))]


def side_by_side(rows, column):
    """One row for all values of a column, with "mean (sd)" of the draws of each."""
    found = {}
    for row in rows:
        rest = {k: v for k, v in row.items() if k not in _OF_ONE_CELL and k != column}
        same, name = (
            found.setdefault(tuple(rest.values()), rest),
            f"{column} {row[column] or 'none'}",
        )
        forms = (".3g", ".2g") if isinstance(row["mean"], float) else ("", "")
        parts = [
            f"{row[k]:{form}}"
            for k, form in zip(("mean", "sd"), forms, strict=True)
            if row[k] != ""
        ]
        same[name] = " (".join(parts) + ")" * (len(parts) - 1)
        if row.get("wins", "") != "":
            same["wins"] = f"{same['wins']} {row['wins']}" if "wins" in same else row["wins"]
    return list(found.values())


def run(paper, text, tables, arguments=None, prepare=None, **flags):
    """The command line of a paper. -> {file: rows}

    `flags` are further options and their help; ``prepare(options, tables)``, if they are used,
    says which tables there are.
    """
    parser = command_line(f"papers.{paper}", text, PAPERS, "small data, one draw", "by table")
    parser.add_argument("--only", nargs="*", choices=tables, help="default: all of them")
    for flag, about in flags.items():
        parser.add_argument(f"--{flag}", help=about)
    options = parser.parse_args(arguments)
    names, done = options.only or tables, {}
    if any(getattr(options, flag) for flag in flags):
        tables = prepare(options)
        names = options.only or tables
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in names:
            measure, repeats, *column = tables[name]
            found = measure(options.quick, options.repeats or (1 if options.quick else repeats))
            for file, rows in (found if isinstance(found, dict) else {name: found}).items():
                rows = list(rows)
                if column and file == name:
                    rows = side_by_side(rows, *column)
                fields = dict.fromkeys(
                    k for row in sorted(rows, key=len, reverse=True) for k in row
                )
                if "wins" in fields:
                    fields["wins"] = fields.pop("wins")
                path = options.output / f"{paper}_{file}.csv"
                done[file] = write_rows(rows, tuple(fields), path)
    return done
