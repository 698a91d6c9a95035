"""Model-protected multi-task learning (Liang et al., TPAMI 2022) with a sound guarantee."""

from numbers import Integral, Real
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from .._docstrings import TARGET_RANGE, UNCERTAINTY, fill_docstring
from .._runtime.constraints import Interval, StrOptions, take
from .._runtime.hints import Adjacency, ClassWeight, Curator, RandomState
from ..base import MTLClassifierMixin, MTLRegressorMixin
from ..course.billboard import HierarchicalBillboard
from ..course.estimators import Hierarchical
from ..exchange.billboard import Personal
from ..solvers.decomposed import OUTLIERS
from ..solvers.fitted import PenaltyBillboard
from ..solvers.losses import make_loss
from ..solvers.penalties import GroupNorm, TraceNorm
from . import exact
from .billboard import RelatedPenaltyBillboard


class _ModelProtected(Hierarchical):
    """The loop about a subspace or a few columns, or the minimum of an objective."""

    _parameter_constraints: ClassVar[dict] = {
        **Hierarchical._parameter_constraints,
        "alpha": [StrOptions({"auto"}), Interval(Real, 0, None, closed="left")],
        "algorithm": [StrOptions({"auto", "proximal"})],
        "ridge": [Interval(Real, 0, None, closed="left")],
        "task_weight": [StrOptions({"equal", "samples"})],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="neither")],
        "warm_start": ["boolean"],
        "relation": "no_validation",  # by `read_relation`
        "relation_rank": [Interval(Integral, 1, None, closed="left"), None],
        "outliers": [StrOptions(set(OUTLIERS)), None],
        "outlier_alpha": [StrOptions({"auto"}), Interval(Real, 0, None, closed="neither")],
    }
    _billboards = (HierarchicalBillboard, PenaltyBillboard, RelatedPenaltyBillboard)
    _extras = (*Hierarchical._extras, "outlier_coef_", "outlier_")
    _of_objective = "alpha", "ridge", "task_weight", "outliers", "outlier_alpha"

    def __init__(
        self,
        alpha: float | Literal["auto"] = "auto",
        *,
        loss: Literal["huber", "poisson", "squared"] = "squared",
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Adjacency = "replace-one",
        curator: Curator = "trusted",
        algorithm: Literal["auto", "proximal"] = "auto",
        levels: Literal["auto", "free"] = "auto",
        init=None,
        ridge: float = 0.0,
        task_weight: Literal["equal", "samples"] = "equal",
        relation=None,
        relation_rank: int | None = None,
        outliers: Literal["entries", "tasks"] | None = None,
        outlier_alpha: float | Literal["auto"] = "auto",
        fit_intercept: bool = True,
        task_feature: str | int | list | None = None,
        tasks: ArrayLike = "auto",
        unseen_task: Literal["error", "mean"] = "error",
        target_range: ArrayLike | None = None,
        uncertainty: bool = False,
        max_iter: int = 10_000,
        tol: float = 1e-6,
        warm_start: bool = False,
        random_state: RandomState = None,
        secure: bool = False,
        verbose: int = 0,
        dtype: type | str = np.float64,
    ) -> None:
        self.alpha = alpha
        self.loss = loss
        self.epsilon = epsilon
        self.delta = delta
        self.adjacency = adjacency
        self.curator = curator
        self.algorithm = algorithm
        self.levels = levels
        self.init = init
        self.ridge = ridge
        self.task_weight = task_weight
        self.relation = relation
        self.relation_rank = relation_rank
        self.outliers = outliers
        self.outlier_alpha = outlier_alpha
        self.fit_intercept = fit_intercept
        self.task_feature = task_feature
        self.tasks = tasks
        self.unseen_task = unseen_task
        self.target_range = target_range
        self.uncertainty = uncertainty
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.random_state = random_state
        self.secure = secure
        self.verbose = verbose
        self.dtype = dtype

    @property
    def _is_exact(self):
        """Whether the fit is the minimum of the objective."""
        open_ = isinstance(self.alpha, str) and self.outliers is None
        return not self._is_private() and not (open_ and self.algorithm == "auto")

    def _check_parameters(self):
        if getattr(self, "delta", None) == 0:  # paths have no budget
            raise ValueError(
                f"delta={self.delta!r}: the loop has no pure guarantee. Pass a delta above 0, or "
                'take skpmtl.reproduction.PublishedMPMTL with mechanism="wishart" and delta=0.'
            )
        super()._check_parameters()
        if self.relation is None and self.relation_rank is not None:
            raise ValueError(
                f"relation_rank={self.relation_rank!r} has no effect without relation=."
            )
        if self.algorithm == "proximal" and self._is_private():
            raise ValueError(
                'algorithm="proximal" with a budget is the one of the paper: take '
                'skpmtl.reproduction.PublishedMPMTL, or leave it at "auto".'
            )
        if not self._is_exact:
            return
        if self.loss == "huber":
            raise ValueError(
                f'alpha={self.alpha!r} with loss="huber" and no budget: the objective is of '
                'squared loss, counts or classes. Leave alpha at "auto".'
            )
        if self.outliers is None:
            if self.relation is not None and (self.ridge or not self.alpha):
                raise ValueError(
                    f"relation= with ridge={self.ridge!r}, alpha={self.alpha!r}: in an exact fit "
                    "it goes with a positive alpha, and without a ridge."
                )
            return
        if self.loss != "squared":
            raise ValueError(
                f'outliers={self.outliers!r} goes with loss="squared" or classes, and not with '
                f"loss={self.loss!r}: leave it at None."
            )
        if self.relation is not None:
            raise ValueError(
                f"relation= with outliers={self.outliers!r}: pass one of them, they have no exact "
                "fit together."
            )
        if self.alpha == 0:
            raise ValueError(
                f"outliers={self.outliers!r} adds a second penalised matrix to the one that alpha "
                "penalises: pass a positive alpha."
            )

    def _fit_exact(self, table):
        if self._is_exact:
            return exact.fit(self, table, self.alpha)
        return self._fit_table(table)

    def _no_posterior(self):
        if self._is_exact:
            return (
                "models of an exact fit with a number as alpha or with outliers have no posterior: "
                'leave alpha at "auto".'
            )
        return None

    def _loss(self, table):
        return make_loss(
            table, task_weight=self.task_weight, ridge=self.ridge, fit_intercept=self.fit_intercept
        )

    @classmethod
    def _goes_on(cls, billboard):
        diagonal = getattr(billboard, "diagonal", cls._diagonal)
        return super()._goes_on(billboard) and diagonal == cls._diagonal

    def _personalize_table(self, table):
        if isinstance(self.billboard_, HierarchicalBillboard):
            return super()._personalize_table(table)
        return Personal(*self.billboard_.personalize(table, fit_intercept=self.fit_intercept))


