"""Instructions for eight numbers with pointers that do not know what they point to."""

import numpy as np
import pytest

from skpmtl._runtime import registers

pytestmark = pytest.mark.skipif(not registers._ASKED, reason="llvmlite has typed pointers only")


def test_rows_are_those_of_numpy():
    """Whole rows, exponentials and logarithms: twelve digits, over all that is allowed."""
    from skpmtl._runtime.jit import njit
    from skpmtl._runtime.registers import (
        chosen,
        dot,
        exp,
        larger,
        log,
        pooled,
        row,
        set_row,
        smaller,
        sqrt,
    )

    @njit
    def kernel(a, heads, out):
        x, y = row(a, 0), row(a, 1)
        set_row(out, 0, exp(x))
        set_row(out, 1, log(y))
        set_row(out, 2, chosen(x, sqrt(y), 2.0))
        set_row(out, 3, larger(smaller(x, 1.0 / y), -3.0 + y))
        for n in range(4):
            set_row(out, 4 + n, dot(a, 2, 2, 3, 1, n))
        set_row(out, 8, row(a, 4))
        set_row(out, 9, pooled(out, 8, heads, 1))

    a = np.stack(
        [np.linspace(-700.0, 700.0, registers.WIDE), np.logspace(-300, 300, registers.WIDE)]
        + [np.linspace(i, 3.0 * i, registers.WIDE) for i in range(1, 7)]
    )
    out, expected = np.empty((10, registers.WIDE)), np.empty((10, registers.WIDE))
    heads = np.arange(registers.WIDE) // [[1], [3]] * [[1], [3]]  # of one, and of three lanes
    kernel(a, heads, out)
    getattr(kernel, "py_func", kernel)(a, heads, expected)
    np.testing.assert_allclose(out, expected, rtol=1e-12)
    np.testing.assert_allclose(out[:2], [np.exp(a[0]), np.log(a[1])], rtol=1e-12)
