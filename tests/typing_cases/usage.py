"""What a user writes, for type checkers: ``make lint`` runs mypy over this, nothing runs it.

Every "type: ignore" marks a mistake that must be found; mypy warns of those that are not needed.
"""

from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray

import skpmtl
from skpmtl import PerTask
from skpmtl.datasets import make_clinics, make_low_rank_tasks
from skpmtl.exchange import Query, TaskSide
from skpmtl.inspection import PathDisplay
from skpmtl.metrics import average_auc, nmse, task_scorer, task_scores
from skpmtl.model_selection import LeaveTasksOut, TaskStratifiedKFold
from skpmtl.networks import TorchFeatures, TorchMeanRegClassifier
from skpmtl.pipeline import personalize
from skpmtl.preprocessing import TaskImputer, TaskScaler
from skpmtl.privacy import PrivacyReport, compose, gdp_epsilon, gdp_mu
from skpmtl.reproduction import LocalOnly
from skpmtl.search import PrivateSearch
from skpmtl.shards import fit_shards

X, y, task = make_low_rank_tasks(n_tasks=8, n_samples=10, n_features=3, random_state=0)
est = skpmtl.PrivateMTL(epsilon=1.0, tasks=list(range(8)), dtype=np.float32)
assert_type(est.fit(X, y, task=task), skpmtl.PrivateMTL)
assert_type(est.personalize(X, y, task), skpmtl.PrivateMTL)
assert_type(est.privacy_, PrivacyReport)
assert_type(est.privacy_.summary(), str)
assert_type(est.coef_, NDArray[Any])
assert_type(est.coef_names_, NDArray[Any])
est.coef_frame("relation")
est.export_task(3, as_sklearn=True).predict(X)
assert_type(skpmtl.DPMetaInitClassifier(classes=[0, 1]).fit(X, y).score(X, y), float)
skpmtl.PrivateMeanRegMTL(epsilon=None, target_range=(0, 1), clusters={"a": 1}, unseen_task="mean")
skpmtl.MPMTLLowRank(0.1, epsilon=None, task_feature="school").fit(X, y)
skpmtl.PrivateMTL(curator="servers", random_state=np.random.default_rng(0))

gdp_epsilon(gdp_mu(1.0, 1e-5), 1e-5)
assert_type(compose([est.privacy_, est.privacy_]), PrivacyReport)
assert_type(nmse(y, est.predict(X, task=task)), float)
assert_type(average_auc(y > 0, y, task), float)
task_scores(est, X, y, task=task, scoring=task_scorer("r2")).mean.round(3)
folds = TaskStratifiedKFold(3, task_feature=0)
for train, test in folds.split(np.column_stack([task, X])):
    assert_type(train, NDArray[Any])
LeaveTasksOut(5, task_feature="school")
scaler = TaskScaler(task_feature=0, tasks=["a", "b"], scale=[1.0, np.nan])
assert_type(scaler.fit(X), TaskScaler)
scaler.fit_transform(X)
TaskImputer(task_feature="clinic", default={"age": 60.0})
personalize(est, X, y, task=task)
path = skpmtl.mtl_path(X, y, task, alphas=[0.1, 0.01])
assert_type(path, skpmtl.model_protected.paths.MTLPath)
assert_type(PathDisplay.from_path(path), PathDisplay)
assert_type(PrivateSearch(est, {"structure": ["mean"]}, n_trials=1.5).fit(X, y), PrivateSearch)
assert_type(LocalOnly().fit(X, y), LocalOnly)
fit_shards(est, ["part-0", "part-1"])
TorchMeanRegClassifier(dict, hidden=5)
TorchFeatures(dict)
PerTask(est)
assert_type(skpmtl.MPMTLLowRankClassifier().epsilon, float | None)
assert_type(skpmtl.DPMetaInitClassifier().epsilon, float | None)
assert_type(skpmtl.ClusteredMTL().epsilon, float | None)
assert_type(skpmtl.FedMTLClassifier().n_servers, int)
assert_type(skpmtl.FedMTLRegressor().batch_size, int)
assert_type(TorchMeanRegClassifier().epsilon, float | None)


class Mean(TaskSide):
    """A method of one's own."""

    def contributions(self, query: Query) -> dict[str, NDArray[Any]]:
        return {"mean": np.zeros((3, 2))}


skpmtl.PrivateMTL(eps=1.0)  # type: ignore[call-arg]
skpmtl.PrivateMTL(structure="means")  # type: ignore[arg-type]
skpmtl.PrivateMeanRegMTL(epsilon="little")  # type: ignore[arg-type]
skpmtl.PrivateMeanRegMTL(adjacency="replace")  # type: ignore[arg-type]
skpmtl.PrivateMeanRegMTLClassifier(target_range=(0, 1))  # type: ignore[call-arg]
est.export_task()  # type: ignore[call-arg]
gdp_mu(1.0)  # type: ignore[call-arg]
nmse(y)  # type: ignore[call-arg]
TaskStratifiedKFold(folds=3)  # type: ignore[call-arg]
make_clinics(n_tasks="many")  # type: ignore[arg-type]
