"""`PrivateMTL` and its classifier: multi-task learning that finds out what tasks share."""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from .._docstrings import fill_docstring
from .._runtime.hints import Adjacency, ClassWeight, Curator, RandomState
from ..base import MTLClassifierMixin, MTLRegressorMixin
from ..course.estimators import Hierarchical

__all__ = ["PrivateMTL", "PrivateMTLClassifier"]


class PrivateMTL(MTLRegressorMixin, Hierarchical):
    __doc__ = fill_docstring(
        """Private multi-task regression by one hierarchical model.

    The level and the slopes of a task are normal about a centre, with proper priors on all scales
    (`skpmtl.task.posterior`). One loop of queries learns the centre, the shape of slopes and the
    priors of the scales (`skpmtl.course.curator`); every task then averages over its posterior.

    Parameters
    ----------
    structure : {{"auto", "low-rank", "sparse", "mean", "groups"}} or list, default="auto"
        What slopes of tasks may share: a subspace ("low-rank"), the same few columns ("sparse"), a
        mean, or a list of these. "auto": any of these; a task may always be on its own. Where
        public knowledge rules out some of them, naming the others saves budget. "groups": all of
        these, and unknown groups of tasks with similar slopes (`skpmtl.course.groups`), which take
        a quarter of the squared budget or more.
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
        their variance may be a multiple of their mean. Under a budget negative ones count as 0,
        since an error would show that some task has one. "huber": every task weighs its rows once,
        by how far they are from a model of its own.
    {init} The centre, and all that is released, are those of differences from it.
    relation : DataFrame, mapping, array, sparse matrix, graph or None, default=None
        Public covariates of the tasks, which move their centres; as of `PrivateMeanRegMTL`. Of real
        targets.
    factors : mapping of str to "above", "below", "across" or ("across", levels), default=None
        Further groupings, by where they stand. ``{{"district": "above"}}``: a column of `relation`
        that has the level of every task, such as its district, which moves the level of the task by
        an effect N(0, omega^2) that is released (`skpmtl.course.factors`).
        ``{{"class": "below"}}``: a column of X that has the level of every row within its task,
        such as the class in a school, whose effects N(0, rho^2) the task estimates from its own
        rows; one vote of the tasks is about rho. The column is no feature, is named as
        `task_feature` is, and is part of X in predictions, where a level that the task does not
        have stands for a new one.
        ``{{"item": ("across", levels)}}``: a column of X that has the level of every row, such as
        an item that many tasks answer, whose effects N(0, omega^2) are released. The list of
        levels is public, and needed with a budget.
    relation_rank : int or None, default=None
        Columns of the basis of a graph or Omega. None: 10, or one for five tasks.
    fit_intercept : bool, default=True
        Whether every task has an intercept.
    {task_feature}
    {tasks}
    unseen_task : {{"error", "mean"}}, default="error"
        What `predict` does with a task that was not fitted: raise an error, or use the released
        centre.
    target_range : (float, float) or None, default=None
        Public lowest and highest value of the target, never computed from private rows.
        Predictions stay within it; where no place of levels was found, its middle is the mean
        model. It saves no budget.
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
        (cluster-robust, CR2). Missing where the budget is too small for them, or levels are not
        pooled.
    effect_intercept_ : float
        The intercept that goes with `effect_coef_`.
    effect_covariance_ : ndarray of shape (n_features + 1, n_features + 1)
        Covariance of the errors of these slopes and, last, the intercept.
    effect_dof_ : ndarray of shape (n_features + 1,)
        Degrees of freedom of their variances, for quantiles of Student's t.
    relation_coef_, relation_intercept_ : ndarray (n_covariates, n_features), (n_covariates,)
        With `relation`, in place of the mean model: what one more of every covariate adds to slopes
        and level, the constant first, as a difference to `init`; names are
        ``billboard_.relation.names``.
    factors_ : dict of str to dict
        With `factors`, by name, in units of the target: "spread", the standard deviation of
        effects, and of a factor above or across tasks "levels" (n_levels,) and their released
        "effects" (n_levels,) on levels of tasks or on targets of rows.
    level_effects_ : ndarray of shape (n_tasks,) of `skpmtl.task.nested.LevelEffects`
        With a factor below tasks: the "levels" of each task and their "effects". For the task
        alone, like its model.
    groups_ : dict of str to ndarray
        With "groups", where some were found: released numbers of tasks, with noise, "counts"
        (n_groups,); "centres" of their slopes (n_groups, n_features); and "intercepts".
    membership_ : ndarray of shape (n_tasks, n_groups + 1)
        With `groups_`: posterior probabilities of each task's group; the last column is that of no
        group. For the task alone, like its model.
    level_, level_spread_ : float
        Level of the tasks where the centre of the columns is, in units of the target, and standard
        deviation of levels about it; only where levels are pooled. A random intercept of lme4 is
        the level where all columns are zero, which `summary` has, too.
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
        structure: Literal["auto", "groups", "low-rank", "mean", "sparse"] | list | tuple = "auto",
        *,
        loss: Literal["huber", "poisson", "squared"] = "squared",
        levels: Literal["auto", "free"] = "auto",
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Adjacency = "replace-one",
        curator: Curator = "trusted",
        init=None,
        relation=None,
        factors=None,
        relation_rank: int | None = None,
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
        self.relation = relation
        self.factors = factors
        self.relation_rank = relation_rank
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


class PrivateMTLClassifier(MTLClassifierMixin, Hierarchical):
    """Private multi-task classification by one hierarchical model of scores.

    As `PrivateMTL`; levels and slopes are those of log-odds, and of three classes or more of a
    score for each class. Probabilities are averaged over the posterior of a task.

    Parameters
    ----------
    structure, levels
        As of `PrivateMTL`.
    epsilon : float or None, default=1.0
        Privacy budget of the whole fit. None or infinity: the same loop without noise.
    delta : float or None, default=None
        None: ``min(1e-5, 1 / n_tasks**2)``.
    adjacency : {"replace-one", "zero-out"}, default="replace-one"
        What neighbouring data sets are.
    curator : "trusted", "servers" or ("servers", P), default="trusted"
        As of `PrivateMTL`.
    init, factors, fit_intercept, dtype
        As of `PrivateMTL`; factors above and across tasks of two classes only.
    relation : DataFrame, mapping or None, default=None
        Public table of the tasks with the column that `factors` names, and no other one.
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
    factors_ : dict of str to dict
        As of `PrivateMTL`, in log-odds.
    covariance_ : ndarray (n_tasks, [n_classes,] n_features + 1, n_features + 1)
        Of the model of each task, the intercept last; with `uncertainty`.
    billboard_ : HierarchicalBillboard
    privacy_ : PrivacyReport
    """

    _multiclass, _spreads_labels = True, False

    def __init__(
        self,
        structure: Literal["auto", "groups", "low-rank", "mean", "sparse"] | list | tuple = "auto",
        *,
        levels: Literal["auto", "free"] = "auto",
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Adjacency = "replace-one",
        curator: Curator = "trusted",
        init=None,
        relation=None,
        factors=None,
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
        self.relation = relation
        self.factors = factors
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
