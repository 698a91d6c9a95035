"""All studies on the same rows, and what each has spent of one budget: a table, and a page.

Epsilons, and deltas, of several studies add up: together they have no worse guarantee than that.
"""

import json
import math
from dataclasses import dataclass
from html import escape
from pathlib import Path

from ..exchange.journal import write_file
from .ledger import Ledger
from .runlog import questions, read_log, standing
from .study import Study

__all__ = ["print_studies", "write_studies"]

_STYLE = "body { font: 15px/1.5 sans-serif; margin: 2rem } td, th { padding: 2px 12px }"
_HEAD = ("study", "epsilon", "spent", "queries", "state")


@dataclass(frozen=True)
class _Line:
    """One study: name, total epsilon, epsilon spent, queries, and state."""

    name: str
    epsilon: float
    spent: float
    queries: int
    state: str

    @property
    def cells(self):
        spent = "not known before its end" if math.isnan(self.spent) else f"{self.spent:.4g}"
        return self.name, f"{self.epsilon:.4g}", spent, str(self.queries), self.state


def print_studies(folder):
    """Of a site or a curator, as a table.

    Raises ValueError for a folder that is neither.
    """
    lines, last = _lines(Path(folder))
    rows = [_HEAD, *(line.cells for line in lines)]
    widths = [max(len(row[k]) for row in rows) for k in range(len(_HEAD))]
    for row in rows:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )
    print(last)


def write_studies(folder):
    """The same as ``studies.html`` in the folder, with links to the pages of the runs."""
    folder = Path(folder)
    lines, last = _lines(folder)
    head = "".join(f"<th>{escape(cell)}" for cell in _HEAD)
    rows = ""
    for line in lines:
        first, *cells = map(escape, line.cells)
        if (folder / line.name / "run.html").exists():
            first = f'<a href="{first}/run.html">{first}</a>'
        rows += f"<tr><td>{first}" + "".join(f"<td>{cell}" for cell in cells)
    page = (
        f"<!doctype html><html lang=en><title>Studies</title><style>{_STYLE}"
        f"</style><h1>Studies</h1><table><tr>{head}{rows}</table><p>{escape(last)}</p></html>\n"
    )
    write_file(folder / "studies.html", page.encode("ascii", "xmlcharrefreplace"), 0o600)


def _lines(folder):
    """-> list of _Line, remarks on all of them"""
    if (folder / "curator.toml").exists():
        return _of_curator(folder)
    if (folder / "site.toml").exists():
        return _of_site(folder)
    raise ValueError(f"{folder} has neither curator.toml nor site.toml: name such a folder.")


def _of_curator(folder):
    from .supervisor import read_curator

    lines = []
    for file in read_curator(folder).studies:
        study = Study.load(folder / file)
        asked = questions(read_log(folder / study.name))
        spent = asked[max(asked)]["epsilon"] if asked else 0.0
        status, text = standing(folder / study.name)
        whole = float(study.build().epsilon)
        if spent is None:
            spent = whole if status == 0 else math.nan
        lines.append(_Line(study.name, whole, spent, len(asked), text.split(":")[0]))
    spent = [line.epsilon if math.isnan(line.spent) else line.spent for line in lines]
    return lines, (
        f"In all: epsilon {math.fsum(spent):.4g} spent of {sum(line.epsilon for line in lines):.4g}"
    )


def _of_site(folder):
    from .site_config import Settings

    settings = Settings.load(folder / "site.toml")
    entries = (
        list(map(json.loads, Ledger(settings.folder).read())) if settings.folder.exists() else []
    )
    last = {entry["digest"]: entry for entry in entries}  # the last one of each study
    lines = []
    for digest, entry in last.items():
        count = sum(e["digest"] == digest for e in entries)
        place = settings.folder / f"{entry['study']}-{digest[:12]}"
        done = (place / "models.json").exists()
        state = "finished" if done else f"answered last at {entry['at'][:19].replace('T', ' ')}"
        lines.append(_Line(entry["study"], entry["epsilon"], entry["epsilon"], count, state))
    for part in settings.study:
        study = Study.load(part.file)
        if study.digest not in last:
            lines.append(_Line(study.name, float(study.build().epsilon), 0.0, 0, "not begun"))
    spent = math.fsum(line.spent for line in lines)
    text = f"In all: epsilon {spent:.4g} spent, which counts a study as a whole when it has begun"
    if math.isfinite(settings.epsilon):
        left = settings.epsilon - spent
        text += f"; site.toml allows {settings.epsilon:.4g}, so that {left:.4g} is left"
    return lines, text
