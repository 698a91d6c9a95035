"""Output perturbation of records, and the average of local models (DP-AGGR).

The baselines DP-AGGR and DP-MTRL (`skpmtl.dp_relationship`) of the model-protected paper protect
a record of a task, as published; Proposition 3 of the paper makes a guarantee for whole tasks
of it by group privacy.
"""

from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np

from ._compat import Interval, StrOptions
from ._version import __version__
from .base import CLASS_LIST_DOC, BaseMTL, MTLClassifierMixin, MTLRegressorMixin
from .budget import exact_report
from .output_perturbation import Bounds, Budget, ProximalModels
from .privacy.accounting import gdp_epsilon
from .privacy.mechanisms import VectorGamma, VectorGaussian
from .privacy.report import PrivacyReport
from .privacy.rng import noise_source

__all__ = ["DPAggregation", "DPAggregationClassifier"]


def split(models, fit_intercept, pick=slice(None)):
    """Models with the intercept last -> coefficients, intercepts."""
    if fit_intercept:
        return models[pick, :-1].copy(), models[pick, -1].copy()
    return models[pick].copy(), np.zeros(len(models))[pick]


COMMON_DOC = """epsilon : float or None, default=1.0
        Privacy budget. None or infinity: no privacy, exact; the bounds below have no effect.
    delta : float or None, default=None
        Probability part of the guarantee, in (0, 1). None: 0 with "gamma" noise; with
        "gaussian" ``min(1e-5, 1 / n**2)`` for n tasks, or n records.
    adjacency : {{"replace-one", "zero-out"}}, default="replace-one"
        Whether neighbouring inputs differ by a record (a task) being replaced by any other, or
        by its contribution being 0.
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
    task_feature : str, int or None, default=None
        Column of X that holds the task id, by name or position. None: ids are passed as
        ``task=``, or y has one column per task, or X and y are mappings.
    tasks : "auto" or array-like, default="auto"
        Public list of the tasks. "auto" reads it from the data, which discloses which tasks
        exist.{class_list}
    unseen_task : {{"error", "mean"}}, default={unseen}
        What `predict` does with a task that was not fitted: an error, or {mean}.{more}
    secure : bool, default=False
        Exact discrete noise of OpenDP (extra ``skpmtl[secure]``), Gaussian only; needs
        random_state=None.
    random_state : int, Generator, RandomState or None, default=None
        None: noise from the operating system's generator. Anything else makes the noise
        reproducible, which protects nobody against those who know it.
    verbose : int, default=0
        Progress through the ``skpmtl`` logger.

    Attributes
    ----------
    coef_ : ndarray of shape (n_tasks, n_features)
        {coef}
    intercept_ : ndarray of shape (n_tasks,)
    mean_coef_ : ndarray of shape (n_features,)
    mean_intercept_ : float
        {average}
    tasks_ : ndarray of shape (n_tasks,){classes}
    billboard_ : {board}
        What was released.
    privacy_ : PrivacyReport
        The guarantee with all its assumptions; prints as a paragraph.
    n_iter_ : int
        {n_iter}{objective}
    n_features_in_, feature_names_in_
        Of X as given, so that a task column counts."""

MAX_TARGET_DOC = """
    max_target : float or None, default=None
        Public bound on the absolute value of a target, needed for privacy; larger ones are set
        to it. Subtract a public centre first."""
CLASSES_DOC = """
    classes_ : ndarray of shape (2,)"""
PAPER_DOC = """.. [1] J. Liang, Z. Liu, J. Zhou, X. Jiang, C. Zhang, F. Wang, "Model-protected
       multi-task learning", IEEE TPAMI 44(2), 2022."""


