"""Alerts of a curator: a command or a URL is called when a study ends, fails, or waits for a site.

A command gets a line of JSON with the keys "kind", "study", "site" and "text" as its input; a URL
gets it by POST, as webhooks have it. "kind" is "finished", "failed", "stopped" (the curator's
process was ended before the study) or "waits". What went wrong with an alert is in the log, and
stops nothing.
"""

import json
import logging
import shlex
import subprocess
import threading
import time
import urllib.request

__all__ = ["Alerts"]

logger = logging.getLogger("skpmtl")

_TIMEOUT = 30.0  # seconds for one call


class Alerts:
    """Calls each alert once.

    `target` is a command with its arguments, an http URL, or None, which sends no alerts. `after`
    is how many seconds the study waits for a site before it alerts.
    """

    def __init__(self, target, after):
        self.target, self.after = target, after
        self._told, self._since, self._threads = set(), {}, []

    def waits(self, study, site, trouble):
        """A site does not take part, by an event of the log; sends an alert when that lasts."""
        mark = study, site, trouble["at"]
        since = self._since.setdefault(mark, time.monotonic())
        if time.monotonic() - since >= self.after:
            self.notify("waits", study, trouble["reason"], site, trouble["at"])

    def notify(self, kind, study, text, site=None, mark=None):
        """Call somebody, unless that was done; does not wait for it."""
        if self.target is None or (kind, study, site, mark) in self._told:
            return
        self._told.add((kind, study, site, mark))
        data = json.dumps({"kind": kind, "study": study, "site": site, "text": text})
        thread = threading.Thread(target=self._call, args=(data.encode() + b"\n",), daemon=True)
        thread.start()
        self._threads.append(thread)

    def finish(self):
        """Wait for the calls that were begun."""
        for thread in self._threads:
            thread.join(_TIMEOUT)

    def _call(self, data):
        try:
            if self.target.startswith(("http://", "https://")):
                request = urllib.request.Request(
                    self.target, data, {"Content-Type": "application/json"}
                )
                urllib.request.urlopen(request, timeout=_TIMEOUT).close()
            else:
                subprocess.run(
                    shlex.split(self.target), input=data, timeout=_TIMEOUT, check=True,
                    stdout=subprocess.DEVNULL,
                )  # fmt: skip
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            logger.warning("The alert %r failed: %s", self.target, error)
