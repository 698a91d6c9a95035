"""A fit, or a call, of every path through the code that `fits` has not."""

import tempfile
import warnings
from functools import cache, partial
from pathlib import Path

import numpy as np
from scipy import sparse

import skpmtl

from .tables import cpu_seconds, generated, public, shared_rows

TASKS, ROWS, FEATURES = 200, 20, 10
NAMES = np.arange(TASKS)
RELATED = {"relation": {k: [k % 7, "abc"[k % 3]] for k in range(TASKS)}}
RING = sparse.csr_matrix(np.roll(np.eye(TASKS), 1, axis=1))
GRAPH = {"relation": RING + RING.T, "relation_rank": "all", "lam": 0.3}
UNSEEN = {"unseen_task": "mean", "uncertainty": True, "target_range": (-30.0, 30.0)}
EXACT = {"epsilon": None}
WEAK = {"epsilon": None, "alpha": 0.01}  # an objective with a penalty
# Estimator, settings in addition to epsilon=3, and the kind of table ("numbers" by default).
FITS = (
    ("PrivateMTL", {"loss": "poisson"}, "counts"),
    ("PrivateMTL", {"structure": "groups"}),
    ("PrivateMTL", {}, "sparse"),
    ("PrivateMTL", UNSEEN),
    ("PrivateMTL", EXACT),
    ("PrivateMTLClassifier", {}, "three classes"),
    ("PrivateMTLClassifier", EXACT, "classes"),
    ("MPMTLLowRank", RELATED),
    ("MPMTLLowRank", {**WEAK, "outliers": "tasks"}),
    ("MPMTLLowRankClassifier", WEAK, "three classes"),
    ("MPMTLLowRankCV", {"n_alphas": 10, "cv": 3}),
    ("MPMTLGroupSparse", {**WEAK, "loss": "poisson"}, "counts"),
    ("PrivateMeanRegMTL", {"loss": "huber"}, "outlying rows"),
    ("PrivateMeanRegMTL", {**EXACT, **GRAPH}),
    ("PrivateMeanRegMTL", {**EXACT, "lam": 1.0}, "wide"),
    ("PrivateMeanRegMTLClassifier", {**EXACT, "lam": 1.0}, "classes"),
    ("DPMetaInit", {"refine": "sgd"}),
    ("ClusteredMTL", {**EXACT, "n_clusters": 4}),
    ("FedMTLClassifier", {"n_rounds": 5}, "clients"),
)


def table(kind):
    """-> X, y, task; no ids of tasks where y has a column for each task"""
    if kind == "wide":
        return *shared_rows(TASKS // 2, 2 * ROWS, 2 * FEATURES), None
    X, y, task = generated("lowrank", TASKS, ROWS, FEATURES)
    if kind == "sparse":
        X = sparse.csr_matrix(np.where(np.abs(X) > 0.3, X, 0.0))
    elif kind == "classes":
        y = (y > 0).astype(int)
    elif kind == "three classes":
        y = np.digitize(y, [-1.0, 1.0])
    elif kind == "counts":
        y = np.random.default_rng(0).poisson(np.exp(np.clip(y, -2.0, 2.0)))
    elif kind == "outlying rows":
        y = y + np.where(np.arange(len(y)) % 10, 0.0, 30.0)
    return X, y, task


def _estimator(name, settings, kind):
    given = {**settings}
    if name.endswith("CV"):
        return public(name)(**given)
    if name.startswith("FedMTL"):
        return public(name)(**given, random_state=0)
    given.setdefault("epsilon", 3.0)
    if given["epsilon"]:
        given |= {"random_state": 0, "tasks": NAMES}
        if name.endswith("Classifier"):
            given["classes"] = range(3 if kind == "three classes" else 2)
    return public(name)(**given)


def _label(name, settings, kind="numbers"):
    words = [kind] + [
        key if isinstance(value, (dict, list)) or sparse.issparse(value) else f"{key}={value}"
        for key, value in settings.items()
    ]
    return f"{name}: {' '.join(words)}"


KINDS = {_label(*case): case for case in FITS}


@cache
def fitted(name, kind="numbers", **settings):
    """-> model, X, y, task"""
    X, y, task = table(kind)
    return _estimator(name, settings, kind).fit(X, y, task=task), X, y, task


def _personalize(*case, **settings):
    model, X, y, task = fitted(*case, **settings)
    return partial(model.personalize, X, y, task=task + TASKS)


def _of_rows(method, *case, **settings):
    model, X, _, task = fitted(*case, **settings)
    return partial(getattr(model, method), X, task=task)


def _there_and_back():
    model, folder = fitted("PrivateMTL", levels="free")[0], tempfile.TemporaryDirectory()

    def both():
        path = Path(folder.name, "billboard.npz")
        skpmtl.save_billboard(model, path)
        return skpmtl.load_billboard(path)

    return both


def _search():
    X, y, task = table("numbers")
    search = skpmtl.PrivateSearch(
        skpmtl.MPMTLLowRank(tasks=NAMES),
        {"levels": ["auto", "free"]},
        n_trials=2,
        epsilon=3.0,
        random_state=0,
    )
    return partial(search.fit, X, y, task=task)


def _clients():
    sizes = {"n_clients": 20, "n_samples": 40, "n_tasks": 4, "random_state": 0}
    return skpmtl.fedmtl.make_fedmtl_clients(**sizes)[:3]


CALLS = {
    "personalize numbers": partial(_personalize, "PrivateMTL"),
    "personalize three classes": partial(_personalize, "PrivateMTLClassifier", "three classes"),
    "personalize an exact prior": partial(_personalize, "MPMTLLowRank", epsilon=None, alpha=0.01),
    "intervals": partial(_of_rows, "predict_interval", "PrivateMTL", uncertainty=True),
    "predict": partial(_of_rows, "predict", "PrivateMTL"),
    "predict sparse": partial(_of_rows, "predict", "PrivateMTL", "sparse"),
    "billboard there and back": _there_and_back,
    "PrivateSearch": _search,
    "mtl_path": lambda: partial(skpmtl.mtl_path, *table("numbers"), n_alphas=20),
    "plan": lambda: partial(skpmtl.plan, 50, 20, 5, epsilons=(1.0, 3.0), n_repeats=2),
}


class _Kind:
    timer = staticmethod(cpu_seconds)
    sample_time, repeat = 0.05, (2, 5, 1.0)  # samples, and seconds of them at most


class Calls(_Kind):
    params, param_names = [list(CALLS)], ["call"]

    def setup(self, name):
        warnings.simplefilter("ignore")
        self.call = CALLS[name]()

    def time_call(self, name):
        self.call()


class Fits(_Kind):
    params, param_names = [list(KINDS)], ["kind"]

    def setup(self, label):
        warnings.simplefilter("ignore")
        name, settings, kind = (*KINDS[label], "numbers")[:3]
        self.model = _estimator(name, settings, kind)
        if kind == "clients":
            X, y, client = _clients()
            self.fit = partial(self.model.fit, X, y, client=client)
            return
        X, y, task = table(kind)
        given = {} if task is None else {"task": task}
        self.fit = partial(self.model.fit, X, y, **given)

    def time_fit(self, label):
        self.fit()
