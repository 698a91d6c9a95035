"""The curator of a federated fit: queries to sites, and the sums of their answers.

What carries the messages is a *channel*, an object with

- ``sites() -> list of str``: the names of the sites, and of the servers, that are connected;
- ``exchange(kind, {site: content}, timeout) -> {site: content}``: the replies that came within
  `timeout` seconds; see `skpmtl.federated.answering` for the kinds.

`skpmtl.federated.controller` has the channel of an engine; tests have one within a process.
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
from .ledger import private_folder
from .marks import Marks
from .runlog import RunLog, Spent, line, missing, questions, read_log
from .secret_shares import longest, opened
from .transcript import recorded

__all__ = ["NoAnswer", "TooFew", "curate"]

logger = logging.getLogger("skpmtl")

HELD = "which tasks have rows is public: every site names those that it has rows of"
BACKUPS = (
    "the curator's journal is never restored to an earlier state, nor the books of a site or a "
    "server to a state before an answer that the curator did not receive: that goes undetected, "
    "and a query would be answered again with new noise (older books than the curator has recorded "
    "are refused)"
)
_AGAIN = 1.0  # seconds until a query that too few have answered is asked again
_GRACE = 5.0  # seconds, at most, that a query waits for sites that were silent before


def curate(channel, study, folder):
    """Run a study, or go on with one that was cut off. -> billboard

    Parameters
    ----------
    channel : object
        Carries the messages, see above.
    study : Study
    folder : path-like
        Of the curator: its journal and the log of the run, which are secret, and billboard.npz and
        report.json, which are public.

    Raises
    ------
    NoAnswer
        When too few sites answer: the same call goes on from the journal, once they are back.
    ValueError
        For sites whose tasks do not go together, and for a damaged folder.
    """
    folder = private_folder(Path(folder))
    log = RunLog(folder)
    with Journal(folder / "journal", {"study": study.text}) as journal:
        log.write("start", study=study.name, digest=study.digest, skpmtl=__version__)
        try:
            billboard = _curate(channel, study, folder, journal, log)
        except Exception as error:
            log.write("end", error=f"{type(error).__name__}: {error}"[:500])
            raise
        log.write("end", error=None, epsilon=billboard.report.epsilon)
    return billboard


def _curate(channel, study, folder, journal, log):
    est = study.build()
    source = est._source()
    sites = (Sites if study.servers is None else ServedSites)(channel, study, journal, log)
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
            f"NVFlare; servers of their own ({names}): sites seal what they send for the keys of "
            "these, so that the curator and the network carry what they cannot "
            "read, and see sums with the noise of all servers only. Nobody but one server has to "
            "be trusted, whichever it is, and every site with its own bound"
        )
        notes["servers"] = notes["servers"].replace(ONE_PROCESS, "")
    elif transport is not None:
        text = f"NVFlare; {transport}"
    else:
        text = (
            "NVFlare, trusted curator: it sees the clipped contribution "
            "of every single task, from which, over the rounds, personal models can be rebuilt; "
            "so can the operator of the server"
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
    """The tasks of a study behind a channel, for `skpmtl.exchange.run`.

    Answers that are late, missing, broken or refused count as zero, and the denominator stays;
    others are bounded once more by ``query.combine``. A site that does not answer is left out until
    it says again which tasks it has.

    Sites that have to compare queries with what was released before (`.schedule`), or to make them
    (`ServedSites`), are each sent what is new since their last answer; one that was started again
    lacks the rest, and says so, and is sent all of it.
    """

    def __init__(self, channel, study, journal, log):
        self.channel, self.study, self.journal, self.log = channel, study, journal, log
        self.population, self.questions = study.population(), study.questions
        self.spent = Spent(study.build(), self.population.n_tasks)
        self.asked = 0  # queries that were answered, also by the journal
        self.site_of = np.full(self.population.n_tasks, "", dtype=object)  # "": no site
        self.known = set()  # sites that have said what they have
        self.silent = set()  # of these, those that did not answer since
        self.troubles = {}  # {site: why it does not take part}, as the log has it
        self.marks = Marks(log.path.parent / "marks.json", journal.begun)
        self.informs = self._informs()  # whether sites are sent what was released
        self.replies = []  # all that was released and drawn, as `recorded` keeps it
        self.delivered = {}  # {site: how many of them it has, as far as is known}
        self._bytes = [0, 0]  # sent and received for the present query

    def _informs(self):
        return self.study.schedule.replayed

    @property
    def holders(self):
        """Sites that hold tasks, sorted."""
        return sorted(set(self.site_of.tolist()) - {""})

    def _trouble(self, site, reason):
        """Log why a site does not take part, once for each reason."""
        if self.troubles.get(site) != reason:
            self.troubles[site] = reason
            logger.warning("Site %s: %s", site, reason)
            self.log.write("trouble", site=site, reason=reason)

    def _reasons(self):
        return "; ".join(f"{site}: {why}" for site, why in sorted(self.troubles.items()))

    # ---------------------------------------------------------------------- enrolment
    def enrol(self):
        """Wait until every task is held by one site, or the time is over.

        Raises ValueError when two sites name the same task, or one a task that is not in the study.
        """
        end = time.monotonic() + self.study.enrolment
        while True:
            self._ask_tasks(end - time.monotonic())
            absent = self.population.tasks[self.site_of == ""]
            if not len(absent) and self._complete():
                return
            if time.monotonic() > end:
                break
            time.sleep(min(_AGAIN, self.study.enrolment / 10))
        if len(absent):
            warnings.warn(
                f"Held by no site, and counted as contributing nothing: tasks {listed(absent)}.",
                UserWarning,
                stacklevel=users_line(),
            )

    def _complete(self):
        """Whether all are there who cannot be missed."""
        return True

    def _ask_tasks(self, timeout):
        """Ask the sites that are new, or were silent, which tasks they have."""
        new = [s for s in self.channel.sites() if s not in self.known or s in self.silent]
        if not new or timeout <= 0:
            return
        content = {site: self._write(site) for site in new}
        for site, reply in self.channel.exchange("enrol", content, timeout).items():
            if not self._goes_on(site, reply):
                continue
            try:
                settings, _ = records.read(reply, {})
                if not self._answered(site, settings):
                    continue
                self.known.add(site)
                if not self._is_server(site, settings):
                    self._assign(site, list(settings["tasks"]))
                    versions = str(settings.get("versions", ""))[:200]
                    logger.info("Site %s takes part, with %d tasks", site, len(settings["tasks"]))
                    self.log.write(
                        "site", site=site, tasks=len(settings["tasks"]), versions=versions
                    )
            except (KeyError, TypeError) as error:
                self._trouble(site, f"it did not say which tasks it has: {error}")
                continue
            self.troubles.pop(site, None)
            self.silent.discard(site)
        self.marks.save()

    def _is_server(self, site, settings):
        """Whether a site has no tasks, but is one of the servers of the study."""
        return False

    def _assign(self, site, names):
        """Give tasks that are free to a site."""
        positions = self.study.positions(names)
        if (positions < 0).any() or len(set(names)) < len(names):
            raise ValueError(f"Site {site} names tasks that the study does not have, or twice.")
        holders = self.site_of[positions]
        taken = (holders != "") & (holders != site)
        if taken.any():
            raise ValueError(
                f"Tasks of two sites: {listed(self.population.tasks[positions[taken]])}, of {site} "
                f"and of {listed(sorted(set(holders[taken])))}. Every task belongs to one site."
            )
        self.site_of[positions] = site

    # ---------------------------------------------------------------------- queries
    def recalled(self, query):
        """A query that the journal has the answer to."""
        self.asked += 1
        self.spent.add(query)

    def answer(self, query):
        """Sums over the tasks queried; called by `skpmtl.exchange.run`."""
        end, waits = time.monotonic() + self.study.enrolment, ""
        while True:
            begun = time.monotonic()
            self._ask_tasks(min(_GRACE, self.study.timeout))
            sites = [site for site in self.holders if site not in self.silent]
            try:
                self._check_enough(sites)
                sums, fields = self._gather(query, sites)
                break
            except NoAnswer as error:
                if time.monotonic() > end:
                    raise
                if waits != str(error):
                    waits = str(error)
                    self.log.write("waiting", reason=waits)
                time.sleep(min(_AGAIN, self.study.timeout / 10))
        self._report(query, time.monotonic() - begun, fields)
        return sums

    def _check_enough(self, sites, answered=None):
        """Refuse to ask, or to release, where fewer take part than the study says.

        `sites` with tasks can be asked; `answered` are those that did, None before any was asked.
        """
        found = sites if answered is None else answered
        tasks = sum(site in found for site in self.site_of)
        n_sites, n_tasks = self.study.least
        if len(found) < n_sites or tasks < n_tasks:
            raise TooFew(
                f"Query {self.journal.place} needs {n_sites} sites and {n_tasks} tasks (min_sites, "
                f"min_tasks), but {len(found)} sites with {tasks} tasks "
                + ("are connected" if answered is None else "answered")
                + f". It waits for the others, and no budget is spent. {self._reasons()}"
            )

    def _gather(self, query, sites):
        """-> {name: sum}, event fields"""
        m = self.population.n_tasks
        asked = np.arange(m) if query.pick is None else np.asarray(query.pick)
        place = {site: np.flatnonzero(self.site_of[asked] == site) for site in sites}
        content = {
            site: ({"positions": asked[mine].tolist()}, {})
            for site, mine in place.items()
            if len(mine)
        }
        shapes = self.questions[query.statistic].shapes
        given = {name: np.full((len(asked), *s), np.nan) for name, s in shapes.items()}
        answered, got = [], 0
        for site, reply in self._inform("answer", query, content).items():
            mine = {name: (len(place[site]), *shape) for name, shape in shapes.items()}
            try:
                settings, found = records.read(reply, mine if records.size(reply) else {})
                if not self._answered(site, settings):
                    continue
                if settings["number"] != self.journal.place:
                    raise ValueError(f"an answer to query {settings['number']}")
                for name in shapes:
                    given[name][place[site]] = found[name]
                answered.append(site)
                got += len(place[site])
            except Exception as error:  # whatever it sent: it counts as nothing
                self._trouble(site, f"its answer cannot be used: {error}")
        # Under sampling the sites of those who were drawn may all be away, as nobody may be drawn.
        if not answered and all(site in content or site in self.silent for site in self.holders):
            raise NoAnswer(
                f"No site at all answered query {self.journal.place}, so that nothing but "
                f"noise would be released ({self._reasons()}). Start the study again when sites "
                "are back: it goes on from its journal."
            )
        self._check_enough(sites, [s for s in sites if s in answered or s not in content])
        finite = np.ones(len(asked), dtype=bool)
        for array in given.values():
            finite &= np.isfinite(array.reshape(len(asked), -1)).all(axis=1)
        fields = {
            "asked": list(content),
            "answered": answered,
            "tasks": len(asked),
            "missing": len(asked) - got,
            "zeroed": int(got - finite.sum()),
        }
        return query.combine(given, asked), fields

    def _report(self, query, seconds, fields):
        """One line in the log of the run, and one in that of the process."""
        self.asked += 1
        self.spent.add(query)
        for name in fields["answered"]:
            self.troubles.pop(name, None)
        event = self.log.write(
            "question",
            question=self.journal.place,
            statistic=query.statistic,
            **{k: sorted(v) if isinstance(v, list) else v for k, v in fields.items()},
            silent=sorted(self.silent),
            holders=len(self.holders),
            seconds=round(seconds, 3),
            bytes_out=self._bytes[0],
            bytes_in=self._bytes[1],
            epsilon=self.spent.epsilon(),
        )
        self._bytes = [0, 0]
        logger.log(logging.WARNING if fields["zeroed"] else logging.INFO, line(event))

    def publish(self, billboard):
        """Send the billboard to all sites, who have `enrolment` seconds for their models."""
        text, arrays = pack(billboard)
        self._ask_tasks(min(_GRACE, self.study.timeout))
        everybody = self._everybody()
        content = {s: self._write(s, arrays, public=text) for s in everybody - self.silent}
        left = set(everybody)
        replies = self._send(content, "publish", max(self.study.timeout, self.study.enrolment))
        for site, reply in replies.items():
            try:
                if self._answered(site, records.read(reply, {})[0]):
                    left.discard(site)
            except ValueError as error:
                self._trouble(site, f"it did not say whether it has its models: {error}")
        self.log.write("published", without=sorted(left))
        if left:
            logger.warning(
                "Without models: %s. Run the study again when they are back, which spends nothing; "
                "or give them billboard.npz for load_billboard(...).personalize.",
                listed(sorted(left)),
            )

    def _everybody(self):
        return set(self.holders)

    def _answered(self, site, settings):
        """Whether a site answered; logs why it did not."""
        if settings.get("status") == "answered":
            return True
        reason = str(settings.get("reason", "see the log of the site"))[:500]
        self._trouble(site, f"{settings.get('status', 'no answer')}: {reason}")
        return False

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
        """Ask sites, each with what it does not know yet. -> {site: content}

        `extra` has further settings and arrays, by site.
        """
        found, left = {}, dict(extra)
        for _ in range(2):
            content, asked = {}, {}
            for site, (settings, arrays) in left.items():
                first = self.delivered.get(site, 0)
                if first not in asked:
                    asked[first] = self._query(query, first)
                known, new = asked[first]
                content[site] = self._write(site, {**new, **arrays}, **known, **settings)
            found |= self._send(content, kind, self.study.timeout)
            left = {site: one for site, one in left.items() if _lacks(found.get(site))}
            informed = found.keys() & content.keys() - left.keys()
            self.delivered.update(dict.fromkeys(informed, len(self.replies)))
            self.delivered.update(dict.fromkeys(left, 0))
            if not left:
                break
        return found

    # ----------------------------------------------------------------------- messages
    def _write(self, site, arrays=None, **settings):
        """Content of a message, with the study, and the mark of the site's books."""
        study = {"study": self.study.digest, "name": self.study.name, "skpmtl": __version__}
        mark = self.marks.of(site)
        mark = {} if mark is None else {"mark": json.dumps(mark)}
        return records.write(arrays, **study, **settings, **mark)

    def _send(self, content, kind, timeout):
        """Messages {site: content} and the replies within the time. -> {site: content}

        Sites that send none are silent.
        """
        got = self.channel.exchange(kind, content, timeout)
        for site in content.keys() - got.keys():
            self._trouble(site, f"no reply in {timeout:g} s: it is away, computes, or hangs")
            self.delivered.pop(site, None)
            self.silent.add(site)
        got = {site: reply for site, reply in got.items() if self._goes_on(site, reply)}
        self.marks.save()  # before any answer is used
        self._bytes[0] += sum(map(records.size, content.values()))
        self._bytes[1] += sum(map(records.size, got.values()))
        return got

    def _goes_on(self, site, reply):
        """Whether a reply is a message, from books that go as far as they did."""
        try:
            settings = records.settings(reply)
            if settings.get("status") != "answered" or self.marks.take(site, settings["mark"]):
                return True
            lines, seen = json.loads(settings["mark"])[0], self.marks.of(site)[0]
            why = (
                f"its books end at line {lines} of this study, and ended at line {seen} before: "
                "older books were restored, or books were removed. Restore the newer books"
            )
        except (KeyError, TypeError, ValueError):
            why = "its reply is no message, or has no mark of its books"
        self._trouble(site, f"{why}. Its answer is not used")
        return False


