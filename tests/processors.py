"""Numerical tests as other processors would compute them: python -m tests.processors.

What a processor can do decides how OpenBLAS and the compiler of the kernels order and join sums.
Each line of `SETTINGS` takes other instructions for both, with an empty cache of compiled code.
A setting whose instructions this processor does not have is skipped.
"""

import os
import platform
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
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
    "tests/solvers/test_against_reference.py",
    "tests/test_float32.py",
    "tests/kernels/test_kernels.py",
    "tests/meta/test_estimators.py",
    "tests/solvers/test_solvers.py",
]
PROBE = """
import numpy as np, numba
a = np.arange(90000.0).reshape(300, 300)
np.linalg.eigvalsh(a @ a.T)
numba.njit(lambda a: (a * a + a).sum())(a)
"""


def run(setting, arguments):
    """-> (what to print, whether nothing failed)."""
    blas, name, features = setting
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {
            "OPENBLAS_CORETYPE": blas, "NUMBA_CPU_NAME": name, "NUMBA_CACHE_DIR": cache,
            "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        if features is not None:
            environment["NUMBA_CPU_FEATURES"] = features
        how = {"env": environment, "cwd": Path(__file__).parents[1], "text": True}
        how |= {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        if subprocess.run([sys.executable, "-c", PROBE], **how).returncode:
            return f"Skipped: this processor has not all instructions of {blas}, {name}.", True
        tests = ["-q", "-p", "no:cacheprovider", *TESTS, *arguments]
        done = subprocess.run([sys.executable, "-m", "pytest", *tests], **how)
    text = f"OPENBLAS_CORETYPE={blas} NUMBA_CPU_NAME={name} NUMBA_CPU_FEATURES={features}\n"
    return text + done.stdout, not done.returncode


def main(arguments):
    if platform.machine() not in ("x86_64", "AMD64"):
        print(f"Skipped: the settings are for x86-64, and this is {platform.machine()}.")
        return 0
    passed = True
    with ThreadPoolExecutor(min(os.cpu_count() or 1, len(SETTINGS))) as pool:
        for text, fine in pool.map(lambda setting: run(setting, arguments), SETTINGS):
            print(text, flush=True)
            passed &= fine
    return int(not passed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
