"""Estimators of Algorithm 1 and of what its experiments compare it with, for linear models."""

import math
import warnings
from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np
from scipy import sparse

from ..._runtime.constraints import Interval, StrOptions, take
from ..._runtime.stack import users_line
from ...base import MTLClassifierMixin, MTLRegressorMixin
from ...exchange.protocol import allow_for_rounding, run
from ...privacy.accounting import check_budget, check_positive
from ...privacy.report import PrivacyReport
from ..published import Published, with_classes
from .models import linear_model, tasks_of
from .outputs import outputs_of
from .plan import FixedRelation, PMTLPlan
from .rounds import METHODS, GradientSteps, LocalTasks, curator, finetuned

__all__ = ["BiasedMeanWarning", "PMTLReleases", "PublishedPMTL", "PublishedPMTLClassifier"]


class BiasedMeanWarning(UserWarning):
    """Algorithm 1 as printed moves the shared model by m / q times what the mean model moves."""


@dataclass
class PMTLReleases:
    """What a fit publishes.

    Attributes
    ----------
    shared : ndarray (size,)
        w~ after the last round; (m, size), the models of all tasks, with
        ``method="concatenated"``; None where nothing is released.
    lengths : list of float
        Of the released updates.
    report : PrivacyReport
    """

    shared: np.ndarray | None
    lengths: list
    report: PrivacyReport


class PMTLRounds(Published):
    """Fit and predict, for any model with the interface of `models`."""

    _parameter_constraints = {
        **Published._parameter_constraints,
        "method": [StrOptions(set(METHODS))],
        "lam": [Interval(Real, 0, None, closed="left")],
        "epsilon": [Interval(Real, 0, None, closed="neither"), None],
        "delta": [Interval(Real, 0, 1, closed="neither"), None],
        "adjacency": [StrOptions({"replace-one", "zero-out"})],
        "clip_norm": [Interval(Real, 0, None, closed="neither")],
        "noise_multiplier": [Interval(Real, 0, None, closed="neither"), None],
        "n_rounds": [Interval(Integral, 1, None, closed="left")],
        "n_sampled": [Interval(Integral, 1, None, closed="left"), None],
        "local_steps": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "batch_size": [Interval(Integral, 1, None, closed="left"), None],
        "task_loss": [StrOptions({"mean", "sum"})],
        "relation": ["array-like", None],
        "personalization": [StrOptions({"none", "finetune", "mean-reg", "symmetrized-kl", "ewc"})],
        "personal_steps": [Interval(Integral, 1, None, closed="left")],
        "personal_lam": [Interval(Real, 0, None, closed="left"), None],
        "monitor": [callable, None],
        "fit_intercept": ["boolean"],
        "secure": ["boolean"],
    }

    def _check_parameters(self):
        super()._check_parameters()
        if self.epsilon is not None and self.noise_multiplier is not None:
            raise ValueError(
                f"epsilon={self.epsilon!r} and noise_multiplier={self.noise_multiplier!r} both set "
                "the noise: pass epsilon=None with a noise_multiplier."
            )
        if METHODS[self.method].parts and self.n_sampled is not None:
            raise ValueError(
                'method="concatenated" releases a part of every task in every round: leave '
                "n_sampled=None."
            )
        if self.relation is not None and (
            self.method != "algorithm-1" or self.n_sampled is not None
        ):
            raise ValueError(
                'relation= is for method="algorithm-1" with all tasks in every round: leave '
                "n_sampled=None, or relation=None."
            )
        if self.epsilon is not None:
            check_positive(epsilon=self.epsilon)

    def _is_private(self):
        return self.noise_multiplier is not None or super()._is_private()

    def _plan(self, n_tasks):
        q = n_tasks if self.n_sampled is None else self.n_sampled
        if q > n_tasks:
            raise ValueError(
                f"n_sampled={q} is more than the {n_tasks} tasks: pass a smaller number, or None."
            )
        epsilon = self.epsilon if self.epsilon != math.inf else None
        delta = 1.0 / n_tasks if self.delta is None else self.delta
        if self._is_private() and self.method != "local":
            if self.delta is not None:
                check_budget(1.0 if epsilon is None else epsilon, delta, n_tasks)
            if not delta < 1:
                raise ValueError("One task has no default delta, 1 / n_tasks: pass delta=.")
        method = METHODS[self.method]
        if method.own and method.sends == "own" and not method.over_tasks and q < n_tasks:
            warnings.warn(
                f"Algorithm 1 as printed divides by the {q} tasks of a round, not by all "
                f"{n_tasks}: the shared model becomes {n_tasks / q:.3g} times the mean of the "
                'models that tasks sent. method="unbiased" divides by all tasks.',
                BiasedMeanWarning,
                stacklevel=users_line(),
            )
        relation = None if self.relation is None else FixedRelation(self.relation, n_tasks)
        return PMTLPlan(
            self.method,
            n_tasks,
            q,
            self.n_rounds,
            float(self.clip_norm),
            epsilon,
            delta,
            self.noise_multiplier,
            self.adjacency,
            relation,
        )

    def _fit_table(self, table):
        self._refuse_weights(table)
        m = len(table.everybody)
        plan = self._plan(m)
        source = self._source()
        outputs = outputs_of(table.n_classes)
        model = self._model(table, outputs)
        self._check_memory(m, model.size)
        steps = GradientSteps(self.local_steps, self.learning_rate, self.lam, self.batch_size)
        seed = (source.uniform(1)[0] * 2.0**53).astype(np.uint64)  # of batches, not of noise
        tasks = LocalTasks(
            METHODS[self.method],
            model,
            outputs,
            steps,
            np.random.default_rng(int(seed)),
            None if plan.relation is None else plan.relation.out,
        )

        def watch(t, shared):
            self.monitor(t, tasks, shared)

        shared, lengths = None, []
        if plan.n_rounds:
            rounds = curator(plan, model.start, None if self.monitor is None else watch)
            shared, lengths = run(allow_for_rounding(rounds, m), tasks, source)
        else:
            everyone = np.arange(m)
            for t in range(self.n_rounds):
                tasks.take_part(everyone, model.start)
                if self.monitor is not None:
                    watch(t + 1, model.start)
        W = tasks.results(shared)
        if self.personalization != "none":
            lam = self.lam if self.personal_lam is None else self.personal_lam
            centre = model.start if shared is None else shared
            personal = GradientSteps(self.personal_steps, self.learning_rate, lam)
            W = finetuned(tasks, W, centre, self.personalization, personal)
        each = W if W.strides[0] else W[:1]
        lost = np.flatnonzero([not np.isfinite(w).all() for w in each])
        if len(lost) and plan.noise_multiplier is None:
            raise ValueError(
                "The rounds diverged: their models are not finite. Take a smaller learning_rate, "
                "and scale X to rows of length about 1."
            )
        if len(lost):  # their rows overflow; an error would tell the other tasks so
            W[lost] = tasks.centres(lost, shared)
        report = self._report(plan, source)
        return {
            "task_models_": W,
            "billboard_": PMTLReleases(shared, lengths, report),
            "privacy_": report,
            "_model_": self._without_rows(model),
            "_plan_": plan,
        }

    def _report(self, plan, source):
        alone = self._is_private() and self.method == "local"
        noisy = plan.noise_multiplier is not None or alone
        return self._report_of(plan if noisy else None, source)

    def _check_memory(self, m, size):
        """Models of all tasks are dense, see the page of the paper."""
        if m * size > 2**31:
            raise ValueError(
                f"{m} models of {size} numbers need {m * size * 8 / 2**30:.0f} GiB: take fewer "
                "features, classes or tasks."
            )

    def history(self):
        """What was spent after every round.

        Returns
        -------
        rounds : list of dict
            "round", from 1 on, "epsilon" of all rounds so far at the delta of the fit (None
            without privacy), "noise_std" of a number of the release (sigma of the paper), "update",
            the length of the released update.
        """
        plan, private = self._plan_, self._plan_.noise_multiplier is not None
        return [
            {
                "round": t + 1,
                "epsilon": plan.epsilon_after(t + 1) if private else None,
                "noise_std": plan.noise_std,
                "update": length,
            }
            for t, length in enumerate(self.billboard_.lengths)
        ]

    def _scores_of(self, k, X):
        model = self._model_
        X = model.features(X)
        found = model.scores(self.task_models_[[k]], X if sparse.issparse(X) else X[None])[0]
        return found[:, 0] if model.n_outputs == 1 else found


