"""One journal is one budget: for one process at a time, and for the rows it was begun with."""

import os
import stat
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse

from skpmtl import MPMTLLowRank
from skpmtl.exchange.journal import Journal, append_line, fingerprint, write_file
from skpmtl.privacy.rng import SeededSource
from skpmtl.shards import fit as shards
from skpmtl.shards.fit import fit_shards
from skpmtl.tables.table import TaskTable
from tests.helpers.apart import apart

pytestmark = pytest.mark.filterwarnings("ignore:The noise of this fit is reproducible")
M = 12


def write_parts(folder, change=0.0):
    rng = np.random.default_rng(0)
    task = np.repeat(np.arange(M), 5)
    X = rng.standard_normal((5 * M, 3))
    y = X @ np.ones(3) + rng.standard_normal(5 * M)
    y[-1] += change
    parts = []
    for k, mine in enumerate((task < 5, task >= 5)):
        parts.append(folder / f"part-{k}")
        parts[-1].mkdir(exist_ok=True)
        for name, values in (("X", X), ("y", y), ("task", task)):
            np.save(parts[-1] / f"{name}.npy", values[mine])
    return parts


# ----------------------------------------------------------------------------- two processes
def test_a_journal_is_open_once(tmp_path):
    with Journal(tmp_path, {"run": 1}) as first:
        with pytest.raises(ValueError, match="Another process uses this journal.*empty folder"):
            Journal(tmp_path, {"run": 1})
        token = first.token
    with Journal(tmp_path, {"run": 1}) as again:
        assert again.token == token
    with pytest.raises(ValueError, match="another run"):
        Journal(tmp_path, {"run": 2})
    Journal(tmp_path, {"run": 1}).close()  # the error has left nothing locked


def test_a_journal_opened_again_begins_at_its_first_reply(tmp_path):
    source = SeededSource(np.random.default_rng(0))
    with Journal(tmp_path, {}) as journal:
        assert (journal.begun, journal.place) == (False, 0)
        assert len(bytes.fromhex(journal.key.decode())) == 32
        for k in range(2):
            source.normal(1)
            journal.keep({"x": np.array(k)}, source)
        assert journal.place == 2 and journal.recall(source) is None
    after, source = source.normal(1), SeededSource(np.random.default_rng(0))
    with Journal(tmp_path, {}) as journal:
        assert (journal.begun, journal.place) == (True, 0)
        assert [int(journal.recall(source)["x"]) for _ in range(2)] == [0, 1]
        assert journal.recall(source) is None and journal.place == 2
    assert source.normal(1) == after  # noise goes on, and is not drawn twice


RACE = """
import os, sys
from skpmtl import MPMTLLowRank
from skpmtl.shards import fit_shards
gate, opened = os.pipe()
for _ in range(2):
    if os.fork() == 0:
        os.close(opened)
        os.read(gate, 1)  # until nobody can write: both at once
        est = MPMTLLowRank(tasks=range(12), epsilon=60.0)
        try:
            fit_shards(est, sys.argv[2:], journal=sys.argv[1])
        except ValueError as error:
            said = "refused" if "uses this journal" in str(error) else str(error)
        else:
            said = " ".join(x.hex() for S in est.billboard_.releases for x in S.ravel().tolist())
        os.write(1, (said + os.linesep).encode())
        os._exit(0)
os.close(opened)
for _ in range(2):
    os.wait()
"""


@pytest.mark.skipif(os.name != "posix", reason="needs fork")
def test_two_fits_publish_one_billboard(tmp_path):
    """Started together, each is refused or has the releases of the other; noise is not seeded."""
    parts = write_parts(tmp_path)
    said = apart(RACE, tmp_path, tmp_path / "journal", *parts).splitlines()
    assert len(said) == 2 and len(set(said) - {"refused"}) == 1
    est = MPMTLLowRank(tasks=range(M), epsilon=60.0)
    fit_shards(est, parts, journal=tmp_path / "journal")
    kept = " ".join(x.hex() for S in est.billboard_.releases for x in np.ravel(S).tolist())
    assert set(said) - {"refused"} == {kept}


# ------------------------------------------------------------------------------- other rows
def cut_off(est, parts, journal, monkeypatch):
    """A fit that breaks off after its first release."""
    answer, asked = shards._Here.answer, []

    def dying(self, query):
        asked.append(query)
        if len(asked) == 2:
            raise KeyboardInterrupt
        return answer(self, query)

    with monkeypatch.context() as patch:
        patch.setattr(shards._Here, "answer", dying)
        with pytest.raises(KeyboardInterrupt):
            fit_shards(est, parts, journal=journal)


