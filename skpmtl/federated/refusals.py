"""Why a site, or a server, does not answer: the texts are public."""

__all__ = ["Lacking", "Refusal"]


class Refusal(Exception):
    """A query that this site does not answer; the text says why and is public."""


class Lacking(Refusal):
    """A query that depends on earlier releases, which this process has not received."""
