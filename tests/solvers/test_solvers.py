"""Pieces of the exact solver: proximal maps, dual norms, shapes, steps, histories, starts."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from scipy.stats import bernoulli
from sklearn.exceptions import ConvergenceWarning

from skpmtl import set_num_threads
from skpmtl.solvers import losses
from skpmtl.solvers import minimize as solvers
from skpmtl.solvers.certificate import dual_gap
from skpmtl.solvers.losses import make_loss
from skpmtl.solvers.minimize import minimize
from skpmtl.solvers.penalties import GroupNorm, TraceNorm
from skpmtl.tables.table import TaskTable
from tests.helpers import plain_reference as plain
from tests.helpers.data import make_rows

PENALTIES = {"trace": TraceNorm(), "l21": GroupNorm()}


@pytest.mark.parametrize("name", PENALTIES)
@pytest.mark.parametrize("shape", [(9, 4), (4, 9), (5, 5), (1, 3), (3, 1)])
@pytest.mark.spread(6)
def test_penalty_maps(name, shape):
    penalty = PENALTIES[name]
    V = np.random.default_rng(0).standard_normal(shape)
    assert penalty.value(V) == pytest.approx(plain.penalty_value(V, name), rel=1e-12)
    levels = np.sort(penalty.dual_levels(V))[::-1]
    expected = np.sort(plain.dual_levels(V, name))[::-1]
    np.testing.assert_allclose(levels[: len(expected)], expected, rtol=1e-7)
    for threshold in (0.0, 0.7, 0.999 * levels[0], 1.001 * levels[0]):
        W, omega = penalty.prox(V, threshold)
        assert omega == pytest.approx(plain.penalty_value(W, name), rel=1e-7, abs=1e-9)
        # Optimality of 1/2 ||W - V||^2 + threshold Omega(W), Moreau's identity.
        assert plain.dual_norm(V - W, name) <= threshold * (1 + 1e-9) + 1e-12
        assert np.vdot(V - W, W) == pytest.approx(threshold * omega, rel=1e-9, abs=1e-12)
    assert not penalty.prox(V, 1.001 * levels[0])[0].any()


@pytest.mark.parametrize("name", PENALTIES)
def test_degenerate_data(name):
    """Nothing to fit: zero features, a constant target, a perfect fit."""
    zeros = plain.long_table(np.zeros((8, 20)), np.arange(8.0), np.repeat([0, 1], 4))
    flat = plain.long_table(np.ones((8, 3)), np.ones(8), np.repeat([0, 1], 4))
    for table in (zeros, flat):
        for intercept in (True, False):
            loss = make_loss(table, fit_intercept=intercept)
            solution = minimize(loss, PENALTIES[name], 0.1)
            assert solution.converged and np.isfinite(solution.W).all()
    assert not minimize(make_loss(zeros), PENALTIES[name], 0.1).W.any()
    X = np.random.default_rng(0).standard_normal((20, 3))
    exact = plain.long_table(X, X @ np.ones(3), np.repeat([0, 1], 10))
    loss = make_loss(exact, fit_intercept=False)
    solution = minimize(loss, PENALTIES[name], 1e-6)
    np.testing.assert_allclose(solution.W, 1.0, atol=1e-4)


@pytest.mark.parametrize("logistic", [False, True])
@pytest.mark.parametrize("name", PENALTIES)
def test_many_small_tasks_need_no_history(monkeypatch, name, logistic):
    """A history of one step: the same optimum."""
    X, y, task = make_rows([3, 4, 2] * 60, 6, 3, labels=logistic)
    loss = make_loss(plain.long_table(X, y, task), fit_intercept=False)
    expected = minimize(loss, PENALTIES[name], 0.3, tol=1e-8)
    assert expected.W.any()
    monkeypatch.setattr(solvers, "_ROOM", 180 * 6 // 2)
    assert solvers._is_lean(loss)
    lean = minimize(loss, PENALTIES[name], 0.3, tol=1e-8)
    assert lean.converged
    assert lean.objective == pytest.approx(expected.objective, rel=2e-8)
    np.testing.assert_allclose(lean.W, expected.W, atol=1e-3 * abs(expected.W).max())


# ------------------------------------------------------------- the logistic loss, exactly
def categories(sizes, levels, seed=0):
    """One-hot columns of several attributes and a constant one, like those of School."""
    rng = np.random.default_rng(seed)
    task = np.repeat(np.arange(len(sizes)), sizes)
    parts = [np.eye(k)[rng.integers(0, k, len(task))] for k in levels]
    X = np.hstack([*parts, np.ones((len(task), 1))])
    W = rng.standard_normal(X.shape[1]) + 0.3 * rng.standard_normal((len(sizes), X.shape[1]))
    z = np.einsum("ij,ij->i", X, W[task]) + rng.logistic(size=len(task))
    y = np.where(z > np.median(z), 1.0, -1.0)
    ends = np.cumsum(sizes)
    y[ends - sizes], y[ends - 1] = 1.0, -1.0
    return X, y, task


def hard_problems():
    """name -> rows, shift of the features, fraction of the largest alpha, iterations at most.

    The bounds are about twice what is needed. Without a ridge gradient steps need more for all of
    these problems, up to more than 2,000, or rounding stops them before.
    """
    rng = np.random.default_rng(2)
    X, y, task = make_rows([20] * 10, 7, 4, labels=True)
    W = rng.standard_normal((10, 7))
    flat = np.where((task == 3)[:, None], X[60], X)
    school = categories(rng.integers(20, 100, 25), (3, 2, 8, 3, 2, 5, 4))
    yield "scales", X * np.logspace(-3, 3, 7), y, task, 0.0, 0.01, 300
    yield "correlated", X[:, :1] + 0.1 * X, y, task, 0.0, 0.01, 500
    yield "far from zero", X + 1e3, y, task, 1e3, 0.01, 600
    yield "one-hot", *categories([20] * 10, [7], 1), 0.0, 1e-3, 400
    yield "separable", X, np.sign(np.einsum("ij,ij->i", X, W[task])), task, 0.0, 1e-3, 400
    yield "few rows", *make_rows([4] * 8, 20, 2, labels=True), 0.0, 1e-3, 600
    yield "few rows, wide", *make_rows([4] * 8, 140, 2, labels=True), 0.0, 0.01, 800
    yield "sizes", *make_rows([2, 3, 1000, 5, 300, 9], 6, 3, labels=True), 0.0, 1e-3, 600
    yield "constant column", np.hstack([X, np.ones((200, 1))]), y, task, 0.0, 0.01, 300
    yield "a task of equal rows", flat, y, task, 0.0, 0.01, 300
    yield "like School", *school, 0.0, 1e-3, 1500


HARD = {name: rest for name, *rest in hard_problems()}


def plain_gap(X, y, task, W, penalty, alpha, ridge, intercept):
    """-> objective of the logistic loss at W and its distance to a dual value, by numpy alone."""
    kind = {"ridge": ridge, "logistic": True}
    b = plain.best_intercepts(X, y, task, W, True) if intercept else np.zeros(len(W))
    objective = plain.objective(X, y, task, W, b, penalty=penalty, alpha=alpha, **kind)
    V = plain.descent(X, y, task, W, b, **kind)[0]
    u = 1.0 / (1.0 + np.exp(y * (np.einsum("ij,ij->i", X, W[task]) + b[task])))
    weights = 1.0 / np.bincount(task)[task]
    theta = min(1.0, alpha / plain.dual_norm(V, penalty))
    dual = weights @ bernoulli(theta * u).entropy() - 0.5 * ridge * theta**2 * np.sum(W**2)
    if ridge:
        above = np.maximum(plain.dual_levels(V + ridge * W, penalty) - alpha, 0.0)
        dual = max(dual, weights @ bernoulli(u).entropy() - 0.5 / ridge * above @ above)
    return objective, objective - dual


def largest(loss, penalty):
    return penalty.dual_levels(loss.evaluate(np.zeros(loss.shape))[1]).max()


@pytest.mark.parametrize("name", PENALTIES)
@pytest.mark.parametrize("intercept, ridge", [(True, 0.0), (False, 0.0), (True, 0.003)])
@pytest.mark.parametrize("problem", HARD)
@pytest.mark.spread(11)
def test_hard_classifications(problem, intercept, ridge, name):
    X, y, task, shift, fraction, limit = HARD[problem]
    if shift and not intercept:
        X, shift = X - shift + 10.0, 0.0  # without intercepts the shift is the problem itself
    loss = make_loss(plain.long_table(X, y, task), fit_intercept=intercept, ridge=ridge)
    alpha = fraction * largest(loss, PENALTIES[name])
    solution = minimize(loss, PENALTIES[name], alpha, tol=1e-9, max_iter=limit)
    assert solution.converged and np.isfinite(solution.W).all()
    settings = solution.W, name, alpha, ridge, intercept
    objective, gap = plain_gap(X - shift, y, task, *settings)
    assert solution.objective == pytest.approx(objective, rel=1e-11)
    assert -1e-12 * objective <= gap <= 1.5e-9 * objective
    again = minimize(loss, PENALTIES[name], alpha, W=solution.W, tol=1e-8)
    assert again.n_iter <= 8 and again.objective == pytest.approx(objective, rel=1e-8)


@pytest.mark.parametrize("name", PENALTIES)
@pytest.mark.parametrize("rows", ["long", "csr", "lean", "lean csr", "shared"])
@pytest.mark.spread(4)
def test_start_is_left_alone_and_threads_do_not_matter(monkeypatch, name, rows):
    """Steps overwrite what they are given, but never the caller's weights."""
    X, y, task = make_rows([3, 14, 20, 9] * 5, 9, 3, labels=True)
    if rows == "shared":
        Y = np.where(np.random.default_rng(0).random((12, 20)) < 0.5, 1.0, -1.0)
        Y[3:5, :6], Y[0], Y[1] = np.nan, 1.0, -1.0
        table = plain.wide_table(np.random.default_rng(1).standard_normal((12, 25)), Y)
    else:
        table = plain.long_table(sparse.csr_matrix(X) if "csr" in rows else X, y, task)
    monkeypatch.setattr(losses, "_BLOCK", 200)
    if "lean" in rows:
        monkeypatch.setattr(solvers, "_is_lean", lambda loss: True)
    loss = make_loss(table)
    assert len(loss.blocks) > 3
    alpha = 0.05 * largest(loss, PENALTIES[name])
    start = np.random.default_rng(2).standard_normal(loss.shape)
    start.flags.writeable = False
    found = []
    for n_threads in (1, 2):
        set_num_threads(n_threads)
        try:
            loss = make_loss(table)
            found.append(minimize(loss, PENALTIES[name], alpha, W=start, tol=1e-5).W)
            found.append(minimize(loss, PENALTIES[name], alpha, tol=1e-5).W)
        finally:
            set_num_threads(None)
    np.testing.assert_array_equal(found[0], found[2])
    np.testing.assert_array_equal(found[1], found[3])
    assert found[0].any() and not np.shares_memory(found[0], start)


