"""The curator half of mean-regularised rounds: what is published beside the centres."""

import numpy as np

from ..exchange.protocol import Ask
from ..exchange.sums import clipped_sum
from ..rounds.curator import gains, kept, release_centre
from ..rounds.scale import common_length, sum_of_bins
from ..rounds.shrinkage import CHANCE, shrinkage


def publish(plan, board, population, to, source, log=None):
    """The curator of a fit, see `skpmtl.exchange`: the rounds, then the mean intercepts.

    Parameters
    ----------
    plan : MeanPlan
    board : MeanBillboard
        With the public settings and the centres of the start; what is released fills it.
    population : Population
    to : ndarray (n_tasks,) of int64 or (n_tasks, n_centres)
        Public: the centre of each task, or what it multiplies its contribution by, rows of length
        1 at most.
    source : noise source
        For the report, which names it.
    log : callable, default=None

    Yields
    ------
    Ask for "length", the histogram of `skpmtl.rounds.scale`, and "intercept", where
    `plan` has budgets for them, and between them what `release_centre` does.

    Returns
    -------
    board : MeanBillboard
    """
    m, reach = population.n_tasks, gains(to)
    board.releases, board.scale_mu = [], plan.scale_mu
    board.step = plan.server_rate * reach[:, None]
    length = None
    if plan.scale is not None:
        ask = Ask("length", {}, {"bins": plan.scale}, sum_of_bins)
        board.releases.append((yield ask)["bins"])
        length = common_length(board.releases[0], plan.scale.noise_std, m)
    board.own_units = plan.measures and length is None
    releases, bounds = yield from release_centre(plan, to, board.centres, length, log)
    board.releases += releases
    board.clip_norms = bounds
    board.doubt[:] = plan.doubt
    if plan.noise_multiplier is not None:
        noise = [plan.mechanisms(bound)[0].noise_std for bound in bounds]
        updates = board.moves() if kept(plan, board.centres) else None
        chance = 0.0
        if plan.measures and board.relation is not None and len(reach) > 1:
            # tasks can leave a centre aside, but not one row of it
            chance = CHANCE * (length or 1.0) ** 2 * np.sum(to**2, axis=0)
        board.shrinkage, left = shrinkage(
            updates, board.centres, np.outer(noise, board.step), chance
        )
        board.noise_std = left
        if plan.measures:
            board.centres *= board.shrinkage[:, None]
            board.noise_std = left * board.shrinkage
    if plan.intercept is not None:
        shape = len(reach), population.n_outputs
        middle, bound = plan.intercept_range
        ask = Ask(
            "intercept", {"board": board, "clip_norm": bound, "middle": middle},
            {"intercept": plan.intercept}, clipped_sum("intercept", bound, to, shape), m,
        )  # fmt: skip
        released = (yield ask)["intercept"]
        board.releases.append(released)
        if board.init is not None:
            middle = middle + board.init.intercept
        board.set_intercept(released.reshape(shape) * reach[:, None], middle)
    board.report = plan.report(source, bounds)
    return board
