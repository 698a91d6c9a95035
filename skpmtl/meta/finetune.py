"""Fine-tuning of an initialisation on the rows of each task; nothing leaves the task.

"prox" averages over models that a task could have, by prior weight and evidence of its rows:

- around the initialisation, around 0, and around a public initial model where there is one,
  (w, b) ~ N(init, kappa s^2 I): minima of

      sum_i loss_i + 1 / (2 kappa) ||(w, b) - init||^2,

- the same for w only, with a free intercept (squared loss with intercept),
- alone: the ridge of `LocalOnly` for squared loss, otherwise around the frequencies of the
  classes in the task.

s^2 is the noise variance of squared loss, which is profiled out, and 1 otherwise. Squared loss
averages over all scales kappa; other losses take the likeliest one of each kind by the quadratic
approximation at the initialisation, and compare kinds by Laplace's at the minimum.
"""

import numpy as np
from scipy.special import logsumexp

from .._kernels.average import NO_CENTRES, averages
from .._kernels.finetune import descend, evidence, weighted_rows
from .._kernels.grams import grams, tridiagonal
from .._kernels.losses import LOGISTIC, NUMBER, losses
from .._kernels.passes import scores
from .._kernels.records import inner_steps, record_norms
from .._runtime.registers import LANES
from .._runtime.threads import cost_blocks, even_blocks, run_blocks
from ..local.grams import largest_eigenvalues
from ..local.laplace import ClassPriors, two_scales
from ..local.posterior import (
    Priors,
    TaskSums,
    by_evidence,
    free_intercept,
    mixed_moments,
    moments,
    shifted,
)
from ..local.prior import (
    SNR,
    LocalModels,
    alone_scale,
    best_scale,
    even_root,
    in_eights,
    scratch,
)
from ..tables.table import common_scores, padded, read_only, rows_of
from .rules import BOUND

# Public prior on log10 of kappa times the mean squared length of a row (prior variance of a
# score in units of the noise): centre and spread.
_CENTRE, _SPREAD = -0.75, 0.5
_LOW = 1.0  # spread below the centre, in averages of probabilities: few rows tell little of it
_FREE_CENTRE, _FREE_SPREAD = -0.5, 0.7  # the same where the intercept is free
_ALONE = 0.3  # prior weight of going alone in squared loss, against 1 for an initialisation
# The same of models around 0, at all scales; the error that an initialisation there would have.
_NOWHERE, _NO_INIT = {"squared": 0.3, "logistic": 1.0, "multinomial": 1.0}, 1.0
_FEW = 10  # rows from which these and going alone have that weight: one row is evidence of nothing
_MUCH = 0.1  # least that is left of them, and the part of the variance above which it is less
_WIDTH = 3.0  # of the flat prior of a free intercept, in std of the noise
_MAX_STEPS, _TOL = 300, 1e-9
_BLOCK = 1 << 18  # numbers of matrices, or of X, that a thread works on at a time
_NO_INDEX, _NO_MARKS = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.uint8)
_NO_NOISE = np.empty((0, 0, 0, 0))


