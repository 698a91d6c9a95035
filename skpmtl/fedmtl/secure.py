"""FedMTL's aggregation on secret shares, by servers that learn nothing about the models.

Who learns what
---------------
- **Secrecy from the servers, not differential privacy.** A client receives the exact aggregate of
  equations 2 and 3, and whatever that says about its neighbours' models and data.
- Up to ``(n_servers - 1) // 2`` of the servers may be curious and pool all they saw: one of three,
  two of five. They must follow the protocol; a server that deviates is not caught, except that
  answers that do not fit together are refused. Two servers give no secrecy here (Shamir shares
  need an honest majority), so they are refused. The paper's "P - 1 servers may collude" needs
  another protocol, of the kind of CHEETAH.
- Public: the shapes (`Job`: clients, shared parameters, head length, task count, `max_heads`,
  `max_size`) and who takes part. Secret: parameters, which and how many tasks a client has, sizes,
  thresholds, similarities. The time and the messages are those of the shapes.
- Links between servers are mutual TLS under an own authority, whose certificates only servers get.
  A share must reach its server over a link that is authenticated and encrypted as well: who sees
  a majority of a client's shares, as the one who runs `secure_aggregate` does, sees its model.

Servers on several machines
---------------------------
Everybody agrees on a `Job`. Every server has a folder with ``job.json`` (`Job.save`) and its
certificate (`make_certificates`, or openssl) and runs ``python -m skpmtl.fedmtl.mpc_server
FOLDER``, see there. Client i calls `split_upload`, delivers share r to server r as
``in/<i>.shares``, fetches ``out/<i>.shares`` from every server and calls `collect_answer`. Started
with ``--attached`` a server goes on from round to round, with a folder for each.

Every share names its job, round, client, server and split; the servers compare them before they
begin, and a client compares those of its answer.
"""

import math
import secrets
from dataclasses import replace

import numpy as np

from .certificates import make_certificates
from .mpc_server.job import (
    BYTES,
    HEADER,
    PRIME,
    RESULT,
    SCORE,
    SIZE,
    VALUE,
    Job,
    from_bytes,
    to_bytes,
    with_header,
    without_header,
    write_secret,
)
from .padded import Padded, directions_of
from .processes import LocalServers, free_ports

__all__ = [
    "Job", "MpcServers", "collect_answer", "make_certificates", "secure_aggregate", "split_upload",
]  # fmt: skip

_LARGEST = 2.0**20  # of a parameter
_SIZE_RATIO = 2**16  # of max_size to a size: reciprocals keep 1e-5


def secure_aggregate(
    shared,
    heads,
    task_ids,
    sizes,
    thresholds,
    *,
    n_servers=3,
    max_heads=None,
    max_size=None,
    timeout=600.0,
    folder=None,
):
    """`fedmtl_aggregate` with aggregation="similarity", computed on shares by server processes.

    This function plays all clients and starts the servers on this machine: it shows the cost and
    the result of the protocol. For secrecy, servers belong to different owners (see the module).

    Parameters
    ----------
    shared, heads, task_ids, sizes, thresholds
        As in `fedmtl_aggregate`; parameters below 2^20 in absolute value. The mapping of tasks to
        columns is public and common, here in the order of first appearance.
    n_servers : int, default=3
        3 or more; ``(n_servers - 1) // 2`` of them may be curious.
    max_heads : int, default=None
        Heads that every client uploads, zero heads included: a public cap of the number of tasks
        per client, at most 10. None: the largest number there is.
    max_size : float, default=None
        Public bound of the sizes; a size may be up to 2^16 times smaller. None: the power of two
        at or above the largest.
    timeout : float, default=600.0
        Seconds for the whole run.
    folder : path, default=None
        New or empty folder that keeps what every server got and sent, ``server<r>/``, for an audit.
        None: a temporary folder, removed at the end.

    Returns
    -------
    shared : ndarray of shape (N, P)
    heads : list of length N, in the form of the argument, new arrays
    similarity : None; no server and no client learns it

    Raises
    ------
    ValueError
        As in `fedmtl_aggregate`, and for bounds that do not hold; before any process starts.
    ImportError
        Without the extra ``skpmtl[mpc]``.
    RuntimeError
        A server ended early or the time is over. All processes were ended, nothing is returned.

    Notes
    -----
    Cosines have 22 fractional bits and results 28. Equal to the plain result to about 1e-6 of the
    largest parameter, provided that no S_ij is within 1e-5 of Z_i (there the threshold may fall
    either way) and that sizes are whole numbers up to 2^24. For a client whose neighbours are all
    as small as the bound on sizes allows, the error may reach 1e-5.

    With N clients, R = max_heads and D parameters per head, the work is N^2 (R 2^(R-1) + R^2) / 2
    comparisons, N^2 R D + N^2 P multiplications.
    """
    given = shared, heads, task_ids, sizes, thresholds
    with MpcServers(n_servers=n_servers, timeout=timeout, folder=folder) as servers:
        return servers.aggregate(*given, max_heads=max_heads, max_size=max_size)


