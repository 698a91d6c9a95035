"""What tasks send in a round: the clipped way from the centre to a model around it."""

import numpy as np

from .._kernels.clip import clip_rows
from .._kernels.steps import add_clipped
from .._runtime.threads import in_order
from .centred import share_of_centre
from .proximal import ProximalModels, is_exact


def add_to(total, to, D):
    """Add the rows of D to `total` (n_centres, size): to one of its rows each, or to all."""
    if to.ndim == 2:
        total += to.T @ D
    elif len(total) == 1:
        total[0] += D.sum(axis=0)
    else:
        np.add.at(total, to, D)


def add_clipped_rows(D, to, clip_norm, total):
    """Clip the rows of D in place and add them to the total; -> rows inside the bound."""
    norms = np.sqrt(np.einsum("kj,kj->k", D, D))
    if np.isfinite(clip_norm):
        clip_rows(D, clip_norm, 2, D)
    add_to(total, to, D)
    return int((norms <= clip_norm).sum())


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
    below = np.empty(len(local.pick), dtype=bool)
    add_clipped(
        local.D, local.columns, local.ends, centred.problem.n_outputs, local.pick, centres,
        centred.which, share, clip_norm, total, below,
    )  # fmt: skip
    return int(below.sum())


class ProximalUpdates:
    """Updates prox_k(w~) - w~, for which tasks keep nothing between rounds.

    Parameters
    ----------
    centred : CentredTasks
    n_steps : int
    tol : float
        Where the proximal model is not exact, steps towards it, and the part of its distance to
        the centre by which the last of them may move it.
    """

    W = None

    def __init__(self, centred, *, n_steps, tol):
        self.centred, self.n_steps, self.tol = centred, n_steps, tol
        self.exact = ProximalModels(centred) if is_exact(centred) else None

    def ways(self, centres):
        """Updates of all tasks to one output, before they are clipped, (n_tasks, size)."""
        centred = self.centred
        if self.exact is not None:
            return self.exact.differences(centres)
        everybody = np.arange(centred.table.n_tasks)
        out = np.zeros((len(everybody), centres.shape[1]))

        def solve(block):
            return centred.steps(
                block, centres, centred.prox_pull, n_steps=self.n_steps, tol=self.tol
            )

        for local in in_order(solve, centred.blocks(everybody)):
            if centred.table.is_sparse:
                out[np.repeat(local.pick, np.diff(local.ends)), local.columns] = local.D
            else:
                out[local.pick] = local.D.reshape(len(local.pick), -1)
        return out

    def sum_of_updates(self, pick, centres, clip_norm, total, unit=None, to=None):
        """Add the clipped updates of the tasks `pick` to `total` (n_centres, size).

        `centres` are those of `CentredTasks.which`. `unit` (n_tasks,): in units of the tasks, which
        take the centre to be in theirs; 0: such a task sends zeros. `to` (n_tasks, ...): as for
        `skpmtl.rounds.curator.release_centre`; None: to the centres of the tasks. Returns how
        many were inside the bound.
        """
        centred, ridge = self.centred, self.centred.problem.ridge
        share, which = share_of_centre(centred.prox_pull, ridge), centred.which
        to = which if to is None else to
        if self.exact is not None:
            everybody = len(pick) == len(which)
            D = self.exact.differences(centres, slice(None) if everybody else pick, unit)
            in_units(D, unit, pick)
            if ridge:
                D += (share[pick] - 1.0)[:, None] * centres[which[pick]]
            return add_clipped_rows(D, to[pick], clip_norm, total)
        inside = 0

        def solve(block):
            return centred.steps(
                block, centres, centred.prox_pull, hold=ridge, unit=unit, n_steps=self.n_steps,
                tol=self.tol,
            )  # fmt: skip

        for local in in_order(solve, centred.blocks(pick)):
            if centred.table.is_sparse:
                in_units(local.D, unit, np.repeat(local.pick, np.diff(local.ends)))
                inside += add_clipped_columns(local, centred, centres, share, clip_norm, total)
                continue
            block, D = local.pick, local.D.reshape(len(local.pick), -1)
            in_units(D, unit, block)
            if ridge:
                D += (share[block] - 1.0)[:, None] * centres[which[block]]
            inside += add_clipped_rows(D, to[block], clip_norm, total)
        return inside
