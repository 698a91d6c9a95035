"""Kits: what is in them, and federations of them that faults befall while nobody looks on."""

import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

pytest.importorskip("flwr", reason="needs Flower: pip install skpmtl[flower]")

import httpx
import uvicorn
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER

from skpmtl import load_billboard
from skpmtl.datasets.generators import make_low_rank_tasks
from skpmtl.federated import Study, load_models
from skpmtl.federated.__main__ import main as command
from skpmtl.federated._flower import flower_version
from skpmtl.federated.bells import Bells
from skpmtl.federated.control import read_public_key
from skpmtl.federated.door import Door
from skpmtl.federated.provisioning import make_kit
from skpmtl.federated.run_report import write_page
from skpmtl.federated.runlog import RunLog, read_log
from skpmtl.federated.secret_shares import new_share_key
from skpmtl.federated.site_config import Settings, SiteConfig
from skpmtl.federated.site_process import VERSIONS, public_key_of
from skpmtl.privacy import PrivacyReport
from tests.helpers import faults
from tests.helpers.federated_cases import released
from tests.helpers.relay import Relay, free_port, wait_for

pytestmark = pytest.mark.filterwarnings("ignore:The noise of this fit is reproducible")
ROOT = Path(__file__).resolve().parents[2]
LIMIT = 500  # seconds that a run may take on a busy machine; some tens on a quiet one
PARTS = np.array_split(np.arange(9), 3)
SITES = ["a", "b", "c"]
ROWS = make_low_rank_tasks(n_tasks=9, n_samples=12, n_features=4, random_state=0)


def write_study(folder, name, estimator="PrivateMeanRegMTL", lines="", parameters="n_rounds = 6"):
    path = folder / f"{name}.toml"
    path.write_text(
        f'name = "{name}"\nestimator = "{estimator}"\ntasks = {list(range(9))}\nfeatures = 4\n'
        f"timeout = 90\nenrolment = 300\nseed = 5\n{lines}\n[parameters]\n{parameters}\n"
    )
    return path


def kit_of(folder, *studies, address="localhost:9000", **settings):
    make_kit(studies or [write_study(folder, "exam")], SITES, address, folder / "kit", **settings)
    X, y, task = ROWS
    for name, part in zip(SITES, PARTS, strict=True):
        mine = np.isin(task, part)
        np.savez(folder / "kit" / name / "rows.npz", X=X[mine], y=y[mine], task=task[mine])
        path = folder / "kit" / name / "site.toml"
        path.write_text(path.read_text().replace("rows.csv", "rows.npz"))
    return folder / "kit"


# ------------------------------------------------------------------------------- a kit
def test_kit_has_what_starts_it(tmp_path, capsys):
    kit = kit_of(tmp_path, address="curator.example.org")
    assert sorted(path.name for path in kit.iterdir()) == ["a", "b", "c", "curator"]
    for place in kit.iterdir():
        assert place.stat().st_mode & 0o077 == 0
        assert os.access(place / "start", os.X_OK)
        unit = (place / f"skpmtl-{place.name}.service").read_text()
        assert "Restart=on-failure" in unit
        assert "restart: on-failure" in (place / "compose.yaml").read_text()
        for key in place.glob("*.key"):
            assert key.stat().st_mode & 0o077 == 0
    assert not (kit / "a" / "ca.key").exists()
    settings = Settings.load(kit / "a" / "site.toml")
    assert settings.superlink == "curator.example.org:8000"
    assert settings.epsilon == 1.0
    assert len(settings.study[0].curator) == 64
    assert command(["check", str(kit / "curator")]) == 0
    shown = capsys.readouterr().out
    assert "curator.example.org, localhost, 127.0.0.1" in shown
    assert Study.load(tmp_path / "exam.toml").digest in shown
    with pytest.raises(ValueError, match="there already"):
        make_kit([tmp_path / "exam.toml"], SITES, "x", kit)


