"""Every public module in the hands of a user, for type checkers: see ``usage.py``."""

from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray

import skpmtl
from skpmtl.baselines import PerTask
from skpmtl.datasets import load_school, make_clinics, make_low_rank_tasks
from skpmtl.exchange import Query, TaskSide
from skpmtl.exchange.wire import pack, unpack
from skpmtl.federated import Study, load_models
from skpmtl.fedmtl import FedMTLClassifier, make_fedmtl_clients
from skpmtl.inspection import ConvergenceDisplay, PathDisplay
from skpmtl.metrics import average_auc, nmse, task_scorer, task_scores
from skpmtl.model_selection import LeaveTasksOut, TaskStratifiedKFold
from skpmtl.networks import TorchFeatures, TorchMeanRegClassifier
from skpmtl.pipeline import personalize
from skpmtl.preprocessing import TaskImputer, TaskScaler
from skpmtl.privacy import PrivacyReport, audit, compose, gdp_epsilon, gdp_mu, noise_source
from skpmtl.reproduction import LocalOnly
from skpmtl.search import PrivateSearch
from skpmtl.shards import fit_shards

frame = load_school(as_frame=True).frame
X, y, task = make_low_rank_tasks(n_tasks=8, n_samples=10, n_features=3, random_state=0)
est = skpmtl.PrivateMTL(epsilon=2.0, tasks=list(range(8)), random_state=0).fit(X, y, task=task)
assert_type(est.coef_names_, NDArray[Any])
est.coef_frame("relation")
est.export_task(3, as_sklearn=True).predict(X)
gdp_epsilon(gdp_mu(1.0, 1e-5), 1e-5)
assert_type(compose([est.privacy_, est.privacy_]), PrivacyReport)
assert_type(audit(est, (X, y, task), (X, y, task)).passed, bool)
assert_type(nmse(y, est.predict(X, task=task)), float)
scores = task_scores(est, X, y, task=task, scoring=task_scorer("r2"))
scores.mean.round(3)
average_auc(y > 0, y, task)
folds = TaskStratifiedKFold(3, task_feature=0)
for train, test in folds.split(np.column_stack([task, X])):
    assert_type(train, NDArray[Any])
LeaveTasksOut(5, task_feature="school")
scaler = TaskScaler(task_feature=0, tasks=["a", "b"], scale=[1.0, np.nan])
assert_type(scaler.fit(X), TaskScaler)
scaler.fit_transform(X)
TaskImputer(task_feature="clinic", default={"age": 60.0})
personalize(est, X, y, task=task)
assert_type(ConvergenceDisplay.from_estimator(est), ConvergenceDisplay)
ConvergenceDisplay.from_estimator(est).figure_.savefig("rounds.png")
path = skpmtl.mtl_path(X, y, task, alphas=[0.1, 0.01])
assert_type(path, skpmtl.MTLPath)
assert_type(path.coefs, NDArray[Any])
PathDisplay.from_path(path)
clients = make_fedmtl_clients(n_clients=3)
assert_type(FedMTLClassifier((5,)).fit(X, y), FedMTLClassifier)
assert_type(PrivateSearch(est, {"structure": ["mean"]}, n_trials=1.5).fit(X, y), PrivateSearch)
assert_type(LocalOnly(lam=0.1).fit(X, y), LocalOnly)
fit_shards(est, ["part-0", "part-1"])
TorchMeanRegClassifier(dict, hidden=5)
TorchFeatures(dict)
Study.load("study.toml")
load_models("models")
PerTask(est)
noise_source(0)
make_clinics(random_state=0)
unpack(pack(est.billboard_)[0], {})


class Mean(TaskSide):
    """A method of one's own."""

    def contributions(self, query: Query) -> dict[str, NDArray[Any]]:
        return {"mean": np.zeros((3, 2))}


gdp_mu(1.0)  # type: ignore[call-arg]
TaskStratifiedKFold(folds=3)  # type: ignore[call-arg]
nmse(y)  # type: ignore[call-arg]
est.coef_frame("classes")  # type: ignore[arg-type]
make_clinics(n_tasks="many")  # type: ignore[arg-type]
