"""Columns of a table, and what is public of them."""

import json
import math
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
_MOST_CATEGORIES = 50


def read_table(path, needed):
    """A CSV or Parquet file as a frame; ValueError where a needed column is missing."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"{path} is not a file.")
    try:
        import pandas as pd

        table = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)
    except ImportError:
        raise ValueError(
            "Tables are read by pandas, and Parquet with pyarrow: install the extra with  "
            'pip install "skpmtl[tables]"'
        ) from None
    except ValueError:  # of which the text may show values
        raise ValueError(f"{path} could not be read as a table with one row per record.") from None
    missing = [name for name in needed if name not in table.columns]
    if missing:
        raise ValueError(
            f"{path} has no column {listed(missing, 20)}; its columns are "
            f"{listed(table.columns, 20)}."
            + (" Separate columns by commas." if len(table.columns) == 1 else "")
        )
    return table


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

        Raises
        ------
        ValueError
            For public values of columns that are not there, and for text that looks like names or
            dates rather than categories.
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
    if len(values) > _MOST_CATEGORIES:
        raise ValueError(
            f"The column {column.name!r} is text of more than {_MOST_CATEGORIES} kinds, such as "
            f"names or dates: leave it out (--drop {column.name}), turn it into a number, or list "
            "its categories in the file of --public."
        )
    warnings.warn(
        f"The categories of {column.name!r} are read from private rows, so that the result "
        "discloses which exist. List them in the file of --public.",
        PrivacyLeakWarning,
        stacklevel=users_line(),
    )
    return values
