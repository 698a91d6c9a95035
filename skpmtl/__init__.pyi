"""Type hints of `skpmtl`; written by ``python -m tests.stubs``."""

from collections.abc import Callable, Iterator, Mapping
from os import PathLike
from typing import Any, Literal, NamedTuple
from numpy.random import Generator, RandomState
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, RegressorMixin, TransformerMixin
from typing_extensions import Self
from skpmtl.privacy import PrivacyReport as PrivacyReport
from skpmtl.callbacks import RoundCallbacks as RoundCallbacks

__version__: str

class _BaseFedMTL(RoundCallbacks):
    def personalize(
        self,
        X: Any,
        y: Any,
        client: Any = None,
        task: Any = None,
        sample_weight: Any = None,
    ) -> Self: ...

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

class _MeanRegularized(_WideSparse, _HasCovariates, _BaseMTL):
    def summary_frame(self, coverage: float = 0.9) -> Any: ...

class _MetaInit(_HasCovariates, _BaseMTL):
    def task_privacy(self, task: Any) -> dict[Any, Any]: ...

class _NamedCoefficients:
    def coef_frame(self, of: Literal["tasks", "relation"] = "tasks") -> Any: ...

class _Scored:
    def score(self, X: Any, y: Any, task: Any = None, sample_weight: Any = None) -> float: ...

class _TaskTransformer:
    def personalize(self, X: Any, y: Any = None) -> Self: ...

class _WideSparse:
    def personalize(self, X: Any, y: Any, task: Any = None, sample_weight: Any = None) -> Self: ...

class BudgetPlan:
    n_tasks: int
    n_rows: int
    n_features: int
    epsilons: tuple[Any, ...] | None
    delta: float
    shared: tuple[Any, ...]
    errors: NDArray[Any]
    deviations: NDArray[Any]
    floors: NDArray[Any]
    smallest_epsilon: float
    mean_noise: NDArray[Any]
    n_repeats: int
    n_simulated: int
    estimator: str
    explained: float
    def __init__(
        self,
        n_tasks: int,
        n_rows: int,
        n_features: int,
        epsilons: tuple[Any, ...] | None,
        delta: float,
        shared: tuple[Any, ...],
        errors: NDArray[Any],
        deviations: NDArray[Any],
        floors: NDArray[Any],
        smallest_epsilon: float,
        mean_noise: NDArray[Any],
        n_repeats: int,
        n_simulated: int,
        estimator: str,
        explained: float,
    ) -> None: ...
    def plot(self, ax: Any = None) -> Any: ...
    def to_frame(self) -> Any: ...

class ClusteredMTL(_MTLRegressorMixin, _BaseMTL, RegressorMixin, BaseEstimator):
    n_clusters: int | Literal["auto"]
    alpha: Literal["auto"] | float
    ridge: float
    task_weight: Literal["equal", "samples"]
    loss: Literal["huber", "poisson", "squared"]
    epsilon: float | None
    delta: float | None
    adjacency: Literal["replace-one", "zero-out"]
    curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any]
    fit_intercept: bool
    task_feature: str | int | list[Any] | None
    tasks: Literal["auto"] | ArrayLike
    unseen_task: Literal["error", "mean"]
    target_range: ArrayLike | None
    random_state: int | RandomState | Generator | Generator
    secure: bool
    max_iter: int
    tol: float
    verbose: int
    dtype: Literal["float64", "float32"] | type[Any]
    coef_: NDArray[Any]
    intercept_: NDArray[Any]
    cluster_matrix_: NDArray[Any]
    tasks_: NDArray[Any]
    billboard_: Any
    privacy_: PrivacyReport
    n_iter_: int
    objective_: float
    dual_gap_: float
    mean_coef_: NDArray[Any] | float
    mean_intercept_: NDArray[Any] | float
    groups_: dict[Any, Any]
    membership_: NDArray[Any]
    shares_: Any
    level_: Any
    level_spread_: Any
    n_features_in_: Any
    feature_names_in_: Any
    coef_names_: NDArray[Any]
    def __init__(
        self,
        n_clusters: int | Literal["auto"] = 2,
        *,
        alpha: Literal["auto"] | float = "auto",
        ridge: float = 0.1,
        task_weight: Literal["equal", "samples"] = "equal",
        loss: Literal["huber", "poisson", "squared"] = "squared",
        epsilon: float | None = None,
        delta: float | None = None,
        adjacency: Literal["replace-one", "zero-out"] = "replace-one",
        curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any] = "trusted",
        fit_intercept: bool = True,
        task_feature: str | int | list[Any] | None = None,
        tasks: Literal["auto"] | ArrayLike = "auto",
        unseen_task: Literal["error", "mean"] = "error",
        target_range: ArrayLike | None = None,
        random_state: int | RandomState | Generator | Generator | None = None,
        secure: bool = False,
        max_iter: int = 10000,
        tol: float = 1e-06,
        verbose: int = 0,
        dtype: Literal["float64", "float32"] | type[Any] = ...,
    ) -> None: ...
    def export_task(self, task: Any, *, as_sklearn: bool = False) -> Any: ...
    def fit(self, X: Any, y: Any, task: Any = None, sample_weight: Any = None) -> Self: ...

class ClusteredMTLClassifier(_MTLClassifierMixin, _BaseMTL, ClassifierMixin, BaseEstimator):
    n_clusters: int | Literal["auto"]
    alpha: Literal["auto"] | float
    ridge: float
    task_weight: Literal["equal", "samples"]
    epsilon: float | None
    delta: float | None
    adjacency: Literal["replace-one", "zero-out"]
    curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any]
    fit_intercept: bool
    task_feature: str | int | list[Any] | None
    tasks: Literal["auto"] | ArrayLike
    classes: Literal["auto"] | ArrayLike
    class_weight: Literal["balanced"] | Mapping[Any, Any] | None
    unseen_task: Literal["error", "mean"]
    random_state: int | RandomState | Generator | Generator
    secure: bool
    max_iter: int
    tol: float
    verbose: int
    dtype: Literal["float64", "float32"] | type[Any]
    coef_: NDArray[Any]
    intercept_: NDArray[Any]
    cluster_matrix_: NDArray[Any]
    tasks_: NDArray[Any]
    classes_: NDArray[Any]
    billboard_: Any
    privacy_: PrivacyReport
    n_iter_: int
    objective_: float
    dual_gap_: float
    mean_coef_: NDArray[Any] | float
    mean_intercept_: NDArray[Any] | float
    groups_: dict[Any, Any]
    membership_: NDArray[Any]
    shares_: Any
    level_: Any
    level_spread_: Any
    n_features_in_: Any
    feature_names_in_: Any
    coef_names_: NDArray[Any]
    def __init__(
        self,
        n_clusters: int | Literal["auto"] = 2,
        *,
        alpha: Literal["auto"] | float = "auto",
        ridge: float = 0.1,
        task_weight: Literal["equal", "samples"] = "equal",
        epsilon: float | None = None,
        delta: float | None = None,
        adjacency: Literal["replace-one", "zero-out"] = "replace-one",
        curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any] = "trusted",
        fit_intercept: bool = True,
        task_feature: str | int | list[Any] | None = None,
        tasks: Literal["auto"] | ArrayLike = "auto",
        classes: Literal["auto"] | ArrayLike = "auto",
        class_weight: Literal["balanced"] | Mapping[Any, Any] | None = None,
        unseen_task: Literal["error", "mean"] = "error",
        random_state: int | RandomState | Generator | Generator | None = None,
        secure: bool = False,
        max_iter: int = 10000,
        tol: float = 1e-06,
        verbose: int = 0,
        dtype: Literal["float64", "float32"] | type[Any] = ...,
    ) -> None: ...
    def export_task(self, task: Any, *, as_sklearn: bool = False) -> Any: ...
    def fit(self, X: Any, y: Any, task: Any = None, sample_weight: Any = None) -> Self: ...

class DPAggregation(_MTLRegressorMixin, _BaseMTL, RegressorMixin, BaseEstimator):
    lam: float
    epsilon: float | None
    delta: float | None
    adjacency: Literal["replace-one", "zero-out"]
    curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any]
    guarantee: Literal["record", "task"]
    group: Literal["direct", "gaussian", "published", "tight"]
    mechanism: Literal["auto", "gamma", "gaussian"]
    max_row_norm: float | None
    max_target: float | None
    max_task_rows: int | None
    min_task_rows: int | None
    clip_norm: float | None
    fit_intercept: bool
    task_feature: str | int | list[Any] | None
    tasks: Literal["auto"] | ArrayLike
    unseen_task: Literal["error", "mean"]
    secure: bool
    random_state: int | RandomState | Generator | Generator
    verbose: int
    coef_: NDArray[Any]
    intercept_: NDArray[Any]
    mean_coef_: NDArray[Any]
    mean_intercept_: float
    tasks_: NDArray[Any]
    billboard_: Any
    privacy_: PrivacyReport
    n_iter_: int
    n_features_in_: Any
    feature_names_in_: Any
    coef_names_: NDArray[Any]
    def __init__(
        self,
        lam: float = 1.0,
        *,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Literal["replace-one", "zero-out"] = "replace-one",
        curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any] = "trusted",
        guarantee: Literal["record", "task"] = "task",
        group: Literal["direct", "gaussian", "published", "tight"] = "published",
        mechanism: Literal["auto", "gamma", "gaussian"] = "auto",
        max_row_norm: float | None = None,
        max_target: float | None = None,
        max_task_rows: int | None = None,
        min_task_rows: int | None = None,
        clip_norm: float | None = None,
        fit_intercept: bool = True,
        task_feature: str | int | list[Any] | None = None,
        tasks: Literal["auto"] | ArrayLike = "auto",
        unseen_task: Literal["error", "mean"] = "mean",
        secure: bool = False,
        random_state: int | RandomState | Generator | Generator | None = None,
        verbose: int = 0,
    ) -> None: ...
    def export_task(self, task: Any, *, as_sklearn: bool = False) -> Any: ...
    def fit(self, X: Any, y: Any, task: Any = None, sample_weight: Any = None) -> Self: ...

class DPAggregationClassifier(_MTLClassifierMixin, _BaseMTL, ClassifierMixin, BaseEstimator):
    lam: float
    epsilon: float | None
    delta: float | None
    adjacency: Literal["replace-one", "zero-out"]
    curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any]
    guarantee: Literal["record", "task"]
    group: Literal["direct", "gaussian", "published", "tight"]
    mechanism: Literal["auto", "gamma", "gaussian"]
    max_row_norm: float | None
    max_task_rows: int | None
    min_task_rows: int | None
    clip_norm: float | None
    fit_intercept: bool
    task_feature: str | int | list[Any] | None
    tasks: Literal["auto"] | ArrayLike
    classes: Literal["auto"] | ArrayLike
    class_weight: Literal["balanced"] | Mapping[Any, Any] | None
    unseen_task: Literal["error", "mean"]
    secure: bool
    random_state: int | RandomState | Generator | Generator
    verbose: int
    coef_: NDArray[Any]
    intercept_: NDArray[Any]
    mean_coef_: NDArray[Any]
    mean_intercept_: float
    tasks_: NDArray[Any]
    classes_: NDArray[Any]
    billboard_: Any
    privacy_: PrivacyReport
    n_iter_: int
    n_features_in_: Any
    feature_names_in_: Any
    coef_names_: NDArray[Any]
    def __init__(
        self,
        lam: float = 1.0,
        *,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Literal["replace-one", "zero-out"] = "replace-one",
        curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any] = "trusted",
        guarantee: Literal["record", "task"] = "task",
        group: Literal["direct", "gaussian", "published", "tight"] = "published",
        mechanism: Literal["auto", "gamma", "gaussian"] = "auto",
        max_row_norm: float | None = None,
        max_task_rows: int | None = None,
        min_task_rows: int | None = None,
        clip_norm: float | None = None,
        fit_intercept: bool = True,
        task_feature: str | int | list[Any] | None = None,
        tasks: Literal["auto"] | ArrayLike = "auto",
        classes: Literal["auto"] | ArrayLike = "auto",
        class_weight: Literal["balanced"] | Mapping[Any, Any] | None = None,
        unseen_task: Literal["error", "mean"] = "mean",
        secure: bool = False,
        random_state: int | RandomState | Generator | Generator | None = None,
        verbose: int = 0,
    ) -> None: ...
    def export_task(self, task: Any, *, as_sklearn: bool = False) -> Any: ...
    def fit(self, X: Any, y: Any, task: Any = None, sample_weight: Any = None) -> Self: ...

class DPMetaInit(_MTLRegressorMixin, _MetaInit, RegressorMixin, BaseEstimator):
    epsilon: float | None
    delta: float | None
    adjacency: Literal["replace-one", "zero-out"]
    curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any]
    privacy: Literal["local", "task-global"] | None
    clip_norm: float
    inner_steps: Literal["auto"] | int
    inner_learning_rate: Literal["auto"] | float
    batch_size: int | None
    batches: Literal["disjoint", "full", "poisson"]
    meta_learning_rate: Literal["auto"] | float
    tasks_per_round: Literal["all", "auto"] | int
    visits: int
    group_size: int
    max_rows_per_unit: int | None
    init: Any
    relation: Any
    relation_rank: int | None
    refine: Literal["prox", "sgd"]
    refine_steps: int
    refine_learning_rate: Literal["auto"] | float
    fit_intercept: bool
    task_feature: str | int | list[Any] | None
    tasks: Literal["auto"] | ArrayLike
    unseen_task: Literal["error", "mean"]
    target_range: ArrayLike | None
    uncertainty: bool | Literal["auto", "unseen"]
    feature_range: Any
    secure: bool
    random_state: int | RandomState | Generator | Generator
    verbose: int
    dtype: Literal["float64", "float32"] | type[Any]
    init_coef_: NDArray[Any]
    init_intercept_: float
    relation_coef_: NDArray[Any]
    relation_intercept_: NDArray[Any]
    relation_noise_std_: Any
    coef_: NDArray[Any]
    intercept_: NDArray[Any]
    tasks_: NDArray[Any]
    covariance_: NDArray[Any]
    noise_variance_: NDArray[Any]
    dof_: NDArray[Any]
    billboard_: Any
    privacy_: PrivacyReport
    n_iter_: int
    n_features_in_: Any
    feature_names_in_: Any
    coef_names_: NDArray[Any]
    def __init__(
        self,
        *,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Literal["replace-one", "zero-out"] = "replace-one",
        curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any] = "trusted",
        privacy: Literal["local", "task-global"] | None = "task-global",
        clip_norm: float = 0.5,
        inner_steps: Literal["auto"] | int = "auto",
        inner_learning_rate: Literal["auto"] | float = "auto",
        batch_size: int | None = None,
        batches: Literal["disjoint", "full", "poisson"] = "full",
        meta_learning_rate: Literal["auto"] | float = "auto",
        tasks_per_round: Literal["all", "auto"] | int = "auto",
        visits: int = 1,
        group_size: int = 1,
        max_rows_per_unit: int | None = None,
        init: Any = None,
        relation: Any = None,
        relation_rank: int | None = None,
        refine: Literal["prox", "sgd"] = "prox",
        refine_steps: int = 10,
        refine_learning_rate: Literal["auto"] | float = "auto",
        fit_intercept: bool = True,
        task_feature: str | int | list[Any] | None = None,
        tasks: Literal["auto"] | ArrayLike = "auto",
        unseen_task: Literal["error", "mean"] = "error",
        target_range: ArrayLike | None = None,
        uncertainty: bool | Literal["auto", "unseen"] = False,
        feature_range: Any = None,
        secure: bool = False,
        random_state: int | RandomState | Generator | Generator | None = None,
        verbose: int = 0,
        dtype: Literal["float64", "float32"] | type[Any] = ...,
    ) -> None: ...
    def export_task(self, task: Any, *, as_sklearn: bool = False) -> Any: ...
    def fit(
        self,
        X: Any,
        y: Any,
        task: Any = None,
        unit: ArrayLike | Mapping[Any, Any] | None = None,
        sample_weight: Any = None,
    ) -> Self: ...

