"""Compiled loops against plain numpy, both compiled and as Python functions."""

import ast
from pathlib import Path

import numpy as np
import pytest
from numba import TypingError
from scipy import sparse

import skpmtl
from skpmtl._kernels import grams, linalg, losses, passes
from skpmtl._kernels import rows as rows_kernels
from skpmtl._runtime import registers as _simd
from skpmtl._runtime.jit import njit
from skpmtl.tables.table import read_only
from tests.helpers.trees import tree

_NONE = np.empty(0, dtype=np.int64)


@pytest.fixture(params=["compiled", "python"])
def run(request):
    """The kernel itself, or the Python function under it."""
    if request.param == "compiled":
        return lambda kernel: kernel
    return lambda kernel: getattr(kernel, "py_func", kernel)  # NUMBA_DISABLE_JIT has none


@pytest.fixture
def rows():
    """Rows of tasks of 1, 7 and 4 rows: X (12, 3), y, offsets, scale."""
    rng = np.random.default_rng(0)
    X = read_only(rng.standard_normal((12, 3)))  # as fits hand them over: compiled once
    return X, rng.standard_normal(12), np.array([0, 1, 8, 12]), np.array([1.0, 0.25, 3.0])


@pytest.mark.parametrize("shared", [False, True])
def test_scores_and_combine(run, rows, shared):
    X, y, offsets, scale = rows
    pick = np.random.default_rng(1).integers(0, 12, 12) if shared else _NONE
    seen = X[pick] if shared else X
    W = np.random.default_rng(2).standard_normal((3, 3))
    codes = np.repeat(np.arange(3), np.diff(offsets))
    expected = np.einsum("pj,pj->p", seen, W[codes])
    gathered = np.stack([scale[k] * seen[codes == k].T @ y[codes == k] for k in range(3)])
    S = sparse.csr_matrix(np.where(np.abs(X) > 0.5, X, 0.0))
    thin = S.toarray()[pick] if shared else S.toarray()
    z, out = np.full(12, np.nan), np.full((3, 3), np.nan)
    run(passes.scores)(X, pick, shared, offsets, W, z)
    np.testing.assert_allclose(z, expected, rtol=1e-13)
    run(passes.combine)(X, pick, shared, offsets, y, scale, out)
    np.testing.assert_allclose(out, gathered, rtol=1e-12)
    csr = *map(read_only, (S.data, S.indices, S.indptr)), pick, shared, offsets
    run(passes.csr_scores)(*csr, W, z)
    np.testing.assert_allclose(z, np.einsum("pj,pj->p", thin, W[codes]), atol=1e-14)
    run(passes.csr_combine)(*csr, y, scale, out)
    gathered = np.stack([scale[k] * thin[codes == k].T @ y[codes == k] for k in range(3)])
    np.testing.assert_allclose(out, gathered, atol=1e-13)


@pytest.mark.parametrize("centre", [False, True])
@pytest.mark.parametrize("shared", [False, True])
def test_squared_passes(run, rows, centre, shared):
    X, y, offsets, scale = rows
    pick = np.random.default_rng(1).integers(0, 12, 12) if shared else _NONE
    seen = X[pick] if shared else X
    W = np.random.default_rng(2).standard_normal((3, 3))
    value, b, residual = 0.0, np.zeros(3), np.empty(12)
    for k in range(3):
        part = slice(offsets[k], offsets[k + 1])
        r = y[part] - seen[part] @ W[k]
        b[k] = r.mean() if centre else 0.0
        residual[part] = r - b[k]
        value += 0.5 * scale[k] * np.sum(residual[part] ** 2)
    r, intercept = np.full(12, np.nan), np.full(3, np.nan)
    z = np.einsum("pj,pj->p", seen, W[np.repeat(np.arange(3), np.diff(offsets))])
    got = run(passes.squared_residuals)(z, y, offsets, scale, centre, r, intercept, None)
    assert got == pytest.approx(value, rel=1e-13)
    np.testing.assert_allclose(r, residual, atol=1e-13)
    np.testing.assert_allclose(intercept, b, atol=1e-13)
    run(passes.centre_scores)(z, offsets, None, True)
    assert max(abs(z[offsets[k] : offsets[k + 1]].mean()) for k in range(3)) < 1e-15


