"""Links between the servers of a run: mutual TLS, and nothing that is not of this job."""

import asyncio
import ssl
import struct
import sys
import time
from contextlib import suppress
from pathlib import Path

from .job import BYTES, close_to_others

GREETING = 30.0  # seconds a new connection has for the TLS handshake, and again for its greeting


class Run:
    """What the links of one run share.

    `failed` is a Future that gets the exception that ends the run, `refusals` has why a link to a
    server, or None for a stranger, was refused last, and `largest` is how many bytes the largest
    message had.
    """

    def __init__(self, mpc, job):
        self.mpc, self.job, self.largest, self.refusals = mpc, job, 0, {}
        self.failed = asyncio.get_event_loop().create_future()

    def refused(self, rank, reason):
        """Log it, once if it comes again and again."""
        if self.refusals.get(rank) != reason:
            self.refusals[rank] = reason
            who = "a stranger" if rank is None else f"server {rank}"
            text = f"{self.job}: the link to {who} was refused: {reason}."
            print(text, file=sys.stderr, flush=True)

    def fail(self, error):
        if not self.failed.done():
            self.failed.set_exception(error)


class Refused(Exception):
    """A share, a message or a server that is not of this run."""


class Link(asyncio.Protocol):
    """One connection to another server, in the place of MPyC's, which trusts all input.

    Frames are MPyC's: program counter (8 bytes), length (4), and the numbers. Nothing is kept of a
    frame that is longer than any message of the job, or that comes when too much is unread. `peer`
    is the server at the other end; None: the one who connected, named by its certificate.
    """

    def __init__(self, run, peer=None):
        self.run, self.mpc, self.peer, self.came = run, run.mpc, peer, peer is None
        self.bytes = bytearray()
        self.buffers = {}  # program counter -> payload, or the Future of who waits for it
        self.unread = self.nbytes_sent = 0
        self.ready, self.timer = False, None

    def connection_made(self, transport):
        self.transport = transport
        certificate = transport.get_extra_info("peercert")
        if self.came:
            lower = range(self.mpc.pid)
            self.peer = next((rank for rank in lower if belongs(certificate, rank)), None)
            if self.peer is None:
                self.refuse(f"its certificate is of {_names(certificate)}, no server to wait for")
            elif self.mpc.parties[self.peer].protocol is not None:
                self.refuse("that server is connected already")
            else:
                self.timer = self.mpc._loop.call_later(GREETING, self.refuse, "no greeting came")
        elif not belongs(certificate, self.peer):
            self.refuse(f"its certificate is of {_names(certificate)}")
        else:
            number = self.mpc.pid.to_bytes(2, "little")
            transport.write(b"".join([number, *self.mpc._prss_keys_to_peer(self.peer)]))
            self._accept()

    def _accept(self):
        self.ready = True
        self.mpc.set_protocol(self.peer, self)

    def refuse(self, reason):
        """Close; a run that had begun with this server ends."""
        self.run.refused(self.peer, reason)
        self.bytes.clear()
        self.transport.abort()
        if self.ready:
            self.run.fail(Refused(f"the link to server {self.peer} was closed: {reason}"))

    def data_received(self, data):
        if self.transport.is_closing():
            return
        self.bytes += data  # at most a buffer of the transport
        if self.ready or self._greeted():
            self._read()

    def _greeted(self):
        length = 2 + self.mpc._prss_keys_from_peer(self.peer)
        if len(self.bytes) < length:
            return False
        self.timer.cancel()
        number = int.from_bytes(self.bytes[:2], "little")
        if number != self.peer or self.mpc.parties[self.peer].protocol is not None:
            self.refuse(f"it says that it is server {number}, or comes twice")
            return False
        self.mpc._prss_keys_from_peer(self.peer, bytes(self.bytes[2:length]))
        del self.bytes[:length]
        self._accept()
        return True

    def _read(self):
        job = self.run.job
        while len(self.bytes) >= 12:
            counter, length = struct.unpack_from("<qI", self.bytes)
            waiting = self.buffers.get(counter)
            if length > job.largest_message * BYTES or length % BYTES:
                self.refuse(
                    f"it announced a message of {length} bytes; this job has whole numbers of "
                    f"{BYTES} bytes, at most {job.largest_message} of them"
                )
                return
            if isinstance(waiting, bytes):
                self.refuse("it sent a message twice")
                return
            # What a frame costs besides its numbers counts, too.
            if waiting is None and self.unread + length + 512 > job.most_unread * BYTES + 2**20:
                self.refuse(f"it sent {self.unread} bytes that nobody had asked for")
                return
            if len(self.bytes) < 12 + length:
                return
            payload = bytes(self.bytes[12 : 12 + length])
            del self.bytes[: 12 + length]
            self.run.largest = max(self.run.largest, length)
            if waiting is None:
                self.buffers[counter] = payload
                self.unread += length + 512
            elif not self.buffers.pop(counter).done():
                waiting.set_result(payload)

    # ------------------------------------------------------------ what MPyC calls
    def send(self, counter, payload):
        self.transport.write(struct.pack("<qI", counter, len(payload)) + payload)
        self.nbytes_sent += 12 + len(payload)

    def receive(self, counter):
        payload = self.buffers.pop(counter, None)
        if payload is None:
            payload = self.buffers[counter] = self.mpc._loop.create_future()
        else:
            self.unread -= len(payload) + 512
        return payload

    def close_connection(self):
        self.transport.close()

    def connection_lost(self, error):
        if self.timer is not None:
            self.timer.cancel()
        if self.ready:
            self.mpc.unset_protocol(self.peer)


