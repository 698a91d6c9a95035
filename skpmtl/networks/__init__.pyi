"""Type hints of `skpmtl.networks`; written by ``python -m tests.stubs``."""

from collections.abc import Callable, Mapping
from typing import Any, Literal
from numpy.random import Generator, RandomState
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, TransformerMixin
from typing_extensions import Self
from skpmtl.privacy import PrivacyReport as PrivacyReport
from skpmtl.callbacks import RoundCallbacks as RoundCallbacks

class _BaseMTL(_NamedCoefficients, RoundCallbacks, _FromBillboard):
    def export_billboard(self) -> Any: ...
    def personalize(self, X: Any, y: Any, task: Any = None, sample_weight: Any = None) -> Self: ...

class _FromBillboard:
    @classmethod
    def from_billboard(
        cls,
        billboard: Any,
        *,
        classes: ArrayLike | None = None,
        n_features: int | None = None,
        feature_names: Any = None,
        **params: Any,
    ) -> Self: ...

class _HasCovariates:
    def relate(self, covariates: Any) -> Any: ...

class _Intervals:
    def predict_interval(self, X: Any, task: Any = None, coverage: float = 0.9) -> Any: ...

class _MTLClassifierMixin(_Scored):
    def decision_function(self, X: Any, task: Any = None) -> Any: ...
    def predict(self, X: Any, task: Any = None) -> Any: ...
    def predict_log_proba(self, X: Any, task: Any = None) -> Any: ...
    def predict_proba(self, X: Any, task: Any = None) -> Any: ...

class _MTLRegressorMixin(_Intervals, _Scored):
    def predict(self, X: Any, task: Any = None, return_std: bool = False) -> Any: ...

class _MetaInit(_HasCovariates, _BaseMTL):
    def task_privacy(self, task: Any) -> dict[Any, Any]: ...

class _NamedCoefficients:
    def coef_frame(self, of: Literal["tasks", "relation"] = "tasks") -> Any: ...

class _OfModule:
    def get_params(self, deep: bool = True) -> dict[Any, Any]: ...
    def set_params(self, **params: Any) -> Any: ...
    def to_module(self, task: Any = None) -> Any: ...

class _Scored:
    def score(self, X: Any, y: Any, task: Any = None, sample_weight: Any = None) -> float: ...

class InitBillboard:
    init: NDArray[Any]
    layout: Any
    width: int
    classes: int
    refine_steps: int
    refine_learning_rate: float
    report: Any
    n_classes: Any
    n_features: Any
    model_shape: Any
    has_one_mean: Any
    def __init__(
        self,
        init: NDArray[Any],
        layout: Any = ...,
        width: int = 1,
        classes: int = 0,
        refine_steps: int = 10,
        refine_learning_rate: float = 0.1,
        report: Any = None,
    ) -> None: ...
    def attributes(self) -> Any: ...
    def declared(self) -> Any: ...
    def parameters(self) -> Any: ...
    def posterior(self, table: Any, *, fit_intercept: bool, width: float | None = None) -> Any: ...
    def within(self, report: Any) -> Any: ...
    def without_rows(self, tasks: Any) -> tuple[Any, ...]: ...
    def written(self) -> Any: ...

