"""Updates of a round: the clipped difference of a model around the centre to the centre."""

import numpy as np

from .._kernels.grams import packed_products
from .._kernels.short import short_inverses, short_prox
from .._kernels.steps import add_clipped
from .._runtime.threads import in_order, run_blocks
from ..privacy.mechanisms import clip_rows
from ..tables.table import array_in_file
from .centred import KEPT, share_of_centre
from .grams import NARROW, are_few, packed_task_inverses, task_inverses


def is_squared(centred):
    """Whether the tasks have squared loss and dense rows, whose averages are exact."""
    return centred.problem.loss == "squared" and not centred.table.is_sparse


def is_exact(centred):
    """Whether the tasks have exact proximal models.

    Otherwise they take a few gradient steps, which is another number: the rule must not read how
    many rows there are, or one task could change what all the others send.
    """
    return is_squared(centred) and centred.table.n_features <= NARROW


class ProximalModels:
    """Exact proximal models of squared loss (`is_exact`), by a matrix for every task."""

    def __init__(self, centred):
        self.centred = centred
        # Kept from round to round, in a file as the rows, where they are as few numbers.
        self.matrices = None

    def _triangles(self):
        """Numbers of the matrix of each task of few rows; 0 of the others."""
        sizes = self.centred.table.sizes
        return np.where(sizes < self.centred.least, sizes * (sizes + 1) // 2, 0)

    def _short_matrices(self, first, last, room=None):
        """-> starts, K and strengths of a block of tasks, as `short_prox` takes them."""
        centred, table, part = self.centred, self.centred.table, slice(first, last)
        starts = np.concatenate([[0], np.cumsum(self._triangles()[part])])
        strength = centred.prox_strength[part]
        K = np.empty(starts[-1]) if room is None else room[: starts[-1]]
        strengths = np.empty(last - first)
        short_inverses(
            *centred.indexed,
            table.offsets[first : last + 1],
            starts,
            centred.scale[part],
            centred.problem.fit_intercept,
            strength + centred.problem.ridge,
            K,
            strengths,
            table.weights,
            centred.least,
        )
        return starts, K, strengths

    def differences(self, centres, pick=slice(None), unit=None):
        """Of the models of the tasks `pick` to their `share_of_centre`, (n, d).

        `unit` (n_tasks,): what a task multiplies its centre by.
        """
        centred, table, problem = self.centred, self.centred.table, self.centred.problem
        d, (tasks, long), ranges = table.n_features, centred.long, centred.short_ranges()
        strength = centred.prox_strength
        share = share_of_centre(strength, problem.ridge)
        towards = strength if unit is None else strength * unit
        share = share if unit is None else share * unit
        if self.matrices is None:
            total = strength[tasks] + problem.ridge
            settings = long, problem, centred.scale[tasks], total
            # Whole matrices where they are few: no loop is compiled for them.
            inverses = task_inverses if are_few(table, d) else packed_task_inverses
            blocks = inverses(*settings)
            matrices, size, triangles = None, d * (d + 1) // 2, self._triangles()
            n_long = len(tasks) * size
            numbers = n_long + int(triangles.sum())
            if numbers <= max(KEPT, table.X.size):
                parts = [(*ends, None) for ends in ranges]
                if table.on_disk and numbers > KEPT:
                    room = array_in_file(numbers)
                    blocks = _moved(blocks, room[:n_long].reshape(-1, size))
                    starts = n_long + np.cumsum(triangles) - triangles
                    parts = [(*ends, room[starts[ends[0]] :]) for ends in ranges]
                blocks, matrices = list(blocks), run_blocks(self._short_matrices, parts)
                self.matrices = blocks, matrices  # else they are made again in every round
        else:
            blocks, matrices = self.matrices
        picked = np.arange(table.n_tasks)[pick]
        out = np.empty((len(picked), centres.shape[1]))

        def short_block(number, first, last):
            found = matrices[number] if matrices else self._short_matrices(first, last)
            starts, K, strengths = found
            part, some = slice(first, last), slice(*np.searchsorted(picked, (first, last)))
            short_prox(
                *centred.indexed,
                table.y,
                table.offsets[first : last + 1],
                starts,
                K,
                strengths,
                problem.fit_intercept,
                picked[some] - first,
                centres,
                centred.which[part],
                towards[part],
                share[part],
                out[some],
                table.weights,
                centred.least,
            )

        run_blocks(short_block, [(number, *ends) for number, ends in enumerate(ranges)])
        at = np.flatnonzero(table.sizes[picked] >= centred.least)
        place = np.searchsorted(tasks, picked[at])
        for first, last, inverse, h in blocks:
            some = slice(*np.searchsorted(place, (first, last)))
            if some.stop - some.start < last - first:
                inverse, h = inverse[place[some] - first], h[place[some] - first]
            mine, k = centres[centred.which[picked[at[some]]]], picked[at[some]]
            if inverse.ndim == 3:
                D = (inverse @ (towards[k, None] * mine)[:, :, None])[:, :, 0]
            else:
                D = np.empty_like(h)
                packed_products(inverse, towards[k, None] * mine, D)
            D += h
            D -= share[k, None] * mine
            out[at[some]] = D
        return out


def _moved(blocks, room):
    """Blocks of matrices, which are stored in `room`."""
    for first, last, K, h in blocks:
        room[first:last] = K
        yield first, last, room[first:last], h


def lengths(centred, n_steps=12, tol=1e-3, centres=None):
    """Length (n_tasks,) of every task's proximal model, under the penalty of the rounds: its unit.

    Around zero, or of the difference to `centres`. Other arguments are those of `ProximalUpdates`.
    """
    size, found = centred.problem.n_outputs * centred.table.n_features, np.empty(len(centred.which))
    centres = np.zeros((centred.which.max() + 1, size)) if centres is None else centres
    if is_exact(centred):
        D = ProximalModels(centred).differences(centres)
        found[:] = np.sqrt(np.einsum("kj,kj->k", D, D))
    else:
        strength, ridge = centred.prox_strength, centred.problem.ridge

        def solve(block):
            return centred.steps(block, centres, strength, hold=ridge, n_steps=n_steps, tol=tol)

        for local in in_order(solve, centred.blocks(np.arange(len(found)))):
            some = np.diff(local.ends) > 0  # others have no column that is not zero
            found[local.pick] = 0.0
            squares = np.add.reduceat(local.D**2, local.ends[:-1][some])
            found[local.pick[some]] = np.sqrt(squares)
    return np.where(np.isfinite(found), found, 0.0)


def add_to(total, to, D):
    """Add the rows of D to `total` (n_centres, size): to one of its rows each, or to all."""
    if to.ndim == 2:
        total += to.T @ D
    elif len(total) == 1:
        total[0] += D.sum(axis=0)
    else:
        np.add.at(total, to, D)


def add_clipped_rows(D, to, clip_norm, total):
    """Clip the rows of D in place and add them to the total."""
    if np.isfinite(clip_norm):
        clip_rows(D, clip_norm)
    add_to(total, to, D)


def in_units(D, unit, tasks):
    """Divide the rows (or numbers) of D by the units of their tasks, in place; by 0: 0."""
    if unit is not None:
        inverse = np.where(unit > 0, 1.0 / np.where(unit > 0, unit, 1.0), 0.0)[tasks]
        D *= inverse if D.ndim == 1 else inverse[:, None]
    return D


def add_clipped_columns(local, centred, centres, share, clip_norm, total):
    """`add_clipped_rows` for a block of sparse tasks; differences are to `share` of the centres.

    They add to one centre each: with a relation rows are dense.
    """
    add_clipped(
        local.D,
        local.columns,
        local.ends,
        centred.problem.n_outputs,
        local.pick,
        centres,
        centred.which,
        share,
        clip_norm,
        total,
    )


class ProximalUpdates:
    """Updates prox_k(w~) - w~, for which tasks keep nothing between rounds.

    Where the proximal model is not exact, `n_steps` are taken towards it; the last of them may move
    it by `tol` of its distance to the centre.
    """

    W = None

    def __init__(self, centred, *, n_steps, tol):
        self.centred, self.n_steps, self.tol = centred, n_steps, tol
        self.exact = ProximalModels(centred) if is_exact(centred) else None
        if self.exact is None:
            centred.keep_grams()

    def at(self, centres):
        """Updates of all tasks, before they are clipped, (n_tasks, size)."""
        return self.with_intercepts(centres)[0]

    def with_intercepts(self, centres):
        """`at`, and intercepts (n_tasks, n_outputs) of log-losses; zeros of exact models."""
        centred, C = self.centred, self.centred.problem.n_outputs
        everybody = np.arange(centred.table.n_tasks)
        b = np.zeros((len(everybody), C))
        if self.exact is not None:
            return self.exact.differences(centres), b
        out = np.zeros((len(everybody), centres.shape[1] // C, C))

        def solve(block):
            return centred.steps(
                block, centres, centred.prox_strength, n_steps=self.n_steps, tol=self.tol
            )

        for local in in_order(solve, centred.blocks(everybody)):
            b[local.pick] = local.b
            if centred.table.is_sparse:
                tasks = np.repeat(local.pick, np.diff(local.ends) // C)
                out[tasks, local.columns] = local.D.reshape(-1, C)
            else:
                out.reshape(len(out), -1)[local.pick] = local.D.reshape(len(local.pick), -1)
        return out.reshape(len(out), -1), b

    def sum_of_updates(self, pick, centres, clip_norm, total, unit=None, to=None):
        """Add the clipped updates of the tasks `pick` to `total` (n_centres, size).

        `centres` are those of `CentredTasks.which`. `unit` (n_tasks,): in units of the tasks, which
        take the centre to be in theirs; 0: such a task sends zeros. `to` (n_tasks, ...): as for
        `CentredTasks`; None: to the centres of the tasks.
        """
        centred, ridge = self.centred, self.centred.problem.ridge
        share, which = share_of_centre(centred.prox_strength, ridge), centred.which
        to = which if to is None else to
        if self.exact is not None:
            everybody = len(pick) == len(which)
            D = self.exact.differences(centres, slice(None) if everybody else pick, unit)
            in_units(D, unit, pick)
            if ridge:
                D += (share[pick] - 1.0)[:, None] * centres[which[pick]]
            add_clipped_rows(D, to[pick], clip_norm, total)
            return

        def solve(block):
            return centred.steps(
                block,
                centres,
                centred.prox_strength,
                hold=ridge,
                unit=unit,
                n_steps=self.n_steps,
                tol=self.tol,
            )

        for local in in_order(solve, centred.blocks(pick)):
            if centred.table.is_sparse:
                in_units(local.D, unit, np.repeat(local.pick, np.diff(local.ends)))
                add_clipped_columns(local, centred, centres, share, clip_norm, total)
                continue
            block, D = local.pick, local.D.reshape(len(local.pick), -1)
            in_units(D, unit, block)
            if ridge:
                D += (share[block] - 1.0)[:, None] * centres[which[block]]
            add_clipped_rows(D, to[block], clip_norm, total)
