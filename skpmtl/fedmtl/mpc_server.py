"""One server of the secure aggregation: run as a process, sees shares only.

    python -m skpmtl.fedmtl.mpc_server FOLDER

The file needs numpy and the extra ``skpmtl[mpc]`` and nothing else of skpmtl: it may be copied to
a server and run there as ``python mpc_server.py FOLDER``. FOLDER holds all that this server gets:

``job.json``
    Public: the number of this server (``rank``) and the fields of `Job`.
``.config/mpyc_ca.crt``, ``.config/party_<rank>.crt``, ``.config/party_<rank>.key``
    Certificate of the authority, own certificate and key. The certificate of server j has the
    one common name "MPyC party j"; a link to any other certificate is refused.
``in/<i>.shares``
    This server's share of the upload of client i, see `skpmtl.fedmtl.secure.split_upload`.

It writes ``out/<i>.shares``, its share of the answer to client i, and ``out/run.json`` (seconds,
CPU seconds, bytes sent, bytes of the largest message) last, once all servers have finished. ``out``
must not exist or be empty. Exit status: 0, or `LOST` if another server did not come or went away,
or 1; the reason is the last line of the error output and names the job.

Before any work the servers tell each other the job and, for every client, the random number of
its split: a share that is missing, damaged, of another round, client, server or split ends the
run at all servers.

The servers run one fixed sequence of operations of MPyC (Shamir shares, honest majority): no
branch and no message size depends on data. No value is opened among them; what MPyC opens within
a truncation or a comparison is masked, statistically by `SECURITY` bits or perfectly.
"""

import argparse
import asyncio
import hashlib
import json
import math
import os
import re
import ssl
import struct
import sys
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from types import SimpleNamespace

import numpy as np

PRIME = 2**144 - 369  # 3 mod 4, as MPyC's square roots want it
BYTES = 18  # of one element of the field
# Fractional bits of cosines, of sizes, of parameters. A truncation costs as much as a comparison:
# weights, reciprocals and parameters are multiplied without any, the field is large enough.
SCORE, SIZE, VALUE = 22, 24, 32
RESULT = SCORE + SIZE + 2 * VALUE
PRECISION = 28  # fractional bits of a result that are not noise
SECURITY = 40
LOST = 3
HEADER = 1024  # bytes of a share before its numbers
_MAX_HEADS = 10  # 4,097 comparisons for every pair of clients
_MAX_UPLOAD = 2**26  # numbers of one client
_ELEMENTS = 2**16  # at most that many numbers are in work at a time
_GREETING = 30.0  # seconds a new connection has for the TLS handshake, and again for its greeting


