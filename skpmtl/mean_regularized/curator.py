"""Curator of mean-regularised rounds: lengths, centres, mean intercepts."""

import numpy as np

from ..exchange.protocol import Query
from ..exchange.sums import clipped_sum
from ..rounds.curator import CHANCE, gains, kept, release_centre, shrinkage
from ..rounds.plan import common_length, sum_of_bins
from .billboard import PooledBillboard


def publish(plan, billboard, population, to, source, log=None):
    """The curator of a fit, see `skpmtl.exchange`: the rounds, then the mean intercepts.

    Parameters
    ----------
    plan : MeanPlan
    billboard : MeanBillboard
        With the public settings and the first centres; releases fill it.
    population : Population
    to : ndarray (n_tasks,) of int64 or (n_tasks, n_centres)
        Public: the centre of each task, or what it multiplies its contribution by, rows of length
        1 at most.
    source : noise source
        For the report, which names it.
    log : callable, default=None

    Yields
    ------
    Query for "length", the histogram of lengths, and "intercept", where
    `plan` has budgets for them, and between them what `release_centre` does.

    Returns
    -------
    billboard : MeanBillboard
    """
    m, reach = population.n_tasks, gains(to)
    billboard.releases, billboard.scale_mu = [], plan.scale_mu
    billboard.step = plan.server_rate * reach[:, None]
    length = None
    if plan.scale is not None:
        query = Query("length", {}, {"bins": plan.scale}, sum_of_bins)
        billboard.releases.append((yield query)["bins"])
        length = common_length(billboard.releases[0], plan.scale.noise_std, m)
    billboard.own_units = plan.measures and length is None
    releases, bounds = yield from release_centre(plan, to, billboard.centres, length, log)
    billboard.releases += releases
    billboard.clip_norms = bounds
    billboard.alone_weight[:] = plan.alone_weight
    if plan.noise_multiplier is not None:
        noise = [plan.mechanisms(bound)[0].noise_std for bound in bounds]
        updates = billboard.moves() if kept(plan, billboard.centres) else None
        chance = 0.0
        if plan.measures and billboard.relation is not None and len(reach) > 1:
            # tasks can leave a centre aside, but not one row of it
            chance = CHANCE * (length or 1.0) ** 2 * np.sum(to**2, axis=0)
        billboard.shrinkage, left = shrinkage(
            updates, billboard.centres, np.outer(noise, billboard.step), chance
        )
        billboard.noise_std = left
        if plan.measures:
            billboard.centres *= billboard.shrinkage[:, None]
            billboard.noise_std = left * billboard.shrinkage
    if plan.intercept is not None:
        shape = len(reach), population.n_outputs
        middle, bound = plan.intercept_range
        query = Query(
            "intercept", {"billboard": billboard, "clip_norm": bound, "middle": middle},
            {"intercept": plan.intercept}, clipped_sum("intercept", bound, to, shape), m,
        )  # fmt: skip
        released = (yield query)["intercept"]
        billboard.releases.append(released)
        if billboard.init is not None:
            middle = middle + billboard.init.intercept
        billboard.set_intercept(released.reshape(shape) * reach[:, None], middle)
    billboard.report = plan.report(source, bounds)
    return billboard


def pooled(course):
    """The curator of a fit around a pooled model: what a course over structures published."""
    return PooledBillboard(**vars((yield from course)))
