"""Type hints of `skpmtl.callbacks`; written by ``python -m tests.stubs``."""

from collections.abc import Callable
from typing import Any
from typing_extensions import Self

class RoundCallbacks:
    def set_callbacks(self, *callbacks: Any) -> Self: ...

def followed(
    estimator: Any,
    log: Callable[..., Any] | None,
    message: str,
    n_rounds: int | None = None,
) -> Any: ...

def following(estimator: Any) -> Any: ...

__all__ = [
    "RoundCallbacks",
    "followed",
    "following",
]
