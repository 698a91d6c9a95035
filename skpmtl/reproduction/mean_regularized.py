"""The rounds of Hu, Wu and Smith with all options of the paper, and the baselines of its tables.

What a task sends, who takes part, how bounds move and how tasks personalise are parameters here.
`PrivateMeanRegMTL` has settled them.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from .._docstrings import LOSS
from .._runtime.compat import StrOptions
from .._runtime.hints import Adjacency, ClassWeight, Curator, RandomState
from .._runtime.threads import in_order
from ..base import MTLClassifierMixin, MTLRegressorMixin
from ..local.updates import add_clipped_columns, add_clipped_rows, in_units
from ..mean_regularized.billboard import MeanBillboard
from ..mean_regularized.estimators import (
    MeanRegularized,
    PrivateMeanRegMTL,
    PrivateMeanRegMTLClassifier,
)
from ..mean_regularized.tasks import MeanTaskSide

__all__ = [
    "LocalOnly",
    "LocalOnlyClassifier",
    "PPSGD",
    "PPSGDClassifier",
    "PrivateFedAvg",
    "PrivateFedAvgClassifier",
    "PrivateFedProx",
    "PrivateFedProxClassifier",
    "PublishedMeanRegMTL",
    "PublishedMeanRegMTLClassifier",
]
_PLAIN_STEPS = 20  # gradient steps of one round of the other updates
_KEEP_MODELS = ("algorithm-1", "stateful", "ppsgd")  # updates with a dense model per task


class RunningModels:
    """Updates by plain gradient steps, some with a model that every task keeps over the rounds.

    Steps have length `rate` over the smoothness of the task's objective. W (n_tasks, size), or
    None, are running models ("ppsgd": personal parts theta_k).

    ==============  ======================  ======================================
    update          starts from             sends
    ==============  ======================  ======================================
    "algorithm-1"   its model w_k           new w_k - old w_k
    "stateful"      its model w_k           new w_k - w~
    "fedavg"        w~ (no penalty)         new model - w~
    "fedprox"       w~                      new model - w~
    "ppsgd"         w~ + theta_k            movement of the shared part
    ==============  ======================  ======================================
    """

    def __init__(self, centred, update, size, *, n_steps, rate):
        self.centred, self.update, self.n_steps, self.rate = centred, update, n_steps, rate
        keeps = update in _KEEP_MODELS
        if centred.table.is_sparse and keeps:
            raise ValueError(
                f"update={update!r} keeps a dense model for every task, which sparse X is not "
                "meant for: use PrivateMeanRegMTL, or X.toarray()."
            )
        self.W = np.zeros((centred.table.n_tasks, size)) if keeps else None
        self.strength = np.zeros_like(centred.strength) if update == "fedavg" else centred.strength

    def sum_of_updates(self, pick, centres, clip_norm, total, unit=None, to=None):
        """As `ProximalUpdates.sum_of_updates`; moves the running models of the tasks `pick`."""
        centred, to = self.centred, self.centred.which if to is None else to

        def shared(block):
            mine = centres[centred.which[block]]
            return mine if unit is None else unit[block, None] * mine

        def solve(block):
            start = None
            if self.W is not None:
                start = self.W[block] - (0.0 if self.update == "ppsgd" else shared(block))
            return centred.steps(
                block,
                centres,
                self.strength,
                unit=unit,
                n_steps=self.n_steps,
                accelerate=False,
                rate=self.rate,
                start=start,
                trace=self.update == "ppsgd",
            )

        for local in in_order(solve, centred.blocks(pick)):
            if centred.table.is_sparse:
                in_units(local.D, unit, np.repeat(local.pick, np.diff(local.ends)))
                whole = np.ones(len(centred.which))
                add_clipped_columns(local, centred, centres, whole, clip_norm, total)
                continue
            block, D = local.pick, local.D.reshape(len(local.pick), -1)
            if self.update == "ppsgd":
                self.W[block] = D - local.descent
                D = local.descent
            elif self.update == "algorithm-1":
                old = self.W[block]
                self.W[block] = shared(block) + D
                D = self.W[block] - old
            elif self.update == "stateful":
                self.W[block] = shared(block) + D
            in_units(D, unit, block)
            add_clipped_rows(D, to[block], clip_norm, total)

    def models(self, centres, unit):
        """Personal models that the rounds left, (n_tasks, size), or None."""
        if self.update == "ppsgd":
            return unit[:, None] * centres[self.centred.which] + self.W
        return self.W


class RunningTaskSide(MeanTaskSide):
    """The task side of the rounds, with any of the updates."""

    def __init__(self, est, table, problem, which, relation=None, public_init=None):
        super().__init__(est, table, problem, which, relation, public_init)
        if est.update != "prox":
            steps = _PLAIN_STEPS if isinstance(est.local_steps, str) else est.local_steps
            self.updates = RunningModels(
                self.centred,
                est.update,
                problem.n_outputs * self.table.n_features,
                n_steps=steps,
                rate=est.local_learning_rate,
            )

    @property
    def remembers(self):
        return self.updates.W is not None

    @property
    def state(self):
        """The running models."""
        return {"running": self.updates.W} if self.remembers else {}

    @state.setter
    def state(self, arrays):
        if arrays:
            self.updates.W = arrays["running"]

    def final_models(self, billboard, personalize):
        personal, own = personalize(), self.own_models(billboard)
        return personal if own is None else (own, *personal[1:2])

    def own_models(self, billboard):
        """Coefficients that the rounds left with the tasks, for personalization="none"; or None."""
        if not self.remembers or billboard.personalization != "none":
            return None
        unit = self.unit() if billboard.own_units else np.ones(self.table.n_tasks)
        return billboard.models(self.updates.models(self.around(billboard.centres), unit))


if TYPE_CHECKING:  # a mixin stands before an estimator
    _BeforePublished = MeanRegularized
else:
    _BeforePublished = object


class Published(_BeforePublished):
    """Mixin of `MeanRegularized` with the options of the paper as parameters."""

    _parameter_constraints: ClassVar[dict] = {
        **MeanRegularized._parameter_constraints,
        "update": [StrOptions({"prox", "algorithm-1", "stateful"})],
    }
    _task_sides = RunningTaskSide
    _fixed: ClassVar[tuple[str, ...]] = ()
    _billboards: ClassVar[tuple[type, ...]] = (MeanBillboard,)

    def _fit_exact(self, table):
        if self.update != "prox":  # the same rounds, without noise
            return self._fit_table(table)
        return super()._fit_exact(table)

    def _curator(self, population, source):
        if self.update != "prox" and self.ridge:
            raise ValueError(
                f'ridge={self.ridge!r} belongs to update="prox"; with {self.update!r} pass ridge=0.'
            )
        return super()._curator(population, source)

    def _planned_report(self, population):
        if self.update != "prox":
            return super(MeanRegularized, self)._planned_report(population)
        return super()._planned_report(population)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = str(self.update) not in _KEEP_MODELS
        return tags


_OPTIONS = """{summary}

    `{main}` with the options of [1]_ as parameters. With their
    defaults both fit the same models where `{main}` has ``levels="free"``.

    Parameters
    ----------
    lam, epsilon, delta, adjacency, curator, clip_norm
        As in `{main}`. Without a budget and with another `update` than "prox" the rounds run
        without noise and clipping.
    n_rounds
        As in `{main}`.
    update : {{"prox", "algorithm-1", "stateful"}}, default="prox"
        What a task sends. "prox": its proximal model minus w~, without memory. The others keep a
        dense model per task: "algorithm-1", the change of its running model, as printed in [1]_
        (what a clip removed is never sent again); "stateful", its running model minus w~, as the
        authors' code does.
    sampling : {{"all", "poisson", "fixed"}}, default="all"
        Who takes part in a round. "all" has the least noise. "poisson": every task with
        probability `sampling_rate`, secretly (needs the extra ``skpmtl[sampling]``). "fixed":
        that share of the tasks; they know it, so it is accounted without amplification.
        The denominator is `sampling_rate` times the number of tasks in any case. A mean intercept
        then takes 10 % of `epsilon` and `delta`.
    sampling_rate : float, default=1.0
    local_steps : "auto" or int, default="auto"
        Steps of a task in a round: accelerated ones of "prox" (12; squared loss is solved
        exactly where factors fit into memory), gradient steps otherwise (20).
    local_learning_rate : float, default=1.0
        Gradient steps in units of 1 / smoothness of the task's own objective.
    server_learning_rate : float, default=1.0
        Factor of the noisy mean that w~ moves by.
    personalization : {{"mean-reg", "finetune", "symmetrized-kl", "ewc", "none"}}, \
