"""The front door: one estimator for whatever it is that tasks share."""

import numpy as np

from .._docstrings import TARGET_RANGE, UNCERTAINTY, UNSEEN, fill_docstring
from .._runtime.compat import StrOptions
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
        structure="auto",
        *,
        loss="squared",
        levels="auto",
        epsilon=1.0,
        delta=None,
        adjacency="replace-one",
        curator="trusted",
        init=None,
        fit_intercept=True,
        task_feature=None,
        tasks="auto",
        unseen_task="error",
        target_range=None,
        uncertainty=False,
        random_state=None,
        secure=False,
        verbose=0,
        dtype=np.float64,
    ):
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

    Every task gets its own {model}. What tasks share need not be known: a subspace, a few features,
    a mean, or nothing. The curator finds a candidate of each kind from noisy sums over tasks, and
    every task averages over the candidates by the evidence of its own rows, which is local and
    free. Tasks vote which candidates they follow, and the rest of the budget goes where the votes
    are. With a finite `epsilon` nothing else leaves a task, so that the models of all *other*
    tasks, and everything that is published, are differentially private in a task's whole data set
    (joint, or billboard, differential privacy at task level).

    Parameters
    ----------
    structure : {{"auto", "low-rank", "sparse", "mean", "groups"}} or list, default="auto"
        What tasks may share: models near a common subspace, models of the same few features,
        models around a common mean. "auto": any of these, and a task may always go alone. Public
        knowledge that rules some out saves a part of the budget.
        "groups": all of these, and unknown groups of similar models{two_classes}. They are looked
        for where m mu is at least 150 (75 for zero-out), levels are pooled, and the first moment
        shows a direction, and take 10 % of the squared budget; otherwise the fit is that of
        "auto", and the report says why. In a list "groups" needs "low-rank".{of_rows}
    epsilon : float or None, default=1.0
        Privacy budget of the whole fit. None or infinity: the same algorithm without noise.
    delta : float or None, default=None
        Delta of the (epsilon, delta) guarantee, in (0, 1). None: ``min(1e-5, 1 / n_tasks**2)``. For
        a pure guarantee, delta = 0, take `MPMTLLowRank` or `MPMTLGroupSparse`.
    {adjacency}
    {curator}
    {init} What is looked for are structures of differences to it, and a task may go without it.
    levels : {{"auto", "free", "pooled"}}, default="auto"
        The level of a task is its score at its mean row. "auto": levels are looked for, and a task
        goes between its own level and that of a pooled model by its own evidence, where m mu is at
        least 33 (see Notes), or{known_levels} without a budget; not with several classes. "free":
        every task has its own. "pooled": no task may go without the pooled model.
    fit_intercept : bool, default=True
        Whether every task has an intercept.
    {task_feature}
    {tasks}{class_list}
    unseen_task : {{"error", "mean"}}, default="error"
        What `predict` does with a task that was not fitted: an error, or a mean model: the pooled
        one. Where no levels are looked for that is the mean that was found, and a mean of the
        tasks' intercepts that takes 10 % of the squared budget{unseen}.{target_range}
    {random_state}
    {secure}
    {verbose}
    {dtype}

    Attributes
    ----------
    coef_ : ndarray of shape (n_tasks, n_features){shapes}
        Personal models. All rows together are not a private object: hand each task its own with
        `export_task`.
    intercept_ : ndarray of shape (n_tasks,){intercepts}
    tasks_ : ndarray of shape (n_tasks,)
        Task ids in the order of `coef_`.{classes}{posterior}
    shares_ : dict of str to float
        Released shares of the tasks that follow each structure, noise and all, so that they may be
        below 0; empty when nothing was released.
    billboard_ : StructureBillboard
        The released numbers and what follows from them; the only part that may be published.
    {privacy_}
    n_iter_ : int
        Number of releases; 1 without any.
    groups_ : dict of str to ndarray
        With "groups": released "counts" of tasks, (n_groups,), noise and all, "centres" of
        their coefficients, (n_groups, n_features), and "intercepts", (n_groups,); of no groups
        where none were found.
    membership_ : ndarray of shape (n_tasks, n_groups + 1)
        With "groups": posterior probabilities of each task's membership, the last one of no
        group. Like `coef_` it is for the task alone, and no part of `billboard_`.
    level_, level_spread_ : float
        Intercept of the pooled model, and standard deviation of the levels of tasks about it; where
        levels were found.
    mean_coef_, mean_intercept_ : ndarray of shape (n_features,), float{means}
        With ``unseen_task="mean"``: the pooled model. Not where nothing was released.
    {features_in_}

    See Also
    --------
    MPMTLLowRank, MPMTLGroupSparse, PrivateMeanRegMTL : One structure that is known beforehand.
    PerTask : Any scikit-learn estimator, one task at a time.

    Notes
    -----
    The course of a fit is in `skpmtl.engine.curator`, its accounting in
    `skpmtl.engine.plan`, and what a task does alone in `skpmtl.engine.evidence`. A public
    rule, with m tasks, d features and mu the Gaussian-DP parameter of the budget, compares
    ``m mu / (2 sqrt(d))`` (replace-one) with the noise: below 0.75, or with m mu below 8, nothing
    is released and every task is alone; below 3 there is one moment and no mean.

    Where levels are looked for, tasks vote on whether their columns differ by orders of magnitude
    (squared and Huber loss), for 2 % of the squared budget at most. Then their scales are released
    in place of later rounds, and all that follows is about scaled columns
    (`skpmtl.engine.columns`). Elsewhere columns should be of similar size.

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
        structure="auto",
        *,
        levels="auto",
        epsilon=1.0,
        delta=None,
        adjacency="replace-one",
        curator="trusted",
        init=None,
        fit_intercept=True,
        task_feature=None,
        tasks="auto",
        classes="auto",
        class_weight=None,
        unseen_task="error",
        uncertainty="auto",
        random_state=None,
        secure=False,
        verbose=0,
        dtype=np.float64,
    ):
        super().__init__(
            structure, levels=levels, epsilon=epsilon, delta=delta, adjacency=adjacency,
            curator=curator, init=init, fit_intercept=fit_intercept, task_feature=task_feature,
            tasks=tasks,
            unseen_task=unseen_task, uncertainty=uncertainty, random_state=random_state,
            secure=secure, verbose=verbose, dtype=dtype,
        )  # fmt: skip
        self.classes = classes
        self.class_weight = class_weight

    def _intercept_range(self):
        return LOGITS if self.fit_intercept else None
