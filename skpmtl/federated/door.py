"""The door of a SuperLink: TLS, and nothing but what sites need.

Whoever reaches a SuperLink can register keys and start programs on its machine. Here the SuperLink
listens to its own machine alone, and the door passes on what is for the Fleet API, which knows its
callers by their keys. uvicorn reads the requests, and httpx writes them anew.

The door records why a site is refused, which Flower writes to its own log only, and when each site
was last seen. Two requests it answers itself: ``/wait``, which returns when there may be queries,
so that sites need not ask for them all the time, and ``/hello``, by which ``check`` compares keys,
versions and studies at both ends.
"""

import asyncio
import base64
import binascii
import re
import socket
import ssl
import threading
import time

from .._version import __version__

try:
    import httpx
    import uvicorn
    from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import JSONResponse, Response, StreamingResponse
except ImportError as error:
    raise ImportError(
        "The curator of a federation needs Flower, on Python 3.11 or newer: install the extra "
        "with  pip install skpmtl[flower]"
    ) from error

__all__ = ["Door"]

_PATH = rb"/v1/fleet/[a-z-]+"
_HEAD = 1 << 16  # bytes of a request before its body, at most
# Headers of one connection, and what uvicorn writes itself.
_HOP = {
    "connection", "date", "host", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade",
}  # fmt: skip
_WAIT = 5.0  # seconds that a request for news waits at most
_LOOK = 0.02  # seconds between looks at the bell
_AGENT = r"skpmtl/(\S+) \((.+)\)"


class Door:
    """Serves on `port`, on all addresses of the machine, until the process ends.

    `certificate` and `key` are those of the SuperLink, `authority` issued the certificate. Raises
    OSError when the port cannot be opened. `inner` is the port of the SuperLink on this machine, 0:
    there is none; `keys` has names of the sites by their public keys (PEM), `studies` digests of
    the studies by name. `seen` has when a site was let in last, by `time.monotonic`, `refused` why
    it was not the last time (of one whose key is not known, by the name it gives itself), and
    `handshakes`, by reasons of TLS why callers went away before they said who they are, when last.
    """

    def __init__(self, port, certificate, key, authority, bells):
        self.inner, self.keys, self.studies, self.bells = 0, {}, {}, bells
        self.seen, self.refused, self.handshakes = {}, {}, {}
        self.authority, self._client = authority, None  # it lives with the server
        config = uvicorn.Config(
            self._app, interface="asgi3", http="h11", ws="none", loop="asyncio", lifespan="on",
            log_config=None, access_log=False, proxy_headers=False, server_header=False,
            timeout_keep_alive=75, h11_max_incomplete_event_size=_HEAD,
        )  # fmt: skip
        config.load()
        config.ssl = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        config.ssl.load_cert_chain(certificate, key)
        config.ssl.sslobject_class = _Handshake
        config.ssl.failed = self.handshakes
        self.server, self.socket = uvicorn.Server(config), _listen(port)
        self.thread = threading.Thread(
            target=self.server.run, args=([self.socket],), daemon=True, name="door"
        )

    def start(self):
        """Serve, in a thread of its own."""
        self.thread.start()

    def close(self):
        self.server.should_exit = True
        self.thread.join(10)

    # ----------------------------------------------------------------------- requests
    async def _app(self, scope, receive, send):
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        request = Request(scope, receive)
        path = scope.get("raw_path", b"").partition(b"?")[0]
        try:
            if request.method == "GET" and path == b"/wait":
                response = await self._wait(request)
            elif request.method == "GET" and path == b"/hello":
                name = self._caller(request)[0]
                found = {"skpmtl": __version__, "site": name}
                response = JSONResponse(found | ({"studies": self.studies} if name else {}))
            elif _passes(request, path):
                response = await self._pass(request, path.decode())
            else:
                response = Response(status_code=403, headers={"connection": "close"})
            await response(scope, receive, send)
        except ClientDisconnect:
            pass  # a site tries again

    async def _live(self, receive, send):
        """From the start to the end of the server."""
        context, limits = ssl.create_default_context(cafile=self.authority), httpx.Limits()
        async with httpx.AsyncClient(verify=context, timeout=60.0, limits=limits) as self._client:
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    def _caller(self, request):
        """Whose key a request has, or None; what the caller calls itself, and its version."""
        try:
            key = base64.b64decode(request.headers.get(FLEET_HTTP_PUBLIC_KEY_HEADER, ""))
        except (binascii.Error, ValueError):
            key = b""
        agent = re.fullmatch(_AGENT, request.headers.get("user-agent", "")[:200])
        version, claim = agent.groups() if agent else ("", "")
        return self.keys.get(key), claim, version

    async def _wait(self, request):
        """The count of the bell, when it is another one than the caller has seen."""
        name = self._caller(request)[0]
        if name is None:
            return Response(status_code=403)
        self.seen[name] = time.monotonic()
        self.bells.replies.ring()  # it waits, hence has sent what it had
        known = request.query_params.get("seen")
        end = time.monotonic() + _WAIT
        while str(count := self.bells.queries.count()) == known and time.monotonic() < end:
            await asyncio.sleep(_LOOK)
        return Response(str(count))

    async def _pass(self, request, path):
        name, claim, version = self._caller(request)
        headers = [(k, v) for k, v in request.headers.items() if k not in _HOP]
        passed = self._client.build_request(
            "POST", f"https://localhost:{self.inner}{path}", headers=headers,
            content=request.stream(),
        )  # fmt: skip
        try:
            found = await self._client.send(passed, stream=True)
        except httpx.HTTPError:
            return Response(status_code=502, headers={"connection": "close"})
        if found.status_code < 400:
            self.seen[name] = time.monotonic()
            self.refused.pop(name, None)
        elif found.status_code < 500:
            await found.aread()
            self._refuse(name, claim, version, request, found)
        headers = {k: v for k, v in found.headers.items() if k not in _HOP}
        if found.is_closed:
            return Response(found.content, found.status_code, headers)
        return _Streamed(found, headers)

    def _refuse(self, name, claim, version, request, found):
        address = request.client.host if request.client else "?"
        if name is not None:
            self.refused[name] = (
                f"the SuperLink refuses its requests: {found.status_code} {found.text[:200]}"
            )
        elif len(self.refused) < 1000:
            self.refused[claim or f"a caller from {address}"] = (
                f"a caller from {address} (skpmtl {version or '?'}) has a key that is not in "
                f"sites/{claim or 'NAME'}.pub: restore its site.key, or put its site.key.pub "
                "there and restart the curator"
            )


def _passes(request, path):
    """Whether a request is for the Fleet API."""
    sized = request.headers.getlist("content-length")
    return (
        request.method == "POST"
        and re.fullmatch(_PATH, path) is not None
        and not request.scope["query_string"]
        and len(sized) == 1
        and "transfer-encoding" not in request.headers
    )


class _Streamed(StreamingResponse):
    """A response as it comes; closed when it is sent, or when it cannot be."""

    def __init__(self, found, headers):
        super().__init__(found.aiter_raw(), found.status_code, headers)
        self.found = found

    async def __call__(self, scope, receive, send):
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self.found.aclose()


class _Handshake(ssl.SSLObject):
    """Remembers why a caller went away: that is all that is known of one without trust in us."""

    def do_handshake(self):
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            self.context.failed[str(error.reason)] = time.monotonic()
            raise


def _listen(port):
    try:
        if socket.has_dualstack_ipv6():
            return socket.create_server(
                ("::", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=256
            )
    except OSError as error:
        if error.errno not in (97, 99):  # no IPv6 here
            raise
    return socket.create_server(("", port), backlog=256)
