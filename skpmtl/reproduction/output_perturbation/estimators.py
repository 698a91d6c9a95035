"""DP-AGGR and DP-MTRL, the baselines of the model-protected paper that add noise to models.

Both protect a record of a task, as published; Proposition 3 of the paper extends it to whole tasks
by group privacy.
"""

from numbers import Integral, Real
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from ..._docstrings import fill_docstring
from ..._runtime.compat import Interval, StrOptions
from ..._runtime.hints import Adjacency, ClassWeight, Curator, RandomState
from ...base import BaseMTL, MTLClassifierMixin, MTLRegressorMixin
from ...exchange.protocol import QuerySpec
from ...privacy.report import exact_report
from . import exact
from .billboard import AggregationBillboard, RelationshipBillboard
from .curator import release_average, release_rounds
from .plan import AggregationPlan, RelationshipPlan
from .tasks import NewtonModels, PerturbationTaskSide, RelationshipTaskSide, coefficients

__all__ = ["DPAggregation", "DPAggregationClassifier", "DPRelationship", "DPRelationshipClassifier"]


_COMMON = """epsilon : float or None, default=1.0
        Privacy budget. None or infinity: no privacy, exact; the bounds below have no effect.
    delta : float or None, default=None
        Delta of the (epsilon, delta) guarantee, in (0, 1). None: 0 with "gamma" noise; with
        "gaussian" ``min(1e-5, 1 / n**2)`` for n tasks, or n records.
    adjacency : {{"replace-one", "zero-out"}}, default="replace-one"
        Whether neighbouring inputs differ by a record (a task) being replaced by any other, or
        by its contribution being 0.
    {curator}
    guarantee : {{"task", "record"}}, default="task"
        What `epsilon` protects: all rows of one task, or one row, the native guarantee of the
        method.
    group : {{"published", "tight", "gaussian", "direct"}}, default="published"
        How ``guarantee="task"`` comes about. The first three go from one record to
        n = `max_task_rows` of them: "published", Proposition 3 of [1]_, a budget of
        (epsilon / n, delta / (n e^epsilon)) per record; "tight", the same lemma with
        delta (e^(epsilon/n) - 1) / (e^epsilon - 1); "gaussian", exact for Gaussian noise, mu / n
        per record. "direct" is the fair comparison: no group, but the bound on how far {direct}
        moves when all rows of a task change.
    mechanism : {{"auto", "gamma", "gaussian"}}, default="auto"
        "gamma": density proportional to exp(-epsilon ||x||_2 / sensitivity), as published,
        delta = 0. "auto": "gaussian" for the groups "gaussian" and "direct", else "gamma".
    max_row_norm : float or None, default=None
        Public bound on the Euclidean norm of a row of features, needed for privacy. Longer
        rows are scaled down to it, so that the guarantee holds for any data.{target}
    max_task_rows : int or None, default=None
        Public bound n on the rows of a task, needed by group privacy. A task with more is
        an error.
    min_task_rows : int or None, default=None
        Public lower bound on the rows of a task, which the sensitivity is divided by. None:
        the numbers of rows are public themselves.
    clip_norm : float or None, default=None
        {clip}
    fit_intercept : bool, default=True
        Whether there is a constant feature 1. Its coefficient is penalised and released like
        the others.
    {task_feature}
    {tasks}{class_list}
    unseen_task : {{"error", "mean"}}, default={unseen}
        What `predict` does with a task that was not fitted: an error, or {mean}.{more}
    secure : bool, default=False
        Exact discrete noise of OpenDP (extra ``skpmtl[secure]``), Gaussian only; needs
        random_state=None.
    {random_state}
    {verbose}

    Attributes
    ----------
    coef_ : ndarray of shape (n_tasks, n_features)
        {coef}
    intercept_ : ndarray of shape (n_tasks,)
    mean_coef_ : ndarray of shape (n_features,)
    mean_intercept_ : float
        {average}
    tasks_ : ndarray of shape (n_tasks,){classes}
    billboard_ : {billboard}
        What was released.
    {privacy_}
    n_iter_ : int
        {n_iter}{objective}
    {features_in_}"""
