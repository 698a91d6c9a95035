"""The task side of the loop: every kind of query says how it is answered."""

import numpy as np

from ..exchange.protocol import TaskSide
from .billboard import models_of
from .errors import Errors
from .groups import GroupStep
from .likelihood import LikelihoodStep
from .queries import KINDS, AcrossStep, ExactStep

_BLOCK = 1 << 22  # numbers of the matrices of tasks that are added up together
_KINDS = {**KINDS, **{kind.kind: kind for kind in (Errors, GroupStep, LikelihoodStep)}}


class HierarchicalTaskSide(TaskSide):
    """Answers of the tasks of one table.

    They follow from the rows and the query, which brings the model that was released before.
    """

    remembers = False

    def __init__(self, table, public_init=None):
        self.models = models_of(table, public_init)

    def contributions(self, query):
        kind = _KINDS[query.statistic]
        question = kind.of(query.public)
        sent = question.answer(self.models, query.public.get("model"))
        return {query.statistic: sent if query.pick is None else sent[query.pick]}

    def answer(self, query):
        """As of `TaskSide`; large answers of tasks are added up as they are made."""
        kind = _KINDS[query.statistic]
        if kind is LikelihoodStep:
            sums = kind.of(query.public).sums(self.models, query.public["model"])
            return {query.statistic: sums}
        if kind not in (ExactStep, AcrossStep) or query.pick is not None:
            return super().answer(query)
        question, model, total = kind.of(query.public), query.public["model"], 0.0
        width = question.n_levels if kind is AcrossStep else np.size(model.centre) ** 2
        size = max(_BLOCK // width, 1)
        for first in range(0, len(self.models.tasks), size):
            sent = question.answer(self.models, model, slice(first, first + size))
            total = total + query.combine({query.statistic: sent})[query.statistic]
        return {query.statistic: total}

    def check(self, query):
        """Raise ValueError for a model of other columns, or factors of rows, than these."""
        model = query.public.get("model")
        if model is None:
            return
        levels = self.models.row_levels
        known = () if levels is None else levels.names
        if model.n_features != self.models.X.shape[1] or set(model.factors_of_rows) - set(known):
            raise ValueError("a model of other columns than those of the study")
