"""Columns of a table: their kinds, which are declared, and what is public of them."""

import json
import math
import warnings
from dataclasses import asdict, dataclass, field
from pathlib import Path

from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder

from .._runtime.stack import users_line
from ..preprocessing import TaskImputer
from ..privacy import PrivacyLeakWarning
from ..tables.ids import listed

PUBLIC = ("categories", "classes", "default", "scale", "target_range")
MOST_CATEGORIES = 50
_VERSION = 2  # before, numbers were centred in each task
_KIND_OF_TARGET = (
    "Say what the target is: --regress for numbers, --classify for classes. In the file of "
    '--public, "target_range" and "classes" say so, too. It is not read from the rows, since a '
    "single one would decide for all tasks."
)


def read_public(path):
    """What is public of the columns: a JSON file, or nothing.

    Categories and classes are text, as they are in files; whole numbers are turned into it.
    """
    if path is None:
        return {}
    try:
        public = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    if not isinstance(public, dict) or set(public) - set(PUBLIC):
        raise ValueError(f"{path} must be an object with some of the keys {list(PUBLIC)}.")
    for key in set(public) & {"categories", "default", "scale"}:
        if not isinstance(public[key], dict):
            raise ValueError(f'{path}: "{key}" must be an object, from columns to values.')
    if "categories" in public:
        public["categories"] = {
            name: _words(words, f'"categories" of {name!r}')
            for name, words in public["categories"].items()
        }
    if "classes" in public:
        public["classes"] = _words(public["classes"], '"classes"')
    ends = public.get("target_range", [0, 1])
    if not (isinstance(ends, list) and len(ends) == 2 and all(map(_is_number, ends))):
        raise ValueError(f'{path}: "target_range" must be two numbers, such as [0, 70].')
    return public


def _is_number(value):
    return type(value) in (int, float) and math.isfinite(value)


def _words(values, what):
    """Distinct words of a list in JSON, or ValueError."""
    fine = isinstance(values, list) and all(type(value) in (str, int) for value in values)
    words = [str(value) for value in values] if fine else []
    if not words or len(set(words)) < len(words):
        raise ValueError(
            f"{what} in the file of --public must be a list of different words, each as the table "
            'has it, such as ["no", "yes"] or [0, 1].'
        )
    return words


