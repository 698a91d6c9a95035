"""One server of the secure aggregation: run as a process, sees shares only.

    python -m skpmtl.fedmtl.mpc_server FOLDER

The folder of this module needs numpy and the extra ``skpmtl[mpc]`` and nothing else of skpmtl: it
may be copied to a server and run there, from where it lies, as ``python -m mpc_server FOLDER``.
FOLDER holds all that this server gets:

``job.json``
    Public: the number of this server (``rank``) and the fields of `Job`.
``.config/mpyc_ca.crt``, ``.config/party_<rank>.crt``, ``.config/party_<rank>.key``
    Certificate of the authority, own certificate and key. The certificate of server j has the
    one common name "MPyC party j"; a link to any other certificate is refused.
``in/<i>.shares``
    This server's share of the upload of client i, see `skpmtl.fedmtl.secure.split_upload`.

It writes ``out/<i>.shares``, its share of the answer to client i, and ``out/run.json`` (seconds,
CPU seconds, bytes sent, bytes of the largest message) last, once all servers have finished. ``out``
must not exist or be empty. Exit status: 0, or `LOST` if another server did not come or went away,
or 1; the reason is the last line of the error output and names the job.

With ``--attached`` it reads numbers of rounds of the job from its standard input, one a line, and
ends with it: ``in`` and ``out`` of a round are in ``FOLDER/round-<number>``, and the links between
the servers stay open.

Before any work the servers exchange the job and, for every client, the random number of
its split: a share that is missing, damaged, of another round, client, server or split ends the
run at all servers.
"""

import argparse
import asyncio
import hashlib
import json
import os
import queue
import sys
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from .computation import SECURITY, aggregate
from .job import Job, Uploads, close_to_others, from_bytes, to_bytes, with_header, write_secret
from .link import GREETING, Refused, Run, connect, contexts_of

LOST = 3


def _digest(value):
    return int.from_bytes(hashlib.sha256(json.dumps(value).encode()).digest()[:16], "little")


async def agree(mpc, job, splits):
    """Compare the job and the splits of all uploads with the other servers. -> faults, run

    Faults are empty, or say what differs, by client and server; `run`, 32 hexadecimal digits, is of
    all splits together.
    """
    none = 2**128  # of a client whose share is refused
    public = job.public
    own = [_digest(value) for value in public.values()]
    own += [none if split is None else int(split, 16) for split in splits]
    claims = [[int(x) for x in claim] for claim in await mpc.transfer(np.array(own, dtype=object))]
    faults = []
    for rank, claim in enumerate(claims):
        other = [key for key, a, b in zip(public, own, claim, strict=False) if a != b]
        if other or len(claim) != len(own):
            faults.append(f"server {rank} has another job.json: {', '.join(other)} differ")
    if not faults:
        for i, numbers in enumerate(list(zip(*claims, strict=True))[len(public) :]):
            lacking = [rank for rank, number in enumerate(numbers) if number == none]
            if lacking:
                faults.append(
                    f"the share of client {i} is missing or refused at server "
                    f"{', '.join(map(str, lacking))}, whose log says why"
                )
            elif len(set(numbers)) > 1:
                usual = max(numbers, key=numbers.count)
                odd = [rank for rank, number in enumerate(numbers) if number != usual]
                odd = range(len(numbers)) if numbers.count(usual) == 1 else odd
                faults.append(
                    f"the shares of client {i} are not of one split: that at server "
                    f"{', '.join(map(str, odd))} is of another upload than those of the other "
                    "servers. Let the client split once more and send every server its share"
                )
    return faults, f"{_digest(own):032x}"


def _unconnected(mpc):
    peers = [peer for peer in mpc.parties if peer.pid != mpc.pid]
    return [p.pid for p in peers if p.protocol is None or p.protocol.transport.is_closing()]


async def _until_lost(mpc):
    while not _unconnected(mpc):
        await asyncio.sleep(0.2)
    raise ConnectionError


async def _unless_failed(run, work, *others):
    """The result of a coroutine, or the exception that ends the run before."""
    tasks = [asyncio.ensure_future(one) for one in (work, *others)]
    await asyncio.wait({*tasks, run.failed}, return_when=asyncio.FIRST_COMPLETED)
    for task in (run.failed, *tasks):
        if task.done():
            for one in tasks[1:]:
                one.cancel()
            return task.result()


