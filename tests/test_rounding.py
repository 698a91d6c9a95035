"""The option --rounding: which bits change, and that a test which hangs on them fails."""

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse

from tests.conftest import Part
from tests.rounding import rounded

ROOT = Path(__file__).parents[1]


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


# Products with 8 are exact, so that all of these pass without the option.
PLANTED = """
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from skpmtl import FedMTLRegressor, PrivateMeanRegMTL
from skpmtl.fedmtl import clients
from skpmtl.tables.forms import read_training

X = np.sin(np.arange(60.0)).reshape(20, 3)
task = np.repeat([0, 1], 10)

def test_fit():
    one, eight = (read_training(PrivateMeanRegMTL(), Z, Z[:, 0], task)[0] for Z in (X, 8 * X))
    assert_array_equal(8 * one.X, eight.X)
    assert_array_equal(8 * one.y, eight.y)

@pytest.mark.exact_bits("products with 8")
def test_exact():
    test_fit()

def test_predict():
    est = PrivateMeanRegMTL(epsilon=None, fit_intercept=False)
    est.fit(np.round(9 * X), np.arange(20.0), task=task)
    assert_array_equal(8 * est.predict(X, task=task), est.predict(8 * X, task=task))

def test_clients():
    est = FedMTLRegressor()
    tables = [clients.read_training(est, Z, Z[:, 0], task, None) for Z in (X, 8 * X)]
    assert_array_equal(8 * tables[0][0].X, tables[1][0].X)

def test_rows_of_clients():
    est = FedMTLRegressor()
    one, eight = (clients.read_rows(est, Z, task, None).features() for Z in (X, 8 * X))
    assert_array_equal(8 * one, eight)
"""


BOTH = """
import sys
import pytest
*command, one, other = sys.argv[1:]
print(pytest.main([*command, one]), pytest.main([*command, "--rounding", "1", other]))
"""


@pytest.mark.slow  # a program of its own
def test_option_finds_what_hangs_on_rounding(tmp_path):
    """One program, as most of the time is that of its imports; without the option first."""
    for name in ("one", "other"):
        (tmp_path / f"test_{name}.py").write_text(PLANTED)
    command = ["-q", "-c", ROOT / "pyproject.toml", "--rootdir", ROOT, "-p", "tests.conftest"]
    command += ["-p", "no:cacheprovider", tmp_path / "test_one.py", tmp_path / "test_other.py"]
    done = subprocess.run(
        [sys.executable, "-c", BOTH, *command], cwd=ROOT, capture_output=True, text=True
    )
    first, second = re.findall(r"^(.*) in [\d.]+s$", done.stdout, re.MULTILINE)
    assert (first, second) == ("5 passed", "4 failed, 1 skipped"), done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].split() == ["0", "1"]


def test_parts_meet_every_case_once():
    cases, left = list(range(50)), []
    hook = SimpleNamespace(pytest_deselected=lambda items: left.extend(items))
    config, found = SimpleNamespace(hook=hook), []
    for k in range(4):
        items = cases.copy()
        Part(f"{k}/4").pytest_collection_modifyitems(config, items)
        assert len(items) in (12, 13)
        assert {case % 4 for case in items} == set(range(4))  # of values that take turns
        found += items
    assert sorted(found) == cases
    assert sorted(left) == sorted(3 * cases)