class NetworkBillboard:
    centres: Any
    releases: Any
    clip_norms: Any
    alone_weight: Any
    shape: Any
    problem: Any
    personalization: Any
    local_steps: Any
    sparse: Any
    cluster_of: Any
    mean_intercept: Any
    report: Any
    server_rate: Any
    step: Any
    sampling: Any
    sampling_rate: Any
    noise_multiplier: Any
    round_delta: Any
    adaptive: Any
    scale_mu: Any
    shrinkage: Any
    own_units: Any
    lam: Any
    relation: Any
    noise_std: Any
    init: Any
    errors: Any
    loss: Any
    start: NDArray[Any]
    layout: Any
    width: int
    personal_steps: int
    personal_folds: Any
    learning_rate: float
    momentum: float
    batch_size: Any
    local: tuple[Any, ...]
    n_classes: Any
    n_features: Any
    model_shape: Any
    has_one_mean: Any
    mean: Any
    signal: Any
    reaches: Any
    def __init__(
        self,
        centres: Any,
        releases: Any,
        clip_norms: Any,
        alone_weight: Any,
        shape: Any,
        problem: Any,
        personalization: Any,
        local_steps: Any,
        sparse: Any,
        cluster_of: Any = None,
        mean_intercept: Any = None,
        report: Any = None,
        server_rate: Any = 1.0,
        step: Any = None,
        sampling: Any = "all",
        sampling_rate: Any = 1.0,
        noise_multiplier: Any = None,
        round_delta: Any = None,
        adaptive: Any = False,
        scale_mu: Any = None,
        shrinkage: Any = None,
        own_units: Any = False,
        lam: Any = None,
        relation: Any = None,
        noise_std: Any = None,
        init: Any = None,
        errors: Any = None,
        loss: Any = "squared",
        start: NDArray[Any] = ...,
        layout: Any = ...,
        width: int = 1,
        personal_steps: int = 20,
        personal_folds: Any = 3,
        learning_rate: float = 0.03,
        momentum: float = 0.9,
        batch_size: Any = None,
        local: tuple[Any, ...] = ...,
    ) -> None: ...
    def around(self, tasks: Any) -> Any: ...
    def attributes(self) -> Any: ...
    def centres_or_zero(self, tasks: Any) -> Any: ...
    def declared(self) -> Any: ...
    def for_rows(self, sparse: Any) -> Any: ...
    def history(self) -> list[Any]: ...
    def intercepts(self, tasks: Any) -> Any: ...
    def models(self, flat: Any) -> Any: ...
    def moves(self) -> Any: ...
    def networks(self, centres: Any) -> Any: ...
    def parameters(self) -> Any: ...
    def personalize(self, table: Any, centred: Any = None) -> Self: ...
    def posterior(
        self,
        table: Any,
        *,
        fit_intercept: bool | None = None,
        width: float | None = None,
    ) -> Any: ...
    def presented(self, centres: Any) -> Any: ...
    def replay(self) -> Any: ...
    def resting(self, tasks: Any) -> Any: ...
    def set_intercept(self, shift: Any, middle: Any = 0.0) -> Any: ...
    def shaped(self, flat: Any) -> Any: ...
    def stds(self) -> Any: ...
    def with_covariates(self, given: Any) -> Any: ...
    def within(self, report: Any) -> Any: ...
    def without_rows(self, tasks: Any) -> Any: ...
    def written(self) -> Any: ...

class TorchFeatures(TransformerMixin, BaseEstimator):
    module: Any
    output: str
    task_feature: str | int | None
    device: str
    batch_size: int
    module_: Any
    n_features_out_: int
    n_features_in_: Any
    feature_names_in_: Any
    def __init__(
        self,
        module: Any,
        *,
        output: str | None = None,
        task_feature: str | int | None = None,
        device: str = "cpu",
        batch_size: int = 1024,
    ) -> None: ...
    def fit(self, X: Any, y: Any = None) -> Self: ...
    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]: ...
    def transform(self, X: Any) -> Any: ...

