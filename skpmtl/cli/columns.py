"""Columns of a table, and what is public of them."""

import json
import math
import re
import warnings
from dataclasses import asdict, dataclass, field
from pathlib import Path

from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from .._runtime.stack import users_line
from ..preprocessing import TaskImputer, TaskScaler
from ..privacy import PrivacyLeakWarning
from ..tables.ids import listed

PUBLIC = ("categories", "classes", "default", "scale")
MOST_CATEGORIES = 50


def read_table(path, needed, form=None):
    """A CSV or Parquet file as a DataFrame with the columns `needed`.

    `form` says how a CSV file is written: ``sep``, ``encoding`` and ``decimal``, as pandas takes
    them. Raises ValueError for files that cannot be read, have no rows, or lack a needed column.
    """
    path, form = Path(path), form or {}
    if not path.is_file():
        raise ValueError(f"{path} is not a file.")
    try:
        table, problem = _read(path, form), None
    except ImportError:
        problem = (
            "Tables are read by pandas, and Parquet with pyarrow: install the extra with  "
            'pip install "skpmtl[tables]"'
        )
    except LookupError:
        problem = f"--encoding {form['encoding']} is not the name of an encoding."
    except ValueError as error:
        problem = f"{path} {_fault(path, error, form.get('encoding', 'utf-8'))}"
    if problem is not None:  # not inside of except: the first error may show values
        raise ValueError(problem)
    missing = [name for name in needed if name not in table.columns]
    if missing:
        mark = next((m for m in ";\t|" if len(table.columns) == 1 and m in table.columns[0]), None)
        name = {"\t": "tab"}.get(mark, mark)
        raise ValueError(
            f"{path} has no column {listed(missing, 20)}; its columns are "
            f"{listed(table.columns, 20)}."
            + (f' They seem to be separated by {name!r}: --sep "{name}".' if mark else "")
        )
    if not len(table):
        raise ValueError(f"{path} has a header and no rows.")
    return table


def _read(path, form):
    import pandas as pd

    table = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path, **form)
    # Numbers of rows, which R writes in front of a table.
    first = table.columns[0] if len(table.columns) else None
    return table.drop(columns=first) if first == "Unnamed: 0" else table


def _fault(path, error, encoding):
    """What is wrong with a file, in words that show no value."""
    if isinstance(error, UnicodeError):
        return (
            f"is not written in {encoding}: name its encoding, such as --encoding cp1252 (Excel in "
            "Western Europe), latin-1 or utf-16."
        )
    if type(error).__name__ == "EmptyDataError":
        return "is empty."
    line = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", str(error))
    if line:
        return (
            f"has {line[3]} fields in line {line[2]}, but {line[1]} before it: quote fields that "
            "hold the separator, or name another one (--sep)."
        )
    if path.suffix == ".parquet":
        return "is not a Parquet file."
    return "could not be read as a table with one row per record."


def read_public(path):
    """What is public of the columns: a JSON file, or nothing."""
    if path is None:
        return {}
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    if not isinstance(found, dict) or set(found) - set(PUBLIC):
        raise ValueError(f"{path} must be an object with some of the keys {list(PUBLIC)}.")
    return found


@dataclass
class Columns:
    """Features by kind, with the public values of categories, scales, defaults and classes."""

    task: str
    numbers: list
    categories: dict
    scale: dict = field(default_factory=dict)
    default: dict = field(default_factory=dict)
    classes: list | None = None

    @classmethod
    def of(cls, table, task, public):
        """Kinds of the columns of a table.

        Raises ValueError for public values of columns that are not there, and for text that looks
        like names or dates rather than categories.
        """
        features = [name for name in table.columns if name != task]
        given = public.get("categories", {})
        for key in ("categories", "default", "scale"):
            unknown = [name for name in public.get(key, {}) if name not in features]
            if unknown:
                raise ValueError(f"{key} has {listed(unknown)}, which are not features.")
        numbers = [n for n in features if n not in given and table[n].dtype.kind in "iuf"]
        categories = {}
        for name in features:
            if name in given:
                categories[name] = [str(value) for value in given[name]]
            elif name not in numbers:
                categories[name] = _read_categories(table[name])
        read = [repr(name) for name in categories if name not in given]
        if read:
            which = " and ".join(filter(None, (", ".join(read[:-1]), read[-1])))
            warnings.warn(
                f"The categories of {which} are read from private rows, so that the result "
                "discloses which exist. List them in the file of --public.",
                PrivacyLeakWarning,
                stacklevel=users_line(),
            )
        rest = {key: public[key] for key in ("classes", "default", "scale") if key in public}
        return cls(task, numbers, categories, **rest)

    @property
    def features(self):
        return [*self.numbers, *self.categories]

    def of_table(self, table):
        """The columns that a model takes: task, numbers as floats, categories as text."""
        try:
            numbers = table[self.numbers].astype(float)
        except (TypeError, ValueError):
            text = [n for n in self.numbers if table[n].dtype.kind not in "biuf"]
            raise ValueError(f"The column(s) {listed(text)} must hold numbers.") from None
        words = {name: table[name].map(str, na_action="ignore") for name in self.categories}
        return table[[self.task]].join(numbers).assign(**words)

    def pipeline(self, estimator):
        """Fill gaps, encode and scale: by public values and the task's own rows."""
        names = list(self.categories)
        # A value that is not public has no column, and so says nothing of itself.
        encoder = OneHotEncoder(
            categories=list(self.categories.values()), handle_unknown="ignore", sparse_output=False
        )
        ones = [1.0] * sum(map(len, self.categories.values()))
        scale = [*ones, *(self.scale.get(name, math.nan) for name in self.numbers)]
        return make_pipeline(
            TaskImputer(task_feature=self.task, default=self.default or None),
            make_column_transformer(
                (encoder, names), remainder="passthrough", verbose_feature_names_out=False
            ).set_output(transform="pandas"),
            TaskScaler(task_feature=self.task, scale=scale or None),
            estimator,
        )

    def to_dict(self):
        """For a JSON file."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values):
        """Inverse of `to_dict`."""
        return cls(**values)

    def __str__(self):
        text = f"{len(self.numbers)} numbers and {len(self.categories)} categories"
        unknown = [name for name in self.numbers if name not in self.scale]
        if unknown:
            text += (
                f"\nNo scale is known of {listed(unknown, 20)}, so that tasks of up to three rows "
                "go without: give rough standard deviations as scale in the file of --public."
            )
        return text


def _read_categories(column):
    values = sorted({str(value) for value in column.dropna()})
    if len(values) > MOST_CATEGORIES:
        raise ValueError(
            f"The column {column.name!r} is text of more than {MOST_CATEGORIES} kinds, such as "
            f"names or dates: leave it out (--drop {column.name}), turn it into a number "
            '(--decimal "," reads those with a comma), or list its categories in the file of '
            "--public."
        )
    return values
