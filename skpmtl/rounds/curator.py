"""Curator of the rounds: noisy sums of clipped updates move the centres.

The curator sees one clipped update per task and round. It publishes

    u_t = (sum of clipped updates + N(0, s_t^2 I)) / m,    w~_t = w~_(t-1) + u_t,

with w~_0 = 0 (models are differences to ``init``) and m the public number of tasks. With clusters
the sums of all clusters make one vector, of which one task moves only one part, so that clusters
cost nothing (parallel composition); w~ of a cluster of m_c of the m tasks then moves by
u_t m / m_c.

With a relation (`skpmtl.tables.relation`) task k lies around v_k G, and adds b_k u_k' to the sum
for its clipped update u_k and public rows |b_k| <= 1: replacing the task moves the sum by
b_k (u - u')', of Frobenius norm |b_k| |u - u'| <= 2 C, and leaving it out by C. As
sum_k b_k v_k' = I, G moves by u_t m.
"""

import math
from numbers import Real

import numpy as np

from ..exchange.protocol import Query, QuerySpec, run_away
from ..exchange.sums import sum_of_clipped
from .plan import BINS

_KEPT = 1 << 22  # numbers of all updates of a fit, up to which they are kept


def kept(plan, centres):
    """Whether the updates of all rounds are."""
    return plan.n_rounds * centres.size <= _KEPT


def release_centre(plan, to, centres, length=None, log=None):
    """The rounds; moves `centres` (n_centres, size), zero at the start, in place.

    Updates of more than 2^22 numbers in all rounds together are not kept among the releases. `to`
    is public: the centre of each task, (n_tasks,), or what it multiplies its contribution by, rows
    (n_tasks, n_centres) of length 1 at most. `length` is that of the models of most tasks, where
    the plan follows it; None: updates are in units of their tasks.

    Yields a Query for "update", the sum of the clipped updates (n_centres, size), in every round.
    -> releases, clip norms. Raises ValueError when rounds without noise diverge.
    """
    releases, bounds, lengths = [], [], []
    private = plan.noise_multiplier is not None
    limits, own_units = plan.bounds(length), plan.measures and length is None
    clip_norm = limits[0] if private and limits else math.inf
    step = gains(to)[:, None]
    keep = kept(plan, centres)
    for t in range(plan.n_rounds):
        update = plan.update_mechanism(clip_norm) if private else None
        released = yield Query(
            "update",
            {"centre": centres, "clip_norm": clip_norm, "own_units": own_units},
            {"update": update},
            sum_of_updates(to, clip_norm, centres.shape),
            plan.n_tasks,
            task_side_adds=True,
        )
        total = released.pop("update").reshape(centres.shape)
        bounds.append(clip_norm)
        if private:
            clip_norm = limits[min(t + 1, plan.n_rounds - 1)]
        if not private:
            lengths.append(np.linalg.norm(total))
        if keep:
            releases.append(total if len(centres) > 1 else total[0])
            centres += step * total
        else:  # a large model has no further copy
            total *= step
            centres += total
        del total
        if log is not None:
            log(t + 1, update.noise_std if private else 0.0)
    if run_away(lengths, everybody=True):  # clipped updates cannot
        raise ValueError(
            "The rounds diverged: their updates grow, or are not finite. Scale X to rows of length "
            "about 1, and, with networks, take a smaller learning_rate."
        )
    return releases, bounds


def gains(to):
    """What means over all tasks are multiplied by, (n_centres,): the tasks over those of each."""
    m = len(to)
    return m / np.bincount(to) if to.ndim == 1 else np.full(to.shape[1], float(m))


def sum_of_updates(to, clip_norm, shape):
    """``combine`` of the updates that remote tasks sent; each is clipped here as well.

    A task that is silent (NaN) adds 0, which is what "zero-out" means. `to` is as for
    `release_centre`, `shape` the (n_centres, size) of the sum.
    """

    def combine(contributions, positions):
        total = sum_of_clipped(contributions["update"], clip_norm, to[positions], shape)
        return {"update": total.reshape(shape)}

    return combine


def query_specs_of_rounds(relation, population):
    """Queries of rounds around a relation with bounds by rule. -> {name: QuerySpec}"""
    size = population.n_outputs * population.n_features
    public = {"centre": [(relation.rank, size)], "clip_norm": Real, "own_units": bool}
    return {
        "update": QuerySpec({"update": (size,)}, public),
        "length": QuerySpec({"bins": BINS.shape}),
    }


_LEAST = 0.1  # part of the distance to the optimum by which the first round contracts it at least
# Squared length of covariates without effect, over that of as many models of random signs.
CHANCE = 2.0
_LEAST_ROUNDS = 5  # rounds from which on releases determine it
_NEAR = 0.3  # of the rounds, after which centres are near enough for updates to be linear in them


def shrinkage(updates, centres, noise_std, chance=0.0):
    """Factor of every centre that its known noise leaves. -> factors, left, both (n_centres,)

    A factor is max(0, 1 - N / ||a||^2), with N the expected square of the noise that is left in the
    centre a, and `chance`, the squared length that centres have by chance, without noise. `left` is
    the standard deviation of the noise in a number of a, sqrt(N / size). `updates` (n_rounds,
    n_centres, size) are the noisy moves of the centres from zero, in any unit, or None; `noise_std`
    (n_rounds, n_centres) that of one number of a move, in proportion to the bounds on updates.

    A move of the rounds is r_t = b_t (a* - a_t) + noise. What round t added in noise is corrected
    by all that follow, N = d sum_t sd_t^2 prod_(u > t) (1 - b_u)^2. Where most updates are clipped
    b_t is in proportion to the bound, as sd_t is: b_t = min(b p_t, 1) with p_t = sd_t / max sd,
    which is 1 in every round where bounds do not fall. b is the regression of r_t / p_t, whose
    noise is the same in all rounds, on a_t, over the last n rounds, 70 % of all: far from a*
    clipped updates have a bounded length, and their slope is too small. It is biased by 4 / n, as
    an autoregression is: noise moves a_(t+1) and is corrected in r_(t+1).
    """
    T, size = len(noise_std), centres.shape[1]
    chance = np.broadcast_to(chance, len(centres))
    factors, left = np.zeros(len(centres)), np.zeros(len(centres))
    near = slice(int(_NEAR * T), T)
    for g, a in enumerate(centres):
        sd, b = noise_std[:, g], _LEAST
        pace = sd / sd.max()
        if updates is not None and T >= _LEAST_ROUNDS:
            r = updates[:, g]
            at, r = (np.cumsum(r, axis=0) - r)[near], r[near] / pace[near, None]
            at = at - at.mean(axis=0)
            slope = -(r * at).sum() / max((at * at).sum(), 1e-300)
            b = max(float(slope) - 4.0 / len(r), _LEAST)
        later = np.cumprod((1.0 - np.minimum(b * pace[:0:-1], 1.0)) ** 2)[::-1]
        noise = size * float(sd**2 @ np.append(later, 1.0))
        factors[g] = max(0.0, 1.0 - (noise + chance[g]) / max(float(a @ a), 1e-300))
        left[g] = np.sqrt(noise / size)
    return factors, left
