"""The curators of output perturbation: an average of models, or rounds of noisy models.

Both ask the same question, "model": how far a task's model is from a public centre, which is one
for all, (width,), or one for each of them, (n_tasks, width).
"""

import numpy as np

from .._kernels.clip import clip_rows
from .._runtime.threads import single_blas_thread
from ..exchange.protocol import Ask
from .bounds import bounded
from .relationship import smooth


def release_average(plan):
    """The curator of DP-AGGR, see `skpmtl.exchange`: one noisy average of models around 0.

    Parameters
    ----------
    plan : AggregationPlan

    Returns
    -------
    average : ndarray (width,)
    """
    m, centre = plan.n_tasks, np.zeros(plan.width)
    limit = plan.reach(np.zeros(m)).limit

    def sum_of_models(contributions, positions):
        return {"model": bounded(contributions["model"], limit[positions]).sum(axis=0)}

    mechanisms = {"model": plan.mechanisms[0]}
    return (yield Ask("model", {"centre": centre}, mechanisms, sum_of_models, m))["model"]


def release_rounds(board, plan, log=None):
    """The curator of DP-MTRL, see `skpmtl.exchange`; fills and returns `board`.

    A sum of updates would mix the tasks: every task has a place of its own in the vector that is
    released, so that one of them moves one part of it, by at most 1 in units of its sensitivity.

    Parameters
    ----------
    board : RelationshipBillboard
        With columns of zeros.
    plan : RelationshipPlan
    log : callable, default=None
    """
    m, width = shape = board.columns.shape
    # No column is longer than what a task may send in the first round.
    longest = plan.reach(np.zeros(m)).limit.max()
    for t, mechanism in enumerate(plan.mechanisms):
        reach = plan.reach(np.linalg.norm(board.columns, axis=1))
        unit = reach.sensitivity[:, None]
        ask = Ask(
            "model", {"centre": board.columns}, {"model": mechanism}, places_of(reach, shape)
        )
        noisy = (yield ask)["model"]
        board.models = board.columns + unit * noisy.reshape(shape)
        with single_blas_thread():
            board.columns = smooth(board.models, board.alpha / board.lam)
        clip_rows(board.columns, longest, 2, board.columns)
        board.releases.append(noisy)
        board.sensitivity.append(reach.sensitivity)
        if log is not None:
            std = mechanism.noise_std * reach.sensitivity
            log(t + 1, std.min(), std.max())
    return board


def places_of(reach, shape):
    """``combine`` of updates that are not added up: each in units of its sensitivity, in its place.

    Parameters
    ----------
    reach : Reach
    shape : tuple
        (n_tasks, width)
    """

    def combine(contributions, positions):
        U = np.zeros(shape)
        U[positions] = bounded(contributions["model"], reach.limit[positions])
        U[positions] /= reach.sensitivity[positions, None]
        return {"model": U.ravel()}

    return combine
