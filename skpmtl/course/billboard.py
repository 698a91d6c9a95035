"""What the loop publishes: the hierarchical model, and how a task goes on with it."""

import math
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import Annotated

import numpy as np

from .._runtime.constraints import Interval, StrOptions
from ..exchange.billboard import OfModels, Personal
from ..tables.factors import BELOW, Factor, FactorEffects, RowFactor
from ..tables.public_init import PublicInit
from ..tables.relation import Relation
from ..tables.table import differences
from ..task import priors
from ..task.mixture import PROBIT, against_others
from . import spreads, uncertainty
from .personal import HULL, TaskModels, bounded
from .profiles import ZETA
from .scores import ScoreModels

OCTAVE = 40  # bins of octaves run from 2^-40 to 2^40: from an atom in metres to a galaxy
LEAST_SCALE = 1e-100  # of a column that a model can be divided by
_ANY_DIRECTION = 0.8  # part of the directions from which on a shape prefers none
_OCTAVE, _FAR_OCTAVES = 1.0, 3.0  # noise of scales that costs models, and scales of raw columns
OCTAVES = 8.0  # standard deviation in log2 of scales of columns before any release


def centre_shape(d, n_classes):
    """Of level and slopes: those of one score, or of every class of three or more."""
    return (n_classes, d + 1) if n_classes > 2 else (d + 1,)


def sizes_of(d, loss="squared", n_classes=0):
    """Sizes that dimensions of arrays are named by."""
    law, centre = priors.LAWS["classes" if n_classes else loss], centre_shape(d, n_classes)
    found = {"d": d, **{f"d + {k}": d + k for k in (1, 2, 3)}}
    found |= {"centre": centre, "outputs": centre[:-1]}
    return found | {"kappa": len(law.kappa), "sigma": len(law.sigma)}


