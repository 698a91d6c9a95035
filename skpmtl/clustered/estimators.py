"""Clustered multi-task learning: exact by its convex relaxation, private by released groups."""

from numbers import Integral, Real
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from .._docstrings import LOSS, TARGET_RANGE, fill_docstring
from .._runtime.constraints import Interval, StrOptions, take
from .._runtime.hints import Adjacency, ClassWeight, Curator, RandomState
from ..base import MTLClassifierMixin, MTLRegressorMixin
from ..course.billboard import HierarchicalBillboard
from ..course.estimators import Hierarchical
from ..course.groups import MOST_GROUPS
from ..course.plan import STRUCTURES
from ..privacy.report import exact_report
from ..solvers.clusters import ClusterPenalty
from ..solvers.losses import make_loss
from ..solvers.minimize import minimize
from .billboard import ClusterBillboard

__all__ = ["ClusteredMTL", "ClusteredMTLClassifier"]


class _Clustered(Hierarchical):
    """Exact fit and course, and what new tasks do with them."""

    _parameter_constraints = {
        name: Hierarchical._parameter_constraints[name]
        for name in (
            "loss",
            "epsilon",
            "delta",
            "adjacency",
            "curator",
            "fit_intercept",
            "task_feature",
            "tasks",
            "classes",
            "unseen_task",
            "target_range",
            "random_state",
            "secure",
            "verbose",
        )
    } | {
        "n_clusters": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
        "alpha": [StrOptions({"auto"}), Interval(Real, 0, None, closed="neither")],
        "ridge": [Interval(Real, 0, None, closed="neither")],
        "task_weight": [StrOptions({"equal", "samples"})],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="neither")],
    }
    _billboards = (HierarchicalBillboard, ClusterBillboard)
    _of_objective = "alpha", "ridge", "task_weight"

    def __init__(
        self,
        n_clusters: int | Literal["auto"] = 2,
        *,
        alpha: float | Literal["auto"] = "auto",
        ridge: float = 0.1,
        task_weight: Literal["equal", "samples"] = "equal",
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Adjacency = "replace-one",
        curator: Curator = "trusted",
        fit_intercept: bool = True,
        task_feature: str | int | list | None = None,
        tasks: ArrayLike = "auto",
        unseen_task: Literal["error", "mean"] = "error",
        random_state: RandomState = None,
        secure: bool = False,
        max_iter: int = 10_000,
        tol: float = 1e-6,
        verbose: int = 0,
        dtype: type | str = np.float64,
    ) -> None:
        self.n_clusters = n_clusters
        self.alpha = alpha
        self.ridge = ridge
        self.task_weight = task_weight
        self.epsilon = epsilon
        self.delta = delta
        self.adjacency = adjacency
        self.curator = curator
        self.fit_intercept = fit_intercept
        self.task_feature = task_feature
        self.tasks = tasks
        self.unseen_task = unseen_task
        self.random_state = random_state
        self.secure = secure
        self.max_iter = max_iter
        self.tol = tol
        self.verbose = verbose
        self.dtype = dtype

    def _check_parameters(self):
        super()._check_parameters()
        K = self.n_clusters
        if not self._is_exact:
            if K != "auto" and K > MOST_GROUPS:
                raise ValueError(
                    f'n_clusters={K} with alpha="auto" must be at most {MOST_GROUPS}, or "auto".'
                )
            return
        if K == "auto":
            raise ValueError(
                'n_clusters="auto" needs alpha="auto", with which tasks vote on it: pass that, or '
                "the number of groups."
            )
        if self.loss == "huber":
            raise ValueError(
                f'alpha={self.alpha!r} with loss="huber" and no budget: the objective is of '
                'squared loss, counts or classes. Leave alpha at "auto".'
            )

    @property
    def _is_exact(self):
        """Whether groups are those of the objective, and not released ones."""
        return not self._is_private() and not isinstance(self.alpha, str)

    def _fit_exact(self, table):
        if not self._is_exact:
            return self._fit_table(table)
        loss = make_loss(table, task_weight=self.task_weight, fit_intercept=self.fit_intercept)
        penalty = ClusterPenalty(self.alpha, self.ridge, self.n_clusters)
        solution = minimize(
            loss,
            penalty,
            1.0,
            tol=self.tol,
            max_iter=self.max_iter,
            log=self._progress("iteration %d: objective %.8g, duality gap %.3g"),
        )
        W, b = solution.W, loss.intercepts(solution.W)
        _, s, T = np.linalg.svd(W, full_matrices=False)
        billboard = ClusterBillboard(
            False,
            (T.T * penalty.weights(s)) @ T,
            float(self.alpha),
            float(self.ridge),
            self.task_weight,
            table.n_tasks,
            report=exact_report(),
            loss=self.loss,
            n_clusters=self.n_clusters,
        )
        return {
            "coef_": W,
            "intercept_": b,
            "mean_coef_": W.mean(axis=0),
            "mean_intercept_": float(b.mean()),
            "n_iter_": max(solution.n_iter, 1),
            "objective_": solution.objective,
            "dual_gap_": solution.gap,
            "billboard_": billboard,
            "privacy_": billboard.report,
        }

    def _structures(self):
        return STRUCTURES

    def _n_groups(self):
        return self.n_clusters

    def _personalize_table(self, table):
        if isinstance(self.billboard_, HierarchicalBillboard):
            return super()._personalize_table(table)
        return self.billboard_.personalize(table, fit_intercept=self.fit_intercept)

    @property
    def cluster_matrix_(self):
        """M of the objective of an exact fit, (n_tasks, n_tasks), at the models in `tasks_`."""
        check_is_fitted(self)
        billboard = self.billboard_
        if not isinstance(billboard, ClusterBillboard):
            raise AttributeError(
                'A fit with alpha="auto" has no cluster_matrix_: membership_ has the groups of '
                "tasks."
            )
        U, s, _ = np.linalg.svd(self.coef_, full_matrices=False)
        u = ClusterPenalty(billboard.alpha, billboard.ridge, billboard.n_clusters).weights(s)
        return (U * u) @ U.T


