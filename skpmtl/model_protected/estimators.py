"""Model-protected multi-task learning (Liang et al., TPAMI 2022) with a sound guarantee."""

import math
from numbers import Integral, Real
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from .._docstrings import UNCERTAINTY, UNSEEN, fill_docstring
from .._runtime.compat import Interval, StrOptions
from .._runtime.hints import Adjacency, ClassWeight, Curator, RandomState
from ..base import (
    BaseMTL,
    HasCovariates,
    MTLClassifierMixin,
    MTLRegressorMixin,
    check_alpha,
)
from ..engine.levels import Level
from ..engine.queries import specified, specs_of_window
from ..engine.residuals import BINS
from ..engine.votes import N_DIFFERENCES
from ..exchange.billboard import Billboard, Personal
from ..exchange.protocol import QuerySpec
from ..local.centred import Problem
from ..local.prior import LocalModels, tempered
from ..privacy.report import exact_report
from ..rounds.curator import query_specs_of_rounds
from ..rounds.plan import columns_within
from ..solvers.decomposed import OUTLIERS
from ..solvers.fitted import PenaltyBillboard
from ..solvers.losses import make_loss
from ..solvers.penalties import GroupNorm, TraceNorm
from ..tables.relation import read_relation
from ..tables.table import differences
from . import exact
from .billboard import PriorBillboard, RelatedPenaltyBillboard
from .curator import (
    release_centres,
    release_intercepts,
    release_level,
    release_mean,
    release_prior,
    release_residuals,
)
from .plan import LevelPlan, MomentPlan, is_refined, rounds_of
from .tasks import LevelTaskSide, RelatedTaskSide, WithMeanModel

_PLAIN_ROUNDS = 3  # rounds of the empirical-Bayes method without noise