class DPMetaInitClassifier(_MTLClassifierMixin, _MetaInit, ClassifierMixin, BaseEstimator):
    epsilon: float | None
    delta: float | None
    adjacency: Literal["replace-one", "zero-out"]
    curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any]
    privacy: Literal["local", "task-global"] | None
    clip_norm: float
    inner_steps: Literal["auto"] | int
    inner_learning_rate: Literal["auto"] | float
    batch_size: int | None
    batches: Literal["disjoint", "full", "poisson"]
    meta_learning_rate: Literal["auto"] | float
    tasks_per_round: Literal["all", "auto"] | int
    visits: int
    group_size: int
    max_rows_per_unit: int | None
    init: Any
    relation: Any
    relation_rank: int | None
    refine: Literal["prox", "sgd"]
    refine_steps: int
    refine_learning_rate: Literal["auto"] | float
    fit_intercept: bool
    task_feature: str | int | list[Any] | None
    tasks: Literal["auto"] | ArrayLike
    classes: Literal["auto"] | ArrayLike
    class_weight: Literal["balanced"] | Mapping[Any, Any] | None
    unseen_task: Literal["error", "mean"]
    uncertainty: bool | Literal["auto", "unseen"]
    feature_range: Any
    secure: bool
    random_state: int | RandomState | Generator | Generator
    verbose: int
    dtype: Literal["float64", "float32"] | type[Any]
    init_coef_: Any
    init_intercept_: float | NDArray[Any]
    relation_coef_: Any
    relation_intercept_: Any
    relation_noise_std_: Any
    coef_: Any
    intercept_: Any
    tasks_: NDArray[Any]
    classes_: NDArray[Any]
    covariance_: NDArray[Any]
    posterior_shift_: NDArray[Any]
    billboard_: Any
    privacy_: PrivacyReport
    n_iter_: int
    n_features_in_: Any
    feature_names_in_: Any
    coef_names_: NDArray[Any]
    def __init__(
        self,
        *,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Literal["replace-one", "zero-out"] = "replace-one",
        curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any] = "trusted",
        privacy: Literal["local", "task-global"] | None = "task-global",
        clip_norm: float = 0.5,
        inner_steps: Literal["auto"] | int = "auto",
        inner_learning_rate: Literal["auto"] | float = "auto",
        batch_size: int | None = None,
        batches: Literal["disjoint", "full", "poisson"] = "full",
        meta_learning_rate: Literal["auto"] | float = "auto",
        tasks_per_round: Literal["all", "auto"] | int = "auto",
        visits: int = 1,
        group_size: int = 1,
        max_rows_per_unit: int | None = None,
        init: Any = None,
        relation: Any = None,
        relation_rank: int | None = None,
        refine: Literal["prox", "sgd"] = "prox",
        refine_steps: int = 10,
        refine_learning_rate: Literal["auto"] | float = "auto",
        fit_intercept: bool = True,
        task_feature: str | int | list[Any] | None = None,
        tasks: Literal["auto"] | ArrayLike = "auto",
        classes: Literal["auto"] | ArrayLike = "auto",
        class_weight: Literal["balanced"] | Mapping[Any, Any] | None = None,
        unseen_task: Literal["error", "mean"] = "error",
        uncertainty: bool | Literal["auto", "unseen"] = "auto",
        feature_range: Any = None,
        secure: bool = False,
        random_state: int | RandomState | Generator | Generator | None = None,
        verbose: int = 0,
        dtype: Literal["float64", "float32"] | type[Any] = ...,
    ) -> None: ...
    def export_task(self, task: Any, *, as_sklearn: bool = False) -> Any: ...
    def fit(
        self,
        X: Any,
        y: Any,
        task: Any = None,
        unit: ArrayLike | Mapping[Any, Any] | None = None,
        sample_weight: Any = None,
    ) -> Self: ...

class DPRelationship(_MTLRegressorMixin, _BaseMTL, RegressorMixin, BaseEstimator):
    lam: float
    alpha: float
    epsilon: float | None
    delta: float | None
    adjacency: Literal["replace-one", "zero-out"]
    curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any]
    guarantee: Literal["record", "task"]
    group: Literal["direct", "gaussian", "published", "tight"]
    mechanism: Literal["auto", "gamma", "gaussian"]
    max_row_norm: float | None
    max_target: float | None
    max_task_rows: int | None
    min_task_rows: int | None
    clip_norm: float | None
    fit_intercept: bool
    task_feature: str | int | list[Any] | None
    tasks: Literal["auto"] | ArrayLike
    unseen_task: Literal["error", "mean"]
    n_rounds: int
    max_iter: int
    tol: float
    secure: bool
    random_state: int | RandomState | Generator | Generator
    verbose: int
    coef_: NDArray[Any]
    intercept_: NDArray[Any]
    mean_coef_: NDArray[Any]
    mean_intercept_: float
    tasks_: NDArray[Any]
    billboard_: Any
    privacy_: PrivacyReport
    n_iter_: int
    objective_: float
    n_features_in_: Any
    feature_names_in_: Any
    coef_names_: NDArray[Any]
    def __init__(
        self,
        lam: float = 1.0,
        alpha: float = 1.0,
        *,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Literal["replace-one", "zero-out"] = "replace-one",
        curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any] = "trusted",
        guarantee: Literal["record", "task"] = "task",
        group: Literal["direct", "gaussian", "published", "tight"] = "published",
        mechanism: Literal["auto", "gamma", "gaussian"] = "auto",
        max_row_norm: float | None = None,
        max_target: float | None = None,
        max_task_rows: int | None = None,
        min_task_rows: int | None = None,
        clip_norm: float | None = None,
        fit_intercept: bool = True,
        task_feature: str | int | list[Any] | None = None,
        tasks: Literal["auto"] | ArrayLike = "auto",
        unseen_task: Literal["error", "mean"] = "error",
        n_rounds: int = 3,
        max_iter: int = 1000,
        tol: float = 1e-10,
        secure: bool = False,
        random_state: int | RandomState | Generator | Generator | None = None,
        verbose: int = 0,
    ) -> None: ...
    def export_task(self, task: Any, *, as_sklearn: bool = False) -> Any: ...
    def fit(self, X: Any, y: Any, task: Any = None, sample_weight: Any = None) -> Self: ...

class DPRelationshipClassifier(_MTLClassifierMixin, _BaseMTL, ClassifierMixin, BaseEstimator):
    lam: float
    alpha: float
    epsilon: float | None
    delta: float | None
    adjacency: Literal["replace-one", "zero-out"]
    curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any]
    guarantee: Literal["record", "task"]
    group: Literal["direct", "gaussian", "published", "tight"]
    mechanism: Literal["auto", "gamma", "gaussian"]
    max_row_norm: float | None
    max_task_rows: int | None
    min_task_rows: int | None
    clip_norm: float | None
    fit_intercept: bool
    task_feature: str | int | list[Any] | None
    tasks: Literal["auto"] | ArrayLike
    classes: Literal["auto"] | ArrayLike
    class_weight: Literal["balanced"] | Mapping[Any, Any] | None
    unseen_task: Literal["error", "mean"]
    n_rounds: int
    max_iter: int
    tol: float
    secure: bool
    random_state: int | RandomState | Generator | Generator
    verbose: int
    coef_: NDArray[Any]
    intercept_: NDArray[Any]
    mean_coef_: NDArray[Any]
    mean_intercept_: float
    tasks_: NDArray[Any]
    classes_: NDArray[Any]
    billboard_: Any
    privacy_: PrivacyReport
    n_iter_: int
    objective_: float
    n_features_in_: Any
    feature_names_in_: Any
    coef_names_: NDArray[Any]
    def __init__(
        self,
        lam: float = 1.0,
        alpha: float = 1.0,
        *,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Literal["replace-one", "zero-out"] = "replace-one",
        curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any] = "trusted",
        guarantee: Literal["record", "task"] = "task",
        group: Literal["direct", "gaussian", "published", "tight"] = "published",
        mechanism: Literal["auto", "gamma", "gaussian"] = "auto",
        max_row_norm: float | None = None,
        max_task_rows: int | None = None,
        min_task_rows: int | None = None,
        clip_norm: float | None = None,
        fit_intercept: bool = True,
        task_feature: str | int | list[Any] | None = None,
        tasks: Literal["auto"] | ArrayLike = "auto",
        classes: Literal["auto"] | ArrayLike = "auto",
        class_weight: Literal["balanced"] | Mapping[Any, Any] | None = None,
        unseen_task: Literal["error", "mean"] = "error",
        n_rounds: int = 3,
        max_iter: int = 1000,
        tol: float = 1e-10,
        secure: bool = False,
        random_state: int | RandomState | Generator | Generator | None = None,
        verbose: int = 0,
    ) -> None: ...
    def export_task(self, task: Any, *, as_sklearn: bool = False) -> Any: ...
    def fit(self, X: Any, y: Any, task: Any = None, sample_weight: Any = None) -> Self: ...

class FedMTLClassifier(_BaseFedMTL, ClassifierMixin, BaseEstimator):
    hidden_layer_sizes: ArrayLike | int
    activation: Literal["identity", "logistic", "relu", "tanh"]
    threshold: tuple[Any, ...] | list[Any] | float
    n_rounds: int
    local_epochs: int
    batch_size: int
    solver: Literal["adam", "sgd"]
    learning_rate: float
    momentum: float
    alpha: float
    aggregation: Literal["exact-match", "fedamp", "fedavg", "fedfomo", "fedprox", "heads-by-similarity", "jaccard", "local", "mocha", "per-task", "pfedme", "shared-only", "similarity", "uniform"]
    proximal_strength: float
    attention_scale: float
    validation_fraction: float
    secure: Literal["mpc", "spu"] | None
    module: Callable[..., Any] | None
    client_feature: str | int | list[Any] | None
    task_feature: str | int | list[Any] | None
    class_weight: Literal["balanced"] | Mapping[Any, Any] | None
    random_state: int | RandomState | Generator | Generator
    verbose: int
    clients_: NDArray[Any]
    task_names_: NDArray[Any]
    classes_: list[Any] | NDArray[Any]
    similarity_: Any
    history_: dict[Any, Any]
    n_iter_: int
    privacy_: PrivacyReport
    n_features_in_: Any
    feature_names_in_: Any
    def __init__(
        self,
        hidden_layer_sizes: ArrayLike | int = ...,
        *,
        activation: Literal["identity", "logistic", "relu", "tanh"] = "relu",
        threshold: tuple[Any, ...] | list[Any] | float = ...,
        n_rounds: int = 20,
        local_epochs: int = 1,
        batch_size: int = 32,
        solver: Literal["adam", "sgd"] = "adam",
        learning_rate: float = 0.01,
        momentum: float = 0.9,
        alpha: float = 0.0001,
        aggregation: Literal["exact-match", "fedamp", "fedavg", "fedfomo", "fedprox", "heads-by-similarity", "jaccard", "local", "mocha", "per-task", "pfedme", "shared-only", "similarity", "uniform"] = "per-task",
        proximal_strength: float = 0.1,
        attention_scale: float = 1.0,
        validation_fraction: float = 0.2,
        secure: Literal["mpc", "spu"] | None = None,
        module: Callable[..., Any] | None = None,
        client_feature: str | int | list[Any] | None = None,
        task_feature: str | int | list[Any] | None = None,
        class_weight: Literal["balanced"] | Mapping[Any, Any] | None = None,
        random_state: int | RandomState | Generator | Generator | None = None,
        verbose: int = 0,
    ) -> None: ...
    def fit(
        self,
        X: Any,
        y: Any,
        client: ArrayLike | None = None,
        task: Any = None,
        sample_weight: Any = None,
        journal: str | PathLike[str] | None = None,
    ) -> Self: ...
    def predict(self, X: Any, client: Any = None, task: Any = None) -> Any: ...
    def predict_log_proba(
        self,
        X: Any,
        client: Any = None,
        task: Any = None,
    ) -> list[Any] | NDArray[Any]: ...
    def predict_proba(
        self,
        X: Any,
        client: Any = None,
        task: Any = None,
    ) -> list[Any] | NDArray[Any]: ...
    def score(
        self,
        X: Any,
        y: Any,
        client: Any = None,
        task: Any = None,
        sample_weight: Any = None,
    ) -> float: ...

class FedMTLRegressor(_BaseFedMTL, RegressorMixin, BaseEstimator):
    hidden_layer_sizes: ArrayLike | int
    activation: Literal["identity", "logistic", "relu", "tanh"]
    threshold: tuple[Any, ...] | list[Any] | float
    n_rounds: int
    local_epochs: int
    batch_size: int
    solver: Literal["adam", "sgd"]
    learning_rate: float
    momentum: float
    alpha: float
    aggregation: Literal["exact-match", "fedamp", "fedavg", "fedfomo", "fedprox", "heads-by-similarity", "jaccard", "local", "mocha", "per-task", "pfedme", "shared-only", "similarity", "uniform"]
    proximal_strength: float
    attention_scale: float
    validation_fraction: float
    secure: Literal["mpc", "spu"] | None
    module: Callable[..., Any] | None
    client_feature: str | int | list[Any] | None
    task_feature: str | int | list[Any] | None
    random_state: int | RandomState | Generator | Generator
    verbose: int
    clients_: Any
    task_names_: Any
    similarity_: Any
    n_iter_: Any
    privacy_: Any
    n_features_in_: Any
    feature_names_in_: Any
    history_: dict[Any, Any]
    def __init__(
        self,
        hidden_layer_sizes: ArrayLike | int = ...,
        *,
        activation: Literal["identity", "logistic", "relu", "tanh"] = "relu",
        threshold: tuple[Any, ...] | list[Any] | float = ...,
        n_rounds: int = 20,
        local_epochs: int = 1,
        batch_size: int = 32,
        solver: Literal["adam", "sgd"] = "adam",
        learning_rate: float = 0.01,
        momentum: float = 0.9,
        alpha: float = 0.0001,
        aggregation: Literal["exact-match", "fedamp", "fedavg", "fedfomo", "fedprox", "heads-by-similarity", "jaccard", "local", "mocha", "per-task", "pfedme", "shared-only", "similarity", "uniform"] = "per-task",
        proximal_strength: float = 0.1,
        attention_scale: float = 1.0,
        validation_fraction: float = 0.2,
        secure: Literal["mpc", "spu"] | None = None,
        module: Callable[..., Any] | None = None,
        client_feature: str | int | list[Any] | None = None,
        task_feature: str | int | list[Any] | None = None,
        random_state: int | RandomState | Generator | Generator | None = None,
        verbose: int = 0,
    ) -> None: ...
    def fit(
        self,
        X: Any,
        y: Any,
        client: ArrayLike | None = None,
        task: Any = None,
        sample_weight: Any = None,
        journal: str | PathLike[str] | None = None,
    ) -> Self: ...
    def predict(self, X: Any, client: Any = None, task: Any = None) -> Any: ...
    def score(
        self,
        X: Any,
        y: Any,
        client: Any = None,
        task: Any = None,
        sample_weight: Any = None,
    ) -> float: ...

