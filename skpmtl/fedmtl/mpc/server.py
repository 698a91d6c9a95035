"""One server, or the dealer, of secure FedMTL: a process that sees shares only.

    python -m mpc.server

It reads a line of JSON with its rank (the dealer: `n_servers`), the number of servers and the key
of their connections, prints the address at which it listens, and serves rounds for the one who
connects to it, until its standard input ends. It exits with the status `LOST` when a connection is
closed.
"""

import json
import math
import os
import sys
import threading
import time
from dataclasses import asdict
from multiprocessing.connection import Client, Listener

import numpy as np

from .computation import aggregate
from .job import NOISE, Job, pack, unpack
from .protocol import Dealer, Link, Masked, Server
from .ring import LENGTH, Stream, modular

__all__ = ["LOST", "Process", "Uploads", "main"]

LOST = 3


class Uploads:
    """What one server, or the dealer, has of the uploads of all clients: one section at a time.

    A client's number x is masked by streams from keys that the client draws, one for every server:
    x = e + b, b = b_0 + ... + b_(P-1). All servers get e, server r the key of b_r, and the dealer,
    who does not get e, all keys. Keys come with section 0.
    """

    def __init__(self, job, rank):
        self.job, self.rank, self.deals = job, rank, rank == job.n_servers
        n = job.n_clients
        self.keys, self.splits = [None] * n, [None] * n
        ends = np.cumsum([math.prod(shape) for shape in job.parts.values()]).tolist()
        self.offsets = dict(zip(job.parts, [0, *ends[:-1]], strict=True))

    def begin(self, section):
        """Make room for a section, in place of the one before."""
        self.section, (self.start, stop) = section, self.job.sections[section : section + 2]
        count = 0 if self.deals else stop - self.start
        self.e = np.empty((self.job.n_clients, count), np.uint64)

    def add(self, client, raw):
        """A client's message of the section. Raises ValueError when it is another one."""
        n_keys = 0 if self.section else self.job.n_servers if self.deals else 1
        size = n_keys * LENGTH
        n_bytes = size + self.e[client].nbytes
        split, body = unpack(self.job, "upload", client, self.rank, self.section, n_bytes, raw)
        if self.section == 0:
            self.keys[client] = [bytes(body[at : at + LENGTH]) for at in range(0, size, LENGTH)]
            self.splits[client] = split
        elif split != self.splits[client]:
            raise ValueError(_of_other_splits(self.job, client))
        self.e[client] = np.frombuffer(body[size:], "<u8")

    def _masked(self, first, count):
        b = np.empty((self.job.n_clients, count), np.uint64)
        for row, keys in zip(b, self.keys, strict=True):
            row[:] = Stream(keys[0], first).draw((count,))
            for key in keys[1:]:
                row += Stream(key, first).draw((count,))
        if self.deals:
            return Masked(np.zeros_like(b), b)
        return Masked(self.e[:, first - self.start : first - self.start + count], b)

    def part(self, name):
        shape = self.job.parts[name]
        masked = self._masked(self.offsets[name], math.prod(shape))
        return masked.map(lambda x: x.reshape(self.job.n_clients, *shape))

    def columns(self, section):
        start, stop = self.job.sections[section : section + 2]
        return self._masked(start, stop - start)


def _of_other_splits(job, client):
    return (
        f"{job}: the shares of client {client} are of different splits. Split its upload once and "
        "send those shares."
    )