class FineTuner:
    """Models of the tasks of a table of dense rows around an initialisation.

    `init` is (n_outputs, n_features + fit_intercept), the intercept last, or (n_tasks, ...), one
    for every task; `own` (n_tasks, n_outputs) is what every task adds to the intercept of it.
    `init_error`, one or of every task, is a public estimate of the squared error of a score of the
    initialisation in units of the noise: the more, the less tasks hold on to it.
    """

    def __init__(self, table, loss, init, fit_intercept, init_error=0.0, own=None):
        self.table, self.loss, self.init = table, loss, np.ascontiguousarray(init)
        self.own = own
        self.shape = self.init.shape[-2:]
        self.centre = np.broadcast_to(np.log10(10.0**_CENTRE + init_error), table.n_tasks)
        self.fit_intercept = fit_intercept
        self.kappa = np.zeros((table.n_tasks, 2))  # two that are likely, of models of classes

    def prox(self):
        """-> log evidence (n_tasks,), models (n_tasks, n_outputs, size)."""
        return models_around([self])[0]

    def priors(self, share):
        """`ClassPriors` of the models of `prox`, which have this share of the posterior."""
        m, (C, size) = self.table.n_tasks, self.shape
        centre = np.array(np.broadcast_to(self.init, (m, C, size)))
        centre, free = centre if C > 1 else centre[:, 0], self.own is not None
        share = np.repeat(0.5 * share[:, None], 2, axis=1)
        return ClassPriors(share, self.kappa, None, centre, free=free)

    def _inits(self, tasks):
        return self.init[None] if self.init.ndim == 2 else self.init[tasks]

    def _changes(self, tasks):
        """Log evidence of some tasks, and what their models add to the initialisation.

        At the initialisation a loss is, to second order, a squared loss of weighted rows. All is
        then done in the smaller space of each task, of its rows or of its coefficients: a Gram
        matrix, made tridiagonal once, after which every scale kappa that is tried costs little.
        """
        table, loss, (C, size) = self.table, NUMBER[self.loss], self.shape
        sizes, m, support = table.sizes[tasks], len(tasks), table.support[tasks]
        pick, ends, y, counts = self._rows(tasks)
        base = self._at_init(tasks, pick, ends)
        D, root = _counted(*derivatives(base, y, loss), counts)
        D /= -root
        squares = np.add.reduceat(sum(D * D), ends[:-1])
        F, K, q, T, whole = self._grams(pick, ends, root, D)
        level = _levels(T, support)
        out = np.zeros((m, C, size))
        scales = SNR / np.where(level > 0, level, np.inf)[:, None]
        logdet, quad = _products(K, T, sizes, size, q, scales)
        criterion = self._criterion(tasks, squares, scales, logdet, quad)
        kappa = best_scale(criterion + self._penalty(tasks), level)
        kappa = np.where(level > 0, kappa, 0.0)
        likely = two_scales(criterion + self._penalty(tasks, _LOW))
        self.kappa[tasks] = np.where(level > 0, 1.0 / level, 0.0)[:, None] * likely
        descend(F, whole, ends, y, base, root, loss, kappa, _MAX_STEPS, _TOL, out, counts)
        # Laplace's approximation at the models, times the public prior of kappa.
        base += self._scores(pick, ends, out)
        D, root = _counted(*derivatives(base, y, loss), counts)
        F, K, q, T, _ = self._grams(pick, ends, root, D)
        scales[:] = kappa[:, None]
        logdet, _ = _products(K, T, sizes, size, q, scales)
        each = row_losses(base, y, loss)
        energy = np.add.reduceat(counts * each, ends[:-1])
        energy += 0.5 * (out * out).sum(axis=(1, 2)) / np.maximum(kappa, 1e-300)
        energy += 0.5 * max(C - 1, 1) * logdet[:, 0]
        at = np.log10(np.maximum(kappa * level, SNR[0]))
        return -energy - 0.5 * ((at - self.centre[tasks]) / _SPREAD) ** 2, out

    def _changes_of_squares(self, tasks, tuners):
        """`_changes` of squared loss for each of `tuners`, with one Gram matrix for all."""
        table, size = self.table, self.shape[1]
        m, support = len(tasks), table.support[tasks]
        pick, ends, y, counts = self._rows(tasks)
        base = np.concatenate([tuner._at_init(tasks, pick, ends) for tuner in tuners])
        D, root = _counted(base - y, np.ones(ends[-1]), counts)
        D /= -root
        F, K, q, T, _ = self._grams(pick, ends, root, D)
        level = _levels(T, support)
        rho = np.maximum(level, 1e-300)[:, None] / SNR
        for s, tuner in enumerate(tuners):
            squares = np.add.reduceat(D[s] * D[s], ends[:-1])
            priors = log_weights(tuner.centre[tasks], _SPREAD)
            out, found = np.zeros((m, 1, size)), np.zeros(m)
            averages(
                F,
                K,
                ends,
                size,
                T,
                q[:, s : s + 1].copy(),
                squares[:, None],
                np.where(level > 0, support, 0.0),
                1e-9 * squares + 1e-300,
                *in_eights(rho, np.zeros_like(rho), priors),
                np.zeros(m),
                *NO_CENTRES,
                *scratch(F.shape[2], len(SNR)),
                out[:, 0],
                found,
                np.empty(m),
                1.0,
            )
            yield found, out

    def _rows(self, tasks):
        """Rows of tasks in X, where each task ends, and their targets and weights."""
        table = self.table
        places, ends = rows_of(table.offsets, tasks)
        pick = places if table.rows is None else table.rows[places]
        return pick, ends, table.y[places], table.counts[places]

    def _at_init(self, tasks, pick, ends):
        """Scores (n_outputs, N) of the rows at the initialisation."""
        starts = self._inits(tasks)
        base = self._scores(pick, ends if len(starts) > 1 else ends[[0, -1]], starts)
        if self.own is not None:
            base += np.repeat(self.own[tasks].T, np.diff(ends), axis=1)
        return base

    def _scores(self, pick, ends, models):
        """Scores (n_outputs, N) of rows under models, one for the rows between two of `ends`."""
        X, d = read_only(self.table.X), self.table.n_features
        out = np.empty((models.shape[1], len(pick)))
        for c in range(len(out)):
            scores(X, pick, True, ends, np.ascontiguousarray(models[:, c, :d]), out[c])
            if self.fit_intercept:
                out[c] += np.repeat(models[:, c, d], np.diff(ends))
        return out

    def _grams(self, pick, ends, root, D):
        """Weighted rows F, F' F = Q T Q' as reflections, right sides, T, and F' F itself."""
        size, sizes = self.shape[1], np.diff(ends)
        m, n = len(sizes), int(sizes.max())
        r = min(n, size)
        R = padded(r + 1, LANES)
        F, K = np.zeros((m, padded(max(n, size), 4), R)), np.zeros((m, padded(r, 4), R))
        q, T = np.zeros((m, len(D), R)), np.zeros((2, m, padded(r, 4)))
        weighted_rows(read_only(self.table.X), pick, ends, self.fit_intercept, root, D, F, q)
        grams(F, ends, size, root, K)
        whole = None if self.loss == "squared" else K.copy()
        tridiagonal(K, ends, size, *T, *np.zeros((2, R)))
        return F, K, q, T, whole

    def _criterion(self, tasks, squares, scales, logdet, quad):
        """-2 log evidence of models of classes at all scales, up to a constant of each task."""
        few = self.table.sizes[tasks][:, None] <= self.shape[1]
        energy = np.where(few, quad, squares[:, None] - scales * quad)
        # One of several outputs counts for nothing: scores of classes have a common shift.
        return energy + logdet * max(self.shape[0] - 1, 1)

    def _penalty(self, tasks, low=_SPREAD):
        """-2 log of the public prior on the scale, whose spread is `low` below its centre."""
        away = np.log10(SNR) - self.centre[tasks][:, None]
        return (away / np.where(away < 0, low, _SPREAD)) ** 2

    def sgd(self, n_steps, rate):
        """`n_steps` gradient steps of length `rate` on the mean loss. -> models

        rate : float or "auto", 1 / smoothness of the task's own loss.
        """
        m = self.table.n_tasks
        out = np.empty((m, *self.shape))
        if isinstance(rate, str):
            rate = own_rates(self.table, self.loss, self.fit_intercept)
        run_inner(
            self.table,
            self.loss,
            self.fit_intercept,
            np.arange(m),
            self.init,
            out,
            n_steps=n_steps,
            rate=np.broadcast_to(np.float64(rate), m),
            weights=even_weights(self.table),
        )
        return out + self.init


