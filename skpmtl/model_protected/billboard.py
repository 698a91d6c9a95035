"""What the curators of model-protected learning publish, and how a task goes on with it."""

from dataclasses import dataclass, field, replace
from functools import partial
from numbers import Integral, Real

import numpy as np
from scipy.special import expit, logsumexp

from .._runtime.compat import Interval, StrOptions
from .._runtime.public import Public
from ..engine.levels import LEVEL_BINS, PLACES, Level, TaskLevels, level_attributes
from ..engine.residuals import Residuals
from ..engine.votes import N_DIFFERENCES
from ..exchange.billboard import N_OUTPUTS, OfModels, Personal
from ..local.centred import CentredTasks, Problem
from ..local.laplace import ClassPriors, class_posterior, free_level, two_scales
from ..local.posterior import (
    Priors,
    TaskSums,
    by_evidence,
    free_intercept,
    mixed_moments,
    moments,
    own_noise,
    posterior,
    shifted,
)
from ..local.prior import (
    LocalModels,
    VotedScale,
    alone_scale,
    alone_weight,
    best_scale,
    even_root,
    mixed,
    tempered,
    weak_penalty,
)
from ..local.updates import lengths
from ..privacy.moments import root_of
from ..rounds.plan import BINS
from ..solvers.fitted import PenaltyBillboard
from ..tables.datafits import DATAFITS
from ..tables.public_init import PublicInit
from ..tables.relation import Relation
from ..tables.table import differences_to

# Advantage of the even prior from which a task leaves the billboard aside: odds of e^4, so that
# a task with few rows does not do so by chance.
_DOUBT = 8.0


@dataclass(eq=False)
class Centres(Public):
    """What the rounds found of a relation."""

    relation: Relation
    # (r, n_outputs * d), G: the prior of task k is about v_k G, for its public row v_k
    coef: np.ndarray
    own_units: bool = False  # whether a task multiplies that by the length of its own model
    # (r,), of the noise that is left in a number of each row; None without noise
    noise_std: np.ndarray | None = None
    # (r, n_outputs), the intercept of a task without rows is v_k times it; None where it was
    # not released
    intercept: np.ndarray | None = None

    constraints = {"own_units": ["boolean"]}

    def declared(self, size, n_outputs):
        """Arrays with their shapes, as `skpmtl.exchange.Billboard.declared`."""
        if not isinstance(self.relation, Relation):
            raise ValueError("its centres have no relation")
        yield from self.relation.declared()
        yield "the centres", self.coef, [(self.relation.rank, size)]
        if self.noise_std is not None:
            yield "noise of the centres", self.noise_std, [(self.relation.rank,)]
        if self.intercept is not None:
            yield "intercepts of the centres", self.intercept, [(self.relation.rank, n_outputs)]

    def asked(self):
        """The part of a query that is about them."""
        return {"centres": self.coef, "own_units": self.own_units}

    def of(self, table, fit_intercept):
        """Centres (m, [n_outputs,] d) of the tasks of a table."""
        return about(self.coef, self.relation, self.own_units, table, fit_intercept)

    def attributes(self, shape):
        """Fitted attributes, for models of this shape."""
        T = self.relation.transform
        attributes = {"relation_coef_": (T @ self.coef).reshape(-1, *shape)}
        if self.noise_std is not None:
            attributes["relation_noise_std_"] = np.sqrt(T**2 @ self.noise_std**2)
        if self.intercept is not None:
            attributes["relation_intercept_"] = (T @ self.intercept).reshape(-1, *shape[:-1])
        return attributes


class AboutCovariates:
    """Mixin of billboards of models that lie about `centres`, or about 0 where that is None."""

    @property
    def relation(self):
        """Of the centres; None without them."""
        return None if self.centres is None else self.centres.relation

    def with_covariates(self, given):
        """A copy that knows covariates about further tasks, see `Relation.with_tasks`."""
        relation = self.relation.with_tasks(given)
        return replace(self, centres=replace(self.centres, relation=relation))

    def parameters(self):
        parameters = super().parameters()
        return parameters if self.centres is None else {**parameters, "relation": self.relation}

    def attributes(self):
        attributes = super().attributes()
        if self.centres is not None:
            attributes |= self.centres.attributes(self.model_shape)
        return attributes

    def without_rows(self, tasks):
        if self.centres is None:
            return super().without_rows(tasks)
        relation, centres, shape = self.relation, self.centres, self.model_shape
        W, b = np.zeros((len(tasks), *shape)), np.zeros((len(tasks), *shape[:-1]))
        if not centres.own_units:
            W = relation.centres(tasks, centres.coef).reshape(W.shape)
        if centres.intercept is not None:
            b = relation.centres(tasks, centres.intercept).reshape(b.shape)
        return self.add_init(W, b)