_MAX_TARGET = """
    max_target : float or None, default=None
        Public bound on the absolute value of a target, needed for privacy; larger ones are set
        to it. Subtract a public centre first."""


def _doc(template, own, *, target="", classes=None, **words):
    """`own`: words of the estimator and its twin; the others are those of one of them."""
    common = fill_docstring(_COMMON, target=target, classes=classes, **own)
    return fill_docstring(template, common=common, **words)


class OutputPerturbation(BaseMTL):
    """Parameters and fit of both baselines."""

    _parameter_constraints = {
        **BaseMTL._parameter_constraints,
        "lam": [Interval(Real, 0, None, closed="neither")],
        "guarantee": [StrOptions({"task", "record"})],
        "group": [StrOptions({"published", "tight", "gaussian", "direct"})],
        "mechanism": [StrOptions({"auto", "gamma", "gaussian"})],
        "max_row_norm": [None, Interval(Real, 0, None, closed="neither")],
        "max_target": [None, Interval(Real, 0, None, closed="neither")],
        "max_task_rows": [None, Interval(Integral, 1, None, closed="left")],
        "min_task_rows": [None, Interval(Integral, 1, None, closed="left")],
        "clip_norm": [None, Interval(Real, 0, None, closed="neither")],
    }
    _federates = True
    _task_side_of = PerturbationTaskSide
    _centre_per_task = False

    def _check_parameters(self):
        super()._check_parameters()
        if not self._is_private():
            return
        needed = {"max_row_norm": "the norm of every row of features"}
        if not self._classification:
            needed["max_target"] = "the absolute value of every target"
        if self.guarantee == "task" and self.group != "direct":
            needed["max_task_rows"] = 'the rows of every task; or set group="direct"'
        missing = [name for name in needed if getattr(self, name) is None]
        if missing:
            texts = [f"{name}= (a public bound on {needed[name]})" for name in missing]
            raise ValueError(
                f"A private {type(self).__name__} needs {' and '.join(texts)}. The noise is "
                "proportional to it, so that taking it from the data would disclose them."
            )

    def _counts_rows(self):
        whole = self.guarantee == "task" and self.group == "direct"
        return self._is_private() and not whole

    def _task_side(self, table, population):
        """The task side for the tasks of `table`."""
        plan, at = self._plan(population), np.searchsorted(population.tasks, table.tasks)
        plan.check_rows(table, at)
        return self._task_side_of(self._models(table, plan.bounds), plan, at)

    def _planned_report(self, population):
        if not self._is_private():
            return exact_report()
        return self._plan(population).report(self._source())

    def _check_study(self):
        direct = self.guarantee == "task" and self.group == "direct"
        if self.min_task_rows is None and not direct:
            raise ValueError(
                f"{type(self).__name__} across sites needs min_task_rows=, a public lower bound on "
                'the rows of a task, or guarantee="task" with group="direct": the curator is not '
                "told how many there are, and the sensitivity is divided by it."
            )

    def _query_specs(self, population):
        m, width = population.n_tasks, population.n_features + bool(self.fit_intercept)
        centre = {"centre": [(m, width) if self._centre_per_task else (width,)]}
        return {"model": QuerySpec({"model": (width,)}, centre)}

    def _personalize_table(self, table):
        return self.billboard_.personalize(table)

    def _models(self, table, bounds=None):
        return NewtonModels(
            table,
            fit_intercept=self.fit_intercept,
            lam=float(self.lam),
            bounds=bounds,
        )


