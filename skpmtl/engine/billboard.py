"""What the curator of several structures publishes, and how a task goes on with it."""

from dataclasses import dataclass, field
from functools import partial
from numbers import Integral, Real
from typing import ClassVar

import numpy as np
from scipy.special import expit

from .._runtime.compat import Interval, StrOptions
from ..exchange.billboard import OfModels, Personal, Public
from ..local.laplace import class_posterior, free_level
from ..local.posterior import (
    TaskSums,
    free_intercept,
    mixed_moments,
    mixed_noise,
    own_noise,
    posterior,
    shifted,
)
from ..local.prior import VotedScale, even_root, tempered
from ..tables.datafits import DATAFITS
from ..tables.public_init import PublicInit
from ..tables.table import scaled
from .columns import unscaled
from .evidence import Evidence, averaged
from .groups import Groups
from .levels import Level, TaskLevels, level_attributes
from .members import Members, gain
from .residuals import Residuals

# What a task may share with the others: nothing; a subspace, or a few features; a mean, the same
# half as large, or both mean and subspace; or all slopes. The number is the prior weight: before a
# task has said anything, how much it may be expected of its evidence. Alone is there for tasks
# unlike all others.
WEIGHTS = {
    "alone": 0.02,
    "low-rank": 1.0,
    "sparse": 0.3,
    "mean": 0.5,
    "half of the mean": 0.5,
    "mean and low-rank": 0.5,
    "common": 0.5,
}
# The slopes of the pooled model, as good as exactly: centre and spread of log10(snr).
COMMON = {"snr_centre": -3.5, "snr_spread": 0.2}

# Families of a comparison: who has the pooled slopes, is about them, or does without.
FAMILIES = (("common",), ("mean", "mean and low-rank"), ("alone", "low-rank", "sparse"))


@dataclass
class Structure(Public):
    """A prior w ~ N(centre, kappa s^2 M) that tasks may share, with a scale per task."""

    name: str  # one of `WEIGHTS`
    weight: float  # public weight of the structure before a task's own evidence; they sum to 1
    centre: np.ndarray  # (d,), or (C, d) of more than two classes
    moment: np.ndarray  # (d, d) or (d,), M, of trace 1, or its diagonal; the same for every class
    # `snr_centre`, `snr_spread`: centre and width of the prior on log10(snr); None before a
    # vote says something of them
    snr_centre: float | None = None
    snr_spread: float | None = None
    # released share of the tasks that follow it, noise and all; None before a vote
    share: float | None = None

    constraints = {
        "name": [StrOptions(set(WEIGHTS))],
        "weight": [Interval(Real, 0, 1, closed="right")],
        "snr_spread": [Interval(Real, 0, None, closed="neither"), None],
    }

    @property
    def scale(self):
        return VotedScale(self.snr_centre, self.snr_spread)


