"""The task halves of model-protected learning."""

import numpy as np

from .._kernels.clip import clip_rows
from .._runtime.threads import single_blas_thread
from ..exchange.half import Half
from ..local.prior import SNR, LocalModels, best_scale
from ..solvers.losses import LogisticLoss, SquaredLoss
from .prior import contributions, vote_penalty
from .projection import second_moment


class PriorHalf(Half):
    """The task half of `release_prior`: votes and directions of the tasks of a table."""

    def __init__(self, local):
        self.local = local
        self._root, self._found = None, None

    @property
    def memory(self):
        """What lasts from one question to the next: Newton steps start where the last ones ended.

        Arrays by name, to be set again where every question meets a new process.
        """
        if self._root is None or not self.local.classification:
            return {}
        criterion, level = self._found
        scores = self.local._scores
        return {"scores": scores, "root": self._root, "criterion": criterion, "level": level}

    @memory.setter
    def memory(self, arrays):
        if arrays:
            self.local._scores[:] = arrays["scores"]
            self._root, self._found = arrays["root"], (arrays["criterion"], arrays["level"])

    def contributions(self, ask):
        """What each task contributes: "vote" (m,), or "moment", its unit direction (m, d)."""
        criterion, level = self._criteria(ask.public["root"])
        if ask.statistic == "vote":
            return {"vote": np.log10(SNR)[criterion.argmin(axis=1)]}
        return {"moment": contributions(self._models(ask.public, criterion, level))}

    def answer(self, ask):
        if ask.statistic == "vote":
            return ask.combine(self.contributions(ask))
        criterion, level = self._criteria(ask.public["root"])
        return ask.combine({"moment": self._models(ask.public, criterion, level)})

    def _criteria(self, root):
        # A vote and a moment ask about the same prior one after the other.
        if self._root is None or not np.array_equal(self._root, root):
            self._root, self._found = root, self.local.criteria(root)
        return self._found

    def _models(self, public, criterion, level):
        penalty = vote_penalty(public["snr_centre"], public["snr_spread"])
        W, _ = self.local.solve(public["root"], best_scale(criterion + penalty, level), tol=1e-3)
        return W


class ProjectedModels:
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


class ProjectionHalf(Half):
    """The task half of `release_projections`: clipped models of the tasks of a table."""

    def __init__(self, half):
        self.half = half

    def contributions(self, ask):
        """What each task contributes: "moment", its clipped model (m, d)."""
        for projection in ask.public["projections"][self.half.t :]:
            self.half.update(projection)
        C = np.empty_like(self.half.W)
        clip_rows(self.half.W, ask.public["clip_norm"], 2, C)
        return {"moment": C}

    def answer(self, ask):
        return second_moment(ask, self.contributions(ask)["moment"])


class WithMeanModel(Half):
    """A task half that also answers for the mean model of unseen_task="mean"."""

    def __init__(self, half, table, settings):
        self.half, self.table, self.settings = half, table, settings

    def contributions(self, ask):
        if ask.statistic != "mean":
            return self.half.contributions(ask)
        W, b = ask.public["board"].personalize(self.table, **self.settings)
        return {"mean": clipped_models(W, b, ask.public["clip_norm"])}

    def answer(self, ask):
        if ask.statistic != "mean":
            return self.half.answer(ask)
        return ask.combine(self.contributions(ask))


def clipped_models(W, b, clip_norm):
    """Models with the intercept last, (n_tasks, d + 1), of length at most `clip_norm`."""
    models = np.column_stack([W, b])
    clip_rows(models, clip_norm, 2, models)
    return models
