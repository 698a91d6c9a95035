"""The front door: one estimator for whatever it is that tasks share."""

import numpy as np

from .._parameters import filled, kept
from .._runtime.compat import StrOptions
from ..base import BaseMTL, MTLClassifierMixin, MTLRegressorMixin
from ..exchange.protocol import Question
from ..privacy.report import exact_report
from .board import StructureBillboard, possible
from .curator import release_structures
from .plan import STRUCTURES, StructurePlan
from .tasks import StructureHalf

_LOGITS = (-5.0, 5.0)  # public range of intercepts of classifiers


class _PrivateMTL(BaseMTL):
    """Both halves, for squared and logistic loss."""

    _parameter_constraints = {
        **BaseMTL._parameter_constraints,
        "structure": [StrOptions({"auto", *STRUCTURES}), list, tuple],
    }
    _boards = (StructureBillboard,)
    _federates = True

    @kept
    def __init__(
        self,
        structure="auto",
        *,
        epsilon=1.0,
        delta=None,
        adjacency="replace-one",
        fit_intercept=True,
        task_feature=None,
        tasks="auto",
        unseen_task="error",
        random_state=None,
        secure=False,
        verbose=0,
        dtype=np.float64,
    ):
        pass

    def _structures(self):
        """The parameter `structure` as a tuple, in the order of `STRUCTURES`."""
        if self.structure == "auto":
            return STRUCTURES
        wanted = [self.structure] if isinstance(self.structure, str) else list(self.structure)
        unknown = [name for name in wanted if name not in STRUCTURES]
        if unknown or not wanted:
            raise ValueError(
                f'structure={self.structure!r} must be "auto" or some of '
                f"{', '.join(map(repr, STRUCTURES))}."
            )
        return tuple(name for name in STRUCTURES if name in wanted)

    def _settings(self):
        return {"classification": self._classification, "fit_intercept": self.fit_intercept}

    # ------------------------------------------------------------------------- the two halves
    def _curator(self, population, source):
        plan = StructurePlan(self, population, self._structures())
        log = self._progress("release %d: noise std %.3g")
        board = yield from release_structures(population, plan, source, log)
        if not plan.private:
            board.report = exact_report("the structures were found without noise (epsilon=None)")
        return board

    def _half(self, table, population):
        return StructureHalf(table, self._settings(), possible(self._structures()))

    def _planned_report(self, population):
        if not self._is_private():
            return exact_report("the structures were found without noise (epsilon=None)")
        return StructurePlan(self, population, self._structures()).report(self._source())

    def _questions(self, population):
        d = population.n_features
        rank, names = min(3, d), possible(self._structures())
        found = {
            "vote": Question({"vote": (2 * len(names),)}),
            "moment": Question({"moment": (d,)}),
        }
        if "mean" in names:
            found["direction"] = Question({"direction": (rank,)}, {"basis": [(d, rank)]})
            found["size"] = Question({"size": ()})
            found["update"] = Question({"update": (d,)}, {"centre": [(d,)]})
        if self.unseen_task == "mean":
            found["intercept"] = Question({"intercept": ()}, {"centre": [(d,)]})
        return found

    def _personalize_table(self, table):
        return self.billboard_.personalize(table, **self._settings())


class PrivateMTL(MTLRegressorMixin, _PrivateMTL):
    def _intercept_range(self):
        raise NotImplementedError


class PrivateMTLClassifier(MTLClassifierMixin, _PrivateMTL):
    def _intercept_range(self):
        return _LOGITS if self.fit_intercept else None
