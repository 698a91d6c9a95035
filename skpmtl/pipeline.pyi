"""Type hints of `skpmtl.pipeline`; written by ``python -m tests.stubs``."""

from skpmtl import export_task as export_task
from skpmtl import personalize as personalize

__all__ = [
    "export_task",
    "personalize",
]
