"""How sure a task is of its model: the posterior that its average over priors is the mean of.

Squared loss. Under prior s of a task, w ~ N(c_s a, s^2 R R' / rho_s) with a free intercept, with
the Gram matrix G of its n centred rows, g = X'y and R' G R = V diag(l) V',

    W_s = c_s a + R V diag(1 / (l + rho_s)) V' R' (g - c_s G a),    H_s = R V diag(h_s) V' R',

where h_s = 1 / (l + max(rho_s, r / k)) with r the mean of |R'(x - xbar)|^2 over the rows, at
least .03 |R'xbar|^2: in directions in which its rows do not vary, no prior adds more than k times
the noise to the variance of a score at a row as far from their mean as they are. With penalised
squared errors Q, averaged over the priors, and the squares q of the prior of the noise,

    k = max(10, 2 (y'y + q) / (Q + q)),

which is ten times the noise, or twice the variance of the targets where that is more: a task of
fewer rows than features knows little of most directions, however small its noise. Where rows do not
vary at all, scales are those of a score at the row. With weights p_s, by prior and evidence
(`skpmtl._kernels.average`),

    E w = sum_s p_s W_s,    Cov w = s^2 sum_s p_s H_s + sum_s p_s (W_s - E w)(W_s - E w)',

and the intercept is the level less w'xbar, where the level, the score at the mean row, is
independent of w. The result is for the task alone: a covariance discloses its X'X.
"""

from copy import copy
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .._runtime.threads import single_blas_thread
from ..tables.table import row_products
from ..task.mixture import Posterior
from .grams import row_blocks
from .prior import SNR

_OFF = 0.03  # part of the squared length of the mean row that the distance of rows from it counts
# Most that a prior may add to the variance of a score: in units of the noise, or in those of the
# variance of the targets where that is more.
CAP, _OF_TARGETS = 10.0, 2.0
NOISE_ROWS = 2.0  # rows that the prior of the noise variance counts
LEAST_DOF = 2.5  # of which the variance of a t distribution is finite
_KNOWN = 2.0  # rows beyond mean and used coefficients, up to which its prior is that of y
_RANGE = 6.0  # public range of a target over the prior std of its noise
_BLOCK = 1 << 20  # numbers of matrices that are worked on at a time


class TaskSums:
    """What squared loss depends on: sums over the rows of every task.

    `n`, `level` and `square` (m,) are rows as far as they count, mean of y, and y'y; `mean` and
    `cross` (m, d) mean row and X'y; `gram` (m, d, d) X'X. With `centre` rows are taken less their
    mean, for a free intercept; else means are 0. `noise_prior`: rows and variance of a released
    noise, or None.
    """

    def __init__(self, table, centre, noise_prior=None):
        m, d, self.noise_prior = table.n_tasks, table.n_features, noise_prior
        self.centre, self.n = bool(centre), np.asarray(table.support, dtype=float)
        self.mean, self.level = np.zeros((m, d)), np.zeros(m)
        self.gram, self.cross, self.square = np.empty((m, d, d)), np.empty((m, d)), np.empty(m)
        for first, last, rows, X in row_blocks(table):
            part, starts = slice(first, last), table.offsets[first:last] - rows.start
            counts, sizes = table.counts[rows][:, None], table.sizes[first:last]
            v = np.column_stack([X.toarray() if table.is_sparse else X, table.y[rows]])
            if centre:
                means = np.add.reduceat(counts * v, starts) / self.n[part, None]
                self.mean[part], self.level[part] = means[:, :d], means[:, d]
                v = v - np.repeat(means, sizes, axis=0)
            v *= np.sqrt(counts)
            with single_blas_thread():
                for k, (start, size) in enumerate(zip(starts, sizes, strict=True), first):
                    own = v[start : start + size]
                    whole = own.T @ own
                    self.gram[k], self.cross[k] = whole[:d, :d], whole[:d, d]
                    self.square[k] = whole[d, d]

    def less(self, coef, intercept=0.0):
        """Of targets less the scores of a model, (d,), or of one for each task, (m, d)."""
        coef, found = np.broadcast_to(coef, self.mean.shape), copy(self)
        product = np.einsum("kij,kj->ki", self.gram, coef)
        found.cross = self.cross - product
        found.square = self.square + np.einsum("ki,ki->k", coef, product - 2.0 * self.cross)
        found.square = np.maximum(found.square, 0.0)
        if self.centre:
            found.level = self.level - intercept - np.einsum("ki,ki->k", self.mean, coef)
        return found

    def joint(self):
        """Of rows (x, 1), which are not centred."""
        found, n, mean = copy(self), self.n[:, None], self.mean
        found.gram = np.empty((len(n), mean.shape[1] + 1, mean.shape[1] + 1))
        found.gram[:, :-1, :-1] = self.gram + n[..., None] * mean[:, :, None] * mean[:, None]
        found.gram[:, -1, :-1] = found.gram[:, :-1, -1] = n * mean
        found.gram[:, -1, -1] = self.n
        last = self.n * self.level
        found.cross = np.column_stack([self.cross + last[:, None] * mean, last])
        found.square = self.square + last * self.level
        found.mean, found.level = np.zeros_like(found.cross), np.zeros_like(last)
        found.centre = False
        return found


