"""Type hints of `skpmtl.baselines`; written by ``python -m tests.stubs``."""

from skpmtl import PerTask as PerTask

__all__ = [
    "PerTask",
]