class _ModelProtected(HasCovariates, BaseMTL):
    """Both task sides of model-protected learning, for second moments and for their diagonals."""

    _parameter_constraints = {
        **BaseMTL._parameter_constraints,
        "alpha": [StrOptions({"auto"}), Interval(Real, 0, None, closed="left")],
        "algorithm": [StrOptions({"auto", "empirical-bayes", "proximal"})],
        "ridge": [Interval(Real, 0, None, closed="left")],
        "task_weight": [StrOptions({"equal", "samples"})],
        "n_releases": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "clip_norm": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="neither")],
        "warm_start": ["boolean"],
        "init": "no_validation",  # by `read_public_init`
        "levels": [StrOptions({"auto", "free", "pooled"})],
        "relation": "no_validation",  # by `read_relation`
        "relation_rank": [Interval(Integral, 1, None, closed="left"), None],
        "outliers": [StrOptions(set(OUTLIERS)), None],
        "outlier_alpha": [StrOptions({"auto"}), Interval(Real, 0, None, closed="neither")],
    }
    _billboards: ClassVar[tuple[type, ...]] = (
        PriorBillboard,
        PenaltyBillboard,
        RelatedPenaltyBillboard,
    )
    _removed: ClassVar[dict] = {"allocation": 0.0, "noise_shift": "auto", "acceleration": True}
    _extras = (*BaseMTL._extras, "outlier_coef_", "outlier_")
    _federates = True

    def __init__(
        self,
        alpha: float | Literal["auto"] = "auto",
        *,
        loss: Literal["huber", "poisson", "squared"] = "squared",
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Adjacency = "replace-one",
        curator: Curator = "trusted",
        mechanism: Literal["auto", "gaussian", "laplace", "wishart"] = "auto",
        algorithm: Literal["auto", "empirical-bayes", "proximal"] = "auto",
        levels: Literal["auto", "free", "pooled"] = "auto",
        init=None,
        ridge: float = 0.0,
        task_weight: Literal["equal", "samples"] = "equal",
        relation=None,
        relation_rank: int | None = None,
        outliers: Literal["entries", "tasks"] | None = None,
        outlier_alpha: float | Literal["auto"] = "auto",
        n_releases: int | Literal["auto"] = "auto",
        clip_norm: float = 1.0,
        fit_intercept: bool = True,
        task_feature: str | int | list | None = None,
        tasks: ArrayLike = "auto",
        unseen_task: Literal["error", "mean"] = "error",
        target_range: ArrayLike | None = None,
        uncertainty: bool | Literal["auto", "unseen"] = False,
        max_iter: int = 10_000,
        tol: float = 1e-6,
        warm_start: bool = False,
        random_state: RandomState = None,
        secure: bool = False,
        verbose: int = 0,
        dtype: type | str = np.float64,
    ) -> None:
        self.alpha = alpha
        self.loss = loss
        self.epsilon = epsilon
        self.delta = delta
        self.adjacency = adjacency
        self.curator = curator
        self.mechanism = mechanism
        self.algorithm = algorithm
        self.levels = levels
        self.init = init
        self.ridge = ridge
        self.task_weight = task_weight
        self.relation = relation
        self.relation_rank = relation_rank
        self.outliers = outliers
        self.outlier_alpha = outlier_alpha
        self.n_releases = n_releases
        self.clip_norm = clip_norm
        self.fit_intercept = fit_intercept
        self.task_feature = task_feature
        self.tasks = tasks
        self.unseen_task = unseen_task
        self.target_range = target_range
        self.uncertainty = uncertainty
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.random_state = random_state
        self.secure = secure
        self.verbose = verbose
        self.dtype = dtype

    def _check_parameters(self):
        super()._check_parameters()
        self._check_algorithm()
        self._check_relation()
        if self.loss == "huber" and self._algorithm() == "proximal":
            raise ValueError(
                f'alpha={self.alpha!r} with loss="huber" and no budget: the objective is of '
                'squared loss, counts or classes. Leave alpha at "auto".'
            )
        if self.loss != "squared" and self.outliers is not None:
            raise ValueError(
                f'outliers={self.outliers!r} goes with loss="squared" or classes, and not with '
                f"loss={self.loss!r}: leave it at None."
            )
        if self.outliers is None:
            return
        if self._weighs_outliers() and self.outliers == "tasks":
            return
        if self._is_private():
            raise ValueError(
                f"outliers={self.outliers!r} with algorithm={self._algorithm()!r} belongs to exact "
                'fits: pass epsilon=None. With a budget there is outliers="tasks" of '
                '"empirical-bayes", where a task weighs the released prior against an even one.'
            )
        if self.algorithm == "empirical-bayes":
            raise ValueError(
                f'outliers={self.outliers!r} belongs to algorithm="proximal": leave it at "auto".'
            )
        if self.alpha == 0:
            raise ValueError(
                f"outliers={self.outliers!r} adds a second penalised matrix to the one that alpha "
                "penalises: pass a positive alpha."
            )

    def _check_algorithm(self):
        check_alpha(self)
        if self._is_private() and self.algorithm == "proximal":
            raise ValueError(
                'algorithm="proximal" with a budget is the one of the paper: take '
                'skpmtl.reproduction.PublishedMPMTL, or leave it at "auto".'
            )

    def _fit_exact(self, table):
        if self._algorithm() == "proximal":
            return exact.fit(self, table, self.alpha)
        return exact.with_mean(self, table, self._fit_table(table))

    def _no_posterior(self):
        if self._algorithm() == "proximal":
            return (
                'models of algorithm="proximal", also those of an exact fit with a number as alpha '
                'or with outliers, have no posterior: take algorithm="empirical-bayes".'
            )
        return None

    def _weighs_outliers(self):
        """Whether `outlier_` is the weight of what is not of the released prior."""
        return self.outliers is not None and self._algorithm() == "empirical-bayes"

    def _has_mean(self):
        billboard = self.billboard_
        if billboard.has_one_mean:
            return super()._has_mean()
        return billboard.centres.intercept is not None or not self.fit_intercept

    def _n_iter(self, billboard):
        """Number of releases, or of rounds without noise."""
        return billboard.report.public_inputs.get("n_moment_releases", _PLAIN_ROUNDS)

    def _algorithm(self):
        if self.algorithm != "auto":
            return self.algorithm
        if self._is_private():
            return "empirical-bayes"
        open_ = isinstance(self.alpha, str) and self.outliers is None
        return "empirical-bayes" if open_ else "proximal"

    def _target_unit(self):
        """Public place and unit of the target in the mean model."""
        return 0.0, 1.0

    def _middle(self):
        return self._target_unit()[0]

    def _mean_unit(self):
        """The same of what tasks send of it: the distance from `init` where that is set."""
        middle, unit = self._target_unit()
        return 0.0 if self._has_public_init() else middle, unit

    def _loss(self, table):
        return make_loss(
            table, task_weight=self.task_weight, ridge=self.ridge, fit_intercept=self.fit_intercept
        )

    # ------------------------------------------------------------------------ curator and task side
    def _curator(self, population, source):
        """The curator half of a fit; see `skpmtl.exchange`."""
        relation, plan = self._relation(population), None
        public_init = self._public_init(population)
        if self._is_private():
            plan = MomentPlan(self, population, relation, public_init)
        rounds, centres, releases, bounds = self._rounds(population, relation), None, [], None
        if rounds is not None:
            log = self._progress("round %d: noise std %.3g", rounds.n_rounds)
            centres, releases, bounds = yield from release_centres(
                rounds, relation, population, log
            )
        moment = plan.moment if plan else [None] * _PLAIN_ROUNDS
        made, refine = [], plan.refine if plan else self._plain_votes(population)
        log = self._progress("release %d: noise std %.3g", len(moment))
        billboard = yield from release_prior(
            population,
            self._diagonal,
            moment=moment,
            vote=plan.vote if plan else [None] * (len(moment) + 1),
            log_loss=self._log_loss,
            tilt=0.5 * min(1.0, plan.ratio) if plan else 0.5,
            centres=centres,
            refine=refine,
            made=made,
            log=log,
        )
        billboard.releases[:0] = releases if plan else []
        billboard.init, billboard.loss = public_init, self.loss
        levels = plan.levels if plan else self._plain_levels(population)
        if levels is not None:
            yield from release_level(billboard, levels, made)
        if plan is None:
            billboard.report = exact_report()
            return billboard
        if plan.mean is not None and rounds is not None:
            to = relation.weights(population.tasks)
            yield from release_intercepts(
                billboard, plan.mean, to, self.clip_norm, *self._mean_unit()
            )
        else:
            yield from self._release_mean(billboard, plan)
        if plan.residuals is not None:
            low, high = self._score_range()
            yield from release_residuals(billboard, plan.residuals, high - low)
        billboard.report = plan.report(source, (bounds, made))
        return billboard

    def _release_mean(self, billboard, plan):
        if plan.mean is not None:
            given = plan.mean, plan.n_tasks, self.clip_norm, *self._mean_unit()
            yield from release_mean(billboard, *given)

    def _plain_votes(self, population):
        """Mechanisms of the votes on evidence without a budget: none has noise."""
        open_ = is_refined(self, population, math.inf, self.adjacency)
        return [None] * (3 * _PLAIN_ROUNDS) if open_ else None

    def _plain_levels(self, population):
        """`LevelPlan` without a budget; None where levels are free."""
        if self.relation is not None:
            return None
        return LevelPlan.of(self, population, math.inf, self.adjacency)

    def _level_window(self):
        """Public middle and half-width of levels; None where they are asked for."""
        return None

    def _task_side(self, table, population):
        """The task side for the tasks of `table`."""
        fit_intercept, to = self.fit_intercept, None
        some = differences(tempered(table, fit_intercept), self._public_init(population))
        relation = self._relation(population, quiet=True)
        if self._rounds(population, relation) is None:
            # Votes are by the rows alone.
            local = LocalModels(some, fit_intercept=fit_intercept, restrained=False)
            task_side = LevelTaskSide(local, table, fit_intercept)
        else:
            counts = self.loss == "poisson" and not population.n_classes
            loss = self.loss if counts else population.loss
            problem = Problem(loss, population.n_outputs, fit_intercept)
            task_side = RelatedTaskSide(some, relation, problem)
            to = relation.weights(table.tasks)
        more = {"classes_posterior": True} if self._keeps_class_posterior(table) else {}
        return WithMeanModel(task_side, table, fit_intercept, to, self._personal_extras(), **more)

    def _check_relation(self):
        if self.relation is None:
            if self.relation_rank is not None:
                raise ValueError(
                    f"relation_rank={self.relation_rank!r} has no effect without relation=."
                )
            return
        if self._algorithm() != "empirical-bayes":
            if self.outliers is not None or self.ridge or not self.alpha:
                raise ValueError(
                    f"relation= with outliers={self.outliers!r}, ridge={self.ridge!r}, "
                    f"alpha={self.alpha!r}: in an exact fit it goes with a positive alpha, and "
                    "with neither of the others."
                )
            return
        if self.mechanism not in ("auto", "gaussian"):
            raise ValueError(
                f"mechanism={self.mechanism!r} with relation=: centres are found in rounds of "
                'Gaussian noise. Pass mechanism="gaussian".'
            )

    def _relation(self, population, quiet=False):
        """The `Relation` of the parameters, over all tasks; None without one."""
        if self.relation is None:
            return None
        most = None
        if self._is_private():
            rounds = rounds_of(self, population, 1)
            most = 1 if rounds is None else columns_within(rounds.ratio)
        return read_relation(
            self.relation,
            population.tasks,
            order=None if isinstance(self.tasks, str) else self.tasks,
            rank=self.relation_rank,
            quiet=quiet,
            most=most,
        )

    def _rounds(self, population, relation):
        """`RoundsPlan` of the centres; None where there are none."""
        return None if relation is None else rounds_of(self, population, relation.rank)

    def _planned_report(self, population):
        if not self._is_private():
            return exact_report()
        relation = self._relation(population, quiet=True)
        public_init = self._public_init(population)
        return MomentPlan(self, population, relation, public_init).report(self._source())

    def _query_specs(self, population):
        d, C = population.n_features, population.n_outputs
        model = {"moment": (d,) if C == 1 else (C, d)}
        root = {"root": [(d,), (d, d)]}
        scale = {"snr_centre": Real, "snr_spread": Real}
        relation = self._relation(population, quiet=True)
        rounds, specs = self._rounds(population, relation), {}
        if rounds is not None:
            shape = [(relation.rank, C * d)]
            specs |= query_specs_of_rounds(relation, population)
            root |= {"centres": shape, "own_units": bool}
        specs["vote"] = QuerySpec({"vote": ()}, root)
        specs["moment"] = QuerySpec(model, root | scale)
        specs |= self._query_specs_of_levels(population, scale)
        if self.uncertainty == "unseen":
            known = {"billboard": PriorBillboard}
            specs |= specified("residuals", BINS.shape, **known)
        if self.unseen_task != "mean" or rounds is None:
            return specs | self._query_specs_of_mean(population)
        return specs | specified("intercept", (C,), **self._public_of_mean())

    def _public_of_mean(self):
        middle, unit = self._mean_unit()
        given = {"clip_norm": float(self.clip_norm), "middle": middle, "unit": unit}
        return {"billboard": Billboard, **given}

    def _query_specs_of_mean(self, population):
        if self.unseen_task != "mean":
            return {}
        size = population.n_outputs * (population.n_features + 1)
        return specified("mean", (size,), **self._public_of_mean())

    def _query_specs_of_levels(self, population, scale):
        """Of votes on evidence, blocks and levels, where the plan has them."""
        d, specs, plan = population.n_features, {}, None
        if self.mechanism not in ("auto", "gaussian"):
            return specs
        if self._is_private():
            relation = self._relation(population, quiet=True)
            plan = MomentPlan(self, population, relation)
        refine = plan.refine if plan else self._plain_votes(population)
        levels = plan.levels if plan else self._plain_levels(population)

        if refine is not None:
            specs |= specified("evidence", (N_DIFFERENCES,), snr_centre=Real, priors=([(d, d)],))
            public = {**scale, "moment": [(d, d)], "basis": [(d, d)], "rank": Integral}
            specs |= specified("block", (d,), **public)
        if levels is not None:
            known = {"billboard": PriorBillboard, "level": Level}
            spread = (N_DIFFERENCES if self._log_loss else 1,)
            specs |= specs_of_window(self._log_loss)
            specs |= specified("noise", (1,), **known) | specified("spread", spread, **known)
            known = {"billboard": PriorBillboard, "middle": Real, "unit": Real}
            specs |= specified("level", (1,), **known)
        return specs

    @classmethod
    def _goes_on(cls, billboard):
        return super()._goes_on(billboard) and billboard.diagonal == cls._diagonal

    def _personalize_table(self, table):
        kept = isinstance(self.billboard_, PriorBillboard) and self._keeps_class_posterior(table)
        more = {"classes_posterior": True} if kept else {}
        models = self.billboard_.personalize(table, fit_intercept=self.fit_intercept, **more)
        return Personal(*models).only(self._personal_extras())

    def _personal_extras(self):
        """Names of the extras of models from a billboard."""
        own = ("outlier_",) if self._weighs_outliers() else ()
        return (*own, *BaseMTL._extras)


