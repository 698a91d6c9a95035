"""How sure a task is of its model: covariance and noise from the posterior that it averages over.

For the task alone, and free of charge, as its model is: a covariance discloses its second moments.
"""

from functools import cached_property

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from ..task import priors
from ..task.mixture import Posterior, noise_of
from ..task.nested import averages, covariances, log_evidence
from ..task.posterior import log_sum
from . import spreads

_STEPS, _OCTAVES = 8, 40.0  # of an octave, at which quantiles are found, and the most of these


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
        to = np.diag(np.append(1.0, np.full(d, part.name in ("mean", "larger"))))
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

    Normal given the spread of levels, which is mixed over its released prior; what stays flat in
    it, for tasks unlike the others, is left out. Slopes, without a budget what tasks have in
    common, and what bounds take from the mean add a variance that grows with the distance of a row
    from the centre.
    """

    def __init__(self, model):
        self.model, tau = model, model.tau
        self.weights = np.exp(priors.typical(model.log_tau, model.law.before_tau(tau)))
        of_rows = model.middle_sigma**2 * (1.0 + model.middle_ratio)
        self.variances = model.unit**2 * (of_rows + tau**2)

    @cached_property
    def slopes(self):
        return spreads.of_slopes(self.model, priors.mean_root)

    def of_slopes(self, X):
        """Variance that rows X (n, d) add: as they are, about predictions that are bounded. (n,)"""
        model = self.model
        near, limits = model.near_rows(X)
        level, slopes = model.centre[0], np.exp(model.log_components[2]) * model.centre[1:]
        with np.errstate(all="ignore"):
            known = level + ((near - model.column_centre) / model.safe_scale) @ slopes
            known = np.clip(known, *np.subtract(limits, model.middle) / model.unit)
            Z = (X - model.column_centre) / model.column_scale
            found = (level + Z @ slopes - known) ** 2 + _quadratic(Z, self.slopes)
            if model.centre_doubt is not None:
                found += _quadratic(np.c_[np.ones(len(Z)), Z], model.centre_doubt)
        return model.unit**2 * np.nan_to_num(found, nan=np.inf, posinf=np.inf)

    def quantiles(self, coverage, more):
        """Distances within which targets are with this probability, in the shape of `more`, the
        variance that is added to all.

        Their squares are nearly linear in it, and found at some values alone.
        """
        middle = np.exp(self.weights @ np.log(self.variances))
        octaves = np.minimum(np.log2(1.0 + np.max(more) / middle), _OCTAVES)
        at = middle * (2.0 ** (np.arange(_STEPS * octaves + 1.0) / _STEPS) - 1.0)
        of_one = ndtri(0.5 + 0.5 * coverage) ** 2
        rest = [_quantile(coverage, self.variances + v, self.weights) ** 2 - of_one * v for v in at]
        return np.sqrt(of_one * more + np.interp(more, at, rest))


def _quantile(coverage, variances, weights):
    """Of the absolute value of a mixture of normal numbers."""
    stds = np.sqrt(variances)

    def excess(distance):
        return weights @ (2.0 * ndtr(distance / stds) - 1.0) - coverage

    return float(brentq(excess, 0.0, 40.0 * stds.max()))


def _quadratic(Z, square):
    return np.sum((Z @ square) * Z, axis=1)
