"""Losses of real targets and of two classes: what is asked of one more.

The loss of a row is minus its log-likelihood at the score s = x'w + b, up to a constant. Solvers
of all tasks have their own loops (`skpmtl._kernels.passes`, `skpmtl.solvers.losses`).
"""

from dataclasses import replace

import numpy as np
from scipy.special import expit
from sklearn.metrics import d2_tweedie_score, r2_score

from .table import FAR, floats
from .targets import public_range, refuse_target
from .weights import in_rows, without_weightless

__all__ = ["DATAFITS", "LOGISTIC", "POISSON", "Datafit", "real_target"]

_LEAST = 1e-6  # curvature of a row in steps of Newton's method
_FARTHEST = 1e6  # scores of counts from which losses are constant
_WILD = 20.0  # distance of a score from the logarithm of its count at which curvatures say nothing
NO_EVENTS = 0.5  # events of a task that has none: its level stays finite


def real_target(table):
    """Targets of a table as finite float64, or a ValueError that names the first bad one."""
    y, numbers = np.asarray(table.y), None
    if y.dtype.kind not in "mMc":  # spans and points of time would become counts
        try:
            numbers = floats(y)
        except (TypeError, ValueError):
            pass
    if numbers is None:  # not inside of except: the first error shows a value
        raise ValueError(
            "Input y has values that are not numbers, such as text or dates; convert them, for "
            "example with .astype(float). Classes are for the estimator that ends in Classifier."
        )
    y = numbers
    bad = np.flatnonzero(~np.isfinite(y))
    if len(bad):
        problem = "NaN" if np.isnan(y[bad[0]]) else "infinity (inf)"
        refuse_target(table, bad, problem)
    return y


class Datafit:
    """A loss of rows.

    A subclass defines `value` and `derivatives`; the other methods where scores are not what is
    predicted. `reach` is how far the score of a row moves in a step of Newton's method at most,
    `has_exposures` whether weights are exposures, which nothing bounds.
    """

    reach, has_exposures = 4.0, False

    def targets(self, table, bounded=False):
        """Targets of a table as finite float64.

        Raises ValueError for those that the loss does not take; it names the first row. `bounded`,
        under a budget, where an error would show what the rows of one task are: the nearest ones
        that it takes stand in for them.
        """
        return real_target(table)

    def weigh(self, table):
        """A table whose weights, which are not None, mean what the loss makes of them."""
        return in_rows(table)

    def value(self, y, score):
        """Losses of rows; y and score may be of several dimensions."""
        raise NotImplementedError

    def derivatives(self, y, score):
        """First and second derivatives of the losses by the score."""
        raise NotImplementedError

    def mean(self, score):
        """Expected targets."""
        return score

    def range_of_scores(self, target_range):
        """Lowest and highest score, for the public range of targets.

        Raises ValueError unless that is one of expected targets.
        """
        return public_range(target_range)

    def score(self, y, predicted, sample_weight=None):
        """How good predictions are: at most 1, and 0 for those of the mean target."""
        return r2_score(y, predicted, sample_weight=sample_weight)

    def working(self, y, score):
        """Weights and steps of the least squares that a step of Newton's method solves."""
        slope, curvature = self.derivatives(y, score)
        weight = np.maximum(curvature, _LEAST)
        return weight, -slope / weight


class Squared(Datafit):
    """Half of the squared error."""

    def value(self, y, score):
        return 0.5 * (y - score) ** 2

    def derivatives(self, y, score):
        return score - y, np.ones_like(score)


class Logistic(Datafit):
    """log(1 + exp(-s)) of the label; y as `skpmtl.tables.targets.class_targets` makes it."""

    def value(self, y, score):
        side, share = sides(y)
        t = side * score
        return np.logaddexp(0.0, -t) + share * t

    def derivatives(self, y, score):
        side, share = sides(y)
        t = side * score
        other = expit(-t)
        return -side * (other - share), other * expit(t)


