"""Real processes of NVFlare: a server and three sites, set up as the guide says, and killed."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

pytest.importorskip("nvflare", reason="needs NVFlare: pip install skpmtl[nvflare]")

from nvflare.apis.fl_exception import UnsafeComponentError
from nvflare.apis.workspace import Workspace
from nvflare.app_common.widgets.component_path_authorizer import ComponentPathAuthorizer

from skpmtl import load_billboard
from skpmtl.datasets.generators import make_low_rank_tasks
from skpmtl.federated import Study, load_models
from skpmtl.federated.runlog import questions, read_log
from skpmtl.survival import SurvivalMTL
from tests.survival.test_sites import CUTS, EPSILON, study_of, target
from tests.survival.test_sites import rows as survival_rows

pytestmark = pytest.mark.filterwarnings("ignore:The noise of this fit is reproducible")
ROOT = Path(__file__).resolve().parents[2]
SITES = ("site-a", "site-b", "site-c")
FOREIGN = "nvflare.app_common.np.np_trainer.NPTrainer"  # in the list of a kit by default
LIMIT = 600.0  # seconds, after which something hangs
PROJECT = """
api_version: 3
name: exam
description: three sites
participants:
  - {name: localhost, type: server, org: curator, fed_learn_port: %d}
  - {name: site-a, type: client, org: a}
  - {name: site-b, type: client, org: b}
  - {name: site-c, type: client, org: c}
  - {name: curator@example.org, type: admin, org: curator, role: lead}
builders:
  - path: nvflare.lighter.impl.workspace.WorkspaceBuilder
  - path: nvflare.lighter.impl.static_file.StaticFileBuilder
    args: {config_folder: config}
  - path: nvflare.lighter.impl.cert.CertBuilder
  - path: nvflare.lighter.impl.signature.SignatureBuilder