class LeaveTasksOut:
    n_splits: int
    task_feature: str | int | None
    random_state: int | RandomState | None
    def __init__(
        self,
        n_splits: int = 5,
        *,
        task_feature: str | int | None = None,
        random_state: int | RandomState | None = None,
    ) -> None: ...
    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int: ...
    def split(
        self,
        X: Any,
        y: Any = None,
        groups: ArrayLike | None = None,
    ) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]: ...

class LocalOnly(_MTLRegressorMixin, _MeanRegularized, RegressorMixin, BaseEstimator):
    lam: Literal["auto"] | float
    loss: Literal["huber", "poisson", "squared"]
    epsilon: float | None
    delta: float | None
    adjacency: Literal["replace-one", "zero-out"]
    curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any]
    clip_norm: Literal["auto"] | float
    clip_quantile: float | None
    n_rounds: Literal["auto"] | int
    sampling: Literal["all", "fixed", "poisson"]
    sampling_rate: float
    local_steps: Literal["auto"] | int
    local_learning_rate: float
    server_learning_rate: float
    personalization: Literal["ewc", "finetune", "mean-reg", "none", "symmetrized-kl"]
    init: Any
    ridge: float
    task_weight: Literal["equal", "samples"]
    clusters: Mapping[Any, Any] | None
    relation: Any
    relation_rank: int | Literal["all"] | None
    fit_intercept: bool
    task_feature: str | int | list[Any] | None
    tasks: Literal["auto"] | ArrayLike
    unseen_task: Literal["error", "mean"]
    target_range: ArrayLike | None
    uncertainty: bool | Literal["auto", "unseen"]
    max_iter: int
    tol: float
    secure: bool
    random_state: int | RandomState | Generator | Generator
    verbose: int
    dtype: Any
    coef_: Any
    intercept_: Any
    mean_coef_: Any
    mean_intercept_: Any
    relation_coef_: Any
    relation_noise_std_: Any
    billboard_: Any
    privacy_: Any
    tasks_: Any
    n_iter_: Any
    n_features_in_: Any
    feature_names_in_: Any
    coef_names_: NDArray[Any]
    def __init__(
        self,
        lam: Literal["auto"] | float = "auto",
        *,
        loss: Literal["huber", "poisson", "squared"] = "squared",
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Literal["replace-one", "zero-out"] = "replace-one",
        curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any] = "trusted",
        clip_norm: Literal["auto"] | float = "auto",
        clip_quantile: float | None = None,
        n_rounds: Literal["auto"] | int = "auto",
        sampling: Literal["all", "fixed", "poisson"] = "all",
        sampling_rate: float = 1.0,
        local_steps: Literal["auto"] | int = "auto",
        local_learning_rate: float = 1.0,
        server_learning_rate: float = 1.0,
        personalization: Literal["ewc", "finetune", "mean-reg", "none", "symmetrized-kl"] = "mean-reg",
        init: Any = None,
        ridge: float = 0.0,
        task_weight: Literal["equal", "samples"] = "equal",
        clusters: Mapping[Any, Any] | None = None,
        relation: Any = None,
        relation_rank: int | Literal["all"] | None = None,
        fit_intercept: bool = True,
        task_feature: str | int | list[Any] | None = None,
        tasks: Literal["auto"] | ArrayLike = "auto",
        unseen_task: Literal["error", "mean"] = "error",
        target_range: ArrayLike | None = None,
        uncertainty: bool | Literal["auto", "unseen"] = False,
        max_iter: int = 100,
        tol: float = 1e-10,
        secure: bool = False,
        random_state: int | RandomState | Generator | Generator | None = None,
        verbose: int = 0,
        dtype: Any = ...,
    ) -> None: ...
    def export_task(self, task: Any, *, as_sklearn: bool = False) -> Any: ...
    def fit(self, X: Any, y: Any, task: Any = None, sample_weight: Any = None) -> Self: ...

class LocalOnlyClassifier(_MTLClassifierMixin, _MeanRegularized, ClassifierMixin, BaseEstimator):
    lam: Literal["auto"] | float
    epsilon: float | None
    delta: float | None
    adjacency: Literal["replace-one", "zero-out"]
    curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any]
    clip_norm: Literal["auto"] | float
    clip_quantile: float | None
    n_rounds: Literal["auto"] | int
    sampling: Literal["all", "fixed", "poisson"]
    sampling_rate: float
    local_steps: Literal["auto"] | int
    local_learning_rate: float
    server_learning_rate: float
    personalization: Literal["ewc", "finetune", "mean-reg", "none", "symmetrized-kl"]
    init: Any
    ridge: float
    task_weight: Literal["equal", "samples"]
    clusters: Mapping[Any, Any] | None
    relation: Any
    relation_rank: int | Literal["all"] | None
    fit_intercept: bool
    task_feature: str | int | list[Any] | None
    tasks: Literal["auto"] | ArrayLike
    classes: Literal["auto"] | ArrayLike
    class_weight: Literal["balanced"] | Mapping[Any, Any] | None
    unseen_task: Literal["error", "mean"]
    max_iter: int
    tol: float
    secure: bool
    random_state: int | RandomState | Generator | Generator
    verbose: int
    dtype: Any
    coef_: Any
    intercept_: Any
    mean_coef_: Any
    mean_intercept_: Any
    relation_coef_: Any
    relation_noise_std_: Any
    billboard_: Any
    privacy_: Any
    tasks_: Any
    n_iter_: Any
    n_features_in_: Any
    feature_names_in_: Any
    classes_: Any
    coef_names_: NDArray[Any]
    def __init__(
        self,
        lam: Literal["auto"] | float = "auto",
        *,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Literal["replace-one", "zero-out"] = "replace-one",
        curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any] = "trusted",
        clip_norm: Literal["auto"] | float = "auto",
        clip_quantile: float | None = None,
        n_rounds: Literal["auto"] | int = "auto",
        sampling: Literal["all", "fixed", "poisson"] = "all",
        sampling_rate: float = 1.0,
        local_steps: Literal["auto"] | int = "auto",
        local_learning_rate: float = 1.0,
        server_learning_rate: float = 1.0,
        personalization: Literal["ewc", "finetune", "mean-reg", "none", "symmetrized-kl"] = "mean-reg",
        init: Any = None,
        ridge: float = 0.0,
        task_weight: Literal["equal", "samples"] = "equal",
        clusters: Mapping[Any, Any] | None = None,
        relation: Any = None,
        relation_rank: int | Literal["all"] | None = None,
        fit_intercept: bool = True,
        task_feature: str | int | list[Any] | None = None,
        tasks: Literal["auto"] | ArrayLike = "auto",
        classes: Literal["auto"] | ArrayLike = "auto",
        class_weight: Literal["balanced"] | Mapping[Any, Any] | None = None,
        unseen_task: Literal["error", "mean"] = "error",
        max_iter: int = 100,
        tol: float = 1e-10,
        secure: bool = False,
        random_state: int | RandomState | Generator | Generator | None = None,
        verbose: int = 0,
        dtype: Any = ...,
    ) -> None: ...
    def export_task(self, task: Any, *, as_sklearn: bool = False) -> Any: ...
    def fit(self, X: Any, y: Any, task: Any = None, sample_weight: Any = None) -> Self: ...

class MPMTLGroupSparse(_MTLRegressorMixin, _HasCovariates, _BaseMTL, RegressorMixin, BaseEstimator):
    alpha: Literal["auto"] | float
    loss: Literal["huber", "poisson", "squared"]
    epsilon: float | None
    delta: float | None
    adjacency: Literal["replace-one", "zero-out"]
    curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any]
    mechanism: Literal["auto", "gaussian", "laplace", "wishart"]
    algorithm: Literal["auto", "empirical-bayes", "proximal"]
    levels: Literal["auto", "free", "pooled"]
    init: Any
    ridge: float
    task_weight: Literal["equal", "samples"]
    relation: Any
    relation_rank: int | None
    outliers: Literal["entries", "tasks"] | None
    outlier_alpha: Literal["auto"] | float
    n_releases: Literal["auto"] | int
    clip_norm: float
    fit_intercept: bool
    task_feature: str | int | list[Any] | None
    tasks: Literal["auto"] | ArrayLike
    unseen_task: Literal["error", "mean"]
    target_range: ArrayLike | None
    uncertainty: bool | Literal["auto", "unseen"]
    max_iter: int
    tol: float
    warm_start: bool
    random_state: int | RandomState | Generator | Generator
    secure: bool
    verbose: int
    dtype: Literal["float64", "float32"] | type[Any]
    coef_: NDArray[Any]
    intercept_: NDArray[Any]
    tasks_: NDArray[Any]
    covariance_: NDArray[Any]
    noise_variance_: NDArray[Any]
    dof_: NDArray[Any]
    billboard_: Any
    privacy_: PrivacyReport
    relation_coef_: NDArray[Any]
    relation_intercept_: NDArray[Any]
    relation_noise_std_: NDArray[Any]
    n_iter_: int
    objective_: float
    dual_gap_: float
    alpha_: float
    outlier_coef_: NDArray[Any]
    outlier_: NDArray[Any]
    mean_coef_: NDArray[Any] | float
    mean_intercept_: NDArray[Any] | float
    n_features_in_: Any
    feature_names_in_: Any
    coef_names_: NDArray[Any]
    def __init__(
        self,
        alpha: Literal["auto"] | float = "auto",
        *,
        loss: Literal["huber", "poisson", "squared"] = "squared",
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Literal["replace-one", "zero-out"] = "replace-one",
        curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any] = "trusted",
        mechanism: Literal["auto", "gaussian", "laplace", "wishart"] = "auto",
        algorithm: Literal["auto", "empirical-bayes", "proximal"] = "auto",
        levels: Literal["auto", "free", "pooled"] = "auto",
        init: Any = None,
        ridge: float = 0.0,
        task_weight: Literal["equal", "samples"] = "equal",
        relation: Any = None,
        relation_rank: int | None = None,
        outliers: Literal["entries", "tasks"] | None = None,
        outlier_alpha: Literal["auto"] | float = "auto",
        n_releases: Literal["auto"] | int = "auto",
        clip_norm: float = 1.0,
        fit_intercept: bool = True,
        task_feature: str | int | list[Any] | None = None,
        tasks: Literal["auto"] | ArrayLike = "auto",
        unseen_task: Literal["error", "mean"] = "error",
        target_range: ArrayLike | None = None,
        uncertainty: bool | Literal["auto", "unseen"] = False,
        max_iter: int = 10000,
        tol: float = 1e-06,
        warm_start: bool = False,
        random_state: int | RandomState | Generator | Generator | None = None,
        secure: bool = False,
        verbose: int = 0,
        dtype: Literal["float64", "float32"] | type[Any] = ...,
    ) -> None: ...
    def export_task(self, task: Any, *, as_sklearn: bool = False) -> Any: ...
    def fit(self, X: Any, y: Any, task: Any = None, sample_weight: Any = None) -> Self: ...

class MPMTLGroupSparseCV(_MTLRegressorMixin, _HasCovariates, _BaseMTL, RegressorMixin, BaseEstimator):
    alphas: ArrayLike | None
    eps: float
    n_alphas: int
    cv: Any
    ridge: float
    task_weight: Literal["equal", "samples"]
    fit_intercept: bool
    task_feature: str | int | list[Any] | None
    tasks: Literal["auto"] | ArrayLike
    unseen_task: Literal["error", "mean"]
    max_iter: int
    tol: float
    n_jobs: int | None
    verbose: int
    dtype: Literal["float64", "float32"] | type[Any]
    alpha_: float
    alphas_: NDArray[Any]
    mse_path_: NDArray[Any]
    coef_: NDArray[Any]
    intercept_: NDArray[Any]
    tasks_: NDArray[Any]
    n_iter_: Any
    objective_: Any
    dual_gap_: Any
    mean_coef_: NDArray[Any] | float
    mean_intercept_: NDArray[Any] | float
    billboard_: Any
    privacy_: PrivacyReport
    n_features_in_: Any
    feature_names_in_: Any
    coef_names_: NDArray[Any]
    def __init__(
        self,
        alphas: ArrayLike | None = None,
        *,
        eps: float = 0.001,
        n_alphas: int = 100,
        cv: Any = 5,
        ridge: float = 0.0,
        task_weight: Literal["equal", "samples"] = "equal",
        fit_intercept: bool = True,
        task_feature: str | int | list[Any] | None = None,
        tasks: Literal["auto"] | ArrayLike = "auto",
        unseen_task: Literal["error", "mean"] = "error",
        max_iter: int = 10000,
        tol: float = 1e-06,
        n_jobs: int | None = None,
        verbose: int = 0,
        dtype: Literal["float64", "float32"] | type[Any] = ...,
    ) -> None: ...
    def export_task(self, task: Any, *, as_sklearn: bool = False) -> Any: ...
    def fit(self, X: Any, y: Any, task: Any = None, sample_weight: Any = None) -> Self: ...

class MPMTLGroupSparseClassifier(_MTLClassifierMixin, _HasCovariates, _BaseMTL, ClassifierMixin, BaseEstimator):
    alpha: Literal["auto"] | float
    epsilon: float | None
    delta: float | None
    adjacency: Literal["replace-one", "zero-out"]
    curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any]
    mechanism: Literal["auto", "gaussian", "laplace", "wishart"]
    algorithm: Literal["auto", "empirical-bayes", "proximal"]
    levels: Literal["auto", "free", "pooled"]
    init: Any
    ridge: float
    task_weight: Literal["equal", "samples"]
    relation: Any
    relation_rank: int | None
    outliers: Literal["entries", "tasks"] | None
    outlier_alpha: Literal["auto"] | float
    n_releases: Literal["auto"] | int
    clip_norm: float
    fit_intercept: bool
    task_feature: str | int | list[Any] | None
    tasks: Literal["auto"] | ArrayLike
    classes: Literal["auto"] | ArrayLike
    class_weight: Literal["balanced"] | Mapping[Any, Any] | None
    unseen_task: Literal["error", "mean"]
    uncertainty: bool | Literal["auto", "unseen"]
    max_iter: int
    tol: float
    warm_start: bool
    random_state: int | RandomState | Generator | Generator
    secure: bool
    verbose: int
    dtype: Literal["float64", "float32"] | type[Any]
    coef_: Any
    intercept_: Any
    tasks_: NDArray[Any]
    classes_: NDArray[Any]
    covariance_: NDArray[Any]
    posterior_shift_: NDArray[Any]
    billboard_: Any
    privacy_: PrivacyReport
    relation_coef_: NDArray[Any]
    relation_intercept_: NDArray[Any]
    relation_noise_std_: NDArray[Any]
    n_iter_: int
    objective_: float
    dual_gap_: float
    alpha_: float
    outlier_coef_: Any
    outlier_: NDArray[Any]
    mean_coef_: NDArray[Any] | float
    mean_intercept_: NDArray[Any] | float
    n_features_in_: Any
    feature_names_in_: Any
    coef_names_: NDArray[Any]
    def __init__(
        self,
        alpha: Literal["auto"] | float = "auto",
        *,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Literal["replace-one", "zero-out"] = "replace-one",
        curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any] = "trusted",
        mechanism: Literal["auto", "gaussian", "laplace", "wishart"] = "auto",
        algorithm: Literal["auto", "empirical-bayes", "proximal"] = "auto",
        levels: Literal["auto", "free", "pooled"] = "auto",
        init: Any = None,
        ridge: float = 0.0,
        task_weight: Literal["equal", "samples"] = "equal",
        relation: Any = None,
        relation_rank: int | None = None,
        outliers: Literal["entries", "tasks"] | None = None,
        outlier_alpha: Literal["auto"] | float = "auto",
        n_releases: Literal["auto"] | int = "auto",
        clip_norm: float = 1.0,
        fit_intercept: bool = True,
        task_feature: str | int | list[Any] | None = None,
        tasks: Literal["auto"] | ArrayLike = "auto",
        classes: Literal["auto"] | ArrayLike = "auto",
        class_weight: Literal["balanced"] | Mapping[Any, Any] | None = None,
        unseen_task: Literal["error", "mean"] = "error",
        uncertainty: bool | Literal["auto", "unseen"] = "auto",
        max_iter: int = 10000,
        tol: float = 1e-06,
        warm_start: bool = False,
        random_state: int | RandomState | Generator | Generator | None = None,
        secure: bool = False,
        verbose: int = 0,
        dtype: Literal["float64", "float32"] | type[Any] = ...,
    ) -> None: ...
    def export_task(self, task: Any, *, as_sklearn: bool = False) -> Any: ...
    def fit(self, X: Any, y: Any, task: Any = None, sample_weight: Any = None) -> Self: ...

