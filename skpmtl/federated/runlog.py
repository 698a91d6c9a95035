"""What happened in a run, for its curator: one line of JSON for each event, in ``run.jsonl``.

The log is private to the curator: it has which site answered when, and, where participants are
sampled, who took part. `standing` reads from it how a run stands, `troubles` which sites do not
take part and why, `missing` how much of it did not come.

What is no whole line counts as nothing. A line is on the disk before the journal has the release it
is about, so that half of one, which a full disk or a killed process has left, is of a query that
was not released, is asked again, and gets a line of its own. No answer, noise or budget depends on
the log.
"""

import json
import math
from datetime import datetime, timezone
from pathlib import Path

from ..exchange.journal import append_line, lock_file

__all__ = ["RunLog", "line", "missing", "read_log", "standing", "troubles"]

FINISHED, FAILED, WAITING = 0, 1, 3  # exit statuses


class RunLog:
    """Appends to the log in the folder of a curator."""

    def __init__(self, folder):
        self.path = Path(folder) / "run.jsonl"

    def write(self, event, **fields):
        """Add a line; numbers that are not finite become null. -> the event"""
        fields = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in fields.items()
        }
        at = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        event = {"at": at, "event": event, **fields}
        append_line(self.path, json.dumps(event, allow_nan=False))
        return event


def read_log(folder):
    """Events of a run, without lines that are none."""
    path = Path(folder) / "run.jsonl"
    if not path.exists():
        return []
    *lines, _ = path.read_bytes().split(b"\n")
    events = []
    for line in lines:
        try:
            event = json.loads(line)
            event["event"], event["at"]
        except (ValueError, TypeError, KeyError):
            continue
        events.append(event)
    return events


def questions(events):
    """{number: its last event} of the queries; one may have been asked again after a restart."""
    return {e["question"]: e for e in events if e["event"] == "question"}


def missing(events, *, public=False):
    """How many contributions of tasks were asked for, and how many did not come. -> int, int

    `public`: without those that came and are not finite, which the rows of a task decide.
    """
    found = questions(events).values()
    zeroed = 0 if public else sum(e["zeroed"] for e in found)
    return sum(e["tasks"] for e in found), sum(e["missing"] for e in found) + zeroed


def troubles(events):
    """Why sites do not take part now. -> {site: its last event of the kind "trouble"}"""
    found = {}
    for event in events:
        if event["event"] == "trouble":
            known = found.get(event["site"])
            since = known["at"] if known and known["reason"] == event["reason"] else event["at"]
            found[event["site"]] = {**event, "at": since}
        elif event["event"] == "site":
            found.pop(event["site"], None)
        elif event["event"] == "question":
            for name in event["answered"]:
                found.pop(name, None)
    return found


def trouble_lines(events):
    """The same for people. -> list of str"""
    return [
        f"{site} (since {event['at'][:19].replace('T', ' ')} UTC): {event['reason']}"
        for site, event in sorted(troubles(events).items())
    ]


def standing(folder):
    """How a run stands. -> exit status, text

    0: finished; 1: ended by an error; 3: running, or not running and not finished.
    """
    folder = Path(folder)
    events = read_log(folder)
    if not events:
        return WAITING, "not started"
    asked = questions(events)
    text = f"{len(asked)} queries answered"
    if asked:
        last = asked[max(asked)]
        text += f", the last one by {len(last['answered'])} of {last['holders']} sites"
    end = next((e for e in reversed(events) if e["event"] in ("start", "end")), None)
    if _running(folder / "journal"):
        last = next((e for e in reversed(events) if e["event"] in ("waiting", "question")), None)
        if last is not None and last["event"] == "waiting":
            return WAITING, f"running, and waits: {last['reason']} ({text})"
        return WAITING, f"running: {text}"
    if end is None or end["event"] == "start":
        return WAITING, f"cut off: {text}"
    if end["error"] is not None:
        return FAILED, f"failed: {end['error']} ({text})"
    return FINISHED, f"finished: {text}, epsilon {end['epsilon']:.4g}"


def line(event):
    """The event of a query in one line for people."""
    lost = event["missing"] + event["zeroed"]
    text = (
        f"query {event['question']} ({event['statistic']}): {len(event['answered'])} of "
        f"{event['holders']} sites, {event['tasks'] - lost} of {event['tasks']} tasks, "
        f"{event['seconds']:.1f} s"
    )
    if event["zeroed"]:
        text += f", {event['zeroed']} not finite and counted as zero"
    if event["silent"]:
        text += f", silent: {', '.join(event['silent'])}"
    return text


def _running(journal):
    if not (journal / "lock").exists():
        return False
    try:
        lock_file(journal / "lock", wait=False).close()
    except BlockingIOError:
        return True
    return False
