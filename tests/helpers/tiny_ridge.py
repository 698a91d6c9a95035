"""The smallest estimators on the shared plumbing: one ridge regression per task."""

import numpy as np

from skpmtl._runtime.constraints import take
from skpmtl.base import BaseMTL, MTLClassifierMixin, MTLRegressorMixin


class _Ridge(BaseMTL):
    def __init__(
        self,
        alpha=1.0,
        *,
        epsilon=None,
        delta=None,
        adjacency="replace-one",
        fit_intercept=True,
        task_feature=None,
        tasks="auto",
        unseen_task="error",
        random_state=None,
        verbose=0,
    ):
        take(self, locals())

    def _fit_table(self, table):
        coef, intercept = self._personalize_table(table)
        fitted = {"coef_": coef, "intercept_": intercept, "billboard_": {"alpha": [self.alpha]}}
        fitted["n_iter_"] = 1
        if self._is_private():
            return fitted
        mean = {"mean_coef_": coef.mean(axis=0), "mean_intercept_": intercept.mean()}
        return {**fitted, **mean, "objective_": 0.0}

    def _personalize_table(self, table):
        coef, intercept = np.zeros((table.n_tasks, table.n_features)), np.zeros(table.n_tasks)
        log = self._progress("task %d")
        for k in range(table.n_tasks):
            X, y = table.task(k)
            X = X.toarray() if table.is_sparse else X
            if self.fit_intercept:
                centre, level = X.mean(axis=0), y.mean()
            else:
                centre, level = np.zeros(X.shape[1]), 0.0
            A = X - centre
            G = A.T @ A + (self.alpha + 1e-10) * np.eye(X.shape[1])
            coef[k] = np.linalg.solve(G, A.T @ (y - level))
            intercept[k] = level - centre @ coef[k]
            if log is not None:
                log(k)
        return coef, intercept


class TinyRidge(MTLRegressorMixin, _Ridge):
    """Squared loss."""


class TinyRidgeClassifier(MTLClassifierMixin, _Ridge):
    """Squared loss on the labels -1 and 1."""

    def __init__(
        self,
        alpha=1.0,
        *,
        epsilon=None,
        delta=None,
        adjacency="replace-one",
        fit_intercept=True,
        task_feature=None,
        tasks="auto",
        classes="auto",
        class_weight=None,
        unseen_task="error",
        random_state=None,
        verbose=0,
    ):
        take(self, locals())