class _LowRank(_ModelProtected):
    _diagonal = False
    _parameter_constraints = {
        **_ModelProtected._parameter_constraints,
        "mechanism": [StrOptions({"auto", "gaussian", "wishart"})],
    }

    def _penalty(self):
        return TraceNorm()


class _GroupSparse(_ModelProtected):
    _diagonal = True
    _parameter_constraints = {
        **_ModelProtected._parameter_constraints,
        "mechanism": [StrOptions({"auto", "gaussian", "laplace", "wishart"})],
    }

    def _penalty(self):
        return GroupNorm()


_DOC = """{summary}

    Every task gets its own {model}; the tasks' coefficients W (n_features x n_tasks)
    {structure}. With a finite `epsilon` the only numbers that leave a task are its bounded
    contributions to a noisy {moment} of the models, so that the models of all *other*
    tasks, and everything that is published, are differentially private in a task's whole
    data set (joint, or billboard, differential privacy at task level).

    Parameters
    ----------
    alpha : "auto" or float, default="auto"
        Strength of the penalty in the objective below (``epsilon=None``); it has the units of y
        and X. "auto" with ``algorithm="proximal"``: a quarter of the dual norm that noise alone
        gives to the gradient, in closed form (`skpmtl.solvers.strength`), whatever the units.
        Not used by "empirical-bayes".{of_rows}
    epsilon : float or None, default=1.0
        Privacy budget of the whole fit. None or infinity: no privacy, exact solution.
    delta : float or None, default=None
        Delta of the (epsilon, delta) guarantee, in (0, 1). None: ``min(1e-5, 1 / n_tasks**2)``, or
        0 with a pure mechanism.
    {adjacency}
    {curator}
    mechanism : {{{mechanisms}}}, default="auto"
        "auto" is "gaussian": {noise}, accounted exactly by
        Gaussian differential privacy.{pure}
    algorithm : {{"auto", "empirical-bayes", "proximal"}}, default="auto"
        "auto": "proximal" without privacy if `alpha` is a number or `outliers` is set, otherwise
        "empirical-bayes".
        "empirical-bayes" releases a prior, and every task decides from its own rows how far to
        trust it. Without privacy it has nothing to tune, and its error, averaged over the
        regressions of ``accuracy/shapes``, exceeds that with a budget by at most 1 %. "proximal",
        without privacy, minimises the objective below (with a budget Algorithm {algorithm} of [1]_,
        in `skpmtl.reproduction`).
    levels : {{"auto", "free", "pooled"}}, default="auto"
        The level of a task is its score at its mean row. "auto": with "empirical-bayes" and
        Gaussian noise a task goes between its own level and the mean one by its own evidence, from
        tasks times mu = 60 on, or 33 where their range is public; not with a relation or several
        classes. "free": every task has its own. "pooled": no task may go without the mean level.
    {init} Priors, second moments, penalties and `ridge` apply to differences from it. With
        "empirical-bayes" a task also compares it with 0.
    ridge : float, default=0.0
        Weight of ``ridge / 2 * ||W||_F^2``. Not used by "empirical-bayes".
    {task_weight}
    relation : DataFrame, mapping, array, sparse matrix, graph or None, default=None
        Public task covariates, as of `PrivateMeanRegMTL`. The prior of task k is then about
        z_k' B, with z_k its covariates and a constant, and B (`relation_coef_`) learned in rounds
        that take 35 % of the squared budget; the second moment is that of the deviations. Tasks
        also consider their single-task models. With "empirical-bayes" and Gaussian noise; columns
        for which the budget is too small are dropped, the last ones first.
    relation_rank : int or None, default=None
        Columns of the basis of a graph or Omega. None: 10, or one for five tasks.
    outliers : {{None, "tasks", "entries"}}, default=None
        Without privacy: whether every task has a part of its own besides the one that `alpha`
        penalises, W = P + Q (robust multi-task learning [2]_ [3]_). "tasks": Q is zero in most
        tasks, and whole models of others are free; "entries": single weights are. See Notes.
        With privacy and "empirical-bayes" every task averages over the released prior and an even
        one that is as wide in all directions, whatever this says: its models are those of None, and
        "tasks" keeps in `outlier_` what it chose. That is free and stays with the task.
    outlier_alpha : "auto" or float, default="auto"
        Strength of the penalty of Q. "auto" is computed from noise, as ``alpha="auto"``.
    n_releases : "auto" or int, default="auto"
        Number of noisy releases. "auto" is a public rule: 1 to 3, depending on how far a signal
        shared by all tasks exceeds the noise.
    clip_norm : float, default=1.0
        Public bound on the norm of the model with intercept that a task sends for the mean that
        ``unseen_task="mean"`` publishes. A task's own model is never clipped.
    fit_intercept : bool, default=True
        Whether every task has an intercept, which is local and not penalised.
    {task_feature}
    {tasks}{class_list}
    unseen_task : {{"error", "mean"}}, default="error"
        What `predict` does with a task that was not fitted: an error, or the mean model.
        With privacy the mean is one more release and takes 30 % of the budget; with `relation` the
        model of the task's covariates, whose intercepts take 10 % of the squared
        budget.{target_range}
    max_iter : int, default=10000
        Bound on the iterations of the exact solver.
    tol : float, default=1e-6
        The exact solver stops when the duality gap is below `tol` times the objective.
    warm_start : bool, default=False
        Start the exact solver at the previous `coef_`.
    {random_state}
    {secure}
    {verbose}
    {dtype}

    Attributes
    ----------
    coef_ : ndarray of shape (n_tasks, n_features){shapes}
        Personal models, W transposed. All rows together are not a private object: hand
        each task its own with `export_task`.
    intercept_ : ndarray of shape (n_tasks,){intercepts}
    tasks_ : ndarray of shape (n_tasks,)
        Task ids in the order of `coef_`.{classes}{posterior}
    billboard_ : object
        The released numbers and what follows from them; the only part that may be published.
    {privacy_}
    relation_coef_ : ndarray of shape (n_covariates, n_features)
        With `relation`: what one more of every covariate adds to the coefficients, the constant
        first, class by class where there are several; names are ``billboard_.relation.names``.
        Where ``billboard_.centres.own_units``, in lengths of each task's own model.
    relation_intercept_ : ndarray of shape (n_covariates,)
        The same of the intercepts, where ``unseen_task="mean"`` released them.
    relation_noise_std_ : ndarray of shape (n_covariates,)
        Standard deviation of the noise in every number of its rows. Missing without noise.
    n_iter_ : int
        Iterations of the exact solver, or number of releases.
    objective_, dual_gap_, alpha_ : float
        Value of the objective, its duality gap and `alpha`; exact solution only.
    outlier_coef_ : ndarray of shape (n_tasks, n_features){shapes}
        With `outliers`: Q of the objective, the part that a task shares with nobody; nan for tasks
        that `personalize` added.
    outlier_ : ndarray of shape (n_tasks,)
        With `outliers`: length of that part, a measure of how far the task lies from the others;
        `outlier_alpha_` is the strength of its penalty. With privacy: the weight, from 0 to 1, that
        the task gives to models other than those under the released prior. Like a row of `coef_`,
        each entry is for its task alone; parts and sites store it with their models.
    mean_coef_, mean_intercept_ : ndarray of shape (n_features,), float{means}
        Mean model; with privacy only when it was released.
    {features_in_}

    See Also
    --------
    {also}
    PerTask : Any scikit-learn estimator, one task at a time.

    Notes
    -----
    Without privacy the objective is, with n_k rows in task k::

    {objective}

    minimised to a relative duality gap of `tol`. ``task_weight="samples"`` drops the 1 / n_k.
    With `outliers` W = P + Q, the penalty of `alpha` is on P, and Q has its own::

        "tasks":   outlier_alpha sum_k ||q_k||_2
        "entries": outlier_alpha sum_jk |q_jk|

    `mean_coef_` is then the mean of P. {malsar}
    With `relation` the penalty is on W - B'Z', the least one over B, for the covariates Z with a
    constant; B'Z' itself is held by a ridge of 1e-4 times the mean curvature of the losses over
    tasks and features.
    The empirical-Bayes method is described in `skpmtl.model_protected.curator`.

    References
    ----------
    .. [1] {liang}
    .. [2] {robust}
    .. [3] {second_robust}

    Examples
    --------
    {example}
    """
