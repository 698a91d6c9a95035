"""Numerical tests as other processors would compute them: python -m tests.processors.

What a processor can do decides how OpenBLAS and the compiler of the kernels order and join sums.
Each line of `SETTINGS` takes other instructions for both, with an empty cache of compiled code.
A setting whose instructions this processor does not have is skipped. With ``--parts`` each setting
takes a part of the cases, so that all of them together meet every case once.
"""

import argparse
import os
import platform
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

# OPENBLAS_CORETYPE, NUMBA_CPU_NAME, and NUMBA_CPU_FEATURES ("": those of that processor; None:
# those of this one).
SETTINGS = [
    ("Nehalem", "generic", ""),
    ("Haswell", "znver5", None),
    ("SkylakeX", "skylake-avx512", ""),
    ("Zen", "nehalem", ""),
]
FOLDERS = "solvers kernels exchange mean_regularized meta model_protected search shards structures "
FOLDERS += "test_baselines.py contract/test_float32.py contract/test_tasks_without_rows.py "
FOLDERS = [*FOLDERS.split(), "contract/test_weights.py"]
PROBE = """
import numpy as np, numba
a = np.arange(90000.0).reshape(300, 300)
np.linalg.eigvalsh(a @ a.T)
numba.njit(lambda a: (a * a + a).sum())(a)
"""


@contextmanager
def processor(setting):
    """Run of Python as that processor would: arguments -> CompletedProcess."""
    blas, name, features = setting
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {
            "OPENBLAS_CORETYPE": blas,
            "NUMBA_CPU_NAME": name,
            "NUMBA_CACHE_DIR": cache,
            "OMP_NUM_THREADS": "1",
        }
        if features is not None:
            environment["NUMBA_CPU_FEATURES"] = features
        how = {"env": environment, "cwd": Path(__file__).parents[1], "text": True}
        how |= {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        yield lambda *arguments: subprocess.run([sys.executable, *arguments], **how)


def can(setting):
    """Whether this processor has all instructions of a setting."""
    with processor(setting) as run:
        return run("-c", PROBE).returncode == 0


def test(setting, arguments):
    """-> (what to print, whether nothing failed)."""
    tests = ["-q", "-p", "no:cacheprovider", *(f"tests/{name}" for name in FOLDERS)]
    with processor(setting) as run:
        done = run("-m", "pytest", *tests, *arguments)
    names = "OPENBLAS_CORETYPE", "NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES"
    text = " ".join(f"{name}={value}" for name, value in zip(names, setting, strict=True))
    return f"{text}\n{done.stdout}", not done.returncode


def main(arguments):
    if platform.machine() not in ("x86_64", "AMD64"):
        print(f"Skipped: the settings are for x86-64, and this is {platform.machine()}.")
        return 0
    parser = argparse.ArgumentParser("python -m tests.processors", allow_abbrev=False)
    parser.add_argument("--parts", action="store_true", help="deal the cases out to the settings")
    options, others = parser.parse_known_args(arguments)  # others are for pytest
    with ThreadPoolExecutor(min(os.cpu_count() or 1, len(SETTINGS))) as pool:
        known = []
        for setting, fine in zip(SETTINGS, pool.map(can, SETTINGS), strict=True):
            if fine:
                known.append(setting)
            else:
                print("Skipped: this processor has not all instructions of", *setting[:2])
        parts = [
            ["--part", f"{k}/{len(known)}"] if options.parts else [] for k in range(len(known))
        ]
        passed = True
        for text, fine in pool.map(lambda s, part: test(s, part + others), known, parts):
            print(text, flush=True)
            passed &= fine
    return int(not passed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