_DOC = """{summary}

    Tasks lie in a few unknown groups of similar {model}. With a finite `epsilon` only noisy sums
    leave the tasks, from which the curator publishes centres of groups; each task finds its own
    membership. Such a fit is that of ``{engine}(structure="groups")`` with a number
    of groups, and so is the default without a budget. With a number as `alpha`, this is the convex
    relaxation of k-means over the tasks' models, solved to a certified gap: where a task belongs
    follows from the models of all others. Groups that are public go to
    ``PrivateMeanRegMTL(clusters=...)``.

    Parameters
    ----------
    n_clusters : int or "auto", default=2
        Number k of groups. With ``alpha="auto"`` at most 12, or "auto": up to 8. Otherwise, from
        the number of features or of tasks on, `alpha` has no effect.
    alpha : "auto" or float, default="auto"
        "auto": each task weighs released groups by the evidence of its rows. A number, without a
        budget: the exact minimum of the objective in the Notes, with this strength of the penalty
        towards the group of a task; only then may `ridge` and `task_weight` be other than their
        defaults.
    ridge : float, default=0.1
        Of the objective: weight of ``ridge / 2 * ||W||_F^2``, positive.
    task_weight : {{"equal", "samples"}}, default="equal"
        Of the objective. "equal": mean loss per task. "samples": sum of losses.{of_rows}
    epsilon : float or None, default=1.0
        Privacy budget of the whole fit. None or infinity: no noise. With a budget `alpha` has to be
        "auto".
    delta : float or None, default=None
        Delta of the (epsilon, delta) guarantee, in (0, 1). None: ``min(1e-5, 1 / n_tasks**2)``.
    {adjacency}
    {curator}
    fit_intercept : bool, default=True
        Whether every task has an intercept, which is local and not penalised.
    {task_feature}
    {tasks}{class_list}
    unseen_task : {{"error", "mean"}}, default="error"
        What `predict` does with a task that was not fitted: raise an error, or use the mean
        model.{target_range}
    {random_state}
    {secure}
    max_iter : int, default=10000
        Bound on the iterations of the exact solver.
    tol : float, default=1e-6
        The exact solver stops when the duality gap is below `tol` times the objective.
    {verbose}
    {dtype}

    Attributes
    ----------
    coef_ : ndarray of shape (n_tasks, n_features)
        Models of the tasks, W transposed.
    intercept_ : ndarray of shape (n_tasks,)
    cluster_matrix_ : ndarray of shape (n_tasks, n_tasks)
        M of the objective, with a number as `alpha`: large entries for tasks of one group, by which
        ``SpectralClustering(affinity="precomputed")`` names groups.
    tasks_ : ndarray of shape (n_tasks,)
        Task ids in the order of `coef_`.{classes}
    billboard_ : HierarchicalBillboard or ClusterBillboard
        The billboard that new tasks use.
    {privacy_}
    n_iter_ : int
    objective_, dual_gap_ : float
        Value of the objective and its duality gap, with a number as `alpha`.
    mean_coef_, mean_intercept_ : ndarray of shape (n_features,), float
        Mean model.
    groups_ : dict of str to ndarray
        With ``alpha="auto"``, where groups were found: released "counts" of tasks,
        (n_groups,), noise and all, "centres" of their coefficients, (n_groups, n_features), and
        "intercepts".
    membership_ : ndarray of shape (n_tasks, n_groups + 1)
        As `groups_`: posterior probabilities of each task's membership, the last one of no
        group. For the task alone, and no part of `billboard_`.
    level_, level_spread_
        As of `{engine}`.
    {features_in_}

    See Also
    --------
    {engine} : ``structure="groups"`` is the same with more options.
    PrivateMeanRegMTL : With known groups, ``clusters=``.

    Notes
    -----
    The objective is, with n_k rows in task k, the minimum over W, b and M of ::

        {loss}
        + ridge (alpha + ridge) / 2 tr(W (ridge I + alpha M)^-1 W')
        subject to 0 <= M <= I, tr M = n_clusters,

    jointly convex [1]_ [2]_; the gap is that of the Fenchel dual, as the penalty is a function of
    the singular values of W with a conjugate in closed form. ``task_weight="samples"`` drops the
    1 / n_k. At a projection M = F F' on groups it is
    ``alpha / 2 sum_k ||w_k - mean of its group||^2 + ridge / 2 ||W||_F^2``.

    References
    ----------
    .. [1] L. Jacob, F. Bach, J.-P. Vert, "Clustered multi-task learning: a convex formulation",
       NIPS 2008.
    .. [2] J. Zhou, J. Chen, J. Ye, "Clustered multi-task learning via alternating structure
       optimization", NIPS 2011.

    Examples
    --------
    >>> from skpmtl import {name}
    >>> from skpmtl.datasets import make_low_rank_tasks
    >>> X, y, task = make_low_rank_tasks(n_tasks=20, n_samples=15, n_features=5, random_state=0)
    >>> model = {name}(4, alpha=1.0, ridge=0.01, epsilon=None).fit(X, {target}, task=task)
    >>> model.coef_.shape, model.cluster_matrix_.shape
    ((20, 5), (20, 20))
    """


