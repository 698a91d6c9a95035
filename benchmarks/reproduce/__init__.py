"""What measurements have in common; `__main__` runs all of them."""

import argparse
from pathlib import Path

from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

import skpmtl

__all__ = ["RESULTS", "computed", "script"]

RESULTS = Path(__file__).resolve().parents[1] / "results"


def script(name, text, quick, repeats, output, jobs=False):
    """Command line of a script: its documentation `text`, --quick, --repeats and --output.

    `quick` and `repeats` say what these options stand for, None leaves --repeats out; `output`
    is a file or folder below results/. `jobs`: with --jobs, the processes of `computed`.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}",
        description=text,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help=quick)
    if repeats is not None:
        parser.add_argument("--repeats", type=int, help=f"default: {repeats}")
    parser.add_argument("--output", type=Path, default=RESULTS / output, help="CSV, PNG")
    if jobs:
        parser.add_argument("--jobs", type=int, help="processes of one thread each")
    parser.set_defaults(jobs=1)
    return parser


def computed(cells, jobs=1):
    """Yield the rows of a table in order, computed by `jobs` processes of one thread each.

    `cells` yields rows, which are ready, and pairs of calls (function, arguments) and a function of
    their results, which gives the rows that follow from them. All calls are independent.
    """
    cells = list(cells)
    pairs = [cell for cell in cells if isinstance(cell, tuple)]
    work = (call for calls, _ in pairs for call in calls)
    found = Parallel(n_jobs=jobs, return_as="generator")(
        delayed(_on_one_thread)(function, *given) for function, *given in work
    )
    for cell in cells:
        if isinstance(cell, tuple):
            calls, rows = cell
            yield from rows([next(found) for _ in calls])
        else:
            yield cell


def _on_one_thread(function, *given):
    threads = skpmtl.get_num_threads()
    skpmtl.set_num_threads(1)
    try:
        with threadpool_limits(1):
            return function(*given)
    finally:
        skpmtl.set_num_threads(threads)