class _LowRank(_ModelProtected):
    _diagonal = False

    def _structures(self):
        return ("low-rank",)

    def _penalty(self):
        return TraceNorm()


class _GroupSparse(_ModelProtected):
    _diagonal = True

    def _structures(self):
        return ("sparse",)

    def _penalty(self):
        return GroupNorm()


_DOC = """{summary}

    Every task gets its own {model}; the tasks' coefficients W (n_features x n_tasks)
    {structure}. With ``alpha="auto"`` that is a prior, and the fit that of
    `PrivateMTL{twin}` with ``structure={name_of}``, whose docstring has the model and the loop.
    With a finite `epsilon` only bounded contributions to noisy sums leave a task, so that the
    models of all *other* tasks, and everything that is published, are differentially private in a
    task's whole data set (joint, or billboard, differential privacy at task level). With a number
    as `alpha`, and no budget, it is the minimum of a convex objective.

    Parameters
    ----------
    alpha : "auto" or float, default="auto"
        "auto": the loop, with a budget or without noise, in which every task decides from its own
        rows how far to trust what is shared. A number, without a budget: strength of the penalty in
        the objective below; it has the units of y and X.{of_rows}
    epsilon : float or None, default=1.0
        Privacy budget of the whole fit. None or infinity: no privacy.
    delta : float or None, default=None
        Delta of the (epsilon, delta) guarantee, in (0, 1). None: ``min(1e-5, 1 / n_tasks**2)``.
    {adjacency}
    {curator}
    algorithm : {{"auto", "proximal"}}, default="auto"
        "proximal", without a budget: the minimum of the objective below also with ``alpha="auto"``,
        whose strength is then a quarter of the dual norm that noise alone gives to the gradient, in
        closed form (`skpmtl.solvers.strength`), whatever the units.
    levels : {{"auto", "free"}}, default="auto"
        Of the loop. The level of a task is its score at its mean row. "auto": normal about a
        released one, where it can be found. "free": every task has its own.
    {init} Structures and penalties are those of differences from it.
    ridge : float, default=0.0
        Weight of ``ridge / 2 * ||W||_F^2`` in the objective. The loop refuses it, and `task_weight`
        and `outliers`.
    task_weight : {{"equal", "samples"}}, default="equal"
        Of the objective. "equal": mean loss per task. "samples": sum of losses.
    relation : DataFrame, mapping, array, sparse matrix, graph or None, default=None
        Public task covariates, as of `PrivateMeanRegMTL`. What tasks share is that of the
        differences of their models from z_k' B, with z_k the covariates of task k and a constant,
        and B (`relation_coef_`) learned. Of classes and counts, in exact fits only.
    relation_rank : int or None, default=None
        Columns of the basis of a graph or Omega. None: 10, or one for five tasks.
    outliers : {{None, "tasks", "entries"}}, default=None
        Without privacy: whether every task has a part of its own besides the one that `alpha`
        penalises, W = P + Q (robust multi-task learning [2]_ [3]_). "tasks": Q is zero in most
        tasks, and whole models of others are free; "entries": single weights are. See Notes.
    outlier_alpha : "auto" or float, default="auto"
        Strength of the penalty of Q. "auto" is computed from noise, as ``alpha="auto"``.
    fit_intercept : bool, default=True
        Whether every task has an intercept, which is local and not penalised.
    {task_feature}
    {tasks}{class_list}
    unseen_task : {{"error", "mean"}}, default="error"
        What `predict` does with a task that was not fitted: an error, or the mean model (with
        `relation` that of its covariates).{target_range}
    max_iter : int, default=10000
        Bound on the iterations of the exact solver.
    tol : float, default=1e-6
        The exact solver stops when the duality gap is below `tol` times the objective.
    warm_start : bool, default=False
        Start the exact solver at the previous `coef_`; the loop does not use it, nor `max_iter` and
        `tol`.
    {random_state}
    {secure}
    {verbose}
    {dtype}

    Attributes
    ----------
    coef_ : ndarray of shape (n_tasks, n_features){shapes}
        Personal models, W transposed. All rows together are not a private object: hand
        each task its own with `export_task`.
    intercept_ : ndarray of shape (n_tasks,){intercepts}
    tasks_ : ndarray of shape (n_tasks,)
        Task ids in the order of `coef_`.{classes}{posterior}
    billboard_ : object
        The released numbers and what follows from them; the only part that may be published.
    {privacy_}
    relation_coef_ : ndarray of shape (n_covariates, n_features)
        With `relation`: what one more of every covariate adds to the coefficients, the constant
        first, class by class where there are several; names are ``billboard_.relation.names``.
    relation_intercept_ : ndarray of shape (n_covariates,)
        The same of the intercepts.
    n_iter_ : int
        Iterations of the exact solver, or number of releases.
    objective_, dual_gap_, alpha_ : float
        Value of the objective, its duality gap and `alpha`; exact solution only.
    outlier_coef_ : ndarray of shape (n_tasks, n_features){shapes}
        With `outliers`: Q of the objective, the part that a task does not share; nan for tasks
        that `personalize` added.
    outlier_ : ndarray of shape (n_tasks,)
        With `outliers`: length of that part, a measure of how far the task lies from the others;
        `outlier_alpha_` is the strength of its penalty.
    mean_coef_, mean_intercept_ : ndarray of shape (n_features,), float{means}
        Mean model, where one was found.
    {features_in_}

    See Also
    --------
    {also}
    PerTask : Any scikit-learn estimator, one task at a time.

    Notes
    -----
    Without privacy the objective is, with n_k rows in task k::

    {objective}

    minimised to a relative duality gap of `tol`. ``task_weight="samples"`` drops the 1 / n_k.
    With `outliers` W = P + Q, the penalty of `alpha` is on P, and Q has its own::

        "tasks":   outlier_alpha sum_k ||q_k||_2
        "entries": outlier_alpha sum_jk |q_jk|

    `mean_coef_` is then the mean of P. {malsar}
    With `relation` the penalty is on W - B'Z', the least one over B, for the covariates Z with a
    constant; B'Z' itself is held by a ridge of 1e-4 times the mean curvature of the losses over
    tasks and features.

    References
    ----------
    .. [1] {liang}
    .. [2] {robust}
    .. [3] {second_robust}

    Examples
    --------
    {example}
    """
