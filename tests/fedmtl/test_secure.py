"""Secure FedMTL: its result, messages that are refused, and servers that end."""

import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from skpmtl.fedmtl import secure
from skpmtl.fedmtl.mpc.job import HEADER, Job, pack
from skpmtl.fedmtl.mpc.server import LOST
from skpmtl.fedmtl.padded import Padded
from skpmtl.fedmtl.secure import SecureServers, collect_answer, split_upload
from tests.fedmtl.test_aggregation import reference
from tests.helpers.parties import serve

TIMEOUT = 120.0  # of a round; a busy machine needs a part of it


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


def plainly(shared, heads, tasks, sizes, thresholds):
    """-> shared, heads, least |S_ij - Z_i|"""
    *models, S = reference(shared, heads, tasks, sizes, thresholds, "similarity")
    off = ~np.eye(len(S), dtype=bool)
    return *models, np.abs(S - np.reshape(thresholds, (-1, 1)))[off].min()


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
    S = reference(*arguments, 0.0, "similarity")[2]
    other = np.array([S[i, (i + 1) % len(S)] for i in range(len(S))])
    thresholds = np.abs(other + 1.2e-5 * (-1.0) ** np.arange(len(S)))
    expected = plainly(*arguments, thresholds)
    assert 1e-5 < expected[2] < 1.5e-5
    assert np.abs(expected[0] - arguments[0]).max() > 1e-3  # somebody has neighbours
    return thresholds, expected


def aggregated(arguments, n_servers, max_heads=None, max_size=None):
    """The result of servers and dealer in threads."""
    padded = Padded(*arguments, max_heads, max_size)
    job = Job(n_servers=n_servers, **padded.shapes, name="Hospitals/1", round=4)
    uploads = [split_upload(job, i, *padded.client(i)) for i in range(job.n_clients)]
    said = serve(job, [list(shares) for _, shares in uploads])
    assert [error for error, _, _ in said] == [None] * (n_servers + 1)
    found = [model_of(job, i, split, said) for i, (split, _) in enumerate(uploads)]
    return np.array([own for own, _ in found]), padded.restored([own for _, own in found]), said


def model_of(job, i, split, said):
    """-> shared, heads of a client"""
    parts = [
        collect_answer(job, i, split, section, [answers[section][i] for _, answers, _ in said[:-1]])
        for section in range(job.n_sections)
    ]
    return np.concatenate(parts[1:]), parts[0].reshape(job.max_heads, -1)


@pytest.mark.parametrize(
    ("make", "n_servers", "bounds"),
    [
        (clients, 2, {}),
        (clients, 3, {"max_heads": 5, "max_size": 700}),
        (two_lengths, 5, {"max_size": 10_000}),
    ],
    ids=["2 servers", "3 servers, larger bounds", "5 servers, two lengths"],
)
def test_the_result_is_that_of_the_paper(make, n_servers, bounds, monkeypatch):
    monkeypatch.setattr("skpmtl.fedmtl.mpc.job._COLUMNS", 15)  # blocks of 3 or 5 shared parameters
    *arguments, _ = make(2)
    thresholds, expected = near(arguments)
    got = aggregated((*arguments, thresholds), n_servers, **bounds)
    assert_equal_models(got, expected, 4e-6)


def test_the_largest_and_smallest_numbers_that_are_allowed():
    """Clients of one task: sizes of a ratio at the bound, parameters just below theirs."""
    rng = np.random.default_rng(0)
    largest = np.nextafter(2.0**18, 0)
    shared = rng.choice([-largest, largest], (6, 5))
    heads = [np.full((1, 3), largest * (1 - 2e-3 * i)) for i in range(6)]
    arguments = shared, heads, [["a"]] * 6, [1, 2**16, 1, 3, 2**15 + 1, 2**16], 0.0
    expected = plainly(*arguments[:-1], np.zeros(6))
    got = aggregated(arguments, 2)
    assert_equal_models(got, expected, 1e-6 * largest)


def test_a_client_keeps_its_model_at_the_highest_threshold():
    shared, heads, tasks, _, _ = clients(4, counts=(2, 1))
    # Sizes of a ratio at the bound: the small client's own weight is the smallest there can be.
    got = aggregated((shared, heads, tasks, [1, 2**16], 1.0), 3)
    assert_equal_models(got, (shared, heads), 4e-6)


def test_messages_do_not_depend_on_the_number_of_tasks():
    seen = []
    for counts in ((1, 1, 3), (3, 2, 3)):
        shared, heads, _, sizes, _ = clients(0, counts=counts)
        tasks = [list(range(count)) for count in counts]
        *_, said = aggregated((shared, heads, tasks, sizes, 0.5), 3)
        lengths = [[len(x) for own in answers for x in own] for _, answers, _ in said]
        sent = [{part: own[2] for part, own in costs.items()} for _, _, costs in said]
        seen.append((lengths, sent))
    assert seen[0] == seen[1]
    assert min(sent["matching"] for sent in seen[0][1]) > 1000


