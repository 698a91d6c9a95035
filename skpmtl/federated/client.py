"""The Flower ClientApp of a site; ``--node-config 'site="/path/site.toml"'``.

`skpmtl.federated.site_process` runs it in a process that stays. A SuperNode of Flower starts a new
one for every message, and would send the text of an error to the curator; here errors go to the log
of the site, and the curator learns that there is no answer.
"""

import json
import logging
from functools import wraps
from platform import python_version

import numpy as np

from .._version import __version__
from ..exchange.wire import unpack
from . import records
from ._flower import ClientApp, Message, flower_version
from .refusals import Lacking, Refusal
from .secret_shares import ShareServer
from .signing import check_signature
from .site_config import SiteConfig

logger = logging.getLogger("skpmtl")
app = ClientApp()


def _site(context, settings, arrays):
    """The site of the study that a query is about, if it may be asked."""
    config = SiteConfig.of(context.node_config["site"])
    site, part = config.site(
        settings["study"], settings.get("name", ""), settings.get("skpmtl", "")
    )
    if part.curator:
        check_signature(part.curator, settings, arrays)
    if "mark" in settings:  # none in the first message: the curator does not know who this is
        site.check_mark(json.loads(settings["mark"]))
    return site, config.settings.name


_said = {}  # {kind of message: the last reason not to answer}, so that the log has it once


def _answered(act):
    """Answers messages by ``act(site, settings, arrays) -> settings, arrays``."""
    return wraps(act)(lambda message, context: _reply(message, context, act))


def _reply(message, context, act):
    kind, reply = message.metadata.message_type, {}
    try:
        reply["site"] = SiteConfig.of(context.node_config["site"]).settings.name
        settings, arrays = records.read(message.content)
        site, _ = _site(context, settings, arrays)
        found, arrays = act(site, settings, arrays)
        mark = json.dumps(site.mark())
        clock = context.node_config.get("clock", 0.0)  # seconds ahead of the SuperLink's
        content = records.write(
            arrays, status="answered", mark=mark, clock=float(clock), **reply, **found
        )
        if _said.pop(kind, None):
            logger.info("Messages of the kind %s are answered again", kind)
    except Lacking as lacking:  # it gets all releases, and is asked again
        content = records.write(status="lacking", reason=str(lacking), **reply)
    except Refusal as refusal:
        if _said.get(kind) != str(refusal):
            logger.error("Refused: %s", refusal)
        _said[kind] = str(refusal)
        content = records.write(status="refused", reason=str(refusal), **reply)
    except Exception as error:  # its text may show rows
        if _said.get(kind) != repr(error):
            logger.exception("No answer to a %s message", kind)
        _said[kind] = repr(error)
        content = records.write(status="failed", reason=_kind(error), **reply)
    return Message(content, reply_to=message)


def _kind(error):
    """Error as sent to the curator: its type, or the message of the system, without names."""
    what = error.strerror if isinstance(error, OSError) and error.strerror else ""
    return f"{type(error).__name__}{what and f' ({what})'}; the log of the site has more"


@app.query()
@_answered
def enrol(site, settings, arrays):
    """Which tasks this site has."""
    versions = f"skpmtl {__version__}, Flower {flower_version}, Python {python_version()}"
    reply = {"versions": versions}
    if isinstance(site, ShareServer):
        return {**reply, "server": site.name}, {}
    return {**reply, "tasks": site.table.tasks.tolist()}, {}


@app.train("answer")
@_answered
def answer(site, settings, arrays):
    """Bounded contributions of its tasks to one query."""
    if site.study.servers is not None:
        raise Refusal("the study has servers")
    positions = np.array(settings["positions"], dtype=np.int64)
    contributions = site.answer(*_compared(site, settings, arrays, positions))
    return {"number": settings["number"]}, contributions


def _compared(site, settings, arrays, positions):
    """A query of the curator, which the site makes from the releases, too, if there are any.

    -> arguments of ``Site.answer``
    """
    number, statistic, run = (settings[name] for name in ("number", "statistic", "run"))
    sent, transcript = unpack(settings["public"], arrays), None
    if site.study.schedule.replayed:
        transcript = site.follow(run, settings["first"], sent["releases"])
        transcript.check(number, statistic, sent["public"])
    return number, statistic, sent["public"], positions, run, transcript


@app.train("seal")
@_answered
def seal(site, settings, arrays):
    """The sum of the contributions of its tasks, in sealed shares for servers."""
    if site.study.servers is None or isinstance(site, ShareServer):
        raise Refusal("here are no sums for servers")
    transcript = _transcript(site, settings, arrays)
    found = site.sealed(settings["number"], transcript)
    found = {name: np.frombuffer(data, np.uint8) for name, data in found.items()}
    return {"number": settings["number"]}, found


def _transcript(site, settings, arrays):
    """The releases; a message has those that are new since the last message."""
    replies = unpack(settings["public"], arrays)
    return site.follow(settings["run"], settings["first"], replies)


def _sealed(site, settings, arrays):
    """What a server is asked about. -> number, transcript, what it was sent by every site"""
    if not isinstance(site, ShareServer):
        raise Refusal("here is no server")
    sealed = [{} for _ in range(settings["sites"])]
    for label in [label for label in arrays if label.startswith("sealed.")]:
        _, place, name = label.split(".", 2)
        sealed[int(place)][name] = arrays.pop(label).tobytes()
    return settings["number"], _transcript(site, settings, arrays), sealed


@app.train("opens")
@_answered
def opens(site, settings, arrays):
    """Of a server: which of its shares open."""
    return {"places": site.opens(*_sealed(site, settings, arrays))}, {}


@app.train("total")
@_answered
def total(site, settings, arrays):
    """Of a server: the sum of its shares, with its noise."""
    found = site.total(*_sealed(site, settings, arrays))
    return {"number": settings["number"]}, found


@app.evaluate()
@_answered
def publish(site, settings, arrays):
    """Take the billboard and make the models of this site, which stay here."""
    site.publish(unpack(settings["public"], arrays))
    return {}, {}