class TorchMeanRegClassifier(_MTLClassifierMixin, _OfModule, _HasCovariates, _BaseMTL, ClassifierMixin, BaseEstimator):
    module: Callable[..., Any] | None
    lam: float
    epsilon: float | None
    delta: float | None
    adjacency: Literal["replace-one", "zero-out"]
    clip_norm: float
    clip_quantile: float | None
    n_rounds: int
    update: Literal["algorithm-1", "fedavg", "prox", "stateful"]
    local: str | list[Any] | tuple[Any, ...]
    local_steps: int
    learning_rate: float
    momentum: float
    batch_size: int | None
    server_learning_rate: float
    sampling: Literal["all", "fixed", "poisson"]
    sampling_rate: float
    personalization: Literal["ewc", "finetune", "mean-reg", "none", "symmetrized-kl"]
    personal_steps: int
    personal_folds: int | None
    clusters: Mapping[Any, Any] | None
    relation: Any
    relation_rank: int | Literal["all"] | None
    device: str
    task_feature: str | int | list[Any] | None
    tasks: Literal["auto"] | ArrayLike
    classes: Literal["auto"] | ArrayLike
    class_weight: Literal["balanced"] | Mapping[Any, Any] | None
    unseen_task: Literal["error", "mean"]
    secure: bool
    random_state: int | RandomState | Generator | Generator
    verbose: int
    arguments: Any
    coef_: NDArray[Any]
    mean_coef_: NDArray[Any]
    intercept_: NDArray[Any]
    tasks_: NDArray[Any]
    classes_: NDArray[Any]
    billboard_: NetworkBillboard
    privacy_: PrivacyReport
    n_iter_: int
    n_features_in_: Any
    feature_names_in_: Any
    coef_names_: NDArray[Any]
    def __init__(
        self,
        module: Callable[..., Any] | None = None,
        *,
        lam: float = 0.1,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Literal["replace-one", "zero-out"] = "replace-one",
        clip_norm: float = 0.5,
        clip_quantile: float | None = None,
        n_rounds: int = 10,
        update: Literal["algorithm-1", "fedavg", "prox", "stateful"] = "prox",
        local: str | list[Any] | tuple[Any, ...] = ...,
        local_steps: int = 5,
        learning_rate: float = 0.03,
        momentum: float = 0.9,
        batch_size: int | None = None,
        server_learning_rate: float = 1.0,
        sampling: Literal["all", "fixed", "poisson"] = "all",
        sampling_rate: float = 1.0,
        personalization: Literal["ewc", "finetune", "mean-reg", "none", "symmetrized-kl"] = "mean-reg",
        personal_steps: int = 20,
        personal_folds: int | None = 3,
        clusters: Mapping[Any, Any] | None = None,
        relation: Any = None,
        relation_rank: int | Literal["all"] | None = None,
        device: str = "cpu",
        task_feature: str | int | list[Any] | None = None,
        tasks: Literal["auto"] | ArrayLike = "auto",
        classes: Literal["auto"] | ArrayLike = "auto",
        class_weight: Literal["balanced"] | Mapping[Any, Any] | None = None,
        unseen_task: Literal["error", "mean"] = "error",
        secure: bool = False,
        random_state: int | RandomState | Generator | Generator | None = None,
        verbose: int = 0,
        **arguments: Any,
    ) -> None: ...
    def export_task(self, task: Any) -> dict[Any, Any]: ...
    def fit(
        self,
        X: Any,
        y: Any,
        task: Any = None,
        sample_weight: Any = None,
        journal: Any = None,
    ) -> Self: ...

