"""Every estimator with a billboard and its options: the cases of the contract, and their data."""

import importlib.util
import math
import pickle
import warnings
from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

from skpmtl import (
    ClusteredMTL,
    ClusteredMTLClassifier,
    DPMetaInit,
    DPMetaInitClassifier,
    MPMTLGroupSparse,
    MPMTLGroupSparseClassifier,
    MPMTLLowRank,
    MPMTLLowRankClassifier,
    PrivateMeanRegMTL,
    PrivateMeanRegMTLClassifier,
    PrivateMTL,
    PrivateMTLClassifier,
)
from tests.helpers.dummy_method import PrivateRidge

N_TASKS, N_ROWS, CHANGED = 6, 14, 3
TASKS = range(N_TASKS)
GRAPH = sparse.csr_matrix(np.roll(np.eye(N_TASKS), 1, axis=1))  # a ring
GRAPH = GRAPH + GRAPH.T
CLUSTERS = {task: "ab"[task % 2] for task in range(100)}
START = {"coef": [0.5, -1.0, 0.25], "intercept": 0.1}
STARTS = {  # of three classes
    "coef": np.outer([1.0, 0.0, -1.0], START["coef"]).tolist(),
    "intercept": [0.1, 0.0, -0.1],
}
RELATION = {task: [task % 4, "ab"[task % 2]] for task in range(100)}


class Counts(int):
    """No classes, and targets that are counts."""


COUNTS = Counts(0)


@dataclass
class Case:
    """An estimator and the data it takes.

    n_classes: 0 for real targets, `COUNTS` for counts. form: "long", "csr", "wide", "mapping" or
    "column".
    sizes_public: neighbours have the same number of rows in every task. record: they differ in
    one row only. unit: they differ in the rows of one person, who has one in every task. close:
    how far, as a part of the largest coefficient, models of `personalize` may be from those of a
    fit with another solver. needs: a module that may be missing.
    """

    name: str
    estimator: object
    n_classes: int = 0
    form: str = "long"
    sizes_public: bool = False
    record: bool = False
    unit: bool = False
    close: float | None = None
    needs: str | None = None
    marks: tuple = ()

    @property
    def sampled(self):
        """Whether it is left to chance who takes part."""
        return self.estimator.get_params().get("batches") == "poisson"

    @property
    def private(self):
        return self.estimator._is_private()

    @property
    def keeps(self):
        """Whether the models of a fit are not those that its billboard gives the same rows."""
        return self.estimator.get_params().get("relation_rank") == "all"

    @property
    def param(self):
        return pytest.param(self, id=self.name, marks=self.marks)

    def skip_without_extras(self):
        if self.needs and not importlib.util.find_spec(self.needs):
            pytest.skip(f"needs {self.needs}")


def every(cases):
    """Parametrise a test over cases."""
    return pytest.mark.parametrize("case", [case.param for case in cases])


def _case(cls, n_classes=0, *, form="long", name="", tasks=True, **options):
    own = {key: options.pop(key) for key in list(options) if key in _OWN}
    settings = {"tasks": TASKS, **options} if tasks else options
    if n_classes:
        settings = {"classes": range(n_classes), **settings}
    words = [f"{k}={v}" if k not in _LONG else k for k, v in options.items()]
    kind = {0: "", 2: "", 3: "3 classes"}[n_classes]
    label = "-".join(filter(None, [cls.__name__, kind, form if form != "long" else "", *words]))
    return Case(name or label, cls(**settings), n_classes, form, **own)


_LONG = ("clusters", "init", "relation")
SECURE = {"secure": True, "needs": "opendp"}
_OWN = ("sizes_public", "record", "unit", "close", "needs", "marks")