_MATRIX = {
    "name_of": '"low-rank"',
    "structure": "are kept close to low rank by their trace norm",
    "malsar": "These are the problems of `Least_RMTL` [2]_ and `Least_SparseTrace` [3]_ of MALSAR.",
    "robust": 'J. Chen, J. Zhou, J. Ye, "Integrating low-rank and group-sparse structures for\n'
    '       robust multi-task learning", KDD 2011.',
    "second_robust": 'J. Chen, J. Liu, J. Ye, "Learning incoherent sparse and low-rank patterns\n'
    '       from multiple tasks", KDD 2010.',
}
_DIAGONAL = {
    "name_of": '"sparse"',
    "structure": "share their non-zero rows through the L2,1 norm",
    "malsar": "These are the problem of `Least_rMTFL` [2]_ of MALSAR, and that of its\n    "
    "`Least_Dirty` [3]_ with Euclidean norms of features in place of largest entries.",
    "robust": 'P. Gong, J. Ye, C. Zhang, "Robust multi-task feature learning", KDD 2012.',
    "second_robust": 'A. Jalali, P. Ravikumar, S. Sanghavi, C. Ruan, "A dirty model for\n'
    '       multi-task learning", NIPS 2010.',
}
_SQUARED = "sum_k 1 / (2 n_k) ||y_k - X_k w_k - b_k||^2"
_LOGISTIC = "sum_k 1 / n_k sum_i log(1 + exp(-y_i (x_i' w_k + b_k)))"
_SOFTMAX = """

    or, with C > 2 classes, the softmax loss -log p_i(y_i) with p_i(c) proportional to
    exp(x_i' w_kc + b_kc), and W of C columns for every task (n_features x n_tasks C),"""
