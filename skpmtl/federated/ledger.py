"""The books of a site: an append-only ledger of its answers.

One line of JSON for each answer, with the SHA-256 of the line before, so that no line can be
changed or left out unnoticed but the last ones; and those are in the states of the studies. The
state of a study, with the line in it, is written first, then the ledger, then the message is sent:
a process that is killed in between leaves a state that the ledger is completed from, and never an
answer that is not in the books.

All of it may have been put back from a backup. So every message carries a `Mark`, how many lines
the study has and the code of the last one; the curator stores it, and sends it with its next
query. Books that lack that line answer nothing.
"""

import hashlib
import io
import json
import math
import os
import zipfile
from datetime import datetime, timezone
from pathlib import Path

import numpy as np

from ..exchange.journal import append_line, locked, write_file
from ..tables.ids import listed
from .refusals import Lacking, Refusal
from .transcript import Transcript

__all__ = ["Account", "Ledger", "Damaged", "Refusal", "private_folder"]

_DIGITS = 12  # of the digest of a study, in the name of its folder


class Damaged(Refusal):
    """A file of the site is not as it was left; the text names the file and is public."""


class Ledger:
    """``ledger.jsonl`` in the folder of a site, in which each study has a folder, too.

    `cap` is the largest sum of the epsilons of all studies, each as its report states it.
    """

    def __init__(self, folder, cap=math.inf):
        self.folder, self.cap = Path(folder), cap
        self.path = self.folder / "ledger.jsonl"

    # ------------------------------------------------------------------------ reading
    def read(self):
        """All lines, in order; completes the ledger from a state that is one line ahead.

        -> lines, {name of the file of a state: its line}

        Raises Damaged when a line is changed, or the ledger lacks one that the state of a study
        has.
        """
        with locked(self.folder):
            lines, last = self._lines(), self._last_lines()
            for place, line in last.items():
                if line in lines:
                    continue
                if _fields(line, place)["before"] != _code(lines) or not self.path.exists():
                    raise Damaged(
                        f"{self.path.name} lacks an answer that {place} has: it was cut, replaced "
                        "or removed. Restore it from a backup; without it, this site answers "
                        "no query"
                    )
                lines.append(line)
                append_line(self.path, line)
        return lines, last

    def _last_lines(self):
        """Of the states of all studies."""
        paths = sorted(self.folder.glob(f"*-{'[0-9a-f]' * _DIGITS}/state.npz"))
        return {
            f"{path.parent.name}/{path.name}": str(_read_state(path, ["entry"])["entry"])
            for path in paths
        }

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
                    "before. Restore it from a backup"
                )
        return lines

    # ------------------------------------------------------------------------ writing
    def enter(self, entry, write_state):
        """Add a line, after ``write_state(line)`` has put it on the disk.

        `entry` has study, digest, epsilon, delta and what else is to be known. Raises Refusal when
        the study would spend more than the cap leaves.
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
            if not lines:  # a state without a ledger is then one whose ledger was removed
                write_file(self.path, b"", 0o600)
            write_state(line)
            append_line(self.path, line)


class Account:
    """What was answered here of one study: its state, and its lines of the ledger in `folder`.

    `cap` is the largest sum of the epsilons of all studies that are answered here.
    """

    _needs = {"number", "run", "entry"}  # of a state

    def __init__(self, study, folder, cap=math.inf):
        self.study, self.books = study, Ledger(folder, cap)
        self.folder = private_folder(Path(folder) / f"{study.name}-{study.digest[:_DIGITS]}")
        self._transcript = None

    def follow(self, run, first, replies):
        """What was released up to now, with the replies from number `first` on. -> Transcript

        `run` is the token of the curator's journal. Raises Lacking where replies before the first
        one are not known here, as after a restart.
        """
        known, self._transcript = self._transcript, None  # what raises is not gone on with
        if known is not None and known.run == run and _same(known.replies[first:], replies):
            pass  # a message that was sent again
        elif first == 0:
            known = Transcript(self.study, run, replies)
        elif known is None or known.run != run or first > len(known.replies):
            raise Lacking("releases before this query are not known here")
        elif first == len(known.replies):
            known.extend(replies)
        else:
            known = Transcript(self.study, run, [*known.replies[:first], *replies])
        known.query(len(known.replies))  # refuses replies that do not belong to the study
        self._transcript = known
        return known

    def last(self):
        """Number of the last query of the study that was answered here, or -1.

        Raises Damaged when the books do not agree with each other.
        """
        return int(self._state()["number"]) if self._mine() else -1

    def mark(self):
        """How far the books of this study go: number of its lines, code of the last. -> list"""
        mine = self._mine()
        return [len(mine), _code(mine)]

    def check_mark(self, mark):
        """Refuse to go on with books that are older than the state the curator has seen.

        `mark` is that of the last message of this site that the curator has. Raises Damaged.
        """
        count, code = mark
        mine = self._mine()
        if not 0 <= count <= len(mine) or _code(mine[:count]) != code:
            raise Damaged(
                f"{self.books.path.name} has {len(mine)} lines of this study, and the curator has "
                f"recorded {count}, or other ones: older books were restored, or books were "
                "removed. Restore the newer ones; with these, queries would be answered a second "
                "time"
            )

    def _mine(self):
        """Lines of this study, which its state agrees with. -> list of str"""
        lines, last = self.books.read()
        mine = [line for line in lines if json.loads(line)["digest"] == self.study.digest]
        place = f"{self.folder.name}/state.npz"
        if mine and place not in last:
            raise Damaged(
                f"the ledger has answers to this study, but {place} is gone: restore it from a "
                "backup"
            )
        if mine and last[place] != mine[-1]:
            raise Damaged(
                f"{place} is not of the last answer in the ledger: restore the newer one; with an "
                "older one queries would be answered a second time"
            )
        return mine

    def _begin(self, number, run, transcript=None):
        """The state, for a query that may be answered. -> state, number of the last answer

        Raises Refusal.
        """
        last, state = self.last(), self._state()
        if state and str(state["run"]) != run:
            raise Refusal(
                "another journal has the answers to this study: a second run spends a second "
                "budget and needs another name"
            )
        if number < last:
            raise Refusal(
                f"query {number} of this study was answered before, and so was {last}: a "
                "second run spends a second budget and needs another name"
            )
        if transcript is not None and last >= 0 and str(state["walk"]) != transcript.codes[last]:
            raise Refusal("earlier releases differ from those that this site recorded")
        if not state:
            self._check_name()
        return state, last

    def _enter(self, kept, number, run, statistic, transcript=None, **entry):
        """Write the state after an answer and a line of the ledger, before anything is sent."""
        kept.update(number=np.array(number), run=np.array(run))
        kept["walk"] = np.array("" if transcript is None else transcript.codes[number])
        est = self.study.build()
        entry = {
            "study": self.study.name,
            "digest": self.study.digest,
            "run": run,
            "question": number,
            "statistic": statistic,
            **entry,
            "epsilon": float(est.epsilon),
            "delta": getattr(est, "delta", None),
        }

        def write(line):
            kept["entry"] = np.array(line)
            buffer = io.BytesIO()
            np.savez(buffer, **kept)
            write_file(self.folder / "state.npz", buffer.getbuffer(), 0o600)

        self.books.enter(entry, write)
        return kept

    def _check_name(self):
        """Refuse a study if one of the same name, with other settings, was answered before."""
        others = self.folder.parent.glob(f"{self.study.name}-{'[0-9a-f]' * _DIGITS}/state.npz")
        if any(path.parent != self.folder for path in others):
            raise Refusal(
                "another study of this name was answered before: a second run spends a second "
                "budget and needs another name"
            )

    def _state(self):
        path = self.folder / "state.npz"
        if not path.exists():
            return {}
        state = _read_state(path)
        missing = self._needs - set(state)
        if missing:
            raise Damaged(f"{self.folder.name}/state.npz lacks {listed(sorted(missing))}")
        return state


def _same(replies, others):
    return len(replies) == len(others) and all(
        a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)
        for a, b in zip(replies, others, strict=True)
    )


def _read_state(path, names=None):
    """Arrays of a state, of these names or all."""
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as found:
            return {name: found[name] for name in names or found.files}
    except (ValueError, KeyError, EOFError, OSError, zipfile.BadZipFile) as error:
        raise Damaged(
            f"{path.parent.name}/{path.name} is damaged: restore it from a backup"
        ) from error


def private_folder(path):
    """Folder that nobody else may read; made if it is missing."""
    path = Path(path)
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.chmod(path, 0o700)
    return path


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