class TorchMeanRegRegressor(_MTLRegressorMixin, _OfModule, _HasCovariates, _BaseMTL, RegressorMixin, BaseEstimator):
    module: Callable[..., Any] | None
    lam: float
    epsilon: float | None
    delta: float | None
    adjacency: Literal["replace-one", "zero-out"]
    clip_norm: float
    clip_quantile: float | None
    n_rounds: int
    update: Literal["algorithm-1", "fedavg", "prox", "stateful"]
    local: str | list[Any] | tuple[Any, ...]
    local_steps: int
    learning_rate: float
    momentum: float
    batch_size: int | None
    server_learning_rate: float
    sampling: Literal["all", "fixed", "poisson"]
    sampling_rate: float
    personalization: Literal["ewc", "finetune", "mean-reg", "none", "symmetrized-kl"]
    personal_steps: int
    personal_folds: int | None
    clusters: Mapping[Any, Any] | None
    relation: Any
    relation_rank: int | Literal["all"] | None
    device: str
    task_feature: str | int | list[Any] | None
    tasks: Literal["auto"] | ArrayLike
    unseen_task: Literal["error", "mean"]
    secure: bool
    random_state: int | RandomState | Generator | Generator
    verbose: int
    arguments: Any
    coef_: NDArray[Any]
    mean_coef_: NDArray[Any]
    intercept_: NDArray[Any]
    tasks_: NDArray[Any]
    billboard_: NetworkBillboard
    privacy_: PrivacyReport
    n_iter_: int
    n_features_in_: Any
    feature_names_in_: Any
    coef_names_: NDArray[Any]
    def __init__(
        self,
        module: Callable[..., Any] | None = None,
        *,
        lam: float = 0.1,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Literal["replace-one", "zero-out"] = "replace-one",
        clip_norm: float = 0.5,
        clip_quantile: float | None = None,
        n_rounds: int = 10,
        update: Literal["algorithm-1", "fedavg", "prox", "stateful"] = "prox",
        local: str | list[Any] | tuple[Any, ...] = ...,
        local_steps: int = 5,
        learning_rate: float = 0.03,
        momentum: float = 0.9,
        batch_size: int | None = None,
        server_learning_rate: float = 1.0,
        sampling: Literal["all", "fixed", "poisson"] = "all",
        sampling_rate: float = 1.0,
        personalization: Literal["ewc", "finetune", "mean-reg", "none", "symmetrized-kl"] = "mean-reg",
        personal_steps: int = 20,
        personal_folds: int | None = 3,
        clusters: Mapping[Any, Any] | None = None,
        relation: Any = None,
        relation_rank: int | Literal["all"] | None = None,
        device: str = "cpu",
        task_feature: str | int | list[Any] | None = None,
        tasks: Literal["auto"] | ArrayLike = "auto",
        unseen_task: Literal["error", "mean"] = "error",
        secure: bool = False,
        random_state: int | RandomState | Generator | Generator | None = None,
        verbose: int = 0,
        **arguments: Any,
    ) -> None: ...
    def export_task(self, task: Any) -> dict[Any, Any]: ...
    def fit(
        self,
        X: Any,
        y: Any,
        task: Any = None,
        sample_weight: Any = None,
        journal: Any = None,
    ) -> Self: ...

class TorchMetaInitClassifier(_MTLClassifierMixin, _OfModule, _MetaInit, ClassifierMixin, BaseEstimator):
    module: Callable[..., Any] | None
    epsilon: float | None
    delta: float | None
    adjacency: Literal["replace-one", "zero-out"]
    privacy: Literal["local", "task-global"] | None
    clip_norm: float
    inner_steps: int
    inner_learning_rate: float
    batch_size: int | None
    batches: Literal["disjoint", "full", "poisson"]
    meta_learning_rate: float
    tasks_per_round: Literal["all", "auto"] | int
    visits: int
    group_size: int
    max_rows_per_unit: int | None
    refine_steps: int
    refine_learning_rate: float
    device: str
    task_feature: str | int | list[Any] | None
    tasks: Literal["auto"] | ArrayLike
    classes: Literal["auto"] | ArrayLike
    class_weight: Literal["balanced"] | Mapping[Any, Any] | None
    unseen_task: Literal["error", "mean"]
    secure: bool
    random_state: int | RandomState | Generator | Generator
    verbose: int
    arguments: Any
    coef_: NDArray[Any]
    init_coef_: NDArray[Any]
    mean_coef_: NDArray[Any]
    intercept_: NDArray[Any]
    tasks_: Any
    billboard_: Any
    privacy_: Any
    n_iter_: Any
    n_features_in_: Any
    feature_names_in_: Any
    coef_names_: NDArray[Any]
    def __init__(
        self,
        module: Callable[..., Any] | None = None,
        *,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Literal["replace-one", "zero-out"] = "replace-one",
        privacy: Literal["local", "task-global"] | None = "task-global",
        clip_norm: float = 0.5,
        inner_steps: int = 5,
        inner_learning_rate: float = 0.5,
        batch_size: int | None = None,
        batches: Literal["disjoint", "full", "poisson"] = "full",
        meta_learning_rate: float = 1.0,
        tasks_per_round: Literal["all", "auto"] | int = "auto",
        visits: int = 1,
        group_size: int = 1,
        max_rows_per_unit: int | None = None,
        refine_steps: int = 10,
        refine_learning_rate: float = 0.5,
        device: str = "cpu",
        task_feature: str | int | list[Any] | None = None,
        tasks: Literal["auto"] | ArrayLike = "auto",
        classes: Literal["auto"] | ArrayLike = "auto",
        class_weight: Literal["balanced"] | Mapping[Any, Any] | None = None,
        unseen_task: Literal["error", "mean"] = "error",
        secure: bool = False,
        random_state: int | RandomState | Generator | Generator | None = None,
        verbose: int = 0,
        **arguments: Any,
    ) -> None: ...
    def export_task(self, task: Any) -> dict[Any, Any]: ...
    def fit(
        self,
        X: Any,
        y: Any,
        task: Any = None,
        sample_weight: Any = None,
        journal: Any = None,
    ) -> Self: ...

