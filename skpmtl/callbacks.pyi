"""Type hints of `skpmtl.callbacks`; written by ``python -m tests.stubs``."""

from typing import Any
from typing_extensions import Self

class RoundCallbacks:
    def set_callbacks(self, *callbacks: Any) -> Self: ...

def following(estimator: Any) -> Any: ...

__all__ = [
    "RoundCallbacks",
    "following",
]
