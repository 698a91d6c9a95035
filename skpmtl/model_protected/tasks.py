"""The task sides of model-protected learning."""

import numpy as np

from ..engine.levels import TaskLevels
from ..engine.residuals import shares_of
from ..engine.tasks import CommonAnswers
from ..exchange.billboard import Personal
from ..exchange.protocol import TaskSide
from ..exchange.sums import sum_of_clipped
from ..local.prior import SNR, LocalModels, VotedScale, best_scale, weak_penalty
from ..privacy.mechanisms import clip_rows
from ..privacy.moments import directions
from ..rounds.tasks import RoundsTaskSide
from .billboard import about


class PriorTaskSide(TaskSide):
    """The task side of `release_prior`: votes and directions of the tasks of a table."""

    def __init__(self, local):
        self.local = local
        self._root, self._last_criteria = None, None

    @property
    def state(self):
        """Newton steps start where those of the last query ended."""
        if self._root is None or not self.local.log_loss:
            return {}
        criterion, level = self._last_criteria
        scores = self.local._scores
        return {"scores": scores, "root": self._root, "criterion": criterion, "level": level}

    @state.setter
    def state(self, arrays):
        if arrays:
            self.local._scores[:] = arrays["scores"]
            self._root, self._last_criteria = arrays["root"], (arrays["criterion"], arrays["level"])

    def contributions(self, query):
        """ "vote": the scale that each task likes best, (m,); or "moment": its direction, (m, d),
        or (m, C, d) of C classes."""
        criterion, level = self._criteria(query.public["root"])
        if query.statistic == "vote":  # by the rows alone: a prior would be counted with every task
            criterion = criterion - weak_penalty(self.local.log_loss)
            return {"vote": np.log10(SNR)[criterion.argmin(axis=1)]}
        return {"moment": directions(self._models(query.public, criterion, level))}

    def answer(self, query):
        if query.statistic == "vote":
            return query.combine(self.contributions(query))
        criterion, level = self._criteria(query.public["root"])
        return query.combine({"moment": self._models(query.public, criterion, level)})

    def _criteria(self, root):
        # A vote and a moment ask about the same prior one after the other.
        if self._root is None or not np.array_equal(self._root, root):
            self._root, self._last_criteria = root, self.local.criteria(root)
        return self._last_criteria

    def _models(self, public, criterion, level):
        scale = VotedScale(public["snr_centre"], public["snr_spread"])
        kappa = best_scale(criterion + scale.penalty, level)
        W, _ = self.local.solve(public["root"], kappa, tol=1e-3)
        return W if self.local.centre is None else W - self.local.centre


class LevelTaskSide(CommonAnswers, PriorTaskSide):
    """The task side of `release_prior` with votes on evidence, and then of `release_level`.

    `table` is as it was given; `local` has differences to the public initial model.
    """

    def __init__(self, local, table, fit_intercept):
        super().__init__(local)
        self.given, self.fit_intercept = table, fit_intercept
        self._levels, self._personal = None, (None, None)

    def contributions(self, query):
        """As of `PriorTaskSide`; and "evidence" (m, `N_DIFFERENCES`), "block" (m, d), "window"
        and "zoom" (m,), "inside" (m, 2), "level", "noise" and "spread" (m, 1), or
        (m, `N_DIFFERENCES`) of classes."""
        name = "_" + query.statistic
        if not hasattr(self, name):
            return super().contributions(query)
        return {query.statistic: getattr(self, name)(query.public)}

    def answer(self, query):
        if not hasattr(self, "_" + query.statistic):
            return super().answer(query)
        return query.combine(self.contributions(query))

    @property
    def table(self):
        return self.local.table

    @property
    def levels(self):
        if self._levels is None:
            self._levels = TaskLevels(self.table)
        return self._levels

    def _level(self, public):
        middle, unit = public["middle"], public["unit"]
        levels = self.levels.own(self._errors(public["billboard"])[0]) - middle
        return np.clip(np.nan_to_num(levels), -unit, unit)[:, None]

    def _errors(self, billboard):
        """Slopes, less the public initial model, and squared errors under the released prior."""
        if not self._knows(billboard):
            _, models, _ = billboard.models(self.given, self.fit_intercept, leaves=False)
            self._personal = _prior_of(billboard), models
        W, b, _, energies = self._personal[1]
        return billboard.subtract_init(W, b)[0], energies

    def _knows(self, billboard):
        known = self._personal[0]
        return known is not None and all(map(np.array_equal, known, _prior_of(billboard)))

    def final_models(self, billboard, personalize):
        """Those of real targets have the slopes of the last query."""
        usable = not self.given.has_log_loss and billboard.init is None
        if not usable or not self._knows(billboard):
            return personalize()
        return billboard.personalize(
            self.given, fit_intercept=self.fit_intercept, models=self._personal[1]
        )


