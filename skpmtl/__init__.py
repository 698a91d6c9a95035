"""Private multi-task learning for people who think in scikit-learn."""

from ._version import __version__
from .baselines import PerTask
from .billboards import load_billboard, save_billboard
from .dp_baselines import DPAggregation, DPAggregationClassifier
from .dp_relationship import DPRelationship, DPRelationshipClassifier
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
from .fedmtl import FedMTLClassifier, FedMTLRegressor
from .mean_regularized import PrivateMeanRegMTL, PrivateMeanRegMTLClassifier
from .meta import DPMetaInit, DPMetaInitClassifier
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
from .threads import get_num_threads, set_num_threads

__all__ = [
    "FedMTLClassifier",
    "FedMTLRegressor",
    "DPAggregation",
    "DPAggregationClassifier",
    "DPMetaInit",
    "DPMetaInitClassifier",
    "DPRelationship",
    "DPRelationshipClassifier",
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
    "get_num_threads",
    "load_billboard",
    "save_billboard",
    "set_num_threads",
    "stack_tasks",
    "wide_to_long",
]
