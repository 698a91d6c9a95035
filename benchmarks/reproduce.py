"""All measurements of the pages, one after another: once for every release.

    python -m benchmarks.reproduce [--only TEXT] [--again]

Runs the commands that fill ``benchmarks/results``, a day of one or two cores together. A command
is left out if its file was measured for the present release (``skpmtl/_version.py``), so that an
interrupted run continues where it stopped; ``--again`` runs it nevertheless.
``benchmarks/results/commits.csv`` holds the release, commit, date, command and CPU seconds of
every file. A command that fails, for want of an extra or of data, is named at the end, and its file
stays as it is.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

from skpmtl import __version__

from .asv.speed.tables import cpu_seconds
from .command import ROOT, command_line, git, store, stored

RESULTS = Path("benchmarks", "results")
FIELDS = ("file", "command", "release", "commit", "date", "seconds")

_REAL = "PrivateMTL;PrivateMeanRegMTL;splines:PrivateMTL --epsilon none,10,3,1,.3,1e-9"
_COUNTS = "PrivateMTL;PrivateMeanRegMTL;MPMTLLowRank;MPMTLGroupSparse --epsilon none,10,3,1"
_SCRIPTS = {  # file: module, and arguments
    "peers": "peers.exact",
    "path": "peers.path",
    "scale": "scale",
    **{
        name: f"peers.{name}" for name in ("wide", "wide_trace", "random_shapes", "levels", "alone")
    },
    "unseen": "accuracy.generated",
    "multilevel": f"accuracy.real --estimators {_REAL}",
    "counts": f"accuracy.real --tables counts --estimators {_COUNTS}",
    "multilevel_intervals": "accuracy.intervals",
    "multilevel_probabilities": "accuracy.probabilities",
    "standard_errors": "accuracy.standard_errors",
    "constants": "random_tables.constants",
}
COMMANDS = {
    f"benchmarks.{script} --output {RESULTS / name}.csv": f"{name}.csv"
    for name, script in _SCRIPTS.items()
}


def main(arguments=None):
    parser = command_line("reproduce", __doc__)
    parser.add_argument("--only", default="", help="text of commands")
    parser.add_argument("--again", action="store_true", help="run also what this release has")
    options = parser.parse_args(arguments)
    path = ROOT / RESULTS / "commits.csv"
    rows = stored(path, lambda row: row["file"])
    failed = []
    for command, file in COMMANDS.items():
        if options.only not in command:
            continue
        if file in rows and rows[file]["release"] == __version__ and not options.again:
            print(f"{command}: measured for {__version__}")
            continue
        print(command, flush=True)
        # Results change while this runs; only a changed package makes a + of the commit.
        changed = "+" if git("status", "--porcelain", "skpmtl") else ""
        name, start = git("rev-parse", "--short", "HEAD") + changed, cpu_seconds()
        given = [os.path.expandvars(word) for word in command.split()]
        if subprocess.run([sys.executable, "-m", *given], cwd=ROOT).returncode:
            failed.append(command)
            continue
        about = command, __version__, name, time.strftime("%Y-%m-%d"), round(cpu_seconds() - start)
        rows[file] = dict(zip(FIELDS, (file, *about), strict=True))
        store(path, [rows[name] for name in sorted(rows)], FIELDS)
    if failed:
        print("Failed:", *failed, sep="\n  ")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
