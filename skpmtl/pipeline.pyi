"""Type hints of `skpmtl.pipeline`; written by ``python -m tests.stubs``."""

from skpmtl import personalize as personalize

__all__ = [
    "personalize",
]
