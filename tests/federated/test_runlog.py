"""The log of a run, and the process that keeps runs going, on full disks and after crashes."""

import errno
import json
import os
import sys
import time
from dataclasses import asdict

import pytest

from skpmtl.federated import supervisor
from skpmtl.federated.runlog import RunLog, missing, read_log, standing
from tests.helpers.federated_cases import study_of

TOLD = {"tasks": 9, "missing": 3, "zeroed": 0, "answered": ["a"], "holders": 1, "epsilon": 0.5}
MORE = {
    "statistic": "sum", "asked": ["a"], "silent": [], "expected": 1, "seconds": 0.0,
    "bytes_out": 0, "bytes_in": 0,
}  # fmt: skip


def write_question(folder, number):
    RunLog(folder).write("question", question=number, **TOLD)


@pytest.mark.parametrize("piece", [b"{", b'{"at": "2026", "event": "end", "error": ', b"\0" * 9000])
def test_half_a_line_is_an_event_that_never_was(tmp_path, piece):
    for number in (0, 1):
        write_question(tmp_path, number)
    whole = (tmp_path / "run.jsonl").read_bytes()
    (tmp_path / "run.jsonl").write_bytes(whole + piece)
    assert [event["question"] for event in read_log(tmp_path)] == [0, 1]
    write_question(tmp_path, 2)  # it is asked again
    found = (tmp_path / "run.jsonl").read_bytes()
    assert found.startswith(whole) and len(found.splitlines()) == 3
    assert [json.loads(line)["question"] for line in found.splitlines()] == [0, 1, 2]
    assert missing(read_log(tmp_path)) == (27, 9)


def test_lines_that_are_no_events_are_left_out(tmp_path):
    """As half a line with a whole one behind it, which earlier versions wrote."""
    path = tmp_path / "run.jsonl"
    path.write_bytes(b'no\n[]\n{"event": 1}\n{"at": {"at": 1}\n\xff\xfe\n')
    assert standing(tmp_path) == (3, "not started")
    write_question(tmp_path, 0)
    assert len(read_log(tmp_path)) == 1
    assert path.stat().st_size > 40


@pytest.mark.skipif(os.name != "posix", reason="needs RLIMIT_FSIZE")
def test_a_full_disk_loses_the_event_and_nothing_else(tmp_path):
    import resource

    write_question(tmp_path, 0)
    size = (tmp_path / "run.jsonl").stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20, before[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            write_question(tmp_path, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (tmp_path / "run.jsonl").stat().st_size == size + 20
    write_question(tmp_path, 1)
    assert [event["question"] for event in read_log(tmp_path)] == [0, 1]


class Runs(supervisor.Supervisor):
    """A keeper whose runs end as they are told to; there is no SuperLink.

    Parameters
    ----------
    ends : list of str, None or OSError
        Of each run, its error; an OSError is one of this process itself. "lost": it does not begin,
        and Flower says so; "link": the SuperLink ends before it begins; "got on": a query is
        answered before the run ends.
    """

    lost, status = False, None

    def __init__(self, folder, ends):
        super().__init__(folder)
        self.ends, self.link = list(ends), self

    def poll(self):
        return self.status

    def _ended(self, run):
        return self.lost

    def terminate(self):
        pass

    def wait(self, timeout=None):
        pass

    def _open_door(self):
        pass

    def _start_run(self, app):
        end = self.ends.pop(0)
        if isinstance(end, OSError):
            raise end
        self.lost, self.status = end == "lost", 1 if end == "link" else None
        if end in ("lost", "link"):
            return
        log = RunLog(self.runs[0].folder)
        log.write("start", study="test")
        if end == "got on":
            log.write("question", question=0, **MORE, **TOLD)
        passes = end is None or not end.startswith("ValueError")
        log.write("end", error=end, passes=passes, epsilon=1.0)


FULL = f"OSError: [Errno {errno.ENOSPC}] No space left on device"


@pytest.fixture
def curator(tmp_path, monkeypatch):
    monkeypatch.setattr(supervisor, "_LOOK", 0.0)
    monkeypatch.setattr(supervisor, "_PAUSES", (0.0, 0.0))
    (tmp_path / "curator.toml").write_text(
        'host = "localhost"\nport = 9000\nstudies = ["study.json"]\n'
    )
    (tmp_path / "study.json").write_text(json.dumps(asdict(study_of("rounds"))))
    return tmp_path


@pytest.mark.parametrize(
    "ends, status",
    [
        ([None], 0),
        ([FULL, FULL, FULL, FULL, FULL, None], 0),
        (["NoAnswer: none", "ConnectionError: no", None], 0),
        ([*[OSError(errno.ENOSPC, "full")] * 5, FULL, None], 0),
        ([FULL, "ValueError: no", None], 1),
    ],
)
def test_what_may_pass_is_tried_again(curator, ends, status):
    found = Runs(curator, ends)
    assert found.run() == status
    assert found.ends == ([] if status == 0 else [None])


@pytest.mark.parametrize("error", [FULL, "ValueError: no", "NoAnswer: none"])
def test_what_ended_an_earlier_process_is_tried_when_it_is_started(curator, error):
    """Without a hand on run.jsonl, which ends with half a line here."""
    first = Runs(curator, [])
    log = RunLog(first.runs[0].folder)
    log.write("start", study="test")
    log.write("end", error=error)  # as earlier versions wrote it
    with open(log.path, "ab") as file:
        file.write(b'{"at": "2026-')
    assert Runs(curator, [None]).run() == 0
    assert Runs(curator, []).run() == 0
    assert standing(first.runs[0].folder)[0] == 0


LINK = """#!{python}
import socket, sys, time
server = socket.create_server(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])))
time.sleep(60)
"""


@pytest.mark.skipif(os.name != "posix", reason="needs an executable script")
@pytest.mark.parametrize("fault", ["lost", "link"])
def test_a_run_that_ends_before_it_begins_is_started_again(curator, monkeypatch, fault, caplog):
    """And not after the minutes that a run may take to begin on a slow machine."""
    monkeypatch.setattr(supervisor, "_RESUMED", 0.3)
    found = Runs(curator, [*[fault] * (5 if fault == "lost" else 1), None])
    found.bin = curator / "bin"
    found.bin.mkdir()
    script = found.bin / "flower-superlink"
    script.write_text(LINK.format(python=sys.executable))
    script.chmod(0o700)
    begun = time.monotonic()
    assert found.run() == 0
    assert time.monotonic() - begun < 60.0 < supervisor._BEGIN
    why = {"lost": "ended before it began", "link": "not begun in time"}[fault]
    assert f"the run has {why}; it is started again" in caplog.text


def test_the_pause_of_a_run_that_had_got_on_is_short_again(curator, monkeypatch):
    monkeypatch.setattr(supervisor, "_PAUSES", (0.001, 60.0))
    pauses = []

    class Watched(Runs):
        def _start_run(self, app):
            pauses.append(self.runs[0].pause)
            super()._start_run(app)

    assert Watched(curator, ["a: b", "a: b", "got on", "a: b", None]).run() == 0
    assert pauses == [0.001, 0.002, 0.004, 0.002, 0.004]
