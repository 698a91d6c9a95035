"""All representations of the losses: same value, gradient, curvature and dual value."""

import numpy as np
import plain_reference as plain
import pytest
from scipy import sparse

import skpmtl.grams
from skpmtl import losses, resolvents
from skpmtl.losses import (
    GramLoss,
    LogisticLoss,
    SharedGramLoss,
    SquaredLoss,
    WideLoss,
    make_loss,
)
from skpmtl.solvers import GroupNorm, TraceNorm, _dual_gap, minimize

SETTINGS = [(True, "equal", 0.0), (True, "samples", 0.3), (False, "equal", 0.3)]


def scale_of(table, weight):
    return 1.0 / table.sizes if weight == "equal" else np.ones(table.n_tasks)


def small_matrices(monkeypatch, numbers):
    """Matrices of all tasks count as small up to so many numbers."""
    for module in (losses, resolvents):
        monkeypatch.setattr(module, "SMALL", numbers)


def wide_problem(missing, labels=False):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((14, 5)) + 0.5
    Y = X @ rng.standard_normal((5, 4)) + rng.standard_normal((14, 4)) + 2
    if labels:
        Y = np.where(Y > np.median(Y), 1.0, -1.0)
    if missing:
        Y[rng.random(Y.shape) < missing] = np.nan
        Y[:2] = [[1.0], [-1.0]]  # both classes in every task
    return X, Y


def representations(kind, missing):
    """-> rows (X, y, task) and {name: table}; all tables hold these rows."""
    if kind == "long":
        X, y, task = plain.make_rows([3, 20, 9], 4, 1, labels=True)
        X = np.where(np.abs(X) > 0.4, X, 0.0)
        tables = {"dense": plain.long_table(X, y, task)}
        tables["csr"] = plain.long_table(sparse.csr_matrix(X), y, task)
        return (X, y, task), tables
    X, Y = wide_problem(missing, labels=True)
    rows = plain.unfold(X, Y)
    tables = {"wide": plain.wide_table(X, Y), "long": plain.long_table(*rows)}
    tables["csr"] = plain.wide_table(sparse.csr_matrix(X), Y)
    return rows, tables


def all_losses(tables, logistic, scale, intercept, ridge):
    args = scale, intercept, ridge
    if logistic:
        return {name: LogisticLoss(table, *args) for name, table in tables.items()}
    made = {name: SquaredLoss(table, *args) for name, table in tables.items()}
    long = tables.get("dense", tables.get("long"))
    made["gram"] = GramLoss(long, *args)
    if "wide" in tables:
        table = tables["wide"]
        if 3 * table.n_rows > table.X.shape[0] * table.n_tasks:
            made["matrices"] = WideLoss(table, *args)
        if table.n_rows == table.X.shape[0] * table.n_tasks and len(set(scale)) == 1:
            made["one gram"] = SharedGramLoss(table, *args)
    return made


