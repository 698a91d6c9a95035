"""Type hints of `skpmtl.exchange`; written by ``python -m tests.stubs``."""

from collections.abc import Callable
from typing import Any
from numpy.typing import NDArray
from typing_extensions import Self
from skpmtl.privacy import PrivacyReport as PrivacyReport

class Billboard:
    settings: tuple[Any, ...]
    n_classes: int | None
    n_features: Any
    model_shape: Any
    has_one_mean: Any
    def attributes(self) -> Any: ...
    def declared(self) -> Any: ...
    def parameters(self) -> Any: ...
    def posterior(self, table: Any, *, fit_intercept: bool, width: float | None = None) -> Any: ...
    def within(self, report: Any) -> Any: ...
    def without_rows(self, tasks: Any) -> tuple[Any, ...]: ...
    def written(self) -> Any: ...

class Plan:
    guarantee: str
    unit: str
    adjacency: str
    epsilon: float | None
    delta: float | None
    mu: float | None
    noise_parties: Any
    public_init: Any
    own_assumptions: tuple[Any, ...]
    accounting: str
    silence: str
    def accountant(self) -> Any: ...
    def assumptions(self) -> Any: ...
    def mechanism(self) -> Any: ...
    def notes(self, made: Any = None) -> Any: ...
    def public_inputs(self) -> Any: ...
    def releases(self, made: Any = None) -> list[Any]: ...
    def report(self, source: Any, made: Any = None) -> PrivacyReport: ...
    def scheme(self) -> Any: ...
    def shift(self) -> Any: ...
    def with_noise_parties(self, report: Any) -> Any: ...

class Population:
    tasks: NDArray[Any]
    n_features: int
    n_classes: int
    sizes: NDArray[Any]
    is_sparse: bool
    n_tasks: Any
    loss: Any
    n_outputs: Any
    def __init__(
        self,
        tasks: NDArray[Any],
        n_features: int,
        n_classes: int = 0,
        sizes: NDArray[Any] | None = None,
        is_sparse: bool = False,
    ) -> None: ...
    @classmethod
    def of(cls, table: Any) -> Self: ...

class PublicDraw:
    draw: Any
    def __init__(self, draw: Any) -> None: ...

class Query:
    statistic: str
    public: dict[Any, Any]
    mechanisms: dict[Any, Any] | None
    combine: Callable[..., Any]
    divide: float
    pick: NDArray[Any]
    task_side_adds: bool
    bound: float
    def __init__(
        self,
        statistic: str,
        public: dict[Any, Any],
        mechanisms: dict[Any, Any] | None,
        combine: Callable[..., Any],
        divide: float = 1.0,
        pick: NDArray[Any] | None = None,
        task_side_adds: bool = False,
        bound: float | None = None,
    ) -> None: ...
    def local(self, positions: Any) -> Any: ...

class QuerySpec:
    shapes: dict[Any, Any]
    public: dict[Any, Any]
    total: Total
    def __init__(
        self,
        shapes: dict[Any, Any],
        public: dict[Any, Any] = ...,
        total: Total | None = None,
    ) -> None: ...
    def check(self, public: Any) -> Any: ...

class TaskSide:
    remembers: bool
    state: Any
    def answer(self, query: Any) -> Any: ...
    def check(self, query: Any) -> Any: ...
    def contributions(self, query: Query) -> dict[Any, Any]: ...
    def final_models(self, billboard: Any, personalize: Any) -> Any: ...
    def recalled(self, query: Any) -> Any: ...

class Total:
    size: int
    bound: float | str
    add: Callable[..., Any]
    whole: Callable[..., Any]
    is_noisy: bool
    def __init__(
        self,
        size: int,
        bound: float | str,
        add: Callable[..., Any],
        whole: Callable[..., Any] | None = None,
        is_noisy: bool = False,
    ) -> None: ...
    @classmethod
    def of(cls, combine: Any, name: Any, size: Any, bound: Any) -> Self: ...
    @classmethod
    def of_moment(cls, combine: Any, d: Any, name: Any = "moment") -> Self: ...
    def reach(self, public: Any) -> Any: ...

def clipped_sum(
    name: str,
    bound: Any,
    to: Any = None,
    shape: Any = None,
    less: float | NDArray[Any] | None = None,
) -> Any: ...

def run(
    curator: Any,
    tasks: Any,
    source: Any,
    journal: Any = None,
    noise_parties: Any = ...,
) -> Any: ...

__all__ = [
    "Billboard",
    "Plan",
    "Population",
    "PublicDraw",
    "Query",
    "QuerySpec",
    "TaskSide",
    "Total",
    "clipped_sum",
    "run",
]
