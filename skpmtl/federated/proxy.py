"""The door of a SuperLink: TLS, and nothing but what sites need.

Whoever reaches a SuperLink can register keys and start programs on its machine. Here the SuperLink
listens to its own machine alone, and this lets through what is for the Fleet API, which knows its
callers by their keys.
"""

import asyncio
import re
import ssl
import threading
from email.utils import formatdate

__all__ = ["Proxy"]

_PATH = rb"/v1/fleet/[a-z-]+"
_HEAD = 1 << 16  # bytes of a request before its body, at most
_PIECE = 1 << 16


class Proxy(threading.Thread):
    """Serves until the process ends.

    Parameters
    ----------
    port : int
        On all addresses of the machine.
    inner : int
        Port of the SuperLink on this machine.
    certificate, key, authority : path-like
        Of the SuperLink, and whom its certificate is from.
    """

    def __init__(self, port, inner, certificate, key, authority):
        super().__init__(daemon=True, name="front")
        self.port, self.inner = port, inner
        self.outside = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.outside.load_cert_chain(certificate, key)
        self.inside = ssl.create_default_context(cafile=authority)
        self.ready, self.error = threading.Event(), None

    def run(self):
        try:
            asyncio.run(self._serve())
        except OSError as error:
            self.error = error
        finally:
            self.ready.set()

    async def _serve(self):
        server = await asyncio.start_server(
            self._caller, None, self.port, ssl=self.outside, limit=_HEAD, ssl_handshake_timeout=20
        )
        self.ready.set()
        async with server:
            await server.serve_forever()

    async def _caller(self, reader, writer):
        back, link = None, None
        try:
            while head := await self._head(reader):
                length = _length(head)
                if length is None:
                    date = formatdate(usegmt=True)
                    writer.write(
                        b"HTTP/1.1 403 Forbidden\r\nconnection: close\r\ncontent-length: 0\r\n"
                        b"date: %s\r\n\r\n" % date.encode()
                    )
                    await writer.drain()
                    break
                if link is None:
                    source, link = await asyncio.open_connection(
                        "127.0.0.1", self.inner, ssl=self.inside, server_hostname="localhost"
                    )
                    back = asyncio.create_task(_pump(source, writer))
                link.write(head)
                while length:
                    piece = await reader.read(min(length, _PIECE))
                    if not piece:
                        return
                    length -= len(piece)
                    link.write(piece)
                    await link.drain()
        except (OSError, ssl.SSLError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # either side is away; a site tries again
        finally:
            if back is not None:
                back.cancel()
            for end in (link, writer):
                if end is not None:
                    end.close()

    @staticmethod
    async def _head(reader):
        try:
            return await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:  # no further request
            return b""


async def _pump(reader, writer):
    try:
        while piece := await reader.read(_PIECE):
            writer.write(piece)
            await writer.drain()
    except (OSError, ssl.SSLError):
        pass
    finally:
        writer.close()


def _length(head):
    """Bytes of the body of a request that may pass; None for one that may not."""
    request, *lines = head[:-4].split(b"\r\n")
    words = request.split(b" ")
    if len(words) != 3 or words[0] != b"POST" or words[2] != b"HTTP/1.1":
        return None
    if not re.fullmatch(_PATH, words[1]):
        return None
    found = None
    for line in lines:
        # What could be read as another line, or as part of the last one, by who comes next.
        if line[:1] in b" \t" or any(sign in line for sign in (b"\r", b"\n", b"\0")):
            return None
        name, _, value = line.partition(b":")
        name, value = name.strip().lower(), value.strip()
        if name == b"transfer-encoding" or (name == b"content-length" and found is not None):
            return None
        if name == b"content-length":
            if not value.isdigit() or len(value) > 15:
                return None
            found = int(value)
    return found
