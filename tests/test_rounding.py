"""The option --rounding: which bits change, and that a test which hangs on them fails."""

import numpy as np
from numpy.testing import assert_array_equal
from scipy import sparse

from tests.rounding import rounded


def test_last_bits_change_and_nothing_else():
    a = np.random.default_rng(0).normal(size=(400, 5))
    out = rounded(a, 1)
    changed = out.view(np.uint64) ^ a.view(np.uint64)
    assert set(np.unique(changed)) == {0, 1}
    # 2000 fair coins, at five standard deviations.
    assert abs((changed == 1).mean() - 0.5) < 0.06
    assert abs((out.view(np.uint64) % 2).mean() - 0.5) < 0.06
    assert rounded(out, 1) is out
    assert (rounded(a, 2) != out).any()
    assert_array_equal(rounded(a[::-1, ::2], 1), out[::-1, ::2])  # by value, in any layout


def test_what_is_kept():
    kept = np.array([0.0, -0.0, 1.0, -3.0, 2.0**53, 1e300, np.inf, -np.inf, np.nan, 5e-324])
    single = np.random.default_rng(0).normal(size=50).astype(np.float32)
    for seed in range(20):
        for other in (kept, single, single.astype(float)):
            assert rounded(other, seed) is other
    for other in (np.arange(5), np.array(["a"]), np.array([0.1], dtype=object), None, "X"):
        assert rounded(other, 1) is other


def test_sparse_rows():
    dense = np.random.default_rng(0).normal(size=(30, 4))
    dense[dense < 0] = 0.0
    given = sparse.csr_matrix(dense)
    out = rounded(given, 3)
    assert_array_equal(out.toarray(), rounded(dense, 3))
    assert_array_equal(given.toarray(), dense)
    assert rounded(out, 3) is out
