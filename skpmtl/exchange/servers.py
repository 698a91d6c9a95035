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

**What is not checked.** Shares are uniform numbers, and servers cannot see whether a sum is within
its bounds: a site that does not bound its contributions, or sends anything else, changes the
release by as much as it likes. It does not weaken the guarantee of others, whose bounded
contributions meet the same noise. A server that adds no noise, or tells others what it is sent, is
a dishonest one of the P - 1; a server that falsifies its total changes the release, and learns
nothing by it.
"""

import math
import os
from dataclasses import replace

import numpy as np

from ..privacy.accounting import gdp_mu
from ..privacy.report import TRUSTED_CURATOR
from ..privacy.tape import replied

__all__ = [
    "SumServer", "check_gaussian", "divided_mu", "number_of_servers", "opened", "release", "shares",
    "stated",
]  # fmt: skip

MOST = 16
ONE_PROCESS = (
    " In this fit all of them were one process, which saw the sums: it shows the price, and hides "
    "nothing from whoever reads that process"
)
_LARGEST = 2.0**61  # steps of a sum, so that those of several sites do not wrap around
_FREE_BITS = 40  # of a sum that is released without further noise, below its bound


def number_of_servers(curator):
    """P of the parameter `curator`; 1 for a trusted curator.

    Raises
    ------
    ValueError
        For anything but "trusted", "servers" and ("servers", P), P from 2 to 16.
    """
    if isinstance(curator, str):
        found = {"trusted": 1, "servers": 2}.get(curator)
    else:
        name, count = curator if np.shape(curator) == (2,) else (None, 0)
        whole = str(count).isdecimal() and 2 <= int(count) <= MOST
        found = int(count) if name == "servers" and whole else None
    if found is None:
        raise ValueError(
            f'curator={curator!r} must be "trusted", "servers", which are two, or ("servers", P) '
            f"with P from 2 to {MOST}."
        )
    return found


def divided_mu(epsilon, delta, n_servers):
    """Gaussian-DP parameter of all releases together, P servers adding noise for it each.

    A release of sensitivity D and this mu has noise sqrt(P) D / mu(epsilon, delta), of which one
    server adds D / mu(epsilon, delta).
    """
    return gdp_mu(epsilon, delta) / math.sqrt(n_servers)


def check_gaussian(n_servers, what):
    """Refuse servers for other noise: sums of that of several are not of its kind."""
    if n_servers > 1:
        raise ValueError(
            f'curator="servers" needs Gaussian noise in releases of all tasks, and {what}: leave '
            'that at its default, or take curator="trusted".'
        )


def stated(report, n_servers):
    """What a report says with servers, from that of a plan made with `divided_mu`."""
    if n_servers == 1 or report.guarantee == "none" or not report.releases:
        return report
    root = math.sqrt(n_servers)
    releases = [
        {**entry, "mu": entry["mu"] * root, "servers": n_servers} for entry in report.releases
    ]
    who = (
        f"one of the {n_servers} servers is honest, whichever it is: it adds its noise and shows "
        "nobody what it was sent. The guarantee holds against the others together; sites bound "
        "what they send, which servers cannot check"
    )
    assumptions = [who, *(line for line in report.assumptions if line != TRUSTED_CURATOR)]
    price = (
        f"{n_servers} servers hold additive shares of sums, and every one adds noise that suffices "
        f"by itself: together {root:.4g} times the noise of a trusted curator."
    )
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


def shares(ask, sums, n_servers):
    """What every server is sent of the sums of one site. -> list of {name: ndarray of uint64}

    Parameters
    ----------
    ask : Ask
    sums : dict of str to ndarray
        Before they are divided by ``ask.divide``.
    n_servers : int
    """
    parts = [{} for _ in range(n_servers)]
    for name, mechanism in ask.mechanisms.items():
        total = np.asarray(sums[name], dtype=float) / ask.divide
        if mechanism is None:
            steps = np.rint(total / step_of(None, ask.bound))
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
    """One of P servers, for one question.

    Parameters
    ----------
    ask : Ask
    n_servers : int

    Attributes
    ----------
    totals : dict of str to ndarray of uint64
        Sums of what was received.
    """

    def __init__(self, ask, n_servers):
        self.ask, self.n_servers, self.totals = ask, n_servers, {}

    def receive(self, part):
        """Add what a site sent."""
        self.totals = {
            name: self.totals.get(name, np.uint64(0)) + part[name] for name in self.ask.mechanisms
        }

    def publish(self, source):
        """Its totals with its noise: the only numbers that leave it."""
        return with_noise(self.totals, noise_of_one(self.ask, source, self.n_servers))


def noise_of_one(ask, source, n_servers):
    """What one server adds to its totals where there is noise. -> {name: ndarray of uint64}"""
    return {
        name: mechanism.noise_of_one(source, n_servers).astype(np.int64).view(np.uint64)
        for name, mechanism in ask.mechanisms.items() if mechanism is not None
    }  # fmt: skip


def with_noise(totals, noise):
    """Totals of one server with its noise, modulo 2^64."""
    return {k: t + noise[k].reshape(t.shape) if k in noise else t for k, t in totals.items()}


def opened(ask, published):
    """The release from what all servers published. -> {name: ndarray}"""
    found = {}
    for name, mechanism in ask.mechanisms.items():
        total = sum(one[name] for one in published)
        found[name] = total.view(np.int64).astype(float) * step_of(mechanism, ask.bound)
    return found


def release(ask, sums, source, n_servers):
    """The release of an answer by servers that are all here. -> {name: ndarray}"""
    found = {}
    for name, mechanism in ask.mechanisms.items():
        part = replace(ask, mechanisms={name: mechanism})

        def draw(part=part, name=name):
            servers = [SumServer(part, n_servers) for _ in range(n_servers)]
            for server, share in zip(servers, shares(part, sums, n_servers), strict=True):
                server.receive(share)
            return opened(part, [server.publish(source) for server in servers])[name]

        if mechanism is None:
            found[name] = draw()
        else:
            value = np.asarray(sums[name], dtype=float) / ask.divide
            found[name] = replied(mechanism.describe, draw, value[None])
    return found