_MATRIX = {
    "structure": "are kept close to low rank by their trace norm",
    "moment": "second-moment matrix",
    "mechanisms": '"auto", "gaussian", "wishart"',
    "noise": "symmetric Gaussian noise, isotropic in Frobenius norm",
    "pure": ' "wishart" adds the difference of two Wishart\n        matrices, which gives a pure'
    " guarantee (delta = 0).",
    "algorithm": "2",
    "malsar": "These are the problems of `Least_RMTL` [2]_ and `Least_SparseTrace` [3]_ of MALSAR.",
    "robust": 'J. Chen, J. Zhou, J. Ye, "Integrating low-rank and group-sparse structures for\n'
    '       robust multi-task learning", KDD 2011.',
    "second_robust": 'J. Chen, J. Liu, J. Ye, "Learning incoherent sparse and low-rank patterns\n'
    '       from multiple tasks", KDD 2010.',
}
_DIAGONAL = {
    "structure": "share their non-zero rows through the L2,1 norm",
    "moment": "diagonal of the second moment",
    "mechanisms": '"auto", "gaussian", "laplace", "wishart"',
    "noise": "Gaussian noise on the diagonal",
    "pure": ' "laplace" and "wishart" (diagonal of\n        the difference of two Wishart'
    " matrices) give a pure guarantee (delta = 0).",
    "algorithm": "3",
    "malsar": "These are the problem of `Least_rMTFL` [2]_ of MALSAR, and that of its\n    "
    "`Least_Dirty` [3]_ with Euclidean norms of features in place of largest entries.",
    "robust": 'P. Gong, J. Ye, C. Zhang, "Robust multi-task feature learning", KDD 2012.',
    "second_robust": 'A. Jalali, P. Ravikumar, S. Sanghavi, C. Ruan, "A dirty model for\n'
    '       multi-task learning", NIPS 2010.',
}
_RANGE = """
    target_range : (float, float) or None, default=None
        Public lowest and highest value of the target, never taken from private rows: for the mean
        model the tasks send models of the target less the middle of this range, over half of its
        width, and `clip_norm` bounds those. Then neither the unit nor the offset of y matters."""