default="mean-reg"
        From w~ to a task's model. "mean-reg": as in `{main}`. `local_steps` (20) gradient steps
        from w~ on: the loss ("finetune"), with a penalty towards the predictions of w~
        ("symmetrized-kl"), or one weighted by the Fisher information ("ewc"). "none": w~
        itself, or the running model of an update that keeps one.
    init, ridge, l1, task_weight, clusters, relation, relation_rank, fit_intercept, task_feature, \
tasks, {class_list}unseen_task, {target_range}max_iter, tol, secure, random_state, verbose, dtype
        As in `{main}`; `ridge` goes with ``update="prox"``.

    Attributes
    ----------
    coef_, intercept_, mean_coef_, mean_intercept_, relation_coef_, relation_noise_std_, \
billboard_, privacy_, tasks_, n_iter_, objective_, lam_, dual_gap_, n_features_in_, \
feature_names_in_{classes}
        As in `{main}`.

    See Also
    --------
    {main} : The same with the options settled.

    References
    ----------
    .. [1] S. Hu, Z. S. Wu, V. Smith, "Private multi-task learning: formulation and
       applications to federated learning", TMLR, 2023.
    """


def _published(kind, main, classes="", class_list="", target_range=""):
    summary = f"Private mean-regularised multi-task {kind} with all options of the paper."
    return _OPTIONS.format(
        summary=summary,
        main=main,
        classes=classes,
        class_list=class_list,
        target_range=target_range,
    )


class PublishedMeanRegMTL(Published, PrivateMeanRegMTL):
    __doc__ = _published(
        "regression", "PrivateMeanRegMTL", target_range="target_range, uncertainty, "
    )

    def __init__(
        self,
        lam: float | Literal["auto"] = "auto",
        *,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Adjacency = "replace-one",
        curator: Curator = "trusted",
        clip_norm: float | Literal["auto"] = "auto",
        n_rounds: int | Literal["auto"] = "auto",
        update: Literal["algorithm-1", "prox", "stateful"] = "prox",
        sampling: Literal["all", "fixed", "poisson"] = "all",
        sampling_rate: float = 1.0,
        local_steps: int | Literal["auto"] = "auto",
        local_learning_rate: float = 1.0,
        server_learning_rate: float = 1.0,
        personalization: Literal[
            "ewc", "finetune", "mean-reg", "none", "symmetrized-kl"
        ] = "mean-reg",
        init=None,
        ridge: float = 0.0,
        l1: float = 0.0,
        task_weight: Literal["equal", "samples"] = "equal",
        clusters: Mapping | None = None,
        relation=None,
        relation_rank: int | Literal["all"] | None = None,
        fit_intercept: bool = True,
        task_feature: str | int | list | None = None,
        tasks: ArrayLike = "auto",
        unseen_task: Literal["error", "mean"] = "error",
        target_range: ArrayLike | None = None,
        uncertainty: bool | Literal["auto", "unseen"] = False,
        max_iter: int = 100,
        tol: float = 1e-10,
        secure: bool = False,
        random_state: RandomState = None,
        verbose: int = 0,
        dtype=np.float64,
    ) -> None:
        MeanRegularized.__init__(
            self,
            lam,
            epsilon=epsilon,
            delta=delta,
            adjacency=adjacency,
            curator=curator,
            clip_norm=clip_norm,
            n_rounds=n_rounds,
            init=init,
            ridge=ridge,
            l1=l1,
            task_weight=task_weight,
            clusters=clusters,
            relation=relation,
            relation_rank=relation_rank,
            fit_intercept=fit_intercept,
            task_feature=task_feature,
            tasks=tasks,
            unseen_task=unseen_task,
            target_range=target_range,
            uncertainty=uncertainty,
            max_iter=max_iter,
            tol=tol,
            secure=secure,
            random_state=random_state,
            verbose=verbose,
            dtype=dtype,
        )
        self.update = update
        self.sampling = sampling
        self.sampling_rate = sampling_rate
        self.local_steps = local_steps
        self.local_learning_rate = local_learning_rate
        self.server_learning_rate = server_learning_rate
        self.personalization = personalization


class PublishedMeanRegMTLClassifier(Published, PrivateMeanRegMTLClassifier):
    __doc__ = _published(
        "classification", "PrivateMeanRegMTLClassifier", ", classes_", "classes, class_weight, "
    )

    def __init__(
        self,
        lam: float | Literal["auto"] = "auto",
        *,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Adjacency = "replace-one",
        curator: Curator = "trusted",
        clip_norm: float | Literal["auto"] = "auto",
        n_rounds: int | Literal["auto"] = "auto",
        update: Literal["algorithm-1", "prox", "stateful"] = "prox",
        sampling: Literal["all", "fixed", "poisson"] = "all",
        sampling_rate: float = 1.0,
        local_steps: int | Literal["auto"] = "auto",
        local_learning_rate: float = 1.0,
        server_learning_rate: float = 1.0,
        personalization: Literal[
            "ewc", "finetune", "mean-reg", "none", "symmetrized-kl"
        ] = "mean-reg",
        init=None,
        ridge: float = 0.0,
        l1: float = 0.0,
        task_weight: Literal["equal", "samples"] = "equal",
        clusters: Mapping | None = None,
        relation=None,
        relation_rank: int | Literal["all"] | None = None,
        fit_intercept: bool = True,
        task_feature: str | int | list | None = None,
        tasks: ArrayLike = "auto",
        classes: ArrayLike = "auto",
        class_weight: ClassWeight = None,
        unseen_task: Literal["error", "mean"] = "error",
        max_iter: int = 100,
        tol: float = 1e-10,
        secure: bool = False,
        random_state: RandomState = None,
        verbose: int = 0,
        dtype=np.float64,
    ) -> None:
        MeanRegularized.__init__(
            self,
            lam,
            epsilon=epsilon,
            delta=delta,
            adjacency=adjacency,
            curator=curator,
            clip_norm=clip_norm,
            n_rounds=n_rounds,
            init=init,
            ridge=ridge,
            l1=l1,
            task_weight=task_weight,
            clusters=clusters,
            relation=relation,
            relation_rank=relation_rank,
            fit_intercept=fit_intercept,
            task_feature=task_feature,
            tasks=tasks,
            unseen_task=unseen_task,
            max_iter=max_iter,
            tol=tol,
            secure=secure,
            random_state=random_state,
            verbose=verbose,
            dtype=dtype,
        )
        self.classes = classes
        self.class_weight = class_weight
        self.update = update
        self.sampling = sampling
        self.sampling_rate = sampling_rate
        self.local_steps = local_steps
        self.local_learning_rate = local_learning_rate
        self.server_learning_rate = server_learning_rate
        self.personalization = personalization


# ------------------------------------------------------------------------------- baselines
class _FedAvg:
    update = "fedavg"


class _FedProx:
    update = "fedprox"


class _PPSGD:
    update = "ppsgd"


class _LocalOnly:
    update = "none"
    _federates = False

    def _bounds_weights(self):
        return False  # nothing is shared

    def _n_rounds(self, epsilon):
        return 0

    def _problem(self, table):
        problem = super()._problem(table)
        return replace(problem, lam="alone") if problem.lam == "auto" else problem


class _Regressor(Published, MTLRegressorMixin, MeanRegularized):
    def __init__(
        self,
        lam: float | Literal["auto"] = "auto",
        *,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Adjacency = "replace-one",
        curator: Curator = "trusted",
        clip_norm: float | Literal["auto"] = "auto",
        n_rounds: int | Literal["auto"] = "auto",
        sampling: Literal["all", "fixed", "poisson"] = "all",
        sampling_rate: float = 1.0,
        local_steps: int | Literal["auto"] = "auto",
        local_learning_rate: float = 1.0,
        server_learning_rate: float = 1.0,
        personalization: Literal[
            "ewc", "finetune", "mean-reg", "none", "symmetrized-kl"
        ] = "mean-reg",
        init=None,
        ridge: float = 0.0,
        task_weight: Literal["equal", "samples"] = "equal",
        clusters: Mapping | None = None,
        relation=None,
        relation_rank: int | Literal["all"] | None = None,
        fit_intercept: bool = True,
        task_feature: str | int | list | None = None,
        tasks: ArrayLike = "auto",
        unseen_task: Literal["error", "mean"] = "error",
        target_range: ArrayLike | None = None,
        uncertainty: bool | Literal["auto", "unseen"] = False,
        max_iter: int = 100,
        tol: float = 1e-10,
        secure: bool = False,
        random_state: RandomState = None,
        verbose: int = 0,
        dtype=np.float64,
    ) -> None:
        super().__init__(
            lam,
            epsilon=epsilon,
            delta=delta,
            adjacency=adjacency,
            curator=curator,
            clip_norm=clip_norm,
            n_rounds=n_rounds,
            init=init,
            ridge=ridge,
            task_weight=task_weight,
            clusters=clusters,
            relation=relation,
            relation_rank=relation_rank,
            fit_intercept=fit_intercept,
            task_feature=task_feature,
            tasks=tasks,
            unseen_task=unseen_task,
            target_range=target_range,
            uncertainty=uncertainty,
            max_iter=max_iter,
            tol=tol,
            secure=secure,
            random_state=random_state,
            verbose=verbose,
            dtype=dtype,
        )
        self.sampling = sampling
        self.sampling_rate = sampling_rate
        self.local_steps = local_steps
        self.local_learning_rate = local_learning_rate
        self.server_learning_rate = server_learning_rate
        self.personalization = personalization


class _Classifier(Published, MTLClassifierMixin, MeanRegularized):
    _multiclass = True
    _spreads_labels = False  # intercepts of tasks that miss a class are held

    def __init__(
        self,
        lam: float | Literal["auto"] = "auto",
        *,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Adjacency = "replace-one",
        curator: Curator = "trusted",
        clip_norm: float | Literal["auto"] = "auto",
        n_rounds: int | Literal["auto"] = "auto",
        sampling: Literal["all", "fixed", "poisson"] = "all",
        sampling_rate: float = 1.0,
        local_steps: int | Literal["auto"] = "auto",
        local_learning_rate: float = 1.0,
        server_learning_rate: float = 1.0,
        personalization: Literal[
            "ewc", "finetune", "mean-reg", "none", "symmetrized-kl"
        ] = "mean-reg",
        init=None,
        ridge: float = 0.0,
        task_weight: Literal["equal", "samples"] = "equal",
        clusters: Mapping | None = None,
        relation=None,
        relation_rank: int | Literal["all"] | None = None,
        fit_intercept: bool = True,
        task_feature: str | int | list | None = None,
        tasks: ArrayLike = "auto",
        classes: ArrayLike = "auto",
        class_weight: ClassWeight = None,
        unseen_task: Literal["error", "mean"] = "error",
        max_iter: int = 100,
        tol: float = 1e-10,
        secure: bool = False,
        random_state: RandomState = None,
        verbose: int = 0,
        dtype=np.float64,
    ) -> None:
        super().__init__(
            lam,
            epsilon=epsilon,
            delta=delta,
            adjacency=adjacency,
            curator=curator,
            clip_norm=clip_norm,
            n_rounds=n_rounds,
            init=init,
            ridge=ridge,
            task_weight=task_weight,
            clusters=clusters,
            relation=relation,
            relation_rank=relation_rank,
            fit_intercept=fit_intercept,
            task_feature=task_feature,
            tasks=tasks,
            unseen_task=unseen_task,
            max_iter=max_iter,
            tol=tol,
            secure=secure,
            random_state=random_state,
            verbose=verbose,
            dtype=dtype,
        )
        self.classes = classes
        self.class_weight = class_weight
        self.sampling = sampling
        self.sampling_rate = sampling_rate
        self.local_steps = local_steps
        self.local_learning_rate = local_learning_rate
        self.server_learning_rate = server_learning_rate
        self.personalization = personalization


_DOC = """{summary}

    {text}

    Parameters
    ----------
    lam : float or "auto", default="auto"
        {lam}{of_rows}
    epsilon, delta, adjacency, curator, clip_norm, n_rounds, sampling, \