def _names(certificate):
    parts = [part for names in (certificate or {}).get("subject", ()) for part in names]
    return [value for key, value in parts if key == "commonName"]


def belongs(certificate, rank):
    return _names(certificate) == [f"MPyC party {rank}"]


def contexts_of(rank, folder=Path()):
    """TLS for the connections that come and for those that go; only the own authority counts."""
    config = folder / ".config"
    own = config / f"party_{rank}.crt", config / f"party_{rank}.key"
    for path in (config / "mpyc_ca.crt", *own):
        if not path.exists():
            raise Refused(f"there is no {path}; see make_certificates")
    close_to_others(own[1])
    contexts = [ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)]
    for context in contexts:
        context.check_hostname = False  # `Link` compares the names, at both ends
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(config / "mpyc_ca.crt")
        context.load_cert_chain(*own)
    # A handshake with itself: what the others would refuse is said here, and at once.
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = contexts[0].wrap_bio(there, back, server_side=True), contexts[1].wrap_bio(back, there)
    for end in ends[::-1] * 3:
        with suppress(ssl.SSLWantReadError):
            end.do_handshake()
    found = ends[0].getpeercert()
    if not belongs(found, rank):
        raise Refused(
            f"the certificate {own[0]} is of {_names(found)}, and this is server {rank}: it needs "
            f"one with the common name 'MPyC party {rank}'"
        )
    return contexts


async def connect(run, host, contexts):
    """Links to all others: this server waits for those of lower number and calls the others."""
    mpc, loop = run.mpc, asyncio.get_running_loop()
    for party in mpc.parties:
        party.protocol = loop.create_future() if party.pid == mpc.pid else None
    settings = {"ssl_handshake_timeout": GREETING}
    server = None
    if mpc.pid:
        port = mpc.parties[mpc.pid].port
        server = await loop.create_server(
            lambda: Link(run), host, port, ssl=contexts[0], **settings
        )
    for party in mpc.parties[mpc.pid + 1 :]:
        while party.protocol is None:
            try:
                await loop.create_connection(
                    lambda peer=party.pid: Link(run, peer), party.host, party.port,
                    ssl=contexts[1], **settings,
                )  # fmt: skip
            except (OSError, asyncio.TimeoutError) as error:
                if isinstance(error, ssl.SSLError):
                    run.refused(party.pid, str(error))
            if party.protocol is None:
                await asyncio.sleep(0.1)
    await mpc.parties[mpc.pid].protocol
    if server is not None:
        server.close()
    mpc.start_time = time.time()
