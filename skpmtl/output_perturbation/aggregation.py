"""Output perturbation of records, and the average of local models (DP-AGGR).

The baselines DP-AGGR and DP-MTRL (`skpmtl.output_perturbation.relationship`) of the
model-protected paper protect a record of a task, as published; Proposition 3 of the paper makes a
guarantee for whole tasks of it by group privacy.
"""

import numpy as np

from ..base import CLASS_LIST_DOC, MTLClassifierMixin, MTLRegressorMixin
from ..privacy.mechanisms import VectorGamma, VectorGaussian
from ..privacy.report import exact_report
from ..privacy.rng import noise_source
from .board import AggregationBillboard
from .estimators import CLASSES_DOC, COMMON_DOC, MAX_TARGET_DOC, PAPER_DOC, OutputPerturbation
from .plan import PerturbationPlan

__all__ = [
    "DPAggregation",
    "DPAggregationClassifier",
]


class _Aggregation(OutputPerturbation):
    _boards = (AggregationBillboard,)

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
        """-> PerturbationPlan, Reach, mechanism of the average"""
        budget = PerturbationPlan(self, population, 1)
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
