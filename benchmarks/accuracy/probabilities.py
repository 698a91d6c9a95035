"""Log-loss and calibration of classifiers on the multilevel tables, with averages and without.

    python -m benchmarks.accuracy.probabilities [--tables A,B] [--splits N] [--estimators A;B]
        [--epsilon none,3,1] [--folder DIR] [--read] [--output FILE.csv]

Splits, tables and names of estimators are those of ``benchmarks.accuracy.real``; targets
that are no classes are cut at the median of the training rows. "pooled" is one logistic regression
for all rows, and "mixed intercept" GPBoost's random intercept, both without privacy. The csv has
for each table, estimator, epsilon and split

- "base": log-loss of the share of the class among the training rows;
- "loss" and "slope" of ``predict_proba``: the log-loss of test rows, and the coefficient of a
  logistic regression of their labels on the logits, which is 1 where probabilities are right and
  less where they are too sure; "error" is its standard error;
- "plain_loss" and "plain_slope" of the probabilities of the model alone, without an average.
"""

from dataclasses import replace

import numpy as np
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from .alone import made
from .cells import RESULTS, measure, named, parser_of, report
from .peers import PEERS
from .sources import SOURCES

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
    classes = [name for name, s in SOURCES.items() if s.place and s.loss == "log-loss"]
    parser = parser_of(
        "probabilities",
        __doc__,
        tables=",".join(classes),
        splits=6,
        estimators=ESTIMATORS,
        epsilon="none,3,1",
        output=RESULTS / "multilevel_probabilities.csv",
    )
    options = parser.parse_args(arguments)

    def measured(table, sample, estimator, epsilon, seed):
        if table.loss != "log-loss":
            sample = cut(sample)
        return figures(sample, *probabilities(sample, estimator, epsilon, seed))

    report(measure(parser, options, FIELDS, measured, PEERS), FIGURES)


if __name__ == "__main__":
    main()
