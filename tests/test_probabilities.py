"""Averaged probabilities: closed forms, calibration, labels, and what a task keeps of them."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from scipy.special import expit, softmax

from skpmtl import (
    MPMTLLowRankClassifier,
    PrivateMeanRegMTLClassifier,
    PrivateMTLClassifier,
    load_billboard,
    save_billboard,
)
from skpmtl.exchange.wire import pack
from skpmtl.shards import fit_shards
from skpmtl.task.mixture import averaged_scores
from tests.helpers.cases import CASES, EXACT, arguments, every, fit, fitted, long_data, seeded
from tests.helpers.sites import write_parts


def averages(case):
    """Whether probabilities are averaged: of wide sparse models, minima and steps they are not."""
    options = case.estimator.get_params()
    asked = options.get("uncertainty", False) == "auto"
    return asked and case.n_classes and case.estimator._no_posterior() is None


HAVE = [case for case in CASES + EXACT if averages(case)]
PLAIN = {
    (type(case.estimator), case.n_classes): case
    for case in HAVE[::-1]
    if case.form == "long" and case.private and not case.needs and not case.unit
}.values()


def tasks_around_a_mean(m, n, seed, spread=0.7, d=5):
    rng = np.random.default_rng(seed)
    W = np.linspace(-1.0, 1.0, d) + spread * rng.standard_normal((m, d))
    b, task = rng.standard_normal(m), np.repeat(np.arange(m), n)
    X = rng.standard_normal((m * n, d))
    score = np.einsum("ij,ij->i", X, W[task]) + b[task]
    return X, (rng.uniform(size=m * n) < expit(score)).astype(int), task


# --------------------------------------------------------------------------- calibration
@pytest.mark.parametrize("epsilon", [None, 3.0])
@pytest.mark.parametrize(
    "cls", [PrivateMTLClassifier, PrivateMeanRegMTLClassifier, MPMTLLowRankClassifier]
)
def test_probabilities_of_few_rows_are_calibrated(cls, epsilon):
    X, y, task = tasks_around_a_mean(200, 40, 0)
    here = np.arange(len(y)) % 40 < 12
    given = {"epsilon": epsilon, "tasks": range(200), "classes": [0, 1], "random_state": 0}
    est = cls(**given).fit(X[here], y[here], task=task[here])
    away, own = ~here, y[~here] == 1

    def loss(p):
        return -np.log(np.where(own, p, 1.0 - p)).mean()

    p = est.predict_proba(X[away], task=task[away])[:, 1]
    plain = expit(est.decision_function(X[away], task=task[away]))
    assert loss(p) < loss(plain) + 3e-3
    assert loss(p) < loss(np.full(away.sum(), y[here].mean()))
    score = np.log(p / (1.0 - p))

    def deviance(t):
        return np.logaddexp(0.0, -(2 * own - 1) * (t[0] + t[1] * score)).mean()

    # 5,600 rows: the standard error of the slope is about .03. Without a mean, as in low rank,
    # models are too short here, and averages less sure than they might be.
    assert 0.8 < minimize(deviance, [0.0, 1.0]).x[1] < 1.5


# ------------------------------------------------------------------- every estimator
@every(HAVE)
@pytest.mark.spread(9)
def test_labels_are_the_likeliest_classes(case):
    est, data = fitted(case)
    plain = fit(seeded(case).set_params(uncertainty=False), *arguments(case, data))
    if not getattr(est, "secure", False) and not case.sampled:
        assert_array_equal(plain.coef_, est.coef_)
        assert pack(plain.billboard_)[0] == pack(est.billboard_)[0]  # with the report
    assert "covariance_" not in vars(plain)
    X, *_, task = arguments(case, data)[0], *arguments(case, data)
    given = {} if case.form in ("wide", "mapping", "column") else {"task": task}
    p, label, score = (
        f(X, **given) for f in (est.predict_proba, est.predict, est.decision_function)
    )
    if case.n_classes == 2:
        second = p if case.form == "wide" else p[:, 1]
        assert_array_equal(second > 0.5, score > 0)
        assert_array_equal(label == est.classes_[1], second > 0.5)
    else:
        assert_array_equal(est.classes_[p.argmax(axis=-1)], label)
        assert_allclose(p.sum(axis=-1), 1.0)
    assert np.isfinite(est.covariance_).all()
    values = np.linalg.eigvalsh(est.covariance_)
    assert values.min() >= -1e-9 * values.max()


@every(PLAIN)
def test_a_task_keeps_its_posterior(case, tmp_path):
    data = long_data(case.n_classes)
    est = fit(seeded(case), *arguments(case, data))
    X, y, task = arguments(case, data)
    save_billboard(est, tmp_path / "board.npz")
    there = load_billboard(tmp_path / "board.npz")
    assert "covariance_" not in vars(there)
    there.personalize(X, y, task=task)
    copied = pickle.loads(pickle.dumps(est))
    parts = write_parts(tmp_path, np.asfortranarray(X), y, task, [[1, 4], [0, 2], [3, 5]])
    apart = fit_shards(seeded(case), parts)
    found = est.covariance_
    assert_array_equal(copied.covariance_, found)
    assert_allclose(apart.covariance_, found, rtol=1e-9, atol=1e-9)
    assert_allclose(there.covariance_, found, rtol=1e-5, atol=1e-6)
    assert_array_equal(est.export_task(2)["covariance"], found[2])
    mine = X[task == 2]
    p = est.predict_proba(mine, task=[2] * len(mine))
    model = est.export_task(2)
    Z = np.column_stack([mine, np.ones(len(mine))])
    t = np.concatenate(
        [model["coef"], np.reshape(model["intercept"], (*model["coef"].shape[:-1], 1))], axis=-1
    )
    v = np.einsum("ni,...ij,nj->n...", Z, model["covariance"], Z)
    found = averaged_scores(Z @ t.T, v, case.n_classes)
    found = softmax(found, axis=1) if case.n_classes > 2 else expit(found)
    assert_allclose(found, p if case.n_classes > 2 else p[:, 1], rtol=1e-9)


# ------------------------------------------------------------------------------ edges
def test_tasks_without_rows_know_how_far_levels_spread():
    X, y, task = tasks_around_a_mean(150, 10, 2)
    est = PrivateMTLClassifier(
        epsilon=None, unseen_task="mean", tasks=range(151), classes=[0, 1]
    ).fit(X, y, task=task)
    score = X[:20] @ est.mean_coef_ + est.mean_intercept_
    expected = expit(score / np.sqrt(1.0 + np.pi / 8.0 * est.level_spread_**2))
    assert_allclose(est.predict_proba(X[:20], task=[999] * 20)[:, 1], expected)
    assert_allclose(est.predict_proba(X[:20], task=[150] * 20)[:, 1], expected)
    assert est.export_task(150)["covariance"] is None


@pytest.mark.parametrize("n_classes", [2, 3])
def test_tasks_without_rows_have_the_shares_of_classes_that_were_released(n_classes):
    """Which are averages over levels: a rare class stays as rare as it is."""
    rng, m, n = np.random.default_rng(0), 800, 10
    level = np.append(0.0, np.full(n_classes - 1, -4.5)) + 2.0 * rng.normal(size=(m, n_classes))
    task = np.repeat(np.arange(m), n)
    y = (level[task] + rng.gumbel(size=(m * n, n_classes))).argmax(axis=1)
    X = rng.normal(size=(m * n, 2))
    est = PrivateMTLClassifier(
        epsilon=10.0, tasks=range(m + 1), classes=range(n_classes), random_state=0
    ).fit(X, y, task=task)
    p = est.predict_proba(X[:200], task=[m] * 200).mean(axis=0)
    assert_allclose(p, np.bincount(y) / len(y), rtol=0.15)


def test_covariances_above_a_size_are_not_kept_by_default(monkeypatch):
    rng = np.random.default_rng(0)
    X, task = rng.standard_normal((240, 5)), np.repeat(np.arange(120), 2)
    y = np.tile([0, 1], 120)
    given = {"tasks": range(120), "classes": [0, 1], "epsilon": 0.01}  # nothing is released
    for size, kept in ((120 * 6**2, True), (120 * 6**2 - 1, False)):
        monkeypatch.setattr("skpmtl._uncertainty._AUTO_COVARIANCE", size)
        est = PrivateMTLClassifier(**given).fit(X, y, task=task)
        assert ("covariance_" in vars(est)) == kept
    plain = expit(est.decision_function(X, task=task))
    assert_allclose(est.predict_proba(X, task=task)[:, 1], plain)