_SQUARED = "sum_k 1 / (2 n_k) ||y_k - X_k w_k - b_k||^2"
_LOGISTIC = "sum_k 1 / n_k sum_i log(1 + exp(-y_i (x_i' w_k + b_k)))"
_SOFTMAX = """

    or, with C > 2 classes, the softmax loss -log p_i(y_i) with p_i(c) proportional to
    exp(x_i' w_kc + b_kc), and W of C columns for every task (n_features x n_tasks C). What a task
    contributes is then the sum over its classes, of the same bound,"""
_RIDGE = " + ridge / 2 ||W||_F^2"
_EXAMPLE = """>>> from skpmtl import {name}
    >>> from skpmtl.datasets import {generator}
    >>> X, y, task = {generator}(n_tasks=20, n_samples=15, n_features=5, random_state=0)
    >>> model = {name}(alpha=0.1, epsilon=None).fit(X, {target}, task=task)
    >>> model.coef_.shape
    (20, 5)"""


class _OfRange(MTLRegressorMixin):
    """Regression, whose target may have a public range."""

    _releases_residuals = True

    def _check_parameters(self):
        super()._check_parameters()
        if self.uncertainty == "unseen" and self.target_range is None:
            raise ValueError(
                'uncertainty="unseen" needs the public range of the target, in which the mean '
                "model and the distances from it are: target_range=(low, high)."
            )
        if self.target_range is not None:
            self._score_range()

    def _target_unit(self):
        if self.target_range is None:
            return super()._target_unit()
        low, high = self._score_range()
        return 0.5 * (low + high) if self.fit_intercept else 0.0, 0.5 * (high - low)

    def _level_window(self):
        if self.target_range is None:
            return None
        low, high = self._score_range()
        return (0.0 if self._has_public_init() else 0.5 * (low + high)), 0.5 * (high - low)