# -------------------------------------------------------------------------- extrapolation
@pytest.mark.parametrize("seed", [6, 30, 70, 94, 101, 115, 121])
def test_few_separable_tasks_are_not_thrown_far_out(seed):
    """A long step there leaves slopes of zero, and steps of alpha come back too slowly."""
    rng = np.random.default_rng(seed)
    m, n, d = rng.integers(1, 5), rng.integers(2, 6), rng.integers(1, 5)
    X, y = rng.standard_normal((m * n, d)), rng.choice([-1.0, 1.0], m * n)
    loss = make_loss(TaskTable(X, y, np.arange(m + 1) * n, np.arange(m)), fit_intercept=False)
    for penalty in PENALTIES.values():
        alpha = 1e-4 * largest(loss, penalty)
        assert minimize(loss, penalty, alpha, tol=1e-6, max_iter=3_000).converged


@pytest.mark.parametrize("logistic", [False, True])
@pytest.mark.parametrize("seed", [0, 1, 6])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.spread(4)
def test_sparse_rows_of_tiny_strengths_do_not_crawl(weighted, seed, logistic):
    """Fewer rows differ than there are features, and the penalty hardly tells models apart."""
    rng = np.random.default_rng(seed)
    X, y = np.tile(rng.random((15, 30)), (3, 1)), np.tile(rng.integers(0, 3, 15), 3)
    y = np.where(y > 0, 1.0, -1.0) if logistic else y + 0.01 * rng.standard_normal(45)
    weights = rng.random(45) if weighted else None
    dense = replace(plain.long_table(X, y, np.zeros(45)), weights=weights)
    loss = make_loss(replace(dense, X=sparse.csr_matrix(X)))
    alpha = 1e-3 * largest(loss, GroupNorm())
    found = minimize(loss, GroupNorm(), alpha, tol=1e-8, max_iter=4_000)
    expected = minimize(make_loss(dense), GroupNorm(), alpha, tol=1e-8)
    assert found.converged and found.objective == pytest.approx(expected.objective, rel=1e-8)


