"""Panels and legends of figures."""

import numpy as np
from matplotlib.figure import Figure


def unique(rows, column):
    return list(dict.fromkeys(row[column] for row in rows))


def panels(count, width=4.3, height=4.2):
    width = max(width, 6.4 / count)
    figure = Figure(figsize=(width * count, height), layout="constrained")
    return figure, np.atleast_1d(figure.subplots(1, count))


def legend(figure, axes):
    found = {}
    for ax in axes:
        handles, labels = ax.get_legend_handles_labels()
        found |= dict(zip(labels, handles, strict=True))
    ncols = min(4, len(axes) + 1)
    figure.legend(found.values(), found, loc="outside lower center", ncols=ncols, fontsize=7)
