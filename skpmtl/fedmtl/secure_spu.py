"""FedMTL's aggregation on secret shares at the size of its paper: three servers on SPU.

The same result as `skpmtl.fedmtl.secure`, which needs nothing but MPyC, by an engine whose
arithmetic is vectorised (SecretFlow's SPU, the protocol ABY3). It wants an environment of its own,
Python 3.10 or 3.11 with NumPy below 2, the extra ``skpmtl[spu]``.

- **Secrecy from the servers, not differential privacy**, as there. One of the three servers may be
  curious; two that pool what they saw know all uploads. They must follow the protocol. Answers that
  do not fit together are refused.
- Public: `Shapes`, and who takes part. Secret: parameters, which and how many tasks a client has,
  sizes, thresholds, similarities.
- Links between the servers are mutual TLS under an own authority. Unlike MPyC's servers they do not
  demand the certificate of one rank: each of the three could take the place of another.
- Averages have 20 fractional bits: they agree with `fedmtl_aggregate` to 1e-4 of the largest
  parameter, provided that no S_ij is within 1e-6 of Z_i, where the threshold may fall either way.
"""

import importlib.util
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path

import numpy as np

from .mpc_server.job import write_secret
from .mpc_server.replicated import FINE, WIDE, Shapes, opened, split
from .padded import Padded, directions_of
from .secure import free_ports, make_certificates

__all__ = ["SpuServers"]

N_SERVERS = 3
SERVER = (sys.executable, "-m", "mpc_server.spu")  # in this folder it imports nothing of skpmtl
_STARTS, _CONNECTED = 3, 120.0  # times that servers are started, seconds for each
_LARGEST = 2.0**20  # of a parameter
_SIZE_RATIO = 2**16