@pytest.mark.parametrize(
    "sites, address, message",
    [
        (["../x"], "x", "letters"),
        (["curator"], "x", "letters"),
        (["a", "a"], "x", "one name"),
        (["a"], "x:port", "address"),
    ],
)
def test_kit_refuses(tmp_path, sites, address, message):
    with pytest.raises(ValueError, match=message):
        make_kit([write_study(tmp_path, "exam")], sites, address, tmp_path / "kit")
    assert not (tmp_path / "kit").exists()


def test_check_of_a_site_finds_what_is_wrong(tmp_path, capsys):
    kit = kit_of(tmp_path, address=f"localhost:{free_port()}")
    (kit / "a" / "site.key").chmod(0o644)
    path = kit / "a" / "site.toml"
    path.write_text(path.read_text().replace("epsilon = 1.0", "epsilon = 0.5"))
    assert command(["check", str(kit / "a")]) == 1
    shown = capsys.readouterr().out
    assert "3 faults" in shown
    for text in ("can be read by others", "allows 0.5", "refused"):
        assert text in shown
    path.write_text(path.read_text().replace("superlink", "superlinks"))
    assert command(["check", str(kit / "a")]) == 1
    assert "superlinks" in capsys.readouterr().out


@pytest.mark.parametrize(
    "old, new, message",
    [
        ('name = "a"', "name = 3", "name=3 must be text"),
        ("epsilon = 1.0", "epsilon = -1", "must be positive"),
        ('rows = "rows.npz"', "", "needs rows"),
        ('target = "y"', 'targets = "y"', "has the keys ..targets"),
        ("[[study]]", "[studies]", "names no study"),
    ],
)
def test_settings_of_a_site_are_checked(tmp_path, old, new, message):
    path = kit_of(tmp_path) / "a" / "site.toml"
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(ValueError, match=message):
        SiteConfig(path)


def test_flower_is_of_a_version_that_sites_run_with():
    """Their process uses inner parts of Flower; the extra pins them."""
    assert flower_version.rsplit(".", 1)[0] in VERSIONS
    pinned = re.search(r"flwr>=([0-9.]+),<([0-9.]+)", (ROOT / "pyproject.toml").read_text())
    first, last = (tuple(map(int, text.split("."))) for text in pinned.groups())
    known = [tuple(map(int, text.split("."))) for text in VERSIONS]
    assert known[0] == first
    assert known[-1] == (last[0], last[1] - 1)


def test_status_is_true(tmp_path, capsys):
    log = RunLog(tmp_path)
    assert command(["status", str(tmp_path)]) == 1
    assert "is no folder of a curator" in capsys.readouterr().err
    log.write("start", study="exam", digest="0")
    told = {"asked": ["a", "<b>"], "answered": ["a"], "tasks": 9, "missing": 3, "zeroed": 1}
    for number in (0, 1, 1):
        log.write(
            "question", question=number, statistic="update", **told, silent=[], holders=2,
            seconds=1.5, bytes_out=10, bytes_in=20, epsilon=0.1 + number,
        )  # fmt: skip
    assert command(["status", str(tmp_path)]) == 3
    log.write("end", error="ValueError: no")
    assert command(["status", str(tmp_path)]) == 1
    assert "failed: ValueError: no (2 queries answered" in capsys.readouterr().out
    log.write("end", error=None, epsilon=1.1)
    assert command(["status", str(tmp_path)]) == 0
    write_page(tmp_path)
    page = (tmp_path / "run.html").read_text()
    assert page.count("<svg") == 1
    assert "8 of 18 contributions were missing" in page
    assert "&lt;b&gt;" in page
    assert "<b>" not in page


FLEET = b"POST /v1/fleet/pull-messages HTTP/1.1\r\nhost: x\r\n"


