"""Journal of the releases and draws of a curator on disk, from which it can be restarted."""

import hashlib
import hmac
import io
import json
import os
import secrets
import stat
import zipfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from .addresses import opened

__all__ = ["Journal"]
_BLOCK = 1 << 20  # numbers that are hashed at a time


class Journal:
    """Replies of `skpmtl.exchange.run`, one file each, written before the curator sees them.

    A run that finds replies of an earlier one takes them instead of asking and drawing noise
    again, which would spend the budget twice. Draws of participants are secret: the folder is the
    curator's own, and what is in it is readable for its owner only.

    Parameters
    ----------
    path : path-like or address
        Folder; made if it is missing. Until `close` no other journal can be opened in it, in this
        process or another, on any machine that shares the folder and its locks. Or the address of
        a folder of an object store, such as ``s3://bucket/folder``, which has no locks: of two
        runs, the second to write a reply ends with an error, before its curator sees it. The
        access rights of the store must be those of the curator.
    run : dict
        What makes this run: estimator, parameters, tasks; plain JSON values.

    Attributes
    ----------
    place : int
        Number of the next reply.
    token : str
        Drawn when the folder was made: a run from another folder has another one.
    begun : bool
        Whether there is a reply already.
    key : bytes
        The same, for `fingerprint`; it is the curator's secret.

    Raises
    ------
    ValueError
        When the folder holds another run, is damaged, cannot be locked, or is in use, and for an
        object store that cannot refuse to overwrite a file.
    ImportError
        For an address without fsspec.
    """

    def __init__(self, path, run):
        files, root = opened(os.fspath(path))
        self.path = os.fspath(path)
        self._store = _Folder(root) if files is None else _Bucket(files, root, self.path)
        try:
            self._open(run)
        except BaseException:
            self.close()
            raise

    def _open(self, run):
        text, names = text_of(run), sorted(self._store.names())
        replies = [name for name in names if name.endswith(".npz")]
        if "run.json" not in names:
            if replies:
                raise ValueError(f"{self.path} has replies but no run.json: take an empty folder.")
            self._store.create("run.json", text.encode())
        elif self._store.read("run.json").decode() != text:
            raise ValueError(
                f"{self.path} holds the journal of another run (other estimator, parameters or "
                "tasks): restart with the settings of run.json. An empty folder starts a new run, "
                "which spends a new budget."
            )
        if replies != [_name(place) for place in range(len(replies))]:
            raise ValueError(_damaged(self.path, "replies are missing"))
        self.place, self.begun = 0, bool(replies)
        self.token = self._drawn("token", 16, names)
        self.key = self._drawn("key", 32, names).encode()

    def _drawn(self, name, n_bytes, names):
        """Random bytes as text, drawn once for a folder."""
        if name not in names:
            if self.begun:
                raise ValueError(_damaged(f"{self.path}/{name}", "it is missing"))
            self._store.create(name, secrets.token_hex(n_bytes).encode())
        return self._store.read(name).decode()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def close(self):
        """Let others open a journal in this folder."""
        self._store.close()

    def same_rows(self, prints):
        """Refuse rows that are not those the journal was begun with, with a ValueError.

        `prints` has, for each part in the same order in every run, what it is called in an error,
        and its `fingerprint` with `key`.
        """
        if "rows.json" not in self._store.names() and not self.begun:
            text = json.dumps([code for _, code in prints])
            self._store.create("rows.json", text.encode())
        try:
            before = json.loads(self._store.read("rows.json"))
            other = [name for (name, code), old in zip(prints, before, strict=True) if code != old]
        except (OSError, TypeError, ValueError):  # not readable, or of another number of parts
            other = [name for name, _ in prints]
        if other:
            raise ValueError(
                f"{other[0]} has other rows than when the journal {self.path} was begun, and what "
                "was released is about those: restart with the same parts in the same order. An "
                "empty folder starts a new run, which spends a new budget."
            )

    def recall(self, source):
        """The next reply of an earlier run, or None after the last."""
        name = _name(self.place)
        try:
            data = self._store.read(name)
        except FileNotFoundError:
            return None
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as archive:
                reply = {name: archive[name] for name in archive.files}
            state = json.loads(str(reply.pop("_source")))
        except (ValueError, KeyError, EOFError, OSError, zipfile.BadZipFile) as error:
            raise ValueError(_damaged(f"{self.path}/{name}", error)) from error
        if state is not None:
            source.state = state
        self.place += 1
        return reply

    def keep(self, reply, source):
        """Write a reply; it is safe on disk when this returns."""
        state = json.dumps(getattr(source, "state", None))
        buffer = io.BytesIO()
        np.savez(buffer, _source=np.array(state), **reply)
        self._store.create(_name(self.place), buffer.getbuffer())
        self.place += 1


def _name(place):
    return f"{place:06d}.npz"


class _Folder:
    """A folder of this machine, which one process has at a time."""

    def __init__(self, root):
        self.path = Path(root)
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            self._lock = lock_file(self.path / "lock", wait=False)
        except BlockingIOError as error:
            raise ValueError(
                f"Another process uses this journal, {self.path}: two would spend the budget "
                "twice. Wait until it has ended, or take an empty folder, which starts a new run "
                "with a new budget."
            ) from error
        for left in self.path.glob("*.partial"):  # by a process that was killed as it wrote
            left.unlink()

    def names(self):
        return [path.name for path in self.path.iterdir()]

    def read(self, name):
        return (self.path / name).read_bytes()

    def create(self, name, data):
        write_file(self.path / name, data, 0o600)

    def close(self):
        self._lock.close()