def models_around(tuners):
    """`FineTuner.prox` of tuners that differ in what their models are around. -> list"""
    first = tuners[0]
    found = [
        (np.empty(first.table.n_tasks), np.empty((first.table.n_tasks, *t.shape))) for t in tuners
    ]

    def block(tasks):
        # A task whose rows overflow stays at the initialisation, in silence.
        with np.errstate(all="ignore"):
            if first.loss == "squared":
                parts = first._changes_of_squares(tasks, tuners)
            else:
                parts = (tuner._changes(tasks) for tuner in tuners)
            for tuner, (evidence, out), (of_tasks, changes) in zip(
                tuners, found, parts, strict=True
            ):
                changes[~np.isfinite(changes).all(axis=(1, 2))] = 0.0
                evidence[tasks], out[tasks] = of_tasks, tuner._inits(tasks) + changes
                if tuner.own is not None:
                    out[tasks, :, -1] += tuner.own[tasks]

    blocks = even_blocks(first.table.sizes, first.shape[1], _BLOCK)
    run_blocks(block, [(tasks,) for tasks in blocks])
    return found


def _levels(T, support):
    """Mean squared lengths of the rows of tasks, from their tridiagonal forms."""
    level = np.cumsum(T[0], axis=1)[:, -1] / support
    return np.where(np.isfinite(level), level, 0.0)


