"""One process of a site that stays: it asks the SuperLink for queries and answers them.

It takes the place of Flower's SuperNode, which starts a new process for every message, runs the
program that the SuperLink sends, and gives up when the SuperLink is away. This one runs the
ClientApp of the skpmtl that is installed here and nothing else, and comes back by itself: after
hours without a network, and after a SuperLink was started anew.

Flower has no public interface for that. `_Link` is the only place that uses the inner one, of the
versions in `VERSIONS`, which are pinned and tested.
"""

import logging
import signal
import ssl
import threading
import time
from base64 import b64encode
from contextlib import contextmanager
from datetime import timedelta
from email.utils import parsedate_to_datetime

from .._version import __version__
from ..exchange.journal import write_file
from ._flower import Message, RecordDict, flower_version
from .client import app
from .studies import write_studies
from .study import Study

try:
    import httpx
    from cryptography.hazmat.primitives.serialization import (
        load_pem_private_key,
        load_ssh_private_key,
    )
    from flwr.app import Context, Error
    from flwr.app.message import remove_content_from_message
    from flwr.common.constant import HEARTBEAT_MIN_INTERVAL, TIMESTAMP_HEADER, ErrorCode
    from flwr.common.serde import message_from_proto, message_to_proto
    from flwr.proto import fleet_pb2, heartbeat_pb2
    from flwr.proto.message_pb2 import (
        ConfirmMessageReceivedRequest,
        PullObjectRequest,
        PushObjectRequest,
    )
    from flwr.proto.node_pb2 import Node
    from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
    from flwr.supercore.date import now
    from flwr.supercore.inflatable.inflatable_object import (
        get_all_nested_objects,
        get_object_tree,
        iterate_object_tree,
        no_object_id_recompute,
    )
    from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
    from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
    from flwr.supercore.primitives.asymmetric import (
        generate_key_pairs,
        public_key_to_bytes,
        sign_message,
    )
    from flwr.supercore.task_identity import TaskIdentity
    from flwr.supernode.fleet_http_client import FleetHttpClient
except ImportError as error:
    raise ImportError(
        f"Flower {flower_version} is no version that a site runs with: install the extra anew with "
        "pip install skpmtl[flower]"
    ) from error

__all__ = ["VERSIONS", "serve"]

VERSIONS = ("1.41", "1.42")  # of Flower
logger = logging.getLogger("skpmtl")

_POLL, _IDLE = 0.1, 1.0  # seconds between looks for queries: at least, and at most
_TIMEOUT = 10.0  # seconds for one exchange with the SuperLink
_PATIENCE = 60.0  # seconds in which a reply is tried to be sent
_LONGEST = 5.0  # seconds between two tries to connect
_AGE = 60.0  # seconds that signatures are dated back; up to 300 are accepted, but none ahead
_NEXT = 2.0  # seconds after an answer until another query is looked for, unless one is announced
_RARE = 20.0  # seconds until a SuperLink is asked for queries, whatever its door says
_OFTEN = HEARTBEAT_MIN_INTERVAL * 0.7  # seconds between signs of life; two may be lost


def serve(config, until=None):
    """Answer queries until all studies of the site are finished, or the event `until` is set.

    Raises ValueError for a version of Flower that this was not tested with, and a key or a
    certificate that cannot be read.
    """
    if not flower_version.startswith(tuple(f"{v}." for v in VERSIONS)):
        raise ValueError(
            f"Flower {flower_version} is none of the versions {', '.join(VERSIONS)} that a site "
            "runs with: install the extra anew with  pip install skpmtl[flower]"
        )
    until = threading.Event() if until is None else until
    link = _Link(config)
    threading.Thread(target=_rehearse, args=(config,), daemon=True, name="rehearsal").start()
    with link.alive(until):
        last = time.monotonic()
        while not until.is_set() and not config.finished():
            try:
                found = link.receive()
                if found is None:
                    link.rest(time.monotonic() - last)
                    continue
                start = time.monotonic()
                reply = _answer(link, config, found)
                link.send(found, reply)
                last = time.monotonic()
                logger.info(
                    "%s of run %d answered in %.2f s", found.metadata.message_type,
                    found.metadata.run_id, time.monotonic() - start,
                )  # fmt: skip
                if found.metadata.message_type == "evaluate":  # a study has ended
                    write_studies(config.path.parent)
                if len(config.parts) == 1:  # the next query comes when others have answered, too
                    link.rest(0.0, _NEXT)
            except _Lost as lost:
                logger.warning("%s", lost)
    if config.finished():
        logger.info("All studies are finished")