_RIDGE = " + ridge / 2 ||W||_F^2"
_EXAMPLE = """>>> from skpmtl import {name}
    >>> from skpmtl.datasets import {generator}
    >>> X, y, task = {generator}(n_tasks=20, n_samples=15, n_features=5, random_state=0)
    >>> model = {name}(alpha=0.1, epsilon=None).fit(X, {target}, task=task)
    >>> model.coef_.shape
    (20, 5)"""


class _OfClasses(MTLClassifierMixin):
    def __init__(
        self,
        alpha: float | Literal["auto"] = "auto",
        *,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Adjacency = "replace-one",
        curator: Curator = "trusted",
        algorithm: Literal["auto", "proximal"] = "auto",
        levels: Literal["auto", "free"] = "auto",
        init=None,
        ridge: float = 0.0,
        task_weight: Literal["equal", "samples"] = "equal",
        relation=None,
        relation_rank: int | None = None,
        outliers: Literal["entries", "tasks"] | None = None,
        outlier_alpha: float | Literal["auto"] = "auto",
        fit_intercept: bool = True,
        task_feature: str | int | list | None = None,
        tasks: ArrayLike = "auto",
        classes: ArrayLike = "auto",
        class_weight: ClassWeight = None,
        unseen_task: Literal["error", "mean"] = "error",
        uncertainty: bool | Literal["auto"] = "auto",
        max_iter: int = 10_000,
        tol: float = 1e-6,
        warm_start: bool = False,
        random_state: RandomState = None,
        secure: bool = False,
        verbose: int = 0,
        dtype: type | str = np.float64,
    ) -> None:
        take(self, locals())


