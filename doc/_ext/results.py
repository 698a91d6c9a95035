"""The directive ``results``: a table of a file of measurements, made when the page is built.

.. code-block:: rst

   .. results:: multilevel.csv
      :rows: table
      :columns: estimator epsilon
      :values: error
      :where: estimator = alone | PrivateMTL
              epsilon =  | 3
      :digits: 3

A cell is the mean of a value over the lines of the file that agree with its row and column; values
that are missing in all of them are left out. ``:of:`` may be "max" or "count" in place of the mean.
The order of the alternatives of ``:where:`` is that of rows and columns; empty ones are empty cells
of the file, and shown as "none".
"""

import csv
from pathlib import Path
from statistics import fmean

from docutils import nodes
from docutils.parsers.rst import Directive, directives

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
_OF = {"mean": fmean, "max": max, "count": len}


class Results(Directive):
    required_arguments = 1
    option_spec = {
        "rows": directives.unchanged_required,
        "columns": directives.unchanged,
        "values": directives.unchanged_required,
        "where": directives.unchanged,
        "of": lambda text: directives.choice(text, tuple(_OF)),
        "digits": directives.nonnegative_int,
        "caption": directives.unchanged,
    }

    def run(self):
        path = FOLDER / self.arguments[0]
        self.state.document.settings.record_dependencies.add(str(path))
        with path.open(newline="", encoding="utf-8") as file:
            lines = list(csv.DictReader(file))
        order = {}
        for condition in filter(None, self.options.get("where", "").splitlines()):
            name, _, allowed = condition.partition("=")
            order[name.strip()] = [value.strip() for value in allowed.split("|")]
            absent = {*order[name.strip()]} - {line[name.strip()] for line in lines}
            if absent:
                raise self.error(f"No line of {path.name} has {name.strip()} = {sorted(absent)}.")
        kept = [c for c in lines if all(c[name] in allowed for name, allowed in order.items())]
        rows = self.options["rows"].split()
        columns = self.options.get("columns", "").split()
        values = self.options["values"].split()
        if not kept:
            raise self.error(f"No line of {path.name} agrees with :where:.")
        table = self._cells(kept, rows, columns, values)
        keys = [
            sorted({cell[k] for cell in table}, key=_rank(kept, order, names))
            for k, names in enumerate((rows, columns))
        ]
        several = len(values) > 1
        heads = [
            " ".join(filter(None, [*map(_shown, key), value if several or not columns else ""]))
            for key in keys[1]
            for value in values
        ]
        body = [
            [
                " ".join(map(_shown, row)),
                *(table.get((row, key, v), "") for key in keys[1] for v in values),
            ]
            for row in keys[0]
        ]
        return [_table([" ".join(rows), *heads], body, self.options.get("caption"))]

    def _cells(self, kept, rows, columns, values):
        found = {}
        for line in kept:
            row, key = (tuple(line[name] for name in names) for names in (rows, columns))
            for value in values:
                if line[value]:
                    found.setdefault((row, key, value), []).append(float(line[value]))
        of, digits = _OF[self.options.get("of", "mean")], self.options.get("digits", 3)
        digits = 0 if of is len else digits
        return {cell: f"{of(numbers):.{digits}f}" for cell, numbers in found.items()}


def _shown(key):
    return key or "none"


def _rank(lines, order, names):
    """A key of sorting: the order of the alternatives, else that of the file."""
    seen = {n: order.get(n) or list(dict.fromkeys(line[n] for line in lines)) for n in names}
    return lambda key: [seen[n].index(part) for n, part in zip(names, key, strict=True)]


def _table(header, body, caption):
    table, group = nodes.table(), nodes.tgroup(cols=len(header))
    if caption:
        table += nodes.title(text=caption)
    for column in range(len(header)):
        group += nodes.colspec(colwidth=1, **({} if column else {"stub": 1}))
    head, rows = nodes.thead(), nodes.tbody()
    for part, lines in ((head, [header]), (rows, body)):
        for line in lines:
            row = nodes.row()
            for cell in line:
                entry = nodes.entry()
                entry += nodes.paragraph(text=cell)
                row += entry
            part += row
    group += head
    group += rows
    table += group
    return table


directives.register_directive("results", Results)


def setup(app):
    """For Sphinx."""
    return {"parallel_read_safe": True}
