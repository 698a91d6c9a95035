"""A complete private method, which nothing else in the package or the tests knows.

Ridge regression around a shared centre: every task sends its model, clipped, and the noisy mean
of these is the centre.
"""

from dataclasses import dataclass
from numbers import Real

import numpy as np

from skpmtl._runtime.constraints import Interval
from skpmtl.base import BaseMTL, MTLRegressorMixin
from skpmtl.exchange import Billboard, Plan, Query, QuerySpec, TaskSide, clipped_sum
from skpmtl.privacy.accounting import check_budget, gdp_mu
from skpmtl.privacy.mechanisms import VectorGaussian, clip_rows, mean_sensitivity


# ------------------------------------------------------------------------------- billboard.py
@dataclass
class RidgeBillboard(Billboard):
    releases: list
    alpha: float
    report: object = None

    constraints = {"alpha": [Interval(Real, 0, None, closed="neither")]}
    settings = ("alpha",)
    n_features = property(lambda self: len(self.releases[0]))

    def declared(self):
        (centre,) = self.releases
        yield "the centre", centre, [(len(centre),)]

    def attributes(self):
        return {"mean_coef_": self.releases[0], "mean_intercept_": 0.0}

    def personalize(self, table):
        return ridges(table, self.releases[0], self.alpha), np.zeros(table.n_tasks)


# -------------------------------------------------------------------------------- plan.py
class RidgePlan(Plan):
    def __init__(self, est, population):
        self.n_tasks, self.adjacency = population.n_tasks, est.adjacency
        self.epsilon, self.delta = check_budget(est.epsilon, est.delta, self.n_tasks)
        self.mu = gdp_mu(self.epsilon, self.delta)
        self.clip_norm = float(est.clip_norm)
        sensitivity = mean_sensitivity(self.clip_norm, self.n_tasks, self.adjacency)
        self.mean = VectorGaussian(population.n_features, sensitivity, self.mu)

    def mechanism(self):
        return "Gaussian noise on the mean of clipped models"

    def releases(self, made=None):
        return [{"name": "mean", **self.mean.describe("mean of clipped models")}]

    def public_inputs(self):
        return {"n_tasks": self.n_tasks, "clip_norm": self.clip_norm}


# ----------------------------------------------------------------------------- curator.py
def release_mean(plan, population, clip_norm):
    mechanisms, combine = {"model": plan.mean}, clipped_sum("model", clip_norm)
    query = Query("model", {"clip_norm": clip_norm}, mechanisms, combine, population.n_tasks)
    return (yield query)["model"]


# ------------------------------------------------------------------------------- tasks.py
class RidgeTaskSide(TaskSide):
    def __init__(self, table, alpha):
        self.table, self.alpha = table, alpha

    def contributions(self, query):
        models = ridges(self.table, np.zeros(self.table.n_features), self.alpha)
        clip_rows(models, query.public["clip_norm"])
        return {"model": models if query.pick is None else models[query.pick]}


def ridges(table, centre, alpha):
    """Models (n_tasks, d) of least (squared error / n_k + alpha (distance to centre)^2) / 2."""
    W = np.empty((table.n_tasks, table.n_features))
    for k in range(table.n_tasks):
        X, y = table.task(k)
        G = X.T @ X / len(y) + alpha * np.eye(X.shape[1])
        W[k] = centre + np.linalg.solve(G, X.T @ (y - X @ centre) / len(y))
    return W


# -------------------------------------------------------------------------- estimators.py
class PrivateRidge(MTLRegressorMixin, BaseMTL):
    _billboards = (RidgeBillboard,)
    _federates = True

    def __init__(
        self,
        alpha=1.0,
        *,
        clip_norm=1.0,
        epsilon=1.0,
        delta=None,
        adjacency="replace-one",
        task_feature=None,
        tasks="auto",
        unseen_task="error",
        random_state=None,
        verbose=0,
    ):
        self.alpha, self.clip_norm = alpha, clip_norm
        self.epsilon, self.delta, self.adjacency = epsilon, delta, adjacency
        self.task_feature, self.tasks, self.unseen_task = task_feature, tasks, unseen_task
        self.random_state, self.verbose = random_state, verbose

    def _curator(self, population, source):
        plan = RidgePlan(self, population)
        centre = yield from release_mean(plan, population, float(self.clip_norm))
        return RidgeBillboard([centre], float(self.alpha), plan.report(source))

    def _task_side(self, table, population):
        return RidgeTaskSide(table, self.alpha)

    def _planned_report(self, population):
        return RidgePlan(self, population).report(self._source())

    def _query_specs(self, population):
        bound = {"clip_norm": float(self.clip_norm)}
        return {"model": QuerySpec({"model": (population.n_features,)}, bound)}
