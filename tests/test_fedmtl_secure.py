"""FedMTL on secret shares: result, what the servers see, and servers that fail."""

import csv
import io
import itertools
import json
import os
import pickle
import re
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from benchmarks.reproduce import fedmtl_secure
from skpmtl.fedmtl import FedMTLClassifier, secure
from skpmtl.fedmtl.mpc_server import BYTES, PRIME, SCORE, SIZE, VALUE, Job
from skpmtl.fedmtl.secure import collect_answer, make_certificates, secure_aggregate, split_upload

TIMEOUT = 120.0  # of a run; a busy machine needs a part of it
ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def mpc():
    """Skips without the extra. Nothing is imported: MPyC reads sys.argv when it is."""
    for module in ("mpyc", "gmpy2", "cryptography"):
        if secure.importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is missing: needs the extra skpmtl[mpc]")


@pytest.fixture
def no_process(monkeypatch):
    def started(*arguments, **settings):
        raise AssertionError("a server was started")

    monkeypatch.setattr(secure.subprocess, "Popen", started)


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


@pytest.mark.parametrize(
    ("make", "settings"),
    [(clients, {}), (two_lengths, {"n_servers": 5, "max_size": 10_000})],
    ids=["3 servers", "two lengths, 5 servers, larger bounds"],
)
def test_equals_the_plain_computation(mpc, make, settings):
    *arguments, _ = make(2)
    # As near to the threshold as equality is promised, on both sides; 0 and 1 are exact.
    S = similarities(arguments[1])
    beside = np.array([S[i, (i + 1) % len(S)] for i in range(len(S))])
    thresholds = np.abs(beside + 1.2e-5 * (-1.0) ** np.arange(len(S)))
    expected = plainly(*arguments, thresholds)
    assert 1e-5 < expected[2] < 1.5e-5
    arguments.append(thresholds)
    assert np.abs(expected[0] - arguments[0]).max() > 0.1  # somebody has neighbours
    *got, similarity = secure_aggregate(*arguments, timeout=TIMEOUT, **settings)
    assert similarity is None
    assert_equal_models(got, expected)


def test_order_of_heads_and_added_rows_change_nothing(mpc):
    shared, heads, tasks, sizes, thresholds = arguments = clients(3, counts=(3, 2, 3))
    expected = plainly(*arguments)
    assert expected[2] > 1e-5
    back = [own[::-1] for own in heads], [own[::-1] for own in tasks]
    got = secure_aggregate(shared, *back, sizes, thresholds, max_heads=4, timeout=TIMEOUT)
    assert_equal_models(got, (expected[0], [own[::-1] for own in expected[1]]))


def test_own_model_survives_at_the_highest_threshold(mpc):
    shared, heads, tasks, _, _ = clients(4, counts=(2, 1))
    # Sizes of a ratio at the bound: the small client's own weight is the smallest there can be.
    got = secure_aggregate(shared, heads, tasks, [1, 2**16], 1.0, timeout=TIMEOUT)
    assert_equal_models(got, (shared, heads))


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
        files = sorted(folder.glob("server?/*/*.shares"))
        runs = [json.loads(path.read_text()) for path in sorted(folder.glob("*/out/run.json"))]
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
import runpy, sys
from pathlib import Path
server, folder = sys.argv[1:]
sys.argv = [server, "--no-log"]
from mpyc import asyncoro
received = Path(folder).resolve() / "received"
receive = asyncoro.MessageExchanger.data_received
def recorded(self, data):
    with received.open("ab") as file:
        file.write(data)
    receive(self, data)
asyncoro.MessageExchanger.data_received = recorded
sys.argv = [server, folder]
runpy.run_path(server, run_name="__main__")
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
            if integer >= 2**31:  # as it stands in a pickled message
                code = pickle.dumps(integer)
                yield code[code.index(b"\x8a") : -1]


def elements(raw):
    return [int.from_bytes(raw[k : k + BYTES], "little") for k in range(0, len(raw), BYTES)]


