"""Personal models around a private mean (Hu, Wu and Smith, "Private multi-task learning")."""

from collections.abc import Mapping
from numbers import Integral, Real
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from .._docstrings import TARGET_RANGE, UNCERTAINTY, fill_docstring
from .._runtime.constraints import Interval, StrOptions
from .._runtime.hints import Adjacency, ClassWeight, Curator, RandomState
from ..base import MTLClassifierMixin, MTLRegressorMixin
from ..course.billboard import HierarchicalBillboard
from ..course.estimators import Hierarchical
from ..tables.ids import listed
from ..tables.relation import read_relation
from . import exact
from .billboard import MeanBillboard

__all__ = ["PrivateMeanRegMTL", "PrivateMeanRegMTLClassifier"]


class MeanRegularized(Hierarchical):
    """The loop about a mean, or the minimum of an objective around one."""

    _parameter_constraints: ClassVar[dict] = {
        **Hierarchical._parameter_constraints,
        "lam": [StrOptions({"auto"}), Interval(Real, 0, None, closed="neither")],
        "ridge": [Interval(Real, 0, None, closed="left")],
        "l1": [Interval(Real, 0, None, closed="left")],
        "task_weight": [StrOptions({"equal", "samples"})],
        "clusters": [Mapping, None],
        "relation": "no_validation",  # by `read_relation`
        "relation_rank": [Interval(Integral, 1, None, closed="left"), StrOptions({"all"}), None],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="neither")],
    }
    _billboards = (HierarchicalBillboard, MeanBillboard)
    _of_objective = "lam", "ridge", "l1", "task_weight"
    _stays = ("clusters",)  # billboards have their relation

    def _structures(self):
        return ("mean",)

    @property
    def _is_exact(self):
        """Whether the fit is the minimum of the objective."""
        return not self._is_private() and not isinstance(self.lam, str)

    def _check_parameters(self):
        super()._check_parameters()
        if self._is_exact:
            self._check_exact()
        if self.relation_rank == "all" and not self._is_exact:
            raise ValueError(
                'relation_rank="all" is the whole penalty of a graph or of Omega: pass a number as '
                "lam and epsilon=None, or a number of columns."
            )
        if self.relation_rank is not None and self.relation is None:
            raise ValueError(
                f"relation_rank={self.relation_rank!r} has no effect without relation=."
            )
        if self.clusters is not None and self.relation is not None:
            raise ValueError(
                "clusters= is a relation of its own: give one of clusters= and relation=, or the "
                "clusters as a column of the latter."
            )

    def _check_exact(self):
        if self.loss == "huber":
            raise ValueError(
                f'lam={self.lam!r} with loss="huber": the objective is of squared loss, counts or '
                'classes. Take lam="auto".'
            )
        if self.l1 and self.relation_rank != "all":
            raise ValueError(
                f"l1={self.l1!r} goes with the whole penalty of a graph or Omega: pass relation=, "
                'relation_rank="all", or l1=0.'
            )
        if self.standard_errors:
            raise ValueError(
                f"standard_errors=True with lam={self.lam!r}: the minimum of an objective has "
                'none. Take lam="auto", or skpmtl.mixed.'
            )

    def _no_posterior(self):
        if self._is_exact:
            return (
                f"models with lam={self.lam!r} are minima of one objective, and have no posterior: "
                'take lam="auto".'
            )
        return None

    def _relation(self, population, quiet=False):
        """The `Relation` of the parameters, over all tasks; None without one."""
        given = self.relation
        if self.clusters is not None:
            tasks = population.tasks.tolist()
            missing = [task for task in tasks if task not in self.clusters]
            if missing:
                raise ValueError(
                    f"Tasks without a cluster: {listed(missing)}. Add them to "
                    "clusters={task: cluster} before the fit, with ids of the same type."
                )
            given, quiet = {k: {"cluster": str(c)} for k, c in self.clusters.items()}, True
        if given is None:
            return None
        order = None if isinstance(self.tasks, str) else self.tasks
        rank = None if self.relation_rank == "all" else self.relation_rank
        return read_relation(given, population.tasks, order=order, rank=rank, quiet=quiet)

    def _fit_exact(self, table):
        return exact.fit(self, table) if self._is_exact else self._fit_table(table)

    def _personalize_table(self, table):
        if isinstance(self.billboard_, MeanBillboard):
            return self.billboard_.personalize(table)
        return super()._personalize_table(table)

    def _models_without_rows(self, fitted, tasks, positions):
        coef, intercept = super()._models_without_rows(fitted, tasks, positions)
        if "dual_gap_" in fitted:
            coef = exact.vertices_without_rows(self, fitted, tasks, positions)
        return coef, intercept


