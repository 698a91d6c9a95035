"""The curators of output perturbation: an average of models, or rounds of noisy models.

Both ask the same query, "model": how far a task's model is from a public centre, which is one
for all, (width,), or one for each of them, (n_tasks, width).
"""

import numpy as np

from ..._runtime.threads import single_blas_thread
from ...exchange.protocol import Query
from ...privacy.mechanisms import clip_rows
from .bounds import bounded
from .relationship import smooth


def release_average(plan):
    """The curator of DP-AGGR: one noisy average (width,) of models around 0."""
    m, centre = plan.n_tasks, np.zeros(plan.width)
    limit = plan.reach(np.zeros(m)).limit

    def sum_of_models(contributions, positions):
        return {"model": bounded(contributions["model"], limit[positions]).sum(axis=0)}

    mechanisms = {"model": plan.mechanisms[0]}
    return (yield Query("model", {"centre": centre}, mechanisms, sum_of_models, m))["model"]


def release_rounds(billboard, plan, log=None):
    """The curator of DP-MTRL, see `skpmtl.exchange`; fills `billboard`, of zeros, and returns it.

    A sum of updates would mix the tasks: every task has a place of its own in the vector that is
    released, so that one of them moves one part of it, by at most 1 in units of its sensitivity.
    """
    m, width = shape = billboard.columns.shape
    # No column is longer than what a task may send in the first round.
    longest = plan.reach(np.zeros(m)).limit.max()
    for t, mechanism in enumerate(plan.mechanisms):
        reach = plan.reach(np.linalg.norm(billboard.columns, axis=1))
        unit = reach.sensitivity[:, None]
        query = Query(
            "model", {"centre": billboard.columns}, {"model": mechanism}, places_of(reach, shape)
        )
        noisy = (yield query)["model"]
        billboard.models = billboard.columns + unit * noisy.reshape(shape)
        with single_blas_thread():
            billboard.columns = smooth(billboard.models, billboard.alpha / billboard.lam)
        clip_rows(billboard.columns, longest)
        billboard.releases.append(noisy)
        billboard.sensitivity.append(reach.sensitivity)
        if log is not None:
            std = mechanism.noise_std * reach.sensitivity
            log(t + 1, std.min(), std.max())
    return billboard


def places_of(reach, shape):
    """``combine`` that stores each update at its position, in units of its sensitivity.

    `shape` is (n_tasks, width).
    """

    def combine(contributions, positions):
        U = np.zeros(shape)
        U[positions] = bounded(contributions["model"], reach.limit[positions])
        U[positions] /= reach.sensitivity[positions, None]
        return {"model": U.ravel()}

    return combine
