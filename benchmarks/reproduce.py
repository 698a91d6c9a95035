"""All measurements of the pages, one after another: once for every release.

    python -m benchmarks.reproduce [--only TEXT] [--again]

Runs the commands that fill ``benchmarks/results``, a day of one or two cores together. A command
is left out if its files were measured for the present release (``skpmtl/_version.py``), so that an
interrupted run continues where it stopped; ``--again`` runs it nevertheless.
``benchmarks/results/commits.csv`` holds the release, commit, date, command and seconds of every
file. A command that fails, for want of an extra or of data, is named at the end, and its files stay
as they are.
"""

import csv
import os
import subprocess
import sys
import time
from pathlib import Path

from skpmtl import __version__

from .command import ROOT, command_line, git

RESULTS = Path("benchmarks", "results")
FIELDS = ("file", "command", "release", "commit", "date", "seconds")
_SUITES = ("peers", "path", "scale")


def _commands():
    """Yield (arguments of ``python -m``, names of the CSV files that they write)."""
    for suite in _SUITES:
        yield f"benchmarks.run {suite} --output {RESULTS / suite}.csv", [suite]
    yield f"benchmarks.peers.wide --output {RESULTS / 'wide.csv'}", ["wide"]
    yield f"benchmarks.peers.wide_trace --output {RESULTS / 'wide_trace.csv'}", ["wide_trace"]
    for name in ("random_shapes", "levels", "alone"):
        yield f"benchmarks.peers.{name} --output {RESULTS / name}.csv", [name]
    yield f"benchmarks.accuracy.generated --output {RESULTS / 'unseen.csv'}", ["unseen"]
    methods = "--estimators PrivateMTL;PrivateMeanRegMTL;splines:PrivateMTL"
    yield f"benchmarks.accuracy.real {methods} --epsilon none,10,3,1,.3,1e-9", ["multilevel"]
    methods = "--estimators PrivateMTL;PrivateMeanRegMTL;MPMTLLowRank;MPMTLGroupSparse"
    methods += f" --epsilon none,10,3,1 --output {RESULTS / 'counts.csv'}"
    yield f"benchmarks.accuracy.real --tables counts {methods}", ["counts"]
    yield "benchmarks.accuracy.intervals", ["multilevel_intervals"]
    yield "benchmarks.accuracy.probabilities", ["multilevel_probabilities"]
    errors = RESULTS / "standard_errors.csv"
    yield f"benchmarks.accuracy.standard_errors --output {errors}", ["standard_errors"]
    constants = RESULTS / "constants.csv"
    yield f"benchmarks.random_tables.constants --output {constants}", ["constants"]


COMMANDS = {command: [f"{name}.csv" for name in names] for command, names in _commands()}


def read(path):
    """-> dict: file -> row of the list of commits"""
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        return {row["file"]: row for row in csv.DictReader(file)}


def write(path, rows):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        writer.writerows(rows[name] for name in sorted(rows))


def main(arguments=None):
    parser = command_line("reproduce", __doc__)
    parser.add_argument("--only", default="", help="text of commands")
    parser.add_argument("--again", action="store_true", help="run also what this release has")
    options = parser.parse_args(arguments)
    path = ROOT / RESULTS / "commits.csv"
    chosen = {text: files for text, files in COMMANDS.items() if options.only in text}
    rows = read(path)
    failed = []
    for command, files in chosen.items():
        done = all(file in rows and rows[file]["release"] == __version__ for file in files)
        if done and not options.again:
            print(f"{command}: measured for {__version__}")
            continue
        print(command, flush=True)
        # Results change while this runs; only a changed package makes a + of the commit.
        changed = "+" if git("status", "--porcelain", "skpmtl") else ""
        name, start = git("rev-parse", "--short", "HEAD") + changed, time.perf_counter()
        given = [os.path.expandvars(word) for word in command.split()]
        if subprocess.run([sys.executable, "-m", *given], cwd=ROOT).returncode:
            failed.append(command)
            continue
        for file in files:
            rows[file] = {
                "file": file,
                "command": command,
                "release": __version__,
                "commit": name,
                "date": time.strftime("%Y-%m-%d"),
                "seconds": round(time.perf_counter() - start),
            }
        write(path, rows)
    if failed:
        print("Failed:", *failed, sep="\n  ")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
