"""The tables of doc/coming_from_r.rst: calls of RMTL, dsMTL and MALSAR with what they gave."""

import numpy as np
import pytest
from sklearn.linear_model import ElasticNet
from sklearn.model_selection import PredefinedSplit

from skpmtl import (
    ClusteredMTL,
    ClusteredMTLClassifier,
    MPMTLGroupSparse,
    MPMTLGroupSparseClassifier,
    MPMTLLowRank,
    MPMTLLowRankClassifier,
    PerTask,
    PrivateMeanRegMTL,
    PrivateMeanRegMTLClassifier,
)
from skpmtl.metrics import task_scores
from tests.helpers.shelf import FOLD, LABEL, TASK, X, Y, malsar, rmtl, rows

M = 8
PARITY = np.arange(M) % 2
G = np.eye(M) - np.equal.outer(PARITY, PARITY) / 4
TIGHT = {"epsilon": None, "tol": 1e-10}
# By how much RMTL is above the optimum at a tolerance of 1e-15, where that is visible.
ABOVE = {("Classification", "CMTL"): 1e-5}


def ours(kind, regularization, Lam1, Lam2):
    """The estimator that minimises the same objective."""
    labels = kind == "Classification"
    if regularization == "L21":
        cls = MPMTLGroupSparseClassifier if labels else MPMTLGroupSparse
        return cls(Lam1, ridge=2 * Lam2, **TIGHT)
    if regularization == "Trace":
        cls = MPMTLLowRankClassifier if labels else MPMTLLowRank
        return cls(Lam1, ridge=2 * Lam2, **TIGHT)
    if regularization == "Lasso" and not labels:
        whole = Lam1 + 2 * Lam2
        return PerTask(ElasticNet(whole, l1_ratio=Lam1 / whole, tol=1e-12, max_iter=100_000))
    if regularization == "Lasso":  # an alpha at which no shared part pays
        own = {"outliers": "entries", "outlier_alpha": Lam1}
        return MPMTLLowRankClassifier(1e3, ridge=2 * Lam2, **own, **TIGHT)
    if regularization == "Graph":
        cls = PrivateMeanRegMTLClassifier if labels else PrivateMeanRegMTL
        graph = {"relation": G @ G.T, "relation_rank": "all"}
        return cls(2 * Lam1, ridge=2 * Lam2, epsilon=None, **graph)
    cls = ClusteredMTLClassifier if labels else ClusteredMTL
    return cls(3, alpha=2 * Lam1, ridge=2 * Lam2, tol=1e-10, epsilon=None)


def calc_error(est, X, y, task):
    if hasattr(est, "classes_"):
        return 1.0 - task_scores(est, X, y, task=task).mean
    return -task_scores(est, X, y, task=task, scoring="neg_mean_squared_error").mean


@pytest.mark.parametrize("regularization", ["L21", "Trace", "Lasso", "Graph", "CMTL"])
@pytest.mark.parametrize("kind", ["Regression", "Classification"])
def test_mtl_calc_error_and_predict(kind, regularization):
    ((Lam1, Lam2, value),) = rmtl("MTL", kind, regularization)
    y = Y if kind == "Regression" else LABEL
    est = ours(kind, regularization, Lam1, Lam2).fit(X, y, task=TASK)
    if isinstance(est, PerTask):
        W = np.array([est.estimators_[k].coef_ for k in range(M)])
        found = (Y - est.predict(X, task=TASK)) ** 2 @ (0.5 / np.bincount(TASK)[TASK])
        found += Lam1 * np.abs(W).sum() + Lam2 * np.sum(W**2)
    else:
        W, found = est.coef_, est.objective_
        assert est.dual_gap_ < 1e-9 * est.objective_
    if (kind, regularization) == ("Classification", "Graph"):
        found -= Lam2 * np.sum(W**2)  # which RMTL forgets to report, and to minimise in its steps
    far = ABOVE.get((kind, regularization), 0.0)
    assert found == pytest.approx(value, rel=max(far, 1e-8))
    assert found < value * (1 + 1e-9)
    ((*_, error),) = rmtl("calcError", kind, regularization)
    close = 10 * np.sqrt(max(far, 1e-10))  # of models whose objectives are that close
    assert calc_error(est, X, y, TASK) == pytest.approx(error, rel=close)
    row = X[TASK == 2][3:4]
    ((*_, score),) = rmtl("predict", kind, regularization)
    predict = est.predict if kind == "Regression" else est.predict_proba
    assert predict(row, task=[2]).ravel()[-1] == pytest.approx(score, rel=close)