class SpuServers:
    """Three servers on this machine, which stay up until this is closed; a context manager.

    It plays all clients: it shows the cost and the result of the protocol. For secrecy, servers
    belong to different owners.

    Parameters
    ----------
    timeout : float, default=600.0
        Seconds for one round, and for the start.
    folder : path, default=None
        New or empty folder that keeps what every server got and sent, for an audit. None: a
        temporary folder, removed at the end.

    Raises
    ------
    ImportError
        Without the extra ``skpmtl[spu]``.
    """

    def __init__(self, *, timeout=600.0, folder=None):
        for module in ("spu", "cryptography"):
            if importlib.util.find_spec(module) is None:
                raise ImportError(
                    f'secure="spu" needs {module}: install the extra with  pip install '
                    "skpmtl[spu]  in an environment of Python 3.10 or 3.11 with numpy below 2, or "
                    'take secure="mpc".'
                )
        self.timeout, self.rounds, self.stack = timeout, count(), ExitStack()
        try:
            self._make_folders(folder)
            # TLS links of SPU do not always come up, and a port may be taken in the meantime.
            for left in reversed(range(_STARTS)):
                try:
                    self._start()
                    break
                except RuntimeError:
                    if not left:
                        raise
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def close(self):
        """End the servers."""
        self.stack.close()

    def _make_folders(self, folder):
        if folder is None:
            folder = self.stack.enter_context(tempfile.TemporaryDirectory(prefix="skpmtl-spu-"))
        folder = Path(folder).resolve()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise ValueError(f"folder={str(folder)!r} must be new or empty.")
        self.folders = [folder / f"server{rank}" for rank in range(N_SERVERS)]
        make_certificates(self.folders)

    def _start(self):
        addresses = [f"127.0.0.1:{port}" for port in free_ports(N_SERVERS)]
        self.servers, self.said = [], queue.Queue()
        self.running = self.stack.enter_context(ExitStack())
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        for rank, place in enumerate(self.folders):
            settings = {"rank": rank, "addresses": addresses}
            (place / "link.json").write_text(json.dumps(settings))
            log = self.running.enter_context(open(place / "log.txt", "wb"))
            # The pipe ends with this process, however that ends, and the server with the pipe.
            server = subprocess.Popen(
                [*SERVER, str(place)], cwd=Path(__file__).parent, env=environment,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip
            self.servers.append(server)
            self.running.callback(server.stdin.close)
            self.running.callback(server.wait)
            self.running.callback(server.kill)
            arguments = rank, server.stdout, self.said
            threading.Thread(target=_hear, args=arguments, daemon=True).start()
        self._wait_for("connected", min(self.timeout, _CONNECTED))

    def _wait_for(self, word, seconds):
        end, missing = time.monotonic() + seconds, set(range(N_SERVERS))
        while missing:
            try:
                rank, line = self.said.get(timeout=max(end - time.monotonic(), 0.0))
            except queue.Empty:
                self.running.close()
                raise RuntimeError(
                    f"Servers {sorted(missing)} did not finish within {seconds:g} seconds; all "
                    f"were stopped and nothing was aggregated. Raise timeout={self.timeout:g}."
                ) from None
            if line is None:
                lines = (self.folders[rank] / "log.txt").read_text(errors="replace").split("\n")
                reason = next((line for line in reversed(lines) if line.strip()), "no message")
                self.running.close()
                raise RuntimeError(
                    f"Server {rank} ended ({reason.strip()}); all were stopped and nothing was "
                    "aggregated. Start the aggregation again."
                )
            if line == word:
                missing.discard(rank)

    def aggregate(self, shared, heads, task_ids, sizes, thresholds, *, max_heads=None):
        """`fedmtl_aggregate` with aggregation="similarity", on shares.

        Parameters
        ----------
        shared, heads, task_ids, sizes, thresholds
            As in `fedmtl_aggregate`; parameters below 2^20 in absolute value, sizes at most 2^16
            times apart.
        max_heads : int, default=None
            Heads that every client uploads, zero heads included; None: the largest number.

        Returns
        -------
        shared : ndarray of shape (N, P)
        heads : list of length N
        similarity : None
            Nobody learns it.

        Raises
        ------
        ValueError
            As in `fedmtl_aggregate`, and for bounds that do not hold.
        RuntimeError
            A server ended early, or the time is over; no server is left then.
        """
        padded = Padded(shared, heads, task_ids, sizes, thresholds, max_heads)
        shapes = Shapes(**padded.shapes)
        name = f"round-{next(self.rounds)}"
        places = [folder / name for folder in self.folders]
        for place in places:
            (place / "in").mkdir(mode=0o700, parents=True)
            shapes.save(place, name)
        for i in range(shapes.n_clients):
            for place, own in zip(places, split(*_numbers(padded, i)), strict=True):
                write_secret(place / "in" / f"{i}.shares", own)
        for server in self.servers:
            with suppress(BrokenPipeError):  # of a server that ended, which is heard below
                server.stdin.write(f"{name}\n")
                server.stdin.flush()
        self._wait_for(f"done {name}", self.timeout)
        self.last_runs = [json.loads((place / "run.json").read_text()) for place in places]
        new_shared, new_heads = np.empty((shapes.n_clients, shapes.n_shared)), []
        for i in range(shapes.n_clients):
            answers = [(place / "out" / f"{i}.shares").read_bytes() for place in places]
            try:
                own = opened(answers)
            except ValueError as error:
                raise RuntimeError(f"Client {i}: {error}. Run the aggregation again.") from None
            new_shared[i] = own[: shapes.n_shared]
            new_heads.append(own[shapes.n_shared :].reshape(shapes.max_heads, shapes.head_length))
        return new_shared, padded.restored(new_heads), None


def _hear(rank, lines, said):
    """What a server says, line by line, and None when it has ended."""
    with lines:
        for line in lines:
            said.put((rank, line.strip()))
    said.put((rank, None))


def _numbers(padded, i):
    """One client's numbers, modulo 2^128 and modulo 2^64, as int64."""
    shared, heads, tasks, size, threshold = padded.client(i)
    rows = np.zeros((padded.max_heads, padded.head_length))
    labels = np.zeros((padded.max_heads, padded.n_tasks))
    if len(heads) > padded.max_heads:
        raise ValueError(f"Client {i}: {len(heads)} heads, but max_heads={padded.max_heads}.")
    rows[: len(heads)], labels[np.arange(len(tasks)), tasks] = heads, 1.0
    size = size / padded.max_size
    for values in (shared, rows):
        if not (np.abs(values) < _LARGEST).all():
            raise ValueError(
                f"Client {i}: a parameter is not below {_LARGEST:g} in absolute value, where the "
                "fixed-point numbers of the protocol end. Scale the features."
            )
    if not size >= 1.0 / _SIZE_RATIO:
        raise ValueError(
            f"Client {i}: the size is more than {_SIZE_RATIO} times smaller than the largest: cap "
            "sizes."
        )
    wide = (directions_of(rows), labels, size, threshold)
    found = ((wide, WIDE), ((shared, rows), FINE))
    return (
        np.rint(np.concatenate([np.ravel(part) for part in parts]) * 2.0**bits).astype(np.int64)
        for parts, bits in found
    )
