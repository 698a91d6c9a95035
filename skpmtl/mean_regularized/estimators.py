"""Personal models around a private mean (Hu, Wu and Smith, "Private multi-task learning")."""

import math
import warnings
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from numbers import Integral, Real
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from .._display.summary import check_coverage
from .._docstrings import TARGET_RANGE, UNCERTAINTY, UNSEEN, fill_docstring
from .._runtime.compat import Interval, StrOptions
from .._runtime.hints import Adjacency, ClassWeight, Curator, RandomState
from .._runtime.stack import users_line
from ..base import BaseMTL, HasCovariates, MTLClassifierMixin, MTLRegressorMixin
from ..engine.curator import PLAIN, release_structures
from ..engine.plan import LOGITS
from ..engine.queries import query_specs
from ..exchange.protocol import Population, QuerySpec, run, task_side_of
from ..local.centred import Problem, dense_copy
from ..privacy.report import exact_report
from ..rounds.plan import BINS
from ..solvers.mean import cluster_means
from ..tables.relation import read_relation
from ..tables.targets import class_codes, class_targets
from . import errors, exact
from .billboard import MeanBillboard, PooledBillboard, cluster_rows
from .curator import around_a_mean, publish
from .personal import DENSE_LIMIT, PersonalModels
from .plan import MeanPlan, PooledPlan, auto_rounds, columns_for
from .tasks import MeanTaskSide, PooledTaskSide
from .wide import SparseModels, WideSparse

__all__ = ["PrivateMeanRegMTL", "PrivateMeanRegMTLClassifier"]


_LOG_ODDS = 3.0  # bound on what intercepts of a task may say of a class: a share of 95 %


