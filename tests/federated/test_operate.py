"""What operators see and settle: alerts, studies and budgets, who is waited for, clocks."""

import http.server
import json
import re
import sys
import threading
from datetime import timedelta
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

pytest.importorskip("flwr", reason="needs Flower: pip install skpmtl[flower]")

from skpmtl.federated import site_process
from skpmtl.federated.__main__ import main as command
from skpmtl.federated.alerts import Alerts
from skpmtl.federated.bells import Bells
from skpmtl.federated.refusals import Refusal
from skpmtl.federated.runlog import RunLog, read_log, standing, troubles
from skpmtl.federated.server import curate
from skpmtl.federated.site_config import SiteConfig
from skpmtl.federated.studies import write_studies
from tests.federated.test_kit import kit_of, write_study
from tests.helpers.federated_cases import in_process, study_of
from tests.helpers.federated_grid import InProcessGrid

pytestmark = pytest.mark.filterwarnings("ignore:The noise of this fit is reproducible")


# ------------------------------------------------------------------------------ alerts
def test_alert_of_a_command_is_called_once(tmp_path):
    words = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read())"
    alerts = Alerts(f'{sys.executable} -c "{words}" {tmp_path / "told"}', after=0.0)
    trouble = {"at": "2026-01-01T00:00:00", "reason": "its books are gone"}
    for _ in range(3):
        alerts.waits("exam", "clinic-b", trouble)
        alerts.finish()
    alerts.notify("finished", "exam", "finished: 3 queries")
    alerts.finish()
    found = [json.loads(line) for line in (tmp_path / "told").read_text().splitlines()]
    assert [one["kind"] for one in found] == ["waits", "finished"]
    assert found[0] == {
        "kind": "waits", "study": "exam", "site": "clinic-b", "text": "its books are gone",
    }  # fmt: skip


def test_alert_of_a_url_is_posted_and_faults_stop_nothing(caplog):
    got = []

    class Hook(http.server.BaseHTTPRequestHandler):
        def do_POST(self):  # noqa: N802
            got.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Hook) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        alerts = Alerts(f"http://127.0.0.1:{server.server_port}/", after=60.0)
        alerts.waits("exam", "a", {"at": "now", "reason": "away"})  # not for so long yet
        alerts.notify("failed", "exam", "ValueError: no")
        alerts.finish()
    assert [(one["kind"], one["text"]) for one in got] == [("failed", "ValueError: no")]
    nobody = Alerts("/no/such/command", after=0.0)
    nobody.notify("failed", "exam", "no")
    nobody.finish()
    assert "/no/such/command" in caplog.text


# ------------------------------------------------------------------------ how runs stand
def test_status_names_sites_and_reasons(tmp_path, capsys):
    kit = kit_of(tmp_path)
    study, around = RunLog(kit / "curator" / "exam"), RunLog(kit / "curator")
    study.path.parent.mkdir()
    study.write("start", study="exam", digest="0")
    for reason in ("no reply", "refused: other rows", "refused: other rows"):
        study.write("trouble", site="b", reason=reason)
    study.write("trouble", site="c", reason="no reply")
    study.write("site", site="c", tasks=3)
    study.write("clock", site="c", seconds=600.0)
    around.write("trouble", site="a", reason="a caller from 10.0.0.7 has a key that is not in")
    assert command(["status", str(kit / "curator")]) == 3
    shown = capsys.readouterr().out
    assert re.search(r"  b \(since .* UTC\): refused: other rows\n", shown)
    assert re.search(r"connections:\n  a \(since .* UTC\): a caller from 10.0.0.7", shown)
    assert "no reply" not in shown
    assert "  site c: its clock is +600 s off" in shown
    around.write("connected", site="a")
    assert not troubles(read_log(kit / "curator"))
    for folder in (kit, kit / "a", tmp_path / "nothing"):
        assert command(["status", str(folder)]) == 1
        assert "is no folder of a curator" in capsys.readouterr().err


def test_studies_of_a_budget(tmp_path, capsys):
    """A site counts a study as a whole when it has begun; what is left is that of the cap."""
    files = [write_study(tmp_path, "first"), write_study(tmp_path, "second")]
    with pytest.raises(ValueError, match="need epsilon 2 in all, more than the 1.5"):
        kit_of(tmp_path, *files, cap=1.5)
    kit = kit_of(tmp_path, *files, cap=4.0)
    site = SiteConfig(kit / "a" / "site.toml")
    first = site.open(site.parts[0], study := site_study(site, 0))
    public = study.schedule.examples["update"]
    first.answer(0, "update", public, first.positions)
    assert command(["studies", str(kit / "a")]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"first +1 +1 +1 +answered last at", shown)
    assert re.search(r"second +1 +0 +0 +not begun", shown)
    assert "epsilon 1 spent" in shown and "allows 4, so that 3 is left" in shown
    assert command(["studies", str(kit / "curator")]) == 0
    assert "epsilon 0 spent of 2" in capsys.readouterr().out
    write_studies(kit / "a")
    page = (kit / "a" / "studies.html").read_text()
    assert "<td>first<td>1<td>1<td>1<td>answered" in page
    assert command(["studies", str(tmp_path)]) == 1


