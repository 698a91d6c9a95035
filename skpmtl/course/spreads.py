"""How much the models of tasks differ, as the variance components of a mixed model."""

import numpy as np

from ..task import priors


def variance_components(board):
    """Of slopes and, last, the intercept, which is the level at x = 0, as lme4 has it.

    The level of a task has its released spread where columns have their released centres; at x = 0
    the spread of slopes times these centres adds to it. Scales are the middle of what votes found,
    without the part that is kept for tasks unlike the others, and components count by their
    weights.

    Parameters
    ----------
    board : HierarchicalBillboard
        Of one score, with pooled levels.

    Returns
    -------
    covariance : ndarray (d + 1, d + 1)
        In units of the target, or of the score, over those of the columns.
    residual : float or None
        Standard deviation of a row about the model of its task; None of classes and counts.
    effects : dict of str to float
        Standard deviation of the effects of factors above, across and below tasks, by their names.
    """
    d, law = board.n_features, board.law
    parts = board.components()
    weights = np.exp([part.log_weight for part in parts])
    mean = sum(p * part.slopes for p, part in zip(weights, parts, strict=True))
    within = np.zeros((d, d))
    for p, part in zip(weights, parts, strict=True):
        kappa = priors.middle(part.scales.log_kappa, law.log_kappa, law.kappa)
        apart = part.slopes - mean
        within += p * (kappa * part.root @ part.root.T + np.outer(apart, apart))
    covariance = np.zeros((d + 1, d + 1))
    covariance[:d, :d], covariance[d, d] = within, board.middle_tau**2
    to = np.diag(np.append(board.unit / board.column_scale, board.unit))
    to[d, :d] = -board.column_centre * board.unit / board.column_scale
    residual = None
    if not law.of_scores:
        residual = board.unit * board.row_spread
    effects = {
        str(factor.name): board.unit * spread for factor, _, spread, _ in board.known_factors()
    }
    if board.spread_below is not None:
        effects[str(board.below)] = board.spread_below
    return to @ covariance @ to.T, residual, effects