class Server:
    """One server of a job, in its folder, for one round or for several."""

    def __init__(self, job, rank, listen):
        if rank not in range(job.n_servers):
            raise Refused(f"rank={rank!r} in job.json is none of {job.n_servers} servers")
        for secret in (Path(), Path(".config")):
            if secret.exists():
                close_to_others(secret)
        self.job, self.rank, self.contexts, self.connected = job, rank, contexts_of(rank), False
        # MPyC reads its settings from the command line when it is imported.
        sys.argv = [sys.argv[0], "--no-log", "-K", str(SECURITY), "-I", str(rank)]
        sys.argv += ["-T", str(job.threshold)]
        for address in job.addresses:
            sys.argv += ["-P", address]
        os.environ["MPYC_NOUVLOOP"] = "1"
        from mpyc import runtime

        self.mpc = mpc = runtime.mpc
        # All its messages are arrays of numbers: nothing is unpickled.
        runtime.pickle = SimpleNamespace(
            dumps=lambda x: to_bytes(np.atleast_1d(np.asarray(x, dtype=object))), loads=from_bytes
        )
        self.host = listen or mpc.parties[rank].host
        self.loop = asyncio.get_event_loop()
        self.run = Run(mpc, job)

        def failed(loop, context):
            loop.default_exception_handler(context)
            error = context.get("exception")
            if isinstance(error, Exception) and not isinstance(error, OSError):  # of a connection
                self.run.fail(error)

        self.loop.set_exception_handler(failed)  # else MPyC would wait for the rest

    def aggregate(self, job, folder, last):
        """One round, in `folder`; the process ends if it fails."""
        self.job = self.run.job = job
        out = folder / "out"
        out.mkdir(mode=0o700, exist_ok=True)
        if any(out.iterdir()):
            raise Refused("the folder out has answers of an earlier run; move them away first")
        for secret in (folder, folder / "in", out):
            if secret.exists():
                close_to_others(secret)
        uploads = Uploads(job, folder, self.rank)
        for fault in uploads.faults:
            print(fault, file=sys.stderr, flush=True)
        spent = time.process_time() if self.connected else 0.0
        work = asyncio.wait_for(self._aggregate(uploads, last), job.timeout)
        try:
            shared, heads, split, run = self.loop.run_until_complete(work)
        except Exception as error:
            self._give_up(error, uploads)
        for i in range(job.n_clients):
            body = to_bytes(np.concatenate([shared[i], heads[i].ravel()]))
            content = with_header(job, "answer", i, self.rank, split, body)
            write_secret(out / f"{i}.shares", content)
        run["cpu_seconds"] = time.process_time() - spent
        (out / "run.part").write_text(json.dumps(run) + "\n")
        (out / "run.part").rename(out / "run.json")

    async def _aggregate(self, uploads, last):
        """-> shared, heads, number of the run, what it took"""
        mpc, job, run = self.mpc, self.job, self.run
        if not self.connected:
            await _unless_failed(run, connect(run, self.host, self.contexts))
            others = job.n_servers - 1
            print(f"Process {os.getpid()} is connected to {others} servers.", flush=True)
            self.connected = True
        before, started = self._sent(), time.perf_counter()
        agreed = agree(mpc, job, uploads.splits)
        faults, split = await _unless_failed(run, agreed, _until_lost(mpc))
        if faults:
            with suppress(asyncio.TimeoutError):  # so that all the others have read it
                await asyncio.wait_for(mpc.shutdown(), GREETING)
            raise Refused("; ".join(faults))
        work = aggregate(mpc, job, uploads)
        shared, heads = await _unless_failed(run, work, _until_lost(mpc))
        found = {
            "seconds": time.perf_counter() - started,
            "bytes_sent": self._sent() - before,
            "largest_message": run.largest,
        }
        # Nobody answers unless all have finished.
        await _unless_failed(run, mpc.shutdown() if last else mpc.transfer(self.rank))
        return shared, heads, split, found

    def _sent(self):
        peers = [peer for peer in self.mpc.parties if peer.pid != self.rank]
        return sum(peer.protocol.nbytes_sent for peer in peers)

    def _give_up(self, error, uploads):
        """Say why, and end: MPyC cannot give up a computation."""
        if isinstance(error, Refused):
            reason = f"{error}."
        elif _unconnected(self.mpc):
            with suppress(RuntimeError):  # the first to go takes others with it: name them all
                self.loop.run_until_complete(asyncio.sleep(1.0))
            lost, refusals = _unconnected(self.mpc), self.run.refusals
            reason = f"No connection to server {', '.join(map(str, lost))}."
            known = [f" {rank}: {refusals[rank]}." for rank in lost if rank in refusals]
            reason += "".join(known)
        elif isinstance(error, (TimeoutError, asyncio.TimeoutError)):
            reason = f"Not finished within {self.job.timeout:g} seconds."
        else:
            traceback.print_exception(error)
            reason = f"{type(error).__name__}: {error}"
        text = f"{self.job}: {' '.join([reason, *uploads.faults[:3]])}"
        print(text, file=sys.stderr, flush=True)
        lost = _unconnected(self.mpc) and not isinstance(error, Refused)
        os._exit(LOST if lost else 1)


def asked():
    """Numbers of rounds from the standard input, with which the process ends."""
    lines = queue.Queue()

    def read():
        for line in sys.stdin:
            lines.put(int(line))
        os._exit(LOST)

    threading.Thread(target=read, daemon=True).start()
    return iter(lines.get, None)


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m skpmtl.fedmtl.mpc_server", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("folder", type=Path)
    parser.add_argument("--listen", help="host to listen on; default: the one in the addresses")
    parser.add_argument(
        "--attached", action="store_true",
        help="read numbers of rounds, whose folders are round-<number>, and end with the input",
    )  # fmt: skip
    options = parser.parse_args(arguments)
    os.chdir(options.folder)
    try:
        rank, job = Job.load(Path())
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        sys.exit(f"{options.folder / 'job.json'} is not the job of a server: {error!r}")
    rounds = asked() if options.attached else [job.round]
    try:
        server = Server(job, rank, options.listen)
        for number in rounds:
            job = replace(job, round=number)
            folder = Path(f"round-{number}") if options.attached else Path()
            server.aggregate(job, folder, last=not options.attached)
    except Refused as error:
        sys.exit(f"{job}: {error}.")
    except Exception as error:
        traceback.print_exc()
        sys.exit(f"{job}: {type(error).__name__}: {error}")
