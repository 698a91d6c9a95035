"""Pieces of the exact solver: proximal maps, dual norms, bases, the trust-region step."""

import numpy as np
import plain_reference as plain
import pytest
from sklearn.exceptions import ConvergenceWarning

from skpmtl import losses, solvers
from skpmtl.factored import _Factored, _steihaug
from skpmtl.losses import SquaredLoss, make_loss
from skpmtl.solvers import GroupNorm, TraceNorm, _dual_gap, minimize
from skpmtl.tasks import TaskTable
from skpmtl.threads import single_blas_thread

PENALTIES = {"trace": TraceNorm(), "l21": GroupNorm()}


@pytest.mark.parametrize("name", PENALTIES)
@pytest.mark.parametrize("shape", [(9, 4), (4, 9), (5, 5), (1, 3), (3, 1)])
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
def test_prox_of_zero_and_of_deficient_rank(name):
    penalty = PENALTIES[name]
    W, omega = penalty.prox(np.zeros((4, 3)), 0.5)
    assert not W.any() and omega == 0
    V = np.outer(np.arange(1.0, 5.0), [1.0, 0.0, 0.0])
    W, omega = penalty.prox(V, 1.0)
    norm = np.linalg.norm(V)
    np.testing.assert_allclose(W, V * (1 - 1 / norm), rtol=1e-12)
    assert omega == pytest.approx(norm - 1, rel=1e-12)


@pytest.mark.parametrize("name", PENALTIES)
@pytest.mark.parametrize("sizes, d", [([12] * 6, 4), ([12] * 3, 7)])
def test_factored_gradient_and_hessian(name, sizes, d):
    """Of the objective with the per-task factor eliminated, by finite differences."""
    loss = make_loss(plain.long_table(*plain.make_rows(sizes, d, 1)), classification=False)
    penalty, alpha = PENALTIES[name], 0.3
    W = minimize(loss, penalty, alpha, tol=1e-2).W
    basis = penalty.basis(W)
    here = _Factored([loss], alpha, basis)
    # The factored objective bounds the penalised one from above.
    W = here.weights()
    assert here.value >= loss.evaluate(W)[0] + alpha * penalty.value(W) - 1e-9
    D = np.random.default_rng(2).standard_normal(np.shape(basis.P))
    h = 1e-5
    up, down = (_Factored([loss], alpha, basis.moved(s * h * D)) for s in (1, -1))
    slope = (up.value - down.value) / (2 * h)
    assert np.vdot(here.gradient, D) == pytest.approx(slope, rel=1e-6, abs=1e-9)
    np.testing.assert_allclose(
        here.product(D), (up.gradient - down.gradient) / (2 * h), atol=1e-5 * np.abs(D).max()
    )


def test_steihaug_step():
    rng = np.random.default_rng(3)
    A = rng.standard_normal((6, 6))
    A = A @ A.T + np.eye(6)
    g = rng.standard_normal(6)
    newton = -np.linalg.solve(A, g)
    z, promise = _steihaug(g, lambda p: A @ p, 1e3)
    assert np.linalg.norm(A @ z + g) <= 0.1 * np.linalg.norm(g) + 1e-12
    assert promise == pytest.approx(-(g @ z + 0.5 * z @ A @ z), rel=1e-10)
    assert promise <= -(g @ newton + 0.5 * newton @ A @ newton) + 1e-12
    for radius in (1e-3, 0.1):  # cut off at the boundary
        z, promise = _steihaug(g, lambda p: A @ p, radius)
        assert np.linalg.norm(z) == pytest.approx(radius, rel=1e-10)
        assert promise > 0
    z, promise = _steihaug(g, lambda p: -A @ p, 0.5)  # negative curvature: to the boundary
    assert np.linalg.norm(z) == pytest.approx(0.5, rel=1e-10) and promise > 0
    assert _steihaug(np.zeros(6), lambda p: A @ p, 1.0)[1] == 0


