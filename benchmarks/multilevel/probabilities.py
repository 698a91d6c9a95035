"""Log-loss and calibration of classifiers on the multilevel tables, with averages and without.

    python -m benchmarks.multilevel.probabilities [--tables A,B] [--splits N] [--estimators A;B]
        [--epsilon none,3,1] [--folder DIR] [--read] [--output FILE.csv]

Splits, tables and names of estimators are those of ``python -m benchmarks.multilevel``; targets
that are no classes are cut at the median of the training rows. "pooled" is one logistic regression
for all rows, and "mixed intercept" GPBoost's random intercept, both without privacy. The csv has
for each table, estimator, epsilon and split

- "base": log-loss of the share of the class among the training rows;
- "loss" and "slope" of ``predict_proba``: the log-loss of test rows, and the coefficient of a
  logistic regression of their labels on the logits, which is 1 where probabilities are right and
  less where they are too sure; "error" is its standard error;
- "plain_loss" and "plain_slope" of the probabilities of the model alone, without an average.
"""

import argparse
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from ..unseen.compare import made
from .__main__ import KEY, named, package_commit, read, write
from .intervals import add_options, missing, report
from .peers import PEERS
from .sources import SOURCES

OUTPUT = Path("benchmarks", "results", "multilevel_probabilities.csv")
FIGURES = ("base", "loss", "slope", "error", "plain_loss", "plain_slope")
FIELDS = ("commit", "table", "estimator", "epsilon", "split", "tasks", *FIGURES, "seconds")
ESTIMATORS = "PrivateMTL;PrivateMeanRegMTL;MPMTLLowRank;DPMetaInit;pooled;mixed intercept"


def cut(sample):
    """A sample of real targets, with classes."""
    middle = np.median(sample.y)
    y, y_test = ((part > middle).astype(float) for part in (sample.y, sample.y_test))
    return replace(sample, y=y, y_test=y_test)


def probabilities(sample, estimator, epsilon, seed):
    """-> probabilities of the second class of test rows, and those of the model alone"""
    if estimator in PEERS:
        return (PEERS[estimator](sample, "log-loss")[:, 1],) * 2
    _, name, given = named(estimator)
    model = made(name, 2, sample, epsilon, seed).set_params(**given)
    model.fit(sample.X, sample.y, task=sample.task)
    rows = {"task": sample.task_test}
    averaged = model.predict_proba(sample.X_test, **rows)[:, 1]
    return averaged, expit(model.decision_function(sample.X_test, **rows))


def figures(sample, averaged, plain):
    """-> dict of `FIGURES`"""
    y = sample.y_test.astype(int)
    loss, slope, error = fitted(y, averaged)
    base = log_loss(y, np.full(len(y), sample.y.mean()))
    found = base, loss, slope, error, *fitted(y, plain)[:2]
    return {name: f"{value:.4g}" for name, value in zip(FIGURES, found, strict=True)}


def fitted(y, p):
    """-> log-loss of probabilities, the slope of their logits, and its standard error"""
    p = np.clip(p, 1e-9, 1.0 - 1e-9)
    design = np.column_stack([np.ones(len(p)), logit(p)])
    model = LogisticRegression(C=np.inf, fit_intercept=False, tol=1e-8).fit(design, y)
    weight = np.prod(model.predict_proba(design), axis=1)
    variance = np.linalg.inv(design.T @ (weight[:, None] * design))
    return log_loss(y, p), model.coef_[0, 1], np.sqrt(variance[1, 1])


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.multilevel.probabilities",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    classes = [name for name, s in SOURCES.items() if s.place and s.loss == "log-loss"]
    parser.add_argument("--tables", default=",".join(classes))
    parser.add_argument("--estimators", default=ESTIMATORS)
    add_options(parser, OUTPUT)
    parser.set_defaults(splits=6)
    options = parser.parse_args(arguments)
    cells = read(options.output)
    for table, sample, estimator, epsilon, key in missing(options, cells, PEERS):
        start = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if table.loss != "log-loss":
                sample = cut(sample)
            found = figures(sample, *probabilities(sample, estimator, epsilon, int(key[-1])))
        cells[key] = {
            "commit": package_commit(),
            **dict(zip(KEY, key, strict=True)),
            "tasks": len(table.tasks),
            **found,
            "seconds": round(time.process_time() - start, 2),
        }
        print(*(cells[key][name] for name in (*KEY, *FIGURES)), sep=",", flush=True)
        write(options.output, cells, FIELDS)
    report(cells, FIGURES)


if __name__ == "__main__":
    main()
