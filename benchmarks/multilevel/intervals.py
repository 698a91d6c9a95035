"""Coverage and width of prediction intervals on the real multilevel tables with real targets.

    python -m benchmarks.multilevel.intervals [--tables A,B] [--splits N] [--estimators A;B]
        [--epsilon none,3,1] [--coverage .9] [--folder DIR] [--read] [--output FILE.csv]

Splits, tables and names of estimators are those of ``python -m benchmarks.multilevel``. "mixed
intercept" is GPBoost's random intercept, without privacy, whose intervals are normal. The csv has
for each table, estimator, epsilon and split

- the coverage of all test rows, and of those of tasks with up to 5 ("few"), with 6 to 20 ("middle")
  and with more training rows ("many"); empty for fewer than 30 test rows;
- "worst": the first decile of coverage over the tasks with 10 test rows or more, and
  "worst_exact": what it would be if every row were covered with the nominal probability;
- the mean width over the standard deviation of the test targets, and "square": the mean squared
  error over the predicted variance, both without infinite intervals, whose part is "infinite".
"""

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
from scipy.stats import norm

from ..checkouts import ROOT
from ..unseen.__main__ import epsilon_of
from ..unseen.compare import made
from .__main__ import KEY, label, loaded, named, package_commit, read, write
from .peers import _designs
from .sources import SOURCES

OUTPUT = Path("benchmarks", "results", "multilevel_intervals.csv")
SIZES = {"few": (0, 5), "middle": (6, 20), "many": (21, np.inf)}
FIGURES = ("coverage", *SIZES, "worst", "worst_exact", "width", "square", "infinite", "seconds")
FIELDS = ("commit", "table", "estimator", "epsilon", "split", "tasks", "nominal", *FIGURES)
_LEAST, _LEAST_OF_TASK = 30, 10  # test rows behind a coverage
MIXED = "mixed intercept"


def mixed(sample, nominal):
    """GPBoost's random intercept. -> intervals, standard deviations"""
    import gpboost

    X, X_test = _designs(sample)
    model = gpboost.GPModel(group_data=sample.task, likelihood="gaussian").fit(y=sample.y, X=X)
    found = model.predict(
        X_pred=X_test, group_data_pred=sample.task_test, predict_var=True, predict_response=True
    )
    std, reach = np.sqrt(found["var"]), norm.ppf(0.5 * (1.0 + nominal))
    return found["mu"][:, None] + np.outer(std, (-reach, reach)), std


def ours(table, sample, estimator, epsilon, seed, nominal):
    """One of our estimators. -> intervals, standard deviations"""
    _, name, given = named(estimator)
    if given.get("target_range") == "known":
        given["target_range"] = (np.floor(table.y.min()), np.ceil(table.y.max()))
    model = made(name, 0, sample, epsilon, seed).set_params(**given, uncertainty=True)
    model.fit(sample.X, sample.y, task=sample.task)
    rows = {"task": sample.task_test}
    std = model.predict(sample.X_test, **rows, return_std=True)[1]
    return model.predict_interval(sample.X_test, **rows, coverage=nominal), std


def figures(sample, intervals, std, nominal):
    """-> dict of `FIGURES`, without the seconds"""
    task, y, (low, high) = sample.task_test, sample.y_test, intervals.T
    hit = (low <= y) & (y <= high)
    rows = np.bincount(sample.task, minlength=len(sample.tasks))[task]
    found = {"coverage": hit.mean()}
    for name, (least, most) in SIZES.items():
        some = (rows >= least) & (rows <= most)
        found[name] = hit[some].mean() if some.sum() >= _LEAST else ""
    counts = np.bincount(task, minlength=len(sample.tasks))
    large = counts >= _LEAST_OF_TASK
    found["worst"] = found["worst_exact"] = ""
    if large.any():
        by_task = np.bincount(task, hit, minlength=len(counts))[large] / counts[large]
        draws = np.random.default_rng(0).binomial(counts[large], nominal, (200, large.sum()))
        found["worst"] = np.quantile(by_task, 0.1)
        found["worst_exact"] = np.quantile(draws / counts[large], 0.1, axis=1).mean()
    finite = np.isfinite(std)
    width = (high - low)[finite].mean() if finite.any() else np.inf
    error = 0.5 * (low[finite] + high[finite]) - y[finite]
    found["width"] = width / np.std(y)
    found["square"] = np.mean((error / std[finite]) ** 2) if finite.any() else ""
    found["infinite"] = np.mean(~finite)
    return {name: value if value == "" else f"{value:.4g}" for name, value in found.items()}


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.multilevel.intervals",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    squared = [name for name, s in SOURCES.items() if s.place and s.loss == "squared"]
    parser.add_argument("--tables", default=",".join(squared))
    parser.add_argument(
        "--estimators", default=f"PrivateMTL;MPMTLLowRank;PrivateMeanRegMTL;DPMetaInit;{MIXED}"
    )
    parser.add_argument("--coverage", type=float, default=0.9)
    add_options(parser, OUTPUT)
    parser.set_defaults(splits=6)
    options = parser.parse_args(arguments)
    cells = read(options.output)
    for table, sample, estimator, epsilon, key in missing(options, cells, (MIXED,)):
        start = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if estimator == MIXED:
                found = mixed(sample, options.coverage)
            else:
                settings = estimator, epsilon, int(key[-1]), options.coverage
                found = ours(table, sample, *settings)
        cells[key] = {
            "commit": package_commit(),
            **dict(zip(KEY, key, strict=True)),
            "tasks": len(table.tasks),
            "nominal": options.coverage,
            **figures(sample, *found, options.coverage),
            "seconds": round(time.process_time() - start, 2),
        }
        print(*(cells[key][name] for name in (*KEY, *FIGURES)), sep=",", flush=True)
        write(options.output, cells, FIELDS)
    report(cells, FIGURES[:-1])


def add_options(parser, output):
    """Options of what is measured, and where the csv is."""
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--epsilon", default="none,3,1")
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--read", action="store_true")
    parser.add_argument("--output", type=Path, default=ROOT / output)


def missing(options, cells, peers):
    """Yield (table, sample, estimator, epsilon, key) of the cells that were asked for and lack.

    Those of our estimators count for the present commit only; peers have no epsilon.
    """
    at = package_commit()
    for table in [] if options.read else loaded(options.tables, options.folder):
        for split in range(options.splits):
            sample = table.split(split)
            for estimator in options.estimators.split(";"):
                for epsilon in map(epsilon_of, options.epsilon.split(",")):
                    cell = table.name, estimator, "" if epsilon is None else label(epsilon)
                    key, peer = (*cell, str(split)), estimator in peers
                    known = key in cells and (peer or cells[key]["commit"] == at)
                    if not known and not (peer and epsilon is not None):
                        yield table, sample, estimator, epsilon, key


def report(cells, names):
    """Print means over the splits."""
    print(f"{'table':14}{'estimator':22}{'epsilon':>8}" + "".join(f"{n:>13}" for n in names))
    for cell in dict.fromkeys(key[:3] for key in cells):
        rows = [row for key, row in cells.items() if key[:3] == cell]
        means = [[float(row[name]) for row in rows if row[name] != ""] for name in names]
        numbers = "".join(f"{np.mean(part):13.3f}" if part else f"{'-':>13}" for part in means)
        print(f"{cell[0]:14}{cell[1]:22}{cell[2] or 'none':>8}{numbers}")


if __name__ == "__main__":
    main()
