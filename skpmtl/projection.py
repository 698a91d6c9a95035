"""Algorithms 2 and 3 of the model-protected paper: noisy projections, local gradient steps.

Iteration t: the curator receives the clipped models, releases their noisy second moment S (or
its diagonal) and everybody derives from it the public projection
M = U (1 - alpha / sqrt(Lambda))_+ U'; every task projects its own model, extrapolates and takes
a gradient step on its own rows, with a step size of its own.
"""

from dataclasses import dataclass, field
from numbers import Integral, Real

import numpy as np

from ._compat import Interval, StrOptions
from ._kernels.clip import clip_rows
from .exchange import Ask
from .local import SNR, LocalModels
from .losses import LogisticLoss, SquaredLoss
from .threads import single_blas_thread


@dataclass
class ProjectionBillboard:
    """What the curator of Algorithms 2 and 3 published.

    Attributes
    ----------
    statistic : {"matrix", "diagonal"}
    projections : list of ndarray (d, d) or (d,)
        Public projections, one per release.
    releases : list of ndarray
        The noisy statistics they come from, before the shift.
    acceleration, task_weight, ridge
        Public settings that a task needs to repeat its half.
    mean : ndarray (d + 1,) or None
        Released mean of the clipped models (intercept last).
    report : PrivacyReport or None
    """

    statistic: str
    acceleration: bool
    task_weight: str
    ridge: float
    n_tasks: int
    projections: list = field(default_factory=list)
    releases: list = field(default_factory=list)
    mean: np.ndarray | None = None
    report: object = None

    constraints = {
        "statistic": [StrOptions({"matrix", "diagonal"})],
        "task_weight": [StrOptions({"equal", "samples"})],
        "ridge": [Interval(Real, 0, None, closed="left")],
        "n_tasks": [Interval(Integral, 1, None, closed="left")],
    }
    settings = ("acceleration", "task_weight", "ridge")

    @property
    def n_features(self):
        return len(self.projections[0])

    def declared(self):
        """See `skpmtl.packing`."""
        d = self.n_features
        square = (d, d) if self.statistic == "matrix" else (d,)
        for M in self.projections:
            yield "a projection", M, [square]
            values = np.linalg.eigvalsh(M) if M.ndim == 2 else M
            if values.min() < -1e-6 or values.max() > 1.0 + 1e-6:
                raise ValueError("a projection makes models longer")
        yield from (("a release", S, [square, (d + 1,)]) for S in self.releases)
        if self.mean is not None:
            yield "the mean model", self.mean, [(d + 1,)]

    def personalize(self, table, *, classification, fit_intercept):
        """Models of the tasks of `table`: their half of the algorithm over the projections."""
        half = TaskHalf(self, table, classification=classification, fit_intercept=fit_intercept)
        for projection in self.projections:
            half.update(projection)
        return half.models()


class TaskHalf:
    """What all tasks do between two releases, vectorised over the tasks."""

    def __init__(self, board, table, *, classification, fit_intercept):
        # Rows as they are: Gram matrices would be chosen by the sizes of all tasks together, and a
        # task's numbers must not differ by a bit with the others' rows.
        kind = LogisticLoss if classification else SquaredLoss
        scale = 1.0 / table.sizes if board.task_weight == "equal" else np.ones(table.n_tasks)
        self.loss = kind(table, scale, fit_intercept, board.ridge, grid=False)
        self.acceleration = board.acceleration
        # The start is the task's own model under an even prior; steps are its own as well.
        local = LocalModels(table, classification=classification, fit_intercept=fit_intercept)
        d = table.n_features
        root = np.full(d, d**-0.5)

        def best(criterion, level):
            return SNR[criterion.argmin(axis=1)] / np.maximum(level, 1e-300)

        _, self.W, _ = local.fit(root, best, tol=1e-6)
        self.projected = self.W
        # Features that do not vary inside a task leave a curvature of rounding errors.
        raw = self.loss.combine(self.loss.scores(np.ones_like(self.W)))
        floor = 1e-10 * np.linalg.norm(raw, axis=1)
        # Enough power steps for the margin: no step is checked, and with momentum one that is a
        # third too long grows without bound.
        largest = 1.1 * self.loss.curvatures(30)
        curvature = np.maximum(largest, np.maximum(floor, 1e-300))
        self.step = 1.0 / curvature[:, None]
        self.t = 0

    def update(self, projection):
        """One iteration with the projection of a release."""
        self.t += 1
        with single_blas_thread():
            projected = self.W * projection if projection.ndim == 1 else self.W @ projection
            if not self.acceleration:
                momentum = 0.0
            elif self.loss.ridge:
                # Strongly convex: Nesterov's constant momentum, from the task's own curvature.
                root = np.sqrt(np.minimum(self.loss.ridge * self.step, 1.0))
                momentum = (1.0 - root) / (1.0 + root)
            else:
                momentum = (self.t - 1.0) / (self.t + 2.0)
            ahead = projected + momentum * (projected - self.projected)
            _, descent = self.loss.evaluate(ahead)
            self.W = ahead + self.step * descent
            self.projected = projected

    def models(self):
        return self.projected, self.loss.intercepts(self.projected)


def project(S, alpha):
    """Public projection of a (shifted) release: M = U (1 - alpha / sqrt(Lambda))_+ U'.

    Directions whose released moment is not positive are dropped. All d eigenvalues count,
    also when there are fewer tasks than features.
    """
    if S.ndim == 1:
        return np.maximum(1.0 - alpha / np.sqrt(np.maximum(S, 1e-300)), 0.0)
    values, U = np.linalg.eigh(S)
    keep = np.maximum(1.0 - alpha / np.sqrt(np.maximum(values, 1e-300)), 0.0)
    return (U * keep) @ U.T


class ProjectionTasks:
    """The task half of `release_projections`: clipped models of the tasks of a table."""

    def __init__(self, half):
        self.half = half

    def rows(self, ask):
        """What each task contributes: "moment", its clipped model (m, d)."""
        for projection in ask.public["projections"][self.half.t :]:
            self.half.update(projection)
        C = np.empty_like(self.half.W)
        clip_rows(self.half.W, ask.public["clip_norm"], 2, C)
        return {"moment": C}

    def answer(self, ask):
        return second_moment(ask, self.rows(ask)["moment"])


def second_moment(ask, C):
    diagonal = ask.public["statistic"] == "diagonal"
    return {"moment": np.einsum("kj,kj->j", C, C) if diagonal else C.T @ C}


def release_projections(board, mechanisms, *, alpha, clip_norm, noise_shift, log=None):
    """The curator of Algorithms 2 and 3, see `skpmtl.exchange`; fills and returns `board`."""
    public = {
        "statistic": board.statistic,
        "clip_norm": float(clip_norm),
        "projections": board.projections,
    }

    def sum_of_moments(rows, positions=None):
        C = np.array(rows["moment"], dtype=float)
        clip_rows(C, clip_norm, 2, C)
        return second_moment(ask, C)

    for t, mechanism in enumerate(mechanisms):
        ask = Ask("moment", public, {"moment": mechanism}, sum_of_moments)
        S = (yield ask)["moment"]
        board.releases.append(S)
        shift = mechanism.shift(len(mechanisms), noise_shift)
        with single_blas_thread():
            M = project(S + (shift if S.ndim == 1 else shift * np.eye(len(S))), alpha)
        board.projections.append(M)
        if log is not None:
            log(t + 1, mechanism.noise_std)
    return board
