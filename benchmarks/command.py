"""What scripts have in common: a command line, rows in a CSV file, and processes."""

import argparse
import csv
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

import skpmtl

__all__ = [
    "PAPERS",
    "RESULTS",
    "ROOT",
    "command_line",
    "commit",
    "computed",
    "git",
    "one_thread",
    "with_commit",
    "write_rows",
]

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAPERS = RESULTS / "papers"


def git(*arguments):
    """What git prints in this repository, without the last line end."""
    command = ["git", "-C", str(ROOT), *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed: {done.stderr.strip()}")
    return done.stdout.rstrip("\n")


def command_line(name, text, output=None, quick=None, repeats=None, jobs=False):
    """Command line of a script: its documentation `text`, --output, and what it has of the others.

    `output`: default of --output. `quick`: what --quick stands for. `repeats`: the default of
    --repeats, in words. `jobs`: with --jobs, the processes of `computed`.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}",
        description=text,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--output", type=Path, default=output, help="file, or folder of files")
    if quick is not None:
        parser.add_argument("--quick", action="store_true", help=quick)
    if repeats is not None:
        parser.add_argument("--repeats", type=int, help=f"default: {repeats}")
    if jobs:
        parser.add_argument("--jobs", type=int, default=1, help="processes of one thread each")
    return parser


def commit():
    """Short name of the checked-out commit, with a + when files were changed."""
    try:
        return git("describe", "--always", "--dirty=+")
    except (OSError, SystemExit):
        return "unknown"


def with_commit(rows):
    """The rows with the commit they were measured at."""
    name = commit()
    for row in rows:
        yield {**row, "commit": name}


def write_rows(rows, fields, output=None):
    """Print rows as they are measured, and write them to the file `output`. -> list of rows"""
    printer = csv.DictWriter(sys.stdout, fields)
    printer.writeheader()
    done = []
    for row in rows:
        printer.writerow(row)
        sys.stdout.flush()
        done.append(row)
    if output:
        output.parent.mkdir(parents=True, exist_ok=True)
        with output.open("w", newline="") as file:
            writer = csv.DictWriter(file, fields)
            writer.writeheader()
            writer.writerows(done)
    return done


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
    with one_thread():
        return function(*given)


@contextmanager
def one_thread():
    threads = skpmtl.get_num_threads()
    skpmtl.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        skpmtl.set_num_threads(threads)
