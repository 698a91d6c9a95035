"""Private multi-task learning for people who think in scikit-learn."""

from ._version import __version__
from .baselines import PerTask
from .federated_baselines import (
    PPSGD,
    LocalOnly,
    LocalOnlyClassifier,
    PPSGDClassifier,
    PrivateFedAvg,
    PrivateFedAvgClassifier,
    PrivateFedProx,
    PrivateFedProxClassifier,
)
from .mean_regularized import PrivateMeanRegMTL, PrivateMeanRegMTLClassifier
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
    "LocalOnly",
    "LocalOnlyClassifier",
    "MPMTLGroupSparse",
    "MPMTLGroupSparseClassifier",
    "MPMTLLowRank",
    "MPMTLLowRankClassifier",
    "PPSGD",
    "PPSGDClassifier",
    "PerTask",
    "PrivacyLeakWarning",
    "PrivateFedAvg",
    "PrivateFedAvgClassifier",
    "PrivateFedProx",
    "PrivateFedProxClassifier",
    "PrivateMeanRegMTL",
    "PrivateMeanRegMTLClassifier",
    "PrivateSearch",
    "SingleTaskWarning",
    "TaskScaler",
    "TaskStratifiedKFold",
    "__version__",
    "stack_tasks",
    "wide_to_long",
]
