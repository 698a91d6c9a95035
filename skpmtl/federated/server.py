"""The Flower ServerApp: the curator of a federated fit.

Settings (``flwr run --run-config``): ``study``, a file; ``folder``, where the curator keeps its
journal and the log of the run, which are secret, and writes billboard.npz and report.json, which
are public; ``key``, a file with the key that signs the queries, or nothing; ``nodes``, a file with
the names of sites by the number that the SuperLink gave to their keys, or nothing; ``bells``, the
folder of `skpmtl.federated.bells`, or nothing.
"""

import io
import json
import logging
import time
import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from .._runtime.stack import users_line
from .._version import __version__
from ..exchange.files import save_billboard
from ..exchange.journal import Journal, write_file
from ..exchange.plan import ONE_PROCESS
from ..exchange.protocol import run
from ..exchange.wire import pack
from ..tables.ids import listed
from . import records
from ._flower import Message, MessageType, ServerApp
from .bells import Bells
from .ledger import private_folder
from .marks import Marks
from .polling import PollingGrid
from .runlog import RunLog, Spent, line, may_pass, missing, questions, read_log
from .secret_shares import longest, opened
from .signing import read_key, signed
from .study import Study
from .transcript import recorded

logger = logging.getLogger("skpmtl")
app = ServerApp()

HELD = "which tasks have rows is public: every site names those that it has rows of"
BACKUPS = (
    "the curator's journal is never restored to an earlier state, nor the books of a site or a "
    "server to a state before an answer that the curator did not receive: that goes undetected, "
    "and a query would be answered again with new noise (older books than the curator has recorded "
    "are refused)"
)
_POLL = 0.1  # seconds between looks for replies
_KNOCK = 5.0  # seconds between two tries to reach a node that is silent or not known
_AWAY = "it is not connected: its process has ended or hangs, or its network is cut"
_OFF = 5.0  # seconds that clocks may differ without a word
_AGAIN = 1.0  # seconds until a query that too few have answered is asked again
_LATER = 60.0  # seconds, at most, until a site that refused is tried again
_GRACE = 1.0  # seconds, at most, that a query waits for nodes that were just tried


@app.main()
def main(grid, context):
    """Run the study that the run configuration names."""
    config = context.run_config
    if not logger.handlers:
        logger.addHandler(logging.StreamHandler())
    logger.setLevel(logging.INFO)
    key = read_key(config["key"]) if config.get("key") else None
    path = config.get("nodes")
    nodes = {int(node): name for node, name in json.loads(Path(path).read_text())} if path else {}
    bells = Bells(config["bells"]) if config.get("bells") else None
    study = Study.load(config["study"])
    print(curate(grid, study, config["folder"], key, nodes, bells).report)


def curate(grid, study, folder, key=None, nodes=None, bells=None):
    """Run a study, or go on with one that was cut off. -> billboard

    `grid` is that of the ServerApp; `folder` is the curator's. `key` signs the queries, `nodes` has
    the names of the expected sites by node, and `bells` ring when there are replies.
    """
    folder = private_folder(Path(folder))
    log = RunLog(folder)
    with Journal(folder / "journal", {"study": study.text}) as journal:
        log.write("start", study=study.name, digest=study.digest, skpmtl=__version__)
        try:
            billboard = _curate(grid, study, folder, journal, log, key, nodes, bells)
        except Exception as error:  # whoever ends the process may start it again
            text = f"{type(error).__name__}: {error}"[:500]
            log.write("end", error=text, passes=may_pass(error))
            raise
        log.write("end", error=None, epsilon=billboard.report.epsilon)
    return billboard


def _curate(grid, study, folder, journal, log, key, nodes, bells):
    est = study.build()
    source = est._source()
    kind = ServedSites if study.servers is not None else Sites
    sites = kind(PollingGrid(grid, bells), study, journal, log, key, nodes)
    sites.enrol()
    curator = est._queries(sites.population, source)
    if sites.informs:
        curator = recorded(curator, sites.replies)
    billboard = run(curator, sites, source, journal)
    billboard.report = describe(billboard, study, read_log(folder), sites.asked)
    save_billboard(study.published(billboard), folder / "billboard.npz")
    write_file(folder / "report.json", (billboard.report.to_json(indent=1) + "\n").encode())
    sites.publish(billboard)
    return billboard


