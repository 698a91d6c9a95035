"""Servers in place of a trusted curator: additive shares of sums, noise from each server.

A sum of bounded contributions is rounded to the grid of its mechanism and divided into P numbers
modulo 2^64, one for every server, of which any P - 1 together are uniform whatever the sum is.
Every server adds up what it is sent, adds noise of its own, and publishes the total; the P totals
add up to the release. Nothing is multiplied, so that servers need no messages among themselves.

**Noise.** Every server adds Gaussian noise of standard deviation s / sqrt(P), s that of the
release. Who sees everything at P - 1 servers, and the totals, can subtract all noise but that of
one server that is honest. A plan for P servers therefore has mu / sqrt(P) of the budget of a
trusted curator (`divided_mu`), which makes s = sqrt(P) sensitivity / mu: one server alone then
adds sensitivity / mu, which is mu-GDP for whoever controls all the others. With less noise than
that of all servers, the public is better protected than the report says.

**Rounding** is that of a trusted curator where one site has all tasks, to the last bit. With n
sites each rounds its own sum, by half a step of the grid at most, 2^-24 of the noise: neighbours
differ in the sum of one site, so that the sensitivity is that of one rounding.

**What is not checked.** Shares are uniform numbers, and servers cannot see whether a sum is within
its bounds: a site that does not bound its contributions, or sends anything else, changes the
release by as much as it likes. It does not weaken the guarantee of others, whose bounded
contributions meet the same noise. A server that adds no noise, or passes on what it receives, is
a dishonest one of the P - 1; a server that falsifies its total changes the release, and learns
nothing by it.
"""

import math
import os
from dataclasses import replace

import numpy as np

from ..privacy.rng import replied

__all__ = ["SumServer", "opened", "release", "shares"]

_LARGEST = 2.0**61  # steps of a sum, so that those of several sites do not wrap around
_FREE_BITS = 40  # of a sum that is released without further noise, below its bound


# ---------------------------------------------------------------------------- numbers
def step_of(mechanism, bound):
    """Public unit of the whole numbers that are shared."""
    if mechanism is not None:
        return mechanism.step
    if bound is None:
        raise ValueError("A sum without noise and without a public bound cannot be shared.")
    return 2.0 ** (math.ceil(math.log2(bound)) - _FREE_BITS)


def shares(query, sums, n_servers):
    """What every server is sent of the sums of one site. -> list of {name: ndarray of uint64}

    `sums` are those before they are divided by ``query.divide``.
    """
    parts = [{} for _ in range(n_servers)]
    for name, mechanism in query.mechanisms.items():
        total = np.asarray(sums[name], dtype=float) / query.divide
        if mechanism is None:
            steps = np.rint(total / step_of(None, query.bound))
        else:
            steps = mechanism.steps(total)
        if not np.abs(steps).max(initial=0.0) < _LARGEST:  # also of what is not finite
            raise ValueError(
                "A sum is not finite, or too large for the whole numbers that servers add: it "
                "exceeds the noise 2^37 times. Lower clip_norm or epsilon."
            )
        left = steps.astype(np.int64).view(np.uint64)
        for part in parts[1:]:
            part[name] = np.frombuffer(os.urandom(left.nbytes), np.uint64).reshape(left.shape)
            left = left - part[name]  # modulo 2^64
        parts[0][name] = left
    return parts


class SumServer:
    """One of P servers, for one query; `totals` are sums of what was received, by name."""

    def __init__(self, query, n_servers):
        self.query, self.n_servers, self.totals = query, n_servers, {}

    def receive(self, part):
        """Add what a site sent."""
        self.totals = {
            name: self.totals.get(name, np.uint64(0)) + part[name] for name in self.query.mechanisms
        }

    def publish(self, source):
        """Its totals with its noise: the only numbers that leave it."""
        return with_noise(self.totals, noise_of_one(self.query, source, self.n_servers))


def noise_of_one(query, source, n_servers):
    """What one server adds to its totals where there is noise. -> {name: ndarray of uint64}"""
    return {
        name: mechanism.noise_of_one(source, n_servers).astype(np.int64).view(np.uint64)
        for name, mechanism in query.mechanisms.items()
        if mechanism is not None
    }


def with_noise(totals, noise):
    """Totals of one server with its noise, modulo 2^64."""
    return {k: t + noise[k].reshape(t.shape) if k in noise else t for k, t in totals.items()}


def opened(query, published):
    """The release from what all servers published. -> {name: ndarray}"""
    sums = {}
    for name, mechanism in query.mechanisms.items():
        total = sum(one[name] for one in published)
        sums[name] = total.view(np.int64).astype(float) * step_of(mechanism, query.bound)
    return sums


def release(query, sums, source, n_servers):
    """The release of an answer by servers that are all here. -> {name: ndarray}"""
    released = {}
    for name, mechanism in query.mechanisms.items():
        part = replace(query, mechanisms={name: mechanism})

        def draw(part=part, name=name):
            servers = [SumServer(part, n_servers) for _ in range(n_servers)]
            for server, share in zip(servers, shares(part, sums, n_servers), strict=True):
                server.receive(share)
            return opened(part, [server.publish(source) for server in servers])[name]

        if mechanism is None:
            released[name] = draw()
        else:
            value = np.asarray(sums[name], dtype=float) / query.divide
            released[name] = replied(mechanism.describe, draw, value[None])
    return released