@pytest.mark.parametrize("regularization", ["L21", "Trace", "Lasso", "Graph", "CMTL"])
def test_cv_mtl(regularization):
    for Lam1, Lam2, value in rmtl("cvMTL", "Regression", regularization):
        if regularization == "CMTL" and Lam1 > 0.1:
            continue  # its gradient in M is not that of the objective, see below
        errors = []
        for train, test in PredefinedSplit(FOLD).split():
            est = ours("Regression", regularization, Lam1, Lam2)
            est.fit(X[train], Y[train], task=TASK[train])
            errors.append(calc_error(est, X[test], Y[test], TASK[test]))
        assert np.mean(errors) == pytest.approx(value, rel=1e-4)


def test_clusters_of_rmtl_crawl():
    ((Lam1, Lam2, value),) = rmtl("3000 steps", "Regression", "CMTL")
    est = ours("Regression", "CMTL", Lam1, Lam2).fit(X, Y, task=TASK)
    assert value > 1.01 * est.objective_
    for Lam1, Lam2, value in rmtl("gradient put right", "Regression", "CMTL"):
        est = ours("Regression", "CMTL", Lam1, Lam2).fit(X, Y, task=TASK)
        assert est.objective_ == pytest.approx(value, rel=1e-9)


@pytest.mark.parametrize("row", rows("dsmtl.csv"), ids=lambda row: row["call"])
def test_objectives_of_dsmtl(row):
    # One server for every task, and no intercepts.
    lam, C, value = (float(row[name]) for name in ("lam", "C", "value"))
    kind, name = row["call"][3:].split("_", 1)
    labels, none = kind == "LR", {"fit_intercept": False}
    y = LABEL if labels else Y
    task = np.zeros(len(Y), dtype=int) if name == "Lasso" else TASK  # one model for all rows
    if name == "MTL_L21":
        cls = MPMTLGroupSparseClassifier if labels else MPMTLGroupSparse
        est = cls(lam, ridge=2 * C, **none, **TIGHT)
    elif name == "MTL_Trace":
        cls = MPMTLLowRankClassifier if labels else MPMTLLowRank
        est = cls(lam, ridge=2 * C, **none, **TIGHT)
    elif name == "MTL_Net":
        est = ours("Classification" if labels else "Regression", "Graph", C, 0.0)
        est.set_params(l1=lam, **none)
    else:
        cls = MPMTLLowRankClassifier if labels else MPMTLLowRank
        own = {"outliers": "entries", "outlier_alpha": lam}
        est = cls(1e3, ridge=2 * C, **own, **none, **TIGHT)
    assert est.fit(X, y, task=task).objective_ == pytest.approx(value, rel=1e-8)


@pytest.mark.parametrize(
    ("function", "cls", "y"),
    [
        ("Least_Trace", MPMTLLowRank, Y),
        ("Least_L21", MPMTLGroupSparse, Y),
        ("Logistic_Trace", MPMTLLowRankClassifier, LABEL),
        ("Logistic_L21", MPMTLGroupSparseClassifier, LABEL),
    ],
)
def test_objectives_of_malsar(function, cls, y):
    rho1, _, value, _ = malsar(function)
    sums = {"task_weight": "samples", "fit_intercept": False} if y is Y else {}
    est = cls(rho1, **sums, **TIGHT).fit(X, y, task=TASK)
    assert est.objective_ == pytest.approx(value, rel=1e-8)
