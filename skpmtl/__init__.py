"""Private multi-task learning for people who think in scikit-learn."""

from . import networks as networks  # its billboards can be read from files
from ._runtime.names import name_methods as _name_methods
from ._runtime.threads import get_num_threads, set_num_threads
from ._version import __version__
from .baselines import PerTask
from .clustered import ClusteredMTL, ClusteredMTLClassifier
from .exchange.files import load_billboard, save_billboard
from .fedmtl import FedMTLClassifier, FedMTLRegressor
from .mean_regularized.estimators import PrivateMeanRegMTL, PrivateMeanRegMTLClassifier
from .meta.estimators import DPMetaInit, DPMetaInitClassifier
from .model_protected.estimators import (
    MPMTLGroupSparse,
    MPMTLGroupSparseClassifier,
    MPMTLLowRank,
    MPMTLLowRankClassifier,
)
from .model_protected.paths import (
    MPMTLGroupSparseClassifierCV,
    MPMTLGroupSparseCV,
    MPMTLLowRankClassifierCV,
    MPMTLLowRankCV,
    MTLPath,
    mtl_path,
)
from .model_selection import LeaveTasksOut, TaskStratifiedKFold
from .output_perturbation.estimators import (
    DPAggregation,
    DPAggregationClassifier,
    DPRelationship,
    DPRelationshipClassifier,
)
from .pipeline import export_task, personalize
from .planning import BudgetPlan, plan
from .preprocessing import TaskImputer, TaskScaler
from .privacy import PrivacyLeakWarning
from .reproduction import (
    PPSGD,
    LocalOnly,
    LocalOnlyClassifier,
    PPSGDClassifier,
    PrivateFedAvg,
    PrivateFedAvgClassifier,
    PrivateFedProx,
    PrivateFedProxClassifier,
    PublishedMeanRegMTL,
    PublishedMeanRegMTLClassifier,
    PublishedMPMTLGroupSparse,
    PublishedMPMTLGroupSparseClassifier,
    PublishedMPMTLLowRank,
    PublishedMPMTLLowRankClassifier,
)
from .search.private import PrivateSearch
from .structures.estimators import PrivateMTL, PrivateMTLClassifier
from .tables.convert import stack_tasks, wide_to_long
from .tables.table import SingleTaskWarning

__all__ = [
    "BudgetPlan",
    "ClusteredMTL",
    "ClusteredMTLClassifier",
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
    "MPMTLGroupSparseCV",
    "MPMTLGroupSparseClassifier",
    "MPMTLGroupSparseClassifierCV",
    "MPMTLLowRank",
    "MPMTLLowRankCV",
    "MPMTLLowRankClassifier",
    "MPMTLLowRankClassifierCV",
    "MTLPath",
    "PPSGD",
    "PPSGDClassifier",
    "PerTask",
    "PrivacyLeakWarning",
    "PrivateFedAvg",
    "PrivateFedAvgClassifier",
    "PrivateFedProx",
    "PrivateFedProxClassifier",
    "PrivateMTL",
    "PrivateMTLClassifier",
    "PrivateMeanRegMTL",
    "PrivateMeanRegMTLClassifier",
    "PrivateSearch",
    "PublishedMPMTLGroupSparse",
    "PublishedMPMTLGroupSparseClassifier",
    "PublishedMPMTLLowRank",
    "PublishedMPMTLLowRankClassifier",
    "PublishedMeanRegMTL",
    "PublishedMeanRegMTLClassifier",
    "SingleTaskWarning",
    "TaskImputer",
    "TaskScaler",
    "TaskStratifiedKFold",
    "__version__",
    "export_task",
    "get_num_threads",
    "load_billboard",
    "mtl_path",
    "personalize",
    "plan",
    "save_billboard",
    "set_num_threads",
    "stack_tasks",
    "wide_to_long",
]

_name_methods(*(globals()[name] for name in __all__ if hasattr(globals()[name], "fit")))