class MeanFamily(HasCovariates, BaseMTL):
    """Estimators that release a mean in rounds and personalise it afterwards."""

    _parameter_constraints: ClassVar[dict] = {
        **BaseMTL._parameter_constraints,
        "lam": [StrOptions({"auto"}), Interval(Real, 0, None, closed="neither")],
        "clip_norm": [StrOptions({"auto"}), Interval(Real, 0, None, closed="neither")],
        "n_rounds": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "ridge": [Interval(Real, 0, None, closed="left")],
        "init": "no_validation",  # by `read_public_init`
        "task_weight": [StrOptions({"equal", "samples"})],
        "clusters": [Mapping, None],
        "relation": "no_validation",  # by `read_relation`
        "relation_rank": [Interval(Integral, 1, None, closed="left"), StrOptions({"all"}), None],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="neither")],
    }
    _billboards: ClassVar[tuple[type, ...]] = (MeanBillboard,)
    _removed: ClassVar[dict] = {
        "update": "prox",
        "local_steps": "auto",
        "local_learning_rate": 1.0,
        "server_learning_rate": 1.0,
        "sampling": "all",
        "sampling_rate": 1.0,
        "personalization": "mean-reg",
    }
    _federates = True
    standard_errors = False

    def _n_rounds(self, epsilon):
        return auto_rounds(epsilon) if isinstance(self.n_rounds, str) else self.n_rounds

    def _size(self, population):
        """Numbers in one shared model."""
        return population.n_outputs * population.n_features

    def _curator(self, population, source):
        """Curator of the rounds; see `skpmtl.exchange`."""
        problem, relation = self._problem(population), self._relation(population)
        cluster_of, to = self._cluster_rows(population.tasks), self._to(population, True)
        centres = np.zeros((self._groups(population), self._size(population)))
        plan = self._plan(population, relation)
        billboard = self._billboard(population, problem, centres, cluster_of, relation)
        billboard.init = self._public_init(population)
        billboard.noise_multiplier, billboard.round_delta = plan.noise_multiplier, plan.round_delta
        message = f"round %d: noise std %.3g ({plan.noise_over_path:.3g} of the longest path)"
        log = self._progress(message, plan.n_rounds)
        self._warn_of_noise(plan, population)
        return publish(plan, billboard, population, to, source, log)

    def _to(self, population, quiet=False):
        """Public: the shared model of every task, or what it multiplies its contribution by; see
        `skpmtl.mean_regularized.curator.publish`."""
        relation = self._relation(population, quiet)
        if relation is not None:
            return relation.weights(population.tasks)
        return cluster_rows(population.tasks, self._cluster_rows(population.tasks))

    def _plan(self, population, relation=None):
        """Budget of the rounds."""
        m = population.n_tasks
        if relation is None:
            cluster_of = self._cluster_rows(population.tasks)
            groups = np.bincount(cluster_rows(population.tasks, cluster_of))
        else:
            groups = np.full(relation.rank, m / relation.rank)
        n_groups = len(groups)
        intercepts = None
        if self._is_private() and self.unseen_task == "mean":
            found = self._intercept_range(population)
            if self.fit_intercept:
                intercepts = n_groups * population.n_outputs, *found
        size = n_groups * self._size(population)
        return MeanPlan(self, m, size, intercepts, groups, relation, self._public_init(population))

    def _relation(self, population, quiet=False, most=None):
        """The `Relation` of the parameters, over all tasks; None without one.

        Of `most` columns at most; None: by the rule of the rounds.
        """
        if self.relation is None:
            if self.relation_rank is not None:
                raise ValueError(
                    f"relation_rank={self.relation_rank!r} has no effect without relation=."
                )
            return None
        if self.clusters is not None:
            raise ValueError(
                "clusters= is a relation of its own: give one of clusters= and relation=, or the "
                "clusters as a column of the latter."
            )
        if self.relation_rank == "all":
            raise ValueError(
                'relation_rank="all" is the whole penalty of a graph or of Omega, without a '
                "budget: pass epsilon=None, or a number of columns."
            )
        order = None if isinstance(self.tasks, str) else self.tasks
        return read_relation(
            self.relation,
            population.tasks,
            order=order,
            rank=self.relation_rank,
            quiet=quiet,
            most=columns_for(self, population) if most is None else most,
        )

    def _warn_of_noise(self, plan, population):
        """Where rounds were set by hand; the rule of clip_norm="auto" knows when to stop."""
        if plan.noise_over_path > 1.0 and not plan.auto:
            warnings.warn(
                f"The noise of one round is {plan.noise_over_path:.2g} times as long as the path "
                "that all rounds together can make: the shared model is little but noise, whatever "
                'clip_norm is. Take more tasks, more epsilon, fewer features, or clip_norm="auto".',
                UserWarning,
                stacklevel=users_line(),
            )

    def _middle(self):
        """Of the public range of the target."""
        if getattr(self, "target_range", None) is None:
            return 0.0
        return 0.5 * sum(self._score_range())

    def _intercept_range(self, population):
        """Public number, and the distance from it at which intercepts of tasks are clipped.

        With a public initial model that is the distance from its intercepts.
        """
        auto = isinstance(self.clip_norm, str)
        if population.n_classes:
            bound = _LOG_ODDS * math.sqrt(population.n_outputs) if auto else self.clip_norm
            return 0.0, float(bound)
        if self.target_range is not None:
            low, high = self._score_range()
            return 0.0 if self._has_public_init() else self._middle(), 0.5 * (high - low)
        if auto and self.fit_intercept:
            raise ValueError(
                'unseen_task="mean" releases the mean of the tasks\' intercepts, and '
                'clip_norm="auto" does not tell where they may be. Pass the public range of the '
                "target, target_range=(low, high), or a number as clip_norm."
            )
        return 0.0, 0.0 if auto else float(self.clip_norm)

    def _has_mean(self):
        if self.billboard_.has_one_mean or isinstance(self.billboard_, PooledBillboard):
            return super()._has_mean()
        return self.billboard_.mean_intercept is not None

    def _n_iter(self, billboard):
        return max(len(billboard.clip_norms), 1)

    # ------------------------------------------------------------------- federated fits
    def _groups(self, population):
        """Number of shared models."""
        relation = self._relation(population, quiet=True)
        if relation is not None:
            return relation.rank
        cluster_of = self._cluster_rows(population.tasks)
        return 1 if cluster_of is None else len(set(cluster_of.values()))

    def _query_specs(self, population):
        n_groups, auto = self._groups(population), isinstance(self.clip_norm, str)
        size = self._size(population)
        public = {
            "centre": [(n_groups, size)],
            "clip_norm": Real if auto else float(self.clip_norm),
            "own_units": bool,
        }
        found = {"update": QuerySpec({"update": (size,)}, public)}
        if auto:
            found["length"] = QuerySpec({"bins": BINS.shape})
        return found

    def _planned_report(self, population):
        plan = self._plan(population, self._relation(population, quiet=True))
        return plan.report(self._source())

    def _problem(self, population):
        counts = self.loss == "poisson" and not population.n_classes
        loss = self.loss if counts else population.loss
        return Problem(
            loss,
            population.n_outputs,
            self.fit_intercept,
            self.task_weight,
            self.lam,
            float(self.ridge),
        )

    def _cluster_rows(self, labels):
        """{task: number of its cluster} for the clusters that have one of the tasks `labels`."""
        if self.clusters is None:
            return None
        tasks = labels.tolist()
        missing = [task for task in tasks if task not in self.clusters]
        if missing:
            cluster_rows(labels, dict.fromkeys(set(tasks) - set(missing), 0))
        present = sorted({str(self.clusters[task]) for task in tasks})
        number = {name: g for g, name in enumerate(present)}
        return {
            task: number[str(name)] for task, name in self.clusters.items() if str(name) in number
        }

    def _billboard(self, population, problem, centres, cluster_of, relation):
        shape = (population.n_features,)
        return MeanBillboard(
            centres=centres,
            releases=[],
            clip_norms=[],
            alone_weight=np.ones(len(centres)),
            shape=shape if problem.loss != "multinomial" else (problem.n_outputs, *shape),
            problem=problem,
            sparse=population.is_sparse and relation is None,
            cluster_of=cluster_of,
            relation=relation,
            loss=self.loss,
        )