@dataclass(eq=False)
class Priors:
    """Priors of one shape around one centre, of all tasks."""

    root: np.ndarray  # (d, r) or (d,), R, or its diagonal
    log_weights: np.ndarray  # (m, S), logarithms of prior weights
    # (m,), scale of the first prior, where the others are those of `SNR`
    kappa: np.ndarray | None = None
    strength: np.ndarray | None = None  # (m, S), rho; None: by `kappa` and `SNR`, or `SNR` alone
    trust: float = 1.0  # power of the evidence
    centre: np.ndarray | None = None  # (d,) or (m, d)
    # `reach`, `share`: (m, S), (m,); c_s, and what it is in tasks without evidence; None: 1
    reach: np.ndarray | None = None
    share: np.ndarray | None = None
    rounding: float = 1e-9  # part of y'y that Q is at least
    width: float | None = None  # as of `skpmtl.local.prior.LocalModels.average`


class Moments(NamedTuple):
    """Posterior of models theta of all tasks, given the variance s^2 of the noise."""

    # (m,), logarithm of the weighted sum of the evidence; -inf where a model is not finite
    evidence: np.ndarray
    mean: np.ndarray  # (m, D)
    # `unit`, `between`: (m, D, D); the covariance is s^2 unit + between
    unit: np.ndarray
    between: np.ndarray
    energies: np.ndarray  # (m,), average of Q, the squared errors of the modes plus their penalties
    # (m,), average of the effective number of coefficients, sum_i l_i / (l_i + rho_s)
    used: np.ndarray


