"""Tape of the releases of a fit, which an audit replays to the fit of a neighbour."""

import copy
import io
import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from .rng import TAPE


class TapeError(Exception):
    """A fit asks for other releases than the one that was recorded."""


@dataclass(frozen=True)
class Release:
    """One reply of chance."""

    entry: dict  # as ``describe()`` of a mechanism gives it; for a draw only "mechanism"
    reply: object  # ndarray or dict of ndarray: what was released or drawn
    # (n_parts, ...), what the noise was added to; empty for a draw. The stated sensitivity,
    # noise and norm are those of every part alone.
    values: np.ndarray
    # Bytes that the operating system gave while it was drawn; None where they do not settle it.
    bits: bytes | None = b""
    # Whole arrays in which replies are views, where these have more than the replies.
    behind: list = field(default_factory=list)
    # What the fit drew itself, where it was given another reply.
    own: "Release | None" = None


@dataclass(frozen=True)
class QueryRecord:
    """A query to the tasks, and the contribution of each task."""

    public: dict  # all fields of the `Query`
    positions: np.ndarray  # (n,) of int64, of tasks in the population
    # by name, ndarrays (n, ...) of these tasks, before they are added up; empty where
    # tasks add their noise themselves
    contributions: dict


class Tape:
    """Records all that is random in a fit, in `releases` and `queries`, or plays it.

    The replies of `played` are given instead of new ones, whatever the rows are. What the fit
    draws itself is recorded as well: from the same bytes of the operating system as in `played`,
    or, where `fresh`, from new ones. `with_queries`: whether queries are recorded, which takes
    another answer to each.
    """

    def __init__(self, played=None, *, with_queries=False, fresh=False):
        self.releases, self.queries = [], []
        self._played, self._with_queries, self._fresh = played, with_queries, fresh
        self.repeats = True  # a source that draws by other means than bytes sets it to False

    @contextmanager
    def running(self):
        """Within it `skpmtl.privacy.rng.replied` goes through this tape."""
        token = TAPE.set(self)
        try:
            yield self
        finally:
            TAPE.reset(token)

    def query(self, query, contributed):
        """Record a query to the tasks; ``contributed()`` as of `QueryRecord`."""
        if not self._with_queries:
            return
        public = {
            name: value if callable(value) else copy.deepcopy(value)
            for name, value in vars(query).items()
        }
        self.queries.append(QueryRecord(public, *contributed()))

    def reply(self, entry, draw, values):
        """The reply to a fit that describes its release by `entry`.

        See `skpmtl.privacy.rng.replied`.
        """
        place, known = len(self.releases), None
        if not callable(values):
            values = np.array(values)  # before `draw` adds its noise in place
            entry = {**entry, "shape": values.shape}
        if self._played is not None:
            if place == len(self._played.releases):
                raise TapeError(f"release {place + 1} ({entry['mechanism']}) is one too many")
            known = self._played.releases[place]
            if not _equal(known.entry, entry):
                raise TapeError(
                    f"release {place + 1} ({known.entry['mechanism']}) has other noise, "
                    "sensitivity or shape"
                )
        with _random_bytes(None if known is None or self._fresh else known.bits) as bits:
            self.repeats = True
            given = draw()
        drawn = copy.deepcopy(given)  # what is given away may be changed in place
        found = Release(entry, drawn, _at(values, drawn), b"".join(bits) if self.repeats else None)
        if known is not None:
            given = _overwritten(given, known.reply)
            found = Release(entry, known.reply, _at(values, known.reply), found.bits, own=found)
        found.behind.extend(_behind(given))
        self.releases.append(found)
        return given


@contextmanager
def _random_bytes(known):
    """Within it the operating system gives these bytes, or new ones; they are collected.

    Names of files do not count: numba makes one where the draw compiles a loop, and only then.
    """
    plain, taken, left = os.urandom, [], io.BytesIO(known or b"")

    def urandom(size):
        if sys._getframe(1).f_globals["__name__"] == "uuid":
            return plain(size)
        again = left.read(size)
        taken.append(again + plain(size - len(again)))
        return taken[-1]

    os.urandom = urandom
    try:
        yield taken
    finally:
        os.urandom = plain


def _at(values, reply):
    return values(reply) if callable(values) else values


def _arrays(reply):
    """The arrays of a reply, by name."""
    return reply if isinstance(reply, dict) else {"": reply}


def alike(a, b):
    """Whether two replies have the same names, in order, types and shapes."""
    a, b = ([(k, np.asarray(v).dtype, np.shape(v)) for k, v in _arrays(r).items()] for r in (a, b))
    return a == b


def _overwritten(given, reply):
    """`given` with the numbers of `reply`: its memory stays what it is, which is compared."""
    if not alike(given, reply):
        return copy.deepcopy(reply)
    for array, other in zip(_arrays(given).values(), _arrays(reply).values(), strict=True):
        if not isinstance(array, np.ndarray) or not array.flags.writeable:
            return copy.deepcopy(reply)
        array[...] = other
    return given


def memory(array):
    """The array that owns the memory of another one."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _behind(given):
    arrays = [array for array in _arrays(given).values() if isinstance(array, np.ndarray)]
    owners = {id(memory(array)): memory(array) for array in arrays}
    seen = dict.fromkeys(owners, 0)
    for array in arrays:
        seen[id(memory(array))] += array.nbytes
    return [np.array(owner) for key, owner in owners.items() if owner.nbytes > seen[key]]


def _equal(a, b):
    return a.keys() == b.keys() and all(np.array_equal(a[key], b[key]) for key in a)


def distance(difference, kind):
    """Norm of a difference of two releases, as a mechanism names it."""
    if kind == "nuclear" and difference.ndim == 2:
        return float(np.abs(np.linalg.eigvalsh(difference)).sum())
    if kind in ("frobenius", "l2"):
        return float(np.linalg.norm(difference))
    return float(np.abs(difference).sum())