class _Aggregation(OutputPerturbation):
    _billboards = (AggregationBillboard,)

    def __init__(
        self,
        lam: float = 1.0,
        *,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Adjacency = "replace-one",
        curator: Curator = "trusted",
        guarantee: Literal["record", "task"] = "task",
        group: Literal["direct", "gaussian", "published", "tight"] = "published",
        mechanism: Literal["auto", "gamma", "gaussian"] = "auto",
        max_row_norm: float | None = None,
        max_target: float | None = None,
        max_task_rows: int | None = None,
        min_task_rows: int | None = None,
        clip_norm: float | None = None,
        fit_intercept: bool = True,
        task_feature: str | int | list | None = None,
        tasks: ArrayLike = "auto",
        unseen_task: Literal["error", "mean"] = "mean",
        secure: bool = False,
        random_state: RandomState = None,
        verbose: int = 0,
    ) -> None:
        self.lam = lam
        self.epsilon = epsilon
        self.delta = delta
        self.adjacency = adjacency
        self.curator = curator
        self.guarantee = guarantee
        self.group = group
        self.mechanism = mechanism
        self.max_row_norm = max_row_norm
        self.max_target = max_target
        self.max_task_rows = max_task_rows
        self.min_task_rows = min_task_rows
        self.clip_norm = clip_norm
        self.fit_intercept = fit_intercept
        self.task_feature = task_feature
        self.tasks = tasks
        self.unseen_task = unseen_task
        self.secure = secure
        self.random_state = random_state
        self.verbose = verbose

    def _plan(self, population):
        return AggregationPlan(self, population)

    def _curator(self, population, source):
        """Curator of a private fit; see `skpmtl.exchange`."""
        plan = self._plan(population)
        average = yield from release_average(plan)
        return AggregationBillboard([average], self.fit_intercept, plan.report(source))

    def _fit_exact(self, table):
        return exact.average(self, table)


_AGGREGATION = """{summary}

    Every task computes a regularised {model} of its own rows, and the average of all of them,
    published with noise, is the model of every task (Pathak et al. [2]_, a baseline of [1]_).
    Model k minimises

        1/n_k sum_i {loss} + lam/2 (||w||^2 + b^2).

    All that `fit` computes comes from the noisy average, so that all of it may be published.
    One row moves model k by at most 2 L / (n_k lam) in the Euclidean norm, where
    {lipschitz}
    A whole task moves it by at most 2 B, B = {reach},
    which is what ``group="direct"`` pays; group privacy pays `max_task_rows` times as much as
    for a row. Models are computed until their gradient shows that they are within 1e-6 of
    that influence of the minimiser, and the sensitivity is raised by as much.

    Parameters
    ----------
    lam : float, default=1.0
        Public. The noise is proportional to its inverse.
    {common}

    References
    ----------
    .. [1] {liang}
    .. [2] M. Pathak, S. Rane, B. Raj, "Multiparty differential privacy via aggregation of
       locally trained classifiers", NIPS 2010.

    Examples
    --------
    >>> from skpmtl.reproduction import {name}
    >>> from skpmtl.datasets import make_low_rank_tasks
    >>> X, y, task = make_low_rank_tasks(n_tasks=50, n_samples=20, n_features=3, random_state=0)
    >>> est = {name}(group="direct", max_row_norm=1, {bound}tasks=range(50))
    >>> est = est.fit(X, {y}, task=task)
    >>> est.privacy_.guarantee, bool((est.coef_ == est.mean_coef_).all())
    ('task DP', True)
    """


_OF_AGGREGATION = dict(
    direct="the average",
    clip="Public bound on the norm of a task's model, enforced before averaging. None: that "
    "which\n        follows from the other bounds.",
    unseen='"mean"',
    mean="the average",
    more="",
    coef="The average, once for every task.",
    average="The average.",
    billboard="AggregationBillboard",
    n_iter="1.",
    objective="",
)


class DPAggregation(MTLRegressorMixin, _Aggregation):
    __doc__ = _doc(
        _AGGREGATION,
        _OF_AGGREGATION,
        summary="DP-AGGR: private average of linear regressions.",
        model="least-squares model",
        loss="1/2 (y_i - x_i'w - b)^2",
        lipschitz="L = R (Y + R B), R the bound on a row with its constant feature, Y on a target.",
        reach="min(R Y / lam, Y / (2 sqrt(lam)), clip_norm)",
        name="DPAggregation",
        bound="max_target=3, ",
        y="y",
        target=_MAX_TARGET,
    )


