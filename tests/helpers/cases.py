"""Every estimator with a billboard and its options: the cases of the contract, and their data."""

import importlib.util
import math
import pickle
import warnings
from dataclasses import dataclass

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


_LONG = ("clusters", "factors", "init", "relation")
SECURE = {"secure": True, "needs": "opendp"}
_OWN = ("sizes_public", "record", "unit", "close", "needs", "marks")


def _hierarchical():
    """The loop: with all there is to release, with little, in every form of the rows."""
    known = {"target_range": (-3.0, 3.0), "unseen_task": "mean"}
    few_tasks = (pytest.mark.filterwarnings("ignore:relation=:UserWarning"),)
    yield _case(PrivateMTL, epsilon=1e3, unseen_task="mean")
    yield _case(PrivateMTL)  # nothing is released
    yield _case(PrivateMTL, epsilon=60.0, adjacency="zero-out", **known)
    yield _case(PrivateMTL, epsilon=30.0, form="wide", tasks=False)
    yield _case(PrivateMTL, epsilon=100.0, form="csr", init=START, **known)
    yield _case(PrivateMTL, epsilon=1e3, fit_intercept=False, unseen_task="mean")
    yield _case(PrivateMTL, epsilon=1e3, adjacency="zero-out", standard_errors=True)
    yield _case(PrivateMTL, epsilon=1e3, form="column", task_feature=0, dtype="float32")
    yield _case(PrivateMTL, epsilon=1e3, form="mapping", levels="free")
    yield _case(PrivateMTL, epsilon=1e4, structure="groups")
    yield _case(PrivateMTL, epsilon=1e4, relation=RELATION, marks=few_tasks)
    yield _case(PrivateMTL, epsilon=1e4, relation=CLUSTERS, factors={"district": "above"})
    yield _case(PrivateMTL, epsilon=1e4, form="levels", factors={3: "below"})
    items = {3: ("across", range(3))}
    yield _case(PrivateMTL, name="PrivateMTL-items", epsilon=1e4, form="levels", factors=items)
    yield _case(PrivateMTLClassifier, 2, epsilon=1e3, unseen_task="mean")
    yield _case(PrivateMTLClassifier, 3, epsilon=1e3, form="csr", unseen_task="mean")
    yield _case(MPMTLLowRank, epsilon=1e3)
    yield _case(MPMTLGroupSparse, epsilon=1e3, form="csr", **known)
    yield _case(MPMTLLowRankClassifier, 2, epsilon=1e3, unseen_task="mean")
    yield _case(MPMTLGroupSparseClassifier, 3, epsilon=1e3)
    yield _case(PrivateMeanRegMTL, epsilon=60.0, unseen_task="mean")
    yield _case(PrivateMeanRegMTL, epsilon=1e3, clusters=CLUSTERS, marks=few_tasks)
    yield _case(PrivateMeanRegMTLClassifier, 2, epsilon=60.0)
    yield _case(PrivateMeanRegMTLClassifier, 3, epsilon=60.0, init=STARTS, unseen_task="mean")
    yield _case(ClusteredMTL, epsilon=1e4, adjacency="zero-out", target_range=(-3.0, 3.0))
    yield _case(ClusteredMTLClassifier, 2, epsilon=1e4)


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


def _losses():
    """Counts, and outlying rows."""
    yield _case(PrivateMTL, COUNTS, loss="poisson", epsilon=1e3, unseen_task="mean")
    yield _case(MPMTLGroupSparse, COUNTS, loss="poisson", epsilon=60.0, form="csr")
    # Squared loss, of rows that a task has weighed.
    yield _case(PrivateMTL, loss="huber", epsilon=1e3, unseen_task="mean")


def _servers():
    yield _case(PrivateMTL, curator="servers", epsilon=60.0)
    yield _case(PrivateMTL, curator=("servers", 3), epsilon=1e3)
    yield _case(DPMetaInit, curator="servers", inner_steps=2, sizes_public=True, record=True)


def _exact():
    """Without a budget: `personalize` need not give the models of the joint fit again."""
    for cls in (MPMTLLowRank, MPMTLGroupSparse):
        yield _case(cls, alpha=0.1, epsilon=None, ridge=0.1, task_weight="samples", close=1e-4)
    yield _case(MPMTLLowRank, epsilon=None)
    few_tasks = (pytest.mark.filterwarnings("ignore:relation=:UserWarning"),)
    related = {"relation": RELATION, "marks": few_tasks, "close": 1e-2, "tol": 1e-9}
    yield _case(MPMTLLowRank, alpha=0.1, epsilon=None, **related)
    yield _case(MPMTLGroupSparse, epsilon=None, relation=RELATION, marks=few_tasks)
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


CASES = [*_hierarchical(), *_meta(), *_losses(), *_servers()]
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
    if case.form == "levels":  # of rows, in the last column
        return np.column_stack([X, np.floor(4.0 * X[:, 0]) % 3]), y, task
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
