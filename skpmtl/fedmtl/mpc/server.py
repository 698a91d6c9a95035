"""One server, or the dealer, of secure FedMTL: a process that sees shares only.

    python -m mpc.server

It reads a line of JSON with its rank (the dealer: `n_servers`), the number of servers and the key
of their connections, prints the address at which it listens, and serves rounds for the one who
connects to it, until its standard input ends. It exits with the status `LOST` when a connection is
closed.
"""

import json
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
    """What one server, or the dealer, has of the uploads of all clients.

    A client's number x is masked by streams from keys that the client draws, one for every server:
    x = e + b, b = b_0 + ... + b_(P-1). All servers get e, server r the key of b_r, and the dealer,
    who does not get e, all keys.
    """

    def __init__(self, job, rank):
        self.job, self.rank, self.deals = job, rank, rank == job.n_servers
        self.keys, self.splits, self.offsets = [], [], {}
        place = 0
        for name, shape in job.parts.items():
            self.offsets[name] = place, int(np.prod(shape, dtype=np.int64))
            place += self.offsets[name][1]
        self.e = np.empty((job.n_clients, 0 if self.deals else place), np.uint64)

    def add(self, raw):
        """The message of the next client. Raises ValueError when it is another one."""
        client, n_keys = len(self.keys), self.job.n_servers if self.deals else 1
        start = n_keys * LENGTH
        n_bytes = start + self.e[client].nbytes
        split, body = unpack(self.job, "upload", client, self.rank, n_bytes, raw)
        keys = [bytes(body[at : at + LENGTH]) for at in range(0, start, LENGTH)]
        self.keys.append(keys)
        self.splits.append(split)
        self.e[client] = np.frombuffer(body[start:], "<u8")

    def _masked(self, first, count):
        b = np.empty((self.job.n_clients, count), np.uint64)
        for row, keys in zip(b, self.keys, strict=True):
            row[:] = Stream(keys[0], first).draw((count,))
            for key in keys[1:]:
                row += Stream(key, first).draw((count,))
        return Masked(np.zeros_like(b) if self.deals else self.e[:, first : first + count], b)

    def part(self, name):
        shape = (self.job.n_clients, *self.job.parts[name])
        return self._masked(*self.offsets[name]).map(lambda x: x.reshape(shape))

    def columns(self, start, stop):
        return self._masked(self.offsets["shared"][0] + start, stop - start)


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
        """Receive uploads, aggregate, send answers, or what is wrong."""
        start = time.perf_counter(), time.process_time()
        uploads, fault = Uploads(job, self.rank), None
        for _ in range(job.n_clients):
            raw = self.control.receive_message()
            try:
                uploads.add(raw)
            except ValueError as error:
                fault = fault or str(error)
                uploads.keys.append(None)
                uploads.splits.append(None)
        fault = self._agree(job, uploads.splits, fault)
        self._say({"error": fault})
        if fault is not None:
            return
        party = self._party()
        party.links = [*party.links, self.control]
        party.costs["uploads"] = [time.perf_counter() - start[0], time.process_time() - start[1], 0]
        self._aggregate(party, job, uploads)
        party.part(None)
        self._say(party.costs)

    def _aggregate(self, party, job, uploads):
        blocks = aggregate(party, job, uploads)
        if uploads.deals:
            for _ in blocks:
                pass
            return
        # Results take the place of what they are averages of. Noise hides their last bits, as
        # rounding would: exact averages would betray the weights.
        noise = Stream(os.urandom(LENGTH))
        start, count = uploads.offsets["heads"]
        heads = uploads.e[:, start : start + count]
        start, _ = uploads.offsets["shared"]
        shared, place = uploads.e[:, start:], 0
        for number, block in enumerate(blocks):
            block += noise.draw(block.shape) >> modular(64 - NOISE)
            if number == 0:
                heads[:] = block
            else:
                shared[:, place : place + block.shape[1]] = block
                place += block.shape[1]
        party.part("answers")
        for i, split in enumerate(uploads.splits):
            header = job.header("answer", i, self.rank, split)
            own = (x[i].astype("<u8", copy=False) for x in (heads, shared))
            self.control.send_message(pack(header, *own))

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
            if fault is not None:
                continue
            fault = found["fault"]
            if fault is None and found["job"] != mine["job"]:
                fault = f"{job}: the servers were given different jobs. Send the same to all."
            for i, pair in enumerate(zip(splits, found["splits"], strict=False)):
                if fault is None and pair[0] != pair[1]:
                    fault = (
                        f"{job}: the shares of client {i} are of different splits. Split its "
                        "upload once and send those shares."
                    )
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
            connection = Client(_address(address), authkey=key)
            connection.send_bytes(str(rank).encode())
            links[other] = Link(connection)
    expected = n_servers if rank == 0 else int(rank < n_servers)
    for _ in range(expected):
        connection = listener.accept()
        links[int(connection.recv_bytes())] = Link(connection)
    return links


def _address(address):
    return tuple(address) if isinstance(address, list) else address


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
