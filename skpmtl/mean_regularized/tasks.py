"""The task half of mean-regularised rounds: what tasks compute alone around a shared model.

All tasks of a table together, vectorised; nothing here combines tasks except the sum of
clipped updates, which stands for the curator's (or a secure aggregation's) addition.

Models are flat: (n_outputs, n_features) for dense rows, (n_features, n_outputs) for CSR rows,
where differences live on the task's own columns; see `skpmtl._kernels.rounds`.
"""

from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np

from .._kernels import rounds as kernels
from .._kernels.clip import clip_rows
from .._kernels.grams import gram_product
from .._kernels.rows import count_columns, curvatures
from .._kernels.short import short_curvatures, short_inverses, short_prox
from .._runtime.compat import Interval, Options, StrOptions
from .._runtime.threads import cost_blocks, in_order, run_blocks, task_blocks
from ..exchange.board import Public
from ..exchange.half import Half
from ..local.grams import NARROW, long_tasks, task_grams, task_inverses
from ..tables.table import read_only
from .curator import clipped_sum

_POWER_STEPS = 15
_BLOCK = 1 << 20  # numbers of rows and Gram matrices held at once
_MODELS = 1 << 18  # numbers of models that a thread holds at once while a round runs over the tasks
# lam="auto" by kind of loss: this part of a task's own smoothness, less of it in proximal updates,
# and more of it, by _AUTO_ROWS over the number of its rows, when it personalises.
_AUTO_LAM = (0.05, 0.02, 0.02)
_AUTO_PROX = (0.05, 0.005, 0.005)
_AUTO_ROWS = (5.0, 0.0, 0.0)
_ALONE_ROWS = 0.5  # the same for lam="alone", without a shared model
_BOUND = (1.0, 0.25, 0.5)  # of the second derivative: squared, logistic, multinomial
_BOLDNESS = (1.0, 4.0, 4.0)  # accelerated steps first take the bound to be that much smaller
# "quadratic" counts the ridge in, "free" does not.
_PENALTY = {"quadratic": None, "free": None, "predictions": 1, "fisher": 2}
_NO_INDEX = np.empty(0, dtype=np.int64)
KEEP_MODELS = ("algorithm-1", "stateful", "ppsgd")  # updates with a dense model per task


@dataclass(frozen=True)
class Problem(Public):
    """What a task minimises: its loss, and how strongly it holds on to the shared model.

    Parameters
    ----------
    kind : {0, 1, 2}
        Squared, logistic (y in {-1, 1}) or multinomial loss (y counts the classes from 0).
    n_outputs : int
        1, or the number of classes of the multinomial loss.
    fit_intercept : bool
    task_weight : {"equal", "samples"}
        Mean loss or sum of losses.
    lam : float or "auto"
        "auto": in the rounds 0.05 (logistic: 0.02, proximal updates 0.005) times the smoothness
        of the task's own loss; in the personalisation 0.05 + 5 / n_k (logistic: 0.02) times.
        "alone": 0.5 / n_k times.
    ridge : float
    """

    kind: int
    n_outputs: int
    fit_intercept: bool
    task_weight: str = "equal"
    lam: object = "auto"
    ridge: float = 0.0

    constraints = {
        "kind": [Options(Integral, {0, 1, 2})],
        "n_outputs": [Interval(Integral, 1, None, closed="left")],
        "task_weight": [StrOptions({"equal", "samples"})],
        "lam": [StrOptions({"auto", "alone"}), Interval(Real, 0, None, closed="neither")],
        "ridge": [Interval(Real, 0, None, closed="left")],
    }