class DPAggregationClassifier(MTLClassifierMixin, _Aggregation):
    __doc__ = _doc(
        _AGGREGATION,
        _OF_AGGREGATION,
        summary="DP-AGGR: private average of logistic regressions, two classes.",
        model="logistic model",
        loss="log(1 + exp(-y_i (x_i'w + b)))",
        lipschitz="L = R / (1 + exp(-R B)), R the bound on a row with its constant feature.",
        reach="min(R / (2 lam), sqrt(0.2785 / lam), clip_norm)",
        name="DPAggregationClassifier",
        bound="classes=[False, True], ",
        y="y > 0",
        classes="two",
    )
    _spreads_labels = False

    def __init__(
        self,
        lam: float = 1.0,
        *,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Adjacency = "replace-one",
        curator: Curator = "trusted",
        guarantee: Literal["record", "task"] = "task",
        group: Literal["direct", "gaussian", "published", "tight"] = "published",
        mechanism: Literal["auto", "gamma", "gaussian"] = "auto",
        max_row_norm: float | None = None,
        max_task_rows: int | None = None,
        min_task_rows: int | None = None,
        clip_norm: float | None = None,
        fit_intercept: bool = True,
        task_feature: str | int | list | None = None,
        tasks: ArrayLike = "auto",
        classes: ArrayLike = "auto",
        class_weight: ClassWeight = None,
        unseen_task: Literal["error", "mean"] = "mean",
        secure: bool = False,
        random_state: RandomState = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            lam,
            epsilon=epsilon,
            delta=delta,
            adjacency=adjacency,
            curator=curator,
            guarantee=guarantee,
            group=group,
            mechanism=mechanism,
            max_row_norm=max_row_norm,
            max_task_rows=max_task_rows,
            min_task_rows=min_task_rows,
            clip_norm=clip_norm,
            fit_intercept=fit_intercept,
            task_feature=task_feature,
            tasks=tasks,
            unseen_task=unseen_task,
            secure=secure,
            random_state=random_state,
            verbose=verbose,
        )
        self.classes = classes
        self.class_weight = class_weight


class _Relationship(OutputPerturbation):
    _billboards = (RelationshipBillboard,)
    _task_side_of = RelationshipTaskSide
    _centre_per_task = True
    _parameter_constraints = {
        **OutputPerturbation._parameter_constraints,
        "alpha": [Interval(Real, 0, None, closed="neither")],
        "n_rounds": [Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="neither")],
    }

    def __init__(
        self,
        lam: float = 1.0,
        alpha: float = 1.0,
        *,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Adjacency = "replace-one",
        curator: Curator = "trusted",
        guarantee: Literal["record", "task"] = "task",
        group: Literal["direct", "gaussian", "published", "tight"] = "published",
        mechanism: Literal["auto", "gamma", "gaussian"] = "auto",
        max_row_norm: float | None = None,
        max_target: float | None = None,
        max_task_rows: int | None = None,
        min_task_rows: int | None = None,
        clip_norm: float | None = None,
        fit_intercept: bool = True,
        task_feature: str | int | list | None = None,
        tasks: ArrayLike = "auto",
        unseen_task: Literal["error", "mean"] = "error",
        n_rounds: int = 3,
        max_iter: int = 1000,
        tol: float = 1e-10,
        secure: bool = False,
        random_state: RandomState = None,
        verbose: int = 0,
    ) -> None:
        self.lam = lam
        self.alpha = alpha
        self.epsilon = epsilon
        self.delta = delta
        self.adjacency = adjacency
        self.curator = curator
        self.guarantee = guarantee
        self.group = group
        self.mechanism = mechanism
        self.max_row_norm = max_row_norm
        self.max_target = max_target
        self.max_task_rows = max_task_rows
        self.min_task_rows = min_task_rows
        self.clip_norm = clip_norm
        self.fit_intercept = fit_intercept
        self.task_feature = task_feature
        self.tasks = tasks
        self.unseen_task = unseen_task
        self.n_rounds = n_rounds
        self.max_iter = max_iter
        self.tol = tol
        self.secure = secure
        self.random_state = random_state
        self.verbose = verbose

    def _plan(self, population):
        return RelationshipPlan(self, population)

    def _curator(self, population, source):
        """Curator of a private fit; see `skpmtl.exchange`."""
        plan = self._plan(population)
        zeros = np.zeros((plan.n_tasks, plan.width))
        log = self._progress("round %d: noise std %.3g to %.3g", self.n_rounds)
        billboard = yield from release_rounds(self._billboard(zeros, zeros), plan, log)
        billboard.report = plan.report(source)
        return billboard

    def _models_without_rows(self, fitted, tasks, positions):
        # As of all tasks: what was released at their places, here columns and noise alone.
        models = fitted["billboard_"].models
        if fitted["billboard_"].releases:
            return coefficients(models[positions], self.fit_intercept)
        if self.unseen_task == "mean":
            return super()._models_without_rows(fitted, tasks, positions)
        return coefficients(np.zeros((len(positions), models.shape[1])), self.fit_intercept)

    def _billboard(self, models, columns):
        settings = float(self.lam), float(self.alpha), self.fit_intercept
        return RelationshipBillboard([], [], models, columns, *settings)

    def _fit_exact(self, table):
        return exact.relationship(self, table)


