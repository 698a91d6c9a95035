"""Predictions, and models of new tasks from a released prior."""

import warnings
from functools import cache

import numpy as np

from .tables import cpu_seconds, generated, public

ESTIMATORS = ["MPMTLLowRank", "PrivateMeanRegMTL", "MPMTLLowRankClassifier"]
TASKS, ROWS, FEATURES = 500, 20, 20


@cache
def _fitted(name):
    warnings.simplefilter("ignore")
    X, y, task = generated("lowrank", TASKS, ROWS, FEATURES)
    given = {"epsilon": 1.0, "tasks": np.arange(TASKS), "random_state": 0}
    if name.endswith("Classifier"):
        given["classes"], y = [0, 1], (y > 0).astype(int)
    return public(name)(**given).fit(X, y, task=task), X, y, task


class Calls:
    params, param_names = [ESTIMATORS], ["estimator"]
    timer = staticmethod(cpu_seconds)
    sample_time = 0.05

    def setup(self, name):
        self.model, self.X, self.y, self.task = _fitted(name)
        self.new = self.task + TASKS
        self.one = self.X[:1], self.task[:1]
        self.many = np.tile(self.X, (10, 1)), np.tile(self.task, 10)

    def time_predict(self, name):
        self.model.predict(self.X, task=self.task)

    def time_predict_many(self, name):
        self.model.predict(self.many[0], task=self.many[1])

    def time_predict_one_row(self, name):
        self.model.predict(self.one[0], task=self.one[1])

    def time_personalize(self, name):
        self.model.personalize(self.X, self.y, task=self.new)
