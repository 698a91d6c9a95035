"""`PrivateMTL`: one estimator for several structures that tasks may share."""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from .._docstrings import TARGET_RANGE, UNCERTAINTY, UNSEEN, fill_docstring
from .._runtime.compat import StrOptions
from .._runtime.hints import Adjacency, ClassWeight, Curator, RandomState
from ..base import BaseMTL, MTLClassifierMixin, MTLRegressorMixin
from ..engine.billboard import StructureBillboard
from ..engine.estimators import RunsCourse
from ..engine.plan import GROUPS, LOGITS, STRUCTURES


class _PrivateMTL(RunsCourse, BaseMTL):
    """The parameters, for squared and logistic loss."""

    _parameter_constraints = {
        **BaseMTL._parameter_constraints,
        "structure": [StrOptions({"auto", *STRUCTURES, GROUPS}), list, tuple],
        "levels": [StrOptions({"auto", "free", "pooled"})],
        "init": "no_validation",  # by `read_public_init`
    }
    _billboards = (StructureBillboard,)
    _extras = (*BaseMTL._extras, "membership_")

    def __init__(
        self,
        structure: Literal["auto", "groups", "low-rank", "mean", "sparse"] | list | tuple = "auto",
        *,
        loss: Literal["huber", "poisson", "squared"] = "squared",
        levels: Literal["auto", "free", "pooled"] = "auto",
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Adjacency = "replace-one",
        curator: Curator = "trusted",
        init=None,
        fit_intercept: bool = True,
        task_feature: str | int | list | None = None,
        tasks: ArrayLike = "auto",
        unseen_task: Literal["error", "mean"] = "error",
        target_range: ArrayLike | None = None,
        uncertainty: bool | Literal["auto", "unseen"] = False,
        random_state: RandomState = None,
        secure: bool = False,
        verbose: int = 0,
        dtype: type | str = np.float64,
    ) -> None:
        self.structure = structure
        self.loss = loss
        self.levels = levels
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

    def _check_parameters(self):
        self._check_course()
        super()._check_parameters()
        self._structures()

    def _structures(self):
        """The parameter `structure` as a tuple, in the order of `STRUCTURES`."""
        if self.structure == "auto":
            return STRUCTURES
        wanted = [self.structure] if isinstance(self.structure, str) else list(self.structure)
        if wanted == [GROUPS]:
            wanted = [*STRUCTURES, GROUPS]
        unknown = [name for name in wanted if name not in (*STRUCTURES, GROUPS)]
        if unknown or not wanted:
            raise ValueError(
                f'structure={self.structure!r} must be "auto" or some of '
                f"{', '.join(map(repr, (*STRUCTURES, GROUPS)))}."
            )
        if GROUPS in wanted and "low-rank" not in wanted:
            raise ValueError(
                f"structure={self.structure!r}: groups are looked for in a subspace. Add "
                '"low-rank", or pass structure="groups".'
            )
        return tuple(name for name in (*STRUCTURES, GROUPS) if name in wanted)


