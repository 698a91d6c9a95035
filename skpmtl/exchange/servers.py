"""Servers in place of a trusted curator: additive shares of sums, and noise from each of them.

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

**Sites that add the noise.** Where sums are masked in place of shared
(`skpmtl.federated.site_noise`), each of n sites adds noise of standard deviation s / sqrt(n) to its
sum before it is masked, and h of them suffice. A plan has mu sqrt(h / n) of the budget, which makes
s = sqrt(n / h) sensitivity / mu: the noise of h sites together has the standard deviation
sensitivity / mu. P servers are P such parties of whom one suffices (`NoiseParties`).

**One sum.** Each honest site agrees to one set of sites for a query, and t sites that agree can
open its sum. A curator that lies about which sites are lost, with n - h sites on its side, needs t
- (n - h) honest ones for each of two sets, and there are h: with t > n - h / 2
(`NoiseParties.least`) it opens one sum only, and no difference of two, in which there is the noise
of fewer sites.

**What is not checked.** Shares are uniform numbers, and servers cannot see whether a sum is within
its bounds: a site that does not bound its contributions, or sends anything else, changes the
release by as much as it likes. It does not weaken the guarantee of others, whose bounded
contributions meet the same noise. A server that adds no noise, or tells others what it is sent, is
a dishonest one of the P - 1; a server that falsifies its total changes the release, and learns
nothing by it.
"""

import math
import os
from dataclasses import dataclass, replace

import numpy as np

from ..privacy.accounting import gdp_mu
from ..privacy.report import TRUSTED_CURATOR
from ..privacy.tape import replied

__all__ = [
    "NoiseParties", "SumServer", "TRUSTED", "check_gaussian", "divided_mu", "noise_parties_of",
    "opened", "release", "shares", "stated",
]  # fmt: skip

MOST = 16
MOST_SITES = 1000
ONE_PROCESS = (
    " In this fit all of them were one process, which saw the sums: it shows the price, and hides "
    "nothing from whoever reads that process"
)
_LARGEST = 2.0**61  # steps of a sum, so that those of several sites do not wrap around
_FREE_BITS = 40  # of a sum that is released without further noise, below its bound


