"""Sites that send sealed shares, and the servers that open and add them."""

import io
import json
import logging
from dataclasses import dataclass

import numpy as np

from ..exchange.journal import write_file
from ..exchange.wire import pack
from ..tables.ids import listed
from . import records
from .asking import NoAnswer, Sites
from .secret_shares import longest, opened

__all__ = ["ServedSites"]

logger = logging.getLogger("skpmtl")


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

    @property
    def informs(self):
        return True

    def shown(self, drawn):
        return drawn  # it decides which tasks a site adds up

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
        asked = {site: ({}, {}) for site in sites if held[site]}

        def read(site, reply):
            shares = records.read(reply)[1]
            if set(shares) != names or any(
                a.dtype != np.uint8 or a.ndim != 1 or a.size > most for a in shares.values()
            ):
                raise ValueError(f"shares that are none: {sorted(shares)}")
            return _Shares(site, held[site], shares)

        found = [shares for _, shares in self._usable("seal", query, asked, read)]
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