def _rehearse(config):
    """Compile the code of the coming queries while the curator starts."""
    start = time.monotonic()
    for part in config.parts:
        try:
            site = config.open(part, Study.load(part.file))
            if part.server is None and site.last() < 0:
                site.rehearse()
        except Exception:  # what is wrong comes up with the first query
            logger.debug("No rehearsal of %s", part.file, exc_info=True)
    logger.info("Compiled the code for queries in %.1f s", time.monotonic() - start)


def _answer(link, config, question):
    """What the ClientApp answers; the text of an error stays here."""
    run = question.metadata.run_id
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = run, link.node.node_id, 1
    settings = {"site": str(config.path), "clock": -round(link.clock.ahead, 1)}
    try:
        return app(question, Context(run, link.node.node_id, settings, RecordDict(), {}))
    except Exception:
        logger.exception("No answer to a %s message", question.metadata.message_type)
        error = Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, "no answer")
    return Message(error, reply_to=question)


class _Lost(Exception):
    """A message that could not be received or sent; the curator asks again."""


class _Clock:
    """Signs requests by the clock of the SuperLink, which may differ from that of this machine."""

    def __init__(self, private, public, name):
        self.agent = f"skpmtl/{__version__} ({name})"
        self.private, self.public = private, b64encode(public_key_to_bytes(public)).decode()
        self.ahead = 0.0  # seconds of the SuperLink's clock

    def intercept(self, context, call_next):
        sent = now()
        stamp = (sent + timedelta(seconds=self.ahead - _AGE)).isoformat()
        context.request.headers.update({
            "user-agent": self.agent,
            FLEET_HTTP_PUBLIC_KEY_HEADER: self.public,
            TIMESTAMP_HEADER: stamp,
            FLEET_HTTP_SIGNATURE_HEADER: b64encode(
                sign_message(self.private, stamp.encode("ascii"))
            ).decode(),
        })  # fmt: skip
        response = call_next(context)
        try:
            there = parsedate_to_datetime(response.headers["date"])
            # Between the two the answer was given: that may be long, where a process was stopped.
            first, last = (there - now()).total_seconds(), (there - sent).total_seconds()
        except (KeyError, TypeError, ValueError):
            return response
        if not first - 5.0 < self.ahead < last + 5.0:  # dates are in whole seconds
            self.ahead = (first + last) / 2
            logger.warning("The clock here is %.0f s off that of the SuperLink", -self.ahead)
        return response