def log_weights(centre, spread):
    """Logarithms of the prior weights of the scales of `SNR`: normal in their logarithm."""
    found = -0.5 * ((np.log10(SNR) - np.asarray(centre)[..., None]) / spread) ** 2
    return found - logsumexp(found, axis=-1, keepdims=True)


def derivatives(base, y, loss):
    """Of the losses of classes at scores (n_outputs, N), and roots of the weights of the rows."""
    D = np.empty_like(base)
    losses(base, y, 0, len(y), loss, D, np.empty(len(y)), np.ones(len(y)))
    weight = sum(np.abs(D) * (1.0 - np.abs(D))) / max(len(D) - 1, 1)
    return D, np.sqrt(np.maximum(weight, 1e-6))


def _counted(D, root, counts):
    """Derivatives, and roots of the weights of rows, where each row counts so much."""
    return counts * D, np.sqrt(counts) * root


def row_losses(base, y, loss):
    """Losses of classes, row by row, at scores (n_outputs, N)."""
    if loss == LOGISTIC:
        return np.logaddexp(0.0, -y * base[0])
    top = base.max(axis=0)
    whole = top + np.log(sum(np.exp(base - top)))
    return whole - base[y.astype(int), np.arange(len(y))]


def _products(K, T, sizes, size, q, scales):
    """`evidence` of some tasks: logarithms of the determinants, and the products."""
    dets, quad = np.ones((len(sizes), -(-K.shape[2] // 16), len(SNR))), np.empty_like(scales)
    evidence(K, *T, sizes, size, q, scales, dets, quad)
    return np.log(dets).sum(axis=1), quad


def tuned(
    table, loss, init, fit_intercept, places, init_error=0.0, lost=False, plain=None, priors=None
):
    """Averages of the models of a task over kinds of priors: around `init`, at `places`, and alone.

    `places` are models (n_outputs, n_features + fit_intercept) that are known without any release;
    the last one is 0. `lost`: the initialisation counts for nothing; `init` is then the first
    of `places`. `plain` is a second initialisation with its init_error, as likely as the first. The
    list `priors` receives `ClassPriors` of classes. -> models (n_tasks, n_outputs, size)
    """
    starts = [(init, init_error)] if plain is None else [(init, init_error), plain]
    around, shy = _around(table, loss, starts, fit_intercept, places, lost)
    tuners = [FineTuner(table, loss, start, fit_intercept, own) for start, own, _ in around]
    kinds = [
        (found + weight, models)
        for (found, models), (_, _, weight) in zip(models_around(tuners), around, strict=True)
    ]
    if loss == "squared":
        kappa = alone_scale(table, fit_intercept)
        for centre, prior in _with_free_intercepts(table, starts, fit_intercept, shy, not lost):
            local = LocalModels(table, fit_intercept=fit_intercept, centre=centre)
            found, W, b, _ = local.average(even_root(table.n_features), kappa, prior, _WIDTH)
            kinds.append((found, np.column_stack([W, b] if fit_intercept else [W])[:, None]))
    else:
        found, models, tuner = _alone_with_classes(table, loss, places[-1], fit_intercept)
        kinds.append((found + shy, models))
        tuners.append(tuner)
    # Where rows overflow all kinds may: then the first, which is finite, stays.
    good = np.stack([np.isfinite(e) & np.isfinite(W).all(axis=(1, 2)) for e, W in kinds])
    found = np.where(good, [e for e, _ in kinds], -np.inf)
    found[0] = np.where(good.any(axis=0), found[0], 0.0)
    share = np.exp(found - found.max(axis=0))
    share /= sum(share)
    if priors is not None and loss != "squared":
        priors += [tuner.priors(part) for tuner, part in zip(tuners, share, strict=True)]
    (_, out), *others = kinds
    out *= share[0, :, None, None]
    for (_, models), part, usable in zip(others, share[1:], good[1:], strict=True):
        models[~usable] = 0.0
        out += np.multiply(models, part[:, None, None], out=models)
    return out


def posterior_moments(table, init, fit_intercept, places, init_error=0.0, lost=False, plain=None):
    """Posterior of which `tuned` gives the means, of squared loss.

    -> Moments of coefficients and, last, the intercept; TaskSums
    """
    starts = [(init, init_error)] if plain is None else [(init, init_error), plain]
    around, shy = _around(table, "squared", starts, fit_intercept, places, lost)
    sums = TaskSums(table, fit_intercept)
    joint, m, d = sums.joint() if fit_intercept else sums, table.n_tasks, table.n_features
    kinds, root = [], np.ones(d + bool(fit_intercept))
    for start, own, weight in around:
        start, at = start[..., 0, :], np.broadcast_to(np.log10(10.0**_CENTRE + own), m)
        found = moments(joint.less(start), Priors(root, log_weights(at, _SPREAD)))
        found = shifted(found, start)._replace(evidence=found.evidence + weight)
        kinds.append(found if fit_intercept else free_intercept(found, sums))
    kappa = alone_scale(table, fit_intercept)
    for centre, prior in _with_free_intercepts(table, starts, fit_intercept, shy, not lost):
        priors = Priors(even_root(d), prior, kappa, centre=centre, width=_WIDTH)
        kinds.append(free_intercept(moments(sums, priors), sums))
    return mixed_moments(kinds, by_evidence(kinds)), sums


def _around(table, loss, starts, fit_intercept, places, lost):
    """Models around which (w, b) are, with the error of each and the logarithm of its weight.

    -> list of them, and that of what knows no initialisation (n_tasks,)
    """
    shy = _shyness(table)
    if loss == "squared":
        shy = shy + _loyalty(table, starts[0][0], fit_intercept)
    found = [(start, own, -np.log(len(starts))) for start, own in starts]
    found += [(place, _NO_INIT, np.log(_NOWHERE[loss]) + shy) for place in places[lost:]]
    return found, 0.0 * shy if lost and len(places) == 1 else shy


def _with_free_intercepts(table, starts, fit_intercept, shy, around):
    """Kinds of squared loss with a free intercept: alone, and `around` the coefficients and 0.

    Yields the centre, or None, and log weights of the scales, as `LocalModels.average` has them.
    """
    m, d = table.n_tasks, table.n_features
    priors = np.full((1 + len(starts), m, 1 + len(SNR)), -np.inf)
    # With two kinds of intercepts around the initialisation each has half of its weight.
    priors[0, :, 0] = np.log(_ALONE * (1 + bool(fit_intercept and around))) + shy
    if fit_intercept and around:  # and around 0, where coefficients are all noise
        widths = log_weights(np.log10(10.0**_FREE_CENTRE + _NO_INIT), _FREE_SPREAD)
        priors[0, :, 1:] = np.log(_NOWHERE["squared"]) + widths + shy[:, None]
    centres = [None]
    for prior, (init, init_error) in zip(priors[1:], starts, strict=True):
        prior[:, 1:] = log_weights(np.log10(10.0**_FREE_CENTRE + init_error), _FREE_SPREAD)
        prior -= np.log(len(starts))
        centres += [init[..., 0, :d]] if fit_intercept and around else []
    yield from zip(centres, priors, strict=False)


def _shyness(table):
    """Log of the weight that tasks of few rows leave to models without `init`. (n_tasks,)"""
    return np.log(np.clip((table.support - 1) / (_FEW - 1), 1e-3, 1.0))


def _loyalty(table, init, fit_intercept):
    """Logarithm of what is left of the weights without an initialisation that says much. (n_tasks,)

    Scores that have about the variance of the targets are those of tasks that have much in common:
    few of them are unlike the others, and have evidence of it in their rows.
    """
    weights = table.counts
    starts, support = table.offsets[:-1], np.maximum(table.support, 1e-300)

    def spread(v):
        if fit_intercept:
            v = v - np.repeat(np.add.reduceat(weights * v, starts) / support, table.sizes)
        return np.add.reduceat(weights * v * v, starts)

    with np.errstate(all="ignore"):  # rows that overflow
        scores = common_scores(table, np.ascontiguousarray(init[..., : table.n_features]))
        ours, whole = spread(scores[:, 0]), spread(table.y)
        part = np.minimum(ours, whole) / np.maximum(ours, whole)
        return np.nan_to_num(-np.log(np.clip(part / _MUCH, 1.0, 1.0 / _MUCH)))


def _alone_with_classes(table, loss, nowhere, fit_intercept):
    """Kind of classes that knows no initialisation, around the frequencies in each task."""
    own, found = None, 0.0
    if fit_intercept:
        own = log_odds(table, loss, len(nowhere))
        free = max(len(nowhere) - 1, 1)
        found = found + free * (0.5 * np.log(2.0 * np.pi / table.support) - np.log(_WIDTH))
    tuner = FineTuner(table, loss, nowhere, fit_intercept, own=own)
    evidence, models = tuner.prox()
    return found + evidence, models, tuner


def log_odds(table, loss, n_outputs):
    """Log frequencies of the classes in each task, half a row added to each. (n_tasks, n_outputs)

    For the logistic loss of the class 1 over -1, otherwise less their mean.
    """
    classes = 2 if loss == "logistic" else n_outputs
    label = (table.y > 0).astype(int) if loss == "logistic" else table.y.astype(int)
    task = np.repeat(np.arange(table.n_tasks), table.sizes)
    counts = np.bincount(task * classes + label, table.weights, table.n_tasks * classes)
    log = np.log(counts.reshape(-1, classes) + 0.5)
    return log[:, 1:] - log[:, :1] if loss == "logistic" else log - log.mean(axis=1)[:, None]


def _rows(table):
    return (_NO_INDEX if table.rows is None else table.rows), table.rows is not None


def run_inner(
    table,
    loss,
    fit_intercept,
    pick,
    start,
    update,
    *,
    n_steps,
    rate,
    weights,
    begun=0,
    clip_norm=np.inf,
    norms=None,
    batch_size=1.0,
    n_batches=None,
    mask=_NO_MARKS,
    mask_ends=None,
    noise=None,
    noise_step=None,
    shrink=None,
    gradients=_NO_NOISE,
):
    """`inner_steps` of the rows of a table, plain gradient descent by default."""
    m, start = table.n_tasks, start[None] if start.ndim == 2 else start
    if norms is None:
        norms = np.ones(len(table.X))  # read for clipping only
    n_batches = np.ones(m, dtype=np.int64) if n_batches is None else n_batches
    noise_step = np.ones(m) if noise_step is None else noise_step
    shrink, rate = np.ones(m) if shrink is None else shrink, np.array(rate)

    def block(first, last):
        part = slice(first, last)
        mine = start[part] if len(start) > 1 else start
        inner_steps(
            table.X,
            *_rows(table),
            table.offsets,
            table.y,
            norms,
            NUMBER[loss],
            fit_intercept,
            pick[part],
            mine,
            float(clip_norm),
            n_steps,
            begun,
            rate,
            float(batch_size),
            n_batches,
            mask,
            _NO_INDEX if mask_ends is None else mask_ends[first : last + 1],
            _NO_NOISE if noise is None else noise[part],
            noise_step,
            shrink,
            update[part],
            gradients[part],
            weights,
        )

    run_blocks(block, cost_blocks(table.sizes[pick] * table.n_features, _BLOCK))


def even_weights(table):
    """Weights of the rows of a table so that they are 1 in the mean of every task."""
    return table.counts * np.repeat(table.sizes / np.maximum(table.support, 1e-300), table.sizes)


def row_norms(X, fit_intercept):
    """|(x, 1)| of every row, or |x| without intercept."""
    norms, step = np.empty(len(X)), max(_BLOCK // X.shape[1], 1)
    run_blocks(
        lambda part: record_norms(X[part], fit_intercept, norms[part]),
        [(slice(first, first + step),) for first in range(0, len(X), step)],
    )
    return norms


def own_rates(table, loss, fit_intercept):
    """1 / smoothness of every task's mean loss, from its own rows."""
    largest = largest_eigenvalues(table, False)
    smoothness = BOUND[loss] * (1.05 * largest / table.support + fit_intercept)
    return 1.0 / np.maximum(smoothness, 1e-12)