class Process:
    """Rounds of one server, or of the dealer.

    Parameters
    ----------
    rank, n_servers : int
        The dealer has the rank `n_servers`.
    control : connection to the clients
    links : dict of int to Link
        By rank: server 0 and the dealer to all others, others to these two.
    """

    def __init__(self, rank, n_servers, control, links):
        self.rank, self.n_servers = rank, n_servers
        self.control, self.links = Link(control), links

    def _party(self):
        if self.rank == self.n_servers:
            links = [self.links[r] for r in range(self.n_servers)]
            return Dealer(links, lambda: os.urandom(LENGTH))
        others = range(1, self.n_servers) if self.rank == 0 else [0]
        peers = [self.links[r] for r in others]
        return Server(self.rank, self.n_servers, peers, self.links[self.n_servers])

    def round(self, job):
        """Section by section: receive uploads, aggregate, send answers, or what is wrong."""
        start = time.perf_counter(), time.process_time()
        uploads, noise = Uploads(job, self.rank), Stream(os.urandom(LENGTH))
        if not self._receive(job, uploads, 0):
            return
        party = self._party()
        party.links = [*party.links, self.control]
        party.costs["uploads"] = [time.perf_counter() - start[0], time.process_time() - start[1], 0]
        for section, result in enumerate(aggregate(party, job, uploads)):
            party.part("answers")
            if not uploads.deals:
                # Noise hides the last bits, as rounding would: exact averages would betray the
                # weights.
                result += noise.draw(result.shape) >> modular(64 - NOISE)
                for i, split in enumerate(uploads.splits):
                    header = job.header("answer", i, self.rank, section, split)
                    self.control.send_message(pack(header, result[i].astype("<u8", copy=False)))
            party.part("uploads")
            if section + 1 < job.n_sections and not self._receive(job, uploads, section + 1):
                return
        party.part(None)
        self._say(party.costs)

    def _receive(self, job, uploads, section):
        """A section of the uploads of all clients. -> whether all have the right ones"""
        fault = None
        uploads.begin(section)
        for client in range(job.n_clients):
            raw = self.control.receive_message()
            try:
                uploads.add(client, raw)
            except ValueError as error:
                fault = fault or str(error)
        fault = self._agree(job, uploads.splits, fault)
        self._say({"error": fault})
        return fault is None

    def _agree(self, job, splits, fault):
        """Compare the jobs and the splits of all servers and the dealer. -> fault, or None"""
        mine = {"job": asdict(job), "splits": splits, "fault": fault}
        if self.rank > 0:
            zero = self.links[0].connection
            zero.send_bytes(json.dumps(mine).encode())
            return json.loads(zero.recv_bytes())
        others = [self.links[r].connection for r in range(1, self.n_servers + 1)]
        for other in others:
            found = json.loads(other.recv_bytes())
            fault = fault or found["fault"]
            if fault is None and found["job"] != mine["job"]:
                fault = f"{job}: the servers were given different jobs. Send the same to all."
            elif fault is None and found["splits"] != splits:
                pairs = enumerate(zip(splits, found["splits"], strict=True))
                fault = _of_other_splits(job, next(i for i, (a, b) in pairs if a != b))
        for other in others:
            other.send_bytes(json.dumps(fault).encode())
        return fault

    def _say(self, what):
        self.control.connection.send_bytes(json.dumps(what).encode())


def _connected(rank, n_servers, listener, addresses, key):
    """Links to server 0 and the dealer, or of these to all others."""
    links = {}
    for other, address in enumerate(addresses):
        if other < rank and (other == 0 or rank == n_servers):
            connection = Client(address, authkey=key)
            connection.send_bytes(str(rank).encode())
            links[other] = Link(connection)
    expected = n_servers if rank == 0 else int(rank < n_servers)
    for _ in range(expected):
        connection = listener.accept()
        links[int(connection.recv_bytes())] = Link(connection)
    return links


def main():
    settings = json.loads(sys.stdin.readline())
    rank, n_servers, key = settings["rank"], settings["n_servers"], bytes.fromhex(settings["key"])

    def end_with_the_caller():
        sys.stdin.read()
        os._exit(LOST)

    threading.Thread(target=end_with_the_caller, daemon=True).start()
    with Listener(backlog=n_servers + 1, authkey=key) as listener:
        print(json.dumps(listener.address), flush=True)
        try:
            control = listener.accept()
            addresses = json.loads(control.recv_bytes())
            links = _connected(rank, n_servers, listener, addresses, key)
            process = Process(rank, n_servers, control, links)
            while True:
                process.round(Job(**json.loads(control.recv_bytes())))
        except (EOFError, ConnectionError) as error:
            print(f"A connection was closed: {type(error).__name__}", file=sys.stderr)
            sys.exit(LOST)


if __name__ == "__main__":
    main()
