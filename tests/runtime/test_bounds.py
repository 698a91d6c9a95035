"""``python -m tests.bounds``: indices that numba lets pass end in an error."""

import pytest

from tests.helpers.apart import apart

PROGRAM = """
import numba
import numpy as np

from skpmtl._runtime.traced import WIDE, dot, traced
from tests.bounds import check_indices

numba.config.BOUNDSCHECK = 1
check_indices()

@numba.njit
def number(a, i, j):
    return a[i, j]

def of_rows(arguments):
    rows, i, j = arguments
    rows[i] = dot(rows[i:j], rows[i:])

traced(of_rows)

@numba.njit
def wide(rows, i, j):
    of_rows((rows, i, j))

def refused(function, i, j):
    try:
        function(rows if function is wide else a, i, j)
    except IndexError:
        return True
    return False

a, rows = np.ones((6, 12)), np.ones((6, WIDE))
wide(rows, 2, 6)
assert rows.sum() == 6 * WIDE + 3 * WIDE
assert number(a, 5, 11) == 1
for function, i, j in [
    (number, 6, 0), (number, 0, 12), (number, 0, -1),
    (wide, 6, 6), (wide, 0, 7), (wide, -1, 3),
]:
    assert refused(function, i, j), (function, i, j)
print("done")
"""


@pytest.mark.slow  # seconds of compilation, and of ``make test-bounds`` alone
def test_what_lies_past_the_end_is_refused(tmp_path):
    assert apart(PROGRAM, tmp_path) == "done\n"
