"""scikit-learn's own checks of every public estimator. Their data have no tasks."""

import pytest
import sklearn
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

import skpmtl
from skpmtl import (
    PPSGD,
    DPAggregation,
    DPAggregationClassifier,
    DPMetaInit,
    DPMetaInitClassifier,
    DPRelationship,
    DPRelationshipClassifier,
    FedMTLClassifier,
    FedMTLRegressor,
    LocalOnly,
    LocalOnlyClassifier,
    MPMTLGroupSparse,
    MPMTLGroupSparseClassifier,
    MPMTLLowRank,
    MPMTLLowRankClassifier,
    PerTask,
    PPSGDClassifier,
    PrivateFedAvg,
    PrivateFedAvgClassifier,
    PrivateFedProx,
    PrivateFedProxClassifier,
    PrivateMeanRegMTL,
    PrivateMeanRegMTLClassifier,
    PrivateSearch,
    TaskScaler,
)

BOUNDS = {"lam": 1e3, "max_row_norm": 10.0, "group": "direct"}
STEPS = {"learning_rate": 0.1, "batch_size": 16}
QUICK = [
    MPMTLLowRank(),
    MPMTLLowRank(epsilon=None),
    MPMTLLowRankClassifier(),
    MPMTLGroupSparse(),
    MPMTLGroupSparseClassifier(),
    MPMTLGroupSparseClassifier(epsilon=None),
    PrivateMeanRegMTL(),
    PrivateMeanRegMTLClassifier(),
    PrivateMeanRegMTLClassifier(epsilon=None),
    DPMetaInit(),
    DPMetaInit(task_feature=0, epsilon=None),
    DPMetaInitClassifier(),
    DPAggregation(max_target=10.0, **BOUNDS),
    DPAggregationClassifier(1e3, max_row_norm=10.0, max_task_rows=1000),
    DPRelationship(max_target=10.0, **BOUNDS),
    DPRelationshipClassifier(epsilon=None),
    FedMTLClassifier(n_rounds=5, **STEPS),
    FedMTLRegressor(n_rounds=5, **STEPS),
    PerTask(Ridge()),
    PerTask(LogisticRegression()),
    PrivateSearch(MPMTLLowRankClassifier(), {"n_releases": [1, 2]}, n_trials=1.5),
    TaskScaler(),
]
SLOW = [
    MPMTLLowRankClassifier(epsilon=None),
    MPMTLGroupSparse(epsilon=None),
    PrivateMeanRegMTL(epsilon=None),
    PrivateFedAvg(),
    PrivateFedAvgClassifier(),
    PrivateFedAvgClassifier(epsilon=None, n_rounds=10),
    PrivateFedProx(),
    PrivateFedProxClassifier(),
    PPSGD(),
    PPSGDClassifier(),
    LocalOnly(),
    LocalOnlyClassifier(),
    DPMetaInit(epsilon=None),
    DPMetaInitClassifier(epsilon=None),
    DPMetaInitClassifier(privacy="local", refine="sgd"),
    DPAggregation(epsilon=None),
    DPAggregationClassifier(epsilon=None),
    DPRelationship(epsilon=None),
    DPRelationshipClassifier(**BOUNDS),
    FedMTLRegressor((), n_rounds=10, solver="sgd", learning_rate=0.02),
    PerTask(DecisionTreeClassifier(random_state=0)),
    PrivateSearch(MPMTLLowRank(), {"n_releases": [1, 2]}, n_trials=1.5),
]
pytestmark = [
    pytest.mark.filterwarnings("ignore::skpmtl.SingleTaskWarning"),
    pytest.mark.filterwarnings("ignore::skpmtl.PrivacyLeakWarning"),  # a fixed seed, no lists
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    # of PrivateSearch, which hands on what it was given
    pytest.mark.filterwarnings("ignore:A column-vector y was passed"),
    pytest.mark.filterwarnings("ignore:The number of unique classes"),
]


@pytest.fixture(autouse=True)
def _array_api(monkeypatch):
    """scikit-learn skips its checks with array API dispatch unless this is set."""
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")


def failures(est):
    """Checks that an estimator with `task_feature` fails, and why."""
    if getattr(est, "task_feature", None) is None or isinstance(est, TaskScaler):
        return {}
    found = {
        "check_regressor_multioutput": "a 2-D y has one column per task, beside a task column"
    }
    if sklearn.__version__.startswith("1.6."):
        reason = "the check itself fails on integer X"
        found["check_positive_only_tag_during_fit"] = reason
    return found


@parametrize_with_checks(QUICK, expected_failed_checks=failures)
def test_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(SLOW)
def test_checks_of_more_settings(estimator, check):
    check(estimator)


def test_every_public_estimator_is_here():
    public = {getattr(skpmtl, name) for name in skpmtl.__all__}
    assert {type(est) for est in QUICK + SLOW} == {cls for cls in public if hasattr(cls, "fit")}