class _OfClasses(MTLClassifierMixin):
    def __init__(
        self,
        alpha: float | Literal["auto"] = "auto",
        *,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Adjacency = "replace-one",
        curator: Curator = "trusted",
        mechanism: Literal["auto", "gaussian", "laplace", "wishart"] = "auto",
        algorithm: Literal["auto", "empirical-bayes", "proximal"] = "auto",
        levels: Literal["auto", "free", "pooled"] = "auto",
        init=None,
        ridge: float = 0.0,
        task_weight: Literal["equal", "samples"] = "equal",
        relation=None,
        relation_rank: int | None = None,
        outliers: Literal["entries", "tasks"] | None = None,
        outlier_alpha: float | Literal["auto"] = "auto",
        n_releases: int | Literal["auto"] = "auto",
        clip_norm: float = 1.0,
        fit_intercept: bool = True,
        task_feature: str | int | list | None = None,
        tasks: ArrayLike = "auto",
        classes: ArrayLike = "auto",
        class_weight: ClassWeight = None,
        unseen_task: Literal["error", "mean"] = "error",
        uncertainty: bool | Literal["auto", "unseen"] = "auto",
        max_iter: int = 10_000,
        tol: float = 1e-6,
        warm_start: bool = False,
        random_state: RandomState = None,
        secure: bool = False,
        verbose: int = 0,
        dtype: type | str = np.float64,
    ) -> None:
        super().__init__(
            alpha,
            epsilon=epsilon,
            delta=delta,
            adjacency=adjacency,
            curator=curator,
            mechanism=mechanism,
            algorithm=algorithm,
            levels=levels,
            init=init,
            ridge=ridge,
            task_weight=task_weight,
            relation=relation,
            relation_rank=relation_rank,
            outliers=outliers,
            outlier_alpha=outlier_alpha,
            n_releases=n_releases,
            clip_norm=clip_norm,
            fit_intercept=fit_intercept,
            task_feature=task_feature,
            tasks=tasks,
            unseen_task=unseen_task,
            uncertainty=uncertainty,
            max_iter=max_iter,
            tol=tol,
            warm_start=warm_start,
            random_state=random_state,
            secure=secure,
            verbose=verbose,
            dtype=dtype,
        )
        self.classes = classes
        self.class_weight = class_weight


