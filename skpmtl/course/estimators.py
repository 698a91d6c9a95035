"""`HierarchicalMTL` and its classifier: the hierarchical model, which is learnt in one loop."""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from .._docstrings import fill_docstring
from .._runtime.compat import StrOptions
from .._runtime.hints import Adjacency, ClassWeight, Curator, RandomState
from ..base import BaseMTL, MTLClassifierMixin, MTLRegressorMixin
from ..privacy.report import exact_report
from .billboard import HierarchicalBillboard
from .curator import PLAIN, release_model
from .errors import Errors
from .plan import STRUCTURES, HierarchicalPlan
from .queries import query_specs
from .tasks import HierarchicalTaskSide


class Hierarchical(BaseMTL):
    """Curator, task side and bounded scores, for all losses.

    A subclass has the parameters `levels` and `standard_errors`, or the defaults of this class, and
    may say in `_structures` what slopes may share.
    """

    _parameter_constraints = {
        **BaseMTL._parameter_constraints,
        "init": "no_validation",
        "standard_errors": ["boolean"],
        "structure": [StrOptions({"auto", *STRUCTURES}), list, tuple],
        "levels": [StrOptions({"auto", "free"})],
    }
    standard_errors, levels = False, "auto"
    _billboards, _federates = (HierarchicalBillboard,), True
    _extras = (*BaseMTL._extras, "row_centre_", "row_reach_", "prediction_range_")

    def _check_parameters(self):
        super()._check_parameters()
        self._structures()
        self._limits()
        if self.standard_errors and self._log_loss:
            raise ValueError(
                f'standard_errors=True with loss={self.loss!r}: they are of loss="squared" and '
                '"huber". Pass standard_errors=False.'
            )
        if self.levels == "free" and self.unseen_task == "mean" and self.fit_intercept:
            raise ValueError(
                'unseen_task="mean" needs the level of the tasks, which levels="free" does not '
                'look for: pass levels="auto".'
            )

    def _structures(self):
        """What slopes may share, as a tuple in the order of `STRUCTURES`."""
        wanted = getattr(self, "structure", "auto")
        if isinstance(wanted, str):
            wanted = STRUCTURES if wanted == "auto" else (wanted,)
        if not len(wanted) or any(name not in STRUCTURES for name in wanted):
            names = ", ".join(map(repr, STRUCTURES))
            raise ValueError(f'structure={self.structure!r} must be "auto" or some of {names}.')
        return tuple(name for name in STRUCTURES if name in wanted)

    def _plan(self, population):
        epsilon = self.epsilon if self._is_private() else None
        d = population.n_features
        numbers = population.n_tasks, d, self._n_servers, self.loss, population.n_classes
        plan = HierarchicalPlan(epsilon, self.delta, self.adjacency, *numbers)
        plan.public_init = self._public_init(population)
        plan.fit_intercept = bool(self.fit_intercept)
        plan.structures, plan.levels = self._structures(), self.levels
        plan.has_errors = bool(self.standard_errors)
        return plan

    def _curator(self, population, source):
        limits = self._limits()
        limits = None if limits is None else np.array(limits, dtype=float)
        return release_model(self._plan(population), source, limits)

    def _limits(self):
        """Public range of scores, or None."""
        return None if getattr(self, "target_range", None) is None else self._score_range()

    def _middle(self):
        """Intercept of a public initial model that has none: the middle of the public range."""
        limits = self._limits()
        return 0.0 if limits is None else 0.5 * sum(limits)

    def _task_side(self, table, population):
        return HierarchicalTaskSide(table, self._public_init(population))

    def _planned_report(self, population):
        if not self._is_private():
            return exact_report(PLAIN)
        return self._plan(population).report(self._source())

    def _query_specs(self, population):
        d = population.n_features
        specs = query_specs(d, self.loss, population.n_classes)
        return {**specs, "errors": Errors.spec(d)} if self.standard_errors else specs

    def _personalize_table(self, table):
        if not self._classification:
            return super()._personalize_table(table)
        kept = self._keeps_class_posterior(table)
        return self.billboard_.personalize(table, posterior=kept)

    def _row_scores(self, rows):
        """Scores of rows that are bounded about a task's own, within its range of predictions."""
        if not hasattr(self, "row_reach_"):  # an exact fit
            return super()._row_scores(rows)
        if rows.codes is None:
            X, columns = _dense(rows.features()), self._wide_columns()
            scores = np.stack([self._scores_of_task(t, X) for t in columns], axis=1)
        else:
            scores = np.empty((len(rows.codes), *self.coef_.shape[1:-1]))
            for t in np.unique(rows.codes):
                own = np.flatnonzero(rows.codes == t)
                scores[own] = self._scores_of_task(t, _dense(rows.features(own)))
        limits = self._limits()
        return scores if limits is None else np.clip(scores, *limits)

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
            scores = np.clip(intercept + near @ coef.T, *limits)
        else:
            return X @ self.coef_[t].T + self.intercept_[t]
        if board.init is not None:
            of_init = board.add_init(np.zeros_like(coef), np.zeros_like(intercept))
            scores += X @ of_init[0].T + of_init[1]
        return scores


