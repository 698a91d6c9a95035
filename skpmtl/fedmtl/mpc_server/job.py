"""What servers and clients agree on, and the files that they exchange.

A share is a file: a header of `HEADER` bytes, which says what it belongs to, and elements of the
field of integers modulo `PRIME`, `BYTES` bytes each.
"""

import hashlib
import json
import math
import os
import re
import sys
from dataclasses import asdict, dataclass, field, fields

import numpy as np

PRIME = 2**144 - 369  # 3 mod 4, as MPyC's square roots want it
BYTES = 18  # of one element of the field
# Fractional bits of cosines, of sizes, of parameters. A truncation costs as much as a comparison:
# weights, reciprocals and parameters are multiplied without any, the field is large enough.
SCORE, SIZE, VALUE = 22, 24, 32
RESULT = SCORE + SIZE + 2 * VALUE
HEADER = 1024  # bytes of a share before its numbers
_MAX_HEADS = 10  # 4,097 comparisons for every pair of clients
_MAX_UPLOAD = 2**26  # numbers of one client
_ELEMENTS = 2**16  # at most that many numbers are in work at a time


@dataclass(frozen=True)
class Job:
    """What everybody knows: addresses, and public numbers that fix all shapes.

    Raises ValueError for fewer than three servers, for `max_heads` out of its range, for numbers
    that are no sizes, and for a job whose messages or uploads would be too long.
    """

    addresses: list  # "host:port" of every server, in order of their numbers
    # `n_clients`, `n_shared`, `n_tasks`: clients N, shared parameters P, tasks known to the
    # system K
    n_clients: int
    n_shared: int
    n_tasks: int
    head_length: int  # parameters of a head D, after padding
    # rows R that every client uploads: a public cap of its number of tasks, at most 10
    max_heads: int
    max_size: float  # public bound of the clients' sizes
    timeout: float = 600.0  # seconds after which a server gives up
    name: str = field(kw_only=True)  # of the job: 1 to 64 letters, digits or any of ``._:@/-``
    # 0 or more. No two runs with different uploads should have the same name and round.
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
        """Number of servers that learn nothing from their shares together."""
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
        """Number of shared parameters that are averaged at a time."""
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
    """The bytes of a share: a line of JSON, padded to `HEADER` bytes, and the numbers (`body`).

    `kind` is "upload" or "answer"; `split`, 32 hexadecimal digits, is common to the shares of one
    upload, or to the answers of one run.
    """
    own = {"kind": kind, "client": client, "rank": rank, "split": split}
    text = json.dumps({**own, "sha256": hashlib.sha256(body).hexdigest(), **job.public})
    return text.encode().ljust(HEADER - 1) + b"\n" + body


def without_header(job, kind, client, rank, raw):
    """-> split, body

    Raises ValueError: the share is not this one, or damaged; names client and server.
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

    `splits` has for every client the number of its split, None if its share is refused, and
    `faults` why.
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
