"""Private multi-task learning for people who think in scikit-learn."""

from . import networks as networks  # its billboards can be read from files
from . import planning, preprocessing, privacy
from . import reproduction as reproduction  # and these
from . import survival as survival
from ._runtime.names import name_methods as _name_methods
from ._runtime.threads import get_num_threads, set_num_threads
from ._version import __version__
from .baselines import PerTask
from .clustered import ClusteredMTL, ClusteredMTLClassifier
from .exchange.files import load_billboard, save_billboard
from .fedmtl import FedMTLClassifier, FedMTLRegressor
from .mean_regularized.estimators import PrivateMeanRegMTL, PrivateMeanRegMTLClassifier
from .meta.estimators import DPMetaInit, DPMetaInitClassifier
from .mixed_models.results import mixed
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
    mtl_path,
)
from .model_selection import LeaveTasksOut, TaskStratifiedKFold, task_train_test_split
from .pipeline import export_task, personalize
from .planning import plan
from .preprocessing import TaskImputer, TaskScaler
from .privacy import PrivacyLeakWarning
from .search.private import PrivateSearch
from .structures.estimators import PrivateMTL, PrivateMTLClassifier
from .tables.convert import expand_trials, stack_tasks, wide_to_long

__all__ = [
    "ClusteredMTL",
    "ClusteredMTLClassifier",
    "FedMTLClassifier",
    "FedMTLRegressor",
    "DPMetaInit",
    "DPMetaInitClassifier",
    "LeaveTasksOut",
    "MPMTLGroupSparse",
    "MPMTLGroupSparseCV",
    "MPMTLGroupSparseClassifier",
    "MPMTLGroupSparseClassifierCV",
    "MPMTLLowRank",
    "MPMTLLowRankCV",
    "MPMTLLowRankClassifier",
    "MPMTLLowRankClassifierCV",
    "PerTask",
    "PrivacyLeakWarning",
    "PrivateMTL",
    "PrivateMTLClassifier",
    "PrivateMeanRegMTL",
    "PrivateMeanRegMTLClassifier",
    "PrivateSearch",
    "TaskImputer",
    "TaskScaler",
    "TaskStratifiedKFold",
    "__version__",
    "expand_trials",
    "export_task",
    "get_num_threads",
    "load_billboard",
    "mixed",
    "mtl_path",
    "personalize",
    "plan",
    "save_billboard",
    "set_num_threads",
    "stack_tasks",
    "task_train_test_split",
    "wide_to_long",
]

_MODULES = (
    "datasets",
    "exchange",
    "inspection",
    "metrics",
    "model_selection",
    "networks",
    "pipeline",
    "planning",
    "preprocessing",
    "privacy",
    "reproduction",
    "search",
    "survival",
)


def __dir__():
    return sorted([*__all__, *_MODULES])


def __getattr__(name):
    for module in (planning, preprocessing, privacy, reproduction):
        if name in module.__all__:
            raise AttributeError(f"{name} is in {module.__name__}.")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_name_methods(
    *(globals()[name] for name in __all__ if hasattr(globals()[name], "fit")),
    *(getattr(reproduction, name) for name in reproduction.__all__),
)