class MpcServers(LocalServers):
    """Servers on this machine for rounds of the same shapes; a context manager.

    The first round starts them. Parameters are those of `secure_aggregate`; `timeout` is that of
    one round.
    """

    arguments = "-m", "mpc_server", "--attached"
    modules = "mpyc", "gmpy2", "cryptography"
    remedy = "install the extra with  pip install skpmtl[mpc]"

    def __init__(self, *, n_servers=3, timeout=600.0, folder=None):
        super().__init__(n_servers, timeout, folder)
        self.job = None

    def aggregate(
        self, shared, heads, task_ids, sizes, thresholds, *, max_heads=None, max_size=None
    ):
        """One round; arguments and result as of `secure_aggregate`."""
        padded = Padded(shared, heads, task_ids, sizes, thresholds, max_heads, max_size)
        started = self.job is not None
        job = Job(
            addresses=(
                self.job.addresses
                if started
                else [f"127.0.0.1:{port}" for port in free_ports(len(self.folders))]
            ),
            **padded.shapes,
            max_size=padded.max_size,
            timeout=float(self.timeout),
            name=self.job.name if started else f"local-{secrets.token_hex(4)}",
            round=self.job.round + 1 if started else 0,
        )
        if started and replace(self.job, round=job.round) != job:
            raise ValueError("All rounds of the same servers must have the same shapes.")
        shares = []
        for i in range(job.n_clients):
            try:
                shares.append(split_upload(job, i, *padded.client(i)))
            except ValueError as error:
                raise ValueError(f"Client {i}: {error}") from None
        if not started:
            self.make_folders()
            for rank, folder in enumerate(self.folders):
                job.save(folder, rank)
            self.start()
        self.job = job
        places = [folder / f"round-{job.round}" for folder in self.folders]
        for rank, place in enumerate(places):
            for new in (place, place / "in"):
                new.mkdir(mode=0o700)
            for i, own in enumerate(shares):
                write_secret(place / "in" / f"{i}.shares", own[rank])
        self.query(job.round, f"{job}")
        found = []
        for i in range(job.n_clients):
            answers = [(place / "out" / f"{i}.shares").read_bytes() for place in places]
            found.append(collect_answer(job, i, answers))
        shared = np.array([own for own, _ in found])
        return shared, padded.restored([own for _, own in found]), None