class MPMTLGroupSparseClassifierCV(_MTLClassifierMixin, _HasCovariates, _BaseMTL, ClassifierMixin, BaseEstimator):
    alphas: ArrayLike | None
    eps: float
    n_alphas: int
    cv: Any
    ridge: float
    task_weight: Literal["equal", "samples"]
    fit_intercept: bool
    task_feature: str | int | list[Any] | None
    tasks: Literal["auto"] | ArrayLike
    classes: Literal["auto"] | ArrayLike
    class_weight: Literal["balanced"] | Mapping[Any, Any] | None
    unseen_task: Literal["error", "mean"]
    max_iter: int
    tol: float
    n_jobs: int | None
    verbose: int
    dtype: Literal["float64", "float32"] | type[Any]
    alpha_: float
    alphas_: NDArray[Any]
    log_loss_path_: NDArray[Any]
    coef_: Any
    intercept_: Any
    tasks_: NDArray[Any]
    classes_: NDArray[Any]
    n_iter_: Any
    objective_: Any
    dual_gap_: Any
    mean_coef_: NDArray[Any] | float
    mean_intercept_: NDArray[Any] | float
    billboard_: Any
    privacy_: PrivacyReport
    n_features_in_: Any
    feature_names_in_: Any
    coef_names_: NDArray[Any]
    def __init__(
        self,
        alphas: ArrayLike | None = None,
        *,
        eps: float = 0.001,
        n_alphas: int = 100,
        cv: Any = 5,
        ridge: float = 0.0,
        task_weight: Literal["equal", "samples"] = "equal",
        fit_intercept: bool = True,
        task_feature: str | int | list[Any] | None = None,
        tasks: Literal["auto"] | ArrayLike = "auto",
        classes: Literal["auto"] | ArrayLike = "auto",
        class_weight: Literal["balanced"] | Mapping[Any, Any] | None = None,
        unseen_task: Literal["error", "mean"] = "error",
        max_iter: int = 10000,
        tol: float = 1e-06,
        n_jobs: int | None = None,
        verbose: int = 0,
        dtype: Literal["float64", "float32"] | type[Any] = ...,
    ) -> None: ...
    def export_task(self, task: Any, *, as_sklearn: bool = False) -> Any: ...
    def fit(self, X: Any, y: Any, task: Any = None, sample_weight: Any = None) -> Self: ...

class MPMTLLowRank(_MTLRegressorMixin, _HasCovariates, _BaseMTL, RegressorMixin, BaseEstimator):
    alpha: Literal["auto"] | float
    loss: Literal["huber", "poisson", "squared"]
    epsilon: float | None
    delta: float | None
    adjacency: Literal["replace-one", "zero-out"]
    curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any]
    mechanism: Literal["auto", "gaussian", "wishart"]
    algorithm: Literal["auto", "empirical-bayes", "proximal"]
    levels: Literal["auto", "free", "pooled"]
    init: Any
    ridge: float
    task_weight: Literal["equal", "samples"]
    relation: Any
    relation_rank: int | None
    outliers: Literal["entries", "tasks"] | None
    outlier_alpha: Literal["auto"] | float
    n_releases: Literal["auto"] | int
    clip_norm: float
    fit_intercept: bool
    task_feature: str | int | list[Any] | None
    tasks: Literal["auto"] | ArrayLike
    unseen_task: Literal["error", "mean"]
    target_range: ArrayLike | None
    uncertainty: bool | Literal["auto", "unseen"]
    max_iter: int
    tol: float
    warm_start: bool
    random_state: int | RandomState | Generator | Generator
    secure: bool
    verbose: int
    dtype: Literal["float64", "float32"] | type[Any]
    coef_: NDArray[Any]
    intercept_: NDArray[Any]
    tasks_: NDArray[Any]
    covariance_: NDArray[Any]
    noise_variance_: NDArray[Any]
    dof_: NDArray[Any]
    billboard_: Any
    privacy_: PrivacyReport
    relation_coef_: NDArray[Any]
    relation_intercept_: NDArray[Any]
    relation_noise_std_: NDArray[Any]
    n_iter_: int
    objective_: float
    dual_gap_: float
    alpha_: float
    outlier_coef_: NDArray[Any]
    outlier_: NDArray[Any]
    mean_coef_: NDArray[Any] | float
    mean_intercept_: NDArray[Any] | float
    n_features_in_: Any
    feature_names_in_: Any
    coef_names_: NDArray[Any]
    def __init__(
        self,
        alpha: Literal["auto"] | float = "auto",
        *,
        loss: Literal["huber", "poisson", "squared"] = "squared",
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Literal["replace-one", "zero-out"] = "replace-one",
        curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any] = "trusted",
        mechanism: Literal["auto", "gaussian", "wishart"] = "auto",
        algorithm: Literal["auto", "empirical-bayes", "proximal"] = "auto",
        levels: Literal["auto", "free", "pooled"] = "auto",
        init: Any = None,
        ridge: float = 0.0,
        task_weight: Literal["equal", "samples"] = "equal",
        relation: Any = None,
        relation_rank: int | None = None,
        outliers: Literal["entries", "tasks"] | None = None,
        outlier_alpha: Literal["auto"] | float = "auto",
        n_releases: Literal["auto"] | int = "auto",
        clip_norm: float = 1.0,
        fit_intercept: bool = True,
        task_feature: str | int | list[Any] | None = None,
        tasks: Literal["auto"] | ArrayLike = "auto",
        unseen_task: Literal["error", "mean"] = "error",
        target_range: ArrayLike | None = None,
        uncertainty: bool | Literal["auto", "unseen"] = False,
        max_iter: int = 10000,
        tol: float = 1e-06,
        warm_start: bool = False,
        random_state: int | RandomState | Generator | Generator | None = None,
        secure: bool = False,
        verbose: int = 0,
        dtype: Literal["float64", "float32"] | type[Any] = ...,
    ) -> None: ...
    def export_task(self, task: Any, *, as_sklearn: bool = False) -> Any: ...
    def fit(self, X: Any, y: Any, task: Any = None, sample_weight: Any = None) -> Self: ...

class MPMTLLowRankCV(_MTLRegressorMixin, _HasCovariates, _BaseMTL, RegressorMixin, BaseEstimator):
    alphas: ArrayLike | None
    eps: float
    n_alphas: int
    cv: Any
    ridge: float
    task_weight: Literal["equal", "samples"]
    fit_intercept: bool
    task_feature: str | int | list[Any] | None
    tasks: Literal["auto"] | ArrayLike
    unseen_task: Literal["error", "mean"]
    max_iter: int
    tol: float
    n_jobs: int | None
    verbose: int
    dtype: Literal["float64", "float32"] | type[Any]
    alpha_: float
    alphas_: NDArray[Any]
    mse_path_: NDArray[Any]
    coef_: NDArray[Any]
    intercept_: NDArray[Any]
    tasks_: NDArray[Any]
    n_iter_: Any
    objective_: Any
    dual_gap_: Any
    mean_coef_: NDArray[Any] | float
    mean_intercept_: NDArray[Any] | float
    billboard_: Any
    privacy_: PrivacyReport
    n_features_in_: Any
    feature_names_in_: Any
    coef_names_: NDArray[Any]
    def __init__(
        self,
        alphas: ArrayLike | None = None,
        *,
        eps: float = 0.001,
        n_alphas: int = 100,
        cv: Any = 5,
        ridge: float = 0.0,
        task_weight: Literal["equal", "samples"] = "equal",
        fit_intercept: bool = True,
        task_feature: str | int | list[Any] | None = None,
        tasks: Literal["auto"] | ArrayLike = "auto",
        unseen_task: Literal["error", "mean"] = "error",
        max_iter: int = 10000,
        tol: float = 1e-06,
        n_jobs: int | None = None,
        verbose: int = 0,
        dtype: Literal["float64", "float32"] | type[Any] = ...,
    ) -> None: ...
    def export_task(self, task: Any, *, as_sklearn: bool = False) -> Any: ...
    def fit(self, X: Any, y: Any, task: Any = None, sample_weight: Any = None) -> Self: ...

class MPMTLLowRankClassifier(_MTLClassifierMixin, _HasCovariates, _BaseMTL, ClassifierMixin, BaseEstimator):
    alpha: Literal["auto"] | float
    epsilon: float | None
    delta: float | None
    adjacency: Literal["replace-one", "zero-out"]
    curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any]
    mechanism: Literal["auto", "gaussian", "wishart"]
    algorithm: Literal["auto", "empirical-bayes", "proximal"]
    levels: Literal["auto", "free", "pooled"]
    init: Any
    ridge: float
    task_weight: Literal["equal", "samples"]
    relation: Any
    relation_rank: int | None
    outliers: Literal["entries", "tasks"] | None
    outlier_alpha: Literal["auto"] | float
    n_releases: Literal["auto"] | int
    clip_norm: float
    fit_intercept: bool
    task_feature: str | int | list[Any] | None
    tasks: Literal["auto"] | ArrayLike
    classes: Literal["auto"] | ArrayLike
    class_weight: Literal["balanced"] | Mapping[Any, Any] | None
    unseen_task: Literal["error", "mean"]
    uncertainty: bool | Literal["auto", "unseen"]
    max_iter: int
    tol: float
    warm_start: bool
    random_state: int | RandomState | Generator | Generator
    secure: bool
    verbose: int
    dtype: Literal["float64", "float32"] | type[Any]
    coef_: Any
    intercept_: Any
    tasks_: NDArray[Any]
    classes_: NDArray[Any]
    covariance_: NDArray[Any]
    posterior_shift_: NDArray[Any]
    billboard_: Any
    privacy_: PrivacyReport
    relation_coef_: NDArray[Any]
    relation_intercept_: NDArray[Any]
    relation_noise_std_: NDArray[Any]
    n_iter_: int
    objective_: float
    dual_gap_: float
    alpha_: float
    outlier_coef_: Any
    outlier_: NDArray[Any]
    mean_coef_: NDArray[Any] | float
    mean_intercept_: NDArray[Any] | float
    n_features_in_: Any
    feature_names_in_: Any
    coef_names_: NDArray[Any]
    def __init__(
        self,
        alpha: Literal["auto"] | float = "auto",
        *,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Literal["replace-one", "zero-out"] = "replace-one",
        curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any] = "trusted",
        mechanism: Literal["auto", "gaussian", "wishart"] = "auto",
        algorithm: Literal["auto", "empirical-bayes", "proximal"] = "auto",
        levels: Literal["auto", "free", "pooled"] = "auto",
        init: Any = None,
        ridge: float = 0.0,
        task_weight: Literal["equal", "samples"] = "equal",
        relation: Any = None,
        relation_rank: int | None = None,
        outliers: Literal["entries", "tasks"] | None = None,
        outlier_alpha: Literal["auto"] | float = "auto",
        n_releases: Literal["auto"] | int = "auto",
        clip_norm: float = 1.0,
        fit_intercept: bool = True,
        task_feature: str | int | list[Any] | None = None,
        tasks: Literal["auto"] | ArrayLike = "auto",
        classes: Literal["auto"] | ArrayLike = "auto",
        class_weight: Literal["balanced"] | Mapping[Any, Any] | None = None,
        unseen_task: Literal["error", "mean"] = "error",
        uncertainty: bool | Literal["auto", "unseen"] = "auto",
        max_iter: int = 10000,
        tol: float = 1e-06,
        warm_start: bool = False,
        random_state: int | RandomState | Generator | Generator | None = None,
        secure: bool = False,
        verbose: int = 0,
        dtype: Literal["float64", "float32"] | type[Any] = ...,
    ) -> None: ...
    def export_task(self, task: Any, *, as_sklearn: bool = False) -> Any: ...
    def fit(self, X: Any, y: Any, task: Any = None, sample_weight: Any = None) -> Self: ...

class MPMTLLowRankClassifierCV(_MTLClassifierMixin, _HasCovariates, _BaseMTL, ClassifierMixin, BaseEstimator):
    alphas: ArrayLike | None
    eps: float
    n_alphas: int
    cv: Any
    ridge: float
    task_weight: Literal["equal", "samples"]
    fit_intercept: bool
    task_feature: str | int | list[Any] | None
    tasks: Literal["auto"] | ArrayLike
    classes: Literal["auto"] | ArrayLike
    class_weight: Literal["balanced"] | Mapping[Any, Any] | None
    unseen_task: Literal["error", "mean"]
    max_iter: int
    tol: float
    n_jobs: int | None
    verbose: int
    dtype: Literal["float64", "float32"] | type[Any]
    alpha_: float
    alphas_: NDArray[Any]
    log_loss_path_: NDArray[Any]
    coef_: Any
    intercept_: Any
    tasks_: NDArray[Any]
    classes_: NDArray[Any]
    n_iter_: Any
    objective_: Any
    dual_gap_: Any
    mean_coef_: NDArray[Any] | float
    mean_intercept_: NDArray[Any] | float
    billboard_: Any
    privacy_: PrivacyReport
    n_features_in_: Any
    feature_names_in_: Any
    coef_names_: NDArray[Any]
    def __init__(
        self,
        alphas: ArrayLike | None = None,
        *,
        eps: float = 0.001,
        n_alphas: int = 100,
        cv: Any = 5,
        ridge: float = 0.0,
        task_weight: Literal["equal", "samples"] = "equal",
        fit_intercept: bool = True,
        task_feature: str | int | list[Any] | None = None,
        tasks: Literal["auto"] | ArrayLike = "auto",
        classes: Literal["auto"] | ArrayLike = "auto",
        class_weight: Literal["balanced"] | Mapping[Any, Any] | None = None,
        unseen_task: Literal["error", "mean"] = "error",
        max_iter: int = 10000,
        tol: float = 1e-06,
        n_jobs: int | None = None,
        verbose: int = 0,
        dtype: Literal["float64", "float32"] | type[Any] = ...,
    ) -> None: ...
    def export_task(self, task: Any, *, as_sklearn: bool = False) -> Any: ...
    def fit(self, X: Any, y: Any, task: Any = None, sample_weight: Any = None) -> Self: ...

class MTLPath(NamedTuple):
    alphas: NDArray[Any]
    coefs: NDArray[Any]
    gaps: NDArray[Any]
    n_iter: NDArray[Any]
    intercepts: NDArray[Any]
    tasks: NDArray[Any]
    penalty: str