_RELATIONSHIP = """{summary}

    Multi-task relationship learning (Zhang and Yeung [2]_) with noise on the models of the tasks
    (Gupta et al. [3]_, a baseline of [1]_). With W = [w_1 ... w_m], one column per task and the
    intercept as last row, it minimises over W, V and the relationship Omega of trace 1

        sum_k [ 1/n_k sum_i {loss} + lam/2 ||w_k - v_k||^2 ]
        + alpha/2 tr(V Omega^-1 V').

    For given Omega the minimum over V is 1/2 tr(W (Omega/alpha + I/lam)^-1 W'): the
    regulariser of [2]_ with the customary ridge on Omega, here arranged so that a task solves
    alone. For given V the best Omega is (V'V)^(1/2) / trace. Rounds, from V = 0:

    1. every task computes w_k around its column v_k from its own rows and sends the update
       w_k - v_k with noise;
    2. the curator has the noisy matrix W, computes the best V and Omega for it, and returns
       to each task its column v_k, scaled down to the length that a task may send in round 1.

    **Who sees what.** The noise is on every model that leaves a task, before the curator (so
    that tasks could add it themselves). Other tasks see functions of noisy models. The model
    of task k is its own noisy model of the last round, as published: also a task itself does
    not get its exact one. All that `fit` computes is therefore differentially private, and the
    models of all tasks may be published. `personalize` is different: it computes an exact model
    from a new task's rows (and the prior that V implies), which belongs to that task alone.

    In each round one row moves w_k by at most 2 L_k / (n_k lam), where L_k is
    {lipschitz}
    A whole task moves it by at most twice the bound on ||w_k - v_k||; group privacy pays
    `max_task_rows` times as much as for a row. Rounds compose: exactly with Gaussian noise, by
    the bound of [1]_ ("published") or the optimal one with "gamma" noise. Tasks compose in
    parallel.

    Parameters
    ----------
    lam : float, default=1.0
        Public. Pull of a task to its column; the noise is proportional to its inverse.
    alpha : float, default=1.0
        Public. Strength of the relationship.
    {common}

    References
    ----------
    .. [1] {liang}
    .. [2] Y. Zhang, D.-Y. Yeung, "A convex formulation for learning task relationships in
       multi-task learning", UAI 2010.
    .. [3] S. K. Gupta, S. Rana, S. Venkatesh, "Differentially private multi-task learning",
       PAISI 2016.

    Examples
    --------
    >>> from skpmtl.reproduction import {name}
    >>> from skpmtl.datasets import make_low_rank_tasks
    >>> X, y, task = make_low_rank_tasks(n_tasks=20, n_samples=20, n_features=3, random_state=0)
    >>> exact = {name}(lam=0.1, alpha=0.01, epsilon=None).fit(X, {y}, task=task)
    >>> exact.billboard_.relationship.shape
    (20, 20)
    >>> est = {name}(guarantee="record", max_row_norm=1, {bound}tasks=range(20))
    >>> est.fit(X, {y}, task=task).privacy_.guarantee
    'record DP'
    """


