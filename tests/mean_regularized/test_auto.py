"""Defaults of the mean family: a task's own average, bounds that follow the lengths of models."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

from skpmtl import LocalOnly, PrivateMeanRegMTL
from skpmtl.local.average import (
    HELD,
    STRENGTHS,
    Candidates,
    averaged_class_models,
    averaged_models,
    determinants,
    held_evidence,
)
from skpmtl.tables.table import TaskTable

pytestmark = pytest.mark.filterwarnings("ignore:The noise of this fit is reproducible")


def tasks(m, sizes=(5, 15), d=8, shared=1.0, spread=0.4, noise=1.0, seed=0):
    """Rows of m tasks around one model, with intercepts. -> X, y, task"""
    rng = np.random.default_rng(seed)
    task = np.repeat(np.arange(m), rng.integers(*sizes, m))
    W = shared * rng.normal(size=d) + spread * rng.normal(size=(m, d))
    X = rng.normal(size=(len(task), d))
    y = np.einsum("ij,ij->i", X, W[task]) + rng.normal(size=m)[task]
    return X, y + noise * rng.normal(size=len(task)), task


# ------------------------------------------------------------------------------- the average
def plain_average(A, target, centre, pulls, reaches, prior, intercept):
    """Average of one task from matrices n x n: the marginal likelihood of a Student t."""
    n = len(A)
    Z, v = A, target
    if intercept:
        Z, v = A - A.mean(axis=0), target - target.mean()
    weights, models = [], []
    for pull, reach, log_prior in zip(pulls, reaches, prior, strict=True):
        rho, mean = n * pull, reach * centre
        w = np.linalg.solve(Z.T @ Z + rho * np.eye(len(centre)), Z.T @ v + rho * mean)
        S = np.eye(n) + Z @ Z.T / rho
        r = v - Z @ mean
        Q = r @ np.linalg.solve(S, r)
        weights.append(
            log_prior - 0.5 * (n - intercept) * np.log(Q) - 0.5 * np.linalg.slogdet(S)[1]
        )
        models.append(w)
    p = np.exp(np.array(weights) - max(weights))
    w = p @ np.array(models) / p.sum()
    return w, (target - A @ w).mean() if intercept else 0.0


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("d", [4, 13])
def test_average_of_a_task_is_that_of_dense_formulas(intercept, d):
    """Of 2 to 30 rows, for centres that are good, bad and in units of the task."""
    sizes, rng = np.array([2, 4, 13, 14, 30, 7]), np.random.default_rng(0)
    X = 2.0 + rng.normal(size=(sizes.sum(), d))
    y = X @ rng.normal(size=d) + rng.normal(size=len(X))
    table = TaskTable(X, y, np.concatenate([[0], np.cumsum(sizes)]), np.arange(6))
    own, lone = rng.uniform(0.1, 2.0, (2, 6))
    doubt, unit = rng.uniform(0.3, 2.0, 6), np.array([1.0, 0.5, 3.0, 1.0, 1.0, 2.0])
    centres, which = rng.normal(size=(2, d)), np.array([0, 1, 0, 1, 0, 1])
    found = Candidates(own, doubt, ((1.0, 0.6), (3.0, 0.4)), 0.2, lone)
    assert_allclose(found.strength[:, 1 : 1 + len(STRENGTHS)], own[:, None] * STRENGTHS + 0.2)
    assert_allclose(np.exp(found.prior).sum(axis=1), doubt + 1.0)
    _, W, b = averaged_models(table, intercept, 1 / sizes, found, centres, which, unit)
    for k in range(6):
        rows = table.task(k)
        w, level = plain_average(
            *rows,
            unit[k] * centres[which[k]],
            found.strength[k],
            found.reach[k],
            found.prior[k],
            intercept,
        )
        assert_allclose(W[k], w, rtol=1e-9, atol=1e-9)
        assert_allclose(b[k], level, rtol=1e-8, atol=1e-8)


def plain_class_average(A, y, C, centre, pulls, reaches, prior, intercept):
    """Average of one task by a general minimiser and dense matrices; (C, d + 1). -> and evidence"""
    (n, d), several = A.shape, C > 1
    Z, even = A - intercept * A.mean(axis=0), 0.125
    weights, models = [], []
    for rho, reach, log_prior in zip(n * pulls, reaches, prior, strict=True):

        def objective(x, rho=rho, reach=reach):
            D, level = x[: C * d].reshape(C, d), intercept * x[C * d :]
            s = Z @ (reach * centre + D).T + level
            if not several:  # the other class has the score 0
                s, level = np.column_stack([0 * s, s]), np.append(0.0, level)
            loss = (logsumexp(s, axis=1) - s[np.arange(n), y]).sum()
            held = HELD * intercept * (len(level) * logsumexp(level) - level.sum())
            slopes = softmax(s, axis=1)
            slopes[np.arange(n), y] -= 1.0
            up = slopes.sum(axis=0) + HELD * (len(level) * softmax(level) - 1.0)
            grads = (slopes[:, -C:].T @ Z + rho * D).ravel(), intercept * up[-C:]
            return loss + held + 0.5 * rho * (D**2).sum(), np.concatenate(grads)

        best = minimize(objective, np.zeros(C * d + C), jac=True, options={"gtol": 1e-7})
        W, level = reach * centre + best.x[: C * d].reshape(C, d), intercept * best.x[C * d :]
        if several:  # one eigenvalue is 0: all scores may rise
            p = softmax(Z @ W.T + level, axis=1)
            even = np.mean([np.linalg.eigvalsh(np.diag(q) - np.outer(q, q))[1:] for q in p])
        logdet = np.linalg.slogdet(np.eye(n) + even * Z @ Z.T / rho)[1]
        weights.append(log_prior - best.fun - 0.5 * determinants(C) * logdet)
        models.append(np.column_stack([W, level - intercept * W @ A.mean(axis=0)]))
    p = np.exp(np.array(weights) - max(weights))
    return np.einsum("s,scj->cj", p / p.sum(), np.array(models)), logsumexp(weights)


@pytest.mark.parametrize(
    "C, d, intercept",
    [
        (1, 4, True),
        (3, 3, False),
        (6, 2, True),
        pytest.param(1, 9, False, marks=pytest.mark.slow),
        pytest.param(3, 5, True, marks=pytest.mark.slow),
    ],
)
def test_average_of_classes_is_that_of_a_general_minimiser(C, d, intercept):
    """Of 1 to 14 rows, some of one class; log-losses."""
    sizes, rng = np.array([1, 3, 14, 7]), np.random.default_rng(0)
    X, m = 2.0 + rng.normal(size=(sizes.sum(), d)), len(sizes)
    y = rng.integers(max(C, 2), size=len(X))
    table = TaskTable(
        X,
        (2.0 * y - 1.0 if C == 1 else y.astype(float)),
        np.concatenate([[0], np.cumsum(sizes)]),
        np.arange(m),
    )
    own, doubt, unit = rng.uniform(0.1, 2.0, m) / sizes, rng.uniform(0.3, 2.0, m), np.arange(m) / 2
    centres, which = rng.normal(size=(2, C * d)), np.arange(m) % 2
    reaches, strengths = ((0.5, 0.4), (0.1, 0.6)), np.array([0.5, 5.0])
    found = Candidates(own, doubt, reaches, 0.01, strengths=strengths)
    assert_allclose(np.exp(found.prior).sum(axis=1), doubt + 1.0)
    loss = "logistic" if C == 1 else "multinomial"
    evidence, W, b, _ = averaged_class_models(
        table, intercept, loss, 1 / sizes, found, centres, which, unit
    )
    held = HELD * max(C, 2) * intercept
    for k in range(m):
        rows, centre = table.task(k)[0], unit[k] * centres[which[k]].reshape(C, d)
        own_y = y[table.offsets[k] : table.offsets[k + 1]]
        good, likely = plain_class_average(
            rows, own_y, C, centre, found.strength[k], found.reach[k], found.prior[k], intercept
        )
        assert_allclose(evidence[k], likely + held_evidence(held, sizes[k], C), atol=2e-3)
        got = np.column_stack([W[k], b[k]])
        if C > 1:  # what all classes have in common is free
            got[:, -1] -= got[:, -1].mean()
            good[:, -1] -= good[:, -1].mean()
        assert_allclose(got, good, atol=3e-3)


# ---------------------------------------------------------------------------- the histogram


# -------------------------------------------------------------------------------- the plan


def test_hopeless_rounds_release_nothing():
    X, y, task = tasks(3)
    est = PrivateMeanRegMTL(epsilon=1.0, tasks=range(3)).fit(X, y, task=task)
    assert est.privacy_.epsilon == 0.0 and est.billboard_.releases == []
    assert "nothing is released" in est.privacy_.text(None)
    assert not est.mean_coef_.any() and est.billboard_.history() == []
    # Of the budget of an intercept everything is left.
    est.set_params(unseen_task="mean", target_range=(-20, 20)).fit(X, y, task=task)
    (entry,) = est.privacy_.releases
    assert entry["sensitivity"] / entry["noise_std"] == pytest.approx(est.privacy_.mu, rel=1e-6)
    assert est.predict(X[:2], task=[7, 7])[0] == est.mean_intercept_


# ------------------------------------------------------------------- units, offsets, ranges
@pytest.mark.parametrize("m, own_units", [(12, True), (60, False)])
def test_units_of_targets_do_not_matter(m, own_units):
    X, y, task = tasks(m)
    settings = {"epsilon": 8.0, "delta": 1e-3, "tasks": range(m), "random_state": 0}
    settings["levels"] = "free"
    est = PrivateMeanRegMTL(**settings).fit(X, y, task=task)
    assert est.billboard_.own_units == own_units and est.billboard_.centres.any()
    small = PrivateMeanRegMTL(**settings).fit(X, 2.0**-20 * y, task=task)
    # A histogram has other noise in other bins.
    assert_allclose(2.0**20 * small.coef_, est.coef_, atol=1e-9 if own_units else 0.1)
    if own_units:  # a unit for every task
        unit = 2.0 ** np.random.default_rng(0).integers(-30, 30, m)
        other = PrivateMeanRegMTL(**settings).fit(X, unit[task] * y, task=task)
        assert_allclose(other.coef_ / unit[:, None], est.coef_, rtol=1e-6)


@pytest.mark.parametrize("shift", [100.0, 1e4])
@pytest.mark.parametrize("m", [10, 60])
def test_offsets_of_targets_do_not_matter_with_their_range(shift, m):
    X, y, task = tasks(m)
    settings = {
        "epsilon": 5.0,
        "delta": 1e-3,
        "tasks": range(m),
        "random_state": 0,
        "unseen_task": "mean",
    }
    ids = np.where(np.arange(len(X)) % 2, task, m + 3)
    predicted = [
        PrivateMeanRegMTL(target_range=(low - 10, low + 10), **settings)
        .fit(X, y + low, task=task)
        .predict(X, task=ids)
        - low
        for low in (0.0, shift)
    ]
    assert_allclose(*predicted, atol=1e-9 * shift)


# ------------------------------------------------------------------------------ strangers
@pytest.mark.parametrize(
    "m, d, epsilon",
    [
        (3, 8, 10.0),
        (3, 8, None),
        (10, 8, 1.0),
        (10, 8, None),
        (30, 200, 1.0),
        (30, 200, None),
        pytest.param(30, 200, 10.0, marks=pytest.mark.slow),
    ],
)
def test_few_rows_are_not_far_below_alone(m, d, epsilon):
    X, y, task = tasks(m, sizes=(25, 35), d=d, noise=2.0)
    place = np.arange(len(task)) - np.searchsorted(task, task)
    train = place < 5 + task % 9
    error = [
        np.mean(
            (
                est.fit(X[train], y[train], task=task[train]).predict(X[~train], task=task[~train])
                - y[~train]
            )
            ** 2
        )
        for est in (
            PrivateMeanRegMTL(epsilon=epsilon, tasks=range(m), random_state=0),
            LocalOnly(tasks=range(m)),
        )
    ]
    assert error[0] < 1.1 * error[1]


@pytest.mark.parametrize("wide", [False, True])
def test_without_a_budget_no_task_pulls_farther_than_most(wide):
    """Where the shared model ends, clipped ways to the tasks' models cancel."""
    rng = np.random.default_rng(3)
    task, X = np.repeat(np.arange(30), 12), rng.standard_normal((360, 5))
    models = np.ones(5) + 0.2 * rng.standard_normal((30, 5))
    models[:6] = [1e4, -300, 20, 20, -20]  # a fifth that is elsewhere
    y = np.einsum("nj,nj->n", X, models[task]) + 0.1 * rng.standard_normal(360)
    est = PrivateMeanRegMTL(epsilon=None, levels="free", max_iter=500)
    est.fit(sparse.csr_matrix(X) if wide else X, y, task=task)
    assert not est.billboard_.own_units
    assert np.abs(est.mean_coef_ - 1.0).max() < 0.2
    ways = []
    for k in range(30):
        A, v = X[task == k] - X[task == k].mean(axis=0), est.mean_coef_
        r = y[task == k] - y[task == k].mean() - A @ v
        ways.append(np.linalg.solve(A.T @ A + 12 * est.lam_ * np.eye(5), A.T @ r))
    norms = np.linalg.norm(ways, axis=1)
    clipped = np.minimum(1.0, np.median(norms) / norms) @ np.array(ways)
    assert np.linalg.norm(clipped) < 0.02 * np.median(norms) * 30


def test_without_a_budget_tasks_may_have_units_of_their_own():
    rng = np.random.default_rng(0)
    task, X = np.repeat(np.arange(40), 8), rng.standard_normal((320, 6))
    y = X @ np.ones(6) + 0.5 * rng.standard_normal(320)
    unit = 10.0 ** rng.uniform(-4, 4, 40)
    one = PrivateMeanRegMTL(epsilon=None, levels="free").fit(X, y, task=task)
    own = PrivateMeanRegMTL(epsilon=None).fit(X, unit[task] * y, task=task)
    assert own.billboard_.own_units and not one.billboard_.own_units
    error = np.abs(own.coef_ / unit[:, None] - 1.0).mean()
    alone = LocalOnly().fit(X, y, task=task)
    assert error < 0.7 * np.abs(alone.coef_ - 1.0).mean()
    again = PrivateMeanRegMTL(epsilon=None).fit(X, 1024.0 * unit[task] * y, task=task)
    assert_allclose(again.coef_, 1024.0 * own.coef_, rtol=1e-9)
