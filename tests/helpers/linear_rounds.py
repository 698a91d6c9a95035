"""Rounds of clipped ridge updates, for tests of what carries queries and keeps releases."""

from dataclasses import dataclass, field
from numbers import Real

import numpy as np

from skpmtl._runtime.constraints import Interval
from skpmtl.base import MTLRegressorMixin
from skpmtl.exchange import Billboard, TaskSide
from skpmtl.networks.rounds import RunsRounds
from skpmtl.privacy.mechanisms import clip_rows
from skpmtl.privacy.report import PrivacyReport


@dataclass
class LinearBillboard(Billboard):
    centres: np.ndarray
    releases: list = field(default_factory=list)
    clip_norms: list = field(default_factory=list)
    step: np.ndarray | None = None
    noise_multiplier: float | None = None
    round_delta: float | None = None
    report: PrivacyReport | None = None

    constraints = {"noise_multiplier": [Interval(Real, 0, None, closed="neither"), None]}
    n_features = property(lambda self: self.centres.shape[1])

    def declared(self):
        d = self.n_features
        yield "the centres", self.centres, [(1, d)]
        yield from (("a release", S, [(d,)]) for S in self.releases)
        yield "the steps of the rounds", self.step, [(1, 1)]

    def attributes(self):
        return {"mean_coef_": self.centres[0], "mean_intercept_": 0.0}

    def personalize(self, table):
        return self.centres[0] + steps(table, self.centres[0]), np.zeros(table.n_tasks)


def steps(table, centre):
    """A step of gradient descent of every task, (n_tasks, d)."""
    found = np.empty((table.n_tasks, table.n_features))
    with np.errstate(all="ignore"):
        for k in range(table.n_tasks):
            X, y = table.task(k)
            found[k] = np.nan_to_num(X.T @ (y - X @ centre) / (1.0 + np.sum(X * X)))
    return found


class LinearTaskSide(TaskSide):
    def __init__(self, table):
        self.table = table

    def contributions(self, query):
        sent = steps(self.table, query.public["centre"][0])
        clip_rows(sent, query.public["clip_norm"])
        return {"update": sent if query.pick is None else sent[query.pick]}

    def answer(self, query):
        return {"update": self.contributions(query)["update"].sum(axis=0, keepdims=True)}


class LinearRounds(MTLRegressorMixin, RunsRounds):
    _billboards = (LinearBillboard,)
    fit_intercept, target_range = False, None
    clusters = relation = relation_rank = None

    def __init__(
        self,
        *,
        clip_norm=1.0,
        n_rounds=4,
        epsilon=1.0,
        delta=None,
        adjacency="replace-one",
        curator="trusted",
        task_feature=None,
        tasks="auto",
        unseen_task="error",
        random_state=None,
        secure=False,
        verbose=0,
    ):
        self.secure = secure
        self.clip_norm, self.n_rounds, self.curator = clip_norm, n_rounds, curator
        self.epsilon, self.delta, self.adjacency = epsilon, delta, adjacency
        self.task_feature, self.tasks, self.unseen_task = task_feature, tasks, unseen_task
        self.random_state, self.verbose = random_state, verbose

    _parameter_constraints = {
        **RunsRounds._parameter_constraints,
        "clip_norm": [Interval(Real, 0, None, closed="neither")],
    }

    def _size(self, population):
        return population.n_features

    def _billboard(self, population, centres, cluster_of, relation):
        return LinearBillboard(centres)

    def _warn_of_noise(self, plan, population):
        pass

    def _task_side(self, table, population):
        return LinearTaskSide(table)
