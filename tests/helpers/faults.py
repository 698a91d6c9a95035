"""Faults that befall one site, or the curator, of a running kit, and who names them.

Each is a generator: what goes wrong happens before it yields, and is mended after. It yields what
the curator has to say of site "b", and what the log of the site has to say, as regular expressions;
None where nobody is to be named.

    python -m tests.helpers.faults      all of them, on a kit of three sites: a table
"""

import html
import json
import os
import re
import shutil
import signal
import sys
import time

import numpy as np

SITE = "b"


def not_started(run):
    run.kill(SITE)
    yield "it is not connected any more|its process has ended", None
    run.start(SITE)


def stopped(run):
    """A process that hangs for 25 s is away, and its clock is right."""
    os.kill(run.processes[SITE].pid, signal.SIGSTOP)
    yield "no reply in", None
    os.kill(run.processes[SITE].pid, signal.SIGCONT)


def line_drops(run):
    run.relays[SITE].drop()
    yield "it is not connected any more|its process has ended", "No connection to"
    run.relays[SITE].mode = "pass"


def packets_lost(run):
    run.relays[SITE].mode = "lose"
    yield (
        "it is not connected any more|its process has ended",
        "No connection to|was lost|timed out",
    )
    run.relays[SITE].mode = "pass"


def other_key(run):
    from skpmtl.federated.provisioning import _site_key

    with changed(run, "site.key") as path:
        path.unlink()
        _site_key(path, path.with_suffix(".pub"))
        path.with_suffix(".pub").unlink()
        run.start(SITE)
        yield "has a key that is not in sites/b.pub", "does not know the key of this site"


def other_curator(run):
    with changed(run, "site.toml") as path:
        path.write_text(
            re.sub('curator = "[0-9a-f]*"', f'curator = "{"0" * 64}"', path.read_text())
        )
        run.start(SITE)
        yield "not signed by the curator", "not signed by the curator"


def other_study(run):
    with changed(run, "exam.toml") as path:
        path.write_text(path.read_text().replace("enrolment = ", "enrolment = 1"))
        run.start(SITE)
        yield "was given another study", "was given another study"


def study_of_another_name(run):
    with changed(run, "exam.toml") as path:
        path.write_text(path.read_text().replace('name = "exam"', 'name = "exam-2"'))
        run.start(SITE)
        yield "takes part in .*exam-2.*, and not in 'exam'", "not in 'exam'"


def other_version(run):
    run.kill(SITE)
    run.start(SITE, "import skpmtl._version as v; v.__version__ = '9.9'")
    yield "it has skpmtl 9.9, and the curator", "it has skpmtl 9.9, and the curator"
    run.kill(SITE)
    run.start(SITE)


def other_flower(run):
    run.kill(SITE)
    run.start(SITE, "import skpmtl.federated._flower as f; f.flower_version = '1.99.0'")
    yield "it is not connected any more|its process has ended", "Flower 1.99.0 is none of"
    run.start(SITE)


def clock(run):
    """Ten minutes ahead: the site takes part, and both say how far it is off."""
    run.kill(SITE)
    run.start(SITE, AHEAD)
    yield "its clock is .(599|60[012]) s off", "The clock here is (599|60[012]) s off"
    run.kill(SITE)
    run.start(SITE)


AHEAD = (
    "import datetime, flwr.supercore.date as date; true = date.now; "
    "date.now = lambda: true() + datetime.timedelta(seconds=600)"
)


def other_authority(run):
    from skpmtl.federated.provisioning import _certificates

    with changed(run, "ca.pem") as path:
        place = run.kit / "other"
        place.mkdir(exist_ok=True)
        _certificates(place, "localhost")
        shutil.copy(place / "ca.pem", path)
        run.start(SITE)
        yield (
            "turned away by TLS.*UNKNOWN_CA",
            "certificate verify failed|CERTIFICATE_VERIFY_FAILED",
        )


def other_address(run):
    with changed(run, "site.toml") as path:
        path.write_text(re.sub(r'"localhost:\d+"', '"localhost:9"', path.read_text()))
        run.start(SITE)
        yield "it is not connected any more|its process has ended", "No connection to localhost:9"


def no_books(run):
    with changed(run, "books") as path:
        shutil.rmtree(path)
        run.start(SITE)
        yield "older books were restored", "older books were restored"


def older_books(run):
    """A backup of some queries ago."""
    run.kill(SITE)
    path, old = run.kit / SITE / "books", run.kit / "old"
    shutil.copytree(path, old)
    run.start(SITE)
    run.more_queries(2)
    with changed(run, "books") as path:
        shutil.rmtree(path)
        old.rename(path)
        run.start(SITE)
        yield "older books were restored", "older books were restored"


def no_ledger(run):
    with changed(run, "books/ledger.jsonl") as path:
        path.unlink()
        run.start(SITE)
        yield "ledger.jsonl lacks an answer", "ledger.jsonl lacks an answer"


def damaged_state(run):
    with changed(run, "books") as path:
        (state,) = path.glob("exam-*/state.npz")
        state.write_bytes(state.read_bytes()[:-200])
        run.start(SITE)
        yield "state.npz is damaged", "state.npz is damaged"


def other_rows(run):
    with changed(run, "rows.npz") as path:
        with np.load(path) as found:
            rows = dict(found)
        rows["y"] = rows["y"] + 1.0
        np.savez(path, **rows)
        run.start(SITE)
        yield "the rows here are not those of the earlier answers", "rows here are not those"