def moments(sums, priors):
    """`Moments` of the coefficients of all tasks under these priors."""
    m, d = sums.mean.shape
    found = Moments(np.empty(m), np.empty((m, d)), *np.empty((2, m, d, d)), *np.empty((2, m)))
    step = max(_BLOCK // (d * max(d, priors.log_weights.shape[1])), 1)
    with np.errstate(all="ignore"), single_blas_thread():
        for first in range(0, m, step):
            part = slice(first, first + step)
            for whole, block in zip(found, _block(sums, priors, part), strict=True):
                whole[part] = block
    return found


def _block(sums, priors, part):
    """`moments` of some tasks."""
    n, mean, gram, cross = (a[part] for a in (sums.n, sums.mean, sums.gram, sums.cross))
    square = sums.square[part]
    root = np.diag(priors.root) if priors.root.ndim == 1 else priors.root
    A = root.T @ gram @ root
    good = np.isfinite(A).all(axis=(1, 2)) & np.isfinite(cross).all(axis=1) & np.isfinite(square)
    A[~good] = 0.0
    values, V = np.linalg.eigh(A)
    values, B = np.maximum(values, 0.0), root @ V
    trace = np.einsum("kii->k", A)
    far = (row_products(mean, root) ** 2).sum(axis=1)
    flat = trace <= 1e-24 * (trace + n * far)  # features that do not vary leave rounding errors
    dof = np.where(flat, 0.0, n - float(sums.centre and priors.width is None))
    flat = dof <= 0
    # Scales of scores are those of the row where rows do not differ.
    rho = _strengths(priors, part, trace, np.where(flat, far, trace / n))
    S = rho.shape[1]
    reach = 1.0
    right = np.einsum("kji,kj->ki", B, cross)[..., None]
    squares = square[:, None]
    centre = None
    if priors.centre is not None:
        centre = np.broadcast_to(priors.centre, sums.mean.shape)[part]
        reach = np.ones((len(n), S)) if priors.reach is None else priors.reach[part]
        product = np.einsum("kij,kj->ki", gram, centre)
        right = right - np.einsum("kji,kj->ki", B, product)[..., None] * reach[:, None]
        overlap = [np.einsum("ki,ki->k", centre, a)[:, None] for a in (cross, product)]
        squares = squares - reach * (2.0 * overlap[0] - reach * overlap[1])
    x = right / (values[..., None] + rho[:, None])
    # Of targets less the scores of the centre, a zero of which is a rounding error.
    energies = np.maximum(
        squares - (right * x).sum(axis=1), priors.rounding * square[:, None] + 1e-300
    )
    sizes = np.log1p(values[..., None] / rho[:, None]).sum(axis=1)
    used = (values[..., None] / (values[..., None] + rho[:, None])).sum(axis=1)
    logs = priors.log_weights[part] - priors.trust * 0.5 * (dof[:, None] * np.log(energies) + sizes)
    top = logs.max(axis=1, keepdims=True)
    p = np.exp(logs - top)
    mass = p.sum(axis=1, keepdims=True)
    evidence, p = np.where(flat, 0.0, (top + np.log(mass))[:, 0]), p / mass
    if priors.width is not None and sums.centre:
        evidence = evidence + 0.5 * np.log(2.0 * np.pi / n) - np.log(priors.width)
    x[flat] = 0.0
    mode = np.einsum("kis,ks->ki", x, p)
    W, D = np.einsum("kij,kj->ki", B, mode), B @ (x - mode[..., None])
    if centre is not None:
        share = 1.0 if priors.share is None else priors.share[part]
        reach = np.where(flat[:, None], np.reshape(share, (-1, 1)), reach)
        part_of = np.einsum("ks,ks->k", reach, p)
        W = W + part_of[:, None] * centre
        D = D + centre[..., None] * (reach - part_of[:, None])[:, None]
    most = _most_of_score(sums.noise_prior, square, (p * energies).sum(axis=1), dof)
    least = (np.maximum(trace / n, np.where(flat, 1.0, _OFF) * far) / most)[:, None]
    h = np.einsum("kis,ks->ki", 1.0 / (values[..., None] + np.maximum(rho, least)[:, None]), p)
    unit, between = (B * h[:, None]) @ B.transpose(0, 2, 1), (D * p[:, None]) @ D.transpose(0, 2, 1)
    good &= np.isfinite(W).all(axis=1)
    evidence, averages = np.where(good, evidence, -np.inf), np.stack([energies, used], axis=1)
    return evidence, W, unit, between, *np.einsum("ks,kas->ak", p, averages)


def _most_of_score(noise_prior, square, energies, dof):
    """Most that a prior may add to the variance of a score, in units of the noise, (m,)."""
    rows, variance = noise_prior or (NOISE_ROWS, np.inf)
    more = rows * np.minimum(variance, square / np.maximum(dof, 1.0))
    return np.maximum(_OF_TARGETS * (square + more) / (energies + more), CAP)


def _strengths(priors, part, trace, level):
    """rho of some tasks, whose scores vary by `level`, in units of the prior."""
    if priors.strength is not None:
        rho = priors.strength[part]
    else:
        rho = np.maximum(level, 1e-300)[:, None] / SNR
        if priors.kappa is not None:
            rho = np.column_stack([1.0 / np.maximum(priors.kappa[part], 1e-300), rho])
    return np.maximum(rho, 1e-12 * trace[:, None])


def by_evidence(found):
    """Shares (S, m) of several `Moments`, by their evidence; those that are not finite have none.

    Where none is finite, the first has all.
    """
    evidence = np.stack([part.evidence for part in found])
    evidence[0] = np.where(np.isfinite(evidence).any(axis=0), evidence[0], 0.0)
    share = np.exp(evidence - evidence.max(axis=0))
    return share / sum(share)


def mixed_moments(found, shares):
    """`Moments` of which these have these shares, (S, m), which sum to 1."""
    total = [0.0] * 5
    for part, share in zip(found, shares, strict=True):
        for i, a in enumerate(part[1:]):
            weight = share.reshape(-1, *[1] * (a.ndim - 1))
            total[i] = total[i] + np.where(weight > 0, weight * a, 0.0)
    mean, unit, between, *rest = total
    for part, share in zip(found, shares, strict=True):
        away = np.where(share[:, None] > 0, part.mean - mean, 0.0)
        between += share[:, None, None] * away[:, :, None] * away[:, None]
    with np.errstate(divide="ignore"):
        logs = np.stack([part.evidence for part in found])
        return Moments(np.logaddexp.reduce(logs), mean, unit, between, *rest)


def with_intercept(found, mean, level, unit=0.0, between=0.0):
    """`Moments` of (w, b) from those of w, with the level of a task, of such a variance.

    mean : ndarray (m, d)
        Mean rows, at which a score is the level.
    """
    m, d = mean.shape
    L = np.concatenate([np.broadcast_to(np.eye(d), (m, d, d)), -mean[:, None]], axis=1)
    covariances = [L @ part @ L.transpose(0, 2, 1) for part in (found.unit, found.between)]
    for part, own in zip(covariances, (unit, between), strict=True):
        part[:, d, d] += own
    theta = np.einsum("kij,kj->ki", L, found.mean)
    theta[:, d] += level
    return found._replace(mean=theta, unit=covariances[0], between=covariances[1])


def free_intercept(found, sums):
    """`with_intercept`, of a level that is free: the mean of y; 0 without intercepts."""
    return with_intercept(found, sums.mean, sums.level, sums.centre / sums.n)


def shifted(found, model):
    """`Moments` of which a model is added to all."""
    return found._replace(mean=found.mean + model)


def own_noise(found, sums, width=None, free=None):
    """Variance of the noise by a task's own rows. -> expected variance, degrees of freedom

    found : Moments
        Of which `energies` and `used` count.

    With a prior of `NOISE_ROWS` rows. Their variance is that of y where models may go through all
    rows, and nears what models leave with rows beyond the coefficients; where the target has a
    public range of this `width`, one row in n has a sixth of it as std, as two rows of the
    same y would otherwise be sure of it. Infinite where nothing is known. `free`: rows that the
    intercept costs; None: one, where there is one.
    """
    n, rest = sums.n, np.maximum(sums.n - sums.centre, 0.0)
    differ = (rest > 0) & (sums.square > 1e-24 * n * sums.level**2)  # beyond rounding
    part = np.minimum(1.0, _KNOWN / np.maximum(rest - found.used, 1e-9))
    square = np.where(differ, sums.square**part * found.energies ** (1.0 - part), 0.0)
    ranged = square / np.where(differ, rest, 1.0) if width is None else (width / _RANGE) ** 2
    around = (square + ranged) / np.maximum(n, 1.0)
    own = rest if free is None else n - free
    dof = np.maximum(own + NOISE_ROWS, LEAST_DOF)
    variance = (np.where(differ, found.energies, 0.0) + NOISE_ROWS * around) / (dof - 2.0)
    return np.where(around > 0, variance, np.inf), dof


def posterior(found, noise_variance, dof):
    """`Posterior` from `Moments` of (w, b) and the noise."""
    covariance = noise_variance[:, None, None] * found.unit + found.between
    good = np.isfinite(covariance).all(axis=(1, 2)) & np.isfinite(noise_variance)
    good &= np.isfinite(found.mean).all(axis=1)
    covariance[~good] = np.inf
    return Posterior(covariance, np.where(good, noise_variance, np.inf), dof)


def mixed_noise(p, one, other):
    """Noise, as of `own_noise`, that is `one` with probability p and else the `other`."""
    return tuple(
        np.where(p > 0, p * a, 0.0) + np.where(p < 1, (1.0 - p) * b, 0.0)
        for a, b in zip(one, other, strict=True)
    )
