"""Posterior of a task's model of classes: Laplace's approximation at the given model.

With p_i the probabilities of a task's model, s_i = p_i (1 - p_i) and prior g,
w ~ N(a_g, (rho_g M_g^-1)^-1), of share q_g,

    S_g = (X' C diag(s) C X + rho_g M_g^-1)^-1,   D_g = S_g (X' C (t - p) + rho_g M_g^-1 (a_g - w)),
    E w = w + D,  D = sum_g q_g D_g,   Cov w = sum_g q_g (S_g + D_g D_g') - D D',

where C takes rows less their mean with weights s, and D_g is how far the mode under prior g is
from the model, by one Newton step. The scales of a prior are two, with mean and spread of the
logarithms of all. The level, the score at that mean, is independent of w and has
the variance 1 / (sum_i s_i + 1 / variance of its prior), and where it is free the mean of a prior
about 0.

Of C classes each is taken alone: with p_c (1 - p_c), and precisions of the prior times (C - 1) / C,
S_c is the covariance of the log-odds of the class, as far as all others are alike.

Probabilities are averaged as MacKay does it ("The evidence framework applied to classification
networks", Neural Computation 4(5), 1992): of a score eta of variance v they are those of
eta / sqrt(1 + pi v / 8).
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit

from .._runtime.threads import single_blas_thread
from ..tables.datafits import LOGISTIC, POISSON
from ..tables.table import common_scores, row_products, rows_of, table_of
from ..tables.targets import class_shares
from .posterior import CAP, TaskSums
from .prior import SNR, LocalModels
from .softmax import softmax

FREE_LEVEL = 2.0  # std of levels that are not pooled: of logits, before anything is known
_LEAST_SHARE = 0.01  # of a prior that counts
_LEAST = 1e-6  # of p (1 - p)
_TIE = 1e-9  # between two scores
_LEAST_SPREAD = 1e-8  # of the eigenvalues of a shape, over their mean
_BLOCK = 1 << 20  # numbers of matrices that are worked on at a time


@dataclass(eq=False)
class ClassPriors:
    """Priors of one shape around one centre, of all tasks."""

    # `share`, `kappa`: (m, S); posterior probabilities of these priors, whose covariances are
    # kappa M
    share: np.ndarray
    kappa: np.ndarray
    moment: np.ndarray | None = None  # (d, d) or (d,), M, or its diagonal; None: the identity
    centre: np.ndarray | None = None  # ([C,] d) or (m, [C,] d); None: 0
    reach: np.ndarray | None = None  # (m, S), what it is multiplied by; None: 1
    free: bool = False  # whether the last number is a level, of std `FREE_LEVEL` about 0


class Expansion(LocalModels):
    """`LocalModels.about` of two classes, or of counts, by their losses to second order at scores.

    Rows weigh their curvature h, targets are the working response z, and the noise is known. What
    the loss at a mode is more than its expansion, h (z - s)^2 / 2, is taken from its evidence.

    Parameters
    ----------
    table : TaskTable
    score : ndarray (n_rows,)
        Without what the table adds.
    fit_intercept : bool
    """

    def __init__(self, table, score, fit_intercept):
        self._given = table
        self._loss = LOGISTIC if table.n_classes else POISSON
        curvature, step = self._loss.working(table.y, score + table.base_of_one)
        self._curvature, self._response = curvature, score + step
        weight, support = table.counts * curvature, np.asarray(table.support, dtype=float)
        mean = np.add.reduceat(weight, table.offsets[:-1]) / support
        inner = replace(
            table,
            y=self._response,
            weights=weight / np.repeat(mean, table.sizes),
            n_classes=0,
            masses=support,
            base=None,
            loss="squared",
        )
        super().__init__(inner, fit_intercept=fit_intercept, precision=mean)

    def about(self, root, centres, priors, take=None):
        """As of `LocalModels`."""
        out = np.empty((self.table.n_tasks, len(centres), len(priors)))
        for p, prior in enumerate(priors):

            def corrected(tasks, evidence, W, b, energies, p=p):
                evidence = evidence - self._excess(tasks, W, b)[:, :, None]
                out[tasks, :, p] = evidence[:, :, 0]
                if take is not None and p == 0:
                    take(tasks, evidence, W, b, energies)

            super().about(root, centres, prior[None], corrected)
        return out

    def _excess(self, tasks, W, b):
        """Losses less their expansions, up to a constant of the task, (n, N)."""
        rows = rows_of(self._given.offsets, tasks)[0]
        part = table_of(self._given, tasks)
        score = common_scores(part, W) + np.repeat(b, part.sizes, axis=0)
        loss = self._loss.value(part.y[:, None], score + np.reshape(part.base_of_one, (-1, 1)))
        loss -= 0.5 * self._curvature[rows, None] * (self._response[rows, None] - score) ** 2
        return np.add.reduceat(part.counts[:, None] * loss, part.offsets[:-1])


def averaged_scores(mean, variance, score, n_classes):
    """Scores of which probabilities are those averaged over normal scores.

    These have `mean` and `variance`. All are (...), or (..., n_classes) of more than two. The class
    of `score`, that of the model, stays the likeliest, by as little as there is.
    """
    several = n_classes > 2
    if several:
        mean = mean - mean.mean(axis=-1, keepdims=True)
    found = mean / np.sqrt(1.0 + np.pi / 8.0 * np.maximum(variance, 0.0))
    if not several:
        return np.where((found > 0) == (score > 0), found, np.where(score > 0, _TIE, 0.0))
    first = score.argmax(axis=-1)[..., None]
    top = found.max(axis=-1, keepdims=True)
    wrong = found.argmax(axis=-1)[..., None] != first
    np.put_along_axis(
        found, first, np.where(wrong, top + _TIE, np.take_along_axis(found, first, -1)), -1
    )
    return found


def two_scales(criterion):
    """Two scales, equally likely, with mean and spread of log10 of those of `SNR`. (m, 2)

    criterion : ndarray (m, len(SNR))
        Like -2 log posterior.
    """
    with np.errstate(all="ignore"):
        share = np.exp(-0.5 * (criterion - np.fmin.reduce(criterion, axis=1, keepdims=True)))
    share = np.nan_to_num(share)
    share /= np.maximum(share.sum(axis=1, keepdims=True), 1e-300)
    place = np.log10(SNR)
    # Products of matrices would sum in an order that depends on how many tasks there are.
    middle = (share * place).sum(axis=1)
    spread = np.sqrt(np.maximum((share * place**2).sum(axis=1) - middle**2, 0.0))
    return 10.0 ** np.stack([middle - spread, middle + spread], axis=1)


def free_level(mass, level):
    """Posterior of levels that maximise the likelihood, under N(0, FREE_LEVEL^2).

    -> shift, variance (m,). `mass` (m,) is the sum of s_i over the rows of a task, `level` that of
    its model, from which the mean is shifted.
    """
    variance = 1.0 / (mass + FREE_LEVEL**-2)
    return -variance * FREE_LEVEL**-2 * level, variance


def class_posterior(table, W, b, priors, level):
    """Means and covariances of models W (m, [C,] d), b (m, [C]) of classes, by attribute.

    "posterior_shift_" (m, [C,] d + 1) is the posterior mean less the model, intercept last, and
    "covariance_" (m, [C,] d + 1, d + 1); infinite where models, or what follows from their rows,
    are not finite. `priors` are of differences to the public initial model, where the table is one
    of these. `level` is as `free_level`; None: there are no intercepts.
    """
    one = W.ndim == 2
    W, b = (W[:, None], b[:, None]) if one else (W, b)
    good = np.isfinite(W).all(axis=(1, 2)) & np.isfinite(b).all(axis=1)
    W, b = np.where(good[:, None, None], W, 0.0), np.where(good[:, None], b, 0.0)
    m, C, d = W.shape
    shift, out = np.zeros((m, C, d + 1)), np.zeros((m, C, d + 1, d + 1))
    with np.errstate(all="ignore"), single_blas_thread():
        score = common_scores(table, W) + np.repeat(b, table.sizes, axis=0)
        score += 0.0 if table.base is None else table.base
        if C == 1:
            p, target = expit(score), 0.5 * (1.0 + table.y[:, None])
        else:
            p, target = softmax(score), class_shares(table.y, C)
        for c in range(C):
            weight = np.maximum(p[:, c] * (1.0 - p[:, c]), _LEAST)
            response = (target[:, c] - p[:, c]) / weight
            rows = replace(table, y=response, weights=table.counts * weight)
            sums = TaskSums(rows, level is not None)
            step = max(_BLOCK // (d * d), 1)
            for first in range(0, m, step):
                part = slice(first, first + step)
                own = _slopes(sums, W[:, c], priors, c, part, C)
                shift[part, c, :d], out[part, c, :d, :d] = own
            if level is not None:
                shift[:, c, d] = -np.einsum("ki,ki->k", shift[:, c, :d], sums.mean)
                last = np.einsum("kij,kj->ki", out[:, c, :d, :d], sums.mean)
                out[:, c, :d, d] = out[:, c, d, :d] = -last
                own = np.einsum("ki,ki->k", W[:, c], sums.mean) + b[:, c]
                moved, variance = level(sums.n, own)
                shift[:, c, d] += moved
                out[:, c, d, d] = np.einsum("ki,ki->k", last, sums.mean) + variance
    good &= np.isfinite(out).all(axis=(1, 2, 3)) & np.isfinite(shift).all(axis=(1, 2))
    shift[~good], out[~good] = np.inf, np.inf
    found = {"posterior_shift_": shift, "covariance_": out}
    return {name: values[:, 0] for name, values in found.items()} if one else found


def _slopes(sums, W, priors, c, part, C):
    """Means, less W, and covariances of the slopes of one class, of some tasks."""
    gram, cross, mean, W = sums.gram[part], sums.cross[part], sums.mean[part], W[part]
    m, d = W.shape
    factor = 1.0 if C == 1 else (C - 1.0) / C
    wild = ~np.isfinite(gram).all(axis=(1, 2))
    gram[wild] = 0.0
    shift, total, trust = np.zeros((m, d)), np.zeros((m, d, d)), np.zeros(m)
    for prior in priors:
        M = np.ones(d) if prior.moment is None else prior.moment
        M = np.diag(M) if M.ndim == 1 else M
        least = _LEAST_SPREAD * np.trace(M) / d
        values, Q = np.linalg.eigh(M)
        inverse = (Q / np.maximum(values, least)) @ Q.T
        # No prior adds more to a score at a row of mean size than `CAP`.
        size = np.einsum("kij,ij->ki", gram, M).sum(axis=1) / sums.n[part]
        size += np.einsum("ki,ki->k", row_products(mean, M), mean)
        centre = prior.centre
        if centre is not None:
            centre = centre if C == 1 else centre[..., c, :]
            centre = np.broadcast_to(centre, (len(sums.n), d))[part]
        for s in range(prior.share.shape[1]):
            mine = np.flatnonzero(prior.share[part, s] > _LEAST_SHARE)
            if not len(mine):
                continue
            share = prior.share[part, s][mine]
            rho = 1.0 / np.maximum(prior.kappa[part, s][mine], 1e-30)
            held = np.maximum(factor * rho, size[mine] / CAP)[:, None, None] * inverse
            if prior.free:
                held[:, -1, -1] = factor * FREE_LEVEL**-2
            A = gram[mine] + held
            trace = np.einsum("kii->k", A)
            A[:, np.arange(d), np.arange(d)] += 1e-13 * trace[:, None] + 1e-300
            S = np.linalg.inv(A)
            away = -W[mine]
            if centre is not None:
                reach = 1.0 if prior.reach is None else prior.reach[part, s][mine, None]
                away = away + reach * centre[mine]
            pull = rho[:, None] * np.einsum("ki,ij->kj", away, inverse)
            if prior.free:
                pull[:, -1] = -(FREE_LEVEL**-2) * W[mine, -1]
            right = cross[mine] + pull
            D = factor * np.einsum("kij,kj->ki", S, right)
            shift[mine] += share[:, None] * D
            total[mine] += share[:, None, None] * (S + D[:, :, None] * D[:, None])
            trust[mine] += share
    trust[wild] = np.nan
    shift /= trust[:, None]
    return shift, total / trust[:, None, None] - shift[:, :, None] * shift[:, None]
