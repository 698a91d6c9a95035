"""A public start of model-protected learning: priors and penalties are about differences to it."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import logsumexp
from sklearn.linear_model import LogisticRegression

from skpmtl import (
    MPMTLGroupSparse,
    MPMTLGroupSparseClassifier,
    MPMTLLowRank,
    MPMTLLowRankClassifier,
    load_billboard,
    save_billboard,
)
from skpmtl.metrics import task_scores
from tests.helpers.exact_fits import apart, squared_curvature

M, N, D = 24, 12, 4
TASKS = range(M)
START = {"coef": np.array([1.0, -2.0, 0.5, 3.0]), "intercept": 2.0}
pytestmark = pytest.mark.filterwarnings("ignore:The noise of this fit is reproducible")


def rows(seed=0, n=N, of=0):
    """Models of rank 1 about the start; `of` draws other rows of the same tasks."""
    rng = np.random.default_rng(seed)
    W = START["coef"] + np.outer(rng.normal(size=M), rng.normal(size=D))
    rng = np.random.default_rng([seed, of])
    task = np.repeat(np.arange(M), n)
    X = rng.normal(size=(M * n, D))
    y = 2.0 + np.einsum("ij,ij->i", X, W[task]) + 0.5 * rng.normal(size=M * n)
    return X, y, task


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("cls", [MPMTLLowRank, MPMTLGroupSparse])
@pytest.mark.parametrize(
    "options",
    [
        {"alpha": 0.1, "tol": 1e-11},
        {"alpha": 0.1, "ridge": 0.1, "outliers": "tasks", "tol": 1e-11},
        {"epsilon": 3.0, "algorithm": "proximal", "unseen_task": "mean"},
    ],
    ids=str,
)
def test_squared_loss_is_that_of_targets_less_the_scores_of_the_start(cls, form, options):
    X, y, task = rows()
    given = {"epsilon": None, "tasks": TASKS, "random_state": 0, **options}
    less = y - X @ START["coef"] - START["intercept"]
    one = cls(init=START, **given).fit(form(X), y, task=task)
    other = cls(**given).fit(form(X), less, task=task)
    room = 1e-9
    if one.epsilon is None:
        room = apart(squared_curvature(X, task, one.ridge), one, other)
        assert room < 1e-4
        assert one.objective_ == pytest.approx(other.objective_, rel=2e-11)
    assert_allclose(one.coef_, other.coef_ + START["coef"], atol=room)
    means = max(np.linalg.norm(X[task == k].mean(axis=0)) for k in TASKS)
    assert_allclose(one.intercept_, other.intercept_ + 2.0, atol=room * max(means, 1.0))
    assert_allclose(one.mean_coef_, other.mean_coef_ + START["coef"], atol=room)
    again = one.personalize(form(X[:N]), y[:N], task=[M] * N)
    assert_allclose(again.coef_[-1], one.coef_[0], atol=1e-6)


@pytest.mark.parametrize("options", [{}, {"unseen_task": "mean"}, {"relation": True}], ids=str)
def test_releases_are_those_of_differences(options):
    X, y, task = rows()
    if "relation" in options:
        options = {"relation": {k: {"size": float(k % 3)} for k in TASKS}}
    given = {"epsilon": 30.0, "tasks": TASKS, "random_state": 0, **options}
    one = MPMTLLowRank(init=START, **given).fit(X, y, task=task)
    less = y - X @ START["coef"] - START["intercept"]
    other = MPMTLLowRank(**given).fit(X, less, task=task)
    # The last one is of models that were also compared with 0.
    pairs = list(zip(one.billboard_.releases, other.billboard_.releases, strict=True))
    for mine, theirs in pairs[: len(pairs) - ("unseen_task" in options)]:
        assert_allclose(mine, theirs, rtol=1e-9, atol=1e-9)
    if "unseen_task" in options:
        clipped = np.abs(pairs[-1][0] - pairs[-1][1])
        assert clipped.max() < 1e-3
        known = one.billboard_.without_rows(np.array([M]))
        assert_array_equal(known[0][0], one.mean_coef_)


def objective(est, X, label, task, W, b, penalty):
    """Mean log-losses plus alpha times a norm of W - start; W (m, C, d), C = 1 for two classes."""
    value = 0.0
    for k in TASKS:
        s = X[task == k] @ W[k].T + b[k]
        s = np.column_stack([np.zeros(len(s)), s]) if len(W[k]) == 1 else s
        value += (logsumexp(s, axis=1) - s[np.arange(len(s)), label[task == k]]).mean()
    return value + est.alpha * penalty(W)


@pytest.mark.parametrize("n_classes, weighted", [(2, False), (3, True)])
def test_penalties_of_classes_are_about_the_start(n_classes, weighted):
    """Against a general minimiser of the written objective, with a smooth penalty: the ridge."""
    X, y, task = rows()
    label = np.digitize(y, np.quantile(y, np.arange(1, n_classes) / n_classes))
    start = LogisticRegression(C=0.1).fit(X, label)
    weight = np.random.default_rng(0).uniform(0.2, 1.0, len(y)) if weighted else np.ones(len(y))
    est = MPMTLLowRankClassifier(
        alpha=0.0, ridge=0.3, epsilon=None, init=start, tasks=TASKS, tol=1e-10,
        classes=range(n_classes), class_weight=None,
    )  # fmt: skip
    est.fit(X, label, task=task, sample_weight=weight if weighted else None)
    C = len(start.coef_)

    def loss(v, A, t, w):
        V = v.reshape(C, D + 1)
        s = A @ V[:, :D].T + V[:, D]
        s = np.column_stack([np.zeros(len(s)), s]) if C == 1 else s
        mean = w @ (logsumexp(s, axis=1) - s[np.arange(len(s)), t]) / w.sum()
        return mean + 0.15 * ((V[:, :D] - start.coef_) ** 2).sum()

    for k in (0, 5, 17):
        A, t, w = X[task == k], label[task == k], weight[task == k]
        if len(set(t)) < n_classes:
            continue
        best = minimize(loss, np.zeros(C * (D + 1)), (A, t, w), options={"gtol": 1e-9}).x
        W = best.reshape(C, D + 1)[:, :D]
        assert_allclose(est.coef_[k].reshape(W.shape), W, atol=1e-4)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("cls", [MPMTLLowRankClassifier, MPMTLGroupSparseClassifier])
def test_exact_fits_of_classes_are_certified(cls, n_classes):
    """A closed gap, the objective as it is written, and the start itself under a heavy penalty."""
    X, y, task = rows(n=40)  # so many that every task has all classes
    y = y - X @ START["coef"]
    label = np.digitize(y, np.quantile(y, np.arange(1, n_classes) / n_classes))
    start = LogisticRegression(C=0.1).fit(X, label)
    given = {"init": start, "tasks": TASKS, "classes": range(n_classes), "epsilon": None}
    est = cls(alpha=0.05, tol=1e-6, **given).fit(X, label, task=task)
    assert 0.0 <= est.dual_gap_ <= 1e-6 * est.objective_
    W = est.coef_.reshape(M, -1, D)
    b = est.intercept_.reshape(M, -1)

    def penalty(W):
        V = (W - start.coef_).reshape(-1, D)
        if est._diagonal:
            return np.linalg.norm(V, axis=0).sum()
        return np.linalg.norm(V, ord="nuc")

    args = X, label, task
    value = objective(est, *args, W, b, penalty)
    assert est.objective_ == pytest.approx(value, rel=1e-5)
    rng = np.random.default_rng(0)
    for _ in range(20):
        V = W + 1e-2 * rng.normal(size=W.shape)
        assert objective(est, *args, V, b, penalty) > value * (1.0 - 1e-6)
    heavy = cls(alpha=1e4, **given).fit(X, label, task=task)
    assert_allclose(heavy.coef_, np.broadcast_to(start.coef_, W.shape).reshape(est.coef_.shape))


@pytest.mark.parametrize("cls", [MPMTLLowRank, MPMTLGroupSparse, MPMTLLowRankClassifier])
def test_a_good_start_helps_and_a_bad_one_is_left(cls):
    (X, y, task), (A, z, of) = rows(1), rows(1, 200, of=1)
    given = {"epsilon": 1.0, "tasks": TASKS, "random_state": 0}
    if cls is MPMTLLowRankClassifier:
        y, z, given["classes"] = y > 2.0, z > 2.0, [False, True]
    starts = None, START, {"coef": -START["coef"], "intercept": 2.0}

    def error(init):
        est = cls(init=init, **given).fit(X, y, task=task)
        return 1.0 - task_scores(est, A, z, task=of)["mean"]

    none, good, bad = map(error, starts)
    assert good < 0.97 * none and bad < 1.35 * none


def test_what_falls_back_falls_back_to_the_start(tmp_path):
    X, y, task = rows()
    there = task < M - 2
    given = {"tasks": TASKS, "random_state": 0, "init": START}
    est = MPMTLLowRank(**given).fit(X[there], y[there], task=task[there])
    assert_array_equal(est.coef_[-2:], [START["coef"]] * 2)
    assert_array_equal(est.intercept_[-2:], [2.0, 2.0])
    inputs = est.privacy_.public_inputs
    assert inputs["init"] == "public model of 4 coefficients and intercepts"
    assert "init=" in est.privacy_.assumptions[-1]
    save_billboard(est, tmp_path / "board.npz")
    read = load_billboard(tmp_path / "board.npz")
    read.personalize(X[:N], y[:N], task=task[:N])
    assert_allclose(read.coef_[0], est.coef_[0], rtol=1e-12)
    again = MPMTLLowRank(init=None, tasks=TASKS, random_state=0).fit(X, y, task=task)
    assert "init" not in again.privacy_.public_inputs


def test_bad_starts_are_told():
    X, y, task = rows()
    est = MPMTLLowRank(tasks=TASKS, random_state=0).fit(X, y, task=task)
    with pytest.raises(ValueError, match="has coefficients of the shape"):
        est.set_params(init=np.ones(D + 1)).fit(X, y, task=task)
    assert not hasattr(est, "coef_")
