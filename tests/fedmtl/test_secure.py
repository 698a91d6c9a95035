"""FedMTL on secret shares: result, what the servers see, and servers that fail."""

import csv
import importlib.util
import itertools
import json
import os
import re
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from benchmarks.reproduce import fedmtl_secure
from skpmtl.fedmtl import processes
from skpmtl.fedmtl.mpc_server.job import (
    BYTES,
    HEADER,
    PRIME,
    SCORE,
    SIZE,
    VALUE,
    Job,
    Uploads,
    write_secret,
)
from skpmtl.fedmtl.secure import (
    MpcServers,
    collect_answer,
    make_certificates,
    secure_aggregate,
    split_upload,
    with_header,
)

SERVER = sys.executable, "-m", "mpc_server"
TIMEOUT = 120.0  # of a run; a busy machine needs a part of it
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def mpc():
    """Skips without the extra. Nothing is imported: MPyC reads sys.argv when it is."""
    for module in ("mpyc", "gmpy2", "cryptography"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is missing: needs the extra skpmtl[mpc]")


@pytest.fixture
def no_process(monkeypatch):
    def started(*arguments, **settings):
        raise AssertionError("a server was started")

    monkeypatch.setattr(processes.subprocess, "Popen", started)


def clients(seed, counts=(2, 3, 1, 2, 3), n_tasks=4, n_shared=7, length=6):
    """Two groups of clients with opposite heads: cosines of both signs."""
    rng = np.random.default_rng(seed)
    prototypes = rng.normal(size=(n_tasks, length))
    heads, tasks = [], []
    for i, count in enumerate(counts):
        own = rng.choice(n_tasks, count, replace=False)
        sign = 1.0 if i % 2 else -1.0
        heads.append(sign * prototypes[own] + 0.4 * rng.normal(size=(count, length)))
        tasks.append([f"task {k}" for k in own])
    sizes = rng.integers(5, 500, len(counts))
    thresholds = rng.uniform(0.05, 0.9, len(counts))
    return rng.normal(size=(len(counts), n_shared)), heads, tasks, sizes, thresholds


def cosine(u, v):
    norms = np.linalg.norm(u) * np.linalg.norm(v)
    return u @ v / norms if len(u) == len(v) and norms > 0 else 0.0


def similarities(heads):
    """Equations 4 to 6, by enumeration."""
    S = np.eye(len(heads))
    for i, j in itertools.permutations(range(len(heads)), 2):
        few, many = sorted((heads[i], heads[j]), key=len)
        H = max(
            sum(max(0.0, cosine(few[a], many[b])) for a, b in enumerate(chosen))
            for chosen in itertools.permutations(range(len(many)), len(few))
        )
        S[i, j] = H / len(heads[i])
    return S


def plainly(shared, heads, tasks, sizes, thresholds):
    """Equations 2 to 9 as they stand. -> shared, heads, least |S_ij - Z_i|"""
    n, S = len(shared), similarities(heads)
    new_shared, new_heads = [], []
    for i in range(n):
        near = [j for j in range(n) if j == i or S[i, j] >= thresholds[i]]
        weights = {j: S[i, j] * sizes[j] for j in near}
        new_shared.append(sum(w * shared[j] for j, w in weights.items()) / sum(weights.values()))
        own = []
        for task in tasks[i]:
            having = [j for j in near if task in tasks[j]]
            total = sum(weights[j] for j in having)
            own.append(sum(weights[j] * heads[j][tasks[j].index(task)] for j in having) / total)
        new_heads.append(own)
    off = ~np.eye(n, dtype=bool)
    return np.array(new_shared), new_heads, np.abs(S - np.reshape(thresholds, (n, 1)))[off].min()


def assert_equal_models(got, expected, tolerance=1e-6):
    for ours, theirs in zip([got[0], *got[1]], [expected[0], *expected[1]], strict=True):
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=tolerance)


def two_lengths(seed):
    """The heads of task 3 have four more parameters."""
    shared, heads, tasks, sizes, thresholds = clients(seed, counts=(2, 1, 3))
    more = np.random.default_rng(seed).normal(size=(len(heads), 4))
    for i, own in enumerate(tasks):
        heads[i] = list(heads[i])
        if "task 3" in own:
            k = own.index("task 3")
            heads[i][k] = np.append(heads[i][k], more[i])
    return shared, heads, tasks, sizes, thresholds


def near(arguments):
    """The arguments with thresholds as near as equality is promised, on both sides.

    0 and 1 are exact.
    """
    S = similarities(arguments[1])
    beside = np.array([S[i, (i + 1) % len(S)] for i in range(len(S))])
    thresholds = np.abs(beside + 1.2e-5 * (-1.0) ** np.arange(len(S)))
    expected = plainly(*arguments, thresholds)
    assert 1e-5 < expected[2] < 1.5e-5
    assert np.abs(expected[0] - arguments[0]).max() > 1e-3  # somebody has neighbours
    return thresholds, expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "settings"),
    [(clients, {}), (two_lengths, {"max_size": 10_000}), (two_lengths, {"n_servers": 5})],
    ids=["one length", "two lengths, larger bounds", "5 servers"],
)
def test_equals_the_plain_computation(mpc, make, settings):
    *arguments, _ = make(2)
    thresholds, expected = near(arguments)
    *got, similarity = secure_aggregate(*arguments, thresholds, timeout=TIMEOUT, **settings)
    assert similarity is None
    assert_equal_models(got, expected)