_DOC = """{summary}

    Every task has its own {model}, held near a shared model that is learned in steps: tasks work
    on their own rows, and send clipped deviations, whose noisy sum alone is published (joint, or
    billboard, differential privacy at task level). Afterwards every task turns the last shared
    model into its own, at no further cost. With ``lam="auto"`` that is `PrivateMTL{twin}` with
    ``structure="mean"``, whose docstring has the model and the loop; with a number as `lam`, and no
    budget, it is the minimum of the objective below.

    Parameters
    ----------
    lam : float or "auto", default="auto"
        "auto": how far a task trusts the shared model is its own choice, by the evidence of its
        rows. A number, without a budget: strength of the penalty towards the shared model in the
        objective below.{of_rows}
    levels : {{"auto", "free"}}, default="auto"
        With ``lam="auto"``. The level of a task is its score at its mean row. "auto": normal about
        a released one, where it can be found. "free": every task has its own, whatever the other
        tasks' are.
    epsilon : float or None, default=1.0
        Privacy budget of the whole fit. None or infinity: no privacy.
    delta : float or None, default=None
        Delta of the (epsilon, delta) guarantee, in (0, 1). None: ``min(1e-5, 1 / n_tasks**2)``.
    {adjacency}
    {curator}
    {init} Models of tasks, the shared model and `ridge` are of differences from it.
    ridge : float, default=0.0
        Weight of ``ridge / 2 * ||W||_F^2`` in the objective; ``lam="auto"`` refuses it, and `l1`
        and `task_weight`.
    l1 : float, default=0.0
        Weight of the sum of the absolute values of all coefficients, where
        ``relation_rank="all"``; `tol` then bounds the duality gap relative to the objective, and
        `max_iter` hundreds of first-order steps.
    task_weight : {{"equal", "samples"}}, default="equal"
        Of the objective. "equal": mean loss per task. "samples": sum of losses.
    clusters : mapping of task to cluster or None, default=None
        Public. Shared models differ between clusters; as a category in `relation`, and in the same
        fits. It may name tasks that are added later.
    relation : DataFrame, mapping, array, sparse matrix, graph or None, default=None
        Public covariates of the tasks, on which the shared model depends: task k lies around
        z_k' B, with z_k its covariates and a constant, and B (`relation_coef_`) learned. Of classes
        and counts, in exact fits only. One of

        - a DataFrame with the tasks as its index, or a mapping of task to covariates: numbers are
          columns; other values are categories, of which the first has no column;
        - an array of numbers with a row for every task in the order of `tasks`;
        - a sparse matrix of weights between tasks or a graph of networkx, of which the smoothest
          vectors are taken;
        - a dense penalty Omega (n_tasks, n_tasks).

        Covariates may include those of tasks that are added later; see also `relate`.
    relation_rank : int, "all" or None, default=None
        Columns of the basis of a graph or Omega. None: 10, or one for five tasks. "all", with a
        number as `lam`: the whole of Omega is the penalty, see Notes.
    fit_intercept : bool, default=True
        Whether every task has an intercept, which the objective does not penalise.
    {task_feature}
    {tasks}{class_list}
    unseen_task : {{"error", "mean"}}, default="error"
        What `predict` does with a task that was not fitted: raise an error, or use the shared model
        (with `clusters` or `relation`, that of its cluster or covariates).{target_range}
    max_iter : int, default=100
        Bound on the iterations of the exact solver.
    tol : float, default=1e-10
        The exact solver stops when no coefficient moves by more than this fraction of the largest.
    {secure}
    {random_state}
    {verbose}
    {dtype}

    Attributes
    ----------
    coef_ : ndarray of shape (n_tasks, n_features){shapes}
        Personal models. All together they are not a private object: hand each task its own
        with `export_task`.
    intercept_ : ndarray of shape (n_tasks,){intercepts}
    mean_coef_, mean_intercept_
        Shared model, without `clusters` and `relation`.
    relation_coef_ : ndarray of shape (n_covariates, n_features){shapes_of_covariates}
        With ``relation``: what one more of every covariate adds to the coefficients, the constant
        first; names are ``billboard_.relation.names``.
    relation_intercept_ : ndarray of shape (n_covariates,)
        The same of the intercept.
    level_, level_spread_ : float
        With ``lam="auto"``, where levels are pooled: intercept of the shared model, and standard
        deviation of the levels of tasks about it.
    tasks_ : ndarray of shape (n_tasks,){classes}{posterior}{effects}
    billboard_ : HierarchicalBillboard or MeanBillboard
        The releases and what follows from them; of an exact fit the shared model.
    {privacy_}
    n_iter_ : int
        Releases, or iterations of the exact solver.
    objective_, lam_ : float
        Value of the objective at its minimum, and the `lam` in it; exact fits only.
    dual_gap_ : float
        With ``relation_rank="all"``: bound on how far `objective_` is from the optimum.
    {features_in_}

    See Also
    --------
    {also}
    skpmtl.reproduction.{published} : The rounds of the paper, as printed.

    Notes
    -----
    The objective of a number as `lam` is, with n_k rows in task k and v free (hence the mean),

        {loss}
        + lam / 2 sum_k ||w_k - v||^2 + ridge / 2 ||W||_F^2.

    With `relation` B' z_k takes the place of v, and B is free: the penalty acts on the residuals
    of W after its least-squares fit by the covariates. With ``relation_rank="all"`` the second term
    is

        lam / 2 sum_jk Omega_jk w_j' w_k

    for the given Omega, or the Laplacian of a graph of neighbours, for which that is
    lam / 4 sum_jk weight_jk ||w_j - w_k||^2. Omega = I - 11' / n_tasks gives the mean again. `l1`
    adds ``l1 * sum_jk |W_jk|``.
    A listed task without rows then gets the best model given those of its neighbours; tasks that
    join later are not in the graph, and lie around the mean.

    References
    ----------
    .. [1] S. Hu, Z. S. Wu, V. Smith, "Private multi-task learning: formulation and
       applications to federated learning", TMLR, 2023.

    Examples
    --------
    >>> from skpmtl import {name}
    >>> from skpmtl.datasets import make_low_rank_tasks
    >>> X, y, task = make_low_rank_tasks(n_tasks=20, n_samples=15, n_features=5, random_state=0)
    >>> model = {name}(lam=0.1, epsilon=None).fit(X, {target}, task=task)
    >>> model.coef_.shape
    (20, 5)
    """
