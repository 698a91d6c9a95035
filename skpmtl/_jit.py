"""Compiled loops: one `njit` with the options that are safe here, and a fallback."""

import hashlib
import os
from functools import partial
from glob import escape, glob

import numba

# Sums may be reordered, which lets dot products use vector instructions. The flags that
# assume the absence of NaN or infinity stay off: they would void the clipping.
# A loop that adds up must not store as well: the compiler would choose between two orders of the
# sum by where the arrays happen to lie in memory, and no two fits would agree to the last bit.
_FASTMATH = {"reassoc", "contract"}


def njit(function):
    """Compile a kernel, cached on disk where that is possible.

    ``cache=True`` raises at import time when neither the package folder nor a user
    cache folder can be written (numba issue 4908); such a process compiles afresh, and
    ``NUMBA_CACHE_DIR`` names a writable folder. ``parallel`` stays off because numba's
    default threading layer aborts the process under joblib's threads; ``nogil`` lets plain
    threads run a kernel on blocks of tasks side by side.
    """
    options = {"error_model": "numpy", "fastmath": _FASTMATH, "nogil": True}
    try:
        compiled = numba.njit(cache=True, **options)(function)
    except RuntimeError:
        return numba.njit(**options)(function)
    file = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    if file is not None and all(hasattr(file, name) for name in _USED):
        file.save = partial(_save, file)
    return compiled


_USED = (
    "save", "_load_index", "_save_index", "_save_data", "_data_name", "_data_path",
    "_source_stamp",
)  # fmt: skip


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
