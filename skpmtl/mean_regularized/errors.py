"""Standard errors of shared models: the noise left in them, and differences between tasks.

Rounds lead to a centre at which clipped updates cancel, sum_k b_k psi(D_k) = 0 up to noise, where
D_k is the update of task k there and psi clips it to the last bound C. Most updates are longer than
C, so that the centre is a spatial median of the models of the tasks. By the sandwich of an
M-estimator a number j of it has the variance

    E psi_j^2 / (J_j E dpsi_j / dD_j)^2 sum_k b_k^2  +  noise,

with J_j the part of a deviation that an update shows, since the penalty draws it to the centre. At
the end every task sends the bin of log2 abs(D_k), the squares of D_k / abs(D_k), and J: one vector
with noise. The expectations are those of D = R N(0, diag(sigma^2)), R log-normal, which agrees with
the released shares of the squares and with centre and spread of the lengths. With n rounds the
noise is

    sum_t sd_t^2 prod_(u > t) (1 - .85 J_j E dpsi_j / dD_j at C_u)^2,

where .85 allows for correlated columns: in most of their directions an update shows less of a
deviation than the diagonal. The way that the product over all rounds leaves is an error, too. What
is read of the lengths is uncertain itself: intervals are those of a t distribution, whose degrees
of freedom are 2 over the variance of the logarithm of the squared error (Satterthwaite).
"""

import math
from dataclasses import dataclass, replace
from numbers import Real

import numpy as np
from scipy.special import logsumexp, ndtr, polygamma, stdtrit

from .._runtime.compat import Interval
from .._runtime.public import Public
from ..exchange.protocol import QuerySpec
from ..local.centred import dense_copy
from ..local.grams import task_inverses
from ..local.softmax import softmax
from ..privacy.mechanisms import VectorGaussian
from ..rounds.plan import BINS, bins
from ..tables.datafits import DATAFITS, LOGISTIC
from ..tables.table import common_scores

_SHARE = 0.05  # of mu^2; twice that where noise of a bin is above this fraction of the tasks
_NOISY = 0.125
LEAST_ROUNDS = 10  # in fewer a centre does not arrive
WORDS = "sum of bins of lengths, squared directions and parts of deviations"
# Spreads of log2 of the lengths, in addition to those of Gaussian vectors, that are considered.
_SPREADS = np.array([0.0, 0.4, 0.8, 1.6])
_LEFT = 0.9  # part of the way that is left, from which rounds have shown nothing
_ALONG = 0.85  # part of the diagonal J_j that most directions of correlated columns show
_LEAST_PART = 0.05  # of a task's deviation that its update shows
_ROUNDING = 1.0 / math.sqrt(12.0)  # std of the rounding of log2 to a bin
_LOG2 = math.log(2.0)
# Squares of the variable of Laplace transforms, by which expectations of Gaussian directions are
# integrals of one dimension; equal steps of their logarithm.
_NODES = np.exp(np.linspace(-30.0, 30.0, 481))
_STEP = 60.0 / 480.0
_FIXED_POINT = 200


@dataclass(eq=False)
class StandardErrors(Public):
    """Of shared models, row by row as they are presented: of means, clusters, or covariates."""

    # (n_rows, size), shared models before they are shrunk; None where `reason` says why there
    # are no errors
    estimate: np.ndarray | None = None
    # (n_rows, size), standard deviations of its numbers: noise, and differences between tasks
    std: np.ndarray | None = None
    noise_std: np.ndarray | None = None  # (n_rows, size), of the noise alone
    reason: str | None = None
    dof: float | None = None  # degrees of freedom of `std`; None: it is known

    constraints = {"dof": [Interval(Real, 0, None, closed="neither"), None]}
    added = ("dof",)

    def declared(self, n_rows, size):
        """See `skpmtl.exchange.wire`."""
        known = [self.estimate, self.std, self.noise_std]
        if any((array is None) != (self.reason is not None) for array in known):
            raise ValueError("standard errors need all their arrays, or a reason")
        if self.reason is None:
            for name, array in zip(("estimate", "std", "noise_std"), known, strict=True):
                yield f"{name} of standard errors", array, [(n_rows, size)]

    def with_first_last(self):
        """A copy with the first number of each row behind the others."""
        if self.reason is not None:
            return self
        arrays = (self.estimate, self.std, self.noise_std)
        return StandardErrors(*(np.roll(array, -1, axis=1) for array in arrays), dof=self.dof)

    def interval(self, coverage):
        """-> lower and upper ends, (n_rows, size) each"""
        dof = math.inf if self.dof is None else self.dof
        reach = stdtrit(dof, 0.5 * (1.0 + coverage)) * self.std
        return self.estimate - reach, self.estimate + reach