class MPMTLLowRank(MTLRegressorMixin, _LowRank):
    __doc__ = fill_docstring(
        _DOC,
        summary="Model-protected low-rank multi-task regression.",
        model="linear regression",
        twin="",
        target_range=TARGET_RANGE + UNCERTAINTY,
        also="MPMTLLowRankClassifier : The same for classes.\n"
        "    MPMTLGroupSparse : A shared selection of features instead of a shared subspace.",
        objective=f"    {_SQUARED} + alpha ||W||_*\n       {_RIDGE},",
        example=_EXAMPLE.format(name="MPMTLLowRank", generator="make_low_rank_tasks", target="y"),
        **_MATRIX,
    )


class MPMTLGroupSparse(MTLRegressorMixin, _GroupSparse):
    __doc__ = fill_docstring(
        _DOC,
        summary="Model-protected group-sparse multi-task regression.",
        model="linear regression",
        twin="",
        target_range=TARGET_RANGE + UNCERTAINTY,
        also="MPMTLGroupSparseClassifier : The same for classes.\n"
        "    MPMTLLowRank : A shared subspace instead of a shared selection of features.",
        objective=f"    {_SQUARED} + alpha sum_j ||W_j.||_2\n       {_RIDGE},",
        example=_EXAMPLE.format(
            name="MPMTLGroupSparse", generator="make_group_sparse_tasks", target="y"
        ),
        **_DIAGONAL,
    )


class MPMTLLowRankClassifier(_OfClasses, _LowRank):
    __doc__ = fill_docstring(
        _DOC,
        summary="Model-protected low-rank multi-task logistic regression, any number of classes.",
        model="logistic regression",
        twin="Classifier",
        classes="several",
        also="MPMTLLowRank : The same for regression.",
        objective=f"    {_LOGISTIC}\n        + alpha ||W||_*{_RIDGE}, y in {{-1, 1}},{_SOFTMAX}",
        example=_EXAMPLE.format(
            name="MPMTLLowRankClassifier", generator="make_low_rank_tasks", target="y > 0"
        ),
        **_MATRIX,
    )
    _multiclass = True


class MPMTLGroupSparseClassifier(_OfClasses, _GroupSparse):
    __doc__ = fill_docstring(
        _DOC,
        summary="Model-protected group-sparse multi-task logistic regression, any number of\n"
        "    classes.",
        model="logistic regression",
        twin="Classifier",
        classes="several",
        also="MPMTLGroupSparse : The same for regression.",
        objective=f"    {_LOGISTIC}\n        + alpha sum_j ||W_j.||_2{_RIDGE}, y in {{-1, 1}},"
        f"{_SOFTMAX}",
        example=_EXAMPLE.format(
            name="MPMTLGroupSparseClassifier", generator="make_group_sparse_tasks", target="y > 0"
        ),
        **_DIAGONAL,
    )
    _multiclass = True