@pytest.mark.parametrize("name", PENALTIES)
@pytest.mark.parametrize("logistic", [False, True])
def test_start_does_not_matter(name, logistic):
    X, y, task = plain.make_rows([12, 30, 5], 4, 4, labels=True)
    loss = make_loss(plain.long_table(X, y, task), classification=logistic)
    best = minimize(loss, PENALTIES[name], 0.05, tol=1e-9)
    for seed, size in ((0, 1.0), (1, 30.0)):
        start = size * np.random.default_rng(seed).standard_normal(loss.shape)
        other = minimize(loss, PENALTIES[name], 0.05, W=start, tol=1e-9)
        assert other.objective == pytest.approx(best.objective, rel=2e-9)
    again = minimize(loss, PENALTIES[name], 0.05, W=best.W, tol=1e-6)
    assert again.n_iter <= 1
    assert again.objective == pytest.approx(best.objective, rel=1e-6)


@pytest.mark.parametrize("name", PENALTIES)
def test_objective_never_rises_and_gap_is_reported(name):
    loss = make_loss(plain.long_table(*plain.make_rows([6] * 9, 8, 5)), classification=False)
    seen = []
    solution = minimize(loss, PENALTIES[name], 0.02, tol=1e-8, log=lambda *row: seen.append(row))
    assert [row[0] for row in seen] == sorted(row[0] for row in seen)
    assert all(b[1] <= a[1] * (1 + 1e-9) for a, b in zip(seen[:-1], seen[1:], strict=True))
    value, V = loss.evaluate(solution.W)
    objective = value + 0.02 * PENALTIES[name].value(solution.W)
    assert solution.objective == pytest.approx(objective, rel=1e-12)
    gap = _dual_gap(loss, PENALTIES[name], 0.02, solution.W, V, value, objective)
    assert solution.gap == pytest.approx(gap, rel=1e-3, abs=1e-12)
    assert solution.gap <= 1e-8 * objective and solution.converged


@pytest.mark.parametrize("name", PENALTIES)
def test_degenerate_data(name):
    """Nothing to fit: zero features, a constant target, a perfect fit."""
    zeros = plain.long_table(np.zeros((8, 3)), np.arange(8.0), np.repeat([0, 1], 4))
    flat = plain.long_table(np.ones((8, 3)), np.ones(8), np.repeat([0, 1], 4))
    for table in (zeros, flat):
        for intercept in (True, False):
            loss = make_loss(table, classification=False, fit_intercept=intercept)
            solution = minimize(loss, PENALTIES[name], 0.1)
            assert solution.converged and np.isfinite(solution.W).all()
    assert not minimize(make_loss(zeros, classification=False), PENALTIES[name], 0.1).W.any()
    X = np.random.default_rng(0).standard_normal((20, 3))
    exact = plain.long_table(X, X @ np.ones(3), np.repeat([0, 1], 10))
    loss = make_loss(exact, classification=False, fit_intercept=False)
    solution = minimize(loss, PENALTIES[name], 1e-6)
    np.testing.assert_allclose(solution.W, 1.0, atol=1e-4)


def test_unconverged_is_said():
    loss = make_loss(plain.long_table(*plain.make_rows([6] * 9, 8, 5)), classification=False)
    with pytest.warns(ConvergenceWarning, match="after 2 iterations"):
        solution = minimize(loss, TraceNorm(), 1e-3, max_iter=2)
    assert not solution.converged and solution.n_iter == 2
    assert solution.gap > 1e-6 * solution.objective


