"""Type hints of `skpmtl.shards`; written by ``python -m tests.stubs``."""

from collections.abc import Mapping
from typing import Any, Literal
from skpmtl.federated import load_models as load_models

def fit_shards(
    est: Any,
    parts: Any,
    *,
    target: str | None = None,
    weight: str | None = None,
    backend: Literal["process", "ray"] = "process",
    journal: Any = None,
    models: Any = None,
    options: Mapping[Any, Any] | None = None,
) -> Any: ...

__all__ = [
    "fit_shards",
    "load_models",
]