def _model_protected():
    for cls in (MPMTLLowRank, MPMTLGroupSparse):
        pure = "wishart" if cls is MPMTLLowRank else "laplace"
        yield _case(cls)
        yield _case(cls, unseen_task="mean", n_releases=2)
        yield _case(cls, unseen_task="mean", adjacency="zero-out", fit_intercept=False)
        yield _case(cls, mechanism=pure, n_releases=2)
        yield _case(cls, form="csr", unseen_task="mean", target_range=(-20.0, 30.0))
        yield _case(cls, form="wide", tasks=False)
        yield _case(cls, **SECURE)
        yield _case(cls, unseen_task="mean", **SECURE)
        other = {"delta": 1e-6} if pure == "wishart" else {"mechanism": pure}
        yield _case(cls, **other, **SECURE)
    yield _case(MPMTLGroupSparse, mechanism="wishart", n_releases=2)
    few_tasks = pytest.mark.filterwarnings("ignore:relation=:UserWarning")
    related = {"relation": RELATION, "marks": (few_tasks,)}
    unseen = {"unseen_task": "mean", "uncertainty": "unseen", "target_range": (-9.0, 9.0)}
    yield _case(MPMTLLowRank, epsilon=1e4, **unseen, **related)
    yield _case(MPMTLLowRank, epsilon=1e3, levels="free", n_releases=1, **unseen)
    yield _case(MPMTLLowRank, epsilon=1e3, levels="pooled", **unseen)
    yield _case(MPMTLGroupSparse, mechanism="laplace", epsilon=1e3, adjacency="zero-out", **unseen)
    yield _case(MPMTLGroupSparseClassifier, 3, epsilon=1e4, **related)
    related["marks"] += (pytest.mark.slow,)  # the same code in other forms
    yield _case(MPMTLGroupSparse, epsilon=30.0, form="csr", **related)
    yield _case(MPMTLLowRankClassifier, 2, epsilon=1e4, adjacency="zero-out", **related)
    pure = {MPMTLLowRankClassifier: "wishart", MPMTLGroupSparseClassifier: "laplace"}
    for cls in pure:
        yield _case(cls, 2, unseen_task="mean")
        yield _case(cls, 2, form="csr", fit_intercept=False)
        yield _case(cls, 3)
        yield _case(cls, 3, unseen_task="mean", mechanism=pure[cls], form="csr", n_releases=2)
        yield _case(cls, 3, form="wide", tasks=False, fit_intercept=False)
        yield _case(cls, 2, **SECURE)
    yield _case(MPMTLLowRank, init=START, form="csr", unseen_task="mean", target_range=(-9.0, 9.0))
    yield _case(MPMTLLowRankClassifier, 3, init=STARTS, unseen_task="mean")
    again = {"init": START, "epsilon": 1e4, **related}
    yield _case(MPMTLGroupSparseClassifier, 2, unseen_task="error", **again)


def _structures():
    # Six tasks at the default find nothing to release. Budgets for the whole course; with fewer
    # rounds of the mean; and for moments alone.
    much, few = {"epsilon": 60.0}, {"epsilon": 10.0, "adjacency": "zero-out"}
    moments = {"epsilon": 14.0, "structure": "low-rank"}
    yield _case(PrivateMTL)
    yield _case(PrivateMTL, **much)
    yield _case(PrivateMTL, form="wide", tasks=False, **moments)
    yield _case(PrivateMTL, unseen_task="mean", target_range=(-3.0, 3.0), form="csr", **few)
    mean = {"structure": ["sparse", "mean"], "unseen_task": "mean", "fit_intercept": False}
    yield _case(PrivateMTL, **mean, **few)
    yield _case(PrivateMTL, init=START, unseen_task="mean", target_range=(-3.0, 3.0), **few)
    yield _case(PrivateMTL, **SECURE, **moments)
    yield _case(PrivateMTLClassifier, 2, unseen_task="mean", **few)
    yield _case(PrivateMTLClassifier, 2, form="csr", fit_intercept=False, **moments)
    yield _case(PrivateMTLClassifier, 3, unseen_task="mean", **few)
    yield _case(PrivateMTLClassifier, 3, form="csr", fit_intercept=False, **much)
    # Levels: found by a histogram, in a public range, of logits; pooled slopes of most tasks, or
    # of few; in moments, or without any.
    pooled = {"levels": "pooled", "target_range": (-3.0, 3.0), "unseen_task": "mean"}
    yield _case(PrivateMTL, epsilon=1e3, unseen_task="mean")
    yield _case(PrivateMTL, form="csr", **pooled, **few)
    yield _case(PrivateMTL, epsilon=1e3, unseen_task="mean", uncertainty="unseen")
    yield _case(PrivateMTLClassifier, 2, epsilon=1e3, structure=["sparse", "mean"])
    # Groups are looked for, of two tasks each at most.
    yield _case(PrivateMTL, structure="groups", epsilon=1e4, unseen_task="mean")
    yield _case(ClusteredMTL, epsilon=1e4, adjacency="zero-out", target_range=(-3.0, 3.0))
    slow = {"marks": (pytest.mark.slow,)}
    yield _case(PrivateMTLClassifier, 2, structure="groups", epsilon=1e4, unseen_task="mean")
    yield _case(ClusteredMTL, COUNTS, loss="poisson", epsilon=1e4, form="csr")
    yield _case(ClusteredMTLClassifier, 2, epsilon=1e4, **slow)
    yield _case(ClusteredMTL, loss="huber", epsilon=1e4, **slow)
    yield _case(
        PrivateMTL,
        COUNTS,
        loss="poisson",
        structure="groups",
        epsilon=1e4,
        init=START,
        form="wide",
        tasks=False,
        **slow,
    )
    yield _case(ClusteredMTL, n_clusters="auto", epsilon=1e3, form="csr", **slow)
    yield _case(
        PrivateMTL, structure="groups", epsilon=1e4, init=START, form="wide", tasks=False, **slow
    )
    yield _case(PrivateMTL, levels="free", **much, **slow)
    yield _case(PrivateMTL, epsilon=1e3, structure="low-rank", adjacency="zero-out", **slow)
    yield _case(PrivateMTL, init=START, structure="mean", unseen_task="mean", **much, **slow)
    yield _case(PrivateMTL, structure="mean", form="wide", tasks=False, **much, **slow)
    yield _case(PrivateMTLClassifier, 2, init=START, form="csr", unseen_task="mean", **much, **slow)
    yield _case(PrivateMTLClassifier, 2, epsilon=1e3, structure="low-rank", **slow)


