"""Billboard of the rounds: centres, their noise, and public settings for personalising."""

import math
from dataclasses import dataclass, replace
from numbers import Integral, Real

import numpy as np

from .._runtime.compat import Interval, StrOptions
from ..engine.billboard import StructureBillboard
from ..exchange.billboard import Billboard
from ..local.centred import Problem
from ..rounds.plan import BINS, epsilon_of_rounds
from ..tables.datafits import DATAFITS
from ..tables.ids import listed
from ..tables.public_init import PublicInit
from ..tables.relation import Relation
from .errors import StandardErrors, n_numbers
from .personal import PersonalModels

_RIGID = 1e12  # strength at which models are their centres


@dataclass
class MeanBillboard(Billboard):
    """What the curator of the rounds published, and the public settings tasks need with it.

    Attributes
    ----------
    centres : ndarray (n_clusters, size)
        Shared models after the last round, less the public initial model; see `mean` for their
        usual shape.
    releases : list of ndarray
        Noisy centres of the clipped updates in the order of publication; the mean intercept, if
        released, comes last. Where the updates of all rounds have more than 2^22 numbers together,
        they are missing: only their sum, in `centres`, is kept.
    clip_norms : list of float
        Bound in every round.
    alone_weight : ndarray (n_clusters,)
        Prior weight that a task gives to going alone, against 1 for a centre as long as its own
        model; a function of public numbers. See `skpmtl.local.average.Candidates`.
    shape : tuple
        (n_features,) or (n_classes, n_features).
    problem : skpmtl.local.centred.Problem
    cluster_of : dict or None
        Public mapping of tasks to rows of `centres`.
    relation : skpmtl.tables.relation.Relation or None
        With one, task k lies around v_k `centres` for its public row v_k.
    mean_intercept : ndarray (n_outputs,) or (n_clusters, n_outputs) or None
        Noisy mean of the clipped intercepts.
    report : PrivacyReport
    step : ndarray (n_clusters, 1) or None
        What a release is multiplied by before it is added to the centres; None: an exact fit.
    noise_multiplier : float or None
        Standard deviation of the noise on the sums of a round, over the bound; None: no noise.
    round_delta : float or None
        delta at which the rounds are accounted; None where they are part of something larger,
        which is published with all of its budget spent.
    scale_mu : float or None
        mu of the histogram of lengths, which is then the first release.
    shrinkage : ndarray (n_clusters,) or None
        What known noise leaves of what the rounds added up to, which `centres` are multiplied by
        where their bounds follow a public rule; None without noise.
    noise_std : ndarray (n_clusters,) or None
        Standard deviation of the noise that is left in a number of `centres`, as estimated for
        `shrinkage`; None without noise.
    own_units : bool
        Whether a task multiplies the centre by the length of its own model (`lengths`).
    lam : float or None
        Regularisation strength of an exact fit.
    init : PublicInit or None
        Public model to which all is a difference: centres, releases, and models of tasks.
    errors : StandardErrors or None
        Of the shared models before they are shrunk; None where they were not asked for.
    loss : {"squared", "poisson", "huber"}
        Of real targets, as a parameter of the estimator.
    """

    centres: np.ndarray
    releases: list
    clip_norms: list
    alone_weight: np.ndarray
    shape: tuple
    problem: object
    sparse: bool
    cluster_of: dict | None = None
    mean_intercept: np.ndarray | None = None
    report: object = None
    step: np.ndarray | None = None
    noise_multiplier: float | None = None
    round_delta: float | None = None
    scale_mu: float | None = None
    shrinkage: np.ndarray | None = None
    own_units: bool = False
    lam: float | None = None
    relation: Relation | None = None
    noise_std: np.ndarray | None = None
    init: PublicInit | None = None
    errors: StandardErrors | None = None
    loss: str = "squared"

    constraints = {
        "loss": [StrOptions(set(DATAFITS))],
        "noise_multiplier": [Interval(Real, 0, None, closed="neither"), None],
        "round_delta": [Interval(Real, 0, 1, closed="both"), None],
        "scale_mu": [Interval(Real, 0, None, closed="neither"), None],
        "own_units": ["boolean"],
    }
    renamed = {"doubt": "alone_weight"}
    added = ("errors", "loss")
    removed = {
        "adaptive": False,
        "personalization": "mean-reg",
        "local_steps": "auto",
        "server_rate": 1.0,
        "sampling": "all",
        "sampling_rate": 1.0,
    }

    @property
    def n_features(self):
        return self.shape[-1]

    @property
    def n_classes(self):
        known = {"squared": 0, "poisson": 0, "logistic": 2}
        return known.get(self.problem.loss, self.problem.n_outputs)

    @property
    def model_shape(self):
        return self.shape

    def parameters(self):
        known = {name: getattr(self.problem, name) for name in ("fit_intercept", "task_weight")}
        known |= {"ridge": self.problem.ridge, "clusters": self.cluster_of}
        known |= {"relation": self.relation, "init": self.init, "loss": self.loss}
        return {**super().parameters(), **known}

    def attributes(self):
        found = {} if self.step is not None else {"lam_": self.lam}
        if self.relation is not None:
            T = self.relation.transform
            found["relation_coef_"] = B = self.shaped(T @ self.centres)
            if self.init is not None:
                B[0] += self.init.coef.reshape(self.shape)
            if self.noise_std is not None:
                found["relation_noise_std_"] = np.sqrt(T**2 @ self.noise_std**2)
            found |= self.stds()
        elif self.cluster_of is None:
            found |= {"mean_coef_": self.mean.copy(), **self.stds()}
            if self.mean_intercept is not None:
                b = self.mean_intercept
                found["mean_intercept_"] = b if len(self.shape) == 2 else float(b[0])
        return found

    def stds(self):
        """Standard errors of the shared model, or of the relation, where they were asked for."""
        if self.errors is None or self.cluster_of is not None:
            return {}
        rows = 1 if self.relation is None else len(self.relation.transform)
        std = np.full((rows, *self.shape), np.nan)
        if self.errors.std is not None:
            std = self.shaped(self.errors.std)
        return {"mean_std_": std[0]} if self.relation is None else {"relation_std_": std}

    def presented(self, centres):
        """Rows described by `errors`: means, clusters or covariates, with the initial model."""
        if self.relation is not None:
            centres = self.relation.transform @ centres
        if self.init is None:
            return centres.copy()
        init = self.init.coef.T if self.sparse else self.init.coef
        first = np.arange(len(centres)) == 0 if self.relation is not None else np.ones(len(centres))
        return centres + np.multiply.outer(first, init.ravel())

    def _declared_centres(self, size, shapes):
        """Of `declared`: the centres, of `size` numbers each, and releases of these shapes."""
        g = len(self.centres)
        for number in [] if self.cluster_of is None else self.cluster_of.values():
            if type(number) is not int or not 0 <= number < g:
                raise ValueError(f"clusters must be numbered from 0 to {g - 1}")
        if self.relation is not None:
            yield from self.relation.declared()
            if self.cluster_of is not None or self.relation.rank != g:
                raise ValueError(f"it has {g} shared models for another relation")
        elif g < 1 or (g > 1 and self.cluster_of is None):
            raise ValueError(f"it has {g} shared models without clusters")
        if not all(isinstance(bound, Real) and bound > 0 for bound in self.clip_norms):
            raise ValueError("clip_norms must be positive")
        yield "the centres", self.centres, [(g, size)]
        yield from (("a release", S, shapes) for S in self.releases)
        yield "alone_weight", self.alone_weight, [(g,)]
        if not self.alone_weight.min() > 0:
            raise ValueError("alone_weight must be positive")
        if self.shrinkage is not None:
            yield "shrinkage", self.shrinkage, [(g,)]
        if self.noise_std is not None:
            yield "noise_std", self.noise_std, [(g,)]

    def declared(self):
        """See `skpmtl.exchange.wire`."""
        shape, problem, g = self.shape, self.problem, len(self.centres)
        several = isinstance(problem, Problem) and problem.loss == "multinomial"
        whole = all(isinstance(size, Integral) and not isinstance(size, bool) for size in shape)
        if not isinstance(problem, Problem) or not whole or len(shape) != 1 + several:
            raise ValueError("its shape does not suit the loss")
        C = shape[0] if several else 1
        if problem.n_outputs != C or (several and C < 3):
            raise ValueError(f"n_outputs is {problem.n_outputs}, not {max(C, 1 + 2 * several)}")
        if self.init is not None:
            yield from self.init.declared(C, shape[-1])
        size = math.prod(shape)
        shapes = [(size,), (g, size), (1,), (g * C,), BINS.shape, (n_numbers(size),)]
        yield from self._declared_centres(size, shapes)
        if self.errors is not None:
            rows = g if self.relation is None else len(self.relation.transform)
            yield from self.errors.declared(rows, size)
        if self.mean_intercept is not None:
            alone = self.has_one_mean
            yield "mean_intercept", self.mean_intercept, [(C,) if alone else (g, C)]
        if self.step is not None:
            yield "the steps of the rounds", self.step, [(g, 1)]
        elif self.clip_norms:
            raise ValueError("it has rounds, but not their step")
        if self.report is not None and self.report.releases:
            rounds = [e for e in self.report.releases if e["name"].count(",") == 0]
            n_rounds = len(self.clip_norms)
            if len(rounds) < n_rounds or not all(e["noise_std"] >= 0 for e in rounds):
                raise ValueError("its report is not about its rounds")

    @property
    def has_one_mean(self):
        """Whether all tasks have the same centre."""
        return self.cluster_of is None and self.relation is None

    @property
    def mean(self):
        """The shared model, of shape `shape`; one row per cluster, or column of a relation.

        The start, or zero, where tasks have units of their own: the centres then have none.
        """
        models = self.models(np.zeros_like(self.centres) if self.own_units else self.centres)
        return models[0] if self.has_one_mean else models

    def set_intercept(self, shift, middle=0.0):
        """Take mean intercepts, (n_centres, n_outputs), of which `middle` was subtracted."""
        if self.relation is not None:  # whose first column is the constant: middle is v_k row
            shift = shift + middle * self.relation.of_constant[:, None]
        else:
            shift = shift + middle
        self.mean_intercept = shift[0] if self.has_one_mean else shift

    def with_covariates(self, given):
        """A copy that knows covariates of further tasks, see `Relation.with_tasks`."""
        return replace(self, relation=self.relation.with_tasks(given))

    def around(self, tasks):
        """-> number of the centre of each of `tasks` among these, the centres (n, size)

        Raises
        ------
        ValueError
            For tasks without a cluster, or without covariates in the relation.
        """
        if self.relation is not None:
            return np.arange(len(tasks)), self.relation.centres(tasks, self.centres)
        return cluster_rows(tasks, self.cluster_of), self.centres

    def intercepts(self, tasks):
        """Mean intercepts (n, n_outputs) of the centres that `around` gives."""
        if self.relation is not None:
            return self.relation.centres(tasks, self.mean_intercept)
        return np.atleast_2d(self.mean_intercept)

    @property
    def signal(self):
        """Part of the squared length of every centre that its known noise leaves, (n_centres,)."""
        if self.shrinkage is None or self.own_units or self.scale_mu is not None:
            return np.ones(len(self.centres))  # there is none, or the centre was shrunk
        return self.shrinkage

    def shaped(self, flat):
        """Models (n, size) as ``(n, *shape)``."""
        if self.sparse and len(self.shape) == 2:
            return flat.reshape(len(flat), *self.shape[::-1]).transpose(0, 2, 1)
        return flat.reshape(len(flat), *self.shape)

    def models(self, flat):
        """Models ``(n, *shape)`` at these differences to the public initial model, (n, size)."""
        models = self.shaped(flat)
        return models if self.init is None else models + self.init.coef.reshape(self.shape)

    def for_rows(self, sparse):
        """This billboard with its models in the layout that CSR or dense rows need."""
        if sparse == self.sparse or len(self.shape) == 1:
            return self
        models = self.shaped(self.centres)
        models = models.transpose(0, 2, 1) if sparse else models
        centres = np.ascontiguousarray(models).reshape(self.centres.shape)
        return replace(self, centres=centres, sparse=sparse)

    def history(self) -> list:
        """Noise and budget after every round; nothing here depends on the data.

        Returns
        -------
        list of dict
            Keys "round", "clip_norm", "noise_std" (of one coefficient of the mean update) and
            "epsilon" (spent so far, at the delta of the report).
        """
        entries = [e for e in self.report.releases if e["name"].count(",") == 0]
        return [
            {
                "round": t + 1,
                "clip_norm": bound,
                "noise_std": entries[t]["noise_std"] if entries else 0.0,
                "epsilon": self._spent(t + 1),
            }
            for t, bound in enumerate(self.clip_norms)
        ]

    def _spent(self, n_rounds):
        """epsilon after this many rounds."""
        if self.noise_multiplier is None:
            return math.inf
        if self.round_delta is None:
            return self.report.epsilon
        return epsilon_of_rounds(
            self.noise_multiplier,
            n_rounds,
            self.round_delta,
            self.report.adjacency,
            self.scale_mu or 0.0,
        )

    def replay(self):
        """Shared models after every round, from the releases. -> ``(n_rounds, *centres.shape)``

        Less the start, and before they are shrunk, see `shrinkage`.

        Raises
        ------
        ValueError
            When there were no rounds, or their releases were not kept.
        """
        if not self.clip_norms:
            raise ValueError(
                "This fit had no rounds: without privacy it is the exact optimum. Pass a finite "
                "epsilon."
            )
        return np.cumsum(self.moves(), axis=0)

    def moves(self):
        """What the rounds added to the shared models, as `replay`."""
        first = int(self.scale_mu is not None)
        updates = self.releases[first : first + len(self.clip_norms)]
        if len(updates) < len(self.clip_norms) or updates[0].size != self.centres.size:
            raise ValueError(
                "The updates of this fit were not kept: they have more than 2^22 numbers. Use "
                "fewer rounds, or fewer features."
            )
        return np.stack(updates).reshape(-1, *self.centres.shape) * self.step

    @property
    def reaches(self):
        """Multiples of the centre that a task considers, with prior weights.

        One round is cut short by its bound: the shared model may lie beyond. Of classes it lies
        beyond most of those that a task should have: where a few rows of every task are separable,
        all models are too long, and they agree on that.
        """
        if self.problem.loss != "squared":
            return (1.0, 0.1), (0.5, 0.5), (0.15, 0.4)
        return ((1.0, 0.6), (3.0, 0.4)) if len(self.clip_norms) == 1 else ((1.0, 1.0),)

    def without_rows(self, tasks):
        """Centres of the tasks; the initial model, or 0, where these are noise or unitless."""
        which, models = self.resting(tasks)
        intercept = np.zeros((len(tasks), self.problem.n_outputs))
        if self.init is not None:
            intercept[:] = self.init.intercept
        if self.relation is not None:
            if self.mean_intercept is not None:
                intercept[:] = self.intercepts(tasks)
        elif self.mean_intercept is not None:
            known = which < len(self.centres)
            intercept[known] = np.atleast_2d(self.mean_intercept)[which[known]]
        return models[which], intercept if len(self.shape) == 2 else intercept[:, 0]

    def resting(self, tasks):
        """-> index of the model that each of `tasks` has without rows, models (the last: `init`)"""
        which, models = self.centres_or_zero(tasks)
        if self.relation is not None:
            return which, self.models(np.zeros_like(models) if self.own_units else models)
        zero = len(self.centres)
        if self.own_units:
            which[:] = zero
        elif self.shrinkage is not None:
            which[np.append(self.shrinkage == 0.0, False)[which]] = zero
        return which, self.models(models)

    def centres_or_zero(self, tasks):
        """As `around`, but tasks of unknown clusters have a last centre, which is zero."""
        if self.relation is not None:
            return self.around(tasks)
        zero, which = len(self.centres), np.zeros(len(tasks), dtype=np.int64)
        if self.cluster_of is not None:
            which = np.array([self.cluster_of.get(task, zero) for task in tasks.tolist()])
        return which, np.concatenate([self.centres, np.zeros((1, self.centres.shape[1]))])

    def unpersonalised(self, centres):
        """A copy with these centres, of which tasks take all, and fit their intercepts alone."""
        problem = replace(self.problem, lam=_RIGID, ridge=0.0)
        return replace(self, centres=centres, problem=problem)

    def within(self, report):
        super().within(report)
        self.round_delta = None  # alone the rounds have no budget then

    def personalize(self, table, centred=None):
        """`PersonalModels` of the tasks of `table`, from their rows and this billboard alone.

        With "mean-reg" and ``lam="auto"`` a task averages its models around the shared one, at
        several strengths, and alone, by how probable each makes its own rows
        (`skpmtl.local.average`). That stays with the task and costs no privacy. `centred`:
        `CentredTasks` of the same rows, where they are at hand.
        """
        return PersonalModels(table, self, centred)

    def posterior(self, table, *, fit_intercept: bool | None = None, width: float | None = None):
        return PersonalModels(table, self, dense=True).posterior(width)