# -------------------------------------------------------------------------- the release
def sensitivity(adjacency):
    """Of the sum of what tasks send.

    A task's vector has three parts: a bin and squares that sum to 1, both non-negative and of
    length 1 at most, so that two of them differ by sqrt(2) at most; and `size` numbers from
    -1/2 to 1/2, over sqrt(size), which differ by 1 and have length 1/2 at most.
    """
    return 1.5 if adjacency == "zero-out" else math.sqrt(5.0)


def mechanism(size, adjacency, mu):
    """Of the sum of what tasks send of models with so many numbers."""
    return VectorGaussian(n_numbers(size), sensitivity(adjacency), mu)


def share(n_tasks, mu, adjacency):
    """Part of mu^2, by a public rule."""
    noise = sensitivity(adjacency) / (mu * math.sqrt(_SHARE))
    return _SHARE if noise <= _NOISY * n_tasks else 2.0 * _SHARE


def n_numbers(size):
    """Numbers that a task sends."""
    return len(BINS) + 2 * size


def sum_of_deviations(size):
    """``combine`` of the vectors of `deviations`; a task that is not finite adds nothing."""

    def combine(contributions, positions=None):
        sent = np.array(contributions["deviation"], dtype=float)
        sent[~np.isfinite(sent).all(axis=1)] = 0.0
        lengths, squares, shown = np.split(sent, [len(BINS), len(BINS) + size], axis=1)
        for part in (lengths, squares):
            np.clip(part, 0.0, 1.0, out=part)
            part /= np.maximum(part.sum(axis=1, keepdims=True), 1.0)
        np.clip(shown, -0.5 / math.sqrt(size), 0.5 / math.sqrt(size), out=shown)
        return {"deviation": sent.sum(axis=0)}

    return combine


def query_spec(size, public):
    """What sites answer: `public` numbers of the query, by name."""
    return QuerySpec({"deviation": (n_numbers(size),)}, public)


def deviations(updates, centres):
    """What tasks send, (n_tasks, 81 + 2 size), at centres (n_centres, size)."""
    D, shown = updates_and_parts(updates, centres)
    square = np.einsum("kj,kj->k", D, D)
    with np.errstate(all="ignore"):
        share = np.where(square[:, None] > 0, D * D / square[:, None], 0.0)
    shown = (np.clip(shown, 0.0, 1.0) - 0.5) / math.sqrt(D.shape[1])
    return np.hstack([bins(np.sqrt(square)), share, shown])


def updates_and_parts(updates, centres):
    """Updates before they are clipped, diagonals of `shown_blocks`: (n_tasks, size) each."""
    D, b = updates.with_intercepts(centres)
    centred = updates.centred
    shown = np.empty((centred.problem.n_outputs, len(D), centred.table.n_features))
    for c, first, last, J in shown_blocks(centred, centres[centred.which] + D, b):
        shown[c, first:last] = np.einsum("kjj->kj", J)
    by_feature = centred.table.is_sparse
    return D, np.moveaxis(shown, 0, 2 if by_feature else 1).reshape(D.shape)