@dataclass(frozen=True)
class NoiseParties:
    """Parties that add noise, and how many of them suffice.

    Parameters
    ----------
    count : int, default=1
        Each adds noise of 1 / count of the variance of all; one is a trusted curator.
    honest : int, default=1
        How many of them together add enough.
    """

    count: int = 1
    honest: int = 1

    @property
    def variance(self):
        """Of their noise together, in units of that of a trusted curator."""
        return self.count / self.honest

    @property
    def least(self):
        """Sites without which no masked sum is opened, so that a query has one sum only."""
        return max(self.honest, (2 * self.count - self.honest) // 2 + 1)


TRUSTED = NoiseParties()


def noise_parties_of(curator):
    """Who adds noise by the parameter `curator`. -> `NoiseParties`, one for a trusted curator

    Raises
    ------
    ValueError
        For anything but "trusted", "servers", ("servers", P), P from 2 to 16, and ("sites", n, h),
        h from 2 to n - 1.
    """
    if isinstance(curator, str):
        found = {"trusted": TRUSTED, "servers": NoiseParties(2)}.get(curator)
    else:
        name, *counts = curator if np.shape(curator) in ((2,), (3,)) else (None,)
        whole = all(str(count).isdecimal() for count in counts)
        counts = [int(count) for count in counts] if whole else []
        found = None
        if name == "servers" and len(counts) == 1 and 2 <= counts[0] <= MOST:
            found = NoiseParties(*counts)
        elif name == "sites" and len(counts) == 2 and 2 <= counts[1] < counts[0] <= MOST_SITES:
            found = NoiseParties(*counts)
    if found is None:
        raise ValueError(
            f'curator={curator!r} must be "trusted", "servers", which are two, ("servers", P) '
            f'with P from 2 to {MOST}, or ("sites", n, h): n sites that add noise, of whom h '
            "suffice, h from 2 to n - 1."
        )
    return found


def divided_mu(epsilon, delta, noise_parties):
    """Gaussian-DP parameter of all releases together, P servers adding noise for it each.

    A release of sensitivity D and this mu has noise sqrt(P) D / mu(epsilon, delta), of which one
    server adds D / mu(epsilon, delta). P is that of `NoiseParties`, n / h of sites.
    """
    return gdp_mu(epsilon, delta) / math.sqrt(noise_parties.variance)


def check_gaussian(noise_parties, what):
    """Refuse servers for other noise: sums of that of several are not of its kind."""
    if noise_parties.count > 1:
        raise ValueError(
            f'curator="servers" needs Gaussian noise in releases of all tasks, and {what}: leave '
            'that at its default, or take curator="trusted".'
        )


def stated(report, noise_parties):
    """What a report says with servers, from that of a plan made with `divided_mu`."""
    if noise_parties.count == 1 or report.guarantee == "none" or not report.releases:
        return report
    root = math.sqrt(noise_parties.variance)
    count, honest = noise_parties.count, noise_parties.honest
    if honest > 1:
        parties = {"sites": [count, honest]}
        who = (
            f"{honest} of the sites in every sum are honest, whichever they are: they add their "
            "noise and show nobody what they send. The guarantee holds against the others, and "
            "who collects masked sums, together; sites bound what they send, which nobody can check"
        )
        left = noise_parties.least - (count - honest)
        if left < honest:
            who += (
                f". Those who collect the sums can leave honest sites out as if they were lost; "
                f"since {noise_parties.least} of the {count} sites are needed, {left} honest ones "
                f"remain, with whose noise mu is {math.sqrt(honest / left):.4g} times the stated "
                "one"
            )
        price = (
            f"{count} sites add the noise to their sums, each so much that that of {honest} "
            f"suffices: together {root:.4g} times the noise of a trusted curator."
        )
    else:
        parties = {"servers": count}
        who = (
            f"one of the {count} servers is honest, whichever it is: it adds its noise and shows "
            "nobody what it was sent. The guarantee holds against the others together; sites bound "
            "what they send, which servers cannot check"
        )
        price = (
            f"{count} servers hold additive shares of sums, and every one adds noise that suffices "
            f"by itself: together {root:.4g} times the noise of a trusted curator."
        )
    releases = [{**entry, "mu": entry["mu"] * root, **parties} for entry in report.releases]
    assumptions = [who, *(line for line in report.assumptions if line != TRUSTED_CURATOR)]
    notes = {**report.notes, "servers": price + ONE_PROCESS}
    mu = None if report.mu is None else report.mu * root
    return replace(report, mu=mu, releases=releases, assumptions=assumptions, notes=notes)


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

    Parameters
    ----------
    query : Query
    sums : dict of str to ndarray
        Before they are divided by ``query.divide``.
    n_servers : int
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
    """One of P servers, for one query.

    Parameters
    ----------
    query : Query
    n_servers : int

    Attributes
    ----------
    totals : dict of str to ndarray of uint64
        Sums of what was received.
    """

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
        for name, mechanism in query.mechanisms.items() if mechanism is not None
    }  # fmt: skip


def with_noise(totals, noise):
    """Totals of one server with its noise, modulo 2^64."""
    return {k: t + noise[k].reshape(t.shape) if k in noise else t for k, t in totals.items()}


def opened(query, published):
    """The release from what all servers published. -> {name: ndarray}"""
    found = {}
    for name, mechanism in query.mechanisms.items():
        total = sum(one[name] for one in published)
        found[name] = total.view(np.int64).astype(float) * step_of(mechanism, query.bound)
    return found


def release(query, sums, source, noise_parties):
    """The release of an answer by servers, `NoiseParties`, that are all here. -> {name: ndarray}"""
    found, count = {}, noise_parties.count
    for name, mechanism in query.mechanisms.items():
        part = replace(query, mechanisms={name: mechanism})

        def draw(part=part, name=name):
            servers = [SumServer(part, count) for _ in range(count)]
            for server, share in zip(servers, shares(part, sums, count), strict=True):
                server.receive(share)
            return opened(part, [server.publish(source) for server in servers])[name]

        if mechanism is None:
            found[name] = draw()
        else:
            value = np.asarray(sums[name], dtype=float) / query.divide
            found[name] = replied(mechanism.describe, draw, value[None])
    return found