# -------------------------------------------------------------------- logistic intercepts
def intercept_of(run, z, y, start=0.0):
    r, b, offsets = np.empty(len(z)), np.array([start]), np.array([0, len(z)])
    value = run(passes.logistic_residuals)(
        np.asarray(z, float), np.asarray(y, float), offsets, np.ones(1), True, r, b, None
    )
    return float(b[0]), r, value


@pytest.mark.parametrize("start", [0.0, 50.0, -1e4])
@pytest.mark.parametrize("size", [1e-3, 1.0, 30.0, 500.0])
@pytest.mark.spread(8)
def test_logistic_intercept_is_stationary(run, size, start):
    rng = np.random.default_rng(3)
    z, y = size * rng.standard_normal(40), np.where(rng.random(40) < 0.3, 1.0, -1.0)
    b, r, value = intercept_of(run, z, y, start)
    assert abs(r.sum()) <= 1e-9
    np.testing.assert_allclose(r, y / (1 + np.exp(np.clip(y * (z + b), -700, 700))), atol=1e-12)
    assert value == pytest.approx(np.logaddexp(0, -y * (z + b)).sum(), rel=1e-12)
    for other in (b - 1e-3, b + 1e-3):
        assert np.logaddexp(0, -y * (z + other)).sum() >= value * (1 - 1e-14)


@pytest.mark.parametrize("gap", [1e-6, 1.0, 100.0, 1e4])
def test_logistic_intercept_of_separated_scores(run, gap):
    """All of one class above all of the other: the optimum lies between the two."""
    z, y = np.array([-gap, -gap - 1, gap, gap + 2]), np.array([-1.0, -1, 1, 1])
    b, r, value = intercept_of(run, z, y)
    assert -gap - 2 <= b <= gap + 1
    assert np.isfinite(value) and abs(r.sum()) <= 1e-9
    # The classes exchanged: every row is on the wrong side.
    b, r, value = intercept_of(run, z, -y)
    assert abs(r.sum()) <= 1e-9
    assert value == pytest.approx(np.logaddexp(0, y * (z + b)).sum(), rel=1e-12)


def test_logistic_value_of_extreme_scores(run):
    """Neither overflow nor loss of the small value of a row that is far on the right side."""
    for t in (-1e3, -745.0, -40.0, -1e-9, 0.0, 1e-9, 0.5, 36.0, 40.0, 700.0, 1e3):
        for label in (-1.0, 1.0):
            z, y, r, b = np.array([label * t]), np.array([label]), np.empty(1), np.zeros(1)
            ends = np.array([0, 1])
            value = run(passes.logistic_residuals)(z, y, ends, np.ones(1), False, r, b, None)
            assert value == pytest.approx(np.logaddexp(0.0, -t), rel=1e-14), t
            assert r[0] == pytest.approx(label * np.exp(-np.logaddexp(0.0, t)), rel=1e-12), t


# --------------------------------------------------------------------------- Gram matrices
@pytest.mark.parametrize("centre", [False, True])
def test_build_grams_and_product(run, rows, centre):
    X, y, offsets, scale = rows
    G, g = np.full((3, 3, 3), np.nan), np.full((3, 3), np.nan)
    scratch = np.zeros((7, 8)), np.empty((4, 8))
    square = run(grams.build_grams)(X, y, offsets, scale, centre, G, g, *scratch, None)
    expected = 0.0
    for k in range(3):
        x, v = X[offsets[k] : offsets[k + 1]], y[offsets[k] : offsets[k + 1]]
        if centre:
            x, v = x - x.mean(axis=0), v - v.mean()
        np.testing.assert_allclose(G[k], scale[k] * x.T @ x, atol=1e-13)
        np.testing.assert_allclose(g[k], scale[k] * x.T @ v, atol=1e-13)
        expected += scale[k] * v @ v
    assert square == pytest.approx(expected, rel=1e-13)
    W, out = np.random.default_rng(4).standard_normal((3, 3)), np.empty((3, 3))
    run(grams.gram_product)(G, W, out)
    np.testing.assert_allclose(out, np.einsum("kij,kj->ki", G, W), atol=1e-13)