@pytest.fixture
def open_umask():
    """New files are readable by others unless who writes them says otherwise."""
    old = os.umask(0o022)
    yield
    os.umask(old)


def modes(paths):
    return {path.stat().st_mode & 0o777 for path in paths}


def test_servers_stay_up_between_rounds(mpc, open_umask, tmp_path):
    """And what they and the clients write is for their owner only."""
    folder = tmp_path / "kept"
    with MpcServers(timeout=TIMEOUT, folder=folder) as servers:
        started = []
        for seed, counts in ((0, (2, 1)), (1, (1, 2))):
            *arguments, _ = clients(seed, counts=counts, n_tasks=2)
            thresholds, expected = near(arguments)
            *got, similarity = servers.aggregate(*arguments, thresholds, max_heads=2, max_size=512)
            assert similarity is None
            assert_equal_models(got, expected)
            started.append([server.pid for server in servers.servers])
        assert started[0] == started[1]
        with pytest.raises(ValueError, match="same shapes"):
            servers.aggregate(*arguments, thresholds, max_heads=3, max_size=512)
    assert all(server.returncode is not None for server in servers.servers)
    secret = [path for path in folder.rglob("*") if path.suffix in (".shares", ".key")]
    assert len(secret) == 3 * (2 * (2 + 2) + 1) and modes(secret) == {0o600}
    assert modes([folder, *(path for path in folder.rglob("*") if path.is_dir())]) == {0o700}
    with pytest.raises(FileExistsError):
        make_certificates([folder / "server0"])
    spent = [json.loads(path.read_text()) for path in sorted(folder.glob("*/*/out/run.json"))]
    # Bytes are those of a round, and shapes alone set them (a number may be a byte shorter).
    np.testing.assert_allclose([run["bytes_sent"] for run in spent[1::2]],
                               [run["bytes_sent"] for run in spent[::2]], rtol=1e-2)  # fmt: skip


@pytest.mark.slow
def test_order_of_heads_and_added_rows_change_nothing(mpc):
    shared, heads, tasks, sizes, thresholds = arguments = clients(3, counts=(3, 2, 3))
    expected = plainly(*arguments)
    assert expected[2] > 1e-5
    back = [own[::-1] for own in heads], [own[::-1] for own in tasks]
    got = secure_aggregate(shared, *back, sizes, thresholds, max_heads=4, timeout=TIMEOUT)
    assert_equal_models(got, (expected[0], [own[::-1] for own in expected[1]]))


@pytest.mark.slow
def test_own_model_survives_at_the_highest_threshold(mpc):
    shared, heads, tasks, _, _ = clients(4, counts=(2, 1))
    # Sizes of a ratio at the bound: the small client's own weight is the smallest there can be.
    got = secure_aggregate(shared, heads, tasks, [1, 2**16], 1.0, timeout=TIMEOUT)
    assert_equal_models(got, (shared, heads))


@pytest.mark.slow
def test_messages_do_not_tell_the_number_of_tasks(mpc, tmp_path):
    seen = []
    for name, counts in (("few", (1, 1)), ("many", (3, 2))):
        folder = tmp_path / name
        arguments = clients(0, counts=counts)
        # A mapping with all the tasks is public: a third client makes both runs have the same.
        shared, heads, tasks, sizes, thresholds = arguments
        mapping = [f"task {k}" for k in range(3)]
        secure_aggregate(
            np.vstack([shared, shared[:1]]), [*heads, np.ones((3, 6))],
            [[mapping[k] for k in range(len(own))] for own in tasks] + [mapping],
            [*sizes, 9], 0.5, max_heads=3, folder=folder, timeout=TIMEOUT,
        )  # fmt: skip
        files = sorted(folder.glob("server?/round-0/*/*.shares"))
        ends = sorted(folder.glob("*/round-0/out/run.json"))
        runs = [json.loads(path.read_text()) for path in ends]
        seen.append(
            (
                [(path.relative_to(folder), path.stat().st_size) for path in files],
                [run["bytes_sent"] for run in runs],
            )
        )
    (few_files, few_bytes), (many_files, many_bytes) = seen
    assert len(few_files) == 3 * 2 * 3
    assert few_files == many_files
    # One element in 256 is a byte shorter, at random.
    np.testing.assert_allclose(few_bytes, many_bytes, rtol=1e-3)


RECORDER = """
import sys
from pathlib import Path
from mpc_server import link, server
folder = Path(sys.argv[1]).resolve()
receive = link.Link.data_received
def recorded(self, data):
    with (folder / "received").open("ab") as file:
        file.write(data)
    receive(self, data)
link.Link.data_received = recorded
server.main([str(folder)])
"""


def encodings(shared, heads, size, threshold, max_size):
    """Byte strings that would betray a number of a client."""
    units = heads / np.linalg.norm(heads, axis=1, keepdims=True)
    parts = (
        (shared, VALUE),
        (heads, VALUE),
        (units, SCORE),
        (size / max_size, SIZE),
        (threshold, SCORE),
    )
    for values, bits in parts:
        for value in np.ravel(values):
            integer = int(np.rint(value * 2.0**bits))
            yield np.float64(value).tobytes()
            yield (integer % PRIME).to_bytes(BYTES, "little")


def elements(share):
    raw = share[HEADER:]
    return [int.from_bytes(raw[k : k + BYTES], "little") for k in range(0, len(raw), BYTES)]