class MeanRegularized(WideSparse, MeanFamily):
    """Linear models around the shared ones, with local intercepts; their exact fits."""

    _parameter_constraints = {
        **MeanFamily._parameter_constraints,
        "l1": [Interval(Real, 0, None, closed="left")],
        "levels": [StrOptions({"auto", "free", "pooled"})],
        "standard_errors": ["boolean"],
    }
    levels = "free"
    _sparse_in_place = True
    _task_sides = MeanTaskSide

    def __init__(
        self,
        lam="auto",
        *,
        epsilon=1.0,
        delta=None,
        adjacency="replace-one",
        curator="trusted",
        clip_norm="auto",
        n_rounds="auto",
        init=None,
        ridge=0.0,
        l1=0.0,
        task_weight="equal",
        clusters=None,
        relation=None,
        relation_rank=None,
        fit_intercept=True,
        task_feature=None,
        tasks="auto",
        unseen_task="error",
        target_range=None,
        uncertainty=False,
        max_iter=100,
        tol=1e-10,
        secure=False,
        random_state=None,
        verbose=0,
        dtype=np.float64,
    ):
        self.lam = lam
        self.epsilon = epsilon
        self.delta = delta
        self.adjacency = adjacency
        self.curator = curator
        self.clip_norm = clip_norm
        self.n_rounds = n_rounds
        self.init = init
        self.ridge = ridge
        self.l1 = l1
        self.task_weight = task_weight
        self.clusters = clusters
        self.relation = relation
        self.relation_rank = relation_rank
        self.fit_intercept = fit_intercept
        self.task_feature = task_feature
        self.tasks = tasks
        self.unseen_task = unseen_task
        self.target_range = target_range
        self.uncertainty = uncertainty
        self.max_iter = max_iter
        self.tol = tol
        self.secure = secure
        self.random_state = random_state
        self.verbose = verbose
        self.dtype = dtype

    def summary_frame(self, coverage=0.9):
        """The shared model with its standard errors, as a pandas DataFrame.

        Parameters
        ----------
        coverage : float, default=0.9
            Of the intervals, in (0, 1): quantiles of a t distribution.

        Returns
        -------
        frame : DataFrame
            One row per coefficient; with ``relation=`` per covariate and coefficient, with
            ``clusters=`` per cluster, with more than two classes per class. Columns "effect", the
            shared model before it is shrunk, "std_error", "lower" and "upper", and "noise_share",
            the part of the squared standard error that is noise of the guarantee. Errors are NaN
            where none were released.

        Raises
        ------
        ValueError
            For a fit without ``standard_errors=True``, and for a coverage outside of (0, 1).

        Warns
        -----
        UserWarning
            Where standard errors are NaN; it says why.
        """
        check_is_fitted(self)
        check_coverage(coverage)
        found = getattr(self.billboard_, "errors", None)
        if found is None:
            raise ValueError("This fit has no standard errors: refit with standard_errors=True.")
        if found.reason is not None:
            warnings.warn(
                f"There are no standard errors: {found.reason}.",
                UserWarning,
                stacklevel=users_line(),
            )
        return self._errors_frame(coverage)

    def _errors_frame(self, coverage):
        found, billboard = self.billboard_.errors, self.billboard_
        names = getattr(self, "coef_names_", None)  # a billboard without tasks has none
        if names is None:
            names = [f"x{j}" for j in range(billboard.n_features)]
        return errors.frame(found, billboard, names, getattr(self, "classes_", None), coverage)

    # ------------------------------------------------------------------ pooled levels
    def _free_because(self, population):
        """Why levels of tasks are not looked for, by parameters; None where they may be."""
        if not self._is_private() and self.standard_errors:
            return "standard errors without a budget are those of the exact fit"
        for name in ("lam", "clip_norm", "n_rounds"):
            if not isinstance(getattr(self, name), str):
                return f"{name}={getattr(self, name)!r} is of the rounds with free levels"
        for name, missing in (("ridge", 0), ("l1", 0), ("clusters", None)):
            given = getattr(self, name)
            if given is not None and (missing is None or given != missing):
                return f"{name}= is of the rounds with free levels"
        if self.relation is not None:
            reason = self._no_related_levels()
            if reason is not None:
                return reason
        elif self.relation_rank is not None:
            return "relation_rank= is of relation="
        if self.task_weight != "equal":
            return f"task_weight={self.task_weight!r} is of the rounds with free levels"
        if not self.fit_intercept:
            return "there are no intercepts"
        if population.n_outputs > 1:
            return "there are more than two classes"
        if population.is_sparse and population.n_tasks * self._size(population) > DENSE_LIMIT:
            return "models of wide sparse rows are not dense"
        return None

    def _no_related_levels(self):
        """Why levels do not follow a relation; None: they do."""
        if not self._is_private():
            return "relation= without a budget is exact"
        if self._log_loss:
            return "relation= of classes and counts is of the rounds with free levels"
        if self.target_range is None:
            return "relation= needs a public range of levels, target_range="
        if self.standard_errors or self.uncertainty == "unseen":
            return "relation= has errors and intervals of new tasks with free levels only"
        return None

    def _course(self, population):
        """Plan of the fit around a pooled model -> PooledPlan or None, why not"""
        free, unseen = self.levels == "free", self.uncertainty == "unseen"
        if free and not unseen:
            return None, None
        reason = "they are free" if free else self._free_because(population)
        if reason is None:
            plan = PooledPlan(
                self, population, self._public_init(population), partial(self._relation, population)
            )
            if plan.levels:
                return plan, None
            reason = "there are too few tasks for the budget to find their levels"
        if self.levels == "pooled" and self.fit_intercept:
            raise ValueError(f'levels="pooled", but {reason}: take levels="auto".')
        if unseen:
            raise ValueError(
                f'uncertainty="unseen" needs pooled levels, but {reason}: take PrivateMTL, or '
                "uncertainty=True."
            )
        return None, reason

    def _sent_range(self):
        """Public range of the levels, less `init` where it is set; None without a target range."""
        if self._classification:
            return LOGITS
        if self.target_range is None:
            return None
        low, high = self._score_range()
        reach = 0.5 * (high - low)
        return (-reach, reach) if self._has_public_init() else (low, high)

    def _with_targets(self, table):
        table = super()._with_targets(table)
        return dense_copy(table) if self.loss == "poisson" else table

    def _with_spread_labels(self, table):
        """Intercepts without a penalty need them; see `skpmtl.tables.targets.class_targets`."""
        if not table.n_classes:
            return table
        codes = class_codes(table.y, table.n_classes)
        given = table.offsets, table.n_classes
        y = class_targets(codes, *given, spread=True, support=table.support)
        return replace(table, y=y)

    def _curator(self, population, source):
        plan, _ = self._course(population)
        if plan is None:
            return super()._curator(population, source)
        log = self._progress("release %d: noise std %.3g")
        if plan.relation is not None:
            self._relation(population, most=plan.relation.rank)  # for its warnings
        return release_structures(population, plan, source, log, around_a_mean)

    def _plan(self, population, relation=None):
        plan = super()._plan(population, relation)
        if self.levels != "free":
            plan.free_because = self._course(population)[1]
        return plan

    def _relation(self, population, quiet=False, most=None):
        if self.l1:
            raise ValueError(
                f"l1={self.l1!r} goes with the whole penalty of a graph or Omega, and no budget: "
                'pass relation=, relation_rank="all" and epsilon=None, or l1=0.'
            )
        return super()._relation(population, quiet, most)

    def _fit_table(self, table):
        population = Population.of(table)
        self._check_errors(population)
        if self._course(population)[0] is not None:
            return super()._fit_table(table)
        source = self._source()
        task_side = self._task_side(table, population)
        tasks = task_side_of(task_side, table, population)
        curator = self._queries(population, source)
        billboard = run(curator, tasks, source, n_servers=self._n_servers)
        models = task_side.models(billboard)
        fitted = self._fitted(billboard, models, len(billboard.clip_norms))
        fitted["privacy_"] = billboard.report
        if not billboard.has_one_mean:
            fitted.update(billboard.attributes())
        elif models.dense:
            fitted |= {"mean_coef_": billboard.mean.copy(), **billboard.stds()}
        if billboard.mean_intercept is None:
            self._open_intercept(billboard, table.tasks, models.intercept)
        return self._with_mean_intercept(fitted, billboard)

    def _fit_exact(self, table):
        population = Population.of(table)
        self._check_errors(population)
        course = self._course(population)[0]
        if course is not None:
            fitted = self._fit_table(table)
            if self.loss != "squared" or self.billboard_.level is not None:
                return fitted
            del self.billboard_  # no window of levels stood out: there is an exact minimum
        if self.loss == "huber" and not isinstance(self.lam, str):
            raise ValueError(
                f'lam={self.lam!r} with loss="huber" and no budget: the objective is of squared '
                'loss, counts or classes. Take lam="auto", or LocalOnly for tasks alone.'
            )
        return exact.fit(self, table)

    def _check_errors(self, population):
        if self.standard_errors and self.loss == "huber":
            raise ValueError(
                'standard_errors=True with loss="huber": they are of the other losses. Pass '
                "standard_errors=False."
            )
        wide = population.n_tasks * self._size(population) > DENSE_LIMIT
        if self.standard_errors and population.is_sparse and wide:
            raise ValueError(
                "standard_errors=True needs dense models, and wide sparse X has none: pass fewer "
                "columns, X.toarray(), or standard_errors=False."
            )

    def _task_side(self, table, population):
        """The task side for the tasks of `table`."""
        plan, _ = self._course(population)
        if plan is not None:
            table = self._with_spread_labels(table)
            kept = self._keeps_class_posterior(table)
            return PooledTaskSide(table, population.n_tasks, self.fit_intercept, plan, kept)
        which = cluster_rows(table.tasks, self._cluster_rows(population.tasks))
        relation = self._relation(population, quiet=True)
        given = self._problem(population), which, relation, self._public_init(population)
        return self._task_sides(self, table, *given)

    def _public_attributes(self, billboard, population):
        found = super()._public_attributes(billboard, population)
        if not self.fit_intercept:  # nothing to release
            billboard.set_intercept(np.zeros((len(billboard.centres), billboard.problem.n_outputs)))
            self._with_mean_intercept(found, billboard)
        return found

    def _n_iter(self, billboard):
        if isinstance(billboard, PooledBillboard):
            return max(len(billboard.releases), 1)
        return super()._n_iter(billboard)

    def _query_specs(self, population):
        plan, _ = self._course(population)
        if plan is not None:
            return query_specs(plan, population) | self._pooled_errors_spec(plan)
        found = super()._query_specs(population)
        if self.standard_errors and self._is_private():
            size = self._size(population)
            public = {"centre": [(self._groups(population), size)]}
            found["deviation"] = errors.query_spec(size, public)
        if self.unseen_task == "mean":
            middle, bound = self._intercept_range(population)
            public = {"billboard": MeanBillboard, "clip_norm": bound, "middle": middle}
            shapes = {"intercept": (population.n_outputs,)}
            found["intercept"] = QuerySpec(shapes, public)
        return found

    def _pooled_errors_spec(self, plan):
        if "deviation" not in plan.budget_shares:
            return {}
        public = {"theta": [(1, plan.dimension + 1)]}
        public |= dict.fromkeys(("middle", "unit", "scale"), Real)
        if plan.scales_columns:
            public["column_scale"] = [(plan.dimension,)]
        return {"deviation": errors.query_spec(plan.dimension + 1, public)}

    def _planned_report(self, population):
        plan, _ = self._course(population)
        if plan is None:
            return super()._planned_report(population) if self._is_private() else exact_report()
        return plan.report(self._source()) if self._is_private() else exact_report(PLAIN)

    def _open_intercept(self, billboard, tasks, b):
        """Mean intercepts of the tasks where there are none, or the report promises nothing."""
        if not self.fit_intercept:
            billboard.set_intercept(np.zeros((len(billboard.centres), b.shape[1])))
        elif billboard.report.guarantee == "none" and billboard.relation is not None:
            billboard.set_intercept(
                np.linalg.lstsq(billboard.relation.rows(tasks), b, rcond=None)[0]
            )
        elif billboard.report.guarantee == "none":
            which = cluster_rows(tasks, billboard.cluster_of)
            billboard.set_intercept(cluster_means(b, which, np.bincount(which)))

    def _with_mean_intercept(self, fitted, billboard):
        if billboard.mean_intercept is not None and billboard.has_one_mean:
            b = billboard.mean_intercept
            fitted["mean_intercept_"] = b if len(billboard.shape) == 2 else float(b[0])
        return fitted

    def _fitted(self, billboard, models, n_iter):
        b = models.intercept
        fitted = {
            "intercept_": b if len(billboard.shape) == 2 else b[:, 0],
            "n_iter_": max(n_iter, 1),
            "billboard_": billboard,
        }
        if models.dense:
            fitted["coef_"] = models.coef
            if self._keeps_class_posterior(models.centred.table):
                fitted |= models.class_posterior()
        else:
            fitted["models_"] = SparseModels(models)
        return fitted

    def _models_without_rows(self, fitted, tasks, positions):
        coef, intercept = super()._models_without_rows(fitted, tasks, positions)
        if "dual_gap_" in fitted:
            coef = exact.vertices_without_rows(self, fitted, tasks, positions)
        return coef, intercept

    # -------------------------------------------------------------- personal models
    def _personalize_table(self, table):
        if isinstance(self.billboard_, PooledBillboard):
            return self.billboard_.personalize(
                self._with_spread_labels(table),
                fit_intercept=self.fit_intercept,
                classes_posterior=self._keeps_class_posterior(table),
            )
        models = PersonalModels(table, self.billboard_, dense=True)
        fitted = self._fitted(self.billboard_, models, 0)
        extras = {name: fitted[name] for name in self._extras if name in fitted}
        return fitted["coef_"], fitted["intercept_"], extras

    def _no_posterior(self):
        if self._classification and not isinstance(self.lam, str):
            return (
                f"models of classes with lam={self.lam!r} are minima of one objective, whose "
                'probabilities are not averaged: take lam="auto".'
            )
        if self.relation_rank == "all":
            return (
                'models of relation_rank="all" are one minimum over all tasks, and have no '
                "posterior of each: take another relation_rank."
            )
        return None

    def _table_posterior(self, table, billboard, width):
        n_tasks = len(table.everybody)
        if table.is_sparse and n_tasks * table.n_features > DENSE_LIMIT:
            raise ValueError(
                f"uncertainty=True needs models that are an array, and sparse X of {n_tasks} "
                f"tasks and {table.n_features} features has differences to the shared model only: "
                "take fewer features, or personalise fewer tasks at a time."
            )
        return super()._table_posterior(table, billboard, width)

    def _first_models(self, table):
        if isinstance(self.billboard_, PooledBillboard):
            return super()._first_models(table)
        with np.errstate(all="ignore"):
            models = self.billboard_.personalize(table)
        fitted = self._fitted(self.billboard_, models, 0)
        del fitted["n_iter_"]
        if "coef_" in fitted:
            models = self._finite_models(fitted["coef_"], fitted["intercept_"])
            fitted["coef_"], fitted["intercept_"] = models
        fitted |= self._posterior_of(table, self.billboard_)
        if len(table.absent):
            whole = self._with_absent({**vars(self), **fitted}, table)
            fitted = {name: whole[name] for name in fitted}
        return fitted

    def _mean_models(self, unseen):
        """-> centre of every unseen task, centres (n_centres, n_outputs, d), intercepts

        Raises ValueError for tasks that the public mapping does not name.
        """
        billboard = self.billboard_
        if isinstance(billboard, PooledBillboard):
            return super()._mean_models(unseen)
        which, centres = billboard.around(unseen)
        models = billboard.models(centres).reshape(len(centres), -1, billboard.shape[-1])
        return which, models, billboard.intercepts(unseen)