@pytest.mark.parametrize(
    "request_, passes",
    [
        (FLEET + b"content-length: 2\r\n\r\nab", [b"ab"]),
        (
            FLEET + b"content-length: 2\r\n\r\nab" + FLEET + b"content-length: 0\r\n\r\n",
            [b"ab", b""],
        ),
        (b"POST /v1/control/start-run HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n", []),
        (b"POST /v1/fleet/../control/x HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n", []),
        (b"POST /v1/fleet/%2e%2e/x HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n", []),
        (b"POST /v1/fleet/a?b HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n", []),
        (b"POST http://x/v1/fleet/a HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n", []),
        (b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", []),
        (FLEET + b"\r\n", []),
        (FLEET + b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n", []),
        (FLEET + b"content-length: 0\r\ncontent-length: 40\r\n\r\n", []),
        (FLEET + b"content-length: 0\n\nPOST /v1/control/x HTTP/1.1\r\n\r\n", [b""]),
        (FLEET + b"content-length : 1\r\n 0\r\n\r\n", []),
        (b"x" * 100_000, []),
    ],
)
def test_door_of_the_superlink(tmp_path, request_, passes):
    """Sites get through, commands of Flower do not; the other side sees what passed only."""
    place, seen = kit_of(tmp_path) / "curator", []
    files = place / "link.pem", place / "link.key", place / "ca.pem"
    port = free_port()
    door = Door(port, *files, Bells(tmp_path))

    async def link(scope, receive, send):
        body = (await receive()).get("body", b"")
        seen.append((scope["method"], scope["path"], body))
        length = [(b"content-length", b"4")]
        await send({"type": "http.response.start", "status": 200, "headers": length})
        await send({"type": "http.response.body", "body": b"good"})

    config = uvicorn.Config(
        link, port=free_port(), ssl_certfile=files[0], ssl_keyfile=files[1], lifespan="off",
        ws="none", log_config=None,
    )  # fmt: skip
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    door.inner = config.port
    door.start()
    wait_for(lambda: server.started and door.server.started)
    outer = ssl.create_default_context(cafile=files[2])
    found = b""
    with (
        socket.create_connection(("127.0.0.1", port)) as plain,
        outer.wrap_socket(plain, server_hostname="localhost") as site,
    ):
        site.settimeout(10)
        try:
            site.sendall(request_)
            while found.count(b"good") < max(len(passes), 1) and (more := site.recv(1 << 12)):
                found += more
        except (ConnectionError, ssl.SSLError):
            pass
    server.should_exit = True
    thread.join(10)
    door.close()
    status = re.findall(rb"HTTP/1.1 (\d+)", found)
    assert status.count(b"200") == len(passes)
    assert set(status) <= {b"200", b"403", b"400"}
    assert seen == [("POST", "/v1/fleet/pull-messages", body) for body in passes]


def ask(door_port, kit, name, path, key=None):
    """A request of a site to the door. -> response"""
    context = ssl.create_default_context(cafile=kit / "curator" / "ca.pem")
    headers = {
        FLEET_HTTP_PUBLIC_KEY_HEADER: public_key_of(key or kit / name / "site.key"),
        "user-agent": f"skpmtl/1.2 ({name})",
    }
    with httpx.Client(verify=context, headers=headers, timeout=30) as client:
        url = f"https://localhost:{door_port}{path}"
        return client.get(url) if path in ("/hello", "/wait") else client.post(url, content=b"")


def test_door_says_who_is_not_let_in(tmp_path):
    kit, port = kit_of(tmp_path), free_port()
    place = kit / "curator"
    bells = Bells(tmp_path)
    door = Door(port, place / "link.pem", place / "link.key", place / "ca.pem", bells)
    door.keys = {read_public_key(place / "sites" / "a.pub"): "a"}
    door.studies = {"exam": "0123"}
    door.start()
    assert ask(port, kit, "a", "/hello").json()["studies"] == {"exam": "0123"}
    found = ask(port, kit, "b", "/hello").json()
    assert found["site"] is None and "studies" not in found
    assert ask(port, kit, "b", "/wait").status_code == 403
    before = bells.replies.count()
    assert int(ask(port, kit, "a", "/wait").text) == bells.queries.count()
    assert bells.replies.count() > before
    assert list(door.seen) == ["a"]
    assert ask(port, kit, "a", "/v1/fleet/x").status_code == 502  # there is no SuperLink
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"https://localhost:{port}/hello")  # trusts another authority
    wait_for(lambda: door.handshakes)
    assert "UNKNOWN_CA" in " ".join(door.handshakes)
    door.close()


def test_check_compares_with_the_curator(tmp_path, capsys):
    """Key, version and study of a site, with what the door of the curator has."""
    port = free_port()
    kit = kit_of(tmp_path, address=f"localhost:{port}")
    place, site = kit / "curator", kit / "a"
    door = Door(port, place / "link.pem", place / "link.key", place / "ca.pem", Bells(tmp_path))
    door.keys = {read_public_key(place / "sites" / "a.pub"): "a"}
    door.studies = {"exam": Study.load(place / "exam.toml").digest}
    door.start()
    wait_for(lambda: door.server.started)

    def faults_found():
        command(["check", str(site)])
        return [line for line in capsys.readouterr().out.splitlines() if line.startswith("FAULT")]

    assert not faults_found()
    path = site / "exam.toml"
    path.write_text(path.read_text().replace("timeout = 90", "timeout = 80"))
    assert "another study at the curator" in "".join(faults_found())
    shutil.copy(kit / "b" / "site.key", site / "site.key")
    assert "the curator knows no such key" in "".join(faults_found())
    door.close()
    assert "ConnectionRefusedError" in "".join(faults_found())


def test_units_and_compose_files_are_well_formed(tmp_path):
    kit = kit_of(tmp_path)
    for place in (kit / "a", kit / "curator"):
        yaml = pytest.importorskip("yaml")
        (service,) = yaml.safe_load((place / "compose.yaml").read_text())["services"].values()
        assert service["restart"] == "on-failure"
        assert ("ports" in service) == (place.name == "curator")
        if shutil.which("systemd-analyze"):
            unit = place / f"skpmtl-{place.name}.service"
            unit.write_text(unit.read_text().replace(f"/srv/{place.name}", str(place)))
            found = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True)
            assert found.returncode == 0, found.stderr
            assert not found.stderr