class OutputPerturbation(BaseMTL):
    """Parameters, public bounds and report of both baselines."""

    _parameter_constraints = {
        **BaseMTL._parameter_constraints,
        "lam": [Interval(Real, 0, None, closed="neither")],
        "guarantee": [StrOptions({"task", "record"})],
        "group": [StrOptions({"published", "tight", "gaussian", "direct"})],
        "mechanism": [StrOptions({"auto", "gamma", "gaussian"})],
        "max_row_norm": [None, Interval(Real, 0, None, closed="neither")],
        "max_task_rows": [None, Interval(Integral, 1, None, closed="left")],
        "min_task_rows": [None, Interval(Integral, 1, None, closed="left")],
        "clip_norm": [None, Interval(Real, 0, None, closed="neither")],
        "secure": ["boolean"],
    }
    _classification = False
    _trusted = "the curator is trusted and adds the noise once"

    def _check_parameters(self):
        super()._check_parameters()
        if not self._is_private():
            return
        needed = {"max_row_norm": "the norm of every row of features"}
        if not self._classification:
            needed["max_target"] = "the absolute value of every target"
        missing = [name for name in needed if getattr(self, name) is None]
        if missing:
            texts = [f"{name}= (a public bound on {needed[name]})" for name in missing]
            raise ValueError(
                f"A private fit needs {' and '.join(texts)}. The noise is proportional to it, so "
                "that taking it from the data would disclose them; rows beyond it are clipped."
            )

    def _models(self, table, bounds=None):
        return ProximalModels(
            table,
            classification=self._classification,
            fit_intercept=self.fit_intercept,
            lam=float(self.lam),
            bounds=bounds,
        )

    def _bounds(self):
        target = None if self._classification else float(self.max_target)
        clip_norm = None if self.clip_norm is None else float(self.clip_norm)
        return Bounds(
            float(self.max_row_norm), target, clip_norm, float(self.lam), self.fit_intercept
        )

    def _planned_report(self, population):
        if not self._is_private():
            return exact_report()
        source = noise_source(self.random_state, secure=self.secure)
        return self._statement(self._plan(population), population, source)

    def _report(self, budget, table, mechanisms, names, statistic, source, public, notes):
        """The statement of the guarantee; `public` and `notes` are the method's own."""
        given = ("lam", "max_row_norm", "max_target", "max_task_rows", "min_task_rows", "clip_norm")
        public = {
            "n_tasks": table.n_tasks,
            "n_features": table.n_features,
            **{n: getattr(self, n) for n in given if getattr(self, n, None) is not None},
            **public,
        }
        notes = dict(notes)
        if budget.grouped:
            epsilon, delta = budget.record
            notes["group"] = (
                f"{budget.group} group privacy for {budget.size} records; the same releases are "
                f"(epsilon = {epsilon:.6g}, delta = {delta:.6g})-differentially private in every "
                "record"
            )
        if budget.mu is not None:
            # The lemma is loose for Gaussian noise; this is what was really spent.
            notes["epsilon_exact"] = float(gdp_epsilon(budget.mu, budget.delta))
        rows = ("the number of rows of every task is public",) if budget.rows_are_public else ()
        rows += ("whether Newton's method reaches the local models (else: an error) is no secret",)
        if budget.unit == "record":
            rows += (
                "a record is one row of one task: with a 2-D y, a row with labels in several "
                "tasks is protected for each of them alone",
            )
        accounting = "exact Gaussian differential privacy"
        if budget.mu is None:
            accounting = "composition of pure releases"
        return PrivacyReport(
            guarantee=f"{budget.unit} DP",
            unit=budget.unit,
            adjacency=budget.adjacency,
            epsilon=budget.epsilon,
            delta=budget.delta,
            mechanism=f"output perturbation, {mechanisms[0].name} noise",
            sensitivity=[mechanism.sensitivity for mechanism in mechanisms],
            noise_std=[mechanism.noise_std for mechanism in mechanisms],
            mu=budget.mu,
            releases=[
                {"name": name, **mechanism.describe(statistic)}
                for name, mechanism in zip(names, mechanisms, strict=True)
            ],
            accountant=f"skpmtl {__version__}, {accounting}",
            rng=source.description,
            arithmetic=source.arithmetic,
            public_inputs=public,
            assumptions=(self._trusted, *rows, *_ASSUMPTIONS),
            notes=notes,
        )


_ASSUMPTIONS = (
    "rows and targets beyond the public bounds were clipped to them, so that nothing is assumed "
    "about the data",
    "the list of tasks, the features and the classes are public",
    "the parameters were not tuned on these data without being charged for it",
    "whether the input was valid at all is not protected",
)


@dataclass
class AggregationBillboard:
    """The average model, all that `DPAggregation` publishes.

    Attributes
    ----------
    releases : list of one ndarray (width,)
        The noisy average, the intercept last.
    fit_intercept : bool
    report : PrivacyReport
    """

    releases: list
    fit_intercept: bool
    report: object = None

    constraints = {}
    settings = ("fit_intercept",)

    @property
    def n_features(self):
        return len(self.releases[0]) - self.fit_intercept

    def declared(self):
        """See `skpmtl.packing`."""
        if len(self.releases) != 1:
            raise ValueError(f"it has {len(self.releases)} averages, not one")
        yield "a release", self.releases[0], [(self.n_features + self.fit_intercept,)]

    @property
    def mean(self):
        """-> coefficients (n_features,), intercept."""
        return split(self.releases[0][None], self.fit_intercept, 0)