def _hierarchical():
    known = {"target_range": (-3.0, 3.0), "unseen_task": "mean"}
    yield _case(PrivateMTL, epsilon=1e3, unseen_task="mean")
    yield _case(PrivateMTL)  # nothing is released
    yield _case(PrivateMTL, epsilon=60.0, adjacency="zero-out", **known)
    yield _case(PrivateMTL, epsilon=30.0, form="wide", tasks=False)
    yield _case(PrivateMTL, epsilon=100.0, form="csr", init=START, **known)
    yield _case(PrivateMTL, epsilon=1e3, fit_intercept=False, unseen_task="mean")
    yield _case(PrivateMTL, epsilon=1e3, adjacency="zero-out", standard_errors=True)
    yield _case(PrivateMTL, COUNTS, loss="poisson", epsilon=1e3, unseen_task="mean")
    yield _case(PrivateMTLClassifier, 2, epsilon=1e3, unseen_task="mean")
    yield _case(PrivateMTLClassifier, 3, epsilon=1e3, form="csr", unseen_task="mean")
    slow = {"marks": (pytest.mark.slow,)}
    yield _case(PrivateMTL, epsilon=1e3, **SECURE, **slow)
    yield _case(PrivateMTL, loss="huber", epsilon=1e3, unseen_task="mean", **slow)
    yield _case(PrivateMTLClassifier, 2, epsilon=60.0, init=START, **slow)
    yield _case(PrivateMTLClassifier, 3, epsilon=1e4, fit_intercept=False, **slow)


