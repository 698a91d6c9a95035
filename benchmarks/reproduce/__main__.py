"""All measurements of the pages, one after another, and which of them are stale.

    python -m benchmarks.reproduce [--only TEXT] [--stale] [--again]

Runs the commands that fill ``benchmarks/results``, a day of one or two cores together. A command
is left out if ``skpmtl/`` is unchanged since its last run, so that an interrupted run continues
where it stopped; ``--again`` runs it nevertheless. ``benchmarks/results/commits.csv`` holds the
commit, date, command and seconds of every file.
``--stale`` runs nothing and lists the files that were made before code of the package was changed,
with the parts of ``skpmtl/`` that were; comments and docstrings make nothing stale. A
command that fails, for want of an extra or of data, is named at the end, and its files stay as they
are. Writers of FEMNIST are read from the folder that the environment variable ``FEMNIST`` names,
and fonts from ``FONTS``.
"""

import argparse
import ast
import csv
import os
import subprocess
import sys
import time
from pathlib import Path

from ..checkouts import ROOT, git

RESULTS = Path("benchmarks", "results")
FIELDS = ("file", "command", "commit", "date", "seconds")
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef)
_SUITES = ("peers", "path", "grid", "kernels", "scale", "growth", "memory", "shards")
_SCRIPTS = (
    "fedmtl", "fedmtl_default", "fedmtl_overhead", "fedmtl_secure", "lsoa", "mean_regularized",
    "mean_regularized_figures", "meta_learning", "meta_learning_figures", "model_protected",
    "networks_images", "networks_text", "outliers",
)  # fmt: skip
_FIGURES = {
    "mean_regularized_figures": ("accounting", "rows", "spread", "strength", "tasks"),
    "meta_learning_figures": ("epsilon", "shots"),
    "model_protected": ("allocation", "budget", "noise", "rates", "share", "tasks"),
}


def _commands():
    """Yield (arguments of ``python -m``, names of the CSV files that they write)."""
    for suite in _SUITES:
        yield f"benchmarks.run {suite} --output {RESULTS / suite}.csv", [suite]
    yield f"benchmarks.startup --output {RESULTS / 'startup.csv'}", ["startup"]
    yield f"benchmarks.networks --output {RESULTS / 'networks.csv'}", ["networks"]
    yield f"benchmarks.records --output {RESULTS / 'records.csv'}", ["records"]
    yield f"benchmarks.groups --output {RESULTS / 'groups.csv'}", ["groups"]
    yield f"benchmarks.unseen --output {RESULTS / 'unseen.csv'}", ["unseen"]
    methods = "--estimators PrivateMTL;PrivateMeanRegMTL;splines:PrivateMTL"
    yield f"benchmarks.multilevel {methods} --epsilon none,10,3,1,.3,1e-9", ["multilevel"]
    methods = "--estimators PrivateMTL;PrivateMeanRegMTL;MPMTLLowRank;MPMTLGroupSparse"
    methods += f" --epsilon none,10,3,1 --output {RESULTS / 'counts.csv'}"
    yield f"benchmarks.multilevel --tables counts {methods}", ["counts"]
    yield "benchmarks.multilevel.intervals", ["multilevel_intervals"]
    yield "benchmarks.multilevel.probabilities", ["multilevel_probabilities"]
    for script in ("networks_images", "networks_text"):
        yield f"benchmarks.reproduce.{script} --tune", [f"{script}_tuning"]
    for script in _SCRIPTS:
        prefix = script.removesuffix("_figures")
        names = [f"{prefix}_{figure}" for figure in _FIGURES.get(script, ())] or [script]
        yield f"benchmarks.reproduce.{script}", names
    writers = f"--leaf $FEMNIST --fonts $FONTS --output {RESULTS / 'networks_femnist.csv'}"
    yield f"benchmarks.reproduce.networks_images {writers}", ["networks_femnist"]


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


def from_history(path):
    """Rows of the list for results that it lacks: their last commit, without seconds."""
    rows = read(path)
    for command, files in COMMANDS.items():
        for file in files:
            if file not in rows and (path.parent / file).exists():
                found = git("log", "-1", "--format=%h %cs", "--", str(path.parent / file))
                if found:
                    name, date = found.split()
                    rows[file] = {"file": file, "command": command, "commit": name, "date": date,
                                  "seconds": ""}  # fmt: skip
    return rows


def changes(name):
    """Parts of the package that were changed since a commit. -> dict: part -> lines, or None

    Empty where nothing but comments and docstrings was changed. None: the commit is not
    known here, or files were changed when the result was made.
    """
    if subprocess.run(
        ["git", "-C", str(ROOT), "cat-file", "-e", f"{name}^{{commit}}"], capture_output=True
    ).returncode:
        return None
    lines, parts = {}, {}
    for line in git("diff", "--numstat", "--no-renames", name, "--", "skpmtl").splitlines():
        added, removed, file = line.split("\t")
        if added != "-":
            lines[file] = int(added) + int(removed)
    largest = sorted(lines, key=lines.get, reverse=True)
    if all(_runs_alike(name, file) for file in largest):
        return {}
    for file in largest:
        part = "/".join(Path(file).parts[:2])
        parts[part] = parts.get(part, 0) + lines[file]
    return parts


def _runs_alike(name, file):
    """Whether a file of a commit is the present one but for comments and docstrings."""
    if not file.endswith(".py"):
        return False
    at_commit = git("ls-tree", "--name-only", name, "--", file)
    if not at_commit or not (ROOT / file).exists():
        return False
    return code(git("show", f"{name}:{file}")) == code((ROOT / file).read_text())


def code(source):
    """The statements of a module without docstrings, as text."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
    return ast.dump(tree)


def stale(rows):
    """Print what is stale. -> names of the files"""
    old = []
    for file, row in sorted(rows.items()):
        parts = changes(row["commit"])
        if parts == {}:
            continue
        old.append(file)
        if parts is None:
            print(f"{file}: made at {row['commit']}, which is not a commit here")
            continue
        largest = sorted(parts, key=parts.get, reverse=True)
        print(f"{file}: made at {row['commit']} ({row['date']}); since then "
              f"{sum(parts.values())} lines of {', '.join(largest[:6])}"
              + (f" and {len(parts) - 6} others" if len(parts) > 6 else ""))  # fmt: skip
    print(f"{len(old)} of {len(rows)} results are stale.")
    return old


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.reproduce", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--only", default="", help="text of commands")
    parser.add_argument("--stale", action="store_true", help="list what is stale, run nothing")
    parser.add_argument("--again", action="store_true", help="run also what is not stale")
    options = parser.parse_args(arguments)
    path = ROOT / RESULTS / "commits.csv"
    chosen = {text: files for text, files in COMMANDS.items() if options.only in text}
    rows = from_history(path)
    if options.stale:
        wanted = {file for files in chosen.values() for file in files}
        stale({file: row for file, row in rows.items() if file in wanted})
        return 0
    failed = []
    for command, files in chosen.items():
        fresh = all(file in rows and changes(rows[file]["commit"]) == {} for file in files)
        if fresh and not options.again:
            print(f"{command}: up to date")
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
                "file": file, "command": command, "commit": name, "date": time.strftime("%Y-%m-%d"),
                "seconds": round(time.perf_counter() - start),
            }  # fmt: skip
        write(path, rows)
    if failed:
        print("Failed:", *failed, sep="\n  ")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
