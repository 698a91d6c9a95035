"""FedMTL on replicated shares: numbers and files anywhere, the servers where SPU is installed."""

import importlib.util
import os
import signal
import socket
import threading
from contextlib import suppress

import numpy as np
import pytest
from scipy import stats

from benchmarks.reproduce.fedmtl_secure import problem
from skpmtl import FedMTLClassifier
from skpmtl.fedmtl import fedmtl_aggregate, make_fedmtl_clients
from skpmtl.fedmtl.mpc_server.replicated import (
    FINE,
    Answer,
    Shapes,
    Upload,
    Veil,
    opened,
    product,
    product_of_shares,
    split,
    stream,
)
from skpmtl.fedmtl.mpc_server.tunnel import Tunnels
from skpmtl.fedmtl.processes import free_ports
from skpmtl.fedmtl.secure import make_certificates
from skpmtl.fedmtl.secure_spu import SpuServers

spu = pytest.mark.skipif(
    importlib.util.find_spec("spu") is None, reason="needs the extra skpmtl[spu]"
)
SHAPES = Shapes(n_clients=1, n_shared=301, n_tasks=3, head_length=5, max_heads=2)


def numbers(seed=0):
    rng = np.random.default_rng(seed)
    return (
        rng.integers(-(2**60), 2**60, SHAPES.n_wide),
        rng.integers(-(2**60), 2**60, SHAPES.n_fine),
    )


@pytest.fixture
def uploads(tmp_path):
    pytest.importorskip("cryptography")
    for rank, data in enumerate(split(*numbers())):
        (tmp_path / f"{rank}").write_bytes(data)
    return [Upload(SHAPES, rank, tmp_path / f"{rank}") for rank in range(3)]


def test_three_components_are_the_numbers(uploads):
    wide, fine = numbers()
    parts = [upload.fine(7, 100) for upload in uploads]
    for rank in range(3):  # what two servers have of the same component
        np.testing.assert_array_equal(parts[rank][1], parts[(rank + 1) % 3][0])
    total = sum(part[0] for part in parts)
    np.testing.assert_array_equal(total.view(np.int64), fine[7:107])
    halves = [upload.wide()[:, 0] for upload in uploads]
    for row, x in enumerate(wide.tolist()):
        found = sum(int(own[row, 0]) + (int(own[row, 1]) << 64) for own in halves)
        assert found % 2**128 == x % 2**128
    # Without their upper halves they are shares modulo 2^64.
    low = sum(own[:, 0] for own in halves)
    np.testing.assert_array_equal(low.view(np.int64), wide)


def test_a_server_sees_uniform_numbers(tmp_path):
    pytest.importorskip("cryptography")
    shapes = Shapes(n_clients=1, n_shared=20_000, n_tasks=1, head_length=1, max_heads=1)
    for value in (0, 2**40):
        wide = np.full(shapes.n_wide, value)
        fine = np.full(shapes.n_fine, value)
        for rank, data in enumerate(split(wide, fine)):
            path = tmp_path / f"{value}-{rank}"
            path.write_bytes(data)
            one, two = Upload(shapes, rank, path).fine(0, 20_000)
            for seen in (one, two, one + two, one - two):
                counts = np.bincount(np.ascontiguousarray(seen).view(np.uint8), minlength=256)
                assert stats.chisquare(counts).pvalue > 1e-9


def test_streams_go_on_at_any_place():
    pytest.importorskip("cryptography")
    key = bytes(range(32))
    whole = stream(key, 0, 50)
    for first in (0, 1, 2, 7, 20):
        np.testing.assert_array_equal(stream(key, first, 30), whole[first : first + 30])


@pytest.mark.parametrize("inner", [1, 4, 127, 300])
def test_products_are_exact_modulo_2_64(inner):
    rng = np.random.default_rng(inner)
    u, v = (rng.integers(0, 2**64, s, np.uint64) for s in ((3, inner), (inner, 300)))
    u[0], v[:, 0] = np.uint64(2**64 - 1), np.uint64(2**64 - 1)  # the largest sums there can be
    expected = [[sum(int(a) * int(b) for a, b in zip(r, c, strict=True)) for c in v.T] for r in u]
    assert (product(u, v).astype(object) == np.array(expected) % 2**64).all()