class MPMTLLowRank(_OfRange, _LowRank):
    __doc__ = fill_docstring(
        _DOC,
        summary="Model-protected low-rank multi-task regression.",
        model="linear regression",
        target_range=_RANGE + UNCERTAINTY + UNSEEN,
        also="MPMTLLowRankClassifier : The same for binary targets.\n"
        "    MPMTLGroupSparse : A shared selection of features instead of a shared subspace.",
        objective=f"    {_SQUARED} + alpha ||W||_*\n       {_RIDGE},",
        example=_EXAMPLE.format(name="MPMTLLowRank", generator="make_low_rank_tasks", target="y"),
        **_MATRIX,
    )


class MPMTLGroupSparse(_OfRange, _GroupSparse):
    __doc__ = fill_docstring(
        _DOC,
        summary="Model-protected group-sparse multi-task regression.",
        model="linear regression",
        target_range=_RANGE + UNCERTAINTY + UNSEEN,
        also="MPMTLGroupSparseClassifier : The same for binary targets.\n"
        "    MPMTLLowRank : A shared subspace instead of a shared selection of features.",
        objective=f"    {_SQUARED} + alpha sum_j ||W_j.||_2\n       {_RIDGE},",
        example=_EXAMPLE.format(
            name="MPMTLGroupSparse", generator="make_group_sparse_tasks", target="y"
        ),
        **_DIAGONAL,
    )