@dataclass
class StructureBillboard(OfModels):
    """Structures that were found, with all releases that they follow from.

    Attributes
    ----------
    structures : list of Structure
    n_tasks : int
    about_centre : bool
        Whether directions are those of models less their task's own centre: after the rounds of
        the mean.
    releases : list of ndarray
        What was released, in the order of publication.
    mean : ndarray (n_outputs * (d + 1),) or None
        Model of tasks without rows (intercepts last), for unseen_task="mean".
    init : PublicInit or None
        To which structures, and what is released, are differences.
    report : PrivacyReport or None
    level : Level or None
        The pooled model and the spread of levels about it; None where they are free.
    loss : {"squared", "poisson", "huber"}
        Of real targets.
    residuals : Residuals or None
        Distances of targets from the mean model.
    groups : Groups or None
        Centres of groups, of which there may be none; None where nobody asked for them.
    related : ndarray (r, d + 1) or None
        G of a relation, levels last: a task with the row v is about v G, in place of the level and
        the centre of structures.
    own_units : bool
        Whether a task multiplies centres by the length of its own model.
    column_scale : ndarray (d,) or None
        What columns are divided by before structures, level and groups are about them; None: 1.
    """

    structures: list
    n_tasks: int
    about_centre: bool = False
    releases: list = field(default_factory=list)
    mean: np.ndarray | None = None
    init: PublicInit | None = None
    report: object = None
    level: Level | None = None
    loss: str = "squared"
    residuals: Residuals | None = None
    groups: Groups | None = None
    related: np.ndarray | None = None
    column_scale: np.ndarray | None = None
    own_units: bool = False

    constraints = {
        "n_tasks": [Interval(Integral, 1, None, closed="left")],
        "loss": [StrOptions(set(DATAFITS))],
        "own_units": ["boolean"],
    }
    settings: ClassVar[tuple[str, ...]] = ("init", "loss")
    added = ("level", "loss", "residuals", "groups", "related", "column_scale", "own_units")

    @classmethod
    def empty(cls, n_tasks, *model_shape):
        """Before any release every task is alone."""
        return cls([alone(*model_shape)], n_tasks)

    @property
    def n_features(self):
        return self.structures[0].centre.shape[-1]

    @property
    def n_outputs(self):
        centre = self.structures[0].centre
        return len(centre) if centre.ndim > 1 else 1

    @property
    def centre(self):
        """What a task without rows has: the mean where that had rounds, else the centres of the
        structures by their weights, of the shape of a model."""
        if self.level is not None:
            return self._of_columns(self.level.coef.reshape(self.model_shape))
        if self.own_units:  # it is a direction without a length
            return np.zeros(self.model_shape)
        if self.about_centre:
            return next(s.centre for s in self.structures if s.name == "mean")
        return sum(s.weight * s.centre for s in self.structures)

    def without_rows(self, tasks):
        """The centre, and an intercept of 0 where no level and no mean of them was released."""
        coef, intercept = super().without_rows(tasks)
        coef[:] = self.add_init(self.centre, intercept[:1])[0]
        if self.level is not None:
            intercept[:] = self.add_init(self.centre, self.level.intercept)[1]
        return coef, intercept

    def models_of_relation(self, tasks):
        """v G of these tasks, (n_tasks, d + 1); None without a relation."""
        return None

    def _evidence(self, table, fit_intercept, related=None):
        """`Evidence` of differences, with the centres of a relation."""
        own_centres = None if related is None else np.ascontiguousarray(related[:, :-1])
        own = {"own_centres": own_centres, "own_units": self.own_units}
        return Evidence(table, self.n_tasks, fit_intercept=fit_intercept, **own)

    def _of_columns(self, W):
        """Models (..., d) in the units of the table."""
        return W if self.column_scale is None else W / self.column_scale

    def take_init(self, public_init):
        """Be about differences to a public initial model, and so is the mean."""
        self.init = public_init
        if public_init is not None and self.mean is not None:
            self.mean = self.mean + np.append(public_init.flat(), public_init.intercept)

    @property
    def shares(self):
        """Released shares of the structures, by name."""
        return {s.name: s.share for s in self.structures if s.share is not None}

    def attributes(self):
        attributes = {"shares_": self.shares, **super().attributes()}
        if self.level is not None:
            attributes |= level_attributes(self)
        if self.groups is not None:
            start = 0.0 if self.init is None else self.init.coef.reshape(1, -1)
            centres = self._of_columns(self.groups.centres) + start
            attributes["groups_"] = {"counts": self.groups.counts, "centres": centres}
            if self.groups.levels is not None:
                start = 0.0 if self.init is None else float(self.init.intercept[0])
                attributes["groups_"]["intercepts"] = self.groups.levels + start
        return attributes

    def declared(self):
        """See `skpmtl.exchange.wire`."""
        d = self.n_features
        if abs(sum(s.weight for s in self.structures) - 1.0) > 1e-6:
            raise ValueError("weights of its structures do not sum to 1")
        if self.about_centre and "mean" not in [s.name for s in self.structures]:
            raise ValueError("directions are about a mean that is not there")
        yield from self._declared_init()
        if self.column_scale is not None:
            yield "column_scale", self.column_scale, [(d,)]
            if not self.column_scale.min() > 0.0 or self.level is None or self.loss == "poisson":
                raise ValueError("its column_scale is not that of a course with levels")
        for s in self.structures:
            if (s.snr_centre is None) != (s.snr_spread is None):
                raise ValueError("snr_centre needs a snr_spread")
            yield "a centre", s.centre, [self.model_shape]
            yield "its moment", s.moment, [(d,), (d, d)]
            diagonal = np.diagonal(s.moment) if s.moment.ndim == 2 else s.moment
            if diagonal.min() < 0 or abs(diagonal.sum() - 1.0) > 1e-6:
                raise ValueError("its moment is not that of a prior of trace 1")
        yield from (("a release", S, [(d, d), (len(S),)]) for S in self.releases)
        if self.mean is not None:
            yield "the mean model", self.mean, [self._mean_shape]
        if self.level is not None:
            if self.n_outputs > 1 or self.level.spread is None:
                raise ValueError("its level is not that of one output, with a spread")
            yield from self.level.declared(d)
        if self.residuals is not None:
            if self.mean is None or self.n_outputs > 1:
                raise ValueError("distances from a mean model that is not there")
            yield from self.residuals.declared()
        if self.groups is not None:
            if self.n_outputs > 1:
                raise ValueError("its groups are not those of one output")
            yield from self.groups.declared(d)

    def personalize(self, table, *, fit_intercept, classes_posterior=False):
        """Models of the tasks of `table`, from their rows and this billboard alone. -> Personal

        It has the extra "membership_" where groups were asked for, (n_tasks, n_groups + 1).
        `classes_posterior`: whether models of classes come with their posterior.
        """
        table = tempered(table, fit_intercept)
        related = self.models_of_relation(table.tasks)
        of_columns = scaled(self._differences(table), self.column_scale)
        evidence = self._evidence(of_columns, fit_intercept, related)
        extras, parts, members = {}, (), None
        if self.groups is None:
            W, b, energies = evidence.models(self.structures)
        else:
            members = Members(evidence)
            W, b, energies, membership = members.models(self.structures, self.groups, self.level)
            extras["membership_"], parts = membership, self.groups.parts(membership, self.level)
        if self.level is not None:
            b = TaskLevels(evidence.table, related).intercepts(W, energies, self.level, parts)
        models = self.add_init(self._of_columns(W), b)
        if self.init is not None:
            bare = scaled(table, self.column_scale)
            bare = Evidence(bare, self.n_tasks, fit_intercept=fit_intercept)
            without_init = [alone(*self.model_shape)]
            odds = bare.total(without_init) - evidence.total(self.structures)
            if self.groups is not None:  # with which its rows are likelier
                odds = odds - gain(membership)
            W, b, _ = bare.models(without_init)
            models = averaged(models, (self._of_columns(W), b), odds)
        if classes_posterior:
            priors = None
            if members is not None:
                priors = members.class_priors(self.structures, self.groups, membership)
            extras |= self.class_posterior(evidence, *models, priors, parts)
        return Personal(*models, extras)

    def class_posterior(self, evidence, W, b, priors=None, parts=()):
        """Of models of classes, by attribute; see `skpmtl.local.laplace`.

        `priors`: None, those of the structures. `parts`: as of `TaskLevels.intercepts`.
        """
        W, b = self.subtract_init(W, b)
        W = W if self.column_scale is None else W * self.column_scale
        level = free_level if evidence.fit_intercept else None
        if self.level is not None:
            levels = TaskLevels(evidence.table)
            level = partial(levels.class_posterior, W, self.level, parts=parts)
        priors = evidence.class_priors(self.structures) if priors is None else priors
        attributes = class_posterior(evidence.table, W, b, priors, level)
        if self.column_scale is not None:
            by = np.append(1.0 / self.column_scale, 1.0)
            attributes["posterior_shift_"] *= by
            attributes["covariance_"] *= by[:, None] * by
        return attributes

    def posterior(self, table, *, fit_intercept, width=None):
        scale = self.column_scale
        related = self.models_of_relation(table.tasks)
        evidence = self._evidence(scaled(self._differences(table), scale), fit_intercept, related)
        table = scaled(table, scale)
        known = None if self.level is None else self.level.noise_prior
        sums = bare_sums = TaskSums(table, fit_intercept, known)
        if self.init is not None:
            start = self.init.joined(True)[0] * (1.0 if scale is None else np.append(scale, 1.0))
            sums = sums.less(start[:-1], start[-1])
        parts = ()
        if self.groups is None:
            moments = evidence.moments(self.structures, sums)
        else:
            members = Members(evidence)
            membership = members.models(self.structures, self.groups, self.level)[-1]
            moments = members.moments(self.structures, self.groups, sums, self.level)
            parts = self.groups.parts(membership, self.level)
        if self.level is None:
            noise = own_noise(moments, bare_sums, width)
            moments = free_intercept(moments, sums)
        else:
            levels = TaskLevels(evidence.table, related)
            moments, noise = levels.posterior(moments, sums, self.level, width, parts)
        if self.init is None:
            return posterior(unscaled(moments, scale), *noise)
        bare = Evidence(table, self.n_tasks, fit_intercept=fit_intercept)
        without_init = [alone(*self.model_shape)]
        odds = bare.total(without_init) - evidence.total(self.structures)
        if self.groups is not None:
            odds = odds - gain(membership)
        p = expit(np.nan_to_num(odds))
        other = free_intercept(bare.moments(without_init, bare_sums), bare_sums)
        noise = mixed_noise(p, own_noise(other, bare_sums, width), noise)
        moments = mixed_moments([shifted(moments, start), other], np.stack([1.0 - p, p]))
        return posterior(unscaled(moments, scale), *noise)


def alone(*model_shape):
    """The structure of a task that shares nothing."""
    return Structure("alone", 1.0, np.zeros(model_shape), even_root(model_shape[-1]) ** 2)