def with_servers(folder, name, *names, **settings):
    """A study whose servers have made their keys, in the folder. -> path"""
    keys = {}
    for server in names:
        keys[server] = new_share_key(folder / f"{server}.key")
    lines = "".join(f'{server} = "{key}"\n' for server, key in keys.items())
    path = write_study(folder, name, **settings)
    path.write_text(path.read_text() + f"\n[servers]\n{lines}")
    return path


def test_kit_with_servers(tmp_path, capsys):
    study = with_servers(tmp_path, "exam", "north", "south")
    kit = kit_of(tmp_path, study, write_study(tmp_path, "plain"), address="localhost:9000")
    assert {"north", "south"} < {path.name for path in kit.iterdir()}
    (part,) = Settings.load(kit / "north" / "site.toml").study
    assert part.rows is None
    assert len(Settings.load(kit / "a" / "site.toml").study) == 2
    assert not list(kit.rglob("server.key"))  # who makes the kit never has one
    assert command(["check", str(kit / "north")]) == 1
    shutil.copy(tmp_path / "north.key", kit / "north" / "server.key")
    capsys.readouterr()
    command(["check", str(kit / "north")])
    assert "exam: server north" in capsys.readouterr().out
    shutil.copy(tmp_path / "south.key", kit / "north" / "server.key")
    (kit / "north" / "site.toml").touch()
    command(["check", str(kit / "north")])
    assert "exam: server south" in capsys.readouterr().out
    assert command(["key", str(tmp_path / "new.key")]) == 0
    assert len(capsys.readouterr().out.strip()) == 64
    assert command(["key", str(tmp_path / "new.key")]) == 1