class TorchMetaInitRegressor(_MTLRegressorMixin, _OfModule, _MetaInit, RegressorMixin, BaseEstimator):
    module: Callable[..., Any] | None
    epsilon: float | None
    delta: float | None
    adjacency: Literal["replace-one", "zero-out"]
    privacy: Literal["local", "task-global"] | None
    clip_norm: float
    inner_steps: int
    inner_learning_rate: float
    batch_size: int | None
    batches: Literal["disjoint", "full", "poisson"]
    meta_learning_rate: float
    tasks_per_round: Literal["all", "auto"] | int
    visits: int
    group_size: int
    max_rows_per_unit: int | None
    refine_steps: int
    refine_learning_rate: float
    device: str
    task_feature: str | int | list[Any] | None
    tasks: Literal["auto"] | ArrayLike
    unseen_task: Literal["error", "mean"]
    secure: bool
    random_state: int | RandomState | Generator | Generator
    verbose: int
    arguments: Any
    coef_: NDArray[Any]
    init_coef_: NDArray[Any]
    mean_coef_: NDArray[Any]
    intercept_: NDArray[Any]
    tasks_: Any
    billboard_: Any
    privacy_: Any
    n_iter_: Any
    n_features_in_: Any
    feature_names_in_: Any
    coef_names_: NDArray[Any]
    def __init__(
        self,
        module: Callable[..., Any] | None = None,
        *,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Literal["replace-one", "zero-out"] = "replace-one",
        privacy: Literal["local", "task-global"] | None = "task-global",
        clip_norm: float = 0.5,
        inner_steps: int = 5,
        inner_learning_rate: float = 0.5,
        batch_size: int | None = None,
        batches: Literal["disjoint", "full", "poisson"] = "full",
        meta_learning_rate: float = 1.0,
        tasks_per_round: Literal["all", "auto"] | int = "auto",
        visits: int = 1,
        group_size: int = 1,
        max_rows_per_unit: int | None = None,
        refine_steps: int = 10,
        refine_learning_rate: float = 0.5,
        device: str = "cpu",
        task_feature: str | int | list[Any] | None = None,
        tasks: Literal["auto"] | ArrayLike = "auto",
        unseen_task: Literal["error", "mean"] = "error",
        secure: bool = False,
        random_state: int | RandomState | Generator | Generator | None = None,
        verbose: int = 0,
        **arguments: Any,
    ) -> None: ...
    def export_task(self, task: Any) -> dict[Any, Any]: ...
    def fit(
        self,
        X: Any,
        y: Any,
        task: Any = None,
        sample_weight: Any = None,
        journal: Any = None,
    ) -> Self: ...

__all__ = [
    "InitBillboard",
    "NetworkBillboard",
    "TorchFeatures",
    "TorchMeanRegClassifier",
    "TorchMeanRegRegressor",
    "TorchMetaInitClassifier",
    "TorchMetaInitRegressor",
]