def rows_with_gaps(run):
    """While it runs: rows that are read anew have NaN in them."""
    path = run.kit / SITE / "rows.npz"
    kept = path.read_bytes()
    with np.load(path) as found:
        rows = dict(found)
    rows["X"][0, 0] = np.nan
    np.savez(path, **rows)
    yield "failed: ValueError; the log of the site has more", "contains NaN"
    path.write_bytes(kept)


def cap(run):
    """Too small for the study from its beginning, see `main`; what has begun is counted already."""
    yield "leaves no room for the study", "leaves no room for the study"
    run.kill(SITE)
    set_cap(run.kit, 1.0)
    run.start(SITE)


def set_cap(kit, epsilon):
    path = kit / SITE / "site.toml"
    path.write_text(re.sub(r"(?m)^epsilon = .*", f"epsilon = {epsilon}", path.read_text()))


def other_journal(run):
    """The curator's journal is gone: the study would be run a second time."""
    journal, kept = run.kit / "curator" / "exam" / "journal", run.kit / "journal"
    run.kill("curator")
    run.kill_link()
    journal.rename(kept)
    run.start("curator")
    yield "another journal has the answers|answered before", "another journal|answered before"
    run.kill("curator")
    run.kill_link()
    shutil.rmtree(journal)
    kept.rename(journal)
    run.start("curator")


def full_disk(run):
    """No state can be written any more."""
    run.kill(SITE)
    run.start(SITE, FULL)
    yield "failed: OSError .No space left on device", "No space left on device"
    run.kill(SITE)
    run.start(SITE)


FULL = """
import skpmtl.federated.ledger as ledger
def full(*_):
    raise OSError(28, "No space left on device")
ledger.write_file = full
"""


def superlink_killed(run):
    run.kill_link()
    yield None, None


def curator_killed(run):
    run.kill("curator")
    run.start("curator")
    yield None, None


ALL = [
    cap, not_started, stopped, line_drops, packets_lost, other_key, other_curator, other_study,
    study_of_another_name, other_version, other_flower, clock, other_authority, other_address,
    no_books, older_books, no_ledger, damaged_state, other_rows, rows_with_gaps, full_disk,
    other_journal, superlink_killed, curator_killed,
]  # fmt: skip


class changed:  # noqa: N801
    """A file or folder of the site, whose process is ended; put back at the end.

    Parameters
    ----------
    run : Running
    name : str
    """

    def __init__(self, run, name):
        self.run, self.path = run, run.kit / SITE / name
        self.kept = run.kit / "kept"

    def __enter__(self):
        self.run.kill(SITE)
        (shutil.copytree if self.path.is_dir() else shutil.copy2)(self.path, self.kept)
        return self.path

    def __exit__(self, *_):
        self.run.kill(SITE)
        if self.kept.is_dir():
            shutil.rmtree(self.path, ignore_errors=True)
        self.path.unlink(missing_ok=True) if not self.kept.is_dir() else None
        self.kept.rename(self.path)
        self.run.start(SITE)


class Observer:
    """What curator and site say since a moment.

    Parameters
    ----------
    run : Running
    status : callable
        ``status() -> str``, what the command prints.
    """

    def __init__(self, run, status):
        self.run, self.status = run, status
        self.starts = {name: self._size(name) for name in ("curator", SITE)}

    def _size(self, name):
        path = self.run.kit / f"{name}.txt"
        return path.stat().st_size if path.exists() else 0

    def log(self, name):
        return (self.run.kit / f"{name}.txt").read_bytes()[self.starts[name] :].decode()

    def found(self, curator, site):
        """-> {where: whether it is named there, with the reason}"""
        page = self.run.kit / "curator" / "exam" / "run.html"
        places = {
            "log": self.log("curator"), "status": self.status(),
            "page": page.read_text() if page.exists() else "",
        }  # fmt: skip
        named = {
            where: curator is None
            or any(
                re.search(rf"\b{SITE}\b", line) and re.search(curator, line)
                for line in re.split("\n|<tr>|<li>", html.unescape(text))
            )
            for where, text in places.items()
        }
        named["site"] = site is None or re.search(site, self.log(SITE)) is not None
        return named


def befall(run, fault, status, limit=150.0):
    """Let a fault happen, see who names it, and mend it. -> {where: bool}, seconds, seconds"""
    before = len(run.questions())
    observer, steps, start = Observer(run, status), fault(run), time.monotonic()
    curator, site = next(steps)
    named = {}
    while time.monotonic() - start < limit:
        named = observer.found(curator, site)
        if all(named.values()):
            break
        time.sleep(1.0)
    took = time.monotonic() - start
    for _ in steps:
        pass
    mended = time.monotonic()
    run.more_queries(2, max(before, len(run.questions())))
    return named, took, time.monotonic() - mended


def main():
    import contextlib
    import io
    import tempfile
    from pathlib import Path

    from skpmtl.federated.__main__ import main as command
    from tests.federated.test_kit import Running, kit_of, long_study
    from tests.helpers.relay import free_port

    wanted = [f for f in ALL if f.__name__ in sys.argv[1:]] if sys.argv[1:] else ALL
    folder = Path(tempfile.mkdtemp())
    kit = kit_of(folder, long_study(folder, 400), address=f"localhost:{free_port()}")
    print(kit, flush=True)

    def status():
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            command(["status", str(kit / "curator")])
        return out.getvalue()

    if cap in wanted:
        set_cap(kit, 0.01)
    with Running(kit) as run:
        if cap not in wanted:
            run.reach(1)
        for fault in wanted:
            named, took, mended = befall(run, fault, status)
            print(json.dumps([fault.__name__, named, round(took), round(mended)]), flush=True)


if __name__ == "__main__":
    main()
