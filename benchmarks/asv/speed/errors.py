"""Test errors on frozen draws: mean squared error, log-loss, deviance of counts, interval score.

A number is the geometric mean over the draws, with the same tables and the same seeds of noise at
both commits, so that a change which leaves results as they are changes no number at all.
"""

import sys
import warnings
from dataclasses import replace

import numpy as np
from sklearn.metrics import mean_poisson_deviance

import skpmtl

from .tables import HERE

sys.path.append(str(HERE))  # behind the package that is measured
from benchmarks.accuracy.alone import error_of, made  # noqa: E402
from benchmarks.accuracy.shapes import SHAPES, Sample  # noqa: E402

DRAWS = 8
COUNTS, GROUPED, CLIENTS = "counts, 300 tasks", "five known groups", "clients of two domains"
GROUPS = {k: "abcde"[k % 5] for k in range(100)}
NEW, INTERVALS = {"new": True}, {"uncertainty": True}  # new: the odd tasks join with their rows
# Table, estimator, and settings beside epsilon=3.
CELLS = (
    ("mean, 300 tasks", "PrivateMTL"),
    ("mean, 300 tasks", "PrivateMTL", NEW),
    ("mean, 300 tasks", "PrivateMTL", INTERVALS),
    ("mean, 300 tasks", "PrivateMeanRegMTL"),
    ("mean, 300 tasks", "PrivateMeanRegMTL", {"epsilon": 1.0, "levels": "free"}),
    ("mean, 300 tasks", "DPMetaInit"),
    ("mean, 300 tasks", "DPMetaInit", NEW),
    ("mean, 300 tasks", "DPMetaInit", {"privacy": "local"}),
    ("mean, 30 tasks", "LocalOnly", INTERVALS),
    ("low rank", "MPMTLLowRank"),
    ("low rank", "MPMTLLowRank", INTERVALS),
    ("low rank", "MPMTLLowRank", {"algorithm": "proximal", "epsilon": None}),
    ("group-sparse", "MPMTLGroupSparse"),
    ("clusters", "ClusteredMTL", {"n_clusters": 4}),
    ("mean and low rank", "PrivateMTL"),
    ("outlier tasks", "PrivateMeanRegMTL"),
    ("houses on a map", "PrivateMTL"),
    ("questionnaire, gaps", "PrivateMTL"),
    ("one-hot columns", "PrivateMTL"),
    ("rows in places of tasks", "DPMetaInit"),
    ("columns of long tails", "PrivateMeanRegMTL"),
    ("School, 10 pupils", "PrivateMTL"),
    ("School, 10 pupils", "MPMTLLowRank"),
    ("noise of long tails", "PrivateMTL", {"loss": "huber"}),
    ("noise of long tails", "LocalOnly", {"loss": "huber"}),
    ("logistic, mean", "PrivateMTLClassifier"),
    ("logistic, mean", "PrivateMTLClassifier", NEW),
    ("logistic, mean", "PrivateMeanRegMTLClassifier"),
    ("logistic, mean", "DPMetaInitClassifier"),
    ("logistic, mean", "LocalOnlyClassifier"),
    ("logistic, low rank", "MPMTLLowRankClassifier"),
    ("logistic, low rank", "MPMTLGroupSparseClassifier"),
    ("logistic, low rank", "ClusteredMTLClassifier", {"n_clusters": 3}),
    ("three classes, mean", "PrivateMTLClassifier"),
    ("three classes, some missing", "PrivateMeanRegMTLClassifier"),
    ("health survey", "PrivateMeanRegMTLClassifier"),
    (COUNTS, "PrivateMTL", {"loss": "poisson"}),
    (COUNTS, "PrivateMeanRegMTL", {"loss": "poisson"}),
    (COUNTS, "LocalOnly", {"loss": "poisson"}),
    (GROUPED, "ClusteredMTL", {"n_clusters": 5}),
    (GROUPED, "PrivateMeanRegMTL", {"clusters": GROUPS}),
    (GROUPED, "MPMTLLowRank", {"relation": GROUPS}),
    (CLIENTS, "FedMTLClassifier", {"n_rounds": 10}),
    (CLIENTS, "FedMTLRegressor"),
)


