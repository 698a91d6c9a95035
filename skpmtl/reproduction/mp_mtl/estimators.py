"""Estimators of Algorithms 1 to 3, and of learning alone, for linear models."""

import math
from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np

from ..._runtime.constraints import Interval, StrOptions, take
from ..._runtime.threads import single_blas_thread
from ...base import MTLClassifierMixin, MTLRegressorMixin
from ...exchange.protocol import allow_for_rounding, run
from ...privacy.accounting import check_budget
from ...privacy.report import ALONE, PrivacyReport, silent_report
from ...tables.table import finite_models
from ..published import Published, with_classes
from .losses import losses_of, own_rates, ridge_models, rows_of
from .plan import MPMTLPlan, best_allocation, default_delta
from .rounds import PROJECTIONS, ModelTasks, OwnPart, curator

__all__ = ["LinearTasks", "MPMTLReleases", "PublishedMPMTL", "PublishedMPMTLClassifier"]
_ALONE = ("none", "l1")
_START_RIDGE = 1e-2
_DIVERGED = (
    "The rounds diverged: their models are not finite. Take a smaller learning_rate, and scale X "
    "to rows of length about 1."
)


@dataclass
class MPMTLReleases:
    """What a fit publishes.

    Attributes
    ----------
    moments : list of ndarray (d, d)
        Noisy second moments, one a round.
    projections : list of ndarray (d, d)
        M of every round, which follow from them.
    report : PrivacyReport
    """

    moments: list
    projections: list
    report: PrivacyReport


class LinearTasks(Published):
    """Input and prediction of linear models without intercepts, which the paper does not have.

    A subclass has ``_fitted(table, tasks, source)``, for the rows of all tasks as of `rows_of`.
    """

    _parameter_constraints = {
        **Published._parameter_constraints,
        "epsilon": [Interval(Real, 0, None, closed="neither"), None],
        "delta": [Interval(Real, 0, 1, closed="left"), None],
        "n_rounds": [Interval(Integral, 1, None, closed="left")],
    }

    def _budget(self, m):
        """-> epsilon or None, delta"""
        if not self._is_private():
            return None, 0.0
        if self.delta is None and m < 3:
            raise ValueError(f"{m} tasks have no default delta, 1 / (m log m): pass delta=.")
        delta = default_delta(m) if self.delta is None else self.delta
        if self.delta is not None:
            check_budget(self.epsilon, delta, m, pure=self.mechanism != "gaussian")
        return self.epsilon, delta

    def _fit_table(self, table):
        self._refuse_weights(table)
        try:
            with single_blas_thread():
                tasks = rows_of(table, bool(table.n_classes))
                fitted = self._fitted(table, tasks, self._source())
        except np.linalg.LinAlgError as error:  # of numbers that are not finite
            raise ValueError(_DIVERGED) from error
        coef, intercept = fitted["coef_"], np.zeros(len(fitted["coef_"]))
        if fitted["privacy_"].guarantee != "none":  # the rows of one task end no fit of all
            coef, intercept = finite_models(coef, intercept)
        elif not np.isfinite(coef).all():
            raise ValueError(_DIVERGED)
        return {**fitted, "coef_": coef, "intercept_": intercept}

    def _scores_of(self, k, X):
        return X @ self.coef_[k]