class PPSGD(_MTLRegressorMixin, _MeanRegularized, RegressorMixin, BaseEstimator):
    lam: Literal["auto"] | float
    epsilon: float | None
    delta: float | None
    adjacency: Literal["replace-one", "zero-out"]
    curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any]
    clip_norm: Literal["auto"] | float
    clip_quantile: float | None
    n_rounds: Literal["auto"] | int
    sampling: Literal["all", "fixed", "poisson"]
    sampling_rate: float
    local_steps: Literal["auto"] | int
    local_learning_rate: float
    server_learning_rate: float
    personalization: Literal["ewc", "finetune", "mean-reg", "none", "symmetrized-kl"]
    init: Any
    ridge: float
    task_weight: Literal["equal", "samples"]
    clusters: Mapping[Any, Any] | None
    relation: Any
    relation_rank: int | Literal["all"] | None
    fit_intercept: bool
    task_feature: str | int | list[Any] | None
    tasks: Literal["auto"] | ArrayLike
    unseen_task: Literal["error", "mean"]
    target_range: ArrayLike | None
    uncertainty: bool | Literal["auto", "unseen"]
    max_iter: int
    tol: float
    secure: bool
    random_state: int | RandomState | Generator | Generator
    verbose: int
    dtype: Any
    coef_: Any
    intercept_: Any
    mean_coef_: Any
    mean_intercept_: Any
    relation_coef_: Any
    relation_noise_std_: Any
    billboard_: Any
    privacy_: Any
    tasks_: Any
    n_iter_: Any
    n_features_in_: Any
    feature_names_in_: Any
    coef_names_: NDArray[Any]
    def __init__(
        self,
        lam: Literal["auto"] | float = "auto",
        *,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Literal["replace-one", "zero-out"] = "replace-one",
        curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any] = "trusted",
        clip_norm: Literal["auto"] | float = "auto",
        clip_quantile: float | None = None,
        n_rounds: Literal["auto"] | int = "auto",
        sampling: Literal["all", "fixed", "poisson"] = "all",
        sampling_rate: float = 1.0,
        local_steps: Literal["auto"] | int = "auto",
        local_learning_rate: float = 1.0,
        server_learning_rate: float = 1.0,
        personalization: Literal["ewc", "finetune", "mean-reg", "none", "symmetrized-kl"] = "mean-reg",
        init: Any = None,
        ridge: float = 0.0,
        task_weight: Literal["equal", "samples"] = "equal",
        clusters: Mapping[Any, Any] | None = None,
        relation: Any = None,
        relation_rank: int | Literal["all"] | None = None,
        fit_intercept: bool = True,
        task_feature: str | int | list[Any] | None = None,
        tasks: Literal["auto"] | ArrayLike = "auto",
        unseen_task: Literal["error", "mean"] = "error",
        target_range: ArrayLike | None = None,
        uncertainty: bool | Literal["auto", "unseen"] = False,
        max_iter: int = 100,
        tol: float = 1e-10,
        secure: bool = False,
        random_state: int | RandomState | Generator | Generator | None = None,
        verbose: int = 0,
        dtype: Any = ...,
    ) -> None: ...
    def export_task(self, task: Any, *, as_sklearn: bool = False) -> Any: ...
    def fit(self, X: Any, y: Any, task: Any = None, sample_weight: Any = None) -> Self: ...

class PPSGDClassifier(_MTLClassifierMixin, _MeanRegularized, ClassifierMixin, BaseEstimator):
    lam: Literal["auto"] | float
    epsilon: float | None
    delta: float | None
    adjacency: Literal["replace-one", "zero-out"]
    curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any]
    clip_norm: Literal["auto"] | float
    clip_quantile: float | None
    n_rounds: Literal["auto"] | int
    sampling: Literal["all", "fixed", "poisson"]
    sampling_rate: float
    local_steps: Literal["auto"] | int
    local_learning_rate: float
    server_learning_rate: float
    personalization: Literal["ewc", "finetune", "mean-reg", "none", "symmetrized-kl"]
    init: Any
    ridge: float
    task_weight: Literal["equal", "samples"]
    clusters: Mapping[Any, Any] | None
    relation: Any
    relation_rank: int | Literal["all"] | None
    fit_intercept: bool
    task_feature: str | int | list[Any] | None
    tasks: Literal["auto"] | ArrayLike
    classes: Literal["auto"] | ArrayLike
    class_weight: Literal["balanced"] | Mapping[Any, Any] | None
    unseen_task: Literal["error", "mean"]
    max_iter: int
    tol: float
    secure: bool
    random_state: int | RandomState | Generator | Generator
    verbose: int
    dtype: Any
    coef_: Any
    intercept_: Any
    mean_coef_: Any
    mean_intercept_: Any
    relation_coef_: Any
    relation_noise_std_: Any
    billboard_: Any
    privacy_: Any
    tasks_: Any
    n_iter_: Any
    n_features_in_: Any
    feature_names_in_: Any
    classes_: Any
    coef_names_: NDArray[Any]
    def __init__(
        self,
        lam: Literal["auto"] | float = "auto",
        *,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Literal["replace-one", "zero-out"] = "replace-one",
        curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any] = "trusted",
        clip_norm: Literal["auto"] | float = "auto",
        clip_quantile: float | None = None,
        n_rounds: Literal["auto"] | int = "auto",
        sampling: Literal["all", "fixed", "poisson"] = "all",
        sampling_rate: float = 1.0,
        local_steps: Literal["auto"] | int = "auto",
        local_learning_rate: float = 1.0,
        server_learning_rate: float = 1.0,
        personalization: Literal["ewc", "finetune", "mean-reg", "none", "symmetrized-kl"] = "mean-reg",
        init: Any = None,
        ridge: float = 0.0,
        task_weight: Literal["equal", "samples"] = "equal",
        clusters: Mapping[Any, Any] | None = None,
        relation: Any = None,
        relation_rank: int | Literal["all"] | None = None,
        fit_intercept: bool = True,
        task_feature: str | int | list[Any] | None = None,
        tasks: Literal["auto"] | ArrayLike = "auto",
        classes: Literal["auto"] | ArrayLike = "auto",
        class_weight: Literal["balanced"] | Mapping[Any, Any] | None = None,
        unseen_task: Literal["error", "mean"] = "error",
        max_iter: int = 100,
        tol: float = 1e-10,
        secure: bool = False,
        random_state: int | RandomState | Generator | Generator | None = None,
        verbose: int = 0,
        dtype: Any = ...,
    ) -> None: ...
    def export_task(self, task: Any, *, as_sklearn: bool = False) -> Any: ...
    def fit(self, X: Any, y: Any, task: Any = None, sample_weight: Any = None) -> Self: ...

class PerTask(_Scored, BaseEstimator):
    estimator: Any
    task_feature: str | int | None
    tasks: Literal["auto"] | ArrayLike
    estimators_: dict[Any, Any]
    tasks_: NDArray[Any]
    classes_: NDArray[Any]
    n_features_in_: Any
    feature_names_in_: Any
    def __init__(
        self,
        estimator: Any,
        *,
        task_feature: str | int | None = None,
        tasks: Literal["auto"] | ArrayLike = "auto",
    ) -> None: ...
    def fit(self, X: Any, y: Any, task: Any = None, sample_weight: Any = None) -> Self: ...
    def personalize(self, X: Any, y: Any, task: Any = None, sample_weight: Any = None) -> Self: ...
    def predict(self, X: Any, task: Any = None) -> Any: ...
    def predict_log_proba(self, X: Any, task: Any = None) -> Any: ...
    def predict_proba(self, X: Any, task: Any = None) -> Any: ...

class PrivacyLeakWarning(UserWarning): ...

class PrivateFedAvg(_MTLRegressorMixin, _MeanRegularized, RegressorMixin, BaseEstimator):
    lam: Literal["auto"] | float
    epsilon: float | None
    delta: float | None
    adjacency: Literal["replace-one", "zero-out"]
    curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any]
    clip_norm: Literal["auto"] | float
    clip_quantile: float | None
    n_rounds: Literal["auto"] | int
    sampling: Literal["all", "fixed", "poisson"]
    sampling_rate: float
    local_steps: Literal["auto"] | int
    local_learning_rate: float
    server_learning_rate: float
    personalization: Literal["ewc", "finetune", "mean-reg", "none", "symmetrized-kl"]
    init: Any
    ridge: float
    task_weight: Literal["equal", "samples"]
    clusters: Mapping[Any, Any] | None
    relation: Any
    relation_rank: int | Literal["all"] | None
    fit_intercept: bool
    task_feature: str | int | list[Any] | None
    tasks: Literal["auto"] | ArrayLike
    unseen_task: Literal["error", "mean"]
    target_range: ArrayLike | None
    uncertainty: bool | Literal["auto", "unseen"]
    max_iter: int
    tol: float
    secure: bool
    random_state: int | RandomState | Generator | Generator
    verbose: int
    dtype: Any
    coef_: Any
    intercept_: Any
    mean_coef_: Any
    mean_intercept_: Any
    relation_coef_: Any
    relation_noise_std_: Any
    billboard_: Any
    privacy_: Any
    tasks_: Any
    n_iter_: Any
    n_features_in_: Any
    feature_names_in_: Any
    coef_names_: NDArray[Any]
    def __init__(
        self,
        lam: Literal["auto"] | float = "auto",
        *,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Literal["replace-one", "zero-out"] = "replace-one",
        curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any] = "trusted",
        clip_norm: Literal["auto"] | float = "auto",
        clip_quantile: float | None = None,
        n_rounds: Literal["auto"] | int = "auto",
        sampling: Literal["all", "fixed", "poisson"] = "all",
        sampling_rate: float = 1.0,
        local_steps: Literal["auto"] | int = "auto",
        local_learning_rate: float = 1.0,
        server_learning_rate: float = 1.0,
        personalization: Literal["ewc", "finetune", "mean-reg", "none", "symmetrized-kl"] = "mean-reg",
        init: Any = None,
        ridge: float = 0.0,
        task_weight: Literal["equal", "samples"] = "equal",
        clusters: Mapping[Any, Any] | None = None,
        relation: Any = None,
        relation_rank: int | Literal["all"] | None = None,
        fit_intercept: bool = True,
        task_feature: str | int | list[Any] | None = None,
        tasks: Literal["auto"] | ArrayLike = "auto",
        unseen_task: Literal["error", "mean"] = "error",
        target_range: ArrayLike | None = None,
        uncertainty: bool | Literal["auto", "unseen"] = False,
        max_iter: int = 100,
        tol: float = 1e-10,
        secure: bool = False,
        random_state: int | RandomState | Generator | Generator | None = None,
        verbose: int = 0,
        dtype: Any = ...,
    ) -> None: ...
    def export_task(self, task: Any, *, as_sklearn: bool = False) -> Any: ...
    def fit(self, X: Any, y: Any, task: Any = None, sample_weight: Any = None) -> Self: ...

class PrivateFedAvgClassifier(_MTLClassifierMixin, _MeanRegularized, ClassifierMixin, BaseEstimator):
    lam: Literal["auto"] | float
    epsilon: float | None
    delta: float | None
    adjacency: Literal["replace-one", "zero-out"]
    curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any]
    clip_norm: Literal["auto"] | float
    clip_quantile: float | None
    n_rounds: Literal["auto"] | int
    sampling: Literal["all", "fixed", "poisson"]
    sampling_rate: float
    local_steps: Literal["auto"] | int
    local_learning_rate: float
    server_learning_rate: float
    personalization: Literal["ewc", "finetune", "mean-reg", "none", "symmetrized-kl"]
    init: Any
    ridge: float
    task_weight: Literal["equal", "samples"]
    clusters: Mapping[Any, Any] | None
    relation: Any
    relation_rank: int | Literal["all"] | None
    fit_intercept: bool
    task_feature: str | int | list[Any] | None
    tasks: Literal["auto"] | ArrayLike
    classes: Literal["auto"] | ArrayLike
    class_weight: Literal["balanced"] | Mapping[Any, Any] | None
    unseen_task: Literal["error", "mean"]
    max_iter: int
    tol: float
    secure: bool
    random_state: int | RandomState | Generator | Generator
    verbose: int
    dtype: Any
    coef_: Any
    intercept_: Any
    mean_coef_: Any
    mean_intercept_: Any
    relation_coef_: Any
    relation_noise_std_: Any
    billboard_: Any
    privacy_: Any
    tasks_: Any
    n_iter_: Any
    n_features_in_: Any
    feature_names_in_: Any
    classes_: Any
    coef_names_: NDArray[Any]
    def __init__(
        self,
        lam: Literal["auto"] | float = "auto",
        *,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Literal["replace-one", "zero-out"] = "replace-one",
        curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any] = "trusted",
        clip_norm: Literal["auto"] | float = "auto",
        clip_quantile: float | None = None,
        n_rounds: Literal["auto"] | int = "auto",
        sampling: Literal["all", "fixed", "poisson"] = "all",
        sampling_rate: float = 1.0,
        local_steps: Literal["auto"] | int = "auto",
        local_learning_rate: float = 1.0,
        server_learning_rate: float = 1.0,
        personalization: Literal["ewc", "finetune", "mean-reg", "none", "symmetrized-kl"] = "mean-reg",
        init: Any = None,
        ridge: float = 0.0,
        task_weight: Literal["equal", "samples"] = "equal",
        clusters: Mapping[Any, Any] | None = None,
        relation: Any = None,
        relation_rank: int | Literal["all"] | None = None,
        fit_intercept: bool = True,
        task_feature: str | int | list[Any] | None = None,
        tasks: Literal["auto"] | ArrayLike = "auto",
        classes: Literal["auto"] | ArrayLike = "auto",
        class_weight: Literal["balanced"] | Mapping[Any, Any] | None = None,
        unseen_task: Literal["error", "mean"] = "error",
        max_iter: int = 100,
        tol: float = 1e-10,
        secure: bool = False,
        random_state: int | RandomState | Generator | Generator | None = None,
        verbose: int = 0,
        dtype: Any = ...,
    ) -> None: ...
    def export_task(self, task: Any, *, as_sklearn: bool = False) -> Any: ...
    def fit(self, X: Any, y: Any, task: Any = None, sample_weight: Any = None) -> Self: ...

