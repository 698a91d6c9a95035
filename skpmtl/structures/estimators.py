"""The front door: one estimator for whatever it is that tasks share."""

from numbers import Real

import numpy as np

from .._docstrings import (
    LOSS,
    POSTERIOR,
    SHAPES,
    TARGET_RANGE,
    UNCERTAINTY,
    UNSEEN,
    fill_docstring,
)
from .._runtime.compat import StrOptions
from ..base import BaseMTL, MTLClassifierMixin, MTLRegressorMixin
from ..engine.billboard import StructureBillboard
from ..engine.curator import PLAIN, release_structures
from ..engine.plan import LOGITS, STRUCTURES, StructurePlan
from ..engine.queries import query_specs
from ..engine.tasks import StructureTaskSide
from ..privacy.report import exact_report


class _PrivateMTL(BaseMTL):
    """Curator and task side, for squared and logistic loss."""

    _parameter_constraints = {
        **BaseMTL._parameter_constraints,
        "structure": [StrOptions({"auto", *STRUCTURES}), list, tuple],
        "levels": [StrOptions({"auto", "free", "pooled"})],
        "init": "no_validation",  # by `read_public_init`
    }
    _billboards = (StructureBillboard,)
    _federates = True

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
        if self._is_private() and isinstance(self.delta, Real) and self.delta == 0:
            raise ValueError(
                "delta=0, a pure guarantee, needs a structure that is known: pass it to "
                'MPMTLLowRank(mechanism="wishart") or MPMTLGroupSparse(mechanism="laplace"), or '
                "leave delta to its default here."
            )
        super()._check_parameters()
        self._structures()

    def _structures(self):
        """The parameter `structure` as a tuple, in the order of `STRUCTURES`."""
        if self.structure == "auto":
            return STRUCTURES
        wanted = [self.structure] if isinstance(self.structure, str) else list(self.structure)
        unknown = [name for name in wanted if name not in STRUCTURES]
        if unknown or not wanted:
            raise ValueError(
                f'structure={self.structure!r} must be "auto" or some of '
                f"{', '.join(map(repr, STRUCTURES))}."
            )
        return tuple(name for name in STRUCTURES if name in wanted)

    def _settings(self):
        return {"classification": self._log_loss, "fit_intercept": self.fit_intercept}

    # ------------------------------------------------------------------------ curator and task side
    def _curator(self, population, source):
        log = self._progress("release %d: noise std %.3g")
        return release_structures(population, self._plan(population), source, log)

    def _task_side(self, table, population):
        plan = self._plan(population)
        return StructureTaskSide(table, population.n_tasks, self._settings(), plan)

    def _plan(self, population):
        public_init = self._public_init(population)
        return StructurePlan(self, population, self._structures(), public_init)

    def _planned_report(self, population):
        if not self._is_private():
            return exact_report(PLAIN)
        return self._plan(population).report(self._source())

    def _query_specs(self, population):
        return query_specs(self._plan(population), population)

    def _sent_range(self):
        """Public range of the intercepts that tasks send, less `init` where it is set."""
        found = self._intercept_range()
        if found is None or not self._has_public_init():
            return found
        reach = 0.5 * (found[1] - found[0])
        return -reach, reach

    def _middle(self):
        found = self._intercept_range()
        return 0.0 if found is None else 0.5 * sum(found)

    def _personalize_table(self, table):
        return self.billboard_.personalize(table, **self._settings())


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
    structure : {{"auto", "low-rank", "sparse", "mean"}} or list of these, default="auto"
        What tasks may share: models near a common subspace, models of the same few features,
        models around a common mean. "auto": any of them, and a task may always go alone. Public
        knowledge that rules some out saves a part of the budget.{of_rows}
    epsilon : float or None, default=1.0
        Privacy budget of the whole fit. None or infinity: the same algorithm without noise.
    delta : float or None, default=None
        Probability part of the guarantee, in (0, 1). None: ``min(1e-5, 1 / n_tasks**2)``. A pure
        guarantee, delta = 0, have `MPMTLLowRank` and `MPMTLGroupSparse`.
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
        summary="Private multi-task regression for tasks that share who knows what.",
        model="linear regression",
        name="PrivateMTL",
        target="y",
        classes_given="",
        unseen=" and needs\n        `target_range`",
        known_levels=" with `target_range`, or",
        target_range=TARGET_RANGE + UNCERTAINTY + UNSEEN,
        posterior=POSTERIOR,
        of_rows=LOSS,
        **dict.fromkeys(SHAPES, ""),
    )

    _tells_residuals = True

    def _check_parameters(self):
        super()._check_parameters()
        if self.target_range is not None:
            self._score_range()
        elif self.unseen_task == "mean" and self.fit_intercept and self.levels == "free":
            raise ValueError(
                'unseen_task="mean" with levels="free" needs the public range of the target, in '
                "which the mean of intercepts is taken: target_range=(low, high)."
            )

    def _intercept_range(self):
        """Public range of intercepts; None where there are none."""
        known = self.fit_intercept and self.target_range is not None
        return self._score_range() if known else None


class PrivateMTLClassifier(MTLClassifierMixin, _PrivateMTL):
    __doc__ = fill_docstring(
        _DOC,
        summary="Private multi-task classification for tasks that share who knows what, any "
        "number of\n    classes.",
        model="logistic regression",
        classes="several",
        name="PrivateMTLClassifier",
        target="y > 0",
        classes_given=", classes=[False, True]",
        known_levels=" for classes, or",
        unseen=",\n        clipped to -5 ... 5, or with several classes to length 5",
        target_range="",
        of_rows="",
        **SHAPES,
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
        random_state=None,
        secure=False,
        verbose=0,
        dtype=np.float64,
    ):
        super().__init__(
            structure, levels=levels, epsilon=epsilon, delta=delta, adjacency=adjacency,
            curator=curator, init=init, fit_intercept=fit_intercept, task_feature=task_feature,
            tasks=tasks,
            unseen_task=unseen_task, random_state=random_state,
            secure=secure, verbose=verbose, dtype=dtype,
        )  # fmt: skip
        self.classes = classes
        self.class_weight = class_weight

    def _intercept_range(self):
        return LOGITS if self.fit_intercept else None
