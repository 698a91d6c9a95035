"""Private multi-task learning for people who think in scikit-learn."""

from ._version import __version__
from .baselines import PerTask
from .model_protected import (
    MPMTLGroupSparse,
    MPMTLGroupSparseClassifier,
    MPMTLLowRank,
    MPMTLLowRankClassifier,
)
from .model_selection import LeaveTasksOut, TaskStratifiedKFold
from .preprocessing import TaskScaler
from .privacy import PrivacyLeakWarning
from .private_search import PrivateSearch
from .tasks import SingleTaskWarning, stack_tasks, wide_to_long

__all__ = [
    "LeaveTasksOut",
    "MPMTLGroupSparse",
    "MPMTLGroupSparseClassifier",
    "MPMTLLowRank",
    "MPMTLLowRankClassifier",
    "PerTask",
    "PrivacyLeakWarning",
    "PrivateSearch",
    "SingleTaskWarning",
    "TaskScaler",
    "TaskStratifiedKFold",
    "__version__",
    "stack_tasks",
    "wide_to_long",
]