@pytest.mark.parametrize("finished", [False, True])
def test_other_rows_are_refused(tmp_path, monkeypatch, finished):
    est, journal = MPMTLLowRank(tasks=range(M), epsilon=60.0, random_state=0), tmp_path / "journal"
    parts = write_parts(tmp_path)
    if finished:
        whole = fit_shards(est, parts, journal=journal).billboard_
    else:
        cut_off(est, parts, journal, monkeypatch)
    kept = {path.name: path.read_bytes() for path in journal.iterdir()}
    write_parts(tmp_path, change=1e-9)
    with pytest.raises(ValueError, match=r"^Part '.*part-1' has other rows than when the journal"):
        fit_shards(est, parts, journal=journal)
    assert not hasattr(est, "coef_")
    with pytest.raises(ValueError, match=r"^Part '.*part-1' has other rows"):
        fit_shards(est, parts[::-1], journal=journal)
    assert {path.name: path.read_bytes() for path in journal.iterdir()} == kept
    write_parts(tmp_path)
    again = fit_shards(est, parts, journal=journal).billboard_
    if finished:
        assert_array_equal(again.centre, whole.centre)


def test_lost_secrets_are_damage(tmp_path):
    parts, est = write_parts(tmp_path), MPMTLLowRank(tasks=range(M), epsilon=60.0, random_state=0)
    journal = tmp_path / "journal"
    fit_shards(est, parts, journal=journal)
    for name, message in (
        ("key", "key is damaged"),
        ("token", "token is damaged"),
        ("rows.json", "other rows"),
        ("000000.npz", "replies are missing"),
    ):
        kept = (journal / name).read_bytes()
        (journal / name).unlink()
        with pytest.raises(ValueError, match=f"{message}.*spends a new budget"):
            fit_shards(est, parts, journal=journal)
        (journal / name).write_bytes(kept)
    reply = journal / "000001.npz"
    kept = reply.read_bytes()
    reply.write_bytes(kept[:40])
    with pytest.raises(ValueError, match="damaged.*spends a new budget"):
        fit_shards(est, parts, journal=journal)
    reply.write_bytes(kept)
    (journal / "rows.json").write_text("[")
    with pytest.raises(ValueError, match="other rows.*spends a new budget"):
        fit_shards(est, parts, journal=journal)


def table(X, y=None, task=None, **more):
    n = X.shape[0]
    y = np.arange(n, dtype=float) if y is None else y
    return TaskTable(X, y, np.array([0, 2, n]), np.array([3, 4]) if task is None else task, **more)


def test_fingerprints_of_rows_differ_and_need_the_key(tmp_path):
    X = np.random.default_rng(0).standard_normal((5, 3))
    code = fingerprint(table(X), b"key")
    np.save(tmp_path / "X.npy", X)
    assert fingerprint(table(np.load(tmp_path / "X.npy", mmap_mode="r")), b"key") == code
    other = X.copy()
    other[4, 2] = np.nextafter(other[4, 2], 9.0)
    first, numbers, same = X.copy(), np.array([65, 66]), np.arange(5)
    first[0, 0] = np.nextafter(first[0, 0], 9.0)
    thin = sparse.csr_matrix(X)
    moved = sparse.csr_matrix((thin.data, thin.indices[::-1].copy(), thin.indptr), thin.shape)
    codes = [
        code,
        fingerprint(table(X), b"another key"),
        fingerprint(table(other), b"key"),
        fingerprint(table(X.astype(np.float32)), b"key"),
        fingerprint(table(X, y=np.ones(5)), b"key"),
        fingerprint(table(X, task=np.array([3, 5])), b"key"),
        fingerprint(table(X, task=np.array(["3", "4"])), b"key"),
        fingerprint(table(X, rows=np.arange(5)[::-1].copy()), b"key"),
        fingerprint(table(first), b"key"),
        fingerprint(table(X, task=numbers), b"key"),
        fingerprint(table(X, task=numbers.view("U2")), b"key"),  # "A" and "B", of the same bytes
        fingerprint(table(X, y=same), b"key"),
        fingerprint(replace(table(X, rows=same), y=None), b"key"),
        fingerprint(table(thin), b"key"),
        fingerprint(table(sparse.csr_matrix(X.shape)), b"key"),  # without a number
        fingerprint(table(moved), b"key"),
    ]
    assert len(set(codes)) == len(codes)


