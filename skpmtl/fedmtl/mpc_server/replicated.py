"""Shares of three servers: numbers, files, and what is public of an aggregation.

A number x is x_0 + x_1 + x_2 modulo 2^64 or 2^128, and server r holds x_r and x_(r+1): replicated
shares, as ABY3 has them. x_0 and x_1 are a stream of numbers from a key, so that only x_2 is sent.
A file of server r is the keys it has, and x_2 where it has that. The product of x and y is the sum
of what the servers compute alone, x_r (y_r + y_(r+1)) + x_(r+1) y_r.
"""

import hashlib
import json
import os
from dataclasses import asdict, dataclass, fields

import numpy as np

from . import loops

# Fractional bits in the first part of the computation, modulo 2^128, and of what is averaged, and
# its weights, modulo 2^64.
WIDE, FINE = 40, 20
KEY = RUN = DIGEST = 32
_ZEROS = memoryview(bytes(1 << 18))  # what stays in the cache is encrypted sooner


@dataclass(frozen=True)
class Shapes:
    """What is public of one aggregation."""

    # `n_clients`, `n_shared`, `n_tasks`, `head_length`, `max_heads`: as of `Job`
    n_clients: int
    n_shared: int
    n_tasks: int
    head_length: int
    max_heads: int

    @property
    def parts(self):
        """Shapes of a client's numbers modulo 2^128."""
        rows = self.max_heads
        return {
            "directions": (rows, self.head_length), "labels": (rows, self.n_tasks), "size": (),
            "threshold": (),
        }  # fmt: skip

    @property
    def n_wide(self):
        return sum(int(np.prod(shape)) for shape in self.parts.values())

    @property
    def n_fine(self):
        """Of a client's numbers modulo 2^64: shared layers, then heads."""
        return self.n_shared + self.max_heads * self.head_length

    @property
    def columns_at_once(self):
        """Columns that are averaged at a time: 16 MB of shares."""
        return max(1, 1_000_000 // self.n_clients)

    def save(self, folder):
        (folder / "shapes.json").write_text(json.dumps(asdict(self)))

    @classmethod
    def load(cls, folder):
        found = json.loads((folder / "shapes.json").read_text())
        return cls(**{f.name: int(found[f.name]) for f in fields(cls)})


def stream(key, first, count):
    """Numbers modulo 2^64 at places of the stream of a key: AES-256 in counter mode."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    block, skip = divmod(8 * first, 16)
    counter = modes.CTR(block.to_bytes(16, "big"))
    encryptor = Cipher(algorithms.AES(key), counter).encryptor()
    size = skip + 8 * count
    raw = np.empty(size + 15, np.uint8)  # the cipher asks for room for a block more
    for start in range(0, size, len(_ZEROS)):
        encryptor.update_into(_ZEROS[: size - start], raw[start:])
    return raw[skip:size].view(np.uint64)


def split(wide, fine):
    """Three files' worth of one client's numbers, which are int64. -> list of bytes

    Numbers modulo 2^128 are pairs (low, high), signs extended.
    """
    keys = [os.urandom(KEY) for _ in range(2)]
    n = len(wide)
    low, high = wide.view(np.uint64), (wide >> 63).view(np.uint64)
    for key in keys:
        mask = stream(key, 0, 2 * n).reshape(n, 2)
        borrow = (low < mask[:, 0]).astype(np.uint64)
        low, high = low - mask[:, 0], high - mask[:, 1] - borrow
    rest = fine.view(np.uint64).copy()
    for key in keys:
        rest -= stream(key, 2 * n, len(rest))
    last = np.column_stack([low, high]).tobytes() + rest.tobytes()
    # Server r has the components r and r + 1.
    return [b"".join(keys), keys[1] + last, keys[0] + last]


class Upload:
    """One client's file at server `rank`.

    Raises ValueError when it is not of the length that the shapes ask for.
    """

    def __init__(self, shapes, rank, path):
        self.n_wide, self.rank = shapes.n_wide, rank
        data = 8 * (2 * shapes.n_wide + shapes.n_fine)
        length = 2 * KEY if rank == 0 else KEY + data
        if path.stat().st_size != length:
            raise ValueError(f"{path.name} has another length than the shapes ask for")
        with open(path, "rb") as file:
            raw = file.read(2 * KEY if rank == 0 else KEY)
        self.keys = [raw[i : i + KEY] for i in range(0, len(raw), KEY)]
        self.last = None if rank == 0 else np.memmap(path, np.uint64, "r", KEY)

    def numbers(self, first, count):
        """Components `rank` and `rank` + 1 of the numbers at these places."""
        drawn = [stream(key, first, count) for key in self.keys]
        if self.rank == 0:
            return drawn
        last = self.last[first : first + count]
        return [drawn[0], last] if self.rank == 1 else [last, drawn[0]]

    def wide(self):
        """(n_wide, 2, 2): numbers, components, (low, high)."""
        found = [part.reshape(self.n_wide, 2) for part in self.numbers(0, 2 * self.n_wide)]
        return np.stack(found, axis=1)

    def fine(self, first, count):
        """Components of numbers modulo 2^64, a pair of arrays (count,)."""
        return self.numbers(2 * self.n_wide + first, count)


def product(left, right):
    """left @ right of uint64, modulo 2^64."""
    out = np.empty((len(left), right.shape[1]), np.int64)
    loops.multiply(*(np.ascontiguousarray(x).view(np.int64) for x in (left, right)), out)
    return out.view(np.uint64)


def product_of_shares(weights, values):
    """This server's term of a product; shares (n, k, 2) and (2, k, c)."""
    own, other = weights[..., 0], weights[..., 1]
    return product(np.hstack([own + other, own]), values.reshape(2 * values.shape[1], -1))


class Veil:
    """Masks this server's terms: a recipient of all three learns only their sum.

    Two servers have each key (`own`, and `other` of the next server), and take and give its stream,
    so that the three veils of a number add up to 0. A random number below 2^18 of each server hides
    the last bits of the sum, as rounding would: exact products would betray the weights.
    """

    def __init__(self, own, other):
        self.keys, self.place = (own, other, os.urandom(KEY)), 0

    def over(self, terms):
        """-> uint64, of the same shape"""
        out = np.array(terms)
        streams = (stream(key, self.place, out.size) for key in self.keys)
        loops.veil(out.reshape(-1), *streams, np.uint64(64 - FINE + 2))
        self.place += out.size
        return out


class Answer:
    """What a server sends one client: the number of the run, its terms, and a digest of both.

    Written piece by piece.
    """

    def __init__(self, path, run):
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        self.file = open(os.open(path, flags, 0o600), "wb")
        self.digest = hashlib.sha256()
        self.add(run)

    def add(self, part):
        self.file.write(part)
        self.digest.update(part)

    def close(self):
        with self.file:
            self.file.write(self.digest.digest())


def opened(answers):
    """A client's numbers from the answers of all servers, as float64.

    Raises ValueError when an answer is damaged, or is not of the same run.
    """
    if len({(len(raw), raw[:RUN]) for raw in answers}) > 1:
        raise ValueError("the answers of the servers do not fit together")
    total = np.zeros((len(answers[0]) - RUN - DIGEST) // 8, np.uint64)
    for raw in answers:
        body = memoryview(raw)[:-DIGEST]
        if hashlib.sha256(body).digest() != raw[-DIGEST:]:
            raise ValueError("the answer of a server is damaged")
        total += np.frombuffer(body[RUN:], np.uint64)
    return total.view(np.int64) * 4.0**-FINE
