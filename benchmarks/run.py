"""One runner for the measurements that end in a CSV file.

    python -m benchmarks.run SUITE [--quick] [--only TEXT] [--repeats R] [--output FILE.csv]

========  ==================================================================================
peers     exact solvers against others at equal accuracy, RMTL and MALSAR where they are
          installed (see benchmarks/peers/external.py)
path      a hundred strengths and their cross-validation, against loops of fits and lasso_path
grid      exact fits on drawn shapes against FISTA on Gram matrices: the whole distribution
kernels   exact local solves against loops of library calls, a gradient against reading rows
scale     seconds and memory of fit and predict, and their exponent in the number of rows
memory    fits of 8 GB in 4 GB, as one memory map and in parts
shards    what Ray actors add to the time of a release, and a lost one (extra ``ray``)
========  ==================================================================================

Rows are printed as they are measured. Everything has one thread, but scale and memory,
which have as many as `skpmtl.get_num_threads` says.
"""

import argparse
import csv
import subprocess
import sys
from itertools import chain
from pathlib import Path

from threadpoolctl import threadpool_limits

import skpmtl

from . import kernels, memory, scale, shards
from .peers import exact, external, grid, path

FIELDS = ("commit", "peer", "problem", "penalty", "accuracy", "seconds", "ratio", "megabytes")


def commit():
    """Short name of the checked-out commit, with a + when files were changed."""
    here = Path(__file__).parent
    try:
        git = ["git", "-C", str(here), "describe", "--always", "--dirty=+"]
        return subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
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


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    suites = ["peers", "path", "grid", "kernels", "scale", "memory", "shards"]
    parser.add_argument("suite", choices=suites)
    parser.add_argument("--quick", action="store_true", help="small problems, one repeat")
    parser.add_argument("--repeats", type=int, default=None, help="default: 7, or 1 with --quick")
    parser.add_argument("--only", default="", help="text of estimators or problems")
    parser.add_argument("--output", type=Path, default=None, help="also write the rows here")
    options = parser.parse_args(arguments)
    repeats = options.repeats or (1 if options.quick else 7)

    if options.suite == "scale":
        rows = scale.measure(options.quick, options.only)
        return write_rows(with_commit(rows), scale.FIELDS, options.output)
    if options.suite == "memory":
        rows = memory.measure(options.quick, options.only)
        return write_rows(with_commit(rows), memory.FIELDS, options.output)
    # Other solvers differ most in how many threads they use, so everything gets one.
    chosen = skpmtl.get_num_threads()
    skpmtl.set_num_threads(1)
    try:
        with threadpool_limits(1):
            if options.suite == "path":
                measured = with_commit(path.measure(options.quick, repeats, options.only))
                return write_rows(measured, path.FIELDS, options.output)
            if options.suite == "grid":
                measured = with_commit(grid.measure(options.quick, repeats))
                return write_rows(measured, grid.FIELDS, options.output)
            if options.suite == "kernels":
                measured = with_commit(kernels.measure(options.quick, repeats))
                return write_rows(measured, kernels.FIELDS, options.output)
            if options.suite == "shards":
                measured = with_commit(shards.measure(options.quick, repeats, options.only))
                return write_rows(measured, shards.FIELDS, options.output)
            suites = (
                exact.measure(options.quick, repeats),
                external.measure(options.quick, repeats, options.only),
            )
            return write_rows(with_commit(chain(*suites)), FIELDS, options.output)
    finally:
        skpmtl.set_num_threads(chosen)


if __name__ == "__main__":
    main()
