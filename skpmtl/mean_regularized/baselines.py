"""Private baselines with the interface and the report of `PrivateMeanRegMTL`.

All of them release a mean in rounds and may be personalised afterwards like it.
"""

from dataclasses import replace

import numpy as np

from ..base import MTLClassifierMixin, MTLRegressorMixin
from .estimators import LinearMeans

__all__ = [
    "LocalOnly",
    "LocalOnlyClassifier",
    "PPSGD",
    "PPSGDClassifier",
    "PrivateFedAvg",
    "PrivateFedAvgClassifier",
    "PrivateFedProx",
    "PrivateFedProxClassifier",
]
_DOC = """{summary}

    {text}

    Parameters
    ----------
    lam : float or "auto", default="auto"
        {lam}
    epsilon, delta, adjacency, curator, clip_norm, clip_quantile, n_rounds, sampling, \
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
_PULL = "Strength of the personalisation after the rounds; {}the rounds."


class _FedAvg(LinearMeans):
    update = "fedavg"


class _FedProx(LinearMeans):
    update = "fedprox"


class _PPSGD(LinearMeans):
    update = "ppsgd"


class _LocalOnly(LinearMeans):
    update = "none"
    _federates = False

    def _n_rounds(self, epsilon):
        return 0

    def _bounds_weights(self):
        return False  # nothing is shared

    def _problem(self, table):
        problem = super()._problem(table)
        return replace(problem, lam="alone") if problem.lam == "auto" else problem


def _doc(summary, text, lam, classifier, note=""):
    kind = "classification" if classifier else "regression"
    return _DOC.format(
        summary=summary.format(kind),
        text=text,
        lam=lam,
        main="PrivateMeanRegMTLClassifier" if classifier else "PrivateMeanRegMTL",
        note=note,
        classes=", classes_" if classifier else "",
        class_list="classes, " if classifier else "",
        target_range="" if classifier else "target_range, ",
    )


_TEXTS = {
    "fedavg": (
        "Private federated averaging, {}.",
        "In every round each task takes gradient steps from the shared model on its own\n"
        '    loss and sends the clipped difference; with ``personalization="none"`` every task\n'
        "    is left with the shared model and an intercept of its own.",
        _PULL.format("not used in "),
    ),
    "fedprox": (
        "Private FedProx, {}.",
        "As private federated averaging, with a penalty ``lam / 2 ||w - w~||^2`` on the way.",
        _PULL.format("and of the penalty in "),
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


class PrivateFedAvg(MTLRegressorMixin, _FedAvg):
    __doc__ = _doc(*_TEXTS["fedavg"], False)


class PrivateFedProx(MTLRegressorMixin, _FedProx):
    __doc__ = _doc(*_TEXTS["fedprox"], False)


class PPSGD(MTLRegressorMixin, _PPSGD):
    __doc__ = _doc(*_TEXTS["ppsgd"], False)


class LocalOnly(MTLRegressorMixin, _LocalOnly):
    __doc__ = _doc(*_TEXTS["local"], False, _UNUSED)


class _Classifier(MTLClassifierMixin, LinearMeans):
    _multiclass = True
    _spreads_labels = False  # intercepts of tasks that miss a class are held

    def __init__(
        self,
        lam="auto",
        *,
        epsilon=1.0,
        delta=None,
        adjacency="replace-one",
        curator="trusted",
        clip_norm="auto",
        clip_quantile=None,
        n_rounds="auto",
        sampling="all",
        sampling_rate=1.0,
        local_steps="auto",
        local_learning_rate=1.0,
        server_learning_rate=1.0,
        personalization="mean-reg",
        init=None,
        ridge=0.0,
        task_weight="equal",
        clusters=None,
        relation=None,
        relation_rank=None,
        fit_intercept=True,
        task_feature=None,
        tasks="auto",
        classes="auto",
        class_weight=None,
        unseen_task="error",
        max_iter=100,
        tol=1e-10,
        secure=False,
        random_state=None,
        verbose=0,
        dtype=np.float64,
    ):
        super().__init__(
            lam, epsilon=epsilon, delta=delta, adjacency=adjacency, curator=curator,
            clip_norm=clip_norm, clip_quantile=clip_quantile, n_rounds=n_rounds, sampling=sampling,
            sampling_rate=sampling_rate, local_steps=local_steps,
            local_learning_rate=local_learning_rate, server_learning_rate=server_learning_rate,
            personalization=personalization, init=init, ridge=ridge, task_weight=task_weight,
            clusters=clusters, relation=relation, relation_rank=relation_rank,
            fit_intercept=fit_intercept, task_feature=task_feature, tasks=tasks,
            unseen_task=unseen_task, max_iter=max_iter, tol=tol,
            secure=secure, random_state=random_state, verbose=verbose, dtype=dtype,
        )  # fmt: skip
        self.classes = classes
        self.class_weight = class_weight


class PrivateFedAvgClassifier(_Classifier, _FedAvg):
    __doc__ = _doc(*_TEXTS["fedavg"], True)


class PrivateFedProxClassifier(_Classifier, _FedProx):
    __doc__ = _doc(*_TEXTS["fedprox"], True)


class PPSGDClassifier(_Classifier, _PPSGD):
    __doc__ = _doc(*_TEXTS["ppsgd"], True)


class LocalOnlyClassifier(_Classifier, _LocalOnly):
    __doc__ = _doc(*_TEXTS["local"], True, _UNUSED)
