"""What clients, servers and dealer agree on, and the messages between them.

A message is a line of JSON, padded to `HEADER` bytes, which says what it belongs to, and its
numbers. Uploads and answers go in sections, so that nobody holds all layers of all clients: first
what the weights and the heads need, then the shared layers, block by block.
"""

import json
import math
import re
from dataclasses import asdict, dataclass
from functools import cached_property

import numpy as np

__all__ = [
    "HEADER",
    "LARGEST",
    "NOISE",
    "SCORE",
    "SIZE",
    "SIZE_RATIO",
    "VALUE",
    "WEIGHT",
    "Job",
    "pack",
    "unpack",
]

# Fractional bits: of entries of unit vectors and of similarities, of sizes, of parameters, of
# normalised weights. A result has WEIGHT + VALUE.
SCORE, SIZE, VALUE, WEIGHT = 22, 24, 22, 22
NOISE = 22  # last bits of a result that each server hides
LARGEST = 2.0**18  # of a parameter: WEIGHT + VALUE + 18 bits and a sign
SIZE_RATIO = 2**16  # of max_size to a size
HEADER = 1024
_MAX_HEADS = 10  # 4,097 comparisons per pair of clients
_TOTAL = 61  # bits of a sum of weights before they are normalised
_BLOCK = 2**18  # numbers that are compared at a time
_COLUMNS = 2**20  # numbers of all clients in a block of shared layers


@dataclass(frozen=True)
class Job:
    """Public numbers that fix all shapes, and the name of the computation.

    P = `n_servers` >= 2 servers; N = `n_clients`; `n_shared` parameters; K = `n_tasks` known to
    the system; D = `head_length` parameters of a head, after padding; R = `max_heads` rows that
    every client uploads, a public bound on its number of tasks, 1 to 10; `max_size`, a public bound
    on the sizes, a power of two. No two runs with different uploads should have the same `name` and
    `round`. Raises ValueError for numbers out of their range.
    """

    n_servers: int
    n_clients: int
    n_shared: int
    n_tasks: int
    head_length: int
    max_heads: int
    max_size: float
    name: str
    round: int

    def __post_init__(self):
        if not self.n_servers >= 2:
            raise ValueError(f"n_servers={self.n_servers!r} must be a whole number, 2 or more.")
        if not 1 <= self.max_heads <= _MAX_HEADS:
            raise ValueError(f"max_heads={self.max_heads} must be from 1 to {_MAX_HEADS}.")
        if math.frexp(self.max_size)[0] != 0.5:
            raise ValueError(f"max_size={self.max_size!r} must be a power of two.")
        if self.total_bits > _TOTAL:
            raise ValueError(
                f"n_clients={self.n_clients} with max_heads={self.max_heads} is too many: sums of "
                "weights would exceed the 64 bits of a number. Aggregate fewer clients at once."
            )

    def __str__(self):
        return f"Job {self.name}, round {self.round}"

    @property
    def parts(self):
        """Shapes in an upload, in order; shared layers are last."""
        heads = (self.max_heads, self.head_length)
        return {
            "directions": heads,
            "heads": heads,
            "labels": (self.max_heads, self.n_tasks),
            "size": (),
            "least": (),
            "shared": (self.n_shared,),
        }

    @property
    def n_upload(self):
        """Numbers in an upload."""
        return sum(math.prod(shape) for shape in self.parts.values())

    @cached_property
    def sections(self):
        """Where the sections of an upload begin, and where the last one ends.

        Section 0 has all but the shared layers, the others have a block of these each.
        """
        first = self.n_upload - self.n_shared
        return [0, *range(first, self.n_upload, self.columns_at_once), self.n_upload]

    @property
    def n_sections(self):
        return len(self.sections) - 1

    def n_answer(self, section):
        """Numbers in a section of an answer: heads, then blocks of shared layers."""
        if section == 0:
            return self.max_heads * self.head_length
        return self.sections[section + 1] - self.sections[section]

    @property
    def total_bits(self):
        """Bits of a sum of N weights, H_ij D_j each."""
        return SCORE + self.max_heads.bit_length() + SIZE + self.n_clients.bit_length()

    @property
    def pairs_at_once(self):
        """Pairs of clients whose heads are matched at a time."""
        return max(1, _BLOCK // max(self.max_heads**2, 2**self.max_heads))

    @property
    def columns_at_once(self):
        """Shared parameters in a section."""
        return max(1, _COLUMNS // self.n_clients)

    def header(self, kind, client, rank, section, split):
        """What a share of one client belongs to; the dealer has the rank `n_servers`."""
        own = {"kind": kind, "client": client, "rank": rank, "section": section, "split": split}
        return self._same_in_all | own

    @cached_property
    def _same_in_all(self):
        return asdict(self) | {"scales": [SCORE, SIZE, VALUE, WEIGHT]}


def pack(header, *bodies):
    """-> bytearray: the header and the bytes of arrays."""
    line = json.dumps(header).encode().ljust(HEADER - 1) + b"\n"
    return bytearray().join([line, *(np.ascontiguousarray(x).data for x in bodies)])


def unpack(job, kind, client, rank, section, n_bytes, raw):
    """Check a message. -> split, body

    Raises ValueError, with job, client and server, when it is another message or of another length.
    """
    place = "the dealer" if rank == job.n_servers else f"server {rank}"
    what = f"{job}: the {kind} share of client {client} at {place}"
    try:
        found = json.loads(bytes(raw[:HEADER]))
        split = found["split"]
        if not re.fullmatch("[0-9a-f]{32}", split):
            raise ValueError
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError(f"{what} has no valid header. Send it again.") from None
    expected = job.header(kind, client, rank, section, split)
    other = [key for key in expected if found.get(key) != expected[key]]
    if other:
        text = ", ".join(
            f"{key}={ascii(found.get(key))[:80]} instead of {expected[key]!r}" for key in other
        )
        raise ValueError(f"{what} is another one: its header has {text}. Send the right one.")
    if len(raw) != HEADER + n_bytes:
        raise ValueError(
            f"{what} has {len(raw)} bytes instead of {HEADER + n_bytes}: it is cut or damaged. "
            "Send it again."
        )
    return split, memoryview(raw)[HEADER:]