def test_servers_hold_and_receive_shares_only(mpc, tmp_path):
    """Servers as on three machines: separate commands and folders; all input is recorded."""
    shared, heads, tasks, sizes, thresholds = clients(5, counts=(2, 1, 2))
    job = Job(
        addresses=[f"127.0.0.1:{port}" for port in processes.free_ports(3)],
        n_clients=3, n_shared=7, n_tasks=4, head_length=6, max_heads=2, max_size=512.0,
        timeout=TIMEOUT, name="Hospitals/1", round=4,
    )  # fmt: skip
    folders = [tmp_path / f"server{rank}" for rank in range(3)]
    make_certificates(folders)
    secrets = set()
    for rank, folder in enumerate(folders):
        job.save(folder, rank)
        (folder / "in").mkdir()
    for i in range(3):
        columns = [int(task[-1]) for task in tasks[i]]
        upload = shared[i], heads[i], columns, sizes[i], thresholds[i]
        for folder, share in zip(folders, split_upload(job, i, *upload), strict=True):
            (folder / "in" / f"{i}.shares").write_bytes(share)
        secrets |= set(encodings(shared[i], heads[i], sizes[i], thresholds[i], 512.0))
    assert min(map(len, secrets)) >= 7
    command = [sys.executable, "-c", RECORDER]
    servers = [
        subprocess.Popen([*command, str(folder)], stderr=subprocess.PIPE, cwd=processes.PLACE)
        for folder in folders
    ]
    for server in servers:
        errors = server.communicate(timeout=TIMEOUT)[1]
        assert server.returncode == 0, errors.decode()

    for folder in folders:
        held = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        assert len(held[folder / "received"]) > 50_000  # the messages of two servers
        for path, content in held.items():
            assert not [secret for secret in secrets if secret in content], path
    # The search can find: the shares of any two servers together are the upload.
    for a, b in itertools.combinations(range(3), 2):
        pair = [elements((folders[r] / "in" / "0.shares").read_bytes()) for r in (a, b)]
        x, z = a + 1, b + 1
        joined = [
            (z * u - x * v) * pow(z - x, -1, PRIME) % PRIME for u, v in zip(*pair, strict=True)
        ]
        raw = b"".join(value.to_bytes(BYTES, "little") for value in joined)
        expected = encodings(shared[0], heads[0], sizes[0], thresholds[0], 512.0)
        assert sum(secret in raw for secret in expected) >= 7 + 12 + 12 + 2

    expected = plainly(shared, heads, tasks, sizes, thresholds)
    assert expected[2] > 1e-5
    for i in range(3):
        answers = [(folder / "out" / f"{i}.shares").read_bytes() for folder in folders]
        new_shared, new_heads = collect_answer(job, i, answers)
        count = len(tasks[i])
        assert_equal_models(
            ([new_shared], [new_heads[:count]]), ([expected[0][i]], [expected[1][i]])
        )
        assert np.abs(new_heads[count:]).max(initial=0.0) < 1e-6
        with pytest.raises(RuntimeError, match=rf"server 0 is another one: .*client={i} instead"):
            collect_answer(job, (i + 1) % 3, answers)
        with pytest.raises(RuntimeError, match="server 0 is another one: .*rank=1 instead of 0"):
            collect_answer(job, i, [answers[1], answers[0], answers[2]])
        with pytest.raises(RuntimeError, match="bytes instead of 3 times"):
            collect_answer(job, i, answers[:2])
        damaged = bytearray(answers[2])
        damaged[-1] ^= 1
        with pytest.raises(RuntimeError, match=f"client {i} at server 2 is cut or damaged"):
            collect_answer(job, i, [*answers[:2], bytes(damaged)])
        # A server that lies about its numbers, or whose answer is of another run.
        body = damaged[HEADER:]
        split = json.loads(answers[2][:HEADER])["split"]
        for number in (split, "0" * 32):
            lie = with_header(job, "answer", i, 2, number, bytes(body))
            with pytest.raises(RuntimeError, match="do not fit together"):
                collect_answer(job, i, [*answers[:2], lie])
    run = json.loads((folders[0] / "out" / "run.json").read_text())
    assert job.largest_message * BYTES / 2 <= run["largest_message"] <= job.largest_message * BYTES


def small_job(n_servers=3, n_shared=4000):
    return Job(["h:1"] * n_servers, 2, n_shared, 2, 3, 2, 8.0, name="small", round=0)


@pytest.mark.parametrize("n_servers", [3, 5])
def test_shares_of_a_minority_are_uniform(n_servers):
    job = small_job(n_servers)
    shares = split_upload(job, 1, np.zeros(4000), [[1.0, 0, 0]], [0], 8.0, 0.5)
    assert len({len(share) for share in shares}) == 1
    values = np.array([elements(share)[:4000] for share in shares], dtype=object) / PRIME
    values = values.astype(float)
    for own in values:
        assert stats.kstest(own, "uniform").pvalue > 1e-9
    if n_servers == 5:  # two of them together: the sum of both, whatever multiple
        for factor in (1, -1, 2):
            sums = (values[0] + factor * values[3]) % 1.0
            assert stats.kstest(sums, "uniform").pvalue > 1e-9
    again = split_upload(job, 1, np.zeros(4000), [[1.0, 0, 0]], [0], 8.0, 0.5)
    assert not set(elements(again[0])) & set(elements(shares[0]))


