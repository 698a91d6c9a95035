"""CSV and Parquet files whose columns are read as declared, never as their rows suggest.

A type that is guessed from rows is a function of all of them: one stray word, or one gap, of one
task would change how the rows of all other tasks are read.
"""

import csv
import re
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from itertools import islice
from pathlib import Path

from .ids import listed

# Of a float, which has to be whole and below this to be the text of an integer.
_EXACT = {"halffloat": 2**11, "float": 2**24, "double": 2**53}


@dataclass(frozen=True)
class TableFile:
    """A table in a file, one row per record, with a header.

    Parameters
    ----------
    path : Path
        Parquet if it ends in ``.parquet``, otherwise CSV.
    sep : str, default=","
        Separator of a CSV file, one character.
    encoding : str, default="utf-8"
        Of a CSV file, as Python names it.
    decimal : str, default="."
        Decimal mark of a CSV file, one character.
    missing : tuple of str, default=()
        Words that stand for a gap in columns of numbers, in addition to empty cells.

    Raises
    ------
    ValueError
        From all methods: if the file cannot be read. No message shows a value of a row.
    ImportError
        From all methods: without pandas or pyarrow.
    """

    path: Path
    sep: str = ","
    encoding: str = "utf-8"
    decimal: str = "."
    missing: tuple = ()

    @cached_property
    def names(self):
        """Names of the columns, as written. Columns without a name are left out."""
        found = self._names()
        return [name for name in found if name and not name.startswith("__index_level_")]

    def read(self, numbers=(), text=None, remedy=""):
        """Read some columns.

        Parameters
        ----------
        numbers : sequence of str
            Columns of finite numbers; a gap is NaN.
        text : dict of str to collection of str, default=None
            Columns of text, exactly as written, and the words that are gaps in each, in addition to
            empty cells. Integers of a Parquet file are text without a decimal point.
        remedy : str, default=""
            What to do about a column of numbers that has something else in it; for the message.

        Returns
        -------
        table : DataFrame of shape (n_rows, n_columns)
            The columns of `text`, then those of `numbers`, of float64.

        Raises
        ------
        ValueError
            If a column is not there, or twice; if the file has no rows; if a cell is not a number
            where one is declared, with line and column; if floats may be rounded integers where
            text is declared.
        """
        text = {} if text is None else text
        self.check([*text, *numbers])
        table = self._attempt(lambda: self._table([*text, *numbers]))
        if not table.num_rows:
            raise ValueError(f"{self.path} has a header and no rows.")
        import pandas as pd

        columns, wrong = {}, {}
        for name, gaps in text.items():
            columns[name] = _without(self._text(table, name), gaps).to_pandas()
        for name in numbers:
            values, place = self._numbers(table, name)
            if place is None:
                columns[name] = values.to_numpy()
            else:
                wrong[name] = place
        if wrong:
            places = [f"{name!r} ({self.place(row)})" for name, row in wrong.items()]
            more = f" and {len(places) - 20} more" if len(places) > 20 else ""
            raise ValueError(
                f"{self.path} has cells that are not finite numbers in column(s) "
                f"{', '.join(places[:20])}{more}. {remedy}".rstrip()
            )
        return pd.DataFrame(columns)

    def check(self, needed):
        """ValueError if the file does not have all of these columns, each of them once."""
        names = self.names
        absent = [name for name in needed if name not in names]
        if absent:
            mark = next((m for m in ";,\t|" if len(names) == 1 and m in names[0]), None)
            mark = {"\t": "tab"}.get(mark, mark)
            raise ValueError(
                f"{self.path} has no column {listed(absent, 20)}; its columns are "
                f"{listed(names, 20)}."
                + (f' They seem to be separated by {mark!r}: --sep "{mark}".' if mark else "")
            )
        twice = [name for name in needed if names.count(name) > 1]
        if twice:
            raise ValueError(f"{self.path} has more than one column {listed(twice)}: rename them.")

    def place(self, row):
        """Where a row is, in words for a message: the line of a CSV file where it begins."""
        if self._is_parquet:
            return f"row {row + 1}"
        with self.path.open(encoding=self.encoding, newline="") as file:
            reader = csv.reader(file, delimiter=self.sep)
            rows = islice(filter(None, reader), row + 1, None)  # empty lines are no rows
            try:
                cells = next(rows, ())
            except csv.Error:  # a cell of more than 128 KiB
                return f"row {row + 1}"
            breaks = len(re.findall("\r\n|\r|\n", " ".join(cells)))
            return f"line {reader.line_num - breaks}"

    # ------------------------------------------------------------------------- files
    @property
    def _is_parquet(self):
        return self.path.suffix == ".parquet"

    def _names(self):
        if not self.path.is_file():
            raise ValueError(f"{self.path} is not a file.")
        if self._is_parquet:
            return self._attempt(lambda: self._parquet().schema_arrow.names)
        return self._attempt(lambda: self._csv("open_csv").schema.names)

    def _table(self, names):
        import pyarrow as pa

        if self._is_parquet:
            return self._parquet().read(columns=names)
        return self._csv(
            "read_csv",
            include_columns=names,
            column_types=dict.fromkeys(names, pa.string()),
            strings_can_be_null=True,
            null_values=[""],
        )

    def _parquet(self):
        from pyarrow.parquet import ParquetFile

        return ParquetFile(self.path)

    def _csv(self, function, **convert):
        from pyarrow import csv as reader

        faults = []
        try:
            return getattr(reader, function)(
                self.path,
                reader.ReadOptions(encoding=self.encoding, use_threads=False),  # numbers faults
                reader.ParseOptions(
                    delimiter=self.sep,
                    newlines_in_values=True,
                    invalid_row_handler=lambda row: faults.append(row) or "error",
                ),
                reader.ConvertOptions(**convert),
            )
        except ValueError:
            if not faults:
                raise
        raise _Ragged(faults[0].actual_columns, faults[0].expected_columns, faults[0].number - 2)

    def _attempt(self, read):
        """What `read` returns, or a ValueError in words that show no value."""
        for library in ("pandas", "pyarrow"):
            try:
                import_module(library)
            except ImportError:
                raise ImportError(
                    f"{self.path} is read by pandas and pyarrow: install the extra with  "
                    'pip install "skpmtl[tables]"'
                ) from None
        try:
            return read()
        except LookupError:
            problem = f"--encoding {self.encoding} is not the name of an encoding."
        except _Ragged as error:
            found, expected, row = error.args
            problem = (
                f"{self.path} has {found} fields in {self.place(row)}, but {expected} before it: "
                "quote fields that hold the separator, or name another one (--sep)."
            )
        except (ValueError, OSError):
            problem = f"{self.path} {self._fault()}"
        raise ValueError(problem)  # not inside of except: the first error may show values

    def _fault(self):
        if self._is_parquet:
            return "is not a Parquet file."
        try:
            with self.path.open(encoding=self.encoding) as file:
                if not any(line.strip() for line in file):
                    return "is empty."
                for _ in file:  # to the end
                    pass
        except UnicodeError:
            return (
                f"is not written in {self.encoding}: name its encoding, such as --encoding cp1252 "
                "(Excel in Western Europe), latin-1 or utf-16."
            )
        return "could not be read as a table with one row per record."

    # ----------------------------------------------------------------------- columns
    def _text(self, table, name, exact=True):
        """A column as text: cell by cell, whatever the other cells hold.

        Floats that may be rounded integers are an error, or, if not `exact`, gaps.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        column = _decoded(table.column(name))
        kind = column.type
        if pa.types.is_boolean(kind):
            return pc.if_else(column, "True", "False")  # as pandas writes them to CSV
        if pa.types.is_floating(kind):
            return self._float_text(column, name, exact)
        if pa.types.is_nested(kind):
            raise ValueError(f"{self.path}: the column {name!r} has the type {kind}, not text.")
        words = self._cast(column, name, pa.string())
        if pa.types.is_decimal(kind):
            words = pc.replace_substring_regex(words, r"\.0+$", "")
        return _without(words, [""])

    def _float_text(self, column, name, exact):
        """Whole floats, which integers with a gap become in many programs, as integers."""
        import pyarrow as pa
        import pyarrow.compute as pc

        limit, kind = _EXACT[str(column.type)], column.type
        column = pc.cast(column, pa.float64())
        large = pc.greater_equal(pc.abs(column), limit)
        if exact and pc.any(large).as_py():
            raise ValueError(
                f"{self.path}: the column {name!r} holds floats ({kind}) of {limit} and more, "
                "which cannot tell neighbouring integers apart. Write it as text or as integers."
            )
        column = pc.if_else(pc.or_(large, pc.is_nan(column)), None, column)
        whole = pc.equal(column, pc.trunc(column))
        integers = pc.cast(pc.cast(pc.trunc(column), pa.int64()), pa.string())
        return pc.if_else(whole, integers, pc.cast(pc.cast(column, kind), pa.string()))

    def _numbers(self, table, name):
        """-> column of float64, first row that is not a finite number, or None"""
        import pyarrow as pa
        import pyarrow.compute as pc

        column = _decoded(table.column(name))
        kind = column.type
        is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        if not (is_text or _is_number(kind)):
            raise ValueError(
                f"{self.path}: the column {name!r} has the type {kind}, not numbers. Turn it into "
                "a number, such as days since a public date, or leave it out."
            )
        if self.missing:
            words = self._text(table, name, exact=False)
            gap = pc.is_in(words, value_set=pa.array(self.missing, words.type))
            column = pc.if_else(gap, pa.scalar(None, kind), column)
        if not is_text:
            values = pc.cast(column, pa.float64(), safe=False)
            values = pc.if_else(pc.is_nan(values), None, values)
            return values, _first(pc.invert(pc.is_finite(values)))
        words, mark = _without(column, [""]), "." if self._is_parquet else self.decimal
        digits = rf"(\d+({re.escape(mark)}\d*)?|{re.escape(mark)}\d+)"
        wrong = _first(
            pc.invert(pc.match_substring_regex(words, rf"^\s*[+-]?{digits}([eE][+-]?\d+)?\s*$"))
        )
        if wrong is not None:
            return None, wrong
        words = pc.utf8_trim(pc.replace_substring(words, mark, "."), characters=" \t\n\v\f\r+")
        values = pc.cast(words, pa.float64())
        return values, _first(pc.invert(pc.is_finite(values)))  # 1e999

    def _cast(self, column, name, kind):
        import pyarrow.compute as pc

        try:
            return pc.cast(column, kind)
        except (ValueError, NotImplementedError):
            pass
        raise ValueError(f"{self.path}: the column {name!r} ({column.type}) is not {kind}.")


class _Ragged(Exception):
    """A row with another number of fields: found, expected, its position."""


def _is_number(kind):
    import pyarrow as pa

    types = pa.types
    return any(
        check(kind)
        for check in (
            types.is_integer,
            types.is_floating,
            types.is_decimal,
            types.is_boolean,
            types.is_null,
        )
    )


def _decoded(column):
    """Dictionaries, which pandas makes of categories, and views as columns of their values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_dictionary(kind):
        column = pc.cast(column, kind.value_type)
    return pc.cast(column, pa.large_string()) if str(column.type) == "string_view" else column


def _without(words, gaps):
    """Text with gaps in the place of some words."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not gaps:
        return words
    gap = pc.is_in(words, value_set=pa.array(sorted(gaps), words.type))
    return pc.if_else(gap, pa.scalar(None, words.type), words)


def _first(mask):
    """Position of the first True, or None; gaps are False."""
    import pyarrow.compute as pc

    position = pc.index(mask, True).as_py()
    return None if position < 0 else position
