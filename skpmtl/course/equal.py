"""Without a budget: whether slopes are equal, so that levels are all that tasks have of their own.

Restricted likelihood of random levels comes from sums over tasks of products of their rows and
means (`skpmtl.task.posterior.LevelRows`), and the score of a covariance K of slopes from one more:
no task computes slopes. Over the noise that a task leaves on its slopes, K costs tasks that take it
for zero tr K (I + K)^-1 K squares of the noise of a row, over all rows of a task. Slopes are equal
where tr K^2 and its error are less than `MOST`; everything is as without this question otherwise.
"""

import math

import numpy as np

from . import queries
from .likelihood import DEPENDENT, sure_of

# .2 % of the noise of ten rows, which is below what ten draws of a table tell apart.
MOST = 0.02
_STEPS, _TOL = 50, 1e-4  # on the ratio of variances; in its standard error


def find(loop):
    """Learn the centre with equal slopes. -> whether they are; else the model is as before"""
    d, m, before = loop.d, loop.model.n_present, loop.model
    if 4.0 * d * (d + 1.0) > MOST * m:  # the error of tr K^2 alone is more
        return False
    loop.update(root=np.zeros((d, d)))
    fit = yield from _level_fit(loop)
    if fit is not None:
        ratio, centre, noise, information = fit
        residual = np.append(-centre, 1.0) / noise
        values, vectors = np.linalg.eigh(information)
        whiten = (vectors * np.sqrt(m / values)) @ vectors.T
        (squares, *scores), _ = yield from loop.ask(
            queries.SlopeScores(ratio, residual, whiten), 0.0
        )
        size = (np.linalg.norm(scores) + math.sqrt(squares)) / m
        if size**2 < MOST:
            loop.take_equal()
            scales = sure_of(loop.model, sigma=noise, tau=math.sqrt(ratio) * noise)
            loop.update(centre=centre, **scales)
            return True
    loop.model = before
    return False


def _level_fit(loop):
    """Restricted likelihood, by scoring on the ratio g of the variances of levels and rows.

    With R = sum M of the tasks, e'R e = rss and p columns the slope of the deviance by g is

        sum w - tr(R^-1 dR) - (N - p) e'dR e / rss,    dR = sum w^2 fbar fbar',

    and the expected second derivative sum w^2 - (sum w)^2 / (N - p).

    -> g, centre (d + 1,), standard deviation of a row, products of columns (d, d); None where
    columns are dependent, or rows and levels are not told apart
    """
    p, ratio = loop.d + 1, 1.0
    for _ in range(_STEPS):
        question = queries.LevelSums(ratio)
        found, _ = yield from loop.ask(question, 0.0)
        N, of_w, of_w2, R, slope = question.parts(found, p + 1)
        XX = R[:p, :p]
        sizes = np.sqrt(np.maximum(np.diag(XX), 1e-300))
        least = np.linalg.eigvalsh(XX / np.outer(sizes, sizes))[0]
        unsure = of_w2 - of_w**2 / max(N - p, 1.0)
        if N <= p or least < DEPENDENT or unsure < DEPENDENT * of_w2:
            return None
        centre = np.linalg.solve(XX, R[:p, p])
        e = np.append(-centre, 1.0)
        rss = e @ R @ e
        if rss < DEPENDENT * R[p, p]:
            return None
        gain = of_w - np.trace(np.linalg.solve(XX, slope[:p, :p]))
        moved = ((N - p) * (e @ slope @ e) / rss - gain) / unsure
        step = max(moved, -0.9 * ratio)
        if abs(step) * math.sqrt(unsure) < _TOL:
            break
        ratio += step
    return ratio, centre, math.sqrt(rss / (N - p)), XX[1:, 1:]