@pytest.mark.parametrize("n_servers", [1, 2])
def test_two_servers_are_refused(no_process, n_servers):
    with pytest.raises(ValueError, match=f"n_servers={n_servers} gives no secrecy.*3 servers"):
        secure_aggregate(*clients(0), n_servers=n_servers)


def changed(position, value):
    arguments = list(clients(0))
    arguments[position] = value(arguments[position])
    return arguments


def set_nan(heads):
    heads[1][0, 2] = np.nan
    return heads


@pytest.mark.parametrize(
    ("arguments", "settings", "message"),
    [
        (changed(0, lambda shared: shared[:4]), {}, "has 5 entries, but shared has 4"),
        (changed(0, lambda shared: shared * np.inf), {}, "client 0 are not finite"),
        (changed(0, lambda shared: shared * 1e9), {}, r"Client 0: A parameter is .*Scale"),
        (changed(1, set_nan), {}, "Head 0 of client 1 is not finite"),
        (changed(1, lambda heads: [np.empty((0, 6)), *heads[1:]]), {}, r"no heads \(K_i = 0\)"),
        (changed(2, lambda tasks: [["a"], *tasks[1:]]), {}, "Client 0 has 2 heads, but 1 task"),
        (changed(2, lambda tasks: [["a", "a"], *tasks[1:]]), {}, "'a' more than once"),
        (changed(3, lambda sizes: -sizes), {}, "sizes must be positive"),
        (changed(4, lambda thresholds: 1.5), {}, "threshold of client 0, 1.5"),
        (clients(0), {"max_heads": 2}, "Client 1: 3 heads, but max_heads=2"),
        (clients(0), {"max_heads": 11}, "max_heads=11 must be from 1 to 10"),
        (clients(0), {"max_size": 100}, "is not between max_size / 65536 and max_size=100"),
        (changed(3, lambda sizes: sizes * 10.0 ** -np.arange(0, 10, 2)), {}, "Client 3: The size"),
    ],
)
def test_wrong_input_starts_nothing(no_process, arguments, settings, message):
    with pytest.raises(ValueError, match=message):
        secure_aggregate(*arguments, **settings)


@pytest.mark.parametrize(
    ("upload", "message"),
    [
        ((np.zeros(3), np.ones((1, 3)), [0], 1.0, 0.5), r"shared has the shape \(3,\)"),
        ((np.zeros(4), np.ones((1, 2)), [0], 1.0, 0.5), r"heads \(1, 2\); the job asks"),
        ((np.zeros(4), np.ones((0, 3)), [], 1.0, 0.5), "0 heads"),
        ((np.zeros(4), np.ones((1, 3)), [2], 1.0, 0.5), r"tasks=\[2\]"),
        ((np.zeros(4), np.ones((2, 3)), [1, 1], 1.0, 0.5), r"tasks=\[1, 1\]"),
        ((np.full(4, np.nan), np.ones((1, 3)), [0], 1.0, 0.5), "A parameter is not below"),
        ((np.zeros(4), np.ones((1, 3)), [0], np.nan, 0.5), "The size is not"),
        ((np.zeros(4), np.ones((1, 3)), [0], 1.0, np.nan), "The threshold is not"),
    ],
)
def test_a_client_alone_is_checked_too(upload, message):
    with pytest.raises(ValueError, match=message):
        split_upload(small_job(n_shared=4), 0, *upload)


@pytest.mark.parametrize("client", [-1, 2, 0.5, "0"])
def test_a_client_has_a_number_of_the_job(client):
    with pytest.raises(ValueError, match="client=.* must be from 0 to 1"):
        split_upload(small_job(n_shared=4), client, np.zeros(4), np.ones((1, 3)), [0], 1.0, 0.5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "two words"}, "name='two words'"),
        ({"name": "x" * 65}, "1 to 64"),
        ({"round": -1}, "round=-1"),
        ({"n_clients": 0}, "n_clients=0"),
        ({"n_tasks": 2.0}, "n_tasks=2.0"),
        ({"n_shared": True}, "n_shared=True"),
        ({"max_size": np.inf}, "max_size=inf"),
        ({"timeout": -1.0}, "timeout=-1"),
        ({"n_shared": 2**40}, "Lower n_clients"),
        ({"n_clients": 20_000}, "Lower n_clients"),
    ],
)
def test_a_job_has_sizes_that_can_be_served(changes, message):
    with pytest.raises(ValueError, match=message):
        Job(**{**vars(small_job(n_shared=4)), **changes})


def test_missing_extra_is_named(no_process, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "mpyc", None)
    with pytest.raises(ImportError, match=r"needs mpyc.*pip install skpmtl\[mpc\]"):
        secure_aggregate(*clients(0))


def test_a_used_folder_is_refused(mpc, no_process, tmp_path):
    (tmp_path / "something").write_text("")
    with pytest.raises(ValueError, match="must be new or empty"):
        secure_aggregate(*clients(0), folder=tmp_path)


@pytest.fixture
def started(monkeypatch, tmp_path):
    """The server processes, as they are started; temporary files go below tmp_path."""
    found, popen = [], subprocess.Popen

    def recorded(*arguments, **settings):
        found.append(popen(*arguments, **settings))
        return found[-1]

    monkeypatch.setattr(processes.subprocess, "Popen", recorded)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return found


