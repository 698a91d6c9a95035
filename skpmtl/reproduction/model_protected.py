"""Algorithms 2 and 3 of the model-protected paper: noisy projections, local gradient steps.

Iteration t: the curator receives the clipped models, releases their noisy second moment S (or
its diagonal) and everybody derives from it the public projection
M = U (1 - alpha / sqrt(Lambda))_+ U'; every task projects its own model, extrapolates and takes
a gradient step on its own rows, with a step size of its own. The published noise is an option. It
has no privacy guarantee.
"""

from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from .._docstrings import PARAGRAPHS
from .._runtime.compat import Interval, StrOptions
from .._runtime.hints import Adjacency, ClassWeight, Curator, RandomState
from .._runtime.threads import single_blas_thread
from ..exchange.billboard import N_OUTPUTS, OfModels
from ..exchange.protocol import Query, QuerySpec, TaskSide
from ..local.prior import SNR, LocalModels, even_root
from ..model_protected.estimators import (
    MPMTLGroupSparse,
    MPMTLGroupSparseClassifier,
    MPMTLLowRank,
    MPMTLLowRankClassifier,
)
from ..model_protected.plan import (
    MEAN_SHARE,
    MomentPlan,
    OfDiagonal,
    moment_mechanisms,
    shared_budget,
)
from ..model_protected.tasks import WithMeanModel
from ..privacy.accounting import published_wishart_delta_bound
from ..privacy.allocation import allocation_weights
from ..privacy.mechanisms import PublishedWishart, clip_rows
from ..solvers.losses import LogisticLoss, MultinomialLoss, SquaredLoss
from ..tables.public_init import PublicInit
from ..tables.table import differences, row_products

__all__ = [
    "PublishedMPMTLGroupSparse",
    "PublishedMPMTLGroupSparseClassifier",
    "PublishedMPMTLLowRank",
    "PublishedMPMTLLowRankClassifier",
]
_ALPHA = 0.1  # what "auto" is in noisy rounds, where it may not depend on rows
_RELEASES = 5  # what n_releases="auto" is


def second_moment(C, diagonal):
    """C' C of contributions (n, d), or its diagonal."""
    return np.einsum("kj,kj->j", C, C) if diagonal else C.T @ C


def project(S, alpha):
    """Public projection of a (shifted) release: M = U (1 - alpha / sqrt(Lambda))_+ U'.

    Directions whose released moment is not positive are dropped. All d eigenvalues count,
    also when there are fewer tasks than features.
    """
    if S.ndim == 1:
        return np.maximum(1.0 - alpha / np.sqrt(np.maximum(S, 1e-300)), 0.0)
    values, U = np.linalg.eigh(S)
    keep = np.maximum(1.0 - alpha / np.sqrt(np.maximum(values, 1e-300)), 0.0)
    return (U * keep) @ U.T


@dataclass
class ProjectionBillboard(OfModels):
    """What the curator of Algorithms 2 and 3 published.

    Attributes
    ----------
    diagonal : bool
        Whether second moments are diagonals, (d,), or matrices, (d, d).
    projections : list of ndarray (d, d) or (d,)
        Public projections, one per release.
    releases : list of ndarray
        The noisy moments they come from, before the shift.
    acceleration, task_weight, ridge
        Public settings that a task needs to repeat its task side.
    mean : ndarray (n_outputs * (d + 1),) or None
        Released mean of the clipped models (intercepts last).
    report : PrivacyReport or None
    n_outputs : int
        Models of a task: one for each of more than two classes.
    init : PublicInit or None
        To which models, and what is released, are differences.
    """

    diagonal: bool
    acceleration: bool
    task_weight: str
    ridge: float
    n_tasks: int
    projections: list = field(default_factory=list)
    releases: list = field(default_factory=list)
    mean: np.ndarray | None = None
    report: object = None
    n_outputs: int = 1
    init: PublicInit | None = None

    constraints = {
        "task_weight": [StrOptions({"equal", "samples"})],
        "ridge": [Interval(Real, 0, None, closed="left")],
        "n_tasks": [Interval(Integral, 1, None, closed="left")],
        "n_outputs": N_OUTPUTS,
    }
    settings = ("acceleration", "task_weight", "ridge", "init")

    @property
    def n_features(self):
        return len(self.projections[0])

    def declared(self):
        """See `skpmtl.exchange.wire`."""
        d = self.n_features
        square = (d,) if self.diagonal else (d, d)
        yield from self._declared_init()
        for M in self.projections:
            yield "a projection", M, [square]
            values = np.linalg.eigvalsh(M) if M.ndim == 2 else M
            if values.min() < -1e-6 or values.max() > 1.0 + 1e-6:
                raise ValueError("a projection makes models longer")
        yield from (("a release", S, [square, self._mean_shape]) for S in self.releases)
        if self.mean is not None:
            yield "the mean model", self.mean, [self._mean_shape]

    def personalize(self, table, *, fit_intercept):
        """Models of the tasks of `table`: their half of the algorithm over the projections."""
        projected = ProjectedModels(
            self,
            self._differences(table),
            fit_intercept=fit_intercept,
        )
        for projection in self.projections:
            projected.update(projection)
        return self.add_init(*projected.models())