@pytest.mark.parametrize("logistic", [False, True], ids=["squared", "logistic"])
@pytest.mark.parametrize("kind, missing", [("long", 0), ("wide", 0), ("wide", 0.2), ("wide", 0.8)])
@pytest.mark.parametrize("intercept, weight, ridge", SETTINGS)
def test_representations_agree(kind, missing, logistic, intercept, weight, ridge):
    (X, y, task), tables = representations(kind, missing)
    first = next(iter(tables.values()))
    scale = scale_of(first, weight)
    made = all_losses(tables, logistic, scale, intercept, ridge)
    rng = np.random.default_rng(2)
    full = rng.standard_normal((first.n_tasks, first.n_features))
    thin = full.copy()
    thin[:, 1:-1] = 0.0  # the wide losses leave out unused columns
    settings = {"weight": weight, "ridge": ridge, "logistic": logistic}
    for W in (full, thin, np.zeros_like(full)):
        b = plain.best_intercepts(X, y, task, W, logistic) if intercept else np.zeros(len(W))
        expected = plain.objective(X, y, task, W, b, penalty="l21", alpha=0.0, **settings)
        slope, _ = plain.descent(X, y, task, W, b, **settings)
        for name, loss in made.items():
            value, V = loss.evaluate(W)
            assert value == pytest.approx(expected, rel=1e-11, abs=1e-12), name
            np.testing.assert_allclose(V, slope, atol=1e-11, err_msg=name)
            np.testing.assert_allclose(loss.intercepts(W), b, atol=1e-9, err_msg=name)
    D = rng.standard_normal(full.shape)
    curvature = np.empty_like(D)
    for k in range(len(D)):
        x = X[task == k]
        if intercept:
            x = x - x.mean(axis=0)
        H = scale[k] * x.T @ x * (0.25 if logistic else 1.0) + ridge * np.eye(x.shape[1])
        curvature[k] = H @ D[k]
        top = np.linalg.eigvalsh(H)[-1]
        for name, loss in made.items():
            assert loss.curvatures(400)[k] == pytest.approx(top, rel=1e-6), name
    first_curvatures = None
    for name, loss in made.items():
        # The private algorithms take their steps from these: the form must not matter.
        steps = loss.curvatures()
        first_curvatures = steps if first_curvatures is None else first_curvatures
        np.testing.assert_allclose(steps, first_curvatures, rtol=1e-10, err_msg=name)
        np.testing.assert_allclose(loss.curvature_bound(D), curvature, atol=1e-11, err_msg=name)


@pytest.mark.parametrize("logistic", [False, True], ids=["squared", "logistic"])
@pytest.mark.parametrize("kind, missing", [("long", 0), ("wide", 0), ("wide", 0.2)])
def test_gradient_by_finite_differences(kind, missing, logistic):
    """Of the loss minimised over the intercepts, so the intercepts' reaction is in it."""
    _, tables = representations(kind, missing)
    first = next(iter(tables.values()))
    made = all_losses(tables, logistic, scale_of(first, "equal"), True, 0.1)
    rng = np.random.default_rng(3)
    W, D = rng.standard_normal((2, first.n_tasks, first.n_features))
    for name, loss in made.items():
        h = 1e-5
        slope = (loss.evaluate(W + h * D)[0] - loss.evaluate(W - h * D)[0]) / (2 * h)
        assert slope == pytest.approx(-np.vdot(loss.evaluate(W)[1], D), rel=1e-6), name
        if not logistic:
            change = loss.evaluate(W)[1] - loss.evaluate(W + D)[1]
            np.testing.assert_allclose(loss.curvature(D), change, atol=1e-10, err_msg=name)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("intercept, weight, ridge", SETTINGS)