def assert_nothing_left(processes, folder):
    assert len(processes) == 3
    for process in processes:
        assert process.returncode is not None
        with pytest.raises(ProcessLookupError):
            os.kill(process.pid, 0)
    assert list(folder.iterdir()) == []


def long_run():
    return clients(6, counts=[4] * 16, n_tasks=6)


def test_a_killed_server_ends_the_run(mpc, started, tmp_path):
    def kill():
        log = "skpmtl-mpc-*/server*/log.txt"
        while sum("connected" in path.read_text() for path in tmp_path.glob(log)) < 3:
            time.sleep(0.05)
        time.sleep(0.2)
        started[1].kill()

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    message = r"Job local-.*, round 0: server 1 ended with status -9.*again"
    with pytest.raises(RuntimeError, match=message):
        secure_aggregate(*long_run(), timeout=TIMEOUT)
    killer.join(timeout=10)
    assert_nothing_left(started, tmp_path)


def test_a_slow_server_ends_the_run(mpc, started, tmp_path):
    begin = time.monotonic()
    with pytest.raises(RuntimeError, match=r"did not finish within timeout=0.5 seconds"):
        secure_aggregate(*long_run(), timeout=0.5)
    assert time.monotonic() - begin < TIMEOUT
    assert_nothing_left(started, tmp_path)


CALLER = """
import sys
from tests.fedmtl.test_secure import long_run, secure_aggregate
secure_aggregate(*long_run(), folder=sys.argv[1])
"""


