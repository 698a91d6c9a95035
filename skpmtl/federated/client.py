"""The Flower ClientApp of a site.

Settings of a SuperNode, all of the site's own choosing (``--node-config``)::

    study="/path/study.toml"  rows="/path/rows.csv"  task="school"  target="score"  folder="/path"

and ``weight="sure"`` where rows have weights.

Flower starts a new process for every message and would send the text of an error to the curator;
here errors go to the log of the SuperNode, and the curator is told that there is no answer.
"""

import logging

import numpy as np

from ..exchange.wire import unpack
from . import records, secure
from ._flower import ClientApp, Message, secaggplus_mod
from .site import Refusal, Site, private_folder, read_rows
from .study import Study

logger = logging.getLogger("skpmtl")
app = ClientApp()


def _site(context, digest):
    """The site of these settings, if its study is the curator's."""
    node = context.node_config
    study = Study.load(node["study"])
    if digest != study.digest:
        raise Refusal(
            "this site was given another study, or has another version of skpmtl: compare the "
            "output of  python -m skpmtl.federated check STUDY"
        )
    columns = node.get("task", "task"), node.get("target", "y"), node.get("weight")
    rows = read_rows(node["rows"], study, *columns)
    return Site(study, rows, private_folder(node["folder"]))


def _reply(message, context, act):
    """Answer a message by ``act(site, settings, arrays) -> settings, arrays``."""
    try:
        settings, arrays = records.read(message.content)
        found, arrays = act(_site(context, settings["study"]), settings, arrays)
        content = records.write(arrays, status="answered", **found)
    except Refusal as refusal:
        logger.error("Refused: %s", refusal)
        content = records.write(status="refused", reason=str(refusal))
    except Exception:  # its text may show rows
        logger.exception("No answer to a %s message", message.metadata.message_type)
        content = records.write(status="failed")
    return Message(content, reply_to=message)


@app.query()
def enrol(message, context):
    """Which tasks this site has."""
    return _reply(message, context, lambda site, *_: ({"tasks": site.table.tasks.tolist()}, {}))


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
        site = _site(context, settings["study"])
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
