"""Type hints of `skpmtl.model_selection`; written by ``python -m tests.stubs``."""

from skpmtl import LeaveTasksOut as LeaveTasksOut
from skpmtl import TaskStratifiedKFold as TaskStratifiedKFold

__all__ = [
    "LeaveTasksOut",
    "TaskStratifiedKFold",
]