class _Aggregation(OutputPerturbation):
    def __init__(
        self,
        lam=1.0,
        *,
        epsilon=1.0,
        delta=None,
        adjacency="replace-one",
        guarantee="task",
        group="published",
        mechanism="auto",
        max_row_norm=None,
        max_task_rows=None,
        min_task_rows=None,
        clip_norm=None,
        fit_intercept=True,
        task_feature=None,
        tasks="auto",
        unseen_task="mean",
        secure=False,
        random_state=None,
        verbose=0,
    ):
        self.lam = lam
        self.epsilon = epsilon
        self.delta = delta
        self.adjacency = adjacency
        self.guarantee = guarantee
        self.group = group
        self.mechanism = mechanism
        self.max_row_norm = max_row_norm
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

    def _fit_table(self, table):
        if not self._is_private():
            models = self._models(table)
            W = models.solve(np.zeros((table.n_tasks, models.width)))
            board = AggregationBillboard([W.mean(axis=0)], self.fit_intercept, exact_report())
            return self._fitted(table, board)
        plan = budget, reach, mechanism = self._plan(table)
        budget.check_rows(table)
        source = noise_source(self.random_state, secure=self.secure)
        models = self._models(table, self._bounds())
        U = models.contributions(np.zeros((table.n_tasks, models.width)), reach)
        mean = mechanism.release(U.sum(axis=0) / table.n_tasks, source)
        report = self._statement(plan, table, source)
        return self._fitted(table, AggregationBillboard([mean], self.fit_intercept, report))

    def _plan(self, population):
        """-> Budget, Reach, mechanism of the average"""
        budget = Budget(self, population, 1)
        reach = budget.reach(self._bounds(), np.zeros(population.n_tasks))
        sensitivity = reach.sensitivity.max() / population.n_tasks
        family = VectorGaussian if budget.kind == "gaussian" else VectorGamma
        width = population.n_features + bool(self.fit_intercept)
        return budget, reach, family(width, sensitivity, budget.shares[0])

    def _statement(self, plan, population, source):
        budget, _, mechanism = plan
        released = "the noisy average, which is the model of every task: coef_ may be published"
        return self._report(
            budget, population, [mechanism], ["average"], "average of the models of all tasks",
            source, {}, {"released": released},
        )  # fmt: skip

    def _fitted(self, table, board):
        coef, intercept = board.mean
        return {
            "coef_": np.tile(coef, (table.n_tasks, 1)),
            "intercept_": np.full(table.n_tasks, intercept),
            "mean_coef_": coef,
            "mean_intercept_": float(intercept),
            "billboard_": board,
            "privacy_": board.report,
            "n_iter_": 1,
        }

    def _personalize_table(self, table):
        coef, intercept = self.billboard_.mean
        return np.tile(coef, (table.n_tasks, 1)), np.full(table.n_tasks, intercept)


_DOC = """{summary}

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
    {paper}
    .. [2] M. Pathak, S. Rane, B. Raj, "Multiparty differential privacy via aggregation of
       locally trained classifiers", NIPS 2010.

    Examples
    --------
    >>> from skpmtl import {name}
    >>> from skpmtl.datasets import make_low_rank_tasks
    >>> X, y, task = make_low_rank_tasks(n_tasks=50, n_samples=20, n_features=3, random_state=0)
    >>> est = {name}(group="direct", max_row_norm=1, {bound}tasks=range(50))
    >>> est = est.fit(X, {y}, task=task)
    >>> est.privacy_.guarantee, bool((est.coef_ == est.mean_coef_).all())
    ('task DP', True)
    """


def _doc(**words):
    common = COMMON_DOC.format(
        direct="the average",
        clip="Public bound on the norm of a task's model, enforced before averaging. None: that "
        "which\n        follows from the other bounds.",
        unseen='"mean"',
        mean="the average",
        more="",
        coef="The average, once for every task.",
        average="The average.",
        board="AggregationBillboard",
        n_iter="1.",
        objective="",
        class_list=CLASS_LIST_DOC if words["classes"] else "",
        **{k: words.pop(k) for k in ("target", "classes")},
    )
    return _DOC.format(common=common, paper=PAPER_DOC, **words)


class DPAggregation(MTLRegressorMixin, _Aggregation):
    __doc__ = _doc(
        summary="DP-AGGR: private average of linear regressions.",
        model="least-squares model",
        loss="1/2 (y_i - x_i'w - b)^2",
        lipschitz="L = R (Y + R B), R the bound on a row with its constant feature, Y on a target.",
        reach="min(R Y / lam, Y / (2 sqrt(lam)), clip_norm)",
        name="DPAggregation",
        bound="max_target=3, ",
        y="y",
        target=MAX_TARGET_DOC,
        classes="",
    )

    def __init__(
        self,
        lam=1.0,
        *,
        epsilon=1.0,
        delta=None,
        adjacency="replace-one",
        guarantee="task",
        group="published",
        mechanism="auto",
        max_row_norm=None,
        max_target=None,
        max_task_rows=None,
        min_task_rows=None,
        clip_norm=None,
        fit_intercept=True,
        task_feature=None,
        tasks="auto",
        unseen_task="mean",
        secure=False,
        random_state=None,
        verbose=0,
    ):
        super().__init__(
            lam,
            epsilon=epsilon,
            delta=delta,
            adjacency=adjacency,
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
        self.max_target = max_target


class DPAggregationClassifier(MTLClassifierMixin, _Aggregation):
    __doc__ = _doc(
        summary="DP-AGGR: private average of logistic regressions, two classes.",
        model="logistic model",
        loss="log(1 + exp(-y_i (x_i'w + b)))",
        lipschitz="L = R / (1 + exp(-R B)), R the bound on a row with its constant feature.",
        reach="min(R / (2 lam), sqrt(0.2785 / lam), clip_norm)",
        name="DPAggregationClassifier",
        bound="classes=[False, True], ",
        y="y > 0",
        target="",
        classes=CLASSES_DOC,
    )
    _classification = True
    _one_class_tasks = "allow"
