"""Bells between the processes of a curator: there are queries for sites, or replies of sites.

Sites and curator would otherwise ask the SuperLink several times a second whether something has
come, and each of these requests costs it as much as a query. A bell is an empty file whose time of
change is its count: it works between processes, whoever of them was started first.
"""

import os
import time
from pathlib import Path

__all__ = ["Bell", "Bells"]

LOOK = 0.02  # seconds between looks at a file


class Bell:
    """One bell."""

    def __init__(self, path):
        self.path = path
        path.touch()

    def ring(self):
        now = max(time.time_ns(), self.count() + 1)  # clocks may be put back
        os.utime(self.path, ns=(now, now))

    def count(self):
        """A number that grows with every ring."""
        return self.path.stat().st_mtime_ns

    def wait(self, known, seconds):
        """Until the count is another one than `known`, or so many seconds. -> count"""
        end = time.monotonic() + seconds
        while (count := self.count()) == known and time.monotonic() < end:
            time.sleep(LOOK)
        return count


class Bells:
    """Those of a folder: `queries` for sites, and `replies` of them."""

    def __init__(self, folder):
        folder = Path(folder)
        self.queries, self.replies = Bell(folder / "queries"), Bell(folder / "replies")
