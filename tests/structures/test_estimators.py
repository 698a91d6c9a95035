"""What tasks share is found, with and without a budget, and used as far as it helps."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skpmtl import PrivateMTL, load_billboard, save_billboard
from skpmtl.reproduction import LocalOnly
from tests.helpers.data import rows_of

KINDS = "low-rank", "sparse", "mean"


def tasks_of(kind, m=200, n=12, d=10, n_test=40, noise=1.0, seed=0):
    """-> X, y, task, and the same for test rows as a tuple"""
    rng = np.random.default_rng(seed)
    if kind == "low-rank":
        W = 2.0 * rng.normal(size=(m, 2)) @ rng.normal(size=(2, d))
    elif kind == "sparse":
        W = np.zeros((m, d))
        W[:, :2] = 2.0 * rng.normal(size=(m, 2))
    elif kind == "mean":
        W = 2.0 * rng.normal(size=d) + 0.3 * rng.normal(size=(m, d))
    else:
        W = rng.normal(size=(m, d))
    return *rows_of(rng, W, n, noise=noise), rows_of(rng, W, n_test, noise=noise)


def error(est, test):
    X, y, task = test
    return np.mean((y - est.predict(X, task=task)) ** 2)


def fitted(X, y, task, structure="auto", epsilon=None, **options):
    est = PrivateMTL(structure, epsilon=epsilon, tasks=np.unique(task), random_state=0, **options)
    return est.fit(X, y, task=task)


def alone(X, y, task):
    return LocalOnly(tasks=np.unique(task)).fit(X, y, task=task)


# ------------------------------------------------------------------------- what is found
@pytest.mark.parametrize("epsilon, most", [(None, 1.02), (3.0, 1.15)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_structure_that_tasks_share_is_found(kind, epsilon, most):
    """As well as by a fit that is told which one it is; the noise of the targets is 1."""
    X, y, task, test = tasks_of(kind, m=300 if epsilon else 120)
    found = error(fitted(X, y, task, epsilon=epsilon), test)
    assert found < most * error(fitted(X, y, task, kind, epsilon), test)
    assert found < 0.45 * error(alone(X, y, task), test)


@pytest.mark.parametrize("epsilon", [None, 1.0])
def test_unrelated_tasks_lose_little(epsilon):
    X, y, task, test = tasks_of("nothing", m=120, n=25)
    assert error(fitted(X, y, task, epsilon=epsilon), test) < 1.03 * error(alone(X, y, task), test)


def test_tasks_of_few_rows_stay_near_the_mean():
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


def test_a_few_odd_tasks_do_not_move_the_centre():
    """Without bounds, too: a fifth of the tasks has slopes a thousand times as long."""
    rng = np.random.default_rng(3)
    X, task = rng.normal(size=(360, 5)), np.repeat(np.arange(30), 12)
    W = 1.0 + 0.2 * rng.normal(size=(30, 5))
    W[:6] = [1e4, -300, 20, 20, -20]
    y = np.einsum("ij,ij->i", X, W[task]) + 0.1 * rng.normal(size=360)
    assert_allclose(fitted(X, y, task).mean_coef_, 1.0, atol=0.3)


@pytest.mark.parametrize("epsilon", [None, 5.0])
def test_slopes_are_shared_in_units_of_every_task(epsilon, tmp_path):
    """Where spreads of targets have nothing in common, also for new tasks from a file."""
    rng, m = np.random.default_rng(0), 200
    X, task, unit = (
        rng.normal(size=(8 * m, 6)),
        np.repeat(range(m), 8),
        10.0 ** rng.uniform(-4, 4, m),
    )
    y = X.sum(axis=1) + 0.5 * rng.normal(size=len(X))
    est = fitted(X, unit[task] * y, task, epsilon=epsilon)
    assert est.billboard_.unit is None and not est.billboard_.has_place
    found = np.abs(est.coef_ / unit[:, None] - 1.0).mean()
    assert found < 0.6 * np.abs(alone(X, y, task).coef_ - 1.0).mean()
    save_billboard(est, tmp_path / "board")
    there = load_billboard(tmp_path / "board").personalize(X, unit[task] * y, task=task)
    assert_array_equal(there.coef_, est.coef_)


def test_no_budget_is_not_worse_than_a_large_one():
    """Of three rows a task, which the level and three slopes have to share."""
    rng, m, n = np.random.default_rng(1), 300, 3
    task = np.repeat(np.arange(m), n)
    slopes, levels = rng.normal(size=3) + 0.3 * rng.normal(size=(m, 3)), rng.normal(size=m)
    X, new, of = rng.normal(size=(m * n, 3)), rng.normal(size=(4 * m * n, 3)), np.tile(task, 4)
    y = np.sum(X * slopes[task], axis=1) + levels[task] + rng.normal(size=m * n)
    truth = np.sum(new * slopes[of], axis=1) + levels[of]
    exact, private = (error(fitted(X, y, task, epsilon=e), (new, truth, of)) for e in (None, 1e4))
    assert exact < 1.03 * private


# ---------------------------------------------------------------------------------- levels
def leveled(n, m=150):
    """Levels of spread .5 about 4."""
    rng = np.random.default_rng(2)
    W, levels = [1.0, -0.5, 0.25] + 0.2 * rng.normal(size=(m, 3)), rng.normal(4.0, 0.5, m)
    return *rows_of(rng, W, n, noise=0.5, level=levels), levels


def test_pooled_levels_help_tasks_of_few_rows():
    X, y, task, levels = leveled(n=4, m=400)
    pooled, free = (fitted(X, y, task, epsilon=8.0, levels=of) for of in ("auto", "free"))
    assert np.std(pooled.intercept_ - levels) < 0.93 * np.std(free.intercept_ - levels)
    assert pooled.level_ == pytest.approx(4.0, abs=0.2)
    assert 0.2 < pooled.level_spread_ < 1.0
    assert not hasattr(free, "level_")


def test_a_single_row_is_between_its_target_and_what_is_shared():
    """The centre, or the level alone, as for a task of other slopes."""
    X, y, task, _ = leveled(n=8)
    keep, first = (task > 2) | (np.arange(len(y)) % 8 == 0), slice(0, 24, 8)
    est = fitted(X[keep], y[keep], task[keep], epsilon=8.0)
    score = est.predict(X[first], task=task[first])
    ends = y[first], X[first] @ est.mean_coef_ + est.mean_intercept_, np.full(3, est.level_)
    assert (np.min(ends, axis=0) < score).all() and (score < np.max(ends, axis=0)).all()


# ------------------------------------------------------------------------ tasks without rows
def test_new_tasks_get_the_mean_wherever_the_target_lies():
    X, y, task, (X_test, y_test, task_test) = tasks_of("mean", m=150, d=4)
    errors = []
    for shift in (0.0, 100.0, 1e4):
        est = fitted(X, y + shift, task, epsilon=5.0, unseen_task="mean")
        predicted = est.predict(X_test, task=task_test + 1000) - shift
        errors.append(np.mean((predicted - y_test) ** 2))
    assert errors[0] < 0.5 * np.var(y_test)  # .44 of it are models and noise of single tasks
    assert_allclose(errors[1:], errors[0], rtol=0.03)  # windows begin elsewhere