class MPMTLLowRankClassifier(_OfClasses, _LowRank):
    __doc__ = fill_docstring(
        _DOC,
        summary="Model-protected low-rank multi-task logistic regression, any number of classes.",
        model="logistic regression",
        classes="several",
        also="MPMTLLowRank : The same for regression.",
        objective=f"    {_LOGISTIC}\n        + alpha ||W||_*{_RIDGE}, y in {{-1, 1}},{_SOFTMAX}",
        example=_EXAMPLE.format(
            name="MPMTLLowRankClassifier", generator="make_low_rank_tasks", target="y > 0"
        ),
        **_MATRIX,
    )
    _multiclass = True


class MPMTLGroupSparseClassifier(_OfClasses, _GroupSparse):
    __doc__ = fill_docstring(
        _DOC,
        summary="Model-protected group-sparse multi-task logistic regression, any number of\n"
        "    classes.",
        model="logistic regression",
        classes="several",
        also="MPMTLGroupSparse : The same for regression.",
        objective=f"    {_LOGISTIC}\n        + alpha sum_j ||W_j.||_2{_RIDGE}, y in {{-1, 1}},"
        f"{_SOFTMAX}",
        example=_EXAMPLE.format(
            name="MPMTLGroupSparseClassifier", generator="make_group_sparse_tasks", target="y > 0"
        ),
        **_DIAGONAL,
    )
    _multiclass = True