# Of regressors only: a parameter, which follows `uncertainty`, and attributes.
_STANDARD_ERRORS = """
    standard_errors : bool, default=False
        Whether to release standard errors of the shared slopes, with ``lam="auto"``; see
        `summary`. They take 20 % of the squared budget (mu^2)."""
_EFFECTS = """
    effect_coef_, effect_std_ : ndarray of shape (n_features,)
        With `standard_errors`: shared slopes before they are shrunk, and their standard errors.
    effect_intercept_, effect_covariance_, effect_dof_
        Of the same: as of `PrivateMTL`."""


class PrivateMeanRegMTL(MTLRegressorMixin, MeanRegularized):
    __doc__ = fill_docstring(
        _DOC,
        summary="Private mean-regularised multi-task regression.",
        model="linear regression",
        twin="",
        target_range=TARGET_RANGE + UNCERTAINTY + _STANDARD_ERRORS,
        effects=_EFFECTS,
        also="PrivateMeanRegMTLClassifier : The same for classes.",
        loss="sum_k 1 / (2 n_k) ||y_k - X_k w_k - b_k||^2",
        name="PrivateMeanRegMTL",
        published="PublishedPMTL",
    )

    def __init__(
        self,
        lam: float | Literal["auto"] = "auto",
        *,
        loss: Literal["huber", "poisson", "squared"] = "squared",
        levels: Literal["auto", "free"] = "auto",
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Adjacency = "replace-one",
        curator: Curator = "trusted",
        init=None,
        ridge: float = 0.0,
        l1: float = 0.0,
        task_weight: Literal["equal", "samples"] = "equal",
        clusters: Mapping | None = None,
        relation=None,
        relation_rank: int | Literal["all"] | None = None,
        fit_intercept: bool = True,
        task_feature: str | int | list | None = None,
        tasks: ArrayLike = "auto",
        unseen_task: Literal["error", "mean"] = "error",
        target_range: ArrayLike | None = None,
        uncertainty: bool = False,
        standard_errors: bool = False,
        max_iter: int = 100,
        tol: float = 1e-10,
        secure: bool = False,
        random_state: RandomState = None,
        verbose: int = 0,
        dtype: type | str = np.float64,
    ) -> None:
        self.lam = lam
        self.loss = loss
        self.levels = levels
        self.epsilon = epsilon
        self.delta = delta
        self.adjacency = adjacency
        self.curator = curator
        self.init = init
        self.ridge = ridge
        self.l1 = l1
        self.task_weight = task_weight
        self.clusters = clusters
        self.relation = relation
        self.relation_rank = relation_rank
        self.fit_intercept = fit_intercept
        self.task_feature = task_feature
        self.tasks = tasks
        self.unseen_task = unseen_task
        self.target_range = target_range
        self.uncertainty = uncertainty
        self.standard_errors = standard_errors
        self.max_iter = max_iter
        self.tol = tol
        self.secure = secure
        self.random_state = random_state
        self.verbose = verbose
        self.dtype = dtype


