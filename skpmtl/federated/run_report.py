"""The run of a study as one HTML page, for its curator: pictures, no scripts, nothing loaded."""

from html import escape
from pathlib import Path

from ..exchange.journal import write_file
from .runlog import line, missing, questions, read_log, standing

__all__ = ["write_page"]

_STYLE = """
body { font: 15px/1.5 sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; font-size: 13px } td { padding: 2px 8px }
tr:nth-child(even) { background: #f4f4f4 } svg { width: 100%; height: auto }
figure { margin: 1.5rem 0 } figcaption { color: #555 } text { font: 11px sans-serif; fill: #555 }
"""
_ANSWERED, _LATE, _SKIPPED, _NOT_ASKED = "#4477aa", "#ee6677", "#ccbb44", "#e8e8e8"
_WIDTH, _LEFT = 900, 110


def write_page(folder):
    """Write ``run.html`` into the folder of a curator, who alone may read it."""
    folder = Path(folder)
    events = read_log(folder)
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
    if rows:
        parts += [
            _figure(_sites(rows), "Sites by query: answered (blue), asked without a usable "
                    "answer (red), silent and not asked (yellow), not drawn (grey)"),
            _figure(_bars([r["seconds"] for r in rows]), "Seconds for each question"),
            _figure(_bars([(r["bytes_out"] + r["bytes_in"]) / 1e3 for r in rows]),
                    "Numbers sent and received for each query, in kB"),
        ]  # fmt: skip
        if all(r["epsilon"] is not None for r in rows):
            parts.append(_figure(_bars([r["epsilon"] for r in rows]), "Epsilon so far"))
    cells = "".join(
        f"<tr><td>{escape(e['at'][:19].replace('T', ' '))}<td>{escape(line(e))}" for e in events
    )
    parts.append(f"<h2>Events</h2><table>{cells}</table></html>\n")
    write_file(folder / "run.html", "".join(parts).encode("ascii", "xmlcharrefreplace"), 0o600)


def _figure(picture, caption):
    return f"<figure>{picture}<figcaption>{caption}</figcaption></figure>"


def _sites(rows):
    """A row for every site, a column for every query."""
    names = sorted({n for r in rows for k in ("asked", "answered", "silent") for n in r[k]})
    step, height = (_WIDTH - _LEFT) / len(rows), 18
    cells = []
    for i, name in enumerate(names):
        top = i * height
        cells.append(f'<text x="0" y="{top + 12}">{escape(name[:16])}</text>')
        for k, row in enumerate(rows):
            if name in row["answered"]:
                colour, word = _ANSWERED, "answered"
            elif name in row["asked"]:
                colour, word = _LATE, "no usable answer"
            elif name in row["silent"]:
                colour, word = _SKIPPED, "silent"
            else:
                colour, word = _NOT_ASKED, "not asked"
            cells.append(
                f'<rect x="{_LEFT + k * step:.2f}" y="{top}" width="{max(step - 1, 0.5):.2f}" '
                f'height="{height - 3}" fill="{colour}"><title>{escape(name)}, query '
                f"{row['question']}: {word}</title></rect>"
            )
    return _svg(len(names) * height, cells)


def _bars(values):
    height, top = 90, max(max(values), 1e-12)
    step = (_WIDTH - _LEFT) / len(values)
    cells = [f'<text x="0" y="12">{top:.3g}</text>', f'<text x="0" y="{height}">0</text>']
    for k, value in enumerate(values):
        size = height * value / top
        cells.append(
            f'<rect x="{_LEFT + k * step:.2f}" y="{height - size:.2f}" '
            f'width="{max(step - 1, 0.5):.2f}" height="{size:.2f}" fill="{_ANSWERED}"><title>'
            f"{value:.4g}</title></rect>"
        )
    return _svg(height, cells)


def _svg(height, cells):
    return f'<svg viewBox="0 0 {_WIDTH} {height}" role="img">{"".join(cells)}</svg>'
