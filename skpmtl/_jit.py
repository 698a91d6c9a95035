"""Compiled loops: one `njit` with the options that are safe here, and a fallback."""

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
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:
        return numba.njit(**options)(function)