def shown_blocks(centred, models, b):
    """Yield (output, first, last, J) with J_k = (H_k + strength_k I)^-1 H_k of tasks, (., d, d).

    H_k is the curvature of the loss of task k at its model, of several classes one by one.
    """
    sparse, C = centred.table.is_sparse, centred.problem.n_outputs
    table, scale, strength = dense_copy(centred.table), centred.scale, centred.prox_strength
    weights = [table.weights]
    if centred.problem.loss != "squared":
        shape = (len(models), -1, C) if sparse else (len(models), C, -1)
        W = models.reshape(shape)
        score = common_scores(table, W.transpose(0, 2, 1) if sparse else W)
        score += np.repeat(b, table.sizes, axis=0)
        score += 0.0 if table.base is None else table.base
        if C > 1:
            p = softmax(score)
            curvature = np.maximum(p * (1.0 - p), 1e-6).T
        else:
            datafit = DATAFITS.get(centred.problem.loss, LOGISTIC)
            curvature = datafit.working(table.y, score[:, 0])[0][None]
        weights = table.counts * curvature
    plain = replace(table, y=np.zeros(table.n_rows))
    for c, each in enumerate(weights):
        own = plain if each is None else replace(plain, weights=np.ascontiguousarray(each))
        for first, last, inverse, _ in task_inverses(own, centred.problem, scale, strength):
            J = -strength[first:last, None, None] * inverse
            np.einsum("kjj->kj", J)[:] += 1.0
            yield c, first, last, J


# -------------------------------------------------------------------------- reading it
def read(released, noise_std, n_tasks, size, length):
    """-> `Deviations` from a noisy `sum_of_deviations`, of about this length, which is public"""
    counts, squares, shown = np.split(released, [len(BINS), len(BINS) + size])
    std = noise_std / n_tasks
    total = max(float(squares.sum()) / n_tasks, 0.5)
    share = _shrunk(squares / n_tasks / total, std / total, 1.0 / size)
    share = np.maximum(share, 0.05 / size)
    share /= share.sum()
    shown = 0.5 + math.sqrt(size) * shown / n_tasks
    shown = _shrunk(shown, math.sqrt(size) * std, float(shown.mean()))
    spreads = np.hypot(_own_spread(share), _SPREADS)
    centre, spread, variance = lengths_of(counts, noise_std, n_tasks, length, spreads)
    dof = 2.0 / (min((2.0 * _LOG2) ** 2 * variance, 1.0) + 2.0 / n_tasks)
    return Deviations(centre, spread, share, np.clip(shown, _LEAST_PART, 1.0), dof)


def _shrunk(values, std, middle):
    """Values with noise of this std, drawn to their middle as far as they spread by noise alone."""
    spread = max(float(np.mean((values - middle) ** 2)) - std**2, 0.0)
    if not std:
        return values
    return middle + (values - middle) * spread / (spread + std**2)


def _own_spread(share):
    """Spread of log2 of the length of a Gaussian vector, of about as many numbers as are large."""
    return 0.5 * math.sqrt(polygamma(1, 0.5 / float(share @ share))) / _LOG2


def lengths_of(counts, noise_std, n_tasks, length, spreads):
    """-> mean and spread of log2 of the lengths, variance of that mean, from noisy counts of `BINS`

    By a posterior that is flat over the spreads, and (1 + x^2)^-2 in the distance x of the mean
    from log2 of the length that is expected: with few tasks the noise of bins far away looks like
    lengths. Counts vary by noise and chance.
    """
    centres = np.arange(BINS[0], BINS[-1], 0.1)
    logs = np.empty((len(spreads), len(centres)))
    prior = -2.0 * np.log1p((centres - math.log2(length)) ** 2)
    for row, spread in zip(logs, spreads, strict=True):
        width = math.hypot(spread, _ROUNDING)
        expected = np.exp(-0.5 * ((BINS - centres[:, None]) / width) ** 2)
        expected *= n_tasks / expected.sum(axis=1, keepdims=True)
        variance = noise_std**2 + np.maximum(expected, 0.5)
        loss = ((counts - expected) ** 2 / variance + np.log(variance)).sum(axis=1)
        row[:] = prior - 0.5 * loss
    weight = np.exp(logs - logsumexp(logs))
    centre = float((weight * centres).sum())
    variance = float((weight * (centres - centre) ** 2).sum())
    return centre, float(weight.sum(axis=1) @ spreads), variance


