"""Picture of the stored comparisons of speed, one column for each pair of commits.

    python -m benchmarks.history [--input FILE.csv] [--output FILE.png]

A point is the ratio of a benchmark, new over old, with its interval; those that became slower by
more than 10 % have their names.
"""

import argparse
import csv
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, ScalarFormatter

from .compare import LIMIT

RESULTS = Path(__file__).parent / "results"


def read(path):
    """-> dict: (old commit, new commit) -> rows, in the order in which they were stored"""
    pairs = {}
    with Path(path).open(newline="") as file:
        for row in csv.DictReader(file):
            pairs.setdefault((row["against"], row["commit"]), []).append(row)
    return pairs


def draw(pairs):
    """-> Figure"""
    figure = Figure(figsize=(2.0 + 3.0 * len(pairs), 5.0), layout="constrained")
    axes = figure.subplots()
    axes.axhline(1.0, color="0.6", linewidth=0.8)
    for bound in (LIMIT, 1.0 / LIMIT):
        axes.axhline(bound, color="0.8", linewidth=0.8, linestyle="--")
    for column, rows in enumerate(pairs.values()):
        rows = sorted(rows, key=lambda row: float(row["ratio"]))
        for k, row in enumerate(rows):
            at = column + 0.6 * (k / max(len(rows) - 1, 1) - 0.5)
            ratio, low, high = (float(row[name]) for name in ("ratio", "low", "high"))
            color = "C3" if ratio > LIMIT else "C2" if ratio < 1.0 / LIMIT else "C0"
            axes.plot([at, at], [low, high], color=color, linewidth=0.7)
            axes.plot(at, ratio, "o", color=color, markersize=2.5)
            if ratio > LIMIT:
                name = row["benchmark"].partition("(")[2].rstrip(")") or row["benchmark"]
                axes.annotate(name, (at, ratio), fontsize=5, rotation=30)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_yticks([0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0])
    axes.set_xticks(range(len(pairs)), [f"{new}\nover {old}" for old, new in pairs], fontsize=7)
    axes.set_ylabel("CPU time or memory, new over old")
    return figure


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.history",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--input", type=Path, default=RESULTS / "speed.csv")
    parser.add_argument("--output", type=Path, default=RESULTS / "speed.png")
    options = parser.parse_args(arguments)
    draw(read(options.input)).savefig(options.output, dpi=100)


if __name__ == "__main__":
    main()
