"""loss="huber": the objective of scikit-learn alone, weights of far rows where tasks share."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skpmtl import MPMTLLowRank, PrivateMeanRegMTL, PrivateMTL
from skpmtl.reproduction import LocalOnly
from skpmtl.solvers.robust import weighted
from skpmtl.tables.table import TaskTable

NOISE = {
    "gaussian": lambda rng, n: rng.normal(size=n),
    "cauchy": lambda rng, n: 0.5 * rng.standard_cauchy(n),
    "outlying": lambda rng, n: rng.normal(size=n) * np.where(rng.random(n) < 0.05, 30.0, 1.0),
}

BUDGETS = None, 2.0


def draw(noise, m=5, n=40, d=3, seed=0):
    """-> X, y, task, scores without noise"""
    rng = np.random.default_rng(seed)
    task, X = np.repeat(np.arange(m), n), rng.normal(size=(m * n, d))
    W = rng.normal(size=d) + 0.3 * rng.normal(size=(m, d))
    score = np.einsum("ij,ij->i", X, W[task]) + (5.0 + rng.normal(size=m))[task]
    return X, score + NOISE[noise](rng, m * n), task, score


def test_models_alone_follow_the_unit_of_the_target():
    X, y, task, _ = draw("cauchy")
    one, other = (
        LocalOnly(loss="huber", tasks=range(5)).fit(X, c * y - 3.0 * c, task=task)
        for c in (1.0, 1e4)
    )
    assert_allclose(1e4 * one.coef_, other.coef_, rtol=1e-6)


def test_weights_are_of_the_rows_of_a_task():
    X, y, task, score = draw("gaussian", n=60)
    y[7] += 100.0
    table = TaskTable(X, y, np.arange(0, 301, 60), np.arange(5))
    found = weighted(table, True)
    far = np.abs(y - score) > 3.0
    assert found.weights[7] < 1e-2 and found.loss == "squared"
    assert found.weights[~far].min() > 0.5 and found.weights.mean() > 0.97
    y = y.copy()
    y[60:] = -(y[60:] ** 3)
    others = weighted(TaskTable(X, y, np.arange(0, 301, 60), np.arange(5)), True)
    assert (others.weights[:60] == found.weights[:60]).all()
    scaled = weighted(TaskTable(X, 1e5 * y, np.arange(0, 301, 60), np.arange(5)), True)
    assert_allclose(scaled.weights, others.weights, atol=1e-6)


@pytest.mark.parametrize(
    "cls, noises",
    [(PrivateMTL, NOISE), (MPMTLLowRank, ["outlying"]), (PrivateMeanRegMTL, ["cauchy"])],
)
def test_outlying_rows_do_no_harm(cls, noises):
    for noise in noises:
        X, y, task, score = draw(noise, m=80, n=30)
        train = np.arange(len(y)) % 30 < 15
        errors = {}
        for loss in ("squared", "huber"):
            for epsilon in BUDGETS:
                est = cls(loss=loss, epsilon=epsilon, tasks=range(80), random_state=0)
                est.fit(X[train], y[train], task=task[train])
                error = est.predict(X[~train], task=task[~train]) - score[~train]
                errors[loss, epsilon] = np.mean(error**2)
        if noise == "gaussian":  # errors of predicted targets: the noise of a row is 1
            for epsilon in BUDGETS:
                squared, huber = (1.0 + errors[loss, epsilon] for loss in ("squared", "huber"))
                assert huber < 1.01 * squared
        else:
            assert max(errors["huber", e] for e in BUDGETS) < 1.0
            assert errors["huber", None] < 1.15 * errors["huber", 2.0]
            assert errors["squared", 2.0] > 1.5 * errors["huber", 2.0]


@pytest.mark.parametrize("y", [np.zeros(20), np.arange(20.0), np.repeat([1.0, 1e25], 10)], ids=str)
def test_targets_without_noise_or_far_out_have_finite_models(y):
    X = np.random.default_rng(0).normal(size=(20, 8))
    task = np.repeat(np.arange(4), [1, 2, 5, 12])
    for est in (LocalOnly(), PrivateMTL(epsilon=None), PrivateMTL(epsilon=50.0)):
        est.set_params(loss="huber", tasks=range(4)).fit(X, y, task=task)
        assert np.isfinite(est.coef_).all() and np.isfinite(est.intercept_).all()
