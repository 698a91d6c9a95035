"""Standard errors of what the slopes of tasks have in common: one step of generalised least squares
from the released centre, and its sandwich (Liang and Zeger, Biometrika 73, 1986).

With the scales at one value each, a task has the score s of the centre and its information I. One
step of Newton's method from the released centre is the estimate of generalised least squares
whatever the centre was shrunk by; its covariance H^-1 (sum s s') H^-1, H the sum of I, holds where
noise or slopes are not as the model has them. A task sends its score, clipped, and a root of its
information; the sums of the scores, of their squares and of the information are released, and the
noise of each is part of the covariance.
"""

import math
from dataclasses import dataclass, replace
from numbers import Real

import numpy as np

from ..exchange.protocol import Query
from ..privacy.mechanisms import SymmetricGaussian, VectorGaussian, clip_rows
from ..tables.public_init import PublicInit
from ..task import priors
from .plan import ERRORS
from .queries import Question

LONGEST = 1.25  # length of a score in units of its root mean square, with rows without end
CLEAR = 3.0  # edges of the noise that every direction of the information has to clear
# Of mu^2, by sums.
SHARES = {"score": 0.3 * ERRORS, "square": 0.2 * ERRORS, "information": 0.5 * ERRORS}


@dataclass
class Errors(Question):
    """Score and information of the centre, each of length 1 at most.

    Attributes
    ----------
    mean : ndarray (d + 1,)
        The released model of tasks without rows, the intercept last, in units of the input and less
        the public initial model.
    deviations : ndarray (d + 1,)
        Standard deviations of level and slopes, in units and scaled columns.
    kappa, sigma, tau : float
    """

    kind = "errors"
    mean: np.ndarray
    deviations: np.ndarray
    kappa: float
    sigma: float
    tau: float

    @property
    def size(self):
        return len(self.mean)

    def mechanisms(self, adjacency, mu):
        """Of the three sums; None without noise."""
        k, one = self.size, adjacency == "zero-out"
        square = 1.0 if one or k == 1 else math.sqrt(2.0)  # squares have no negative product
        made = {
            "score": (VectorGaussian, 1.0 if one else 2.0),
            "square": (SymmetricGaussian, square),
            "information": (SymmetricGaussian, square),
        }
        return {
            name: kind(k, sensitivity, mu * math.sqrt(SHARES[name]))
            for name, (kind, sensitivity) in made.items()
        }

    def query(self, model, mechanisms):
        query = super().query(model, None)

        def combine(contributions, positions=None):
            return self.totals(np.array(contributions[self.kind], dtype=float))

        return Query(self.kind, query.public, mechanisms, combine)

    def answer(self, tasks, model):
        d = self.size - 1
        tasks = tasks.about(PublicInit(self.mean[None, :d], self.mean[d:]))
        one = np.zeros(1)
        grids = (np.array([value]) for value in (self.tau, self.kappa, self.sigma))
        bare = replace(model, middle=0.0, centre=np.zeros(d + 1), init=None)
        score, information = tasks.information(bare, priors.Scales(one, one, one, *grids))
        of_task = np.c_[np.ones(len(score)), tasks.scale / model.column_scale]
        by = of_task * self.deviations
        score, information = score * by, information * by[:, :, None] * by[:, None, :]
        values, vectors = np.linalg.eigh(information)
        root = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
        q = math.sqrt(d + 1.0)
        score = score / (LONGEST * q)
        kept = 1.0 / np.maximum(np.sqrt(sum(s * s for s in score.T)), 1.0)
        root = root * np.sqrt(kept / q)[:, None, None]
        return np.c_[score, root.reshape(len(root), -1)]

    def totals(self, sent):
        k = self.size
        score, root = sent[:, :k].copy(), sent[:, k:].copy()
        clip_rows(score, 1.0)
        clip_rows(root, math.sqrt(k))  # finite, before it is squared
        root = root.reshape(-1, k, k)
        squares = (root @ root.transpose(0, 2, 1)).reshape(-1, k * k)
        clip_rows(squares, 1.0)
        information = squares.sum(axis=0).reshape(k, k)
        return {
            "score": score.sum(axis=0),
            "square": score.T @ score,
            "information": 0.5 * (information + information.T),
        }

    @classmethod
    def wire(cls, d):
        public = {"mean": [(d + 1,)], "deviations": [(d + 1,)]}
        return ((d + 1) * (d + 2),), public | dict.fromkeys(("kappa", "sigma", "tau"), Real)


def question_about(model):
    """`Errors` of a released model with pooled levels."""
    part, d = model.components()[-1], model.n_features
    before = priors.before_kappa(), priors.before_sigma(), priors.before_tau(model.tau)
    logs = model.log_kappa, model.log_sigma, model.log_tau
    grids = part.scales.kappa, part.scales.sigma, model.tau
    kappa, sigma, tau = (
        float(2.0 ** (np.exp(priors.typical(log, flat)) @ np.log2(grid)))
        for log, flat, grid in zip(logs, before, grids, strict=True)
    )
    shape = np.maximum(np.sum(model.root**2, axis=1), 1.0 / d)
    deviations = np.append(tau, np.sqrt(kappa * shape))
    mean = model.mean if model.init is None else model.mean - model.init.joined(True)[0]
    return Errors(mean, deviations, kappa, sigma, tau)


def effects(model, question, sums, noise):
    """Estimates of common slopes and their standard errors, (d,) each; None below the noise.

    `sums` and `noise` (standard deviations) are by the names of `SHARES`.
    """
    m, k = model.n_present, question.size
    score, square, information = (sums[name] for name in SHARES)
    edge = noise["information"] * math.sqrt(2.0 * k)
    if m <= k or np.linalg.eigvalsh(information)[0] <= max(CLEAR * edge, 1e-9):
        return None
    back = np.linalg.inv(information / LONGEST)
    step = back @ score
    values, vectors = np.linalg.eigh(square)
    square = (vectors * np.maximum(values, 0.0)) @ vectors.T * m / (m - k)  # CR1
    free = noise["score"] ** 2 + (noise["information"] / LONGEST) ** 2 * (step @ step)
    variance = np.diag(back @ (square + free * np.eye(k)) @ back.T)
    unit = model.unit / model.column_scale * question.deviations[1:]
    return model.mean[:-1] + step[1:] * unit, np.sqrt(variance[1:]) * unit
