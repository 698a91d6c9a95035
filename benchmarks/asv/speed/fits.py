"""Exact fits at shares of the largest alpha, and fits of all estimators, private and not."""

import warnings

import numpy as np

from .tables import cpu_seconds, generated, largest_alpha, public, school, shared_rows

EXACT = {"trace": "MPMTLLowRank", "l21": "MPMTLGroupSparse"}
PRIVATE = (
    "DPMetaInit",
    "MPMTLGroupSparse",
    "MPMTLLowRank",
    "PrivateMTL",
    "PrivateMeanRegMTL",
    "MPMTLLowRankClassifier",
    "PrivateMeanRegMTLClassifier",
)
# Tasks, rows of each, features.
SIZE, MANY = (100, 40, 30), (2000, 10, 200)
WIDE = {"10x30x300": (10, 30, 300), "one X, 60x200x300": (60, 200, 300)}


class _Fit:
    timer = staticmethod(cpu_seconds)
    sample_time, repeat = 0.05, (2, 5, 1.0)  # samples, and seconds of them at most

    def exact(self, penalty, X, y, task, share=0.1, kind=""):
        warnings.simplefilter("ignore")
        alpha = share * largest_alpha(X, y, task, penalty)
        self.model = public(EXACT[penalty] + kind)(alpha, epsilon=None)
        self.given = (X, y) if task is None else (X, y, task)

    def private(self, name, size, **given):
        warnings.simplefilter("ignore")  # random_state is no secret here
        X, y, task = generated("lowrank", *size)
        given.update(epsilon=1.0, tasks=np.arange(task[-1] + 1), random_state=0)
        if name.endswith("Classifier"):
            given["classes"], y = [0, 1], (y > 0).astype(int)
        self.model = public(name)(**given)
        self.given = X, y, task

    def time_fit(self, *_):
        self.model.fit(*self.given)


class School(_Fit):
    params, param_names = [list(EXACT)], ["penalty"]

    def setup(self, penalty):
        self.exact(penalty, *school())


class Weak(_Fit):
    """A hundredth of the largest alpha: many iterations."""

    params, param_names = [list(EXACT), ["numbers", "classes"]], ["penalty", "targets"]

    def setup(self, penalty, targets):
        X, y, task = generated("lowrank", 500, 30, 20)
        if targets == "classes":
            self.exact(penalty, X, (y > 0).astype(int), task, 0.01, "Classifier")
        else:
            self.exact(penalty, X, y, task, 0.01)


class Wide(_Fit):
    params, param_names = [list(WIDE)], ["table"]

    def setup(self, table):
        if table.startswith("one X"):
            self.exact("l21", *shared_rows(*WIDE[table]), None)
        else:
            self.exact("l21", *generated("groupsparse", *WIDE[table]))


class Private(_Fit):
    params, param_names = [list(PRIVATE)], ["estimator"]

    def setup(self, name):
        self.private(name, SIZE)


class Many(_Fit):
    """Private fits of thousands of tasks."""

    params, param_names = [["DPMetaInit", "PrivateMTL"]], ["estimator"]
    number, repeat, warmup_time = 1, 3, 0.0

    def setup(self, name):
        self.private(name, SIZE)
        self.time_fit()  # loads the compiled loops
        self.private(name, MANY)