def alive(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{process}/stat")  # nobody may have waited for an ended process
    return not (state.exists() and state.read_text().rsplit(")", 1)[1].split()[0] == "Z")


def test_servers_end_with_the_caller(mpc, tmp_path):
    """The caller is killed and cannot clean up."""
    folder = tmp_path / "run"
    caller = subprocess.Popen([sys.executable, "-c", CALLER, str(folder)], cwd=ROOT)
    try:
        end = time.monotonic() + TIMEOUT
        while sum("connected" in log.read_text() for log in folder.glob("*/log.txt")) < 3:
            assert caller.poll() is None and time.monotonic() < end
            time.sleep(0.05)
    finally:
        caller.kill()
        caller.wait()
    for log in folder.glob("*/log.txt"):
        process = int(re.match(r"Process (\d+) is connected", log.read_text())[1])
        end = time.monotonic() + TIMEOUT
        while alive(process):
            assert time.monotonic() < end
            time.sleep(0.05)
    assert list(folder.glob("server*/round-0/out/*")) == []


@pytest.mark.slow
def test_servers_alone_notice_that_another_one_died(mpc, tmp_path):
    """Without `secure_aggregate` to watch them, as on several machines."""
    arguments = long_run()
    folder = tmp_path / "run"
    with pytest.raises(RuntimeError):  # only to fill the folders
        secure_aggregate(*arguments, timeout=0.01, folder=folder)
    servers = []
    for rank in range(3):
        place = folder / f"server{rank}"
        job = Job.load(place)[1]
        Job(**{**vars(job), "timeout": TIMEOUT}).save(place, rank)
        shutil.move(place / "round-0" / "in", place)
        command, at, pipe = [*SERVER, str(place)], processes.PLACE, subprocess.PIPE
        server = subprocess.Popen(command, cwd=at, stdout=pipe, stderr=pipe, text=True)
        servers.append(server)
    try:
        for server in servers:
            assert server.stdout.readline() == f"Process {server.pid} is connected to 2 servers.\n"
        servers[2].kill()
        for server in servers[:2]:
            errors = server.communicate(timeout=TIMEOUT)[1]
            assert server.returncode == processes.LOST, errors
            # The other one of the two may be lost by then as well.
            last = errors.strip().split("\n")[-1]
            assert re.fullmatch(
                r"Job local-\w+, round 0: No connection to server (2|0, 2|1, 2)\.", last
            ), errors
    finally:
        for server in servers:
            server.kill()
            server.communicate()
    assert list(folder.glob("server*/out/*")) == []


def test_the_folder_of_a_server_may_be_copied(tmp_path):
    """It runs where nothing else of skpmtl is."""
    shutil.copytree(processes.PLACE / "mpc_server", tmp_path / "mpc_server")
    code = "import sys, mpc_server.server; print(*(n for n in sys.modules if n[:6] == 'skpmtl'))"
    for command in ([sys.executable, "-c", code], [*SERVER, "--help"]):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == "\n" or "Exit status: 0, or `LOST`" in done.stdout


# ---------------------------------------------------------------- servers against strangers
def server_folders(place, n_clients=2, timeout=TIMEOUT, **settings):
    """-> job and the folders of three servers, with certificates and without uploads."""
    addresses = [f"127.0.0.1:{port}" for port in processes.free_ports(3)]
    shape = {"n_shared": 4, "n_tasks": 2, "head_length": 3, "max_heads": 1, "max_size": 8.0}
    numbers = {"name": "Study", "round": 7, **shape, **settings}
    job = Job(addresses, n_clients=n_clients, timeout=timeout, **numbers)
    folders = [place / f"server{rank}" for rank in range(3)]
    make_certificates(folders)
    for rank, folder in enumerate(folders):
        job.save(folder, rank)
        (folder / "in").mkdir(mode=0o700)
    return job, folders


def deliver(folders, client, shares):
    for folder, share in zip(folders, shares, strict=True):
        path = folder / "in" / f"{client}.shares"
        path.unlink(missing_ok=True)
        write_secret(path, share)


def upload_of(job, client, value=1.0):
    shape = np.full(job.n_shared, value), np.full((1, job.head_length), value)
    return split_upload(job, client, *shape, [0], 8.0, 0.5)


@pytest.fixture
def start():
    """Starts server processes and ends them with the test."""
    started = []

    def server(folder, code=None):
        command, at, pipe = [*SERVER, str(folder)], processes.PLACE, subprocess.PIPE
        if code is not None:
            begin = "import sys\nfrom mpc_server import link, server\n"
            command = [sys.executable, "-c", f"{begin}{code}\nserver.main([sys.argv[1]])"]
            command.append(str(folder))
        started.append(subprocess.Popen(command, cwd=at, stdout=pipe, stderr=pipe, text=True))
        return started[-1]

    yield server
    for process in started:
        process.kill()
        process.communicate()


def last_lines(servers):
    lines = []
    for server in servers:
        errors = server.communicate(timeout=TIMEOUT)[1]
        lines.append((server.returncode, errors.strip().split("\n")[-1], errors))
    return lines


def listening(job, rank, server):
    port = int(job.addresses[rank].split(":")[1])
    end = time.monotonic() + TIMEOUT
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return port
        except OSError:
            assert server.poll() is None and time.monotonic() < end
            time.sleep(0.1)


def link(folders, port, own):
    """A TLS connection to server 2; `own` is the path of a certificate, without its end."""
    context = ssl.create_default_context(cafile=folders[0] / ".config" / "mpyc_ca.crt")
    if own is not None:
        context.load_cert_chain(own.with_suffix(".crt"), own.with_suffix(".key"))
    raw = socket.create_connection(("127.0.0.1", port), timeout=30)
    return context.wrap_socket(raw, server_hostname="MPyC party 2")


def is_closed(connection, seconds=TIMEOUT):
    connection.settimeout(seconds)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except (ssl.SSLError, ConnectionError):
        return True  # a refusal may also come as an alert or a reset


def test_links_need_a_certificate_of_the_authority(mpc, start, tmp_path):
    job, folders = server_folders(tmp_path / "ours")
    foreign = [tmp_path / "foreign" / str(rank) for rank in range(3)]
    make_certificates(foreign)
    server = start(folders[2])  # the last server only listens
    port = listening(job, 2, server)
    with link(folders, port, folders[0] / ".config" / "party_0") as accepted:
        assert not is_closed(accepted, 0.5)
    for own in (None, foreign[0] / ".config" / "party_0"):
        try:
            with link(folders, port, own) as stranger:
                assert is_closed(stranger)
        except (ssl.SSLError, ConnectionError):
            pass  # a refusal may also come as an alert or a reset
    with socket.create_connection(("127.0.0.1", port), timeout=30) as raw:
        raw.sendall(b"\x00\x00" + bytes(64))  # MPyC's greeting without TLS
        answer = raw.recv(100)
        assert answer == b"" or answer[0] == 21  # closed, or a TLS alert
    assert server.poll() is None


def test_a_certificate_is_of_one_server(mpc, start, tmp_path):
    """Server 2 takes nobody for server 0 who has the certificate of 1, or of 2 itself."""
    job, folders = server_folders(tmp_path)
    own = [folder / ".config" / f"party_{rank}" for rank, folder in enumerate(folders)]
    for client in range(2):
        deliver(folders, client, upload_of(job, client, client + 1.0))
    server = start(folders[2], "link.GREETING = 3.0")
    port = listening(job, 2, server)
    with link(folders, port, own[1]) as posing:  # MPyC's greeting: number and a key
        posing.sendall((0).to_bytes(2, "little") + bytes(16))
        assert is_closed(posing, 2)
    with link(folders, port, own[2]) as posing:
        assert is_closed(posing, 2)
    started = time.monotonic()
    with link(folders, port, own[1]) as slow:
        slow.sendall(b"\x01")
        assert is_closed(slow, 60)
    assert time.monotonic() - started > 2
    assert server.poll() is None
    # After all that the run goes on with the right servers.
    for rank, (status, _, errors) in enumerate(
        last_lines([start(folders[0]), start(folders[1]), server])
    ):
        assert status == 0, errors
        for refusal in ("it says that it is server 0", "of ['MPyC party 2']", "no greeting"):
            assert (refusal in errors) == (rank == 2), errors
    answers = [(folder / "out" / "0.shares").read_bytes() for folder in folders]
    np.testing.assert_allclose(collect_answer(job, 0, answers)[0], np.full(4, 1.5), atol=1e-6)


def swap_certificates(folders):
    one, two = folders[1] / ".config", folders[2] / ".config"
    for end in ("crt", "key"):
        a, b = one / f"party_1.{end}", two / f"party_2.{end}"
        content = a.read_bytes(), b.read_bytes()
        a.write_bytes(content[1])
        b.write_bytes(content[0])


def test_swapped_certificates_are_noticed_by_their_servers(mpc, start, tmp_path):
    _, folders = server_folders(tmp_path)
    swap_certificates(folders)
    for rank, (status, line, _) in enumerate(last_lines([start(f) for f in folders[1:]]), 1):
        assert status == 1
        assert line.startswith("Job Study, round 7: the certificate "), line
        assert f"'MPyC party {3 - rank}'], and this is server {rank}" in line


def test_a_server_without_certificate_or_job_says_so(mpc, start, tmp_path):
    _, folders = server_folders(tmp_path)
    (folders[0] / ".config" / "mpyc_ca.crt").unlink()
    (folders[1] / "job.json").write_text('{"rank": 1}')
    first, second = last_lines([start(folder) for folder in folders[:2]])
    assert (first[0], second[0]) == (1, 1)
    assert first[1].startswith("Job Study, round 7: there is no .config")
    assert "job.json is not the job of a server" in second[1]


def test_a_called_server_shows_its_own_certificate(mpc, start, tmp_path):
    """Server 0 goes to the address of server 1 and finds a holder of 2's certificate there."""
    _, folders = server_folders(tmp_path)
    swap_certificates(folders)
    caller = start(folders[0])
    start(folders[1], "link.belongs = lambda certificate, rank: True")
    assert caller.stderr.readline().startswith("Job Study, round 7: the upload share of client 0 ")
    caller.stderr.readline()
    line = caller.stderr.readline()
    assert line == (
        "Job Study, round 7: the link to server 1 was refused: its certificate is of "
        "['MPyC party 2'].\n"
    )
    assert caller.poll() is None  # the right server may still come


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="reads memory from /proc")
@pytest.mark.parametrize("announced", ["4 GiB", "too much", "flood"])
def test_an_announced_frame_is_not_awaited(mpc, start, tmp_path, announced):
    """From a server with the right certificate."""
    job, folders = server_folders(tmp_path)
    frames, word = {
        "4 GiB": (struct.pack("<qI", 5, 2**32 - 4), "announced a message of 4294967292 bytes"),
        "too much": (struct.pack("<qI", 5, (job.largest_message + 1) * BYTES), "announced"),
        "flood": (
            b"".join(struct.pack("<qI", at, 0) for at in range(100_000)), "nobody had asked for",
        ),
    }[announced]  # fmt: skip
    server = start(folders[2])
    port = listening(job, 2, server)
    sent, memory = 0, Path(f"/proc/{server.pid}/status")
    before = int(re.search(r"VmRSS:\s+(\d+) kB", memory.read_text())[1])
    with link(folders, port, folders[0] / ".config" / "party_0") as deviating:
        deviating.sendall((0).to_bytes(2, "little") + bytes(16) + frames)
        with suppress(ssl.SSLError, ConnectionError):
            while sent < 2**28:
                deviating.sendall(bytes(2**16))
                sent += 2**16
                peak = re.search(r"VmHWM:\s+(\d+) kB", memory.read_text())
                assert peak is None or int(peak[1]) < before + 2**16
    assert sent < 2**28
    ((status, line, errors),) = last_lines([server])
    assert status == 1, errors
    assert line.startswith("Job Study, round 7: the link to server 0 was closed: it "), errors
    assert word in line


