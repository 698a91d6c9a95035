"""Sums with the noise of the sites in them, so that nobody has to be trusted to add it.

A site has the sum v of what its tasks contribute, as the vector in which the noise of a release is
the same in all directions (`skpmtl.exchange.Total`). Before it is masked it becomes whole numbers
of a public step g (`Grid`), with noise z of its own:

    round(room * v / g) + z,    z normal with standard deviation s / (g sqrt(n)), whole numbers.

s is the standard deviation of the noise that the plan has for the sum; it allows for n sites of
whose noise that of h suffices, and says how many are needed to open a sum, so that there is one
(`skpmtl.exchange.servers`). Masks, and the sum over the sites, are
modulo 2^32, so that what comes out is the sum of these numbers exactly: rounding is before the
noise, and what remains is one release with the noise of all sites that take part, of h at least.

**Rounding.** Neighbours differ in v of one site, by S at most, the sensitivity of the sum. Rounding
adds sqrt(size) g, and room = 1 - sqrt(size) g / S takes as much away.

**Sums of whole normals** are not normal on the grid, for which the accounting takes them, but
nearly so with a standard deviation of `LEAST` steps or more in each of them. Exact discrete normals
(``secure=True``): every probability is exact up to a factor of 1 +- 10 n exp(-pi^2 LEAST^2)
(Kairouz, Liu, Steinke, The distributed discrete Gaussian mechanism, 2021). Normals that are
rounded: up to 1 +- z^2 / (24 LEAST^2) at z standard deviations, 6e-6 at twelve, which is of the
order of what the arithmetic of a report states.

**Range.** g is such that 2^21 steps hold the most that the tasks of a site can add, and 12
standard deviations of its noise. What is beyond, 4e-33 of the probability, is cut off.
"""

import math
from dataclasses import dataclass

import numpy as np

from ..exchange.plan import NoiseParties
from .study import LEVELS

__all__ = ["Grid", "LEAST", "grid_of"]

LEAST = 1024.0  # standard deviation of the noise of one site, in steps
_FAR = 12.0  # standard deviations


@dataclass(frozen=True)
class Grid:
    """How the sum of one query is sent."""

    step: float  # a power of two
    noise_std: float  # of one site, in the units of the sum
    room: float  # factor of sums before they are rounded
    sites: int  # that there are at most
    least: int  # sites without which no sum is opened

    @property
    def range(self):
        """Largest number that a site sends."""
        return self.step * (LEVELS // 2)

    def noise(self, source, size):
        """Noise of one site. -> ndarray (size,) of whole numbers"""
        scale = self.noise_std / self.step
        if source.exact:
            return source.discrete_normal(scale, size)
        return np.rint(source.normal(size) * scale)

    def steps(self, vector):
        """The sum of a site, rounded. -> ndarray of whole numbers"""
        return np.rint(vector * self.room / self.step)

    def sent(self, vector, noise):
        """What a site masks; the protocol takes it for whole numbers of steps, as it is."""
        most = LEVELS // 2
        return np.clip(self.steps(vector) + noise, -most, most) * self.step


def grid_of(study, query):
    """-> Grid

    Raises ValueError when the noise is too little to be rounded.
    """
    ((_, mechanism),) = query.mechanisms.items()
    total = study.questions[query.statistic].total
    noise_parties = NoiseParties(*study.noise_sites)
    std = mechanism.noise_std * query.divide / math.sqrt(noise_parties.count)
    most = total.reach(query.public) * study.secure_sum + _FAR * std
    step = 2.0 ** math.ceil(math.log2(most / (LEVELS // 2)))
    room = 1.0 - math.sqrt(total.size) * step / (mechanism.sensitivity * query.divide)
    if std < LEAST * step or room < 0.9:
        raise ValueError(
            f"The noise of one site, {std:.3g}, or what one task adds, is too little beside sums "
            f"of {study.secure_sum} tasks to be rounded to {step:.3g}. Lower epsilon or "
            "secure_sum, or leave noise_sites out."
        )
    return Grid(step, std, room, noise_parties.count, noise_parties.least)