@dataclass
class HierarchicalBillboard(OfModels):
    """The released model; see `skpmtl.task.posterior` for its equation."""

    n_tasks: int
    n_present: float  # tasks with rows, as released
    # (c, a): level at x = 0 and slopes that tasks share, in units and scaled columns
    centre: Annotated[np.ndarray, "centre"]
    # The window of levels: centre and half-width, in units of y; None where none was found
    middle: float | None = None
    width: float | None = None
    unit: float | None = None  # released unit of y; None: each task has its own
    column_scale: Annotated[np.ndarray | None, "d"] = None
    column_centre: Annotated[np.ndarray | None, "d"] = None
    # Of log2 of these scales: of all columns together, and of a single one
    scale_variance: Annotated[np.ndarray | None, 2] = None
    # Root of the shape of slopes, which has trace one; zeros where they are equal
    root: Annotated[np.ndarray | None, "d", "d"] = None
    # Log weights of the grids of `skpmtl.task.priors`
    log_kappa: Annotated[np.ndarray | None, "kappa"] = None
    log_sigma: Annotated[np.ndarray | None, "sigma"] = None
    # Log weights of sigma and tau in the posterior of a task, where it was learnt how many tasks
    # are unlike the others; None: those of all
    own_sigma: Annotated[np.ndarray | None, "sigma"] = None
    own_tau: Annotated[np.ndarray | None, "tau"] = None
    log_tau: Annotated[np.ndarray | None, "tau"] = None
    # Share of rows with far more noise than the others, see `skpmtl.task.far`, where it was learnt
    far: float = 0.0
    # Octaves by which the grids of kappa, sigma, tau and the ratio are moved: without a budget to
    # their estimates, where there are factors
    moved: Annotated[np.ndarray | None, 4] = None
    log_components: Annotated[np.ndarray | None, 3] = None  # of "alone", "shape" and "mean"
    target_range: np.ndarray | None = None  # (2,), public range of scores, which bounds predictions
    init: PublicInit | None = None  # public initial model, to which everything else is a difference
    # Without, there are no levels: a task's scores are those of its slopes, and its mean row is a
    # row as all others
    fit_intercept: bool = True
    # Of real targets; "huber" is squared loss of rows that a task has weighed
    loss: str = "squared"
    # 0 for real targets. Of three classes or more the centre is (n_classes, d + 1).
    n_classes: int = 0
    # Whether levels of classes are the log-odds of mean shares, which were released; otherwise they
    # are the means of levels
    of_shares: bool = False
    # Public covariates of tasks: task k lies about the centre and v_k `related`, for its public row
    # v_k
    relation: Relation | None = None
    related: Annotated[np.ndarray | None, "rank", "d + 1"] = None
    factors: list = field(default_factory=list)  # of factors above and across tasks
    below: str | int | None = None  # name of the factor below the tasks, whose levels rows have
    # Log weights of `skpmtl.task.priors.RATIO`, the variance of effects of its levels over that of
    # a row; without such a factor of zero alone
    log_ratio: Annotated[np.ndarray | None, "ratio"] = None
    # Slopes that groups of tasks are about, in units and scaled columns
    groups: Annotated[np.ndarray | None, "groups", "d"] = None
    # Log weights of the groups in the list of priors, and released numbers of their tasks
    log_groups: Annotated[np.ndarray | None, "groups"] = None
    group_counts: Annotated[np.ndarray | None, "groups"] = None
    # Log weights of the grid of kappa, for slopes about the centre of their group
    group_kappa: Annotated[np.ndarray | None, "kappa"] = None
    # Common slopes and, last, the intercept before they are shrunk, in units of the input, less the
    # public initial model; covariance of their errors, and degrees of freedom of their variances
    effects: Annotated[np.ndarray | None, "d + 1"] = None
    effect_covariance: Annotated[np.ndarray | None, "d + 1", "d + 1"] = None
    effect_dof: Annotated[np.ndarray | None, "d + 1"] = None
    # Covariance, between tasks, of slopes, intercept and, last, level at the centre of columns, in
    # units of the input, where there are effects; standard deviations of errors of its diagonal
    spread: Annotated[np.ndarray | None, "d + 2", "d + 2"] = None
    spread_doubt: Annotated[np.ndarray | None, "d + 2"] = None
    # Of `skpmtl.course.profiles`, in units: of levels, the factor below, those of `factors`, and
    # rows; without a budget, where there are factors and a pooled model
    profiles: Annotated[np.ndarray | None, "spreads", len(ZETA)] = None
    # Variance of a row about the model of its task, in units of the input, and the standard
    # deviation of its error, where it was measured
    row_variance: Annotated[np.ndarray | None, 2] = None
    # Standard deviation that the noise of steps adds to the level, as if no step took back what the
    # noise of earlier ones did, and to a slope of the centre, in units; where levels are of shares,
    # that of their log-odds given the noise of these
    centre_noise: Annotated[np.ndarray | None, 2] = None
    # Posterior covariance of the centre given spreads, of real targets without a budget: with one,
    # votes are about a centre with noise, which spreads make up for
    centre_doubt: Annotated[np.ndarray | None, "d + 1", "d + 1"] = None
    # Standard deviation, in octaves, of the noise of a column's scale where scales are first asked;
    # that of the prior before
    scale_noise: float = OCTAVES
    releases: list = field(default_factory=list)
    report: object = None

    settings = ("loss", "fit_intercept")
    constraints = {
        "n_present": [Interval(Real, 0, None, closed="left")],
        "width": [Interval(Real, 0, None, closed="neither"), None],
        "unit": [Interval(Real, 0, None, closed="neither"), None],
        "loss": [StrOptions({"squared", "poisson", "huber"})],
        "n_classes": [Interval(Integral, 0, None, closed="left")],
        "scale_noise": [Interval(Real, 0, None, closed="left")],
        "far": [Interval(Real, 0, 1, closed="left")],
    }

    def __post_init__(self):
        d = self.n_features
        defaults = {
            "moved": lambda: np.zeros(4),
            "column_scale": lambda: np.ones(d),
            "column_centre": lambda: np.zeros(d),
            "scale_variance": lambda: np.array([OCTAVES**2, 0.0]),
            "root": lambda: self.flat,
            "log_kappa": lambda: self.law.log_kappa,
            "log_sigma": lambda: self.law.log_sigma,
            "log_tau": lambda: self.law.before_tau(self.tau),
            "log_components": lambda: np.log([0.5, 1e-9, 0.5]),
            "log_ratio": lambda: np.zeros(1) if self.below is None else priors.BEFORE_RATIO,
            "centre_noise": lambda: np.zeros(2),
        }
        for name, value in defaults.items():
            if getattr(self, name) is None:
                setattr(self, name, value())

    @property
    def n_features(self):
        return self.centre.shape[-1] - 1

    @property
    def n_outputs(self):
        return self.n_classes if self.n_classes > 2 else 1

    @property
    def law(self):
        """Grids and priors of the scales before any vote."""
        return priors.LAWS["classes" if self.n_classes else self.loss]

    @property
    def flat(self):
        """Root of the shape without a preferred direction."""
        return np.eye(self.n_features) / np.sqrt(self.n_features)

    @property
    def slopes_are_equal(self):
        """Whether all tasks have the slopes of the centre, and a task learns its level alone."""
        return not self.root.any()

    @property
    def has_place(self):
        """Whether levels are pooled; otherwise every task has its own, in its own unit."""
        return self.width is not None

    @property
    def kappa(self):
        """Grid of variances of slopes."""
        return self.law.kappa * 2.0 ** self.moved[0]

    @property
    def sigma(self):
        """Grid of spreads of rows."""
        return self.law.sigma * 2.0 ** self.moved[1]

    @property
    def tau(self):
        """Grid of spreads of levels."""
        if not self.fit_intercept:
            return np.zeros(1)
        return self.law.tau(self.width, self.unit) * 2.0 ** self.moved[2]

    @property
    def ratio(self):
        """Grid of variances of effects of a factor below tasks, over that of a row."""
        return priors.RATIO * 2.0 ** self.moved[3] if self.below is not None else np.zeros(1)

    @property
    def has_one_mean(self):
        return self.relation is None and self.above is None

    @property
    def above(self):
        """`FactorEffects` of the factor above tasks, or None."""
        return next((one for one in self.factors if isinstance(one.factor, Factor)), None)

    @property
    def across(self):
        """`FactorEffects` of the factor across tasks, or None."""
        return next((one for one in self.factors if isinstance(one.factor, RowFactor)), None)

    def with_effects(self, factor, /, **values):
        """A copy with other values of the `FactorEffects` of this factor."""
        every = [replace(e, **values) if e.factor is factor else e for e in self.factors]
        return replace(self, factors=every)

    def effects_of(self, tasks):
        """What the levels of tasks are moved by, in units, by the factor above them: (n,), or 0."""
        return 0.0 if self.above is None else self.above.of(tasks)

    def row_effects(self, row_levels):
        """What the targets of rows are moved by, in units of y, by the factor across tasks."""
        if self.across is None or self.unit is None:  # without a unit nothing is asked about it
            return 0.0
        return self.unit * self.across.of(row_levels)

    def row_doubt(self, row_levels):
        """Variance of `row_effects`, in units of y: (n,); that of omega for a new level, or 0."""
        if self.across is None or self.across.spread is None:
            return 0.0
        return (self.unit * self.across.doubt_of(row_levels)) ** 2

    def level_doubt(self, tasks):
        """Variance of what a factor adds to the levels of tasks without rows, in units of y: (n,).

        That of omega for a level of the factor that no task of the fit has.
        """
        if self.above is None or self.above.spread is None or not len(tasks):
            return np.zeros(len(tasks))
        return (self.unit * self.above.doubt_of(tasks)) ** 2

    def scales(self, log_kappa=None):
        """Priors of the scales; None: of kappa that before any vote."""
        law = self.law
        log_kappa = law.log_kappa if log_kappa is None else log_kappa
        grids = self.tau, self.kappa, self.sigma
        return priors.Scales(log_kappa, self.log_sigma, self.log_tau, *grids, self.log_ratio)

    def components(self):
        """The list of priors that a task averages over. -> list of `priors.Component`"""
        zero, own = np.zeros(self.model_shape), self.scales()
        alone, shape, mean = (float(log) for log in self.log_components)
        if np.array_equal(self.root, self.flat):  # both are one prior
            alone, shape = float(np.logaddexp(alone, shape)), priors.NEVER
        common = self.scales(self.log_kappa)
        found = [
            priors.Component("alone", zero, self.flat, alone, own),
            priors.Component("shape", zero, self.root, shape, own),
            priors.Component("mean", self.centre[..., 1:], self.root, mean, common),
        ]
        found = [part for part in found if part.log_weight > priors.NEVER]
        if self.groups is None:
            return found
        near = self.scales(self.group_kappa)
        rest = math.log1p(-math.exp(priors.log_sum_of(self.log_groups)))
        for part in found:
            part.log_weight += rest
        return found + [
            priors.Component("group", slopes, self.flat, float(log), near)
            for slopes, log in zip(self.groups, self.log_groups, strict=True)
        ]

    def all_components(self):
        """Also those of tasks whose spreads are all larger, see `skpmtl.task.priors.LARGER`."""
        found = self.components()
        if self.own_sigma is not None:
            for part in found:
                part.scales = replace(part.scales, log_sigma=self.own_sigma, log_tau=self.own_tau)
        if not self.has_place or self.law.of_scores or found[0].name != "alone":
            return found
        for part in found:
            part.log_weight += math.log1p(-(priors.ODD**2))
        slopes, scales = self.centre[..., 1:], self.scales(self.log_kappa)
        log_weight = math.log(priors.ODD**2 / len(priors.LARGER))
        larger = [
            priors.Component("larger", 2.0**k * slopes, self.root, log_weight, scales.larger(k))
            for k in priors.LARGER
        ]
        return larger + found

    def parameters(self):
        """Parameters of the estimator; those that some have not only where they were given."""
        factors = {one.factor.name: one.factor.place for one in self.factors}
        if self.below is not None:
            factors[self.below] = BELOW
        own = {"init": self.init, "relation": self.relation, "factors": factors or None}
        given = {name: value for name, value in own.items() if value is not None}
        return {**super().parameters(), **given}

    def declared(self):
        known = vars(self)
        if self.has_place and None in (self.middle, self.unit):
            raise ValueError("its window of levels has no middle or no unit")
        together = ("relation", "related"), ("spread", "spread_doubt")
        together += (("effects", "effect_covariance", "effect_dof"),)
        together += (("groups", "log_groups", "group_counts", "group_kappa"),)
        for names in together:
            if len({known[name] is None for name in names}) > 1:
                raise ValueError(f"it has some of {', '.join(names)}, and not all")
        if self.relation is not None:
            yield from self.relation.declared()
        sizes = sizes_of(self.n_features, self.loss, self.n_classes) | {"tau": len(self.tau)}
        sizes["ratio"] = 1 if self.below is None else len(priors.RATIO)
        sizes["rank"] = 0 if self.relation is None else self.relation.rank
        sizes["groups"] = 0 if self.groups is None else len(self.groups)
        sizes["spreads"] = 2 + (self.below is not None) + len(self.factors)
        yield from self.arrays(sizes)
        yield from self._declared_init()
        if not all(isinstance(one, FactorEffects) for one in self.factors):
            raise ValueError("its list of factors has something else")
        if len({type(one.factor) for one in self.factors}) < len(self.factors):
            raise ValueError("it has several factors in one place")
        for one in self.factors:
            yield from one.declared()
        if not self.slopes_are_equal and abs(np.sum(self.root**2) - 1.0) > 1e-6:
            raise ValueError("its shape of slopes does not have trace one")
        if self.groups is not None and priors.log_sum_of(self.log_groups) >= 0.0:
            raise ValueError("its groups have all of the weight")
        if not (self.column_scale > LEAST_SCALE).all():
            raise ValueError("a scale of its columns is not positive")
        squares = [np.diag(x) for x in (self.effect_covariance, self.spread) if x is not None]
        sizes = [x for x in (self.spread_doubt, self.profiles) if x is not None]
        if not all((x >= 0.0).all() for x in squares + sizes):
            raise ValueError("a variance or a standard deviation is negative")
        positive = [x for x in (self.effect_dof, self.row_variance) if x is not None]
        if not all((x > 0.0).all() for x in positive):
            raise ValueError("a variance of rows or degrees of freedom are not positive")

    @property
    def mean(self):
        """The model of a task without rows, (d + 1,), the intercept last; None where no place of
        levels was found and none is public.

        Scales of columns are at the root of their posterior mean square, as those of tasks with
        rows are: a scale that is mostly noise makes no bold slope.
        """
        if not self.fit_intercept:
            if self.unit is None:
                return None
        elif not self.has_place:
            if self.target_range is None or self.init is not None:
                return None
            return np.append(np.zeros(self.n_features), self.target_range.mean())
        slopes, level = self.in_units(self.centre, self.middle if self.has_place else 0.0)
        models = self.add_init(slopes, level + self.mean_over_median)
        return np.concatenate([np.ravel(part) for part in models])

    @property
    def mean_over_median(self):
        """What the logarithm of the mean rate of counts is more than the level; else 0."""
        if self.loss != "poisson" or not self.has_place:
            return 0.0
        # Levels are taken to spread by the noise of the centre, at least.
        return 0.5 * max(self.level_spread**2 - self.centre_noise[0] ** 2, 0.0)

    @property
    def typical_level(self):
        """Of scores at the centres of columns, in units: in half of the tasks it is less."""
        level, slopes = self.centre[..., 0], self.centre[..., 1:]
        if not self.of_shares:
            return level
        variance = self.middle_tau**2 + self.middle_kappa + np.sum(slopes**2) / self.n_outputs
        return level * np.sqrt(1.0 + PROBIT * against_others(self.n_outputs) * variance)

    @property
    def level_spread(self):
        """Typical spread of levels at the centres of columns, in units of y: measured with
        `spread`, otherwise that of the votes, without the part that stays flat for tasks unlike the
        others."""
        if self.spread is not None:
            return float(np.sqrt(self.spread[-1, -1]))
        return self.unit * self.middle_tau

    @property
    def factors_of_rows(self):
        """Names of the factors that rows have levels of."""
        across = None if self.across is None else self.across.factor.name
        return [name for name in (self.below, across) if name is not None]

    @property
    def asked_below(self):
        """Whether there is a factor below tasks, and a vote on the spread of its effects was."""
        return self.below is not None and not np.array_equal(self.log_ratio, priors.BEFORE_RATIO)

    @property
    def middle_ratio(self):
        """Typical variance of effects of a factor below tasks, over that of a row; 0 without."""
        return 0.0 if self.below is None else priors.middle_ratio(self.log_ratio, self.ratio)

    @property
    def row_spread(self):
        """Typical standard deviation of a row about the model of its task, in units."""
        if self.row_variance is not None:
            return math.sqrt(self.row_variance[0]) / self.unit
        return self.middle_sigma

    @property
    def middle_sigma(self):
        """The same under the vote."""
        return priors.middle(self.log_sigma, self.law.log_sigma, self.sigma)

    @property
    def middle_kappa(self):
        """Variance of slopes about the centre under the vote."""
        return priors.middle(self.log_kappa, self.law.log_kappa, self.kappa)

    @property
    def spread_below(self):
        """Standard deviation of effects of the factor below tasks, in units of y; None where
        nothing was released of it, or no unit."""
        if self.unit is None or not self.asked_below:
            return None
        of_row = 1.0 if self.law.of_scores else self.unit * self.middle_sigma
        return of_row * math.sqrt(self.middle_ratio)

    @property
    def middle_tau(self):
        """Spread of levels under the vote, in units."""
        return priors.middle(self.log_tau, self.law.before_tau(self.tau), self.tau)

    @property
    def mean_is_level(self):
        """Whether slopes that tasks share are below their noise, and the mean model a level."""
        slopes = np.exp(self.log_components[2]) * self.centre[..., 1:]
        return bool(np.sum(slopes**2) <= slopes.size * self.centre_noise[1] ** 2)

    @property
    def shares_no_slopes(self):
        """Whether slopes have nothing released in common: no mean, shape, group or public model."""
        return self.mean_is_level and not self.has_shape and self.groups is self.init is None

    @property
    def directions(self):
        """How many directions slopes of tasks take: (tr S)^2 / tr S^2 of their shape S."""
        shape = self.root @ self.root.T
        return float(np.trace(shape) ** 2 / np.sum(shape**2))

    @property
    def has_shape(self):
        """Whether slopes prefer some directions, and most tasks follow these."""
        few = not self.slopes_are_equal and self.directions <= _ANY_DIRECTION * self.n_features
        return few and self.n_features > 1 and int(np.argmax(self.log_components)) > 0

    @property
    def loses_scales(self):
        """Whether columns are far from scale one, and noise moves their scales by octaves."""
        far = np.sqrt(np.mean(np.log2(self.column_scale) ** 2)) > _FAR_OCTAVES
        return bool(far and self.scale_noise > _OCTAVE)

    @property
    def unit_is_at_an_end(self):
        """Whether the unit of y may be beyond those that are looked for."""
        ends = 2.0**-OCTAVE, 2.0 ** (OCTAVE - 1)
        return bool(self.unit is not None and not ends[0] < self.unit < ends[1])

    def in_units(self, centre, middle=0.0):
        """Slopes and levels at x = 0 of models (..., d + 1), in units of the input; 0 without."""
        if self.unit is None:
            return np.zeros(centre[..., 1:].shape), np.zeros(centre.shape[:-1])
        slopes = np.exp(self.log_components[2]) * centre[..., 1:]
        slopes = slopes * self.unit / self.safe_scale
        if not self.has_place:
            return slopes, np.zeros(slopes.shape[:-1])
        # At the mean row of the tasks, where the pooled level is known best.
        return slopes, middle + self.unit * centre[..., 0] - slopes @ self.column_centre

    def with_covariates(self, given):
        """A copy that knows covariates of further tasks, and their levels of a factor."""
        board, relation = self, self.relation
        if self.above is not None:
            factor = self.above.factor
            board = self.with_effects(factor, factor=factor.with_tasks(given))
        if relation is not None:
            relation = relation.with_tasks(given)
        return replace(board, relation=relation)

    def without_rows(self, tasks):
        """The mean model, or that of what is public of each task."""
        coef, intercept = super().without_rows(tasks)
        if self.has_one_mean or self.mean is None:
            return coef, intercept
        coef, intercept = np.split(np.tile(self.mean, (len(tasks), 1)), [-1], axis=1)
        intercept = intercept[:, 0] + (self.unit or 0.0) * self.effects_of(tasks)
        if self.relation is None:
            return coef, intercept
        slopes, level = self.in_units(self.relation.centres(tasks, self.related))
        return coef + slopes, intercept + level

    def attributes(self):
        """The mean model, and the level and its spread in units of y."""
        found = super().attributes()
        if self.relation is not None and self.mean is not None:
            slopes, level = self.in_units(self.relation.transform @ self.related)
            mean = found.pop("mean_coef_"), found.pop("mean_intercept_")
            for part, own in zip((slopes, level), self.subtract_init(*mean), strict=True):
                part[0] += own
            found |= {"relation_coef_": slopes, "relation_intercept_": level}
        factors: dict = {
            one.factor.name: {
                "levels": np.array(one.factor.levels),
                "effects": self.unit * one.effects,
                "spread": self.unit * one.spread,
            }
            for one in self.factors
            if one.spread is not None
        }
        if self.spread_below is not None:
            factors[self.below] = {"spread": self.spread_below}
        if factors:
            found["factors_"] = factors
        if self.groups is not None and self.unit is not None:
            slopes = self.groups * self.unit / self.safe_scale
            level = self.middle + self.unit * self.centre[0] if self.has_place else 0.0
            slopes, level = self.add_init(slopes, level - slopes @ self.column_centre)
            counts = {"counts": self.group_counts}
            found["groups_"] = {**counts, "centres": slopes, "intercepts": level}
        if self.effects is not None:
            coef, level = self.add_init(self.effects[:-1], self.effects[-1:])
            found["effect_coef_"], found["effect_intercept_"] = coef, float(level[0])
            untold = np.diag(self.effect_covariance) == 0.0
            covariance = np.where(untold | untold[:, None], np.nan, self.effect_covariance)
            found["effect_covariance_"] = covariance
            found["effect_std_"] = np.sqrt(np.diag(covariance)[:-1])
            found["effect_dof_"] = self.effect_dof
        if self.has_place:
            level = self.middle + self.unit * self.typical_level
            found["level_"] = level if self.n_outputs > 1 else float(level)
            found["level_spread_"] = self.level_spread
        return found

    def variance_components(self, coverage):
        """As of `skpmtl.course.spreads`; None where levels are not pooled, or of several scores."""
        known = self.has_place and self.n_outputs == 1
        return spreads.variance_components(self, coverage) if known else None

    @property
    def safe_scale(self):
        """Released scales of columns at the root of their posterior mean square."""
        return self.column_scale * 2.0 ** (math.log(2.0) * self.scale_variance.sum())

    def near_rows(self, X):
        """Rows of tasks without rows as their mean rows count in a level, and limits of scores.

        Scales and centres that were released without noise are believed at all rows.
        """
        if self.scale_variance.any():
            scale = self.safe_scale
            X = self.column_centre + scale * bounded((X - self.column_centre) / scale)
        if not self.has_place:
            return X, (-np.inf, np.inf) if self.target_range is None else self.target_range
        half = HULL**2 * max(self.width, self.unit)
        return X, (self.middle - half, self.middle + half)

    def personalize(self, table, *, posterior=False):
        more = {"posterior": True} if posterior else {}
        return Personal(*models_of(table, self.init).personal(self, **more))

    @property
    def residuals(self):
        """Distances of targets from the mean model; None where no place of levels was found."""
        known = self.has_place and not self.law.of_scores
        return uncertainty.Distances(self) if known else None

    def posterior(self, table):
        return uncertainty.posterior(models_of(table, self.init), self)


def models_of(table, public_init=None):
    """`TaskModels` of real targets, `ScoreModels` of classes and counts.

    `public_init` is the public initial model, to which all models are differences.
    """
    kind = ScoreModels if table.has_log_loss else TaskModels
    return kind(differences(table, public_init))