# ------------------------------------------------------------------------------------- files
@pytest.mark.skipif(os.name != "posix", reason="permissions of posix")
def test_files_keep_permissions_and_links(tmp_path):
    path, link = tmp_path / "file", tmp_path / "link"
    before = os.umask(0o027)
    try:
        write_file(path, b"1")
        write_file(tmp_path / "secret", b"1", 0o600)
        os.umask(0)  # secrets stay so where others may read what the process makes
        with Journal(tmp_path / "journal", {}) as journal:
            journal.same_rows([])
            journal.keep({}, None)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o640
    secrets = {"key", "token", "run.json", "rows.json", "lock", "000000.npz"}
    assert {p.name for p in (tmp_path / "journal").iterdir()} == secrets
    for secret in ("secret", *(f"journal/{name}" for name in secrets)):
        assert (tmp_path / secret).stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "journal").stat().st_mode & 0o777 == 0o700
    path.chmod(0o604)
    link.symlink_to(path)
    write_file(link, b"2")
    assert link.is_symlink() and path.read_bytes() == b"2"
    assert path.stat().st_mode & 0o777 == 0o604
    with pytest.raises(ValueError, match="is no file"):
        write_file(tmp_path, b"3")
    with pytest.raises(ValueError, match="is no file"):
        write_file("/dev/null", b"3")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "journal", "link", "secret"]


@pytest.mark.skipif(os.name != "posix", reason="folders are synced on posix")
def test_a_file_is_on_disk_before_its_name_and_then_its_folder(tmp_path, monkeypatch):
    done, fsync, replace = [], os.fsync, os.replace

    def synced(file):
        found = os.fstat(file)
        done.append("folder" if stat.S_ISDIR(found.st_mode) else found.st_size)
        fsync(file)

    def renamed(*paths):
        done.append("name")
        replace(*paths)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    write_file(tmp_path / "file", b"12345")
    assert done == [5, "name", "folder"]


@pytest.mark.skipif(os.name != "posix", reason="permissions of posix")
def test_lines_are_secret_on_disk_and_replace_half_a_one(tmp_path, monkeypatch):
    synced, fsync = [], os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda file: synced.append(os.fstat(file).st_size) or fsync(file)
    )
    path, before = tmp_path / "lines", os.umask(0)
    try:
        append_line(path, "one")
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_bytes(b"one\nhal")
    append_line(path, "two")
    assert path.read_text() == "one\ntwo\n" and synced == [4, 8]


@pytest.mark.skipif(os.name != "posix", reason="needs RLIMIT_FSIZE")
def test_a_full_disk_leaves_what_was_there(tmp_path):
    import resource

    path = tmp_path / "file"
    path.write_bytes(b"good")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            write_file(path, bytes(5000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert path.read_bytes() == b"good" and list(tmp_path.iterdir()) == [path]


def test_what_a_killed_process_was_writing_is_cleared(tmp_path):
    (tmp_path / "000000.npz.0123.partial").write_bytes(b"half")
    with Journal(tmp_path, {}) as journal:
        assert journal.recall(None) is None
    assert not list(tmp_path.glob("*.partial"))


KILLED = """
import os, signal, sys, time
import numpy as np
from skpmtl.exchange.journal import Journal
rng, places = np.random.default_rng(0), 0
for _ in range(6):
    begun, begin = os.pipe()
    writer = os.fork()
    if writer == 0:
        with Journal(sys.argv[1], {}) as journal:
            while journal.recall(None) is not None:
                pass
            os.write(begin, b"go")
            while True:
                journal.keep({"x": np.full(2000, float(journal.place))}, None)
    os.read(begun, 2)
    try:
        Journal(sys.argv[1], {})
    except ValueError as error:
        assert "Another process uses this journal" in str(error)
    else:
        raise AssertionError("the journal is open twice")
    time.sleep(0.01 + 0.05 * rng.random())
    os.kill(writer, signal.SIGKILL)
    os.waitpid(writer, 0)
    with Journal(sys.argv[1], {}) as journal:  # the lock has ended with the process
        while (reply := journal.recall(None)) is not None:
            assert (reply["x"] == np.full(2000, journal.place - 1.0)).all()
        assert journal.place >= places
        places = journal.place
print(places)
"""


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_killed_at_any_time_a_journal_goes_on(tmp_path):
    assert int(apart(KILLED, tmp_path, tmp_path / "journal")) > 0


@pytest.mark.parametrize("size", [0, 1, 2, 5])
def test_fingerprints_read_all_blocks(size, monkeypatch):
    from skpmtl.exchange import journal

    X = np.random.default_rng(0).standard_normal((5, 3))
    code = fingerprint(table(X), b"key")
    monkeypatch.setattr(journal, "_BLOCK", 3 * size)
    assert fingerprint(table(X), b"key") == code