class PrivateFedProx(_MTLRegressorMixin, _MeanRegularized, RegressorMixin, BaseEstimator):
    lam: Literal["auto"] | float
    epsilon: float | None
    delta: float | None
    adjacency: Literal["replace-one", "zero-out"]
    curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any]
    clip_norm: Literal["auto"] | float
    clip_quantile: float | None
    n_rounds: Literal["auto"] | int
    sampling: Literal["all", "fixed", "poisson"]
    sampling_rate: float
    local_steps: Literal["auto"] | int
    local_learning_rate: float
    server_learning_rate: float
    personalization: Literal["ewc", "finetune", "mean-reg", "none", "symmetrized-kl"]
    init: Any
    ridge: float
    task_weight: Literal["equal", "samples"]
    clusters: Mapping[Any, Any] | None
    relation: Any
    relation_rank: int | Literal["all"] | None
    fit_intercept: bool
    task_feature: str | int | list[Any] | None
    tasks: Literal["auto"] | ArrayLike
    unseen_task: Literal["error", "mean"]
    target_range: ArrayLike | None
    uncertainty: bool | Literal["auto", "unseen"]
    max_iter: int
    tol: float
    secure: bool
    random_state: int | RandomState | Generator | Generator
    verbose: int
    dtype: Any
    coef_: Any
    intercept_: Any
    mean_coef_: Any
    mean_intercept_: Any
    relation_coef_: Any
    relation_noise_std_: Any
    billboard_: Any
    privacy_: Any
    tasks_: Any
    n_iter_: Any
    n_features_in_: Any
    feature_names_in_: Any
    coef_names_: NDArray[Any]
    def __init__(
        self,
        lam: Literal["auto"] | float = "auto",
        *,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Literal["replace-one", "zero-out"] = "replace-one",
        curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any] = "trusted",
        clip_norm: Literal["auto"] | float = "auto",
        clip_quantile: float | None = None,
        n_rounds: Literal["auto"] | int = "auto",
        sampling: Literal["all", "fixed", "poisson"] = "all",
        sampling_rate: float = 1.0,
        local_steps: Literal["auto"] | int = "auto",
        local_learning_rate: float = 1.0,
        server_learning_rate: float = 1.0,
        personalization: Literal["ewc", "finetune", "mean-reg", "none", "symmetrized-kl"] = "mean-reg",
        init: Any = None,
        ridge: float = 0.0,
        task_weight: Literal["equal", "samples"] = "equal",
        clusters: Mapping[Any, Any] | None = None,
        relation: Any = None,
        relation_rank: int | Literal["all"] | None = None,
        fit_intercept: bool = True,
        task_feature: str | int | list[Any] | None = None,
        tasks: Literal["auto"] | ArrayLike = "auto",
        unseen_task: Literal["error", "mean"] = "error",
        target_range: ArrayLike | None = None,
        uncertainty: bool | Literal["auto", "unseen"] = False,
        max_iter: int = 100,
        tol: float = 1e-10,
        secure: bool = False,
        random_state: int | RandomState | Generator | Generator | None = None,
        verbose: int = 0,
        dtype: Any = ...,
    ) -> None: ...
    def export_task(self, task: Any, *, as_sklearn: bool = False) -> Any: ...
    def fit(self, X: Any, y: Any, task: Any = None, sample_weight: Any = None) -> Self: ...

class PrivateFedProxClassifier(_MTLClassifierMixin, _MeanRegularized, ClassifierMixin, BaseEstimator):
    lam: Literal["auto"] | float
    epsilon: float | None
    delta: float | None
    adjacency: Literal["replace-one", "zero-out"]
    curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any]
    clip_norm: Literal["auto"] | float
    clip_quantile: float | None
    n_rounds: Literal["auto"] | int
    sampling: Literal["all", "fixed", "poisson"]
    sampling_rate: float
    local_steps: Literal["auto"] | int
    local_learning_rate: float
    server_learning_rate: float
    personalization: Literal["ewc", "finetune", "mean-reg", "none", "symmetrized-kl"]
    init: Any
    ridge: float
    task_weight: Literal["equal", "samples"]
    clusters: Mapping[Any, Any] | None
    relation: Any
    relation_rank: int | Literal["all"] | None
    fit_intercept: bool
    task_feature: str | int | list[Any] | None
    tasks: Literal["auto"] | ArrayLike
    classes: Literal["auto"] | ArrayLike
    class_weight: Literal["balanced"] | Mapping[Any, Any] | None
    unseen_task: Literal["error", "mean"]
    max_iter: int
    tol: float
    secure: bool
    random_state: int | RandomState | Generator | Generator
    verbose: int
    dtype: Any
    coef_: Any
    intercept_: Any
    mean_coef_: Any
    mean_intercept_: Any
    relation_coef_: Any
    relation_noise_std_: Any
    billboard_: Any
    privacy_: Any
    tasks_: Any
    n_iter_: Any
    n_features_in_: Any
    feature_names_in_: Any
    classes_: Any
    coef_names_: NDArray[Any]
    def __init__(
        self,
        lam: Literal["auto"] | float = "auto",
        *,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Literal["replace-one", "zero-out"] = "replace-one",
        curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any] = "trusted",
        clip_norm: Literal["auto"] | float = "auto",
        clip_quantile: float | None = None,
        n_rounds: Literal["auto"] | int = "auto",
        sampling: Literal["all", "fixed", "poisson"] = "all",
        sampling_rate: float = 1.0,
        local_steps: Literal["auto"] | int = "auto",
        local_learning_rate: float = 1.0,
        server_learning_rate: float = 1.0,
        personalization: Literal["ewc", "finetune", "mean-reg", "none", "symmetrized-kl"] = "mean-reg",
        init: Any = None,
        ridge: float = 0.0,
        task_weight: Literal["equal", "samples"] = "equal",
        clusters: Mapping[Any, Any] | None = None,
        relation: Any = None,
        relation_rank: int | Literal["all"] | None = None,
        fit_intercept: bool = True,
        task_feature: str | int | list[Any] | None = None,
        tasks: Literal["auto"] | ArrayLike = "auto",
        classes: Literal["auto"] | ArrayLike = "auto",
        class_weight: Literal["balanced"] | Mapping[Any, Any] | None = None,
        unseen_task: Literal["error", "mean"] = "error",
        max_iter: int = 100,
        tol: float = 1e-10,
        secure: bool = False,
        random_state: int | RandomState | Generator | Generator | None = None,
        verbose: int = 0,
        dtype: Any = ...,
    ) -> None: ...
    def export_task(self, task: Any, *, as_sklearn: bool = False) -> Any: ...
    def fit(self, X: Any, y: Any, task: Any = None, sample_weight: Any = None) -> Self: ...

class PrivateMTL(_MTLRegressorMixin, _BaseMTL, RegressorMixin, BaseEstimator):
    structure: Literal["auto", "groups", "low-rank", "mean", "sparse"] | list[Any] | tuple[Any, ...]
    loss: Literal["huber", "poisson", "squared"]
    levels: Literal["auto", "free", "pooled"]
    epsilon: float | None
    delta: float | None
    adjacency: Literal["replace-one", "zero-out"]
    curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any]
    init: Any
    fit_intercept: bool
    task_feature: str | int | list[Any] | None
    tasks: Literal["auto"] | ArrayLike
    unseen_task: Literal["error", "mean"]
    target_range: ArrayLike | None
    uncertainty: bool | Literal["auto", "unseen"]
    random_state: int | RandomState | Generator | Generator
    secure: bool
    verbose: int
    dtype: Literal["float64", "float32"] | type[Any]
    coef_: NDArray[Any]
    intercept_: NDArray[Any]
    tasks_: NDArray[Any]
    covariance_: NDArray[Any]
    noise_variance_: NDArray[Any]
    dof_: NDArray[Any]
    shares_: dict[Any, Any]
    billboard_: Any
    privacy_: PrivacyReport
    n_iter_: int
    groups_: dict[Any, Any]
    membership_: NDArray[Any]
    level_: float
    level_spread_: float
    mean_coef_: NDArray[Any] | float
    mean_intercept_: NDArray[Any] | float
    n_features_in_: Any
    feature_names_in_: Any
    coef_names_: NDArray[Any]
    def __init__(
        self,
        structure: Literal["auto", "groups", "low-rank", "mean", "sparse"] | list[Any] | tuple[Any, ...] = "auto",
        *,
        loss: Literal["huber", "poisson", "squared"] = "squared",
        levels: Literal["auto", "free", "pooled"] = "auto",
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Literal["replace-one", "zero-out"] = "replace-one",
        curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any] = "trusted",
        init: Any = None,
        fit_intercept: bool = True,
        task_feature: str | int | list[Any] | None = None,
        tasks: Literal["auto"] | ArrayLike = "auto",
        unseen_task: Literal["error", "mean"] = "error",
        target_range: ArrayLike | None = None,
        uncertainty: bool | Literal["auto", "unseen"] = False,
        random_state: int | RandomState | Generator | Generator | None = None,
        secure: bool = False,
        verbose: int = 0,
        dtype: Literal["float64", "float32"] | type[Any] = ...,
    ) -> None: ...
    def export_task(self, task: Any, *, as_sklearn: bool = False) -> Any: ...
    def fit(self, X: Any, y: Any, task: Any = None, sample_weight: Any = None) -> Self: ...

class PrivateMTLClassifier(_MTLClassifierMixin, _BaseMTL, ClassifierMixin, BaseEstimator):
    structure: Literal["auto", "groups", "low-rank", "mean", "sparse"] | list[Any] | tuple[Any, ...]
    levels: Literal["auto", "free", "pooled"]
    epsilon: float | None
    delta: float | None
    adjacency: Literal["replace-one", "zero-out"]
    curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any]
    init: Any
    fit_intercept: bool
    task_feature: str | int | list[Any] | None
    tasks: Literal["auto"] | ArrayLike
    classes: Literal["auto"] | ArrayLike
    class_weight: Literal["balanced"] | Mapping[Any, Any] | None
    unseen_task: Literal["error", "mean"]
    uncertainty: bool | Literal["auto", "unseen"]
    random_state: int | RandomState | Generator | Generator
    secure: bool
    verbose: int
    dtype: Literal["float64", "float32"] | type[Any]
    coef_: Any
    intercept_: Any
    tasks_: NDArray[Any]
    classes_: NDArray[Any]
    covariance_: NDArray[Any]
    posterior_shift_: NDArray[Any]
    shares_: dict[Any, Any]
    billboard_: Any
    privacy_: PrivacyReport
    n_iter_: int
    groups_: dict[Any, Any]
    membership_: NDArray[Any]
    level_: float
    level_spread_: float
    mean_coef_: NDArray[Any] | float
    mean_intercept_: NDArray[Any] | float
    n_features_in_: Any
    feature_names_in_: Any
    coef_names_: NDArray[Any]
    def __init__(
        self,
        structure: Literal["auto", "groups", "low-rank", "mean", "sparse"] | list[Any] | tuple[Any, ...] = "auto",
        *,
        levels: Literal["auto", "free", "pooled"] = "auto",
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Literal["replace-one", "zero-out"] = "replace-one",
        curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any] = "trusted",
        init: Any = None,
        fit_intercept: bool = True,
        task_feature: str | int | list[Any] | None = None,
        tasks: Literal["auto"] | ArrayLike = "auto",
        classes: Literal["auto"] | ArrayLike = "auto",
        class_weight: Literal["balanced"] | Mapping[Any, Any] | None = None,
        unseen_task: Literal["error", "mean"] = "error",
        uncertainty: bool | Literal["auto", "unseen"] = "auto",
        random_state: int | RandomState | Generator | Generator | None = None,
        secure: bool = False,
        verbose: int = 0,
        dtype: Literal["float64", "float32"] | type[Any] = ...,
    ) -> None: ...
    def export_task(self, task: Any, *, as_sklearn: bool = False) -> Any: ...
    def fit(self, X: Any, y: Any, task: Any = None, sample_weight: Any = None) -> Self: ...

class PrivateMeanRegMTL(_MTLRegressorMixin, _MeanRegularized, RegressorMixin, BaseEstimator):
    lam: Literal["auto"] | float
    loss: Literal["huber", "poisson", "squared"]
    levels: Literal["auto", "free", "pooled"]
    epsilon: float | None
    delta: float | None
    adjacency: Literal["replace-one", "zero-out"]
    curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any]
    clip_norm: Literal["auto"] | float
    n_rounds: Literal["auto"] | int
    init: Any
    ridge: float
    l1: float
    task_weight: Literal["equal", "samples"]
    clusters: Mapping[Any, Any] | None
    relation: Any
    relation_rank: int | Literal["all"] | None
    fit_intercept: bool
    task_feature: str | int | list[Any] | None
    tasks: Literal["auto"] | ArrayLike
    unseen_task: Literal["error", "mean"]
    target_range: ArrayLike | None
    uncertainty: bool | Literal["auto", "unseen"]
    standard_errors: bool
    max_iter: int
    tol: float
    secure: bool
    random_state: int | RandomState | Generator | Generator
    verbose: int
    dtype: Literal["float64", "float32"] | type[Any]
    coef_: NDArray[Any]
    intercept_: NDArray[Any]
    mean_coef_: Any
    mean_intercept_: Any
    relation_coef_: NDArray[Any]
    relation_intercept_: NDArray[Any]
    relation_noise_std_: NDArray[Any]
    mean_std_: NDArray[Any]
    mean_intercept_std_: float
    relation_std_: NDArray[Any]
    level_: float
    level_spread_: float
    shares_: dict[Any, Any]
    tasks_: NDArray[Any]
    covariance_: NDArray[Any]
    noise_variance_: NDArray[Any]
    dof_: NDArray[Any]
    billboard_: Any
    privacy_: PrivacyReport
    n_iter_: int
    objective_: float
    lam_: float
    dual_gap_: float
    n_features_in_: Any
    feature_names_in_: Any
    coef_names_: NDArray[Any]
    def __init__(
        self,
        lam: Literal["auto"] | float = "auto",
        *,
        loss: Literal["huber", "poisson", "squared"] = "squared",
        levels: Literal["auto", "free", "pooled"] = "auto",
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Literal["replace-one", "zero-out"] = "replace-one",
        curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any] = "trusted",
        clip_norm: Literal["auto"] | float = "auto",
        n_rounds: Literal["auto"] | int = "auto",
        init: Any = None,
        ridge: float = 0.0,
        l1: float = 0.0,
        task_weight: Literal["equal", "samples"] = "equal",
        clusters: Mapping[Any, Any] | None = None,
        relation: Any = None,
        relation_rank: int | Literal["all"] | None = None,
        fit_intercept: bool = True,
        task_feature: str | int | list[Any] | None = None,
        tasks: Literal["auto"] | ArrayLike = "auto",
        unseen_task: Literal["error", "mean"] = "error",
        target_range: ArrayLike | None = None,
        uncertainty: bool | Literal["auto", "unseen"] = False,
        standard_errors: bool = False,
        max_iter: int = 100,
        tol: float = 1e-10,
        secure: bool = False,
        random_state: int | RandomState | Generator | Generator | None = None,
        verbose: int = 0,
        dtype: Literal["float64", "float32"] | type[Any] = ...,
    ) -> None: ...
    def export_task(self, task: Any, *, as_sklearn: bool = False) -> Any: ...
    def fit(self, X: Any, y: Any, task: Any = None, sample_weight: Any = None) -> Self: ...

