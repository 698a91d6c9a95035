"""Type hints of `skpmtl.exchange.wire`; written by ``python -m tests.stubs``."""

from collections.abc import Mapping
from typing import Any

def pack(value: Any) -> tuple[Any, ...]: ...

def unpack(text: str, arrays: Mapping[Any, Any]) -> Any: ...

__all__ = [
    "pack",
    "unpack",
]