@dataclass
class Columns:
    """Kinds of the columns of all files of a fit, and the public values of each.

    Nothing here depends on a file but the names in its header, and, where that is asked for, words
    that no list has.

    Parameters
    ----------
    task, target : str
        Columns of the task, which is text, and of the target.
    numbers : list of str
        Features that are numbers.
    categories : dict of str to list of str
        Features that are categories, and their words; None until `complete` reads them from rows.
    scale, default : dict
        Public standard deviations of numbers, and values of features of which a task has none.
    classes : list of str or None
        Classes of the target, which may be empty until `complete` reads them from rows; None: it is
        a number.
    covariates : dict of str to str
        Task covariates and their kinds, "category" or "number".
    version : int
        Of what the columns of a fit are, in files.
    """

    task: str
    target: str
    numbers: list
    categories: dict
    scale: dict = field(default_factory=dict)
    default: dict = field(default_factory=dict)
    classes: list | None = None
    covariates: dict = field(default_factory=dict)
    version: int = _VERSION

    @classmethod
    def declared(cls, names, public, options, covariates=()):
        """The kinds that options and public values declare, of columns with these names.

        A feature is a category if `public` lists its words or ``--category`` names it, otherwise a
        number. Raises ValueError for declarations of columns that are not there or of another kind,
        and if nothing declares the kind of the target although there is a budget.
        """
        task, target = options.task, options.target
        features = [name for name in names if name not in (task, target, *options.drop)]
        for name in options.drop:
            if name not in names or name in (task, target):
                raise ValueError(f"--drop {name} is not a feature of {options.data}.")
        given = public.get("categories", {})
        declared = {"--category": options.category, **public}
        for key in ("--category", "categories", "default", "scale"):
            known = features if key in ("default", "scale") else [*features, *covariates]
            unknown = [name for name in declared.get(key, ()) if name not in known]
            if unknown:
                raise ValueError(f"{key} has {listed(unknown)}, which are not features.")
        words = {
            n: given.get(n) for n in [*features, *covariates] if n in given or n in options.category
        }
        numbers = [name for name in features if name not in words]
        categories = {name: words[name] for name in features if name in words}
        for name in public.get("scale", {}):
            if name in words:
                raise ValueError(f"scale has {name!r}, which is a category.")
        for name, value in public.get("default", {}).items():
            if name not in words and not _is_number(value):
                raise ValueError(f"default of {name!r}, a number, is not one.")
            if given.get(name) is not None and str(value) not in given[name]:
                raise ValueError(f"default of {name!r} is not among its categories.")
        default = {
            name: str(value) if name in words else float(value)
            for name, value in public.get("default", {}).items()
        }
        kinds = {name: "category" if name in words else "number" for name in covariates}
        return cls(
            task,
            target,
            numbers,
            categories,
            public.get("scale", {}),
            default,
            _classes(public, options),
            kinds,
        )

    def read(self, file, with_target=True):
        """Task and features of a `TableFile`, and its target, which may have gaps. -> table, y

        y is None if `with_target` is False. Raises ValueError for rows without a task, with line.
        """
        gaps = {
            name: set(file.missing) - set(words or ()) for name, words in self.categories.items()
        }
        text, numbers = {self.task: (), **gaps}, list(self.numbers)
        if with_target and self.classes is None:
            numbers.append(self.target)
        elif with_target:
            text[self.target] = set(file.missing) - set(self.classes)
        table = file.read(
            numbers,
            text,
            "A column of text is declared by --category NAME, or by its words in the file of "
            "--public, a target of classes by --classify, and a word for a gap, such as NA, by "
            "--missing NA; --drop NAME leaves a column out; "
            '--decimal "," reads numbers with a comma.',
        )
        gap = table[self.task].isna().to_numpy()
        if gap.any():
            raise ValueError(
                f"{file.path} has no task in {gap.sum()} row(s), first in "
                f"{file.place(gap.argmax())}, column {self.task!r}: drop them, or give them a task "
                "of their own."
            )
        y = table.pop(self.target) if with_target else None
        if with_target and self.classes:
            other = (y.notna() & ~y.isin(self.classes)).to_numpy()
            if other.any():
                raise ValueError(
                    f"{file.path} has a target in {file.place(other.argmax())}, column "
                    f"{self.target!r}, that is not among the classes {listed(self.classes, 20)}, "
                    "which are text, exactly as written: list it, or drop the row."
                )
        return table, y

    def unlisted(self, table):
        """What to say of words that are not among the categories: a list of sentences."""
        counts = {
            name: int((table[name].notna() & ~table[name].isin(words)).sum())
            for name, words in self.categories.items()
        }
        return [
            f"{count} of {len(table)} values of {name!r} are not among its categories, and count "
            "as none of them."
            for name, count in counts.items()
            if count
        ]

    def complete(self, table, y):
        """Read the words that no list has from private rows. -> what was read, in words

        Warns of it, and raises ValueError for what looks like names or dates.
        """
        read = [name for name, words in self.categories.items() if words is None]
        for name in read:
            self.categories[name] = _read_words(table[name], "list its categories")
        lists = [f"the categories of {name!r}" for name in read]
        if read:
            which = " and ".join(filter(None, (", ".join(map(repr, read[:-1])), repr(read[-1]))))
            _warn(f"The categories of {which}", "List them in the file of --public.")
        if self.classes == []:
            self.classes = _read_words(y, "list its classes")
            lists.append("the classes")
            what = f"The classes of {self.target!r}"
            _warn(what, 'List them as "classes" in the file of --public.')
        return lists

    def read_covariates(self, file):
        """Task covariates of a `TableFile`, whose names are the index."""
        kinds = self.covariates
        text = {self.task: (), **{name: () for name in kinds if kinds[name] == "category"}}
        numbers = [name for name in kinds if kinds[name] == "number"]
        table = file.read(
            numbers,
            text,
            "A covariate of text is declared by --category NAME; --drop NAME leaves a column out.",
        )
        return table.set_index(self.task)[list(kinds)]

    def scales(self):
        """What features are divided by, in the order of the fit: public numbers, or 1."""
        ones = [1.0] * sum(map(len, self.categories.values()))
        return [*ones, *(float(self.scale.get(name, 1.0)) for name in self.numbers)]

    def pipeline(self, estimator):
        """Fill gaps, encode and scale: by public values and the task's own rows."""
        names = list(self.categories)
        # A value that is not public has no column, and so says nothing of itself.
        encoder = OneHotEncoder(
            categories=list(self.categories.values()), handle_unknown="ignore", sparse_output=False
        )
        public = {"scales": self.scales()[sum(map(len, self.categories.values())) :]}
        scaler = FunctionTransformer(_divided, kw_args=public, feature_names_out="one-to-one")
        return make_pipeline(
            TaskImputer(task_feature=self.task, default=self.default or None),
            make_column_transformer(
                (encoder, names),
                (scaler, self.numbers),
                remainder="passthrough",
                verbose_feature_names_out=False,
            ).set_output(transform="pandas"),
            estimator,
        )

    def to_dict(self):
        """For a JSON file."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values):
        """Inverse of `to_dict`. Raises ValueError for what an earlier version wrote."""
        if values.get("version") != _VERSION:
            raise ValueError("Another version of skpmtl wrote these columns: fit the table again.")
        return cls(**values)

    def __str__(self):
        numbers = _counted(self.numbers, "number", "numbers")
        return f"{numbers} and {_counted(self.categories, 'category', 'categories')}"

    def without_scale(self):
        """A remark on numbers of unknown scale, which a private fit has to learn; or ""."""
        unknown = [name for name in self.numbers if name not in self.scale]
        if not unknown:
            return ""
        return (
            f"No public scale is known of {listed(unknown, 20)}: rough standard deviations as "
            "scale in the file of --public cost nothing; those that a fit learns are noisy."
        )


def _divided(X, scales):
    return X / scales


def _counted(values, one, several):
    return f"{len(values)} {one if len(values) == 1 else several}"


def _classes(public, options):
    """Classes of the target: public ones, [] if they are to be read, None if it is a number."""
    classify = options.classify or "classes" in public
    ranged = options.target_range is not None or "target_range" in public
    if classify and (options.regress or ranged):
        raise ValueError(
            "The target is declared as classes (--classify, or classes in the file of --public) "
            "and as numbers (--regress, or a target range): leave one of them out."
        )
    # Without a budget it is a number, as all columns are by default: also no guess.
    if not (classify or options.regress or ranged or options.epsilon is None):
        raise ValueError(_KIND_OF_TARGET)
    return public.get("classes", []) if classify else None


def _read_words(column, remedy):
    words = sorted(set(column.dropna()))
    if not words:
        raise ValueError(f"The column {column.name!r} has gaps only: leave it out (--drop NAME).")
    if len(words) > MOST_CATEGORIES:
        raise ValueError(
            f"The column {column.name!r} is text of more than {MOST_CATEGORIES} kinds, such as "
            f"names, dates or numbers: leave it out (--drop NAME), declare it as numbers, or "
            f"{remedy} in the file of --public."
        )
    return words


def _warn(what, remedy):
    warnings.warn(
        f"{what} are read from private rows, so that the result discloses which exist. {remedy}",
        PrivacyLeakWarning,
        stacklevel=users_line(),
    )