FAULTY = {
    # what happened to a share -> client, server and words of the error
    "swapped clients": (0, 1, "client=1 instead of 0"),
    "swapped servers": (1, 0, "rank=1 instead of 0"),
    "last round": (0, 2, "round=6 instead of 7"),
    "other job": (1, 1, "name='Stud' instead of 'Study'"),
    "other shapes": (1, 1, "n_shared=2 instead of 4, head_length=4 instead of 3"),
    "answer": (0, 0, "kind='answer' instead of 'upload'"),
    "missing": (1, 0, "is missing"),
    "damaged": (0, 1, "cut or damaged"),
    "cut": (0, 2, "bytes; job.json asks for"),
    "endless": (0, 2, "bytes; job.json asks for"),
    "no header": (1, 1, "no valid header"),
    "wrong header": (1, 1, "no valid header"),
}


def mix_up(job, folders, fault, client, rank):
    paths = [folders[rank] / "in" / f"{i}.shares" for i in (client, 1 - client)]
    share = paths[0].read_bytes()
    changed = {"last round": {"round": 6}, "other job": {"name": "Stud"},
               "other shapes": {"head_length": 4, "n_shared": 2}}  # fmt: skip
    if fault == "retried upload":
        share = upload_of(job, client)[rank]
    elif fault == "swapped clients":
        share, other = paths[1].read_bytes(), share
        paths[1].write_bytes(other)
    elif fault == "swapped servers":
        share = upload_of(job, client)[1]
    elif fault in changed:
        share = upload_of(Job(**{**vars(job), **changed[fault]}), client)[rank]
    elif fault == "answer":
        share = with_header(job, "answer", client, rank, "0" * 32, share[HEADER:])
    elif fault == "damaged":
        share = share[:-5] + bytes([share[-5] ^ 1]) + share[-4:]
    elif fault == "cut":
        share = share[:-BYTES]
    elif fault == "no header":
        share = bytes(len(share))
    elif fault == "wrong header":
        share = b"[" * HEADER + share[HEADER:]
    if fault == "missing":
        paths[0].unlink()
    elif fault == "endless":
        with paths[0].open("wb") as file:
            file.truncate(2**40)  # sparse: nobody may read it
    else:
        paths[0].write_bytes(share)


@pytest.mark.parametrize("fault", FAULTY)
def test_a_wrong_share_is_named(tmp_path, fault):
    pytest.importorskip("cryptography")
    job, folders = server_folders(tmp_path)
    for client in range(2):
        deliver(folders, client, upload_of(job, client))
    client, rank, words = FAULTY[fault]
    mix_up(job, folders, fault, client, rank)
    uploads = Uploads(job, folders[rank], rank)
    assert uploads.splits[client] is None
    named = f"Job Study, round 7: the upload share of client {client} at server {rank} "
    assert uploads.faults[0].startswith(named)
    assert words in uploads.faults[0]
    assert len(uploads.faults) == (2 if fault == "swapped clients" else 1)
    for other in {0, 1, 2} - {rank}:
        assert Uploads(job, folders[other], other).faults == []


