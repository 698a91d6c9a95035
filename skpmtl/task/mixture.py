"""The noise of a row that a mixture of posteriors implies, and probabilities under it."""

import math
from typing import NamedTuple

import numpy as np

_TIE = 1e-9  # between two scores
# A normal score of variance v has about the mean probability of its mean over (1 + v PROBIT)^1/2
# (MacKay, Neural Computation 4, 1992).
PROBIT = 0.125 * math.pi
LEAST_DOF = 3.0  # degrees of freedom of the noise, of which the variance of a t number is finite


class Posterior(NamedTuple):
    """What a task keeps of its posterior, as the attributes that end in an underscore."""

    covariance: np.ndarray  # (m, D, D), intercept last; infinite where rows do not determine it
    noise_variance: np.ndarray  # (m,), of a row
    dof: np.ndarray  # (m,), its degrees of freedom

    def attributes(self):
        return {f"{name}_": value for name, value in self._asdict().items()}


def noise_of(by_sigma, sigma, log_prior=None):
    """Variance and degrees of freedom of a row's noise, from log evidence by cells of sigma.

    With an inverse gamma distribution of sigma^2 the log density on the grid of log sigma is
    A - nu log sigma - q / sigma^2. Three neighbours about the largest settle nu, the degrees of
    freedom, and q, whatever the steps of the grid; a t distribution of scale 2 q / nu follows.
    A prior of `log_prior` may be surer than a step of the grid: where it is largest in the middle,
    its own nu and q are those of the mean and the variance of sigma^2 over the three cells. If
    all of such a step were density, sigma would come out as .86 of that of a sure cell.

    `by_sigma` (m, n) has the weights of the prior, and `sigma` (n,) is a grid of octaves.
    -> variance (m,), degrees of freedom (m,)
    """
    top = np.clip(by_sigma.argmax(axis=1), 1, len(sigma) - 2)
    every = np.arange(len(top))
    here = by_sigma[every, top]
    finer, wider = by_sigma[every, top - 1] - here, by_sigma[every, top + 1] - here
    log_prior = np.zeros(len(sigma)) if log_prior is None else log_prior
    prior = log_prior[top[:, None] + np.arange(-1, 2)] - log_prior[top][:, None]
    prior[prior[:, ::2].max(axis=1) >= 0.0] = 0.0
    weights = np.exp(prior)
    weights /= weights.sum(axis=1, keepdims=True)
    squares = np.array([0.25, 1.0, 4.0])  # sigma^2 over that of the cell in the middle
    mean = weights @ squares
    of_prior = 4.0 + 2.0 * mean**2 / np.maximum(weights @ squares**2 - mean**2, 1e-9)
    of_prior *= prior.any(axis=1)
    finer, wider = finer - prior[:, 0], wider - prior[:, 2]
    q = -(finer + wider) / 2.25  # over sigma^2 of the cell in the middle
    nu = np.maximum((0.75 * q - wider) / math.log(2.0) + of_prior, 1e-9)
    q = np.maximum(q + 0.5 * mean * np.maximum(of_prior - 2.0, 0.0), 1e-9)
    scale = sigma[top] ** 2 * 2.0 * q / nu
    dof = np.maximum(nu, LEAST_DOF)
    return scale * dof / (dof - 2.0), dof


def against_others(n_outputs):
    """Variance of a score less the mean of the others, over that of one; of a single score one."""
    return n_outputs / max(n_outputs - 1.0, 1.0)


def flatter(typical):
    """What covariances over all scales are multiplied by, (m, C).

    A normal score of this variance has, at a typical row, the mean probability of the mixture of
    scales, whose widest ones have much of the variance, and little of the weight.
    """
    variance, flat = typical[..., 0], typical[..., 1]
    return (flat**-2.0 - 1.0) / (PROBIT * np.maximum(variance, 1e-300))


def averaged_scores(score, variance, n_classes):
    """Scores of which probabilities are those averaged over normal scores.

    These have the mean `score`, that of the model, and `variance`. Both are (...), or
    (..., n_classes) of more than two. The likeliest class of the model stays that, by as little as
    there is.
    """
    several = n_classes > 2
    mean = score - score.mean(axis=-1, keepdims=True) if several else score
    found = mean / np.sqrt(1.0 + PROBIT * np.maximum(variance, 0.0))
    if not several:
        return found
    first = score.argmax(axis=-1)[..., None]
    top = found.max(axis=-1, keepdims=True)
    wrong = found.argmax(axis=-1)[..., None] != first
    np.put_along_axis(
        found, first, np.where(wrong, top + _TIE, np.take_along_axis(found, first, -1)), -1
    )
    return found