def _narrow(run):
    def inverse(A):
        R = A.shape[1] + A.shape[1] % 2
        return run(linalg.spd_inverse_narrow)(A, np.full((R, R, 8), np.nan), np.zeros((4, R, 8)))

    return inverse


INVERSES = [lambda run: run(linalg.spd_inverse), _narrow]


@pytest.mark.parametrize("d, m", [(1, 4), (2, 65), (5, 4), (30, 3)])
@pytest.mark.parametrize("inverse", INVERSES, ids=["one by one", "side by side"])
@pytest.mark.spread(8)
def test_spd_inverse(run, inverse, d, m):
    rng = np.random.default_rng(d)
    Z = rng.standard_normal((m, 2 * d, d)) * np.geomspace(1, 1e3, d)
    A = np.matmul(Z.transpose(0, 2, 1), Z) + 1e-3 * np.eye(d)
    out = A.copy()
    assert inverse(run)(out)
    np.testing.assert_array_equal(out, out.transpose(0, 2, 1))
    np.testing.assert_allclose(np.matmul(A, out), np.tile(np.eye(d), (m, 1, 1)), atol=1e-7)


@pytest.mark.parametrize(
    "bad", [np.diag([1.0, -1e-9, 2.0]), np.zeros((3, 3)), np.full((3, 3), np.nan)]
)
@pytest.mark.parametrize("inverse", INVERSES, ids=["one by one", "side by side"])
@pytest.mark.spread(4)
def test_spd_inverse_refuses(run, inverse, bad):
    assert not inverse(run)(np.stack([np.eye(3), bad]))


def arithmetic(a, i, out):
    x, y = _simd.load(a, i, 3), _simd.same(a, i, 1)
    z = (x - 2.0 * y) / (1.5 + _simd.splat(a[0, 0])) + x * x
    _simd.store(out, 0, 1, z)
    out[1, 0] = _simd.total(z)


def test_eight_at_a_time(run):
    a = np.random.default_rng(1).standard_normal((4, 12))
    a[2, 5] = np.nan
    for i in (1, 2):
        out = np.full((2, 10), 7.0)
        run(njit(arithmetic))(a, i, out)
        x, y = a[i, 3:11], a[i, 1]
        z = (x - 2 * y) / (1.5 + a[0, 0]) + x * x
        expected = np.full((2, 10), 7.0)
        expected[0, 1:9] = z
        expected[1, 0] = np.sum(z)
        np.testing.assert_allclose(out, expected, rtol=1e-13)


def test_no_loop_adds_up_and_stores():
    """The order of summation of such loops depends on addresses; see `skpmtl._runtime.jit`."""
    folder = Path(skpmtl.__file__).parent / "_kernels"
    found, loops = [], 0
    for path in sorted(folder.glob("*.py")):
        for loop in ast.walk(tree(path)):
            inside = list(ast.walk(loop))[1:]
            if not isinstance(loop, (ast.For, ast.While)):
                continue
            if any(isinstance(node, (ast.For, ast.While)) for node in inside):
                continue
            loops += 1
            stores = [
                node
                for node in inside
                if isinstance(node, (ast.Assign, ast.AugAssign))
                and any(
                    isinstance(target, ast.Subscript)
                    for target in getattr(node, "targets", [getattr(node, "target", None)])
                )
            ]
            fresh = {  # starts anew in every turn of the loop
                target.id
                for node in inside
                if isinstance(node, ast.Assign)
                for target in node.targets
                if isinstance(target, ast.Name)
            }
            sums = [
                node
                for node in inside
                if isinstance(node, ast.AugAssign)
                and isinstance(node.target, ast.Name)
                and node.target.id not in fresh
                and not (isinstance(node.value, ast.Constant) and isinstance(node.value.value, int))
            ]
            if stores and sums:
                found.append(f"{path.name}:{loop.lineno} {ast.unparse(sums[0])}")
    assert loops > 100
    assert found == []