def _rounds():
    few = {"n_rounds": 3, "clip_norm": 1.0}
    cls, classifier = PrivateMeanRegMTL, PrivateMeanRegMTLClassifier
    yield _case(cls)  # so few tasks release nothing
    known = {"unseen_task": "mean", "target_range": (-3.0, 3.0)}
    yield _case(cls, epsilon=8.0)  # in units of the tasks
    errors = {"standard_errors": True}
    yield _case(cls, levels="free", epsilon=1e4, **errors, **known)  # in one unit
    # Levels: in a public range, found by a histogram, of logits; about a start.
    yield _case(cls, levels="pooled", epsilon=9.0, form="csr", **known)
    yield _case(cls, epsilon=1e3, adjacency="zero-out", unseen_task="mean", **errors)
    yield _case(cls, init=START, epsilon=9.0, **known)
    yield _case(classifier, 2, epsilon=60.0, unseen_task="mean")
    slow = {"marks": (pytest.mark.slow,)}
    yield _case(cls, epsilon=1e3, form="wide", tasks=False, **slow)
    yield _case(classifier, 2, init=START, epsilon=60.0, form="csr", **errors, **slow)
    yield _case(cls, epsilon=1e4, adjacency="zero-out", clusters=CLUSTERS, **known)
    yield _case(cls, epsilon=8.0, form="csr", n_rounds=3)
    yield _case(cls, epsilon=1e4, **SECURE)
    for n_classes in (2, 3):
        options = {"unseen_task": "mean", "n_rounds": 3}
        yield _case(classifier, n_classes, epsilon=20.0, **options)
        options = {**options, "n_rounds": 10, **errors} if n_classes == 3 else options
        yield _case(classifier, n_classes, epsilon=1e4, form="csr", **options)
    yield _case(cls, clusters=CLUSTERS, unseen_task="mean", **few)
    yield _case(cls, clusters=CLUSTERS, lam=0.3, ridge=0.1, fit_intercept=False, **few)
    few_tasks = pytest.mark.filterwarnings("ignore:relation=:UserWarning")
    related = {"relation": RELATION, "marks": (few_tasks,)}
    yield _case(cls, epsilon=1e4, **errors, **known, **related)
    yield _case(cls, epsilon=1e4, **known, **related)  # on levels
    yield _case(cls, epsilon=20.0, **errors, **related)  # in units of the tasks: no errors
    yield _case(cls, adjacency="zero-out", lam=0.3, ridge=0.1, **related, **few)
    yield _case(cls, form="csr", unseen_task="mean", **related, **few)
    yield _case(classifier, 3, unseen_task="mean", **related, **few)
    yield _case(cls, epsilon=1e4, init=START, **known)
    yield _case(cls, epsilon=20.0, init=START, form="csr", n_rounds=3)
    again = {"marks": (few_tasks, pytest.mark.slow)}
    yield _case(cls, init=START, unseen_task="mean", **{**related, **again}, **few)
    yield _case(classifier, 3, init=STARTS, epsilon=20.0, n_rounds=3)
    yield _case(classifier, 3, init=STARTS, form="csr", unseen_task="mean", **few)
    yield _case(cls, epsilon=0.01, **few)  # the mean is lost in the noise
    yield _case(cls, task_weight="samples", **few)
    yield _case(cls, form="csr", unseen_task="mean", **few)
    yield _case(cls, form="wide", tasks=False, **few)
    yield _case(cls, form="mapping", epsilon=0.05, **few)
    yield _case(cls, form="column", task_feature=0, dtype="float32", **few)
    for n_classes in (2, 3):
        yield _case(classifier, n_classes, form="csr", unseen_task="mean", **few)
        yield _case(classifier, n_classes, form="csr", clusters=CLUSTERS, **few)
    yield _case(classifier, 2, init=START, clusters=CLUSTERS, **again, **few)
    yield _case(cls, **SECURE, **few)
    yield _case(classifier, 2, **SECURE, **few)


def _meta():
    record = {"sizes_public": True, "record": True}
    for cls, n_classes in ((DPMetaInit, 0), (DPMetaInitClassifier, 2), (DPMetaInitClassifier, 3)):
        yield _case(cls, n_classes, inner_steps=3, **record)
        yield _case(cls, n_classes, privacy="local", visits=2, unseen_task="mean")
        yield _case(
            cls,
            n_classes,
            batches="disjoint",
            batch_size=4,
            inner_steps=5,
            adjacency="zero-out",
            fit_intercept=False,
            **record,
        )
        yield _case(
            cls,
            n_classes,
            batches="poisson",
            batch_size=4,
            inner_steps=2,
            tasks_per_round=2,
            needs="dp_accounting",
            **record,
        )
    yield _case(DPMetaInit, epsilon=0.01, visits=2, tasks_per_round=2, **record)
    yield _case(DPMetaInit, target_range=(-3, 9), inner_steps=2, **record)
    yield _case(DPMetaInit, feature_range=(-4, 9), inner_steps=2, **record)
    yield _case(
        DPMetaInit, init=START, target_range=(-3, 9), feature_range=(-4, 9), inner_steps=2, **record
    )
    yield _case(DPMetaInitClassifier, 3, init=STARTS, privacy="local")
    yield _case(DPMetaInitClassifier, 2, init=START, unseen_task="mean", inner_steps=2, **record)
    yield _case(DPMetaInit, group_size=3, inner_steps=2, refine="sgd", **record)
    yield _case(DPMetaInit, max_rows_per_unit=N_TASKS, inner_steps=2, unit=True, sizes_public=True)
    yield _case(DPMetaInit, privacy="local", batches="poisson", batch_size=4)
    yield _case(DPMetaInit, privacy="local", inner_steps=4, inner_learning_rate=0.1)
    yield _case(DPMetaInit, inner_steps=2, **SECURE, **record)
    yield _case(DPMetaInit, privacy="local", **SECURE)
    yield _case(DPMetaInitClassifier, 2, inner_steps=2, **SECURE, **record)
    few_tasks = pytest.mark.filterwarnings("ignore:relation=:UserWarning")
    related = {"relation": RELATION, "marks": (few_tasks,), "inner_steps": 2}
    yield _case(DPMetaInit, epsilon=1e4, **related, **record)
    related["marks"] += (pytest.mark.slow,)  # the same code in other forms
    yield _case(DPMetaInitClassifier, 3, epsilon=1e4, unseen_task="mean", **related, **record)
    yield _case(DPMetaInit, epsilon=1e4, privacy="local", **related)
    slow = (pytest.mark.slow,)  # to compile
    yield _case(DPMetaInit, dtype="float32", inner_steps=2, marks=slow, **record)


