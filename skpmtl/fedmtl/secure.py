"""FedMTL's aggregation on secret shares, by servers that learn nothing about the models.

Who learns what
---------------
- **Secrecy from the servers, not differential privacy.** A client receives the exact aggregate of
  equations 2 and 3, and whatever that says about its neighbours' models and data.
- Up to P - 1 of the P servers may be curious and pool all they saw. Random numbers come from a
  dealer, who sees no upload. *The dealer must not collude with any server: with one of them it
  knows everything.* Servers and dealer must follow the protocol; wrong numbers are not noticed.
- Public: the shapes (`Job`: clients, shared parameters, head length, tasks, `max_heads`,
  `max_size`) and who takes part. Secret: parameters, which and how many tasks a client has, sizes,
  thresholds, similarities. Time and messages follow from the shapes.

`SecureServers` plays all clients and runs servers and dealer as processes on this machine: it shows
cost and result. For secrecy they belong to different owners.

`skpmtl.fedmtl.mpc.protocol` has the protocols, the argument for their secrecy, and the sources.
"""

import importlib.util
import json
import os
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import asdict
from multiprocessing.connection import Client
from pathlib import Path

import numpy as np

from .aggregation import directions_of
from .mpc.job import (
    LARGEST,
    NOISE,
    SCORE,
    SIZE,
    SIZE_RATIO,
    VALUE,
    WEIGHT,
    Job,
    pack,
    unpack,
)
from .mpc.protocol import Link
from .mpc.ring import LENGTH, Stream
from .mpc.server import LOST
from .padded import Padded

__all__ = ["Job", "SecureServers", "collect_answer", "split_upload"]

_PATIENCE = 2.0  # seconds until the cause of a lost connection is known
_PLACE = Path(__file__).parent  # where a server is started: there it imports nothing of skpmtl