class Deviations:
    """Expectations over tasks, of D = R N(0, diag(sigma^2)) with a log-normal R.

    `centre` and `spread` are mean and standard deviation of log2 abs(D), `share` (size,) is E D_j^2
    / abs(D)^2, `shown` (size,) J, and `dof` are the degrees of freedom of what follows.
    """

    def __init__(self, centre, spread, share, shown, dof=None):
        self.centre, self.spread, self.share, self.shown = centre, spread, share, shown
        self.dof = dof
        variance = share.copy()
        for _ in range(_FIXED_POINT):
            expected, inverse, log = gaussian_directions(variance)
            step = share / np.maximum(expected, 1e-300)
            variance = np.maximum(variance * step, 1e-12)
            variance /= variance.sum()
            if np.abs(step - 1.0).max() < 1e-6:
                break
        self.variance = variance
        further = max(spread**2 - _own_spread(share) ** 2, 0.0) * _LOG2**2
        # E (1 - D_j^2 / abs(D)^2) / abs(D)
        self.bend = inverse * math.exp(0.5 * log - centre * _LOG2 + 0.5 * further)

    def slopes(self, bound):
        """J E dpsi_j / dD_j, (size,)."""
        at = (math.log2(bound) - self.centre) / self.spread
        inside, beyond = ndtr(at), ndtr(-at - self.spread * _LOG2)
        return self.shown * np.minimum(inside + beyond * bound * self.bend, 1.0)

    def squares(self, bound):
        """E psi_j^2, (size,)."""
        at = (math.log2(bound) - self.centre) / self.spread
        grow = 2.0 * _LOG2
        short = math.exp(grow * self.centre + 0.5 * (grow * self.spread) ** 2)
        short *= ndtr(at - grow * self.spread)
        return self.variance * short + self.share * bound**2 * ndtr(-at)

    def differences(self, bound):
        """Standard deviation of a number of the centre of a single task, (size,)."""
        return np.sqrt(self.squares(bound)) / self.slopes(bound)

    def _kept(self, bound):
        """Part of a deviation of the centre that a round leaves, (size,)."""
        return 1.0 - np.minimum(_ALONG * self.slopes(bound), 1.0)

    def way_left(self, bounds):
        """Part of their way that centres have not gone, (size,)."""
        return np.prod([self._kept(bound) for bound in bounds], axis=0)

    def noise_left(self, noise_std, bounds):
        """Standard deviation of the noise in the numbers of the centres, (n_centres, size).

        `noise_std` (n_rounds, n_centres) is that of a number of a move.
        """
        left = np.zeros((noise_std.shape[1], len(self.share)))
        for std, bound in zip(noise_std, bounds, strict=True):
            left *= self._kept(bound) ** 2
            left += std[:, None] ** 2
        return np.sqrt(left)


def released_errors(found, estimate, moved, noise_std, bounds, *, design, transform, unit=1.0):
    """`StandardErrors` of rounds, from what was released at their end.

    Parameters
    ----------
    found : Deviations
    estimate, moved : ndarray (n_rows, size)
        Shared models, and how far rounds have moved them.
    noise_std : ndarray (n_rounds, n_centres)
        Of a number of a move.
    bounds : list of float
    design : ndarray (n_centres, n_centres)
        Sum of b_k b_k' over the tasks.
    transform : ndarray (n_rows, n_centres)
        From the centres to what is presented.
    unit : float or ndarray (size,), default=1.0
        What numbers of the rounds are multiplied by.
    """
    noise = transform**2 @ found.noise_left(noise_std, bounds) ** 2
    own = np.einsum("rg,gh,rh->r", transform, design, transform)
    own = np.multiply.outer(own, found.differences(bounds[-1]) ** 2)
    left = found.way_left(bounds)
    if left.max() > _LEFT:
        return StandardErrors(
            reason="the rounds, whose bounds were small, did not reach the models of the tasks"
        )
    ahead = moved * left / np.maximum(1.0 - left, 0.1)
    std = np.sqrt(unit**2 * (own + noise) + ahead**2)
    return StandardErrors(estimate, std, unit * np.sqrt(noise), dof=found.dof)


