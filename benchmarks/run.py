"""One runner for the measurements that end in a CSV file.

    python -m benchmarks.run peers [--quick] [--repeats R] [--output FILE.csv]

Rows are printed as they are measured.
"""

import argparse
import csv
import subprocess
import sys
from pathlib import Path

from threadpoolctl import threadpool_limits

from .peers import exact

FIELDS = ("commit", "peer", "problem", "penalty", "accuracy", "seconds", "ratio")


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
    parser.add_argument("suite", choices=["peers"])
    parser.add_argument("--quick", action="store_true", help="small problems, one repeat")
    parser.add_argument("--repeats", type=int, default=None, help="default: 7, or 1 with --quick")
    parser.add_argument("--output", type=Path, default=None, help="also write the rows here")
    options = parser.parse_args(arguments)
    repeats = options.repeats or (1 if options.quick else 7)

    # Other solvers differ most in how many threads they use, so everything gets one.
    with threadpool_limits(1):
        measured = with_commit(exact.measure(options.quick, repeats))
        return write_rows(measured, FIELDS, options.output)


if __name__ == "__main__":
    main()
