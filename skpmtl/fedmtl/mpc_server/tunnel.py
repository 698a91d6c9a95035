"""Links of an engine whose own links take any certificate of the authority, as SPU's do.

The engine only meets sockets in the folder of its server. What leaves goes to the holder of the
certificate of one rank and to nobody else; what comes is of the holder of one of the other ranks
(the engine does not learn which).
"""

import asyncio
import sys
import threading
from contextlib import suppress

from .link import GREETING, belongs, contexts_of

_PIECE = 2**18  # bytes that are passed on at a time


class Tunnels:
    """Mutual TLS between the sockets of the servers, by a thread of each.

    `folder` is that of this server, with its certificate and short enough for names of sockets.
    `sent` counts bytes to other servers, before encryption.
    """

    def __init__(self, rank, addresses, folder):
        self.rank, self.folder, self.sent = rank, folder, 0
        self.addresses = [address.rsplit(":", 1) for address in addresses]
        self.coming, self.going = contexts_of(rank, folder)
        listening = threading.Event()
        threading.Thread(target=asyncio.run, args=(self._serve(listening),), daemon=True).start()
        if not listening.wait(GREETING):
            raise OSError(f"server {rank} cannot listen at {addresses[rank]}")

    def socket(self, rank):
        """Where the engine of this server listens, or finds that of another one."""
        return self.folder / ("own.socket" if rank == self.rank else f"to-{rank}.socket")

    async def _serve(self, listening):
        host, port = self.addresses[self.rank]
        settings = {"ssl": self.coming, "ssl_handshake_timeout": GREETING}
        waiting = [await asyncio.start_server(self._come, host, port, **settings)]
        for peer in set(range(len(self.addresses))) - {self.rank}:

            async def leave(reader, writer, peer=peer):
                await self._leave(reader, writer, peer)

            waiting.append(await asyncio.start_unix_server(leave, self.socket(peer)))
        listening.set()
        await asyncio.gather(*(server.serve_forever() for server in waiting))

    async def _come(self, reader, writer):
        certificate = writer.get_extra_info("peercert")
        others = set(range(len(self.addresses))) - {self.rank}
        if any(belongs(certificate, peer) for peer in others):
            there = asyncio.open_unix_connection(self.socket(self.rank))
            await self._join(reader, writer, there, comes=True)
        else:
            writer.close()

    async def _leave(self, reader, writer, peer):
        there = asyncio.open_connection(*self.addresses[peer], ssl=self.going)
        await self._join(reader, writer, there, comes=False, peer=peer)

    async def _join(self, reader, writer, there, comes, peer=None):
        """Two connections become one, until either ends."""
        try:
            far_reader, far_writer = await there
        except OSError:  # not there yet: the engine tries again
            writer.close()
            return
        try:
            if comes or belongs(far_writer.get_extra_info("peercert"), peer):
                await asyncio.gather(
                    self._pass(reader, far_writer, not comes), self._pass(far_reader, writer, comes)
                )
            else:
                text = f"The link to server {peer} was refused: its certificate is of another one."
                print(text, file=sys.stderr, flush=True)
        finally:
            far_writer.close()
            writer.close()

    async def _pass(self, reader, writer, leaves):
        with suppress(OSError):  # a link ends at either end
            while piece := await reader.read(_PIECE):
                self.sent += len(piece) * leaves
                writer.write(piece)
                await writer.drain()
        with suppress(OSError):
            writer.close()