def test_servers_hold_and_receive_shares_only(mpc, tmp_path):
    """Servers as on three machines: separate commands and folders; all input is recorded."""
    shared, heads, tasks, sizes, thresholds = clients(5, counts=(2, 1, 2))
    job = Job(
        addresses=[f"127.0.0.1:{port}" for port in secure._free_ports(3)],
        n_clients=3, n_shared=7, n_tasks=4, head_length=6, max_heads=2, max_size=512.0,
        timeout=TIMEOUT,
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
        for folder, share in zip(folders, split_upload(job, *upload), strict=True):
            (folder / "in" / f"{i}.shares").write_bytes(share)
        secrets |= set(encodings(shared[i], heads[i], sizes[i], thresholds[i], 512.0))
    assert min(map(len, secrets)) >= 7
    command = [sys.executable, "-c", RECORDER, secure.mpc_server.__file__]
    servers = [
        subprocess.Popen([*command, str(folder)], stderr=subprocess.PIPE) for folder in folders
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
        new_shared, new_heads = collect_answer(job, answers)
        count = len(tasks[i])
        assert_equal_models(
            ([new_shared], [new_heads[:count]]), ([expected[0][i]], [expected[1][i]])
        )
        assert np.abs(new_heads[count:]).max(initial=0.0) < 1e-6
        # No two servers' answers can be swapped or mixed with another client's unnoticed.
        with pytest.raises(RuntimeError, match="do not fit together"):
            collect_answer(job, [answers[1], answers[0], answers[2]])
        with pytest.raises(RuntimeError, match="bytes instead of 3 times"):
            collect_answer(job, answers[:2])


def small_job(n_servers=3, n_shared=4000):
    return Job(["h:1"] * n_servers, 2, n_shared, 2, 3, 2, 8.0)


@pytest.mark.parametrize("n_servers", [3, 5])
def test_shares_of_a_minority_are_uniform(n_servers):
    job = small_job(n_servers)
    shares = split_upload(job, np.zeros(4000), [[1.0, 0, 0]], [0], 8.0, 0.5)
    assert len({len(share) for share in shares}) == 1
    values = np.array([elements(share)[:4000] for share in shares], dtype=object) / PRIME
    values = values.astype(float)
    for own in values:
        assert stats.kstest(own, "uniform").pvalue > 1e-6
    if n_servers == 5:  # two of them together: the sum of both, whatever multiple
        for factor in (1, -1, 2):
            sums = (values[0] + factor * values[3]) % 1.0
            assert stats.kstest(sums, "uniform").pvalue > 1e-6
    again = split_upload(job, np.zeros(4000), [[1.0, 0, 0]], [0], 8.0, 0.5)
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
        ((np.full(4, np.nan), np.ones((1, 3)), [0], 1.0, 0.5), "A parameter is nan"),
        ((np.zeros(4), np.ones((1, 3)), [0], np.nan, 0.5), "The size nan"),
        ((np.zeros(4), np.ones((1, 3)), [0], 1.0, np.nan), "The threshold nan"),
    ],
)
def test_a_client_alone_is_checked_too(upload, message):
    with pytest.raises(ValueError, match=message):
        split_upload(small_job(n_shared=4), *upload)


def test_missing_extra_is_named(no_process, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "mpyc", None)
    with pytest.raises(ImportError, match=r"needs mpyc.*pip install skpmtl\[mpc\]"):
        secure_aggregate(*clients(0))


def test_a_used_folder_is_refused(mpc, no_process, tmp_path):
    (tmp_path / "something").write_text("")
    with pytest.raises(ValueError, match="must be new or empty"):
        secure_aggregate(*clients(0), folder=tmp_path)


@pytest.fixture
def processes(monkeypatch, tmp_path):
    """The server processes, as they are started; temporary files go below tmp_path."""
    started, popen = [], subprocess.Popen

    def recorded(*arguments, **settings):
        started.append(popen(*arguments, **settings))
        return started[-1]

    monkeypatch.setattr(secure.subprocess, "Popen", recorded)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return started


def assert_nothing_left(processes, folder):
    assert len(processes) == 3
    for process in processes:
        assert process.returncode is not None
        with pytest.raises(ProcessLookupError):
            os.kill(process.pid, 0)
    assert list(folder.iterdir()) == []


def long_run():
    return clients(6, counts=[4] * 16, n_tasks=6)


def test_a_killed_server_ends_the_run(mpc, processes, tmp_path):
    def kill():
        log = "skpmtl-mpc-*/server*/log.txt"
        while sum("connected" in path.read_text() for path in tmp_path.glob(log)) < 3:
            time.sleep(0.05)
        time.sleep(0.2)
        processes[1].kill()

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    with pytest.raises(RuntimeError, match=r"Server 1 ended with status -9.*again"):
        secure_aggregate(*long_run(), timeout=TIMEOUT)
    killer.join(timeout=10)
    assert_nothing_left(processes, tmp_path)


def test_a_slow_server_ends_the_run(mpc, processes, tmp_path):
    started = time.monotonic()
    with pytest.raises(RuntimeError, match=r"did not finish within timeout=0.5 seconds"):
        secure_aggregate(*long_run(), timeout=0.5)
    assert time.monotonic() - started < 60
    assert_nothing_left(processes, tmp_path)