def _losses():
    """Counts: what logistic loss and squared loss have, by other code; and outlying rows."""
    slow = {"marks": (pytest.mark.slow,)}
    few = {"n_rounds": 3, "clip_norm": 1.0}
    known = {"unseen_task": "mean", "target_range": (0.1, 60.0)}
    few_tasks = pytest.mark.filterwarnings("ignore:relation=:UserWarning")
    related = {"relation": RELATION, "marks": (few_tasks, pytest.mark.slow)}
    for cls, options in (
        (PrivateMTL, {"epsilon": 1e3, "unseen_task": "mean"}),
        (PrivateMTL, {"epsilon": 14.0, "structure": "low-rank", "form": "csr"}),
        (PrivateMTL, {"epsilon": 60.0, "init": START, **known, **slow}),
        (PrivateMTL, {"epsilon": 10.0, "fit_intercept": False, **slow}),
        (MPMTLLowRank, {"unseen_task": "mean"}),
        (MPMTLLowRank, {"init": START, "form": "csr", **known, **slow}),
        (MPMTLLowRank, {"epsilon": 1e4, **related}),
        (MPMTLGroupSparse, {"mechanism": "laplace", "form": "wide", "tasks": False}),
        (PrivateMeanRegMTL, {"epsilon": 60.0, "unseen_task": "mean"}),
        (PrivateMeanRegMTL, {"clusters": CLUSTERS, "form": "csr", **few, **known}),
        (PrivateMeanRegMTL, {"epsilon": 1e4, "levels": "free", "init": START, **slow}),
        (PrivateMeanRegMTL, {"adjacency": "zero-out", "lam": 0.3, **related, **few}),
    ):
        yield _case(cls, COUNTS, loss="poisson", **options)
    # Squared loss, of rows that a task has weighed.
    yield _case(PrivateMTL, loss="huber", epsilon=1e3, unseen_task="mean")
    yield _case(MPMTLLowRank, loss="huber", form="csr")
    yield _case(MPMTLLowRank, loss="huber", epsilon=1e4, **related)
    yield _case(PrivateMeanRegMTL, loss="huber", epsilon=8.0, form="wide", tasks=False)
    yield _case(PrivateMeanRegMTL, loss="huber", clusters=CLUSTERS, init=START, **few, **slow)


def _servers():
    three = ("servers", 3)
    yield _case(PrivateMTL, curator="servers", epsilon=60.0)
    yield _case(PrivateMTL, curator=three, epsilon=1e3, marks=(pytest.mark.slow,))
    yield _case(PrivateMTL, curator="servers", epsilon=1e3)
    yield _case(PrivateMeanRegMTL, curator="servers", n_rounds=3, clip_norm=1.0)
    yield _case(MPMTLGroupSparse, curator="servers", unseen_task="mean", adjacency="zero-out")
    yield _case(MPMTLLowRank, curator=three, **SECURE)
    yield _case(DPMetaInit, curator="servers", inner_steps=2, sizes_public=True, record=True)


