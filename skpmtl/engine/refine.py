"""Few rows: the floor and the rank of a moment by votes on evidence, and rounds that refine it.

A curator has a `Refinement`, and gives it two generators that query the tasks:

- ``vote(share, priors, what) -> differences, std`` of a vote on evidence (`skpmtl.engine.votes`);
- ``block(share, moment, basis, rank) -> S, variance`` of a sum of u u' (`skpmtl.engine.spectrum`).
"""

import math

import numpy as np

from ..privacy.moments import LEAST_NOISE, sampling_variance
from .spectrum import (
    FLOORS,
    PRIOR_OF_FLOORS,
    PRIOR_OF_NEW,
    PRIOR_OF_RIVALS,
    PRIOR_OF_STEPS,
    RANK_FLOOR,
    RIVAL_FLOORS,
    STEPS,
    WEIGHTS_OF_NEW,
    Spectrum,
)
from .votes import Tally

# A rank is taken where it is likelier than the moment as it is, by so many nats, nats per task and
# std of the noise; rounds follow where the floor is below _SHARP.
_LEAST_GAIN, _GAIN, _SURE = 30.0, 0.05, 2.0
_SHARP = 0.2


def read_rivals(tally):
    """Of a vote on a prior and rivals of it at `RIVAL_FLOORS`: their log odds, and their floor."""
    released = np.diff(tally.total)
    rivals = Tally(released[1:], tally.std, len(RIVAL_FLOORS))
    weights = rivals.weights(PRIOR_OF_RIVALS)
    return float(weights @ tally.total[1:]), float(np.exp(weights @ np.log(RIVAL_FLOORS)))


class Refinement:
    """The moment of one fit, from vote to vote.

    `tilt` is that of `shrink_matrix`; for `vote` and `block` see the module. `spectrum` has the
    directions that few rows refine, None before `sharpen` has found some, and `floor` is what its
    floor is multiplied by. `has_rivals` until another prior has lost to it.
    """

    def __init__(self, n_tasks, tilt, vote, block):
        self.n_tasks, self.tilt, self._vote, self._block = n_tasks, tilt, vote, block
        self.spectrum, self.floor = None, 1.0
        self.has_rivals = True

    @property
    def moment(self):
        """Shape of the prior, (d, d)."""
        return self.spectrum.moment(self.floor)

    def noise(self, variance, d):
        """Arguments of `shrink_matrix` for a moment (d, d) with noise of this variance."""
        std = max(math.sqrt(variance), LEAST_NOISE) / math.sqrt(2.0)
        sampling = math.sqrt(sampling_variance(self.n_tasks, d) / 2.0)
        return std, float(self.n_tasks), self.tilt, sampling

    def sharpen(self, S, variance, shares, rivals=(), refine=False):
        """Rank and floor of a released moment S, by votes; kept where they are clearly likelier.

        `shares` are of the votes on rank, floor and the `rivals`, another prior at `RIVAL_FLOORS`,
        which must not be likelier. `refine`: keep it only where the floor is so low that rounds of
        blocks are worth their budget.
        """
        d = len(S)
        known = Spectrum.of(S, *self.noise(variance, d))
        if not known.rank:
            return
        ranks, fewer = known.of_ranks()
        priors = [known.moment(), *(s.moment(RANK_FLOOR) for s in fewer)]
        tally = yield from self._tally(shares[0], priors, "rank")
        gain, ranks = tally.total[1:] - tally.total[0], np.array(ranks)
        net = gain - ranks * (d - ranks)  # Akaike's: the same rows have shaped the directions
        net -= _SURE * tally.std * np.sqrt(np.arange(1, len(net) + 1))
        best = int(net.argmax())
        if net[best] <= 0.0 or gain[best] <= max(_GAIN * self.n_tasks, _LEAST_GAIN):
            return
        floor = yield from self._floor_of(shares[1], fewer[best])
        if refine and floor >= _SHARP:
            return
        if refine and len(rivals):
            priors = [fewer[best].moment(floor), *rivals]
            tally = yield from self._tally(shares[2], priors, "structure")
            if read_rivals(tally)[0] >= 0.0:
                return
            self.has_rivals = False
        self.spectrum, self.floor = fewer[best], floor

    def block_round(self, share, votes):
        """Move the directions, add new ones, and set the floor again.

        `share` is that of the sum of blocks, `votes` are those of step, new directions and floor.
        """
        spectrum = self.spectrum
        S, variance = yield from self._block(share, self.moment, spectrum.basis, spectrum.rank)
        std, _, tilt, sampling = self.noise(variance, len(S))
        step, E, sizes = spectrum.read_block(S, std, tilt, sampling, self.n_tasks)
        moved = [spectrum.moved(a * step).moment(self.floor) for a in STEPS]
        tally = yield from self._tally(votes[0], moved, "step")
        spectrum = spectrum.moved(float(tally.weights(PRIOR_OF_STEPS) @ STEPS) * step)
        if len(sizes):
            grown = [spectrum.grown(E, sizes, b).moment(self.floor) for b in WEIGHTS_OF_NEW]
            tally = yield from self._tally(votes[1], grown, "weight of new directions")
            weight = float(tally.weights(PRIOR_OF_NEW) @ WEIGHTS_OF_NEW)
            spectrum = spectrum.grown(E, sizes, weight)
        self.spectrum = spectrum
        self.floor = yield from self._floor_of(votes[2], spectrum)

    def _floor_of(self, share, spectrum):
        """Geometric mean of the floors by the posterior of a vote."""
        tally = yield from self._tally(share, [spectrum.moment(f) for f in FLOORS], "floor")
        return float(np.exp(tally.weights(PRIOR_OF_FLOORS) @ np.log(FLOORS)))

    def _tally(self, share, priors, what):
        released, std = yield from self._vote(share, priors, what)
        return Tally(released, std, len(priors))
