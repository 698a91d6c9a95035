"""A task's model around a centre that may be good or bad: an average by its own evidence.

A task that was given a centre can take it as the mean of a Gaussian prior of many widths, or not
at all. It averages its models under all of them by how probable each made its own rows, times a
public prior weight. That is local: nothing leaves the task, and no other task's rows count.
"""

import numpy as np

from .._kernels.average import averages, class_averages, right_sides
from .._kernels.grams import rotate, tridiagonal
from .._kernels.losses import NUMBER
from .._runtime.registers import LANES
from .._runtime.threads import even_blocks, run_blocks
from ..tables.table import padded, read_only, rows_of
from .prior import _BLOCK, _Block, in_eights, scratch

# Strengths of regularisation towards the centre, in units of the one without an evidence: public.
STRENGTHS = np.array([0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0])
CLASS_STRENGTHS = np.array([0.2, 1.0, 5.0, 25.0])  # the same for log-losses
_SPREAD = 0.7  # of their prior, in powers of ten
_LEAST_CLASSES = 5  # from which on the determinant of a score counts for two of them
HELD = 0.5  # of a row of every class, at the mean of a task's rows
_HELD_INIT = 10.0  # rows of all classes at least, with a public initial model that has intercepts
# Class averages step until the next step promises less than this part of one unit of log-loss.
_STEPS, _TOL = 60, 1e-6
_AMPLE = 12.0  # priors that are so much less likely, in logarithms, do not count
ROUNDING = 1e-13  # Q is known up to this part of the squared targets


class Candidates:
    """Priors that a task averages over: alone, and around its centre at several strengths.

    Parameters
    ----------
    own_strength : ndarray (n_tasks,)
        Regularisation strength towards the centre, in units of which `strengths` are.
    alone_weight : ndarray (n_tasks,)
        Prior weight of going alone, against 1 for all priors around the centre together.
    reaches : tuple of (float, float or ndarray (n_tasks,))
        What the centre is multiplied by, and the prior weight of that.
    ridge : float, default=0.0
        Regularisation strength towards zero, in addition to all of them.
    single_strength : ndarray (n_tasks,), default=None
        Regularisation strength towards zero of a task alone; None: all strengths, as towards
        the centre.
    strengths : ndarray, default=`STRENGTHS`

    Attributes
    ----------
    strength : ndarray (n_tasks, n_candidates)
        Towards centre and zero together; those alone come first.
    reach : ndarray (n_tasks, n_candidates)
        Multiples of the centre around which the priors are.
    prior : ndarray (n_tasks, n_candidates)
        Logarithms of the prior weights.
    share : ndarray (n_tasks,)
        Multiple of the centre that the strengths alone would leave, for tasks without evidence.
    """

    def __init__(
        self,
        own_strength,
        alone_weight,
        reaches=((1.0, 1.0),),
        ridge=0.0,
        single_strength=None,
        strengths=STRENGTHS,
    ):
        weights = np.exp(-0.5 * (np.log10(strengths) / _SPREAD) ** 2)
        weights, alone_weight = weights / weights.sum(), alone_weight[:, None]
        around = np.multiply.outer(own_strength, strengths)
        alone = around, weights
        if single_strength is not None:
            alone = single_strength[:, None], np.ones(1)
        strength = np.hstack([alone[0]] + [around] * len(reaches))
        reach = [np.full(len(strengths), float(c)) for c, _ in reaches]
        self.strength = strength + ridge
        reach = np.concatenate([np.zeros(alone[0].shape[1]), *reach])
        self.reach = reach * (strength / self.strength)
        given = [np.reshape(p, (-1, 1)) * weights + 0.0 * alone_weight for _, p in reaches]
        self.prior = np.log(np.hstack([alone[1] * alone_weight, *given]))
        self.share = own_strength / (own_strength + ridge)

    @classmethod
    def one(cls, strength, ridge=0.0):
        """A single prior: the model has this regularisation, whatever the evidence."""
        found = object.__new__(cls)
        found.strength, found.prior = (strength + ridge)[:, None], np.zeros((len(strength), 1))
        found.share = strength / (strength + ridge)
        found.reach = found.share[:, None]
        return found


