"""Exact proximal models of squared loss, by factorisation: dense rows of few features."""

import numpy as np

from .._kernels.grams import gram_product
from .._kernels.leave_one_out import leave_one_out
from .._kernels.short import short_fits, short_inverses, short_prox
from .._runtime.threads import run_blocks, single_blas_thread, task_blocks
from ..local.grams import NARROW, grams, row_blocks, task_inverses
from .centred import share_of_centre


def is_exact(centred):
    """Whether the tasks have exact proximal models.

    Otherwise they take a few gradient steps, which is another number: the rule must not read how
    many rows there are, or one task could change what all the others send.
    """
    table = centred.table
    squared = centred.problem.loss == "squared"
    return squared and not table.is_sparse and table.n_features <= NARROW


class ProximalModels:
    """Exact proximal models of squared loss, by a matrix for every task.

    Parameters
    ----------
    centred : CentredTasks
        For which `is_exact` holds.
    """

    def __init__(self, centred):
        self.centred = centred
        # Kept from round to round where they fit in about as much room as the rows.
        self.matrices = None

    def _short_matrices(self, first, last):
        """-> starts, K and pulls of a block of tasks, as `short_prox` takes them."""
        centred, table, part = self.centred, self.centred.table, slice(first, last)
        sizes = table.sizes[part]
        numbers = np.where(sizes < table.n_features, sizes * (sizes + 1) // 2, 0)
        starts, pull = np.concatenate([[0], np.cumsum(numbers)]), centred.prox_pull[part]
        K, pulls = np.empty(starts[-1]), np.empty(last - first)
        short_inverses(
            *centred.indexed, table.offsets[first : last + 1], starts, centred.scale[part],
            centred.problem.fit_intercept, pull + centred.problem.ridge, K, pulls,
        )  # fmt: skip
        return starts, K, pulls

    def differences(self, centres, pick=slice(None)):
        """Of the models of the tasks `pick` to their `share_of_centre`, (n, d)."""
        centred, table, problem = self.centred, self.centred.table, self.centred.problem
        d, (tasks, long), ranges = table.n_features, centred.long, centred.short_ranges()
        pull, share = centred.prox_pull, share_of_centre(centred.prox_pull, problem.ridge)
        if self.matrices is None:
            blocks = task_inverses(long, problem, centred.scale[tasks], pull[tasks] + problem.ridge)
            matrices = None
            room = max(1 << 20, 0 if table.on_disk else table.X.size)
            short = table.sizes[table.sizes < d]
            if len(tasks) * d * d + int(short @ (short + 1)) // 2 <= room:
                blocks, matrices = list(blocks), run_blocks(self._short_matrices, ranges)
                self.matrices = blocks, matrices  # else they are made again in every round
        else:
            blocks, matrices = self.matrices
        picked = np.arange(table.n_tasks)[pick]
        out = np.empty((len(picked), centres.shape[1]))

        def short_block(number, first, last):
            starts, K, pulls = matrices[number] if matrices else self._short_matrices(first, last)
            part, some = slice(first, last), slice(*np.searchsorted(picked, (first, last)))
            short_prox(
                *centred.indexed, table.y, table.offsets[first : last + 1], starts, K, pulls,
                problem.fit_intercept, picked[some] - first, centres, centred.which[part],
                pull[part], share[part], out[some],
            )  # fmt: skip

        run_blocks(short_block, [(number, *ends) for number, ends in enumerate(ranges)])
        at = np.flatnonzero(table.sizes[picked] >= d)
        place = np.searchsorted(tasks, picked[at])
        for first, last, inverse, h in blocks:
            some = slice(*np.searchsorted(place, (first, last)))
            if some.stop - some.start < last - first:
                inverse, h = inverse[place[some] - first], h[place[some] - first]
            mine, k = centres[centred.which[picked[at[some]]]], picked[at[some]]
            D = np.empty_like(h)
            gram_product(inverse, pull[k, None] * mine, D)
            D += h
            D -= share[k, None] * mine
            out[at[some]] = D
        return out


def exact_models(centred, pull, hold, centres, coef, intercept):
    """Proximal models of squared loss by factorisation, into `coef` and `intercept`."""
    for part, fit in exact_fits(centred, centres):
        coef[part], intercept[part, 0], _, _ = fit(pull[part], hold[part])


def exact_fits(centred, centres):
    """Blocks of tasks with their exact fits of squared loss; dense rows, up to `NARROW` features.

    Yields (part, fit): the positions of the tasks, and a function of their pulls to the centres
    and to zero -> models (n, d), intercepts (n,), residuals of their rows, task after
    task, and those that fits without the row would leave (in tasks with as many rows as features
    only when its third argument is true).
    """
    table, centre, d = centred.table, centred.problem.fit_intercept, centred.table.n_features
    for first, last in task_blocks(table.offsets, d, 1 << 20):
        part = first + np.flatnonzero(table.sizes[first:last] < d)
        if len(part):

            def fit(pull, hold, leave=True, part=part):
                W, b = np.empty((len(part), d)), np.empty(len(part))
                r, left = np.empty((2, table.sizes[part].sum()))
                short_fits(
                    *centred.indexed, table.y, table.offsets, centred.scale, centre, part, centres,
                    centred.which, pull, hold, W, b, r, left,
                )  # fmt: skip
                return W, b, r, left

            yield part, fit
    tasks, table = centred.long
    diagonal = np.arange(d)
    for first, last, rows, X in row_blocks(table):
        part, y = tasks[first:last], table.y[rows]
        ends, scale = table.offsets[first : last + 1] - rows.start, centred.scale[part]
        sizes, starts = np.diff(ends), ends[:-1]
        codes = np.repeat(np.arange(last - first), sizes)
        G, g, _ = grams(X, y, ends, scale, centre)
        floor = 1e-12 * np.einsum("kjj->k", G)  # columns of absurd size must not end all fits

        def fit(pull, hold, leave=False, part=part, X=X, y=y, ends=ends, scale=scale, sizes=sizes,
                starts=starts, codes=codes, G=G, g=g, floor=floor):  # fmt: skip
            A, right = G.copy(), g + pull[:, None] * centres[centred.which[part]]
            A[:, diagonal, diagonal] += np.maximum(pull + hold, floor)[:, None]
            with single_blas_thread():
                if leave:
                    inverse = np.linalg.inv(A)
                    W = np.einsum("kij,kj->ki", inverse, right)
                else:
                    W = np.linalg.solve(A, right[:, :, None])[:, :, 0]
            r = y - np.einsum("ij,ij->i", X, W[codes])
            b = np.add.reduceat(r, starts) / sizes if centre else np.zeros(len(sizes))
            r -= b[codes]
            left = r.copy()
            if leave:
                leave_one_out(X, ends, inverse, scale, centre, left)
            return W, b, r, left

        yield part, fit
