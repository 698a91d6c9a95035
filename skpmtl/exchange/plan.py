"""Base class of plans: public numbers -> mechanisms and report; servers that add noise."""

import math
from dataclasses import replace

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

__all__ = ["MOST", "Plan", "check_gaussian", "divided_mu", "n_servers_of"]
MOST = 16  # servers
ONE_PROCESS = (
    " In this fit all of them were one process, which saw the sums: it shows the price, and hides "
    "nothing from whoever reads that process"
)


def n_servers_of(curator):
    """Number of servers of the parameter `curator`; 1 for a trusted curator.

    Raises ValueError for anything but "trusted", "servers", which are two, and ("servers", P), P
    from 2 to 16.
    """
    if isinstance(curator, str):
        found = {"trusted": 1, "servers": 2}.get(curator)
    else:
        name, count = curator if np.shape(curator) == (2,) else (None, None)
        known = name == "servers" and str(count).isdecimal() and 2 <= int(count) <= MOST
        found = int(count) if known else None
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
    who = (
        f"one of the {n_servers} servers is honest, whichever it is: it adds its noise and shows "
        "nobody what it was sent. The guarantee holds against the others together; sites bound "
        "what they send, which servers cannot check"
    )
    price = (
        f"{n_servers} servers hold additive shares of sums, and every one adds noise that suffices "
        f"by itself: together {root:.4g} times the noise of a trusted curator."
    )
    releases = [
        {**entry, "mu": entry["mu"] * root, "servers": n_servers} for entry in report.releases
    ]
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
    n_servers : int
        Servers that add the noise (`skpmtl.exchange.servers`); 1 is a trusted curator.
    public_init : PublicInit or None
        Public initial model.
    own_assumptions : tuple of str
        What the guarantee rests on, but for what all of them rest on.
    accounting : str
        Name of the accounting.
    silence : str
        Why nothing is released, where `releases` is empty.
    """

    adjacency: str
    epsilon: float
    delta: float
    mu: float | None
    guarantee, unit = "joint DP per task", "task"
    accounting = "exact Gaussian differential privacy"
    own_assumptions = (TRUSTED_CURATOR, PUBLIC_LISTS, "every task receives its own model only")
    silence = "there are no releases"
    public_init, n_servers = None, 1

    def releases(self, made=None) -> list:
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

    def report(self, source, made=None) -> "PrivacyReport":
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
                self.silence,
                adjacency=self.adjacency,
                public_inputs=public,
                assumptions=self.assumptions(),
            )
        known = [entry for entry in entries if "noise_std" in entry]
        report = PrivacyReport(
            guarantee=self.guarantee,
            unit=self.unit,
            adjacency=self.adjacency,
            epsilon=self.epsilon,
            delta=self.delta,
            mechanism=self.mechanism(),
            sensitivity=tuple(entry["sensitivity"] for entry in known),
            noise_std=tuple(entry["noise_std"] for entry in known),
            shift=self.shift(),
            mu=self.mu,
            releases=tuple(entries),
            accountant=self.accountant(),
            sampling=self.scheme(),
            rng=source.description,
            arithmetic=source.arithmetic,
            public_inputs=public,
            assumptions=self.assumptions(),
            notes=self.notes(made),
        )
        return self.with_servers(report)

    def with_servers(self, report):
        """The report, with the assumptions about those who add the noise."""
        return stated(report, self.n_servers)
