"""The Flower ServerApp: the curator of a federated fit.

Settings (``flwr run --run-config``): ``study``, a file, and ``folder``, where the curator keeps its
journal, which is secret, and writes billboard.npz and report.json, which are public.
"""

import logging
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np

from ..exchange.files import save_billboard
from ..exchange.journal import Journal, write_file
from ..exchange.protocol import run
from ..exchange.wire import pack
from ..tables.ids import listed
from . import records, secure
from ._flower import Message, MessageType, ServerApp
from .polling import PollingGrid
from .site import private_folder
from .study import Study

logger = logging.getLogger("skpmtl")
app = ServerApp()

_POLL = 0.1  # seconds between looks for replies


@app.main()
def main(grid, context):
    """Run the study that the run configuration names."""
    config = context.run_config
    board = curate(grid, Study.load(config["study"]), config["folder"], context)
    print(board.report)


def curate(grid, study, folder, context=None):
    """Run a study, or go on with one that was cut off. -> billboard

    Parameters
    ----------
    grid : flwr.serverapp.Grid
    study : Study
    folder : path-like
        Of the curator.
    context : flwr.app.Context, default=None
        Of the ServerApp; for secure sums.
    """
    folder = private_folder(Path(folder))
    with Journal(folder / "journal", {"study": study.text}) as journal:
        return _curate(grid, study, folder, context, journal)


def _curate(grid, study, folder, context, journal):
    est = study.build()
    source = est._source()
    sites = Sites(grid, study, journal, context)
    sites.enrol()
    board = run(est._curator(sites.population, source), sites, source, journal)
    board.report = describe(board, study)
    save_billboard(study.published(board), folder / "billboard.npz")
    write_file(folder / "report.json", (board.report.to_json(indent=1) + "\n").encode())
    sites.publish(board)
    return board


def describe(board, study):
    """The report of a billboard with what the transport adds to it."""
    est, population = study.build(), study.population()
    told = est._transport(population)
    if told is not None:
        text = f"Flower; {told}"
    elif study.secure_sum is not None:
        least = min(map(study.room, (q.total for q in study.questions.values())))
        text = (
            "Flower with secure aggregation (SecAgg+): a curator that follows the protocol sees "
            "only sums over the sites that take part in a round, more than half of them (two sums "
            "of one round, should it be repeated with other sites after a crash, show the sites in "
            f"between); sites bound what their tasks add, times {least:.9g} or more, so that the "
            "rounding of the sums stays within the bound, and are trusted to do so: one that does "
            "not voids the guarantee of all tasks"
        )
    else:
        text = (
            "Flower without secure aggregation, trusted curator: it sees the clipped contribution "
            "of every single task, from which, over the rounds, personal models can be rebuilt; "
            "so can whoever runs or reads the SuperLink"
        )
    if board.report.sampling and board.report.sampling.startswith("Poisson"):
        text += (
            "; who takes part in a round, which the accounting takes as secret, can also be seen "
            "by who watches the traffic of the sites"
        )
    return replace(board.report, notes={**board.report.notes, "transport": text})