def _exact():
    """Without a budget: `personalize` need not give the models of the joint fit again."""
    for cls in (MPMTLLowRank, MPMTLGroupSparse):
        yield _case(cls, alpha=0.1, epsilon=None, ridge=0.1, task_weight="samples", close=1e-4)
    yield _case(MPMTLLowRank, epsilon=None, algorithm="empirical-bayes")
    few_tasks = (pytest.mark.filterwarnings("ignore:relation=:UserWarning"),)
    related = {"relation": RELATION, "marks": few_tasks, "close": 1e-2, "tol": 1e-9}
    yield _case(MPMTLLowRank, alpha=0.1, epsilon=None, **related)
    yield _case(MPMTLGroupSparse, loss="huber", epsilon=None, relation=RELATION, marks=few_tasks)
    own = {"epsilon": None, "tol": 1e-9, "close": 1e-3}
    yield _case(MPMTLLowRank, alpha=0.1, outliers="tasks", outlier_alpha=0.05, **own)
    yield _case(MPMTLGroupSparseClassifier, 2, alpha=0.02, outliers="entries", **own)
    yield _case(MPMTLGroupSparseClassifier, 2, alpha=0.01, epsilon=None, close=1e-4)
    yield _case(ClusteredMTL, epsilon=None, alpha=1.0, tol=1e-9, close=1e-3)
    yield _case(ClusteredMTL, epsilon=None)
    yield _case(
        ClusteredMTLClassifier, 2, epsilon=None, alpha=1.0, ridge=0.02, tol=1e-9, close=1e-3
    )
    yield _case(ClusteredMTLClassifier, 2, epsilon=None, unseen_task="mean")
    for cls in (MPMTLLowRankClassifier, MPMTLGroupSparseClassifier):
        yield _case(cls, 3, alpha=0.01, epsilon=None, tol=1e-9, close=1e-3)
    yield _case(PrivateMeanRegMTL, lam=0.3, epsilon=None, ridge=0.1, unseen_task="mean", close=1e-4)
    yield _case(PrivateMeanRegMTLClassifier, 2, lam=0.1, epsilon=None, close=1e-4)
    yield _case(PrivateMeanRegMTL, lam=0.3, init=START, epsilon=None, ridge=0.1, close=1e-4)
    graph = {"relation": GRAPH, "relation_rank": "all", "epsilon": None}
    yield _case(PrivateMeanRegMTL, lam=0.3, name="graph", **graph)
    yield _case(
        PrivateMeanRegMTLClassifier,
        3,
        lam=0.3,
        ridge=0.1,
        fit_intercept=False,
        name="graph of 3 classes",
        **graph,
    )
    none = {"fit_intercept": False}  # which has no bound where a task has not all classes
    for start in ({}, {"init": STARTS["coef"]}):
        options = {"lam": 0.1, "epsilon": None, "close": 5e-3, **none, **start}
        yield _case(PrivateMeanRegMTLClassifier, 3, **options)
    counts = {"loss": "poisson", "epsilon": None, "close": 1e-4}
    yield _case(MPMTLLowRank, COUNTS, alpha=0.1, ridge=0.1, task_weight="samples", **counts)
    yield _case(MPMTLGroupSparse, COUNTS, alpha=0.1, tol=1e-9, **counts)
    yield _case(ClusteredMTL, COUNTS, alpha=1.0, tol=1e-9, **counts)
    yield _case(PrivateMeanRegMTL, COUNTS, lam=0.3, ridge=0.1, unseen_task="mean", **counts)
    yield _case(PrivateMTL, COUNTS, loss="poisson", epsilon=None)
    yield _case(PrivateMTL, epsilon=None, unseen_task="mean")
    yield _case(PrivateMeanRegMTL, epsilon=math.inf)
    yield _case(DPMetaInit, epsilon=None, fit_intercept=False)
    yield _case(DPMetaInitClassifier, 3, privacy=None)


# Estimators that share plan, billboard and task side with another one, which has all its options
# among the quick cases: so many of theirs are quick, the others the same code once more.
_SIBLINGS = {
    MPMTLGroupSparse: 6,
    MPMTLGroupSparseClassifier: 5,
}


def _first_of_siblings(cases):
    left = dict(_SIBLINGS)
    for case in cases:
        kind = type(case.estimator)
        left[kind] = left.get(kind, math.inf) - (pytest.mark.slow not in case.marks)
        yield case if left[kind] >= 0 else replace(case, marks=(*case.marks, pytest.mark.slow))


