"""Coverage and width of prediction intervals on the real multilevel tables with real targets.

    python -m benchmarks.accuracy.intervals [--tables A,B] [--splits N] [--estimators A;B]
        [--epsilon none,3,1] [--coverage .9] [--folder DIR] [--read] [--output FILE.csv]

Splits, tables and names of estimators are those of ``benchmarks.accuracy.real``. "mixed
intercept" is GPBoost's random intercept, without privacy, whose intervals are normal. The csv has
for each table, estimator, epsilon and split

- the coverage of all test rows, and of those of tasks with up to 5 ("few"), with 6 to 20 ("middle")
  and with more training rows ("many"); empty for fewer than 30 test rows;
- "worst": the first decile of coverage over the tasks with 10 test rows or more, and
  "worst_exact": what it would be if every row were covered with the nominal probability;
- the mean width over the standard deviation of the test targets, and "square": the mean squared
  error over the predicted variance, both without infinite intervals, whose part is "infinite".
"""

import numpy as np
from scipy.stats import norm

from .alone import made
from .cells import RESULTS, measure, named, parser_of, report
from .peers import gpboost
from .sources import SOURCES

SIZES = {"few": (0, 5), "middle": (6, 20), "many": (21, np.inf)}
FIGURES = ("coverage", *SIZES, "worst", "worst_exact", "width", "square", "infinite")
FIELDS = (*"commit table estimator epsilon split tasks nominal".split(), *FIGURES, "seconds")
_LEAST, _LEAST_OF_TASK = 30, 10  # test rows behind a coverage
MIXED = "mixed intercept"


def mixed(sample, nominal):
    """GPBoost's random intercept. -> intervals, standard deviations"""
    found = gpboost(sample, "squared", predict_var=True)
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
    squared = [name for name, s in SOURCES.items() if s.place and s.loss == "squared"]
    parser = parser_of(
        "intervals",
        __doc__,
        tables=",".join(squared),
        splits=6,
        estimators=f"PrivateMTL;MPMTLLowRank;PrivateMeanRegMTL;DPMetaInit;{MIXED}",
        epsilon="none,3,1",
        output=RESULTS / "multilevel_intervals.csv",
    )
    parser.add_argument("--coverage", type=float, default=0.9)
    options = parser.parse_args(arguments)

    def measured(table, sample, estimator, epsilon, seed):
        nominal = options.coverage
        if estimator == MIXED:
            found = mixed(sample, nominal)
        else:
            found = ours(table, sample, estimator, epsilon, seed, nominal)
        return {"nominal": nominal, **figures(sample, *found, nominal)}

    report(measure(parser, options, FIELDS, measured, (MIXED,)), FIGURES)


if __name__ == "__main__":
    main()