"""


class Federation:
    """Processes of one federation in one folder; leaving it ends them."""

    def __init__(self, folder, study, rows, *options):
        self.folder, self.study, self.rows, self.processes = folder, study, rows, {}
        self.kits = folder / "workspace" / "exam" / "prod_00"
        self.environment = {
            **os.environ,
            "HOME": str(folder),
            "OMP_NUM_THREADS": "1",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
        }
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            (folder / "project.yml").write_text(PROJECT % probe.getsockname()[1])
        (folder / "study.json").write_text(study.to_json())
        self.call("nvflare", "provision", "-p", "project.yml", "-w", "workspace", "--force")
        for name, part in zip(SITES, np.array_split(study.tasks, 3), strict=True):
            mine = np.isin(rows["task"], part)
            np.savez(folder / f"{name}.npz", **{key: all_[mine] for key, all_ in rows.items()})
            kit = str(self.kits / name)
            self.command("site", kit, "study.json", "--rows", f"{name}.npz", *options)
        self.command("curator", str(self.kits / "localhost"))

    def call(self, *words):
        given = {"cwd": self.folder, "env": self.environment, "timeout": LIMIT}
        done = subprocess.run(words, capture_output=True, text=True, **given)
        assert done.returncode == 0, done.stdout + done.stderr

    def command(self, *words):
        self.call(sys.executable, "-m", "skpmtl.federated", *words)

    def start(self, name, *words):
        words = words or ["bash", str(self.kits / name / "startup" / "sub_start.sh"), "--once"]
        with open(self.folder / f"{name}.txt", "ab") as log:
            self.processes[name] = subprocess.Popen(
                words,
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self, name):
        """End a process and its children at once, as a crash of the machine does."""
        try:
            os.killpg(self.processes[name].pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.processes[name].wait()

    def limit(self, name, size):
        """Let no file that a site writes grow above `size` bytes; -1: no limit."""
        import resource

        kit = str(self.kits / name).encode()
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if kit in path.read_bytes():
                    resource.prlimit(int(path.parent.name), resource.RLIMIT_FSIZE, (size, -1))
            except (FileNotFoundError, ProcessLookupError):  # it has just ended
                pass

    def __enter__(self):
        self.end = time.monotonic() + LIMIT  # the commands before may take long
        for name in ("localhost", *SITES):
            self.start(name)
        self.submit()
        return self

    def submit(self):
        kit = str(self.kits / "curator@example.org")
        self.start("run", sys.executable, "-m", "skpmtl.federated", "run", "study.json", kit)

    def __exit__(self, *_):
        for name in self.processes:
            self.kill(name)

    @property
    def curator(self):
        return self.kits / "localhost" / "studies" / self.study.name

    def wait(self, number, end):
        """Until a query was released."""
        self.wait_for(lambda events: number in questions(events), end)

    def wait_for(self, found, end):
        """Until the log of the run has something."""
        while not found(read_log(self.curator)):
            assert time.monotonic() < end, (self.folder / "run.txt").read_text()
            assert self.processes["run"].poll() is None
            time.sleep(0.2)

    def site(self, name):
        (place,) = (self.kits / name / "books").glob(f"{self.study.name}-*")
        return place


def low_rank_rows():
    found = make_low_rank_tasks(n_tasks=9, n_samples=12, n_features=4, random_state=0)
    return dict(zip(("X", "y", "task"), found, strict=True))


@pytest.fixture
def federation(tmp_path):
    """Three sites and a server that run a study, which needs all three."""
    rows = low_rank_rows()
    settings = {"timeout": 10.0, "enrolment": 15.0, "seed": 5, "min_sites": 3}
    parameters = {"epsilon": 60.0}
    study = Study("exam", "MPMTLLowRank", list(range(9)), 4, parameters, **settings)
    with Federation(tmp_path, study, rows) as federation:
        federation.wait(1, federation.end)
        yield federation


def releases(federation):
    """Files of the journal. -> {path: content}"""
    return {path: path.read_bytes() for path in (federation.curator / "journal").glob("*.npz")}


def finish(federation, kept):
    """The result is that of one process with the same seed, so that no noise was drawn again."""
    assert federation.processes["run"].wait(federation.end - time.monotonic()) == 0
    assert {path: path.read_bytes() for path in kept} == kept
    X, y, task = federation.rows.values()
    study = federation.study
    whole = study.build().set_params(tasks=study.tasks).fit(X, y, task=task)
    public = load_billboard(federation.curator / "billboard.npz")
    released = whole.billboard_.releases
    for there, here in zip(public.billboard_.releases, released, strict=True):
        assert_allclose(there, here, rtol=1e-12, atol=1e-12)
    for name in SITES:
        est = load_models(federation.site(name))
        assert_allclose(est.coef_, whole.coef_[est.tasks_], rtol=1e-10, atol=1e-12)
        ledger = (federation.site(name).parent / "ledger.jsonl").read_text().splitlines()
        assert [json.loads(line)["question"] for line in ledger] == list(range(len(released)))


def test_killed_site_and_server_spend_nothing_twice(federation):
    federation.kill("site-b")
    kept = releases(federation)
    federation.start("site-b")
    federation.wait(3, federation.end)
    federation.kill("localhost")
    federation.kill("run")
    kept |= releases(federation)
    federation.start("localhost")
    federation.submit()
    finish(federation, kept)


@pytest.mark.skipif(sys.platform != "linux", reason="needs prlimit")
@pytest.mark.slow  # two minutes
def test_full_disk_of_a_site_spends_nothing(federation):
    """The ledger cannot be written, so that no answer is sent; with room again the study goes on
    in the next job."""
    federation.limit("site-c", 64)
    federation.wait_for(lambda events: events[-1]["event"] == "end", federation.end)
    error = read_log(federation.curator)[-1]["error"]
    assert error.startswith("TooFew: Query") and "its disk is full" in error
    kept = releases(federation)
    ledger = federation.site("site-c").parent / "ledger.jsonl"
    assert len(ledger.read_text().splitlines()) == len(kept)
    federation.limit("site-c", -1)
    finish(federation, kept)


@pytest.mark.slow  # other processes once more
def test_hazards_of_three_sites_equal_one_table(tmp_path):
    study, table = study_of(features=2, timeout=10.0, enrolment=15.0, min_sites=3), survival_rows()
    options = "--event", "event", "--entry", "entry"
    with Federation(tmp_path, study, table, *options) as federation:
        federation.wait_for(lambda events: events and events[-1]["event"] == "end", federation.end)
        assert federation.processes["run"].wait(federation.end - time.monotonic()) == 0
        whole = SurvivalMTL(CUTS, epsilon=EPSILON, tasks=study.tasks, random_state=study.seed)
        X, task = table["X"], table["task"]
        whole.fit(X, target(table), task=task, entry=table["entry"])
        for name in SITES:
            model = load_models(federation.site(name))
            mine = np.isin(task, model.tasks_)
            assert 0 < mine.sum() < len(X)
            ours, theirs = (
                each.predict_survival_function(X[mine], task=task[mine], times=[0.1, 0.5, 2.0])
                for each in (model, whole)
            )
            assert_allclose(ours, theirs, rtol=1e-6)


def test_kits_allow_one_class_no_code_and_no_logs(tmp_path):
    study = Study("exam", "PrivateMeanRegMTL", list(range(9)), 4)
    rows = low_rank_rows()
    kits = Federation(tmp_path, study, rows).kits
    for name, allowed in (
        ("site-a", "skpmtl.federated.executor.SiteExecutor"),
        ("localhost", "skpmtl.federated.controller.StudyController"),
    ):
        authorizer, workspace = ComponentPathAuthorizer(), Workspace(str(kits / name))
        authorizer.authorize_component_config({"path": allowed}, workspace=workspace)
        with pytest.raises(UnsafeComponentError, match="not in allow_list"):
            authorizer.authorize_component_config({"path": FOREIGN}, workspace=workspace)
        local = kits / name / "local"
        resources = json.loads((local / "resources.json").read_text())
        assert resources["class_list_enforcement_mode"] == "enforce"
        assert resources["class_allow_list"] == [allowed]
        assert resources["allow_log_streaming"] is False
        assert "LogStreamer" not in json.dumps(resources["components"])
        assert "/tmp/nvflare" not in (local / "resources.json").read_text()
        roles = json.loads((local / "authorization.json").read_text())["permissions"]
        assert all(r["byoc"] == r["shell_commands"] == "none" for r in roles.values())


def test_only_public_names_of_the_engine_are_imported():
    """Those of the API reference: controllers, executors, messages, and the FLARE API."""
    public = {
        "nvflare.apis.controller_spec",
        "nvflare.apis.executor",
        "nvflare.apis.fl_constant",
        "nvflare.apis.impl.controller",
        "nvflare.apis.shareable",
        "nvflare.fuel.flare_api",
        "nvflare.fuel.flare_api.flare_api",
    }
    found = set()
    for path in (ROOT / "skpmtl").rglob("*.py"):
        text = path.read_text()
        found |= set(re.findall(r"^\s*(?:from|import) (nvflare[\w.]*)", text, re.MULTILINE))
        assert not re.search(r"^\s*(?:from|import) (flwr|nvflare\.private)", text, re.MULTILINE)
    assert found == public
