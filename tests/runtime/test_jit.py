"""Compiled code that cannot be kept, or was damaged on the disk, is compiled afresh."""

import gc
import os
import runpy

import numba
import numpy as np
import pytest

from skpmtl._runtime import jit as _jit

KERNEL = """
from skpmtl._runtime.jit import njit

@njit
def double(x):
    return x + x
"""


@pytest.fixture
def call(tmp_path, monkeypatch, caplog):
    """Runs the kernel as a new process would, and gives back whether its code was on the disk."""
    source = tmp_path / "kernel.py"
    source.write_text(KERNEL)

    def call(cache=tmp_path / "cache", said=""):
        monkeypatch.setattr(numba.config, "CACHE_DIR", str(cache))
        monkeypatch.setattr(_jit, "_reported", [])
        monkeypatch.setattr(_jit, "_PATIENCE", 1e3)
        caplog.clear()
        double = runpy.run_path(str(source))["double"]
        assert double(2.5) == 5.0 and double(1.5) == 3.0
        assert said in caplog.text and bool(said) == bool(caplog.text), caplog.text
        return sum(double.stats.cache_hits.values()) == 1

    return call


def files(tmp_path, ending):
    found = sorted((tmp_path / "cache").rglob(f"kernel.double*.{ending}"))
    assert found
    return found


def damage(content, way):
    rng = np.random.default_rng(0)
    if way == "empty":
        return b""
    if way == "half":
        return content[: len(content) // 2]
    if way == "last byte":
        return content[:-1]
    if way == "garbage":
        return rng.bytes(len(content))
    changed = bytearray(content)  # a bit of the code itself
    changed[len(content) // 2] ^= 4
    return bytes(changed)


def test_damaged_files_are_compiled_afresh_and_replaced(call, tmp_path):
    assert not call()
    assert call()
    for ending in ("nbi", "nbc"):
        for way in ("empty", "half", "last byte", "garbage", "bit"):
            for path in files(tmp_path, ending):
                path.write_bytes(damage(path.read_bytes(), way))
            assert not call(), (ending, way)
            if way in ("half", "bit"):
                assert call(), (ending, way)  # the bad file was replaced
    files(tmp_path, "nbc")[0].unlink()
    assert not call()
    assert call()


@pytest.mark.skipif(os.name != "posix", reason="folders and files of posix")
@pytest.mark.parametrize("what", ["index is a folder", "code is a folder", "folder is a file"])
def test_files_that_cannot_be_opened(what, call, tmp_path, monkeypatch):
    """Root may read everything, and so a folder stands for what cannot be read or replaced."""
    if what == "folder is a file":
        (tmp_path / "file").write_text("")
        if not hasattr(numba.config, "CACHE_LOCATOR_CLASSES"):
            pytest.skip("this numba goes on to another folder")
        monkeypatch.setattr(numba.config, "CACHE_LOCATOR_CLASSES", "UserProvidedCacheLocator")
        assert not call(cache=tmp_path / "file")
        return
    call()
    path = files(tmp_path, "nbi" if what.startswith("index") else "nbc")[0]
    path.unlink()
    path.mkdir()
    assert not call(said="this process compiles afresh")


def test_a_change_in_another_file_of_kernels_compiles_afresh(call, monkeypatch):
    assert not call() and call()
    changed = ((name, time + (name == "traced.py"), size) for name, time, size in _jit._STAMPS)
    monkeypatch.setattr(_jit, "_STAMPS", tuple(changed))
    assert not call() and call()


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_rests_while_a_kernel_is_compiled(tmp_path, monkeypatch, enabled):
    """And is as it was before, also after an error."""
    seen = []
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))

    @_jit.njit
    def double(x):
        return x + x

    compile_ = numba.core.compiler.compile_extra
    monkeypatch.setattr(
        numba.core.compiler,
        "compile_extra",
        lambda *args, **kw: (seen.append(gc.isenabled()), compile_(*args, **kw))[1],
    )
    was = gc.isenabled()
    try:
        gc.enable() if enabled else gc.disable()
        assert double(2.0) == 4.0 and gc.isenabled() == enabled
        with pytest.raises(numba.core.errors.TypingError):
            double(None)
        assert gc.isenabled() == enabled and seen == [False, False]
    finally:
        gc.enable() if was else gc.disable()


def test_kernels_that_make_arrays_count_references():
    @_jit.njit
    def made(n):
        a = np.empty(n)
        for i in range(n):
            a[i] = i
        return a[n - 1]

    @_jit.njit
    def given(a):
        row = a[1]
        row[0] = made(3)
        return row[0]

    assert given(np.zeros((2, 2))) == 2.0
    assert made.targetoptions["_nrt"] and not given.targetoptions["_nrt"]


@pytest.mark.parametrize(("patience", "times"), [(0.01, 1), (60.0, 0)])
def test_compiling_for_longer_is_said_once(tmp_path, monkeypatch, caplog, patience, times):
    """Not at all where the disk has the code, which is there from the second run on."""
    source = tmp_path / "kernel.py"
    source.write_text(KERNEL)
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(_jit, "_PATIENCE", patience)
    wait = _jit._Wait()
    monkeypatch.setattr(_jit, "_wait", wait)
    for x in (2.5, 2j):
        runpy.run_path(str(source))["double"](x)
    assert caplog.text.count("skpmtl.warm") == times
    assert 0.0 < wait.seconds or times
    again = _jit._Wait()
    monkeypatch.setattr(_jit, "_wait", again)
    monkeypatch.setattr(_jit, "_PATIENCE", 60.0)
    runpy.run_path(str(source))["double"](2.5)
    assert again.seconds == 0.0