def shares_of(x, rng):
    """-> shares (..., 2) of three servers"""
    parts = rng.integers(0, 2**64, (2, *x.shape), np.uint64)
    parts = [*parts, x - parts[0] - parts[1]]
    return [np.stack([parts[r], parts[(r + 1) % 3]], axis=-1) for r in range(3)]


def test_terms_of_the_servers_are_the_product_and_each_alone_is_uniform():
    pytest.importorskip("cryptography")
    rng = np.random.default_rng(0)
    W, X = rng.integers(0, 2**20, (4, 6), np.uint64), rng.integers(-(2**30), 2**30, (6, 5000))
    values = [np.moveaxis(own, -1, 0).copy() for own in shares_of(X.view(np.uint64), rng)]
    pairs = zip(shares_of(W, rng), values, strict=True)
    keys = [bytes([r]) * 32 for r in range(3)]
    terms, seen = [product_of_shares(w, x) for w, x in pairs], []
    np.testing.assert_array_equal(sum(terms).view(np.int64), W.view(np.int64) @ X)
    for r, own in enumerate(terms):
        veil = Veil(keys[r], keys[(r + 1) % 3])
        seen.append(np.hstack([veil.over(own[:, :1201]), veil.over(own[:, 1201:])]))
    # What is left of the veils is the mask, below 2^20, which nobody could take away.
    left = (sum(seen) - sum(terms)).view(np.int64)
    assert 0 <= left.min() and left.max() < 2**FINE and len(np.unique(left)) > 1000
    for a, b in ((0, 0), (0, 1), (1, 2)):  # nor do any two of them tell anything
        both = seen[a] if a == b else seen[a] + seen[b]
        counts = np.bincount(np.ascontiguousarray(both).view(np.uint8).ravel(), minlength=256)
        assert stats.chisquare(counts).pvalue > 1e-9


def test_answers_that_do_not_fit_are_refused(tmp_path, uploads):
    def answer(rank, run):
        path = tmp_path / f"answer{rank}"
        path.unlink(missing_ok=True)
        one = Answer(path, run)
        for first in (0, 200):
            own = uploads[rank].fine(first, min(200, SHAPES.n_fine - first))[0]
            one.add(np.ascontiguousarray(own))
        one.close()
        return path.read_bytes()

    run = bytes(32)
    answers = [answer(rank, run) for rank in range(3)]
    np.testing.assert_array_equal(opened(answers), numbers()[1] * 4.0**-FINE)
    broken = bytearray(answers[1])
    broken[50] ^= 1
    with pytest.raises(ValueError, match="damaged"):
        opened([answers[0], bytes(broken), answers[2]])
    for bad in (answers[1][8:], answer(1, bytes(31) + b"1")):
        with pytest.raises(ValueError, match="do not fit"):
            opened([answers[0], bad, answers[2]])


def test_a_file_of_another_length_is_refused(tmp_path, uploads):
    (tmp_path / "1").write_bytes((tmp_path / "1").read_bytes()[:-8])
    with pytest.raises(ValueError, match="another length"):
        Upload(SHAPES, 1, tmp_path / "1")


@pytest.mark.skipif(importlib.util.find_spec("spu") is not None, reason="spu is installed")
def test_the_extra_is_named():
    X, y, client = make_fedmtl_clients(n_clients=4, n_tasks=2, n_samples=20, random_state=0)
    est = FedMTLClassifier(secure="spu", aggregation="similarity", n_rounds=1)
    with pytest.raises(ImportError, match=r"skpmtl\[spu\].*numpy below 2"):
        est.fit(X, y, client=client)
    assert not hasattr(est, "clients_")


