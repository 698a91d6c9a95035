"""What a plan owes: public numbers -> mechanisms, and the statement of what they guarantee."""

from .._version import __version__
from ..privacy.report import (
    ALWAYS,
    PUBLIC_LISTS,
    PUBLIC_START,
    TRUSTED_CURATOR,
    PrivacyReport,
    silent_report,
)
from .servers import TRUSTED, stated

__all__ = ["Plan"]


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
    start : Start or None
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
    start, noise_parties = None, TRUSTED

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
        start = () if self.start is None else (PUBLIC_START,)
        return *self.own_assumptions, *ALWAYS, *start

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
        if self.start is not None:
            public["init"] = self.start.describe()
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