def release_projections(billboard, mechanisms, *, alpha, clip_norm, noise_shift, log=None):
    """The curator of Algorithms 2 and 3, see `skpmtl.exchange`; fills and returns `billboard`."""
    public = {"clip_norm": float(clip_norm), "projections": billboard.projections}

    def sum_of_moments(contributions, positions=None):
        C = np.array(contributions["moment"], dtype=float)
        whole = C.reshape(len(C), -1)  # of all classes
        clip_rows(whole, clip_norm)
        return {"moment": second_moment(C.reshape(-1, C.shape[-1]), billboard.diagonal)}

    for t, mechanism in enumerate(mechanisms):
        S = (yield Query("moment", public, {"moment": mechanism}, sum_of_moments))["moment"]
        billboard.releases.append(S)
        shift = mechanism.shift(len(mechanisms), noise_shift)
        with single_blas_thread():
            M = project(S + (shift if S.ndim == 1 else shift * np.eye(len(S))), alpha)
        billboard.projections.append(M)
        if log is not None:
            log(t + 1, mechanism.noise_std)
    return billboard


class ProjectedModels:
    """What all tasks do between two releases, vectorised over the tasks."""

    def __init__(self, billboard, table, *, fit_intercept):
        # Rows as they are: Gram matrices would be chosen by the sizes of all tasks together, and a
        # task's numbers must not differ by a bit with the others' rows.
        loss = LogisticLoss if table.has_log_loss else SquaredLoss
        loss = MultinomialLoss if table.n_classes > 2 else loss
        scale = table.scale(billboard.task_weight)
        self.loss = loss(table, scale, fit_intercept, billboard.ridge, grid=False)
        self.acceleration = billboard.acceleration
        # The start is the task's own model under an even prior; steps are its own as well.
        local = LocalModels(table, fit_intercept=fit_intercept)
        root = even_root(table.n_features)

        def best(criterion, level):
            return SNR[criterion.argmin(axis=1)] / np.maximum(level, 1e-300)

        _, _, W, _ = local.fit(root, best, tol=1e-6)
        self.shape = W.shape
        self.W = self.projected = W.reshape(-1, table.n_features)  # a row for every class
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
            if projection.ndim == 1:
                projected = self.W * projection
            else:
                projected = row_products(self.W, projection)
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
        b = self.loss.intercepts(self.projected)
        return self.projected.reshape(self.shape), b.reshape(self.shape[:-1])


class ProjectionTaskSide(TaskSide):
    """The task side of `release_projections`: clipped models of the tasks of a table."""

    def __init__(self, models):
        self.models = models

    def contributions(self, query):
        """ "moment": the clipped model of each task, (m, d), or (m, C, d) of C classes."""
        W = self._current(query)
        C = W.reshape(len(W), -1).copy()
        clip_rows(C, query.public["clip_norm"])
        return {"moment": C.reshape(W.shape)}

    def answer(self, query):
        # `combine` clips them: once is enough.
        return query.combine({"moment": self._current(query)})

    def _current(self, query):
        # A worker that missed queries has more than one step to make.
        for projection in query.public["projections"][self.models.t :]:
            self.models.update(projection)
        return self.models.W.reshape(self.models.shape)


