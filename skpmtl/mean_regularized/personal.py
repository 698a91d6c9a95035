"""What mean-regularised rounds publish, and how a task turns it into a model of its own."""

import numpy as np

from .._kernels.leave_one_out import leave_one_out
from .._kernels.short import short_fits
from .._runtime.threads import in_order, single_blas_thread, task_blocks
from ..local.grams import NARROW, grams, row_blocks
from ..solvers.losses import SquaredLoss
from .tasks import CentredTasks

# Weight of the noise in the trust in the shared model, by kind of loss. The residual variance of
# a few rows tells little: it counts 1 + _VARIANCE_ROWS / n_k times.
_NOISE_WEIGHT, _VARIANCE_ROWS = (0.3, 1.0, 1.0), 5.0
# A task goes alone where the leave-one-out errors that it saves are, in units of their standard
# error, _DOUBT + _DOUBT_ROWS / n_k; that is never so for less than seven rows.
_DOUBT, _DOUBT_ROWS = 1.0, 10.0
_AUTO_DIVERGENCE = 0.5  # strength of the divergence penalty when lam="auto"
_FINETUNE_STEPS = 20
_DENSE_LIMIT = 1 << 20  # coefficients of all tasks are an array up to this many numbers


class Models:
    """Personal models of the tasks of a table.

    Wide sparse tasks differ from the shared model on the columns that occur in their rows
    only. These differences are kept when they are small beside the rows; otherwise the rows
    are, and a model is computed again when it is asked for.
    """

    def __init__(self, table, board, dense=None):
        board = board.for_rows(table.is_sparse)
        self.board, self.problem, self.means = board, board.problem, board.means
        self.which = board.clusters(table.tasks)
        self.half = CentredTasks(table, board.problem, self.which)
        self.shape = board.shape
        self.intercept = np.empty((table.n_tasks, board.problem.n_outputs))
        size = table.n_tasks * self.means.shape[1]
        self.dense = not table.is_sparse or size <= _DENSE_LIMIT if dense is None else dense
        everybody = np.arange(table.n_tasks)
        lam = self._strength()
        self._lam, self._stored = lam, None
        self.factor = np.ones(table.n_tasks)
        if board.personalization == "mean-reg":
            self.factor = self.half.factor(lam)
        if self.dense:
            self.coef = self._dense(everybody)
            return
        # Columns and values of a model against the indices and values of the rows.
        C = board.problem.n_outputs
        room = 2 * len(table.X.data)
        if (C + 1) * int(self.half.widths.sum()) <= room:
            self._stored = [None] * table.n_tasks
        if self._stored is not None or board.problem.fit_intercept:
            for local in self._locals(everybody):
                for k, columns, values in self._solved(local):
                    if self._stored is not None:
                        self._stored[k] = columns, values
        else:
            self.intercept[:] = 0.0
        if self._stored is not None:
            self.half = None

    def _strength(self):
        """Strength of every task's penalty for the variant asked for."""
        board, half = self.board, self.half
        problem = board.problem
        if board.personalization == "symmetrized-kl" and isinstance(problem.lam, str):
            return np.full(len(half.own_lam), _AUTO_DIVERGENCE)
        if board.personalization != "mean-reg" or not board.noise_variance.any():
            return half.own_lam
        lost = board.lost()
        if lost.any():  # nothing but noise: these tasks go alone
            # Zeros that nobody writes to take no memory.
            self.means = np.zeros(board.means.shape)
            self.means[~lost] = board.means[~lost]
        if self._exact():
            return half.own_lam  # `_choose` finds the rest
        everybody = np.arange(len(half.own_lam))
        variance = self._residual_variance() if problem.kind == 0 else np.ones(len(everybody))
        lam, half.ridge = self._pulls(everybody, variance)
        return lam

    def _pulls(self, pick, variance):
        """Strengths of the pulls of the tasks `pick` towards the shared model and towards zero.

        The first is trust own_lam, with trust = 1 / (1 + r + r^2) for the ratio r = `_NOISE_WEIGHT`
        own_lam n_k noise / s_k^2 (mean losses; s_k^2 is 1 for classes). The second is lone_lam
        (1 - trust)^4: where noise prevails the task ends with the model that it has alone.
        """
        half, board, kind = self.half, self.board, self.problem.kind
        sizes, own, lone = half.table.sizes[pick], half.own_lam[pick], half.lone_lam[pick]
        which = self.which[pick]
        known = sizes * half.scale[pick] * variance  # sizes * scale is 1 for mean losses
        if kind == 0:
            known *= 1.0 + _VARIANCE_ROWS / sizes
        noise = _NOISE_WEIGHT[kind] * sizes * board.noise_variance[which] * own
        q = known / np.maximum(known + noise, 1e-300)  # 1 / (1 + r)
        trust = q * q / (1.0 - q + q * q)
        lost = board.lost()[which]
        lam = np.where(lost, lone, own * trust)
        return lam, self.problem.ridge + np.where(lost, 0.0, lone * (1.0 - trust) ** 4)

    def _exact(self):
        """Whether the tasks compare leave-one-out errors; nothing here depends on their number."""
        table = self.half.table
        return (
            self.problem.kind == 0
            and not table.is_sparse
            and table.n_features <= NARROW
            and self.board.personalization == "mean-reg"
            and bool(self.board.noise_variance.any())
        )

    def _choose(self, coef):
        """Models of squared loss around the shared model or, where that is clearly better, alone.

        Every task compares the leave-one-out errors of the two; `coef` receives its choice.
        """
        half = self.half
        for part, fit in exact_fits(half, self.means):
            sizes = half.table.sizes[part]
            starts = np.cumsum(sizes) - sizes
            _, _, r, _ = fit(half.own_lam[part], half.ridge[part])
            pull, hold = self._pulls(part, np.add.reduceat(r * r, starts) / sizes)
            W, b, _, left = fit(pull, hold, True)
            hold = half.lone_lam[part] + half.ridge[part]
            lone_W, lone_b, _, lone_left = fit(0.0 * pull, hold, True)
            saved = left * left - lone_left * lone_left
            size = np.sqrt(np.add.reduceat(saved * saved, starts))
            alone = np.add.reduceat(saved, starts) > (_DOUBT + _DOUBT_ROWS / sizes) * size
            coef[part] = np.where(alone[:, None], lone_W, W)
            self.intercept[part, 0] = np.where(alone, lone_b, b)

    def _residual_variance(self):
        """Mean squared residual of each task's model at the strength without noise."""
        half = self.half
        variance = np.empty(len(self.which))
        everybody = np.arange(len(self.which))
        blocks = half.blocks(everybody)
        for local in in_order(lambda block: self._proximal(block, half.own_lam), blocks):
            variance[local.pick] = local.variance
        return variance

    def _proximal(self, block, lam):
        steps, tol = (1000, 1e-8) if self.problem.kind == 0 else (60, 1e-4)
        return self.half.steps(block, self.means, lam, n_steps=steps, tol=tol)

    def _local(self, block):
        board, variant = self.board, self.board.personalization
        if variant == "mean-reg":
            return self._proximal(block, self._lam)
        steps = _FINETUNE_STEPS if isinstance(board.local_steps, str) else board.local_steps
        lam, penalty = self._lam, "free"
        if variant == "finetune":
            lam = np.zeros_like(lam)
        elif variant == "none":  # the intercept alone is fitted, where there is one
            lam = 1e9 * (1.0 + self.half.smoothness)
            steps = 100 if self.problem.fit_intercept else 0
        else:
            penalty = "predictions" if variant == "symmetrized-kl" else "fisher"
        local = self.half.steps(
            block, self.means, lam, n_steps=steps, accelerate=False, penalty=penalty
        )
        if variant == "none":
            local.D[:] = 0.0
        return local

    def _locals(self, pick):
        """`Local` of the tasks `pick`, block by block."""
        return in_order(self._local, self.half.blocks(pick))

    def _solved(self, local):
        """Yield (task, columns, values (n_columns, n_outputs)) of a block of sparse tasks."""
        C = self.problem.n_outputs
        self.intercept[local.pick] = local.b
        for a, k in enumerate(local.pick):
            ends = slice(local.ends[a], local.ends[a + 1])
            columns = slice(local.ends[a] // C, local.ends[a + 1] // C)
            yield int(k), local.columns[columns].copy(), local.D[ends].reshape(-1, C).copy()

    def _dense(self, everybody):
        """Coefficients (n_tasks, *shape) of all tasks."""
        half, board, C = self.half, self.board, self.problem.n_outputs
        means = board.shaped(self.means)
        coef = means[self.which] * self.factor.reshape(-1, *[1] * len(self.shape))
        if self._exact():
            self._choose(coef)
            return coef
        if half.factorised() and board.personalization == "mean-reg":
            exact_models(half, self._lam, self.means, coef, self.intercept)
            return coef
        for local in self._locals(everybody):
            if half.table.is_sparse:
                for k, columns, values in self._solved(local):
                    coef[k].reshape(C, -1)[:, columns] += values.T
            else:
                self.intercept[local.pick] = local.b
                coef[local.pick] += local.D.reshape(len(local.pick), *self.shape)
        return coef

    def differences(self, pick):
        """Yield (task, columns, values) of the tasks at the positions `pick`, sparse only."""
        if self._stored is not None:
            for k in pick:
                yield (int(k), *self._stored[k])
            return
        for local in self._locals(np.asarray(pick)):
            yield from self._solved(local)

    def task_coef(self, k):
        """Coefficients of one task, of shape `shape`."""
        if self.dense:
            return self.coef[k].copy()
        means = self.board.shaped(self.means)
        coef = means[self.which[k]] * self.factor[k]
        for _, columns, values in self.differences([k]):
            coef.reshape(self.problem.n_outputs, -1)[:, columns] += values.T
        return coef

    def scores(self, X, k):
        """Scores (n_rows, n_outputs) of CSR rows under the model of task k."""
        shared = self.means[self.which[k]].reshape(X.shape[1], -1)
        out = self.factor[k] * (X @ shared)
        for _, columns, values in self.differences([k]):
            out += X[:, columns] @ values
        return out + self.intercept[k]


def exact_models(half, lam, means, coef, intercept):
    """Proximal models of squared loss by factorisation, into `coef` and `intercept`."""
    for part, fit in exact_fits(half, means):
        coef[part], intercept[part, 0], _, _ = fit(lam[part], half.ridge[part])


def exact_fits(half, means):
    """Blocks of tasks with their exact fits of squared loss; dense rows, up to `NARROW` features.

    Yields (part, fit): the positions of the tasks, and a function of their pulls to the shared
    models and to zero -> models (n, d), intercepts (n,), residuals of their rows, task after
    task, and those that fits without the row would leave (in tasks with as many rows as features
    only when its third argument is true).
    """
    table, centre, d = half.table, half.problem.fit_intercept, half.table.n_features
    for first, last in task_blocks(table.offsets, d, 1 << 20):
        part = first + np.flatnonzero(table.sizes[first:last] < d)
        if len(part):

            def fit(pull, hold, leave=True, part=part):
                W, b = np.empty((len(part), d)), np.empty(len(part))
                r, left = np.empty((2, table.sizes[part].sum()))
                short_fits(
                    *half.indexed, table.y, table.offsets, half.scale, centre, part, means,
                    half.which, pull, hold, W, b, r, left,
                )  # fmt: skip
                return W, b, r, left

            yield part, fit
    tasks, table = half.long
    diagonal = np.arange(d)
    for first, last, rows, X in row_blocks(table):
        part, y = tasks[first:last], table.y[rows]
        ends, scale = table.offsets[first : last + 1] - rows.start, half.scale[part]
        sizes, starts = np.diff(ends), ends[:-1]
        codes = np.repeat(np.arange(last - first), sizes)
        G, g, _ = grams(X, y, ends, scale, centre)
        floor = 1e-12 * np.einsum("kjj->k", G)  # columns of absurd size must not end all fits

        def fit(pull, hold, leave=False, part=part, X=X, y=y, ends=ends, scale=scale, sizes=sizes,
                starts=starts, codes=codes, G=G, g=g, floor=floor):  # fmt: skip
            A, right = G.copy(), g + pull[:, None] * means[half.which[part]]
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


def local_intercepts(table, coef):
    """Mean residual of every task, squared loss."""
    return SquaredLoss(table, np.ones(table.n_tasks), True, 0.0).intercepts(coef)


class SparseModels:
    """Personal models of wide sparse tasks, from one or several calls.

    Parameters
    ----------
    models : Models
        Of the tasks of the fit.
    """

    def __init__(self, models):
        self.parts = [models]
        self.owner = np.zeros(len(models.which), dtype=np.int64)
        self.place = np.arange(len(models.which))

    def merged(self, n_tasks, old, new, models):
        """A copy with the tasks of `models` at the positions `new`, the known ones at `old`."""
        out = object.__new__(SparseModels)
        out.parts = [*self.parts, models]
        out.owner = np.full(n_tasks, len(self.parts))
        out.place = np.empty(n_tasks, dtype=np.int64)
        out.owner[old], out.place[old] = self.owner, self.place
        out.owner[new], out.place[new] = len(self.parts), np.arange(len(new))
        return out

    def task_coef(self, k):
        """Coefficients of the task at position k."""
        return self.parts[self.owner[k]].task_coef(int(self.place[k]))

    def scores(self, X, k):
        """Scores (n_rows, n_outputs) of CSR rows of the task at position k."""
        return self.parts[self.owner[k]].scores(X, int(self.place[k]))

    def coef(self):
        """All coefficients as one dense array."""
        return np.stack([self.task_coef(k) for k in range(len(self.owner))])