_DOC = """{summary}

    Every task gets its own {model}. It need not be known what the tasks share: a subspace, a few
    features, a mean, or nothing. The curator estimates a prior of each kind from noisy sums over
    tasks, tasks vote for the priors that fit them, and the rest of the budget is spent on the
    winners. Every task then averages over the priors by the evidence of its own rows, which is
    local and free. With a finite `epsilon` nothing else leaves a task, so that the models of all
    *other* tasks, and everything that is published, are differentially private in a task's whole
    data set (joint, or billboard, differential privacy at task level).

    Parameters
    ----------
    structure : {{"auto", "low-rank", "sparse", "mean", "groups"}} or list, default="auto"
        What tasks may share: a subspace ("low-rank"), the same few features ("sparse"), a mean, or
        a list of these. "auto": any of these; a task may always use its single-task model. If
        public knowledge rules out some of them, naming the others saves budget. "groups": all of
        these, and unknown groups with similar models{two_classes}. The search for groups takes 10 %
        of the squared budget (mu^2, see Notes). It needs m mu of at least 150 (75 for zero-out),
        pooled levels, and a first moment with a direction; otherwise the fit is that of "auto", and
        the report says why. In a list, "groups" needs "low-rank".{of_rows}
    epsilon : float or None, default=1.0
        Privacy budget of the whole fit. None or infinity: the same algorithm without noise.
    delta : float or None, default=None
        Delta of the (epsilon, delta) guarantee, in (0, 1). None: ``min(1e-5, 1 / n_tasks**2)``. For
        a pure guarantee, delta = 0, use `MPMTLLowRank` or `MPMTLGroupSparse`.
    {adjacency}
    {curator}
    {init} Structures are those of differences from it, and a task may ignore it.
    levels : {{"auto", "free", "pooled"}}, default="auto"
        The level of a task is its linear score at its mean row. "auto": each task places its level
        between its own and that of a pooled model, by the evidence of its rows, if m mu is at least
        33 (see Notes), or{known_levels} without a budget; not with several classes. "free": every
        task has its own level. "pooled": no task may ignore the pooled model.
    fit_intercept : bool, default=True
        Whether every task has an intercept.
    {task_feature}
    {tasks}{class_list}
    unseen_task : {{"error", "mean"}}, default="error"
        What `predict` does with a task that was not fitted: raise an error, or use the pooled
        model. With free levels it uses the mean that was found, and a mean of the tasks' intercepts
        that takes 10 % of the squared budget{unseen}.{target_range}
    {random_state}
    {secure}
    {verbose}
    {dtype}

    Attributes
    ----------
    coef_ : ndarray of shape (n_tasks, n_features){shapes}
        Personal models. All of them together are not private: give each task its own with
        `export_task`.
    intercept_ : ndarray of shape (n_tasks,){intercepts}
    tasks_ : ndarray of shape (n_tasks,)
        Task ids in the order of `coef_`.{classes}{posterior}
    shares_ : dict of str to float
        Released fractions of the votes for each structure. They contain noise and may be negative;
        empty if nothing was released.
    billboard_ : StructureBillboard
        The releases and what follows from them; the only part that may be published.
    {privacy_}
    n_iter_ : int
        Number of releases; 1 if there are none.
    groups_ : dict of str to ndarray
        With "groups": released numbers of tasks, with noise, "counts" (n_groups,); "centres" of
        their coefficients (n_groups, n_features); and "intercepts" (n_groups,). Arrays are empty if
        no groups were found.
    membership_ : ndarray of shape (n_tasks, n_groups + 1)
        With "groups": posterior probabilities of each task's membership; the last column is that of
        no group. Like `coef_`, each row is for its task alone; not part of `billboard_`.
    level_, level_spread_ : float
        Intercept of the pooled model, and standard deviation of the levels of tasks around it; only
        if levels are pooled.
    mean_coef_, mean_intercept_ : ndarray of shape (n_features,), float{means}
        With ``unseen_task="mean"``: the pooled model. Missing if nothing was released.
    {features_in_}

    See Also
    --------
    MPMTLLowRank, MPMTLGroupSparse, PrivateMeanRegMTL : For one known structure.
    PerTask : Any scikit-learn estimator, one task at a time.

    Notes
    -----
    `skpmtl.engine.curator` has the queries of a fit, `skpmtl.engine.plan` its accounting, and
    `skpmtl.engine.evidence` the part of a task. With m tasks, d features and mu the parameter of
    Gaussian differential privacy of the budget, a public rule compares ``m mu / (2 sqrt(d))``
    (replace-one) with constants: below 0.75, or with m mu below 8, nothing is released and every
    task keeps its single-task model; below 3 there is one second moment and no mean.

    With pooled levels, and squared or Huber loss, tasks vote on whether their columns differ by
    orders of magnitude, for at most 2 % of the squared budget. If they do, the scales are released
    in place of later rounds, and the fit continues on scaled columns (`skpmtl.engine.columns`).
    Otherwise columns should be of similar size.

    References
    ----------
    .. [1] {liang}
    .. [2] S. Hu, Z. S. Wu, V. Smith, "Private multi-task learning: formulation and applications to
       federated learning", TMLR, 2023.
    .. [3] J. Dong, A. Roth, W. J. Su, "Gaussian differential privacy", JRSS B 84(1), 2022.

    Examples
    --------
    >>> from skpmtl import {name}
    >>> from skpmtl.datasets import make_low_rank_tasks
    >>> X, y, task = make_low_rank_tasks(n_tasks=80, n_samples=15, n_features=5, random_state=0)
    >>> est = {name}(epsilon=3.0, tasks=range(80){classes_given}).fit(X, {target}, task=task)
    >>> est.coef_.shape
    (80, 5)
    """


class PrivateMTL(MTLRegressorMixin, _PrivateMTL):
    __doc__ = fill_docstring(
        _DOC,
        summary="Private multi-task regression that finds out what the tasks share.",
        model="linear regression",
        name="PrivateMTL",
        classes_given="",
        unseen=" and needs\n        `target_range`",
        known_levels=" with `target_range`, or",
        two_classes="",
        target_range=TARGET_RANGE + UNCERTAINTY + UNSEEN,
    )

    _releases_residuals = True

    def _check_parameters(self):
        super()._check_parameters()
        self._check_target_range()


class PrivateMTLClassifier(MTLClassifierMixin, _PrivateMTL):
    __doc__ = fill_docstring(
        _DOC,
        summary="Private multi-task classification that finds out what the tasks share.",
        model="logistic regression",
        classes="several",
        name="PrivateMTLClassifier",
        classes_given=", classes=[False, True]",
        known_levels=" for classes, or",
        two_classes=" of two\n        classes",
        unseen=",\n        clipped to -5 ... 5, or with several classes to length 5",
    )
    _multiclass = True

    def __init__(
        self,
        structure: Literal["auto", "groups", "low-rank", "mean", "sparse"] | list | tuple = "auto",
        *,
        levels: Literal["auto", "free", "pooled"] = "auto",
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
        uncertainty: bool | Literal["auto", "unseen"] = "auto",
        random_state: RandomState = None,
        secure: bool = False,
        verbose: int = 0,
        dtype: type | str = np.float64,
    ) -> None:
        super().__init__(
            structure,
            levels=levels,
            epsilon=epsilon,
            delta=delta,
            adjacency=adjacency,
            curator=curator,
            init=init,
            fit_intercept=fit_intercept,
            task_feature=task_feature,
            tasks=tasks,
            unseen_task=unseen_task,
            uncertainty=uncertainty,
            random_state=random_state,
            secure=secure,
            verbose=verbose,
            dtype=dtype,
        )
        self.classes = classes
        self.class_weight = class_weight

    def _intercept_range(self):
        return LOGITS if self.fit_intercept else None