def _label(table, name, settings=None):
    given = (k if isinstance(v, dict) else f"{k}={v}" for k, v in (settings or {}).items())
    return f"{table}: {name}({', '.join(given)})"


CASES = {_label(*cell): cell for cell in CELLS}


def drawn(table, seed):
    """-> Sample"""
    rng = np.random.default_rng(seed)
    if table == CLIENTS:
        sizes = {"n_clients": 12, "n_samples": 40, "n_test": 60, "n_tasks": 4, "n_domains": 2}
        rows = skpmtl.fedmtl.make_fedmtl_clients(**sizes, random_state=seed)
        return Sample(*rows, tasks=range(12))
    if table == COUNTS:
        sample = SHAPES["mean, 300 tasks"].draw(seed)
        scores = (np.clip(y / sample.y.std(), -3.0, 2.0) for y in (sample.y, sample.y_test))
        y, y_test = (rng.poisson(np.exp(score)).astype(float) for score in scores)
        return replace(sample, y=y, y_test=y_test)
    if table == GROUPED:
        tasks, parts = np.arange(100), []
        W = rng.standard_normal((5, 8))[tasks % 5] + 0.3 * rng.standard_normal((100, 8))
        for n in (15, 20):
            task = np.repeat(tasks, n)
            X = rng.standard_normal((len(task), 8))
            parts += [X, (X * W[task]).sum(axis=1) + rng.standard_normal(len(task)), task]
        return Sample(*parts, tasks=tasks)
    return SHAPES[table].draw(seed)


def half(sample, tasks):
    """The sample of these tasks."""
    rows, test = np.isin(sample.task, tasks), np.isin(sample.task_test, tasks)
    parts = [part[rows] for part in (sample.X, sample.y, sample.task)]
    parts += [part[test] for part in (sample.X_test, sample.y_test, sample.task_test)]
    unit = sample.unit if np.ndim(sample.unit) == 0 else sample.unit[test]
    return Sample(*parts, tasks, unit)


def error(table, name, settings, seed):
    """Test error of one draw."""
    sample, given = drawn(table, seed), {"epsilon": 3.0, **settings}
    if table == CLIENTS:
        del given["epsilon"]
        model = getattr(skpmtl, name)(random_state=seed, **given)
        model.fit(sample.X, sample.y, client=sample.task)
        right = model.score(sample.X_test, sample.y_test, client=sample.task_test)
        return 1.0 - right + 0.5 / len(sample.y_test)  # not 0, whose logarithm is needed
    classes, new = SHAPES[table].classes if table in SHAPES else 0, given.pop("new", False)
    whole, sample = sample, half(sample, sample.tasks[::2]) if new else sample
    epsilon = given.pop("epsilon")
    model = made(name.removesuffix("Classifier"), classes, sample, epsilon, seed)
    model.set_params(**given).fit(sample.X, sample.y, task=sample.task)
    if new:
        sample = half(whole, whole.tasks[1::2])
        model.personalize(sample.X, sample.y, task=sample.task)
    rows, y = {"X": sample.X_test, "task": sample.task_test}, sample.y_test
    if "uncertainty" in given:  # Gneiting and Raftery (2007), eq. 43
        low, high = model.predict_interval(**rows, coverage=0.9).T
        outside = np.maximum(low - y, 0.0) + np.maximum(y - high, 0.0)
        return float(np.mean(high - low + 20.0 * outside))
    predicted = (model.predict_proba if classes else model.predict)(**rows)
    if table == COUNTS:
        return float(mean_poisson_deviance(y, predicted))
    return error_of(predicted, classes, sample)


class Errors:
    params, param_names = [list(CASES), ["budget", "exact"]], ["cell", "epsilon"]
    unit = "error"

    def track_error(self, cell, budget):
        table, name, settings = (*CASES[cell], {})[:3]
        if budget == "exact":
            if {"epsilon", "privacy"} & set(settings) or name.startswith(("LocalOnly", "FedMTL")):
                return np.nan
            settings = {**settings, "epsilon": None}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = [error(table, name, settings, seed) for seed in range(DRAWS)]
        return float(np.exp(np.mean(np.log(found))))