# ------------------------------------------------------------------------------ faults
class Running:
    """The processes of a kit, each with a relay of its own between it and the SuperLink."""

    def __init__(self, kit, skew=None, servers=()):
        self.kit, self.skew, self.processes, self.relays = kit, skew or {}, {}, {}
        self.names = ("curator", *SITES, *servers)
        path = os.environ.get("PYTHONPATH")
        self.environment = {
            **os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
            "PYTHON": sys.executable, "PYTHONUNBUFFERED": "1",
            "PYTHONPATH": f"{ROOT}{os.pathsep}{path}" if path else str(ROOT),
        }  # fmt: skip
        port = int(re.search(r"port = (\d+)", (kit / "curator" / "curator.toml").read_text())[1])
        for name in self.names[1:]:
            relay = self.relays[name] = Relay(port)
            relay.start()
            path = kit / name / "site.toml"
            path.write_text(path.read_text().replace(f":{port}", f":{relay.port}"))

    def __enter__(self):
        for name in self.names:
            self.start(name)
        return self

    def start(self, name, before=""):
        """Start a process; of a site, after a line of Python."""
        words = [str(self.kit / name / "start")]
        if name in self.skew:  # a clock that is wrong
            before = (
                "import datetime, flwr.supercore.date as date; true = date.now\n"
                f"date.now = lambda: true() + datetime.timedelta(seconds={self.skew[name]})"
            )
        if before:
            program = (
                f"{before}\nfrom skpmtl.federated.__main__ import main\n"
                f"raise SystemExit(main(['site', {str(self.kit / name)!r}]))"
            )
            words = [sys.executable, "-c", program]
        with open(self.kit / f"{name}.txt", "ab") as log:
            self.processes[name] = subprocess.Popen(
                words, env=self.environment, stdout=log, stderr=log, cwd=self.kit,
                start_new_session=True,
            )  # fmt: skip

    def __exit__(self, *_):
        for process in self.processes.values():
            if process.poll() is None:
                process.terminate()
        for process in self.processes.values():
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                pass
        for process in self.processes.values():
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        for pid, _ in self.of_curator():
            os.kill(pid, signal.SIGKILL)
        for relay in self.relays.values():
            relay.close()

    def of_curator(self):
        """Process and command line of what the curator's process has started."""
        mark = f"FLWR_HOME={self.kit / 'curator' / 'flower'}".encode()
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (path / "environ").read_bytes().split(b"\0"):
                    yield int(path.name), (path / "cmdline").read_bytes()
            except OSError:
                continue

    def kill(self, name):
        if self.processes[name].poll() is None:
            os.kill(self.processes[name].pid, signal.SIGKILL)
        self.processes[name].wait()

    def more_queries(self, number, before=None, study="exam"):
        """Wait until so many more queries are answered."""
        before = len(self.questions(study)) if before is None else before
        wait_for(lambda: len(self.questions(study)) >= before + number, LIMIT)

    def kill_link(self):
        found = [pid for pid, words in self.of_curator() if b"flower-superlink" in words]
        assert found
        for pid in found:
            os.kill(pid, signal.SIGKILL)

    def questions(self, study="exam"):
        return [e for e in read_log(self.kit / "curator" / study) if e["event"] == "question"]

    def reach(self, number, study="exam"):
        """Wait until so many queries are answered."""
        wait_for(lambda: len(self.questions(study)) >= number, LIMIT)

    def finish(self):
        """Exit statuses of all processes that are left."""
        end = time.monotonic() + LIMIT
        for process in self.processes.values():
            process.wait(max(end - time.monotonic(), 1))
        return {name: process.returncode for name, process in self.processes.items()}