class ClusteredMTL(MTLRegressorMixin, _Clustered):
    __doc__ = fill_docstring(
        _DOC,
        summary="Clustered multi-task regression, exact or private.",
        model="linear regressions",
        engine="PrivateMTL",
        target_range=TARGET_RANGE,
        of_rows=LOSS,
        loss="sum_k 1 / (2 n_k) ||y_k - X_k w_k - b_k||^2",
        name="ClusteredMTL",
    )
    loss: str
    target_range: ArrayLike | None

    def __init__(
        self,
        n_clusters: int | Literal["auto"] = 2,
        *,
        alpha: float | Literal["auto"] = "auto",
        ridge: float = 0.1,
        task_weight: Literal["equal", "samples"] = "equal",
        loss: Literal["huber", "poisson", "squared"] = "squared",
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Adjacency = "replace-one",
        curator: Curator = "trusted",
        fit_intercept: bool = True,
        task_feature: str | int | list | None = None,
        tasks: ArrayLike = "auto",
        unseen_task: Literal["error", "mean"] = "error",
        target_range: ArrayLike | None = None,
        random_state: RandomState = None,
        secure: bool = False,
        max_iter: int = 10_000,
        tol: float = 1e-6,
        verbose: int = 0,
        dtype: type | str = np.float64,
    ) -> None:
        take(self, locals())


class ClusteredMTLClassifier(MTLClassifierMixin, _Clustered):
    __doc__ = fill_docstring(
        _DOC,
        summary="Clustered multi-task logistic regression for two classes, exact or private.",
        model="logistic regressions",
        engine="PrivateMTLClassifier",
        classes="two",
        target_range="",
        of_rows="",
        loss="sum_k 1 / n_k sum_i log(1 + exp(-y_i (x_i' w_k + b_k))), y in {-1, 1}",
        name="ClusteredMTLClassifier",
    )

    def __init__(
        self,
        n_clusters: int | Literal["auto"] = 2,
        *,
        alpha: float | Literal["auto"] = "auto",
        ridge: float = 0.1,
        task_weight: Literal["equal", "samples"] = "equal",
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Adjacency = "replace-one",
        curator: Curator = "trusted",
        fit_intercept: bool = True,
        task_feature: str | int | list | None = None,
        tasks: ArrayLike = "auto",
        classes: ArrayLike = "auto",
        class_weight: ClassWeight = None,
        unseen_task: Literal["error", "mean"] = "error",
        random_state: RandomState = None,
        secure: bool = False,
        max_iter: int = 10_000,
        tol: float = 1e-6,
        verbose: int = 0,
        dtype: type | str = np.float64,
    ) -> None:
        take(self, locals())