_DOC = """Model-protected multi-task {kind} as published: Algorithms 1 to 3, or every task alone.

    Plain gradient steps between noisy projections, as in the paper [1]_. Defaults are the printed
    algorithm, whose Wishart noise gives *no* guarantee, which the report says;
    ``mechanism="gaussian"`` and ``mechanism="wishart"`` are sound. For everyday use take
    `{everyday}`. There are no intercepts.

    Parameters
    ----------
    penalty : {{"low-rank", "group-sparse", "none", "l1"}}, default="low-rank"
        Algorithm 2; Algorithm 3; single-task learning without and with an l1 penalty, from which
        nothing is released (Claim 1).
    lam : float, default=1.0
        lambda, strength of the penalty on the sum of the losses of all tasks.
    epsilon : float or None, default=1.0
        Budget of all rounds together. None: neither clipping nor noise.
    delta : float or None, default=None
        None: 1 / (m log m) for m tasks, the paper's. 0: the budgets of the rounds add up.
    budgets : array-like of shape (n_rounds,) or None, default=None
        epsilon_t of every round (Algorithm 1), in place of `epsilon` and `allocation`; the report
        has their composition. Not with Gaussian noise.
    clip_norm : float, default=1.0
        K, the largest length of a model that is sent.
    n_rounds : int, default=20
        T.
    learning_rate : float or "own", default=1.0
        eta. "own": 1 / L_i of the loss of each task, a variant, in which singular values fall by
        `lam` and not by eta lam, since what is public may not depend on rows.
    accelerated : bool, default=True
        Whether beta_t is (t - 1) / (t + 2), or with `ridge`
        (1 - sqrt(eta mu)) / (1 + sqrt(eta mu)); otherwise 0.
    ridge : float, default=0.0
        mu: ``mu / 2 |w|^2`` is added to the loss of every task.
    allocation : "best", float or ("geometric", Q), default="best"
        epsilon_t in proportion to t^alpha, or Q^-t. "best": Theorem 6, with 1 / eta for L.
    mechanism : {{"published", "gaussian", "wishart"}}, default="published"
        See `skpmtl.reproduction.mp_mtl.MPMTLPlan`.
    adjacency : {{"replace-one", "zero-out"}}, default="replace-one"
        Of the sound mechanisms.
    noise_shift : float, default=0.0
        Public multiple of the identity that is added to releases of the sound mechanisms, in
        standard deviations of the noise on a diagonal entry.
    start : {{"alone", "zeros"}} or array-like of shape (n_tasks, n_features), default="alone"
        W(0): ridge regression of every task with the penalty ``start_ridge / 2 |w|^2``; zeros;
        given models in the order of the sorted tasks.
    start_ridge : float, default=0.01
    average : bool, default=False
        Whether the models are the averages over the rounds (Theorem 3 without acceleration), not
        those of the last round.
    project : {{"clipped", "unclipped"}}, default="clipped"
        Which model a task projects; "unclipped" is a variant.
    all_directions : bool, default=False
        Whether all d directions are shared where there are fewer tasks, a variant; as printed
        min(d, m) are.
    own_penalty : {{"l1", "l2", "norm"}} or None, default=None
        Penalty on a part of the models that never leaves a task, see
        `skpmtl.reproduction.mp_mtl.rounds.OwnPart`. None: models have no such part.
    own_strength : float, default=1.0
    l1 : float, default=0.0
        Strength of the l1 norm with ``penalty="l1"``.
    monitor : callable or None, default=None
        ``monitor(t, tasks, projection)`` after round t, for figures over rounds:
        ``tasks.models()`` is the sequence of models that the paper outputs. What it keeps is
        outside the guarantee.
    task_feature : str, int, list or None, default=None
        Column of the task ids.
    tasks : "auto" or array-like, default="auto"
        Public list of the tasks.{classes}
    random_state : int, Generator, RandomState or None, default=None
        None: noise from the operating system.

    Attributes
    ----------
    coef_ : ndarray of shape (n_tasks, n_features)
    intercept_ : ndarray of shape (n_tasks,)
        Zeros.
    billboard_ : skpmtl.reproduction.mp_mtl.estimators.MPMTLReleases
        Everything that was published.
    privacy_ : PrivacyReport
    tasks_ : ndarray of shape (n_tasks,)

    References
    ----------
    .. [1] J. Liang, Z. Liu, J. Zhou, X. Jiang, C. Zhang, F. Wang, "Model-protected multi-task
       learning", IEEE TPAMI 44(2), 2022.

    Examples
    --------
    >>> from skpmtl.datasets import make_low_rank_tasks
    >>> from skpmtl.reproduction.mp_mtl import {name}
    >>> X, y, task = make_low_rank_tasks(n_tasks=8, n_samples=9, n_features=3, random_state=0)
    >>> est = {name}(clip_norm=20, mechanism="gaussian", delta=0.1, tasks=range(8){listed})
    >>> est.fit(X, {y}, task=task).privacy_.guarantee
    'joint DP per task'
    """


