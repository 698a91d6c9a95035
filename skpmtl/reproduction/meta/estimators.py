"""Estimators of Algorithm 1 and of the batch version of the experiments, for linear models."""

import math
from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..._runtime.constraints import Interval, StrOptions, take
from ...base import MTLClassifierMixin, MTLRegressorMixin, merge_rows
from ...exchange.plan import n_servers_of
from ...exchange.protocol import allow_for_rounding, run
from ...privacy.accounting import check_positive
from ...privacy.report import PrivacyReport
from ..published import Published, with_classes
from .models import GeneralizedLinear
from .plan import MetaRoundsPlan
from .rounds import META_STEPS, MetaTasks, meta_learner, minibatch_descent, online_descent

__all__ = ["MetaRounds", "PublishedInit", "PublishedMetaInit", "PublishedMetaInitClassifier"]
_POSITIVE = [Interval(Real, 0, None, closed="neither")]
_COUNT = [Interval(Integral, 1, None, closed="left")]


@dataclass
class PublishedInit:
    """What a fit publishes.

    Attributes
    ----------
    init : ndarray (size,)
        The initialisation.
    path : ndarray (n_rounds + 1, size)
        phi_1 and the result of every round.
    report : PrivacyReport
    """

    init: np.ndarray
    path: np.ndarray
    report: PrivacyReport


class MetaRounds(Published):
    """Fit, personalize and predict, for any model with the interface of `models`."""

    _parameter_constraints = {
        **Published._parameter_constraints,
        "epsilon": [Real, None],
        "delta": [Interval(Real, 0, 1, closed="neither"), None],
        "adjacency": [StrOptions({"replace-one", "zero-out"})],
        "privacy": [StrOptions({"task-global", "local"}), None],
        "curator": [StrOptions({"trusted", "servers"}), tuple, list],
        "group_size": _COUNT,
        "clip_norm": _POSITIVE,
        "descent": [StrOptions({"sgd", "bassily"})],
        "inner_steps": _COUNT,
        "inner_learning_rate": _POSITIVE,
        "batch_size": [*_COUNT, None],
        "inner_iterate": [StrOptions({"average", "last"})],
        "meta_step": [StrOptions(set(META_STEPS))],
        "meta_learning_rate": _POSITIVE,
        "meta_decay": [Interval(Real, 0, 1, closed="right")],
        "iterate": [StrOptions({"average", "last"})],
        "tasks_per_round": _COUNT,
        "visits": _COUNT,
        "diameter": [*_POSITIVE, None],
        "init": ["array-like", None],
        "refine": [StrOptions({"online", "minibatch"})],
        "refine_learning_rate": _POSITIVE,
        "refine_epochs": [Interval(Integral, 0, None, closed="left")],
        "refine_batch_size": [*_COUNT, None],
        "fit_intercept": ["boolean"],
        "secure": ["boolean"],
    }

    def _check_parameters(self):
        super()._check_parameters()
        if self.epsilon is not None:
            check_positive(epsilon=self.epsilon)
        if self.descent == "bassily" and (self.diameter is None or self._mode() != "task-global"):
            raise ValueError(
                'descent="bassily" takes its steps and noise from a budget for records and the '
                'size of the parameter space: set privacy="task-global", epsilon= and diameter=.'
            )
        if self._n_servers > 1 and (self.diameter is None or not self._is_private()):
            raise ValueError(
                'curator="servers" adds up shares of bounded numbers of a private fit: set '
                "diameter= and a finite epsilon."
            )

    @property
    def _n_servers(self):
        return n_servers_of(self.curator)

    def _is_private(self):
        return self._mode() is not None

    def _mode(self):
        return self.privacy if super()._is_private() else None

    # ------------------------------------------------------------------------- fit
    def _fit_table(self, table):
        source = self._source()
        model, rows = self._model_of(table), self._rows_of(table)
        plan = MetaRoundsPlan(self, table.sizes, model.size, self._mode())
        tasks = MetaTasks(model, rows, plan, source)
        learner = allow_for_rounding(meta_learner(plan, model.start), len(table.sizes))
        init, path = run(learner, tasks, source, None, self._n_servers)
        if not np.isfinite(path).all():
            raise ValueError(
                "The rounds diverged: their models are not finite. Take a smaller "
                "inner_learning_rate, and scale X to rows of length about 1."
            )
        report = plan.report(source)
        if self._n_servers > 1:
            report.notes["servers"] = (
                f"{self._n_servers} servers add shares of what tasks send, which has its noise: "
                "unless all of them pool their shares, none sees the model of one task. In this "
                "fit all of them were one process"
            )
        fitted = {
            "_model_": model,
            "init_coef_": init,
            "init_path_": path,
            "n_iter_": len(path) - 1,
            "billboard_": PublishedInit(init, path, report),
            "privacy_": report,
        }
        return {**fitted, "task_models_": self._refined(model, init, rows)}

    def _model_of(self, table):
        model = self._model(table.n_features, table.n_classes)
        if self.init is not None:
            init = np.asarray(self.init, dtype=float).ravel()
            if init.shape != (model.size,) or not np.isfinite(init).all():
                raise ValueError(
                    f"init= must hold {model.size} finite numbers, those of one model, intercepts "
                    f"last; it has {init.size}."
                )
            model.start = init
        return model

    def _rows_of(self, table):
        self._refuse_weights(table)
        X = table.X if not table.is_sparse else table.X.toarray()
        X = X if table.rows is None else X[table.rows]
        y = np.asarray(table.y, dtype=float)
        ends = table.offsets[1:-1]
        return list(zip(np.split(np.asarray(X), ends), np.split(y, ends), strict=True))

    def _refined(self, model, init, rows):
        """Models of tasks from the initialisation and their own rows, (n, size)."""
        radius = math.inf if self.diameter is None else 0.5 * self.diameter
        rate = self.refine_learning_rate
        if self.refine == "online":
            found = [online_descent(model, init, X, y, rate, radius)[0] for X, y in rows]
        else:
            found = [
                minibatch_descent(
                    model, init, X, y, rate, radius, self.refine_epochs, self.refine_batch_size
                )
                for X, y in rows
            ]
        return np.array(found).reshape(len(rows), model.size)

    def _with_absent(self, fitted, table):
        tasks = table.everybody
        here, away = np.searchsorted(tasks, table.tasks), np.searchsorted(tasks, table.absent)
        models = fitted["task_models_"], np.tile(fitted["init_coef_"], (len(away), 1))
        whole = merge_rows(len(tasks), here, models[0], away, models[1])
        return {**fitted, "task_models_": whole}

    def personalize(self, X, y, task=None):
        """Add tasks that were not in `fit`, or replace models, at no privacy cost.

        Parameters
        ----------
        X, y, task
            As in `fit`.

        Returns
        -------
        self : object
        """
        check_is_fitted(self)
        table = self._read_new_tasks(X, y, task, None)
        models = self._refined(self._model_, self.init_coef_, self._rows_of(table))
        models = (
            self._with_absent({"task_models_": models, "init_coef_": self.init_coef_}, table)[
                "task_models_"
            ]
            if len(table.absent)
            else models
        )
        tasks, form = self._add_labels(table.everybody)
        old, new = np.searchsorted(tasks, self.tasks_), np.searchsorted(tasks, table.everybody)
        self.task_models_ = merge_rows(len(tasks), old, self.task_models_, new, models)
        self.tasks_, self._form_ = tasks, form
        self._forget_idle(table.tasks)
        return self

    # ------------------------------------------------------------------------- predict
    def _scores_of(self, k, X):
        X = X.toarray() if hasattr(X, "toarray") else X
        found = self._model_.scores(self.task_models_[k], X)
        return found[:, 0] if found.ndim == 2 and found.shape[1] == 1 else found


