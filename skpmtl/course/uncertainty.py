"""How sure a task is of its model: covariance and noise from the posterior that it averages over.

For the task alone, and free of charge, as its model is: a covariance discloses its second moments.
"""

import math

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr

from ..task import priors
from ..task.mixture import Posterior, noise_of
from ..task.nested import averages, covariances, log_evidence
from ..task.posterior import log_sum


def posterior(tasks, model):
    """`Posterior` of the models of some `TaskModels`, in units of the input.

    Where the centre has the covariance C, and G is what the mean of a task takes of the centre,
    G C G' is added to the covariance about a known centre (Harville, J. Am. Stat. Assoc. 72, 1977).
    """
    found = []
    for part in model.all_components():
        of = tasks.decomposition(model, part.root), *tasks.around_part(model, part), part.scales
        logs, *mean = averages(*of)
        by_sigma = part.log_weight + log_evidence(*of, "sigma")
        found.append((part, part.log_weight + logs, np.c_[tuple(mean)], of, by_sigma))
    total = log_sum(np.stack([logs for _, logs, *_ in found], axis=1))
    m, d = tasks.near_mean.shape
    mean, (square, taken) = np.zeros((m, d + 1)), np.zeros((2, m, d + 1, d + 1))
    for part, logs, moved, of, _ in found:
        share = np.exp(logs - total)[:, None]
        centre = np.zeros((m, d + 1))
        centre[:, 0], centre[:, 1:] = of[1] - model.centre[0], of[2]
        here = centre + moved
        mean += share * here
        between = centre[:, :, None] * here[:, None, :] + moved[:, :, None] * centre[:, None]
        _, own, kept = covariances(*of)
        square += share[..., None] * (own + between)
        to = np.eye(d + 1) * (part.name in ("mean", "larger"))
        to[0] = np.append(1.0, model.origin)
        taken += share[..., None] * (kept @ to)
    square -= mean[:, :, None] * mean[:, None, :]
    if model.centre_doubt is not None:
        square += taken @ model.centre_doubt @ taken.transpose(0, 2, 1)
    covariance = _of_models(tasks, square)
    by_sigma = np.stack([by_sigma for *_, by_sigma in found], axis=2)
    by_sigma = log_sum(by_sigma.reshape(-1, len(found))).reshape(m, -1)
    scales = found[-1][0].scales
    variance, dof = noise_of(by_sigma, scales.sigma, scales.log_sigma)
    return Posterior(covariance, tasks.unit**2 * variance, dof)


def _of_models(tasks, covariance):
    """From level and slopes in units and scaled columns to coefficients and the intercept."""
    m, d = tasks.near_mean.shape
    slopes, to = tasks.unit[:, None] / tasks.scale, np.zeros((m, d + 1, d + 1))
    to[:, np.arange(d), np.arange(1, d + 1)] = slopes
    to[:, d, 0] = tasks.unit
    to[:, d, 1:] = tasks.unit[:, None] * tasks.near_mean - tasks.summaries.x_mean * slopes
    found = to @ covariance @ to.transpose(0, 2, 1)
    return 0.5 * (found + found.transpose(0, 2, 1))


class Distances:
    """Distances of targets from the mean model, of tasks without rows.

    Normal given the spread of levels, which is mixed over its released prior. The noise of a row,
    effects of a factor below tasks, and slopes, at a row whose columns are one scale from the
    centre, add the geometric mean of theirs: a noisy vote is wide on the logarithm, so that its
    mean square would be that of its upper end. What stays flat in a prior, for tasks unlike the
    others, is left out. Levels of the model are pooled.
    """

    def __init__(self, model):
        variance, self.level_doubt, law = 0.0, model.level_doubt, model.law
        for part in model.components():
            s = part.scales
            kappa = priors.middle(s.log_kappa, law.log_kappa, s.kappa)
            sigma = priors.middle(s.log_sigma, law.log_sigma, s.sigma)
            kappa *= not model.slopes_are_equal
            kappa *= 1.0 + np.sum((model.origin @ part.root) ** 2)
            variance += math.exp(part.log_weight) * (kappa + sigma**2 * (1.0 + model.middle_ratio))
        self.weights = np.exp(priors.typical(model.log_tau, law.before_tau(model.tau)))
        variance += 0.0 if model.centre_doubt is None else np.trace(model.centre_doubt)
        self.stds = model.unit * np.sqrt(variance + model.tau**2)

    def quantile(self, coverage, doubt=0.0):
        """Distance within which targets are with this probability.

        `doubt` is a further variance, of the levels of these tasks.
        """
        stds = np.sqrt(self.stds**2 + doubt)

        def excess(distance):
            return self.weights @ (2.0 * ndtr(distance / stds) - 1.0) - coverage

        return float(brentq(excess, 0.0, 40.0 * stds.max()))

    def quantiles(self, coverage, doubts):
        """The same for every one of these further variances, in their shape."""
        distinct, which = np.unique(doubts, return_inverse=True)
        found = np.array([self.quantile(coverage, doubt) for doubt in distinct])
        return found[which.ravel()].reshape(np.shape(doubts))