def describe(billboard, study, events=(), n_questions=0):
    """The report of a billboard with what the transport, and the log of the run, add to it.

    `n_questions`: number of answered queries; the log may have lost some.
    """
    est, population = study.build(), study.population()
    transport = est._transport(population)
    notes = dict(billboard.report.notes)
    if study.servers is not None:
        names = ", ".join(sorted(study.servers))
        text = (
            f"Flower; servers of their own ({names}): sites seal what they send for the keys of "
            "these, so that the curator, the SuperLink and the network carry what they cannot "
            "read, and see sums with the noise of all servers only. Nobody but one server has to "
            "be trusted, whichever it is, and every site with its own bound"
        )
        notes["servers"] = notes["servers"].replace(ONE_PROCESS, "")
    elif transport is not None:
        text = f"Flower; {transport}"
    else:
        text = (
            "Flower, trusted curator: it sees the clipped contribution "
            "of every single task, from which, over the rounds, personal models can be rebuilt; "
            "so can whoever runs or reads the SuperLink"
        )
    if billboard.report.sampling and billboard.report.sampling.startswith("Poisson"):
        text += (
            "; who takes part in a round, which the accounting takes as secret, can also be seen "
            "by who watches the traffic of the sites"
        )
    notes["transport"] = text
    asked, lost = missing(events, public=True)
    if asked and billboard.report.sampling.startswith("all tasks"):
        notes["contributions"] = (
            f"{lost} of {asked} were missing (late, refused, or of tasks without rows) and counted "
            "as zero"
        )
        if unknown := n_questions - len(questions(events)):
            notes["contributions"] += f"; of {unknown} queries the log of the run was lost"
    assumptions = [*billboard.report.assumptions, HELD, BACKUPS]
    return replace(billboard.report, assumptions=assumptions, notes=notes)


class NoAnswer(RuntimeError):
    """No site, or too few of them, answered; the curator can be started again."""


class TooFew(NoAnswer):
    """Fewer sites or tasks take part than the study asks for."""