@dataclass(frozen=True)
class Job:
    """What everybody knows: addresses, and public numbers that fix all shapes.

    Attributes
    ----------
    addresses : list of str
        "host:port" of every server, in order of their numbers.
    n_clients, n_shared, n_tasks : int
        Clients N, shared parameters P, tasks known to the system K.
    head_length : int
        Parameters of a head D, after padding.
    max_heads : int
        Rows R that every client uploads: a public cap of its number of tasks, at most 10.
    max_size : float
        Public bound of the clients' sizes.
    timeout : float
        Seconds after which a server gives up.
    name : str
        Of the job: 1 to 64 letters, digits or any of ``._:@/-``.
    round : int
        0 or more. No two runs with different uploads should have the same name and round.

    Raises
    ------
    ValueError
        For fewer than three servers, for `max_heads` out of its range, for numbers that are no
        sizes, and for a job whose messages or uploads would be too long.
    """

    addresses: list
    n_clients: int
    n_shared: int
    n_tasks: int
    head_length: int
    max_heads: int
    max_size: float
    timeout: float = 600.0
    name: str = field(kw_only=True)
    round: int = field(kw_only=True)

    def __post_init__(self):
        if self.n_servers < 3:
            raise ValueError(
                f"n_servers={self.n_servers} gives no secrecy: with Shamir shares a minority of "
                "servers may be curious, and of two servers that is none. Use 3 servers or more; a "
                "protocol for 2 servers, as CHEETAH in SPU, is another engine."
            )
        least = {"n_clients": 1, "n_shared": 0, "n_tasks": 1, "head_length": 1, "round": 0}
        for name, bound in {**least, "max_heads": 1}.items():
            value = getattr(self, name)
            if type(value) is not int or not bound <= value < 2**63:
                raise ValueError(f"{name}={value!r} must be a whole number, {bound} or more.")
        if self.max_heads > _MAX_HEADS:
            raise ValueError(f"max_heads={self.max_heads} must be from 1 to {_MAX_HEADS}.")
        for name in ("max_size", "timeout"):
            value = getattr(self, name)
            if type(value) not in (int, float) or not 0 < value < math.inf:
                raise ValueError(f"{name}={value!r} must be a positive number.")
        if type(self.name) is not str or not re.fullmatch("[A-Za-z0-9._:@/-]{1,64}", self.name):
            raise ValueError(
                f"name={self.name!r} must have 1 to 64 characters: letters, digits, . _ : @ / -"
            )
        if self.n_upload > _MAX_UPLOAD or self.largest_message * BYTES >= 2**32:
            raise ValueError(
                f"An upload would have {self.n_upload} numbers, and the largest message between "
                f"servers {self.largest_message * BYTES} bytes; the ends are {_MAX_UPLOAD} and "
                "2^32 - 1. Lower n_clients, max_heads, head_length or n_shared."
            )

    def __str__(self):
        return f"Job {self.name}, round {self.round}"

    @property
    def n_servers(self):
        return len(self.addresses)

    @property
    def threshold(self):
        """Servers that may put their shares together and still learn nothing."""
        return (self.n_servers - 1) // 2

    @property
    def parts(self):
        """Shapes in an upload, in order."""
        heads = (self.max_heads, self.head_length)
        return {
            "shared": (self.n_shared,),
            "heads": heads,
            "directions": heads,
            "tasks": (self.max_heads, self.n_tasks),
            "size": (),
            "threshold": (),
        }

    @property
    def n_upload(self):
        """Numbers in an upload."""
        return sum(math.prod(shape) for shape in self.parts.values())

    @property
    def public(self):
        """What all uploads, servers and answers of one run must have in common."""
        left_out = ("addresses", "timeout")
        own = {key: value for key, value in asdict(self).items() if key not in left_out}
        scales = {"prime": f"{PRIME:x}", "score": SCORE, "size": SIZE, "value": VALUE}
        return {**own, "max_size": float(self.max_size), "n_servers": self.n_servers, **scales}

    @property
    def pairs_at_once(self):
        """Pairs of clients that are compared at a time."""
        return max(1, _ELEMENTS // 8 // max(self.max_heads**2, 2**self.max_heads))

    @property
    def columns_at_once(self):
        """Shared parameters that are averaged at a time."""
        return max(1, _ELEMENTS // self.n_clients)

    @property
    def comparison_bits(self):
        """`aggregate` compares numbers up to max_heads in units of 2^-SCORE."""
        return SCORE + self.max_heads.bit_length() + 1

    @property
    def largest_message(self):
        """No message of `aggregate` has more numbers: what a server takes from another."""
        n, rows = self.n_clients, self.max_heads
        pairs = min(self.pairs_at_once, n * (n - 1) // 2)
        compared = max(pairs * max(rows**2, math.comb(rows, rows // 2)), n**2)
        return max(
            (self.comparison_bits + 1) * compared,  # its random bits
            4 * VALUE * n * (1 + rows),  # those of a reciprocal
            (n * rows) ** 2,
            n * rows * self.head_length,
            n * min(self.n_shared, self.columns_at_once),
            len(self.public) + n,
        )

    @property
    def most_unread(self):
        """Numbers another server may send before this one asks for them: those of a block."""
        rows = self.max_heads
        pairs = min(self.pairs_at_once, self.n_clients * (self.n_clients - 1) // 2)
        block = pairs * (rows * 2 ** (rows - 1) + 2 * rows**2) * 2 * (self.comparison_bits + 1)
        return 4 * self.largest_message + block

    def save(self, folder, rank):
        text = json.dumps({"rank": rank, **asdict(self)}, indent=1)
        (folder / "job.json").write_text(text + "\n")

    @classmethod
    def load(cls, folder):
        """-> (rank, Job)"""
        content = json.loads((folder / "job.json").read_text())
        return content.pop("rank"), cls(**{f.name: content[f.name] for f in fields(cls)})


def to_bytes(elements):
    return b"".join((int(x) % PRIME).to_bytes(BYTES, "little") for x in elements)


def from_bytes(raw):
    if len(raw) % BYTES:
        raise ValueError(f"{len(raw)} bytes are no numbers of {BYTES} bytes.")
    ends = range(0, len(raw), BYTES)
    return np.array([int.from_bytes(raw[k : k + BYTES], "little") for k in ends], dtype=object)


def with_header(job, kind, client, rank, split, body):
    """The bytes of a share: a line of JSON, padded to `HEADER` bytes, and the numbers.

    Parameters
    ----------
    job : Job
    kind : "upload" or "answer"
    client, rank : int
    split : str of 32 hexadecimal digits
        Common to the shares of one upload; of the answer, to those of one run.
    body : bytes
    """
    own = {"kind": kind, "client": client, "rank": rank, "split": split}
    text = json.dumps({**own, "sha256": hashlib.sha256(body).hexdigest(), **job.public})
    return text.encode().ljust(HEADER - 1) + b"\n" + body


def without_header(job, kind, client, rank, raw):
    """-> split, body

    Raises
    ------
    ValueError
        The share is not this one, or damaged; names client and server.
    """
    what = f"{job}: the {kind} share of client {client} at server {rank}"
    remedy = "Send the right share again." if kind == "upload" else "Fetch it again."
    try:
        header = json.loads(raw[:HEADER])
        split, digest = header.pop("split"), header.pop("sha256")
        if not re.fullmatch("[0-9a-f]{32}", split):
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError(f"{what} has no valid header. {remedy}") from None
    expected = {"kind": kind, "client": client, "rank": rank, **job.public}
    other = [key for key in expected if header.get(key) != expected[key]]
    if other:
        found = ", ".join(
            f"{key}={ascii(header.get(key))[:80]} instead of {expected[key]!r}" for key in other
        )
        raise ValueError(f"{what} is another one: its header has {found}. {remedy}")
    body = raw[HEADER:]
    if hashlib.sha256(body).hexdigest() != digest:
        raise ValueError(f"{what} is cut or damaged. {remedy}")
    return split, body


def write_secret(path, content):
    """A new file that only its owner can read; never an old one."""
    mode = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    with open(os.open(path, mode, 0o600), "wb") as file:
        file.write(content)


def close_to_others(path):
    """Take the rights of group and others from a file or folder that has some, and say so."""
    if os.name == "posix" and path.stat().st_mode & 0o077:
        where = path.resolve()
        print(f"Warning: {where} was open to other users; it is closed now.", file=sys.stderr)
        path.chmod(path.stat().st_mode & 0o700)


class Uploads:
    """Shares of all clients, kept as bytes until they are needed.

    Attributes
    ----------
    splits : list
        For every client the number of its split, None if its share is refused.
    faults : list of str
        Why.
    """

    def __init__(self, job, folder, rank):
        self.job, self.raw, self.splits, self.faults = job, [], [], []
        self.offsets, total = {}, 0
        for name, shape in job.parts.items():
            self.offsets[name] = total
            total += math.prod(shape)
        for i in range(job.n_clients):
            split, raw = None, b""
            path = folder / "in" / f"{i}.shares"
            try:
                length = path.stat().st_size  # nothing longer is read
                if length != HEADER + total * BYTES:
                    raise ValueError(
                        f"{job}: the upload share of client {i} at server {rank} "
                        f"has {length} bytes; job.json asks for {HEADER + total * BYTES}. Client "
                        "and servers must use the same job."
                    )
                close_to_others(path)
                split, raw = without_header(job, "upload", i, rank, path.read_bytes())
            except FileNotFoundError:
                self.faults.append(
                    f"{job}: the upload share of client {i} at server {rank} is "
                    f"missing: there is no {path}."
                )
            except (ValueError, OSError) as error:
                self.faults.append(str(error))
            self.splits.append(split)
            self.raw.append(raw)

    def __getitem__(self, name):
        shape = self.job.parts[name]
        flat = self.columns(name, 0, math.prod(shape))
        return flat.reshape(self.job.n_clients, *shape)

    def columns(self, name, start, stop):
        """Columns of the flattened part `name`, one row per client."""
        at = self.offsets[name]
        window = slice((at + start) * BYTES, (at + stop) * BYTES)
        return np.array([from_bytes(raw[window]) for raw in self.raw])


def largest_matching(gains, maximum):
    """Value of the best one-to-one matching of every (R, R) matrix in `gains`; none negative.

    f(S) = max over k in S of f(S without k) + gain[|S| - 1, k] over subsets S of columns: the same
    R 2^(R-1) - 2^R + 1 comparisons for all data.
    """
    n, size, _ = gains.shape
    f = gains[:, 0, :]
    place = {1 << k: k for k in range(size)}
    for r in range(1, size):
        sets = [s for s in range(1 << size) if s.bit_count() == r + 1]
        members = [[k for k in range(size) if s >> k & 1] for s in sets]
        rest = [[place[s ^ 1 << k] for k in own] for s, own in zip(sets, members, strict=True)]
        members, rest = np.array(members), np.array(rest)
        place = {s: at for at, s in enumerate(sets)}
        choices = [f[:, rest[:, q]] + gains[:, r, :][:, members[:, q]] for q in range(r + 1)]
        while len(choices) > 1:
            left = [choices.pop()] if len(choices) % 2 else []
            choices = [maximum(*choices[q : q + 2]) for q in range(0, len(choices), 2)] + left
        f = choices[0]
    return f.reshape(n)


async def aggregate(mpc, job, uploads):
    """Shares of the new models: arrays (N, P) and (N, R, D) of field elements.

    The results have `RESULT` fractional bits; those after `PRECISION` are noise.
    """
    n, rows = job.n_clients, job.max_heads
    integers = mpc.SecInt(64, p=PRIME)  # all fixed-point scales are kept by hand
    fixed = mpc.SecFxp(2 * VALUE, VALUE, p=PRIME)
    field = integers.field

    def secret(elements):
        return integers.array(field.array(elements, check=False))

    async def finished(x):
        """The same array once it is computed, so that blocks do not pile up in memory."""
        return integers.array(await mpc.gather(x))

    def at_least(x, y):  # for |x - y| <= R in units of 2^-SCORE
        return 1 - mpc.np_sgn(x - y, l=job.comparison_bits, LT=True)

    def maximum(x, y):
        return y + at_least(x, y) * (x - y)

    # Eqs. 4, 5. H is symmetric, and H_ii = K_i exactly: a client keeps its own model at Z_i = 1.
    directions, tasks = secret(uploads["directions"]), secret(uploads["tasks"])
    real = np.sum(tasks, axis=2)
    counts = np.sum(real, axis=1)
    first, second = np.triu_indices(n, 1)
    values = [counts * 2**SCORE]
    step = job.pairs_at_once
    for start in range(0, len(first), step):
        i, j = first[start : start + step], second[start : start + step]
        cosines = directions[i] @ np.transpose(directions[j], (0, 2, 1))
        cosines = mpc.np_trunc(cosines, f=SCORE, l=2 * SCORE + 3)
        gains = at_least(cosines, 0) * cosines  # a pair of negative cosine stays unmatched
        values.append(await finished(largest_matching(gains, maximum)))
    at = np.diag(np.arange(n))
    at[first, second] = at[second, first] = n + np.arange(len(first))
    H = np.reshape(np.concatenate(values)[at.ravel()], (n, n))

    # Eqs. 6, 7 without division: S_ij >= Z_i is H_ij >= Z_i K_i, and 1 / K_i cancels in the means.
    least = secret(uploads["threshold"]) * counts
    weights = at_least(H, np.reshape(least, (n, 1))) * H * secret(uploads["size"])

    # Eqs. 8, 9: a row of weights for every client, and one for every uploaded head.
    labels = np.reshape(tasks, (n * rows, job.n_tasks))
    same = await finished(labels @ np.transpose(labels))
    owner = np.repeat(np.arange(n), rows)
    head_weights = weights[owner] * np.sum(np.reshape(same, (n * rows, n, rows)), axis=2)
    padding = 1 - np.reshape(real, (n * rows,))  # keeps the sums of added rows away from 0
    totals = np.sum(head_weights, axis=1) + padding * 2 ** (SCORE + SIZE)
    totals = np.concatenate((np.sum(weights, axis=1), totals))
    bits = SCORE + SIZE + (n * rows).bit_length() + 2
    totals = await mpc.gather(mpc.np_trunc(totals, f=SCORE + SIZE - VALUE, l=bits))
    inverse = integers.array(await mpc.gather(1 / fixed.array(totals, None, False)))
    weights = np.concatenate((weights, head_weights)) * np.reshape(inverse, (n + n * rows, 1))
    weights = await finished(weights)

    # Eqs. 2, 3. The products leave as they are; the mask hides their last bits from the client,
    # as rounding would: exact products would betray the weights.
    async def answer(x):
        y = (await mpc.gather(x)).value
        mask = mpc._np_randoms(field, y.size, 1 << RESULT - PRECISION).value
        return (y + mask.reshape(y.shape)) % PRIME

    step = job.columns_at_once
    shared = [np.empty((n, 0), dtype=object)]
    for start in range(0, job.n_shared, step):
        columns = uploads.columns("shared", start, min(start + step, job.n_shared))
        shared.append(await answer(weights[:n] @ secret(columns)))
    old = secret(uploads["heads"].reshape(n * rows, job.head_length))
    heads = await answer((weights[n:][:, owner] * same) @ old)
    return np.concatenate(shared, axis=1), heads.reshape(n, rows, job.head_length)


class Run:
    """What the links of one run share.

    Attributes
    ----------
    failed : Future
        Gets the exception that ends the run.
    refusals : dict
        Server, or None for a stranger -> why a link to it was refused last.
    largest : int
        Bytes of the largest message that came.
    """

    def __init__(self, mpc, job):
        self.mpc, self.job, self.largest, self.refusals = mpc, job, 0, {}
        self.failed = asyncio.get_event_loop().create_future()

    def refused(self, rank, reason):
        """Log it, once if it comes again and again."""
        if self.refusals.get(rank) != reason:
            self.refusals[rank] = reason
            who = "a stranger" if rank is None else f"server {rank}"
            text = f"{self.job}: the link to {who} was refused: {reason}."
            print(text, file=sys.stderr, flush=True)

    def fail(self, error):
        if not self.failed.done():
            self.failed.set_exception(error)


class Refused(Exception):
    """A share, a message or a server that is not of this run."""


class Link(asyncio.Protocol):
    """One connection to another server, in the place of MPyC's, which trusts all it is told.

    Frames are MPyC's: program counter (8 bytes), length (4), and the numbers. Nothing is kept of a
    frame that is longer than any message of the job, or that comes when too much is unread.

    Parameters
    ----------
    run : Run
    peer : int, default=None
        Server at the other end; None: somebody who came here, and whose certificate tells.
    """

    def __init__(self, run, peer=None):
        self.run, self.mpc, self.peer, self.came = run, run.mpc, peer, peer is None
        self.bytes = bytearray()
        self.buffers = {}  # program counter -> payload, or the Future of who waits for it
        self.unread = self.nbytes_sent = 0
        self.ready, self.timer = False, None

    def connection_made(self, transport):
        self.transport = transport
        certificate = transport.get_extra_info("peercert")
        if self.came:
            lower = range(self.mpc.pid)
            self.peer = next((rank for rank in lower if _belongs(certificate, rank)), None)
            if self.peer is None:
                self.refuse(f"its certificate is of {_names(certificate)}, no server to wait for")
            elif self.mpc.parties[self.peer].protocol is not None:
                self.refuse("that server is connected already")
            else:
                self.timer = self.mpc._loop.call_later(_GREETING, self.refuse, "no greeting came")
        elif not _belongs(certificate, self.peer):
            self.refuse(f"its certificate is of {_names(certificate)}")
        else:
            number = self.mpc.pid.to_bytes(2, "little")
            transport.write(b"".join([number, *self.mpc._prss_keys_to_peer(self.peer)]))
            self._accept()

    def _accept(self):
        self.ready = True
        self.mpc.set_protocol(self.peer, self)

    def refuse(self, reason):
        """Close; a run that had begun with this server ends."""
        self.run.refused(self.peer, reason)
        self.bytes.clear()
        self.transport.abort()
        if self.ready:
            self.run.fail(Refused(f"the link to server {self.peer} was closed: {reason}"))

    def data_received(self, data):
        if self.transport.is_closing():
            return
        self.bytes += data  # at most a buffer of the transport
        if self.ready or self._greeted():
            self._read()

    def _greeted(self):
        length = 2 + self.mpc._prss_keys_from_peer(self.peer)
        if len(self.bytes) < length:
            return False
        self.timer.cancel()
        number = int.from_bytes(self.bytes[:2], "little")
        if number != self.peer or self.mpc.parties[self.peer].protocol is not None:
            self.refuse(f"it says that it is server {number}, or comes twice")
            return False
        self.mpc._prss_keys_from_peer(self.peer, bytes(self.bytes[2:length]))
        del self.bytes[:length]
        self._accept()
        return True

    def _read(self):
        job = self.run.job
        while len(self.bytes) >= 12:
            counter, length = struct.unpack_from("<qI", self.bytes)
            waiting = self.buffers.get(counter)
            if length > job.largest_message * BYTES or length % BYTES:
                self.refuse(
                    f"it announced a message of {length} bytes; this job has whole numbers of "
                    f"{BYTES} bytes, at most {job.largest_message} of them"
                )
                return
            if isinstance(waiting, bytes):
                self.refuse("it sent a message twice")
                return
            # What a frame costs beside its numbers counts, too.
            if waiting is None and self.unread + length + 512 > job.most_unread * BYTES + 2**20:
                self.refuse(f"it sent {self.unread} bytes that nobody had asked for")
                return
            if len(self.bytes) < 12 + length:
                return
            payload = bytes(self.bytes[12 : 12 + length])
            del self.bytes[: 12 + length]
            self.run.largest = max(self.run.largest, length)
            if waiting is None:
                self.buffers[counter] = payload
                self.unread += length + 512
            elif not self.buffers.pop(counter).done():
                waiting.set_result(payload)

    # ------------------------------------------------------------ what MPyC calls
    def send(self, counter, payload):
        self.transport.write(struct.pack("<qI", counter, len(payload)) + payload)
        self.nbytes_sent += 12 + len(payload)

    def receive(self, counter):
        payload = self.buffers.pop(counter, None)
        if payload is None:
            payload = self.buffers[counter] = self.mpc._loop.create_future()
        else:
            self.unread -= len(payload) + 512
        return payload

    def close_connection(self):
        self.transport.close()

    def connection_lost(self, error):
        if self.timer is not None:
            self.timer.cancel()
        if self.ready:
            self.mpc.unset_protocol(self.peer)


def _names(certificate):
    parts = [part for names in (certificate or {}).get("subject", ()) for part in names]
    return [value for key, value in parts if key == "commonName"]


def _belongs(certificate, rank):
    return _names(certificate) == [f"MPyC party {rank}"]


def _contexts(rank):
    """TLS for the connections that come and for those that go; only the own authority counts."""
    config = Path(".config")
    own = config / f"party_{rank}.crt", config / f"party_{rank}.key"
    for path in (config / "mpyc_ca.crt", *own):
        if not path.exists():
            raise Refused(f"there is no {path}; see make_certificates")
    close_to_others(own[1])
    contexts = [ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)]
    for context in contexts:
        context.check_hostname = False  # `Link` compares the names, at both ends
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(config / "mpyc_ca.crt")
        context.load_cert_chain(*own)
    # A handshake with itself: what the others would refuse is said here, and at once.
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = contexts[0].wrap_bio(there, back, server_side=True), contexts[1].wrap_bio(back, there)
    for end in ends[::-1] * 3:
        with suppress(ssl.SSLWantReadError):
            end.do_handshake()
    found = ends[0].getpeercert()
    if not _belongs(found, rank):
        raise Refused(
            f"the certificate {own[0]} is of {_names(found)}, and this is server {rank}: it needs "
            f"one with the common name 'MPyC party {rank}'"
        )
    return contexts


async def _connect(run, host, contexts):
    """Links to all others: this server waits for those of lower number and calls the others."""
    mpc, loop = run.mpc, asyncio.get_running_loop()
    for party in mpc.parties:
        party.protocol = loop.create_future() if party.pid == mpc.pid else None
    settings = {"ssl_handshake_timeout": _GREETING}
    server = None
    if mpc.pid:
        port = mpc.parties[mpc.pid].port
        server = await loop.create_server(
            lambda: Link(run), host, port, ssl=contexts[0], **settings
        )
    for party in mpc.parties[mpc.pid + 1 :]:
        while party.protocol is None:
            try:
                await loop.create_connection(
                    lambda peer=party.pid: Link(run, peer), party.host, party.port,
                    ssl=contexts[1], **settings,
                )  # fmt: skip
            except (OSError, asyncio.TimeoutError) as error:
                if isinstance(error, ssl.SSLError):
                    run.refused(party.pid, str(error))
            if party.protocol is None:
                await asyncio.sleep(0.1)
    await mpc.parties[mpc.pid].protocol
    if server is not None:
        server.close()
    mpc.start_time = time.time()


def _digest(value):
    return int.from_bytes(hashlib.sha256(json.dumps(value).encode()).digest()[:16], "little")


async def agree(mpc, job, splits):
    """Compare the job and the splits of all uploads with the other servers.

    Returns
    -------
    faults : list of str
        Empty, or what differs, by client and server.
    run : str of 32 hexadecimal digits
        Of all splits together.
    """
    none = 2**128  # of a client whose share is refused
    public = job.public
    own = [_digest(value) for value in public.values()]
    own += [none if split is None else int(split, 16) for split in splits]
    claims = [[int(x) for x in claim] for claim in await mpc.transfer(np.array(own, dtype=object))]
    faults = []
    for rank, claim in enumerate(claims):
        other = [key for key, a, b in zip(public, own, claim, strict=False) if a != b]
        if other or len(claim) != len(own):
            faults.append(f"server {rank} has another job.json: {', '.join(other)} differ")
    if not faults:
        for i, numbers in enumerate(list(zip(*claims, strict=True))[len(public) :]):
            lacking = [rank for rank, number in enumerate(numbers) if number == none]
            if lacking:
                faults.append(
                    f"the share of client {i} is missing or refused at server "
                    f"{', '.join(map(str, lacking))}, whose log says why"
                )
            elif len(set(numbers)) > 1:
                usual = max(numbers, key=numbers.count)
                odd = [rank for rank, number in enumerate(numbers) if number != usual]
                odd = range(len(numbers)) if numbers.count(usual) == 1 else odd
                faults.append(
                    f"the shares of client {i} are not of one split: that at server "
                    f"{', '.join(map(str, odd))} is of another upload than those of the other "
                    "servers. Let the client split once more and send every server its share"
                )
    return faults, f"{_digest(own):032x}"


def _unconnected(mpc):
    peers = [peer for peer in mpc.parties if peer.pid != mpc.pid]
    return [p.pid for p in peers if p.protocol is None or p.protocol.transport.is_closing()]


async def _until_lost(mpc):
    while not _unconnected(mpc):
        await asyncio.sleep(0.2)
    raise ConnectionError


async def _unless_failed(run, work, *others):
    """The result of a coroutine, or the exception that ends the run before."""
    tasks = [asyncio.ensure_future(one) for one in (work, *others)]
    await asyncio.wait({*tasks, run.failed}, return_when=asyncio.FIRST_COMPLETED)
    for task in (run.failed, *tasks):
        if task.done():
            for one in tasks[1:]:
                one.cancel()
            return task.result()


async def _serve(run, host, contexts, uploads):
    """-> shared, heads, number of the run, seconds, bytes sent"""
    mpc, job = run.mpc, run.job
    await _unless_failed(run, _connect(run, host, contexts))
    print(f"Process {os.getpid()} is connected to {job.n_servers - 1} servers.", flush=True)
    started = time.perf_counter()
    agreed = agree(mpc, job, uploads.splits)
    faults, number = await _unless_failed(run, agreed, _until_lost(mpc))
    if faults:
        with suppress(asyncio.TimeoutError):  # so that all the others have read it
            await asyncio.wait_for(mpc.shutdown(), _GREETING)
        raise Refused("; ".join(faults))
    work = aggregate(mpc, job, uploads)
    shared, heads = await _unless_failed(run, work, _until_lost(mpc))
    sent = sum(peer.protocol.nbytes_sent for peer in mpc.parties if peer.pid != mpc.pid)
    seconds = time.perf_counter() - started
    # Waits for all servers: nobody answers unless all have finished.
    await _unless_failed(run, mpc.shutdown())
    return shared, heads, number, seconds, sent


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m skpmtl.fedmtl.mpc_server", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("folder", type=Path)
    parser.add_argument("--listen", help="host to listen on; default: the one in the addresses")
    parser.add_argument("--attached", action="store_true", help="end with the standard input")
    options = parser.parse_args(arguments)
    if options.attached:
        threading.Thread(target=lambda: os.read(0, 1) or os._exit(LOST), daemon=True).start()
    os.chdir(options.folder)
    try:
        rank, job = Job.load(Path())
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        sys.exit(f"{options.folder / 'job.json'} is not the job of a server: {error!r}")
    try:
        _aggregate_folder(job, rank, options.listen)
    except Refused as error:
        sys.exit(f"{job}: {error}.")
    except Exception as error:
        traceback.print_exc()
        sys.exit(f"{job}: {type(error).__name__}: {error}")


def _aggregate_folder(job, rank, listen):
    folder = Path()
    if rank not in range(job.n_servers):
        raise Refused(f"rank={rank!r} in job.json is none of {job.n_servers} servers")
    out = folder / "out"
    out.mkdir(mode=0o700, exist_ok=True)
    if any(out.iterdir()):
        raise Refused("the folder out has answers of an earlier run; move them away first")
    for secret in (folder, folder / "in", folder / ".config", out):
        if secret.exists():
            close_to_others(secret)
    uploads = Uploads(job, folder, rank)
    for fault in uploads.faults:
        print(fault, file=sys.stderr, flush=True)
    contexts = _contexts(rank)
    # MPyC reads its settings from the command line when it is imported.
    sys.argv = [sys.argv[0], "--no-log", "-K", str(SECURITY), "-I", str(rank)]
    sys.argv += ["-T", str(job.threshold)]
    for address in job.addresses:
        sys.argv += ["-P", address]
    os.environ["MPYC_NOUVLOOP"] = "1"
    from mpyc import runtime

    mpc = runtime.mpc
    # All its messages are arrays of numbers: nothing is unpickled.
    runtime.pickle = SimpleNamespace(
        dumps=lambda x: to_bytes(np.atleast_1d(np.asarray(x, dtype=object))), loads=from_bytes
    )
    loop = asyncio.get_event_loop()
    run = Run(mpc, job)

    def failed(loop, context):
        loop.default_exception_handler(context)
        error = context.get("exception")
        if isinstance(error, Exception) and not isinstance(error, OSError):  # of some connection
            run.fail(error)

    loop.set_exception_handler(failed)  # else MPyC would wait for the rest of the computation
    work = _serve(run, listen or mpc.parties[rank].host, contexts, uploads)
    try:
        result = loop.run_until_complete(asyncio.wait_for(work, job.timeout))
    except Exception as error:
        if isinstance(error, Refused):
            reason = f"{error}."
        elif _unconnected(mpc):
            with suppress(RuntimeError):  # the first to go takes others with it: name them all
                loop.run_until_complete(asyncio.sleep(1.0))
            lost = _unconnected(mpc)
            reason = f"No connection to server {', '.join(map(str, lost))}."
            known = [f" {rank}: {run.refusals[rank]}." for rank in lost if rank in run.refusals]
            reason += "".join(known)
        elif isinstance(error, (TimeoutError, asyncio.TimeoutError)):
            reason = f"Not finished within {job.timeout:g} seconds."
        else:
            traceback.print_exception(error)
            reason = f"{type(error).__name__}: {error}"
        print(f"{job}: {' '.join([reason, *uploads.faults[:3]])}", file=sys.stderr, flush=True)
        lost = _unconnected(mpc) and not isinstance(error, Refused)
        os._exit(LOST if lost else 1)  # MPyC cannot give up a computation
    shared, heads, number, seconds, sent = result
    for i in range(job.n_clients):
        body = to_bytes(np.concatenate([shared[i], heads[i].ravel()]))
        write_secret(out / f"{i}.shares", with_header(job, "answer", i, rank, number, body))
    spent = {"seconds": seconds, "cpu_seconds": time.process_time()}
    text = json.dumps({**spent, "bytes_sent": sent, "largest_message": run.largest})
    (out / "run.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