class ProjectionPlan(MomentPlan):
    """Mechanisms of Algorithms 2 and 3."""

    algorithm, sends, vote = "proximal", "clipped models w", ()

    def __init__(self, est, population, public_init=None):
        self._read(est, population, public_init)
        self.alpha, self.noise_shift = _alpha(est), est.noise_shift
        self.published = self.kind == "wishart-published"
        n_releases = _RELEASES if est.n_releases == "auto" else est.n_releases
        budgets, extra = shared_budget(
            self.kind,
            self.epsilon,
            self.delta,
            est._release_weights(n_releases),
            extra=[MEAN_SHARE] * (est.unseen_task == "mean"),
            n_servers=self.n_servers,
            # The paper divides the budget of its mechanism by its own composition bound.
            method="cb" if self.published else "best",
        )
        d = self.dimension
        if self.published:
            self.moment = [PublishedWishart(d, self.clip_norm, budget) for budget in budgets]
            if self.diagonal:
                self.moment = [OfDiagonal(mechanism) for mechanism in self.moment]
        else:
            self.moment = moment_mechanisms(
                self.kind,
                self.diagonal,
                budgets,
                clip_norm=self.clip_norm,
                adjacency=self.adjacency,
                dimension=d,
            )
        self.mean = self._mean(d + 1, extra[0]) if len(extra) else None

    @property
    def guarantee(self):
        """See `Plan`."""
        return "none" if self.published else super().guarantee

    @property
    def accounting(self):
        """See `Plan`."""
        if self.published:
            return "the composition bound of the paper (nominal)"
        return super().accounting

    def shift(self):
        return [moment.shift(len(self.moment), self.noise_shift) for moment in self.moment]

    def public_inputs(self):
        settings = ("allocation", "alpha", "clip_norm", "noise_shift")
        return super().public_inputs() | {name: getattr(self, name) for name in settings}

    def notes(self, made=None):
        notes = super().notes(made)
        if self.published:
            notes["reason"] = (
                "a Wishart matrix is positive semi-definite, so that a release minus w w' is "
                "never below zero for the task that contributed w and often is for others; "
                "delta is at least 1 - exp(-sum of epsilon_t) whatever epsilon is claimed"
            )
            nominal = [mechanism.epsilon for mechanism in self.moment]
            notes["delta_lower_bound"] = published_wishart_delta_bound(nominal)
        return notes


_CONSTRAINTS = {
    "allocation": [Real, tuple, list, StrOptions({"paper-convex"})],
    "noise_shift": [StrOptions({"auto"}), Interval(Real, 0, None, closed="left")],
    "acceleration": ["boolean"],
}
_MATRIX = StrOptions({"auto", "gaussian", "wishart", "wishart-published"})
_DIAGONAL = StrOptions({"auto", "gaussian", "laplace", "wishart", "wishart-published"})


def _alpha(est):
    return _ALPHA if isinstance(est.alpha, str) else est.alpha


if TYPE_CHECKING:  # a mixin stands before an estimator
    _BeforePublished = MPMTLLowRank
else:
    _BeforePublished = object


class _Published(_BeforePublished):
    """Mixin of model-protected estimators with the options of the paper as parameters."""

    _fixed: ClassVar[tuple[str, ...]] = ()
    _billboards: ClassVar[tuple[type, ...]] = (*MPMTLLowRank._billboards, ProjectionBillboard)

    def _check_algorithm(self):
        if not self._is_private():
            return
        if self._algorithm() == "empirical-bayes":
            if self.mechanism == "wishart-published":
                raise ValueError(
                    'mechanism="wishart-published" reproduces Algorithms 2 and 3 only: pass '
                    'algorithm="proximal". It gives no privacy guarantee.'
                )
        elif self.relation is not None:
            raise ValueError(
                'relation= with a budget belongs to algorithm="empirical-bayes": leave it at '
                '"auto", or take PrivateMeanRegMTL.'
            )

    def _algorithm(self):
        if self.algorithm == "auto" and self._is_private():
            return "proximal" if self.mechanism == "wishart-published" else "empirical-bayes"
        return super()._algorithm()

    def _release_weights(self, n_releases):
        return allocation_weights(self.allocation, n_releases, acceleration=self.acceleration)

    def _projects(self):
        return self._is_private() and self._algorithm() == "proximal"

    def _curator(self, population, source):
        if not self._projects():
            return (yield from super()._curator(population, source))
        public_init = self._public_init(population)
        plan = ProjectionPlan(self, population, public_init)
        billboard = yield from release_projections(
            self._empty_projections(population, public_init),
            plan.moment,
            alpha=plan.alpha,
            clip_norm=self.clip_norm,
            noise_shift=self.noise_shift,
            log=self._progress("release %d: noise std %.3g", len(plan.moment)),
        )
        yield from self._release_mean(billboard, plan)
        billboard.report = plan.report(source, (None, ()))
        return billboard

    def _task_side(self, table, population):
        if not self._projects():
            return super()._task_side(table, population)
        billboard = self._empty_projections(population)
        some = differences(table, self._public_init(population))
        models = ProjectedModels(billboard, some, fit_intercept=self.fit_intercept)
        return WithMeanModel(ProjectionTaskSide(models), table, self.fit_intercept)

    def _empty_projections(self, population, public_init=None):
        return ProjectionBillboard(
            self._diagonal,
            self.acceleration,
            self.task_weight,
            self.ridge,
            population.n_tasks,
            n_outputs=population.n_outputs,
            init=public_init,
        )

    def _planned_report(self, population):
        if not self._projects():
            return super()._planned_report(population)
        plan = ProjectionPlan(self, population, self._public_init(population))
        return plan.report(self._source())

    def _check_study(self):
        if self.mechanism == "wishart-published":
            raise ValueError(
                f"mechanism={self.mechanism!r} has no guarantee: a federated fit needs one."
            )

    def _query_specs(self, population):
        if not self._projects():
            return super()._query_specs(population)
        d, C = population.n_features, population.n_outputs
        public = {"projections": ([(d,) if self._diagonal else (d, d)],)}
        public["clip_norm"] = float(self.clip_norm)
        found = {"moment": QuerySpec({"moment": (d,) if C == 1 else (C, d)}, public)}
        return found | self._query_specs_of_mean(population)


