"""A public start of the front door: what is looked for are structures of differences to it."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skpmtl import PrivateMTL, PrivateMTLClassifier
from skpmtl.metrics import task_scores

M, N, D = 40, 10, 4
TASKS = range(M)
START = {"coef": np.array([1.0, -2.0, 0.5, 3.0]), "intercept": 1.0}
pytestmark = pytest.mark.filterwarnings("ignore:The noise of this fit is reproducible")


def rows(n=N, of=0):
    """Models of rank 1 about the start; `of` draws other rows of the same tasks."""
    rng = np.random.default_rng(0)
    W = START["coef"] + np.outer(rng.normal(size=M), rng.normal(size=D))
    rng = np.random.default_rng([1, of])
    task = np.repeat(np.arange(M), n)
    X = rng.normal(size=(M * n, D))
    y = 1.0 + np.einsum("ij,ij->i", X, W[task]) + 0.5 * rng.normal(size=M * n)
    return X, y, task


def test_releases_are_those_of_differences():
    X, y, task = rows()
    given = {"epsilon": 30.0, "tasks": TASKS, "random_state": 0, "unseen_task": "mean"}
    one = PrivateMTL(init=START, target_range=(-19.0, 21.0), **given).fit(X, y, task=task)
    less = y - X @ START["coef"] - 1.0
    other = PrivateMTL(target_range=(-20.0, 20.0), **given).fit(X, less, task=task)
    assert len(one.billboard_.releases) == len(other.billboard_.releases) > 3
    for mine, theirs in zip(one.billboard_.releases, other.billboard_.releases, strict=True):
        assert_allclose(mine, theirs, rtol=1e-9, atol=1e-9)
    assert_allclose(one.mean_coef_, other.mean_coef_ + START["coef"], atol=1e-9)
    assert one.mean_intercept_ == pytest.approx(other.mean_intercept_ + 1.0)
    inputs = one.privacy_.public_inputs
    assert inputs["init"] == "public model of 4 coefficients and intercepts"
    assert "init=" in one.privacy_.assumptions[-1]


def test_what_falls_back_falls_back_to_the_start():
    X, y, task = rows()
    there = task < M - 2
    est = PrivateMTL(epsilon=0.01, init=START, tasks=TASKS)
    est.fit(X[there], y[there], task=task[there])
    assert est.privacy_.epsilon == 0.0 and est.privacy_.public_inputs["init"]
    assert_array_equal(est.coef_[-2:], [START["coef"]] * 2)
    assert_array_equal(est.intercept_[-2:], [1.0, 1.0])


@pytest.mark.parametrize("n_classes", [0, 2, 3])
def test_a_good_start_helps_and_a_bad_one_is_left(n_classes):
    (X, y, task), (A, z, of) = rows(), rows(200, of=1)
    given = {"epsilon": 3.0, "tasks": TASKS, "random_state": 0}
    if n_classes:
        ends = np.quantile(z, np.arange(1, n_classes) / n_classes)
        y, z = np.digitize(y, ends), np.digitize(z, ends)
        given["classes"] = range(n_classes)

    def error(times):
        coef = None if times is None else times * START["coef"]
        if times is not None and n_classes == 3:
            coef = np.stack([-coef, 0.0 * coef, coef])
        cls = PrivateMTLClassifier if n_classes else PrivateMTL
        est = cls(init=coef, **given).fit(X, y, task=task)
        return 1.0 - task_scores(est, A, z, task=of)["mean"]

    none, good, bad = map(error, (None, 1.0, -1.0))
    assert good < 0.97 * none and bad < 1.2 * none
