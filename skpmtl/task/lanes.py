"""Rows of tasks side by side, in the order in which vector instructions take them.

A lane has up to `ROWS` rows of one task, and a block has `WIDE` lanes. What a lane has fewer rows
or columns than the others of its block are zeros, which change no bit of what is computed from
it. A task of more rows has several lanes in a row, whose sums over rows are added up.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .._runtime.traced import WIDE
from ..tables.table import row_products, rows_of

ROWS = 64
_AT_ONCE = 1 << 20  # numbers of rows that are laid out at a time


@dataclass
class Chunk:
    """Some tasks of a table in coordinates of which each has no more than rows.

    Of a task of n < r rows, the coordinates X L are turned into n, by an orthogonal basis of the
    span of its rows. Behind them are indicators of subgroups, where rows are in some.
    """

    tasks: np.ndarray  # (m,)
    places: np.ndarray  # (R,), rows of these tasks in the table, task by task
    codes: np.ndarray  # (R,), to which of these tasks they belong
    sizes: np.ndarray  # (m,)
    X: np.ndarray  # (R, d), their rows
    A: np.ndarray  # (R, E), coordinates; E is even, and columns at the end are zero
    rank: int  # r, of the shape
    basis: dict  # {n: (tasks among these, bases (., r, E))}, of tasks of n < r rows
    columns: np.ndarray  # (m,), numbers of coordinates
    subgroups: np.ndarray  # (S,), subgroups of these tasks in the table
    places_of: tuple  # of (S,), their tasks and their columns of A

    @classmethod
    def all(cls, rows, root):
        """Of all tasks, those of few rows first. That of a table of one chunk is kept with its
        rows for the next call, which often is about the same shape."""
        sizes = np.diff(rows.offsets)
        order = np.argsort(sizes, kind="stable")
        width = max(rows.X.shape[1], 1) + rows.n_subgroups[order]
        which = np.cumsum((sizes[order] + 1) * width) // _AT_ONCE
        parts = np.split(order, np.flatnonzero(np.diff(which)) + 1)
        if len(parts) > 1:
            yield from (cls.of(rows, root, tasks, sizes[tasks]) for tasks in parts)
            return
        known, kept = rows.chunk or (None, None)
        if kept is None or not np.array_equal(known, root):
            kept = cls.of(rows, root, order, sizes[order], kept)
        rows.chunk = root, kept
        yield kept

    @classmethod
    def of(cls, rows, root, tasks, sizes, kept=None):
        """`kept`: the same tasks in coordinates of another shape."""
        r = root.shape[1]
        starts = np.cumsum(sizes) - sizes
        places = np.repeat(rows.offsets[tasks] - starts, sizes) + np.arange(sizes.sum())
        few, n_subgroups = np.minimum(sizes, r), rows.n_subgroups[tasks]
        A = np.zeros((len(places), max(_even((few + n_subgroups).max(initial=r)), 2)))
        X = rows.X[places] if kept is None else kept.X
        A[:, :r] = row_products(X, root)
        basis = {}
        for n in np.unique(sizes[sizes < r]):
            some = np.flatnonzero(sizes == n)
            at = starts[some][:, None] + np.arange(n)
            wide = np.zeros((len(some), r, A.shape[1]))
            if n > 0:
                wide[..., :n], R = np.linalg.qr(A[at][..., :r].transpose(0, 2, 1))
                A[at, n:], A[at, :n] = 0.0, R.transpose(0, 2, 1)
            basis[int(n)] = some, wide
        codes = np.repeat(np.arange(len(tasks)), sizes)
        subgroups, at = np.zeros((2, 0), dtype=np.int64)
        if rows.subgroups is not None:
            first = np.cumsum(rows.n_subgroups) - rows.n_subgroups
            A[np.arange(len(A)), (few - first[tasks])[codes] + rows.subgroups.of_row[places]] = 1.0
            subgroups, _ = rows_of(np.append(first, len(rows.subgroups.tasks)), tasks)
            at = subgroups + np.repeat(few - first[tasks], n_subgroups)
        owner = np.repeat(np.arange(len(tasks)), n_subgroups)
        known = few + n_subgroups, subgroups, (owner, at)
        found = cls(tasks, places, codes, sizes, X, A, r, basis, *known)
        if kept is not None and np.array_equal(kept.columns, found.columns):
            found.blocks = kept.blocks
        return found

    def of_subgroups(self):
        """Which coordinates are indicators of subgroups, (m, E); (m, 0) where none is."""
        found = np.zeros((len(self.tasks), self.A.shape[1] * (len(self.subgroups) > 0)))
        found[self.places_of] = 1.0
        return found

    def sums(self, values):
        """Sums over the rows of every task."""
        return np.bincount(self.codes, values, minlength=len(self.tasks))

    def squares(self, root, size):
        """L' diag(size) L in these coordinates, (m, E, E), for size (m, d)."""
        m, E = len(self.tasks), self.A.shape[1]
        found = np.zeros((m, E, E))
        for some, n, L in self._turned(root):
            found[some, :n, :n] = (L.swapaxes(-1, -2) * size[some, None]) @ L
        return found

    def _turned(self, vectors):
        """Vectors (., r) in the coordinates of tasks. -> tasks, n, (., n) or (tasks, ., n)"""
        few = np.zeros(len(self.tasks), dtype=bool)
        for n, (some, basis) in self.basis.items():
            few[some] = True
            yield some, n, vectors @ basis[..., :n]
        yield np.flatnonzero(~few), self.rank, vectors

    def wide(self, slopes):
        """Vectors (m, C, E) in the coordinates of the shape, (m, C, r)."""
        for n, (some, basis) in self.basis.items():
            turned = slopes[some, :, :n] @ basis[..., :n].transpose(0, 2, 1)
            slopes[some, :, : self.rank] = turned
        return slopes[..., : self.rank]

    def wide_moments(self, moment, outside):
        """Moments (m, C, 1 + E, 1 + E) there, with `outside` (m,) where a task has no rows."""
        r = self.rank
        for n, (some, basis) in self.basis.items():
            Q = np.zeros((len(some), 1, 1 + r, 1 + n))
            Q[:, 0, 0, 0], Q[:, 0, 1:, 1:] = 1.0, basis[..., :n]
            rest = np.eye(r) - basis[..., :n] @ basis[..., :n].transpose(0, 2, 1)
            found = Q @ moment[some, :, : 1 + n, : 1 + n] @ Q.transpose(0, 1, 3, 2)
            found[..., 1:, 1:] += outside[some, None, None, None] * rest[:, None]
            moment[some, :, : 1 + r, : 1 + r] = found
        return moment[..., : 1 + r, : 1 + r]

    def information(self, back, slopes, kept, precision):
        """Of the centre, scores of slopes (m, C, d) and information (m, C, 1 + d, 1 + d).

        `back` (r, d) is inverse to the root of the shape. For the posterior N(u, V) of slopes,
        `slopes` and `kept` are means over cells of u / kappa and V / kappa^2, and `precision` is
        that of 1 / kappa; `kept` has the information of the level first, and with slopes less it.
        """
        (m, C, _), d = slopes.shape, back.shape[1]
        score, info = np.zeros((m, C, d)), np.zeros((m, C, 1 + d, 1 + d))
        info[..., 0, 0] = kept[..., 0, 0]
        for some, n, turned in self._turned(back.T):
            own = kept[some, :, 1 : 1 + n, 1 : 1 + n]
            known = precision[some, None, None, None] * np.eye(n) - own
            turned = turned if turned.ndim == 2 else turned[:, None]
            score[some] = (turned @ slopes[some, :, :n, None])[..., 0]
            info[some, :, 1:, 1:] = turned @ known @ turned.swapaxes(-1, -2)
            both = -(turned @ kept[some, :, 1 : 1 + n, :1])
            info[some, :, 1:, :1], info[some, :, :1, 1:] = both, both.swapaxes(-1, -2)
        return score, info

    @cached_property
    def blocks(self):
        """Layouts of all tasks: blocks of the same numbers of rows and columns together."""
        m, n = len(self.tasks), self.sizes
        parts = np.clip(-(-n // ROWS), 1, WIDE)
        each = -(-n // parts)
        by_length = np.argsort(each, kind="stable")
        at = np.empty(m, dtype=np.int64)
        at[by_length] = _side_by_side(parts[by_length])
        n_lanes = (at + parts).max() if m else 0
        n_lanes += -n_lanes % WIDE
        first, count = np.zeros((2, n_lanes), dtype=np.int64)
        task, head = np.full(n_lanes, m), np.arange(n_lanes, dtype=np.int64)
        starts = np.cumsum(n) - n
        for part in range(parts.max(initial=0)):
            some = np.flatnonzero(parts > part)
            lanes = at[some] + part
            first[lanes] = starts[some] + part * each[some]
            count[lanes] = np.clip(n[some] - part * each[some], 0, each[some])
            task[lanes], head[lanes] = some, at[some]
        first, count, task, head = (x.reshape(-1, WIDE) for x in (first, count, task, head))
        columns = np.append(self.columns, 0)[task]
        lengths, widths = (np.maximum(_even(x.max(axis=1)), 2) for x in (count, columns))
        ends = np.flatnonzero(np.diff(lengths) | np.diff(widths)) + 1
        return [
            Lanes(*(x[some] for x in (first, count, task, head)), lengths[some[0]], widths[some[0]])
            for some in np.split(np.arange(len(first)), ends)
        ]


def _even(n):
    return n + n % 2


def _side_by_side(parts):
    """First lanes of tasks that have so many, so that none is in two blocks."""
    if parts.max(initial=1) == 1:
        return np.arange(len(parts))
    at, free = np.empty(len(parts), dtype=np.int64), 0
    for i, own in enumerate(parts.tolist()):
        if free % WIDE + own > WIDE:
            free += -free % WIDE
        at[i] = free
        free += own
    return at


@dataclass
class Lanes:
    """Layout of blocks of n rows and k columns; arrays are (blocks, WIDE)."""

    first: np.ndarray  # first row of a lane, among those of a chunk
    count: np.ndarray  # of its rows
    task: np.ndarray  # number among the tasks of the chunk; their number where a lane is empty
    head: np.ndarray  # first lane of the task, among all of the chunk
    n: int
    k: int
    fixed: np.ndarray | None = None  # numbers of rows that are laid out once

    def __post_init__(self):
        there = np.arange(self.n)[:, None] < self.count[:, None]
        self._rows = np.where(there, self.first[:, None] + np.arange(self.n)[:, None], -1)

    @property
    def heads(self):
        """First lanes within blocks (blocks, WIDE); (0, WIDE) where no task has several."""
        heads = self.head % WIDE
        return heads if (heads != np.arange(WIDE)).any() else heads[:0]

    def of_rows(self, x):
        """Numbers of rows (R, ...) -> (blocks, ..., n, WIDE), zeros where there are none."""
        x = np.concatenate([x, np.zeros((1, *x.shape[1:]))])[self._rows]
        order = 0, *range(3, x.ndim), 1, 2
        return np.ascontiguousarray(x.transpose(order))

    def of_columns(self, A):
        """Coordinates (R, E) -> (blocks, n, k, WIDE)."""
        return np.ascontiguousarray(self.of_rows(A[:, : self.k]).transpose(0, 2, 1, 3))

    def of_tasks(self, x):
        """Numbers of tasks (m, ...) -> (blocks, ..., WIDE)."""
        x = np.concatenate([x, np.zeros((1, *x.shape[1:]))])[self.task]
        return np.ascontiguousarray(np.moveaxis(x, 1, -1))

    def put(self, found, shapes, out):
        """(blocks, R, WIDE), numbers of these shapes, into what `out` has of them, (m, ...).

        Axes there may be longer.
        """
        task, at = self.task.ravel(), 0
        used = np.flatnonzero(task < len(out["evidence"]))
        used = used[self.head.ravel()[used] == used + self.head[0, 0] // WIDE * WIDE]
        found = found.transpose(0, 2, 1).reshape(task.size, -1)[used]
        for name, shape in shapes.items():
            size = math.prod(shape)
            if name in out:
                own = found[:, at : at + size].reshape(len(used), *shape)
                out[name][(task[used], *map(slice, shape))] = own
            at += size