@dataclass
class PooledBillboard(StructureBillboard):
    """A pooled model of all tasks, models around it, and the levels of tasks about it.

    Its fields are those of `StructureBillboard` for the structures "alone", "mean", "common", and
    `errors`: `StandardErrors` of the pooled model, intercept last, or None; and `relation`, of
    which `related` are the models, or None.
    """

    errors: StandardErrors | None = None
    relation: Relation | None = None
    added = (*StructureBillboard.added, "errors", "relation")

    def declared(self):
        """See `skpmtl.exchange.wire`."""
        yield from super().declared()
        if self.errors is not None:
            yield from self.errors.declared(1, self.n_features + 1)
        if (self.relation is None) != (self.related is None):
            raise ValueError("its relation has no models, or models no relation")
        if self.relation is not None:
            yield from self.relation.declared()
            shape = self.relation.rank, self.n_features + 1
            yield "models of its relation", self.related, [shape]
            if self.level is None or self.level.window is None:
                raise ValueError("its relation needs levels of real targets")

    def parameters(self):
        known = super().parameters()
        return known if self.relation is None else {**known, "relation": self.relation}

    def with_covariates(self, given):
        """A copy that knows covariates of further tasks, see `Relation.with_tasks`."""
        return replace(self, relation=self.relation.with_tasks(given))

    def models_of_relation(self, tasks):
        """v G of these tasks, (n_tasks, d + 1); None without a relation."""
        return None if self.relation is None else self.relation.centres(tasks, self.related)

    def without_rows(self, tasks):
        """The models of the relation, or the pooled one."""
        if self.relation is None:
            return super().without_rows(tasks)
        models = self.models_of_relation(tasks)
        return self.add_init(self._of_columns(models[:, :-1]), models[:, -1])

    def attributes(self):
        """With the pooled slopes, and its intercept where levels were found; or a relation."""
        found = super().attributes()
        if self.relation is not None:
            models = self.relation.transform @ self.related
            W, b = self._of_columns(models[:, :-1]), models[:, -1].copy()
            W[:1], b[:1] = self.add_init(W[:1], b[:1])
            found |= {"relation_coef_": W, "relation_intercept_": b}
            return {name: value for name, value in found.items() if not name.startswith("mean_")}
        zero = np.zeros(self.model_shape[:-1])
        found.setdefault("mean_coef_", self.add_init(self.centre, zero)[0].copy())
        if self.level is not None:
            found.setdefault("mean_intercept_", found["level_"])
        if self.errors is not None:
            std = np.full(self.n_features + 1, np.nan)
            std = std if self.errors.std is None else self.errors.std[0]
            found |= {"mean_std_": std[:-1].reshape(self.model_shape)}
            found["mean_intercept_std_"] = float(std[-1])
        return found


def cluster_rows(tasks, cluster_of):
    if cluster_of is None:
        return np.zeros(len(tasks), dtype=np.int64)
    known = [cluster_of.get(task) for task in tasks.tolist()]
    missing = tasks[[number is None for number in known]]
    if len(missing):
        raise ValueError(
            f"Tasks without a cluster: {listed(missing)}. Add them to clusters={{task: cluster}} "
            "before the fit, with ids of the same type and a cluster of which the fit has a task."
        )
    return np.array(known, dtype=np.int64)