def test_pass_over_large_and_small_tasks(intercept, weight, ridge, compiled, monkeypatch):
    """The intercepts of large tasks come from their mean rows: the same numbers."""
    X, y, task = plain.make_rows([60, 3, 51, 1], 11, 1)
    X += 5.0
    table = plain.long_table(X, y, task)
    if not compiled:
        kernel = losses.passes.squared_gradient
        monkeypatch.setattr(losses.passes, "squared_gradient", getattr(kernel, "py_func", kernel))
    loss = SquaredLoss(table, scale_of(table, weight), intercept, ridge)
    assert 51 * 11 >= losses.passes.LARGE > 3 * 11
    assert len(loss._mean_rows) == (4 if intercept else 0)
    W = np.random.default_rng(2).standard_normal((4, 11))
    b = plain.best_intercepts(X, y, task, W, False) if intercept else np.zeros(4)
    settings = {"weight": weight, "ridge": ridge, "logistic": False}
    value, V = loss.evaluate(W)
    expected = plain.objective(X, y, task, W, b, penalty="l21", alpha=0.0, **settings)
    assert value == pytest.approx(expected, rel=1e-13)
    slope, _ = plain.descent(X, y, task, W, b, **settings)
    np.testing.assert_allclose(V, slope, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(
        loss.curvature(W), loss.evaluate(np.zeros_like(W))[1] - V, rtol=1e-10, atol=1e-10
    )


@pytest.mark.parametrize("intercept, weight, ridge", SETTINGS)
@pytest.mark.parametrize("kind, missing", [("long", 0), ("wide", 0), ("wide", 0.2)])
def test_projections_of_the_curvature(kind, missing, intercept, weight, ridge):
    (X, _, task), tables = representations(kind, missing)
    first = next(iter(tables.values()))
    scale, d = scale_of(first, weight), first.n_features
    W = np.random.default_rng(4).standard_normal((first.n_tasks, d))
    W[:, 1] = 0.0
    for penalty in (TraceNorm(), GroupNorm()):
        basis = penalty.basis(W)
        B = np.column_stack(
            [basis.lift(np.eye(basis.width)[[j]] * np.ones((1, 1)))[0] for j in range(basis.width)]
        )  # columns of P as seen by a single task
        for name, loss in all_losses(tables, False, scale, intercept, ridge).items():
            got = np.broadcast_to(loss.project(basis), (first.n_tasks, *[basis.width] * 2))
            for k in range(first.n_tasks):
                x = X[task == k] - (X[task == k].mean(axis=0) if intercept else 0.0)
                H = scale[k] * x.T @ x + ridge * np.eye(d)
                np.testing.assert_allclose(got[k], B.T @ H @ B, atol=1e-10, err_msg=name)


@pytest.mark.parametrize("logistic", [False, True], ids=["squared", "logistic"])
@pytest.mark.parametrize("penalty", [TraceNorm(), GroupNorm()], ids=["trace", "l21"])
@pytest.mark.parametrize("kind, missing", [("long", 0), ("wide", 0), ("wide", 0.2)])
@pytest.mark.parametrize("intercept, weight, ridge", SETTINGS)
def test_dual_gap_bounds_the_suboptimality(
    kind, missing, penalty, logistic, intercept, weight, ridge
):
    _, tables = representations(kind, missing)
    first = next(iter(tables.values()))
    made = all_losses(tables, logistic, scale_of(first, weight), intercept, ridge)
    alpha = 0.2
    optima = {}
    rng = np.random.default_rng(5)
    for name, loss in made.items():
        best = minimize(loss, penalty, alpha, tol=1e-9)
        optima[name] = best.objective
        # The gap at W shrinks with the distance, and is never below the true excess.
        direction = rng.standard_normal(loss.shape)
        gaps = []
        for size in (10.0, 1.0, 0.1, 1e-2, 1e-4, 0.0):
            W = best.W + size * direction
            value, V = loss.evaluate(W)
            objective = value + alpha * penalty.value(W)
            gap = _dual_gap(loss, penalty, alpha, W, V, value, objective)
            assert gap >= (objective - best.objective) - 1e-12 * objective, (name, size)
            gaps.append(gap)
        assert gaps[-1] <= 1e-8 * best.objective
        assert gaps[0] > gaps[2] > gaps[4]
    values = list(optima.values())
    np.testing.assert_allclose(values, values[0], rtol=2e-9)


def test_make_loss_takes_the_cheapest_representation():
    long = plain.long_table(*plain.make_rows([40, 50], 4, 1))
    short = plain.long_table(*plain.make_rows([3, 2], 4, 1))
    X, Y = wide_problem(0)
    gaps = wide_problem(0.3)[1]
    few = np.full((14, 4), np.nan)
    few[np.arange(8), np.arange(8) % 4] = 1.0
    chosen = {
        "long": (long, GramLoss),
        "short": (short, SquaredLoss),
        "csr": (plain.long_table(sparse.csr_matrix(long.X), long.y, long.codes), SquaredLoss),
        "wide": (plain.wide_table(X, Y), SharedGramLoss),
        "wide, d > n": (plain.wide_table(X.T.copy(), Y[:5]), WideLoss),
        "gaps": (plain.wide_table(X, gaps), WideLoss),
        "few labels": (plain.wide_table(X, few), SquaredLoss),
    }
    for name, (table, cls) in chosen.items():
        assert type(make_loss(table, classification=False)) is cls, name
        assert type(make_loss(table, classification=True)) is LogisticLoss, name


def test_wide_gram_matrices_use_blas(monkeypatch):
    """Above `NARROW` columns the Gram matrices come from BLAS: same numbers."""
    X, y, task = plain.make_rows([9, 30], 6, 8)
    table = plain.long_table(X, y, task)
    for centre in (True, False):
        loops = losses.grams(X, y, table.offsets, np.array([0.5, 2.0]), centre)
        monkeypatch.setattr(skpmtl.grams, "NARROW", 3)
        blas = losses.grams(X, y, table.offsets, np.array([0.5, 2.0]), centre)
        monkeypatch.undo()
        for a, b in zip(loops, blas, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)


@pytest.mark.parametrize("intercept, weight, ridge", SETTINGS)
@pytest.mark.parametrize(
    "sizes, d", [([3, 7, 5], 9), ([12, 20, 9], 9), ([70, 66], 90), ([3, 60], 9)]
)
@pytest.mark.parametrize("small", [0, 1 << 20])
def test_resolvents_solve_the_tasks(sizes, d, intercept, weight, ridge, small, monkeypatch):
    """By n x n and by d x d matrices, against a plain solve."""
    small_matrices(monkeypatch, small)
    table = plain.long_table(*plain.make_rows(sizes, d, 3))
    scale = scale_of(table, weight)
    W, S = np.random.default_rng(4).standard_normal((2, len(sizes), d))
    for cls in (SquaredLoss, GramLoss):
        resolvent = cls(table, scale, intercept, ridge).resolvent()
        rho, step = resolvent
        out, total = step(W, S, None), 0.0
        for k in range(len(sizes)):
            x, y = table.task(k)
            if intercept:
                x, y = x - x.mean(axis=0), y - y.mean()
            H = scale[k] * x.T @ x + ridge * np.eye(d)
            total += np.trace(H)
            right = scale[k] * x.T @ y + rho * (2 * W[k] - S[k])
            expected = np.linalg.solve(H + rho * np.eye(d), right) - W[k]
            np.testing.assert_allclose(out[k], expected, atol=1e-10)
        assert rho == pytest.approx(total / W.size, rel=1e-10)
    flat = plain.long_table(np.ones((5, 3)) * (0 if not intercept else 1), np.ones(5), [0] * 5)
    assert SquaredLoss(flat, np.ones(1), intercept, 0.0).resolvent() is None


@pytest.mark.parametrize("intercept, weight, ridge", SETTINGS)
@pytest.mark.parametrize("sizes, d", [([3, 7, 5], 9), ([12, 20, 9], 4)])
@pytest.mark.parametrize("small", [0, 1 << 20])
def test_eliminations_solve_the_tasks(sizes, d, intercept, weight, ridge, small, monkeypatch):
    small_matrices(monkeypatch, small)
    table = plain.long_table(*plain.make_rows(sizes, d, 3))
    loss = SquaredLoss(table, scale_of(table, weight), intercept, ridge)
    rng = np.random.default_rng(5)
    for penalty in (TraceNorm(), GroupNorm()):
        basis = penalty.basis(rng.standard_normal((len(sizes), d)))
        B = rng.standard_normal((len(sizes), basis.width))
        A = loss.project(basis) + 0.3 * np.eye(basis.width)
        expected = np.linalg.solve(A, B[:, :, None])[:, :, 0]
        np.testing.assert_allclose(loss.elimination(basis, 0.3)(B), expected, rtol=1e-8)
