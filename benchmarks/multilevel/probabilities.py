"""Log-loss and calibration of classifiers on the multilevel tables, with averages and without.

    python -m benchmarks.multilevel.probabilities [--tables A,B] [--splits N] [--estimators A,B]
        [--epsilon none,3,1]

One line per table, estimator and epsilon, means over the splits: log-loss of the base rate, of the
probabilities of the models, and of ``predict_proba``; then the slope of the logits of the last two
on test rows, which is 1 where probabilities are right.
"""

import argparse
import warnings

import numpy as np
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from ..unseen.__main__ import epsilon_of
from ..unseen.compare import made
from .sources import load

TABLES = "contraception,guimmun,verbagg"
ESTIMATORS = "PrivateMTL,PrivateMeanRegMTL,MPMTLLowRank,DPMetaInit"


def figures(table, name, epsilon, seed):
    """-> three log-losses and two slopes of one split"""
    sample = table.split(seed)
    est = made(name, 2, sample, epsilon, seed).fit(sample.X, sample.y, task=sample.task)
    y, given = sample.y_test.astype(int), {"task": sample.task_test}
    plain = expit(est.decision_function(sample.X_test, **given))
    averaged = est.predict_proba(sample.X_test, **given)[:, 1]
    found = [np.full(len(y), sample.y.mean()), plain, averaged]
    found = [np.clip(p, 1e-9, 1.0 - 1e-9) for p in found]
    slopes = [LogisticRegression(C=1e9).fit(logit(p)[:, None], y).coef_[0, 0] for p in found[1:]]
    return [log_loss(y, p) for p in found] + slopes


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.multilevel.probabilities", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--tables", default=TABLES)
    parser.add_argument("--estimators", default=ESTIMATORS)
    parser.add_argument("--epsilon", default="none,3,1")
    parser.add_argument("--splits", type=int, default=2)
    options = parser.parse_args(arguments)
    print("table estimator epsilon: base rate, model, predict_proba; slopes")
    for table in map(load, options.tables.split(",")):
        for name in options.estimators.split(","):
            for epsilon in map(epsilon_of, options.epsilon.split(",")):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    found = [figures(table, name, epsilon, s) for s in range(options.splits)]
                print(table.name, name, epsilon, *np.round(np.mean(found, axis=0), 3), flush=True)


if __name__ == "__main__":
    main()
