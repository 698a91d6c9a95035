"""`HierarchicalMTL`: regression by the hierarchical model, which is learnt in one loop."""

import numpy as np

from ..base import BaseMTL, MTLRegressorMixin
from ..privacy.report import exact_report
from .billboard import HierarchicalBillboard
from .curator import PLAIN, release_model
from .plan import HierarchicalPlan
from .queries import query_specs
from .tasks import HierarchicalTaskSide


class HierarchicalMTL(MTLRegressorMixin, BaseMTL):
    """Private multi-task regression by one hierarchical model.

    The level and the slopes of a task are normal about a centre, with proper priors on all scales
    (`skpmtl.task.posterior`). One loop of queries learns the centre, the shape of slopes and the
    priors of the scales (`skpmtl.course.curator`); every task then averages over its posterior.

    Parameters
    ----------
    epsilon : float or None, default=1.0
        Privacy budget of the whole fit. None or infinity: the same loop without noise.
    delta : float or None, default=None
        None: ``min(1e-5, 1 / n_tasks**2)``.
    adjacency : {"replace-one", "zero-out"}, default="replace-one"
        What neighbouring data sets are.
    curator : "trusted", "servers" or ("servers", P), default="trusted"
        Who adds up contributions and adds noise: one curator, or P servers (2 for "servers") of
        which one has to be honest, each with noise that suffices by itself.
    task_feature : str, int, list or None, default=None
        Column of X that holds the tasks.
    tasks : "auto" or array-like, default="auto"
        Public list of all tasks.
    unseen_task : {"error", "mean"}, default="error"
        What `predict` does with a task that was not fitted.
    target_range : (low, high) or None, default=None
        Public range of y. Predictions stay within it.
    random_state : int, RandomState, Generator or None, default=None
        Of the noise.
    secure : bool, default=False
        Whether the noise comes from the operating system.
    verbose : int, default=0

    Attributes
    ----------
    coef_, intercept_ : ndarray (n_tasks, n_features), (n_tasks,)
        Personal models, in units of the input.
    billboard_ : HierarchicalBillboard
    privacy_ : PrivacyReport
    row_centre_, row_reach_ : ndarray (n_tasks, n_features)
        Mean row of a task, and how far from it a row counts in a prediction.
    prediction_range_ : ndarray (n_tasks, 2)
        What predictions of a task are clipped to.
    """

    _billboards, _federates = (HierarchicalBillboard,), True
    _extras = (*BaseMTL._extras, "row_centre_", "row_reach_", "prediction_range_")
    fit_intercept, loss = True, "squared"

    def __init__(
        self,
        epsilon=1.0,
        delta=None,
        *,
        adjacency="replace-one",
        curator="trusted",
        task_feature=None,
        tasks="auto",
        unseen_task="error",
        target_range=None,
        random_state=None,
        secure=False,
        verbose=0,
    ):
        self.epsilon, self.delta, self.adjacency = epsilon, delta, adjacency
        self.curator = curator
        self.task_feature, self.tasks, self.unseen_task = task_feature, tasks, unseen_task
        self.target_range, self.random_state = target_range, random_state
        self.secure, self.verbose = secure, verbose

    def _plan(self, population):
        epsilon = self.epsilon if self._is_private() else None
        d = population.n_features
        numbers = population.n_tasks, d, self._n_servers
        return HierarchicalPlan(epsilon, self.delta, self.adjacency, *numbers)

    def _curator(self, population, source):
        limits = None if self.target_range is None else np.array(self._score_range(), dtype=float)
        return release_model(self._plan(population), source, limits)

    def _task_side(self, table, population):
        if table.is_sparse or table.weights is not None:
            raise ValueError(
                "HierarchicalMTL takes dense rows without weights: pass X.toarray(), and leave "
                "sample_weight at None."
            )
        return HierarchicalTaskSide(table)

    def _planned_report(self, population):
        if not self._is_private():
            return exact_report(PLAIN)
        return self._plan(population).report(self._source())

    def _has_fixed_queries(self, population):
        return False

    def _query_specs(self, population):
        return query_specs(population.n_features)

    def _row_scores(self, rows):
        """Scores of rows that are bounded about a task's own, within its range of predictions."""
        if rows.codes is None or not hasattr(self, "row_reach_"):
            return super()._row_scores(rows)
        scores = super()._row_scores(rows)
        X = np.asarray(rows.features(np.arange(len(rows.codes))), dtype=float)
        has_rows = np.append(self.row_reach_.any(axis=1), False)  # the last is for unseen tasks
        for t in np.unique(rows.codes[has_rows[rows.codes]]):
            own = np.flatnonzero(rows.codes == t)
            bounds = self.row_centre_[t], self.row_reach_[t], *self.prediction_range_[t]
            scores[own] = _bounded(X[own], self.coef_[t], self.intercept_[t], *bounds)
        others = np.flatnonzero(~has_rows[np.maximum(rows.codes, -1)])
        if len(others) and self._has_mean():
            mean = self.mean_coef_, self.mean_intercept_
            scores[others] = _bounded(X[others], *mean, *self.billboard_.bounds_without_rows())
        if self.target_range is not None:
            scores = np.clip(scores, *self._score_range())
        return scores


def _bounded(X, coef, intercept, centre, reach, low, high):
    """Scores of rows that are cut at `reach` from `centre`, within low ... high."""
    Z = np.clip(X - centre, -reach, reach)
    return np.clip(intercept + centre @ coef + Z @ coef, low, high)