# ---------------------------------------------------------------------------- messages
def small_job(**settings):
    shape = {"n_clients": 2, "n_shared": 4, "n_tasks": 2, "head_length": 3, "max_heads": 2}
    names = {"max_size": 8.0, "name": "Study", "round": 7}
    return Job(**{"n_servers": 3, **shape, **names, **settings})


def upload_of(job, client, value=1.0):
    own = np.full(job.n_shared, value), np.full((1, job.head_length), value)
    split, shares = split_upload(job, client, *own, [0], 8.0, 0.5)
    return split, list(shares)


def test_shares_are_uniform_and_new_in_every_split():
    job = small_job(n_shared=4000)
    (split, shares), (other, again) = (upload_of(job, 0, 0.0) for _ in range(2))
    assert split != other
    for section in shares:
        assert len({len(share) for share in section[:-1]}) == 1
    assert len(shares[1][-1]) == HEADER  # the dealer gets keys, once
    bodies = [np.frombuffer(own[1][0][HEADER:], np.uint64) for own in (shares, again)]
    for values in (*bodies, bodies[0] - bodies[1]):
        assert stats.kstest(values / 2.0**64, "uniform").pvalue > 1e-9
    keys = {bytes(share[HEADER:][:32]) for share in (*shares[0][:-1], *again[0][:-1])}
    assert len(keys) == 6


@pytest.mark.parametrize(("rank", "section"), [(0, 0), (1, 2), (3, 0), (3, 1)])
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        ("section", "section=. instead of"),
        ("client", "is another one: its header has client=0 instead of 1"),
        ("rank", "rank=. instead of"),
        ("round", "round=6 instead of 7"),
        ("name", "name='Other' instead of 'Study'"),
        ("split", "client 1 are of different splits"),
        ("cut", "it is cut or damaged"),
        ("header", "has no valid header"),
    ],
)
@pytest.mark.spread(12)
def test_a_wrong_share_is_refused_by_all(rank, section, spoil, message, monkeypatch):
    monkeypatch.setattr("skpmtl.fedmtl.mpc.job._COLUMNS", 4)
    job = small_job()
    assert job.n_sections == 3
    uploads = [upload_of(job, i)[1] for i in range(2)]
    own = uploads[1]
    wrong = {
        "section": lambda: own[(section + 1) % 3][rank],
        "client": lambda: uploads[0][section][rank],
        "rank": lambda: own[section][(rank + 1) % 3],
        "round": lambda: upload_of(small_job(round=6), 1)[1][section][rank],
        "name": lambda: upload_of(small_job(name="Other"), 1)[1][section][rank],
        "split": lambda: upload_of(job, 1)[1][section][rank],
        "cut": lambda: own[section][rank][:-8],
        "header": lambda: bytes(len(own[section][rank])),
    }
    own[section][rank] = wrong[spoil]()
    said = {error for error, _, _ in serve(job, uploads)}
    (error,) = said
    assert error.startswith("Job Study, round 7: ")
    place = "the dealer" if rank == 3 else f"server {rank}"
    assert re.search(message, error) and (spoil == "split" or f"client 1 at {place}" in error)


def test_servers_of_different_jobs_do_not_begin():
    job, other = small_job(), small_job(n_shared=5)
    uploads = [upload_of(job, i)[1] for i in range(2)]
    for own, more in zip(uploads, [upload_of(other, i)[1] for i in range(2)], strict=True):
        own[0][1] = more[0][1]
    (error,) = {error for error, _, _ in serve(job, uploads, {1: other})}
    assert "different jobs" in error


def test_servers_with_different_splits_do_not_begin():
    """Each of them has one split of the client alone."""
    job = small_job()
    uploads = [upload_of(job, i)[1] for i in range(2)]
    for own, other in zip(uploads[1], upload_of(job, 1)[1], strict=True):
        own[1] = other[1]
    (error,) = {error for error, _, _ in serve(job, uploads)}
    assert "client 1 are of different splits" in error


def test_a_wrong_answer_is_refused_by_the_client():
    job = small_job()
    uploads = [upload_of(job, i) for i in range(2)]
    said = serve(job, [shares for _, shares in uploads])
    split = uploads[1][0]
    shared, heads = model_of(job, 1, split, said)
    np.testing.assert_allclose(shared, np.ones(4), atol=1e-6)
    np.testing.assert_allclose(heads, [[1.0] * 3, [0.0] * 3], atol=1e-6)
    answers, other = ([own[1][i] for _, own, _ in said[:-1]] for i in (1, 0))
    first = [own[0][1] for _, own, _ in said[:-1]]
    damaged = bytearray(answers[2])
    damaged[-1] ^= 128
    body = np.frombuffer(answers[2][HEADER:], np.uint8)
    of_other = pack(job.header("answer", 1, 2, 1, "0" * 32), body)
    for found, message in [
        ([*other[:1], *answers[1:]], "server 0 is another one: its header has client=0 instead"),
        ([*first[:1], *answers[1:]], "server 0 is another one: its header has section=0 instead"),
        (answers[::-1], "server 0 is another one: its header has rank=2 instead of 0"),
        (answers[:2], "2 answers instead of 3"),
        ([*answers[:2], answers[2][:-1]], "client 1 at server 2 has .* bytes instead of"),
        ([*answers[:2], of_other], "server 2 to client 1 is not to this split"),
        ([*answers[:2], bytes(damaged)], "answer to client 1 has parameters above"),
    ]:
        with pytest.raises(RuntimeError, match=f"Job Study, round 7: .*{message}"):
            collect_answer(job, 1, split, 1, found)