def _prior_of(billboard):
    return billboard.moment.copy(), billboard.snr_centre, billboard.snr_spread


class RelatedTaskSide(TaskSide):
    """The task side of `release_centres`, and then of `release_prior` about the centres.

    `problem` is that of the rounds.
    """

    def __init__(self, table, relation, problem):
        self.table, self.relation, self.fit_intercept = table, relation, problem.fit_intercept
        which = np.zeros(table.n_tasks, dtype=np.int64)
        self.rounds, self.prior = RoundsTaskSide(table, problem, which, relation), None
        self._about, self._kept = None, {}

    @property
    def state(self):
        """That of `PriorTaskSide`."""
        return self._kept if self.prior is None else self.prior.state

    @state.setter
    def state(self, arrays):
        self._kept = arrays

    def contributions(self, query):
        """Those of `RoundsTaskSide`, and those of `PriorTaskSide` for models less their centres."""
        return self._task_side(query).contributions(query)

    def answer(self, query):
        return self._task_side(query).answer(query)

    def _task_side(self, query):
        if query.statistic in ("length", "update"):
            return self.rounds
        coef = query.public["centres"]
        if self.prior is None or not np.array_equal(self._about, coef):
            centre = about(
                coef,
                self.relation,
                query.public["own_units"],
                self.table,
                self.fit_intercept,
            )
            local = LocalModels(self.table, fit_intercept=self.fit_intercept, centre=centre)
            self.prior = PriorTaskSide(local)
            self._about, self.prior.state = coef, self._kept
        return self.prior


class WithMeanModel(TaskSide):
    """A task side that also answers for the mean model, or intercepts, of unseen_task="mean", and
    for the distances of targets from it.

    `task_side` answers all other queries. `to` (n_tasks, r) is what intercepts are multiplied by
    with a relation, `extras` are names of those that final models come with, and `more` are
    further arguments of ``personalize`` of the billboards.
    """

    def __init__(self, task_side, table, fit_intercept, to=None, extras=(), **more):
        self.task_side, self.table, self.to, self.extras = task_side, table, to, extras
        self.personalize_args = {"fit_intercept": fit_intercept, **more}
        self._personal = None

    @property
    def state(self):
        return self.task_side.state

    @state.setter
    def state(self, arrays):
        self.task_side.state = arrays

    def contributions(self, query):
        sent = self._contributions(query)
        return sent if query.pick is None else {k: v[query.pick] for k, v in sent.items()}

    def _contributions(self, query):
        if query.statistic == "residuals":
            models = query.public["billboard"].without_rows(self.table.tasks)
            return {"residuals": shares_of(self.table, *models)}
        if query.statistic not in ("mean", "intercept"):
            return self.task_side.contributions(query)
        models = self._with_intercepts(query)
        clip_rows(models, query.public["clip_norm"])
        return {query.statistic: models}

    def answer(self, query):
        if query.statistic == "residuals":
            return query.combine(self._contributions(query))
        if query.statistic == "mean":
            return query.combine({"mean": self._with_intercepts(query)})
        if query.statistic == "intercept":
            b = self._with_intercepts(query)
            shape = self.to.shape[1], b.shape[1]
            return {"intercept": sum_of_clipped(b, query.public["clip_norm"], self.to, shape)}
        return self.task_side.answer(query)

    def _with_intercepts(self, query):
        public = query.public
        self._personal = Personal(
            *public["billboard"].personalize(self.table, **self.personalize_args)
        )
        W, b = public["billboard"].subtract_init(*self._personal[:2])
        W, b = W.reshape(len(W), -1), b.reshape(len(b), -1) - public["middle"]
        return (b if query.statistic == "intercept" else np.column_stack([W, b])) / public["unit"]

    def final_models(self, billboard, personalize):
        # The query for their mean needed them, too: they are not made twice.
        made = self._personal or self.task_side.final_models(billboard, personalize)
        return Personal(*made).only(self.extras)
