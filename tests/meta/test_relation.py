"""relation= of private meta-learning: initialisations that follow from public covariates."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skpmtl import DPMetaInit
from skpmtl.exchange import Population
from skpmtl.meta.plan import MetaPlan
from skpmtl.privacy import audit
from skpmtl.reproduction import LocalOnly
from tests.helpers import data
from tests.helpers.data import covariates

M, N, D = 40, 10, 3


def related(seed=0, m=M, n=N, d=D, own=0.2, noise=0.3):
    """-> X (rows of length about 1), y, task, covariates (m, 2), models (m, d)"""
    how = {"own": own, "noise": noise, "binary": True, "level": 0.0}
    X, y, task, Z, _, W = data.related(np.random.default_rng(seed), m, n, d, **how)
    return X / np.sqrt(d), y, task, Z, np.sqrt(d) * W


def private(epsilon=1.0, m=M, **options):
    cls = options.pop("cls", DPMetaInit)
    if cls._classification:
        options["classes"] = [False, True]
    return cls(**{"epsilon": epsilon, "tasks": range(m), "random_state": 0, **options})


def test_without_privacy_rounds_are_those_of_the_formula():
    """Every task starts at z_k' B, and B moves by the mean of what tasks add, task by task."""
    X, y, task, Z, _ = related()
    rate, steps, rounds, meta = 0.4, 3, 4, 0.7
    options = {"inner_steps": steps, "inner_learning_rate": rate, "meta_learning_rate": meta}
    est = private(None, relation=covariates(Z), tasks_per_round="all", visits=rounds, **options)
    est.fit(X, y, task=task)
    F, A = np.column_stack([np.ones(M), Z]), np.column_stack([X, np.ones(len(X))])
    relation = est.billboard_.relation
    b, B = relation.weights(np.arange(M)), np.zeros((3, D + 1))
    # The move of B that makes the moves of all tasks, weighted by b, those of their starts.
    whole = np.linalg.inv(sum(np.outer(b[k], F[k]) for k in range(M)))
    for _ in range(rounds):
        moved = np.zeros((3, D + 1))
        for k in range(M):
            Ak, yk, w = A[task == k], y[task == k], F[k] @ B
            for _ in range(steps):
                w = w - rate / N * Ak.T @ (Ak @ w - yk)
            moved += np.outer(b[k], w - F[k] @ B)
        B += meta * whole @ moved
    assert_allclose(est.relation_coef_, B[:, :D], rtol=1e-7, atol=1e-9)
    assert_allclose(est.relation_intercept_, B[:, D], rtol=1e-7, atol=1e-9)
    assert not hasattr(est, "relation_noise_std_") and not hasattr(est, "init_coef_")


START = {"init": np.ones(D), "target_range": (-9.0, 5.0)}


@pytest.mark.parametrize("options", [{}, {"privacy": "local"}, START])
def test_a_constant_is_one_initialisation(options):
    X, y, task, _, _ = related(1)
    one = private(20.0, **options).fit(X, y, task=task)
    two = private(20.0, relation=np.zeros((M, 0)), **options).fit(X, y, task=task)
    kept = 1.0 - one.billboard_.noisy  # with covariates it is published as tasks take it
    start = options.get("init", 0.0)
    taken = start + kept * (one.init_coef_ - start)
    assert_allclose(two.relation_coef_[0], taken, rtol=1e-7, atol=1e-9)
    assert_allclose(two.coef_, one.coef_, rtol=1e-5, atol=1e-7)
    assert_allclose(two.intercept_, one.intercept_, rtol=1e-5, atol=1e-7)
    assert two.privacy_.noise_std == one.privacy_.noise_std


def test_no_guarantee_depends_on_the_covariates():
    """Tasks add their noise before anything is multiplied: sums of clipped gradients keep their
    sensitivity wherever a task starts, and of one of leverage 1, too."""
    X, y, task, Z, _ = related(2)
    heavy = np.column_stack([Z[:, 0], np.arange(M) == 7])
    near, far = y.copy(), y.copy()
    row = np.flatnonzero(task == 7)[0]
    near[row], far[row] = 50.0, -50.0
    est = private(1e4, relation=heavy, inner_steps=2, visits=2, tasks_per_round="all")
    with pytest.warns(UserWarning, match="follow from their own updates"):
        est.fit(X, near, task=task)
    result = audit(est, (X, near, task), (X, far, task))
    assert result.passed, result
    plan = MetaPlan(est, Population(np.arange(M), D, 0, np.full(M, N)))
    plain = private(1e4, inner_steps=2, visits=2)
    plain = MetaPlan(plain, Population(np.arange(M), D, 0, plan.sizes))
    assert plan.relation.leverage > 0.9
    assert_allclose(plan.noise_std, plain.noise_std)
    report = plan.report(est._source())
    assert report.public_inputs["relation"].startswith("public, 40 x 3, largest leverage 1")
    assert report.sensitivity[-1] == 2 * est.clip_norm
    assert report.sensitivity[:-1] == (2.0,) * len(plan.columns) != ()


def test_covariates_help_and_meaningless_ones_do_little_harm():
    m = 200
    X, y, task, Z, W = related(6, m, 10, 6, own=0.3, noise=1.0)
    noise = np.random.default_rng(7).normal(size=(m, 3))
    error = {}
    for name, est in {
        "alone": LocalOnly(tasks=range(m)),
        "one": private(40.0, m),
        "covariates": private(40.0, m, relation=covariates(Z)),
        "nothing": private(40.0, m, relation=noise),
    }.items():
        error[name] = np.sum((est.fit(X, y, task=task).coef_ - W) ** 2)
    assert error["covariates"] < 0.5 * min(error["one"], error["alone"])
    assert error["nothing"] < 1.1 * error["one"]


def test_what_the_budget_does_not_carry_is_left_out():
    X, y, task, Z, _ = related(8)
    Z = np.column_stack([Z, np.random.default_rng(9).normal(size=(M, 4))])
    ranks = [
        private(epsilon, relation=Z).fit(X, y, task=task).billboard_.relation.rank
        for epsilon in (1.0, 30.0, 300.0)
    ]
    assert ranks[0] == 1 < ranks[1] <= ranks[2] == 7
