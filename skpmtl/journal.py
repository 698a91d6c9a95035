"""What a curator has released and drawn so far, on disk: a restarted one goes on from there."""

import io
import json
import os
import zipfile
from pathlib import Path

import numpy as np

__all__ = ["Journal"]


class Journal:
    """Replies of `skpmtl.exchange.run`, one file each, written before the curator sees them.

    A run that finds replies of an earlier one takes them instead of asking and drawing noise
    again, which would spend the budget twice. Draws of participants are secret: the folder is the
    curator's own.

    Parameters
    ----------
    path : path-like
        Folder; made if it is missing.
    run : dict
        What makes this run: estimator, parameters, tasks; plain JSON values.

    Attributes
    ----------
    place : int
        Number of the next reply.
    token : str
        Drawn when the folder was made: a run from another folder has another one.

    Raises
    ------
    ValueError
        When the folder holds another run, or is damaged.
    """

    def __init__(self, path, run):
        self.path = Path(path)
        self.path.mkdir(parents=True, exist_ok=True)
        text = json.dumps(run, sort_keys=True, default=str)
        header = self.path / "run.json"
        if not header.exists():
            if any(self.path.glob("*.npz")):
                raise ValueError(f"{self.path} has replies but no run.json: take an empty folder.")
            write_file(header, text.encode())
        elif header.read_text() != text:
            raise ValueError(
                f"{self.path} holds the journal of another run (other estimator, parameters or "
                "tasks): restart with the settings of run.json. An empty folder starts a new run, "
                "which spends a new budget."
            )
        names = sorted(path.name for path in self.path.glob("*.npz"))
        if names != [self._file(place).name for place in range(len(names))]:
            raise ValueError(
                f"{self.path} is damaged, replies are missing: what was released cannot be taken "
                "up again; start a new run, which spends a new budget."
            )
        token = self.path / "token"
        if not token.exists():
            write_file(token, os.urandom(16).hex().encode())
        self.token = token.read_text()
        self.place = 0

    def recall(self, source):
        """The next reply of an earlier run, or None after the last."""
        path = self._file(self.place)
        if not path.exists():
            return None
        try:
            with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as found:
                reply = {name: found[name] for name in found.files}
            state = json.loads(str(reply.pop("_source")))
        except (ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(
                f"{path} is damaged ({error}): what was released cannot be taken up again; start "
                "a new run, which spends a new budget."
            ) from error
        if state is not None:
            source.state = state
        self.place += 1
        return reply

    def keep(self, reply, source):
        """Write a reply; it is safe on disk when this returns."""
        state = json.dumps(getattr(source, "state", None))
        buffer = io.BytesIO()
        np.savez(buffer, _source=np.array(state), **reply)
        write_file(self._file(self.place), buffer.getbuffer())
        self.place += 1

    def _file(self, place):
        return self.path / f"{place:06d}.npz"


def write_file(path, data):
    """Write a file that is whole and safe on disk when this returns, or else is as it was."""
    partial = path.with_suffix(".partial")
    with open(partial, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
    if os.name == "posix":  # the name is safe once its folder is
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
