"""Servers and dealer of secure FedMTL as threads, on the connections that processes have."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import Pipe

import numpy as np

from skpmtl.fedmtl.mpc.protocol import Dealer, Link, Server
from skpmtl.fedmtl.mpc.ring import LENGTH
from skpmtl.fedmtl.mpc.server import Process


class Recorded(Link):
    """A link that keeps what arrives over it."""

    def __init__(self, connection, kept):
        super().__init__(connection)
        self.kept = kept

    def receive(self, shape, dtype=np.uint64):
        found = super().receive(shape, dtype)
        self.kept.append(found.copy())
        return found


def linked(n_servers):
    """-> links by rank and rank of the other end, what each server receives"""
    views = [[] for _ in range(n_servers)]
    links = [{} for _ in range(n_servers + 1)]
    pairs = [(0, r) for r in range(1, n_servers + 1)]
    pairs += [(r, n_servers) for r in range(1, n_servers)]
    for a, b in pairs:
        for end, own, other in zip(Pipe(), (a, b), (b, a), strict=True):
            made = Recorded(end, views[own]) if own < n_servers else Link(end)
            links[own][other] = made
    return links, views


def together(links, function):
    """``function(rank)`` of all ranks, each in a thread; an error of one ends all."""

    def one(rank):
        try:
            return function(rank)
        except BaseException:
            for link in (link for own in links for link in own.values()):
                link.connection.close()
            raise

    with ThreadPoolExecutor(len(links)) as pool:
        return list(pool.map(one, range(len(links))))


def run(n_servers, program, server=Server, dealer=Dealer, new_key=lambda: os.urandom(LENGTH)):
    """-> results of ``program(party, rank)`` of servers and dealer, what each server received"""
    links, views = linked(n_servers)

    def party(rank):
        own = links[rank]
        if rank == n_servers:
            made = dealer([own[r] for r in range(n_servers)], new_key)
        else:
            peers = [own[r] for r in sorted(own) if r < n_servers]
            made = server(rank, n_servers, peers, own[n_servers])
        return program(made, rank)

    return together(links, party), views


def serve(job, uploads, jobs=None):
    """Servers and dealer do a round. -> the fault each names, its answers by section, its costs

    `uploads` has the shares of every client by section; `jobs` what each is told, if not `job`.
    """
    links, _ = linked(job.n_servers)

    def both(rank):
        ours, theirs = Pipe()
        with ThreadPoolExecutor(1) as pool:
            process = Process(rank, job.n_servers, theirs, links[rank])
            done = pool.submit(process.round, (jobs or {}).get(rank, job))
            fault, answers, costs = None, [], None
            for section in range(job.n_sections):
                for sections in uploads:
                    Link(ours).send_message(sections[section][rank])
                fault = json.loads(ours.recv_bytes())["error"]
                if fault is not None:
                    break
                count = 0 if rank == job.n_servers else job.n_clients
                answers.append([Link(ours).receive_message() for _ in range(count)])
            else:
                costs = json.loads(ours.recv_bytes())
            done.result()
        return fault, answers, costs

    return together(links, both)


def spread(rng, values, n_servers):
    """Shares of uint64 numbers, and zeros for the dealer."""
    parts = rng.integers(0, 2**64, (n_servers - 1, *values.shape), dtype=np.uint64)
    return [values - parts.sum(axis=0, dtype=np.uint64), *parts, np.zeros_like(values)]


def opened(results):
    """The sum of the servers' shares."""
    return np.sum(np.array(results[:-1], np.uint64), axis=0, dtype=np.uint64)
