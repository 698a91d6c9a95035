"""A public start of meta-learning: rounds begin there, and it is what tasks fall back to."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp

from skpmtl import DPMetaInit, DPMetaInitClassifier
from skpmtl.metrics import task_scores

M, N, D = 30, 6, 4
TASKS = range(M)
START = {"coef": np.array([1.0, -0.8, 0.4, 0.6]), "intercept": 0.4}
pytestmark = pytest.mark.filterwarnings("ignore:The noise of this fit is reproducible")


def rows(seed=0, n=N, of=0):
    """Models around the start; `of` draws other rows of the same tasks."""
    rng = np.random.default_rng(seed)
    W = START["coef"] + 0.1 * rng.normal(size=(M, D))
    rng = np.random.default_rng([seed, of])
    task = np.repeat(np.arange(M), n)
    X = rng.normal(size=(M * n, D)) / np.sqrt(D)
    y = 0.4 + np.einsum("ij,ij->i", X, W[task]) + 0.3 * rng.normal(size=M * n)
    return X, y, task


@pytest.mark.parametrize("privacy", ["task-global", "local", None])
@pytest.mark.parametrize(
    "ranges", [{}, {"target_range": (-3.0, 9.0), "feature_range": (-1.0, 2.0)}], ids=str
)
def test_the_way_is_that_of_targets_less_the_scores_of_the_start(privacy, ranges):
    """The same noise on the same gradients: all that the rounds add is the same."""
    X, y, task = rows()
    given = {
        "privacy": privacy, "epsilon": 3.0, "tasks": TASKS, "random_state": 0, "inner_steps": 4,
        "inner_learning_rate": 0.2, "refine": "sgd", **ranges,
    }  # fmt: skip
    one = DPMetaInit(init=START, **given).fit(X, y, task=task)
    # Less the scores, but for the middle of the range, which the other fit subtracts again.
    middle = 3.0 if ranges else 0.0
    other = DPMetaInit(**given).fit(X, y - X @ START["coef"] - 0.4 + middle, task=task)
    assert_allclose(one.init_coef_, other.init_coef_ + START["coef"], atol=1e-9)
    assert one.init_intercept_ == pytest.approx(other.init_intercept_ + 0.4 - middle)
    assert_allclose(one.coef_, other.coef_ + START["coef"], atol=1e-9)


def test_rounds_of_classes_begin_at_the_start():
    """One round of one step without noise: the start less the mean gradient there."""
    X, y, task = rows()
    label = np.digitize(y, [0.0, 0.7])
    W, b = np.random.default_rng(0).normal(size=(3, D)), np.array([0.2, -0.1, 0.0])
    est = DPMetaInitClassifier(
        epsilon=None, init={"coef": W, "intercept": b}, inner_steps=1, inner_learning_rate=0.5,
        tasks_per_round=M, visits=1, tasks=TASKS, classes=range(3), random_state=0,
    ).fit(X, label, task=task)  # fmt: skip
    Z = np.column_stack([X, np.ones(len(X))])
    s = X @ W.T + b
    P = np.exp(s - logsumexp(s, axis=1)[:, None]) - np.eye(3)[label]
    gradient = P.T @ Z / len(Z)  # tasks have as many rows
    assert_allclose(est.init_coef_, W - 0.5 * gradient[:, :D], atol=1e-12)
    assert_allclose(est.init_intercept_, b - 0.5 * gradient[:, D], atol=1e-12)


@pytest.mark.parametrize("cls", [DPMetaInit, DPMetaInitClassifier])
@pytest.mark.parametrize("epsilon", [0.1, 3.0])
def test_a_good_start_helps_and_a_bad_one_is_left(cls, epsilon):
    (X, y, task), (A, z, of) = rows(1, 20), rows(1, 200, of=1)
    given = {"epsilon": epsilon, "tasks": TASKS, "random_state": 0}
    if cls is DPMetaInitClassifier:
        y, z, given["classes"] = y > 0.4, z > 0.4, [False, True]

    def error(init):
        est = cls(init=init, **given).fit(X, y, task=task)
        return 1.0 - task_scores(est, A, z, task=of)["mean"]

    none, good, bad = map(error, (None, START, {"coef": -3.0 * START["coef"]}))
    assert good < (0.9 if epsilon < 1.0 else 1.0) * none and bad < 1.3 * none


def test_what_falls_back_falls_back_to_the_start():
    X, y, task = rows()
    there = task < M - 2
    given = {"tasks": TASKS, "random_state": 0, "init": START}
    lost = DPMetaInit(epsilon=1e-3, **given).fit(X[there], y[there], task=task[there])
    assert lost.billboard_.lost
    assert_array_equal(lost.coef_[-2:], [START["coef"]] * 2)
    assert_array_equal(lost.intercept_[-2:], [0.4, 0.4])
    inputs = lost.privacy_.public_inputs
    assert inputs["init"] == "public model of 4 coefficients and intercepts"
    assert "init=" in lost.privacy_.assumptions[-1]
    # What a single row says of it is little.
    one = lost.personalize(X[:1], y[:1], task=[M])
    assert np.linalg.norm(one.coef_[-1] - START["coef"]) < 0.2 * np.linalg.norm(START["coef"])
    ranged = DPMetaInit(init=START["coef"], target_range=(-1.0, 5.0), tasks=TASKS, random_state=0)
    ranged.fit(X, y, task=task)
    assert ranged.billboard_.public_init.intercept[0] == 2.0  # the middle of the range


def test_bad_starts_are_told():
    X, y, task = rows()
    est = DPMetaInit(tasks=TASKS, random_state=0).fit(X, y, task=task)
    with pytest.raises(ValueError, match="has coefficients of the shape"):
        est.set_params(init=np.ones(D + 1)).fit(X, y, task=task)
    assert not hasattr(est, "init_coef_")
