"""Tests whose compiled loops check every index: ``python -m tests.bounds [TESTS]``.

numba leaves checks of indices out, and what a loop writes past the end of an array is damage that
no test has to notice. NUMBA_BOUNDSCHECK has numba put them in; what it lets pass or cannot see is
checked in addition by this module, a plugin of pytest: an index below 0, which would be counted
from the end, and the rows that `skpmtl._runtime.traced` reads and writes without numba, which must
be those of the array.

The code is several times slower, and is kept nowhere: a quarter of an hour for all of `FOLDERS`.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDERS = [
    "kernels",
    "task",
    "structures",
    "mean_regularized",
    "model_protected",
    "meta",
    "solvers",
    "contract/test_tasks_without_rows.py",
    "contract/test_weights.py",
    "contract/test_fuzz.py",
]


def check_indices():
    """Have numba compile all checks into loops, from here on."""
    from numba.core import cgutils
    from numba.np import arrayobj

    from skpmtl._runtime import traced

    fixed = arrayobj.fix_integer_index

    def checked_index(context, builder, kind, index, size):
        if kind.signed:
            whole = context.cast(builder, index, kind, arrayobj.types.intp)
            cgutils.do_boundscheck(context, builder, whole, size)
        return fixed(context, builder, kind, index, size)

    at, given, contexts = traced._Rows._at, traced._given, []

    def known_given(context, kind, value):
        contexts[:] = [context]
        return given(context, kind, value)

    def checked_at(rows, index):
        builder = traced._builders[-1]
        for i, size in zip(
            index if isinstance(index, tuple) else (index,), rows.shape, strict=False
        ):
            if len(traced._builders) > 1:  # of a function that is given what was checked
                break
            ends = (i.start, i.stop) if isinstance(i, slice) else (i,)
            for end in ends:
                if end is not None:
                    end, bound = (traced._lifted(x, traced._WHOLE) for x in (end, size))
                    bound = builder.add(bound, bound.type(int(isinstance(i, slice))))
                    cgutils.do_boundscheck(contexts[0], builder, end, bound)
        return at(rows, index)

    traced._given, traced._Rows._at = known_given, checked_at
    arrayobj.fix_integer_index = checked_index


def main(arguments):
    tests = ["-q", "-p", "no:cacheprovider", "-p", "tests.bounds"]
    chosen = any(not argument.startswith("-") and "test" in argument for argument in arguments)
    tests += [] if chosen else [f"tests/{name}" for name in FOLDERS]
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {
            "NUMBA_BOUNDSCHECK": "1",
            "NUMBA_CACHE_DIR": cache,
            "OMP_NUM_THREADS": "1",
        }
        command = [sys.executable, "-m", "pytest", *tests, *arguments]
        return subprocess.run(command, env=environment, cwd=Path(__file__).parents[1]).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
if __name__ == "tests.bounds" and os.environ.get("NUMBA_BOUNDSCHECK") == "1":
    check_indices()