@pytest.mark.parametrize(
    ("fault", "client", "rank"),
    [("retried upload", 1, 2), ("swapped clients", 0, 1), ("missing", 0, 0)],
)
@pytest.mark.spread(1)
def test_a_mixed_up_share_ends_the_run_at_all_servers(mpc, start, tmp_path, fault, client, rank):
    job, folders = server_folders(tmp_path)
    for i in range(2):
        deliver(folders, i, upload_of(job, i))
    mix_up(job, folders, fault, client, rank)
    for status, line, errors in last_lines([start(folder) for folder in folders]):
        assert status == 1, errors
        assert line.startswith("Job Study, round 7: "), errors
        assert re.search(rf"of client {client} .*at server {rank}", line), errors
        assert "Traceback" not in errors
    assert not list(tmp_path.glob("*/out/*"))


def test_servers_with_different_jobs_refuse(mpc, start, tmp_path):
    job, folders = server_folders(tmp_path)
    Job(**{**vars(job), "round": 8}).save(folders[1], 1)
    for rank, (status, line, errors) in enumerate(last_lines([start(f) for f in folders])):
        assert status == 1, errors
        assert line.startswith(f"Job Study, round {8 if rank == 1 else 7}: "), errors
        other = [0, 2] if rank == 1 else [1]
        for other_rank in other:
            assert f"server {other_rank} has another job.json: round differ" in line, errors


def test_a_damaged_message_ends_the_run_at_once(mpc, start, tmp_path):
    """MPyC alone would wait until the timeout."""
    job, folders = server_folders(tmp_path)
    for client in range(2):
        deliver(folders, client, upload_of(job, client))
    code = (
        "send = link.Link.send\n"
        "def shorter(self, counter, payload):\n"
        "    send(self, counter, payload[: -link.BYTES] if len(payload) > 500 else payload)\n"
        "link.Link.send = shorter"
    )
    started = time.monotonic()
    lines = last_lines([start(folders[0]), start(folders[1], code), start(folders[2])])
    assert time.monotonic() - started < TIMEOUT / 2
    assert all(status in (1, processes.LOST) for status, _, _ in lines), lines
    assert all(line.startswith("Job Study, round 7: ") for _, line, _ in lines), lines
    assert not list(tmp_path.glob("*/out/*"))


@pytest.mark.slow
def test_an_upload_that_no_client_function_makes_is_noticed(mpc, start, tmp_path):
    """Numbers from the whole field with a right header: nobody takes the answer for a model."""
    job, folders = server_folders(tmp_path)
    deliver(folders, 0, upload_of(job, 0))
    count = sum(int(np.prod(shape)) for shape in job.parts.values())
    rng = np.random.default_rng(0)
    bodies = [rng.bytes(count * BYTES) for _ in range(3)]
    deliver(folders, 1, [with_header(job, "upload", 1, r, "a" * 32, bodies[r]) for r in range(3)])
    for status, _, errors in last_lines([start(folder) for folder in folders]):
        assert status in (0, 1), errors
    answers = [folder / "out" / "1.shares" for folder in folders]
    if all(path.exists() for path in answers):
        with pytest.raises(RuntimeError, match="Job Study, round 7: .* client 1 "):
            collect_answer(job, 1, [path.read_bytes() for path in answers])


@pytest.mark.skipif(os.name != "posix", reason="rights of files are those of POSIX")
def test_files_that_others_can_read_are_closed_and_the_log_says_so(
    mpc, start, open_umask, tmp_path
):
    job, folders = server_folders(tmp_path)
    for client in range(2):
        deliver(folders, client, upload_of(job, client))
    for path in (folders[1] / "in" / "0.shares", folders[1] / ".config" / "party_1.key"):
        path.chmod(0o644)
    (folders[1] / "in").chmod(0o755)
    said = ""
    server = start(folders[1])  # it waits for the others
    while said.count("was open to other users") < 3:
        line = server.stderr.readline()
        assert line, said
        said += line
    secret = [*folders[1].glob("*/*.shares"), *folders[1].glob(".config/*.key")]
    end = time.monotonic() + TIMEOUT  # it says so first
    while (modes(secret), modes([folders[1] / "in"])) != ({0o600}, {0o700}):
        assert time.monotonic() < end
        time.sleep(0.01)
    server.kill()
    # Answers are never written over.
    (folders[1] / "out" / "0.shares").write_bytes(b"an answer")
    ((status, line, _),) = last_lines([start(folders[1])])
    assert status == 1 and "answers of an earlier run" in line


@pytest.mark.slow
def test_benchmark_quick(mpc, tmp_path, capsys):
    output = tmp_path / "secure.csv"
    (row,) = fedmtl_secure.main(["--quick", "--only", "base", "--output", str(output)])
    with output.open(newline="") as file:
        assert list(csv.DictReader(file)) == [{name: str(value) for name, value in row.items()}]
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert float(row["margin"]) > 1e-5
    assert float(row["difference"]) < 1e-6
    assert 0 < row["server_seconds"] < row["seconds"]
    assert row["cpu_seconds"] > 0 and row["megabytes"] > 0