@pytest.mark.parametrize("logistic", [False, True])
@pytest.mark.parametrize("rows", ["long", "dependent", "repeated", "shared"])
@pytest.mark.spread(4)
def test_wide_trace_norms_are_solved_in_the_space_of_rows(rows, logistic):
    rng = np.random.default_rng(0)
    X, y, task = make_rows([5, 4, 6], 50, 3, labels=logistic)
    if rows == "shared":
        Y = rng.standard_normal((9, 4))
        table = plain.wide_table(X[:9], np.sign(Y) if logistic else Y)
    else:
        X[9] = 2.0 * X[10] if rows == "dependent" else X[9]
        times = 3 if rows == "repeated" else 1  # so that rows are almost as many as features
        table = plain.long_table(*(a.repeat(times, axis=0) for a in (X, y, task)))
    loss, penalty = make_loss(table, ridge=0.01), TraceNorm()
    space = loss.row_space
    W = rng.standard_normal(loss.shape)
    C = space.drop(W)
    value = loss.evaluate(W)[0]
    inside = space.loss.evaluate(C)[0]
    # The ridge alone sees what W has outside of the space.
    outside = 0.005 * (np.vdot(W, W) - np.vdot(C, C))
    assert value == pytest.approx(inside + outside, rel=1e-6) and outside > 0
    assert np.linalg.norm(space.lift(C)) == pytest.approx(np.linalg.norm(C), rel=1e-6)
    alpha = 0.1 * largest(loss, penalty)
    expected = solvers._alternate(loss, penalty, alpha, None, 1e-9, 10_000, None)
    for start in (None, W):
        found = minimize(loss, penalty, alpha, W=start, tol=1e-9)
        assert found.objective == pytest.approx(expected.objective, rel=3e-9)
        value, V = loss.evaluate(found.W)
        at = dual_gap(loss, penalty, alpha, found.W, V, value, penalty.value(found.W), 1e-9)
        assert found.gap == pytest.approx(at.gap, rel=1e-3) and at.closes(1e-9)
    if rows == "long":
        with pytest.warns(ConvergenceWarning):
            stopped = minimize(loss, penalty, alpha, tol=1e-13, max_iter=2)
        assert stopped.n_iter == 2


@pytest.mark.parametrize("logistic", [False, True])
def test_wide_trace_norms_are_solved_in_subspaces(logistic):
    """They end where the space of all rows does, and never build it; from any start."""
    rng = np.random.default_rng(0)
    X, y, task = make_rows([200, 180, 190], 560, 3, labels=logistic)
    loss, penalty = make_loss(plain.long_table(X, y, task), ridge=0.01), TraceNorm()
    alpha = 0.5 * largest(loss, penalty)
    found = minimize(loss, penalty, alpha, tol=1e-6)
    assert found.converged and "row_space" not in vars(loss)
    start = found.W + 0.1 * rng.standard_normal(loss.shape)
    again = minimize(loss, penalty, alpha, W=start, tol=1e-6)
    expected = solvers._in_row_space(loss, penalty, alpha, None, 1e-6, 10_000, None)
    value, V = loss.evaluate(found.W)
    at = dual_gap(loss, penalty, alpha, found.W, V, value, penalty.value(found.W), 1e-6)
    assert found.gap == pytest.approx(at.gap, rel=1e-3) and at.closes(1e-6)
    for other in (again, expected):
        assert other.objective == pytest.approx(found.objective, rel=2e-6)
