"""Exact fits at shares of the largest alpha, fits of every kind, and calls that follow a fit."""

import tempfile
import warnings
from functools import cache, partial
from pathlib import Path

import numpy as np
from scipy import sparse

import skpmtl

from .tables import cpu_seconds, generated, largest_alpha, public, school, shared_rows

EXACT = {"trace": "MPMTLLowRank", "l21": "MPMTLGroupSparse"}
WIDE = {"10x30x300": (10, 30, 300), "one X, 60x200x300": (60, 200, 300)}
TASKS, ROWS, FEATURES = 200, 20, 10
MANY = 2000, 10, 200  # tasks, rows of each, features
NAMES = np.arange(TASKS)
RING = sparse.csr_matrix(np.roll(np.eye(TASKS), 1, axis=1))
GRAPH = {"relation": RING + RING.T, "relation_rank": "all", "lam": 0.3}
UNSEEN = {"unseen_task": "mean", "uncertainty": True, "target_range": (-30.0, 30.0)}
NONE = {"epsilon": None}
# Estimator, settings in addition to epsilon=3, and the kind of table ("numbers" by default): one
# for every path through the code.
FITS = (
    ("PrivateMTL", {}),
    ("PrivateMTL", NONE),
    ("PrivateMTL", {"loss": "poisson"}, "counts"),
    ("PrivateMTL", {}, "sparse"),
    ("PrivateMTL", UNSEEN),
    ("PrivateMTLClassifier", {}, "three classes"),
    ("PrivateMTLClassifier", NONE, "classes"),
    ("MPMTLLowRank", {"relation": {k: [k % 7, "abc"[k % 3]] for k in range(TASKS)}}),
    ("MPMTLLowRankCV", {"n_alphas": 10, "cv": 3}),
    ("PrivateMeanRegMTL", {**NONE, **GRAPH}),
    ("DPMetaInit", {}),
    ("FedMTLClassifier", {"n_rounds": 5}, "clients"),
)


def table(kind):
    """-> X, y, task"""
    X, y, task = generated("lowrank", TASKS, ROWS, FEATURES)
    if kind == "sparse":
        X = sparse.csr_matrix(np.where(np.abs(X) > 0.3, X, 0.0))
    elif kind == "classes":
        y = (y > 0).astype(int)
    elif kind == "three classes":
        y = np.digitize(y, [-1.0, 1.0])
    elif kind == "counts":
        y = np.random.default_rng(0).poisson(np.exp(np.clip(y, -2.0, 2.0)))
    return X, y, task


def _estimator(name, settings, kind):
    if name.endswith("CV"):
        return public(name)(**settings)
    if kind == "clients":
        return public(name)(**settings, random_state=0)
    given = {"epsilon": 3.0, **settings}
    if given["epsilon"]:
        given |= {"random_state": 0, "tasks": NAMES}
        if name.endswith("Classifier"):
            given["classes"] = range(3 if kind == "three classes" else 2)
    return public(name)(**given)


def _label(name, settings, kind="numbers"):
    words = [kind] + [
        key if isinstance(value, dict) or sparse.issparse(value) else f"{key}={value}"
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


CALLS = {
    "personalize numbers": partial(_personalize, "PrivateMTL"),
    "personalize three classes": partial(_personalize, "PrivateMTLClassifier", "three classes"),
    "intervals": partial(_of_rows, "predict_interval", "PrivateMTL", uncertainty=True),
    "predict": partial(_of_rows, "predict", "PrivateMTL"),
    "billboard there and back": _there_and_back,
    "mtl_path": lambda: partial(skpmtl.mtl_path, *table("numbers"), n_alphas=20),
}


class _Timed:
    timer = staticmethod(cpu_seconds)
    sample_time, repeat = 0.05, (2, 5, 1.0)  # samples, and seconds of them at most

    def exact(self, penalty, X, y, task, share=0.1, kind=""):
        warnings.simplefilter("ignore")
        alpha = share * largest_alpha(X, y, task, penalty)
        model = public(EXACT[penalty] + kind)(alpha, epsilon=None)
        self.call = partial(model.fit, X, y) if task is None else partial(model.fit, X, y, task)

    def time_call(self, *_):
        self.call()


class School(_Timed):
    params, param_names = [list(EXACT)], ["penalty"]

    def setup(self, penalty):
        self.exact(penalty, *school())


class Weak(_Timed):
    """A hundredth of the largest alpha: many iterations."""

    params, param_names = [list(EXACT), ["numbers", "classes"]], ["penalty", "targets"]

    def setup(self, penalty, targets):
        X, y, task = generated("lowrank", 500, 30, 20)
        if targets == "classes":
            self.exact(penalty, X, (y > 0).astype(int), task, 0.01, "Classifier")
        else:
            self.exact(penalty, X, y, task, 0.01)


class Wide(_Timed):
    params, param_names = [list(WIDE)], ["table"]

    def setup(self, table):
        if table.startswith("one X"):
            self.exact("l21", *shared_rows(*WIDE[table]), None)
        else:
            self.exact("l21", *generated("groupsparse", *WIDE[table]))


class Kinds(_Timed):
    params, param_names = [list(KINDS)], ["kind"]

    def setup(self, label):
        warnings.simplefilter("ignore")  # random_state is no secret here
        name, settings, kind = (*KINDS[label], "numbers")[:3]
        model = _estimator(name, settings, kind)
        if kind == "clients":
            sizes = {"n_clients": 20, "n_samples": 40, "n_tasks": 4, "random_state": 0}
            X, y, client = skpmtl.fedmtl.make_fedmtl_clients(**sizes)[:3]
            self.call = partial(model.fit, X, y, client=client)
        else:
            X, y, task = table(kind)
            self.call = partial(model.fit, X, y, task=task)


class Many(_Timed):
    """Private fits of thousands of tasks."""

    params, param_names = [["DPMetaInit", "PrivateMTL"]], ["estimator"]
    number, repeat, warmup_time = 1, 3, 0.0

    def setup(self, name):
        warnings.simplefilter("ignore")
        fitted(name)  # loads the compiled loops
        X, y, task = generated("lowrank", *MANY)
        model = public(name)(epsilon=1.0, tasks=range(MANY[0]), random_state=0)
        self.call = partial(model.fit, X, y, task)


class Calls(_Timed):
    params, param_names = [list(CALLS)], ["call"]

    def setup(self, name):
        warnings.simplefilter("ignore")
        self.call = CALLS[name]()