def split_upload(job, client, shared, heads, tasks, size, threshold):
    """One client's upload as shares, one for every server.

    Parameters
    ----------
    job : Job
    client : int
        Number of the client, 0 to ``job.n_clients - 1``.
    shared : array-like of shape (P,)
    heads : array-like of shape (K_i, D)
    tasks : sequence of K_i ints
        Column of every head's task in the common mapping, 0 to ``job.n_tasks - 1``.
    size : float
    threshold : float in [0, 1]

    Returns
    -------
    shares : list of bytes
        Share r is for server r only. Equal length for all clients. After a public header any
        ``job.threshold`` of them together are uniform random bytes. Shares of two calls do not
        go together, and the servers refuse them: keep the shares for a delivery that is repeated.

    Raises ValueError for what does not fit the job; the upload is not split then.
    """
    if client not in range(job.n_clients):
        raise ValueError(f"client={client!r} must be from 0 to {job.n_clients - 1}.")
    shared, heads = np.asarray(shared, np.float64), np.asarray(heads, np.float64)
    tasks = np.asarray(tasks)
    if shared.shape != (job.n_shared,) or heads.shape != (len(tasks), job.head_length):
        raise ValueError(
            f"shared has the shape {shared.shape} and heads {heads.shape}; the job asks for "
            f"({job.n_shared},) and ({len(tasks)}, {job.head_length}), one head per task."
        )
    if not 1 <= len(tasks) <= job.max_heads:
        raise ValueError(f"{len(tasks)} heads, but max_heads={job.max_heads}, and at least one.")
    if len(set(tasks.tolist())) < len(tasks) or not set(tasks.tolist()) <= set(range(job.n_tasks)):
        raise ValueError(f"tasks={tasks.tolist()} must be different columns below {job.n_tasks}.")
    for values in (shared, heads):
        if not (np.abs(values) < _LARGEST).all():
            raise ValueError(
                f"A parameter is not below {_LARGEST:g} in absolute value, where the fixed-point "
                "numbers of the protocol end. Scale the features."
            )
    if not job.max_size / _SIZE_RATIO <= size <= job.max_size:
        raise ValueError(
            f"The size is not between max_size / {_SIZE_RATIO} and max_size="
            f"{job.max_size:g}; choose another max_size, the same for all clients, or cap sizes."
        )
    if not 0 <= threshold <= 1:
        raise ValueError("The threshold is not in [0, 1].")
    rows = np.zeros((job.max_heads, job.head_length))
    rows[: len(heads)] = heads
    labels = np.zeros((job.max_heads, job.n_tasks))
    labels[np.arange(len(tasks)), tasks] = 1.0
    parts = (
        (shared, VALUE),
        (rows, VALUE),
        (directions_of(rows), SCORE),
        (labels, 0),
        (size / job.max_size, SIZE),
        (threshold, SCORE),
    )
    upload = [np.rint(np.ravel(values) * 2.0**bits) for values, bits in parts]
    secret = np.concatenate(upload).astype(np.int64).astype(object)
    # Shamir: server r gets f(r + 1) of a random polynomial with f(0) the secret.
    coefficients = [
        np.array([secrets.randbelow(PRIME) for _ in secret], dtype=object)
        for _ in range(job.threshold)
    ]
    shares, split = [], secrets.token_hex(16)
    for x in range(1, job.n_servers + 1):
        value = sum(c * x**k for k, c in enumerate(coefficients, start=1)) + secret
        shares.append(with_header(job, "upload", int(client), x - 1, split, to_bytes(value)))
    return shares


def collect_answer(job, client, answers):
    """One client's new model, from the servers' shares of its answer.

    Parameters
    ----------
    job : Job
    client : int
    answers : list of bytes, from every server, in order of their numbers

    Returns
    -------
    shared : ndarray of shape (P,)
    heads : ndarray of shape (max_heads, D)
        In the order of the upload; rows that were added to hide the number of tasks are zeros.

    Raises
    ------
    RuntimeError
        An answer is missing, damaged, of another job, round, client, server or run, or does not
        fit the others; or a parameter is larger than any that may be uploaded.
    """
    n_heads = job.max_heads * job.head_length
    lengths = [len(answer) for answer in answers]
    if lengths != [HEADER + (job.n_shared + n_heads) * BYTES] * job.n_servers:
        raise RuntimeError(
            f"{job}: the answers to client {client} have {lengths} bytes instead "
            f"of {job.n_servers} times {HEADER + (job.n_shared + n_heads) * BYTES}. Ask all "
            "servers again."
        )
    try:
        opened = [
            without_header(job, "answer", client, rank, answer)
            for rank, answer in enumerate(answers)
        ]
    except ValueError as error:
        raise RuntimeError(str(error)) from None
    answers = [from_bytes(body) for _, body in opened]
    known = range(1, job.threshold + 2)

    def interpolated(x):
        total = 0
        for i in known:
            up = math.prod(x - j for j in known if j != i)
            down = math.prod(i - j for j in known if j != i)
            total = total + answers[i - 1] * (up * pow(down, -1, PRIME) % PRIME)
        return total % PRIME

    fit = all(
        (interpolated(x) == answers[x - 1]).all() for x in range(known.stop, job.n_servers + 1)
    )
    if not fit or len({run for run, _ in opened}) > 1:
        raise RuntimeError(
            f"{job}: the servers' answers to client {client} do not fit "
            "together: one of them is damaged or not of this run. Run the aggregation again."
        )
    secret = interpolated(0)
    secret = np.where(secret > PRIME // 2, secret - PRIME, secret)
    values = (secret / 2**RESULT).astype(np.float64)
    if not (np.abs(values) <= _LARGEST).all():  # a mean of parameters below it
        raise RuntimeError(
            f"{job}: the answer to client {client} has parameters above "
            f"{_LARGEST:g}, which no mean of valid uploads has: some upload was not made by "
            "split_upload. Do not use it."
        )
    return values[: job.n_shared], values[job.n_shared :].reshape(job.max_heads, job.head_length)