class Poisson(Datafit):
    """exp(s) - y s - (y - y log y), half of the deviance; s is the logarithm of the mean.

    Rates y with exposures as weights e, as `PoissonRegressor` has them, are counts e y whose score
    has log e more.
    """

    has_exposures = True

    def targets(self, table, bounded=False):
        y = super().targets(table)
        if bounded:
            return np.maximum(y, 0.0)
        bad = np.flatnonzero(y < 0)
        if len(bad):
            remedy = 'loss="poisson" is for counts, or rates: drop them, or take loss="squared".'
            refuse_target(table, bad, "negative numbers", remedy)
        return y

    def weigh(self, table):
        table = without_weightless(table)
        weights = table.weights
        masses = np.add.reduceat(weights, table.offsets[:-1])
        base = np.log(weights)[:, None]
        return replace(table, y=weights * table.y, base=base, weights=None, masses=masses)

    def value(self, y, score):
        near = np.clip(score, -FAR, FAR)
        with np.errstate(all="ignore"):
            saturated = np.where(y > 0, y - y * np.log(y), 0.0)
        mean = np.exp(near)
        beyond = np.clip(score, -_FARTHEST, _FARTHEST) - near
        return mean - y * near - saturated + (mean - y) * beyond

    def derivatives(self, y, score):
        mean = np.exp(np.clip(score, -FAR, FAR))
        return mean - y, mean

    def working(self, y, score):
        """As of `Datafit`; secants stand in for curvatures of scores that are far off.

        A step of Newton's method would take such a score down by 1, or up without bound.
        """
        weight, step = super().working(y, score)
        if np.abs(score).max(initial=0.0) > _WILD:
            way = np.log(np.maximum(y, NO_EVENTS)) - score
            slope = self.derivatives(y, score)[0]
            wild = (np.abs(way) > _WILD) & (slope * way < 0)
            weight = np.where(wild, np.maximum(-slope / np.where(wild, way, 1.0), _LEAST), weight)
            step = -slope / weight
        return weight, step

    def mean(self, score):
        return np.exp(np.minimum(score, 700.0))  # does not overflow

    def range_of_scores(self, target_range):
        low, high = super().range_of_scores(target_range)
        if not low > 0:
            raise ValueError(
                f'target_range={target_range!r} with loss="poisson" is the range of expected '
                "counts (or rates), which are positive: pass a small number as the lower end."
            )
        return float(np.log(low)), float(np.log(high))

    def score(self, y, predicted, sample_weight=None):
        if (y == y[:1]).all():  # as of real targets: counts that are all alike have no deviance
            return super().score(y, predicted, sample_weight)
        predicted = np.maximum(predicted, np.finfo(float).tiny)
        return d2_tweedie_score(y, predicted, sample_weight=sample_weight, power=1)


def sides(label):
    """-1 or 1, and what the other class has of a row (`skpmtl.tables.targets.class_targets`)."""
    return np.sign(label), 0.5 * (1.0 - np.abs(label))


class Huber(Squared):
    """Squared error of rows that weigh less the farther they are, see `skpmtl.solvers.robust`."""


LOGISTIC, POISSON = Logistic(), Poisson()
DATAFITS = {"squared": Squared(), "poisson": POISSON, "huber": Huber()}


def events(table):
    """Sums of the counts of all tasks, (n_tasks,), `NO_EVENTS` at least."""
    return np.maximum(np.add.reduceat(table.y, table.offsets[:-1]), NO_EVENTS)


def with_events(table):
    """A table of counts without tasks that have none: their rows share `NO_EVENTS`.

    Their intercepts, which have no penalty, would not be finite.
    """
    some = np.maximum.reduceat(table.y, table.offsets[:-1]) > 0
    if some.all():
        return table
    return replace(table, y=np.where(np.repeat(some, table.sizes), table.y, _shared(table)))


def _shared(table):
    """`NO_EVENTS` of every task divided among its rows by their exposures."""
    base = np.zeros(table.n_rows) if table.base is None else table.base[:, 0]
    top = np.maximum.reduceat(base, table.offsets[:-1])
    exposure = np.exp(base - np.repeat(top, table.sizes))
    total = np.add.reduceat(exposure, table.offsets[:-1])
    return NO_EVENTS * exposure / np.repeat(total, table.sizes)


def levels_of(table, score=0.0):
    """Intercept of every task of counts, given the other scores of its rows, (n_tasks,)."""
    base = score + (0.0 if table.base is None else table.base[:, 0]) + np.zeros(table.n_rows)
    top = np.maximum.reduceat(base, table.offsets[:-1])
    mass = np.add.reduceat(np.exp(base - np.repeat(top, table.sizes)), table.offsets[:-1])
    return np.log(events(table) / mass) - top