_OPTIONS = """{summary}

    `{main}` with the options of [1]_ as parameters. With their defaults both fit the same models.

    Parameters
    ----------
    alpha : "auto" or float, default="auto"
        As in `{main}`. With ``algorithm="proximal"`` and privacy: by how much every release lowers
        the {lowered}, in units of the coefficients (a public step
        size of 1); "auto" is .1.
    epsilon, delta, adjacency, curator
        As in `{main}`.
    mechanism : {{{mechanisms}, \
"wishart-published"}}, default="auto"
        As in `{main}`. "wishart-published" is the noise of the paper. It has **no** differential
        privacy guarantee, which the report says, and needs ``algorithm="proximal"``.
    algorithm : {{"auto", "empirical-bayes", "proximal"}}, default="auto"
        As in `{main}`. "proximal" with privacy is Algorithm {number} of [1]_.
    levels, init, ridge, task_weight, relation, relation_rank, outliers, outlier_alpha
        As in `{main}`; `ridge` and `task_weight` count in Algorithm {number}, too, and a `relation`
        does not go with it.
    n_releases : "auto" or int, default="auto"
        As in `{main}`; 5 for Algorithm {number}.
    clip_norm : float, default=1.0
        As in `{main}`; also the bound on the models that Algorithm {number} sends.
    allocation : float, ("geometric", Q) or "paper-convex", default=0.0
        Release t = 1, 2, ... gets a budget proportional to ``t**a`` or ``Q**-t``.
    noise_shift : "auto" or float, default="auto"
        Public multiple of the noise edge added to the release of Algorithm {number}. "auto" keeps
        all releases positive semi-definite with probability 0.99.
    acceleration : bool, default=True
        Nesterov momentum of Algorithm {number}; with a ridge, the strongly convex one.
    fit_intercept, task_feature, tasks, {class_list}unseen_task, {target_range}max_iter, tol, \
warm_start, random_state, secure, verbose, dtype
        As in `{main}`.

    Attributes
    ----------
    coef_, intercept_, tasks_, {classes}billboard_, privacy_, relation_coef_, relation_intercept_, \
relation_noise_std_, n_iter_, objective_, dual_gap_, alpha_, outlier_coef_, outlier_, mean_coef_, \
mean_intercept_, n_features_in_, feature_names_in_
        As in `{main}`.

    See Also
    --------
    {main} : The same with the options settled.

    References
    ----------
    .. [1] {liang}
    """


def _published(main, kind, diagonal):
    number, classes = (3 if diagonal else 2), main.endswith("Classifier")
    summary = "group-sparse" if diagonal else "low-rank"
    return _OPTIONS.format(
        summary=f"Model-protected {summary} multi-task {kind} with all options of the paper.",
        main=main,
        number=number,
        class_list="classes, class_weight, " if classes else "",
        lowered="norms of the features' weights" if diagonal else "singular values of the models",
        mechanisms='"auto", "gaussian", ' + ('"laplace", ' if diagonal else "") + '"wishart"',
        classes="classes_, " if classes else "",
        liang=PARAGRAPHS["liang"],
        target_range="" if classes else "target_range, uncertainty, ",
    )


