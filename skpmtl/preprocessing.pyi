"""Type hints of `skpmtl.preprocessing`; written by ``python -m tests.stubs``."""

from skpmtl import TaskImputer as TaskImputer
from skpmtl import TaskScaler as TaskScaler

__all__ = [
    "TaskImputer",
    "TaskScaler",
]