_DOC = """{summary}

    Every task has its own {model}, held near a shared model w~ that is learned in rounds: the
    tasks receive w~, work on their own rows, and send a clipped update of which only the noisy
    mean is published (joint, or billboard, differential privacy at task level). Afterwards
    every task turns the last w~ into its own model, at no further cost: with ``lam="auto"`` an
    average of the models around w~ and of the task alone, weighted by their evidence on the task's
    own rows; with a number the proximal model.{candidates}

    Parameters
    ----------
    lam : float or "auto", default="auto"
        Strength of the penalty towards the shared model, in the objective below. "auto" is every
        task's own
        choice, which stays with the task: {auto}
        With ``epsilon=None`` w~ is the v of the objective with the median of the
        latter{held_back}.{of_rows}
    levels : {{"auto", "free", "pooled"}}, default="auto"
        The level of a task is its score at its mean row. "auto": where the budget allows it (m mu
        at least 33, see Notes{known_levels}), levels of all tasks are part of the shared model, and
        a task goes between its own level and the pooled one by its own evidence. "pooled": no task
        may go without the pooled level. "free": every task has its own, and the rounds are those of
        [1]_; so they are with a number as `lam`, `clip_norm` or `n_rounds`, with `ridge`,
        `clusters`, ``task_weight="samples"``, ``fit_intercept=False``, more than two classes,
        sparse rows with more than 2^20 coefficients; with `relation` but for squared loss with a
        budget, `target_range`, and neither `standard_errors` nor intervals of new tasks; and
        without a budget with `standard_errors`, or where no window of levels stands out.
    epsilon : float or None, default=1.0
        Privacy budget of the whole fit. None or infinity: no privacy, the exact optimum where
        levels are free, otherwise the same algorithm without noise.
    delta : float or None, default=None
        Delta of the (epsilon, delta) guarantee, in (0, 1). None: ``min(1e-5, 1 / n_tasks**2)``.
    {adjacency}
    {curator}
    clip_norm : "auto" or float, default="auto"
        Public bound on the norm of an update. "auto" needs no knowledge of units: bounds follow
        from the ratio q = n_tasks mu / sqrt(number of coefficients), which is public, and from the
        length of most tasks' models, by a noisy histogram that takes 4 % of the squared budget;
        if that is too little, or lengths differ, every task standardises its contribution. Bounds
        fall from round to round, and the last w~ is shrunk according to its known noise. A number:
        choose about the distance from 0 to the shared model, divided by a few rounds.
    n_rounds : "auto" or int, default="auto"
        "auto" is a public rule. With ``clip_norm="auto"``: none for q below 1.5, where w~ would be
        noise (nothing is released, and `epsilon` spent is 0), then 1 (classes: 10), 10, 30 and
        100 for q up to 4, 6, 12 and above. With a number as `clip_norm`: 3, 10, 30, 100 for
        epsilon up to .1, 1, 2, above.
    {init} Rounds, models of tasks and `ridge` apply to differences from it.
    ridge : float, default=0.0
        Weight of ``ridge / 2 * ||W||_F^2``, with `init` of differences to it.
    l1 : float, default=0.0
        Weight of the sum of the absolute values of all coefficients, with `init` of differences to
        it, where ``relation_rank="all"``; `tol` then bounds the duality gap relative to the
        objective, and `max_iter` hundreds of first-order steps.
    task_weight : {{"equal", "samples"}}, default="equal"
        "equal": mean loss per task. "samples": sum of losses. Updates of all tasks count the
        same in either case.
    clusters : mapping of task to cluster or None, default=None
        Public. One shared model per cluster, at no cost (parallel composition). It may name
        tasks that are added later.
    relation : DataFrame, mapping, array, sparse matrix, graph or None, default=None
        Public covariates of the tasks, on which the shared model depends: task k lies around
        z_k' B, with z_k its covariates and a constant, and B (`relation_coef_`) learned in the
        rounds at the noise of one shared model. One of

        - a DataFrame with the tasks as its index, or a mapping of task to covariates: numbers are
          columns; other values are categories, of which the first has no column;
        - an array of numbers with a row for every task in the order of `tasks`;
        - a sparse matrix of weights between tasks or a graph of networkx, of which the smoothest
          vectors are taken;
        - a dense penalty Omega (n_tasks, n_tasks).

        Covariates may include those of tasks that are added later; see also `relate`. With
        ``clip_norm="auto"`` columns for which the budget is too small are left out, the last ones
        first, and the report says so. Sparse X is then made dense. Pass `target_range` for levels
        that follow the covariates, too (see `levels`).
    relation_rank : int, "all" or None, default=None
        Columns of the basis of a graph or Omega. None: 10, or one for five tasks. "all", without a
        budget and with a number as `lam`: the whole of Omega is the penalty, see Notes.
    fit_intercept : bool, default=True
        Whether every task has an intercept, which is local and not penalised{held}.
    {task_feature}
    {tasks}{class_list}
    unseen_task : {{"error", "mean"}}, default="error"
        What `predict` does with a task that was not fitted: raise an error, or use the shared model
        (with `clusters` or `relation`, that of its cluster or covariates). With local intercepts
        their clipped mean is then one more release, which takes 10 % of the squared budget; with
        pooled levels the shared model has one.{target_range}
    standard_errors : bool, default=False
        Whether to release standard errors of the shared model, or of the relation, for
        `summary_frame`: one more release, a sum over the tasks, takes 5 % of the squared
        budget, or 10 % where its noise would be above an eighth of the tasks. They need
        10 rounds and models with a common unit, and dense models. Without a budget they cost
        nothing.
    max_iter : int, default=100
        Bound on the iterations of the exact solver.
    tol : float, default=1e-10
        The exact solver stops when no coefficient moves by more than this fraction of the largest.
    {secure}
    {random_state}
    {verbose}
    {dtype}

    Attributes
    ----------
    coef_ : ndarray of shape (n_tasks, n_features){shapes}
        Personal models. All together they are not a private object: hand each task its own
        with `export_task`. For wide sparse X (more than 2^20 coefficients) only the
        differences on the columns of a task's rows are kept, or, where these outgrow the rows,
        the rows themselves; `coef_` is then written out at every access.
    intercept_ : ndarray of shape (n_tasks,){intercepts}
    mean_coef_, mean_intercept_
        Shared model; with ``clusters`` see ``billboard_.mean``. The intercept is missing when
        it was not released. The slopes are 0 where ``billboard_.own_units``: tasks then multiply
        their centre by the length of their own model, so that it has no length that all share.
    relation_coef_ : ndarray of shape (n_covariates, n_features){shapes_of_covariates}
        With ``relation``: what one more of every covariate adds to the coefficients, the constant
        first;
        names are ``billboard_.relation.names``. Where ``billboard_.own_units``, in lengths of each
        task's own model.
    relation_intercept_ : ndarray of shape (n_covariates,)
        The same of the intercept, where levels follow the relation.
    relation_noise_std_ : ndarray of shape (n_covariates,)
        Standard deviation of the noise in every number of its rows, which `epsilon` costs; how far
        tasks of the same covariates differ is not in it. Missing without noise, and where levels
        follow the relation.
    mean_std_ : ndarray of shape (n_features,){shapes_of_mean}
        With `standard_errors`: standard errors of the shared model before it is shrunk. They hold
        the noise and differences between tasks; NaN where ``billboard_.errors.reason`` says why.
    mean_intercept_std_ : float
        The same of its intercept, with pooled levels.
    relation_std_ : ndarray of shape (n_covariates, n_features){shapes_of_covariates}
        With `standard_errors` and ``relation``: standard errors of `relation_coef_`.
    level_, level_spread_ : float
        With pooled levels: intercept of the shared model, and standard deviation of the levels of
        tasks about it.
    shares_ : dict of str to float
        With pooled levels: released shares of the tasks that follow the pooled slopes ("common"),
        are around them ("mean"), or go alone; noise and all, so that they may be below 0.
    tasks_ : ndarray of shape (n_tasks,){classes}{posterior}
    billboard_ : MeanBillboard or PooledBillboard
        Noisy means in the order of publication, and with free levels ``history()``: noise and
        epsilon per round. Nothing that depends on the data in another way is recorded.
    {privacy_}
    n_iter_ : int
        Rounds, with pooled levels all releases, or iterations of the exact solver.
    objective_, lam_ : float
        Value of the objective at its minimum, and the `lam` in it; exact solution only, and the
        former with a number as `lam`.
    dual_gap_ : float
        With ``relation_rank="all"``: bound on how far `objective_` is from the optimum.
    {features_in_}

    See Also
    --------
    {also}
    skpmtl.reproduction.{published} : The rounds of the paper, as printed.

    Notes
    -----
    Without privacy the objective is, with n_k rows in task k and v free (hence the mean),

        {loss}
        + lam / 2 sum_k ||w_k - v||^2 + ridge / 2 ||W||_F^2.

    With `relation` B' z_k takes the place of v, and B is free: the penalty acts on the residuals
    of W after its least-squares fit by the covariates. With ``relation_rank="all"`` the second term
    is

        lam / 2 sum_jk Omega_jk w_j' w_k

    for the given Omega, or the Laplacian of a graph of neighbours, for which that is
    lam / 4 sum_jk weight_jk ||w_j - w_k||^2. Omega = I - 11' / n_tasks gives the mean again. `l1`
    adds ``l1 * sum_jk |W_jk|``.
    A listed task without rows then gets the best model given those of its neighbours; tasks that
    join later are not in the graph, and lie around the mean.

    With privacy w~ follows noisy gradient descent on the mean of the tasks' Moreau envelopes.

    With pooled levels, m tasks and mu the Gaussian-DP parameter of the budget, rounds move a model
    of rows (1, x) from 0, in units of a window that holds most levels. They take 83 % of the
    squared budget that the histogram for the window leaves; the rest pays for votes on pooled
    slopes, slopes around them or neither, and for the noise of a row and the spread of levels. See
    `skpmtl.engine.levels`, `skpmtl.engine.pooled` and, for the accounting, `skpmtl.engine.plan`.
    Tasks also vote on whether their columns differ by orders of magnitude, for 2 % of the squared
    budget at most. Then their scales are released (`skpmtl.engine.columns`), for 40 % of what the
    rounds have, and all that follows is about scaled columns; not with counts, nor with classes
    under a budget.

    Rounds converge to a spatial median of the task models, not to their mean. Standard errors are
    those of this median: the sandwich of an M-estimator (`skpmtl.mean_regularized.errors`). In
    simulations of 100 to 2,000 tasks at epsilon 3, intervals of 90 % covered it in 88 to 97 % of
    cases. With log-losses, models fitted to few rows are longer than those fitted to many, and so
    is their median: intervals do not cover this bias.

    References
    ----------
    .. [1] S. Hu, Z. S. Wu, V. Smith, "Private multi-task learning: formulation and
       applications to federated learning", TMLR, 2023.

    Examples
    --------
    >>> from skpmtl import {name}
    >>> from skpmtl.datasets import make_low_rank_tasks
    >>> X, y, task = make_low_rank_tasks(n_tasks=20, n_samples=15, n_features=5, random_state=0)
    >>> model = {name}(lam=0.1, epsilon=None).fit(X, {target}, task=task)
    >>> model.coef_.shape
    (20, 5)
    """


