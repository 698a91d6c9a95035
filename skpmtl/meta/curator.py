"""Curator of meta-learning: averages updates to which the tasks have added noise."""

from functools import partial

import numpy as np

from ..exchange.protocol import PublicDraw, Query, run_away
from ..privacy.mechanisms import clip_rows

_HELD = 3.0  # times the median length of updates without a budget


def release_init(plan, log=None):
    """The curator of all rounds, see `skpmtl.exchange`. -> init (n_outputs, size)

    In every round some tasks get the initialisation, at first `plan.begin`, and the mean of their
    updates moves it. A round adds no noise here (the mechanism of its `Query` is None): every task
    has added its own before anything left it, also to what a curator alone would see. With a
    relation the result is G (r, n_outputs, size), and updates are multiplied by the row of their
    task.

    Yields a PublicDraw of the order of the tasks, once in each visit, and a Query for the weighted
    sum of the updates of the next tasks in that order. `log` is called with the numbers of a round
    and of its tasks. Raises ValueError when rounds without noise diverge.
    """
    init = plan.begin.copy()
    of_rounds = {"scaling": plan.scaling} if plan.columns else {}
    t, lengths, longest = 0, [], plan.longest
    for _ in range(plan.visits):
        order = (yield PublicDraw(lambda source: source.permutation(len(plan.sizes))))["drawn"]
        for first in range(0, len(order), plan.tasks_per_round):
            pick = np.sort(order[first : first + plan.tasks_per_round])
            query = Query(
                "update",
                {**of_rounds, "init": init, "round": t, "everybody": pick},
                {"update": None},
                partial(sum_of_updates, plan),
                len(pick),
                pick,
                task_side_adds=True,
                bound=longest,
            )
            update = (yield query)["update"]
            if plan.gain is not None:
                update = np.tensordot(plan.gain, update, axes=1)
            init += plan.meta_rate * update
            if plan.mode is None:  # clipped updates cannot run away
                lengths.append(np.linalg.norm(update))
            t += 1
            if log is not None:
                log(t, len(pick))
    everybody = plan.tasks_per_round >= len(plan.sizes)
    if run_away(lengths, everybody) or not np.isfinite(init).all():
        raise ValueError(
            "The rounds diverged: their updates grow, or are not finite. Take a smaller "
            'inner_learning_rate or meta_learning_rate, or "auto", and scale X to rows of length '
            "about 1."
        )
    return init


def sum_of_updates(plan, contributions, positions):
    """``combine`` of the updates, noisy as they are, each within `MetaPlan.longest_updates`.

    With `MetaPlan.holds` within `_HELD` times the median of their lengths, where all are finite.
    Otherwise what is not finite counts as 0. For privacy none of it is needed: noise is in already.
    It bounds what a site that sends anything else can do to the initialisation.
    """
    sent = np.asarray(contributions["update"], dtype=float)
    weights = np.ones(len(sent)) if plan.to is None else plan.to[positions].T
    flat = sent.reshape(len(sent), plan.n_outputs * plan.size)
    if plan.holds:
        with np.errstate(all="ignore"):
            lengths = np.sqrt(np.einsum("ij,ij->i", flat, flat))
            bound = _HELD * np.median(lengths)
            if bound > 0.0 and np.isfinite(flat).all():
                weights = weights * np.minimum(1.0, bound / lengths)
    else:
        flat = flat.copy()
        clip_rows(flat, plan.longest_updates()[positions])
    return {"update": np.tensordot(weights, flat.reshape(sent.shape), axes=1)}
