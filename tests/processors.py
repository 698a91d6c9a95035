"""Numerical tests as other processors would compute them: python -m tests.processors.

What a processor can do decides how OpenBLAS and the compiler of the kernels order and join sums.
Each line of `SETTINGS` takes other instructions for both, with an empty cache of compiled code.
The code for a processor that is not this one runs if this one has its instructions; otherwise the
setting is skipped.
"""

import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# OPENBLAS_CORETYPE, NUMBA_CPU_NAME, and NUMBA_CPU_FEATURES ("": those of that processor; None:
# those of this one).
SETTINGS = [
    ("Nehalem", "generic", ""),
    ("Haswell", "znver5", None),
    ("SkylakeX", "skylake-avx512", ""),
    ("Zen", "nehalem", ""),
]
TESTS = [
    "tests/test_against_reference.py",
    "tests/test_float32.py",
    "tests/test_kernels.py",
    "tests/test_losses.py",
    "tests/test_meta.py",
    "tests/test_solvers.py",
]
SELECTION = "not scikit_learn"
PROBE = """
import numpy as np, numba
a = np.arange(90000.0).reshape(300, 300)
np.linalg.eigvalsh(a @ a.T)
numba.njit(lambda a: (a * a + a).sum())(a)
"""


def main(arguments):
    if platform.machine() not in ("x86_64", "AMD64"):
        print(f"Skipped: the settings are for x86-64, and this is {platform.machine()}.")
        return 0
    failed = []
    for setting in SETTINGS:
        blas, name, features = setting
        with tempfile.TemporaryDirectory() as cache:
            environment = os.environ | {
                "OPENBLAS_CORETYPE": blas, "NUMBA_CPU_NAME": name, "NUMBA_CACHE_DIR": cache,
                "OMP_NUM_THREADS": "1",
            }  # fmt: skip
            if features is not None:
                environment["NUMBA_CPU_FEATURES"] = features
            probe = [sys.executable, "-c", PROBE]
            if subprocess.run(probe, env=environment, capture_output=True).returncode:
                print(f"Skipped: this processor has not all instructions of {blas}, {name}.")
                continue
            print(f"OPENBLAS_CORETYPE={blas} NUMBA_CPU_NAME={name}", flush=True)
            start = time.monotonic()
            run = [sys.executable, "-m", "pytest", "-q", "-k", SELECTION, *TESTS, *arguments]
            if subprocess.run(run, env=environment, cwd=Path(__file__).parents[1]).returncode:
                failed.append(setting)
            print(f"{time.monotonic() - start:.0f} seconds", flush=True)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
