"""Answers of a site, or of a server, to the messages of the curator, whatever carries them."""

import json
import logging
from platform import python_version

import numpy as np

from .._version import __version__
from ..exchange.wire import unpack
from . import records
from .refusals import Lacking, Refusal
from .secret_shares import ShareServer

__all__ = ["KINDS", "answered"]

logger = logging.getLogger("skpmtl")


def answered(config, kind, content):
    """Answer a message. -> content of the reply

    `config` is the `SiteConfig` of this site, `kind` one of `KINDS`. The text of an error may show
    rows: it goes to the log of the site, and the curator receives the type of the error only.
    """
    try:
        settings, arrays = records.read(content)
        site = config.site(settings["study"], settings["name"], settings["skpmtl"])
        if "mark" in settings:  # none in the first message to a site
            site.check_mark(json.loads(settings["mark"]))
        found, arrays = _ACTS[kind](site, settings, arrays)
        return records.write(arrays, status="answered", mark=json.dumps(site.mark()), **found)
    except Lacking as lacking:  # the curator sends all releases, and asks again
        return records.write(status="lacking", reason=str(lacking))
    except Refusal as refusal:
        logger.error("Refused: %s", refusal)
        return records.write(status="refused", reason=str(refusal))
    except Exception as error:
        logger.exception("No answer to a message of the kind %s", kind)
        what = error.strerror if isinstance(error, OSError) and error.strerror else ""
        reason = f"{type(error).__name__}{what and f' ({what})'}; the log of the site has more"
        return records.write(status="failed", reason=reason)


def _enrol(site, settings, arrays):
    """Which tasks this site has."""
    reply = {"versions": f"skpmtl {__version__}, Python {python_version()}"}
    if isinstance(site, ShareServer):
        return {**reply, "server": site.name}, {}
    return {**reply, "tasks": site.table.tasks.tolist()}, {}


def _answer(site, settings, arrays):
    """Bounded contributions of its tasks to one query."""
    if site.study.servers is not None:
        raise Refusal("the study has servers")
    positions = np.array(settings["positions"], dtype=np.int64)
    number, statistic, run = (settings[name] for name in ("number", "statistic", "run"))
    sent, transcript = unpack(settings["public"], arrays), None
    if site.study.is_replayed:
        transcript = site.follow(run, settings["first"], sent["releases"])
        transcript.check(number, statistic, sent["public"])
    found = site.answer(number, statistic, sent["public"], positions, run, transcript)
    return {"number": number}, found


def _seal(site, settings, arrays):
    """The sum of the contributions of its tasks, in sealed shares for servers."""
    if site.study.servers is None or isinstance(site, ShareServer):
        raise Refusal("here are no sums for servers")
    found = site.sealed(settings["number"], _transcript(site, settings, arrays))
    found = {name: np.frombuffer(data, np.uint8) for name, data in found.items()}
    return {"number": settings["number"]}, found


def _transcript(site, settings, arrays):
    """The releases; a message has those that are new since the last message."""
    replies = unpack(settings["public"], arrays)
    return site.follow(settings["run"], settings["first"], replies)


def _shares(site, settings, arrays):
    """What a server is asked about. -> number, transcript, what every site sent for it"""
    if not isinstance(site, ShareServer):
        raise Refusal("here is no server")
    sealed = [{} for _ in range(settings["sites"])]
    for label in [label for label in arrays if label.startswith("sealed.")]:
        _, place, name = label.split(".", 2)
        sealed[int(place)][name] = arrays.pop(label).tobytes()
    return settings["number"], _transcript(site, settings, arrays), sealed


def _opens(site, settings, arrays):
    """Of a server: which of its shares open."""
    return {"places": site.opens(*_shares(site, settings, arrays))}, {}


def _total(site, settings, arrays):
    """Of a server: the sum of its shares, with its noise."""
    found = site.total(*_shares(site, settings, arrays))
    return {"number": settings["number"]}, found


def _publish(site, settings, arrays):
    """Take the billboard, and compute the models of this site, which stay here."""
    site.publish(unpack(settings["public"], arrays))
    return {}, {}


_ACTS = {
    "enrol": _enrol,
    "answer": _answer,
    "seal": _seal,
    "opens": _opens,
    "total": _total,
    "publish": _publish,
}
KINDS = tuple(_ACTS)
