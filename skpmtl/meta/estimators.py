"""A private initialisation that new tasks fine-tune (Li, Khodak, Caldas and Talwalkar, 2020)."""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from numbers import Integral, Real
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from .._docstrings import UNCERTAINTY, fill_docstring
from .._runtime.constraints import Interval, StrOptions, take
from .._runtime.hints import Adjacency, ClassWeight, Curator, RandomState, Self
from .._runtime.stack import users_line
from ..base import BaseMTL, HasCovariates, MTLClassifierMixin, MTLRegressorMixin
from ..exchange.billboard import Personal
from ..exchange.protocol import QuerySpec
from ..privacy.report import PrivacyLeakWarning
from ..tables.ids import encode_ids, listed, locate
from ..tables.relation import read_relation
from ..tables.targets import public_range, public_ranges
from ..tables.units import check_units, owners
from ..tables.weights import in_rows
from ..task.mixture import Posterior
from .billboard import MetaBillboard, split_models, unscaled
from .columns import release_scaling
from .curator import release_init
from .plan import MetaPlan
from .tasks import MetaTaskSide

__all__ = ["DPMetaInit", "DPMetaInitClassifier"]


class _MetaInit(HasCovariates, BaseMTL):
    _parameter_constraints = {
        **BaseMTL._parameter_constraints,
        "privacy": [StrOptions({"task-global", "local"}), None],
        "clip_norm": [Interval(Real, 0, None, closed="neither")],
        "inner_steps": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "inner_learning_rate": [StrOptions({"auto"}), Interval(Real, 0, None, closed="neither")],
        "batch_size": [None, Interval(Integral, 1, None, closed="left")],
        "batches": [StrOptions({"full", "poisson", "disjoint"})],
        "meta_learning_rate": [StrOptions({"auto"}), Interval(Real, 0, None, closed="neither")],
        "tasks_per_round": [
            StrOptions({"auto", "all"}),
            Interval(Integral, 1, None, closed="left"),
        ],
        "visits": [Interval(Integral, 1, None, closed="left")],
        "group_size": [Interval(Integral, 1, None, closed="left")],
        "max_rows_per_unit": [None, Interval(Integral, 1, None, closed="left")],
        "feature_range": "no_validation",  # by `public_ranges`
        "init": "no_validation",  # by `read_public_init`
        "relation": "no_validation",  # by `read_relation`
        "relation_rank": [Interval(Integral, 1, None, closed="left"), None],
        "refine": [StrOptions({"prox", "sgd"})],
        "refine_steps": [Interval(Integral, 1, None, closed="left")],
        "refine_learning_rate": [StrOptions({"auto"}), Interval(Real, 0, None, closed="neither")],
    }
    _billboards: ClassVar[tuple[type, ...]] = (MetaBillboard,)
    _federates = _reads_sizes = True
    # While fit runs: its `unit`, whether X is a mapping, and what was made `_once`.
    _unit: object = None
    _mapped = False
    _made: dict | None = None

    __metadata_request__fit = {"task": True, "unit": True}

    def __init__(
        self,
        *,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Adjacency = "replace-one",
        curator: Curator = "trusted",
        privacy: Literal["local", "task-global"] | None = "task-global",
        clip_norm: float = 0.5,
        inner_steps: int | Literal["auto"] = "auto",
        inner_learning_rate: float | Literal["auto"] = "auto",
        batch_size: int | None = None,
        batches: Literal["disjoint", "full", "poisson"] = "full",
        meta_learning_rate: float | Literal["auto"] = "auto",
        tasks_per_round: Literal["all", "auto"] | int = "auto",
        visits: int = 1,
        group_size: int = 1,
        max_rows_per_unit: int | None = None,
        init=None,
        relation=None,
        relation_rank: int | None = None,
        refine: Literal["prox", "sgd"] = "prox",
        refine_steps: int = 10,
        refine_learning_rate: float | Literal["auto"] = "auto",
        fit_intercept: bool = True,
        task_feature: str | int | list | None = None,
        tasks: ArrayLike = "auto",
        unseen_task: Literal["error", "mean"] = "error",
        target_range: ArrayLike | None = None,
        uncertainty: bool | Literal["auto"] = False,
        feature_range=None,
        secure: bool = False,
        random_state: RandomState = None,
        verbose: int = 0,
        dtype: type | str = np.float64,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.adjacency = adjacency
        self.curator = curator
        self.privacy = privacy
        self.clip_norm = clip_norm
        self.inner_steps = inner_steps
        self.inner_learning_rate = inner_learning_rate
        self.batch_size = batch_size
        self.batches = batches
        self.meta_learning_rate = meta_learning_rate
        self.tasks_per_round = tasks_per_round
        self.visits = visits
        self.group_size = group_size
        self.max_rows_per_unit = max_rows_per_unit
        self.init = init
        self.relation = relation
        self.relation_rank = relation_rank
        self.refine = refine
        self.refine_steps = refine_steps
        self.refine_learning_rate = refine_learning_rate
        self.fit_intercept = fit_intercept
        self.task_feature = task_feature
        self.tasks = tasks
        self.unseen_task = unseen_task
        self.target_range = target_range
        self.uncertainty = uncertainty
        self.feature_range = feature_range
        self.secure = secure
        self.random_state = random_state
        self.verbose = verbose
        self.dtype = dtype

    def _is_private(self):
        return self.privacy is not None and super()._is_private()

    def _counts_rows(self):
        protected = self._is_private() or self._unit is not None  # whose rows are counted
        return self.privacy == "task-global" and protected

    def _check_parameters(self):
        super()._check_parameters()
        rank = getattr(self, "relation_rank", None)
        if rank is not None and self.relation is None:
            raise ValueError(f"relation_rank={rank!r} has no effect without relation=.")

    def _target_scaling(self):
        """Public offset and scale of the target in the rounds."""
        return 0.0, 1.0

    def _middle(self):
        return self._target_scaling()[0]

    def _feature_scaling(self, n_features):
        """Public offsets and scales of the features in the rounds, (2, n_features), or None."""
        if self.feature_range is None:
            return None
        low, high = public_ranges(self.feature_range, n_features)
        middle, width = 0.5 * (low + high), high - low
        if not self.fit_intercept:  # nothing takes up what is subtracted
            middle, width = np.zeros(n_features), 2.0 * np.maximum(np.abs(low), np.abs(high))
        return np.stack([middle, width * np.sqrt(n_features) / _UNITS])

    # ------------------------------------------------------------------------- fit
    def fit(  # type: ignore[override]  # `unit` has a place before `sample_weight`
        self,
        X,
        y: ArrayLike,
        task: ArrayLike | None = None,
        unit: ArrayLike | Mapping | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Learn the initialisation, and fine-tune it on the training tasks.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n_samples, n_features), or mapping
            Features; with `task_feature` one column is the task. Or ``{task: X_t}``.
        y : array-like of shape (n_samples,) or (n_samples, n_tasks), or mapping
            Targets. With two dimensions there is one column per task, with NaN where a target
            is not known. With a mapping X, ``{task: y_t}``.
        task : array-like of shape (n_samples,), default=None
            Task id of every row, when there is neither a task column nor a 2-D y nor a mapping.
        unit : array-like of shape (n_samples,), or mapping, default=None
            Person (str or int) that each row of X is about, ``{task: unit_t}`` with a mapping X.
            The guarantee then holds for persons; it needs `max_rows_per_unit`.
        sample_weight : array-like of shape (n_samples,), or mapping, default=None
            Weight of every row of X; ``{task: w_t}`` with a mapping X. Where records are protected
            it is from 0 to 1 and multiplies the clipped gradient of its record in the rounds, and
            steps are divided by the number of rows as ever.

        Returns
        -------
        self : object
            The fitted estimator. After an error it is not fitted, even if it was before.
        """
        self._unit, self._mapped, self._made = unit, isinstance(X, Mapping), {}
        try:
            return super().fit(X, y, task, sample_weight)
        finally:
            del self._unit, self._mapped, self._made

    def _fit_table(self, table):
        shared = table.rows is not None and self._unit is None
        if shared and self._is_private() and self.privacy == "task-global":
            warnings.warn(
                "With a 2-D y a row of X is a record of several tasks, whose budgets add up. For "
                "one budget per row pass unit=range(len(X)) and max_rows_per_unit=y.shape[1].",
                PrivacyLeakWarning,
                stacklevel=users_line(),
            )
        return super()._fit_table(table)

    def _once(self, name, make):
        """What both task sides of a running `fit` need, made once."""
        if self._made is None:
            return make()
        if name not in self._made:
            self._made[name] = make()
        return self._made[name]

    def _plan(self, population, quiet=True):
        return self._once("plan", lambda: MetaPlan(self, population, quiet))

    def _relation(self, population, most=None, quiet=True):
        """The `Relation` of the parameters, over all tasks, of at most so many columns."""
        return read_relation(
            self.relation,
            population.tasks,
            order=None if isinstance(self.tasks, str) else self.tasks,
            rank=self.relation_rank,
            quiet=quiet,
            most=most,
        )

    def _source(self):
        return self._once("source", super()._source)

    def _planned_report(self, population):
        return self._plan(population).report(self._source())

    def _curator(self, population, source):
        """The meta-learner; see `skpmtl.exchange`."""
        plan = self._plan(population)
        if plan.relation is not None:
            self._relation(population, plan.relation.rank, quiet=False)  # for its warnings
        log = self._progress("round %d: %d tasks", plan.n_rounds)
        plan = plan.with_scaling((yield from release_scaling(plan)))
        init = yield from release_init(plan, log)
        noise, row_noise, middle = plan.noise_of_init(), None, plan.target_offset
        if plan.relation is not None:
            noise, row_noise = 0.0, noise
            way = init - plan.begin
            kept = 1.0 - row_noise / np.maximum(np.sum(way**2, axis=(1, 2)), 1e-300)
            kept = np.maximum(kept, 0.0)
            init = plan.begin + kept[:, None, None] * way
            row_noise = (kept * plan.target_scale) ** 2 * row_noise
            middle = middle * plan.relation.of_constant[:, None]
        init *= plan.target_scale
        if self.fit_intercept:
            init[..., -1] += middle
        init = unscaled(init, plan.scaling)
        if plan.relation is not None:
            coef, b = split_models(init, self.fit_intercept)
        else:
            (coef,), (b,) = split_models(init[None], self.fit_intercept)
            b = b.copy() if plan.n_outputs > 1 else float(b)
        return MetaBillboard(
            coef=coef.copy(),
            intercept=b,
            init=init,
            loss=plan.loss,
            fit_intercept=self.fit_intercept,
            refine=self.refine,
            refine_steps=self.refine_steps,
            refine_learning_rate=self.refine_learning_rate,
            init_error=plan.init_error,
            noise=noise * plan.target_scale**2,
            target_offset=plan.target_offset,
            scaling=plan.scaling,
            public_init=plan.public_init,
            report=plan.report(source),
            relation=plan.relation,
            row_noise=row_noise,
        )

    def _task_side(self, table, population):
        """The task side for the tasks of `table`, which draw their noise themselves.

        Where the guarantee is for persons, it refuses rows that have no owners, and owners of too
        many rows: elsewhere than in `fit` nobody could count them.
        """
        plan, table = self._plan(population), _dense(table, self)
        self._check_owners(plan, table)
        positions = np.searchsorted(population.tasks, table.tasks)
        if self._target_scaling() != (0.0, 1.0):
            table = replace(table, y=(table.y - plan.target_offset) / plan.target_scale)
        return self._tasks(plan, table, positions, population)

    def _tasks(self, plan, table, positions, population):
        return MetaTaskSide(self, plan, table, positions, self._source())

    def _check_owners(self, plan, table):
        unit, bound = self._unit, self.max_rows_per_unit
        if unit is None:
            if plan.people:
                raise ValueError(
                    f"max_rows_per_unit={bound!r} needs unit=, the person of each row: pass it to "
                    "fit, or leave max_rows_per_unit at None."
                )
            return
        if plan.mode == "local":
            raise ValueError(
                'privacy="local" protects each task as a whole and knows no unit= of records: '
                'use privacy="task-global".'
            )
        if bound is None:
            raise ValueError(
                "unit= needs max_rows_per_unit, a public bound on the rows of one person."
            )
        check_units(owners(unit, table, self._mapped), table, bound, self.group_size)

    def _public_attributes(self, billboard, population):
        plan = self._plan(population)
        found = {"n_iter_": plan.n_rounds, "billboard_": billboard, "privacy_": billboard.report}
        return {**billboard.attributes(), **found, "_plan_": (plan, population.tasks)}

    # ------------------------------------------------------------------- federated fits
    def _check_study(self):
        super()._check_study()
        if self.batches != "full" or self.max_rows_per_unit is not None:
            raise ValueError(
                f"batches={self.batches!r}, max_rows_per_unit={self.max_rows_per_unit!r}: a "
                f'federated {type(self).__name__} has batches="full" and no persons, because '
                "other noise depends on the number of rows of every task, which the curator is "
                "not told."
            )

    def _query_specs(self, population):
        plan = self._plan(population)
        shape = plan.n_outputs, plan.size
        public = {"init": [plan.begin.shape], "round": Integral}
        if self.random_state is not None:  # who else takes part, for reproducible noise only
            public["everybody"] = np.int64
        found = {"update": QuerySpec({"update": shape}, public)}
        if plan.columns:
            d = plan.n_features
            public["scaling"] = [(2, d)]
            known = {"number": Integral, "reach": Real}
            known |= dict.fromkeys(("scale", "centre"), [(d,)])
            found["columns"] = QuerySpec({"columns": (d + (plan.mode is None),)}, known)
        return found

    def _transport(self, population):
        longest = self._plan(population).longest
        return (
            "every task adds its noise at its site, before anything leaves it: no trusted "
            "curator, as long as sites run no other program than this one; whatever a site sends, "
            f"the curator takes no update of a task for longer than {longest:.6g}"
        )

    def _personalize_table(self, table):
        table, billboard = _dense(table, self), self.billboard_
        if table.weights is None or table.masses is not None:
            return self._refined(table)
        # Of a fit that counts rows: those of weight 0 were rows to the curator alone.
        found, extras = billboard.without_rows(table.tasks), {}
        if table.weights.any():
            here = in_rows(table)
            at = np.searchsorted(table.tasks, here.tasks)
            own = Personal(*self._refined(here))
            for every, values in zip(found, own[:2], strict=True):
                every[at] = values
            for name, values in own.extras.items():
                extras[name] = np.full((table.n_tasks, *values.shape[1:]), np.inf)
                extras[name][at] = values
        return Personal(*found, extras)

    def _no_posterior(self):
        if self.refine != "prox":
            return (
                f"models of refine={self.refine!r} are steps, and have no posterior: take "
                'refine="prox".'
            )
        return None

    def _table_posterior(self, table, billboard):
        if table.weights is None or table.masses is not None:
            return super()._table_posterior(table, billboard)
        m, D = table.n_tasks, table.n_features + 1
        whole = Posterior(np.full((m, D, D), np.inf), np.full(m, np.inf), np.zeros(m))
        if table.weights.any():
            here = in_rows(table)
            at = np.searchsorted(table.tasks, here.tasks)
            found = super()._table_posterior(here, billboard)
            for every, own in zip(whole, found, strict=True):
                every[at] = own
        return whole

    def _refined(self, table):
        """`Personal` of tasks after fine-tuning."""
        kept = self._keeps_class_posterior(table)
        return self.billboard_.personalize(table, classes_posterior=kept)

    def task_privacy(self, task):
        """What the fit spent on the records of one task.

        Parameters
        ----------
        task : str or int
            Id of a task of the fit.

        Returns
        -------
        statement : dict
            Keys "epsilon", "delta", "noise_multiplier" (std of the noise on the sum of clipped
            gradients over `clip_norm`; "local": on the update), "n_rows", "steps" (noisy inner
            steps of all visits), "sampling_rate" (share of the records in one step) and "visits".
            "n_rows" and "sampling_rate" are None with ``privacy="local"``, where numbers of rows
            are not public. A task that was added by `personalize` spent nothing.

        Raises
        ------
        ValueError
            If the task is not in `tasks_`.
        """
        check_is_fitted(self)
        plan, tasks = getattr(self, "_plan_", (MetaPlan, encode_ids([])[1]))
        label = encode_ids([task])[1]
        position = int(locate(label, tasks)[0])
        if position >= 0:
            return plan.task(position)
        if locate(label, self.tasks_)[0] >= 0:
            return plan.nothing()
        raise ValueError(f"Task {task!r} has no model here; tasks_ has {listed(self.tasks_)}.")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        return tags


def _dense(table, est):
    if table.is_sparse:
        raise ValueError(f"{type(est).__name__} does not take sparse X: pass X.toarray().")
    return table


_UNITS = 5.0  # in a public range: a fifth of it is the scale of a residual, or of a feature
_RANGE = """
    target_range : (float, float) or None, default=None
        Public lowest and highest value of the target, never taken from private rows. Gradients are
        then those of ``(y - middle) / unit``, a fifth of the range being the unit, so that
        `clip_norm` need not follow the target, and predictions stay within the range. None: targets
        are taken as they are."""
_DOC = """{summary}

    Batch Reptile: in every round some tasks receive the initialisation phi, take a few gradient
    steps on their own rows, and send the change, of which the mean moves phi. With
    ``privacy="task-global"`` every gradient step is differentially private for single records, as
    in [1]_: gradients of records are clipped and noise is added *inside* the task. Neither the
    meta-learner nor any other task needs to be trusted. Afterwards every task, and any new one
    with a few rows, fine-tunes phi on its own rows, at no further cost.

    Parameters
    ----------
    epsilon : float or None, default=1.0
        Privacy budget of every record (``"local"``: of every task) for the whole fit. None or
        infinity: no clipping of gradients and no noise.
    delta : float or None, default=None
        Delta of the (epsilon, delta) guarantee, in (0, 1). None: ``min(1e-5, 1 / n**2)`` with n the
        number of all records, or of tasks for ``privacy="local"``.
    adjacency : {{"replace-one", "zero-out"}}, default="replace-one"
        Whether neighbouring inputs differ by one record being replaced by any other one, or by
        its contribution being 0. ``"local"`` always protects against any replacement.
    curator : "trusted", "servers" or ("servers", P), default="trusted"
        Who adds up updates, which have their noise: one process that sees that of every task, or P
        servers (two for "servers") that hold additive shares, of whom one has to be honest so that
        nobody sees more than sums. That costs nothing.
    privacy : {{"task-global", "local"}} or None, default="task-global"
        What is protected. "task-global": every record of every task. "local": every task as a
        whole, against all other parties, with far more noise: its update is clipped to `clip_norm`,
        and noise is added once per visit. None: nothing.
    clip_norm : float, default=0.5
        Public bound on the gradient of a record, which has the norm ``|r| |(x, 1)|``, r the
        derivative of the loss by the score: take half of a typical one. 0.5 suits rows of length
        1 and targets of variance 1. For other data: 0.5 s l with l the length of (x, 1) and s the
        scale of a residual, a fifth of the range of a target (classes: 0.5). "local": bound on
        the update of a task; take a quarter of the length that the initialisation may have.
    inner_steps : "auto" or int, default="auto"
        Gradient steps of a task in one visit. "auto": see Notes.
    inner_learning_rate : "auto" or float, default="auto"
        Length of a step on the mean loss. "auto": {rate} for "task-global", which is 1 /
        smoothness of the loss for rows of length 1 (divide by the squared length for others);
        otherwise 1 / smoothness of each task's own loss; without privacy no update
        then counts for more than three times the median length of those of its round.
    batch_size : int or None, default=None
        Records in a mini-batch; None for ``batches="full"``.
    batches : {{"full", "poisson", "disjoint"}}, default="full"
        "full" has the least noise. "poisson": every record is in a batch with probability
        ``min(1, batch_size / n_k)``, secretly, and sums are divided by `batch_size` (extra
        ``skpmtl[sampling]``). "disjoint": the rows of a task are dealt, in their order, to
        ``ceil(n_k / batch_size)`` fixed batches, which the steps of all visits take in turn.
    meta_learning_rate : "auto" or float, default="auto"
        Fraction of the mean update by which phi moves. "auto": see Notes; 1 without privacy.
    tasks_per_round : "auto", "all" or int, default="auto"
        Tasks that start from the same phi. "auto": so many that a visit to all takes m / 10 rounds,
        at least 25 and at most 100; without privacy all of them, in 20 rounds for every visit.
    visits : int, default=1
        How often each task takes part. Visits are composed; no amplification is claimed.
    group_size : int, default=1
        Protect up to this many records of one task at once.
    max_rows_per_unit : int or None, default=None
        With `unit` in `fit`: public bound on the rows of one person. The guarantee is then for
        persons, whose rows may be in several tasks, up to `group_size` in one.
    {init} Rounds begin there, and the release is the difference from it.
    relation : DataFrame, mapping, array, sparse matrix, graph or None, default=None
        Public covariates of the tasks, as of `PrivateMeanRegMTL`. Task k starts from
        phi_k = z_k' B, with z_k its covariates and a constant, and B (`relation_coef_`) learned in
        the rounds. Updates have their noise when they are multiplied by public rows of the
        covariates, so that no guarantee changes; but r columns have r times the noise of one
        initialisation.
        Columns for which the budget is too small are left out, the last ones first.
    relation_rank : int or None, default=None
        Columns of the basis of a graph or Omega. None: 10, or one for five tasks.
    refine : {{"prox", "sgd"}}, default="prox"
        Fine-tuning. "prox": the posterior mean of a task's model, which is drawn towards phi as far
        as its rows are likely under it; see Notes. "sgd": `refine_steps` gradient steps from phi.
    refine_steps : int, default=10
    refine_learning_rate : "auto" or float, default="auto"
        Length of a step of "sgd" on the mean loss. "auto": 1 / smoothness of the task's own loss.
    fit_intercept : bool, default=True
        Whether models have an intercept, which is part of phi and of the clipped gradients.
    {task_feature}
    {tasks}{class_list}
    unseen_task : {{"error", "mean"}}, default="error"
        What `predict` does with a task that was not fitted: raise an error, or use phi (with
        `relation`, that of its covariates).
    feature_range : (low, high) or None, default=None
        Public lowest and highest values of the features, never taken from private rows: two
        numbers, or two arrays with one for each feature without the task column. All steps are then
        those for ``(x - middle) / unit``, the unit a fifth of the range times sqrt(n_features), so
        that rows have length about 1 in whatever units and at whatever offset they come (without
        intercept nothing is subtracted). None: with ``inner_learning_rate="auto"`` tasks release
        scales of columns before the rounds, for a tenth of the squared budget, where budget and
        rows are enough to find any (not with Poisson batches); the report says whether. Columns far
        from 0, such as years, then need a public origin: subtract it, or pass their range.
        Otherwise rounds with a budget take features as they are. Without a budget all rows give
        scales and centres.{target_range}
    {secure}
    random_state : int, Generator, RandomState or None, default=None
        Order of the tasks, noise and batches. None: from the operating system's generator. Anything
        else makes the noise reproducible, and gives no protection against those who know it.
    {verbose}
    {dtype}

    Attributes
    ----------
    init_coef_ : ndarray of shape (n_features,){shapes_of_mean}
    init_intercept_ : float{intercepts_of_mean}
        The initialisation phi; also as `mean_coef_` and `mean_intercept_`. Without `relation`.
    relation_coef_ : ndarray of shape (n_covariates, n_features){shapes_of_covariates}
    relation_intercept_ : ndarray of shape (n_covariates,){intercepts_of_covariates}
        With `relation`: what one more of every covariate adds to phi, the constant first; names are
        ``billboard_.relation.names``.
    relation_noise_std_ : ndarray of shape (n_covariates,), or (n_covariates, n_features)
        Estimated standard deviation of the noise in every number of its rows, for rows of X of
        length 1: the true one is smaller for longer rows and larger for shorter ones (by factors
        of .6 to 1.8 in simulations). By features where these have a `feature_range`. Missing
        without noise.
    coef_ : ndarray of shape (n_tasks, n_features){shapes}
        Fine-tuned models, private to their tasks: give each task its own with `export_task`.
    intercept_ : ndarray of shape (n_tasks,){intercepts}
    tasks_ : ndarray of shape (n_tasks,){classes}{posterior}
    billboard_ : MetaBillboard
        The initialisation and the public settings of the fine-tuning.
    privacy_ : PrivacyReport
        The guarantee with all its assumptions; for one task see `task_privacy`.
    n_iter_ : int
        Meta rounds.
    {features_in_}

    See Also
    --------
    {also}
    PrivateMeanRegMTL : Protects whole tasks, with a trusted curator.

    Notes
    -----
    The loss of a record is {loss}. Task k repeats

        w <- w - inner_learning_rate / B (sum of clipped gradients + N(0, (z_k clip_norm)^2 I))

    with B the number of records in the batch. z_k is calibrated for each task to (epsilon, delta),
    because batches are different parts of it; the number of its rows is public.
    Then phi <- phi + meta_learning_rate mean_k (phi_k - phi), phi_0 = 0 or `init`.
    Where tasks have different noise, the mean has public weights: less for tasks with fewer rows.

    "auto" numbers of steps and meta learning rates follow from public numbers: the budget, the
    sizes n_k, the width d and the number m of tasks. Rows are taken to be of length 1, spread
    evenly over d directions, with residuals of 2 clip_norm and scores of the same size; the total
    length of all rounds then minimises the sum of the remaining error and the noise. If that sum
    exceeds 80 % of the error without an initialisation, tasks fine-tune from 0.

    With ``refine="prox"`` a bad initialisation does little harm. The part of its squared length
    that is known to be noise is subtracted, and tasks regularise less towards the rest. A task's
    model is the mean of its posterior under Gaussian priors around phi, around `init` if there is
    one, and around 0, each with its prior weight and the evidence of the task's rows, averaged over
    scales: how far coefficients are from there, how far the level at the mean row is, and, for
    regression, the noise. Classes take Laplace's approximation of every scale.

    References
    ----------
    .. [1] J. Li, M. Khodak, S. Caldas, A. Talwalkar, "Differentially private meta-learning",
       ICLR, 2020.

    Examples
    --------
    >>> from skpmtl import {name}
    >>> from skpmtl.datasets import make_low_rank_tasks
    >>> X, y, task = make_low_rank_tasks(n_tasks=50, n_samples=40, n_features=5, random_state=0)
    >>> old, new = task < 45, task >= 45
    >>> est = {name}(epsilon=3.0, tasks=range(45){listed})
    >>> est = est.fit(X[old], {target}[old], task=task[old])
    >>> est.init_coef_.shape
    (5,)
    >>> est.personalize(X[new], {target}[new], task=task[new]).coef_.shape
    (50, 5)
    """


class DPMetaInit(MTLRegressorMixin, _MetaInit):
    __doc__ = fill_docstring(
        _DOC,
        summary="A record-private initialisation that tasks fine-tune, for regression.",
        rate="0.5 (1 without intercept)",
        listed="",
        also="DPMetaInitClassifier : The same for classes.",
        loss="half its squared residual",
        name="DPMetaInit",
        target_range=_RANGE + UNCERTAINTY,
    )

    def _check_parameters(self):
        super()._check_parameters()
        self._target_scaling()

    def _target_scaling(self):
        if self.target_range is None:
            return super()._target_scaling()
        low, high = public_range(self.target_range)
        if self.fit_intercept:
            return 0.5 * (low + high), (high - low) / _UNITS
        return 0.0, 2.0 * max(abs(low), abs(high)) / _UNITS


class DPMetaInitClassifier(MTLClassifierMixin, _MetaInit):
    __doc__ = fill_docstring(
        _DOC,
        summary="A record-private initialisation that tasks fine-tune, binary or multinomial.",
        rate="2 (4 without intercept), or 1 (2) for more than two classes,",
        listed=", classes=[False, True]",
        classes="several",
        also="DPMetaInit : The same for regression.",
        loss="its logistic or multinomial log-loss",
        name="DPMetaInitClassifier",
        target="(y > 0)",
    )
    _multiclass = True
    _spreads_labels = False  # records are protected, and steps are few

    def __init__(
        self,
        *,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Adjacency = "replace-one",
        curator: Curator = "trusted",
        privacy: Literal["local", "task-global"] | None = "task-global",
        clip_norm: float = 0.5,
        inner_steps: int | Literal["auto"] = "auto",
        inner_learning_rate: float | Literal["auto"] = "auto",
        batch_size: int | None = None,
        batches: Literal["disjoint", "full", "poisson"] = "full",
        meta_learning_rate: float | Literal["auto"] = "auto",
        tasks_per_round: Literal["all", "auto"] | int = "auto",
        visits: int = 1,
        group_size: int = 1,
        max_rows_per_unit: int | None = None,
        init=None,
        relation=None,
        relation_rank: int | None = None,
        refine: Literal["prox", "sgd"] = "prox",
        refine_steps: int = 10,
        refine_learning_rate: float | Literal["auto"] = "auto",
        fit_intercept: bool = True,
        task_feature: str | int | list | None = None,
        tasks: ArrayLike = "auto",
        classes: ArrayLike = "auto",
        class_weight: ClassWeight = None,
        unseen_task: Literal["error", "mean"] = "error",
        uncertainty: bool | Literal["auto"] = "auto",
        feature_range=None,
        secure: bool = False,
        random_state: RandomState = None,
        verbose: int = 0,
        dtype: type | str = np.float64,
    ) -> None:
        take(self, locals())
