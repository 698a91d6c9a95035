"""Type hints of `skpmtl.fedmtl`; written by ``python -m tests.stubs``."""

from typing import Any, Literal
from numpy.random import RandomState
from numpy.typing import ArrayLike
from skpmtl import FedMTLClassifier as FedMTLClassifier
from skpmtl import FedMTLRegressor as FedMTLRegressor

def fedmtl_aggregate(
    shared: ArrayLike,
    heads: Any,
    task_ids: Any,
    sizes: ArrayLike,
    thresholds: float | ArrayLike,
    *,
    aggregation: str = "similarity",
) -> tuple[Any, ...]: ...

def make_fedmtl_clients(
    n_clients: Any = 60,
    n_samples: Any = 117,
    n_features: Any = 12,
    *,
    n_tasks: int = 8,
    n_classes: int = 5,
    tasks_per_client: int | Literal["pairs"] | Literal["any"] = 2,
    n_domains: int = 1,
    correlation: Any = 0.0,
    n_hidden: int = 6,
    noise: float = 0.057,
    shift: float = 0.57,
    n_test: int = 0,
    random_state: int | RandomState | None = None,
) -> tuple[Any, ...]: ...

__all__ = [
    "FedMTLClassifier",
    "FedMTLRegressor",
    "fedmtl_aggregate",
    "make_fedmtl_clients",
]