def about(coef, relation, own_units, table, fit_intercept):
    """Centres of the tasks of a table. -> (m, d), or (m, C, d) of C classes"""
    centres, C = relation.centres(table.tasks, coef), coef.shape[1] // table.n_features
    if own_units:
        loss = {0: table.loss, 2: "logistic"}.get(table.n_classes, "multinomial")
        centres *= lengths(CentredTasks(table, Problem(loss, C, fit_intercept)))[:, None]
    return centres if C == 1 else centres.reshape(len(centres), C, -1)


@dataclass
class PriorBillboard(AboutCovariates, OfModels):
    """Releases of the empirical-Bayes method.

    Attributes
    ----------
    diagonal : bool
        Whether second moments are diagonals, (d,), or matrices, (d, d).
    moment : ndarray (d, d) or (d,)
        Prior shape M of trace 1, derived from the releases.
    snr_centre, snr_spread : float or None
        Centre and width of the tasks' prior on log10(snr); None when no vote was released.
    n_tasks : int
    releases : list of ndarray
        The noisy votes and moments in the order of publication, before any processing.
    mean : ndarray (n_outputs * (d + 1),) or None
        Released mean of the clipped models (intercepts last).
    report : PrivacyReport or None
    n_outputs : int
        Models of a task: one for each of more than two classes.
    centres : Centres or None
        About which the prior is, task by task; None: about 0.
    init : PublicInit or None
        To which models of the prior, centres and releases are differences.
    level : Level or None
        Mean and spread of the levels of tasks; None where they are free.
    loss : {"squared", "poisson", "huber"}
        Of real targets.
    residuals : Residuals or None
        Distances of targets from the mean model.
    """

    diagonal: bool
    moment: np.ndarray
    snr_centre: float | None
    snr_spread: float | None
    n_tasks: int
    releases: list = field(default_factory=list)
    mean: np.ndarray | None = None
    report: object = None
    n_outputs: int = 1
    centres: Centres | None = None
    init: PublicInit | None = None
    level: Level | None = None
    loss: str = "squared"
    residuals: Residuals | None = None

    constraints = {
        "loss": [StrOptions(set(DATAFITS))],
        "snr_spread": [Interval(Real, 0, None, closed="neither"), None],
        "n_tasks": [Interval(Integral, 1, None, closed="left")],
        "n_outputs": N_OUTPUTS,
    }
    settings = ("init", "loss")
    added = ("level", "loss", "residuals")

    @property
    def n_features(self):
        return len(self.moment)

    @property
    def scale(self):
        return VotedScale(self.snr_centre, self.snr_spread)

    def declared(self):
        """See `skpmtl.exchange.wire`."""
        d = self.n_features
        square = (d,) if self.diagonal else (d, d)
        yield from self._declared_init()
        if (self.snr_centre is None) != (self.snr_spread is None):
            raise ValueError("snr_centre needs a snr_spread")
        yield "its moment", self.moment, [square]
        diagonal = np.diagonal(self.moment) if self.moment.ndim == 2 else self.moment
        if diagonal.min() < 0 or abs(diagonal.sum() - 1.0) > 1e-6:
            raise ValueError("its moment is not that of a prior of trace 1")
        shapes = [square, (1,), self._mean_shape]
        if self.centres is not None:
            size = d * self.n_outputs
            yield from self.centres.declared(size, self.n_outputs)
            r = self.relation.rank
            shapes += [BINS.shape, (size,), (r, size), (r * self.n_outputs,)]
        if self.level is not None:
            if self.n_outputs > 1 or self.level.spread is None or self.centres is not None:
                raise ValueError("its level is not that of one output, with a spread")
            yield from self.level.declared(d)
        if self.residuals is not None:
            if self.n_outputs > 1:
                raise ValueError("distances from a mean model of several outputs")
            yield from self.residuals.declared()
            shapes.append(self.residuals.counts.shape)
        shapes += [(LEVEL_BINS,), (2,), (PLACES,), (N_DIFFERENCES,)]
        yield from (("a release", S, shapes) for S in self.releases)
        if self.mean is not None:
            yield "the mean model", self.mean, [self._mean_shape]

    def attributes(self):
        attributes = super().attributes()
        return attributes if self.level is None else attributes | level_attributes(self)

    def without_rows(self, tasks):
        coef, intercept = super().without_rows(tasks)
        if self.level is not None and self.mean is None:
            intercept[:] = self.add_init(coef[:1] * 0.0, np.array(self.level.intercept))[1]
        return coef, intercept

    def personalize(self, table, *, fit_intercept, classes_posterior=False, models=None):
        """Models of the tasks of `table`, from their rows and this billboard alone.

        `models`: those of real targets from the method `models`, where there is no public initial
        model and they are known.

        A task compares the released prior with an even one, M = I / d, so that a billboard that is
        all noise does no harm. For squared loss it averages over both at all scales, and over the
        ridge of a task alone, by prior weight and evidence. For the logistic loss it takes the
        likeliest scale, and the even prior where that is clearly better. A public initial
        model may be a bad one: even priors are then about it and about 0.

        Returns
        -------
        personal : Personal
            Its extra "outlier_", (n_tasks,), is the weight, from 0 to 1, of the even prior and of
            going alone: the part of a model that is not of the released prior. Those of
            `skpmtl.local.laplace.class_posterior` are with `classes_posterior`.
        """
        priors = None
        if models is None:
            table, models, priors = self.models(table, fit_intercept)
        W, b, outlier, energies = models
        level = free_level if fit_intercept else None
        if self.level is not None:
            W_, _ = self.subtract_init(W, b)
            levels = TaskLevels(table)
            pooled = levels.levels(W_, energies, self.level)
            b = self.add_init(W_, pooled - np.einsum("kj,kj->k", levels.rows, W_))[1]
            level = partial(levels.class_posterior, W_, self.level)
        extras = {"outlier_": outlier}
        if classes_posterior:
            extras |= class_posterior(table, *self.subtract_init(W, b), priors, level)
        return Personal(W, b, extras)

    def models(self, table, fit_intercept, leaves=True):
        """-> table of differences, (W, b, weight of what is not of the prior, squared errors), and
        `ClassPriors` of classes

        `leaves`: whether a task may leave the public initial model; not for differences to it.
        """
        table = tempered(table, fit_intercept)
        bare, table = table, self._differences(table)
        settings = {"fit_intercept": fit_intercept, "restrained": self.scale.is_hint}
        local = shared = LocalModels(table, **settings)
        if self.centres is not None:
            shared = LocalModels(table, centre=self.centres.of(table, fit_intercept), **settings)
        bare = LocalModels(bare, **settings) if leaves and self.init is not None else None
        if not table.has_log_loss:
            return table, self._averages(local, shared, bare, table, fit_intercept), None
        even = even_root(table.n_features)
        W, b, loss, kappa = self._modes(shared, root_of(self.moment))
        W, b = self.add_init(W, b)
        even_W, even_b, even_loss, even_kappa = self._modes(local, even)
        even_W, even_b = self.add_init(even_W, even_b)
        even_centre = np.zeros_like(W)
        if bare is not None:
            W_0, b_0, loss_0, kappa_0 = self._modes(bare, even)
            better = loss_0 < even_loss
            even_W[better], even_b[better] = W_0[better], b_0[better]
            even_kappa[better] = kappa_0[better]
            even_centre[better] = -self.init.coef.reshape(self.model_shape)
            even_loss = np.minimum(even_loss, loss_0)
        alone = even_loss + _DOUBT < loss
        W[alone], b[alone] = even_W[alone], even_b[alone]
        outlier = expit(0.5 * (loss - even_loss - _DOUBT))
        centre = shared.centre if self.centres is not None else None
        half = 0.5 * np.repeat(np.nan_to_num(outlier)[:, None], 2, axis=1)
        priors = [
            ClassPriors(0.5 - half, kappa, self.moment, centre),
            ClassPriors(half, even_kappa, even**2, even_centre),
        ]
        return table, (W, b, outlier, np.zeros(len(W))), priors

    def _priors(self, table, fit_intercept):
        """Even and released prior of squared loss, as `LocalModels.average` takes them."""
        m, penalty = table.n_tasks, self.scale.penalty
        weak = -0.5 * (weak_penalty(False) + penalty)
        scales = np.tile(weak - logsumexp(weak), (m, 1))
        odds = np.log1p(np.exp(-0.5 * _DOUBT))
        kappa = alone_scale(table, fit_intercept)
        weight = alone_weight(self.n_tasks, table.support)
        even = np.column_stack([np.log(weight), scales - odds - 0.5 * _DOUBT])
        roots = even_root(table.n_features), root_of(self.moment)
        return (roots[0], kappa, even), (roots[1], None, scales - odds)

    def posterior(self, table, *, fit_intercept, width=None):
        known = None if self.level is None else self.level.noise_prior
        sums = bare = TaskSums(table, fit_intercept, known)
        table = self._differences(table)
        if self.init is not None:
            sums = sums.less(self.init.coef[0], self.init.intercept[0])
        even, released = self._priors(table, fit_intercept)
        centre = None if self.centres is None else self.centres.of(table, fit_intercept)
        by_prior = [
            moments(sums, Priors(root, weights, kappa, centre=at))
            for (root, kappa, weights), at in zip((even, released), (None, centre), strict=True)
        ]
        if self.init is not None:
            by_prior = [shifted(part, self.init.coef[0]) for part in by_prior]
            root, kappa, weights = even
            by_prior.append(moments(bare, Priors(root, weights, kappa)))
        mixture = mixed_moments(by_prior, by_evidence(by_prior))
        if self.level is None:
            noise = own_noise(mixture, bare, width)
            return posterior(free_intercept(mixture, bare), *noise)
        if self.init is not None:
            mixture = shifted(mixture, -self.init.coef[0])
        mixture, noise = TaskLevels(table).posterior(mixture, sums, self.level, width)
        if self.init is not None:
            mixture = shifted(mixture, self.init.joined(True)[0])
        return posterior(mixture, *noise)

    def _averages(self, local, shared, bare, table, fit_intercept):
        even, released = self._priors(table, fit_intercept)
        averages = [local.average(*even), shared.average(*released)]
        averages = [(evidence, *self.add_init(W, b), Q) for evidence, W, b, Q in averages]
        if bare is not None:
            averages.append(bare.average(*even))
        with np.errstate(invalid="ignore"):
            alone = np.logaddexp.reduce([part[0] for part in averages[::2]])
            apart = np.nan_to_num(expit(alone - averages[1][0]), nan=1.0)
        W, b, energies = mixed(averages)
        return W, b, apart, energies

    def _modes(self, local, root):
        penalty = self.scale.penalty

        def choose(criterion, level):
            return best_scale(criterion + penalty, level)

        # For the logistic loss the criterion is that of its working response at the scores so far:
        # the second pass has those of the mode.
        excess = 0.0
        for _ in range(2 if local.log_loss else 1):
            # To compare priors about a centre, or `init`, with one about 0.
            if self.centres is not None or self.init is not None:
                excess = 0.5 * local.excess()
            criterion, level, W, b = local.fit(root, choose)
        criterion = criterion + penalty
        kappa = two_scales(criterion) / np.maximum(level, 1e-300)[:, None]
        return W, b, criterion.min(axis=1) + excess, kappa


@dataclass
class RelatedPenaltyBillboard(AboutCovariates, PenaltyBillboard):
    """Fitted shape of the penalty of what does not follow from covariates.

    Attributes
    ----------
    centres : Centres
        That part: a new task pays for its distance to its own centre. Those of the fit get back
        their models, but for the small ridge that holds this part (`ResidualPenalty`).
    diagonal, shape, alpha, ridge, task_weight, n_tasks, releases, report, n_outputs, init
        As of `PenaltyBillboard`.
    """

    centres: Centres | None = None

    constraints = {**PenaltyBillboard.constraints, "outliers": [None]}

    def declared(self):
        """See `skpmtl.exchange.wire`."""
        yield from super().declared()
        if self.centres is None:
            raise ValueError("it has no centres")
        yield from self.centres.declared(self.n_features * self.n_outputs, self.n_outputs)

    def personalize(self, table, *, fit_intercept):
        """Models of the tasks of `table`, from their rows and this billboard alone."""
        W = self.relation.centres(table.tasks, self.centres.coef).reshape(-1, *self.model_shape)
        D, b = super().personalize(differences_to(table, W), fit_intercept=fit_intercept)
        return D + W, b
