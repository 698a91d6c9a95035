"""Keeps the curator's side of studies going: the SuperLink, the keys of the sites, the runs.

What fails is started again and goes on from the database and the journal; what cannot succeed as
it is ends it, with a true exit status, and is tried when it is started the next time. Flower's own
commands do not report whether a run has failed.

Why a site is not connected stands in the log of the curator's folder (`skpmtl.federated.runlog`),
why it does not answer in that of the study; both are shown, and raise alerts.
"""

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from ..exchange.journal import lock_file, write_file
from ..tables.ids import listed
from .alerts import Alerts
from .bells import Bells
from .ledger import private_folder
from .run_report import write_page
from .runlog import FAILED, FINISHED, WAITING, RunLog, line, may_pass, read_log, standing, troubles
from .studies import write_studies
from .study import Study

__all__ = ["NotStarted", "Supervisor", "read_curator"]

logger = logging.getLogger("skpmtl")

_LOOK = 0.5  # seconds
_BEGIN = 240.0  # seconds after which a run that has not begun is started again
_RESUMED = 30.0  # the same from when the SuperLink that it was given to has ended
_PAUSES = (2.0, 60.0)  # seconds before a failed run is started again: at first, and at most
_ABSENT = 30.0  # seconds without a word of a site after which it is said to be away
_PAGE = 10.0  # seconds between two pages of a run
_TRIES = 3  # of runs that do not even begin, and of SuperLinks that end at once
_APP = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "skpmtl-federated"
version = "1.0.0"
description = "Federated fit of skpmtl"
license = "BSD-3-Clause"
dependencies = []  # every machine has its own skpmtl[flower]

[tool.hatch.build.targets.wheel]
bypass-selection = true

[tool.flwr.app]
publisher = "skpmtl"

[tool.flwr.app.components]
serverapp = "skpmtl.federated.server:app"
clientapp = "skpmtl.federated.client:app"

