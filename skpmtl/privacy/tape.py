"""Tape of the releases of a fit, which an audit replays to the fit of a neighbour."""

import copy
from contextlib import contextmanager
from dataclasses import dataclass

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

    The replies of `played` are given instead of new ones, whatever the rows are. `with_queries`:
    whether queries are recorded, which takes another answer to each.
    """

    def __init__(self, played=None, *, with_queries=False):
        self.releases, self.queries = [], []
        self._played, self._with_queries = played, with_queries

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
        place = len(self.releases)
        if not callable(values):
            values = np.array(values)  # before `draw` adds its noise in place
            entry = {**entry, "shape": values.shape}
        if self._played is None:
            reply = draw()
        elif place == len(self._played.releases):
            raise TapeError(f"release {place + 1} ({entry['mechanism']}) is one too many")
        else:
            known = self._played.releases[place]
            if not _equal(known.entry, entry):
                raise TapeError(
                    f"release {place + 1} ({known.entry['mechanism']}) has other noise, "
                    "sensitivity or shape"
                )
            reply = known.reply
        values = values(reply) if callable(values) else values
        # What is given away may be changed in place.
        self.releases.append(Release(entry, copy.deepcopy(reply), values))
        return copy.deepcopy(reply)


def _equal(a, b):
    return a.keys() == b.keys() and all(np.array_equal(a[key], b[key]) for key in a)


def distance(difference, kind):
    """Norm of a difference of two releases, as a mechanism names it."""
    if kind == "nuclear" and difference.ndim == 2:
        return float(np.abs(np.linalg.eigvalsh(difference)).sum())
    if kind in ("frobenius", "l2"):
        return float(np.linalg.norm(difference))
    return float(np.abs(difference).sum())