def test_registers_take_rows_in_c_order_only():
    """Eight numbers are read from where the first one lies."""

    @njit
    def first(a):
        return _simd.total(_simd.load(a, 0, 0))

    a = np.arange(64.0).reshape(8, 8)
    assert first(a) == 28.0
    for wrong in (a.T, a[:, ::2]):
        with pytest.raises(TypingError):
            first(wrong)


@pytest.mark.parametrize("centre", [False, True])
@pytest.mark.parametrize("form", ["dense", "picked", "sparse"])
@pytest.mark.spread(6)
def test_curvatures_are_power_steps(run, form, centre):
    """Also of a task whose rows are copied piece by piece, and of odd numbers of rows."""
    sizes, d = np.array([1, 7, 4, 75]), 5
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    near = 16
    X = np.random.default_rng(0).standard_normal((offsets[-1], d))
    X[np.abs(X) < 0.5] = 0.0
    pick = np.random.default_rng(1).permutation(len(X)) if form == "picked" else np.arange(len(X))
    csr = sparse.csr_matrix(X)
    parts = (csr.data, csr.indices, csr.indptr) if form == "sparse" else (None, None, None)
    parts = [part if part is None else read_only(part) for part in parts]
    out = np.full(4, np.nan)
    dense = read_only(np.empty((0, d)) if form == "sparse" else X)
    scratch = (None, None, near, np.zeros((3, 8)), np.zeros((near + 1, 8)))
    if form == "sparse":
        place, columns = np.full(d, -1), np.empty(d, dtype=np.int64)
        scratch = place, columns, near, np.zeros((3, 8)), np.empty((0, 8))
    each = np.ones(len(X))
    run(rows_kernels.curvatures)(dense, *parts, pick, offsets, centre, 2, *scratch, out, each)
    start = (0.5 + 0.6180339887498949 * np.arange(1, d + 1) % 1.0) * (-1.0) ** np.arange(d)
    seen = X[pick]
    for k in range(4):
        A = seen[offsets[k] : offsets[k + 1]]
        A = A - A.mean(axis=0) if centre else A
        v = A.T @ A @ start
        expected = v @ A.T @ A @ v / (v @ v) if A.any() else 0.0
        assert out[k] == pytest.approx(expected, rel=1e-12)


def test_losses_of_extreme_scores(run):
    """Values, derivatives and probabilities where exp overflows or 1 - p would cancel."""
    for t in (-1e3, -745.0, -40.0, 0.0, 0.5, 40.0, 700.0, 1e3):
        assert run(losses.other_class)(t) == pytest.approx(np.exp(-np.logaddexp(0.0, t)), rel=1e-12)
        assert run(losses.logistic_loss)(t) == pytest.approx(np.logaddexp(0.0, -t), rel=1e-14)
    z, p = np.array([[1e3, 1e3 - 2.0, -1e3], [0.0, 0.0, 0.0]]), np.empty((1, 3))
    top, mass = run(losses.softmax)(z, 0, p, 0)
    assert top == 1e3 and mass == pytest.approx(1.0 + np.exp(-2.0), rel=1e-14)
    np.testing.assert_allclose(p[0], np.array([1.0, np.exp(-2.0), 0.0]) / mass, rtol=1e-14)
    run(losses.residuals)(z, np.array([0.0, 2.0]), 0, 2, 2)
    np.testing.assert_allclose(z, [[*(p[0, :2] - [1.0, 0.0]), 0.0], [1 / 3, 1 / 3, -2 / 3]])