def same_as_one_process(kit, study, names=SITES, rtol=1e-12):
    X, y, task = ROWS
    study = Study.load(kit / "curator" / f"{study}.toml")
    whole = study.build().set_params(tasks=study.tasks).fit(X, y, task=task)
    billboard = load_billboard(kit / "curator" / study.name / "billboard.npz").billboard_
    for ours, theirs in zip(released(billboard), released(whole.billboard_), strict=True):
        assert_allclose(ours, theirs, rtol=rtol, atol=rtol)
    for name in names:
        (place,) = (kit / name / "books").glob(f"{study.name}-*")
        est = load_models(place)
        assert_allclose(est.coef_, whole.coef_[est.tasks_], rtol=100 * rtol, atol=rtol)


@pytest.mark.slow
def test_demo_of_a_table(tmp_path, capsys):
    """One command: three sites of a CSV file, their models, and no process that is left."""
    X, y, task = ROWS
    rows = zip(task.tolist(), X.tolist(), y.tolist(), strict=True)
    lines = [",".join(map(repr, [t, *row, z])) for t, row, z in rows]
    (tmp_path / "rows.csv").write_text("\n".join(["school,a,b,c,d,score", *lines]))
    words = ["--rows", str(tmp_path / "rows.csv"), "--task", "school", "--target", "score"]
    assert command(["demo", "--folder", str(tmp_path / "kit"), "--rounds", "2", *words]) == 0
    shown = capsys.readouterr().out
    assert "3 of 3 sites, 9 of 9 tasks" in shown
    assert "The study is finished: 2 queries answered" in shown
    for name in ("site-a", "site-b", "site-c"):
        (place,) = (tmp_path / "kit" / name / "books").glob("demo-*")
        assert len(load_models(place).tasks_) == 3
    assert (tmp_path / "kit" / "curator" / "demo" / "run.html").exists()
    mark = os.fsencode(tmp_path / "kit")
    for path in Path("/proc").glob("[0-9]*"):
        try:
            assert mark not in (path / "cmdline").read_bytes()
        except OSError:  # gone, or of somebody else
            continue


def long_study(folder, n_rounds):
    """Of which no query goes on without all sites, and none is waited for long."""
    parameters = f"n_rounds = {n_rounds}\nepsilon = 1.0"
    path = write_study(folder, "exam", lines="min_sites = 3", parameters=parameters)
    path.write_text(path.read_text().replace("timeout = 90", "timeout = 10"))
    return path


@pytest.mark.slow
def test_faults_are_named_at_both_ends(tmp_path, capsys):
    """Site and reason are in the curator's log, in its status and on the page, and the reason is
    in the log of the site; when it is mended the study goes on."""
    kit = kit_of(tmp_path, long_study(tmp_path, 60), address=f"localhost:{free_port()}")

    def status():
        command(["status", str(kit / "curator")])
        return capsys.readouterr().out

    with Running(kit) as running:
        running.reach(1)
        for fault in (faults.other_key, faults.rows_with_gaps):  # others: tests.helpers.faults
            named, _, _ = faults.befall(running, fault, status)
            assert all(named.values()), (fault, named)


@pytest.mark.slow
def test_faults_without_a_hand_on_any_site(tmp_path):
    """Two studies at once; the SuperLink is killed, one site's line drops for 20 s, another's
    loses packets for 15 s, and the clocks of two are ten minutes off: nothing is lost."""
    studies = [
        write_study(tmp_path, "exam"),
        write_study(tmp_path, "meta", "DPMetaInit", "n_rows = 12",
                    "epsilon = 8.0\ntasks_per_round = 3\nvisits = 2"),
    ]  # fmt: skip
    kit = kit_of(tmp_path, *studies, address=f"localhost:{free_port()}")
    with Running(kit, skew={"a": 600, "c": -600}) as running:
        running.reach(1)
        running.relays["b"].drop()
        threading.Timer(20, lambda: setattr(running.relays["b"], "mode", "pass")).start()
        running.reach(2)
        running.relays["c"].mode = "lose"
        threading.Timer(15, lambda: setattr(running.relays["c"], "mode", "pass")).start()
        running.reach(3)
        running.kill_link()
        assert running.finish() == dict.fromkeys(["curator", *SITES], 0)
    same_as_one_process(kit, "exam")
    same_as_one_process(kit, "meta")
    assert command(["status", str(kit / "curator")]) == 0
    for name in SITES:
        text = (kit / f"{name}.txt").read_text()
        assert ("The clock here is" in text) == (name != "b")
        assert len((kit / name / "books" / "ledger.jsonl").read_text().splitlines()) > 6
    assert (kit / "curator" / "exam" / "run.html").exists()
    for secret in load_models(next((kit / "a" / "books").glob("exam-*"))).coef_:
        assert secret.tobytes() not in b"".join(map(bytes, running.relays["a"].up))


