"""Compiled loops: one `njit` with the options that are safe here, and a fallback."""

import gc
import hashlib
import logging
import os
import pickle
import threading
import time
from contextlib import contextmanager
from functools import partial
from glob import escape, glob
from pathlib import Path

import numba

logger = logging.getLogger("skpmtl.compiling")
# Sums may be reordered, which lets dot products use vector instructions. The flags that
# assume the absence of NaN or infinity stay off: they would void the clipping.
# A loop that adds up must not store as well: the compiler would choose between two orders of the
# sum by where the arrays happen to lie in memory, and no two fits would agree to the last bit.
_FASTMATH = {"reassoc", "contract"}
_DIGEST = hashlib.sha256().digest_size
# Of every file of which a loop may have taken code in: numba looks at the one that defines it only.
_STAMPS = tuple(
    (path.name, path.stat().st_mtime_ns, path.stat().st_size)
    for room in ("_runtime", "_kernels")
    for path in sorted((Path(__file__).parent.parent / room).glob("*.py"))
)
# Kernels that make arrays. The others need not count who holds those that they are given, which is
# an eighth of their code and of the time that they take to compile.
_ALLOCATING = {"empty", "zeros", "full", "copy"}
_reported: list[str] = []  # whether a missing cache directory has been reported
_PATIENCE = 1.0  # seconds that a process compiles before it says so


def njit(function):
    """Compile a kernel, cached on disk where that is possible.

    ``cache=True`` raises at import time when neither the package folder nor a user
    cache folder can be written (numba issue 4908), and when a loop is called whose files are
    damaged, unreadable, or have no room on the disk; such a process compiles afresh, and
    ``NUMBA_CACHE_DIR`` names a writable folder. ``parallel`` stays off because numba's
    default threading layer aborts the process under joblib's threads; ``nogil`` lets plain
    threads run a kernel on blocks of tasks side by side. Code on the disk serves as long as no file
    of `_kernels` and `_runtime` was changed.
    """
    options = _options(function)
    try:
        compiled = numba.njit(cache=True, **options)(function)
    except (RuntimeError, OSError):
        compiled = numba.njit(**options)(function)
    if hasattr(compiled, "compile"):  # not with NUMBA_DISABLE_JIT
        compiled.compile = partial(_compile, compiled.compile)
        _protect(getattr(compiled, "_cache", None))
    return compiled


def inner(function):
    """Compile what kernels of its own file call, into them: not for Python, nor for the disk."""
    return numba.njit(no_cpython_wrapper=True, **_options(function))(function)


def _options(function):
    return {
        "error_model": "numpy",
        "fastmath": _FASTMATH,
        "nogil": True,
        "no_cfunc_wrapper": True,  # nothing takes a kernel for a pointer to a function
        "_nrt": not _ALLOCATING.isdisjoint(function.__code__.co_names),
    }


_USED = (
    "save",
    "_load_index",
    "_load_data",
    "_save_index",
    "_save_data",
    "_data_name",
    "_data_path",
    "_dump",
    "_index_path",
    "_source_stamp",
)


def _protect(cache):
    """Let the cache of a kernel find what is damaged, or of an older version, before it runs."""
    if type(cache).__name__ == "NullCache":  # nothing is kept
        return
    file = getattr(cache, "_cache_file", None)
    missing = [name for name in _USED if not hasattr(file, name)]
    if not missing:
        file._source_stamp = file._source_stamp, _STAMPS
        file.save = partial(_save, file)
        file._load_index = partial(_load_index, file, file._load_index)
        file._load_data = partial(_load_data, file)
        file._dump = partial(_dump, file._dump)
    if hasattr(cache, "load_overload") and hasattr(cache, "save_overload"):
        cache.load_overload = partial(_attempt, cache.load_overload)
        cache.save_overload = partial(_attempt, cache.save_overload)
    else:
        missing.append("load_overload")
    if missing:
        _tell(
            "numba %s keeps compiled code in another way (there is no %s): it is not checked for "
            "damage or changes of other files. After an update, remove the folder __pycache__ of "
            "skpmtl/_kernels, or that of NUMBA_CACHE_DIR.",
            numba.__version__,
            missing[0],
        )