class SecureServers:
    """Servers and dealer as processes of this machine, for rounds; a context manager.

    The first round starts them.

    Parameters
    ----------
    n_servers : int, default=3
        P >= 2; up to P - 1 of them may be curious. The dealer is one process more.
    timeout : float, default=600.0
        Seconds for a round.

    Attributes
    ----------
    costs : dict of dict, or None
        Of the last round: "server 0", ..., "dealer", "clients" -> part of the round -> [seconds,
        CPU seconds, bytes sent].
    """

    def __init__(self, *, n_servers=3, timeout=600.0):
        self.n_servers, self.timeout = n_servers, timeout
        self.processes, self.costs, self._job = [], None, None
        self._stack, self._late, self._closed = ExitStack(), False, False

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def close(self):
        """End all processes."""
        self._closed = True
        self._stack.close()

    def aggregate(
        self, shared, heads, task_ids, sizes, thresholds, *, max_heads=None, max_size=None
    ):
        """`fedmtl_aggregate` with aggregation="similarity", computed on shares.

        With N clients, the result differs from the plain one by at most about N 2^-23 times the
        largest parameter, plus P 2^-23, provided that no S_ij is within 1e-5 of Z_i (there the
        threshold may fall either way) and that sizes are whole numbers up to 2^24.

        Parameters
        ----------
        shared, heads, task_ids, sizes, thresholds
            As in `fedmtl_aggregate`; parameters below 2^18 in absolute value.
        max_heads : int, default=None
            Heads that every client uploads, zero heads included: a public bound on the number of
            tasks per client, at most 10. None: the largest number there is.
        max_size : float, default=None
            Public bound on the sizes, rounded up to a power of two; a size may be up to 2^16 times
            smaller. None: the largest size.

        Returns
        -------
        shared : ndarray of shape (N, n_shared)
        heads : list of length N, in the form of the argument, new arrays
        similarity : None; no server and no client learns it

        Raises
        ------
        ValueError
            As in `fedmtl_aggregate`, and for bounds that do not hold; before any process starts.
        ImportError
            Without the extra ``skpmtl[secure]``.
        RuntimeError
            A server ended early or the time is over. All processes were ended, nothing is returned.
        """
        if self._closed:
            raise RuntimeError("These servers have ended: make new SecureServers.")
        padded = Padded(shared, heads, task_ids, sizes, thresholds, max_heads, max_size)
        if self._job is None:
            name, number = f"local-{secrets.token_hex(4)}", 0
        else:
            name, number = self._job.name, self._job.round + 1
        job = Job(n_servers=self.n_servers, **padded.shapes, name=name, round=number)
        for i in range(job.n_clients):
            _check_upload(job, i, *padded.client(i))
        if importlib.util.find_spec("cryptography") is None:
            raise ImportError(
                "Secure aggregation needs cryptography: install the extra with  "
                "pip install skpmtl[secure]"
            )
        timer = threading.Timer(self.timeout, self._stop_late)
        try:
            timer.start()
            if not self.processes:
                self._start()
            self._job = job
            return self._round(job, padded)
        except (EOFError, OSError):
            raise RuntimeError(self._why_ended(job)) from None
        finally:
            timer.cancel()

    def _round(self, job, padded):
        costs = {"uploads": np.zeros(3), "answers": np.zeros(3)}
        for control in self.controls:
            control.send_bytes(json.dumps(asdict(job)).encode())
        uploads = [split_upload(job, i, *padded.client(i)) for i in range(job.n_clients)]
        new_shared, new_heads = np.empty((job.n_clients, job.n_shared)), []
        for section in range(job.n_sections):
            begun, sent = _clocks(), 0
            for _, shares in uploads:
                for control, share in zip(self.controls, next(shares), strict=True):
                    Link(control).send_message(share)
                    sent += len(share)
            costs["uploads"] += [*(_clocks() - begun), sent]
            faults = {json.loads(control.recv_bytes())["error"] for control in self.controls}
            if faults != {None}:
                raise RuntimeError("; ".join(sorted(map(str, faults))))
            self.controls[0].poll(None)  # until the first answer
            begun = _clocks()
            for i, (split, _) in enumerate(uploads):
                answers = [Link(control).receive_message() for control in self.controls[:-1]]
                own = collect_answer(job, i, split, section, answers)
                if section == 0:
                    new_heads.append(own.reshape(job.max_heads, job.head_length))
                else:
                    start = job.sections[section] - job.sections[1]
                    new_shared[i, start : start + len(own)] = own
            costs["answers"] += [*(_clocks() - begun), 0]
        costs = {part: own.tolist() for part, own in costs.items()}
        names = [*(f"server {rank}" for rank in range(self.n_servers)), "dealer"]
        said = [json.loads(control.recv_bytes()) for control in self.controls]
        self.costs = dict(zip(names, said, strict=True)) | {"clients": costs}
        return new_shared, padded.restored(new_heads), None

    # ------------------------------------------------------------------ processes
    def _start(self):
        self._folder = Path(
            self._stack.enter_context(tempfile.TemporaryDirectory(prefix="skpmtl-secure-"))
        )
        environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        key, pipe = secrets.token_hex(32), subprocess.PIPE
        for rank in range(self.n_servers + 1):
            log = self._stack.enter_context(open(self._folder / f"{rank}.txt", "wb"))
            # The pipe ends with this process, however that ends, and the server with the pipe.
            process = subprocess.Popen(
                [sys.executable, "-m", "mpc.server"],
                cwd=_PLACE,
                env=environment,
                stdin=pipe,
                stdout=pipe,
                stderr=log,
                text=True,
            )
            self.processes.append(process)
            self._stack.callback(_end, process)
            settings = {"rank": rank, "n_servers": self.n_servers, "key": key}
            process.stdin.write(json.dumps(settings) + "\n")
            process.stdin.flush()
        addresses, self.controls = [], []
        for process in self.processes:
            line = process.stdout.readline()
            if not line:
                raise EOFError
            addresses.append(json.loads(line))
        for address in addresses:
            control = Client(address, authkey=bytes.fromhex(key))
            self._stack.callback(control.close)
            self.controls.append(control)
            control.send_bytes(json.dumps(addresses).encode())

    def _stop_late(self):
        self._late = True
        for process in self.processes:
            process.kill()

    def _why_ended(self, job):
        """The message of the error, after all processes were ended."""
        if self._late:
            self.close()
            return (
                f"{job}: the servers did not finish within timeout={self.timeout:g} seconds; they "
                "were stopped and nothing was aggregated. Give more time, or lower max_heads or "
                "the number of clients."
            )
        end, failed = time.monotonic() + _PATIENCE, {}
        while time.monotonic() < end and set(failed.values()) <= {LOST}:  # as the others end
            failed = {r: p.returncode for r, p in enumerate(self.processes) if p.poll() is not None}
            time.sleep(0.02)
        who, reason = "a server", "no message"
        if failed:
            rank = min(failed, key=lambda r: failed[r] == LOST)
            who = "the dealer" if rank == self.n_servers else f"server {rank}"
            lines = (self._folder / f"{rank}.txt").read_text(errors="replace").split("\n")
            said = next((line.strip() for line in reversed(lines) if line.strip()), reason)
            reason = f"status {failed[rank]}, {said}"
        self.close()
        return (
            f"{job}: {who} ended ({reason}); the others were stopped and nothing was aggregated. "
            "Start the aggregation again."
        )