_OF_RELATIONSHIP = dict(
    direct="a model",
    clip="Public bound on the norm of an update w_k - v_k, enforced. None: that which follows "
    "from\n        the other bounds.",
    unseen='"error"',
    mean="the mean of the noisy\n        models",
    more="\n    n_rounds : int, default=3\n        Releases of a private fit."
    "\n    max_iter, tol : int, default=1000, and float, default=1e-10"
    "\n        The exact solution stops when no column moves by more than `tol` times the "
    "largest\n        coefficient.",
    coef="The models W: noisy, so that all of them may be published; exact with epsilon=None.",
    average="Their mean.",
    billboard="RelationshipBillboard",
    n_iter="Rounds, or iterations of the exact solver.",
    objective="\n    objective_ : float\n        Value of the objective; exact solution only.",
)


class DPRelationship(MTLRegressorMixin, _Relationship):
    __doc__ = _doc(
        _RELATIONSHIP,
        _OF_RELATIONSHIP,
        summary="DP-MTRL: relationship learning with noisy models, linear regression.",
        loss="1/2 (y_i - x_i'w_k)^2",
        lipschitz="R (Y_k + R Y_k / (2 sqrt(lam))) or less, Y_k = Y + R ||v_k||, for bounds R on a "
        "row and Y\n    on a target.",
        name="DPRelationship",
        bound="max_target=3, ",
        y="y",
        target=_MAX_TARGET,
    )


class DPRelationshipClassifier(MTLClassifierMixin, _Relationship):
    __doc__ = _doc(
        _RELATIONSHIP,
        _OF_RELATIONSHIP,
        summary="DP-MTRL: relationship learning with noisy models, two classes.",
        loss="log(1 + exp(-y_i x_i'w_k))",
        lipschitz="at most R, the bound on a row.",
        name="DPRelationshipClassifier",
        bound="classes=[False, True], ",
        y="y > 0",
        classes="two",
    )
    _spreads_labels = False

    def __init__(
        self,
        lam: float = 1.0,
        alpha: float = 1.0,
        *,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Adjacency = "replace-one",
        curator: Curator = "trusted",
        guarantee: Literal["record", "task"] = "task",
        group: Literal["direct", "gaussian", "published", "tight"] = "published",
        mechanism: Literal["auto", "gamma", "gaussian"] = "auto",
        max_row_norm: float | None = None,
        max_task_rows: int | None = None,
        min_task_rows: int | None = None,
        clip_norm: float | None = None,
        fit_intercept: bool = True,
        task_feature: str | int | list | None = None,
        tasks: ArrayLike = "auto",
        classes: ArrayLike = "auto",
        class_weight: ClassWeight = None,
        unseen_task: Literal["error", "mean"] = "error",
        n_rounds: int = 3,
        max_iter: int = 1000,
        tol: float = 1e-10,
        secure: bool = False,
        random_state: RandomState = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            lam,
            alpha,
            epsilon=epsilon,
            delta=delta,
            adjacency=adjacency,
            curator=curator,
            guarantee=guarantee,
            group=group,
            mechanism=mechanism,
            max_row_norm=max_row_norm,
            max_task_rows=max_task_rows,
            min_task_rows=min_task_rows,
            clip_norm=clip_norm,
            fit_intercept=fit_intercept,
            task_feature=task_feature,
            tasks=tasks,
            unseen_task=unseen_task,
            n_rounds=n_rounds,
            max_iter=max_iter,
            tol=tol,
            secure=secure,
            random_state=random_state,
            verbose=verbose,
        )
        self.classes = classes
        self.class_weight = class_weight
