"""How a task turns the billboard of the rounds into a model of its own."""

import numpy as np

from .._runtime.threads import in_order
from .centred import CentredTasks, share_of_centre
from .proximal import exact_fits, exact_models, is_exact

# Weight of the noise in the trust in the centre, by loss. The residual variance of
# a few rows tells little: it counts 1 + _VARIANCE_ROWS / n_k times.
_NOISE_WEIGHT, _VARIANCE_ROWS = (0.3, 1.0, 1.0), 5.0
# A task goes alone where the leave-one-out errors that it saves are, in units of their standard
# error, _DOUBT + _DOUBT_ROWS / n_k; that is never so for less than seven rows.
_DOUBT, _DOUBT_ROWS = 1.0, 10.0
_AUTO_DIVERGENCE = 0.5  # weight of the divergence penalty when lam="auto"
_FINETUNE_STEPS = 20
_DENSE_LIMIT = 1 << 20  # coefficients of all tasks are an array up to this many numbers


class PersonalModels:
    """Personal models of the tasks of a table.

    Wide sparse tasks differ from their centre on the columns that occur in their rows
    only. These differences are kept when they are small beside the rows; otherwise the rows
    are, and a model is computed again when it is asked for.

    Parameters
    ----------
    table : TaskTable
    board : MeanBillboard
    centred : CentredTasks, default=None
        Of this table, from the rounds; made here where it is missing or for another problem.
    dense : bool, default=None
        Whether all coefficients are an array, `coef`. None: unless rows are sparse and wide.

    Attributes
    ----------
    intercept : ndarray (n_tasks, n_outputs)
    """

    def __init__(self, table, board, centred=None, dense=None):
        board = board.for_rows(table.is_sparse)
        self.board, self.problem, self.centres = board, board.problem, board.centres
        self.which = board.clusters(table.tasks)
        if centred is None or centred.problem != board.problem:
            centred = CentredTasks(table, board.problem, self.which)
        self.centred = centred
        self.shape = board.shape
        self.intercept = np.empty((table.n_tasks, board.problem.n_outputs))
        size = table.n_tasks * self.centres.shape[1]
        self.dense = not table.is_sparse or size <= _DENSE_LIMIT if dense is None else dense
        everybody = np.arange(table.n_tasks)
        self._hold = np.full(table.n_tasks, float(board.problem.ridge))
        self._pull, self._hold = self._own_pulls()
        self._stored = None
        self.share = np.ones(table.n_tasks)  # of the centre, around which a model is solved for
        if board.personalization == "mean-reg":
            self.share = share_of_centre(self._pull, self._hold)
        if self.dense:
            self.coef = self._dense(everybody)
            return
        # Columns and values of a model against the indices and values of the rows.
        C = board.problem.n_outputs
        room = 2 * len(table.X.data)
        if (C + 1) * int(self.centred.widths.sum()) <= room:
            self._stored = [None] * table.n_tasks
        if self._stored is not None or board.problem.fit_intercept:
            for local in self._locals(everybody):
                for k, columns, values in self._solved(local):
                    if self._stored is not None:
                        self._stored[k] = columns, values
        else:
            self.intercept[:] = 0.0
        if self._stored is not None:
            self.centred = None

    def _own_pulls(self):
        """Pulls to the centre and to zero of every task, for the variant asked for."""
        board, centred = self.board, self.centred
        problem = board.problem
        if board.personalization == "symmetrized-kl" and isinstance(problem.lam, str):
            return np.full(len(centred.own_pull), _AUTO_DIVERGENCE), self._hold
        if board.personalization != "mean-reg" or not board.noise_variance.any():
            return centred.own_pull, self._hold
        lost = board.lost()
        if lost.any():  # nothing but noise: these tasks go alone
            # Zeros that nobody writes to take no memory.
            self.centres = np.zeros(board.centres.shape)
            self.centres[~lost] = board.centres[~lost]
        if self._compares():
            return centred.own_pull, self._hold  # `_choose` finds the rest
        everybody = np.arange(len(centred.own_pull))
        squared = problem.loss == "squared"
        variance = self._residual_variance() if squared else np.ones(len(everybody))
        return self._pulls(everybody, variance)

    def _pulls(self, pick, variance):
        """Pulls of the tasks `pick` to the centre and to zero, by the noise on the centre.

        A pull is a Gaussian prior around the centre: for mean losses with residuals of variance
        s_k^2 (1 for classes), own_pull stands for a prior of variance s_k^2 / (n_k own_pull). A
        centre that is off by noise widens this prior by the noise's variance, which divides the
        pull by 1 + r with r = own_pull n_k noise / s_k^2, weighted by `_NOISE_WEIGHT`. The pull
        here is trust own_pull with trust = 1 / (1 + r + r^2), which is the same for little noise
        and lets go sooner of a centre that is mostly noise. Where the centre no longer holds a
        task, something else must: lone_pull (1 - trust)^4 to zero, so that it ends with the model
        that it has alone.
        """
        centred, board, kind = self.centred, self.board, self.problem.kind
        sizes, which = centred.table.sizes[pick], self.which[pick]
        own, lone = centred.own_pull[pick], centred.lone_pull[pick]
        known = sizes * centred.scale[pick] * variance  # sizes * scale is 1 for mean losses
        if kind == 0:
            known *= 1.0 + _VARIANCE_ROWS / sizes
        noise = _NOISE_WEIGHT[kind] * sizes * board.noise_variance[which] * own
        q = known / np.maximum(known + noise, 1e-300)  # 1 / (1 + r)
        trust = q * q / (1.0 - q + q * q)
        lost = board.lost()[which]
        pull = np.where(lost, lone, own * trust)
        return pull, self.problem.ridge + np.where(lost, 0.0, lone * (1.0 - trust) ** 4)

    def _compares(self):
        """Whether the tasks compare leave-one-out errors; nothing here depends on their number."""
        return (
            is_exact(self.centred)
            and self.board.personalization == "mean-reg"
            and bool(self.board.noise_variance.any())
        )

    def _choose(self, coef):
        """Models of squared loss around the centre or, where that is clearly better, alone.

        Every task compares the leave-one-out errors of the two; `coef` receives its choice.
        """
        centred, ridge = self.centred, self._hold
        for part, fit in exact_fits(centred, self.centres):
            sizes = centred.table.sizes[part]
            starts = np.cumsum(sizes) - sizes
            _, _, r, _ = fit(centred.own_pull[part], ridge[part])
            pull, hold = self._pulls(part, np.add.reduceat(r * r, starts) / sizes)
            W, b, _, left = fit(pull, hold, True)
            hold = centred.lone_pull[part] + ridge[part]
            lone_W, lone_b, _, lone_left = fit(0.0 * pull, hold, True)
            saved = left * left - lone_left * lone_left
            size = np.sqrt(np.add.reduceat(saved * saved, starts))
            alone = np.add.reduceat(saved, starts) > (_DOUBT + _DOUBT_ROWS / sizes) * size
            coef[part] = np.where(alone[:, None], lone_W, W)
            self.intercept[part, 0] = np.where(alone, lone_b, b)

    def _residual_variance(self):
        """Mean squared residual of each task's model at the pull without noise."""
        centred = self.centred
        variance = np.empty(len(self.which))
        everybody = np.arange(len(self.which))
        blocks = centred.blocks(everybody)
        for local in in_order(lambda block: self._proximal(block, centred.own_pull), blocks):
            variance[local.pick] = local.variance
        return variance

    def _proximal(self, block, pull):
        steps, tol = (1000, 1e-8) if self.problem.loss == "squared" else (60, 1e-4)
        return self.centred.steps(
            block, self.centres, pull, hold=self._hold, n_steps=steps, tol=tol
        )

    def _local(self, block):
        board, variant = self.board, self.board.personalization
        if variant == "mean-reg":
            return self._proximal(block, self._pull)
        steps = _FINETUNE_STEPS if isinstance(board.local_steps, str) else board.local_steps
        pull, penalty = self._pull, "quadratic"
        if variant == "finetune":
            pull = np.zeros_like(pull)
        elif variant == "none":  # the intercept alone is fitted, where there is one
            pull = 1e9 * (1.0 + self.centred.smoothness)
            steps = 100 if self.problem.fit_intercept else 0
        else:
            penalty = "predictions" if variant == "symmetrized-kl" else "fisher"
        local = self.centred.steps(
            block, self.centres, pull, n_steps=steps, accelerate=False, penalty=penalty
        )
        if variant == "none":
            local.D[:] = 0.0
        return local

    def _locals(self, pick):
        """`Local` of the tasks `pick`, block by block."""
        return in_order(self._local, self.centred.blocks(pick))

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
        centred, board, C = self.centred, self.board, self.problem.n_outputs
        centres = board.shaped(self.centres)
        coef = centres[self.which] * self.share.reshape(-1, *[1] * len(self.shape))
        if self._compares():
            self._choose(coef)
            return coef
        if is_exact(centred) and board.personalization == "mean-reg":
            exact_models(centred, self._pull, self._hold, self.centres, coef, self.intercept)
            return coef
        for local in self._locals(everybody):
            if centred.table.is_sparse:
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
        centres = self.board.shaped(self.centres)
        coef = centres[self.which[k]] * self.share[k]
        for _, columns, values in self.differences([k]):
            coef.reshape(self.problem.n_outputs, -1)[:, columns] += values.T
        return coef

    def scores(self, X, k):
        """Scores (n_rows, n_outputs) of CSR rows under the model of task k."""
        shared = self.centres[self.which[k]].reshape(X.shape[1], -1)
        out = self.share[k] * (X @ shared)
        for _, columns, values in self.differences([k]):
            out += X[:, columns] @ values
        return out + self.intercept[k]