# ------------------------------------------------------------------------- with servers
@spu
def test_equals_the_plain_computation_and_servers_stay_up(tmp_path):
    with SpuServers(timeout=200.0, folder=tmp_path) as servers:
        started = [server.pid for server in servers.servers]
        for seed, shape in ((3, (6, 4, 3, 7, 40)), (4, (6, 4, 3, 7, 40)), (5, (3, 4, 1, 5, 0))):
            arguments = problem(*shape, seed)
            shared, heads, S = fedmtl_aggregate(*arguments)
            assert np.abs(S - arguments[-1]).min() > 1e-6
            found = servers.aggregate(*arguments)
            largest = max(np.abs(own).max() for own in heads)
            np.testing.assert_allclose(found[0], shared, rtol=0, atol=1e-5 * largest)
            for ours, theirs in zip(found[1], heads, strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5 * largest)
            assert found[2] is None
        assert [server.pid for server in servers.servers] == started
    # What a server was given or gave shows no number of any client.
    shared = arguments[1][0]
    for path in tmp_path.glob("*/round-*/*/*.shares"):
        assert shared.tobytes() not in path.read_bytes()


@spu
def test_a_server_that_ends_early_is_named():
    arguments = problem(4, 4, 2, 5, 10)
    with SpuServers(timeout=200.0) as servers:
        os.kill(servers.servers[1].pid, signal.SIGKILL)
        with pytest.raises(RuntimeError, match="nothing was aggregated"):
            servers.aggregate(*arguments)
    assert all(server.poll() is not None for server in servers.servers)


@spu
def test_bounds_of_the_numbers():
    shared, heads, tasks, sizes, Z = problem(3, 4, 2, 5, 10)
    with SpuServers(timeout=200.0) as servers:
        large = shared.copy()
        large[1, 3] = 2.0**21
        with pytest.raises(ValueError, match="Client 1: a parameter"):
            servers.aggregate(large, heads, tasks, sizes, Z)
        with pytest.raises(ValueError, match="Client 2: the size"):
            servers.aggregate(shared, heads, tasks, [2**20, 2**20, 1], Z)


@spu
def test_estimator_with_spu_servers_gives_the_same_models():
    X, y, client = make_fedmtl_clients(n_clients=5, n_tasks=3, n_samples=30, random_state=0)
    given = {"aggregation": "similarity", "threshold": 0.4, "n_rounds": 2, "random_state": 0,
             "hidden_layer_sizes": (4,)}  # fmt: skip
    plain = FedMTLClassifier(**given).fit(X, y, client=client)
    secret = FedMTLClassifier(secure="spu", **given).fit(X, y, client=client)
    theirs = plain._models_.theta
    np.testing.assert_allclose(secret._models_.theta, theirs, rtol=0, atol=1e-3)
    assert secret.similarity_ is None
    assert "servers" in secret.privacy_.text(None)
    with pytest.raises(ValueError, match="secure='spu'"):
        secret.personalize(X, y, client=client + 100)


# ----------------------------------------------------------------------------- links
def reply_of(path, content):
    with socket.socket(socket.AF_UNIX) as here:
        here.settimeout(60)
        here.connect(str(path))
        with suppress(ConnectionError):  # a refusal may come before anything is sent
            here.sendall(content)
            return here.recv(100)
    return b""


@pytest.mark.skipif(os.name != "posix", reason="sockets of files are those of POSIX")
def test_links_go_to_the_certificate_of_one_server(tmp_path, capfd):
    pytest.importorskip("cryptography")
    folders = [tmp_path / str(rank) for rank in range(3)]
    make_certificates(folders)
    first, second, third = (f"127.0.0.1:{port}" for port in free_ports(3))
    ours = Tunnels(0, [first, second, third], folders[0])
    # Server 1 is where server 2 should be, too.
    Tunnels(1, [first, second, third], folders[1])
    with socket.socket(socket.AF_UNIX) as engine:
        engine.bind(str(folders[1] / "own.socket"))
        engine.listen()

        def echo():
            with engine.accept()[0] as link:
                link.sendall(link.recv(100).upper())

        threading.Thread(target=echo, daemon=True).start()
        assert reply_of(ours.socket(1), b"shares") == b"SHARES"
        assert ours.sent == len(b"shares")
        Tunnels(1, [first, third, second], folders[1])
        assert reply_of(ours.socket(2), b"shares") == b""
        assert ours.sent == len(b"shares")
    assert "link to server 2 was refused" in capfd.readouterr().err


def test_a_folder_with_a_long_name_is_refused(tmp_path):
    with pytest.raises(ValueError, match="shorter"):
        SpuServers(folder=tmp_path / ("long" * 30))