PARAMETERS = (
    "epsilon, delta, adjacency, privacy, curator, group_size, clip_norm, descent, inner_steps, \
inner_learning_rate, batch_size, inner_iterate, meta_step, meta_learning_rate, meta_decay, \
iterate, tasks_per_round, visits, diameter, refine, refine_learning_rate, refine_epochs, \
refine_batch_size, task_feature, tasks, secure, random_state"
)

_DOC = """Differentially private meta-learning as published, for linear models{kind}.

    The defaults are Algorithm 1 of [1]_ with full batches: one task at a time, follow the leader,
    the average initialisation, and averaged online descent at new tasks. The batch version of its
    experiments is ``meta_step="reptile"``, ``iterate="last"``, ``inner_iterate="last"``,
    ``refine="minibatch"`` and `tasks_per_round` above 1. For everyday use take
    `skpmtl.DPMetaInit{twin}`.

    Parameters
    ----------
    epsilon : float or None, default=1.0
        Budget of every task for one record, or for a task ("local"). None: neither clipping nor
        noise.
    delta : float or None, default=None
        None: min(1e-5, 1 / n^2) for n records of all tasks, or n tasks.
    adjacency : {{"replace-one", "zero-out"}}, default="replace-one"
        "zero-out" needs half the noise. "local" is for any two updates, whatever this says.
    privacy : {{"task-global", "local"}} or None, default="task-global"
        Noise in the descent within a task, for its records; or on the clipped update of a task, for
        the task; or none.
    curator : {{"trusted", "servers"}} or ("servers", P), default="trusted"
        Who adds up what the tasks of a round send. Noise is in it already; servers hold shares,
        which needs a `diameter`.
    group_size : int, default=1
        Records of a task that are protected together (Corollary 3.1).
    clip_norm : float, default=1.0
        Largest length of the gradient of one row ("local": of an update).
    descent : {{"sgd", "bassily"}}, default="sgd"
        "bassily": steps, rate, batches and noise of Bassily et al. (2019), Algorithm 1 and
        Theorem 3.2, which is the descent of Theorem 3.1. Their noise is for `epsilon` by an
        argument about sampling; the report states what it certainly keeps, which is more.
    inner_steps : int, default=10
        Steps of a task in one visit.
    inner_learning_rate : float, default=0.1
        Their length on the mean loss.
    batch_size : int or None, default=None
        Rows of a step, drawn with replacement. None: all rows.
    inner_iterate : {{"average", "last"}}, default="average"
        What a task sends.
    meta_step : {{"ftl", "aogd", "reptile"}}, default="ftl"
        Follow the leader, adaptive online gradient descent, or a constant part
        `meta_learning_rate` of the way to the mean of a round.
    meta_learning_rate : float, default=1.0
    meta_decay : float, default=1.0
        Factor of the meta rate in every round.
    iterate : {{"average", "last"}}, default="average"
        Result: the average of the initialisations that were sent, or the last one.
    tasks_per_round : int, default=1
    visits : int, default=1
        Times that each task takes part; its budget is for all of them together.
    diameter : float or None, default=None
        Of the ball of parameters around phi_1, onto which all iterates are projected. None: all
        vectors.
    init : array-like of shape (size,) or None, default=None
        Public phi_1, of every output its coefficients and its intercept. None: 0.
    refine : {{"online", "minibatch"}}, default="online"
        At a task: one step on every row in turn and the average of the iterates, or epochs over
        batches and the last iterate. Neither is private: the model stays with the task.
    refine_learning_rate : float, default=0.1
    refine_epochs : int, default=1
        Of "minibatch"; 0 is the initialisation itself.
    refine_batch_size : int or None, default=None
        Of "minibatch". None: all rows.
    fit_intercept : bool, default=True
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
        Of every output the coefficients and the intercept.
    init_coef_ : ndarray of shape (size,)
        The initialisation.
    init_path_ : ndarray of shape (n_rounds + 1, size)
        phi_1 and the initialisation after every round.
    billboard_ : skpmtl.reproduction.meta.estimators.PublishedInit
        Everything that was published.
    privacy_ : PrivacyReport
    tasks_ : ndarray of shape (n_tasks,)
    n_iter_ : int
        Rounds.{seen}

    References
    ----------
    .. [1] J. Li, M. Khodak, S. Caldas, A. Talwalkar, "Differentially private meta-learning",
       ICLR, 2020.
    """