_LINEAR = """Private multi-task {kind} as published: Algorithm 1 and its competitors.

    Plain gradient steps, Gaussian noise and one clip norm, as in the paper [1]_. For everyday use
    take `{everyday}`.

    Parameters
    ----------
    method : {{"algorithm-1", "unbiased", "stateful", "fedavg", "fedprox", "ppsgd", \
"concatenated", "local"}}, default="algorithm-1"
        Algorithm 1 as printed, and with the sum divided by the number of all tasks; the update of
        the authors' code; one model for all (McMahan et al., 2017), and with a proximal term (Li
        et al., 2020); a shared and a personal part (Bietti et al., 2022); figure 1, the models of
        all tasks published; every task alone. See `skpmtl.reproduction.pmtl.rounds`.
    lam : float, default=1.0
        Strength lambda of the penalty ``lam / 2 |w - w~|^2`` in local steps.
    epsilon : float or None, default=1.0
        Budget of all rounds together. None: the noise is that of `noise_multiplier`; without it
        there is neither clipping nor noise.
    delta : float or None, default=None
        None: 1 / m for m tasks, the paper's.
    adjacency : {{"replace-one", "zero-out"}}, default="replace-one"
        Definitions 1 to 3 of the paper replace the data of one task; "zero-out" needs half the
        noise, and protects whether a task contributes anything.
    clip_norm : float, default=1.0
        gamma, the largest length of what a task sends.
    noise_multiplier : float or None, default=None
        Standard deviation of the noise on the sum of updates over gamma. sigma of the paper is
        noise_multiplier * clip_norm / q.
    n_rounds : int, default=20
        T.
    n_sampled : int or None, default=None
        q, the tasks that are drawn for a round. None: all. No privacy is gained by the draw, which
        tasks notice.
    local_steps : int, default=10
        E.
    learning_rate : float, default=0.1
        eta, of all gradient steps.
    batch_size : int or None, default=None
        Rows of a local step, drawn with replacement. None: all rows.
    task_loss : {{"mean", "sum"}}, default="mean"
        Over the rows of a task. "sum" is equation 2 of the paper, "mean" the authors' code.
    relation : array-like of shape (n_tasks, n_tasks) or None, default=None
        Omega of objective 1, fixed, public and symmetric, in the order of the sorted tasks; the
        penalty is lam / 2 tr(W Omega W'). Rounds converge where its eigenvalues are in [0, 2].
        None: the mean-regularised relation I - 11'/m.
    personalization : {{"none", "finetune", "mean-reg"{kl}, "ewc"}}, \
default="none"
        GradientSteps of every task after the rounds, from its result, see
        `skpmtl.reproduction.pmtl.rounds.finetuned`.
    personal_steps : int, default=20
        Their number.
    personal_lam : float or None, default=None
        Their strength. None: `lam`.
    monitor : callable or None, default=None
        ``monitor(t, tasks, shared)`` after round t, for figures over rounds: the models of the
        tasks are ``W = tasks.results(shared)``, their losses ``tasks.losses(W)``. What it keeps is
        outside the guarantee.
    fit_intercept : bool, default=True
        A column of ones, whose coefficient is shared and regularised like others.
    task_feature : str, int, list or None, default=None
        Column of the task ids.
    tasks : "auto" or array-like, default="auto"
        Public list of the tasks.{classes}
    secure : bool, default=False
        Exact discrete samplers of OpenDP.
    random_state : int, Generator, RandomState or None, default=None
        None: noise from the operating system.

    Attributes
    ----------
    task_models_ : ndarray of shape (n_tasks, size)
        Numbers of the models, of features times outputs, the intercepts last.
    coef_ : ndarray of shape (n_tasks, n_features){several}
    intercept_ : ndarray of shape (n_tasks,){several_intercepts}
    billboard_ : skpmtl.reproduction.pmtl.estimators.PMTLReleases
        Everything that was published.
    privacy_ : PrivacyReport
    tasks_ : ndarray of shape (n_tasks,)

    References
    ----------
    .. [1] S. Hu, Z. S. Wu, V. Smith, "Private multi-task learning: formulation and
       applications to federated learning", TMLR, 2023.
    """


