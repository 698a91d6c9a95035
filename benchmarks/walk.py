"""Files of the package whose functions run in a warm private fit: what a reader has to follow.

    python -m benchmarks.walk [ESTIMATOR ...]

Prints, for each estimator, the number of files and their names with the functions that ran.
Compiled loops count as the file that they are written in.
"""

import sys
import threading
import warnings
from pathlib import Path

import skpmtl
from skpmtl.datasets import make_low_rank_tasks

ROOT = Path(skpmtl.__file__).parent
ESTIMATORS = ("PrivateMTL", "MPMTLLowRank", "PrivateMeanRegMTL", "DPMetaInit")


def walk(estimator, X, y, task):
    """Functions that run in the second of two fits. -> {file: sorted names}"""
    estimator.fit(X, y, task=task)
    found = {}

    def note(frame, event, arg):
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(ROOT):
            names = found.setdefault(path.relative_to(ROOT).as_posix(), set())
            names.add(frame.f_code.co_name)

    before = sys.getprofile()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        estimator.fit(X, y, task=task)
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
    return {name: sorted(names) for name, names in sorted(found.items())}


def main(names):
    X, y, task = make_low_rank_tasks(n_tasks=400, n_samples=15, n_features=10, random_state=0)
    warnings.simplefilter("ignore")
    for name in names or ESTIMATORS:
        estimator = getattr(skpmtl, name)(epsilon=3.0, tasks=range(400))
        found = walk(estimator, X, y, task)
        if not estimator.privacy_.releases:
            raise RuntimeError(f"{name} released nothing, so that this is not the walk of a fit.")
        print(f"{name}: {len(found)} files")
        for path, functions in found.items():
            print(f"    {path}: {', '.join(functions)}")


if __name__ == "__main__":
    main(sys.argv[1:])