def _clocks():
    return np.array([time.perf_counter(), time.process_time()])


def _end(process):
    process.kill()
    process.wait()
    with suppress(BrokenPipeError):  # of what it did not read
        process.stdin.close()
    process.stdout.close()


def split_upload(job, client, shared, heads, tasks, size, threshold):
    """One client's upload as shares. -> number of the split, iterator of the shares by section

    Arguments are of client number `client`: `shared` (n_shared,), `heads` (K_i, D), `tasks`, the
    columns of these in the common mapping, `size` and `threshold`. The iterator gives the shares of
    a section, ``job.n_sections`` times, and keeps the arguments until then: share r is for server r
    only, the last one for the dealer. After a public header, those of any P - 1 servers together
    are uniform random bytes, and so are those of the dealer. Raises ValueError for what does not
    fit the job.

    Number x is e + b_0 + ... + b_(P-1) modulo 2^64, b_r a stream from a key that the client draws
    (I. Damgard et al., Multiparty computation from somewhat homomorphic encryption, CRYPTO 2012,
    has masked inputs). Server r gets key r and e, the dealer all keys.
    """
    shared, heads, tasks = _check_upload(job, client, shared, heads, tasks, size, threshold)
    split = secrets.token_hex(16)
    return split, _shares(job, int(client), split, shared, heads, tasks, size, threshold)


def _shares(job, client, split, shared, *others):
    """Shares of a checked upload, section by section."""
    keys = [secrets.token_bytes(LENGTH) for _ in range(job.n_servers)]
    streams, keys = [Stream(key) for key in keys], [np.frombuffer(key, np.uint8) for key in keys]
    for section in range(job.n_sections):
        if section == 0:
            e = _numbers(job, *others)
        else:
            start, stop = (at - job.sections[1] for at in job.sections[section : section + 2])
            e = np.rint(shared[start:stop] * 2.0**VALUE).astype(np.int64)
        e = e.view(np.uint64)
        for stream in streams:
            e -= stream.draw(e.shape)
        e = e.astype("<u8", copy=False)
        bodies = (
            [*((key, e) for key in keys), keys] if section == 0 else [*([(e,)] * len(keys)), ()]
        )
        yield [
            pack(job.header("upload", client, rank, section, split), *body)
            for rank, body in enumerate(bodies)
        ]


