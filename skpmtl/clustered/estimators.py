"""Clustered multi-task learning by its convex relaxation; exact, without a budget."""

from numbers import Integral, Real

import numpy as np
from sklearn.utils.validation import check_is_fitted

from .._docstrings import fill_docstring
from .._runtime.compat import Interval, StrOptions
from ..base import BaseMTL, MTLClassifierMixin, MTLRegressorMixin
from ..privacy.report import exact_report
from ..solvers.clusters import ClusterPenalty
from ..solvers.losses import make_loss
from ..solvers.minimize import minimize
from .billboard import ClusterBillboard

__all__ = ["ClusteredMTL", "ClusteredMTLClassifier"]


class _Clustered(BaseMTL):
    """Exact fit, and what new tasks do with it."""

    _parameter_constraints = {
        name: BaseMTL._parameter_constraints[name]
        for name in ("fit_intercept", "task_feature", "tasks", "classes", "unseen_task", "verbose")
    } | {
        "n_clusters": [Interval(Integral, 1, None, closed="left")],
        "alpha": [Interval(Real, 0, None, closed="neither")],
        "ridge": [Interval(Real, 0, None, closed="neither")],
        "task_weight": [StrOptions({"equal", "samples"})],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="neither")],
    }
    _billboards = (ClusterBillboard,)

    def __init__(
        self,
        n_clusters=2,
        *,
        alpha=1.0,
        ridge=0.1,
        task_weight="equal",
        fit_intercept=True,
        task_feature=None,
        tasks="auto",
        unseen_task="error",
        max_iter=10_000,
        tol=1e-6,
        verbose=0,
        dtype=np.float64,
    ):
        self.n_clusters = n_clusters
        self.alpha = alpha
        self.ridge = ridge
        self.task_weight = task_weight
        self.fit_intercept = fit_intercept
        self.task_feature = task_feature
        self.tasks = tasks
        self.unseen_task = unseen_task
        self.max_iter = max_iter
        self.tol = tol
        self.verbose = verbose
        self.dtype = dtype

    def _fit_exact(self, table):
        loss = make_loss(table, task_weight=self.task_weight, **self._local_settings())
        penalty = ClusterPenalty(self.alpha, self.ridge, self.n_clusters)
        solution = minimize(
            loss, penalty, 1.0, tol=self.tol, max_iter=self.max_iter,
            log=self._progress("iteration %d: objective %.8g, duality gap %.3g"),
        )  # fmt: skip
        W, b = solution.W, loss.intercepts(solution.W)
        _, s, T = np.linalg.svd(W, full_matrices=False)
        billboard = ClusterBillboard(
            False, (T.T * penalty.weights(s)) @ T, float(self.alpha), float(self.ridge),
            self.task_weight, table.n_tasks, report=exact_report(), n_clusters=self.n_clusters,
        )  # fmt: skip
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

    @property
    def cluster_matrix_(self):
        """M of the objective, (n_tasks, n_tasks), at the models of all tasks in `tasks_`."""
        check_is_fitted(self)
        U, s, _ = np.linalg.svd(self.coef_, full_matrices=False)
        billboard = self.billboard_
        u = ClusterPenalty(billboard.alpha, billboard.ridge, billboard.n_clusters).weights(s)
        return (U * u) @ U.T

    def _local_settings(self):
        return {"classification": self._classification, "fit_intercept": self.fit_intercept}

    def _personalize_table(self, table):
        return self.billboard_.personalize(table, **self._local_settings())

    def _planned_report(self, population):
        return exact_report()


_DOC = """{summary}

    Tasks lie in a few unknown groups of similar {model}. This is the convex
    relaxation of k-means over the tasks' models, solved to a certified gap. There is no budget:
    where a task belongs follows from the models of all others, and a noisy version of that matrix
    of tasks has a sensitivity that does not fall with their number. With a budget, groups that are
    public go to ``PrivateMeanRegMTL(clusters=...)``.

    Parameters
    ----------
    n_clusters : int, default=2
        Number k of groups. From the number of features or of tasks on, `alpha` has no effect.
    alpha : float, default=1.0
        Pull of a task towards its group.
    ridge : float, default=0.1
        Weight of ``ridge / 2 * ||W||_F^2``, positive.
    {task_weight}
    fit_intercept : bool, default=True
        Whether every task has an intercept, which is local and not penalised.
    {task_feature}
    {tasks}{class_list}
    unseen_task : {{"error", "mean"}}, default="error"
        What `predict` does with a task that was not fitted: an error, or the mean model.
    max_iter : int, default=10000
        Bound on the iterations of the solver.
    tol : float, default=1e-6
        The solver stops when the duality gap is below `tol` times the objective.
    {verbose}
    {dtype}

    Attributes
    ----------
    coef_ : ndarray of shape (n_tasks, n_features)
        Models of the tasks, W transposed.
    intercept_ : ndarray of shape (n_tasks,)
    cluster_matrix_ : ndarray of shape (n_tasks, n_tasks)
        M of the objective: large entries for tasks of one group, by which
        ``SpectralClustering(affinity="precomputed")`` names groups.
    tasks_ : ndarray of shape (n_tasks,)
        Task ids in the order of `coef_`.{classes}
    billboard_ : ClusterBillboard
        What new tasks go on with.
    {privacy_}
    n_iter_ : int
    objective_, dual_gap_ : float
        Value of the objective and its duality gap.
    mean_coef_, mean_intercept_ : ndarray of shape (n_features,), float
        Mean model.
    {features_in_}

    See Also
    --------
    {also}
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
    >>> model = {name}(4, ridge=0.01).fit(X, {target}, task=task)
    >>> model.coef_.shape, model.cluster_matrix_.shape
    ((20, 5), (20, 20))
    """


class ClusteredMTL(MTLRegressorMixin, _Clustered):
    __doc__ = fill_docstring(
        _DOC,
        summary="Clustered multi-task regression.",
        model="linear regressions",
        also="ClusteredMTLClassifier : The same for two classes.",
        loss="sum_k 1 / (2 n_k) ||y_k - X_k w_k - b_k||^2",
        name="ClusteredMTL",
        target="y",
    )


class ClusteredMTLClassifier(MTLClassifierMixin, _Clustered):
    __doc__ = fill_docstring(
        _DOC,
        summary="Clustered multi-task logistic regression for two classes.",
        model="logistic regressions",
        classes="two",
        also="ClusteredMTL : The same for regression.",
        loss="sum_k 1 / n_k sum_i log(1 + exp(-y_i (x_i' w_k + b_k))), y in {-1, 1}",
        name="ClusteredMTLClassifier",
        target="y > 0",
    )

    def __init__(
        self,
        n_clusters=2,
        *,
        alpha=1.0,
        ridge=0.1,
        task_weight="equal",
        fit_intercept=True,
        task_feature=None,
        tasks="auto",
        classes="auto",
        class_weight=None,
        unseen_task="error",
        max_iter=10_000,
        tol=1e-6,
        verbose=0,
        dtype=np.float64,
    ):
        super().__init__(
            n_clusters, alpha=alpha, ridge=ridge, task_weight=task_weight,
            fit_intercept=fit_intercept, task_feature=task_feature, tasks=tasks,
            unseen_task=unseen_task, max_iter=max_iter, tol=tol, verbose=verbose, dtype=dtype,
        )  # fmt: skip
        self.classes = classes
        self.class_weight = class_weight