class ModelProtected(LinearTasks):
    """Parameters and fit."""

    _parameter_constraints = {
        **LinearTasks._parameter_constraints,
        "penalty": [StrOptions({*PROJECTIONS, *_ALONE})],
        "lam": [Interval(Real, 0, None, closed="left")],
        "budgets": ["array-like", None],
        "clip_norm": [Interval(Real, 0, None, closed="neither")],
        "learning_rate": [Interval(Real, 0, None, closed="neither"), StrOptions({"own"})],
        "accelerated": ["boolean"],
        "ridge": [Interval(Real, 0, None, closed="left")],
        "allocation": [StrOptions({"best"}), Real, tuple, list],
        "mechanism": [StrOptions({"published", "gaussian", "wishart"})],
        "adjacency": [StrOptions({"replace-one", "zero-out"})],
        "noise_shift": [Interval(Real, 0, None, closed="left")],
        "start": [StrOptions({"alone", "zeros"}), "array-like"],
        "start_ridge": [Interval(Real, 0, None, closed="neither")],
        "average": ["boolean"],
        "project": [StrOptions({"clipped", "unclipped"})],
        "all_directions": ["boolean"],
        "own_penalty": [StrOptions({"l1", "l2", "norm"}), None],
        "own_strength": [Interval(Real, 0, None, closed="left")],
        "l1": [Interval(Real, 0, None, closed="left")],
        "monitor": [callable, None],
    }

    def __init__(
        self,
        penalty="low-rank",
        *,
        lam=1.0,
        epsilon=1.0,
        delta=None,
        budgets=None,
        clip_norm=1.0,
        n_rounds=20,
        learning_rate=1.0,
        accelerated=True,
        ridge=0.0,
        allocation="best",
        mechanism="published",
        adjacency="replace-one",
        noise_shift=0.0,
        start="alone",
        start_ridge=_START_RIDGE,
        average=False,
        project="clipped",
        all_directions=False,
        own_penalty=None,
        own_strength=1.0,
        l1=0.0,
        monitor=None,
        task_feature=None,
        tasks="auto",
        random_state=None,
    ):
        take(self, locals())

    def _check_parameters(self):
        super()._check_parameters()
        if self.budgets is not None:
            given = np.asarray(self.budgets)
            if given.shape != (self.n_rounds,):
                raise ValueError(
                    f"budgets has shape {given.shape}: pass one epsilon for each of the "
                    f"n_rounds={self.n_rounds} rounds."
                )
            if self.mechanism == "gaussian":
                raise ValueError(
                    'budgets= are of pure releases: take mechanism="wishart" or "published", or '
                    "allocation= with Gaussian noise."
                )
        if self.l1 and self.penalty != "l1":
            raise ValueError(f'l1={self.l1!r} is the strength of penalty="l1": leave it at 0.')

    def _is_private(self):
        return self.penalty in PROJECTIONS and (self.budgets is not None or super()._is_private())

    def _plan(self, m, d):
        epsilon, delta = self._budget(m)
        # The threshold is public: with steps of each task's own it is lam itself.
        rate = 1.0 if self.learning_rate == "own" else float(self.learning_rate)
        allocation = self.allocation
        if isinstance(allocation, str):
            root = min(self.ridge * rate, 1.0 - 1e-12)  # mu / L
            q0 = 1.0 - (math.sqrt(root) if self.accelerated else root)
            allocation = best_allocation(self.accelerated, self.ridge > 0, q0)
        return MPMTLPlan(
            self.penalty,
            m,
            d,
            self.n_rounds,
            clip_norm=float(self.clip_norm),
            threshold=rate * float(self.lam),
            epsilon=epsilon,
            delta=delta,
            allocation=allocation,
            budgets=self.budgets,
            mechanism=self.mechanism,
            adjacency=self.adjacency,
            noise_shift=float(self.noise_shift),
            all_directions=self.all_directions,
        )

    def _budget(self, m):
        if self.budgets is None or self.epsilon is not None:
            return super()._budget(m)
        return None, default_delta(m) if self.delta is None else self.delta

    def _start(self, tasks):
        m, d = len(tasks), tasks[0][0].shape[1]
        if isinstance(self.start, str):
            alone = self.start == "alone"
            return ridge_models(tasks, self.start_ridge) if alone else np.zeros((m, d))
        start = np.asarray(self.start, dtype=float)
        if start.shape != (m, d) or not np.isfinite(start).all():
            raise ValueError(f"start must be finite numbers of shape ({m}, {d}).")
        return start

    def _fitted(self, table, tasks, source):
        m, d = len(tasks), table.n_features
        losses = losses_of(tasks, table.n_classes)
        own = self.learning_rate == "own"
        rate = own_rates(losses, self.ridge) if own else float(self.learning_rate)
        private = self._is_private()
        part = None if self.own_penalty is None else OwnPart(self.own_penalty, self.own_strength)
        models = ModelTasks(
            losses,
            self._start(tasks),
            float(self.clip_norm) if private else math.inf,
            rate,
            self.accelerated,
            ridge=self.ridge,
            project=self.project,
            own=part,
            l1=self.l1,
        )

        def watch(t, projection):
            self.monitor(t, models, projection)

        watch = None if self.monitor is None else watch
        if self.penalty in PROJECTIONS:
            plan = self._plan(m, d)
            rounds = allow_for_rounding(curator(plan, watch), m)
            moments, projections = run(rounds, models, source)
            report = self._report_of(plan if plan.private else None, source)
        else:
            moments, projections = [], []
            for t in range(self.n_rounds):
                models.step_alone()
                if watch is not None:
                    watch(t + 1, None)
            report = silent_report(ALONE, adjacency=self.adjacency)
        coef = models.total / models.t if self.average else models.models()
        releases = MPMTLReleases(moments, projections, report)
        return {"coef_": coef, "billboard_": releases, "privacy_": report}


class PublishedMPMTL(MTLRegressorMixin, ModelProtected):
    __doc__ = _DOC.format(
        kind="regression",
        everyday="MPMTLLowRank",
        classes="",
        name="PublishedMPMTL",
        y="y",
        listed="",
    )
    _weighs_rows = False


class PublishedMPMTLClassifier(MTLClassifierMixin, ModelProtected):
    __doc__ = _DOC.format(
        kind="classification of two classes",
        everyday="MPMTLLowRankClassifier",
        classes='\n    classes : "auto" or array-like, default="auto"\n        Public list of the '
        "two classes.",
        name="PublishedMPMTLClassifier",
        y="y > 0",
        listed=", classes=[False, True]",
    )

    __init__ = with_classes(ModelProtected.__init__)

    def _with_targets(self, table):
        return table  # the numbers of the classes
