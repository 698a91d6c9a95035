"""What estimators share that run the course over structures."""

from numbers import Real

from ..privacy.report import exact_report
from .curator import PLAIN, release_structures
from .plan import StructurePlan
from .queries import query_specs
from .tasks import StructureTaskSide


class RunsCourse:
    """Mixin of estimators: curator, task side, plan and report of a course.

    A subclass defines ``_structures()``, a tuple of names as of `StructurePlan`, and has the
    attribute `levels`.
    """

    _federates = True

    def _curator(self, population, source):
        log = self._progress("release %d: noise std %.3g")
        return release_structures(population, self._plan(population), source, log)

    def _task_side(self, table, population):
        plan = self._plan(population)
        kept = self._keeps_class_posterior(table)
        return StructureTaskSide(table, population.n_tasks, self.fit_intercept, plan, kept)

    def _plan(self, population):
        public_init = self._public_init(population)
        return StructurePlan(self, population, self._structures(), public_init)

    def _planned_report(self, population):
        if not self._is_private():
            return exact_report(PLAIN)
        return self._plan(population).report(self._source())

    def _query_specs(self, population):
        return query_specs(self._plan(population), population)

    def _check_course(self):
        """Raise ValueError for parameters that the course cannot follow."""
        if self._is_private() and isinstance(self.delta, Real) and self.delta == 0:
            raise ValueError(
                "delta=0, a pure guarantee, needs a structure that is known: pass it to "
                'MPMTLLowRank(mechanism="wishart") or MPMTLGroupSparse(mechanism="laplace"), or '
                "leave delta to its default here."
            )

    def _check_target_range(self):
        """Raise ValueError for a range that is none, or missing where means need it."""
        if self.target_range is not None:
            self._score_range()
        elif self.unseen_task == "mean" and self.fit_intercept and self.levels == "free":
            raise ValueError(
                'unseen_task="mean" with levels="free" needs the public range of the target, in '
                "which the mean of intercepts is taken: target_range=(low, high)."
            )

    def _intercept_range(self):
        """Public range of intercepts of real targets; None where there are none."""
        known = self.fit_intercept and self.target_range is not None
        return self._score_range() if known else None

    def _sent_range(self):
        """Public range of the intercepts that tasks send, less `init` where it is set."""
        limits = self._intercept_range()
        if limits is None or not self._has_public_init():
            return limits
        reach = 0.5 * (limits[1] - limits[0])
        return -reach, reach

    def _middle(self):
        limits = self._intercept_range()
        return 0.0 if limits is None else 0.5 * sum(limits)

    def _personalize_table(self, table):
        # Billboards of exact fits do not take it.
        more = {"classes_posterior": True} if self._keeps_class_posterior(table) else {}
        return self.billboard_.personalize(table, fit_intercept=self.fit_intercept, **more)
