"""Base class of estimators that learn the hierarchical model in one loop."""

from numbers import Integral
from typing import ClassVar

import numpy as np
from scipy import sparse

from .._runtime.constraints import Interval, StrOptions, defaults_of
from .._uncertainty import LARGEST_COVARIANCE
from ..base import BaseMTL, HasCovariates
from ..privacy.report import exact_report
from ..tables.factors import (
    BELOW,
    factor_in,
    read_across,
    read_factor,
    rows_of_factors,
    without_factors,
)
from ..tables.relation import read_relation
from ..task.nested import LevelEffects
from .billboard import HierarchicalBillboard
from .curator import PLAIN, Loop, release_model
from .errors import Errors, RowSquares
from .groups import GroupStep
from .personal import bounded
from .plan import GROUPS, STRUCTURES, HierarchicalPlan
from .queries import Sizes, query_specs
from .tasks import HierarchicalTaskSide

MOST_COLUMNS = 2000  # of matrices of all pairs of columns that are released
FEWER = (
    "Take fewer columns, such as a projection that was fitted on public rows; or an exact fit, "
    "with epsilon=None and a number as strength of the penalty."
)


class Hierarchical(HasCovariates, BaseMTL):
    """Curator, task side and bounded scores, for all losses.

    A subclass has the parameters `levels` and `standard_errors`, or the defaults of this class, and
    may say in `_structures` what slopes may share. One with exact fits has `_is_exact`, and names
    the parameters of their objective in `_of_objective`, its strength first.
    """

    _parameter_constraints = {
        **BaseMTL._parameter_constraints,
        "init": "no_validation",
        "standard_errors": ["boolean"],
        "structure": [StrOptions({"auto", *STRUCTURES, GROUPS}), list, tuple],
        "levels": [StrOptions({"auto", "free"})],
        "relation": "no_validation",  # by `read_relation`
        "factors": "no_validation",  # by `read_places`
        "relation_rank": [Interval(Integral, 1, None, closed="left"), None],
    }
    standard_errors, levels = False, "auto"
    relation: object = None
    factors: object = None
    relation_rank: int | None = None
    _is_exact = False  # whether the fit is the minimum of an objective, without the loop
    _of_objective: ClassVar[tuple[str, ...]] = ()
    _billboards: ClassVar[tuple[type, ...]] = (HierarchicalBillboard,)
    _federates = True
    _extras = (
        *(*BaseMTL._extras, "row_centre_", "row_reach_", "prediction_range_", "membership_"),
        "level_effects_",
    )

    def _check_parameters(self):
        super()._check_parameters()
        if self._is_private():
            read_across(self.factors)  # for its error
        self._structures()
        self._limits()
        if not self._is_exact:
            self._check_objective()
        if self.standard_errors and self._log_loss:
            raise ValueError(
                f'standard_errors=True with loss={self.loss!r}: they are of loss="squared" and '
                '"huber". Pass standard_errors=False.'
            )
        related = without_factors(self.factors, self.relation) is not None
        related = related or getattr(self, "clusters", None) is not None
        if related and self.standard_errors:
            raise ValueError(
                "standard_errors=True with relation= or clusters=: they are of slopes that all "
                "tasks share. Pass standard_errors=False, or leave out the covariates."
            )
        if related and self._log_loss and not self._is_exact:
            raise ValueError(
                "relation= and clusters= of classes and counts belong to exact fits. Pass "
                "epsilon=None and a number as strength of the penalty; or leave them out, and give "
                "X products of its columns and the covariates."
            )
        if self.levels == "free" and self.unseen_task == "mean" and self.fit_intercept:
            raise ValueError(
                'unseen_task="mean" needs the level of the tasks, which levels="free" does not '
                'look for: pass levels="auto".'
            )

    def _check_objective(self):
        """ValueError for a parameter of the objective that the loop would leave without effect."""
        known = defaults_of(type(self))
        for name in self._of_objective:
            value = getattr(self, name)
            if value != known[name]:
                strength = self._of_objective[0]
                raise ValueError(
                    f"{name}={value!r} is part of the objective of exact fits, which are those "
                    f"with epsilon=None and a number as {strength}. Pass these, or leave {name} at "
                    f"{known[name]!r}."
                )

    def _structures(self):
        """What slopes may share, as a tuple in the order of `STRUCTURES`."""
        wanted = self._wanted()
        known = *STRUCTURES, GROUPS
        if not len(wanted) or any(name not in known for name in wanted):
            names = ", ".join(map(repr, known))
            raise ValueError(f'structure={self.structure!r} must be "auto" or some of {names}.')
        if set(wanted) == {GROUPS}:
            return STRUCTURES
        return tuple(name for name in STRUCTURES if name in wanted)

    def _wanted(self):
        wanted = getattr(self, "structure", "auto")
        if isinstance(wanted, str):
            wanted = STRUCTURES if wanted == "auto" else (wanted,)
        return wanted

    def _n_groups(self):
        """Number of unknown groups to look for, or "auto"; 0: none."""
        return "auto" if GROUPS in self._wanted() else 0

    def _relation(self, population, quiet=False):
        """The `Relation` of the parameters, over all tasks; None without one."""
        given = without_factors(self.factors, self.relation)
        if given is None:
            return None
        order = None if isinstance(self.tasks, str) else self.tasks
        options = {"order": order, "rank": self.relation_rank, "quiet": quiet}
        return read_relation(given, population.tasks, **options)

    def _factor(self, population):
        """The `Factor` of the parameters, over all tasks; None without one."""
        if self.factors is None:
            return None
        if population.n_classes > 2 and set(self.factors) - {factor_in(BELOW, self.factors)}:
            raise ValueError(
                "factors= above and across tasks are of real targets, counts and two classes, "
                "since tasks would be asked for effects of each of more classes: leave them out, "
                "or fit one class against the others."
            )
        return read_factor(self.factors, self.relation, population.tasks)

    def _across(self, population):
        """The `RowFactor` of the parameters; None without one."""
        levels = None if self._is_private() else population.levels
        return read_across(self.factors, levels)

    def _check_columns(self, population):
        if population.n_features > MOST_COLUMNS:
            raise ValueError(
                f"X has {population.n_features} columns, and the model of this fit takes "
                f"{MOST_COLUMNS} at most, by matrices of all pairs of columns. {FEWER}"
            )
        per_task = max(population.n_classes * (population.n_classes > 2), 1)
        per_task *= (population.n_features + 1) ** 2
        if (self._log_loss or self.standard_errors) and (
            per_task * population.n_tasks > LARGEST_COVARIANCE
        ):
            raise ValueError(
                f"Classes, counts and standard_errors=True take {per_task} numbers for each task, "
                f"by matrices of all pairs of columns, and for {population.n_tasks} tasks more "
                f"than {LARGEST_COVARIANCE}. {FEWER}"
            )

    def _plan(self, population):
        self._check_columns(population)
        if self._n_groups() and population.n_classes > 2:
            raise ValueError(
                "Groups are of real targets, counts and two classes: leave them out, or pass known "
                "ones as a column of X."
            )
        epsilon = self.epsilon if self._is_private() else None
        d = population.n_features
        numbers = population.n_tasks, d, self._n_servers, self.loss, population.n_classes
        plan = HierarchicalPlan(epsilon, self.delta, self.adjacency, *numbers)
        plan.public_init = self._public_init(population)
        plan.fit_intercept = bool(self.fit_intercept)
        plan.structures, plan.levels = self._structures(), self.levels
        plan.relation = self._relation(population, quiet=True)
        plan.factor = self._factor(population)
        plan.below = factor_in(BELOW, self.factors)
        plan.across = self._across(population)
        plan.n_groups = self._n_groups()
        plan.has_errors = bool(self.standard_errors)
        plan.has_summary = self.unseen_task == "mean"
        return plan

    def _loop(self, population):
        """`Loop` of a fit, before its first query."""
        limits = self._limits()
        limits = None if limits is None else np.array(limits, dtype=float)
        return Loop(self._plan(population), limits)

    def _curator(self, population, source):
        self._relation(population)  # for its warnings
        loop = self._loop(population)
        loop.log = self._progress("release %d: noise std %.3g")
        return release_model(loop, source)

    def _middle(self):
        """Intercept of a public initial model that has none: the middle of the public range."""
        limits = self._limits()
        return 0.0 if limits is None else 0.5 * sum(limits)

    def _task_side(self, table, population):
        self._check_columns(population)
        return HierarchicalTaskSide(table, self._public_init(population))

    def _planned_report(self, population):
        if not self._is_private():
            return exact_report(PLAIN)
        return self._plan(population).report(self._source())

    def _check_stored(self):
        for name, (place, _) in rows_of_factors(self.factors).items():
            raise ValueError(
                f"Files of models of tasks have no effects of the factor {name!r} {place} tasks: "
                "leave it out of factors= and of X; or use fit, or fit_shards without models=."
            )

    def _query_specs(self, population):
        d, relation = population.n_features, self._relation(population, quiet=True)
        sizes = [0 if relation is None else relation.rank]
        for factor in (self._factor(population), self._across(population)):
            sizes.append(0 if factor is None else factor.n_levels)
        sizes = Sizes(d, self.loss, population.n_classes, *sizes)
        specs = query_specs(sizes)
        more = [GroupStep] * bool(self._n_groups()) + [RowSquares, Errors] * self.standard_errors
        return specs | {kind.kind: kind.spec(sizes) for kind in more}

    def _personalize_table(self, table):
        if not self._classification:
            return super()._personalize_table(table)
        kept = self._keeps_class_posterior(table)
        return self.billboard_.personalize(table, posterior=kept)

    def _row_scores(self, rows):
        """Scores of rows that are bounded about a task's own, within its range of predictions."""
        scores = self._scores_of_models(rows)
        if rows.levels is None:
            return scores
        effects = self.billboard_.row_effects(rows.levels)  # of two classes at most
        return scores + np.reshape(effects, (-1, *[1] * (scores.ndim - 1)))

    def _scores_of_models(self, rows):
        if not hasattr(self, "row_reach_"):  # an exact fit, or a billboard without tasks
            return super()._row_scores(rows)
        scores = np.empty((*self._shape_of(rows), *self.coef_.shape[1:-1]))
        every = None if rows.codes is not None else _dense(rows.features())
        for place, t, own in self._tasks_of(rows):
            known = self._effects_below(t)
            moved = 0.0 if known is None else known.of(self._places_of_rows(known, rows, own))
            X = _dense(rows.features(own)) if every is None else every
            scores[place] = self._scores_of_task(t, X, moved)
        return self._by_covariates(scores, rows)

    def _shape_of(self, rows):
        """Of numbers of rows, which wide tables have for every task."""
        n = rows.X.shape[0]
        return (n,) if rows.codes is not None else (n, len(self._wide_columns()))

    def _tasks_of(self, rows):
        """By task, where its rows are among numbers of all, the task, and which rows."""
        if rows.codes is None:
            for j, t in enumerate(self._wide_columns()):
                yield (slice(None), j), t, slice(None)
        else:
            for t in np.unique(rows.codes):
                own = np.flatnonzero(rows.codes == t)
                yield own, t, own

    def _effects_below(self, t):
        """`LevelEffects` of the task at t; None without, and of a task without rows."""
        found = self.level_effects_[t] if t >= 0 and hasattr(self, "level_effects_") else None
        return found if isinstance(found, LevelEffects) else None

    def _places_of_rows(self, known, rows, own):
        labels, codes = rows.levels.column(self.billboard_.below)
        return known.places(labels, codes[own])

    def _doubt_of_rows(self, rows):
        if rows.levels is None:
            return 0.0
        found = self.billboard_.row_doubt(rows.levels)
        found = found if rows.codes is not None or np.ndim(found) == 0 else found[:, None]
        if not self._log_loss or not hasattr(self, "level_effects_"):
            return found
        found = found + np.zeros((*self._shape_of(rows), *self.coef_.shape[1:-1]))
        for place, _, _, known, at in self._levels_of_rows(rows):
            found[place] += known.doubt(at)
        return found

    def _levels_of_rows(self, rows):
        """`_tasks_of`, `LevelEffects` and the places of levels, of tasks that have these."""
        for place, t, own in self._tasks_of(rows):
            known = self._effects_below(t)
            if known is not None:
                yield place, t, own, known, self._places_of_rows(known, rows, own)

    def _with_levels_of_rows(self, variance, rows):
        if not hasattr(self, "level_effects_"):
            return variance
        for place, t, own, known, at in self._levels_of_rows(rows):
            if not np.isfinite(self.noise_variance_[t]):
                continue
            X = _dense(rows.features(own))
            Z, left = known.known(at, np.c_[X, np.ones(len(X))])
            of_model = np.maximum(np.sum((Z @ self.covariance_[t]) * Z, axis=1), 0.0)
            variance[place] = of_model + (1.0 + left) * self.noise_variance_[t]
        return variance

    def _scores_of_task(self, t, X, moved=0.0):
        """Of rows X (n, d) of the task at t, below 0 of one that was not fitted.

        `moved` are effects of the levels of rows.
        """
        board = self.billboard_
        if t >= 0 and self.row_reach_[t].any():
            model = self.coef_[t], self.intercept_[t]
            coef, intercept = board.subtract_init(*model)
            scores = intercept + self._near_rows(t, X) @ coef.T + moved
            scores = np.clip(scores, *self.prediction_range_[t])
        elif hasattr(self, "mean_coef_"):
            return self._mean_scores(X, self.mean_coef_, self.mean_intercept_)
        else:
            return X @ self.coef_[t].T + self.intercept_[t] + moved
        return self._with_init(scores, X, coef, intercept)

    def _near_rows(self, t, X):
        """Rows X as they count in the task at t: up to a distance from its centre."""
        if not hasattr(self, "row_reach_") or not self.row_reach_[t].any():
            return super()._near_rows(t, X)
        return self.row_centre_[t] + bounded(X - self.row_centre_[t], self.row_reach_[t])

    def _mean_scores(self, X, coef, intercept):
        if not hasattr(self, "row_reach_"):  # an exact fit
            return super()._mean_scores(X, coef, intercept)
        coef, intercept = self.billboard_.subtract_init(coef, intercept)
        near, limits = self.billboard_.near_rows(_dense(X))
        return self._with_init(np.clip(intercept + near @ coef.T, *limits), X, coef, intercept)

    def _with_init(self, scores, X, coef, intercept):
        board = self.billboard_
        if board.init is not None:
            of_init = board.add_init(np.zeros_like(coef), np.zeros_like(intercept))
            scores += X @ of_init[0].T + of_init[1]
        return scores


def _dense(X):
    return X.toarray() if sparse.issparse(X) else np.asarray(X, dtype=float)
