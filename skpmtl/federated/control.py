"""What the curator's process asks of its SuperLink: to know the keys of sites, and to run a study.

Flower's commands do the same, each in a process of its own that takes seconds to start.
"""

import hashlib
import ssl

from ._flower import flower_version
from .supervisor import NotStarted

try:
    import httpx
    from cryptography.hazmat.primitives.serialization import load_ssh_public_key
    from flwr.cli.build import build_fab_from_disk
    from flwr.common.serde import fab_to_proto
    from flwr.proto.control_pb2 import (
        ListNodesRequest,
        ListRunsRequest,
        RegisterNodeRequest,
        StartRunRequest,
        UnregisterNodeRequest,
    )
    from flwr.supercore.control.control_http_client import ControlHttpClient
    from flwr.supercore.fab import Fab
    from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes
except ImportError as error:
    raise ImportError(
        f"Flower {flower_version} is no version that a curator runs with: install the extra anew "
        "with  pip install skpmtl[flower]"
    ) from error

__all__ = ["Control", "read_public_key"]


def read_public_key(path):
    """Of a file as ssh-keygen writes it. -> PEM

    Raises ValueError for another form of keys.
    """
    try:
        return public_key_to_bytes(load_ssh_public_key(path.read_bytes()))
    except ValueError as error:
        raise ValueError(f"{path} is no public key as ssh-keygen writes it: {error}") from error


class Control:
    """The Control API of a SuperLink on this machine, whose certificate is from `authority`."""

    def __init__(self, port, authority):
        self.client = ControlHttpClient(
            f"https://localhost:{port}", verify=ssl.create_default_context(cafile=authority),
            interceptors=[RuntimeVersionHttpInterceptor("flwr CLI")], timeout=60.0,
        )  # fmt: skip

    def know(self, keys):
        """Register `keys`, {public key (PEM): name of the site}, and forget those that are gone.

        -> {number that the SuperLink has given to a key: name}

        Raises OSError when the SuperLink does not answer, and NotStarted when it refuses.
        """
        known = self._nodes()
        for key, name in keys.items():
            if key not in known:
                self._call("RegisterNode", RegisterNodeRequest(public_key=key, name=name))
        for key in set(known) - set(keys):
            self._call("UnregisterNode", UnregisterNodeRequest(node_id=known[key]))
        return {node: keys[key] for key, node in self._nodes().items() if key in keys}

    def _nodes(self):
        found = self._call("ListNodes", ListNodesRequest()).nodes_info
        return {n.public_key: n.node_id for n in found if n.status != "unregistered"}

    def start(self, app):
        """Start the run of an app, a folder. -> its number"""
        data = build_fab_from_disk(app)
        fab = fab_to_proto(Fab(hashlib.sha256(data).hexdigest(), data, {}))
        return self._call("StartRun", StartRunRequest(fab=fab)).run_id

    def ended(self, number):
        """Whether a run is over, in whatever way."""
        runs = self._call("ListRuns", ListRunsRequest(run_id=number)).run_dict
        return all(run.status.status == "finished" for run in runs.values())

    def _call(self, name, request):
        try:
            return getattr(self.client, name)(request)
        except httpx.HTTPStatusError as error:
            raise NotStarted(f"{name}: {error.response.text[:300]}") from error
        except (httpx.HTTPError, RuntimeError) as error:
            raise OSError(f"{name}: {type(error).__name__} {error}") from error