def site_study(config, place):
    from skpmtl.federated import Study

    return Study.load(config.parts[place].file)


# ------------------------------------------------------------------------ who is needed
@pytest.mark.parametrize(
    "least", [{"min_sites": 3}, {"min_tasks": 7}, {"min_sites": 2, "min_tasks": 9}]
)
def test_no_budget_is_spent_on_too_few(tmp_path, least):
    """One of three sites does not answer: the query waits, and goes on when it does."""
    study, away = study_of("rounds", timeout=0.3, enrolment=1.5, **least), [True]

    def broken(node, message, reply):
        lost = away and node == 1001 and "train" in message.metadata.message_type
        return None if lost else reply

    grid = InProcessGrid(study, tmp_path, broken=broken)
    with pytest.raises(RuntimeError, match="no budget is spent"):
        curate(grid, study, tmp_path / "curator")
    assert not list((tmp_path / "curator" / "journal").glob("*.npz"))
    assert [e["event"] for e in read_log(tmp_path / "curator")].count("waiting") >= 1
    assert "site-1" in troubles(read_log(tmp_path / "curator"))
    away.clear()
    billboard = curate(InProcessGrid(study, tmp_path), study, tmp_path / "curator")
    assert_array_equal(billboard.releases, in_process(study).billboard_.releases)
    assert not troubles(read_log(tmp_path / "curator"))


def test_half_of_the_tasks_are_needed_by_default(tmp_path):
    study = study_of("rounds", timeout=0.3, enrolment=0.3)
    assert study.least == (1, 5)
    grid = InProcessGrid(study, tmp_path)
    grid.offline = {1001, 1002}
    with pytest.warns(UserWarning, match="Held by no site"):
        with pytest.raises(RuntimeError, match="1 sites with 3 tasks are connected"):
            curate(grid, study, tmp_path / "curator")
    assert standing(tmp_path / "curator")[0] == 1
    with pytest.raises(ValueError, match="min_tasks=10 must be a number from 1 to 9"):
        study_of("rounds", min_tasks=10)
    assert study_of("rounds", min_tasks=1).digest != study.digest


def test_expected_sites_are_counted_and_named(tmp_path):
    """By the names of their keys; a site whose books are gone learns it from the first message."""
    study = study_of("rounds")
    nodes = {1000: "north", 1001: "east", 1002: "west", 1003: "south"}
    curate(InProcessGrid(study, tmp_path), study, tmp_path / "curator", nodes=nodes)
    found = [e for e in read_log(tmp_path / "curator") if e["event"] == "question"]
    assert all(e["answered"] == ["east", "north", "west"] and e["expected"] == 4 for e in found)
    assert "the last one by 3 of 4 sites" in standing(tmp_path / "curator")[1]


@pytest.mark.parametrize(
    "asked, message",
    [
        (("0" * 64, "test", "9.9"), "it has skpmtl .*, and the curator 9.9"),
        (("0" * 64, "other", ""), "takes part in .*test.*, and not in 'other'"),
        (("0" * 64, "test", ""), "given another study .digest .*, the curator's 000000000000"),
    ],
)
def test_site_says_what_is_different(tmp_path, asked, message):
    InProcessGrid(study_of("rounds"), tmp_path)
    with pytest.raises(Refusal, match=message):
        SiteConfig(tmp_path / "site0.toml").site(*asked)


# -------------------------------------------------------------------------------- clocks
@pytest.mark.parametrize(
    "ahead, stopped, said", [(0, 0, 0), (0, 25, 0), (600, 0, -600), (-600, 25, 600)]
)
def test_a_stopped_site_has_no_wrong_clock(monkeypatch, caplog, ahead, stopped, said):
    """The time between request and answer is not that between two clocks."""
    true, passed = site_process.now(), [0.0]
    monkeypatch.setattr(
        site_process, "now", lambda: true - timedelta(seconds=ahead) + timedelta(seconds=passed[0])
    )
    monkeypatch.setattr(site_process, "sign_message", lambda key, text: text)
    monkeypatch.setattr(site_process, "public_key_to_bytes", lambda key: b"")
    clock = site_process._Clock(None, None, "clinic-a")

    def call(context):
        answered = (true + timedelta(seconds=passed[0])).strftime("%a, %d %b %Y %H:%M:%S GMT")
        passed[0] += stopped
        return SimpleNamespace(headers={"date": answered})

    for _ in range(2):
        clock.intercept(SimpleNamespace(request=SimpleNamespace(headers={})), call)
    assert abs(clock.ahead - ahead) <= stopped / 2 + 1
    assert ("off that of the SuperLink" in caplog.text) == bool(said)


def test_bells_ring_between_processes(tmp_path):
    ours, theirs = Bells(tmp_path), Bells(tmp_path)
    known = ours.replies.count()
    assert ours.replies.wait(known, 0.05) == known
    threading.Timer(0.1, theirs.replies.ring).start()
    assert ours.replies.wait(known, 30.0) > known
    counts = {ours.queries.ring() or ours.queries.count() for _ in range(20)}
    assert len(counts) == 20 and np.all(np.diff(sorted(counts)) > 0)
