"""The run of a study as one HTML page, for its curator: no scripts, nothing loaded."""

import io
from html import escape
from pathlib import Path

import numpy as np

from ..exchange.journal import write_file
from .runlog import line, missing, questions, read_log, standing, trouble_lines

__all__ = ["write_page"]

_STYLE = """
body { font: 15px/1.5 sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; font-size: 13px } td { padding: 2px 8px }
tr:nth-child(even) { background: #f4f4f4 } svg { width: 100%; height: auto }
li { color: #a00 }
"""
_STATES = ["not asked", "answered", "no usable answer", "silent"]
_COLOURS = ["#e8e8e8", "#4477aa", "#ee6677", "#ccbb44"]


def write_page(folder, pictures=True):
    """Write ``run.html`` into the folder of a study, which the curator alone may read.

    `pictures`: whether to draw them, which takes half a second and needs matplotlib.
    """
    folder = Path(folder)
    events, around = read_log(folder), read_log(folder.parent)
    asked = questions(events)
    rows = [asked[number] for number in sorted(asked)]
    name = next((e["study"] for e in events if e["event"] == "start"), folder.name)
    total, lost = missing(events)
    parts = [
        f"<!doctype html><html lang=en><title>{escape(name)}</title>",
        f"<style>{_STYLE}</style><h1>{escape(name)}</h1>",
        f"<p>{escape(standing(folder)[1])}. {lost} of {total} contributions were missing and "
        "counted as zero. This page is the curator's own.</p>",
    ]
    if wrong := [*trouble_lines(around), *trouble_lines(events)]:
        items = "".join(f"<li>{escape(text)}" for text in wrong)
        parts.append(f"<h2>Sites to look at</h2><ul>{items}</ul>")
    if rows and pictures:
        try:
            parts.append(_pictures(rows))
        except ImportError:
            parts.append('<p>Pictures need matplotlib: pip install "skpmtl[plot]"</p>')
    cells = "".join(
        f"<tr><td>{escape(e['at'][:19].replace('T', ' '))}<td>{escape(line(e))}"
        for e in sorted([*events, *around], key=lambda e: e["at"])
    )
    parts.append(f"<h2>Events</h2><table>{cells}</table></html>\n")
    write_file(folder / "run.html", "".join(parts).encode("ascii", "xmlcharrefreplace"), 0o600)


def _pictures(rows):
    """Sites by query, seconds, bytes and epsilon, as SVG."""
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    names = sorted({n for r in rows for k in ("asked", "answered", "silent") for n in r[k]})
    numbers = [row["question"] for row in rows]
    series = {"seconds": [row["seconds"] for row in rows]}
    series["kB of numbers"] = [(row["bytes_out"] + row["bytes_in"]) / 1e3 for row in rows]
    if all(row["epsilon"] is not None for row in rows):
        series["epsilon so far"] = [row["epsilon"] for row in rows]
    heights = [0.3 * len(names) + 0.5, *[1.4] * len(series)]
    figure = Figure(figsize=(9, sum(heights) + 1), layout="constrained")
    first, *others = figure.subplots(len(heights), sharex=True, height_ratios=heights)
    states = np.array([[_state(row, name) for row in rows] for name in names])
    first.pcolormesh(
        numbers, names, states, cmap=ListedColormap(_COLOURS), vmin=0, vmax=3, edgecolors="w"
    )
    first.invert_yaxis()
    keys = [Patch(color=c, label=s) for c, s in zip(_COLOURS, _STATES, strict=True)]
    figure.legend(handles=keys, loc="outside upper center", ncols=4, frameon=False)
    for axes, (label, values) in zip(others, series.items(), strict=True):
        axes.bar(numbers, values, color=_COLOURS[1])
        axes.set_ylabel(label)
    others[-1].set_xlabel("query")
    others[-1].xaxis.get_major_locator().set_params(integer=True)
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None})
    text = file.getvalue()
    return text[text.index("<svg") :]


def _state(row, name):
    if name in row["answered"]:
        return 1
    return 2 if name in row["asked"] else 3 if name in row["silent"] else 0
