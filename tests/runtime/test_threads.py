"""Any number of threads gives the same numbers, and there are never more than allowed."""

import importlib
import os
import sys
import threading
import time
from pathlib import Path

import joblib
import numba
import numpy as np
import pytest
import threadpoolctl

import skpmtl
from skpmtl._runtime import threads
from skpmtl._runtime.jit import njit
from tests.helpers.apart import apart

pytestmark = pytest.mark.filterwarnings("ignore::skpmtl.PrivacyLeakWarning")


@pytest.fixture
def n_threads():
    """`set_num_threads`, undone afterwards."""
    yield skpmtl.set_num_threads
    skpmtl.set_num_threads(None)


class Gauge:
    """How many threads are inside `work` at once."""

    def __init__(self):
        self.inside, self.most, self.names = 0, 0, set()
        self.lock = threading.Lock()

    def work(self, first, last):
        with self.lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
            self.names.add(threading.current_thread().name)
        time.sleep(0.002)
        with self.lock:
            self.inside -= 1
        return first


def test_run_blocks_uses_the_threads_it_may(n_threads):
    blocks = [(i, i + 1) for i in range(40)]
    for count in (1, 2, 3):
        n_threads(count)
        gauge = Gauge()
        assert threads.run_blocks(gauge.work, blocks) == list(range(40))
        assert gauge.most == count


def test_joblib_threads_share_the_limit(n_threads):
    """Four callers and a limit of two: no helper joins, the callers themselves are four."""
    n_threads(2)
    gauge, blocks = Gauge(), [(i, i + 1) for i in range(30)]
    joblib.Parallel(n_jobs=4, backend="threading")(
        joblib.delayed(threads.run_blocks)(gauge.work, blocks) for _ in range(8)
    )
    # A helper may be between two blocks when a caller comes.
    assert gauge.most <= 5
    assert threads._state.working == 0


def test_an_error_in_a_block_reaches_the_caller(n_threads):
    def work(first, last):
        if first == 7:
            raise ZeroDivisionError("block 7")
        return first

    for count in (1, 3):
        n_threads(count)
        with pytest.raises(ZeroDivisionError, match="block 7"):
            threads.run_blocks(work, [(i, i + 1) for i in range(30)])
        assert threads._state.working == 0
        assert threads.run_blocks(work, [(0, 1), (1, 2)]) == [0, 1]


def test_setting_and_default(n_threads, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.delenv("SKPMTL_NUM_THREADS", raising=False)
    assert skpmtl.get_num_threads() == 3
    monkeypatch.setenv("SKPMTL_NUM_THREADS", "4")
    assert skpmtl.get_num_threads() == 4
    n_threads(2)
    assert skpmtl.get_num_threads() == 2
    for bad, error in ((0, ValueError), (-1, ValueError), (1.5, TypeError), (True, TypeError)):
        with pytest.raises(error, match=f"n_threads={bad}"):
            skpmtl.set_num_threads(bad)
    assert skpmtl.get_num_threads() == 2


def _blas_threads():
    libraries = threadpoolctl.threadpool_info()
    return [one["num_threads"] for one in libraries if one["user_api"] == "blas"]


def test_blas_limit_is_lifted_by_the_last():
    """Contexts of several threads that overlap without being nested."""
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        before = _blas_threads()
        one, two = threads.single_blas_thread(), threads.single_blas_thread()
        one.__enter__()
        two.__enter__()
        one.__exit__(None, None, None)
        assert set(_blas_threads()) == {1}
        two.__exit__(None, None, None)
        assert _blas_threads() == before


def test_task_blocks():
    offsets = np.array([0, 3, 4, 10, 11, 12])
    assert threads.task_blocks(offsets, 2, 8) == [(0, 2), (2, 3), (3, 5)]
    assert threads.task_blocks(offsets, 100, 8) == [(k, k + 1) for k in range(5)]
    assert threads.task_blocks(offsets, 1, 100) == [(0, 5)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_starts_its_own_threads(tmp_path):
    program = """
import os, sys, skpmtl
from skpmtl._runtime import threads
skpmtl.set_num_threads(2)
work = lambda first, last: first
blocks = [(i, i + 1) for i in range(50)]
assert threads.run_blocks(work, blocks) == list(range(50))
child = os.fork()
if not child:
    ok = skpmtl.get_num_threads() == 2 and threads.run_blocks(work, blocks) == list(range(50))
    os._exit(0 if ok else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    apart(program, tmp_path)


def test_processes_that_compile_at_once_find_their_own_code(tmp_path, monkeypatch):
    """Two of them, with other types, neither of which sees what the other writes (numba #10128)."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")  # beside the file
    path = tmp_path / "shared_kernel.py"
    path.write_text("def double(a):\n    return 2 * a.flat[0]\n")
    monkeypatch.syspath_prepend(tmp_path)
    double = importlib.import_module("shared_kernel").double
    whole, real = np.array([[3]]), np.array([2.5])
    first, second = njit(double), njit(double)
    files = first._cache._cache_file, second._cache._cache_file
    save_data = files[0]._save_data

    def meanwhile(name, data):
        with monkeypatch.context() as patch:
            patch.setattr(files[1], "_load_index", dict)  # it looked before the first one wrote
            assert second(real) == 5.0
        save_data(name, data)

    monkeypatch.setattr(files[0], "_save_data", meanwhile)
    assert first(whole) == 6
    later = njit(double)
    assert (later(real), later(whole)) == (5.0, 6)
    assert sum(later.stats.cache_hits.values()) == 2  # nothing was lost either

    path.write_text("def double(a):\n    return a.flat[0] + a.flat[0]  # changed\n")
    importlib.invalidate_caches()
    changed = njit(importlib.reload(sys.modules["shared_kernel"]).double)
    assert changed(real) == 5.0 and not changed.stats.cache_hits
    left = [name for name in Path(tmp_path, "__pycache__").iterdir() if name.suffix == ".nbc"]
    assert len(left) == 1  # none of an older version
