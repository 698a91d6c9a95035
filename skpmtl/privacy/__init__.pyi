"""Type hints of `skpmtl.privacy`; written by ``python -m tests.stubs``."""

from typing import Any, Literal
from numpy.random import Generator, RandomState
from typing_extensions import Self
from skpmtl import PrivacyLeakWarning as PrivacyLeakWarning

class AuditResult:
    passed: bool
    failures: tuple[Any, ...]
    epsilon_lower: float
    epsilon_claimed: float
    delta: float
    confidence: float
    noise_ratio: tuple[Any, ...]
    sensitivity_observed: float
    sensitivity_stated: float
    event: str
    scores: tuple[Any, ...]
    threshold: float
    n_replayed: Any
    def __init__(
        self,
        passed: bool,
        failures: tuple[Any, ...],
        epsilon_lower: float,
        epsilon_claimed: float,
        delta: float,
        confidence: float,
        noise_ratio: tuple[Any, ...],
        sensitivity_observed: float,
        sensitivity_stated: float,
        event: str,
        scores: tuple[Any, ...],
        threshold: float,
        n_replayed: Any = None,
    ) -> None: ...
    def plot(self, ax: Any = None) -> Any: ...

class DiagonalGaussian:
    dimension: Any
    sensitivity: Any
    mu: Any
    def __init__(self, dimension: Any, sensitivity: Any, mu: Any) -> None: ...
    def describe(self, statistic: Any = None) -> Any: ...
    def noise_of_one(self, source: Any, n_servers: Any) -> Any: ...
    def release(self, value: Any, source: Any) -> Any: ...
    def sample(self, source: Any) -> Any: ...
    def shift(self, n_releases: Any, factor: Any = "auto") -> Any: ...
    def steps(self, value: Any) -> Any: ...

class DiagonalLaplace:
    dimension: int
    sensitivity: float
    epsilon: float
    def __init__(self, dimension: int, sensitivity: float, epsilon: float) -> None: ...
    def describe(self, statistic: Any = None) -> Any: ...
    def noise_of_one(self, source: Any, n_servers: Any) -> Any: ...
    def release(self, value: Any, source: Any) -> Any: ...
    def sample(self, source: Any) -> Any: ...
    def shift(self, n_releases: Any, factor: Any = "auto") -> Any: ...
    def steps(self, value: Any) -> Any: ...

class PrivacyReport:
    guarantee: Literal["joint DP per task", "task DP", "record DP", "none"]
    unit: str
    adjacency: Literal["replace-one", "zero-out"]
    epsilon: float
    delta: float
    mechanism: str
    sensitivity: float | tuple[Any, ...]
    noise_std: tuple[Any, ...]
    shift: tuple[Any, ...]
    mu: float | None
    releases: tuple[Any, ...]
    accountant: str
    sampling: str
    rng: str
    arithmetic: str
    public_inputs: dict[Any, Any]
    assumptions: tuple[Any, ...]
    notes: dict[Any, Any]
    def __init__(
        self,
        guarantee: Literal["joint DP per task", "task DP", "record DP", "none"],
        unit: str = "task",
        adjacency: Literal["replace-one", "zero-out"] = "replace-one",
        epsilon: float = ...,
        delta: float = 0.0,
        mechanism: str = "none",
        sensitivity: float | tuple[Any, ...] | None = None,
        noise_std: tuple[Any, ...] = ...,
        shift: tuple[Any, ...] = ...,
        mu: float | None = None,
        releases: tuple[Any, ...] = ...,
        accountant: str = "none",
        sampling: str = "all tasks in every release",
        rng: str = "none",
        arithmetic: str = "none",
        public_inputs: dict[Any, Any] = ...,
        assumptions: tuple[Any, ...] = ...,
        notes: dict[Any, Any] = ...,
    ) -> None: ...
    def disclosing(self, lists: list[Any]) -> PrivacyReport: ...
    @classmethod
    def from_dict(cls, values: Any) -> Self: ...
    @classmethod
    def from_json(cls, text: Any) -> Self: ...
    def kinds(self) -> list[Any]: ...
    def paragraphs(self) -> list[Any]: ...
    def summary(self) -> str: ...
    def text(self, width: int | None = 88) -> str: ...
    def to_dict(self) -> Any: ...
    def to_json(self, indent: Any = None) -> Any: ...

