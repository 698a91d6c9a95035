"""How much the models of tasks differ, as the variance components of a mixed model."""

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri

from ..task import priors
from . import profiles


@dataclass
class Components:
    """Variance components of a released model."""

    # (d + 1, d + 1), of slopes and, last, the intercept, which is the level at x = 0, as lme4 has
    # it; in units of the target, or of the score, over those of the columns
    covariance: np.ndarray
    # (d + 2, 3), standard deviations of slopes, intercept and, last, level at the centre of the
    # columns, and the ends of their intervals. NaN where slopes are votes, whose quantiles are no
    # intervals.
    of_models: np.ndarray
    measured: bool  # whether they are moments of what tasks sent, instead of the middle of a vote
    # (3,), the same of a row about the model of its task; None of classes and counts
    residual: np.ndarray | None
    # (3,), the same of the effects of factors above, across and below tasks, by their names
    factors: dict


def variance_components(board, coverage):
    """Of the squares of scores where standard errors were released, otherwise of the votes.

    -> `Components` of a model of one score, with pooled levels. Intervals of votes are between
    quantiles of the released weights, of the level and rows alone: those of slopes held .6 to 1 for
    .9.
    """
    law, measured = board.law, board.spread is not None
    covariance, of_models = _measured(board, coverage) if measured else _voted(board, coverage)
    # Slopes have a mean of zero, where others have not, in columns of zeros alone.
    slopes = np.ravel(board.centre)[1:]
    untold = np.flatnonzero((slopes == 0.0) & slopes.any())
    covariance[untold], covariance[:, untold], of_models[untold] = np.nan, np.nan, np.nan
    factors = [(one.factor.name, one.spread) for one in board.factors]
    factors = [(name, board.unit * std) for name, std in factors if std is not None]
    if board.spread_below is not None:
        factors = [(board.below, board.spread_below), *factors]
    residual, of_factors = None, [np.full(2, np.nan)] * len(factors)
    if board.row_variance is not None and board.profiles is None:
        residual = _with_ends(*board.row_variance[:, None], coverage)[0]
    elif not law.of_scores:
        known = board.log_sigma, law.log_sigma, board.sigma
        residual = board.unit * np.append(board.middle_sigma, priors.ends(*known, coverage))
    if board.profiles is not None:
        known = (board.unit * profiles.ends(one, coverage) for one in board.profiles)
        of_level, *of_factors, residual[1:] = known
        if not measured:
            of_models[-1, 1:] = of_level
    of_factors = {
        str(name): np.append(std, ends)
        for (name, std), ends in zip(factors, of_factors, strict=True)
    }
    return Components(covariance, of_models, measured, residual, of_factors)


def _measured(board, coverage):
    untold = np.append(np.diag(board.effect_covariance) == 0.0, False)
    spread = np.where(untold | untold[:, None], np.nan, board.spread)
    return spread[:-1, :-1], _with_ends(np.diag(spread), board.spread_doubt, coverage)


def _with_ends(variance, doubt, coverage):
    """Standard deviations, (n, 3), of variances with normal errors."""
    reach = ndtri(0.5 + 0.5 * coverage) * doubt
    columns = np.stack([variance, variance - reach, variance + reach], axis=1)
    return np.sqrt(np.maximum(columns, 0.0))


def of_slopes(board, typical=priors.middle):
    """Covariance of slopes under the votes, in units and scaled columns, (d, d).

    Scales and weights of components are those of votes, without the part that is kept for tasks
    unlike the others; `typical` takes one number from the weights of a scale.
    """
    log_components = priors.typical(board.log_components, priors.normalised(np.zeros(3)))
    parts, law = replace(board, log_components=log_components).components(), board.law
    weights = np.exp([part.log_weight for part in parts])
    mean = sum(p * part.slopes for p, part in zip(weights, parts, strict=True))
    found = np.zeros((board.n_features,) * 2)
    for p, part in zip(weights, parts, strict=True):
        kappa = typical(part.scales.log_kappa, law.log_kappa, board.kappa)
        apart = part.slopes - mean
        found += p * (kappa * part.root @ part.root.T + np.outer(apart, apart))
    return found


def _voted(board, coverage):
    """At the centre of the columns slopes say nothing of the level of a task; elsewhere the spread
    of slopes times the distance adds to it."""
    d, law, tau = board.n_features, board.law, board.tau
    to = np.diag(np.append(board.unit / board.column_scale, board.unit))
    to[d, :d] = -board.column_centre / board.column_scale * board.unit
    taus = np.append(
        board.middle_tau, priors.ends(board.log_tau, law.before_tau(tau), tau, coverage)
    )
    found = np.zeros((d + 1, d + 1))
    found[:d, :d], found[d, d] = of_slopes(board), taus[0] ** 2
    found = to @ found @ to.T
    stds = np.full((d + 2, 3), np.nan)
    stds[:-1, 0] = np.sqrt(np.diag(found))
    stds[-1] = board.unit * taus
    return found, stds