class PrivateMeanRegMTLClassifier(MTLClassifierMixin, MeanRegularized):
    __doc__ = fill_docstring(
        _DOC,
        summary="Private mean-regularised multi-task logistic regression, binary or multinomial.",
        model="logistic regression",
        twin="Classifier",
        classes="several",
        effects="",
        also="PrivateMeanRegMTL : The same for regression.",
        loss="sum_k 1 / n_k sum_i loss_i, the logistic or multinomial log-loss,",
        name="PrivateMeanRegMTLClassifier",
        published="PublishedPMTLClassifier",
    )
    _multiclass = True

    def __init__(
        self,
        lam: float | Literal["auto"] = "auto",
        *,
        levels: Literal["auto", "free"] = "auto",
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Adjacency = "replace-one",
        curator: Curator = "trusted",
        init=None,
        ridge: float = 0.0,
        l1: float = 0.0,
        task_weight: Literal["equal", "samples"] = "equal",
        clusters: Mapping | None = None,
        relation=None,
        relation_rank: int | Literal["all"] | None = None,
        fit_intercept: bool = True,
        task_feature: str | int | list | None = None,
        tasks: ArrayLike = "auto",
        classes: ArrayLike = "auto",
        class_weight: ClassWeight = None,
        unseen_task: Literal["error", "mean"] = "error",
        uncertainty: bool | Literal["auto"] = "auto",
        max_iter: int = 100,
        tol: float = 1e-10,
        secure: bool = False,
        random_state: RandomState = None,
        verbose: int = 0,
        dtype: type | str = np.float64,
    ) -> None:
        self.lam = lam
        self.levels = levels
        self.epsilon = epsilon
        self.delta = delta
        self.adjacency = adjacency
        self.curator = curator
        self.init = init
        self.ridge = ridge
        self.l1 = l1
        self.task_weight = task_weight
        self.clusters = clusters
        self.relation = relation
        self.relation_rank = relation_rank
        self.fit_intercept = fit_intercept
        self.task_feature = task_feature
        self.tasks = tasks
        self.classes = classes
        self.class_weight = class_weight
        self.unseen_task = unseen_task
        self.uncertainty = uncertainty
        self.max_iter = max_iter
        self.tol = tol
        self.secure = secure
        self.random_state = random_state
        self.verbose = verbose
        self.dtype = dtype

    @property
    def _spreads_labels(self):
        return self.l1 > 0  # else intercepts of tasks that miss a class are held
