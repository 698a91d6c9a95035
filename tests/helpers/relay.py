"""A piece of network between processes, which can be told to fail."""

import socket
import threading
import time


def wait_for(condition, limit=90):
    end = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def reachable(port):
    try:
        socket.create_connection(("127.0.0.1", port), 0.2).close()
    except OSError:
        return False
    return True


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Relay(threading.Thread):
    """Passes bytes between sites and the SuperLink, and keeps a copy.

    ``mode``: "pass"; "drop" ends all connections and takes no new ones; "lose" holds them and
    swallows what is sent, as a network does that loses packets.
    """

    def __init__(self, target):
        super().__init__(daemon=True)
        self.target, self.up, self.down, self.pairs = target, [], [], []
        self.mode, self.ends = "pass", []
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = self.socket.getsockname()[1]

    def run(self):
        while True:
            try:
                site, _ = self.socket.accept()
            except OSError:  # closed
                return
            if self.mode == "drop":
                site.close()
                continue
            try:
                link = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                site.close()
                continue
            self.ends += [site, link]
            copies = bytearray(), bytearray()
            self.up.append(copies[0])
            self.down.append(copies[1])
            pair = threading.Thread(target=self._pass, args=(site, link, *copies), daemon=True)
            self.pairs.append(pair)
            pair.start()

    def _pass(self, site, link, up, down):
        with site, link:
            back = threading.Thread(target=self._pump, args=(link, site, down), daemon=True)
            back.start()
            self._pump(site, link, up)
            back.join()

    def _pump(self, source, target, copy):
        try:
            while data := source.recv(1 << 16):
                copy += data
                if self.mode == "lose":
                    continue
                target.sendall(data)
        except OSError:
            pass
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def drop(self):
        """End all connections, and take no new ones."""
        self.mode = "drop"
        for end in self.ends:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self.ends = []

    def close(self):
        """After the processes have ended."""
        try:
            self.socket.shutdown(socket.SHUT_RDWR)  # wakes accept
        except OSError:
            pass
        self.socket.close()
        for thread in [self, *self.pairs]:
            if thread.ident is not None:
                thread.join(10)