def frame(errors, billboard, names, classes, coverage):
    """As ``summary_frame`` of the estimators returns it."""
    import pandas as pd

    rows, pooled = None, not hasattr(billboard, "centres")
    if not pooled and billboard.relation is not None:
        rows = pd.Index(billboard.relation.names, name="covariate")
    elif not pooled and billboard.cluster_of is not None:
        rows = pd.RangeIndex(len(billboard.centres), name="cluster")
    features = list(names) + ["intercept"] * pooled
    levels = [] if rows is None else [rows]
    if len(billboard.model_shape) == 2:
        levels.append(pd.Index(classes, name="class"))
    levels.append(pd.Index(features, name="feature"))
    index = pd.MultiIndex.from_product(levels) if len(levels) > 1 else levels[0]
    shaped = np.asarray if pooled else billboard.shaped
    if errors.reason is not None:
        columns = [np.full(len(index), np.nan)] * 5
    else:
        noise = (errors.noise_std / errors.std) ** 2
        columns = [errors.estimate, errors.std, *errors.interval(coverage), noise]
        columns = [np.ravel(shaped(column)) for column in columns]
    titles = ("effect", "std_error", "lower", "upper", "noise_share")
    return pd.DataFrame(dict(zip(titles, columns, strict=True)), index)


def exact_errors(updates, centres, rows, weights, estimate, transform, is_held):
    """`StandardErrors` of a fit without noise: the sandwich, whole.

    Task k lies around v_k G, and the updates times b_k sum to 0, for `rows` v and `weights` b
    (n_tasks, n_centres). `estimate` is (n_rows, size), `transform` (n_rows, n_centres). `is_held`:
    no task moves a centre farther than half of the tasks do (`held_targets`).
    """
    centred, (m, r), size = updates.centred, rows.shape, centres.shape[1]
    around = rows @ centres
    which, centred.which = centred.which, np.arange(m)
    try:
        D, b = updates.with_intercepts(around)
        blocks = list(shown_blocks(centred, around + D, b))
    finally:
        centred.which = which
    length = np.maximum(np.linalg.norm(D, axis=1), 1e-300)
    part = np.minimum(1.0, np.median(length) / length) if is_held else np.ones(m)
    bent = np.sqrt(part) * (part < 1.0) / length
    bread, C = np.zeros((r, size, r, size)), centred.problem.n_outputs
    places = np.arange(size).reshape((-1, C) if centred.table.is_sparse else (C, -1))
    for c, first, last, J in blocks:
        own, some = (places[:, c] if centred.table.is_sparse else places[c]), slice(first, last)
        slope = np.zeros((last - first, size, len(own)))
        slope[:, own] = part[some, None, None] * J
        u = bent[some, None] * D[some]
        slope -= u[:, :, None] * np.einsum("ki,kij->kj", u[:, own], J)[:, None]
        bread[..., own] += np.einsum("kg,kh,kij->gihj", weights[some], rows[some], slope)
    half = np.einsum("kg,ki->kgi", weights, part[:, None] * D).reshape(m, -1)
    meat = half.T @ half * (m / max(m - r, 1))
    bread = np.linalg.pinv(bread.reshape(r * size, r * size))
    covariance = (bread @ meat @ bread.T).reshape(r, size, r, size)
    variance = np.einsum("pg,gihi,ph->pi", transform, covariance, transform)
    std = np.sqrt(np.maximum(variance, 0.0))
    return StandardErrors(estimate, std, np.zeros_like(std))


def gaussian_directions(variance):
    """Of x ~ N(0, diag(variance)). -> E x_j^2/|x|^2, E (1 - x_j^2/|x|^2)/|x|, E log |x|^2

    By Laplace transforms, with P(w) = E exp(-w |x|^2) = prod (1 + 2 w variance_i)^(-1/2):
    integrals of variance_j P / (1 + 2 w variance_j), of P / ((1 + 2 w variance_j) sqrt(pi w)), and
    of (exp(-w) - P) / w.
    """
    w = _NODES[:, None]
    each = 1.0 + 2.0 * w * variance
    P = np.exp(-0.5 * np.log(each).sum(axis=1))
    square = variance * _STEP * ((_NODES * P) @ (1.0 / each))
    inverse = _STEP / math.sqrt(math.pi) * ((np.sqrt(_NODES) * P) @ (1.0 / each))
    return square, inverse, float(_STEP * (np.exp(-_NODES) - P).sum())
