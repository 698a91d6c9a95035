"""The curator half of mean-regularised rounds: budget, noise, and what is published.

The curator sees one clipped update per participating task and round. It publishes

    u_t = (sum of clipped updates + N(0, s_t^2 I)) / q,    w~_t = w~_(t-1) + eta u_t,

with w~_0 = 0 and q a public constant: the number of tasks, or the sampling rate times it,
whoever takes part and also when nobody does. With clusters the sums of all clusters make one
vector, of which one task moves only one part, so that clusters cost nothing (parallel
composition); w~ of a cluster of m_c of the m tasks then moves by eta u_t m / m_c.
"""

import math

import numpy as np

from .._kernels.clip import clip_rows
from ..exchange.protocol import Ask, Draw
from ..tables.finite import run_away
from .plan import doubt
from .scale import common_length, sum_of_bins
from .shrinkage import shrinkage

_KEPT = 1 << 22  # numbers of all updates of a fit, up to which they are kept


def publish(plan, board, population, which, source, log=None):
    """The curator of a fit, see `skpmtl.exchange`: the rounds, then the mean intercepts.

    Parameters
    ----------
    plan : MeanPlan
    board : MeanBillboard
        With the public settings and the centres of the start; what is released fills it.
    population : Population
    which : ndarray (n_tasks,) of int64
        Centre of each task (public).
    source : noise source
        For the report, which names it.
    log : callable, default=None

    Yields
    ------
    Ask for "length", the histogram of `skpmtl.mean_regularized.scale`, and "intercept", where
    `plan` has budgets for them, and between them what `release_centre` does.

    Returns
    -------
    board : MeanBillboard
    """
    groups = np.bincount(which)
    board.releases, board.scale_mu = [], plan.scale_mu
    board.step = plan.server_rate * (population.n_tasks / groups)[:, None]
    length = None
    if plan.scale is not None:
        ask = Ask("length", {}, {"bins": plan.scale}, sum_of_bins)
        board.releases.append((yield ask)["bins"])
        length = common_length(board.releases[0], plan.scale.noise_std, population.n_tasks)
    board.own_units = plan.measures and length is None
    releases, bounds = yield from release_centre(plan, which, board.centres, length, log)
    board.releases += releases
    board.clip_norms = bounds
    board.doubt[:] = plan.doubt
    if plan.noise_multiplier is not None:
        noise = [plan.mechanisms(bound)[0].noise_std for bound in bounds]
        updates = board.moves() if kept(plan, board.centres) else None
        board.shrinkage = shrinkage(updates, board.centres, np.outer(noise, board.step))
        if plan.measures:
            board.centres *= board.shrinkage[:, None]
            part = np.sum(board.centres**2, axis=1) / (length or 1.0) ** 2
            board.doubt[:] = doubt(plan.ratio, part)
        board.doubt[board.shrinkage == 0.0] = 1.0
    if plan.intercept is not None:
        shape = len(groups), population.n_outputs
        middle, bound = plan.intercept_range
        ask = Ask(
            "intercept", {"board": board, "clip_norm": bound, "middle": middle},
            {"intercept": plan.intercept}, sum_of_intercepts(which, bound, shape),
            population.n_tasks,
        )  # fmt: skip
        released = (yield ask)["intercept"]
        board.releases.append(released)
        shift = middle + released.reshape(shape) * (population.n_tasks / groups)[:, None]
        board.mean_intercept = shift if board.cluster_of is not None else shift[0]
    board.report = plan.report(bounds, source)
    return board


def kept(plan, centres):
    """Whether the updates of all rounds are."""
    return plan.n_rounds * centres.size <= _KEPT


def release_centre(plan, which, centres, length=None, log=None):
    """The rounds; moves `centres` in place.

    Updates of more than 2^22 numbers in all rounds together are not kept among the releases.

    Parameters
    ----------
    plan : MeanPlan
    which : ndarray (n_tasks,) of int64
        Centre of each task (public).
    centres : ndarray (n_centres, size)
        Zero at the start.
    length : float, default=None
        Of the models of most tasks, where the plan follows it; None: updates are in units of their
        tasks.
    log : callable, default=None

    Yields
    ------
    Draw of the participants, where they are sampled, and Ask for "update": the sum of the clipped
    updates, (n_centres, size), and "inside": how many were inside the bound, minus one half each.

    Returns
    -------
    releases, clip norms

    Raises
    ------
    ValueError
        When rounds without noise diverge.
    """
    releases, bounds, lengths = [], [], []
    private = plan.noise_multiplier is not None
    limits, own_units = plan.bounds(length), plan.measures and length is None
    clip_norm = limits[0] if private and limits else math.inf
    step = plan.server_rate * (len(which) / np.bincount(which))[:, None]
    keep = kept(plan, centres)
    for t in range(plan.n_rounds):
        pick = None
        if plan.sampling != "all":
            pick = (yield Draw(plan.draw))["drawn"]
        update, counter = plan.mechanisms(clip_norm) if private else (None, None)
        mechanisms = {"update": update}
        if counter is not None:
            mechanisms["inside"] = counter
        released = yield Ask(
            "update", {"centre": centres, "clip_norm": clip_norm, "own_units": int(own_units)},
            mechanisms, sum_of_updates(which, clip_norm, centres.shape), plan.denominator, pick,
            half_adds=True,
        )  # fmt: skip
        total = released.pop("update").reshape(centres.shape)
        bounds.append(clip_norm)
        if private and counter is None:
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
        if counter is not None:
            inside = released["inside"]
            releases.append(inside)
            clip_norm = plan.next_bound(clip_norm, inside[0] + 0.5)
        if log is not None:
            log(t + 1, update.noise_std if private else 0.0)
    if run_away(lengths, everybody=plan.sampling == "all"):  # clipped updates cannot
        raise ValueError(
            "The rounds diverged: their updates grow, or are not finite. Take a smaller "
            "local_learning_rate or server_learning_rate, and scale X to rows of length about 1."
        )
    return releases, bounds


def sum_of_updates(which, clip_norm, shape):
    """``combine`` of the updates that tasks elsewhere sent; every one is clipped here, too.

    A task that is silent (NaN) adds 0 to both sums, which is what "zero-out" means; a count of
    one that answered is at most 1/2 from that, whatever it sent.

    Parameters
    ----------
    which : ndarray (n_tasks,)
        Centre of each task.
    clip_norm : float
    shape : tuple
        (n_centres, size)
    """

    def combine(contributions, positions):
        inside = np.nan_to_num(np.asarray(contributions["inside"], dtype=float), nan=0.0)
        total = clipped_sum(contributions["update"], which[positions], clip_norm, shape)
        return {
            "update": total.reshape(shape),
            "inside": np.array([np.clip(inside, -0.5, 0.5).sum()]),
        }

    return combine


def sum_of_intercepts(which, clip_norm, shape):
    """``combine`` of the mean intercepts: like `sum_of_updates`, as one flat vector."""

    def combine(contributions, positions):
        b = contributions["intercept"]
        return {"intercept": clipped_sum(b, which[positions], clip_norm, shape)}

    return combine


def clipped_sum(contributions, which, clip_norm, shape):
    """Sum of the clipped contributions by centre, flat."""
    D, total = np.array(contributions, dtype=float), np.zeros(shape)
    clip_rows(D, clip_norm, 2, D)
    np.add.at(total, which, D)
    return total.ravel()
