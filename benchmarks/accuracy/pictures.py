"""The heat map of ``doc/unseen.rst``, of the stored medians.

python -m benchmarks.accuracy.pictures
"""

import csv

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from ..command import RESULTS, ROOT

_WORST = 10.0  # ratios beyond this, or below 1 / this, have the last colour


def main():
    with (RESULTS / "unseen.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["estimator"] != "alone"]
    shapes = list(dict.fromkeys(row["shape"] for row in rows))
    columns = list(dict.fromkeys((row["estimator"], _budget(row["epsilon"])) for row in rows))
    table, raised = np.full((2, len(shapes), len(columns)), np.nan)
    for row in rows:
        place = columns.index((row["estimator"], _budget(row["epsilon"])))
        if row["median"] == "":
            raised[shapes.index(row["shape"]), place] = 1.0
        else:
            table[shapes.index(row["shape"]), place] = float(row["median"])

    figure = Figure(figsize=(3.6 + 0.2 * len(columns), 1.8 + 0.19 * len(shapes)))
    figure.set_layout_engine("constrained")
    axes = figure.subplots()
    # Grey where an error was raised; white where nothing was measured.
    grey = np.ma.masked_invalid(raised)
    axes.imshow(grey, cmap="Greys", vmin=0.0, vmax=3.0, aspect="auto")
    norm = LogNorm(1.0 / _WORST, _WORST)
    image = axes.imshow(np.ma.masked_invalid(table), cmap="RdBu_r", norm=norm, aspect="auto")
    axes.set_xticks(range(len(columns)), [budget for _, budget in columns], rotation=90)
    roles = {row["shape"]: row["role"] for row in rows}
    names = [shape + (" *" if roles[shape] == "tuning" else "") for shape in shapes]
    axes.set_yticks(range(len(shapes)), names)
    axes.tick_params(length=0, labelsize=7)
    starts = [i for i, column in enumerate(columns) if not i or columns[i - 1][0] != column[0]]
    for start, stop in zip(starts, [*starts[1:], len(columns)], strict=True):
        axes.axvline(stop - 0.5, color="white", linewidth=2)
        axes.text(start - 0.3, -0.8, columns[start][0], rotation=30, fontsize=7, va="bottom")
    axes.set_xlabel("epsilon; * tuning set")
    bar = figure.colorbar(image, ax=axes, fraction=0.03, pad=0.01, extend="both")
    bar.set_label("error over each task alone (median)")
    bar.set_ticks([0.1, 0.3, 1, 3, 10], labels=["0.1", "0.3", "1", "3", "10"])
    figure.savefig(ROOT / "doc" / "_static" / "unseen.png", dpi=110)


def _budget(epsilon):
    return "exact" if epsilon == "" else f"{float(epsilon):g}"


if __name__ == "__main__":
    main()
