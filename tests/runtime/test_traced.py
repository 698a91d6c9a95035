"""Kernels that Python writes down, against numpy."""

import numba
import numpy as np
import pytest

from skpmtl._runtime import traced
from skpmtl._runtime.jit import njit

WIDE = traced.WIDE
compiled = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="of what is put down")


def functions(arguments):
    a, heads, out = arguments
    x, y = a[0], a[1]
    out[0], out[1] = traced.exp(x), traced.log(y)
    out[2] = traced.chosen(x > 0.0, traced.sqrt(y), 2.0)
    out[3] = traced.larger(traced.smaller(x, 1.0 / y), -3.0 + y)
    for n in range(4):
        out[4 + n] = traced.dot(a[2 : 2 + n], a[3:])
    out[8] = traced.pooled(a[4], heads, 1)
    out[9] = a[4] * 1.0
    traced.pool(out[9:10], heads, 0)
    out[10] = traced.held(traced.largest(y - x))
    out[11] = traced.held(traced.largest(traced.chosen(x > 0.0, np.nan, x)))


def control(arguments):
    n, known, steps, a, out = arguments
    made = traced.parts(a, {"one": (), "both": (n, 2), "last": (3,)})
    made.one += 1.0
    for i in traced.loop(1, n):  # nothing where n is 1
        for j in traced.loop(2):
            out[0] = out[0] + made.both[i, j] * (i + 2 * j - 1)
    for i in traced.loop(2):
        out[1 + i] = made.last[i:][1] / steps[i]
    left = traced.held(made.one)
    for _ in traced.loop(99, going=lambda: traced.largest(left) > 0.0):
        left[:] = left - steps[1]
    out[3] = left
    for _ in traced.when(n > 2):
        out[4] = made.last[2]
    for _ in traced.when(n < 2):
        out[5] = made.one
    if known is None:
        out[6] = made.both[n - 1, 0] * traced.chosen(n == 3, 2, 5)


def not_held(arguments):
    (out,) = arguments
    total = out[0]
    for i in traced.loop(out.shape[0]):
        total = total + out[i]
    out[0] = total


def undecided(arguments):
    (out,) = arguments
    out[0] = 1.0 if out[0] > 0.0 else 2.0


traced.traced(functions)
traced.traced(control)
traced.traced(not_held)
traced.traced(undecided)


@njit
def kernel(*arguments):
    functions(arguments)


@njit
def controlled(*arguments):
    control(arguments)


@njit
def forgotten(*arguments):
    not_held(arguments)


@njit
def asked(*arguments):
    undecided(arguments)


def test_functions_of_rows_are_those_of_numpy():
    """Exponentials and logarithms: twelve digits, over all that is allowed."""
    a = np.stack(
        [np.linspace(-700.0, 700.0, WIDE), np.logspace(-300, 300, WIDE)]
        + [np.linspace(i, 3.0 * i, WIDE) for i in range(1, 7)]
    )
    heads = np.arange(WIDE) // [[1], [3]] * [[1], [3]]  # of one, and of three lanes
    out, plain = np.zeros((2, 12, WIDE))
    kernel(a, heads, out)
    functions((a, heads, plain))
    np.testing.assert_allclose(out, plain, rtol=1e-12)
    np.testing.assert_allclose(out[:2], [np.exp(a[0]), np.log(a[1])], rtol=1e-12)
    np.testing.assert_allclose(out[6], a[2] * a[3] + a[3] * a[4], rtol=1e-15)
    np.testing.assert_allclose(out[8], np.bincount(heads[1], a[4])[heads[1]], rtol=1e-15)
    np.testing.assert_array_equal(out[9], a[4])
    np.testing.assert_array_equal(out[11], a[0][a[0] <= 0.0].max())


@pytest.mark.parametrize("n", [1, 3])
def test_loops_and_choices_are_those_of_python(n):
    a = np.random.default_rng(n).normal(size=(4 + 2 * n, WIDE))
    steps = np.array([2.0, 0.25])
    out, plain = np.zeros((2, 7, WIDE))
    for known in (None, True):
        both = a.copy(), a.copy()
        controlled(n, known, steps, both[0], out)
        control((n, known, steps, both[1], plain))
        np.testing.assert_allclose(out, plain, rtol=1e-14)
        np.testing.assert_array_equal(both[0][0], a[0] + 1.0)
    last = a[-3:]
    expected = sum((i + 2 * j - 1) * a[1 + 2 * i + j] for i in range(1, n) for j in range(2))
    np.testing.assert_allclose(out[0], 2 * expected + 0.0 * a[0], rtol=1e-13, atol=1e-15)
    np.testing.assert_array_equal(out[1:3], last[1:] / steps[:, None])
    assert 0.0 >= out[3].max() > -0.25
    np.testing.assert_array_equal(out[4], last[2] * (n > 2))
    np.testing.assert_array_equal(out[5], (a[0] + 1.0) * (n < 2))
    np.testing.assert_array_equal(out[6], a[2 * n - 1] * (2.0 if n == 3 else 5.0))


@compiled
def test_a_row_that_changes_in_a_loop_must_be_held():
    with pytest.raises(RuntimeError, match="dominate"):
        forgotten(np.ones((3, WIDE)))


@compiled
def test_a_number_decides_nothing_while_a_kernel_is_put_down():
    with pytest.raises(TypeError, match="when"):
        asked(np.ones((3, WIDE)))


@compiled
def test_arrays_are_in_c_order_and_of_64_bits():
    a, heads, out = np.ones((9, WIDE)), np.zeros((0, WIDE), dtype=np.int64), np.ones((11, WIDE))
    for wrong, words in [
        ((np.ones((WIDE, 9)).T, heads, out), "C order"),
        ((a, heads.astype(np.int32), out), "not int32"),
        ((a.astype(np.float32), heads, out), "not float32"),
    ]:
        with pytest.raises(TypeError, match=words):
            kernel(*wrong)