# ---------------------------------------------------------------------------- wrong input
@pytest.fixture
def no_process(monkeypatch):
    def started(*arguments, **settings):
        raise AssertionError("a server was started")

    monkeypatch.setattr(secure.subprocess, "Popen", started)


def changed(position, value):
    arguments = list(clients(0))
    arguments[position] = value(arguments[position])
    return arguments


@pytest.mark.parametrize(
    ("arguments", "settings", "message"),
    [
        (changed(0, lambda shared: shared * 1e9), {}, r"Client 0: a parameter is .*scale"),
        (clients(0), {"max_heads": 2}, "Client 1: the number of heads must be .* max_heads=2"),
        (clients(0), {"max_size": 100}, "is not between max_size / 65536 and max_size=128"),
        (changed(3, lambda sizes: sizes * 10.0 ** -np.arange(0, 10, 2)), {}, "Client 3: the size"),
    ],
)
def test_wrong_input_starts_nothing(no_process, arguments, settings, message):
    with pytest.raises(ValueError, match=message):
        SecureServers(n_servers=3).aggregate(*arguments, **settings)


@pytest.mark.parametrize(
    ("upload", "message"),
    [
        ((np.zeros(3), np.ones((1, 3)), [0], 1.0, 0.5), r"the shapes \(3,\)"),
        ((np.zeros(4), np.ones((2, 3)), [1, 1], 1.0, 0.5), "different columns from 0 to 1"),
        ((np.full(4, np.nan), np.ones((1, 3)), [0], 1.0, 0.5), "a parameter is not below"),
        ((np.zeros(4), np.ones((1, 3)), [0], 1.0, np.nan), "the threshold is not"),
    ],
)
def test_a_client_checks_what_it_splits(upload, message):
    with pytest.raises(ValueError, match=f"Client 1: .*{message}"):
        split_upload(small_job(), 1, *upload)


@pytest.mark.parametrize("changes", [{"n_clients": 2**13}, {"max_size": 12.0}])
def test_a_job_has_numbers_that_can_be_served(changes):
    with pytest.raises(ValueError, match="too many|power of two"):
        small_job(**changes)


# ---------------------------------------------------------------------------- processes
def assert_all_ended(servers):
    assert len(servers.processes) == servers.n_servers + 1
    assert all(process.returncode is not None for process in servers.processes)
    assert not servers._folder.exists()
    with pytest.raises(RuntimeError, match="make new SecureServers"):
        servers.aggregate(*clients(0))


@pytest.mark.parametrize(("killed", "name"), [(1, "server 1"), (2, "the dealer")])
def test_a_killed_process_ends_all_and_is_named(killed, name):
    with SecureServers(n_servers=2, timeout=TIMEOUT) as servers:
        for seed, counts in ((0, (2, 1)), (1, (1, 2))):  # the same processes do several rounds
            *arguments, _ = clients(seed, counts=counts, n_tasks=2)
            thresholds, expected = near(arguments)
            *got, similarity = servers.aggregate(*arguments, thresholds, max_heads=2)
            assert similarity is None
            assert_equal_models(got, expected, 4e-6)
        started = [process.pid for process in servers.processes]
        os.kill(started[killed], signal.SIGTERM)
        with pytest.raises(RuntimeError, match=rf"round 2: {name} ended \(status -15.*again"):
            servers.aggregate(*arguments, thresholds, max_heads=2)
        assert [process.pid for process in servers.processes] == started
    assert_all_ended(servers)


@pytest.mark.skipif(os.name != "posix", reason="stops a process by a POSIX signal")
def test_a_server_that_hangs_ends_the_round():
    with SecureServers(n_servers=2, timeout=TIMEOUT) as servers:
        arguments = clients(0, counts=(2, 1))
        servers.aggregate(*arguments)
        os.kill(servers.processes[0].pid, signal.SIGSTOP)
        servers.timeout = 0.3
        with pytest.raises(RuntimeError, match="did not finish within timeout=0.3 seconds"):
            servers.aggregate(*arguments)
    assert_all_ended(servers)


def test_processes_end_when_the_caller_does():
    """Their standard input ends then, however it ended."""
    with SecureServers(n_servers=2, timeout=TIMEOUT) as servers:
        servers.aggregate(*clients(0, counts=(2, 1)))
        for process in servers.processes:
            process.stdin.close()
        for process in servers.processes:
            assert process.wait(TIMEOUT) == LOST


def test_servers_import_nothing_else_of_the_package():
    code = "import sys, mpc.server; print(*(n for n in sys.modules if n[:6] == 'skpmtl'))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=secure._PLACE, capture_output=True, text=True, check=True)
    assert done.stdout == "\n"
