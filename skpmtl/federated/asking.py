"""Sites and their answers, as the curator sees them."""

import json
import logging
import time
import warnings

import numpy as np

from .._runtime.stack import users_line
from .._version import __version__
from ..exchange.wire import pack
from ..tables.ids import listed
from . import records
from .marks import Marks
from .runlog import line

__all__ = ["NoAnswer", "Sites", "TooFew"]

logger = logging.getLogger("skpmtl")

_AGAIN = 1.0  # seconds until a query that too few have answered is asked again
_GRACE = 5.0  # seconds, at most, that a query waits for sites that were silent before


class NoAnswer(RuntimeError):
    """No site, or too few of them, answered; the curator can be started again."""


class TooFew(NoAnswer):
    """Fewer sites or tasks take part than the study asks for."""


class Sites:
    """The tasks of a study behind a channel, for `skpmtl.exchange.run`.

    Answers that are late, missing, broken or refused count as zero, and the denominator stays;
    others are bounded once more by ``query.combine``. A site that does not answer is left out until
    it says again which tasks it has.

    Sites compare queries with what was released before, or make them (`ServedSites`). They are each
    sent what is new since their last answer; one that was started again lacks the rest, and says
    so, and is sent all of it.
    """

    def __init__(self, channel, study, journal, log):
        self.channel, self.study, self.journal, self.log = channel, study, journal, log
        self.population, self.questions = study.population(), study.questions
        self.site_of = np.full(self.population.n_tasks, "", dtype=object)  # "": no site
        self.known = set()  # sites that have said what they have
        self.silent = set()  # of these, those that did not answer since
        self.troubles = {}  # {site: why it does not take part}, as the log has it
        self.marks = Marks(log.path.parent / "marks.json", journal.begun)
        self.replies = []  # all that was released, as `recorded` keeps it for sites
        self.delivered = {}  # {site: how many of them it has, as far as is known}

    @property
    def informs(self):
        """Whether sites are sent what was released."""
        return self.study.is_replayed

    def shown(self, drawn):
        """What sites are sent in place of a draw: who takes part is secret."""
        return np.arange(self.population.n_tasks)

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

        def read(site, reply):
            mine = {name: (len(place[site]), *shape) for name, shape in shapes.items()}
            return records.read(reply, mine)[1]

        for site, found in self._usable("answer", query, content, read):
            for name in shapes:
                given[name][place[site]] = found[name]
            answered.append(site)
            got += len(place[site])
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

    def _usable(self, kind, query, content, read):
        """Yield (site, ``read(site, reply)``) of those who answer; all else counts as nothing."""
        for site, reply in self._inform(kind, query, content).items():
            try:
                settings = records.settings(reply)
                if not self._answered(site, settings):
                    continue
                if settings["number"] != self.journal.place:
                    raise ValueError(f"an answer to query {settings['number']}")
                found = read(site, reply)
            except Exception as error:  # whatever it sent
                self._trouble(site, f"its answer cannot be used: {error}")
                continue
            yield site, found

    def _report(self, query, seconds, fields):
        """One line in the log of the run, and one in that of the process."""
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
        )
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
            why = "it is away, computes or hangs, or its disk is full"
            self._trouble(site, f"no reply in {timeout:g} s: {why}")
            self.delivered.pop(site, None)
            self.silent.add(site)
        got = {site: reply for site, reply in got.items() if self._goes_on(site, reply)}
        self.marks.save()  # before any answer is used
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