class Sites:
    """The tasks of a study behind a Flower grid, for `skpmtl.exchange.run`.

    Answers that are late, missing, broken or refused count as zero, and the denominator stays;
    others are bounded once more by ``query.combine``. A node that does not answer at all is not
    asked, and waited for, again before it shows itself.

    Sites that have to compare queries with what was released before (`.schedule`), or to make them
    (`ServedSites`), are each sent what is new since their last answer; one that was started again
    lacks the rest, and says so, and is sent all of it.
    """

    def __init__(self, grid, study, journal, log, key=None, nodes=None):
        self.grid, self.study, self.journal = grid, study, journal
        grid.accept = self._accept
        self.log, self.key = log, key
        self.expected = dict(nodes or {})  # names by node, as the keys of the sites have them
        self.population = study.population()
        self.questions = study.questions
        self.spent = Spent(study.build(), self.population.n_tasks)
        self.asked = 0  # queries that were answered, also by the journal
        self.node_of = np.zeros(self.population.n_tasks, dtype=np.uint64)  # 0: nobody
        self.names = {}  # of the nodes that have said what they have
        self.clocks = {}  # {name: seconds that its clock is ahead}
        self.troubles = {}  # {name: why a site does not take part}, as the log has it
        self.marks = Marks(log.path.parent / "marks.json", journal.begun)
        self.silent = set()  # nodes that are not asked until they show themselves
        self.informs = self._informs()  # whether sites are sent what was released
        self.replies = []  # all that was released and drawn, as `recorded` keeps it
        self.delivered = {}  # how many of them a node has, as far as is known
        self._bytes = [0, 0]  # sent and received for the present query
        self._knocks, self._knocked = {}, {}  # number of a message: node, time; node: last time
        self._pauses = {}  # seconds until a node that refused is tried again

    def _informs(self):
        return self.study.schedule.replayed

    @property
    def holders(self):
        """Nodes that hold tasks."""
        return np.unique(self.node_of[self.node_of != 0]).tolist()

    def _name(self, node):
        """Of a site, for people: that of its key, or what it calls itself."""
        return self.expected.get(node) or self.names.get(node) or f"node {node}"

    def _trouble(self, node, reason):
        """Log why a site does not take part, once for each reason."""
        name = self._name(node)
        if self.troubles.get(name) != reason:
            self.troubles[name] = reason
            logger.warning("Site %s: %s", name, reason)
            self.log.write("trouble", site=name, reason=reason)

    def _reasons(self):
        return "; ".join(f"{name}: {why}" for name, why in sorted(self.troubles.items()))

    # ---------------------------------------------------------------------- enrolment
    def enrol(self):
        """Wait until every task is held by one site, or the time is over.

        Raises ValueError when two sites name the same task, or one a task that is not in the study.
        """
        end = time.monotonic() + self.study.enrolment
        while True:
            self._listen(strict=True)
            absent = self.population.tasks[self.node_of == 0]
            if not len(absent) and self._complete():
                return
            if time.monotonic() > end:
                break
            self.grid.rest(_POLL)
        if not len(absent):
            return
        warnings.warn(
            f"Held by no site, and counted as contributing nothing: tasks {listed(absent)}.",
            UserWarning,
            stacklevel=users_line(),
        )

    def _complete(self):
        """Whether all are there who cannot be missed."""
        return True

    def _listen(self, grace=0.0, strict=False):
        """Register the nodes that report: new ones, and those that had stopped reporting.

        They are asked which tasks they have, and nobody waits for their answers but for `grace`
        seconds after they were asked.
        """
        online, now = set(self.grid.grid.get_node_ids()), time.monotonic()
        wait = min(_KNOCK, self.study.timeout)
        for node in self.silent - online:
            if node not in self._pauses:  # of one that refused, why it did says more
                self._trouble(node, _AWAY)
        wanted = [
            node for node in online
            if (node not in self.names or node in self.silent)
            and now - self._knocked.get(node, -np.inf) >= self._pauses.get(node, wait)
        ]  # fmt: skip
        self._knocked.update(dict.fromkeys(wanted, now))
        content = {node: self._write(node) for node in wanted}
        sent = self.grid.push(self._messages(content, MessageType.QUERY))
        self._knocks = {
            n: (node, at) for n, (node, at) in self._knocks.items()
            if now - at < self.study.timeout
        } | {n: (node, now) for n, node in sent.items()}  # fmt: skip
        while True:
            for reply in self.grid.pull(self._knocks):
                node, _ = self._knocks.pop(reply.metadata.reply_to_message_id, (None, None))
                if node is not None and not reply.has_error():
                    self._take_in(node, reply.content, online, strict)
            young = any(time.monotonic() - at < grace for _, at in self._knocks.values())
            if not young:
                return
            self.grid.rest(_POLL)

    def _take_in(self, node, content, online, strict):
        if node in self.names and node not in self.silent:  # it was tried twice
            return
        try:
            settings, _ = records.read(content, {})
            new = node not in self.names
            name = self.names[node] = (
                self.expected.get(node) or str(settings.get("site", node))[:100]
            )
            if not self._answered(node, settings):
                self._try_later(node)
                return
            if not self._accept(node, content):
                self._try_later(node)
                return
            self.marks.save()
            if self._is_server(node, settings):
                return
            tasks = list(settings["tasks"])
        except Exception as error:
            self._trouble(node, f"it did not say which tasks it has: {error}")
            self._try_later(node)
            return
        try:
            self._assign(node, tasks, () if strict else set(self.holders) - online)
        except Exception as error:
            if strict:
                raise
            self._trouble(node, f"it was not taken in: {error}")
            return
        if new or node in self.silent:
            logger.info("Site %s takes part, with %d tasks", name, len(tasks))
            versions = str(settings.get("versions", ""))[:200]
            self.log.write("site", node=node, site=name, tasks=len(tasks), versions=versions)
            self.troubles.pop(name, None)
        self._pauses.pop(node, None)
        self.silent.discard(node)

    def _try_later(self, node):
        """A node that refused, or may not be asked: what is wrong may be mended meanwhile."""
        self.silent.add(node)
        self._pauses[node] = min(2 * self._pauses.get(node, _KNOCK), _LATER)

    def _accept(self, node, content):
        """Whether the books of a node go as far as they did; their mark is remembered."""
        name = self._name(node)
        mark = content.config_records.get("settings", {}).get("mark")
        if mark is None:
            return True
        try:
            if self.marks.take(name, mark):
                return True
            lines, seen = json.loads(mark)[0], self.marks.of(name)[0]
            why = (
                f"its books end at line {lines} of this study, and ended at line {seen} "
                "before: older books were restored, or books were removed. It is not queried, "
                "because it would answer a second time. Restore the newer books"
            )
        except (ValueError, TypeError):
            why = "it sent no mark of its books, and is not queried"
        self._trouble(node, why)
        return False

    def _is_server(self, node, settings):
        """Whether a node has no tasks, but is one of the servers of the study."""
        return False

    def _lose(self, nodes):
        """They are tried at once, and then every few seconds."""
        for node in set(nodes) - self.silent:
            self._knocked.pop(node, None)
        for node in nodes:
            self.delivered.pop(node, None)
        self.silent.update(nodes)

    def _assign(self, node, names, lost=()):
        """Give tasks that are free, or held by the nodes `lost`, to a node."""
        positions = self.study.positions(names)
        if (positions < 0).any() or len(set(names)) < len(names):
            raise ValueError(
                f"Site {self._name(node)} names tasks that the study does not have, or twice."
            )
        holders = self.node_of[positions]
        taken = positions[~np.isin(holders, np.array([0, node, *lost], dtype=np.uint64))]
        if len(taken):
            raise ValueError(
                f"Tasks of two sites: {listed(self.population.tasks[taken])}, of "
                f"{self._name(node)} and of "
                f"{listed(sorted({self._name(n) for n in self.node_of[taken].tolist()}))}. "
                "Every task belongs to one site."
            )
        self.node_of[positions] = node

    # ---------------------------------------------------------------------- queries
    def recalled(self, query):
        """A query that the journal has the answer to."""
        self.asked += 1
        self.spent.add(query)

    def answer(self, query):
        """Sums over the tasks queried; called by `skpmtl.exchange.run`."""
        start, waits = time.monotonic(), ""
        while True:
            begun = time.monotonic()
            self._listen(min(_GRACE, self.study.timeout / 10))
            nodes = [node for node in self.holders if node not in self.silent]
            asked = False
            try:
                self._check_enough(nodes)
                asked = bool(nodes)
                sums, fields = self._gather(query, nodes)
                break
            except NoAnswer as error:
                # As long as sites are silent they may come back, and are asked the same again.
                patient = isinstance(error, TooFew) or self.silent
                if not patient or time.monotonic() - start > self.study.enrolment:
                    raise
                if waits != str(error):
                    waits = str(error)
                    self.log.write("waiting", reason=waits)
                self.grid.rest(_AGAIN if asked else _POLL)
        self._tell(query, nodes, time.monotonic() - begun, fields)
        return sums

    def _check_enough(self, nodes, answered=None):
        """Refuse to ask, or to release, where fewer take part than the study says.

        `nodes` with tasks can be asked; `answered` are those that did, None before anybody was
        asked.
        """
        found = nodes if answered is None else answered
        tasks = int(np.isin(self.node_of, np.array(found, dtype=np.uint64)).sum())
        sites, least = self.study.least
        if len(found) < sites or tasks < least:
            raise TooFew(
                f"Query {self.journal.place} needs {sites} sites and {least} tasks (min_sites, "
                f"min_tasks), but {len(found)} sites with {tasks} tasks "
                + ("are connected" if answered is None else "answered")
                + ". It waits for the others, and no budget is spent."
            )

    def _gather(self, query, nodes):
        """-> {name: sum}, event fields"""
        m = self.population.n_tasks
        asked = np.arange(m) if query.pick is None else np.asarray(query.pick)
        place = {node: np.flatnonzero(self.node_of[asked] == node) for node in nodes}
        content = {
            node: ({"positions": asked[mine].tolist()}, {})
            for node, mine in place.items() if len(mine)
        }  # fmt: skip
        shapes = self.questions[query.statistic].shapes
        given = {name: np.full((len(asked), *s), np.nan) for name, s in shapes.items()}
        answered, got = [], 0
        for node, reply in self._inform("answer", query, content).items():
            mine = {name: (len(place[node]), *shape) for name, shape in shapes.items()}
            try:
                settings, found = records.read(reply, mine if records.size(reply) else {})
                if not self._answered(node, settings):
                    continue
                if settings["number"] != self.journal.place:
                    raise ValueError(f"an answer to query {settings['number']}")
                for name in shapes:
                    given[name][place[node]] = found[name]
                answered.append(node)
                got += len(place[node])
            except Exception as error:  # whatever it sent: it counts as nothing
                self._trouble(node, f"its answer cannot be used: {error}")
        # Under sampling the sites of those who were drawn may all be away, as nobody may be drawn.
        if not answered and all(node in content or node in self.silent for node in self.holders):
            raise NoAnswer(
                f"No site at all answered query {self.journal.place}, so that nothing but "
                f"noise would be released ({self._reasons()}). Start the curator again when sites "
                "are back: it goes on from its journal."
            )
        self._check_enough(nodes, [n for n in nodes if n in answered or n not in content])
        finite = np.ones(len(asked), dtype=bool)
        for array in given.values():
            finite &= np.isfinite(array.reshape(len(asked), -1)).all(axis=1)
        fields = {
            "asked": list(content), "answered": answered, "tasks": len(asked),
            "missing": len(asked) - got, "zeroed": int(got - finite.sum()),
        }  # fmt: skip
        return query.combine(given, asked), fields

    def _tell(self, query, nodes, seconds, fields):
        """One line in the log of the run, and one for who looks on."""
        self.asked += 1
        self.spent.add(query)
        fields["asked"], fields["answered"] = (
            sorted(map(self._name, fields[k])) for k in ("asked", "answered")
        )
        left, expected = sorted(map(self._name, self.silent)), set(self.expected.values())
        for name in fields["answered"]:
            self.troubles.pop(name, None)
        event = self.log.write(
            "question", question=self.journal.place, statistic=query.statistic, **fields,
            silent=left, holders=len(self.holders),
            expected=len(expected - set(self.study.servers or ())),
            seconds=round(seconds, 3), bytes_out=self._bytes[0], bytes_in=self._bytes[1],
            epsilon=self.spent.epsilon(),
        )  # fmt: skip
        self._bytes = [0, 0]
        logger.log(logging.WARNING if fields["zeroed"] else logging.INFO, line(event))

    def publish(self, billboard):
        """Send the billboard to all sites; those that are silent have the time of the enrolment."""
        text, arrays = pack(billboard)
        end = time.monotonic() + max(self.study.timeout, self.study.enrolment)
        left = self._everybody()
        while left:
            self._listen(min(_GRACE, self.study.timeout / 10))
            nodes = left - self.silent
            content = {n: self._write(n, arrays, public=text) for n in nodes}
            for node, reply in self._send(content, MessageType.EVALUATE).items():
                left.discard(node)
                try:
                    self._answered(node, records.read(reply, {})[0])
                except Exception as error:
                    self._trouble(node, f"it did not say whether it has its models: {error}")
            if time.monotonic() > end:
                break
            if left:
                self.grid.rest(_POLL)
        without = sorted(map(self._name, left))
        self.log.write("published", without=without)
        if without:
            logger.warning(
                "Without models: %s. Give them billboard.npz, from which load_billboard(...)"
                ".personalize makes their models.", listed(without),
            )  # fmt: skip

    def _everybody(self):
        return set(self.holders)

    def _answered(self, node, settings):
        if settings.get("status") == "answered":
            self._note_clock(self._name(node), settings.get("clock", 0.0))
            return True
        reason = str(settings.get("reason", "see the log of the site"))[:500]
        self._trouble(node, f"{settings.get('status', 'no answer')}: {reason}")
        return False

    def _note_clock(self, name, seconds):
        """Log a clock that is off by more than before; nothing hangs on it."""
        seconds = seconds if isinstance(seconds, float) and abs(seconds) >= _OFF else 0.0
        if abs(seconds - self.clocks.get(name, 0.0)) >= _OFF:
            self.clocks[name] = seconds
            self.log.write("clock", site=name, seconds=seconds)

    # -------------------------------------------------------- queries, and what was released
    def _query(self, query, first):
        """Settings and arrays of a query, with what was released from the first reply on."""
        public = dict(query.public)
        if self.study.seed is None:  # who else takes part is needed for reproducible noise only
            public.pop("everybody", None)
        text, arrays = pack({"public": public, "releases": self.replies[first:]})
        return self._head(first, public=text, statistic=query.statistic), arrays

    def _head(self, first, **settings):
        place = {"run": self.journal.token, "number": self.journal.place, "first": first}
        return {**place, **settings}

    def _inform(self, kind, query, extra):
        """Ask nodes, each with what it does not know yet. -> {node: content}

        `extra` has further settings and arrays, by node.
        """
        found, left = {}, dict(extra)
        for _ in range(2):
            content, asked = {}, {}
            for node, (settings, arrays) in left.items():
                first = self.delivered.get(node, 0)
                if first not in asked:
                    asked[first] = self._query(query, first)
                known, new = asked[first]
                content[node] = self._write(node, {**new, **arrays}, **known, **settings)
            found |= self._send(content, f"{MessageType.TRAIN}.{kind}")
            left = {n: one for n, one in left.items() if _lacks(found.get(n))}
            informed = found.keys() & content.keys() - left.keys()
            self.delivered.update(dict.fromkeys(informed, len(self.replies)))
            self.delivered.update(dict.fromkeys(left, 0))
            if not left:
                break
        return found

    # ----------------------------------------------------------------------- messages
    def _settings(self, node, settings):
        """With the mark of the node's books, without which it does not answer, and what it names
        where it has another study or version."""
        mark = self.marks.of(self._name(node))
        mark = {} if mark is None else {"mark": json.dumps(mark)}
        study = {"study": self.study.digest, "name": self.study.name, "skpmtl": __version__}
        return {**study, **settings, **mark}

    def _write(self, node, arrays=None, **settings):
        settings = self._settings(node, settings)
        return records.write(arrays, **signed(self.key, settings, arrays or {}))

    def _messages(self, content, kind):
        return [
            Message(records_, dst_node_id=node, message_type=kind, ttl=self.study.timeout)
            for node, records_ in content.items()
        ]

    def _send(self, content, kind):
        """Messages {node: content} and their replies within the time. -> {node: content}

        Nodes that send none are silent.
        """
        found = self.grid.exchange(self._messages(content, kind), self.study.timeout)
        self.marks.save()
        replies = dict(zip(content, found, strict=True))
        lost = [node for node, reply in replies.items() if reply is None]
        if lost:
            online = set(self.grid.grid.get_node_ids())
            for node in lost:
                busy = "it is connected, but does not answer: it may still compute, or hang"
                why = f"{self.grid.silent[node]}: {busy}" if node in online else _AWAY
                self._trouble(node, why)
            self._lose(lost)
        got = {node: reply.content for node, reply in replies.items() if node not in lost}
        self._bytes[0] += sum(map(records.size, content.values()))
        self._bytes[1] += sum(map(records.size, got.values()))
        return got