def averaged_models(table, fit_intercept, scale, candidates, centres, which, unit):
    """Averages over priors of all tasks, squared loss, dense rows. -> evidence, W, b

    `scale` (n_tasks,) is the weight of the sum of the losses of a task, and the unit of the
    strengths. A task multiplies its centre, centres[which[k]], by unit[k]. The evidence is the
    logarithm of that of all priors together, times their weights, up to what is common to all
    priors; -inf for tasks without evidence, see `skpmtl.local.prior.mixed`.

    The formulas are in `skpmtl._kernels.average`. A task whose rows do not differ from one another
    has its centre. Rows n and features d of a task cost n d min(n, d), and its candidates min(n, d)
    each.
    """
    d, sizes, support = table.n_features, table.sizes, table.support
    W, b, evidence = np.empty((table.n_tasks, d)), np.empty(table.n_tasks), np.empty(table.n_tasks)
    rho = candidates.strength / scale[:, None]
    factor = np.ones(d)

    def run(tasks):
        places, ends = rows_of(table.offsets, tasks)
        pick = places if table.rows is None else table.rows[places]
        y = table.y[places]
        weights = table.counts[places]
        block = _Block(read_only(table.X), pick, factor, ends, fit_intercept, support[tasks])
        for part, ends, F, K in block._parts(weights, y):
            mine, count, R = tasks[part], len(F), K.shape[2]
            right, sums = np.zeros((count, 2, R)), np.empty((count, 3))
            around = centres, which[mine], unit[mine]
            with np.errstate(all="ignore"):
                right_sides(F, K, ends, d, block.v, *around, right, sums)
                T = np.zeros((2, count, R))
                tridiagonal(K, ends, d, *T, np.zeros(R), np.zeros(R))
                own, level, mean = support[mine], block.level[part], block.mean[part]
                trace = np.cumsum(T[0], axis=1)[:, -1]
                size = trace + own * np.einsum("kj,kj->k", mean, mean)
                dof = np.where(trace <= 1e-24 * size, 0, own - bool(fit_intercept))
                floor = ROUNDING * (sums[:, 0] + own * (1e-3 * level) ** 2) + 1e-300
                scales = in_eights(
                    np.maximum(rho[mine], 1e-12 * trace[:, None]),
                    candidates.reach[mine],
                    candidates.prior[mine],
                )
                found, likely = np.empty((count, d)), np.empty(count)
                averages(
                    F,
                    K,
                    ends,
                    d,
                    T,
                    right,
                    sums,
                    dof.astype(float),
                    floor,
                    *scales,
                    candidates.share[mine],
                    *around,
                    *scratch(R, scales[0].shape[1]),
                    found,
                    likely,
                    np.empty(count),
                    1.0,
                )
            W[mine], b[mine] = found, level - np.einsum("kj,kj->k", mean, found)
            evidence[mine] = np.where(dof > 0, likely, -np.inf)

    run_blocks(run, [(tasks,) for tasks in even_blocks(sizes, padded(d, 8), _BLOCK)])
    return evidence, W, b


def determinants(n_outputs):
    """How often the determinant of a score counts in the evidence.

    Laplace's approximation has it once for every score but one. With five classes or more, the
    weights then prefer strengths that are too large for informative rows; half the number, chosen
    on digits and made tasks, agrees with the log-loss of rows left out.
    """
    return 0.5 * max(n_outputs - 1, _LEAST_CLASSES - 1) if n_outputs > 1 else 1.0


def rows_held(table, n_outputs, fit_intercept):
    """How many rows, of all classes alike, hold the intercepts of every task of classes."""
    held = HELD * max(n_outputs, 2)
    return (held if table.base is None else max(held, _HELD_INIT)) * bool(fit_intercept)


def held_evidence(held, support, n_outputs):
    """Part of log evidence that is due to intercepts, where so many rows hold them.

    Their loss where they are content does not count; and by Laplace's approximation the scores
    that they hold have the precision `held` before, and `held` + `support` after the rows.
    """
    if not held:
        return 0.0
    free = 0.5 * max(n_outputs - 1, 1) * np.log(held / (held + support))
    return held * np.log(max(n_outputs, 2)) + free


def averaged_class_models(table, fit_intercept, loss, scale, candidates, centres, which, unit):
    """`averaged_models` for log-losses. -> evidence, W, b, shares

    `centres` are (n_centres, n_outputs * d), `shares` (n_tasks, n_candidates) posterior
    probabilities of the priors. With intercepts a task has `HELD` rows of every class more, at the
    mean of its own ones: they stay finite where a class is missing. Of a step the rows n and
    features d of a task cost n min(n, d), once n d min(n, d).
    """
    d, sizes = table.n_features, table.sizes
    C = centres.shape[1] // d
    W, b = np.empty((table.n_tasks, C, d)), np.empty((table.n_tasks, C))
    evidence = np.empty(table.n_tasks)
    rho, factor = candidates.strength / scale[:, None], np.ones(d)
    shares = np.empty(rho.shape)
    held = rows_held(table, C, fit_intercept)
    settings = NUMBER[loss], 0.25 if C == 1 else 0.5, determinants(C), held

    def run(tasks):
        places, ends = rows_of(table.offsets, tasks)
        pick = places if table.rows is None else table.rows[places]
        y = table.y[places]
        weights = table.counts[places]
        given = table.given if table.base is None else table.base[places]
        block = _Block(read_only(table.X), pick, factor, ends, fit_intercept, table.support[tasks])
        Z = None
        for part, ends, F, K in block._parts(weights, np.zeros(len(y))):
            mine, count, R = tasks[part], len(F), K.shape[2]
            if Z is None:
                Z = np.zeros((count, padded(int(sizes[tasks].max()), 4) + 4, R))
                V, X, product = np.zeros((R, LANES)), np.zeros((LANES, R)), np.zeros((4, LANES))
            T, found, level = np.zeros((2, count, R)), np.empty((count, C, d)), np.empty((count, C))
            likely, some = np.empty(count), np.empty((count, rho.shape[1]))
            with np.errstate(all="ignore"):
                tridiagonal(K, ends, d, *T, np.zeros(R), np.zeros(R))
                rotate(K, ends, d, F, Z[:count], V, X, product)
                class_averages(
                    F,
                    K,
                    Z,
                    ends,
                    d,
                    T,
                    y,
                    *settings,
                    rho[mine],
                    candidates.reach[mine],
                    candidates.prior[mine],
                    _STEPS,
                    _TOL,
                    _AMPLE,
                    centres,
                    which[mine],
                    unit[mine],
                    found,
                    level,
                    likely,
                    weights,
                    given,
                    some,
                )
            shares[mine] = some
            W[mine], b[mine] = found, level - np.einsum("kj,kcj->kc", block.mean[part], found)
            evidence[mine] = likely + held_evidence(held, table.support[mine], C)

    run_blocks(run, [(tasks,) for tasks in even_blocks(sizes, padded(d, 8), _BLOCK)])
    return evidence, W, b, shares
