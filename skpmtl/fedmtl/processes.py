"""Servers of the secure aggregation as processes of this machine, which stay up between rounds."""

import importlib.util
import os
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from .certificates import make_certificates
from .mpc_server.server import LOST

__all__ = ["LocalServers", "free_ports"]

PLACE = Path(__file__).parent  # where a server is started: there it imports nothing of skpmtl


class LocalServers:
    """Server processes on this machine, until this is closed; a context manager.

    Server r has the folder ``server<r>``, with its certificate and its log. It reads numbers of
    rounds from its standard input, one a line, and ends with it: what it gets and gives in a round
    is in ``round-<number>``, where ``out/run.json`` is written last. A round has `timeout` seconds.
    `folder`, new or empty or a ValueError, keeps what every server got and sent, for an audit;
    None: a temporary folder, removed at the end.
    """

    # Of an engine: arguments of Python before the folder, what must be installed, and how.
    arguments = modules = ()
    remedy = ""

    def __init__(self, n_servers, timeout, folder):
        self.timeout, self.servers, self.stack = timeout, [], ExitStack()
        self.running = self.stack.enter_context(ExitStack())
        if folder is None:
            folder = self.stack.enter_context(tempfile.TemporaryDirectory(prefix="skpmtl-mpc-"))
        folder = Path(folder).resolve()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise ValueError(f"folder={str(folder)!r} must be new or empty.")
        self.folders = [folder / f"server{rank}" for rank in range(n_servers)]

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def close(self):
        """End the servers."""
        self.running.close()
        self.stack.close()

    def make_folders(self):
        """With certificates.

        Raises ImportError without the extra of the engine.
        """
        for module in self.modules:
            if importlib.util.find_spec(module) is None:
                raise ImportError(f"Secure aggregation needs {module}: {self.remedy}")
        make_certificates(self.folders)

    def start(self):
        """Start the processes, which is all that is known of them yet."""
        self.servers = []
        environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        for place in self.folders:
            log = self.running.enter_context(open(place / "log.txt", "wb"))
            # The pipe ends with this process, however that ends, and the server with the pipe.
            server = subprocess.Popen(
                [sys.executable, *self.arguments, str(place)], cwd=PLACE, env=environment,
                stdin=subprocess.PIPE, stdout=log, stderr=log, text=True,
            )  # fmt: skip
            self.servers.append(server)
            self.running.callback(_end, server)

    def query(self, number, what):
        """Let all servers do a round.

        Raises RuntimeError: one ended early, or the time is over; none is left then.
        """
        for server in self.servers:
            with suppress(BrokenPipeError):  # of a server that ended, which is seen below
                server.stdin.write(f"{number}\n")
                server.stdin.flush()
        self.wait_for(f"round-{number}/out/run.json", self.timeout, what)

    def wait_for(self, name, seconds, what):
        """Until there is a file of that name in the folders of all servers."""
        end = time.monotonic() + seconds
        while missing := [r for r, place in enumerate(self.folders) if not (place / name).exists()]:
            if any(server.poll() is not None for server in self.servers):
                raise RuntimeError(self._ended(what))
            if time.monotonic() > end:
                self.running.close()
                raise RuntimeError(
                    f"{what}: server {missing[0]} did not finish within timeout={seconds:g} "
                    "seconds; all servers were stopped and nothing was aggregated. Give more "
                    "time, or lower max_heads or the number of clients."
                )
            time.sleep(0.02)

    def _ended(self, what):
        """Why a server ended: the message of the error."""
        time.sleep(0.2)  # others may follow; those that only lost a connection end with LOST
        failed = {r: s.returncode for r, s in enumerate(self.servers) if s.poll() is not None}
        rank = min(failed, key=lambda r: failed[r] == LOST)
        lines = (self.folders[rank] / "log.txt").read_text(errors="replace").split("\n")
        reason = next((line for line in reversed(lines) if line.strip()), "no message")
        self.running.close()
        return (
            f"{what}: server {rank} ended with status {failed[rank]} ({reason.strip()}); the "
            "others were stopped and nothing was aggregated. Start the aggregation again; pass "
            f"folder= to keep server{rank}/log.txt."
        )


def _end(server):
    server.kill()
    server.wait()
    with suppress(BrokenPipeError):  # of what it did not read
        server.stdin.close()


def free_ports(count):
    with ExitStack() as stack:  # all open at once, hence different
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
