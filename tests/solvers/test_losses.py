"""All representations of the losses: same value, gradient, curvature and dual value."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from scipy.special import softmax

import skpmtl.solvers.grams
from skpmtl.solvers import losses, resolvents
from skpmtl.solvers.grams import NARROW, grams, invert, products
from skpmtl.solvers.losses import (
    GramLoss,
    LogisticLoss,
    SharedGramLoss,
    SquaredLoss,
    WideLoss,
    make_loss,
)
from skpmtl.solvers.minimize import minimize
from skpmtl.solvers.penalties import GroupNorm, TraceNorm
from tests.helpers import plain_reference as plain
from tests.helpers.data import make_rows

SETTINGS = [(True, "equal", 0.0), (True, "samples", 0.3), (False, "equal", 0.3)]


def scale_of(table, weight):
    return 1.0 / table.sizes if weight == "equal" else np.ones(table.n_tasks)


def small_matrices(monkeypatch, numbers):
    """Matrices of all tasks count as small up to so many numbers."""
    for module in (losses, resolvents):
        monkeypatch.setattr(module, "SMALL", numbers)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("centre", [False, True])
@pytest.mark.parametrize("d", [7, NARROW + 1])
def test_gram_matrices(d, centre, weighted):
    rng, offsets = np.random.default_rng(0), np.cumsum([0, 3, 9, 1, 6])
    X, y = rng.standard_normal((offsets[-1], d)), rng.standard_normal(offsets[-1])
    weights = rng.uniform(0.5, 2.0, len(y)) if weighted else None
    scale = rng.uniform(0.5, 2.0, 4)
    G, g, square = grams(X, y, offsets, scale, centre, weights)
    total = 0.0
    for k in range(4):
        rows = slice(offsets[k], offsets[k + 1])
        Z, w = np.column_stack([X[rows], y[rows]]), np.ones(offsets[k + 1] - offsets[k])
        w = w if weights is None else weights[rows]
        Z = Z - centre * np.average(Z, axis=0, weights=w)
        S = scale[k] * Z.T @ (w[:, None] * Z)
        assert_allclose(G[k], S[:d, :d], atol=1e-12)
        assert_allclose(g[k], S[:d, d], atol=1e-12)
        total += S[d, d]
    assert_allclose(square, total)


@pytest.mark.parametrize("lapack", [False, True])
@pytest.mark.parametrize("n_tasks", [3, 19])
def test_products_and_inverses(monkeypatch, n_tasks, lapack):
    """Of several tasks at a time, and task by task."""
    if lapack:
        monkeypatch.setattr(skpmtl.solvers.grams, "_ABREAST", 0)
    rng, d = np.random.default_rng(0), 7
    Z, W = rng.standard_normal((n_tasks, 20, d)), rng.standard_normal((n_tasks, d))
    G = np.einsum("kij,kil->kjl", Z, Z)
    A, out, wrong = G.copy(), np.empty(W.shape), G.copy()
    products(G, W, out)
    assert_allclose(out, np.einsum("kij,kj->ki", G, W), atol=1e-12)
    invert(A)
    assert_allclose(A, np.linalg.inv(G), rtol=1e-11, atol=1e-12)
    wrong[2, 2, 2] = np.nan
    with pytest.raises(np.linalg.LinAlgError, match="scale the features"):
        invert(wrong)


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
        X, y, task = make_rows([3, 20, 9], 4, 1, labels=True)
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
@pytest.mark.spread(6)
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
    for name, loss in made.items() if not logistic else ():
        change = loss.evaluate(full)[1] - loss.evaluate(full + D)[1]
        np.testing.assert_allclose(loss.curvature(D), change, atol=1e-10, err_msg=name)
    curvature, steepest = np.empty_like(D), np.zeros(full.shape[1])
    for k in range(len(D)):
        x = X[task == k]
        if intercept:
            x = x - x.mean(axis=0)
        H = scale[k] * x.T @ x * (0.25 if logistic else 1.0) + ridge * np.eye(x.shape[1])
        curvature[k] = H @ D[k]
        steepest = np.maximum(steepest, np.diag(H))
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
        found = loss.steepest * loss.diagonals().max(axis=0) + loss.ridge
        np.testing.assert_allclose(found, steepest, rtol=1e-11, err_msg=name)


@pytest.mark.parametrize("intercept, weight, ridge", SETTINGS)
@pytest.mark.parametrize(
    "sizes, d", [([3, 7, 5], 9), ([12, 20, 9], 9), ([70, 66], 90), ([3, 60], 9)]
)
@pytest.mark.parametrize("small", [0, 1 << 20])
@pytest.mark.spread(8)
def test_resolvents_solve_the_tasks(sizes, d, intercept, weight, ridge, small, monkeypatch):
    """By n x n and by d x d matrices, against a plain solve."""
    small_matrices(monkeypatch, small)
    table = plain.long_table(*make_rows(sizes, d, 3))
    scale = scale_of(table, weight)
    W, S = np.random.default_rng(4).standard_normal((2, len(sizes), d))
    for cls, share in product((SquaredLoss, GramLoss), (0.05, 0.2)):
        rho, step = cls(table, scale, intercept, ridge).resolvent(share)
        out, total, square = step(W, S, None), 0.0, 0.0
        for k in range(len(sizes)):
            x, y = table.task(k)
            if intercept:
                x, y = x - x.mean(axis=0), y - y.mean()
            H = scale[k] * x.T @ x
            total += np.trace(H)
            square += np.trace(H @ H)
            H += ridge * np.eye(d)
            right = scale[k] * x.T @ y + rho * (2 * W[k] - S[k])
            expected = np.linalg.solve(H + rho * np.eye(d), right) - W[k]
            np.testing.assert_allclose(out[k], expected, atol=1e-10)
        weighted = 0.8 * np.log10(share / 0.05)  # e of rho = mean (weighted mean / mean)^e
        mean = total / W.size
        expected = mean * (square / total / mean) ** weighted + ridge
        assert rho == pytest.approx(expected, rel=1e-10)
    flat = plain.long_table(np.ones((5, 3)) * (0 if not intercept else 1), np.ones(5), [0] * 5)
    assert SquaredLoss(flat, np.ones(1), intercept, 0.0).resolvent(0.1) is None


def logistic_tables():
    """name -> (table, SMALL, form): the resolvents of the logistic loss."""
    rng = np.random.default_rng(6)
    X = rng.standard_normal((11, 25)) + 0.5
    Y = np.where(rng.standard_normal((11, 5)) > 0, 1.0, -1.0)
    gaps = Y.copy()
    gaps[rng.random(Y.shape) < 0.2] = np.nan
    few = np.full(Y.shape, np.nan)
    for k in range(5):
        few[rng.permutation(11)[: 2 + k % 3], k] = [1.0, -1.0, 1.0, 1.0][: 2 + k % 3]
    long = {
        "short rows": (make_rows([3, 7, 5], 9, 3, labels=True), 0, "rows"),
        "narrow": (make_rows([12, 20, 9], 4, 3, labels=True), 0, "features"),
        "small": (make_rows([3, 7, 5], 6, 3, labels=True), 1 << 20, "rows"),
        "by BLAS": (make_rows([70, 66], 66, 3, labels=True), 1 << 20, "features"),
        "one row and many": (make_rows([2, 60], 9, 3, labels=True), 1 << 20, "features"),
    }
    for name, (rows, *rest) in long.items():
        yield name, (plain.long_table(*rows), *rest)
    for name, labels in (("shared", Y), ("gaps", gaps), ("few labels", few)):
        yield name, (plain.wide_table(X, labels), 1 << 20, "rows")


LOGISTIC = dict(logistic_tables())


@pytest.mark.parametrize("intercept, weight, ridge", SETTINGS)
@pytest.mark.parametrize("name", LOGISTIC)
@pytest.mark.spread(9)
def test_logistic_resolvents_solve_the_tasks(name, intercept, weight, ridge, monkeypatch):
    """Against Hessians from finite differences, the quarter bound, and formulas between them."""
    table, small, form = LOGISTIC[name]
    small_matrices(monkeypatch, small)
    monkeypatch.setattr(losses, "_BLOCK", 64)
    loss = LogisticLoss(table, scale_of(table, weight), intercept, ridge)
    assert resolvents.narrower(loss, resolvents.room_beside(loss)) == form
    assert (loss._grid is None) == (name not in ("shared", "gaps"))
    m, d = loss.shape
    W, S, V = np.random.default_rng(4).standard_normal((3, m, d)) / np.sqrt(d)
    hessian, bound, mixed = np.empty((3, m, d, d))
    for j in range(d):
        E, h = np.zeros((m, d)), 1e-5
        E[:, j] = 1.0
        hessian[:, :, j] = (loss.evaluate(W - h * E)[1] - loss.evaluate(W + h * E)[1]) / (2 * h)
        bound[:, :, j] = loss.curvature_bound(E)
    for k in range(m):
        x, y = table.task(k)
        b = plain.best_intercepts(x, y, np.zeros(len(y)), W[[k]], True) if intercept else 0.0
        p = 1.0 / (1.0 + np.exp(-(x @ W[k] + b)))
        q = 0.9 * p * (1.0 - p) + 0.1 * 0.25
        x = x - (q @ x / q.sum() if intercept else 0.0)
        mixed[k] = loss.scale[k] * (x.T * q) @ x + ridge * np.eye(d)
    for floor, H, atol in ((0.0, hessian, 1e-7), (0.1, mixed, 1e-10), (1.0, bound, 1e-10)):
        rho, step = loss.resolvent(0.05, W, floor)
        assert rho == pytest.approx(np.einsum("kjj->", H) / W.size, rel=1e-6)
        for _ in range(2):  # a step leaves the matrices as they are
            out = step(W.copy(), S.copy(), V.copy())
            right = (V + rho * (W - S))[:, :, None]
            expected = np.linalg.solve(H + rho * np.eye(d), right)[:, :, 0]
            np.testing.assert_allclose(out, expected, atol=atol * abs(expected).max())


@pytest.mark.parametrize("intercept, weight, ridge", SETTINGS)
@pytest.mark.parametrize("d, form", [(4, "features"), (30, "rows")])
@pytest.mark.spread(3)
def test_resolvents_of_classes_solve_them_one_by_one(d, form, intercept, weight, ridge):
    """With the diagonal 2 p (1 - p), which is above the Hessian in the scores."""
    X, _, task = make_rows([12, 20, 9], d, 3)
    y = np.random.default_rng(0).permutation(len(task)) % 3
    table = replace(plain.long_table(X, y.astype(float), task), n_classes=3)
    loss = make_loss(table, task_weight=weight, fit_intercept=intercept, ridge=ridge)
    assert resolvents.narrower(loss, resolvents.room_beside(loss)) == form
    W, S, V = np.random.default_rng(4).standard_normal((3, *loss.shape)) / np.sqrt(d)
    b = loss.intercepts(W).reshape(-1, 3)
    scale = scale_of(table, weight)
    for floor in (0.1, 1.0):
        rho, step = loss.resolvent(0.05, W, floor)
        out = step(W.copy(), S.copy(), V.copy()).reshape(-1, 3, d)
        right = (V + rho * (W - S)).reshape(-1, 3, d)
        for k in range(3):
            x, models = X[task == k], W.reshape(-1, 3, d)[k]
            p = softmax(x @ models.T + b[k], axis=1)
            whole = np.einsum("ic,co->ico", p, np.eye(3)) - p[:, :, None] * p[:, None, :]
            above = 2 * np.einsum("ic,co->ico", p * (1 - p), np.eye(3))
            assert np.linalg.eigvalsh(above - whole).min() > -1e-12
            expected = np.empty((3, d))
            for c in range(3):
                q = (1 - floor) * 2 * p[:, c] * (1 - p[:, c]) + 0.5 * floor
                z = x - (q @ x / q.sum() if intercept else 0.0)
                H = scale[k] * (z.T * q) @ z + (ridge + rho) * np.eye(d)
                expected[c] = np.linalg.solve(H, right[k, c])
            # The loss does not see what all classes share.
            expected += right[k].mean(axis=0) / (rho + ridge) - expected.mean(axis=0)
            np.testing.assert_allclose(out[k], expected, atol=1e-10)


def test_logistic_resolvents_of_extreme_rows(monkeypatch):
    """Slopes that underflow, a task whose rows are all the same, X that is zero."""
    monkeypatch.setattr(losses, "_BLOCK", 8)
    for name in ("short rows", "small", "shared"):
        table, small, _ = LOGISTIC[name]
        small_matrices(monkeypatch, small)
        X = table.X.copy()
        if table.rows is None:
            X[: table.sizes[0]] = X[0]
        for size in (1.0, 1e3, 1e6):
            loss = LogisticLoss(replace(table, X=X * size), 1.0 / table.sizes, True, 0.0)
            W, S, V = np.random.default_rng(4).standard_normal((3, *loss.shape))
            with np.errstate(over="ignore"):  # of the loops as Python functions
                q = loss.slopes(W)
            assert (q >= 0).all() and (q <= 0.25).all()
            for floor in (1e-30, 0.1, 1.0):
                with np.errstate(over="ignore"):
                    rho, step = loss.resolvent(0.1, W, floor)
                assert 0 < rho < np.inf
                assert np.isfinite(step(W.copy(), S.copy(), V.copy())).all()
        for intercept in (True, False):
            for ridge in (0.0, 0.1):
                flat = replace(table, X=np.full(X.shape, 0.3 if intercept else 0.0))
                loss = LogisticLoss(flat, 1.0 / table.sizes, intercept, ridge)
                assert intercept or loss.resolvent(0.1, W, 0.1) is None
                for start in (None, W):
                    for penalty in (TraceNorm(), GroupNorm()):
                        found = minimize(loss, penalty, 0.1, W=start)
                        assert found.converged and not found.W.any()
