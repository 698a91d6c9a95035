"""Why a site, or a server, does not answer: the texts are public."""

__all__ = ["Lacking", "Refusal"]


class Refusal(Exception):
    """A query that this site does not answer; the text says why and is public."""


class Lacking(Refusal):
    """A query about what was released before, which this process has not been told."""
