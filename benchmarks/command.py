"""What scripts have in common: a command line, rows in a CSV file, and processes."""

import argparse
import csv
import subprocess
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

from threadpoolctl import threadpool_limits

import skpmtl

__all__ = [
    "PAPERS",
    "RESULTS",
    "ROOT",
    "command_line",
    "commit",
    "git",
    "in_own_process",
    "one_thread",
    "peak_memory",
    "store",
    "stored",
    "write_measured",
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
    --repeats, in words. `jobs`: with --jobs.
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


def run_problems(name, text, fields, measure, arguments):
    """Write what ``measure(quick, repeats, only)`` finds of problems: all of them, seven times.

    `name` and `text` are those of `command_line`.
    """
    parser = command_line(name, text, None, "small problems, one repeat", "7, quick 1")
    parser.add_argument("--only", default="", help="text of problems")
    options = parser.parse_args(arguments)
    repeats = options.repeats or (1 if options.quick else 7)
    return write_measured(measure(options.quick, repeats, options.only), fields, options.output)


def commit():
    """Short name of the checked-out commit, with a + when files were changed."""
    try:
        return git("describe", "--always", "--dirty=+")
    except (OSError, SystemExit):
        return "unknown"


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
        store(output, done, fields)
    return done


def store(path, rows, fields):
    """Replace a CSV file; a row may have more than the fields."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    with part.open("w", newline="") as file:
        writer = csv.DictWriter(file, fields, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    part.replace(path)


def stored(path, key):
    """Rows of a CSV file, if there is one, by ``key(row)``."""
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        return {key(row): row for row in csv.DictReader(file)}


@contextmanager
def one_thread():
    threads = skpmtl.get_num_threads()
    skpmtl.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        skpmtl.set_num_threads(threads)


def write_measured(rows, fields, output=None):
    """`write_rows` of rows that are measured on one thread, with the commit if it is a field."""
    about = {"commit": commit()} if "commit" in fields else {}
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # peers stopped early say so
        return write_rows(({**row, **about} for row in rows), fields, output)


def peak_memory():
    """MB that this process has held at most."""
    import resource  # not on Windows

    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def in_own_process(function, *given):
    """The result of a call in a new process, which ends with it."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *given).result()
