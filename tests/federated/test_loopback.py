"""Federations of real processes on loopback: a SuperLink, three sites that stay, and faults."""

import io
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.preprocessing import normalize

pytest.importorskip("flwr", reason="needs Flower: pip install skpmtl[flower]")

from skpmtl import load_billboard
from skpmtl.datasets.generators import make_low_rank_tasks
from skpmtl.datasets.school import load_school
from skpmtl.federated import Study, load_models
from skpmtl.federated.runlog import FINISHED, WAITING, standing
from skpmtl.federated.supervisor import ENVIRONMENT, write_app
from skpmtl.privacy import PrivacyReport
from tests.helpers.relay import Relay, free_port, reachable, wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:The noise of this fit is reproducible"),
]
BIN = Path(sys.executable).parent
ROOT = Path(__file__).resolve().parents[2]
LIMIT = 400  # seconds that a run may take on a busy machine; 50 on a quiet one


class Federation:
    """All processes of one federation in one folder; leaving it ends them all.

    Parameters
    ----------
    folder : Path
    study : Study
    rows : tuple
        X, y, task
    parts : sequence of arrays of tasks
    """

    def __init__(self, folder, study, rows, parts):
        self.folder, self.study, self.processes = folder, study, {}
        self.port, self.parts = free_port(), parts
        self.relay = Relay(self.port)
        (folder / "study.json").write_text(json.dumps(asdict(study)))
        X, y, task = rows
        for k, part in enumerate(parts):
            mine = np.isin(task, part)
            np.savez(folder / f"rows{k}.npz", X=X[mine], y=y[mine], task=task[mine])
        for name in ("home", "logs"):
            (folder / name).mkdir()
        path = os.environ.get("PYTHONPATH")
        self.environment = {
            **os.environ,
            **ENVIRONMENT,
            "FLWR_HOME": str(folder / "home"),
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": f"{ROOT}{os.pathsep}{path}" if path else str(ROOT),
        }

    def __enter__(self):
        try:
            self._begin()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in self.processes.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
        end = time.monotonic() + 10
        for process in self.processes.values():
            try:
                process.wait(max(end - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                pass
            try:  # its children, too
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        for pid, _ in self.descendants():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.relay.close()

    def start(self, name, *words):
        with open(self.folder / "logs" / f"{name}.txt", "ab") as log:
            self.processes[name] = subprocess.Popen(
                [str(word) for word in words], env=self.environment, stdout=log, stderr=log,
                cwd=self.folder, start_new_session=True,
            )  # fmt: skip

    def call(self, *words, timeout=LIMIT):
        done = subprocess.run(
            [str(word) for word in words], env=self.environment, cwd=self.folder,
            capture_output=True, text=True, timeout=timeout,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout

    def _begin(self):
        (self.folder / "home" / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n\n[superlink.here]\n'
            f'address = "127.0.0.1:{self.port}"\ninsecure = true\n'
        )
        self.start(
            "link", BIN / "flower-superlink", "--insecure", "--host=127.0.0.1",
            f"--port={self.port}", "--disable-runtime-dependency-installation",
        )  # fmt: skip
        wait_for(lambda: reachable(self.port))
        self.relay.start()
        for k in range(len(self.parts)):
            (self.folder / f"site{k}").mkdir()
            (self.folder / f"site{k}" / "site.toml").write_text(
                f'name = "site{k}"\nsuperlink = "127.0.0.1:{self.relay.port}"\nfolder = "books"\n'
                f'[[study]]\nfile = "../study.json"\nrows = "../rows{k}.npz"\n'
            )
            self.start(f"site{k}", sys.executable, "-m", "skpmtl.federated", "site", f"site{k}")
        write_app(self.folder / "app", self.folder / "study.json", self.folder / "curator")

    def run(self):
        """Start the study and wait for its end."""
        self.call(BIN / "flwr", "run", "app", "here")
        self.wait()

    def wait(self):
        wait_for(lambda: standing(self.folder / "curator")[0] != WAITING, LIMIT)
        assert standing(self.folder / "curator")[0] == FINISHED

    def kill_curator(self):
        """The process of the ServerApp, which the SuperLink has started."""
        found = [pid for pid, words in self.descendants() if b"flwr-serverapp" in words]
        assert found
        for pid in found:
            os.kill(pid, signal.SIGKILL)

    def descendants(self):
        """Yield process and command line; some have sessions of their own."""
        mark = f"FLWR_HOME={self.folder / 'home'}".encode()
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (path / "environ").read_bytes().split(b"\0"):
                    yield int(path.name), (path / "cmdline").read_bytes()
            except OSError:  # gone, or of somebody else
                continue

    def site(self, k):
        (place,) = (self.folder / f"site{k}" / "books").glob(f"{self.study.name}-*")
        return place


def arrays_in(stream):
    """Every numpy array whose bytes are in a stream."""
    found = []
    for match in re.finditer(re.escape(b"\x93NUMPY"), stream):
        try:
            found.append(np.load(io.BytesIO(stream[match.start() : match.start() + (1 << 20)])))
        except ValueError:
            pass
    return found


def school():
    """The School data. -> X, y, task"""
    data = load_school(scale="public")
    return normalize(data.data), data.target / 70.0, data.task


def in_process(study, rows):
    X, y, task = rows
    return study.build().set_params(tasks=study.tasks).fit(X, y, task=task)


def test_school_over_plain_sockets(tmp_path):
    """Equal to one process; rows and personal models are on no wire and in no other folder."""
    rows = X, y, task = school()
    study = Study(
        "school", "PrivateMeanRegMTL", list(range(139)), X.shape[1], {"n_rounds": 2},
        timeout=120.0, enrolment=120.0, seed=5,
    )  # fmt: skip
    parts = np.array_split(np.arange(139), 3)
    with Federation(tmp_path, study, rows, parts) as federation:
        start = time.monotonic()
        federation.run()
        took = time.monotonic() - start
        log = (tmp_path / "logs" / "link.txt").read_bytes()
        up, down = (b"\n".join(map(bytes, c)) for c in (federation.relay.up, federation.relay.down))
    whole = in_process(study, rows)
    public = load_billboard(tmp_path / "curator" / "billboard.npz")
    for ours, theirs in zip(public.billboard_.releases, whole.billboard_.releases, strict=True):
        assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)
    for k, part in enumerate(parts):
        est = load_models(federation.site(k))
        assert est.tasks_.tolist() == part.tolist()
        assert_allclose(est.coef_, whole.coef_[part], rtol=1e-10, atol=1e-12)
        mine = np.isin(task, part)
        assert est.score(X[mine], y[mine], task=task[mine]) > 0.1
        # Everything numeric that this site sent: clipped updates, and whether they were inside.
        with np.load(federation.site(k) / "state.npz") as kept:
            assert kept["row.update"].tobytes() in up  # the search finds what is there
        for secret in (est.coef_, *est.coef_, est.intercept_, X[mine], y[mine][:50]):
            assert secret.tobytes() not in up + down + log
        for row in np.unique(X[mine], axis=0):
            assert row.tobytes() not in up
    sent = arrays_in(up)
    updates, inside = ([a for a in sent if a.ndim == n] for n in (2, 1))
    # On a busy machine a query may have been sent again, and gets the same answer.
    assert len({update.tobytes() for update in updates}) == 2 * 3
    assert len(inside) == len(updates)
    assert len(sent) == len(updates) + len(inside)
    bound = max(public.billboard_.clip_norms) * (1 + 1e-15)  # as these sums are rounded
    for update in updates:
        assert np.linalg.norm(update, axis=1).max() <= bound
    assert np.isin(np.concatenate(inside), [-0.5, 0.5]).all()
    received = arrays_in(down)
    released = [np.zeros(28), *np.cumsum(whole.billboard_.releases, axis=0)]
    for anchor in released[:2]:
        assert sum(a.shape == (1, 28) and np.allclose(a, anchor) for a in received) >= 3
    assert public.billboard_.centres.tobytes() in down
    report = PrivacyReport.from_json((tmp_path / "curator" / "report.json").read_text())
    assert report.notes["transport"] in report.text(None)
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"CPU {spent.ru_utime + spent.ru_stime:.1f} s")
    print(f"{took:.1f} s; bytes up {len(up)}, down {len(down)}, for 3 sites and 4 exchanges")


def test_curator_is_killed_and_started_again(tmp_path):
    """It goes on from its journal, and running models at the sites take no step twice."""
    rows = make_low_rank_tasks(n_tasks=9, n_samples=12, n_features=4, random_state=0)
    study = Study(
        "restart", "PublishedMeanRegMTL", list(range(9)), 4,
        {"n_rounds": 3, "update": "algorithm-1", "personalization": "none"}, timeout=120.0,
        enrolment=120.0, seed=5,
    )  # fmt: skip
    journal = tmp_path / "curator" / "journal"
    with Federation(tmp_path, study, rows, np.array_split(np.arange(9), 3)) as federation:
        federation.call(BIN / "flwr", "run", "app", "here")
        wait_for(lambda: (journal / "000000.npz").exists(), LIMIT)
        federation.kill_curator()
        kept = {path.name: path.read_bytes() for path in journal.glob("*.npz")}
        assert 1 <= len(kept) < 3
        federation.run()
    for name, content in kept.items():
        assert (journal / name).read_bytes() == content
    whole = in_process(study, rows)
    public = load_billboard(tmp_path / "curator" / "billboard.npz")
    assert_allclose(public.billboard_.releases, whole.billboard_.releases, rtol=1e-12, atol=1e-12)
    for k in range(3):
        est = load_models(federation.site(k))
        assert_allclose(est.coef_, whole.coef_[est.tasks_], rtol=1e-10, atol=1e-12)
