"""Type hints of `skpmtl.search`; written by ``python -m tests.stubs``."""

from skpmtl import PrivateSearch as PrivateSearch

__all__ = [
    "PrivateSearch",
]