class PrivateMeanRegMTLClassifier(_MTLClassifierMixin, _MeanRegularized, ClassifierMixin, BaseEstimator):
    lam: Literal["auto"] | float
    levels: Literal["auto", "free", "pooled"]
    epsilon: float | None
    delta: float | None
    adjacency: Literal["replace-one", "zero-out"]
    curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any]
    clip_norm: Literal["auto"] | float
    n_rounds: Literal["auto"] | int
    init: Any
    ridge: float
    l1: float
    task_weight: Literal["equal", "samples"]
    clusters: Mapping[Any, Any] | None
    relation: Any
    relation_rank: int | Literal["all"] | None
    fit_intercept: bool
    task_feature: str | int | list[Any] | None
    tasks: Literal["auto"] | ArrayLike
    classes: Literal["auto"] | ArrayLike
    class_weight: Literal["balanced"] | Mapping[Any, Any] | None
    unseen_task: Literal["error", "mean"]
    uncertainty: bool | Literal["auto", "unseen"]
    standard_errors: bool
    max_iter: int
    tol: float
    secure: bool
    random_state: int | RandomState | Generator | Generator
    verbose: int
    dtype: Literal["float64", "float32"] | type[Any]
    coef_: Any
    intercept_: Any
    mean_coef_: Any
    mean_intercept_: Any
    relation_coef_: Any
    relation_intercept_: NDArray[Any]
    relation_noise_std_: NDArray[Any]
    mean_std_: Any
    mean_intercept_std_: float
    relation_std_: Any
    level_: float
    level_spread_: float
    shares_: dict[Any, Any]
    tasks_: NDArray[Any]
    classes_: NDArray[Any]
    covariance_: NDArray[Any]
    posterior_shift_: NDArray[Any]
    billboard_: Any
    privacy_: PrivacyReport
    n_iter_: int
    objective_: float
    lam_: float
    dual_gap_: float
    n_features_in_: Any
    feature_names_in_: Any
    coef_names_: NDArray[Any]
    def __init__(
        self,
        lam: Literal["auto"] | float = "auto",
        *,
        levels: Literal["auto", "free", "pooled"] = "auto",
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Literal["replace-one", "zero-out"] = "replace-one",
        curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any] = "trusted",
        clip_norm: Literal["auto"] | float = "auto",
        n_rounds: Literal["auto"] | int = "auto",
        init: Any = None,
        ridge: float = 0.0,
        l1: float = 0.0,
        task_weight: Literal["equal", "samples"] = "equal",
        clusters: Mapping[Any, Any] | None = None,
        relation: Any = None,
        relation_rank: int | Literal["all"] | None = None,
        fit_intercept: bool = True,
        task_feature: str | int | list[Any] | None = None,
        tasks: Literal["auto"] | ArrayLike = "auto",
        classes: Literal["auto"] | ArrayLike = "auto",
        class_weight: Literal["balanced"] | Mapping[Any, Any] | None = None,
        unseen_task: Literal["error", "mean"] = "error",
        uncertainty: bool | Literal["auto", "unseen"] = "auto",
        standard_errors: bool = False,
        max_iter: int = 100,
        tol: float = 1e-10,
        secure: bool = False,
        random_state: int | RandomState | Generator | Generator | None = None,
        verbose: int = 0,
        dtype: Literal["float64", "float32"] | type[Any] = ...,
    ) -> None: ...
    def export_task(self, task: Any, *, as_sklearn: bool = False) -> Any: ...
    def fit(self, X: Any, y: Any, task: Any = None, sample_weight: Any = None) -> Self: ...

class PrivateSearch(MetaEstimatorMixin, BaseEstimator):
    estimator: Any
    param_distributions: Mapping[Any, Any] | list[Any]
    n_trials: float
    selection: Literal["auto", "compose", "logarithmic", "poisson"]
    epsilon: float
    delta: float | None
    scoring: str | Callable[..., Any] | None
    score_range: Literal["auto"] | tuple[Any, ...] | list[Any]
    score_share: Literal["auto"] | float
    test_size: float
    random_state: int | RandomState | Generator | Generator
    best_estimator_: Any
    best_params_: dict[Any, Any]
    best_score_: float
    best_index_: int
    cv_results_: dict[Any, Any]
    n_splits_: int
    privacy_: PrivacyReport
    classes_: Any
    n_features_in_: Any
    feature_names_in_: Any
    def __init__(
        self,
        estimator: Any,
        param_distributions: Mapping[Any, Any] | list[Any],
        *,
        n_trials: float = 10,
        selection: Literal["auto", "compose", "logarithmic", "poisson"] = "auto",
        epsilon: float = 1.0,
        delta: float | None = None,
        scoring: str | Callable[..., Any] | None = None,
        score_range: Literal["auto"] | tuple[Any, ...] | list[Any] = "auto",
        score_share: Literal["auto"] | float = "auto",
        test_size: float = 0.25,
        random_state: int | RandomState | Generator | Generator | None = None,
    ) -> None: ...
    def decision_function(self, X: Any, task: Any = None) -> NDArray[Any] | dict[Any, Any]: ...
    def fit(self, X: Any, y: Any, task: Any = None, sample_weight: Any = None) -> Self: ...
    def predict(self, X: Any, task: Any = None) -> NDArray[Any] | dict[Any, Any]: ...
    def predict_log_proba(self, X: Any, task: Any = None) -> NDArray[Any] | dict[Any, Any]: ...
    def predict_proba(self, X: Any, task: Any = None) -> NDArray[Any] | dict[Any, Any]: ...
    def score(self, X: Any, y: Any, task: Any = None, sample_weight: Any = None) -> float: ...

class PublishedMPMTLGroupSparse(_MTLRegressorMixin, _HasCovariates, _BaseMTL, RegressorMixin, BaseEstimator):
    alpha: Literal["auto"] | float
    epsilon: float | None
    delta: float | None
    adjacency: Literal["replace-one", "zero-out"]
    curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any]
    mechanism: Literal["auto", "gaussian", "laplace", "wishart", "wishart-published"]
    algorithm: Literal["auto", "empirical-bayes", "proximal"]
    levels: Literal["auto", "free", "pooled"]
    init: Any
    ridge: float
    task_weight: Literal["equal", "samples"]
    relation: Any
    relation_rank: int | None
    outliers: Literal["entries", "tasks"] | None
    outlier_alpha: Literal["auto"] | float
    n_releases: Literal["auto"] | int
    clip_norm: float
    allocation: float | tuple[Any, ...] | list[Any] | Literal["paper-convex"]
    noise_shift: Literal["auto"] | float
    acceleration: bool
    fit_intercept: bool
    task_feature: str | int | list[Any] | None
    tasks: Literal["auto"] | ArrayLike
    unseen_task: Literal["error", "mean"]
    target_range: ArrayLike | None
    uncertainty: bool | Literal["auto", "unseen"]
    max_iter: int
    tol: float
    warm_start: bool
    random_state: int | RandomState | Generator | Generator
    secure: bool
    verbose: int
    dtype: Any
    coef_: Any
    intercept_: Any
    tasks_: Any
    billboard_: Any
    privacy_: Any
    relation_coef_: Any
    relation_intercept_: Any
    relation_noise_std_: Any
    n_iter_: Any
    objective_: Any
    dual_gap_: Any
    alpha_: Any
    outlier_coef_: Any
    outlier_: Any
    mean_coef_: Any
    mean_intercept_: Any
    n_features_in_: Any
    feature_names_in_: Any
    coef_names_: NDArray[Any]
    def __init__(
        self,
        alpha: Literal["auto"] | float = "auto",
        *,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Literal["replace-one", "zero-out"] = "replace-one",
        curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any] = "trusted",
        mechanism: Literal["auto", "gaussian", "laplace", "wishart", "wishart-published"] = "auto",
        algorithm: Literal["auto", "empirical-bayes", "proximal"] = "auto",
        levels: Literal["auto", "free", "pooled"] = "auto",
        init: Any = None,
        ridge: float = 0.0,
        task_weight: Literal["equal", "samples"] = "equal",
        relation: Any = None,
        relation_rank: int | None = None,
        outliers: Literal["entries", "tasks"] | None = None,
        outlier_alpha: Literal["auto"] | float = "auto",
        n_releases: Literal["auto"] | int = "auto",
        clip_norm: float = 1.0,
        allocation: float | tuple[Any, ...] | list[Any] | Literal["paper-convex"] = 0.0,
        noise_shift: Literal["auto"] | float = "auto",
        acceleration: bool = True,
        fit_intercept: bool = True,
        task_feature: str | int | list[Any] | None = None,
        tasks: Literal["auto"] | ArrayLike = "auto",
        unseen_task: Literal["error", "mean"] = "error",
        target_range: ArrayLike | None = None,
        uncertainty: bool | Literal["auto", "unseen"] = False,
        max_iter: int = 10000,
        tol: float = 1e-06,
        warm_start: bool = False,
        random_state: int | RandomState | Generator | Generator | None = None,
        secure: bool = False,
        verbose: int = 0,
        dtype: Any = ...,
    ) -> None: ...
    def export_task(self, task: Any, *, as_sklearn: bool = False) -> Any: ...
    def fit(self, X: Any, y: Any, task: Any = None, sample_weight: Any = None) -> Self: ...

class PublishedMPMTLGroupSparseClassifier(_MTLClassifierMixin, _HasCovariates, _BaseMTL, ClassifierMixin, BaseEstimator):
    alpha: Literal["auto"] | float
    epsilon: float | None
    delta: float | None
    adjacency: Literal["replace-one", "zero-out"]
    curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any]
    mechanism: Literal["auto", "gaussian", "laplace", "wishart", "wishart-published"]
    algorithm: Literal["auto", "empirical-bayes", "proximal"]
    levels: Literal["auto", "free", "pooled"]
    init: Any
    ridge: float
    task_weight: Literal["equal", "samples"]
    relation: Any
    relation_rank: int | None
    outliers: Literal["entries", "tasks"] | None
    outlier_alpha: Literal["auto"] | float
    n_releases: Literal["auto"] | int
    clip_norm: float
    allocation: float | tuple[Any, ...] | list[Any] | Literal["paper-convex"]
    noise_shift: Literal["auto"] | float
    acceleration: bool
    fit_intercept: bool
    task_feature: str | int | list[Any] | None
    tasks: Literal["auto"] | ArrayLike
    classes: Literal["auto"] | ArrayLike
    class_weight: Literal["balanced"] | Mapping[Any, Any] | None
    unseen_task: Literal["error", "mean"]
    max_iter: int
    tol: float
    warm_start: bool
    random_state: int | RandomState | Generator | Generator
    secure: bool
    verbose: int
    dtype: Any
    coef_: Any
    intercept_: Any
    tasks_: Any
    classes_: Any
    billboard_: Any
    privacy_: Any
    relation_coef_: Any
    relation_intercept_: Any
    relation_noise_std_: Any
    n_iter_: Any
    objective_: Any
    dual_gap_: Any
    alpha_: Any
    outlier_coef_: Any
    outlier_: Any
    mean_coef_: Any
    mean_intercept_: Any
    n_features_in_: Any
    feature_names_in_: Any
    coef_names_: NDArray[Any]
    def __init__(
        self,
        alpha: Literal["auto"] | float = "auto",
        *,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Literal["replace-one", "zero-out"] = "replace-one",
        curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any] = "trusted",
        mechanism: Literal["auto", "gaussian", "laplace", "wishart", "wishart-published"] = "auto",
        algorithm: Literal["auto", "empirical-bayes", "proximal"] = "auto",
        levels: Literal["auto", "free", "pooled"] = "auto",
        init: Any = None,
        ridge: float = 0.0,
        task_weight: Literal["equal", "samples"] = "equal",
        relation: Any = None,
        relation_rank: int | None = None,
        outliers: Literal["entries", "tasks"] | None = None,
        outlier_alpha: Literal["auto"] | float = "auto",
        n_releases: Literal["auto"] | int = "auto",
        clip_norm: float = 1.0,
        allocation: float | tuple[Any, ...] | list[Any] | Literal["paper-convex"] = 0.0,
        noise_shift: Literal["auto"] | float = "auto",
        acceleration: bool = True,
        fit_intercept: bool = True,
        task_feature: str | int | list[Any] | None = None,
        tasks: Literal["auto"] | ArrayLike = "auto",
        classes: Literal["auto"] | ArrayLike = "auto",
        class_weight: Literal["balanced"] | Mapping[Any, Any] | None = None,
        unseen_task: Literal["error", "mean"] = "error",
        max_iter: int = 10000,
        tol: float = 1e-06,
        warm_start: bool = False,
        random_state: int | RandomState | Generator | Generator | None = None,
        secure: bool = False,
        verbose: int = 0,
        dtype: Any = ...,
    ) -> None: ...
    def export_task(self, task: Any, *, as_sklearn: bool = False) -> Any: ...
    def fit(self, X: Any, y: Any, task: Any = None, sample_weight: Any = None) -> Self: ...

class PublishedMPMTLLowRank(_MTLRegressorMixin, _HasCovariates, _BaseMTL, RegressorMixin, BaseEstimator):
    alpha: Literal["auto"] | float
    epsilon: float | None
    delta: float | None
    adjacency: Literal["replace-one", "zero-out"]
    curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any]
    mechanism: Literal["auto", "gaussian", "wishart", "wishart-published"]
    algorithm: Literal["auto", "empirical-bayes", "proximal"]
    levels: Literal["auto", "free", "pooled"]
    init: Any
    ridge: float
    task_weight: Literal["equal", "samples"]
    relation: Any
    relation_rank: int | None
    outliers: Literal["entries", "tasks"] | None
    outlier_alpha: Literal["auto"] | float
    n_releases: Literal["auto"] | int
    clip_norm: float
    allocation: float | tuple[Any, ...] | list[Any] | Literal["paper-convex"]
    noise_shift: Literal["auto"] | float
    acceleration: bool
    fit_intercept: bool
    task_feature: str | int | list[Any] | None
    tasks: Literal["auto"] | ArrayLike
    unseen_task: Literal["error", "mean"]
    target_range: ArrayLike | None
    uncertainty: bool | Literal["auto", "unseen"]
    max_iter: int
    tol: float
    warm_start: bool
    random_state: int | RandomState | Generator | Generator
    secure: bool
    verbose: int
    dtype: Any
    coef_: Any
    intercept_: Any
    tasks_: Any
    billboard_: Any
    privacy_: Any
    relation_coef_: Any
    relation_intercept_: Any
    relation_noise_std_: Any
    n_iter_: Any
    objective_: Any
    dual_gap_: Any
    alpha_: Any
    outlier_coef_: Any
    outlier_: Any
    mean_coef_: Any
    mean_intercept_: Any
    n_features_in_: Any
    feature_names_in_: Any
    coef_names_: NDArray[Any]
    def __init__(
        self,
        alpha: Literal["auto"] | float = "auto",
        *,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Literal["replace-one", "zero-out"] = "replace-one",
        curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any] = "trusted",
        mechanism: Literal["auto", "gaussian", "wishart", "wishart-published"] = "auto",
        algorithm: Literal["auto", "empirical-bayes", "proximal"] = "auto",
        levels: Literal["auto", "free", "pooled"] = "auto",
        init: Any = None,
        ridge: float = 0.0,
        task_weight: Literal["equal", "samples"] = "equal",
        relation: Any = None,
        relation_rank: int | None = None,
        outliers: Literal["entries", "tasks"] | None = None,
        outlier_alpha: Literal["auto"] | float = "auto",
        n_releases: Literal["auto"] | int = "auto",
        clip_norm: float = 1.0,
        allocation: float | tuple[Any, ...] | list[Any] | Literal["paper-convex"] = 0.0,
        noise_shift: Literal["auto"] | float = "auto",
        acceleration: bool = True,
        fit_intercept: bool = True,
        task_feature: str | int | list[Any] | None = None,
        tasks: Literal["auto"] | ArrayLike = "auto",
        unseen_task: Literal["error", "mean"] = "error",
        target_range: ArrayLike | None = None,
        uncertainty: bool | Literal["auto", "unseen"] = False,
        max_iter: int = 10000,
        tol: float = 1e-06,
        warm_start: bool = False,
        random_state: int | RandomState | Generator | Generator | None = None,
        secure: bool = False,
        verbose: int = 0,
        dtype: Any = ...,
    ) -> None: ...
    def export_task(self, task: Any, *, as_sklearn: bool = False) -> Any: ...
    def fit(self, X: Any, y: Any, task: Any = None, sample_weight: Any = None) -> Self: ...

