"""The books of a site: a ledger of all it has answered, which only grows.

One line of JSON for each question of each study, with the SHA-256 of the line before, so that no
line can be changed or left out unnoticed but the last ones; and those are in the states of the
studies. The state of a study, with the line in it, is written first, then the ledger, then the
answer is sent: a process that is killed in between leaves a state that the ledger is completed
from, and never an answer that is not in the books.
"""

import hashlib
import json
import math
import os
from datetime import datetime, timezone
from pathlib import Path

from ..exchange.journal import locked
from ..tables.ids import listed

__all__ = ["Books", "Damaged", "Refusal"]


class Refusal(Exception):
    """A question that this site does not answer; the text says why and is public."""


class Damaged(Refusal):
    """A file of the site is not as it was left; the text names the file and is public."""


class Books:
    """The ledger in the folder of a site.

    Parameters
    ----------
    folder : Path
        Of the site; in it ``ledger.jsonl``, and one folder for each study.
    cap : float, default=inf
        Largest sum of the epsilons of all studies, each as its report states it.
    """

    def __init__(self, folder, cap=math.inf):
        self.folder, self.cap = Path(folder), cap
        self.path = self.folder / "ledger.jsonl"

    # ------------------------------------------------------------------------ reading
    def read(self, states=()):
        """All lines, in order; completes the ledger from a state that is one line ahead.

        Parameters
        ----------
        states : iterable of (str, str)
            Name of a study's folder, and the line in its state.

        Raises
        ------
        Damaged
        """
        with locked(self.folder):
            lines = self._lines()
            for place, line in states:
                if line in lines:
                    continue
                if _fields(line, place)["before"] != _code(lines):
                    raise Damaged(
                        f"{self.path.name} lacks an answer that {place} has: it was cut, replaced "
                        "or removed. Put it back from a backup; without it, nothing here is "
                        "answered any more"
                    )
                lines.append(line)
                self._append(line, lines[:-1])
        return [json.loads(line) for line in lines]

    def _lines(self):
        """Whole lines; half a one at the end is of a process that was killed as it wrote."""
        if not self.path.exists():
            return []
        try:
            *lines, _ = self.path.read_bytes().decode().split("\n")
        except UnicodeDecodeError as error:
            raise Damaged(f"{self.path.name} is damaged: it is no text") from error
        for i, line in enumerate(lines):
            if _fields(line, f"{self.path.name}, line {i + 1},")["before"] != _code(lines[:i]):
                raise Damaged(
                    f"{self.path.name} is damaged at line {i + 1}: it does not follow from the one "
                    "before. Put it back from a backup"
                )
        return lines

    # ------------------------------------------------------------------------ writing
    def enter(self, entry, write_state):
        """Add a line, after `write_state` has put it on the disk.

        Parameters
        ----------
        entry : dict
            With study, digest, epsilon, delta and what else is to be known.
        write_state : callable
            ``write_state(line)``

        Raises
        ------
        Refusal
            When the study would spend more than the cap leaves.
        """
        with locked(self.folder):
            lines = self._lines()
            spent = spending([json.loads(line) for line in lines])
            if entry["digest"] not in spent:
                total = math.fsum(spent.values()) + entry["epsilon"]
                if total > self.cap * (1 + 1e-12):
                    raise Refusal("what this site may spend in all leaves no room for the study")
            at = datetime.now(timezone.utc).isoformat(timespec="seconds")
            line = json.dumps({"before": _code(lines), "at": at, **entry})
            write_state(line)
            self._append(line, lines)

    def _append(self, line, lines):
        size = sum(len(known.encode()) + 1 for known in lines)
        with open(self.path, "r+b" if size else "wb", opener=_private) as file:
            file.seek(size)
            file.truncate()  # half a line
            file.write(line.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


def _private(path, flags):
    return os.open(path, flags, 0o600)


def spending(entries):
    """{digest: epsilon} of the studies in a ledger; a study is counted once, for all its rounds."""
    return {entry["digest"]: float(entry["epsilon"]) for entry in entries}


def _code(lines):
    return hashlib.sha256(lines[-1].encode()).hexdigest() if lines else ""


def _fields(line, place):
    try:
        found = json.loads(line)
        lacks = {"before", "study", "digest", "question", "epsilon"} - set(found)
    except (ValueError, TypeError) as error:
        raise Damaged(f"{place} is damaged: no line of JSON") from error
    if lacks:
        raise Damaged(f"{place} is damaged: it lacks {listed(sorted(lacks))}")
    return found