[tool.flwr.app.config]
study = {study}
folder = {folder}
key = {key}
nodes = {nodes}
bells = {bells}
"""
ENVIRONMENT = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.5",
}


class NotStarted(RuntimeError):
    """What the SuperLink refuses, whenever it is asked."""


@dataclass(frozen=True)
class Curator:
    """A ``curator.toml``: where the SuperLink listens, the files of the studies, and alerts."""

    host: str
    port: int
    studies: list
    alert: str | None = None  # a command, or a URL: see `skpmtl.federated.alerts`
    alert_after: float = 600.0  # seconds that a site is waited for before that is one


def read_curator(folder):
    """Read ``curator.toml``.

    Raises ValueError for unknown or missing keys.
    """
    path = Path(folder) / "curator.toml"
    given = import_module("tomllib").loads(path.read_text())
    known, needed = {"alert", "alert_after"}, {"host", "port", "studies"}
    if not needed <= set(given) <= needed | known or not given["studies"]:
        raise ValueError(
            f"{path} must have host, port and studies, may have {listed(sorted(known))}, and has "
            f"{listed(sorted(given))}."
        )
    if not given.get("alert_after", 1.0) > 0:
        raise ValueError(f"{path}: alert_after must be a positive number of seconds.")
    return Curator(**given)


def write_app(app, study, folder, key="", nodes="", bells=""):
    """Write the app that ``flwr run`` starts, in the folder `app`.

    It has no code, but names files on the curator's machine, as `skpmtl.federated.server` takes
    them.
    """
    app.mkdir(exist_ok=True)
    paths = {"study": study, "folder": folder, "key": key, "nodes": nodes, "bells": bells}
    text = {name: json.dumps(str(path)) for name, path in paths.items()}
    (app / "pyproject.toml").write_text(_APP.format(**text))


class _Run:
    """One study: its folder, and the Flower run that is to finish it."""

    def __init__(self, path, folder):
        study = Study.load(path)
        self.path, self.name, self.digest = path, study.name, study.digest
        self.folder = private_folder(folder / self.name)
        self.before = self.seen = len(read_log(self.folder))
        self.started, self.starts, self.pause, self.tries = None, 0, _PAUSES[0], 0
        self.number, self.since = None, None  # of the Flower run; of the first try to begin
        self.next, self.page = 0.0, (0, -_PAGE)  # events on the page, and when it was written

    def rest(self, now):
        """Set the next start after a pause; each pause is twice as long as the last, to a limit."""
        self.next, self.pause = now + self.pause, min(2 * self.pause, _PAUSES[1])


class Supervisor:
    """Runs all studies of a curator's folder, as `make_kit` writes it, to their end."""

    def __init__(self, folder):
        self.folder = private_folder(Path(folder).resolve())
        self.settings = read_curator(self.folder)
        self.flower = private_folder(self.folder / "flower")
        self.nodes, self.control = self.flower / "nodes.json", None
        self.bin = Path(sys.executable).parent
        self.environment = {
            **os.environ, **ENVIRONMENT, "FLWR_HOME": str(self.flower),
            "PATH": f"{self.bin}{os.pathsep}{os.environ.get('PATH', '')}",
        }  # fmt: skip
        self.runs = [_Run(self.folder / file, self.folder) for file in self.settings.studies]
        self.link, self.stop, self._births = None, False, []
        self.door, self.inner = None, 0
        self.bells, self.log = Bells(self.flower), RunLog(self.folder)
        self.alerts = Alerts(self.settings.alert, self.settings.alert_after)
        self.begun, self._shown, self._changes = time.monotonic(), {}, 0

    def run(self):
        """Until all studies have ended. -> exit status: 0 when all are finished, else 1"""
        try:
            lock = lock_file(self.folder / "lock", wait=False)
        except BlockingIOError:
            raise ValueError(f"{self.folder} is kept by another process already.") from None
        with lock:
            try:
                return self._run()
            finally:
                self._end_link()

    def _run(self):
        self._open_door()
        while not self.stop:
            try:
                if not self._look():
                    break
            except OSError as error:
                if not may_pass(error):
                    raise
                logger.warning("%s: %s; retrying", type(error).__name__, error)
                time.sleep(_PAUSES[0])
            time.sleep(_LOOK)
        status = [self._stands(run) for run in self.runs]
        for run in self.runs:
            logger.info("%s: %s", run.name, standing(run.folder)[1])
            self._page(run, last=True)
        self._alert(final=True)
        self.alerts.finish()
        return FINISHED if status == [FINISHED] * len(status) else FAILED

    def _look(self):
        """Start what is to run and does not. -> whether anything is left"""
        for run in self.runs:
            self._show(run)
            self._page(run)
        self._watch()
        self._alert()
        left = [run for run in self.runs if self._stands(run) == WAITING]
        if left and (self.link is None or self.link.poll() is not None):
            self._start_link()
        if left and self.door is not None and self.door.inner != self.inner:
            self._register()
        for run in left:
            self._go_on(run)
        return bool(left)

    def _stands(self, run):
        """As `standing`, where what may still succeed is not failed.

        That is what may pass, and whatever ended a run before this process was started.
        """
        status, _ = standing(run.folder)
        if status == FAILED and run.tries <= _TRIES:
            events = read_log(run.folder)
            last = max(i for i, e in enumerate(events) if e["event"] == "end")
            if last < run.before or events[last].get("passes"):
                return WAITING
        if status == WAITING and run.tries > _TRIES:
            return FAILED
        return status

    def _show(self, run):
        events = read_log(run.folder)
        for event in events[run.seen :]:
            level = logging.WARNING if event["event"] in ("trouble", "waiting") else logging.INFO
            logger.log(level, "%s: %s", run.name, line(event))
        run.seen = len(events)

    def _page(self, run, last=False):
        """Write the page of a run where something has happened; its pictures at the end."""
        count, now = run.seen + self._changes, time.monotonic()
        if not last and (count == run.page[0] or now - run.page[1] < _PAGE):
            return
        run.page = count, now
        try:
            write_page(run.folder, pictures=last)
            write_studies(self.folder)
        except OSError as error:
            logger.warning("%s: the report page cannot be written: %s", run.name, error)

    # ------------------------------------------------------------------ sites and alerts
    def _watch(self):
        """Log which sites are connected, and why others are not."""
        if self.door is None:
            return
        now = time.monotonic()
        for name in sorted({*self.door.keys.values(), *self.door.refused}):
            seen = self.door.seen.get(name)
            if why := self.door.refused.get(name):
                self._connection(name, why)
            elif seen is not None and now - seen < _ABSENT:
                self._connection(name, None)
            elif now - max(seen or 0.0, self.begun) >= _ABSENT:
                self._connection(name, self._absent(seen is not None))

    def _absent(self, before):
        why = "it is not connected any more" if before else "it has not connected"
        why += (
            ": its process does not run, or its network, the address or the certificate in its "
            "site.toml stops it; the log there says which"
        )
        if self.door.handshakes:
            why += (
                " (callers that were turned away by TLS, or went away because of it: "
                f"{listed(sorted(self.door.handshakes))})"
            )
        return why

    def _connection(self, name, why):
        """Log a change of the connection of a site; None: it is connected."""
        if self._shown.get(name, "") == why:
            return
        self._shown[name] = why
        self._changes += 1
        if why is None:
            event = self.log.write("connected", site=name)
        else:
            event = self.log.write("trouble", site=name, reason=why)
        logger.log(logging.INFO if why is None else logging.WARNING, "%s", line(event))

    def _alert(self, final=False):
        """Send alerts about ended runs, and about sites that a run waits for."""
        here = troubles(read_log(self.folder))
        for run in self.runs:
            status, text = standing(run.folder)
            if status == FINISHED or final or self._stands(run) == FAILED:
                if status != WAITING or final:
                    kind = {FINISHED: "finished", FAILED: "failed"}.get(status, "stopped")
                    self.alerts.notify(kind, run.name, text)
                continue
            for site, event in {**here, **troubles(read_log(run.folder))}.items():
                self.alerts.waits(run.name, site, event)

    # -------------------------------------------------------------------------- runs
    def _go_on(self, run):
        """Start a run that does not run."""
        now = time.monotonic()
        if standing(run.folder)[1].startswith("running"):
            return
        ended = run.started is not None and self._ended(run)  # before the log is read
        events = [event["event"] for event in read_log(run.folder)]
        text = standing(run.folder)[1]  # after it: the run may have begun since
        if text.startswith("running"):
            return
        starts = events.count("start")
        if run.started is not None and starts == run.starts:
            if not ended and now - run.started < _BEGIN:
                return  # it takes some seconds to begin
            logger.warning(
                "%s: the run %s; it is started again", run.name,
                "has ended before it began" if ended else "has not begun in time",
            )  # fmt: skip
            if ended:
                run.rest(now)
                if now - run.since < _TRIES * _BEGIN:  # as long as what does not begin has
                    run.tries -= 1
        elif run.started is not None and starts > run.starts:  # it had begun, and was cut off
            run.tries, run.since = 0, None
            if "question" in events[::-1][: events[::-1].index("start")]:  # it had got on
                run.pause = _PAUSES[0]
            run.rest(now)
            logger.warning("%s: %s; restarting", run.name, text)
        run.started = None
        if now < run.next:
            return
        if run.tries == _TRIES:
            run.tries += 1
            logger.error("%s: giving up; see %s", run.name, self.flower / "superlink.txt")
            return
        run.starts = starts
        app, key = self.flower / f"app-{run.name}", self.folder / "curator.key"
        write_app(app, run.path, run.folder, key if key.exists() else "", self.nodes, self.flower)
        try:
            run.number = self._start_run(app)
        except NotStarted as error:
            logger.warning("%s: not started: %s", run.name, error)
            run.next = now + _PAUSES[0]
        else:
            run.started = now
            run.since = now if run.since is None else run.since
        run.tries += 1  # not where the disk was full

    def _start_run(self, app):
        return self.control.start(app)

    def _ended(self, run):
        """Whether Flower's run of a study is over, as far as the SuperLink says."""
        try:
            return self.control.ended(run.number)
        except (NotStarted, OSError):
            return False

    # --------------------------------------------------------------------- SuperLink
    def _open_door(self):
        from .door import Door

        place = self.folder
        try:
            self.door = Door(
                self.settings.port, place / "link.pem", place / "link.key", place / "ca.pem",
                self.bells,
            )  # fmt: skip
        except OSError as error:
            raise RuntimeError(
                f"Port {self.settings.port} cannot be opened ({error}): end what uses it, or name "
                "another port in curator.toml and in the sites' site.toml."
            ) from error
        self.door.studies = {run.name: run.digest for run in self.runs}
        self.door.start()

    def _start_link(self):
        now = time.monotonic()
        self._births = [t for t in self._births if now - t < 60] + [now]
        if len(self._births) > _TRIES + 2:
            raise RuntimeError(
                f"The SuperLink ends as soon as it is started; see {self.flower}/superlink.txt."
            )
        if self.link is not None:
            logger.warning("The SuperLink has ended; restarting it")
            time.sleep(min(len(self._births), 5))
        self._end_link()
        for run in self.runs:  # one that had not begun may have ended with the SuperLink
            if run.started is not None:
                run.started = min(run.started, now + _RESUMED - _BEGIN)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.inner = probe.getsockname()[1]
        database, place = self.flower / "state.db", self.folder
        with open(self.flower / "superlink.txt", "ab") as log:
            self.link = subprocess.Popen(
                [
                    self.bin / "flower-superlink", "--host", "127.0.0.1",
                    "--port", str(self.inner), "--enable-supernode-auth",
                    "--ssl-ca-certfile", place / "ca.pem", "--ssl-certfile", place / "link.pem",
                    "--ssl-keyfile", place / "link.key", "--database", database,
                    "--disable-runtime-dependency-installation",
                ],
                env=self.environment, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        end = time.monotonic() + 60
        while self.link.poll() is None and time.monotonic() < end and not self.stop:
            try:
                socket.create_connection(("127.0.0.1", self.inner), 1).close()
            except OSError:
                time.sleep(0.1)
                continue
            logger.info("The SuperLink accepts connections on port %d", self.settings.port)
            return

    def _register(self):
        """Make the keys of the sites known, and write down what their numbers are."""
        from .control import Control, read_public_key

        keys = {}
        for path in sorted((self.folder / "sites").glob("*.pub")):
            try:
                keys[read_public_key(path)] = path.stem
            except ValueError as error:
                self._connection(path.stem, str(error))
        self.control = Control(self.inner, self.folder / "ca.pem")
        nodes = sorted(self.control.know(keys).items())
        write_file(self.nodes, json.dumps([[str(node), name] for node, name in nodes]).encode())
        self.door.keys, self.door.inner = keys, self.inner
        self.door.refused.clear()

    def _end_link(self):
        """The SuperLink and all that it has started, also by a keeper that was killed.

        A run cannot go on with another SuperLink, but would try to for ever, with its journal.
        """
        if self.link is not None and self.link.poll() is None:
            self.link.terminate()
            try:
                self.link.wait(10)
            except subprocess.TimeoutExpired:
                self.link.kill()
                self.link.wait()
        for number, patience in ((signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0)):
            for pid in self._started():
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    pass
            end = time.monotonic() + patience
            while self._started() and time.monotonic() < end:
                time.sleep(0.1)

    def _started(self):
        """Processes with the home of this folder's Flower, on systems that list them (Linux)."""
        mark, found = os.fsencode(f"FLWR_HOME={self.flower}"), []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (path / "environ").read_bytes().split(b"\0"):
                    found.append(int(path.name))
            except OSError:  # gone, or of somebody else
                continue
        return [pid for pid in found if pid != os.getpid()]
