"""The meta-learner: takes the mean of what tasks send, which is noisy already."""

import numpy as np

from ..exchange.protocol import Ask, Draw
from ..tables.finite import run_away


def rounds(plan, init, decay, log=None):
    """The meta-learner, see `skpmtl.exchange`; moves `init` in place.

    What tasks send is noisy already, and what moves `init` is its sum.

    Raises
    ------
    ValueError
        When rounds without noise diverge.
    """
    t, lengths = 0, []
    for _ in range(plan.visits):
        order = (yield Draw(lambda source: source.permutation(len(plan.sizes))))["drawn"]
        for first in range(0, len(order), plan.tasks_per_round):
            pick = np.sort(order[first : first + plan.tasks_per_round])
            ask = Ask(
                "update", {"init": init, "round": t, "everybody": pick}, {"update": None},
                plan.sum_of_updates, len(pick), pick,
            )  # fmt: skip
            update = (yield ask)["update"]
            init += plan.meta_rate * decay**t * update
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