class PublishedWishart:
    dimension: int
    clip_norm: float
    epsilon: float
    noise_mean: float
    delta_lower_bound: float
    def __init__(self, dimension: int, clip_norm: float, epsilon: float) -> None: ...
    def describe(self, statistic: Any = None) -> Any: ...
    def noise_of_one(self, source: Any, n_servers: Any) -> Any: ...
    def release(self, value: Any, source: Any) -> Any: ...
    def sample(self, source: Any) -> Any: ...
    def shift(self, n_releases: Any, factor: Any = "auto") -> Any: ...
    def steps(self, value: Any) -> Any: ...

class SymmetricGaussian:
    dimension: int
    sensitivity: float
    mu: float
    def __init__(self, dimension: int, sensitivity: float, mu: float) -> None: ...
    def describe(self, statistic: Any = None) -> Any: ...
    def noise_of_one(self, source: Any, n_servers: Any) -> Any: ...
    def release(self, value: Any, source: Any) -> Any: ...
    def sample(self, source: Any) -> Any: ...
    def shift(self, n_releases: Any, factor: Any = "auto") -> Any: ...
    def steps(self, value: Any) -> Any: ...

class SymmetrizedWishart:
    dimension: int
    sensitivity: float
    epsilon: float
    def __init__(self, dimension: int, sensitivity: float, epsilon: float) -> None: ...
    def describe(self, statistic: Any = None) -> Any: ...
    def noise_of_one(self, source: Any, n_servers: Any) -> Any: ...
    def release(self, value: Any, source: Any) -> Any: ...
    def sample(self, source: Any) -> Any: ...
    def shift(self, n_releases: Any, factor: Any = "auto") -> Any: ...
    def steps(self, value: Any) -> Any: ...

class VectorGamma:
    dimension: int
    sensitivity: float
    epsilon: float
    n_vectors: int
    def __init__(
        self,
        dimension: int,
        sensitivity: float,
        epsilon: float,
        *,
        n_vectors: int = 1,
    ) -> None: ...
    def describe(self, statistic: Any = None) -> Any: ...
    def noise_of_one(self, source: Any, n_servers: Any) -> Any: ...
    def release(self, value: Any, source: Any) -> Any: ...
    def sample(self, source: Any) -> Any: ...
    def steps(self, value: Any) -> Any: ...

class VectorGaussian:
    dimension: int
    sensitivity: float
    mu: float
    def __init__(self, dimension: int, sensitivity: float, mu: float) -> None: ...
    def describe(self, statistic: Any = None) -> Any: ...
    def noise_of_one(self, source: Any, n_servers: Any) -> Any: ...
    def release(self, value: Any, source: Any) -> Any: ...
    def sample(self, source: Any) -> Any: ...
    def steps(self, value: Any) -> Any: ...

def allocation_weights(
    allocation: Any,
    n_releases: int,
    *,
    acceleration: bool = False,
) -> tuple[Any, ...]: ...

def audit(
    target: Any,
    data: Any = None,
    neighbour: Any = None,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    n_draws: int | None = None,
    confidence: float = 0.999,
    random_state: int | None = None,
    replay: bool = False,
) -> AuditResult: ...

def cb_epsilon(epsilons: Any, delta: Any) -> Any: ...

def check_budget(
    epsilon: float,
    delta: float | None,
    n_tasks: int,
    *,
    pure: bool = False,
    unit: Literal["task", "record"] = "task",
) -> Any: ...

def compose(reports: Any, delta: float | None = None) -> PrivacyReport: ...

def compose_gdp(mus: Any) -> Any: ...

def diagonal_gaussian_shift(
    noise_std: Any,
    dimension: Any,
    n_releases: Any,
    factor: Any = "auto",
    *,
    beta: Any = 0.01,
) -> Any: ...

def diagonal_sensitivity(
    clip_norm: Any,
    adjacency: Any,
    *,
    dimension: Any = 2,
    norm: Any = "l2",
) -> Any: ...

