"""Where the rounds of FedMTL are, on disk: a fit that was cut off goes on from the last one."""

import hashlib
import io
import json
import zipfile
from pathlib import Path

import numpy as np

from ..exchange.journal import lock_file, text_of, write_file

__all__ = ["RoundJournal", "code_of"]


class RoundJournal:
    """The state after the last round of a fit; a context manager.

    The folder `path`, which is made if it is missing, has the models of all clients: its files can
    be read by their owner only, and one fit at a time uses it. `run` is what makes this fit, of
    plain JSON values: estimator, parameters, a code of the rows. Raises ValueError when the folder
    is in use, damaged, or holds another fit.
    """

    def __init__(self, path, run):
        self.path = Path(path)
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            self._lock = lock_file(self.path / "lock", wait=False)
        except BlockingIOError as error:
            raise ValueError(
                f"Another process uses this journal, {self.path}: wait until it has ended, or take "
                "an empty folder."
            ) from error
        try:
            self._check(run)
        except BaseException:
            self._lock.close()
            raise

    def _check(self, run):
        for left in self.path.glob("*.partial"):  # by a process that was killed as it wrote
            left.unlink()
        text, header = text_of(run), self.path / "run.json"
        if not header.exists():
            write_file(header, text.encode(), 0o600)
        elif header.read_text() != text:
            raise ValueError(
                f"{self.path} holds the journal of another fit (other estimator, parameters or "
                "rows): fit again with those, or take an empty folder."
            )

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._lock.close()

    def load(self):
        """(arrays by name, JSON values) of `keep`; None where no round has ended."""
        path = self.path / "round.npz"
        if not path.exists():
            return None
        try:
            with np.load(path, allow_pickle=False) as found:
                arrays = {name: found[name] for name in found.files}
            return arrays, json.loads(str(arrays.pop("_values")))
        except (ValueError, KeyError, EOFError, OSError, zipfile.BadZipFile) as error:
            raise ValueError(f"{path} is damaged ({error}): take an empty folder.") from error

    def keep(self, arrays, values):
        """Store the state after a round in place of the one before."""
        buffer = io.BytesIO()
        np.savez(buffer, _values=np.array(json.dumps(values)), **arrays)
        write_file(self.path / "round.npz", buffer.getbuffer(), 0o600)


def code_of(*arrays):
    """A code of arrays; None is one."""
    code = hashlib.sha256()
    for array in arrays:
        array = np.asarray("none" if array is None else array)
        code.update(f"{array.dtype.str} {array.shape} ".encode())
        code.update(np.ascontiguousarray(array).tobytes())
    return code.hexdigest()
