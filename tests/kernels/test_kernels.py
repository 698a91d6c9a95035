"""Compiled loops against plain numpy, both compiled and as Python functions."""

import ast
from pathlib import Path

import numpy as np
import pytest

import skpmtl
from skpmtl._kernels import linalg, losses, passes
from skpmtl._runtime.traced import WIDE
from skpmtl.solvers.ridge import Multinomial
from skpmtl.tables.datafits import LOGISTIC
from tests.helpers.trees import tree


@pytest.fixture(params=["compiled", "python"])
def run(request):
    """The kernel itself, or the Python function under it."""
    if request.param == "compiled":
        return lambda kernel: kernel
    return lambda kernel: getattr(kernel, "py_func", kernel)  # NUMBA_DISABLE_JIT has none


# -------------------------------------------------------------------- logistic intercepts
def intercept_of(run, z, y, start=0.0):
    r, b, offsets = np.empty(len(z)), np.array([start]), np.array([0, len(z)])
    value = run(passes.logistic_residuals)(
        np.asarray(z, float), np.asarray(y, float), offsets, np.ones(1), True, r, b, np.ones(len(z))
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
            ends, one = np.array([0, 1]), np.ones(1)
            value = run(passes.logistic_residuals)(z, y, ends, one, False, r, b, one)
            assert value == pytest.approx(np.logaddexp(0.0, -t), rel=1e-14), t
            assert r[0] == pytest.approx(label * np.exp(-np.logaddexp(0.0, t)), rel=1e-12), t


# --------------------------------------------------------------------------- Gram matrices
def _narrow(run):
    def inverse(A):
        r = A.shape[1]
        scratch = np.full((r, r, WIDE), np.nan), np.zeros((r, WIDE)), np.zeros((1, WIDE))
        return run(linalg.spd_inverse_narrow)(A, *scratch)

    return inverse


def _one_by_one(run):
    return lambda A: all([run(linalg.spd_inverse)(a) for a in A])


INVERSES = [_one_by_one, _narrow]


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
    with np.errstate(divide="ignore", invalid="ignore"):  # as compiled loops do
        assert not inverse(run)(np.stack([np.eye(3), bad]))


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


def test_losses_of_extreme_scores(run):
    """Values, derivatives and probabilities where exp overflows or 1 - p would cancel."""
    for t in (-745.0, -40.0, 40.0, 745.0):  # p and p (1 - p) are exp(-|t|), to within its square
        slope, curvature = LOGISTIC.derivatives(np.array([1.0, -1.0]), np.array([t, -t]))
        small, tiny = np.exp(-abs(t)), np.finfo(float).tiny  # expit ends there
        np.testing.assert_allclose(curvature, [small, small], rtol=1e-13, atol=tiny)
        other = small if t > 0 else 1.0
        np.testing.assert_allclose(slope, [-other, other], rtol=1e-13, atol=tiny)
    for t in (-1e3, -745.0, -40.0, 0.0, 0.5, 40.0, 700.0, 1e3):
        assert run(losses.other_class)(t) == pytest.approx(np.exp(-np.logaddexp(0.0, t)), rel=1e-12)
    z, mass = np.array([[1e3, 1e3 - 2.0, -1e3], [0.0, 0.0, 0.0]]), 1.0 + np.exp(-2.0)
    label, expected = np.array([1.0, 2.0]), [2.0 + np.log(mass), np.log(3.0)]
    np.testing.assert_allclose(Multinomial().values(label, z), expected, rtol=1e-13)
    slope, p = Multinomial().exact(np.array([0.0, 2.0]), z)
    np.testing.assert_allclose(p[0], np.array([1.0, np.exp(-2.0), 0.0]) / mass, rtol=1e-14)
    for i in range(2):
        run(losses.residuals)(z[i : i + 1], np.array([0.0, 2.0]), i, 2)
    np.testing.assert_allclose(z, [[*(p[0, :2] - [1.0, 0.0]), 0.0], [1 / 3, 1 / 3, -2 / 3]])
    np.testing.assert_allclose(slope, z, rtol=1e-14)