def _lacks(content):
    return content is not None and records.settings(content).get("status") == "lacking"


class ServedSites(Sites):
    """Sites that send sealed shares, and the servers who open and add them; see `.secret_shares`.

    All of them make every query themselves, from what was released before.

    First the servers say which shares open. Those that do at all of them are on disk before any
    server is asked for a total: these answer a query once, about one set of shares, which a
    curator that was started again has to send as it was.
    """

    def __init__(self, *args):
        super().__init__(*args)
        self.servers = {}  # {name: site}

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

    def _is_server(self, site, settings):
        name = settings.get("server")
        if name not in self.study.servers:
            return False
        self.servers[name] = site
        logger.info("Server %s takes part", name)
        return True

    def _everybody(self):
        return set(self.holders) | set(self.servers.values())

    def _gather(self, query, names):
        """-> {name: released}, event fields"""
        if not self._complete() or not self.silent.isdisjoint(self.servers.values()):
            here = {name for name, site in self.servers.items() if site not in self.silent}
            raise NoAnswer(
                f"Without the servers {listed(sorted(set(self.study.servers) - here))}, which are "
                "away, nothing is released. The run goes on when they are back."
            )
        sites = self._recalled()
        if sites is None:
            sites = self._collect(query, names)
            sites = self._agreed(query, sites)
            here = {one.name for one in sites}
            self._check_enough(names, [n for n in names if n in here or not self._holds(n, query)])
            self._keep(sites)
        found = self._from_servers("total", query, sites)
        m = self.population.n_tasks if query.pick is None else len(query.pick)
        fields = {
            "asked": names,
            "answered": [site.name for site in sites],
            "tasks": m,
            "missing": m - sum(site.tasks for site in sites),
            "zeroed": 0,
        }
        return opened(query, [found[name][1] for name in sorted(found)]), fields

    def _from_servers(self, kind, query, sites):
        """What every server answers about its shares. -> {server: (settings, arrays)}"""
        extra = {}
        for server, site in self.servers.items():
            shares = {
                f"sealed.{place}.{name}": site.shares[f"{server}.{name}"]
                for place, site in enumerate(sites)
                for name in query.mechanisms
            }
            extra[site] = {"sites": len(sites)}, shares
        replies, found = self._inform(kind, query, extra), {}
        for server, site in self.servers.items():
            if site not in replies:
                raise NoAnswer(
                    f"The server {server} does not answer. The run goes on when it does."
                )
            settings, _ = found[server] = records.read(replies[site])
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
                site = sites[place].name
                self._trouble(site, f"its share does not open at the server {server}")
            left &= here
        if not left:
            raise NoAnswer(
                f"No share of query {self.journal.place} opens at all servers, so that nothing "
                "but noise would be released. Their logs say why."
            )
        return [sites[place] for place in sorted(left)]

    def _holds(self, site, query):
        """How many of the tasks that are asked a site has."""
        holders = self.site_of if query.pick is None else self.site_of[query.pick]
        return int((holders == site).sum())

    def _collect(self, query, sites):
        """Shares of all sites that answer. -> list of _Shares"""
        held = {site: self._holds(site, query) for site in sites}
        names = {f"{server}.{name}" for server in self.study.servers for name in query.mechanisms}
        most = longest(query, self.questions[query.statistic])
        found = []
        asked = {site: ({}, {}) for site in sites if held[site]}
        for site, reply in self._inform("seal", query, asked).items():
            try:
                settings, shares = records.read(reply)
                if not self._answered(site, settings):
                    continue
                if settings["number"] != self.journal.place or set(shares) != names:
                    raise ValueError(f"{sorted(shares)} for query {settings['number']}")
                if any(
                    a.dtype != np.uint8 or a.ndim != 1 or a.size > most for a in shares.values()
                ):
                    raise ValueError("shares that are none")
            except Exception as error:  # whatever it sent: it counts as nothing
                self._trouble(site, f"its answer cannot be used: {error}")
                continue
            found.append(_Shares(site, held[site], shares))
        if not found:
            raise NoAnswer(
                f"No site at all answered query {self.journal.place}, so that nothing but "
                f"noise would be released ({self._reasons()}). The run goes on when sites are back."
            )
        return found

    def _keep(self, sites):
        """Store the sums that the servers will add up."""
        buffer = io.BytesIO()
        head = [(site.name, site.tasks, sorted(site.shares)) for site in sites]
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
                _Shares(name, tasks, {k: found[f"{i}.{k}"] for k in names})
                for i, (name, tasks, names) in enumerate(head)
            ]


@dataclass(frozen=True)
class _Shares:
    """What one site sent for the servers, and how many of the tasks that were asked it has."""

    name: str
    tasks: int
    shares: dict