def _numbers(job, heads, tasks, size, threshold):
    """All but the shared layers, as whole numbers."""
    rows = np.zeros((job.max_heads, job.head_length))
    rows[: len(heads)] = heads
    labels = np.zeros((job.max_heads, job.n_tasks))
    labels[np.arange(len(tasks)), tasks] = 1.0
    values = {
        "directions": (directions_of(rows), SCORE),  # by clients: servers need no roots then
        "heads": (rows, VALUE),
        "labels": (labels, 0),
        "size": (size / job.max_size, SIZE),
        "least": (threshold * len(tasks), SCORE),  # of H_ij for a neighbour j
    }
    parts = [np.ravel(values[name][0]) * 2.0 ** values[name][1] for name in [*job.parts][:-1]]
    return np.rint(np.concatenate(parts)).astype(np.int64)


def _check_upload(job, client, shared, heads, tasks, size, threshold):
    shared, heads = np.asarray(shared, np.float64), np.asarray(heads, np.float64)
    tasks = np.asarray(tasks)
    expected = (job.n_shared,), (len(tasks), job.head_length)
    if shared.shape != expected[0] or heads.shape != expected[1]:
        fault = f"shared and heads have the shapes {shared.shape}, {heads.shape}, not {expected}"
    elif not 1 <= len(tasks) <= job.max_heads:
        fault = (
            f"the number of heads must be from 1 to max_heads={job.max_heads}: raise "
            "max_heads, or upload fewer heads"
        )
    elif not len(tasks) == len(set(tasks.tolist()) & set(range(job.n_tasks))):
        fault = f"tasks must be different columns from 0 to {job.n_tasks - 1}"
    elif not all((np.abs(values) < LARGEST).all() for values in (shared, heads)):
        fault = (
            f"a parameter is not below {LARGEST:g} in absolute value, where the "
            "fixed-point numbers of the protocol end: scale the features"
        )
    elif not job.max_size / SIZE_RATIO <= size <= job.max_size:
        fault = (
            f"the size is not between max_size / {SIZE_RATIO} and max_size={job.max_size:g}; "
            "choose another max_size, the same for all clients, or cap sizes"
        )
    elif not 0 <= threshold <= 1:
        fault = "the threshold is not in [0, 1]"
    else:
        return shared, heads, tasks
    raise ValueError(f"Client {client}: {fault}.")


def collect_answer(job, client, split, section, answers):
    """A section of one client's new model. -> ndarray (n,)

    Section 0 is the heads, (max_heads, D) row by row, as uploaded: heads that were added to hide
    the number of tasks are zeros, up to the error of the result. The other sections are the shared
    layers, block by block. `split` is of `split_upload`, `answers` has the bytes of every server,
    in their order. Raises RuntimeError for an answer that is missing, cut, of another job, round,
    client, server, section or split, and for parameters larger than any that may be uploaded.
    """
    if len(answers) != job.n_servers:
        raise RuntimeError(f"{job}: {len(answers)} answers instead of {job.n_servers}. Fetch all.")
    total = np.zeros(job.n_answer(section), np.uint64)
    for rank, raw in enumerate(answers):
        try:
            own, body = unpack(job, "answer", client, rank, section, total.nbytes, raw)
        except ValueError as error:
            raise RuntimeError(str(error)) from None
        if own != split:
            raise RuntimeError(
                f"{job}: the answer of server {rank} to client {client} is not to this split. "
                "Run the aggregation again."
            )
        total += np.frombuffer(body, "<u8")
    total -= np.uint64(job.n_servers * 2 ** (NOISE - 1))  # the mean of what hides the last bits
    values = total.view(np.int64) * 2.0 ** -(WEIGHT + VALUE)
    if not (np.abs(values) <= LARGEST).all():  # a mean of parameters below it
        raise RuntimeError(
            f"{job}: the answer to client {client} has parameters above {LARGEST:g}, which no mean "
            "of valid uploads has: a message is damaged, or an upload was not made by "
            "split_upload. Do not use it."
        )
    return values