sampling_rate, local_steps, local_learning_rate, server_learning_rate, personalization, init, \
ridge, task_weight, clusters, relation, relation_rank, fit_intercept, task_feature, tasks, \
{class_list}unseen_task, \
{target_range}max_iter, tol, secure, random_state, verbose, dtype
        As in `{main}`.{note}

    Attributes
    ----------
    coef_, intercept_, mean_coef_, mean_intercept_, relation_coef_, relation_noise_std_, \
billboard_, privacy_, tasks_, n_iter_, n_features_in_, feature_names_in_{classes}
        As in `{main}`.

    See Also
    --------
    {main} : The method to compare with.
    """
_STRENGTH = "Strength of the personalisation after the rounds; {}the rounds."


def _doc(summary, text, lam, classifier, note="", of_rows=""):
    kind = "classification" if classifier else "regression"
    return _DOC.format(
        summary=summary.format(kind),
        text=text,
        lam=lam,
        main="PublishedMeanRegMTLClassifier" if classifier else "PublishedMeanRegMTL",
        note=note,
        classes=", classes_" if classifier else "",
        class_list="classes, " if classifier else "",
        target_range="" if classifier else "target_range, uncertainty, ",
        of_rows=of_rows,
    )


_TEXTS = {
    "fedavg": (
        "Private federated averaging, {}.",
        "In every round each task takes gradient steps from the shared model on its own\n"
        '    loss and sends the clipped difference; with ``personalization="none"`` every task\n'
        "    is left with the shared model and an intercept of its own.",
        _STRENGTH.format("not used in "),
    ),
    "fedprox": (
        "Private FedProx, {}.",
        "As private federated averaging, with a penalty ``lam / 2 ||w - w~||^2`` in local steps.",
        _STRENGTH.format("and of the penalty in "),
    ),
    "ppsgd": (
        "Private shared part plus personal part (PP-SGD), {}.",
        "The model of a task is w~ + theta_k. Steps move both parts; the movement of the shared\n"
        '    part is sent, theta_k stays. ``personalization="none"`` keeps the theta_k of the\n'
        "    rounds, the other variants start from w~.",
        "Penalty ``lam / 2 ||theta_k||^2``, and strength of the personalisation.",
    ),
    "local": (
        "Every task alone, {}.",
        "Nothing is released, whatever `epsilon` is: the shared model stays 0, the\n"
        "    mean-regularised personalisation is a ridge on every task's own rows, and with\n"
        '    intercepts there is no model for ``unseen_task="mean"``.',
        'Strength of the ridge. "auto": 0.5 / n_k times the smoothness of the task\'s loss.',
    ),
}
_UNUSED = " What concerns the rounds has no effect."


class PrivateFedAvg(_FedAvg, _Regressor):
    __doc__ = _doc(*_TEXTS["fedavg"], False)


class PrivateFedAvgClassifier(_FedAvg, _Classifier):
    __doc__ = _doc(*_TEXTS["fedavg"], True)


class PrivateFedProx(_FedProx, _Regressor):
    __doc__ = _doc(*_TEXTS["fedprox"], False)


class PrivateFedProxClassifier(_FedProx, _Classifier):
    __doc__ = _doc(*_TEXTS["fedprox"], True)


class PPSGD(_PPSGD, _Regressor):
    __doc__ = _doc(*_TEXTS["ppsgd"], False)


class PPSGDClassifier(_PPSGD, _Classifier):
    __doc__ = _doc(*_TEXTS["ppsgd"], True)


class LocalOnly(_LocalOnly, _Regressor):
    __doc__ = _doc(*_TEXTS["local"], False, _UNUSED, LOSS)

    def __init__(
        self,
        lam: float | Literal["auto"] = "auto",
        *,
        loss: Literal["huber", "poisson", "squared"] = "squared",
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Adjacency = "replace-one",
        curator: Curator = "trusted",
        clip_norm: float | Literal["auto"] = "auto",
        n_rounds: int | Literal["auto"] = "auto",
        sampling: Literal["all", "fixed", "poisson"] = "all",
        sampling_rate: float = 1.0,
        local_steps: int | Literal["auto"] = "auto",
        local_learning_rate: float = 1.0,
        server_learning_rate: float = 1.0,
        personalization: Literal[
            "ewc", "finetune", "mean-reg", "none", "symmetrized-kl"
        ] = "mean-reg",
        init=None,
        ridge: float = 0.0,
        task_weight: Literal["equal", "samples"] = "equal",
        clusters: Mapping | None = None,
        relation=None,
        relation_rank: int | Literal["all"] | None = None,
        fit_intercept: bool = True,
        task_feature: str | int | list | None = None,
        tasks: ArrayLike = "auto",
        unseen_task: Literal["error", "mean"] = "error",
        target_range: ArrayLike | None = None,
        uncertainty: bool | Literal["auto", "unseen"] = False,
        max_iter: int = 100,
        tol: float = 1e-10,
        secure: bool = False,
        random_state: RandomState = None,
        verbose: int = 0,
        dtype=np.float64,
    ) -> None:
        super().__init__(
            lam,
            epsilon=epsilon,
            delta=delta,
            adjacency=adjacency,
            curator=curator,
            clip_norm=clip_norm,
            n_rounds=n_rounds,
            sampling=sampling,
            sampling_rate=sampling_rate,
            local_steps=local_steps,
            local_learning_rate=local_learning_rate,
            server_learning_rate=server_learning_rate,
            personalization=personalization,
            init=init,
            ridge=ridge,
            task_weight=task_weight,
            clusters=clusters,
            relation=relation,
            relation_rank=relation_rank,
            fit_intercept=fit_intercept,
            task_feature=task_feature,
            tasks=tasks,
            unseen_task=unseen_task,
            target_range=target_range,
            uncertainty=uncertainty,
            max_iter=max_iter,
            tol=tol,
            secure=secure,
            random_state=random_state,
            verbose=verbose,
            dtype=dtype,
        )
        self.loss = loss

    _weighs_rows = False  # the objective is Huber's

    def _check_parameters(self):
        super()._check_parameters()
        if self.loss != "squared" and self.personalization != "mean-reg":
            raise ValueError(
                f"loss={self.loss!r} with personalization={self.personalization!r}, whose steps "
                'are of squared loss: leave it at "mean-reg".'
            )


class LocalOnlyClassifier(_LocalOnly, _Classifier):
    __doc__ = _doc(*_TEXTS["local"], True, _UNUSED)