class PrivateMeanRegMTL(MTLRegressorMixin, MeanRegularized):
    __doc__ = fill_docstring(
        _DOC,
        summary="Private mean-regularised multi-task regression.",
        model="linear regression",
        candidates=" The models around w~ have strengths from 0.03 to\n    100 times `lam`, and so "
        "have further ones around 0; the evidence is exact.",
        held_back=", in\n        which no task moves v farther than half of the tasks do; where "
        "lengths of their models\n        differ, every task has units of its own, as with privacy",
        held="",
        auto="0.05 times the smoothness of its loss in\n        the rounds, 0.05 + 5 / n_k times "
        "in the personalisation.",
        target_range=TARGET_RANGE + UNCERTAINTY + UNSEEN,
        known_levels=", or `target_range` is known",
        also="PrivateMeanRegMTLClassifier : The same for classes.",
        loss="sum_k 1 / (2 n_k) ||y_k - X_k w_k - b_k||^2",
        name="PrivateMeanRegMTL",
        published="PublishedPMTL",
    )
    _releases_residuals = True
    _billboards: ClassVar[tuple[type, ...]] = (MeanBillboard, PooledBillboard)

    def __init__(
        self,
        lam: float | Literal["auto"] = "auto",
        *,
        loss: Literal["huber", "poisson", "squared"] = "squared",
        levels: Literal["auto", "free", "pooled"] = "auto",
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Adjacency = "replace-one",
        curator: Curator = "trusted",
        clip_norm: float | Literal["auto"] = "auto",
        n_rounds: int | Literal["auto"] = "auto",
        init=None,
        ridge: float = 0.0,
        l1: float = 0.0,
        task_weight: Literal["equal", "samples"] = "equal",
        clusters: Mapping | None = None,
        relation=None,
        relation_rank: int | Literal["all"] | None = None,
        fit_intercept: bool = True,
        task_feature: str | int | list | None = None,
        tasks: ArrayLike = "auto",
        unseen_task: Literal["error", "mean"] = "error",
        target_range: ArrayLike | None = None,
        uncertainty: bool | Literal["auto", "unseen"] = False,
        standard_errors: bool = False,
        max_iter: int = 100,
        tol: float = 1e-10,
        secure: bool = False,
        random_state: RandomState = None,
        verbose: int = 0,
        dtype: type | str = np.float64,
    ) -> None:
        super().__init__(
            lam,
            epsilon=epsilon,
            delta=delta,
            adjacency=adjacency,
            curator=curator,
            clip_norm=clip_norm,
            n_rounds=n_rounds,
            init=init,
            ridge=ridge,
            l1=l1,
            task_weight=task_weight,
            clusters=clusters,
            relation=relation,
            relation_rank=relation_rank,
            fit_intercept=fit_intercept,
            task_feature=task_feature,
            tasks=tasks,
            unseen_task=unseen_task,
            target_range=target_range,
            uncertainty=uncertainty,
            max_iter=max_iter,
            tol=tol,
            secure=secure,
            random_state=random_state,
            verbose=verbose,
            dtype=dtype,
        )
        self.loss = loss
        self.levels = levels
        self.standard_errors = standard_errors


