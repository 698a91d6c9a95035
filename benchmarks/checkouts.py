"""The package at a commit, in a folder that processes import it from.

Both sides of a comparison run in the same environment, with the benchmarks of the working tree:
what differs is `skpmtl/` alone. Folders and caches of numba stay in ``build/bench``.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_PLACE = ROOT / "build" / "bench"
_ONE_THREAD = ("OMP", "OPENBLAS", "MKL", "NUMBA", "SKPMTL")


def git(*arguments):
    """What git prints in this repository, without the last line end."""
    command = ["git", "-C", str(ROOT), *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed: {done.stderr.strip()}")
    return done.stdout.rstrip("\n")


def checkout(revision):
    """-> short name of the commit, folder with its `skpmtl/`"""
    name = git("rev-parse", "--short=10", f"{revision}^{{commit}}")
    folder = _PLACE / name / "tree"
    if not folder.is_dir():
        part = folder.with_name("part")  # an interrupted run leaves no half of a tree
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        archive = subprocess.run(
            ["git", "-C", str(ROOT), "archive", name, "skpmtl"], stdout=subprocess.PIPE, check=True
        )
        subprocess.run(["tar", "-x", "-C", str(part)], input=archive.stdout, check=True)
        part.rename(folder)
    return name, folder


def python(folder, module, *arguments, **options):
    """Start ``python -m module`` with the package in `folder`, on one thread. -> Popen"""
    environment = {f"{name}_NUM_THREADS": "1" for name in _ONE_THREAD}
    environment["NUMBA_CACHE_DIR"] = str(folder.parent / "numba")
    # -m puts the current folder first on the path; the benchmarks follow.
    environment["PYTHONPATH"] = os.pathsep.join([str(folder), str(ROOT)])
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        text=True,
        **options,
    )
