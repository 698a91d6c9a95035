"""The queries of a study, made again by everybody from what was released.

A curator is a function of releases and draws, so that sites and servers which receive these make
every query themselves and need not trust the curator for its bound or its noise. A hash of the
replies shows that all parties have the same history. A site answers no other query: no more than
the study has, none in another place, and none with another bound on contributions.

Sites of a trusted curator compare its query with theirs, and answer with its numbers: directions
that follow from a matrix may have other signs on another processor, where sums over sites need the
same ones. Name and number of a query are the same on all processors unless a release lies within
rounding of where a decision changes, some 1e-12 of its noise; the site then refuses, and counts as
silent in the rest of the study. Draws decide only which tasks are asked. These sites are sent "all
tasks" in place of a draw, because the accounting of sampling takes the participants as secret.
"""

import hashlib
import json
import math
from numbers import Real

import numpy as np

from ..exchange.protocol import Query
from .refusals import Refusal

__all__ = ["Transcript", "recorded"]

_ROUNDING = 1e-6  # relative, of bounds that two processors compute from the same releases


class Transcript:
    """What a study released up to now, under the token `run` of the journal; more can be added.

    `replies` are releases and draws, in their order; `codes` are those after none of them, the
    first one, and so on; each hangs on study and run.
    """

    def __init__(self, study, run, replies):
        self.study, self.run, self.replies = study, run, []
        self._code = hashlib.sha256(json.dumps([study.digest, run]).encode())
        self.codes = [self._code.hexdigest()]
        self._curator, self._steps = None, []
        self.extend(replies)

    def extend(self, replies):
        """Add what was released since."""
        for reply in replies:
            for name in sorted(reply):
                array = reply[name]
                self._code.update(json.dumps([name, array.dtype.str, array.shape]).encode())
                self._code.update(np.ascontiguousarray(array))
            self.codes.append(self._code.hexdigest())
        self.replies += replies

    @property
    def steps(self):
        """All queries and draws of the way, and the one after it. -> list of Query and PublicDraw

        Raises Refusal for replies that do not belong to the queries.
        """
        if self._curator is None:
            est, self._population = self.study.build(), self.study.population()
            self._curator = est._queries(self._population, est._source())
            self._steps = [next(self._curator)]
        for reply in self.replies[len(self._steps) - 1 :]:
            _check(reply, self._steps[-1], self._population.n_tasks)
            try:  # curators change what they are sent
                step = self._curator.send({k: array.copy() for k, array in reply.items()})
            except StopIteration:
                raise Refusal(
                    f"query {len(self._steps)} is none of the study, which has "
                    f"{len(self._steps)}: the curator asks for more than was agreed"
                ) from None
            except (ValueError, ArithmeticError) as error:
                raise Refusal(f"the study does not go on from these releases: {error}") from error
            self._steps.append(step)
        return self._steps

    def query(self, number):
        """The query of this number, which has to be the next one.

        Raises Refusal.
        """
        if number != len(self.replies):
            raise Refusal(f"query {number} after {len(self.replies)} releases")
        step = self.steps[-1]
        if not isinstance(step, Query):
            raise Refusal(f"query {number} is none, but a draw")
        return step

    def check(self, number, statistic, public):
        """Refuse a query that does not follow from what was released; raises Refusal."""
        query = self.query(number)
        if statistic != query.statistic:
            raise Refusal(
                f"query {number} is {statistic!r}, and the study has {query.statistic!r} there"
            )
        if "clip_norm" in query.public:
            found, planned = public.get("clip_norm"), query.public["clip_norm"]
            if not isinstance(found, Real) or not math.isclose(found, planned, rel_tol=_ROUNDING):
                raise Refusal(
                    f"query {number} has clip_norm={found!r}, and the study plans {planned!r}"
                )


def _check(reply, step, m):
    """Refuse what is no reply to a step."""
    if not isinstance(step, Query):
        found = reply.get("drawn")
        known = set(reply) == {"drawn"} and found.dtype == np.int64 and found.ndim == 1
        if not known or not ((found >= 0) & (found < m)).all():
            raise Refusal("a draw that is none of the study")
        return
    if set(reply) != set(step.mechanisms):
        raise Refusal("a release of other sums than those of the study")
    for name, mechanism in step.mechanisms.items():
        found = reply[name]
        other = mechanism is not None and found.size != math.prod(mechanism.shape)
        if found.dtype != np.float64 or other or not np.isfinite(found).all():
            raise Refusal(f"a release of {name} that is none of the study")


def recorded(curator, replies, shown):
    """The curator, with a copy of all that it is sent in the list `replies`.

    ``shown(drawn)`` takes the place of what was drawn.
    """
    reply = None
    while True:
        try:
            step = curator.send(reply)
        except StopIteration as end:
            return end.value
        reply = yield step
        told = reply if isinstance(step, Query) else {"drawn": shown(reply["drawn"])}
        replies.append({name: np.array(array) for name, array in told.items()})