class _LinearRounds(MetaRounds):
    def _model(self, n_features, n_classes):
        return GeneralizedLinear(n_features, n_classes, self.fit_intercept)


class PublishedMetaInit(MTLRegressorMixin, _LinearRounds):
    __doc__ = _DOC.format(kind="", twin="", classes="", seen="")
    _weighs_rows = False

    def __init__(
        self,
        *,
        epsilon=1.0,
        delta=None,
        adjacency="replace-one",
        privacy="task-global",
        curator="trusted",
        group_size=1,
        clip_norm=1.0,
        descent="sgd",
        inner_steps=10,
        inner_learning_rate=0.1,
        batch_size=None,
        inner_iterate="average",
        meta_step="ftl",
        meta_learning_rate=1.0,
        meta_decay=1.0,
        iterate="average",
        tasks_per_round=1,
        visits=1,
        diameter=None,
        init=None,
        refine="online",
        refine_learning_rate=0.1,
        refine_epochs=1,
        refine_batch_size=None,
        fit_intercept=True,
        task_feature=None,
        tasks="auto",
        secure=False,
        random_state=None,
    ):
        take(self, locals())


class PublishedMetaInitClassifier(MTLClassifierMixin, _LinearRounds):
    __doc__ = _DOC.format(
        kind=" and classes",
        twin="Classifier",
        classes='\n    classes : "auto" or array-like, default="auto"\n'
        "        Public list of the classes.",
        seen="\n    classes_ : ndarray of shape (n_classes,)",
    )
    _multiclass, _spreads_labels = True, False

    __init__ = with_classes(PublishedMetaInit.__init__)