class Sites:
    """The tasks of a study behind a Flower grid, for `skpmtl.exchange.run`.

    Answers that are late, missing, broken or refused count as zero, and the denominator stays;
    others are bounded once more by ``ask.combine``.
    """

    def __init__(self, grid, study, journal, context=None):
        self.grid, self.study, self.journal, self.context = grid, study, journal, context
        self.population = study.population()
        self.questions = study.questions
        self.node_of = np.zeros(self.population.n_tasks, dtype=np.uint64)  # 0: nobody
        self.known = set()

    # ---------------------------------------------------------------------- enrolment
    def enrol(self):
        """Wait until every task is held by one site, or the time is over.

        Raises
        ------
        ValueError
            When two sites name the same task, or one a task that is not in the study.
        """
        end = time.monotonic() + self.study.enrolment
        while True:
            for node, names in self._newcomers().items():
                self._assign(node, names)
            absent = self.population.tasks[self.node_of == 0]
            if not len(absent):
                return
            if time.monotonic() > end:
                break
            time.sleep(_POLL)
        warnings.warn(
            f"Held by no site, and counted as contributing nothing: tasks {listed(absent)}.",
            UserWarning,
            stacklevel=2,
        )

    def _newcomers(self):
        """{node: names of its tasks} of the nodes that were not asked before."""
        new = [node for node in self.grid.get_node_ids() if node not in self.known]
        content = {node: records.write(study=self.study.digest) for node in new}
        found = {}
        for node, reply in self._send(content, MessageType.QUERY).items():
            try:
                settings, _ = records.read(reply, {})
                self.known.add(node)
                if self._answered(node, settings):
                    found[node] = list(settings["tasks"])
            except Exception as error:
                logger.warning("Node %d did not say what tasks it has: %s", node, error)
        return found

    def _assign(self, node, names, lost=()):
        """Give tasks that are free, or held by the nodes `lost`, to a node."""
        positions = self.study.positions(names)
        if (positions < 0).any() or len(set(names)) < len(names):
            raise ValueError(f"Node {node} names tasks that the study does not have, or twice.")
        holders = self.node_of[positions]
        taken = positions[(holders != 0) & ~np.isin(holders, np.array(list(lost), dtype=np.uint64))]
        if len(taken):
            raise ValueError(
                f"Tasks of two sites: {listed(self.population.tasks[taken])}, of node {node} and "
                f"of {listed(self.node_of[taken])}. Every task belongs to one site."
            )
        self.node_of[positions] = node

    def _replace_lost(self):
        """A site that was started again has a new number: it takes up the tasks of the lost one."""
        lost = set(self.node_of.tolist()) - set(self.grid.get_node_ids())
        for node, names in self._newcomers().items():
            try:
                self._assign(node, names, lost)
            except Exception as error:
                logger.warning("Node %d was not taken in: %s", node, error)

    # ---------------------------------------------------------------------- questions
    def answer(self, ask):
        """Sums over all tasks that are asked; called by `skpmtl.exchange.run`."""
        self._replace_lost()
        if self.study.secure_sum is not None:
            return self._secure_sum(ask)
        m = self.population.n_tasks
        asked = np.arange(m) if ask.pick is None else np.asarray(ask.pick)
        public = dict(ask.public)
        if self.study.seed is None:  # who else takes part is needed for reproducible noise only
            public.pop("everybody", None)
        text, arrays = pack(public)
        place, content = {}, {}
        for node in np.unique(self.node_of[asked][self.node_of[asked] != 0]).tolist():
            place[node] = np.flatnonzero(self.node_of[asked] == node)
            content[node] = records.write(
                arrays, study=self.study.digest, run=self.journal.token,
                number=self.journal.place, public=text, statistic=ask.statistic,
                positions=asked[place[node]].tolist(),
            )  # fmt: skip
        shapes = self.questions[ask.statistic].shapes
        given = {name: np.full((len(asked), *s), np.nan) for name, s in shapes.items()}
        silent = set(content)
        for node, reply in self._send(content, f"{MessageType.TRAIN}.answer").items():
            mine = {name: (len(place[node]), *shape) for name, shape in shapes.items()}
            try:
                settings, found = records.read(reply, mine if "arrays" in reply else {})
                if not self._answered(node, settings):
                    continue
                if settings["number"] != self.journal.place:
                    raise ValueError(f"an answer to question {settings['number']}")
                for name in shapes:
                    given[name][place[node]] = found[name]
                silent.discard(node)
            except Exception as error:  # whatever it sent: it counts as nothing
                logger.warning("Node %d sent no usable answer: %s", node, error)
        if len(silent) == len(np.unique(self.node_of[self.node_of != 0])):
            raise RuntimeError(
                f"No site at all answered question {self.journal.place}, so that nothing but noise "
                "would be released. Start the curator again when sites are back: it goes on from "
                "its journal."
            )
        return ask.combine(given, asked)

    def _secure_sum(self, ask):
        """The same where only the sum over the sites can be read; they have clipped it."""
        nodes = np.unique(self.node_of[self.node_of != 0]).tolist()
        if not 3 <= len(nodes) <= 1000:
            raise RuntimeError(f"Secure sums need 3 to 1000 sites, not {len(nodes)}.")
        text, arrays = pack(ask.public)
        settings = {"study": self.study.digest, "run": self.journal.token, "public": text}
        settings.update(number=self.journal.place, statistic=ask.statistic)
        (name,) = ask.mechanisms
        total = self.questions[ask.statistic].total
        vector = secure.secure_sum(
            self.grid, self.context, nodes, arrays, settings,
            self.study.sum_range(ask.statistic, ask.public), self.study.timeout,
        )  # fmt: skip
        if vector is None or vector.size != total.size:
            raise RuntimeError(
                f"Too few sites took part in the secure sum of question {self.journal.place}. "
                "Start the curator again when they are back: it goes on from its journal."
            )
        vector = vector.ravel()
        return {name: vector if total.whole is None else total.whole(vector)}

    def publish(self, board):
        """Send the billboard to all sites."""
        text, arrays = pack(board)
        nodes = np.unique(self.node_of[self.node_of != 0]).tolist()
        content = {
            node: records.write(arrays, study=self.study.digest, public=text) for node in nodes
        }
        for node, reply in self._send(content, MessageType.EVALUATE).items():
            try:
                self._answered(node, records.read(reply, {})[0])
            except Exception as error:
                logger.warning("Node %d did not say whether it has its models: %s", node, error)

    def _answered(self, node, settings):
        if settings.get("status") == "answered":
            return True
        reason = str(settings.get("reason", "see the log of its SuperNode"))[:500]
        logger.warning("Node %d has no answer: %s", node, reason)
        return False

    def _send(self, content, kind):
        """Messages {node: content} and their replies within the time. -> {node: content}"""
        messages = [
            Message(records_, dst_node_id=node, message_type=kind, ttl=self.study.timeout)
            for node, records_ in content.items()
        ]
        found = PollingGrid(self.grid).exchange(messages, self.study.timeout)
        replies = dict(zip(content, found, strict=True))
        lost = [node for node, reply in replies.items() if reply is None or reply.has_error()]
        if lost:
            logger.warning("No answer in %g s from nodes %s", self.study.timeout, lost)
        return {node: reply.content for node, reply in replies.items() if node not in lost}
