"""Shares of three servers: numbers, files, and what is public of an aggregation.

A number x is x_0 + x_1 + x_2 modulo 2^64 or 2^128, and server r holds x_r and x_(r+1): replicated
shares, as ABY3 has them. x_0 and x_1 are a stream of numbers from a key, so that only x_2 is sent.
A file of server r is one line of JSON, the keys it has, and x_2 where it has that.
"""

import hashlib
import json
import os
from dataclasses import asdict, dataclass, fields

import numpy as np

# Fractional bits in the first part of the computation, modulo 2^128, and of what is averaged, and
# its weights, modulo 2^64.
WIDE, FINE = 40, 20
KEY = 32


@dataclass(frozen=True)
class Shapes:
    """What is public of one aggregation.

    Attributes
    ----------
    n_clients, n_shared, n_tasks, head_length, max_heads : int
        As of `Job`.
    """

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
        """Columns that are averaged at a time: 40 MB of shares."""
        return max(1, 2_500_000 // self.n_clients)

    def save(self, folder, name):
        (folder / "shapes.json").write_text(json.dumps({"name": name, **asdict(self)}))

    @classmethod
    def load(cls, folder):
        """-> name, Shapes"""
        found = json.loads((folder / "shapes.json").read_text())
        return found["name"], cls(**{f.name: int(found[f.name]) for f in fields(cls)})


def stream(key, first, count):
    """Numbers modulo 2^64 at places of the stream of a key: AES-256 in counter mode."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    block, skip = divmod(8 * first, 16)
    counter = modes.CTR(block.to_bytes(16, "big"))
    encryptor = Cipher(algorithms.AES(key), counter).encryptor()
    raw = encryptor.update(bytes(skip + 8 * count))
    return np.frombuffer(raw, np.uint64, count, skip)


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

    Raises
    ------
    ValueError
        When it is not of the length that the shapes ask for.
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
        """Components `rank` and `rank` + 1 of the numbers at these places, (count, 2)."""
        drawn = [stream(key, first, count) for key in self.keys]
        if self.rank == 0:
            return np.column_stack(drawn)
        last = self.last[first : first + count]
        return np.column_stack([drawn[0], last] if self.rank == 1 else [last, drawn[0]])

    def wide(self):
        """(n_wide, 2, 2): numbers, components, (low, high)."""
        found = self.numbers(0, 2 * self.n_wide).reshape(self.n_wide, 2, 2)
        return found.transpose(0, 2, 1)

    def fine(self, first, count):
        return self.numbers(2 * self.n_wide + first, count)


class Answer:
    """What a server sends one client: its component, and a digest of what the next one's has to be.

    Written piece by piece.
    """

    def __init__(self, path):
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        self.file = open(os.open(path, flags, 0o600), "wb")
        self.other = hashlib.sha256()

    def add(self, component, other):
        self.file.write(np.ascontiguousarray(component))
        self.other.update(np.ascontiguousarray(other))

    def close(self):
        with self.file:
            self.file.write(self.other.digest())


def opened(answers):
    """A client's numbers from the answers of all servers, as float64.

    Raises
    ------
    ValueError
        When the answers do not fit together.
    """
    components = [raw[:-32] for raw in answers]
    lengths = {len(component) for component in components}
    for rank, raw in enumerate(answers):
        if len(lengths) > 1 or hashlib.sha256(components[(rank + 1) % 3]).digest() != raw[-32:]:
            raise ValueError("the answers of the servers do not fit together")
    total = sum(np.frombuffer(component, np.uint64) for component in components)
    return total.view(np.int64) * 4.0**-FINE
