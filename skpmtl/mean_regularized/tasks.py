"""Task side of the rounds: updates, lengths, intercepts and personal models."""

import numpy as np

from ..engine.tasks import StructureTaskSide
from ..exchange.sums import sum_of_clipped
from ..privacy.mechanisms import clip_rows
from ..rounds.tasks import RoundsTaskSide
from .errors import deviations


class MeanTaskSide(RoundsTaskSide):
    """The task side of the rounds, with intercepts at the end; arguments as of `RoundsTaskSide`."""

    remembers = False

    def __init__(self, est, table, problem, which, relation=None, public_init=None):
        super().__init__(table, problem, which, relation, public_init)
        self._models = None, None

    def answer(self, query):
        if query.statistic == "deviation":
            return query.combine(self.contributions(query))
        if query.statistic != "intercept":
            return super().answer(query)
        b, billboard = self.contributions(query)["intercept"], query.public["billboard"]
        shape = len(billboard.centres), b.shape[1]
        return {"intercept": sum_of_clipped(b, query.public["clip_norm"], self.to, shape)}

    def contributions(self, query):
        """As of `RoundsTaskSide`, or "intercept" (n, n_outputs), or "deviation", for standard
        errors."""
        if query.statistic == "deviation":
            sent = deviations(self.updates, self.around(query.public["centre"]))
            return {"deviation": sent if query.pick is None else sent[query.pick]}
        if query.statistic != "intercept":
            return super().contributions(query)
        billboard = query.public["billboard"]
        b = self.models(billboard).intercept - query.public["middle"]
        if billboard.init is not None:
            b -= billboard.init.intercept
        clip_rows(b, query.public["clip_norm"])
        return {"intercept": b if query.pick is None else b[query.pick]}

    def models(self, billboard):
        """`PersonalModels` under a billboard, made once."""
        if self._models[0] is not billboard:
            self._models = billboard, billboard.personalize(self.table, self.centred)
        return self._models[1]


class PooledTaskSide(StructureTaskSide):
    """The task side of a course around a pooled model, with standard errors at its end."""

    def _deviation(self, public):
        units = (public[name] for name in ("middle", "unit", "scale"))
        return deviations(self.pooled.within(*units), np.ascontiguousarray(public["theta"]))
