"""What tasks share is found, with and without a budget, and used as far as it helps."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skpmtl import LocalOnly, PrivateMTL, PrivateMTLClassifier

pytestmark = pytest.mark.filterwarnings("ignore:The noise of this fit is reproducible")
KINDS = "low-rank", "sparse", "mean"


def error(est, test):
    X, y, task = test
    return np.mean((y - est.predict(X, task=task)) ** 2)


def log_loss(est, X, y, task):
    return -np.log(est.predict_proba(X, task=task)[np.arange(len(y)), y.astype(int)]).mean()


def fitted(X, y, task, structure="auto", epsilon=None, **options):
    est = PrivateMTL(structure, epsilon=epsilon, tasks=np.unique(task), random_state=0, **options)
    return est.fit(X, y, task=task)


def alone(X, y, task):
    return LocalOnly(tasks=np.unique(task)).fit(X, y, task=task)


# ------------------------------------------------------------------------- what is found
@pytest.mark.parametrize("epsilon, most", [(None, 1.02), (3.0, 1.15)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_structure_that_tasks_share_is_found(kind, epsilon, most, tasks_of):
    """As well as by a fit that is told which one it is; the noise of the targets is 1."""
    X, y, task, test = tasks_of(kind, m=300 if epsilon else 120)
    found = error(fitted(X, y, task, epsilon=epsilon), test)
    assert found < most * error(fitted(X, y, task, kind, epsilon), test)
    assert found < 0.45 * error(alone(X, y, task), test)


@pytest.mark.parametrize("epsilon", [None, 1.0])
def test_unrelated_tasks_lose_little(epsilon, tasks_of):
    X, y, task, test = tasks_of("nothing", m=120, n=25)
    assert error(fitted(X, y, task, epsilon=epsilon), test) < 1.03 * error(alone(X, y, task), test)


def test_tasks_of_few_rows_stay_near_the_mean(tasks_of):
    X, y, task, test = tasks_of("mean", m=600, n=4, d=4)
    est = fitted(X, y, task, epsilon=3.0)
    X_test, y_test, task_test = test
    level = np.bincount(task, y - X @ est.mean_coef_) / np.bincount(task)
    of_mean = np.mean((y_test - X_test @ est.mean_coef_ - level[task_test]) ** 2)
    assert error(est, test) < of_mean < 0.7 * error(alone(X, y, task), test)


def test_a_mean_is_found_where_noise_hides_all_directions():
    rng, (m, n, d) = np.random.default_rng(0), (300, 6, 30)
    W = rng.normal(size=d) + 0.3 * rng.normal(size=(m, d))
    X = rng.normal(size=(m, n + 20, d))
    y = np.einsum("kid,kd->ki", X, W) + rng.normal(size=(m, n + 20))
    rows, rest = np.repeat(np.arange(m), n), np.repeat(np.arange(m), 20)
    fit = X[:, :n].reshape(-1, d), y[:, :n].ravel(), rows
    test = X[:, n:].reshape(-1, d), y[:, n:].ravel(), rest
    est = fitted(*fit, epsilon=1.0)
    assert {entry["name"] for entry in est.privacy_.releases} >= {"step", "vote centre"}
    assert error(est, test) < 0.7 * error(alone(*fit), test)


# ------------------------------------------------------------------------ tasks without rows
@pytest.mark.parametrize("structure", ["auto", "low-rank"])
def test_a_task_without_rows_has_the_centre(structure, tasks_of):
    X, y, task, _ = tasks_of("mean", m=150, n=8, d=4)
    est = PrivateMTL(structure, epsilon=8.0, tasks=range(151), random_state=0)
    est.fit(X, y + 3.0, task=task)
    assert_array_equal(est.coef_[150], est.mean_coef_)
    assert est.intercept_[150] == est.mean_intercept_ == pytest.approx(3.0, abs=0.5)
    assert est.mean_coef_.any() == (structure == "auto")


def test_new_tasks_get_the_mean_wherever_the_target_lies(tasks_of):
    X, y, task, (X_test, y_test, task_test) = tasks_of("mean", m=150, d=4)
    errors = []
    for shift in (0.0, 100.0, 1e4):
        est = fitted(X, y + shift, task, epsilon=5.0, unseen_task="mean")
        predicted = est.predict(X_test, task=task_test + 1000) - shift
        errors.append(np.mean((predicted - y_test) ** 2))
    assert errors[0] < 0.5 * np.var(y_test)  # .44 of it are models and noise of single tasks
    assert_allclose(errors[1:], errors[0], rtol=0.03)  # windows begin elsewhere


# -------------------------------------------------------------------------------- classes
def test_two_classes_around_a_mean(tasks_of):
    X, y, task, (X_test, y_test, task_test) = tasks_of("mean", m=150, n=10, d=6)
    known = {"tasks": range(150), "classes": [False, True], "random_state": 0}
    scores = []
    for epsilon in (None, 8.0, 1e-6):
        est = PrivateMTLClassifier(epsilon=epsilon, **known).fit(X, y > 0, task=task)
        scores.append(log_loss(est, X_test, y_test > 0, task_test))
    assert scores[0] < 1.01 * scores[1] < 0.8 * scores[2]


def test_several_classes_around_a_mean():
    rng = np.random.default_rng(0)
    m, n, d, C = 100, 30, 5, 3
    W = 1.5 * rng.normal(size=(C, d)) + 0.3 * rng.normal(size=(m, C, d))
    X = rng.normal(size=(m, n, d))
    score = np.einsum("kid,kcd->kic", X, W) + rng.gumbel(size=(m, n, C))
    X, y, task = X.reshape(-1, d), score.argmax(axis=2).ravel(), np.repeat(np.arange(m), n)
    few, known = np.arange(len(y)) % n < 12, {"classes": range(C), "tasks": range(m)}
    est = PrivateMTLClassifier(epsilon=12.0, unseen_task="mean", random_state=0, **known)
    est.fit(X[few], y[few], task=task[few])
    assert_allclose(est.mean_coef_.sum(axis=0), 0.0, atol=1e-10)
    test = X[~few], y[~few], task[~few]
    new = est.predict(X[~few], task=task[~few] + m)  # by the mean model
    assert (new == y[~few]).mean() > 0.7
    lone = PrivateMTLClassifier(epsilon=1e-6, **known).fit(X[few], y[few], task=task[few])
    assert not lone.privacy_.releases
    assert log_loss(est, *test) < 0.75 * log_loss(lone, *test)
