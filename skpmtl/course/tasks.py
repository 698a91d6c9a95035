"""The task side of the loop: every kind of query says how it is answered."""

import numpy as np

from ..exchange.protocol import TaskSide
from .billboard import models_of
from .errors import Errors, RowSquares
from .groups import GroupStep
from .likelihood import JointStep, LikelihoodStep
from .personal import TaskModels
from .queries import KINDS, AcrossStep, ExactStep, LevelSums, SlopeScores

_BLOCK = 1 << 22  # numbers of the matrices of tasks that are added up together
_LARGE = ExactStep, AcrossStep, LevelSums, SlopeScores
_MORE = Errors, RowSquares, GroupStep, LikelihoodStep, JointStep
_KINDS = {**KINDS, **{kind.kind: kind for kind in _MORE}}


class HierarchicalTaskSide(TaskSide):
    """Answers of the tasks of one table.

    They follow from the rows and the query, which brings the model that was released before.
    """

    remembers = False

    def __init__(self, table, public_init=None):
        self.models = models_of(table, public_init)

    def contributions(self, query):
        question = _KINDS[query.statistic].of(query.public)
        sent = question.answer(self.models, query.public.get("model"))
        return {query.statistic: sent if query.pick is None else sent[query.pick]}

    def answer(self, query):
        """As of `TaskSide`; large answers of tasks are added up as they are made."""
        kind, model = _KINDS[query.statistic], query.public.get("model")
        if issubclass(kind, LikelihoodStep):
            return {query.statistic: kind.of(query.public).sums(self.models, model)}
        if query.pick is not None or kind not in _LARGE:
            return super().answer(query)
        question, total = kind.of(query.public), 0.0
        width = question.size if kind is AcrossStep else 3 * np.size(model.centre) ** 2
        size = max(_BLOCK // width, 1)
        for first in range(0, len(self.models.tasks), size):
            sent = question.answer(self.models, model, slice(first, first + size))
            total = total + query.combine({query.statistic: sent})[query.statistic]
        return {query.statistic: total}

    def final_models(self, billboard, personalize):
        """Of real targets and counts by what is known of the rows already."""
        known = isinstance(self.models, TaskModels) or not self.models.n_classes
        return self.models.personal(billboard) if known else personalize()

    def check(self, query):
        """Raise ValueError for a model of other columns, or factors of rows, than these."""
        model = query.public.get("model")
        if model is None:
            return
        levels = self.models.row_levels
        known = () if levels is None else levels.names
        if model.n_features != self.models.X.shape[1] or set(model.factors_of_rows) - set(known):
            raise ValueError("a model of other columns than those of the study")
