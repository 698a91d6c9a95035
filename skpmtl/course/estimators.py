"""`HierarchicalMTL`: regression by the hierarchical model, which is learnt in one loop."""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from .._docstrings import fill_docstring
from .._runtime.hints import Adjacency, Curator, RandomState
from ..base import BaseMTL, MTLRegressorMixin
from ..privacy.report import exact_report
from .billboard import HierarchicalBillboard
from .curator import PLAIN, release_model
from .plan import HierarchicalPlan
from .queries import query_specs
from .tasks import HierarchicalTaskSide


class HierarchicalMTL(MTLRegressorMixin, BaseMTL):
    __doc__ = fill_docstring(
        """Private multi-task regression by one hierarchical model.

    The level and the slopes of a task are normal about a centre, with proper priors on all scales
    (`skpmtl.task.posterior`). One loop of queries learns the centre, the shape of slopes and the
    priors of the scales (`skpmtl.course.curator`); every task then averages over its posterior.

    Parameters
    ----------
    epsilon : float or None, default=1.0
        Privacy budget of the whole fit. None or infinity: the same loop without noise.
    delta : float or None, default=None
        Delta of the (epsilon, delta) guarantee, in (0, 1). None: ``min(1e-5, 1 / n_tasks**2)``.
    {adjacency}
    {curator}
    {init} The centre, and all that is released, are those of differences from it.
    fit_intercept : bool, default=True
        Whether every task has an intercept.
    {task_feature}
    {tasks}
    unseen_task : {{"error", "mean"}}, default="error"
        What `predict` does with a task that was not fitted: raise an error, or use the released
        centre.
    target_range : (float, float) or None, default=None
        Public lowest and highest value of the target, never computed from private rows.
        Predictions stay within it.
    uncertainty : bool, default=False
        Whether to keep the posterior covariance of each task's model, for
        ``predict(X, return_std=True)`` and `predict_interval`. It follows from the rows of the task
        and the releases, costs no privacy, and is for the task alone; it takes (n_features + 1)^2
        numbers per task.
    {random_state}
    {secure}
    {verbose}
    {dtype}

    Attributes
    ----------
    coef_, intercept_ : ndarray of shape (n_tasks, n_features), (n_tasks,)
        Personal models, in units of the input. All of them together are not private: give each
        task its own with `export_task`.
    tasks_ : ndarray of shape (n_tasks,)
        Task ids in the order of `coef_`.
    mean_coef_, mean_intercept_ : ndarray of shape (n_features,), float
        The released centre; missing where no place of levels was found and none is public.
    level_, level_spread_ : float
        Level of the tasks where the centre of the columns is, in units of the target, and standard
        deviation of levels about it; only where levels are pooled.
    row_centre_, row_reach_ : ndarray of shape (n_tasks, n_features)
        Mean row of a task, and how far from it a row counts in a prediction.
    prediction_range_ : ndarray of shape (n_tasks, 2)
        What predictions of a task are clipped to, less those of `init`.
    covariance_, noise_variance_, dof_ : ndarray, of shape (n_tasks, n_features + 1, n_features + 1)
        for the first
        With `uncertainty`: posterior covariance of coefficients and, last, the intercept; variance
        of the noise of a row, and its degrees of freedom.
    billboard_ : HierarchicalBillboard
        The releases and what follows from them; the only part that may be published.
    {privacy_}
    n_iter_ : int
        Number of releases; 1 if there are none.
    {features_in_}
    """
    )

    _parameter_constraints = {**BaseMTL._parameter_constraints, "init": "no_validation"}
    _billboards, _federates = (HierarchicalBillboard,), True
    _extras = (*BaseMTL._extras, "row_centre_", "row_reach_", "prediction_range_")

    def __init__(
        self,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        *,
        adjacency: Adjacency = "replace-one",
        curator: Curator = "trusted",
        init=None,
        fit_intercept: bool = True,
        task_feature: str | int | list | None = None,
        tasks: ArrayLike = "auto",
        unseen_task: Literal["error", "mean"] = "error",
        target_range: ArrayLike | None = None,
        uncertainty: bool = False,
        random_state: RandomState = None,
        secure: bool = False,
        verbose: int = 0,
        dtype: type | str = np.float64,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.adjacency = adjacency
        self.curator = curator
        self.init = init
        self.fit_intercept = fit_intercept
        self.task_feature = task_feature
        self.tasks = tasks
        self.unseen_task = unseen_task
        self.target_range = target_range
        self.uncertainty = uncertainty
        self.random_state = random_state
        self.secure = secure
        self.verbose = verbose
        self.dtype = dtype

    def _plan(self, population):
        epsilon = self.epsilon if self._is_private() else None
        d = population.n_features
        numbers = population.n_tasks, d, self._n_servers
        plan = HierarchicalPlan(epsilon, self.delta, self.adjacency, *numbers)
        plan.public_init = self._public_init(population)
        plan.fit_intercept = bool(self.fit_intercept)
        return plan

    def _curator(self, population, source):
        limits = None if self.target_range is None else np.array(self._score_range(), dtype=float)
        return release_model(self._plan(population), source, limits)

    def _task_side(self, table, population):
        return HierarchicalTaskSide(table, self._public_init(population))

    def _planned_report(self, population):
        if not self._is_private():
            return exact_report(PLAIN)
        return self._plan(population).report(self._source())

    def _query_specs(self, population):
        return query_specs(population.n_features)

    def _check_parameters(self):
        super()._check_parameters()
        if self.target_range is not None:
            self._score_range()

    def _middle(self):
        """Intercept of a public initial model that has none: the middle of the public range."""
        return 0.0 if self.target_range is None else 0.5 * sum(self._score_range())

    def _row_scores(self, rows):
        """Scores of rows that are bounded about a task's own, within its range of predictions."""
        if rows.codes is None:
            X, columns = _dense(rows.features()), self._wide_columns()
            scores = np.stack([self._scores_of_task(t, X) for t in columns], axis=1)
        else:
            scores = np.empty(len(rows.codes))
            for t in np.unique(rows.codes):
                own = np.flatnonzero(rows.codes == t)
                scores[own] = self._scores_of_task(t, _dense(rows.features(own)))
        return scores if self.target_range is None else np.clip(scores, *self._score_range())

    def _scores_of_task(self, t, X):
        """Of rows X (n, d) of the task at t, below 0 of one that was not fitted."""
        board = self.billboard_
        if t >= 0 and self.row_reach_[t].any():
            model = self.coef_[t], self.intercept_[t]
            bounds = self.row_centre_[t], self.row_reach_[t], *self.prediction_range_[t]
            coef, intercept = board.subtract_init(*model)
            scores = _bounded(X, coef, intercept, *bounds)
        elif self._has_mean():
            coef, intercept = board.subtract_init(self.mean_coef_, self.mean_intercept_)
            near, limits = board.near_rows(X)
            scores = np.clip(intercept + near @ coef, *limits)
        else:
            return X @ self.coef_[t] + self.intercept_[t]
        if board.init is not None:
            scores += X @ board.init.coef[0] + board.init.intercept
        return scores


def _dense(X):
    return X.toarray() if sparse.issparse(X) else np.asarray(X, dtype=float)


def _bounded(X, coef, intercept, centre, reach, low, high):
    """Scores of rows that are cut at `reach` from `centre`, within low ... high."""
    Z = np.clip(X - centre, -reach, reach)
    return np.clip(intercept + centre @ coef + Z @ coef, low, high)