class PrivateMeanRegMTLClassifier(MTLClassifierMixin, MeanRegularized):
    __doc__ = fill_docstring(
        _DOC,
        summary="Private mean-regularised multi-task logistic regression, binary or multinomial.",
        model="logistic regression",
        held_back="",
        candidates=" The models are around 0, 0.15,\n    0.5 and 1 times w~, which of classes "
        "is long where few rows are separable, with strengths of\n    0.2 to 25 times 1.5 / n_k + "
        "0.02 of the smoothness; the evidence is approximate.",
        held=" (in tasks\n        where a class is missing it would be infinite: the average has "
        "one row more, at\n        the mean of the task's own, of which all classes have the same "
        "part; elsewhere such\n        intercepts have regularisation of strength `lam`)",
        auto="0.005 times the smoothness of its loss in\n        the rounds, "
        "0.02 times in the personalisation.",
        known_levels=", for two classes at any",
        classes="several",
        also="PrivateMeanRegMTL : The same for regression.",
        loss="sum_k 1 / n_k sum_i loss_i, the logistic or multinomial log-loss,",
        name="PrivateMeanRegMTLClassifier",
        published="PublishedPMTLClassifier",
    )
    _multiclass = True
    _billboards: ClassVar[tuple[type, ...]] = (MeanBillboard, PooledBillboard)

    def __init__(
        self,
        lam: float | Literal["auto"] = "auto",
        *,
        levels: Literal["auto", "free", "pooled"] = "auto",
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Adjacency = "replace-one",
        curator: Curator = "trusted",
        clip_norm: float | Literal["auto"] = "auto",
        n_rounds: int | Literal["auto"] = "auto",
        init=None,
        ridge: float = 0.0,
        l1: float = 0.0,
        task_weight: Literal["equal", "samples"] = "equal",
        clusters: Mapping | None = None,
        relation=None,
        relation_rank: int | Literal["all"] | None = None,
        fit_intercept: bool = True,
        task_feature: str | int | list | None = None,
        tasks: ArrayLike = "auto",
        classes: ArrayLike = "auto",
        class_weight: ClassWeight = None,
        unseen_task: Literal["error", "mean"] = "error",
        uncertainty: bool | Literal["auto", "unseen"] = "auto",
        standard_errors: bool = False,
        max_iter: int = 100,
        tol: float = 1e-10,
        secure: bool = False,
        random_state: RandomState = None,
        verbose: int = 0,
        dtype: type | str = np.float64,
    ) -> None:
        super().__init__(
            lam,
            epsilon=epsilon,
            delta=delta,
            adjacency=adjacency,
            curator=curator,
            clip_norm=clip_norm,
            n_rounds=n_rounds,
            init=init,
            ridge=ridge,
            l1=l1,
            task_weight=task_weight,
            clusters=clusters,
            relation=relation,
            relation_rank=relation_rank,
            fit_intercept=fit_intercept,
            task_feature=task_feature,
            tasks=tasks,
            unseen_task=unseen_task,
            uncertainty=uncertainty,
            max_iter=max_iter,
            tol=tol,
            secure=secure,
            random_state=random_state,
            verbose=verbose,
            dtype=dtype,
        )
        self.levels = levels
        self.standard_errors = standard_errors
        self.classes = classes
        self.class_weight = class_weight

    @property
    def _spreads_labels(self):
        return self.l1 > 0  # else intercepts of tasks that miss a class are held