CALLER = """
import sys
sys.path.insert(0, "tests")
from test_fedmtl_secure import long_run, secure_aggregate
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
        end = time.monotonic() + 20
        while alive(process):
            assert time.monotonic() < end
            time.sleep(0.05)
    assert list(folder.glob("server*/out/*")) == []


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
        command = [sys.executable, secure.mpc_server.__file__, str(place)]
        pipe = subprocess.PIPE
        servers.append(subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True))
    try:
        for server in servers:
            assert server.stdout.readline() == f"Process {server.pid} is connected to 2 servers.\n"
        servers[2].kill()
        for server in servers[:2]:
            errors = server.communicate(timeout=TIMEOUT)[1]
            assert server.returncode == secure.LOST, errors
            # The other one of the two may be lost by then as well.
            last = errors.strip().split("\n")[-1]
            assert re.fullmatch(r"No connection to server (2|0, 2|1, 2)\.", last), errors
    finally:
        for server in servers:
            server.kill()
            server.communicate()
    assert list(folder.glob("server*/out/*")) == []


def test_links_need_a_certificate_of_the_authority(mpc, tmp_path):
    ours, foreign = tmp_path / "ours", tmp_path / "foreign"
    folders = [ours / str(rank) for rank in range(3)]
    make_certificates(folders)
    make_certificates([foreign / str(rank) for rank in range(3)])
    port = secure._free_ports(1)[0]
    job = Job(["127.0.0.1:9", "127.0.0.1:9", f"127.0.0.1:{port}"], 0, 1, 1, 1, 1, 1.0, TIMEOUT)
    job.save(folders[2], 2)  # the last server only listens

    def greeting(folder):
        """Handshake as server 0 with the certificate in `folder`; -> bytes, b"" if closed."""
        context = ssl.create_default_context(cafile=folders[0] / ".config" / "mpyc_ca.crt")
        if folder is not None:
            own = folder / ".config"
            context.load_cert_chain(own / "party_0.crt", own / "party_0.key")
        with socket.create_connection(("127.0.0.1", port), timeout=30) as raw:
            with context.wrap_socket(raw, server_hostname="MPyC party 2") as link:
                link.settimeout(0.5)
                return link.recv(1)

    command = [sys.executable, "-m", "skpmtl.fedmtl.mpc_server", str(folders[2])]
    server = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE)
    try:
        end = time.monotonic() + TIMEOUT
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                assert server.poll() is None and time.monotonic() < end
                time.sleep(0.1)
        with pytest.raises(TimeoutError):  # accepted: the server waits for a message
            greeting(folders[0])
        for folder in (None, foreign / "0"):
            try:
                assert greeting(folder) == b""
            except (ssl.SSLError, ConnectionError):
                pass  # a refusal may also come as an alert or a reset
        with socket.create_connection(("127.0.0.1", port), timeout=30) as raw:
            raw.sendall(b"\x00\x00" + bytes(64))  # MPyC's greeting without TLS
            answer = raw.recv(100)
            assert answer == b"" or answer[0] == 21  # closed, or a TLS alert
    finally:
        server.kill()
        server.communicate()
    key = folders[2] / ".config" / "party_2.key"
    assert os.name != "posix" or key.stat().st_mode & 0o077 == 0


def test_messages_cannot_run_code():
    numbers = np.array([1, PRIME - 1], dtype=object)
    loaded = _ArraysOnly(io.BytesIO(pickle.dumps(numbers))).load()
    assert loaded.tolist() == numbers.tolist()
    with pytest.raises(pickle.UnpicklingError, match="refused"):
        _ArraysOnly(io.BytesIO(pickle.dumps(os.getcwd))).load()


def test_estimator_with_secure_aggregation(mpc):
    rng = np.random.default_rng(0)
    X, client = rng.normal(size=(90, 3)), np.repeat([0, 1, 2], 30)
    y = (X @ rng.normal(size=(3, 2)) > 0).astype(float)
    y[client == 2, 1] = np.nan
    models = [
        FedMTLClassifier(
            (4,), aggregation="similarity", threshold=0.3, n_rounds=1, secure=how, random_state=0
        ).fit(X, y, client=client)
        for how in (None, "mpc")
    ]
    plain, hidden = (model.predict_proba(X, client=client) for model in models)
    for a, b in zip(plain, hidden, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5)
    assert models[1].similarity_ is None
    assert models[1].privacy_.guarantee == "none"


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