def _tell(message, *values):
    """Log what has to be known about compiled code, the first time only."""
    if not _reported:
        _reported.append(True)
        logger.warning(message, *values)


def _compile(compile, *arguments):
    """Compile without the garbage collector, which walks again and again all that numba makes.

    That is a fifth of the time.
    """
    with _wait.during(compile.__self__):
        if not gc.isenabled():
            return compile(*arguments)
        gc.disable()
        try:
            return compile(*arguments)
        finally:
            gc.enable()


class _Wait:
    """What a process has waited for compilation; above `_PATIENCE` it says so, once."""

    def __init__(self):
        self.seconds, self.said, self.runs = 0.0, False, False

    @contextmanager
    def during(self, dispatcher):
        """Inside, `dispatcher` compiles, and all that it calls, or loads what the disk has."""
        if self.said or self.runs:
            yield
            return
        timer = threading.Timer(max(_PATIENCE - self.seconds, 0.0), self.say)
        timer.daemon = True
        begun, known = time.perf_counter(), sum(dispatcher.stats.cache_misses.values())
        self.runs = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            self.runs = False
            if sum(dispatcher.stats.cache_misses.values()) > known:  # loading is no wait
                self.seconds += time.perf_counter() - begun

    def say(self):
        self.said = True
        logger.warning(
            "Waiting for numba to compile loops, which takes seconds and is kept for later "
            "processes. `python -m skpmtl.warm` compiles all of them ahead of the first fit."
        )


_wait = _Wait()


def _attempt(call, *arguments):
    """What the cache does for a call, or None: then numba compiles, and keeps nothing."""
    try:
        return call(*arguments)
    except Exception as error:  # of files, of pickle, of the loader
        _tell(
            "Compiled code cannot be read or kept, and this process compiles afresh (%s). "
            "NUMBA_CACHE_DIR names another folder.",
            error,
        )


# Files end in a digest: changed machine code would end the process, or compute something else.
def _dump(dump, value):
    data = dump(value)
    return data + hashlib.sha256(data).digest()


def _whole(data):
    """Whether a digest at the end is that of the rest."""
    return hashlib.sha256(data[:-_DIGEST]).digest() == data[-_DIGEST:]


def _load_index(file, load):
    """{key: name} of the data files; {} where there is no index, or a damaged one."""
    try:
        with open(file._index_path, "rb") as stream:
            pickle.load(stream)  # the version of numba
            if not _whole(stream.read()):
                return {}
        return load()
    except OSError:  # not there, or not readable
        return {}
    except Exception:  # whatever garbage makes of pickle
        return {}


def _load_data(file, name):
    with open(file._data_path(name), "rb") as stream:
        data = stream.read()
    if not _whole(data):
        raise OSError("damaged")  # numba takes this for a file that was removed
    return pickle.loads(data)


def _save(file, key, data):
    """Write compiled code under a name of its own, and only then into the index.

    numba numbers the files of a function and writes the index first (numba issue 10128), so that
    of two processes that compile for different types one may later run the code of the other on
    its own arrays, and a reader may find the code of an older version under a new number.
    """
    index = file._load_index()
    if not index:  # the function is new or has changed: what is left of it serves nobody
        pattern = escape(file._data_path(file._data_name(0)).removesuffix("0.nbc")) + "*.nbc"
        for path in glob(pattern):
            try:
                os.remove(path)
            except OSError:  # another process was faster, or reads it
                pass
    text = repr((key, file._source_stamp)).encode()
    name = file._data_name(int.from_bytes(hashlib.sha256(text).digest()[:8], "big"))
    file._save_data(name, data)
    index = file._load_index()
    if index.get(key) != name:
        index[key] = name
        file._save_index(index)