@pytest.mark.slow
def test_all_processes_are_killed_and_started_again(tmp_path):
    """As a machine that is switched off."""
    study = write_study(tmp_path, "exam", parameters="n_rounds = 4\nclip_norm = 1.0")
    kit = kit_of(tmp_path, study, address=f"localhost:{free_port()}")
    with Running(kit) as running:
        running.reach(1)
        running.kill("b")
        running.start("b")
        running.reach(2)
        running.kill("curator")
        running.start("curator")
        assert running.finish() == dict.fromkeys(["curator", *SITES], 0)
        lost = [event["missing"] for event in running.questions()]
    assert set(lost) <= {0, 3}
    if not any(lost):
        same_as_one_process(kit, "exam")


@pytest.mark.slow
def test_site_that_is_gone_is_waited_for_once(tmp_path):
    kit = kit_of(tmp_path, write_study(tmp_path, "exam", parameters="n_rounds = 12"),
                 address=f"localhost:{free_port()}")  # fmt: skip
    for place in ("curator", *SITES):
        path = kit / place / "exam.toml"
        path.write_text(path.read_text().replace("timeout = 90", "timeout = 20"))
    with Running(kit) as running:
        running.reach(2)
        running.kill("b")
        running.reach(5)
        running.start("b")
        assert running.finish() == dict.fromkeys(["curator", *SITES], 0)
        asked, events = running.questions(), read_log(kit / "curator" / "exam")
    away = [e for e in asked if "b" not in e["answered"]]
    assert away
    assert sum("b" in e["asked"] for e in away) <= 1  # it is waited for once
    (_, back) = (k for k, e in enumerate(events) if e["event"] == "site" and e["site"] == "b")
    later = [e for e in events[back:] if e["event"] == "question"]
    assert all("b" in e["asked"] for e in later)  # how many depends on how fast it starts


@pytest.mark.slow
def test_servers_between_processes(tmp_path):
    """Equal to servers in one process; a server and the curator are killed in between, and no
    contribution is on any wire, nor in a folder that is not of its site."""
    study = with_servers(tmp_path, "exam", "north", "south", parameters="n_rounds = 4")
    kit = kit_of(tmp_path, study, address=f"localhost:{free_port()}")
    for name in ("north", "south"):
        shutil.copy(tmp_path / f"{name}.key", kit / name / "server.key")
    with Running(kit, servers=("north", "south")) as running:
        running.reach(1)
        running.kill("north")
        running.start("north")
        running.reach(2)
        running.kill("curator")
        running.start("curator")
        assert running.finish() == dict.fromkeys(running.names, 0)
    same_as_one_process(kit, "exam", rtol=1e-5)
    wires = b"".join(bytes(b) for r in running.relays.values() for b in [*r.up, *r.down])
    assert len(wires) > 10_000
    for name in SITES:
        (path,) = (kit / name / "books").glob("*/state.npz")
        with np.load(path) as state:
            sent = [row.tobytes() for row in state["row.update"]]
        for other in kit.rglob("*"):
            if other.is_file() and kit / name not in other.parents:
                data = other.read_bytes()
                assert not any(row in data for row in sent)
        assert not any(row in wires for row in sent)
    report = PrivacyReport.from_json((kit / "curator" / "exam" / "report.json").read_text())
    assert "servers of their own (north, south)" in report.notes["transport"]