def gaussian_shift(
    noise_std: Any,
    dimension: Any,
    n_releases: Any,
    factor: Any = "auto",
    *,
    beta: Any = 0.01,
) -> Any: ...

def gdp_delta(mu: Any, epsilon: Any) -> Any: ...

def gdp_epsilon(mu: Any, delta: Any) -> Any: ...

def gdp_mu(epsilon: Any, delta: Any) -> Any: ...

def grid_search_cost(search: Any) -> PrivacyReport: ...

def group_privacy(epsilon: Any, delta: Any, size: Any) -> Any: ...

def l4_diagonal_sensitivity(clip_norm: Any, adjacency: Any, *, dimension: Any = 2) -> Any: ...

def laplace_shift(
    scale: Any,
    dimension: Any,
    n_releases: Any,
    factor: Any = "auto",
    *,
    beta: Any = 0.01,
) -> Any: ...

def mean_sensitivity(clip_norm: Any, denominator: Any, adjacency: Any) -> Any: ...

def noise_source(
    random_state: int | Generator | RandomState | None = None,
    *,
    secure: bool = False,
) -> tuple[Any, ...]: ...

def optimal_pure_delta(epsilons: Any, epsilon: Any, mu: Any = 0.0) -> Any: ...

def optimal_pure_epsilon(epsilons: Any, delta: Any, mu: Any = 0.0) -> Any: ...

def published_wishart_delta_bound(epsilons: Any) -> Any: ...

def pure_epsilon(epsilons: Any, delta: Any, method: Any = "best") -> Any: ...

def pure_epsilons(
    epsilon: float,
    delta: float,
    weights: Any,
    method: Literal["best", "cb", "optimal", "basic"] = "best",
) -> tuple[Any, ...]: ...

def record_budget(epsilon: Any, delta: Any, size: Any, method: Any = "tight") -> Any: ...

def release_epsilons(
    epsilon: Any,
    delta: Any,
    n_releases: Any,
    allocation: Any = 0.0,
    *,
    acceleration: Any = False,
) -> Any: ...

def release_mus(
    mu: Any,
    n_releases: Any,
    allocation: Any = 0.0,
    *,
    acceleration: Any = False,
) -> Any: ...

def second_moment_sensitivity(
    clip_norm: Any,
    adjacency: Any,
    *,
    dimension: Any = 2,
    norm: Any = "frobenius",
) -> Any: ...

def selection_epsilon(
    mu: float,
    n_trials: float,
    distribution: Literal["poisson", "logarithmic", "compose"],
    delta: float,
) -> float: ...

def selection_mu(epsilon: Any, delta: Any, n_trials: Any, distribution: Any) -> Any: ...

def wishart_delta(
    epsilon: Any,
    dimension: Any,
    degrees: Any,
    scale: Any,
    clip_norm: Any,
) -> Any: ...

def wishart_shift(
    scale: Any,
    dimension: Any,
    n_releases: Any,
    factor: Any = "auto",
    *,
    beta: Any = 0.01,
) -> Any: ...

__all__ = [
    "AuditResult",
    "DiagonalGaussian",
    "DiagonalLaplace",
    "PrivacyLeakWarning",
    "PrivacyReport",
    "PublishedWishart",
    "SymmetricGaussian",
    "SymmetrizedWishart",
    "VectorGamma",
    "VectorGaussian",
    "allocation_weights",
    "audit",
    "cb_epsilon",
    "check_budget",
    "compose",
    "compose_gdp",
    "diagonal_gaussian_shift",
    "diagonal_sensitivity",
    "gaussian_shift",
    "gdp_delta",
    "gdp_epsilon",
    "gdp_mu",
    "grid_search_cost",
    "group_privacy",
    "l4_diagonal_sensitivity",
    "laplace_shift",
    "mean_sensitivity",
    "noise_source",
    "optimal_pure_delta",
    "optimal_pure_epsilon",
    "published_wishart_delta_bound",
    "pure_epsilon",
    "pure_epsilons",
    "record_budget",
    "release_epsilons",
    "release_mus",
    "second_moment_sensitivity",
    "selection_epsilon",
    "selection_mu",
    "wishart_delta",
    "wishart_shift",
]
