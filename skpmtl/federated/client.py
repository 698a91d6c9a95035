"""The Flower ClientApp of a site; ``--node-config 'site="/path/site.toml"'``.

`skpmtl.federated.resident` runs it in a process that stays. A SuperNode of Flower starts a new one
for every message, and would send the text of an error to the curator; here errors go to the log of
the site, and the curator is told that there is no answer.
"""

import logging
from platform import python_version

import numpy as np

from .._version import __version__
from ..exchange.wire import unpack
from . import records, secure
from ._flower import ClientApp, Message, flower_version, secaggplus_mod
from .books import Refusal
from .home import Home
from .signing import check_signature

logger = logging.getLogger("skpmtl")
app = ClientApp()


def _site(context, settings, arrays):
    """The site of the study that a question is about, if it may be asked."""
    home = Home.of(context.node_config["site"])
    site, part = home.site(settings["study"])
    if part.curator:
        check_signature(part.curator, settings, arrays)
    return site, home.settings.name


def _reply(message, context, act):
    """Answer a message by ``act(site, settings, arrays) -> settings, arrays``."""
    try:
        settings, arrays = records.read(message.content)
        site, name = _site(context, settings, arrays)
        found, arrays = act(site, settings, arrays)
        content = records.write(arrays, status="answered", site=name, **found)
    except Refusal as refusal:
        logger.error("Refused: %s", refusal)
        content = records.write(status="refused", reason=str(refusal))
    except Exception:  # its text may show rows
        logger.exception("No answer to a %s message", message.metadata.message_type)
        content = records.write(status="failed")
    return Message(content, reply_to=message)


@app.query()
def enrol(message, context):
    """Which tasks this site has, and how far its books go."""

    def act(site, settings, arrays):
        versions = f"skpmtl {__version__}, Flower {flower_version}, Python {python_version()}"
        tasks = site.table.tasks.tolist()
        return {"tasks": tasks, "versions": versions, "last": site.last()}, {}

    return _reply(message, context, act)


@app.train("answer")
def answer(message, context):
    """Bounded contributions of its tasks to one question."""

    def act(site, settings, arrays):
        if site.study.secure_sum is not None:
            raise Refusal("the study has secure sums")
        positions = np.array(settings["positions"], dtype=np.int64)
        public = unpack(settings["public"], arrays)
        contributions = site.answer(
            settings["number"], settings["statistic"], public, positions, settings["run"]
        )
        return {"number": settings["number"]}, contributions

    return _reply(message, context, act)


@app.train(mods=[secaggplus_mod])
def add(message, context):
    """The sum of the contributions of its tasks, to be masked before it leaves."""
    try:
        settings, arrays = secure.read_question(message)
        site, _ = _site(context, settings, arrays)
        public, statistic = unpack(settings["public"], arrays), settings["statistic"]
        secure.check_protocol(context, site.study.sum_range(statistic, public))
        total = site.total(settings["number"], statistic, public, settings["run"])
    except Exception:
        logger.exception("No part in a secure sum")
        # Flower sends the text of an error; this one says nothing, and the site counts as absent.
        raise RuntimeError("no answer") from None
    return Message(secure.write_sum(total), reply_to=message)


@app.evaluate()
def publish(message, context):
    """Take the billboard and make the models of this site, which stay here."""

    def act(site, settings, arrays):
        site.publish(unpack(settings["public"], arrays))
        return {}, {}

    return _reply(message, context, act)
