"""FedMTL's aggregation on secret shares at the size of its paper: three servers on SPU.

The same result as `skpmtl.fedmtl.secure`, which needs nothing but MPyC, by an engine whose
arithmetic is vectorised (SecretFlow's SPU, the protocol ABY3). SPU computes similarities and
weights; averages are sums of products of shares that each server makes alone. It wants an
environment of its own, Python 3.10 or 3.11 with NumPy below 2, the extra ``skpmtl[spu]``.

- **Secrecy from the servers, not differential privacy**, as there. One of the three servers may be
  curious; two that pool what they saw know all uploads. They must follow the protocol. Answers that
  are damaged or of different rounds are refused; a wrong one is not noticed.
- Public: `Shapes`, and who takes part. Secret: parameters, which and how many tasks a client has,
  sizes, thresholds, similarities.
- Links between the servers are mutual TLS under an own authority. What is meant for a server goes
  to the holder of its certificate only. What comes is of the holder of one of the two others; that
  SPU's messages tell the right one of them is part of following the protocol.
- Averages have 20 fractional bits: they agree with `fedmtl_aggregate` to 1e-4 of the largest
  parameter, provided that no S_ij is within 1e-6 of Z_i, where the threshold may fall either way.
"""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count

import numpy as np

from .mpc_server.job import write_secret
from .mpc_server.replicated import FINE, WIDE, Shapes, opened, split
from .padded import Padded, directions_of
from .processes import LocalServers, free_ports

__all__ = ["SpuServers"]

_STARTS, _CONNECTED = 3, 120.0  # times that servers are started, seconds for each
_PATH = 80  # characters: a socket's path, in the folder of a server, has 107 at most
_LARGEST = 2.0**20  # of a parameter
_THREADS = 4  # each has a few arrays of a client's numbers
_SIZE_RATIO = 2**16


class SpuServers(LocalServers):
    """Three servers on this machine, which stay up until this is closed; a context manager.

    It plays all clients: it shows the cost and the result of the protocol. For secrecy, servers
    belong to different owners. `timeout` and `folder` are as of `LocalServers`. Raises ImportError
    without the extra ``skpmtl[spu]``.
    """

    arguments = "-m", "mpc_server.spu"
    modules = "spu", "cryptography"
    remedy = (
        "install the extra with  pip install skpmtl[spu]  in an environment of Python 3.10 or 3.11 "
        'with numpy below 2, or take secure="mpc".'
    )

    def __init__(self, *, timeout=600.0, folder=None):
        if folder is not None and len(os.path.abspath(folder)) > _PATH:
            raise ValueError(f"The path of folder= must be shorter than {_PATH + 1} characters.")
        super().__init__(3, timeout, folder)
        self.rounds = count()
        try:
            self.make_folders()
            # TLS links of SPU do not always come up, and a port may be taken in the meantime.
            for left in reversed(range(_STARTS)):
                try:
                    self._connect()
                    break
                except RuntimeError:
                    if not left:
                        raise
        except BaseException:
            self.close()
            raise

    def _connect(self):
        addresses = [f"127.0.0.1:{port}" for port in free_ports(3)]
        for rank, place in enumerate(self.folders):
            settings = {"rank": rank, "addresses": addresses}
            (place / "link.json").write_text(json.dumps(settings))
            (place / "connected").unlink(missing_ok=True)
        self.running = self.stack.enter_context(ExitStack())
        self.start()
        self.wait_for("connected", min(self.timeout, _CONNECTED), "The start")

    def aggregate(self, shared, heads, task_ids, sizes, thresholds, *, max_heads=None):
        """`fedmtl_aggregate` with aggregation="similarity", on shares.

        The third result, the similarity, is None: no server and no client learns it.

        Parameters are below 2^20 in absolute value, sizes at most 2^16 times apart. Every client
        uploads `max_heads` heads, zero heads included; None: the largest number. Raises ValueError
        as `fedmtl_aggregate`, and for bounds that do not hold; RuntimeError when a server ended
        early or the time is over, and then no server is left.
        """
        padded = Padded(shared, heads, task_ids, sizes, thresholds, max_heads)
        shapes = Shapes(**padded.shapes)
        number = next(self.rounds)
        places = [folder / f"round-{number}" for folder in self.folders]
        for place in places:
            for new in (place, place / "in"):
                new.mkdir(mode=0o700)
            shapes.save(place)
        clients = range(shapes.n_clients)

        def upload(i):
            for place, own in zip(places, split(*_numbers(padded, i)), strict=True):
                write_secret(place / "in" / f"{i}.shares", own)

        def download(i):
            answers = [(place / "out" / f"{i}.shares").read_bytes() for place in places]
            try:
                return opened(answers)
            except ValueError as error:
                raise RuntimeError(f"Client {i}: {error}. Run the aggregation again.") from None

        new_shared, new_heads = np.empty((shapes.n_clients, shapes.n_shared)), []
        # What clients do on machines of their own, and without a hold on the interpreter.
        with ThreadPoolExecutor(min(os.cpu_count() or 1, _THREADS)) as pool:
            list(pool.map(upload, clients))
            self.query(number, f"Round {number}")
            for row, own in zip(new_shared, pool.map(download, clients), strict=True):
                row[:] = own[: shapes.n_shared]
                heads = own[shapes.n_shared :]
                new_heads.append(heads.reshape(shapes.max_heads, shapes.head_length))
        return new_shared, padded.restored(new_heads), None


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