class _Regression(_Published):
    def __init__(
        self,
        alpha: float | Literal["auto"] = "auto",
        *,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Adjacency = "replace-one",
        curator: Curator = "trusted",
        mechanism: Literal["auto", "gaussian", "laplace", "wishart", "wishart-published"] = "auto",
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
        allocation: float | tuple | list | Literal["paper-convex"] = 0.0,
        noise_shift: float | Literal["auto"] = "auto",
        acceleration: bool = True,
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
        dtype=np.float64,
    ) -> None:
        super().__init__(
            alpha,
            epsilon=epsilon,
            delta=delta,
            adjacency=adjacency,
            curator=curator,
            mechanism=mechanism,  # type: ignore[arg-type]  # the paper has one more
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
            target_range=target_range,
            uncertainty=uncertainty,
            max_iter=max_iter,
            tol=tol,
            warm_start=warm_start,
            random_state=random_state,
            secure=secure,
            verbose=verbose,
            dtype=dtype,
        )
        self.allocation = allocation
        self.noise_shift = noise_shift
        self.acceleration = acceleration


class _Classification(_Published):
    def __init__(
        self,
        alpha: float | Literal["auto"] = "auto",
        *,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Adjacency = "replace-one",
        curator: Curator = "trusted",
        mechanism: Literal["auto", "gaussian", "laplace", "wishart", "wishart-published"] = "auto",
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
        allocation: float | tuple | list | Literal["paper-convex"] = 0.0,
        noise_shift: float | Literal["auto"] = "auto",
        acceleration: bool = True,
        fit_intercept: bool = True,
        task_feature: str | int | list | None = None,
        tasks: ArrayLike = "auto",
        classes: ArrayLike = "auto",
        class_weight: ClassWeight = None,
        unseen_task: Literal["error", "mean"] = "error",
        max_iter: int = 10_000,
        tol: float = 1e-6,
        warm_start: bool = False,
        random_state: RandomState = None,
        secure: bool = False,
        verbose: int = 0,
        dtype=np.float64,
    ) -> None:
        super().__init__(  # type: ignore[call-arg]  # before a classifier
            alpha,
            epsilon=epsilon,
            delta=delta,
            adjacency=adjacency,
            curator=curator,
            mechanism=mechanism,  # type: ignore[arg-type]  # the paper has one more
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
            classes=classes,
            class_weight=class_weight,
            unseen_task=unseen_task,
            uncertainty=False,
            max_iter=max_iter,
            tol=tol,
            warm_start=warm_start,
            random_state=random_state,
            secure=secure,
            verbose=verbose,
            dtype=dtype,
        )
        self.allocation = allocation
        self.noise_shift = noise_shift
        self.acceleration = acceleration


class PublishedMPMTLLowRank(_Regression, MPMTLLowRank):
    __doc__ = _published("MPMTLLowRank", "regression", False)
    _parameter_constraints = {
        **MPMTLLowRank._parameter_constraints,
        **_CONSTRAINTS,
        "mechanism": [_MATRIX],
    }


class PublishedMPMTLGroupSparse(_Regression, MPMTLGroupSparse):
    __doc__ = _published("MPMTLGroupSparse", "regression", True)
    _parameter_constraints = {
        **MPMTLGroupSparse._parameter_constraints,
        **_CONSTRAINTS,
        "mechanism": [_DIAGONAL],
    }


class PublishedMPMTLLowRankClassifier(_Classification, MPMTLLowRankClassifier):
    __doc__ = _published("MPMTLLowRankClassifier", "classification", False)
    _parameter_constraints = {
        **MPMTLLowRankClassifier._parameter_constraints,
        **_CONSTRAINTS,
        "mechanism": [_MATRIX],
    }


class PublishedMPMTLGroupSparseClassifier(_Classification, MPMTLGroupSparseClassifier):
    __doc__ = _published("MPMTLGroupSparseClassifier", "classification", True)
    _parameter_constraints = {
        **MPMTLGroupSparseClassifier._parameter_constraints,
        **_CONSTRAINTS,
        "mechanism": [_DIAGONAL],
    }
