"""The log of a run, on full disks and after crashes."""

import json
import os

import pytest

from skpmtl.federated.runlog import RunLog, missing, read_log, standing

TOLD = {"tasks": 9, "missing": 3, "zeroed": 0, "answered": ["a"], "holders": 1, "epsilon": 0.5}


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