class HierarchicalMTL(MTLRegressorMixin, Hierarchical):
    __doc__ = fill_docstring(
        """Private multi-task regression by one hierarchical model.

    The level and the slopes of a task are normal about a centre, with proper priors on all scales
    (`skpmtl.task.posterior`). One loop of queries learns the centre, the shape of slopes and the
    priors of the scales (`skpmtl.course.curator`); every task then averages over its posterior.

    Parameters
    ----------
    structure : {{"auto", "low-rank", "sparse", "mean"}} or list, default="auto"
        What slopes of tasks may share: a subspace ("low-rank"), the same few columns ("sparse"), a
        mean, or a list of these. "auto": any of these; a task may always be on its own. Where
        public knowledge rules out some of them, naming the others saves budget.
    levels : {{"auto", "free"}}, default="auto"
        The level of a task is its score at its mean row. "auto": normal about a released one, where
        it can be found. "free": every task has its own, whatever the other tasks' are.
    epsilon : float or None, default=1.0
        Privacy budget of the whole fit. None or infinity: the same loop without noise.
    delta : float or None, default=None
        Delta of the (epsilon, delta) guarantee, in (0, 1). None: ``min(1e-5, 1 / n_tasks**2)``.
    {adjacency}
    {curator}
    loss : {{"squared", "poisson", "huber"}}, default="squared"
        "poisson": counts, or rates with exposures as `sample_weight`, whose logarithms are linear;
        their variance may be a multiple of their mean. "huber": every task weighs its rows once,
        by how far they are from a model of its own.
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
    standard_errors : bool, default=False
        Whether to release standard errors of the slopes that tasks have in common, which takes 20 %
        of the squared budget (mu^2).
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
    effect_coef_, effect_std_ : ndarray of shape (n_features,)
        With `standard_errors`: common slopes before they are shrunk, and their standard errors,
        which hold where rows of a task depend on each other or tasks differ in their noise
        (cluster-robust, CR1). Missing where the budget is too small for them, or levels are not
        pooled.
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

    def __init__(
        self,
        structure: Literal["auto", "low-rank", "mean", "sparse"] | list | tuple = "auto",
        *,
        levels: Literal["auto", "free"] = "auto",
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Adjacency = "replace-one",
        curator: Curator = "trusted",
        loss: Literal["huber", "poisson", "squared"] = "squared",
        init=None,
        fit_intercept: bool = True,
        task_feature: str | int | list | None = None,
        tasks: ArrayLike = "auto",
        unseen_task: Literal["error", "mean"] = "error",
        target_range: ArrayLike | None = None,
        uncertainty: bool = False,
        standard_errors: bool = False,
        random_state: RandomState = None,
        secure: bool = False,
        verbose: int = 0,
        dtype: type | str = np.float64,
    ) -> None:
        self.structure = structure
        self.levels = levels
        self.epsilon = epsilon
        self.delta = delta
        self.adjacency = adjacency
        self.curator = curator
        self.loss = loss
        self.init = init
        self.fit_intercept = fit_intercept
        self.task_feature = task_feature
        self.tasks = tasks
        self.unseen_task = unseen_task
        self.target_range = target_range
        self.uncertainty = uncertainty
        self.standard_errors = standard_errors
        self.random_state = random_state
        self.secure = secure
        self.verbose = verbose
        self.dtype = dtype


class HierarchicalMTLClassifier(MTLClassifierMixin, Hierarchical):
    """Private multi-task classification by one hierarchical model of scores.

    As `HierarchicalMTL`; levels and slopes are those of log-odds, and of three classes or more of a
    score for each class. Probabilities are averaged over the posterior of a task.

    Parameters
    ----------
    structure, levels
        As of `HierarchicalMTL`.
    epsilon : float or None, default=1.0
        Privacy budget of the whole fit. None or infinity: the same loop without noise.
    delta : float or None, default=None
        None: ``min(1e-5, 1 / n_tasks**2)``.
    adjacency : {"replace-one", "zero-out"}, default="replace-one"
        What neighbouring data sets are.
    curator : "trusted", "servers" or ("servers", P), default="trusted"
        As of `HierarchicalMTL`.
    init, fit_intercept, dtype
        As of `HierarchicalMTL`.
    task_feature : str, int, list or None, default=None
        Column of X that holds the tasks.
    tasks : "auto" or array-like, default="auto"
        Public list of all tasks.
    classes : "auto" or array-like, default="auto"
        Public list of all classes.
    class_weight : dict, "balanced" or None, default=None
        What rows of a class count, or that the classes of a task count the same.
    unseen_task : {"error", "mean"}, default="error"
        What `predict` does with a task that was not fitted.
    uncertainty : bool or "auto", default="auto"
        Whether a task keeps the covariance of its model, with which `predict_proba` averages.
        "auto": up to three classes, where that takes no more than 2^24 numbers.
    random_state : int, RandomState, Generator or None, default=None
        Of the noise.
    secure : bool, default=False
        Whether the noise comes from the operating system.
    verbose : int, default=0

    Attributes
    ----------
    coef_, intercept_ : ndarray (n_tasks, [n_classes,] n_features), (n_tasks, [n_classes])
        Personal models, in units of the input: posterior means.
    classes_ : ndarray (n_classes,)
    covariance_ : ndarray (n_tasks, [n_classes,] n_features + 1, n_features + 1)
        Of the model of each task, the intercept last; with `uncertainty`.
    billboard_ : HierarchicalBillboard
    privacy_ : PrivacyReport
    """

    _multiclass, _spreads_labels = True, False

    def __init__(
        self,
        structure: Literal["auto", "low-rank", "mean", "sparse"] | list | tuple = "auto",
        *,
        levels: Literal["auto", "free"] = "auto",
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Adjacency = "replace-one",
        curator: Curator = "trusted",
        init=None,
        fit_intercept: bool = True,
        task_feature: str | int | list | None = None,
        tasks: ArrayLike = "auto",
        classes: ArrayLike = "auto",
        class_weight: ClassWeight = None,
        unseen_task: Literal["error", "mean"] = "error",
        uncertainty: bool | Literal["auto"] = "auto",
        random_state: RandomState = None,
        secure: bool = False,
        verbose: int = 0,
        dtype: type | str = np.float64,
    ) -> None:
        self.structure = structure
        self.levels = levels
        self.epsilon = epsilon
        self.delta = delta
        self.adjacency = adjacency
        self.curator = curator
        self.init = init
        self.fit_intercept = fit_intercept
        self.task_feature = task_feature
        self.tasks = tasks
        self.classes = classes
        self.class_weight = class_weight
        self.unseen_task = unseen_task
        self.uncertainty = uncertainty
        self.random_state = random_state
        self.secure = secure
        self.verbose = verbose
        self.dtype = dtype


def _dense(X):
    return X.toarray() if sparse.issparse(X) else np.asarray(X, dtype=float)


def _bounded(X, coef, intercept, centre, reach, low, high):
    """Scores of rows that are cut at `reach` from `centre`, within low ... high."""
    Z = np.clip(X - centre, -reach, reach)
    return np.clip(intercept + centre @ coef.T + Z @ coef.T, low, high)