class _Link:
    """Connection of a site to the SuperLink; it reconnects by itself."""

    def __init__(self, config):
        settings = config.settings
        secure = settings.certificate is not None
        context = ssl.create_default_context(cafile=settings.certificate) if secure else False
        self.registers = settings.key is None  # a SuperLink without known keys
        keys = generate_key_pairs() if self.registers else _read_key(settings.key)
        self.public = public_key_to_bytes(keys[1])
        self.clock = _Clock(*keys, settings.name)
        self.client = FleetHttpClient(
            f"{'https' if secure else 'http'}://{settings.superlink}", verify=context,
            interceptors=[RuntimeVersionHttpInterceptor("SuperNode"), self.clock],
            timeout=_TIMEOUT,
        )  # fmt: skip
        self.address, self.node = settings.superlink, None
        self.door, self._seen = True, ""  # whether there is one; what it said last
        self._known = config.folder / "node"  # number that the SuperLink gave to the key

    # -------------------------------------------------------------------- connection
    @contextmanager
    def alive(self, until):
        """Connect when it is possible, and show that the site is alive until the block ends.

        The end is not reported to the SuperLink, which would drop an answer that still waits there.
        """
        stop = threading.Event()
        pulse = threading.Thread(target=self._beat, args=(stop,), daemon=True)
        self._until = until
        pulse.start()
        try:
            yield
        finally:
            stop.set()
            pulse.join(_TIMEOUT)

    def _beat(self, stop):
        while not stop.wait(_OFTEN):
            node = self.node
            if node is not None:
                try:
                    self._sign_of_life(node)
                except (httpx.HTTPError, RuntimeError):
                    pass  # the other thread sees it, too

    def _sign_of_life(self, node):
        request = heartbeat_pb2.SendNodeHeartbeatRequest(
            node=node, heartbeat_interval=HEARTBEAT_MIN_INTERVAL
        )
        return self.client.SendNodeHeartbeat(request).success

    def _connect(self):
        """Become known to the SuperLink; raises what httpx raises."""
        if self.node is None and self._known.exists() and not self.registers:
            # After a crash the SuperLink takes this site for alive, and activates it not again.
            node = Node(node_id=int(self._known.read_text()))
            try:
                if self._sign_of_life(node):
                    self.node = node
                    return
            except httpx.HTTPStatusError:
                pass
        if self.registers:
            self.client.RegisterNode(fleet_pb2.RegisterNodeFleetRequest(public_key=self.public))
        request = fleet_pb2.ActivateNodeRequest(
            public_key=self.public, heartbeat_interval=HEARTBEAT_MIN_INTERVAL
        )
        try:
            found = self.client.ActivateNode(request)
        except httpx.HTTPStatusError as error:
            if error.response.status_code != 401:
                raise
            found = self.client.ActivateNode(request)  # by the clock that the answer has shown
        self.node, self.door = Node(node_id=found.node_id), True
        write_file(self._known, str(found.node_id).encode())
        logger.info("Connected to %s as node %d", self.address, found.node_id)

    def rest(self, quiet, most=_RARE):
        """Until there may be queries, `quiet` seconds after the last one, and `most` seconds.

        The door of a curator says when. Without one, a SuperLink is asked again and again: that
        costs it more than a site, and is done less often as nothing comes.
        """
        if not self.door:
            self._until.wait(min(max(_POLL, quiet / 10), _IDLE))
            return
        end = time.monotonic() + most
        while time.monotonic() < end and not self._until.is_set():
            try:
                found = self._ask_door(f"wait?seen={self._seen}")
            except (httpx.HTTPError, RuntimeError, OSError):
                self._until.wait(_IDLE)
                return
            if found.status_code != 200:  # a SuperLink without a door
                self.door = False
                return
            if found.text != self._seen:
                self._seen = found.text
                return

    def _ask_door(self, path):
        headers = {
            "user-agent": self.clock.agent, FLEET_HTTP_PUBLIC_KEY_HEADER: self.clock.public,
        }  # fmt: skip
        return self.client._client.get(f"{self.client._base_url}/{path}", headers=headers)

    def receive(self):
        """The next query, or None; waits as long as there is no connection.

        Raises _Lost when a query could not be fetched as a whole.
        """
        wait, said = 0.2, None
        while not self._until.is_set():
            try:
                if self.node is None:
                    self._connect()
                found = self.client.PullMessages(fleet_pb2.PullMessagesRequest(node=self.node))
                if said is not None:
                    logger.info("The connection to %s is restored", self.address)
                break
            except (httpx.HTTPError, RuntimeError, OSError) as error:
                why = _why(error)
                if why != said:
                    logger.warning("No connection to %s, retrying: %s", self.address, why)
                said = why
                if isinstance(error, httpx.HTTPStatusError):
                    self.node = None  # it may have forgotten this site
                    self._known.unlink(missing_ok=True)
                self._until.wait(wait)
                wait = min(2 * wait, _LONGEST)
        else:
            return None
        if not found.messages_list:
            return None
        message, tree = message_from_proto(found.messages_list[0]), found.message_object_trees[0]
        number, run = message.metadata.message_id, message.metadata.run_id
        parts = {}
        for item in {item.object_id for item in iterate_object_tree(tree)}:
            parts[item] = self._fetch(run, item)
        self._try(
            self.client.ConfirmMessageReceived,
            ConfirmMessageReceivedRequest(node=self.node, run_id=run, message_object_id=number),
        )
        message = inflate_object_from_contents(number, parts)
        message.metadata.__dict__["_message_id"] = number
        return message

    def _fetch(self, run, item):
        end = time.monotonic() + _PATIENCE
        request = PullObjectRequest(node=self.node, run_id=run, object_id=item)
        while time.monotonic() < end:
            found = self._try(self.client.PullObject, request)
            if not found.object_found:
                break
            if found.object_available:
                return found.object_content
            time.sleep(_POLL)
        raise _Lost("A query is gone from the SuperLink")

    def send(self, question, reply):
        """Send the reply to a query; nothing happens where the run is over.

        Raises _Lost when it could not be sent.
        """
        given = reply.metadata.__dict__
        given["_created_at"] = question.metadata.created_at  # whatever the clock here says
        given["_ttl"] = question.metadata.ttl
        given["_message_id"] = reply.object_id
        with no_object_id_recompute():
            tree, parts = get_object_tree(reply), get_all_nested_objects(reply)
            bare = message_to_proto(remove_content_from_message(reply))
            found = self._try(
                self.client.PushMessages,
                fleet_pb2.PushMessagesRequest(
                    node=self.node, messages_list=[bare], message_object_trees=[tree],
                    clientapp_runtime_list=[0.0],
                ),
            )  # fmt: skip
            for item in found.objects_to_push:
                self._try(
                    self.client.PushObject,
                    PushObjectRequest(
                        node=self.node, run_id=reply.metadata.run_id, object_id=item,
                        object_content=parts[item].deflate(), session_id=found.session_id,
                    ),
                )  # fmt: skip

    def _try(self, call, request):
        """Call; once more as long as the network is away, within the patience."""
        end, wait = time.monotonic() + _PATIENCE, 0.2
        while True:
            try:
                return call(request)
            except (httpx.HTTPError, RuntimeError) as error:
                status = isinstance(error, httpx.HTTPStatusError)
                if status and error.response.status_code not in (502, 503, 504):
                    raise _Lost(f"A message was not taken: {_why(error)}") from error
                if time.monotonic() > end or self._until.is_set():
                    raise _Lost(f"A message was lost: {_why(error)}") from error
            time.sleep(wait)
            wait = min(2 * wait, _LONGEST)


def _why(error):
    if isinstance(error, httpx.HTTPStatusError):
        if error.response.status_code in (401, 412):
            return (
                f"the SuperLink does not know the key of this site ({error.response.status_code}), "
                "or has just been started. If this stays, the curator has another key in "
                "sites/NAME.pub: restore site.key, or give the curator site.key.pub"
            )
        return f"{error.response.status_code} {error.response.text[:200]}"
    return f"{type(error).__name__} {error}"


def public_key_of(path):
    """The public key of a private key, in the form used in headers."""
    return b64encode(public_key_to_bytes(_read_key(path)[1])).decode()


def _read_key(path):
    data = path.read_bytes()
    try:
        key = load_ssh_private_key(data, None)
    except ValueError:
        key = load_pem_private_key(data, None)
    return key, key.public_key()


def stop_on_signals():
    """An event that is set when the process has to end."""
    until = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: until.set())
    return until