def test_blas_runs_on_one_thread_inside_only():
    from threadpoolctl import threadpool_info

    def threads():
        return [x["num_threads"] for x in threadpool_info() if x["user_api"] == "blas"]

    before = threads()
    with single_blas_thread():
        assert set(threads()) <= {1}
    assert threads() == before


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("ridge, fraction", [(0.0, 0.3), (0.1, 0.3), (0.0, 1e-3), (0.0, 1.1)])
def test_working_sets_leave_no_feature_out(intercept, ridge, fraction):
    """Optimality over all features, computed from the rows; few, most or no features in use."""
    rng = np.random.default_rng(6)
    X = rng.standard_normal((240, 150)) + rng.standard_normal((240, 1))
    W = np.zeros((4, 150))
    W[:, ::40] = rng.standard_normal((4, 4))
    Y = X @ W.T + rng.standard_normal((240, 4)) + 3.0
    centre = (lambda A: A - A.mean(axis=0)) if intercept else (lambda A: A)
    alpha = fraction * np.linalg.norm(centre(Y).T @ X / 240, axis=0).max()
    loss = make_loss(
        plain.wide_table(X, Y), classification=False, fit_intercept=intercept, ridge=ridge
    )
    solution = minimize(loss, GroupNorm(), alpha, tol=1e-10)
    assert solution.converged and solution.n_iter < 400
    W, norms = solution.W, np.linalg.norm(solution.W, axis=0)
    residual = Y - X @ W.T - loss.intercepts(W)
    if intercept:
        np.testing.assert_allclose(residual.mean(axis=0), 0.0, atol=1e-10)
    value = (residual**2).sum() / 480 + ridge / 2 * (W**2).sum() + alpha * norms.sum()
    assert solution.objective == pytest.approx(value, rel=1e-10)
    V = residual.T @ X / 240 - ridge * W
    used = norms > 0
    assert used.sum() == 0 if fraction > 1 else used.sum() >= 4
    assert fraction < 0.1 or used.sum() < 75
    np.testing.assert_allclose(V[:, used], alpha * W[:, used] / norms[used], atol=1e-4 * alpha)
    assert np.linalg.norm(V, axis=0).max() <= alpha * (1 + 1e-4)


@pytest.mark.parametrize("logistic", [False, True])
@pytest.mark.parametrize("name", PENALTIES)
def test_many_small_tasks_need_no_history(monkeypatch, name, logistic):
    """A sample of the tasks for the start, Newton in parts, no history: the same optimum."""
    X, y, task = plain.make_rows([3, 4, 2] * 60, 6, 3, labels=logistic)
    loss = make_loss(plain.long_table(X, y, task), classification=logistic, fit_intercept=False)
    expected = minimize(loss, PENALTIES[name], 0.3, tol=1e-8)
    assert expected.W.any()
    monkeypatch.setattr(solvers, "_ROOM", 180 * 6 // 2)
    monkeypatch.setattr(losses, "_BLOCK", 180 * 6 // 4)
    assert solvers._is_lean(loss)
    assert len(loss.parts()) == (1 if logistic else 4)
    lean = minimize(loss, PENALTIES[name], 0.3, tol=1e-8)
    assert lean.converged
    assert lean.objective == pytest.approx(expected.objective, rel=2e-8)
    np.testing.assert_allclose(lean.W, expected.W, atol=1e-3 * abs(expected.W).max())


def test_a_part_of_the_tasks_has_its_part_of_the_loss():
    X, y, task = plain.make_rows([3, 9, 2, 5, 4], 6, 3)
    backwards = np.arange(23)[::-1].copy()
    for table in (
        plain.long_table(X, y, task),
        TaskTable(X, y, np.array([0, 3, 9, 23]), np.arange(3), rows=backwards),
    ):
        loss = SquaredLoss(table, 1.0 / table.sizes, True, 0.1)
        W = np.random.default_rng(0).standard_normal(loss.shape)
        value, V = loss.evaluate(W)
        for tasks in ([0], [1, 0], list(range(table.n_tasks))[1:]):
            part = loss.some(np.array(tasks))
            rest = loss.some(np.setdiff1d(np.arange(table.n_tasks), tasks))
            found = [part.evaluate(W[tasks])]
            np.testing.assert_allclose(found[0][1], V[tasks], atol=1e-12)
            found.append(rest.evaluate(np.delete(W, tasks, axis=0)))
            assert sum(f[0] for f in found) == pytest.approx(value, rel=1e-12)