def _lacks(content):
    record = None if content is None else content.config_records.get("settings")
    return record is not None and record.get("status") == "lacking"


class ServedSites(Sites):
    """Sites that send sealed shares, and the servers who open and add them; see `.secret_shares`.

    All of them make every query themselves, from what was released before.

    First the servers say which shares open. Those that do at all of them are on disk before any
    server is asked for a total: these answer a query once, about one set of shares, which a
    curator that was started again has to send as it was.
    """

    def __init__(self, *args):
        super().__init__(*args)
        self.servers = {}  # {name: node}

    def _informs(self):
        return True

    def released(self, query):
        """The release of what the tasks answer; called by `skpmtl.exchange.run`."""
        return self.answer(query)

    def _query(self, query, first):
        text, arrays = pack(self.replies[first:])
        return self._head(first, public=text), arrays

    @property
    def _kept(self):
        return self.log.path.parent / "sealed.npz"

    def _complete(self):
        return set(self.servers) == set(self.study.servers)

    def _is_server(self, node, settings):
        name = settings.get("server")
        if name not in self.study.servers:
            return False
        holder = self.servers.setdefault(name, node)
        if holder != node and holder in self.silent:
            holder = self.servers[name] = node
        if holder == node:
            logger.info("Server %s takes part", name)
            self.silent.discard(node)
        return True

    def _everybody(self):
        return set(self.holders) | set(self.servers.values())

    def _gather(self, query, nodes):
        """-> {name: released}, event fields"""
        if not self._complete() or not self.silent.isdisjoint(self.servers.values()):
            here = {name for name, node in self.servers.items() if node not in self.silent}
            raise NoAnswer(
                f"Without the servers {listed(sorted(set(self.study.servers) - here))}, which are "
                "away, nothing is released. The run goes on when they are back."
            )
        sites = self._recalled()
        if sites is None:
            sites = self._collect(query, nodes)
            sites = self._agreed(query, sites)
            here = [site.node for site in sites]
            self._check_enough(nodes, [n for n in nodes if n in here or not self._holds(n, query)])
            self._keep(sites)
        found = self._from_servers("total", query, sites)
        m = self.population.n_tasks if query.pick is None else len(query.pick)
        fields = {
            "asked": nodes, "answered": [site.node for site in sites], "tasks": m,
            "missing": m - sum(site.tasks for site in sites), "zeroed": 0,
        }  # fmt: skip
        return opened(query, [found[name][1] for name in sorted(found)]), fields

    def _from_servers(self, kind, query, sites):
        """What every server answers about its shares. -> {server: (settings, arrays)}"""
        extra = {}
        for server, node in self.servers.items():
            shares = {
                f"sealed.{place}.{name}": site.shares[f"{server}.{name}"]
                for place, site in enumerate(sites) for name in query.mechanisms
            }  # fmt: skip
            extra[node] = {"sites": len(sites)}, shares
        replies, found = self._inform(kind, query, extra), {}
        for server, node in self.servers.items():
            if node not in replies:
                raise NoAnswer(
                    f"The server {server} does not answer. The run goes on when it does."
                )
            settings, _ = found[server] = records.read(replies[node])
            if settings.get("status") != "answered":
                reason = str(settings.get("reason", "see its log"))[:500]
                raise RuntimeError(f'The server {server} does not answer "{kind}": {reason}')
        return found

    def _agreed(self, query, sites):
        """The sites whose shares open at all servers; others count as nothing at all of them."""
        left = set(range(len(sites)))
        for server, (settings, _) in self._from_servers("opens", query, sites).items():
            try:
                here = set(settings["places"])
            except (KeyError, TypeError) as error:
                raise RuntimeError(
                    f"The server {server} does not say which shares open."
                ) from error
            for place in sorted(set(range(len(sites))) - here):
                node = sites[place].node
                self._trouble(node, f"its share does not open at the server {server}")
            left &= here
        if not left:
            raise NoAnswer(
                f"No share of query {self.journal.place} opens at all servers, so that nothing "
                "but noise would be released. Their logs say why."
            )
        return [sites[place] for place in sorted(left)]

    def _holds(self, node, query):
        """How many of the tasks that are asked a node has."""
        holders = self.node_of if query.pick is None else self.node_of[query.pick]
        return int((holders == node).sum())

    def _collect(self, query, nodes):
        """Shares of all sites that answer. -> list of _Shares"""
        held = {node: self._holds(node, query) for node in nodes}
        names = {f"{server}.{name}" for server in self.study.servers for name in query.mechanisms}
        most = longest(query, self.questions[query.statistic])
        found = []
        asked = {node: ({}, {}) for node in nodes if held[node]}
        for node, reply in self._inform("seal", query, asked).items():
            try:
                settings, shares = records.read(reply)
                if not self._answered(node, settings):
                    continue
                if settings["number"] != self.journal.place or set(shares) != names:
                    raise ValueError(f"{sorted(shares)} for query {settings['number']}")
                if any(
                    a.dtype != np.uint8 or a.ndim != 1 or a.size > most for a in shares.values()
                ):
                    raise ValueError("shares that are none")
            except Exception as error:  # whatever it sent: it counts as nothing
                self._trouble(node, f"its answer cannot be used: {error}")
                continue
            found.append(_Shares(node, held[node], shares))
        if not found:
            raise NoAnswer(
                f"No site at all answered query {self.journal.place}, so that nothing but "
                f"noise would be released ({self._reasons()}). The run goes on when sites are back."
            )
        return found

    def _keep(self, sites):
        """Store the sums that the servers will add up."""
        buffer = io.BytesIO()
        head = [(site.node, site.tasks, sorted(site.shares)) for site in sites]
        parts = {f"{i}.{k}": a for i, site in enumerate(sites) for k, a in site.shares.items()}
        np.savez(buffer, head=np.array(json.dumps([self.journal.place, head])), **parts)
        write_file(self._kept, buffer.getbuffer(), 0o600)

    def _recalled(self):
        """What was written down for this query before; None if nothing was."""
        if not self._kept.exists():
            return None
        with np.load(self._kept, allow_pickle=False) as found:
            place, head = json.loads(str(found["head"]))
            if place != self.journal.place:
                return None
            return [
                _Shares(node, tasks, {k: found[f"{i}.{k}"] for k in names})
                for i, (node, tasks, names) in enumerate(head)
            ]


@dataclass(frozen=True)
class _Shares:
    """What one site sent for the servers, and how many of the tasks that were asked it has."""

    node: int
    tasks: int
    shares: dict