class PublishedMPMTLLowRankClassifier(_MTLClassifierMixin, _HasCovariates, _BaseMTL, ClassifierMixin, BaseEstimator):
    alpha: Literal["auto"] | float
    epsilon: float | None
    delta: float | None
    adjacency: Literal["replace-one", "zero-out"]
    curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any]
    mechanism: Literal["auto", "gaussian", "wishart", "wishart-published"]
    algorithm: Literal["auto", "empirical-bayes", "proximal"]
    levels: Literal["auto", "free", "pooled"]
    init: Any
    ridge: float
    task_weight: Literal["equal", "samples"]
    relation: Any
    relation_rank: int | None
    outliers: Literal["entries", "tasks"] | None
    outlier_alpha: Literal["auto"] | float
    n_releases: Literal["auto"] | int
    clip_norm: float
    allocation: float | tuple[Any, ...] | list[Any] | Literal["paper-convex"]
    noise_shift: Literal["auto"] | float
    acceleration: bool
    fit_intercept: bool
    task_feature: str | int | list[Any] | None
    tasks: Literal["auto"] | ArrayLike
    classes: Literal["auto"] | ArrayLike
    class_weight: Literal["balanced"] | Mapping[Any, Any] | None
    unseen_task: Literal["error", "mean"]
    max_iter: int
    tol: float
    warm_start: bool
    random_state: int | RandomState | Generator | Generator
    secure: bool
    verbose: int
    dtype: Any
    coef_: Any
    intercept_: Any
    tasks_: Any
    classes_: Any
    billboard_: Any
    privacy_: Any
    relation_coef_: Any
    relation_intercept_: Any
    relation_noise_std_: Any
    n_iter_: Any
    objective_: Any
    dual_gap_: Any
    alpha_: Any
    outlier_coef_: Any
    outlier_: Any
    mean_coef_: Any
    mean_intercept_: Any
    n_features_in_: Any
    feature_names_in_: Any
    coef_names_: NDArray[Any]
    def __init__(
        self,
        alpha: Literal["auto"] | float = "auto",
        *,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Literal["replace-one", "zero-out"] = "replace-one",
        curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any] = "trusted",
        mechanism: Literal["auto", "gaussian", "wishart", "wishart-published"] = "auto",
        algorithm: Literal["auto", "empirical-bayes", "proximal"] = "auto",
        levels: Literal["auto", "free", "pooled"] = "auto",
        init: Any = None,
        ridge: float = 0.0,
        task_weight: Literal["equal", "samples"] = "equal",
        relation: Any = None,
        relation_rank: int | None = None,
        outliers: Literal["entries", "tasks"] | None = None,
        outlier_alpha: Literal["auto"] | float = "auto",
        n_releases: Literal["auto"] | int = "auto",
        clip_norm: float = 1.0,
        allocation: float | tuple[Any, ...] | list[Any] | Literal["paper-convex"] = 0.0,
        noise_shift: Literal["auto"] | float = "auto",
        acceleration: bool = True,
        fit_intercept: bool = True,
        task_feature: str | int | list[Any] | None = None,
        tasks: Literal["auto"] | ArrayLike = "auto",
        classes: Literal["auto"] | ArrayLike = "auto",
        class_weight: Literal["balanced"] | Mapping[Any, Any] | None = None,
        unseen_task: Literal["error", "mean"] = "error",
        max_iter: int = 10000,
        tol: float = 1e-06,
        warm_start: bool = False,
        random_state: int | RandomState | Generator | Generator | None = None,
        secure: bool = False,
        verbose: int = 0,
        dtype: Any = ...,
    ) -> None: ...
    def export_task(self, task: Any, *, as_sklearn: bool = False) -> Any: ...
    def fit(self, X: Any, y: Any, task: Any = None, sample_weight: Any = None) -> Self: ...

class PublishedMeanRegMTL(_MTLRegressorMixin, _MeanRegularized, RegressorMixin, BaseEstimator):
    lam: Literal["auto"] | float
    epsilon: float | None
    delta: float | None
    adjacency: Literal["replace-one", "zero-out"]
    curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any]
    clip_norm: Literal["auto"] | float
    clip_quantile: float | None
    n_rounds: Literal["auto"] | int
    update: Literal["algorithm-1", "prox", "stateful"]
    sampling: Literal["all", "fixed", "poisson"]
    sampling_rate: float
    local_steps: Literal["auto"] | int
    local_learning_rate: float
    server_learning_rate: float
    personalization: Literal["ewc", "finetune", "mean-reg", "none", "symmetrized-kl"]
    init: Any
    ridge: float
    l1: float
    task_weight: Literal["equal", "samples"]
    clusters: Mapping[Any, Any] | None
    relation: Any
    relation_rank: int | Literal["all"] | None
    fit_intercept: bool
    task_feature: str | int | list[Any] | None
    tasks: Literal["auto"] | ArrayLike
    unseen_task: Literal["error", "mean"]
    target_range: ArrayLike | None
    uncertainty: bool | Literal["auto", "unseen"]
    max_iter: int
    tol: float
    secure: bool
    random_state: int | RandomState | Generator | Generator
    verbose: int
    dtype: Any
    coef_: Any
    intercept_: Any
    mean_coef_: Any
    mean_intercept_: Any
    relation_coef_: Any
    relation_noise_std_: Any
    billboard_: Any
    privacy_: Any
    tasks_: Any
    n_iter_: Any
    objective_: Any
    lam_: Any
    dual_gap_: Any
    n_features_in_: Any
    feature_names_in_: Any
    coef_names_: NDArray[Any]
    def __init__(
        self,
        lam: Literal["auto"] | float = "auto",
        *,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Literal["replace-one", "zero-out"] = "replace-one",
        curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any] = "trusted",
        clip_norm: Literal["auto"] | float = "auto",
        clip_quantile: float | None = None,
        n_rounds: Literal["auto"] | int = "auto",
        update: Literal["algorithm-1", "prox", "stateful"] = "prox",
        sampling: Literal["all", "fixed", "poisson"] = "all",
        sampling_rate: float = 1.0,
        local_steps: Literal["auto"] | int = "auto",
        local_learning_rate: float = 1.0,
        server_learning_rate: float = 1.0,
        personalization: Literal["ewc", "finetune", "mean-reg", "none", "symmetrized-kl"] = "mean-reg",
        init: Any = None,
        ridge: float = 0.0,
        l1: float = 0.0,
        task_weight: Literal["equal", "samples"] = "equal",
        clusters: Mapping[Any, Any] | None = None,
        relation: Any = None,
        relation_rank: int | Literal["all"] | None = None,
        fit_intercept: bool = True,
        task_feature: str | int | list[Any] | None = None,
        tasks: Literal["auto"] | ArrayLike = "auto",
        unseen_task: Literal["error", "mean"] = "error",
        target_range: ArrayLike | None = None,
        uncertainty: bool | Literal["auto", "unseen"] = False,
        max_iter: int = 100,
        tol: float = 1e-10,
        secure: bool = False,
        random_state: int | RandomState | Generator | Generator | None = None,
        verbose: int = 0,
        dtype: Any = ...,
    ) -> None: ...
    def export_task(self, task: Any, *, as_sklearn: bool = False) -> Any: ...
    def fit(self, X: Any, y: Any, task: Any = None, sample_weight: Any = None) -> Self: ...

class PublishedMeanRegMTLClassifier(_MTLClassifierMixin, _MeanRegularized, ClassifierMixin, BaseEstimator):
    lam: Literal["auto"] | float
    epsilon: float | None
    delta: float | None
    adjacency: Literal["replace-one", "zero-out"]
    curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any]
    clip_norm: Literal["auto"] | float
    clip_quantile: float | None
    n_rounds: Literal["auto"] | int
    update: Literal["algorithm-1", "prox", "stateful"]
    sampling: Literal["all", "fixed", "poisson"]
    sampling_rate: float
    local_steps: Literal["auto"] | int
    local_learning_rate: float
    server_learning_rate: float
    personalization: Literal["ewc", "finetune", "mean-reg", "none", "symmetrized-kl"]
    init: Any
    ridge: float
    l1: float
    task_weight: Literal["equal", "samples"]
    clusters: Mapping[Any, Any] | None
    relation: Any
    relation_rank: int | Literal["all"] | None
    fit_intercept: bool
    task_feature: str | int | list[Any] | None
    tasks: Literal["auto"] | ArrayLike
    classes: Literal["auto"] | ArrayLike
    class_weight: Literal["balanced"] | Mapping[Any, Any] | None
    unseen_task: Literal["error", "mean"]
    max_iter: int
    tol: float
    secure: bool
    random_state: int | RandomState | Generator | Generator
    verbose: int
    dtype: Any
    coef_: Any
    intercept_: Any
    mean_coef_: Any
    mean_intercept_: Any
    relation_coef_: Any
    relation_noise_std_: Any
    billboard_: Any
    privacy_: Any
    tasks_: Any
    n_iter_: Any
    objective_: Any
    lam_: Any
    dual_gap_: Any
    n_features_in_: Any
    feature_names_in_: Any
    classes_: Any
    coef_names_: NDArray[Any]
    def __init__(
        self,
        lam: Literal["auto"] | float = "auto",
        *,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Literal["replace-one", "zero-out"] = "replace-one",
        curator: Literal["servers", "trusted"] | tuple[Any, ...] | list[Any] = "trusted",
        clip_norm: Literal["auto"] | float = "auto",
        clip_quantile: float | None = None,
        n_rounds: Literal["auto"] | int = "auto",
        update: Literal["algorithm-1", "prox", "stateful"] = "prox",
        sampling: Literal["all", "fixed", "poisson"] = "all",
        sampling_rate: float = 1.0,
        local_steps: Literal["auto"] | int = "auto",
        local_learning_rate: float = 1.0,
        server_learning_rate: float = 1.0,
        personalization: Literal["ewc", "finetune", "mean-reg", "none", "symmetrized-kl"] = "mean-reg",
        init: Any = None,
        ridge: float = 0.0,
        l1: float = 0.0,
        task_weight: Literal["equal", "samples"] = "equal",
        clusters: Mapping[Any, Any] | None = None,
        relation: Any = None,
        relation_rank: int | Literal["all"] | None = None,
        fit_intercept: bool = True,
        task_feature: str | int | list[Any] | None = None,
        tasks: Literal["auto"] | ArrayLike = "auto",
        classes: Literal["auto"] | ArrayLike = "auto",
        class_weight: Literal["balanced"] | Mapping[Any, Any] | None = None,
        unseen_task: Literal["error", "mean"] = "error",
        max_iter: int = 100,
        tol: float = 1e-10,
        secure: bool = False,
        random_state: int | RandomState | Generator | Generator | None = None,
        verbose: int = 0,
        dtype: Any = ...,
    ) -> None: ...
    def export_task(self, task: Any, *, as_sklearn: bool = False) -> Any: ...
    def fit(self, X: Any, y: Any, task: Any = None, sample_weight: Any = None) -> Self: ...

class SingleTaskWarning(UserWarning): ...

class TaskImputer(_TaskTransformer, TransformerMixin, BaseEstimator):
    task_feature: str | int | None
    default: dict[Any, Any] | None
    tasks_: NDArray[Any]
    statistics_: dict[Any, Any]
    n_features_in_: Any
    feature_names_in_: Any
    def __init__(
        self,
        *,
        task_feature: str | int | None = None,
        default: dict[Any, Any] | None = None,
    ) -> None: ...
    def export_task(self, task: Any, *, as_sklearn: bool = False) -> Any: ...
    def fit(self, X: Any, y: Any = None) -> Self: ...
    def transform(self, X: Any) -> Any: ...

class TaskScaler(_TaskTransformer, TransformerMixin, BaseEstimator):
    task_feature: str | int | None
    with_mean: bool
    with_std: bool
    scale: float | ArrayLike
    tasks: Literal["auto"] | ArrayLike
    tasks_: NDArray[Any]
    mean_: NDArray[Any]
    scale_: NDArray[Any]
    n_features_in_: Any
    feature_names_in_: Any
    def __init__(
        self,
        *,
        task_feature: str | int | None = None,
        with_mean: bool = True,
        with_std: bool = True,
        scale: float | ArrayLike | None = None,
        tasks: Literal["auto"] | ArrayLike = "auto",
    ) -> None: ...
    def export_task(self, task: Any, *, as_sklearn: bool = False) -> Any: ...
    def fit(self, X: Any, y: Any = None) -> Self: ...
    def transform(self, X: Any) -> Any: ...

class TaskStratifiedKFold:
    n_splits: int
    task_feature: str | int | None
    shuffle: bool
    random_state: int | RandomState | None
    def __init__(
        self,
        n_splits: int = 5,
        *,
        task_feature: str | int | None = None,
        shuffle: bool = False,
        random_state: int | RandomState | None = None,
    ) -> None: ...
    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int: ...
    def split(
        self,
        X: Any,
        y: Any = None,
        groups: ArrayLike | None = None,
    ) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]: ...

def export_task(model: Any, task: Any) -> Any: ...

def get_num_threads() -> int: ...

def load_billboard(path: Any) -> Any: ...

def mtl_path(
    X: Any,
    y: Any,
    task: Any = None,
    *,
    penalty: Literal["trace", "l21"] = "trace",
    loss: Literal["squared", "logistic", "multinomial"] = "squared",
    eps: float = 0.001,
    n_alphas: int = 100,
    alphas: ArrayLike | None = None,
    ridge: Any = 0.0,
    task_weight: Any = "equal",
    fit_intercept: Any = True,
    task_feature: Any = None,
    sample_weight: Any = None,
    max_iter: Any = 10000,
    tol: Any = 1e-06,
    dtype: Any = ...,
) -> MTLPath: ...

def personalize(model: Any, X: Any, y: Any, **params: Any) -> Any: ...

def plan(
    n_tasks: int,
    n_rows: int,
    n_features: int,
    *,
    epsilons: Any = ...,
    estimator: Any = None,
    explained: float = 0.5,
    n_repeats: int | None = None,
    random_state: int = 0,
) -> BudgetPlan: ...

def save_billboard(est: Any, path: str | PathLike[str]) -> Any: ...

def set_num_threads(n_threads: int | None) -> Any: ...

def stack_tasks(X: Any, y: Any = None, tasks: ArrayLike | None = None) -> tuple[Any, ...]: ...

def wide_to_long(X: Any, Y: ArrayLike, tasks: ArrayLike | None = None) -> tuple[Any, ...]: ...

__all__ = [
    "BudgetPlan",
    "ClusteredMTL",
    "ClusteredMTLClassifier",
    "FedMTLClassifier",
    "FedMTLRegressor",
    "DPAggregation",
    "DPAggregationClassifier",
    "DPMetaInit",
    "DPMetaInitClassifier",
    "DPRelationship",
    "DPRelationshipClassifier",
    "LeaveTasksOut",
    "LocalOnly",
    "LocalOnlyClassifier",
    "MPMTLGroupSparse",
    "MPMTLGroupSparseCV",
    "MPMTLGroupSparseClassifier",
    "MPMTLGroupSparseClassifierCV",
    "MPMTLLowRank",
    "MPMTLLowRankCV",
    "MPMTLLowRankClassifier",
    "MPMTLLowRankClassifierCV",
    "MTLPath",
    "PPSGD",
    "PPSGDClassifier",
    "PerTask",
    "PrivacyLeakWarning",
    "PrivateFedAvg",
    "PrivateFedAvgClassifier",
    "PrivateFedProx",
    "PrivateFedProxClassifier",
    "PrivateMTL",
    "PrivateMTLClassifier",
    "PrivateMeanRegMTL",
    "PrivateMeanRegMTLClassifier",
    "PrivateSearch",
    "PublishedMPMTLGroupSparse",
    "PublishedMPMTLGroupSparseClassifier",
    "PublishedMPMTLLowRank",
    "PublishedMPMTLLowRankClassifier",
    "PublishedMeanRegMTL",
    "PublishedMeanRegMTLClassifier",
    "SingleTaskWarning",
    "TaskImputer",
    "TaskScaler",
    "TaskStratifiedKFold",
    "__version__",
    "export_task",
    "get_num_threads",
    "load_billboard",
    "mtl_path",
    "personalize",
    "plan",
    "save_billboard",
    "set_num_threads",
    "stack_tasks",
    "wide_to_long",
]