CASES = [
    *_model_protected(),
    *_structures(),
    *_hierarchical(),
    *_rounds(),
    *_meta(),
]
CASES = [*_first_of_siblings(CASES), *_losses(), *_servers()]
CASES += [_case(PrivateRidge), _case(PrivateRidge, unseen_task="mean", adjacency="zero-out")]
EXACT = [*_exact()]
# One of every estimator, with warnings only where there is no other.
FIRST = {type(case.estimator): case for case in sorted(CASES, key=lambda c: bool(c.marks))[::-1]}
del FIRST[PrivateRidge]


# ---------------------------------------------------------------------------------- data
def long_data(n_classes=0, seed=0, sizes=(N_ROWS,) * N_TASKS):
    """Tasks 0, 1, ... of these numbers of rows around one model. -> X (n, 3), y, task"""
    rng = np.random.default_rng(seed)
    task = np.repeat(np.arange(len(sizes)), sizes)
    X = rng.normal(size=(len(task), 3)) / 2
    W = rng.normal(size=3) + 0.3 * rng.normal(size=(len(sizes), 3))
    score = np.einsum("ij,ij->i", X, W[task]) + 0.1 * rng.normal(size=len(task))
    return X, labels(score, n_classes), task


def labels(score, n_classes):
    """Classes by the ranks of scores, so that there are all of them; counts; or the scores."""
    if isinstance(n_classes, Counts):
        return np.floor(3.0 * np.exp(np.clip(score, -30.0, 15.0)))
    if not n_classes:
        return score
    return np.argsort(np.argsort(score, kind="stable"), kind="stable") * n_classes // len(score)


def replaced(data, task, X, y):
    """The same data with other rows for one task."""
    keep = data[2] != task
    parts = zip(data, (X, np.asarray(y, dtype=data[1].dtype), np.full(len(X), task)), strict=True)
    return tuple(np.concatenate([old[keep], new]) for old, new in parts)


def neighbour(case, data, seed=1):
    """Another task `CHANGED`, far away, or another record of it."""
    rng = np.random.default_rng(seed)
    n = N_ROWS if case.sizes_public else N_ROWS + 5
    X, y, _ = data
    if case.unit:
        X = X.copy()
        X[::N_ROWS] *= 50.0
        return X, y, data[2]
    if case.record:
        rows = np.flatnonzero(data[2] == CHANGED)
        X, y = X[rows].copy(), y[rows].copy()
        # In every batch of a disjoint split, and of a label that others have as well.
        X[0], y[0] = 40.0 * rng.normal(size=3), y[1] if case.n_classes else -30.0
        return replaced(data, CHANGED, X, y)
    score = 30.0 * rng.normal(size=n)
    return replaced(data, CHANGED, 20.0 * rng.normal(size=(n, 3)), labels(score, case.n_classes))


def everybody(case, data, seed=2):
    """Other rows for all tasks, as many as in `data` where that is public."""
    rng = np.random.default_rng(seed)
    for task in TASKS:
        n = N_ROWS if case.sizes_public else N_ROWS + task
        X, score = 3.0 * rng.normal(size=(n, 3)), 5.0 * rng.normal(size=n)
        data = replaced(data, task, X, labels(score, case.n_classes))
    return data


def arguments(case, data):
    """Of `fit`, in the form of the case."""
    X, y, task = data
    if case.form == "csr":
        X = sparse.csr_matrix(X)
    if case.unit:
        return X, y, task, np.arange(len(task)) % N_ROWS
    if case.form == "column":
        return np.column_stack([task, X]), y
    if case.form == "mapping":
        return tuple({t: part[task == t] for t in np.unique(task)} for part in (X, y))
    if case.form == "wide":  # NaN where a row is of another task
        wide = np.full((len(y), N_TASKS), np.nan)
        wide[np.arange(len(y)), task] = y
        return X, wide
    return X, y, task


# ---------------------------------------------------------------------------------- fits
_FITS = {}  # pickled: every test has its own copy


def fitted(case):
    """The estimator, fitted on `long_data` with a seed where it takes one; and these data."""
    case.skip_without_extras()
    data = long_data(case.n_classes)
    key = type(case.estimator), case.name
    if key not in _FITS:
        _FITS[key] = pickle.dumps(fit(seeded(case), *arguments(case, data)))
    return pickle.loads(_FITS[key]), data


def seeded(case):
    secure = getattr(case.estimator, "secure", False)
    seeded = "random_state" in case.estimator.get_params() and not secure
    return clone(case.estimator).set_params(**{"random_state": 0} if seeded else {})


def fit(est, *given):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The noise of this fit is reproducible")
        return est.fit(*given)
