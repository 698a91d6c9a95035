"""Rows held in float32, in half the memory.

And rows that cannot be written, which compiled loops do not tell from others.
"""

import sys

import numpy as np
import pytest

from skpmtl.datasets.generators import make_low_rank_tasks
from skpmtl.tables.forms import read_training

from ..helpers.public import public

pytestmark = pytest.mark.filterwarnings("ignore::skpmtl.PrivacyLeakWarning")

_TASKS = 30


@pytest.fixture(scope="module")
def rows():
    """X of float32, y and task ids, not sorted by task."""
    X, y, task = make_low_rank_tasks(n_tasks=_TASKS, n_samples=24, n_features=9, random_state=0)
    order = np.random.default_rng(0).permutation(len(X))
    return (X[order] + 0.3).astype(np.float32), y[order], task[order]


def made(name, **settings):
    settings = {"tasks": range(_TASKS), "random_state": 0, **settings}
    return public(name)(**settings)


# ------------------------------------------------------------------------------ the table
def table_of(X, y, task, dtype="float32", **settings):
    return read_training(made("MPMTLLowRank", dtype=dtype, **settings), X, y, task)[0]


@pytest.mark.parametrize("dtype", ["float32", np.float32, np.dtype("f4")])
def test_sorted_float32_is_used_in_place(rows, dtype, tmp_path):
    X, y, task = (a[np.argsort(rows[2], kind="stable")] for a in rows)
    assert np.shares_memory(table_of(X, y, task, dtype).X, X)
    path = tmp_path / "X.npy"
    np.save(path, X)
    mapped = np.load(path, mmap_mode="r")
    table = table_of(mapped, y, task, dtype)
    assert np.shares_memory(table.X, mapped) and table.X.dtype == np.float32
    np.testing.assert_array_equal(table.X, X)
    double = table_of(X, y, task, float)
    assert double.X.dtype == np.float64
    np.testing.assert_array_equal(double.X, X)


def test_other_rows_become_float32(rows):
    X, y, task = rows
    order = np.argsort(task, kind="stable")
    wanted = X[order]
    forms = {
        "unsorted": (X, y, task),
        "sorted float64": (wanted.astype(float), y[order], task[order]),
        "unsorted float64": (X.astype(float), y, task),
        "by columns": (np.asfortranarray(wanted.astype(float)), y[order], task[order]),
    }
    for name, form in forms.items():
        table = table_of(*form)
        assert table.X.dtype == np.float32 and table.X.flags.c_contiguous, name
        np.testing.assert_array_equal(table.X, wanted, err_msg=name)
    column = table_of(np.column_stack([task, X.astype(float)]), y, None, task_feature=0)
    assert column.X.dtype == np.float32
    np.testing.assert_array_equal(column.X, wanted)
    whole = table_of(np.rint(4 * X).astype(int), y, task)
    np.testing.assert_array_equal(whole.X, np.rint(4 * wanted))


@pytest.mark.parametrize("dtype", [None, "float16", int, "float31", np.complex128, ">f4"])
def test_other_types_are_refused(rows, dtype):
    X, y, task = rows
    with pytest.raises(ValueError, match=r'dtype=.* must be "float64" or "float32"'):
        made("PrivateMeanRegMTL", dtype=dtype).fit(X, y, task=task)


# ------------------------------------------------------------- rows that cannot be written
def compiled():
    """Number of compiled versions of every kernel, in this process."""
    return {
        (value.__module__, value.__qualname__): len(value.signatures)
        for name, module in list(sys.modules.items())
        if name.startswith("skpmtl")
        for value in vars(module).values()
        if hasattr(value, "signatures") and hasattr(value, "__qualname__")
    }


@pytest.mark.parametrize("name", ["PrivateMeanRegMTLClassifier", "DPMetaInitClassifier"])
def test_weights_and_shared_rows_compile_nothing(rows, name):
    """The largest loops take seconds: ones stand for no weights, and every row for none picked."""
    X, y, task = rows
    X, label, weight = X.astype(float), (y > 0).astype(float), np.linspace(0.1, 1.0, len(y))
    made(name).fit(X, label, task=task)
    before = {loop: n for loop, n in compiled().items() if n}  # others may be met later
    if not before:
        pytest.skip("numba does not compile here")
    made(name).fit(X, label, task=task, sample_weight=weight)
    made(name, tasks=range(2)).fit(X, np.column_stack([label, 1.0 - label]))
    assert {loop: n for loop, n in compiled().items() if loop in before} == before


def test_numbers_beyond_float32_are_refused(rows):
    X, y, task = rows
    large = X.astype(float)
    large[3, 2] = 1e39
    with pytest.raises(ValueError, match='Scale the features, or use dtype="float64"'):
        made("PrivateMeanRegMTL", dtype="float32", epsilon=None).fit(large, y, task=task)
    large[3, 2] = np.inf
    with pytest.raises(ValueError, match="infinity"):
        made("PrivateMeanRegMTL", dtype="float32").fit(large, y, task=task)
