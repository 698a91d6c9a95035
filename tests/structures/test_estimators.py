"""Every task averages over structures by its own evidence, and finds what there is."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skpmtl import PrivateMTL, PrivateMTLClassifier
from skpmtl.engine.billboard import WEIGHTS
from skpmtl.engine.plan import possible

pytestmark = pytest.mark.filterwarnings("ignore:The noise of this fit is reproducible")

FOUND = {
    "low-rank": {"low-rank", "mean and low-rank"},
    "sparse": {"sparse", "low-rank", "mean and low-rank"},
    "mean": {"mean", "mean and low-rank"},
}


def error(est, test):
    X, y, task = test
    return np.mean((y - est.predict(X, task=task)) ** 2)


def alone(X, y, task, **options):
    """Every task by itself: a fit on a budget that releases nothing."""
    est = PrivateMTL(epsilon=1e-6, tasks=np.unique(task).tolist(), **options).fit(X, y, task=task)
    assert not est.privacy_.releases
    return est


# ------------------------------------------------------------------------------ evidence


# -------------------------------------------------------------------------- what is found
@pytest.mark.parametrize("kind", list(FOUND))
def test_structures_are_found_without_noise(kind, tasks_of):
    X, y, task, test = tasks_of(kind, m=120)
    est = PrivateMTL(epsilon=None, fit_intercept=False).fit(X, y, task=task)
    assert max(est.shares_, key=est.shares_.get) in FOUND[kind]
    assert sum(est.shares_.values()) == pytest.approx(1.0)
    assert "NO differential privacy" in est.privacy_.text(None) and est.billboard_.releases == []
    lone = error(alone(X, y, task, fit_intercept=False), test)
    assert error(est, test) < 0.75 * lone  # the noise of the targets is 1 of it


def test_unrelated_tasks_lose_little(tasks_of):
    X, y, task, test = tasks_of("nothing", m=120, n=25)
    est = PrivateMTL(epsilon=1.0, tasks=range(120), random_state=0).fit(X, y, task=task)
    assert error(est, test) < 1.05 * error(alone(X, y, task), test)


@pytest.mark.parametrize("kind", list(FOUND))
def test_structures_are_found_under_privacy(kind, tasks_of):
    X, y, task, test = tasks_of(kind, m=300)
    est = PrivateMTL(epsilon=3.0, tasks=range(300), random_state=0).fit(X, y, task=task)
    assert error(est, test) < 0.85 * error(alone(X, y, task), test)
    assert set(est.shares_) <= set(possible(("low-rank", "sparse", "mean"), levels=True))
    assert sum(s.weight for s in est.billboard_.structures) == pytest.approx(1.0)
    assert "released shares" in est.privacy_.text(None)


def test_tasks_of_few_rows_stay_near_the_mean(tasks_of):
    """Single tasks tell little of scales and structures; together they know."""
    X, y, task, test = tasks_of("mean", m=600, n=4, d=4)
    est = PrivateMTL(epsilon=3.0, tasks=range(600), random_state=0).fit(X, y, task=task)
    X_test, y_test, task_test = test
    centre = est.billboard_.centre
    residual = y - X @ centre
    b = np.bincount(task, residual) / np.bincount(task)
    of_centre = np.mean((y_test - X_test @ centre - b[task_test]) ** 2)
    assert error(est, test) < 1.1 * of_centre < 0.7 * error(alone(X, y, task), test)


def test_a_mean_is_found_where_noise_hides_all_directions():
    rng, (m, n, d) = np.random.default_rng(0), (300, 6, 30)
    W = rng.normal(size=d) + 0.3 * rng.normal(size=(m, d))
    X = rng.normal(size=(m, n + 20, d))
    y = np.einsum("kid,kd->ki", X, W) + rng.normal(size=(m, n + 20))
    rows, rest = np.repeat(np.arange(m), n), np.repeat(np.arange(m), 20)
    fit = X[:, :n].reshape(-1, d), y[:, :n].ravel(), rows
    test = X[:, n:].reshape(-1, d), y[:, n:].ravel(), rest
    est = PrivateMTL(epsilon=1.0, tasks=range(m), random_state=0)
    est.fit(fit[0], fit[1], task=rows)
    words = [entry["statistic"] for entry in est.privacy_.releases]
    assert est.billboard_.about_centre and "vote 2" in str(est.privacy_.releases)
    assert sum(word.startswith("mean of clipped up") for word in words) >= 10
    assert error(est, test) < 0.85 * error(alone(*fit), test)


def test_a_task_without_rows_has_the_centre(tasks_of):
    X, y, task, _ = tasks_of("mean", m=100, n=8)
    for structure, options in (("auto", {}), ("low-rank", {}), ("mean", {"fit_intercept": False})):
        est = PrivateMTL(structure, epsilon=8.0, tasks=range(101), random_state=0, **options)
        est.fit(X, y, task=task)
        assert_allclose(est.coef_[100], est.billboard_.centre)
        level = est.billboard_.level
        assert (level is None) == ("fit_intercept" in options)
        assert est.intercept_[100] == (0.0 if level is None else level.intercept)
        assert est.billboard_.centre.any()
    est = PrivateMTL("low-rank", levels="free", epsilon=8.0, tasks=range(101), random_state=0)
    est.fit(X, y, task=task)
    assert not est.billboard_.centre.any() and est.intercept_[100] == 0.0


def test_classes_around_a_mean(tasks_of):
    """Rounds of the mean with logistic loss."""
    X, y, task, (X_test, y_test, task_test) = tasks_of("mean", m=150, n=10, d=6)
    settings = {"classes": [False, True], "random_state": 0}
    est = PrivateMTLClassifier(epsilon=8.0, tasks=range(150), **settings)
    est.fit(X, y > 0, task=task)
    lone = PrivateMTLClassifier(epsilon=1e-6, tasks=range(150), **settings)
    lone.fit(X, y > 0, task=task)
    assert any(
        entry["statistic"].startswith("mean of clipped up") for entry in est.privacy_.releases
    )
    ours, theirs = (e.score(X_test, y_test > 0, task=task_test) for e in (est, lone))
    assert ours > theirs + 0.04


def test_several_classes_around_a_mean():
    """Rounds of the mean with softmax loss, of models that sum to zero over the classes."""
    rng = np.random.default_rng(0)
    m, n, d, C = 100, 30, 5, 3
    W = 1.5 * rng.normal(size=(C, d)) + 0.3 * rng.normal(size=(m, C, d))
    X = rng.normal(size=(m, n, d))
    score = np.einsum("kid,kcd->kic", X, W) + rng.gumbel(size=(m, n, C))
    X, y, task = X.reshape(-1, d), score.argmax(axis=2).ravel(), np.repeat(np.arange(m), n)
    fit, known = np.arange(len(y)) % n < 12, {"classes": range(C), "tasks": range(m)}
    errors = []
    for epsilon in (12.0, 1e-6):
        est = PrivateMTLClassifier(epsilon=epsilon, unseen_task="mean", random_state=0, **known)
        est.fit(X[fit], y[fit], task=task[fit])
        p = est.predict_proba(X[~fit], task=task[~fit])
        errors.append(-np.log(p[np.arange(len(p)), y[~fit]]).mean())
        if epsilon > 1.0:
            assert est.billboard_.about_centre
            assert_allclose(est.billboard_.centre.sum(axis=0), 0.0, atol=1e-10)
            new = est.predict(X[~fit], task=task[~fit] + m)  # by the mean model
            assert (new == y[~fit]).mean() > 0.6
    assert errors[0] < 0.85 * errors[1]


# ----------------------------------------------------------------------------- parameters


def test_a_known_structure_is_the_only_one(tasks_of):
    X, y, task, _ = tasks_of("mean", m=60, n=6, d=4)
    three = ["low-rank", "sparse", "mean"]
    pairs = [[a, b] for a in three for b in three if a != b]
    for wanted in (*three, *pairs, three[::-1]):
        for levels in ("auto", "free"):
            est = PrivateMTL(wanted, levels=levels, epsilon=None).fit(X, y, task=task)
            names = possible([wanted] if isinstance(wanted, str) else wanted, levels == "auto")
            if est.billboard_.level is not None:  # in which half of the mean has no place
                names = [name for name in names if name != "half of the mean"]
            assert set(est.shares_) == set(names) <= set(WEIGHTS)
            assert (est.billboard_.level is None) == (levels == "free")
            assert set(names) & set(three) == set(np.atleast_1d(wanted))


def test_new_tasks_get_the_mean_wherever_the_target_lies(tasks_of):
    X, y, task, (X_test, y_test, task_test) = tasks_of("mean", m=150, d=4)
    errors, predicted = [], []
    for shift in (0.0, 100.0, 1e4):
        est = PrivateMTL(
            epsilon=5.0,
            unseen_task="mean",
            target_range=(shift - 10.0, shift + 10.0),
            tasks=range(150),
            random_state=0,
        ).fit(X, y + shift, task=task)
        predicted.append(est.predict(X_test, task=task_test + 1000) - shift)
        errors.append(np.mean((predicted[-1] - y_test) ** 2))
    assert errors[0] < 0.6 * np.var(y_test)  # less than .44 of it nobody gets without rows
    assert_allclose(predicted[1], predicted[0], atol=1e-4)
    assert_allclose(predicted[2], predicted[0], atol=1e-2)