class CentredTasks:
    """Local work of all tasks of a table.

    Parameters
    ----------
    table : TaskTable
    problem : Problem
    which : ndarray (n_tasks,) of int64, default=None
        Shared model (cluster) of each task; None: there is one for all.

    Attributes
    ----------
    curvature : ndarray (n_tasks,)
        Largest eigenvalue of X_k' X_k, centred when there is an intercept.
    smoothness : ndarray (n_tasks,)
        Lipschitz constant of the gradient of each task's loss.
    lam, prox_lam, own_lam, lone_lam : ndarray (n_tasks,)
        Strength in the rounds, in those of proximal updates, in the personalisation, and without
        a shared model.
    ridge : ndarray (n_tasks,)
        Pull towards zero beside the one towards the shared model.
    long : tuple
        `long_tasks` of the table; dense rows of up to `NARROW` features.
    """

    def __init__(self, table, problem, which=None):
        self.table, self.problem = table, problem
        m, d = table.n_tasks, table.n_features
        self.which = np.zeros(m, dtype=np.int64) if which is None else which
        self.scale = 1.0 / table.sizes if problem.task_weight == "equal" else np.ones(m)
        self.widths = np.full(m, d)
        if table.is_sparse:
            count_columns(*table.csr[1:], table.rows, table.offsets, d, self.widths)
        self.curvature = 1.05 * self._largest_eigenvalues()
        if problem.fit_intercept:
            np.maximum(self.curvature, self._rounding(), out=self.curvature)
        self.smoothness = self.curvature * self.scale * _BOUND[problem.kind]
        alone = np.maximum(_ALONE_ROWS / table.sizes * self.smoothness, 1e-8)
        if problem.lam == "alone":
            self.lam = self.prox_lam = self.own_lam = alone
        elif problem.lam == "auto":
            part = _AUTO_LAM[problem.kind]
            self.lam = np.maximum(part * self.smoothness, 1e-8)
            self.prox_lam = np.maximum(_AUTO_PROX[problem.kind] * self.smoothness, 1e-8)
            self.own_lam = self.lam * (1.0 + _AUTO_ROWS[problem.kind] / (part * table.sizes))
        else:
            self.lam = self.prox_lam = self.own_lam = np.full(m, float(problem.lam))
        self.lone_lam = alone if isinstance(problem.lam, str) else self.lam
        self.ridge = np.full(m, float(problem.ridge))
        self._single = self._has_missing_class()
        self._exact = None

    # Not kept: a pickle would hold X twice, and give back arrays that can be written, for which
    # numba compiles every loop again.
    @property
    def _rows(self):
        """Features and rows, dense or CSR, for compiled loops."""
        table = self.table
        if table.is_sparse:
            X, csr = read_only(np.empty((0, table.n_features))), table.csr
        else:
            X, csr = table.X, (None, None, None)
        return X, *csr, table.rows, table.offsets

    @property
    def indexed(self):
        """Dense features, and the rows of the table among them, for compiled loops."""
        rows = self.table.rows
        return self.table.X, _NO_INDEX if rows is None else rows, rows is not None

    def _largest_eigenvalues(self):
        """Of X_k' X_k, from below, by power iteration."""
        table, centre = self.table, self.problem.fit_intercept
        out = np.empty(table.n_tasks)
        if table.is_sparse or table.n_features > NARROW:
            curvatures(*self._rows, centre, _POWER_STEPS, out)
            return out
        # The same steps on matrices; their kernel compiles in a fifth of the time.
        at = np.arange(1, table.n_features + 1)
        start = (0.5 + 0.6180339887498949 * at % 1.0) * np.where(at % 2, 1.0, -1.0)

        def block(first, last):
            ends, part = table.offsets[first : last + 1], slice(first, last)
            short_curvatures(*self.indexed, ends, centre, start, _POWER_STEPS, out[part])

        tasks, long = self.long = long_tasks(table)
        run_blocks(block, self._short_ranges())
        for first, last, G, _ in task_grams(long, self.problem, np.ones(len(tasks))):
            v = np.broadcast_to(start, (last - first, len(start)))
            for _ in range(_POWER_STEPS):
                v = v / np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1e-300)
                Gv = (G @ v[:, :, None])[:, :, 0]
                out[tasks[first:last]], v = np.einsum("kj,kj->k", v, Gv), Gv
        return out

    def _rounding(self):
        """Curvature that equal rows have by rounding alone: steps of 1 over less are noise."""
        table, first = self.table, self.table.offsets[:-1]
        x = table.X[first if table.rows is None else table.rows[first]]
        if table.is_sparse:
            squares = np.asarray(x.multiply(x).sum(axis=1), dtype=float).ravel()
        else:
            squares = np.einsum("kj,kj->k", x, x, dtype=float)
        return np.finfo(float).eps * table.sizes * squares

    def _has_missing_class(self):
        """Tasks in which a class is missing, whose unpenalised intercepts would be infinite."""
        table, C = self.table, self.problem.n_outputs
        if self.problem.kind == 0 or table.y is None:
            return np.zeros(table.n_tasks, dtype=bool)
        if self.problem.kind == 1:
            positive = np.add.reduceat((table.y > 0).astype(float), table.offsets[:-1])
            return (positive == 0) | (positive == table.sizes)
        pairs = np.unique(table.codes * C + table.y.astype(np.int64))
        return np.bincount(pairs // C, minlength=table.n_tasks) < C

    # ------------------------------------------------------------------------- blocks
    def blocks(self, pick):
        """`pick` in pieces whose models together stay small."""
        pieces = cost_blocks(self.widths[pick] * self.problem.n_outputs, _MODELS)
        return [pick[first:last] for first, last in pieces]

    def steps(
        self, pick, anchor, lam, *, n_steps, accelerate=True, rate=1.0, tol=0.0,
        penalty="quadratic", start=None, trace=False,
    ):  # fmt: skip
        """Local steps of the tasks `pick`, a block. -> Local

        Parameters
        ----------
        pick : ndarray of int64
        anchor : ndarray (n_anchors, n_outputs * n_features)
        lam : ndarray (n_tasks,)
            Strength of the penalty.
        n_steps, accelerate, rate, tol, penalty, start, trace
            See `skpmtl._kernels.rounds.local_steps`.
        """
        problem, C = self.problem, self.problem.n_outputs
        ends = np.concatenate([[0], np.cumsum(self.widths[pick] * C)])
        columns = np.empty(ends[-1] // C if self.table.is_sparse else 0, dtype=np.int64)
        D, b = np.empty(ends[-1]), np.empty((len(pick), C))
        variance = np.zeros(len(pick))
        descent = np.zeros((len(pick), anchor.shape[1])) if trace else None
        quadratic = penalty == "quadratic"
        strength = lam + self.ridge if quadratic else lam
        factor = self.factor(lam) if quadratic else np.ones(len(lam))
        # A missing class would send its intercept to infinity: these tasks hold theirs.
        held = np.where(self._single, self.lam, 0.0)
        kernels.local_steps(
            *self._rows, self.table.y, problem.kind, _BOUND[problem.kind], self.scale,
            problem.fit_intercept, pick, anchor, self.which, factor, strength, held,
            self.curvature, _PENALTY[penalty], n_steps, accelerate, _BOLDNESS[problem.kind],
            float(rate), float(tol), start, columns, ends, D, b, variance, descent,
        )  # fmt: skip
        return Local(pick, columns, ends, D, b, variance, descent)

    def factor(self, lam):
        """A ridge draws the shared model to zero: the centre is factor times the anchor."""
        if not self.ridge.any():
            return np.ones(len(lam))
        return lam / (lam + self.ridge)

    # --------------------------------------------------------------- squared loss, exact
    def factorised(self):
        """Whether proximal steps are exact, by a matrix for every task.

        Otherwise they are a few gradient steps, which is another number: the rule must not read
        how many rows there are, or one task could change what all the others send.
        """
        return (
            self.problem.kind == 0
            and not self.table.is_sparse
            and self.table.n_features <= NARROW
        )

    def _short_ranges(self):
        """All tasks in blocks if some have fewer rows than features."""
        table = self.table
        if len(self.long[0]) == table.n_tasks:
            return []
        return task_blocks(table.offsets, table.n_features, _BLOCK)

    def _short_matrices(self, first, last):
        """-> starts, K and pulls of a block of tasks, as `short_prox` takes them."""
        table, part = self.table, slice(first, last)
        sizes = table.sizes[part]
        numbers = np.where(sizes < table.n_features, sizes * (sizes + 1) // 2, 0)
        starts, rho = np.concatenate([[0], np.cumsum(numbers)]), self.prox_lam[part]
        K, pulls = np.empty(starts[-1]), np.empty(last - first)
        short_inverses(
            *self.indexed, table.offsets[first : last + 1], starts, self.scale[part],
            self.problem.fit_intercept, rho + self.problem.ridge, K, pulls,
        )  # fmt: skip
        return starts, K, pulls

    def exact_prox(self, anchor, pick=slice(None)):
        """Differences of the exact proximal models to factor times the anchors, (n, d)."""
        table, problem, d = self.table, self.problem, self.table.n_features
        (tasks, long), ranges = self.long, self._short_ranges()
        if self._exact is None:
            rho = self.prox_lam[tasks] + problem.ridge
            blocks, matrices = task_inverses(long, problem, self.scale[tasks], rho), None
            room = max(1 << 20, 0 if table.on_disk else table.X.size)
            short = table.sizes[table.sizes < d]
            if len(tasks) * d * d + int(short @ (short + 1)) // 2 <= room:
                blocks, matrices = list(blocks), run_blocks(self._short_matrices, ranges)
                self._exact = blocks, matrices  # else they are made again in every round
        else:
            blocks, matrices = self._exact
        lam, factor = self.prox_lam, self.factor(self.prox_lam)
        picked = np.arange(table.n_tasks)[pick]
        out = np.empty((len(picked), anchor.shape[1]))

        def short_block(number, first, last):
            starts, K, pulls = matrices[number] if matrices else self._short_matrices(first, last)
            part, some = slice(first, last), slice(*np.searchsorted(picked, (first, last)))
            short_prox(
                *self.indexed, table.y, table.offsets[first : last + 1], starts, K, pulls,
                problem.fit_intercept, picked[some] - first, anchor, self.which[part], lam[part],
                factor[part], out[some],
            )  # fmt: skip

        run_blocks(short_block, [(number, *ends) for number, ends in enumerate(ranges)])
        at = np.flatnonzero(table.sizes[picked] >= d)
        place = np.searchsorted(tasks, picked[at])
        for first, last, inverse, h in blocks:
            some = slice(*np.searchsorted(place, (first, last)))
            if some.stop - some.start < last - first:
                inverse, h = inverse[place[some] - first], h[place[some] - first]
            mine, k = anchor[self.which[picked[at[some]]]], picked[at[some]]
            D = np.empty_like(h)
            gram_product(inverse, lam[k, None] * mine, D)
            D += h
            D -= factor[k, None] * mine
            out[at[some]] = D
        return out

    # -------------------------------------------------------------------- contributions
    def sum_of_updates(self, pick, anchor, clip_norm, total, *, n_steps, tol):
        """Add the clipped proximal updates prox_k(w~) - w~ of the tasks `pick` to `total`.

        Returns how many of them were inside the bound.
        """
        if self.factorised():
            D = self.exact_prox(anchor, slice(None) if len(pick) == len(self.which) else pick)
            off = (self.factor(self.prox_lam)[pick] - 1.0)[:, None]
            if off.any():
                D += off * anchor[self.which[pick]]
            return add_clipped_rows(D, self.which[pick], clip_norm, total)
        inside = 0
        factor = self.factor(self.prox_lam)

        def solve(block):
            return self.steps(block, anchor, self.prox_lam, n_steps=n_steps, tol=tol)

        for local in in_order(solve, self.blocks(pick)):
            block = local.pick
            if self.table.is_sparse:
                below = np.empty(len(block), dtype=bool)
                kernels.add_clipped(
                    local.D, local.columns, local.ends, self.problem.n_outputs, block, anchor,
                    self.which, factor, clip_norm, total, below,
                )  # fmt: skip
                inside += int(below.sum())
                continue
            D = local.D.reshape(len(block), -1)
            if self.problem.ridge:
                D += (factor[block] - 1.0)[:, None] * anchor[self.which[block]]
            inside += add_clipped_rows(D, self.which[block], clip_norm, total)
        return inside


@dataclass
class Local:
    """What `CentredTasks.steps` found for a block of tasks."""

    pick: np.ndarray
    columns: np.ndarray
    ends: np.ndarray
    D: np.ndarray
    b: np.ndarray
    variance: np.ndarray
    descent: np.ndarray


def add_clipped_rows(D, which, clip_norm, total):
    """Clip the rows of D in place and add them to total[which]; -> rows inside the bound."""
    norms = np.sqrt(np.einsum("kj,kj->k", D, D))
    if np.isfinite(clip_norm):
        clip_rows(D, clip_norm, 2, D)
    if len(total) == 1:
        total[0] += D.sum(axis=0)
    else:
        np.add.at(total, which, D)
    return int((norms <= clip_norm).sum())


class RunningModels:
    """Updates by plain gradient steps, some with a model that every task keeps over the rounds.

    ==============  ======================  ======================================
    update          starts from             sends
    ==============  ======================  ======================================
    "algorithm-1"   its model w_k           new w_k - old w_k
    "stateful"      its model w_k           new w_k - w~
    "fedavg"        w~ (no penalty)         new model - w~
    "fedprox"       w~                      new model - w~
    "ppsgd"         w~ + theta_k            movement of the shared part
    ==============  ======================  ======================================

    Parameters
    ----------
    half : CentredTasks
    update : str
    n_steps : int
    rate : float
        Steps have length rate / (smoothness of the task's objective).

    Attributes
    ----------
    W : ndarray (n_tasks, size) or None
        Running models ("ppsgd": personal parts theta_k).
    """

    def __init__(self, half, update, size, *, n_steps, rate):
        self.half, self.update, self.n_steps, self.rate = half, update, n_steps, rate
        keeps = update in KEEP_MODELS
        if half.table.is_sparse and keeps:
            raise ValueError(
                f"update={update!r} keeps a dense model for every task, which sparse X is not "
                'meant for: use PrivateMeanRegMTL with update="prox", or X.toarray().'
            )
        self.W = np.zeros((half.table.n_tasks, size)) if keeps else None
        self.lam = np.zeros_like(half.lam) if update == "fedavg" else half.lam

    def sum_of_updates(self, pick, anchor, clip_norm, total):
        """As `CentredTasks.sum_of_updates`; moves the running models of the tasks `pick`."""
        half, inside = self.half, 0

        def solve(block):
            start = None
            if self.W is not None:
                shared = 0.0 if self.update == "ppsgd" else anchor[half.which[block]]
                start = self.W[block] - shared
            return half.steps(
                block, anchor, self.lam, n_steps=self.n_steps, accelerate=False, rate=self.rate,
                penalty="free", start=start, trace=self.update == "ppsgd",
            )  # fmt: skip

        for local in in_order(solve, half.blocks(pick)):
            block = local.pick
            if half.table.is_sparse:
                below = np.empty(len(block), dtype=bool)
                kernels.add_clipped(
                    local.D, local.columns, local.ends, half.problem.n_outputs, block, anchor,
                    half.which, np.ones(len(half.which)), clip_norm, total, below,
                )  # fmt: skip
                inside += int(below.sum())
                continue
            D = local.D.reshape(len(block), -1)
            if self.update == "ppsgd":
                self.W[block] = D - local.descent
                D = local.descent
            elif self.update == "algorithm-1":
                old = self.W[block]
                self.W[block] = anchor[half.which[block]] + D
                D = self.W[block] - old
            elif self.update == "stateful":
                self.W[block] = anchor[half.which[block]] + D
            inside += add_clipped_rows(D, half.which[block], clip_norm, total)
        return inside

    def models(self, anchor):
        """Personal models that the rounds left, (n_tasks, size), or None."""
        if self.update == "ppsgd":
            return anchor[self.half.which] + self.W
        return self.W
_PROX_STEPS, _PROX_TOL = 12, 1e-3  # of the accelerated steps of one round
_PLAIN_STEPS = 20  # gradient steps of one round of the other updates


class MeanHalf(Half):
    """The task half of the rounds: updates, and intercepts at the end.

    Attributes
    ----------
    half : CentredTasks
    running : RunningModels or None
        What the tasks keep between rounds.
    """

    def __init__(self, est, table, problem, which):
        self.table, self.half = table, CentredTasks(table, problem, which)
        self.running, self._models = None, (None, None)
        update, steps = est._update_name(), est.local_steps
        if update == "prox":
            self._steps = _PROX_STEPS if isinstance(steps, str) else steps
        else:
            self.running = RunningModels(
                self.half, update, problem.n_outputs * table.n_features,
                n_steps=_PLAIN_STEPS if isinstance(steps, str) else steps,
                rate=est.local_learning_rate,
            )  # fmt: skip

    def _add_updates(self, pick, anchor, clip_norm, total):
        if self.running is not None:
            return self.running.sum_of_updates(pick, anchor, clip_norm, total)
        return self.half.sum_of_updates(
            pick, anchor, clip_norm, total, n_steps=self._steps, tol=_PROX_TOL
        )

    def answer(self, ask):
        if ask.statistic == "intercept":
            b, board = self.contributions(ask)["intercept"], ask.public["board"]
            shape = len(board.means), b.shape[1]
            return {"intercept": clipped_sum(b, self.half.which, ask.public["clip_norm"], shape)}
        anchor = ask.public["anchor"]
        pick = np.arange(self.table.n_tasks) if ask.pick is None else ask.pick
        total = np.zeros(anchor.shape)
        count = self._add_updates(pick, anchor, ask.public["clip_norm"], total)
        return {"update": total, "inside": np.array([count - 0.5 * len(pick)])}

    def contributions(self, ask):
        """What each task contributes: "update" (n, size) and "inside" (n,), 1/2 or -1/2, or
        "intercept" (n, n_outputs)."""
        clip_norm = ask.public["clip_norm"]
        if ask.statistic == "intercept":
            b = self.models(ask.public["board"]).intercept.copy()
            clip_rows(b, clip_norm, 2, b)
            return {"intercept": b}
        anchor = ask.public["anchor"]
        pick = np.arange(self.table.n_tasks) if ask.pick is None else ask.pick
        updates, inside = np.empty((len(pick), anchor.shape[1])), np.empty(len(pick))
        for i, k in enumerate(pick):
            total = np.zeros(anchor.shape)
            inside[i] = self._add_updates(pick[i : i + 1], anchor, clip_norm, total) - 0.5
            updates[i] = total[self.half.which[k]]
        return {"update": updates, "inside": inside}

    def own_models(self, board):
        """Coefficients that the rounds left with the tasks, for personalization="none"; or None."""
        if self.running is None or self.running.W is None or board.personalization != "none":
            return None
        return self.running.models(board.means).reshape(self.table.n_tasks, *board.shape)

    def models(self, board):
        """Personal models under a billboard."""
        if self._models[0] is not board:
            self._models = board, board.personalize(self.table)
        return self._models[1]


def _noise_variances(plan, bounds, groups):
    """Variance of the noise in one number of each shared model: of ten rounds, of all."""
    if plan.noise_multiplier is None:
        return np.zeros((2, len(groups)))
    squares = [plan.mechanisms(bound)[0].noise_std ** 2 for bound in bounds]
    step = plan.server_rate * groups.sum() / groups
    return step**2 * np.array([[sum(squares[:10])], [sum(squares)]])