class LinearRounds(PMTLRounds):
    """Linear models."""

    def __init__(
        self,
        method="algorithm-1",
        *,
        lam=1.0,
        epsilon=1.0,
        delta=None,
        adjacency="replace-one",
        clip_norm=1.0,
        noise_multiplier=None,
        n_rounds=20,
        n_sampled=None,
        local_steps=10,
        learning_rate=0.1,
        batch_size=None,
        task_loss="mean",
        relation=None,
        personalization="none",
        personal_steps=20,
        personal_lam=None,
        monitor=None,
        fit_intercept=True,
        task_feature=None,
        tasks="auto",
        secure=False,
        random_state=None,
    ):
        take(self, locals())

    def _model(self, table, outputs):
        c = table.n_classes if table.n_classes > 2 else 1
        return linear_model(
            tasks_of(table, outputs), c, fit_intercept=self.fit_intercept, loss=self.task_loss
        )

    def _without_rows(self, model):
        return model.blank()

    def _matrices(self):
        """(m, c, d) and intercepts (m, c)."""
        W = self.task_models_.reshape(len(self.task_models_), -1, self._model_.n_outputs)
        W = W.transpose(0, 2, 1)
        if not self.fit_intercept:
            return W, np.zeros(W.shape[:2])
        return W[..., :-1], W[..., -1]

    @property
    def coef_(self):
        coef = self._matrices()[0]
        return coef[:, 0] if coef.shape[1] == 1 else coef

    @property
    def intercept_(self):
        intercept = self._matrices()[1]
        return intercept[:, 0] if intercept.shape[1] == 1 else intercept


class PublishedPMTL(MTLRegressorMixin, LinearRounds):
    __doc__ = _LINEAR.format(
        kind="regression",
        everyday="PrivateMeanRegMTL",
        kl="",
        classes="",
        several="",
        several_intercepts="",
    )
    _weighs_rows = False

    def _check_parameters(self):
        super()._check_parameters()
        if self.personalization == "symmetrized-kl":
            outputs_of(0).divergence_slope(None, None)


class PublishedPMTLClassifier(MTLClassifierMixin, LinearRounds):
    __doc__ = _LINEAR.format(
        kind="classification",
        everyday="PrivateMeanRegMTLClassifier",
        kl=', "symmetrized-kl"',
        classes='\n    classes : "auto" or array-like, default="auto"\n        Public list of the '
        "classes.",
        several=", or (n_tasks, n_classes, n_features)",
        several_intercepts=", or (n_tasks, n_classes)",
    )
    _multiclass = True

    __init__ = with_classes(LinearRounds.__init__)

    def _with_targets(self, table):
        return table  # the numbers of the classes