class _Bucket:
    """A folder of an object store, where of two processes that create a file one gets an error.

    There are no locks: what a process released counts once its file is there, so that two fits
    cannot go on from different releases.
    """

    def __init__(self, files, root, address):
        self.files, self.root, self.address = files, root.rstrip("/"), address
        files.makedirs(self.root, exist_ok=True)
        try:
            for _ in range(2):
                files.pipe_file(f"{self.root}/probe", b"", mode="create")
        except FileExistsError:
            return
        except (TypeError, NotImplementedError, ValueError):  # of those that know no such mode
            pass
        raise ValueError(
            f"journal={address!r}: this storage cannot refuse to overwrite a file, so that two "
            "fits could spend the budget twice. Give a folder on this machine, or mount the "
            "storage."
        )

    def names(self):
        self.files.invalidate_cache()
        try:
            paths = self.files.ls(self.root, detail=False)
        except FileNotFoundError:
            return []
        return [path.rstrip("/").rpartition("/")[2] for path in paths]

    def read(self, name):
        return self.files.cat_file(f"{self.root}/{name}")

    def create(self, name, data):
        try:
            self.files.pipe_file(f"{self.root}/{name}", bytes(data), mode="create")
        except FileExistsError as error:
            raise ValueError(
                f"Another fit wrote {name} of the journal {self.address} first, and two would "
                "spend the budget twice. Wait until it has ended, and fit again with this journal."
            ) from error

    def close(self):
        pass


def text_of(run):
    """What makes a run, as text that is the same in every process."""
    return json.dumps(run, sort_keys=True, default=_described)


def _described(value):
    name = getattr(value, "__qualname__", None)  # of a function or class: without its address
    return str(value) if name is None else f"{value.__module__}.{name}"


def _damaged(path, why):
    return (
        f"{path} is damaged ({why}): what was released cannot be taken up again; start a new run, "
        "which spends a new budget."
    )


# ------------------------------------------------------------------------------ rows
def fingerprint(table, key):
    """Keyed code of all rows of a table, which discloses nothing without the secret `key`. -> str

    HMAC-SHA256 of tasks, features, targets (numbers), weights and levels of rows in the order of
    the table.
    """
    code = hmac.new(key, digestmod=hashlib.sha256)
    X = [table.X.data, table.X.indices, table.X.indptr] if table.is_sparse else [table.X]
    weights = [] if table.weights is None else [table.weights]
    levels = [] if table.levels is None else [*table.levels.labels, table.levels.codes]
    for array in (table.tasks, table.offsets, table.y, table.rows, *X, *weights, *levels):
        if array is None:
            code.update(b"none")
            continue
        code.update(f"{array.dtype.str} {array.shape} ".encode())
        step = max(_BLOCK // max(array[:1].size, 1), 1)
        for first in range(0, len(array), step):  # of a memory map one block at a time
            code.update(np.ascontiguousarray(array[first : first + step]).view(np.uint8))
    return code.hexdigest()


# ----------------------------------------------------------------------------- files
def write_file(path, data, mode=None):
    """Write a file that is whole and safe on disk when this returns, or else is as it was.

    Several processes may do so at once: the last one stays. A file that is there keeps its
    permissions, and a link points to where it did. `mode`: permissions of a new file; None: what
    the process gives to new files.
    """
    path = Path(os.path.realpath(path))
    status = os.stat(path) if path.exists() else None
    if status is not None and not stat.S_ISREG(status.st_mode):
        raise ValueError(f"{str(path)!r} is there and is no file: give the name of a file.")
    # A name of its own: another process may write the same file.
    partial = path.with_name(f"{path.name}.{secrets.token_hex(8)}.partial")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        with open(os.open(partial, flags, 0o666 if mode is None else mode), "wb") as file:
            if status is not None:
                os.chmod(partial, stat.S_IMODE(status.st_mode))
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    if os.name == "posix":  # the name is safe once its folder is
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def append_line(path, line):
    """Add a line of text, safe on disk when this returns, over half a one of a killed process."""
    with open(path, "a+b", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.truncate(_end_of_lines(file))
        file.write(line.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def _end_of_lines(file):
    """Bytes up to the end of the last whole line of a file; reads little of a long one."""
    end = file.seek(0, os.SEEK_END)
    while end:
        start = max(end - 4096, 0)
        file.seek(start)
        found = file.read(end - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def lock_file(path, wait):
    """Open a file that one process has at a time, until it is closed or the process ends. -> file

    On NFS that holds across machines where the server and all mounts have locks. Raises
    BlockingIOError without `wait` when it is open elsewhere, and ValueError where files have no
    locks.
    """
    file = open(path, "a+b", opener=lambda name, flags: os.open(name, flags, 0o600))
    try:
        _lock(file, wait)
    except BlockingIOError:
        file.close()
        raise
    except OSError as error:
        file.close()
        raise ValueError(
            f"Files in {os.path.dirname(path)} cannot be locked ({error}): take a folder on a "
            "local disk, or on a file system with locks."
        ) from error
    return file


if os.name == "nt":
    import msvcrt
    import time

    def _lock(file, wait):
        while True:
            try:
                file.seek(0)
                return msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
            except PermissionError as error:  # somebody else has it
                if not wait:
                    raise BlockingIOError(*error.args) from error
                time.sleep(0.01)

else:
    import fcntl

    def _lock(file, wait):
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def locked(folder):
    """One process at a time in a folder; the others wait."""
    with lock_file(Path(folder) / "lock", wait=True):
        yield
