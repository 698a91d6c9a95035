"""The planned queries of a study that do not depend on releases.

A site that has them answers nothing else, whoever has signed it: no more queries than the study
has, none out of its place, and none with another bound on contributions than the planned one.

Where releases decide about queries or bounds, because tasks vote or bounds are measured, made-up
runs of the curator do not visit all courses. The site is then sent the releases, which are public,
and runs the curator itself (`skpmtl.federated.transcript`). They are not sent where participants
are drawn, who are secret, nor where releases are large, as those of networks are: what follows from
releases is not compared there.
"""

import warnings
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from ..exchange.protocol import Query
from .refusals import Refusal
from .transcript import check_bound

__all__ = ["PlannedQueries"]

_MOST = 2**21  # numbers of all releases of a study that are sent to sites, 16 MB

# Means and standard deviations of made-up releases, in those of their noise.
_RELEASES = ((0.0, 1.0), (0.0, 0.0), (0.0, 1e3), (1e3, 1.0), (-1e3, 1.0), (3.0, 0.1))


@dataclass(frozen=True)
class _Planned:
    """One step: names that the query may have, None for a draw, and its bound if that is known."""

    statistics: frozenset
    bound: float | None = None


class PlannedQueries:
    """The `steps` of a study, in their order.

    `ends`: whether their number is known, as releases do not decide it; `fixed`: whether no release
    decides which query comes next; `replayed`: whether sites are sent the releases, and make the
    queries themselves.
    """

    def __init__(self, study):
        self.fixed = study.build()._has_fixed_queries(study.population())
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            made = [_made_up(study, *each) for each in _RELEASES[: None if self.fixed else 1]]
        made = [one for one in made if one is not None]
        runs = [steps for steps, _ in made]
        size = made[0][1] if made else 0
        self.steps, self.ends = [], self.fixed and len(made) > 1 and len(set(map(len, runs))) == 1
        is_settled, draws = self.ends, False
        for steps in zip_longest(*runs):
            steps = [step for step in steps if step is not None]
            statistics = frozenset().union(*(step.statistics for step in steps))
            bounds = {step.bound for step in steps}
            bound = bounds.pop() if len(bounds) == 1 < len(made) else None
            is_settled, draws = is_settled and not bounds, draws or None in statistics
            self.steps.append(_Planned(statistics, bound))
        self.replayed = not (is_settled or draws or size > _MOST)

    def check(self, number, statistic, public):
        """Refuse a query that is not planned.

        Raises Refusal.
        """
        if not self.fixed:
            return
        if number >= len(self.steps):
            if not self.ends:
                return
            raise Refusal(
                f"query {number} is none of the study, which has {len(self.steps)}: the curator "
                "asks for more than was agreed"
            )
        planned = self.steps[number]
        if len(planned.statistics) == 1 and statistic not in planned.statistics:
            (name,) = planned.statistics
            raise Refusal(
                f"query {number} is {statistic!r}, and the study has {name or 'a draw'!r} there"
            )
        if planned.bound is not None:
            check_bound(number, public, planned.bound)


def _made_up(study, shift, scale):
    """The curator, to whom noise is given for releases.

    -> list of _Planned, numbers in all releases; None where it stops at them
    """
    est, population, rng = study.build(), study.population(), np.random.default_rng(0)
    source, questions = est._source(), study.questions
    curator = est._queries(population, source)
    steps, reply, size = [], None, 0
    while True:
        try:
            step = curator.send(reply)
        except StopIteration:
            return steps, size
        except (ValueError, ArithmeticError):
            return None
        if not isinstance(step, Query):
            steps.append(_Planned(frozenset([None])))
            reply = {"drawn": step.draw(source)}
            continue
        steps.append(_Planned(frozenset([step.statistic]), step.public.get("clip_norm")))
        one = {k: np.zeros((1, *s)) for k, s in questions[step.statistic].shapes.items()}
        nobody = step.pick is None or not len(step.pick)
        place = np.zeros(1, np.int64) if nobody else step.pick[:1]
        reply = {}
        for name, total in step.combine(one, place).items():
            if name in step.mechanisms:
                unit = getattr(step.mechanisms[name], "noise_std", 1.0)
                reply[name] = unit * (shift + scale * rng.standard_normal(np.shape(total)))
                size += np.size(total)
