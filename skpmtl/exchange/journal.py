"""What a curator has released and drawn so far, on disk: a restarted one goes on from there."""

import hashlib
import hmac
import io
import json
import os
import re
import secrets
import stat
import zipfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np

__all__ = [
    "Journal",
]
_BLOCK = 1 << 20  # numbers that are hashed at a time


class Journal:
    """Replies of `skpmtl.exchange.run`, one file each, written before the curator sees them.

    A run that finds replies of an earlier one takes them instead of asking and drawing noise
    again, which would spend the budget twice. Draws of participants are secret: the folder is the
    curator's own, and what is in it is readable for its owner only.

    Parameters
    ----------
    path : path-like
        Folder; made if it is missing. Until `close` no other journal can be opened in it, in this
        process or another, on any machine that shares the folder and its locks.
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
        address in place of a folder.
    """

    def __init__(self, path, run):
        if re.match("[A-Za-z][A-Za-z0-9+.-]+:/", os.fspath(path)):
            raise ValueError(
                f"journal={os.fspath(path)!r} is an address, and a journal needs a folder with "
                "locks: give the path of one on this machine, or mount the storage here."
            )
        self.path = Path(path)
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            self._lock = lock_file(self.path / "lock", wait=False)
        except BlockingIOError as error:
            raise ValueError(
                f"Another process uses this journal, {self.path}: two would spend the budget "
                "twice. Wait until it has ended, or take an empty folder, which starts a new run "
                "with a new budget."
            ) from error
        try:
            self._open(run)
        except BaseException:
            self.close()
            raise

    def _open(self, run):
        for left in self.path.glob("*.partial"):  # by a process that was killed as it wrote
            left.unlink()
        text = text_of(run)
        header = self.path / "run.json"
        if not header.exists():
            if any(self.path.glob("*.npz")):
                raise ValueError(f"{self.path} has replies but no run.json: take an empty folder.")
            write_file(header, text.encode(), 0o600)
        elif header.read_text() != text:
            raise ValueError(
                f"{self.path} holds the journal of another run (other estimator, parameters or "
                "tasks): restart with the settings of run.json. An empty folder starts a new run, "
                "which spends a new budget."
            )
        names = sorted(path.name for path in self.path.glob("*.npz"))
        if names != [self._file(place).name for place in range(len(names))]:
            raise ValueError(_damaged(self.path, "replies are missing"))
        self.token = self._drawn("token", 16)
        self.key = self._drawn("key", 32).encode()
        self.place, self.begun = 0, bool(names)

    def _drawn(self, name, n_bytes):
        """Random bytes as text, drawn once for a folder."""
        path = self.path / name
        if not path.exists():
            if any(self.path.glob("*.npz")):
                raise ValueError(_damaged(path, "it is missing"))
            write_file(path, secrets.token_hex(n_bytes).encode(), 0o600)
        return path.read_text()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def close(self):
        """Let others open a journal in this folder."""
        self._lock.close()

    def same_rows(self, prints):
        """Refuse rows that are not those the journal was begun with.

        Parameters
        ----------
        prints : list of (str, str)
            What a part is called in an error, and its `fingerprint` with `key`; in the same order
            in every run.

        Raises
        ------
        ValueError
            When the rows of a part are other ones than before.
        """
        path = self.path / "rows.json"
        if not path.exists() and not self._file(0).exists():
            write_file(path, json.dumps([code for _, code in prints]).encode(), 0o600)
        try:
            before = json.loads(path.read_text())
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
        path = self._file(self.place)
        if not path.exists():
            return None
        try:
            with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as found:
                reply = {name: found[name] for name in found.files}
            state = json.loads(str(reply.pop("_source")))
        except (ValueError, KeyError, EOFError, OSError, zipfile.BadZipFile) as error:
            raise ValueError(_damaged(path, error)) from error
        if state is not None:
            source.state = state
        self.place += 1
        return reply

    def keep(self, reply, source):
        """Write a reply; it is safe on disk when this returns."""
        state = json.dumps(getattr(source, "state", None))
        buffer = io.BytesIO()
        np.savez(buffer, _source=np.array(state), **reply)
        write_file(self._file(self.place), buffer.getbuffer(), 0o600)
        self.place += 1

    def _file(self, place):
        return self.path / f"{place:06d}.npz"


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
    """A code of all rows of a table, which says nothing to those who do not have the key.

    Parameters
    ----------
    table : TaskTable
        With targets that are numbers.
    key : bytes
        Secret: without one, rows could be guessed and compared.

    Returns
    -------
    str
        HMAC-SHA256 of tasks, features, targets and weights in the order of the table.
    """
    code = hmac.new(key, digestmod=hashlib.sha256)
    X = [table.X.data, table.X.indices, table.X.indptr] if table.is_sparse else [table.X]
    weights = [] if table.weights is None else [table.weights]
    for array in (table.tasks, table.offsets, table.y, table.rows, *X, *weights):
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
    permissions, and a link points to where it did.

    Parameters
    ----------
    path : path-like
    data : bytes-like
    mode : int, default=None
        Permissions of a new file; None: what the process gives to new files.
    """
    path = Path(os.path.realpath(path))
    found = os.stat(path) if path.exists() else None
    if found is not None and not stat.S_ISREG(found.st_mode):
        raise ValueError(f"{str(path)!r} is there and is no file: give the name of a file.")
    # A name of its own: another process may write the same file.
    partial = path.with_name(f"{path.name}.{secrets.token_hex(8)}.partial")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        with open(os.open(partial, flags, 0o666 if mode is None else mode), "wb") as file:
            if found is not None:
                os.chmod(partial, stat.S_IMODE(found.st_mode))
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


def lock_file(path, wait):
    """Open a file that one process has at a time: until it is closed, or the process ends.

    On NFS that holds across machines where the server and all mounts have locks.

    Parameters
    ----------
    path : path-like
    wait : bool

    Returns
    -------
    file

    Raises
    ------
    BlockingIOError
        With ``wait=False``, when it is open elsewhere.
    ValueError
        Where files have no locks.
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
