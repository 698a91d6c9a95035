"""Base class of plans: public numbers -> mechanisms and report; parties that add noise."""

import math
from dataclasses import dataclass, replace

import numpy as np

from .._version import __version__
from ..privacy.accounting import gdp_mu
from ..privacy.report import (
    ALWAYS,
    PUBLIC_INIT,
    PUBLIC_LISTS,
    TRUSTED_CURATOR,
    PrivacyReport,
    silent_report,
)

__all__ = ["NoiseParties", "Plan", "TRUSTED", "check_gaussian", "divided_mu", "noise_parties_of"]
MOST = 16
MOST_SITES = 1000
ONE_PROCESS = (
    " In this fit all of them were one process, which saw the sums: it shows the price, and hides "
    "nothing from whoever reads that process"
)


@dataclass(frozen=True)
class NoiseParties:
    """Parties that add noise, and how many of them suffice."""

    count: int = 1  # each adds noise of 1 / count of the variance of all; one is a trusted curator
    honest: int = 1  # how many of them together add enough

    @property
    def variance(self):
        """Of their noise together, in units of that of a trusted curator."""
        return self.count / self.honest

    @property
    def least(self):
        """Least number of sites that open a masked sum, so that a query has one sum only."""
        return max(self.honest, (2 * self.count - self.honest) // 2 + 1)


TRUSTED = NoiseParties()


def noise_parties_of(curator):
    """`NoiseParties` of the parameter `curator`; one party for a trusted curator.

    Raises ValueError for anything but "trusted", "servers", ("servers", P), P from 2 to 16, and
    ("sites", n, h), h from 2 to n - 1.
    """
    if isinstance(curator, str):
        parties = {"trusted": TRUSTED, "servers": NoiseParties(2)}.get(curator)
    else:
        name, *counts = curator if np.shape(curator) in ((2,), (3,)) else (None,)
        whole = all(str(count).isdecimal() for count in counts)
        counts = [int(count) for count in counts] if whole else []
        parties = None
        if name == "servers" and len(counts) == 1 and 2 <= counts[0] <= MOST:
            parties = NoiseParties(*counts)
        elif name == "sites" and len(counts) == 2 and 2 <= counts[1] < counts[0] <= MOST_SITES:
            parties = NoiseParties(*counts)
    if parties is None:
        raise ValueError(
            f'curator={curator!r} must be "trusted", "servers", which are two, ("servers", P) '
            f'with P from 2 to {MOST}, or ("sites", n, h): n sites that add noise, of whom h '
            "suffice, h from 2 to n - 1."
        )
    return parties


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


class Plan:
    """Budget and public numbers -> mechanisms and report. A plan never sees a table.

    A subclass defines `releases`, `public_inputs` and `mechanism`; the rest has defaults.

    Attributes
    ----------
    guarantee, unit, adjacency : str
        As of `PrivacyReport`.
    epsilon, delta, mu : float or None
        mu is None where the accounting is not by Gaussian differential privacy.
    noise_parties : NoiseParties
        Who adds the noise (`skpmtl.exchange.servers`).
    public_init : PublicInit or None
        Public initial model.
    own_assumptions : tuple of str
        What the guarantee rests on, but for what all of them rest on.
    accounting : str
        Name of the accounting.
    silence : str
        Why nothing is released, where `releases` is empty.
    """

    guarantee, unit = "joint DP per task", "task"
    accounting = "exact Gaussian differential privacy"
    own_assumptions = (TRUSTED_CURATOR, PUBLIC_LISTS, "every task receives its own model only")
    silence = "there are no releases"
    public_init, noise_parties = None, TRUSTED

    def releases(self, made=None):
        """Entries of all releases, in their order.

        Parameters
        ----------
        made : object, default=None
            What earlier releases settled, such as bounds on later ones; None: before a fit.

        Returns
        -------
        entries : list of dict
            "name", and what ``describe()`` of the mechanism says.
        """
        raise NotImplementedError

    def public_inputs(self):
        """What the guarantee takes as public. -> dict"""
        raise NotImplementedError

    def mechanism(self):
        """The noise, in words."""
        raise NotImplementedError

    def notes(self, made=None):
        """Further facts. -> dict"""
        return {}

    def scheme(self):
        """Who takes part in a release, in words."""
        return "all tasks in every release"

    def shift(self):
        """Public shifts of the releases."""
        return ()

    def accountant(self):
        """What turned noise into epsilon and delta."""
        return f"skpmtl {__version__}, {self.accounting}"

    def assumptions(self):
        """What the guarantee rests on. -> tuple of str"""
        public_init = () if self.public_init is None else (PUBLIC_INIT,)
        return *self.own_assumptions, *ALWAYS, *public_init

    def report(self, source, made=None):
        """The statement of the guarantee.

        Parameters
        ----------
        source : noise source
        made : object, default=None
            As of `releases`.

        Returns
        -------
        report : PrivacyReport
        """
        entries, public = self.releases(made), self.public_inputs()
        if self.public_init is not None:
            public["init"] = self.public_init.describe()
        if not entries:
            return silent_report(
                self.silence, adjacency=self.adjacency, public_inputs=public,
                assumptions=self.assumptions(),
            )  # fmt: skip
        known = [entry for entry in entries if "noise_std" in entry]
        report = PrivacyReport(
            guarantee=self.guarantee,
            unit=self.unit,
            adjacency=self.adjacency,
            epsilon=self.epsilon,
            delta=self.delta,
            mechanism=self.mechanism(),
            sensitivity=[entry["sensitivity"] for entry in known],
            noise_std=[entry["noise_std"] for entry in known],
            shift=self.shift(),
            mu=self.mu,
            releases=entries,
            accountant=self.accountant(),
            sampling=self.scheme(),
            rng=source.description,
            arithmetic=source.arithmetic,
            public_inputs=public,
            assumptions=self.assumptions(),
            notes=self.notes(made),
        )
        return self.with_noise_parties(report)

    def with_noise_parties(self, report):
        """The report, with the assumptions about those who add the noise."""
        return stated(report, self.noise_parties)
